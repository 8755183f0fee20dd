"""Conversion by value, against exact arithmetic that shares nothing with it.

The facts of the formats are written down again here; code words are read by ml_dtypes.
"""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tilelang.dtypes import DType, cast, const_value, from_bits, pack, to_bits, unpack, wrap_int

# name: (mantissa bits, exponent of the smallest normal number, largest, has infinity, has NaN)
FLOATS = {
    "float64": (52, -1022, np.finfo(np.float64).max, True, True),
    "float32": (23, -126, float(np.finfo(np.float32).max), True, True),
    "tfloat32": (10, -126, math.ldexp(2047, 117), True, True),
    "float16": (10, -14, 65504.0, True, True),
    "bfloat16": (7, -126, math.ldexp(255, 120), True, True),
    "float8_e3m4": (4, -2, 15.5, True, True),
    "float8_e4m3fn": (3, -6, 448.0, False, True),
    "float8_e4m3": (3, -6, 448.0, False, True),
    "float8_e4m3b11fnuz": (3, -10, 30.0, False, True),
    "float8_e4m3fnuz": (3, -7, 240.0, False, True),
    "float8_e5m2": (2, -14, 57344.0, True, True),
    "float8_e5m2fnuz": (2, -15, 57344.0, False, True),
    "float8_e8m0fnu": (0, -127, 2.0**127, False, True),
    "float6_e2m3fn": (3, 0, 7.5, False, False),
    "float6_e3m2fn": (2, -2, 28.0, False, False),
    "float4_e2m1fn": (1, 0, 6.0, False, False),
    "float4_e2m1_unpacked": (1, 0, 6.0, False, False),
}
NARROW = [name for name in FLOATS if name.startswith(("float8_", "float6_", "float4_"))]
WIDE = [name for name in FLOATS if name not in NARROW]
INTS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (2, 4, 8, 16, 32, 64)]
MODES = ["rn", "rna", "rz", "rp", "rm"]
SCALE = "float8_e8m0fnu"
F64 = DType("float64")


def default_mode(name):
    return {"tfloat32": "rna", SCALE: "rp"}.get(name, "rn")


def values_of(x, name):
    """The elements of an array as float64, by ml_dtypes and NumPy."""
    with np.errstate(invalid="ignore"):
        return x.astype(np.float64)


def same(got, want):
    """Equal, NaN where NaN is due, and zeros of one sign."""
    with np.errstate(invalid="ignore"):
        got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    nan = np.isnan(want)
    return (nan & np.isnan(got)) | ((got == want) & (np.signbit(got) == np.signbit(want)))


def goes_up(fraction, odd, negative, mode):
    """Whether a magnitude with `fraction` of a last place left over is rounded up."""
    half = Fraction(1, 2)
    return {
        "rn": fraction > half or (fraction == half and odd),
        "rna": fraction >= half,
        "rz": False,
        "rp": fraction > 0 and not negative,
        "rm": fraction > 0 and negative,
    }[mode]


def overflow(name, mode, saturate, negative, infinite):
    """The magnitude that stands for one too large for the format."""
    _, _, largest, has_inf, has_nan = FLOATS[name]
    if (saturate and name in NARROW) or not has_nan:
        return largest
    if not infinite and (mode == "rz" or mode == ("rp" if negative else "rm")):
        return largest
    return math.inf if has_inf else math.nan


def rounded(x, name, mode, saturate=True, negative=None, carry=None):
    """What a finite number, given as a Fraction, becomes in a format, by rational arithmetic.

    `carry` decides instead of `mode` whether a fraction is rounded up.
    """
    mantissa, emin, largest, *_ = FLOATS[name]
    negative = (x < 0 if negative is None else negative) and name != SCALE
    size = abs(x)
    exponent = emin
    if size:
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        exponent -= Fraction(2) ** exponent > size
    unit = Fraction(2) ** (max(exponent, emin) - mantissa)
    kept, fraction = divmod(size / unit, 1)
    up = carry(fraction) if carry else goes_up(fraction, kept % 2 == 1, negative, mode)
    result = (kept + up) * unit
    if name == SCALE:
        result = max(result, Fraction(2) ** -127)
    if result > Fraction(largest):
        value = overflow(name, mode, saturate, negative, infinite=False)
    else:
        value = float(result)
    no_minus_zero = name.endswith("fnuz") and value == 0
    return -value if negative and not no_minus_zero else value


