"""What has no machine code for the CPU: the emulator runs it, a warning names it at the author's
line, and docs/cpu.md lists it.
"""

import re
from pathlib import Path

import numpy as np
import pytest

import tilelang
import tilelang.language as T

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cpu.md"
n = T.dynamic("n")
F64 = T.Tensor((64,), "float32")


@T.prim_func
def warp_specialisation(A: F64):
    with T.Kernel(1, threads=256), T.ws(0):
        A[0] = 1


@T.prim_func
def cluster_barrier(A: F64):
    with T.Kernel(2, threads=32, cluster_dims=2) as bx:
        A[bx] = 1
        T.cluster_sync()


@T.prim_func
def copy_between_blocks(A: F64):
    with T.Kernel(2, threads=32, cluster_dims=2):
        s, t = T.alloc_shared((64,), "float32"), T.alloc_shared((64,), "float32")
        T.copy(A, s)
        T.copy_cluster(s, t, dst_block=1)


@T.prim_func
def multicast(A: F64):
    with T.Kernel(2, threads=32, cluster_dims=2):
        s, bar = T.alloc_shared((64,), "float32"), T.alloc_barrier(32)
        T.tma_copy(A, s, barrier=bar, cluster_mask=3)


@T.prim_func
def rows_from_anywhere(A: T.Tensor((64, 64), "float16")):
    with T.Kernel(1, threads=32):
        s, bar = T.alloc_shared((4, 64), "float16"), T.alloc_barrier(32)
        T.tma_gather4(A, s, 0, [3, 2, 1, 0], barrier=bar)


@T.prim_func
def clusters_that_have_not_begun(A: F64):
    with T.Kernel(2, threads=32):
        answer, bar = T.alloc_shared((4,), "uint32"), T.alloc_barrier(32)
        T.clc_try_cancel(answer, bar)
        T.mbarrier_arrive_expect_tx(bar, 16)
        T.mbarrier_wait_parity(bar, 0)
        A[T.clc_get_first_ctaid_x(answer)] = 1


@T.prim_func
def rows_to_anywhere(A: T.Tensor((64, 64), "float16")):
    with T.Kernel(1, threads=32):
        s = T.alloc_shared((4, 64), "float16")
        T.clear(s)
        T.tma_scatter4(s, A, 0, [3, 2, 1, 0])


@T.prim_func
def arrival_in_another_block(A: F64):
    with T.Kernel(2, threads=32, cluster_dims=2):
        bar = T.alloc_cluster_barrier([64])
        T.mbarrier_arrive(bar, 0)
        T.mbarrier_wait_parity(bar, 0)
        A[0] = 1


@T.prim_func
def product_of_two_blocks(A: T.Tensor((128, 64), "float16")):
    with T.Kernel(2, threads=128, cluster_dims=2):
        a, b = T.alloc_shared((128, 64), "float16"), T.alloc_shared((64, 64), "float16")
        c, bar = T.alloc_tmem((128, 128), "float32"), T.alloc_cluster_barrier([1])
        T.copy(A, a)
        T.copy(A[0:64, :], b)
        T.tcgen05_gemm(a, b, c, mbar=bar, transpose_B=True, use_2cta=True, clear_accum=True)


@T.prim_func
def barrier_of_some_threads(A: F64):
    with T.Kernel(1, threads=64):
        s, t = T.alloc_shared((64,), "float32"), T.get_thread_binding()
        if t < 32:
            s[t] = A[t]
            T.sync_threads(3, 32)
            A[t] = s[31 - t]


@T.prim_func
def arrival_without_waiting(A: F64):
    with T.Kernel(1, threads=64):
        t = T.get_thread_binding()
        if t < 32:
            T.named_barrier_arrive(1, 64)
        else:
            T.sync_threads(1, 64)
            A[t] = 1


@T.prim_func
def collective_of_some_warps(A: F64):
    with T.Kernel(1, threads=64):
        t = T.get_thread_binding()
        if t < 32:
            A[t] = T.warp_reduce_sum(A[t])


@T.prim_func
def loop_that_warps_leave_apart(A: F64):
    with T.Kernel(1, threads=64):
        t = T.get_thread_binding()
        for k in T.serial(4):
            if k > t // 32:
                break
            A[t] = T.shfl_down(A[t], 1)


@T.prim_func
def warps_that_return_early(A: F64):
    with T.Kernel(1, threads=64):
        t = T.get_thread_binding()
        if t >= 32:
            T.thread_return()
        A[t] = T.shfl_down(A[t], 1)


@T.prim_func
def grid_barrier_in_a_loop(A: F64):
    with T.Kernel(2, threads=32) as bx:
        for _ in T.serial(3):
            A[bx] += 1
            T.sync_grid()


@T.prim_func
def value_kept_across_a_grid_barrier(A: F64):
    with T.Kernel(2, threads=32) as bx:
        x = A[bx + 2]
        T.sync_grid()
        A[bx] = x


@T.prim_func
def waiting_for_another_block(A: T.Tensor((64,), "int32")):
    with T.Kernel(2, threads=1) as bx:
        if bx == 0:
            T.atomic_store(A[0], 1)
        else:
            while T.atomic_load(A[0]) == 0:
                pass


