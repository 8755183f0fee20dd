"""A call in order says what it read that nobody had written, where its results show it."""

import warnings

import numpy as np
import pytest

import tilelang
import tilelang.ascend.language as T


def summed(written, **settings):
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1):
            a, b = T.alloc_shared((64,), "float32"), T.alloc_shared((64,), "float32")
            T.copy(A, a)
            if written:
                T.copy(A, b)
            with T.SimdVF():
                x = T.simd.vexp(T.simd.vld(b[0]))
                T.simd.vsts(a[0], T.simd.vadd(T.simd.vld(a[0]), x))
            T.copy(a, B)

    return tilelang.compile(kernel, **settings)


def test_ub_that_nobody_has_written():
    a, b = np.ones(64, np.float32), np.zeros(64, np.float32)
    made = summed(False)
    with pytest.warns(RuntimeWarning, match="is read where nobody has written") as found:
        made(a, b)
    (one,) = found
    assert "T.simd.vld(b[0])" in str(one.message) and "test_ascend_unwritten.py" in str(one.message)
    assert one.filename.endswith("test_ascend_unwritten.py")
    with warnings.catch_warnings():  # once for a program
        warnings.simplefilter("error")
        made(a, b)


def test_a_result_that_the_call_makes_is_no_number_before_it():
    made = summed(False, out_idx=[1])
    with pytest.warns(RuntimeWarning, match="is read where nobody has written"):
        assert np.isnan(made(np.ones(64, np.float32))).all()


def test_no_numbers_of_the_author_are_no_finding():
    a, b = np.full(64, np.nan, np.float32), np.zeros(64, np.float32)
    a[3] = np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        summed(True)(a, b)
    assert np.isnan(b[:3]).all() and b[3] == np.inf
