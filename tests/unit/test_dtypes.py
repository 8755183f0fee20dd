"""Element types: names, facts, promotion, literals and constants; the arrays that a cast takes."""

import copy
import math
import pickle
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilelang.dtypes import (
    LANES,
    ROWS,
    DType,
    cast,
    const_value,
    converter,
    dtype,
    from_bits,
    infinity,
    literal_dtype,
    max_value,
    min_value,
    pack,
    promote,
    to_bits,
    unpack,
    wrap_int,
)

FLOAT_NAMES = [name for name in ROWS if DType(name).is_float]


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*ROWS, "float16x2", "bfloat16x64", "int8x16", "float4_e2m1fnx8"])
def test_a_dtype_is_the_string_of_its_name_and_one_object(name):
    d = DType(name)
    assert isinstance(d, str)
    assert d == name
    assert hash(d) == hash(name)
    assert str(d) == f"{d}" == d.name == name
    assert type(d.name) is str
    assert DType(name) is d
    assert dtype(d) is d
    assert pickle.loads(pickle.dumps(d)) is d
    assert copy.deepcopy(d) is d
    assert eval(repr(d), {"dtype": dtype}) is d
    with pytest.raises(AttributeError, match="immutable"):
        d.lanes = 3
    with pytest.raises(AttributeError, match="immutable"):
        del d.lanes


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("half", "float16"),
        ("float", "float32"),
        ("double", "float64"),
        ("short", "int16"),
        ("int", "int32"),
        ("long", "int64"),
        ("uint", "uint32"),
        ("ulong", "uint64"),
        ("uint1", "bool"),
        ("custom[float4_e2m1_unpacked]8", "float4_e2m1_unpacked"),
        (float, "float32"),
        (int, "int32"),
        (bool, "bool"),
        (np.float16, "float16"),
        (np.float64, "float64"),
        (np.bool_, "bool"),
        (np.longlong, "int64"),
        (np.dtype("uint16"), "uint16"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (np.dtype(ml_dtypes.float8_e4m3fn), "float8_e4m3fn"),
        (ml_dtypes.int4, "int4"),
    ],
)
def test_other_spellings(spelling, name):
    assert dtype(spelling) is DType(name)


@pytest.mark.parametrize("name", list(ROWS))
def test_the_storage_of_a_type_names_a_type_of_the_same_storage(name):
    d = DType(name)
    back = dtype(d.numpy)
    assert back.numpy == d.numpy
    other = {
        "tfloat32": "float32",
        "float8_e4m3": "float8_e4m3fn",
        "float4_e2m1_unpacked": "float4_e2m1fn",
        "handle": "uint64",
    }
    assert back == other.get(name, name)


@pytest.mark.parametrize("name", [*ROWS, "float4_e2m1fnx2", "float16x2"])
def test_torch_names_are_of_the_storage(name, torch):
    d = DType(name)
    if d.torch_name is None:
        assert name in ("handle", "float16x2", "float8_e3m4", "float8_e4m3b11fnuz")
        with pytest.raises(TypeError, match=f"has no dtype for {name}"):
            d.as_torch()
        return
    assert d.as_torch() is getattr(torch, d.torch_name)
    if d.bits >= 8 and d.is_scalar:
        assert d.as_torch().itemsize == d.bytes


def test_torch_dtypes_are_names_too(torch):
    names = {
        torch.float16: "float16",
        torch.bfloat16: "bfloat16",
        torch.long: "int64",
        torch.bool: "bool",
        torch.uint16: "uint16",
        torch.float8_e8m0fnu: "float8_e8m0fnu",
        torch.float4_e2m1fn_x2: "float4_e2m1fnx2",
    }
    assert {t: dtype(t).name for t in names} == names
    with pytest.raises(TypeError, match=r"torch\.complex64 is no element type"):
        dtype(torch.complex64)


