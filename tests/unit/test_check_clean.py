"""Correct programs have no findings but notes: products, attention, transposes, odd sizes."""

import pytest

import tilelang.language as T
from tilelang.errors import Severity
from tilelang.passes.check import check_function
from tilelang.targets import target


def assert_clean(kernel, on="emulate:sm_90a", notes=None):
    found = check_function(kernel.ir, target(on))
    bad = [d.render() for d in found if d.severity is not Severity.NOTE]
    assert not bad, "\n".join(bad)
    if notes is not None:
        assert len(found) == notes, [d.message for d in found]


def product(M, N, K, BM, BN, BK):
    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=128) as (bx, by):
            a = T.alloc_shared((BM, BK), "float16")
            b = T.alloc_shared((BK, BN), "float16")
            c = T.alloc_fragment((BM, BN), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=2):
                T.copy(A[by * BM, k * BK], a)
                T.copy(B[k * BK, bx * BN], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * BM, bx * BN])

    return kernel


SIZES = [(128, 128, 64), (256, 384, 128), (200, 129, 72), (1, 1, 1), (100, 127, 0), (1000, 777, 55)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tile", [(128, 128, 32), (24, 40, 48), (64, 100, 16)])
def test_products(size, tile):
    assert_clean(product(*size, *tile), notes=0)


def test_a_product_of_symbolic_sizes():
    m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")
    assert_clean(product(m, n, k, 64, 96, 32), notes=0)


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("size", [(256, 256), (200, 129), (100, 127)])
def test_an_elementwise_epilogue(size, guarded):
    M, N = size

    @T.prim_func
    def kernel(C: T.Tensor((M, N), "float32"), D: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 32), threads=128) as (bx, by):
            c = T.alloc_fragment((32, 64), "float32")
            T.copy(C[by * 32, bx * 64], c)
            for i, j in T.Parallel(32, 64):
                if guarded:
                    if by * 32 + i < M and bx * 64 + j < N:
                        C[by * 32 + i, bx * 64 + j] = c[i, j] + D[bx * 64 + j]
                else:
                    C[by * 32 + i, bx * 64 + j] = T.max(c[i, j], 0.0)

    assert_clean(kernel, notes=0 if guarded or size == (256, 256) else 1)


@pytest.mark.parametrize("columns", [1, 100, 127, 1000])
def test_softmax(columns):
    @T.prim_func
    def kernel(X: T.Tensor((64, columns), "float32"), Y: T.Tensor((64, columns), "float32")):
        with T.Kernel(64, threads=128) as row:
            x = T.alloc_fragment((columns,), "float32")
            top = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(X[row, 0], x)
            T.reduce_max(x, top)
            for i in T.Parallel(columns):
                x[i] = T.exp(x[i] - top[0])
            T.reduce_sum(x, total)
            for i in T.Parallel(columns):
                Y[row, i] = x[i] / total[0]

    assert_clean(kernel, notes=0)


