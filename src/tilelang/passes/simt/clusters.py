"""What the blocks of a cluster do together, and all blocks of a launch.

What enters: barriers of a cluster and of the grid, arrivals at mbarriers of other blocks, copies
into their shared memory. What leaves: the instructions. Memory of another block is reached through
an address in the cluster's window (PTX ISA, "mapa"), so copies into it are nests like others; those
that complete on a barrier of the receiver are bulk copies where their bytes lie in one piece. No
block of a cluster begins before the mbarriers of all are set up, or ends while others may still
reach it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from tilelang.dtypes import DType
from tilelang.ir.expr import (
    AtomicLoad,
    Binary,
    BinaryOp,
    Buffer,
    Expr,
    Load,
    LoadVector,
    Region,
    Var,
    const,
    int_value,
)
from tilelang.ir.special import MakeTensor
from tilelang.ir.sync import (
    AsyncGemm,
    ClcQuery,
    ClcTryCancel,
    ClusterBarrier,
    ClusterStep,
    CopyCluster,
    MbarArrive,
    SyncGrid,
    TmaCopy,
)
from tilelang.ir.tile import (
    Annotate,
    Block,
    Copy,
    For,
    Gemm,
    If,
    Let,
    Pipelined,
    Stmt,
    SyncThreads,
)
from tilelang.passes.build import as_type, compare, plus, static_extents, times, whole
from tilelang.passes.issue import FED, PLACEMENT, Issue
from tilelang.passes.lower_parallel import statements
from tilelang.passes.simt.launch import Threads, refused, static_shape
from tilelang.passes.simt.tensor_copies import tile_placement
from tilelang.scopes import Memory

I32, U32, U64 = DType("int32"), DType("uint32"), DType("uint64")

GROUP = 16
"""Bytes: what a bulk copy moves multiples of."""

_STEPS = {
    ClusterStep.SYNC: ("barrier.cluster.arrive", "barrier.cluster.wait"),
    ClusterStep.ARRIVE: ("barrier.cluster.arrive",),
    ClusterStep.ARRIVE_RELAXED: ("barrier.cluster.arrive.relaxed",),
    ClusterStep.WAIT: ("barrier.cluster.wait",),
}


class Clusters:
    """The clusters of one launch."""

    def __init__(self, t: Threads) -> None:
        self.t = t
        self.dims = t.launch.cluster
        self.size = math.prod(self.dims)
        self.reached = False
        self.multiplied = {
            r.buffer.name
            for s in statements(t.launch.body)
            if isinstance(s, (Gemm, AsyncGemm))
            for r in (s.a, s.b)
        }
        body = t.launch.body
        self.lets = {s.var.name: s.value for s in statements(body) if isinstance(s, Let)}
        blocks = {v.name for v in t.launch.vars} | set(self.lets)
        threads = {v.name for v, n in zip(t.launch.thread_vars, t.extents, strict=True) if n > 1}
        self.own = threads | {
            s.var.name
            for s in statements(body)
            if isinstance(s, (For, Pipelined))
            and any(isinstance(n, Var) and n.name in blocks for n in s.start.walk())
        }
        self.placed: dict[str, Buffer] = {}
        self.answers: dict[str, Buffer] = {}
        self.counter: Buffer | None = None

    @property
    def alone(self) -> bool:
        """Whether a cluster has one block."""
        return self.size == 1

    def rank(self) -> Expr:
        """The rank of the block in its cluster, x fastest."""
        total: Expr = const(0)
        stride = 1
        for var, size in zip(self.t.launch.vars, self.dims, strict=False):
            if size > 1:
                within = Binary(BinaryOp.FLOORMOD, as_type(var, I32), const(size))
                total = plus(total, times(within, stride))
            stride *= size
        return total

    def leader(self) -> Expr:
        """The rank of the first block of the pair that the block is of."""
        if self.size == 2:
            return const(0)
        return times(Binary(BinaryOp.FLOORDIV, self.rank(), const(2)), 2)

    # The launch ----------------------------------------------------------------------------------

    def begun(self, stmt: Stmt) -> Block:
        """All know that mbarriers are set up: the block, and the cluster if there is one."""
        if self.alone:
            return (SyncThreads(loc=stmt.loc),)
        self.reached = True
        return self.step(ClusterStep.SYNC, stmt)

    def step(self, step: ClusterStep, stmt: Stmt | None) -> Block:
        """A step at the barrier of the cluster."""
        loc = None if stmt is None else stmt.loc
        return tuple(Issue(row, (), (), loc=loc) for row in _STEPS[step])

    def before(self) -> Iterator[Stmt]:
        """How tiles lie that bytes are copied into as they are, and what the async proxy writes."""
        for buffer in self.placed.values():
            yield from _lies(buffer)
        if self.answers:
            yield Annotate(FED, buffers=tuple(self.answers.values()))

    def after(self) -> Block:
        """A block stays while others may reach it."""
        return self.step(ClusterStep.SYNC, None) if self.reached else ()

    # Barriers ------------------------------------------------------------------------------------

    def barrier(self, stmt: ClusterBarrier) -> Block:
        """A step that the author wrote."""
        return self.step(stmt.step, stmt)

    def grid(self, stmt: SyncGrid, part: Threads) -> Block:
        """All threads of the launch meet, at a counter that a call has for itself."""
        if part.count != self.t.count:
            raise refused(stmt, "T.sync_grid by a part of the block")
        if self.counter is None:
            self.counter = self.t.names.buffer("met", U32, (1,), "global")
        return (Issue("grid.sync", (whole(self.counter),), (), loc=stmt.loc),)

    def arrive(self, stmt: MbarArrive, at: Region) -> Stmt:
        """An arrival at the mbarrier of another block."""
        assert stmt.cta is not None
        self.reached = True
        cta = as_type(stmt.cta, I32)
        if stmt.tx_bytes is None:
            return Issue("mbarrier.arrive.cluster", (at,), (cta,), loc=stmt.loc)
        ins = (as_type(stmt.tx_bytes, I32), cta)
        return Issue("mbarrier.arrive.expect_tx.cluster", (at,), ins, loc=stmt.loc)

    def try_cancel(self, stmt: ClcTryCancel, at: Region) -> Block:
        """A request for a cluster that has not begun; `at` is the mbarrier of the answer."""
        self.reached |= stmt.multicast and not self.alone
        self.answers[stmt.response.buffer.name] = stmt.response.buffer
        row = f"clusterlaunchcontrol.try_cancel{'.multicast' * stmt.multicast}"
        return (Issue(row, (stmt.response, at), (), loc=stmt.loc),)

    def query(self, stmt: ClcQuery) -> Block:
        """What an answer says, by each thread that gets here."""
        row = f"clusterlaunchcontrol.query_cancel.{stmt.part}"
        return (Issue(row, (), (stmt.response,), results=(stmt.result,), loc=stmt.loc),)

    # Copies --------------------------------------------------------------------------------------

    def copy(self, stmt: CopyCluster, at: Region | None, part: Threads) -> Block:
        """A copy into the shared memory of another block; `at` is the barrier there."""
        if stmt.dst_block is None:
            return self.to_several(stmt)
        if self.t.roots.keys() & {stmt.src.buffer.name, stmt.dst.buffer.name}:
            raise refused(stmt, "T.copy_cluster of a view")
        self.reached = True
        cta = as_type(stmt.dst_block, I32)
        if at is not None and self.in_one_piece(stmt):
            return self.bulk(stmt, at, cta, part)
        out = self.by_threads(stmt, cta)
        if at is not None:
            arrive = Issue("mbarrier.arrive.cluster", (at,), (cta,), loc=stmt.loc)
            out = (*out, *self.led(part, (arrive,), stmt))
        return out

    def to_several(self, stmt: CopyCluster | TmaCopy) -> Block:
        """A tile of the first block of a mask for all of them: each loads for itself what the first
        one would, which depends on nothing but where that block is.
        """
        mask = stmt.cluster_mask
        own = Copy(stmt.src, stmt.dst, loc=stmt.loc)
        if self.alone or mask.bit_count() < 2:
            return (own,)
        first = (mask & -mask).bit_length() - 1
        src = stmt.src.with_(mins=tuple(self.seen_by(first, m, stmt) for m in stmt.src.mins))
        self.t.note("declined", "each block of a cluster loads the tile for itself", stmt.loc)
        theirs = Copy(src, stmt.dst, loc=stmt.loc)
        return (If(self.is_named(mask), (theirs,), orelse=(own,), loc=stmt.loc),)

    def is_named(self, mask: int) -> Expr:
        """Whether a mask names the block."""
        shifted = Binary(BinaryOp.SHR, const(mask), self.rank())
        return compare(BinaryOp.EQ, Binary(BinaryOp.BITAND, shifted, const(1)), 1)

    def seen_by(self, rank: int, e: Expr, stmt: Stmt) -> Expr:
        """The value of an index in the block of a rank in the cluster."""
        there: dict[str, Expr] = {}
        for v, size in zip(self.t.launch.vars, (*self.dims, 1, 1), strict=False):
            begin = Binary(BinaryOp.FLOORDIV, v, as_type(const(size), v.type))
            there[v.name] = plus(times(begin, size), rank % size)
            rank //= size
        return _replaced(self.spelled(e, stmt), there)

    def spelled(self, e: Expr, stmt: Stmt) -> Expr:
        """An index in terms of block indices, parameters, and rounds that all go through."""
        for n in e.walk():
            if isinstance(n, (Load, LoadVector, AtomicLoad)):
                raise refused(stmt, "T.copy_cluster to several blocks of what an array points to")
            if isinstance(n, Var) and n.name in self.own:
                raise refused(stmt, "T.copy_cluster to several blocks in rounds of their own")
        lets = {n.name for n in e.walk() if isinstance(n, Var) and n.name in self.lets}
        if not lets:
            return e
        return self.spelled(_replaced(e, {name: self.lets[name] for name in lets}), stmt)

    def led(self, part: Threads, body: Block, stmt: Stmt) -> Block:
        """What the first thread does after all have met."""
        if part.count == 1:
            return body
        return (SyncThreads(loc=stmt.loc), If(part.first(), body, loc=stmt.loc))

    def in_one_piece(self, stmt: CopyCluster) -> bool:
        """Whether the bytes of both tiles lie in one piece, in the same order."""
        shapes = [static_shape(r.buffer) for r in (stmt.src, stmt.dst)]
        extents = [static_extents(r) for r in (stmt.src, stmt.dst)]
        if None in shapes or None in extents:
            return False
        longs = [[n for n in e or () if n != 1] for e in extents]
        size = math.prod(extents[0] or ()) * stmt.src.dtype.bytes
        order = [placement_key(r.buffer) for r in (stmt.src, stmt.dst)]
        return (
            longs[0] == longs[1]
            and size % GROUP == 0
            and order[0] == order[1]
            and all(_is_run(r) for r in (stmt.src, stmt.dst))
            and all(r.buffer.strides is None for r in (stmt.src, stmt.dst))
        )

    def bulk(self, stmt: CopyCluster, at: Region, cta: Expr, part: Threads) -> Block:
        """A bulk copy by the first thread, which arrives for it at the receiver."""
        for r in (stmt.src, stmt.dst):
            self.placed[r.buffer.name] = r.buffer
        size = const(math.prod(static_extents(stmt.src) or ()) * stmt.src.dtype.bytes)
        expect = Issue("mbarrier.arrive.expect_tx.cluster", (at,), (size, cta), loc=stmt.loc)
        move = Issue("cp.async.bulk.cluster", (stmt.dst, at), (stmt.src, size, cta), loc=stmt.loc)
        fence = Issue("fence.proxy.async", (), (), loc=stmt.loc)
        return (fence, *self.led(part, (expect, move), stmt))

    def by_threads(self, stmt: CopyCluster, cta: Expr) -> Block:
        """A copy by all threads, into memory at an address."""
        dst, names = stmt.dst, self.t.names
        self.placed[dst.buffer.name] = dst.buffer
        address = names.var("there", U64)
        remote = dst.buffer.with_(name=names.name(f"{dst.buffer.name}_there"), scope="global")
        first = Region(
            dst.buffer, tuple(const(0) for _ in dst.mins), tuple(const(1) for _ in dst.mins)
        )
        into = Region(remote, dst.mins, dst.extents, loc=dst.loc)
        return (
            Issue("mapa", (), (first, cta), results=(address,), loc=stmt.loc),
            MakeTensor(remote, address, loc=stmt.loc),
            *_lies(remote),
            Copy(stmt.src, into, loc=stmt.loc),
        )


def _replaced(e: Expr, values: Mapping[str, Expr]) -> Expr:
    if isinstance(e, Var):
        return values.get(e.name, e)
    return e.rewrite(lambda n: values.get(n.name) if isinstance(n, Var) else None)


def placement_key(buffer: Buffer) -> tuple[int, ...]:
    """How the elements of a buffer follow each other: as products and tensor copies want it, so
    that all agree, or in rows. A buffer of one axis has no choice.
    """
    shape = static_shape(buffer) or (1, 1)
    if buffer.rank < 2:
        return ()
    found = tile_placement(buffer, (buffer.rank - 2, buffer.rank - 1))
    return found.key() if found else (shape[-2], shape[-1], 1, 1, shape[-1])


def _lies(buffer: Buffer) -> Block:
    key = placement_key(buffer)
    return (Annotate(PLACEMENT, buffers=(buffer,), values=(key,)),) if key else ()


def _is_run(region: Region) -> bool:
    """Whether a region is all of its buffer along the axes from the first one on along which it is
    longer than 1, or all along its last two.
    """
    kept = [
        int_value(low) == 0 and int_value(extent) == int_value(size)
        for low, extent, size in zip(region.mins, region.extents, region.buffer.shape, strict=True)
    ]
    long = [k for k, e in enumerate(region.extents) if int_value(e) != 1]
    first = min([*long, max(0, len(kept) - 2)])
    return all(kept[first:])


def is_remote(t: Threads, region: Region) -> bool:
    """Whether blocks of a cluster may arrive at an mbarrier of each other."""
    return math.prod(t.launch.cluster) > 1 and t.memory(region.buffer) is Memory.CLUSTER_BARRIER