def test_torch_is_not_imported():
    code = "import sys, tilelang.dtypes as d; d.dtype('half'); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ("flaot16", ValueError, "unknown dtype 'flaot16'; did you mean float16 or "),
        ("fp16", ValueError, "unknown dtype 'fp16'; "),
        ("", ValueError, "expected one of float64, float32,"),
        ("Float32", ValueError, "did you mean float32"),
        ("float16x3", ValueError, "the lanes of a vector are one of 2, 4, 8, 16, 32, 64"),
        ("float16x1", ValueError, "the lanes of a vector"),
        ("float16x02", ValueError, "the lanes of a vector"),
        ("handlex2", ValueError, "unknown dtype 'handlex2'"),
        (None, TypeError, "None is no element type; expected a name such as 'float16'"),
        (16, TypeError, "16 is no element type"),
        ([], TypeError, "is no element type"),
        (str, TypeError, "is no element type"),
        (np.floating, TypeError, "is no element type"),
        (np.dtype(">f4"), TypeError, "is no element type"),
        (np.complex64, TypeError, "is no element type"),
        (ml_dtypes.float8_e4m3, TypeError, "ends at 240"),
        (np.dtype(ml_dtypes.float8_e4m3), TypeError, "store it as ml_dtypes.float8_e4m3fn"),
    ],
)
def test_what_names_no_type_is_refused(wrong, error, text):
    with pytest.raises(error) as caught:
        dtype(wrong)
    assert text in str(caught.value)


# ---- facts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLOAT_NAMES)
def test_limits_of_floats_are_those_of_ml_dtypes(name):
    d = DType(name)
    if name == "tfloat32":
        assert d.max == math.ldexp(2047, 117)
        assert (d.eps, d.smallest_normal, d.smallest_subnormal) == (2**-10, 2**-126, 2**-136)
        return
    info = ml_dtypes.finfo(d.numpy)
    assert d.max == float(info.max)
    assert d.min == float(info.min)
    assert d.smallest_normal == float(info.smallest_normal)
    assert d.smallest_subnormal == float(info.smallest_subnormal)
    assert d.eps == float(info.eps)
    assert d.mantissa_bits == info.nmant
    assert max_value(d) == d.max
    assert min_value(d) == d.min


@pytest.mark.parametrize("name", [n for n in ROWS if DType(n).is_integer])
def test_limits_of_integers(name):
    d = DType(name)
    info = ml_dtypes.iinfo(d.numpy)
    assert (d.min, d.max, d.bits) == (int(info.min), int(info.max), info.bits)
    assert type(d.max) is int


def test_infinity_and_nan():
    with_inf = {n for n in ROWS if DType(n).has_inf}
    assert with_inf == {
        "float64", "float32", "tfloat32", "float16", "bfloat16", "float8_e5m2", "float8_e3m4",
    }  # fmt: skip
    without_nan = {n for n in FLOAT_NAMES if not DType(n).has_nan}
    assert without_nan == {
        "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn", "float4_e2m1_unpacked",
    }  # fmt: skip
    assert infinity(DType("bfloat16")) == math.inf
    with pytest.raises(ValueError, match=r"float8_e4m3fn has no infinity; its largest .* is 448"):
        infinity(DType("float8_e4m3fn"))
    with pytest.raises(ValueError, match="int32 has no infinity"):
        infinity(DType("int32"))
    with pytest.raises(TypeError, match="handle"):
        max_value(DType("handle"))
    with pytest.raises(TypeError, match="int8 is not a float type"):
        _ = DType("int8").eps


