"""Parts of a block that do something of their own: `T.ws`, and conditions that name warps.

What enters: a function of the tile stage. What leaves: one in which such a part is an `Arm`: a
range of threads and its statements. A condition on the thread index around operations of the block
names its threads if these are one range of whole warps (docs/decisions/0006-ranges-of-warps.md); it
is evaluated for every thread. Operations under any other condition that differs between threads are
refused. mbarriers become arrays of 64 bits, set up by the first thread before they are used.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from tilelang.dtypes import DType
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Const,
    Expr,
    Load,
    LoadVector,
    Region,
    Unary,
    UnaryOp,
    const,
)
from tilelang.ir.node import Node
from tilelang.ir.scales import ScaleCopy
from tilelang.ir.special import Collective, TestElements
from tilelang.ir.sync import (
    GROUP,
    AsyncCopy,
    AsyncGemm,
    AsyncUnit,
    ClcQuery,
    ClcTryCancel,
    ClusterBarrier,
    CopyCluster,
    CpAsyncArrive,
    Fence,
    LaunchDependency,
    MbarArrive,
    MbarExpectTx,
    MbarWait,
    MmaArrive,
    SyncGrid,
    SyncWarp,
    TmaCopy,
    TmaGather4,
    TmaScatter4,
    TmaStoreArrive,
    TmaStoreWait,
    WarpSpecialize,
)
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Atomic,
    Block,
    Copy,
    Fill,
    For,
    Function,
    If,
    Launch,
    Let,
    Parallel,
    Stmt,
    Store,
    StoreVector,
    SyncThreads,
    TileOp,
    While,
)
from tilelang.isa.target import Capability, Target
from tilelang.passes.build import Names, as_type, both, map_bodies, map_statements
from tilelang.passes.conflicts import Unknown, Values, number
from tilelang.passes.issue import Arm, Issue
from tilelang.passes.lower_copies import is_single, view_roots
from tilelang.passes.lower_parallel import blocks, own_nodes, statements
from tilelang.passes.simt.clusters import Clusters, is_remote, placement_key
from tilelang.passes.simt.explicit_copies import (
    COPIES,
    U64,
    ExplicitCopies,
    bits,
    expected_once,
)
from tilelang.passes.simt.launch import WARP, Note, Threads, noted, refused
from tilelang.passes.simt.registers import Registers
from tilelang.passes.varying import Varying
from tilelang.scopes import Memory

I32 = DType("int32")

_BARRIERS = (Memory.BARRIER, Memory.CLUSTER_BARRIER)

_DEPENDENCY = {"trigger": "launch_dependents", "sync": "wait"}

_FENCES: dict[str, tuple[str, Capability | None]] = {
    "proxy.async": ("fence.proxy.async", Capability.TMA),
    "mbarrier_init": ("fence.mbarrier_init", Capability.CLUSTER),
    "threadfence": ("fence.acq_rel.gpu", None),
}
"""Fences of the author's that are kept, and what they need; products have their own."""


def hands_over(body: Block) -> bool:
    """Whether statements wait for other threads, at mbarriers or for their registers, or let them
    go on. Beside a part of the block they are one too, which runs at the same time: no barrier of
    the block may stand between them.
    """
    steps = (MbarWait, MbarArrive, CpAsyncArrive)
    return any(
        isinstance(s, steps) or (isinstance(s, Annotate) and s.kind == "registers")
        for s in statements(body)
    )


def find_arms(fn: Function, target: Target) -> Function:
    """Parts of the block are `Arm`s; mbarriers are arrays with their instructions."""
    names, roots = Names(fn), view_roots(fn)
    notes: list[Note] = []

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch):
            return None
        threads = Threads(fn, stmt, names, roots)
        made = _Arms(threads, target)
        body = made.lower()
        notes.extend(threads.notes)
        counter = made.clusters.counter
        before = () if counter is None else (Alloc(counter, init=Const(0, counter.dtype)),)
        return (*before, stmt.with_(body=body))

    return noted(fn.with_(body=map_statements(fn.body, one)), notes)


