"""Copies between global memory and UB, and within UB, of every shape: cut tiles, several axes,
columns, runtime sizes, conversions.
"""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T

TARGET = "simulate:ascend910b"
RNG = np.random.default_rng(3)


def compiled(kernel):
    return tilelang.compile(kernel, target=TARGET)


def through_ub(shape, tile, starts, pad=None, dtype="float32"):
    """A vector core copies the box of `tile` at `starts` into UB, and UB out to both results."""

    @T.prim_func
    def kernel(A: T.Tensor(shape, dtype), C: T.Tensor(tile, dtype), D: T.Tensor(shape, dtype)):
        with T.Kernel(1, is_npu=True) as (_, vid), T.Scope("V"):
            u = T.alloc_ub(tile, dtype)
            if vid == 0:
                box = tuple(slice(s, s + n) for s, n in zip(starts, tile, strict=True))
                T.copy(A[box], u, pad_value=pad)
                T.barrier_all()
                T.copy(u, C)
                T.copy(u, D[box])

    return kernel


@pytest.mark.parametrize(
    ("shape", "tile", "starts"),
    [
        ((100,), (64,), (0,)),
        ((100,), (64,), (64,)),
        ((40, 48), (16, 48), (32, 0)),
        ((40, 50), (16, 16), (0, 48)),
        ((40, 50), (16, 16), (32, 48)),
        ((40, 50), (1, 16), (39, 40)),
        ((3, 40, 48), (1, 16, 48), (2, 30, 0)),
        ((3, 20, 48), (2, 16, 48), (1, 8, 0)),
        ((3, 20, 48), (2, 16, 48), (2, 8, 0)),
        ((2, 3, 8, 16), (1, 3, 8, 16), (1, 0, 0, 0)),
    ],
)
@pytest.mark.parametrize("pad", [None, 2.5])
def test_boxes_of_global_memory(shape, tile, starts, pad):
    a = RNG.standard_normal(shape).astype(np.float32)
    c, d = np.zeros(tile, np.float32), np.zeros(shape, np.float32)
    compiled(through_ub(shape, tile, starts, pad))(a, c, d)
    wanted = np.full(tile, 0.0 if pad is None else pad, np.float32)
    box = tuple(slice(s, min(s + n, m)) for s, n, m in zip(starts, tile, shape, strict=True))
    inside = tuple(slice(0, b.stop - b.start) for b in box)
    wanted[inside] = a[box]
    assert (c == wanted).all()
    rest = np.zeros(shape, np.float32)
    rest[box] = a[box]
    assert (d == rest).all()


def test_runtime_sizes():
    m, n = T.symbolic("m"), T.symbolic("n")

    @T.prim_func
    def kernel(A: T.Tensor((m, n), "float16"), C: T.Tensor((m, n), "float16")):
        with T.Kernel(T.ceildiv(m, 16), is_npu=True) as (cid, vid), T.Scope("V"):
            u = T.alloc_ub((8, 64), "float16")
            row = cid * 16 + vid * 8
            for k in T.serial(T.ceildiv(n, 64)):
                T.copy(A[row : row + 8, k * 64 : k * 64 + 64], u)
                T.barrier_all()
                T.tile.mul(u, u, 2.0)
                T.barrier_all()
                T.copy(u, C[row : row + 8, k * 64 : k * 64 + 64])
                T.barrier_all()

    made = compiled(kernel)
    for shape in [(1, 1), (16, 64), (20, 100), (37, 129)]:
        a = RNG.standard_normal(shape).astype(np.float16)
        c = np.zeros(shape, np.float16)
        made(a, c)
        assert (c == a * np.float16(2)).all()


def test_a_row_that_may_be_outside():
    m = T.symbolic("m")

    @T.prim_func
    def kernel(A: T.Tensor((m, 48), "float32"), C: T.Tensor((m, 48), "float32")):
        with T.Kernel(1, is_npu=True) as (_, vid), T.Scope("V"):
            u = T.alloc_ub((48,), "float32")
            for k in T.serial(4):
                T.copy(A[2 * k + vid, 0:48], u)
                T.barrier_all()
                T.tile.add(u, u, 1.0)
                T.barrier_all()
                T.copy(u, C[2 * k + vid, 0:48])
                T.barrier_all()

    made = compiled(kernel)
    for rows in (1, 5, 8, 11):
        a, c = RNG.standard_normal((rows, 48)).astype(np.float32), np.zeros((rows, 48), np.float32)
        made(a, c)
        assert (c[:8] == a[:8] + np.float32(1)).all() and (c[8:] == 0).all()


