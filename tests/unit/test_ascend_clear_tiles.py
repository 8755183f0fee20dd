"""Tiles of L1 that a copy fills in part are zero elsewhere, as in the adapter tree."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from adapter_programs import AUTO

M, K, N = 64, 32, 32


def product(fill, tiles=1):
    """The product of a tile that `fill(A, a)` brings to L1, and B; `a` has `tiles` tiles."""

    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float")
    ):
        with T.Kernel(1, is_npu=True) as (_cid, _vid):
            a = T.alloc_L1((tiles, M, K) if tiles > 1 else (M, K), "float16")
            b = T.alloc_L1((K, N), "float16")
            c = T.alloc_L0C((M, N), "float")
            T.copy(B, b)
            fill(A, a, b, c)
            T.gemm_v0(a[0, :, :] if tiles > 1 else a, b, c, init=True)
            T.copy(c, C)

    return tilelang.compile(kernel, out_idx=[2], pass_configs=AUTO)


@T.macro
def first_rows(A, a, b, c):
    T.copy(A[0:16, :], a[0:16, :])


@T.macro
def first_columns(A, a, b, c):
    T.copy(A[:, 0:16], a[:, 0:16])


@T.macro
def parts_behind_each_other(A, a, b, c):
    T.copy(A[0:16, :], a[0:16, :])
    T.copy(A[16:32, :], a[32:48, :])


@T.macro
def the_first_part_last(A, a, b, c):
    T.copy(A[16:64, :], a[16:64, :])
    T.copy(A[0:16, :], a[0:16, :])


@T.macro
def again_behind_a_product(A, a, b, c):
    T.copy(A, a)
    T.gemm_v0(a, b, c, init=True)
    T.copy(A[0:16, :], a[0:16, :])


@T.macro
def in_a_loop(A, a, b, c):
    for k in T.serial(2):
        T.copy(A[k * 16, 0], a[0:16, :])
        T.copy(A[32 + k * 16 : 48 + k * 16, :], a[48:64, :])
        if k == 0:
            T.gemm_v0(a, b, c, init=True)


@T.macro
def a_nest(A, a, b, c):
    for i, j in T.Parallel(16, K):
        a[i, j] = A[i, j]


@T.macro
def the_first_of_two_tiles(A, a, b, c):
    T.copy(A[0:16, :], a[0, 0:16, :])


def tile(a, *parts):
    """Zero, but for `parts`: (first row of it, first row of A, how many)."""
    made = np.zeros((M, K), np.float16)
    for to, of, n in parts:
        made[to : to + n] = a[of : of + n]
    return made


CASES = [
    (first_rows, lambda a: tile(a, (0, 0, 16))),
    (first_columns, lambda a: np.where(np.arange(K) < 16, a, 0)),
    (parts_behind_each_other, lambda a: tile(a, (0, 0, 16), (32, 16, 16))),
    (the_first_part_last, lambda a: a),
    (again_behind_a_product, lambda a: tile(a, (0, 0, 16))),
    (in_a_loop, lambda a: tile(a, (0, 16, 16), (48, 48, 16))),
    (a_nest, lambda a: tile(a, (0, 0, 16))),
]


def check(kernel, wanted):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, s).astype(np.float16) for s in ((M, K), (K, N)))
    np.testing.assert_array_equal(kernel(a, b), wanted(a).astype("f4") @ b.astype("f4"))
    assert tilelang.check(kernel, run_with=[a, b]) == []


@pytest.mark.parametrize(("fill", "wanted"), CASES, ids=lambda x: getattr(x, "name", ""))
def test_what_no_copy_has_filled_is_zero(fill, wanted):
    check(product(fill), wanted)


def test_a_tile_among_others_is_cleared_alone():
    check(product(the_first_of_two_tiles, tiles=2), lambda a: tile(a, (0, 0, 16)))
