"""Barriers, and what agents wait for at them.

What enters: arrivals, expected bytes, and work that completes on a barrier. What leaves: phases
that complete, and words for a report of who is missing. Names and meanings follow the PTX ISA.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilelang.emulator.inflight import Op, Point
from tilelang.errors import Loc, error


@dataclass
class Wait:
    """What an agent waits for: `ready` says whether it is there, `what` names it for a report.

    `lanes` are the threads of the agent that wait, None for all of them. `at` is the mbarrier that
    is waited for, whose work is carried out for the sake of this wait. `spins` marks the turn of a
    loop that reads memory until it changes: it is always ready.
    """

    ready: Callable[[], bool]
    what: Callable[[], str]
    loc: Loc | None = None
    lanes: Any = None
    at: Mbarrier | None = None
    spins: bool = False


class Mbarrier(Point):
    """One mbarrier: the arrivals and bytes that its current phase still expects, and the work that
    brings them.

    A phase with work is complete once somebody waits for it, not before.
    """

    def __init__(self, name: str, expected: int) -> None:
        super().__init__()
        self.name = name
        self.expected = expected
        self.phase = 0
        self._pending = expected
        self._bytes = 0
        self._work: list[Op] = []

    def expect(self, count: int) -> None:
        """Add to the bytes that the phase expects."""
        self._bytes += count

    def attach(self, op: Op, count: int = 0) -> None:
        """Work whose completion the phase waits for; it brings `count` bytes."""
        self._bytes -= count
        self._work.append(op)

    def arrive(self, count: int, loc: Loc | None = None) -> None:
        """Arrivals; the last one completes the phase, or leaves that to the work under way."""
        if count > self._pending:
            self.deliver()
        if count > self._pending:
            came = self.expected - self._pending + count
            raise error(
                "deadlock",
                f"more arrivals at {self.name} than its phase {self.phase} expects",
                loc,
                expected=f"{self.expected} arrivals per phase",
                got=f"{came} arrivals, and nobody waited in between" if came > count else f"{came}",
                help="the count of T.alloc_barrier is the number of threads that arrive",
            )
        self._pending -= count
        if not self._work:
            self.deliver()

    @property
    def due(self) -> bool:
        """Whether nothing is missing but that the work is carried out."""
        return not self._pending and not self._bytes

    def deliver(self) -> None:
        """Complete the phase if nothing is missing."""
        if not self.due:
            return
        work, self._work = self._work, []
        self.open()
        for op in work:
            op.complete(self)
        self._pending = self.expected
        self.phase += 1

    def passed(self, parity: int) -> bool:
        """Whether the phase of this parity is complete."""
        return (self.phase & 1) != (parity & 1)

    def missing(self) -> str:
        """What the phase still waits for, in words."""
        parts: list[str] = []
        if self._pending:
            parts.append(f"{self._pending} of {self.expected} arrivals")
        if self._bytes > 0:
            parts.append(f"{self._bytes} bytes")
        text = f"phase {self.phase} of {self.name} lacks {' and '.join(parts) or 'nothing'}"
        if self._bytes < 0:
            text += f", and {-self._bytes} bytes came that it does not expect"
        return text

    def state(self) -> tuple[int, ...]:
        """What a later arrival or wait can see of it."""
        return (self.phase, self._pending, self._bytes, len(self._work))


class Meeting(Point):
    """A barrier of a number of threads; `turn` counts how often it was complete."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.turn = 0
        self.here = 0
        self.needed = 0
        self.loc: Loc | None = None
        self._claimed = -1

    def claim(self, turn: int) -> bool:
        """True for the first who asks about a turn."""
        if self._claimed >= turn:
            return False
        self._claimed = turn
        return True

    def arrive(self, count: int, needed: int) -> bool:
        """Arrivals of `needed` in all. True if they complete the turn with nobody left over."""
        self.needed = needed
        self.here += count
        self.settle(needed)
        return self.here == 0

    def settle(self, needed: int) -> None:
        """Complete the turn if `needed` threads are here (they may be fewer than were expected)."""
        if self.here and self.here >= needed:
            self.open()
            self.turn += self.here // max(needed, 1)
            self.here %= max(needed, 1)
        self.needed = needed

    def what(self) -> str:
        """What is missing, in words."""
        return f"{self.name}: {self.here} of {self.needed} threads have arrived"

    def blocks(self) -> str:
        """What is missing, in words, where blocks arrive."""
        return f"{self.name}: {self.here} of {self.needed} blocks have arrived"
