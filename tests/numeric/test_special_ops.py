"""Products of every element type, sparse and block-scaled ones, and convolution by im2col."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from emulator_build import BOOL, F16, F32, I32, TX, buf, kernel, mul, op, reg, run, same, var
from tilelang.dtypes import DType, cast, from_bits, pack
from tilelang.emulator import translate
from tilelang.errors import TileError
from tilelang.ir.expr import Const
from tilelang.ir.special import GemmBlockScaled, GemmSparse, Im2col
from tilelang.ir.tile import Alloc, Copy, Fill, For, Gemm

i, j, k, bx, by = (var(n) for n in ("i", "j", "k", "bx", "by"))
RNG = np.random.default_rng(17)
F64_, I64_ = DType("float64"), DType("int64")


def c(n: int) -> Const:
    return Const(n, I32)


def words(dtype: DType, *shape: int) -> np.ndarray:
    """Eighths up to 16 of a narrow float, any value of a narrow integer, else small integers."""
    if dtype.is_float and dtype.bits <= 8:
        every = from_bits(np.arange(1 << dtype.row.code_bits, dtype=np.uint8), dtype)
        wide = cast(every, dtype, F64_)
        with np.errstate(invalid="ignore"):
            return RNG.choice(every[(np.abs(wide) <= 16) & (wide * 8 == np.round(wide * 8))], shape)
    if dtype.bits <= 8 and not dtype.is_bool:
        return from_bits(RNG.integers(0, 1 << dtype.bits, shape).astype(np.uint8), dtype)
    low = 0 if dtype.is_uint or dtype.is_bool else -8
    return cast(RNG.integers(low, 9, shape), I64_, dtype)


def eighths(x: np.ndarray, dtype: DType) -> np.ndarray:
    """The values as integers, in units of 1/8."""
    if dtype.is_float:
        return np.rint(cast(x, dtype, F64_) * 8).astype(np.int64)
    return cast(x, dtype, I64_) * 8


def rounded(x: np.ndarray, dtype: DType) -> np.ndarray:
    """Integers in units of 1/64 in a type: rounded once, or wrapped."""
    return cast(x / 64.0, F64_, dtype) if dtype.is_float else cast(x // 64, I64_, dtype)


def equal(got: np.ndarray, want: np.ndarray, dtype: DType) -> None:
    assert got.dtype == want.dtype
    wide = F64_ if dtype.is_float else I64_
    np.testing.assert_array_equal(cast(got, dtype, wide), cast(want, dtype, wide))


# -- element types ---------------------------------------------------------------------------------

SIZES = [(24, 40, 100), (1, 1, 1), (127, 5, 16), (16, 8, 0)]
PAIRS = [
    ("float16", "float16", "float32"),
    ("float16", "float16", "float16"),
    ("bfloat16", "bfloat16", "float32"),
    ("bfloat16", "bfloat16", "bfloat16"),
    ("float16", "bfloat16", "float32"),
    ("float32", "float32", "float32"),
    ("float64", "float64", "float64"),
    ("float32", "float32", "float64"),
    ("tfloat32", "tfloat32", "float32"),
    ("float8_e4m3fn", "float8_e4m3fn", "float32"),
    ("float8_e5m2", "float8_e5m2", "float32"),
    ("float8_e4m3fn", "float8_e5m2", "float32"),
    ("float8_e4m3fn", "float8_e4m3fn", "float16"),
    ("float8_e4m3fnuz", "float8_e5m2fnuz", "float32"),
    ("float6_e2m3fn", "float6_e3m2fn", "float32"),
    ("float4_e2m1fn", "float4_e2m1fn", "float32"),
    ("float4_e2m1fn", "float8_e4m3fn", "bfloat16"),
    ("float4_e2m1_unpacked", "float6_e2m3fn", "float32"),
    ("int8", "int8", "int32"),
    ("uint8", "uint8", "int32"),
    ("int8", "uint8", "int32"),
    ("uint8", "int8", "uint32"),
    ("int4", "int4", "int32"),
    ("uint4", "int4", "int32"),
    ("uint4", "uint4", "int32"),
    ("int2", "int8", "int32"),
    ("bool", "bool", "int32"),
    ("int16", "int16", "int32"),
    ("int32", "int32", "int64"),
    ("int8", "int8", "int8"),
    ("int8", "int8", "float32"),
    ("float16", "int8", "float32"),
    ("float16", "int4", "float16"),
    ("bfloat16", "uint4", "float32"),
    ("float64", "int32", "float64"),
]


def product(types, shape, turns, *, clear, a, b, old, tf32=False):
    """Run one Gemm on tiles in shared memory."""
    (ta, tb, tc), (m, n, kk), (turn_a, turn_b) = (DType(t) for t in types), shape, turns
    sa, sb = ((kk, m) if turn_a else (m, kk)), ((n, kk) if turn_b else (kk, n))
    A, B, C = buf("A", ta, *sa), buf("B", tb, *sb), buf("C", tc, m, n)
    s, t = buf("s", ta, *sa, scope="shared.dyn"), buf("t", tb, *sb, scope="shared.dyn")
    acc = buf("acc", tc, m, n, scope="local.fragment")
    body = (
        Alloc(s),
        Alloc(t),
        Alloc(acc),
        Copy(reg(A), reg(s)),
        Copy(reg(B), reg(t)),
        Copy(reg(C), reg(acc)),
        Gemm(reg(s), reg(t), reg(acc), Const(clear, BOOL), transpose_a=turn_a, transpose_b=turn_b),
        Copy(reg(acc), reg(C)),
    )
    out = old.copy()
    left, right = (x.T.copy() if turn else x for x, turn in ((a, turn_a), (b, turn_b)))
    run(kernel([A, B, C], *body), A=left, B=right, C=out, tf32=tf32)
    return out


@pytest.mark.parametrize("types", PAIRS, ids="-".join)
@pytest.mark.parametrize("shape", SIZES)
def test_products_are_exact_and_rounded_once(types, shape):
    ta, tb, tc = (DType(t) for t in types)
    m, n, kk = shape
    for n_case, turns in enumerate(itertools.product((False, True), repeat=2)):
        clear = n_case % 2 == 0
        a, b, old = words(ta, m, kk), words(tb, kk, n), words(tc, m, n)
        out = product(types, shape, turns, clear=clear, a=a, b=b, old=old)
        want = eighths(a, ta) @ eighths(b, tb) + (0 if clear else eighths(old, tc) * 8)
        equal(out, rounded(want, tc), tc)


NARROW = [
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e3m4",
    "float6_e2m3fn",
    "float6_e3m2fn",
    "float4_e2m1fn",
    "int4",
    "uint4",
    "int2",
    "int8",
    "uint8",
]


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("other", ["float8_e4m3fn", "float4_e2m1fn", "int8", "bfloat16"])
def test_every_code_word_is_multiplied_as_its_value(name, other):
    ta, tb = DType(name), DType(other)
    bits = ta.row.code_bits if ta.is_float else ta.bits
    a = from_bits(np.arange(1 << bits, dtype=np.uint8), ta).reshape(-1, 1)
    b = words(tb, 1, 5)
    tc = F32 if ta.is_float or tb.is_float else I32
    out = product(
        (ta, tb, tc),
        (len(a), 5, 1),
        (False, False),
        clear=True,
        a=a,
        b=b,
        old=np.zeros((len(a), 5), tc.numpy),
    )
    wide = F64_ if tc.is_float else I64_
    with np.errstate(invalid="ignore"):
        same(out, (cast(a, ta, wide) * cast(b, tb, wide)).astype(tc.numpy))


def test_integer_products_wrap_in_the_accumulator():
    a, b = np.full((2, 600), -128, np.int8), np.full((600, 3), -128, np.int8)
    old = np.full((2, 3), 2**31 - 1, np.int32)
    out = product(
        ("int8", "int8", "int32"), (2, 3, 600), (False, False), clear=False, a=a, b=b, old=old
    )
    same(out, np.full((2, 3), (2**31 - 1 + 600 * 2**14 + 2**31) % 2**32 - 2**31, np.int32))


def test_wide_integers_are_exact_beyond_float64():
    a = np.full((1, 3), 2**31 - 1, np.int32)
    b = np.full((3, 1), 2**31 - 1, np.int32)
    old = np.zeros((1, 1), np.int64)
    out = product(
        ("int32", "int32", "int64"), (1, 1, 3), (False, False), clear=True, a=a, b=b, old=old
    )
    same(
        out,
        np.array(
            [[3 * (2**31 - 1) ** 2 - (2**64 if 3 * (2**31 - 1) ** 2 >= 2**63 else 0)]], np.int64
        ),
    )


def test_half_accumulators_round_the_sum_and_not_each_product():
    # 2048 + 1 is no float16: adding one by one would stay at 2048.
    a, b = np.ones((1, 100), np.float16), np.ones((100, 1), np.float16)
    old = np.full((1, 1), 2048, np.float16)
    out = product(("float16",) * 3, (1, 1, 100), (False, False), clear=False, a=a, b=b, old=old)
    same(out, np.array([[2148]], np.float16))


def test_tf32_cuts_the_operands():
    a, b = (RNG.standard_normal(s).astype(np.float32) for s in ((24, 40), (40, 5)))
    old = np.zeros((24, 5), np.float32)
    out = product(
        ("float32",) * 3, (24, 5, 40), (False, False), clear=True, a=a, b=b, old=old, tf32=True
    )
    cut = [
        (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
        for x in (a, b)
    ]
    np.testing.assert_allclose(out, cut[0] @ cut[1], rtol=1e-5, atol=1e-6)
    assert np.abs(out - a.astype(np.float64) @ b).max() > 1e-5


def test_floats_into_an_integer_accumulator_are_refused():
    with pytest.raises(TileError, match="float16"):
        product(
            ("float16", "float16", "int32"),
            (2, 2, 2),
            (False, False),
            clear=True,
            a=np.ones((2, 2), np.float16),
            b=np.ones((2, 2), np.float16),
            old=np.zeros((2, 2), np.int32),
        )


# -- 2:4 sparse ------------------------------------------------------------------------------------


def sparse_rows(dtype: DType, m: int, k: int):
    """A matrix with two of four (one of two) elements kept, what is kept, and the metadata."""
    group, kept = (2, 1) if dtype.bits == 32 else (4, 2)
    values = words(dtype, m, k // group, kept)
    values[0, 0] = cast(np.zeros(kept, np.int64), I64_, dtype)
    choices = list(itertools.combinations(range(group), kept))
    pick = RNG.integers(0, len(choices), (m, k // group))
    places = np.array(choices)[pick]
    dense = np.zeros((m, k // group, group), dtype.numpy)
    np.put_along_axis(dense, places, values, -1)
    if dtype.bits == 32:
        codes = np.where(places[..., 0] == 0, 0b0100, 0b1110)
    else:
        codes = places[..., 0] | places[..., 1] << 2
    return dense.reshape(m, k), values.reshape(m, -1), codes.astype(np.uint64)


def metadata(codes: np.ndarray, dtype: DType) -> np.ndarray:
    per = dtype.bits // 4
    shifts = (4 * np.arange(per)).astype(np.uint64)
    grouped = codes.reshape(codes.shape[0], -1, per) << shifts
    return np.bitwise_or.reduce(grouped, -1).astype(f"u{dtype.numpy.itemsize}").view(dtype.numpy)


SPARSE = [
    ("float16", "float32", "int16"),
    ("float16", "float32", "int8"),
    ("bfloat16", "float32", "uint8"),
    ("bfloat16", "bfloat16", "int16"),
    ("float8_e5m2", "float32", "int32"),
    ("float8_e4m3fn", "float32", "int16"),
    ("int8", "int32", "int32"),
    ("int8", "int32", "uint8"),
    ("uint8", "int32", "uint16"),
    ("int8", "int8", "int32"),
    ("float32", "float32", "int8"),
    ("float32", "float32", "int16"),
]


@pytest.mark.parametrize(("name", "acc", "meta"), SPARSE)
@pytest.mark.parametrize("shape", [(24, 40, 64), (127, 8, 32), (1, 1, 128)])
@pytest.mark.parametrize("turns", list(itertools.product((False, True), repeat=3)))
def test_sparse_products(name, acc, meta, shape, turns):
    ta, tc, te = DType(name), DType(acc), DType(meta)
    (m, n, kk), (turn_a, turn_e, turn_b) = shape, turns
    dense, kept, codes = sparse_rows(ta, m, kk)
    e, b, old = metadata(codes, te), words(ta, kk, n), words(tc, m, n)
    given = [x.T.copy() if turn else x for x, turn in ((kept, turn_a), (e, turn_e), (b, turn_b))]
    A, E, B = (buf(x, t, *v.shape) for x, t, v in zip("AEB", (ta, te, ta), given, strict=True))
    C = buf("C", tc, m, n)
    acc_ = buf("acc", tc, m, n, scope="local.fragment")
    node = GemmSparse(
        reg(A),
        reg(E),
        reg(B),
        reg(acc_),
        Const(False, BOOL),
        transpose_a=turn_a,
        transpose_e=turn_e,
        transpose_b=turn_b,
    )
    out = old.copy()
    run(
        kernel([A, E, B, C], Alloc(acc_), Copy(reg(C), reg(acc_)), node, Copy(reg(acc_), reg(C))),
        A=given[0],
        E=given[1],
        B=given[2],
        C=out,
    )
    want = eighths(dense, ta) @ eighths(b, ta) + eighths(old, tc) * 8
    equal(out, rounded(want, tc), tc)


def test_a_group_of_zeros_may_name_one_place_twice():
    A, E, B, C = (
        buf("A", F16, 1, 16),
        buf("E", "int16", 1, 2),
        buf("B", F16, 32, 3),
        buf("C", F32, 1, 3),
    )
    node = GemmSparse(reg(A), reg(E), reg(B), reg(C), Const(True, BOOL))
    a = np.zeros((1, 16), np.float16)
    a[0, :2] = 2, 3
    b, out = words(F16, 32, 3), np.zeros((1, 3), np.float32)
    run(kernel([A, E, B, C], node), A=a, E=np.zeros((1, 2), np.int16), B=b, C=out)
    same(out, 5 * b[:1].astype(np.float32))


def test_metadata_that_do_not_fit_are_refused():
    A, E, B, C = (
        buf("A", F16, 4, 16),
        buf("E", "int16", 4, 1),
        buf("B", F16, 32, 3),
        buf("C", F32, 4, 3),
    )
    node = GemmSparse(reg(A), reg(E), reg(B), reg(C), Const(True, BOOL))
    with pytest.raises(TileError, match="metadata"):
        run(
            kernel([A, E, B, C], node),
            A=np.zeros((4, 16), np.float16),
            E=np.zeros((4, 1), np.int16),
            B=np.zeros((32, 3), np.float16),
            C=np.zeros((4, 3), np.float32),
        )


# -- block-scaled ----------------------------------------------------------------------------------


def scale_values(code: np.ndarray, kind: str) -> np.ndarray:
    if kind == "e8m0":
        return 2.0 ** (code.astype(np.int64) - 127)
    exponent, fraction = code >> 3 & 15, code & 7
    return np.where(
        exponent == 0,
        fraction / 8 * 2.0**-6,
        (1 + fraction / 8) * 2.0 ** (exponent.astype(int) - 7),
    )


SCALED = [
    ("float8_e4m3fn", "float8_e4m3fn", 32, "e8m0"),
    ("float8_e5m2", "float8_e4m3fn", 32, "e8m0"),
    ("float4_e2m1fn", "float4_e2m1fn", 16, "e4m3"),
    ("float4_e2m1fn", "float4_e2m1fn", 32, "e8m0"),
    ("float6_e3m2fn", "float8_e4m3fn", 32, "e8m0"),
    ("float8_e4m3fn", "float8_e4m3fn", 128, "e8m0"),
]


@pytest.mark.parametrize(("a_type", "b_type", "grain", "kind"), SCALED)
@pytest.mark.parametrize("stored", ["float", "uint8", "uint32"])
@pytest.mark.parametrize("tiled", [False, True])
def test_block_scaled_products(a_type, b_type, grain, kind, stored, tiled):
    ta, tb = DType(a_type), DType(b_type)
    m, n, step = 24, 40, 4 * grain
    kk, turn_b = 3 * step, tiled
    a, b = words(ta, m, kk), words(tb, kk, n)
    low, high = (120, 134) if kind == "e8m0" else (0x18, 0x58)
    sa, sb = (RNG.integers(low, high, (r, kk // grain)).astype(np.uint8) for r in (m, n))
    name = (
        {"e8m0": "float8_e8m0fnu", "e4m3": "float8_e4m3fn"}[kind] if stored == "float" else stored
    )
    ts = DType(name)
    given = [x.view(ts.numpy) for x in (sa, sb)]
    per = 4 if stored == "uint32" else 1
    blocks = kk // grain // per
    right = b.T.copy() if turn_b else b
    A, B, C = buf("A", ta, *a.shape), buf("B", tb, *right.shape), buf("C", F32, m, n)
    SA, SB = buf("SA", ts, m, blocks), buf("SB", ts, n, blocks)
    acc = buf("acc", F32, m, n, scope="local.fragment")
    fa, fb = (
        buf("fa", ts, m, blocks // 3, scope="shared.dyn"),
        buf("fb", ts, n, blocks // 3, scope="shared.dyn"),
    )
    at, where = mul(k, step), mul(k, blocks // 3)
    b_tile = reg(B, 0, at, ext=(n, step)) if turn_b else reg(B, at, 0, ext=(step, n))
    first = op("==", k, 0)
    scales = (reg(fa), reg(fb)) if tiled else (reg(SA), reg(SB))
    load = (
        Copy(reg(SA, 0, where, ext=(m, blocks // 3)), reg(fa)),
        Copy(reg(SB, 0, where, ext=(n, blocks // 3)), reg(fb)),
    )
    node = GemmBlockScaled(
        reg(A, 0, at, ext=(m, step)),
        b_tile,
        reg(acc),
        *scales,
        first,
        at,
        grain,
        grain,
        transpose_b=turn_b,
    )
    body = (
        Alloc(acc),
        Alloc(fa),
        Alloc(fb),
        For(k, c(0), c(3), (*(load if tiled else ()), node)),
        Copy(reg(acc), reg(C)),
    )
    out = np.zeros((m, n), np.float32)
    run(kernel([A, B, SA, SB, C], *body), A=a, B=right, SA=given[0], SB=given[1], C=out)
    wide_a, wide_b = (np.repeat(scale_values(s, kind), grain, 1) for s in (sa, sb))
    want = (cast(a, ta, F64_) * wide_a) @ (cast(b, tb, F64_) * wide_b.T)
    np.testing.assert_allclose(out, want, rtol=3e-7, atol=np.abs(want).max() * 2e-7)


def test_scales_of_one_word_for_each_row():
    # As a load for every fourth block leaves them: (M,) words, the block number modulo four.
    t, m, n, grain = DType("float8_e4m3fn"), 5, 3, 32
    A, B, C = buf("A", t, m, 32), buf("B", t, 32, n), buf("C", F32, m, n)
    SA, SB = buf("SA", "uint32", 1, m), buf("SB", "uint32", n)
    node = GemmBlockScaled(
        reg(A), reg(B), reg(C), reg(SA), reg(SB), Const(True, BOOL), c(6 * 32), grain, grain
    )
    a, b, out = words(t, m, 32), words(t, 32, n), np.zeros((m, n), np.float32)
    sa, sb = (RNG.integers(120, 134, (r, 4)).astype(np.uint8) for r in (m, n))
    run(
        kernel([A, B, SA, SB, C], node),
        A=a,
        B=b,
        SA=sa.view(np.uint32).reshape(1, m),
        SB=sb.view(np.uint32).reshape(n),
        C=out,
    )
    scale = np.outer(2.0 ** (sa[:, 2].astype(int) - 127), 2.0 ** (sb[:, 2].astype(int) - 127))
    np.testing.assert_array_equal(
        out, (cast(a, t, F64_) @ cast(b, t, F64_) * scale).astype(np.float32)
    )


def test_a_nan_scale_reaches_its_row_alone():
    t = DType("float8_e4m3fn")
    A, B, C = buf("A", t, 3, 32), buf("B", t, 32, 2), buf("C", F32, 3, 2)
    SA, SB = buf("SA", "float8_e8m0fnu", 3, 1), buf("SB", "float8_e8m0fnu", 2, 1)
    node = GemmBlockScaled(
        reg(A), reg(B), reg(C), reg(SA), reg(SB), Const(True, BOOL), c(0), 32, 32
    )
    ones = [cast(np.ones(s), F64_, t) for s in ((3, 32), (32, 2))]
    sa = np.array([[127], [255], [128]], np.uint8).view(DType("float8_e8m0fnu").numpy)
    sb = np.array([[127], [126]], np.uint8).view(sa.dtype)
    out = np.zeros((3, 2), np.float32)
    run(kernel([A, B, SA, SB, C], node), A=ones[0], B=ones[1], SA=sa, SB=sb, C=out)
    same(out, np.array([[32, 16], [np.nan, np.nan], [64, 32]], np.float32))


def test_scales_that_do_not_fit_are_refused():
    t = DType("float8_e4m3fn")
    A, B, C = buf("A", t, 3, 32), buf("B", t, 32, 2), buf("C", F32, 3, 2)
    for dtype, rows, message in (
        ("uint32", 2, "scales SA"),
        ("float32", 3, "scales of type"),
        ("float8_e5m2", 3, "scales of type"),
    ):
        SA, SB = buf("SA", dtype, rows, 1), buf("SB", "uint8", 2, 1)
        node = GemmBlockScaled(
            reg(A), reg(B), reg(C), reg(SA), reg(SB), Const(True, BOOL), c(0), 32, 32
        )
        fn = kernel([A, B, SA, SB, C], node)
        args = {
            "A": np.zeros((3, 32), t.numpy),
            "B": np.zeros((32, 2), t.numpy),
            "C": np.zeros((3, 2), np.float32),
        }
        with pytest.raises(TileError, match=message):
            run(
                fn,
                **args,
                SA=np.zeros((rows, 1), DType(dtype).numpy),
                SB=np.zeros((2, 1), np.uint8),
            )


# -- convolution -----------------------------------------------------------------------------------


def convolution(image, weight, stride, dilation, pad):
    """NHWC by (kernel, kernel, C, F), straight from the definition."""
    n, h, w, channels = image.shape
    size, _, _, filters = weight.shape
    padded = np.zeros((n, h + 2 * pad, w + 2 * pad, channels), np.float64)
    padded[:, pad : pad + h, pad : pad + w] = image
    reach = dilation * (size - 1) + 1
    oh, ow = (h + 2 * pad - reach) // stride + 1, (w + 2 * pad - reach) // stride + 1
    out = np.zeros((n, oh, ow, filters))
    for y, x, ky, kx in itertools.product(range(oh), range(ow), range(size), range(size)):
        pixel = padded[:, y * stride + ky * dilation, x * stride + kx * dilation]
        out[:, y, x] += pixel @ weight[ky, kx].astype(np.float64)
    return out


CONVOLUTIONS = [  # n, h, w, c, f, kernel, stride, dilation, pad
    (1, 8, 8, 32, 32, 3, 1, 1, 1),
    (2, 7, 9, 5, 4, 3, 1, 1, 1),
    (1, 10, 6, 3, 7, 3, 2, 1, 1),
    (2, 9, 9, 4, 3, 3, 1, 2, 2),
    (1, 5, 5, 8, 2, 1, 1, 1, 0),
    (3, 6, 5, 1, 1, 2, 2, 1, 0),
    (1, 11, 12, 2, 5, 3, 3, 2, 3),
    (1, 1, 1, 3, 2, 3, 1, 1, 1),
]


@pytest.mark.parametrize("sizes", CONVOLUTIONS)
@pytest.mark.parametrize(("rows", "columns"), [(16, 32), (5, 7), (64, 64)])
def test_convolution_by_im2col(sizes, rows, columns):
    n, h, w, channels, filters, size, stride, dilation, pad = sizes
    image = RNG.integers(-3, 4, (n, h, w, channels)).astype(np.float16)
    weight = RNG.integers(-3, 4, (size, size, channels, filters)).astype(np.float16)
    want = convolution(image, weight, stride, dilation, pad)
    pixels, inner = int(np.prod(want.shape[:3])), size * size * channels
    A, W, C = (
        buf("A", F16, n, h, w, channels),
        buf("W", F16, inner, filters),
        buf("C", F32, pixels, filters),
    )
    col, part = (
        buf("col", F16, rows, columns, scope="shared.dyn"),
        buf("part", F16, columns, filters, scope="shared.dyn"),
    )
    acc = buf("acc", F32, rows, filters, scope="local.fragment")
    body = (
        Alloc(col),
        Alloc(part),
        Alloc(acc),
        Fill(reg(acc), Const(0.0, F32)),
        For(
            k,
            c(0),
            c(-(-inner // columns)),
            (
                Im2col(reg(A), reg(col), bx, k, size, stride, dilation, pad),
                Copy(reg(W, mul(k, columns), 0, ext=(columns, filters)), reg(part)),
                Gemm(reg(col), reg(part), reg(acc), Const(False, BOOL)),
            ),
        ),
        Copy(reg(acc), reg(C, mul(bx, rows), 0, ext=(rows, filters))),
    )
    out = np.full((pixels, filters), 99, np.float32)
    fn = kernel([A, W, C], *body, grid=(-(-pixels // rows),), vars=(bx,))
    run(fn, A=image, W=weight.reshape(inner, filters), C=out)
    same(out, want.reshape(pixels, filters).astype(np.float32))


def test_the_order_of_rows_and_columns():
    # One image, so that each element of a patch says where it comes from.
    n, h, w, channels, size, stride, dilation, pad = 2, 4, 5, 3, 2, 2, 2, 1
    image = np.arange(1, n * h * w * channels + 1, dtype=np.int32).reshape(n, h, w, channels)
    oh, ow = (h + 2 * pad - 3) // stride + 1, (w + 2 * pad - 3) // stride + 1
    rows, columns = n * oh * ow + 3, size * size * channels + 2
    A, C = buf("A", I32, n, h, w, channels), buf("C", I32, rows, columns)
    col = buf("col", I32, rows, columns, scope="shared.dyn")
    out = np.zeros((rows, columns), np.int32)
    node = Im2col(reg(A), reg(col), c(0), c(0), size, stride, dilation, pad)
    run(kernel([A, C], Alloc(col), node, Copy(reg(col), reg(C))), A=image, C=out)
    want = np.zeros_like(out)
    flat = itertools.product(range(n), range(oh), range(ow))
    for r, (b, y, x) in enumerate(flat):
        for s, (ky, kx, ch) in enumerate(
            itertools.product(range(size), range(size), range(channels))
        ):
            row, column = y * stride - pad + ky * dilation, x * stride - pad + kx * dilation
            if 0 <= row < h and 0 <= column < w:
                want[r, s] = image[b, row, column, ch]
    same(out, want)


def test_special_products_are_operations_of_the_whole_block():
    t = DType("float8_e4m3fn")
    A, B, C = buf("A", t, 3, 32), buf("B", t, 32, 2), buf("C", F32, 3, 2)
    SA, SB = buf("SA", "uint8", 3, 1), buf("SB", "uint8", 2, 1)
    node = GemmBlockScaled(
        reg(A), reg(B), reg(C), reg(SA), reg(SB), Const(True, BOOL), c(0), 32, 32
    )
    from tilelang.ir.tile import If

    with pytest.raises(TileError, match="whole block"):
        translate(kernel([A, B, SA, SB, C], If(op("<", TX, 3), (node,)), threads=(32,)))


def test_packed_scales_are_lowest_byte_first():
    words_ = np.array([[0x81807F7E]], np.uint32)
    assert pack(words_, DType("uint32")).tolist() == [0x7E, 0x7F, 0x80, 0x81]
