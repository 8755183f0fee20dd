"""Runs one program written for Ascend NPUs on the simulator; see conformance_ascend.py.

What enters: the path of a program, and whether to `run` it or to run it with a `planted` fault:
every value that a core stores to global memory is changed. What leaves: one line that begins with
OUTCOME, before it a line PIPES with the instructions by pipe, and a line CHECK for every check of
its own that the program passed.
"""

from __future__ import annotations

import ast
import os
import resource
import sys
import types
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from conformance_checks import Marks, time_once
from conformance_outcome import one_line, outcome_of
from npuless import NpuIsCpu, pretend_npu

PIPES: Counter[str] = Counter()
LAUNCHES = Counter[str]()


def count_instructions() -> None:
    """Add up the instructions of every simulated launch."""
    from tilelang.simulator.ascend import AscendProgram

    run = AscendProgram.run

    def counted(self: Any, args: Any) -> None:
        before = Counter(self.counts.by_pipe)
        run(self, args)
        PIPES.update(Counter(self.counts.by_pipe) - before)
        LAUNCHES["simulated"] += 1

    AscendProgram.run = counted


def plant_fault() -> None:
    """Change every value that is stored to global memory."""
    from tilelang.targets.ascend.rows import copies

    combine = copies.combine

    def changed(dst: Any, src: Any, atomic: str) -> None:
        step = np.ones((), src.dtype)
        combine(dst, (src + src + step).astype(src.dtype), atomic)

    copies.combine = changed  # pyright: ignore[reportAttributeAccessIssue]


def execute(path: str, name: str) -> None:
    """Run a file as the module `name`."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    tree = ast.fix_missing_locations(Marks().visit(tree))
    module = types.ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module
    exec(compile(tree, path, "exec", dont_inherit=True), module.__dict__)


def main() -> None:
    """Run the program named on the command line."""
    path, how = sys.argv[1:3]
    seconds = int(os.environ.get("CONFORMANCE_SECONDS", "0"))
    if seconds:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    warnings.filterwarnings("ignore")
    sys.argv = [path]
    sys.path.insert(0, os.path.dirname(path))
    pretend_npu()
    count_instructions()
    if how == "planted":
        plant_fault()
    time_once()
    outcome, reason = "passed", ""
    try:
        with NpuIsCpu():
            execute(path, "__main__")
    except SystemExit as exc:
        if exc.code not in (None, 0):
            outcome, reason = "failed", f"exit {exc.code}"
    except BaseException as exc:
        outcome, reason = outcome_of(exc)
        if isinstance(exc, AttributeError) and "npu" in reason and outcome == "failed":
            outcome, reason = "needs a package", f"torch_npu: {exc}"
        if os.environ.get("CONFORMANCE_TRACE"):
            import traceback

            traceback.print_exc()
    pipes = " ".join(f"{pipe}:{n}" for pipe, n in sorted(PIPES.items()) if n)
    print(f"\nPIPES\t{LAUNCHES['simulated']}\t{pipes}", flush=True)
    print(f"\nOUTCOME\t{outcome}\t{one_line(reason)}", flush=True)
    os._exit(0)


main()
