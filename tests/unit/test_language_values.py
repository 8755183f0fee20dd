"""Values: promotion, literals, division, limits, and what operators refuse."""
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false, reportUnusedExpression=false

import math

import numpy as np
import pytest

import tilelang.language as T
from frontend_run import compiled, defined, script
from tilelang import dtypes
from tilelang.errors import TileRuntimeError, TileTypeError, TileValueError
from tilelang.language.values import Value


def var(dtype):
    """A scalar of a type that is not known while tracing."""
    return T.dtype(dtype)()


# -- types of results ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        ("float16", 1.0, "float32"),
        ("bfloat16", 1.0, "float32"),
        ("float64", 1.0, "float64"),
        ("float16", 1, "float16"),
        ("float8_e4m3fn", 1, "float8_e4m3fn"),
        ("int8", 1, "int32"),
        ("uint8", 1, "int32"),
        ("int16", 1, "int32"),
        ("int32", 1, "int32"),
        ("uint32", 1, "uint32"),
        ("int64", 1, "int64"),
        ("uint64", 1, "uint64"),
        ("bool", 1, "int32"),
        ("int32", 2**31, "int64"),
        ("uint32", 0xFFFFFFFF, "int64"),
        ("int64", 2**63, "uint64"),
        ("int32", 1.5, "float32"),
        ("int64", 1.5, "float32"),
        ("int32", True, "int32"),
        ("float32", np.float64(1), "float64"),
        ("float32", np.int64(1), "float32"),
        ("int8", np.int8(1), "int8"),
    ],
)
def test_a_literal_has_its_own_type(a, b, want):
    x = var(a)
    assert (x + b).dtype == want
    assert (b * x).dtype == want
    assert T.max(x, b).dtype == want
    assert T.if_then_else(x == 0, x, b).dtype == want


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        ("float16", "float32", "float32"),
        ("float16", "bfloat16", "float16"),
        ("float8_e4m3fn", "float16", "float16"),
        ("float8_e4m3fn", "float8_e4m3fn", "float8_e4m3fn"),
        ("int8", "int32", "int32"),
        ("uint8", "int8", "uint8"),
        ("uint32", "int32", "uint32"),
        ("uint64", "int32", "uint64"),
        ("int64", "uint32", "int64"),
        ("int64", "float16", "float16"),
        ("bool", "int8", "int8"),
        ("bool", "bool", "int32"),
    ],
)
def test_operands_meet_in_their_common_type(a, b, want):
    x, y = var(a), var(b)
    for made in (x + y, y - x, x * y):
        assert made.dtype == want


@pytest.mark.parametrize("op", ["==", "!=", "<", "<=", ">", ">="])
def test_comparisons_are_bools(op):
    for dtype in ("int8", "uint32", "float16", "bool"):
        made = eval(f"x {op} y", {"x": var(dtype), "y": var(dtype)})
        assert isinstance(made, Value)
        assert made.dtype == "bool"


def test_operators_on_bools():
    x, y = var("bool"), var("bool")
    assert (x & y).dtype == (x | y).dtype == (x ^ y).dtype == (~x).dtype == "bool"
    assert (x + y).dtype == "int32"


def test_types_without_a_common_type():
    with pytest.raises(TileTypeError, match="no common type"):
        var("float8_e4m3fn") + var("float8_e5m2")
    with pytest.raises(TileTypeError, match="no common type"):
        var("handle") + 1
    with pytest.raises(TileTypeError, match="no common type"):
        T.pow(var("float8_e4m3fn"), var("float8_e5m2"))


def test_an_integer_of_more_than_64_bits_is_refused():
    with pytest.raises(TileTypeError, match="more than 64 bits"):
        var("int32") + 2**64


# -- constants -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "x", "want"),
    [
        ("int32", 1.7, 1),
        ("int32", -1.7, -1),
        ("int32", 2**31, -(2**31)),
        ("uint32", -1, 0xFFFFFFFF),
        ("uint8", 300, 44),
        ("int8", 200, -56),
        ("int8", 1e9, 127),
        ("int64", 0x8000000000000000, -(2**63)),
        ("uint64", 0x8000000000000000, 2**63),
        ("float16", 1e9, math.inf),
        ("float8_e4m3fn", 500.0, 448.0),
        ("float8_e4m3fn", math.inf, 448.0),
        ("float32", 0.1, float(np.float32(0.1))),
        ("float32", "inf", math.inf),
        ("float16", "-inf", -math.inf),
        ("bool", 3, True),
        ("int32", math.nan, 0),
        ("int32", True, 1),
    ],
)
def test_constants_of_a_type(dtype, x, want):
    made = getattr(T, dtype)(x)
    assert made.dtype == dtype
    assert made.is_known
    assert made.expr.value == want
    assert type(made.expr.value) is type(want)


