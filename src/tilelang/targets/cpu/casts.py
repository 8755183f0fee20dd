"""Conversion by value between any two element types, as code.

What enters: a value of one dtype. What leaves: the value of another, by exactly the rules of
`dtypes.cast`, which are stated again here in instructions; the tests compare all code words.

A float of at most 16 bits is decoded to float32, which holds all of them, and encoded from float32
by integer arithmetic on its bits. float64 and 64-bit integers go there by *rounding to odd*: what
is inexact gets an odd last place, so that rounding it again, to at least two bits fewer, rounds the
exact value. What that does not cover is encoded from 64 bits, which is slow and rare.
"""

from __future__ import annotations

from tilelang.dtypes import DType
from tilelang.dtypes.table import Special
from tilelang.errors import InternalError
from tilelang.targets.cpu.arithmetic import Ops, format_of
from tilelang.targets.cpu.encode import How, decode, encode
from tilelang.targets.cpu.encode64 import encode64, exact_double, exact_int
from tilelang.targets.cpu.text import (
    Code,
    Value,
    element_of,
    lanes_of,
    like,
    number,
)
from tilelang.targets.cpu.types import value_type


def convert(  # noqa: PLR0913 - the arguments of dtypes.cast, and where to put the code
    code: Code,
    x: Value,
    src: DType,
    dst: DType,
    rounding: str = "",
    saturate: bool = True,
    rbits: Value | None = None,
) -> Value:
    """`x` of type `src` as a value of type `dst`: the rules and the arguments of `dtypes.cast`.

    `rbits` are uint32, of as many lanes as `x` or one. InternalError where there is no such cast.
    """
    src, dst = src.base, dst.base
    if (src.is_handle and dst.is_float) or (src.is_float and dst.is_handle):
        raise InternalError(f"a cast of {src} to {dst}")
    if (rounding == "rs") != (rbits is not None) or (rbits is not None and not dst.is_float):
        raise InternalError(f"a cast of {src} to {dst} with rounding {rounding!r}")
    if rbits is None and src.row.encoding == dst.row.encoding:
        return x
    mode, limit = rounding or dst.row.rounding, saturate and dst.is_narrow_float
    if rbits is None and _is_plain(src) and _is_plain(dst):
        return _converted(Ops(code), x, src, How(dst, mode, limit))
    args = [x]
    if rbits is not None:
        args.append(code.splat(rbits, lanes_of(x.type) // lanes_of(rbits.type)))
    name = f"cast.{src}.{dst}.{mode}{'.sat' if limit else ''}"

    def body(ops: Ops, value: Value, random: Value | None = None) -> Value:
        return _converted(ops, value, src, How(dst, mode, limit, random))

    return Ops(code).inlined(name, args, like(x.type, value_type(dst)), body)


def _is_plain(dtype: DType) -> bool:
    """A type whose conversions are few instructions."""
    return not dtype.is_float or dtype.bits >= 32


def _converted(ops: Ops, x: Value, src: DType, how: How) -> Value:
    dst = how.dst
    if dst.is_bool:
        return _truth(ops, x, src)
    if src.is_float:
        value = decode(ops, x, src)
        return _from_float(ops, value, how) if dst.is_float else _float_to_int(ops, value, dst)
    whole = _whole(ops, x, src)
    if dst.is_float:
        return _int_to_float(ops, whole, src, how)
    return _sized(ops, whole, dst, signed=src.is_int)


# Integers -----------------------------------------------------------------------------------------


def _truth(ops: Ops, x: Value, src: DType) -> Value:
    """Whether x != 0; NaN is true."""
    if element_of(x.type) in ("float", "double"):
        return ops.cmp("une", x, 0.0)
    if src.is_float and not src.row.has_sign:
        return number(like(x.type, "i1"), True)
    if src.is_float:
        sign = 0 if src.row.special is Special.FNUZ else src.row.sign_word
        return ops.cmp("ne", ops.and_(x, _used(src) & ~sign), 0)
    return ops.cmp("ne", _whole(ops, x, src), 0)


def _used(dtype: DType) -> int:
    """The bits of an element that count."""
    return (1 << (dtype.row.code_bits if dtype.is_float else dtype.bits)) - 1


def _whole(ops: Ops, x: Value, src: DType) -> Value:
    """An integer of fewer than 8 bits as one of 8; others as they are."""
    if not src.is_subbyte:
        return x
    if src.is_uint:
        return ops.and_(x, _used(src))
    spare = 8 - src.bits
    return ops.ashr(ops.shl(x, spare), spare)


def _sized(ops: Ops, x: Value, dst: DType, *, signed: bool) -> Value:
    """An integer modulo 2**bits."""
    found = ops.resize(x, 8 if dst.is_subbyte else dst.bits, signed=signed)
    return ops.and_(found, _used(dst)) if dst.is_subbyte else found


def _float_to_int(ops: Ops, v: Value, dst: DType) -> Value:
    """Towards zero, saturating; NaN becomes 0.

    LLVM's own saturating conversion does the same, but takes vectors apart.
    """
    signed, highest = dst.is_int, int(dst.max)
    unsaid = highest.bit_length() - format_of(v).places - 1  # places that the float does not have
    top = highest if unsaid <= 0 else highest >> unsaid << unsaid
    inside = ops.at_least(ops.at_most(v, float(top)), float(dst.min))
    inside = ops.select(ops.is_nan(v), 0.0, inside)
    if dst.bits < 32:
        return _sized(ops, ops.cast("fptosi", inside, "i32"), dst, signed=True)
    found = ops.cast("fptosi" if signed else "fptoui", inside, f"i{dst.bits}")
    if top == highest:
        return found
    above = ops.cmp("ogt", v, float(top))
    return ops.select(above, highest if signed else -1, found)


def _int_to_float(ops: Ops, x: Value, src: DType, how: How) -> Value:
    """Rounded once from the exact integer."""
    convert_to = "sitofp" if src.is_int else "uitofp"
    if src.bits <= 16:  # float32 has all of them
        return _from_float(ops, ops.cast(convert_to, x, "float"), how)
    if how.mode == "rn" and how.dst.name in ("float32", "float64"):
        return ops.cast(convert_to, x, value_type(how.dst))
    if src.bits == 32:
        return _from_float(ops, ops.cast(convert_to, x, "double"), how)
    if how.dst.name == "float64" or how.rbits is not None:
        return encode64(ops, exact_int(ops, x, signed=src.is_int), how)
    return _from_float(ops, _int_to_odd(ops, x, signed=src.is_int), how)


def _int_to_odd(ops: Ops, x: Value, *, signed: bool) -> Value:
    """A 64-bit integer as float64, rounded to odd."""
    negative = ops.cmp("slt", x, 0)
    size = ops.select(negative, ops.neg(x), x) if signed else x
    rest = ops.cmp("ne", ops.and_(size, 0x7FF), 0)
    odd = ops.or_(ops.and_(size, ~0x7FF), ops.select(rest, number(x.type, 0x800), 0))
    found = ops.cast("uitofp", ops.select(ops.cmp("ult", size, 1 << 53), size, odd), "double")
    return ops.select(negative, ops.neg(found), found) if signed else found


# Floats -------------------------------------------------------------------------------------------


def _from_float(ops: Ops, v: Value, how: How) -> Value:
    """A float32 or float64 in the destination."""
    dst = how.dst
    if element_of(v.type) == "float":
        if dst.name == "float64":
            return ops.double(v)
        return v if dst.name == "float32" else encode(ops, v, how)
    if dst.name == "float64":
        return v
    if how.rbits is not None or (dst.name == "float32" and how.mode == "rna"):
        return encode64(ops, exact_double(ops, v), how)
    if dst.name == "float32":
        return narrowed(ops, v, how.mode)
    return encode(ops, _to_odd(ops, v), how)


def _stepped(ops: Ops, near: Value, up: Value, down: Value) -> Value:
    """A float32 whose magnitude takes a step up or down where asked."""
    bits = ops.bits(near)
    more = ops.select(up, ops.add(bits, 1), bits)
    return ops.from_bits(ops.select(down, ops.sub(bits, 1), more))


def narrowed(ops: Ops, v: Value, mode: str) -> Value:
    """A float64 as float32, rounded by rn, rz, rp or rm."""
    near = ops.single(v)
    if mode == "rn":
        return near
    back = ops.double(near)
    if mode == "rz":
        too_far = ops.cmp("ogt", ops.abs(back), ops.abs(v))
        return ops.from_bits(ops.sub(ops.bits(near), ops.resize(too_far, 32)))
    wrong = ops.cmp("olt" if mode == "rp" else "ogt", back, v)
    positive = ops.cmp("sge", ops.bits(v), 0)
    grows = positive if mode == "rp" else ops.not_(positive)
    return _stepped(ops, near, ops.and_(wrong, grows), ops.and_(wrong, ops.not_(grows)))


def _to_odd(ops: Ops, v: Value) -> Value:
    """A float64 as float32, rounded to odd; what is too large becomes the largest float32."""
    near = ops.single(v)
    back = ops.double(near)
    even = ops.cmp("eq", ops.and_(ops.bits(near), 1), 0)
    low = ops.and_(even, ops.cmp("olt", ops.abs(back), ops.abs(v)))
    high = ops.and_(even, ops.cmp("ogt", ops.abs(back), ops.abs(v)))
    return _stepped(ops, near, low, high)
