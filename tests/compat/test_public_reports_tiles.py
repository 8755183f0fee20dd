"""Programs after public reports on layouts, copies, sizes and indices."""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from report_run import refused, run

# ---- Widths and layouts --------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 96, 100, 120, 127])
@pytest.mark.parametrize("threads", [32, 128])
def test_reductions_of_any_width(width, threads):  # 2399
    @T.prim_func
    def main(
        A: T.Tensor((6, width), "int32"), S: T.Tensor((6,), "int32"), C: T.Tensor((width,), "int32")
    ):
        with T.Kernel(1, threads=threads):
            tile = T.alloc_fragment((6, width), "int32")
            rows = T.alloc_fragment((6,), "int32")
            columns = T.alloc_fragment((width,), "int32")
            T.copy(A, tile)
            T.reduce_sum(tile, rows, dim=1)
            T.reduce_min(tile, columns, dim=0)
            for i, j in T.Parallel(6, width):
                tile[i, j] = tile[i, j] - rows[i] + columns[j]
            T.reduce_sum(tile, rows, dim=1)
            T.copy(rows, S)
            T.copy(columns, C)

    a = np.arange(6 * width, dtype=np.int32).reshape(6, width) * 5 % 31
    s, c = np.zeros(6, np.int32), np.zeros(width, np.int32)
    run(main, a, s, c)
    assert (c == a.min(0)).all()
    assert (s == (a - a.sum(1)[:, None] + a.min(0)).sum(1)).all()


