"""Stream-K: the steps of all tiles stand in one line, and each worker takes an equal stretch of it.

A stretch may end in the middle of a tile, so a tile can be the work of several workers. Two ways to
put it together again: everybody adds to C with atomics, or the worker that began the tile waits for
the partial sums of the others, which they leave in a workspace and announce with a flag.
"""

import numpy as np

import tilelang
import tilelang.language as T


@T.macro
def accumulate(A, B, C_f, tile, first, last):
    """C_f = the sum of the steps `first` to `last` - 1 of one tile; `tile` is its (row, column)."""
    BM, BN = C_f.shape
    BK = 32
    A_s = T.alloc_shared((BM, BK), "float16")
    B_s = T.alloc_shared((BK, BN), "float16")
    T.clear(C_f)
    for k in T.Pipelined(first, last, num_stages=2):
        T.copy(A[tile[0] * BM, k * BK], A_s)
        T.copy(B[k * BK, tile[1] * BN], B_s)
        T.gemm(A_s, B_s, C_f)


def counts(M, N, K, BM, BN):
    """The steps of a tile, the columns of tiles, and the steps of all tiles."""
    steps = max(1, T.ceildiv(K, 32))  # without any K, one step gives zeros
    columns = T.ceildiv(N, BN)
    return steps, columns, T.ceildiv(M, BM) * columns * steps


@tilelang.jit
def streamk_atomic(M, N, K, workers, BM=64, BN=64):
    """A kernel that adds A @ B to C (M, N), which the caller has cleared."""
    steps, columns, total = counts(M, N, K, BM, BN)

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(workers, threads=128) as w:
            C_f = T.alloc_fragment((BM, BN), "float32")
            at = T.alloc_var("int32", init=w * total // workers)  # the next step of this worker
            end = (w + 1) * total // workers
            while at < end:
                tile = at // steps
                stop = T.min((tile + 1) * steps, end)  # the tile's end, or the worker's
                row, column = tile // columns, tile % columns
                accumulate(A, B, C_f, (row, column), at - tile * steps, stop - tile * steps)
                T.atomic_add(C[row * BM, column * BN], C_f)
                at = stop

    return kernel


@tilelang.jit(out_idx=-1)
def streamk_workspace(M, N, K, workers, BM=64, BN=64):
    """A kernel for C (M, N) = A @ B. `Partial` takes a tile per worker, `Ready` is cleared before.

    A worker waits only for later ones, and leaves its own partial sum before it waits: on a GPU,
    all workers must fit on the machine at once, or be started in order.
    """
    steps, columns, total = counts(M, N, K, BM, BN)
    if workers > total:
        raise ValueError(f"{workers} workers for {total} steps: one would never announce anything")

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        Partial: T.Tensor((workers, BM, BN), "float32"),
        Ready: T.Tensor((workers,), "int32"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(workers, threads=128) as w:
            C_f = T.alloc_fragment((BM, BN), "float32")
            P_f = T.alloc_fragment((BM, BN), "float32")
            at = T.alloc_var("int32", init=w * total // workers)
            other = T.alloc_var("int32")
            end = (w + 1) * total // workers
            tx = T.get_thread_binding()
            while at < end:
                tile = at // steps
                stop = T.min((tile + 1) * steps, end)
                row, column = tile // columns, tile % columns
                accumulate(A, B, C_f, (row, column), at - tile * steps, stop - tile * steps)
                if at > tile * steps:  # an earlier worker began this tile
                    T.copy(C_f, Partial[w, :, :])
                    T.sync_threads()  # all of the tile is written ...
                    if tx == 0:
                        T.atomic_store(Ready[w], 1, "release")  # ... before it is announced
                else:
                    other = w + 1
                    while other * total // workers < (tile + 1) * steps:
                        while T.atomic_load(Ready[other], "acquire") == 0:
                            pass
                        T.copy(Partial[other, :, :], P_f)
                        for i, j in T.Parallel(BM, BN):
                            C_f[i, j] += P_f[i, j]
                        other += 1
                    T.copy(C_f, C[row * BM, column * BN])
                at = stop

    return kernel


def product(A, B, workers, fixup, tile=(64, 64)):
    """A @ B by stream-K, put together by "atomics" or by a "workspace"."""
    (M, K), N = A.shape, B.shape[1]
    if fixup == "atomics":
        C = np.zeros((M, N), np.float32)
        streamk_atomic(M, N, K, workers, *tile)(A, B, C)
        return C
    workers = min(workers, counts(M, N, K, *tile)[2])
    partial = np.empty((workers, *tile), np.float32)
    ready = np.zeros(workers, np.int32)
    return streamk_workspace(M, N, K, workers, *tile)(A, B, partial, ready)


def main():
    """6 tiles of 7 steps by 5 workers: no stretch ends where a tile does."""
    M, N, K, workers = 100, 150, 200, 5
    random = np.random.default_rng(0)
    A, B = (random.integers(-4, 5, shape).astype(np.float16) for shape in ((M, K), (K, N)))
    for fixup in ("atomics", "workspace"):
        C = product(A, B, workers, fixup)
        np.testing.assert_array_equal(C, A.astype(np.float32) @ B.astype(np.float32))
    print(f"gemm_streamk: {M}x{N}x{K} by {workers} workers, atomics and workspace, exact")


if __name__ == "__main__":
    main()
