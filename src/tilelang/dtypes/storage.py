"""Elements as bits: the unsigned integers of a storage type, and sub-byte types packed in bytes.

What enters: arrays in the storage of a `DType`, one element to a slot. What leaves: the same
elements as unsigned integers, or as the bytes that memory holds, and back. No value is converted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.dtypes.types import DType

Bytes = npt.NDArray[np.uint8]


def to_bits(x: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """The bits of each element, as unsigned integers of the size of its slot.

    Bits of a slot that the type does not use are 0. TypeError if `x` is not stored as `dtype`.
    """
    check_storage(x, dtype)
    bits = x.view(f"u{dtype.numpy.itemsize}")
    return bits & np.uint8(_mask(dtype)) if _mask(dtype) < 0xFF else bits


def from_bits(bits: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """The elements that have these bits, given as integers; what does not fit is dropped."""
    narrow = bits.astype(f"u{dtype.numpy.itemsize}", copy=False)
    if _mask(dtype) < 0xFF:
        narrow = narrow & np.uint8(_mask(dtype))
    return np.asarray(narrow).view(dtype.numpy)


def pack(x: npt.NDArray[Any], dtype: DType) -> Bytes:
    """The bytes that hold the elements of `x` in C order, as a flat array.

    Element `i` of a type of `b` < 8 bits takes the bits from `i * b`, counted from the lowest of
    the first byte: of two nibbles the low one comes first. The last byte is filled up with 0.
    """
    bits = np.ascontiguousarray(to_bits(x, dtype)).reshape(-1)
    if not dtype.is_subbyte:
        return bits.view(np.uint8)
    places = np.arange(dtype.bits, dtype=np.uint8)
    return np.packbits((bits[:, None] >> places) & np.uint8(1), bitorder="little")


def unpack(data: Bytes, dtype: DType, count: int) -> npt.NDArray[Any]:
    """The first `count` elements in the bytes `data`, as a flat array in the storage of `dtype`.

    Undoes `pack`. ValueError if the bytes are too few.
    """
    need = (count * dtype.bits + 7) // 8
    flat = np.ascontiguousarray(data).reshape(-1)
    if flat.size < need:
        raise ValueError(f"{count} elements of {dtype} take {need} bytes, got {flat.size}")
    if not dtype.is_subbyte:
        return flat[:need].view(dtype.numpy)
    places = np.arange(dtype.bits, dtype=np.uint8)
    split = np.unpackbits(flat[:need], count=count * dtype.bits, bitorder="little")
    bits = np.bitwise_or.reduce(split.reshape(count, dtype.bits) << places, axis=1, dtype=np.uint8)
    return from_bits(bits, dtype)


def check_storage(x: npt.NDArray[Any], dtype: DType) -> None:
    """Raises TypeError if `x` is not stored as `dtype`."""
    if x.dtype != dtype.numpy:
        raise TypeError(f"{dtype} is stored as {dtype.numpy}, got an array of {x.dtype}")


def _mask(dtype: DType) -> int:
    """The bits of a one-byte slot that the type uses; all ones for larger slots."""
    used = dtype.row.code_bits if dtype.is_float else dtype.bits
    return (1 << used) - 1
