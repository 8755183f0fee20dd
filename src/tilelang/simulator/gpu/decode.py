"""Descriptors as hardware reads them: from the bits, by tables of this module alone.

What enters: 64-bit descriptors. What leaves: their fields, and where the elements of a matrix lie
in shared memory. Sources: PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Shared Memory Layout"
and "Matrix Descriptor Format"; the canonical layouts are those of "Shared Memory Matrix Layout".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tilelang.simulator.gpu.maps import swizzled

Offsets = npt.NDArray[np.int64]

_GROUP = 16
"""Bytes that stay together, and the unit of addresses in descriptors."""


def bits(word: int, high: int, low: int) -> int:
    """Bits `high` to `low` of a word, both counted."""
    return word >> low & (1 << (high - low + 1)) - 1


@dataclass(frozen=True)
class Matrix:
    """A matrix in shared memory: `start`, `leading` and `stride` in bytes, `span` of the swizzle in
    bytes (0 for none), `base` the row of 128 bytes at which the pattern of the swizzle begins.
    """

    start: int
    leading: int
    stride: int
    base: int
    span: int


_WGMMA_SPANS = {0b00: 0, 0b01: 128, 0b10: 64, 0b11: 32}


def wgmma_matrix(word: int) -> Matrix:
    """The fields of a descriptor of wgmma."""
    return Matrix(
        start=bits(word, 13, 0) << 4,
        leading=bits(word, 29, 16) << 4,
        stride=bits(word, 45, 32) << 4,
        base=bits(word, 51, 49),
        span=_WGMMA_SPANS[bits(word, 63, 62)],
    )


def places(matrix: Matrix, rows: int, depth: int, size: int, *, across: bool) -> Offsets:
    """Byte addresses (rows, depth, size) of a matrix of which `depth` is the axis of the sum.

    `across` says that neighbours in memory are neighbours along the rows (M- or N-major); else they
    are neighbours along the depth (K-major). `size` is the bytes of an element.
    """
    low = matrix.start % 1024
    pattern = _pattern(low, matrix, rows, depth, size, across)
    return pattern + (matrix.start - low)


@lru_cache(maxsize=256)
def _pattern(low: int, matrix: Matrix, rows: int, depth: int, size: int, across: bool) -> Offsets:
    r, c = np.indices((rows, depth)).astype(np.int64)
    address = low + (_across(matrix, r, c, size) if across else _along(matrix, r, c, size))
    shifted = address - 128 * matrix.base
    found = swizzled(shifted, matrix.span) + 128 * matrix.base
    return found[..., None] + np.arange(size)


def _along(matrix: Matrix, r: Offsets, c: Offsets, size: int) -> Offsets:
    """K-major: groups of 8 rows, `stride` apart. With a swizzle, rows of `span` bytes; without,
    core matrices of 8 rows of 16 bytes, `leading` apart along the depth.
    """
    byte = c * size
    if matrix.span:
        inside = r % 8 * matrix.span + byte % matrix.span
        return r // 8 * matrix.stride + inside + byte // matrix.span * matrix.leading
    inside = r % 8 * _GROUP + byte % _GROUP
    return r // 8 * matrix.stride + byte // _GROUP * matrix.leading + inside


def _across(matrix: Matrix, r: Offsets, c: Offsets, size: int) -> Offsets:
    """M- or N-major: with a swizzle, panels of `span` bytes along the rows, `leading` apart, and 8
    steps of the depth make a group, `stride` apart. Without, core matrices of 16 bytes along the
    rows by 8 steps, `stride` apart along the rows and `leading` apart along the depth.
    """
    byte = r * size
    if matrix.span:
        inside = c % 8 * matrix.span + byte % matrix.span
        return byte // matrix.span * matrix.leading + c // 8 * matrix.stride + inside
    inside = c % 8 * _GROUP + byte % _GROUP
    return byte // _GROUP * matrix.stride + c // 8 * matrix.leading + inside
