"""A block-scaled product: narrow floats, with a scale for each row and block of K, in hardware.

Two formats: MXFP8 is e4m3 with a power of two (e8m0) for each 32 elements, NVFP4 is e2m1 with an
e4m3 scale for each 16. The scales of B stand by columns: SFB is (N, blocks), like SFA (M, blocks).
"""

import ml_dtypes
import numpy as np

import tilelang
import tilelang.language as T

# Element type, type of the scales, elements per scale.
FORMATS = {
    "mxfp8": ("float8_e4m3fn", "float8_e8m0fnu", 32),
    "nvfp4": ("float4_e2m1fn", "float8_e4m3fn", 16),
}


@tilelang.jit(out_idx=-1)
def gemm_blockscaled(M, N, K, form="mxfp8", tiles=(64, 64, 64)):
    """A kernel for C (M, N) = (A * SFA) @ (B * SFB).T with A (M, K) and B (N, K)."""
    dtype, scale, grain = FORMATS[form]
    BM, BN, BK = tiles
    blocks = T.ceildiv(K, grain)

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        SFA: T.Tensor((M, blocks), scale),
        SFB: T.Tensor((N, blocks), scale),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=128) as (bx, by):
            A_s = T.alloc_shared((BM, BK), dtype)
            B_s = T.alloc_shared((BN, BK), dtype)
            SFA_s = T.alloc_shared((BM, blocks), scale)  # all scales of the tile's rows
            SFB_s = T.alloc_shared((BN, blocks), scale)
            C_f = T.alloc_fragment((BM, BN), "float32")
            T.copy(SFA[by * BM, 0], SFA_s)
            T.copy(SFB[bx * BN, 0], SFB_s)
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=2):
                T.copy(A[by * BM, k * BK], A_s)
                T.copy(B[bx * BN, k * BK], B_s)
                T.gemm_blockscaled(
                    A_s,
                    B_s,
                    C_f,
                    SFA_s,
                    SFB_s,
                    transpose_B=True,
                    clear_accum=k == 0,
                    k_start=k * BK,  # where the tile stands among the scales
                    sf_a_granularity_k=grain,
                    sf_b_granularity_k=grain,
                )
            T.copy(C_f, C[by * BM, bx * BN])

    return kernel


def operand(rows, K, form, seed=0):
    """A random operand: elements, scales, and what they mean."""
    dtype, scale, grain = FORMATS[form]
    random = np.random.default_rng(seed)
    elements = random.integers(-4, 5, (rows, K)).astype(getattr(ml_dtypes, dtype))
    scales = 2.0 ** random.integers(-3, 4, (rows, -(-K // grain)))
    scales = scales.astype(getattr(ml_dtypes, scale))
    meaning = elements.astype(np.float64) * scales.astype(np.float64)[:, np.arange(K) // grain]
    return elements, scales, meaning


def main():
    """Both formats, at odd sizes."""
    M, N, K = 100, 72, 160
    for form in FORMATS:
        (A, SFA, left), (B, SFB, right) = operand(M, K, form, 0), operand(N, K, form, 1)
        C = gemm_blockscaled(M, N, K, form)(A, B, SFA, SFB)
        np.testing.assert_array_equal(C, left @ right.T)
    print(f"gemm_blockscaled: {', '.join(FORMATS)} at {M}x{N}x{K}, exact")


if __name__ == "__main__":
    main()
