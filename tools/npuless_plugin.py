"""A plugin of pytest with which tests of an Ascend NPU run where there is none.

What enters: nothing; NPULESS_SECONDS is the processor time that each test may take. What leaves:
tests that see the `torch.npu` of npuless.py, with every device named `npu` the CPU.

    PYTHONPATH=src:tools python -m pytest -p npuless_plugin CHECKOUT/testing/python
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from npuless import NpuIsCpu, pretend_npu

pretend_npu()


def _too_long(*_: object) -> None:
    pytest.skip("too long")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    """Run one test with its devices on the CPU."""
    del item
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, float(os.environ.get("NPULESS_SECONDS", "0")))
    with NpuIsCpu():
        yield
    signal.setitimer(signal.ITIMER_PROF, 0)
