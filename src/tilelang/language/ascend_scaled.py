"""Products of MX tiles: fp8 or fp4 elements with one e8m0 scale for 32 of them along K.

What enters: tiles and their scales, all in L1; or tiles in L0A and L0B and the handles of their
scales. What leaves: a `GemmBlockScaled`.
"""

from __future__ import annotations

from typing import Any

from tilelang.errors import TileError, TileTypeError, TileValueError
from tilelang.ir.expr import Region, const, int_value
from tilelang.ir.special import GemmBlockScaled
from tilelang.ir.tile import Annotate
from tilelang.language.arguments import launched, refuse
from tilelang.language.arguments import memory as memory_of
from tilelang.language.ascend import SCALED_BY_ONE
from tilelang.language.ascend_ops import check_homes, unit_flag
from tilelang.language.buffers import here
from tilelang.language.shapes import shape_text
from tilelang.language.tileops import matrix, operands
from tilelang.language.values import condition
from tilelang.scopes import Memory

_NAME = "T.gemm_blockscaled"
_ELEMENTS = ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn")
_SCALES = ("uint8", "uint16", "float8_e8m0fnu")
_STEP_OF_K = 64
"""Two scales are one unit of the hardware, so K comes in steps of 64 (tilelang 0.1.15,
tl_templates/ascend/gemm.h, kSFDivisor)."""


def gemm_blockscaled(
    A: Any,
    B: Any,
    C: Any,
    SFA: Any,
    SFB: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    clear_accum: Any = False,
    unit_flag_ctrl: Any = None,
) -> None:
    """`C += (op(A) * SFA) @ (op(B) * SFB)`, where a scale counts for 32 elements of a row along K.

    From L1 the scales are in L1 too, and A is (M, K), B (N, K) with `transpose_B=True`. From L0A
    and L0B they are the handles of these tiles, which a copy from L1 has filled. Scales are
    (M, K / 32) and (N, K / 32) bytes of e8m0, or half as many uint16 of two, the first one low.
    """
    builder = launched(_NAME)
    unit_flag(unit_flag_ctrl, _NAME)
    ta, tb = bool(transpose_A), bool(transpose_B)
    a, b, c = operands((A, B, C), (ta, tb), _NAME)
    check_homes(a, b, c, ta, tb, _NAME)
    if a.dtype != b.dtype or str(a.dtype) not in _ELEMENTS:
        raise refuse(
            "dtype",
            f"{_NAME} of {a.dtype} and {b.dtype}",
            cls=TileTypeError,
            expected=f"both {', or both '.join(_ELEMENTS)}",
            got=f"{a.dtype} and {b.dtype}",
        )
    m, k = reversed(a.extents[-2:]) if ta else a.extents[-2:]
    n = b.extents[-2] if tb else b.extents[-1]
    depth = int_value(k) or 0
    if depth % _STEP_OF_K:
        raise _bad(f"{_NAME} with K = {depth}", f"a multiple of {_STEP_OF_K}")
    sides = ((SFA, "SFA", a, m), (SFB, "SFB", b, n))
    sfa, sfb = (_scales(x, what, r, int_value(rows) or 0, depth) for x, what, r, rows in sides)
    builder.emit(
        GemmBlockScaled(
            a,
            b,
            c,
            sfa,
            sfb,
            condition(clear_accum),
            const(0),
            SCALED_BY_ONE,
            SCALED_BY_ONE,
            transpose_a=ta,
            transpose_b=tb,
            loc=here(),
        )
    )


def _bad(message: str, expected: str, got: str = "", help_: str = "") -> TileError:
    return refuse("shape", message, cls=TileValueError, expected=expected, got=got, help=help_)


def _scales(x: Any, what: str, tile: Region, rows: int, depth: int) -> Region:
    """The scales of one operand, which cover it exactly."""
    sf = matrix(x, what, _NAME)
    if str(sf.dtype) not in _SCALES:
        raise refuse(
            "dtype",
            f"{what} of {_NAME} has elements of {sf.dtype}",
            cls=TileTypeError,
            expected=" or ".join(_SCALES),
            got=str(sf.dtype),
        )
    home = memory_of(tile.buffer)
    wanted = {Memory.L0A: Memory.L0A_SCALE, Memory.L0B: Memory.L0B_SCALE}.get(home, Memory.L1)
    if memory_of(sf.buffer) is not wanted:
        raise refuse(
            "scope",
            f"{what} of {_NAME} for a tile in {home.title}",
            expected=wanted.title,
            got=sf.buffer.scope,
            help="T.alloc_l0a_sf and T.alloc_l0b_sf give the handles of tiles in L0A and L0B",
        )
    columns = depth // (SCALED_BY_ONE * sf.dtype.bits // 8)
    if tuple(int_value(e) for e in sf.extents[-2:]) != (rows, columns):
        raise _bad(
            f"{what} of {_NAME} for {rows} rows and K = {depth}",
            f"({rows}, {columns}), a scale for {SCALED_BY_ONE} elements",
            shape_text(sf.extents),
            "slice the scales as their tile is sliced",
        )
    if wanted is not Memory.L1:
        _check_handle(sf, what, tile)
    return sf


def _check_handle(sf: Region, what: str, tile: Region) -> None:
    """The handle belongs to the tile, and both name the same one of several."""

    def binds(s: Any) -> bool:
        return (
            isinstance(s, Annotate)
            and s.kind == "scales_of"
            and s.buffers[0].name == sf.buffer.name
        )

    found = launched(_NAME).newest(binds)
    owner = found.buffers[1].name if isinstance(found, Annotate) else "another tile"
    if owner != tile.buffer.name:
        raise refuse(
            "value",
            f"{what} of {_NAME}: {sf.buffer.name} has the scales of {owner}",
            cls=TileValueError,
            expected=f"those of {tile.buffer.name}",
        )
    if sf.mins[:-2] != tile.mins[:-2] or any(int_value(e) != 0 for e in sf.mins[-2:]):
        raise _bad(
            f"a slice of {sf.buffer.name} as {what} of {_NAME}",
            "the leading indices of its tile, and zero in its last two axes",
        )
