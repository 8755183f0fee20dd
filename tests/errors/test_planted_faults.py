"""One fault planted in a valid program each time: `tilelang.check` reports it at its line.

The line with the fault ends in the comment `# fault`. Without it (`# right` instead, where a line
is to be replaced) the program is clean.
"""

import linecache
from itertools import count, pairwise

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileError

_FILES = count()

# name: (kind of the finding, the program). Each line `a  # right` becomes `b` of the line
# `b  # fault` after it; a `# right` line alone is dropped.
FAULTS = {
    "sum that starts from nothing": (
        "uninitialised",
        """
        total = T.alloc_fragment((24,), "int32")
        T.clear(total)  # right
        for k in T.serial(4):
            for j in T.Parallel(24):
                total[j] = total[j] + A[k, j]  # fault
        T.copy(total, B)
        """,
    ),
    "product into nothing": (
        "uninitialised",
        """
        a = T.alloc_shared((16, 16), "float16")
        c = T.alloc_fragment((16, 16), "float32")
        T.fill(a, 1)
        T.clear(c)  # right
        T.gemm(a, a, c)  # fault
        for j in T.Parallel(16):
            B[j] = T.cast(c[j, 0], "int32")
        """,
    ),
    "reduction that keeps nothing": (
        "uninitialised",
        """
        tile = T.alloc_fragment((4, 24), "int32")
        out = T.alloc_fragment((24,), "int32")
        T.copy(A[0:4, :], tile)
        T.reduce_sum(tile, out, dim=0, clear=True)  # right
        T.reduce_sum(tile, out, dim=0, clear=False)  # fault
        T.copy(out, B)
        """,
    ),
    "tile read before it is filled": (
        "uninitialised",
        """
        tile = T.alloc_shared((24,), "int32")
        T.copy(A[0, :], tile)  # right
        for j in T.Parallel(24):
            B[j] = tile[j]  # fault
        """,
    ),
    "half of a tile is filled": (
        "uninitialised",
        """
        tile = T.alloc_shared((24,), "int32")
        T.copy(A[0, 0:24], tile[0:24])  # right
        T.copy(A[0, 0:12], tile[0:12])
        T.copy(tile, B)  # fault
        """,
    ),
    "index past a tile": (
        "bounds",
        """
        tile = T.alloc_shared((24,), "int32")
        T.copy(A[0, :], tile)
        for j in T.Parallel(24):
            B[j] = tile[j]  # right
            B[j] = tile[j + 1]  # fault
        """,
    ),
    "index before a tile": (
        "bounds",
        """
        tile = T.alloc_shared((24,), "int32")
        T.copy(A[0, :], tile)
        for j in T.Parallel(24):
            tile[j] = j  # right
            tile[j - N[0]] = j  # fault
        T.copy(tile, B)
        """,
    ),
    "index from a tensor": (
        "bounds",
        """
        tile = T.alloc_shared((24,), "int32")
        T.copy(A[0, :], tile)
        for j in T.Parallel(24):
            B[j] = tile[A[1, j] % 24]  # right
            B[j] = tile[A[1, j]]  # fault
        """,
    ),
    "copy beyond a tile": (
        "bounds",
        """
        tile = T.alloc_shared((24,), "int32")
        T.clear(tile)
        for k in T.serial(4):
            T.copy(A[k, 0:8], tile[k * 5 : k * 5 + 8])  # right
            T.copy(A[k, 0:8], tile[k * 6 : k * 6 + 8])  # fault
        T.copy(tile, B)
        """,
    ),
    "length beyond a tile": (
        "bounds",
        """
        tile = T.alloc_shared((24,), "int32")
        T.clear(tile)
        T.copy(A[0, 0 : N[1]], tile[0 : N[1]])  # right
        T.copy(A[0, 0 : N[2]], tile[0 : N[2]])  # fault
        T.copy(tile, B)
        """,
    ),
    "iterations that store one element": (
        "race",
        """
        for i, j in T.Parallel(4, 24):
            C[i, j] = A[i, j]  # right
            C[0, j] = A[i, j]  # fault
        """,
    ),
    "sum by iterations": (
        "race",
        """
        total = T.alloc_shared((24,), "int32")
        T.clear(total)
        for i, j in T.Parallel(4, 24):
            T.atomic_add(total[j], A[i, j])  # right
            total[j] += A[i, j]  # fault
        T.copy(total, B)
        """,
    ),
    "iteration that reads what its neighbour writes": (
        "race",
        """
        tile = T.alloc_shared((25,), "int32")
        T.fill(tile, 1)
        for j in T.Parallel(24):
            tile[j] = tile[j] + 1  # right
            tile[j] = tile[j + 1] + 1  # fault
        T.copy(tile[0:24], B)
        """,
    ),
    "places of a tensor that meet": (
        "race",
        """
        for j in T.Parallel(24):
            B[A[2, j]] = j  # right
            B[A[3, j]] = j  # fault
        """,
    ),
    "blocks that store one element": (
        "race",
        """
        for j in T.Parallel(24):
            C[block, j] = block  # right
            C[0, j] = block  # fault
        """,
    ),
    "blocks that add without atomics": (
        "race",
        """
        for j in T.Parallel(24):
            T.atomic_add(B[j], A[block, j])  # right
            B[j] = B[j] + A[block, j]  # fault
        """,
    ),
    "division by zero": (
        "value",
        """
        for j in T.Parallel(24):
            B[j] = j // N[1]  # right
            B[j] = j // N[3]  # fault
        """,
    ),
    "remainder by zero": (
        "value",
        """
        for j in T.Parallel(24):
            B[j] = j % (j + 1)  # right
            B[j] = j % (j - 3)  # fault
        """,
    ),
}

