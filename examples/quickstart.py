"""A matrix product with a fused epilogue, C = relu(A @ B + bias), checked against NumPy.

Run it with no arguments, or with sizes of tiles: `python examples/quickstart.py 24 48 100`. Any
size gives the right numbers; tiles that hang over the edge of a matrix are cut off there.
"""

import sys
import time

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=-1)  # the last parameter, C, is allocated by the call and returned
def linear_relu(M, N, K, BM=64, BN=64, BK=32):
    """A kernel for these sizes: relu(A @ B + bias) with A (M, K), B (K, N), bias (N,)."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        bias: T.Tensor((N,), "float32"),
        C: T.Tensor((M, N), "float32"),
    ):
        # One block computes one tile of C, BM x BN elements.
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=128) as (bx, by):
            A_s = T.alloc_shared((BM, BK), "float16")  # shared memory: all threads see it
            B_s = T.alloc_shared((BK, BN), "float16")
            bias_s = T.alloc_shared((BN,), "float32")
            C_f = T.alloc_fragment((BM, BN), "float32")  # spread over the threads' registers
            T.clear(C_f)
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=3):
                T.copy(A[by * BM, k * BK], A_s)  # outside of A the tile is filled with 0
                T.copy(B[k * BK, bx * BN], B_s)
                T.gemm(A_s, B_s, C_f)
            T.copy(bias[bx * BN], bias_s)
            for i, j in T.Parallel(BM, BN):
                C_f[i, j] = T.max(C_f[i, j] + bias_s[j], 0.0)
            T.copy(C_f, C[by * BM, bx * BN])  # outside of C nothing is written

    return kernel


def main(tiles=(64, 64, 32)):
    """Compile, run, compare with NumPy and say what was done; `tiles` are BM, BN, BK."""
    M, N, K = 256, 384, 160
    random = np.random.default_rng(0)
    A = random.standard_normal((M, K)).astype(np.float16)
    B = random.standard_normal((K, N)).astype(np.float16)
    bias = random.standard_normal(N).astype(np.float32)

    start = time.perf_counter()
    kernel = linear_relu(M, N, K, *tiles)
    compiled = time.perf_counter()
    C = kernel(A, B, bias)
    ran = time.perf_counter()

    expected = np.maximum(A.astype(np.float32) @ B.astype(np.float32) + bias, 0)
    np.testing.assert_allclose(C, expected, rtol=1e-3, atol=1e-3)

    blocks = -(-M // tiles[0]) * -(-N // tiles[1])
    times = [round(seconds * 1e3) for seconds in (compiled - start, ran - compiled)]
    error = abs(C - expected).max()
    print(f"C = relu(A @ B + bias), A {M}x{K}, B {K}x{N}, fp16 with fp32 sums")
    print(f"  target    {kernel.target}")
    print(f"  tiles     {tiles[0]} x {tiles[1]}, {tiles[2]} deep: {blocks} blocks")
    print(f"  time      compiled in {times[0]} ms, ran in {times[1]} ms")
    print(f"  checked   {C.size:,} numbers against NumPy, largest error {error:.1g}")


if __name__ == "__main__":
    main(tuple(int(size) for size in sys.argv[1:4]) or (64, 64, 32))