def expected(x, name, mode, saturate=True):
    """`rounded`, of any float."""
    if math.isnan(x):
        return math.nan if FLOATS[name][4] else FLOATS[name][2]
    negative = math.copysign(1, x) < 0 and name != SCALE
    if math.isinf(x):
        return math.copysign(overflow(name, mode, saturate, negative, True), -1 if negative else 1)
    return rounded(Fraction(x), name, mode, saturate, negative)


# ---- every code word -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NARROW)
def test_every_code_word_decodes_as_in_ml_dtypes(name):
    dtype = DType(name)
    words = from_bits(np.arange(256), dtype)
    for wide in WIDE:
        got = cast(words, dtype, DType(wide))
        inside = rounded_to(values_of(words, name), wide)
        assert same(values_of(got, wide), inside).all(), wide


def rounded_to(x, name):
    return np.array([expected(v, name, default_mode(name)) for v in x.tolist()])


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("source", ["float64", "float32", "bfloat16", "float16"])
def test_every_code_word_encodes_back(name, source):
    dtype, wide = DType(name), DType(source)
    words = from_bits(np.arange(256), dtype)
    values = cast(words, dtype, wide)
    exact = values_of(values, source) == values_of(words, name)
    back = cast(values, wide, dtype, rounding="rn", saturate=False)
    assert exact.sum() > 4
    assert (to_bits(back, dtype) == to_bits(words, dtype))[exact].all()
    nan = np.isnan(values_of(words, name))
    assert np.isnan(values_of(back, name))[nan].all()


@pytest.mark.parametrize(
    "name", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
)
def test_float8_agrees_with_torch(name):
    torch = pytest.importorskip("torch")
    dtype = DType(name)
    words = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name))
    ours = cast(from_bits(np.arange(256), dtype), dtype, DType("float32"))
    assert same(ours, words.float().numpy()).all()
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    inside = halves[np.abs(halves) <= FLOATS[name][2]]
    theirs = torch.from_numpy(inside).to(getattr(torch, name)).view(torch.uint8).numpy()
    assert (to_bits(cast(inside, DType("float16"), dtype), dtype) == theirs).all()


# ---- every float16 and bfloat16, to every narrow float -------------------------------------------


def search(x, name, mode, saturate):
    """`expected` for an array, by search among the finite values of a narrow float."""
    _, _, largest, *_ = FLOATS[name]
    finite = values_of(from_bits(np.arange(256), DType(name)), name)
    grid = np.unique(np.abs(finite[np.isfinite(finite)]))
    grid = np.append(grid, 2 * largest if name == SCALE else 2 * grid[-1] - grid[-2])
    negative = np.signbit(x) & (name != SCALE)
    size = np.minimum(np.abs(np.where(np.isnan(x), 0, x)), 2 * grid[-1])
    low = np.clip(np.searchsorted(grid, size, side="right") - 1, 0, len(grid) - 2)
    place = (size - grid[low]) / (grid[low + 1] - grid[low])  # of powers of two: exact
    odd = low % 2 == 1 if name != SCALE else np.ones_like(low, bool)
    up = {
        "rn": (place > 0.5) | ((place == 0.5) & odd),
        "rna": place >= 0.5,
        "rz": np.zeros_like(negative),
        "rp": (place > 0) & ~negative,
        "rm": (place > 0) & negative,
    }[mode]
    result = np.where(negative, -1.0, 1.0) * grid[low + up]
    for sign in (False, True):
        for infinite in (False, True):
            over = (size >= grid[-1]) if infinite else (grid[low + up] > largest) | (place >= 1)
            where = over & (negative == sign) & (np.isinf(x) == infinite)
            value = overflow(name, mode, saturate, sign, infinite)
            result = np.where(where, math.copysign(value, -1 if sign else 1), result)
    if name.endswith("fnuz"):
        result = np.where(result == 0, 0.0, result)
    return np.where(np.isnan(x), math.nan if FLOATS[name][4] else largest, result)


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("source", ["float16", "bfloat16"])
def test_all_16_bit_floats_round_to_narrow_floats(name, source):
    src, dst = DType(source), DType(name)
    x = from_bits(np.arange(1 << 16), src)
    with np.errstate(invalid="ignore"):
        values = x.astype(np.float64)
    for mode in MODES:
        for saturate in (True, False):
            got = values_of(cast(x, src, dst, mode, saturate), name)
            right = same(got, search(values, name, mode, saturate))
            assert right.all(), (mode, saturate, values[~right][:4], got[~right][:4])


