"""The text of scalar expressions: what the scalar unit of a core computes.

What enters: expressions of the thread stage. What leaves: Python text. Integers are Python ints
that wrap, bools are bools, floats are NumPy scalars in the storage of their dtype. Accesses to
memory are calls of the core's methods.

The same text runs for one block, and for several at once (`abreast`), where a value that is not the
same in all of them is an array. Expressions with such values are written by functions that take
either; `Levels` says which these are.
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
from tilelang.simulator.ascend.levels import Level, Levels, least, most, pick, wrapped_lanes
from tilelang.targets.ascend.rows.numbers import computed

_INT_FUNCTIONS = {BinaryOp.MIN: "min", BinaryOp.MAX: "max"}
_LOGICAL = {BinaryOp.AND: "np.logical_and", BinaryOp.OR: "np.logical_or"}
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
        self.levels = Levels()
        writer.define(_pick=pick, _least=least, _most=most)

    def varies(self, *es: Expr) -> bool:
        """Whether one of these may be an array of lanes."""
        return any(self.levels.of(e) is not Level.SAME for e in es)

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
                out = self.select(e)
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
            if e.op in _LOGICAL and self.varies(e.a, e.b) and not _reads(e.b, e.a):
                return f"{_LOGICAL[e.op]}({a}, {b})"
            truth = f"({a} {e.op.value} {b})"
            return f"bool{truth}" if dtype.is_float and not self.varies(e.a, e.b) else truth
        if dtype.is_float:
            if e.op in _ARITHMETIC and dtype.name in values.NATIVE:
                return f"({a} {e.op.value} {b})"  # NumPy's scalars: rounded once
            return f"{self.float_operator(e.op, dtype)}({a}, {b})"
        return self.int_operator(e, a, b)

    def int_operator(self, e: Binary, a: str, b: str) -> str:
        """An operator of integers."""
        dtype, symbol = e.a.dtype, e.op.value if e.op in values.INFIX else None
        if e.op in _INT_FUNCTIONS:
            name = _INT_FUNCTIONS[e.op]
            lanes = "_least" if e.op is BinaryOp.MIN else "_most"
            return f"{lanes if self.varies(e) else name}({a}, {b})"
        if e.op in _DIVISIONS and int_value(e.b):
            return f"({a} {_DIVISIONS[e.op]} {b})"
        if symbol is None:
            made = values.binary(e.op, dtype)
            fn = self.writer.constant("op", _as_int(made, dtype), key=(e.op, dtype.name))
            return f"{fn}({a}, {b})"
        if e.op in _GROWING and not self.fits(e):
            return f"{self.wrap(dtype, lanes=self.varies(e))}({a} {symbol} {b})"
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

    def wrap(self, dtype: DType, *, lanes: bool = False) -> str:
        """The function that wraps an integer to its dtype."""
        if lanes:
            return self.writer.constant("wrap", wrapped_lanes(dtype), key=(dtype.name, lanes))
        low, high, span = int(dtype.min), int(dtype.max), 1 << dtype.bits

        def wrapped(x: int) -> int:
            return x if low <= x <= high else (x - low) % span + low

        return self.writer.constant("wrap", wrapped, key=dtype.name)

    def unary(self, e: Unary) -> str:
        """A sign, a complement, a negation."""
        a = self.of(e.a)
        if e.op is UnaryOp.NOT or e.a.dtype.is_bool:
            return f"np.logical_not({a})" if self.varies(e) else f"(not {a})"
        if e.a.dtype.is_float:
            return f"(-{a})"
        wrap = self.wrap(e.a.dtype, lanes=self.varies(e))
        return f"{wrap}({'-' if e.op is UnaryOp.NEG else '~'}{a})"

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

    def select(self, e: Select) -> str:
        """One of two values. Of lanes both are computed, which no arm may notice."""
        cond, t, f = (self.of(x) for x in (e.cond, e.t, e.f))
        if self.varies(e.cond) and not any(_reads(arm, e.cond) for arm in (e.t, e.f)):
            return f"_pick({cond}, {t}, {f})"
        return f"({t} if {cond} else {f})"

    def element(self, e: Elem) -> str:
        """One element of an array."""
        array, index = self.name(e.array.name), self.of(e.index)
        if e.array.space in (Space.REGISTER, Space.LOCAL, Space.SHARED):
            return f"{array}[{index}]"
        site = self.writer.constant("at", e.loc, key=("loc", repr(e.loc)))
        return f"core.load({array}, {index}, {site})"


def _reads(arm: Expr, cond: Expr) -> bool:
    """Whether an arm reads what its condition does not: it may be outside where that is false."""
    first, then = ({n for n in e.walk() if isinstance(n, Elem)} for e in (cond, arm))
    return not then <= first


def native(x: Any, dtype: DType) -> Any:
    """A NumPy value as the text has it; one for each lane is an array."""
    if np.ndim(x):
        return x if dtype.is_float else np.asarray(x, np.bool_ if dtype.is_bool else np.int64)
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


def _as_int(made: Callable[..., Any], dtype: DType) -> Callable[[Any, Any], Any]:
    storage = dtype.numpy

    def whole(a: Any, b: Any) -> Any:
        x, y = np.asarray(a).astype(storage)[()], np.asarray(b).astype(storage)[()]
        return native(made(x, y), dtype)

    return whole


def unmodelled(node: Node, what: str) -> Exception:
    """The error for what this machine's model has no meaning for."""
    return error(
        "target",
        f"the model of an Ascend core does not run {what}",
        node.loc,
        help="target='emulate' runs the tile program itself",
    )
