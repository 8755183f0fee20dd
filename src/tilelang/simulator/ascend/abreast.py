"""Several blocks at once: each instruction is done for all of them before the next one.

What enters: the text of a core, with several blocks in place of one. What leaves: changed memory.
Every block is a lane: what the blocks have of their own is an array with one element for each
(`levels`), and their memories lie behind each other, so that one operation of NumPy does an
instruction for all.

Nobody can tell the order from that of one block after the other: before anything is changed a
`Survey` runs the scalars of the program alone. It says whether all blocks go the same way, whether
what one writes in global memory is touched by no other, and whether flags and bounds are right.
What does not fit, and all that is wrong, is left to the run block by block, which reports it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.errors import Loc
from tilelang.ir.ascend import VectorFunction
from tilelang.ir.tile import Assert
from tilelang.isa.target import SyncLimits
from tilelang.simulator.ascend.core import Member
from tilelang.simulator.ascend.crossing import ALL, Crossing
from tilelang.simulator.ascend.inorder import KEPT, Counts, InOrderCore, Steps
from tilelang.simulator.ascend.instruction import Instruction, Operand, View, runs_of
from tilelang.simulator.ascend.levels import same
from tilelang.simulator.ascend.memories import GroupMemories, LaneMemories, Ready, Sizes, Window
from tilelang.simulator.machine import Memory
from tilelang.targets.ascend.rows.vector import OutsideSource

Starts = npt.NDArray[np.int64]


LEAST = 4
"""Fewer blocks are done sooner one after the other."""

MOST, BYTES = 32, 16 << 20
"""The most blocks, and the most bytes of their memories: these should stay in a cache."""


def lanes_for(memories: Sizes) -> int:
    """How many blocks with these memories are run at once."""
    return max(LEAST, min(MOST, BYTES // max(sum(memories.values()), 1)))


class Unfit(Exception):
    """Something that only the run block by block does."""


# Before: what the blocks touch --------------------------------------------------------------------


class Footprints:
    """The bytes of global memory that each lane touches."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self._seen: set[Any] = set()
        self._runs: defaultdict[int, list[tuple[Starts, int, bool]]] = defaultdict(list)
        self._anywhere: set[int] = set()

    def touch(self, window: Window, view: View, first: Any, size: int, *, writes: bool) -> None:
        """A view, from an element of a window on: the same one, or one for each lane."""
        place = first.tobytes() if type(first) is np.ndarray else first
        key = (id(window), id(view), place, writes)
        if key in self._seen or view.empty:
            return
        self._seen.add(key)
        starts: Starts = window.start + np.broadcast_to(first, (self.lanes,)) * size
        if starts.min() + view.low < 0 or starts.max() + view.high > window.memory.data.size:
            raise Unfit("out of bounds")
        places, length = runs_of(view, size)
        self._runs[id(window.memory)].append((starts[:, None] + places, length, writes))

    def somewhere(self, memory: Memory, *, writes: bool) -> None:
        """A place that only the data says."""
        if writes:
            raise Unfit("a store to a place that is read from memory")
        self._anywhere.add(id(memory))

    def apart(self) -> bool:
        """Whether no lane touches what another one writes."""
        written = {m for m, runs in self._runs.items() if any(writes for *_, writes in runs)}
        return not written & self._anywhere and all(self._disjoint(self._runs[m]) for m in written)

    def _disjoint(self, runs: list[tuple[Starts, int, bool]]) -> bool:
        """Of runs of bytes that touch each other none is written, or all are of one lane."""
        first = np.concatenate([starts.reshape(-1) for starts, _, _ in runs])
        length = np.repeat([n for _, n, _ in runs], [starts.size for starts, _, _ in runs])
        writes = np.repeat([w for _, _, w in runs], [starts.size for starts, _, _ in runs])
        lane = np.concatenate([np.indices(starts.shape)[0].reshape(-1) for starts, _, _ in runs])
        order = np.argsort(first, kind="stable")
        first, lane, writes = first[order], lane[order], writes[order]
        ends = np.maximum.accumulate(first + length[order])
        begins = np.flatnonzero(np.concatenate([[True], first[1:] >= ends[:-1]]))
        alone = np.minimum.reduceat(lane, begins) == np.maximum.reduceat(lane, begins)
        return bool((alone | ~np.logical_or.reduceat(writes, begins)).all())


