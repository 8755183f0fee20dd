"""Exponentials, logarithms and what is made of them, for float32 and float64, as code.

What enters: float32 or float64 values of any lanes. What leaves: exp, exp2, exp10, log, log2,
log10, log1p, tanh, sigmoid for both types; erf, pow, sinh, cosh, asinh, acosh, atanh for float32.
No branch, no call, no table: loops around them are vectorised. Their errors are listed in
docs/decisions/cpu-maths.md; infinities, NaN, zeros and subnormal numbers are as in C.

An exponential is `b**x = 2**n * b**r`: `n` comes from a sum with a number so large that its last
place is 1, which also leaves `n`, with an offset, in the low bits; the offset keeps `2**n` a normal
number, and a last factor undoes it, so that overflow and gradual underflow are one rounding each. A
logarithm is `e*log(2) + log(m)` with m in [sqrt(1/2), sqrt(2)), and `log(1+f) = f - f*f/2 +
s*(f*f/2 + R(s*s))` with `s = f/(2+f)`. The polynomials are minimax fits made for this file.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.targets.cpu.arithmetic import Operand, Ops, format_of
from tilelang.targets.cpu.text import Value, element_of

INFINITY, NAN = float("inf"), float("nan")


# Exponentials -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Base:
    """How `b**x` is computed: `scale` = log2(b); `high` + `low` = log_b(2), `high` of few bits;
    the polynomial of b**r, whose last coefficient is 1; and the range of x outside of which the
    result is 0 or infinity.
    """

    scale: float
    high: float
    low: float
    poly: tuple[float, ...]
    least: float
    most: float


_E32 = Base(
    1.4426950408889634,
    0.693359375,
    -2.1219444005469057e-4,
    (
        0.0013819809537380934,
        0.00836868491023779,
        0.041668277233839035,
        0.1666652113199234,
        0.4999999403953552,
        1.0,
        1.0,
    ),
    -105.0,
    89.0,
)
_TWO32 = Base(
    1.0,
    1.0,
    0.0,
    (
        0.00015327823348343372,
        0.0013390997191891074,
        0.009618503041565418,
        0.05550359562039375,
        0.24022647738456726,
        0.6931471824645996,
        1.0,
    ),
    -152.0,
    128.0,
)
_TEN32 = Base(
    3.321928094887362,
    0.301025390625,
    4.605038981195214e-06,
    (
        0.20616672933101654,
        0.5418264269828796,
        1.171295166015625,
        2.034656047821045,
        2.6509487628936768,
        2.3025851249694824,
        1.0,
    ),
    -46.0,
    38.6,
)
_E64 = Base(
    1.4426950408889634,
    0.6931471803691238,
    1.9082149292705877e-10,
    (
        2.497812945311679e-08,
        2.762519457056596e-07,
        2.7557641615285886e-06,
        2.480150866287789e-05,
        0.00019841269465406896,
        0.001388888892681231,
        0.008333333333500427,
        0.041666666666603916,
        0.16666666666666433,
        0.5,
        1.0,
        1.0,
    ),
    -746.0,
    710.0,
)
_TWO64 = Base(
    1.0,
    1.0,
    0.0,
    (
        4.438747151501607e-10,
        7.07323877466061e-09,
        1.0178160868602258e-07,
        1.3215438807638322e-06,
        1.5252733631911928e-05,
        0.00015403530449080197,
        0.0013333558146548423,
        0.009618129107601583,
        0.055504108664821715,
        0.24022650695910108,
        0.6931471805599453,
        1.0,
    ),
    -1077.0,
    1024.0,
)
_TEN64 = Base(
    3.321928094887362,
    0.30102999554947019,
    1.1451100898021838e-10,
    (
        0.00024049823004203497,
        0.0011574609143346756,
        0.005014025264394081,
        0.019597625736074493,
        0.0680893626166024,
        0.20699584939759127,
        0.5393829292229092,
        1.1712551489094067,
        2.034678592293344,
        2.650949055239202,
        2.302585092994046,
        1.0,
    ),
    -325.0,
    308.3,
)
BASES = {
    "exp": {"float": _E32, "double": _E64},
    "exp2": {"float": _TWO32, "double": _TWO64},
    "exp10": {"float": _TEN32, "double": _TEN64},
}


def _reduced(ops: Ops, x: Value, base: Base, magic: Operand) -> tuple[Value, Value]:
    """The remainder r, and a float whose low bits are n and the offset in `magic`."""
    shifted = ops.fma(x, base.scale, magic) if base.scale != 1.0 else ops.add(x, magic)
    whole = ops.sub(shifted, magic)
    rest = ops.fma(whole, -base.high, x)
    return (ops.fma(whole, -base.low, rest) if base.low else rest), shifted


def _power(ops: Ops, shifted: Value) -> Value:
    """2**(n + offset) of the float that has n and the offset, biased, in its low bits."""
    return ops.from_bits(ops.shl(ops.bits(shifted), format_of(shifted).places))


def exponential(ops: Ops, x: Value, base: Base, *, negative: bool = False) -> Value:
    """`base**x`; `negative` says that x is not above zero."""
    at = format_of(x)
    unit = 1.5 * 2.0**at.places
    down, below = unit + at.bias + at.spare, 2.0**-at.spare
    x = ops.at_least(x, base.least)
    if negative:
        magic: Operand = down
        last: Operand = below
    else:
        x = ops.at_most(x, base.most)
        minus = ops.cmp("olt", x, 0.0)
        magic = ops.select(minus, ops.const(x, down), unit + at.bias - 1)
        last = ops.select(minus, ops.const(x, below), 2.0)
    rest, shifted = _reduced(ops, x, base, magic)
    return ops.mul(ops.mul(ops.poly(rest, base.poly), _power(ops, shifted)), last)


def exponential_less_one(ops: Ops, x: Value) -> Value:
    """exp(x) - 1, for x whose result is finite and, without the -1, a normal number."""
    at, base = format_of(x), BASES["exp"][element_of(x.type)]
    rest, shifted = _reduced(ops, x, base, 1.5 * 2.0**at.places + at.bias)
    power = _power(ops, shifted)
    tail = ops.poly(rest, base.poly[:-2])
    less = ops.fma(ops.mul(rest, rest), tail, rest)
    return ops.fma(less, power, ops.sub(power, 1.0))


def sigmoid(ops: Ops, x: Value) -> Value:
    """1 / (1 + exp(-x)), from E = exp(-|x|), which does not overflow.

    The last step halves the error of the quotient at least: s * (1 + E) = a is s = a - E * s.
    """
    size = ops.abs(x)
    small = exponential(ops, ops.neg(size), BASES["exp"][element_of(x.type)], negative=True)
    above = ops.select(ops.cmp("olt", x, 0.0), small, 1.0)
    near = ops.div(above, ops.add(small, 1.0))
    return ops.fma(ops.neg(small), near, above)


def tanh(ops: Ops, x: Value) -> Value:
    """E / (E + 2) with E = exp(2|x|) - 1; for small E the quotient is improved as in `sigmoid`."""
    limit = 10.0 if format_of(x).places == 23 else 20.0
    size = ops.at_most(ops.abs(x), limit)
    less = exponential_less_one(ops, ops.add(size, size))
    near = ops.div(less, ops.add(less, 2.0))
    better = ops.mul(ops.fma(ops.neg(less), near, less), 0.5)
    return ops.copysign(ops.select(ops.cmp("olt", less, 1.0), better, near), x)


# Logarithms ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Logarithm:
    """log_b from natural parts: `two_high` + `two_low` = log_b(2), and `e_high` + `e_low` =
    log_b(e), both first parts of few bits.
    """

    two_high: float
    two_low: float
    e_high: float = 1.0
    e_low: float = 0.0


LOGARITHMS = {
    "log": {
        "float": Logarithm(0.693359375, -2.1219444005469057e-4),
        "double": Logarithm(0.6931471803691238, 1.9082149292705877e-10),
    },
    "log2": {
        "float": Logarithm(1.0, 0.0, 1.4423828125, 0.00031222838896340733),
        "double": Logarithm(1.0, 0.0, 1.4426950407214463, 1.6751713164886512e-10),
    },
    "log10": {
        "float": Logarithm(
            0.301025390625, 4.605038981195214e-06, 0.4342041015625, 9.038034075182765e-05
        ),
        "double": Logarithm(
            0.3010299955494702, 1.1451100898021838e-10, 0.4342944818781689, 2.5082946711645275e-11
        ),
    },
}
_R = {
    "float": (0.24279353022575378, 0.28498780727386475, 0.40000972151756287, 0.6666666269302368),
    "double": (
        0.14797527026030324,
        0.15313899715642898,
        0.18183569968071034,
        0.22222198468958476,
        0.28571428743372973,
        0.3999999999941026,
        0.6666666666666735,
    ),
}


def _natural(ops: Ops, f: Value) -> Value:
    """log(1 + f) - f, for 1 + f in [sqrt(1/2), sqrt(2))."""
    coefficients = _R[element_of(f.type)]
    half = ops.mul(ops.mul(f, 0.5), f)
    s = ops.div(f, ops.add(f, 2.0))
    z = ops.mul(s, s)
    tail = ops.mul(z, ops.poly(z, coefficients))
    return ops.sub(ops.mul(s, ops.add(half, tail)), half)


def _exponent(ops: Ops, x: Value) -> tuple[Value, Value]:
    """x = 2**e * m with m in [sqrt(1/2), sqrt(2)), for normal x: e, and the bits of m."""
    at = format_of(x)
    root = 0x3F3504F3 if at.places == 23 else 0x3FE6A09E667F3BCD
    bits = ops.bits(x)
    e = ops.ashr(ops.sub(bits, root), at.places)
    return e, ops.sub(bits, ops.shl(e, at.places))


def _at_ends(ops: Ops, x: Value, found: Value) -> Value:
    """`found` for positive finite x; -inf at 0, NaN below, and infinity and NaN as they are."""
    found = ops.select(ops.cmp("olt", x, INFINITY), found, x)
    found = ops.select(ops.cmp("olt", x, 0.0), NAN, found)
    return ops.select(ops.cmp("oeq", x, 0.0), -INFINITY, found)


def logarithm(ops: Ops, x: Value, base: Logarithm) -> Value:
    """log_b(x)."""
    at, element = format_of(x), element_of(x.type)
    tiny = ops.cmp("olt", x, 2.0 ** (1 - at.bias))
    scaled = ops.select(tiny, ops.mul(x, 2.0**at.places), x)
    e, m = _exponent(ops, scaled)
    e = ops.select(tiny, ops.sub(e, at.places), e)
    if element == "double":  # vectors of 64-bit integers have no conversion everywhere
        e = ops.cast("trunc", e, "i32")
    whole = ops.cast("sitofp", e, element)
    f = ops.sub(ops.from_bits(m), 1.0)
    rest = _natural(ops, f)
    if base.e_high == 1.0:
        rest = ops.fma(whole, base.two_low, rest)
        found = ops.fma(whole, base.two_high, ops.add(f, rest))
    else:
        low = ops.fma(rest, base.e_high + base.e_low, ops.mul(f, base.e_low))
        if base.two_low:
            low = ops.fma(whole, base.two_low, low)
        found = ops.fma(whole, base.two_high, ops.fma(f, base.e_high, low))
    return _at_ends(ops, x, found)


def logarithm_of_more(ops: Ops, x: Value) -> Value:
    """log(1 + x), as exact for small x as for others."""
    at, element = format_of(x), element_of(x.type)
    base = LOGARITHMS["log"][element]
    more = ops.add(x, 1.0)
    e, m = _exponent(ops, more)
    # (1 + x) / 2**e - 1; where x is large, the 1 is below its last place.
    scale = ops.from_bits(ops.sub(at.bias << at.places, ops.shl(e, at.places)))
    f = ops.add(ops.mul(x, scale), ops.sub(scale, 1.0))
    f = ops.select(ops.cmp("sgt", e, at.places + 3), ops.sub(ops.from_bits(m), 1.0), f)
    whole = ops.cast("sitofp", ops.resize(e, 32), element)
    rest = ops.fma(whole, base.two_low, _natural(ops, f))
    found = ops.fma(whole, base.two_high, ops.add(f, rest))
    return ops.copysign(_at_ends(ops, more, found), x)


# float32 by way of float64 ------------------------------------------------------------------------


def sinh(ops: Ops, x: Value) -> Value:
    """(E + E / (E + 1)) / 2 with E = exp(|x|) - 1."""
    less = exponential_less_one(ops, ops.at_most(ops.double(ops.abs(x)), 100.0))
    found = ops.mul(ops.add(less, ops.div(less, ops.add(less, 1.0))), 0.5)
    return ops.copysign(ops.single(found), x)


def cosh(ops: Ops, x: Value) -> Value:
    """(exp(|x|) + exp(-|x|)) / 2."""
    more = ops.add(exponential_less_one(ops, ops.at_most(ops.double(ops.abs(x)), 100.0)), 1.0)
    return ops.single(ops.mul(ops.add(more, ops.div(1.0, more)), 0.5))


def asinh(ops: Ops, x: Value) -> Value:
    """log1p(|x| + x*x / (1 + sqrt(1 + x*x)))."""
    size = ops.double(ops.abs(x))
    square = ops.mul(size, size)
    part = ops.div(square, ops.add(ops.sqrt(ops.add(square, 1.0)), 1.0))
    finite = ops.cmp("olt", size, INFINITY)
    inside = ops.select(finite, ops.add(size, part), size)
    return ops.copysign(ops.single(logarithm_of_more(ops, inside)), x)


def acosh(ops: Ops, x: Value) -> Value:
    """log1p(t + sqrt(2t + t*t)) with t = x - 1; NaN below 1."""
    t = ops.sub(ops.double(x), 1.0)
    root = ops.sqrt(ops.mul(t, ops.add(t, 2.0)))
    found = ops.single(logarithm_of_more(ops, ops.add(t, root)))
    return ops.select(ops.cmp("olt", x, 1.0), NAN, found)


def atanh(ops: Ops, x: Value) -> Value:
    """log1p(2x / (1 - x)) / 2, of |x|; NaN above 1."""
    size = ops.double(ops.abs(x))
    ratio = ops.div(ops.add(size, size), ops.sub(1.0, size))
    return ops.copysign(ops.single(ops.mul(logarithm_of_more(ops, ratio), 0.5)), x)


def power(ops: Ops, x: Value, y: Value) -> Value:
    """C's pow: 2**(y * log2(|x|)), with the sign and the exceptions that C has."""
    size, to = ops.double(ops.abs(x)), ops.double(y)
    log = logarithm(ops, size, LOGARITHMS["log2"]["double"])
    found = exponential(ops, ops.mul(to, log), BASES["exp2"]["double"])
    half = ops.mul(to, 0.5)
    whole = ops.cmp("oeq", ops.code.intrinsic("floor", to), to)
    odd = ops.and_(whole, ops.cmp("une", ops.code.intrinsic("floor", half), half))
    minus = ops.cmp("slt", ops.bits(x), 0)
    found = ops.select(ops.and_(odd, minus), ops.neg(found), found)
    below = ops.and_(ops.cmp("olt", x, 0.0), ops.cmp("ogt", x, -INFINITY))
    found = ops.select(ops.and_(below, ops.not_(whole)), NAN, found)
    # 1 for an exponent of zero, and of 1 whatever the exponent is, of -1 if that is infinite.
    unit = ops.and_(ops.cmp("oeq", size, 1.0), ops.cmp("oeq", ops.abs(to), INFINITY))
    one = ops.or_(ops.cmp("oeq", y, 0.0), ops.or_(ops.cmp("oeq", x, 1.0), unit))
    return ops.single(ops.select(one, 1.0, found))


