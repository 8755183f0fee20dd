"""A launch in the order of the program: groups one after the other, cores of a group by turns.

What enters: a kernel's text, its grid and what it is given. What leaves: changed memory. Groups
that cannot tell are run several at once (`abreast`). A group that waits for other groups lets them
go on; memory of a group that has ended is given back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tilelang.errors import DeadlockError, Diagnostic, TileError
from tilelang.ir.ascend import Core as Kind
from tilelang.isa.target import SyncLimits
from tilelang.simulator.ascend.abreast import LEAST, AbreastCore, Footprints, Survey, Unfit
from tilelang.simulator.ascend.core import CoreBase, Member
from tilelang.simulator.ascend.crossing import Crossing, Size
from tilelang.simulator.ascend.inorder import Counts, InOrderCore
from tilelang.simulator.ascend.levels import Divergent
from tilelang.simulator.ascend.memories import GroupMemories, LaneMemories
from tilelang.simulator.machine import Report, Wait

if TYPE_CHECKING:
    from tilelang.simulator.ascend.program import AscendProgram
    from tilelang.simulator.ascend.text import KernelText

Block = tuple[Any, ...]
"""The index of a block on each axis of the grid; of several blocks an array where it differs."""


@dataclass
class Launch:
    """One launch: the kernel, how many blocks, what they are given."""

    of: AscendProgram
    text: KernelText
    grid: tuple[int, ...]
    given: tuple[Any, ...]
    report: Report

    @property
    def limits(self) -> SyncLimits:
        """What the chip has of flags."""
        found = self.of.chip.sync
        assert found is not None
        return found

    @property
    def vectors(self) -> int:
        """The vector cores of a group."""
        return self.text.kernel.block[0]

    def size(self) -> Size:
        """What flags between cores need to know."""
        groups = len(self.blocks())
        return Size(groups, self.vectors, self.text.kinds, self.of.resident)

    def blocks(self) -> list[tuple[int, ...]]:
        """The indices of the blocks."""
        return list(itertools.product(*(range(n) for n in self.grid)))

    def kinds(self) -> list[tuple[Kind, int]]:
        """The cores of a group that have work."""
        found = [(Kind.CUBE, 0)] if Kind.CUBE in self.text.kinds else []
        if Kind.VECTOR in self.text.kinds:
            found += [(Kind.VECTOR, sub) for sub in range(self.vectors)]
        return found

    def steps(self, core: CoreBase, block: Block) -> Iterator[Wait]:
        """The program of one core."""
        name = self.text.cube if core.kind is Kind.CUBE else self.text.vector
        function: Callable[..., Iterator[Wait]] = self.of.functions[name]
        return function(core, *self.given, *block, core.sub)


@dataclass
class _Running:
    """A core that has not ended."""

    core: InOrderCore
    steps: Iterator[Wait]
    wait: Wait | None = None

    def advance(self) -> bool:
        """Go on as far as possible; whether it has ended."""
        while self.wait is None or self.wait.ready():
            try:
                self.wait = next(self.steps)
            except StopIteration:
                return True
        return False


@dataclass
class _Group:
    """The cores of a block that have not ended."""

    running: list[_Running] = field(default_factory=list["_Running"])

    def advance(self, report: Report) -> bool:
        """Go on until all cores have ended or wait; whether all have ended."""
        while True:
            before = [r.wait for r in self.running]
            for r in list(self.running):
                if r.advance():
                    r.core.finish(report)
                    self.running.remove(r)
            if not self.running:
                return True
            if [r.wait for r in self.running] == before:
                return False


class _InOrder:
    """A launch under way."""

    def __init__(self, launch: Launch, counts: Counts) -> None:
        self.launch = launch
        self.counts = counts
        self.limits = launch.limits
        self.blocks = launch.blocks()
        self.crossing = Crossing[None](launch.size(), self.limits)
        self.waiting: list[_Group] = []
        self.free: list[GroupMemories] = []
        self.lanes: dict[int, LaneMemories] = {}
        self.surveyed: GroupMemories | None = None

    def group(self, number: int, make: Callable[[Member], InOrderCore], block: Block) -> _Group:
        """The cores of a block, at the start of their programs."""
        cores = [make(Member(number, kind, sub)) for kind, sub in self.launch.kinds()]
        return _Group([_Running(core, self.launch.steps(core, block)) for core in cores])

    def go(self) -> None:
        """Run all blocks."""
        number = 0
        while number < len(self.blocks):
            lanes = self.fitting(number)
            if lanes >= LEAST:
                self.abreast(number, lanes)
            else:
                for k in range(number, number + lanes):
                    self.alone(k)
            number += lanes
        while self.waiting:
            version = self.crossing.version
            self.waiting = [g for g in self.waiting if not g.advance(self.launch.report)]
            if self.waiting and self.crossing.version == version:
                raise DeadlockError(stuck([r for g in self.waiting for r in g.running]))
        self.crossing.finish(self.launch.report)

    def alone(self, number: int) -> None:
        """Run one block, as far as it goes."""
        text, report = self.launch.text, self.launch.report
        memories = (
            self.free.pop()
            if self.free
            else GroupMemories(text.memories, report, "", checked=False)
        )

        def make(member: Member) -> InOrderCore:
            return InOrderCore(member, memories, self.limits, self.crossing, self.counts)

        group = self.group(number, make, self.blocks[number])
        if group.advance(report):
            memories.forget()
            self.free.append(memories)
        else:
            self.waiting.append(group)

    # Several blocks at once ----------------------------------------------------------------------

    def fitting(self, number: int) -> int:
        """How many blocks from one on go the same way; more than one of them can run at once."""
        text = self.launch.text
        lanes = min(text.lanes, len(self.blocks) - number)
        while lanes >= LEAST and not self.waiting:
            try:
                if self.survey(number, lanes):
                    return lanes
                text.lanes = 0
            except Divergent as e:
                lanes = e.together
                text.lanes = text.lanes if lanes >= LEAST else text.lanes // 2
                continue
            except (Unfit, TileError, ValueError, TypeError):  # the run block by block says why
                text.lanes = 0
            return 1
        return max(lanes, 1)

    def survey(self, number: int, lanes: int) -> bool:
        """Run the scalars of blocks alone: whether all is right, and none disturbs another."""
        text, report, footprints = self.launch.text, Report(), Footprints(lanes)
        if self.surveyed is None:
            self.surveyed = GroupMemories(text.memories, report, "", checked=False)
        memories, crossing = self.surveyed, Crossing[None](self.launch.size(), self.limits)

        def make(member: Member) -> InOrderCore:
            return Survey(member, memories, self.limits, crossing, footprints)

        group = self.group(number, make, self.lanes_of(number, lanes))
        ended = group.advance(report)
        crossing.finish(report)
        return ended and not report.findings and footprints.apart()

    def abreast(self, number: int, lanes: int) -> None:
        """Run blocks at once."""
        text, report = self.launch.text, self.launch.report
        memories = self.lanes.get(lanes)
        if memories is None:
            memories = self.lanes[lanes] = LaneMemories(text.memories, report, lanes)
        memories.forget()

        def make(member: Member) -> InOrderCore:
            return AbreastCore(member, memories, self.limits, self.crossing, self.counts)

        self.group(number, make, self.lanes_of(number, lanes)).advance(report)

    def lanes_of(self, number: int, lanes: int) -> Block:
        """The indices of blocks, each as an array unless it is the same in all of them."""
        columns = np.array(self.blocks[number : number + lanes], np.int64).T
        return tuple(int(c[0]) if (c == c[0]).all() else c for c in columns)


def run_in_order(launch: Launch, counts: Counts) -> None:
    """Run all blocks."""
    _InOrder(launch, counts).go()


def stuck(running: Sequence[_Running]) -> Diagnostic:
    """The report of cores of which none can go on."""
    found = [(r.core.name, r.wait) for r in running if r.wait is not None]
    name, wait = found[0]
    notes = tuple(f"{n} waits for {w.what} ({w.loc})" for n, w in found[:6] if w.loc is not None)
    return Diagnostic(
        "deadlock",
        "nothing can go on",
        wait.loc,
        label=f"{name} waits for {wait.what}",
        notes=notes,
        help="let what is waited for be raised: the same flag, by the core it is waited for from",
    )
