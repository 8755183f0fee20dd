"""What a kernel assumes of a call is looked at when it is called."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileRuntimeError

TARGETS = ("emulate", "cpu", "simulate:sm_90a")


def kernel():
    n = T.dynamic("N")

    @T.prim_func
    def doubled(A: T.Tensor((n,), "int32"), k: T.int32):
        with T.Kernel(1, threads=32) as bx:
            T.assume(n % 4 == 0)
            T.assume((k > 2) & (bx == 0))
            T.assume(k != 7)
            tx = T.get_thread_binding()
            if tx < n:
                T.assume(n < 100)
                A[tx] = A[tx] * 2

    return doubled


@pytest.mark.parametrize("target", TARGETS)
def test_an_assumption_of_sizes_and_scalars_is_checked_by_the_call(target):
    compiled = tilelang.compile(kernel(), target=target)
    a = np.arange(24, dtype=np.int32)
    compiled(a, 3)
    np.testing.assert_array_equal(a, np.arange(24) * 2)
    for size, k, said in ((6, 3, "Assume: N % 4 == 0"), (8, 7, "Assume: k != 7")):
        a = np.arange(size, dtype=np.int32)
        with pytest.raises(TileRuntimeError, match=said) as caught:
            compiled(a, k)
        assert "T.assume(" in str(caught.value)
        np.testing.assert_array_equal(a, np.arange(size))


@pytest.mark.parametrize("target", TARGETS[:2])
def test_what_not_every_thread_assumes_is_left_to_the_dynamic_check(target):
    compiled = tilelang.compile(kernel(), target=target)
    compiled(np.zeros(200, np.int32), 3)
    compiled(np.zeros(8, np.int32), 1)
