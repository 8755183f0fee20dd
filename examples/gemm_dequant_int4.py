"""A product with 4-bit weights: unpacked in the kernel, with a scale and a zero point per group.

Two weights share a byte, the first one in its low half. A group is a run of neighbours along K that
share a scale and a zero point: the weight is (q - zero) * scale.
"""

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit(out_idx=-1)
def gemm_int4(M, N, K, group=32, tiles=(32, 64, 64)):
    """A kernel for C (M, N) = A @ W.T, A (M, K) in fp16, W (N, K) packed in bytes; K is even."""
    BM, BN, BK = tiles
    groups = T.ceildiv(K, group)

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        Packed: T.Tensor((N, K // 2), "uint8"),
        Scale: T.Tensor((N, groups), "float16"),
        Zero: T.Tensor((N, groups), "uint8"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=128) as (bx, by):
            A_s = T.alloc_shared((BM, BK), "float16")
            P_s = T.alloc_shared((BN, BK // 2), "uint8")
            W_s = T.alloc_shared((BN, BK), "float16")
            C_f = T.alloc_fragment((BM, BN), "float32")
            T.clear(C_f)
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=2):
                T.copy(A[by * BM, k * BK], A_s)
                T.copy(Packed[bx * BN, k * (BK // 2)], P_s)
                for i, j in T.Parallel(BN, BK):
                    row, column = bx * BN + i, (k * BK + j) // group
                    q = P_s[i, j // 2] >> (j % 2 * 4) & 15
                    # Such small integers are exact in fp16: only the product is rounded.
                    if row < N and column < groups:
                        centred = T.cast(q, "int16") - T.cast(Zero[row, column], "int16")
                        W_s[i, j] = T.cast(centred, "float16") * Scale[row, column]
                    else:
                        W_s[i, j] = 0
                T.gemm(A_s, W_s, C_f, transpose_B=True)
            T.copy(C_f, C[by * BM, bx * BN])

    return kernel


def pack(q):
    """Two neighbours of a row in a byte, the first one in the low half."""
    return (q[:, ::2] | q[:, 1::2] << 4).astype(np.uint8)


def weights(N, K, group, seed=0):
    """Random weights: the numbers 0 to 15, their scales and zero points, and what they mean."""
    random = np.random.default_rng(seed)
    q = random.integers(0, 16, (N, K)).astype(np.uint8)
    groups = -(-K // group)
    scale = (random.integers(1, 9, (N, groups)) / 8).astype(np.float16)
    zero = random.integers(0, 16, (N, groups)).astype(np.uint8)
    of = np.arange(K) // group
    meaning = (q.astype(np.float32) - zero[:, of]) * scale[:, of]
    return q, scale, zero, meaning


def main():
    """A group that no step of the kernel divides, at odd sizes."""
    M, N, K, group = 40, 100, 72, 24
    A = np.random.default_rng(1).integers(-4, 5, (M, K)).astype(np.float16)
    q, scale, zero, W = weights(N, K, group)
    C = gemm_int4(M, N, K, group)(A, pack(q), scale, zero)
    np.testing.assert_array_equal(C, A.astype(np.float32) @ W.T)
    print(f"gemm_dequant_int4: {M}x{N}x{K}, a scale and zero point per {group} weights, exact")


if __name__ == "__main__":
    main()
