"""Blocks that wait: groups of threads as resumable agents, barriers, and work that is under way.

What enters: a kernel as a generator function of an agent, which yields a `Wait` where it cannot go
on. What leaves: changed arrays, or a report that names who waits for what. An asynchronous copy or
product is carried out as late as its wait allows, so that a program that reads too early sees
undefined data.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.emulator import storage
from tilelang.emulator.storage import Array, Tile
from tilelang.errors import DeadlockError, Diagnostic, Loc, error

Work = Callable[[], None]
Steps = Generator["Wait", None, None]

# A round of the scheduler in which agents only turned in loops that wait for memory does nothing new;
# after so many of them in a row, none of them will ever end.
_IDLE_ROUNDS = 10_000


@dataclass
class Wait:
    """What an agent waits for: `ready` says whether it is there, `what` names it for a report.

    `spins` marks the turn of a loop that reads memory until it changes: it is always ready.
    """

    ready: Callable[[], bool]
    what: Callable[[], str]
    loc: Loc | None = None
    spins: bool = False


class Mbarrier:
    """One mbarrier (PTX ISA, mbarrier object): arrivals and bytes that the phase still expects."""

    def __init__(self, name: str, expected: int) -> None:
        self.name = name
        self.expected = expected
        self.phase = 0
        self._pending = expected
        self._bytes = 0
        self._work: list[tuple[Work, int]] = []

    def expect(self, count: int) -> None:
        """Add to the bytes that the phase expects."""
        self._bytes += count

    def attach(self, work: Work, count: int) -> None:
        """Work whose completion the phase waits for; it brings `count` bytes."""
        self._work.append((work, count))

    def arrive(self, count: int, loc: Loc | None = None) -> None:
        """Arrivals; the last one completes the phase, and the work attached to it."""
        if count > self._pending:
            raise error(
                "deadlock",
                f"more arrivals at {self.name} than its phase expects",
                loc,
                expected=f"{self.expected} arrivals per phase",
                got=f"{self.expected - self._pending + count}",
                help="the count of T.alloc_barrier is the number of threads that arrive",
            )
        self._pending -= count
        self.settle()

    def settle(self) -> None:
        """Complete the phase if nothing is missing."""
        coming = sum(count for _, count in self._work)
        if self._pending or self._bytes > coming:
            return
        work, self._work = self._work, []
        for each, _ in work:
            each()
        self._bytes = 0
        self._pending = self.expected
        self.phase += 1

    def passed(self, parity: int) -> bool:
        """Whether the phase of this parity is complete."""
        return (self.phase & 1) != (parity & 1)

    def missing(self) -> str:
        """What the phase still waits for, in words."""
        parts = [f"{self._pending} of {self.expected} arrivals"] if self._pending else []
        coming = self._bytes - sum(count for _, count in self._work)
        parts += [f"{coming} bytes"] if coming > 0 else []
        return f"phase {self.phase} of {self.name} lacks {' and '.join(parts) or 'nothing'}"


class Meeting:
    """A barrier of a fixed number of threads; `turn` counts how often it was complete."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.turn = 0
        self.here = 0
        self.needed = 0

    def arrive(self, count: int, needed: int) -> bool:
        """Arrivals; True for the last one, which opens the next turn."""
        self.needed = needed
        self.here += count
        if self.here < needed:
            return False
        self.here = 0
        self.turn += 1
        return True

    def what(self) -> str:
        """What is missing, in words."""
        return f"{self.name}: {self.here} of {self.needed} threads have arrived"


class Queue:
    """Asynchronous work of one kind, in groups that are complete in order."""

    def __init__(self) -> None:
        self._groups: deque[list[Work]] = deque()
        self._open: list[Work] = []

    def add(self, work: Work) -> None:
        """Work of the group that is open."""
        self._open.append(work)

    def commit(self) -> None:
        """Close the open group."""
        self._groups.append(self._open)
        self._open = []

    def wait(self, count: int) -> None:
        """Carry out all but the newest `count` groups."""
        while len(self._groups) > count:
            for work in self._groups.popleft():
                work()

    def take(self) -> list[Work]:
        """All work that is under way, now somebody else's to complete."""
        out = [work for group in self._groups for work in group] + self._open
        self._groups.clear()
        self._open = []
        return out


