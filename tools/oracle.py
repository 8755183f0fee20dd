"""Does this package's frontend read programs as upstream's does?

What enters: a folder of programs (a checkout of upstream's examples), and the interpreter of an
environment in which upstream is installed. What leaves: one line per program: how many of its
kernels have the same IR under both packages, and the first difference, or the reason why a program
was not compared.

Each program runs under each package, on a machine without a GPU, and every function that it asks to
be compiled is recorded instead (`oracle_host.py`), so both are traced with the same arguments.
`oracle_rules.py` says how both come into one form, `oracle_form.py` compares. Nothing of upstream
is kept.

    python tools/oracle.py CHECKOUT/examples --upstream ENV/bin/python \\
        --skip amd --out docs/conformance-oracle.tsv
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance import ROOT, Settings, programs
from oracle_form import differences
from oracle_from_own import own as from_own
from oracle_from_upstream import upstream as from_upstream

HOST = ROOT / "tools" / "oracle_host.py"
OUTCOMES = {
    "agrees": "every kernel that the program asks for has the same IR",
    "differs": "some kernel has another IR",
    "no kernel": "the program asks for no kernel: a module for others, or no main part",
    "not compared": "no kernel was traced under both packages",
}


@dataclass(frozen=True)
class Recorded:
    """What one package made of one program: its kernels in neutral form, and how the run ended."""

    kernels: list[Any]
    ended: str


@dataclass(frozen=True)
class Task:
    """A program to run: its path in the checkout, the file, and the chip whose rules hold."""

    name: str
    path: Path
    chip: str


@dataclass(frozen=True)
class Host:
    """One package: its side (`own` or `upstream`), the interpreter, and where it is found."""

    side: str
    python: str
    path: str
    runs: bool = True

    def record(self, tasks: Sequence[Task], records: Path, limit: int, how: str) -> list[Recorded]:
        """Run every program with `fake` or `real` tensors. What `records` holds already is not run
        again.
        """
        folder = records / self.side / how
        folder.mkdir(parents=True, exist_ok=True)
        outs = [folder / task.name.replace("/", "+") for task in tasks]
        lines: list[str] = []
        for task, out in zip(tasks, outs, strict=True):
            if self.runs and _read(out) is None:
                out.unlink(missing_ok=True)
                lines.append(f"{task.path}\t{task.chip}\t{how}\t{out}\n")
        if lines and self.runs:
            subprocess.run(
                [self.python, str(HOST), self.side, str(limit)],
                input="".join(lines),
                env={**os.environ, "PYTHONPATH": self.path, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.DEVNULL,
                text=True,
                check=True,
            )
        return [_read(out) or Recorded([], "no record") for out in outs]


def record_all(
    hosts: Sequence[Host], tasks: Sequence[Task], records: Path, limit: int, jobs: int
) -> list[tuple[Recorded, Recorded]]:
    """Every program under both packages, in the same way: with tensors that have only shapes, and,
    where that does not come to its end, with real ones and smaller sizes, if that asks for more
    kernels.
    """
    with ThreadPoolExecutor(jobs) as pool:

        def both(some: Sequence[Task], how: str) -> list[tuple[Recorded, Recorded]]:
            work = [pool.submit(h.record, some, records, limit, how) for h in hosts]
            return list(zip(*(w.result() for w in work), strict=True))

        best = both(tasks, "fake")
        open_ = [n for n, pair in enumerate(best) if any(_may_end(r.ended) for r in pair)]
        for n, pair in zip(open_, both([tasks[n] for n in open_], "real"), strict=True):
            kernels = [min(len(r.kernels) for r in x) for x in (pair, best[n])]
            ends = [all(r.ended == "ended" for r in x) for x in (pair, best[n])]
            if (kernels[0], ends[0]) > (kernels[1], ends[1]):
                best[n] = pair
    return best


def _may_end(ended: str) -> bool:
    """Whether a run with real tensors could come further than one with shapes: it asked for their
    contents.
    """
    words = ("DataDependentOutput", "DynamicOutputShape", "tensor subclasses")
    return any(word in ended for word in words)


def _read(out: Path) -> Recorded | None:
    """A file that the host has written; None where there is none, or it is not complete."""
    if not out.exists():
        return None
    lines = [json.loads(x) for x in out.read_text(encoding="utf-8").splitlines()]
    if not lines or not isinstance(lines[-1], dict):
        return None
    return Recorded(lines[:-1], lines[-1]["ended"])


@dataclass(frozen=True)
class Row:
    """One program: outcome, kernels with the same IR, kernels compared, and a note."""

    path: str
    outcome: str
    same: int
    compared: int
    note: str

    def line(self) -> str:
        """The row as it is kept."""
        return f"{self.path}\t{self.outcome}\t{self.same}\t{self.compared}\t{self.note}"


def compare(path: str, upstream: Recorded, own: Recorded) -> Row:
    """The row of a program."""
    pairs = list(zip(upstream.kernels, own.kernels, strict=False))
    found = [differences(from_upstream(a), from_own(b)) for a, b in pairs]
    same = sum(not d for d in found)
    ends = {"upstream": upstream.ended, "own": own.ended}
    notes = [f"{side}: {end}" for side, end in ends.items() if end != "ended"]
    if len(upstream.kernels) != len(own.kernels):
        notes.append(f"kernels: upstream {len(upstream.kernels)}, own {len(own.kernels)}")
    first = next((d[0] for d in found if d), "")
    if not pairs:
        quiet = not notes
        outcome = "no kernel" if quiet else "not compared"
    else:
        outcome = "agrees" if same == len(pairs) else "differs"
    note = "; ".join(x for x in (first, *notes) if x)
    return Row(path, outcome, same, len(pairs), " ".join(note.split())[:400])


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="programs, for example CHECKOUT/examples")
    parser.add_argument("--upstream", required=True, help="the interpreter that has upstream")
    parser.add_argument("--own", default=sys.executable, help="the interpreter for this package")
    parser.add_argument("--only", default="", help="files whose path contains this")
    parser.add_argument("--skip", default="", help="not those whose path contains one of these")
    parser.add_argument("--limit", type=int, default=30, help="seconds of processor time for each")
    parser.add_argument("--jobs", type=int, default=2, help="packages at a time, 1 or 2")
    parser.add_argument("--records", type=Path, help="keep what is recorded here, and use it")
    parser.add_argument("--recorded", action="store_true", help="run nothing: use the records only")
    parser.add_argument("--out", type=Path, help="keep the lines here")
    return parser.parse_args()


def main() -> int:
    """Record and compare every program, and print what came of it."""
    given = parse()
    folder: Path = given.folder.resolve()
    skip = [s for s in given.skip.split(",") if s]
    settings = Settings(folder, "auto", given.limit, 0, small=False, load=False)
    names = [str(p.relative_to(folder)) for p in programs(folder)]
    names = [n for n in names if given.only in n and not any(s in n for s in skip)]
    tasks = [Task(n, folder / n, settings.chip_of(folder / n)) for n in names]
    runs = not given.recorded
    source = str(ROOT / "src")
    hosts = [Host("upstream", given.upstream, "", runs), Host("own", given.own, source, runs)]
    with tempfile.TemporaryDirectory() as temporary:
        records = (given.records or Path(temporary)).resolve()
        pairs = record_all(hosts, tasks, records, given.limit, given.jobs)
    rows = [compare(name, *pair) for name, pair in zip(names, pairs, strict=True)]
    for row in rows:
        print(f"{row.outcome:14} {row.same:3} of {row.compared:3}  {row.path}  {row.note}")
    counts = Counter(r.outcome for r in rows)
    for outcome, meaning in OUTCOMES.items():
        print(f"{counts[outcome]:5}  {outcome}: {meaning}")
    same, compared = sum(r.same for r in rows), sum(r.compared for r in rows)
    print(f"{same} of {compared} kernels have the same IR")
    if given.out is not None:
        head = [f"# {len(rows)} programs, {compared} kernels compared, {same} the same"]
        columns = ["path\toutcome\tsame\tcompared\tnote"]
        given.out.write_text("\n".join([*head, *columns, *(r.line() for r in rows)]) + "\n")
    return 0 if same == compared else 1


if __name__ == "__main__":
    sys.exit(main())
