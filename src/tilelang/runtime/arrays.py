"""Arrays of every framework as NumPy storage, without copies, and new arrays of a framework.

What enters: NumPy arrays, torch CPU tensors, anything with DLPack. What leaves: a NumPy array over
the same memory in the storage type of its `DType`. torch is looked at only when the program has
imported it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tilelang import dtypes
from tilelang.dtypes import DType
from tilelang.errors import TileError, TileTypeError, error
from tilelang.runtime.parts import poison

Storage = npt.NDArray[Any]


@dataclass(frozen=True)
class Array:
    """An argument: its storage, element type, and the framework it is from ('numpy', 'torch')."""

    storage: Storage
    dtype: DType
    framework: str


def describe_object(x: object) -> str:
    """What an argument is, in words for a message."""
    if x is None:
        return "None"
    kind = type(x)
    return (
        kind.__name__
        if kind.__module__ in ("builtins", "numpy")
        else f"{kind.__module__}.{kind.__name__}"
    )


def _torch() -> Any:
    return sys.modules.get("torch")


def adopt(x: Any, where: str) -> Array:
    """`x` as storage; `where` names the parameter in messages.

    TileTypeError for what is no array in host memory.
    """
    masked = sys.modules.get("numpy.ma")  # nothing is imported in a launch
    if masked is not None and isinstance(x, getattr(masked, "MaskedArray", ())):
        raise _refused(where, "a masked array", help="pass `x.filled(value)`")
    if isinstance(x, np.ndarray):
        storage = cast("Storage", x)
        return Array(storage, _dtype_of(storage.dtype, where), "numpy")
    torch = _torch()
    if torch is not None and isinstance(x, torch.Tensor):
        return _from_torch(torch, x, where)
    if hasattr(x, "__dlpack__"):
        try:
            shared = np.from_dlpack(x)
        except (BufferError, RuntimeError, TypeError, ValueError) as exc:
            raise _refused(
                where, f"a {describe_object(x)} that DLPack cannot share: {exc}"
            ) from None
        return Array(shared, _dtype_of(shared.dtype, where), "numpy")
    raise _refused(where, describe_object(x))


def _refused(where: str, got: str, **facts: Any) -> TileError:
    return error(
        "argument",
        f"{where} is not an array this kernel can use",
        cls=TileTypeError,
        expected="a NumPy array, a torch CPU tensor, or an array with DLPack in host memory",
        got=got,
        **facts,
    )


def _dtype_of(numpy_type: np.dtype[Any], where: str) -> DType:
    try:
        if numpy_type.isnative:
            return DType(numpy_type)
        raise TypeError("foreign byte order")
    except (TypeError, ValueError):
        raise _refused(where, f"an array of dtype {numpy_type}") from None


def _from_torch(torch: Any, x: Any, where: str) -> Array:
    if x.device.type != "cpu":
        raise _refused(
            where,
            f"a torch tensor on {x.device}",
            help="this kernel runs on the CPU: pass `tensor.cpu()`",
        )
    if x.layout is not torch.strided:
        raise _refused(
            where, f"a torch tensor of layout {x.layout}", help="pass `tensor.to_dense()`"
        )
    if x.is_conj() or x.is_neg():
        raise _refused(
            where, "a lazily conjugated or negated torch tensor", help="pass `tensor.resolve_neg()`"
        )
    try:
        dtype = DType(x.dtype)
    except (TypeError, ValueError):
        raise _refused(where, f"a torch tensor of dtype {x.dtype}") from None
    plain = x.detach()
    try:
        return Array(plain.numpy(), dtype, "torch")
    except TypeError:  # NumPy itself has no such type: share the bits
        bits = plain.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[x.element_size()])
        return Array(bits.numpy().view(dtype.numpy), dtype, "torch")


def allocate(
    shape: Sequence[int], dtype: DType, framework: str, *, poisoned: bool = True
) -> tuple[Any, Storage]:
    """A new array of `framework` with undefined contents, and its storage.

    If `poisoned`, they are what the emulator's memory holds before the first write.
    """
    torch = _torch()
    if framework == "torch" and torch is not None:
        name = dtype.torch_name
        if name is None or not hasattr(torch, name):
            raise error(
                "dtype",
                f"torch has no type for {dtype}",
                help="pass NumPy arrays, or the output yourself",
            )
        result = torch.empty(tuple(shape), dtype=getattr(torch, name))
        storage = _from_torch(torch, result, "an output").storage
    else:
        result = storage = np.empty(tuple(shape), dtype.numpy)
    if poisoned:
        storage[...] = poison(dtype)
    return result, storage


def default_framework() -> str:
    """Where outputs live when no argument is an array: torch if it is imported, else NumPy."""
    return "torch" if _torch() is not None else "numpy"


def overlapping(x: Storage) -> bool:
    """Whether two elements of an array are in one place."""
    axes = sorted((abs(s), n) for s, n in zip(x.strides, x.shape, strict=True) if n > 1)
    if x.size < 2 or axes[0][0] == 0:
        return x.size > 1
    extent = x.itemsize
    for stride, n in axes:
        if stride < extent:
            break  # axes that interleave: only the places themselves tell
        extent += stride * (n - 1)
    else:
        return False
    places: npt.NDArray[np.int64] = np.zeros(1, np.int64)
    for stride, n in axes:
        places = (places[:, None] + stride * np.arange(n, dtype=np.int64)).ravel()
    return bool((np.diff(np.sort(places)) < x.itemsize).any())


def packed_type(dtype: DType, framework: str) -> DType:
    """The type of an array of `framework` whose bytes hold packed elements: of torch the storage
    type of the elements, or int8 where this torch lacks it.
    """
    torch = _torch() if framework == "torch" else None
    name = dtype.torch_name
    own = torch is not None and (name is None or hasattr(torch, name))
    return dtype if own else DType("int8")


def packed_shape(shape: Sequence[int], dtype: DType) -> list[int]:
    """The shape in bytes of an array of rows of packed elements."""
    return [*shape[:-1], row_bytes(shape[-1], dtype)]


def row_bytes(count: int, dtype: DType) -> int:
    """The bytes that a row of `count` elements of a type smaller than a byte takes, with all of
    their lanes.
    """
    return -(-count * dtype.lanes * dtype.bits // 8)


def unpack_rows(raw: Storage, shape: Sequence[int], dtype: DType) -> Storage:
    """One element per slot from rows of packed bytes, low bits first; a row begins with a byte.

    The lanes of a vector are a last axis.
    """
    if dtype.lanes > 1:
        flat = [*shape[:-1], shape[-1] * dtype.lanes]
        return unpack_rows(raw, flat, dtype.base).reshape(*shape, dtype.lanes)
    count, width = math.prod(shape[:-1]), shape[-1]
    rows = np.ascontiguousarray(raw).view(np.uint8).reshape(count, row_bytes(width, dtype))
    whole, rest = divmod(rows.shape[1] * 8, dtype.bits)
    if rest:
        flat = [dtypes.unpack(row, dtype, width) for row in rows]
        out = np.array(flat, dtype.numpy)
    else:
        out = dtypes.unpack(rows, dtype, count * whole).reshape(count, whole)[:, :width]
    return np.ascontiguousarray(out).reshape(tuple(shape))


def pack_rows(storage: Storage, dtype: DType) -> npt.NDArray[np.uint8]:
    """Undoes `unpack_rows`: rows of bytes, with zeros after the last element of a row."""
    if dtype.lanes > 1:
        return pack_rows(storage.reshape(*storage.shape[:-2], -1), dtype.base)
    count, width = math.prod(storage.shape[:-1]), storage.shape[-1]
    rows = storage.reshape(count, width)
    size = row_bytes(width, dtype)
    whole, rest = divmod(size * 8, dtype.bits)
    if rest:
        flat = [dtypes.pack(row, dtype) for row in rows]
        return np.array(flat, np.uint8).reshape(count, size)
    wide = np.zeros((count, whole), storage.dtype)
    wide[:, :width] = rows
    return dtypes.pack(wide, dtype).reshape(count, size)
