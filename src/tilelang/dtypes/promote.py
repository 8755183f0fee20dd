"""The type of an operation on two types, and of a literal.

What enters: two `DType`s, or a number. What leaves: the `DType` that both operands are converted
to, or the one that a number has by itself. These are TileLang's rules, which are not NumPy's.
"""

from __future__ import annotations

import numpy as np

from tilelang.dtypes.table import ROWS
from tilelang.dtypes.types import DType

_INTEGERS = ("int32", "int64", "uint64")


def promote(a: DType, b: DType) -> DType:
    """The type in which an operation on an `a` and a `b` is done.

    - An integer or bool with a float gives the float: float16 and int64 give float16.
    - Of two floats the one with more bits (tfloat32 has 19); of float16 and bfloat16, float16.
    - Of two integers the wider; of equal width, signed and unsigned, the unsigned.
    - A bool with an integer gives the integer.
    - A scalar with a vector gives a vector.

    TypeError for what no rule names: two formats of equally many bits below 16, a handle with
    anything but a handle, vectors of different lanes.
    """
    if a == b:
        return a
    if a.is_vector and b.is_vector and a.lanes != b.lanes:
        raise TypeError(f"{a} and {b} have different numbers of lanes")
    return _promote_scalars(a.base, b.base).with_lanes(max(a.lanes, b.lanes))


def _promote_scalars(a: DType, b: DType) -> DType:
    if a == b:
        return a
    if a.is_handle or b.is_handle:
        raise TypeError(f"{a} and {b} have no common type: a pointer is no number")
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.is_bool != b.is_bool:
        return b if a.is_bool else a
    wide, other = (a, b) if _width(a) >= _width(b) else (b, a)
    if _width(wide) > _width(other):
        return wide
    if not a.is_float:
        return a if a.is_uint else b
    if _width(a) == 16 or a.row.encoding == b.row.encoding:
        return min(a, b, key=list(ROWS).index)
    raise TypeError(
        f"{a} and {b} have no common type: neither has all values of the other;"
        " convert one of them, or both to float16 (T.cast)"
    )


def _width(dtype: DType) -> int:
    return dtype.row.code_bits if dtype.is_float else dtype.bits


def literal_dtype(value: bool | int | float | np.generic) -> DType:
    """The type of a number in a program: a Python float is float32, an int int32, a bool bool.

    An int that int32 does not hold is int64, and beyond that uint64. A NumPy scalar has its own.
    ValueError for an int of more than 64 bits, TypeError for what is no number.
    """
    if isinstance(value, np.generic):
        return DType(value.dtype)
    if isinstance(value, bool):
        return DType("bool")
    if isinstance(value, float):
        return DType("float32")
    if not isinstance(value, int):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"expected a number, got {value!r}")
    for name in _INTEGERS:
        found = DType(name)
        if found.min <= value <= found.max:
            return found
    raise ValueError(f"{value} has more than 64 bits, and no integer type holds it")
