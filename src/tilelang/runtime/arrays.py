"""Arrays of every framework as NumPy storage, without copies, and new arrays of a framework.

What enters: NumPy arrays, torch CPU tensors, anything with DLPack. What leaves: a NumPy array over the same memory in
the storage type of its `DType`. torch is looked at only when the program has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang import dtypes
from tilelang.dtypes import DType
from tilelang.errors import TileError, TileTypeError, error

Storage = npt.NDArray[Any]


@dataclass(frozen=True)
class Array:
    """An argument: its storage, element type, and the framework it came from ('numpy' or 'torch')."""

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
    """`x` as storage; `where` names the parameter in messages. TileTypeError for what is no array on the CPU."""
    if isinstance(x, np.ndarray):
        return Array(x, _dtype_of(x.dtype, where), "numpy")
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


def _refused(where: str, got: str, **facts: str) -> TileError:
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
        return DType(numpy_type)
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


def allocate(shape: Sequence[int], dtype: DType, framework: str) -> tuple[Any, Storage]:
    """A new array of `framework` with undefined contents, and its storage.

    Undefined means NaN, or bytes 0xA5, so that an element the kernel forgets to write is noticed.
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
    poison(storage, dtype)
    return result, storage


def poison(storage: Storage, dtype: DType) -> None:
    """Overwrite with what undefined memory looks like: NaN, or bytes 0xA5 (True for bool)."""
    if storage.size == 0:
        return
    if dtype.is_bool:
        storage[...] = True
    elif dtype.has_nan:
        storage[...] = np.nan
    else:
        storage.reshape(-1).view(np.uint8)[...] = 0xA5


def default_framework() -> str:
    """Where outputs live when no argument is an array: torch if the program has imported it, else NumPy."""
    return "torch" if _torch() is not None else "numpy"


def packed_shape(shape: Sequence[int], dtype: DType) -> tuple[int, ...]:
    """The shape in bytes of a row-major array whose elements are smaller than a byte."""
    per_byte = 8 // dtype.bits
    return (*shape[:-1], -(-shape[-1] // per_byte))


def unpacked(array: Array, shape: Sequence[int], dtype: DType) -> Storage:
    """One element per slot from packed bytes, low bits first."""
    raw = np.ascontiguousarray(array.storage).view(np.uint8).reshape(-1)
    return dtypes.unpack(raw, dtype, int(np.prod(shape))).reshape(tuple(shape))
