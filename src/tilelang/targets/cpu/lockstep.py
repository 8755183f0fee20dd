"""Which loops in lockstep become vector code, and how wide it is.

What enters: a `For` of kind VECTORIZED. What leaves: a `Plan`, or None for a loop that is left to
LLVM's own vectoriser: one with control flow that differs between iterations, or with more than
straight-line code.

The *stride* of an integer is by how much it grows from one iteration to the next: 0 for a value
that is the same in all of them, None where it is not constant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Call,
    Cast,
    Expr,
    Lane,
    Pack,
    Select,
    Var,
    int_value,
)
from tilelang.ir.thread import Addr, Declare, Elem, Space, Write
from tilelang.ir.tile import Assume, Block, For, If, Let, Stmt
from tilelang.targets.cpu.llvm import Host

MOST_LANES = 64
"""Beyond this, the time to compile grows more than the speed of the code."""


@dataclass(frozen=True)
class Plan:
    """`lanes` iterations fill a vector register; a strip is `strip` iterations, some registers."""

    lanes: int
    strip: int


@dataclass
class Strides:
    """The strides of the names that a loop defines; names from outside are the same everywhere."""

    of_name: dict[str, int | None] = field(default_factory=dict[str, int | None])
    private: set[str] = field(default_factory=set[str])

    def of(self, e: Expr) -> int | None:
        """The stride of a value. Of values other than integers only 0 and None mean something."""
        match e:
            case Var():
                return self.of_name.get(e.name, 0)
            case Elem():
                return 0 if e.array.name not in self.private and self.of(e.index) == 0 else None
            case Addr():
                return 0 if self.of(e.index) == 0 else None
            case Cast() if _counts(e) and _counts(e.a):
                return self.of(e.a)
            case Binary() if _counts(e):
                return self._combined(e, self.of(e.a), self.of(e.b))
            case _:
                inner = [self.of(c) for c in _operands(e)]
                return 0 if all(s == 0 for s in inner) else None

    def _combined(self, e: Binary, a: int | None, b: int | None) -> int | None:
        if a is None or b is None or (a == 0 and b == 0):
            return None if a is None or b is None else 0
        factor_a, factor_b = int_value(e.b), int_value(e.a)
        match e.op:
            case BinaryOp.ADD:
                return a + b
            case BinaryOp.SUB:
                return a - b
            case BinaryOp.MUL if factor_a is not None:
                return a * factor_a
            case BinaryOp.MUL if factor_b is not None:
                return b * factor_b
            case _:
                return None


def _counts(e: Expr) -> bool:
    """A signed integer, whose arithmetic does not wrap in an index (see `passes/accesses.py`)."""
    return e.dtype.is_int and e.dtype.bits >= 32


def _operands(e: Expr) -> Iterator[Expr]:
    return (c for c in e.children() if isinstance(c, Expr))


def plan(loop: For, host: Host) -> Plan | None:
    """How a loop becomes vector code, None if it does not."""
    if not loop.var.dtype.is_int or (loop.step is not None and int_value(loop.step) != 1):
        return None
    look = _Look()
    look.strides.of_name[loop.var.name] = 1
    if not look.block(loop.body):
        return None
    lanes = min(host.lanes(max(look.bits, 8)), MOST_LANES)
    if lanes < 2:
        return None
    several = 1 if look.scattered else 2 if look.maths else 4
    return Plan(lanes, min(lanes * several, MOST_LANES))


class _Look:
    """What a body contains."""

    def __init__(self) -> None:
        self.strides = Strides()
        self.bits = 0
        self.maths = False
        self.scattered = False

    def block(self, body: Block) -> bool:
        """Whether all statements can be done on vectors."""
        return all(self.statement(s) for s in body)

    def statement(self, stmt: Stmt) -> bool:
        """Whether a statement can be done on vectors."""
        match stmt:
            case Let():
                stride = self.strides.of(stmt.value)
                fine = self.value(stmt.value, index=stride is not None and _counts(stmt.value))
                self.strides.of_name[stmt.var.name] = stride
                return fine
            case Write():
                self.neighbours(stmt.index)
                private = stmt.array.name in self.strides.private
                apart = private or stmt.array.space is not Space.REGISTER
                return apart and self.index(stmt.index) and self.value(stmt.value)
            case Declare():
                self.strides.private.add(stmt.array.name)
                single = stmt.array.space is Space.REGISTER
                return single and (stmt.init is None or self.value(stmt.init))
            case If():
                uniform = self.strides.of(stmt.cond) == 0 and self.index(stmt.cond)
                return uniform and self.block(stmt.then) and self.block(stmt.orelse)
            case Assume():
                return True
            case _:
                return False

    def neighbours(self, index: Expr) -> None:
        """Take note of an access lane by lane."""
        self.scattered |= self.strides.of(index) not in (0, 1)

    def index(self, e: Expr) -> bool:
        """Whether an index can be done; it decides nothing about the width."""
        return self.value(e, index=True)

    def value(self, e: Expr, *, index: bool = False) -> bool:
        """Whether an expression can be done on vectors, and how wide its values are."""
        if e.dtype.lanes > 1 or isinstance(e, (Lane, Pack, Addr)):
            return False
        if isinstance(e, Elem):
            self.neighbours(e.index)
            self.widen(e, index)
            return self.index(e.index)
        if isinstance(e, Select) and e.lazy and self.strides.of(e.cond) != 0 and _reads(e):
            return False
        self.maths |= isinstance(e, Call)
        if not isinstance(e, Var) or self.strides.of(e) is None:
            self.widen(e, index)
        return all(self.value(c, index=index) for c in _operands(e))

    def widen(self, e: Expr, index: bool) -> None:
        """Take the width of a value into account; bools are as wide as what they were made from."""
        if not index and not e.dtype.is_bool:
            self.bits = max(self.bits, 8 * e.dtype.numpy.itemsize)


def _reads(e: Select) -> bool:
    return any(isinstance(n, Elem) for arm in (e.t, e.f) for n in arm.walk())
