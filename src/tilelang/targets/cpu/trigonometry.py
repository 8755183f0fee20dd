"""Trigonometric functions of float32, as code.

What enters: float32 values of any lanes. What leaves: sin, cos, tan, asin, acos, atan, atan2, each
computed in float64 and rounded once, so that the error is hardly above half a unit of the last
place. No branch, no call, no table in memory: loops around them are vectorised.

Reduction by pi/2 is exact enough for all arguments (Payne and Hanek): of 2/pi only the bits count
that do not make whole turns. They are cut in parts of 29 bits, so that a part times a float32
is exact in float64, and the size of the argument chooses one of four windows of three parts.
"""

from __future__ import annotations

import math

from tilelang.targets.cpu.arithmetic import Ops
from tilelang.targets.cpu.text import Value

_PARTS = (  # 2/pi in parts of 29 bits, and what is missing after each
    (0.636619770899415, 1.4681663269012186e-09),
    (1.4681663246252086e-09, 2.276010073078396e-18),
    (2.2760100671971816e-18, 5.881214749119912e-27),
    (5.8812147387730434e-27, 1.0346868704619472e-35),
    (1.0346868700836215e-35, 3.7832563882960676e-45),
)
_WINDOWS = (2.0**54, 2.0**83, 2.0**112)
"""Where the first part of 2/pi, the first two, and the first three give whole turns only."""
_SIN = (2.7183244551713867e-06, -0.0001983933648889888, 0.008333329391495213, -0.16666666641666011)
_COS = (2.439062689023989e-05, -0.0013886765953377974, 0.04166662339508275, -0.4999999972558083)
_ASIN = (  # asin(s) / s - 1 in z = s*s, over z
    0.03759345207490387,
    0.014381710898087582,
    0.0318234101791753,
    0.044514986151048486,
    0.07500514895596483,
    0.16666659810232765,
)
_ATAN = (  # atan(q) / q in q*q
    0.0011141031066323858,
    -0.007319608380273635,
    0.022543591432286497,
    -0.04469463526047098,
    0.06741957557745362,
    -0.08811263436604205,
    0.11058273390575442,
    -0.14279841008022987,
    0.1999967168796605,
    -0.3333332690933602,
    1.0,
)


# Sine, cosine, tangent ----------------------------------------------------------------------------


def _turns(ops: Ops, x: Value) -> tuple[Value, Value, Value]:
    """x * 2/pi without multiples of 8, as three numbers; the last is the smallest."""
    size = ops.abs(x)
    parts: list[Value] = []
    for first, column in ((0, 0), (1, 0), (1, 1)):
        found = ops.const(x, _PARTS[first][column])
        for k, limit in enumerate(_WINDOWS, 1):
            found = ops.select(ops.cmp("oge", size, limit), _PARTS[first + k][column], found)
        parts.append(ops.mul(x, found))

    def reduced(t: Value) -> Value:
        magic = 1.5 * 2.0**55  # its last place is 8, and t is not above 2**54
        return ops.sub(t, ops.sub(ops.add(t, magic), magic))

    return reduced(parts[0]), reduced(parts[1]), parts[2]


def _quadrant(ops: Ops, x: Value) -> tuple[Value, Value, Value]:
    """The number of quarter turns in a float32, modulo 4 in its low bits, and the sine and cosine
    of the rest, in float64. NaN for what is not finite.
    """
    one, two, three = _turns(ops, ops.double(x))
    magic = 1.5 * 2.0**52
    shifted = ops.add(ops.add(ops.add(one, two), three), magic)
    rest = ops.add(ops.add(ops.sub(one, ops.sub(shifted, magic)), two), three)
    y = ops.mul(rest, math.pi / 2)
    z = ops.mul(y, y)
    sine = ops.fma(ops.mul(y, z), ops.poly(z, _SIN), y)
    cosine = ops.fma(z, ops.poly(z, _COS), 1.0)
    return ops.bits(shifted), sine, cosine


