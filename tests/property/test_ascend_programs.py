"""Random programs of a vector core: the automatic order of pipes and the planned memory give the
numbers of NumPy, in order and on queues, with nothing to report.
"""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.simulator.machine import Schedule

AUTOMATIC = {"tl.ascend_auto_sync": True, "tl.ascend_memory_planning": True}
ROWS, COLUMNS, TILES = 4, 24, 3
BINARY = {"add": np.add, "sub": np.subtract, "max": np.maximum, "min": np.minimum}
SCALARS = {"add": np.add, "mul": np.multiply}


def drawn(rng):
    """Statements: (kind, what they work on)."""
    found = []
    for _ in range(int(rng.integers(4, 11))):
        kind = rng.choice(["load", "store", "binary", "scalar", "unary", "copy", "row", "element"])
        tiles = [int(t) for t in rng.integers(0, TILES, 3)]
        found.append((str(kind), tiles, int(rng.integers(0, 2)), int(rng.integers(0, ROWS))))
    return found


def kernel_of(program, loops):
    @T.prim_func
    def kernel(
        A: T.Tensor((2, ROWS, COLUMNS), "float32"), C: T.Tensor((2, ROWS, COLUMNS), "float32")
    ):
        with T.Kernel(1, is_npu=True) as (_, vid), T.Scope("V"):
            tiles = [T.alloc_ub((ROWS, COLUMNS), "float32") for _ in range(TILES)]
            if vid == 0:
                for tile in tiles:
                    T.tile.fill(tile, 1.0)
                for _k in T.serial(loops):
                    for each in program:
                        step(each, tiles, A, C)
                T.copy(tiles[0], C[0, :, :])

    return kernel


@T.macro
def step(each, tiles, A, C):
    kind, (x, y, z), part, row = each
    a, b, c = tiles[x], tiles[y], tiles[z]
    if kind == "load":
        T.copy(A[part, :, :], a)
    elif kind == "store":
        T.copy(a, C[part, :, :])
    elif kind == "binary":
        getattr(T.tile, list(BINARY)[(x + y) % len(BINARY)])(a, b, c)
    elif kind == "scalar":
        getattr(T.tile, list(SCALARS)[part])(a, b, 0.5)
    elif kind == "unary":
        T.tile.abs(a, b)
    elif kind == "copy":
        T.copy(a, b)
    elif kind == "row":
        T.tile.add(a[row, :], b[row, :], c[row, 0])
    else:
        a[row, 1] = b[row, 2] + 1.0


def meaning(program, loops, a, c):
    """The same on arrays."""
    tiles = [np.ones((ROWS, COLUMNS), np.float32) for _ in range(TILES)]
    for _ in range(loops):
        for kind, (x, y, z), part, row in program:
            if kind == "load":
                tiles[x][:] = a[part]
            elif kind == "store":
                c[part] = tiles[x]
            elif kind == "binary":
                tiles[x][:] = list(BINARY.values())[(x + y) % len(BINARY)](tiles[y], tiles[z])
            elif kind == "scalar":
                tiles[x][:] = list(SCALARS.values())[part](tiles[y], np.float32(0.5))
            elif kind == "unary":
                tiles[x][:] = np.abs(tiles[y])
            elif kind == "copy":
                tiles[y][:] = tiles[x]
            elif kind == "row":
                tiles[x][row] = tiles[y][row] + tiles[z][row, 0]
            else:
                tiles[x][row, 1] = tiles[y][row, 2] + np.float32(1)
    c[0] = tiles[0]


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed):
    rng = np.random.default_rng(seed)
    program, loops = drawn(rng), int(rng.integers(1, 4))
    made = tilelang.compile(
        kernel_of(program, loops), target="simulate:ascend910b", pass_configs=AUTOMATIC
    )
    a = rng.integers(-8, 8, (2, ROWS, COLUMNS)).astype(np.float32)
    wanted = np.zeros((2, ROWS, COLUMNS), np.float32)
    meaning(program, loops, a, wanted)
    found = np.zeros_like(wanted)
    made(a, found)
    assert (found == wanted).all(), program
    for schedule in Schedule.sweep(4):
        found = np.zeros_like(wanted)
        said = made._program.program.check({"A": a.copy(), "C": found}, schedule)
        assert [d.render() for d in said] == [], program
        assert (found == wanted).all(), program
