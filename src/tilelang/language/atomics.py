"""Atomic updates of single elements and of whole tiles."""

from __future__ import annotations

from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import TileNotImplementedError, error
from tilelang.ir import build, tile
from tilelang.ir.expr import (
    INT32,
    AddressOf,
    Buffer,
    Expr,
    Lane,
    Load,
    Pack,
    Region,
    const,
    int_value,
)
from tilelang.language.arguments import Place, element, hints, place
from tilelang.language.buffers import BufferRef, RegionRef, VarRef, here, item
from tilelang.language.tileops import matched, region_of
from tilelang.language.values import Value, as_expr, describe, is_scalar

MEMORY_ORDERS = ("relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst")


def _is_element(x: Any) -> bool:
    return isinstance(x, VarRef) or (isinstance(x, Value) and isinstance(x.expr, (Load, AddressOf)))


def _atomic(
    op: tile.AtomicOp,
    dst: Any,
    value: Any,
    memory_order: str | None,
    return_prev: bool,
    notes: tuple[tuple[str, Any], ...],
) -> Value | None:
    name = f"T.atomic_{op.value}"
    builder = build.current(name)
    if memory_order is not None and memory_order not in MEMORY_ORDERS:
        raise error(
            "value",
            f"memory_order of {name}",
            here(),
            expected=", ".join(MEMORY_ORDERS),
            got=repr(memory_order),
        )
    if isinstance(value, (BufferRef, RegionRef)) or not _is_element(dst):
        return _tile_form(op, name, dst, value, memory_order, return_prev, notes)
    if not is_scalar(value):
        raise error(
            "dtype",
            f"the value of {name}",
            here(),
            expected="a scalar or a tile",
            got=describe(value),
        )
    region = element(dst, f"the destination of {name}")
    stored = DType(region.dtype)
    previous = builder.fresh_var(builder.name_hint("previous"), stored) if return_prev else None
    builder.emit(
        tile.Atomic(
            op,
            region,
            as_expr(value, stored),
            previous=previous,
            memory_order=memory_order or "relaxed",
            hints=notes,
            loc=here(),
        )
    )
    if previous is None:
        return None
    builder.define(previous)
    return Value(previous)


def _tile_form(
    op: tile.AtomicOp,
    name: str,
    dst: Any,
    value: Any,
    order: str | None,
    return_prev: bool,
    notes: tuple[tuple[str, Any], ...],
) -> None:
    if return_prev:
        raise error(
            "syntax",
            f"{name} of a tile with return_prev=True",
            here(),
            cls=TileNotImplementedError,
            expected="one element",
            help="loop over the elements: `for i in T.Parallel(n):"
            " old = T.atomic_add(C[i], x[i], return_prev=True)`",
        )
    dst_region = region_of(dst, f"the destination of {name}")
    source: Region | Any
    if is_scalar(value) and not _is_element(value):
        source = as_expr(value, DType(dst_region.dtype))
    else:
        source, dst_region = matched(value, dst, name)
    builder = build.current(name)
    update: tile.Stmt = tile.Atomic(
        op, dst_region, source, memory_order=order or "relaxed", hints=notes, loc=here()
    )
    if isinstance(source, Expr) and all(int_value(n) == 1 for n in dst_region.extents):
        # A tile, though of one element: the block updates it once, and not each of its threads.
        once = builder.fresh_var("once", INT32)
        update = tile.Parallel((once,), (const(1),), (update,), loc=here())
    builder.emit(update)


def atomic_add(
    dst: Any,
    value: Any,
    memory_order: str | None = None,
    return_prev: bool = False,
    use_tma: bool = False,
    annotations: dict[str, Any] | None = None,
) -> Value | None:
    """Add `value`, converted to the dtype of `dst`, to an element (or a tile to a tile),
    atomically.

    `return_prev` gives the old value of a single element; NotImplementedError for a tile.
    """
    return _atomic(
        tile.AtomicOp.ADD,
        dst,
        value,
        memory_order,
        return_prev,
        hints(annotations, use_tma=use_tma),
    )


