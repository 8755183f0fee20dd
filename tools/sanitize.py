"""Run the examples and random kernels under compute-sanitizer on the CUDA device at hand.

What enters: `python tools/sanitize.py [--tool memcheck,racecheck] [--jobs N] [NAME ...]`, names of
examples (all by default). What leaves: a line for each program and tool with the number of errors
or hazards that the tool found, and a summary; the exit code is 1 if there is any. Programs pass
NumPy arrays, whose copies on the device are allocations of their own: a byte past the end is seen.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("memcheck", "racecheck")
# Seeds of tests/device_sweep.py, a process for each range.
SEEDS = [(first, 5) for first in range(0, 60, 5)]
REFUSED = "refused: not for this chip"
_SUMMARY = re.compile(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)")


@dataclass(frozen=True)
class Result:
    """What a tool said of a program: a number of reports, or why there is none."""

    tool: str
    program: str
    reports: int
    why: str
    seconds: float

    @property
    def clean(self) -> bool:
        """The program ran to its end and the tool has nothing to say."""
        return not self.reports and self.why in ("", REFUSED)


def sanitizer() -> str:
    """The tool's program; ends with a message where there is none."""
    found = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(found).exists():
        sys.exit("sanitize: compute-sanitizer is not installed; it comes with the CUDA toolkit")
    return found


def programs(names: list[str]) -> dict[str, list[str]]:
    """The command of each program, by name."""
    made: dict[str, list[str]] = {}
    for path in sorted((ROOT / "examples").glob("*.py")):
        if not names or path.stem in names:
            made[path.stem] = [str(path)]
    if not names:
        sweep = str(ROOT / "tests" / "device_sweep.py")
        for first, count in SEEDS:
            made[f"kernels {first}-{first + count - 1}"] = [sweep, str(first), str(count), "--here"]
    return made


def run(tool: str, name: str, command: list[str], limit: float) -> Result:
    """Run one program under one tool."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    start = time.monotonic()
    try:
        done = subprocess.run(
            [sanitizer(), "--tool", tool, "--print-limit", "5", sys.executable, *command],
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Result(tool, name, 0, f"more than {limit:.0f} s", limit)
    seconds = time.monotonic() - start
    found = _SUMMARY.search(done.stdout)
    reports = int(found.group(1) or found.group(2)) if found else 0
    if reports:
        print(f"{tool} {name}\n{done.stdout[-6000:]}", file=sys.stderr, flush=True)
    why = "" if found else "no summary"
    if "error[target]" in done.stderr:
        return Result(tool, name, 0, REFUSED, seconds)
    if done.returncode and not reports:
        why = (done.stderr.strip().splitlines() or done.stdout.splitlines() or ["?"])[-1][:120]
    return Result(tool, name, reports, why, seconds)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--tool", default=",".join(TOOLS))
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 4) // 2))
    parser.add_argument("--limit", type=float, default=240, help="seconds for each program")
    given = parser.parse_args()
    found = programs(given.names)
    with ThreadPoolExecutor(given.jobs) as pool:
        jobs = [
            pool.submit(run, tool, name, command, given.limit)
            for tool in given.tool.split(",")
            for name, command in found.items()
        ]
        results = [job.result() for job in jobs]
    for r in results:
        said = r.why or f"{r.reports} reports"
        print(f"{r.tool:10} {r.program:28} {said}  ({r.seconds:.0f} s)")
    for tool in given.tool.split(","):
        mine = [r for r in results if r.tool == tool]
        print(f"{tool}: {sum(r.clean for r in mine)} of {len(mine)} programs clean")
    return 0 if all(r.clean for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
