"""Copies of a few elements by each thread for itself (`cp.async` by its PTX form).

What enters: where each thread copies from and to. What leaves: changed arrays, for the threads that
are meant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilelang.emulator import elements
from tilelang.emulator.inflight import Elements
from tilelang.emulator.storage import Access, Array, poison

Lanes = Array
"""The numbers of some lanes."""

Side = tuple[Array, tuple[Any, ...], Access]
"""An array, the index of the first element for each lane, and what is known of the access."""


class LaneCopy:
    """How `lanes` threads copy `count` neighbouring elements each.

    Where `pred` is given and does not hold, zeros are written and nothing is read.
    """

    def __init__(self, src: Side, dst: Side, count: int, pred: Any, lanes: int) -> None:
        self._src, self._dst = src, dst
        self._from, self._to = _spread(src, lanes), _spread(dst, lanes)
        self._count = count
        self._keep = None if pred is None else np.broadcast_to(pred, (lanes,)).astype(np.bool_)

    def copy(self, which: Lanes) -> None:
        """The copies of some lanes."""
        array, _, access = self._src
        shape = (which.size, self._count)
        at = _places(self._from, which, self._count)
        if self._keep is None:
            values = np.broadcast_to(elements.gather(array, at, access), shape)
        else:
            mask = np.broadcast_to(self._keep[which][:, None], shape)
            safe = tuple(np.where(mask, i, 0) for i in at)
            values = np.where(mask, elements.gather(array, safe, access), array.dtype.type(0))
        self._write(which, np.ascontiguousarray(values))

    def forget(self, which: Lanes) -> None:
        """Make the destinations of some lanes undefined."""
        self._write(which, poison(self._dst[2].dtype))

    def _write(self, which: Lanes, values: Any) -> None:
        array, _, access = self._dst
        into = _places(self._to, which, self._count)
        elements.scatter(array, into, values, None, (which.size, self._count), access)

    def places(self, which: Lanes) -> tuple[Elements, Elements]:
        """What some lanes read and write."""
        read = which if self._keep is None else which[self._keep[which]]
        return self._elements(self._src, self._from, read), self._elements(
            self._dst, self._to, which
        )

    def _elements(self, side: Side, first: list[Array], which: Lanes) -> Elements:
        array, _, access = side
        at = _places(first, which, self._count)
        flat, _ = elements.flat(array, at, None, (which.size, self._count), access)
        return Elements(array, flat, access)


def _spread(side: Side, lanes: int) -> list[Array]:
    """The indices as they are now, one for each lane."""
    return [np.array(np.broadcast_to(i, (lanes,)), np.int64) for i in side[1]]


def _places(first: list[Array], which: Lanes, count: int) -> tuple[Any, ...]:
    at = [i[which][:, None] for i in first]
    return (*at[:-1], at[-1] + np.arange(count)[None, :])