@T.prim_func
def own_array_by_address(A: F64):
    with T.Kernel(1, threads=64):
        t, s = T.get_thread_binding(), T.alloc_shared((64,), "float32")
        own = T.alloc_local((4,), "float32")
        own[0] = A[t]
        s[t] = own[0]
        T.sync_threads()
        other = T.view(own, (2, 2), "float32")
        A[t] = other[0, 0] + s[63 - t]


@T.prim_func
def several_draws_of_an_iteration(A: T.Tensor((64,), "uint32")):
    with T.Kernel(1, threads=32):
        T.rng_init(1)
        for i in T.Parallel(64):
            A[i] = T.rng_rand() ^ T.rng_rand()


@T.prim_func
def barrier_that_counts_some(A: F64):
    with T.Kernel(1, threads=64):
        A[T.get_thread_binding()] = 1
        T.sync_threads(3, 32)


@T.prim_func
def arrival_that_nobody_waits_for(A: F64):
    with T.Kernel(1, threads=64):
        T.named_barrier_arrive(1, 64)
        A[0] = 1


@T.prim_func
def wait_of_some_threads(A: F64):
    with T.Kernel(1, threads=64):
        t, bar = T.get_thread_binding(), T.alloc_barrier(32)
        if t < 32:
            T.mbarrier_arrive(bar)
        else:
            T.mbarrier_wait_parity(bar, 0)
            A[t] = 1


@T.prim_func
def update_of_a_vector(A: T.Tensor((64,), "float32x2")):
    with T.Kernel(1, threads=32):
        T.atomic_add(A[0], A[4])


@T.prim_func
def atomic_load_in_an_arm(A: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=32):
        A[1] = T.if_then_else(A[0] > 0, T.atomic_load(A[2]), 5)


@T.prim_func
def copy_onto_itself(A: T.Tensor((n,), "float32")):
    with T.Kernel(1, threads=32):
        T.copy(A[0 : n - 1], A[1:n])


KERNELS = {
    warp_specialisation: "T.ws cannot run",
    cluster_barrier: "T.cluster_sync cannot run",
    copy_between_blocks: "T.copy_cluster cannot run",
    multicast: "T.tma_copy cannot run",
    clusters_that_have_not_begun: "T.clc_try_cancel cannot run",
    rows_from_anywhere: "T.tma_gather4 cannot run",
    rows_to_anywhere: "T.tma_scatter4 cannot run",
    arrival_in_another_block: "T.mbarrier_arrive cannot run",
    product_of_two_blocks: "T.tcgen05_gemm cannot run",
    arrival_that_nobody_waits_for: "T.named_barrier_arrive cannot run",
    barrier_of_some_threads: "only some threads get there",
    arrival_without_waiting: "only some threads get there",
    collective_of_some_warps: "only some threads get there",
    wait_of_some_threads: "only some threads get there",
    barrier_that_counts_some: "it counts only some of them",
    loop_that_warps_leave_apart: "some threads leave the loop before others",
    warps_that_return_early: "some threads may have returned",
    own_array_by_address: "is used across a barrier by its",
    grid_barrier_in_a_loop: "T.sync_grid inside a loop or condition",
    value_kept_across_a_grid_barrier: "a value from memory, across T.sync_grid",
    waiting_for_another_block: "a loop that waits for another block",
    several_draws_of_an_iteration: "a T.Parallel nest that draws several numbers an iteration",
    update_of_a_vector: "an atomic update of a vector element",
    atomic_load_in_an_arm: "T.atomic_load in an arm of a choice",
    copy_onto_itself: "an operation on overlapping regions of runtime size",
}
kernels = pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)


@kernels
@pytest.mark.parametrize("target", ["cpu", None])
def test_the_emulator_runs_it_and_a_warning_says_why_and_where(kernel, target):
    made = tilelang.compile(kernel, target=target)
    assert made.target == "cpu (by the emulator)"
    (said,) = [d for d in made.warnings if d.kind == "target"]
    assert KERNELS[kernel] in said.message
    assert "target='emulate'" in said.help
    assert said.loc.file == __file__
    assert said.loc.line > kernel.loc.line


@pytest.mark.parametrize("target", ["cpu", "emulate"])
def test_warp_groups_give_the_right_numbers_whatever_the_target(target):
    @T.prim_func
    def main(A: T.Tensor((2, 64), "float32"), B: T.Tensor((2,), "float32")):
        with T.Kernel(1, threads=256):
            row, total = T.alloc_shared((2, 64), "float32"), T.alloc_fragment((1,), "float32")
            T.copy(A, row)
            with T.ws(0):
                T.reduce_sum(row[0, :], total)
                T.copy(total, B[0])
            with T.ws(1):
                T.reduce_max(row[1, :], total)
                T.copy(total, B[1])

    a, b = np.arange(128, dtype=np.float32).reshape(2, 64), np.zeros(2, np.float32)
    tilelang.compile(main, target=target)(a, b)
    assert b.tolist() == [a[0].sum(), 127]


def test_the_page_lists_them_all():
    table = PAGE.read_text().split("## What the emulator carries out")[1]
    listed = re.findall(r"^\| .* \| `([^`|]+)` \|$", table, re.MULTILINE)
    assert sorted(listed) == sorted(set(KERNELS.values()))
