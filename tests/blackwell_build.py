"""Compares a program lowered for a chip with Tensor Memory, run by the simulator, with the
emulator.
"""

from __future__ import annotations

from typing import Any

from gpu_build import copies, gpu_program, same
from tilelang.emulator import translate
from tilelang.ir.thread import Program
from tilelang.ir.verify_thread import verify_program
from tilelang.isa.instr import checker
from tilelang.simulator.gpu import SimulatedProgram
from tilelang.simulator.machine import Schedule
from tilelang.targets.cuda.rows import ROWS

ARCH = "sm_100a"


def check_blackwell(
    fn: Any, *, seeds: int = 1, rtol: float = 0.0, atol: float = 0.0, **args: Any
) -> Program:
    """Fails unless the lowered program gives what the emulator gives, without a finding, under
    each of `seeds` schedules; the first one completes everything as late as it may.
    """
    function = getattr(fn, "ir", fn)
    program = gpu_program(function, ARCH)
    verify_program(program, checker(ROWS), planned=True)
    want = copies(args)
    translate(function, tf32=True).run(want)
    simulated = SimulatedProgram(program, ROWS)
    for schedule in Schedule.sweep(seeds):
        got = copies(args)
        found = simulated.check(got, schedule)
        assert not found, "\n".join(d.render() for d in found)
        for name, x in want.items():
            same(got[name], x, rtol, atol, name)
    return program