class Survey(InOrderCore):
    """A core that runs the scalars of several blocks, and notes what their instructions touch."""

    def __init__(
        self,
        member: Member,
        memories: GroupMemories,
        limits: SyncLimits,
        crossing: Crossing[None],
        footprints: Footprints,
    ) -> None:
        super().__init__(member, memories, limits, crossing, Counts())
        self.footprints = footprints

    def issue(
        self,
        i: Instruction,
        at: tuple[Any, ...],
        data: dict[str, Any] | None = None,
        far: Any = 0,
    ) -> None:
        """Note where an instruction would be done."""
        del data
        if i.apart and any(type(x) is np.ndarray for x in at):
            if i.far >= 0:
                self.footprints.somewhere(at[2 * i.far].memory, writes=i.stores_far)
            return
        if at not in self.ready[i]:
            self.ready[i][at] = self.prepared(i, at)  # looks at bounds and alignment
        if i.far < 0:
            return
        window = at[2 * i.far]
        if i.loose:
            self.footprints.somewhere(window.memory, writes=i.stores_far)
            return
        view, size = i.layout(at).views[i.far], i.slots[i.far].dtype.itemsize
        self.footprints.touch(window, view, far, size, writes=i.stores_far)

    def load(self, window: Window, index: Any, loc: Loc | None) -> Any:
        """Any value, which decides nothing."""
        del index, loc
        if not self.memories.has(window.memory):
            self.footprints.somewhere(window.memory, writes=False)
        dtype = window.dtype if window.dtype.kind not in "iu" else np.dtype(np.int64)
        return np.zeros(self.footprints.lanes, dtype)

    def store(self, window: Window, index: Any, value: Any, loc: Loc | None) -> None:
        """An element of a memory of the group; others are not followed."""
        del index, value, loc
        if not self.memories.has(window.memory):
            self.footprints.somewhere(window.memory, writes=True)

    def require(self, cond: Any, stmt: Assert) -> None:
        """Nothing: what is in memory is known when the blocks run."""

    def set_mode(self, name: str, value: Any) -> None:
        """A mode that all lanes have."""
        super().set_mode(name, same(value))

    def call(self, function: VectorFunction, given: dict[str, Any]) -> None:
        """Refuse: a vector function has lanes of its own."""
        raise Unfit("a vector function")

    def sync_all(self, i: Instruction, kind: str) -> Steps:
        """Refuse: those who meet here run by turns."""
        raise Unfit("a meeting of all cores")

    def cross_set(self, i: Instruction, number: int) -> Steps:
        """Raise a flag within the group."""
        if i.imm["mode"] == ALL:
            raise Unfit("a flag for all cores")
        return super().cross_set(i, number)

    def print(self, message: str, *values: Any) -> None:
        """Refuse: lines would come in another order."""
        raise Unfit("a print")

    def print_element(self, window: Window, index: int, imm: dict[str, Any]) -> None:
        """Refuse, as `print`."""
        raise Unfit("a print")


# The run ------------------------------------------------------------------------------------------


