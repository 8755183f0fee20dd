"""Pointers: parameters that are addresses, and tensors made over them."""

from __future__ import annotations

from typing import Any

from tilelang import dtypes
from tilelang.dtypes import DType
from tilelang.errors import TileTypeError, TileValueError, error
from tilelang.ir import build
from tilelang.ir.expr import Buffer
from tilelang.ir.special import MakeTensor
from tilelang.language.buffers import BufferRef, here, shape_of
from tilelang.language.values import Value, describe


class Pointer:
    """`T.ptr`: the annotation of a parameter that is an address in global memory."""

    is_pointer = True

    def __init__(self, dtype: DType | None = None) -> None:
        self.dtype = dtype

    def __call__(
        self, dtype: Any = None, storage_scope: str = "global", *, is_size_var: bool = False
    ) -> Pointer:
        """A pointer to elements of `dtype`; only global memory has addresses."""
        if storage_scope != "global" or is_size_var:
            raise error("scope", "a pointer outside global memory", here(), expected="'global'")
        return Pointer(None if dtype is None else DType(dtypes.dtype(dtype)))


ptr = Pointer()


def make_tensor(ptr: Any, shape: Any, dtype: Any = "float32", strides: Any = None) -> BufferRef:
    """The tensor of `shape` at an address: a `T.ptr` parameter, or an int64 value.

    `strides` are in elements; without them the tensor is row-major.
    """
    builder = build.current("T.make_tensor")
    if not isinstance(ptr, Value) or not (ptr.expr.dtype.is_handle or ptr.expr.dtype == "int64"):
        raise error(
            "dtype",
            "the address of T.make_tensor",
            here(),
            cls=TileTypeError,
            expected="a T.ptr parameter, or an int64 value",
            got=describe(ptr),
        )
    extents = shape_of(shape, "T.make_tensor")
    steps = None if strides is None else shape_of(strides, "the strides of T.make_tensor")
    if steps is not None and len(steps) != len(extents):
        raise error(
            "shape",
            "shape and strides of T.make_tensor differ in length",
            here(),
            cls=TileValueError,
            expected=f"{len(extents)} strides",
            got=str(len(steps)),
        )
    name = builder.unique(builder.name_hint("tensor"))
    buffer = Buffer(name, DType(dtypes.dtype(dtype)), extents, strides=steps, loc=here())
    builder.define(buffer)
    builder.emit(MakeTensor(buffer, ptr.expr, loc=here()))
    return BufferRef(buffer)
