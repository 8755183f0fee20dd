"""Programs that a model of a machine runs: `target="simulate:<chip>"`.

What enters: a function of the tile stage and the target. What leaves: what a call of the kernel
runs. A fault that the model finds is raised as an error at the author's line.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tilelang.errors import Diagnostic, Findings, InternalError
from tilelang.ir.thread import Program
from tilelang.ir.tile import Function
from tilelang.isa.target import Target
from tilelang.passes.ascend.settings import configured
from tilelang.passes.pipeline import lower
from tilelang.runtime.cuda_cache import left_out
from tilelang.runtime.trace import Trace
from tilelang.simulator.ascend import AscendProgram
from tilelang.simulator.ascend.unwritten import Unwritten
from tilelang.simulator.gpu import SimulatedProgram
from tilelang.simulator.machine import Schedule
from tilelang.targets.ascend.emit import emit
from tilelang.targets.cuda.rows import ROWS

Model = SimulatedProgram | AscendProgram


def _modelled(program: Program, target: Target) -> Model:
    """The model of the target's chip with a program."""
    if target.backend == "ascend" and target.chip is not None:
        return AscendProgram(program, target.chip)
    if target.backend != "cuda":
        raise InternalError(f"there is no model of {target}")
    return SimulatedProgram(program, ROWS, "" if target.chip is None else target.chip.name)


class Simulated:
    """A lowered program and the model that runs it."""

    native: ClassVar[bool] = False

    def __init__(self, program: Model, decided: list[str]) -> None:
        self.program = program
        self.decided = decided
        self.unwritten = Unwritten(program.check) if isinstance(program, AscendProgram) else None

    @property
    def source(self) -> str:
        """The Python text that the model runs."""
        return self.program.source

    @property
    def device_source(self) -> str | None:
        """The source for the hardware, where there is an emitter that prints the program."""
        if isinstance(self.program, AscendProgram):
            return emit(self.program.program, self.program.chip.name)
        return None

    def run(self, args: Mapping[str, Any]) -> None:
        """Run it on the storage of the arguments; raises what the model finds.

        What shows in the results that nobody has written is a warning: the numbers are there.
        """
        if self.unwritten is None:
            self.program.run(args)
            return
        for found in self.unwritten.run(lambda: self.program.run(args), args):
            warnings.warn(found.render(), RuntimeWarning, stacklevel=3)

    def check(self, args: Mapping[str, Any], seeds: int) -> list[Diagnostic]:
        """What the model finds under several schedules; the arrays are written as by one call."""
        found = Findings()
        arrays: dict[str, npt.NDArray[Any]] = {
            k: v for k, v in args.items() if isinstance(v, np.ndarray)
        }
        before = {k: v.copy() for k, v in arrays.items()}
        for schedule in Schedule.sweep(seeds):
            for name, values in before.items():
                arrays[name][...] = values
            for d in self.program.check(args, schedule):
                found.add(d)
        return found.items


def simulated_program(fn: Function, target: Target, trace: Trace) -> Simulated:
    """The function on the model of the target's chip. A `TileError` for what that cannot run."""
    hardware = replace(target, mode="native")
    if target.backend == "ascend":
        fn = configured(fn, trace.options)
    program = lower(fn, hardware, trace.stage, left_out(trace.options))
    with trace.step("translate"):
        made = _modelled(program, target)
    trace.text("kernel.py", made.source)
    return Simulated(made, [] if trace.decisions is None else trace.decisions.lines())