def test_constants_that_are_none():
    for x in ("one", [1], (), 1j):
        with pytest.raises(TileTypeError, match="cannot make a int32 of"):
            T.int32(x)


def test_known_values_are_numbers_of_python():
    x = T.int32(5)
    assert int(x) == 5
    assert range(3)[T.int32(1)] == 1
    assert float(T.float32(2.5)) == 2.5
    assert bool(T.int32(0)) is False
    assert [10, 20][T.int64(1)] == 20
    with pytest.raises(TileTypeError, match="a float is not an index"):
        [10, 20][T.float32(1.0)]


def test_arithmetic_on_constants_folds_and_wraps():
    assert int(T.int32(1) << T.int32(31)) == -(2**31)
    assert int(T.int32(2**31 - 1) + 1) == -(2**31)
    assert int(T.uint32(0) - 1) == 2**32 - 1
    assert int(T.uint64(2**63) + T.uint64(5)) == 2**63 + 5
    assert int(T.uint8(250) + T.uint8(10)) == 4
    assert int(T.int32(-7) // 2) == -4
    assert int(T.int32(-7) % 4) == 1
    assert int(T.int32(7) % -4) == -1
    assert float(T.float16(2048) + T.float16(1)) == 2048.0
    assert bool(T.int32(3) == 3)


def test_uses_of_a_value_that_need_a_number_are_refused():
    x = var("int32")
    for use in (int, float, range, lambda v: [1, 2][v], lambda v: "ab"[v], lambda v: v.__index__()):
        with pytest.raises(TileTypeError, match="computes is used as"):
            use(x)
    for use in (list, tuple, lambda v: [*v]):
        with pytest.raises(TileTypeError, match="cannot be iterated over"):
            use(x)
    for use in (lambda v: bool(v > 1), lambda v: v and 1, lambda v: not v, lambda v: max(v, 1)):
        with pytest.raises(TileTypeError, match="no truth value"):
            use(x)


# -- operators that some types do not have ---------------------------------------------------------


def test_true_division_of_signed_integers_is_refused():
    for make in (
        lambda: var("int32") / 2,
        lambda: 7 / var("int8"),
        lambda: var("bool") / var("int64"),
    ):
        with pytest.raises(TileRuntimeError, match="`/` on signed integers") as caught:
            make()
        assert "T.truncdiv" in caught.value.diagnostics[0].help


def test_true_division_of_others():
    assert (var("uint32") / var("uint32")).dtype == "uint32"
    assert int(T.uint32(7) / T.uint32(2)) == 3
    assert (var("float16") / 2).dtype == "float16"
    assert (1 / var("float32")).dtype == "float32"
    assert float(T.float32(1) / 4) == 0.25


@pytest.mark.parametrize("op", ["&", "|", "^", "<<", ">>"])
def test_bit_operators_need_integers(op):
    for a in ("float32", "float16"):
        with pytest.raises(TileTypeError, match="on values of type"):
            eval(f"x {op} 1", {"x": var(a)})
        with pytest.raises(TileTypeError, match="on values of type"):
            eval(f"1 {op} x", {"x": var(a)})


def test_other_refused_operators():
    with pytest.raises(TileTypeError, match="`~` on values of type float32"):
        ~var("float32")
    for dtype in ("uint32", "bool"):
        with pytest.raises(TileTypeError, match=f"`-` on a value of type {dtype}"):
            -var(dtype)
    for make in (lambda: var("float32") ** 2, lambda: 2 ** var("int32")):
        with pytest.raises(TileTypeError, match=r"use `T.pow\(x, y\)`"):
            make()
    for make in (lambda: T.truncdiv(var("float32"), 2), lambda: T.truncmod(var("float32"), 2.0)):
        with pytest.raises(TileTypeError, match="trunc"):
            make()
    with pytest.raises(TypeError):
        var("int32") @ 1
    with pytest.raises(TileTypeError, match="expected a scalar, got list"):
        var("int32") - [1]
    with pytest.raises(TileTypeError, match="expected a scalar, got None"):
        bool(var("int32") < None)


def test_unary_operators():
    assert (-var("int8")).dtype == "int8"
    assert (+var("uint8")).dtype == "uint8"
    assert (~var("uint8")).dtype == "uint8"
    assert abs(var("int16")).dtype == "int16"
    assert abs(var("uint16")).dtype == "uint16"
    assert int(-T.int32(-(2**31))) == -(2**31)


# -- functions of two integers ---------------------------------------------------------------------


def test_ceildiv_of_python_integers():
    for a in range(-9, 10):
        for b in (-4, -3, -1, 1, 2, 5):
            made = T.ceildiv(a, b)
            assert type(made) is int
            assert made == math.ceil(a / b)
            assert T.cdiv(a, b) == made
    with pytest.raises(ZeroDivisionError):
        T.ceildiv(1, 0)


@pytest.mark.parametrize("dtype", ["int32", "int64", "int8"])
def test_ceildiv_of_values(dtype):
    pairs = [(a, b) for a in range(-9, 10) for b in (-4, -3, -1, 1, 2, 5)]

    @T.prim_func
    def main(A: T.Tensor((2, len(pairs)), dtype), B: T.Tensor((3, len(pairs)), dtype)):
        with T.Kernel(1, threads=1):
            for k in range(len(pairs)):
                B[0, k] = T.ceildiv(A[0, k], A[1, k])
                B[1, k] = T.ceildiv(A[0, k], 5)
                B[2, k] = T.ceildiv(A[0, k], -3)

    a = np.array(pairs, dtype).T.copy()
    b = np.zeros((3, len(pairs)), dtype)
    compiled(main)(a, b)
    assert b[0].tolist() == [math.ceil(x / y) for x, y in pairs]
    assert b[1].tolist() == [math.ceil(x / 5) for x, _ in pairs]
    assert b[2].tolist() == [math.ceil(x / -3) for x, _ in pairs]


def test_ceildiv_does_not_overflow():
    @T.prim_func
    def main(A: T.Tensor((2,), "int32"), U: T.Tensor((2,), "uint32"), B: T.Tensor((4,), "int64")):
        with T.Kernel(1, threads=1):
            B[0] = T.ceildiv(A[0], 16)
            B[1] = T.ceildiv(A[1], 16)
            B[2] = T.ceildiv(U[0], 16)
            B[3] = T.ceildiv(U[1], U[0])

    top = 2**31 - 1
    a = np.array([top, -top - 1], np.int32)
    u = np.array([2**32 - 1, 2**32 - 2], np.uint32)
    b = np.zeros(4, np.int64)
    compiled(main)(a, u, b)
    assert b.tolist() == [2**27, -(2**27), 2**28, 1]


def test_align_up_and_the_divisions():
    @T.prim_func
    def main(A: T.Tensor((2,), "int32"), B: T.Tensor((6,), "int32")):
        with T.Kernel(1, threads=1):
            B[0] = T.align_up(A[0], 16)
            B[1] = T.floordiv(A[1], 4)
            B[2] = T.floormod(A[1], 4)
            B[3] = T.truncdiv(A[1], 4)
            B[4] = T.truncmod(A[1], 4)
            B[5] = A[1] // -4

    b = np.zeros(6, np.int32)
    compiled(main)(np.array([33, -7], np.int32), b)
    assert b.tolist() == [48, -2, 1, -1, -3, 1]
    assert T.align_up(33, 16) == 48


def test_extremes_of_python_integers_are_integers():
    assert (T.max(3, 5), T.min(3, 5)) == (5, 3)
    assert isinstance(T.max(3, 5), int)
    assert T.max(2**40, 1) == 2**40
    assert T.max(1.5, 2).dtype == "float32"
    with pytest.raises(TileTypeError, match=r"T\.max"):
        script(defined("def fn(A: T.Tensor((4,), 'int32')):\n    T.max(1, 2, 3)\n"))


# -- limits, casts, bits ---------------------------------------------------------------------------


def test_limits_of_types():
    assert T.max_value("int8").expr.value == 127
    assert T.min_value("int8").expr.value == -128
    assert T.max_value(T.float8_e4m3fn).expr.value == 448.0
    assert T.infinity("float16").expr.value == math.inf
    assert T.infinity("float32").dtype == "float32"
    with pytest.raises(TileValueError, match="no infinity"):
        T.infinity("int32")
    with pytest.raises(TileValueError, match="no infinity"):
        T.infinity("float8_e4m3fn")
    with pytest.raises(TileTypeError, match="handle"):
        T.max_value("handle")


def test_casts():
    x = var("float32")
    assert T.cast(x, "int8").dtype == x.astype("int8").dtype == T.int8(x).dtype == "int8"
    assert T.cast(x, "float32").expr is x.expr
    assert T.cast(3.9, "int32").expr.value == 3
    assert T.cast(x, T.bfloat16, round="rz").expr.rounding == "rz"
    assert T.cast(x, "float8_e5m2", sat=False).expr.saturate is False
    with pytest.raises(TileValueError, match="unknown rounding 'up'"):
        T.cast(x, "float16", round="up")
    with pytest.raises(TileValueError, match="go together"):
        T.cast(x, "float16", round="rs")
    with pytest.raises(TileValueError, match="go together"):
        T.cast(x, "float16", rbits=3)
    with pytest.raises(TileValueError, match="unknown dtype 'float17'; did you mean"):
        T.cast(x, "float17")
    with pytest.raises(TileTypeError, match="no element type"):
        T.cast(x, object())
    with pytest.raises(TileTypeError, match="cannot convert float32 to handle"):
        T.cast(x, "handle")


def test_reinterpret():
    x = var("float32")
    assert T.reinterpret(x, "uint32").dtype == "uint32"
    assert T.reinterpret("uint32", x).dtype == "uint32"
    assert T.reinterpret(x, "float32").expr is x.expr
    with pytest.raises(TileTypeError, match="cannot reinterpret float32 as int16"):
        T.reinterpret(x, "int16")


def test_functions_of_floats_take_integers_as_float32():
    assert T.exp(var("int32")).dtype == "float32"
    assert T.exp(var("float16")).dtype == "float16"
    assert T.sqrt(var("float64")).dtype == "float64"
    assert T.floor(var("int8")).dtype == "int8"
    assert T.round(var("float16")).dtype == "float16"
    assert T.isnan(var("float16")).dtype == "bool"
    assert T.popcount(var("uint8")).dtype == "int32"
    assert T.fmod(var("float16"), 2.0).dtype == "float32"
    with pytest.raises(TileTypeError, match="popcount needs integers"):
        T.popcount(var("float32"))
    with pytest.raises(TileTypeError, match=r"T\.fma of different types"):
        T.fma(var("float16"), var("float16"), 1.0)
    with pytest.raises(TileValueError, match="rounding_mode"):
        T.round(var("float32"), "up")


def test_pow_of_a_known_exponent_is_multiplication():
    x = var("int32")
    assert T.pow(x, 0).expr.value == 1
    assert T.pow(x, 1).expr is x.expr
    assert str(T.pow(x, 3)) == f"{x} * {x} * {x}"
    assert T.pow(x, 3).dtype == "int32"
    assert T.pow(var("float16"), 0.5).dtype == "float32"


def test_symbolic_sizes():
    m, n = T.dynamic("m, n")
    assert (str(m), str(n), m.dtype) == ("m", "n", "int32")
    assert T.dynamic("k", "int64").dtype == "int64"
    assert T.symbolic("k").dtype == "int32"
    for bad in (("a-b",), ("",), ("1n",), ("n", "float32")):
        with pytest.raises(TileValueError, match=r"T\.dynamic makes symbolic sizes"):
            T.dynamic(*bad)


def test_every_type_has_a_name():
    for name in dtypes.ROWS:
        assert getattr(T, name) == name
    assert T.float16x2.lanes == 2
    assert (T.half, T.float, T.int) == ("float16", "float32", "int32")
    assert T.dtype(np.float16) == T.dtype(T.float16) == "float16"
    with pytest.raises(ValueError, match="unknown dtype 'nothing'"):
        T.dtype("nothing")


def test_vectors_are_made_of_lanes():
    v = T.float16x2(1.0, var("float32"))
    assert v.dtype == "float16x2"
    assert T.float32x4(0.0).dtype == "float32x4"
    with pytest.raises(TileTypeError, match="float16x2 of 3 values"):
        T.float16x2(1, 2, 3)
    with pytest.raises(TileTypeError, match="float16 of 2 values"):
        T.float16(1, 2)


def test_a_value_prints_as_in_the_text_form():
    x, y = T.dynamic("x, y")
    assert repr((x + 1) * y) == "(x + 1) * y"
    assert hash(x) == hash(T.dynamic("x"))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "uint32", "int64", "uint64"])
