"""Tensor Memory on a chip that has it: products into it, copies out of it and into it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import block_tcgen05  # noqa: F401 - the rows of tcgen05 for the interpreter of blocks
import tilelang.language as T
from gpu_build import check_gpu
from tilelang.ir.thread import Instr

RANDOM = np.random.default_rng(7)


def numbers(*shape, dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    return RANDOM.integers(0 if dtype == "uint8" else -3, 4, shape).astype(kind)


def rows_of(program) -> list[str]:
    return [n.row for n in program.walk() if isinstance(n, Instr)]


def notes(program) -> list[str]:
    return [text for _, text, _ in dict(program.attrs).get("notes", ())]


def gemm(m, n, k, tiles, *, dtype="float16", total="float32", turn=(False, True), **how):
    """C = op(A) @ op(B) by tiles, accumulated in Tensor Memory."""
    bm, bn, bk = tiles
    ta, tb = turn
    threads, stages = how.get("threads", 128), how.get("stages", 0)

    @T.prim_func
    def kernel(
        A: T.Tensor((k, m) if ta else (m, k), dtype),
        B: T.Tensor((n, k) if tb else (k, n), dtype),
        C: T.Tensor((m, n), total),
    ):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=threads) as (bx, by):
            a = T.alloc_shared((bk, bm) if ta else (bm, bk), dtype)
            b = T.alloc_shared((bn, bk) if tb else (bk, bn), dtype)
            c = T.alloc_tmem((bm, bn), total)
            out = T.alloc_fragment((bm, bn), total)
            for ko in T.Pipelined(T.ceildiv(k, bk), num_stages=stages):
                if ta:
                    T.copy(A[ko * bk, by * bm], a)
                else:
                    T.copy(A[by * bm, ko * bk], a)
                if tb:
                    T.copy(B[bx * bn, ko * bk], b)
                else:
                    T.copy(B[ko * bk, bx * bn], b)
                T.gemm(a, b, c, transpose_A=ta, transpose_B=tb, clear_accum=ko == 0)
            T.copy(c, out)
            T.copy(out, C[by * bm, bx * bn])

    return kernel


def check(m, n, k, tiles, **how):
    """Runs a product against the emulator; small integers make every sum exact."""
    dtype, (ta, tb) = how.get("dtype", "float16"), how.get("turn", (False, True))
    a = numbers(*((k, m) if ta else (m, k)), dtype=dtype)
    b = numbers(*((n, k) if tb else (k, n)), dtype=dtype)
    c = np.zeros((m, n), how.get("total", "float32"))
    return check_gpu(gemm(m, n, k, tiles, **how), arch="sm_100a", A=a, B=b, C=c)


KINDS = [
    ("float16", "float32", "f16"),
    ("float16", "float16", "f16"),
    ("bfloat16", "float32", "f16"),
    ("float32", "float32", "tf32"),
    ("float8_e4m3fn", "float32", "f8f6f4"),
    ("float8_e5m2", "float16", "f8f6f4"),
    ("int8", "int32", "i8"),
    ("uint8", "int32", "i8"),
]


@pytest.mark.parametrize(("dtype", "total", "kind"), KINDS)
def test_products_of_every_kind(dtype, total, kind):
    program = check(128, 64, 128, (128, 64, 64), dtype=dtype, total=total)
    assert f"tcgen05.mma.{kind}" in rows_of(program)


@pytest.mark.parametrize("turn", [(True, True), (False, False), (True, False)])
@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3fn", "float32"])
def test_operands_whose_rows_lie_along_the_other_axis(turn, dtype):
    program = check(128, 64, 128, (128, 64, 64), dtype=dtype, turn=turn)
    copied = [n for n in notes(program) if "32-bit elements" in n]
    assert bool(copied) == (dtype == "float32")


@pytest.mark.parametrize("rows", [64, 128])
@pytest.mark.parametrize("columns", [16, 48, 96, 272])
def test_accumulators_of_many_widths(rows, columns):
    check(rows, columns, 32, (rows, columns, 32))


@pytest.mark.parametrize(("m", "n", "k"), [(127, 100, 40), (1, 24, 100), (200, 8, 64)])
def test_ragged_edges(m, n, k):
    check(m, n, k, (128, 48, 32))


@pytest.mark.parametrize("depth", [24, 40, 48, 100])
def test_a_depth_that_no_instruction_divides_is_filled_with_zeros(depth):
    program = check(128, 32, depth, (128, 32, depth))
    assert any("is copied" in n for n in notes(program)) == (depth % 16 != 0)


@pytest.mark.parametrize("threads", [128, 192, 256, 384])
@pytest.mark.parametrize("rows", [64, 128])
def test_any_number_of_warps_copies(threads, rows):
    check(rows, 64, 32, (rows, 64, 32), threads=threads)


@pytest.mark.parametrize("stages", [0, 2, 3])
@pytest.mark.parametrize("depth", [64, 320])
def test_stages_never_change_a_result(stages, depth):
    program = check(128, 128, depth, (128, 64, 64), stages=stages)
    loads = "cp.async.bulk.tensor.2d.load" in rows_of(program)
    assert loads == (stages > 1)
