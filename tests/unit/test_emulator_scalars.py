"""Scalar expressions of every type, by block and by lanes, against exact references."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from emulator_build import (
    BOOL,
    F16,
    F32,
    F64,
    I32,
    I64,
    add,
    buf,
    call,
    e,
    kernel,
    ld,
    mul,
    op,
    run,
    same,
    st,
    var,
)
from tilelang.dtypes import DType
from tilelang.dtypes.convert import cast
from tilelang.emulator import translate
from tilelang.ir.expr import Bitcast, Cast, Select, Unary, UnaryOp
from tilelang.ir.functions import FUNCTIONS
from tilelang.ir.tile import For, If, Parallel

i = var("i")
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "int4", "uint4"]


def both_ways(dtype_in, dtype_out, expression, *arrays, narrow=True):
    """`expression` of the elements, computed one by one and by lanes; the two must agree bit by
    bit.
    """
    n = len(arrays[0])
    ins = [buf(f"A{k}", dtype_in, n) for k in range(len(arrays))]
    results = []
    for way in ("block", "lanes"):
        out = buf("C", dtype_out, n)
        body = (st(out, i, expression(*(ld(b, i) for b in ins))),)
        loop = For(i, e(0), e(n), body) if way == "block" else Parallel((i,), (e(n),), body)
        c = np.zeros(n, DType(dtype_out).numpy)
        run(kernel([*ins, out], loop), C=c, **{f"A{k}": a for k, a in enumerate(arrays)})
        results.append(c)
    assert results[0].tobytes() == results[1].tobytes()
    return results[0]


def wrap(x: int, d: DType) -> int:
    x &= (1 << d.bits) - 1
    return x - (1 << d.bits) if d.is_int and x >> (d.bits - 1) else x


def trunc(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def shifted(d: DType, a: int, b: int, left: bool) -> int:
    if not 0 <= b < d.bits:
        return 0 if left else (-1 if a < 0 else 0)
    return a << b if left else a >> b


REFERENCE = {
    "+": lambda d, a, b: a + b,
    "-": lambda d, a, b: a - b,
    "*": lambda d, a, b: a * b,
    "//": lambda d, a, b: a // b if b else None,
    "%": lambda d, a, b: a % b if b else None,
    "truncdiv": lambda d, a, b: trunc(a, b) if b else None,
    "truncmod": lambda d, a, b: a - b * trunc(a, b) if b else None,
    "min": lambda d, a, b: min(a, b),
    "max": lambda d, a, b: max(a, b),
    "&": lambda d, a, b: a & b,
    "|": lambda d, a, b: a | b,
    "^": lambda d, a, b: a ^ b,
    "<<": lambda d, a, b: shifted(d, a, b, True),
    ">>": lambda d, a, b: shifted(d, a, b, False),
}
COMPARE = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip


def int_pairs(d: DType):
    low, high = int(d.min), int(d.max)
    if d.bits <= 4:
        return list(itertools.product(range(low, high + 1), repeat=2))
    edge = {
        low,
        low + 1,
        low // 2,
        -1,
        0,
        1,
        2,
        3,
        7,
        d.bits - 1,
        d.bits,
        high // 2,
        high // 3,
        high - 1,
        high,
    }
    return list(itertools.product(sorted(x for x in edge if low <= x <= high), repeat=2))


def as_ints(values, d: DType) -> np.ndarray:
    if d.bits == 64:
        return np.array(values, d.numpy)
    return cast(np.array(values, np.int64), I64, d)


@pytest.mark.parametrize("symbol", list(REFERENCE))
@pytest.mark.parametrize("dtype", INTS)
def test_integer_operators(dtype, symbol):
    d = DType(dtype)
    pairs = int_pairs(d)
    a, b = (as_ints([p[k] for p in pairs], d) for k in (0, 1))
    if symbol in ("//", "%", "truncdiv", "truncmod"):
        # Nothing traps for a zero divisor, whatever the value is; the two ways need not agree on
        # it.
        keep = [p for p in pairs if p[1] != 0]
        both_ways(dtype, dtype, lambda x, y: op("*", op(symbol, x, y), 0), a, b)
        pairs = keep
        a, b = (as_ints([p[k] for p in pairs], d) for k in (0, 1))
    got = both_ways(dtype, dtype, lambda x, y: op(symbol, x, y), a, b)
    for (x, y), g in zip(pairs, got, strict=True):
        assert int(g) == wrap(REFERENCE[symbol](d, x, y), d), (symbol, x, y)


@pytest.mark.parametrize("dtype", [*INTS, "float16", "float32", "float8_e4m3fn", "bool"])
def test_comparisons(dtype):
    d = DType(dtype)
    if d.is_float:
        values = [-2.0, -0.0, 0.0, 0.5, 1.0, math.nan, 3.5]
        pairs = list(itertools.product(values, repeat=2))
        a, b = (cast(np.array([p[k] for p in pairs], np.float32), F32, d) for k in (0, 1))
    elif d.is_bool:
        pairs = list(itertools.product([False, True], repeat=2))
        a, b = (np.array([p[k] for p in pairs]) for k in (0, 1))
    else:
        pairs = int_pairs(d)
        a, b = (as_ints([p[k] for p in pairs], d) for k in (0, 1))
    for symbol, reference in COMPARE.items():
        got = both_ways(dtype, "bool", lambda x, y, s=symbol: op(s, x, y), a, b)
        assert got.tolist() == [reference(x, y) for x, y in pairs], symbol


def test_operators_with_constants_and_ranges():
    """The ranges that decide where to wrap are sound: expressions of loop variables near the
    limits.
    """
    C = buf("C", "int32", 8)
    top = 2**31 - 4
    body = (
        st(C, i, add(op("+", i, top), 0)),
        If(op(">", i, 2), (st(C, i, op("-", mul(add(i, 2), 2**30), op("//", -7, add(i, 1)))),)),
    )
    for loop in (For(i, e(0), e(8), body), Parallel((i,), (e(8),), body)):
        c = np.zeros(8, np.int32)
        run(kernel([C], loop), C=c)
        want = [
            wrap(n + top, I32) if n <= 2 else wrap((n + 2) * 2**30 - (-7 // (n + 1)), I32)
            for n in range(8)
        ]
        assert c.tolist() == want


def test_unary_operators():
    for dtype in INTS:
        d = DType(dtype)
        values = sorted({p[0] for p in int_pairs(d)})
        a = as_ints(values, d)
        neg = both_ways(dtype, dtype, lambda x: Unary(UnaryOp.NEG, x), a)
        inv = both_ways(dtype, dtype, lambda x: Unary(UnaryOp.BITNOT, x), a)
        assert [int(x) for x in neg] == [wrap(-v, d) for v in values]
        assert [int(x) for x in inv] == [wrap(~v, d) for v in values]
    flags = np.array([True, False])
    assert both_ways("bool", "bool", lambda x: Unary(UnaryOp.NOT, x), flags).tolist() == [
        False,
        True,
    ]
    assert both_ways(
        "bool", "bool", lambda x, y: op("and", x, op("or", y, x)), flags, flags[::-1].copy()
    ).tolist() == [True, False]


# -- floats ----------------------------------------------------------------------------------------

FLOATS = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float6_e3m2fn",
    "float4_e2m1fn",
]


def floats(dtype: str, n: int = 400) -> np.ndarray:
    d = DType(dtype)
    if d.bits <= 8:
        return np.arange(256 if d.bits == 8 else 1 << d.bits, dtype=np.uint8).view(d.numpy)
    rng = np.random.default_rng(d.bits)
    x = rng.standard_normal(n) * np.exp2(rng.integers(-6, 7, n))
    special = [
        0.0,
        -0.0,
        math.inf,
        -math.inf,
        math.nan,
        float(d.max),
        float(d.min),
        d.smallest_subnormal,
    ]
    return cast(np.array([*special, *x]), F64, d)


def pairs_of(dtype: str):
    x = floats(dtype)
    rng = np.random.default_rng(1)
    return x[rng.integers(0, len(x), 2000)], x[rng.integers(0, len(x), 2000)]


def rounded(x: np.ndarray, dtype: str) -> np.ndarray:
    return cast(np.asarray(x, np.float64), F64, DType(dtype))


def agree(got: np.ndarray, want: np.ndarray) -> None:
    a, b = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(a, b)
    zero = (a == 0) & (b == 0)
    np.testing.assert_array_equal(np.signbit(a[zero]), np.signbit(b[zero]))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("symbol", ["+", "-", "*", "/"])
def test_float_operators_round_once(dtype, symbol):
    a, b = pairs_of(dtype)
    got = both_ways(dtype, dtype, lambda x, y: op(symbol, x, y), a, b)
    with np.errstate(all="ignore"):
        fn = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[symbol]
        wide = a.astype(np.float64), b.astype(np.float64)
        want = fn(*wide) if dtype != "float32" else fn(a, b)
    agree(got, rounded(want, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_min_and_max_drop_nan(dtype):
    a, b = pairs_of(dtype)
    for symbol, fn in (("min", np.fmin), ("max", np.fmax)):
        got = both_ways(dtype, dtype, lambda x, y, s=symbol: op(s, x, y), a, b)
        np.testing.assert_array_equal(
            got.astype(np.float64), fn(a.astype(np.float64), b.astype(np.float64))
        )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_float_division_with_remainder(dtype):
    a, b = pairs_of(dtype)
    finite = np.isfinite(a) & np.isfinite(b) & (b != 0)
    a, b = a[finite], b[finite]
    for symbol, fn in (("//", np.floor_divide), ("%", np.remainder), ("truncmod", np.fmod)):
        with np.errstate(all="ignore"):
            agree(both_ways(dtype, dtype, lambda x, y, s=symbol: op(s, x, y), a, b), fn(a, b))
    both_ways(dtype, dtype, lambda x, y: op("truncdiv", x, y), a, b)


def test_an_expression_rounds_after_every_operation():
    a = np.array([2048.0], np.float16)
    got = both_ways("float16", "float16", lambda x: op("-", add(op("+", x, 1.0), 0.0), x), a)
    assert got[0] == 0.0  # 2049 is no float16
    a = np.array([16.0], ml_dtypes.float8_e4m3fn)
    assert (
        float(
            both_ways("float8_e4m3fn", "float8_e4m3fn", lambda x: op("-", op("+", x, 1.0), x), a)[0]
        )
        == 0.0
    )


EXACT = {
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: 10.0**x,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": np.vectorize(math.erf),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "fast_rcp": lambda x: 1 / x,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "abs": np.abs,
    "round_away": lambda x: np.where(np.abs(x) % 1 == 0.5, np.trunc(x) + np.sign(x), np.rint(x)),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("fn", list(EXACT))
def test_functions_of_one_argument(fn, dtype):
    x = floats(dtype)
    got = both_ways(dtype, dtype, lambda v: call(fn, v), x).astype(np.float64)
    with np.errstate(all="ignore"):
        exact = EXACT[fn](x.astype(np.float64))
    whole = fn in ("floor", "ceil", "trunc", "round", "round_away", "abs")
    want = cast(np.asarray(exact), F64, DType(dtype), "", not whole).astype(np.float64)
    if DType(dtype).bits <= 16:
        close = np.isclose(
            got,
            want,
            rtol=2 * DType(dtype).eps,
            atol=DType(dtype).smallest_subnormal,
            equal_nan=True,
        )
    else:
        tolerance = 1e-6 if dtype == "float32" else 1e-14
        close = np.isclose(got, want, rtol=tolerance, atol=1e-45, equal_nan=True)
    assert close.all(), (x[~close][:4], got[~close][:4], want[~close][:4])


def test_rounding_to_whole_numbers_keeps_the_sign_of_zero():
    x = np.array([-0.2, -0.0, 0.2, -0.5, 0.5, -1.5], np.float32)
    for fn, want in (
        ("round_away", [-0.0, -0.0, 0.0, -1.0, 1.0, -2.0]),
        ("round", np.rint(x)),
        ("trunc", np.trunc(x)),
    ):
        agree(
            both_ways("float32", "float32", lambda v, f=fn: call(f, v), x),
            np.array(want, np.float32),
        )


def test_every_function_of_the_table_has_a_meaning():
    from tilelang.emulator import numerics

    for row in FUNCTIONS.values():
        dtype = "int32" if row.accepts.value == "int" else "float32"
        out = {"same": dtype}.get(row.gives.name.lower(), row.gives.name.lower())
        x = np.array([1, 2, 3], DType(dtype).numpy)
        with np.errstate(all="ignore"):
            got = numerics.function(row.name, DType(dtype))(*[x] * row.arity)
        assert np.asarray(got).dtype == DType(out).numpy, row.name


def test_functions_of_two_and_three_arguments():
    a, b = pairs_of("float32")
    wide = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        for fn, exact in (
            ("pow", np.power),
            ("atan2", np.arctan2),
            ("hypot", np.hypot),
            ("copysign", np.copysign),
            ("fmod", np.fmod),
            ("fmul", np.multiply),
        ):
            got = both_ways("float32", "float32", lambda x, y, f=fn: call(f, x, y), a, b)
            np.testing.assert_allclose(got, exact(*wide).astype(np.float32), rtol=1e-6, atol=1e-44)
        agree(
            both_ways("float32", "float32", lambda x, y: call("nextafter", x, y), a, b),
            np.nextafter(a, b),
        )
    got = both_ways(
        "float32", "float32", lambda x, y: call("clamp", x, e(-1.0, F32), y), a, np.abs(b)
    )
    np.testing.assert_array_equal(got, np.minimum(np.maximum(a, np.float32(-1)), np.abs(b)))
    whole = np.arange(-8, 9, dtype=np.float32)
    np.testing.assert_array_equal(
        both_ways("float32", "float32", lambda x: call("ldexp", e(0.75, F32), x), whole),
        0.75 * np.exp2(whole),
    )


def test_predicates():
    x = floats("float16")
    for fn, reference in (("isnan", np.isnan), ("isinf", np.isinf), ("isfinite", np.isfinite)):
        for dtype in ("float16", "float32", "bfloat16", "float8_e5m2"):
            y = cast(x, F16, DType(dtype), "", False)
            got = both_ways(dtype, "bool", lambda v, f=fn: call(f, v, gives=BOOL), y)
            np.testing.assert_array_equal(got, reference(y.astype(np.float32)))


def test_integer_functions():
    for dtype in ("int32", "uint32", "int64", "uint64", "int8"):
        d = DType(dtype)
        values = sorted({p[0] for p in int_pairs(d)})
        words = [v & ((1 << d.bits) - 1) for v in values]
        a = as_ints(values, d)
        for fn, want in (
            ("popcount", [w.bit_count() for w in words]),
            ("clz", [d.bits - w.bit_length() for w in words]),
            ("ffs", [(w & -w).bit_length() for w in words]),
        ):
            assert (
                both_ways(dtype, "int32", lambda v, f=fn: call(f, v, gives=I32), a).tolist() == want
            ), (fn, dtype)
        assert [int(x) for x in both_ways(dtype, dtype, lambda v: call("abs", v), a)] == [
            wrap(abs(v), d) for v in values
        ]
        low, high = e(max(int(d.min), -3), d), e(5, d)
        got = both_ways(dtype, dtype, lambda v, p=low, q=high: call("iclamp", v, p, q), a)
        bottom = max(int(d.min), -3)
        assert [int(x) for x in got] == [min(max(v, bottom), 5) for v in values]


def test_find_nth_set():
    mask = np.array([0b1011_0010] * 6, np.uint32)
    cases = [(0, 1), (0, 2), (2, 1), (7, -1), (3, -2), (1, 0)]
    start, nth = (np.array([c[k] for c in cases], np.int64).astype(np.uint32) for k in (0, 1))
    got = both_ways("uint32", "uint32", lambda m, s, n: call("fns", m, s, n), mask, start, nth)
    assert got.tolist() == [1, 4, 4, 7, 0xFFFFFFFF, 1]


def nearest(x: Fraction, mode: str, dtype: str) -> float:
    """`x` rounded to float32 or float64 by counting in units of the last place."""
    d = DType(dtype)
    if x == 0:
        return 0.0
    exponent = math.floor(math.log2(abs(x))) if abs(x) < Fraction(2) ** 1000 else 0
    while Fraction(2) ** exponent > abs(x):
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= abs(x):
        exponent += 1
    unit = Fraction(2) ** (exponent - d.mantissa_bits)
    q = x / unit
    low = math.floor(q)
    match mode:
        case "rd":
            n = low
        case "ru":
            n = math.ceil(q)
        case "rz":
            n = math.trunc(q)
        case _:
            n = round(q)
    return float(n * unit)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("mode", ["rn", "rz", "ru", "rd"])
def test_ieee_operations_round_as_asked(dtype, mode):
    rng = np.random.default_rng(5)
    n = 60
    x, y, z = (
        cast(rng.standard_normal(n) * np.exp2(rng.integers(-20, 20, n)), F64, DType(dtype))
        for _ in range(3)
    )
    exact = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "div": lambda a, b: a / b,
        "fma": None,
        "rcp": lambda a: 1 / a,
    }
    for name, reference in exact.items():
        args = {"fma": (x, y, z), "rcp": (x,)}.get(name, (x, y))
        got = both_ways(
            dtype, dtype, lambda *v, f=name: call(f"ieee_{f}", *v, params=(mode,)), *args
        )
        for row in zip(got, *args, strict=True):
            values = [Fraction(float(v)) for v in row[1:]]
            want = values[0] * values[1] + values[2] if name == "fma" else reference(*values)
            assert float(row[0]) == nearest(want, mode, dtype), (name, row)
    got = both_ways(dtype, dtype, lambda v: call("ieee_sqrt", v, params=(mode,)), np.abs(x))
    for root, square in zip(got, np.abs(x), strict=True):
        g, v = Fraction(float(root)), Fraction(float(square))
        if mode in ("rd", "rz"):
            assert g * g <= v
        elif mode == "ru":
            assert g * g >= v


def test_fma_rounds_once():
    x = np.array([1 + 2**-12], np.float32)
    got = both_ways("float32", "float32", lambda v: call("fma", v, v, e(-1.0, F32)), x)
    assert float(got[0]) == float(Fraction(float(x[0])) ** 2 - 1)
    y = np.array([1 + 2**-30])
    got = both_ways("float64", "float64", lambda v: call("fma", v, v, e(-1.0, F64)), y)
    assert float(got[0]) == float(Fraction(float(y[0])) ** 2 - 1)


# -- conversions -----------------------------------------------------------------------------------

NAMES = [
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float4_e2m1fn",
    *INTS,
    "bool",
]


@pytest.mark.parametrize("src", NAMES)
@pytest.mark.parametrize("dst", NAMES)
def test_casts_follow_the_one_cast(src, dst):
    s, d = DType(src), DType(dst)
    if s.is_float:
        x = floats(src)
    elif s.is_bool:
        x = np.array([False, True])
    else:
        x = as_ints(sorted({p[0] for p in int_pairs(s)}), s)
    got = both_ways(src, dst, lambda v: Cast(v, d), x)
    assert got.tobytes() == cast(x, s, d).tobytes()


def test_stochastic_rounding_takes_its_bits():
    x = np.full(6, 1 + 2**-9, np.float32)
    bits = np.array([0, 2**29, 2**30, 2**31, 2**32 - 1, 7], np.uint32)
    A, B, C = buf("A", "float32", 6), buf("B", "uint32", 6), buf("C", "bfloat16", 6)
    c = np.zeros(6, ml_dtypes.bfloat16)
    value = Cast(ld(A, i), DType("bfloat16"), rounding="rs", rbits=ld(B, i))
    run(kernel([A, B, C], Parallel((i,), (e(6),), (st(C, i, value),))), A=x, B=bits, C=c)
    assert c.tobytes() == cast(x, F32, DType("bfloat16"), "rs", True, bits).tobytes()


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        ("float32", "int32"),
        ("int32", "float32"),
        ("float16", "uint16"),
        ("bfloat16", "int16"),
        ("float64", "uint64"),
        ("uint8", "float8_e4m3fn"),
        ("int4", "float4_e2m1fn"),
    ],
)
def test_bitcasts(src, dst):
    s = DType(src)
    x = floats(src) if s.is_float else as_ints(sorted({p[0] for p in int_pairs(s)}), s)
    got = both_ways(src, dst, lambda v: Bitcast(v, DType(dst)), x)
    assert got.tobytes() == x.tobytes() or (
        s.bits < 8 and [b & 15 for b in got.tobytes()] == [b & 15 for b in x.tobytes()]
    )


def test_a_bitcast_of_a_sum_is_of_the_whole_of_it():
    x = np.arange(-3, 5, dtype=np.int32)
    got = both_ways("int32", "float32", lambda v: Bitcast(op("+", v, v), F32), x)
    assert got.tobytes() == (x + x).tobytes()


def test_select_and_nan():
    a = np.array([1.0, math.nan, -2.0, math.inf], np.float32)
    got = both_ways(
        "float32", "float32", lambda x: Select(op("==", x, x), op("*", x, 0.0), e(math.nan, F32)), a
    )
    np.testing.assert_array_equal(got, np.array([0, math.nan, -0.0, math.nan], np.float32))
    got = both_ways("float32", "int32", lambda x: Select(op(">", x, 0.0), e(1), e(-1)), a)
    assert got.tolist() == [1, -1, -1, 1]


def test_shared_subexpressions_stay_linear():
    """A chain that uses every value twice is one line per step."""
    A, C = buf("A", "uint32", 5), buf("C", "uint32", 5)
    x = ld(A, i)
    for _ in range(40):
        x = op("^", x, op("*", op(">>", x, 3), 5))
    fn = kernel([A, C], Parallel((i,), (e(5),), (st(C, i, x),)))
    assert len(translate(fn).source) < 6000
    a, c = np.arange(5, dtype=np.uint32) * 1234567, np.zeros(5, np.uint32)
    run(fn, A=a, C=c)
    want = a.copy()
    for _ in range(40):
        want = want ^ ((want >> np.uint32(3)) * np.uint32(5))
    same(c, want)
