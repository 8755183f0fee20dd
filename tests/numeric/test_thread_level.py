"""Kernels that wait: warp groups, mbarriers, asynchronous copies and products.

Each is compared with NumPy, or bit for bit with the same computation without waits.
"""

import numpy as np
import pytest

import tilelang.language as T
from hang_guard import hang_guard  # noqa: F401 - a fixture
from thread_level_run import halves, run

pytestmark = pytest.mark.usefixtures("hang_guard")


# -- warp-specialised GEMM -------------------------------------------------------------------------


def plain_gemm(m, n, k, bm, bn, bk, trips):
    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=128) as (bx, by):
            As = T.alloc_shared((bm, bk), "float16")
            Bs = T.alloc_shared((bk, bn), "float16")
            Cf = T.alloc_fragment((bm, bn), "float32")
            T.clear(Cf)
            for ko in range(trips):
                T.copy(A[by * bm, ko * bk], As)
                T.copy(B[ko * bk, bx * bn], Bs)
                T.gemm(As, Bs, Cf)
            T.copy(Cf, C[by * bm, bx * bn])

    return main


def ws_gemm(m, n, k, bm, bn, bk, trips, stages):
    """Group 1 loads, group 0 multiplies."""

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=256) as (bx, by):
            As = T.alloc_shared((stages, bm, bk), "float16")
            Bs = T.alloc_shared((stages, bk, bn), "float16")
            Cf = T.alloc_fragment((bm, bn), "float32")
            full = T.alloc_barrier([128] * stages)
            free = T.alloc_barrier([128] * stages)
            with T.ws(1):
                T.dec_max_nreg(24)
                for ko in range(trips):
                    s = ko % stages
                    T.mbarrier_wait_parity(free[s], ((ko // stages) + 1) % 2)
                    T.tma_copy(A[by * bm, ko * bk], As[s, :, :], barrier=full[s])
                    T.tma_copy(B[ko * bk, bx * bn], Bs[s, :, :], barrier=full[s])
                    T.mbarrier_arrive(full[s])
            with T.ws(0):
                T.inc_max_nreg(240)
                T.clear(Cf)
                for ko in range(trips):
                    s = ko % stages
                    T.mbarrier_wait_parity(full[s], (ko // stages) % 2)
                    T.gemm(As[s, :, :], Bs[s, :, :], Cf)
                    T.mbarrier_arrive(free[s])
                T.copy(Cf, C[by * bm, bx * bn])

    return main


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("trips", [0, 1, 2, 3, 5])
def test_a_warp_specialised_gemm_is_the_plain_one_bit_for_bit(stages, trips):
    m, n, k = 100, 72, 80
    a, b = halves(m, k), halves(k, n, seed=1)
    got, want = np.full((m, n), -1, np.float32), np.zeros((m, n), np.float32)
    run(ws_gemm(m, n, k, 64, 48, 16, trips, stages), a, b, got)
    run(plain_gemm(m, n, k, 64, 48, 16, trips), a, b, want)
    np.testing.assert_array_equal(got, want)
    exact = a[:, : 16 * trips].astype(np.float64) @ b[: 16 * trips].astype(np.float64)
    np.testing.assert_allclose(got, exact, atol=1e-5)


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("use_wgmma", [False, True])
def test_two_consumer_groups_and_a_producer(stages, use_wgmma):
    """Each consumer has half of the rows; the producer is the last group."""
    m, n, k, bm, bn, bk = 127, 40, 100, 128, 64, 32
    trips = 4

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1, 1, threads=384):
            As = T.alloc_shared((stages, bm, bk), "float16")
            Bs = T.alloc_shared((stages, bk, bn), "float16")
            C0 = T.alloc_fragment((64, bn), "float32")
            C1 = T.alloc_fragment((64, bn), "float32")
            full = T.alloc_barrier([1] * stages)
            free = T.alloc_barrier([256] * stages)
            with T.ws(2):
                for ko in range(trips):
                    s = ko % stages
                    T.mbarrier_wait_parity(free[s], (ko // stages) % 2 ^ 1)
                    T.tma_copy(A[0, ko * bk], As[s, :, :], barrier=full[s])
                    T.tma_copy(B[ko * bk, 0], Bs[s, :, :], barrier=full[s])
                    if T.shuffle_elect(128):
                        T.mbarrier_arrive(full[s])
            for group, acc in ((0, C0), (1, C1)):
                with T.ws(group):
                    T.clear(acc)
                    for ko in range(trips):
                        s = ko % stages
                        T.mbarrier_wait_parity(full[s], (ko // stages) % 2)
                        rows = As[s, group * 64 : (group + 1) * 64, :]
                        if use_wgmma:
                            T.wgmma_gemm(rows, Bs[s, :, :], acc)
                            T.wait_wgmma(0)
                        else:
                            T.gemm(rows, Bs[s, :, :], acc)
                        T.mbarrier_arrive(free[s])
                    T.copy(acc, C[group * 64, 0])

    a, b = halves(m, k), halves(k, n, seed=1)
    got, want = np.full((m, n), -1, np.float32), np.zeros((m, n), np.float32)
    run(main, a, b, got)
    run(plain_gemm(m, n, k, bm, bn, bk, trips), a, b, want)
    np.testing.assert_array_equal(got, want)


def test_groups_by_conditions_on_the_thread_index():
    """`if tx < 32 ... elif tx < 64 ... else`: each part runs as a team of whole warps."""
    m, k, bk = 64, 96, 32

    @T.prim_func
    def main(A: T.Tensor((m, k), "float32"), S: T.Tensor((3, m), "float32")):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((2, m, bk), "float32")
            tile = T.alloc_fragment((m, bk), "float32")
            part = T.alloc_fragment((m,), "float32")
            full = T.alloc_barrier([32] * 2)
            free = T.alloc_barrier([64] * 2)
            tx = T.get_thread_binding()
            for ko in range(k // bk):
                s = ko % 2
                if tx < 32:
                    T.mbarrier_wait_parity(free[s], (ko // 2) % 2 ^ 1)
                    T.tma_copy(A[0, ko * bk], As[s, :, :], barrier=full[s])
                    T.mbarrier_arrive(full[s])
                elif tx >= 64 and tx < 128:
                    T.mbarrier_wait_parity(full[s], (ko // 2) % 2)
                    T.copy(As[s, :, :], tile)
                    T.reduce_sum(tile, part, dim=1)
                    T.copy(part, S[ko, 0])
                    T.mbarrier_arrive(free[s])

    a = np.random.default_rng(2).standard_normal((m, k)).astype(np.float32)
    got = np.zeros((3, m), np.float32)
    run(main, a, got)
    np.testing.assert_allclose(got, a.reshape(m, 3, bk).sum(axis=2).T, rtol=1e-5)


# -- TMA -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(64, 64), (100, 127), (1, 33), (65, 1)])
@pytest.mark.parametrize("wait", ["read", "all", "none"])
def test_bulk_copies_there_and_back_at_ragged_edges(shape, wait):
    """Outside of the tensor a load gives zeros and a store does nothing."""
    m, n = shape
    bm, bn = 64, 32

    @T.prim_func
    def main(
        A: T.Tensor((m, n), "float32"),
        B: T.Tensor((m, n), "float32"),
        Z: T.Tensor((2,), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=128) as (bx, by):
            s = T.alloc_shared((bm, bn), "float32")
            f = T.alloc_fragment((bm, bn), "float32")
            total = T.alloc_fragment((bm,), "float32")
            bar = T.alloc_barrier(128)
            T.tma_copy(A[by * bm, bx * bn], s, barrier=bar)
            T.mbarrier_arrive(bar)
            T.mbarrier_wait_parity(bar, 0)
            T.copy(s, f)
            T.reduce_sum(f, total, dim=1)
            for i in T.Parallel(bm):
                T.atomic_add(Z[0], total[i])
            T.tma_copy(s, B[by * bm, bx * bn])
            if wait == "read":
                T.tma_store_wait()
                T.clear(s)  # its contents have been read
            elif wait == "all":
                T.tma_store_wait(0, read=False)
                T.clear(s)

    a = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    b, z = np.full_like(a, 77), np.zeros(2, np.float32)
    left = ["T.tma_copy is never waited for"] if wait == "none" else []
    run(main, a, b, z, findings=left)
    np.testing.assert_array_equal(b, a)
    assert z[0] == a.sum()


def test_a_store_whose_source_is_overwritten_too_early():
    """Without the wait the store may read what comes after, and here it does."""

    @T.prim_func
    def main(A: T.Tensor((128,), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((128,), "float32")
            T.copy(A, s)
            T.tma_copy(s, B)
            T.fill(s, 5.0)

    a, b = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    early = ["s is changed while T.tma_copy reads it", "T.tma_copy is never waited for"]
    run(main, a, b, findings=early)
    assert (b == 5).all()


def test_bulk_stores_are_waited_for_in_groups():
    @T.prim_func
    def main(A: T.Tensor((4, 32), "float32"), B: T.Tensor((4, 32), "float32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((4, 32), "float32")
            T.copy(A, s)
            for k in range(4):
                T.tma_copy(s[k, :], B[k, 0])
            T.tma_store_wait(2)
            T.fill(s, -1.0)  # the newest two groups may still read

    a, b = np.arange(128, dtype=np.float32).reshape(4, 32), np.zeros((4, 32), np.float32)
    early = ["s is changed while T.tma_copy reads it", "T.tma_copy is never waited for"]
    run(main, a, b, findings=early)
    np.testing.assert_array_equal(b[:2], a[:2])
    assert (b[2:] == -1).all()


def test_each_warp_loads_for_itself():
    @T.prim_func
    def main(A: T.Tensor((8, 40), "float32"), B: T.Tensor((8, 40), "float32")):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            warp = tx // 32
            s = T.alloc_shared((8, 40), "float32")
            bars = T.alloc_barrier([32] * 8)
            T.tma_copy(A[warp, 0:40], s[warp, 0:40], barrier=bars[warp], leader_scope_threads=32)
            T.mbarrier_arrive(bars[warp])
            T.mbarrier_wait_parity(bars[warp], 0)
            for k in T.serial(2):
                if k * 32 + tx % 32 < 40:
                    B[warp, k * 32 + tx % 32] = s[warp, k * 32 + tx % 32] * 2.0

    a = np.random.default_rng(0).standard_normal((8, 40)).astype(np.float32)
    b = np.zeros_like(a)
    run(main, a, b)
    np.testing.assert_array_equal(b, a * 2)


def test_a_load_is_not_there_before_its_wait():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((2, 64), "float32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "float32")
            bar = T.alloc_barrier(64)
            T.tma_copy(A, s, barrier=bar)
            T.mbarrier_arrive(bar)
            T.copy(s, B[0, 0])
            T.mbarrier_wait_parity(bar, 0)
            T.copy(s, B[1, 0])

    a, b = np.arange(64, dtype=np.float32), np.zeros((2, 64), np.float32)
    run(main, a, b, findings=["s is read while T.tma_copy writes it"])
    assert np.isnan(b[0]).all()
    np.testing.assert_array_equal(b[1], a)


def test_a_load_by_one_thread_and_expected_bytes_by_hand():
    """A raw transaction count beside the copy's own would never be met; arrivals alone are."""

    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((64,), "int32")
            bar = T.alloc_barrier(1)
            tx = T.get_thread_binding()
            if tx == 0:
                T.tma_copy(A, s, barrier=bar)
                T.mbarrier_arrive(bar)
            T.mbarrier_wait_parity(bar, 0)
            if tx < 64:
                B[tx] = s[63 - tx]

    a, b = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    run(main, a, b)
    np.testing.assert_array_equal(b, a[::-1])


# -- cp.async --------------------------------------------------------------------------------------


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("trips", [0, 1, 2, 4])
def test_a_pipeline_of_async_copies(stages, trips):
    """`async_copy` closes a group of its own; the newest `stages - 1` may be under way."""
    m, bk = 40, 24

    @T.prim_func
    def main(A: T.Tensor((m, 100), "float16"), B: T.Tensor((m, 100), "float16")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((stages, m, bk), "float16")
            for k in range(stages - 1):
                T.async_copy(A[0, k * bk], s[k, :, :])
            for k in range(trips):
                T.async_copy(A[0, (k + stages - 1) * bk], s[(k + stages - 1) % stages, :, :])
                T.ptx_wait_group(stages - 1)
                T.sync_threads()
                T.copy(s[k % stages, :, :], B[0, k * bk])
                T.sync_threads()
            T.ptx_wait_group(0)

    a, b = halves(m, 100), np.full((m, 100), 9, np.float16)
    run(main, a, b)
    np.testing.assert_array_equal(b[:, : bk * trips], a[:, : bk * trips])
    assert (b[:, bk * trips :] == 9).all()


def test_async_copies_are_not_there_before_their_wait():
    @T.prim_func
    def main(A: T.Tensor((2, 32), "float32"), B: T.Tensor((4, 32), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((2, 32), "float32")
            T.async_copy(A[0, :], s[0, :])
            T.async_copy(A[1, :], s[1, :])
            T.copy(s, B[0:2, :])
            T.ptx_wait_group(1)
            T.copy(s[0, :], B[2, :])
            T.copy(s[1, :], B[3, :])

    a, b = np.arange(64, dtype=np.float32).reshape(2, 32), np.zeros((4, 32), np.float32)
    early = ["s is read while T.async_copy writes it"] * 2
    run(main, a, b, findings=[*early, "T.async_copy is never waited for"])
    assert np.isnan(b[:2]).all()
    assert np.isnan(b[3]).all()
    np.testing.assert_array_equal(b[2], a[0])


def test_raw_copies_of_each_thread_with_a_predicate():
    """Four elements for each thread; where the predicate fails, zeros."""

    @T.prim_func
    def main(A: T.Tensor((48, 4), "float32"), B: T.Tensor((2, 48, 4), "float32"), n: T.int32):
        with T.Kernel(1, threads=48):
            tx = T.get_thread_binding()
            s = T.alloc_shared((48, 4), "float32")
            T.ptx_cp_async(
                T.access_ptr(s[tx, 0], "w", 4), T.access_ptr(A[47 - tx, 0], "r", 4), 4, tx < n
            )
            T.ptx_commit_group()
            for j in range(4):
                B[0, tx, j] = s[tx, j]
            T.ptx_wait_group(0)
            T.sync_threads()
            for j in range(4):
                B[1, tx, j] = s[47 - tx, j]

    a = np.random.default_rng(0).standard_normal((48, 4)).astype(np.float32)
    b = np.zeros((2, 48, 4), np.float32)
    run(main, a, b, 40, findings=["s is read while T.ptx_cp_async writes it"])
    assert np.isnan(b[0]).all()
    want = a[::-1].copy()
    want[40:] = 0
    np.testing.assert_array_equal(b[1], want[::-1])


def test_groups_count_for_each_thread_by_itself():
    """Half of the threads close one group more; a wait for all but one covers theirs only."""

    @T.prim_func
    def main(A: T.Tensor((2, 64), "float32"), B: T.Tensor((2, 64), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            s = T.alloc_shared((2, 64), "float32")
            T.ptx_cp_async(T.address_of(s[0, tx]), T.address_of(A[0, tx]), 1)
            T.ptx_commit_group()
            if tx % 2 == 0:
                T.ptx_cp_async(T.address_of(s[1, tx]), T.address_of(A[1, tx]), 1)
                T.ptx_commit_group()
            T.ptx_wait_group(1)
            B[0, tx] = s[0, tx]
            T.ptx_wait_group(0)
            B[1, tx] = s[0, tx]

    a, b = np.arange(128, dtype=np.float32).reshape(2, 64), np.zeros((2, 64), np.float32)
    run(main, a, b, findings=["s is read while T.ptx_cp_async writes it"])
    np.testing.assert_array_equal(b[0, ::2], a[0, ::2])
    assert np.isnan(b[0, 1::2]).all()
    np.testing.assert_array_equal(b[1], a[0])


@pytest.mark.parametrize("rows", [1, 5, 16])
def test_gathered_rows_arrive_at_an_mbarrier(rows):
    """A producer group gathers rows with cp.async; each thread arrives when its own are done."""

    @T.prim_func
    def main(
        A: T.Tensor((16, 64), "float16"),
        I: T.Tensor((rows,), "int32"),
        B: T.Tensor((rows, 64), "float16"),
    ):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            s = T.alloc_shared((2, 64), "float16")
            ready = T.alloc_barrier([128] * 2)
            free = T.alloc_barrier([128] * 2)
            with T.ws(1):
                for r in T.serial(rows):
                    T.mbarrier_wait_parity(free[r % 2], (r // 2) % 2 ^ 1)
                    if tx % 128 < 8:
                        T.ptx_cp_async(
                            T.access_ptr(s[r % 2, tx % 128 * 8], "w", 8),
                            T.access_ptr(A[I[r], tx % 128 * 8], "r", 8),
                            8,
                        )
                    T.cp_async_barrier_noinc(ready[r % 2])
            with T.ws(0):
                for r in T.serial(rows):
                    T.mbarrier_wait_parity(ready[r % 2], (r // 2) % 2)
                    T.copy(s[r % 2, :], B[r, :])
                    T.mbarrier_arrive(free[r % 2])

    a = halves(16, 64)
    index = np.random.default_rng(1).integers(0, 16, rows).astype(np.int32)
    b = np.zeros((rows, 64), np.float16)
    run(main, a, index, b)
    np.testing.assert_array_equal(b, a[index])


# -- asynchronous products -------------------------------------------------------------------------


def test_wgmma_is_not_there_before_its_wait():
    @T.prim_func
    def main(
        A: T.Tensor((64, 32), "float16"),
        B: T.Tensor((32, 16), "float16"),
        C: T.Tensor((2, 64, 16), "float32"),
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 16), "float16")
            Cf = T.alloc_fragment((64, 16), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.fill(Cf, 300.0)
            T.wgmma_gemm(As, Bs, Cf, clear_accum=True)
            T.copy(Cf, C[0, :, :])
            T.wait_wgmma(0)
            T.copy(Cf, C[1, :, :])

    a, b, c = halves(64, 32), halves(32, 16, seed=1), np.zeros((2, 64, 16), np.float32)
    run(main, a, b, c, findings=["Cf is read while T.wgmma_gemm writes it"])
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert not np.isclose(c[0], exact, atol=1e-3).any()
    np.testing.assert_allclose(c[1], exact, atol=1e-5)


def test_wgmma_groups_are_complete_in_order():
    """Two accumulators; the wait for all but the newest finishes the first alone."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 32), "float16"),
        B: T.Tensor((32, 16), "float16"),
        C: T.Tensor((2, 64, 16), "float32"),
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 16), "float16")
            one = T.alloc_fragment((64, 16), "float32")
            two = T.alloc_fragment((64, 16), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.clear(one)
            T.fill(two, 7.0)
            T.wgmma_gemm(As, Bs, one)
            T.wgmma_gemm(As, Bs, two)
            T.wait_wgmma(1)
            T.copy(one, C[0, :, :])
            T.copy(two, C[1, :, :])
            T.wait_wgmma(0)

    a, b, c = halves(64, 32), halves(32, 16, seed=1), np.zeros((2, 64, 16), np.float32)
    run(main, a, b, c, findings=["two is read while T.wgmma_gemm writes it"])
    np.testing.assert_allclose(c[0], a.astype(np.float64) @ b.astype(np.float64), atol=1e-5)
    assert (c[1] == 7).all()


def test_an_operand_that_is_overwritten_before_the_wait_may_be_read_after():
    @T.prim_func
    def main(
        A: T.Tensor((64, 32), "float16"),
        B: T.Tensor((32, 16), "float16"),
        C: T.Tensor((64, 16), "float32"),
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float16")
            Bs = T.alloc_shared((32, 16), "float16")
            Cf = T.alloc_fragment((64, 16), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.clear(Cf)
            T.wgmma_gemm(As, Bs, Cf)
            T.clear(As)
            T.wait_wgmma(0)
            T.copy(Cf, C)

    a, b, c = halves(64, 32), halves(32, 16, seed=1), np.ones((64, 16), np.float32)
    run(main, a, b, c, findings=["As is changed while T.wgmma_gemm reads it"])
    assert (c == 0).all()


@pytest.mark.parametrize("by", ["mbar", "arrive"])
def test_tcgen05_products_complete_on_an_mbarrier(by):
    trips = 3

    @T.prim_func
    def main(
        A: T.Tensor((128, 96), "bfloat16"),
        B: T.Tensor((96, 64), "bfloat16"),
        C: T.Tensor((2, 128, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((128, 32), "bfloat16")
            Bs = T.alloc_shared((32, 64), "bfloat16")
            acc = T.alloc_tmem((128, 64), "float32")
            Cf = T.alloc_fragment((128, 64), "float32")
            done = T.alloc_barrier(1)
            for k in range(trips):
                T.copy(A[0, k * 32], As)
                T.copy(B[k * 32, 0], Bs)
                if by == "mbar":
                    T.tcgen05_gemm(As, Bs, acc, clear_accum=k == 0, mbar=done)
                else:
                    T.tcgen05_gemm(As, Bs, acc, clear_accum=k == 0, mbar=None)
                    T.tcgen05_mma_arrive(done)
                if k == trips - 1:
                    T.copy(acc, Cf)
                    T.copy(Cf, C[0, :, :])
                T.mbarrier_wait_parity(done, k % 2)
            T.copy(acc, Cf)
            T.copy(Cf, C[1, :, :])

    a = halves(128, 96).astype(np.float32).astype(T.dtype("bfloat16").numpy)
    b = halves(96, 64, seed=1).astype(np.float32).astype(T.dtype("bfloat16").numpy)
    c = np.zeros((2, 128, 64), np.float32)
    early = ["acc is read while T.tcgen05_gemm writes it"]
    run(main, a, b, c, chip="sm_100a", findings=early)
    x, y = a.astype(np.float64), b.astype(np.float64)
    np.testing.assert_allclose(c[0], x[:, :64] @ y[:64], atol=1e-4)
    np.testing.assert_allclose(c[1], x @ y, atol=1e-4)
