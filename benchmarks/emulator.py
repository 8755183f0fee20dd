"""Times of the emulator on a few kernels, with the goals that they are held against.

`python benchmarks/emulator.py [NAME ...]` prints one line for each kernel: the best of five runs,
the goal, and the time to trace and translate it. Nothing here is a test; the results are checked
all the same.
"""

import sys
import time

import numpy as np

import tilelang
import tilelang.language as T

F16, F32 = "float16", "float32"
RANDOM = np.random.default_rng(0)


def random(*shape):
    """float32 numbers of a normal distribution."""
    return RANDOM.standard_normal(shape).astype(np.float32)


def gemm(M=1024, N=1024, K=1024, BM=128, BN=128, BK=32):
    """fp16 x fp16 -> fp32, tiles of 128 x 128 x 32."""

    @T.prim_func
    def kernel(A: T.Tensor((M, K), F16), B: T.Tensor((K, N), F16), C: T.Tensor((M, N), F32)):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=128) as (bx, by):
            A_s = T.alloc_shared((BM, BK), F16)
            B_s = T.alloc_shared((BK, BN), F16)
            C_f = T.alloc_fragment((BM, BN), F32)
            T.clear(C_f)
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=3):
                T.copy(A[by * BM, k * BK], A_s)
                T.copy(B[k * BK, bx * BN], B_s)
                T.gemm(A_s, B_s, C_f)
            T.copy(C_f, C[by * BM, bx * BN])

    a, b = random(M, K).astype(np.float16), random(K, N).astype(np.float16)
    return kernel, (a, b), a.astype(np.float32) @ b.astype(np.float32), 1e-2


def add(N=1 << 20, BN=4096):
    """2**20 elements in 256 blocks."""

    @T.prim_func
    def kernel(A: T.Tensor((N,), F32), B: T.Tensor((N,), F32), C: T.Tensor((N,), F32)):
        with T.Kernel(T.ceildiv(N, BN), threads=256) as bx:
            for i in T.Parallel(BN):
                C[bx * BN + i] = A[bx * BN + i] + B[bx * BN + i]

    a, b = random(N), random(N)
    return kernel, (a, b), a + b, 0


def softmax(M=1024, N=1000):
    """One row to a block, with two reductions and an exp."""

    @T.prim_func
    def kernel(A: T.Tensor((M, N), F32), B: T.Tensor((M, N), F32)):
        with T.Kernel(M, threads=128) as bx:
            row = T.alloc_fragment((1, N), F32)
            top = T.alloc_fragment((1,), F32)
            total = T.alloc_fragment((1,), F32)
            T.copy(A[bx, 0], row)
            T.reduce_max(row, top, dim=1)
            for i, j in T.Parallel(1, N):
                row[i, j] = T.exp(row[i, j] - top[i])
            T.reduce_sum(row, total, dim=1)
            for i, j in T.Parallel(1, N):
                B[bx, j] = row[i, j] / total[i]

    a = random(M, N)
    e = np.exp(a - a.max(1, keepdims=True))
    return kernel, (a,), e / e.sum(1, keepdims=True), 1e-5


