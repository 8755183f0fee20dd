"""What is known of an integer expression: its bounds and congruence, and its form as a linear sum.

What enters: a scalar expression and an `Interval` for each variable. What leaves: an `Interval`
that holds every value of the expression, or a `Form` that equals it as an integer that cannot
overflow.

Integers of the language wrap. With `wraps` false, the results of signed arithmetic are taken to fit
their dtype, in whatever order the terms of a sum are added. That holds for index expressions: an
index that overflowed would lie outside its buffer, and its terms are sizes and indices themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tilelang.dtypes import DType
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
)
from tilelang.ir.interval import (
    TOP,
    Interval,
    binary,
    interval,
    limits,
    meet,
    narrowed,
    point,
    span,
    top,
    unary,
    union,
)

Ranges = Mapping[Var, Interval]


def is_countable(dtype: DType) -> bool:
    """Whether values of the dtype are single integers or truth values."""
    return dtype.lanes == 1 and (dtype.is_integer or dtype.is_bool)


def bounds(e: Expr, ranges: Ranges, *, wraps: bool = True) -> Interval:
    """The least set known to hold every value of `e` when each variable is in its range.

    A variable without a range may have any value of its dtype. What is not an integer or bool has
    no bounds. A division by zero may have any value.
    """
    return Analysis(ranges, wraps).bounds(e)


class Analysis:
    """Bounds and linear forms for one set of ranges; every subexpression is looked at once."""

    def __init__(self, ranges: Ranges, wraps: bool) -> None:
        self.ranges = ranges
        self.wraps = wraps
        self.known: dict[Expr, Interval] = {}
        self.forms: dict[Expr, Form] = {}

    def extended(self, var: Var, ranges: Ranges) -> Analysis | None:
        """The same with a range for a variable that had none; None if it was looked at before."""
        if var in self.known or var in self.forms:
            return None
        made = Analysis(ranges, self.wraps)
        made.known, made.forms = dict(self.known), dict(self.forms)
        return made

    def bounds(self, e: Expr) -> Interval:
        """The set known to hold every value of `e` (see `bounds`)."""
        if not is_countable(e.dtype):
            return TOP
        found = self.known.get(e)
        if found is None:
            found = self.known[e] = self._compute(e)
        return found

    def _compute(self, e: Expr) -> Interval:
        match e:
            case Const():
                found = point(int(e.value))
            case Var():
                found = meet(top(e.type), self.ranges.get(e, TOP))
            case Binary():
                found = self._binary(e)
            case Unary():
                found = unary(e.op, self.bounds(e.a), e.dtype, self.wraps)
            case Select():
                found = self._select(e)
            case Cast():
                found = self._cast(e)
            case Call():
                found = self._call(e)
            case _:
                found = top(e.dtype)
        return found

    def _binary(self, e: Binary) -> Interval:
        if not is_countable(e.a.dtype):
            return top(e.dtype)
        a, b = self.bounds(e.a), self.bounds(e.b)
        if e.op.is_compare:
            return _bool(compared(e.op, span(a, e.a.dtype), span(b, e.b.dtype)))
        if e.op is BinaryOp.AND:
            return interval(min(a.lo or 0, b.lo or 0), min(_most(a), _most(b)))
        if e.op is BinaryOp.OR:
            return interval(max(a.lo or 0, b.lo or 0), max(_most(a), _most(b)))
        return binary(e.op, a, b, e.dtype, self.wraps)

    def _select(self, e: Select) -> Interval:
        cond = self.bounds(e.cond).value
        arms: list[Interval] = []
        for arm, holds in ((e.t, True), (e.f, False)):
            if cond is None or bool(cond) == holds:
                inside = narrow(e.cond, self, holds=holds)
                arms.append(
                    self.bounds(arm)
                    if inside is self.ranges
                    else Analysis(inside, self.wraps).bounds(arm)
                )
        return union(arms[0], arms[-1])

    def _cast(self, e: Cast) -> Interval:
        if not is_countable(e.a.dtype):
            return top(e.dtype)
        a = self.bounds(e.a)
        if e.dtype.is_bool:
            return interval(0 if a.contains(0) else 1, 0 if a.value == 0 else 1)
        lo, hi = span(a, e.a.dtype)
        return narrowed(lo, hi, (a.modulus, a.residue), e.dtype, wraps=True)

    def _call(self, e: Call) -> Interval:
        args = [self.bounds(a) for a in e.args]
        if not e.args or not is_countable(e.args[0].dtype):
            return top(e.dtype)
        dtype = e.args[0].dtype
        match e.fn:
            case "abs":
                lo, hi = span(args[0], dtype)
                least = 0 if lo <= 0 <= hi else min(abs(lo), abs(hi))
                return narrowed(least, max(abs(lo), abs(hi)), (1, 0), e.dtype, self.wraps)
            case "iclamp":
                inner = binary(BinaryOp.MAX, args[0], args[1], dtype, wraps=True)
                return binary(BinaryOp.MIN, inner, args[2], dtype, wraps=True)
            case "popcount" | "clz" | "ffs":
                return interval(0, dtype.bits)
            case _:
                return top(e.dtype)

    def linear(self, e: Expr) -> Form:
        """`e` as a sum that equals it exactly (see `linear`)."""
        found = self.forms.get(e)
        if found is None:
            found = self.forms[e] = self._form(e)
        return found

    def _form(self, e: Expr) -> Form:
        if isinstance(e, Const) and is_countable(e.type):
            return Form({}, int(e.value))
        found = self._sum(e) if is_countable(e.dtype) else None
        exact = found is not None and (
            (not self.wraps and e.dtype.is_int) or _inside(self.form_span(found), e.dtype)
        )
        return found if found is not None and exact else Form({e: 1})

    def _sum(self, e: Expr) -> Form | None:
        match e:
            case Binary(op=BinaryOp.ADD | BinaryOp.SUB):
                a, b = self.linear(e.a), self.linear(e.b)
                # Two loads of one element are two events: they are neither counted together nor
                # cancelled.
                merges = all(is_stable(atom) for atom in a.terms if atom in b.terms)
                found = a.plus(b, 1 if e.op is BinaryOp.ADD else -1) if merges else None
            case Binary(op=BinaryOp.MUL):
                found = self._product(e)
            case Binary(op=BinaryOp.SHL, b=Const(value=int(count))) if 0 <= count < e.dtype.bits:
                found = self.linear(e.a).scaled(1 << count)
            case Unary(op=UnaryOp.NEG):
                found = self.linear(e.a).scaled(-1)
            case Cast() if is_countable(e.a.dtype) and not e.dtype.is_bool:
                inner = self.linear(e.a)
                # A conversion that loses nothing; one that may wrap is not arithmetic that may be
                # assumed to fit.
                found = inner if _inside(self.form_span(inner), e.dtype) else None
            case _:
                found = None
        return found

    def _product(self, e: Binary) -> Form | None:
        a, b = self.linear(e.a), self.linear(e.b)
        if not b.terms:
            return a.scaled(b.const)
        return b.scaled(a.const) if not a.terms else None

    def form_span(self, form: Form) -> tuple[int, int]:
        """The least and greatest value of a form."""
        return form_span(form, self.bounds)

    def form_congruence(self, form: Form) -> tuple[int, int]:
        """(modulus, residue) of a form; modulus 0 for one value, 1 for nothing known."""
        modulus, residue = 0, form.const
        for atom, factor in form.terms.items():
            a = self.bounds(atom)
            modulus = math.gcd(modulus, factor * a.modulus)
            residue += factor * a.residue
        return modulus, residue % modulus if modulus else residue


def _most(a: Interval) -> int:
    return 1 if a.hi is None else a.hi


def _bool(truth: bool | None) -> Interval:
    return interval(0, 1) if truth is None else point(int(truth))


def compared(op: BinaryOp, a: tuple[int, int], b: tuple[int, int]) -> bool | None:
    """Whether a comparison holds for all values between the bounds of its sides, for none, or
    neither.
    """
    match op:
        case BinaryOp.LT:
            found = _below(a[1], b[0], a[0], b[1])
        case BinaryOp.LE:
            found = _below(a[1], b[0] + 1, a[0], b[1] + 1)
        case BinaryOp.GT | BinaryOp.GE:
            found = compared(BinaryOp.LT if op is BinaryOp.GT else BinaryOp.LE, b, a)
        case _:
            apart = a[1] < b[0] or b[1] < a[0]
            same = a == b and a[0] == a[1]
            found = None if not (apart or same) else same == (op is BinaryOp.EQ)
    return found


def _below(a_most: int, b_least: int, a_least: int, b_most: int) -> bool | None:
    if a_most < b_least:
        return True
    return False if a_least >= b_most else None


# Linear forms ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """The integer `const + sum(factor * atom)`; atoms are expressions that are not sums, factors
    not 0.
    """

    terms: Mapping[Expr, int]
    const: int = 0

    def plus(self, other: Form, times: int = 1) -> Form:
        """`self + times * other`."""
        terms = dict(self.terms)
        for atom, factor in other.terms.items():
            total = terms.get(atom, 0) + times * factor
            if total:
                terms[atom] = total
            else:
                terms.pop(atom, None)
        return Form(terms, self.const + times * other.const)

    def scaled(self, times: int) -> Form:
        """`times * self`."""
        if times == 0:
            return Form({})
        return Form({atom: times * f for atom, f in self.terms.items()}, times * self.const)


def is_stable(e: Expr) -> bool:
    """Whether `e` has one value wherever its variables are known: it holds no load."""
    known: bool | None = e.__dict__.get("_stable")
    if known is None:
        below = (is_stable(a) if isinstance(a, Expr) else False for a in e.children())
        known = isinstance(e, _STABLE) and all(below)
        # Nodes do not change, so the answer is kept with the node, as its hash is.
        object.__setattr__(e, "_stable", known)
    return known


_STABLE = (Const, Var, Binary, Unary, Cast, Bitcast, Select, Call, Pack, Lane)


def linear(e: Expr, ranges: Ranges, *, wraps: bool = True) -> Form:
    """`e` as a sum that equals it exactly, taken apart only where no step of it can overflow."""
    return Analysis(ranges, wraps).linear(e)


def _inside(found: tuple[int, int], dtype: DType) -> bool:
    low, high = limits(dtype)
    return low <= found[0] and found[1] <= high


def form_span(form: Form, of: Callable[[Expr], Interval]) -> tuple[int, int]:
    """The least and greatest value of a form whose atoms are in the intervals that `of` gives."""
    lo = hi = form.const
    for atom, factor in form.terms.items():
        low, high = span(of(atom), atom.dtype)
        lo += factor * (low if factor > 0 else high)
        hi += factor * (high if factor > 0 else low)
    return lo, hi


# Conditions --------------------------------------------------------------------------------------


def facts_of(cond: Expr, known: Analysis, *, holds: bool = True) -> Iterator[Form]:
    """Forms that are at most 0 wherever `cond` holds (or does not, as `holds` says)."""
    match cond:
        case Unary(op=UnaryOp.NOT):
            yield from facts_of(cond.a, known, holds=not holds)
        case Binary(op=BinaryOp.AND | BinaryOp.OR):
            if (cond.op is BinaryOp.AND) == holds:
                yield from facts_of(cond.a, known, holds=holds)
                yield from facts_of(cond.b, known, holds=holds)
        case Binary() if cond.op.is_compare and is_countable(cond.a.dtype):
            d = known.linear(cond.a).plus(known.linear(cond.b), -1)
            yield from _compare_facts(cond.op if holds else NEGATED[cond.op], d)
        case _:
            pass


NEGATED: dict[BinaryOp, BinaryOp] = {
    BinaryOp.EQ: BinaryOp.NE,
    BinaryOp.NE: BinaryOp.EQ,
    BinaryOp.LT: BinaryOp.GE,
    BinaryOp.GE: BinaryOp.LT,
    BinaryOp.GT: BinaryOp.LE,
    BinaryOp.LE: BinaryOp.GT,
}
"""The comparison of integers that holds exactly where the other does not."""


def _compare_facts(op: BinaryOp, d: Form) -> Iterator[Form]:
    """What `d op 0` says."""
    if op in (BinaryOp.LE, BinaryOp.LT, BinaryOp.EQ):
        yield Form(d.terms, d.const + 1) if op is BinaryOp.LT else d
    if op in (BinaryOp.GE, BinaryOp.GT, BinaryOp.EQ):
        negative = d.scaled(-1)
        yield Form(negative.terms, negative.const + 1) if op is BinaryOp.GT else negative


def narrow(cond: Expr, known: Analysis, *, holds: bool = True) -> Ranges:
    """The ranges where `cond` holds (or does not); the ranges of `known` if no more is known."""
    ranges = known.ranges
    for fact in facts_of(cond, known, holds=holds):
        ranges = _narrow_by(fact, ranges, known.wraps)
    for var, found in _congruences(cond, holds):
        ranges = {**ranges, var: meet(ranges.get(var, TOP), found)}
    return ranges


def _narrow_by(fact: Form, ranges: Ranges, wraps: bool) -> Ranges:
    """The ranges, with the bounds that follow for each variable of a form that is at most 0."""
    for var, factor in fact.terms.items():
        if not isinstance(var, Var):
            continue
        rest = Form({atom: f for atom, f in fact.terms.items() if atom is not var}, fact.const)
        least = Analysis(ranges, wraps).form_span(rest)[0]
        # The product of factor and var is at most -rest, which is at most -least.
        if factor > 0:
            bound = interval(None, -least // factor)
        else:
            bound = interval(-(-least // -factor), None)
        old = meet(top(var.type), ranges.get(var, TOP))
        new = meet(old, bound)
        if new != old:
            ranges = {**ranges, var: new}
    return ranges


def _congruences(cond: Expr, holds: bool) -> Iterator[tuple[Var, Interval]]:
    """What `n % 128 == 0` says of n."""
    match cond:
        case Binary(op=BinaryOp.AND) if holds:
            yield from _congruences(cond.a, holds)
            yield from _congruences(cond.b, holds)
        case Binary(
            op=BinaryOp.EQ | BinaryOp.NE,
            a=Binary(op=BinaryOp.FLOORMOD, a=Var() as var, b=Const(value=int(modulus))),
            b=Const(value=int(residue)),
        ) if (cond.op is BinaryOp.EQ) == holds and modulus > 0:
            yield var, interval(None, None, modulus, residue)
        case _:
            pass