@pytest.mark.parametrize(
    ("name", "bits", "size", "c", "llvm"),
    [
        ("float64", 64, 8, "double", "double"),
        ("tfloat32", 32, 4, "float", "float"),
        ("float16", 16, 2, "half", "half"),
        ("bfloat16", 16, 2, "__nv_bfloat16", "i16"),
        ("float8_e4m3", 8, 1, "__nv_fp8_e4m3", "i8"),
        ("float8_e5m2", 8, 1, "__nv_fp8_e5m2", "i8"),
        ("float6_e3m2fn", 6, 1, "__nv_fp6_e3m2", "i8"),
        ("float4_e2m1fn", 4, 1, "__nv_fp4_e2m1", "i8"),
        ("float4_e2m1_unpacked", 8, 1, "__nv_fp4_e2m1", "i8"),
        ("float8_e3m4", 8, 1, None, "i8"),
        ("int8", 8, 1, "signed char", "i8"),
        ("uint64", 64, 8, "unsigned long long", "i64"),
        ("int4", 4, 1, None, "i8"),
        ("bool", 8, 1, "bool", "i8"),
        ("handle", 64, 8, "void*", "ptr"),
        ("float16x2", 16, 4, None, "<2 x half>"),
        ("int8x16", 8, 16, None, "<16 x i8>"),
        ("float4_e2m1fnx8", 4, 4, None, "<4 x i8>"),
        ("float6_e2m3fnx2", 6, 2, None, "<2 x i8>"),
    ],
)
def test_sizes_and_names_elsewhere(name, bits, size, c, llvm):
    d = DType(name)
    assert (d.bits, d.bytes, d.itemsize, d.c_name, d.llvm_name) == (bits, size, size, c, llvm)


def test_vectors_and_their_scalars():
    d = DType("float8_e4m3fnuzx4")
    assert (d.lanes, d.base, d.kind, d.max) == (4, "float8_e4m3fnuz", "float", 240.0)
    assert d.is_vector
    assert not d.is_scalar
    assert d.base is DType("float8_e4m3fnuz")
    assert d.base.base is d.base
    assert [d.with_lanes(n).lanes for n in LANES] == list(LANES)
    assert d.with_lanes(1) is d.base
    with pytest.raises(ValueError, match="lanes"):
        d.with_lanes(5)


@pytest.mark.parametrize(
    ("predicate", "names"),
    [
        ("is_int", {"int2", "int4", "int8", "int16", "int32", "int64"}),
        ("is_uint", {"uint2", "uint4", "uint8", "uint16", "uint32", "uint64"}),
        ("is_bool", {"bool"}),
        ("is_handle", {"handle"}),
        (
            "is_subbyte",
            {"int2", "int4", "uint2", "uint4", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"},
        ),
        ("is_float6", {"float6_e2m3fn", "float6_e3m2fn"}),
        ("is_float8", {n for n in ROWS if n.startswith("float8")}),
        ("is_narrow_float", {n for n in FLOAT_NAMES if n[:6] in ("float8", "float4")}
         | {"float6_e2m3fn", "float6_e3m2fn"}),
        ("is_float4", {"float4_e2m1fn", "float4_e2m1_unpacked"}),
        ("is_float4_e2m1fn", {"float4_e2m1fn"}),
        ("is_float4_e2m1_unpacked", {"float4_e2m1_unpacked"}),
    ],
)  # fmt: skip
def test_predicates(predicate, names):
    found = {n: getattr(DType(n), predicate) for n in ROWS}
    assert {n for n, yes in found.items() if (yes() if callable(yes) else yes)} == names


def test_signs():
    unsigned = {n for n in FLOAT_NAMES if not DType(n).is_signed}
    assert unsigned == {"float8_e8m0fnu"}
    assert DType("int4").is_signed
    assert not DType("uint8").is_signed
    assert not DType("bool").is_signed


def test_a_subclass_has_the_facts_and_its_own_objects():
    class Callable(DType):
        def __call__(self, value):
            return const_value(value, self)

    d = Callable("int8")
    assert d == DType("int8")
    assert d is Callable(np.int8)
    assert d(200) == -56
    assert type(d.with_lanes(4)) is Callable
    assert dtype(d) is d
    assert pickle.loads(pickle.dumps(DType(d))) is DType("int8")


# ---- promotion and literals ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        ("float16", "float32", "float32"),
        ("float32", "float64", "float64"),
        ("bfloat16", "float32", "float32"),
        ("bfloat16", "float16", "float16"),
        ("float8_e4m3fn", "float16", "float16"),
        ("float8_e5m2", "bfloat16", "bfloat16"),
        ("float8_e5m2", "float8_e5m2", "float8_e5m2"),
        ("float8_e4m3", "float8_e4m3fn", "float8_e4m3fn"),
        ("float6_e2m3fn", "float8_e4m3fn", "float8_e4m3fn"),
        ("float4_e2m1fn", "float6_e3m2fn", "float6_e3m2fn"),
        ("float4_e2m1_unpacked", "float6_e3m2fn", "float6_e3m2fn"),
        ("float4_e2m1_unpacked", "float4_e2m1fn", "float4_e2m1fn"),
        ("tfloat32", "float32", "float32"),
        ("tfloat32", "float16", "tfloat32"),
        ("float16", "int64", "float16"),
        ("uint8", "bfloat16", "bfloat16"),
        ("int32", "float8_e4m3fn", "float8_e4m3fn"),
        ("bool", "float16", "float16"),
        ("int8", "int32", "int32"),
        ("uint8", "int32", "int32"),
        ("uint32", "int32", "uint32"),
        ("uint64", "int32", "uint64"),
        ("uint64", "int64", "uint64"),
        ("int64", "uint32", "int64"),
        ("int64", "int32", "int64"),
        ("int4", "uint4", "uint4"),
        ("bool", "int32", "int32"),
        ("bool", "uint8", "uint8"),
        ("bool", "int8", "int8"),
        ("bool", "int4", "int4"),
        ("bool", "bool", "bool"),
        ("handle", "handle", "handle"),
        ("float16x2", "float16", "float16x2"),
        ("float16x4", "float32", "float32x4"),
        ("int32x4", "float16x4", "float16x4"),
    ],
)
def test_promotion(a, b, want):
    assert promote(DType(a), DType(b)) is DType(want)
    assert promote(DType(b), DType(a)) is DType(want)


