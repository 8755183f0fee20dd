"""The meaning of block-scaled products: operands of few bits with one scale for each block along K.

What enters: A and B, their scales and the accumulator. What leaves: the accumulator, changed in
place: `c[m, n] += sum over k of a[m, k] * sa(m, k) * b[k, n] * sb(n, k)`.

A scale is a power of two (float8_e8m0fnu) or, for blocks of 16 elements of fp4, a float8_e4m3fn
without its sign (PTX ISA, mma with .block_scale: kinds mxf8f6f4 and mxf4nvf4). Where the scales are
integers they are code words of that type, in a uint32 four consecutive ones with the lowest byte
first. Scales that cover less of K than `k_start` counts are those of the current tile: the block
number is taken modulo their number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.dtypes.convert import converter
from tilelang.emulator import products, storage
from tilelang.emulator.storage import Array, Tile
from tilelang.errors import error
from tilelang.ir.node import Node
from tilelang.ir.scales import SCALE_COLUMNS, SCALE_LANES, AsyncScaledGemm, ScaleTranspose
from tilelang.ir.special import GemmBlockScaled

F64 = DType("float64")
Scaled = GemmBlockScaled | AsyncScaledGemm
E8M0, E4M3 = DType("float8_e8m0fnu"), DType("float8_e4m3fn")


def gemm_block_scaled(node: Scaled, *operands: Any) -> None:
    """The product of scaled operands; each is exact in float64 before it is multiplied."""
    a, b, c, sfa, sfb, clear_accum, k_start = operands
    left = products.matrix(a, transposed=node.transpose_a)
    right = products.matrix(b, transposed=node.transpose_b)
    wide = _scaled(node, left, (a, sfa), node.granularity_a, int(k_start))
    tall = _scaled(node, right.T, (b, sfb), node.granularity_b, int(k_start)).T
    types = F64, F64, c.access.dtype
    products.accumulate(node, c, (wide, tall), types, clear=bool(clear_accum))


def _scaled(node: Scaled, x: Array, tiles: tuple[Tile, Tile], grain: int, start: int) -> Array:
    """An operand (rows, K) times its scales, as float64."""
    operand, sf = tiles
    scales = _scales(node, sf, operand.access.dtype, grain, x.shape[0])
    elements = np.arange(x.shape[1], dtype=np.int64) + start
    blocks = elements // grain % scales.shape[1]
    return converter(operand.access.dtype, F64)(x) * scales[:, blocks]


def _scales(node: Scaled, sf: Tile, operand: DType, grain: int, rows: int) -> Array:
    """The scales as float64, (rows, blocks)."""
    raw, dtype = storage.read(sf), sf.access.dtype
    flat = raw.reshape(rows, 1) if raw.size == rows else raw.reshape(-1, raw.shape[-1])
    if flat.shape[0] != rows or not flat.shape[1]:
        raise error(
            "shape",
            f"the scales {sf.access.buffer.name} of T.gemm_blockscaled",
            node.loc,
            expected=f"one row of scales for each of {rows} rows (columns of B)",
            got=f"{dtype} {sf.extents}",
        )
    known = [t for t in (E8M0, E4M3) if t.row.encoding == dtype.row.encoding]
    if known:
        meaning = known[0]
    elif dtype.kind == "uint" and dtype.bits in (8, 16, 32):
        meaning = E4M3 if operand.bits == 4 and grain == 16 else E8M0
    else:
        raise error(
            "dtype",
            f"scales of type {dtype}",
            node.loc,
            expected="float8_e8m0fnu, float8_e4m3fn, uint8 code words, or uint32 of four",
        )
    words = np.ascontiguousarray(flat).view(np.uint8)
    if meaning == E4M3:
        words = words & np.uint8(0x7F)
    return converter(meaning, F64)(words.view(meaning.numpy))


def gemm_of_cells(node: AsyncScaledGemm, clear: bool, start: int, *tiles: Tile) -> None:
    """The product whose scales lie in Tensor Memory."""
    a, b, c, sfa, sfb = tiles
    rows = c.extents[-2], c.extents[-1]
    words = (_of_rows(sf, n) for sf, n in zip((sfa, sfb), rows, strict=True))
    gemm_block_scaled(node, a, b, c, *words, clear, start)


def _of_rows(sf: Tile, rows: int) -> Tile:
    """The words of rows, out of the cells of the first 32 lanes, as (rows, 1)."""
    cells = storage.read(sf)[:SCALE_LANES].reshape(SCALE_LANES, -1)
    return Tile(cells.T.reshape(-1, 1)[:rows], (0, 0), (rows, 1), sf.access)


def copy_words(src: Tile, dst: Tile) -> None:
    """Words into four columns for each 128, the same for the lanes of every warp."""
    words = storage.read(src).reshape(-1, SCALE_LANES, SCALE_COLUMNS)
    cells = words.transpose(1, 0, 2).reshape(SCALE_LANES, -1)
    storage.write(dst, np.tile(cells, (dst.extents[-2] // SCALE_LANES, 1)))


def transpose_words(node: ScaleTranspose, words: Tile) -> None:
    """Each 128 words, 4 x 32, as 32 x 4."""
    x = storage.read(words).reshape(-1, SCALE_COLUMNS, SCALE_LANES)
    storage.write(words, x.transpose(0, 2, 1).reshape(words.extents))


OPS: dict[type[Node], Callable[..., None]] = {
    GemmBlockScaled: gemm_block_scaled,
    ScaleTranspose: transpose_words,
}
"""The function of every node class here."""
