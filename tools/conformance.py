"""How many programs of another checkout load and run here, and why the rest do not.

What enters: a folder of programs written for TileLang (a checkout of its examples), named on the
command line. What leaves: one line per file with an outcome and a reason, and a count of each
outcome; `--out FILE` keeps the lines. Nothing of the checkout is copied.

Programs ask for a GPU: `cuda` devices become the CPU, and CUDA targets the emulator under the rules
of the chip that `--chip` names. Each program runs by itself, in its own process, with a time limit.

    python tools/conformance.py CHECKOUT/examples --out docs/conformance.tsv
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTCOMES = {
    "passed": "ran to its end, its own checks included",
    "loads": "loads; it has no main part to run",
    "too long": "loads and ran without a fault until the time limit",
    "needs a package": "imports a package that is not installed",
    "refused": "refused with a located message",
    "wrong": "ran, and a check of its own failed",
    "failed": "ended in another error",
    "skipped": "a test that skips itself",
}
# Told apart from a fault: the program came to its end within these.
_GOOD = ("passed", "loads", "too long", "skipped")


@dataclass(frozen=True)
class Row:
    """One program: its path in the checkout, what became of it, why, and the seconds it took."""

    path: str
    outcome: str
    reason: str
    seconds: float

    def line(self) -> str:
        """The row as it is kept."""
        return f"{self.path}\t{self.outcome}\t{self.reason}"


def programs(folder: Path) -> Iterator[Path]:
    """The files below `folder` that define a kernel."""
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        if "tilelang" not in text:
            continue
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        names = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        if {"prim_func", "jit", "Kernel"} & names or path.name.startswith("test_"):
            yield path


def run_one(path: Path, folder: Path, chip: str, limit: float, how: str) -> list[Row]:
    """Run one program, or one file of tests, in a process of its own."""
    began = time.monotonic()
    command = [sys.executable, str(ROOT / "tools" / "conformance_host.py"), str(path), chip, how]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    name = str(path.relative_to(folder))
    try:
        done = subprocess.run(
            command,
            cwd=path.parent,
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [Row(name, "too long", f"more than {limit:.0f} s", limit)]
    seconds = time.monotonic() - began
    lines = done.stdout.splitlines()
    tests = [line.split("\t", 3)[1:] for line in lines if line.startswith("TEST\t")]
    if tests:
        return [Row(f"{name}::{t}", outcome, why, seconds) for t, outcome, why in tests]
    last = [line for line in lines if line.startswith("OUTCOME\t")]
    if not last:
        tail = (done.stderr.strip().splitlines() or ["no output"])[-1]
        return [Row(name, "failed", f"exit {done.returncode}: {tail[:160]}", seconds)]
    _, outcome, reason = last[-1].split("\t", 2)
    return [Row(name, outcome, reason, seconds)]


def main() -> int:
    """Run every program and print what became of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="programs to run, for example CHECKOUT/examples")
    parser.add_argument("--only", default="", help="run files whose path contains this")
    parser.add_argument(
        "--skip", default="", help="leave out files whose path contains one of these, by commas"
    )
    parser.add_argument("--chip", default="sm_90a", help="whose rules hold (default: sm_90a)")
    parser.add_argument("--load", action="store_true", help="load the files, run nothing of them")
    parser.add_argument("--limit", type=float, default=120, help="seconds for each file")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, help="keep the lines here")
    given = parser.parse_args()
    skip = [s for s in given.skip.split(",") if s]
    chosen = [
        p
        for p in programs(given.folder)
        if given.only in str(p) and not any(s in str(p) for s in skip)
    ]
    rows: list[Row] = []
    with ThreadPoolExecutor(given.jobs) as pool:
        how = "load" if given.load else "run"
        work = [pool.submit(run_one, p, given.folder, given.chip, given.limit, how) for p in chosen]
        for job in work:
            for row in job.result():
                rows.append(row)
                print(
                    f"{row.outcome:16} {row.seconds:6.1f} s  {row.path}  {row.reason}", flush=True
                )
    counts = Counter(r.outcome for r in rows)
    for outcome, meaning in OUTCOMES.items():
        print(f"{counts[outcome]:5}  {outcome}: {meaning}")
    if given.out is not None:
        head = [f"# {len(rows)} programs under the rules of {given.chip}", "path\toutcome\treason"]
        given.out.write_text("\n".join([*head, *(r.line() for r in rows)]) + "\n")
    return 0 if all(r.outcome in _GOOD for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
