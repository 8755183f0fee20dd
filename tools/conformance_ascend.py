"""How many programs written for Ascend NPUs run on the simulator, and why the rest do not.

What enters: a folder of programs of the Ascend adapter tree (a checkout of its examples), named on
the command line. What leaves: one line per file: its outcome, the checks of its own that passed,
the launches and instructions by pipe, and whether it fails when every value stored to global memory
is changed (a check that still passes then checks nothing). A program that asserts nothing counts by
what it prints of its comparison. `--out FILE` keeps the lines. Nothing of the checkout is copied or
changed; sizes are those of the programs.

    python tools/conformance_ascend.py CHECKOUT/examples --out docs/conformance-ascend.tsv

Each program runs by itself, in its own process, with a limit on its processor time, and with one
thread where OMP_NUM_THREADS does not say otherwise.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOST = ROOT / "tools" / "conformance_ascend_host.py"
COLUMNS = "path\toutcome\tchecks\tlaunches\tinstructions\tplanted\treason"
COUNTED = "passed"
OUTCOMES = {
    COUNTED: "its own checks hold, on results of the simulator, and fail with a planted change",
    "ran": "ran to its end; it compares nothing, or what it compares is not changed by the plant",
    "loads": "launches no kernel",
    "too long": "ran without a fault until the time limit",
    "needs a package": "imports a package that is not installed, or an operator of torch_npu",
    "refused": "refused with a located message",
    "wrong": "ran, and a check of its own failed",
    "failed": "ended in another error",
}
# What programs say of their own comparison where they assert nothing.
HOLDS = re.compile(r"kernel output match|test passed|pass\b", re.IGNORECASE)
FAILS = re.compile(r"fail|mismatch|incorrect|not correct", re.IGNORECASE)
# A program that waits for the machine ends after this many times its limit.
WALL = 6


@dataclass(frozen=True)
class Row:
    """One program: what became of it, and what it did; `said` counts the lines in which it says
    that a comparison holds, and that one fails.
    """

    path: str
    outcome: str
    reason: str = ""
    checks: int = 0
    launches: int = 0
    pipes: str = ""
    planted: str = ""
    said: tuple[int, int] = (0, 0)

    def line(self) -> str:
        """The row as it is kept."""
        counts = f"{self.checks}\t{self.launches}\t{self.pipes}"
        return f"{self.path}\t{self.outcome}\t{counts}\t{self.planted}\t{self.reason}"


def programs(folder: Path) -> Iterator[Path]:
    """The files below `folder` that define a kernel."""
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        try:
            names = {n.attr for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Attribute)}
        except SyntaxError:
            continue
        if "tilelang" in text and {"prim_func", "Kernel"} & names:
            yield path


def attempt(path: Path, folder: Path, limit: float, how: str) -> Row:
    """Run one program in a process of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "CONFORMANCE_SECONDS": str(int(limit)),
    }
    name = str(path.relative_to(folder))
    try:
        done = subprocess.run(
            [sys.executable, str(HOST), str(path), how],
            cwd=path.parent,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=WALL * limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Row(name, "too long", f"more than {WALL * limit:.0f} s by the clock")
    if done.returncode == -signal.SIGXCPU:
        checks = done.stdout.splitlines().count("CHECK")
        return Row(name, "too long", f"more than {limit:.0f} s; {checks} checks passed before")
    return read_output(name, done.stdout, done.stderr)


def read_output(name: str, output: str, errors: str) -> Row:
    """The row that the output of a program means."""
    lines = output.splitlines()
    last = [line for line in lines if line.startswith("OUTCOME\t")]
    if not last:
        tail = (errors.strip().splitlines() or ["no output"])[-1]
        return Row(name, "failed", tail[:200])
    _, outcome, reason = last[-1].split("\t", 2)
    _, launches, pipes = next(x for x in reversed(lines) if x.startswith("PIPES\t")).split("\t", 2)
    said = tuple(sum(bool(words.search(x)) for x in lines) for words in (HOLDS, FAILS))
    checks = lines.count("CHECK")
    return Row(name, outcome, reason, checks, int(launches), pipes, said=(said[0], said[1]))


def run_one(path: Path, folder: Path, limit: float, known: Row | None, *, plant: bool) -> Row:
    """Run one program as it is, and where its checks hold, once more with the planted change.

    Of a program that is `known` to pass, only the planted change is tried.
    """
    row = known if known is not None and known.checks else attempt(path, folder, limit, "run")
    if row.outcome != COUNTED:
        return row
    if not row.launches:
        return replace(row, outcome="loads")
    silent = not row.checks and "assert" not in path.read_text(encoding="utf-8")
    if not row.checks and row.said[1] and not row.said[0]:
        return replace(row, outcome="wrong", reason="it says that its comparison fails")
    if not plant:
        return replace(row, outcome="ran", reason="it compares nothing") if silent else row
    return with_plant(path, folder, limit, row, kept=row is known)


def with_plant(path: Path, folder: Path, limit: float, row: Row, *, kept: bool) -> Row:
    """Whether a program that passes fails with the planted change; `kept` says that the row is one
    of an earlier run.
    """
    again = attempt(path, folder, limit, "planted")
    if again.outcome != COUNTED:
        return replace(row, planted=again.outcome)
    if kept:
        row = attempt(path, folder, limit, "run")  # what it says is not kept
    if again.said[0] < row.said[0] or again.said[1] > row.said[1]:
        return replace(row, planted="wrong")  # the program says so, and ends as if nothing were
    reason = "a changed result passes too" if row.checks else "it compares nothing"
    return replace(row, outcome="ran", planted="passes", reason=reason)


def kept(out: Path | None) -> dict[str, Row]:
    """The rows of an earlier run, by path."""
    found: dict[str, Row] = {}
    lines = out.read_text().splitlines() if out is not None and out.exists() else []
    for line in lines:
        if line.startswith("#") or line == COLUMNS:
            continue
        path, outcome, checks, launches, pipes, planted, reason = line.split("\t")
        found[path] = Row(path, outcome, reason, int(checks), int(launches), pipes, planted)
    return found


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="programs to run, for example CHECKOUT/examples")
    parser.add_argument("--only", default="", help="files whose path contains one, by commas")
    parser.add_argument(
        "--redo", default="", help="outcomes, by commas, to try again; keep the rest"
    )
    parser.add_argument("--limit", type=float, default=300, help="seconds for each file")
    parser.add_argument("--once", action="store_true", help="leave out the planted changes")
    parser.add_argument("--plant", action="store_true", help="try those that are left out yet")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, help="keep the lines here")
    return parser.parse_args()


