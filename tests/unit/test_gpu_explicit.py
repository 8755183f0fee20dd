"""Asynchronous work that the author spells out, lowered for a GPU, against the emulator."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang.language as T
from gpu_build import check_gpu
from tilelang.ir.thread import Instr, kernels_of

RANDOM = np.random.default_rng(5)


def integers(*shape, dtype=np.float16):
    return RANDOM.integers(-4, 5, shape).astype(dtype)


def rows_of(program) -> list[str]:
    return [n.row for n in program.walk() if isinstance(n, Instr)]


def notes(program) -> list[str]:
    return [text for _, text, _ in dict(program.attrs).get("notes", ())]


def both(kernel, **args):
    """The program with tensor copies and the one without, each compared with the emulator."""
    check_gpu(kernel, without=("tma",), **args)
    return check_gpu(kernel, **args)


# Tensor copies -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(64, 64), (100, 128), (1, 32)])
@pytest.mark.parametrize("wait", ["read", "all"])
def test_tensor_copies_there_and_back_at_ragged_edges(shape, wait):
    m, n = shape

    @T.prim_func
    def kernel(A: T.Tensor((m, n), "float32"), B: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 64), threads=128) as (bx, by):
            s = T.alloc_shared((64, 32), "float32")
            bar = T.alloc_barrier(128)
            T.tma_copy(A[by * 64, bx * 32], s, barrier=bar)
            T.mbarrier_arrive(bar)
            T.mbarrier_wait_parity(bar, 0)
            for i, j in T.Parallel(64, 32):
                s[i, j] = s[i, j] * 2
            T.tma_copy(s, B[by * 64, bx * 32])
            T.tma_store_wait(0, read=wait == "read")
            T.clear(s)

    program = both(kernel, A=integers(m, n, dtype=np.float32), B=np.zeros((m, n), np.float32))
    rows = rows_of(program)
    assert {"mbarrier.expect_tx", "cp.async.bulk.tensor.2d.load"} <= set(rows)
    assert "cp.async.bulk.tensor.2d.store" in rows


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("trips", [0, 1, 4])
def test_a_producer_group_with_tensor_copies(stages, trips):
    @T.prim_func
    def kernel(
        A: T.Tensor((100, 136), "float16"),
        B: T.Tensor((136, 72), "float16"),
        C: T.Tensor((100, 72), "float32"),
    ):
        with T.Kernel(2, 2, threads=256) as (bx, by):
            a = T.alloc_shared((stages, 64, 32), "float16")
            b = T.alloc_shared((stages, 32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            full = T.alloc_barrier([1] * stages)
            free = T.alloc_barrier([128] * stages)
            with T.ws(1):
                for k in range(trips):
                    s = k % stages
                    T.mbarrier_wait_parity(free[s], (k // stages + 1) % 2)
                    T.tma_copy(A[by * 64, k * 32], a[s, :, :], barrier=full[s])
                    T.tma_copy(B[k * 32, bx * 64], b[s, :, :], barrier=full[s])
                    if T.shuffle_elect(128):
                        T.mbarrier_arrive(full[s])
            with T.ws(0):
                T.clear(c)
                for k in range(trips):
                    s = k % stages
                    T.mbarrier_wait_parity(full[s], (k // stages) % 2)
                    T.gemm(a[s, :, :], b[s, :, :], c)
                    T.mbarrier_arrive(free[s])
                T.copy(c, C[by * 64, bx * 64])

    args = {"A": integers(100, 136), "B": integers(136, 72), "C": np.zeros((100, 72), np.float32)}
    program = both(kernel, **args)
    rows = rows_of(program)
    assert ("cp.async.bulk.tensor.2d.load" in rows) == (trips > 0)
    assert any(r.startswith("wgmma.m64n64k16") for r in rows) == (trips > 0)
    # Tiles that tensor copies bring need no fence before a product.
    assert "fence.proxy.async" not in rows


def test_one_thread_loads_and_arrives_for_all():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
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

    both(kernel, A=integers(64, dtype=np.int32), B=np.zeros(64, np.int32))


def test_each_warp_loads_for_itself():
    @T.prim_func
    def kernel(A: T.Tensor((4, 32), "float32"), B: T.Tensor((4, 32), "float32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            warp = tx // 32
            s = T.alloc_shared((4, 32), "float32")
            bars = T.alloc_barrier([32] * 4)
            T.tma_copy(A[warp, 0:32], s[warp, 0:32], barrier=bars[warp], leader_scope_threads=32)
            T.mbarrier_arrive(bars[warp])
            T.mbarrier_wait_parity(bars[warp], 0)
            B[warp, tx % 32] = s[warp, tx % 32] * 2.0

    a = integers(4, 32, dtype=np.float32)
    program = check_gpu(kernel, A=a, B=np.zeros_like(a))
    assert "cp.async.bulk.tensor.2d.load" in rows_of(program)


@pytest.mark.parametrize("trips", [1, 5])
def test_a_tile_is_loaded_again_after_all_have_read_it(trips):
    @T.prim_func
    def kernel(A: T.Tensor((trips, 64), "float32"), B: T.Tensor((trips, 64), "float32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "float32")
            bar = T.alloc_barrier(64)
            for k in T.serial(trips):
                T.tma_copy(A[k, 0:64], s, barrier=bar)
                T.mbarrier_arrive(bar)
                T.mbarrier_wait_parity(bar, k % 2)
                for i in T.Parallel(64):
                    B[k, i] = s[63 - i]

    a = integers(trips, 64, dtype=np.float32)
    both(kernel, A=a, B=np.zeros_like(a))


def test_stores_of_one_thread_in_groups():
    @T.prim_func
    def kernel(A: T.Tensor((4, 32), "float32"), B: T.Tensor((4, 32), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            s = T.alloc_shared((4, 32), "float32")
            T.copy(A, s)
            T.fence_proxy_async()
            T.sync_threads()
            if tx == 32:
                for k in T.serial(4):
                    T.tma_copy(s[k, :], B[k, 0])
                    T.tma_store_arrive()
                T.tma_store_wait()
            T.sync_threads()
            T.fill(s, -1.0)

    a = integers(4, 32, dtype=np.float32)
    both(kernel, A=a, B=np.zeros_like(a))


def test_a_tile_without_boxes_is_copied_at_once_and_the_report_says_why():
    @T.prim_func
    def kernel(A: T.Tensor((8, 40), "float32"), B: T.Tensor((8, 40), "float32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((8, 33), "float32")
            bar = T.alloc_barrier(64)
            T.tma_copy(A[0:8, 0:33], s, barrier=bar)
            T.barrier_arrive(bar)
            T.barrier_wait(bar, 0)
            T.copy(s, B[0:8, 3:36])

    a = integers(8, 40, dtype=np.float32)
    program = check_gpu(kernel, A=a, B=np.zeros_like(a))
    assert any("at once: a tile of 8 x 33 float32 has no box" in n for n in notes(program))


# Bytes and arrivals ------------------------------------------------------------------------------


def test_bytes_expected_by_hand_are_those_that_arrive():
    @T.prim_func
    def kernel(A: T.Tensor((2, 64), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            s = T.alloc_shared((64,), "float32")
            bar = T.alloc_barrier(64)
            T.copy(A[0, 0:64], s)
            T.mbarrier_arrive_expect_tx(bar, 0)
            if tx == 0:
                T.mbarrier_expect_tx(bar, 0)
            T.mbarrier_wait_parity(bar, 0)
            B[tx] = s[63 - tx]

    a = integers(2, 64, dtype=np.float32)
    program = check_gpu(kernel, A=a, B=np.zeros(64, np.float32))
    assert "mbarrier.arrive.expect_tx" in rows_of(program)


@pytest.mark.parametrize("columns", [8, 7])
def test_cp_async_arrives_at_an_mbarrier(columns):
    """Pieces that no cp.async copies are plain stores, and arrive all the same."""

    @T.prim_func
    def kernel(A: T.Tensor((3, 32, 8), "float16"), B: T.Tensor((3, 64), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            s = T.alloc_shared((2, 32, 8), "float16")
            ready = T.alloc_barrier([64] * 2)
            for r in T.serial(3):
                T.async_copy(A[r, 0:32, 0:columns], s[r % 2, 0:32, 0:columns])
                T.cp_async_barrier_noinc(ready[r % 2])
                T.mbarrier_wait_parity(ready[r % 2], r // 2 % 2)
                B[r, tx] = T.cast(s[r % 2, tx // 2, 3], "float32") + s[r % 2, 31 - tx // 2, 5]
                T.sync_threads()
            T.ptx_wait_group(0)

    a = integers(3, 32, 8)
    program = check_gpu(kernel, A=a, B=np.zeros((3, 64), np.float32))
    rows = rows_of(program)
    assert "cp.async.mbarrier.arrive.noinc" in rows
    assert ("cp.async.ca.8" in rows) == (columns == 8)


def test_every_thread_copies_for_itself():
    @T.prim_func
    def kernel(A: T.Tensor((64, 4), "float32"), B: T.Tensor((64, 4), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            s = T.alloc_shared((64, 4), "float32")
            T.ptx_cp_async(T.access_ptr(s[tx, 0], "w", 4), T.access_ptr(A[tx, 0], "r", 4), 4)
            T.ptx_commit_group()
            T.ptx_wait_group(0)
            T.sync_threads()
            for i, j in T.Parallel(64, 4):
                B[i, j] = s[63 - i, j]

    a = integers(64, 4, dtype=np.float32)
    program = check_gpu(kernel, arch="sm_80", A=a, B=np.zeros_like(a))
    assert "cp.async.cg.16" in rows_of(program)


# Named barriers ----------------------------------------------------------------------------------


def test_barriers_whose_number_is_known_at_run_time():
    @T.prim_func
    def kernel(A: T.Tensor((128,), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            s = T.alloc_shared((128,), "float32")
            s[tx] = A[tx]
            T.sync_threads(1 + tx // 64, 64)
            B[tx] = s[tx ^ 63]

    a = integers(128, dtype=np.float32)
    program = check_gpu(kernel, A=a, B=np.zeros_like(a))
    assert "barrier.sync.value" in rows_of(program)


@pytest.mark.parametrize("known", [True, False])
def test_some_threads_arrive_where_others_wait(known):
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32"), N: T.int32):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            s = T.alloc_shared((64,), "float32")
            number = 3 if known else N
            if tx < 64:
                s[tx] = A[tx]
                T.named_barrier_arrive(number, 128)
            else:
                T.sync_threads(number, 128)
                B[tx - 64] = s[127 - tx]

    a = integers(64, dtype=np.float32)
    program = check_gpu(kernel, A=a, B=np.zeros_like(a), N=3)
    assert ("barrier.arrive" if known else "barrier.arrive.value") in rows_of(program)


def test_a_pipeline_in_which_the_author_counts_groups_is_left_as_it_is():
    @T.prim_func
    def kernel(A: T.Tensor((4, 64), "float32"), B: T.Tensor((4, 64), "float32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "float32")
            t = T.alloc_shared((64,), "float32")
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[k, 0:64], s)
                T.async_copy(A[3 - k, 0:64], t)
                T.ptx_wait_group(0)
                T.sync_threads()
                for i in T.Parallel(64):
                    B[k, i] = s[63 - i] * t[i]

    a = integers(4, 64, dtype=np.float32)
    program = check_gpu(kernel, arch="sm_80", A=a, B=np.zeros_like(a))
    assert any("groups of cp.async copies are counted in the loop" in n for n in notes(program))


# Products of warpgroups --------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [0, 32, 200])
def test_a_product_goes_on_while_the_next_tile_comes(depth):
    @T.prim_func
    def kernel(
        A: T.Tensor((100, depth), "float16"),
        B: T.Tensor((depth, 72), "float16"),
        C: T.Tensor((100, 72), "float32"),
    ):
        with T.Kernel(2, 2, threads=128) as (bx, by):
            a = T.alloc_shared((2, 64, 32), "float16")
            b = T.alloc_shared((2, 32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.serial(T.ceildiv(depth, 32)):
                T.copy(A[by * 64 : by * 64 + 64, k * 32 : k * 32 + 32], a[k % 2, :, :])
                T.copy(B[k * 32 : k * 32 + 32, bx * 64 : bx * 64 + 64], b[k % 2, :, :])
                T.wgmma_gemm(a[k % 2, :, :], b[k % 2, :, :], c)
                T.wait_wgmma(1)
            T.wait_wgmma(0)
            T.copy(c, C[by * 64, bx * 64])

    args = {"A": integers(100, depth), "B": integers(depth, 72)}
    program = check_gpu(kernel, C=np.zeros((100, 72), np.float32), **args)
    waits = [
        dict(n.imm)["count"]
        for n in program.walk()
        if isinstance(n, Instr) and n.row == "wgmma.wait_group"
    ]
    assert waits == ([1, 0] if depth else [0])


def test_two_accumulators_of_which_the_older_is_read_first():
    @T.prim_func
    def kernel(
        A: T.Tensor((64, 32), "float16"),
        B: T.Tensor((2, 32, 64), "float16"),
        C: T.Tensor((2, 64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((2, 32, 64), "float16")
            one = T.alloc_fragment((64, 64), "float32")
            two = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(one)
            T.clear(two)
            T.wgmma_gemm(a, b[0, :, :], one)
            T.wgmma_gemm(a, b[1, :, :], two)
            T.wait_wgmma(1)
            T.copy(one, C[0, :, :])
            T.wait_wgmma(0)
            T.copy(two, C[1, :, :])

    args = {"A": integers(64, 32), "B": integers(2, 32, 64)}
    program = check_gpu(kernel, C=np.zeros((2, 64, 64), np.float32), **args)
    steps = [
        (n.row, n.outs[0].array.name if n.outs else dict(n.imm)["count"])
        for n in program.walk()
        if isinstance(n, Instr) and n.row in ("wgmma.wait_group", "wgmma.ready")
    ]
    assert steps[:2] == [("wgmma.wait_group", 1), ("wgmma.ready", "one")]
    assert steps[2] == ("wgmma.wait_group", 0)


def test_a_wait_whose_products_are_not_known_waits_for_all():
    @T.prim_func
    def kernel(
        A: T.Tensor((64, 32), "float16"),
        B: T.Tensor((32, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
        N: T.int32,
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            if N > 1:
                T.wgmma_gemm(a, b, c)
            T.wait_wgmma(1)
            T.wait_wgmma(0)
            T.copy(c, C)

    args = {"A": integers(64, 32), "B": integers(32, 64), "N": 2}
    program = check_gpu(kernel, C=np.zeros((64, 64), np.float32), **args)
    rows = [n for n in program.walk() if isinstance(n, Instr) and n.row == "wgmma.wait_group"]
    assert all(dict(n.imm)["count"] == 0 for n in rows)


# Registers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("less", "more", "why"),
    [(24, 240, ""), (24, 248, "are asked for"), (128, 240, "are asked for"), (168, 160, "is none")],
)
def test_registers_move_between_warpgroups_if_the_wishes_add_up(less, more, why):
    @T.prim_func
    def kernel(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=384):
            bar = T.alloc_barrier(128)
            s = T.alloc_shared((256,), "float32")
            with T.ws(2):
                T.dec_max_nreg(less)
                T.copy(A, s)
                T.barrier_arrive(bar)
            with T.ws(0, 1):
                T.inc_max_nreg(more)
                T.barrier_wait(bar, 0)
                T.copy(s, B)

    a = integers(256, dtype=np.float32)
    program = check_gpu(kernel, A=a, B=np.zeros_like(a))
    assert ("setmaxnreg" in rows_of(program)) == (not why)
    assert any("registers stay where they are" in n and why in n for n in notes(program)) == bool(
        why
    )


# Launches that overlap ---------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_launch_that_waits_for_the_one_before_may_begin_earlier(arch):
    @T.prim_func
    def kernel(
        A: T.Tensor((64, 96), "float16"),
        B: T.Tensor((64, 96), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=64):
            for i, j in T.Parallel(64, 96):
                B[i, j] = A[i, j] + 1
            T.pdl_trigger()
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            T.pdl_sync()
            for k in T.Pipelined(3, num_stages=2):
                T.copy(B[0:64, k * 32 : k * 32 + 32], a)
                T.gemm(a, a, c, transpose_B=True)
            T.copy(c, C)

    args = {"A": integers(64, 96), "B": integers(64, 96), "C": np.zeros((64, 64), np.float32)}
    program = check_gpu(kernel, arch=arch, **args)
    rows = rows_of(program)
    if arch == "sm_80":
        assert not any(r.startswith("griddepcontrol") for r in rows)
        return
    assert rows.count("griddepcontrol.launch_dependents") == 1
    # Both the warp that loads and those that multiply wait before they read anything.
    assert rows.count("griddepcontrol.wait") == 2
    assert [dict(k.attrs).get("pdl", False) for k in kernels_of(program)] == [False, True]
