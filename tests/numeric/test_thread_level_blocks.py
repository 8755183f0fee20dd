"""Kernels that wait: clusters, flags between blocks, the threads of a block.

Each is compared with NumPy, or bit for bit with the same computation without waits.
"""

import numpy as np
import pytest

import tilelang.language as T
from hang_guard import hang_guard  # noqa: F401 - a fixture
from thread_level_run import run

pytestmark = pytest.mark.usefixtures("hang_guard")


# -- clusters --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [128, 127, 1])
@pytest.mark.parametrize("barrier", [True, False])
def test_a_block_writes_into_the_next_ones_memory(n, barrier):
    """A ring of four blocks; by an mbarrier of the receiver, or by the barrier of the cluster."""

    @T.prim_func
    def main(A: T.Tensor((8, n), "float32"), B: T.Tensor((8, n), "float32")):
        with T.ClusterKernel(8, threads=128, cluster_dims=4) as bx:
            src = T.alloc_shared((n,), "float32")
            dst = T.alloc_shared((n,), "float32")
            bar = T.alloc_cluster_barrier([1])
            rank = T.block_rank_in_cluster()
            T.copy(A[bx, :], src)
            T.cluster_sync()
            if barrier:
                T.copy_cluster(src, dst, dst_block=(rank + 1) % 4, remote_barrier=bar[0])
                T.mbarrier_wait_parity(bar[0], 0)
            else:
                T.copy_cluster(src, dst, dst_block=(rank + 1) % 4)
                T.cluster_sync()
            T.copy(dst, B[bx, :])

    a = np.random.default_rng(0).standard_normal((8, n)).astype(np.float32)
    b = np.zeros_like(a)
    run(main, a, b)
    want = np.roll(a.reshape(2, 4, n), 1, axis=1).reshape(8, n)
    np.testing.assert_array_equal(b, want)


@pytest.mark.parametrize("mask", [0b0011, 0b1010, 0b1111, 0b0100])
def test_a_load_that_several_blocks_receive(mask):
    """The first block of the mask issues it for the others; those outside load for themselves."""

    @T.prim_func
    def main(A: T.Tensor((8, 40), "float32"), B: T.Tensor((2, 8, 40), "float32")):
        with T.ClusterKernel(8, threads=128, cluster_dims=4) as bx:
            s = T.alloc_shared((40,), "float32")
            t = T.alloc_shared((2, 40), "float32")
            bar = T.alloc_barrier(128)
            T.copy_cluster(A[bx, :], s, cluster_mask=mask)
            T.copy(s, B[0, bx, :])
            T.tma_copy(A[bx, :], t[1, :], barrier=bar, cluster_mask=mask)
            T.mbarrier_arrive(bar)
            T.mbarrier_wait_parity(bar, 0)
            T.copy(t[1, :], B[1, bx, :])

    a = np.random.default_rng(0).standard_normal((8, 40)).astype(np.float32)
    b = np.zeros((2, 8, 40), np.float32)
    run(main, a, b)
    first = (mask & -mask).bit_length() - 1
    source = [c * 4 + (first if mask >> r & 1 else r) for c in range(2) for r in range(4)]
    np.testing.assert_array_equal(b[0], a[source])
    np.testing.assert_array_equal(b[1], a[source])


def test_arrivals_at_another_blocks_barrier():
    @T.prim_func
    def main(A: T.Tensor((4,), "int32"), B: T.Tensor((4,), "int32")):
        with T.ClusterKernel(4, threads=64, cluster_dims=4) as bx:
            bar = T.alloc_cluster_barrier([64 * 4])
            tx = T.get_thread_binding()
            if tx == 0:
                A[bx] = bx + 1
            T.cluster_sync()
            T.mbarrier_arrive(bar[0], 0)
            if T.block_rank_in_cluster() == 0:
                T.mbarrier_wait_parity(bar[0], 0)
                if tx < 4:
                    B[tx] = A[3 - tx]
            T.cluster_arrive()
            T.cluster_wait()

    a, b = np.zeros(4, np.int32), np.zeros(4, np.int32)
    run(main, a, b)
    np.testing.assert_array_equal(b, [4, 3, 2, 1])


