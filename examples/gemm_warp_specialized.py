"""A warp-specialised product: one warp group only copies, another one only multiplies.

They hand tiles over in a ring of `stages` places, each with two barriers: `full` says that a tile
has arrived, `empty` that it has been used. A barrier goes from phase to phase; a wait names the
parity of the phase that must be over: 0 for the first one, then 1, 0, 1, ...
"""

import numpy as np

import tilelang
import tilelang.language as T

GROUP = 128  # the threads of a warp group


@tilelang.jit(out_idx=-1)
def gemm_warp_specialized(M, N, K, stages=2, tiles=(64, 64, 32)):
    """A kernel for C (M, N) = A @ B in fp16 with fp32 sums."""
    BM, BN, BK = tiles
    steps = T.ceildiv(K, BK)

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(T.ceildiv(N, BN), T.ceildiv(M, BM), threads=2 * GROUP) as (bx, by):
            A_s = T.alloc_shared((stages, BM, BK), "float16")
            B_s = T.alloc_shared((stages, BK, BN), "float16")
            C_f = T.alloc_fragment((BM, BN), "float32")
            # Every thread of the group that says something arrives once.
            full = T.alloc_barrier([GROUP] * stages)
            empty = T.alloc_barrier([GROUP] * stages)

            with T.ws(0):  # the producer
                rows, columns = slice(by * BM, by * BM + BM), slice(bx * BN, bx * BN + BN)
                for k in T.serial(steps):
                    place, turn = k % stages, k // stages
                    depth = slice(k * BK, k * BK + BK)
                    # In turn 0 nothing was there before: the phase "before the first" is over.
                    T.barrier_wait(empty[place], (turn + 1) % 2)
                    T.tma_copy(A[rows, depth], A_s[place, :, :], barrier=full[place])
                    T.tma_copy(B[depth, columns], B_s[place, :, :], barrier=full[place])
                    T.barrier_arrive(full[place])  # over when the bytes have arrived, too

            with T.ws(1):  # the consumer
                T.clear(C_f)
                for k in T.serial(steps):
                    place, turn = k % stages, k // stages
                    T.barrier_wait(full[place], turn % 2)
                    T.gemm(A_s[place, :, :], B_s[place, :, :], C_f)
                    T.barrier_arrive(empty[place])
                T.copy(C_f, C[by * BM, bx * BN])

    return kernel


def main():
    """1 to 4 places in the ring, at a size that no tile divides."""
    M, N, K = 100, 72, 200
    random = np.random.default_rng(0)
    A, B = (random.integers(-4, 5, shape).astype(np.float16) for shape in ((M, K), (K, N)))
    for stages in (1, 2, 3, 4):
        C = gemm_warp_specialized(M, N, K, stages)(A, B)
        np.testing.assert_array_equal(C, A.astype(np.float32) @ B.astype(np.float32))
    print(f"gemm_warp_specialized: {M}x{N}x{K} in rings of 1 to 4 tiles, exact")


if __name__ == "__main__":
    main()
