"""Waiting and asynchrony, as the author writes them: barriers, mbarriers, asynchronous copies and
products, warp specialisation, clusters.

These are statements of the tile stage. Their data is there only after the wait that belongs to
them: an operand with `Effect.ASYNC` is read or written at some time between the statement and that
wait. Names and meanings follow the PTX ISA.
"""

from __future__ import annotations

import enum
from typing import Any

from tilelang.ir.expr import Expr, Region, Var
from tilelang.ir.node import Effect, attr, binds, body, operand
from tilelang.ir.tile import Block, Stmt, TileOp

WARP, GROUP = 32, 128
"""The threads of a warp, and of a warp group."""

RESPONSE = 16
"""The bytes of the answer to a `ClcTryCancel`."""

_BARRIER = Effect.UPDATE | Effect.ATOMIC


class SyncWarp(Stmt):
    """The threads of a warp named by `mask` (all without it) wait for each other."""

    mask: Expr | None = operand(default=None)


class SyncGrid(Stmt):
    """All threads of all blocks of the launch wait for each other (a cooperative launch)."""


class NamedArrive(Stmt):
    """Arrives at a named barrier of the block without waiting (PTX `bar.arrive`)."""

    barrier_id: Expr = operand()
    thread_count: Expr = operand()


class ClusterStep(enum.Enum):
    """The parts of a cluster barrier (PTX `barrier.cluster`)."""

    SYNC = "sync"
    ARRIVE = "arrive"
    ARRIVE_RELAXED = "arrive.relaxed"
    WAIT = "wait"


class ClusterBarrier(Stmt):
    """One step at the barrier of all threads of the cluster."""

    step: ClusterStep = attr()


class MbarArrive(Stmt):
    """One arrival at an mbarrier (one element of a barrier buffer), by each thread that gets here.

    `tx_bytes`, if given, is first added to the bytes that the phase expects. `cta` is the rank in
    the cluster of the block whose barrier is meant.
    """

    barrier: Region = operand(effect=_BARRIER)
    tx_bytes: Expr | None = operand(default=None)
    cta: Expr | None = operand(default=None)


class MbarExpectTx(Stmt):
    """Adds `tx_bytes` to the bytes that the current phase of an mbarrier expects; no arrival."""

    barrier: Region = operand(effect=_BARRIER)
    tx_bytes: Expr = operand()


class MbarWait(Stmt):
    """Waits until the phase of the given parity of an mbarrier is complete."""

    barrier: Region = operand(effect=Effect.READ)
    parity: Expr = operand()


class Fence(Stmt):
    """Orders accesses of the calling thread; `kind` is one of `FENCES`. Waits for nothing."""

    kind: str = attr()


FENCES: dict[str, str] = {
    "proxy.async": "accesses through the generic proxy before those through the async proxy",
    "mbarrier_init": "the initialisation of mbarriers before their use by the cluster",
    "tcgen05.before_thread_sync": "asynchronous tcgen05 operations before a thread barrier",
    "tcgen05.after_thread_sync": "asynchronous tcgen05 operations after a thread barrier",
    "wgmma": "register accesses before the wgmma operations that follow",
    "threadfence": "accesses of this thread before its later ones, seen from the whole device",
}


class AsyncCopy(TileOp):
    """Copies global to shared memory with `cp.async`; see `WaitGroup`.

    With `commit` it closes the group of the calling threads, else `CommitGroup` does. Where `pred`
    is given and does not hold, zeros are written and nothing is read.
    """

    src: Region = operand(effect=Effect.READ | Effect.ASYNC)
    dst: Region = operand(effect=Effect.WRITE | Effect.ASYNC)
    commit: bool = attr(default=True)
    pred: Expr | None = operand(default=None)
    hints: tuple[tuple[str, Any], ...] = attr(default=())


class CommitGroup(Stmt):
    """Closes the calling thread's group of `cp.async` copies."""


class WaitGroup(Stmt):
    """Waits until at most `count` of the newest `cp.async` groups are under way."""

    count: Expr = operand()


class TmaCopy(TileOp):
    """A bulk tensor copy. A load adds its bytes to what `barrier` expects and completes on it.

    A store closes a bulk group; see `TmaStoreWait`. Elements outside a global tensor read as zero
    and are not written. `cluster_mask` names the blocks of the cluster that receive the tile.
    """

    src: Region = operand(effect=Effect.READ | Effect.ASYNC)
    dst: Region = operand(effect=Effect.WRITE | Effect.ASYNC)
    barrier: Region | None = operand(effect=_BARRIER, default=None)
    cluster_mask: int = attr(default=0)
    hints: tuple[tuple[str, Any], ...] = attr(default=())


class TmaGather4(TileOp):
    """Loads four rows of a matrix into a tile of four rows (PTX `.tile::gather4`).

    `src` is all rows of the columns that are read, `rows` says which four of them. It completes the
    bytes of the tile on `barrier`, which something else expects. What is outside of the matrix is
    zero.
    """

    src: Region = operand(effect=Effect.READ | Effect.ASYNC)
    dst: Region = operand(effect=Effect.WRITE | Effect.ASYNC)
    rows: tuple[Expr, ...] = operand()
    barrier: Region = operand(effect=_BARRIER)
    hints: tuple[tuple[str, Any], ...] = attr(default=())


