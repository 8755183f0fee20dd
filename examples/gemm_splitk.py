"""Split-K: several blocks share one tile of C, each with a part of K, and add with atomics.

Where M and N are small and K is large, there are too few tiles to fill a machine. The order of the
additions is left open, so floats may differ in the last bits from run to run on a GPU.
"""

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=-1)
def gemm_splitk(M, N, K, splits=4, tiles=(64, 64, 32)):
    """A kernel for C (M, N) = A @ B in fp16 with fp32 sums, K dealt out to `splits` blocks."""
    BM, BN, BK = tiles
    steps = T.ceildiv(K, BK)  # all steps of a tile ...
    share = T.ceildiv(steps, splits)  # ... and those of one block

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        # The first launch clears C: the second one only adds to it.
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=128) as (bx, by):
            zeros = T.alloc_fragment((BM, BN), "float32")
            T.clear(zeros)
            T.copy(zeros, C[by * BM, bx * BN])

        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), splits, threads=128) as (bx, by, bz):
            A_s = T.alloc_shared((BM, BK), "float16")
            B_s = T.alloc_shared((BK, BN), "float16")
            C_f = T.alloc_fragment((BM, BN), "float32")
            T.clear(C_f)
            for step in T.Pipelined(share, num_stages=2):
                k = (bz * share + step) * BK  # past K, the tiles are filled with 0
                T.copy(A[by * BM, k], A_s)
                T.copy(B[k, bx * BN], B_s)
                T.gemm(A_s, B_s, C_f)
            T.atomic_add(C[by * BM, bx * BN], C_f)

    return kernel


def main():
    """A long and thin product, K in 5 parts."""
    M, N, K = 40, 72, 1000
    random = np.random.default_rng(0)
    A, B = (random.integers(-4, 5, shape).astype(np.float16) for shape in ((M, K), (K, N)))
    C = gemm_splitk(M, N, K, splits=5)(A, B)
    np.testing.assert_array_equal(C, A.astype(np.float32) @ B.astype(np.float32))
    print(f"gemm_splitk: {M}x{N}x{K} in 5 parts of K, exact")


if __name__ == "__main__":
    main()
