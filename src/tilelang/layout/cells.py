"""Where the elements of a matrix lie in Tensor Memory, and which threads can reach them.

What enters: the extents of a matrix, the size of its elements, and how the products that use it
place it. What leaves: `Cells`. Tensor Memory has 128 lanes and 512 columns of 32 bits; a warp
reaches the 32 lanes that its number modulo 4 names (PTX ISA, tcgen05: Data Path Layout, Access
restrictions).
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from tilelang.layout.spread import Digit, Spread

CELL_BITS = 32
ROWS = 128
"""The lanes, so the rows of a matrix that lie in lanes of their own."""

LANES_OF_WARP = 32
WARPGROUP = 128
GROUP_BITS = 128
"""Bits of the neighbouring elements that a thread reads or writes elsewhere at once."""

WIDEST = 128
"""The most 32-bit registers of a thread that one load or store takes."""


class Lanes(enum.Enum):
    """How the rows of a matrix lie in the lanes; the letters are those of the PTX ISA."""

    FULL = "128 rows, one in each lane (layouts A and D)"
    HALF = "64 rows, 16 in the first lanes of each warp (layout F)"
    TWICE = "64 rows, each in two lanes (operand A of a pair of blocks with 64 rows each)"
    FOLDED = "64 rows, the second half of the columns in the upper lanes (layout B)"


@dataclass(frozen=True)
class Cells:
    """A matrix of `columns` elements of `bits` bits in each row, in Tensor Memory.

    `batches` such matrices lie one after the other along the columns, and so do the `bands` of 128
    rows of a matrix that has more. `packed` elements share a cell; others have one each.
    """

    lanes: Lanes
    columns: int
    bits: int
    batches: int = 1
    packed: bool = False
    bands: int = 1

    @property
    def rows(self) -> int:
        """The rows of a band."""
        return ROWS if self.lanes is Lanes.FULL else 64

    @property
    def per(self) -> int:
        """Elements in a 32-bit register of a thread."""
        return CELL_BITS // self.bits

    @property
    def in_cell(self) -> int:
        """Elements in a cell."""
        return self.per if self.packed else 1

    @property
    def halves(self) -> bool:
        """Whether loads gather, and stores spread, the lower 16 bits of cells."""
        return not self.packed and self.bits == 16

    @property
    def step(self) -> int:
        """Cells from one band to the next."""
        wide = -(-self.columns // self.in_cell)
        return wide // 2 if self.lanes is Lanes.FOLDED else wide

    @property
    def group(self) -> int:
        """Columns that a load or store takes together at least."""
        return 8 * self.per if self.lanes is Lanes.HALF else self.per

    def key(self) -> tuple[str, int, int, int, bool, int]:
        """The facts, as an annotation keeps them; `from_key` reads them."""
        return (self.lanes.name, self.columns, self.bits, self.batches, self.packed, self.bands)

    def parts(self, columns: int, threads: int) -> int:
        """How many warpgroups share the columns of a copy; the others do the same as these."""
        whole = threads // WARPGROUP
        for parts in range(whole, 0, -1):
            if whole % parts == 0 and columns % (self.group * parts) == 0:
                return parts if self.lanes is not Lanes.FOLDED else 1
        return 1

    def spread(self, shape: tuple[int, ...], threads: int) -> Spread:
        """The layout in registers of a copy of `shape`: whole bands, and some columns."""
        row, column = len(shape) - 2, len(shape) - 1
        columns, per = shape[-1], self.per
        outer = [Digit(axis, n, 1) for axis, n in enumerate(shape[:-2])]
        outer.append(Digit(row, shape[row] // self.rows, self.rows))
        parts = self.parts(columns, threads)
        own = columns // parts
        if self.lanes is Lanes.HALF:
            inner = [
                Digit(column, own // (8 * per), 8 * per),
                Digit(row, 2, 8),
                Digit(column, 2, per),
                Digit(column, per, 1),
                Digit(column, 4, 2 * per, 1),
                Digit(row, 8, 1, 4),
                Digit(row, 4, 16, LANES_OF_WARP),
            ]
        elif self.lanes is Lanes.FOLDED:
            few = max(per, math.gcd(columns // 2, GROUP_BITS // self.bits))
            inner = [
                Digit(column, columns // 2 // few, few),
                Digit(column, few, 1),
                Digit(row, 64, 1, 1),
                Digit(column, 2, columns // 2, 64),
            ]
        else:
            few = max(per, math.gcd(own, GROUP_BITS // self.bits))
            inner = [
                Digit(column, own // few, few),
                Digit(column, few, 1),
                Digit(row, self.rows, 1, 1),
            ]
        share = [Digit(column, parts, own, WARPGROUP)]
        digits = tuple(d for d in (*outer, *inner, *share) if d.size > 1)
        return Spread(shape, threads, digits)

    def segments(self, columns: int, threads: int) -> list[tuple[int, int]]:
        """The loads of `columns` columns by one thread: (first register of 32 bits, how many)."""
        own = columns // self.parts(columns, threads) // self.per
        if self.lanes in (Lanes.HALF, Lanes.FOLDED):
            own //= 2
        found: list[tuple[int, int]] = []
        at = 0
        while at < own:
            size = min(WIDEST, 1 << (own - at).bit_length() - 1)
            found.append((at, size))
            at += size
        return found

    def cells_before(self, registers: int) -> int:
        """Cells along the columns that lie before the register of this number in a lane."""
        words = registers * 2 if self.lanes is Lanes.HALF else registers
        return words * (self.per if self.halves else 1)


def from_key(key: tuple[str, int, int, int, bool, int]) -> Cells:
    """The cells that have this key."""
    lanes, columns, bits, batches, packed, bands = key
    return Cells(Lanes[lanes], columns, bits, batches, packed, bands)
