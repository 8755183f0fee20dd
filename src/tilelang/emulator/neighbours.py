"""Vector values in memory and in bits: several scalars of one dtype side by side.

What enters: arrays, and indices of lanes as `elements` takes them. What leaves: vector values,
whose last axis holds the scalars, or changed arrays. A buffer of a vector dtype has one more axis
than its declared shape, for the scalars of an element.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilelang.dtypes import DType, pack, unpack
from tilelang.emulator import elements
from tilelang.emulator.storage import Access, Array, Index, Mask

Pred = bool | Mask | None
Taking = tuple[Mask | None, tuple[int, ...]]
"""Which lanes take part (None: all), and the shape of all lanes."""


@dataclass(frozen=True)
class Span:
    """How a value of dtype `value` lies in a buffer of dtype `memory`: over `count` elements."""

    memory: DType
    value: DType
    count: int

    @property
    def scalars(self) -> int:
        """How many scalars of the buffer the value takes."""
        return self.count * self.memory.lanes


def bits_of(dtype: DType) -> int:
    """The bits of a value, all lanes counted."""
    return dtype.bits * dtype.lanes


def span(memory: DType, value: DType) -> Span | None:
    """The elements of a buffer that a value covers; None if they are no whole number."""
    count, rest = divmod(bits_of(value), bits_of(memory))
    whole = memory.bits >= 8 or bits_of(value) % 8 == 0
    return Span(memory, value, count) if count and not rest and whole else None


def recast(x: Array, src: DType, dst: DType) -> Array:
    """The bits of each row of scalars (the last axis) as scalars of another type.

    A row has a whole number of bytes, unless both types have the same number of bits.
    """
    src, dst = src.base, dst.base
    if src == dst:
        return x
    if src.bits == dst.bits:
        return np.ascontiguousarray(x).view(dst.numpy)
    if src.bits >= 8 and dst.bits >= 8:
        return np.ascontiguousarray(x).view(dst.numpy)
    lead, count = x.shape[:-1], x.shape[-1] * src.bits // dst.bits
    total = count * int(np.prod(lead))
    return unpack(pack(np.ascontiguousarray(x), src), dst, total).reshape(*lead, count)


def as_value(x: Any, src: DType, dst: DType) -> Array:
    """The bits of values of type `src` as values of type `dst`, which has as many."""
    rows = np.asarray(x) if src.is_vector else np.asarray(x)[..., None]
    out = recast(rows, src, dst)
    return out if dst.is_vector else out[..., 0]


def packed(values: tuple[Any, ...], dtype: DType) -> Array:
    """Lanes as one vector value; a single one is repeated in all lanes."""
    if len(values) == 1:
        return np.repeat(np.asarray(values[0], dtype.numpy)[..., None], dtype.lanes, -1)
    return np.stack(np.broadcast_arrays(*(np.asarray(v, dtype.numpy) for v in values)), -1)


def _scalars(index: tuple[Index, ...], s: Span) -> tuple[Array, ...]:
    """The indices of all scalars of each lane's value, along one more axis at the end."""
    steps = np.arange(s.scalars)
    if not index:
        return (steps,)
    *outer, last = (np.asarray(i, np.int64)[..., None] for i in index)
    if s.memory.is_vector:
        return (*outer, last + steps // s.memory.lanes, steps % s.memory.lanes)
    return (*outer, last + steps)


def _wide(mask: Mask) -> Mask:
    return np.asarray(mask)[..., None]


def load(
    array: Array,
    index: tuple[Index, ...],
    access: Access,
    s: Span,
    mask: Mask | None = None,
    pred: Pred = None,
) -> Array:
    """The value at an index of each lane, always a copy.

    Where `pred` does not hold, it is zero and nothing is read.
    """
    at = _scalars(index, s)
    if pred is False:
        return _value(np.zeros(np.broadcast_shapes(*(i.shape for i in at)), array.dtype), s)
    if isinstance(pred, np.ndarray):
        mask = pred if mask is None else mask & pred
    rows = elements.gather(array, at, access, None if mask is None else _wide(mask))
    if isinstance(pred, np.ndarray):
        nothing: Array = np.zeros((), array.dtype)
        rows: Array = np.where(_wide(pred), rows, nothing)
    return _value(rows, s)


def _value(rows: Array, s: Span) -> Array:
    out = recast(rows, s.memory, s.value)
    return out if s.value.is_vector else out[..., 0]


def store(
    array: Array,
    index: tuple[Index, ...],
    value: Any,
    lanes: Taking,
    access: Access,
    s: Span,
) -> None:
    """Each lane that takes part writes its value at its index."""
    mask, shape = lanes
    rows = np.asarray(value) if s.value.is_vector else np.asarray(value, s.value.numpy)[..., None]
    bits = recast(rows, s.value, s.memory)
    at = _scalars(index, s)
    wide = None if mask is None else _wide(mask)
    elements.scatter(array, at, bits, wide, (*shape, s.scalars), access)
