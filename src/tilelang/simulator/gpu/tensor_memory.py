"""Tensor Memory of a block: 128 lanes of 512 cells of 32 bits, who holds columns, and the order of
what is done there.

What enters: allocations and accesses by lanes and columns. What leaves: words, and findings of the
shadow. An operation of tcgen05 is usable where its end is known on the path USABLE; a fence
`before_thread_sync` puts what a thread can use on the path PUBLISHED, which barriers hand over, and
`after_thread_sync` makes that usable. USABLE itself is never handed over (PTX ISA 9.0, "tcgen05:
Memory Consistency Model").
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tilelang.errors import Loc, TileError, error
from tilelang.ir.thread import Instr, Kernel
from tilelang.simulator.gpu.block import Block
from tilelang.simulator.machine import Agent, Clocks, Memory, Queue, Shadow, Team, Who
from tilelang.simulator.machine.clocks import Actors, Clock

LANES, COLUMNS, CELL = 128, 512, 4
PUBLISHED, USABLE = 2, 3
"""The paths of tcgen05, after the generic and the async proxy."""
UNKNOWN = 0xFF

Index = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]
Knowledge = npt.NDArray[np.int32]


@dataclass
class Operation:
    """An operation under way: its agent, and its actor with its epoch."""

    agent: Agent
    actor: int
    epoch: int


@dataclass
class Unit:
    """The operations that one thread has issued, in order; `known` is what the last one knew at its
    end.
    """

    queue: Queue
    known: Knowledge = field(default_factory=lambda: np.zeros((0, 0), np.int32))


@dataclass
class TensorMemory:
    """The state of one block."""

    block: Block
    memory: Memory
    shadow: Shadow | None
    held: dict[int, int] = field(default_factory=dict[int, int])
    widest: int = COLUMNS
    given_up: bool = False
    stale: bool = False
    moves: dict[tuple[int, str], list[Operation]] = field(
        default_factory=dict[tuple[int, str], list[Operation]]
    )

    def free_place(self, count: int) -> int | None:
        """The first columns that are free, as hardware may hand them out."""
        taken = np.zeros(COLUMNS, np.bool_)
        for start, size in self.held.items():
            taken[start : start + size] = True
        places = (s for s in range(0, COLUMNS - count + 1, 32) if not taken[s : s + count].any())
        return next(places, None)

    def places(self, lanes: Index, columns: Index, loc: Loc | None) -> Index:
        """Byte addresses of cells; an error where the block does not hold the columns."""
        low, high = int(columns.min()), int(columns.max())
        inside = any(s <= low and high < s + n for s, n in self.held.items())
        if not inside or int(lanes.min()) < 0 or int(lanes.max()) >= LANES:
            raise _outside(low, high, self.held, loc)
        at: Index = (lanes * COLUMNS + columns) * CELL
        return at

    def read(self, at: Index, who: Who, size: int = CELL) -> Words:
        """The lower `size` bytes of cells, as words."""
        raw = self.memory.read_places(at[..., None] + np.arange(size), who)
        out = np.zeros((*at.shape, CELL), np.uint8)
        out[..., :size] = raw
        return out.view(np.uint32)[..., 0]

    def write(self, at: Index, words: Words, who: Who, size: int = CELL) -> None:
        """Sets the lower `size` bytes of cells."""
        raw = np.ascontiguousarray(words).view(np.uint8).reshape(*at.shape, CELL)[..., :size]
        self.memory.write_places(at[..., None] + np.arange(size), np.ascontiguousarray(raw), who)

    def forget(self, first: int, count: int) -> None:
        """The contents of columns are undefined, also where others held them before."""
        if not self.stale:
            return
        lanes, columns = np.indices((LANES, count))
        at = ((lanes * COLUMNS + columns + first) * CELL)[..., None] + np.arange(CELL)
        self.memory.data[at] = UNKNOWN
        if self.shadow is not None:
            self.shadow.clear(at.reshape(-1))


def _outside(low: int, high: int, held: dict[int, int], loc: Loc | None) -> TileError:
    owned = ", ".join(f"{s} to {s + n - 1}" for s, n in sorted(held.items())) or "none"
    return error(
        "bounds",
        "an access to columns of Tensor Memory that the block does not hold",
        loc,
        expected=f"columns that are allocated: {owned}",
        got=f"columns {low} to {high}",
    )


def tensor_memory(block: Block) -> TensorMemory:
    """The Tensor Memory of a block."""

    def make() -> TensorMemory:
        size = LANES * COLUMNS * CELL
        shadow = Shadow("Tensor Memory", size, block.report) if block.machine.checked else None
        data: npt.NDArray[np.uint8] = np.full(size, UNKNOWN, np.uint8)
        memory = Memory("Tensor Memory", data, block.report, shadow=shadow)
        return TensorMemory(block, memory, shadow)

    return block.unit("tensor memory", make)


# Order -------------------------------------------------------------------------------------------


def publish(team: Team, actors: Actors) -> None:
    """What these actors can use may be handed over."""
    rows = team.rows
    rows[PUBLISHED, actors] = np.maximum(rows[PUBLISHED, actors], rows[USABLE, actors])


def admit(team: Team, actors: Actors) -> None:
    """What was handed over to these actors can be used."""
    rows = team.rows
    rows[USABLE, actors] = np.maximum(rows[USABLE, actors], rows[PUBLISHED, actors])


def learn(team: Team, actors: Actors, operation: Operation) -> None:
    """These actors have waited for an operation of their own."""
    for path in (0, USABLE):
        known = team.rows[path, actors, operation.actor]
        team.rows[path, actors, operation.actor] = np.maximum(known, operation.epoch)


def follow(team: Team, actor: int, unit: Unit) -> None:
    """An operation begins after the one before it in its queue, and knows what that one knew."""
    width = unit.known.shape[1]
    if width:
        mine = team.rows[:, actor, :width]
        team.rows[:, actor, :width] = np.maximum(mine, unit.known)


def finish(team: Team, actor: int, unit: Unit) -> Clock:
    """An operation of a queue is over: what its end hands over, as if a fence stood before it."""
    unit.known = team.rows[:, actor, : team.count].copy()
    publish(team, np.array([actor]))
    return team.end(actor)


def clocks_of(kernel: Kernel) -> Clocks:
    """The clocks of a launch: with the paths of tcgen05 where it is used."""
    if any(isinstance(n, Instr) and n.row.startswith("tcgen05") for n in kernel.walk()):
        return Clocks(paths=4, private=USABLE)
    return Clocks(paths=2)
