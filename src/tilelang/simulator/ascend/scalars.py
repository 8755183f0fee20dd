"""The text of scalar expressions: what the scalar unit of a core computes.

What enters: expressions of the thread stage. What leaves: Python text. Integers are Python ints
that wrap, bools are bools, floats are NumPy scalars in the storage of their dtype. Accesses to
memory are calls of the core's methods.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.emulator.writer import Writer
from tilelang.errors import error
from tilelang.ir.affine import Analysis
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Call,
    Cast,
    Const,
    Expr,
    Select,
    Unary,
    UnaryOp,
    Var,
    int_value,
)
from tilelang.ir.interval import Interval, limits, span
from tilelang.ir.node import Node
from tilelang.ir.thread import Elem, Space
from tilelang.simulator import values
from tilelang.targets.ascend.rows.numbers import computed

_INT_FUNCTIONS = {BinaryOp.MIN: "min", BinaryOp.MAX: "max"}
_EXACT: dict[BinaryOp, Callable[[int, int], int]] = {
    BinaryOp.ADD: operator.add,
    BinaryOp.SUB: operator.sub,
    BinaryOp.MUL: operator.mul,
}
_GROWING = frozenset(_EXACT)
_ARITHMETIC = frozenset({*_GROWING, BinaryOp.DIV})
_DIVISIONS = {BinaryOp.FLOORDIV: "//", BinaryOp.FLOORMOD: "%"}


class Scalars:
    """The expressions of one program."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.ranges: dict[Var, Interval] = {}
        self.known = Analysis(self.ranges, wraps=True)

    def of(self, e: Expr) -> str:
        """The text of a value."""
        match e:
            case Const():
                out = self.literal(e)
            case Var():
                out = self.name(e.name)
            case Binary():
                out = self.binary(e)
            case Unary():
                out = self.unary(e)
            case Select():
                out = f"({self.of(e.t)} if {self.of(e.cond)} else {self.of(e.f)})"
            case Cast() | Bitcast() | Call():
                out = self.function(e)
            case Elem() if e.type.lanes == 1:
                out = self.element(e)
            case _:
                raise unmodelled(e, type(e).__name__)
        return out

    def name(self, author: str) -> str:
        """The name of a variable or array in the text."""
        return f"v_{author}"

    def literal(self, e: Const) -> str:
        """A literal."""
        if e.type.is_float:
            made = np.asarray(e.value).astype(e.type.numpy)[()]
            return self.writer.constant("c", made, key=(repr(e.value), e.type.name))
        return repr(e.value) if e.value >= 0 else f"({e.value!r})"

    def binary(self, e: Binary) -> str:
        """An operator."""
        a, b, dtype = self.of(e.a), self.of(e.b), e.a.dtype
        if e.op.is_compare or e.op.is_logical:
            truth = f"({a} {e.op.value} {b})"
            return f"bool{truth}" if dtype.is_float else truth
        if dtype.is_float:
            if e.op in _ARITHMETIC and dtype.name in values.NATIVE:
                return f"({a} {e.op.value} {b})"  # NumPy's scalars: rounded once
            return f"{self.float_operator(e.op, dtype)}({a}, {b})"
        return self.int_operator(e, a, b)

    def int_operator(self, e: Binary, a: str, b: str) -> str:
        """An operator of integers."""
        dtype, symbol = e.a.dtype, e.op.value if e.op in values.INFIX else None
        if e.op in _INT_FUNCTIONS:
            return f"{_INT_FUNCTIONS[e.op]}({a}, {b})"
        if e.op in _DIVISIONS and int_value(e.b):
            return f"({a} {_DIVISIONS[e.op]} {b})"
        if symbol is None:
            made = values.binary(e.op, dtype)
            fn = self.writer.constant("op", _as_int(made, dtype), key=(e.op, dtype.name))
            return f"{fn}({a}, {b})"
        if e.op in _GROWING and not self.fits(e):
            return f"{self.wrap(dtype)}({a} {symbol} {b})"
        return f"({a} {symbol} {b})"

    def fits(self, e: Binary) -> bool:
        """Whether a sum, difference or product is known to need no wrapping."""
        a, b = (span(self.known.bounds(x), x.dtype) for x in (e.a, e.b))
        ends = [_EXACT[e.op](x, y) for x in a for y in b]
        low, high = limits(e.a.dtype)
        return low <= min(ends) and max(ends) <= high

    def set_range(self, var: Var, found: Interval) -> None:
        """What a variable can be from here on."""
        if self.ranges.get(var, found) != found or var in self.known.known:
            self.known = Analysis(self.ranges, wraps=True)
        self.ranges[var] = found

    def float_operator(self, op: BinaryOp, dtype: DType) -> str:
        """An operator of floats: computed once in their dtype."""
        plain = values.binary(op, DType("float32") if dtype.bits < DType("float32").bits else dtype)
        storage = dtype.numpy

        def rounded(a: Any, b: Any) -> Any:
            return computed(plain, storage, a, b)[()]

        return self.writer.constant("op", rounded, key=(op, dtype.name))

    def wrap(self, dtype: DType) -> str:
        """The function that wraps an integer to its dtype."""
        low, high, span = int(dtype.min), int(dtype.max), 1 << dtype.bits

        def wrapped(x: int) -> int:
            return x if low <= x <= high else (x - low) % span + low

        return self.writer.constant("wrap", wrapped, key=dtype.name)

    def unary(self, e: Unary) -> str:
        """A sign, a complement, a negation."""
        a = self.of(e.a)
        if e.op is UnaryOp.NOT or e.a.dtype.is_bool:
            return f"(not {a})"
        if e.a.dtype.is_float:
            return f"(-{a})"
        return f"{self.wrap(e.a.dtype)}({'-' if e.op is UnaryOp.NEG else '~'}{a})"

    def function(self, e: Cast | Bitcast | Call) -> str:
        """A conversion, or a function of the table."""
        match e:
            case Cast():
                if e.rounding == "rs":
                    raise unmodelled(e, "stochastic rounding")
                args, made = (e.a,), values.conversion(e)
                key: Any = ("cast", e.a.dtype.name, e.type.name, e.rounding, e.saturate)
            case Bitcast():
                args, made = (e.a,), values.same_bits(e)
                key = ("bits", e.a.dtype.name, e.type.name)
            case Call():
                args, made = e.args, values.pure(e)
                key = ("call", e.fn, e.params, e.type.name, *(a.dtype.name for a in e.args))
        sources = tuple(a.dtype for a in args)
        fn = self.writer.constant("fn", _scalar(made, sources, e.dtype), key=key)
        return f"{fn}({', '.join(self.of(a) for a in args)})"

    def element(self, e: Elem) -> str:
        """One element of an array."""
        array, index = self.name(e.array.name), self.of(e.index)
        if e.array.space in (Space.REGISTER, Space.LOCAL, Space.SHARED):
            return f"{array}[{index}]"
        site = self.writer.constant("at", e.loc, key=("loc", repr(e.loc)))
        return f"core.load({array}, {index}, {site})"


def native(x: Any, dtype: DType) -> Any:
    """A NumPy value as the text has it."""
    if dtype.is_float:
        return np.asarray(x)[()]
    return bool(x) if dtype.is_bool else int(x)


def _scalar(
    made: Callable[..., Any], sources: tuple[DType, ...], dtype: DType
) -> Callable[..., Any]:
    storages = tuple(s.numpy for s in sources)

    def scalar(*args: Any) -> Any:
        given = [np.asarray(a).astype(s)[()] for a, s in zip(args, storages, strict=True)]
        return native(made(*given), dtype)

    return scalar


def _as_int(made: Callable[..., Any], dtype: DType) -> Callable[[int, int], int]:
    storage = dtype.numpy

    def whole(a: int, b: int) -> int:
        x, y = np.asarray(a).astype(storage)[()], np.asarray(b).astype(storage)[()]
        return int(made(x, y))

    return whole


def unmodelled(node: Node, what: str) -> Exception:
    """The error for what this machine's model has no meaning for."""
    return error(
        "target",
        f"the model of an Ascend core does not run {what}",
        node.loc,
        help="target='emulate' runs the tile program itself",
    )
