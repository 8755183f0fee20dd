"""The fast mode: every instruction is done when it is issued, in the order of the program.

What enters: texts of cores. What leaves: changed memory, and errors for flags that nobody raises or
that are left over. Pipes have no queues, so a missing flag makes no difference here; `queued` shows
it. A cross-core flag makes the core wait, since the other cores run by turns: until it is raised,
and, where it is raised as often as it can be, until another core has taken it down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from tilelang.errors import Loc
from tilelang.ir.ascend import Pipe, VectorFunction
from tilelang.isa.target import SyncLimits
from tilelang.simulator.ascend.core import CoreBase, Member
from tilelang.simulator.ascend.crossing import Crossing
from tilelang.simulator.ascend.instruction import Instruction, View
from tilelang.simulator.ascend.memories import GroupMemories, Ready, Window
from tilelang.simulator.ascend.report import flag_name, leftover, never_raised
from tilelang.simulator.machine import Clocks, Report, Wait, Who
from tilelang.targets.ascend.rows.vector import OutsideSource

Steps = Iterable[Wait]

KEPT = 4096
"""How many places of its operands are kept of an instruction; then it begins anew."""


@dataclass(slots=True)
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
        self.by_pipe = counts.by_pipe
        self.ready = memories.ready
        self.team = Clocks().team()  # nothing is ordered here, so nobody asks it
        self.flags: dict[tuple[tuple[str, str], int], Flag] = {}

    def issue(
        self,
        i: Instruction,
        at: tuple[Any, ...],
        data: dict[str, Any] | None = None,
        far: int = 0,
    ) -> None:
        """Do an instruction."""
        found = self.ready[i]
        ready = found.get(at)
        if ready is None:
            if len(found) == KEPT:
                found.clear()
            ready = found[at] = self.prepared(i, at)
        self.by_pipe[i.queue] += 1
        do, outside = ready
        given = {} if data is None else data
        if outside is not None:
            given[i.slots[i.far].name] = outside(far)
        if i.moded and (self.atomic or self.modes or i.told):
            given.update(self.state(i))
        try:
            do(**given)
        except OutsideSource as e:
            raise i.outside_source(e) from None

    def prepared(self, i: Instruction, at: tuple[Any, ...]) -> Ready:
        """All of an instruction that does not change as long as its operands lie where they do:
        what to call, and what makes an array of its operand in global memory.
        """
        layout = i.layout(at)
        places = self.places(i, layout, at, 0)
        arrays = {
            slot.name: i.array(slot, layout.views[k], *places[k])
            for k, slot in enumerate(i.slots)
            if k != i.far
        }
        assert i.meaning is not None
        outside = None if i.far < 0 else self.outside(i, layout.views[i.far], places[i.far][0])
        return partial(i.meaning, **arrays, **layout.params), outside

    def outside(self, i: Instruction, view: View, window: Window) -> Callable[[int], Any]:
        """What makes an array of an operand from an element of a window on, as `array` does."""
        slot, data, make = i.slots[i.far], window.memory.data, np.ndarray
        dtype, shape, strides, align = slot.dtype, view.shape, view.strides, slot.align or 1
        size, first = dtype.itemsize, window.start
        low, high = -view.low, data.size - view.high

        def of(index: int) -> Any:
            start = first + index * size
            if view.empty or start < low or start > high or start % align:
                return i.array(slot, view, window, index)
            return make(shape, dtype, data, start, strides)

        return of

    def call(self, function: VectorFunction, given: dict[str, Any]) -> None:
        """Carry out a vector function."""
        self.by_pipe[Pipe.V.value] += 1
        self.carried_out(function, given, lambda site: Who(self.team, 0, site))

    def load(self, window: Window, index: int, loc: Loc | None) -> Any:
        """An element, by the scalar unit."""
        if not 0 <= index < window.count:
            self.element(window, index, loc)
        return window.cells[index]

    def store(self, window: Window, index: int, value: Any, loc: Loc | None) -> None:
        """Write an element."""
        if not 0 <= index < window.count:
            self.element(window, index, loc)
        window.elements[index] = value

    # Flags of the core ---------------------------------------------------------------------------

    def flag(self, i: Instruction, number: int) -> Flag:
        """A flag, by its pipes and number, that nobody has used."""
        i.check_id(number, self.limits.event_ids, "event")
        found = self.flags[i.pair, number] = Flag()
        return found

    def set_flag(self, i: Instruction, number: int) -> None:
        """Raise an event."""
        found = self.flags.get((i.pair, number)) or self.flag(i, number)
        found.raised += 1
        found.set_at = i.loc

    def wait_flag(self, i: Instruction, number: int) -> Steps:
        """Take an event down. One that is raised later in the program is found at the end."""
        found = self.flags.get((i.pair, number)) or self.flag(i, number)
        found.taken += 1
        found.waited_at = i.loc
        return ()

    def barrier(self, i: Instruction) -> Steps:
        """Everything before is done."""
        del i
        return ()

    def lock(self, i: Instruction, number: int) -> Steps:
        """The order of the program is that of the holders."""
        i.check_id(number, self.limits.mutexes, "mutex")
        return ()

    def unlock(self, i: Instruction, number: int) -> None:
        """Give a mutex back."""
        i.check_id(number, self.limits.mutexes, "mutex")

    # Between cores -------------------------------------------------------------------------------

    def cross_set(self, i: Instruction, number: int) -> Steps:
        """Raise a flag for other cores, which come to take it down first where it is full."""
        room = self.crossing.room(self, i, number)
        if not room():
            most = self.limits.flag_count
            what = f"{self.crossing.what(i, number)} to be taken down"
            yield Wait(room, f"{what}: it is raised {most.value} times ({most.source})", i.loc)
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
        for ((src, dst), number), flag in self.flags.items():
            name = flag_name(src, dst, number)
            if flag.raised > flag.taken:
                leftover(report, self.name, name, flag.set_at)
            elif flag.raised < flag.taken:
                never_raised(report, self.name, name, flag.waited_at)
