"""Random programs of the cube core: loads into L1, products and stores, in nested loops, are in the
order of the program under every schedule; what `gemm_v0` orders itself is not ordered twice.
"""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from adapter_programs import AUTO
from tilelang.simulator.machine import Schedule

N, TILES, PARTS = 16, 3, 4
SEEDS, MANY = 12, 200


def drawn(rng, depth=2):
    """Statements: (kind, two tiles of L1, one of L0C, a part of global memory or a body)."""
    found = []
    for _ in range(int(rng.integers(2, 6))):
        kind = str(rng.choice(["load", "product", "more", "store", "for" if depth else "load"]))
        a, b = (int(t) for t in rng.integers(0, TILES, 2))
        part = int(rng.integers(0, PARTS))
        inner = (int(rng.integers(0, 4)), drawn(rng, depth - 1)) if kind == "for" else None
        found.append((kind, a, b, int(rng.integers(0, 2)), part, inner))
    return found


def kernel_of(program):
    @T.prim_func
    def kernel(
        A: T.Tensor((PARTS, N, N), "float16"),
        C: T.Tensor((PARTS, N, N), "float32"),
    ):
        with T.Kernel(1, is_npu=True) as (_cid, _vid):
            tiles = [T.alloc_L1((N, N), "float16") for _ in range(TILES)]
            sums = [T.alloc_L0C((N, N), "float32") for _ in range(2)]
            for k, tile in enumerate(tiles):
                T.copy(A[k, :, :], tile)
            for c in sums:
                T.gemm_v0(tiles[0], tiles[1], c, init=True)
            run(program, A, C, tiles, sums)
            for k, c in enumerate(sums):
                T.copy(c, C[k, :, :])

    return kernel


@T.macro
def run(program, A, C, tiles, sums):
    for kind, a, b, c, part, inner in program:
        if kind == "load":
            T.copy(A[part, :, :], tiles[a])
        elif kind == "store":
            T.copy(sums[c], C[part, :, :])
        elif kind == "for":
            for _k in T.serial(inner[0]):
                run(inner[1], A, C, tiles, sums)
        else:
            T.gemm_v0(tiles[a], tiles[b], sums[c], init=kind == "product")


def meaning(program, a, c):
    """The same on arrays."""
    tiles = [a[k].astype(np.float32) for k in range(TILES)]
    sums = [tiles[0] @ tiles[1] for _ in range(2)]

    def go(statements):
        for kind, x, y, z, part, inner in statements:
            if kind == "load":
                tiles[x] = a[part].astype(np.float32)
            elif kind == "store":
                c[part] = sums[z]
            elif kind == "for":
                for _ in range(inner[0]):
                    go(inner[1])
            else:
                sums[z] = tiles[x] @ tiles[y] + (0 if kind == "product" else sums[z])

    go(program)
    c[:2] = sums
    return c


def holds(seed):
    """Whether a drawn program gives its answer in order and on queues."""
    rng = np.random.default_rng(seed)
    program = drawn(rng)
    a = rng.integers(-2, 3, (PARTS, N, N)).astype(np.float16)
    wanted = meaning(program, a, np.zeros((PARTS, N, N), np.float32))
    kernel = tilelang.compile(kernel_of(program), pass_configs=AUTO)
    found = np.zeros_like(wanted)
    kernel(a, found)
    np.testing.assert_array_equal(found, wanted)
    for schedule in Schedule.sweep(3):
        found = np.zeros_like(wanted)
        assert kernel._program.program.check({"A": a, "C": found}, schedule) == []
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_products(seed):
    holds(seed)


@pytest.mark.simulate
def test_many_random_products():
    for seed in range(SEEDS, MANY):
        holds(seed)
