"""Proofs that accesses of different iterations never meet.

What enters: accesses of one buffer, and the variables that tell iterations apart. What leaves: True
if boxes of iterations that differ in one of those variables are disjoint, else False (not proved).
An index such as `by * 128 + i` with `i` below 128 gives the value of `by` back, whatever the other
variables are; if all variables can be had back like this, no two iterations meet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
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


def apart(touches: Sequence[Touch], telling: Collection[Var], shared: Collection[Var]) -> bool:
    """Whether no two of the accesses meet in iterations that differ in `telling`.

    An access is compared with itself, too. `shared` are the variables that have one value for all
    iterations.
    """
    had: set[Expr] = set()
    for axis in range(touches[0].buffer.rank):
        had |= _digits(touches, axis, telling, shared)
    return all(_follows(v, had) for v in telling if _choices(touches, v) != 1)


def _digits(
    touches: Sequence[Touch], axis: int, telling: Collection[Var], shared: Collection[Var]
) -> set[Expr]:
    """What the position along one axis gives back: terms over `telling` that must be equal."""
    splits: list[_Split] = []
    for touch in touches:
        split = _split(touch, axis, telling)
        if split is None or (splits and split.digits.terms != splits[0].digits.terms):
            return set()
        splits.append(split)
    reach = _reach(touches, splits, shared)
    found: set[Expr] = set()
    terms = sorted(splits[0].digits.terms.items(), key=lambda item: abs(item[1]))
    for n, (atom, factor) in enumerate(terms):
        if abs(factor) < reach:
            return set()
        found.add(atom)
        choices = _choices(touches, atom)
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


def _reach(touches: Sequence[Touch], splits: Sequence[_Split], shared: Collection[Var]) -> int:
    """How many positions the boxes cover, apart from the digits and what all have in common."""
    common = {
        atom
        for atom, f in splits[0].rest.terms.items()
        if names_in(atom) <= set(shared)
        and is_stable(atom)
        and all(split.rest.terms.get(atom) == f for split in splits)
    }
    least: list[int] = []
    most: list[int] = []
    for split, touch in zip(splits, touches, strict=True):
        own = {atom: f for atom, f in split.rest.terms.items() if atom not in common}
        lo, hi = form_span(Form(own, split.rest.const), touch.place.env.bounds)
        least.append(lo)
        most.append(hi + split.size - 1)
    return max(most) - min(least) + 1


def _choices(touches: Sequence[Touch], atom: Expr) -> int | None:
    """How many values an expression may have in all, None where that is not known."""
    most = limits(atom.dtype)[1]
    lows: list[int] = []
    highs: list[int] = []
    for env in {id(t.place.env): t.place.env for t in touches}.values():
        found = env.bounds(atom)
        if found.lo is None or found.hi is None or found.hi >= most:
            return None
        lows.append(found.lo)
        highs.append(found.hi)
    return max(highs) - min(lows) + 1


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
