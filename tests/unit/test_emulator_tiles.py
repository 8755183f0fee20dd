"""Operations on whole tiles against NumPy, at odd sizes and in every element type they take."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from emulator_build import (
    BOOL,
    F32,
    F64,
    I64,
    TX,
    add,
    buf,
    e,
    kernel,
    ld,
    mul,
    op,
    reg,
    run,
    same,
    st,
    var,
)
from tilelang.dtypes import DType
from tilelang.dtypes.convert import cast
from tilelang.errors import TileError, TileIndexError
from tilelang.ir.expr import Cast
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Atomic,
    AtomicOp,
    Copy,
    Fill,
    Free,
    Gemm,
    Let,
    Parallel,
    Reduce,
    ReduceOp,
    Scan,
    ScanOp,
    Transpose,
    View,
)

i, j, bx = var("i"), var("j"), var("bx")
RNG = np.random.default_rng(7)


def shared(name, dtype, *shape):
    return buf(name, dtype, *shape, scope="shared.dyn")


def data(dtype: str, *shape: int) -> np.ndarray:
    d = DType(dtype)
    if d.is_float:
        x = RNG.standard_normal(shape).astype(np.float32)
        return cast(x, DType("float32"), d)
    if d.is_bool:
        return RNG.random(shape) < 0.5
    x = RNG.integers(max(int(d.min), -100), min(int(d.max), 100) + 1, shape)
    return cast(x, DType("int64"), d)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64)


# -- copies ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 24, 60, 64, 100])
def test_ragged_copies_through_shared_memory(n):
    A, B, s = buf("A", "float16", n, n), buf("B", "float32", n, n), shared("s", "float16", 32, 48)
    by = var("by")
    at = (mul(bx, 32), mul(by, 48))
    fn = kernel(
        [A, B],
        Alloc(s),
        Copy(reg(A, *at, ext=(32, 48)), reg(s)),
        Copy(reg(s), reg(B, *at, ext=(32, 48))),
        grid=(-(-n // 32), -(-n // 48)),
        vars=(bx, by),
    )
    a, b = data("float16", n, n), np.full((n, n), 9, np.float32)
    run(fn, A=a, B=b)
    same(b, a.astype(np.float32))


def test_outside_reads_give_zero_or_the_annotated_value():
    for safe in (None, -99):
        A, B, s = buf("A", "int32", 5, 3), buf("B", "int32", 8, 8), shared("s", "int32", 8, 8)
        note = [Annotate("safe_value", buffers=(A,), values=(safe,))] if safe is not None else []
        fn = kernel(
            [A, B], *note, Alloc(s), Copy(reg(A, -2, -1, ext=(8, 8)), reg(s)), Copy(reg(s), reg(B))
        )
        a, b = data("int32", 5, 3), np.zeros((8, 8), np.int32)
        run(fn, A=a, B=b)
        want = np.full((8, 8), safe or 0, np.int32)
        want[2:7, 1:4] = a
        same(b, want)


@pytest.mark.parametrize(
    ("src", "dst", "fits"),
    [
        ((1, 64), (64,), True),
        ((64,), (1, 1, 64), True),
        ((3, 1, 5), (3, 5), True),
        ((4, 1), (4, 6), True),
        ((6,), (4, 6), True),
        ((1,), (4, 6), True),
        ((4,), (4, 6), False),
        ((4, 5), (4, 6), False),
        ((2, 4, 6), (4, 6), False),
    ],
)
def test_which_extents_match(src, dst, fits):
    A, B = buf("A", "float32", *src), buf("B", "float32", *dst)
    fn = kernel([A, B], Copy(reg(A), reg(B)))
    a, b = data("float32", *src), np.zeros(dst, np.float32)
    if not fits:
        with pytest.raises(TileError, match="do not fit together"):
            run(fn, A=a, B=b)
        return
    run(fn, A=a, B=b)
    if a.size == b.size:
        same(b, a.reshape(dst))
    else:
        same(b, np.broadcast_to(a, dst).copy())


def test_copy_outside_on_chip_is_a_fault():
    A, s = buf("A", "float32", 16), shared("s", "float32", 8)
    with pytest.raises(TileIndexError, match="s") as info:
        run(
            kernel([A], Alloc(s), Copy(reg(A, 0, ext=(6,)), reg(s, 4, ext=(6,)))),
            A=data("float32", 16),
        )
    assert "9" in info.value.diagnostics[0].got and "< 8" in info.value.diagnostics[0].expected


def test_overlapping_copy_within_a_buffer():
    s, B = shared("s", "int32", 10), buf("B", "int32", 10)
    fn = kernel(
        [B],
        Alloc(s),
        Parallel((i,), (e(10),), (st(s, i, i),)),
        Copy(reg(s, 0, ext=(8,)), reg(s, 2, ext=(8,))),
        Copy(reg(s), reg(B)),
    )
    b = np.zeros(10, np.int32)
    run(fn, B=b)
    assert b.tolist() == [0, 1, 0, 1, 2, 3, 4, 5, 6, 7]


def test_memory_starts_undefined():
    F, X = buf("F", "float32", 3), buf("X", "int32", 3)
    s, t = shared("s", "float32", 3), shared("t", "int32", 3)
    f, x = np.zeros(3, np.float32), np.zeros(3, np.int32)
    run(kernel([F, X], Alloc(s), Alloc(t), Copy(reg(s), reg(F)), Copy(reg(t), reg(X))), F=f, X=x)
    assert np.isnan(f).all()
    assert (x == np.frombuffer(b"\xa5" * 4, np.int32)[0]).all()


def test_a_workspace_is_one_for_all_blocks():
    W, C = buf("W", "int32", 4), buf("C", "int32", 4)
    fn = kernel(
        [C], Alloc(W), st(W, bx, bx), st(C, bx, ld(W, op("//", bx, 2))), grid=(4,), vars=(bx,)
    )
    c = np.zeros(4, np.int32)
    run(fn, C=c)
    assert c.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    "dtype", ["float8_e4m3fn", "float4_e2m1fn", "int4", "uint4", "bool", "bfloat16", "int64"]
)
def test_fill_and_copy_keep_every_type(dtype):
    A, B, s = buf("A", dtype, 7), buf("B", dtype, 9), shared("s", dtype, 9)
    one = True if dtype == "bool" else 1.0 if DType(dtype).is_float else 1
    fn = kernel(
        [A, B],
        Alloc(s),
        Fill(reg(s), e(one, DType(dtype))),
        Copy(reg(A), reg(s, 1, ext=(7,))),
        Copy(reg(s), reg(B)),
    )
    a, b = data(dtype, 7), np.zeros(9, DType(dtype).numpy)
    run(fn, A=a, B=b)
    same(b.astype(np.float64), np.array([1, *a.astype(np.float64), 1]))


def test_transpose_exchanges_the_last_two_axes():
    A, B = buf("A", "float32", 2, 5, 9), buf("B", "float16", 2, 9, 5)
    a, b = data("float32", 2, 5, 9), np.zeros((2, 9, 5), np.float16)
    run(kernel([A, B], Transpose(reg(A), reg(B))), A=a, B=b)
    same(b, a.swapaxes(1, 2).astype(np.float16))


def test_views():
    s, v, w, z = (
        shared("s", "float32", 4, 6),
        shared("v", "int32", 24),
        shared("w", "float32", 3, 2),
        shared("z", "uint8", 8),
    )
    t = buf("t", "float32", 3, 2, scope="shared.dyn", strides=(e(1), e(6)))
    A, B, C, D, X = (
        buf("A", "float32", 4, 6),
        buf("B", "int32", 24),
        buf("C", "float32", 3, 2),
        buf("D", "uint8", 8),
        buf("X", "float32", 3, 2),
    )
    fn = kernel(
        [A, B, C, D, X],
        Alloc(s),
        View(v, s),
        View(w, s, offset=e(7)),
        View(z, s, offset=e(22)),
        View(t, s),
        Copy(reg(A), reg(s)),
        Copy(reg(v), reg(B)),
        Copy(reg(w), reg(C)),
        Copy(reg(z), reg(D)),
        Copy(reg(t), reg(X)),
        st(w, 0, 0, 5.0),
        Copy(reg(s), reg(A)),
    )
    a = data("float32", 4, 6)
    old = a.copy()
    b, c, d, x = (
        np.zeros(24, np.int32),
        np.zeros((3, 2), np.float32),
        np.zeros(8, np.uint8),
        np.zeros((3, 2), np.float32),
    )
    run(fn, A=a, B=b, C=c, D=d, X=x)
    same(b, old.view(np.int32).ravel())
    same(c, old.ravel()[7:13].reshape(3, 2))
    same(d, old.ravel()[22:].view(np.uint8))
    same(x, np.array([[old.flat[r + 6 * q] for q in range(2)] for r in range(3)], np.float32))
    old.flat[7] = 5
    same(a, old)


def test_a_view_that_does_not_fit_is_refused():
    s, v = shared("s", "float32", 4), shared("v", "float32", 5)
    with pytest.raises(TileError, match="v does not fit"):
        run(kernel([], Alloc(s), View(v, s)))


# -- gemm ------------------------------------------------------------------------------------------

GEMMS = [
    ("float16", "float16", "float32", 1e-3),
    ("float16", "float16", "float16", 2e-3),
    ("bfloat16", "bfloat16", "float32", 1e-3),
    ("bfloat16", "bfloat16", "bfloat16", 2e-2),
    ("float8_e4m3fn", "float8_e5m2", "float32", 1e-3),
    ("float4_e2m1fn", "float8_e4m3fn", "float32", 1e-3),
    ("float32", "float32", "float32", 1e-4),
    ("float64", "float64", "float64", 1e-12),
    ("int8", "int8", "int32", 0),
    ("uint8", "int8", "int32", 0),
    ("int4", "int4", "int32", 0),
    ("int32", "int32", "int32", 0),
    ("int8", "float16", "float32", 1e-3),
]


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
@pytest.mark.parametrize(("da", "db", "dc", "tol"), GEMMS)
def test_gemm(da, db, dc, tol, ta, tb):
    m, n, k = 5, 24, 7
    sa, sb = ((k, m) if ta else (m, k)), ((n, k) if tb else (k, n))
    A, B, C = buf("A", da, *sa), buf("B", db, *sb), buf("C", dc, m, n)
    s, t, f = shared("s", da, *sa), shared("t", db, *sb), buf("f", dc, m, n, scope="local.fragment")
    mm = [
        Gemm(reg(s), reg(t), reg(f), e(clear, BOOL), transpose_a=ta, transpose_b=tb)
        for clear in (True, False)
    ]
    fn = kernel(
        [A, B, C],
        Alloc(s),
        Alloc(t),
        Alloc(f),
        Copy(reg(A), reg(s)),
        Copy(reg(B), reg(t)),
        *mm,
        Copy(reg(f), reg(C)),
    )
    a, b, c = data(da, *sa), data(db, *sb), np.zeros((m, n), DType(dc).numpy)
    run(fn, A=a, B=b, C=c)
    want = (wide(a).T if ta else wide(a)) @ (wide(b).T if tb else wide(b))
    np.testing.assert_allclose(wide(c), want + want, rtol=tol, atol=tol)


def test_gemm_of_one_stage_of_a_buffer():
    s, C = shared("s", "float32", 3, 4, 4), buf("C", "float32", 4, 4)
    fn = kernel(
        [C], Alloc(s), Fill(reg(s), e(1.0, F32)), Fill(reg(s, 1, 0, 0, ext=(1, 4, 4)), e(2.0, F32)),
        Gemm(reg(s, 1, 0, 0, ext=(1, 4, 4)), reg(s, 2, 0, 0, ext=(1, 4, 4)), reg(C), e(True, BOOL)),
    )  # fmt: skip
    c = np.zeros((4, 4), np.float32)
    run(fn, C=c)
    assert (c == 8).all()


def test_integer_gemm_is_exact_where_floats_are_not():
    k = 3000
    A, B, C = buf("A", "int32", 1, k), buf("B", "int32", k, 1), buf("C", "int32", 1, 1)
    a = RNG.integers(-(2**31), 2**31, (1, k)).astype(np.int32)
    b = RNG.integers(-(2**31), 2**31, (k, 1)).astype(np.int32)
    c = np.ones((1, 1), np.int32)
    run(kernel([A, B, C], Gemm(reg(A), reg(B), reg(C), e(False, BOOL))), A=a, B=b, C=c)
    total = 1 + sum(int(x) * int(y) for x, y in zip(a[0], b[:, 0], strict=True))
    assert int(c[0, 0]) == (total + 2**31) % 2**32 - 2**31


def test_tf32_drops_mantissa_bits_of_float32_operands_only():
    A, B, C = buf("A", "float32", 1, 1), buf("B", "float32", 1, 1), buf("C", "float32", 1, 1)
    fn = kernel([A, B, C], Gemm(reg(A), reg(B), reg(C), e(True, BOOL)))
    a, b = np.full((1, 1), 1 + 2**-10 + 2**-12, np.float32), np.full((1, 1), 1.0, np.float32)
    for tf32, want in ((False, a[0, 0]), (True, np.float32(1 + 2**-10))):
        c = np.zeros((1, 1), np.float32)
        run(fn, tf32=tf32, A=a, B=b, C=c)
        assert c[0, 0] == want


def test_gemm_shapes_must_fit():
    A, B, C = buf("A", "float32", 2, 3), buf("B", "float32", 4, 2), buf("C", "float32", 2, 2)
    with pytest.raises(TileError, match=r"operands of T\.gemm"):
        run(
            kernel([A, B, C], Gemm(reg(A), reg(B), reg(C), e(True, BOOL))),
            A=data("float32", 2, 3), B=data("float32", 4, 2), C=data("float32", 2, 2),
        )  # fmt: skip


# -- reductions ------------------------------------------------------------------------------------

NUMPY = {
    ReduceOp.SUM: np.sum,
    ReduceOp.MAX: np.max,
    ReduceOp.MIN: np.min,
    ReduceOp.ABSSUM: lambda x, **kw: np.sum(np.abs(x), **kw),
    ReduceOp.ABSMAX: lambda x, **kw: np.max(np.abs(x), **kw),
}


@pytest.mark.parametrize(
    "dtype",
    ["float32", "float64", "float16", "bfloat16", "float8_e5m2", "int32", "int8", "uint8", "int64"],
)
@pytest.mark.parametrize("operation", list(NUMPY))
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_reduce(dtype, operation, dim):
    shape = (24, 7, 5)
    left = tuple(np.delete(shape, dim))
    A, C = buf("A", dtype, *shape), buf("C", dtype, *left)
    a, c = data(dtype, *shape), data(dtype, *left)
    old = c.copy()
    kept = tuple(1 if d == dim % 3 else n for d, n in enumerate(shape))
    K = buf("K", dtype, *kept)
    fn = kernel(
        [A, C, K],
        Reduce(operation, reg(A), reg(C), dim, clear=False),
        Reduce(operation, reg(A), reg(K), dim),
    )
    k = np.zeros(kept, a.dtype)
    run(fn, A=a, C=c, K=k)
    exact = NUMPY[operation](wide(a) if DType(dtype).is_float else a.astype(np.int64), axis=dim)
    combine = {ReduceOp.MAX: np.maximum, ReduceOp.ABSMAX: np.maximum, ReduceOp.MIN: np.minimum}.get(
        operation, np.add
    )
    before = wide(old) if DType(dtype).is_float else old.astype(np.int64)
    for got, want in ((k.reshape(left), exact), (c, combine(exact, before))):
        if DType(dtype).is_float:
            near = cast(np.asarray(want), F64, DType(dtype))
            np.testing.assert_allclose(wide(got), wide(near), rtol=2 * DType(dtype).eps, atol=1e-4)
        else:
            same(got, want.astype(a.dtype))


@pytest.mark.parametrize("operation", [ReduceOp.BITAND, ReduceOp.BITOR, ReduceOp.BITXOR])
@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool", "uint64"])
def test_bitwise_reduce(operation, dtype):
    A, C = buf("A", dtype, 9, 4), buf("C", dtype, 9)
    a, c = data(dtype, 9, 4), np.zeros(9, DType(dtype).numpy)
    run(kernel([A, C], Reduce(operation, reg(A), reg(C), 1)), A=a, C=c)
    fold = {
        ReduceOp.BITAND: np.bitwise_and,
        ReduceOp.BITOR: np.bitwise_or,
        ReduceOp.BITXOR: np.bitwise_xor,
    }[operation]
    same(c, fold.reduce(a, axis=1))


def test_empty_reductions_give_the_identity():
    A = buf("A", "float32", 3, 0)
    outs = {r: buf(f"C_{r.value}", "float32", 3) for r in NUMPY}
    fn = kernel([A, *outs.values()], *(Reduce(r, reg(A), reg(b), 1) for r, b in outs.items()))
    arrays = {b.name: np.full(3, 5, np.float32) for b in outs.values()}
    run(fn, A=np.zeros((3, 0), np.float32), **arrays)
    assert {r.value: float(arrays[b.name][0]) for r, b in outs.items()} == {
        "sum": 0, "max": -np.inf, "min": np.inf, "abssum": 0, "absmax": 0,
    }  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_nan_in_max_and_min(dtype):
    a = data(dtype, 4, 5)
    a[1, 2] = np.nan
    a[3] = np.nan
    A = buf("A", dtype, 4, 5)
    outs = [
        (r, p, buf(f"C{n}", dtype, 4))
        for n, (r, p) in enumerate([(r, p) for r in (ReduceOp.MAX, ReduceOp.MIN) for p in (0, 1)])
    ]
    fn = kernel(
        [A, *(b for _, _, b in outs)],
        *(Reduce(r, reg(A), reg(b), 1, nan_propagate=bool(p)) for r, p, b in outs),
    )
    arrays = {b.name: np.zeros(4, a.dtype) for _, _, b in outs}
    run(fn, A=a, **arrays)
    for r, p, b in outs:
        got = wide(arrays[b.name])
        keep, drop = (np.max, np.fmax) if r is ReduceOp.MAX else (np.min, np.fmin)
        want = (
            keep(wide(a), axis=1)
            if p
            else drop.reduce(wide(a), axis=1, initial=-np.inf if r is ReduceOp.MAX else np.inf)
        )
        np.testing.assert_array_equal(got, want)


def test_reduce_of_a_slice_into_a_variable():
    A, C, v = (
        buf("A", "float32", 4, 10),
        buf("C", "float32", 1),
        buf("v", "float32", 1, scope="local.var"),
    )
    fn = kernel(
        [A, C],
        Alloc(v),
        Reduce(ReduceOp.SUM, reg(A, 2, 3, ext=(1, 5)), reg(v), 1),
        st(C, 0, ld(v, 0)),
    )
    a, c = data("float32", 4, 10), np.zeros(1, np.float32)
    run(fn, A=a, C=c)
    np.testing.assert_allclose(c[0], a[2, 3:8].sum(), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "int32", "float16", "int8"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("operation", list(ScanOp))
def test_scan(dtype, reverse, dim, operation):
    A, s = buf("A", dtype, 6, 11), shared("s", dtype, 6, 11)
    a = data(dtype, 6, 11)
    old = a.copy()
    run(
        kernel(
            [A],
            Alloc(s),
            Copy(reg(A), reg(s)),
            Scan(operation, reg(s), reg(s), dim, reverse=reverse),
            Copy(reg(s), reg(A)),
        ),
        A=a,
    )
    x = np.flip(old, dim) if reverse else old
    if operation is ScanOp.MAX:
        want = np.maximum.accumulate(x, axis=dim)
    else:
        want = np.cumsum(
            wide(x) if DType(dtype).is_float else x,
            axis=dim,
            dtype=np.float64 if DType(dtype).is_float else a.dtype,
        )
    want = np.flip(want, dim) if reverse else want
    if DType(dtype).is_float:
        np.testing.assert_allclose(wide(a), want, rtol=2e-3, atol=1e-5)
    else:
        same(a, want.astype(a.dtype))


# -- atomics ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float32", "float64", "int32", "int64", "uint32"]
)
def test_atomics_of_lanes(dtype):
    X, H, P = buf("X", "int32", 40), buf("H", dtype, 5), buf("P", dtype, 5)
    x = RNG.integers(-1, 6, 40).astype(np.int32)
    value = Cast(op("%", i, 7), DType(dtype))
    fn = kernel(
        [X, H, P],
        Parallel(
            (i,),
            (e(40),),
            (
                Atomic(AtomicOp.ADD, reg(H, ld(X, i), ext=(1,)), value),
                Atomic(AtomicOp.MAX, reg(P, ld(X, i), ext=(1,)), value),
                Atomic(
                    AtomicOp.MIN,
                    reg(P, 0, ext=(1,)),
                    op("-", value, 3.0 if DType(dtype).is_float else 3),
                ),
            ),
        ),
    )
    h, p = np.ones(5, DType(dtype).numpy), np.ones(5, DType(dtype).numpy)
    run(fn, X=x, H=h, P=p)
    hits = [[n % 7 for n in range(40) if x[n] == slot] for slot in range(5)]
    np.testing.assert_array_equal(wide(h), [1 + sum(v) for v in hits])
    want = [max([1, *v]) for v in hits]
    want[0] = min(want[0], 0 if dtype.startswith("uint") else -3)
    np.testing.assert_array_equal(wide(p), want)


def test_operands_are_converted_by_value_and_out_of_bounds_is_skipped():
    H = buf("H", "float16", 1)
    fn = kernel(
        [H],
        Parallel(
            (i,), (e(4),), (Atomic(AtomicOp.ADD, reg(H, op("-", i, 2), ext=(1,)), e(2.5, F32)),)
        ),
    )
    h = np.ones(1, np.float16)
    run(fn, H=h)
    assert h[0] == 3.5


def test_previous_values_come_in_lane_order():
    X, P = buf("X", "int64", 2), buf("P", "int64", 6)
    old = var("old", I64)
    fn = kernel(
        [X, P],
        Parallel(
            (i,),
            (e(6),),
            (
                Atomic(AtomicOp.ADD, reg(X, op("%", i, 2), ext=(1,)), Cast(i, I64), previous=old),
                st(P, i, old),
            ),
        ),
    )
    x, p = np.array([2**40, 7]), np.zeros(6, np.int64)
    run(fn, X=x, P=p)
    assert p.tolist() == [2**40, 7, 2**40, 8, 2**40 + 2, 11]
    assert x.tolist() == [2**40 + 6, 16]


def test_every_thread_makes_its_own_atomic_update():
    X = buf("X", "int32", 1)
    for threads, want in (((1,), 1), ((96,), 96), ((8, 4), 32), (None, 128)):
        x = np.zeros(1, np.int32)
        run(kernel([X], Atomic(AtomicOp.ADD, reg(X, 0, ext=(1,)), e(1)), threads=threads), X=x)
        assert x[0] == want
    x = np.zeros(1, np.int32)
    run(
        kernel(
            [X], Atomic(AtomicOp.ADD, reg(X, 0, ext=(1,)), e(1)), threads=None, dialect="ascend"
        ),
        X=x,
    )
    assert x[0] == 1


def test_atomic_update_of_a_region():
    A, C, s = buf("A", "float32", 5, 9), buf("C", "float16", 8, 9), shared("s", "float32", 5, 9)
    fn = kernel(
        [A, C],
        Alloc(s),
        Copy(reg(A), reg(s)),
        Atomic(AtomicOp.ADD, reg(C, 4, 0, ext=(5, 9)), reg(s)),
    )
    a, c = data("float32", 5, 9), data("float16", 8, 9)
    want = c.copy()
    want[4:] += a[:4].astype(np.float16)
    run(fn, A=a, C=c)
    same(c, want)


def test_freed_memory_is_undefined():
    t, C = buf("t", "float32", 128, 32, scope="shared.tmem"), buf("C", "float32", 128, 32)
    fn = kernel([C], Alloc(t), Fill(reg(t), e(1.0, F32)), Free(t), Copy(reg(t), reg(C)))
    c = np.zeros((128, 32), np.float32)
    run(fn, C=c)
    assert np.isnan(c).all()


def test_thread_copies_with_a_local_array():
    A, C, t, x = (
        buf("A", "float32", 32),
        buf("C", "float32", 32),
        buf("t", "float32", 4, scope="local"),
        var("x"),
    )
    fn = kernel(
        [A, C],
        Alloc(t),
        Let(x, mul(TX, 4)),
        Copy(reg(A, x, ext=(4,)), reg(t)),
        st(t, 0, 0.0),
        Copy(reg(t), reg(C, x, ext=(4,))),
        threads=(8,),
    )
    a, c = data("float32", 32), np.zeros(32, np.float32)
    run(fn, A=a, C=c)
    want = a.copy()
    want[::4] = 0
    same(c, want)


def test_sub_byte_arithmetic():
    A, C, F, G = (
        buf("A", "int4", 16),
        buf("C", "int4", 16),
        buf("F", "float4_e2m1fn", 16),
        buf("G", "float4_e2m1fn", 16),
    )
    body = (st(C, i, add(ld(A, i), ld(A, i))), st(G, i, op("*", ld(F, i), ld(F, i))))
    a = np.arange(-8, 8).astype(ml_dtypes.int4)
    f = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn)
    c, g = np.zeros_like(a), np.zeros_like(f)
    run(kernel([A, C, F, G], Parallel((i,), (e(16),), body)), A=a, C=c, F=f, G=g)
    want = (np.arange(-8, 8) * 2 + 8) % 16 - 8
    same(c.astype(np.int32), want.astype(np.int32))
    square = f.astype(np.float32) ** 2
    same(g.astype(np.float32), cast(square, F32, DType("float4_e2m1fn")).astype(np.float32))