def _signed(ops: Ops, quarters: Value, x: Value) -> Value:
    """x with its sign changed in the second half of a turn."""
    flip = ops.shl(ops.and_(quarters, 2), 62)
    return ops.from_bits(ops.xor(ops.bits(x), flip))


def sin(ops: Ops, x: Value) -> Value:
    """The sine of a float32."""
    quarters, sine, cosine = _quadrant(ops, x)
    found = ops.select(ops.cmp("ne", ops.and_(quarters, 1), 0), cosine, sine)
    single = ops.single(_signed(ops, quarters, found))
    return ops.select(ops.cmp("oeq", x, 0.0), x, single)  # keeps -0


def cos(ops: Ops, x: Value) -> Value:
    """The cosine of a float32."""
    quarters, sine, cosine = _quadrant(ops, x)
    found = ops.select(ops.cmp("ne", ops.and_(quarters, 1), 0), sine, cosine)
    return ops.single(_signed(ops, ops.add(quarters, 1), found))


def tan(ops: Ops, x: Value) -> Value:
    """The tangent of a float32."""
    quarters, sine, cosine = _quadrant(ops, x)
    odd = ops.cmp("ne", ops.and_(quarters, 1), 0)
    above = ops.select(odd, ops.neg(cosine), sine)
    below = ops.select(odd, sine, cosine)
    return ops.select(ops.cmp("oeq", x, 0.0), x, ops.single(ops.div(above, below)))


# Inverses -----------------------------------------------------------------------------------------


def _arcsine(ops: Ops, x: Value) -> Value:
    """asin in float64; |x| above 1/2 by pi/2 - 2 asin(sqrt((1 - |x|) / 2))."""
    size = ops.abs(x)
    far = ops.cmp("ogt", size, 0.5)
    z = ops.select(far, ops.mul(ops.sub(1.0, size), 0.5), ops.mul(size, size))
    s = ops.select(far, ops.sqrt(z), size)
    near = ops.fma(ops.mul(s, z), ops.poly(z, _ASIN), s)
    return ops.copysign(ops.select(far, ops.fma(near, -2.0, math.pi / 2), near), x)


def asin(ops: Ops, x: Value) -> Value:
    """The arc sine of a float32; NaN outside of [-1, 1]."""
    return ops.single(_arcsine(ops, ops.double(x)))


def acos(ops: Ops, x: Value) -> Value:
    """The arc cosine of a float32; NaN outside of [-1, 1]."""
    return ops.single(ops.sub(math.pi / 2, _arcsine(ops, ops.double(x))))


def _arctangent(ops: Ops, y: Value, x: Value) -> Value:
    """The angle of the point (x, y), neither of which is negative, in [0, pi/2]."""
    steep = ops.cmp("ogt", y, x)
    large, small = ops.select(steep, y, x), ops.select(steep, x, y)
    q = ops.div(small, large)
    q = ops.select(ops.cmp("oeq", small, large), 1.0, q)  # both infinite
    q = ops.select(ops.cmp("oeq", ops.add(small, large), 0.0), 0.0, q)
    angle = ops.mul(q, ops.poly(ops.mul(q, q), _ATAN))
    return ops.select(steep, ops.sub(math.pi / 2, angle), angle)


def atan(ops: Ops, x: Value) -> Value:
    """The arc tangent of a float32."""
    size = ops.double(ops.abs(x))
    return ops.copysign(ops.single(_arctangent(ops, size, ops.const(size, 1.0))), x)


def atan2(ops: Ops, y: Value, x: Value) -> Value:
    """The angle of the point (x, y) of float32, in [-pi, pi], with the signs of zeros as in C."""
    angle = _arctangent(ops, ops.double(ops.abs(y)), ops.double(ops.abs(x)))
    behind = ops.cmp("slt", ops.bits(x), 0)
    angle = ops.select(behind, ops.sub(math.pi, angle), angle)
    return ops.copysign(ops.single(angle), y)
