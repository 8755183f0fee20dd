"""Who goes on next: agents, what they wait for, and seeded orders.

What enters: agents, which are generators. What leaves: they have all run to their ends, or a
deadlock is reported that says who waits for what.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilelang.errors import DeadlockError, Diagnostic, InternalError, Loc

SPINS = 20_000
"""Rounds of loops that look at memory, with no change of it, until that is a deadlock."""


_TAKEN = 0.2
"""How often, in random order, nothing of a queue is left."""


class Mode(enum.Enum):
    """What a schedule does with asynchronous work, and with agents that could go on.

    IN_ORDER and EARLY carry an operation out as it is issued, LATE when nothing else can go on,
    the youngest first; RANDOM chooses at every step. IN_ORDER takes agents by turns from the
    first, EARLY from the last.
    """

    IN_ORDER = "in-order"
    EARLY = "early"
    LATE = "late"
    RANDOM = "random"


@dataclass(frozen=True)
class Schedule:
    """An order: the same mode and seed give the same run."""

    mode: Mode = Mode.IN_ORDER
    seed: int = 0

    @staticmethod
    def sweep(seeds: int) -> list[Schedule]:
        """The plain orders, then random ones, `seeds` in all and at least one."""
        plain = [Schedule(Mode.LATE), Schedule(Mode.EARLY), Schedule(Mode.IN_ORDER)]
        more = [Schedule(Mode.RANDOM, k) for k in range(max(0, seeds - len(plain)))]
        return [*plain, *more][: max(1, seeds)]


@dataclass(frozen=True)
class Wait:
    """What an agent waits for: `ready()` is asked until it is true; `what` completes "waits for",
    or is a function that gives these words when a report is made.

    `loc` is the author's line. A wait of a loop that looks at memory again and again is `spins`:
    nothing can be said about when it ends but that somebody has to do something first.
    """

    ready: Callable[[], bool]
    what: str | Callable[[], str]
    loc: Loc | None = None
    spins: bool = False

    @property
    def words(self) -> str:
        """What it waits for, now."""
        return self.what if isinstance(self.what, str) else self.what()


Steps = Iterator[Wait | None]


class Agent:
    """Something that runs by itself: `steps` yields what it waits for, or None to let others go."""

    def __init__(self, name: str, steps: Steps, *, asynchronous: bool = False) -> None:
        self.name = name
        self.steps = steps
        self.asynchronous = asynchronous
        self.wait: Wait | None = None
        self.done = False

    @property
    def spins(self) -> bool:
        """Whether it looks at memory until somebody changes it."""
        return self.wait is not None and self.wait.spins

    @property
    def blocked(self) -> bool:
        """Whether it waits for what has not happened."""
        return self.wait is not None and not self.wait.ready()


class Scheduler:
    """Runs agents until all have ended.

    `version` counts what happened; a spinning agent goes on when it has changed.
    """

    def __init__(self, schedule: Schedule | None = None) -> None:
        self.schedule = schedule or Schedule()
        self.agents: list[Agent] = []
        self.version = 0
        self._random = random.Random(self.schedule.seed)
        self._spun = 0
        self._turn = 0
        mode = self.schedule.mode
        self._at_once = mode in (Mode.IN_ORDER, Mode.EARLY)

    def spawn(self, name: str, steps: Steps, *, asynchronous: bool = False) -> Agent:
        """Add an agent. Where operations are carried out early, it runs here until it waits."""
        made = Agent(name, steps, asynchronous=asynchronous)
        self.agents.append(made)
        if asynchronous and self._at_once:
            self._run(made)
        return made

    def spin(self, loc: Loc | None) -> Wait:
        """A wait until anything has happened."""
        seen = self.version
        return Wait(lambda: self.version != seen, "memory to change", loc, spins=True)

    def happened(self) -> None:
        """Something has changed that a spinning agent may look for."""
        self.version += 1

    def left_over(self, count: int) -> int | None:
        """Which of `count` things in a queue others have not taken before: the first, or none where
        everything happens early; in random order any, or none.
        """
        mode = self.schedule.mode
        if not count or mode is Mode.EARLY:
            return None
        if mode is not Mode.RANDOM:
            return 0
        return None if self._random.random() < _TAKEN else self._random.randrange(count)

    def run(self) -> None:
        """Run until all agents have ended. DeadlockError where none can go on."""
        while self.agents:
            agent = self._next()
            if agent is None:
                raise DeadlockError(deadlock(self.agents))
            self._step(agent)

    # Choices -------------------------------------------------------------------------------------

    def _next(self) -> Agent | None:
        ready = [a for a in self.agents if not a.spins and not a.blocked]
        if not ready:
            return self._spinner()
        if self.schedule.mode is Mode.RANDOM:
            return self._random.choice(ready)
        work = [a for a in ready if a.asynchronous]
        rest = [a for a in ready if not a.asynchronous]
        if self.schedule.mode is Mode.LATE:
            return rest[0] if rest else work[-1]
        if work:
            return work[0]
        return rest[0] if self.schedule.mode is Mode.IN_ORDER else rest[-1]

    def _spinner(self) -> Agent | None:
        """An agent that looks at memory again, by turns, when nothing else can go on."""
        spinning = [a for a in self.agents if a.spins]
        if not spinning or self._spun > SPINS:
            return None
        self._turn += 1
        chosen = spinning[self._turn % len(spinning)]
        chosen.wait = None
        return chosen

    def _step(self, agent: Agent) -> None:
        """Run an agent up to its next wait; in random order, up to where it lets others go."""
        mode = self.schedule.mode
        if mode is Mode.RANDOM or (agent.asynchronous and mode is Mode.LATE):
            self._advance(agent)
        else:
            self._run(agent)

    def _run(self, agent: Agent) -> None:
        while not agent.done and not agent.blocked:
            self._advance(agent)

    def _advance(self, agent: Agent) -> None:
        agent.wait, before = None, self.version
        try:
            agent.wait = next(agent.steps)
        except StopIteration:
            agent.done = True
            self.agents.remove(agent)
        if agent.wait is None or not agent.wait.spins:
            self.version += 1
        self._spun = 0 if self.version != before else self._spun + 1


def deadlock(agents: list[Agent]) -> Diagnostic:
    """The report of agents of which none can go on."""
    waiting = [a for a in agents if a.wait is not None]
    if not waiting:
        raise InternalError("a deadlock of agents that wait for nothing")
    placed = [a for a in waiting if a.wait is not None and a.wait.loc is not None] or waiting
    first = next((a for a in placed if not a.asynchronous), placed[0])
    assert first.wait is not None
    notes = tuple(
        f"{a.name} waits for {a.wait.words}" + (f" ({a.wait.loc})" if a.wait.loc else "")
        for a in waiting
        if a.wait is not None
    )
    return Diagnostic(
        "deadlock",
        "nothing can go on",
        first.wait.loc,
        label=f"{first.name} waits for {first.wait.words}",
        notes=notes,
        help="let what is waited for arrive, or wait for fewer",
    )