# The error function -------------------------------------------------------------------------------

_ERF = (  # erf(x) / x - 1 in x*x, below 1
    7.834699499653652e-05,
    -0.0008004633127711713,
    0.005187740549445152,
    -0.026853546500205994,
    0.11283580958843231,
    -0.3761262595653534,
    0.12837916612625122,
)
_ERFC = (  # -log2(1 - erf(x)), from 0.9 to 3.95
    3.128127718809992e-05,
    -0.0006366572342813015,
    0.006065697409212589,
    -0.03636746481060982,
    0.15641462802886963,
    0.9135432839393616,
    1.6296372413635254,
    -0.00027131297974847257,
)


def erf(ops: Ops, x: Value) -> Value:
    """x * P(x*x) for |x| < 1, else 1 - 2**-Q(|x|). float32 only."""
    size = ops.abs(x)
    small = ops.fma(x, ops.poly(ops.mul(x, x), _ERF), x)
    near = ops.at_most(size, 3.95)
    base = BASES["exp2"]["float"]
    at = format_of(x)
    rest, shifted = _reduced(
        ops, ops.neg(ops.poly(near, _ERFC)), base, 1.5 * 2.0**at.places + at.bias
    )
    missing = ops.mul(ops.poly(rest, base.poly), _power(ops, shifted))
    large = ops.copysign(ops.sub(1.0, missing), x)
    return ops.select(ops.cmp("olt", size, 1.0), small, large)