NUMBERS = {
    "float16": np.float16,
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "int32": np.int32,
    "int8": np.int8,
    "int16": np.int16,
    "uint8": np.uint8,
}


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        ("float16", "float32"),
        ("float32", "float16"),
        ("float32", "bfloat16"),
        ("bfloat16", "float32"),
        ("float32", "int32"),
        ("int32", "float32"),
        ("float16", "int8"),
        ("int8", "float16"),
        ("float32", "int16"),
        ("uint8", "float16"),
    ],
)
def test_copies_within_ub_convert(src, dst):
    @T.prim_func
    def kernel(A: T.Tensor((6, 64), src), C: T.Tensor((6, 64), dst)):
        with T.Kernel(1, is_npu=True) as (_, vid), T.Scope("V"):
            u, w = T.alloc_ub((6, 64), src), T.alloc_ub((6, 64), dst)
            if vid == 1:
                T.copy(A, u)
                T.barrier_all()
                T.copy(u, w)
                T.barrier_all()
                T.copy(w, C)

    a = (RNG.standard_normal((6, 64)) * 20).astype(NUMBERS[src])
    c = np.zeros((6, 64), NUMBERS[dst])
    compiled(kernel)(a, c)
    wide = a.astype(np.float64)
    if dst.startswith("int"):
        wide = np.rint(wide)
    assert (c == wide.astype(NUMBERS[dst])).all()


@pytest.mark.parametrize("mode", ["CAST_FLOOR", "CAST_CEIL", "CAST_TRUNC", "CAST_RINT"])
def test_conversions_round_as_asked(mode):
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32"), C: T.Tensor((64,), "int32")):
        with T.Kernel(1, is_npu=True) as (_, vid), T.Scope("V"):
            u, w = T.alloc_ub((64,), "float32"), T.alloc_ub((64,), "int32")
            if vid == 0:
                T.copy(A, u)
                T.barrier_all()
                T.tile.cast(w, u, mode, 64)
                T.barrier_all()
                T.copy(w, C)

    a = (RNG.standard_normal(64) * 10).astype(np.float32)
    c = np.zeros(64, np.int32)
    compiled(kernel)(a, c)
    fn = {"FLOOR": np.floor, "CEIL": np.ceil, "TRUNC": np.trunc, "RINT": np.rint}
    assert (c == fn[mode.removeprefix("CAST_")](a)).all()


def test_rows_and_columns_of_ub():
    """Parts of a tile, a row that is repeated, a column that is repeated."""

    @T.prim_func
    def kernel(
        A: T.Tensor((8, 64), "float32"),
        R: T.Tensor((8, 64), "float32"),
        S: T.Tensor((8, 64), "float32"),
    ):
        with T.Kernel(1, is_npu=True) as (_, vid), T.Scope("V"):
            u, w = T.alloc_ub((8, 64), "float32"), T.alloc_ub((8, 64), "float32")
            v = T.alloc_ub((8,), "float32")
            if vid == 0:
                T.copy(A, u)
                T.barrier_all()
                for i in T.serial(8):
                    T.copy(u[3, :], w[i, :])
                T.tile.add(w[2:6, 16:48], w[2:6, 16:48], u[0:4, 32:64])
                T.reduce_sum(u, v, dim=-1)
                T.barrier_all()
                T.copy(w, R)
                T.tile.broadcast(u, v)
                T.barrier_all()
                T.copy(u, S)

    a = RNG.integers(-8, 8, (8, 64)).astype(np.float32)
    r, s = np.zeros((8, 64), np.float32), np.zeros((8, 64), np.float32)
    compiled(kernel)(a, r, s)
    wanted = np.repeat(a[3:4], 8, axis=0)
    wanted[2:6, 16:48] += a[0:4, 32:64]
    assert (r == wanted).all()
    assert (s == np.repeat(a.sum(axis=1, keepdims=True), 64, axis=1)).all()


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("clear", [True, False])
@pytest.mark.parametrize("shape", [(8, 64), (24, 40), (1, 128)])
def test_reductions_of_tiles(shape, dim, clear):
    m, n = shape
    kept = n if dim == 0 else m
    room = -(-kept // 8) * 8

    @T.prim_func
    def kernel(A: T.Tensor(shape, "float32"), C: T.Tensor((kept,), "float32")):
        with T.Kernel(1, is_npu=True) as (_, vid), T.Scope("V"):
            u, v = T.alloc_ub(shape, "float32"), T.alloc_ub((room,), "float32")
            if vid == 0:
                T.copy(A, u)
                T.tile.fill(v, 1.5)
                T.barrier_all()
                T.reduce_max(u, v[0:kept], dim=dim, clear=clear)
                T.barrier_all()
                T.copy(v[0:kept], C)

    a, c = RNG.standard_normal(shape).astype(np.float32), np.zeros(kept, np.float32)
    compiled(kernel)(a, c)
    wanted = a.max(axis=dim)
    assert (c == (wanted if clear else np.maximum(wanted, np.float32(1.5)))).all()
