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
    return _Bounds(ranges, wraps).of(e)


class _Bounds:
    """One question; every subexpression is looked at once."""

    def __init__(self, ranges: Ranges, wraps: bool) -> None:
        self.ranges = ranges
        self.wraps = wraps
        self.known: dict[Expr, Interval] = {}

    def of(self, e: Expr) -> Interval:
        if not is_countable(e.dtype):
            return TOP
        found = self.known.get(e)
        if found is None:
            found = self.known[e] = self.compute(e)
        return found

    def compute(self, e: Expr) -> Interval:
        match e:
            case Const():
                found = point(int(e.value))
            case Var():
                found = meet(top(e.type), self.ranges.get(e, TOP))
            case Binary():
                found = self.binary(e)
            case Unary():
                found = unary(e.op, self.of(e.a), e.dtype, self.wraps)
            case Select():
                found = self.select(e)
            case Cast():
                found = self.cast(e)
            case Call():
                found = self.call(e)
            case _:
                found = top(e.dtype)
        return found

    def binary(self, e: Binary) -> Interval:
        if not is_countable(e.a.dtype):
            return top(e.dtype)
        a, b = self.of(e.a), self.of(e.b)
        if e.op.is_compare:
            return _bool(compared(e.op, span(a, e.a.dtype), span(b, e.b.dtype)))
        if e.op is BinaryOp.AND:
            return interval(min(a.lo or 0, b.lo or 0), min(_most(a), _most(b)))
        if e.op is BinaryOp.OR:
            return interval(max(a.lo or 0, b.lo or 0), max(_most(a), _most(b)))
        return binary(e.op, a, b, e.dtype, self.wraps)

    def select(self, e: Select) -> Interval:
        cond = self.of(e.cond).value
        arms: list[Interval] = []
        for arm, holds in ((e.t, True), (e.f, False)):
            if cond is None or bool(cond) == holds:
                inside = narrow(e.cond, self.ranges, holds=holds, wraps=self.wraps)
                arms.append(
                    self.of(arm) if inside is self.ranges else _Bounds(inside, self.wraps).of(arm)
                )
        return union(arms[0], arms[-1])

    def cast(self, e: Cast) -> Interval:
        if not is_countable(e.a.dtype):
            return top(e.dtype)
        a = self.of(e.a)
        if e.dtype.is_bool:
            return interval(0 if a.contains(0) else 1, 0 if a.value == 0 else 1)
        lo, hi = span(a, e.a.dtype)
        return narrowed(lo, hi, (a.modulus, a.residue), e.dtype, wraps=True)

    def call(self, e: Call) -> Interval:
        args = [self.of(a) for a in e.args]
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
    return all(isinstance(n, _STABLE) for n in e.walk())


_STABLE = (Const, Var, Binary, Unary, Cast, Bitcast, Select, Call, Pack, Lane)


def linear(e: Expr, ranges: Ranges, *, wraps: bool = True) -> Form:
    """`e` as a sum that equals it exactly, taken apart only where no step of it can overflow."""
    return _Linear(ranges, wraps).of(e)


class _Linear:
    def __init__(self, ranges: Ranges, wraps: bool) -> None:
        self.bounds = _Bounds(ranges, wraps)
        self.wraps = wraps

    def of(self, e: Expr) -> Form:
        if isinstance(e, Const) and is_countable(e.type):
            return Form({}, int(e.value))
        found = self.sum(e) if is_countable(e.dtype) else None
        if found is None or not self.fits(found, e.dtype):
            return Form({e: 1})
        return found

    def sum(self, e: Expr) -> Form | None:
        match e:
            case Binary(op=BinaryOp.ADD | BinaryOp.SUB):
                a, b = self.of(e.a), self.of(e.b)
                # Two loads of one element are two events: they are neither counted together nor
                # cancelled.
                shared = (atom for atom in a.terms if atom in b.terms)
                found = (
                    a.plus(b, 1 if e.op is BinaryOp.ADD else -1)
                    if all(map(is_stable, shared))
                    else None
                )
            case Binary(op=BinaryOp.MUL):
                found = self.product(e)
            case Binary(op=BinaryOp.SHL, b=Const(value=int(count))) if 0 <= count < e.dtype.bits:
                found = self.of(e.a).scaled(1 << count)
            case Unary(op=UnaryOp.NEG):
                found = self.of(e.a).scaled(-1)
            case Cast() if is_countable(e.a.dtype) and not e.dtype.is_bool:
                inner = self.of(e.a)
                # A conversion that loses nothing; one that may wrap is not arithmetic that may be
                # assumed to fit.
                found = inner if _inside(self.range(inner), e.dtype) else None
            case _:
                found = None
        return found

    def product(self, e: Binary) -> Form | None:
        a, b = self.of(e.a), self.of(e.b)
        if not b.terms:
            return a.scaled(b.const)
        return b.scaled(a.const) if not a.terms else None

    def fits(self, form: Form, dtype: DType) -> bool:
        return (not self.wraps and dtype.is_int) or _inside(self.range(form), dtype)

    def range(self, form: Form) -> tuple[int, int]:
        return form_span(form, self.bounds.of)


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


