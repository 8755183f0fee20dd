"""Who may see what, where threads wait for each other: the part of the dynamic check about order.

What enters: accesses of agents, barriers they arrive at and pass, and work that is under way. What
leaves: findings: data that is used before the wait for the work that brings it, memory that is
changed while such work needs it, warps that touch one element with no barrier in between, work that
nobody waits for.

Each agent knows up to when others' accesses are behind it; barriers hand that knowledge on. Work
that completes on an mbarrier belongs to the mbarrier, so only who has waited there knows of it.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

import numpy as np
import numpy.typing as npt

from tilelang.emulator.agents import Agent
from tilelang.emulator.inflight import Elements, Known, Op, Place, Point
from tilelang.emulator.shadow import SEVERAL, Cells, Owners, Places, Shadow, cells_of
from tilelang.emulator.storage import Array, Tile
from tilelang.errors import Diagnostic, Loc, warning

if TYPE_CHECKING:
    from tilelang.emulator.blocks import BlockState
    from tilelang.emulator.check import Checker, Touch

Flags = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.int32]

_MANY = 256  # an atomic access of more cells than this is no flag


class Track:
    """The cells of one piece of memory: the last store and load by column and time, with their
    places in the program, and the numbers of operations that write or read there now.
    """

    def __init__(self, count: int) -> None:
        self.writer = Last(count)
        self.reader = Last(count)
        self.readers: dict[int, Ids] = {}
        self.flags: dict[int, Known] = {}
        self.writing = np.zeros(count, np.int32)
        self.reading = np.zeros(count, np.int32)


class Last:
    """For each cell the column that touched it last, when, and where in the program."""

    def __init__(self, count: int) -> None:
        self.column = np.full(count, -1, np.int32)
        self.time = np.zeros(count, np.int32)
        self.site = np.zeros(count, np.int32)

    def stamp(self, cells: Places, column: int, time: int, site: int) -> None:
        """Somebody touches the cells."""
        self.column[cells], self.time[cells], self.site[cells] = column, time, site


@dataclass(eq=False)
class View:
    """What one agent knows, and the lanes that it had when it last ran."""

    column: int
    known: Known = field(default_factory=Known)
    domain: Any = None
    epoch: int = 0
    stretch: int = 0


class Order:
    """The order of a launch that runs as agents."""

    def __init__(self, checker: Checker, flags: bool) -> None:
        self.check = checker
        self.flags = flags
        self.now = 1
        self._views: WeakKeyDictionary[Agent, View] = WeakKeyDictionary()
        self._columns: list[Agent | Point] = []
        self._tracks: WeakKeyDictionary[Cells, Track] = WeakKeyDictionary()
        self._arrays: dict[int, tuple[ref[Array], Shadow]] = {}
        self._ops: dict[int, tuple[Op, Agent]] = {}
        self._agent: Agent | None = None
        self._issued = 0
        self._made: dict[tuple[int, int], tuple[Op, Agent]] = {}
        self._for: Agent | None = None
        self._actor: tuple[int, int, int] | None = None
        """Column, time and site of work that is being carried out; nothing is looked for then."""

    # -- whose turn it is --------------------------------------------------------------------------

    def enter(self, agent: Agent) -> None:
        """An agent goes on."""
        before = self._agent
        if before is agent:
            return
        if before is not None:
            old = self._view(before)
            old.domain, old.epoch = self.check.domain, self.check.epoch
            old.stretch = self.check.stretch
        self._agent = agent
        view = self._view(agent)
        self.check.enter_block(agent.block.number, agent.block.index)
        if view.domain is not None:
            self.check.domain, self.check.epoch = view.domain, view.epoch
            self.check.stretch = view.stretch

    def _view(self, agent: Agent) -> View:
        view = self._views.get(agent)
        if view is None:
            view = self._views[agent] = View(self._column(agent))
            view.known.agents[view.column] = 1
        return view

    def place_of(self, lane: int) -> list[tuple[str, int]]:
        """The indices of a thread of the running agent, by the author's names."""
        return self._agent.place(lane) if self._agent is not None else []

    @property
    def first(self) -> int:
        """The first thread of the running agent."""
        return 0 if self._agent is None else self._agent.first

    def _column(self, who: Agent | Point) -> int:
        self._columns.append(who)
        return len(self._columns) - 1

    # -- arrays ------------------------------------------------------------------------------------

    def known_array(self, array: Array) -> Shadow | None:
        """The shadow of an array that another agent has met before."""
        found = self._arrays.get(id(array))
        return found[1] if found is not None and found[0]() is array else None

    def register(self, array: Array, shadow: Shadow) -> Shadow:
        """Remember the shadow of an array."""
        self._arrays[id(array)] = (ref(array), shadow)
        return shadow

    def mirror(self, tile: Tile, there: Tile, root: Array) -> None:
        """A region in another block's memory, which that block may not have met yet."""
        unit = self.shadow(tile.array).cells.unit
        owner = self.known_array(root)
        if owner is None:
            owner = self.register(root, Shadow(root, cells_of(root, unit, written=False)))
        if self.known_array(there.array) is None:
            self.register(there.array, Shadow(there.array, owner.cells))

    def born(self, array: Array, unit: int, *, written: bool) -> Shadow:
        """Memory on chip; the first agent of a block that allocates it has it new."""
        known = self.known_array(array)
        if known is not None:
            return known
        return self.register(array, Shadow(array, cells_of(array, unit, written=written)))

    def shadow(self, array: Array) -> Shadow:
        """The shadow of an array."""
        found = self.known_array(array)
        if found is None:
            cells = cells_of(array, array.itemsize, written=True)
            found = self.register(array, Shadow(array, cells))
        return found

    def _touch(self, place: Place) -> Touch:
        shadow = self.shadow(place.array)
        if isinstance(place, Elements):
            return self.check.elements(shadow, place.at, place.access)
        return self.check.region(place, shadow)

    def _track(self, cells: Cells) -> Track:
        track = self._tracks.get(cells)
        if track is None:
            track = self._tracks[cells] = Track(cells.count)
        return track

    # -- barriers ----------------------------------------------------------------------------------

    def arrive(self, agent: Agent, point: Point) -> None:
        """What the agent has done is known to those who pass the barrier."""
        self._release(agent, point.coming)

    def leave(self, agent: Agent, point: Point, *, chosen: bool = False) -> None:
        """The agent passes the barrier. The chosen one acts for all who do."""
        view = self._view(agent)
        view.known.merge(point.known)
        self.check.barrier()
        if chosen:
            view.known.agents[view.column] += 1
            point.known.merge(view.known)

    def apart(self, agent: Agent) -> None:
        """What the agent does from here on it does for itself."""
        view = self._view(agent)
        view.known.agents[view.column] += 1

    def _release(self, agent: Agent, into: Known) -> None:
        view = self._view(agent)
        into.merge(view.known)
        into.blocks[agent.block.number] = self.now
        self.now += 1
        view.known.agents[view.column] += 1

    def settled(self, owners: Owners, cells: Places) -> Flags:
        """Which cells' owners are blocks whose accesses are known to be behind the agent."""
        agent = self._for or self._agent
        if agent is None:
            return np.zeros(len(cells), np.bool_)
        known = self._view(agent).known.blocks
        who, when = owners.who[cells], owners.time[cells]
        out = np.zeros(len(cells), np.bool_)
        for block in np.unique(who).tolist():
            mine = who == block
            out |= mine & ((block == SEVERAL and self.flags) | (when <= known.get(block, -1)))
        return out

    # -- accesses ----------------------------------------------------------------------------------

    def access(self, t: Touch, *, write: bool, atomic: bool = False, chain: str = "") -> bool:
        """The running agent touches elements; whether work under way has them. `chain` is the queue
        of work that is done in order.
        """
        track = self._track(t.shadow.cells)
        site = self.check.site(t.access.loc)
        if self._actor is not None:
            column, time, site = self._actor
            self._stamp(track, t, (column, time, site), write=write)
            return False
        if self._agent is None or not len(t.cells):
            return False
        if self._busy(t, track, write=write, chain=chain):
            return True
        if atomic:
            self._flag(t)
            return False
        view = self._view(self._agent)
        self._look(t, track.writer, "stores", write=write, chain=chain)
        if write:
            self._look_at_readers(t, track, chain)
        self._stamp(track, t, (view.column, view.known.agents[view.column], site), write=write)
        return False

    def _stamp(self, track: Track, t: Touch, stamp: tuple[int, int, int], *, write: bool) -> None:
        column, time, site = stamp
        if write:
            track.writer.stamp(t.cells, column, time, site)
            return
        track.reader.stamp(t.cells, column, time, site)
        if t.access.on_chip:
            if column not in track.readers:
                track.readers[column] = np.zeros(t.shadow.cells.count, np.int32)
            track.readers[column][t.cells] = time

    def _flag(self, t: Touch) -> None:
        """An atomic access orders what was before it in one agent and what comes after in
        another.
        """
        if not self.flags or self._agent is None or len(t.cells) > _MANY:
            return
        view = self._view(self._agent)
        flags = self._track(t.shadow.cells).flags
        for cell in np.unique(t.cells).tolist():
            here = flags.setdefault(cell, Known())
            view.known.merge(here)
            self._release(self._agent, here)

    def _unknown(self, columns: Ids, times: Ids, t: Touch) -> Flags:
        """Which accesses by these columns are not known to be behind the running agent."""
        assert self._agent is not None
        view = self._view(self._agent)
        out = np.zeros(len(columns), np.bool_)
        for column in np.unique(columns):
            if column < 0 or column == view.column:
                continue
            other = self._columns[int(column)]
            foreign = isinstance(other, Agent) and other.block is not self._agent.block
            if foreign and not t.access.on_chip:
                continue  # between blocks the owners of the cells are looked at
            out |= (columns == column) & (times > view.known.agents.get(int(column), 0))
        return out

    def _look(self, t: Touch, last: Last, does: str, *, write: bool, chain: str = "") -> None:
        """Whoever touched the elements last must be behind the running agent."""
        columns, times = last.column[t.cells], last.time[t.cells]
        wrong = self._unknown(columns, times, t)
        while wrong.any():
            first = int(np.argmax(wrong))
            column, time = int(columns[first]), int(times[first])
            other = self._columns[column]
            if isinstance(other, Agent):
                there = self.check.site_of(int(last.site[t.cells[first]]))
                self._race(t, wrong, (other, there), f"one {does} what another {_verb(write)}")
                return
            op, agent = self._made[column, time]
            if not (chain and op.queue == chain and agent is self._agent):
                self._early(t, wrong, op, write=write, does=does)
                return
            # What one thread has put into a queue is done in order.
            wrong &= ~((columns == column) & (times == time))

    def _look_at_readers(self, t: Touch, track: Track, chain: str) -> None:
        if not t.access.on_chip:
            self._look(t, track.reader, "reads", write=True)
            return
        assert self._agent is not None
        view = self._view(self._agent)
        for column, times in track.readers.items():
            wrong = times[t.cells] > view.known.agents.get(column, 0)
            if column == view.column or not wrong.any():
                continue
            first = t.cells[int(np.argmax(wrong))]
            other = self._columns[column]
            if isinstance(other, Agent):
                there = self.check.site_of(int(track.reader.site[first]))
                self._race(t, wrong, (other, there), "one reads what another stores")
            else:
                op, agent = self._made[column, int(times[first])]
                if not (chain and op.queue == chain and agent is self._agent):
                    self._early(t, wrong, op, write=True, does="reads")

    # -- work under way ----------------------------------------------------------------------------

    def issue(self, agent: Agent, op: Op) -> None:
        """An operation begins: from now on it needs its source and its destination."""
        op.watch = self
        self._issued += 1
        number = op.number = self._issued
        self._ops[number] = (op, agent)
        for place in op.reads:
            t = self._touch(place)
            busy = self.access(t, write=False, chain=op.queue)
            coming = self._track(t.shadow.cells).writing[t.cells].any()
            if not busy and op.adds and not coming:
                self.check.look_written(t)
            self._track(t.shadow.cells).reading[t.cells] = number
        for place in op.writes:
            t = self._touch(place)
            self.access(t, write=True, chain=op.queue)
            if not t.access.on_chip:
                continue
            self._track(t.shadow.cells).writing[t.cells] = number
            if not op.adds:
                t.shadow.cells.written[t.cells] = False

    def completed(
        self, op: Op, reads: tuple[Place, ...], writes: tuple[Place, ...], by: Point | None
    ) -> None:
        """(A part of) an operation has been carried out, for the sake of a barrier or a wait."""
        number = op.number
        agent = self._ops[number][1]
        with self._acting(op, agent, by):
            if op.adds or not reads or isinstance(reads[0], Elements):
                for place in reads:
                    self.access(self._touch(place), write=False)
                for place in writes:
                    self.check.now_written(self._touch(place))
            else:
                for source, target in zip(reads, writes, strict=True):
                    pair = (target, self.shadow(target.array))
                    self.check.tile_copy((source, self.shadow(source.array)), pair)  # pyright: ignore[reportArgumentType]
        for place in reads:
            _clear(self._track(self.shadow(place.array).cells).reading, self._touch(place), number)
        for place in writes:
            _clear(self._track(self.shadow(place.array).cells).writing, self._touch(place), number)
        if op.done:
            del self._ops[number]

    def covered(self, op: Op, by: Point) -> None:
        """Who passes a barrier knows of an operation that was complete before."""
        by.known.merge(Known(dict(op.stamps)))

    def fetched(self, op: Op) -> None:
        """An operation has read its source."""
        for place in op.reads:
            reading = self._track(self.shadow(place.array).cells).reading
            _clear(reading, self._touch(place), op.number)

    @contextmanager
    def _acting(self, op: Op, agent: Agent, by: Point | None) -> Generator[None]:
        """What is touched now is touched by an operation."""
        before, block, whom = self._actor, self.check.block, self._for
        if by is not None:
            if by.column < 0:
                by.column = self._column(by)
            time = by.known.agents.get(by.column, 0) + 1
            by.known.agents[by.column] = time
            by.known.blocks[agent.block.number] = self.now
            self.now += 1
            column = by.column
        else:
            view = self._view(self._agent or agent)
            column, time = view.column, view.known.agents[view.column]
        if by is not None:
            self._made[column, time] = (op, agent)
        op.stamps.append((column, time))
        self._actor = (column, time, self.check.site(op.loc))
        self.check.block, self._for = agent.block.number, agent
        yield
        self._actor, self.check.block, self._for = before, block, whom

    def ended(self, block: BlockState, left: list[Op]) -> None:
        """A block has ended; nobody has waited for what is left."""
        for op in left:
            if not op.fetched:
                self.check.findings.add(
                    warning(
                        "async",
                        f"{op.what} is never waited for",
                        op.loc,
                        expected=f"{_wait_for(op)} before the threads end",
                        got=f"still under way at the end of {block.name()}",
                        help="the block's memory is gone when its threads have ended",
                    )
                )

    # -- words -------------------------------------------------------------------------------------

    def _busy(self, t: Touch, track: Track, *, write: bool, chain: str) -> bool:
        """Whether work is under way that the access must wait for."""
        for numbers, does in ((track.writing, "writes"), (track.reading, "reads")):
            here = numbers[t.cells]
            if not here.any() or (does == "reads" and not write):
                continue
            op = self._ops[int(here.max())][0]
            if chain and op.queue == chain:
                continue
            self._early(t, here != 0, op, write=write, does=does)
            return True
        return False

    def _early(self, t: Touch, wrong: Flags, op: Op, *, write: bool, does: str) -> None:
        """An access that should have waited for asynchronous work, which writes or reads the
        elements.
        """
        name, element = t.access.buffer.name, self.check.element_of(t, wrong)
        verb, does = "changed" if write else "read", "reads" if does == "reads" else "writes"
        how = f"without a wait for {op.what}, which" if op.done else f"while {op.what}"
        fact = "is needed until" if does == "reads" else "is not there before"
        self.check.findings.add(
            warning(
                "async",
                f"{name} is {verb} {how} {does} it",
                t.access.loc,
                label=f"{element} {fact} the wait",
                expected=f"{_wait_for(op)} before",
                got=f"{self._me()} in {self.check.where()} did not wait",
                related=((op.loc, "it begins here"),) if op.loc is not None else (),
            )
        )

    def _race(self, t: Touch, wrong: Flags, other: tuple[Agent, Loc | None], what: str) -> None:
        who, there = other
        assert self._agent is not None
        name, foreign = t.access.buffer.name, who.block is not self._agent.block
        them = who.name() + (f" of {who.block.name()}" if foreign else "")
        self.check.findings.add(
            Diagnostic(
                "race",
                f"a race between {'blocks' if foreign else 'warps'} on {name}: {what}",
                t.access.loc,
                expected="a barrier between the accesses",
                got=f"{self.check.element_of(t, wrong)} touched by {them} and {self._me()}"
                f" in {self.check.where()}",
                related=((there, "the other access"),)
                if there is not None and there != t.access.loc
                else (),
                help="T.sync_threads, a named barrier, or an mbarrier that both pass",
                severity=warning("race", "").severity,
            )
        )

    def _me(self) -> str:
        return self._agent.name() if self._agent is not None else "the block"


_WAITS = {
    "T.async_copy": "T.ptx_wait_group",
    "T.ptx_cp_async": "T.ptx_wait_group",
    "T.wgmma_gemm": "T.wait_wgmma",
    "T.tcgen05_gemm": "T.mbarrier_wait_parity on its mbar",
    "T.tcgen05_gemm_blockscaled": "T.mbarrier_wait_parity on its mbar",
    "T.tma_copy": "T.mbarrier_wait_parity on its barrier",
    "T.tma_gather4": "T.mbarrier_wait_parity on its barrier",
    "T.clc_try_cancel": "T.mbarrier_wait_parity on its barrier",
    "T.copy_cluster": "T.mbarrier_wait_parity on its remote_barrier",
}
"""What waits for each asynchronous operation."""


def _wait_for(op: Op) -> str:
    return "T.tma_store_wait" if op.fetch is not None else _WAITS.get(op.what, "a wait")


def _verb(write: bool) -> str:
    return "stores" if write else "reads"


def _clear(numbers: Ids, t: Touch, number: int) -> None:
    """An operation no longer needs the cells; a later one may."""
    mine = t.cells[numbers[t.cells] == number]
    numbers[mine] = 0
