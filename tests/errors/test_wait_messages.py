"""The whole text of what a run says when threads wait for something that never comes."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from hang_guard import hang_guard  # noqa: F401 - a fixture
from tilelang.errors import TileError

pytestmark = pytest.mark.usefixtures("hang_guard")


@T.prim_func
def too_few_arrivals(A: T.Tensor((64,), "float32")):
    with T.Kernel(2, threads=128):
        bar = T.alloc_barrier(64)
        tx = T.get_thread_binding()
        if tx < 32:
            T.mbarrier_arrive(bar[0])
        T.mbarrier_wait_parity(bar[0], 0)
        A[0] = 1.0


@T.prim_func
def too_few_bytes(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=128):
        s = T.alloc_shared((64,), "float32")
        bar = T.alloc_barrier(128)
        T.mbarrier_expect_tx(bar[0], 4)
        T.tma_copy(A, s, barrier=bar[0])
        T.mbarrier_arrive(bar[0])
        T.mbarrier_wait_parity(bar[0], 0)


@T.prim_func
def producer_and_consumer(A: T.Tensor((4, 64), "float32"), B: T.Tensor((4, 64), "float32")):
    with T.Kernel(1, threads=256):
        s = T.alloc_shared((64,), "float32")
        full = T.alloc_barrier(128)
        free = T.alloc_barrier(128)
        with T.ws(1):
            for k in T.serial(4):
                T.mbarrier_wait_parity(free, k % 2)
                T.tma_copy(A[k, :], s, barrier=full)
                T.mbarrier_arrive(full)
        with T.ws(0):
            for k in T.serial(4):
                T.mbarrier_wait_parity(full, k % 2)
                T.copy(s, B[k, :])
                T.mbarrier_arrive(free)


@T.prim_func
def named_barrier_count(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=128):
        tx = T.get_thread_binding()
        if tx < 64:
            T.sync_threads(1, 96)
        A[0] = 1.0


@T.prim_func
def named_barriers_of_two_warps():
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        if tx < 32:
            T.sync_threads(1, 64)
        else:
            T.sync_threads(2, 64)


@T.prim_func
def some_blocks_at_the_grid_barrier():
    with T.Kernel(6, threads=32) as bx:
        if bx < 4:
            T.sync_grid()


@T.prim_func
def one_block_of_a_cluster():
    with T.ClusterKernel(4, threads=64, cluster_dims=2) as bx:
        bar = T.alloc_cluster_barrier([64, 64])
        if bx % 2 == 0:
            T.cluster_sync()
            T.mbarrier_arrive(bar[1], 1)
        else:
            T.mbarrier_wait_parity(bar[1], 0)
            T.cluster_sync()


@T.prim_func
def lanes_that_wait_for_lanes(A: T.Tensor((32,), "int32")):
    with T.Kernel(1, threads=32):
        bar = T.alloc_barrier(1)
        tx = T.get_thread_binding()
        if tx == 0:
            T.mbarrier_wait_parity(bar, 0)
        elif tx == 5:
            T.mbarrier_arrive(bar)


@T.prim_func
def flag_that_nobody_sets(F: T.Tensor((2,), "int32")):
    with T.Kernel(3, threads=64):
        tx = T.get_thread_binding()
        if tx == 0:
            while T.atomic_load(F[0], "acquire") < 3:
                pass
        if tx == 32:
            T.atomic_add(F[1], 1)


@T.prim_func
def counts_for_ever(F: T.Tensor((2,), "int32")):
    with T.Kernel(2, threads=32):
        rounds = T.alloc_var("int32", init=0)
        while T.atomic_load(F[0], "acquire") == 0:
            rounds = rounds + 1


@T.prim_func
def too_many_arrivals():
    with T.Kernel(1, threads=128):
        bar = T.alloc_barrier(96)
        T.mbarrier_arrive(bar[0])
        T.mbarrier_wait_parity(bar[0], 0)


@T.prim_func
def no_such_barrier(A: T.Tensor((2,), "int32")):
    with T.Kernel(2, threads=128) as bx:
        bars = T.alloc_barrier([128, 128])
        T.mbarrier_arrive(bars[A[bx]])


@T.prim_func
def no_such_block(n: T.int32):
    with T.ClusterKernel(2, threads=32, cluster_dims=2):
        bar = T.alloc_cluster_barrier([32])
        T.mbarrier_arrive(bar[0], n)


@T.prim_func
def product_of_half_a_warp(A: T.Tensor((64, 16), "float16")):
    with T.Kernel(1, threads=128):
        tx = T.get_thread_binding()
        a = T.alloc_shared((64, 16), "float16")
        c = T.alloc_fragment((64, 64), "float32")
        T.copy(A, a)
        T.clear(c)
        if tx < 16:
            T.wgmma_gemm(a, a, c, transpose_B=True)


@T.prim_func
def arrival_inside_parallel():
    with T.Kernel(1, threads=128):
        bar = T.alloc_barrier(128)
        for _ in T.Parallel(64):
            T.mbarrier_arrive(bar[0])


@T.prim_func
def specialisation_under_a_condition(A: T.Tensor((128,), "int32")):
    with T.Kernel(1, threads=256):
        tx = T.get_thread_binding()
        if A[tx % 128] > 0:
            with T.ws(0):
                A[tx] = 1


@T.prim_func
def warps_at_different_places(A: T.Tensor((128,), "int32"), B: T.Tensor((128,), "int32")):
    with T.Kernel(1, threads=256):
        s = T.alloc_shared((128,), "int32")
        with T.ws(1):
            A[0] = 1
        if A[0] == 1:  # a race: the first group may read it before the second has written
            T.copy(A, s)
        T.copy(s, B)


@T.prim_func
def counting_barrier_in_a_branch(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        if A[tx] > 0:
            B[tx] = T.syncthreads_count(A[tx] > 1)


@T.prim_func
def barrier_in_a_branch(A: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        if A[tx] > 0:
            T.sync_threads()


@T.prim_func
def fault_of_a_thread(A: T.Tensor((256,), "int32")):
    with T.Kernel(2, threads=(128, 2)):
        x, y = T.get_thread_binding(0), T.get_thread_binding(1)
        s = T.alloc_shared((128,), "int32")
        bar = T.alloc_barrier(256)
        T.mbarrier_arrive(bar)
        T.mbarrier_wait_parity(bar, 0)
        with T.ws(1):
            s[A[x + y * 128]] = x


@T.prim_func
def assertion_of_a_thread(A: T.Tensor((256,), "int32")):
    with T.Kernel(2, threads=(128, 2)) as bx:
        x, y = T.get_thread_binding(0), T.get_thread_binding(1)
        bar = T.alloc_barrier(256)
        T.mbarrier_arrive(bar)
        T.mbarrier_wait_parity(bar, 0)
        with T.ws(1):
            T.device_assert(x + y * 128 + bx < 200, "small enough")


def ints(n, value=0):
    return np.full(n, value, np.int32)


def floats(*shape):
    return np.zeros(shape, np.float32)


HALF = ints(64)
HALF[3] = 1
CASES = [
    (too_few_arrivals, (floats(64),)),
    (too_few_bytes, (floats(64),)),
    (producer_and_consumer, (floats(4, 64), floats(4, 64))),
    (named_barrier_count, (floats(64),)),
    (named_barriers_of_two_warps, ()),
    (some_blocks_at_the_grid_barrier, ()),
    (one_block_of_a_cluster, ()),
    (lanes_that_wait_for_lanes, (ints(32),)),
    (flag_that_nobody_sets, (ints(2),)),
    (counts_for_ever, (ints(2),)),
    (too_many_arrivals, ()),
    (no_such_barrier, (ints(2, 2),)),
    (no_such_block, (2,)),
    (product_of_half_a_warp, (np.zeros((64, 16), np.float16),)),
    (arrival_inside_parallel, ()),
    (specialisation_under_a_condition, (ints(128),)),
    (warps_at_different_places, (ints(128), ints(128))),
    (counting_barrier_in_a_branch, (HALF, ints(64))),
    (barrier_in_a_branch, (HALF,)),
    (fault_of_a_thread, (np.arange(256, dtype=np.int32) - 50,)),
    (assertion_of_a_thread, (ints(256),)),
]


@pytest.mark.parametrize(("kernel", "args"), CASES, ids=[k.ir.name for k, _ in CASES])
def test_message(kernel, args, golden):
    with pytest.raises(TileError) as info:
        tilelang.compile(kernel, target="emulate:sm_90a")(*args)
    golden(str(info.value), f"errors/waits_{kernel.ir.name}")
