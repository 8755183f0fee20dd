"""Unusual uses of the native CPU target, through the public interface."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T

n = T.dynamic("n")


def native(fn, **options):
    return tilelang.compile(fn, target="cpu", **options)


def alone(program: str) -> str:
    """What a program prints in a process of its own, which must end well."""
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "abs"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e5m2"])
def test_infinity_is_a_whole_number(name, dtype):
    fn = getattr(T, name)

    @T.prim_func
    def whole(A: T.Tensor((6,), dtype), B: T.Tensor((6,), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(6):
                B[i] = fn(A[i])

    numbers = [np.inf, -np.inf, 1.5, -1.5, 57344, -0.0]
    a = np.array(numbers).astype(getattr(ml_dtypes, dtype, np.float16))
    b, c = np.zeros_like(a), np.zeros_like(a)
    native(whole)(a, b)
    tilelang.compile(whole, target="emulate")(a, c)
    assert np.isinf(b[:2].astype(np.float32)).all()
    assert b.tobytes() == c.tobytes()
