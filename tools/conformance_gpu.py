"""Run the tests of another checkout on the CUDA device at hand, against this package.

What enters: a checkout of upstream's repository, named on the command line, and the folders of
tests in it. What leaves: one line per test with an outcome and a reason, counts by folder, and a
table in the file `--out`; `--log` keeps the ends of the tracebacks. Nothing of it is copied.

    python tools/conformance_gpu.py CHECKOUT --out docs/conformance-gpu.tsv

A test that compares text which upstream's compiler makes (its CUDA source, its IR) cannot pass
here; the outcome `text` counts these by the assertion that fails. Needs pytest-xdist and torch.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("examples", "testing/python")
# Tests of chips and targets that are not NVIDIA's, and of an extension of upstream's for vLLM.
LEFT_OUT = ("testing/python/amd", "testing/python/metal", "testing/python/webgpu")
LEFT_OUT += ("examples/bitnet-1.58b", "examples/amd", "examples/deepseek_mla/amd")
REASON = 110
"""Characters of a reason in the table."""
OUTCOMES = {
    "passed": "its own checks hold",
    "skipped": "the test skips itself",
    "text": "asserts what text upstream's own compiler makes",
    "refused": "refused with a located message, or a name that is not here",
    "wrong": "an assertion on results fails",
    "failed": "another error",
    "crashed": "the process ended",
    "too long": "more than the time limit",
    "too large": "asks for more memory than there is",
    "needs a package": "imports a package that is not installed",
    "needs a GPU": "asks for what this device does not offer",
}


@dataclass(frozen=True)
class Row:
    """A test: its id, what became of it, why, the seconds, and the end of its traceback."""

    test: str
    outcome: str
    reason: str
    seconds: float
    trace: str

    @property
    def family(self) -> str:
        """The folder that the test is counted under."""
        parts = self.test.split("::")[0].split("/")
        depth = 3 if parts[0] == "testing" else 2
        return "/".join(parts[: min(depth, len(parts) - 1)])


def rows(folder: Path) -> list[Row]:
    """What the processes wrote; a test that began and did not end took its process along."""
    found: dict[str, Row] = {}
    for file in sorted(folder.glob("*.jsonl")):
        for line in file.read_text().splitlines():
            row: dict[str, Any] = json.loads(line)
            test = row["test"]
            if row.pop("began", False):
                found.setdefault(test, Row(test, "crashed", "the process ended", 0.0, ""))
            else:
                found[test] = Row(**row)
    return sorted(found.values(), key=lambda r: r.test)


def run(checkout: Path, tests: list[str], given: argparse.Namespace) -> list[Row]:
    """Run the tests in several processes, and read what became of them."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(ROOT / "src"), str(ROOT / "tools"), os.environ.get("PYTHONPATH", "")]
            ),
            "TILELANG_CACHE_DIR": str(Path(folder) / "cache"),
            "CONFORMANCE_ROWS": folder,
            "CONFORMANCE_LIMIT": str(given.limit),
            "OMP_NUM_THREADS": "1",
            "PYTHONHASHSEED": "0",  # parameters that are sets come in one order in all processes
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "conformance_watch", "-p"]
        command += [
            "no:cacheprovider",
            "--tb=no",
            "--continue-on-collection-errors",
            "-o",
            "addopts=",
            "-c",
            os.devnull,
        ]
        command += [f"--rootdir={checkout}", "-n", str(given.workers), "--dist", "worksteal"]
        command += ["--max-worker-restart=1000", *(f"--ignore={p}" for p in LEFT_OUT)]
        command += ["-k", given.k] if given.k else []
        with subprocess.Popen(
            [*command, *tests],
            cwd=checkout,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            try:
                said = process.communicate(timeout=given.seconds)[0]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                said = process.communicate()[0]
        print(said.decode(errors="replace")[-given.tail :], file=sys.stderr)
        return rows(Path(folder))


def keep(out: Path, found: list[Row]) -> None:
    """Write the table; rows of tests that did not run now stay."""
    lines = out.read_text().splitlines()[2:] if out.exists() else []
    table = {line.split("\t")[0]: line for line in lines}
    table |= {r.test: f"{r.test}\t{r.outcome}\t{r.reason[:REASON]}" for r in found}
    head = [f"# {len(table)} tests on a CUDA device", "test\toutcome\treason"]
    out.write_text("\n".join([*head, *(table[t] for t in sorted(table))]) + "\n")


def summary(found: list[Row]) -> str:
    """Counts by folder and outcome."""
    lines: list[str] = []
    for family in sorted({r.family for r in found}):
        counts = Counter(r.outcome for r in found if r.family == family)
        said = ", ".join(f"{counts[o]} {o}" for o in OUTCOMES if counts[o])
        lines.append(f"{family}: {said}")
    total = Counter(r.outcome for r in found)
    return "\n".join([*lines, *(f"{total[o]:5}  {o}: {OUTCOMES[o]}" for o in OUTCOMES)])


def main() -> int:
    """Run the tests and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkout", type=Path, help="a checkout of upstream's repository")
    parser.add_argument("tests", nargs="*", help=f"folders or files in it ({' '.join(FOLDERS)})")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 4) * 3 // 4))
    parser.add_argument("--limit", type=float, default=120, help="seconds for each test")
    parser.add_argument("--seconds", type=float, help="end them all after so long")
    parser.add_argument("--out", type=Path, help="keep the outcomes here")
    parser.add_argument("--log", type=Path, help="keep the ends of the tracebacks here")
    parser.add_argument("-k", default="", help="tests whose names match, as in pytest")
    parser.add_argument("--tail", type=int, default=2000, help="characters of pytest's own words")
    given = parser.parse_args()
    found = run(given.checkout.resolve(), given.tests or list(FOLDERS), given)
    if given.out is not None:
        keep(given.out, found)
    if given.log is not None:
        given.log.write_text("".join(json.dumps(vars(r)) + "\n" for r in found))
    print(summary(found))
    return 0 if found and all(r.outcome in ("passed", "skipped") for r in found) else 1


if __name__ == "__main__":
    sys.exit(main())
