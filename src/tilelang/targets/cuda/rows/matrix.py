"""Rows of matrix products by a warp (mma.sync), and of the loads and stores of their fragments.

What leaves: `MATRIX`. In a meaning, operands in registers have the shape (32, elements of a lane),
and an operand in memory the shape (32, elements that a lane's address names).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.dtypes import DType
from tilelang.dtypes.convert import converter
from tilelang.isa.instr import Immediate, InstrRow
from tilelang.isa.target import Capability
from tilelang.targets.cuda.rows.build import REGISTER, R, U, W, ptx, registers, slot
from tilelang.targets.cuda.rows.fragments import fragment_a, fragment_b, fragment_d, matrix_8x8

Values = npt.NDArray[Any]

DTYPES: dict[str, tuple[str, ...]] = {
    "f16": ("float16",),
    "bf16": ("bfloat16",),
    "tf32": ("float32", "tfloat32"),
    "f32": ("float32",),
    "f64": ("float64",),
    "e4m3": ("float8_e4m3fn", "float8_e4m3"),
    "e5m2": ("float8_e5m2",),
    "s8": ("int8",),
    "u8": ("uint8",),
    "s32": ("int32",),
}
"""PTX's name of an element type -> the dtypes that an operand of it has."""


def widened(x: Values, name: str) -> Values:
    """Elements of the PTX type `name` as float64 (int64 for integers); tf32 ignores low bits."""
    if name == "tf32":
        x = (np.asarray(x, np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    wide = "int64" if name in ("s8", "u8", "s32") else "float64"
    return converter(DType(DTYPES[name][0]), DType(wide))(x)


def narrowed(x: Values, name: str) -> Values:
    """float64 (int64) values as elements of the PTX type `name`."""
    wide = "int64" if name == "s32" else "float64"
    return converter(DType(wide), DType(DTYPES[name][0]))(x)


# mma.sync -----------------------------------------------------------------------------------------


def _mma(
    d: Values,
    a: Values,
    b: Values,
    *,
    shape: tuple[int, int, int],
    types: tuple[str, ...],
    **_: Any,
) -> tuple[()]:
    m, n, k = shape
    td, ta, tb = types
    bits = DType(DTYPES[ta][0]).bits
    wide = np.int64 if td == "s32" else np.float64
    left, right, sums = np.zeros((m, k), wide), np.zeros((k, n), wide), np.zeros((m, n), wide)
    left[fragment_a(m, k, bits)] = widened(a, ta)
    right[fragment_b(n, k, bits)] = widened(b, tb)
    place = fragment_d(m, n)
    sums[place] = widened(d, td)
    d[...] = narrowed((sums + left @ right)[place], td)
    return ()


def _product(shape: tuple[int, int, int], td: str, ta: str, tb: str, needs: Capability) -> InstrRow:
    m, n, k = shape
    name = f"m{m}n{n}k{k}"
    return ptx(
        f"mma.{name}.{td}.{ta}.{tb}.{td}",
        "mma",
        f"mma.sync.aligned.{name}.row.col.{td}.{ta}.{tb}.{td} {{d}}, {{a}}, {{b}}, {{d}};",
        needs,
        threads=32,
        outs=(registers("d", U, m * n // 32, *DTYPES[td]),),
        ins=(
            registers("a", R, m * k // 32, *DTYPES[ta]),
            registers("b", R, n * k // 32, *DTYPES[tb]),
        ),
        meaning=partial(_mma, shape=shape, types=(td, ta, tb)),
    )


_F8 = ("e4m3", "e5m2")
_SHAPES: tuple[tuple[tuple[str, str, str], tuple[tuple[int, int, int], ...], Capability], ...] = (
    (("f32", "f16", "f16"), ((16, 8, 8), (16, 8, 16)), Capability.MMA_SYNC),
    (("f16", "f16", "f16"), ((16, 8, 8), (16, 8, 16)), Capability.MMA_SYNC),
    (("f32", "bf16", "bf16"), ((16, 8, 8), (16, 8, 16)), Capability.MMA_SYNC),
    (("f32", "tf32", "tf32"), ((16, 8, 4), (16, 8, 8)), Capability.MMA_SYNC),
    (("f64", "f64", "f64"), ((8, 8, 4),), Capability.MMA_SYNC),
    (("f64", "f64", "f64"), ((16, 8, 4), (16, 8, 8), (16, 8, 16)), Capability.CLUSTER),
    *(
        (("s32", a, b), ((16, 8, 16), (16, 8, 32)), Capability.MMA_SYNC)
        for a in ("s8", "u8")
        for b in ("s8", "u8")
    ),
    *((("f32", a, b), ((16, 8, 32),), Capability.FP8) for a in _F8 for b in _F8),
)
"""(types of d, a, b), shapes, the capability. The f64 shapes of 16 rows came with sm_90."""

MMA = [_product(shape, *types, needs) for types, shapes, needs in _SHAPES for shape in shapes]
"""`d = d + a @ b`; a (m, k) row-major, b (k, n) column-major, d (m, n), as `fragments` says."""

# ldmatrix, stmatrix -------------------------------------------------------------------------------


def _transposed(part: Values) -> Values:
    """Eight rows of eight 16-bit parts, with rows and parts changed over."""
    halves = np.ascontiguousarray(part).view(np.uint16).reshape(8, 8)
    return np.ascontiguousarray(halves.T).view(part.dtype)


def _ldmatrix(regs: Values, row: Values, *, trans: bool, count: int, **_: Any) -> tuple[()]:
    per = regs.shape[1] // count
    bits = 32 // per
    place, element = matrix_8x8(bits)
    for n in range(count):
        part = row[8 * n : 8 * n + 8]
        if trans:
            part = _transposed(part)
        regs[:, n * per : (n + 1) * per] = part[place, element]
    return ()


def _stmatrix(row: Values, regs: Values, *, trans: bool, count: int, **_: Any) -> tuple[()]:
    per = regs.shape[1] // count
    place, element = matrix_8x8(32 // per)
    for n in range(count):
        part = np.empty((8, row.shape[1]), regs.dtype)
        part[place, element] = regs[:, n * per : (n + 1) * per]
        if trans:
            part = _transposed(part)
        row[8 * n : 8 * n + 8] = part
    return ()


def _fragments(count: int) -> Iterator[InstrRow]:
    regs = 32 * count
    trans = (Immediate("trans", bool),)
    yield ptx(
        f"ldmatrix.x{count}.b16",
        "ldmatrix",
        f"ldmatrix.sync.aligned.m8n8.x{count}{{trans:.trans|}}.shared.b16 {{regs}}, [{{row}}];",
        Capability.MMA_SYNC,
        threads=32,
        outs=(slot("regs", W, REGISTER, bits=regs),),
        ins=(slot("row", R, align=16, bits=128, like="regs"),),
        imm=trans,
        meaning=partial(_ldmatrix, count=count),
    )
    yield ptx(
        f"stmatrix.x{count}.b16",
        "stmatrix",
        f"stmatrix.sync.aligned.m8n8.x{count}{{trans:.trans|}}.shared.b16 [{{row}}], {{regs}};",
        Capability.CLUSTER,
        threads=32,
        outs=(slot("row", W, align=16, bits=128),),
        ins=(slot("regs", R, REGISTER, bits=regs, like="row"),),
        imm=trans,
        meaning=partial(_stmatrix, count=count),
    )


FRAGMENTS = [row for count in (1, 2, 4) for row in _fragments(count)]
"""Lane 8 n + r gives the address of row r (16 bytes) of matrix n; the addresses of other lanes are
not used. Each lane gets 32 bits of each matrix: `fragments.matrix_8x8`. Elements of any size, but
with `trans` what changes places are parts of 16 bits.
"""
