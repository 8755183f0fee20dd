"""Infinity is a value of the types that have it, not what a cast makes of it."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.dtypes import DType

TARGETS = ("emulate", "cpu", "simulate:sm_90a")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "float8_e5m2"])
def test_infinity_is_infinite_in_every_type_that_has_one(dtype, target):
    @T.prim_func
    def filled(A: T.Tensor((40,), dtype), B: T.Tensor((40,), dtype)):
        with T.Kernel(1, threads=32):
            T.fill(A, T.infinity(dtype))
            for i in T.Parallel(40):
                B[i] = T.if_then_else(i % 3 == 0, -T.infinity(dtype), T.cast(1, dtype))

    numpy = DType(dtype).numpy
    a, b = np.zeros(40, numpy), np.zeros(40, numpy)
    tilelang.compile(filled, target=target)(a, b)
    assert np.isposinf(a.astype(np.float64)).all()
    np.testing.assert_array_equal(b.astype(np.float64), np.where(np.arange(40) % 3, 1.0, -np.inf))
