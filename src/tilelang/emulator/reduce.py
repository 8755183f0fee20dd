"""The meaning of reductions and scans.

What enters: source and destination regions. What leaves: the destination, combined in its own
element type: floats of 16 bits and fewer are combined in float32 and rounded once, integers wrap.
Max and min drop NaN unless told otherwise; an empty reduction gives the identity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.dtypes.convert import converter
from tilelang.emulator import storage
from tilelang.emulator.ops import matched
from tilelang.emulator.storage import Array, Tile
from tilelang.errors import error
from tilelang.ir.node import Node
from tilelang.ir.tile import Reduce, ReduceOp, Scan, ScanOp

_FOLDS: dict[ReduceOp, tuple[np.ufunc, np.ufunc]] = {
    ReduceOp.SUM: (np.add, np.add),
    ReduceOp.ABSSUM: (np.add, np.add),
    ReduceOp.MAX: (np.fmax, np.maximum),
    ReduceOp.ABSMAX: (np.fmax, np.maximum),
    ReduceOp.MIN: (np.fmin, np.minimum),
    ReduceOp.BITAND: (np.bitwise_and, np.bitwise_and),
    ReduceOp.BITOR: (np.bitwise_or, np.bitwise_or),
    ReduceOp.BITXOR: (np.bitwise_xor, np.bitwise_xor),
}
"""The combining function: where NaN is dropped, and where it is kept."""


def fold(op: ReduceOp, *, nan_propagate: bool = False) -> np.ufunc:
    """The function that combines two values."""
    return _FOLDS[op][1 if nan_propagate else 0]


def inner_type(dtype: DType) -> DType:
    """The type that values of `dtype` are combined in."""
    if dtype.is_float:
        return dtype if dtype.name in ("float32", "float64") else DType("float32")
    if dtype.is_bool or dtype.is_subbyte:
        return DType("int32")
    return dtype


def identity(op: ReduceOp, dtype: DType) -> Any:
    """What an empty reduction gives, in the type it is combined in."""
    inner = inner_type(dtype)
    match op:
        case ReduceOp.MAX:
            return inner.numpy.type(-np.inf if dtype.is_float else dtype.min)
        case ReduceOp.MIN:
            return inner.numpy.type(np.inf if dtype.is_float else dtype.max)
        case ReduceOp.BITAND:
            return inner.numpy.type(
                1 if dtype.is_bool else inner.max if dtype.is_uint and not dtype.is_subbyte else -1
            )
        case _:
            return inner.numpy.type(0)


def reduce(node: Reduce, src: Tile, dst: Tile) -> None:
    """`src` combined along one axis, and with the old `dst` unless `clear`."""
    dtype = dst.access.dtype
    if node.op in (ReduceOp.BITAND, ReduceOp.BITOR, ReduceOp.BITXOR) and (
        dtype.is_float or src.access.dtype.is_float
    ):
        raise error(
            "dtype",
            f"a bitwise reduction of {src.access.dtype}",
            node.loc,
            expected="integers or bool",
        )
    inner = inner_type(dtype)
    source = storage.read(src)
    combine = fold(node.op, nan_propagate=node.nan_propagate)
    values = _entered(source, src.access.dtype, dtype, inner)
    if node.op in (ReduceOp.ABSSUM, ReduceOp.ABSMAX):
        values = np.abs(values)
    result = combine.reduce(
        values, axis=node.dim, dtype=inner.numpy, initial=identity(node.op, dtype), keepdims=True
    )
    result = _fitted(result, dst.extents, node)
    if not node.clear:
        result = combine(result, converter(dtype, inner)(storage.read(dst)))
    storage.write(dst, converter(inner, dtype)(np.asarray(result, inner.numpy)))


def _entered(x: Array, src: DType, dtype: DType, inner: DType) -> Array:
    """`x` by value in the destination's type, but kept in the wider type that is combined in."""
    if src.is_float and dtype.is_float:
        return converter(src, inner)(x)
    return converter(dtype, inner)(converter(src, dtype)(x))


def _fitted(x: Array, shape: tuple[int, ...], node: Reduce) -> Array:
    """A result that kept its reduced axis, in the shape of the destination, with or without that
    axis.
    """
    dim = node.dim % x.ndim
    dropped = x.shape[:dim] + x.shape[dim + 1 :]
    if shape in (x.shape, dropped):
        return x.reshape(shape)
    return np.broadcast_to(matched(x, shape, node.loc, "the reduction"), shape)


_SCANS: dict[ScanOp, np.ufunc] = {ScanOp.SUM: np.add, ScanOp.MAX: np.fmax}


def scan(node: Scan, src: Tile, dst: Tile) -> None:
    """The inclusive running sum or maximum along one axis."""
    dtype = dst.access.dtype
    inner = inner_type(dtype)
    values = _entered(storage.read(src), src.access.dtype, dtype, inner)
    if node.reverse:
        values = np.flip(values, node.dim)
    result = _SCANS[node.op].accumulate(values, axis=node.dim, dtype=inner.numpy)
    if node.reverse:
        result = np.flip(result, node.dim)
    storage.write(dst, matched(converter(inner, dtype)(result), dst.extents, node.loc, "the scan"))


OPS: dict[type[Node], Callable[..., None]] = {Reduce: reduce, Scan: scan}
"""The function of every node class here."""