@pytest.mark.parametrize("name", NARROW)
def test_the_two_references_agree(name):
    x = np.concatenate([near(name), -near(name), [0.0, -0.0, math.inf, -math.inf, math.nan]])
    for mode in MODES:
        for saturate in (True, False):
            exact = [expected(v, name, mode, saturate) for v in x.tolist()]
            assert same(search(x, name, mode, saturate), exact).all(), (mode, saturate)


# ---- float32 and float64, near every decision ----------------------------------------------------


def near(name):
    """Positive float64 at, between and around the values of a format, and past its largest."""
    mantissa, emin, largest, *_ = FLOATS[name]
    if name in NARROW:
        finite = values_of(from_bits(np.arange(256), DType(name)), name)
        points = np.unique(np.abs(finite[np.isfinite(finite)]))
    else:
        places = np.array([0, 1, 2, 3, (1 << mantissa) - 2, (1 << mantissa) - 1], np.float64)
        top = math.frexp(largest)[1] - 1
        exponents = np.array([emin, emin + 1, -1, 0, 1, top - 1, top])
        normal = np.ldexp(1 + np.ldexp(places, -mantissa), exponents[:, None]).ravel()
        points = np.unique(np.append(normal, np.ldexp(places, emin - mantissa)))
    points = np.append(points, [largest / 2 * 1.9999, largest])
    middle = points[:-1] / 2 + points[1:] / 2
    past = [largest + (largest - math.nextafter(largest, 0)) * k for k in (1, 2)]
    if name != "float64":
        last = math.ldexp(1.0, math.frexp(largest)[1] - 1 - mantissa)
        past += [largest + last / 2, largest + last, largest * 4, largest + last * 0.75]
    base = np.concatenate([points, middle, past])
    tiny = 2.0**-40
    return np.unique(np.concatenate([base, base * (1 + tiny), base * (1 - tiny)]))


@pytest.mark.parametrize(
    ("source", "name"),
    [(s, n) for s in ("float64", "float32") for n in FLOATS if n not in ("float64", s)],
)
def test_decisions_of_rounding_are_exact(source, name):
    src = DType(source)
    with np.errstate(over="ignore"):
        one_sign = near(name).astype(src.numpy)
    x = np.concatenate(
        [one_sign, -one_sign, np.array([0, -0.0, np.inf, -np.inf, np.nan], src.numpy)]
    )
    for mode in MODES:
        for saturate in (True, False):
            got = values_of(cast(x, src, DType(name), mode, saturate), name)
            want = [expected(v, name, mode, saturate) for v in x.astype(np.float64).tolist()]
            right = same(got, want)
            assert right.all(), (mode, saturate, x[~right][:4], got[~right][:4])


@given(
    x=st.floats(),
    name=st.sampled_from([n for n in FLOATS if n != "float64"]),
    mode=st.sampled_from(MODES),
    saturate=st.booleans(),
)
@example(x=1 + 2.0**-11 + 2.0**-40, name="float16", mode="rn", saturate=True)
@example(x=5e-324, name="float32", mode="rp", saturate=True)
@example(x=-5e-324, name="float4_e2m1fn", mode="rm", saturate=False)
@example(x=1e300, name="float8_e5m2", mode="rz", saturate=False)
def test_any_float64_rounds_once(x, name, mode, saturate):
    got = cast(np.float64(x), F64, DType(name), mode, saturate)
    assert got.shape == ()
    assert same(values_of(got, name), expected(x, name, mode, saturate)).all()


@given(x=st.floats(width=32), name=st.sampled_from(list(FLOATS)), saturate=st.booleans())
def test_any_float32_rounds_once_by_the_mode_of_the_type(x, name, saturate):
    got = cast(np.float32(x), DType("float32"), DType(name), saturate=saturate)
    if name == "float32":
        assert same(got, x).all()
        return
    assert same(values_of(got, name), expected(x, name, default_mode(name), saturate)).all()


@pytest.mark.parametrize("name", NARROW)
def test_random_float32_agree_with_float64(name):
    bits = np.random.default_rng(7).integers(0, 1 << 32, 20_000, dtype=np.uint32)
    x = bits.view(np.float32)
    with np.errstate(invalid="ignore"):
        wide = x.astype(np.float64)
    for mode in MODES:
        for saturate in (True, False):
            got = cast(x, DType("float32"), DType(name), mode, saturate)
            want = cast(wide, F64, DType(name), mode, saturate)
            assert (to_bits(got, DType(name)) == to_bits(want, DType(name))).all(), mode


