"""A product with MXFP4 weights: 4-bit floats, and a power of two for each group of 32 along K.

A 4-bit float (e2m1) has a sign, two bits of exponent and one of mantissa. Two ways to decode it: by
the type, which `T.copy` converts like any other, or by its bits, as one does where the hardware has
no such conversion. Scales are bytes: the exponent plus 127 (e8m0).
"""

import ml_dtypes
import numpy as np

import tilelang
import tilelang.language as T

GROUP = 32


@T.macro
def half_from_bits(nibble):
    """The e2m1 float of these 4 bits as fp16.

    Its 3 low bits, moved to the top of fp16's exponent and mantissa, are the same float but for the
    bias of the exponent, 15 instead of 1: a factor of 2**14. That holds for subnormal floats too.
    """
    bits = (nibble & 8) << 12 | (nibble & 7) << 9
    return T.reinterpret(T.cast(bits, "uint16"), "float16") * T.float16(16384)


@tilelang.jit(out_idx=-1)
def by_bits(M, N, K, tiles=(32, 64, 64)):
    """A kernel for C (M, N) = A @ W.T, A (M, K) in bf16, W (N, K) packed in bytes; K is even."""
    BM, BN, BK = tiles
    groups = T.ceildiv(K, GROUP)

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "bfloat16"),
        Packed: T.Tensor((N, K // 2), "uint8"),
        Exponent: T.Tensor((N, groups), "uint8"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=128) as (bx, by):
            A_s = T.alloc_shared((BM, BK), "bfloat16")
            P_s = T.alloc_shared((BN, BK // 2), "uint8")
            W_s = T.alloc_shared((BN, BK), "bfloat16")
            C_f = T.alloc_fragment((BM, BN), "float32")
            T.clear(C_f)
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=2):
                T.copy(A[by * BM, k * BK], A_s)
                T.copy(Packed[bx * BN, k * (BK // 2)], P_s)
                for i, j in T.Parallel(BN, BK):
                    row, column = bx * BN + i, (k * BK + j) // GROUP
                    if row < N and column < groups:
                        value = half_from_bits(T.cast(P_s[i, j // 2], "int32") >> (j % 2 * 4))
                        scale = T.exp2(T.cast(Exponent[row, column], "float32") - 127.0)
                        W_s[i, j] = T.cast(value, "float32") * scale  # exact in bf16
                    else:
                        W_s[i, j] = 0.0
                T.gemm(A_s, W_s, C_f, transpose_B=True)
            T.copy(C_f, C[by * BM, bx * BN])

    return kernel


@tilelang.jit(out_idx=-1)
def by_type(M, N, K, tiles=(32, 64, 64)):
    """The same with tensors of the types themselves: e2m1 weights and e8m0 scales."""
    BM, BN, BK = tiles
    groups = T.ceildiv(K, GROUP)

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "bfloat16"),
        W: T.Tensor((N, K), "float4_e2m1fn"),
        Scale: T.Tensor((N, groups), "float8_e8m0fnu"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=128) as (bx, by):
            A_s = T.alloc_shared((BM, BK), "bfloat16")
            Q_s = T.alloc_shared((BN, BK), "float4_e2m1fn")
            W_s = T.alloc_shared((BN, BK), "bfloat16")
            C_f = T.alloc_fragment((BM, BN), "float32")
            T.clear(C_f)
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=2):
                T.copy(A[by * BM, k * BK], A_s)
                T.copy(W[bx * BN, k * BK], Q_s)
                T.copy(Q_s, W_s)  # converts
                for i, j in T.Parallel(BN, BK):
                    if bx * BN + i < N and k * BK + j < K:
                        scale = Scale[bx * BN + i, (k * BK + j) // GROUP]
                        W_s[i, j] *= T.cast(scale, "bfloat16")
                T.gemm(A_s, W_s, C_f, transpose_B=True)
            T.copy(C_f, C[by * BM, bx * BN])

    return kernel


def weights(N, K, seed=0):
    """Random weights: packed, the bytes of their scales, and what they mean."""
    random = np.random.default_rng(seed)
    nibbles = random.integers(0, 16, (N, K)).astype(np.uint8)
    packed = (nibbles[:, ::2] | nibbles[:, 1::2] << 4).astype(np.uint8)
    exponent = random.integers(125, 130, (N, -(-K // GROUP))).astype(np.uint8)
    values = nibbles.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    scale = 2.0 ** (exponent.astype(np.float32) - 127)
    return packed, exponent, values * scale[:, np.arange(K) // GROUP]


def main():
    """Both ways, at odd sizes."""
    M, N, K = 40, 100, 72
    A = np.random.default_rng(1).integers(-4, 5, (M, K)).astype(ml_dtypes.bfloat16)
    packed, exponent, W = weights(N, K)
    expected = A.astype(np.float32) @ W.T
    scale = exponent.view(ml_dtypes.float8_e8m0fnu)
    # A tensor of a type smaller than a byte may be given as the bytes that hold it.
    for C in (by_bits(M, N, K)(A, packed, exponent), by_type(M, N, K)(A, packed, scale)):
        np.testing.assert_array_equal(C, expected)
    print(f"gemm_dequant_fp4: {M}x{N}x{K}, decoded by bits and by type, exact")


if __name__ == "__main__":
    main()
