"""Operations whose result is the exact one, rounded once as asked: `fma` and `ieee_*`.

What enters: NumPy values of one float type. What leaves: results of the same type. Types of up to
32 bits are computed in float64 with its last bit *sticky* (an inexact result is the one of its two
neighbours that is odd), so that rounding to the type afterwards is rounding the exact result;
float64 is computed from exact fractions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.dtypes.convert import converter
from tilelang.emulator.storage import Array

Operation = Callable[..., Any]

F64 = DType("float64")
MODES = {"rn": "rn", "rz": "rz", "ru": "rp", "rd": "rm", "rp": "rp", "rm": "rm"}
"""The rounding modes by CUDA's and PTX's names, as the casts name them."""


def operation(op: str, dtype: DType, mode: str = "rn") -> Operation:
    """add, sub, mul, div, fma, rcp, sqrt or rsqrt on operands of `dtype`, rounded by `mode`."""
    if mode not in MODES:
        raise ValueError(f"unknown rounding {mode!r}; expected one of {', '.join(MODES)}")
    if dtype.name == "float64":
        return _each(op, MODES[mode])
    enter, leave = converter(dtype, F64), converter(F64, dtype, MODES[mode])
    fn, down = _STICKY[op], MODES[mode] == "rm"

    def compute(*xs: Any) -> Array:
        operands = [enter(np.asarray(x)) for x in xs]
        result = np.asarray(fn(*operands), np.float64)
        if down and op in _SUMS:
            result = _zero_below(result, *_terms(op, operands))
        return leave(result)

    return compute


_SUMS = frozenset({"add", "sub", "fma"})


def _terms(op: str, xs: list[Array]) -> tuple[Array, Array]:
    """The two terms of a sum."""
    if op == "fma":
        return np.asarray(xs[0] * xs[1]), xs[2]
    return xs[0], np.asarray(-xs[1]) if op == "sub" else xs[1]


def _zero_below(total: Array, a: Array, b: Array) -> Array:
    """Rounding down, a sum that is exactly zero is -0, but for +0 and +0 (IEEE 754, 6.3)."""
    negative = (total == 0) & (np.signbit(a) | np.signbit(b))
    return np.where(negative, -0.0, total)


# -- up to 32 bits: float64 with a sticky last bit -------------------------------------------------


def _sticky(near: Array, lost: Array) -> Array:
    """`near`, or its neighbour towards `near + lost`, whichever is odd; `near` if it is exact."""
    bits = np.asarray(near, np.float64).view(np.int64)
    away = (lost > 0) == (near > 0)
    moved = np.where(away, bits + 1, bits - 1)
    use = np.isfinite(near) & np.isfinite(lost) & (lost != 0) & ((bits & 1) == 0)
    return np.where(use, moved, bits).view(np.float64)


def _sum(x: Array, y: Array) -> Array:
    total = x + y
    back = total - x
    return _sticky(total, (x - (total - back)) + (y - back))


def _halves(x: Array) -> tuple[Array, Array]:
    """Two numbers of at most 27 bits whose sum is `x` (Veltkamp)."""
    scaled = x * 134217729.0
    high = scaled - (scaled - x)
    return high, x - high


def _times(x: Array, y: Array) -> tuple[Array, Array]:
    """The product as two numbers, exactly (Dekker)."""
    product = x * y
    (a, b), (c, d) = _halves(x), _halves(y)
    return product, ((a * c - product) + a * d + b * c) + b * d


def _difference(x: Array, y: Array) -> Array:
    return _sum(x, -y)


def _product(x: Array, y: Array) -> Array:
    return x * y  # exact: twice 24 bits


def _fused(x: Array, y: Array, z: Array) -> Array:
    return _sum(x * y, z)


def _quotient(x: Array, y: Array) -> Array:
    near = x / y
    high, low = _times(near, y)
    rest = (x - high) - low
    return _sticky(near, np.where(y < 0, -rest, rest))


def _inverse(x: Array) -> Array:
    return _quotient(np.ones_like(x), x)


def _root(x: Array) -> Array:
    near = np.sqrt(x)
    high, low = _times(near, near)
    return _sticky(near, (x - high) - low)


def _inverse_root(x: Array) -> Array:
    near = 1.0 / np.sqrt(x)
    square, more = _times(near, near)
    high, low = _times(square, x)
    return _sticky(near, (1.0 - high) - low - more * x)


_STICKY: dict[str, Operation] = {
    "add": _sum,
    "sub": _difference,
    "mul": _product,
    "fma": _fused,
    "div": _quotient,
    "rcp": _inverse,
    "sqrt": _root,
    "rsqrt": _inverse_root,
}


# -- float64: exact fractions ----------------------------------------------------------------------

_ARITY = {"fma": 3, "rcp": 1, "sqrt": 1, "rsqrt": 1}


def _each(op: str, mode: str) -> Operation:
    def one(*xs: Any) -> float:
        return _one(op, mode, tuple(float(x) for x in xs))

    each = np.frompyfunc(one, _ARITY.get(op, 2), 1)

    def every(*xs: Any) -> Array:
        return np.asarray(each(*xs), np.float64)

    return every


def _one(op: str, mode: str, xs: tuple[float, ...]) -> float:
    """One operation on float64 numbers. What is no finite number is as NumPy has it."""
    if op == "fma" and not math.isfinite(xs[2]) and all(map(math.isfinite, xs[:2])):
        return xs[2]  # the exact product is finite, even where a float64 has no room for it
    if not all(map(math.isfinite, xs)) or _is_pole(op, xs):
        return _plain(op, xs)
    exact = _exact(op, [Fraction(x) for x in xs])
    return _zero(op, mode, xs) if exact == 0 else rounded(exact, mode)


def _is_pole(op: str, xs: tuple[float, ...]) -> bool:
    """A division by zero, or a root of a negative number or of zero."""
    if op in ("sqrt", "rsqrt"):
        return xs[0] <= 0
    return op in ("div", "rcp") and xs[-1] == 0


def _zero(op: str, mode: str, xs: tuple[float, ...]) -> float:
    """The zero with the sign that the operation gives it."""
    if op not in _SUMS:
        return _plain(op, xs)
    a, b = (float(t) for t in _terms(op, [np.array(x) for x in xs]))
    if a == b == 0 and math.copysign(1.0, a) == math.copysign(1.0, b):
        return a
    return -0.0 if mode == "rm" else 0.0


def rounded(x: Fraction, mode: str) -> float:
    """A fraction that is not zero as a float64, by one of rn, rz, rp, rm."""
    negative, x = x < 0, abs(x)
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    exponent -= x < Fraction(2) ** exponent
    unit = max(exponent, -1022) - 52
    whole, rest = divmod(x * Fraction(2) ** -unit, 1)
    half = Fraction(1, 2)
    match mode:
        case "rp" | "rm":
            up = rest > 0 and negative == (mode == "rm")
        case "rz":
            up = False
        case _:
            up = rest > half or (rest == half and whole % 2 == 1)
    whole += up
    if whole * Fraction(2) ** unit >= Fraction(2) ** 1024:
        away = mode == "rn" or (mode != "rz" and negative == (mode == "rm"))
        found = math.inf if away else float(np.finfo(np.float64).max)
    else:
        found = math.ldexp(whole, unit)
    return -found if negative else found


def _square_root(x: Fraction) -> Fraction:
    """The root, or a fraction that every mode rounds as it rounds the root."""
    scale = 66 - (x.numerator.bit_length() - x.denominator.bit_length()) // 2
    scaled = x * Fraction(4) ** scale
    root = math.isqrt(math.floor(scaled))
    return Fraction(2 * root + (root * root != scaled)) / Fraction(2) ** (scale + 1)


def _exact(op: str, xs: list[Fraction]) -> Fraction:
    """The exact result, or for a root what rounds like it."""
    match op, xs:
        case "add", [x, y]:
            return x + y
        case "sub", [x, y]:
            return x - y
        case "mul", [x, y]:
            return x * y
        case "div", [x, y]:
            return x / y
        case "fma", [x, y, z]:
            return x * y + z
        case _:
            x = xs[0] if op == "sqrt" else 1 / xs[0]
            return x if op == "rcp" else _square_root(x)


def _plain(op: str, xs: tuple[float, ...]) -> float:
    """The result of NumPy, for what is not finite and for signs of zero."""
    values = [np.array(x) for x in xs]
    match op, values:
        case "add" | "sub" | "fma", _:
            a, b = _terms(op, values)
            out = a + b
        case "mul", [x, y]:
            out = x * y
        case "div", [x, y]:
            out = x / y
        case _:
            x = values[0] if op == "rcp" else np.sqrt(values[0])
            out = x if op == "sqrt" else 1.0 / x
    return float(out)
