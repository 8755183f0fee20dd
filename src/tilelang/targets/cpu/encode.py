"""Floats of at most 16 bits and tfloat32 from and to float32, by arithmetic on bits.

What enters: code words of a format of `dtypes.table`, or float32 values. What leaves: the float32
that a word stands for, exactly; or the word of the format, rounded once by any mode, as
`dtypes.encode` says. The hardware's float16 is used where the host has it: it is the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilelang.dtypes import DType
from tilelang.dtypes.table import Row, Special
from tilelang.targets.cpu.arithmetic import Ops, has_half
from tilelang.targets.cpu.text import Value, element_of, like, number
from tilelang.targets.cpu.types import element_type

NAN, INFINITY, MAGNITUDE, FRACTION = 0x7FC00000, 0x7F800000, 0x7FFFFFFF, 0x7FFFFF


@dataclass(frozen=True)
class How:
    """A float destination, and how values are rounded to it."""

    dst: DType
    mode: str
    saturate: bool
    rbits: Value | None = None

    @property
    def row(self) -> Row:
        """The format."""
        return self.dst.row


# Decoding -----------------------------------------------------------------------------------------


def decode(ops: Ops, x: Value, src: DType) -> Value:
    """The value of any float as float32, of float64 as it is."""
    if element_of(x.type) in ("float", "double"):
        return x
    row = src.row
    if src.name == "bfloat16":
        return ops.from_bits(ops.shl(ops.resize(x, 32), 16))
    if src.name == "float16" and has_half():
        return ops.cast("fpext", ops.cast("bitcast", x, "half"), "float")
    if not row.has_sign:
        return _decode_scale(ops, ops.resize(x, 32))
    if row.exponent_bits <= 5 and row.bias <= 15 and has_half():
        return _decode_half(ops, x, row)
    return _decode_bits(ops, ops.resize(x, 32), row)


def _decode_bits(ops: Ops, word: Value, row: Row) -> Value:
    """Any format with a sign."""
    if row.code_bits < 8:  # a byte may hold other bits above
        word = ops.and_(word, (1 << row.code_bits) - 1)
    size = ops.and_(word, row.sign_word - 1)
    shift = 23 - row.mantissa_bits
    normal = ops.from_bits(ops.add(ops.shl(size, shift), (127 - row.bias) << 23))
    # 2**k with the word as its last places, minus 2**k.
    unit = 2.0 ** (23 + row.emin - row.mantissa_bits)
    small = ops.sub(ops.from_bits(ops.or_(size, _bits_of(ops, word, unit))), unit)
    value = ops.select(ops.cmp("slt", size, 1 << row.mantissa_bits), small, normal)
    bits = _with_special(ops, ops.bits(value), size, row)
    sign = ops.shl(ops.and_(word, row.sign_word), 32 - row.code_bits)
    found = ops.from_bits(ops.or_(bits, sign))
    if row.special is Special.FNUZ:  # its NaN has the word of the sign, and none itself
        return ops.select(ops.cmp("eq", word, row.sign_word), math.nan, found)
    return found


def _decode_half(ops: Ops, x: Value, row: Row) -> Value:
    """A format that fits into float16: its places moved there, and the bias made good for."""
    word = ops.and_(ops.resize(x, 16), (1 << row.code_bits) - 1)
    size = ops.and_(word, row.sign_word - 1)
    bits = ops.shl(size, 10 - row.mantissa_bits)
    if row.bias < 15 and row.special in (Special.IEEE, Special.FN):
        above = 0x7C00 if row.special is Special.IEEE else 0x7E00
        bits = ops.select(ops.cmp("sgt", size, row.max_word), ops.or_(bits, above), bits)
    bits = ops.or_(bits, ops.shl(ops.and_(word, row.sign_word), 16 - row.code_bits))
    if row.special is Special.FNUZ:
        bits = ops.select(ops.cmp("eq", word, row.sign_word), 0x7E00, bits)
    value = ops.cast("fpext", ops.cast("bitcast", bits, "half"), "float")
    return ops.mul(value, 2.0 ** (15 - row.bias)) if row.bias < 15 else value


def _bits_of(ops: Ops, beside: Value, value: float) -> Value:
    """The bits of a float32 constant, beside integers."""
    floats = number(like(beside.type, "float"), value)
    return ops.bits(floats)


def _with_special(ops: Ops, bits: Value, size: Value, row: Row) -> Value:
    """Infinity and NaN of a word that has them above its largest number, else `bits`."""
    if row.special not in (Special.IEEE, Special.FN):
        return bits
    above = ops.or_(ops.shl(size, 23 - row.mantissa_bits), INFINITY)
    return ops.select(
        ops.cmp("sgt", size, row.max_word), above if row.special is Special.IEEE else NAN, bits
    )


def _decode_scale(ops: Ops, word: Value) -> Value:
    """float8_e8m0fnu: 2**(word - 127), the lowest a subnormal float32; NaN for 255."""
    power = ops.shl(word, 23)
    power = ops.select(ops.cmp("eq", word, 0), 0x00400000, power)
    return ops.from_bits(ops.select(ops.cmp("eq", word, 255), NAN, power))


# Encoding -----------------------------------------------------------------------------------------


def encode(ops: Ops, v: Value, how: How) -> Value:
    """A float32 in the format of `how`: float16, bfloat16, tfloat32 or a float of at most 8 bits.

    The result is stored as the destination is.
    """
    row, dst = how.row, how.dst
    if dst.name == "float16" and how.mode == "rn" and has_half():
        return ops.cast("bitcast", ops.cast("fptrunc", v, "half"), "i16")
    bits = ops.bits(v)
    size = ops.and_(bits, MAGNITUDE)
    negative = ops.cmp("slt", bits, 0)
    if row.bias == 127 and how.mode == "rn" and row.has_sign:
        return _stored(ops, _round_whole(ops, v, row), how)
    if not row.has_sign:
        word = _round_scale(ops, size, how)
    elif row.bias == 127:
        word = _round_cut(ops, size, negative, how)
    elif how.mode == "rn":
        word = _round_nearest(ops, size, row)
    else:
        word = _round_any(ops, size, negative, how)
    sign = ops.and_(ops.lshr(bits, 32 - row.code_bits), row.sign_word)
    kinds = Kinds(ops.is_nan(v), ops.cmp("eq", size, INFINITY), negative, sign)
    return _stored(ops, finish(ops, word, kinds, how), how)


def _stored(ops: Ops, word: Value, how: How) -> Value:
    """A code word as the destination is stored."""
    if how.dst.name == "tfloat32":
        return ops.from_bits(ops.shl(word, 13))
    return ops.cast("trunc", word, element_type(how.dst))


@dataclass(frozen=True)
class Kinds:
    """What values are: NaN, infinite, negative, and their sign in place."""

    nan: Value
    inf: Value
    negative: Value
    sign: Value


def finish(ops: Ops, word: Value, kinds: Kinds, how: How) -> Value:
    """Code words with sign, from rounded ones that go on above the largest: the limits and NaN."""
    row = how.row
    top = row.max_word
    if not how.saturate and row.nan_word is not None:
        # Infinity, or NaN in a format without it: both are the word after the largest.
        limit = number(word.type, top + 1)
        if how.mode in ("rz", "rp", "rm"):
            stays = kinds.inf
            if how.mode == "rp" and row.has_sign:
                stays = ops.or_(stays, ops.not_(kinds.negative))
            elif how.mode == "rp":
                stays = ops.or_(stays, number(stays.type, True))
            elif how.mode == "rm" and row.has_sign:
                stays = ops.or_(stays, kinds.negative)
            limit = ops.select(stays, limit, top)
        word = ops.umin(word, limit)
    else:
        word = ops.umin(word, top)
    word = ops.select(kinds.nan, top if row.nan_word is None else row.nan_word, word)
    if not row.has_sign:
        return word
    sign = kinds.sign
    if row.special is Special.FNUZ:
        sign = ops.select(ops.cmp("eq", word, 0), 0, sign)
    elif row.special is Special.FINITE:
        sign = ops.select(kinds.nan, 0, sign)
    return ops.or_(word, sign)


def _bias(ops: Ops, negative: Value, mode: str, half: Value, last: Value) -> Value | int:
    """What is added before the places below are cut; `half` of the last place, and its bit."""
    match mode:
        case "rn":
            return ops.add(ops.sub(half, 1), last)
        case "rna":
            return half
        case "rp" | "rm":
            below = ops.sub(ops.shl(half, 1), 1)
            away = negative if mode == "rm" else ops.not_(negative)
            return ops.select(away, below, 0)
        case _:
            return 0


def _round_whole(ops: Ops, v: Value, row: Row) -> Value:
    """bfloat16 or tfloat32, to nearest: a carry out of the significand ends at infinity, and never
    in the sign.
    """
    bits, shift = ops.bits(v), 23 - row.mantissa_bits
    upper = ops.lshr(bits, shift)
    total = ops.add(ops.add(bits, (1 << (shift - 1)) - 1), ops.and_(upper, 1))
    quiet = ops.or_(upper, 1 << (row.mantissa_bits - 1))
    return ops.select(ops.is_nan(v), quiet, ops.lshr(total, shift))


def _round_cut(ops: Ops, size: Value, negative: Value, how: How) -> Value:
    """A format with the exponents of float32, whose words are its upper bits."""
    shift = 23 - how.row.mantissa_bits
    if how.rbits is not None:
        bias: Value | int = ops.lshr(how.rbits, 32 - shift)
    else:
        last = ops.and_(ops.lshr(size, shift), 1)
        bias = _bias(ops, negative, how.mode, number(size.type, 1 << (shift - 1)), last)
    return ops.lshr(ops.add(size, bias), shift)


def _round_nearest(ops: Ops, size: Value, row: Row) -> Value:
    """To nearest, ties to even; subnormal results by a sum in float32 that rounds to their unit."""
    shift = 23 - row.mantissa_bits
    last = ops.and_(ops.lshr(size, shift), 1)
    rebias = ((127 - row.bias) << 23) - (1 << (shift - 1)) + 1
    normal = ops.lshr(ops.sub(ops.add(size, last), rebias), shift)
    unit = 2.0 ** (23 + row.emin - row.mantissa_bits)
    total = ops.bits(ops.add(ops.from_bits(size), unit))
    small = ops.sub(total, _bits_of(ops, size, unit))
    return ops.select(ops.cmp("slt", size, (row.emin + 127) << 23), small, normal)


def _round_any(ops: Ops, size: Value, negative: Value, how: How) -> Value:
    """Any mode, by the significand shifted as far as its exponent asks."""
    row = how.row
    field = ops.lshr(size, 23)
    hidden = ops.umin(field, 1)
    significand = ops.or_(ops.and_(size, FRACTION), ops.shl(hidden, 23))
    exponent = ops.umax(field, 1)
    lowest = row.emin + 127
    below = ops.sub(ops.umax(exponent, lowest), exponent)
    shift = ops.add(below, 23 - row.mantissa_bits)
    near = ops.umin(shift, 31)  # the significand has 24 bits
    if how.rbits is not None:
        far = ops.umin(ops.sub(ops.umax(shift, 32), 32), 31)
        inside = ops.shl(significand, ops.and_(ops.sub(32, near), 31))
        rest = ops.select(ops.cmp("ult", shift, 32), inside, ops.lshr(significand, far))
        carry = ops.cmp("ult", ops.add(rest, how.rbits), rest)
        kept = ops.add(ops.lshr(significand, near), ops.resize(carry, 32))
    else:
        last = ops.and_(ops.lshr(significand, near), 1)
        half = ops.shl(number(size.type, 1), ops.sub(near, 1))
        bias = _bias(ops, negative, how.mode, half, last)
        kept = ops.lshr(ops.add(significand, bias), near)
    steps = ops.sub(ops.umax(exponent, lowest), lowest)
    return ops.add(kept, ops.shl(steps, row.mantissa_bits))


def _round_scale(ops: Ops, size: Value, how: How) -> Value:
    """float8_e8m0fnu: the exponent of the magnitude; what is below 2**-127 becomes it."""
    half, least = 0x00400000, 0x00400000  # least: the bits of 2**-127, a subnormal float32
    subnormal = ops.cmp("slt", size, 1 << 23)
    if how.rbits is not None:
        rest = ops.select(subnormal, ops.shl(size, 10), ops.shl(size, 9))
        carry = ops.cmp("ult", ops.add(rest, how.rbits), rest)
        up = ops.add(ops.lshr(size, 23), ops.resize(carry, 32))
    elif how.mode == "rp":
        up = ops.lshr(ops.add(size, FRACTION), 23)
    elif how.mode in ("rn", "rna"):
        up = ops.lshr(ops.add(size, ops.select(subnormal, number(size.type, half >> 1), half)), 23)
    else:
        return ops.lshr(size, 23)
    return ops.select(ops.cmp("sgt", size, least), up, 0)
