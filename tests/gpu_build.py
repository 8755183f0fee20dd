"""Compares a program lowered for a GPU, run by the simulator, with the emulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tilelang.emulator import translate
from tilelang.ir.read import read_program
from tilelang.ir.text import print_program
from tilelang.ir.thread import Program
from tilelang.ir.tile import Function
from tilelang.ir.verify_thread import verify_program
from tilelang.isa.target import Fact, Target, parse_target
from tilelang.passes.pipeline import lower
from tilelang.simulator.gpu import SimulatedProgram
from tilelang.targets import CHIPS
from tilelang.targets.cuda.rows import ROWS

TARGETS = {
    name: parse_target(f"cuda -arch={name}", CHIPS) for name in ("sm_80", "sm_90a", "sm_100a")
}


def few_cores(count: int) -> Target:
    """A chip like sm_90a that has so many SMs."""
    target = TARGETS["sm_90a"]
    assert target.chip is not None
    return replace(target, chip=replace(target.chip, cores=Fact(count, "a chip for tests")))


def gpu_program(
    fn: Function, arch: str = "sm_90a", without: tuple[str, ...] = (), target: Target | None = None
) -> Program:
    """The program for many threads, which keeps the rules and reads back."""
    program = lower(fn, target or TARGETS[arch], without=without)
    verify_program(program, planned=True)
    assert read_program(print_program(program)) == program
    return program


def same(got: np.ndarray, want: np.ndarray, rtol: float, atol: float, name: str) -> None:
    """Equal, or close for floats; NaN equals NaN."""
    if want.dtype.kind in "biu" or (rtol == 0 and atol == 0):
        np.testing.assert_array_equal(got, want, err_msg=name)
        return
    a, b = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=name)


def copies(args: dict[str, Any]) -> dict[str, Any]:
    """The same arguments, arrays copied."""
    return {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in args.items()}


def simulate(program: Program, args: dict[str, Any]) -> None:
    """Run a program on NumPy arrays in place; what the simulator finds is raised."""
    SimulatedProgram(program, ROWS).run(args)


def check_gpu(
    fn: Any,
    *,
    arch: str = "sm_90a",
    rtol: float = 0.0,
    atol: float = 0.0,
    without: tuple[str, ...] = (),
    target: Target | None = None,
    **args: Any,
) -> Program:
    """Fails unless the lowered program gives what the emulator of the chip gives."""
    function = getattr(fn, "ir", fn)
    program = gpu_program(function, arch, without, target)
    want = copies(args)
    translate(function, tf32=True).run(want)
    got = copies(args)
    simulate(program, got)
    for name, x in want.items():
        if isinstance(x, np.ndarray):
            same(got[name], x, rtol, atol, name)
    return program
