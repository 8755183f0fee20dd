"""`T.ieee_*` and `T.fma` on types of 16 bits: the exact result, rounded once, on every target. The
emulator's own functions say what that is.
"""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.dtypes import DType
from tilelang.emulator.ieee import operation

N = 1024
TARGETS = ["cpu", "simulate:sm_90a", pytest.param("cuda", marks=pytest.mark.gpu)]
TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
OPERATIONS = {
    "ieee_add": ("add", 2),
    "ieee_sub": ("sub", 2),
    "ieee_mul": ("mul", 2),
    "ieee_fdiv": ("div", 2),
    "ieee_fmaf": ("fma", 3),
    "fma": ("fma", 3),
    "ieee_frcp": ("rcp", 1),
    "ieee_fsqrt": ("sqrt", 1),
    "ieee_frsqrt": ("rsqrt", 1),
}


def words(dtype: str) -> list[np.ndarray]:
    """Three arrays: products that lie between two numbers with something small to add, then
    anything at all.
    """
    rng = np.random.default_rng(N)
    x, y, z = (rng.integers(0, 1 << 16, N, dtype=np.uint16).view(TYPES[dtype]) for _ in range(3))
    ties, last = N // 4, 2.0**-10 if dtype == "float16" else 2.0**-7
    x[:ties] = (1 + (2 * rng.integers(0, 20, ties) + 1) * last).astype(TYPES[dtype])
    y[:ties] = 1.5
    z[:ties] = rng.choice([1, -1, 0], ties) * 2.0**-24
    return [x, y, z]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_exact_result_is_rounded_once(name, dtype, target):
    op, arity = OPERATIONS[name]

    @T.prim_func
    def kernel(
        X: T.Tensor((N,), dtype),
        Y: T.Tensor((N,), dtype),
        Z: T.Tensor((N,), dtype),
        R: T.Tensor((N,), dtype),
    ):
        with T.Kernel(N // 128, threads=128) as bx:
            for i in T.Parallel(128):
                given = [A[bx * 128 + i] for A in (X, Y, Z)]
                R[bx * 128 + i] = getattr(T, name)(*given[:arity])

    given, found = words(dtype), np.zeros(N, TYPES[dtype])
    tilelang.compile(kernel, target=target)(*given, found)
    with np.errstate(all="ignore"):
        want = np.asarray(operation(op, DType(dtype))(*given[:arity]))
    both_nan = np.isnan(found.astype(np.float32)) & np.isnan(want.astype(np.float32))
    assert (both_nan | (found.view(np.uint16) == want.view(np.uint16))).all()


def test_the_operands_of_the_fused_operation_have_ties_that_a_second_rounding_would_lose():
    for dtype in TYPES:
        x, y, z = (v.astype(np.float64) for v in words(dtype))
        with np.errstate(all="ignore"):
            twice = (x * y + z).astype(np.float32).astype(TYPES[dtype])
            once = np.asarray(operation("fma", DType(dtype))(*words(dtype)))
        assert (twice.view(np.uint16) != once.view(np.uint16))[: N // 4].any()


@pytest.mark.parametrize("dtype", TYPES)
def test_another_rounding_of_16_bits_is_refused(dtype):
    with pytest.raises(ValueError, match="Only rounding mode 'rn'"):

        @T.prim_func
        def kernel(X: T.Tensor((1,), dtype)):
            with T.Kernel(1, threads=32):
                X[0] = T.ieee_add(X[0], X[0], "rz")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", TYPES)
def test_pairs_are_fused_lane_by_lane(dtype, target):
    @T.prim_func
    def kernel(
        X: T.Tensor((N,), dtype),
        Y: T.Tensor((N,), dtype),
        Z: T.Tensor((N,), dtype),
        R: T.Tensor((N,), dtype),
    ):
        with T.Kernel(N // 128, threads=64) as bx:
            at = T.Ramp(bx * 128 + T.get_thread_binding() * 2, 1, 2)
            R[at] = T.fma2(X[at], Y[at], Z[at])

    given, found = words(dtype), np.zeros(N, TYPES[dtype])
    tilelang.compile(kernel, target=target)(*given, found)
    with np.errstate(all="ignore"):
        want = np.asarray(operation("fma", DType(dtype))(*given))
    both_nan = np.isnan(found.astype(np.float32)) & np.isnan(want.astype(np.float32))
    assert (both_nan | (found.view(np.uint16) == want.view(np.uint16))).all()
    tilelang.compile(kernel, target="cuda:sm_90a")
