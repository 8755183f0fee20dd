"""Memory while a program runs: arrays, regions of them, and what happens outside their bounds.

What enters: NumPy arrays in the storage of an element type (sub-byte types one element to a slot),
with the facts of each access. What leaves: the elements of a region, changed arrays, or a `Fault`.
In global memory a read outside gives the safe value and a write outside does nothing; on chip,
outside is a fault.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilelang.dtypes import DType
from tilelang.errors import Loc, TileError, error
from tilelang.ir.expr import Buffer

Array = npt.NDArray[Any]
Index = int | npt.NDArray[np.integer[Any]]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Access:
    """What is known of a place in the program that touches a buffer.

    `safe` is what a read outside of global memory gives. `axes` are the author's names of the
    lanes' axes.
    """

    buffer: Buffer
    on_chip: bool
    safe: Any
    loc: Loc | None
    axes: tuple[str, ...] = ()

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.buffer.dtype


class Tile(NamedTuple):
    """A box of an array: first element and extent along each axis."""

    array: Array
    mins: tuple[int, ...]
    extents: tuple[int, ...]
    access: Access


class Fault(Exception):
    """An access outside a buffer on chip. The machine adds the block and raises it as an error for
    the author.
    """

    def __init__(
        self, access: Access, axis: int, index: int, size: int, lane: tuple[int, ...] = ()
    ) -> None:
        super().__init__(f"{access.buffer.name}: index {index} of axis {axis}, extent {size}")
        self.access = access
        self.axis = axis
        self.index = index
        self.size = size
        self.lane = lane


@cache
def poison(dtype: DType) -> Any:
    """What memory holds before the first write: NaN, or the bytes 0xA5 in types without NaN (a bool
    is true).
    """
    storage = dtype.numpy
    if dtype.is_float and dtype.has_nan:
        return np.array([np.nan], np.float32).astype(storage)[0]
    if dtype.is_bool:
        return np.True_
    if dtype.bits < 8 or dtype.is_float:
        return np.array([0xA5 & ((1 << dtype.bits) - 1)], np.uint8).view(storage)[0]
    return np.array([0xA5] * storage.itemsize, np.uint8).view(storage)[0]


def fresh(shape: tuple[int, ...], dtype: DType) -> Array:
    """New memory, with undefined contents."""
    out = np.empty(shape, dtype.numpy)
    out.fill(poison(dtype))
    return out


def filled(shape: tuple[int, ...], dtype: DType, value: Any) -> Array:
    """New memory that holds `value` everywhere; an array with lanes spreads over the axes that
    follow them.
    """
    out = np.empty(shape, dtype.numpy)
    out[...] = value
    return out


def within(tile: Tile) -> tuple[slice, ...] | None:
    """The slices of a region, or None if it is not wholly inside. An empty region is inside."""
    index: list[slice] = []
    for low, extent, size in zip(tile.mins, tile.extents, tile.array.shape, strict=True):
        if low < 0 or low + extent > size:
            return None if 0 not in tile.extents else (slice(0, 0),) * len(tile.extents)
        index.append(slice(low, low + extent))
    return tuple(index)


def view(tile: Tile) -> Array:
    """The elements of a region on chip, in place. Raises `Fault` if it is not wholly inside."""
    index = within(tile)
    if index is None:
        raise _outside(tile)
    return tile.array[index]


def read(tile: Tile) -> Array:
    """The elements of a region; it may be a view. Outside of global memory, the safe value."""
    index = within(tile)
    if index is not None:
        return tile.array[index]
    if tile.access.on_chip:
        raise _outside(tile)
    out = np.empty(tile.extents, tile.array.dtype)
    out.fill(tile.access.safe)
    there, here = overlap(tile)
    out[here] = tile.array[there]
    return out


def write(tile: Tile, values: Array) -> None:
    """Set a region to `values`, which have its shape or broadcast to it. Outside of global memory,
    nothing.
    """
    index = within(tile)
    if index is not None:
        tile.array[index] = values
        return
    if tile.access.on_chip:
        raise _outside(tile)
    there, here = overlap(tile)
    tile.array[there] = np.broadcast_to(values, tile.extents)[here]


def overlap(tile: Tile) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """The part of a region that exists: its place in the array, and its place in the region."""
    there: list[slice] = []
    here: list[slice] = []
    for low, extent, size in zip(tile.mins, tile.extents, tile.array.shape, strict=True):
        first = min(max(low, 0), size)
        last = max(min(low + extent, size), first)
        there.append(slice(first, last))
        here.append(slice(first - low, last - low))
    return tuple(there), tuple(here)


def _outside(tile: Tile) -> Fault:
    for axis, (low, extent, size) in enumerate(
        zip(tile.mins, tile.extents, tile.array.shape, strict=True)
    ):
        if low < 0 or low + extent > size:
            return Fault(tile.access, axis, low if low < 0 else low + extent - 1, size)
    raise AssertionError("the region is inside")


Types = tuple[DType, DType]
Placement = tuple[int, tuple[int, ...], tuple[int, ...] | None]
"""Where an array lies in another: first element, shape, strides (None is row-major)."""


def reinterpreted(
    source: Array, types: Types, place: Placement, access: Access, lanes: int = 0
) -> Array:
    """A second array on the storage of `source`: `types` are its dtype and the new one.

    The first element of `place` counts in old elements, its strides in new ones. The first `lanes`
    axes stay as they are.
    """
    offset, shape, strides = place
    try:
        flat = source.reshape((*source.shape[:lanes], -1), copy=False)[..., offset:]
    except ValueError:
        raise _bad_view(
            access, "an array without gaps", f"strides {source.strides} in bytes"
        ) from None
    new = types[1].numpy
    if types[0].numpy != new:
        flat = flat.view(np.uint8)
        flat = flat[..., : flat.shape[-1] // new.itemsize * new.itemsize].view(new)
    last = math.prod(shape) if strides is None else _span(shape, strides)
    if offset < 0 or last > flat.shape[-1]:
        raise _bad_view(
            access, f"at most {flat.shape[-1]} elements of {types[1]}", f"{last} elements"
        )
    lead = flat.shape[:-1]
    if strides is None:
        return flat[..., :last].reshape(lead + shape)
    steps = (*flat.strides[:-1], *(step * new.itemsize for step in strides))
    return np.lib.stride_tricks.as_strided(flat, lead + shape, steps)


def _bad_view(access: Access, expected: str, got: str) -> TileError:
    return error(
        "shape",
        f"the view {access.buffer.name} does not fit",
        access.loc,
        expected=expected,
        got=got,
    )


def _span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """How many elements lie between the first and the last, both counted."""
    return (
        0 if 0 in shape else 1 + sum(step * (n - 1) for step, n in zip(strides, shape, strict=True))
    )
