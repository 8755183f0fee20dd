"""Flags between the pipes of a core, and between cores, where one needs what another has done.

What enters: a function of the tile stage in program order, with an address for every buffer on
chip. What leaves: the same with `SetFlag` and `WaitFlag`, `CrossSet` and `CrossWait`, each in a
`CoreRegion` of its core, for every pair of accesses whose order matters: two agents (a core and a
pipe) touch one byte, and one of them writes. Effects and bytes are all that is looked at
(`effects.py`); no dialect and no operation is special.

Each block of statements is ordered for itself. What a loop or branch touches counts as touched by
the statement as a whole, so a flag between two statements of a block stands in that block, and both
sides of it run equally often. In a loop, a flag from one round to the next is raised once before
the loop and taken down once after it. Outside of loops all pipes meet before and after a loop or
branch, so that its events are free. Where the events of two pipes do not suffice, all pipes meet.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from tilelang.ir.ascend import (
    Core,
    CoreRegion,
    CrossSet,
    CrossWait,
    Pipe,
    PipeBarrier,
    SetFlag,
    WaitFlag,
)
from tilelang.ir.expr import Load, const
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Block,
    For,
    Function,
    Let,
    Pipelined,
    Stmt,
    View,
    While,
)
from tilelang.ir.walk import bodies
from tilelang.isa.target import Target
from tilelang.passes.ascend.effects import PRODUCTS, Access, Effects, conflict, spans_meet
from tilelang.passes.ascend.flags import CrossFlags, Events, OutOfFlags
from tilelang.passes.ascend.order import (
    FROM_L1,
    GEMM_V0,
    Given,
    Need,
    Plan,
    Touched,
    plan,
    together,
)
from tilelang.passes.ascend.schedule_costs import rounds
from tilelang.passes.ascend.settings import Automatic, is_automatic, orders_products
from tilelang.passes.build import map_bodies, map_launches

Touches = Sequence[Sequence[Access]]
LOOPS = (For, Pipelined, While)
GROUP = 2
"""The mode of a cross-core flag between the cube core and the vector cores of a group."""

MADE = "made"
"""The attribute of a function that names the buffers which passes have added."""


def insert_sync(fn: Function, target: Target) -> Function:
    """The function with the flags that its settings ask for."""

    def ordered(body: Block) -> Block:
        try:
            return Ordering(fn, target, body).result()
        except OutOfFlags:
            return Ordering(fn, target, body, shared=True).result()

    return map_launches(fn, ordered)


@dataclass(frozen=True)
class Flagged:
    """A need with its event or flag; None where all pipes meet instead."""

    need: Need
    id: int | None


class Ordering:
    """One launch."""

    def __init__(self, fn: Function, target: Target, body: Block, *, shared: bool = False) -> None:
        self.effects = Effects(fn)
        self.body = body
        self.within = is_automatic(fn, Automatic.SYNC)
        by_author = any(isinstance(n, (CrossSet, CrossWait)) for s in body for n in s.walk())
        self.across = is_automatic(fn, Automatic.CROSS_SYNC) and not by_author
        self.own = orders_products(fn)
        self.made = frozenset(dict(fn.attrs).get(MADE, ()))
        self.addresses = dict(_addresses(body))
        self.events = Events(target, body)
        self.flags = CrossFlags(target, body, shared=shared)

    def result(self) -> Block:
        """The body with flags."""
        if not (self.within or self.across or self.made):
            return self.body
        return self.block(self.body, None, in_loop=False)[0]

    # Blocks --------------------------------------------------------------------------------------

    def block(
        self,
        body: Block,
        core: Core | None,
        *,
        in_loop: bool,
        repeats: bool = False,
        most: int = 1,
    ) -> tuple[Block, Block, Block]:
        """A block with its flags; and, for the body of a loop (`repeats`), what comes before and
        after the loop. In it, `most` waits between kinds of core may be one.
        """
        touched = [list(self.effects.inside(s, core)) for s in body]
        each = zip(body, touched, strict=True)
        all_given = [self._given(s, t, core, in_loop=in_loop) for s, t in each]
        around, found = self._planned(body, touched, all_given, repeats=repeats)
        found = together(found, most)
        flagged = self._flagged(found, body, in_loop=in_loop)
        out: list[Stmt] = []
        for at, stmt in enumerate(body):
            compound = _is_compound(stmt)
            if compound:
                met = body is self.body and _is_idle(body[:at])
                out += [_barrier(c) for c in around[at].before if not met and not _has_met(out, c)]
            out += _waits(flagged, at)
            live = [f for f in flagged if f.need.carried or f.need.after < at < f.need.at]
            fresh = not in_loop and around[at] == all_given[at]
            with self.events.inside(live if fresh or in_loop else flagged, fresh=fresh):
                out += self._inner(stmt, core, in_loop=in_loop)
            out += _sets(flagged, at)
            if compound and not (body is self.body and _is_idle(body[at + 1 :])):
                out += [_barrier(c) for c in around[at].after]
        carried = [f for f in flagged if f.need.carried and f.id is not None]
        return tuple(out), tuple(map(_set, carried)), tuple(map(_wait, carried))

    def _planned(
        self, body: Block, touched: Touches, around: list[Given], *, repeats: bool
    ) -> tuple[list[Given], Plan]:
        """The waits of a block, and the meetings of pipes around loops and branches without which
        there would be more.
        """
        inside = Touched(touched, self._matters, self._place)
        found = plan(inside, around, repeats=repeats)
        for at, stmt in enumerate(body):
            for side in ("before", "after") if _is_compound(stmt) else ():
                less = [*around[:at], replace(around[at], **{side: ()}), *around[at + 1 :]]
                if less == around:
                    continue
                again = plan(inside, less, repeats=repeats)
                if again.needs == found.needs:
                    around, found = less, again
        return around, found

    def _flagged(self, found: Plan, body: Block, *, in_loop: bool) -> list[Flagged]:
        """Each need of a block with its event or flag."""
        ids: dict[Need, int | None] = dict(
            self.flags.take([n for n in found.needs if n.crosses], body, in_loop=in_loop)
        )
        ids |= self.events.take([n for n in found.needs if not n.crosses], found, in_loop=in_loop)
        return [Flagged(n, ids[n]) for n in found.needs]

    def _inner(self, stmt: Stmt, core: Core | None, *, in_loop: bool) -> list[Stmt]:
        """A statement with flags inside."""
        home = stmt.core if isinstance(stmt, CoreRegion) else core
        loop = isinstance(stmt, LOOPS)
        again = loop and rounds(stmt) > 1
        most = int(dict(stmt.hints).get("cross_interval", 1)) if isinstance(stmt, For) else 1
        before: list[Stmt] = []
        after: list[Stmt] = []

        def inner(body: Block) -> Block:
            made, first, last = self.block(
                body, home, in_loop=in_loop or loop, repeats=again, most=most
            )
            before.extend(first)
            after.extend(last)
            if isinstance(stmt, While) and any(isinstance(n, Load) for n in stmt.cond.walk()):
                return (*made, *(_barrier(c) for c in Core if home in (None, c)))
            return made

        made = map_bodies(stmt, inner)  # finds out what comes before and after
        return [*before, made, *after]

    def _given(
        self, stmt: Stmt, touched: Sequence[Access], core: Core | None, *, in_loop: bool
    ) -> Given:
        """The order around a statement that needs no flag."""
        if isinstance(stmt, PipeBarrier) and stmt.pipe is Pipe.ALL:
            return Given(after=[core] if core is not None else list(Core))
        if isinstance(stmt, PRODUCTS):
            if len(self.effects.agents(stmt)) == 1:
                return Given()
            return GEMM_V0 if self.own else FROM_L1
        if in_loop or not self.within or not _is_compound(stmt):
            return Given()
        queues = {a.by for a in touched}
        several = [c for c in Core if len([q for q in queues if q.core is c]) > 1]
        return Given(several, several)

    def _place(self, a: Access) -> Hashable:
        """Where an access is: nothing else touches a buffer without an address of its own."""
        return a.memory if a.root.name in self.addresses else a.root.name

    def _matters(self, p: Access, q: Access) -> bool:
        """Whether the order of two accesses is asked for, and they touch one byte."""
        alike = p.by.core_name == q.by.core_name
        asked = self.within if alike else self.across
        if not asked and p.root.name not in self.made and q.root.name not in self.made:
            return False
        if p.memory is not q.memory or not (p.writes or q.writes):
            return False
        if p.settled and alike:
            return False
        if p.root.name == q.root.name:
            return conflict(p, q)
        a, b = self.addresses.get(p.root.name), self.addresses.get(q.root.name)
        return a is not None and b is not None and spans_meet(p, q, a, b)


def _addresses(body: Block) -> Iterator[tuple[str, int]]:
    for stmt in body:
        for note in stmt.walk():
            if isinstance(note, Annotate) and note.kind == "address":
                yield from ((b.name, a) for b, a in zip(note.buffers, note.values, strict=True))


def _is_compound(stmt: Stmt) -> bool:
    return any(True for _ in bodies(stmt))


# Statements --------------------------------------------------------------------------------------


def _waits(flagged: Sequence[Flagged], at: int) -> Iterator[Stmt]:
    """What comes before statement `at`: a meeting of all pipes for those without an event."""
    here = [f for f in flagged if f.need.at == at]
    for core in dict.fromkeys(f.need.waiter.core for f in here if f.id is None):
        yield _barrier(core)
    yield from (_wait(f) for f in here if f.id is not None)


def _sets(flagged: Sequence[Flagged], at: int) -> Iterator[Stmt]:
    """What comes after statement `at`."""
    yield from (_set(f) for f in flagged if f.need.after == at and f.id is not None)


def _set(f: Flagged) -> Stmt:
    need, number = f.need, const(f.id or 0)
    flag: Stmt = CrossSet(GROUP, need.doer.pipe, number)
    if not need.crosses:
        flag = SetFlag(need.doer.pipe, need.waiter.pipe, number)
    return CoreRegion(need.doer.core, (flag,))


def _wait(f: Flagged) -> Stmt:
    need, number = f.need, const(f.id or 0)
    flag: Stmt = CrossWait(number, mode=GROUP)
    if not need.crosses:
        flag = WaitFlag(need.doer.pipe, need.waiter.pipe, number)
    return CoreRegion(need.waiter.core, (flag,))


def _has_met(done: Sequence[Stmt], core: Core) -> bool:
    """Whether all pipes of a core have met since anything was given to one of them."""
    for stmt in reversed(done):
        if stmt == _barrier(core):
            return True
        if not _is_idle((stmt,)) and stmt not in map(_barrier, Core):
            return False
    return False


def _is_idle(body: Sequence[Stmt]) -> bool:
    """Whether statements give no pipe anything: a launch begins and ends with all pipes idle."""
    loads = (n for s in body for n in s.walk() if isinstance(n, Load))
    return (
        all(isinstance(s, (Alloc, Annotate, Let, View)) for s in body) and next(loads, None) is None
    )


def _barrier(core: Core) -> Stmt:
    return CoreRegion(core, (PipeBarrier(Pipe.ALL),))
