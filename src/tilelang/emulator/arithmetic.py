"""The text of operators, and the ranges of their integer results.

What enters: an operator and its operands as `Val`s. What leaves: the text of the result. Integers
of the block are Python ints, wrapped where their range does not exclude an overflow; everything
else is a NumPy value that wraps or rounds by itself, except in types narrower than NumPy computes
in, which go through a wider one and back.
"""

from __future__ import annotations

from collections.abc import Callable

from tilelang.dtypes import DType
from tilelang.dtypes.convert import converter
from tilelang.emulator.unit import Unit
from tilelang.emulator.values import Val, full_range, value
from tilelang.ir.expr import BOOL, BinaryOp, UnaryOp

_SYMBOLS = {
    BinaryOp.ADD: "+",
    BinaryOp.SUB: "-",
    BinaryOp.MUL: "*",
    BinaryOp.DIV: "/",
    BinaryOp.BITAND: "&",
    BinaryOp.BITOR: "|",
    BinaryOp.BITXOR: "^",
}
# Of floats and of arrays of integers; the names are defined in `numerics`.
_FLOAT_CALLS = {
    BinaryOp.FLOORDIV: "floor_divide",
    BinaryOp.FLOORMOD: "remainder",
    BinaryOp.TRUNCDIV: "float_truncdiv",
    BinaryOp.TRUNCMOD: "fmod",
    BinaryOp.MIN: "fmin",
    BinaryOp.MAX: "fmax",
}
_ARRAY_CALLS = {
    BinaryOp.TRUNCDIV: "truncdiv",
    BinaryOp.TRUNCMOD: "truncmod",
    BinaryOp.DIV: "truncdiv",
    BinaryOp.MIN: "minimum",
    BinaryOp.MAX: "maximum",
}
_INT_CALLS = {
    BinaryOp.FLOORDIV: "int_floordiv",
    BinaryOp.FLOORMOD: "int_floormod",
    BinaryOp.TRUNCDIV: "int_truncdiv",
    BinaryOp.TRUNCMOD: "int_truncmod",
    BinaryOp.DIV: "int_truncdiv",
    BinaryOp.MIN: "min",
    BinaryOp.MAX: "max",
}
_BOOL_SYMBOLS = {
    BinaryOp.AND: "&",
    BinaryOp.OR: "|",
    BinaryOp.MIN: "&",
    BinaryOp.MAX: "|",
    BinaryOp.BITAND: "&",
    BinaryOp.BITOR: "|",
    BinaryOp.BITXOR: "^",
}


def is_narrow(dtype: DType) -> bool:
    """Whether NumPy cannot compute in the type itself."""
    return dtype.is_subbyte or dtype.is_narrow_float or dtype.name == "tfloat32"


def computing_type(dtype: DType) -> DType:
    """The type that arithmetic on a narrow type is done in."""
    return DType("float32") if dtype.is_float else DType("int32")


def wrapped(code: str, dtype: DType) -> str:
    """The text of a Python int reduced to the range of an integer type."""
    mask = (1 << dtype.bits) - 1
    if dtype.is_uint:
        return f"({code}) & {mask:#x}"
    half = 1 << (dtype.bits - 1)
    return f"(({code}) + {half:#x} & {mask:#x}) - {half:#x}"


def ranged(code: str, dtype: DType, low: int, high: int, like: Val) -> Val:
    """An integer whose exact value lies in [low, high]: wrapped, if that may be outside of its
    type.
    """
    least, most = full_range(dtype)
    if least <= low and high <= most:
        return Val(code, dtype, like.axes, low, high)
    return Val(wrapped(code, dtype) if like.uniform else code, dtype, like.axes, least, most)


