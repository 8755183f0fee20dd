"""A 2:4 sparse product: of every four neighbours along K, A keeps two, and says which.

The hardware skips what is not kept. A is given as its kept elements (M, K / 2), and metadata: two
bits for each of them, its place among the four, in order from the lowest bits of each word on.
"""

import numpy as np

import tilelang
import tilelang.language as T

PER_WORD = 8  # kept elements that a 16-bit word of metadata describes


@tilelang.jit(out_idx=-1)
def gemm_sparse(M, N, K, tiles=(64, 64, 64)):
    """A kernel for C (M, N) = A @ B, with A as `compress` gives it and B (K, N) fp16; 16 | K."""
    BM, BN, BK = tiles

    @T.prim_func
    def kernel(
        Kept: T.Tensor((M, K // 2), "float16"),
        Places: T.Tensor((M, K // 2 // PER_WORD), "int16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=128) as (bx, by):
            A_s = T.alloc_shared((BM, BK // 2), "float16")
            E_s = T.alloc_shared((BM, BK // 2 // PER_WORD), "int16")
            B_s = T.alloc_shared((BK, BN), "float16")
            C_f = T.alloc_fragment((BM, BN), "float32")
            T.clear(C_f)
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=2):
                T.copy(Kept[by * BM, k * (BK // 2)], A_s)
                T.copy(Places[by * BM, k * (BK // 2 // PER_WORD)], E_s)
                T.copy(B[k * BK, bx * BN], B_s)
                T.gemm_sp(A_s, E_s, B_s, C_f)
            T.copy(C_f, C[by * BM, bx * BN])

    return kernel


def prune(dense):
    """The matrix with the two largest of every four neighbours of a row, and 0 for the others."""
    four = dense.reshape(dense.shape[0], -1, 4)
    rank = np.argsort(np.argsort(-abs(four), axis=-1, kind="stable"), axis=-1)
    return np.where(rank < 2, four, 0).reshape(dense.shape)


def compress(pruned):
    """The kept elements and the metadata of a matrix that `prune` gives; ValueError for others."""
    four = pruned.reshape(pruned.shape[0], -1, 4)
    if ((four != 0).sum(-1) > 2).any():
        raise ValueError("a group of four has more than two elements that are not 0")
    # Elements that are not 0 come first, each kind in its order; then the two kept ones in order.
    places = np.sort(np.argsort(four == 0, axis=-1, kind="stable")[..., :2], axis=-1)
    kept = np.take_along_axis(four, places, -1).reshape(pruned.shape[0], -1)
    codes = places.reshape(pruned.shape[0], -1, PER_WORD).astype(np.uint16)
    words = np.bitwise_or.reduce(codes << (2 * np.arange(PER_WORD, dtype=np.uint16)), axis=-1)
    return kept, words.view(np.int16)


def main():
    """A pruned matrix at odd sizes."""
    M, N, K = 100, 72, 80
    random = np.random.default_rng(0)
    A = prune(random.integers(-4, 5, (M, K)).astype(np.float16))
    B = random.integers(-4, 5, (K, N)).astype(np.float16)
    C = gemm_sparse(M, N, K)(*compress(A), B)
    np.testing.assert_array_equal(C, A.astype(np.float32) @ B.astype(np.float32))
    print(f"gemm_sparse: {M}x{N}x{K}, half of A skipped, exact")


if __name__ == "__main__":
    main()
