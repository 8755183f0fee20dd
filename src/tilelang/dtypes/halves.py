"""float16 to float32 and back, in every bit as NumPy does it, by operations on whole arrays.

What enters: arrays of one of the two. What leaves: new arrays of the other, rounded to nearest,
ties to even. NumPy converts one element after the other, which takes more time than a handful of
operations as soon as there are some thousand.
"""

from __future__ import annotations

import numpy as np

from tilelang.dtypes.encode import Array

_FEW = 1024
"""Up to so many elements NumPy is quicker."""

_UP, _DOWN = np.float32(2.0**112), np.float32(2.0**-112)
"""float32 has a bias of the exponent that is 112 more than that of float16."""


def widened(x: Array) -> Array:
    """float16 as float32. A half with its bits at the place of those of a float32 is too small by
    a power of two, subnormal ones as well.
    """
    if x.size <= _FEW:
        return x.astype(np.float32)
    words = x.view(np.int16).astype(np.int32)  # the sign is in all upper bits
    words <<= 13
    words &= np.int32(-0x70002000)
    out = words.view(np.float32)
    out *= _UP
    if (x.view(np.uint16) & np.uint16(0x7FFF)).max() >= 0x7C00:  # infinity, NaN
        special = (x.view(np.uint16) & np.uint16(0x7C00)) == 0x7C00
        np.bitwise_or(words, np.int32(0x7F800000), out=words, where=special)
    return out


def narrowed(x: Array) -> Array:
    """float32 as float16. A power of two is added that leaves as many places as the half has, so
    that the sum is rounded there, and is taken away again.
    """
    if x.size <= _FEW:
        return x.astype(np.float16)
    size = np.abs(x)
    if not size.max() < 65520:  # something becomes infinity, or is NaN
        return x.astype(np.float16)
    step = size.view(np.uint32) & np.uint32(0x7F800000)
    np.maximum(step, np.uint32((127 - 14) << 23), out=step)  # subnormal halves have one step
    step += np.uint32(13 << 23)
    size += step.view(np.float32)
    size -= step.view(np.float32)
    size *= _DOWN
    words = size.view(np.uint32)
    words >>= 13
    words |= (x.view(np.uint32) >> 16) & np.uint32(0x8000)
    return words.astype(np.uint16).view(np.float16)