def attention(B=4, S=512, D=64, BM=64, BN=64):
    """Full attention with a running softmax, tiles of 64 x 64."""
    scale = 1.44269504 / D**0.5

    @T.prim_func
    def kernel(
        Q: T.Tensor((B, S, D), F16),
        K: T.Tensor((B, S, D), F16),
        V: T.Tensor((B, S, D), F16),
        O: T.Tensor((B, S, D), F32),  # noqa: E741 - its usual name
    ):
        with T.Kernel(T.ceildiv(S, BM), B, threads=128) as (bx, by):
            Q_s = T.alloc_shared((BM, D), F16)
            K_s = T.alloc_shared((BN, D), F16)
            V_s = T.alloc_shared((BN, D), F16)
            P = T.alloc_fragment((BM, BN), F32)
            P_h = T.alloc_fragment((BM, BN), F16)
            acc = T.alloc_fragment((BM, D), F32)
            top = T.alloc_fragment((BM,), F32)
            before = T.alloc_fragment((BM,), F32)
            shrink = T.alloc_fragment((BM,), F32)
            part = T.alloc_fragment((BM,), F32)
            total = T.alloc_fragment((BM,), F32)
            T.copy(Q[by, bx * BM : (bx + 1) * BM, :], Q_s)
            T.clear(acc)
            T.clear(total)
            T.fill(top, -T.infinity(F32))
            for k in T.Pipelined(T.ceildiv(S, BN), num_stages=2):
                T.copy(K[by, k * BN : (k + 1) * BN, :], K_s)
                T.gemm(Q_s, K_s, P, transpose_B=True, clear_accum=True)
                T.copy(top, before)
                T.reduce_max(P, top, dim=1, clear=False)
                for i in T.Parallel(BM):
                    shrink[i] = T.exp2((before[i] - top[i]) * scale)
                for i, j in T.Parallel(BM, BN):
                    P[i, j] = T.exp2((P[i, j] - top[i]) * scale)
                T.reduce_sum(P, part, dim=1)
                for i in T.Parallel(BM):
                    total[i] = total[i] * shrink[i] + part[i]
                for i, j in T.Parallel(BM, D):
                    acc[i, j] *= shrink[i]
                T.copy(P, P_h)
                T.copy(V[by, k * BN : (k + 1) * BN, :], V_s)
                T.gemm(P_h, V_s, acc)
            for i, j in T.Parallel(BM, D):
                acc[i, j] /= total[i]
            T.copy(acc, O[by, bx * BM : (bx + 1) * BM, :])

    q, k, v = (random(B, S, D).astype(np.float16) for _ in range(3))
    s = q.astype(np.float32) @ k.astype(np.float32).swapaxes(1, 2) / D**0.5
    e = np.exp(s - s.max(-1, keepdims=True))
    return kernel, (q, k, v), (e / e.sum(-1, keepdims=True)) @ v.astype(np.float32), 1e-2


def threads(N=1 << 18, BN=256):
    """A tree reduction written for single threads, with a barrier after each step."""

    @T.prim_func
    def kernel(A: T.Tensor((N,), F32), C: T.Tensor((N // BN,), F32)):
        with T.Kernel(N // BN, threads=BN) as bx:
            s = T.alloc_shared((BN,), F32)
            tx = T.get_thread_binding()
            s[tx] = A[bx * BN + tx]
            T.sync_threads()
            width = T.alloc_var("int32", init=BN // 2)
            while width > 0:
                if tx < width:
                    s[tx] = s[tx] + s[tx + width]
                T.sync_threads()
                width = width // 2
            if tx == 0:
                C[bx] = s[0]

    a = random(N)
    return kernel, (a,), a.reshape(-1, BN).sum(1), 1e-4


# Seconds on two cores of a common server.
GOALS = {gemm: 0.8, add: 0.08, softmax: None, attention: None, threads: None}


def main(names):
    """Run the cases of these names, or all."""
    for case, goal in GOALS.items():
        if names and case.__name__ not in names:
            continue
        start = time.perf_counter()
        source, inputs, expected, tolerance = case()
        traced = time.perf_counter()
        kernel = tilelang.compile(source, out_idx=-1, target="emulate")
        ready = time.perf_counter()
        result = kernel(*inputs)
        np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)
        best = min(timed(kernel, inputs) for _ in range(5))
        limit = f"goal {goal:6.3f} s" if goal else " " * 13
        print(
            f"{case.__name__:10s} {best:8.4f} s   {limit}   trace {traced - start:.3f} s,"
            f" compile {ready - traced:.3f} s   {case.__doc__}"
        )


def timed(kernel, inputs):
    """Seconds of one call."""
    start = time.perf_counter()
    kernel(*inputs)
    return time.perf_counter() - start


if __name__ == "__main__":
    main(sys.argv[1:])