class TmaScatter4(TileOp):
    """Stores a tile of four rows to four rows of a matrix (PTX `.tile::scatter4`), in the open bulk
    group.

    `dst` is all rows of the columns that are written, `rows` says which four of them. What is
    outside of the matrix is not written; of rows named twice either may stay.
    """

    src: Region = operand(effect=Effect.READ | Effect.ASYNC)
    dst: Region = operand(effect=Effect.WRITE | Effect.ASYNC)
    rows: tuple[Expr, ...] = operand()
    hints: tuple[tuple[str, Any], ...] = attr(default=())


class TmaStoreArrive(Stmt):
    """Closes the bulk group of the stores issued so far."""


class TmaStoreWait(Stmt):
    """Waits until at most `count` bulk groups are under way, or with `read` still read their
    source.
    """

    count: int = attr(default=0)
    read: bool = attr(default=True)


class CopyCluster(TileOp):
    """Copies into the shared memory of another block of the cluster (`dst_block`), or to several.

    With `remote_barrier` it completes on that mbarrier of the receiving block; else it is
    synchronous.
    """

    src: Region = operand(effect=Effect.READ)
    dst: Region = operand(effect=Effect.WRITE | Effect.ASYNC)
    dst_block: Expr | None = operand(default=None)
    remote_barrier: Region | None = operand(effect=_BARRIER, default=None)
    cluster_mask: int = attr(default=0)
    hints: tuple[tuple[str, Any], ...] = attr(default=())


class AsyncUnit(enum.Enum):
    """The units that multiply asynchronously."""

    WGMMA = "wgmma"
    TCGEN05 = "tcgen05"


class AsyncGemm(TileOp):
    """`Gemm` that is only issued. wgmma is waited for by `WaitWgmma`; tcgen05 completes on
    `barrier`.
    """

    a: Region = operand(effect=Effect.READ | Effect.ASYNC)
    b: Region = operand(effect=Effect.READ | Effect.ASYNC)
    c: Region = operand(effect=Effect.UPDATE | Effect.ASYNC)
    clear_accum: Expr = operand()
    unit: AsyncUnit = attr()
    transpose_a: bool = attr(default=False)
    transpose_b: bool = attr(default=False)
    policy: int = attr(default=0)
    barrier: Region | None = operand(effect=_BARRIER, default=None)
    two_cta: bool = attr(default=False)


class WaitWgmma(Stmt):
    """Waits until at most `count` wgmma groups are under way."""

    count: int = attr()


class MmaArrive(Stmt):
    """Makes an mbarrier complete an arrival when all tcgen05 operations issued so far are done."""

    barrier: Region = operand(effect=_BARRIER)
    two_cta: bool = attr(default=False)


class CpAsyncArrive(Stmt):
    """Makes an mbarrier complete an arrival when the thread's `cp.async` copies so far are done.

    The arrival does not change the count that is pending (`.noinc`).
    """

    barrier: Region = operand(effect=_BARRIER)


class ClcTryCancel(Stmt):
    """Each thread that gets here asks for a cluster of the launch that has not begun (PTX
    `clusterlaunchcontrol.try_cancel`).

    The answer is the `RESPONSE` bytes of `response`, complete on `barrier`: where the first block
    of that cluster, which then never begins, would have been, or that there is none. With
    `multicast` every block of the cluster gets it, at the same place and on its own barrier.
    """

    response: Region = operand(effect=Effect.WRITE | Effect.ASYNC)
    barrier: Region = operand(effect=_BARRIER)
    multicast: bool = attr(default=False)


class ClcQuery(Stmt):
    """Binds what an answer to a `ClcTryCancel` says (PTX `clusterlaunchcontrol.query_cancel`): 1 if
    it names a cluster, or one index of the first block of that cluster, 0 if there is none.
    """

    result: Var = binds()
    response: Region = operand(effect=Effect.READ)
    part: str = attr()


CLC_PARTS: dict[str, tuple[str, int]] = {
    "is_canceled": ("int32", 3),
    "first_ctaid_x": ("uint32", 0),
    "first_ctaid_y": ("uint32", 1),
    "first_ctaid_z": ("uint32", 2),
}
"""What a `ClcQuery` may ask for: the type, and which word of an answer says it where nothing but
this program decodes answers. All words are zero where no cluster is named.
"""


class WarpSpecialize(Stmt):
    """Runs `body` only in the warp groups (`GROUP` threads each) listed.

    Groups run at the same time as those of the `WarpSpecialize` statements that follow directly.
    """

    groups: tuple[int, ...] = attr()
    body: Block = body()


class LaunchDependency(Stmt):
    """Programmatic dependent launch: `trigger` lets the next kernel start, `sync` waits for the
    last.
    """

    step: str = attr()
