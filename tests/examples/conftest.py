"""What the tests of examples/ can ask for: the findings about every kernel that they run."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang
from tilelang.errors import Severity, TileError
from tilelang.runtime.kernel import JITKernel


@pytest.fixture
def findings(monkeypatch):
    """The findings about every kernel that the test runs: static, and dynamic with its arguments.

    Notes do not count: they say what was not proved.
    """
    found = []
    call = JITKernel.__call__

    def checked(kernel, *args, **kwargs):
        copies = [x.copy() if isinstance(x, np.ndarray) else x for x in args]
        named = {k: x.copy() if isinstance(x, np.ndarray) else x for k, x in kwargs.items()}
        try:
            every = tilelang.check(kernel, run_with=[*copies, *named.values()])
        except TileError as exc:  # the dynamic check does not follow every kernel
            if "the dynamic check does not follow" not in str(exc):
                raise
            every = tilelang.check(kernel)
        found.extend(d for d in every if d.severity is not Severity.NOTE)
        return call(kernel, *args, **kwargs)

    monkeypatch.setattr(JITKernel, "__call__", checked)
    return found