@pytest.mark.parametrize("stages", [1, 2])
def test_two_blocks_multiply_as_a_pair(stages):
    """Each has half of the rows of A and of the columns of B; the first issues for both. Loads and
    products are by single warps, which conditions on the thread index choose.
    """
    m, n, k, bm, bn, bk = 256, 64, 96, 128, 64, 32
    trips = k // bk
    dtype = "bfloat16"

    @T.prim_func
    def main(
        A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), "float32")
    ):
        with T.ClusterKernel(2, threads=256, cluster_dims=2) as bx:
            As = T.alloc_shared((stages, bm, bk), dtype)
            Bs = T.alloc_shared((stages, bk, bn // 2), dtype)
            acc = T.alloc_tmem((bm, bn), "float32")
            Cf = T.alloc_fragment((bm, bn), "float32")
            loaded = T.alloc_cluster_barrier([32 * 2] * stages)
            consumed = T.alloc_cluster_barrier([1] * stages)
            full = T.alloc_cluster_barrier([1])
            tx = T.get_thread_binding()
            cta = T.block_rank_in_cluster()
            if tx < 32:
                for ko in T.serial(trips):
                    s = ko % stages
                    T.mbarrier_wait_parity(consumed[s], ko // stages % 2 ^ 1)
                    T.tma_copy(A[bx * bm, ko * bk], As[s, :, :], barrier=loaded[s])
                    T.tma_copy(B[ko * bk, cta * (bn // 2)], Bs[s, :, :], barrier=loaded[s])
                    T.mbarrier_arrive(loaded[s], 0)
            elif tx < 64 and cta == 0:
                for ko in T.serial(trips):
                    s = ko % stages
                    T.mbarrier_wait_parity(loaded[s], ko // stages % 2)
                    T.tcgen05_gemm(
                        As[s, :, :],
                        Bs[s, :, :],
                        acc,
                        mbar=consumed[s],
                        clear_accum=ko == 0,
                        use_2cta=True,
                    )
                T.tcgen05_mma_arrive(full, arrive_2cta=True)
            with T.ws(1):
                T.mbarrier_wait_parity(full, 0)
                T.copy(acc, Cf)
                T.copy(Cf, C[bx * bm, 0])

    rng = np.random.default_rng(0)
    a = rng.uniform(-1, 1, (m, k)).astype(T.dtype(dtype).numpy)
    b = rng.uniform(-1, 1, (k, n)).astype(T.dtype(dtype).numpy)
    c = np.zeros((m, n), np.float32)
    run(main, a, b, c, chip="sm_100a")
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), atol=1e-4)


# -- all blocks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [1, 2, 37, 150])
def test_all_blocks_wait_for_each_other(blocks):
    """Two rounds: each block reads what its neighbour wrote before the barrier."""

    @T.prim_func
    def main(A: T.Tensor((blocks,), "int32"), B: T.Tensor((blocks,), "int32")):
        with T.Kernel(blocks, threads=64) as bx:
            s = T.alloc_shared((64,), "int32")
            tx = T.get_thread_binding()
            for k in T.serial(2):
                A[bx] = B[bx] + bx * (k + 1)
                T.sync_grid()
                s[tx] = A[(bx + 1) % blocks]
                T.sync_grid()
                B[bx] = s[63 - 63]

    a, b = np.zeros(blocks, np.int32), np.zeros(blocks, np.int32)
    run(main, a, b)
    want = np.zeros(blocks, np.int32)
    for k in range(2):
        want = np.roll(want + np.arange(blocks) * (k + 1), -1)
    np.testing.assert_array_equal(b, want)


@pytest.mark.parametrize("polls", ["condition", "body"])
def test_a_chain_of_blocks_by_flags(polls):
    """Block k waits for block k + 1, so that the first to run is the last to go on."""
    blocks = 9

    @T.prim_func
    def main(F: T.Tensor((blocks + 1,), "int32"), A: T.Tensor((blocks + 1,), "int32")):
        with T.Kernel(blocks, threads=64) as bx:
            tx = T.get_thread_binding()
            if tx == 0:
                if polls == "condition":
                    while T.atomic_load(F[bx + 1], "acquire") == 0:
                        pass
                else:
                    seen = T.alloc_var("int32", init=0)
                    rounds = T.alloc_var("int32", init=0)
                    while rounds < 1000000:
                        seen = T.atomic_load(F[bx + 1], "acquire")
                        rounds = rounds + 1
                        if seen != 0:
                            break
                A[bx] = A[bx + 1] * 2
                T.atomic_store(F[bx], 1, "release")

    flags, a = np.zeros(blocks + 1, np.int32), np.zeros(blocks + 1, np.int32)
    flags[-1] = a[-1] = 1
    run(main, flags, a)
    np.testing.assert_array_equal(a, 1 << np.arange(blocks, -1, -1))


@pytest.mark.parametrize(("tiles", "blocks"), [(1, 1), (3, 2), (4, 3), (5, 7)])
def test_stream_k_with_a_fix_up_by_flags(tiles, blocks):
    """Blocks share the iterations of all tiles evenly; the block that ends a tile adds the parts
    that others have left in a workspace.
    """
    bm, bn, bk, iters = 16, 24, 8, 5
    total = tiles * iters
    per = -(-total // blocks)

    @T.prim_func
    def main(
        A: T.Tensor((tiles * bm, iters * bk), "float32"),
        B: T.Tensor((iters * bk, bn), "float32"),
        C: T.Tensor((tiles * bm, bn), "float32"),
        F: T.Tensor((tiles,), "int32"),
    ):
        W = T.alloc_global((blocks, bm, bn), "float32")
        with T.Kernel(blocks, threads=128) as bx:
            tx = T.get_thread_binding()
            As = T.alloc_shared((bm, bk), "float32")
            Bs = T.alloc_shared((bk, bn), "float32")
            acc = T.alloc_fragment((bm, bn), "float32")
            part = T.alloc_fragment((bm, bn), "float32")
            at = T.alloc_var("int32", init=bx * per)
            while at < T.min((bx + 1) * per, total):
                tile = T.alloc_var("int32", init=at // iters)
                end = T.alloc_var(
                    "int32", init=T.min(T.min((bx + 1) * per, total), (tile + 1) * iters)
                )
                T.clear(acc)
                for k in T.serial(end - at):
                    T.copy(A[tile * bm, (at + k) % iters * bk], As)
                    T.copy(B[(at + k) % iters * bk, 0], Bs)
                    T.gemm(As, Bs, acc)
                if end % iters == 0:
                    if tx == 0:
                        while T.atomic_load(F[tile], "acquire") < at - tile * iters:
                            pass
                    T.sync_threads()
                    first = tile * iters // per
                    for other in T.serial(bx - first):
                        T.copy(W[first + other, :, :], part)
                        for i, j in T.Parallel(bm, bn):
                            acc[i, j] = acc[i, j] + part[i, j]
                    T.copy(acc, C[tile * bm, 0])
                else:
                    T.copy(acc, W[bx, :, :])
                    T.sync_threads()
                    if tx == 0:
                        T.atomic_add(F[tile], end - at, memory_order="release")
                at = end

    rng = np.random.default_rng(0)
    a = rng.integers(-3, 4, (tiles * bm, iters * bk)).astype(np.float32)
    b = rng.integers(-3, 4, (iters * bk, bn)).astype(np.float32)
    c, flags = np.zeros((tiles * bm, bn), np.float32), np.zeros(tiles, np.int32)
    run(main, a, b, c, flags)
    np.testing.assert_array_equal(c, a @ b)


# -- threads of a block ----------------------------------------------------------------------------


def test_named_barriers_between_producing_and_consuming_warps():
    """The producers arrive without waiting, the consumers wait; and the other way round."""

    @T.prim_func
    def main(A: T.Tensor((4, 32), "int32"), B: T.Tensor((4, 32), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            s = T.alloc_shared((32,), "int32")
            if tx < 32:
                for k in T.serial(4):
                    T.sync_threads(2, 64)
                    s[tx] = A[k, tx] + 1
                    T.named_barrier_arrive(1, 64)
            else:
                for k in T.serial(4):
                    T.named_barrier_arrive(2, 64)
                    T.sync_threads(1, 64)
                    B[k, tx - 32] = s[63 - tx]

    a = np.arange(128, dtype=np.int32).reshape(4, 32)
    b = np.zeros_like(a)
    run(main, a, b)
    np.testing.assert_array_equal(b, a[:, ::-1] + 1)


def test_pairs_of_warps_have_a_named_barrier_each():
    @T.prim_func
    def main(A: T.Tensor((128,), "int32"), B: T.Tensor((128,), "int32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            s = T.alloc_shared((128,), "int32")
            s[tx] = A[tx]
            T.sync_threads(1 + tx // 64, 64)
            B[tx] = s[tx // 64 * 64 + 63 - tx % 64]

    a = np.random.default_rng(0).integers(0, 99, 128).astype(np.int32)
    b = np.zeros_like(a)
    run(main, a, b)
    np.testing.assert_array_equal(b, a.reshape(2, 64)[:, ::-1].ravel())


def test_an_ordered_chain_of_warps_by_mbarriers():
    """Each warp waits for its own barrier and opens that of the next."""

    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), S: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            warp = tx // 32
            bars = T.alloc_barrier([32] * 9)
            if warp == 0:
                T.mbarrier_arrive(bars[0])
            T.mbarrier_wait_parity(bars[warp], 0)
            if tx % 32 == 0:
                S[0] = S[0] * 2 + A[warp]
            T.mbarrier_arrive(bars[warp + 1])

    a, s = np.arange(1, 9, dtype=np.int32), np.zeros(1, np.int32)
    run(main, a, s)
    want = 0
    for k in range(1, 9):
        want = want * 2 + k
    assert s[0] == want


@pytest.mark.parametrize("threads", [64, 96, 160])
def test_threads_that_have_ended_are_not_waited_for(threads):
    """The first warp returns early; the others meet without it."""

    @T.prim_func
    def main(A: T.Tensor((threads,), "int32"), B: T.Tensor((threads,), "int32"), n: T.int32):
        with T.Kernel(1, threads=threads):
            tx = T.get_thread_binding()
            s = T.alloc_shared((threads,), "int32")
            bar = T.alloc_barrier(threads)
            s[tx] = A[tx]
            T.mbarrier_arrive(bar)
            T.mbarrier_wait_parity(bar, 0)
            if tx < n:
                T.thread_return()
            B[tx] = s[threads - 1 - tx]

    a = np.arange(threads, dtype=np.int32)
    for n in (0, 32, 40):
        b = np.full(threads, -1, np.int32)
        run(main, a, b, n)
        want = a[::-1].copy()
        want[:n] = -1
        np.testing.assert_array_equal(b, want)


def test_a_group_that_returns_and_one_that_goes_on():
    @T.prim_func
    def main(A: T.Tensor((128,), "int32"), B: T.Tensor((2, 128), "int32")):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            bar = T.alloc_barrier(128)
            s = T.alloc_shared((128,), "int32")
            with T.ws(1):
                T.copy(A, s)
                T.mbarrier_arrive(bar)
                T.thread_return()
            T.mbarrier_wait_parity(bar, 0)
            T.sync_threads()
            T.copy(s, B[0, :])
            if tx < 128:
                B[1, tx] = s[127 - tx]

    a, b = np.arange(128, dtype=np.int32), np.zeros((2, 128), np.int32)
    run(main, a, b)
    np.testing.assert_array_equal(b, np.stack([a, a[::-1]]))


def test_loops_with_waits_that_are_left_and_continued():
    @T.prim_func
    def main(A: T.Tensor((10, 32), "int32"), B: T.Tensor((32,), "int32"), n: T.int32):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            s = T.alloc_shared((2, 32), "int32")
            full = T.alloc_barrier([128] * 2)
            free = T.alloc_barrier([128] * 2)
            with T.ws(1):
                for k in T.serial(10):
                    if k == n:
                        break
                    T.mbarrier_wait_parity(free[k % 2], k // 2 % 2 ^ 1)
                    T.tma_copy(A[k, :], s[k % 2, :], barrier=full[k % 2])
                    T.mbarrier_arrive(full[k % 2])
            with T.ws(0):
                mine = T.alloc_var("int32", init=0)
                for k in T.serial(10):
                    if k == n:
                        break
                    T.mbarrier_wait_parity(full[k % 2], k // 2 % 2)
                    if k % 3 == 1:
                        T.mbarrier_arrive(free[k % 2])
                        continue
                    if tx < 32:
                        mine = mine + s[k % 2, tx]
                    T.mbarrier_arrive(free[k % 2])
                if tx < 32:
                    B[tx] = mine

    a = np.random.default_rng(0).integers(0, 9, (10, 32)).astype(np.int32)
    for n in (0, 1, 4, 10):
        b = np.full(32, -1, np.int32)
        run(main, a, b, n)
        np.testing.assert_array_equal(b, sum((a[k] for k in range(n) if k % 3 != 1), 0 * a[0]))


def test_what_an_arm_may_contain(capsys):
    """Parallel loops, reducers, views, variables, local arrays, allocations in loops, prints."""

    @T.prim_func
    def main(
        A: T.Tensor((4, 64), "float32"),
        B: T.Tensor((2, 4, 64), "float32"),
        S: T.Tensor((4,), "float32"),
    ):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            both = T.alloc_shared((4, 64), "float32")
            ready = T.alloc_barrier(128)
            with T.ws(0):
                last = T.alloc_var("int32", init=-1)
                for k in T.serial(4):
                    tile = T.alloc_shared((64,), "float32")
                    T.copy(A[k, :], tile)
                    for i in T.Parallel(64):
                        both[k, i] = tile[63 - i] + 1.0
                    last = k
                T.print(last, msg="last")
                T.device_assert(last == 3)
                T.mbarrier_arrive(ready)
            with T.ws(1):
                T.mbarrier_wait_parity(ready, 0)
                flat = T.reshape(both, (256,))
                mine = T.alloc_local((2,), "float32")
                for k in T.serial(2):
                    mine[k] = flat[k * 128 + tx - 128]
                for k in T.serial(2):
                    B[0, k * 2 + (tx - 128) // 64, (tx - 128) % 64] = mine[k]
                acc = T.alloc_reducer((1,), "float32", op="sum")
                total = T.alloc_fragment((1,), "float32")
                for k in T.serial(4):
                    T.reducer_init(acc)
                    for i in T.Parallel(64):
                        T.reducer_update(acc[0], both[k, i])
                    T.finalize_reducer(acc, total)
                    S[k] = total[0]
            T.sync_threads()
            T.copy(both, B[1, :, :])

    a = np.random.default_rng(0).integers(-9, 9, (4, 64)).astype(np.float32)
    b, s = np.zeros((2, 4, 64), np.float32), np.zeros(4, np.float32)
    run(main, a, b, s)
    np.testing.assert_array_equal(b, np.stack([a[:, ::-1] + 1] * 2))
    np.testing.assert_array_equal(s, a.sum(axis=1) + 64)
    assert capsys.readouterr().out.count("last") == 2  # one for each run


def test_effects_count_as_they_do_without_waits():
    """A store by all threads happens once, an atomic update once for each thread."""

    def body(waits):
        @T.prim_func
        def main(C: T.Tensor((4,), "int32"), W: T.Tensor((2, 96), "int32")):
            with T.Kernel(2, threads=96) as bx:
                tx = T.get_thread_binding()
                if waits:
                    bar = T.alloc_barrier(96)
                    T.mbarrier_arrive(bar)
                    if tx < 32:
                        T.mbarrier_wait_parity(bar, 0)
                    else:
                        T.mbarrier_wait_parity(bar, 0)
                C[bx] = C[bx] + 1
                T.atomic_add(C[2], 1)
                if tx % 3 == 0:
                    T.atomic_add(C[3], 1)
                W[bx, tx] = T.atomic_add(C[2], 0, return_prev=True) * 0 + tx

        return main

    results = []
    for waits in (False, True):
        c, w = np.zeros(4, np.int32), np.zeros((2, 96), np.int32)
        run(body(waits), c, w, findings=["96 threads update one element of C from its old value"])
        results.append((c, w))
        assert c.tolist() == [1, 1, 192, 64]
    np.testing.assert_array_equal(results[0][1], results[1][1])


def test_values_that_one_agent_computes_for_all():
    """A variable set by an operation of the block has its value in every warp."""

    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), B: T.Tensor((3, 128), "int32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            bar = T.alloc_barrier(128)
            T.mbarrier_arrive(bar)
            if tx < 32:
                T.mbarrier_wait_parity(bar, 0)
            else:
                T.mbarrier_wait_parity(bar, 0)
            s = T.alloc_shared((64,), "int32")
            T.copy(A, s)
            some = T.any_of(s)
            B[0, tx] = T.if_then_else(some, 1, 0)
            loc = T.alloc_local((2,), "int32")
            T.fill(loc, 7)
            B[1, tx] = loc[1]
            T.copy(A[2:4], loc)
            B[2, tx] = loc[1]

    a = np.arange(64, dtype=np.int32)
    b = np.zeros((3, 128), np.int32)
    run(main, a, b)
    np.testing.assert_array_equal(b, np.repeat([[1], [7], [3]], 128, axis=1))


def test_a_barrier_is_put_between_conflicting_accesses_of_a_team():
    """Threads exchange through shared memory without a barrier of the author's own."""

    @T.prim_func
    def main(A: T.Tensor((128,), "int32"), B: T.Tensor((128,), "int32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            s = T.alloc_shared((128,), "int32")
            bar = T.alloc_barrier(128)
            T.mbarrier_arrive(bar)
            if tx < 32:
                T.mbarrier_wait_parity(bar, 0)
            else:
                T.mbarrier_wait_parity(bar, 0)
            s[tx] = A[tx]
            for k in T.serial(3):
                v = T.alloc_var("int32", init=s[(tx + 37) % 128])
                s[tx] = v + k
            B[tx] = s[127 - tx]

    a = np.random.default_rng(0).integers(0, 99, 128).astype(np.int32)
    b = np.zeros_like(a)
    run(main, a, b)
    want = a.copy()
    for k in range(3):
        want = np.roll(want, -37) + k
    np.testing.assert_array_equal(b, want[::-1])


def test_wishes_about_registers_and_launches_change_nothing():
    @T.prim_func
    def main(A: T.Tensor((128,), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=256):
            T.pdl_sync()
            T.annotate_producer_reg_dealloc()
            T.annotate_consumer_reg_alloc()
            with T.ws(1):
                T.set_max_nreg(24, 0)
            with T.ws(0):
                T.set_max_nreg(240, 1)
                T.copy(A, B)
            T.fence_proxy_async()
            T.sync_warp()
            T.pdl_trigger()

    a, b = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    run(main, a, b)
    np.testing.assert_array_equal(b, a)
