"""What the functions of `T.simd` do with their arguments: registers, predicates, addresses in UB.

What enters: an author's value. What leaves: the operands of a `SimdOp`, which `emit` emits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import TileError, TileTypeError, TileValueError
from tilelang.ir.ascend_simd import MERGED, PREDICATE, SimdOp
from tilelang.ir.build import Builder
from tilelang.ir.expr import AddressOf, Expr
from tilelang.language.arguments import choice, in_memory, known, launched, place, refuse
from tilelang.language.buffers import here
from tilelang.language.values import Value, describe
from tilelang.scopes import Memory

WIDTHS = (8, 16, 32, 64)


def bad(kind: str, message: str, **facts: Any) -> TileError:
    """A ValueError at the author's place."""
    return refuse(kind, message, cls=TileValueError, **facts)


def inside(name: str) -> Builder:
    """The builder, inside a T.SimdVF."""
    what = f"T.simd.{name}"
    builder = launched(what)
    if "simd" not in builder.loops:
        raise refuse("syntax", f"{what} outside T.SimdVF", help="with T.SimdVF():")
    return builder


def vector(x: Any, what: str) -> Expr:
    """A vector register."""
    e = x.expr if isinstance(x, Value) else None
    if e is None or e.dtype.lanes == 1 or e.dtype == PREDICATE:
        raise refuse(
            "dtype",
            f"{what} is {describe(x)}",
            cls=TileTypeError,
            expected="a vector register, such as T.simd.vld gives",
            got=describe(x),
        )
    return e


def predicate(x: Any, what: str) -> Expr:
    """A predicate."""
    e = x.expr if isinstance(x, Value) else None
    if e is None or e.dtype != PREDICATE:
        raise refuse(
            "dtype",
            f"{what} is {describe(x)}",
            cls=TileTypeError,
            expected="a predicate, such as T.simd.pset gives",
            got=describe(x),
        )
    return e


def address(x: Any, what: str) -> AddressOf:
    """An element of UB, by itself or as `T.access_ptr` gives it."""
    e = x.expr if isinstance(x, Value) else None
    buffer, indices = (e.buffer, e.indices) if isinstance(e, AddressOf) else place(x, what)
    in_memory(buffer, what, Memory.UB)
    return AddressOf(buffer, indices, loc=here())


def emit(
    name: str,
    args: Sequence[Expr],
    results: Sequence[DType] = (),
    *,
    footprint: int = 0,
    merges: bool = False,
    **imm: Any,
) -> Any:
    """Emit one operation; its result, or the tuple of its results."""
    builder = inside(name)
    names = [builder.name_hint("v") for _ in results]
    variables = tuple(builder.fresh_var(n, t) for n, t in zip(names, results, strict=True))
    builder.emit(
        SimdOp(
            name,
            tuple(args),
            results=variables,
            footprint=footprint,
            imm=tuple(sorted(imm.items())),
            merges=merges,
            loc=here(),
        )
    )
    builder.define(*variables)
    values = tuple(Value(v) for v in variables)
    return values[0] if len(values) == 1 else values or None


def width_of(dtype: DType) -> int:
    """The bits of the elements that a predicate is meant for."""
    return max(dtype.base.bits, 8)


def full_mask(width: int) -> Expr:
    """The predicate of all elements of `width` bits: the one that is visible here, or a new one."""
    builder = inside("pset")
    wanted = (("dist", "PAT_ALL"), ("width", width))
    known = builder.newest(lambda s: isinstance(s, SimdOp) and s.op == "pset" and s.imm == wanted)
    if isinstance(known, SimdOp):
        return known.results[0]
    mask = builder.fresh_var("mask", PREDICATE)
    builder.emit(SimdOp("pset", (), results=(mask,), imm=wanted, loc=here()))
    builder.define(mask)
    return mask


def mask_of(mask: Any, width: int, name: str) -> Expr:
    """The author's predicate, or that of all elements."""
    if mask is None:
        return full_mask(width)
    return predicate(mask, f"the mask of T.simd.{name}")


def merging(mode: str, name: str) -> bool:
    """Whether inactive elements stay those of the register assigned to; else they become zero."""
    choice(mode, f"the mode of T.simd.{name}", ("MODE_ZEROING", "MODE_MERGING", "MODE_STORED"))
    merges = mode == "MODE_MERGING"
    if merges and name not in MERGED:
        raise refuse(
            "target",
            f"T.simd.{name}(mode='MODE_MERGING'): which elements it keeps is not documented",
            expected=f"one of {', '.join(sorted(MERGED))}",
            help="T.simd.vsel(new, old, mask) keeps elements of `old`",
        )
    return merges


def same(name: str, *vectors: Expr) -> DType:
    """The one type of some registers."""
    kinds = {v.dtype for v in vectors}
    if len(kinds) > 1:
        words = ", ".join(str(v.dtype) for v in vectors)
        raise bad("dtype", f"T.simd.{name} of {words}", expected="registers of one type", got=words)
    return vectors[0].dtype


def operand(name: str) -> str:
    """An operand, in a message."""
    return f"an operand of T.simd.{name}"


def element_width(width: Any, name: str) -> int:
    """The bits of an element."""
    value = known(width, f"the width of T.simd.{name}", 8, 64)
    if value not in WIDTHS:
        raise bad("value", f"the width of T.simd.{name}", expected="8, 16, 32 or 64", got=value)
    return value


HALVES = ("LOWER", "HIGHER")


def part_of(part: Any, name: str, words: Sequence[str]) -> int:
    """Which part of a register is meant, by number or word."""
    if isinstance(part, str):
        return words.index(choice(part, f"the part of T.simd.{name}", words))
    return known(part, f"the part of T.simd.{name}", 0, len(words) - 1)


def of_one(name: str, a: Any, mask: Any, mode: str = "MODE_ZEROING") -> Value:
    """An operation on one register."""
    merges = merging(mode, name)
    x = vector(a, operand(name))
    args = (x, mask_of(mask, width_of(x.dtype), name))
    return emit(name, args, (x.dtype,), merges=merges)


def indices_of(index: Any, name: str) -> Expr:
    """A register of indices."""
    e = vector(index, f"the index of T.simd.{name}")
    if e.dtype.kind not in ("uint", "int"):
        raise bad("dtype", f"the index of T.simd.{name}", expected="integers", got=str(e.dtype))
    return e