@pytest.mark.parametrize(("rows", "columns"), [(1, 7168), (16, 448), (3, 96), (5, 64)])
def test_one_scale_for_each_group_of_columns(rows, columns):  # 1374
    groups = columns // 32

    @T.prim_func
    def main(
        A: T.Tensor((rows, columns), "float32"),
        X: T.Tensor((rows, groups), "float32"),
        B: T.Tensor((rows, columns), "float32"),
    ):
        with T.Kernel(1, threads=128):
            tile = T.alloc_fragment((rows, columns), "float32")
            scale = T.alloc_fragment((rows, groups), "float32")
            T.copy(A, tile)
            T.copy(X, scale)
            for i, j in T.Parallel(rows, columns):
                tile[i, j] *= scale[i, j // 32]
            T.copy(tile, B)

    rng = np.random.default_rng(rows)
    a = rng.integers(-9, 9, (rows, columns)).astype(np.float32)
    x = rng.integers(-9, 9, (rows, groups)).astype(np.float32)
    b = np.zeros_like(a)
    run(main, a, x, b)
    assert (b == a * x.repeat(32, axis=1)).all()


@pytest.mark.parametrize(("size", "loop"), [(256, 256), (256, 100), (96, 40), (7, 3)])
def test_a_loop_shorter_than_its_fragment_touches_its_part(size, loop):  # 1890, 1744
    @T.prim_func
    def main(A: T.Tensor((size,), "int32"), B: T.Tensor((size,), "int32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_fragment((size,), "int32")
            T.copy(A, tile)
            for i in T.Parallel(loop):
                tile[i] += 1000
            T.copy(tile, B)

    a = np.arange(size, dtype=np.int32)
    b = np.zeros_like(a)
    run(main, a, b)
    assert (b == a + 1000 * (a < loop)).all()


@pytest.mark.parametrize("first", range(4))
@pytest.mark.parametrize("second", range(4))
def test_sibling_pipelines_with_stages_of_their_own(first, second):  # 2309, 3039
    @T.prim_func
    def main(
        A: T.Tensor((5, 40), "int32"), B: T.Tensor((40,), "int32"), L: T.Tensor((40,), "int32")
    ):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((40,), "int32")
            total = T.alloc_fragment((40,), "int32")
            T.clear(total)
            for k in T.Pipelined(5, num_stages=first):
                T.copy(A[k, :], tile)
                for j in T.Parallel(40):
                    total[j] += tile[j]
            for k in T.Pipelined(3, num_stages=second):
                T.copy(A[k, :], tile)
                for j in T.Parallel(40):
                    total[j] -= 2 * tile[j]
            T.copy(total, B)
            T.copy(tile, L)

    a = np.arange(200, dtype=np.int32).reshape(5, 40) * 3 % 17
    b, last = np.zeros(40, np.int32), np.zeros(40, np.int32)
    run(main, a, b, last)
    assert (b == a.sum(0) - 2 * a[:3].sum(0)).all()
    assert (last == a[2]).all()


def test_a_tile_keeps_its_order_through_a_change_of_shape():  # 3040, 3012, 1042
    @T.prim_func
    def main(
        A: T.Tensor((6, 16), "int32"),
        B: T.Tensor((96,), "int32"),
        C: T.Tensor((4, 24), "int32"),
        D: T.Tensor((16, 6), "int32"),
    ):
        with T.Kernel(1, threads=96):
            tile = T.alloc_fragment((6, 16), "int32")
            T.copy(A, tile)
            flat = T.reshape(tile, (96,))
            wide = T.reshape(flat, (4, 24))
            turned = T.view(tile, (16, 6))
            T.copy(flat, B)
            T.copy(wide, C)
            T.copy(turned, D)

    a = np.arange(96, dtype=np.int32).reshape(6, 16)
    out = [np.zeros(s, np.int32) for s in ((96,), (4, 24), (16, 6))]
    run(main, a, *out)
    for x in out:
        assert (x.ravel() == a.ravel()).all()


def test_a_product_into_a_reshaped_tile():  # 3012
    @T.prim_func
    def main(
        A: T.Tensor((16, 8), "float32"),
        B: T.Tensor((8, 24), "float32"),
        C: T.Tensor((16, 24), "float32"),
    ):
        with T.Kernel(1, threads=64):
            a, b = T.alloc_shared((128,), "float32"), T.alloc_shared((8, 24), "float32")
            c = T.alloc_fragment((16, 24), "float32")
            T.copy(A, T.reshape(a, (16, 8)))
            T.copy(B, b)
            T.gemm(T.reshape(a, (16, 8)), b, c, clear_accum=True)
            T.copy(c, C)

    rng = np.random.default_rng(3)
    x, y = (rng.integers(-4, 5, s).astype(np.float32) for s in ((16, 8), (8, 24)))
    c = np.zeros((16, 24), np.float32)
    run(main, x, y, c)
    assert (c == x @ y).all()


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((95,), "int32"), ((7, 14), "int32"), ((96,), "int16"), ((0,), "int32"), ((48,), "int32")],
)
def test_a_change_of_shape_keeps_the_size(shape, dtype):  # 1004
    def build():
        @T.prim_func
        def main():
            with T.Kernel(1, threads=96):
                tile = T.alloc_shared((6, 16), "int32")
                T.clear(tile)
                T.clear(T.view(tile, shape, dtype))

    refused(build, "size", "3072")


# ---- Copies --------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 1, 3, 7])
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32"])
def test_copies_from_any_offset_and_stride(offset, dtype):  # 2527, 460, 1648
    @T.prim_func
    def main(A: T.Tensor((20, 37), dtype), B: T.Tensor((20, 37), dtype)):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((9, 24), dtype)
            T.copy(A[offset : offset + 9, offset : offset + 24], tile)
            T.copy(tile, B[offset + 1, offset + 5])

    a = (np.arange(740) % 100).astype(dtype).reshape(20, 37)
    b = np.zeros_like(a)
    run(main, a, b)
    want = np.zeros_like(a)
    cut = a[offset : offset + 9, offset : offset + 24]
    room = want[offset + 1 : offset + 10, offset + 5 : offset + 29]
    room[:] = cut[: room.shape[0], : room.shape[1]]
    assert (b == want).all()


@pytest.mark.parametrize("shape", [(8, 1), (1, 8), (1, 1), (5, 1, 3), (0, 4), (4, 0)])
def test_axes_of_one_and_zero(shape):  # 1150, 1697
    @T.prim_func
    def main(A: T.Tensor(shape, "float16"), B: T.Tensor(shape, "float16")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared(shape, "float16")
            frag = T.alloc_fragment(shape, "float16")
            T.copy(A, tile)
            T.copy(tile, frag)
            T.copy(frag, B)

    a = np.arange(np.prod(shape), dtype=np.float16).reshape(shape)
    b = np.zeros_like(a)
    run(main, a, b)
    assert (b == a).all()


def test_a_global_tile_in_memory_of_each_thread():  # 1304
    @T.prim_func
    def main(A: T.Tensor((32, 4), "float32"), B: T.Tensor((32, 4), "float32")):
        with T.Kernel(1, threads=32):
            t = T.get_thread_binding()
            own = T.alloc_local((4,), "float32")
            for k in T.serial(4):
                own[k] = A[t, k]
            for k in T.serial(4):
                B[t, k] = own[3 - k]

    a = np.arange(128, dtype=np.float32).reshape(32, 4)
    b = np.zeros_like(a)
    run(main, a, b)
    assert (b == a[:, ::-1]).all()


def test_ranks_that_differ_by_axes_of_one_fit_and_others_do_not():  # 340
    @T.prim_func
    def main(A: T.Tensor((3, 8, 16), "int32"), B: T.Tensor((3, 8, 16), "int32")):
        with T.Kernel(3, threads=32) as b:
            tile = T.alloc_shared((8, 16), "int32")
            T.copy(A[b, :, :], tile)
            T.copy(tile, B[b, 0, 0])

    a = np.arange(384, dtype=np.int32).reshape(3, 8, 16)
    b = np.zeros_like(a)
    run(main, a, b)
    assert (b == a).all()

    def build():
        @T.prim_func
        def main(A: T.Tensor((3, 8, 16), "int32")):
            with T.Kernel(1, threads=32):
                tile = T.alloc_shared((8, 16), "int32")
                T.copy(A, tile)

    refused(build, "shape")


@pytest.mark.parametrize(
    "shapes", [((8, 16), (16, 8)), ((8,), (9,)), ((8, 4), (32,)), ((2, 8), (8,))]
)
def test_tiles_of_other_shapes_are_not_copied(shapes):  # 340, 1237
    def build():
        @T.prim_func
        def main():
            with T.Kernel(1, threads=32):
                a = T.alloc_shared(shapes[0], "int32")
                b = T.alloc_shared(shapes[1], "int32")
                T.clear(a)
                T.copy(a, b)

    refused(build, "shape")


@pytest.mark.parametrize("length", [0, 1, 7, 48])
def test_lengths_that_only_the_run_knows(length):  # 1237, 968, 290, 215
    n = T.dynamic("n")

    @T.prim_func
    def main(
        A: T.Tensor((n,), "int32"),
        L: T.Tensor((1,), "int32"),
        B: T.Tensor((48,), "int32"),
        S: T.Tensor((1,), "int32"),
    ):
        with T.Kernel(1, threads=48):
            count = L[0]
            tile = T.alloc_shared((48,), "int32")
            total = T.alloc_fragment((1,), "int32")
            T.fill(tile, -1)
            T.copy(A[0:count], tile[0:count])
            T.copy(tile[0:count], B[48 - count : 48])
            T.reduce_sum(tile[0:count], total, dim=0)
            S[0] = total[0]
            T.fill(tile[0:count], 5)
            T.copy(tile[count : count + 1], B[count : count + 1])

    a = np.arange(1, 61, dtype=np.int32)
    b, s = np.zeros(48, np.int32), np.zeros(1, np.int32)
    if length == 48:
        length = 47
    run(main, a, np.array([length], np.int32), b, s)
    want = np.zeros(48, np.int32)
    want[48 - length :] = a[:length]
    want[length] = -1
    assert (b == want).all()
    assert s[0] == a[:length].sum()


def test_one_kernel_for_many_lengths():  # 968, 290, 1848
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n, 5), "int32"), B: T.Tensor((5, n), "int32")):
        with T.Kernel(T.ceildiv(n, 8), threads=40) as bx:
            tile = T.alloc_shared((8, 5), "int32")
            turned = T.alloc_shared((5, 8), "int32")
            T.copy(A[bx * 8, 0], tile)
            T.transpose(tile, turned)
            T.copy(turned, B[0, bx * 8])

    kernel = tilelang.compile(main, target="cpu")
    for rows in (1, 8, 9, 40, 3, 0):
        a = np.arange(rows * 5, dtype=np.int32).reshape(rows, 5)
        b = np.zeros((5, rows), np.int32)
        kernel(a, b)
        assert (b == a.T).all(), rows


