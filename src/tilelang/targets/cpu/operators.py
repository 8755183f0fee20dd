"""Operators and bit casts as code.

What enters: an operator of the IR and values of one dtype: bool, an integer of whole bytes, float32
or float64. What leaves: the value, by the rules of docs/language.md. Nothing traps and nothing
branches: a division by zero gives 0, a shift by the width or more 0 or the sign.
"""

from __future__ import annotations

import re

from tilelang.dtypes import DType
from tilelang.errors import InternalError
from tilelang.ir.expr import BinaryOp, UnaryOp
from tilelang.targets.cpu.arithmetic import Ops, has_fma
from tilelang.targets.cpu.text import Code, Value, element_of, int_bits, lanes_of, vector
from tilelang.targets.cpu.types import value_type

_PREDICATES = {
    BinaryOp.EQ: ("eq", "oeq"),
    BinaryOp.NE: ("ne", "une"),
    BinaryOp.LT: ("lt", "olt"),
    BinaryOp.LE: ("le", "ole"),
    BinaryOp.GT: ("gt", "ogt"),
    BinaryOp.GE: ("ge", "oge"),
}
_INTEGER = {
    BinaryOp.ADD: "add",
    BinaryOp.SUB: "sub",
    BinaryOp.MUL: "mul",
    BinaryOp.BITAND: "and",
    BinaryOp.BITOR: "or",
    BinaryOp.BITXOR: "xor",
}
_FLOAT = {
    BinaryOp.ADD: "fadd",
    BinaryOp.SUB: "fsub",
    BinaryOp.MUL: "fmul",
    BinaryOp.DIV: "fdiv",
}
# Arithmetic of bools is that of 0 and 1, the result being whether it is not 0.
_BOOL = {
    BinaryOp.AND: "and",
    BinaryOp.OR: "or",
    BinaryOp.BITAND: "and",
    BinaryOp.BITOR: "or",
    BinaryOp.BITXOR: "xor",
    BinaryOp.MIN: "and",
    BinaryOp.MAX: "or",
    BinaryOp.ADD: "or",
    BinaryOp.SUB: "xor",
    BinaryOp.MUL: "and",
}


def binary(code: Code, op: BinaryOp, a: Value, b: Value, dtype: DType) -> Value:
    """`a op b` of operands of type `dtype`; comparisons and logical operators give bools.

    InternalError for an operator that the type does not have.
    """
    ops = Ops(code)
    floating = element_of(a.type) in ("float", "double")
    if op in _PREDICATES:
        whole, real = _PREDICATES[op]
        signed = "" if whole in ("eq", "ne") else "s" if dtype.is_int else "u"
        return ops.cmp(real if floating else signed + whole, a, b)
    if dtype.is_bool:
        table = _BOOL
    elif floating:
        if op not in _FLOAT:
            return _float(ops, op, a, b)
        table = _FLOAT
    elif dtype.is_float or dtype.is_subbyte:
        raise InternalError(f"`{op.value}` of {dtype}")
    elif op not in _INTEGER:
        return _integer(ops, op, a, b, signed=dtype.is_int)
    else:
        table = _INTEGER
    if op not in table:
        raise InternalError(f"`{op.value}` of {dtype}")
    return code.op(table[op], a, b)


def unary(code: Code, op: UnaryOp, a: Value, dtype: DType) -> Value:
    """`op a`. InternalError for a type that does not have it."""
    ops = Ops(code)
    if dtype.is_bool:
        return ops.not_(a)
    if op is UnaryOp.NEG and (not dtype.is_float or element_of(a.type) in ("float", "double")):
        return ops.neg(a)
    if op is UnaryOp.BITNOT and not dtype.is_float:
        return ops.not_(a)
    raise InternalError(f"`{op.value}` of {dtype}")


# Floats -------------------------------------------------------------------------------------------


def _float(ops: Ops, op: BinaryOp, a: Value, b: Value) -> Value:
    match op:
        case BinaryOp.MIN:
            return _extreme(ops, "olt", a, b)
        case BinaryOp.MAX:
            return _extreme(ops, "ogt", a, b)
        case BinaryOp.TRUNCDIV:
            return ops.code.intrinsic("trunc", ops.div(a, b))
        case BinaryOp.TRUNCMOD:
            return remainder(ops, a, b)
        case BinaryOp.FLOORDIV:
            return ops.inlined("floordiv", [a, b], a.type, _floordiv)
        case BinaryOp.FLOORMOD:
            return ops.inlined("floormod", [a, b], a.type, _floormod)
        case _:
            raise InternalError(f"`{op.value}` of floats")


def _extreme(ops: Ops, predicate: str, a: Value, b: Value) -> Value:
    """The smaller or larger one; of a NaN and a number the number."""
    if is_number(a):
        a, b = b, a
    found = ops.select(ops.cmp(predicate, a, b), a, b)  # b if either is NaN
    return found if is_number(b) else ops.select(ops.is_nan(b), a, found)