def test_no_double_rounding_through_float32():
    """Just above the middle of two float8 values; float32 would see the middle itself."""
    x = np.float64(1.0625 + 2.0**-40)
    assert np.float32(x) == 1.0625
    assert float(cast(x, F64, DType("float8_e4m3fn"))) == 1.125
    half = np.float64(1 + 2.0**-11 + 2.0**-40)
    assert float(cast(half, F64, DType("float16"))) == 1 + 2.0**-10


@pytest.mark.parametrize(
    ("name", "too_large", "unsaturated"),
    [
        ("float8_e4m3fn", 464.1, math.nan),
        ("float8_e4m3", 1e30, math.nan),
        ("float8_e5m2", 61440.0, math.inf),
        ("float8_e3m4", 15.75, math.inf),
        ("float8_e4m3fnuz", 248.0, math.nan),
        ("float8_e8m0fnu", 3.4e38, math.nan),
        ("float6_e2m3fn", 9.0, 7.5),
        ("float6_e3m2fn", 1e9, 28.0),
        ("float4_e2m1fn", 100.0, 6.0),
    ],
)
def test_narrow_floats_saturate_unless_told_not_to(name, too_large, unsaturated):
    x = np.array([too_large, -too_large, math.inf, -math.inf], np.float32)
    signs = np.array([1, -1, 1, -1]) if name != SCALE else np.ones(4)
    largest = FLOATS[name][2]
    f32, dst = DType("float32"), DType(name)
    assert same(values_of(cast(x, f32, dst), name), signs * largest).all()
    got = values_of(cast(x, f32, dst, saturate=False), name)
    assert same(got, signs * unsaturated).all()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "tfloat32"])
def test_wide_floats_overflow_to_infinity_whatever_saturate_is(name):
    x = np.array([1e300, -1e300], np.float64)
    for saturate in (True, False):
        assert values_of(cast(x, F64, DType(name), "", saturate), name).tolist() == [
            math.inf,
            -math.inf,
        ]
        largest = FLOATS[name][2]
        down = values_of(cast(x, F64, DType(name), "rm", saturate), name).tolist()
        assert down == [largest, -math.inf]


def test_nan_keeps_its_sign_and_becomes_the_largest_value_where_there_is_none():
    x = np.array([np.nan, -np.nan], np.float32)
    f32 = DType("float32")
    words = {n: to_bits(cast(x, f32, DType(n)), DType(n)).tolist() for n in NARROW}
    assert words["float8_e4m3fn"] == [0x7F, 0xFF]
    assert words["float8_e5m2"] == [0x7E, 0xFE]
    assert words["float8_e4m3fnuz"] == [0x80, 0x80]
    assert words["float8_e8m0fnu"] == [0xFF, 0xFF]
    assert words["float6_e2m3fn"] == [0x1F, 0x1F]
    assert words["float6_e3m2fn"] == [0x1F, 0x1F]
    assert words["float4_e2m1fn"] == [0x7, 0x7]


def test_scales_take_the_magnitude_and_round_up():
    x = np.array([3.0, -3.0, 4.0, 0.0, 1e-45, 500.0], np.float32)
    words = to_bits(cast(x, DType("float32"), DType(SCALE)), DType(SCALE)).tolist()
    assert words == [129, 129, 129, 0, 0, 136]
    down = to_bits(cast(x, DType("float32"), DType(SCALE), "rz"), DType(SCALE)).tolist()
    assert down == [128, 128, 129, 0, 0, 135]


# ---- stochastic rounding -------------------------------------------------------------------------


@given(
    x=st.floats(width=32, allow_nan=False, allow_infinity=False),
    name=st.sampled_from([n for n in FLOATS if n not in ("float64", "float32")]),
    rbits=st.integers(0, 2**32 - 1),
)
@example(x=1.25, name="float4_e2m1fn", rbits=2**31)
@example(x=1.25, name="float4_e2m1fn", rbits=2**31 - 1)
@example(x=-65519.0, name="float16", rbits=2**32 - 1)
def test_stochastic_rounding_carries_the_random_bits(x, name, rbits):
    got = cast(np.float32(x), DType("float32"), DType(name), "rs", True, np.uint32(rbits))
    want = rounded(
        Fraction(x),
        name,
        "rs",
        negative=math.copysign(1, x) < 0,
        carry=lambda fraction: math.floor(fraction * 2**32) + rbits >= 2**32,
    )
    assert same(values_of(got, name), want).all()


