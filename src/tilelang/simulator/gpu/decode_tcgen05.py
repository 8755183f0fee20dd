"""What tcgen05 instructions are told, read from bits by tables of this module alone.

What enters: 64-bit descriptors and 32-bit instruction words. What leaves: their fields, and where
rows and scales of matrices lie in Tensor Memory. Source: PTX ISA 9.0, "tcgen05: Shared memory
descriptor", "Instruction descriptor", "Data Path Layout Organization", "Block Scaling".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from tilelang.errors import TileError, error
from tilelang.simulator.gpu.decode import Matrix, bits

Index = npt.NDArray[np.int64]

_SPANS = {0b000: 0, 0b010: 128, 0b100: 64, 0b110: 32}


def tcgen05_matrix(word: int) -> Matrix:
    """The fields of a descriptor of tcgen05."""
    swizzle = bits(word, 63, 61)
    if bits(word, 48, 46) != 0b001 or swizzle not in _SPANS or bits(word, 52, 52):
        raise _invalid(f"a descriptor {word:#018x}", "001 in bits 46 to 48, a swizzle of 0 to 128")
    return Matrix(
        start=bits(word, 13, 0) << 4,
        leading=bits(word, 29, 16) << 4,
        stride=bits(word, 45, 32) << 4,
        base=bits(word, 51, 49),
        span=_SPANS[swizzle],
    )


def _invalid(got: str, expected: str) -> TileError:
    return error("value", "tcgen05 cannot read what it is told", got=got, expected=expected)


@dataclass(frozen=True)
class Instruction:
    """The shape and types of one product: `m` rows and `n` columns, PTX types of A, B and D;
    `across` says which operands lie along M or N. Block-scaled products have the type of the
    scales, and the bytes of their cells at which those of A and B begin.
    """

    m: int
    n: int
    a: str
    b: str
    d: str
    across: tuple[bool, bool]
    scale: str = ""
    at: tuple[int, int] = (0, 0)


_OPERANDS: dict[str, dict[int, str]] = {
    "f16": {0: "f16", 1: "bf16"},
    "tf32": {2: "tf32"},
    "f8f6f4": {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"},
    "mxf8f6f4": {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"},
    "i8": {0: "u8", 1: "s8"},
    "mxf4": {1: "e2m1"},
    "mxf4nvf4": {1: "e2m1"},
}
_RESULTS: dict[str, dict[int, str]] = {
    "f16": {0: "f16", 1: "f32"},
    "tf32": {1: "f32"},
    "f8f6f4": {0: "f16", 1: "f32"},
    "i8": {2: "s32"},
}
_SCALES = {0: "ue4m3", 1: "ue8m0"}


def instruction(word: int, kind: str, blocks: int) -> Instruction:
    """The fields of an instruction word, for products of a kind by so many blocks (1 or 2)."""
    scaled = kind.startswith("mx")
    a, b = _OPERANDS[kind].get(bits(word, 9, 7)), _OPERANDS[kind].get(bits(word, 12, 10))
    d = "f32" if scaled else _RESULTS[kind].get(bits(word, 5, 4))
    m, n = bits(word, 28, 24) << 4, bits(word, 22, 17) << 3
    if a is None or b is None or d is None or not _legal(m, n, kind, blocks):
        raise _invalid(f"{word:#010x}: {a} x {b} -> {d}, {m} x {n}", f"types and sizes of {kind}")
    across = (bool(bits(word, 15, 15)), bool(bits(word, 16, 16)))
    if not scaled:
        return Instruction(m, n, a, b, d, across)
    at = (bits(word, 30, 29), bits(word, 5, 4))
    return Instruction(m, n, a, b, d, across, _SCALES[bits(word, 23, 23)], at)


def _legal(m: int, n: int, kind: str, blocks: int) -> bool:
    """PTX ISA, tcgen05: Matrix Shape."""
    if blocks == 2:
        return ((m == 128 and not kind.startswith("mx")) or m == 256) and n in range(16, 257, 16)
    if kind.startswith("mx"):
        return m == 128 and n in range(8, 257, 8)
    if m == 64:
        return n in ((8, 16, 24, *range(32, 257, 16)) if kind == "i8" else range(8, 257, 8))
    return m == 128 and n in range(16, 257, 16)


# Tensor Memory -----------------------------------------------------------------------------------


@cache
def result_places(m: int, n: int, blocks: int) -> tuple[Index, Index]:
    """(lane, column) of each element of the rows that one block has of a result: layouts D and F
    of one block, A and B of a pair.
    """
    rows = m // blocks
    r, c = np.indices((rows, n)).astype(np.int64)
    if rows == 128:
        return r, c
    if blocks == 1:
        return r // 16 * 32 + r % 16, c
    return r + 64 * (c // (n // 2)), c % (n // 2)


@cache
def scale_places(rows: int) -> tuple[Index, Index]:
    """(lane, column) of the cell with the scales of each row: 32 rows go down the lanes, the next
    32 are in the next column. Each quarter of the lanes holds the same.
    """
    r = np.arange(rows, dtype=np.int64)
    return r % 32, r // 32


@cache
def move_places(shape: str, count: int) -> tuple[Index, Index]:
    """(lane, word) of each register of each thread of a warp, as (registers, threads), for the
    lanes that the warp reaches (PTX ISA, tcgen05: Matrix Fragments).
    """
    each = {"32x32b": 1, "16x256b": 4}[shape] * count
    register, thread = np.indices((each, 32)).astype(np.int64)
    if shape == "32x32b":
        return thread, register
    row = thread // 4 + 8 * (register // 2 % 2)
    return row, register // 4 * 8 + thread % 4 * 2 + register % 2
