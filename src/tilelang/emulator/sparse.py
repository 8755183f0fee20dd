"""The meaning of products with a 2:4 sparse operand.

What enters: the kept elements of A, their metadata, B and the accumulator. What leaves: the
accumulator, changed in place.

`isa.sparsity` says how elements and metadata belong together.
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
from tilelang.isa import sparsity


def gemm_sparse(node: GemmSparse, *operands: Any, tf32: bool = False) -> None:
    """`c += A @ op(b)`, where the first two operands are A."""
    a, e, b, c, clear_accum = operands
    if a.access.dtype.bits > 32:
        raise error("dtype", f"a sparse product of {a.access.dtype}", node.loc)
    kept = products.matrix(a, transposed=node.transpose_a)
    words = products.matrix(e, transposed=node.transpose_e)
    right = products.matrix(b, transposed=node.transpose_b)
    where = places(words, e.access.dtype, kept, a.access.dtype, node)
    dense = expanded(kept, where, a.access.dtype, right.shape[0])
    # Two kept elements may name one place (a group of zeros): each multiplies that row of B.
    wide, tall = np.concatenate(dense, 1), np.concatenate([right] * len(dense), 0)
    types = a.access.dtype, b.access.dtype, c.access.dtype
    products.accumulate(node, c, (wide, tall), types, clear=bool(clear_accum), tf32=tf32)


def places(words: Array, meta: DType, kept: Array, dtype: DType, node: GemmSparse) -> Array:
    """The column of the dense A that each kept element belongs to."""
    rows, count = kept.shape
    form = sparsity.pattern(dtype)
    bits = to_bits(np.ascontiguousarray(words), meta).astype(np.uint64)
    steps = np.arange(0, meta.bits, 2, dtype=np.uint64)
    codes = ((bits[:, :, None] >> steps) & np.uint64(3)).reshape(words.shape[0], -1)
    each = form.bits // 2  # positions of one kept element
    if codes.shape != (rows, count * each):
        raise error(
            "shape",
            "the metadata of T.gemm_sp do not fit A",
            node.loc,
            expected=f"{rows} x {count * form.bits} bits for A of {dtype} {kept.shape}",
            got=f"{words.shape[0]} x {2 * codes.shape[1]} bits, {meta} {words.shape}",
        )
    first = codes[:, ::each].astype(np.int64) // each
    return np.arange(count, dtype=np.int64) // form.kept * form.group + first


def expanded(kept: Array, where: Array, dtype: DType, columns: int) -> list[Array]:
    """A as dense matrices whose sum it is; in each, every element has a place of its own."""
    rows = np.arange(kept.shape[0], dtype=np.int64)[:, None]
    out: list[Array] = []
    step = sparsity.pattern(dtype).kept
    for part in range(step):
        dense = np.zeros((kept.shape[0], columns), kept.dtype)
        dense[rows, where[:, part::step]] = kept[:, part::step]
        out.append(dense)
    return out


OPS: dict[type[Node], Callable[..., None]] = {GemmSparse: gemm_sparse}
"""The function of every node class here."""
