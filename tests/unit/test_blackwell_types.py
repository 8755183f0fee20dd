"""Types and widths that the chips of Blackwell add, through kernels, against NumPy: 32 bytes of a
thread at once, copies and conversions of fp4 and of the scales of blocks, tiles of fp4 as bytes.
"""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T

RANDOM = np.random.default_rng(23)
TARGETS = ("emulate:sm_100a", "simulate:sm_100a")
FP4 = ml_dtypes.float4_e2m1fn


def kind(dtype):
    return getattr(ml_dtypes, dtype, None) or np.dtype(dtype)


def run(fn, *args):
    """What a kernel writes to the last argument on both targets; they must agree."""
    found = []
    for target in TARGETS:
        out = np.zeros_like(args[-1])
        tilelang.compile(fn, target=target)(*args[:-1], out)
        found.append(out)
    assert found[0].tobytes() == found[1].tobytes()
    return found[0]


@pytest.mark.parametrize("last", [None, 5])
def test_a_thread_loads_and_stores_32_bytes_at_once(last):
    """`last` is the first group that is left out: it is loaded as zeros, and not stored."""

    @T.prim_func
    def kernel(X: T.Tensor((256,), "float32"), Y: T.Tensor((256,), "float32")):
        with T.Kernel(32, threads=32) as p:
            x, y = X[p * 8 : p * 8 + 8], Y[p * 8 : p * 8 + 8]
            if last is None:
                T.stg256(y, T.ldg256(x))
            else:
                T.stg256(y, T.ldg256(x, pred=p < last), pred=p < last)

    x = RANDOM.standard_normal(256).astype("float32")
    want = x if last is None else np.where(np.arange(256) < 8 * last, x, 0)
    assert np.array_equal(run(kernel, x, np.zeros_like(x)), want)


@pytest.mark.parametrize("dtype", ["float8_e8m0fnu", "float4_e2m1fn", "float8_e4m3fn"])
def test_tiles_of_narrow_types_are_copied_as_they_are(dtype):
    @T.prim_func
    def kernel(A: T.Tensor((96, 64), dtype), B: T.Tensor((96, 64), dtype)):
        with T.Kernel(2, 3, threads=128) as (x, y):
            s, f = T.alloc_shared((32, 32), dtype), T.alloc_fragment((32, 32), dtype)
            T.copy(A[y * 32, x * 32], s)
            T.copy(s, f)
            T.copy(f, B[y * 32, x * 32])

    a = np.exp2(RANDOM.integers(-1, 3, (96, 64))).astype(kind(dtype))
    out = run(kernel, a, np.zeros_like(a))
    assert np.array_equal(out.astype("float32"), a.astype("float32"))


@pytest.mark.parametrize("narrow", ["float4_e2m1fn", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("wide", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("down", [False, True])
def test_conversions_of_neighbouring_elements(narrow, wide, down):
    source, result = (wide, narrow) if down else (narrow, wide)

    @T.prim_func
    def kernel(A: T.Tensor((128, 40), source), B: T.Tensor((128, 40), result)):
        with T.Kernel(1, threads=128):
            f, g = T.alloc_fragment((128, 40), source), T.alloc_fragment((128, 40), result)
            T.copy(A, f)
            for i, j in T.Parallel(128, 40):
                g[i, j] = T.cast(f[i, j], result)
            T.copy(g, B)

    spread = RANDOM.uniform(-5, 5, (128, 40)).astype("float32")
    a = spread.astype(kind(source))
    want = a.astype("float32").astype(kind(result))
    out = run(kernel, a, np.zeros((128, 40), kind(result)))
    assert np.array_equal(out.astype("float32"), want.astype("float32"))
