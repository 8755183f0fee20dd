"""Compare the C++ for the Ascend 950 with what the `tilelang` wheel generates, call by call.

`python -m ascend_verify PYTHON FOLDER`, with tools and tests on the path: PYTHON is the interpreter
of an environment with the wheel (`make ascend-verify` makes one), FOLDER takes what is made. For
each kernel both sources are compiled with `host.h`, and run; this says whether numbers, calls and
order agree. What leaves: one line for each kernel, and its differences. Then the sources of the
tests' own programs run with the same header, against NumPy: nobody else has generated those. Last
come the AscendC sources for the 910B of the programs in the adapter's dialect (`launches.py`),
against the simulator. The exit code is 1 unless all numbers are equal and nothing differs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
from ascend_verify.adapter import adapter
from ascend_verify.build import HERE, headers, run
from ascend_verify.kernels import CASES, Case
from ascend_verify.trace import differences

import tilelang
from mainline_kernels import Program, programs
from tilelang.ir.expr import int_value
from tilelang.ir.tile import Launch

TOLERANCE = 2e-6
"""Relative to the largest number: sums over threads are added up in another order."""


def arguments(case: Case) -> list[np.ndarray]:
    """Random numbers for what a kernel reads, zeros for what it writes."""
    rng = np.random.default_rng(11)
    out: list[np.ndarray] = []
    for shape, dtype, written in case.tensors:
        kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
        if kind.kind == "u":  # scales of MX tiles: bytes of e8m0 not far from 1
            size = (*shape[:-1], shape[-1] * kind.itemsize)
            out.append(rng.integers(120, 134, size).astype(np.uint8).view(kind))
            continue
        out.append((np.zeros(shape) if written else rng.standard_normal(shape)).astype(kind))
    return out


def generated(python: str, folder: Path, names: Sequence[str]) -> Path:
    """The wheel's sources and its headers."""
    folder.mkdir(parents=True, exist_ok=True)
    # The wheel keeps a cache in the home folder unless told otherwise.
    env = {**os.environ, "TILELANG_CACHE_DIR": str(folder / "cache")}
    env.pop("PYTHONPATH", None)
    done = subprocess.run(
        [python, str(HERE / "upstream.py"), str(folder), *names],
        check=False, capture_output=True, text=True, env=env,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return Path(done.stdout.splitlines()[-1])


def simulated(case: Case, tensors: Sequence[np.ndarray]) -> tuple[str, list[np.ndarray]]:
    """This project's source, and what the simulator makes of the tensors."""
    kernel = tilelang.compile(case.make(), target="simulate:ascend950", pass_configs=case.configs)
    after = [t.copy() for t in tensors]
    kernel(*after)
    return kernel.get_kernel_source(), after


def apart(a: np.ndarray, b: np.ndarray) -> float:
    """How far two tensors are apart, relative to the largest number; 0.0 if no bit differs."""
    if a.tobytes() == b.tobytes():
        return 0.0
    x, y = a.astype(np.float64), b.astype(np.float64)
    return float(np.max(np.abs(x - y)) / np.max(np.abs(y)))


def verify(case: Case, folder: Path, include: Path, *, reads_garbage: bool) -> bool:
    """Compare one kernel; whether all is as it should be."""
    tensors = arguments(case)
    with warnings.catch_warnings():
        if reads_garbage:  # which the model says
            warnings.simplefilter("ignore", RuntimeWarning)
        ours, simulator = simulated(case, tensors)
    theirs = (folder / "wheel" / f"{case.name}.cpp").read_text()
    a, traced = run(folder / "ours" / case.name, ours, case.blocks, tensors, include)
    b, wanted = run(folder / "theirs" / case.name, theirs, case.blocks, tensors, include)
    far = max(map(apart, a, b))
    model = 0.0 if reads_garbage else max(map(apart, a, simulator))
    found = list(differences(traced, wanted))
    fine = far <= TOLERANCE and model <= TOLERANCE and not found
    said = "equal" if far == 0 else f"within {far:.1e}"
    calls = "same calls, same order" if not found else f"{len(found)} differences"
    print(f"{'ok' if fine else 'NO':3} {case.name:12} numbers {said:15} {calls}")
    if model > TOLERANCE:
        print(f"      the simulator's numbers are {model:.1e} away")
    for text in found:
        print(f"      {text}")
    return fine


def against_numpy(program: Program, folder: Path, include: Path) -> bool:
    """Whether the source of one of the tests' programs gives what NumPy gives."""
    kernel = tilelang.compile(
        program.kernel, target="simulate:ascend950", pass_configs=program.configs
    )
    args = program.arguments()
    (launch,) = (n for n in program.kernel.ir.walk() if isinstance(n, Launch))
    blocks = int_value(launch.grid[0])
    assert blocks is not None
    made, _ = run(
        folder / "ours" / program.name,
        kernel.get_kernel_source(),
        blocks,
        list(args.values()),
        include,
    )
    found = dict(zip(args, made, strict=True))
    limit = program.tolerance
    fine = all(
        np.allclose(found[n].astype(np.float64), wanted.astype(np.float64), limit, limit)
        for n, wanted in program.answers(args).items()
    )
    print(f"{'ok' if fine else 'NO':3} {program.name:16} {'as' if fine else 'not as'} NumPy has it")
    return fine


def main() -> int:
    """Compare all kernels."""
    parser = argparse.ArgumentParser(prog="ascend_verify", description=__doc__)
    parser.add_argument("python")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", help="these kernels and own programs alone")
    given = parser.parse_args()
    cases = [c for c in CASES if not given.names or c.name in given.names]
    templates = generated(given.python, given.folder / "wheel", [c.name for c in cases])
    include = headers(given.folder / "include", templates)
    # What the showcase stores, nothing has written: bits of memory, which differ from a model's.
    fine = [
        verify(case, given.folder, include, reads_garbage=case.name == "showcase") for case in cases
    ]
    print(f"{sum(fine)} of {len(fine)} kernels have the wheel's calls, order and numbers")
    own = [p for p in programs() if not given.names or p.name in given.names]
    right = [against_numpy(program, given.folder, include) for program in own]
    print(f"{sum(right)} of {len(right)} sources of own programs give the numbers of NumPy")
    own = adapter(given.folder / "ascendc")
    print(f"{sum(own)} of {len(own)} AscendC sources give the numbers of the simulator")
    return 0 if all((*fine, *right, *own)) else 1


if __name__ == "__main__":
    sys.exit(main())