@given(x=st.integers(-(2**63), 2**63 - 1), rbits=st.integers(0, 2**32 - 1))
def test_stochastic_rounding_of_integers(x, rbits):
    got = cast(np.int64(x), DType("int64"), DType("float32"), "rs", True, np.uint32(rbits))
    carry = lambda fraction: math.floor(fraction * 2**32) + rbits >= 2**32  # noqa: E731
    assert float(got) == rounded(Fraction(x), "float32", "rs", carry=carry)


def test_stochastic_rounding_is_right_on_average():
    random = (np.arange(1 << 10, dtype=np.uint32) << np.uint32(22)).reshape(32, 32)
    for x, want in ((1.375, 1.375), (-2.2001953125, -2.2001953125), (3.0, 3.0), (0.1, 103 / 1024)):
        wide = np.full((32, 32), x, np.float32)
        got = cast(wide, DType("float32"), DType("float4_e2m1fn"), "rs", True, random)
        assert abs(values_of(got, "float4_e2m1fn").mean() - want) <= 1 / 1024


def test_stochastic_rounding_of_what_is_exact_changes_nothing():
    dst = DType("float8_e4m3fn")
    words = from_bits(np.arange(256), dst)
    wide = cast(words, dst, DType("float32"))
    got = cast(wide, DType("float32"), dst, "rs", True, np.uint32(0xFFFFFFFF))
    assert (to_bits(got, dst) == to_bits(words, dst)).all()


# ---- integers ------------------------------------------------------------------------------------