@dataclass
class Team:
    """Blocks that can see each other: the cluster of a block, and what its blocks share."""

    ranks: dict[int, BlockState] = field(default_factory=dict[int, "BlockState"])
    barrier: Meeting = field(default_factory=lambda: Meeting("the barrier of the cluster"))


@dataclass
class BlockState:
    """What the agents of one block share."""

    index: tuple[int, ...]
    threads: int
    cluster: Team
    grid: Meeting
    grid_threads: int
    memory: dict[Any, Any] = field(default_factory=dict[Any, Any])
    meetings: dict[Any, Meeting] = field(default_factory=dict[Any, Meeting])
    queues: dict[Any, Queue] = field(default_factory=dict[Any, Queue])
    gone: int = 0

    def meeting(self, key: Any, name: str) -> Meeting:
        """The barrier of this key."""
        return self.meetings.setdefault(key, Meeting(name))

    def queue(self, key: Any) -> Queue:
        """The asynchronous work of this key."""
        return self.queues.setdefault(key, Queue())

    def barriers(self, name: str) -> list[Mbarrier]:
        """The mbarriers of this name, once the block has made them."""
        found = self.memory.get(name)
        if found is None:
            raise error(
                "deadlock",
                f"the barriers {name} of another block are used before that block has made them",
                help="put T.cluster_sync() after T.alloc_cluster_barrier",
            )
        return found


def block_agents(block: BlockState, threads: tuple[int, ...], size: int) -> list[Agent]:
    """The agents of a block of `threads` (x, y, z), `size` threads each, x fastest."""
    z, y, x = np.indices(threads[::-1], dtype=np.int32).reshape(3, -1)
    return [
        Agent(block, n, first, tuple(a[first : first + size] for a in (x, y, z)))
        for n, first in enumerate(range(0, math.prod(threads), size))
    ]


