"""What a layout that an author states for a shared buffer comes to.

What enters: a layout of a buffer, and the size of its elements. What leaves: a word and its
numbers: `rows` (as declared), `swizzled` (as products read tiles), `swizzle` with the bytes of its
span, `padded` with the elements from one row to the next, or `other`. A function of indices is
looked at for every element: it is one of these if it places elements as that does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilelang.layout import Layout
from tilelang.layout.placement import GROUP, Placement

Stated = tuple[str, int]

_LABELS: dict[str, Stated] = {
    "128-byte swizzle": ("swizzle", 128),
    "64-byte swizzle": ("swizzle", 64),
    "32-byte swizzle": ("swizzle", 32),
    "linear": ("rows", 0),
}
_SERVES_PRODUCTS = ("swizzled", "wgmma", "tcgen05")
OTHER: Stated = ("other", 0)


def stated(layout: Layout, bits: int) -> Stated:
    """What a layout comes to for elements of `bits` bits."""
    label = layout.label
    if label in _LABELS:
        return _LABELS[label]
    if label.startswith(_SERVES_PRODUCTS):
        return ("swizzled", 0)
    placed = None if label else _flat(layout)
    if placed is None or placed.ndim < 2:
        return OTHER
    return _named(placed, placed.shape, bits)


def shared_place(layout: Layout) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The first two elements that a function of indices puts at one place; None if none are."""
    placed = None if layout.label else _flat(layout)
    if placed is None:
        return None
    order = np.argsort(placed, axis=None, kind="stable")
    equal = np.flatnonzero(np.diff(placed.reshape(-1)[order]) == 0)
    if not equal.size:
        return None
    pairs = np.stack([order[equal], order[equal + 1]], axis=1)
    one, other = pairs[np.lexsort(pairs.T[::-1])[0]]
    return _index(int(one), placed.shape), _index(int(other), placed.shape)


def _index(n: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(n, shape))


def _flat(layout: Layout) -> np.ndarray[Any, Any] | None:
    """The place of each element, counted from the first one; None where that cannot be told."""
    shape = layout.shape
    if not all(isinstance(n, int) and n > 0 for n in shape):
        return None
    try:
        return _places(layout, shape)
    except Exception:  # whatever the author's function does with arrays
        return None


def _places(layout: Layout, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    grid = np.meshgrid(*[np.arange(n) for n in shape], indexing="ij")
    found = [np.broadcast_to(np.asarray(x), shape) for x in layout.map_forward_index(grid)]
    total = np.zeros(shape, np.int64)
    for x in found:
        total = total * (int(x.max()) + 1) + x
    return total


def _named(placed: np.ndarray[Any, Any], shape: tuple[int, ...], bits: int) -> Stated:
    rows, columns = shape[-2:]
    pitch = int(placed[(*[0] * (len(shape) - 2), min(1, rows - 1), 0)])
    order = np.arange(rows)[:, None] * pitch + np.arange(columns)
    first = placed.reshape(-1, rows, columns)[0]
    if (first == order).all():
        return ("rows", 0) if pitch == columns or rows == 1 else ("padded", pitch)
    group = GROUP * 8 // bits
    for span in (8, 4, 2):
        for panel in dict.fromkeys((columns, span * group)):
            if columns % (span * group) or columns % panel:
                continue
            made = Placement(rows, columns, group, span, panel)
            want = [[made.offset(r, c) for c in range(columns)] for r in range(min(rows, 16))]
            if (first[:16] == np.array(want)).all():
                return ("swizzle", span * GROUP)
    return OTHER