@pytest.mark.parametrize(
    ("a", "b", "text"),
    [
        ("float8_e4m3fn", "float8_e5m2", "neither has all values of the other"),
        ("float8_e8m0fnu", "float8_e4m3fn", r"convert one of them, or both to float16 \(T.cast\)"),
        ("float6_e2m3fn", "float6_e3m2fn", "have no common type"),
        ("handle", "int64", "a pointer is no number"),
        ("float16x2", "float16x4", "different numbers of lanes"),
    ],
)
def test_no_common_type_is_refused(a, b, text):
    for left, right in ((a, b), (b, a)):
        with pytest.raises(TypeError, match=text):
            promote(DType(left), DType(right))


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (0, "int32"),
        (-(2**31), "int32"),
        (2**31 - 1, "int32"),
        (2**31, "int64"),
        (0xFFFFFFFF, "int64"),
        (-(2**31) - 1, "int64"),
        (-(2**63), "int64"),
        (2**63 - 1, "int64"),
        (2**63, "uint64"),
        (2**64 - 1, "uint64"),
        (1.0, "float32"),
        (1e300, "float32"),
        (True, "bool"),
        (np.float64(1.0), "float64"),
        (np.float16(1.0), "float16"),
        (np.uint8(1), "uint8"),
        (np.True_, "bool"),
        (ml_dtypes.bfloat16(1), "bfloat16"),
    ],
)
def test_the_type_of_a_literal(value, want):
    assert literal_dtype(value) is DType(want)


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_literals_of_more_than_64_bits_are_refused(value):
    with pytest.raises(ValueError, match=f"{value} has more than 64 bits"):
        literal_dtype(value)


def test_what_is_no_number_is_no_literal():
    wrong: Any = "one"
    with pytest.raises(TypeError, match="expected a number, got 'one'"):
        literal_dtype(wrong)


