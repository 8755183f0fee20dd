"""Warps in lockstep: the lanes, and what the text of a kernel calls.

What enters: values with one element for each lane (or one for all), and masks. What leaves: values,
changed memory, masks. A mask is None for all lanes, `NOBODY` for none, else an array of bools.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilelang.dtypes import DType
from tilelang.errors import TileIndexError, TileRuntimeError, error
from tilelang.ir.tile import Assert, Assume
from tilelang.simulator.gpu.arrays import Local, Mask, Place, Registers, Values, Window
from tilelang.simulator.machine import Edge, Memory, Wait, Who
from tilelang.simulator.machine.clocks import Actors, join_told
from tilelang.simulator.machine.schedule import Steps

if TYPE_CHECKING:
    from tilelang.simulator.gpu.block import Block

WARP = 32


class Nobody:
    """The mask without lanes."""


NOBODY = Nobody()
SomeMask = Mask | None | Nobody


class Group:
    """Whole warps of a block. `threads` are the indices of its lanes in the block.

    The last warp of a block may have fewer threads than lanes: `mask` are the lanes that exist.
    """

    def __init__(self, block: Block, warps: Sequence[int]) -> None:
        self.block = block
        self.warps = list(warps)
        lanes = np.arange(WARP)
        self.threads = (np.array(self.warps)[:, None] * WARP + lanes).reshape(-1)
        self.count = self.threads.size
        exists = self.threads < block.threads
        self.mask: Mask | None = None if exists.all() else exists
        self.actors: Actors = block.actors[self.threads]
        self.team = block.team
        self.returned: Mask = ~exists
        self.watched: list[Registers] = []
        self.state: dict[Any, Any] = {}
        self.report = block.report

    @property
    def name(self) -> str:
        """What the group is called in reports."""
        runs = [list(r) for _, r in itertools.groupby(enumerate(self.warps), lambda p: p[1] - p[0])]
        parts = [f"{r[0][1]}" if len(r) == 1 else f"{r[0][1]}-{r[-1][1]}" for r in runs]
        word = "warp" if len(self.warps) == 1 else "warps"
        return f"{word} {', '.join(parts)} of block {self.block.place}"

    # Masks ---------------------------------------------------------------------------------------

    def split(self, mask: Mask | None, cond: Any) -> tuple[SomeMask, SomeMask]:
        """The lanes of a mask where a condition holds, and where it does not."""
        c = np.asarray(cond)
        if c.ndim == 0:
            return (mask, NOBODY) if c else (NOBODY, mask)
        yes = c.astype(np.bool_, copy=False)
        return self.some(yes, mask), self.some(~yes, mask)

    def some(self, wanted: Mask, within: Mask | None) -> SomeMask:
        """Lanes as a mask."""
        mask = wanted if within is None else wanted & within
        if mask.all():
            return None
        return mask if mask.any() else NOBODY

    def live(self, mask: Mask | None, loop: Loop | None) -> SomeMask:
        """The lanes that go on with a block of statements after some may have left it."""
        gone = self.returned if self.mask is None else self.returned & self.mask
        if loop is not None:
            gone = gone | loop.broken | loop.skipped
        return self.some(~gone, mask)

    def leave(self, mask: Mask | None) -> None:
        """These lanes end."""
        self.returned |= self.lanes(mask)

    def lanes(self, mask: Mask | None) -> Mask:
        """A mask as an array."""
        return np.ones(self.count, np.bool_) if mask is None else mask

    def actors_of(self, mask: Mask | None) -> Actors:
        """The actors of the lanes of a mask."""
        return self.actors if mask is None else self.actors[mask]

    def each(self, value: Any, dtype: Any = None) -> Values:
        """A value as one element for each lane."""
        return np.broadcast_to(np.asarray(value, dtype), (self.count,))

    def warp_rows(self, value: Any) -> Values:
        """A value of each lane as (warps, 32)."""
        return self.each(value).reshape(-1, WARP)

    def turns(self, *arms: Steps) -> Steps:
        """Runs arms of a condition that wait for each other by turns."""
        running: list[tuple[Steps, Wait | None]] = [(arm, None) for arm in arms]
        while running:
            left: list[tuple[Steps, Wait | None]] = []
            moved = False
            for arm, wait in running:
                if wait is not None and not wait.ready():
                    left.append((arm, wait))
                    continue
                moved = True
                try:
                    left.append((arm, next(arm)))
                except StopIteration:
                    continue
            running = left
            waits = [w for _, w in running if w is not None]
            if moved or not waits:
                yield None
            else:
                yield _any_of(waits)

    # Memory --------------------------------------------------------------------------------------

    def registers(self, name: str, dtype: DType, size: int, watched: bool) -> Registers:
        """New registers."""
        made = Registers(name, dtype, size, self.count, self.report)
        if watched:
            self.watched.append(made)
        return made

    def local(self, name: str, dtype: DType, size: int) -> Local:
        """A new array of each lane."""
        return Local(name, dtype, size, self.count, self.report)

    def where(self, window: Window, index: Any, count: int, mask: Mask | None, site: int) -> Values:
        """The byte addresses of elements, for the lanes of a mask. An index outside is an error."""
        at = np.asarray(index, np.int64)
        start = np.asarray(window.start, np.int64)
        if mask is None:
            at = self.each(at)
        else:
            at = self.each(at)[mask]
            start = start[mask] if start.ndim else start
        if window.size is not None and at.size:
            low, high = int(at.min()), int(at.max()) + count
            if low < 0 or high > window.size:
                self.outside(window, low if low < 0 else high - 1, site)
        found: Values = start + at * window.item
        return found

    def outside(self, window: Window, index: int, site: int) -> None:
        """An access that is not in its array."""
        place = self.report.sites[site]
        raise error(
            "bounds",
            f"an access outside of {window.name}",
            place.loc,
            cls=TileIndexError,
            label=place.what,
            expected=f"0 to {(window.size or 0) - 1}",
            got=str(index),
        )

    def who(self, mask: Mask | None, site: int, **facts: Any) -> Who:
        """The lanes of a mask, as those who make an access."""
        return Who(self.team, self.actors_of(mask), site, **facts)

    def load(
        self, window: Window, index: Any, count: int, mask: Mask | None, site: int, **facts: Any
    ) -> Values:
        """Neighbouring elements for each lane: (count, lanes), or (lanes,) for one."""
        at = self.where(window, index, count, mask, site)
        storage = window.dtype.base.numpy
        found = window.memory.load(at, storage, count, self.who(mask, site, **facts))
        if mask is not None:
            whole = np.zeros((count, self.count), storage)
            whole[:, mask] = found
            found = whole
        return found if count > 1 else found[0]

    def store(
        self, window: Window, index: Any, value: Any, mask: Mask | None, site: int, **facts: Any
    ) -> None:
        """Writes an element, or a vector of them, for each lane."""
        values = np.asarray(value, window.dtype.base.numpy)
        values = np.broadcast_to(values, (len(values) if values.ndim == 2 else 1, self.count))
        if mask is not None:
            values = values[:, mask]
        at = self.where(window, index, len(values), mask, site)
        window.memory.store(at, values, self.who(mask, site, **facts))
        self.block.machine.scheduler.happened()

    def elements(self, place: Place, mask: Mask | None, site: int) -> Values:
        """The elements of an operand, (count, lanes)."""
        array = place.array
        if isinstance(array, Registers):
            first = int(place.index)
            return array.data[first : first + place.count]
        if isinstance(array, Local):
            found = array.read(place.index, place.count, mask, site)
        else:
            found = self.load(array, place.index, place.count, mask, site)
        return found.reshape(place.count, self.count)

    def put(self, place: Place, values: Values, mask: Mask | None, site: int) -> None:
        """Set the elements of an operand, (count, lanes)."""
        array = place.array
        if isinstance(array, Registers):
            array.watched_write(int(place.index), values, mask, site)
        elif isinstance(array, Local):
            array.write(place.index, values, mask, site)
        else:
            self.store(array, place.index, values, mask, site)

    def address(self, array: Any, index: Any, generic: bool) -> Values:
        """The address of an element: in its own space, or a generic one."""
        if not isinstance(array, Window):
            raise error("target", f"the simulator has no addresses of {array.name}")
        at = np.asarray(array.start + np.asarray(index, np.int64) * array.item)
        return at + array.memory.base if generic else at

    def window(self, name: str, dtype: DType, size: Any, address: Any, mask: Mask | None) -> Window:
        """A name for the memory at a generic address, which may differ between lanes."""
        at = np.asarray(address).astype(np.int64)
        held = at if at.ndim == 0 else at[self.lanes(mask)]
        count = None if size is None else int(np.max(size))
        return self.block.window(name, dtype, count, at, (int(held.min()), int(held.max())))

    def choose(
        self, mask: Mask | None, cond: Any, yes: Callable[[Any], Any], no: Callable[[Any], Any]
    ) -> Any:
        """One of two values, each evaluated only by the lanes that take it."""
        here, there = self.split(mask, cond)
        if isinstance(there, Nobody):
            return yes(here)
        if isinstance(here, Nobody):
            return no(there)
        first, second = np.asarray(yes(here)), np.asarray(no(there))
        return np.where(np.asarray(cond, np.bool_), first, second)

    def order_atomics(self, memory: Memory, mask: Mask | None) -> None:
        """Atomic accesses to one memory are ordered, one group after the other."""
        actors = self.actors_of(mask)
        machine = self.block.machine
        edge = machine.edges.setdefault((id(memory), self.team.number), Edge(self.team))
        edge.take(actors)
        edge.give(actors)
        told = machine.told.setdefault(id(memory), {})
        if self.team.number not in told or len(told) > 1 or len(machine.clocks.teams) > 1:
            self.team.hear(told)
            join_told(told, self.team.publish())

    # Control and speech --------------------------------------------------------------------------

    def rounds(
        self, mask: Mask | None, start: Any, stop: Any, step: Any, storage: np.dtype[Any]
    ) -> Iterator[tuple[Any, Any]]:
        """The values of a counter that no lane leaves early, with the lanes that have them."""
        ends = [np.asarray(x) for x in (start, stop, step)]
        if all(x.ndim == 0 for x in ends):
            first, last, by = (int(x) for x in ends)
            one = storage.type
            for k in range(first, last, by):
                yield one(k), mask
            return
        yield from Loop(self, mask).rounds(start, stop, step, storage)

    def require(self, stmt: Assert, cond: Any, mask: Mask | None) -> None:
        """An assertion; where it does not hold, the launch ends."""
        thread = self._failing(cond, mask)
        if thread is None:
            return
        where = f"block {(*self.block.place, 0, 0)[:3]}, thread {thread}"
        if not stmt.kind:
            said = f": {stmt.message}" if stmt.message else ""
            text = f"device assertion failed{said}"
            raise error("value", text, stmt.loc, cls=TileRuntimeError, got=where)
        cls = TileIndexError if stmt.kind == "bounds" else None
        raise error(stmt.kind, stmt.message, stmt.loc, cls=cls, got=where)

    def assume(self, stmt: Assume, cond: Any, mask: Mask | None) -> None:
        """An assumption of the author, which has to be true."""
        thread = self._failing(cond, mask)
        if thread is not None:
            self.report.add(
                "value",
                "an assumption does not hold",
                stmt.loc,
                got=f"block {self.block.place}, thread {thread}",
            )

    def _failing(self, cond: Any, mask: Mask | None) -> tuple[int, ...] | None:
        wrong = self.lanes(mask) & ~self.each(cond).astype(np.bool_)
        if not wrong.any():
            return None
        return self.place_of(int(np.argmax(wrong)))

    def place_of(self, lane: int) -> tuple[int, ...]:
        """The thread index of a lane, x first."""
        thread, out = int(self.threads[lane]), list[int]()
        for extent in (*self.block.shape, 1, 1)[:3]:
            out.append(thread % extent)
            thread //= extent
        return tuple(out)

    def print(self, message: str, value: Any, dtype: DType | None, mask: Mask | None) -> None:
        """A line for each lane, as the emitter prints it."""
        block = (*self.block.place, 0, 0)[:3]
        for lane in np.flatnonzero(self.lanes(mask)):
            place = self.place_of(int(lane))
            line = f"msg='{message}' BlockIdx={block}, ThreadIdx={place}"
            if dtype is not None:
                shown = self.each(value)[lane]
                line += f": dtype={dtype} value={shown}"
            self.block.machine.say(line)


def _any_of(waits: Sequence[Wait]) -> Wait:
    words = "; or ".join(w.words for w in waits)
    return Wait(lambda: any(w.ready() for w in waits), words, waits[0].loc)


class Loop:
    """A loop: the lanes that have left it for good, and those that have left this round."""

    def __init__(self, group: Group, mask: Mask | None) -> None:
        self.group = group
        self.mask = mask
        self.broken: Mask = np.zeros(group.count, np.bool_)
        self.skipped: Mask = np.zeros(group.count, np.bool_)

    def break_(self, mask: Mask | None) -> None:
        """These lanes leave the loop."""
        self.broken |= self.group.lanes(mask)

    def continue_(self, mask: Mask | None) -> None:
        """These lanes leave the round."""
        self.skipped |= self.group.lanes(mask)

    def going(self) -> SomeMask:
        """The lanes that begin another round."""
        self.skipped[:] = False
        return self.group.live(self.mask, self)

    def rounds(
        self, start: Any, stop: Any, step: Any, storage: npt.DTypeLike
    ) -> Iterator[tuple[Any, Any]]:
        """The values of a counter with the lanes that have them."""
        first, last, by = (np.asarray(x, np.int64) for x in (start, stop, step))
        if first.ndim == last.ndim == by.ndim == 0:
            for k in range(int(first), int(last), int(by)):
                mask = self.going()
                if isinstance(mask, Nobody):
                    return
                yield np.asarray(k, storage)[()], mask
            return
        at = np.broadcast_to(first, (self.group.count,)).copy()
        while True:
            mask = self.going()
            more = np.where(by > 0, at < last, at > last)
            if not isinstance(mask, Nobody):
                mask = self.group.some(more, mask)
            if isinstance(mask, Nobody):
                return
            yield at.astype(storage), mask
            at = at + by

    def while_(self, cond: Any, mask: Any) -> SomeMask:
        """The lanes of a round for which a condition holds; the others leave the loop."""
        yes, no = self.group.split(mask, cond)
        if not isinstance(no, Nobody):
            self.broken |= self.group.lanes(no)
        return yes
