"""Atomic updates: of one element by each lane in lane order, and the combining step of region
updates.

What enters: arrays, indices, values of the array's type, masks. What leaves: changed arrays and,
where asked for, what each lane found before its own update.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.dtypes.convert import converter
from tilelang.emulator import elements
from tilelang.emulator.storage import Access, Array, Index, Mask

Lanes = tuple[Mask | None, tuple[int, ...]]
"""Which lanes take part (None: all), and the shape of all lanes."""

_FLOAT_OPS: dict[str, np.ufunc] = {"add": np.add, "max": np.fmax, "min": np.fmin}
_INT_OPS: dict[str, np.ufunc] = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "or": np.bitwise_or,
}
_NATIVE = ("float64", "float32", "float16", "bfloat16")
_F32, _I64 = DType("float32"), DType("int64")


def _ufunc(op: str, dtype: DType) -> np.ufunc:
    return _FLOAT_OPS[op] if dtype.is_float else _INT_OPS[op]


def _inner(dtype: DType) -> DType | None:
    """The type to compute in, where NumPy cannot compute in the type itself."""
    if dtype.is_float:
        return None if dtype.name in _NATIVE else _F32
    return _I64 if dtype.is_subbyte else None


def merged(op: str, dtype: DType, old: Array, values: Array) -> Array:
    """`old` combined with `values` element by element, rounded or wrapped to `dtype`."""
    inner, fn = _inner(dtype), _ufunc(op, dtype)
    if inner is None:
        return np.asarray(fn(old, values), dtype.numpy)
    enter, leave = converter(dtype, inner), converter(inner, dtype)
    return leave(np.asarray(fn(enter(old), enter(values)), inner.numpy))


def atomic_lanes(
    op: str,
    array: Array,
    index: tuple[Index, ...],
    value: Any,
    lanes: Lanes,
    access: Access,
) -> None:
    """Each lane updates one element, in lane order."""
    mask, shape = lanes
    at, live = elements.flat(array, index, mask, shape, access)
    count = len(at[0]) if at else int(np.prod(shape)) if live is None else int(live.sum())
    if count == 0:
        return
    values = np.broadcast_to(np.asarray(elements.spread(value, live, shape), array.dtype), (count,))
    if _inner(access.dtype) is None and access.dtype.name != "bfloat16":
        _ufunc(op, access.dtype).at(array, at, values)
        return
    _in_order(op, access.dtype, array, at, values)


def atomic_previous(
    op: str,
    array: Array,
    index: tuple[Index, ...],
    value: Any,
    lanes: Lanes,
    access: Access,
) -> Array:
    """As `atomic_lanes`; the result is what each lane found. Lanes that take no part find the safe
    value.
    """
    mask, shape = lanes
    at, live = elements.flat(array, index, mask, shape, access)
    count = len(at[0]) if at else int(np.prod(shape))
    found = np.full(shape, access.safe, array.dtype)
    values = np.broadcast_to(np.asarray(elements.spread(value, live, shape), array.dtype), (count,))
    before = _in_order(op, access.dtype, array, at, values)
    if live is None:
        found[...] = before.reshape(shape)
    else:
        found[live] = before
    return found


def _in_order(op: str, dtype: DType, array: Array, at: tuple[Any, ...], values: Array) -> Array:
    """Update one element after the other; the result is what was there before each."""
    if at and array.ndim == 1 and len(np.unique(at[0])) == len(values):
        found = array[at]
        array[at] = merged(op, dtype, found, values)
        return found
    before = np.empty(len(values), array.dtype)
    for lane in range(len(values)):
        place = tuple(int(i[lane]) for i in at)
        before[lane] = array[place]
        old, new = np.asarray(array[place]), np.asarray(values[lane])
        array[place] = merged(op, dtype, old, new)[()]
    return before
