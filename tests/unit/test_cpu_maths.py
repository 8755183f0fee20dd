"""Maths functions of the native CPU target: their errors in units of the last place, and exact ones
bit for bit against the emulator.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cpu_build import Loop, Loops, build, optimised, same
from tilelang.dtypes import DType
from tilelang.emulator import numerics
from tilelang.errors import InternalError
from tilelang.ir.functions import FUNCTIONS, Accepts, result_dtype
from tilelang.targets.cpu import arithmetic
from tilelang.targets.cpu.casts import convert
from tilelang.targets.cpu.maths import function
from tilelang.targets.cpu.text import Code, Module, number

F32, F64 = DType("float32"), DType("float64")
WIDE: Any = np.longdouble if np.finfo(np.longdouble).nmant > 52 else np.float64

# The largest error of each, in units of the last place. Of float32 it was measured on one number in
# 397: exp 0.85, exp2 0.81, exp10 0.86, log 0.82, log2 0.96, log10 0.86, log1p 1.40, tanh 1.72,
# sigmoid 1.55, erf 1.03, rsqrt 1.48, asin, acos and atan 0.51, the others 0.501.
BOUNDS = {
    **dict.fromkeys(("exp", "exp2", "exp10", "log", "log2", "log10"), 1.0),
    **dict.fromkeys(("log1p", "rsqrt"), 1.5),
    "tanh": 2.0,
    "sigmoid": 1.7,
    "erf": 1.1,
    **dict.fromkeys(("sin", "cos", "tan", "asin", "acos", "atan", "atan2"), 0.51),
    **dict.fromkeys(("sinh", "cosh", "asinh", "acosh", "atanh", "pow", "hypot"), 0.501),
    **dict.fromkeys(("sqrt", "fast_rcp"), 0.5),
}
ONE = tuple(n for n in BOUNDS if FUNCTIONS[n].arity == 1)
TWO = tuple(n for n in BOUNDS if FUNCTIONS[n].arity == 2)
LIBRARY = ("sin", "cos", "tan", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh")
"""Functions that the C library computes for float64; its error is its own."""

_erf = np.frompyfunc(math.erf, 1, 1)
_OTHER_NAMES = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "pow": "power",
    "atan2": "arctan2",
}
_FORMULAS: dict[str, Callable[[Any], Any]] = {
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    "erf": lambda x: _erf(x.astype(np.float64)).astype(x.dtype),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "fast_rcp": lambda x: 1 / x,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def loop(name: str, dtype: DType, lanes: int = 1, params: tuple[Any, ...] = ()) -> Loop:
    operands = (dtype,) * FUNCTIONS[name].arity

    def body(code, *xs):
        return function(code, name, list(xs), dtype, params)

    label = " ".join([name, *params])
    return Loop(label, operands, result_dtype(name, operands), body, lanes)


def exact(name: str, *xs: np.ndarray) -> np.ndarray:
    """The function in a wider type."""
    wide = np.float64 if xs[0].dtype == np.float32 else WIDE
    formula = _FORMULAS.get(name) or getattr(np, _OTHER_NAMES.get(name, name))
    with np.errstate(all="ignore"):
        return formula(*(x.astype(wide) for x in xs))


def errors(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """In units of the last place; infinite where one of the two is NaN, or a sign is wrong."""
    kind = got.dtype
    with np.errstate(all="ignore"):
        near = want.astype(kind)
        unit = np.spacing(np.minimum(np.abs(near), np.finfo(kind).max)).astype(want.dtype)
        found = np.abs(got.astype(want.dtype) - want) / unit
    found[(got == near) & ~np.isfinite(found)] = 0
    found[np.isnan(got) & np.isnan(want)] = 0
    found[np.isnan(found) | ((np.signbit(got) != np.signbit(want)) & ~np.isnan(want))] = np.inf
    return found


def check(loops: Loops, name: str, bound: float, *xs: np.ndarray) -> None:
    got, want = loops(name, *xs), exact(name, *xs)
    found = errors(got, want)
    k = int(np.argmax(found))
    operands = ", ".join(repr(x[k]) for x in xs)
    assert found[k] <= bound, f"{name}({operands}) is {got[k]!r}, expected {want[k]!r}"


SPECIAL = (0.0, math.inf, math.nan, 1.0, 0.5, 2.0, 3.0, 1e-45, 1.1e-38, 1.2e-38, 3.4e38, 0.9)
ENDS = (
    88.72,
    88.73,
    87.3,
    103.9,
    104.0,
    127.99,
    128.0,
    149.0,
    150.0,
    38.53,
    38.54,
    45.2,
    89.4,
    8.7,
)


def operands(dtype: DType, count: int) -> np.ndarray:
    """Floats of all sizes, more of them about 1, and those where results end; a multiple of 8."""
    rng = np.random.default_rng(6)
    size = dtype.bits
    words = rng.integers(0, (1 << size) - 1, count, dtype=f"u{size // 8}", endpoint=True)
    several = rng.standard_normal(count) * np.exp2(rng.integers(-12, 8, count))
    some = np.array([*SPECIAL, *ENDS, 709.78, 709.79, 744.5, 745.5, 1024.0, 1074.5, 308.3, 323.4])
    found = np.concatenate([some, -some, several, rng.uniform(-1.5, 1.5, count)])
    with np.errstate(all="ignore"):
        found = np.concatenate([words.view(dtype.numpy), found.astype(dtype.numpy)])
    return np.resize(found, -(-found.size // 8) * 8)


# Errors -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def single() -> Loops:
    return build([loop(n, F32) for n in (*ONE, *TWO)])


@pytest.mark.parametrize("name", ONE)
def test_float32(single, name):
    x = operands(F32, 6_000 if name == "erf" else 60_000)
    check(single, name, BOUNDS[name], x)


def test_float32_of_every_exponent():
    """From 2**-149 to 2**127, so that each window of the reduction by pi/2 is used."""
    x = np.ldexp(np.array([1, 1.5, 1.25, 1.99], np.float32), np.arange(-149, 127)[:, None]).ravel()
    x = np.concatenate([x, -x])
    loops = build([loop(n, F32) for n in ONE])
    for name in ONE:
        check(loops, name, BOUNDS[name], x)


def special_pairs(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    some = np.array([*SPECIAL, 16777216.0, 16777217.0, 7.0, 1e38, 1.5], dtype.numpy)
    some = np.concatenate([some, -some])
    rng = np.random.default_rng(7)
    a, b = np.meshgrid(some, some)
    sizes = np.abs(rng.standard_normal(20_000)).astype(dtype.numpy)
    powers = rng.uniform(-30, 30, 20_000).astype(dtype.numpy)
    words = rng.integers(0, 1 << dtype.bits, (2, 20_000), dtype=f"u{dtype.bits // 8}")
    floats = words.view(dtype.numpy)
    return (
        np.concatenate([a.ravel(), sizes, -sizes, floats[0]]),
        np.concatenate([b.ravel(), powers, np.rint(powers), floats[1]]),
    )


@pytest.mark.parametrize("name", TWO)
def test_float32_of_two(single, name):
    check(single, name, BOUNDS[name], *special_pairs(F32))


def test_float64():
    own = [n for n in ONE if n not in LIBRARY and n != "erf"]
    loops = build([loop(n, F64) for n in own])
    x = operands(F64, 20_000)
    slack = 0.01 if WIDE is not np.float64 else 1.0
    for name in own:
        check(loops, name, BOUNDS[name] + slack, x)


def test_float64_of_the_c_library():
    loops = build([loop(n, F64) for n in (*LIBRARY, *TWO, "erf")])
    x, (a, b) = operands(F64, 2_000), special_pairs(F64)
    for name in LIBRARY:
        check(loops, name, 3.0, x)
    for name in TWO:
        check(loops, name, 3.0, a, b)
    check(loops, "erf", 1.0, x)


def test_vectors_give_what_scalars_give(single):
    loops = build([loop(n, F32, 8) for n in (*ONE, *TWO)])
    x, y = operands(F32, 2_000), operands(F32, 2_000)[::-1]
    for name in ONE:
        assert same(loops(name, x), single(name, x), F32).all(), name
    for name in TWO:
        assert same(loops(name, x, y), single(name, x, y), F32).all(), name
    wide = build([loop("sin", F64, 4), loop("exp", F64, 4), loop("ldexp", F64, 4)])
    a, b = operands(F64, 200), np.rint(operands(F64, 200)[::-1])
    check(wide, "sin", 3.0, a)
    check(wide, "exp", 1.0, a)
    with np.errstate(all="ignore"):
        want = numerics.function("ldexp", F64)(a, b)
    assert same(wide("ldexp", a, b), want, F64).all()


def test_without_fused_multiply_add(monkeypatch):
    monkeypatch.setattr(arithmetic, "has_fma", lambda: False)
    loops = build([loop(n, F32) for n in (*ONE, *TWO)])
    assert "llvm.fma" not in loops.text
    for name in ONE:
        x = operands(F32, 3_000 if name == "erf" else 20_000)
        check(loops, name, min(2.0, BOUNDS[name] + 0.9), x)
    for name in TWO:
        check(loops, name, BOUNDS[name], *special_pairs(F32))


def test_loops_are_vectorised():
    names = (*ONE, *TWO, "fmod", "nextafter", "ldexp", "round_away")
    loops = build([loop(n, F32) for n in names], vectorise=True)
    for name in names:
        assert " x float>" in loops.optimised(name), name


def test_float32_calls_no_library():
    names = [n for n, f in FUNCTIONS.items() if f.accepts is not Accepts.INT]
    text = build([loop(n, F32) for n in names]).text
    called = set(re.findall(r"call [^@]*@([\w.]+)", text))
    assert all(name.startswith("llvm.") for name in called), called
    assert "frem" not in text


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_float16_results_need_no_function_of_a_compiler(name):
    """LLVM rounds a float64 that it knows as a copysign to float16 by `__truncdfhf2`, which nothing
    defines: the call jumps to address 0.
    """
    dtype, half = DType(name), DType("float16")

    def rounded(fn: str) -> Loop:
        count = FUNCTIONS[fn].arity

        def body(code, *xs):
            found = convert(code, function(code, fn, list(xs), dtype), dtype, F32)
            return convert(code, found, F32, half)

        return Loop(fn, (dtype,) * count, half, body)

    loops = [rounded(n) for n in (*ONE, *TWO, "copysign", "fmod", "ldexp")]
    called = re.findall(r"__\w+", optimised(loops).assembly())
    assert not called


# Exact functions ----------------------------------------------------------------------------------

EXACT = ("abs", "floor", "ceil", "trunc", "round", "round_away", "isnan", "isinf", "isfinite")
EXACT_OF_TWO = ("fmod", "copysign", "nextafter", "ldexp", "fmul")


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_exact_functions(name):
    dtype = DType(name)
    lanes = (1, 8)
    names = (*EXACT, *EXACT_OF_TWO, "clamp")
    x, (a, b) = operands(dtype, 4_000), (v[:5_000] for v in special_pairs(dtype))
    halves = np.arange(-40, 40).astype(dtype.numpy) / 4
    near = np.nextafter(halves, halves.dtype.type(100))
    x = np.concatenate([x, halves, near, -near])
    for count in lanes:
        loops = build([loop(n, dtype, count) for n in names])
        for fn in names:
            kept = (x,) if fn in EXACT else (a, b) if fn in EXACT_OF_TWO else (a, b, b[::-1])
            got = loops(fn, *kept)
            with np.errstate(all="ignore"):
                want = np.asarray(numerics.function(fn, dtype)(*kept))
            ok = same(got, want, DType("bool") if want.dtype == np.bool_ else dtype)
            if want.dtype != np.bool_:
                ok |= np.isnan(got) & np.isnan(want)
                if fn == "clamp":  # of two zeros either is the larger
                    ok |= got == want
            wrong = np.flatnonzero(~ok)
            assert not wrong.size, (fn, [v[wrong[0]] for v in kept], got[wrong[0]])


def test_remainder_of_a_quotient_as_large_as_there_is():
    rng = np.random.default_rng(10)
    a = np.append(rng.uniform(1e38, 3e38, 20_000).astype(np.float32), np.float32(2.4066091e38))
    b = np.append(rng.integers(1, 1000, 20_000), 849).astype(np.float32) * np.float32(1e-45)
    got = build([loop("fmod", F32)])("fmod", a, b)  # in the last pair a digit is wrong by one
    assert (got == np.fmod(a, b)).all()


def test_clamp_with_literals_keeps_nan():
    def body(code, x):
        return function(code, "clamp", [x, number(x.type, -1.0), number(x.type, 2.0)], F32)

    x = operands(F32, 500)
    got = build([Loop("f", (F32,), F32, body)])("f", x)
    assert np.array_equal(got, np.clip(x, np.float32(-1), np.float32(2)), equal_nan=True)


INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@pytest.mark.parametrize("name", INTS)
def test_functions_of_integers(name):
    dtype = DType(name)
    rng = np.random.default_rng(8)
    low, high = int(dtype.min), int(dtype.max)
    words = rng.integers(low, high, 400, dtype=dtype.numpy, endpoint=True)
    words[:200] >>= rng.integers(0, dtype.bits, 200).astype(dtype.numpy)
    words[:8] = np.array([low, low + 1, high, high - 1, 0, 1, 2, 3], dtype.numpy)
    places = rng.integers(max(low, -3), dtype.bits + 3, 400).astype(dtype.numpy)
    counts = rng.integers(max(low, -9), 9, 400).astype(dtype.numpy)
    kept = {
        "iclamp": (words, np.roll(words, 1), np.roll(words, 2)),
        "fns": (words, places, counts),
    }
    names = [n for n, f in FUNCTIONS.items() if f.accepts is not Accepts.FLOAT]
    for lanes in (1, 8):
        loops = build([loop(n, dtype, lanes) for n in names])
        for fn in names:
            xs = kept.get(fn, (words,))
            got, want = loops(fn, *xs), numerics.function(fn, dtype)(*xs)
            wrong = np.flatnonzero(got != want)
            assert not wrong.size, (fn, [v[wrong[0]] for v in xs], got[wrong[0]], want[wrong[0]])


# ieee_* and fma -----------------------------------------------------------------------------------

IEEE = [n for n in FUNCTIONS if n.startswith("ieee_")]
ROUNDINGS = ("rn", "rz", "ru", "rd")


def ieee_operands(dtype: DType, arity: int, count: int) -> list[np.ndarray]:
    """Operands of like and unlike sizes, subnormal and huge ones, and sums that cancel."""
    rng = np.random.default_rng(9)
    info = np.finfo(dtype.numpy)
    low, high = int(info.minexp) - int(info.nmant), int(info.maxexp)
    special = np.array([0, 1, 2, 3, 0.25, math.inf, math.nan, info.tiny, info.max], dtype.numpy)
    special = np.concatenate([special, -special, [info.smallest_subnormal]])

    def draw() -> np.ndarray:
        exponents = [
            rng.integers(-3, 3, count),
            rng.integers(low, high, count),
            rng.integers(low // 2 - 40, low // 2 + 40, count),
            rng.integers(low, low + int(info.nmant) + 10, count),
            rng.integers(high - 4, high, count),
        ]
        which = rng.choice(5, count, p=[0.5, 0.2, 0.1, 0.1, 0.1])
        with np.errstate(all="ignore"):
            found = np.ldexp(rng.standard_normal(count), np.choose(which, exponents))
            found = np.where(rng.random(count) < 0.2, np.round(found, 1), found)
            found = found.astype(dtype.numpy)
        return np.where(rng.random(count) < 0.12, rng.choice(special, count), found)

    xs = [draw() for _ in range(arity)]
    if arity == 3:
        with np.errstate(all="ignore"):
            cancels = -(xs[0] * xs[1])
        cancels = np.where(
            rng.random(count) < 0.5, cancels, np.nextafter(cancels, dtype.numpy.type(0))
        )
        xs[2] = np.where(np.isfinite(cancels) & (rng.random(count) < 0.5), cancels, xs[2])
    return [x.astype(dtype.numpy) for x in xs]


def fits(xs: list[np.ndarray]) -> np.ndarray:
    """All but an infinite sum with a product of numbers that is too large: exactly it is infinite,
    while the emulator multiplies first, and finds NaN.
    """
    if len(xs) < 3:
        return np.ones(xs[0].shape, np.bool_)
    with np.errstate(all="ignore"):
        over = np.isinf(xs[0] * xs[1]) & np.isfinite(xs[0]) & np.isfinite(xs[1])
    return ~(over & np.isinf(xs[2]))


@pytest.mark.parametrize(("name", "lanes"), [("float32", 1), ("float32", 8), ("float64", 1)])
def test_ieee_operations(name, lanes):
    dtype = DType(name)
    cases = [(op, mode) for op in IEEE for mode in ROUNDINGS]
    loops = build([loop(op, dtype, lanes, (mode,)) for op, mode in cases])
    for op, mode in cases:
        xs = ieee_operands(dtype, FUNCTIONS[op].arity, 3_000 if dtype == F32 else 400)
        got = loops(f"{op} {mode}", *xs)
        with np.errstate(all="ignore"):
            want = numerics.function(op, dtype, (mode,))(*xs)
        ok = same(got, want, dtype) | (np.isnan(got) & np.isnan(want)) | ~fits(xs)
        wrong = np.flatnonzero(~ok)
        assert not wrong.size, (
            op,
            mode,
            [float(x[wrong[0]]).hex() for x in xs],
            float(got[wrong[0]]).hex(),
            float(want[wrong[0]]).hex(),
        )


def test_other_names_of_roundings():
    xs = ieee_operands(F32, 2, 200)
    loops = build([loop("ieee_div", F32, 1, (m,)) for m in ("ru", "rp", "rd", "rm")])
    for a, b in (("ru", "rp"), ("rd", "rm")):
        assert same(loops(f"ieee_div {a}", *xs), loops(f"ieee_div {b}", *xs), F32).all()


def test_fma_rounds_once():
    loops = build([loop("fma", F32)])
    xs = ieee_operands(F32, 3, 5_000)
    with np.errstate(all="ignore"):
        want = numerics.function("fma", F32)(*xs)
    got = loops("fma", *xs)
    assert (same(got, want, F32) | (np.isnan(got) & np.isnan(want))).all()


# What there is ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "float64", "int32"])
def test_every_row_of_the_table_has_code(name):
    dtype = DType(name)
    refused = Accepts.INT if dtype.is_float else Accepts.FLOAT
    names = [n for n, f in FUNCTIONS.items() if f.accepts is not refused]
    loops = build([loop(n, dtype) for n in names])
    assert set(loops.loops) == set(names)


def test_what_is_not_there_is_an_internal_error():
    code = Code(Module(), "f", "void", [])
    half = number("i16", 0)
    with pytest.raises(InternalError, match="exp of float16"):
        function(code, "exp", [half], DType("float16"))
    one = number("float", 1.0)
    with pytest.raises(InternalError, match="ieee_add with rounding rs"):
        function(code, "ieee_add", [one, one], F32, ("rs",))
