"""Programs of the thread stage on the simulator, with the interface of `cuda_build`.

What enters: a program and arguments by name. What leaves: the arrays as the program left them.
Everything that the simulator finds is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cuda_build import chip as chip
from tilelang.ir.thread import Program
from tilelang.simulator.gpu import SimulatedProgram
from tilelang.simulator.machine import Schedule
from tilelang.targets.cuda.rows import ROWS

WGMMA_WIDTHS = {16: 64, 8: 64, 32: 64}
"""Of the widths of wgmma each so-manieth is tried."""
LARGEST = 1 << 22
"""Multiplications of the largest product that is tried."""


CHIP = ""
"""Whose sums are taken; exact ones without."""


def device_arch() -> str:
    """The architecture that is modelled."""
    return "sm_90a"


def built(program: Program, *, fmad: bool = False) -> SimulatedProgram:
    """The program, translated; products and sums are never contracted."""
    del fmad
    return SimulatedProgram(program, ROWS, CHIP)


def run(
    program: SimulatedProgram, args: Mapping[str, Any], schedule: Schedule | None = None
) -> None:
    """Run it under a schedule; arrays are written in place. Raises what is found."""
    program.run(args, schedule)
