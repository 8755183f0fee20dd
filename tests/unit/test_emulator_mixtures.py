"""Where values of the block meet values of its lanes, and loops that look at memory end."""

import numpy as np

import tilelang
import tilelang.language as T


def test_a_select_between_lanes_and_a_number_wraps_as_its_type():
    @T.prim_func
    def main(A: T.Tensor((2,), "int32"), B: T.Tensor((4, 5), "int32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((2,), "int32")
            T.copy(A, s)
            for j in T.Parallel(5):
                x = T.if_then_else(s[0] > 0, s[1], j)
                B[0, j] = x * 2
                B[1, j] = T.cast(T.cast(x, "int8"), "int32")
                B[2, j] = T.max(x + x, -5)
                if j % 2 == 0:
                    B[3, j] = 3 * T.if_then_else(s[0] % 2 == 1, s[1], s[0])

    kernel = tilelang.compile(main, target="cpu")
    for first in (1, 0):
        b = np.full((4, 5), -9, np.int32)
        kernel(np.array([first, 2**30 + 1], np.int32), b)
        lanes = np.arange(5, dtype=np.int32)
        x = np.full(5, 2**30 + 1, np.int32) if first else lanes
        assert (b[0] == x * 2).all()
        assert (b[1] == x.astype(np.int8)).all()
        assert (b[2] == np.maximum(x + x, -5)).all()
        chosen = np.int64(2**30 + 1 if first else 0) * 3
        wrapped = chosen.astype(np.int32)
        assert (b[3] == np.where(lanes % 2 == 0, wrapped, -9)).all()


def test_loops_that_look_at_memory_and_change_nothing_are_left():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            for i in T.serial(8):
                while A[i] < -100:
                    B[i] = 1
                while A[i] > 100:
                    B[i] = 2
                while B[i] < A[i]:
                    B[i] += 1

    a, b = np.array([0, 1, 0, 2, 0, 0, 0, 3], np.int32), np.zeros(8, np.int32)
    tilelang.compile(main, target="cpu")(a, b)
    assert (b == a).all()
