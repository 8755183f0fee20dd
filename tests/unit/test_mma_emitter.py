"""The emitter of hand-written products: its fragments are those of the instruction's row, and on a
GPU its products are NumPy's.
"""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileError
from tilelang.language.mma_emitter import TensorCoreIntrinEmitter, get_swizzle_layout
from tilelang.targets.cuda.nvrtc import include_folder, is_installed
from tilelang.targets.cuda.rows.fragments import fragment_a, fragment_b, fragment_d

needs_headers = pytest.mark.skipif(
    not (is_installed() and include_folder()), reason="NVRTC or CUDA's headers are not installed"
)


def emitter(dtype, total, turn, rows=32, columns=32, deep=64, warps=(1, 1)):
    return TensorCoreIntrinEmitter(
        dtype, dtype, total, *turn, *warps, rows, columns, deep
    )  # fmt: skip


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("dtype", "total"), [("float16", "float32"), ("int8", "int32")])
def test_fragments_are_those_of_the_instruction(dtype, total, turned):
    made = emitter(dtype, total, (turned, not turned))
    deep, size = made.micro_size_k, made.local_size_a
    a_shape = (64, 32) if turned else (32, 64)
    b_shape = (64, 32) if turned else (32, 64)

    @T.prim_func
    def kernel(
        A: T.Tensor(a_shape, dtype), B: T.Tensor(b_shape, dtype),
        LA: T.Tensor((32, 2 * size), dtype), LB: T.Tensor((32, 2 * size), dtype),
        L: T.Tensor((32, 32), total), C: T.Tensor((2, 2, 16, 16), total),
    ):  # fmt: skip
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            a = T.alloc_shared(a_shape, dtype)
            b = T.alloc_shared(b_shape, dtype)
            la, lb = T.alloc_local((2 * size,), dtype), T.alloc_local((2 * size,), dtype)
            lc = T.alloc_local((32,), total)
            T.copy(A, a)
            T.copy(B, b)
            made.ldmatrix_a(la, a, 1)
            made.ldmatrix_b(lb, b, 1)
            for n in range(2 * size):
                LA[tx, n] = la[n]
                LB[tx, n] = lb[n]
            for n in range(32):
                lc[n] = L[tx, n]
            made.stmatrix(lc, C)

    rng = np.random.default_rng(1)
    a = rng.integers(-99, 100, a_shape).astype(dtype)
    b = rng.integers(-99, 100, b_shape).astype(dtype)
    held, got = np.arange(1024).reshape(32, 32).astype(total), np.zeros((2, 2, 16, 16), total)
    found_a, found_b = (np.zeros((32, 2 * size), dtype) for _ in range(2))
    tilelang.compile(kernel, target="emulate")(a, b, found_a, found_b, held, got)
    left, right = (a.T if turned else a), (b if turned else b.T)  # rows x depth, depth x columns
    bits, half = np.dtype(dtype).itemsize * 8, size // 2
    for i in range(2):
        r, k = fragment_a(16, deep, bits)
        want = left[i * 16 + r, deep + k]
        np.testing.assert_array_equal(found_a[:, i * size : (i + 1) * size], want)
    for j in range(4):
        k, c = fragment_b(8, deep, bits)
        want = right[deep + k, j * 8 + c]
        np.testing.assert_array_equal(found_b[:, j * half : (j + 1) * half], want)
    r, c = fragment_d(16, 8)
    for i in range(2):
        for j in range(4):
            want = held[:, (i * 4 + j) * 4 : (i * 4 + j + 1) * 4]
            np.testing.assert_array_equal(got[i, j // 2][r, c + j % 2 * 8], want)


def product(dtype, total, turn):
    made = emitter(dtype, total, turn, warps=(2, 2))
    steps = 64 // made.micro_size_k
    a_shape = (64, 64)

    @T.prim_func
    def kernel(
        A: T.Tensor(a_shape, dtype), B: T.Tensor(a_shape, dtype), C: T.Tensor((64, 64), total)
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared(a_shape, dtype)
            b = T.alloc_shared(a_shape, dtype)
            la = T.alloc_local((made.warp_rows * made.local_size_a,), dtype)
            lb = T.alloc_local((made.warp_cols * made.local_size_b,), dtype)
            lc = T.alloc_local((made.warp_rows * made.warp_cols * made.local_size_out,), total)
            T.copy(A, a)
            T.copy(B, b)
            T.clear(lc)
            for k in T.serial(steps):
                made.ldmatrix_a(la, a, k)
                made.ldmatrix_b(lb, b, k)
                made.mma(la, lb, lc)
            made.stmatrix(lc, C, 0, 0)

    return kernel


CASES = [
    (*pair, turn)
    for pair in (
        ("float16", "float32"), ("float16", "float16"), ("bfloat16", "float32"),
        ("int8", "int32"), ("float8_e4m3fn", "float32"),
    )
    for turn in ((False, True), (True, False))
]  # fmt: skip


@needs_headers
@pytest.mark.parametrize(("dtype", "total", "turn"), CASES[:4:3])
def test_products_compile(dtype, total, turn):
    kernel = tilelang.compile(product(dtype, total, turn), target="cuda:sm_90a")
    assert "mma.sync.aligned.m16n8k16.row.col" in kernel.get_kernel_source()


@pytest.mark.gpu
@pytest.mark.parametrize(("dtype", "total", "turn"), CASES)
def test_products_are_those_of_numpy(dtype, total, turn):
    import ml_dtypes

    rng = np.random.default_rng(2)
    kind, out = (np.dtype(getattr(ml_dtypes, t, t)) for t in (dtype, total))
    x, y = rng.integers(-3, 4, (64, 64)), rng.integers(-3, 4, (64, 64))
    a, b = (np.ascontiguousarray(m.T) if t else m for m, t in ((x, turn[0]), (y, turn[1])))
    got = np.zeros((64, 64), out)
    tilelang.compile(product(dtype, total, turn), target="cuda")(
        a.astype(kind), b.astype(kind), got
    )
    np.testing.assert_array_equal(got.astype(np.float64), x @ y)


def test_what_no_instruction_has_is_refused():
    with pytest.raises(TileError, match="an mma emitter of float64"):
        TensorCoreIntrinEmitter("float64", "float64", "float64")
    with pytest.raises(TileError, match="the tile of a warp"):
        TensorCoreIntrinEmitter("float16", "float16", "float32", warp_row_tiles=24)


@pytest.mark.parametrize(("dtype", "columns"), [("float16", 32), ("float16", 64), ("int8", 64)])
def test_a_swizzle_moves_groups_of_sixteen_bytes_within_their_row(dtype, columns):
    bits = np.dtype(dtype).itemsize * 8
    places = [get_swizzle_layout(r, c, columns, dtype) for r in range(16) for c in range(columns)]
    assert len(set(places)) == 16 * columns
    bank = {}
    for n, (r, c) in enumerate(places):
        if n % columns < 128 // bits and n // columns < 8:  # the first group of eight rows
            bank.setdefault((r * columns + c) * bits // 8 // 16 % 8, set()).add(r)
    assert all(len(rows) == 1 for rows in bank.values())
