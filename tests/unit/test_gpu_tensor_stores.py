"""Results stored by tensor copies: the same as without them, for every shape that has boxes."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang.language as T
from gpu_build import TARGETS, check_gpu, simulate
from tilelang.errors import TileError
from tilelang.ir.thread import Instr
from tilelang.ir.tile import If
from tilelang.passes import pipeline
from tilelang.passes.simt.switches import switched

RANDOM = np.random.default_rng(4)


def normal(*shape, dtype=np.float16):
    return RANDOM.normal(size=shape).astype(dtype)


def stores(program) -> list[str]:
    return [n.row for n in program.walk() if isinstance(n, Instr) and n.row.endswith(".store")]


def notes(program) -> list[str]:
    return [text for _, text, _ in dict(program.attrs).get("notes", ())]


def both(kernel, **args):
    """The program with tensor stores and the one without, each compared with the emulator."""
    without = check_gpu(kernel, without=("tma-store",), **args)
    assert not stores(without)
    return check_gpu(kernel, **args)


def through_shared(m, n, tile, dtype="float16"):
    rows, columns = tile

    @T.prim_func
    def kernel(A: T.Tensor((m, n), dtype), B: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(n, columns), T.ceildiv(m, rows), threads=96) as (bx, by):
            s = T.alloc_shared((rows, columns), dtype)
            T.copy(A[by * rows, bx * columns], s)
            for i, j in T.Parallel(rows, columns):
                s[i, j] = s[i, j] + s[i, j]
            T.copy(s, B[by * rows, bx * columns])

    return kernel


@pytest.mark.parametrize(
    ("shape", "tile", "dtype"),
    [
        ((64, 128), (64, 128), "float16"),  # two panels
        ((100, 96), (64, 64), "float16"),  # reaches past the end
        ((127, 40), (24, 40), "float16"),  # a row is no power of two of groups
        ((48, 24), (16, 24), "float32"),
        ((512, 64), (512, 64), "int8"),  # more rows than a box has
        ((33, 16), (16, 16), "float64"),
    ],
)
def test_a_shared_tile_is_stored_by_its_boxes(shape, tile, dtype):
    kernel = through_shared(*shape, tile, dtype)
    a = RANDOM.integers(-50, 50, shape).astype(dtype)
    program = both(kernel, A=a, B=np.zeros(shape, dtype))
    assert stores(program)


@pytest.mark.parametrize(
    ("shape", "tile", "why"),
    [
        ((64, 60), (32, 32), "no multiple of 16 bytes"),
        ((64, 64), (12, 64), "a tile of 12 x 64 float16 has no box"),
        ((8, 24), (4, 20), "has no box"),
        ((8, 64), (8, 64), "s has less than 16 bytes for each thread"),
    ],
)
def test_a_tile_without_boxes_is_stored_by_threads_and_the_report_says_why(shape, tile, why):
    kernel = through_shared(*shape, tile)
    program = both(kernel, A=normal(*shape), B=np.zeros(shape, np.float16))
    assert not stores(program)
    assert any(why in n for n in notes(program))


def test_tiles_of_one_axis_and_of_three():
    @T.prim_func
    def kernel(
        A: T.Tensor((3, 40, 64), "float16"),
        B: T.Tensor((3, 40, 64), "float16"),
        C: T.Tensor((5, 1024), "float32"),
    ):
        with T.Kernel(5, threads=64) as b:
            s = T.alloc_shared((2, 16, 64), "float16")
            r = T.alloc_shared((1024,), "float32")
            T.copy(A[1:3, b * 8 : b * 8 + 16, 0:64], s)
            T.copy(s, B[1:3, b * 8 : b * 8 + 16, 0:64])
            for i in T.Parallel(1024):
                r[i] = i + b
            T.copy(r, C[b, 0:1024])

    # Neighbouring blocks store the same values into the rows that they share.
    a = np.broadcast_to(normal(1, 1, 64), (3, 40, 64)).copy()
    program = both(kernel, A=a, B=np.zeros_like(a), C=np.zeros((5, 1024), np.float32))
    assert {r.split(".")[4] for r in stores(program)} == {"2d", "3d"}


def test_a_tile_that_is_written_again_is_read_before():
    @T.prim_func
    def kernel(A: T.Tensor((4, 64, 64), "float16"), B: T.Tensor((4, 64, 64), "float16")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((64, 64), "float16")
            for k in T.serial(4):
                T.copy(A[k, 0:64, 0:64], s)
                T.copy(s, B[k, 0:64, 0:64])

    program = both(kernel, A=normal(4, 64, 64), B=np.zeros((4, 64, 64), np.float16))
    assert stores(program) == ["cp.async.bulk.tensor.3d.store"]


@pytest.mark.parametrize("rounds", [3, 5])
def test_results_of_many_rounds_are_stored_by_tensor_copies(rounds):
    m = rounds * 128 - 28

    @T.prim_func
    def kernel(
        A: T.Tensor((m, 64), "float16"),
        B: T.Tensor((96, 64), "float16"),
        C: T.Tensor((2, m, 96), "float16"),
    ):
        with T.Kernel(2, threads=128) as bx:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((96, 64), "float16")
            c = T.alloc_fragment((64, 96), "float32")
            T.copy(B, b)
            for r in T.serial(T.ceildiv(m, 128)):
                row = (r * 2 + bx) * 64
                T.copy(A[row, 0], a)
                T.gemm(a, b, c, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(64, 96):
                    C[1, row + i, j] = c[i, j] / 4

    a, b = (RANDOM.integers(-3, 4, (n, 64)).astype(np.float16) for n in (m, 96))
    program = both(kernel, A=a, B=b, C=np.zeros((2, m, 96), np.float16))
    assert bool(stores(program)) == (rounds > 3)


def test_an_array_that_the_kernel_uses_elsewhere_is_stored_by_threads():
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64, 64), "float32")
            T.copy(A, s)
            T.copy(s, B)
            for i, j in T.Parallel(64, 64):
                A[i, j] = B[63 - i, j]

    a = normal(64, 64, dtype=np.float32)
    program = both(kernel, A=a, B=np.zeros_like(a))
    assert any("B is used in another place of the kernel" in n for n in notes(program))


@pytest.mark.parametrize("fault", ["barrier.sync", "fence.proxy.async"])
def test_a_missing_fence_or_barrier_before_a_store_is_found(fault):
    kernel = through_shared(64, 64, (64, 64))
    at = switched(kernel.ir, ())
    for one in pipeline.MANY_THREADS:
        at = one(at, TARGETS["sm_90a"])
    broken = at.rewrite(lambda n: () if isinstance(n, Instr) and n.row == fault else None)
    args = {"A": normal(64, 64), "B": np.zeros((64, 64), np.float16)}
    with pytest.raises(TileError):
        simulate(broken, args)


def test_one_thread_issues_the_stores_and_waits():
    kernel = through_shared(64, 128, (64, 128))
    program = check_gpu(kernel, A=normal(64, 128), B=np.zeros((64, 128), np.float16))
    (one,) = (
        n
        for n in program.walk()
        if isinstance(n, If) and any(isinstance(s, Instr) and ".store" in s.row for s in n.then)
    )
    rows = [s.row for s in one.then if isinstance(s, Instr)]
    assert rows[-2:] == ["cp.async.bulk.commit_group", "cp.async.bulk.wait_group.read"]
