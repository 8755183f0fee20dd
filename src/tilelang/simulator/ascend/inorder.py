"""The fast mode: every instruction is done when it is issued, in the order of the program.

What enters: texts of cores. What leaves: changed memory, and errors for flags that nobody raises or
that are left over. Pipes have no queues, so a missing flag makes no difference here; `queued` shows
it. A cross-core flag makes the core wait, since the other cores run by turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tilelang.errors import Loc
from tilelang.ir.ascend import Pipe, VectorFunction
from tilelang.isa.target import SyncLimits
from tilelang.simulator.ascend.core import CoreBase, Member
from tilelang.simulator.ascend.crossing import Crossing
from tilelang.simulator.ascend.instruction import Instruction
from tilelang.simulator.ascend.memories import GroupMemories, Window
from tilelang.simulator.ascend.report import flag_name, leftover, never_raised
from tilelang.simulator.machine import Clocks, Report, Wait, Who

Steps = Iterator[Wait]


@dataclass
class Flag:
    """How often a flag was raised and waited for, and where last."""

    raised: int = 0
    taken: int = 0
    set_at: Loc | None = None
    waited_at: Loc | None = None


@dataclass
class Counts:
    """Instructions by pipe: what a run has done."""

    by_pipe: Counter[str] = field(default_factory=Counter[str])


class InOrderCore(CoreBase):
    """One core, in the order of its program."""

    def __init__(
        self,
        member: Member,
        memories: GroupMemories,
        limits: SyncLimits,
        crossing: Crossing[None],
        counts: Counts,
    ) -> None:
        super().__init__(member, memories, limits)
        self.crossing = crossing
        self.counts = counts
        self.team = Clocks().team()  # nothing is ordered here, so nobody asks it
        self.flags: dict[tuple[str, str, int], Flag] = {}

    def issue(self, i: Instruction, *operands: Any) -> None:
        """Do an instruction."""
        layout = i.layout(operands[2 * len(i.slots) :])
        arrays = i.arrays(layout, self.places(i, layout, operands))
        self.counts.by_pipe[i.pipe.value] += 1
        i.run(arrays, {**layout.params, **self.state(i)})

    def call(self, function: VectorFunction, given: dict[str, Any]) -> None:
        """Carry out a vector function."""
        self.counts.by_pipe[Pipe.V.value] += 1
        self.carried_out(function, given, lambda site: Who(self.team, 0, site))

    def load(self, window: Window, index: int, loc: Loc | None) -> Any:
        """An element, by the scalar unit."""
        self.element(window, index, loc)
        return window.scalar(index)

    def store(self, window: Window, index: int, value: Any, loc: Loc | None) -> None:
        """Write an element."""
        self.element(window, index, loc)
        window.elements[index] = value

    # Flags of the core ---------------------------------------------------------------------------

    def flag(self, i: Instruction, number: int) -> Flag:
        """A flag, by its pipes and number."""
        key = (i.imm["src"], i.imm["dst"], number)
        return self.flags.setdefault(key, Flag())

    def set_flag(self, i: Instruction, number: int) -> None:
        """Raise an event."""
        i.check_id(number, self.limits.event_ids, "event")
        found = self.flag(i, number)
        found.raised += 1
        found.set_at = i.loc

    def wait_flag(self, i: Instruction, number: int) -> Steps:
        """Take an event down. One that is raised later in the program is found at the end."""
        i.check_id(number, self.limits.event_ids, "event")
        found = self.flag(i, number)
        found.taken += 1
        found.waited_at = i.loc
        return iter(())

    def barrier(self, i: Instruction) -> Steps:
        """Everything before is done."""
        del i
        return iter(())

    def lock(self, i: Instruction, number: int) -> Steps:
        """The order of the program is that of the holders."""
        i.check_id(number, self.limits.mutexes, "mutex")
        return iter(())

    def unlock(self, i: Instruction, number: int) -> None:
        """Give a mutex back."""
        i.check_id(number, self.limits.mutexes, "mutex")

    # Between cores -------------------------------------------------------------------------------

    def cross_set(self, i: Instruction, number: int) -> None:
        """Raise a flag for other cores."""
        self.crossing.raise_(self, i, number, None)

    def cross_wait(self, i: Instruction, number: int) -> Steps:
        """Go on when a flag of other cores holds."""
        ready = self.crossing.ready(self, i, number)
        while not ready():
            yield Wait(ready, self.crossing.what(i, number), i.loc)
        self.crossing.take(self, i, number)

    def sync_all(self, i: Instruction, kind: str) -> Steps:
        """Go on when all cores are here."""
        arrived = self.crossing.arrive(self, i, kind, None)
        while not arrived():
            yield Wait(arrived, "all cores to come to T.sync_all()", i.loc)

    def finish(self, report: Report) -> None:
        """The program of the core has ended."""
        for (src, dst, number), flag in self.flags.items():
            name = flag_name(src, dst, number)
            if flag.raised > flag.taken:
                leftover(report, self.name, name, flag.set_at)
            elif flag.raised < flag.taken:
                never_raised(report, self.name, name, flag.waited_at)
