"""The blocks of a launch whose threads wait for each other: their memory, their barriers, and who
is still there.

What enters: the shape of the launch. What leaves: state that the agents of a block, of its cluster
and of the grid share.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.emulator import storage
from tilelang.emulator.barriers import Mbarrier, Meeting
from tilelang.emulator.inflight import Groups, Op, Threads
from tilelang.emulator.storage import Array, Tile
from tilelang.errors import Loc, error

if TYPE_CHECKING:
    from tilelang.emulator.order import Order

Team = tuple[int, ...]
"""The agents of a block that run one piece of the program together, by number."""

Index = tuple[int, ...]

LANE = "thread#"
"""The name of the axis of an agent's threads, which no author's name can be."""


@dataclass(frozen=True)
class Crew:
    """How the threads of a block are divided: `sizes` threads to an agent, in order, x fastest.

    `threads` are the extents along x, y and z, `names` the author's names of the indices.
    """

    threads: tuple[int, ...]
    sizes: tuple[int, ...]
    names: tuple[str, ...]
    cluster: tuple[int, ...] = ()
    all_at_once: bool = False

    @property
    def count(self) -> int:
        """The threads of a block."""
        return math.prod(self.threads)

    @property
    def team(self) -> Team:
        """All agents."""
        return tuple(range(len(self.sizes)))

    def firsts(self) -> list[int]:
        """The first thread of each agent."""
        return [sum(self.sizes[:k]) for k in range(len(self.sizes))]

    def of(self, team: Team) -> Threads:
        """The threads of a team."""
        out = np.zeros(self.count, np.bool_)
        firsts = self.firsts()
        for k in team:
            out[firsts[k] : firsts[k] + self.sizes[k]] = True
        return out


@dataclass
class Piece:
    """One instance of a buffer of a block; `taken` counts the agents that have it."""

    array: Array
    dtype: DType
    taken: int = 0


@dataclass
class Cluster:
    """The blocks of a cluster, by rank (x fastest), and their barrier."""

    blocks: dict[int, BlockState] = field(default_factory=dict[int, "BlockState"])
    barrier: Meeting = field(default_factory=lambda: Meeting("the barrier of the cluster"))
    meetings: dict[Any, Meeting] = field(default_factory=dict[Any, Meeting])
    posted: dict[Any, dict[int, Tile]] = field(default_factory=dict[Any, "dict[int, Tile]"])

    def alive(self) -> int:
        """The threads that have not ended."""
        return sum(b.alive() for b in self.blocks.values())

    def settle(self) -> None:
        """Some threads have ended: the barrier no longer counts them."""
        self.barrier.settle(self.alive())

    def block(self, rank: int, loc: Loc | None) -> BlockState:
        """The block of this rank. Raises where there is none."""
        if rank not in self.blocks:
            raise error(
                "bounds",
                f"block {rank} of the cluster",
                loc,
                expected=f"0 to {len(self.blocks) - 1}",
                got=str(rank),
                help="the blocks of a cluster are counted by T.block_rank_in_cluster()",
            )
        return self.blocks[rank]

    def named(self, mask: int, loc: Loc | None) -> list[int]:
        """The ranks that a mask names."""
        ranks = [k for k in range(mask.bit_length()) if mask >> k & 1]
        for rank in ranks:
            self.block(rank, loc)
        return ranks


@dataclass
class Grid:
    """All blocks of a launch."""

    blocks: int
    threads: int
    together: bool = False
    barrier: Meeting = field(default_factory=lambda: Meeting("T.sync_grid"))
    missing: int = 0
    """Threads that have ended in blocks that have others."""
    pending: deque[Index] = field(default_factory=deque[Index])
    """The first blocks, x first, of clusters that have not begun."""

    def cancel(self) -> Index | None:
        """Take the next cluster away; where blocks run `together` all have begun."""
        return None if self.together or not self.pending else self.pending.popleft()

    def needed(self) -> int:
        """How many threads complete the barrier."""
        return self.blocks * self.threads - self.missing


class BlockState:
    """What the agents of one block share."""

    def __init__(
        self, index: Index, place: tuple[int, int], crew: Crew, cluster: Cluster, grid: Grid
    ) -> None:
        self.index = index
        self.number, self.rank = place
        self.crew = crew
        self.cluster = cluster
        self.grid = grid
        self.memory: dict[str, dict[int, Piece]] = {}
        self.made: dict[Any, Any] = {}
        self.told: dict[Team, tuple[Any, ...]] = {}
        self.meetings: dict[tuple[str, Team | int], Meeting] = {}
        self.groups: dict[str, Groups] = {}
        self.bars: dict[str, list[Mbarrier]] = {}
        self.loads: list[Op] = []
        self.gone = np.zeros(crew.count, np.bool_)
        self.teams: dict[Team, Threads] = {}
        self.order: Order | None = None
        self.running = len(crew.sizes)
        cluster.blocks[self.rank] = self

    def name(self) -> str:
        """The block in words."""
        return f"block ({', '.join(map(str, self.index))})"

    # -- who is there -----------------------------------------------------------------------------

    def threads_of(self, team: Team) -> Threads:
        """The threads of a team."""
        if team not in self.teams:
            self.teams[team] = self.crew.of(team)
        return self.teams[team]

    def alive(self, team: Team | None = None) -> int:
        """The threads (of a team) that have not ended."""
        return int((~self.gone if team is None else ~self.gone & self.threads_of(team)).sum())

    def ended(self) -> bool:
        """One more agent has ended: whether it was the last."""
        self.running -= 1
        return not self.running

    def meeting(self, key: tuple[str, Team | int], name: str) -> Meeting:
        """The barrier of this key."""
        return self.meetings.setdefault(key, Meeting(name))

    def leave(self, threads: Threads) -> None:
        """Some threads have ended: barriers no longer count them."""
        before = int(self.gone.sum())
        self.gone |= threads
        now = int(self.gone.sum())
        if now == before:
            return
        self.grid.missing += (now if now < self.crew.count else 0) - before
        for (_, who), meeting in self.meetings.items():
            if isinstance(who, tuple):
                meeting.settle(self.alive(who))
        self.cluster.settle()
        self.grid.barrier.settle(self.grid.needed())

    # -- memory -----------------------------------------------------------------------------------

    def piece(self, name: str, turn: int, shape: Index, dtype: DType) -> Piece:
        """The instance of a buffer that the `turn`-th execution of its allocation makes."""
        turns = self.memory.setdefault(name, {})
        if turn not in turns:
            turns[turn] = Piece(storage.fresh(shape, dtype), dtype)
        return turns[turn]

    def barriers(self, name: str, counts: tuple[int, ...]) -> list[Mbarrier]:
        """The mbarriers of this name."""
        if name not in self.bars:
            where = f" of {self.name()}" if len(self.cluster.blocks) > 1 else ""
            names = [name] if len(counts) == 1 else [f"{name}[{k}]" for k in range(len(counts))]
            made = zip(names, counts, strict=True)
            self.bars[name] = [Mbarrier(f"{own}{where}", n) for own, n in made]
        return self.bars[name]

    def work(self, kind: str) -> Groups:
        """The asynchronous work of one kind."""
        if kind not in self.groups:
            self.groups[kind] = Groups(self.crew.count)
        return self.groups[kind]

    def finish(self) -> list[Op]:
        """The block has ended: carry out what is under way. Gives what nobody had waited for."""
        left = [op for groups in self.groups.values() for op in groups.finish()]
        for op in self.loads:
            if not op.done:
                left.append(op)
                op.complete()
        self.loads.clear()
        self.memory.clear()
        self.made.clear()
        return left


def twin(tile: Tile, own: Array, other: Array) -> Tile:
    """The region of another block's memory at the place of `tile`, which lies in `own`."""
    if tile.array is own:
        return tile._replace(array=other)
    start = tile.array.__array_interface__["data"][0] - own.__array_interface__["data"][0]
    flat = other.reshape(-1).view(np.uint8)
    array = np.ndarray(
        tile.array.shape, tile.array.dtype, buffer=flat, offset=start, strides=tile.array.strides
    )
    return tile._replace(array=array)


def blocks_of(grid: Index, crew: Crew) -> Iterator[list[BlockState]]:
    """The blocks of a launch, cluster by cluster, x fastest."""
    sizes, dims = (*grid, 1, 1)[:3], (*crew.cluster, 1, 1, 1)[:3]
    all_blocks = Grid(math.prod(sizes), crew.count, crew.all_at_once)
    firsts = (range(0, n, d) for n, d in zip(sizes, dims, strict=True))
    all_blocks.pending.extend(at[::-1] for at in product(*reversed(list(firsts))))
    while all_blocks.pending:
        cluster, first = Cluster(), all_blocks.pending.popleft()
        for z, y, x in np.ndindex(dims[2], dims[1], dims[0]):
            at = (first[0] + x, first[1] + y, first[2] + z)
            if all(i < n for i, n in zip(at, sizes, strict=True)):
                rank = x + dims[0] * (y + dims[1] * z)
                number = at[0] + sizes[0] * (at[1] + sizes[1] * at[2])
                BlockState(at[: len(grid)], (number, rank), crew, cluster, all_blocks)
        yield list(cluster.blocks.values())
