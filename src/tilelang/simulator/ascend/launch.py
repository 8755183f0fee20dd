"""A launch in the order of the program: groups one after the other, cores of a group by turns.

What enters: a kernel's text, its grid and what it is given. What leaves: changed memory. A group
that waits for other groups lets them go on; memory of a group that has ended is given back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilelang.errors import DeadlockError, Diagnostic
from tilelang.ir.ascend import Core as Kind
from tilelang.simulator.ascend.core import CoreBase, Member
from tilelang.simulator.ascend.crossing import Crossing, Size
from tilelang.simulator.ascend.inorder import Counts, InOrderCore
from tilelang.simulator.ascend.memories import GroupMemories
from tilelang.simulator.machine import Report, Wait

if TYPE_CHECKING:
    from tilelang.simulator.ascend.program import AscendProgram
    from tilelang.simulator.ascend.text import KernelText


@dataclass
class Launch:
    """One launch: the kernel, how many blocks, what they are given."""

    of: AscendProgram
    text: KernelText
    grid: tuple[int, ...]
    given: tuple[Any, ...]
    report: Report

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

    def steps(self, core: CoreBase, block: tuple[int, ...]) -> Iterator[Wait]:
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


def run_in_order(launch: Launch, counts: Counts) -> None:
    """Run all blocks."""
    limits = launch.of.chip.sync
    assert limits is not None
    blocks = launch.blocks()
    crossing = Crossing[None](launch.size(), limits)
    waiting: list[_Group] = []
    free: list[GroupMemories] = []
    for number, block in enumerate(blocks):
        memories = (
            free.pop()
            if free
            else GroupMemories(launch.text.memories, launch.report, "", checked=False)
        )
        group = _Group()
        for kind, sub in launch.kinds():
            core = InOrderCore(Member(number, kind, sub), memories, limits, crossing, counts)
            group.running.append(_Running(core, launch.steps(core, block)))
        if group.advance(launch.report):
            memories.forget()
            free.append(memories)
        else:
            waiting.append(group)
    while waiting:
        version = crossing.version
        waiting = [g for g in waiting if not g.advance(launch.report)]
        if waiting and crossing.version == version:
            raise DeadlockError(stuck([r for g in waiting for r in g.running]))
    crossing.finish(launch.report)


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
