"""A grouped product: one launch for many products that differ in M, as experts of a model do.

The rows of all groups lie one after another in A, and a table says where each group begins. Sizes
that the compiler needs are read off the arguments; the number of rows may vary between calls.
"""

import itertools

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit
def gemm_grouped(A, B, offsets, most: int, tiles=(64, 64, 32)):
    """C (rows, N), where the rows of group g are those of A times B[g] (K, N).

    Group g is the rows `offsets[g]` to `offsets[g + 1]` - 1, at most `most` of them.
    """
    rows = T.dynamic("rows")  # one kernel for any number of rows
    G, G1, K, N = T.const("G, G1, K, N")  # and one for each of these sizes
    A: T.Tensor[[rows, K], T.float16]
    B: T.Tensor[[G, K, N], T.float16]
    offsets: T.Tensor[[G1], T.int32]
    C = T.empty((rows, N), T.float32)
    BM, BN, BK = tiles

    with T.Kernel(T.ceildiv(N, BN), T.ceildiv(most, BM), G, threads=128) as (bx, by, g):
        A_s = T.alloc_shared((BM, BK), T.float16)
        B_s = T.alloc_shared((BK, BN), T.float16)
        C_f = T.alloc_fragment((BM, BN), T.float32)
        first = offsets[g] + by * BM
        end = offsets[g + 1]
        if first < end:  # else the group has no such tile
            T.clear(C_f)
            for k in T.Pipelined(T.ceildiv(K, BK), num_stages=2):
                T.copy(A[first, k * BK], A_s)  # past the group come rows of the next one ...
                T.copy(B[g, k * BK : k * BK + BK, bx * BN : bx * BN + BN], B_s)
                T.gemm(A_s, B_s, C_f)
            for i, j in T.Parallel(BM, BN):
                if first + i < end and bx * BN + j < N:  # ... which are not stored
                    C[first + i, bx * BN + j] = C_f[i, j]
    return C


def main():
    """Five groups, one of them empty and one of a single row."""
    sizes, N, K = [70, 0, 1, 40, 24], 72, 100
    random = np.random.default_rng(0)
    offsets = np.cumsum([0, *sizes], dtype=np.int32)
    A = random.integers(-4, 5, (offsets[-1], K)).astype(np.float16)
    B = random.integers(-4, 5, (len(sizes), K, N)).astype(np.float16)
    C = gemm_grouped(A, B, offsets, most=max(sizes))
    for g, (first, end) in enumerate(itertools.pairwise(offsets)):
        expected = A[first:end].astype(np.float32) @ B[g].astype(np.float32)
        np.testing.assert_array_equal(C[first:end], expected)
    print(f"gemm_grouped: groups of {sizes} rows, exact")


if __name__ == "__main__":
    main()
