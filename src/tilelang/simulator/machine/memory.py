"""Memories: bytes at addresses, in which every access is made by somebody.

What enters: byte addresses, one for each actor, and values. What leaves: values, changed bytes, and
findings of the shadow. An address outside ends the run with an error at the author's line.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.errors import TileIndexError, error
from tilelang.simulator.machine.clocks import Actors
from tilelang.simulator.machine.report import Report
from tilelang.simulator.machine.shadow import Shadow, Who

Addresses = npt.NDArray[np.int64]
Values = npt.NDArray[Any]


class Memory:
    """`data.size` bytes. Without a shadow nothing is checked but the bounds.

    `base` is what its first byte is called in reports and by pointers.
    """

    def __init__(
        self,
        name: str,
        data: npt.NDArray[np.uint8],
        report: Report,
        *,
        shadow: Shadow | None = None,
        base: int = 0,
    ) -> None:
        self.name = name
        self.data = data
        self.report = report
        self.shadow = shadow
        self.base = base
        self.changes = 0
        self._views: dict[tuple[np.dtype[Any], int], Values] = {}

    # One address for each actor ------------------------------------------------------------------

    def load(self, at: Addresses, dtype: np.dtype[Any], count: int, who: Who) -> Values:
        """`count` neighbouring elements from each address on, as (count, addresses)."""
        size = count * dtype.itemsize
        self._bounds(at, size, who)
        if self.shadow is not None:
            self._note(at, size, who)
        return self._gather(at, dtype, count)

    def store(self, at: Addresses, values: Values, who: Who) -> None:
        """Writes neighbouring elements, (count, addresses), from each address on."""
        size = values.shape[0] * values.itemsize
        self._bounds(at, size, who)
        collides = self.shadow is not None and self._note(at, size, who, values)
        self.changes += 1
        count, dtype = values.shape[0], values.dtype
        typed, first = self._placed(at, dtype)
        if typed is None:
            raw = np.ascontiguousarray(values.T).view(np.uint8).reshape(at.size, size)
            self.data[at[:, None] + np.arange(size)] = raw
        elif count == 1:
            typed[first] = values[0]
        else:
            typed[first + np.arange(count)[:, None]] = values
        if collides:
            self._collision(at, values, who)

    def peek(self, at: Addresses, dtype: np.dtype[Any], count: int) -> Values:
        """As `load`, by nobody: nothing is noted. The addresses are inside."""
        return self._gather(at, dtype, count)

    def poke(self, at: Addresses, values: Values) -> None:
        """As `store`, by nobody. The addresses are inside."""
        self.changes += 1
        size = values.shape[0] * values.itemsize
        raw = np.ascontiguousarray(values.T).view(np.uint8).reshape(at.size, size)
        self.data[at[:, None] + np.arange(size)] = raw

    def touch(self, at: Addresses, values: Values, who: Who) -> None:
        """Note that values have been written, by `poke`."""
        size = values.shape[0] * values.itemsize
        self._bounds(at, size, who)
        self._note(at, size, who, values)

    def _gather(self, at: Addresses, dtype: np.dtype[Any], count: int) -> Values:
        typed, first = self._placed(at, dtype)
        if typed is None:
            raw = self.data[at[:, None] + np.arange(count * dtype.itemsize)]
            return np.ascontiguousarray(raw).view(dtype).reshape(at.size, count).T
        if count == 1:
            return typed[first][None]
        return typed[first + np.arange(count)[:, None]]

    def _placed(self, at: Addresses, dtype: np.dtype[Any]) -> tuple[Values | None, Addresses]:
        """The memory as elements, and which of them the addresses are; None if between two."""
        size = dtype.itemsize
        if size == 1:
            return self._view(dtype, 0), at
        if at.size == 0:
            return self._view(dtype, 0), at
        shift = int(at[0]) % size
        moved = at - shift
        if (moved % size).any():
            return None, at
        return self._view(dtype, shift), moved // size

    def _view(self, dtype: np.dtype[Any], shift: int) -> Values:
        found = self._views.get((dtype, shift))
        if found is None:
            whole = (self.data.size - shift) // dtype.itemsize * dtype.itemsize
            found = self.data[shift : shift + whole].view(dtype)
            self._views[dtype, shift] = found
        return found

    # Runs of bytes -------------------------------------------------------------------------------

    def read_bytes(self, start: int, size: int, who: Who) -> npt.NDArray[np.uint8]:
        """A copy of neighbouring bytes, read by one actor."""
        self._bounds(np.array([start]), size, who)
        if self.shadow is not None and size:
            self.shadow.read(slice(start, start + size), who, who.actors)
        return self.data[start : start + size].copy()

    def write_bytes(self, start: int, data: npt.NDArray[np.uint8], who: Who) -> None:
        """Writes neighbouring bytes, by one actor."""
        self._bounds(np.array([start]), data.size, who)
        if self.shadow is not None and data.size:
            place = slice(start, start + data.size)
            self.shadow.write(place, who, who.actors, same=lambda: self.data[place] == data)
        self.changes += 1
        self.data[start : start + data.size] = data

    def read_places(self, at: Addresses, who: Who, run: int = 1) -> npt.NDArray[np.uint8]:
        """The bytes at any places, read by one actor (or one for each place).

        Places come in runs of `run` neighbours.
        """
        self._bounds(at, 1, who)
        if self.shadow is not None and at.size:
            first = at.reshape(-1)[::run]
            self.shadow.read(first, who, _each(who.actors, run), run)
        return self.data[at]

    def write_places(
        self, at: Addresses, data: npt.NDArray[np.uint8], who: Who, run: int = 1
    ) -> None:
        """Writes the bytes at any places, as `read_places`."""
        self._bounds(at, 1, who)
        if self.shadow is not None and at.size:
            flat, new = at.reshape(-1), data.reshape(-1)
            actors = _each(who.actors, run)
            self.shadow.write(flat[::run], who, actors, run, lambda: self.data[flat] == new)
        self.changes += 1
        self.data[at] = data

    # Checks --------------------------------------------------------------------------------------

    def _note(self, at: Addresses, size: int, who: Who, values: Values | None = None) -> bool:
        """Tell the shadow of an access of `size` bytes from each address on: a write of values, or
        a read. Whether a write collides with itself.
        """
        if self.shadow is None or at.size == 0:
            return False
        if values is None:
            self.shadow.read(at, who, who.actors, size)
            return False

        def same() -> npt.NDArray[np.bool_]:
            new = np.ascontiguousarray(values.T).view(np.uint8).reshape(at.size, size)
            return self.data[at[:, None] + np.arange(size)] == new

        return self.shadow.write(at, who, who.actors, size, same)

    def _collision(self, at: Addresses, values: Values, who: Who) -> None:
        """Two actors write one byte at once: a race, unless all write the same."""
        if np.array_equal(
            self._gather(at, values.dtype, values.shape[0]).view(np.uint8),
            np.ascontiguousarray(values).view(np.uint8),
        ):
            return
        site = self.report.sites[who.site]
        self.report.add(
            "race",
            f"{self.name}: two threads write different values to one place at once",
            site.loc,
            label=site.what,
            help="let one of them write",
        )

    def _bounds(self, at: Addresses, size: int, who: Who) -> None:
        if at.size == 0 or size == 0:
            return
        low, high = int(at.min()), int(at.max()) + size
        if low >= 0 and high <= self.data.size:
            return
        site = self.report.sites[who.site]
        wrong = low if low < 0 else high - size
        raise error(
            "bounds",
            f"an access outside of {self.name}",
            site.loc,
            cls=TileIndexError,
            label=site.what,
            expected=f"{size} bytes between 0 and {self.data.size}",
            got=f"byte {wrong}",
        )


def _each(actors: Actors | int, run: int) -> Actors | int:
    """The actors of the first place of each run."""
    if isinstance(actors, int) or actors.size == 1:
        return actors
    return actors[::run]
