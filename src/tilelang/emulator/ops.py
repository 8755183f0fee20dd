"""The meaning of the operations on tiles: one function for each node class, and the table of them.

What enters: the node (for its compile-time settings), and its operands in the order of its fields, regions as `Tile`s
and scalars as values of the block. What leaves: changed arrays. Adding an operation is adding one function and its row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.dtypes.convert import converter
from tilelang.emulator import storage
from tilelang.emulator.atomics import merged
from tilelang.emulator.storage import Array, Tile
from tilelang.errors import Loc, error
from tilelang.ir.node import Node
from tilelang.ir.tile import Atomic, Copy, Fill, Free, Gemm, Transpose

Shape = tuple[int, ...]


def matched(values: Array, shape: Shape, loc: Loc | None, what: str) -> Array:
    """`values` as an array that broadcasts to `shape`, by the rule of `Copy`."""
    if values.shape == shape:
        return values
    new = matching(values.shape, shape)
    if new is None:
        raise error(
            "shape",
            f"the extents of {what} do not fit together",
            loc,
            expected=f"extents {shape} after axes of extent 1 drop out",
            got=f"{values.shape}",
        )
    return values.reshape(new)


@cache
def matching(src: Shape, dst: Shape) -> Shape | None:
    """The shape to give `src` so that it broadcasts to `dst`; None if they do not match."""
    long_src, long_dst = [n for n in src if n != 1], [n for n in dst if n != 1]
    if long_src == long_dst:
        left = iter(long_src)
        return tuple(1 if n == 1 else next(left) for n in dst)
    # Aligned at the last axis; axes of extent 1 in front drop out.
    ones = (1,) * max(len(dst) - len(src), 0)
    padded = ones + src
    extra = len(padded) - len(dst)
    if any(n != 1 for n in padded[:extra]):
        return None
    padded = padded[extra:]
    return padded if all(a in (1, b) for a, b in zip(padded, dst, strict=True)) else None


def copy(node: Copy, src: Tile, dst: Tile) -> None:
    """Element by element, converted by value."""
    values = storage.read(src)
    if values.shape != dst.extents:
        values = matched(values, dst.extents, node.loc, "T.copy")
    if src.access.dtype != dst.access.dtype:
        values = converter(src.access.dtype, dst.access.dtype)(values)
    storage.write(dst, values)


def fill(node: Fill, dst: Tile, value: Any) -> None:
    """One value everywhere."""
    index = storage.within(dst)
    if index is not None:
        dst.array[index] = value
    else:
        storage.write(dst, np.asarray(value, dst.array.dtype))


def transpose(node: Transpose, src: Tile, dst: Tile) -> None:
    """The last two axes exchanged."""
    values = np.swapaxes(storage.read(src), -1, -2)
    if np.shares_memory(src.array, dst.array):
        values = values.copy()
    if src.access.dtype != dst.access.dtype:
        values = converter(src.access.dtype, dst.access.dtype)(values)
    storage.write(dst, matched(values, dst.extents, node.loc, "T.transpose"))


def atomic_tile(node: Atomic, dst: Tile, value: Tile | Any) -> None:
    """Every element of a region combined with the matching element of `value`."""
    if isinstance(value, Tile):
        values = matched(storage.read(value), dst.extents, node.loc, "the atomic operation")
        if value.access.dtype != dst.access.dtype:
            values = converter(value.access.dtype, dst.access.dtype)(values)
    else:
        values = np.asarray(value, dst.array.dtype)
    storage.write(dst, merged(node.op.value, dst.access.dtype, storage.read(dst), values))


def free(node: Free, buffer: Tile) -> None:
    """Contents are undefined from here on."""
    buffer.array.fill(storage.poison(buffer.access.dtype))


# Matrix products ---------------------------------------------------------------------------------------------------


def gemm(node: Gemm, a: Tile, b: Tile, c: Tile, clear_accum: Any, *, tf32: bool = False) -> None:
    """`c += op(a) @ op(b)`: the product in a type that holds it, added in float32 or wider, stored in c's type once."""
    left, right = _matrix(storage.read(a)), _matrix(storage.read(b))
    if node.transpose_a:
        left = left.T
    if node.transpose_b:
        right = right.T
    out = _matrix(storage.view(c) if c.access.on_chip else storage.read(c))
    _check_gemm(node, left, right, out)
    types = a.access.dtype, b.access.dtype, c.access.dtype
    old = None if clear_accum else out
    result = _product(left, right, old, types, tf32)
    if c.access.on_chip:
        out[...] = result
    else:
        storage.write(c, result.reshape(c.extents))


