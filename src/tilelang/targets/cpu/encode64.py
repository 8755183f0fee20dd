"""Rounding of exact 64-bit values to any float format: the rare conversions.

What enters: float64 or 64-bit integers. What leaves: values of a float format, rounded once in any
mode, stochastic ones among them. The steps are those of `dtypes.encode`, which says why.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.targets.cpu.arithmetic import Ops
from tilelang.targets.cpu.encode import How, Kinds, finish
from tilelang.targets.cpu.text import Value, like, mangled, number
from tilelang.targets.cpu.types import element_type

_FRACTION = (1 << 52) - 1


@dataclass(frozen=True)
class Exact:
    """Numbers `(-1)**negative * significand * 2**(exponent - 63)`, or NaN, or infinity."""

    negative: Value
    significand: Value
    exponent: Value
    nan: Value
    inf: Value


def exact_double(ops: Ops, v: Value) -> Exact:
    """The parts of a float64."""
    bits = ops.bits(v)
    field = ops.and_(ops.lshr(bits, 52), 0x7FF)
    fraction = ops.and_(bits, _FRACTION)
    special = ops.cmp("eq", field, 0x7FF)
    none = ops.cmp("eq", fraction, 0)
    return Exact(
        negative=ops.cmp("slt", bits, 0),
        significand=ops.or_(ops.shl(fraction, 11), ops.shl(ops.umin(field, 1), 63)),
        exponent=ops.sub(ops.umax(field, 1), 1023),
        nan=ops.and_(special, ops.not_(none)),
        inf=ops.and_(special, none),
    )


def exact_int(ops: Ops, x: Value, *, signed: bool) -> Exact:
    """The parts of a 64-bit integer."""
    never = number(like(x.type, "i1"), False)
    negative = ops.cmp("slt", x, 0) if signed else never
    size = ops.select(negative, ops.neg(x), x)
    zeros = ops.code.call(
        ops.code.module.declare(f"llvm.ctlz.{mangled(x.type)}", x.type, [x.type, "i1"]),
        x.type,
        [size, Value("i1", "false")],
    )
    shift = ops.umin(zeros, 63)
    zero = ops.cmp("eq", size, 0)
    exponent = ops.select(zero, -1074, ops.sub(63, shift))
    return Exact(negative, ops.shl(size, shift), exponent, never, never)


def encode64(ops: Ops, x: Exact, how: How) -> Value:
    """The value of the format of `how`, stored as the destination is."""
    row, dst = how.row, how.dst
    negative = x.negative if row.has_sign else number(x.negative.type, False)
    word = _round(ops, x, negative, how)
    sign = ops.select(negative, number(word.type, row.sign_word), 0)
    word = finish(ops, word, Kinds(x.nan, x.inf, negative, sign), how)
    if dst.name == "float64":
        return ops.from_bits(word)
    if dst.name == "float32":
        return ops.from_bits(ops.resize(word, 32))
    if dst.name == "tfloat32":
        return ops.from_bits(ops.shl(ops.resize(word, 32), 13))
    return ops.cast("trunc", word, element_type(dst))


def _round(ops: Ops, x: Exact, negative: Value, how: How) -> Value:
    row, significand = how.row, x.significand
    below = ops.smax(ops.sub(row.emin, x.exponent), 0)
    shift = ops.add(below, 63 - row.mantissa_bits)
    near = ops.umin(shift, 63)
    inside = ops.cmp("ult", shift, 64)
    kept = ops.select(inside, ops.lshr(significand, near), 0)
    wide = ops.umin(ops.smax(ops.sub(shift, 64), 0), 63)
    lost = ops.cmp("ne", ops.shl(ops.shl(significand, ops.sub(63, wide)), 1), 0)
    lost = ops.and_(lost, ops.cmp("ugt", wide, 0))
    small = ops.or_(ops.lshr(significand, wide), ops.resize(lost, 64))
    rest = ops.select(inside, ops.shl(significand, ops.and_(ops.sub(64, near), 63)), small)
    word = ops.add(kept, ops.resize(_carries(ops, kept, rest, negative, how), 64))
    steps = ops.sub(ops.smax(x.exponent, row.emin), row.emin)
    word = ops.add(word, ops.shl(steps, row.mantissa_bits))
    return word if row.has_sign else ops.sub(ops.umax(word, 1), 1)


def _carries(ops: Ops, kept: Value, rest: Value, negative: Value, how: How) -> Value:
    half = 1 << 63
    match how.mode:
        case "rn":
            tie = ops.and_(ops.cmp("eq", rest, half), ops.cmp("ne", ops.and_(kept, 1), 0))
            return ops.or_(ops.cmp("ugt", rest, half), tie)
        case "rna":
            return ops.cmp("uge", rest, half)
        case "rp":
            return ops.and_(ops.cmp("ne", rest, 0), ops.not_(negative))
        case "rm":
            return ops.and_(ops.cmp("ne", rest, 0), negative)
        case "rs" if how.rbits is not None:
            total = ops.add(ops.lshr(rest, 32), ops.resize(how.rbits, 64))
            return ops.cmp("uge", total, 1 << 32)
        case _:
            return number(negative.type, False)
