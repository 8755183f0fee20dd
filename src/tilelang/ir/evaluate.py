"""Exact values of scalar expressions: operands go in as Python numbers, the value in the dtype
comes out.

Integers wrap and floats round once to their dtype, as docs/language.md says. None stands for a
value that is not fixed by the language (`x // 0`), that differs between targets (`exp`), or that is
not known here (a load).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tilelang import dtypes
from tilelang.dtypes import DType, const_value, wrap_int
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Call,
    Cast,
    Const,
    Expr,
    Select,
    Unary,
    UnaryOp,
    Var,
)
from tilelang.ir.interval import trunc_div

Number = int | float | bool
"""The value of a scalar: bool for bool, int for integers, float for floats."""


def evaluate(e: Expr, env: Mapping[Var, Number] | None = None) -> Number | None:
    """The value of `e` where the variables have the values of `env`; None where it is not
    determined.
    """
    if e.dtype.lanes != 1 or e.dtype.is_handle:
        return None
    match e:
        case Const():
            return e.value
        case Var():
            return env.get(e) if env is not None else None
        case Select():
            return _select(e, env)
        case Binary() | Unary() | Cast() | Bitcast() | Call():
            args = [evaluate(a, env) for a in e.children() if isinstance(a, Expr)]
            known = [a for a in args if a is not None]
            return apply(e, known) if len(known) == len(args) else None
        case _:
            return None


def _select(e: Select, env: Mapping[Var, Number] | None) -> Number | None:
    cond = evaluate(e.cond, env)
    if cond is None:
        return None
    return evaluate(e.t if cond else e.f, env)


def apply(e: Expr, args: Sequence[Number]) -> Number | None:
    """The value of the operation `e` when its operands have the values `args`; None where it is not
    fixed.
    """
    match e:
        case Binary():
            return binary(e.op, args[0], args[1], e.a.dtype)
        case Unary():
            return unary(e.op, args[0], e.dtype)
        case Cast():
            return _cast(e, args)
        case Bitcast():
            return _bitcast(args[0], e.a.dtype, e.type)
        case Call():
            return _call(e, args)
        case _:
            return None


# Operators ---------------------------------------------------------------------------------------


def binary(op: BinaryOp, a: Number, b: Number, dtype: DType) -> Number | None:
    """`op` on two values of `dtype`."""
    if dtype.lanes != 1:
        return None
    if op in _TRUTH:
        return _TRUTH[op](a, b)
    if op in (BinaryOp.MIN, BinaryOp.MAX):
        return _extreme(op, a, b)
    if dtype.is_float:
        return _float_binary(op, float(a), float(b), dtype)
    if dtype.is_bool and op not in _BITWISE:
        return None
    found = _int_binary(op, int(a), int(b), dtype)
    return None if found is None else const_value(found, dtype)


_TRUTH: dict[BinaryOp, Callable[[Number, Number], bool]] = {
    BinaryOp.EQ: lambda a, b: a == b,
    BinaryOp.NE: lambda a, b: a != b,
    BinaryOp.LT: lambda a, b: a < b,
    BinaryOp.LE: lambda a, b: a <= b,
    BinaryOp.GT: lambda a, b: a > b,
    BinaryOp.GE: lambda a, b: a >= b,
    BinaryOp.AND: lambda a, b: bool(a) and bool(b),
    BinaryOp.OR: lambda a, b: bool(a) or bool(b),
}
_BITWISE = frozenset({BinaryOp.BITAND, BinaryOp.BITOR, BinaryOp.BITXOR})


def _extreme(op: BinaryOp, a: Number, b: Number) -> Number | None:
    # What min and max do with NaN, and with zeros of both signs, is the target's.
    if math.isnan(a) or math.isnan(b) or (a == b and repr(a) != repr(b)):
        return None
    return min(a, b) if op is BinaryOp.MIN else max(a, b)


def _float_binary(op: BinaryOp, a: float, b: float, dtype: DType) -> float | None:
    # float64 has more than twice the bits of the types allowed here, so rounding twice is rounding
    # once. Formats of 8 bits and less, and tfloat32, are formats of storage: what arithmetic on
    # them means is the target's.
    if dtype not in ARITHMETIC:
        return None
    x, y = np.float64(a), np.float64(b)
    with np.errstate(all="ignore"):
        match op:
            case BinaryOp.ADD:
                exact = x + y
            case BinaryOp.SUB:
                exact = x - y
            case BinaryOp.MUL:
                exact = x * y
            case BinaryOp.DIV:
                exact = x / y
            case _:
                return None
    return float(const_value(float(exact), dtype))


ARITHMETIC = frozenset({"float16", "bfloat16", "float32", "float64"})


def _int_binary(op: BinaryOp, a: int, b: int, dtype: DType) -> int | None:
    if op in _SHIFTS:
        return _shift(op, a, b, dtype)
    if op in _DIVISIONS:
        return _DIVISIONS[op](a, b) if b else None
    return _RING[op](a, b) if op in _RING else None


_RING: dict[BinaryOp, Callable[[int, int], int]] = {
    BinaryOp.ADD: lambda a, b: a + b,
    BinaryOp.SUB: lambda a, b: a - b,
    BinaryOp.MUL: lambda a, b: a * b,
    BinaryOp.BITAND: lambda a, b: a & b,
    BinaryOp.BITOR: lambda a, b: a | b,
    BinaryOp.BITXOR: lambda a, b: a ^ b,
}
_DIVISIONS: dict[BinaryOp, Callable[[int, int], int]] = {
    BinaryOp.FLOORDIV: lambda a, b: a // b,
    BinaryOp.FLOORMOD: lambda a, b: a % b,
    BinaryOp.TRUNCDIV: trunc_div,
    BinaryOp.TRUNCMOD: lambda a, b: a - b * trunc_div(a, b),
}
_SHIFTS = frozenset({BinaryOp.SHL, BinaryOp.SHR})


def _shift(op: BinaryOp, a: int, count: int, dtype: DType) -> int | None:
    if count < 0:
        return None
    # A count of the width or more leaves nothing but zeros, or the sign.
    count = min(count, dtype.bits)
    return a << count if op is BinaryOp.SHL else a >> count


def unary(op: UnaryOp, a: Number, dtype: DType) -> Number | None:
    """`op` on a value of `dtype`."""
    if dtype.lanes != 1:
        return None
    if op is UnaryOp.NOT:
        return not a
    if dtype.is_float:
        return -float(a) if op is UnaryOp.NEG and dtype in ARITHMETIC else None
    if dtype.is_bool:
        return (not a) if op is UnaryOp.BITNOT else None
    return wrap_int(-int(a) if op is UnaryOp.NEG else ~int(a), dtype)


# Conversions and functions -----------------------------------------------------------------------


def _cast(e: Cast, args: Sequence[Number]) -> Number | None:
    if len(args) > 1 or e.rounding == "rs":
        return None
    value, src, dst = args[0], e.a.dtype, e.type
    if src.lanes != 1 or dst.lanes != 1:
        return None
    if not (src.is_float or dst.is_float):
        return const_value(value, dst)
    array = np.asarray(value).astype(src.numpy)
    out = dtypes.cast(array, src, dst, e.rounding, e.saturate)[()]
    if dst.is_bool:
        return bool(out)
    return float(out) if dst.is_float else int(out)


def _bitcast(value: Number, src: DType, dst: DType) -> Number | None:
    whole = all(t.lanes == 1 and t.bits >= 8 and not t.is_bool for t in (src, dst))
    if not whole or src.bits != dst.bits:
        return None
    out = np.asarray([value]).astype(src.numpy).view(dst.numpy)[0]
    return float(out) if dst.is_float else int(out)


def _call(e: Call, args: Sequence[Number]) -> Number | None:
    dtype = e.args[0].dtype if e.args else e.type
    if e.fn in _FLOAT_TESTS:
        return _FLOAT_TESTS[e.fn](float(args[0]))
    if dtype.is_float:
        return abs(args[0]) if e.fn == "abs" and dtype in ARITHMETIC else None
    return _int_call(e.fn, [int(a) for a in args], dtype)


_FLOAT_TESTS: dict[str, Callable[[float], bool]] = {
    "isnan": math.isnan,
    "isinf": math.isinf,
    "isfinite": math.isfinite,
}


def _int_call(fn: str, args: Sequence[int], dtype: DType) -> int | None:
    word = args[0] & ((1 << dtype.bits) - 1) if args else 0
    match fn:
        case "abs":
            return wrap_int(abs(args[0]), dtype)
        case "iclamp":
            return min(max(args[0], args[1]), args[2])
        case "popcount":
            return word.bit_count()
        case "clz":
            return dtype.bits - word.bit_length()
        case "ffs":
            return (word & -word).bit_length()
        case _:
            return None
