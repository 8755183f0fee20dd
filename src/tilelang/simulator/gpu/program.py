"""Programs that the simulator runs: the host level, and the arrays of a call.

What enters: a `Program` of the thread stage for a GPU, arguments by name, a schedule. What leaves:
the arrays, changed in place, and findings. Host-level statements run one after the other; every
kernel is over before the next statement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tilelang.emulator.writer import Writer
from tilelang.errors import (
    Diagnostic,
    InternalError,
    TileError,
    TileIndexError,
    TileRuntimeError,
    error,
    raise_if_any,
)
from tilelang.ir.expr import Const, Expr, Var
from tilelang.ir.thread import (
    Array,
    Declare,
    Instr,
    Kernel,
    MakeTensorMap,
    Program,
    TensorMap,
    Write,
    kernels_of,
)
from tilelang.ir.tile import Assert, Assume, For, If, Let, Print, Stmt, While
from tilelang.isa.instr import Rows
from tilelang.simulator import values
from tilelang.simulator.gpu.arrays import Window
from tilelang.simulator.gpu.block import GLOBAL_WINDOW, Machine
from tilelang.simulator.gpu.expressions import Expressions
from tilelang.simulator.gpu.launch import Prepared, launch, prepare
from tilelang.simulator.gpu.maps import TensorView
from tilelang.simulator.gpu.sums import OF_CHIP, exact
from tilelang.simulator.gpu.tensor_memory import clocks_of
from tilelang.simulator.machine import Memory, Report, Schedule, Scheduler, Shadow
from tilelang.simulator.machine.report import Site

_GAP = 1 << 20
"""The distance between arrays of global memory, so that no access outside hits another one."""


Order = tuple[Site, Site, int, str]
"""Two accesses in conflict, the path to memory of the second, and what orders them."""


class SimulatedProgram:
    """A program with its kernels translated. `run` is one call. `chip` is whose matrix units add,
    where that is known; without it sums are exact.
    """

    native: ClassVar[bool] = False

    def __init__(self, program: Program, rows: Rows, chip: str = "") -> None:
        self.program = program
        self.sums = OF_CHIP.get(chip, exact)
        self.prepared: dict[str, Prepared] = {k.name: prepare(k, rows) for k in kernels_of(program)}
        self.written = _written(program)

    @property
    def source(self) -> str:
        """The text of its kernels."""
        return "\n\n".join(p.code.source for p in self.prepared.values())

    def run(self, args: Mapping[str, Any], schedule: Schedule | None = None) -> None:
        """Run it on the storage of the arguments by name. What is found is raised as an error."""
        found, stopped = self._run(args, schedule or Schedule())
        if stopped is not None:
            raise type(stopped)(*stopped.diagnostics, *found)
        raise_if_any(found)

    def check(self, args: Mapping[str, Any], schedule: Schedule) -> list[Diagnostic]:
        """Run it under a schedule, and give what is found."""
        found, stopped = self._run(args, schedule)
        return found if stopped is None else [*found, *stopped.diagnostics]

    def orders(self, args: Mapping[str, Any], schedule: Schedule) -> set[Order]:
        """What orders the accesses in conflict of a run: slow, for those who look for it."""
        run = _Call(self, args, schedule, traced=True)
        with np.errstate(all="ignore"):
            run.statements(self.program.body)
        sites = run.report.sites
        return {(sites[a], sites[b], path, by) for a, b, path, by in run.report.orders}

    def _run(
        self, args: Mapping[str, Any], schedule: Schedule
    ) -> tuple[list[Diagnostic], TileError | None]:
        """What is found, and the error that ended the run, if one did."""
        run = _Call(self, args, schedule)
        try:
            with np.errstate(all="ignore"):
                run.statements(self.program.body)
        except TileError as e:
            return run.report.findings, e
        return run.report.findings, None


def _written(program: Program) -> set[str]:
    """The arrays that kernels write: of others no access needs to be remembered."""
    found: set[str] = set()
    for node in program.walk():
        if isinstance(node, Write):
            found.add(node.array.name)
        elif isinstance(node, Instr):
            found |= {s.array.name for s in node.outs}
            if node.row.endswith("store") or ".reduce." in node.row:
                found |= {m.array.name for m in node.ins if isinstance(m, TensorMap)}
    if any(type(n).__name__ == "At" for n in program.walk()):
        found |= {n.name for n in program.walk() if isinstance(n, Array)}
    return found


class _Call:
    """One call: the values of names at host level."""

    def __init__(
        self,
        program: SimulatedProgram,
        args: Mapping[str, Any],
        schedule: Schedule,
        *,
        traced: bool = False,
    ) -> None:
        self.of = program
        self.traced = traced
        self.schedule = schedule
        self.report = Report()
        self.memories: list[Memory] = []
        self.names: dict[str, Any] = {}
        self._next = GLOBAL_WINDOW
        for p in program.program.params:
            if p.var is not None:
                self.names[p.var.name] = np.asarray(args[p.name], p.var.type.numpy)[()]
            elif p.array is not None and args.get(p.name) is not None:
                self.names[p.array.name] = self._tensor(p.array, args[p.name])
        for v in program.program.dynamic:
            self.names[v.name] = np.asarray(args[v.name], v.type.numpy)[()]

    # Memory --------------------------------------------------------------------------------------

    def _tensor(self, array: Array, value: npt.NDArray[Any]) -> Window:
        """An argument as bytes, in place."""
        flat = _flat(np.asarray(value))
        raw = flat.view(np.uint8) if flat.size else np.zeros(0, np.uint8)
        return self._window(array, raw, written=True, aligned=value.ctypes.data)

    def _window(
        self, array: Array, raw: npt.NDArray[np.uint8], *, written: bool, aligned: int = 0
    ) -> Window:
        name = array.name
        shadow = None
        if name in self.of.written:
            shadow = Shadow(name, raw.size, self.report, written=written)
        memory = Memory(name, raw, self.report, shadow=shadow, base=self._next + aligned % 256)
        self._next += -(-raw.size // _GAP) * _GAP + _GAP
        self.memories.append(memory)
        return Window(name, array.type, memory, 0, raw.size // array.type.numpy.itemsize)

    # Statements ----------------------------------------------------------------------------------

    def statements(self, body: tuple[Stmt, ...]) -> None:
        """Statements of the host level."""
        for stmt in body:
            _HOST[type(stmt)](self, stmt)

    def value(self, e: Expr) -> Any:
        """The value of an expression of the host level."""
        writer = Writer()
        writer.define(np=np, pack=values.pack)
        text = Expressions(writer).of(e, "None")
        names = {f"v_{n.name}": self.names[n.name] for n in e.walk() if isinstance(n, Var)}
        return eval(text, {**writer.namespace, **names})

    def let(self, stmt: Let) -> None:
        """A scalar."""
        self.names[stmt.var.name] = self.value(stmt.value)

    def declare(self, stmt: Declare) -> None:
        """A workspace."""
        array = stmt.array
        if array.size is None:
            raise InternalError(f"the workspace {array.name} has no size")
        size = int(self.value(array.size)) * array.type.numpy.itemsize
        raw = np.full(size, 0xFF, np.uint8)
        zero = isinstance(stmt.init, Const)
        if zero or array.type.is_bool or array.type.is_subbyte:
            raw[:] = 0
        self.names[array.name] = self._window(array, raw, written=zero)

    def make_map(self, stmt: MakeTensorMap) -> None:
        """A tensor map."""
        m = stmt.map
        dims = [int(self.value(d)) for d in m.dims]
        strides = [int(self.value(s)) for s in m.strides]
        self.names[m.name] = TensorView(m, self.names[m.array.name], dims, strides)

    def kernel(self, stmt: Kernel) -> None:
        """One launch, and its end."""
        prepared = self.of.prepared[stmt.name]
        self.report.begin(prepared.code.sites)
        clocks = clocks_of(stmt)
        clocks.traced = self.traced
        scheduler = Scheduler(self.schedule)
        machine = Machine(self.report, clocks, scheduler, self.memories, sums=self.of.sums)
        grid = [int(self.value(e)) for e in stmt.grid]
        given = {p.name: self.names[p.name] for p in stmt.params if p.name in self.names}
        given |= {p.name: None for p in stmt.params if p.name not in given}
        launch(prepared, machine, grid, given)
        for memory in self.memories:
            if memory.shadow is not None:
                memory.shadow.settle()

    def loop(self, stmt: For) -> None:
        """A counted loop."""
        step = 1 if stmt.step is None else int(self.value(stmt.step))
        for k in range(int(self.value(stmt.start)), int(self.value(stmt.stop)), step):
            self.names[stmt.var.name] = np.asarray(k, stmt.var.type.numpy)[()]
            self.statements(stmt.body)

    def while_(self, stmt: While) -> None:
        """A loop as long as a condition holds."""
        while self.value(stmt.cond):
            self.statements(stmt.body)

    def branch(self, stmt: If) -> None:
        """If."""
        self.statements(stmt.then if self.value(stmt.cond) else stmt.orelse)

    def require(self, stmt: Assert) -> None:
        """An assertion before a launch."""
        if self.value(stmt.cond):
            return
        if not stmt.kind:
            text = f"device assertion failed: {stmt.message}"
            raise error("value", text, stmt.loc, cls=TileRuntimeError, got="before the launch")
        cls = TileIndexError if stmt.kind == "bounds" else None
        raise error(stmt.kind, stmt.message, stmt.loc, cls=cls, got="before the launch")

    def speak(self, stmt: Print) -> None:
        """A message."""
        print(stmt.message)


def _flat(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The storage of an array from its first element to its last, gaps too."""
    if array.flags.c_contiguous:
        return array.reshape(-1)
    span = (
        1
        + sum(s * (n - 1) for s, n in zip(array.strides, array.shape, strict=True))
        // array.itemsize
    )
    count = 0 if 0 in array.shape else span
    return np.lib.stride_tricks.as_strided(array, (count,), (array.itemsize,))


def _nothing(call: _Call, stmt: Stmt) -> None:
    del call, stmt


_HOST: dict[type[Stmt], Callable[[_Call, Any], None]] = {
    Let: _Call.let,
    Declare: _Call.declare,
    MakeTensorMap: _Call.make_map,
    Kernel: _Call.kernel,
    For: _Call.loop,
    While: _Call.while_,
    If: _Call.branch,
    Assert: _Call.require,
    Assume: _nothing,
    Print: _Call.speak,
}
