"""What must wait for what in one block of statements, and what each agent knows by then.

What enters: for each statement of a block, the accesses inside it. What leaves: `Need`s, the fewest
waits from which the order of all accesses that touch one byte follows. Time is counted in
statements; an agent that waits for another knows what that one knew when it raised the flag.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from tilelang.ir.ascend import PIPES_OF, Core, Pipe
from tilelang.passes.ascend.effects import Access, Agent, agent

Waits = Sequence[tuple[Agent, Agent]]
"""Pairs of a doer and of who waits for all that it has been given so far."""

_Places = dict[Hashable, list[Access]]


@dataclass(frozen=True)
class Need:
    """One wait: `waiter` goes on with statement `at` of a block when `doer` has done statement
    `after`; `carried`, that of the round before.
    """

    doer: Agent
    waiter: Agent
    after: int
    at: int
    carried: bool = False

    @property
    def crosses(self) -> bool:
        """Whether it is between two cores."""
        return self.doer.core is not self.waiter.core


@dataclass
class Known:
    """What each agent knows to be done of each other, as a number of statements.

    Statement k of the first round ends at time k + 1, of the second at `count` + k + 1.
    """

    count: int
    now: dict[tuple[Agent, Agent], int] = field(default_factory=dict[tuple[Agent, Agent], int])
    after: dict[int, dict[tuple[Agent, Agent], int]] = field(
        default_factory=dict[int, dict[tuple[Agent, Agent], int]]
    )

    def time(self, k: int, turn: int) -> int:
        """When statement `k` of a round ends."""
        return turn * self.count + k + 1

    def has(self, need: Need, turn: int) -> bool:
        """Whether the waiter knows what it is to wait for, done in round `turn`."""
        return self.now.get((need.waiter, need.doer), 0) >= self.time(need.after, turn)

    def learn(self, need: Need, turn: int) -> None:
        """The waiter has waited for what was done in round `turn`."""
        end = self.time(need.after, turn)
        then = self.after.get(end, self.now)
        told = {who: t for (knower, who), t in then.items() if knower == need.doer}
        told[need.doer] = max(end, told.get(need.doer, 0))
        for waiter in waiters(need):
            for who, t in told.items():
                if who != waiter:
                    self.now[waiter, who] = max(t, self.now.get((waiter, who), 0))

    def wait(self, waits: Waits, end: int) -> None:
        """Pipes have waited for others, for all of these up to a time."""
        for doer, waiter in waits:
            told = {who: t for (knower, who), t in self.now.items() if knower == doer}
            for who, t in (*told.items(), (doer, end)):
                if who != waiter:
                    self.now[waiter, who] = max(t, self.now.get((waiter, who), 0))

    def meet(self, core: Core, end: int) -> None:
        """All pipes of a core have waited for each other at a time."""
        pipes = [agent(core, p) for p in PIPES_OF[core]]
        told: dict[Agent, int] = dict.fromkeys(pipes, end)
        for (knower, who), t in self.now.items():
            if knower in told:
                told[who] = max(t, told.get(who, 0))
        for waiter in pipes:
            for who, t in told.items():
                if who != waiter:
                    self.now[waiter, who] = max(t, self.now.get((waiter, who), 0))

    def finish(self, k: int, turn: int) -> None:
        """Statement `k` has ended."""
        self.after[self.time(k, turn)] = dict(self.now)

    def knew(self, knower: Agent, who: Agent, at: int) -> int:
        """What `knower` knew of `who` at a time."""
        return self.after.get(at, {}).get((knower, who), 0)


def waiters(need: Need) -> list[Agent]:
    """Who waits: a pipe, or every pipe of a core that waits for another core."""
    if not need.crosses:
        return [need.waiter]
    core = need.waiter.core
    return [agent(core, p) for p in PIPES_OF[core]]


@dataclass(frozen=True)
class Given:
    """The order that a statement brings itself: the cores whose pipes all meet `before` and `after`
    it; and who waits for whom before it touches anything (`first`), and when it is done (`last`).
    """

    before: Sequence[Core] = ()
    after: Sequence[Core] = ()
    first: Waits = ()
    last: Waits = ()


_MTE2, _MTE1, _M, _FIX = (agent(Core.CUBE, p) for p in (Pipe.MTE2, Pipe.MTE1, Pipe.M, Pipe.FIX))
FROM_L1 = Given(last=((_MTE1, _M),))
"""What a product from L1 orders itself (`lower_cube`): sums come after the loads of L0A and L0B."""

GEMM_V0 = Given(first=((_MTE2, _MTE1), (_FIX, _M)), last=((_MTE1, _M), (_MTE1, _MTE2), (_M, _FIX)))
"""And where it orders all pipes around it (`settings.orders_products`)."""


@dataclass(frozen=True)
class Plan:
    """The waits of a block, and what was known while they were found."""

    needs: tuple[Need, ...]
    known: Known


def together(found: Plan, most: int) -> Plan:
    """The waits of a block in which up to `most` of one core for one pipe of the other are one: for
    the last of what they wait for, at the first of their places, where that is later.
    """
    groups: list[list[Need]] = []
    for need in found.needs:
        fit = (g for g in groups if len(g) < most and _is_one(g, need))
        group = next(fit, None) if need.crosses else None
        if group is None:
            groups.append([need])
        else:
            group.append(need)
    one = (replace(g[0], after=max(n.after for n in g), at=min(n.at for n in g)) for g in groups)
    return replace(found, needs=tuple(one))


def _is_one(group: list[Need], need: Need) -> bool:
    """Whether a wait between cores can be one with others."""
    first = group[0]
    same = first.doer == need.doer and first.waiter.core is need.waiter.core
    before = max(n.after for n in (*group, need)) < min(n.at for n in (*group, need))
    return same and first.carried == need.carried and (need.carried or before)


class Touched:
    """The accesses inside each statement of a block, also by agent.

    `matters` says whether the order of two accesses does; it never does for two of which `place`
    gives different things.
    """

    def __init__(
        self,
        accesses: Sequence[Sequence[Access]],
        matters: Callable[[Access, Access], bool],
        place: Callable[[Access], Hashable],
    ) -> None:
        self.count = len(accesses)
        self.matters = matters
        self.by: list[dict[Agent, _Places]] = []
        self._at: dict[Agent, dict[Hashable, list[int]]] = {}
        self._met: dict[tuple[int, Agent, int, Agent], bool] = {}
        for at, each in enumerate(accesses):
            parts: dict[Agent, _Places] = {}
            for a in each:
                parts.setdefault(a.by, {}).setdefault(place(a), []).append(a)
            self.by.append(parts)
            for who, places in parts.items():
                for where in places:
                    self._at.setdefault(who, {}).setdefault(where, []).append(at)
        self.agents = sorted(self._at)

    def latest(self, at: int, waiter: Agent, doer: Agent, window: range) -> int | None:
        """The last statement of a window in which one agent does what another has to wait for with
        statement `at`.
        """
        mine, theirs = self.by[at][waiter], self._at[doer]
        found = {k for where in mine for k in theirs.get(where, ()) if k in window}
        return next(
            (k for k in sorted(found, reverse=True) if self._meet(at, waiter, k, doer)), None
        )

    def _meet(self, at: int, waiter: Agent, after: int, doer: Agent) -> bool:
        """Whether what two agents do in two statements has an order; it is asked often."""
        key = (at, waiter, after, doer)
        found = self._met.get(key)
        if found is None:
            theirs, matters = self.by[after][doer], self.matters
            found = self._met[key] = any(
                matters(p, q)
                for where, mine in self.by[at][waiter].items()
                for p in theirs.get(where, ())
                for q in mine
            )
        return found


def plan(touched: Touched, given: Sequence[Given], *, repeats: bool) -> Plan:
    """The waits of a block whose statements have these accesses and bring this order. With
    `repeats` the block is the body of a loop.
    """
    known = Known(touched.count)
    forward: list[Need] = []
    for at in range(touched.count):
        _met(known, given[at].before, at, 0)
        known.wait(given[at].first, at)
        for need in _wanted(at, touched, at, known, carried=False):
            if not known.has(need, 0):
                forward.append(need)
                known.learn(need, 0)
        known.wait(given[at].last, at + 1)
        known.finish(at, 0)
        _met(known, given[at].after, at + 1, 0)
    carried: list[Need] = []
    if repeats:
        carried = _carried(touched, given, known, forward)
    return Plan((*forward, *carried), known)


def _met(known: Known, cores: Iterable[Core], done: int, turn: int) -> None:
    for core in cores:
        known.meet(core, turn * known.count + done)
        if done:
            known.after[turn * known.count + done] = dict(known.now)


def _carried(
    touched: Touched,
    given: Sequence[Given],
    known: Known,
    forward: list[Need],
) -> list[Need]:
    """The waits for the round before, those included that keep a flag from being raised twice."""
    count = touched.count
    carried: list[Need] = []
    for at in range(count):
        _met(known, given[at].before, at, 1)
        known.wait(given[at].first, count + at)
        for need in (n for n in forward if n.at == at):
            known.learn(need, 1)
        wanted = _wanted(at, touched, count, known, carried=True)
        for need in (*wanted, *_returns(forward, at)):
            if not known.has(need, 0):
                carried.append(need)
                known.learn(need, 0)
        known.wait(given[at].last, count + at + 1)
        known.finish(at, 1)
        _met(known, given[at].after, at + 1, 1)
    return carried


def _returns(forward: Iterable[Need], at: int) -> list[Need]:
    """A flag is raised again when its last wait is over: the way back of each need that is raised
    after statement `at`.
    """
    return [Need(n.waiter, n.doer, n.at, at, carried=True) for n in forward if n.after == at]


def _wanted(at: int, touched: Touched, end: int, known: Known, *, carried: bool) -> list[Need]:
    """For each agent the latest statement before `end` that statement `at` depends on and that is
    not known to be done, latest first.
    """
    needs: list[Need] = []
    for waiter in touched.by[at]:
        for doer in touched.agents:
            if doer == waiter:
                continue
            window = range(known.now.get((waiter, doer), 0), end)
            after = touched.latest(at, waiter, doer, window)
            if after is not None:
                needs.append(Need(doer, waiter, after, at, carried))
    return sorted(needs, key=lambda n: (-n.after, n.doer, n.waiter))
