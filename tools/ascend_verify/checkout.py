"""The AscendC sources of the programs of a checkout of the Ascend adapter, run and compared.

`python -m ascend_verify.checkout CHECKOUT FOLDER [NAME...]`, with tools on the path: runs programs
of CHECKOUT/examples, unchanged, with a `torch` whose NPUs are the CPU; by default those that pass
in docs/conformance-ascend.tsv. Of each the first launch is compared (see `launches.py`), in a
process of its own. What leaves: a line for each program, tab-separated: its path, launches
compared, how far they are from the simulator's numbers, calls, or why there is nothing to compare.
"""

from __future__ import annotations

import ast
import os
import resource
import signal
import subprocess
import sys
import types
import warnings
from pathlib import Path

HERE = Path(__file__).parent
TABLE = HERE.parent.parent / "docs" / "conformance-ascend.tsv"
LAUNCHES, SECONDS, WALL = 1, 60, 150


def one(path: str, folder: Path) -> None:
    """Run a program in this process until enough launches are compared."""
    from ascend_verify import launches
    from conformance_checks import Marks, time_once
    from npuless import NpuIsCpu, pretend_npu

    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    warnings.filterwarnings("ignore")
    sys.argv = [path]
    sys.path.insert(0, os.path.dirname(path))
    pretend_npu()
    time_once()
    tree = ast.fix_missing_locations(Marks().visit(ast.parse(Path(path).read_text())))
    module = types.ModuleType("__main__")
    module.__file__ = path
    sys.modules["__main__"] = module

    class Enough(BaseException):
        """Enough launches."""

    class Found(list[launches.Launched]):
        """Launches, each said at once."""

        def append(self, found: launches.Launched) -> None:
            super().append(found)
            said = found.fault.splitlines()[0] if found.fault else f"{found.apart:.1e}"
            print(f"LAUNCH\t{sum(found.calls.values())}\t{said}", flush=True)
            if len(self) == LAUNCHES or found.fault:
                raise Enough

    with NpuIsCpu(), launches.checked(folder, Found()):
        try:
            exec(compile(tree, path, "exec", dont_inherit=True), module.__dict__)
        except Enough:
            pass
        except BaseException as problem:
            print(f"ENDED\t{type(problem).__name__}", flush=True)
    os._exit(0)


def line_of(program: Path, name: str, folder: Path) -> str:
    """Run a program in a process of its own; what it said."""
    command = [sys.executable, "-m", "ascend_verify.checkout", "--one", str(program), str(folder)]
    # A session of its own: what is late ends with the programs that it has started.
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=WALL)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, _ = process.communicate()
    found = [line.split("\t")[1:] for line in out.splitlines() if line.startswith("LAUNCH\t")]
    good = [
        (int(calls), float(said)) for calls, said in found if said[:1].isdigit() or said == "inf"
    ]
    faults = [said for calls, said in found if not (said[:1].isdigit() or said == "inf")]
    worst = f"{max(far for _, far in good):.1e}" if good else ""
    ended = [line.split("\t")[1] for line in out.splitlines() if line.startswith("ENDED\t")]
    why = faults[0] if faults else "" if good else (ended or ["no launch in the time"])[0]
    return "\t".join([name, str(len(good)), worst, str(sum(c for c, _ in good) or ""), why])


def main() -> int:
    """All programs, or those named."""
    if sys.argv[1] == "--one":
        one(sys.argv[2], Path(sys.argv[3]))
    checkout, folder, *names = sys.argv[1:]
    if not names:
        rows = [line.split("\t") for line in TABLE.read_text().splitlines()[2:]]
        names = [row[0] for row in rows if row[1] == "passed"]
    for name in names:
        print(line_of(Path(checkout) / "examples" / name, name, Path(folder)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
