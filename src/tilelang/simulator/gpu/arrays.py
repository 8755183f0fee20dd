"""What the names of arrays stand for while a kernel runs: registers, and windows of memory.

What enters: storage. What leaves: elements, with the lanes of the group along the last axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.dtypes import DType
from tilelang.errors import TileIndexError, error
from tilelang.simulator.machine import Agent, Memory, Report

Values = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]


class Registers:
    """`size` elements for each lane: `data` has the shape (size, lanes).

    Those that an asynchronous instruction uses are `watched`: `uses` has the operations under way
    with the elements they use, `changed` says that a lane has written since the last fence.
    """

    def __init__(self, name: str, dtype: DType, size: int, lanes: int, report: Report) -> None:
        self.name = name
        self.dtype = dtype
        self.report = report
        self.data: Values = fresh((size, lanes), dtype)
        self.uses: list[Use] = []
        self.changed = False

    def write(self, index: int, value: Any, mask: Mask | None) -> None:
        """Set neighbouring elements of the lanes of a mask: a value, or a vector of them."""
        at = index if np.ndim(value) < 2 else slice(int(index), int(index) + len(value))
        if mask is None:
            self.data[at] = value
        else:
            np.copyto(self.data[at], value, where=mask)

    def watched_read(self, index: int, lanes: int, site: int) -> Values:
        """Read elements that an operation may be working on."""
        self.check(int(index), lanes, site, writes=False)
        return self.data[index] if lanes == 1 else self.data[index : index + lanes]

    def watched_write(self, index: int, value: Any, mask: Mask | None, site: int) -> None:
        """Write elements that an operation may be working on."""
        self.check(int(index), np.shape(value)[0] if np.ndim(value) == 2 else 1, site, writes=True)
        self.changed = True
        self.write(index, value, mask)

    def check(self, index: int, count: int, site: int, *, writes: bool) -> None:
        """A finding if an operation still uses these elements and one of the two writes them."""
        for use in self.uses:
            if use.last <= index or index + count <= use.first or not (writes or use.writes):
                continue
            at = self.report.sites[site]
            started = self.report.sites[use.site]
            verb = "are written" if writes else "are read"
            self.report.add(
                "async",
                f"elements of {self.name} {verb} while {started.what}",
                at.loc,
                label=at.what,
                related=() if started.loc is None else ((started.loc, started.what),),
                help="wait for it first",
            )


@dataclass(frozen=True)
class Use:
    """Elements `first` to `last` that an operation uses until it is waited for."""

    operation: Agent
    first: int
    last: int
    writes: bool
    site: int


class Local:
    """An array of each lane with addresses: any lane may use any index."""

    def __init__(self, name: str, dtype: DType, size: int, lanes: int, report: Report) -> None:
        self.name = name
        self.dtype = dtype
        self.report = report
        self.data: Values = fresh((size, lanes), dtype)
        self._lanes = np.arange(lanes)

    def places(self, index: Any, count: int, mask: Mask | None, site: int) -> tuple[Any, Any]:
        """The places of elements; an index outside is an error, but of lanes that are not there."""
        at = np.broadcast_to(np.asarray(index, np.int64), self._lanes.shape)
        inside = np.clip(at, 0, max(0, len(self.data) - count))
        wrong = (at != inside) if mask is None else (at != inside) & mask
        if wrong.any():
            place = self.report.sites[site]
            raise error(
                "bounds",
                f"an access outside of {self.name}",
                place.loc,
                cls=TileIndexError,
                label=place.what,
                expected=f"0 to {len(self.data) - 1}",
                got=str(int(at[np.argmax(wrong)])),
            )
        return inside + np.arange(count)[:, None], self._lanes

    def read(self, index: Any, lanes: int, mask: Mask | None, site: int) -> Values:
        """Neighbouring elements, (lanes of the vector, lanes of the group); a scalar has one axis.

        Lanes outside of the mask get anything.
        """
        found = self.data[self.places(index, lanes, mask, site)]
        return found if lanes > 1 else found[0]

    def write(self, index: Any, value: Any, mask: Mask | None, site: int) -> None:
        """Set neighbouring elements."""
        parts = np.asarray(value) if np.ndim(value) == 2 else np.asarray(value)[None]
        rows, lanes = self.places(index, len(parts), mask, site)
        values = np.broadcast_to(parts, rows.shape)
        if mask is None:
            self.data[rows, lanes] = values
        else:
            self.data[rows[:, mask], lanes[mask]] = values[:, mask]


@dataclass(frozen=True)
class Window:
    """Elements of a memory from byte `start` on, which may differ between lanes.

    `size` is None where it is not known. `base` is the generic address of byte 0 of the memory.
    """

    name: str
    dtype: DType
    memory: Memory
    start: Any
    size: int | None

    @property
    def item(self) -> int:
        """The bytes of an element."""
        return self.dtype.numpy.itemsize


def fresh(shape: tuple[int, ...], dtype: DType) -> Values:
    """Storage with undefined contents: all bits set, which is NaN for most floats."""
    storage = dtype.numpy
    bits = (1 << dtype.bits) - 1 if dtype.bits < 8 else 0xFF
    raw = np.full((*shape[:-1], shape[-1] * storage.itemsize), bits, np.uint8)
    if dtype.is_bool:
        raw[...] = 0
    return raw.view(storage)


@dataclass(frozen=True)
class Place:
    """An operand of an instruction in memory or registers: `count` elements from `index` on."""

    array: Registers | Local | Window
    index: Any
    count: int

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.array.dtype
