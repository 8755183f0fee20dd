"""Products in several ways of dealing out the work: exact at odd sizes, whatever the division."""

import importlib

import numpy as np
import pytest

from example_run import load

jit_module = importlib.import_module("tilelang.runtime.jit")
ODD = (100, 127, 40)
gemm, splitk, streamk, grouped, persistent = (
    load(name)
    for name in ("gemm", "gemm_splitk", "gemm_streamk", "gemm_grouped", "gemm_persistent")
)


def halves(m, n, k, seed=0):
    """Two fp16 matrices of small integers, and their product in fp32, which is exact."""
    random = np.random.default_rng(seed)
    a = random.integers(-4, 5, (m, k)).astype(np.float16)
    b = random.integers(-4, 5, (k, n)).astype(np.float16)
    return a, b, a.astype(np.float32) @ b.astype(np.float32)


# -- gemm.py ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", gemm.LAYOUTS)
@pytest.mark.parametrize("dtype", gemm.SUMS)
def test_every_type_in_every_layout(dtype, layout):
    a, b, want = gemm.operands(*ODD, dtype, layout, seed=1)
    got = gemm.gemm(*ODD, dtype, layout, (24, 48, 16))(a, b)
    assert got.dtype == gemm.SUMS[dtype]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("tiles", [(64, 64, 32), (24, 40, 100), (127, 16, 8)])
@pytest.mark.parametrize("size", [(72, 24, 127), (1, 1, 1), (40, 1, 33), (5, 3, 0)])
def test_any_size_in_any_tiles(size, tiles):
    a, b, want = gemm.operands(*size, "float16", "NT", seed=2)
    np.testing.assert_array_equal(gemm.gemm(*size, "float16", "NT", tiles)(a, b), want)


def test_all_of_int8():
    random = np.random.default_rng(3)
    a, b = (random.integers(-128, 128, s).astype(np.int8) for s in ((40, 1000), (1000, 24)))
    a[0], b[:, 0] = -128, -128  # the largest sum there is
    got = gemm.gemm(40, 24, 1000, "int8", "NN")(a, b)
    np.testing.assert_array_equal(got, a.astype(np.int64) @ b)


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-5), ("float64", 1e-14)])
def test_random_floats_within_the_error_of_their_sums(dtype, bound):
    random = np.random.default_rng(4)
    a, b = (random.standard_normal(s).astype(dtype) for s in ((100, 200), (200, 72)))
    got = gemm.gemm(100, 72, 200, dtype, "NN")(a, b)
    error = abs(got - a.astype(np.longdouble) @ b.astype(np.longdouble))
    assert error.max() < bound * 200**0.5
    assert dtype == "float64" or error.max() > 0  # it does compute in fp32


# -- gemm_splitk.py --------------------------------------------------------------------------------


@pytest.mark.parametrize("splits", [1, 3, 7])
@pytest.mark.parametrize("size", [(40, 100, 127), (1, 1, 1), (24, 72, 0)])
def test_any_number_of_parts_of_k(size, splits):
    a, b, want = halves(*size)
    got = splitk.gemm_splitk(*size, splits, (24, 40, 16))(a, b)
    np.testing.assert_array_equal(got, want)


# -- gemm_streamk.py -------------------------------------------------------------------------------


@pytest.mark.parametrize("fixup", ["atomics", "workspace"])
@pytest.mark.parametrize("workers", [1, 2, 7, 11, 40])
@pytest.mark.parametrize("size", [(100, 127, 72), (24, 40, 100), (30, 30, 0), (1, 1, 1)])
def test_any_number_of_workers(size, workers, fixup):
    a, b, want = halves(*size)
    np.testing.assert_array_equal(streamk.product(a, b, workers, fixup, (48, 40)), want)


def test_more_workers_than_steps_are_refused():
    with pytest.raises(ValueError, match="5 workers for 4 steps"):
        streamk.streamk_workspace(64, 64, 128, 5)


# -- gemm_grouped.py -------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [[100], [0, 0, 5], [24, 1, 0, 127, 40], [0]])
def test_groups_of_any_size(sizes):
    random = np.random.default_rng(5)
    n, k = 100, 72
    offsets = np.cumsum([0, *sizes], dtype=np.int32)
    a = random.integers(-4, 5, (offsets[-1], k)).astype(np.float16)
    b = random.integers(-4, 5, (len(sizes), k, n)).astype(np.float16)
    got = grouped.gemm_grouped(a, b, offsets, most=max(sizes), tiles=(32, 48, 40))
    assert got.shape == (offsets[-1], n)
    for g, end in enumerate(offsets[1:]):
        rows = slice(offsets[g], end)
        np.testing.assert_array_equal(got[rows], a[rows].astype(np.float32) @ b[g])


def test_rows_that_vary_need_no_new_kernel(monkeypatch):
    a, b, want = halves(40, 24, 16)
    first = grouped.gemm_grouped(a[:7], b[None], np.array([0, 7], np.int32), most=40)
    np.testing.assert_array_equal(first, want[:7])
    monkeypatch.setattr(jit_module, "compile", None)
    second = grouped.gemm_grouped(a, b[None], np.array([0, 40], np.int32), most=40)
    np.testing.assert_array_equal(second, want)
    with pytest.raises(TypeError):  # but another depth does
        grouped.gemm_grouped(a[:, :8], b[None, :8], np.array([0, 40], np.int32), most=40)


# -- gemm_persistent.py ----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [persistent.by_loop, persistent.by_scheduler])
@pytest.mark.parametrize("workers", [1, 3, 16])
@pytest.mark.parametrize("size", [(100, 127, 72), (127, 24, 1), (1, 1, 0)])
def test_every_tile_has_one_worker(make, size, workers):
    a, b, want = halves(*size)
    got = make(*size, workers, (24, 40, 32))(a, b)
    np.testing.assert_array_equal(got, want)
