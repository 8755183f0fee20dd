"""Stochastic rounding: always one of the two neighbours, as often as it is near."""

import ml_dtypes
import numpy as np
import pytest

from example_run import load

rounding = load("stochastic_rounding")
TYPES = [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]


def rounded(x, dtype, seed=1, **sizes):
    kernel = rounding.round_stochastically(x.size, np.dtype(dtype).name, **sizes)
    return kernel(x, seed).astype(np.float32)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("sizes", [{}, {"threads": 96, "each": 1}])
@pytest.mark.parametrize("n", [1, 100, 1000])
def test_only_the_two_neighbours(dtype, n, sizes):
    x = np.random.default_rng(n).uniform(-9, 9, n).astype(np.float32)
    got = rounded(x, dtype, **sizes)
    low, high = rounding.neighbours(x, dtype)
    assert ((got == low) | (got == high)).all()


@pytest.mark.parametrize("dtype", TYPES)
def test_both_neighbours_come_out_and_the_mean_is_the_number(dtype):
    copies = 2000
    values = np.array([1 / 3, -1 / 3, 1.01, 3.14159, -7.9], np.float32)
    x = np.repeat(values, copies)
    got = rounded(x, dtype).reshape(-1, copies)
    low, high = (each.reshape(-1, copies)[:, 0] for each in rounding.neighbours(x, dtype))
    for row, down, up in zip(got, low, high, strict=True):
        assert set(row.tolist()) == {float(down), float(up)}
    bound = 5 * (high - low) / 2 / copies**0.5
    assert (abs(got.mean(1) - values) <= bound).all()
    # Rounding to nearest would be off by more than that.
    assert (abs(values.astype(dtype).astype(np.float32) - values) > bound).any()


@pytest.mark.parametrize("dtype", TYPES)
def test_what_the_type_has_stays(dtype):
    x = np.array([0, 1, -1.5, 2, 6, 448], np.float32)
    np.testing.assert_array_equal(rounded(x, dtype), x)


def test_the_seed_decides():
    x = np.full(1000, 1 / 3, np.float32)
    first, again, other = (rounded(x, ml_dtypes.bfloat16, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).mean() > 0.3


def test_each_element_has_bits_of_its_own():
    got = rounded(np.full(1024, 1 + 2.0**-8, np.float32), ml_dtypes.bfloat16)  # half way
    up = (got > 1).reshape(-1, 32)
    assert len({row.tobytes() for row in up}) == len(up)
