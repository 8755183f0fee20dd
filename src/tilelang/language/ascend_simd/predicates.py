"""`T.simd`: predicates, one bit for each byte of a register."""

from __future__ import annotations

from typing import Any

from tilelang.dtypes import DType
from tilelang.ir.ascend_simd import PREDICATE
from tilelang.language.arguments import choice, number
from tilelang.language.ascend_simd.common import (
    HALVES,
    address,
    element_width,
    emit,
    operand,
    part_of,
    predicate,
)
from tilelang.language.values import Value

_COUNTS = (1, 2, 3, 4, 8, 16, 32, 64, 128)
PATTERNS = (
    *("PAT_ALL", "PAT_ALLF", "PAT_H", "PAT_Q", "PAT_M3", "PAT_M4"),
    *(f"PAT_VL{n}" for n in _COUNTS),
)
"""All, none, half, a quarter, every third, every fourth, the first n (CANN `Pat`)."""


def pset(elem_width: int, dist: str = "PAT_ALL") -> Value:
    """The elements of `elem_width` bits that a pattern names."""
    width = element_width(elem_width, "pset")
    word = choice(dist, "the dist of T.simd.pset", PATTERNS)
    return emit("pset", (), (PREDICATE,), width=width, dist=word)


def pge(elem_width: int, dist: str = "PAT_ALL") -> Value:
    """The first elements, as many as a pattern names."""
    width = element_width(elem_width, "pge")
    word = choice(dist, "the dist of T.simd.pge", PATTERNS)
    return emit("pge", (), (PREDICATE,), width=width, dist=word)


def update_mask(value: Any, width: int = 32) -> Value:
    """The first `value` elements of `width` bits."""
    count = number(value, "the count of T.simd.update_mask", DType("uint32"))
    wide = element_width(width, "update_mask")
    return emit("update_mask", (count,), (PREDICATE,), width=wide)


def _three(name: str, a: Any, b: Any, mask: Any) -> Value:
    args = [predicate(x, operand(name)) for x in (a, b, mask)]
    return emit(name, args, (PREDICATE,))


def pand(src0: Any, src1: Any, mask: Any) -> Value:
    """Both, where the mask is set."""
    return _three("pand", src0, src1, mask)


def por(src0: Any, src1: Any, mask: Any) -> Value:
    """Either, where the mask is set."""
    return _three("por", src0, src1, mask)


def pxor(src0: Any, src1: Any, mask: Any) -> Value:
    """One of the two, where the mask is set."""
    return _three("pxor", src0, src1, mask)


def psel(src0: Any, src1: Any, mask: Any) -> Value:
    """The first where the mask is set, else the second."""
    return _three("psel", src0, src1, mask)


def pnot(src: Any, mask: Any) -> Value:
    """The complement, where the mask is set."""
    args = [predicate(x, operand("pnot")) for x in (src, mask)]
    return emit("pnot", args, (PREDICATE,))


def ppack(src: Any, part: Any = 0) -> Value:
    """Every second bit, packed into the lower (0) or higher (1) half; the rest is zero."""
    args = (predicate(src, operand("ppack")),)
    return emit("ppack", args, (PREDICATE,), part=part_of(part, "ppack", HALVES))


def punpack(src: Any, part: Any = 0) -> Value:
    """The bits of the lower (0) or higher (1) half, each followed by a zero."""
    args = (predicate(src, operand("punpack")),)
    return emit("punpack", args, (PREDICATE,), part=part_of(part, "punpack", HALVES))


def pintlv(src0: Any, src1: Any, width: int = 32) -> tuple[Value, Value]:
    """The elements of two predicates, alternating: the first and the second half of them."""
    args = [predicate(x, operand("pintlv")) for x in (src0, src1)]
    return emit("pintlv", args, (PREDICATE,) * 2, width=element_width(width, "pintlv"))


def pdintlv(src0: Any, src1: Any, width: int = 32) -> tuple[Value, Value]:
    """The even and the odd elements of two predicates."""
    args = [predicate(x, operand("pdintlv")) for x in (src0, src1)]
    return emit("pdintlv", args, (PREDICATE,) * 2, width=element_width(width, "pdintlv"))


# Bytes of UB that a predicate is read from or written into.
_LOADED = {"NORM": 32, "US": 16, "DS": 64}
_STORED = {"NORM": 32, "PK": 16}


def pld(addr: Any, dist: str = "NORM") -> Value:
    """A predicate from UB: its 256 bits (NORM), 128 of which each counts twice (US), or every
    second of 512 (DS).
    """
    word = choice(dist, "the dist of T.simd.pld", _LOADED)
    at = address(addr, "the address of T.simd.pld")
    count = _elements(_LOADED[word], at.buffer.dtype)
    return emit("pld", (at,), (PREDICATE,), footprint=count, dist=word)


def pst(addr: Any, src: Any, dist: str = "NORM") -> None:
    """A predicate into UB: its 256 bits (NORM), or every second of them (PK)."""
    word = choice(dist, "the dist of T.simd.pst", _STORED)
    at = address(addr, "the address of T.simd.pst")
    count = _elements(_STORED[word], at.buffer.dtype)
    emit("pst", (at, predicate(src, operand("pst"))), footprint=count, dist=word)


def _elements(size: int, dtype: DType) -> int:
    """Elements that take some bytes, rounded up."""
    return -(-size // max(dtype.bytes, 1))
