"""The meaning of products with a 2:4 sparse operand.

What enters: the kept elements of A, their metadata, B and the accumulator. What leaves: the
accumulator, changed in place.

The metadata are those of the PTX ISA (mma.sp, "Sparse matrix storage"), in order along K from the
lowest bits on: two of every four elements are kept, each with two bits for its place among the
four. Of 32 bit types one of every two elements is kept, with places for its two halves: 0b0100 is
the first element and 0b1110 the second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.dtypes import DType, to_bits
from tilelang.emulator import products
from tilelang.emulator.storage import Array
from tilelang.errors import error
from tilelang.ir.node import Node
from tilelang.ir.special import GemmSparse

_GROUP, _KEPT = 4, 2


def gemm_sparse(node: GemmSparse, *operands: Any, tf32: bool = False) -> None:
    """`c += A @ op(b)`, where the first two operands are A."""
    a, e, b, c, clear_accum = operands
    kept = products.matrix(a, transposed=node.transpose_a)
    words = products.matrix(e, transposed=node.transpose_e)
    right = products.matrix(b, transposed=node.transpose_b)
    where = places(words, e.access.dtype, kept, a.access.dtype, node)
    dense = expanded(kept, where, right.shape[0])
    # Two kept elements may name one place (a group of zeros): each multiplies that row of B.
    wide, tall = np.concatenate(dense, 1), np.concatenate([right] * len(dense), 0)
    types = a.access.dtype, b.access.dtype, c.access.dtype
    products.accumulate(node, c, (wide, tall), types, clear=bool(clear_accum), tf32=tf32)


def places(words: Array, meta: DType, kept: Array, dtype: DType, node: GemmSparse) -> Array:
    """The column of the dense A that each kept element belongs to."""
    rows, count = kept.shape
    bits = to_bits(np.ascontiguousarray(words), meta).astype(np.uint64)
    steps = np.arange(0, meta.bits, 2, dtype=np.uint64)
    codes = ((bits[:, :, None] >> steps) & np.uint64(3)).reshape(words.shape[0], -1)
    halves = 2 if dtype.bits == 32 else 1
    if dtype.bits > 32 or codes.shape != (rows, count * halves):
        raise error(
            "shape",
            "the metadata of T.gemm_sp do not fit A",
            node.loc,
            expected=f"{rows} x {2 * count * halves} bits for A of {dtype} {kept.shape}",
            got=f"{words.shape[0]} x {2 * codes.shape[1]} bits, {meta} {words.shape}",
        )
    group = np.arange(count * halves, dtype=np.int64) // _KEPT * _GROUP
    found = group + codes.astype(np.int64)
    return found[:, ::2] // 2 if halves == 2 else found


def expanded(kept: Array, where: Array, columns: int) -> list[Array]:
    """A as dense matrices whose sum it is; in each, every element has a place of its own."""
    rows = np.arange(kept.shape[0], dtype=np.int64)[:, None]
    out: list[Array] = []
    for part in range(_KEPT):
        dense = np.zeros((kept.shape[0], columns), kept.dtype)
        dense[rows, where[:, part::_KEPT]] = kept[:, part::_KEPT]
        out.append(dense)
    return out


OPS: dict[type[Node], Callable[..., None]] = {GemmSparse: gemm_sparse}
"""The function of every node class here."""
