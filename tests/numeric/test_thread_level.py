"""Kernels that wait: warp groups, mbarriers, asynchronous copies and products, clusters, flags.

Each is compared with NumPy, or bit for bit with the same computation without waits.
"""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from hang_guard import hang_guard  # noqa: F401 - a fixture
from tilelang.emulator import translate

pytestmark = pytest.mark.usefixtures("hang_guard")


def run(kernel, *arrays, chip="sm_90a", findings=()):
    """Run a kernel, and run it once more under the dynamic check, which must find `findings` (the
    beginnings of their messages) and change no result.
    """
    again = [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]
    tilelang.compile(kernel, target=f"emulate:{chip}")(*arrays)
    names = [p.name for p in kernel.ir.params]
    found = translate(kernel.ir, checked=True).run(dict(zip(names, again, strict=True)))
    messages = [d.message for d in found]
    assert len(messages) == len(findings), messages
    for message, wanted in zip(messages, findings, strict=True):
        assert message.startswith(wanted), messages
    for a, b in zip(arrays, again, strict=True):
        np.testing.assert_array_equal(a, b)


def halves(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float16)


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
    # The compiler's check refuses operations of a team under such conditions; the emulator runs.
    translate(main.ir).run({"A": a, "S": got})
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
            T.fill(Cf, 3.0)
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
