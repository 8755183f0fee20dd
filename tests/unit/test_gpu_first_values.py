"""Masks that are computed only for the tiles that they divide, and the order of blocks."""

import numpy as np
import pytest

import tilelang.language as T
from gpu_build import check_gpu

RANDOM = np.random.default_rng(11)
SIZE, DEEP, TILE = 160, 32, 32


def masked(seen, *, first=0.0, other=-5.0, stages=2):
    """Sums of products of rows, from `first` or `other` on as `seen(row, column)` says."""

    @T.prim_func
    def kernel(
        A: T.Tensor((SIZE, DEEP), "float16"),
        B: T.Tensor((SIZE, DEEP), "float16"),
        n: T.int32,
        C: T.Tensor((SIZE, SIZE), "float32"),
    ):
        with T.Kernel(SIZE // TILE, threads=64) as bx:
            a = T.alloc_shared((TILE, DEEP), "float16")
            b = T.alloc_shared((TILE, DEEP), "float16")
            c = T.alloc_fragment((TILE, TILE), "float32")
            T.copy(A[bx * TILE, 0], a)
            for k in T.Pipelined(SIZE // TILE, num_stages=stages):
                T.copy(B[k * TILE, 0], b)
                for i, j in T.Parallel(TILE, TILE):
                    c[i, j] = T.if_then_else(seen(bx * TILE + i, k * TILE + j, n), first, other)
                T.gemm(a, b, c, transpose_B=True)
                T.copy(c, C[bx * TILE, k * TILE])

    return kernel


def arguments(n):
    """Small whole numbers, so that sums are exact."""
    a, b = (RANDOM.integers(-3, 4, size=(SIZE, DEEP)).astype(np.float16) for _ in range(2))
    return {"A": a, "B": b, "n": n, "C": np.zeros((SIZE, SIZE), np.float32)}


def notes(program) -> list[tuple[str, str]]:
    """What the report says."""
    return [note[:2] for note in dict(program.attrs)["notes"]]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize(
    "seen",
    [
        lambda i, j, n: i >= j,
        lambda i, j, n: j < i,
        lambda i, j, n: (j <= i) & (j > i - 40),
        lambda i, j, n: j < n,
        lambda i, j, n: 2 * i > 3 * j + 7,
    ],
)
def test_a_mask_is_computed_where_it_divides_a_tile(seen, arch):
    program = check_gpu(masked(seen), arch=arch, **arguments(100))
    assert ("mask", "computed for tiles that it divides") in notes(program)


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (lambda i, j, n: (i + j) % 3 < 2, "is no sum"),
        (lambda i, j, n: i == j, "no comparison of sums"),
        (lambda i, j, n: j < i + n, "may overflow"),
    ],
)
def test_a_mask_of_another_kind_is_computed_for_every_tile(seen, reason):
    program = check_gpu(masked(seen), **arguments(3))
    assert any(kind == "declined" and reason in said for kind, said in notes(program))


@pytest.mark.parametrize("first", [-0.0, 1.0])
def test_a_first_value_that_is_no_zero_stays(first):
    program = check_gpu(masked(lambda i, j, n: i >= j, first=first), **arguments(0))
    assert not any(kind == "mask" for kind, _ in notes(program))


def growing(stop):
    """Each block sums as many tiles as `stop(block)` says."""

    @T.prim_func
    def kernel(X: T.Tensor((7, 64), "float32"), Y: T.Tensor((7, 64), "float32")):
        with T.Kernel(7, threads=64) as bx:
            x = T.alloc_shared((64,), "float32")
            y = T.alloc_fragment((64,), "float32")
            T.clear(y)
            for k in T.Pipelined(stop(bx), num_stages=2):
                T.copy(X[k, 0:64], x)
                for i in T.Parallel(64):
                    y[i] += x[i]
            T.copy(y, Y[bx, 0:64])

    return kernel


@pytest.mark.parametrize(
    ("stop", "ordered"),
    [
        (lambda b: b + 1, True),
        (lambda b: T.min(7, T.ceildiv((b + 1) * 3, 2)), True),
        (lambda b: 7 - b, False),
        (lambda b: 4, False),
        (lambda b: (b * 3) % 5, False),
    ],
)
def test_longer_blocks_begin_first(stop, ordered):
    x = RANDOM.integers(-9, 10, size=(7, 64)).astype(np.float32)
    program = check_gpu(growing(stop), X=x, Y=np.zeros((7, 64), np.float32))
    assert (("ordered", "blocks with more rounds begin first") in notes(program)) == ordered