class Agent:
    """Some threads of a block that run in lockstep: `lanes` of them, from thread `first` on."""

    def __init__(
        self, block: BlockState, number: int, first: int, lanes: tuple[Array, ...]
    ) -> None:
        self.block = block
        self.number = number
        self.first = first
        self.lanes = lanes
        self.count = len(lanes[0])
        self.wait: Wait | None = None
        self._cluster_turn = 0

    def name(self) -> str:
        """The agent in words."""
        last = self.first + self.count - 1
        return f"block {self.block.index}, threads {self.first} to {last}"

    # -- memory ---------------------------------------------------------------------------------------

    def shared(self, name: str, shape: tuple[int, ...], dtype: DType) -> Array:
        """Memory of the block: the first agent that gets here makes it."""
        found = self.block.memory.get(name)
        if found is None or found.shape != shape:
            found = self.block.memory[name] = storage.fresh(shape, dtype)
        return found

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What the first agent of the block makes under this name, for all of them."""
        if name not in self.block.memory:
            self.block.memory[name] = make()
        return self.block.memory[name]

    def mbarriers(self, name: str, counts: tuple[int, ...]) -> list[Mbarrier]:
        """The mbarriers of the block."""
        found = self.block.memory.get(name)
        if found is None:
            found = [Mbarrier(f"{name}[{k}]", n) for k, n in enumerate(counts)]
            self.block.memory[name] = found
        return found

    def active(self, mask: Any) -> int:
        """How many threads are active."""
        return self.count if mask is None else int(np.broadcast_to(mask, (self.count,)).sum())

    # -- barriers -------------------------------------------------------------------------------------

    def meet(self, team: tuple[int, ...] | None, size: int) -> Generator[Wait, None, bool]:
        """Wait for the agents of a team (all of the block without one). True for one of them only."""
        meeting = self.block.meeting(("team", team), "an operation of several warps")
        turn = meeting.turn
        if meeting.arrive(1, size):
            return True
        yield Wait(lambda: meeting.turn != turn, meeting.what)
        return False

    def sync(self, key: int | None, count: int | None, mask: Any, loc: Loc | None) -> Steps:
        """A barrier of the block, or a named one of `count` threads (PTX `barrier.sync`)."""
        block = self.block
        name = "T.sync_threads" if key is None else f"named barrier {key}"
        meeting = block.meeting(("named", key or 0), name)
        turn = meeting.turn
        needed = block.threads - block.gone if count is None else count
        if not meeting.arrive(self.active(mask), needed):
            yield Wait(lambda: meeting.turn != turn, meeting.what, loc)

    def count(
        self, holds: int, active: int, loc: Loc | None
    ) -> Generator[Wait, None, tuple[int, int]]:
        """A barrier of the block that adds up: of how many threads it holds, and how many came."""
        meeting = self.block.meeting(("count", 0), "T.syncthreads_count")
        sums = self.block.memory.setdefault(("count", meeting.turn), [0, 0])
        sums[0] += holds
        sums[1] += active
        turn = meeting.turn
        if not meeting.arrive(active, self.block.threads - self.block.gone):
            yield Wait(lambda: meeting.turn != turn, meeting.what, loc)
        return sums[0], sums[1]

    def arrive_named(self, key: int, count: int, mask: Any) -> None:
        """Arrive at a named barrier without waiting."""
        self.block.meeting(("named", key), f"named barrier {key}").arrive(self.active(mask), count)

    def sync_grid(self, mask: Any, loc: Loc | None) -> Steps:
        """The barrier of all blocks."""
        meeting = self.block.grid
        turn = meeting.turn
        if not meeting.arrive(self.active(mask), self.block.grid_threads):
            yield Wait(lambda: meeting.turn != turn, meeting.what, loc)

    def cluster(self, step: str, mask: Any, loc: Loc | None) -> Steps:
        """A step at the barrier of the cluster."""
        team = self.block.cluster
        if step != "wait":
            self._cluster_turn = team.barrier.turn
            total = sum(b.threads for b in team.ranks.values())
            team.barrier.arrive(self.active(mask), total)
        if step in ("sync", "wait"):
            turn = self._cluster_turn
            if team.barrier.turn == turn:
                yield Wait(lambda: team.barrier.turn != turn, team.barrier.what, loc)

    # -- mbarriers ------------------------------------------------------------------------------------

    def bar(self, bars: list[Mbarrier], index: Any, mask: Any, loc: Loc | None) -> Mbarrier:
        """The one mbarrier that the active threads mean."""
        values = np.unique(index if mask is None else np.broadcast_to(index, np.shape(mask))[mask])
        if len(values) != 1 or not 0 <= int(values[0]) < len(bars):
            raise error(
                "bounds" if len(values) == 1 else "divergence",
                "the barrier that the threads mean",
                loc,
                expected=f"one barrier, 0 to {len(bars) - 1}",
                got=", ".join(map(str, values[:4])),
            )
        return bars[int(values[0])]

    def remote(self, name: str, cta: Any, mask: Any, loc: Loc | None) -> list[Mbarrier]:
        """The mbarriers of this name in block `cta` of the cluster."""
        rank = int(
            np.unique(cta if mask is None else np.broadcast_to(cta, np.shape(mask))[mask])[0]
        )
        team = self.block.cluster.ranks
        if rank not in team:
            raise error(
                "bounds", f"block {rank} of the cluster", loc, expected=f"0 to {len(team) - 1}"
            )
        return team[rank].barriers(name)

    def wait_for(self, bar: Mbarrier, parity: Any, mask: Any, loc: Loc | None) -> Steps:
        """Until the phase of this parity is complete."""
        values = np.unique(
            parity if mask is None else np.broadcast_to(parity, np.shape(mask))[mask]
        )
        for p in values:
            wanted = int(p)
            if not bar.passed(wanted):
                yield Wait(lambda w=wanted: bar.passed(w), bar.missing, loc)

    # -- asynchronous work ----------------------------------------------------------------------------

    def start(self, key: Any, work: Work, dst: Tile | None, *, commit: bool) -> None:
        """Work for the queue of this key; what it will write is undefined from now on."""
        if dst is not None:
            undefine(dst)
        queue = self.block.queue(key)
        queue.add(work)
        if commit:
            queue.commit()

    def load(self, bars: Iterable[Mbarrier], pieces: list[tuple[Work, Tile]]) -> None:
        """Copies that complete on mbarriers, one for each receiving block."""
        for bar, (work, dst) in zip(bars, pieces, strict=True):
            undefine(dst)
            size = math.prod(dst.extents) * dst.access.dtype.bits * dst.access.dtype.lanes // 8
            bar.expect(size)
            bar.attach(work, size)

    def hand_over(self, key: Any, bar: Mbarrier, count: int, loc: Loc | None) -> None:
        """An arrival at `bar` when the work under way is complete."""
        for work in self.block.queue(key).take():
            bar.attach(work, 0)
        bar.arrive(count, loc)

    def leave(self) -> None:
        """The agent has ended: a barrier of the block no longer counts its threads."""
        self.block.gone += self.count
        for (kind, key), meeting in list(self.block.meetings.items()):
            waiting = meeting.here and meeting.here >= self.block.threads - self.block.gone
            if kind == "named" and key == 0 and waiting:
                meeting.here = 0
                meeting.turn += 1

    def turn(self, loc: Loc | None) -> Wait:
        """The end of a round of a loop that may wait for memory to change."""
        return Wait(lambda: True, lambda: "a loop that waits for memory to change", loc, spins=True)


def undefine(dst: Tile) -> None:
    """Contents are undefined until the work that writes them is complete."""
    there, _ = storage.overlap(dst)
    dst.array[there] = storage.poison(dst.access.dtype)


def run(agents: list[tuple[Agent, Steps]], enter: Callable[[Agent], None]) -> None:
    """Run agents by turns until all have ended; a report where none can go on.

    `enter` is told whose turn it is.
    """
    live = list(agents)
    idle = 0
    while live:
        moved = spun = False
        for entry in list(live):
            agent, steps = entry
            if agent.wait is not None and not agent.wait.ready():
                continue
            spinning = agent.wait is not None and agent.wait.spins
            enter(agent)
            try:
                agent.wait = next(steps)
            except StopIteration:
                live.remove(entry)
                agent.leave()
                moved = True
                continue
            only_spins = spinning and agent.wait.spins
            spun, moved = spun or only_spins, moved or not only_spins
        idle = 0 if moved else idle + 1
        if not moved and (not spun or idle > _IDLE_ROUNDS):
            raise _stuck([agent for agent, _ in live])


def finish(block: BlockState) -> None:
    """What is still under way when a block ends is carried out then."""
    for queue in block.queues.values():
        for work in queue.take():
            work()


def _stuck(agents: list[Agent]) -> DeadlockError:
    """The report of a deadlock: one finding for each place where agents wait."""
    by_place: dict[tuple[Loc | None, str], list[Agent]] = {}
    for agent in agents:
        wait = agent.wait
        key = (wait.loc, wait.what()) if wait is not None else (None, "nothing")
        by_place.setdefault(key, []).append(agent)
    findings: list[Diagnostic] = []
    for (loc, what), who in by_place.items():
        names = "; ".join(a.name() for a in who[:4]) + ("; ..." if len(who) > 4 else "")
        findings.append(
            Diagnostic(
                "deadlock",
                f"no thread can go on: {what}",
                loc,
                got=f"waiting: {names}",
                help="each wait needs its arrivals: compare counts, parities, and who reaches them",
            )
        )
    return DeadlockError(*findings)
