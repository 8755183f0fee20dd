"""Scalar statements of a kernel and of its functions: names, loops, branches, elements.

What enters: statements of the thread stage. What leaves: lines of a `Text`. Instructions are
printed by the table of the chip, `rows`, which each statement of that kind is handed to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilelang.ir.bounds import bounds
from tilelang.ir.expr import Const, Expr, Var, int_value
from tilelang.ir.interval import interval
from tilelang.ir.thread import Array, Declare, Instr, Slot, Space, Write
from tilelang.ir.tile import (
    Assert,
    Assume,
    Block,
    Break,
    Continue,
    For,
    If,
    Let,
    LoopKind,
    Stmt,
    ThreadReturn,
    While,
)
from tilelang.passes.ascend.lower_scales import SLOT_SHARE
from tilelang.targets.ascend.emit.text import QUALIFIERS, SLOTS, Text, type_of, unprintable

Printer = Callable[["Statements", Instr], None]


def cut(*sizes: tuple[str, str]) -> str:
    """The condition that less is there than a tile has; `sizes` are pairs of both."""
    return " || ".join(f"{there} < {full}" for there, full in sizes if there != full) or "false"


# Drains of L0C multiply by a float of which the chips take 10 bits of mantissa; bit 46 says that
# results have a sign (CANN asc-devkit, QUANT_PRE of 2201 and 3510).
_DROPPED = (1 << 13) - 1
_SIGNED = 1 << 46


def quantiser(scale: Expr, *, signed: bool) -> int | None:
    """The word by which a drain multiplies, None for a factor that it cannot have."""
    factor = scale.value if isinstance(scale, Const) else None
    word = None if factor is None else int(np.array(factor, np.float32).view(np.uint32))
    return None if word is None or word & _DROPPED else word | (_SIGNED if signed else 0)


class Statements:
    """Prints statements into `text`; `rows` has a printer for each instruction."""

    def __init__(self, text: Text, rows: Mapping[str, Printer]) -> None:
        self.text = text
        self.rows = rows

    def block(self, body: Block) -> None:
        """Statements in order."""
        for stmt in body:
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        """One statement."""
        rule = _RULES.get(type(stmt))
        if rule is None:
            raise unprintable(stmt, f"statements of the kind {type(stmt).__name__}")
        rule(self, stmt)

    def of(self, e: Any) -> str:
        """The text of an operand that is a value."""
        if not isinstance(e, Expr):
            raise unprintable(e, "operands of this kind")
        return self.text.of(e)

    def instruction(self, stmt: Instr) -> None:
        """An instruction, by the table of the chip."""
        printer = self.rows.get(stmt.row)
        if printer is None:
            raise unprintable(stmt, f"instructions {stmt.row}")
        printer(self, stmt)

    def let(self, stmt: Let) -> None:
        """A name."""
        known = bounds(stmt.value, self.text.ranges)
        self.text.line(f"{type_of(stmt.var.type, stmt)} {stmt.var.name} = {self.of(stmt.value)};")
        self.text.ranges[stmt.var] = known

    def declare(self, stmt: Declare) -> None:
        """Storage: registers, or a pointer to bytes of a core's memory."""
        array = stmt.array
        element = type_of(array.type, stmt)
        if array.space in (Space.REGISTER, Space.LOCAL):
            size = int_value(array.size) if array.size is not None else None
            init = f" = {{{self.of(stmt.init)}}}" if stmt.init is not None else ""
            self.text.line(f"{element} {array.name}[{size}]{init};")
            return
        if array.space in SLOTS:
            tile = f"({QUALIFIERS[SLOTS[array.space]]}uint8_t *){(stmt.offset or 0) * SLOT_SHARE}"
            self.text.line(f"uint64_t {array.name} = (uint64_t)(uintptr_t){tile} / {SLOT_SHARE};")
            return
        pointer = f"{QUALIFIERS[array.space]}{element}*"
        self.text.line(f"{pointer} {array.name} = ({pointer}){stmt.offset or 0};")

    def write(self, stmt: Write) -> None:
        """One element."""
        if stmt.value.dtype.lanes != 1:
            raise unprintable(stmt, f"stores of {stmt.value.dtype}")
        place = f"{stmt.array.name}[{self.of(stmt.index)}]"
        self.text.line(f"{place} = {self.of(stmt.value)};")

    def loop(self, stmt: For) -> None:
        """A counted loop."""
        var = stmt.var
        step = 1 if stmt.step is None else int_value(stmt.step) or 1
        low, high = (bounds(e, self.text.ranges) for e in (stmt.start, stmt.stop))
        last = None if high.hi is None else high.hi - 1
        self.text.ranges[var] = interval(low.lo, last) if step > 0 else interval(None, low.hi)
        if stmt.kind in (LoopKind.UNROLL, LoopKind.VECTORIZED):
            self.text.line("#pragma unroll")
        name, sign = var.name, "<" if step > 0 else ">"
        move = f"++{name}" if step == 1 else f"{name} += {step}"
        head = (
            f"for ({type_of(var.type, stmt)} {name} = {self.of(stmt.start)};"
            f" {name} {sign} {self.of(stmt.stop)}; {move})"
        )
        with self.text.inside(head):
            self.block(stmt.body)

    def branch(self, stmt: If) -> None:
        """A condition."""
        tail = "} else {" if stmt.orelse else "}"
        with self.text.inside(f"if ({self.of(stmt.cond)})", tail):
            self.block(stmt.then)
        if stmt.orelse:
            self.text.depth += 1
            self.block(stmt.orelse)
            self.text.depth -= 1
            self.text.line("}")

    def repeat(self, stmt: While) -> None:
        """A loop with a condition."""
        with self.text.inside(f"while ({self.of(stmt.cond)})"):
            self.block(stmt.body)

    def word(self, stmt: Stmt) -> None:
        """A jump."""
        words: dict[type[Stmt], str] = {
            Break: "break;",
            Continue: "continue;",
            ThreadReturn: "return;",
        }
        self.text.line(words[type(stmt)])

    def nothing(self, stmt: Stmt) -> None:
        """What the source need not say."""


def parameter(node: Array | Var, at: Stmt) -> str:
    """A parameter of a function."""
    if isinstance(node, Var):
        return f"{type_of(node.type, at)} {node.name}"
    return f"{QUALIFIERS[node.space]}{type_of(node.type, at)}* {node.name}"


def pointer(x: Statements, slot: Slot, element: str = "") -> str:
    """The address of an element, as one of `element`s if it is given."""
    place = x.text.place(slot.array, slot.index)
    return f"({QUALIFIERS[slot.array.space]}{element}*){place}" if element else place


def _assertion(x: Statements, stmt: Assert) -> None:
    """The author's; those of the compiler are for the simulator."""
    if not stmt.kind:
        x.text.line(f"assert({x.of(stmt.cond)});")


_RULES: dict[type[Stmt], Callable[[Statements, Any], None]] = {
    Let: Statements.let,
    Declare: lambda x, stmt: x.declare(stmt),
    Write: lambda x, stmt: x.write(stmt),
    For: lambda x, stmt: x.loop(stmt),
    If: Statements.branch,
    While: Statements.repeat,
    Break: Statements.word,
    Continue: Statements.word,
    ThreadReturn: Statements.word,
    Assume: Statements.nothing,
    Assert: _assertion,
    Instr: lambda x, stmt: x.instruction(stmt),
}
