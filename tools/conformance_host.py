"""Runs one program that asks for a GPU on the emulator; see conformance.py.

What enters: the path of a program, and a chip. What leaves: one line that begins with OUTCOME.
Devices of torch named `cuda` become the CPU, and what torch says about a GPU is what an H100 would
say.
"""

from __future__ import annotations

import os
import runpy
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


def _on_cpu(x: Any) -> Any:
    """`x` with every CUDA device in it replaced by the CPU."""
    if isinstance(x, torch.device):
        return torch.device("cpu") if x.type == "cuda" else x
    if isinstance(x, str) and (x == "cuda" or x.startswith("cuda:")):
        return "cpu"
    if isinstance(x, (tuple, list)) and not isinstance(x, torch.Size):
        return type(x)(_on_cpu(v) for v in x) if type(x) in (tuple, list) else x
    return x


class CudaIsCpu(TorchFunctionMode):
    """Carries out every torch call that names a CUDA device on the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.Tensor.is_cuda.__get__:  # pyright: ignore[reportAttributeAccessIssue]
            return True
        moved = {k: _on_cpu(v) for k, v in (kwargs or {}).items()}
        return func(*_on_cpu(tuple(args)), **moved)


class _Event:
    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, *_: Any) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, _: Any) -> float:
        return 1.0


def pretend_gpu() -> None:
    """Make `torch.cuda` answer as on a machine with one H100."""
    properties = types.SimpleNamespace(
        name="NVIDIA H100", major=9, minor=0, multi_processor_count=132, total_memory=80 << 30
    )
    properties.L2_cache_size = 50 << 20
    properties.shared_memory_per_block_optin = 232448
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda *_: None,
        "synchronize": lambda *_: None,
        "empty_cache": lambda: None,
        "manual_seed": lambda *_: None,
        "manual_seed_all": lambda *_: None,
        "get_device_capability": lambda *_: (9, 0),
        "get_device_properties": lambda *_: properties,
        "get_device_name": lambda *_: properties.name,
        "is_bf16_supported": lambda *_: True,
        "Event": _Event,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)


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

    number = int("".join(c for c in chip if c.isdigit()))
    devices.device_version = lambda device=0: divmod(number, 10)
    for user in ("compile", "checking"):
        __import__(f"tilelang.runtime.{user}")
        setattr(sys.modules[f"tilelang.runtime.{user}"], "resolve", redirected)  # noqa: B010 - untyped


def outcome_of(exc: BaseException) -> tuple[str, str]:
    """What an exception says about the program: the outcome and one line of reason."""
    from tilelang.errors import InternalError, TileError

    reason = f"{type(exc).__name__}: {exc}"
    if isinstance(exc, ModuleNotFoundError) and not str(exc.name).startswith("tilelang"):
        return "needs a package", str(exc.name)
    if isinstance(exc, TileError):
        return "refused", exc.diagnostics[0].message if exc.diagnostics else reason
    if isinstance(exc, AssertionError) and not isinstance(exc, InternalError):
        return "wrong", reason
    return "failed", reason


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
        print(f"\nTEST\t{name}\t{outcome}\t{' '.join(reason.split())[:200]}", flush=True)
    good = all(outcome in ("passed", "skipped") for _, outcome, _ in collected.rows)
    summary = "passed" if good and collected.rows else "failed"
    print(
        f"\nOUTCOME\t{summary}\t{'' if collected.rows else f'no test ran, exit {code}'}", flush=True
    )


def main() -> None:
    """Run the program named on the command line."""
    path, chip, how = sys.argv[1:4]
    warnings.filterwarnings("ignore")
    sys.argv = [path]
    sys.path.insert(0, os.path.dirname(path))
    pretend_gpu()
    redirect_targets(chip)
    if how == "run" and os.path.basename(path).startswith("test_"):
        run_tests(path)
        os._exit(0)
    has_main = how == "run" and "__main__" in Path(path).read_text(encoding="utf-8")
    outcome, reason = ("passed", "") if has_main else ("loads", "")
    try:
        with CudaIsCpu():
            runpy.run_path(path, run_name="__main__" if how == "run" else "program")
    except SystemExit as exc:
        if exc.code not in (None, 0):
            outcome, reason = "failed", f"exit {exc.code}"
    except BaseException as exc:
        outcome, reason = outcome_of(exc)
        if os.environ.get("CONFORMANCE_TRACE"):
            import traceback

            traceback.print_exc()
    line = " ".join(reason.split())[:200]
    print(f"\nOUTCOME\t{outcome}\t{line}", flush=True)
    os._exit(0)


main()
