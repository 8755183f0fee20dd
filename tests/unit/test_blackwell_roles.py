"""Loops whose copies and products warps of their own issue, and what else lies in shared memory."""

import numpy as np
import pytest

import tilelang.language as T
from blackwell_build import check_blackwell

RANDOM = np.random.default_rng(11)


def numbers(*shape, dtype="float16"):
    return RANDOM.integers(-3, 4, shape).astype(dtype)


def in_rounds(by_while):
    """C = A @ B.T, two tiles of rows for each block, each stored through shared memory."""

    @T.macro
    def tile_of(A, B, C, bufs, row):
        a, b, c, out, s = bufs
        for k in T.Pipelined(3, num_stages=2):
            T.copy(A[row, k * 32], a)
            T.copy(B[0, k * 32], b)
            T.gemm(a, b, c, transpose_B=True, clear_accum=k == 0)
        T.copy(c, out)
        T.copy(out, s)
        T.copy(s, C[row, 0])

    @T.prim_func
    def kernel(
        A: T.Tensor((512, 96), "float16"),
        B: T.Tensor((48, 96), "float16"),
        C: T.Tensor((512, 48), "float16"),
    ):
        with T.Kernel(2, threads=128) as bx:
            a, b = T.alloc_shared((128, 32), "float16"), T.alloc_shared((48, 32), "float16")
            c, out = T.alloc_tmem((128, 48), "float32"), T.alloc_fragment((128, 48), "float32")
            s = T.alloc_shared((128, 48), "float16")
            if by_while:
                tile = T.alloc_var("int32", init=0)
                while tile < 2:
                    tile_of(A, B, C, (a, b, c, out, s), (tile * 2 + bx) * 128)
                    tile += 1
            else:
                for i in T.serial(2):
                    tile_of(A, B, C, (a, b, c, out, s), (i * 2 + bx) * 128)

    return kernel


@pytest.mark.parametrize("by_while", [False, True])
def test_a_shared_result_of_a_tile_does_not_lie_where_the_next_tiles_copies_come(by_while):
    a, b = numbers(512, 96), numbers(48, 96)
    zero = np.zeros((512, 48), "float16")
    check_blackwell(in_rounds(by_while), seeds=3, A=a, B=b, C=zero)


@pytest.mark.parametrize("columns", [16, 112])
def test_what_is_in_shared_memory_before_a_loop_is_there_after_it(columns):
    @T.prim_func
    def kernel(
        A: T.Tensor((128, 96), "float16"),
        B: T.Tensor((columns, 96), "float16"),
        S: T.Tensor((128, columns), "float32"),
        C: T.Tensor((128, columns), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((128, 32), "float16"), T.alloc_shared((columns, 32), "float16")
            c, out = (
                T.alloc_tmem((128, columns), "float32"),
                T.alloc_fragment((128, columns), "float32"),
            )
            s = T.alloc_shared((128, columns), "float32")
            T.copy(S, s)
            for k in T.Pipelined(3, num_stages=2):
                T.copy(A[0, k * 32], a)
                T.copy(B[0, k * 32], b)
                T.gemm(a, b, c, transpose_B=True, clear_accum=k == 0)
            T.copy(c, out)
            for i, j in T.Parallel(128, columns):
                out[i, j] += s[i, j]
            T.copy(out, C)

    a, b = numbers(128, 96), numbers(columns, 96)
    s, zero = numbers(128, columns, dtype="float32"), np.zeros((128, columns), "float32")
    check_blackwell(kernel, seeds=3, A=a, B=b, S=s, C=zero)


@pytest.mark.parametrize("rounds", [1, 2])
def test_products_of_a_loop_add_to_what_threads_have_stored_before(rounds):
    """The threads that store tell the one that multiplies, by an arrival of one of each warp."""

    @T.prim_func
    def kernel(
        A: T.Tensor((128, 96), "float16"),
        B: T.Tensor((40, 96), "float16"),
        S: T.Tensor((128, 48), "float32"),
        C: T.Tensor((128, 48), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((128, 32), "float16"), T.alloc_shared((48, 32), "float16")
            c, out = T.alloc_tmem((128, 48), "float32"), T.alloc_fragment((128, 48), "float32")
            T.copy(S, out)
            T.copy(out, c)
            for _ in T.serial(rounds):
                for k in T.Pipelined(3, num_stages=2):
                    T.copy(A[0, k * 32], a)
                    T.copy(B[0, k * 32], b)
                    T.gemm(a, b, c, transpose_B=True)
                T.copy(c, out)
                for i, j in T.Parallel(128, 48):
                    out[i, j] = out[i, j] * 2
                T.copy(out, c)
            T.copy(out, C)

    a, b = numbers(128, 96), numbers(40, 96)
    s, zero = numbers(128, 48, dtype="float32"), np.zeros((128, 48), "float32")
    program = check_blackwell(kernel, seeds=3, A=a, B=b, S=s, C=zero)
    notes = dict(program.attrs).get("notes", ())
    assert any("products by a warp of their own" in text for _, text, _ in notes)
