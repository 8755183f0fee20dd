"""Where the threads of a block meet around loops: as often as accesses ask for it, also where a
loop is left early, and no more.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilelang.language as T
from gpu_build import check_gpu, gpu_program
from tilelang.ir.thread import Instr
from tilelang.ir.tile import For

THREADS = 64
RANDOM = np.random.default_rng(4)


def integers(*shape: int) -> np.ndarray:
    return RANDOM.integers(-9, 10, shape).astype(np.int32)


def barriers(node) -> int:
    return sum(isinstance(n, Instr) and n.row == "barrier.sync" for n in node.walk())


@pytest.mark.parametrize("last", [0, 2, 3, 9])
@pytest.mark.parametrize("whole", [True, False])
def test_a_loop_that_is_left_before_its_barrier(last, whole):
    @T.prim_func
    def kernel(
        F: T.Tensor((4,), "int32"),
        A: T.Tensor((4, THREADS), "int32"),
        B: T.Tensor((THREADS,), "int32"),
        C: T.Tensor((THREADS,), "int32"),
    ):
        with T.Kernel(1, threads=THREADS):
            s = T.alloc_shared((THREADS,), "int32")
            f = T.alloc_fragment((THREADS,), "int32")
            T.clear(f)
            for k in T.serial(4):
                for i in T.Parallel(THREADS):
                    s[i] = A[k, i]
                if whole:
                    if F[k] > 0:
                        break
                else:
                    if F[k] > 0:
                        for i in T.Parallel(THREADS):
                            s[i] += 1
                        break
                for i in T.Parallel(THREADS):
                    f[i] += s[THREADS - 1 - i]
            for i in T.Parallel(THREADS):
                C[i] = s[THREADS - 1 - i]
            T.copy(f, B)

    flags = (np.arange(4) == last).astype(np.int32)
    zero = np.zeros(THREADS, np.int32)
    check_gpu(kernel, F=flags, A=integers(4, THREADS), B=zero, C=zero)


def test_a_round_that_is_left_before_its_barrier():
    @T.prim_func
    def kernel(
        F: T.Tensor((5,), "int32"),
        A: T.Tensor((5, THREADS), "int32"),
        B: T.Tensor((THREADS,), "int32"),
    ):
        with T.Kernel(1, threads=THREADS):
            s, t = T.alloc_shared((THREADS,), "int32"), T.alloc_shared((THREADS,), "int32")
            f = T.alloc_fragment((THREADS,), "int32")
            T.clear(f)
            for k in T.serial(5):
                for i in T.Parallel(THREADS):
                    s[i] = A[k, i]
                if F[k] == 1:
                    for i in T.Parallel(THREADS):
                        f[i] += s[THREADS - 1 - i]
                    continue
                for i in T.Parallel(THREADS):
                    t[i] = k
                for i in T.Parallel(THREADS):
                    f[i] += t[THREADS - 1 - i]
            T.copy(f, B)

    flags = np.array([0, 1, 0, 0, 1], np.int32)
    check_gpu(kernel, F=flags, A=integers(5, THREADS), B=np.zeros(THREADS, np.int32))


def in_rounds(*, first: bool):
    """Elements that are written before a loop, and read and written in each of its rounds, read
    `first` or after a meeting that the round needs anyhow.
    """

    @T.prim_func
    def kernel(A: T.Tensor((THREADS,), "int32"), B: T.Tensor((4, THREADS), "int32")):
        with T.Kernel(1, threads=THREADS):
            s, t = T.alloc_shared((THREADS,), "int32"), T.alloc_shared((THREADS,), "int32")
            T.copy(A, s)
            for k in T.serial(4):
                if first:
                    for i in T.Parallel(THREADS):
                        B[k, i] = s[THREADS - 1 - i]
                else:
                    for i in T.Parallel(THREADS):
                        t[i] = k
                    for i in T.Parallel(THREADS):
                        B[k, i] = t[THREADS - 1 - i] + s[THREADS - 1 - i]

    return kernel


@pytest.mark.parametrize(("first", "before", "inside"), [(True, 1, 0), (False, 0, 2)])
def test_threads_meet_before_a_loop_only_if_they_do_not_in_time_inside(first, before, inside):
    kernel = in_rounds(first=first)
    check_gpu(kernel, A=integers(THREADS), B=np.zeros((4, THREADS), np.int32))
    program = gpu_program(kernel.ir)
    (loop,) = (n for n in program.walk() if isinstance(n, For))
    assert (barriers(program) - barriers(loop), barriers(loop)) == (before, inside)


def test_a_loop_of_no_round_parts_nothing():
    n = T.dynamic("n")

    @T.prim_func
    def kernel(A: T.Tensor((n, THREADS), "int32"), B: T.Tensor((THREADS,), "int32")):
        with T.Kernel(1, threads=THREADS):
            s, t = T.alloc_shared((THREADS,), "int32"), T.alloc_shared((THREADS,), "int32")
            f = T.alloc_fragment((THREADS,), "int32")
            T.clear(f)
            for i in T.Parallel(THREADS):
                s[i] = i
            for k in T.serial(n):
                for i in T.Parallel(THREADS):
                    t[i] = A[k, i]
                for i in T.Parallel(THREADS):
                    f[i] += t[THREADS - 1 - i]
            for i in T.Parallel(THREADS):
                B[i] = f[i] + s[THREADS - 1 - i]

    for rounds in (0, 1, 3):
        check_gpu(kernel, A=integers(rounds, THREADS), B=np.zeros(THREADS, np.int32), n=rounds)
