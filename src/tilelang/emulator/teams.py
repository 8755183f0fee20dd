"""Which threads of a block part ways, as far as the program says so by their indices.

What enters: a launch. What leaves: the division of its threads into agents, each of which runs in
lockstep, and for every condition the threads that take it. A condition that whole warps decide
alike sends agents different ways; others are masks inside an agent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.emulator.lanes import Lanes, bodies, nodes_of, own_nodes, statements, written
from tilelang.ir import sync
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    LoadVector,
    Select,
    Unary,
    UnaryOp,
    Var,
    int_value,
)
from tilelang.ir.special import COLLECTIVES, Collective, Group, ReducerFinalize, ReducerInit
from tilelang.ir.sync import GROUP, WARP
from tilelang.ir.tile import (
    Atomic,
    Block,
    Break,
    For,
    If,
    Launch,
    Let,
    Parallel,
    Pipelined,
    Stmt,
    Store,
    StoreVector,
    SyncThreads,
    ThreadReturn,
    TileOp,
    View,
    While,
)

Truth = npt.NDArray[np.bool_]
Values = npt.NDArray[np.int64]

# -- what a launch waits for -----------------------------------------------------------------------

_NO_AGENT = (sync.SyncWarp, sync.Fence, sync.LaunchDependency)
_BLOCKING = (sync.MbarWait, sync.SyncGrid, sync.ClusterBarrier, sync.WarpSpecialize)


def waits(stmt: Stmt) -> bool:
    """Whether threads stop at a statement itself until others have done something."""
    if isinstance(stmt, SyncThreads):
        return stmt.barrier_id is not None
    if isinstance(stmt, Collective):
        return COLLECTIVES[stmt.fn].group is Group.BLOCK
    return isinstance(stmt, _BLOCKING) or (isinstance(stmt, While) and watches(stmt))


def of_team(stmt: Stmt) -> bool:
    """Whether the threads that are here carry a statement out together."""
    if isinstance(stmt, Atomic):
        return any(int_value(e) != 1 for e in stmt.dst.extents)
    if isinstance(stmt, SyncThreads):
        return stmt.barrier_id is None
    return isinstance(stmt, (TileOp, Parallel, ReducerInit, ReducerFinalize))


def watches(loop: While) -> bool:
    """Whether a loop may end because of what another thread or block writes."""
    seen = _Tainted(loop)
    if seen.tainted(loop.cond):
        return True
    return seen.leaves(loop.body, False)


class _Tainted:
    """The names and buffers in a loop that depend on what memory of other threads holds."""

    def __init__(self, loop: While) -> None:
        self.names: set[str] = set()
        inner = list(statements(loop.body))
        before = -1
        while before != len(self.names):
            before = len(self.names)
            for stmt in inner:
                self._look(stmt)

    def tainted(self, *nodes: Expr) -> bool:
        """Whether a value depends on it."""
        for n in nodes_of(*nodes):
            if isinstance(n, Var) and n.name in self.names:
                return True
            if isinstance(n, (Load, LoadVector)) and (
                n.buffer.name in self.names or seen_by_others(n.buffer.scope)
            ):
                return True
        return False

    def _look(self, stmt: Stmt) -> None:
        if isinstance(stmt, Let) and self.tainted(stmt.value):
            self.names.add(stmt.var.name)
        elif isinstance(stmt, Store) and self.tainted(stmt.value):
            self.names.add(stmt.buffer.name)
        elif isinstance(stmt, Atomic) and stmt.previous is not None:
            self.names.add(stmt.previous.name)
        elif isinstance(stmt, Collective) and self.tainted(*stmt.args):
            self.names.add(stmt.result.name)
        elif isinstance(stmt, TileOp):
            self.names |= {b.name for b in written(stmt)}

    def leaves(self, body: Block, under: bool) -> bool:
        """Whether the loop is left under such a condition."""
        for stmt in body:
            if isinstance(stmt, (Break, ThreadReturn)) and under:
                return True
            if isinstance(stmt, (For, Pipelined, While)):
                inner = (s for s in statements(stmt.body) if isinstance(s, ThreadReturn))
                if any(inner):
                    return True
                continue
            deeper = under or (isinstance(stmt, If) and self.tainted(stmt.cond))
            if any(self.leaves(b, deeper) for b in bodies(stmt)):
                return True
        return False


def seen_by_others(scope: str) -> bool:
    """Whether other threads may write a memory."""
    return scope == "global" or scope.startswith("shared")


def all_blocks_at_once(body: Block) -> bool:
    """Whether blocks may wait for each other."""
    return any(
        isinstance(s, sync.SyncGrid) or (isinstance(s, While) and watches(s))
        for s in statements(body)
    )


# -- values of each thread -------------------------------------------------------------------------

_OPS: dict[BinaryOp, Callable[[Any, Any], Any]] = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUB: np.subtract,
    BinaryOp.MUL: np.multiply,
    BinaryOp.FLOORDIV: np.floor_divide,
    BinaryOp.FLOORMOD: np.mod,
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
    BinaryOp.EQ: np.equal,
    BinaryOp.NE: np.not_equal,
    BinaryOp.LT: np.less,
    BinaryOp.LE: np.less_equal,
    BinaryOp.GT: np.greater,
    BinaryOp.GE: np.greater_equal,
    BinaryOp.AND: np.logical_and,
    BinaryOp.OR: np.logical_or,
    BinaryOp.BITAND: np.bitwise_and,
    BinaryOp.BITOR: np.bitwise_or,
    BinaryOp.BITXOR: np.bitwise_xor,
    BinaryOp.SHL: np.left_shift,
    BinaryOp.SHR: np.right_shift,
}
_DIVISIONS = frozenset({BinaryOp.FLOORDIV, BinaryOp.FLOORMOD, BinaryOp.TRUNCDIV, BinaryOp.TRUNCMOD})
_TRUNCATED = {BinaryOp.TRUNCDIV: np.floor_divide, BinaryOp.TRUNCMOD: np.mod}


class Threads:
    """What is known of every thread of a block when its program is translated, x fastest."""

    def __init__(self, launch: Launch, extents: tuple[int, ...]) -> None:
        self.extents = extents
        self.count = int(np.prod(extents))
        z, y, x = np.indices(extents[::-1], dtype=np.int64).reshape(3, -1)
        self._known: dict[str, Values] = {
            v.name: a for v, a in zip(launch.thread_vars, (x, y, z), strict=False)
        }
        self._parting = {v.name for v, n in zip(launch.thread_vars, extents, strict=False) if n > 1}
        self._lets: dict[str, Expr] = {}
        for stmt in statements(launch.body):
            if isinstance(stmt, Let):
                self._lets[stmt.var.name] = stmt.value
            elif isinstance(stmt, Collective) and stmt.fn == "elect":
                size = stmt.params[0] or self.count
                self._known[stmt.result.name] = (np.arange(self.count) % size == 0).astype(np.int64)
                self._parting.add(stmt.result.name)

    def values(self, e: Expr) -> Values | None:
        """The value of an integer expression in every thread; None where that is not known."""
        match e:
            case Const() if not e.dtype.is_float:
                found = np.full(self.count, int(e.value), np.int64)
            case Var() if e.name in self._lets:
                found = self.values(self._lets[e.name])
            case Var():
                found = self._known.get(e.name)
            case Binary():
                found = self._binary(e)
            case Unary(op=UnaryOp.NOT):
                a = self.values(e.a)
                found = None if a is None else (a == 0).astype(np.int64)
            case Cast() if e.type.is_integer and e.a.dtype.is_integer and e.type.bits >= 32:
                found = self.values(e.a)
            case Select():
                c, t, f = (self.values(p) for p in (e.cond, e.t, e.f))
                found = None if c is None or t is None or f is None else np.where(c != 0, t, f)
            case _:
                found = None
        return found

    def _binary(self, e: Binary) -> Values | None:
        a, b = self.values(e.a), self.values(e.b)
        if e.op is BinaryOp.AND:
            for side in (a, b):
                if side is not None and not side.any():
                    return side
        if a is None or b is None or e.a.dtype.is_float:
            return None
        if e.op in _DIVISIONS and (b == 0).any():
            return None
        fn = _OPS.get(e.op)
        if e.op in _TRUNCATED and a.min() >= 0 and b.min() > 0:
            fn = _TRUNCATED[e.op]
        return None if fn is None else fn(a, b).astype(np.int64)

    def split(self, cond: Expr) -> Split | None:
        """A condition as the threads that can take it, and what is left to decide; None where it
        says nothing about threads.
        """
        parts = _conjuncts(cond)
        known = [self.values(p) for p in parts]
        truth = np.ones(self.count, np.bool_)
        rest: Expr | None = None
        found = False
        for part, values in zip(parts, known, strict=True):
            if values is None:
                rest = part if rest is None else Binary(BinaryOp.AND, rest, part)
            elif not values.all() or not self.uniform(part):
                truth &= values != 0
                found = True
        return Split(truth, rest) if found else None

    def uniform(self, e: Expr) -> bool:
        """Whether nothing in a value names a thread."""
        names = [n.name for n in nodes_of(e) if isinstance(n, Var)]
        return not any(
            n in self._parting or (n in self._lets and not self.uniform(self._lets[n]))
            for n in names
        )

    def warps(self, truth: Truth) -> tuple[Truth, Truth]:
        """For each warp, whether some and whether all of its threads are meant."""
        starts = np.arange(0, self.count, WARP)
        return np.logical_or.reduceat(truth, starts), np.logical_and.reduceat(truth, starts)

    def whole(self, truth: Truth) -> bool:
        """Whether each warp is meant as a whole or not at all."""
        some, every = self.warps(truth)
        return bool((some == every).all())


@dataclass(frozen=True)
class Split:
    """The threads that can take a condition, and what is left of it (None: nothing)."""

    threads: Truth
    rest: Expr | None


def _conjuncts(e: Expr) -> list[Expr]:
    if isinstance(e, Binary) and e.op is BinaryOp.AND:
        return [*_conjuncts(e.a), *_conjuncts(e.b)]
    return [e]


def registers(body: Block, threads: Threads) -> set[str]:
    """The fragments that only code of threads touches, at indices that name no thread: every thread
    has one of its own.
    """
    found: set[str] = set()
    shared: set[str] = set()
    together = [stmt for stmt in statements(body) if of_team(stmt)]
    for stmt in together:
        shared |= {n.name for n in nodes_of(stmt) if isinstance(n, Buffer)}
    for stmt in statements(body):
        for n in (stmt, *own_nodes(stmt)):
            if isinstance(n, (Load, LoadVector, Store, StoreVector)):
                name, fragment = n.buffer.name, n.buffer.scope == "local.fragment"
                if fragment and all(threads.uniform(i) for i in n.indices):
                    found.add(name)
                else:
                    shared.add(name)
        if isinstance(stmt, View):
            shared |= {stmt.buffer.name, stmt.source.name}
    return found - shared


# -- division into agents --------------------------------------------------------------------------


def parted(body: Block, threads: Threads) -> dict[int, Split]:
    """The conditions that send whole warps different ways to what they do together or wait for."""
    found: dict[int, Split] = {}
    for stmt in statements(body):
        if not isinstance(stmt, If):
            continue
        inner = list(statements((*stmt.then, *stmt.orelse)))
        if not any(waits(s) or of_team(s) for s in inner):
            continue
        split = threads.split(stmt.cond)
        if split is not None and threads.whole(split.threads):
            found[id(stmt)] = split
    return found


def groups_of(stmt: sync.WarpSpecialize, threads: Threads) -> Truth:
    """The threads of some warp groups."""
    return np.isin(np.arange(threads.count) // GROUP, stmt.groups)


def division(
    body: Block, threads: Threads, splits: dict[int, Split], lanes: Lanes, *, apart: bool = False
) -> list[int]:
    """The threads of each agent, in order: as few agents as the program's ways allow. With `apart`
    all conditions on threads count, not only those of threads that wait.
    """
    marks: list[Truth] = []
    for stmt in statements(body):
        if isinstance(stmt, sync.WarpSpecialize):
            marks.append(threads.warps(groups_of(stmt, threads))[0])
        elif id(stmt) in splits:
            marks.append(threads.warps(splits[id(stmt)].threads)[0])
            rest = splits[id(stmt)].rest
            if rest is not None and lanes.varies(rest) and _wait_inside(stmt):
                return _every_warp(threads)
        elif _parts_at(stmt, lanes):
            split = threads.split(stmt.cond) if isinstance(stmt, If) else None
            if split is None:
                return _every_warp(threads)
            marks += threads.warps(split.threads)
        elif apart and isinstance(stmt, If):
            split = threads.split(stmt.cond)
            marks += [] if split is None else threads.warps(split.threads)
    if not marks:
        return [threads.count]
    rows = np.stack(marks)
    new = np.flatnonzero((rows[:, 1:] != rows[:, :-1]).any(axis=0)) + 1
    bounds = [0, *(int(k) * WARP for k in new), threads.count]
    return [b - a for a, b in pairwise(bounds)]


def _every_warp(threads: Threads) -> list[int]:
    return [min(WARP, threads.count - k) for k in range(0, threads.count, WARP)]


def _wait_inside(stmt: Stmt) -> bool:
    return any(waits(s) for b in bodies(stmt) for s in statements(b))


def _parts_at(stmt: Stmt, lanes: Lanes) -> bool:
    """Whether warps may have to wait at different places because of this statement."""
    if isinstance(stmt, If):
        return lanes.varies(stmt.cond) and _wait_inside(stmt)
    if isinstance(stmt, (For, Pipelined, While)):
        return lanes.divides(stmt) and (_wait_inside(stmt) or waits(stmt))
    if isinstance(stmt, (sync.MbarWait, SyncThreads)):
        return lanes.varies(*(e for e in stmt.children() if isinstance(e, Expr)), *_indices(stmt))
    return False


def _indices(stmt: Stmt) -> Iterator[Expr]:
    if isinstance(stmt, sync.MbarWait):
        yield from stmt.barrier.mins


def needs_agents(body: Block, threads: Threads) -> bool:
    """Whether a launch waits for anything but the end of its own statements."""
    for stmt in statements(body):
        if isinstance(stmt, SyncThreads) and stmt.barrier_id is not None:
            return True
        if type(stmt).__module__ == sync.__name__ and not isinstance(stmt, _NO_AGENT):
            return True
        if isinstance(stmt, While) and watches(stmt):
            return True
    return bool(parted(body, threads))
