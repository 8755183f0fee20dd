"""Arithmetic of narrow types in float32 and int32, with one rounding after each operation.

What enters: a function of the tile stage. What leaves: one whose operators and maths functions work
on integers of whole bytes, float32 and float64 only. Other floats (16 bits and fewer, tfloat32) and
integers of fewer than 8 bits are converted around each operation, by the rules of `dtypes.cast`
(semantics rules 8, 9 and 11).
"""

from __future__ import annotations

from tilelang.dtypes import DType
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Call,
    Cast,
    Const,
    Expr,
    Lane,
    Pack,
    Select,
    Unary,
    UnaryOp,
)
from tilelang.ir.node import Node
from tilelang.ir.tile import Function
from tilelang.isa.target import Target

F32, I32, U32 = DType("float32"), DType("int32"), DType("uint32")
_EXACT = (BinaryOp.MIN, BinaryOp.MAX)
_FUSED = ("fma", "ieee_fma")
_EXACT_CALLS = ("abs", "ceil", "floor", "round", "round_away", "trunc")


def widen_arithmetic(fn: Function, target: Target) -> Function:
    """No operator works on a narrow type."""
    del target
    return fn.rewrite(_widened)


def computing_type(dtype: DType) -> DType:
    """The type that arithmetic on `dtype` is done in; itself if a machine has it."""
    if dtype.is_float and dtype.base not in ("float32", "float64"):
        return F32.with_lanes(dtype.lanes)
    if dtype.is_integer and dtype.is_subbyte:
        return I32.with_lanes(dtype.lanes)
    return dtype


def _widened(node: Node) -> Node | None:
    match node:
        case Binary():
            wide = computing_type(node.a.dtype)
            if wide == node.a.dtype:
                return None
            inner = Binary(node.op, Cast(node.a, wide), Cast(node.b, wide))
            return inner if node.op.is_compare else _back(inner, node.dtype, node.op in _EXACT)
        case Unary(op=UnaryOp.NEG | UnaryOp.BITNOT):
            wide = computing_type(node.a.dtype)
            if wide == node.a.dtype:
                return None
            return _back(Unary(node.op, Cast(node.a, wide)), node.dtype, True)
        case Call() if node.args:
            return _call(node)
        case _:
            return None


def _call(node: Call) -> Expr | None:
    first = node.args[0].dtype
    wide = computing_type(first)
    if wide == first:
        return None
    if node.fn in _FUSED:
        return _fused(node)
    same = node.type == first
    inner = Call(
        node.fn,
        tuple(Cast(a, wide) for a in node.args),
        wide if same else node.type,
        params=node.params,
    )
    return _back(inner, node.type, node.fn in _EXACT_CALLS) if same else inner


def _fused(node: Call) -> Expr:
    """x * y + z of a narrow type, lane by lane."""
    if node.type.lanes == 1:
        return _back(_odd(tuple(Cast(a, F32) for a in node.args)), node.type, False)
    each = [
        _fused(Call(node.fn, tuple(Lane(a, k) for a in node.args), node.type.base))
        for k in range(node.type.lanes)
    ]
    return Pack(tuple(each), node.type)


def _odd(args: tuple[Expr, ...]) -> Expr:
    """x * y + z in float32 rounded to odd: the neighbour with the odd last bit where it is inexact.

    It keeps two bits more than any narrower type, so one more rounding is that of the exact result
    (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums").
    """
    down, up = (Call("ieee_fma", args, F32, params=(mode,)) for mode in ("rd", "ru"))
    odd = Binary(BinaryOp.BITAND, Bitcast(down, U32), Const(1, U32))
    nearer = Select(Binary(BinaryOp.NE, odd, Const(0, U32)), down, up)
    return Select(Binary(BinaryOp.EQ, down, up), up, nearer)  # +0 is `up`


def _back(e: Expr, dtype: DType, exact: bool) -> Expr:
    """A result in its own type; an `exact` one is a value of it already, so infinity stays."""
    return Cast(e, dtype, saturate=not exact)
