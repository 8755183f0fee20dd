"""What is known at a place of a program: ranges and facts, and what can be proved from them.

What enters: an `Env`, built while walking into loops, launches and conditions, and a condition.
What leaves: bounds of an expression, a verdict (True, False, or None for not proved), or values
that refute the condition. Only intervals, congruences and sums of a few linear facts are used: what
they do not prove stays unproved.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from tilelang.ir.affine import (
    Analysis,
    Form,
    bounds,
    compared,
    facts_of,
    is_countable,
    is_stable,
    narrow,
)
from tilelang.ir.evaluate import Number, evaluate
from tilelang.ir.expr import Binary, BinaryOp, Const, Expr, Unary, UnaryOp, Var, int_value
from tilelang.ir.interval import TOP, Interval, interval, meet, span, top
from tilelang.ir.node import Kind, flat
from tilelang.ir.tile import (
    Assert,
    Assume,
    Block,
    Break,
    Continue,
    For,
    Function,
    If,
    Launch,
    Let,
    Parallel,
    Pipelined,
    Stmt,
    ThreadReturn,
    While,
)

__all__ = ["Env", "Interval", "at_most", "bounds", "counterexample", "interval", "prove", "walk"]

SEARCH_POINTS = 4096
"""How many assignments `counterexample` tries."""

_SEARCH_FORMS = 48
"""How many sums of facts `at_most` looks at, and how many facts one sum may use."""
_SEARCH_DEPTH = 4


@dataclass(frozen=True, eq=False)
class Env(Mapping[Var, Interval]):
    """The ranges of the variables that are defined here, and facts about several of them.

    As a mapping it gives the ranges. With `wraps` false, signed arithmetic is taken not to overflow
    (see `ir/affine.py`). Every method returns a new Env.
    """

    ranges: Mapping[Var, Interval] = field(default_factory=dict[Var, Interval])
    facts: tuple[Form, ...] = ()
    conditions: tuple[Expr, ...] = ()
    definitions: Mapping[Var, Expr] = field(default_factory=dict[Var, Expr])
    unknown: frozenset[Var] = frozenset()
    wraps: bool = True

    def __getitem__(self, var: Var) -> Interval:
        return self.ranges[var]

    def __iter__(self) -> Iterator[Var]:
        return iter(self.ranges)

    def __len__(self) -> int:
        return len(self.ranges)

    @cached_property
    def analysis(self) -> Analysis:
        """What is known of expressions here, each looked at once."""
        return Analysis(self.ranges, self.wraps)

    @staticmethod
    def of_function(fn: Function, *, wraps: bool = True) -> Env:
        """What holds before the first statement: symbolic sizes are not negative."""
        return Env({v: Interval(0, None) for v in fn.dynamic}, wraps=wraps)

    def bounds(self, e: Expr) -> Interval:
        """The set known to hold every value of `e` here."""
        return self.analysis.bounds(e)

    def linear(self, e: Expr) -> Form:
        """`e` as a sum of atoms (see `affine.linear`)."""
        return self.analysis.linear(e)

    def with_range(self, var: Var, found: Interval) -> Env:
        """`var` is in `found`, besides what is known of it."""
        known = meet(top(var.type), self.ranges.get(var, TOP))
        ranges = {**self.ranges, var: meet(known, found)}
        made = replace(self, ranges=ranges)
        if var not in self.ranges:  # what was found out about others still holds
            made._take(self.analysis.extended(var, ranges))
        return made

    def _take(self, analysis: Analysis | None) -> None:
        """Start with what is known of expressions already."""
        if analysis is not None:
            self.__dict__["analysis"] = analysis

    def _noted(self, **changes: Any) -> Env:
        """The same ranges with other facts."""
        made = replace(self, **changes)
        made._take(self.analysis)
        return made

    def assume(self, cond: Expr, *, holds: bool = True) -> Env:
        """`cond` holds (or does not). A condition that reads memory narrows ranges and is then
        forgotten.
        """
        inside = replace(self, ranges=narrow(cond, self.analysis, holds=holds))
        if not is_stable(cond):
            return inside
        facts = facts_of(cond, inside.analysis, holds=holds)
        kept = cond if holds else Unary(UnaryOp.NOT, cond)
        return inside._noted(
            facts=(*self.facts, *(f for f in facts if f.terms)),
            conditions=(*self.conditions, kept),
        )

    def define(self, let: Let) -> Env:
        """The variable of a `Let` has the value computed there."""
        var, value = let.var, let.value
        if not is_countable(var.type):
            return self
        inside = self.with_range(var, self.bounds(value))
        if not is_stable(value):
            return inside.forget([var])
        form = self.linear(value).plus(Form({var: 1}), -1)
        return inside._noted(
            facts=(*self.facts, form, form.scaled(-1)),
            definitions={**self.definitions, var: value},
        )

    def forget(self, names: Iterable[Var]) -> Env:
        """Variables whose value depends on memory: no example may be made up for them."""
        unknown = self.unknown.union(names)
        return self if unknown == self.unknown else self._noted(unknown=unknown)

    def enter_for(self, loop: For | Pipelined) -> Env:
        """Inside a sequential loop: `start <= var < stop`, and a multiple of the step from the
        start.
        """
        step_expr = loop.step if isinstance(loop, For) else None
        step = 1 if step_expr is None else int_value(step_expr)
        start, stop = self.bounds(loop.start), self.bounds(loop.stop)
        (first, first_hi), (last, last_hi) = (
            span(start, loop.start.dtype),
            span(stop, loop.stop.dtype),
        )
        if step is None or step == 0:
            return self.with_range(
                loop.var, interval(min(first, last), max(first_hi, last_hi))
            ).forget([loop.var])
        up = step > 0
        lo, hi = (first, last_hi - 1) if up else (last + 1, first_hi)
        modulus = math.gcd(start.modulus, step)
        inside = self.with_range(loop.var, interval(lo, max(lo, hi), modulus, start.residue))
        if not (is_stable(loop.start) and is_stable(loop.stop)):
            return inside.forget([loop.var])
        low, high = (BinaryOp.LE, BinaryOp.LT) if up else (BinaryOp.GE, BinaryOp.GT)
        return inside._between(loop.var, (low, loop.start), (high, loop.stop))

    def _between(self, var: Var, first: tuple[BinaryOp, Expr], last: tuple[BinaryOp, Expr]) -> Env:
        """`first.1 first.0 var` and `var last.0 last.1`, where they say more than the range
        does.
        """
        env = self
        for op, a, b in ((first[0], first[1], var), (last[0], var, last[1])):
            if not (isinstance(a, Const) or isinstance(b, Const)) and a.dtype == b.dtype:
                env = env.assume(Binary(op, a, b))
        return env

    def enter_extents(self, names: Sequence[Var], extents: Sequence[Expr]) -> Env:
        """Each variable counts from 0 below its extent."""
        env = self
        for var, extent in zip(names, extents, strict=True):
            most = span(self.bounds(extent), extent.dtype)[1]
            env = env.with_range(var, interval(0, max(0, most - 1)))
            if not is_stable(extent):
                env = env.forget([var])
            elif not isinstance(extent, Const) and extent.dtype == var.type:
                env = env.assume(Binary(BinaryOp.LT, var, extent))
        return env

    def enter_launch(self, launch: Launch) -> Env:
        """Inside a launch: the block indices are below the grid, the thread indices below
        `threads`.
        """
        env = self.enter_extents(launch.vars, launch.grid)
        for axis, var in enumerate(launch.thread_vars):
            if launch.threads is None:
                env = env.with_range(var, interval(0, None))
            else:
                extent = launch.threads[axis] if axis < len(launch.threads) else 1
                env = env.with_range(var, interval(0, max(0, extent - 1)))
        return env

    def enter(self, stmt: Stmt) -> Env:
        """Inside the body of a statement with one body."""
        match stmt:
            case For() | Pipelined():
                env = self.enter_for(stmt)
            case Parallel():
                env = self.enter_extents(stmt.vars, stmt.extents)
            case Launch():
                env = self.enter_launch(stmt)
            case While():
                env = self.assume(stmt.cond)
            case _:
                env = self.forget(_bound_vars(stmt))
        return env

    def after(self, stmt: Stmt) -> Env:
        """What holds for the statements that follow `stmt` in its block."""
        match stmt:
            case Let():
                env = self.define(stmt)
            case Assume() | Assert():
                env = self.assume(stmt.cond)
            case If(orelse=()) if stmt.then and isinstance(stmt.then[-1], _LEAVES):
                env = self.assume(stmt.cond, holds=False)
            case _:
                env = self.forget(_bound_vars(stmt))
        return env


_LEAVES = (Break, Continue, ThreadReturn)


def _bound_vars(stmt: Stmt) -> list[Var]:
    """The variables that a statement without a rule of its own defines."""
    if isinstance(stmt, (For, Pipelined, Parallel, Launch, Let)):
        return []
    found: list[Var] = []
    for f in stmt.fields():
        if f.metadata["kind"] is Kind.BINDS:
            found += [v for v in flat(getattr(stmt, f.name)) if isinstance(v, Var)]
    return found


def walk(body: Block, env: Env) -> Iterator[tuple[Stmt, Env]]:
    """Every statement of a block and of the blocks inside it, with what holds before it runs."""
    for stmt in body:
        yield stmt, env
        if isinstance(stmt, If):
            yield from walk(stmt.then, env.assume(stmt.cond))
            yield from walk(stmt.orelse, env.assume(stmt.cond, holds=False))
        else:
            inside: Env | None = None
            for f in stmt.fields():
                if f.metadata["kind"] is Kind.BODY:
                    inside = env.enter(stmt) if inside is None else inside
                    yield from walk(getattr(stmt, f.name), inside)
        env = env.after(stmt)


# Proofs ------------------------------------------------------------------------------------------


def prove(cond: Expr, env: Env | Mapping[Var, Interval]) -> bool | None:
    """True if `cond` holds for every value that `env` allows, False if for none, None if not
    proved.

    Where `env` allows nothing (code that never runs) any answer may come.
    """
    known = env if isinstance(env, Env) else Env(env)
    match cond:
        case Unary(op=UnaryOp.NOT):
            inner = prove(cond.a, known)
            found = None if inner is None else not inner
        case Binary(op=BinaryOp.AND):
            found = _both(prove(cond.a, known), prove(cond.b, known))
        case Binary(op=BinaryOp.OR):
            found = _either(prove(cond.a, known), prove(cond.b, known))
        case Binary() if cond.op.is_compare and is_countable(cond.a.dtype) and is_stable(cond):
            found = _prove_compare(cond, known)
        case _:
            value = known.bounds(cond).value
            found = None if value is None else bool(value)
    return found


def _both(a: bool | None, b: bool | None) -> bool | None:
    if a is False or b is False:
        return False
    return True if a and b else None


def _either(a: bool | None, b: bool | None) -> bool | None:
    if a or b:
        return True
    return False if a is False and b is False else None


def _prove_compare(cond: Binary, env: Env) -> bool | None:
    d = env.linear(cond.a).plus(env.linear(cond.b), -1)
    lo, hi = env.analysis.form_span(d)
    found = compared(cond.op, (lo, hi), (0, 0))
    if found is not None:
        return found
    modulus, residue = env.analysis.form_congruence(d)
    if cond.op in (BinaryOp.EQ, BinaryOp.NE) and modulus > 1 and residue != 0:
        return cond.op is BinaryOp.NE
    hi = min(hi, at_most(d, env, goal=-1))
    lo = max(lo, -at_most(d.scaled(-1), env, goal=-1))
    return compared(cond.op, (lo, hi), (0, 0))


def at_most(d: Form, env: Env, *, goal: int) -> int:
    """A bound of `d` from above, found by adding facts; the search ends at a bound of `goal` or
    less.
    """
    return _Search(env, goal).run(d, _SEARCH_DEPTH)


class _Search:
    """Takes facts (forms that are at most 0) away from a form, which leaves a form that bounds
    it.
    """

    def __init__(self, env: Env, goal: int) -> None:
        self.env = env
        self.goal = goal
        self.left = _SEARCH_FORMS

    def run(self, d: Form, depth: int) -> int:
        best = self.env.analysis.form_span(d)[1]
        self.left -= 1
        if depth == 0:
            return best
        for fact in (*self.env.facts, *(f for atom in d.terms for f in self.of_atom(atom))):
            for atom, factor in fact.terms.items():
                if best <= self.goal or self.left <= 0:
                    return best
                times, odd = divmod(d.terms.get(atom, 0), factor)
                if times > 0 and odd == 0:
                    best = min(best, self.run(d.plus(fact, -times), depth - 1))
        return best

    def of_atom(self, atom: Expr) -> Iterator[Form]:
        """Facts that follow from what an atom is."""
        me = Form({atom: 1})
        match atom:
            case Binary(op=BinaryOp.FLOORDIV, b=Const(value=int(c))) if c > 0:
                dividend = self.env.linear(atom.a)
                least, most = self.remainders(dividend, c)
                rest = me.scaled(c).plus(dividend, -1)  # minus the remainder
                yield rest.plus(Form({}, least))
                yield rest.scaled(-1).plus(Form({}, -most))
            case Binary(op=BinaryOp.FLOORMOD) if (self.env.bounds(atom.a).lo or -1) >= 0:
                yield me.plus(self.env.linear(atom.a), -1)
            case Binary(op=BinaryOp.MIN):
                yield from (me.plus(self.env.linear(side), -1) for side in (atom.a, atom.b))
            case Binary(op=BinaryOp.MAX):
                yield from (self.env.linear(side).plus(me, -1) for side in (atom.a, atom.b))
            case _:
                pass

    def remainders(self, form: Form, c: int) -> tuple[int, int]:
        """The least and greatest remainder of a form divided by `c`."""
        modulus, residue = self.env.analysis.form_congruence(form)
        return (residue % c, residue % c) if modulus % c == 0 else (0, c - 1)


# Examples ----------------------------------------------------------------------------------------


def counterexample(cond: Expr, env: Env | Mapping[Var, Interval]) -> dict[str, int] | None:
    """Values that `env` allows for which `cond` is false, by name; None if none was found.

    None also where `cond` depends on memory. Corners of the ranges are tried first, then small
    values and values near the bounds, `SEARCH_POINTS` in all.
    """
    known = env if isinstance(env, Env) else Env(env)
    free, conditions = _closure(cond, known)
    if not is_stable(cond) or known.unknown.intersection(free):
        return None
    sampled = [v for v in free if v not in known.definitions]
    if not all(is_countable(v.type) for v in free):
        return None
    left = SEARCH_POINTS
    for width in (2, max(2, int(SEARCH_POINTS ** (1 / max(1, len(sampled)))))):
        choices = [_candidates(v, known, width) for v in sampled]
        for values in itertools.islice(itertools.product(*choices), left):
            left -= 1
            point: dict[Var, Number] = dict(zip(sampled, values, strict=True))
            if _refutes(cond, conditions, known, free, point):
                return {v.name: int(point[v]) for v in free}
    return None


def _refutes(
    cond: Expr, conditions: Sequence[Expr], env: Env, free: Sequence[Var], point: dict[Var, Number]
) -> bool:
    """Whether `point`, once the defined variables are added to it, is allowed and makes `cond`
    false.
    """
    for var, value in env.definitions.items():
        if var in free:
            found = evaluate(value, point)
            if found is None or not env.ranges.get(var, TOP).contains(int(found)):
                return False
            point[var] = found
    return all(evaluate(c, point) is True for c in conditions) and evaluate(cond, point) is False


def _closure(cond: Expr, env: Env) -> tuple[list[Var], list[Expr]]:
    """The variables that `cond` depends on, its own first, and the conditions that bind them."""
    free = list(dict.fromkeys(n for n in cond.walk() if isinstance(n, Var)))
    conditions: list[Expr] = []
    count = -1
    while count != len(free):
        count = len(free)
        more = [env.definitions[v] for v in free if v in env.definitions]
        for c in env.conditions:
            names = {n for n in c.walk() if isinstance(n, Var)}
            if c not in conditions and not names.isdisjoint(free):
                conditions.append(c)
        for e in (*more, *conditions):
            free += [n for n in e.walk() if isinstance(n, Var) and n not in free]
        free = list(dict.fromkeys(free))
    return free, conditions


def _candidates(var: Var, env: Env, width: int) -> list[Number]:
    """Up to `width` members of the range of a variable: its bounds first, then inwards from
    both.
    """
    if var.type.is_bool:
        return [False, True]
    found = meet(top(var.type), env.ranges.get(var, TOP))
    step = found.modulus or 1
    lo, hi = span(found, var.type)
    if found.lo is None:  # of a range without bounds, the small values
        lo = found.residue if found.hi is None else max(lo, hi - step * width)
    if found.hi is None:
        hi = min(hi, lo + step * width)
    out: dict[Number, None] = {}
    for k in range(width):
        for v in (lo + k * step, hi - k * step):
            if found.contains(v):
                out[v] = None
    return list(out)[:width]