def is_number(x: Value) -> bool:
    """Whether a float is a literal that is not NaN."""
    found = re.search(r"0x([0-9A-F]{16})", x.text)
    return found is not None and int(found[1], 16) & (2**63 - 1) <= 0x7FF0000000000000


def remainder(ops: Ops, a: Value, b: Value) -> Value:
    """C's fmod: exact, with the sign of a. That of float64 is a call of the C library."""
    if element_of(a.type) == "double":
        return ops.code.op("frem", a, b)
    return ops.inlined("fmod", [a, b], a.type, _long_division)


def _long_division(ops: Ops, a: Value, b: Value) -> Value:
    """fmod of float32 in float64, some binary places of the quotient at a time.

    A digit of the quotient may be wrong by one: the rest is then negative or too large, which the
    next digit makes good. Each rest is exact: it has hardly more places than b, and none below the
    last one of a and b.
    """
    inf = float("inf")
    places = 48 if has_fma() else 28  # a digit times b must be exact where it is rounded by itself
    rest, by = (ops.double(ops.abs(x)) for x in (a, b))
    inverse = ops.div(1.0, by)
    for k in range(276 // places, -1, -1):  # the largest quotient is below 2**277
        scale = 2.0 ** (k * places)
        digit = ops.code.intrinsic("floor", ops.mul(rest, ops.mul(inverse, 1 / scale)))
        rest = ops.fma(ops.neg(digit), ops.mul(by, scale), rest)
    rest = ops.select(ops.cmp("olt", rest, 0.0), ops.add(rest, by), rest)
    rest = ops.select(ops.cmp("oge", rest, by), ops.sub(rest, by), rest)
    found = ops.copysign(ops.single(rest), a)
    # Of an infinite divisor, a itself is the rest; of zero, and of an infinite a, there is none.
    whole = ops.and_(ops.cmp("oeq", ops.abs(b), inf), ops.cmp("olt", ops.abs(a), inf))
    return ops.select(whole, a, found)


def _remainder(ops: Ops, a: Value, b: Value) -> tuple[Value, Value]:
    """C's remainder, and whether Python's differs from it by b."""
    rest = remainder(ops, a, b)
    apart = ops.cmp("ne", ops.cmp("olt", b, 0.0), ops.cmp("olt", rest, 0.0))
    return rest, ops.and_(ops.cmp("une", rest, 0.0), apart)


def _floormod(ops: Ops, a: Value, b: Value) -> Value:
    """As Python's and NumPy's: the sign of b, a zero too; NaN for a divisor of zero."""
    rest, moved = _remainder(ops, a, b)
    whole = ops.select(moved, ops.add(rest, b), rest)
    exact = ops.select(ops.cmp("oeq", rest, 0.0), ops.copysign(rest, b), whole)
    return ops.select(ops.cmp("oeq", b, 0.0), rest, exact)


def _floordiv(ops: Ops, a: Value, b: Value) -> Value:
    """As Python's and NumPy's: the floor of the exact quotient; a / b for a divisor of zero."""
    rest, moved = _remainder(ops, a, b)
    near = ops.div(ops.sub(a, rest), b)
    near = ops.select(moved, ops.sub(near, 1.0), near)
    floor = ops.code.intrinsic("floor", near)
    floor = ops.select(ops.cmp("ogt", ops.sub(near, floor), 0.5), ops.add(floor, 1.0), floor)
    quotient = ops.div(a, b)
    zero = ops.copysign(ops.sub(near, near), quotient)
    found = ops.select(ops.cmp("oeq", near, 0.0), zero, floor)
    return ops.select(ops.cmp("oeq", b, 0.0), quotient, found)


# Integers -----------------------------------------------------------------------------------------


def literal(x: Value) -> int | None:
    """The value of an integer constant, the same in all lanes."""
    found = re.fullmatch(r"(?:splat \(i\d+ )?(-?\d+)\)?", x.text)
    return None if found is None else int(found[1])


def _integer(ops: Ops, op: BinaryOp, a: Value, b: Value, *, signed: bool) -> Value:
    match op:
        case BinaryOp.MIN:
            return ops.smin(a, b) if signed else ops.umin(a, b)
        case BinaryOp.MAX:
            return ops.smax(a, b) if signed else ops.umax(a, b)
        case BinaryOp.SHL | BinaryOp.SHR:
            return _shift(ops, op, a, b, signed=signed)
        case BinaryOp.FLOORDIV | BinaryOp.TRUNCDIV:
            return _quotient(ops, a, b, signed=signed, floor=op is BinaryOp.FLOORDIV)
        case BinaryOp.FLOORMOD | BinaryOp.TRUNCMOD:
            return _modulus(ops, a, b, signed=signed, floor=op is BinaryOp.FLOORMOD)
        case _:
            raise InternalError(f"`{op.value}` of integers")


def _shift(ops: Ops, op: BinaryOp, a: Value, b: Value, *, signed: bool) -> Value:
    """A count that is negative or too large gives 0, or the sign."""
    bits = int_bits(a.type)
    if op is BinaryOp.SHR and signed:
        return ops.ashr(a, ops.umin(b, bits - 1))
    moved = ops.shl(a, b) if op is BinaryOp.SHL else ops.lshr(a, b)
    return ops.select(ops.cmp("ult", b, bits), moved, 0)


def _divisor(ops: Ops, a: Value, b: Value, *, signed: bool) -> Value:
    """`b`, or 1 where a division would trap: by 0, and of the lowest integer by -1."""
    known = literal(b)
    if known is not None and known not in (0, -1):
        return b
    bad = ops.cmp("eq", b, 0)
    if signed:
        lowest = ops.cmp("eq", a, -(1 << (int_bits(a.type) - 1)))
        bad = ops.or_(bad, ops.and_(lowest, ops.cmp("eq", b, -1)))
    return ops.select(bad, 1, b)


def _power(b: Value) -> int | None:
    """The exponent of a literal that is a power of two."""
    known = literal(b)
    if known is None or known <= 0 or known & (known - 1):
        return None
    return known.bit_length() - 1


def _quotient(ops: Ops, a: Value, b: Value, *, signed: bool, floor: bool) -> Value:
    """0 for a divisor of 0. The quotient of the lowest integer and -1 wraps: it is by 1."""
    power = _power(b)
    if floor and power is not None:
        return ops.ashr(a, power) if signed else ops.lshr(a, power)
    by = _divisor(ops, a, b, signed=signed)
    if _by_floats(b):
        found = _float_quotient(ops, a, by, signed=signed, floor=floor)
        return ops.select(ops.cmp("eq", b, 0), 0, found)
    found = ops.code.op("sdiv" if signed else "udiv", a, by)
    if signed and floor:
        rest = ops.sub(a, ops.mul(found, by))
        found = ops.sub(found, ops.resize(_apart(ops, rest, by), int_bits(a.type)))
    return found if by is b else ops.select(ops.cmp("eq", b, 0), 0, found)


def _modulus(ops: Ops, a: Value, b: Value, *, signed: bool, floor: bool) -> Value:
    """0 for a divisor of 0, since any integer is divisible by 1."""
    power = _power(b)
    if floor and power is not None:
        return ops.and_(a, (1 << power) - 1)
    by = _divisor(ops, a, b, signed=signed)
    if _by_floats(b):
        found = _float_quotient(ops, a, by, signed=signed, floor=floor)
        return ops.sub(a, ops.mul(found, by))
    rest = ops.code.op("srem" if signed else "urem", a, by)
    if signed and floor:
        rest = ops.select(_apart(ops, rest, by), ops.add(rest, by), rest)
    return rest


def _by_floats(b: Value) -> bool:
    """Whether integers are divided as floats: vectors have no other division, and by a constant
    LLVM multiplies.
    """
    return lanes_of(b.type) > 1 and int_bits(b.type) <= 32 and literal(b) is None


def _float_quotient(ops: Ops, a: Value, by: Value, *, signed: bool, floor: bool) -> Value:
    """a / by, which is no integer by at least 1/by: a relative distance of 1/a, far above the
    error of a quotient of floats with more bits than a.
    """
    element = "float" if int_bits(a.type) <= 16 else "double"
    name = "si" if signed else "ui"
    x, y = (ops.cast(f"{name}tofp", v, element) for v in (a, by))
    found = ops.div(x, y)
    if signed and floor:
        found = ops.code.intrinsic("floor", found)
    return ops.cast(f"fpto{name}", found, f"i{int_bits(a.type)}")


def _apart(ops: Ops, rest: Value, by: Value) -> Value:
    """Whether a remainder is not zero and has another sign than the divisor."""
    return ops.and_(ops.cmp("ne", rest, 0), ops.cmp("slt", ops.xor(rest, by), 0))


# Bits ---------------------------------------------------------------------------------------------


def bitcast(code: Code, x: Value, src: DType, dst: DType) -> Value:
    """The same bits as another dtype of the same size; lane 0 has the lowest."""
    kind = value_type(dst)
    if x.type == kind and src.is_bool == dst.is_bool and _used(src) <= _used(dst):
        return x
    ops = Ops(code)
    packed = _packed(ops, x, src)
    if dst.is_bool:
        return ops.cmp("ne", code.cast("bitcast", packed, vector("i8", dst.lanes)), 0)
    if dst.is_subbyte:
        parts = code.cast("bitcast", packed, vector(f"i{dst.bits}", dst.lanes))
        return code.cast("zext", parts, kind)
    found = code.cast("bitcast", packed, kind)
    return found if _used(dst) >= 8 else ops.and_(found, (1 << _used(dst)) - 1)


def _used(dtype: DType) -> int:
    """How many bits of a lane count."""
    return dtype.row.code_bits if dtype.is_float and dtype.bits <= 8 else dtype.bits


def _packed(ops: Ops, x: Value, src: DType) -> Value:
    """The lanes with no bits between them."""
    if src.is_bool:
        return ops.resize(x, 8)
    if src.is_subbyte:
        return ops.cast("trunc", x, f"i{src.bits}")
    return ops.and_(x, (1 << _used(src)) - 1) if _used(src) < 8 else x
