"""What the threads of a warp or block do together, as instructions.

What enters: a `Collective`. What leaves: the instruction of that name. Shuffles, votes and matches
are of the PTX ISA, section 9.7.9; barriers with a reduction of section 9.7.13.
"""

from __future__ import annotations

from tilelang.dtypes import DType
from tilelang.ir.expr import BOOL, Binary, BinaryOp, Cast, Expr, const
from tilelang.ir.special import Collective
from tilelang.ir.tile import Block, Let, Stmt
from tilelang.passes.build import as_type, compare
from tilelang.passes.issue import Issue
from tilelang.passes.simt.launch import WARP, Threads, refused

I32, U32, U64 = DType("int32"), DType("uint32"), DType("uint64")
FULL = 0xFFFFFFFF
_SHUFFLES = {
    "shfl_sync": "shfl.sync.idx",
    "shfl_xor": "shfl.sync.bfly",
    "shfl_up": "shfl.sync.up",
    "shfl_down": "shfl.sync.down",
}
_VOTES = {"any_sync": "vote.sync.any", "all_sync": "vote.sync.all"}
_BLOCK = {
    "syncthreads_count": "barrier.red.popc",
    "syncthreads_and": "barrier.red.and",
    "syncthreads_or": "barrier.red.or",
}
_MATCHES = {"match_any_sync": "match.any.sync", "match_all_sync": "match.all.sync"}
_FOLDS = {
    "warp_reduce_sum": BinaryOp.ADD,
    "warp_reduce_max": BinaryOp.MAX,
    "warp_reduce_min": BinaryOp.MIN,
    "warp_reduce_bitand": BinaryOp.BITAND,
    "warp_reduce_bitor": BinaryOp.BITOR,
}


def lower_collective(stmt: Collective, t: Threads) -> Block:
    """The instructions of a collective operation."""
    fn = stmt.fn
    if fn in _FOLDS:
        return _fold(stmt, t)
    if fn in ("ballot_sync", "activemask"):
        return _mask_of_lanes(stmt, t)
    if fn == "elect":
        size = max(stmt.params[0] // WARP, 1) * WARP
        first = Binary(BinaryOp.FLOORMOD, t.index, const(size))
        return (Let(stmt.result, compare(BinaryOp.EQ, first, 0), loc=stmt.loc),)
    row, ins, imm = _plain(stmt, t)
    return (Issue(row, (), ins, results=(stmt.result,), imm=imm, loc=stmt.loc),)


def _plain(
    stmt: Collective, t: Threads
) -> tuple[str, tuple[Expr, ...], tuple[tuple[str, int], ...]]:
    """The row, operands and immediates of an operation that is one instruction."""
    fn = stmt.fn
    mask = ("mask", (stmt.params[-1] if stmt.params else FULL) & FULL)
    if fn in _SHUFFLES:
        ins = (stmt.args[0], as_type(stmt.args[1], I32))
        return _SHUFFLES[fn], ins, (("width", stmt.params[0]), mask)
    if fn in _VOTES:
        return _VOTES[fn], (_truth(stmt.args[0]),), (mask,)
    if fn in _BLOCK:
        imm = (("id", t.barrier), ("threads", t.count))
        return _BLOCK[fn], (_truth(stmt.args[0]),), imm
    if fn in _MATCHES:
        return _MATCHES[fn], stmt.args, (mask,)
    raise refused(stmt, f"T.{fn}")


def _truth(e: Expr) -> Expr:
    return e if e.dtype.is_bool else Cast(e, BOOL)


def _mask_of_lanes(stmt: Collective, t: Threads) -> Block:
    """An instruction whose 32 bits are given back as 64."""
    bits = t.names.var("bits", U32)
    mask = (stmt.params[-1] if stmt.params else FULL) & FULL
    ins = (_truth(stmt.args[0]),) if stmt.args else ()
    row, imm = ("vote.sync.ballot", (("mask", mask),)) if ins else ("activemask", ())
    return (
        Issue(row, (), ins, results=(bits,), imm=imm, loc=stmt.loc),
        Let(stmt.result, Cast(bits, U64), loc=stmt.loc),
    )


def _fold(stmt: Collective, t: Threads) -> Block:
    """A butterfly over the warp: partners 16, 8, 4, 2 and 1 lanes away."""
    if t.count % WARP:
        raise refused(stmt, f"T.{stmt.fn} of a warp that is not whole")
    value, out = stmt.args[0], list[Stmt]()
    if value.dtype != stmt.result.dtype:
        value = as_type(value, stmt.result.dtype)
    imm = (("width", WARP), ("mask", FULL))
    for distance in (16, 8, 4, 2, 1):
        mine, other = (t.names.var(n, value.dtype) for n in ("mine", "other"))
        out.append(Let(mine, value, loc=stmt.loc))
        ins = (mine, const(distance))
        out.append(Issue("shfl.sync.bfly", (), ins, results=(other,), imm=imm, loc=stmt.loc))
        value = Binary(_FOLDS[stmt.fn], mine, other)
    return (*out, Let(stmt.result, value, loc=stmt.loc))