def form_bounds(form: Form, ranges: Ranges, *, wraps: bool = True) -> tuple[int, int, int, int]:
    """Bounds of the form and its congruence: (lo, hi, modulus, residue)."""
    known = _Bounds(ranges, wraps)
    modulus, residue = 0, form.const
    for atom, factor in form.terms.items():
        a = known.of(atom)
        modulus = math.gcd(modulus, factor * a.modulus)
        residue += factor * a.residue
    lo, hi = form_span(form, known.of)
    return lo, hi, modulus, residue % modulus if modulus else residue


# Conditions --------------------------------------------------------------------------------------


def facts_of(
    cond: Expr, ranges: Ranges, *, holds: bool = True, wraps: bool = True
) -> Iterator[Form]:
    """Forms that are at most 0 wherever `cond` holds (or does not, as `holds` says)."""
    match cond:
        case Unary(op=UnaryOp.NOT):
            yield from facts_of(cond.a, ranges, holds=not holds, wraps=wraps)
        case Binary(op=BinaryOp.AND | BinaryOp.OR):
            if (cond.op is BinaryOp.AND) == holds:
                yield from facts_of(cond.a, ranges, holds=holds, wraps=wraps)
                yield from facts_of(cond.b, ranges, holds=holds, wraps=wraps)
        case Binary() if cond.op.is_compare and is_countable(cond.a.dtype):
            a, b = (linear(side, ranges, wraps=wraps) for side in (cond.a, cond.b))
            yield from _compare_facts(cond.op if holds else NEGATED[cond.op], a.plus(b, -1))
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


def narrow(cond: Expr, ranges: Ranges, *, holds: bool = True, wraps: bool = True) -> Ranges:
    """The ranges where `cond` holds (or does not); `ranges` itself if nothing more is known."""
    out: dict[Var, Interval] = {}
    now: Ranges = ranges
    for fact in facts_of(cond, ranges, holds=holds, wraps=wraps):
        now = narrow_by(fact, now, out, wraps=wraps)
    for var, found in _congruences(cond, holds):
        now = _put(now, out, var, meet(now.get(var, TOP), found))
    return now


def narrow_by(fact: Form, now: Ranges, out: dict[Var, Interval], *, wraps: bool) -> Ranges:
    """`now` with the bounds of each variable of a form that is at most 0; changes are kept in
    `out`.
    """
    for var, factor in fact.terms.items():
        if not isinstance(var, Var):
            continue
        rest = Form({atom: f for atom, f in fact.terms.items() if atom is not var}, fact.const)
        least = form_span(rest, _Bounds(now, wraps).of)[0]
        # The product of factor and var is at most -rest, which is at most -least.
        bound = (
            interval(None, -least // factor) if factor > 0 else interval(-(-least // -factor), None)
        )
        old = meet(top(var.type), now.get(var, TOP))
        new = meet(old, bound)
        if new != old:
            now = _put(now, out, var, new)
    return now


def _put(now: Ranges, out: dict[Var, Interval], var: Var, new: Interval) -> Ranges:
    if now is not out:
        out.update(now)
    out[var] = new
    return out


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
