"""Scalar expressions of the thread stage as LLVM values.

What enters: an expression, and the values of the names in it. What leaves: a value in the current
block. A `Select` that is lazy becomes a branch, so that the arm not taken reads nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.dtypes.storage import to_bits
from tilelang.errors import InternalError
from tilelang.ir.expr import (
    Binary,
    Bitcast,
    Call,
    Cast,
    Const,
    Expr,
    Lane,
    Pack,
    Select,
    Unary,
    Var,
)
from tilelang.ir.thread import Addr, Elem
from tilelang.targets.cpu.casts import convert
from tilelang.targets.cpu.maths import function
from tilelang.targets.cpu.operators import binary, bitcast, unary
from tilelang.targets.cpu.places import Memory, Place
from tilelang.targets.cpu.text import Code, Value, element_of, lanes_of, number
from tilelang.targets.cpu.types import value_type

Marks = list[dict[int, Value]]


class Expressions:
    """The expressions of one function, and the names that it has seen so far."""

    def __init__(self, code: Code, memory: Memory) -> None:
        self.code = code
        self.memory = memory
        self.vars: dict[str, Value] = {}
        self.places: dict[str, Place] = {}
        self._known: dict[int, Value] = {}
        self._rules: dict[type[Expr], Callable[[Any], Value]] = {
            Const: constant,
            Var: self._var,
            Binary: self._binary,
            Unary: self._unary,
            Cast: self._cast,
            Bitcast: self._bitcast,
            Call: self._call,
            Select: self._select,
            Pack: self._pack,
            Lane: self._lane,
            Elem: self._elem,
            Addr: self._address,
        }

    def begin(self) -> None:
        """A new statement: what memory held before may have changed."""
        self._known.clear()

    def mark(self) -> Marks:
        """What is known here; what is made from here on may not be known elsewhere."""
        return [dict(self._known)]

    def back(self, marks: Marks) -> None:
        """Only what was known at the mark is."""
        self._known = dict(marks[0])

    def of(self, e: Expr) -> Value:
        """The value of an expression. An operand that occurs twice in a statement is made once."""
        found = self._known.get(id(e))
        if found is None:
            found = self._known[id(e)] = self._rules[type(e)](e)
        return found

    def index(self, e: Expr) -> Value:
        """An index for an address: signed, so an unsigned one is widened first."""
        value = self.of(e)
        if e.dtype.is_uint and e.dtype.bits < 64:
            return self.code.cast("zext", value, "i64")
        return value

    def place(self, name: str) -> Place:
        """Where an array lies."""
        return self.places[name]

    def together(self, *values: Value) -> list[Value]:
        """The values with equally many lanes: a scalar beside vectors is repeated."""
        lanes = max((lanes_of(v.type) for v in values), default=1)
        return [v if lanes_of(v.type) == lanes else self.code.splat(v, lanes) for v in values]

    # A rule for each kind of node -----------------------------------------------------------------

    def _var(self, e: Var) -> Value:
        return self.vars[e.name]

    def _binary(self, e: Binary) -> Value:
        a, b = self.together(self.of(e.a), self.of(e.b))
        return binary(self.code, e.op, a, b, e.a.dtype)

    def _unary(self, e: Unary) -> Value:
        return unary(self.code, e.op, self.of(e.a), e.a.dtype)

    def _cast(self, e: Cast) -> Value:
        rbits = None if e.rbits is None else self.of(e.rbits)
        return convert(
            self.code, self.of(e.a), e.a.dtype, e.type, e.rounding, e.saturate, rbits=rbits
        )

    def _bitcast(self, e: Bitcast) -> Value:
        value = self.of(e.a)
        lanes = lanes_of(value.type)
        strip = lanes // e.a.dtype.lanes
        to = e.type.base.with_lanes(e.type.lanes * strip)
        return bitcast(self.code, value, e.a.dtype.base.with_lanes(lanes), to)

    def _call(self, e: Call) -> Value:
        dtype = e.args[0].dtype if e.args else e.type
        args = self.together(*(self.of(a) for a in e.args))
        return function(self.code, e.fn, args, dtype, e.params)

    def _elem(self, e: Elem) -> Value:
        return self.memory.read(self.place(e.array.name), self.index(e.index), e.type)

    def _lane(self, e: Lane) -> Value:
        return self.code.extract(self.of(e.a), e.lane)

    def _select(self, e: Select) -> Value:
        cond = self.of(e.cond)
        if e.lazy:
            return self._branches(cond, e)
        return self.code.select(cond, self.of(e.t), self.of(e.f))

    def _address(self, e: Addr) -> Value:
        if e.type.bits != 64:
            raise InternalError(f"an address of {e.type}: {e.array.name}")
        at = self.memory.address(self.place(e.array.name), self.index(e.index))
        return self.code.cast("ptrtoint", at, "i64")

    def _pack(self, e: Pack) -> Value:
        parts = [self.of(x) for x in e.lanes]
        if len(parts) == 1:
            return self.code.splat(parts[0], e.type.lanes)
        out = Value(value_type(e.dtype), "poison")
        for k, part in enumerate(parts):
            out = self.code.insert(out, part, k)
        return out

    def _branches(self, cond: Value, e: Select) -> Value:
        """Only the arm taken is evaluated; what it makes is not known outside of it."""
        code, kind = self.code, self._arm_type(e)
        result = code.alloca(kind)
        yes, no, after = code.label("yes"), code.label("no"), code.label("after")
        before = self.mark()
        code.branch(cond, yes, no)
        for label, arm in ((yes, e.t), (no, e.f)):
            code.place(label)
            code.store(self._arm(arm), result)
            code.jump(after)
            self.back(before)
        code.place(after)
        return code.load(kind, result)

    def _arm(self, e: Expr) -> Value:
        return self.of(e)

    def _arm_type(self, e: Select) -> str:
        return value_type(e.dtype)


def constant(e: Const) -> Value:
    """A literal. Narrow floats are the integers of their bits."""
    kind = value_type(e.dtype)
    scalar = e.type.base
    if scalar.is_float and element_of(kind) not in ("float", "double"):
        return number(kind, bits_of(e.value, scalar))
    if scalar.is_subbyte and not scalar.is_float:
        return number(kind, int(e.value) & ((1 << scalar.bits) - 1))
    return number(kind, e.value)


def bits_of(value: float, dtype: DType) -> int:
    """The bits of a number of a float type; it is exact, or NaN or infinite."""
    with np.errstate(all="ignore"):
        word: Any = to_bits(np.array(value, np.float64).astype(dtype.numpy), dtype)
    return int(word)
