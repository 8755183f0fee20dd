"""Proofs that two accesses of different iterations never meet.

What enters: two accesses of one buffer, and the variables that tell iterations apart. What leaves:
True if boxes of iterations that differ in one of those variables are disjoint, else False (not
proved). An index such as `by * 128 + i` with `i` below 128 gives the value of `by` back, whatever
the other variables are; if all variables can be had back like this, no two iterations meet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tilelang.ir.affine import Form, form_span, is_stable
from tilelang.ir.expr import Binary, BinaryOp, Const, Expr, Var
from tilelang.ir.interval import limits
from tilelang.passes.check.domain import names_in
from tilelang.passes.check.walk import Touch


@dataclass(frozen=True)
class _Split:
    """A first index as a sum: terms that tell iterations apart, the rest; and the box's extent."""

    digits: Form
    rest: Form
    size: int


def apart(a: Touch, b: Touch, telling: Collection[Var], shared: Collection[Var]) -> bool:
    """Whether `a` and `b` are disjoint in any two iterations that differ in `telling`.

    `shared` are the variables that have one value for both iterations.
    """
    had: set[Expr] = set()
    for axis in range(a.buffer.rank):
        had |= _digits(a, b, axis, telling, shared)
    return all(_follows(v, had) for v in telling if _choices(a, b, v) != 1)


def _digits(
    a: Touch, b: Touch, axis: int, telling: Collection[Var], shared: Collection[Var]
) -> set[Expr]:
    """What the position along one axis gives back: terms over `telling` that must be equal."""
    x, y = _split(a, axis, telling), _split(b, axis, telling)
    if x is None or y is None or x.digits.terms != y.digits.terms:
        return set()
    lo, hi = _reach((x, a), (y, b), shared)
    reach = hi - lo + 1
    found: set[Expr] = set()
    terms = sorted(x.digits.terms.items(), key=lambda item: abs(item[1]))
    for n, (atom, factor) in enumerate(terms):
        if abs(factor) < reach:
            return set()
        found.add(atom)
        choices = _choices(a, b, atom)
        if choices is None:
            return found if n == len(terms) - 1 else set()
        reach += abs(factor) * (choices - 1)
    return found


def _split(touch: Touch, axis: int, telling: Collection[Var]) -> _Split | None:
    env = touch.place.env
    form = env.linear(touch.mins[axis])
    digits = {atom: f for atom, f in form.terms.items() if names_in(atom) & set(telling)}
    rest = Form({atom: f for atom, f in form.terms.items() if atom not in digits}, form.const)
    if any(names_in(atom) - set(telling) for atom in digits):
        return None
    size = env.bounds(touch.extents[axis]).hi
    return None if size is None else _Split(Form(digits), rest, size)


def _reach(
    a: tuple[_Split, Touch], b: tuple[_Split, Touch], shared: Collection[Var]
) -> tuple[int, int]:
    """The positions that either box covers, relative to the digits and what both have in common."""
    common = {
        atom
        for atom, f in a[0].rest.terms.items()
        if b[0].rest.terms.get(atom) == f and names_in(atom) <= set(shared) and is_stable(atom)
    }
    least: list[int] = []
    most: list[int] = []
    for split, touch in (a, b):
        own = {atom: f for atom, f in split.rest.terms.items() if atom not in common}
        lo, hi = form_span(Form(own, split.rest.const), touch.place.env.bounds)
        least.append(lo)
        most.append(hi + split.size - 1)
    return min(least), max(most)


def _choices(a: Touch, b: Touch, atom: Expr) -> int | None:
    """How many values an expression may have on both sides, None where that is not known."""
    x, y = a.place.env.bounds(atom), b.place.env.bounds(atom)
    most = limits(atom.dtype)[1]
    if x.lo is None or y.lo is None or x.hi is None or y.hi is None or max(x.hi, y.hi) >= most:
        return None
    return max(x.hi, y.hi) - min(x.lo, y.lo) + 1


def _follows(e: Expr, had: Iterable[Expr]) -> bool:
    """Whether the value of `e` is among `had`, or follows from a quotient and remainder there."""
    known = set(had)
    if e in known:
        return True
    parts = {
        n
        for atom in known
        for n in atom.walk()
        if isinstance(n, Binary) and n.op is BinaryOp.FLOORMOD and n.a == e
    }
    return any(
        _follows(mod, known - {e}) and _follows(Binary(BinaryOp.FLOORDIV, e, mod.b), known)
        for mod in parts
        if isinstance(mod.b, Const)
    )
