"""How matrix units add: exactly, or as a generation of hardware does.

What enters: C (..., m, n), A (..., m, k) and B (..., n, k) as numbers, PTX types of D, A and B, and
the family of the instruction. What leaves: C + A @ B.T as elements of the type of D.

Hopper's way was found by trial against an H200: every bit of random products agrees. All products
of an instruction and C are aligned to the largest exponent among them, cut off (towards zero) below
a number of places, and added; the sum is cut off to the type of D. A product's exponent is the sum
of those of its factors, so it is not normalised first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.dtypes import DType
from tilelang.dtypes.convert import converter
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
    """As an H200 adds. Integers and fp64 are exact, and fp8 of `mma`, whose way is not known."""
    td, ta, tb = types
    known = ta in _LOWEST and td in ("f16", "f32") and not (family == "mma" and ta in _NARROW)
    if not known:
        return exact(c, a, b, types, family)
    places = 13 if ta in _NARROW else 25
    products = a[..., :, None, :] * b[..., None, :, :]
    powers = _exponents(a, ta)[..., :, None, :] + _exponents(b, tb)[..., None, :, :]
    top = powers.max(axis=-1)
    if c is not None:
        top = np.maximum(top, _exponents(c, td))
    shift = np.where(top < _NOTHING // 2, 0, places - top)
    total = np.trunc(np.ldexp(products, shift[..., None])).sum(axis=-1)
    if c is not None:
        total = total + np.trunc(np.ldexp(c, shift))
    found = np.ldexp(total, -shift)
    if td == "f16":
        return narrowed(found, td)
    return _TOWARDS_ZERO(_cut(found, 13) if ta in _NARROW else found)


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