def _matrix(x: Array) -> Array:
    """The last two axes; all before have extent 1."""
    return x if x.ndim == 2 else x[(0,) * (x.ndim - 2)]


def _check_gemm(node: Gemm, a: Array, b: Array, c: Array) -> None:
    if a.shape[1] == b.shape[0] and c.shape == (a.shape[0], b.shape[1]):
        return
    raise error(
        "shape",
        "the operands of T.gemm do not fit together",
        node.loc,
        expected="A (M, K), B (K, N), C (M, N) after transposing",
        got=f"A {a.shape}, B {b.shape}, C {c.shape}",
    )


Types = tuple[DType, DType, DType]


def _product(a: Array, b: Array, c: Array | None, types: Types, tf32: bool) -> Array:
    """`a @ b` (+ `c`) in the storage of c's type."""
    ta, tb, tc = types
    if tc.is_float:
        wide = _float_type(types, a.shape[1])
        fa, fb = _as_float(a, ta, wide, tf32), _as_float(b, tb, wide, tf32)
        total = fa @ fb
        inner = DType("float64") if wide is np.float64 else DType("float32")
        if c is not None:
            total += converter(tc, inner)(c) if tc != inner else c
        return total if tc == inner else converter(inner, tc)(total)
    total = _exact_product(a, b, ta, tb)
    if c is not None:
        total = total + converter(tc, DType("int64"))(c)
    return converter(DType("int64"), tc)(total)


def _float_type(types: Types, k: int) -> type[Any]:
    """float32 for operands of up to 32 bits, as the hardware adds; float64 where float32 would lose bits of integers."""
    if any(t.name == "float64" for t in types):
        return np.float64
    whole = [t for t in types[:2] if not t.is_float]
    return np.float64 if whole and not _fits(types[0], types[1], k, 24) else np.float32


def _as_float(x: Array, dtype: DType, wide: type[Any], tf32: bool) -> Array:
    target = DType("float64") if wide is np.float64 else DType("float32")
    if dtype.name == "float32" and wide is np.float32:
        if tf32:  # the multiplier ignores the low 13 bits of the mantissa
            return (np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
        return _for_blas(x)
    return _for_blas(converter(dtype, target)(x))


def _for_blas(x: Array) -> Array:
    """Rows or columns next to each other in memory: NumPy has a slow path for all else."""
    item = x.itemsize
    good = x.strides[1] == item or x.strides[0] == item
    return x if good and min(x.strides) > 0 else np.ascontiguousarray(x)


def _fits(a: DType, b: DType, k: int, bits: int) -> bool:
    """Whether every sum of k products of two such integers is exact in a float with so many bits."""
    if a.is_float or b.is_float:
        return False
    return k * _magnitude(a) * _magnitude(b) <= 1 << bits


def _magnitude(dtype: DType) -> int:
    return max(abs(int(dtype.min)), int(dtype.max))


def _exact_product(a: Array, b: Array, ta: DType, tb: DType) -> Array:
    """The product of integers as int64, exact modulo 2**64."""
    for bits, wide in ((24, np.float32), (53, np.float64)):
        if _fits(ta, tb, a.shape[1], bits):
            return (_small(a, ta).astype(wide) @ _small(b, tb).astype(wide)).astype(np.int64)
    if ta.is_float or tb.is_float:
        raise error("dtype", f"T.gemm of {ta} and {tb} into integers")
    big = DType("int64")
    return np.matmul(converter(ta, big)(a), converter(tb, big)(b))


def _small(x: Array, dtype: DType) -> Array:
    """Sub-byte integers in a type that NumPy converts."""
    return converter(dtype, DType("int32"))(x) if dtype.is_subbyte else x


OPS: dict[type[Node], Callable[..., None]] = {
    Copy: copy,
    Fill: fill,
    Transpose: transpose,
    Atomic: atomic_tile,
    Free: free,
    Gemm: gemm,
}
"""The function of every node class here; `reduce` has further ones."""
