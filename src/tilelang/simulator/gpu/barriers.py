"""Barriers of a block, of a cluster, and mbarriers: a count, a phase, and the order they hand over.

What enters: arrivals by actors, and completed bytes. What leaves: whether a phase is over, and what
those who waited for it know then. PTX ISA 9.0, "Parallel Synchronization and Communication".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tilelang.simulator.machine import Edge, Team
from tilelang.simulator.machine.clocks import Actors, Clock


class Phases:
    """Counts rounds of arrivals; each hands over what those who arrived in it knew."""

    def __init__(self, team: Team) -> None:
        self.team = team
        self.phase = 0
        self.over: Clock = np.zeros((team.paths, 0), np.int32)
        self._arriving = Edge(team)

    def give(self, actors: Actors) -> None:
        """These actors arrive."""
        self._arriving.give(actors)

    def join(self, clock: Clock) -> None:
        """What is known at the end of an operation arrives."""
        self._arriving.join(clock)

    def finish(self) -> None:
        """The phase is over."""
        self._arriving.join(self.over)
        self.over = self._arriving.clock
        self._arriving = Edge(self.team)
        self.phase += 1

    def take(self, actors: Actors, by: object = None) -> None:
        """These actors have waited for the phase that was over last."""
        self.team.acquire(actors, self.over, by)


@dataclass
class NamedBarrier:
    """One of the 16 barriers of a block. `warps` have arrived in this phase, `wanted` threads are
    counted; a warp counts as 32. A barrier of `everyone` counts no threads: it does not wait for
    warps that have ended, of which `gone` are known.
    """

    number: int
    phases: Phases
    warps: set[int] = field(default_factory=set[int])
    wanted: int = 0
    everyone: bool = False
    gone: set[int] = field(default_factory=set[int])
    votes: list[bool] = field(default_factory=list[bool])
    result: list[bool] = field(default_factory=list[bool])

    def finish(self) -> None:
        """All have arrived."""
        self.result, self.votes = self.votes, []
        self.warps, self.gone = set(), set()
        self.wanted, self.everyone = 0, False
        self.phases.finish()

    @property
    def missing(self) -> str:
        """What a report says of a wait."""
        return f"barrier {self.number}, {len(self.warps) * 32} of {self.wanted} threads are there"


class Mbarrier:
    """An mbarrier: `count` arrivals make a phase, and the bytes that it was told to expect.

    `pending` arrivals and `bytes` are what the phase still waits for.
    """

    def __init__(self, name: str, count: int, phases: Phases) -> None:
        self.name = name
        self.count = count
        self.pending = count
        self.bytes = 0
        self.phases = phases

    def step(self, arrivals: int, size: int) -> bool:
        """Arrivals, and bytes that are expected (or, below 0, have come). Whether it was too much.
        """  # fmt: skip
        self.pending -= arrivals
        self.bytes += size
        if self.pending == 0 and self.bytes == 0:
            self.pending = self.count
            self.phases.finish()
        return self.pending < 0

    def is_over(self, parity: int) -> bool:
        """Whether the phase of this parity is over."""
        return self.phases.phase & 1 != parity & 1

    @property
    def missing(self) -> str:
        """What a report says of a wait."""
        return (
            f"phase {self.phases.phase} of the mbarrier {self.name}, which lacks"
            f" {self.pending} of {self.count} arrivals and {self.bytes} bytes"
        )
