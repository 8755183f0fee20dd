"""`ieee_*` and `fma`: the exact result rounded once, in every mode, against fractions."""

from __future__ import annotations

import bisect
import itertools
import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from tilelang.dtypes import DType, cast, from_bits
from tilelang.emulator.numerics import function

F64 = DType("float64")
MODES = ["rn", "rz", "ru", "rd"]
WIDE = ["float32", "float64"]
NARROW = ["float16", "bfloat16", "float8_e5m2"]
BINARY = ["add", "sub", "mul", "div"]


def edges(name: str) -> list[float]:
    """Values at which rounding, overflow and signs are decided."""
    d = DType(name)
    one = [
        0.0,
        1.0,
        1 + d.eps,
        1 - d.eps / 2,
        3.0,
        d.smallest_subnormal,
        d.smallest_normal,
        d.smallest_normal - d.smallest_subnormal,
        float(d.max),
        float(d.max) / 2,
        math.inf,
    ]
    return [*one, *(-x for x in one), math.nan]


def values(name: str, count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    d = DType(name)
    spread = min(40, 2 ** (d.exponent_bits - 1) - 4)
    x = rng.standard_normal(count) * np.exp2(rng.integers(-spread, spread, count))
    return cast(x, F64, d)


def number(x) -> float:
    return float(np.asarray(x).astype(np.float64))


@cache
def finite_words(name: str) -> list[Fraction]:
    d = DType(name)
    words = np.arange(1 << d.bits, dtype=f"u{d.numpy.itemsize}")
    found = cast(from_bits(words, d), d, F64)
    return sorted({Fraction(v) for v in found.tolist() if math.isfinite(v)})


def by_neighbours(x: Fraction, mode: str, name: str) -> float:
    """A fraction in a type of up to 16 bits, by its two neighbours among all values of the type."""
    d, known = DType(name), finite_words(name)
    at = bisect.bisect_left(known, x)
    if at < len(known) and known[at] == x:
        return float(x)
    saturates = d.is_narrow_float
    if at in (0, len(known)):
        edge, sign = (known[0], -1) if at == 0 else (known[-1], 1)
        outward = mode == ("rd" if sign < 0 else "ru")
        if mode == "rn":
            step = abs(known[1] - known[0])
            outward = abs(x) >= abs(edge) + step / 2
        return float(edge) if saturates or not outward else sign * math.inf
    low, high = known[at - 1], known[at]
    if mode == "rn":
        units = low / (high - low)  # the last bit of `low`
        up = x - low > high - x or (x - low == high - x and units % 2 == 1)
        return float(high if up else low)
    if mode == "rz":
        return float(min(low, high, key=abs))
    return float(low if mode == "rd" else high)


def by_units(x: Fraction, mode: str, name: str) -> float:
    """A fraction in float32 or float64, counted in units of its last place."""
    d = DType(name)
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, 1 - d.bias) - d.mantissa_bits)
    count = x / unit
    rounders = {"rn": round, "rz": math.trunc, "ru": math.ceil, "rd": math.floor}
    found = rounders[mode](count) * unit
    limit = Fraction(float(d.max))
    if abs(found) <= limit:
        return float(found)
    outward = mode in ("rn", "ru" if x > 0 else "rd")
    return (math.inf if outward else float(limit)) * (1 if x > 0 else -1)


def reference(x: Fraction, mode: str, name: str) -> float:
    return by_units(x, mode, name) if name in WIDE else by_neighbours(x, mode, name)


EXACT = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "fma": lambda a, b, c: a * b + c,
    "rcp": lambda a: 1 / a,
}


def check(op: str, mode: str, name: str, args: list[np.ndarray]) -> None:
    with np.errstate(all="ignore"):
        got = function(f"ieee_{op}", DType(name), (mode,))(*args)
    assert got.dtype == DType(name).numpy
    for result, *row in zip(got, *args, strict=True):
        xs, found = [number(v) for v in row], number(result)
        if not all(map(math.isfinite, xs)) or (op in ("div", "rcp") and xs[-1] == 0):
            continue
        exact = EXACT[op](*map(Fraction, xs))
        want = reference(exact, mode, name)
        assert found == want, (op, mode, name, xs, found, want)
        if exact != 0:
            assert (math.copysign(1, found) > 0) == (exact > 0), (op, mode, xs)


@pytest.mark.parametrize("name", [*NARROW, *WIDE])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", list(EXACT))
def test_random_operands(op, mode, name):
    arity = {"fma": 3, "rcp": 1}.get(op, 2)
    args = [values(name, 150, seed) for seed in range(arity)]
    check(op, mode, name, args)
    # Operands of nearly equal size cancel.
    check(op, mode, name, [cast(np.ones(20) + 3e-3 * k, F64, DType(name)) for k in range(arity)])


@pytest.mark.parametrize("name", [*NARROW, *WIDE])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", list(EXACT))
def test_operands_at_the_edges(op, mode, name):
    arity = {"fma": 3, "rcp": 1}.get(op, 2)
    some = edges(name) if arity < 3 else edges(name)[::2]
    rows = list(itertools.product(some, repeat=arity))
    args = [cast(np.array([r[k] for r in rows]), F64, DType(name)) for k in range(arity)]
    check(op, mode, name, args)