def atomic_max(
    dst: Any,
    value: Any,
    memory_order: str | None = None,
    return_prev: bool = False,
    annotations: dict[str, Any] | None = None,
) -> Value | None:
    """Raise an element (or a tile) to at least `value`, atomically; see `atomic_add`."""
    return _atomic(tile.AtomicOp.MAX, dst, value, memory_order, return_prev, hints(annotations))


def atomic_min(
    dst: Any,
    value: Any,
    memory_order: str | None = None,
    return_prev: bool = False,
    annotations: dict[str, Any] | None = None,
) -> Value | None:
    """Lower an element (or a tile) to at most `value`, atomically; see `atomic_add`."""
    return _atomic(tile.AtomicOp.MIN, dst, value, memory_order, return_prev, hints(annotations))


def atomic_or(dst: Any, value: Any, memory_order: str | None = None) -> Value | None:
    """Set the bits of `value` in an integer element, atomically."""
    return _atomic(tile.AtomicOp.OR, dst, value, memory_order, False, ())


def _lanes(name: str, dst: Any, value: Any, count: int, return_prev: bool) -> Value | None:
    """Adds to `count` elements, each atomically by itself."""
    builder = build.current(name)
    places = _places(name, dst, count)
    stored = DType(places[0][0].dtype)
    olds: list[Expr] = []
    for (buffer, indices), amount in zip(places, _amounts(name, value, count), strict=True):
        region = Region(buffer, indices, tuple(const(1) for _ in indices), loc=here())
        old = builder.fresh_var("previous", stored) if return_prev else None
        converted = as_expr(amount, stored)
        builder.emit(tile.Atomic(tile.AtomicOp.ADD, region, converted, previous=old, loc=here()))
        if old is not None:
            builder.define(old)
            olds.append(old)
    return Value(Pack(tuple(olds), stored.with_lanes(count))) if olds else None


def _moved(buffer: Buffer, indices: tuple[Expr, ...], n: int) -> tuple[Expr, ...]:
    """The place `n` elements further along the last axis; an error where it is surely outside."""
    if n == 0:
        return indices
    further = item(BufferRef(buffer), (*map(Value, indices[:-1]), Value(indices[-1]) + n))
    return further.expr.indices


def _places(name: str, dst: Any, count: int) -> list[Place]:
    """The elements that lanes of a vector are read from, or neighbours from a place on."""
    if isinstance(dst, Value) and isinstance(dst.expr, Pack) and len(dst.expr.lanes) == count:
        loads = [e for e in dst.expr.lanes if isinstance(e, Load)]
        if len(loads) == count:
            return [(e.buffer, e.indices) for e in loads]
    buffer, indices = place(dst, f"the destination of {name}")
    return [(buffer, _moved(buffer, indices, n)) for n in range(count)]


def _amounts(name: str, value: Any, count: int) -> list[Expr]:
    """The values to add: lanes of a vector, or neighbouring elements from a place on."""
    if isinstance(value, Value) and value.expr.dtype.lanes == count:
        vector = build.current(name).stable(value.expr, "vector")
        return [Lane(vector, n) for n in range(count)]
    buffer, indices = place(value, f"the value of {name}")
    return [Load(buffer, _moved(buffer, indices, n), loc=here()) for n in range(count)]


def atomic_addx2(dst: Any, value: Any, return_prev: bool = False) -> Value | None:
    """Add two values to two neighbouring elements from `dst` on; each is atomic by itself.

    `dst` is an element or pointer, or two elements (`A[T.Ramp(i, 1, 2)]`); `value` a vector of two,
    or where two elements begin.
    `return_prev` gives the old values as a vector.
    """
    return _lanes("T.atomic_addx2", dst, value, 2, return_prev)


def atomic_addx4(dst: Any, value: Any, return_prev: bool = False) -> Value | None:
    """Add four values to four neighbouring elements from `dst` on; see `atomic_addx2`."""
    return _lanes("T.atomic_addx4", dst, value, 4, return_prev)
