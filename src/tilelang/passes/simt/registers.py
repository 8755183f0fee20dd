"""Registers that warpgroups give to each other, as the author asks (`T.set_max_nreg`).

What enters: the wishes of parts of a block. What leaves: `setmaxnreg`, or the reason why registers
stay where they are. A block has those that its threads have when it starts; a warpgroup that wants
more waits until others have given theirs up, so wishes that do not add up would never be met
(PTX ISA, "setmaxnreg").
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.ir.tile import Annotate, Block
from tilelang.isa.target import Capability, Target
from tilelang.passes.build import map_statements
from tilelang.passes.issue import Issue
from tilelang.passes.simt.launch import Threads

ALL = 65536
"""32-bit registers of an SM, and so of a block that is alone on it."""

MOST = 255
"""Registers that a thread can have."""

GROUP = 128
"""The threads that change their number together."""

ROW = "setmaxnreg"


class Registers:
    """The wishes of one launch."""

    def __init__(self, t: Threads, target: Target) -> None:
        self.t = t
        self.possible = target.supports(Capability.SETMAXNREG)
        self.start = min(ALL // max(t.count, 1), MOST) // 8 * 8
        self.wishes: list[tuple[Annotate, Threads, str, int]] = []

    def asked(self, stmt: Annotate, part: Threads) -> Block:
        """A wish of a part of the block."""
        if len(stmt.values) < 2 or not self.possible:
            return ()
        step, count = str(stmt.values[0]), int(stmt.values[1])
        self.wishes.append((stmt, part, step, count))
        imm = (("step", step), ("registers", count))
        return (Issue(ROW, (), (), imm=imm, loc=stmt.loc),)

    def kept(self, body: Block) -> Block:
        """The body with the wishes, if all of them can be met, else without any."""
        why = next(self.faults(), None)
        if why is None:
            return body
        self.t.note("declined", f"registers stay where they are: {why}", self.wishes[0][0].loc)
        return map_statements(body, lambda s: () if isinstance(s, Issue) and s.row == ROW else None)

    def faults(self) -> Iterator[str]:
        """Why wishes cannot be met."""
        taken = self.start * self.t.count
        for _, part, step, count in self.wishes:
            if part.count % GROUP or part.base % GROUP:
                yield "threads that ask are no whole warpgroups"
            if (count - self.start) * (1 if step == "inc" else -1) < 0:
                yield f"threads have {self.start} at first, so {step} to {count} is none"
            taken += (count - self.start) * part.count
        parts = [(part.base, part.count) for _, part, _, _ in self.wishes]
        if len(set(parts)) < len(parts):
            yield "a part asks twice"
        if taken > self.start * self.t.count:
            yield f"{taken} are asked for, a block has {self.start * self.t.count}"
