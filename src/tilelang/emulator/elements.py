"""Single elements of buffers, read and written by one block or by many lanes at once.

What enters: an array, an index for each axis (an int, or an array with one int for each lane that
broadcasts to the shape of the lanes) and, where not all lanes take part, their mask. What leaves:
values, changed arrays, or a `Fault`. A negative or too large index never reaches NumPy.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from tilelang.emulator.storage import Access, Array, Fault, Index, Mask
from tilelang.errors import error


def load(array: Array, index: tuple[int, ...], access: Access) -> Any:
    """One element; the safe value outside of global memory."""
    for axis, (i, size) in enumerate(zip(index, array.shape, strict=True)):
        if not 0 <= i < size:
            if access.on_chip:
                raise Fault(access, axis, i, size)
            return access.safe
    return array[index]


def store(array: Array, index: tuple[int, ...], value: Any, access: Access) -> None:
    """Set one element; nothing happens outside of global memory."""
    for axis, (i, size) in enumerate(zip(index, array.shape, strict=True)):
        if not 0 <= i < size:
            if access.on_chip:
                raise Fault(access, axis, i, size)
            return
    array[index] = value


def _inside(array: Array, index: tuple[Index, ...]) -> Mask | None:
    """Which lanes are in bounds; None if all are."""
    inside: Any = None
    for i, size in zip(index, array.shape, strict=True):
        if isinstance(i, np.ndarray):
            if i.size == 0 or (i.min() >= 0 and i.max() < size):
                continue
            here: Any = (i >= 0) & (i < size)
        elif 0 <= i < size:
            continue
        else:
            here = np.zeros((), np.bool_)
        inside = here if inside is None else inside & here
    return inside


def _check_chip(
    array: Array, index: tuple[Index, ...], inside: Mask, mask: Mask | None, access: Access
) -> None:
    """Raise `Fault` for the first active lane that is outside of a buffer on chip."""
    wrong = ~inside if mask is None else mask & ~inside
    if not wrong.any():
        return
    shape = np.broadcast_shapes(wrong.shape, *(np.shape(i) for i in index))
    lane = tuple(int(k) for k in np.argwhere(np.broadcast_to(wrong, shape))[0])
    for axis, (i, size) in enumerate(zip(index, array.shape, strict=True)):
        value = int(np.broadcast_to(i, shape)[lane])
        if not 0 <= value < size:
            raise Fault(access, axis, value, size, lane)


def gather(
    array: Array, index: tuple[Index, ...], access: Access, mask: Mask | None = None
) -> Array:
    """One element for each lane. Lanes that are masked out get some element and cause no fault."""
    inside = _inside(array, index)
    if inside is None:
        return array[index]
    if access.on_chip:
        _check_chip(array, index, inside, mask, access)
    shape = np.broadcast_shapes(inside.shape, *(np.shape(i) for i in index))
    if array.size == 0:
        return np.full(shape, access.safe, array.dtype)
    clipped = tuple(np.clip(i, 0, size - 1) for i, size in zip(index, array.shape, strict=True))
    return np.where(inside, array[clipped], access.safe)


def flat(
    array: Array,
    index: tuple[Index, ...],
    mask: Mask | None,
    shape: tuple[int, ...],
    access: Access,
) -> tuple[tuple[Any, ...], Mask | None]:
    """The index of every lane that takes part, in lane order, and which lanes those are (None:
    all).

    Lanes outside of global memory do not take part; on chip they are a fault.
    """
    inside = _inside(array, index)
    if inside is not None and access.on_chip:
        _check_chip(array, index, inside, mask, access)
        inside = None
    live = mask if inside is None else inside if mask is None else inside & mask
    if live is None:
        return tuple(np.broadcast_to(i, shape).ravel() for i in index), None
    live = np.broadcast_to(live, shape)
    return tuple(np.broadcast_to(i, shape)[live] for i in index), live


def spread(value: Any, live: Mask | None, shape: tuple[int, ...]) -> Any:
    """`value` for every lane that takes part, in lane order. A scalar stays one."""
    if not isinstance(value, np.ndarray):
        return value
    full = np.broadcast_to(cast(Array, value), shape)
    return full.ravel() if live is None else full[live]


def scatter(
    array: Array,
    index: tuple[Index, ...],
    value: Any,
    mask: Mask | None,
    shape: tuple[int, ...],
    access: Access,
) -> None:
    """Each lane sets one element. Of several lanes that set one element, the last wins."""
    at, live = flat(array, index, mask, shape, access)
    array[at] = spread(value, live, shape)


def exclusive(
    array: Array,
    index: tuple[Index, ...],
    mask: Mask | None,
    shape: tuple[int, ...],
    access: Access,
) -> None:
    """Refuse lanes that update one element together: iterations have no order, so the sum would
    depend on it.
    """
    at, _ = flat(array, index, mask, shape, access)
    places = np.ravel_multi_index(at, array.shape) if array.ndim else np.zeros(1, np.int64)
    found, counts = np.unique(places, return_counts=True)
    if counts.size and counts.max() > 1:
        worst = int(found[counts.argmax()])
        where = ", ".join(str(int(i)) for i in np.unravel_index(worst, array.shape))
        name = access.buffer.name
        raise error(
            "race",
            f"{counts.max()} iterations of T.Parallel update {name}[{where}] from its old value",
            access.loc,
            expected="each element is updated by one iteration",
            got=f"{name}[{where}] updated by {counts.max()} iterations, which have no order",
            help="use T.reduce_sum, a reducer or T.atomic_add, or a sequential loop (T.serial)",
        )


def axis(extent: int, following: int, dtype: np.dtype[Any]) -> Array:
    """The values of a lane axis: 0, 1, ... below `extent`, ready to broadcast over the axes that
    follow.
    """
    return np.arange(extent, dtype=dtype).reshape((extent,) + (1,) * following)