class _Arms:
    """One launch."""

    def __init__(self, threads: Threads, target: Target) -> None:
        self.t = self.part = threads
        self.target = target
        self.clusters = Clusters(threads)
        self.copies = ExplicitCopies(threads, target, self.clusters)
        self.registers = Registers(threads, target)
        launch = threads.launch
        axes = list(zip(launch.thread_vars, threads.extents, strict=True))
        self.seeds = [v for v, n in axes if n > 1]
        self.varying = self.varies(launch.body)
        self.apart: bool = False
        self.by_hand = uses_alone(launch.body, threads)
        flat = np.arange(threads.count)
        self.values: dict[str, np.ndarray] = {}
        for v, n in axes:
            self.values[v.name] = flat % n
            flat = flat // n

    def lower(self) -> Block:
        """The body of the launch."""
        body = self.registers.kept(self.block(self.t.launch.body, ()))
        body = own_fragments(joined(body), self.t)
        for name, found in self.copies.chosen.items():
            other = self.clusters.placed.get(name)
            if other is not None and placement_key(other) != found.placement.key():
                raise refused(found.tile, f"moving {name} both by rows and as a tile")
        before = (*self.copies.before(), *self.clusters.before())
        return (*before, *body, *self.copies.after(), *self.clusters.after())

    def arm(self, body: Block, first: int, count: int, stmt: Stmt) -> Arm:
        """Statements of a range of threads."""
        outside = self.part, self.varying
        theirs = self.varies(self.seen_by(self.t.launch.body, slice(first, first + count)))
        self.part, self.varying = self.t.arm(first, count, 0), theirs.within(body)
        made = self.block(body, ())
        self.part, self.varying = outside
        return Arm(made, first, count, loc=stmt.loc)

    def varies(self, body: Block) -> Varying:
        """What differs between threads that go through these statements."""
        return Varying(body, self.seeds, self.t.is_private, self.t.roots)

    def seen_by(self, body: Block, threads: slice) -> Block:
        """What is left of statements for some threads: no part that they all pass by, and what
        stands in the parts that they all take.
        """
        values = {name: v[threads] for name, v in self.values.items()}

        def one(stmt: Stmt) -> Block | None:
            if not isinstance(stmt, If):
                return None
            try:
                holds = number(stmt.cond, values)
            except Unknown:
                return None
            return stmt.then if np.all(holds) else None if np.any(holds) else stmt.orelse

        return map_statements(body, one)

    def elected(self, stmt: Collective) -> Block:
        """One of so many threads, which a condition may name."""
        each = max(stmt.params[0] // WARP, 1) * WARP
        threads = np.arange(self.t.count) - self.part.base
        self.values[stmt.result.name] = threads % each == 0
        return (stmt,)

    def block(self, body: Block, conditions: tuple[Expr, ...]) -> Block:
        """Statements under conditions on the thread index; mbarriers that are allocated together
        are set up together.
        """
        out: list[Stmt] = []
        new: list[Alloc] = []
        for s in body:
            if isinstance(s, Alloc) and self.t.memory(s.buffer) in _BARRIERS:
                new.append(s)
                continue
            if new and not isinstance(s, Alloc):
                out += self.barriers(new)
                new = []
            out += self.statement(s, conditions)
        return expected_once((*out, *self.barriers(new)))

    def statement(self, stmt: Stmt, conditions: tuple[Expr, ...]) -> Block:
        """One statement."""
        made: Block
        meet: Block = (SyncWarp(loc=stmt.loc),) if self.hands_on(stmt, conditions) else ()
        match stmt:
            case WarpSpecialize():
                made = (self.specialized(stmt),)
            case If() if self.varying.node(stmt.cond) and self.meets(stmt):
                made = self.branch(stmt, conditions)
            case For() | While() if self.differs(stmt) and self.meets(stmt):
                raise refused(
                    stmt, "an operation of the block in a loop whose rounds differ between threads"
                )
            case Collective(fn="elect"):
                made = self.elected(stmt)
            case Let():
                with contextlib.suppress(Unknown):  # what is no number of the thread alone
                    value = number(stmt.value, self.values)
                    self.values[stmt.var.name] = np.broadcast_to(value, (self.t.count,))
                made = (stmt,)
            case _:
                own = self.asynchronous(stmt)
                made = (self.inside(stmt, conditions),) if own is None else own
        return (*meet, *made)

    def inside(self, stmt: Stmt, conditions: tuple[Expr, ...]) -> Stmt:
        """A statement with what is in its bodies."""
        before = self.apart
        if isinstance(stmt, (For, While)):
            self.apart = before or self.differs(stmt)
        elif isinstance(stmt, If):
            self.apart = before or not self.are_warps((stmt.cond,))
        made = map_bodies(stmt, lambda b: self.block(b, conditions))
        self.apart = before
        return made

    def hands_on(self, stmt: Stmt, conditions: tuple[Expr, ...]) -> bool:
        """Whether a part of a warp arrives for all of it, after all have used shared memory by
        themselves: they meet before, which orders what they did.
        """
        return (
            isinstance(stmt, If)
            and self.by_hand
            and not self.apart
            and any(isinstance(s, MbarArrive) for s in statements((stmt,)))
            and self.are_warps(conditions)
            and not self.are_warps((*conditions, stmt.cond))
        )

    def are_warps(self, conditions: Sequence[Expr]) -> bool:
        """Whether conditions are known to be the same for the threads of each warp."""
        if not any(self.varying.node(c) for c in conditions):
            return self.part.count % WARP == 0
        try:
            holds = np.broadcast_to(number(both(conditions), self.values), (self.t.count,))
        except Unknown:
            return False
        mine = holds[self.part.base :][: self.part.count]
        if mine.size % WARP:
            return False
        rows = mine.reshape(-1, WARP)
        return bool((rows == rows[:, :1]).all())

    def asynchronous(self, stmt: Stmt) -> Block | None:
        """What the author waits for, or moves between warpgroups; None for other statements."""
        made: Block | None = None
        match stmt:
            case MbarArrive() | MbarExpectTx() | MbarWait():
                made = (self.step(stmt),)
            case CpAsyncArrive():
                # The fence is for copies that are plain stores, which the arrival does not order.
                bar = bits(stmt.barrier)
                fence = Issue("fence.acq_rel.cta", (), (), loc=stmt.loc)
                arrive = Issue("cp.async.mbarrier.arrive.noinc", (bar,), (), loc=stmt.loc)
                made = (fence, arrive)
            case TmaCopy():
                made = self.copies.lower(stmt, self.part)
            case TmaGather4() | TmaScatter4():
                made = self.copies.rows(stmt, self.part)
            case TmaStoreArrive() | TmaStoreWait() | Fence() | LaunchDependency():
                made = self.issued(stmt)
            case AsyncGemm(barrier=Region() as barrier) | MmaArrive(barrier=barrier):
                made = (stmt.with_(barrier=bits(barrier)),)
            case Annotate(kind="registers"):
                made = self.registers.asked(stmt, self.part)
            case _:
                made = self.of_cluster(stmt)
        return made

    def of_cluster(self, stmt: Stmt) -> Block | None:
        """What blocks do together, or ask for; None for other statements."""
        match stmt:
            case ClusterBarrier():
                made = self.clusters.barrier(stmt)
            case ClcTryCancel():
                made = self.clusters.try_cancel(stmt, bits(stmt.barrier))
            case ClcQuery():
                made = self.clusters.query(stmt)
            case SyncGrid():
                made = self.clusters.grid(stmt, self.part)
            case CopyCluster():
                at = None if stmt.remote_barrier is None else bits(stmt.remote_barrier)
                made = self.clusters.copy(stmt, at, self.part)
            case _:
                made = None
        return made

    def differs(self, stmt: For | While) -> bool:
        """Whether threads may go through different rounds of a loop."""
        heads = (stmt.cond,) if isinstance(stmt, While) else (stmt.start, stmt.stop)
        return self.varying.node(*heads) or self.varying.leaves_apart(stmt.body)

    def meets(self, stmt: Stmt, *, but_issued: bool = False) -> bool:
        """Whether threads do something together inside a statement; with `but_issued`, something
        that is not only issued by the first of them.
        """
        for s in statements((stmt,)):
            if but_issued and _is_issued(s):
                continue
            if isinstance(s, (Parallel, SyncThreads, TestElements)):
                return True
            if isinstance(s, Atomic) and is_single(s.dst) and isinstance(s.value, Expr):
                continue
            if isinstance(s, (Copy, Fill, AsyncCopy)) and self.varying.node(*s.children()):
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
        return self.arm(stmt.body, first * GROUP, (last - first + 1) * GROUP, stmt)

    def branch(self, stmt: If, conditions: tuple[Expr, ...]) -> Block:
        """A condition that names the threads of the operations under it."""
        stmt = self.parted(stmt, conditions)
        out: list[Stmt] = []
        negated = Unary(UnaryOp.NOT, stmt.cond)
        for cond, body in ((stmt.cond, stmt.then), (negated, stmt.orelse)):
            if not body:
                continue
            inside = (*conditions, cond)
            if not any(self.meets(s) for s in body) and not hands_over(body):
                out.append(If(cond, self.block(body, inside), loc=stmt.loc))
                continue
            nested = len(body) == 1 and isinstance(body[0], If) and self.varying.node(body[0].cond)
            if nested:
                out += self.branch(cast("If", body[0]), inside)
                continue
            alone = not any(self.meets(s, but_issued=True) for s in body)
            if not any(self.meets(s) for s in body) and not self.is_range(inside):
                out.append(If(cond, self.block(body, inside), loc=stmt.loc))
                continue
            first, count = self.range(inside, stmt, alone=alone)
            if self.part is self.t:
                out.append(self.arm(body, first, count, stmt))
            else:
                out += self.in_part(If(both(inside), body, loc=stmt.loc), first, count)
        return tuple(out)

    def in_part(self, stmt: If, first: int, count: int) -> Block:
        """What some threads of a part of the block do under a condition: all of them, or one that
        issues tensor copies.
        """
        if count == self.part.count:
            return self.block(stmt.then, ())
        issued = [s for s in statements(stmt.then) if _is_issued(s)]
        if count > 1 or not all(isinstance(s, COPIES) for s in issued):
            raise refused(stmt, "an operation by some threads of a part of the block")
        whole, self.part = self.part, self.t.arm(first, 1, 0)
        made = self.block(stmt.then, ())
        self.part = whole
        if any(isinstance(s, TileOp) for s in statements(made)):
            raise refused(
                stmt, "a copy by one thread of a part of the block, without tensor copies,"
            )
        return (stmt.with_(then=made),)

    def parted(self, stmt: If, conditions: tuple[Expr, ...]) -> If:
        """A condition on threads, with what is the same for all of the block inside of it."""
        parts = list(_conjuncts(stmt.cond))
        same = [c for c in parts if not self.varying.node(c)]
        own = [c for c in parts if self.varying.node(c)]
        if not same or not own or not self.skips(stmt.orelse, (*conditions, *own)):
            return stmt
        return stmt.with_(cond=both(own), then=(If(both(same), stmt.then, loc=stmt.loc),))

    def skips(self, body: Block, conditions: tuple[Expr, ...]) -> bool:
        """Whether the threads for which conditions hold do nothing of these statements."""
        for s in body:
            if not isinstance(s, If):
                return False
            try:
                holds = np.any(number(both((*conditions, s.cond)), self.values))
            except Unknown:
                return False
            if holds or not self.skips(s.orelse, conditions):
                return False
        return True

    def threads(self, conditions: Sequence[Expr]) -> Values:
        """The threads of the part for which conditions hold; raises where that is not known."""
        holds = np.broadcast_to(number(both(conditions), self.values), (self.t.count,))
        found = np.flatnonzero(holds)
        base = self.part.base
        return found[(found >= base) & (found < base + self.part.count)]

    def is_range(self, conditions: Sequence[Expr]) -> bool:
        """Whether conditions hold for one range of whole warps."""
        try:
            found = self.threads(conditions)
        except Unknown:
            return False
        whole = found.size and not (found[0] % WARP or found.size % WARP)
        return bool(whole) and int(found[-1] - found[0]) + 1 == found.size

    def range(self, conditions: Sequence[Expr], stmt: Stmt, *, alone: bool) -> tuple[int, int]:
        """The threads for which conditions hold, if these are one range of whole warps, or one
        thread and `alone`.
        """
        try:
            found = self.threads(conditions)
        except Unknown:
            raise refused(stmt, "an operation of the block under a condition of values") from None
        if alone and found.size == 1:
            return int(found[0]), 1
        whole = found.size and not (found[0] % WARP or found.size % WARP)
        if not whole or found[-1] - found[0] + 1 != found.size:
            raise refused(stmt, "an operation of the block by threads that are no range of warps")
        return int(found[0]), int(found.size)

    # mbarriers -----------------------------------------------------------------------------------

    def barriers(self, new: Sequence[Alloc]) -> Block:
        """Storage for mbarriers, and what sets them up."""
        if not new:
            return ()
        buffers = [s.buffer.with_(type=U64, scope="shared.dyn") for s in new]
        steps = [
            Issue("mbarrier.init", (_one(b, const(k)),), (const(count),), loc=s.loc)
            for s, b in zip(new, buffers, strict=True)
            for k, count in enumerate(s.arrive_counts)
        ]
        fence = Issue("fence.mbarrier_init", (), (), loc=new[0].loc)
        return (
            *(Alloc(b, loc=s.loc) for s, b in zip(new, buffers, strict=True)),
            If(self.t.first(), (*steps, fence), loc=new[0].loc),
            *self.clusters.begun(new[0]),
        )

    def step(self, stmt: MbarArrive | MbarExpectTx | MbarWait) -> Stmt:
        """An arrival or wait by each thread that gets there."""
        at = bits(stmt.barrier)
        if isinstance(stmt, MbarWait):
            row = "mbarrier.try_wait.parity" + ".cluster" * is_remote(self.t, stmt.barrier)
            return Issue(row, (), (at, as_type(stmt.parity, I32)), loc=stmt.loc)
        if isinstance(stmt, MbarExpectTx):
            size = as_type(stmt.tx_bytes, I32)
            return Issue("mbarrier.expect_tx", (at,), (size,), loc=stmt.loc)
        if stmt.cta is not None and not self.clusters.alone:
            return self.clusters.arrive(stmt, at)
        if stmt.tx_bytes is not None:
            size = as_type(stmt.tx_bytes, I32)
            return Issue("mbarrier.arrive.expect_tx", (at,), (size,), loc=stmt.loc)
        return Issue("mbarrier.arrive", (at,), (), loc=stmt.loc)

    def issued(self, stmt: TmaStoreArrive | TmaStoreWait | Fence | LaunchDependency) -> Block:
        """A step of each thread by itself, if the chip has it; others have nothing to wait for."""
        imm: tuple[tuple[str, int], ...] = ()
        needs: Capability | None = Capability.TMA
        match stmt:
            case TmaStoreArrive():
                row = "cp.async.bulk.commit_group"
            case TmaStoreWait():
                row = "cp.async.bulk.wait_group" + (".read" if stmt.read else "")
                imm = (("count", stmt.count),)
            case LaunchDependency():
                needs = Capability.CLUSTER
                row = f"griddepcontrol.{_DEPENDENCY[stmt.step]}"
            case Fence():
                row, needs = _FENCES.get(stmt.kind, ("", None))
        if not row or (needs is not None and not self.target.supports(needs)):
            return ()
        return (Issue(row, (), (), imm=imm, loc=stmt.loc),)


def joined(body: Block) -> Block:
    """The body, with parts of the same threads as one where nothing stands between them but parts
    of other threads, which run at the same time.
    """
    out: list[Stmt] = []
    run = 0
    for stmt in body:
        made = map_bodies(stmt, joined)
        if not isinstance(made, Arm):
            run = len(out) + 1
        met = [k for k in range(run, len(out)) if share_threads(out[k], made)]
        last = out[met[-1]] if met else None
        if isinstance(last, Arm) and isinstance(made, Arm) and _same_threads(last, made):
            out[met[-1]] = last.with_(body=(*last.body, *made.body))
            continue
        out.append(made)
    return tuple(out)


def _same_threads(a: Arm, b: Arm) -> bool:
    return (a.first, a.count) == (b.first, b.count)


def share_threads(a: Stmt, b: Stmt) -> bool:
    """Whether two parts of the block have threads in common."""
    if not (isinstance(a, Arm) and isinstance(b, Arm)):
        return False
    return a.first < b.first + b.count and b.first < a.first + a.count


def own_fragments(body: Block, t: Threads) -> Block:
    """The body, with a fragment for each range of threads where several ranges use one and the
    block as a whole does not: each has it in registers of its own.
    """
    arms = [s for s in statements(body) if isinstance(s, Arm)]
    whole = used_in(map_statements(body, lambda s: () if isinstance(s, (Arm, Alloc)) else None))
    new: dict[str, dict[tuple[int, int], Buffer]] = {}
    for s in statements(body):
        if not (isinstance(s, Alloc) and t.is_fragment(s.buffer)) or s.buffer.name in whole:
            continue
        name = s.buffer.name
        ranges = sorted({(a.first, a.count) for a in arms if name in used_in(a.body)})
        if len(ranges) > 1 and all(a + n <= b for (a, n), (b, _) in itertools.pairwise(ranges)):
            more = {r: s.buffer.with_(name=t.names.name(name)) for r in ranges[1:]}
            new[name] = {ranges[0]: s.buffer, **more}

    def one(s: Stmt) -> Block | None:
        if isinstance(s, Alloc) and s.buffer.name in new:
            return tuple(s.with_(buffer=b) for b in new[s.buffer.name].values())
        if isinstance(s, Arm):
            mine = {name: of.get((s.first, s.count)) for name, of in new.items()}
            return (s.rewrite(lambda n: mine.get(n.name) if isinstance(n, Buffer) else None),)
        return None

    return map_statements(body, one) if new else body


def _conjuncts(e: Expr) -> Iterator[Expr]:
    """The conditions that make up one."""
    if isinstance(e, Binary) and e.op is BinaryOp.AND:
        yield from _conjuncts(e.a)
        yield from _conjuncts(e.b)
    else:
        yield e


def uses_alone(body: Block, t: Threads) -> bool:
    """Whether threads use elements of shared memory each for itself."""
    return any(
        isinstance(n, (Load, LoadVector, Store, StoreVector))
        and t.memory(n.buffer) is Memory.SHARED
        for s in body
        if not isinstance(s, (TileOp, Parallel))
        for n in (s, *own_nodes(s))
    ) or any(uses_alone(b, t) for s in body if not isinstance(s, Parallel) for b in blocks(s))


def _is_issued(stmt: Stmt) -> bool:
    """Whether the first of several threads issues an operation for all."""
    return isinstance(stmt, (MmaArrive, TmaCopy, TmaGather4, TmaScatter4, ScaleCopy)) or (
        isinstance(stmt, AsyncGemm) and stmt.unit is AsyncUnit.TCGEN05
    )


def _one(buffer: Buffer, index: Expr) -> Region:
    return Region(buffer, (index,), (const(1),))


def used_in(body: Block) -> set[str]:
    """The buffers that statements use, those that they only allocate left out."""

    def names(node: Node) -> set[str]:
        return {n.name for n in node.walk() if isinstance(n, Buffer)}

    return {name for s in body for name in names(s)}
