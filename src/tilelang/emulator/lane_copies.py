"""Copies of a few elements by each thread for itself (`cp.async` by its PTX form).

What enters: where each thread copies from and to. What leaves: two functions of the threads that
are meant: one that copies, and one that makes the destination undefined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.emulator import elements
from tilelang.emulator.storage import Access, Array, poison

Lanes = Array
"""The numbers of some lanes."""

Side = tuple[Array, tuple[Any, ...], Access]
"""An array, the index of the first element for each lane, and what is known of the access."""


def lane_copy(
    src: Side, dst: Side, count: int, pred: Any, lanes: int
) -> tuple[Callable[[Lanes], None], Callable[[Lanes], None]]:
    """How to copy `count` neighbouring elements, and how to make them undefined.

    Where `pred` is given and does not hold, zeros are written and nothing is read.
    """
    source, target = _spread(src, lanes), _spread(dst, lanes)
    keep = None if pred is None else np.broadcast_to(pred, (lanes,)).astype(np.bool_)

    def copy(which: Lanes) -> None:
        if not which.size:
            return
        shape = (which.size, count)
        at = _places(source, which, count)
        if keep is None:
            values = np.broadcast_to(elements.gather(src[0], at, src[2]), shape)
        else:
            mask = np.broadcast_to(keep[which][:, None], shape)
            safe = tuple(np.where(mask, i, 0) for i in at)
            values = np.where(mask, elements.gather(src[0], safe, src[2]), src[0].dtype.type(0))
        into = _places(target, which, count)
        elements.scatter(dst[0], into, np.ascontiguousarray(values), None, shape, dst[2])

    def forget(which: Lanes) -> None:
        shape = (which.size, count)
        bad = poison(dst[2].dtype)
        elements.scatter(dst[0], _places(target, which, count), bad, None, shape, dst[2])

    return copy, forget


def _spread(side: Side, lanes: int) -> list[Array]:
    """The indices as they are now, one for each lane."""
    return [np.array(np.broadcast_to(i, (lanes,)), np.int64) for i in side[1]]


def _places(first: list[Array], which: Lanes, count: int) -> tuple[Any, ...]:
    at = [i[which][:, None] for i in first]
    return (*at[:-1], at[-1] + np.arange(count)[None, :])
