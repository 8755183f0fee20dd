"""Rounding: exact values in, code words of a float format out.

What enters: numbers as sign, 64-bit significand and exponent (`Exact`), from float64 or integers.
What leaves: the code words of a destination format, rounded once, in any mode. Plain and general;
the faster routes of `cast` are tables made by it, or NumPy where NumPy is known to agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tilelang.dtypes.table import Row, Special

Array = npt.NDArray[Any]
Words = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

MODES: Final = {
    "rn": "to nearest, ties to even",
    "rna": "to nearest, ties away from zero",
    "rz": "towards zero",
    "rp": "towards +infinity",
    "rm": "towards -infinity",
    "rs": "stochastic: up in magnitude where the discarded fraction plus rbits carries",
}
"""The rounding modes, as PTX spells them."""


@dataclass(frozen=True)
class Exact:
    """Numbers `(-1)**negative * significand * 2**(exponent - 63)`, or NaN, or infinity."""

    negative: Mask
    significand: Words
    exponent: npt.NDArray[np.int64]
    nan: Mask
    inf: Mask


def exact_float64(x: Array) -> Exact:
    """The parts of an array of float64."""
    bits = x.view(np.uint64)
    field = ((bits >> np.uint64(52)) & np.uint64(0x7FF)).astype(np.int64)
    fraction = bits & np.uint64((1 << 52) - 1)
    special = field == 0x7FF
    hidden = (field > 0).astype(np.uint64) << np.uint64(63)
    return Exact(
        negative=(bits >> np.uint64(63)).astype(np.bool_),
        significand=(fraction << np.uint64(11)) | hidden,
        exponent=np.maximum(field, 1) - 1023,
        nan=special & (fraction != 0),
        inf=special & (fraction == 0),
    )


def exact_int(x: Array) -> Exact:
    """The parts of an array of int64 or uint64."""
    magnitude = x.astype(np.uint64)  # of a negative number, its two's complement
    negative = x < 0
    magnitude = np.where(negative, np.uint64(0) - magnitude, magnitude)
    # Without the bit below the leading one, the conversion to float64 cannot round up to the next
    # power of two, so that its exponent is that of the integer.
    leading = (magnitude & ~(magnitude >> np.uint64(1))).astype(np.float64)
    exponent = np.where(magnitude == 0, -1074, np.frexp(leading)[1].astype(np.int64) - 1)
    shift = np.clip(63 - exponent, 0, 63).astype(np.uint64)
    none = np.zeros(x.shape, np.bool_)
    return Exact(negative, magnitude << shift, exponent, none, none)


def encode(x: Exact, row: Row, mode: str, saturate: bool, rbits: Array | None = None) -> Words:
    """The code words of `x` in the format of `row`, rounded once by `mode`.

    What is too large for the format becomes

    - the largest finite value if `saturate`, or if the format has neither infinity nor NaN;
    - else, in a mode that rounds it towards zero, the largest finite value, unless it is infinite;
    - else infinity, or NaN in a format without infinity.

    NaN stays NaN with its sign; where the format has none it becomes the largest finite value, as
    `cvt.satfinite` to e2m1, e2m3 and e3m2 has it (PTX ISA, cvt). A format without a sign takes the
    magnitude, as CUDA's conversions to e8m0 do, and having no last bit rounds ties up in `rn`.
    `rbits` is a uint32 per number, for mode rs.
    """
    negative = x.negative if row.has_sign else np.zeros_like(x.negative)
    word = _round(x, negative, row, mode, rbits)
    over = (word > row.max_word) | x.inf
    largest = np.uint64(row.max_word)
    if saturate or row.nan_word is None:
        word = np.where(over, largest, word)
    else:
        beyond = row.nan_word if row.inf_word is None else row.inf_word
        kept = _towards_zero(mode, negative) & ~x.inf
        word = np.where(over, np.where(kept, largest, np.uint64(beyond)), word)
    if row.has_sign:
        signed = negative & (word != 0) if row.special is Special.FNUZ else negative
        word |= np.where(signed, np.uint64(row.sign_word), np.uint64(0))
    return np.where(x.nan, _nan_words(negative, row), word)


def _nan_words(negative: Mask, row: Row) -> Words:
    if row.nan_word is None:
        return np.full(negative.shape, row.max_word, np.uint64)
    sign = 0 if row.special is Special.FNUZ else row.sign_word
    return np.where(negative, np.uint64(row.nan_word | sign), np.uint64(row.nan_word))


def _round(x: Exact, negative: Mask, row: Row, mode: str, rbits: Array | None) -> Words:
    """The code words without sign, as if the format went on above its largest number."""
    below = np.maximum(row.emin - x.exponent, 0)  # how far into the subnormal numbers
    shift = 63 - row.mantissa_bits + below
    narrow, wide = np.minimum(shift, 63).astype(np.uint64), np.clip(shift - 64, 0, 63)
    beyond = wide.astype(np.uint64)
    kept = np.where(shift < 64, x.significand >> narrow, np.uint64(0))
    # What is cut off, as a fraction of 2**64; bits lost from it still say that it is not zero.
    lost = (x.significand << (np.uint64(63) - beyond) << np.uint64(1)) != 0
    small = (x.significand >> beyond) | (lost & (wide > 0))
    rest = np.where(shift < 64, x.significand << (np.uint64(64) - narrow), small)
    word = kept + _carries(kept, rest, negative, mode, rbits)
    word += (np.maximum(x.exponent, row.emin) - row.emin).astype(np.uint64) << np.uint64(
        row.mantissa_bits
    )
    # Without subnormal numbers the hidden bit is in no word; what is below the smallest becomes it.
    return word if row.has_sign else np.maximum(word, np.uint64(1)) - np.uint64(1)


def _carries(kept: Words, rest: Words, negative: Mask, mode: str, rbits: Array | None) -> Words:
    half = np.uint64(1 << 63)
    match mode:
        case "rn":
            up = (rest > half) | ((rest == half) & (kept & np.uint64(1)).astype(np.bool_))
        case "rna":
            up = rest >= half
        case "rp":
            up = (rest != 0) & ~negative
        case "rm":
            up = (rest != 0) & negative
        case "rs" if rbits is not None:
            up = (rest >> np.uint64(32)) + rbits.astype(np.uint64) >= np.uint64(1 << 32)
        case _:  # rz
            return np.zeros_like(kept)
    return up.astype(np.uint64)


def _towards_zero(mode: str, negative: Mask) -> Mask:
    """Where a mode rounds towards zero whatever the fraction is."""
    match mode:
        case "rz":
            return np.ones_like(negative)
        case "rp":
            return negative
        case "rm":
            return ~negative
        case _:
            return np.zeros_like(negative)
