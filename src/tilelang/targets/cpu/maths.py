"""The functions that `ir.Call` names, as code.

What enters: the name of a row of `ir/functions.py`, and values of one dtype: float32, float64, or
an integer of whole bytes. What leaves: the result; its meaning is `emulator/numerics.py`.

float32 functions are straight-line code without calls, so that loops around them are vectorised;
so are the float64 functions but for those in `_LIBRARY` and fmod, which are calls of the C library,
whose symbols the running process has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import InternalError
from tilelang.targets.cpu import exponential as e
from tilelang.targets.cpu import trigonometry as t
from tilelang.targets.cpu.arithmetic import Ops
from tilelang.targets.cpu.exact import ieee, inverse, inverse_root
from tilelang.targets.cpu.operators import is_number, remainder
from tilelang.targets.cpu.text import Code, Value, element_of, int_bits, lanes_of, mangled

Body = Callable[..., Value]


def function(
    code: Code, name: str, args: Sequence[Value], dtype: DType, params: tuple[Any, ...] = ()
) -> Value:
    """The value of `Call(name)` on operands of type `dtype`.

    InternalError for a function that operands of this type do not have.
    """
    ops, values = Ops(code), list(args)
    element = element_of(values[0].type)
    floating = element in ("float", "double")
    if name.startswith("ieee_") and floating:
        return ieee(ops, name.removeprefix("ieee_"), values, str(params[0]) if params else "rn")
    if floating and name in _DIRECT:
        return _DIRECT[name](ops, *values)
    if not dtype.is_float and name in _INTEGER:
        return _INTEGER[name](ops, dtype, *values)
    if element == "double" and name in _LIBRARY:
        return _called(ops, name, values)
    body = _BODIES.get(name) if floating else None
    if body is None:
        raise InternalError(f"{name} of {dtype}")
    return ops.inlined(name, values, values[0].type, body)


# Floats: an instruction or two --------------------------------------------------------------------


def _intrinsic(name: str) -> Body:
    def body(ops: Ops, *xs: Value) -> Value:
        return ops.code.intrinsic(name, *xs)

    return body


def _clamp(ops: Ops, x: Value, low: Value, high: Value) -> Value:
    """min(max(x, low), high); NaN if any of them is."""
    found = ops.at_most(ops.at_least(x, low), high)
    if is_number(low) and is_number(high):
        return found
    return ops.select(ops.cmp("uno", low, high), ops.add(low, high), found)


def _finite(ops: Ops, x: Value) -> Value:
    return ops.cmp("olt", ops.abs(x), e.INFINITY)


def _infinite(ops: Ops, x: Value) -> Value:
    return ops.cmp("oeq", ops.abs(x), e.INFINITY)


_DIRECT: dict[str, Body] = {
    "abs": _intrinsic("fabs"),
    "floor": _intrinsic("floor"),
    "ceil": _intrinsic("ceil"),
    "trunc": _intrinsic("trunc"),
    "round": _intrinsic("roundeven"),
    "round_away": _intrinsic("round"),
    "sqrt": _intrinsic("sqrt"),
    "copysign": Ops.copysign,
    "fma": _intrinsic("fma"),
    "fmul": Ops.mul,
    "fmod": remainder,
    "fast_rcp": inverse,
    "rsqrt": inverse_root,
    "clamp": _clamp,
    "isnan": Ops.is_nan,
    "isinf": _infinite,
    "isfinite": _finite,
}


# Floats: bodies of helpers ------------------------------------------------------------------------


def _base(name: str) -> Body:
    def body(ops: Ops, x: Value) -> Value:
        return e.exponential(ops, x, e.BASES[name][element_of(x.type)])

    return body


def _log(name: str) -> Body:
    def body(ops: Ops, x: Value) -> Value:
        return e.logarithm(ops, x, e.LOGARITHMS[name][element_of(x.type)])

    return body


def _hypot(ops: Ops, x: Value, y: Value) -> Value:
    """sqrt(x*x + y*y) of float32, by float64; infinite if either is, even beside NaN."""
    a, b = ops.double(x), ops.double(y)
    found = ops.sqrt(ops.add(ops.mul(a, a), ops.mul(b, b)))
    infinite = ops.or_(_infinite(ops, x), _infinite(ops, y))
    return ops.select(infinite, e.INFINITY, ops.single(found))


def _nextafter(ops: Ops, x: Value, y: Value) -> Value:
    """The float32 or float64 after x on the way to y."""
    bits = ops.bits(x)
    outwards = ops.cmp("eq", ops.cmp("olt", x, y), ops.cmp("ogt", x, 0.0))
    step = ops.add(bits, ops.select(outwards, ops.const(bits, 1), -1))
    least = ops.or_(ops.and_(ops.bits(y), 1 << (int_bits(bits.type) - 1)), 1)
    step = ops.from_bits(ops.select(ops.cmp("oeq", x, 0.0), least, step))
    step = ops.select(ops.cmp("oeq", x, y), y, step)
    return ops.select(ops.cmp("uno", x, y), ops.add(x, y), step)


def _ldexp(ops: Ops, x: Value, y: Value) -> Value:
    """x * 2**trunc(y) of float32, exact in float64 and rounded once; y that is NaN counts as 0."""
    limited = ops.at_least(ops.at_most(y, 400.0), -400.0)
    n = ops.cast("fptosi", ops.select(ops.is_nan(y), 0.0, limited), "i32")
    power = ops.from_bits(ops.shl(ops.add(ops.resize(n, 64, signed=True), 1023), 52))
    return ops.single(ops.mul(ops.double(x), power))


_BODIES: dict[str, Body] = {
    **{name: _base(name) for name in ("exp", "exp2", "exp10")},
    **{name: _log(name) for name in ("log", "log2", "log10")},
    "log1p": e.logarithm_of_more,
    "tanh": e.tanh,
    "sigmoid": e.sigmoid,
    "erf": e.erf,
    "pow": e.power,
    "sinh": e.sinh,
    "cosh": e.cosh,
    "asinh": e.asinh,
    "acosh": e.acosh,
    "atanh": e.atanh,
    "sin": t.sin,
    "cos": t.cos,
    "tan": t.tan,
    "asin": t.asin,
    "acos": t.acos,
    "atan": t.atan,
    "atan2": t.atan2,
    "hypot": _hypot,
    "nextafter": _nextafter,
    "ldexp": _ldexp,
}

# float64 from the C library -----------------------------------------------------------------------

_LIBRARY = frozenset(
    {
        *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "asinh", "acosh"),
        *("atanh", "erf", "pow", "hypot", "ldexp"),
    }
)


def _called(ops: Ops, name: str, args: Sequence[Value]) -> Value:
    """A call of the C library for each lane."""
    code, kind = ops.code, args[0].type
    types = ["double"] * len(args)
    if name == "ldexp":
        args, types = [args[0], _whole(ops, args[1])], ["double", "i32"]
    made = code.module.declare(name, "double", types, "nounwind willreturn memory(none)")
    if lanes_of(kind) == 1:
        return code.call(made, "double", args)
    out = Value(kind, "poison")
    for lane in range(lanes_of(kind)):
        one = code.call(made, "double", [code.extract(a, lane) for a in args])
        out = code.insert(out, one, lane)
    return out


def _whole(ops: Ops, y: Value) -> Value:
    """An exponent for ldexp: towards zero, within what any float64 can take; NaN counts as 0."""
    limited = ops.at_least(ops.at_most(y, 5000.0), -5000.0)
    return ops.cast("fptosi", ops.select(ops.is_nan(y), 0.0, limited), "i32")


# Integers -----------------------------------------------------------------------------------------


def _counted(ops: Ops, name: str, x: Value, *flags: Value) -> Value:
    """A counting intrinsic."""
    kind = x.type
    full = ops.code.module.declare(
        f"llvm.{name}.{mangled(kind)}", kind, [kind, *(f.type for f in flags)]
    )
    return ops.code.call(full, kind, [x, *flags])


_DEFINED = Value("i1", "false")  # the count of zeros of 0 is the width


def _popcount(ops: Ops, dtype: DType, x: Value) -> Value:
    return ops.resize(_counted(ops, "ctpop", x), 32)


def _clz(ops: Ops, dtype: DType, x: Value) -> Value:
    return ops.resize(_counted(ops, "ctlz", x, _DEFINED), 32)


def _ffs(ops: Ops, dtype: DType, x: Value) -> Value:
    place = ops.resize(_counted(ops, "cttz", x, _DEFINED), 32)
    return ops.select(ops.cmp("eq", x, 0), 0, ops.add(place, 1))


def _absolute(ops: Ops, dtype: DType, x: Value) -> Value:
    return x if not dtype.is_int else _counted(ops, "abs", x, _DEFINED)


def _iclamp(ops: Ops, dtype: DType, x: Value, low: Value, high: Value) -> Value:
    if dtype.is_int:
        return ops.smin(ops.smax(x, low), high)
    return ops.umin(ops.umax(x, low), high)


def _fns(ops: Ops, dtype: DType, x: Value, base: Value, nth: Value) -> Value:
    """The place of the nth set bit from `base` on, upwards or, for a negative nth, downwards; for
    0 `base` itself if its bit is set. All ones if there is none.
    """
    args = [x, base, nth]
    return ops.inlined(f"fns.{dtype.kind}", args, x.type, _fns_body)


def _fns_body(ops: Ops, x: Value, base: Value, nth: Value) -> Value:
    bits = int_bits(x.type)
    start = ops.umin(base, bits - 1)
    upwards = ops.and_(x, ops.shl(ops.const(x, -1), start))
    downwards = ops.and_(x, ops.lshr(ops.const(x, -1), ops.sub(bits - 1, start)))
    back, none = ops.cmp("slt", nth, 0), ops.cmp("eq", nth, 0)
    word = ops.select(back, downwards, upwards)
    total = _counted(ops, "ctpop", word)
    # Counted from the lowest bit, as an unsigned number: it is at least 1, or there is none.
    rank = ops.select(back, ops.add(ops.add(total, nth), 1), nth)
    rank = ops.select(none, ops.const(x, 1), rank)
    found = ops.and_(ops.cmp("sge", rank, 1), ops.cmp("sle", rank, total))
    place, width = ops.const(x, 0), bits
    while width > 1:  # in which half of the bits left the bit is
        width //= 2
        low = ops.and_(ops.lshr(word, place), (1 << width) - 1)
        count = _counted(ops, "ctpop", low)
        above = ops.cmp("sgt", rank, count)
        rank = ops.select(above, ops.sub(rank, count), rank)
        place = ops.select(above, ops.add(place, width), place)
    exact = ops.or_(ops.not_(none), ops.cmp("eq", place, start))
    found = ops.and_(ops.and_(found, exact), ops.cmp("ult", base, bits))
    return ops.select(found, place, -1)


_INTEGER: dict[str, Body] = {
    "popcount": _popcount,
    "clz": _clz,
    "ffs": _ffs,
    "abs": _absolute,
    "iclamp": _iclamp,
    "fns": _fns,
}
