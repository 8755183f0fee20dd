"""Products of packed, scaled and sparse operands, against what their bits mean."""

import itertools

import ml_dtypes
import numpy as np
import pytest

from example_run import load

int4, fp4, blockscaled, sparse = (
    load(name)
    for name in ("gemm_dequant_int4", "gemm_dequant_fp4", "gemm_blockscaled", "gemm_sparse")
)
RNG = np.random.default_rng(6)


def small(*shape):
    return RNG.integers(-4, 5, shape).astype(np.float16)


# -- gemm_dequant_int4.py --------------------------------------------------------------------------


@pytest.mark.parametrize("group", [8, 24, 32, 100])
@pytest.mark.parametrize("size", [(100, 127, 72), (1, 1, 2), (24, 40, 200), (3, 5, 0)])
def test_int4_weights_in_groups_of_any_size(size, group):
    m, n, k = size
    a = small(m, k)
    q, scale, zero, w = int4.weights(n, k, group, seed=group)
    got = int4.gemm_int4(*size, group, (32, 48, 40))(a, int4.pack(q), scale, zero)
    np.testing.assert_array_equal(got, a.astype(np.float32) @ w.T)


def test_the_first_of_two_int4_weights_is_in_the_low_half():
    q = np.array([[3, 12]], np.uint8)
    assert int4.pack(q).tolist() == [[0xC3]]
    ones, zeros = np.ones((1, 1), np.float16), np.zeros((1, 1), np.uint8)
    a = np.array([[1, 0], [0, 1]], np.float16)
    got = int4.gemm_int4(2, 1, 2)(a, int4.pack(q), ones, zeros)
    assert got.ravel().tolist() == [3, 12]


# -- gemm_dequant_fp4.py ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(100, 127, 72), (1, 1, 2), (24, 40, 200), (3, 5, 0)])
def test_fp4_weights_decoded_both_ways(size):
    m, n, k = size
    a = small(m, k).astype(ml_dtypes.bfloat16)
    packed, exponent, w = fp4.weights(n, k, seed=k)
    want = a.astype(np.float32) @ w.T
    scale = exponent.view(ml_dtypes.float8_e8m0fnu)
    np.testing.assert_array_equal(fp4.by_bits(*size, (32, 48, 40))(a, packed, exponent), want)
    np.testing.assert_array_equal(fp4.by_type(*size, (32, 48, 40))(a, packed, scale), want)


def test_all_sixteen_fp4_numbers():
    want = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    packed = np.array([[n | n + 1 << 4 for n in range(0, 16, 2)]], np.uint8)
    exponent, identity = np.full((1, 1), 127, np.uint8), np.eye(16, dtype=ml_dtypes.bfloat16)
    scale = exponent.view(ml_dtypes.float8_e8m0fnu)
    for got in (
        fp4.by_bits(16, 1, 16)(identity, packed, exponent),
        fp4.by_type(16, 1, 16)(identity, packed, scale),
    ):
        assert got.ravel().tolist() == want + [-x for x in want]


# -- gemm_blockscaled.py ---------------------------------------------------------------------------


@pytest.mark.parametrize("form", blockscaled.FORMATS)
@pytest.mark.parametrize("size", [(100, 127, 72), (24, 40, 256), (1, 1, 1)])
@pytest.mark.parametrize("depth", [32, 64, 96])
def test_block_scaled_products(form, size, depth):
    m, n, k = size
    (a, sfa, left), (b, sfb, right) = (
        blockscaled.operand(rows, k, form, seed) for seed, rows in enumerate((m, n))
    )
    got = blockscaled.gemm_blockscaled(*size, form, (24, 40, depth))(a, b, sfa, sfb)
    np.testing.assert_array_equal(got, left @ right.T)


def test_a_scale_counts_for_its_own_row_and_block():
    a = np.ones((2, 64), ml_dtypes.float8_e4m3fn)
    b = np.ones((1, 64), ml_dtypes.float8_e4m3fn)
    sfa = np.array([[1, 2], [4, 8]], ml_dtypes.float8_e8m0fnu)
    sfb = np.array([[1, 16]], ml_dtypes.float8_e8m0fnu)
    got = blockscaled.gemm_blockscaled(2, 1, 64)(a, b, sfa, sfb)
    assert got.ravel().tolist() == [32 + 32 * 2 * 16, 32 * 4 + 32 * 8 * 16]


# -- gemm_sparse.py --------------------------------------------------------------------------------


@pytest.mark.parametrize("tiles", [(64, 64, 64), (24, 40, 32)])
@pytest.mark.parametrize("size", [(100, 127, 80), (1, 1, 16), (40, 24, 208), (3, 5, 0)])
def test_sparse_products(size, tiles):
    m, n, k = size
    a = sparse.prune(small(m, k))
    b = small(k, n)
    got = sparse.gemm_sparse(*size, tiles)(*sparse.compress(a), b)
    np.testing.assert_array_equal(got, a.astype(np.float32) @ b.astype(np.float32))


def test_every_choice_of_two_of_four():
    pairs = list(itertools.combinations(range(4), 2))
    a = np.zeros((len(pairs), 16), np.float16)
    for row, (first, second) in enumerate(pairs):
        a[row, first], a[row, 4 + second] = 1, 2  # one element: the other kept one is a zero
        a[row, 8 + first], a[row, 8 + second] = 3, 4
    got = sparse.gemm_sparse(len(pairs), 16, 16)(*sparse.compress(a), np.eye(16, dtype=np.float16))
    np.testing.assert_array_equal(got, a)


def test_a_matrix_that_is_not_sparse_enough_is_refused():
    with pytest.raises(ValueError, match="more than two"):
        sparse.compress(np.ones((1, 16), np.float16))
