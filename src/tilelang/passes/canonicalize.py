"""The plain form of a program for a machine on which a block is one thread.

What enters: a function as the author wrote it. What leaves: one with the same meaning and without
what only concerns several threads or asynchronous engines: pipelined loops are loops, asynchronous
copies and products are done where they stand, so waits for them and fences are gone, and so are
hints and annotations that change no result.
"""

from __future__ import annotations

from tilelang.ir.expr import Expr, Region
from tilelang.ir.sync import (
    AsyncCopy,
    AsyncGemm,
    AsyncUnit,
    CommitGroup,
    Fence,
    LaunchDependency,
    TmaCopy,
    TmaStoreArrive,
    TmaStoreWait,
    WaitGroup,
    WaitWgmma,
)
from tilelang.ir.tile import (
    Annotate,
    Block,
    Copy,
    Fill,
    For,
    Free,
    Function,
    Gemm,
    If,
    Parallel,
    Pipelined,
    Stmt,
)
from tilelang.isa.target import Target
from tilelang.passes.build import literal, map_launches, map_statements

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
    return map_launches(fn, lambda body: map_statements(body, _plain))


def _plain(stmt: Stmt) -> Block | None:
    made: Block | None = None
    match stmt:
        case Pipelined():
            made = (For(stmt.var, stmt.start, stmt.stop, stmt.body, loc=stmt.loc),)
        case For() | Parallel() if stmt.hints:
            made = (stmt.with_(hints=()),)
        case AsyncCopy():
            made = _async_copy(stmt)
        case TmaCopy(barrier=None, cluster_mask=0):
            made = (Copy(stmt.src, stmt.dst, loc=stmt.loc),)
        case AsyncGemm(unit=AsyncUnit.WGMMA, barrier=None):
            made = (_product(stmt),)
        case _:
            hint = isinstance(stmt, Annotate) and stmt.kind != "safe_value"
            if hint or isinstance(stmt, _NOTHING_TO_WAIT_FOR):
                made = ()
    return made


def _async_copy(stmt: AsyncCopy) -> Block:
    copy = Copy(stmt.src, stmt.dst, loc=stmt.loc)
    if stmt.pred is None:
        return (copy,)
    zero = Fill(stmt.dst, literal(0, stmt.dst.dtype), loc=stmt.loc)
    return (If(stmt.pred, (copy,), orelse=(zero,), loc=stmt.loc),)


def _product(stmt: AsyncGemm) -> Gemm:
    operands: tuple[Region, Region, Region, Expr] = (stmt.a, stmt.b, stmt.c, stmt.clear_accum)
    return Gemm(*operands, transpose_a=stmt.transpose_a, transpose_b=stmt.transpose_b, loc=stmt.loc)
