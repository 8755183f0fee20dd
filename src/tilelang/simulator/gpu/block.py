"""Blocks and clusters while they run: shared memory, barriers, and who is in them.

What enters: the facts of a launch. What leaves: what groups of warps and instructions work on.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.dtypes import DType
from tilelang.emulator.pointers import readable
from tilelang.errors import InternalError, Loc, TileIndexError, TileRuntimeError, error
from tilelang.simulator.gpu.arrays import Window
from tilelang.simulator.gpu.barriers import Mbarrier, NamedBarrier, Phases
from tilelang.simulator.gpu.sums import Sums, exact
from tilelang.simulator.machine import Clocks, Edge, Memory, Report, Scheduler, Shadow, Team

GENERIC, ASYNC = 0, 1
"""The paths to memory: the generic proxy and the async proxy."""
WARP = 32
SHARED_WINDOW, SHARED_SPAN = 0x0100_0000_0000, 1 << 24
"""Generic addresses of shared memory: where that of the first block of a cluster begins, and the
distance to that of the next.
"""
GLOBAL_WINDOW = 0x8000_0000_0000
"""Where arrays of global memory begin: above the addresses that a process has."""


@dataclass
class Grid:
    """The barrier of all blocks: `told` is what teams have published, `heard` what counts now."""

    warps: int = 0
    phase: int = 0
    arrived: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    told: dict[int, int] = field(default_factory=dict[int, int])
    heard: dict[int, int] = field(default_factory=dict[int, int])


@dataclass
class Machine:
    """One launch: what all its blocks see. `checked` says that accesses are looked at, `sums` is
    how matrix units add.
    """

    report: Report
    clocks: Clocks
    scheduler: Scheduler
    memories: list[Memory]
    checked: bool = True
    sums: Sums = exact
    grid: Grid = field(default_factory=Grid)
    pending: list[list[tuple[int, ...]]] = field(default_factory=list[list[tuple[int, ...]]])
    """The places of the blocks of clusters that have not begun."""
    printed: list[str] = field(default_factory=list[str])
    edges: dict[tuple[int, int], Edge] = field(default_factory=dict[tuple[int, int], Edge])
    told: dict[int, dict[int, int]] = field(default_factory=dict[int, dict[int, int]])
    """The order of atomic accesses to a memory: within a team, and between teams."""
    foreign: list[Memory] = field(default_factory=list[Memory])
    """Memory of the process that pointers of the author lead to."""

    def at_pointer(self, name: str, first: int, size: int) -> Memory | None:
        """Memory of the process, where it has `size` bytes from the address on."""
        for memory in self.foreign:
            if memory.base <= first and first + size <= memory.base + memory.data.size:
                return memory
        if first <= 0 or first + size > GLOBAL_WINDOW or not readable(first, size):
            return None
        there = (ctypes.c_char * size).from_address(first)
        data: npt.NDArray[np.uint8] = np.ndarray(size, np.uint8, memoryview(there))
        shadow = Shadow(name, size, self.report, written=True)
        self.foreign.append(Memory(name, data, self.report, shadow=shadow, base=first))
        return self.foreign[-1]

    def cancel(self) -> tuple[int, ...] | None:
        """Take a cluster that has not begun away, where the schedule leaves one: the place of its
        first block.
        """
        chosen = self.scheduler.left_over(len(self.pending))
        return None if chosen is None else self.pending.pop(chosen)[0]

    def say(self, line: str) -> None:
        """A line that a thread prints."""
        self.printed.append(line)
        print(line)


class Cluster:
    """Blocks that see each other's shared memory. A block without a cluster is one of itself."""

    def __init__(self, machine: Machine, places: Sequence[tuple[int, ...]]) -> None:
        self.machine = machine
        self.size = len(places)
        word = "block" if self.size == 1 else "the cluster of block"
        self.team: Team = machine.clocks.team(f"{word} {places[0]}")
        self.blocks: list[Block] = []
        self.arrived: set[tuple[int, int]] = set()
        self.phases = Phases(self.team)
        self.grid_phases = Phases(self.team)

    def block(self, rank: int, loc: Loc | None) -> Block:
        """A block by its rank. An error if there is none, or if it has ended."""
        if not 0 <= rank < len(self.blocks):
            raise error(
                "bounds",
                f"there is no block {rank} in a cluster of {len(self.blocks)}",
                loc,
                cls=TileIndexError,
            )
        found = self.blocks[rank]
        if len(found.ended) == found.warps:
            raise error(
                "race",
                f"block {found.place} is used by another of its cluster after it has ended",
                loc,
                cls=TileRuntimeError,
                help="let all blocks of the cluster meet before they end",
            )
        return found


