"""Compares the simulator with a GPU, and prints the table of docs/simulator.md.

    PYTHONPATH=src:tests:examples python tests/simulator_against_device.py [rows] [products]
        [examples] [functions] [--half=0 or 1] [--draws=N] [--dry]

Every instruction row that has a kernel of its own runs on both with the same operands: small
integers, whose results are exact, and for products of floats also random numbers (`--draws` times,
once without). Every example
(every second one with `--half`) runs on the GPU, without contraction of products and sums; each of
its launches is repeated by the simulator. `functions` are those examples again while the simulator
takes functions of floats (`exp2`) from the GPU, so that all else is compared. With `--dry` the
simulator stands in for the GPU, to try the script where there is none.
"""

from __future__ import annotations

import contextlib
import io
import sys
import time
from functools import partial
from typing import Any

import numpy as np

import cuda_rows
import cuda_wgmma
import simulator_build
from example_run import EXAMPLES, load
from tilelang.targets.cuda.nvrtc import Flags

DRY = "--dry" in sys.argv
DRAWS = next((int(w.split("=")[1]) for w in sys.argv if w.startswith("--draws=")), 1)
EPS = {"float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}


def device() -> Any:
    """What runs programs on the GPU."""
    if DRY:
        return simulator_build
    import cuda_build

    return cuda_build


def both(program: Any, arrays: dict[str, np.ndarray]) -> tuple[dict, dict]:
    """The arrays after the program ran on the device, and on the simulator."""
    out = []
    for where in (device(), simulator_build):
        copies = {k: v.copy() for k, v in arrays.items()}
        where.run(where.built(program), copies)
        out.append(copies)
    return out[0], out[1]


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether the bits are equal; any NaN equals any."""
    if a.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    wide = a.astype(np.float64), b.astype(np.float64)
    return bool(np.array_equal(*wide, equal_nan=True))


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference, in units of the last place of the largest result."""
    wide = a.astype(np.float64), b.astype(np.float64)
    scale = max(float(np.nanmax(np.abs(wide[0]), initial=0.0)), 1e-30)
    place = EPS.get(a.dtype.name, 2.0**-23) * 2.0 ** np.floor(np.log2(scale))
    return float(np.nanmax(np.abs(wide[0] - wide[1]), initial=0.0)) / place


def drawn(arrays: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """The same arrays, floats with random numbers."""
    rng = np.random.default_rng(seed)
    return {
        k: v
        if v.dtype.kind in "biu"
        else rng.normal(size=v.shape).astype(np.float32).astype(v.dtype)
        for k, v in arrays.items()
    }


def line(name: str, count: int, equal: int, worst: float) -> None:
    far = "" if equal == count else f"{worst:.3g}"
    print(f"| {name} | {count} | {equal} | {far} |", flush=True)


def rows() -> None:
    """Every row with a meaning, by family."""
    every = cuda_rows.with_meaning()
    if not DRY:
        target = device().chip(device().device_arch())
        every = [r for r in every if r.capability is None or target.supports(r.capability)]
    for family in sorted({r.name.split(".")[0] for r in every}):
        found = list(cuda_rows.cases([r for r in every if r.name.split(".")[0] == family]))
        report(family, cuda_rows.program(found), found)


def report(name: str, program: Any, found: list[Any]) -> None:
    """A line for exact operands; for products of floats, one for random ones too."""
    arrays = {k: v for c in found for k, v in c.arrays.items()}
    kinds = [("small integers", [arrays])]
    if name.startswith(("mma", "wgmma f")):
        kinds.append(("random floats", [drawn(arrays, 3 + k) for k in range(DRAWS)]))
    for kind, every in kinds:
        equal, worst = 0, 0.0
        for given in every:
            here, there = both(program, given)
            for c in found:
                mine = [k for k in c.arrays if not same(here[k], there[k])]
                equal += not mine
                worst = max([worst, *(distance(here[k], there[k]) for k in mine)])
        line(f"{name}, {kind}", len(found) * len(every), equal, worst)


def products() -> None:
    """wgmma, by the type of its sums."""
    every = list(cuda_wgmma.cases({16: 8, 8: 8, 32: 8}))
    for td in ("f32", "f16", "s32"):
        for ta in sorted({c.name.split(".")[3] for c in every}):
            found = [c for c in every if c.name.split(".")[2:4] == [td, ta]]
            if found:
                report(f"wgmma {td} = {ta}", cuda_wgmma.program(found), found)


def functions() -> None:
    """The examples with functions of floats as the GPU has them."""
    from cuda_functions import taken_from_the_device

    with taken_from_the_device() as names:
        examples()
    print(f"by the device: {', '.join(sorted(names))}", file=sys.stderr)


def examples() -> None:
    """Every launch of every example."""
    import os

    os.environ["TILELANG_DEFAULT_TARGET"] = "simulate:sm_90a" if DRY else "cuda"
    import tilelang
    from tilelang.runtime import cuda_cache
    from tilelang.runtime.kernel import JITKernel

    cuda_cache.Flags = partial(Flags, fmad=False)
    call = JITKernel.__call__
    seen: list[tuple[bool, float]] = []

    def recorded(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        before = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        result = call(kernel, *args, **kwargs)
        made = kernel.prim_func.ir.outputs  # by T.empty: the kernel says so itself
        outputs = None if made else kernel.out_idx or None
        twin = tilelang.compile(kernel.prim_func, outputs, target="simulate:sm_90a")
        other = call(twin, *before, **kwargs)
        pairs = [(a, b) for a, b in zip(args, before, strict=True) if isinstance(a, np.ndarray)]
        pairs += zip(listed(result), listed(other), strict=True)
        for a, b in pairs:
            seen.append((same(a, b), distance(a, b)))
        return result

    JITKernel.__call__ = recorded
    try:
        _every_example(seen)
    finally:
        JITKernel.__call__ = call


def _every_example(seen: list[tuple[bool, float]]) -> None:
    half = next((int(w[-1]) for w in sys.argv if w.startswith("--half=")), None)
    names = sorted(EXAMPLES.glob("*.py"))
    for path in names if half is None else names[half::2]:
        if path.stem in ("alloc_scopes", "gemm_blockscaled"):
            continue
        seen.clear()
        start = time.time()
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                load(path.stem).main()
        except Exception as e:
            print(f"| {path.stem} | {type(e).__name__}: {str(e).splitlines()[0][:90]} | | |")
            continue
        worst = max((d for ok, d in seen if not ok), default=0.0)
        line(path.stem, len(seen), sum(ok for ok, _ in seen), worst)
        print(f"{path.stem}: {time.time() - start:.1f} s", file=sys.stderr)


def listed(x: Any) -> list[Any]:
    """The results of a call."""
    return [] if x is None else list(x) if isinstance(x, (list, tuple)) else [x]


PARTS = {"rows": rows, "products": products, "examples": examples, "functions": functions}

if __name__ == "__main__":
    simulator_build.CHIP = "sm_90a"
    wanted = [w for w in sys.argv[1:] if not w.startswith("-")] or list(PARTS)
    print("| what | compared | equal in every bit | largest difference, ulp |\n|---|---|---|---|")
    for word in wanted:
        PARTS[word]()
