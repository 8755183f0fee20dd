"""Parts of a block that do something of their own: `T.ws`, and conditions that name warps.

What enters: a function of the tile stage. What leaves: one in which such a part is an `Arm`: a
range of threads and its statements. A condition on the thread index around operations of the block
names its threads if these are one range of whole warps (docs/decisions/0006-ranges-of-warps.md); it
is evaluated for every thread. Operations under any other condition that differs between threads are
refused. mbarriers become arrays of 64 bits, set up by the first thread before they are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from tilelang.dtypes import DType
from tilelang.ir.expr import Buffer, Expr, Region, Unary, UnaryOp, const
from tilelang.ir.node import Node
from tilelang.ir.special import TestElements
from tilelang.ir.sync import (
    GROUP,
    AsyncGemm,
    AsyncUnit,
    CpAsyncArrive,
    MbarArrive,
    MbarExpectTx,
    MbarWait,
    MmaArrive,
    TmaCopy,
    WarpSpecialize,
)
from tilelang.ir.tile import (
    Alloc,
    Atomic,
    Block,
    Copy,
    Fill,
    For,
    Function,
    If,
    Launch,
    Parallel,
    Stmt,
    SyncThreads,
    TileOp,
    While,
)
from tilelang.isa.target import Target
from tilelang.passes.build import Names, as_type, both, map_bodies, map_statements
from tilelang.passes.issue import Arm, Issue
from tilelang.passes.lower_copies import is_single, view_roots
from tilelang.passes.lower_parallel import statements
from tilelang.passes.simt.conflicts import Unknown, number
from tilelang.passes.simt.launch import WARP, Note, Threads, noted, refused
from tilelang.passes.varying import Varying
from tilelang.scopes import Memory

U64, I32 = DType("uint64"), DType("int32")


def find_arms(fn: Function, target: Target) -> Function:
    """Parts of the block are `Arm`s; mbarriers are arrays with their instructions."""
    del target
    names, roots = Names(fn), view_roots(fn)
    notes: list[Note] = []

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch):
            return None
        threads = Threads(fn, stmt, names, roots)
        body = _Arms(threads).block(stmt.body, ())
        notes.extend(threads.notes)
        return (stmt.with_(body=body),)

    return noted(fn.with_(body=map_statements(fn.body, one)), notes)


class _Arms:
    """One launch."""

    def __init__(self, threads: Threads) -> None:
        self.t = threads
        launch = threads.launch
        axes = list(zip(launch.thread_vars, threads.extents, strict=True))
        seeds = [v for v, n in axes if n > 1]
        self.varying = Varying(launch.body, seeds, threads.is_private, threads.roots)
        flat = np.arange(threads.count)
        self.values: dict[str, np.ndarray] = {}
        for v, n in axes:
            self.values[v.name] = flat % n
            flat = flat // n

    def block(self, body: Block, conditions: tuple[Expr, ...]) -> Block:
        """Statements under conditions on the thread index."""
        return tuple(x for s in body for x in self.statement(s, conditions))

    def statement(self, stmt: Stmt, conditions: tuple[Expr, ...]) -> Block:
        """One statement."""
        made: Block
        match stmt:
            case WarpSpecialize():
                made = (self.specialized(stmt),)
            case If() if self.varying.node(stmt.cond) and self.meets(stmt):
                made = self.branch(stmt, conditions)
            case For() | While() if self.differs(stmt) and self.meets(stmt):
                raise refused(
                    stmt, "an operation of the block in a loop whose rounds differ between threads"
                )
            case Alloc() if self.t.memory(stmt.buffer) is Memory.BARRIER:
                made = self.barriers(stmt)
            case MbarArrive() | MbarExpectTx() | MbarWait():
                made = (self.step(stmt),)
            case TmaCopy():
                made = self.tensor_copy(stmt)
            case AsyncGemm(barrier=Region() as barrier) | MmaArrive(barrier=barrier):
                made = (stmt.with_(barrier=barrier.with_(buffer=_bits(barrier.buffer))),)
            case CpAsyncArrive():
                raise refused(stmt, f"T.{type(stmt).__name__}")
            case _:
                made = (map_bodies(stmt, lambda b: self.block(b, conditions)),)
        return made

    def differs(self, stmt: For | While) -> bool:
        """Whether threads may go through different rounds of a loop."""
        heads = (stmt.cond,) if isinstance(stmt, While) else (stmt.start, stmt.stop)
        return self.varying.node(*heads) or self.varying.leaves_apart(stmt.body)

    def meets(self, stmt: Stmt) -> bool:
        """Whether threads do something together inside a statement."""
        for s in statements((stmt,)):
            if isinstance(s, (Parallel, SyncThreads, TestElements)):
                return True
            if isinstance(s, Atomic) and is_single(s.dst) and isinstance(s.value, Expr):
                continue
            if isinstance(s, (Copy, Fill)) and self.varying.node(*s.children()):
                continue  # each thread for itself
            if isinstance(s, (TileOp, MmaArrive)):
                return True
        return False

    # Ranges --------------------------------------------------------------------------------------

    def specialized(self, stmt: WarpSpecialize) -> Stmt:
        """An arm of `T.ws`."""
        first, last = min(stmt.groups), max(stmt.groups)
        if len(set(stmt.groups)) != last - first + 1:
            raise refused(
                stmt, f"T.ws of the groups {stmt.groups}, which do not follow each other,"
            )
        if (last + 1) * GROUP > self.t.count:
            raise refused(stmt, f"T.ws of a group that a block of {self.t.count} threads has not")
        body = self.block(stmt.body, ())
        return Arm(body, first * GROUP, (last - first + 1) * GROUP, loc=stmt.loc)

    def branch(self, stmt: If, conditions: tuple[Expr, ...]) -> Block:
        """A condition that names the threads of the operations under it."""
        out: list[Stmt] = []
        negated = Unary(UnaryOp.NOT, stmt.cond)
        for cond, body in ((stmt.cond, stmt.then), (negated, stmt.orelse)):
            if not body:
                continue
            inside = (*conditions, cond)
            if not any(self.meets(s) for s in body):
                out.append(If(cond, self.block(body, inside), loc=stmt.loc))
                continue
            nested = len(body) == 1 and isinstance(body[0], If) and self.varying.node(body[0].cond)
            if nested:
                out += self.branch(cast("If", body[0]), inside)
                continue
            first, count = self.range(inside, stmt, alone=self.issues(body))
            out.append(Arm(self.block(body, ()), first, count, loc=stmt.loc))
        return tuple(out)

    def issues(self, body: Block) -> bool:
        """Whether what threads do together there is only issued, by the first of them."""
        own = [
            s
            for s in body
            if not isinstance(s, MmaArrive)
            and not (isinstance(s, AsyncGemm) and s.unit is AsyncUnit.TCGEN05)
        ]
        return len(own) < len(body) and not any(self.meets(s) for s in own)

    def range(self, conditions: Sequence[Expr], stmt: Stmt, *, alone: bool) -> tuple[int, int]:
        """The threads for which conditions hold, if these are one range of whole warps, or one
        thread and `alone`.
        """
        try:
            holds = np.broadcast_to(number(both(conditions), self.values), (self.t.count,))
        except Unknown:
            raise refused(stmt, "an operation of the block under a condition of values") from None
        found = np.flatnonzero(holds)
        if alone and found.size == 1:
            return int(found[0]), 1
        whole = found.size and not (found[0] % WARP or found.size % WARP)
        if not whole or found[-1] - found[0] + 1 != found.size:
            raise refused(stmt, "an operation of the block by threads that are no range of warps")
        return int(found[0]), int(found.size)

    # mbarriers -----------------------------------------------------------------------------------

    def barriers(self, stmt: Alloc) -> Block:
        """Storage for mbarriers, and what sets them up."""
        buffer = _bits(stmt.buffer)
        steps = tuple(
            Issue("mbarrier.init", (_one(buffer, const(k)),), (const(count),), loc=stmt.loc)
            for k, count in enumerate(stmt.arrive_counts)
        )
        fence = Issue("fence.mbarrier_init", (), (), loc=stmt.loc)
        return (
            Alloc(buffer, loc=stmt.loc),
            If(self.t.first(), (*steps, fence), loc=stmt.loc),
            SyncThreads(loc=stmt.loc),
        )

    def step(self, stmt: MbarArrive | MbarExpectTx | MbarWait) -> Stmt:
        """An arrival or wait by each thread that gets there."""
        at = stmt.barrier.with_(buffer=_bits(stmt.barrier.buffer))
        if isinstance(stmt, MbarWait):
            parity = as_type(stmt.parity, I32)
            return Issue("mbarrier.try_wait.parity", (), (at, parity), loc=stmt.loc)
        if isinstance(stmt, MbarExpectTx) or stmt.tx_bytes is not None:
            raise refused(stmt, "counting the bytes of an mbarrier by hand")
        if stmt.cta is not None:
            raise refused(stmt, "an arrival at an mbarrier of another block")
        return Issue("mbarrier.arrive", (at,), (), loc=stmt.loc)

    def tensor_copy(self, stmt: TmaCopy) -> Block:
        """A copy that completes on an mbarrier, made by the threads that get there: after it they
        meet, so that any of them may arrive for all, and what they wrote is ordered before what
        the units of the chip read.
        """
        if stmt.cluster_mask:
            raise refused(stmt, "T.tma_copy to other blocks of a cluster")
        self.t.note("declined", "T.tma_copy is done by the threads that issue it", stmt.loc)
        return (
            Copy(stmt.src, stmt.dst, loc=stmt.loc),
            Issue("fence.proxy.async", (), (), loc=stmt.loc),
            SyncThreads(loc=stmt.loc),
        )


def _bits(buffer: Buffer) -> Buffer:
    return buffer.with_(type=U64, scope="shared.dyn")


def _one(buffer: Buffer, index: Expr) -> Region:
    return Region(buffer, (index,), (const(1),))


def used_in(body: Block) -> set[str]:
    """The buffers that statements use, those that they only allocate left out."""

    def names(node: Node) -> set[str]:
        return {n.name for n in node.walk() if isinstance(n, Buffer)}

    return {name for s in body for name in names(s)}
