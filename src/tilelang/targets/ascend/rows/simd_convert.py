"""Conversions of vector registers (`vcvt`): how they round, which elements they take and give.

What enters: a register, its predicate, how to convert. What leaves: the register of the result.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilelang.dtypes import DType
from tilelang.dtypes.convert import converter
from tilelang.targets.ascend.rows.build import Array
from tilelang.targets.ascend.rows.numbers import of_numpy

_MODES = {
    "ROUND_R": "rn", "ROUND_A": "rna", "ROUND_F": "rm", "ROUND_C": "rp", "ROUND_Z": "rz",
    "ROUND_O": "rz", "ROUND_H": "rna",
}  # fmt: skip
_INTEGRAL: dict[str, Callable[[Array], Array]] = {
    "ROUND_R": np.rint,
    "ROUND_A": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "ROUND_F": np.floor,
    "ROUND_C": np.ceil,
    "ROUND_Z": np.trunc,
    "ROUND_O": np.trunc,
    "ROUND_H": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
}


def converted(x: Array, dst: DType, mode: str, sat: bool) -> Array:
    """`x` by value as `dst`: floats to integers round as asked for; with `sat` they saturate."""
    src = of_numpy(x.dtype)
    if src.is_float and dst.is_integer:
        wide = _INTEGRAL[mode](converter(src, DType("float64"))(x))
        if sat:
            return converter(DType("float64"), dst)(wide)
        return converter(DType("int64"), dst)(converter(DType("float64"), DType("int64"))(wide))
    if src.is_integer and dst.is_integer and sat:
        limits = np.iinfo(dst.numpy)
        return np.clip(x.astype(np.int64), limits.min, limits.max).astype(dst.numpy)
    if dst.is_float:
        return converter(src, dst, _MODES[mode], sat)(x)
    return converter(src, dst)(x)


def vcvt(x: Array, m: Array, rounding: str, sat: bool, part: int, result: DType) -> Array:
    """The register that a conversion gives."""
    dst = result.base
    made = converted(_taken(x, part, dst), dst, rounding, sat)
    out = np.zeros(result.lanes, dst.numpy)
    at = given_by_vcvt(x, m, part, result)
    step = max(x.itemsize // max(dst.itemsize, 1), 1)
    out[at] = made[at[part % step :: step][: made.size]]
    return out


def _taken(x: Array, part: int, dst: DType) -> Array:
    """The elements of a register that are converted: all, or every second or fourth."""
    step = max(dst.itemsize // x.itemsize, 1)
    return np.ascontiguousarray(x[part % step :: step])


def given_by_vcvt(x: Array, m: Array, part: int, result: DType) -> Array:
    """The elements of the result that a conversion gives."""
    size = result.base.itemsize
    wider, narrower = max(size // x.itemsize, 1), max(x.itemsize // size, 1)
    if wider > 1:
        return m[:: x.itemsize][part % wider :: wider][: result.lanes]
    at = np.zeros(result.lanes, np.bool_)
    chosen = m[::size]
    at[part % narrower :: narrower] = chosen[part % narrower :: narrower]
    return at
