"""How many programs of another checkout load and run here, and why the rest do not.

What enters: a folder of programs written for TileLang (a checkout of its examples), named on the
command line. What leaves: one line per file with an outcome and a reason, and a count of each
outcome; `--out FILE` keeps the lines. Nothing of the checkout is copied.

Programs ask for a GPU: `cuda` devices become the CPU, and CUDA targets the emulator under the rules
of the chip that `--chip` names. Each program runs by itself, in its own process, with a time limit.

    python tools/conformance.py CHECKOUT/examples --out docs/conformance.tsv

With `--small`, a program that offers its sizes as arguments runs with smaller ones (`sizes.py`);
where those are refused or make it fail, it runs again as it is. Where its reference needs a GPU,
it runs without it. With `--chip auto` the rules
are those of the chip that the path names, else those of sm_90a. The limit counts seconds of
processor time. With `--redo`, rows that `--out` holds already are kept but for those outcomes.
"""

from __future__ import annotations

import argparse
import ast
import os
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
OUTCOMES = {
    "passed": "ran to its end, its own checks included",
    "ran": "ran to its end; it compares nothing",
    "loads": "loads; it has no main part to run",
    "too long": "loads and ran without a fault until the time limit",
    "too large": "loads and ran without a fault until it asked for more memory than is allowed",
    "needs a package": "imports a package that is not installed",
    "needs a GPU": "asks for what only a GPU, or PyTorch's build for one, can do",
    "refused": "refused with a located message",
    "wrong": "ran, and a check of its own failed",
    "failed": "ended in another error",
    "skipped": "a test that skips itself",
}
# A program that uses no processor time, because it waits or shares the machine, ends after this
# many times its limit.
WALL = 6
# Told apart from a fault: the program came to its end within these.
_GOOD = ("passed", "ran", "loads", "too long", "too large", "skipped")
# Chips by a word of the path; the first that fits counts.
_CHIPS = {"aws/": "sm_100a", "sm100": "sm_100a", "tcgen05": "sm_100a", "sm120": "sm_120a"}


@dataclass(frozen=True)
class Row:
    """One program: its path in the checkout, what became of it, why, and the seconds it took.

    `chip` is the one whose rules held, `sizes` those that were lowered, `checks` how many
    comparisons of its own the program passed.
    """

    path: str
    outcome: str
    reason: str
    seconds: float
    chip: str = ""
    sizes: str = ""
    checks: int = 0

    def line(self, *, full: bool) -> str:
        """The row as it is kept; `full` with what is known of a run."""
        row = f"{self.path}\t{self.outcome}\t{self.reason}"
        return f"{row}\t{self.chip}\t{self.checks}\t{self.sizes}" if full else row


@dataclass(frozen=True)
class Settings:
    """How programs run: see the options of the command line."""

    folder: Path
    chip: str
    limit: float
    memory: int
    small: bool
    load: bool

    def chip_of(self, path: Path) -> str:
        """The chip whose rules hold for a program."""
        if self.chip != "auto":
            return self.chip
        name = str(path.relative_to(self.folder))
        return next((chip for word, chip in _CHIPS.items() if word in name), "sm_90a")


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


def run_one(path: Path, settings: Settings) -> list[Row]:
    """Run one program, or one file of tests: with smaller sizes first where that is asked for."""
    if settings.load or not settings.small or path.name.startswith("test_"):
        return attempt(path, settings, "load" if settings.load else "run")
    first = attempt(path, settings, "small")
    [row] = first
    if row.outcome == "needs a GPU":
        [bare] = attempt(path, settings, "unchecked")
        why = "unchecked: its reference is a Triton kernel, which needs a GPU"
        return [replace(bare, reason=why)] if bare.outcome == "ran" else first
    if row.outcome not in ("refused", "failed", "wrong") or not row.sizes:
        return first
    again = attempt(path, settings, "run")
    [given] = again
    if given.outcome in ("too long", "too large"):
        why = f"{given.reason}; with smaller sizes {row.outcome}: {row.reason}"
        return [replace(given, reason=why, sizes=row.sizes)]
    return again


def attempt(path: Path, settings: Settings, how: str) -> list[Row]:
    """Run one program, or one file of tests, in a process of its own."""
    began = time.monotonic()
    chip = settings.chip_of(path)
    command = [sys.executable, str(ROOT / "tools" / "conformance_host.py"), str(path), chip, how]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": "1",
        "CONFORMANCE_MEMORY": str(settings.memory),
        "CONFORMANCE_SECONDS": str(int(settings.limit)),
    }
    name = str(path.relative_to(settings.folder))
    ended = ""
    try:
        done = subprocess.run(
            command,
            cwd=path.parent,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=WALL * settings.limit,
            check=False,
        )
        output = done.stdout
        if done.returncode != -signal.SIGXCPU:
            tail = (done.stderr.strip().splitlines() or ["no output"])[-1]
            ended = f"exit {done.returncode}: {tail}"
    except subprocess.TimeoutExpired as exc:
        output = (exc.stdout or b"").decode(errors="replace")
    seconds = time.monotonic() - began
    return read_output(Row(name, "", "", seconds, chip), output, ended, settings.limit)


