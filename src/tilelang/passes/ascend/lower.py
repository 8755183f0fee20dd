"""An explicit Ascend function as a program of the thread stage.

What enters: a function in which every operation stands in a core region, every buffer on chip has
its address, and every order between pipes and cores is a statement (`ir/ascend.py`); Parallel,
Pipelined and Persistent loops are gone. What leaves: a `Program` in which each tile operation is
one or more instructions of `targets/ascend/rows`, on arrays at their addresses. Products from L1
are loops over tiles of L0A and L0B. Tiles that may leave global memory are cut to what is inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tilelang.errors import error
from tilelang.ir.ascend import (
    AtomicMode,
    CoreRegion,
    CrossSet,
    CrossWait,
    Lock,
    Pipe,
    PipeBarrier,
    SetFlag,
    SetMode,
    SyncAll,
    Transfer,
    Unlock,
    VectorFunction,
    VectorOp,
    WaitFlag,
)
from tilelang.ir.ascend_simd import SimdOp
from tilelang.ir.bounds import Env
from tilelang.ir.expr import Buffer, Expr, Var, const, int_value
from tilelang.ir.simplify import simplify
from tilelang.ir.special import GemmBlockScaled
from tilelang.ir.thread import Array, Declare, Instr, Program
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Atomic,
    Block,
    Copy,
    Fill,
    For,
    Function,
    Gemm,
    Launch,
    Reduce,
    Stmt,
    View,
)
from tilelang.isa.target import Target
from tilelang.passes.ascend import lower_copies, lower_cube, lower_scales, lower_vector
from tilelang.passes.ascend.event_ids import EventIds
from tilelang.passes.ascend.lower_functions import lower_function, lower_simd
from tilelang.passes.ascend.lower_scales import SLOT_SHARE
from tilelang.passes.ascend.settings import orders_products
from tilelang.passes.ascend.step import Shared, Step
from tilelang.passes.ascend.storage import SPACES, bytes_of, static_shape
from tilelang.passes.build import unsupported
from tilelang.passes.lower_memory import Lowering
from tilelang.scopes import Memory, memory_of

MOST_ALIGNED = 512
"""Bytes: no operand needs more (a fractal)."""


def lower_ascend(fn: Function, target: Target) -> Program:
    """The program of instructions that does what an explicit function says."""
    return AscendLowering(fn, target).program()


class AscendLowering(Lowering):
    """One function."""

    def __init__(self, fn: Function, target: Target) -> None:
        super().__init__(fn)
        self.target = target
        self.addresses: dict[str, int] = {}
        self.scaled: dict[str, Buffer] = {}
        limits = target.chip.sync if target.chip is not None else None
        self.shared = Shared(
            self.acc,
            self.names,
            target,
            self.memory,
            self.addresses,
            lower_cube.orientations(fn),
            EventIds(fn, limits.event_ids.value if limits is not None else 8),
            orders_products(fn),
            lower_cube.is_alone(fn),
            self.scaled,
        )

    # Launches and storage ------------------------------------------------------------------------

    def threads(self, stmt: Launch) -> tuple[tuple[int, ...], tuple[Var, ...]]:
        """The vector cores of a group, and what numbers them."""
        cores = stmt.threads[0] if stmt.threads else 2
        return (cores,), stmt.thread_vars[:1]

    def annotated(self, body: Block) -> None:
        """Take in what the author and the planner say of buffers."""
        super().annotated(body)
        for stmt in _all_statements(body):
            if isinstance(stmt, Annotate) and stmt.kind == "address":
                for buffer, address in zip(stmt.buffers, stmt.values, strict=True):
                    self.addresses[buffer.name] = address
            if isinstance(stmt, Annotate) and stmt.kind == "scales_of":
                self.scaled[stmt.buffers[0].name] = stmt.buffers[1]

    def memory(self, buffer: Buffer) -> Memory:
        """The memory of a buffer."""
        return memory_of(self.dialect, buffer.scope)

    def alloc(self, stmt: Alloc, env: Env) -> Block:
        """Storage for a buffer: on chip at its address."""
        b = stmt.buffer
        memory = self.memory(b)
        if memory not in SPACES:
            return super().alloc(stmt, env)
        owner = self.scaled.get(b.name)
        if owner is not None:
            return self.slot(stmt, owner)
        address = self.addresses.get(b.name)
        if address is None:
            raise error(
                "layout",
                f"{b.name} has no address in the {memory.title}",
                stmt.loc,
                expected="T.annotate_address, or a memory planner",
            )
        return self.declared(b, memory, address, stmt)

    def declared(self, b: Buffer, memory: Memory, address: int, stmt: Stmt) -> Block:
        """An array for a buffer at an address of a core's memory."""
        scalars = bytes_of(b, memory, stmt) // b.dtype.bytes
        align = min(MOST_ALIGNED, address & -address) if address else MOST_ALIGNED
        array = Array(
            self.names.name(b.name) if b.name in self.places else b.name,
            b.dtype.base,
            const(scalars),
            space=SPACES[memory],
            align=align,
            loc=stmt.loc,
        )
        self.places[b.name] = self.placed(b, array)
        self.addresses[b.name] = address
        return (Declare(array, offset=address, loc=stmt.loc),)

    def slot(self, stmt: Alloc, owner: Buffer) -> Block:
        """The place of a tile's scales: its share of the tile's own address and size."""
        b, home = stmt.buffer, self.memory(owner)
        size = bytes_of(owner, home, stmt) // SLOT_SHARE // b.dtype.bytes
        array = Array(b.name, b.dtype.base, const(size), space=SPACES[self.memory(b)], align=32)
        self.places[b.name] = self.placed(b, array)
        return (Declare(array, offset=self.addresses[owner.name] // SLOT_SHARE, loc=stmt.loc),)

    def view(self, stmt: View, env: Env) -> Block:
        """A second name: of another element type, a second array at the place in memory."""
        source, b = self.places[stmt.source.name], stmt.buffer
        memory = self.memory(stmt.source)
        if memory not in SPACES or source.array.type == b.dtype.base:
            if memory in SPACES and memory is not Memory.UB:
                self.same_matrices(stmt)
            return super().view(stmt, env)
        offset = int_value(stmt.offset) if stmt.offset is not None else 0
        if offset is None or int_value(source.offset) is None:
            raise unsupported(stmt, "a view of another element type at an offset known at run time")
        first = (int_value(source.offset) or 0) + offset * stmt.source.dtype.lanes
        address = self.addresses[source.array.name] + first * source.array.type.bytes
        if memory is not Memory.UB:
            self.same_matrices(stmt)
        return self.declared(b, memory, address, stmt)

    def same_matrices(self, stmt: View) -> None:
        """The fractals of a view must be those of its source."""
        a, b = (static_shape(x, stmt) for x in (stmt.source, stmt.buffer))
        bits = stmt.source.dtype.bits, stmt.buffer.dtype.bits
        if a[-2:] != b[-2:] or bits[0] != bits[1] or stmt.offset is not None:
            raise error(
                "layout",
                f"the view {stmt.buffer.name} has other matrices than {stmt.source.name}",
                stmt.loc,
                expected=f"the last two axes {a[-2:]} and elements of {bits[0]} bits: the tile lies"
                " in fractals",
                got=f"{b[-2:]} and {bits[1]} bits",
            )

    # Statements ----------------------------------------------------------------------------------

    def statement(self, stmt: Stmt, env: Env) -> Block:
        """One statement."""
        match stmt:
            case CoreRegion():
                return (stmt.with_(body=self.block(stmt.body, env.enter(stmt))),)
            case VectorFunction():
                return lower_function(self, stmt, env, self.target)
            case For():
                return self.loop(stmt, env)
            case _:
                return super().statement(stmt, env)

    def simple(self, stmt: Stmt, env: Env) -> Block:
        """A statement without blocks."""
        if isinstance(stmt, SimdOp):
            return lower_simd(self, stmt, env)
        lower = _TILE_OPS.get(type(stmt))
        if lower is not None:
            step = Step(self.shared, stmt, env)
            made = lower(step, stmt)
            return (*step.access.assertions(stmt.loc), *made)
        sync = _SYNC.get(type(stmt))
        if sync is None:
            return super().simple(stmt, env)
        row, ins, imm = sync(self.as_chip_has_it(stmt))
        x = self.acc.begin(env)
        values = tuple(simplify(x.expr(e), env) for e in ins)
        self.check_id(stmt, values, env)
        return (*x.assertions(stmt.loc), Instr(row, (), values, imm=tuple(imm), loc=stmt.loc))

    def as_chip_has_it(self, stmt: Stmt) -> Stmt:
        """Where no single pipe can wait for another core, the whole core does."""
        limits = self.target.chip.sync if self.target.chip is not None else None
        if isinstance(stmt, CrossWait) and limits is not None and limits.pair_flags is None:
            return stmt.with_(pipe=Pipe.ALL)
        return stmt

    def check_id(self, stmt: Stmt, values: tuple[Expr, ...], env: Env) -> None:
        """An id that is certainly beyond what the chip has is refused."""
        limits = self.target.chip.sync if self.target.chip is not None else None
        if limits is None or isinstance(stmt, SetMode) or not values:
            return
        if isinstance(stmt, (SetFlag, WaitFlag)):
            what, fact = "event", limits.event_ids
        elif isinstance(stmt, (CrossSet, CrossWait)):
            what, fact = "cross-core flag", limits.flags_of(stmt.mode)
        else:
            what, fact = "mutex", limits.mutexes
        if fact is None:
            raise error("target", f"{self.target} has no {what}", stmt.loc)
        known = env.bounds(values[0])
        low, high = known.lo, known.hi
        if (low is not None and low >= fact.value) or (high is not None and high < 0):
            raise error(
                "value",
                f"{what} {low if low == high else f'{low} and more'}",
                stmt.loc,
                expected=f"0 to {fact.value - 1} ({fact.source})",
                got=str(low),
            )


def _all_statements(body: Block) -> Iterator[Stmt]:
    for stmt in body:
        yield stmt
        for child in stmt.children():
            if isinstance(child, Stmt):
                yield from _all_statements((child,))


Operation = tuple[str, tuple[Expr, ...], list[tuple[str, Any]]]


def _flag(s: SetFlag | WaitFlag) -> Operation:
    row = "flag.set" if isinstance(s, SetFlag) else "flag.wait"
    return row, (s.id,), [("src", s.src.value), ("dst", s.dst.value)]


def _barrier(s: PipeBarrier) -> Operation:
    return "barrier", (), [("pipe", s.pipe.value)]


def _cross(s: CrossSet | CrossWait) -> Operation:
    row = "cross.set" if isinstance(s, CrossSet) else "cross.wait"
    return row, (s.id,), [("mode", s.mode), ("pipe", s.pipe.value)]


def _all(s: SyncAll) -> Operation:
    del s
    return "sync.all", (), []


def _mutex(s: Lock | Unlock) -> Operation:
    row = "mutex.lock" if isinstance(s, Lock) else "mutex.unlock"
    return row, (s.id,), [("pipe", s.pipe.value), ("mode", s.mode)]


def _atomic_mode(s: AtomicMode) -> Operation:
    dtype = [] if s.dtype is None else [("dtype", str(s.dtype))]
    return "mode.atomic", (), [("op", s.op), *dtype]


def _mode(s: SetMode) -> Operation:
    return f"mode.{s.name}", (s.value,), []


_SYNC: dict[type[Stmt], Callable[[Any], Operation]] = {
    SetFlag: _flag,
    WaitFlag: _flag,
    PipeBarrier: _barrier,
    CrossSet: _cross,
    CrossWait: _cross,
    SyncAll: _all,
    Lock: _mutex,
    Unlock: _mutex,
    AtomicMode: _atomic_mode,
    SetMode: _mode,
}

_TILE_OPS: dict[type[Stmt], Callable[[Step, Any], Block]] = {
    Copy: lower_copies.copy,
    Transfer: lower_copies.transfer,
    Atomic: lower_copies.atomic,
    Fill: lower_copies.fill,
    Gemm: lower_cube.gemm,
    GemmBlockScaled: lower_scales.gemm_scaled,
    Reduce: lower_vector.reduce,
    VectorOp: lower_vector.vector_op,
}
