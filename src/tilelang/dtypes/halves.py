"""float16 to float32, in every bit as NumPy does it, by operations on whole arrays.

What enters: an array of float16. What leaves: a new array of float32. NumPy converts one element
after the other, which takes up to three times as long as these few operations where there are many.
"""

from __future__ import annotations

import numpy as np

from tilelang.dtypes.encode import Array

_FEW = 6 << 10
"""Up to so many elements NumPy is quicker."""

_BIAS = np.float32(2.0**112)
"""The bias of the exponent of float32 is 112 more than that of float16."""

_KEPT = np.int32(-0x70002000)
"""The sign and the bits below the three upper ones of the exponent."""

_SIZE, _SPECIAL, _LARGEST = np.uint16(0x7FFF), np.uint16(0x7C00), np.int32(0x7F800000)
"""A half without its sign, infinity, and the exponent of infinity in float32."""


def widened(x: Array) -> Array:
    """float16 as float32. A half with its bits at the place of those of a float32 is too small by
    a power of two, subnormal ones as well.
    """
    if x.size <= _FEW:
        return x.astype(np.float32)
    words = x.view(np.int16).astype(np.int32)  # the sign is in all upper bits
    words <<= 13
    words &= _KEPT
    out = words.view(np.float32)
    out *= _BIAS
    sizes = x.view(np.uint16) & _SIZE
    if sizes.max() >= _SPECIAL:  # infinity, NaN
        np.bitwise_or(words, _LARGEST, out=words, where=sizes >= _SPECIAL)
    return out
