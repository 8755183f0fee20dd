"""Block-scaled products of tcgen05 that are only issued, and copies of their scales to Tensor
Memory.

Nothing here but `tcgen05_sf_warp_transpose` waits by itself: data is there after a wait for an
mbarrier. Scales are words of uint32, one for each row of A (column of B), four blocks along K in
each, the first in the lowest byte.
"""

from __future__ import annotations

import math
from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import TileValueError
from tilelang.ir.expr import Binary, BinaryOp, Region, const, int_value
from tilelang.ir.scales import (
    SCALE_COLUMNS,
    SCALE_LANES,
    SCALED_ROWS,
    AsyncScaledGemm,
    ScaleCopy,
    ScaleTranspose,
)
from tilelang.ir.sync import AsyncUnit
from tilelang.language.arguments import barrier, in_memory, integer, known, launched, refuse
from tilelang.language.buffers import here
from tilelang.language.shapes import shape_text
from tilelang.language.tileops import narrow, operands, region_of
from tilelang.language.values import condition
from tilelang.scopes import Memory

_WORD = DType("uint32")


def tcgen05_gemm_blockscaled(
    A: Any,
    B: Any,
    C: Any,
    SFA_tmem: Any,
    SFB_tmem: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    clear_accum: Any = False,
    wg_wait: int = 0,
    mbar: Any = None,
    *,
    k_start: Any,
    sf_a_granularity_k: int,
    sf_b_granularity_k: int,
    use_2cta: bool = False,
) -> None:
    """Issue `C += op(A) @ op(B)` on Tensor Memory, each element multiplied by a scale; when done it
    arrives at `mbar`, which is required. Shapes as in `T.gemm`.

    A and B are floats of at most 8 bits in shared memory, A of 8 bits also in Tensor Memory, where
    C and the scales lie: SFA_tmem and SFB_tmem of uint32 have 128 rows, and 4 columns for each 128
    rows of A or columns of C, as `T.tcgen05_cp_warpx4` writes them. Element k of the tile is
    multiplied by byte `(k_start + k) // granularity % 4`, a power of two (UE8M0), or UE4M3 where A
    and B are fp4 and both granularities are 16. `use_2cta` makes two blocks of a cluster a pair:
    each holds its rows of A and C with their scales, half of the columns of B, and the scales of
    all columns.
    """
    name = "T.tcgen05_gemm_blockscaled"
    ta, tb = bool(transpose_A), bool(transpose_B)
    a, b, c = _operands(name, (A, B, C), (ta, tb), pair=bool(use_2cta))
    if wg_wait != 0:
        raise refuse("option", f"wg_wait of {name}", expected="0", got=repr(wg_wait))
    done = _arrival(name, mbar)
    rows, columns = (int_value(e) or 0 for e in c.extents[-2:])
    deep = int_value(a.extents[-2 if ta else -1]) or 0
    grains = _grains(name, (sf_a_granularity_k, sf_b_granularity_k), deep)
    launched(name).emit(
        AsyncScaledGemm(
            a,
            b,
            c,
            condition(clear_accum),
            AsyncUnit.TCGEN05,
            sfa=_cells(SFA_tmem, f"the scales SFA_tmem of {name}", rows),
            sfb=_cells(SFB_tmem, f"the scales SFB_tmem of {name}", columns),
            k_start=integer(k_start, f"the k_start of {name}"),
            granularity_a=grains[0],
            granularity_b=grains[1],
            transpose_a=ta,
            transpose_b=tb,
            barrier=done,
            two_cta=bool(use_2cta),
            loc=here(),
        )
    )


def _arrival(name: str, mbar: Any) -> Region:
    """The mbarrier at which a product arrives."""
    if mbar is None:
        raise refuse(
            "async",
            f"{name} without an mbar",
            cls=TileValueError,
            expected="mbar=, the mbarrier at which the product arrives when it is done",
            help="`bar = T.alloc_barrier(1)`, then `mbar=bar` and a wait for it",
        )
    return barrier(mbar, f"the mbar of {name}")


def _operands(
    name: str, given: tuple[Any, Any, Any], turned: tuple[bool, bool], *, pair: bool
) -> tuple[Region, Region, Region]:
    launched(name)
    a, b, c = operands(given, turned, name, pair=pair)
    in_memory(c.buffer, f"operand C of {name}", Memory.TMEM)
    for letter, region in (("A", a), ("B", b)):
        homes = (Memory.SHARED, Memory.TMEM) if letter == "A" else (Memory.SHARED,)
        in_memory(region.buffer, f"operand {letter} of {name}", *homes)
        narrow(region, name)
    return a, b, c


