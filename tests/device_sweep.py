"""Random kernels on the CUDA device at hand against the emulator, many of them in many processes.

What enters: `python tests/device_sweep.py FIRST COUNT [--jobs N] [--seconds S]`, numbers of seeds.
What leaves: a line for each kernel and way of lowering it that is wrong, fails or is refused, and
counts. A kernel that faults or hangs takes only its process along.

Kernels: `device_drawn.drawn` (pipelined loops) in several ways; the kernels and products of
`kernels_drawn`, in random numbers of stages and threads; the programs of `program_drawn` against
NumPy.
"""

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import numpy as np  # noqa: E402 - the package of this checkout comes first

from cuda_build import built, chip, device_arch, run  # noqa: E402
from device_drawn import STAGES, THREADS, Draw, Way, drawn, in_way, program, ways  # noqa: E402
from gpu_build import copies, same  # noqa: E402
from tilelang.emulator import translate  # noqa: E402
from tilelang.errors import TileError  # noqa: E402
from tilelang.ir.tile import Function  # noqa: E402
from tilelang.ir.verify_thread import verify_program  # noqa: E402
from tilelang.isa.instr import checker  # noqa: E402
from tilelang.targets.cuda.rows import ROWS  # noqa: E402

WAYS = 4
"""Ways in which each kernel of `device_drawn` is lowered."""


def compare(fn: Function, args: dict[str, Any], found: list[Way], rtol: float = 0.0) -> list[str]:
    """What differs from the emulator, or is refused, in each of the ways."""
    target = chip(device_arch())
    faults: list[str] = []
    for way in found:
        # What each thread does by itself, such as an atomic update, is done as often as there are.
        want, got = copies(args), copies(args)
        translate(in_way(fn, way), tf32=True).run(want)
        try:
            lowered = program(fn, way, target)
            verify_program(lowered, checker(ROWS), planned=True)
            run(built(lowered), got)
            for name, x in want.items():
                if isinstance(x, np.ndarray):
                    same(got[name], x, rtol, rtol, name)
        except TileError as exc:
            faults.append(f"refused {way}: {exc.diagnostics[0].message}")
        except AssertionError as exc:
            faults.append(f"wrong {way}: {' '.join(str(exc).split())[:300]}")
    return faults


def pipelined(seed: int, count: int = WAYS) -> list[str]:
    """The faults of the pipelined kernel of a seed."""
    fn, args = drawn(seed)
    return compare(fn, args, ways(seed, count))


def tiles(seed: int, count: int = 5) -> list[str]:
    """The faults of `count` kernels of every kind of step, by Hypothesis from a seed."""
    import hypothesis
    from hypothesis import strategies as hs

    from kernels_drawn import kernels, products

    faults: list[str] = []
    way = hs.builds(Way, hs.sampled_from(STAGES), hs.sampled_from(THREADS), hs.booleans())

    @hypothesis.seed(seed)
    @hypothesis.settings(
        database=None,
        deadline=None,
        max_examples=count,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(hs.one_of(kernels(), products()), way)
    def every(case: Any, way: Way) -> None:
        fn, args = case
        faults.extend(compare(fn, args, [way], 2e-3))

    every()
    return faults


def programs(seed: int) -> list[str]:
    """The faults of a program of `program_drawn`, against NumPy."""
    import program_drawn
    import tilelang

    drawn_program = program_drawn.drawn(seed)
    blocks = Draw(seed).pick(0, 1, 3)
    given, outs = drawn_program.arguments(blocks, seed)
    want = drawn_program.expected(given, blocks)
    try:
        tilelang.compile(drawn_program.func, target="cuda")(*given, *outs)
        for k, (a, b) in enumerate(zip(outs, want, strict=True)):
            np.testing.assert_array_equal(a, b, err_msg=f"output {k}")
    except TileError as exc:
        return [f"refused: {exc.diagnostics[0].message}"]
    except AssertionError as exc:
        return [f"wrong: {' '.join(str(exc).split())[:300]}"]
    return []


KINDS = {"pipelined": pipelined, "tiles": tiles, "programs": programs}


# Many processes -----------------------------------------------------------------------------------


def work(first: int, stop: int) -> None:
    """Run seeds in this process; what happens is printed at once."""
    for seed in range(first, stop):
        kind = tuple(KINDS)[(0, 0, 0, 1, 2)[seed % 5]]
        print(f"SEED {seed} {kind}", flush=True)
        try:
            faults = KINDS[kind](seed)
        except Exception as exc:
            faults = [f"failed: {type(exc).__name__}: {' '.join(str(exc).split())[:300]}"]
        for fault in faults:
            print(f"FAULT {kind} {seed} {fault}", flush=True)
            if "illegal" in fault or "misaligned" in fault or "launch failure" in fault:
                return  # the device's context is gone
    print("DONE", flush=True)


def chunk(first: int, stop: int, until: float) -> list[str]:
    """The lines of all seeds from `first`, in as many processes as it takes."""
    lines: list[str] = []
    while first < stop and (left := until - time.monotonic()) > 5:
        command = [sys.executable, __file__, str(first), str(stop - first), "--here"]
        timed_out = False
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=min(left, 120), check=False
            )
            output, error = done.stdout, done.stderr
        except subprocess.TimeoutExpired as exc:
            output, error, timed_out = (exc.stdout or b"").decode(), "", True
        said = output.splitlines()
        lines += said
        seeds = [int(line.split()[1]) for line in said if line.startswith("SEED")]
        if "DONE" in said or not seeds:
            return lines if seeds else [*lines, f"FAULT start {first} {error[-300:]}"]
        last = seeds[-1]
        if not any(line.startswith("FAULT") and f" {last} " in line for line in said):
            why = "no end in 120 s" if timed_out else f"the process ended: {error[-200:]!r}"
            if not timed_out or left >= 120:
                lines.append(f"FAULT process {last} {why}")
        first = last + 1
    return lines


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 4) * 3 // 4))
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--here", action="store_true", help="in this process")
    given = parser.parse_args()
    if given.here:
        work(given.first, given.first + given.count)
        return 0
    until, step, stop = time.monotonic() + given.seconds, 25, given.first + given.count
    with ThreadPoolExecutor(given.jobs) as pool:
        jobs = [
            pool.submit(chunk, k, min(k + step, stop), until)
            for k in range(given.first, stop, step)
        ]
        lines = [line for job in jobs for line in job.result()]
    faults = [line for line in lines if line.startswith("FAULT")]
    print("\n".join(faults))
    ran = Counter(line.split()[2] for line in lines if line.startswith("SEED"))
    each = {"pipelined": WAYS, "tiles": 5, "programs": 1}
    kernels = sum(n * each[kind] for kind, n in ran.items())
    refused = sum("refused" in f for f in faults)
    print(
        f"{kernels} kernels ({dict(ran)} seeds): {len(faults) - refused} faults, {refused} refused"
    )
    return 1 if len(faults) > refused else 0


if __name__ == "__main__":
    sys.exit(main())
