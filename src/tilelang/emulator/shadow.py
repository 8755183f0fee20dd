"""Shadow memory: what is known of every element while a checked program runs.

What enters: arrays, and views of them. What leaves: for each access the *cells* it touches. A cell
is as large as the smallest element of any array on the same storage, so that views of other types
share them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.lib.array_utils import byte_bounds

from tilelang.emulator.storage import Array, Tile

Ids = npt.NDArray[np.int32]
Places = npt.NDArray[np.int64]

NOBODY, SEVERAL = -1, -2


class Cells:
    """The cells of one piece of storage: whether each was written, and which blocks and lanes
    touched it last.
    """

    def __init__(self, base: int, size: int, unit: int, *, written: bool) -> None:
        self.base = base
        self.unit = unit
        self.count = max(size // unit, 1)
        self.written = np.full(self.count, written, np.bool_)
        self.plain: Owners | None = None
        self.atomic: Owners | None = None
        self.readers: Owners | None = None
        self.bytes: tuple[Owners, LaneRange] | None = None
        self.lane_writers: LaneRange | None = None
        self.lane_readers: LaneRange | None = None

    @property
    def end(self) -> int:
        """The address behind the last cell."""
        return self.base + self.count * self.unit

    def holds(self, other: Cells) -> bool:
        """Whether all of another piece of storage is part of this one, in cells as small."""
        return self.unit <= other.unit and self.base <= other.base and other.end <= self.end

    def meets(self, other: Cells) -> bool:
        """Whether the two pieces of storage overlap."""
        return self.base < other.end and other.base < self.end

    def blocks(self) -> tuple[Owners, Owners, Owners]:
        """Which blocks stored, updated atomically, and read."""
        if self.plain is None or self.atomic is None or self.readers is None:
            self.plain, self.atomic, self.readers = (
                Owners(self.count),
                Owners(self.count),
                Owners(self.count),
            )
        return self.plain, self.atomic, self.readers

    def of_bytes(self) -> tuple[Owners, LaneRange]:
        """Which blocks, and which lanes, stored into the bytes that elements share."""
        if self.bytes is None:
            self.bytes = Owners(self.count), LaneRange(self.count)
        return self.bytes

    def lanes(self) -> tuple[LaneRange, LaneRange]:
        """Which lanes of the current nest stored, and read."""
        if self.lane_writers is None or self.lane_readers is None:
            self.lane_writers, self.lane_readers = LaneRange(self.count), LaneRange(self.count)
        return self.lane_writers, self.lane_readers


class Owners:
    """For each cell nobody, one block, or several; and the number of the access that came last."""

    def __init__(self, count: int) -> None:
        self.who = np.full(count, NOBODY, np.int32)
        self.site = np.zeros(count, np.int32)
        self.time = np.zeros(count, np.int32)

    def others(self, cells: Places, me: int) -> npt.NDArray[np.bool_]:
        """Which cells belong to somebody else as well."""
        who = self.who[cells]
        return (who != NOBODY) & (who != me)

    def add(self, cells: Places, me: int, site: int, time: int = 0) -> None:
        """Count the block among the owners; `time` is a number that grows while blocks wait for
        each other.
        """
        self.who[cells] = np.where(self.others(cells, me), SEVERAL, me)
        self.site[cells], self.time[cells] = site, time


class LaneRange:
    """For each cell the lowest and highest lane that touched it in this epoch."""

    def __init__(self, count: int) -> None:
        self.epoch = np.full(count, -1, np.int32)
        self.low = np.zeros(count, np.int32)
        self.high = np.zeros(count, np.int32)

    def others(self, cells: Places, lanes: Ids, epoch: int) -> npt.NDArray[np.bool_]:
        """Which of the accesses meet a cell that another lane touched."""
        return (self.epoch[cells] == epoch) & (
            (self.low[cells] != lanes) | (self.high[cells] != lanes)
        )

    def someone(self, cell: int, lane: int) -> int:
        """A lane other than `lane` that touched the cell."""
        low, high = int(self.low[cell]), int(self.high[cell])
        return low if low != lane else high

    def add(self, cells: Places, lanes: Ids, epoch: int) -> None:
        """Count the lanes among those that touched the cells."""
        stale = cells[self.epoch[cells] != epoch]
        self.low[stale] = np.iinfo(np.int32).max
        self.high[stale] = -1
        self.epoch[stale] = epoch
        np.minimum.at(self.low, cells, lanes)
        np.maximum.at(self.high, cells, lanes)


class Shadow:
    """An array and the cells behind it."""

    def __init__(self, array: Array, cells: Cells) -> None:
        self.array = array
        self.cells = cells
        start = int(array.__array_interface__["data"][0]) if array.size else cells.base
        self._offset = (start - cells.base) // cells.unit
        self._steps = tuple(s // cells.unit for s in array.strides)

    def places(self, at: tuple[Any, ...]) -> Places:
        """The cells of elements, by one index array for each axis; those of one element next to
        each other.

        Of a buffer of vectors the last axis of the array, with the scalars of an element, needs no
        index.
        """
        first = np.full(np.shape(at[0]) if at else (1,), self._offset, np.int64)
        for index, step in zip(at, self._steps, strict=False):
            first += np.asarray(index, np.int64) * step
        scalars = math.prod(self.array.shape[len(at) :])
        each = max(scalars * self.array.itemsize // self.cells.unit, 1)
        return first if each == 1 else (first[:, None] + np.arange(each)).ravel()

    def region(self, tile: Tile) -> tuple[tuple[Any, ...], Places]:
        """The elements of a region that exist, by index arrays, and their cells."""
        spans = [
            (max(low, 0), min(low + extent, size))
            for low, extent, size in zip(tile.mins, tile.extents, self.array.shape, strict=True)
        ]
        shape = tuple(max(last - first, 0) for first, last in spans)
        grid = np.ix_(
            *(np.arange(first, first + n) for (first, _), n in zip(spans, shape, strict=True))
        )
        at = tuple(np.broadcast_to(g, shape).ravel() for g in grid)
        return at, self.places(at)

    def forget(self) -> None:
        """Nothing has been written."""
        if self.array.size:
            every = np.indices(self.array.shape).reshape(self.array.ndim, -1)
            self.cells.written[self.places(tuple(every))] = False


def cells_of(array: Array, unit: int, *, written: bool) -> Cells:
    """New cells for the storage that an array spans."""
    low, high = byte_bounds(array) if array.size else (0, unit)
    return Cells(low, high - low, unit, written=written)


def arguments(
    arrays: dict[str, Array], units: dict[str, int], unwritten: set[str]
) -> dict[str, Shadow]:
    """Shadows of the arguments of a launch. Arrays on overlapping storage share their cells."""
    spans = {n: byte_bounds(a) if a.size else (0, 0) for n, a in arrays.items()}
    groups: list[list[str]] = []
    reach = -1
    for name in sorted(arrays, key=lambda n: spans[n]):
        low, high = spans[name]
        if groups and low < reach:
            groups[-1].append(name)
        else:
            groups.append([name])
            reach = 0
        reach = max(reach, high)
    out: dict[str, Shadow] = {}
    for group in groups:
        unit = min(units[n] for n in group)
        low, high = min(spans[n][0] for n in group), max(spans[n][1] for n in group)
        cells = Cells(low, high - low, unit, written=True)
        for n in group:
            out[n] = Shadow(arrays[n], cells)
    for n in unwritten & set(arrays):
        out[n].forget()
    return out