def test_a_literal_in_bitwise_operators_and_shifts_takes_the_type_of_the_other_operand(dtype):
    """As upstream's IR has it, unlike in sums, where the literal is an int32."""
    seen = []

    @T.prim_func
    def k(A: T.Tensor((1,), dtype)):
        with T.Kernel(1, threads=1):
            x = A[0]
            seen.extend(str(v.dtype) for v in (x & 5, x | 5, x ^ 5, x << 3, x >> 3, 5 & x, 5 << x))
            seen.append(str((x & -1).dtype))

    assert seen == [dtype] * 8


def test_a_literal_that_the_type_of_the_other_operand_does_not_hold_is_an_int32():
    seen = []

    @T.prim_func
    def k(A: T.Tensor((1,), "uint8")):
        with T.Kernel(1, threads=1):
            seen.extend(str(v.dtype) for v in (A[0] & 300, A[0] + 5))

    assert seen == ["int32", "int32"]


def test_a_shift_of_a_byte_by_a_literal_wraps():
    @T.prim_func
    def k(A: T.Tensor((4,), "uint8"), B: T.Tensor((4,), "uint8")):
        with T.Kernel(1, threads=1):
            for i in T.serial(4):
                B[i] = (A[i] << 4) >> 4

    a = np.array([0x0F, 0xF0, 0xFF, 0x13], np.uint8)
    b = np.zeros(4, np.uint8)
    compiled(k)(a, b)
    assert b.tolist() == [0x0F, 0x00, 0x0F, 0x03]