# ---- constants -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "name", "want"),
    [
        (0.1, "float32", float(np.float32(0.1))),
        (0.1, "float64", 0.1),
        (1, "float16", 1.0),
        (True, "float32", 1.0),
        (500.0, "float8_e4m3fn", 448.0),
        (math.inf, "float8_e5m2", 57344.0),
        (math.inf, "float16", math.inf),
        (1e30, "float32", float(np.float32(1e30))),
        (1e300, "float32", math.inf),
        (1.7, "int32", 1),
        (-1.7, "int32", -1),
        (1e20, "int32", 2**31 - 1),
        (math.nan, "int32", 0),
        (200, "int8", -56),
        (8, "int4", -8),
        (-1, "uint4", 15),
        (0xFFFFFFFF, "uint32", 0xFFFFFFFF),
        (0xFFFFFFFF, "int32", -1),
        (1 << 31, "int32", -(2**31)),
        (-1, "uint64", 2**64 - 1),
        (2**70 + 5, "int32", 5),
        (2, "bool", True),
        (0.0, "bool", False),
        (256, "bool", True),
        (2**64, "bool", True),
        (1, "handle", 1),
        (2**63 + 2**39 + 1, "float32", float(2**63 + 2**40)),
        (2**63 + 2**39, "float32", float(2**63)),
        (-(2**100) - 2**76 - 1, "float32", -float(2**100 + 2**77)),
        (2**53 + 1, "float64", float(2**53)),
        pytest.param(2**1030, "float64", math.inf, id="2**1030-float64"),
        pytest.param(-(2**1030), "bfloat16", -math.inf, id="-2**1030-bfloat16"),
        pytest.param(2**1030, "float8_e4m3fn", 448.0, id="2**1030-float8"),
        (np.int8(-1), "uint32", 2**32 - 1),
        (np.float64(0.1), "float16", float(np.float16(0.1))),
        (np.uint64(2**64 - 1), "bfloat16", 2.0**64),
        (ml_dtypes.bfloat16(3), "int8", 3),
        (0.3, "float32x4", float(np.float32(0.3))),
    ],
)
def test_constants_have_the_value_that_their_type_gives_them(value, name, want):
    got = const_value(value, DType(name))
    assert got == want
    assert type(got) is {"float": float, "bool": bool}.get(DType(name).kind, int)
    assert const_value(got, DType(name)) == got


def test_constants_can_be_nan():
    assert math.isnan(const_value(math.nan, DType("float8_e4m3fn")))
    assert const_value(math.nan, DType("float4_e2m1fn")) == 6.0
    assert const_value(math.nan, DType("bool")) is True
    assert math.copysign(1, const_value(-0.0, DType("float16"))) == -1


def test_wrapping():
    assert wrap_int(2**40 + 7, DType("uint8")) == 7
    assert wrap_int(-9, DType("int4")) == 7
    assert wrap_int(2, DType("int2")) == -2
    assert wrap_int(-3, DType("bool")) == 1
    with pytest.raises(TypeError, match="float16 is no integer type"):
        wrap_int(1, DType("float16"))


# ---- the arrays that cast and pack take ----------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (0,), (1,), (127,), (3, 0, 2), (2, 3, 5)])
def test_a_cast_keeps_the_shape_for_every_pair(shape):
    for source in ROWS:
        src = DType(source)
        x = from_bits(np.arange(math.prod(shape)).reshape(shape), src)
        for name in ROWS:
            dst = DType(name)
            if "handle" in (source, name) and (src.is_float or dst.is_float):
                continue
            got = cast(x, src, dst)
            assert isinstance(got, np.ndarray)
            assert got.shape == shape
            assert got.dtype == dst.numpy


@pytest.mark.parametrize(
    ("source", "name"),
    [("float32", "float8_e4m3fn"), ("float8_e5m2", "float16"), ("float16", "float4_e2m1fn"),
     ("float64", "bfloat16"), ("int32", "int4"), ("float32", "int8"), ("uint64", "float16")],
)  # fmt: skip
def test_strided_arrays_convert_as_their_copies(source, name):
    src, dst = DType(source), DType(name)
    whole = from_bits(np.arange(4 * 6 * 10).reshape(4, 6, 10), src)
    view = whole[::2, 5:0:-2, 1:9:3].T
    got = cast(view, src, dst)
    want = cast(np.ascontiguousarray(view), src, dst)
    assert (to_bits(got, dst) == to_bits(want, dst)).all()


def test_types_stored_alike_give_the_array_itself():
    x = from_bits(np.arange(256), DType("float8_e4m3fn"))
    assert cast(x, DType("float8_e4m3fn"), DType("float8_e4m3")) is x
    assert cast(x, DType("float8_e4m3fnx2"), DType("float8_e4m3fnx2")) is x
    f = np.ones(3, np.float32)
    assert cast(f, DType("float32"), DType("float32")) is f


