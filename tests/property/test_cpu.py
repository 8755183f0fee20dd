"""Random small kernels give the same on the emulator and as machine code of the CPU."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as hs

from emulator_build import I32
from kernels_drawn import elementwise_of_runtime_size, indices_on_chip, kernels, products
from lower_build import check_native, emulated, lowered, native
from tilelang.errors import TileIndexError


@given(kernels())
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_random_kernels(case):
    fn, args = case
    check_native(fn, rtol=2e-3, atol=2e-3, **args)


@given(products())
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_random_products(case):
    fn, args = case
    check_native(fn, **args)  # small integers: every sum is exact


@given(elementwise_of_runtime_size(), hs.integers(0, 70))
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_bounds_of_runtime_size(case, size):
    fn, dtype = case
    random = np.random.default_rng(size)
    args = {x: random.integers(-9, 9, size).astype(dtype.numpy) for x in "ABC"}
    check_native(fn, n=size, **args)


@given(indices_on_chip(), hs.integers(0, 9))
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_indices_on_chip(fn, size):
    """Both report an index outside, or both run through with the same result."""
    args = {"n": size, "C": np.zeros(40, I32.numpy)}
    try:
        want = emulated(fn, args)["C"]
    except TileIndexError:
        want = None
    program = native(lowered(fn))
    try:
        program.run(args)
    except TileIndexError:
        assert want is None
    else:
        assert want is not None
        np.testing.assert_array_equal(args["C"], want)
