"""What the printers of AscendC share: places of tensors, scalars, rows, and what a page rules out.

What enters: operands of an instruction. What leaves: their text, or a refusal by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from tilelang.dtypes import DType
from tilelang.ir.expr import Expr, int_value
from tilelang.ir.node import Node
from tilelang.ir.thread import Instr, Slot
from tilelang.targets.ascend.emit.ascendc_helpers import CALLS, SCRATCH
from tilelang.targets.ascend.emit.statements import Statements
from tilelang.targets.ascend.emit.text import type_of, unprintable

if TYPE_CHECKING:
    from tilelang.targets.ascend.emit.ascendc import AscendC

BLOCK = 32
REPEAT = 256

REAL = ("float16", "float32")
ARITHMETIC = (*REAL, "int16", "int32")
SHIFTED = ("int16", "uint16", "int32", "uint32")
BYTES = ("int8", "uint8")
MOVED = ("int16", "uint16", "float16", "bfloat16", "int32", "uint32", "float32")
"""Types of 16 and 32 bits: those of functions that only move elements."""


def at(x: Statements, slot: Slot, more: str = "") -> str:
    """A tensor from the slot's first element on, or from `more` elements behind it."""
    index = x.of(slot.index)
    total = " + ".join(p for p in (index if index != "0" else "", more) if p)
    return f"{slot.array.name}[{total}]" if total else slot.array.name


def values_of(stmt: Instr) -> list[Expr]:
    """The operands that are scalars."""
    return [cast("Expr", e) for e in stmt.ins if not isinstance(e, Slot)]


def scalars(x: Statements, stmt: Instr) -> list[str]:
    """The text of the operands that are scalars."""
    return [x.of(e) for e in values_of(stmt)]


def slots(stmt: Instr) -> list[Slot]:
    """The operands that are read and are elements of arrays."""
    return [e for e in stmt.ins if isinstance(e, Slot)]


def needs(stmt: Instr, dtype: DType, allowed: Sequence[str], what: str) -> None:
    """Refuse a type that the function's page does not have."""
    if str(dtype) not in allowed:
        raise unprintable(stmt, f"{what} of {dtype}")


def need_rows(stmt: Instr, rows: Expr, pitches: Sequence[tuple[Expr, Slot]]) -> None:
    """Refuse rows that do not begin at a block."""
    if int_value(rows) == 1:
        return
    for pitch, slot in pitches:
        step = int_value(pitch)
        if step is not None and step * slot.array.type.bytes % BLOCK:
            raise unprintable(stmt, f"rows of {step} {slot.dtype}, which begin between blocks,")


def typed(x: Statements, stmt: Instr, value: Expr, dtype: DType) -> str:
    """A scalar of exactly the type that the API compares with the tensor's."""
    text = x.of(value)
    cast_to = f"({type_of(dtype, stmt)})"
    plain = str(dtype) in ("float32", "int32") and value.dtype == dtype
    return text if plain or text.startswith(cast_to) else cast_to + text


def by_row(x: Statements, rows: Expr, call: Sequence[str]) -> None:
    """Calls for each row; `row` counts them."""
    if int_value(rows) == 1:
        for line in call:
            x.text.line(line)
        return
    with x.text.inside(f"for (int32_t row = 0; row < {x.of(rows)}; ++row)"):
        for line in call:
            x.text.line(line)


def row_of(x: Statements, slot: Slot, rows: Expr, pitch: Expr) -> str:
    """The slot's row in `by_row`."""
    still = int_value(rows) == 1 or int_value(pitch) == 0
    return at(x, slot, "" if still else f"row * {x.of(pitch)}")


def kernel_of(x: Statements) -> AscendC:
    """The printer of the kernel, which is what the rows of A2 and A3 are given."""
    return cast("AscendC", x)


def helper(x: Statements, stmt: Node, name: str, size: int = 0) -> tuple[str, str]:
    """A function of ours by name, and the argument that is its place for temporaries of `size`
    bytes, by default those of the table.
    """
    for called in CALLS.get(name, ()):
        helper(x, stmt, called)
    size = size or SCRATCH.get(name, 0)
    return x.text.helper(name), f"{kernel_of(x).scratch(size, stmt)}, " if size else ""