def _grains(name: str, given: tuple[Any, Any], deep: int) -> list[int]:
    """The elements with one scale, of A and of B. Refuses a tile of more blocks along K than a word
    has scales: it would use them twice.
    """
    grains = [
        known(g, f"sf_{letter}_granularity_k of {name}", 1, 1 << 16)
        for letter, g in zip("ab", given, strict=True)
    ]
    for letter, grain in zip("AB", grains, strict=True):
        if deep > 4 * grain:
            raise refuse(
                "shape",
                f"{name} of {-(-deep // grain)} blocks along K with 4 scales in a word",
                cls=TileValueError,
                expected=f"K of at most {4 * grain}, four blocks of {grain} elements of {letter}",
                got=f"K = {deep}",
                help="issue a product for each four blocks, each with scales of its own",
            )
    return grains


tcgen05_mma_blockscaled = tcgen05_gemm_blockscaled


def tcgen05_cp_warpx4(
    smem_src: Any, tmem_dst: Any, tmem_col_offset: Any = 0, *, use_2cta: bool = False
) -> None:
    """Copy words of scales from shared to Tensor Memory, each 128 to four columns; no wait.

    Word 4 * n + m goes to lane n of column m, and to the same lane of the other warps. One of the
    threads that get here issues it; its later products see the scales, and its next arrival
    (`T.tcgen05_mma_arrive`, or the mbar of a product) says that the words have been read. The words
    are uint32, a multiple of 128, and tmem_dst has 128 rows of uint32. With `use_2cta` both blocks
    of a pair copy, each from its own shared memory. ValueError for other sizes.
    """
    name = "T.tcgen05_cp_warpx4"
    builder = launched(name)
    src = _words(smem_src, f"the source of {name}")
    count = math.prod(int_value(e) or 0 for e in src.extents)
    offset = integer(tmem_col_offset, f"the tmem_col_offset of {name}")
    dst = _cells(tmem_dst, f"the destination of {name}", count, offset)
    builder.emit(ScaleCopy(src, dst, two_cta=bool(use_2cta), loc=here()))


def tcgen05_sf_warp_transpose(smem_src: Any) -> None:
    """Bring words of scales from the order of rows into that of `T.tcgen05_cp_warpx4`, in place.

    Of each 128 words, word 32 * m + n becomes word 4 * n + m. One warp does it; `fence_proxy_async`
    orders it before a copy to Tensor Memory. ValueError for other than a multiple of 128 uint32.
    """
    name = "T.tcgen05_sf_warp_transpose"
    builder = launched(name)
    builder.emit(ScaleTranspose(_words(smem_src, f"the source of {name}"), loc=here()))


def _words(x: Any, what: str) -> Region:
    """A multiple of 128 words that follow each other in shared memory."""
    region = region_of(x, what)
    in_memory(region.buffer, what, Memory.SHARED)
    extents = [int_value(e) or 0 for e in region.extents]
    count = math.prod(extents)
    if region.dtype != _WORD or not count or count % SCALED_ROWS:
        raise refuse(
            "shape",
            f"{what} is {region.buffer.name} {shape_text(region.extents)} of {region.dtype}",
            cls=TileValueError,
            expected=f"a multiple of {SCALED_ROWS} words of uint32",
        )
    first = next(k for k, n in enumerate(extents) if n > 1)
    if any(int_value(n) != extents[k] for k, n in enumerate(region.buffer.shape) if k > first):
        raise refuse(
            "shape",
            f"the words of {what}, a part of {region.buffer.name}, do not follow each other",
            cls=TileValueError,
            expected="whole rows",
        )
    return region


def _cells(x: Any, what: str, rows: int, offset: Any = None) -> Region:
    """The columns of Tensor Memory with the words of so many rows, from where `x` begins on."""
    region = region_of(x, what)
    buffer, wide = region.buffer, -(-rows // SCALED_ROWS) * SCALE_COLUMNS
    in_memory(buffer, what, Memory.TMEM)
    low = region.mins[-1]
    if offset is not None and offset != const(0):
        begin, more = int_value(low), int_value(offset)
        if begin is None or more is None:
            low = Binary(BinaryOp.ADD, low, offset)
        else:
            low = const(begin + more)
    whole = tuple(int_value(n) for n in buffer.shape)
    start, high = int_value(low) or 0, whole[-1]
    fits = buffer.rank == 2 and whole[0] == SCALE_LANES * 4 and region.mins[0] == const(0)
    if region.dtype != _WORD or not fits or high is None or start + wide > high:
        raise refuse(
            "shape",
            f"{what} is {buffer.name} {shape_text(buffer.shape)} of {buffer.dtype}",
            cls=TileValueError,
            expected=f"128 rows of uint32 with {wide} columns from {start} on",
            help="the scales of each 128 rows of A (columns of B) take 4 columns",
        )
    return Region(buffer, (const(0), low), (const(SCALE_LANES * 4), const(wide)), loc=here())
