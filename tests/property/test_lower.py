"""Random small kernels give the same on the emulator and after lowering to one thread per block,
whichever way loops in lockstep run.
"""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as hs

from kernels_drawn import elementwise_of_runtime_size, kernels, products
from lower_build import check_interpreted


@given(kernels())
@settings(max_examples=12, suppress_health_check=list(HealthCheck))
def test_random_kernels(case):
    fn, args = case
    check_interpreted(fn, rtol=2e-3, atol=2e-3, **args)


@given(products())
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
def test_random_products(case):
    fn, args = case
    check_interpreted(fn, **args)  # small integers: every sum is exact


@given(elementwise_of_runtime_size(), hs.integers(0, 70))
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_bounds_of_runtime_size(case, size):
    fn, dtype = case
    random = np.random.default_rng(size)
    args = {x: random.integers(-9, 9, size).astype(dtype.numpy) for x in "ABC"}
    check_interpreted(fn, n=size, **args)
