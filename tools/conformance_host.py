"""Runs one program that asks for a GPU on the emulator; see conformance.py.

What enters: the path of a program, a chip, and what to do: `load` it, `run` it as it is, run it
with `small` sizes, or `unchecked` besides, where its reference needs a GPU. What leaves: one line
that begins with OUTCOME, before it a line SIZES with the sizes that were lowered and a line CHECK
for every check of its own that the program passed.
"""

from __future__ import annotations

import ast
import importlib
import os
import resource
import sys
import types
import warnings
from pathlib import Path
from typing import Any

from conformance_checks import Marks, time_once
from conformance_outcome import one_line, outcome_of
from gpuless import (
    CudaIsCpu,
    NoAsserts,
    accept_all,
    capability,
    pretend_gpu,
    processors,
    silence_triton,
)
from sizes import lower_main, lower_options


def redirect_targets(chip: str) -> None:
    """Let every CUDA target, and the default one, mean the emulator of `chip`."""
    os.environ["TILELANG_DEFAULT_TARGET"] = f"emulate:{chip}"
    from tilelang.runtime import resolve as module

    resolve = module.resolve

    def redirected(spec: Any = None, default: str = "auto") -> Any:
        text = str(spec.get("kind") if isinstance(spec, dict) else spec)
        wanted = spec is not None and (text.startswith("cuda") or text == "auto")
        return resolve(f"emulate:{chip}" if wanted else spec, default)

    module.resolve = redirected
    from tilelang.compat import devices

    devices.device_version = lambda device=0: capability(chip)
    driver = importlib.import_module("tilelang.carver.arch.driver")
    driver.get_num_sms = lambda device_id=0: processors(chip)  # pyright: ignore[reportAttributeAccessIssue]
    devices.MODEL = f"emulate:{chip}"
    for user in ("compile", "checking"):
        __import__(f"tilelang.runtime.{user}")
        setattr(sys.modules[f"tilelang.runtime.{user}"], "resolve", redirected)  # noqa: B010 - untyped


class Collected:
    """Collects what became of each test of a file."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str]] = []

    def pytest_collectreport(self, report: Any) -> None:
        """A file that cannot be collected: the last line of why."""
        if report.failed:
            lines = [x[2:].strip() for x in str(report.longrepr).splitlines() if x.startswith("E ")]
            why = lines[-1] if lines else "cannot be collected"
            outcome = "refused" if "docs/declared.md" in why else "failed"
            self.rows.append(("(file)", outcome, why))

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        """One row per test: that of its call, or of a failed set-up."""
        name = item.nodeid.split("::", 1)[-1]
        if call.excinfo is not None and call.when in ("setup", "call"):
            exc = call.excinfo.value
            if type(exc).__name__ == "Skipped":
                self.rows.append((name, "skipped", str(exc)))
            else:
                self.rows.append((name, *outcome_of(exc)))
        elif call.when == "call":
            self.rows.append((name, "passed", ""))


def run_tests(path: str) -> None:
    """Run a file of tests; one line per test."""
    import pytest

    collected = Collected()
    with CudaIsCpu():
        options = ["-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--rootdir=/", path]
        code = pytest.main(options, plugins=[collected])
    for name, outcome, reason in collected.rows:
        print(f"\nTEST\t{name}\t{outcome}\t{one_line(reason)}", flush=True)
    good = all(outcome in ("passed", "skipped") for _, outcome, _ in collected.rows)
    summary = "passed" if good and collected.rows else "failed"
    print(
        f"\nOUTCOME\t{summary}\t{'' if collected.rows else f'no test ran, exit {code}'}", flush=True
    )


def execute(path: str, name: str, how: str) -> None:
    """Run a file as the module `name`, with smaller sizes or without its checks where asked for."""
    small = how in ("small", "unchecked")
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    changed: list[str] = lower_main(tree) if small else []
    if small:
        lower_options(changed)
    if how == "unchecked":
        silence_triton()
        accept_all()
    watch = NoAsserts() if how == "unchecked" else Marks()
    tree = ast.fix_missing_locations(watch.visit(tree))
    module = types.ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module
    if changed:
        print(f"\nSIZES\t{' '.join(changed)}", flush=True)
    try:
        exec(compile(tree, path, "exec", dont_inherit=True), module.__dict__)
    finally:
        print(f"\nSIZES\t{' '.join(changed)}", flush=True)


def main() -> None:
    """Run the program named on the command line."""
    path, chip, how = sys.argv[1:4]
    memory = int(os.environ.get("CONFORMANCE_MEMORY", "0")) << 30
    seconds = int(os.environ.get("CONFORMANCE_SECONDS", "0"))
    if seconds:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    warnings.filterwarnings("ignore")
    sys.argv = [path]
    sys.path.insert(0, os.path.dirname(path))
    pretend_gpu(capability(chip))
    redirect_targets(chip)
    if how == "run" and os.path.basename(path).startswith("test_"):
        run_tests(path)
        os._exit(0)
    runs = how != "load" and "__main__" in Path(path).read_text(encoding="utf-8")
    if how != "load":
        time_once()
    outcome, reason = ("passed", "") if runs else ("loads", "")
    try:
        with CudaIsCpu():
            execute(path, "__main__" if runs else "program", how)
    except SystemExit as exc:
        if exc.code not in (None, 0):
            outcome, reason = "failed", f"exit {exc.code}"
    except BaseException as exc:
        outcome, reason = outcome_of(exc)
        if os.environ.get("CONFORMANCE_TRACE"):
            import traceback

            traceback.print_exc()
    print(f"\nOUTCOME\t{outcome}\t{one_line(reason)}", flush=True)
    os._exit(0)


main()