def attention(B, S, H=4, D=64, BM=64, BN=48):
    shape = (B, S, H, D)

    @T.prim_func
    def kernel(
        Q: T.Tensor(shape, "float16"),
        K: T.Tensor(shape, "float16"),
        V: T.Tensor(shape, "float16"),
        Out: T.Tensor(shape, "float16"),
        L: T.Tensor((B, H, S), "float32"),
    ):
        with T.Kernel(T.ceildiv(S, BM), H, B, threads=128) as (bx, by, bz):
            q = T.alloc_shared((BM, D), "float16")
            k = T.alloc_shared((BN, D), "float16")
            v = T.alloc_shared((BN, D), "float16")
            s = T.alloc_fragment((BM, BN), "float32")
            p = T.alloc_fragment((BM, BN), "float16")
            o = T.alloc_fragment((BM, D), "float32")
            top = T.alloc_fragment((BM,), "float32")
            before = T.alloc_fragment((BM,), "float32")
            scale = T.alloc_fragment((BM,), "float32")
            part = T.alloc_fragment((BM,), "float32")
            total = T.alloc_fragment((BM,), "float32")
            T.copy(Q[bz, bx * BM : (bx + 1) * BM, by, :], q)
            T.fill(o, 0)
            T.fill(total, 0)
            T.fill(top, -T.infinity("float32"))
            for n in T.Pipelined(T.ceildiv(S, BN), num_stages=2):
                T.copy(K[bz, n * BN : (n + 1) * BN, by, :], k)
                for i, j in T.Parallel(BM, BN):
                    s[i, j] = T.if_then_else(bx * BM + i >= n * BN + j, 0, -T.infinity("float32"))
                T.gemm(q, k, s, transpose_B=True)
                T.copy(V[bz, n * BN : (n + 1) * BN, by, :], v)
                T.copy(top, before)
                T.reduce_max(s, top, dim=1, clear=False)
                for i in T.Parallel(BM):
                    scale[i] = T.exp2(before[i] - top[i])
                for i, j in T.Parallel(BM, D):
                    o[i, j] *= scale[i]
                for i, j in T.Parallel(BM, BN):
                    s[i, j] = T.exp2(s[i, j] - top[i])
                T.copy(s, p)
                T.gemm(p, v, o)
                T.reduce_sum(s, part, dim=1)
                for i in T.Parallel(BM):
                    total[i] = total[i] * scale[i] + part[i]
            for i, j in T.Parallel(BM, D):
                o[i, j] /= total[i]
            T.copy(o, Out[bz, bx * BM : (bx + 1) * BM, by, :])
            for i in T.Parallel(BM):
                total[i] = T.log2(total[i]) + top[i]
            T.copy(total, L[bz, by, bx * BM : (bx + 1) * BM])

    return kernel


@pytest.mark.parametrize("length", [1024, 1000, 48, 1])
def test_attention(length):
    assert_clean(attention(2, length), notes=0)


def test_attention_of_symbolic_sizes():
    assert_clean(attention(T.dynamic("b"), T.dynamic("s")), notes=0)


@pytest.mark.parametrize("pad", [0, 1])
def test_a_transpose_through_shared_memory(pad):
    @T.prim_func
    def kernel(A: T.Tensor((100, 200), "float32"), B: T.Tensor((200, 100), "float32")):
        with T.Kernel(T.ceildiv(200, 32), T.ceildiv(100, 32), threads=128) as (bx, by):
            s = T.alloc_shared((32, 32 + pad), "float32")
            for i, j in T.Parallel(32, 32):
                s[i, j] = A[by * 32 + i, bx * 32 + j]
            for i, j in T.Parallel(32, 32):
                B[bx * 32 + i, by * 32 + j] = s[j, i]

    assert_clean(kernel, notes=2)


def test_broadcasts_of_rows_and_columns():
    @T.prim_func
    def kernel(X: T.Tensor((40, 96), "float32"), R: T.Tensor((40,), "float32")):
        with T.Kernel(1, threads=128):
            x = T.alloc_fragment((40, 96), "float32")
            rows = T.alloc_fragment((40,), "float32")
            columns = T.alloc_shared((96,), "float32")
            T.copy(X, x)
            T.copy(R, rows)
            T.reduce_sum(x, columns, dim=0)
            for i, j in T.Parallel(40, 96):
                x[i, j] = x[i, j] * rows[i] + columns[j] - rows[0]
            T.copy(x, X)

    assert_clean(kernel, notes=0)


@pytest.mark.parametrize("group", [1, 4, 8])
def test_blocks_numbered_in_groups(group):
    rows, columns = 16, 24

    @T.prim_func
    def kernel(A: T.Tensor((1024, 1536), "float16"), B: T.Tensor((1024, 1536), "float16")):
        with T.Kernel(rows * columns, threads=128) as bx:
            s = T.alloc_shared((64, 64), "float16")
            first = bx // (group * columns) * group
            row = first + bx % group
            column = bx % (group * columns) // group
            T.copy(A[row * 64, column * 64], s)
            T.copy(s, B[row * 64, column * 64])

    assert_clean(kernel, notes=0)


