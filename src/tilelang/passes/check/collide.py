"""Looking for two iterations that touch one element, on actual numbers.

What enters: two accesses of one buffer, iterations of each, and which variables tell the iterations
apart. What leaves: one pair of iterations that meet, with the element; or None. The boxes of the
accesses are clipped to the buffer, as accesses outside global memory do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilelang.ir.affine import Form
from tilelang.ir.expr import Binary, BinaryOp, Const, Expr, Var, const, int_value
from tilelang.ir.simplify import simplify
from tilelang.passes.check.domain import POINTS, Array, Points, names_in, value_of
from tilelang.passes.check.walk import AxisKind, Guard, Touch

_PAIRS = 1 << 22  # pairs of boxes that are compared at once


@dataclass(frozen=True)
class Meeting:
    """Two iterations that touch one element; each as the values of its variables."""

    element: tuple[int, ...]
    first: Mapping[Var, int]
    second: Mapping[Var, int]
    # The telling variables that differ between iterations that meet, over all that were found.
    differ: frozenset[Var]


@dataclass(frozen=True)
class Boxes:
    """A box for each iteration: `lo` up to but without `hi`, of shape (axes, iterations)."""

    lo: Array
    hi: Array
    code: Array
    at: Points

    def only(self, rows: Array) -> Boxes:
        """Some of the boxes."""
        at = Points(
            {v: a if isinstance(a, int) else a[rows] for v, a in self.at.values.items()},
            len(rows),
        )
        return Boxes(self.lo[:, rows], self.hi[:, rows], self.code[rows], at)


def boxes(touch: Touch, at: Points, telling: Sequence[Var]) -> Boxes:
    """The boxes of an access in some iterations, clipped to the buffer; empty ones left out."""
    mins = [at.array(e) for e in touch.mins]
    sizes = [at.array(e) for e in touch.extents]
    shape = [value_of(e, at.values) for e in touch.buffer.shape]
    lo = np.stack([np.maximum(m, 0) for m in mins])
    hi = np.stack([np.minimum(m + n, most) for m, n, most in zip(mins, sizes, shape, strict=True)])
    made = Boxes(lo, hi, code_of(at, telling), at)
    return made.only(np.flatnonzero((lo < hi).all(axis=0)))


def code_of(at: Points, telling: Sequence[Var]) -> Array:
    """A number for each iteration, equal only where all of `telling` are equal."""
    code = np.zeros(at.count, np.int64)
    for var in telling:
        values = at.array(var)
        code = code * (int(values.max(initial=0)) + 1) + values
    return code


def meeting(a: Boxes, b: Boxes, telling: Sequence[Var]) -> Meeting | None:
    """Two iterations with different codes whose boxes have an element in common."""
    if not a.at.count or not b.at.count:
        return None
    volumes = [int((x.hi - x.lo).prod(axis=0).sum()) for x in (a, b)]
    if max(volumes) <= POINTS:
        return _by_element(_elements(a), _elements(b), telling)
    return _by_box(_thinned(a), _thinned(b), telling)


def _thinned(a: Boxes) -> Boxes:
    most = int(_PAIRS**0.5)
    return a if a.at.count <= most else a.only(np.arange(most))


def _by_box(a: Boxes, b: Boxes, telling: Sequence[Var]) -> Meeting | None:
    meets = a.code[:, None] != b.code[None, :]
    for axis in range(len(a.lo)):
        meets &= a.lo[axis][:, None] < b.hi[axis][None, :]
        meets &= b.lo[axis][None, :] < a.hi[axis][:, None]
    found = np.argwhere(meets)
    if not len(found):
        return None
    n, m = (int(k) for k in found[0])
    element = tuple(int(max(x, y)) for x, y in zip(a.lo[:, n], b.lo[:, m], strict=True))
    differ = frozenset(v for v in telling if a.at.at(v, n) != b.at.at(v, m))
    return Meeting(element, _values(a.at, n), _values(b.at, m), differ)


def _values(at: Points, n: int) -> dict[Var, int]:
    return {v: at.at(v, n) for v in at.values}


@dataclass(frozen=True)
class _Elements:
    """An element for each entry: its index along each axis, and the iteration it belongs to."""

    index: Array
    row: Array
    boxes: Boxes


def _elements(a: Boxes) -> _Elements:
    rows = np.arange(a.at.count)
    index = a.lo
    for axis in range(len(a.lo)):
        counts = (a.hi - a.lo)[axis][rows]
        if (counts == 1).all():
            continue
        offset = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        rows, index = np.repeat(rows, counts), np.repeat(index, counts, axis=1)
        index = index.copy()
        index[axis] += offset
    return _Elements(index, rows, a)


def _by_element(a: _Elements, b: _Elements, telling: Sequence[Var]) -> Meeting | None:
    """Sorts the elements of `a` and looks up those of `b`."""
    extents = np.maximum(a.index.max(axis=1), b.index.max(axis=1)) + 1
    keys = [_flat(x.index, extents) for x in (a, b)]
    codes = [x.boxes.code[x.row] for x in (a, b)]
    order = np.lexsort((codes[0], keys[0]))
    key, code = keys[0][order], codes[0][order]
    # Of the iterations of `a` that touch an element, the one with the least and with the most.
    left = np.searchsorted(key, keys[1], side="left")
    right = np.searchsorted(key, keys[1], side="right") - 1
    there = np.flatnonzero(right >= left)
    least, most = code[left[there]], code[right[there]]
    mine = codes[1][there]
    meets = np.flatnonzero((least != mine) | (most != mine))
    if not len(meets):
        return None
    k = int(meets[0])
    at = int(left[there[k]])
    at += int(np.argmax(code[at : int(right[there[k]]) + 1] != mine[k]))
    n, m = int(a.row[order[at]]), int(b.row[there[k]])
    element = tuple(int(x) for x in b.index[:, there[k]])
    differ = _differing(a, b, (order, left, right), there[meets], telling)
    return Meeting(element, _values(a.boxes.at, n), _values(b.boxes.at, m), differ)


def _flat(index: Array, extents: Array) -> Array:
    flat = np.zeros(index.shape[1], np.int64)
    for axis, extent in enumerate(extents):
        flat = flat * int(extent) + index[axis]
    return flat


def _differing(
    a: _Elements,
    b: _Elements,
    found: tuple[Array, Array, Array],
    meets: Array,
    telling: Sequence[Var],
) -> frozenset[Var]:
    """The variables in which iterations that meet differ, for the first and last that meet."""
    order, left, right = found
    out: set[Var] = set()
    for var in telling:
        values = a.boxes.at.array(var)[a.row[order]]
        mine = b.boxes.at.array(var)[b.row[meets]]
        apart = (values[left[meets]] != mine) | (values[right[meets]] != mine)
        if bool(apart.any()):
            out.add(var)
    return frozenset(out)


# Fewer iterations --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Widened:
    """An access as boxes; `inside` are the loop variables that became part of the box, by axis."""

    touch: Touch
    inside: Mapping[Var, int]

    def values(self, found: Mapping[Var, int], element: Sequence[int]) -> dict[Var, int]:
        """The values of all variables for which the access touches `element`."""
        first = {v: int(value_of(self.touch.mins[n], found)) for v, n in self.inside.items()}
        return {**found, **{v: element[n] - first[v] for v, n in self.inside.items()}}


def widened(touch: Touch) -> Widened:
    """The same elements as boxes, loops with consecutive elements being part of the box.

    `C[by * 64 + i, j]` for all i below 64 is the box of 64 rows from `by * 64`. Guards that only
    keep the access inside the buffer are dropped, since boxes are clipped to it.
    """
    guards = tuple(g for g in touch.guards if not _keeps_inside(g, touch))
    used = [names_in(e) for e in (*touch.mins, *touch.extents, *(g.cond for g in guards))]
    used += [names_in(a.start, *(() if a.stop is None else (a.stop,))) for a in touch.place.axes]
    mins, extents = list(touch.mins), list(touch.extents)
    inside: dict[Var, int] = {}
    for axis in reversed(touch.place.axes):
        known = None if axis.stop is None else int_value(axis.stop)
        whole = axis.step == 1 and int_value(axis.start) == 0 and axis.kind is not AxisKind.BLOCK
        if not known or not whole or sum(axis.var in names for names in used) != 1:
            continue
        for n, e in enumerate(mins):
            if axis.var in names_in(e) and int_value(extents[n]) == 1:
                rest = _without(touch, n, axis.var)
                if rest is not None:
                    mins[n], extents[n], inside[axis.var] = rest, const(known), n
    boxed = replace(touch, mins=tuple(mins), extents=tuple(extents), guards=guards)
    return Widened(boxed, inside)


def _without(touch: Touch, axis: int, var: Var) -> Expr | None:
    """The index without `var`, if it is `var` plus something that does not depend on it."""
    form: Form = touch.place.env.linear(touch.mins[axis])
    if form.terms.get(var) != 1 or any(var in names_in(a) for a in form.terms if a != var):
        return None
    zero = Const(0, var.type)
    return simplify(touch.mins[axis].rewrite(lambda n: zero if n == var else None))


def _keeps_inside(guard: Guard, touch: Touch) -> bool:
    """Whether a guard says no more than that the indices are inside the buffer."""
    return guard.holds and all(_is_limit(c, touch) for c in _conjuncts(guard.cond))


def _conjuncts(e: Expr) -> list[Expr]:
    if isinstance(e, Binary) and e.op is BinaryOp.AND:
        return [*_conjuncts(e.a), *_conjuncts(e.b)]
    return [e]


def _is_limit(e: Expr, touch: Touch) -> bool:
    if not isinstance(e, Binary) or e.op is not BinaryOp.LT:
        return False
    pairs = zip(touch.mins, touch.buffer.shape, strict=True)
    return any(e.a == index and e.b == size for index, size in pairs)
