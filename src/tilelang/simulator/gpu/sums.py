"""How matrix units add: exactly, or as a generation of hardware does.

What enters: C (..., m, n), A (..., m, k) and B (..., n, k) as numbers, PTX types of D, A and B, and
the family of the instruction. What leaves: C + A @ B.T as elements of the type of D.

Hopper's way was found by trial against an H200: every bit of random products agrees. All products
of an instruction and C are aligned to the largest exponent among them, cut off (towards zero) below
a number of places, and added; the sum is cut off to fp32, or rounded to fp16. A product's exponent
is the sum of those of its factors, so it is not normalised first. fp64, and fp8 of `mma`, go
another way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.dtypes import DType
from tilelang.dtypes.convert import converter
from tilelang.emulator import ieee
from tilelang.simulator.gpu.numbers import narrowed

Values = npt.NDArray[Any]
Types = tuple[str, str, str]
Sums = Callable[[Values | None, Values, Values, Types, str], Values]

_LOWEST = {"f16": -14, "bf16": -126, "tf32": -126, "f32": -126, "e4m3": -6, "e5m2": -14}
"""The exponent of the smallest normal number, which subnormal ones have too."""
_NARROW = ("e4m3", "e5m2")
_NOTHING = -(1 << 14)
"""The exponent of zero: below all others."""


def exact(c: Values | None, a: Values, b: Values, types: Types, family: str) -> Values:
    """The sum without error, rounded once."""
    del family
    total = a @ b.swapaxes(-1, -2)
    return narrowed(total if c is None else total + c, types[0])


def hopper(c: Values | None, a: Values, b: Values, types: Types, family: str) -> Values:
    """As an H200 adds; integers are exact."""
    td, ta, _ = types
    if td == "f64":
        return _fused(c, a, b)
    if ta not in _LOWEST or td not in ("f16", "f32"):
        return exact(c, a, b, types, family)
    if family == "mma" and ta in _NARROW:
        return _halves(c, a, b, td)
    found = _aligned(c, a, b, types, 13 if ta in _NARROW else 25)
    if td == "f16":
        return narrowed(found, td)
    return _TOWARDS_ZERO(_cut(found, 13) if ta in _NARROW else found)


def _fused(c: Values | None, a: Values, b: Values) -> Values:
    """fp64: a chain of fused multiplications and additions along k."""
    total: Values = np.zeros((*a.shape[:-1], b.shape[-2])) if c is None else c
    for x, y in zip(np.moveaxis(a, -1, 0), np.moveaxis(b, -1, 0), strict=True):
        total = np.asarray(_FMA(*np.broadcast_arrays(x[..., :, None], y[..., None, :], total)))
    return total


def _halves(c: Values | None, a: Values, b: Values, td: str) -> Values:
    """fp8 of `mma`: two products of fp16 from zero on, of the first and the last two of each four
    elements; their sum is added to C and rounded to nearest.
    """
    k = np.arange(a.shape[-1], dtype=np.int64)

    def step(given: Values | None, of: npt.NDArray[np.bool_]) -> Values:
        found = _aligned(given, a[..., of], b[..., of], ("f32", "f16", "f16"), 25)
        return _TOWARDS_ZERO(found).astype(np.float64)

    total = step(step(None, k % 4 < 2), k % 4 >= 2)
    return narrowed(total if c is None else total + c, td)


def _aligned(c: Values | None, a: Values, b: Values, types: Types, places: int) -> Values:
    """The sum of C and the products, each cut off `places` below the largest exponent."""
    td, ta, tb = types
    products = a[..., :, None, :] * b[..., None, :, :]
    powers = _exponents(a, ta)[..., :, None, :] + _exponents(b, tb)[..., None, :, :]
    top = powers.max(axis=-1)
    if c is not None:
        top = np.maximum(top, _exponents(c, td))
    shift = np.where(top < _NOTHING // 2, 0, places - top)
    total = np.trunc(np.ldexp(products, shift[..., None])).sum(axis=-1)
    if c is not None:
        total = total + np.trunc(np.ldexp(c, shift))
    return np.ldexp(total, -shift)


_FMA = ieee.operation("fma", DType("float64"))
_TOWARDS_ZERO = converter(DType("float64"), DType("float32"), "rz")


def _exponents(x: Values, name: str) -> npt.NDArray[np.int64]:
    found = np.maximum(np.frexp(x)[1].astype(np.int64) - 1, _LOWEST[name])
    return np.where(x == 0, _NOTHING, found)


def _cut(x: Values, places: int) -> Values:
    """The number with `places` bits after the leading one."""
    shift = places - (np.frexp(x)[1] - 1)
    return np.ldexp(np.trunc(np.ldexp(x, shift)), -shift)


OF_CHIP: dict[str, Sums] = {"sm_90a": hopper}
"""The chips whose way of adding is known; others add exactly."""