def main() -> int:
    """Run the programs and print what became of them."""
    given = parse()
    folder: Path = given.folder.resolve()
    rows = kept(given.out)
    redo = set(filter(None, given.redo.split(",")))
    only = [x for x in given.only.split(",") if x]
    chosen: list[tuple[Path, Row | None]] = []
    for path in programs(folder):
        name = str(path.relative_to(folder))
        known = rows.get(name)
        if only and not any(x in name for x in only):
            continue
        if given.plant:
            if known is not None and known.outcome == COUNTED and not known.planted:
                chosen.append((path, known))
        elif known is None or not redo or known.outcome in redo:
            chosen.append((path, None))
    began = time.monotonic()
    with ThreadPoolExecutor(given.jobs) as pool:
        jobs = [
            pool.submit(run_one, p, folder, given.limit, known, plant=not given.once)
            for p, known in chosen
        ]
        for job in jobs:
            row = job.result()
            rows[row.path] = row
            seconds = time.monotonic() - began
            print(f"{seconds:6.0f} s  {row.outcome:16} {row.path}  {row.reason}", flush=True)
            if given.out is not None:
                lines = [rows[name].line() for name in sorted(rows)]
                head = [f"# {len(lines)} programs on simulate:ascend910b", COLUMNS]
                given.out.write_text("\n".join([*head, *lines]) + "\n")
    counts = Counter(row.outcome for row in rows.values())
    for outcome, meaning in OUTCOMES.items():
        print(f"{counts[outcome]:5}  {outcome}: {meaning}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
