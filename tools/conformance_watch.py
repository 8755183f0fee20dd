"""A plugin of pytest that writes down what became of each test of another checkout on a device.

What enters: the environment variables CONFORMANCE_ROWS, a folder, and CONFORMANCE_LIMIT, seconds
for a test. What leaves: in that folder one file for each process, with a line of JSON when a test
begins and one when it ends: its name, outcome, reason, seconds, and the end of its traceback.

A kernel that faults takes CUDA's context with it, and one that hangs never returns. So after each
test the device is asked, and a process that cannot use it any more ends, as does one whose test
takes longer than the limit; pytest-xdist starts another in its place.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance_outcome import one_line, outcome_of

# The package under test is imported before a checkout can put its own folder of that name first.
import tilelang

ROWS = Path(os.environ["CONFORMANCE_ROWS"]) / f"{os.getpid()}.jsonl"
LIMIT = float(os.environ["CONFORMANCE_LIMIT"])
ROOT = Path(__file__).resolve().parent.parent

# An assertion on these is one about a text that the package under test makes, and not on numbers.
_TEXT = re.compile(
    r"source|\bsrc\b|script|\bcode\b|\bcuda\b|\btext\b|\blines?\b|\bptx\b|\bsass\b|\bstr\(|codegen"
    r"|warning|\bir\b|repr\(|matches"
)


def write(**row: Any) -> None:
    """Append a line, so that it is there whatever happens next."""
    with ROWS.open("a") as file:
        file.write(json.dumps(row) + "\n")


def reason_of(excinfo: Any) -> tuple[str, str]:
    """The outcome of a test that raised, and why."""
    exc = excinfo.value
    if isinstance(exc, (pytest.skip.Exception, pytest.xfail.Exception)):
        return "skipped", str(exc)
    outcome, reason = outcome_of(exc)
    if "Regex pattern did not match" in reason:
        return "text", reason
    if (outcome == "wrong" or isinstance(exc, StopIteration)) and _TEXT.search(
        str(excinfo.traceback[-1].statement)
    ):
        return "text", f"{excinfo.traceback[-1].statement}: {exc}"
    return outcome, reason


def frames(excinfo: Any) -> str:
    """The end of a traceback."""
    made = traceback.format_exception(excinfo.type, excinfo.value, excinfo.tb)
    return "".join(made)[-3000:]


def device_error() -> str:
    """Why the device cannot be used any more, empty where it can."""
    import torch

    if not torch.cuda.is_initialized():
        return ""
    try:
        torch.cuda.synchronize()
    except Exception as exc:  # whatever the driver says
        return one_line(str(exc))
    return ""


class Watch:
    """The hooks; one object for each process that runs tests."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> Iterator[None]:
        """Note the beginning, and end the process where the test takes too long."""
        name, start = item.nodeid, time.monotonic()
        write(test=name, began=True)

        def late() -> None:
            why = f"more than {LIMIT:.0f} s"
            write(test=name, outcome="too long", reason=why, seconds=LIMIT, trace="")
            os._exit(1)

        timer = threading.Timer(LIMIT, late)
        timer.daemon = True
        timer.start()
        self.row: dict[str, Any] = {"outcome": "passed", "reason": "", "trace": ""}
        try:
            yield
            fault = device_error()
            if fault and self.row["outcome"] == "passed":
                self.row |= {"outcome": "failed", "reason": fault}
            write(test=name, seconds=round(time.monotonic() - start, 2), **self.row)
            if fault:
                os._exit(1)
        finally:
            timer.cancel()

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        """The first thing that a test raises decides."""
        if call.excinfo is not None and self.row["outcome"] == "passed":
            outcome, reason = reason_of(call.excinfo)
            trace = "" if outcome == "skipped" else frames(call.excinfo)
            self.row |= {"outcome": outcome, "reason": one_line(reason), "trace": trace}

    def pytest_collectreport(self, report: Any) -> None:
        """A file that cannot be collected is a row: the last line of why."""
        text = str(report.longrepr)
        if report.failed:
            lines = [x[2:].strip() for x in text.splitlines() if x.startswith("E ")]
            why = lines[-1] if lines else "cannot be collected"
            missing = re.search(r"No module named '((?!tilelang)[\w.]+)'", why)
            outcome = "needs a package" if missing else "refused"
            write(test=report.nodeid, outcome=outcome, reason=one_line(why), seconds=0, trace=text)
        elif report.skipped:
            why = report.longrepr[2] if isinstance(report.longrepr, tuple) else text
            write(test=report.nodeid, outcome="skipped", reason=one_line(why), seconds=0, trace="")


def pytest_configure(config: pytest.Config) -> None:
    """Watch this process, unless it only hands out tests to others."""
    assert Path(tilelang.__file__).is_relative_to(ROOT), f"not under test: {tilelang.__file__}"
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Watch(), "conformance-watch")