def read_output(row: Row, output: str, ended: str, limit: float) -> list[Row]:
    """The rows that the output of a program means; `ended` is empty where time ran out."""
    lines = output.splitlines()
    tests = [line.split("\t", 3)[1:] for line in lines if line.startswith("TEST\t")]
    if tests:
        return [
            replace(row, path=f"{row.path}::{t}", outcome=outcome, reason=why)
            for t, outcome, why in tests
        ]
    lowered = [line.split("\t", 1)[1] for line in lines if line.startswith("SIZES\t")]
    sizes = " ".join(dict.fromkeys(lowered[-1].split())) if lowered else ""
    checks = sum(line == "CHECK" for line in lines)
    row = replace(row, sizes=sizes, checks=checks)
    last = [line for line in lines if line.startswith("OUTCOME\t")]
    if not ended:
        passed = f"; {checks} checks passed before" if checks else ""
        return [replace(row, outcome="too long", reason=f"more than {limit:.0f} s{passed}")]
    if not last:
        return [replace(row, outcome="failed", reason=ended[:200])]
    _, outcome, reason = last[-1].split("\t", 2)
    if outcome == "passed" and not checks:
        outcome = "ran"
    return [replace(row, outcome=outcome, reason=reason)]


FULL = "path\toutcome\treason\tchip\tchecks\tlowered sizes"


def keep(out: Path, rows: list[Row], chip: str, *, full: bool) -> None:
    """Write the rows to a file."""
    rules = "the chip named" if chip == "auto" else chip
    columns = FULL if full else "path\toutcome\treason"
    head = [f"# {len(rows)} programs under the rules of {rules}", columns]
    out.write_text("\n".join([*head, *(r.line(full=full) for r in rows)]) + "\n")


def kept(out: Path, redo: list[str]) -> dict[str, Row]:
    """The rows of a file of `keep`, by path, but for the outcomes that are to be tried again."""
    lines = out.read_text().splitlines() if out.exists() else []
    if FULL not in lines[:2]:
        return {}
    found: dict[str, Row] = {}
    for line in lines[2:]:
        path, outcome, reason, chip, checks, sizes = line.split("\t")
        if outcome not in redo:
            found[path] = Row(path, outcome, reason, 0, chip, sizes, int(checks))
    return found


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="programs to run, for example CHECKOUT/examples")
    parser.add_argument("--only", default="", help="run files whose path contains this")
    parser.add_argument(
        "--skip", default="", help="leave out files whose path contains one of these, by commas"
    )
    parser.add_argument("--chip", default="sm_90a", help="whose rules hold, or auto (sm_90a)")
    parser.add_argument("--small", action="store_true", help="smaller sizes where they are offered")
    parser.add_argument("--load", action="store_true", help="load the files, run nothing of them")
    parser.add_argument("--limit", type=float, default=120, help="seconds for each file")
    parser.add_argument("--memory", type=int, default=8, help="GiB for each file, 0 for no bound")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, help="keep the lines here")
    parser.add_argument("--redo", help="outcomes, by commas, to try again; keep the other rows")
    return parser.parse_args()


def main() -> int:
    """Run every program and print what became of it."""
    given = parse()
    folder: Path = given.folder.resolve()
    skip = [s for s in given.skip.split(",") if s]
    chosen = [
        p
        for p in programs(folder)
        for name in [str(p.relative_to(folder))]
        if given.only in name and not any(s in name for s in skip)
    ]
    settings = Settings(folder, given.chip, given.limit, given.memory, given.small, given.load)
    done = kept(given.out, given.redo.split(",")) if given.out and given.redo is not None else {}
    rows: list[Row] = []

    def run(path: Path) -> list[Row]:
        known = done.get(str(path.relative_to(folder)))
        return [known] if known is not None else run_one(path, settings)

    with ThreadPoolExecutor(given.jobs) as pool:
        for job in [pool.submit(run, p) for p in chosen]:
            for row in job.result():
                rows.append(row)
                print(
                    f"{row.outcome:16} {row.seconds:6.1f} s  {row.path}  {row.reason}", flush=True
                )
            if given.out is not None:
                printed = {r.path for r in rows}
                later = [r for path, r in done.items() if path not in printed]
                keep(given.out, [*rows, *later], given.chip, full=given.small)
    counts = Counter(r.outcome for r in rows)
    for outcome, meaning in OUTCOMES.items():
        print(f"{counts[outcome]:5}  {outcome}: {meaning}")
    return 0 if all(r.outcome in _GOOD for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
