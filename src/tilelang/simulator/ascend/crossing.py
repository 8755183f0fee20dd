"""Flags between cores: who raises one for whom, and when it holds.

What enters: cores that raise and wait. What leaves: whether a wait is over, and what those who
raised the flag hand over (`P`: a clock, or nothing). Modes are those of `ir.ascend.CrossSet`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tilelang.errors import Loc, error
from tilelang.ir.ascend import Core as Kind
from tilelang.isa.target import SyncLimits
from tilelang.simulator.ascend.core import CoreBase, Member
from tilelang.simulator.ascend.instruction import Instruction
from tilelang.simulator.ascend.report import leftover
from tilelang.simulator.machine import Report

P = TypeVar("P")

ALL, GROUP, PAIR, ONE = 0, 1, 2, 4
"""The modes: all cores of a kind, the vector cores of a group, cube and vector cores of a group,
the cube core and one vector core.
"""
_SECOND = 16
"""What is added to an id on the cube core to mean vector core 1 (`_PAIR_FLAGS` of the machine)."""


@dataclass
class _Raised(Generic[P]):
    """What one core has raised for another under one id: not yet taken, oldest first."""

    parts: deque[tuple[P, Loc | None]] = field(default_factory=deque[tuple[P, Loc | None]])


@dataclass(frozen=True)
class Size:
    """A launch: its groups, the vector cores of each, which kinds of core have work, and how many
    groups the largest chip runs at the same time.
    """

    groups: int
    vectors: int
    kinds: frozenset[Kind]
    resident: int


class Crossing(Generic[P]):
    """The flags of one launch."""

    def __init__(self, size: Size, limits: SyncLimits) -> None:
        self.groups = size.groups
        self.vectors = size.vectors
        self.kinds = size.kinds
        self.resident = size.resident
        self.limits = limits
        self.version = 0
        self._raised: dict[tuple[Member, Member, tuple[bool, int]], _Raised[P]] = {}
        self._lists: dict[tuple[Member, int, int, bool], list[_Raised[P]]] = {}
        self._rounds: dict[tuple[Member, str], int] = {}
        self._arrived: dict[tuple[str, int], dict[Member, P]] = {}

    # Flags ---------------------------------------------------------------------------------------

    def raise_(self, core: CoreBase, i: Instruction, number: int, given: P) -> None:
        """A core raises a flag for all that it concerns."""
        if i.imm["mode"] == ALL:
            self._meet(i)
        self.version += 1
        for raised in self._between(core, i, number, raising=True):
            parts = raised.parts
            parts.append((given, i.loc))
            if len(parts) > self.limits.flag_count.value:
                raise error(
                    "deadlock",
                    f"cross-core flag {number} is raised {len(parts)} times with no wait between",
                    i.loc,
                    label=f"raised here by {core.name}",
                    expected=f"at most {self.limits.flag_count.value}"
                    f" ({self.limits.flag_count.source})",
                )

    def room(self, core: CoreBase, i: Instruction, number: int) -> Callable[[], bool]:
        """Whether a flag may be raised once more."""
        most = self.limits.flag_count.value
        parts = [raised.parts for raised in self._between(core, i, number, raising=True)]
        return lambda: all(len(p) < most for p in parts)

    def ready(self, core: CoreBase, i: Instruction, number: int) -> Callable[[], bool]:
        """Whether a flag holds for a core."""
        parts = [raised.parts for raised in self._between(core, i, number, raising=False)]
        return lambda: all(parts)

    def take(self, core: CoreBase, i: Instruction, number: int) -> list[P]:
        """Take a flag down that holds: what those who raised it hand over."""
        found = [raised.parts.popleft() for raised in self._between(core, i, number, raising=False)]
        self.version += 1
        return [given for given, _ in found]

    def what(self, i: Instruction, number: int) -> str:
        """What a core waits for, in words."""
        return f"cross-core flag {number} (mode {i.imm['mode']})"

    def _between(
        self, core: CoreBase, i: Instruction, number: int, *, raising: bool
    ) -> list[_Raised[P]]:
        """What a core raises for others under an id, or others for it; the same list each time."""
        mode, me = i.imm["mode"], core.member
        found = self._lists.get((me, mode, number, raising))
        if found is None:
            i.check_id(number, self.limits.flags_of(mode), "cross-core flag")
            if raising:
                pairs = [(me, other) for other in self._receivers(me, mode, number)]
            else:
                pairs = [(other, me) for other in self._senders(me, mode, number)]
            key = self._key(mode, number)
            found = [self._raised.setdefault((*pair, key), _Raised[P]()) for pair in pairs]
            self._lists[me, mode, number, raising] = found
        return found

    @staticmethod
    def _key(mode: int, number: int) -> tuple[bool, int]:
        """A flag by its number. Between the cube core and one vector core there are others, and
        what is added on the cube core is left out.
        """
        return (mode == ONE, number % _SECOND if mode == ONE else number)

    def _receivers(self, me: Member, mode: int, number: int) -> Iterable[Member]:
        if mode == ALL:
            return self._all(me.kind)
        if mode == GROUP:
            return self._vectors(me.group)
        if me.kind is Kind.VECTOR:
            return [Member(me.group, Kind.CUBE, 0)]
        if mode == ONE:
            return [Member(me.group, Kind.VECTOR, number // _SECOND)]
        return self._vectors(me.group)

    def _senders(self, me: Member, mode: int, number: int) -> list[Member]:
        if mode in (ALL, GROUP) or me.kind is Kind.CUBE:
            found = self._receivers(me, mode, number)
        else:
            found = [Member(me.group, Kind.CUBE, 0)]
        return list(found)

    def _vectors(self, group: int) -> list[Member]:
        return [Member(group, Kind.VECTOR, sub) for sub in range(self.vectors)]

    def _all(self, kind: Kind) -> list[Member]:
        if kind is Kind.CUBE:
            return [Member(g, kind, 0) for g in range(self.groups)]
        return [m for g in range(self.groups) for m in self._vectors(g)]

    # All cores -----------------------------------------------------------------------------------

    def arrive(self, core: CoreBase, i: Instruction, kind: str, given: P) -> Callable[[], bool]:
        """A core comes to a meeting of all cores of a kind ("": of both kinds)."""
        self._meet(i)
        me = core.member
        round_ = self._rounds.get((me, kind), 0)
        self._rounds[me, kind] = round_ + 1
        here = self._arrived.setdefault((kind, round_), {})
        here[me] = given
        self.version += 1
        wanted = sum(len(self._all(k)) for k in self.kinds if kind in ("", k.value))
        return lambda: len(here) >= wanted

    def _meet(self, i: Instruction) -> None:
        """Groups that wait for each other must run at the same time."""
        if self.groups > self.resident:
            raise error(
                "deadlock",
                f"{self.groups} blocks wait for each other, and {self.resident} run at once",
                i.loc,
                expected=f"at most {self.resident} blocks",
                help="launch one block for each core and let it loop (T.Persistent)",
            )

    def met(self, core: CoreBase, kind: str) -> list[P]:
        """What all who came to the last meeting hand over."""
        round_ = self._rounds[core.member, kind] - 1
        return list(self._arrived[kind, round_].values())

    def finish(self, report: Report) -> None:
        """Flags that are raised when the launch ends."""
        for (sender, receiver, key), raised in self._raised.items():
            if raised.parts:
                name = f"cross-core flag {key[1]}"
                leftover(report, f"{sender} for {receiver}", name, raised.parts[-1][1])
