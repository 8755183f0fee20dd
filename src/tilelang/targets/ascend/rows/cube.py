"""Rows of the cube core: loads of L0A and L0B, and the product.

What enters: the order of the fractals in L0A and L0B of a chip. What leaves: `cube_rows`. The tile
of an L0 buffer is compact: its fractals follow each other for the rows and columns that it has. A
tile of L1 is part of a matrix in zN order of `nz_rows` rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilelang.ir.ascend import Core, Pipe
from tilelang.isa.instr import Immediate, OperandRow
from tilelang.targets.ascend.rows.build import (
    BLOCK,
    FRACTAL,
    L0A,
    L0B,
    L0C,
    L1,
    Array,
    PipeRow,
    R,
    Strided,
    U,
    W,
    counts,
    read_blocks,
    slot,
    value,
    zn_view,
)
from tilelang.targets.ascend.rows.copies import l0c_view
from tilelang.targets.ascend.rows.numbers import stored

_LOAD = "AscendC API, LoadData (LoadData2DParams); fractal orders: tilelang-ascend common.h"
_MMAD = "AscendC API, Mmad (MmadParams)"
_INPUTS = ("float16", "bfloat16", "float32", "int8", "float8_e4m3fn", "float8_e5m2")
_LOADED = (*_INPUTS, "uint8")  # bytes of two fp4
_C0 = Immediate("c0", int, (8, 16, 32, 64))

Params = Mapping[str, Any]
Order = Callable[[int, int, int], Strided]
"""The elements of an L0 tile of (outer, inner) extents with `c0` elements in a row of a fractal, as
(outer/16, inner/c0, 16, c0); `inner` is the axis K that is summed over.
"""


def outer_first(outer: int, inner: int, c0: int) -> Strided:
    """Fractals along the inner axis follow each other: zZ for L0A."""
    o, i = -(-outer // FRACTAL), -(-inner // c0)
    return (o, i, FRACTAL, c0), (i * FRACTAL * c0, FRACTAL * c0, c0, 1)


def inner_first(outer: int, inner: int, c0: int) -> Strided:
    """Fractals along the outer axis follow each other: nZ for L0B, and the order of L1 itself."""
    o, i = -(-outer // FRACTAL), -(-inner // c0)
    return (o, i, FRACTAL, c0), (FRACTAL * c0, o * FRACTAL * c0, c0, 1)


def read_tile(x: Array, outer: int, inner: int) -> Array:
    """A tile, or one of each lane, as a matrix; floats in float32, in which the product is
    computed.
    """
    *lanes, o, i, rows, c0 = x.shape
    wide = x if x.dtype == np.int8 else stored(x, _FLOAT32)  # as it lies in memory
    return wide.swapaxes(-3, -2).reshape(*lanes, o * rows, i * c0)[..., :outer, :inner]


def _write(x: Array, matrix: Array) -> None:
    """A matrix into a tile; what the fractals have beyond it is zero."""
    *lanes, o, i, rows, c0 = x.shape
    if matrix.shape[-2:] != (o * rows, i * c0):
        whole = np.zeros((*lanes, o * rows, i * c0), x.dtype)
        whole[..., : matrix.shape[-2], : matrix.shape[-1]] = matrix
        matrix = whole
    x[...] = matrix.reshape(*lanes, o, rows, i, c0).swapaxes(-3, -2)


def _load(name: str, dst: OperandRow, order: Order, *, turned: bool) -> PipeRow:
    """`turned` says that the L1 tile has the inner axis (K) along its rows."""

    def views(p: Params) -> dict[str, Strided]:
        outer, inner, c0 = p["outer"], p["inner"], p["c0"]
        rows, columns = (inner, outer) if turned else (outer, inner)
        return {"src": zn_view(rows, columns, p["nz_rows"], c0), "dst": order(outer, inner, c0)}

    def meaning(dst: Array, src: Array, outer: int, inner: int, **_: Any) -> tuple[()]:
        matrix = read_blocks(src, outer if turned else inner)
        _write(dst, matrix.swapaxes(-1, -2) if turned else matrix)
        return ()

    return PipeRow(
        name,
        _LOAD,
        outs=(dst,),
        ins=(slot("src", R, L1, like="dst", align=BLOCK), *counts("outer", "inner", "nz_rows")),
        imm=(_C0,),
        pipe=Pipe.MTE1,
        core=Core.CUBE,
        views=views,
        meaning=meaning,
        lanes=True,
    )


# The product --------------------------------------------------------------------------------------

_FLOAT32 = np.dtype(np.float32)
_EXACT = 1 << 24
"""Integers up to this are exact in float32."""


def product(a: Array, b: Array, hf32: bool = False) -> Array:
    """`a @ b.T` in float32 of floats, in int32 of integers, without intermediate rounding of
    integers.
    """
    if a.dtype == np.int8:
        wide = np.float32 if a.shape[-1] << 14 < _EXACT else np.float64
        made = a.astype(wide) @ b.astype(wide).swapaxes(-1, -2)
        return made.astype(np.int64).astype(np.int32)
    a, b = a.astype(np.float32, copy=False), b.astype(np.float32, copy=False)
    return _cut(a) @ _cut(b).swapaxes(-1, -2) if hf32 else a @ b.swapaxes(-1, -2)


def _cut(x: Array) -> Array:
    """float32 with 11 bits of mantissa, to the nearest: HF32."""
    words = np.ascontiguousarray(x).view(np.uint32)
    return ((words + np.uint32(0x800)) & np.uint32(0xFFFFF000)).view(np.float32)


def accumulate(c: Array, made: Array, *, init: Any) -> tuple[()]:
    """Add a product to a tile of L0C, or put it there."""
    *lanes, blocks, m, width = c.shape
    more = blocks * width - made.shape[-1]
    if more:
        made = np.concatenate([made, np.zeros((*lanes, m, more), made.dtype)], axis=-1)
    tile = made.reshape(*lanes, m, blocks, width).swapaxes(-3, -2)
    if init:
        c[...] = tile
    else:
        np.add(c, tile, out=c)
    return ()


def _mad(orders: tuple[Order, Order]) -> PipeRow:
    left, right = orders

    def views(p: Params) -> dict[str, Strided]:
        m, n, k, c0 = p["m"], p["n"], p["k"], p["c0"]
        return {
            "c": l0c_view(m, n, p["c_rows"]),
            "a": left(m, k, c0),
            "b": right(n, k, c0),
        }

    def meaning(c: Array, a: Array, b: Array, init: Any, **p: Any) -> tuple[()]:
        m, n, k = p["m"], p["n"], p["k"]
        made = product(read_tile(a, m, k), read_tile(b, n, k), bool(p.get("hf32")))
        return accumulate(c, made, init=init)

    return PipeRow(
        "mad",
        _MMAD,
        outs=(slot("c", U, L0C, dtypes=("float32", "int32")),),
        ins=(
            slot("a", R, L0A, dtypes=_INPUTS),
            slot("b", R, L0B, like="a"),
            value("init", "bool"),
            *counts("m", "n", "k", "c_rows"),
        ),
        imm=(_C0,),
        pipe=Pipe.M,
        core=Core.CUBE,
        views=views,
        meaning=meaning,
        lanes=True,
    )


def cube_rows(a_order: Order, b_order: Order) -> list[PipeRow]:
    """The rows for a chip with these orders of fractals in L0A and L0B."""
    a = slot("dst", W, L0A, dtypes=_LOADED, align=BLOCK)
    b = slot("dst", W, L0B, dtypes=_LOADED, align=BLOCK)
    return [
        _load("l1.l0a", a, a_order, turned=False),
        _load("l1.l0a.t", a, a_order, turned=True),
        _load("l1.l0b", b, b_order, turned=True),
        _load("l1.l0b.t", b, b_order, turned=False),
        _mad((a_order, b_order)),
    ]
