"""Symbolic sizes of a launch: each symbol gets one number, from the axes and strides it appears in.

What enters: pairs of an expression and the number it has in an argument. What leaves: a number per
symbol, and where it comes from. Whether all pairs agree is checked by whoever gave them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilelang.ir.evaluate import evaluate
from tilelang.ir.expr import Expr, Var
from tilelang.ir.text import print_expr


@dataclass(frozen=True)
class Fact:
    """`e` has the value `size` in an argument; `where` says which axis of which one."""

    e: Expr
    size: int
    where: str


@dataclass
class Sizes:
    """The numbers of the symbols, and for each the place it comes from."""

    values: dict[Var, int] = field(default_factory=dict[Var, int])
    origin: dict[Var, str] = field(default_factory=dict[Var, str])

    def give(self, symbol: Var, value: int, where: str) -> None:
        """`symbol` is `value`, unless it has a number already."""
        if symbol not in self.values:
            self.values[symbol] = value
            self.origin[symbol] = where

    def evaluate(self, e: Expr) -> int | None:
        """The value of `e`; None where a symbol in it has no number."""
        value = evaluate(e, self.values)
        return None if value is None else int(value)

    def describe(self, e: Expr) -> str:
        """Where the symbols of `e` come from, for a message."""
        symbols = dict.fromkeys(n for n in e.walk() if isinstance(n, Var))
        parts = [
            f"{s.name} = {self.values[s]} from {self.origin[s]}"
            for s in symbols
            if s in self.values
        ]
        return ", ".join(parts)

    def solve(self, facts: Sequence[Fact]) -> None:
        """Give each symbol a number: from plain axes first, then from expressions linear in it."""
        for fact in facts:
            if isinstance(fact.e, Var):
                self.give(fact.e, fact.size, fact.where)
        pending = [f for f in facts if not isinstance(f.e, Var)]
        while pending:
            left = [f for f in pending if not self._try(f)]
            if len(left) == len(pending):
                return
            pending = left

    def _try(self, fact: Fact) -> bool:
        """Whether the fact needs no further look: no symbol in it is unknown any more."""
        unknown = {n for n in fact.e.walk() if isinstance(n, Var) and n not in self.values}
        if len(unknown) != 1:
            return not unknown
        symbol = unknown.pop()
        found = _solved(fact, symbol, self.values)
        if found is not None:
            self.give(symbol, found, f"{fact.where}, {print_expr(fact.e)} = {fact.size}")
        return found is not None


def _solved(fact: Fact, symbol: Var, known: dict[Var, int]) -> int | None:
    """The number >= 0 for `symbol` that gives the fact, where the expression is linear in it."""
    at = [evaluate(fact.e, {**known, symbol: x}) for x in (0, 1, 2)]
    if any(v is None for v in at):
        return None
    zero, one, two = (int(v) for v in at if v is not None)
    slope = one - zero
    if slope == 0 or two - one != slope or (fact.size - zero) % slope:
        return None
    value = (fact.size - zero) // slope
    again = evaluate(fact.e, {**known, symbol: value}) if value >= 0 else None
    return value if again == fact.size else None
