"""A persistent product: as many blocks as the machine has cores, each takes tile after tile.

Two ways to deal the tiles out: `T.Persistent` is a loop over them, and a scheduler object keeps the
place of the worker between steps that the kernel spells out.
"""

import numpy as np

import tilelang
import tilelang.language as T


@T.macro
def compute_tile(A, B, C, row, column, buffers):
    """One tile of C = A @ B."""
    A_s, B_s, C_f = buffers
    (BM, BK), BN = A_s.shape, B_s.shape[1]
    T.clear(C_f)
    for k in T.Pipelined(T.ceildiv(A.shape[1], BK), num_stages=2):
        T.copy(A[row * BM, k * BK], A_s)
        T.copy(B[k * BK, column * BN], B_s)
        T.gemm(A_s, B_s, C_f)
    T.copy(C_f, C[row * BM, column * BN])


@T.macro
def buffers_of(BM, BN, BK):
    """What a worker keeps on chip."""
    A_s = T.alloc_shared((BM, BK), "float16")
    B_s = T.alloc_shared((BK, BN), "float16")
    return A_s, B_s, T.alloc_fragment((BM, BN), "float32")


@tilelang.jit(out_idx=-1)
def by_loop(M, N, K, workers=8, tiles=(64, 64, 32)):
    """A kernel for C (M, N) = A @ B; `T.Persistent` deals out the tiles."""
    BM, BN, _ = tiles

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(workers, threads=128) as worker:
            buffers = buffers_of(*tiles)
            domain = (T.ceildiv(M, BM), T.ceildiv(N, BN))
            for row, column in T.Persistent(domain, workers, worker, group_size=2):
                compute_tile(A, B, C, row, column, buffers)

    return kernel


@tilelang.jit(out_idx=-1)
def by_scheduler(M, N, K, workers=8, tiles=(64, 64, 32)):
    """The same; `T.PersistentTileScheduler` deals them out, in panels of two columns."""
    BM, BN, _ = tiles

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(workers, threads=128) as worker:
            buffers = buffers_of(*tiles)
            rows, columns = T.ceildiv(M, BM), T.ceildiv(N, BN)
            tile = T.PersistentTileScheduler(rows, columns, workers, swizzle_size=2)
            tile.init(worker)
            while tile.valid():
                compute_tile(A, B, C, tile.m_idx, tile.n_idx, buffers)
                tile.next_tile()

    return kernel


def main():
    """15 tiles by 4 workers."""
    M, N, K = 300, 190, 72
    random = np.random.default_rng(0)
    A, B = (random.integers(-4, 5, shape).astype(np.float16) for shape in ((M, K), (K, N)))
    for make in (by_loop, by_scheduler):
        C = make(M, N, K, workers=4)(A, B)
        np.testing.assert_array_equal(C, A.astype(np.float32) @ B.astype(np.float32))
    print(f"gemm_persistent: {M}x{N}x{K} by 4 workers, loop and scheduler, exact")


if __name__ == "__main__":
    main()