def binary(u: Unit, op: BinaryOp, a: Val, b: Val) -> Val:
    """`a op b`."""
    axes = a.axes | b.axes
    if op.is_compare:
        left, right = wide(u, a), wide(u, b)
        return Val(f"{left.text} {op.value} {right.text}", BOOL, axes)
    if a.dtype.is_bool:
        return Val(f"{a.text} {_BOOL_SYMBOLS[op]} {b.text}", BOOL, axes)
    if a.dtype.is_float:
        return _float(u, op, a, b)
    if a.uniform and b.uniform:
        return _integer(op, a, b)
    if is_narrow(a.dtype):
        return _narrowed(u, _array(op, wide(u, a), wide(u, b)), a.dtype)
    return _array(op, a, b)


def wide(u: Unit, v: Val) -> Val:
    """The same value in the type that NumPy computes in."""
    if not is_narrow(v.dtype):
        return v
    inner = computing_type(v.dtype)
    if v.uniform and v.dtype.is_integer:
        return Val(v.code, inner, v.axes, v.low, v.high, atom=v.atom)
    name = u.constant("cast", converter(v.dtype, inner), (v.dtype, inner, "", True))
    return Val(f"{name}({v.code})", inner, v.axes, v.low, v.high, atom=True)


def _narrowed(u: Unit, v: Val, dtype: DType, *, exact: bool = False) -> Val:
    """Back in the narrow type; an `exact` result is a value of it already, so infinity stays."""
    saturate = not exact
    name = u.constant(
        "cast", converter(v.dtype, dtype, "", saturate), (v.dtype, dtype, "", saturate)
    )
    return value(f"{name}({v.code})" + ("[()]" if v.uniform else ""), dtype, v.axes, atom=True)


def _float(u: Unit, op: BinaryOp, a: Val, b: Val) -> Val:
    if is_narrow(a.dtype):
        exact = op in (BinaryOp.MIN, BinaryOp.MAX)
        return _narrowed(u, _float(u, op, wide(u, a), wide(u, b)), a.dtype, exact=exact)
    axes = a.axes | b.axes
    if op in _FLOAT_CALLS:
        return Val(f"{_FLOAT_CALLS[op]}({a.code}, {b.code})", a.dtype, axes, atom=True)
    return Val(f"{a.text} {_SYMBOLS[op]} {b.text}", a.dtype, axes)


def _array(op: BinaryOp, a: Val, b: Val) -> Val:
    """Integers of which at least one differs between lanes."""
    axes = a.axes | b.axes
    low, high = interval(op, a, b)
    least, most = full_range(a.dtype)
    if low < least or high > most:
        low, high = least, most
    if op in _ARRAY_CALLS:
        return Val(f"{_ARRAY_CALLS[op]}({a.code}, {b.code})", a.dtype, axes, low, high, atom=True)
    return Val(f"{a.text} {op.value} {b.text}", a.dtype, axes, low, high)


def _integer(op: BinaryOp, a: Val, b: Val) -> Val:
    """Python ints."""
    if a.constant == 0 and op is BinaryOp.ADD:
        return b
    if b.constant == 0 and op in (BinaryOp.ADD, BinaryOp.SUB):
        return a
    low, high = interval(op, a, b)
    if low == high and a.constant is not None and b.constant is not None:
        return ranged(str(low), a.dtype, low, high, a)
    return ranged(_integer_text(op, a, b), a.dtype, low, high, a)


def _integer_text(op: BinaryOp, a: Val, b: Val) -> str:
    floors = op in (BinaryOp.FLOORDIV, BinaryOp.FLOORMOD)
    if op in _QUOTIENTS | _RESTS and b.low > 0 and (a.low >= 0 or floors):
        return f"{a.text} {'%' if op in _RESTS else '//'} {b.text}"
    if op in _INT_CALLS:
        return f"{_INT_CALLS[op]}({a.code}, {b.code})"
    if op in (BinaryOp.SHL, BinaryOp.SHR) and not _is_count(b):
        name = "int_shl" if op is BinaryOp.SHL else "int_shr"
        return f"{name}({a.code}, {b.code}, {a.dtype.bits})"
    return f"{a.text} {op.value} {b.text}"


Range = tuple[int, int]


