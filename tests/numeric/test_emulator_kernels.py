"""Whole kernels on the emulator against NumPy, at odd sizes; each is clean in the dynamic check."""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T

RANDOM = np.random.default_rng(11)


def data(*shape, dtype="float32"):
    return RANDOM.standard_normal(shape).astype(np.float32).astype(dtype)


def run(kernel, *args):
    """Run in place, and again under the dynamic check on copies: same results, no findings."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    tilelang.compile(kernel, target="emulate")(*args)
    findings = tilelang.check(kernel, target="emulate", run_with=copies)
    assert not findings, "\n".join(d.render() for d in findings)
    for a, b in zip(args, copies, strict=True):
        if isinstance(a, np.ndarray):
            assert a.tobytes() == b.tobytes()


def close(got, want, tol):
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=tol, atol=tol)


@pytest.mark.parametrize(
    ("M", "N", "K", "tile"),
    [(100, 72, 96, (24, 48, 100)), (1, 1, 1, (16, 16, 16)), (127, 129, 40, (48, 40, 24))],
)
@pytest.mark.parametrize(("ta", "tb"), [(False, False), (False, True), (True, False), (True, True)])
def test_gemm_with_a_fused_epilogue(M, N, K, tile, ta, tb):
    BM, BN, BK = tile
    sa, sb = ((K, M) if ta else (M, K)), ((N, K) if tb else (K, N))
    ba, bb = ((BK, BM) if ta else (BM, BK)), ((BN, BK) if tb else (BK, BN))

    @T.prim_func
    def kernel(
        A: T.Tensor(sa, "float16"),
        B: T.Tensor(sb, "float16"),
        bias: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=128) as (bx, by):
            A_s = T.alloc_shared(ba, "float16")
            B_s = T.alloc_shared(bb, "float16")
            b_s = T.alloc_shared((BN,), "float32")
            acc = T.alloc_fragment((BM, BN), "float32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=2):
                if ta:
                    T.copy(A[k * BK, by * BM], A_s)
                else:
                    T.copy(A[by * BM, k * BK], A_s)
                if tb:
                    T.copy(B[bx * BN, k * BK], B_s)
                else:
                    T.copy(B[k * BK, bx * BN], B_s)
                T.gemm(A_s, B_s, acc, transpose_A=ta, transpose_B=tb)
            T.copy(bias[bx * BN], b_s)
            for i, j in T.Parallel(BM, BN):
                acc[i, j] = T.max(acc[i, j] + b_s[j], 0.0)
            T.copy(acc, C[by * BM, bx * BN])

    a, b, bias = data(*sa, dtype="float16"), data(*sb, dtype="float16"), data(N)
    c = np.full((M, N), np.nan, np.float16)
    run(kernel, a, b, bias, c)
    x, y = (a.T if ta else a).astype(np.float64), (b.T if tb else b).astype(np.float64)
    close(c, np.maximum(x @ y + bias, 0), 5e-3)


@pytest.mark.parametrize("splits", [1, 3, 4])
def test_split_k_with_atomics(splits):
    M, N, K, BK = 40, 24, 100, 16

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float32"),
        B: T.Tensor((K, N), "float32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, 16), T.ceildiv(M, 16), splits, threads=64) as (bx, by, bz):
            A_s = T.alloc_shared((16, BK), "float32")
            B_s = T.alloc_shared((BK, 16), "float32")
            acc = T.alloc_fragment((16, 16), "float32")
            T.clear(acc)
            per = T.ceildiv(T.ceildiv(K, BK), splits)
            for k in T.serial(per):
                T.copy(A[by * 16, (bz * per + k) * BK], A_s)
                T.copy(B[(bz * per + k) * BK, bx * 16], B_s)
                T.gemm(A_s, B_s, acc)
            for i, j in T.Parallel(16, 16):
                if (by * 16 + i < M) and (bx * 16 + j < N):
                    T.atomic_add(C[by * 16 + i, bx * 16 + j], acc[i, j])

    a, b, c = data(M, K), data(K, N), np.zeros((M, N), np.float32)
    run(kernel, a, b, c)
    close(c, a.astype(np.float64) @ b, 1e-4)


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (5, 100), (24, 127)])
def test_softmax_and_layer_norm(rows, cols):
    @T.prim_func
    def kernel(
        A: T.Tensor((rows, cols), "float32"),
        S: T.Tensor((rows, cols), "float32"),
        L: T.Tensor((rows, cols), "bfloat16"),
    ):
        with T.Kernel(rows, threads=64) as bx:
            x = T.alloc_fragment((1, cols), "float32")
            y = T.alloc_fragment((1, cols), "float32")
            m = T.alloc_fragment((1,), "float32")
            s = T.alloc_fragment((1,), "float32")
            v = T.alloc_fragment((1,), "float32")
            T.copy(A[bx, 0], x)
            T.reduce_max(x, m, dim=1)
            for i, j in T.Parallel(1, cols):
                y[i, j] = T.exp(x[i, j] - m[i])
            T.reduce_sum(y, s, dim=1)
            for i, j in T.Parallel(1, cols):
                S[bx, j] = y[i, j] / s[i]
            T.reduce_sum(x, m, dim=1)
            for i, j in T.Parallel(1, cols):
                y[i, j] = (x[i, j] - m[i] / cols) * (x[i, j] - m[i] / cols)
            T.reduce_sum(y, v, dim=1)
            for i, j in T.Parallel(1, cols):
                L[bx, j] = (x[i, j] - m[i] / cols) * T.rsqrt(v[i] / cols + 1e-5)

    a = data(rows, cols)
    s, n = np.zeros((rows, cols), np.float32), np.zeros((rows, cols), ml_dtypes.bfloat16)
    run(kernel, a, s, n)
    x = a.astype(np.float64)
    e = np.exp(x - x.max(1, keepdims=True))
    close(s, e / e.sum(1, keepdims=True), 1e-5)
    centred = x - x.mean(1, keepdims=True)
    close(n, centred / np.sqrt(x.var(1, keepdims=True) + 1e-5), 2e-2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("S", "D", "BM", "BN"), [(100, 24, 32, 48), (48, 40, 16, 16)])
def test_attention(causal, S, D, BM, BN):
    scale = 1.44269504 / D**0.5

    @T.prim_func
    def kernel(
        Q: T.Tensor((2, S, D), "float16"),
        K: T.Tensor((2, S, D), "float16"),
        V: T.Tensor((2, S, D), "float16"),
        O: T.Tensor((2, S, D), "float32"),
    ):
        with T.Kernel(T.ceildiv(S, BM), 2, threads=128) as (bx, by):
            q = T.alloc_shared((BM, D), "float16")
            k = T.alloc_shared((BN, D), "float16")
            v = T.alloc_shared((BN, D), "float16")
            p = T.alloc_fragment((BM, BN), "float32")
            ph = T.alloc_fragment((BM, BN), "float16")
            acc = T.alloc_fragment((BM, D), "float32")
            top = T.alloc_fragment((BM,), "float32")
            old = T.alloc_fragment((BM,), "float32")
            shrink = T.alloc_fragment((BM,), "float32")
            part = T.alloc_fragment((BM,), "float32")
            total = T.alloc_fragment((BM,), "float32")
            T.copy(Q[by, bx * BM : (bx + 1) * BM, :], q)
            T.clear(acc)
            T.clear(total)
            T.fill(top, -1e30)
            stop = T.ceildiv((bx + 1) * BM, BN) if causal else T.ceildiv(S, BN)
            for n in T.Pipelined(stop, num_stages=2):
                T.copy(K[by, n * BN : (n + 1) * BN, :], k)
                T.clear(p)
                T.gemm(q, k, p, transpose_B=True)
                for i, j in T.Parallel(BM, BN):
                    keep = (n * BN + j < S) and (bx * BM + i >= n * BN + j if causal else True)
                    p[i, j] = T.if_then_else(keep, p[i, j], -1e30)
                T.copy(top, old)
                T.reduce_max(p, top, dim=1, clear=False)
                for i in T.Parallel(BM):
                    shrink[i] = T.exp2((old[i] - top[i]) * scale)
                for i, j in T.Parallel(BM, BN):
                    p[i, j] = T.exp2((p[i, j] - top[i]) * scale)
                T.reduce_sum(p, part, dim=1)
                for i in T.Parallel(BM):
                    total[i] = total[i] * shrink[i] + part[i]
                for i, j in T.Parallel(BM, D):
                    acc[i, j] *= shrink[i]
                T.copy(p, ph)
                T.copy(V[by, n * BN : (n + 1) * BN, :], v)
                T.gemm(ph, v, acc)
            for i, j in T.Parallel(BM, D):
                acc[i, j] /= total[i]
            T.copy(acc, O[by, bx * BM : (bx + 1) * BM, :])

    q, k, v = (data(2, S, D, dtype="float16") for _ in range(3))
    out = np.zeros((2, S, D), np.float32)
    run(kernel, q, k, v, out)
    s = q.astype(np.float64) @ k.astype(np.float64).swapaxes(1, 2) / D**0.5
    if causal:
        s = np.where(np.tril(np.ones((S, S), bool)), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    close(out, (e / e.sum(-1, keepdims=True)) @ v.astype(np.float64), 5e-3)


@pytest.mark.parametrize("n", [1, 24, 100])
def test_top_k_and_histogram(n):
    k, bins = min(3, n), 7

    @T.prim_func
    def kernel(
        X: T.Tensor((n,), "int32"),
        V: T.Tensor((k,), "int32"),
        P: T.Tensor((k,), "int32"),
        H: T.Tensor((bins,), "int32"),
    ):
        with T.Kernel(1, threads=32):
            x = T.alloc_fragment((n,), "int32")
            best = T.alloc_fragment((1,), "int32")
            place = T.alloc_fragment((n,), "int32")
            first = T.alloc_fragment((1,), "int32")
            h = T.alloc_shared((bins,), "int32")
            T.copy(X, x)
            T.clear(h)
            for i in T.Parallel(n):
                T.atomic_add(h[x[i] % bins], 1)
            T.copy(h, H)
            for r in T.serial(k):
                T.reduce_max(x, best, dim=0)
                for i in T.Parallel(n):
                    place[i] = T.if_then_else(x[i] == best[0], i, n)
                T.reduce_min(place, first, dim=0)
                for i in T.Parallel(n):
                    if i == first[0]:
                        x[i] = -(2**31)
                V[r] = best[0]
                P[r] = first[0]

    x = RANDOM.integers(0, 1000, n).astype(np.int32)
    v, p, h = np.zeros(k, np.int32), np.zeros(k, np.int32), np.zeros(bins, np.int32)
    run(kernel, x, v, p, h)
    order = np.argsort(-x, kind="stable")[:k]
    np.testing.assert_array_equal(v, x[order])
    np.testing.assert_array_equal(p, order)
    np.testing.assert_array_equal(h, np.bincount(x % bins, minlength=bins))


@pytest.mark.parametrize(("M", "N", "K"), [(24, 40, 96), (1, 16, 32)])
def test_dequantised_gemm_from_packed_int4(M, N, K):
    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((N, K // 2), "uint8"),
        scale: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, 16), T.ceildiv(M, 16), threads=64) as (bx, by):
            A_s = T.alloc_shared((16, 32), "float16")
            B_s = T.alloc_shared((16, 16), "uint8")
            W = T.alloc_fragment((16, 32), "float16")
            acc = T.alloc_fragment((16, 16), "float32")
            T.clear(acc)
            for k in T.Pipelined(K // 32, num_stages=2):
                T.copy(A[by * 16, k * 32], A_s)
                T.copy(B[bx * 16, k * 16], B_s)
                for i, j in T.Parallel(16, 32):
                    nibble = (B_s[i, j // 2] >> T.cast(j % 2 * 4, "uint8")) & T.uint8(15)
                    W[i, j] = T.cast(nibble, "float16") - T.float16(8)
                T.gemm(A_s, W, acc, transpose_B=True)
            for i, j in T.Parallel(16, 16):
                if (by * 16 + i < M) and (bx * 16 + j < N):
                    C[by * 16 + i, bx * 16 + j] = acc[i, j] * scale[bx * 16 + j]

    a, s = data(M, K, dtype="float16"), np.abs(data(N))
    b, c = RANDOM.integers(0, 256, (N, K // 2)).astype(np.uint8), np.zeros((M, N), np.float32)
    run(kernel, a, b, s, c)
    w = np.stack([b & 15, b >> 4], -1).reshape(N, K).astype(np.float64) - 8
    close(c, a.astype(np.float64) @ w.T * s, 1e-3)


@pytest.mark.parametrize("threads", [32, 96, 128])
def test_a_reduction_written_for_threads(threads):
    n = 1000

    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), C: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=threads):
            s = T.alloc_shared((threads,), "float32")
            tx = T.get_thread_binding()
            mine = T.alloc_var("float32", init=0.0)
            for k in T.serial(T.ceildiv(n, threads)):
                if k * threads + tx < n:
                    mine = mine + A[k * threads + tx]
            s[tx] = mine
            T.sync_threads()
            if tx == 0:
                total = T.alloc_var("float32", init=0.0)
                for k in T.serial(threads):
                    total = total + s[k]
                C[0] = total

    a, c = data(n), np.zeros(1, np.float32)
    run(kernel, a, c)
    close(c, a.astype(np.float64).sum(keepdims=True), 1e-3)


@pytest.mark.parametrize("n", [0, 1, 40, 100])
def test_dynamic_sizes_strides_and_a_workspace_between_launches(n):
    m = T.dynamic("m")

    @T.prim_func
    def kernel(A: T.Tensor((m, 7), "float32"), C: T.Tensor((m, 7), "float32")):
        W = T.alloc_global((m, 7), "float32")
        with T.Kernel(T.ceildiv(m, 16), threads=32) as bx:
            for i, j in T.Parallel(16, 7):
                if bx * 16 + i < m:
                    W[bx * 16 + i, j] = A[bx * 16 + i, j] * 2.0
        with T.Kernel(T.ceildiv(m, 16), threads=32) as bx:
            for i, j in T.Parallel(16, 7):
                if bx * 16 + i < m:
                    C[bx * 16 + i, j] = W[m - 1 - bx * 16 - i, j] + 1.0

    a, c = data(n, 7), np.zeros((n, 7), np.float32)
    run(kernel, a, c)
    np.testing.assert_array_equal(c, a[::-1] * 2 + 1)


def test_chunked_scan_over_blocks_of_a_row():
    rows, cols, chunk = 5, 100, 32

    @T.prim_func
    def kernel(A: T.Tensor((rows, cols), "float32"), C: T.Tensor((rows, cols), "float32")):
        with T.Kernel(rows, threads=32) as bx:
            x = T.alloc_shared((chunk,), "float32")
            carry = T.alloc_var("float32", init=0.0)
            for k in T.serial(T.ceildiv(cols, chunk)):
                T.copy(A[bx, k * chunk : (k + 1) * chunk], x)
                T.cumsum(x, dim=0)
                for j in T.Parallel(chunk):
                    if k * chunk + j < cols:
                        C[bx, k * chunk + j] = x[j] + carry
                carry = carry + x[chunk - 1]

    a, c = data(rows, cols), np.zeros((rows, cols), np.float32)
    run(kernel, a, c)
    close(c, np.cumsum(a.astype(np.float64), axis=1), 1e-4)


def test_convolution_by_index_arithmetic():
    H, W, F = 9, 7, 3

    @T.prim_func
    def kernel(
        X: T.Tensor((H, W), "float32"),
        K: T.Tensor((F, F), "float32"),
        Y: T.Tensor((H, W), "float32"),
    ):
        with T.Kernel(1, threads=64):
            acc = T.alloc_fragment((H, W), "float32")
            T.clear(acc)
            for p, q in T.grid(F, F):
                for i, j in T.Parallel(H, W):
                    r = i + p - 1
                    c = j + q - 1
                    inside = (r >= 0) and (r < H) and (c >= 0) and (c < W)
                    acc[i, j] += T.if_then_else(inside, X[r, c], 0.0) * K[p, q]
            T.copy(acc, Y)

    x, k, y = data(H, W), data(F, F), np.zeros((H, W), np.float32)
    run(kernel, x, k, y)
    padded = np.pad(x.astype(np.float64), 1)
    want = sum(padded[p : p + H, q : q + W] * k[p, q] for p in range(F) for q in range(F))
    close(y, want, 1e-4)