# ---- Indices -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "uint8", "uint32", "uint64"])
def test_an_index_from_a_tensor_of_any_integer(dtype):  # 1115, 1310
    @T.prim_func
    def main(
        I: T.Tensor((6,), dtype),
        A: T.Tensor((9, 4), "int32"),
        B: T.Tensor((6, 4), "int32"),
        C: T.Tensor((9,), "int32"),
    ):
        with T.Kernel(1, threads=32):
            row = T.alloc_shared((4,), "int32")
            for i in T.serial(6):
                T.copy(A[I[i], :], row)
                T.copy(row, B[i, :])
            for i in T.Parallel(6):
                T.atomic_add(C[I[i]], i + 1)

    at = np.array([8, 0, 3, 3, 1, 7])
    a = np.arange(36, dtype=np.int32).reshape(9, 4)
    b, c = np.zeros((6, 4), np.int32), np.zeros(9, np.int32)
    run(main, at.astype(dtype), a, b, c)
    assert (b == a[at]).all()
    assert (c == np.bincount(at, np.arange(1, 7), 9)).all()


def test_more_than_two_to_the_31_elements_between_two_places():  # 390, 3027
    big = 2**31 + 11
    n, s = T.dynamic("n"), T.dynamic("s", "int64")

    @T.prim_func
    def main(A: T.StridedTensor((n, 3), (s, 1), "int8"), B: T.Tensor((n, 3), "int8")):
        with T.Kernel(n, threads=32) as i:
            for j in T.Parallel(3):
                B[i, j] = A[i, j] + T.cast(1, "int8")

    base = np.zeros(big + 3, np.int8)  # pages that nothing touches take no memory
    base[:3] = [1, 2, 3]
    base[big : big + 3] = [4, 5, 6]
    a = np.lib.stride_tricks.as_strided(base, (2, 3), (big, 1))
    b = np.zeros((2, 3), np.int8)
    run(main, a, b)
    assert b.tolist() == [[2, 3, 4], [5, 6, 7]]


