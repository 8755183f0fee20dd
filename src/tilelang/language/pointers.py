"""Pointers: parameters and values that are addresses, buffers made from them, and atomic accesses.

A pointer to an element comes from `T.access_ptr` or `T.address_of`; an address from a `T.ptr`
parameter or an integer tensor. `T.make_tensor` gives an address a shape, in elements.
"""

from __future__ import annotations

from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import TileTypeError, TileValueError
from tilelang.ir import build
from tilelang.ir.expr import AddressOf, AtomicLoad, Binary, BinaryOp, Buffer, Expr, const, int_value
from tilelang.ir.simplify import simplify
from tilelang.ir.special import MakeTensor
from tilelang.ir.tile import AtomicStore
from tilelang.language.arguments import choice, integer, known, launched, number, place, refuse
from tilelang.language.buffers import BufferRef, here, shape_of
from tilelang.language.values import DataType, Value, as_expr, element_type

LOAD_ORDERS = ("relaxed", "consume", "acquire", "seq_cst")
STORE_ORDERS = ("relaxed", "release", "seq_cst")


class PointerType(DataType):
    """`T.ptr`: the type of an address, 64 bits. `T.ptr(dtype)` says what it points to."""

    is_pointer = True

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride] - it makes a type, not a value
        self, dtype: Any = None, storage_scope: str = "global", *, is_size_var: bool = False
    ) -> Any:
        """The annotation of a pointer parameter, to `dtype` in `storage_scope` memory."""
        if storage_scope != "global":
            raise refuse(
                "scope",
                f"T.ptr to memory in {storage_scope!r}",
                expected="a pointer to global memory",
                got=repr(storage_scope),
            )
        if dtype is not None:
            element_type(dtype)  # raises for an unknown one
        if is_size_var:
            raise refuse("option", "T.ptr(is_size_var=True)", help="leave it out")
        return self


ptr = PointerType("int64")


def make_tensor(ptr: Any, shape: Any, dtype: Any = "float32", strides: Any = None) -> BufferRef:
    """The global memory at an address as a tensor of `shape`, row-major unless `strides` are given.

    `ptr` is a pointer parameter, an integer value, or an element of an integer tensor of addresses.
    """
    return _tensor("T.make_tensor", ptr, shape, dtype, strides)


def make_tensor_from_addr(
    addr: Any,
    shape: Any,
    dtype: Any = "float32",
    strides: Any = None,
    storage_scope: str = "global",
) -> BufferRef:
    """`make_tensor` from an integer address."""
    if storage_scope != "global":
        raise refuse("scope", "T.make_tensor_from_addr", expected="'global'", got=storage_scope)
    return _tensor("T.make_tensor_from_addr", addr, shape, dtype, strides)


def _tensor(name: str, address: Any, shape: Any, dtype: Any, strides: Any) -> BufferRef:
    builder = build.current(name)
    e = number(address, f"the address of {name}")
    if e.dtype not in ("int64", "uint64", "handle"):
        raise refuse(
            "dtype",
            f"the address of {name} has type {e.dtype}",
            cls=TileTypeError,
            expected="a T.ptr parameter, or 64 bits of an address",
            got=str(e.dtype),
        )
    extents = shape_of(shape, name)
    steps = None if strides is None else shape_of(strides, f"the strides of {name}")
    if steps is not None and len(steps) != len(extents):
        raise refuse(
            "shape",
            f"{name} with {len(steps)} strides for {len(extents)} axes",
            expected=f"{len(extents)} strides",
            got=str(len(steps)),
        )
    # Sizes read from memory are those of now, whatever is stored there later.
    extents = tuple(builder.stable(e, "extent") for e in extents)
    steps = None if steps is None else tuple(builder.stable(e, "stride") for e in steps)
    unique = builder.unique(builder.name_hint("tensor"))
    buffer = Buffer(unique, element_type(dtype), extents, strides=steps, loc=here())
    builder.emit(MakeTensor(buffer, e, loc=here()))
    builder.define(buffer)
    return BufferRef(buffer)


def address_of(obj: Any, span: Any = None) -> Value:
    """The address of an element of a buffer, or of its first one."""
    build.current("T.address_of")
    buffer, indices = place(obj, "the operand of T.address_of")
    return Value(AddressOf(buffer, indices, loc=here()))


_ACCESS = {"r": 1, "w": 2, "rw": 3}


def access_ptr(
    base: Any,
    access_type: Any = "r",
    *extents: Any,
    offset: Any = 0,
    extent: Any = None,
    ignore_last_ndim: int = 0,
) -> Value:
    """The address of `base`: an element, the corner of a slice, or the start of a buffer.

    `access_type` is r, w or rw (or their masks 1, 2, 3); `extents` or `extent` say how many
    elements are touched; both are facts for the compiler. `offset` moves on by elements, in
    buffers of one axis. `ignore_last_ndim` puts the last indices to zero. ValueError for other
    values.
    """
    launched("T.access_ptr")
    buffer, indices = place(base, "the base of T.access_ptr")
    if isinstance(access_type, int):
        known(access_type, "the access_type of T.access_ptr", 1, 3)
    else:
        choice(access_type, "the access_type of T.access_ptr", _ACCESS)
    listed = len(extents) == 1 and isinstance(extents[0], (list, tuple))
    sizes: list[Any] = [*(extents[0] if listed else extents), *([] if extent is None else [extent])]
    for size in sizes:
        integer(size, "an extent of T.access_ptr")
    dropped = known(ignore_last_ndim, "the ignore_last_ndim of T.access_ptr", 0, buffer.rank)
    kept = indices[: buffer.rank - dropped]
    moved = [*kept, *(const(0) for _ in range(dropped))]
    step = integer(offset, "the offset of T.access_ptr")
    if int_value(step) != 0:
        moved = [_moved(buffer, moved, step)]
    return Value(AddressOf(buffer, tuple(moved), loc=here()))


def _moved(buffer: Buffer, indices: list[Expr], step: Expr) -> Expr:
    if buffer.rank != 1:
        raise refuse(
            "shape",
            f"T.access_ptr(offset=...) of {buffer.name}, which has {buffer.rank} axes",
            cls=TileValueError,
            expected="a buffer of one axis",
            help=f"index it: `T.access_ptr({buffer.name}[i, j + offset])`",
        )
    return simplify(Binary(BinaryOp.ADD, indices[0], as_expr(step, DType(indices[0].dtype))))


def atomic_load(src: Any, memory_order: str = "seq_cst") -> Value:
    """One element (or the first of a buffer), read in one piece; a loop may wait on it.

    `memory_order` is relaxed, consume, acquire or seq_cst; ValueError otherwise.
    """
    launched("T.atomic_load")
    order = choice(memory_order, "the memory_order of T.atomic_load", LOAD_ORDERS)
    buffer, indices = place(src, "the source of T.atomic_load")
    return Value(AtomicLoad(buffer, indices, memory_order=order, loc=here()))


def atomic_store(dst: Any, src: Any, memory_order: str = "seq_cst") -> None:
    """Write `src`, converted to the dtype, to one element (or the first of a buffer) in one piece.

    `memory_order` is relaxed, release or seq_cst; ValueError otherwise.
    """
    builder = launched("T.atomic_store")
    order = choice(memory_order, "the memory_order of T.atomic_store", STORE_ORDERS)
    buffer, indices = place(dst, "the destination of T.atomic_store")
    value = number(src, "the value of T.atomic_store", DType(buffer.dtype))
    builder.emit(AtomicStore(buffer, indices, value, memory_order=order, loc=here()))
