"""Block-scaled products of tcgen05 that are only issued, and what brings their scales to Tensor
Memory.

These are statements of the tile stage. Scales are words of 32 bits, four in each: those of a row
for four blocks along K, the first in the lowest byte. In Tensor Memory the words of 128 rows take
four columns, the word of row r in lane r % 32 of column r // 32, the same in the lanes of every
warp (PTX ISA, tcgen05: Block Scaling).
"""

from __future__ import annotations

from dataclasses import MISSING

from tilelang.ir.expr import Expr, Region
from tilelang.ir.node import Effect, attr, operand
from tilelang.ir.special import GemmBlockScaled
from tilelang.ir.sync import AsyncGemm
from tilelang.ir.tile import TileOp

SCALED_ROWS, SCALE_LANES, SCALE_COLUMNS = 128, 32, 4
"""Rows whose words are copied together, and the lanes and columns that hold them."""


class AsyncScaledGemm(AsyncGemm):
    """`AsyncGemm` whose element k of a row of A (column of B) is multiplied by the scale in byte
    `(k_start + k) // granularity % 4` of the word of that row.

    `sfa` and `sfb` are the columns of Tensor Memory that hold the words of all rows of A, and of
    all columns of C. Of a pair of blocks each has the words for its rows of A, and both have those
    for all columns. A lowering that packs elements of 4 bits into bytes, and words of more than
    four blocks into `groups` of columns, says what it has packed in `kind` and `types`: those of A,
    B and the scales.
    """

    # Required, after those of the base class that are not: said so where types are checked.
    sfa: Region = operand(effect=Effect.READ | Effect.ASYNC, default=MISSING)
    sfb: Region = operand(effect=Effect.READ | Effect.ASYNC, default=MISSING)
    k_start: Expr = operand(default=MISSING)
    granularity_a: int = attr(default=MISSING)
    granularity_b: int = attr(default=MISSING)
    groups: int = attr(default=1)
    kind: str = attr(default="")
    types: tuple[str, str, str] = attr(default=("", "", ""))


class PairScaledGemm(GemmBlockScaled):
    """`GemmBlockScaled` by the two blocks of a pair, which wait for each other: each has its rows
    of A and C with their scales, half of the columns of B, and the scales of all columns.
    """


class ScaleCopy(TileOp):
    """Copies words of scales from shared to Tensor Memory (`tcgen05.cp.32x128b.warpx4`), each 128
    to four columns: word 4 * n + m to lane n of column m, and to the same lane of the other warps.

    Products that are issued later by the same thread see them. With `two_cta` both blocks of a
    pair copy their own.
    """

    src: Region = operand(effect=Effect.READ | Effect.ASYNC)
    dst: Region = operand(effect=Effect.WRITE | Effect.ASYNC)
    two_cta: bool = attr(default=False)


class ScaleTranspose(TileOp):
    """Transposes each 128 words, as 4 x 32 before and 32 x 4 after, in place: words in the order of
    rows are then as `ScaleCopy` wants them.
    """

    words: Region = operand(effect=Effect.UPDATE)
