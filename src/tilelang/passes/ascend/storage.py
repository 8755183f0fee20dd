"""How buffers lie in the memories of an Ascend core group: spaces, sizes, padded matrices.

What enters: buffers of the tile stage. What leaves: the space of the thread stage, and the bytes
that a buffer takes. The last two axes of a buffer in L1, L0A, L0B and L0C are a matrix of whole
fractals (16 rows of 32 bytes; 16 x 16 elements in L0C); the axes before count matrices. Scales lie
in whole blocks of 16 rows by two bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilelang.errors import error
from tilelang.ir.expr import Buffer, int_value
from tilelang.ir.node import Node
from tilelang.ir.thread import Space
from tilelang.scopes import L1_SCALES, Memory

SPACES: dict[Memory, Space] = {
    Memory.UB: Space.UB,
    Memory.L1: Space.L1,
    Memory.L0A: Space.L0A,
    Memory.L0B: Space.L0B,
    Memory.L0C: Space.L0C,
    Memory.L0A_SCALE: Space.L0A_SCALE,
    Memory.L0B_SCALE: Space.L0B_SCALE,
}
"""The spaces of a core group by memory."""

FRACTAL = 16
C0_BYTES = 32
SCALE_UNIT = 2
"""Bytes: scales are moved in pairs, each for 64 elements of K of one row."""


def c0_of(buffer: Buffer) -> int:
    """The elements in a row of a fractal."""
    return C0_BYTES // buffer.dtype.bytes


def ceil_to(n: int, step: int) -> int:
    """`n` rounded up to a multiple of `step`."""
    return -(-n // step) * step


@dataclass(frozen=True)
class Tile:
    """A buffer as matrices: how many, and the rows and columns of each, also with the fractals
    whole.
    """

    count: int
    rows: int
    columns: int
    padded_rows: int
    padded_columns: int

    @property
    def elements(self) -> int:
        """The elements from one matrix to the next."""
        return self.padded_rows * self.padded_columns


def static_shape(buffer: Buffer, at: Node) -> tuple[int, ...]:
    """The extents, which are constants on chip."""
    found: list[int] = []
    for extent in buffer.shape:
        size = int_value(extent)
        if size is None:
            raise error(
                "shape",
                f"{buffer.name} has a size that is known only when the kernel runs",
                at.loc,
                expected="constant extents for a buffer on chip",
            )
        found.append(size)
    return tuple(found)


def tile_of(buffer: Buffer, memory: Memory, at: Node) -> Tile:
    """A buffer of L1, L0A, L0B or L0C as matrices. `at` is named in errors."""
    shape = static_shape(buffer, at)
    if len(shape) < 2:
        raise error(
            "shape",
            f"{buffer.name} in {memory.title} has {len(shape)} axes",
            at.loc,
            expected="a matrix: two axes or more",
            got=f"shape {shape}",
        )
    *lead, rows, columns = shape
    if buffer.scope == L1_SCALES or memory in (Memory.L0A_SCALE, Memory.L0B_SCALE):
        pairs = ceil_to(columns, SCALE_UNIT // buffer.dtype.bytes)
        return Tile(math.prod(lead), rows, columns, ceil_to(rows, FRACTAL), pairs)
    if memory is Memory.L0C:
        wide = FRACTAL
    elif memory is Memory.L1:
        wide = c0_of(buffer)
    else:  # either axis of an L0 operand may be the one along the rows of fractals
        wide = max(FRACTAL, c0_of(buffer))
    high = wide if memory in (Memory.L0A, Memory.L0B) else FRACTAL
    return Tile(math.prod(lead), rows, columns, ceil_to(rows, high), ceil_to(columns, wide))


def bytes_of(buffer: Buffer, memory: Memory, at: Node) -> int:
    """The bytes that a buffer takes in a memory of a core group."""
    size = buffer.dtype.bytes * buffer.dtype.lanes
    if memory is Memory.UB:
        return math.prod(static_shape(buffer, at)) * size
    tile = tile_of(buffer, memory, at)
    return tile.count * tile.elements * size
