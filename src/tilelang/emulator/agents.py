"""Agents: groups of threads of a block that run in lockstep and wait for each other.

What enters: a kernel as a generator function of an agent, which yields a `Wait` where it cannot go
on. What leaves: changed memory and barriers. An asynchronous copy or product is carried out as late
as its wait allows, so that a program that reads too early sees undefined data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from tilelang.dtypes import DType
from tilelang.emulator import storage
from tilelang.emulator.barriers import Mbarrier, Meeting, Wait
from tilelang.emulator.blocks import BlockState, Team, twin
from tilelang.emulator.inflight import LaneOp, Op, Point, Share, Threads
from tilelang.emulator.lane_copies import LaneCopy
from tilelang.emulator.storage import Array, Mask, Tile
from tilelang.errors import Loc, error
from tilelang.ir.sync import RESPONSE

Steps = Generator[Wait, None, None]
Copy = Callable[[Tile, Tile], None]

LOOP = "a loop that reads memory until it changes"


def agents_of(block: BlockState) -> list[Agent]:
    """The agents of a block, threads x fastest."""
    crew = block.crew
    z, y, x = np.indices(crew.threads[::-1], dtype=np.int32).reshape(3, -1)
    out: list[Agent] = []
    for n, (first, size) in enumerate(zip(crew.firsts(), crew.sizes, strict=True)):
        lanes = tuple(a[first : first + size] for a in (x, y, z))
        for a in lanes:
            a.flags.writeable = False
        out.append(Agent(block, n, first, lanes))
    return out


def at(index: Any, lane: int) -> int:
    """The index of one lane."""
    if isinstance(index, np.ndarray):
        flat = cast(Array, index).ravel()
        return int(flat[lane if flat.size > 1 else 0])
    return int(index)


class Agent:
    """Some threads of a block that run in lockstep: `count` of them, from thread `first` on."""

    def __init__(
        self, block: BlockState, number: int, first: int, lanes: tuple[Array, ...]
    ) -> None:
        self.block = block
        self.number = number
        self.first = first
        self.lanes = lanes
        self.count = len(lanes[0])
        self.index = np.arange(self.count, dtype=np.int32)
        self.index.flags.writeable = False
        self.wait: Wait | None = None
        self._all = block.threads_of((number,))
        self._turns: dict[str, int] = {}
        self._cluster_turn = 0

    def name(self) -> str:
        """The agent in words."""
        last = self.first + self.count - 1
        return f"threads {self.first} to {last}" if self.count > 1 else f"thread {last}"

    def threads(self, mask: Mask | None) -> Threads:
        """The active threads, among all of the block."""
        if mask is None:
            return self._all
        out = np.zeros(self.block.crew.count, np.bool_)
        out[self.first : self.first + self.count] = np.broadcast_to(mask, (self.count,))
        return out

    @property
    def last(self) -> bool:
        """Whether all other agents of the block have ended."""
        return self.block.running == 1

    def place(self, lane: int) -> list[tuple[str, int]]:
        """The indices of a thread by the author's names."""
        crew = self.block.crew
        named = zip(crew.names, self.lanes, crew.threads, strict=False)
        return [(name, int(a[lane])) for name, a, n in named if n > 1]

    def active(self, mask: Mask | None) -> int:
        """How many threads are active."""
        return self.count if mask is None else int(np.broadcast_to(mask, (self.count,)).sum())

    def distinct(
        self, mask: Mask | None, *values: Any
    ) -> list[tuple[tuple[Any, ...], Mask | None]]:
        """The different values that active threads have, and which threads have them."""
        if not any(isinstance(v, np.ndarray) for v in values):
            return [(values, mask)]
        rows = np.stack([np.broadcast_to(v, (self.count,)) for v in values])
        live = self.active(mask) if mask is not None else None
        here = (
            np.ones(self.count, np.bool_) if mask is None else np.broadcast_to(mask, (self.count,))
        )
        if live == 0:
            return []
        found = np.unique(rows[:, here], axis=1)
        return [
            (tuple(int(v) for v in column), (rows == column[:, None]).all(axis=0) & here)
            for column in found.T
        ]

    def leaders(self, mask: Mask | None, scope: int | None, first: int) -> list[int]:
        """The lanes that issue an operation for others: one of every `scope` threads, or one of the
        team whose first agent is `first`.
        """
        if mask is None:
            if scope is None:
                return [0] if self.number == first else []
            return [k for k in range(self.count) if (self.first + k) % scope == 0]
        lanes = np.flatnonzero(np.broadcast_to(mask, (self.count,)))
        group = (self.first + lanes) // (scope or self.block.crew.count)
        _, where = np.unique(group, return_index=True)
        return [int(lanes[k]) for k in where]

    # -- memory ------------------------------------------------------------------------------------

    def shared(self, name: str, shape: tuple[int, ...], dtype: DType, takers: int) -> Array:
        """Memory of the block: the first of the `takers` agents that gets here makes it, anew each
        time.
        """
        turn = self._turns[name] = self._turns.get(name, 0) + 1
        piece = self.block.piece(name, turn, shape, dtype)
        piece.taken += 1
        turns = self.block.memory[name]
        for old in [k for k, p in turns.items() if k < turn and p.taken >= takers]:
            del turns[old]
        return piece.array

    def own(self, name: str, team: Team, array: Array) -> Array:
        """The instance of a fragment in the registers of a team, which begins as it is now."""
        key = (name, team, self._turns.get(name, 0))
        return self.block.made.setdefault(key, array.copy())

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """What the first agent of the block makes under this name, for all of them."""
        if name not in self.block.made:
            self.block.made[name] = make()
        return self.block.made[name]

    def mbarriers(self, name: str, counts: tuple[int, ...]) -> list[Mbarrier]:
        """The mbarriers of the block."""
        return self.block.barriers(name, counts)

    def peer(self, block: BlockState, name: str, tile: Tile) -> Tile:
        """The same region of the buffer `name` in another block of the cluster."""
        if block is self.block:
            return tile
        turn = self._turns[name]
        own = self.block.memory[name][turn]
        other = block.piece(name, turn, own.array.shape, own.dtype)
        there = twin(tile, own.array, other.array)
        if self.block.order is not None:
            self.block.order.mirror(tile, there, other.array)
        return there

    # -- barriers ----------------------------------------------------------------------------------

    def meet(self, team: Team, name: str, loc: Loc | None) -> Generator[Wait, None, bool]:
        """Wait for the agents of a team. True for one of them only."""
        meeting = self.block.meeting(("team", team), name)
        if meeting.here and meeting.loc != loc:
            raise error(
                "divergence",
                f"{name} is reached by some warps only, while others wait elsewhere",
                loc,
                expected="a place that all threads reach together",
                related=((meeting.loc, "others are here"),) if meeting.loc is not None else (),
                help="what decides the way here must be the same for all threads",
            )
        meeting.loc, meeting.name = loc, name
        turn, order = meeting.turn, self.block.order
        if order is not None:
            order.arrive(self, meeting)
        if not meeting.arrive(self.count, self.block.alive(team)):
            yield Wait(lambda: meeting.turn != turn, meeting.what, loc)
        chosen = meeting.claim(turn)
        if order is not None:
            order.leave(self, meeting, chosen=chosen)
        return chosen

    def sync(self, team: Team, mask: Mask | None, loc: Loc | None) -> Steps:
        """A barrier of a team."""
        meeting = self.block.meeting(("sync", team), "T.sync_threads")
        needed = self.block.alive(team)
        yield from self._arrive_and_wait([(meeting, self.active(mask), needed)], loc, mask)

    def named(self, key: Any, count: Any, mask: Mask | None, loc: Loc | None) -> Steps:
        """A named barrier of `count` threads, all of the block without it (PTX `barrier.sync`)."""
        everyone = self.block.crew.team
        steps: list[tuple[Meeting, int, int]] = []
        for (k, n), lanes in self.distinct(mask, key, -1 if count is None else count):
            needed = self.block.alive(everyone) if n == -1 else n
            steps.append((self._barrier(k), self.active(lanes), needed))
        yield from self._arrive_and_wait(steps, loc, mask)

    def arrive_named(self, key: Any, count: Any, mask: Mask | None) -> None:
        """Arrive at a named barrier without waiting."""
        for (k, n), lanes in self.distinct(mask, key, count):
            self._coming(self._barrier(k))
            self._barrier(k).arrive(self.active(lanes), n)

    def _coming(self, point: Point) -> None:
        """For the dynamic check: an arrival follows."""
        if self.block.order is not None:
            self.block.order.arrive(self, point)

    def _passed(self, point: Point) -> None:
        """For the dynamic check: a barrier was waited for."""
        if self.block.order is not None:
            self.block.order.leave(self, point)

    def _barrier(self, key: int) -> Meeting:
        if key == 0:
            return self.block.meeting(("sync", self.block.crew.team), "T.sync_threads")
        return self.block.meeting(("named", key), f"named barrier {key}")

    def _arrive_and_wait(
        self, steps: list[tuple[Meeting, int, int]], loc: Loc | None, mask: Mask | None
    ) -> Steps:
        waits: list[tuple[Meeting, int]] = []
        for meeting, count, needed in steps:
            self._coming(meeting)
            if not meeting.arrive(count, needed):
                waits.append((meeting, meeting.turn))
        for meeting, turn in waits:
            if meeting.turn == turn:
                yield Wait(lambda m=meeting, t=turn: m.turn != t, meeting.what, loc, mask)
        for meeting, _, _ in steps:
            self._passed(meeting)

    def count_threads(
        self, team: Team, holds: int, mask: Mask | None, loc: Loc | None
    ) -> Generator[Wait, None, tuple[int, int]]:
        """A barrier of a team that adds up: of how many threads it holds, and how many came."""
        meeting = self.block.meeting(("count", team), "T.syncthreads_count")
        sums = self.block.made.setdefault(("count", team, meeting.turn), [0, 0])
        sums[0] += holds
        sums[1] += self.active(mask)
        self.block.made.pop(("count", team, meeting.turn - 1), None)
        needed = self.block.alive(team)
        yield from self._arrive_and_wait([(meeting, self.active(mask), needed)], loc, mask)
        return sums[0], sums[1]

    def sync_grid(self, mask: Mask | None, loc: Loc | None, team: Team | None = None) -> Steps:
        """The barrier of all blocks; one agent may arrive for a team."""
        grid = self.block.grid
        count = self.active(mask) if team is None else self.block.alive(team)
        yield from self._arrive_and_wait([(grid.barrier, count, grid.needed())], loc, mask)

    def cluster(self, step: str, mask: Mask | None, loc: Loc | None) -> Steps:
        """A step at the barrier of the cluster."""
        team = self.block.cluster
        if step != "wait":
            self._cluster_turn = team.barrier.turn
            self._coming(team.barrier)
            team.barrier.arrive(self.active(mask), team.alive())
        if step in ("sync", "wait"):
            turn = self._cluster_turn
            if team.barrier.turn == turn:
                yield Wait(lambda: team.barrier.turn != turn, team.barrier.what, loc, mask)
            self._passed(team.barrier)

    def leave(self, mask: Mask | None = None) -> None:
        """Threads have ended."""
        self.block.leave(self.threads(mask))

    # -- mbarriers ---------------------------------------------------------------------------------

    def bar(self, bars: list[Mbarrier], index: int, loc: Loc | None) -> Mbarrier:
        """One element of a buffer of mbarriers."""
        if not 0 <= index < len(bars):
            name = bars[0].name.partition("[")[0]
            raise error(
                "bounds",
                f"index {index} is outside of {name}",
                loc,
                expected=f"0 <= index < {len(bars)}",
                got=f"{index} in {self.block.name()}",
            )
        return bars[index]

    def remote(self, name: str, bars: list[Mbarrier], rank: int, loc: Loc | None) -> list[Mbarrier]:
        """The mbarriers of this name in the block `rank` of the cluster."""
        counts = tuple(b.expected for b in bars)
        return self.block.cluster.block(rank, loc).barriers(name, counts)

    def arrive(
        self,
        bars: list[Mbarrier],
        index: Any,
        mask: Mask | None,
        loc: Loc | None,
        tx: Any = None,
        cta: tuple[str, Any] | None = None,
    ) -> None:
        """One arrival by each active thread, after adding `tx` bytes; `cta` is the buffer's name
        and the rank of the block that is meant.
        """
        rank = -1 if cta is None else cta[1]
        for (k, r, size), lanes in self.distinct(mask, index, rank, 0 if tx is None else tx):
            theirs = bars if cta is None else self.remote(cta[0], bars, r, loc)
            bar, count = self.bar(theirs, k, loc), self.active(lanes)
            bar.expect(size * count)
            self._coming(bar)
            bar.arrive(count, loc)

    def expect(
        self, bars: list[Mbarrier], index: Any, mask: Mask | None, loc: Loc | None, tx: Any
    ) -> None:
        """Each active thread adds to the bytes that the phase expects."""
        for (k, size), lanes in self.distinct(mask, index, tx):
            self.bar(bars, k, loc).expect(size * self.active(lanes))

    def wait_for(
        self, bars: list[Mbarrier], index: Any, parity: Any, mask: Mask | None, loc: Loc | None
    ) -> Steps:
        """Until the phase of this parity is complete."""
        for (k, p), lanes in self.distinct(mask, index, parity):
            bar = self.bar(bars, k, loc)
            if not bar.passed(p):  # then it is the current phase that is waited for
                now = bar.phase
                yield Wait(lambda b=bar, n=now: b.phase != n, bar.missing, loc, lanes, bar)
            self._passed(bar)

    # -- asynchronous work -------------------------------------------------------------------------

    def issue(
        self, kind: str, op: Op, threads: Threads, share: Share = Share.ALL, *, commit: bool = True
    ) -> None:
        """Work of the group of these threads; what it will write is undefined from now on."""
        self._under_way(op)
        groups = self.block.work(kind)
        groups.issue(op, threads, share)
        if commit:
            groups.commit(threads)

    def _under_way(self, op: Op) -> None:
        """Work begins. What it replaces is undefined until it is complete."""
        if self.block.order is not None:
            self.block.order.issue(self, op)
        for place in op.writes:
            if isinstance(place, Tile) and not op.adds and place.access.on_chip:
                storage.view(place)[...] = storage.poison(place.access.dtype)

    def copying(
        self, copy: Copy, src: Tile, dst: Tile, loc: Loc | None, name: str = "T.tma_copy"
    ) -> Op:
        """A copy of a region as an operation."""
        return Op(lambda: copy(src, dst), loc, name, reads=(src,), writes=(dst,))

    def leader(self, lane: int) -> Threads:
        """One thread, among all of the block."""
        out = np.zeros(self.block.crew.count, np.bool_)
        out[self.first + lane] = True
        return out

    def commit(self, kind: str, mask: Mask | None) -> None:
        """Close the open group of each active thread."""
        self.block.work(kind).commit(self.threads(mask))

    def wait_group(self, kind: str, count: Any, mask: Mask | None, *, read: bool = False) -> None:
        """Complete all but the newest `count` groups of each active thread."""
        wanted = count
        if isinstance(count, np.ndarray):
            wanted = np.zeros(self.block.crew.count, np.int64)
            wanted[self.first : self.first + self.count] = count
        self.block.work(kind).wait(self.threads(mask), wanted, read=read)

    def copy_lanes(self, made: LaneCopy, mask: Mask | None, loc: Loc | None) -> None:
        """A `cp.async` of each active thread."""
        threads, first, count = self.threads(mask), self.first, self.count

        def lanes(some: Threads) -> Array:
            return np.flatnonzero(some[first : first + count])

        op = LaneOp(
            lambda t: made.copy(lanes(t)),
            lambda t: made.places(lanes(t)),
            threads,
            loc,
            "T.ptx_cp_async",
        )
        self.issue("cp.async", op, threads, Share.EACH, commit=False)
        made.forget(lanes(threads))

    def hand_over(
        self, kind: str, bars: list[Mbarrier], index: Any, mask: Mask | None, loc: Loc | None
    ) -> None:
        """Each active thread arrives once what it has issued is complete."""
        for (k,), lanes in self.distinct(mask, index):
            bar, threads = self.bar(bars, k, loc), self.threads(lanes)
            for op in self.block.work(kind).under_way(threads):
                bar.attach(op)
            self._coming(bar)
            bar.arrive(self.active(lanes), loc)

    def commit_product(
        self, bars: list[Mbarrier], index: int, lane: int, loc: Loc | None, pair: str = ""
    ) -> None:
        """One arrival when the products that this thread has issued are complete; at the barriers
        of both blocks of a pair, where the buffer's name is given.
        """
        ranks = self._pair(loc) if pair else [self.block.rank]
        for rank in ranks:
            theirs = self.remote(pair, bars, rank, loc) if pair else bars
            bar = self.bar(theirs, index, loc)
            for op in self.block.work("tcgen05").under_way(self.leader(lane)):
                bar.attach(op)
            self._coming(bar)
            bar.arrive(1, loc)

    def _pair(self, loc: Loc | None) -> list[int]:
        """The ranks of the two blocks that multiply together."""
        first = self.block.rank & ~1
        for rank in (first, first + 1):
            self.block.cluster.block(rank, loc)
        return [first, first + 1]

    def pair_tiles(
        self, tiles: tuple[Tile, ...], names: tuple[str, ...], loc: Loc | None
    ) -> list[tuple[Tile, ...]]:
        """Tiles of both blocks of a pair, as their first block names them; nothing in the other."""
        ranks = self._pair(loc)
        if self.block.rank != ranks[0]:
            return []
        blocks = [self.block.cluster.blocks[r] for r in ranks]
        return [
            tuple(self.peer(block, name, tile) for name, tile in zip(names, tiles, strict=True))
            for block in blocks
        ]

    def pair_product(
        self,
        gemm: Callable[..., None],
        tiles: tuple[Tile, ...],
        names: tuple[str, ...],
        columns: int,
        loc: Loc | None,
    ) -> list[Op]:
        """A product by a pair of blocks, which the first of them issues: each has its rows of A and
        C, half of B along the axis `columns`, and scales if there are any.
        """
        found = self.pair_tiles(tiles, names, loc)
        if not found:
            return []
        a, b, c, *scales = zip(*found, strict=True)

        def run() -> None:
            whole = np.concatenate([storage.view(half) for half in b], axis=columns)
            both = Tile(whole, (0,) * whole.ndim, whole.shape, b[0].access)
            for mine in zip(a, c, *scales, strict=True):
                gemm(mine[0], both, *mine[1:])

        reads = tuple(x for group in (a, b, *scales) for x in group)
        name = "T.tcgen05_gemm_blockscaled" if scales else "T.tcgen05_gemm"
        return [Op(run, loc, name, reads=reads, writes=c, adds=True, queue="tcgen05")]

    def store(self, copy: Copy, src: Tile, dst: Tile, lane: int, loc: Loc | None) -> None:
        """A bulk store, in a group of the thread that leads."""
        held: list[Tile] = []

        def fetch() -> None:
            zero = (0,) * len(src.extents)
            held.append(src._replace(array=storage.view(src).copy(), mins=zero))

        def run() -> None:
            if not held:
                fetch()
            copy(held[0], dst)

        op = Op(run, loc, "T.tma_copy", reads=(src,), writes=(dst,), fetch=fetch)
        self.issue("bulk", op, self.leader(lane))

    def load(
        self,
        copy: Copy,
        src: Tile,
        dst: Tile,
        bar: tuple[list[Mbarrier], int, str],
        loc: Loc | None,
    ) -> None:
        """A bulk copy that adds its bytes to what a barrier expects, and completes on it. `bar` is
        the buffer, the index, and the buffer's name where it is one of a cluster: then the first
        block of a pair has it for both.
        """
        bars, index, shared_name = bar
        if shared_name:
            bars = self.remote(shared_name, bars, self.block.rank & ~1, loc)
        target, size = self.bar(bars, index, loc), size_of(dst)
        target.expect(size)
        self._load(self.copying(copy, src, dst, loc), target, size, self.block)

    def gather(
        self,
        src: Tile,
        rows: tuple[int, ...],
        dst: Tile,
        bar: tuple[list[Mbarrier], int, str],
        loc: Loc | None,
    ) -> None:
        """A load of rows of `src`, which completes its bytes on a barrier of the block: the buffer,
        and the index. It expects nothing by it.
        """
        bars, index, _ = bar
        parts, into = rows_of(src, rows), rows_of(dst, range(len(rows)))

        def run() -> None:
            for part, place in zip(parts, into, strict=True):
                storage.write(place, storage.read(part))

        op = Op(run, loc, "T.tma_gather4", reads=parts, writes=into)
        self._load(op, self.bar(bars, index, loc), size_of(dst), self.block)

    def try_cancel(
        self, into: Tile, bar: tuple[list[Mbarrier], int, str], everyone: str, loc: Loc | None
    ) -> None:
        """A request for a cluster that has not begun, answered on a barrier; `bar` is as in `load`.
        All blocks get the answer where the buffer of `into` is named.
        """
        cluster, found = self.block.cluster, self.block.grid.cancel()
        words = np.array([*(found or (0, 0, 0)), found is not None], into.array.dtype)
        for rank in sorted(cluster.blocks) if everyone else (self.block.rank,):
            block = cluster.blocks[rank]
            there = self.peer(block, everyone, into) if everyone else into
            bars = self.remote(bar[2], bar[0], rank, loc)
            answer = partial(storage.write, there, words)
            op = Op(answer, loc, "T.clc_try_cancel", writes=(there,))
            self._load(op, self.bar(bars, bar[1], loc), RESPONSE, block)

    def scatter(
        self, src: Tile, dst: Tile, rows: tuple[int, ...], lane: int, loc: Loc | None
    ) -> None:
        """A store to rows of `dst`, in the open bulk group of the thread that leads."""
        parts, into = rows_of(src, range(len(rows))), rows_of(dst, rows)
        held: list[Array] = []

        def fetch() -> None:
            held.extend(storage.view(part).copy() for part in parts)

        def run() -> None:
            if not held:
                fetch()
            for place, values in zip(into, held, strict=True):
                storage.write(place, values)

        op = Op(run, loc, "T.tma_scatter4", reads=parts, writes=into, fetch=fetch)
        self.issue("bulk", op, self.leader(lane), commit=False)

    def spread(
        self,
        copy: Copy,
        src: Tile,
        dst: Tile,
        bar: tuple[list[Mbarrier], int, str],
        to: tuple[int, str],
        loc: Loc | None,
    ) -> None:
        """A bulk load that several blocks of the cluster receive: the first of the `to[0]` issues
        it, the others only expect it. `to[1]` names the buffer.
        """
        cluster = self.block.cluster
        ranks = cluster.named(to[0], loc)
        if self.block.rank not in ranks:
            self.load(copy, src, dst, (bar[0], bar[1], ""), loc)
            return
        size = size_of(dst)
        self.bar(bar[0], bar[1], loc).expect(size)
        if self.block.rank != ranks[0]:
            return
        for rank in ranks:
            into = self.peer(cluster.blocks[rank], to[1], dst)
            bars = self.remote(bar[2], bar[0], rank, loc)
            op = self.copying(copy, src, into, loc)
            self._load(op, self.bar(bars, bar[1], loc), size, cluster.blocks[rank])

    def push(
        self,
        copy: Copy,
        src: Tile,
        dst: Tile,
        to: tuple[int, str],
        bar: tuple[list[Mbarrier], int, str] | None,
        loc: Loc | None,
    ) -> None:
        """A copy into the block `to[0]` of the cluster, of the buffer named `to[1]`; with `bar` it
        arrives there when it is complete.
        """
        block = self.block.cluster.block(to[0], loc)
        into = self.peer(block, to[1], dst)
        op = self.copying(copy, src, into, loc, "T.copy_cluster")
        if bar is None:
            self._under_way(op)
            op.complete()
            return
        target, size = self.bar(self.remote(bar[2], bar[0], to[0], loc), bar[1], loc), size_of(dst)
        target.expect(size)
        self._load(op, target, size, block)
        self._coming(target)
        target.arrive(1, loc)

    def broadcast(
        self, copy: Copy, src: Tile, dst: Tile, mask: int, key: Any, loc: Loc | None
    ) -> Steps:
        """A copy that the blocks of a mask receive from the first of them, and wait for."""
        cluster, me = self.block.cluster, self.block.rank
        ranks = cluster.named(mask, loc)
        if me not in ranks:
            self._at_once(copy, src, dst, loc)
            return
        meeting = cluster.meetings.setdefault(key, Meeting("T.copy_cluster of several blocks"))
        turn = meeting.turn
        posted = cluster.posted.setdefault((key, turn), {})
        cluster.posted.pop((key, turn - 1), None)
        posted[me] = src
        self._coming(meeting)
        if not meeting.arrive(1, len(ranks)):
            yield Wait(lambda: meeting.turn != turn, meeting.blocks, loc)
        self._passed(meeting)
        self._at_once(copy, posted[ranks[0]], dst, loc)  # each for itself what the first has posted

    def _at_once(self, copy: Copy, src: Tile, dst: Tile, loc: Loc | None) -> None:
        op = self.copying(copy, src, dst, loc, "T.copy_cluster")
        self._under_way(op)
        op.complete()

    def _load(self, op: Op, bar: Mbarrier, size: int, block: BlockState) -> None:
        self._under_way(op)
        block.loads = [o for o in block.loads if not o.done]
        block.loads.append(op)
        bar.attach(op, size)

    def turn(self, mask: Mask | None, loc: Loc | None) -> Wait:
        """The end of a round of a loop that may wait for memory to change."""
        lanes = None if mask is None else mask.copy()
        return Wait(lambda: True, lambda: LOOP, loc, lanes, spins=True)


def rows_of(matrix: Tile, rows: Sequence[int]) -> tuple[Tile, ...]:
    """Some rows of a region of a matrix, each by itself."""
    columns, wide = matrix.mins[1], matrix.extents[1]
    return tuple(matrix._replace(mins=(row, columns), extents=(1, wide)) for row in rows)


def size_of(tile: Tile) -> int:
    """The bytes of a region."""
    dtype = tile.access.dtype
    return (math.prod(tile.extents) * dtype.bits + 7) // 8
