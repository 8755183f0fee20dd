"""The iterations of a place as arrays of numbers, and what index expressions are on them.

What enters: the axes, guards and names around an access, and values for symbolic sizes. What
leaves: one array per variable with an entry for each iteration (all of them, or where there are too
many a part of them), and the value of an expression in each. Whatever is found on them is real;
what is not found may still be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.ir.affine import is_countable
from tilelang.ir.expr import Binary, BinaryOp, Call, Cast, Const, Expr, Select, Unary, UnaryOp, Var
from tilelang.ir.tile import Function
from tilelang.passes.check.walk import DEFAULT_THREADS, Axis, Guard, Place

Array = npt.NDArray[Any]
Values = dict[Var, "Array | int"]
Sizes = Mapping[Var, int]
"""What the sizes that launch binds are in an example."""

POINTS = 1 << 17
"""How many iterations one question looks at."""


class UnknownValueError(Exception):
    """An expression depends on memory, or on what is not known when the kernel is compiled."""


@dataclass(frozen=True)
class Points:
    """Some iterations of a place: every array has `count` entries."""

    values: Values
    count: int

    def at(self, var: Var, n: int) -> int:
        """The value of a variable in iteration `n`."""
        found = self.values[var]
        return int(found) if isinstance(found, int) else int(found[n])

    def array(self, e: Expr) -> Array:
        """The value of `e` in every iteration. `UnknownValueError` where it is not known."""
        return np.broadcast_to(np.asarray(value_of(e, self.values)), (self.count,))

    def last(self, names: Iterable[Var]) -> Points:
        """Only the iterations in which each of `names` has the largest value that was taken."""
        out = self
        for var in names:
            values = out.values[var]
            if not isinstance(values, int) and out.count:
                out = out.keep(values == values.max())
        return out

    def keep(self, mask: Array) -> Points:
        """Only the iterations where `mask` holds."""
        if bool(mask.all()):
            return self
        kept: Values = {v: a if isinstance(a, int) else a[mask] for v, a in self.values.items()}
        return Points(kept, int(mask.sum()))


# Values ------------------------------------------------------------------------------------------


def value_of(e: Expr, values: Mapping[Var, Array | int]) -> Array | int:
    """The value of an integer or bool expression; integers are taken not to overflow."""
    found: Any = _Evaluation(values).of(e)
    return int(found) if np.ndim(found) == 0 else found


class _Evaluation:
    def __init__(self, values: Mapping[Var, Array | int]) -> None:
        self.values = values
        self.known: dict[int, Array | int] = {}

    def of(self, e: Expr) -> Any:
        found = self.known.get(id(e))
        if found is None:
            found = self.known[id(e)] = self.compute(e)
        return found

    def compute(self, e: Expr) -> Any:
        if not is_countable(e.dtype):
            raise UnknownValueError
        found: Any
        match e:
            case Const():
                found = int(e.value)
            case Var():
                found = self.variable(e)
            case Binary():
                found = self.binary(e)
            case Unary():
                a = self.of(e.a)
                found = 1 - a if e.dtype.is_bool else _UNARY[e.op](a)
            case Select():
                found = _where(self.of(e.cond), self.of(e.t), self.of(e.f))
            case Cast():
                found = self.cast(e)
            case Call(fn="abs"):
                found = abs(self.of(e.args[0]))
            case _:
                raise UnknownValueError
        return found

    def variable(self, e: Var) -> Any:
        if e not in self.values:
            raise UnknownValueError
        return self.values[e]

    def binary(self, e: Binary) -> Any:
        if not is_countable(e.a.dtype):
            raise UnknownValueError
        a, b = self.of(e.a), self.of(e.b)
        if e.op in _DIVIDES and not np.all(b):
            raise UnknownValueError
        if e.op in _SHIFTS and (np.min(b) < 0 or np.max(b) >= e.dtype.bits):
            raise UnknownValueError
        rule = _BINARY.get(e.op)
        if rule is None:
            raise UnknownValueError
        return rule(a, b)

    def cast(self, e: Cast) -> Any:
        if not is_countable(e.a.dtype):
            raise UnknownValueError
        a = self.of(e.a)
        if e.type.is_bool:
            return _truth(a != 0)
        if e.type.bits >= min(64, e.a.dtype.bits + (e.a.dtype.is_uint and e.type.is_int)):
            return a
        low, high = int(e.type.min), int(e.type.max)
        return (a - low) % (high - low + 1) + low


def _where(cond: Any, t: Any, f: Any) -> Any:
    return np.asarray(np.where(np.asarray(cond) != 0, t, f), np.int64)


def _truth(x: Any) -> Any:
    return int(x) if np.ndim(x) == 0 else np.asarray(x, np.int64)


def _compare(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: _truth(fn(a, b))


def _truncdiv(a: Any, b: Any) -> Any:
    floor = a // b
    return floor + _truth((floor < 0) & (floor * b != a))


_UNARY: dict[UnaryOp, Callable[[Any], Any]] = {
    UnaryOp.NEG: lambda a: -a,
    UnaryOp.BITNOT: lambda a: -a - 1,
    UnaryOp.NOT: lambda a: 1 - a,
}
_DIVIDES = frozenset({BinaryOp.FLOORDIV, BinaryOp.FLOORMOD, BinaryOp.TRUNCDIV, BinaryOp.TRUNCMOD})
_SHIFTS = frozenset({BinaryOp.SHL, BinaryOp.SHR})
_BINARY: dict[BinaryOp, Callable[[Any, Any], Any]] = {
    BinaryOp.ADD: lambda a, b: a + b,
    BinaryOp.SUB: lambda a, b: a - b,
    BinaryOp.MUL: lambda a, b: a * b,
    BinaryOp.FLOORDIV: lambda a, b: a // b,
    BinaryOp.FLOORMOD: lambda a, b: a % b,
    BinaryOp.TRUNCDIV: _truncdiv,
    BinaryOp.TRUNCMOD: lambda a, b: a - b * _truncdiv(a, b),
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
    BinaryOp.BITAND: lambda a, b: a & b,
    BinaryOp.BITOR: lambda a, b: a | b,
    BinaryOp.BITXOR: lambda a, b: a ^ b,
    BinaryOp.SHL: lambda a, b: a << b,
    BinaryOp.SHR: lambda a, b: a >> b,
    BinaryOp.BITXOR: lambda a, b: a ^ b,
    BinaryOp.SHL: lambda a, b: a << b,
    BinaryOp.SHR: lambda a, b: a >> b,
    BinaryOp.AND: lambda a, b: a & b,
    BinaryOp.OR: lambda a, b: a | b,
    BinaryOp.EQ: _compare(lambda a, b: a == b),
    BinaryOp.NE: _compare(lambda a, b: a != b),
    BinaryOp.LT: _compare(lambda a, b: a < b),
    BinaryOp.LE: _compare(lambda a, b: a <= b),
    BinaryOp.GT: _compare(lambda a, b: a > b),
    BinaryOp.GE: _compare(lambda a, b: a >= b),
}


@dataclass(frozen=True)
class Take:
    """How many values of an axis to take: the first ones and some of the last.

    `most` None is as many as fit. With `ends`, half of them are the last ones.
    """

    most: int | None = None
    ends: bool = False

    def of(self, count: int, room: int) -> Array:
        """Which of `count` values to take, where there is room for `room`."""
        room = room if self.most is None else min(self.most, room)
        if count <= room:
            return np.arange(count)
        last = room // 2 if self.ends else room // 4 if room > 2 else 0
        return np.concatenate([np.arange(room - last), np.arange(count - last, count)])


# Iterations --------------------------------------------------------------------------------------


def points(
    place: Place,
    guards: Sequence[Guard],
    needed: Iterable[Expr],
    *,
    fixed: Sizes,
    spread: Callable[[Axis], Take],
) -> Points:
    """The iterations of `place` in which `guards` hold, over the axes that `needed` depends on.

    `fixed` gives symbolic sizes, and variables that are to have one value. `spread` gives how many
    values of an axis to take at most; of an axis that `needed` does not depend on only its first
    value is taken. `UnknownValueError` where guards or ranges are not
    known.
    """
    conditions = [g.cond for g in guards]
    names = _closure([*needed, *conditions], place.axes)
    out = Points(dict(fixed), 1)
    for axis in place.axes:
        if axis.var in fixed:
            continue
        out = _extended(out, axis, spread(axis) if axis.var in names else Take(1))
    for guard in guards:
        out = out.keep(out.array(guard.cond).astype(bool) == guard.holds)
    return out


def _extended(before: Points, axis: Axis, take: Take) -> Points:
    """Every iteration of `before` with every value of `axis`."""
    start = value_of(axis.start, before.values)
    stop: Array | int = DEFAULT_THREADS
    if axis.stop is not None:
        stop = value_of(axis.stop, before.values)
    counts = -((start - stop) // axis.step) if axis.step > 0 else -((stop - start) // -axis.step)
    rounds = max(0, int(np.max(counts))) if before.count else 0
    room = max(2, POINTS // max(1, before.count))
    chosen = take.of(rounds, room)
    values: Values = {
        v: a if isinstance(a, int) else np.repeat(a, len(chosen)) for v, a in before.values.items()
    }
    turn = np.tile(chosen, before.count)
    first = start if isinstance(start, int) else np.repeat(start, len(chosen))
    values[axis.var] = first + turn * axis.step
    made = Points(values, before.count * len(chosen))
    if isinstance(counts, int) or np.ndim(counts) == 0:
        return made
    return made.keep(turn < np.repeat(counts, len(chosen)))


def _closure(exprs: Iterable[Expr], axes: Iterable[Axis]) -> set[Var]:
    """The variables that expressions depend on, themselves or through the ranges of axes."""
    by_var = {axis.var: axis for axis in axes}
    found: set[Var] = set()
    stack = list(exprs)
    while stack:
        for node in stack.pop().walk():
            if not isinstance(node, Var) or node in found:
                continue
            found.add(node)
            axis = by_var.get(node)
            if axis is not None:
                stack += [axis.start, *(() if axis.stop is None else (axis.stop,))]
    return found


def names_in(*exprs: Expr) -> set[Var]:
    """The variables that occur in expressions."""
    return {n for e in exprs for n in e.walk() if isinstance(n, Var)}


# Sizes -------------------------------------------------------------------------------------------


def symbols(fn: Function) -> list[Var]:
    """The integers that are known at launch only: symbolic sizes and scalar parameters."""
    scalars = [p.var for p in fn.params if p.var is not None and is_countable(p.var.type)]
    return [*fn.dynamic, *scalars]


def samples(fn: Function, *, small: bool = False) -> list[Sizes]:
    """Values for what is known at launch only; a finding must hold for each of them.

    They are large and have many divisors, so that a tile size divides them as authors expect. With
    `small`, 1 is among them.
    """
    names = symbols(fn)
    if not names:
        return [{}]
    rows = [(1024, 512), (1536, 256), *([(1, 0)] if small else [])]
    return [{v: base + n * step for n, v in enumerate(names)} for base, step in rows]
