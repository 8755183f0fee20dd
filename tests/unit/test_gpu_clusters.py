"""Blocks that work together, lowered for a GPU, against the emulator: clusters, and whole grids."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang.language as T
from gpu_build import check_gpu, gpu_program
from tilelang.errors import TileError
from tilelang.ir.thread import Instr, kernels_of

RANDOM = np.random.default_rng(7)


def integers(*shape, dtype=np.float32):
    return RANDOM.integers(-4, 5, shape).astype(dtype)


def rows_of(program) -> list[str]:
    return [n.row for n in program.walk() if isinstance(n, Instr)]


@pytest.mark.parametrize(("n", "dtype"), [(128, "float32"), (127, "float16"), (1, "int8")])
@pytest.mark.parametrize("barrier", [True, False])
def test_a_block_writes_into_the_next_ones_memory(n, dtype, barrier):
    @T.prim_func
    def kernel(A: T.Tensor((8, n), dtype), B: T.Tensor((8, n), dtype)):
        with T.ClusterKernel(8, threads=64, cluster_dims=4) as bx:
            src = T.alloc_shared((n,), dtype)
            dst = T.alloc_shared((n,), dtype)
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

    a = integers(8, n, dtype=dtype)
    program = check_gpu(kernel, A=a, B=np.zeros_like(a))
    rows = rows_of(program)
    assert ("cp.async.bulk.cluster" in rows) == (barrier and n == 128)
    assert "mbarrier.try_wait.parity.cluster" in rows or not barrier
    assert [k.cluster for k in kernels_of(program)] == [(4, 1, 1)]
    assert rows[-2:] == ["barrier.cluster.arrive", "barrier.cluster.wait"]


@pytest.mark.parametrize("barrier", [True, False])
def test_a_tile_that_products_read_comes_from_another_block(barrier):
    @T.prim_func
    def kernel(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((2, 64, 64), "float16"),
        C: T.Tensor((2, 64, 64), "float32"),
    ):
        with T.ClusterKernel(2, threads=128, cluster_dims=2) as bx:
            a = T.alloc_shared((64, 64), "float16")
            mine = T.alloc_shared((64, 64), "float16")
            theirs = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            bar = T.alloc_cluster_barrier([1])
            T.copy(A, a)
            T.copy(B[bx, 0:64, 0:64], mine)
            T.cluster_sync()
            if barrier:
                T.copy_cluster(mine, theirs, dst_block=1 - bx, remote_barrier=bar[0])
                T.mbarrier_wait_parity(bar[0], 0)
            else:
                T.copy_cluster(mine, theirs, dst_block=1 - bx)
                T.cluster_sync()
            T.gemm(a, theirs, c, clear_accum=True)
            T.copy(c, C[bx, 0:64, 0:64])

    args = {"A": integers(64, 64, dtype=np.float16), "B": integers(2, 64, 64, dtype=np.float16)}
    program = check_gpu(kernel, C=np.zeros((2, 64, 64), np.float32), **args)
    assert any(r.startswith("wgmma.m64n64") for r in rows_of(program))


@pytest.mark.parametrize("mask", [0b0011, 0b1010, 0b1111, 0b0100])
@pytest.mark.parametrize("n", [64, 40])
def test_a_load_that_several_blocks_receive(mask, n):
    """A tile that has no box is loaded by each of them."""

    @T.prim_func
    def kernel(A: T.Tensor((8, n), "float32"), B: T.Tensor((8, n), "float32")):
        with T.ClusterKernel(8, threads=64, cluster_dims=4) as bx:
            t = T.alloc_shared((2, n), "float32")
            bar = T.alloc_barrier(64)
            T.tma_copy(A[bx, :], t[1, :], barrier=bar, cluster_mask=mask)
            T.mbarrier_arrive(bar)
            T.mbarrier_wait_parity(bar, 0)
            T.copy(t[1, :], B[bx, :])

    a = integers(8, n)
    program = check_gpu(kernel, A=a, B=np.zeros_like(a))
    several = mask.bit_count() > 1 and n == 64
    assert ("cp.async.bulk.tensor.2d.load.multicast" in rows_of(program)) == several


def test_arrivals_at_another_blocks_barrier():
    @T.prim_func
    def kernel(A: T.Tensor((4,), "int32"), B: T.Tensor((4,), "int32")):
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

    check_gpu(kernel, A=np.zeros(4, np.int32), B=np.zeros(4, np.int32))


def test_a_cluster_of_one_block_is_no_cluster():
    @T.prim_func
    def kernel(A: T.Tensor((2, 64), "float32"), B: T.Tensor((2, 64), "float32")):
        with T.ClusterKernel(2, threads=64, cluster_dims=1) as bx:
            s = T.alloc_shared((64,), "float32")
            bar = T.alloc_cluster_barrier([64])
            T.tma_copy(A[bx, :], s, barrier=bar, cluster_mask=1)
            T.mbarrier_arrive(bar, 0)
            T.mbarrier_wait_parity(bar, 0)
            T.cluster_sync()
            T.copy(s, B[bx, :])

    a = integers(2, 64)
    rows = rows_of(check_gpu(kernel, A=a, B=np.zeros_like(a)))
    assert not any("cluster" in r or "multicast" in r for r in rows)


@pytest.mark.parametrize("mask", [0b0011, 0b1010, 0b1111, 0b0100])
def test_a_tile_of_one_block_for_several(mask):
    @T.prim_func
    def kernel(A: T.Tensor((3, 8, 40), "float32"), B: T.Tensor((3, 8, 40), "float32")):
        with T.ClusterKernel(4, 2, threads=64, cluster_dims=(2, 2)) as (bx, by):
            s = T.alloc_shared((40,), "float32")
            number = by * 4 + bx
            for k in T.serial(3):
                T.copy_cluster(A[k, number, :], s, cluster_mask=mask)
                T.copy(s, B[k, number, :])

    a = integers(3, 8, 40)
    check_gpu(kernel, A=a, B=np.zeros_like(a))


def test_a_copy_to_several_blocks_of_what_an_array_points_to_is_refused():
    @T.prim_func
    def kernel(A: T.Tensor((2, 64), "float32"), I: T.Tensor((2,), "int32")):
        with T.ClusterKernel(2, threads=64, cluster_dims=2) as bx:
            s = T.alloc_shared((64,), "float32")
            T.copy_cluster(A[I[bx], :], s, cluster_mask=3)

    with pytest.raises(TileError, match="of what an array points to is not built"):
        gpu_program(kernel.ir)


@pytest.mark.parametrize("blocks", [1, 2, 9])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_all_blocks_wait_for_each_other(blocks, arch):
    @T.prim_func
    def kernel(A: T.Tensor((blocks,), "int32"), B: T.Tensor((blocks,), "int32")):
        with T.Kernel(blocks, threads=64) as bx:
            s = T.alloc_shared((64,), "int32")
            tx = T.get_thread_binding()
            for k in T.serial(2):
                A[bx] = B[bx] + bx * (k + 1)
                T.sync_grid()
                s[tx] = A[(bx + 1) % blocks]
                T.sync_grid()
                B[bx] = s[63]

    zero = np.zeros(blocks, np.int32)
    program = check_gpu(kernel, arch=arch, A=zero, B=zero)
    (one,) = kernels_of(program)
    assert dict(one.attrs)["cooperative"]
