"""Who does what to which bytes: the pipe that carries out each statement, and what it touches.

What enters: a statement of the tile stage. What leaves: its `Access`es, each with the agent (a core
and one of its pipes), the buffer that has the storage, and the part of it. Effects come from the
operands' declarations alone; the pipe of a transfer follows from its two memories (`PATHS`).
Dependence analysis, the split over cores, memory planning and the insertion of flags read this.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

from tilelang.errors import TileError, error
from tilelang.ir.ascend import (
    Core,
    CoreRegion,
    CrossSet,
    CrossWait,
    Lock,
    Pipe,
    PipeBarrier,
    SetFlag,
    Transfer,
    Unlock,
    VectorFunction,
    VectorOp,
    WaitFlag,
)
from tilelang.ir.expr import Buffer, Const, Expr, Load, Region, const, int_value
from tilelang.ir.node import Effect, Kind, Node, flat
from tilelang.ir.special import GemmBlockScaled
from tilelang.ir.tile import (
    Annotate,
    Atomic,
    Copy,
    Fill,
    For,
    Function,
    Gemm,
    If,
    Print,
    Reduce,
    Scan,
    Stmt,
    Store,
    TileOp,
    Transpose,
    View,
    While,
)
from tilelang.passes.ascend.storage import bytes_of, tile_of
from tilelang.passes.build import whole
from tilelang.scopes import Dialect, Memory, memory_of

C, V = Core.CUBE, Core.VECTOR
_M = Memory


@dataclass(frozen=True, order=True)
class Agent:
    """A queue of work: a pipe of a kind of core."""

    core_name: str
    pipe_name: str

    @cached_property
    def core(self) -> Core:
        """The kind of core."""
        return Core(self.core_name)

    @cached_property
    def pipe(self) -> Pipe:
        """The pipe."""
        return Pipe(self.pipe_name)


@cache
def agent(core: Core, pipe: Pipe) -> Agent:
    """The queue of a pipe of a core."""
    return Agent(core.value, pipe.value)


PATHS: Mapping[tuple[Memory, Memory], Agent] = {
    (_M.GLOBAL, _M.L1): agent(C, Pipe.MTE2),
    (_M.GLOBAL, _M.UB): agent(V, Pipe.MTE2),
    (_M.L1, _M.L0A): agent(C, Pipe.MTE1),
    (_M.L1, _M.L0B): agent(C, Pipe.MTE1),
    (_M.L1, _M.L0A_SCALE): agent(C, Pipe.MTE1),
    (_M.L1, _M.L0B_SCALE): agent(C, Pipe.MTE1),
    (_M.L0C, _M.GLOBAL): agent(C, Pipe.FIX),
    (_M.L0C, _M.L1): agent(C, Pipe.FIX),
    (_M.L0C, _M.UB): agent(C, Pipe.FIX),
    (_M.UB, _M.GLOBAL): agent(V, Pipe.MTE3),
    (_M.UB, _M.L1): agent(V, Pipe.MTE3),
    (_M.UB, _M.UB): agent(V, Pipe.V),
}
"""The queue that carries out a transfer, by source and destination (ascend.md B2, B3)."""

PRODUCTS = (Gemm, GemmBlockScaled)
_FILLS = {_M.UB: agent(V, Pipe.V), _M.L1: agent(C, Pipe.MTE2)}
ON_CUBE = frozenset({_M.L1, _M.L0A, _M.L0B, _M.L0C, _M.L0A_SCALE, _M.L0B_SCALE})


@dataclass(frozen=True)
class Access:
    """One operand of a statement: who touches it, how, and where.

    `low` and `high` are bytes of the root buffer, a hull of what may be touched: all of it where
    the place is known only when the kernel runs, and None for such a place in global memory.
    `settled` is a read of the scalar unit without whose value it can issue nothing more.
    """

    by: Agent
    effect: Effect
    root: Buffer
    memory: Memory
    low: int | None = None
    high: int | None = None
    region: Region | None = None
    settled: bool = False

    @cached_property
    def writes(self) -> bool:
        """Whether it changes what is there."""
        return bool(self.effect & Effect.WRITE)

    @cached_property
    def reads(self) -> bool:
        """Whether it depends on what is there."""
        return bool(self.effect & Effect.READ)


class Effects:
    """The accesses of the statements of one function."""

    def __init__(self, fn: Function) -> None:
        self.dialect = Dialect(fn.dialect)
        self._roots: dict[str, tuple[Buffer, int | None]] = {}
        for node in fn.walk():
            if isinstance(node, View):
                self._roots[node.buffer.name] = self._viewed(node)
            if isinstance(node, Annotate) and node.kind == "scales_of":
                # A tile and its scales are loaded and used by the same pipes, and live together.
                self._roots[node.buffers[0].name] = (self.root(node.buffers[1])[0], None)

    def _viewed(self, view: View) -> tuple[Buffer, int | None]:
        """What has the storage of a view, and at which byte of it the view begins."""
        root, start = self.root(view.source)
        step = 0 if view.offset is None else int_value(view.offset)
        if start is None or step is None:
            return root, None
        return root, start + step * view.source.dtype.bits // 8

    def root(self, buffer: Buffer) -> tuple[Buffer, int | None]:
        """The buffer that has the storage, and the byte of it at which `buffer` begins."""
        return self._roots.get(buffer.name, (buffer, 0))

    def memory(self, buffer: Buffer) -> Memory:
        """The canonical memory of a buffer."""
        return memory_of(self.dialect, buffer.scope)

    # One statement -------------------------------------------------------------------------------

    def of(self, stmt: Stmt, core: Core | None = None) -> list[Access]:
        """What a statement does itself, without the statements inside it, scalars first. `core` is
        the kind of core around it, where it stands in a region.
        """
        who = self.agents(stmt)
        home = core or (who[0].core if who else V)
        found = [a for e in _scalars(stmt) for a in self._loads(e, home)]
        if isinstance(stmt, (TileOp, If, For, While)):
            found = [replace(a, settled=True) for a in found]
        for effect, node in stmt.effects():
            if isinstance(node, Region):
                kind = effect & ~Effect.READ if _begins_anew(stmt, node) else effect
                found.append(self._access(self._queue(stmt, node, who), kind, node))
            elif isinstance(node, Buffer) and self._is_memory(node):
                region = _element(stmt, node)
                found.append(self._access(self._queue(stmt, region, who), effect, region))
        if isinstance(stmt, VectorFunction):
            found += self._inside(stmt, agent(V, Pipe.V))
        return found

    def inside(self, stmt: Stmt, core: Core | None = None) -> Iterator[Access]:
        """What a statement and all statements inside it do."""
        yield from self.of(stmt, core)
        if isinstance(stmt, VectorFunction):
            return
        home = stmt.core if isinstance(stmt, CoreRegion) else core
        for child in stmt.children():
            if isinstance(child, Stmt):
                yield from self.inside(child, home)

    def agents(self, stmt: Stmt) -> tuple[Agent, ...]:
        """The queues that a statement itself works on; empty for one that neither computes nor
        moves anything.
        """
        if isinstance(stmt, (VectorOp, Reduce, Scan, Transpose, VectorFunction)):
            return (agent(V, Pipe.V),)
        if isinstance(stmt, PRODUCTS):
            at = self.memory(stmt.a.buffer)
            loads = (agent(C, Pipe.MTE1),) if at is Memory.L1 else ()
            return (*loads, agent(C, Pipe.M))
        if isinstance(stmt, (Copy, Transfer, Atomic, Fill)):
            return (self._moved(stmt),)
        return self._scalar(stmt)

    def _scalar(self, stmt: Stmt) -> tuple[Agent, ...]:
        """The scalar unit that a statement on single elements works on."""
        if isinstance(stmt, Store):
            at = self.memory(stmt.buffer)
            return (agent(V, Pipe.S),) if at in (Memory.UB, Memory.GLOBAL) else ()
        if isinstance(stmt, Print) and isinstance(stmt.value, Buffer):
            return (agent(C if self.memory(stmt.value) in ON_CUBE else V, Pipe.S),)
        return ()

    def _moved(self, stmt: Copy | Transfer | Atomic | Fill) -> Agent:
        """The queue of a statement that moves or sets a tile."""
        if isinstance(stmt, Fill):
            ends, found = [stmt.dst], _FILLS.get(self.memory(stmt.dst.buffer))
        elif isinstance(stmt, Atomic):
            ends = [*([stmt.value] if isinstance(stmt.value, Region) else []), stmt.dst]
            src = self.memory(ends[0].buffer) if len(ends) > 1 else Memory.UB
            found = PATHS.get((src, Memory.GLOBAL))
        else:
            ends = [stmt.src, stmt.dst]
            found = PATHS.get((self.memory(ends[0].buffer), self.memory(ends[1].buffer)))
        if found is None:
            raise self._nobody(stmt, ends)
        return found

    def _nobody(self, stmt: Stmt, regions: list[Region]) -> TileError:
        where = " and ".join(f"{r.buffer.name}, in {self.memory(r.buffer).title}" for r in regions)
        return error(
            "scope",
            f"no pipe of an Ascend core can do this to {where}",
            stmt.loc,
            expected="a path: " + ", ".join(f"{a.title} -> {b.title}" for a, b in PATHS),
            help="go by a memory that both sides reach",
        )

    # Operands ------------------------------------------------------------------------------------

    def _queue(self, stmt: Stmt, region: Region, who: tuple[Agent, ...]) -> Agent:
        """The queue that touches one operand."""
        if isinstance(stmt, PRODUCTS) and len(who) > 1:
            return who[1] if region is stmt.c else who[0]
        if who:
            return who[0]
        return agent(C if self.memory(region.buffer) in ON_CUBE else V, Pipe.S)

    def _loads(self, e: Expr, core: Core) -> Iterator[Access]:
        """The elements that a scalar reads: work of the scalar unit of the same core."""
        for n in e.walk():
            if isinstance(n, Load) and self._is_memory(n.buffer):
                at = V if self.memory(n.buffer) is Memory.UB else core
                one = Region(n.buffer, n.indices, tuple(_ones(n.indices)))
                yield self._access(agent(at, Pipe.S), Effect.READ, one)

    def _inside(self, stmt: VectorFunction, by: Agent) -> list[Access]:
        """What a function of the vector core does: something to some of each buffer; only what it
        gives all contents has a region.
        """
        found: list[Access] = []

        def add(effect: Effect, buffer: Buffer) -> None:
            if buffer.name in stmt.gives:
                found.append(self._access(by, Effect.WRITE, whole(buffer)))
            elif self._is_memory(buffer):
                found.append(replace(self._access(by, effect, whole(buffer)), region=None))

        for node in (n for s in stmt.body for n in s.walk()):
            if isinstance(node, Load):
                add(Effect.READ, node.buffer)
            for effect, target in node.effects() if isinstance(node, Stmt) else ():
                buffer = target.buffer if isinstance(target, Region) else target
                if isinstance(buffer, Buffer):
                    add(effect, buffer)
        return found

    def _is_memory(self, buffer: Buffer) -> bool:
        """Whether it lies in a memory that pipes share, not in registers of the scalar unit."""
        return self.memory(buffer) in (Memory.GLOBAL, Memory.UB, *ON_CUBE)

    def _access(self, by: Agent, effect: Effect, region: Region) -> Access:
        root, start = self.root(region.buffer)
        memory = self.memory(root)
        span = matrix_span(region, memory) if memory in ON_CUBE else byte_span(region)
        low = high = None
        if span is not None and start is not None:
            low, high = start + span[0], start + span[1]
        elif memory is not Memory.GLOBAL:
            low, high = 0, bytes_of(root, memory, region)
        return Access(by, effect, root, memory, low, high, region)


def _begins_anew(stmt: Stmt, region: Region) -> bool:
    """Whether an operand that may be updated is certainly given new contents."""
    if isinstance(stmt, PRODUCTS):
        clear = stmt.clear_accum
        return region is stmt.c and isinstance(clear, Const) and clear.value is True
    return isinstance(stmt, Reduce) and region is stmt.dst and stmt.clear


def byte_span(region: Region) -> tuple[int, int] | None:
    """The first byte of a region and the one after the last, counted from the start of a row-major
    buffer; None where they are not known.
    """
    first = last = 0
    step = 1
    for low, extent, size in zip(
        reversed(region.mins), reversed(region.extents), reversed(region.buffer.shape), strict=True
    ):
        a, n, m = int_value(low), int_value(extent), int_value(size)
        if a is None or n is None or m is None:
            return None
        first, last = first + a * step, last + (a + max(n, 1) - 1) * step
        step *= m
    bits = region.buffer.dtype.bits * region.buffer.dtype.lanes
    return first * bits // 8, -(-(last + 1) * bits // 8)


def matrix_span(region: Region, memory: Memory) -> tuple[int, int] | None:
    """The bytes of the whole matrices that a region of a memory of the cube core touches; None
    where they are not known.
    """
    tile = tile_of(region.buffer, memory, region)
    lead = len(region.extents) - 2
    matrices = Region(
        Buffer(region.buffer.name, region.buffer.type, region.buffer.shape[:lead]),
        region.mins[:lead],
        region.extents[:lead],
    )
    one = tile.elements * region.buffer.dtype.bytes
    if lead == 0:
        return 0, one
    span = byte_span(matrices)
    size = region.buffer.dtype.bytes
    return None if span is None else (span[0] // size * one, span[1] // size * one)


def may_meet(a: Access, b: Access) -> bool:
    """Whether two accesses of one function may touch the same byte of one root buffer."""
    if a.root.name != b.root.name:
        return False
    if a.region is not None and b.region is not None and _apart(a.region, b.region, a.memory):
        return False
    return spans_meet(a, b, 0, 0)


def spans_meet(a: Access, b: Access, base_a: int, base_b: int) -> bool:
    """Whether two hulls of bytes meet, of root buffers that begin at these bytes of one memory.

    A hull that is not known meets everything.
    """
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return True
    return base_a + a.low < base_b + b.high and base_b + b.low < base_a + a.high


def conflict(a: Access, b: Access) -> bool:
    """Whether the order of two accesses matters where they touch the same byte."""
    return (a.writes or b.writes) and may_meet(a, b)


def _apart(a: Region, b: Region, memory: Memory) -> bool:
    """Whether boxes of one buffer are apart along an axis. In fractals only whole matrices are."""
    if a.buffer != b.buffer:
        return False
    axes = zip(a.mins, a.extents, b.mins, b.extents, strict=True)
    count = len(a.extents) - (2 if memory in ON_CUBE else 0)
    for low_a, n_a, low_b, n_b in itertools.islice(axes, max(count, 0)):
        x, m, y, n = (int_value(e) for e in (low_a, n_a, low_b, n_b))
        if x is None or m is None or y is None or n is None:
            continue
        if x + m <= y or y + n <= x:
            return True
    return False


def _ones(indices: tuple[Expr, ...]) -> Iterator[Expr]:
    yield from (const(1) for _ in indices)


def _element(stmt: Stmt, buffer: Buffer) -> Region:
    """What a statement on single elements touches of a buffer."""
    if isinstance(stmt, Store):
        return Region(buffer, stmt.indices, tuple(_ones(stmt.indices)))
    return whole(buffer)


def _scalars(stmt: Stmt) -> Iterator[Expr]:
    """The scalar operands of a statement, those of its regions included."""
    stack: list[Node] = []
    for f in stmt.fields():
        if f.metadata["kind"] is Kind.OPERAND:
            stack.extend(flat(getattr(stmt, f.name)))
    for node in stack:
        if isinstance(node, Expr):
            yield node
        elif isinstance(node, Region):
            yield from (*node.mins, *node.extents)


def core_of_flag(stmt: Stmt) -> Core | None:
    """The core that a statement of order belongs to, where its pipes tell."""
    pipes: tuple[Pipe, ...] = ()
    if isinstance(stmt, (SetFlag, WaitFlag)):
        pipes = (stmt.src, stmt.dst)
    elif isinstance(stmt, (PipeBarrier, CrossSet, CrossWait, Lock, Unlock)):
        pipes = (stmt.pipe,)
    if any(p in (Pipe.M, Pipe.MTE1, Pipe.FIX) for p in pipes):
        return C
    return V if any(p in (Pipe.V, Pipe.MTE3) for p in pipes) else None