HEAD = """
def fn(
    A: T.Tensor((4, 24), "int32"), N: T.Tensor((4,), "int32"),
    B: T.Tensor((24,), "int32"), C: T.Tensor((4, 24), "int32"),
):
    with T.Kernel({blocks}, threads=96) as block:
"""


def planted(text: str, blocks: int, fault: bool) -> tuple[str, int]:
    """The source of the program with its fault, or without, and the line of the fault."""
    lines = [x[8:] if x.startswith(" " * 8) else x for x in text.strip("\n").splitlines()]
    pairs = [x.endswith("# right") and y.endswith("# fault") for x, y in pairwise(lines)]
    kept = []
    for n, line in enumerate(lines):
        alone = line.endswith("# right") and not (n < len(pairs) and pairs[n])
        replaced = line.endswith("# right") and not alone
        replacing = line.endswith("# fault") and n > 0 and pairs[n - 1]
        if (fault and (alone or replaced)) or (not fault and replacing):
            continue
        kept.append(" " * 8 + line)
    source = HEAD.format(blocks=blocks) + "\n".join(kept) + "\n"
    at = [n for n, x in enumerate(source.splitlines(), 1) if x.endswith("# fault")]
    return source, at[0] if at else 0


def findings(source: str) -> list:
    """What the trace, the static checks and the dynamic ones find."""
    file = f"<planted {next(_FILES)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope = {"T": T, "__name__": "planted"}
    exec(compile(source, file, "exec", dont_inherit=True), scope)
    a = np.arange(96, dtype=np.int32).reshape(4, 24) % 40
    a[2] = (np.arange(24) * 5) % 24
    a[3] = (np.arange(24) * 3) % 24
    n = np.array([1, 24, 25, 0], np.int32)
    b, c = np.zeros(24, np.int32), np.zeros((4, 24), np.int32)
    try:
        return tilelang.check(T.prim_func(scope["fn"]), target="cpu", run_with=[a, n, b, c])
    except TileError as stopped:
        return list(stopped.diagnostics)


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_a_planted_fault_is_found_at_its_line(name):
    kind, text = FAULTS[name]
    blocks = 4 if "blocks" in name else 1
    clean, _ = planted(text, blocks, fault=False)
    assert not findings(clean), findings(clean)[0].render()
    source, line = planted(text, blocks, fault=True)
    assert line
    found = findings(source)
    assert found, source
    assert any(d.loc is not None and d.loc.line == line and d.kind == kind for d in found), (
        "\n".join(d.render() for d in found)
    )
