"""Programs that the model of an Ascend NPU runs: the host level, and the arrays of a call.

What enters: a `Program` of the thread stage, its chip, arguments by name, a schedule. What leaves:
the arrays, changed in place, and findings. Every launch is over before the next statement of the
host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilelang.errors import Diagnostic, InternalError, TileError, TileRuntimeError, error
from tilelang.ir.thread import Array, Program
from tilelang.ir.tile import Assert
from tilelang.isa.target import Chip
from tilelang.simulator.ascend.inorder import Counts
from tilelang.simulator.ascend.launch import Launch, run_in_order
from tilelang.simulator.ascend.memories import UNWRITTEN, Window
from tilelang.simulator.ascend.queued import run_queued
from tilelang.simulator.ascend.text import KernelText, Module, module_of
from tilelang.simulator.ascend.trail import Trail
from tilelang.simulator.machine import Memory, Report, Schedule, Shadow
from tilelang.targets.ascend.machine import MACHINES
from tilelang.targets.ascend.rows import rows_of

FP4 = np.dtype(ml_dtypes.float4_e2m1fn)


class AscendProgram:
    """A program with its kernels as text. `run` is one call, in the order of the program."""

    native: ClassVar[bool] = False

    def __init__(self, program: Program, chip: Chip) -> None:
        if chip.sync is None:
            raise InternalError(f"{chip.name} has no pipes")
        self.program = program
        self.chip = chip
        self.module: Module = module_of(program, rows_of(chip.name))
        self.counts = Counts()
        self.resident = max(part.cube_cores for part in MACHINES[chip.name].parts)
        namespace = dict(self.module.writer.namespace)
        code = compile(self.source, f"<simulator:{program.name}>", "exec")
        exec(code, namespace)
        self.functions: dict[str, Callable[..., Any]] = namespace

    @property
    def source(self) -> str:
        """The text that runs."""
        return self.module.source

    def run(self, args: Mapping[str, Any]) -> None:
        """Run it in order on the storage of the arguments by name. What is found is raised."""
        call = _Call(self, args, None, None)
        call.go()
        call.report.raise_findings()

    def check(
        self, args: Mapping[str, Any], schedule: Schedule, trail: Trail | None = None
    ) -> list[Diagnostic]:
        """Run it on queues under a schedule, with every access looked at; what is found.

        A `trail` notes the order of the run.
        """
        call = _Call(self, args, schedule, trail)
        try:
            call.go()
        except TileError as e:
            return [*call.report.findings, *e.diagnostics]
        return call.report.findings


class _Call:
    """One call: what the text of the host level calls."""

    def __init__(
        self,
        of: AscendProgram,
        args: Mapping[str, Any],
        schedule: Schedule | None,
        trail: Trail | None,
    ) -> None:
        self.of = of
        self.trail = trail
        self.schedule = schedule
        self.report = Report()
        self.tensors: list[Memory] = []
        self.paired: list[tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]] = []
        self.values: list[Any] = []
        params = of.program.params
        for p in params:
            if p.array is not None:
                given = args.get(p.name)
                self.values.append(None if given is None else self._tensor(p.array, given))
        scalars = [(p.name, p.var) for p in params if p.var is not None]
        scalars += [(v.name, v) for v in of.program.dynamic]
        for name, var in scalars:
            given = np.asarray(args[name], var.type.numpy)[()]
            self.values.append(given if var.type.is_float else given.item())

    def go(self) -> None:
        """Run the host level."""
        with np.errstate(all="ignore"):
            self.of.functions[self.of.module.host](self, *self.values)
        for pairs, codes in self.paired:
            codes[0::2], codes[1::2] = pairs & 15, pairs >> 4

    # Memory --------------------------------------------------------------------------------------

    def _tensor(self, array: Array, value: Any) -> Window:
        flat = flat_storage(np.asarray(value))
        if flat.dtype == FP4:
            flat = self._paired(flat)
        raw = flat.view(np.uint8) if flat.size else np.zeros(0, np.uint8)
        return self._window(array, raw, written=True)

    def _paired(self, flat: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
        """fp4 of a byte each as bytes of two, which go back when the call is over."""
        codes = flat.view(np.uint8)
        pairs = np.bitwise_or(codes[0::2], np.left_shift(codes[1::2], np.uint8(4)))
        self.paired.append((pairs, codes))
        return pairs

    def _window(self, array: Array, raw: npt.NDArray[np.uint8], *, written: bool) -> Window:
        shadow = None
        if self.schedule is not None:
            shadow = Shadow(array.name, raw.size, self.report, written=written)
        memory = Memory(array.name, raw, self.report, shadow=shadow)
        self.tensors.append(memory)
        return Window(array.name, memory, 0, array.type.numpy)

    def workspace(self, array: Array, size: int, first: Any) -> Window:
        """Global memory of one call."""
        raw = np.full(size * array.type.numpy.itemsize, UNWRITTEN, np.uint8)
        made = self._window(array, raw, written=first is not None)
        if first is not None:
            made.elements[:] = first
        return made

    # Launches ------------------------------------------------------------------------------------

    def launch(self, text: KernelText, grid: tuple[int, ...], given: tuple[Any, ...]) -> None:
        """One launch, and its end."""
        launch = Launch(self.of, text, grid, given, self.report)
        if self.schedule is None:
            run_in_order(launch, self.of.counts)
        else:
            run_queued(launch, self.schedule, self.trail)
        for memory in self.tensors:
            if memory.shadow is not None:
                memory.shadow.settle()

    def fail(self, stmt: Assert) -> None:
        """An assertion before a launch does not hold."""
        if stmt.kind:
            raise error(stmt.kind, stmt.message, stmt.loc, got="before the launch")
        text = f"device assertion failed: {stmt.message}"
        raise error("value", text, stmt.loc, cls=TileRuntimeError, got="before the launch")


def flat_storage(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The storage of an array from its first element to its last, gaps too."""
    if array.flags.c_contiguous:
        return array.reshape(-1)
    ends = [s * (n - 1) for s, n in zip(array.strides, array.shape, strict=True)]
    span = 0 if 0 in array.shape else 1 + sum(ends) // array.itemsize
    return np.lib.stride_tricks.as_strided(array, (span,), (array.itemsize,))
