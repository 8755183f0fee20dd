"""Rows of MX products: the way of scales to the tiles in L0A and L0B, and the product.

What enters: the order of the fractals in L0A and L0B. What leaves: `scaled_rows`. Scales lie as
`[row/16][unit][row%16][scale of the unit]`, a unit being two bytes: the scales of 64 elements of K.
The slot of a tile holds those of the tile, without gaps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from tilelang.ir.ascend import Core, Pipe
from tilelang.isa.instr import Immediate
from tilelang.targets.ascend.rows.build import (
    BLOCK,
    FRACTAL,
    GM,
    L0A,
    L0A_SCALE,
    L0B,
    L0B_SCALE,
    L0C,
    L1,
    Array,
    PipeRow,
    R,
    Strided,
    U,
    W,
    choice,
    counts,
    slot,
    value,
)
from tilelang.targets.ascend.rows.copies import l0c_view
from tilelang.targets.ascend.rows.cube import Order, accumulate, read_tile

_TEMPLATE = "tilelang 0.1.15, src/tl_templates/ascend/gemm.h, ascend_blockscaled_gemm_l1"
_COPY = f"{_TEMPLATE}; src/ascend/op/copy.cc, LowerMxSfLoad"
_TO_L1 = "tilelang 0.1.15, src/ascend/op/copy.cc, kSF: asc_copy_gm2l1_dn2nz of 16-bit units"
_INPUTS = ("float8_e4m3fn", "float8_e5m2", "uint8")
_SCALES = ("uint8", "uint16", "float8_e8m0fnu")
_K_OF_UNIT = 64
_K_OF_SCALE = 32
_PACK = choice("pack", 1, 2)
"""How many elements make a unit."""

Params = Mapping[str, Any]


def scale_view(rows: int, units: int, pitch: int, pack: int) -> Strided:
    """Scales of `rows` rows; `pitch` units from one 16 rows to the next."""
    one = FRACTAL * pack
    return (-(-rows // FRACTAL), units, FRACTAL, pack), (pitch * one, one, pack, 1)


def _blocks(x: Array, blocks: int) -> Array:
    """Rows of scales, 16 by 16; what is missing is zero."""
    whole = np.zeros((blocks * FRACTAL, x.shape[1]), x.dtype)
    whole[: x.shape[0]] = x
    return whole


def _to_l1(p: Params) -> dict[str, Strided]:
    return {
        "src": ((p["rows"], p["units"] * p["pack"]), (p["src_pitch"], 1)),
        "dst": scale_view(p["tile_rows"], p["units"], p["pitch"], p["pack"]),
    }


def _put(dst: Array, src: Array, **_: Any) -> tuple[()]:
    blocks, units, rows, pack = dst.shape
    whole = _blocks(src, blocks).reshape(blocks, rows, units, pack)
    dst[...] = whole.transpose(0, 2, 1, 3)
    return ()


def _to_slot(p: Params) -> dict[str, Strided]:
    return {
        "src": scale_view(p["rows"], p["units"], p["pitch"], p["pack"]),
        "dst": scale_view(p["rows"], p["units"], p["units"], p["pack"]),
    }


def _move(dst: Array, src: Array, **_: Any) -> tuple[()]:
    dst[...] = src
    return ()


def factors(x: Array, rows: int) -> Array:
    """Scales in their order as float64, (rows, scales): powers of two, or NaN."""
    blocks, units, sixteen, pack = x.shape
    flat = np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(blocks * sixteen, units * pack)
    code = flat.view(np.uint8).astype(np.int32)[:rows]
    return np.where(code == 0xFF, np.nan, np.ldexp(1.0, code - 127))


_FP4 = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float64)


def elements(x: Array, outer: int, inner: int, *, packed: bool) -> Array:
    """A tile as float64; bytes are two elements each."""
    if not packed:
        return read_tile(x, outer, inner).astype(np.float64)
    o, i, rows, c0 = x.shape
    codes = x.transpose(0, 2, 1, 3).reshape(o * rows, i * c0)[:outer, :inner]
    pairs = np.stack([codes & 15, codes >> 4], axis=-1)
    return _FP4[pairs.reshape(outer, 2 * inner)]


def _mad(orders: tuple[Order, Order]) -> PipeRow:
    left, right = orders

    def views(p: Params) -> dict[str, Strided]:
        m, n, k, c0, pack = (p[name] for name in ("m", "n", "k", "c0", "pack"))
        units = k * (2 if p["packed"] else 1) // _K_OF_UNIT
        return {
            "c": l0c_view(m, n, p["c_rows"]),
            "a": left(m, k, c0),
            "b": right(n, k, c0),
            "sa": scale_view(m, units, units, pack),
            "sb": scale_view(n, units, units, pack),
        }

    def meaning(c: Array, a: Array, b: Array, sa: Array, sb: Array, **p: Any) -> tuple[()]:
        m, n, k, packed = p["m"], p["n"], p["k"], p["packed"]
        x = elements(a, m, k, packed=packed) * np.repeat(factors(sa, m), _K_OF_SCALE, axis=1)
        y = elements(b, n, k, packed=packed) * np.repeat(factors(sb, n), _K_OF_SCALE, axis=1)
        return accumulate(c, (x @ y.T).astype(np.float32), init=p["init"])

    return PipeRow(
        "mad.scaled",
        f"{_TEMPLATE}: asc_mmad_mx",
        outs=(slot("c", U, L0C, dtypes=("float32",)),),
        ins=(
            slot("a", R, L0A, dtypes=_INPUTS),
            slot("b", R, L0B, like="a"),
            slot("sa", R, L0A_SCALE, dtypes=_SCALES, align=BLOCK),
            slot("sb", R, L0B_SCALE, like="sa", align=BLOCK),
            value("init", "bool"),
            *counts("m", "n", "k", "c_rows"),
        ),
        imm=(Immediate("c0", int, (32,)), _PACK, choice("packed", False, True)),
        pipe=Pipe.M,
        core=Core.CUBE,
        views=views,
        meaning=meaning,
    )


def scaled_rows(a_order: Order, b_order: Order) -> list[PipeRow]:
    """The rows for a chip with these orders of fractals."""
    into = (("l0a", L0A_SCALE), ("l0b", L0B_SCALE))
    return [
        PipeRow(
            "gm.l1.scales",
            _TO_L1,
            outs=(slot("dst", W, L1, dtypes=_SCALES, align=BLOCK),),
            ins=(
                slot("src", R, GM, like="dst"),
                *counts("rows", "units", "src_pitch", "tile_rows", "pitch"),
            ),
            imm=(_PACK, Immediate("cache", int, tuple(range(17)), optional=True)),
            pipe=Pipe.MTE2,
            core=Core.CUBE,
            views=_to_l1,
            meaning=_put,
        ),
        *(
            PipeRow(
                f"l1.{name}.scales",
                _COPY,
                outs=(slot("dst", W, space, dtypes=_SCALES, align=BLOCK),),
                ins=(
                    slot("src", R, L1, like="dst", align=BLOCK),
                    *counts("rows", "units", "pitch"),
                ),
                imm=(_PACK,),
                pipe=Pipe.MTE1,
                core=Core.CUBE,
                views=_to_slot,
                meaning=_move,
            )
            for name, space in into
        ),
        _mad((a_order, b_order)),
    ]
