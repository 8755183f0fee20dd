"""Asynchronous operations: in order or not, and counted in groups.

What enters: operations, as the steps they make. What leaves: agents that make them, when the
schedule lets them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilelang.errors import Loc
from tilelang.simulator.machine.schedule import Agent, Scheduler, Steps, Wait


class Queue:
    """Operations of one unit. In a queue that is `ordered`, each begins when the one before it has
    ended; in another they overtake each other.
    """

    def __init__(self, scheduler: Scheduler, name: str, *, ordered: bool) -> None:
        self.scheduler = scheduler
        self.name = name
        self.ordered = ordered
        self._last: Agent | None = None

    def put(self, what: str, steps: Steps, loc: Loc | None = None) -> Agent:
        """Issue an operation. `what` names it in reports."""
        before = self._last if self.ordered else None
        if before is not None and not before.done:
            steps = _after(before, steps, self.name, loc)
        self._last = self.scheduler.spawn(what, steps, asynchronous=True)
        return self._last


def _after(before: Agent, steps: Steps, queue: str, loc: Loc | None) -> Iterator[Wait | None]:
    yield Wait(lambda: before.done, f"{before.name}, which is before it in {queue}", loc)
    yield from steps


class Groups:
    """Operations in groups, which are waited for from the oldest on.

    `mark` is what the owner wants to know of a group that is over (an epoch, a clock).
    """

    def __init__(self) -> None:
        self.open: list[Agent] = []
        self.closed: list[list[Agent]] = []

    def add(self, operation: Agent) -> None:
        """One more operation of the group that is open."""
        self.open.append(operation)

    def commit(self) -> None:
        """Close the group, which may be empty."""
        self.closed.append(self.open)
        self.open = []

    def pending(self, most: int, over: Callable[[Agent], bool] = lambda a: a.done) -> bool:
        """Whether more than `most` of the youngest groups have operations that are not `over`."""
        old = self.closed[: len(self.closed) - most] if most else self.closed
        return any(not over(a) for group in old for a in group)

    def left(self) -> list[Agent]:
        """The operations that have not ended."""
        return [a for group in (*self.closed, self.open) for a in group if not a.done]
