"""A product with Hopper's asynchronous instructions: it multiplies a tile while the next one loads.

`T.wgmma_gemm` only begins a product. Until `T.wait_wgmma(n)` says that at most n are under way, its
operands must stay as they are, and the sums may not be touched.
"""

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=-1)
def gemm_wgmma(M, N, K, tiles=(64, 64, 32)):
    """A kernel for C (M, N) = A @ B in fp16 with fp32 sums; there are two places for tiles."""
    BM, BN, BK = tiles
    steps = T.ceildiv(K, BK)

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=128) as (bx, by):
            A_s = T.alloc_shared((2, BM, BK), "float16")
            B_s = T.alloc_shared((2, BK, BN), "float16")
            C_f = T.alloc_fragment((BM, BN), "float32")
            T.clear(C_f)
            for k in T.serial(steps):
                # Product k - 2 read this place, and is over: see the end of the last round.
                T.copy(A[by * BM : by * BM + BM, k * BK : k * BK + BK], A_s[k % 2, :, :])
                T.copy(B[k * BK : k * BK + BK, bx * BN : bx * BN + BN], B_s[k % 2, :, :])
                T.fence_proxy_async()  # ordinary stores come before what the hardware reads
                T.wgmma_gemm(A_s[k % 2, :, :], B_s[k % 2, :, :], C_f)
                T.wait_wgmma(1)  # product k - 1 is over; k goes on while k + 1 is loaded
            T.wait_wgmma(0)
            T.copy(C_f, C[by * BM, bx * BN])

    return kernel


def main():
    """Sizes that no tile divides, and K of no, one, and several steps."""
    M, N, depths = 100, 72, (0, 32, 200)
    random = np.random.default_rng(0)
    for K in depths:
        A, B = (random.integers(-4, 5, shape).astype(np.float16) for shape in ((M, K), (K, N)))
        C = gemm_wgmma(M, N, K)(A, B)
        np.testing.assert_array_equal(C, A.astype(np.float32) @ B.astype(np.float32))
    print(f"gemm_wgmma_async: {M}x{N} with K of {', '.join(map(str, depths))}, exact")


if __name__ == "__main__":
    main()
