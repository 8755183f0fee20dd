"""The text of expressions of the thread stage.

What enters: an expression, and the name of the mask of the lanes that evaluate it. What leaves:
Python text; its operators are functions of `values`, and its accesses methods of the group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.emulator.writer import Writer
from tilelang.errors import InternalError, Loc
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Call,
    Cast,
    Const,
    Expr,
    Lane,
    Pack,
    Select,
    Unary,
    UnaryOp,
    Var,
    int_value,
)
from tilelang.ir.thread import Addr, Array, Elem, Space
from tilelang.simulator import values
from tilelang.simulator.machine.report import Site

_BY_CONSTANT = {BinaryOp.FLOORDIV: "//", BinaryOp.FLOORMOD: "%"}


class Expressions:
    """The expressions of one kernel. `sites` are the places that accesses name by number."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.sites: list[Site] = []
        self.watched: set[str] = set()
        self.loc: Loc | None = None
        self._numbers: dict[Site, int] = {}

    def site(self, loc: Loc | None, what: str) -> int:
        """The number of a place where memory is touched."""
        made = Site(loc, what)
        if made not in self._numbers:
            self._numbers[made] = len(self.sites)
            self.sites.append(made)
        return self._numbers[made]

    def object(self, thing: Any, key: Any, prefix: str = "k") -> str:
        """The name of an object that the text refers to; one for each key."""
        return self.writer.constant(prefix, thing, key=key)

    def of(self, e: Expr, mask: str) -> str:
        """The text of a value."""
        rule = _RULES.get(type(e))
        if rule is None:
            raise InternalError(f"the simulator has no meaning for {type(e).__name__}")
        return rule(self, e, mask)

    def const(self, value: Any, dtype: DType) -> str:
        """A literal in the storage of its dtype."""
        storage = dtype.base.numpy
        made = np.asarray(value).astype(storage)[()]
        return self.object(made, ("const", repr(value), dtype.name), "c")

    def array(self, array: Array) -> str:
        """The name of an array."""
        return f"a_{array.name}"

    def access(self, array: Array, verb: str) -> str:
        """The number of a place, as text."""
        return str(self.site(self.loc, f"{verb} {array.name}"))


def _const(x: Expressions, e: Const, mask: str) -> str:
    del mask
    return x.const(e.value, e.type)


def _var(x: Expressions, e: Var, mask: str) -> str:
    del x, mask
    return f"v_{e.name}"


def _binary(x: Expressions, e: Binary, mask: str) -> str:
    a, b = x.of(e.a, mask), x.of(e.b, mask)
    dtype = e.a.dtype
    symbol = e.op.value if e.op in values.INFIX else None
    if symbol is None and dtype.is_integer and int_value(e.b):
        symbol = _BY_CONSTANT.get(e.op)
    plain = dtype.is_integer or dtype.base.name in values.NATIVE or e.op.is_compare
    if symbol is not None and plain:
        return f"({a} {symbol} {b})"
    function = x.object(values.binary(e.op, dtype), ("binary", e.op, dtype.name), "op")
    return f"{function}({a}, {b})"


def _unary(x: Expressions, e: Unary, mask: str) -> str:
    a = x.of(e.a, mask)
    if e.op is UnaryOp.NOT or e.a.dtype.is_bool:
        return f"np.logical_not({a})"
    return f"({'-' if e.op is UnaryOp.NEG else '~'}{a})"


def _cast(x: Expressions, e: Cast, mask: str) -> str:
    key = ("cast", e.a.dtype.base.name, e.type.base.name, e.rounding, e.saturate)
    function = x.object(values.conversion(e), key, "cast")
    more = f", {x.of(e.rbits, mask)}" if e.rbits is not None else ""
    return f"{function}({x.of(e.a, mask)}{more})"


def _bitcast(x: Expressions, e: Bitcast, mask: str) -> str:
    function = x.object(values.same_bits(e), ("bits", e.a.dtype.name, e.type.name), "bits")
    return f"{function}({x.of(e.a, mask)})"


def _call(x: Expressions, e: Call, mask: str) -> str:
    key = ("call", e.fn, e.params, e.type.name, *(a.dtype.name for a in e.args))
    function = x.object(values.pure(e), key, "fn")
    return f"{function}({', '.join(x.of(a, mask) for a in e.args)})"


def _select(x: Expressions, e: Select, mask: str) -> str:
    cond = x.of(e.cond, mask)
    if e.lazy and any(isinstance(n, Elem) for arm in (e.t, e.f) for n in arm.walk()):
        inner = x.writer.fresh("m")
        arms = (f"lambda {inner}: {x.of(arm, inner)}" for arm in (e.t, e.f))
        return f"g.choose({mask}, {cond}, {', '.join(arms)})"
    return f"np.where({cond}, {x.of(e.t, mask)}, {x.of(e.f, mask)})"


def _pack(x: Expressions, e: Pack, mask: str) -> str:
    parts = ", ".join(x.of(lane, mask) for lane in e.lanes)
    return f"pack({e.type.lanes}, {parts})"


def _lane(x: Expressions, e: Lane, mask: str) -> str:
    return f"{x.of(e.a, mask)}[{e.lane}]"


def _elem(x: Expressions, e: Elem, mask: str) -> str:
    array, index, lanes = x.array(e.array), x.of(e.index, mask), e.type.lanes
    if e.array.space is Space.REGISTER:
        if e.array.name in x.watched:
            return f"{array}.watched_read({index}, {lanes}, {x.access(e.array, 'reads')})"
        if lanes == 1:
            return f"{array}.data[{index}]"
        return f"{array}.data[{index}:{index} + {lanes}]"
    if e.array.space is Space.LOCAL:
        return f"{array}.read({index}, {lanes}, {mask}, {x.access(e.array, 'reads')})"
    site = x.access(e.array, "reads")
    return f"g.load({array}, {index}, {lanes}, {mask}, {site})"


def _addr(x: Expressions, e: Addr, mask: str) -> str:
    storage = x.object(e.type.numpy.type, ("type", e.type.name), "t")
    generic = e.type.is_handle
    return f"g.address({x.array(e.array)}, {x.of(e.index, mask)}, {generic}).astype({storage})"


_RULES: dict[type[Expr], Callable[[Expressions, Any, str], str]] = {
    Const: _const,
    Var: _var,
    Binary: _binary,
    Unary: _unary,
    Cast: _cast,
    Bitcast: _bitcast,
    Call: _call,
    Select: _select,
    Pack: _pack,
    Lane: _lane,
    Elem: _elem,
    Addr: _addr,
}
