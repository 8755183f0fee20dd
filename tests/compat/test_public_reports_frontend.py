"""Programs after public reports about Python in kernels: loops, names, macros and calls."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from report_run import refused, run
from tilelang.errors import TileError

TARGETS = ("emulate", "cpu", "simulate:sm_90a")


STEPS = [(3, 30, 4), (30, 3, -4), (0, 1, 100), (5, 5, 1), (5, 9, -1), (-7, 8, 5), (8, -7, -5)]


@pytest.mark.parametrize("target", TARGETS)
def test_a_step_that_only_the_run_knows(target):  # 1188
    @T.prim_func
    def main(A: T.Tensor((40,), "int32"), a: T.int32, b: T.int64, s: T.int32):
        with T.Kernel(1, threads=1):
            k = T.alloc_var("int32", init=0)
            begin = T.alloc_var("int32", init=a)
            for i in T.serial(begin, b, s):
                begin = 99  # the loop has begun
                A[k] = i
                k += 1
            for i in range(a, b, s):
                if i == a + s:
                    continue
                A[k] = 2 * i
                k += 1

    kernel = tilelang.compile(main, target=target)
    for start, stop, step in STEPS:
        steps = list(range(start, stop, step))
        want = steps + [2 * i for i in steps if i != start + step]
        found = np.full(40, -1, np.int32)
        kernel(found, start, stop, step)
        assert found.tolist() == want + [-1] * (40 - len(want))
    with pytest.raises(TileError, match=r"the step of T\.serial is 0"):
        kernel(np.zeros(40, np.int32), 0, 9, 0)


def test_a_macro_takes_any_number_of_arguments():  # 2330
    @T.macro
    def total(x, k=3, *rest, scale=1, **more):
        return (x + k + sum(rest)) * scale + sum(more.values())

    @T.macro
    def copies(dst, *sources):
        for n, source in enumerate(sources):
            T.copy(source, dst[n, :])

    @T.prim_func
    def main(A: T.Tensor((3, 8), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            v = T.alloc_var("int32", init=2)
            row = T.alloc_shared((8,), "int32")
            T.fill(row, 7)
            copies(A, row, B)
            A[2, 0] = total(v)
            A[2, 1] = total(v, 4, 5, v)
            A[2, 2] = total(v, scale=10)
            A[2, 3] = total(v, 1, 2, scale=3, left=v, right=100)

    a, b = np.zeros((3, 8), np.int32), np.arange(8, dtype=np.int32)
    run(main, a, b)
    assert (a[0] == 7).all()
    assert (a[1] == b).all()
    assert a[2].tolist() == [5, 13, 50, 117, 0, 0, 0, 0]


def test_one_of_several_arguments_of_a_macro_is_a_value_of_its_time():
    @T.macro
    def later(A, *values):
        A[0] = 50
        A[1] = values[0]

    @T.prim_func
    def main(A: T.Tensor((2,), "int32")):
        with T.Kernel(1, threads=1):
            later(A, A[0])

    a = np.array([3, 0], np.int32)
    run(main, a)
    assert a.tolist() == [50, 3]


def test_arguments_that_a_macro_has_not_are_refused():
    @T.macro
    def one(x):
        return x

    def call():
        @T.prim_func
        def main(A: T.Tensor((2,), "int32")):
            with T.Kernel(1, threads=1):
                A[0] = one(1, 2)

    refused(call, "one", "argument")


@pytest.mark.parametrize("target", TARGETS)
def test_loops_and_branches_without_statements(target):
    wanted = False

    @T.prim_func
    def main(A: T.Tensor((16,), "int32")):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(4, 4):
                if wanted:
                    A[i * 4 + j] = 2
            for _ in T.serial(3):
                pass
            for _ in T.Pipelined(3, num_stages=2):
                pass
            if A[0] > 5:
                pass
            for i in T.Parallel(16):
                A[i] = A[i] + i

    a = np.ones(16, np.int32)
    run(main, a, target=target)
    assert a.tolist() == list(range(1, 17))