@dataclass(frozen=True)
class Awaited:
    """An operation that somebody in the block must know to be over before the block ends: its actor
    and epoch, the site of its issue, and words that complete "before".
    """

    actor: int
    epoch: int
    site: int
    what: str


class Block:
    """One block: `place` is its index in the grid, x first, `rank` that in its cluster."""

    def __init__(
        self, cluster: Cluster, place: tuple[int, ...], shape: Sequence[int], shared: int
    ) -> None:
        machine = cluster.machine
        self.cluster = cluster
        self.machine = machine
        self.report = machine.report
        self.team = cluster.team
        self.place = place
        self.shape = tuple(shape)
        self.rank = len(cluster.blocks)
        self.threads = int(np.prod(shape))
        self.warps = -(-self.threads // WARP)
        self.actors = self.team.add(self.warps * WARP, self._thread, per_group=WARP)
        name = "shared memory" if cluster.size == 1 else f"shared memory of block {place}"
        shadow = Shadow(name, shared, self.report) if machine.checked else None
        data: npt.NDArray[np.uint8] = np.full(shared, 0xFF, np.uint8)
        base = SHARED_WINDOW + self.rank * SHARED_SPAN
        self.shared = Memory(name, data, self.report, shadow=shadow, base=base)
        self.mbarriers: dict[int, Mbarrier] = {}
        self.named: dict[int, NamedBarrier] = {}
        self.ended: set[int] = set()
        self.awaited: list[Awaited] = []
        self._units: dict[Any, Any] = {}
        cluster.blocks.append(self)

    def _thread(self, k: int) -> str:
        return f"thread {k}" + ("" if self.cluster.size == 1 else f" of block {self.place}")

    def unit(self, key: Any, make: Callable[[], Any]) -> Any:
        """What an instruction keeps in the block between its uses; `make()` at the first."""
        found = self._units.get(key)
        if found is None:
            found = self._units[key] = make()
        return found

    def kept(self, key: Any) -> Any:
        """What an instruction keeps, None where there was no use of it."""
        return self._units.get(key)

    def forget(self) -> None:
        """The block has ended. What it keeps names it: its memory would stay for long."""
        self._units.clear()
        self.mbarriers.clear()
        self.named.clear()

    def must_await(self, actor: int, site: int, what: str) -> None:
        """An operation in the memory of this block begins."""
        self.awaited.append(Awaited(actor, int(self.team.epochs[actor]), site, what))

    def unawaited(self) -> list[Awaited]:
        """The operations whose ends none of its threads knows."""
        rows = self.team.rows[0, self.actors]
        return [a for a in self.awaited if not (rows[:, a.actor] >= a.epoch).any()]

    def barrier(self, number: int) -> NamedBarrier:
        """One of the named barriers."""
        found = self.named.get(number)
        if found is None:
            found = self.named[number] = NamedBarrier(number, Phases(self.team))
        return found

    def mbarrier(self, offset: int, loc: Loc | None) -> Mbarrier:
        """The mbarrier at a byte of shared memory. An error where none was set up."""
        found = self.mbarriers.get(offset)
        if found is None:
            raise error(
                "uninitialised",
                f"there is no mbarrier at byte {offset} of shared memory",
                loc,
                help="mbarrier.init comes first, and a barrier of the block after it",
            )
        return found

    def declared(self, name: str, dtype: DType, size: int, offset: int | None) -> Window:
        """An array of shared memory at its planned place."""
        if offset is None:
            raise InternalError(f"{name} has no place in shared memory")
        return Window(name, dtype, self.shared, offset, size)

    def window(
        self, name: str, dtype: DType, size: int | None, address: Any, span: tuple[int, int]
    ) -> Window:
        """A name for the memory at a generic address (one for each lane, all within `span`)."""
        lowest, highest = span
        for memory in (*self.machine.memories, *(b.shared for b in self.cluster.blocks)):
            if memory.base <= lowest < memory.base + max(1, memory.data.size):
                return Window(name, dtype, memory, address - memory.base, size)
        if size:
            reach = highest - lowest + size * dtype.numpy.itemsize
            found = self.machine.at_pointer(name, lowest, reach)
            if found is not None:
                return Window(name, dtype, found, address - found.base, size)
        raise error(
            "bounds",
            f"{name} is at {lowest:#x}, where there is no memory",
            cls=TileIndexError,
            expected="the address of an array of the kernel, or of memory of this process",
        )