class AbreastCore(InOrderCore):
    """One core of each of several blocks."""

    memories: LaneMemories

    def issue(
        self,
        i: Instruction,
        at: tuple[Any, ...],
        data: dict[str, Any] | None = None,
        far: Any = 0,
    ) -> None:
        """Do an instruction of every lane."""
        if i.apart:
            at = tuple([_collapsed(x) if type(x) is np.ndarray else x for x in at])
            if any(type(x) is np.ndarray for x in (*at, *i.deciding(data))):
                self.one_by_one(i, at, data or {}, far)
                return
        found = self.ready[i]
        ready = found.get(at)
        if ready is None:
            if len(found) == KEPT:
                found.clear()
            ready = found[at] = self.prepared(i, at)
        self.by_pipe[i.queue] += self.memories.lanes
        do, outside = ready
        given = self.numbers(i, at, data) if data else {}
        if i.moded and (self.atomic or self.modes or i.told):
            given.update(self.state(i))
        try:
            if outside is None:
                do(**given)
                return
            name = i.slots[i.far].name
            block, chosen = outside(far)
            given[name] = block if chosen is None else block[chosen]
            do(**given)
            if chosen is not None and i.stores_far:
                block[chosen] = given[name]
        except OutsideSource as e:
            raise i.outside_source(e) from None

    def numbers(self, i: Instruction, at: tuple[Any, ...], data: dict[str, Any]) -> dict[str, Any]:
        """The scalars of an instruction; one for each lane stands before the axes of its output."""
        for name, x in data.items():
            if type(x) is np.ndarray and i.row.lanes:
                axes = len(i.layout(at).views[0].shape)
                own = x.astype(i.slots[0].dtype, copy=False)
                data[name] = own.reshape(-1, *(1,) * axes)
        return data

    def prepared(self, i: Instruction, at: tuple[Any, ...]) -> Ready:
        """As for one block, with arrays of all lanes."""
        layout = i.layout(at)
        places = self.places(i, layout, at, 0)
        arrays = {
            slot.name: self.array(slot, i, layout.views[k], *places[k])
            for k, slot in enumerate(i.slots)
            if k != i.far
        }
        assert i.meaning is not None
        outside = None if i.far < 0 else self.outside(i, layout.views[i.far], places[i.far][0])
        if i.row.lanes and math.prod(layout.views[0].shape) > 1:
            return partial(i.meaning, **arrays, **layout.params), outside
        return partial(self.each, i.meaning, layout.params, **arrays), outside

    def each(self, meaning: Callable[..., Any], params: dict[str, Any], /, **given: Any) -> None:
        """Lane after lane, for what has no meaning with lanes."""
        for lane in range(self.memories.lanes):
            own = {k: x[lane] if type(x) is np.ndarray else x for k, x in given.items()}
            meaning(**own, **params)

    def array(self, slot: Operand, i: Instruction, view: View, window: Window, index: int) -> Any:
        """An operand of all lanes."""
        own = i.array(slot, view, window, index)
        if view.empty:
            return np.zeros((self.memories.lanes, *view.shape), slot.dtype)
        whole = self.memories.whole(window.memory)
        start = window.start + index * slot.dtype.itemsize
        shape, strides = (len(whole), *view.shape), (whole.strides[0], *view.strides)
        return np.ndarray(shape, own.dtype, whole, start, strides)

    def outside(self, i: Instruction, view: View, window: Window) -> Callable[[Any], Any]:
        """What makes an array of an operand in global memory: of all lanes, or, where these lie at
        no equal distance, of all places, and which of them they are.
        """
        slot, lanes, make = i.slots[i.far], self.memories.lanes, np.ndarray
        size, data, origin = slot.dtype.itemsize, window.memory.data, window.start
        lowest, highest = -view.low - origin, data.size - view.high - origin
        known: dict[Any, tuple[npt.NDArray[Any], Any]] = {}

        def of(index: Any) -> tuple[npt.NDArray[Any], Any]:
            if i.loose:
                return placed(index.tolist())
            key = index.tobytes() if type(index) is np.ndarray else index
            found = known.get(key)
            if found is None:
                if len(known) == KEPT:
                    known.clear()
                each: list[int] = np.broadcast_to(index, (lanes,)).tolist()
                found = known[key] = placed(each)
            return found

        def placed(each: list[int]) -> tuple[npt.NDArray[Any], Any]:
            first, last = min(each), max(each)
            if slot.align or view.empty or first * size < lowest or last * size > highest:
                for x in each:
                    i.array(slot, view, window, x)  # is an error where it is outside
                if view.empty:
                    return np.zeros((lanes, *view.shape), slot.dtype), None
            step = each[1] - each[0]
            if each == [each[0] + k * step for k in range(lanes)]:
                shape, strides = (lanes, *view.shape), (step * size, *view.strides)
                return make(shape, slot.dtype, data, origin + each[0] * size, strides), None
            shape, strides = (last - first + 1, *view.shape), (size, *view.strides)
            found = make(shape, slot.dtype, data, origin + first * size, strides)
            return found, [x - first for x in each]

        return of

    def one_by_one(
        self, i: Instruction, at: tuple[Any, ...], data: dict[str, Any], far: Any
    ) -> None:
        """An instruction whose operands are of another size, or lie elsewhere, in each lane."""
        self.by_pipe[i.queue] += self.memories.lanes
        for lane in range(self.memories.lanes):
            mine = tuple(_of_lane(x, lane) for x in at)
            layout = i.layout(mine)
            places = self.places(i, layout, mine, _of_lane(far, lane))
            arrays = {
                slot.name: i.array(slot, view, *place)
                if k == i.far
                else self.array(slot, i, view, *place)[lane]
                for k, (slot, view, place) in enumerate(
                    zip(i.slots, layout.views, places, strict=True)
                )
            }
            own = {k: x[lane] if type(x) is np.ndarray else x for k, x in data.items()}
            state = self.state(i) if i.moded else {}
            i.run(arrays, {**layout.params, **own, **state})

    # Elements, flags -----------------------------------------------------------------------------

    def load(self, window: Window, index: Any, loc: Loc | None) -> Any:
        """An element of each lane."""
        own = self.memories.has(window.memory)
        if not own and type(index) is not np.ndarray:
            return super().load(window, index, loc)
        self._inside(window, index, loc)
        if own:
            found = self.memories.elements(window)[self.memories.each, index]
        else:
            found = window.elements[index]
        return found.astype(np.int64) if window.dtype.kind in "iu" else found

    def store(self, window: Window, index: Any, value: Any, loc: Loc | None) -> None:
        """Write an element of each lane."""
        self._inside(window, index, loc)
        self.memories.elements(window)[self.memories.each, index] = value

    def require(self, cond: Any, stmt: Assert) -> None:
        """An assertion about what is in memory, for each lane."""
        if not np.all(cond):
            first = int(np.argmin(np.broadcast_to(cond, (self.memories.lanes,))))
            self.member = replace(self.member, group=self.member.group + first)
            self.fail(stmt)

    def _inside(self, window: Window, index: Any, loc: Loc | None) -> None:
        for x in index.tolist() if type(index) is np.ndarray else (index,):
            if not 0 <= x < window.count:
                self.element(window, x, loc)

    def set_flag(self, i: Instruction, number: int) -> None:
        """Nothing: flags were right when the survey was done."""

    def wait_flag(self, i: Instruction, number: int) -> Steps:
        """Nothing, as `set_flag`."""
        return ()


def _of_lane(x: Any, lane: int) -> Any:
    return x[lane].item() if type(x) is np.ndarray else x


def _collapsed(x: Any) -> Any:
    """A value that all lanes have, by itself."""
    return x[0].item() if (x == x[0]).all() else x