def test_numpy_scalars_and_read_only_arrays_convert():
    assert cast(np.float32(1.5), DType("float32"), DType("float16")).tolist() == 1.5
    x = np.ones(4, np.float32)
    x.flags.writeable = False
    assert cast(x, DType("float32"), DType("int8")).tolist() == [1, 1, 1, 1]
    first = cast(from_bits(np.array([1]), DType("uint4")), DType("uint4"), DType("float32"))
    first += 1  # a result belongs to the caller
    assert cast(from_bits(np.array([1]), DType("uint4")), DType("uint4"), DType("float32")) == [1.0]


def test_no_conversion_warns(recwarn):
    for source in ROWS:
        src = DType(source)
        size = 8 * src.numpy.itemsize
        x = from_bits(
            np.arange(1 << min(16, size), dtype=np.uint64) << np.uint64(max(0, size - 16)), src
        )
        for name in ROWS:
            if "handle" not in (source, name):
                cast(x, src, DType(name))
    assert [str(w.message) for w in recwarn] == []


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: cast(x, DType("float16"), DType("int8")), TypeError,
         "float16 is stored as float16, got an array of float32"),
        (lambda x: cast(x, DType("float32"), DType("int8"), "up"), ValueError,
         "unknown rounding 'up'; expected one of rn, rna, rz, rp, rm, rs, or none"),
        (lambda x: cast(x, DType("float32"), DType("int8"), "rp"), ValueError,
         r"rounding 'rp' does not apply to float32 -> int8.*T\.ceil"),
        (lambda x: cast(x, DType("float32"), DType("int8"), "rs", True, np.uint32(1)), ValueError,
         "rounding 'rs' does not apply"),
        (lambda x: cast(x, DType("float32"), DType("float16"), "rs"), TypeError,
         "needs rbits, one uint32 for each element; got none"),
        (lambda x: cast(x, DType("float32"), DType("float16"), "rs", True, np.ones(3, np.int32)),
         TypeError, "got an array of int32"),
        (lambda x: cast(x, DType("float32"), DType("float16"), "rn", True, np.uint32(1)), TypeError,
         "rbits belongs to rounding 'rs', got rounding 'rn'"),
        (lambda x: cast(x, DType("float32x2"), DType("float16")), TypeError, "lanes differ"),
        (lambda x: cast(x, DType("float32"), DType("handle")), TypeError,
         "a pointer is an integer, and no float"),
        (lambda x: converter(DType("float32"), DType("float16"), "rs"), ValueError, "use cast"),
        (lambda x: pack(x, DType("uint4")), TypeError, "uint4 is stored as uint4, got an array of"),
        (lambda x: unpack(np.zeros(2, np.uint8), DType("uint4"), 5), ValueError,
         "5 elements of uint4 take 3 bytes, got 2"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(call, error, text):
    with pytest.raises(error, match=text):
        call(np.ones(3, np.float32))


def test_rounding_towards_zero_is_what_integers_do():
    x = np.array([1.9, -1.9], np.float32)
    for rounding in ("", "rn", "rz"):
        assert cast(x, DType("float32"), DType("int8"), rounding).tolist() == [1, -1]


def test_handles_are_integers():
    x = np.array([0, 2**64 - 1], np.uint64)
    assert cast(x, DType("handle"), DType("uint64")) is x
    assert cast(x, DType("handle"), DType("int64")).tolist() == [0, -1]
    assert cast(x, DType("handle"), DType("bool")).tolist() == [False, True]


def test_unused_bits_of_a_slot_do_not_count():
    dirty = np.array([0xF2, 0x92], np.uint8)
    assert cast(
        dirty.view(ml_dtypes.float4_e2m1fn), DType("float4_e2m1fn"), DType("float32")
    ).tolist() == [1.0, 1.0]
    assert to_bits(dirty.view(ml_dtypes.float6_e2m3fn), DType("float6_e2m3fn")).tolist() == [
        0x32,
        0x12,
    ]
    assert pack(dirty.view(ml_dtypes.uint4), DType("uint4")).tolist() == [0x22]
