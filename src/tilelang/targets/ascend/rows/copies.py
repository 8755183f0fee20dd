"""Rows that copy: one for each data path, with the change of format on it.

What leaves: `COPIES`. All sizes are elements; `rows` and `columns` are what is copied, a pitch is
the distance of the starts of two rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilelang.ir.ascend import ROUNDINGS, Core, Pipe
from tilelang.isa.instr import Immediate, OperandRow
from tilelang.targets.ascend.rows.build import (
    BLOCK,
    GM,
    L0C,
    L1,
    UB,
    Array,
    PipeRow,
    R,
    Strided,
    W,
    choice,
    count,
    counts,
    read_blocks,
    slot,
    value,
    write_blocks,
    zn_view,
)
from tilelang.targets.ascend.rows.numbers import combine, rounded, stored

_PAD = "AscendC API, DataCopyPad (DataCopyExtParams, DataCopyPadExtParams)"
_ND2NZ = "AscendC API, DataCopy with Nd2NzParams"
_DN2NZ = "AscendC API, DataCopy with Dn2NzParams (950)"
_BLOCKS = "tilelang 0.1.15, src/tl_templates/ascend/nd2nz_copy.h: asc_copy_ub2l1"
_FILL = "AscendC API, InitConstValue"
_FIXPIPE = "AscendC API, Fixpipe (FixpipeParamsV220), NZ to ND"
_LOCAL = "AscendC API, DataCopy (UB to UB)"
_CAST = "AscendC API, Cast"
_DUPLICATE = "AscendC API, Duplicate"

Params = Mapping[str, Any]


def _rows(pitch: str) -> Callable[[Params], Strided]:
    return lambda p: ((p["rows"], p["columns"]), (p[pitch], 1))


def _both(src: str = "src_pitch", dst: str = "dst_pitch") -> Callable[[Params], dict[str, Strided]]:
    a, b = _rows(src), _rows(dst)
    return lambda p: {"src": a(p), "dst": b(p)}


# Global memory and UB -----------------------------------------------------------------------------


def _move(dst: Array, src: Array, **_: Any) -> tuple[()]:
    dst[...] = src
    return ()


def _padded(dst: Array, src: Array, pad: Any, rows: int, columns: int, **_: Any) -> tuple[()]:
    if src.shape != dst.shape:
        dst[...] = pad
    dst[..., :rows, :columns] = src
    return ()


def _ended(dst: Array, src: Array, rows: int, columns: int, **p: Any) -> tuple[()]:
    words = np.array([p["copy_pad_value"]], np.uint32).view(np.uint8)[: dst.itemsize]
    dst[...] = words.view(dst.dtype)[0]
    dst[..., :rows, :columns] = src
    return ()


def _tile(p: Params) -> dict[str, Strided]:
    return {
        "src": ((p["rows"], p["columns"]), (p["src_pitch"], 1)),
        "dst": ((p["tile_rows"], p["tile_columns"]), (p["dst_pitch"], 1)),
    }


def _store(dst: Array, src: Array, atomic: str = "", **_: Any) -> tuple[()]:
    combine(dst, src, atomic)
    return ()


_CACHE = Immediate("cache", int, tuple(range(17)), optional=True)
"""The policy of the L2 cache, as the C API counts them; no result depends on it."""

_GM_UB = [
    PipeRow(
        "gm.ub",
        _PAD,
        outs=(slot("dst", W, align=BLOCK),),
        ins=(
            slot("src", R, GM, like="dst"),
            *counts("rows", "columns", "src_pitch", "dst_pitch"),
        ),
        imm=(_CACHE,),
        pipe=Pipe.MTE2,
        core=Core.VECTOR,
        views=_both(),
        meaning=_move,
        lanes=True,
    ),
    PipeRow(
        "gm.ub.pad",
        f"{_PAD}; {_DUPLICATE}",
        outs=(slot("dst", W, align=BLOCK),),
        ins=(
            slot("src", R, GM, like="dst"),
            value("pad", like="dst"),
            *counts("rows", "columns", "src_pitch", "dst_pitch", "tile_rows", "tile_columns"),
        ),
        imm=(_CACHE,),
        pipe=Pipe.MTE2,
        core=Core.VECTOR,
        views=_tile,
        meaning=_padded,
        lanes=True,
    ),
    PipeRow(
        "gm.ub.end",
        f"{_PAD}; CANN asc-devkit, asc_set_copy_pad_val",
        outs=(slot("dst", W, align=BLOCK),),
        ins=(
            slot("src", R, GM, like="dst"),
            *counts("rows", "columns", "src_pitch", "dst_pitch", "tile_rows", "tile_columns"),
        ),
        imm=(_CACHE,),
        pipe=Pipe.MTE2,
        core=Core.VECTOR,
        views=_tile,
        meaning=_ended,
        lanes=True,
    ),
    PipeRow(
        "ub.gm",
        _PAD,
        outs=(slot("dst", W, GM),),
        ins=(
            slot("src", R, UB, like="dst", align=BLOCK),
            *counts("rows", "columns", "src_pitch", "dst_pitch"),
        ),
        imm=(_CACHE,),
        pipe=Pipe.MTE3,
        core=Core.VECTOR,
        views=_both(),
        stores=True,
        meaning=_store,
        lanes=True,
    ),
]
"""`gm.ub.pad` sets the whole tile to `pad` where rows or columns are fewer than those of the tile.
`gm.ub.end` ends rows with the bits of the mode `copy_pad_value`.
"""


# Into L1 ------------------------------------------------------------------------------------------


def _into_l1(turned: bool) -> Callable[[Params], dict[str, Strided]]:
    def views(p: Params) -> dict[str, Strided]:
        rows, columns = p["rows"], p["columns"]
        src = (columns, rows) if turned else (rows, columns)
        tile = zn_view(p["tile_rows"], p["tile_columns"], p["nz_rows"], p["c0"])
        return {"src": (src, (p["src_pitch"], 1)), "dst": tile}

    return views


def _nz(dst: Array, src: Array, **p: Any) -> tuple[()]:
    if (p["rows"], p["columns"]) != (p["tile_rows"], p["tile_columns"]):
        dst[...] = np.zeros((), dst.dtype)
    if 0 not in src.shape:
        rows, columns = src.shape[-2:]
        write_blocks(dst[..., : -(-columns // p["c0"]), :rows, :], src)
    return ()


def _dn(dst: Array, src: Array, **p: Any) -> tuple[()]:
    return _nz(dst, np.swapaxes(src, -1, -2), **p)


def _blocks_of(p: Params) -> dict[str, Strided]:
    rows, c0 = p["rows"], p["c0"]
    dst = zn_view(rows, p["columns"], p["nz_rows"], c0)
    return {"src": (dst[0], ((rows + 1) * c0, c0, 1)), "dst": dst}


_L1_COUNTS = counts("rows", "columns", "src_pitch", "tile_rows", "tile_columns", "nz_rows")
_C0 = Immediate("c0", int, (8, 16, 32, 64))


def _to_l1(name: str, source: str, pipe: Pipe, core: Core, *, turned: bool = False) -> PipeRow:
    spaces = GM if pipe is Pipe.MTE2 else UB
    return PipeRow(
        name,
        source,
        outs=(slot("dst", W, L1, align=BLOCK),),
        ins=(slot("src", R, spaces, like="dst"), *_L1_COUNTS),
        imm=(_C0, _CACHE) if spaces == GM else (_C0,),
        pipe=pipe,
        core=core,
        views=_into_l1(turned),
        meaning=_dn if turned else _nz,
        lanes=True,
    )


def _set_blocks(dst: Array, number: Any, **_: Any) -> tuple[()]:
    dst[...] = number
    return ()


_TO_L1 = [
    _to_l1("gm.l1.nz", _ND2NZ, Pipe.MTE2, Core.CUBE),
    _to_l1("gm.l1.dn", _DN2NZ, Pipe.MTE2, Core.CUBE, turned=True),
    _to_l1("ub.l1.nz", _ND2NZ, Pipe.MTE3, Core.VECTOR),
    PipeRow(
        "ub.l1.blocks",
        _BLOCKS,
        outs=(slot("dst", W, L1, align=BLOCK),),
        ins=(slot("src", R, UB, like="dst", align=BLOCK), *counts("rows", "columns", "nz_rows")),
        imm=(_C0,),
        pipe=Pipe.MTE3,
        core=Core.VECTOR,
        views=_blocks_of,
        meaning=_move,
        lanes=True,
    ),
    PipeRow(
        "l1.fill",
        _FILL,
        outs=(slot("dst", W, L1, align=BLOCK),),
        ins=(value("number", like="dst"), *counts("tile_rows", "tile_columns", "nz_rows")),
        imm=(_C0,),
        pipe=Pipe.MTE2,
        core=Core.CUBE,
        views=lambda p: {"dst": zn_view(p["tile_rows"], p["tile_columns"], p["nz_rows"], p["c0"])},
        meaning=_set_blocks,
        lanes=True,
    ),
]
"""`tile_rows` and `tile_columns` are what the tile has; what is not copied of it becomes zero."""


# Out of L0C ---------------------------------------------------------------------------------------


def l0c_view(rows: int, columns: int, pitch: int) -> Strided:
    """A tile of L0C, `[column/16][row][column%16]`; `pitch` rows, a multiple of 16."""
    return (-(-columns // 16), rows, 16), (pitch * 16, 16, 1)


def _out_of_l0c(p: Params) -> dict[str, Strided]:
    return {
        "src": l0c_view(p["rows"], p["columns"], p["c_rows"]),
        "dst": ((p["rows"], p["columns"]), (p["dst_pitch"], 1)),
    }


def _drain(dst: Array, src: Array, atomic: str = "", **p: Any) -> tuple[()]:
    x = read_blocks(src, p["columns"])
    if p["relu"]:
        x = np.maximum(x, np.zeros((), x.dtype))
    if p["scale"] != 1:
        x = x.astype(np.float32) * np.float32(p["scale"])
    elif x.dtype == np.int32 and dst.dtype != np.int32:
        x = x.astype(np.float32)
    combine(dst, stored(x, dst.dtype), atomic)
    return ()


_L0C_COUNTS = counts("rows", "columns", "c_rows", "dst_pitch")
_ACCUMULATORS = ("float32", "int32")
_L0C_SRC = slot("src", R, L0C, dtypes=_ACCUMULATORS)
_SCALE = value("scale", "float32")


def _drain_row(name: str, source: str, dst: OperandRow, *more: OperandRow) -> PipeRow:
    """A drain; one that goes to UB names the vector core."""
    return PipeRow(
        name,
        source,
        outs=(dst,),
        ins=(_L0C_SRC, *_L0C_COUNTS, _SCALE, *more),
        imm=(choice("relu", False, True), *(() if more else (_CACHE,))),
        pipe=Pipe.FIX,
        core=Core.CUBE,
        views=_out_of_l0c,
        meaning=_drain,
        lanes=True,
        stores=not more,
        remote=bool(more),
    )


_FROM_L0C = [
    _drain_row("l0c.gm", _FIXPIPE, slot("dst", W, GM)),
    _drain_row(
        "l0c.ub",
        f"{_FIXPIPE}, to UB (950)",
        slot("dst", W, UB, align=BLOCK),
        count("sub"),
    ),
]
"""`scale` multiplies an accumulator before it is converted."""


# Within UB ----------------------------------------------------------------------------------------


def _cast(dst: Array, src: Array, rounding: str, deq_scale: float = 1, **_: Any) -> tuple[()]:
    if deq_scale != 1 and src.dtype == np.int32 and dst.dtype == np.float16:
        src = src.astype(np.float32) * np.float32(np.float16(deq_scale))
    dst[...] = rounded(src, dst.dtype, rounding)
    return ()


def _fill(dst: Array, number: Any, **_: Any) -> tuple[()]:
    dst[...] = number
    return ()


_IN_UB = [
    PipeRow(
        "ub.ub",
        _LOCAL,
        outs=(slot("dst", W, align=BLOCK),),
        ins=(
            slot("src", R, UB, like="dst", align=BLOCK),
            *counts("rows", "columns", "src_pitch", "dst_pitch"),
        ),
        pipe=Pipe.V,
        core=Core.VECTOR,
        views=_both(),
        meaning=_move,
        lanes=True,
    ),
    PipeRow(
        "v.cast",
        _CAST,
        outs=(slot("dst", W, align=BLOCK),),
        ins=(
            slot("src", R, UB, align=BLOCK),
            *counts("rows", "columns", "src_pitch", "dst_pitch"),
        ),
        imm=(choice("rounding", *ROUNDINGS),),
        pipe=Pipe.V,
        core=Core.VECTOR,
        views=_both(),
        meaning=_cast,
        lanes=True,
    ),
    PipeRow(
        "v.dup",
        _DUPLICATE,
        outs=(slot("dst", W, align=BLOCK),),
        ins=(value("number", like="dst"), *counts("rows", "columns", "dst_pitch")),
        pipe=Pipe.V,
        core=Core.VECTOR,
        views=lambda p: {"dst": ((p["rows"], p["columns"]), (p["dst_pitch"], 1))},
        meaning=_fill,
        lanes=True,
    ),
]

COPIES = [*_GM_UB, *_TO_L1, *_FROM_L0C, *_IN_UB]
"""The rows that copy, or fill."""