def interval(op: BinaryOp, a: Val, b: Val) -> Range:
    """Bounds of the exact result of an operation on integers, before it wraps."""
    bounds = _BOUNDS.get(op)
    known = bounds(a, b) if bounds is not None else None
    if known is not None:
        return known
    low, high = full_range(a.dtype)
    if op is BinaryOp.SHL:
        return low << a.dtype.bits, high << a.dtype.bits
    # The lowest value divided by -1 is one more than the highest.
    return low, high + (op in _QUOTIENTS and a.dtype.is_int)


def _corners(a: Val, b: Val, fn: Callable[[int, int], int]) -> Range:
    ends = [fn(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return min(ends), max(ends)


def _floor_quotient(a: Val, b: Val) -> Range | None:
    return _corners(a, b, lambda x, y: x // y) if b.low > 0 else None


def _quotient(a: Val, b: Val) -> Range | None:
    return _floor_quotient(a, b) if a.low >= 0 else None


def _floor_rest(a: Val, b: Val) -> Range | None:
    if b.low <= 0:
        return None
    return 0, min(b.high - 1, a.high) if a.low >= 0 else b.high - 1


def _rest(a: Val, b: Val) -> Range | None:
    return _floor_rest(a, b) if a.low >= 0 else None


def _common_bits(a: Val, b: Val) -> Range | None:
    tops = [v.high for v in (a, b) if v.low >= 0]
    return (0, min(tops)) if tops else None


def _left(a: Val, b: Val) -> Range | None:
    return _corners(a, b, lambda x, y: x << y) if _is_count(b) else None


def _right(a: Val, b: Val) -> Range | None:
    return _corners(a, b, lambda x, y: x >> y) if _is_count(b) else None


def _is_count(b: Val) -> bool:
    return b.low >= 0 and b.high < b.dtype.bits


_QUOTIENTS = frozenset({BinaryOp.FLOORDIV, BinaryOp.TRUNCDIV, BinaryOp.DIV})
_RESTS = frozenset({BinaryOp.FLOORMOD, BinaryOp.TRUNCMOD})
_BOUNDS: dict[BinaryOp, Callable[[Val, Val], Range | None]] = {
    BinaryOp.ADD: lambda a, b: (a.low + b.low, a.high + b.high),
    BinaryOp.SUB: lambda a, b: (a.low - b.high, a.high - b.low),
    BinaryOp.MUL: lambda a, b: _corners(a, b, lambda x, y: x * y),
    BinaryOp.MIN: lambda a, b: (min(a.low, b.low), min(a.high, b.high)),
    BinaryOp.MAX: lambda a, b: (max(a.low, b.low), max(a.high, b.high)),
    BinaryOp.FLOORDIV: _floor_quotient,
    BinaryOp.TRUNCDIV: _quotient,
    BinaryOp.DIV: _quotient,
    BinaryOp.FLOORMOD: _floor_rest,
    BinaryOp.TRUNCMOD: _rest,
    BinaryOp.BITAND: _common_bits,
    BinaryOp.SHL: _left,
    BinaryOp.SHR: _right,
}


def unary(u: Unit, op: UnaryOp, a: Val) -> Val:
    """`op a`."""
    if op is UnaryOp.NOT:
        return Val(f"not {a.text}" if a.uniform else f"~{a.text}", BOOL, a.axes)
    if a.dtype.is_bool:
        return Val(f"not {a.text}" if a.uniform else f"~{a.text}", BOOL, a.axes)
    symbol = "-" if op is UnaryOp.NEG else "~"
    if a.uniform and a.dtype.is_integer:
        low, high = (-a.high, -a.low) if op is UnaryOp.NEG else (~a.high, ~a.low)
        return ranged(f"{symbol}{a.text}", a.dtype, low, high, a)
    if is_narrow(a.dtype):
        inner = wide(u, a)
        return _narrowed(u, Val(f"{symbol}{inner.text}", inner.dtype, a.axes), a.dtype, exact=True)
    return value(f"{symbol}{a.text}", a.dtype, a.axes)
