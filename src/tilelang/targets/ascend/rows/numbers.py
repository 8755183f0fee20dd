"""Numbers as Ascend units make them: conversions with a rounding mode, atomic combination, and the
dtype in which a vector operation computes.

What enters: NumPy arrays in their storage dtype. What leaves: arrays of the dtype asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.dtypes.convert import Converter, converter
from tilelang.targets.ascend.rows.build import Array

_FLOAT32 = DType("float32")
_FLOAT_MODES = {
    "": "rn",
    "CAST_NONE": "rn",
    "CAST_RINT": "rn",
    "CAST_FLOOR": "rm",
    "CAST_CEIL": "rp",
    "CAST_ROUND": "rna",
    "CAST_TRUNC": "rz",
}


@cache
def of_numpy(dtype: np.dtype[Any]) -> DType:
    """The element type that is stored as `dtype`."""
    return DType(dtype.name)


def stored(x: Array, dtype: np.dtype[Any]) -> Array:
    """`x` converted by value, to the nearest even."""
    return rounded(x, dtype, "CAST_RINT")


def rounded(x: Array, dtype: np.dtype[Any], mode: str) -> Array:
    """`x` converted by value with one of `ROUNDINGS`; a float becomes the integer nearest in that
    mode, saturating.
    """
    return x if x.dtype == dtype else _rounder(x.dtype, dtype, mode)(x)


@cache
def _rounder(source: np.dtype[Any], target: np.dtype[Any], mode: str) -> Converter:
    """The function that `rounded` applies."""
    src, dst = of_numpy(source), of_numpy(target)
    if mode == "CAST_ODD":
        return lambda x: _to_odd(x, src, dst)
    if src.is_float and dst.is_integer:
        wide, whole, narrow = converter(src, _FLOAT32), _INTEGRAL[mode], converter(_FLOAT32, dst)
        return lambda x: narrow(whole(wide(x)))
    return converter(src, dst, _FLOAT_MODES[mode]) if dst.is_float else converter(src, dst)


def _away(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + np.float32(0.5)), x)


_INTEGRAL: dict[str, Callable[[Array], Array]] = {
    "": np.rint,
    "CAST_NONE": np.rint,
    "CAST_RINT": np.rint,
    "CAST_FLOOR": np.floor,
    "CAST_CEIL": np.ceil,
    "CAST_ROUND": _away,
    "CAST_TRUNC": np.trunc,
}


def _to_odd(x: Array, src: DType, dst: DType) -> Array:
    """Exact values stay; others take the neighbour whose last bit is set."""
    down, up = converter(src, dst, "rz")(x), converter(src, dst, "rna")(x)
    words = down.view(f"u{down.itemsize}")
    exact = converter(dst, src)(down) == x
    del up
    return np.where(exact, words, words | 1).astype(words.dtype).view(dst.numpy)


@cache
def _widened(dtype: np.dtype[Any]) -> tuple[Converter, Converter] | None:
    """The way into float32 and back, for floats that are narrower."""
    kind = of_numpy(dtype)
    if not kind.is_float or dtype.itemsize >= _FLOAT32.numpy.itemsize:
        return None
    return converter(kind, _FLOAT32), converter(_FLOAT32, kind)


def is_widened(dtype: np.dtype[Any]) -> bool:
    """Whether `computed` computes in float32."""
    return _widened(dtype) is not None


def computed(fn: Callable[..., Any], dtype: np.dtype[Any], *args: Any) -> Array:
    """`fn` of operands of `dtype`, computed there, or in float32 for narrower floats, and rounded
    once.
    """
    ways = _widened(dtype)
    if ways is None:
        return np.asarray(fn(*args), dtype)
    wide, narrow = ways
    return narrow(np.asarray(fn(*(wide(np.asarray(a, dtype)) for a in args)), np.float32))


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
}


def combine(dst: Array, src: Array, atomic: str) -> None:
    """Store `src`, or combine it with what is there."""
    if atomic:
        dst[...] = computed(_COMBINE[atomic], dst.dtype, dst, src)
    else:
        dst[...] = src
