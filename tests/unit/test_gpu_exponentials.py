"""Powers of two of a fragment, whose exponents are looked at once."""

import numpy as np
import pytest

import tilelang.language as T
from gpu_build import check_gpu
from tilelang.ir.expr import Call

RANDOM = np.random.default_rng(3)


def powers(rows, columns, threads):
    """2 to the elements, less the first one of the row."""

    @T.prim_func
    def kernel(
        A: T.Tensor((rows, columns), "float32"),
        S: T.Tensor((rows,), "float32"),
        B: T.Tensor((rows, columns), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            x = T.alloc_fragment((rows, columns), "float32")
            s = T.alloc_fragment((rows,), "float32")
            T.copy(A, x)
            T.copy(S, s)
            for i, j in T.Parallel(rows, columns):
                x[i, j] = T.exp2(x[i, j] * 1.5 - s[i])
            T.copy(x, B)

    return kernel


def ways(program) -> list[tuple[str, ...]]:
    """The settings of all powers."""
    return sorted({n.params for n in program.walk() if isinstance(n, Call) and n.fn == "exp2"})


@pytest.mark.parametrize("shape", [(32, 64), (24, 96), (40, 100)])
@pytest.mark.parametrize("low", [-3.0, -90.0, -200.0])
def test_powers_of_a_fragment_are_right_however_small(shape, low):
    rows, columns = shape
    a = RANDOM.uniform(low, 3, size=shape).astype(np.float32)
    a[0, :5] = (-np.inf, np.inf, np.nan, -0.0, -84.0)
    s = RANDOM.uniform(-1, 1, size=rows).astype(np.float32)
    given = {"A": a, "S": s, "B": np.zeros(shape, np.float32)}
    check_gpu(powers(rows, columns, 32), rtol=1e-6, atol=0, **given)


def test_the_exponents_of_a_thread_are_looked_at_once_where_they_are_many():
    arrays = {"A": np.zeros((32, 64), np.float32), "S": np.zeros(32, np.float32)}
    made = check_gpu(powers(32, 64, 64), B=np.zeros((32, 64), np.float32), **arrays)
    assert ways(made) == [(), ("normal",)]
    made = check_gpu(powers(32, 64, 256), B=np.zeros((32, 64), np.float32), **arrays)
    assert ways(made) == [()]
    left = {"without": ("exp2",), "B": np.zeros((32, 64), np.float32)}
    assert ways(check_gpu(powers(32, 64, 64), **left, **arrays)) == [()]
