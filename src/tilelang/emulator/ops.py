"""The meaning of the operations on tiles: one function for each node class, and the table of them.

What enters: the node (for its compile-time settings), and its operands in the order of its fields,
regions as `Tile`s and scalars as values of the block. What leaves: changed arrays. Adding an
operation is adding one function and its row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tilelang.dtypes.convert import converter
from tilelang.emulator import storage
from tilelang.emulator.atomics import merged
from tilelang.emulator.storage import Array, Tile
from tilelang.errors import Loc, error
from tilelang.ir.node import Node
from tilelang.ir.tile import Atomic, Copy, Fill, Free, Transpose

Shape = tuple[int, ...]


def matched(values: Array, shape: Shape, loc: Loc | None, what: str) -> Array:
    """`values` as an array that broadcasts to `shape`, by the rule of `Copy`."""
    if values.shape == shape:
        return values
    new = matching(values.shape, shape)
    if new is None:
        raise error(
            "shape",
            f"the extents of {what} do not fit together",
            loc,
            expected=f"extents {shape} after axes of extent 1 drop out",
            got=f"{values.shape}",
        )
    return values.reshape(new)


@cache
def matching(src: Shape, dst: Shape) -> Shape | None:
    """The shape to give `src` so that it broadcasts to `dst`; None if they do not match."""
    long_src, long_dst = [n for n in src if n != 1], [n for n in dst if n != 1]
    if long_src == long_dst:
        left = iter(long_src)
        return tuple(1 if n == 1 else next(left) for n in dst)
    # Aligned at the last axis; axes of extent 1 in front drop out.
    ones = (1,) * max(len(dst) - len(src), 0)
    padded = ones + src
    extra = len(padded) - len(dst)
    if any(n != 1 for n in padded[:extra]):
        return None
    padded = padded[extra:]
    return padded if all(a in (1, b) for a, b in zip(padded, dst, strict=True)) else None


def copy(node: Copy, src: Tile, dst: Tile) -> None:
    """Element by element, converted by value."""
    values = storage.read(src)
    if values.shape != dst.extents:
        values = matched(values, dst.extents, node.loc, "T.copy")
    if src.access.dtype != dst.access.dtype:
        values = converter(src.access.dtype, dst.access.dtype)(values)
    storage.write(dst, values)


def fill(node: Fill, dst: Tile, value: Any) -> None:
    """One value everywhere."""
    index = storage.within(dst)
    if index is not None:
        dst.array[index] = value
    else:
        storage.write(dst, np.asarray(value, dst.array.dtype))


def transpose(node: Transpose, src: Tile, dst: Tile) -> None:
    """The last two axes exchanged."""
    values = np.swapaxes(storage.read(src), -1, -2)
    if np.shares_memory(src.array, dst.array):
        values = values.copy()
    if src.access.dtype != dst.access.dtype:
        values = converter(src.access.dtype, dst.access.dtype)(values)
    storage.write(dst, matched(values, dst.extents, node.loc, "T.transpose"))


def atomic_tile(node: Atomic, dst: Tile, value: Tile | Any) -> None:
    """Every element of a region combined with the matching element of `value`."""
    if isinstance(value, Tile):
        values = matched(storage.read(value), dst.extents, node.loc, "the atomic operation")
        if value.access.dtype != dst.access.dtype:
            values = converter(value.access.dtype, dst.access.dtype)(values)
    else:
        values = np.asarray(value, dst.array.dtype)
    storage.write(dst, merged(node.op.value, dst.access.dtype, storage.read(dst), values))


def free(node: Free, buffer: Tile) -> None:
    """Contents are undefined from here on."""
    buffer.array.fill(storage.poison(buffer.access.dtype))


OPS: dict[type[Node], Callable[..., None]] = {
    Copy: copy,
    Fill: fill,
    Transpose: transpose,
    Atomic: atomic_tile,
    Free: free,
}
"""The function of every node class here; `reduce` and `products` have further ones."""
