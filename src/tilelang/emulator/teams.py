"""Which threads of a block part ways, as far as the program says so by their indices.

What enters: a launch. What leaves: the division of its threads into agents, each of which runs in
lockstep, and for every condition the threads that take it. A condition that whole warps decide
alike sends agents different ways; others are masks inside an agent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tilelang.emulator.lanes import Lanes, bodies, nodes_of, own_nodes, statements, written
from tilelang.ir import sync
from tilelang.ir.expr import (
    Buffer,
    Expr,
    Load,
    LoadVector,
    Var,
    const,
    int_value,
)
from tilelang.ir.node import Kind, Node, rewritten
from tilelang.ir.special import COLLECTIVES, Collective, Group, ReducerFinalize, ReducerInit
from tilelang.ir.sync import WARP
from tilelang.ir.tile import (
    Atomic,
    Block,
    Break,
    For,
    If,
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
from tilelang.passes.check.threads import TRUE, Threads, Truth

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


# -- division into agents --------------------------------------------------------------------------


@dataclass(frozen=True)
class Split:
    """The threads that can take a condition, and what is left of it (None: nothing)."""

    threads: Truth
    rest: Expr | None


def split(threads: Threads, cond: Expr, among: Truth) -> Split | None:
    """A condition among some threads; None where it says nothing about who they are."""
    taken = threads.can(cond) & among
    rest = threads.left(cond, taken)
    if rest == cond and (taken == among).all():
        return None
    return Split(taken, None if rest == TRUE else rest)


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
                if fragment and not any(threads.names_thread(i) for i in n.indices):
                    found.add(name)
                else:
                    shared.add(name)
        if isinstance(stmt, View):
            shared |= {stmt.buffer.name, stmt.source.name}
    return found - shared


def parted(body: Block, threads: Threads, among: Truth | None = None) -> dict[int, Split]:
    """The conditions that send whole warps different ways to what they do together or wait for;
    `among` are the threads that reach the statements.
    """
    here = threads.everyone() if among is None else among
    found: dict[int, Split] = {}
    for stmt in body:
        way, inner = _ways_into(stmt, threads, here)
        if way is not None:
            found[id(stmt)] = way
        for name, who in inner.items():
            found |= parted(getattr(stmt, name), threads, who)
    return found


def _ways_into(stmt: Stmt, threads: Threads, here: Truth) -> tuple[Split | None, dict[str, Truth]]:
    """Who gets into each body of a statement, by name, and the condition if it parts warps."""
    match stmt:
        case sync.WarpSpecialize():
            return None, {"body": here & threads.groups(stmt)}
        case If():
            way = split(threads, stmt.cond, here) if _divides(stmt) else None
            if way is None or not threads.whole(way.threads):
                return None, {"then": here, "orelse": here}
            others = here & threads.can(stmt.cond, holds=False)
            return way, {"then": way.threads, "orelse": others}
        case _:
            return None, dict.fromkeys(("body",) if bodies(stmt) else (), here)


def settled(body: Block, threads: Threads, among: Truth | None = None) -> Block:
    """Statements in which what is the same for all threads that get there is a constant, as the
    number of a warp group is where only that group is.
    """
    here = threads.everyone() if among is None else among
    return tuple(_settled(stmt, threads, here) for stmt in body)


def _settled(stmt: Stmt, threads: Threads, here: Truth) -> Stmt:
    way, inner = _ways_into(stmt, threads, here)
    changes: dict[str, Any] = {}
    for name, who in inner.items():
        old: Block = getattr(stmt, name)
        new = settled(old, threads, who)
        if any(a is not b for a, b in zip(new, old, strict=True)):
            changes[name] = new
    if way is None and not here.all():
        for f in stmt.fields():
            old = getattr(stmt, f.name)
            new = old
            if f.metadata["kind"] is Kind.OPERAND:
                new = rewritten(old, lambda n: _constant(n, threads, here))
            if new is not old:
                changes[f.name] = new
    return stmt.with_(**changes) if changes else stmt


def _constant(node: Node, threads: Threads, here: Truth) -> Node | None:
    if not isinstance(node, Expr) or not threads.names_thread(node):
        return None
    values = threads.values(node)
    mine = values[here] if values is not None else None
    if mine is None or not mine.size or (mine != mine[0]).any():
        return None
    return const(bool(mine[0]) if node.dtype.is_bool else int(mine[0]), node.dtype)


def _divides(stmt: If) -> bool:
    """Whether it matters to others which way a thread goes."""
    return any(waits(s) or of_team(s) for s in statements((*stmt.then, *stmt.orelse)))


def division(
    body: Block, threads: Threads, splits: dict[int, Split], lanes: Lanes, *, apart: bool = False
) -> list[int]:
    """The threads of each agent, in order: as few agents as the program's ways allow. With `apart`
    all conditions on threads count, not only those of threads that wait.
    """
    marks: list[Truth] = []
    everyone = threads.everyone()
    for stmt in statements(body):
        if isinstance(stmt, sync.WarpSpecialize):
            marks.append(threads.warps(threads.groups(stmt))[0])
        elif id(stmt) in splits:
            marks.append(threads.warps(splits[id(stmt)].threads)[0])
            rest = splits[id(stmt)].rest
            if rest is not None and lanes.varies(rest) and _wait_inside(stmt):
                return _every_warp(threads)
        elif _parts_at(stmt, lanes):
            way = split(threads, stmt.cond, everyone) if isinstance(stmt, If) else None
            if way is None:
                return _every_warp(threads)
            marks += threads.warps(way.threads)
        elif apart and isinstance(stmt, If):
            way = split(threads, stmt.cond, everyone)
            marks += [] if way is None else threads.warps(way.threads)
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
