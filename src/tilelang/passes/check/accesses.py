"""Whether every access stays inside its buffer.

What enters: a `Program`. What leaves: errors for accesses on chip that leave their buffer for some
iteration, and for constant indices outside a tensor, each with the values that lead there; notes
for other accesses outside a tensor, which read as zero and store nothing. An access that is neither
proved inside nor seen outside gives no finding: the dynamic check looks at it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilelang.errors import Diagnostic, Loc, Severity
from tilelang.ir.bounds import Env, at_most
from tilelang.ir.expr import Var, int_value
from tilelang.passes.check.domain import (
    POINTS,
    Sizes,
    Take,
    UnknownValueError,
    names_in,
    points,
    samples,
    value_of,
)
from tilelang.passes.check.program import Program
from tilelang.passes.check.races import sizes_text, used_by
from tilelang.passes.check.walk import Axis, Touch
from tilelang.scopes import facts


@dataclass(frozen=True)
class _Outside:
    """An iteration in which an access leaves its buffer along one axis."""

    axis: int
    first: int
    size: int
    extent: int
    values: dict[Var, int]
    sizes: Sizes


def accesses_inside(program: Program) -> Iterator[Diagnostic]:
    """On chip, no iteration leaves its buffer; in global memory, no constant index does, and no
    constant slice lies outside as a whole.
    """
    for touch in program.touches:
        if not touch.effect or not touch.place.certain:
            continue
        on_chip = facts(program.memory(touch.buffer)).on_chip
        if not on_chip and touch.element is None:
            yield from _slices_outside(program, touch)
            continue
        env = _env(touch)
        for axis in range(touch.buffer.rank):
            if _proved(touch, axis, env):
                continue
            found = _outside(program, touch, axis)
            if found is not None:
                yield _finding(program, touch, found, on_chip)
                break


def _slices_outside(program: Program, touch: Touch) -> Iterator[Diagnostic]:
    """A slice of global memory that has no element; one that sticks out is cut."""
    env = touch.place.env
    if any(env.bounds(g.cond).value == (not g.holds) for g in touch.place.guards):
        return  # it is never made
    for axis in range(touch.buffer.rank):
        first = touch.place.env.bounds(touch.mins[axis]).value
        extent, size = int_value(touch.extents[axis]), int_value(touch.buffer.shape[axis])
        if first is None or not extent or not size or -extent < first < size:
            continue
        found = _Outside(axis, int(first), size, extent, {}, {})
        yield _finding(program, touch, found, on_chip=False)
        return


def _env(touch: Touch) -> Env:
    """What holds where the access happens, lazy selects around it included."""
    env = touch.place.env
    for guard in touch.guards[len(touch.place.guards) :]:
        env = env.assume(guard.cond, holds=guard.holds)
    return env


def _proved(touch: Touch, axis: int, env: Env) -> bool:
    low = env.linear(touch.mins[axis])
    high = low.plus(env.linear(touch.extents[axis])).plus(env.linear(touch.buffer.shape[axis]), -1)
    return at_most(low.scaled(-1), env, goal=0) <= 0 and at_most(high, env, goal=0) <= 0


def _outside(program: Program, touch: Touch, axis: int) -> _Outside | None:
    """An iteration outside, if there is one whatever the sizes are that launch binds."""
    found: list[_Outside] = []
    for sizes in samples(program.fn, small=True):
        try:
            one = _search(touch, axis, sizes)
        except UnknownValueError:
            return None
        if one is None:
            return None
        found.append(one)
    return found[0]


def _search(touch: Touch, axis: int, sizes: Sizes) -> _Outside | None:
    asked = [touch.mins[axis], touch.extents[axis], touch.buffer.shape[axis]]
    names = names_in(*asked, *(g.cond for g in touch.guards))
    count = max(1, sum(a.var in names for a in touch.place.axes))
    most = max(4, int(POINTS ** (1 / count)))

    def spread(_: Axis) -> Take:
        return Take(most, ends=True)

    at = points(touch.place, touch.guards, asked, fixed=sizes, spread=spread)
    if not at.count:
        return None
    first, extent = at.array(asked[0]), at.array(asked[1])
    size = int(value_of(asked[2], at.values))
    leaves = (extent > 0) & ((first < 0) | (first + extent > size))
    rows = np.flatnonzero(leaves)
    if not len(rows):
        return None
    n = int(rows[0])
    values = {v: at.at(v, n) for v in at.values}
    return _Outside(axis, int(first[n]), size, int(extent[n]), values, sizes)


def _finding(program: Program, touch: Touch, found: _Outside, on_chip: bool) -> Diagnostic:
    buffer, axis = touch.buffer, found.axis
    index = touch.mins[axis]
    known = touch.place.env.bounds(index).value is not None
    constant = known and int_value(buffer.shape[axis]) is not None
    error = on_chip or constant
    last = found.first + found.extent - 1
    span = f"index {found.first}" if found.extent == 1 else f"elements {found.first} to {last}"
    used = names_in(index, touch.extents[axis], *(g.cond for g in touch.guards))
    names = [v for v in found.values if v in used and v not in found.sizes]
    example = program.example(found.values, names)
    return Diagnostic(
        "bounds",
        f"{span} {'is' if found.extent == 1 else 'are'} outside axis {axis} of {buffer.name},"
        f" which has {found.size} element{'s' * (found.size != 1)}",
        touch.loc,
        label=f"{example} gives {span}" if example else "",
        expected=f"0 to {found.size - 1}" if found.size else "no access: the axis is empty",
        got=program.indexed(buffer, touch.mins) if names else span,
        notes=sizes_text(program, found.sizes, used_by(touch)) if error else _harmless(touch),
        help=_guard(program, touch, found) if error else "",
        related=_defined(program, touch) if error else (),
        severity=Severity.ERROR if error else Severity.NOTE,
    )


def _harmless(touch: Touch) -> tuple[str, ...]:
    if touch.writes:
        return ("a store outside a tensor does nothing",)
    return ("a read outside a tensor gives 0, or its annotated safe value",)


def _guard(program: Program, touch: Touch, found: _Outside) -> str:
    index = touch.mins[found.axis]
    if not names_in(index):
        return ""
    if found.extent != 1:
        return "take a smaller slice, or allocate a larger buffer"
    text = program.shown(index)
    cond = f"{text} >= 0" if found.first < 0 else f"{text} < {found.size}"
    what = "store" if touch.writes else "read"
    return f"guard the {what}: `if {cond}:`, or allocate a larger buffer"


def _defined(program: Program, touch: Touch) -> tuple[tuple[Loc, str], ...]:
    at = program.defined_at(touch.buffer)
    return () if at is None or at == touch.loc else ((at, program.allocated(touch.buffer)),)
