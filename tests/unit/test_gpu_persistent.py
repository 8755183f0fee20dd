"""Kernels whose blocks take several tiles, lowered for a GPU: producers run ahead over tiles."""

import numpy as np
import pytest

import tilelang.language as T
from gpu_build import check_gpu, few_cores
from tilelang.ir.thread import Instr, kernels_of

RANDOM = np.random.default_rng(6)


def integers(*shape, dtype=np.float16):
    return RANDOM.integers(-4, 5, shape).astype(dtype)


def rows_of(program) -> list[str]:
    return [n.row for n in program.walk() if isinstance(n, Instr)]


def notes(program) -> list[str]:
    return [text for _, text, _ in dict(program.attrs).get("notes", ())]


@T.macro
def one_tile(A, B, C, row, column, buffers):
    a, b, c = buffers
    T.clear(c)
    for k in T.Pipelined(T.ceildiv(A.shape[1], 32), num_stages=2):
        T.copy(A[row * 64, k * 32], a)
        T.copy(B[k * 32, column * 64], b)
        T.gemm(a, b, c)
    T.copy(c, C[row * 64, column * 64])


@T.macro
def buffers():
    a = T.alloc_shared((64, 32), "float16")
    b = T.alloc_shared((32, 64), "float16")
    return a, b, T.alloc_fragment((64, 64), "float32")


def by_loop(m, n, k, workers):
    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(workers, threads=128) as worker:
            made = buffers()
            domain = (T.ceildiv(m, 64), T.ceildiv(n, 64))
            for row, column in T.Persistent(domain, workers, worker, group_size=2):
                one_tile(A, B, C, row, column, made)

    return kernel


def by_scheduler(m, n, k, workers):
    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(workers, threads=128) as worker:
            made = buffers()
            tile = T.PersistentTileScheduler(
                T.ceildiv(m, 64), T.ceildiv(n, 64), workers, swizzle_size=2
            )
            tile.init(worker)
            while tile.valid():
                one_tile(A, B, C, tile.m_idx, tile.n_idx, made)
                tile.next_tile()

    return kernel


def by_hand(m, n, k, workers):
    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(workers, threads=128) as worker:
            made = buffers()
            columns = T.ceildiv(n, 64)
            tiles = T.ceildiv(m, 64) * columns
            for wave in T.serial(T.ceildiv(tiles, workers)):
                number = wave * workers + worker
                if number < tiles:
                    one_tile(A, B, C, number // columns, number % columns, made)

    return kernel


@pytest.mark.parametrize("make", [by_loop, by_scheduler, by_hand])
@pytest.mark.parametrize(("m", "n", "k"), [(264, 120, 72), (40, 24, 8)])
def test_the_producer_runs_ahead_over_tiles(make, m, n, k):
    args = {"A": integers(m, k), "B": integers(k, n), "C": np.zeros((m, n), np.float32)}
    program = check_gpu(make(m, n, k, 2), **args)
    rows = rows_of(program)
    assert "cp.async.bulk.tensor.2d.load" in rows
    # Threads store the only tile of a block; how many a scheduler gives is not known.
    assert ("cp.async.bulk.tensor.2d.store" in rows) == (m > 64 or make is by_scheduler)
    assert any("2 stages of tensor copies" in t for t in notes(program))


def test_a_count_that_the_kernel_computes_is_not_followed():
    @T.prim_func
    def kernel(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
        N: T.Tensor((1,), "int32"),
    ):
        with T.Kernel(1, threads=128):
            a, b, c = buffers()
            N[0] = N[0] + 1
            T.clear(c)
            left = T.alloc_var("int32")
            left = N[0]
            while left > 0:
                for k in T.Pipelined(2, num_stages=2):
                    T.copy(A[0, k * 32], a)
                    T.copy(B[k * 32, 0], b)
                    T.gemm(a, b, c)
                left = left - 1
            T.copy(c, C)

    args = {"A": integers(64, 64), "B": integers(64, 64), "C": np.zeros((64, 64), np.float32)}
    program = check_gpu(kernel, N=np.array([2], np.int32), **args)
    assert any("depends on what the kernel computes" in t for t in notes(program))


@pytest.mark.parametrize("skip", [0, 1])
def test_a_round_that_is_left_early_is_not_followed(skip):
    @T.prim_func
    def kernel(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        C: T.Tensor((2, 64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a, b, c = buffers()
            for t in T.serial(2):
                if t == skip:
                    continue
                T.clear(c)
                for k in T.Pipelined(2, num_stages=2):
                    T.copy(A[0, k * 32], a)
                    T.copy(B[k * 32, 0], b)
                    T.gemm(a, b, c)
                T.copy(c, C[t, 0, 0])

    args = {"A": integers(64, 64), "B": integers(64, 64)}
    program = check_gpu(kernel, C=np.zeros((2, 64, 64), np.float32), **args)
    assert any("left before its end" in t for t in notes(program))


# Blocks that stay though the author has one for each tile -----------------------------------------


def plain(m, n, k, *, more=None, threads=256, stages=2):
    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((n, k), "float16"),
        C: T.Tensor((m, n), "float16"),
    ):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 128), threads=threads) as (bx, by):
            a = T.alloc_shared((128, 32), "float16")
            b = T.alloc_shared((64, 32), "float16")
            c = T.alloc_fragment((128, 64), "float32")
            if more is not None:
                more()
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, 32), num_stages=stages):
                T.copy(A[by * 128, ko * 32], a)
                T.copy(B[bx * 64, ko * 32], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C[by * 128, bx * 64])

    return kernel


@pytest.mark.parametrize("swizzled", [False, True])
@pytest.mark.parametrize(("k", "cores"), [(8, 1), (104, 1), (104, 4)])
def test_blocks_of_a_product_take_tiles_in_turn(swizzled, k, cores):
    m, n = 200, 136
    more = (lambda: T.use_swizzle(2)) if swizzled else None
    args = {"A": integers(m, k), "B": integers(n, k), "C": np.zeros((m, n), np.float16)}
    program = check_gpu(plain(m, n, k, more=more), target=few_cores(cores), **args)
    assert f"{cores} blocks take 6 tiles in turn" in notes(program)
    (kernel,) = kernels_of(program)
    assert [e.value for e in kernel.grid] == [cores]
    assert ("cp.async.bulk.tensor.2d.store" in rows_of(program)) == (cores == 1)
    apart = check_gpu(
        plain(m, n, k, more=more), target=few_cores(cores), without=("persistent",), **args
    )
    assert not any("in turn" in t for t in notes(apart))


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"threads": 128}, "several blocks of 128 threads share an SM"),
        ({"more": lambda: T.print(1)}, "a block would notice"),
        ({"more": lambda: T.alloc_barrier(1)}, "a block would notice"),
    ],
)
def test_blocks_that_could_tell_do_not_stay(how, why):
    args = {"A": integers(130, 16), "B": integers(70, 16), "C": np.zeros((130, 70), np.float16)}
    program = check_gpu(plain(130, 70, 16, **how), target=few_cores(3), **args)
    assert any(why in t for t in notes(program))


def test_as_many_tiles_as_cores_are_left_as_they_are():
    args = {"A": integers(130, 16), "B": integers(70, 16), "C": np.zeros((130, 70), np.float16)}
    program = check_gpu(plain(130, 70, 16), target=few_cores(4), **args)
    assert not any("turn" in t for t in notes(program))