@pytest.mark.parametrize("name", [*NARROW, *WIDE])
@pytest.mark.parametrize("mode", MODES)
def test_signs_of_zero(mode, name):
    d = DType(name)
    x = cast(np.array([1.0, 0.0, 0.0, -0.0, -0.0, -2.0]), F64, d)
    y = cast(np.array([-1.0, 0.0, -0.0, 0.0, -0.0, 2.0]), F64, d)
    down = mode == "rd"
    want = [down, False, down, down, True, down]
    one = cast(np.ones(6), F64, d)
    for got in (
        function("ieee_add", d, (mode,))(x, y),
        function("ieee_fma", d, (mode,))(x, one, y),
        function("ieee_sub", d, (mode,))(x, cast(-cast(y, d, F64), F64, d)),
    ):
        wide = cast(got, d, F64)
        assert (wide == 0).all()
        assert np.signbit(wide).tolist() == want
    product = cast(function("ieee_mul", d, (mode,))(x, y), d, F64)
    assert np.signbit(product).tolist() == [True, False, True, True, False, True]


@pytest.mark.parametrize("name", ["float16", *WIDE])
@pytest.mark.parametrize("mode", MODES)
def test_infinities_nan_and_poles(mode, name):
    d = DType(name)

    def run(op: str, *xs: float) -> float:
        args = [cast(np.array([float(x)]), F64, d) for x in xs]
        with np.errstate(all="ignore"):
            return number(function(f"ieee_{op}", d, (mode,))(*args)[0])

    inf, nan = math.inf, math.nan
    assert run("add", inf, 1) == inf
    assert run("mul", -inf, 2) == -inf
    assert run("div", 1, 0) == inf
    assert run("div", -1, 0) == -inf
    assert run("rcp", -0.0) == -inf
    assert run("rcp", inf) == 0
    assert run("sqrt", inf) == inf
    assert run("rsqrt", inf) == 0
    assert run("rsqrt", 0) == inf
    assert math.isnan(run("add", inf, -inf))
    assert math.isnan(run("add", nan, 1))
    assert math.isnan(run("mul", inf, 0))
    assert math.isnan(run("div", 0, 0))
    assert math.isnan(run("sqrt", -1))
    assert math.isnan(run("rsqrt", -1))
    assert math.isnan(run("fma", inf, 0, 1))
    assert run("div", 1, -inf) == 0
    assert math.copysign(1, run("sqrt", -0.0)) == -1


@pytest.mark.parametrize("name", ["float16", "bfloat16", *WIDE])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", ["sqrt", "rsqrt"])
def test_roots(op, mode, name):
    d = DType(name)
    x = np.abs(values(name, 300, 3))
    special = [
        1.0,
        4.0,
        2.0,
        0.25,
        d.smallest_subnormal,
        d.smallest_normal,
        float(d.max),
        1 + d.eps,
        4 - 2 * d.eps,
    ]
    x = np.concatenate([x[x > 0], cast(np.array(special), F64, d)])
    got = function(f"ieee_{op}", d, (mode,))(x)
    for v, g in zip(x, got, strict=True):
        exact = Fraction(number(v)) if op == "sqrt" else 1 / Fraction(number(v))
        r = Fraction(number(g))
        below, above = neighbours(g, d)
        if r * r == exact:
            continue
        match mode:
            case "rd" | "rz":
                assert r * r < exact < above * above, (op, v)
            case "ru":
                assert below * below < exact < r * r, (op, v)
            case _:
                assert ((below + r) / 2) ** 2 < exact < ((r + above) / 2) ** 2, (op, v)


def neighbours(x, d: DType) -> tuple[Fraction, Fraction]:
    """The values of the type just below and above a positive one."""
    bits = np.asarray(x, d.numpy).reshape(1).view(f"u{d.numpy.itemsize}")
    step = np.array(1, bits.dtype)
    down, up = (number(b.view(d.numpy)[0]) for b in (bits - step, bits + step))
    top = Fraction(number(x)) * 2 - Fraction(down) if math.isinf(up) else Fraction(up)
    return Fraction(down), top


@pytest.mark.parametrize("name", [*NARROW, *WIDE])
def test_fma_is_the_fused_operation_in_the_nearest_mode(name):
    d = DType(name)
    args = [values(name, 200, seed) for seed in (7, 8, 9)]
    got = function("fma", d)(*args)
    for result, *row in zip(got, *args, strict=True):
        x, y, z = (Fraction(number(v)) for v in row)
        assert number(result) == reference(x * y + z, "rn", name)
    one = cast(np.array([1 + d.eps]), F64, d)
    minus = cast(np.array([-1.0]), F64, d)
    lost = number(function("fma", d)(one, one, minus)[0])
    assert lost == reference(Fraction(1 + d.eps) ** 2 - 1, "rn", name)


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="expected one of rn, rz, ru, rd"):
        function("ieee_add", DType("float32"), ("up",))


@pytest.mark.parametrize("z", [math.inf, -math.inf])
def test_a_product_beyond_the_format_is_no_infinity_inside_a_fma(z):
    for x in (1e300, -1e300):
        assert function("fma", DType("float64"))(np.array(x), np.array(1e300), np.array(z)) == z