def test_a_wide_loop_index_is_not_narrowed():  # 1310, 2560
    @T.prim_func
    def main(A: T.Tensor((4,), "int64")):
        with T.Kernel(1, threads=1):
            for i in T.serial(T.int64(2**33), T.int64(2**33 + 4)):
                A[i - 2**33] = i * 2

    a = np.zeros(4, np.int64)
    run(main, a)
    assert a.tolist() == [2**34 + 2 * k for k in range(4)]


@pytest.mark.parametrize(("m", "k"), [(4, 0), (1, 8), (0, 8), (1, 1)])
def test_strides_of_axes_without_neighbours_do_not_matter(m, k):  # 1697, 1325
    rows, inner = T.dynamic("rows"), T.dynamic("inner")

    @T.prim_func
    def main(A: T.Tensor((rows, inner), "float32"), B: T.Tensor((rows,), "float32")):
        with T.Kernel(rows, threads=32) as r:
            total = T.alloc_var("float32", init=0.0)
            for j in T.serial(inner):
                total += A[r, j]
            B[r] = total

    a = np.lib.stride_tricks.as_strided(np.ones(64, np.float32), (m, k), (4 * 13, 4))
    b = np.full(m, 9, np.float32)
    run(main, a, b)
    assert (b == k).all()


def test_two_absent_tensors_that_share_a_size():  # 1848
    n = T.dynamic("n")

    @T.prim_func
    def main(
        X: T.Tensor((n,), "int32"),
        Y: T.Tensor((n,), "int32"),
        B: T.Tensor((4,), "int32"),
        use: T.int32,
    ):
        with T.Kernel(1, threads=32):
            T.fill(B, use)

    b = np.zeros(4, np.int32)
    kernel = tilelang.compile(main, target="cpu")
    kernel(None, None, b, 3)
    assert (b == 3).all()
    kernel(None, np.zeros(5, np.int32), b, 4)
    assert (b == 4).all()


@pytest.mark.parametrize("width", [1, 3, 126, 127])
def test_rows_that_are_no_multiple_of_the_granule(width):  # adapter 1304, 1717
    @T.prim_func
    def main(A: T.Tensor((3, width), "float16"), B: T.Tensor((3, width), "bfloat16")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((3, width), "float16")
            T.copy(A, tile)
            T.copy(tile, B)

    a = (np.arange(3 * width) % 50).astype(np.float16).reshape(3, width)
    b = np.zeros((3, width), ml_dtypes.bfloat16)
    run(main, a, b)
    assert (b.astype(np.float32) == a).all()
