"""Which event of two pipes, and which cross-core flag, a wait uses.

What enters: the waits of a block (`order.Need`), and what is known at each statement. What leaves:
a number for each, which nothing else uses while the event may be raised; None where there is none.
Numbers that the author uses are left alone.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from tilelang.errors import error
from tilelang.ir.ascend import CrossSet, CrossWait, Pipe, SetFlag, WaitFlag
from tilelang.ir.expr import int_value
from tilelang.ir.tile import Block, Stmt
from tilelang.isa.target import Target
from tilelang.passes.ascend.effects import Agent
from tilelang.passes.ascend.order import Need, Plan

Pair = tuple[Pipe, Pipe]
LEAST_EVENTS, LEAST_FLAGS, LEAST_RAISED = 8, 16, 15
"""What every generation has; used for a target without a chip."""


class Numbered(Protocol):
    """A need and its number."""

    @property
    def need(self) -> Need:
        """The wait."""
        ...

    @property
    def id(self) -> int | None:
        """Its event."""
        ...


def _pair(need: Need) -> Pair:
    return need.doer.pipe, need.waiter.pipe


def _flags_of(body: Block) -> Iterator[Stmt]:
    for stmt in body:
        yield from (n for n in stmt.walk() if isinstance(n, Stmt))


class Events:
    """The events of the pairs of pipes, which both kinds of core have for themselves."""

    def __init__(self, target: Target, body: Block) -> None:
        sync = target.chip.sync if target.chip is not None else None
        self.count = sync.event_ids.value if sync is not None else LEAST_EVENTS
        self.author: dict[Pair, set[int]] = {}
        for stmt in _flags_of(body):
            if isinstance(stmt, (SetFlag, WaitFlag)):
                number = int_value(stmt.id)
                numbers = range(self.count) if number is None else (number,)
                self.author.setdefault((stmt.src, stmt.dst), set()).update(numbers)
        self._taken: dict[tuple[Agent, Agent], set[int]] = {}

    @contextmanager
    def inside(self, live: Sequence[Numbered], *, fresh: bool) -> Generator[None]:
        """While the body of a statement is ordered over which `live` are raised. With `fresh` all
        other events are free there, and after it again.
        """
        before = {k: set(v) for k, v in self._taken.items()}
        if fresh:
            self._taken = {}
        for each in live:
            if each.id is not None and not each.need.crosses:
                key = (each.need.doer, each.need.waiter)
                self._taken.setdefault(key, set()).add(each.id)
        try:
            yield
        finally:
            if fresh:
                self._taken = before

    def take(self, needs: Sequence[Need], found: Plan, *, in_loop: bool) -> dict[Need, int | None]:
        """An event for each need of a block; in a loop none is used twice."""
        chosen: dict[Need, int | None] = {}
        for need in needs:
            key = (need.doer, need.waiter)
            taken = self._taken.setdefault(key, set())
            busy = taken | self.author.get(_pair(need), set())
            if not in_loop:
                mine = [(n, i) for n, i in chosen.items() if (n.doer, n.waiter) == key]
                busy |= {i for n, i in mine if i is not None and not _over(n, need, found)}
            safe = not need.carried or _once(need, found)
            free = (k for k in range(self.count) if k not in busy)
            chosen[need] = next(free, None) if safe else None
            if in_loop and chosen[need] is not None:
                taken.add(chosen[need] or 0)
        return chosen


def _over(earlier: Need, need: Need, found: Plan) -> bool:
    """Whether the wait of `earlier` is certainly over when `need` raises its event."""
    known = found.known.knew(need.doer, earlier.waiter, need.after + 1)
    return earlier.at <= need.after and known >= earlier.at + 1


def _once(need: Need, found: Plan) -> bool:
    """Whether a flag of the round before is certainly waited for when it is raised again: by then
    the doer knows that the waiter has begun.
    """
    count = found.known.count
    known = found.known.knew(need.doer, need.waiter, count + need.after + 1)
    return known >= count + need.at + 1


class OutOfFlags(Exception):
    """There are more needs between cores than flags, if each has its own."""


class CrossFlags:
    """The flags between the cores of a group. A flag counts, so it may be raised again early.

    `shared`: needs of a block have one flag where one pipe raises it for all of them and they are
    waited for in the order in which it does: the n-th wait is then for the n-th.
    """

    def __init__(self, target: Target, body: Block, *, shared: bool) -> None:
        self.shared = shared
        sync = target.chip.sync if target.chip is not None else None
        limit = sync.flags_of(2) if sync is not None else None
        self.count = limit.value if limit is not None else LEAST_FLAGS
        self.most = sync.flag_count.value if sync is not None else LEAST_RAISED
        self.source = limit.source if limit is not None else "every generation"
        author: set[int] = set()
        for stmt in _flags_of(body):
            if isinstance(stmt, (CrossSet, CrossWait)):
                number = int_value(stmt.id)
                author |= set(range(self.count)) if number is None else {number}
        self._free = [k for k in range(self.count) if k not in author]

    def take(self, needs: Sequence[Need], body: Block, *, in_loop: bool) -> dict[Need, int]:
        """A flag for each need of a block between cores."""
        most = self.most // 2 if in_loop else self.most  # of two rounds in a loop
        chains: list[tuple[int, list[Need]]] = []
        for need in needs:
            fit = (c for c in chains if len(c[1]) < most and _follows(c[1][-1], need))
            chain = next(fit, None) if self.shared else None
            if chain is not None:
                chain[1].append(need)
            elif self._free:
                chains.append((self._free.pop(0), [need]))
            else:
                raise self._none(body[need.at])
        return {need: number for number, chain in chains for need in chain}

    def _none(self, stmt: Stmt) -> Exception:
        if not self.shared:
            return OutOfFlags()
        return error(
            "value",
            f"cube and vector cores wait for each other in more than {self.count} places",
            stmt.loc,
            expected=f"at most {self.count} cross-core flags ({self.source})",
            help="split the kernel, or order the cores yourself with T.set_cross_flag",
        )


def _follows(earlier: Need, need: Need) -> bool:
    """Whether two needs may have one flag: raised, and waited for, in the same order."""
    same = earlier.doer == need.doer and earlier.waiter.core is need.waiter.core
    plain = not (earlier.carried or need.carried)
    return same and plain and earlier.after <= need.after and earlier.at <= need.at
