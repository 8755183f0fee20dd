"""The meaning of matrix products.

What enters: operands as `Tile`s of any element type. What leaves: the accumulator, changed in
place. Products of integers are exact and wrap in the accumulator's type; products of floats are
summed in float32 (float64 where a type of 64 bits takes part, or an integer that float32 cannot
hold) and rounded to the accumulator's type once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.dtypes.convert import converter
from tilelang.emulator import storage
from tilelang.emulator.storage import Array, Tile
from tilelang.errors import error
from tilelang.ir.node import Node
from tilelang.ir.special import GemmBlockScaled, GemmSparse
from tilelang.ir.sync import AsyncGemm
from tilelang.ir.tile import Gemm

Product = Gemm | AsyncGemm | GemmSparse | GemmBlockScaled
Operands = tuple[Array, Array]
Types = tuple[DType, DType, DType]
"""The element types of A, B and C."""

F32, F64, I64 = DType("float32"), DType("float64"), DType("int64")


def gemm(
    node: Gemm | AsyncGemm, a: Tile, b: Tile, c: Tile, clear_accum: Any, *, tf32: bool = False
) -> None:
    """`c += op(a) @ op(b)`."""
    left, right = matrix(a, transposed=node.transpose_a), matrix(b, transposed=node.transpose_b)
    types = a.access.dtype, b.access.dtype, c.access.dtype
    accumulate(node, c, (left, right), types, clear=bool(clear_accum), tf32=tf32)


def matrix(tile: Tile, *, transposed: bool = False) -> Array:
    """The last two axes of a region; all before have extent 1."""
    x = storage.read(tile)
    flat = x if x.ndim == 2 else x[(0,) * (x.ndim - 2)]
    return flat.T if transposed else flat


def accumulate(
    node: Product, c: Tile, operands: Operands, types: Types, *, clear: bool, tf32: bool = False
) -> None:
    """Add `a @ b` to the region `c`, or set it if `clear`."""
    a, b = operands
    old = matrix(c)
    if a.shape[1] != b.shape[0] or old.shape != (a.shape[0], b.shape[1]):
        raise error(
            "shape",
            "the operands of T.gemm do not fit together",
            node.loc,
            expected="A (M, K), B (K, N), C (M, N) after transposing",
            got=f"A {a.shape}, B {b.shape}, C {old.shape}",
        )
    result = product(operands, None if clear else old, types, tf32=tf32)
    storage.write(c, result.reshape(c.extents))


def product(operands: Operands, c: Array | None, types: Types, *, tf32: bool = False) -> Array:
    """`a @ b` (+ `c`) in the storage of c's type."""
    a, b = operands
    ta, tb, tc = types
    if tc.is_float:
        inner = _float_type(types, a.shape[1])
        total = _as_float(a, ta, inner, tf32) @ _as_float(b, tb, inner, tf32)
        if c is not None:
            total += converter(tc, inner)(c)
        return converter(inner, tc)(total)
    total = _exact_product(a, b, ta, tb)
    if c is not None:
        total = total + converter(tc, I64)(c)
    return converter(I64, tc)(total)


def _float_type(types: Types, k: int) -> DType:
    """float32 for operands of up to 32 bits, as the hardware adds, or float64.

    float64 is for types of 64 bits, and where float32 would lose bits of integers.
    """
    if any(t.name == "float64" for t in types):
        return F64
    whole = [t for t in types[:2] if not t.is_float]
    return F64 if whole and not _fits(types[0], types[1], k, 24) else F32


def _as_float(x: Array, dtype: DType, inner: DType, tf32: bool) -> Array:
    if dtype.name == "float32" and inner == F32 and tf32:
        # The multiplier ignores the low 13 bits of the mantissa.
        cut = np.ascontiguousarray(x).view(np.uint32) & np.uint32(0xFFFFE000)
        return cut.view(np.float32)
    return _for_blas(converter(dtype, inner)(x))


def _for_blas(x: Array) -> Array:
    """Rows or columns next to each other in memory: NumPy has a slow path for all else."""
    item = x.itemsize
    good = x.strides[1] == item or x.strides[0] == item
    return x if good and min(x.strides) > 0 else np.ascontiguousarray(x)


def _fits(a: DType, b: DType, k: int, bits: int) -> bool:
    """Whether every sum of k products of two such integers is exact in a float of so many bits."""
    if a.is_float or b.is_float:
        return False
    return k * _magnitude(a) * _magnitude(b) <= 1 << bits


def _magnitude(dtype: DType) -> int:
    return max(abs(int(dtype.min)), int(dtype.max))


def _exact_product(a: Array, b: Array, ta: DType, tb: DType) -> Array:
    """The product of integers as int64, exact modulo 2**64."""
    for bits, wide in ((24, F32), (53, F64)):
        if _fits(ta, tb, a.shape[1], bits):
            return (converter(ta, wide)(a) @ converter(tb, wide)(b)).astype(np.int64)
    if ta.is_float or tb.is_float:
        raise error("dtype", f"T.gemm of {ta} and {tb} into integers")
    return np.matmul(converter(ta, I64)(a), converter(tb, I64)(b))


OPS: dict[type[Node], Callable[..., None]] = {Gemm: gemm}
"""The function of every node class here; `sparse` and `scaled` have further ones."""