def bounds(name):
    bits = int(name.removeprefix("u").removeprefix("int"))
    return (0, 2**bits - 1) if name[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def ints_of(x):
    return [int(v) for v in x.reshape(-1).tolist()]


def array_of(values, name):
    """An array in the storage of an integer type."""
    low, _ = bounds(name)
    wide = np.array(values, np.uint64 if low == 0 else np.int64)
    return from_bits(wide.view(np.uint64), DType(name))


@st.composite
def integers(draw):
    name = draw(st.sampled_from(INTS))
    low, high = bounds(name)
    edges = [v for v in (low, high, low + 1, high - 1, 0, 1) if low <= v <= high]
    return name, draw(st.integers(low, high) | st.sampled_from(edges))


@given(source=integers(), name=st.sampled_from(INTS))
def test_integers_wrap(source, name):
    src, value = source
    got = cast(array_of([value], src), DType(src), DType(name))
    low, high = bounds(name)
    want = (value - low) % (high - low + 1) + low
    assert ints_of(got) == [want]
    assert wrap_int(value, DType(name)) == want
    assert const_value(value, DType(name)) == want


@given(
    source=integers(),
    name=st.sampled_from(list(FLOATS)),
    mode=st.sampled_from(["", *MODES]),
    saturate=st.booleans(),
)
@example(source=("int64", 2**30 + 2**22 + 1), name="bfloat16", mode="", saturate=True)
@example(source=("uint64", 2**64 - 1), name="float32", mode="rz", saturate=True)
@example(source=("int64", -(2**63)), name="float8_e8m0fnu", mode="", saturate=True)
@example(source=("int32", 2**24 + 1), name="float32", mode="rp", saturate=True)
@example(source=("int64", 2**53 + 1), name="float64", mode="rp", saturate=True)
@example(source=("uint64", 2**63 + 1025), name="float64", mode="", saturate=True)
@example(source=("int64", 0), name="float8_e8m0fnu", mode="rz", saturate=True)
def test_integers_round_once_to_floats(source, name, mode, saturate):
    src, value = source
    got = cast(array_of([value], src), DType(src), DType(name), mode, saturate)
    want = rounded(Fraction(value), name, mode or default_mode(name), saturate)
    assert same(values_of(got, name), [want]).all()


@pytest.mark.parametrize("src", ["int64", "uint64", "int32", "uint32"])
def test_integers_near_ties_round_once(src):
    low, high = bounds(src)
    values = {
        v
        for k in range(1, 64)
        for j in range(k)
        for d in (-1, 0, 1)
        for v in ((1 << k) + (1 << j) + d, -(1 << k) - (1 << j) + d)
        if low <= v <= high
    }
    values = sorted(values)
    for name in ("float64", "float32", "float16", "bfloat16", "tfloat32"):
        got = values_of(cast(array_of(values, src), DType(src), DType(name)), name)
        want = [rounded(Fraction(v), name, default_mode(name)) for v in values]
        assert same(got, want).all(), name


def to_int(x, name):
    """Towards zero, saturating, NaN to 0, in Python's integers."""
    low, high = bounds(name)
    if math.isnan(x):
        return 0
    return min(max(int(x) if math.isfinite(x) else (high if x > 0 else low), low), high)


@given(x=st.floats() | st.integers(-(2**65), 2**65).map(float), name=st.sampled_from(INTS))
@example(x=math.nextafter(2.0**63, 0), name="int64")
@example(x=2.0**63, name="int64")
@example(x=-(2.0**63), name="int64")
@example(x=2.0**64, name="uint64")
@example(x=math.nextafter(2.0**64, 0), name="uint64")
@example(x=-0.99, name="uint8")
@example(x=2147483647.5, name="int32")
@example(x=4294967295.9, name="uint32")
def test_floats_go_to_integers_towards_zero_and_saturate(x, name):
    assert ints_of(cast(np.float64(x), F64, DType(name))) == [to_int(x, name)]
    with np.errstate(over="ignore"):
        for source in ("float32", "float16"):
            narrow = DType(source).numpy.type(x)
            assert ints_of(cast(narrow, DType(source), DType(name))) == [
                to_int(float(narrow), name)
            ]


@pytest.mark.parametrize("source", [*NARROW, "bfloat16", "float16"])
@pytest.mark.parametrize("name", ["int4", "uint4", "int8", "uint8", "int32", "uint64", "int64"])
def test_every_small_float_goes_to_integers(source, name):
    src = DType(source)
    x = from_bits(np.arange(1 << min(16, 8 * src.numpy.itemsize)), src)
    want = [to_int(v, name) for v in values_of(x, source).tolist()]
    assert ints_of(cast(x, src, DType(name))) == want


@pytest.mark.parametrize("source", [*FLOATS, *INTS])
def test_bool_is_whether_a_value_differs_from_zero(source):
    src = DType(source)
    x = from_bits(np.arange(1 << min(16, 8 * src.numpy.itemsize)), src)
    with np.errstate(invalid="ignore"):
        want = x.astype(np.float64) != 0
    got = cast(x, src, DType("bool"))
    assert got.dtype == np.bool_
    assert (got == want).all()
    back = cast(np.array([False, True]), DType("bool"), src)
    zero = 2.0**-127 if source == SCALE else 0.0
    assert back.astype(np.float64).tolist() == [zero, 1.0]


# ---- sub-byte storage ----------------------------------------------------------------------------

SUBBYTE = ["int2", "uint2", "int4", "uint4", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"]


@given(name=st.sampled_from(SUBBYTE), words=st.lists(st.integers(0, 255), max_size=41))
def test_packing_is_a_stream_of_bits_and_unpacks(name, words):
    dtype = DType(name)
    words = [w & ((1 << dtype.bits) - 1) for w in words]
    data = pack(from_bits(np.array(words, np.uint8), dtype), dtype)
    stream = sum(w << (i * dtype.bits) for i, w in enumerate(words))
    assert int.from_bytes(data.tobytes(), "little") == stream
    assert data.size == math.ceil(len(words) * dtype.bits / 8)
    assert to_bits(unpack(data, dtype, len(words)), dtype).tolist() == words


@given(
    name=st.sampled_from([n for n in [*FLOATS, *INTS] if DType(n).bits >= 8]),
    data=st.binary(max_size=80),
)
def test_whole_bytes_pack_as_they_are(name, data):
    dtype = DType(name)
    count = len(data) // dtype.bytes
    if name == "float4_e2m1_unpacked":
        data = bytes(b & 15 for b in data)
    x = unpack(np.frombuffer(data, np.uint8), dtype, count)
    assert x.dtype == dtype.numpy
    assert pack(x, dtype).tobytes() == data[: count * dtype.bytes]


def test_packing_takes_elements_in_c_order():
    x = from_bits(np.arange(6).reshape(2, 3).T, DType("uint4"))
    assert pack(x, DType("uint4")).tolist() == [0x30, 0x41, 0x52]
    assert pack(from_bits(np.array([1, 15, 7]), DType("int4")), DType("int4")).tolist() == [0xF1, 7]


def test_ml_dtypes_reads_what_is_stored():
    assert ints_of(from_bits(np.array([7, 8, 15]), DType("int4"))) == [7, -8, -1]
    assert from_bits(np.array([0x9]), DType("float4_e2m1fn")).dtype == ml_dtypes.float4_e2m1fn
