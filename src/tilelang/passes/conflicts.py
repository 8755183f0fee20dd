"""Whether two accesses of the threads of a block may meet in one element.

What enters: accesses: an array of the thread stage or a buffer of the tile stage, the number of an
element, what is read or written, the loops around and the conditions above. What leaves: False
where different threads never touch one element; True where they may. The part of an index that is
the same for all threads must be the same for both; the rest is worked out for every thread and
round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from tilelang.ir.affine import Analysis, Form
from tilelang.ir.expr import Binary, BinaryOp, Buffer, Cast, Const, Expr, Unary, UnaryOp, Var
from tilelang.ir.thread import Array

Values = npt.NDArray[Any]
MOST = 1 << 20
"""How many (thread, round) pairs are looked at; accesses with more are taken to meet."""


A = TypeVar("A", Array, Buffer)


@dataclass(frozen=True)
class Access(Generic[A]):
    """An access by each thread: `count` elements from `index` on, in all rounds of the loops over
    `rounds` (name and number of rounds), where `guards` hold. A write that is `flying` happens
    where it is waited for; what is `handed` over is ordered by an mbarrier from then on. Of the
    accesses of a `unit`, which are made in order, no two meet.
    """

    array: A
    index: Expr
    count: int
    writes: bool
    atomic: bool = False
    rounds: tuple[tuple[str, int], ...] = ()
    guards: tuple[Expr, ...] = ()
    known: bool = True
    flying: bool = False
    handed: bool = False
    unit: bool = False

    def renamed(self, values: Mapping[str, Expr]) -> Access[A]:
        """The access of another round: variables of loops around have other values."""
        return replace(
            self,
            index=_swap(self.index, values),
            guards=tuple(_swap(g, values) for g in self.guards),
        )


def _swap(e: Expr, values: Mapping[str, Expr]) -> Expr:
    if isinstance(e, Var):
        return values.get(e.name, e)
    return e.rewrite(lambda n: values.get(n.name) if isinstance(n, Var) else None)


class Unknown(Exception):
    """A value that depends on more than threads and rounds."""


@dataclass
class Threads:
    """Threads of a block, by the names of their indices: `only` of them from the thread `first` on
    (all without it).
    """

    extents: Mapping[str, int]
    first: int = 0
    only: int = 0

    @property
    def count(self) -> int:
        """How many there are."""
        return self.only or math.prod(self.extents.values())

    def values(self) -> dict[str, Values]:
        """The index of every thread, x fastest."""
        out: dict[str, Values] = {}
        flat = np.arange(self.first, self.first + self.count)
        for name, extent in self.extents.items():
            out[name] = flat % extent
            flat = flat // extent
        return out


class Meetings:
    """Whether accesses meet, for one set of threads; each is worked out once."""

    def __init__(self, threads: Threads) -> None:
        self.threads = threads
        self.known: dict[Access[Any], _Places | None] = {}

    def places(self, a: Access[Any]) -> _Places | None:
        """The elements of an access; None where they are not known."""
        if a not in self.known:
            try:
                self.known[a] = _Places(a, self.threads)
            except Unknown:
                self.known[a] = None
        return self.known[a]

    def meet(self, a: Access[Any], b: Access[Any]) -> bool:
        """Whether two different threads may touch one element, one of them writing it."""
        if not (a.writes or b.writes) or (a.atomic and b.atomic):
            return False
        left, right = self.places(a), self.places(b)
        if not (a.known and b.known) or left is None or right is None:
            return True
        if left.common != right.common:
            return not _apart(left, right)
        return left.meets(right)


class _Places:
    """The elements that each thread touches, but for an offset that all share."""

    def __init__(self, a: Access[Any], threads: Threads) -> None:
        names = set(threads.extents) | {n for n, _ in a.rounds}
        form = Analysis({}, False).linear(a.index)
        own: dict[Expr, int] = {}
        common: dict[Expr, int] = {}
        for atom, factor in form.terms.items():
            used = {n.name for n in atom.walk() if isinstance(n, Var)}
            if not used & names:
                common[atom] = factor
            elif used <= names and _is_plain(atom):
                own[atom] = factor
            else:
                raise Unknown
        self.common: tuple[frozenset[tuple[Expr, int]], int] = (frozenset(common.items()), 0)
        self.own = Form(own, form.const)
        self.elements, self.who = self._worked_out(a, threads)

    def _worked_out(self, a: Access[Any], threads: Threads) -> tuple[Values, Values]:
        rounds = math.prod(n for _, n in a.rounds)
        if rounds * threads.count * a.count > MOST:
            raise Unknown
        shape = (threads.count, *(n for _, n in a.rounds))
        env: dict[str, Values] = {}
        for name, v in threads.values().items():
            env[name] = v.reshape(-1, *[1] * len(a.rounds))
        for k, (name, n) in enumerate(a.rounds):
            env[name] = np.arange(n).reshape(*[1] * (k + 1), n, *[1] * (len(a.rounds) - k - 1))
        index = np.full(shape, self.own.const)
        for atom, factor in self.own.terms.items():
            index = index + factor * number(atom, env)
        holds = np.full(shape, True)
        for g in a.guards:
            try:
                holds = holds & number(g, env).astype(bool)
            except Unknown:
                continue
        who = np.broadcast_to(np.arange(threads.count).reshape(-1, *[1] * len(a.rounds)), shape)
        self.count = a.count
        return np.broadcast_to(index, shape)[holds], who[holds]

    def meets(self, other: _Places) -> bool:
        """Whether an element of one is touched by another thread in the other."""
        mine, who = self.in_units(other)
        theirs, others = other.in_units(self)
        if not mine.size or not theirs.size:
            return False
        low = min(mine.min(), theirs.min())
        high = max(mine.max(), theirs.max())
        if high - low > 4 * MOST:
            return True
        owner = np.full(int(high - low) + 1, -1)
        shared = np.zeros(int(high - low) + 1, bool)
        owner[mine - low] = who
        several = owner[mine - low] != who
        shared[mine[several] - low] = True
        at = theirs - low
        return bool(((owner[at] >= 0) & ((owner[at] != others) | shared[at])).any())

    def in_units(self, other: _Places) -> tuple[Values, Values]:
        """Every element and who touches it; groups count as one where both have groups of the same
        size that begin at multiples of it.
        """
        n = self.count
        grouped = n == other.count and not (self.elements % n).any()
        if n == 1 or (grouped and not (other.elements % n).any()):
            return self.elements // n, self.who
        every = (self.elements[:, None] + np.arange(n)).reshape(-1)
        return every, np.repeat(self.who, n)

    def span(self) -> tuple[int, int]:
        """The lowest and the highest element, without the shared offset."""
        if not self.elements.size:
            return 0, -1
        return int(self.elements.min()), int(self.elements.max()) + self.count - 1


def _apart(left: _Places, right: _Places) -> bool:
    """Whether offsets keep two accesses apart: stages of a buffer that is used in turn."""
    x, y = dict(left.common[0]), dict(right.common[0])
    atoms = [e for e in dict.fromkeys((*x, *y)) if x.get(e, 0) != y.get(e, 0)]
    names = sorted({n.name for e in atoms for n in e.walk() if isinstance(n, Var)})
    periods = [n for e in atoms for n in _moduli(e)]
    if not names or not periods or len(names) > 2 or not all(_is_periodic(e) for e in atoms):
        return False
    period = math.lcm(*periods)
    if period ** len(names) > 4096:
        return False
    grid = np.meshgrid(*[np.arange(period)] * len(names), indexing="ij")
    env = {n: g.reshape(-1) for n, g in zip(names, grid, strict=True)}
    zero = np.zeros(period ** len(names), np.int64)
    try:
        first = sum((number(e, env) * f for e, f in x.items() if e in atoms), zero)
        second = sum((number(e, env) * f for e, f in y.items() if e in atoms), zero)
    except Unknown:
        return False
    (low_a, high_a), (low_b, high_b) = left.span(), right.span()
    return bool(((first + high_a < second + low_b) | (second + high_b < first + low_a)).all())


def _is_periodic(e: Expr) -> bool:
    """Whether an atom is a remainder by a constant of a sum with whole coefficients."""
    if not (isinstance(e, Binary) and e.op is BinaryOp.FLOORMOD and isinstance(e.b, Const)):
        return False
    form = Analysis({}, False).linear(e.a)
    return all(isinstance(t, Var) for t in form.terms)


def _moduli(e: Expr) -> Sequence[int]:
    return [
        int(n.b.value)
        for n in e.walk()
        if isinstance(n, Binary) and n.op is BinaryOp.FLOORMOD and isinstance(n.b, Const)
    ]


def _is_plain(e: Expr) -> bool:
    return all(isinstance(n, (Const, Var, Binary, Unary, Cast)) for n in e.walk())


_NUMPY: Mapping[BinaryOp, Any] = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUB: np.subtract,
    BinaryOp.MUL: np.multiply,
    BinaryOp.FLOORDIV: np.floor_divide,
    BinaryOp.FLOORMOD: np.mod,
    BinaryOp.MIN: np.minimum,
    BinaryOp.MAX: np.maximum,
    BinaryOp.BITAND: np.bitwise_and,
    BinaryOp.BITOR: np.bitwise_or,
    BinaryOp.BITXOR: np.bitwise_xor,
    BinaryOp.SHL: np.left_shift,
    BinaryOp.SHR: np.right_shift,
    BinaryOp.EQ: np.equal,
    BinaryOp.NE: np.not_equal,
    BinaryOp.LT: np.less,
    BinaryOp.LE: np.less_equal,
    BinaryOp.GT: np.greater,
    BinaryOp.GE: np.greater_equal,
    BinaryOp.AND: np.logical_and,
    BinaryOp.OR: np.logical_or,
}


def number(e: Expr, env: Mapping[str, Values]) -> Values:
    """The values of an integer expression, where indices do not overflow. Raises `Unknown`."""
    match e:
        case Const():
            return np.asarray(int(e.value))
        case Var() if e.name in env:
            return env[e.name]
        case Binary() if e.op in _NUMPY:
            with np.errstate(all="ignore"):
                return _NUMPY[e.op](number(e.a, env), number(e.b, env))
        case Unary(op=UnaryOp.NOT):
            return np.logical_not(number(e.a, env))
        case Unary(op=UnaryOp.NEG):
            return -number(e.a, env)
        case Cast() if e.type.is_integer:
            return number(e.a, env)
        case _:
            raise Unknown
