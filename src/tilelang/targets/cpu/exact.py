"""`ieee_*`: operations whose result is the exact one, rounded once by a mode that is named.

What enters: float32 or float64 values and a mode, by CUDA's or PTX's name. What leaves: the value.
Nothing branches, and nothing depends on the mode that the processor is in, which is to nearest.

float32 is computed in float64 with a *sticky* last bit: an inexact result is the one of its two
neighbours that is odd, so that rounding it to float32 rounds the exact value. float64 is computed
to nearest; then the sign of what is missing, which error-free transformations give, says whether
the result takes a step. They work on significands, so that nothing overflows or underflows there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilelang.errors import InternalError
from tilelang.targets.cpu.arithmetic import Ops
from tilelang.targets.cpu.casts import narrowed
from tilelang.targets.cpu.text import Value, element_of, number

MODES = {"rn": "rn", "rz": "rz", "ru": "rp", "rd": "rm", "rp": "rp", "rm": "rm"}


def ieee(ops: Ops, op: str, args: Sequence[Value], mode: str) -> Value:
    """add, sub, mul, div, fma, rcp, sqrt or rsqrt of one float type, rounded by `mode`.

    InternalError for another operation or mode.
    """
    if mode not in MODES or op not in _NEAREST:
        raise InternalError(f"ieee_{op} with rounding {mode}")
    rounding, element = MODES[mode], element_of(args[0].type)
    if rounding == "rn" and op != "rsqrt":
        return _NEAREST[op](ops, *args)
    table = _STICKY if element == "float" else _DOUBLE
    operands = list(args)
    if op == "sub":
        op, operands = "add", [args[0], ops.neg(args[1])]
    elif op == "rcp":
        op, operands = "div", [ops.const(args[0], 1.0), args[0]]

    compute = table[op]

    def body(inner: Ops, *xs: Value) -> Value:
        return compute(inner, rounding, *xs)

    return ops.inlined(f"ieee.{op}.{rounding}", operands, args[0].type, body)


def _fused(ops: Ops, x: Value, y: Value, z: Value) -> Value:
    """x * y + z, rounded once on every host."""
    return ops.code.intrinsic("fma", x, y, z)


def inverse(ops: Ops, x: Value) -> Value:
    """1 / x."""
    return ops.div(1.0, x)


def inverse_root(ops: Ops, x: Value) -> Value:
    """1 / sqrt(x), rounded twice."""
    return ops.div(1.0, ops.sqrt(x))


_NEAREST: dict[str, Callable[..., Value]] = {
    "add": Ops.add,
    "sub": Ops.sub,
    "mul": Ops.mul,
    "div": Ops.div,
    "rcp": inverse,
    "sqrt": Ops.sqrt,
    "rsqrt": inverse_root,
    "fma": _fused,
}


def _is_negative(ops: Ops, x: Value) -> Value:
    return ops.cmp("slt", ops.bits(x), 0)


def _zero_below(
    ops: Ops, mode: str, total: Value, exact: Value | None, xs: Sequence[Value]
) -> Value:
    """Rounding down, a sum that is exactly zero is -0, but for +0 and +0 (IEEE 754, 6.3).

    `xs` are the terms, or two factors and a term; `exact`, if given, says where `total` is exact.
    """
    if mode != "rm":
        return total
    signs = [ops.bits(x) for x in xs]
    first = ops.xor(signs[0], signs[1]) if len(xs) == 3 else signs[0]
    minus = ops.and_(ops.cmp("oeq", total, 0.0), ops.cmp("slt", ops.or_(first, signs[-1]), 0))
    return ops.select(minus if exact is None else ops.and_(minus, exact), -0.0, total)


# float32: float64 with a sticky last bit ----------------------------------------------------------


def _sticky(ops: Ops, near: Value, lost: Value) -> Value:
    """`near`, or its neighbour towards `near + lost`, whichever is odd; `near` if it is exact."""
    bits = ops.bits(near)
    away = ops.cmp("eq", ops.cmp("ogt", lost, 0.0), ops.cmp("ogt", near, 0.0))
    moved = ops.add(bits, ops.select(away, ops.const(bits, 1), -1))
    even = ops.cmp("eq", ops.and_(bits, 1), 0)
    finite = ops.cmp("olt", ops.abs(near), float("inf"))
    use = ops.and_(ops.and_(even, finite), ops.cmp("one", lost, 0.0))
    return ops.from_bits(ops.select(use, moved, bits))


def _two_sum(ops: Ops, x: Value, y: Value) -> tuple[Value, Value]:
    """The sum, and what it misses, exactly (Knuth)."""
    total = ops.add(x, y)
    back = ops.sub(total, x)
    lost = ops.add(ops.sub(x, ops.sub(total, back)), ops.sub(y, back))
    return total, lost


def _two_product(ops: Ops, x: Value, y: Value) -> tuple[Value, Value]:
    """The product, and what it misses, exactly."""
    product = ops.mul(x, y)
    return product, _fused(ops, x, y, ops.neg(product))


def _sticky_div(ops: Ops, x: Value, y: Value) -> Value:
    near = ops.div(x, y)
    rest = _fused(ops, ops.neg(near), y, x)
    return _sticky(ops, near, ops.select(_is_negative(ops, y), ops.neg(rest), rest))


def _sticky_sqrt(ops: Ops, x: Value) -> Value:
    near = ops.sqrt(x)
    return _sticky(ops, near, _fused(ops, ops.neg(near), near, x))


def _sticky_rsqrt(ops: Ops, x: Value) -> Value:
    near = ops.div(1.0, ops.sqrt(x))
    square, more = _two_product(ops, near, near)
    high, low = _two_product(ops, square, x)
    rest = ops.sub(ops.sub(ops.sub(1.0, high), low), ops.mul(more, x))
    return _sticky(ops, near, rest)


def _by_sticky(op: Callable[..., Value], *, is_sum: bool = False) -> Callable[..., Value]:
    def compute(ops: Ops, mode: str, *xs: Value) -> Value:
        wide = [ops.double(x) for x in xs]
        found = op(ops, *wide)
        if is_sum:  # in float64 it is zero only if it is exact
            found = _zero_below(ops, mode, found, None, wide)
        return narrowed(ops, found, mode)

    return compute


def _sticky_add(ops: Ops, x: Value, y: Value) -> Value:
    return _sticky(ops, *_two_sum(ops, x, y))


def _sticky_fma(ops: Ops, x: Value, y: Value, z: Value) -> Value:
    return _sticky_add(ops, ops.mul(x, y), z)


_STICKY: dict[str, Callable[..., Value]] = {
    "add": _by_sticky(_sticky_add, is_sum=True),
    "mul": _by_sticky(Ops.mul),  # exact: twice 24 bits
    "fma": _by_sticky(_sticky_fma, is_sum=True),
    "div": _by_sticky(_sticky_div),
    "sqrt": _by_sticky(_sticky_sqrt),
    "rsqrt": _by_sticky(_sticky_rsqrt),
}


# float64: to nearest, and a step by the sign of what is missing -----------------------------------


def _step(ops: Ops, mode: str, near: Value, missing: Value) -> Value:
    """What `mode` makes of `near + missing`, of which `near` is the nearest number."""
    minus = _is_negative(ops, near)
    more, less = ops.cmp("ogt", missing, 0.0), ops.cmp("olt", missing, 0.0)
    outwards = ops.select(minus, less, more)
    inwards = ops.select(minus, more, less)
    bits, never = ops.bits(near), number(minus.type, False)
    match mode:
        case "rp":
            outwards, inwards = ops.and_(outwards, ops.not_(minus)), ops.and_(inwards, minus)
        case "rm":
            outwards, inwards = ops.and_(outwards, minus), ops.and_(inwards, ops.not_(minus))
        case _:
            outwards = never
    bits = ops.add(bits, ops.resize(outwards, 64))
    return ops.from_bits(ops.sub(bits, ops.resize(inwards, 64)))


def _guarded(ops: Ops, mode: str, near: Value, missing: Value, xs: Sequence[Value]) -> Value:
    """`_step` for finite operands. What became infinite is too large; others stay as they are."""
    finite = ops.cmp("olt", ops.abs(xs[0]), float("inf"))
    for x in xs[1:]:
        finite = ops.and_(finite, ops.cmp("olt", ops.abs(x), float("inf")))
    over = ops.cmp("oeq", ops.abs(near), float("inf"))
    missing = ops.select(over, ops.neg(near), missing)
    return ops.select(finite, _step(ops, mode, near, missing), near)


def _parts(ops: Ops, x: Value) -> tuple[Value, Value]:
    """x = m * 2**e with 1 <= |m| < 2, for x that is finite and not zero."""
    tiny = ops.cmp("olt", ops.abs(x), 2.0**-1022)
    bits = ops.bits(ops.select(tiny, ops.mul(x, 2.0**54), x))
    field = ops.and_(ops.lshr(bits, 52), 0x7FF)
    exponent = ops.sub(field, ops.select(tiny, ops.const(bits, 1023 + 54), 1023))
    significand = ops.or_(ops.and_(bits, ~(0x7FF << 52)), 1023 << 52)
    return ops.from_bits(significand), exponent


def _scaled(ops: Ops, x: Value, exponent: Value) -> Value:
    """x * 2**exponent, where the result is a normal number; 0 stays 0."""
    k = ops.smin(ops.smax(exponent, -1400), 1400)
    half = ops.ashr(k, 1)
    for part in (half, ops.sub(k, half)):
        x = ops.mul(x, ops.from_bits(ops.shl(ops.add(part, 1023), 52)))
    return x


def _double_add(ops: Ops, mode: str, x: Value, y: Value) -> Value:
    larger = ops.cmp("ogt", ops.abs(x), ops.abs(y))
    high, low = ops.select(larger, x, y), ops.select(larger, y, x)
    total = ops.add(high, low)
    missing = ops.sub(low, ops.sub(total, high))  # exact (Dekker)
    found = _guarded(ops, mode, total, missing, [x, y])
    return _zero_below(ops, mode, found, None, [x, y])  # no sum underflows to zero


def _double_mul(ops: Ops, mode: str, x: Value, y: Value) -> Value:
    near = ops.mul(x, y)
    (a, e), (b, f) = _parts(ops, x), _parts(ops, y)
    high, low = _two_product(ops, a, b)
    mine = _scaled(ops, near, ops.neg(ops.add(e, f)))
    zero = ops.or_(ops.cmp("oeq", x, 0.0), ops.cmp("oeq", y, 0.0))
    missing = ops.select(zero, 0.0, ops.add(ops.sub(high, mine), low))
    return _guarded(ops, mode, near, missing, [x, y])


def _double_div(ops: Ops, mode: str, x: Value, y: Value) -> Value:
    near = ops.div(x, y)
    (a, e), (b, f) = _parts(ops, x), _parts(ops, y)
    mine = _scaled(ops, near, ops.sub(f, e))
    rest = _fused(ops, ops.neg(mine), b, a)
    missing = ops.select(_is_negative(ops, y), ops.neg(rest), rest)
    missing = ops.select(ops.cmp("oeq", x, 0.0), 0.0, missing)
    found = _guarded(ops, mode, near, missing, [x, y])
    return ops.select(ops.cmp("oeq", y, 0.0), near, found)


def _double_sqrt(ops: Ops, mode: str, x: Value) -> Value:
    near = ops.sqrt(x)
    tiny = ops.cmp("olt", x, 2.0**-900)
    large = ops.select(tiny, ops.mul(x, 2.0**108), x)
    root = ops.select(tiny, ops.mul(near, 2.0**54), near)
    missing = _fused(ops, ops.neg(root), root, large)
    return _guarded(ops, mode, near, missing, [x])


def _double_fma(ops: Ops, mode: str, x: Value, y: Value, z: Value) -> Value:
    near = _fused(ops, x, y, z)
    (a, e), (b, f), (c, g) = _parts(ops, x), _parts(ops, y), _parts(ops, z)
    unit = ops.add(e, f)
    apart = ops.sub(g, unit)
    # z in units of the product; where it is far smaller, only that it is not zero counts.
    small = ops.cmp("slt", apart, -300)
    term = ops.select(small, ops.copysign(ops.const(z, 2.0**-300), z), _scaled(ops, c, apart))
    term = ops.select(ops.cmp("oeq", z, 0.0), z, term)
    # What the sum misses (Boldo and Muller, exact error of a fused multiply-add).
    total = _fused(ops, a, b, term)
    high, low = _two_product(ops, a, b)
    middle, lowest = _two_sum(ops, term, low)
    upper, rest = _two_sum(ops, high, middle)
    error = ops.add(ops.add(ops.sub(upper, total), rest), lowest)
    missing = ops.add(ops.sub(total, _scaled(ops, near, ops.neg(unit))), error)
    # Where z is far larger, only the sign of the product counts.
    product = ops.mul(a, b)
    there = ops.and_(ops.cmp("sgt", apart, 200), ops.cmp("une", z, 0.0))
    missing = ops.select(there, product, missing)
    zero = ops.or_(ops.cmp("oeq", x, 0.0), ops.cmp("oeq", y, 0.0))
    missing = ops.select(zero, 0.0, missing)
    found = _guarded(ops, mode, near, missing, [x, y, z])
    return _zero_below(ops, mode, found, ops.cmp("oeq", missing, 0.0), [x, y, z])


def _double_rsqrt(ops: Ops, mode: str, x: Value) -> Value:
    """1/sqrt(x) = y * 2**-53 * 2**-h, where y*y*m <= 2**158 for x = m * 2**-52 * 4**h.

    y is found from the quotient, of which it is at most two steps away, by exact integers.
    """
    near = ops.div(1.0, ops.sqrt(x))
    significand, exponent = _parts(ops, x)
    fraction = ops.and_(ops.bits(significand), (1 << 52) - 1)
    odd = ops.and_(exponent, 1)
    m = ops.shl(ops.or_(fraction, 1 << 52), odd)
    h = ops.ashr(exponent, 1)
    m = ops.resize(m, 192)

    def fits(y: Value, places: int) -> Value:
        """Whether y * 2**-places is not above the root."""
        wide = ops.resize(y, 192)
        return ops.cmp("ule", ops.mul(ops.mul(wide, wide), m), 1 << (2 * places + 52))

    guess = ops.cast("fptosi", _scaled(ops, _usable(ops, x, near), ops.add(h, 53)), "i64")
    y = ops.sub(guess, 2)
    for step in (1, 0, -1):
        candidate = ops.sub(guess, step)
        y = ops.select(fits(candidate, 53), candidate, y)
    if mode == "rn":
        up = fits(ops.add(ops.shl(y, 1), 1), 54)
    elif mode == "rp":
        wide = ops.resize(y, 192)
        up = ops.cmp("ne", ops.mul(ops.mul(wide, wide), m), 1 << 158)
    else:
        up = number(ops.cmp("eq", y, 0).type, False)
    y = ops.add(y, ops.resize(up, 64))
    found = _scaled(ops, ops.cast("sitofp", y, "double"), ops.sub(-53, h))
    usable = ops.and_(ops.cmp("ogt", x, 0.0), ops.cmp("olt", x, float("inf")))
    return ops.select(usable, found, near)


def _usable(ops: Ops, x: Value, near: Value) -> Value:
    """`near`, or 0 where the root is no positive number."""
    usable = ops.and_(ops.cmp("ogt", x, 0.0), ops.cmp("olt", x, float("inf")))
    return ops.select(usable, near, 0.0)


_DOUBLE: dict[str, Callable[..., Value]] = {
    "add": _double_add,
    "mul": _double_mul,
    "div": _double_div,
    "sqrt": _double_sqrt,
    "fma": _double_fma,
    "rsqrt": _double_rsqrt,
}
