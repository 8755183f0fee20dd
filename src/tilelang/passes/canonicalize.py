"""The plain form of a program for a machine on which a block is one thread.

What enters: a function as the author wrote it. What leaves: one with the same meaning and without
what only concerns several threads or asynchronous engines: pipelined loops are loops, asynchronous
copies and products are done where they stand, so waits for them and fences are gone, and so are
hints and annotations that change no result.
"""

from __future__ import annotations

import math

from tilelang.errors import error
from tilelang.ir.expr import Binary, BinaryOp, Expr, Load, Region, const, int_value
from tilelang.ir.scales import (
    SCALE_COLUMNS,
    SCALE_LANES,
    SCALED_ROWS,
    AsyncScaledGemm,
    ScaleCopy,
    ScaleTranspose,
)
from tilelang.ir.sync import (
    AsyncCopy,
    AsyncGemm,
    AsyncUnit,
    ClusterBarrier,
    ClusterStep,
    CommitGroup,
    Fence,
    LaunchDependency,
    MbarArrive,
    MmaArrive,
    TmaCopy,
    TmaGather4,
    TmaScatter4,
    TmaStoreArrive,
    TmaStoreWait,
    WaitGroup,
    WaitWgmma,
)
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Block,
    Copy,
    For,
    Free,
    Function,
    Gemm,
    If,
    Launch,
    LoopKind,
    Parallel,
    Pipelined,
    Stmt,
    Store,
    SyncThreads,
)
from tilelang.isa.target import Capability, Target
from tilelang.passes.build import (
    Names,
    literal,
    loops_over,
    map_statements,
    place,
    plus,
    serial,
    shifted,
    times,
)
from tilelang.passes.issue import PLACEMENT, IssuedGemm
from tilelang.passes.simt.switches import is_off

BY_THREAD = (("by_thread", True),)
"""Marks a copy that each thread may issue for itself."""

_ISSUED = (
    Pipelined,
    Free,
    TmaCopy,
    TmaGather4,
    TmaScatter4,
    TmaStoreArrive,
    TmaStoreWait,
    WaitWgmma,
    Fence,
    LaunchDependency,
)
"""What many threads issue, or wait for, as the author says it."""

_HEARD = ("registers", "min_blocks_per_sm", PLACEMENT)
"""The kinds of annotations that passes for many threads look at."""

_NOTHING_TO_WAIT_FOR = (
    CommitGroup,
    WaitGroup,
    TmaStoreArrive,
    TmaStoreWait,
    WaitWgmma,
    Fence,
    LaunchDependency,
    Free,
)


def canonicalize(fn: Function, target: Target) -> Function:
    """Pipelines are loops, asynchronous work is done at once, hints are gone."""
    del target
    names = Names(fn)

    def launch(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch):
            return None
        alone = math.prod(stmt.cluster) == 1

        def one(inner: Stmt) -> Block | None:
            made = _without_cluster(inner) if alone else None
            return _plain(inner, names) if made is None else made

        return (stmt.with_(body=map_statements(stmt.body, one)),)

    return fn.with_(body=map_statements(fn.body, launch))


def _without_cluster(stmt: Stmt) -> Block | None:
    """What an operation of a cluster is where a cluster has one block."""
    match stmt:
        case ClusterBarrier(step=ClusterStep.SYNC | ClusterStep.WAIT):
            return (SyncThreads(loc=stmt.loc),)
        case ClusterBarrier():
            return ()
        case MbarArrive() if stmt.cta is not None:
            return (stmt.with_(cta=None),)
        case TmaCopy() if stmt.cluster_mask:
            return (Copy(stmt.src, stmt.dst, hints=BY_THREAD, loc=stmt.loc),)
        case _:
            return None


def canonicalize_threads(fn: Function, target: Target) -> Function:
    """The same, with pipelines left for the passes that know of stages, and asynchronous copies for
    those that issue them.
    """
    names = Names(fn)
    ahead = target.supports(Capability.CP_ASYNC) and not is_off(fn, "cp-async")
    kept = (*_ISSUED, CommitGroup, WaitGroup) if ahead else _ISSUED

    def one(stmt: Stmt) -> Block | None:
        if isinstance(stmt, Annotate) and stmt.kind in _HEARD:
            return None
        if isinstance(stmt, AsyncCopy) and ahead:
            return _async_copy(stmt, names, stmt.with_(commit=False, hints=()))
        if isinstance(stmt, AsyncGemm):
            return None if stmt.unit is AsyncUnit.TCGEN05 else (_product(stmt, IssuedGemm)[0],)
        if isinstance(stmt, Pipelined):
            return (stmt.with_(body=map_statements(stmt.body, _at_once)),)
        return None if isinstance(stmt, (*kept, ScaleCopy)) else _plain(stmt, names)

    def launch(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch):
            return None
        body = stmt.body
        if math.prod(stmt.cluster) == 1:
            body = map_statements(body, _without_pair)
        return (stmt.with_(body=map_statements(body, one)),)

    return fn.with_(body=map_statements(fn.body, launch))