def test_blocks_that_take_several_tiles_in_turn():
    @T.prim_func
    def kernel(A: T.Tensor((1024, 1024), "float32"), B: T.Tensor((1024, 1024), "float32")):
        with T.Kernel(13, threads=128) as bx:
            s = T.alloc_shared((128, 128), "float32")
            for w in T.serial(T.ceildiv(64, 13)):
                tile = bx + w * 13
                if tile < 64:
                    T.copy(A[tile // 8 * 128, tile % 8 * 128], s)
                    T.copy(s, B[tile // 8 * 128, tile % 8 * 128])

    assert_clean(kernel, notes=0)


def test_a_matrix_addressed_as_one_axis():
    M, N = 100, 77

    @T.prim_func
    def kernel(A: T.Tensor((M * N,), "float32"), B: T.Tensor((M * N,), "float32")):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 16), threads=128) as (bx, by):
            for i, j in T.Parallel(16, 32):
                if by * 16 + i < M and bx * 32 + j < N:
                    B[(by * 16 + i) * N + bx * 32 + j] = A[(by * 16 + i) * N + bx * 32 + j]

    assert_clean(kernel, notes=0)


def test_a_vector_in_eights():
    @T.prim_func
    def kernel(A: T.Tensor((4096,), "float32"), B: T.Tensor((4096,), "float32")):
        with T.Kernel(4, threads=128) as bx:
            for i in T.Parallel(128):
                for v in T.vectorized(8):
                    B[bx * 1024 + i * 8 + v] = A[bx * 1024 + i * 8 + v] * 2.0

    assert_clean(kernel, notes=0)


def test_partial_sums_over_blocks():
    @T.prim_func
    def kernel(
        A: T.Tensor((1000,), "float32"), S: T.Tensor((1,), "float32"), P: T.Tensor((8,), "float32")
    ):
        with T.Kernel(8, threads=128) as bx:
            a = T.alloc_fragment((125,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(A[bx * 125], a)
            T.reduce_sum(a, total)
            T.atomic_add(S[0], total[0])
            T.copy(total, P[bx])

    assert_clean(kernel, notes=0)


def test_code_that_names_threads():
    @T.prim_func
    def kernel(A: T.Tensor((512,), "int32"), B: T.Tensor((512,), "int32")):
        with T.Kernel(1, threads=512):
            s = T.alloc_shared((48,), "int32")
            tx = T.get_thread_binding()
            if tx < 48:
                s[tx] = A[tx] * 3
            B[tx] = s[(tx * 7 + 5) % 48]

    assert_clean(kernel, notes=0)


def test_a_scatter_that_depends_on_data_is_not_judged():
    @T.prim_func
    def kernel(A: T.Tensor((1024,), "int32"), H: T.Tensor((16,), "int32")):
        with T.Kernel(8, threads=128) as bx:
            for i in T.Parallel(128):
                H[A[bx * 128 + i]] = i
                if A[bx * 128 + i] > 0:
                    H[0] = i

    assert_clean(kernel, notes=0)


def test_flags_that_blocks_wait_for_are_not_judged():
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), F: T.Tensor((1,), "int32")):
        with T.Kernel(8, threads=32) as bx:
            if bx > 0:
                while F[0] < bx:
                    A[bx] = A[bx - 1] + 1
            F[0] = bx + 1

    assert_clean(kernel, notes=0)


def test_blocks_that_hand_over_by_atomics_are_not_judged():
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), F: T.Tensor((1,), "int32")):
        with T.Kernel(8, threads=32) as bx:
            T.atomic_add(F[0], 1, memory_order="acq_rel")
            A[0] = bx

    assert_clean(kernel, notes=0)


def test_tensors_at_an_address_are_not_judged():
    @T.prim_func
    def kernel(P: T.Tensor((8,), "int64")):
        with T.Kernel(8, threads=32) as bx:
            t = T.make_tensor(P[bx], (32,), "float32")
            for i in T.Parallel(32):
                t[i] = bx * 1.0

    assert_clean(kernel, notes=0)


def test_vectors_of_neighbouring_elements():
    @T.prim_func
    def kernel(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                B[i * 4 : i * 4 + 4] = A[i * 4 : i * 4 + 4]

    assert_clean(kernel, notes=0)
