"""Single values: the limits of a type, and numbers as a type represents them.

What enters: Python numbers. What leaves: Python numbers that the type has exactly, by the rules of
`tilelang.dtypes.cast`.
"""

from __future__ import annotations

import math

import numpy as np

from tilelang.dtypes.convert import cast
from tilelang.dtypes.encode import Array
from tilelang.dtypes.types import DType

Number = bool | int | float


def max_value(dtype: DType) -> Number:
    """The largest finite value of a type. TypeError for a handle."""
    return dtype.max


def min_value(dtype: DType) -> Number:
    """The lowest finite value of a type. TypeError for a handle."""
    return dtype.min


def infinity(dtype: DType) -> float:
    """+infinity. ValueError for a type that has none."""
    if not dtype.has_inf:
        raise ValueError(f"{dtype} has no infinity; its largest value is {dtype.max}")
    return math.inf


def wrap_int(value: int, dtype: DType) -> int:
    """The value of an integer type with the low bits of `value`; of bool, whether it is not 0."""
    match dtype.kind:
        case "bool":
            return int(value != 0)
        case "int":
            half = 1 << (dtype.bits - 1)
            return (value + half) % (2 * half) - half
        case "uint" | "handle":
            return value % (1 << dtype.bits)
        case "float":
            raise TypeError(f"{dtype} is no integer type")


def const_value(value: Number | np.generic, dtype: DType) -> Number:
    """The value that a scalar of type `dtype` has for `value`: rounded, saturated or wrapped.

    A Python number enters exactly (a float as float64, an int of any size), a NumPy scalar as it
    is. The result is a bool, an int or a float by the kind of `dtype`; it can be NaN or infinite.
    """
    dtype = dtype.base
    if isinstance(value, np.generic):
        return _number(cast(value, DType(value.dtype), dtype), dtype)
    if isinstance(value, int) and not dtype.is_float:
        wrapped = wrap_int(int(value), dtype)
        return bool(wrapped) if dtype.is_bool else wrapped
    exact = value if isinstance(value, float) else _float64(int(value), dtype)
    return _number(cast(np.float64(exact), DType("float64"), dtype), dtype)


def _float64(value: int, dtype: DType) -> float:
    """A float64 that rounds to `dtype` as `value` does: cut to 53 bits, the last one sticky."""
    sign, magnitude = -1 if value < 0 else 1, abs(value)
    excess = magnitude.bit_length() - 53
    if dtype.name != "float64" and excess > 0:
        lost = magnitude & ((1 << excess) - 1) != 0
        magnitude = (magnitude >> excess | lost) << excess
    try:
        return sign * float(magnitude)
    except OverflowError:
        return sign * math.inf


def _number(x: Array, dtype: DType) -> Number:
    if dtype.is_bool:
        return bool(x)
    if dtype.is_float:
        return float(cast(x, dtype, DType("float64")))
    return int(cast(x, dtype, DType("int64" if dtype.is_int else "uint64")))