def _without_pair(stmt: Stmt) -> Block | None:
    """What is of a cluster where that has one block, but for copies that complete on mbarriers."""
    if isinstance(stmt, TmaCopy):
        return (stmt.with_(cluster_mask=0),) if stmt.cluster_mask else None
    return _without_cluster(stmt)


def _at_once(stmt: Stmt) -> Block | None:
    """In a pipeline tiles are handed over when a product is over, so there it is waited for."""
    if isinstance(stmt, WaitWgmma):
        return ()
    return (stmt.at_once(),) if isinstance(stmt, IssuedGemm) else None


def _plain(stmt: Stmt, names: Names) -> Block | None:
    made: Block | None = None
    match stmt:
        case Pipelined():
            made = (For(stmt.var, stmt.start, stmt.stop, stmt.body, loc=stmt.loc),)
        case For():
            # An author's vectorized loop may carry from one round to the next.
            keep = LoopKind.UNROLL if stmt.kind is LoopKind.UNROLL else LoopKind.SERIAL
            made = (stmt.with_(hints=(), kind=keep),)
        case Parallel() if stmt.hints:
            made = (stmt.with_(hints=()),)
        case AsyncCopy():
            made = _async_copy(stmt, names, None)
        case TmaCopy(cluster_mask=0):
            made = (Copy(stmt.src, stmt.dst, hints=BY_THREAD, loc=stmt.loc),)
        case AsyncScaledGemm() | ScaleCopy():
            raise error(
                "target",
                "scales in Tensor Memory need a chip that has it",
                stmt.loc,
                expected=f"a chip with {Capability.TCGEN05.value}",
                help="T.gemm_blockscaled takes scales in shared memory, on every target",
            )
        case ScaleTranspose():
            made = _transposed(stmt, names)
        case AsyncGemm(two_cta=False):
            made = _product(stmt)
        case _:
            hint = isinstance(stmt, Annotate) and stmt.kind != "safe_value"
            if hint or isinstance(stmt, _NOTHING_TO_WAIT_FOR):
                made = ()
    return made


def _async_copy(stmt: AsyncCopy, names: Names, ahead: AsyncCopy | None) -> Block:
    """A copy done at once, or `ahead`; zeros where its predicate does not hold."""
    copy = ahead or Copy(stmt.src, stmt.dst, hints=BY_THREAD, loc=stmt.loc)
    closed: Block = (CommitGroup(loc=stmt.loc),) if ahead and stmt.commit else ()
    if stmt.pred is None:
        return (copy, *closed)
    dst, loops = stmt.dst, loops_over(stmt.dst.extents, names)
    at = shifted(dst, place(loops, dst.extents))
    zero: Block = (Store(dst.buffer, at, literal(0, dst.dtype), loc=stmt.loc),)
    for var, extent in reversed(list(zip(loops, dst.extents, strict=True))):
        if var is not None:
            zero = (serial(var, extent, zero, stmt.loc),)
    return (If(stmt.pred, (copy,), orelse=zero, loc=stmt.loc), *closed)


def _transposed(stmt: ScaleTranspose, names: Names) -> Block:
    """Words are taken out as 4 x 32, and put back as 32 x 4, each 128 by themselves."""
    words, loc = stmt.words, stmt.loc
    sizes = [int_value(e) or 1 for e in words.extents]
    shape = (math.prod(sizes) // SCALED_ROWS, SCALE_LANES, SCALE_COLUMNS)
    held = names.buffer(f"{words.buffer.name}_words", words.dtype, shape, "local.fragment")
    out: list[Stmt] = [Alloc(held, loc=loc)]
    for takes in (True, False):
        chunk, lane, column = (names.var(hint) for hint in ("chunk", "lane", "column"))
        strides = (SCALED_ROWS, 1, SCALE_LANES) if takes else (SCALED_ROWS, SCALE_COLUMNS, 1)
        at: Expr = const(0)
        for var, stride in zip((chunk, lane, column), strides, strict=True):
            at = plus(at, times(var, stride))
        where: list[Expr] = []
        for size in reversed(sizes):
            where.insert(0, Binary(BinaryOp.FLOORMOD, at, const(size)) if size > 1 else const(0))
            at = Binary(BinaryOp.FLOORDIV, at, const(size)) if size > 1 else at
        there = shifted(words, where)
        move = Store(held, (chunk, lane, column), Load(words.buffer, there), loc=loc)
        if not takes:
            move = Store(words.buffer, there, Load(held, (chunk, lane, column)), loc=loc)
        out.append(Parallel((chunk, lane, column), held.shape, (move,), loc=loc))
    return tuple(out)


def _product(stmt: AsyncGemm, cls: type[Gemm] = Gemm) -> Block:
    operands: tuple[Region, Region, Region, Expr] = (stmt.a, stmt.b, stmt.c, stmt.clear_accum)
    product = cls(
        *operands, transpose_a=stmt.transpose_a, transpose_b=stmt.transpose_b, loc=stmt.loc
    )
    if stmt.barrier is None:
        return (product,)
    return (product, MmaArrive(stmt.barrier, loc=stmt.loc))
