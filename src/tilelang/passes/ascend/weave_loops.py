"""What two kinds of core hand to each other, in an order of statements that means what they do.

What enters: a function of the adapter's dialect whose cores are ordered automatically, where each
statement has its core. What leaves: the same in an order that means what the author means. In the
adapter tree a kernel is one program for each kind of core, and both run at the same time; the n-th
use of a workspace on one core is for the n-th use on the other. So a loop on the cube core may come
before the loop on the vector cores that it exchanges workspaces with, and a read before the write
that it is for. Here statements have an order, and all passes rely on it: such loops become one, in
which each read of a round comes after its write, and such a read comes behind its write
(`exchange.py`). What cannot be put in such an order is refused.

Two loops meet by a workspace: a buffer in global memory that one of them writes and the other reads
on the other kind of core. One that only the second writes may be a tensor that is changed in place;
it is a workspace if its name says so, which is all that the adapter tree looks at, or if something
goes the other way too. Where program order serves as well (each round has a part of its own, and
nothing comes back), it stays if the loops cannot be woven. Other uses of a workspace in the launch
come before both loops or after both, as many on the one kind of core as on the other; else the n-th
use would not be for the n-th.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilelang.errors import TileError, error
from tilelang.ir.ascend import Core, CoreRegion, CrossSet, CrossWait, SyncAll
from tilelang.ir.expr import Binary, BinaryOp, Expr, Region, Var
from tilelang.ir.simplify import simplify, substitute
from tilelang.ir.tile import (
    Block,
    Break,
    Continue,
    For,
    Function,
    Pipelined,
    Stmt,
)
from tilelang.isa.target import Target
from tilelang.passes.ascend.effects import Access, Effects, conflict
from tilelang.passes.ascend.exchange import WORKSPACE, Exchange
from tilelang.passes.ascend.insert_sync import MADE
from tilelang.passes.ascend.schedule import gives, uses
from tilelang.passes.ascend.settings import Automatic, is_automatic
from tilelang.passes.build import map_bodies, map_launches
from tilelang.scopes import Dialect, Memory

Loop = For | Pipelined
Uses = Counter[tuple[str, Core]]
Place = tuple[int, int]
"""A statement: of the first loop (0) or the second (1), and its number in the body."""


def weave_loops(fn: Function, target: Target) -> Function:
    """The function with loops that meet in every round woven into one."""
    del target
    if fn.dialect != Dialect.ADAPTER.value or not is_automatic(fn, Automatic.CROSS_SYNC):
        return fn
    if any(isinstance(n, (CrossSet, CrossWait)) for n in fn.walk()):
        return fn  # the author orders the cores
    effects = Effects(fn)
    made = frozenset(dict(fn.attrs).get(MADE, ()))
    exchange = Exchange(effects, made)
    fn = map_launches(fn, lambda body: _Weaver(effects, body).block(body))
    return map_launches(fn, lambda body: exchange.block(body, {}))


@dataclass(frozen=True)
class _Side:
    """One of two loops, and what each statement of its body touches."""

    loop: Loop
    touched: tuple[tuple[Access, ...], ...]

    def of(self, name: str, at: int | None = None) -> list[Access]:
        """What the body, or one statement of it, does to a buffer."""
        each = self.touched if at is None else self.touched[at : at + 1]
        return [a for some in each for a in some if a.root.name == name]

    def places(self, name: str) -> list[int]:
        """The statements that touch a buffer."""
        return [k for k in range(len(self.touched)) if self.of(name, k)]

    def reuses(self, name: str) -> bool:
        """Whether rounds may touch a part of a buffer that another round touches."""
        mins = [() if a.region is None else a.region.mins for a in self.of(name)]
        return not all(any(_counts(e, self.loop.var) for e in each) for each in mins)


@dataclass(frozen=True)
class _Meeting:
    """A workspace that one of two loops writes and the other reads; `back` if the first reads what
    the second writes.
    """

    name: str
    back: bool


class _Unwoven(Exception):
    """Why two loops do not become one."""


class _Weaver:
    """One launch."""

    def __init__(self, effects: Effects, body: Block) -> None:
        self.effects = effects
        self.uses = self._count(body)

    def _count(self, body: Iterable[Stmt]) -> Uses:
        """How often statements use each buffer in global memory, by core."""
        found = (a for s in body for a in self.effects.inside(s))
        return Counter((a.root.name, a.by.core) for a in found if a.memory is Memory.GLOBAL)

    def block(self, body: Block, before: Uses | None = None) -> Block:
        """A block, and those inside it; `before` it buffers were used so often."""
        seen = Counter(before or ())
        out: list[Stmt] = []
        for stmt in body:
            so_far = Counter(seen)
            out.append(map_bodies(stmt, lambda inner, u=so_far: self.block(inner, u)))
            seen += self._count((stmt,))
        at = 0
        while at < len(out):
            woven = self._woven(out, at, Counter(before or ()))
            at += woven is None
            out = woven or out
        self._check_regions(out)
        return tuple(out)

    def _woven(self, body: list[Stmt], at: int, before: Uses) -> list[Stmt] | None:
        """The block with the loop at a place woven into a later one; None where it meets none."""
        first = self._side(body[at])
        for after in range(at + 1, len(body)) if first is not None else ():
            second = self._side(body[after])
            meetings = self._meetings(first, second)
            if first is None or second is None or not meetings:
                continue
            earlier = [before + self._count(body[:k]) for k in (at, after)]
            try:
                order = _order(first, second, meetings)
                _check_rounds(first, second, meetings)
                self._check_outside((first, second), earlier, [m.name for m in meetings])
                front, behind = self._between(first, second, body[at + 1 : after])
            except _Unwoven as why:
                if _serves(first, second, meetings):
                    continue
                raise _refused(first, second, meetings, str(why)) from None
            loop = _one_loop(first.loop, second.loop, order)
            return [*body[:at], *front, loop, *behind, *body[after + 1 :]]
        return None

    def _check_regions(self, body: Sequence[Stmt]) -> None:
        """Loops in regions of their own are not woven."""
        loops = [(s.core, one) for s in body if isinstance(s, CoreRegion) for one in s.body]
        sides = [side for core, s in loops if (side := self._side(s, core)) is not None]
        for k, first in enumerate(sides):
            for second in sides[k + 1 :]:
                meetings = self._meetings(first, second)
                if meetings and not _serves(first, second, meetings):
                    raise _refused(first, second, meetings, "each is in a T.Scope of its own")

    # What meets ----------------------------------------------------------------------------------

    def _side(self, stmt: Stmt, core: Core | None = None) -> _Side | None:
        """A loop; None for another statement."""
        if not isinstance(stmt, (For, Pipelined)):
            return None
        return _Side(stmt, tuple(tuple(self.effects.inside(s, core)) for s in stmt.body))

    def _meetings(self, first: _Side | None, second: _Side | None) -> list[_Meeting]:
        """The workspaces by which two loops meet in every round; none if they need not."""
        if first is None or second is None:
            return []
        names = dict.fromkeys(a.root.name for each in first.touched for a in each)
        found = [m for n in names if (m := self._meeting(n, first, second)) is not None]
        ahead = any(not m.back for m in found)
        return found if ahead or any(WORKSPACE in m.name for m in found) else []

    def _meeting(self, name: str, first: _Side, second: _Side) -> _Meeting | None:
        """Whether a buffer is a workspace of two loops on different cores."""
        a, b = first.of(name), second.of(name)
        if (
            not b
            or a[0].memory is not Memory.GLOBAL
            or {x.by.core for x in a} & {x.by.core for x in b}
        ):
            return None
        back = _gives(b, a)
        return _Meeting(name, back) if back or _gives(a, b) else None

    def _check_outside(
        self, sides: Sequence[_Side], before: Sequence[Uses], names: Iterable[str]
    ) -> None:
        """Whether the n-th use of a workspace by the one core is for the n-th by the other, with
        the uses before and behind the loops.
        """
        for name in names:
            counts: list[tuple[int, int]] = []
            for side, earlier in zip(sides, before, strict=True):
                core = side.of(name)[0].by.core
                first, inside = earlier[name, core], len(side.of(name))
                counts.append((first, self.uses[name, core] - first - inside))
            if counts[0] != counts[1]:
                raise _Unwoven(
                    f"{name} is also used outside of both, and not as often by the one core as by"
                    " the other"
                )

    # What stands between -------------------------------------------------------------------------

    def _between(
        self, first: _Side, second: _Side, body: Sequence[Stmt]
    ) -> tuple[list[Stmt], list[Stmt]]:
        """What comes before and behind the one loop, of the statements between the two."""
        before: list[Stmt] = []
        behind: list[Stmt] = []
        for stmt in body:
            if any(isinstance(n, (SyncAll, Break, Continue)) for n in stmt.walk()):
                raise _Unwoven("not every statement between them can be done before or after both")
            if all(self._is_free(stmt, s) for s in (first.loop, *behind)):
                before.append(stmt)
            elif self._is_free(stmt, second.loop):
                behind.append(stmt)
            else:
                raise _Unwoven("a statement between them needs the first and serves the second")
        return before, behind

    def _is_free(self, a: Stmt, b: Stmt) -> bool:
        """Whether two statements may change places."""
        if gives(a) & uses(b) or gives(b) & uses(a):
            return False
        mine, theirs = list(self.effects.inside(a)), list(self.effects.inside(b))
        return not any(conflict(p, q) for p in mine for q in theirs)


# Two loops ---------------------------------------------------------------------------------------


def _serves(first: _Side, second: _Side, meetings: Sequence[_Meeting]) -> bool:
    """Whether all of the first loop before all of the second gives each round what is for it."""
    if not any(m.back for m in meetings):
        same = _rounds(first.loop) == _rounds(second.loop)
        return not same or not any(first.reuses(m.name) and second.reuses(m.name) for m in meetings)
    in_place = not any(WORKSPACE in m.name for m in meetings if m.back)
    once = not any(s.reuses(m.name) for m in meetings for s in (first, second))
    return in_place and once and not _can_follow(first, second, meetings)


def _order(first: _Side, second: _Side, meetings: Iterable[_Meeting]) -> list[Place]:
    """The statements of a round, in an order in which each read of a workspace follows the write
    that it is for.
    """
    flow: list[tuple[Place, Place]] = []
    again: list[tuple[Place, Place]] = []
    sides = first, second
    for m in meetings:
        pairs = _pairs(first, second, m.name)
        flow += pairs
        again += [
            (read, write)
            for n, (_, read) in enumerate(pairs)
            for write, _ in pairs[n + 1 :]
            if _meet(sides[write[0]].of(m.name, write[1]), sides[read[0]].of(m.name, read[1]))
        ]
    counts = len(first.touched), len(second.touched)
    if _sorted(counts, flow) is None:
        raise _Unwoven("in a round, each waits for what the other gives later")
    order = _sorted(counts, [*flow, *again])
    if order is None:
        raise _Unwoven("a part is written again before it is read")
    return order


def _pairs(first: _Side, second: _Side, name: str) -> list[tuple[Place, Place]]:
    """The n-th use of a workspace in the one loop with the n-th in the other: write, then read."""
    places = [(side.places(name), side) for side in (first, second)]
    uses = [[_writes(side.of(name, k), name) for k in at] for at, side in places]
    if not any(True in u and False in u for u in uses) and len(uses[0]) != len(uses[1]):
        writes, reads = (len(u) for u in sorted(uses, key=lambda u: not u[0]))
        raise _Unwoven(f"a round writes {name} in {writes} places and reads it in {reads}")
    if [not w for w in uses[0]] != uses[1]:
        raise _Unwoven(f"the n-th use of {name} in the one does not answer the n-th in the other")
    pairs: list[tuple[Place, Place]] = []
    for i, j, writes in zip(places[0][0], places[1][0], uses[0], strict=True):
        if not _meet(first.of(name, i), second.of(name, j)):
            raise _Unwoven(f"{name} is not read in the order in which it is written")
        pairs.append(((0, i), (1, j)) if writes else ((1, j), (0, i)))
    return pairs


def _writes(uses: Sequence[Access], name: str) -> bool:
    """Whether a statement writes a workspace; it does not read it as well."""
    if any(a.writes for a in uses) and not all(a.writes for a in uses):
        raise _Unwoven(f"one statement reads and writes {name}")
    return uses[0].writes


def _gives(a: Sequence[Access], b: Sequence[Access]) -> bool:
    """Whether some of `a` write what some of `b` read."""
    return any(x.writes for x in a) and any(not x.writes for x in b)


def _can_follow(first: _Side, second: _Side, meetings: Sequence[_Meeting]) -> bool:
    """Whether what comes back to the first loop may come in the same round."""
    try:
        _order(first, second, meetings)
    except _Unwoven:
        return False
    return True


def _meet(some: Iterable[Access], others: Sequence[Access]) -> bool:
    return any(conflict(p, q) for p in some for q in others)


def _sorted(counts: tuple[int, int], edges: Sequence[tuple[Place, Place]]) -> list[Place] | None:
    """All places, in the order of each side and of the edges, the first side as early as can be;
    None where there is none.
    """
    done: list[Place] = []
    at = [0, 0]
    while len(done) < sum(counts):
        ready = (
            (side, at[side])
            for side in (0, 1)
            if at[side] < counts[side] and all(a in done for a, b in edges if b == (side, at[side]))
        )
        place = next(ready, None)
        if place is None:
            return None
        done.append(place)
        at[place[0]] += 1
    return done


def _check_rounds(first: _Side, second: _Side, meetings: Sequence[_Meeting]) -> None:
    """Whether a round of the one is for the round of the other with the same number."""
    a, b = first.loop, second.loop
    if _rounds(a) != _rounds(b):
        raise _Unwoven("their rounds are not the same")
    if any(isinstance(n, (Break, Continue)) for s in (*a.body, *b.body) for n in s.walk()):
        raise _Unwoven("a round may end early")
    if gives(a) & uses(b) or gives(b) & uses(a):
        raise _Unwoven("one computes a scalar that the other uses")
    names = {m.name for m in meetings}
    for p in (x for each in first.touched for x in each):
        for q in (x for each in second.touched for x in each):
            if p.root.name in names and q.root.name == p.root.name:
                if not _same_round(p, q, a.var, b.var):
                    raise _Unwoven(f"a round uses the part of {p.root.name} of another round")
            elif conflict(p, q):
                raise _Unwoven(f"both use {p.root.name}")


def _rounds(loop: Loop) -> tuple[object, ...]:
    step = loop.step if isinstance(loop, For) else None
    return loop.var.dtype, simplify(loop.start), simplify(loop.stop), step


def _same_round(p: Access, q: Access, a: Var, b: Var) -> bool:
    """Whether two accesses depend on the round in the same way."""
    if p.region is None or q.region is None:
        return False
    if not (_uses(p.region, a) or _uses(q.region, b)):
        return True
    if p.region.buffer != q.region.buffer:
        return False
    r = substitute(q.region, {b: a})
    axes = zip(p.region.mins, p.region.extents, r.mins, r.extents, strict=True)
    return any(
        simplify(x) == simplify(y) and simplify(m) == simplify(n) and _in(x, a)
        for x, m, y, n in axes
    )


def _one_loop(a: Loop, b: Loop, order: Sequence[Place]) -> Loop:
    """The first loop with the statements of both."""
    bodies = a.body, tuple(substitute(s, {b.var: a.var}) for s in b.body)
    body = tuple(bodies[side][k] for side, k in order)
    if isinstance(a, Pipelined):
        return a.with_(body=body, order=(), stage=())
    return a.with_(body=body)


def _refused(first: _Side, second: _Side, meetings: Sequence[_Meeting], why: str) -> TileError:
    name = next((m.name for m in meetings if m.back), meetings[0].name)
    return error(
        "scope",
        f"this loop and the next at {second.loop.loc}, on different cores, hand {name} to each "
        f"other in every round, and no order of their statements does that: {why}",
        first.loop.loc,
        expected="one loop that holds the work of both cores, each read after the write it is for",
        help="write one loop outside of T.Scope, or order the cores with T.set_cross_flag and "
        "T.wait_cross_flag",
    )


def _counts(e: Expr, var: Var) -> bool:
    """Whether an index goes on with a variable, and does not come round again."""
    nodes = list(e.walk())
    again = (BinaryOp.FLOORMOD, BinaryOp.FLOORDIV)
    round_again = any(isinstance(n, Binary) and n.op in again and _in(n, var) for n in nodes)
    return _in(e, var) and not round_again


def _in(e: Expr, var: Var) -> bool:
    return any(n == var for n in e.walk())


def _uses(region: Region, var: Var) -> bool:
    return any(_in(e, var) for e in (*region.mins, *region.extents))
