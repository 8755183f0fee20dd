"""The dynamic check: what a program does wrong with the inputs it was given.

What enters: every access of a checked run, with its lanes. What leaves: findings, with an element,
a block and a lane as example: reads of what nobody wrote, indices outside of global memory, two
blocks or two iterations that touch one element with no order between them, division by zero,
assumptions that do not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilelang.emulator import elements, race
from tilelang.emulator.blocks import LANE
from tilelang.emulator.ops import matched
from tilelang.emulator.shadow import Cells, LaneRange, Owners, Places, Shadow, cells_of
from tilelang.emulator.storage import Access, Array, Fault, Index, Mask, Tile, overlap
from tilelang.errors import Diagnostic, Findings, Loc, Severity, warning
from tilelang.ir.sync import WARP

if TYPE_CHECKING:
    from tilelang.emulator.agents import Agent
    from tilelang.emulator.order import Order

Lanes = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Domain:
    """The lanes of the current statements: their shape, their axes' names, and whether they are
    threads.
    """

    shape: tuple[int, ...] = ()
    axes: tuple[str, ...] = ()
    threads: bool = False


@dataclass
class Touch:
    """The elements that the active lanes of one access touch."""

    shadow: Shadow
    access: Access
    at: tuple[Any, ...]
    lanes: Lanes
    cells: Places

    @property
    def each(self) -> int:
        """How many cells an element has."""
        return len(self.cells) // max(len(self.lanes), 1) or 1

    def example(self, flags: Flags) -> tuple[int, tuple[int, ...], int]:
        """The first flagged access: its position, its element, and its cell."""
        first = int(np.argmax(flags))
        k = first // self.each
        return k, tuple(int(i[k]) for i in self.at), int(self.cells[first])


@dataclass
class Checker:
    """The state of a checked run."""

    where: Callable[..., str]
    findings: Findings = field(default_factory=Findings)
    block: int = 0
    domain: Domain = field(default_factory=Domain)
    epoch: int = 0
    stretch: int = 0
    order: Order | None = None
    _turns: int = 0
    _global: list[Cells] = field(default_factory=list[Cells])
    _sites: list[Loc | None] = field(default_factory=lambda: [None])
    _site_of: dict[Loc | None, int] = field(default_factory=dict["Loc | None", int])
    _blocks: dict[int, tuple[int, ...]] = field(default_factory=dict[int, "tuple[int, ...]"])

    # -- life of buffers and lanes -----------------------------------------------------------------

    def adopt(self, shadows: dict[str, Shadow]) -> None:
        """Watch the arguments for races between blocks."""
        self._global += [s.cells for s in shadows.values()]

    def born(self, array: Array, unit: int, written: bool, shared_by_blocks: bool) -> Shadow:
        """New memory; or memory at an address, which may be that of an argument."""
        if self.order is not None and not shared_by_blocks:
            return self.order.born(array, unit, written=written)
        cells = cells_of(array, unit, written=written)
        if not shared_by_blocks:
            return Shadow(array, cells)
        if written:
            for known in self._global:
                if known.holds(cells):
                    return Shadow(array, known)
        else:  # where it lies, older memory is gone
            self._global = [known for known in self._global if not known.meets(cells)]
        self._global.append(cells)
        return Shadow(array, cells)

    def viewed(self, array: Array, source: Shadow) -> Shadow:
        """Another array on the same storage."""
        made = Shadow(array, source.cells)
        return made if self.order is None else self.order.register(array, made)

    def start(self) -> None:
        """A new launch: what earlier ones did is in order."""
        for cells in self._global:
            cells.plain = cells.atomic = cells.readers = cells.bytes = None
        self._blocks.clear()

    def enter_block(self, number: int, block: tuple[int, ...]) -> None:
        """The next block begins."""
        self.block = number
        self._blocks[number] = block
        self._turn()

    def enter(self, shape: tuple[int, ...], axes: tuple[str, ...], threads: bool) -> Domain:
        """Other lanes from here on; the result is what to go back to."""
        before = self.domain
        self.domain = Domain(shape, axes, threads)
        self._turn()
        return before

    def leave(self, before: Domain) -> None:
        """The lanes of before."""
        self.domain = before
        self._turn()

    def _turn(self) -> None:
        self._turns += 1
        self.epoch = self.stretch = self._turns

    def step(self) -> None:
        """A statement that all threads reach; on chip it is after what was, since the compiler puts
        a barrier where one is needed.
        """
        self._turns += 1
        self.stretch = self._turns

    def barrier(self) -> None:
        """What comes is after what was, for the threads of the block."""
        self._turn()

    # -- single elements ---------------------------------------------------------------------------

    def load(
        self,
        shadow: Shadow,
        index: tuple[Index, ...],
        access: Access,
        mask: Mask | None,
        atomic: bool,
    ) -> Any:
        """One element for each lane, or one for the block."""
        uniform = mask is None and not any(isinstance(i, np.ndarray) for i in index)
        self._bounds(shadow, index, access, mask, "read")
        touch = self._touch(shadow, index, access, mask, () if uniform else self.domain.shape)
        self._read(touch, atomic=atomic, lanes=not uniform)
        if uniform:
            return elements.load(shadow.array, index, access)  # pyright: ignore[reportArgumentType]
        return elements.gather(shadow.array, index, access, mask)

    def store(
        self,
        shadow: Shadow,
        index: tuple[Index, ...],
        value: Any,
        access: Access,
        mask: Mask | None,
        atomic: bool,
    ) -> None:
        """Each lane sets one element, or the block one."""
        same = not isinstance(value, np.ndarray) and not any(
            isinstance(i, np.ndarray) for i in index
        )
        shape = () if same and mask is None else self.domain.shape
        self._bounds(shadow, index, access, mask, "write")
        touch = self._touch(shadow, index, access, mask, shape)
        values = self._values(touch, value, index, mask, shape)
        if not same and not atomic:
            self._one_statement(touch, values)
        some = same and mask is not None and self.domain.threads
        self._written(touch, values, atomic=atomic, lanes=some or not same, same=same)
        elements.scatter(shadow.array, index, value, mask, shape, access)

    def atomic(
        self, shadow: Shadow, index: tuple[Index, ...], access: Access, mask: Mask | None
    ) -> None:
        """Each lane updates one element; the update itself follows."""
        self._bounds(shadow, index, access, mask, "update")
        touch = self._touch(shadow, index, access, mask, self.domain.shape)
        self._updated(touch)

    def by_threads(
        self,
        shadow: Shadow,
        index: tuple[Index, ...],
        access: Access,
        mask: Mask | None,
        team: int = 0,
    ) -> None:
        """Threads that store what they computed from the old value of one element; those here may
        stand for a `team` that is larger.
        """
        t = self._touch(shadow, index, access, mask, self.domain.shape)
        places, counts = np.unique(t.cells[:: t.each], return_counts=True)
        if not counts.size or counts.max() < 2:
            return
        k = int(np.argmax(t.cells[:: t.each] == places[counts.argmax()]))
        element = self._element(t, tuple(int(i[k]) for i in t.at))
        many = team if team and counts.max() == len(t.lanes) else int(counts.max())
        self.findings.add(
            warning(
                "race",
                f"{many} threads update one element of {access.buffer.name} from its old value",
                access.loc,
                expected="each element updated by one thread",
                got=f"{element} read and written by {many} threads in {self.where()}",
                help="guard it with `if T.get_thread_binding() == 0`, or use an atomic operation",
            )
        )

    def reach(
        self,
        shadow: Shadow,
        index: tuple[Index, ...],
        access: Access,
        mask: Mask | None,
        count: int,
        write: bool,
    ) -> None:
        """A vector access of `count` neighbouring elements for each lane; the access itself follows
        or has been.
        """
        uniform = mask is None and not any(isinstance(i, np.ndarray) for i in index)
        for k in range(count):
            at = (*index[:-1], index[-1] + k)
            self._bounds(shadow, at, access, mask, "write" if write else "read")
            touch = self._touch(shadow, at, access, mask, () if uniform else self.domain.shape)
            if write:
                self._written(touch, None, lanes=not uniform)
            else:
                self._read(touch, lanes=not uniform)

    def _bounds(
        self, s: Shadow, index: tuple[Index, ...], access: Access, mask: Mask | None, verb: str
    ) -> None:
        for axis, (i, size) in enumerate(zip(index, s.array.shape, strict=False)):
            wrong = (np.asarray(i) < 0) | (np.asarray(i) >= size)
            if mask is not None:
                wrong = wrong & mask
            if not wrong.any():
                continue
            lane = tuple(int(k) for k in np.argwhere(wrong)[0])
            value = int(np.broadcast_to(i, wrong.shape)[lane])
            if access.on_chip:
                raise Fault(access, axis, value, size, lane)
            name = access.buffer.name
            outcome = f"the safe value {access.safe}" if verb == "read" else "no effect"
            self.findings.add(
                warning(
                    "bounds",
                    f"a {verb} outside of {name}",
                    access.loc,
                    expected=f"0 <= index < {size} along axis {axis}",
                    got=f"index {value} in {self._place(lane)}",
                    notes=(f"outside of global memory a {verb} has {outcome}",),
                    help="guard the access, or use T.copy, which cuts tiles at the edge",
                )
            )
            return

    def _touch(
        self,
        s: Shadow,
        index: tuple[Index, ...],
        access: Access,
        mask: Mask | None,
        shape: tuple[int, ...],
    ) -> Touch:
        single = s.array if len(index) == s.array.ndim else s.array[..., 0]
        at, live = elements.flat(single, index, mask, shape, access)
        count = int(np.prod(shape, dtype=np.int64))
        lanes = np.arange(count, dtype=np.int32)
        if live is not None:
            lanes = lanes[live.ravel()]
        return Touch(s, access, at, lanes, s.places(at))

    def _values(
        self,
        t: Touch,
        value: Any,
        index: tuple[Index, ...],
        mask: Mask | None,
        shape: tuple[int, ...],
    ) -> Array:
        _, live = elements.flat(t.shadow.array, index, mask, shape, t.access)
        spread = elements.spread(value, live, shape)
        return np.broadcast_to(np.asarray(spread, t.shadow.array.dtype), (len(t.lanes),))

    # -- what is looked for ------------------------------------------------------------------------

    def _read(self, t: Touch, *, atomic: bool = False, lanes: bool = True) -> None:
        if not len(t.cells) or self._waits_for(t, write=False, atomic=atomic):
            return
        self.look_written(t)
        if not t.access.on_chip:
            plain, updates, readers = t.shadow.cells.blocks()
            for owners, what in ((plain, "stores"), (updates, "updates")):
                if atomic and owners is updates:
                    continue
                wrong = self._others(owners, t.cells)
                if wrong.any() and not (atomic and owners is plain):
                    self._block_race(t, wrong, owners, f"one block {what} what another reads")
            if not atomic:
                self._own(readers, t.cells, t.access.loc)
        if lanes and self.domain.shape:
            writers, readers_of = t.shadow.cells.lanes()
            who, epoch = self._who(t)
            wrong = writers.others(t.cells, who, epoch)
            if wrong.any() and not atomic:
                self._lane_race(t, wrong, writers, "one iteration stores what another reads")
            readers_of.add(t.cells, who, epoch)

    def _written(
        self,
        t: Touch,
        values: Array | None,
        *,
        atomic: bool = False,
        lanes: bool = True,
        same: bool = False,
    ) -> None:
        """Elements are stored, by each of the `lanes` or by the block; the `same` value by all."""
        if not len(t.cells):
            return
        self._waits_for(t, write=True, atomic=atomic)
        t.shadow.cells.written[t.cells] = True
        if not t.access.on_chip:
            plain, updates, readers = t.shadow.cells.blocks()
            kinds = (
                (plain, "two blocks store one element"),
                (readers, "one block stores what another reads"),
            )
            for owners, what in (
                *kinds,
                (updates, "one block stores what another updates atomically"),
            ):
                wrong = self._others(owners, t.cells)
                if wrong.any() and not atomic:
                    equal = owners is plain and self._unchanged(t, values, wrong)
                    self._block_race(t, wrong, owners, what, same=equal)
            self._own(updates if atomic else plain, t.cells, t.access.loc)
        if lanes and self.domain.shape:
            writers, readers_of = t.shadow.cells.lanes()
            who, epoch = self._who(t)
            for ranges, what in (
                (writers, "two iterations store one element"),
                (readers_of, "one iteration stores what another reads"),
            ):
                wrong = ranges.others(t.cells, who, epoch)
                if same and ranges is writers and self._unchanged(t, values, wrong):
                    continue  # all of them store one value, as flags are set
                if wrong.any() and not atomic:
                    self._lane_race(t, wrong, ranges, what)
            writers.add(t.cells, who, epoch)
        if t.access.buffer.dtype.is_subbyte:
            self._bytes(t, lanes=lanes)

    def _bytes(self, t: Touch, *, lanes: bool) -> None:
        """A store of a part of a byte reads and writes the byte, which has one owner."""
        per_byte = 8 // t.access.buffer.dtype.bits
        if not t.at or t.each > 1 or per_byte < 2:
            return
        last = np.asarray(t.at[-1], np.int64)
        parts = t.cells - last + last // per_byte  # rows begin at whole bytes
        blocks, threads = t.shadow.cells.of_bytes()
        wrong = np.zeros(len(parts), np.bool_)
        if not t.access.on_chip:
            wrong = self._others(blocks, parts)
            self._own(blocks, parts, t.access.loc)
        between = "blocks"
        if lanes and self.domain.threads and not wrong.any():
            since = self.stretch if t.access.on_chip else self.epoch
            threads.add(parts, t.lanes, since)
            wrong, between = threads.others(parts, t.lanes, since), "threads"
        if wrong.any():
            element = f"{self.element_of(t, wrong)} and another of its byte, in {self.where()}"
            self.findings.add(race.of_bytes(t.access, between, element))

    def _updated(self, t: Touch) -> None:
        if not len(t.cells) or self._waits_for(t, write=True, atomic=True):
            return
        self.look_written(t)
        if not t.access.on_chip:
            plain, updates, readers = t.shadow.cells.blocks()
            for owners, what in ((plain, "stores"), (readers, "reads")):
                wrong = self._others(owners, t.cells)
                if wrong.any():
                    self._block_race(
                        t, wrong, owners, f"one block {what} what another updates atomically"
                    )
            self._own(updates, t.cells, t.access.loc)

    def taken(self, array: Array, source: Shadow) -> Shadow:
        """The shadow of a copy that some threads have made for themselves."""
        if self.order is None or self.order.known_array(array) is not None:
            return source if self.order is None else self.order.shadow(array)
        made = self.order.born(array, source.cells.unit, written=False)
        made.cells.written[...] = source.cells.written
        return made

    def apart(self, agent: Agent) -> None:
        """After an operation that one agent has carried out for its team."""
        if self.order is not None:
            self.order.apart(agent)

    def _waits_for(self, t: Touch, *, write: bool, atomic: bool) -> bool:
        """Whether work under way has the elements, where threads wait for each other."""
        order = self.order
        return order is not None and order.access(t, write=write, atomic=atomic)

    def look_written(self, t: Touch) -> None:
        """Elements that are read must have been written."""
        missing = ~t.shadow.cells.written[t.cells]
        if missing.any():
            self._uninitialised(t, missing)

    def now_written(self, t: Touch) -> None:
        """An operation of the block has written elements."""
        self._written(t, None, lanes=False)

    def _others(self, owners: Owners, cells: Places) -> Flags:
        """Which cells belong to other blocks, with no order between them and this one."""
        wrong = owners.others(cells, self.block)
        if self.order is not None and wrong.any():
            wrong &= ~self.order.settled(owners, cells)
        return wrong

    def _own(self, owners: Owners, cells: Places, loc: Loc | None) -> None:
        now = self.order.now if self.order is not None else 0
        owners.add(cells, self.block, self.site(loc), now)

    def _who(self, t: Touch) -> tuple[Lanes, int]:
        """Who touches the cells, and since when there was no order: iterations, or threads since
        the last barrier. On chip warps, since barriers of the compiler do not stand inside of a
        statement or of a branch that some threads take.
        """
        if self.domain.threads and t.access.on_chip:
            return np.repeat(t.lanes // WARP, t.each), self.stretch
        return np.repeat(t.lanes, t.each), self.epoch

    def _unchanged(self, t: Touch, values: Array | None, wrong: Flags) -> bool:
        """Whether a store leaves the elements as they are."""
        if values is None:
            return False
        hit = wrong.reshape(-1, t.each).any(axis=1)
        old = t.shadow.array[tuple(i[hit] for i in t.at)]
        return old.tobytes() == np.ascontiguousarray(values[hit]).tobytes()

    def _one_statement(self, t: Touch, values: Array) -> None:
        """Lanes that set one element to different values in one statement."""
        first = t.cells[:: t.each]
        order = np.argsort(first, kind="stable")
        sorted_cells = first[order]
        words = np.ascontiguousarray(values[order]).view(np.uint8).reshape(len(values), -1)
        clash = (sorted_cells[1:] == sorted_cells[:-1]) & (words[1:] != words[:-1]).any(axis=1)
        if not clash.any():
            return
        k = int(np.argmax(clash))
        one, two = int(order[k]), int(order[k + 1])
        element = self._element(t, tuple(int(i[one]) for i in t.at))
        who = "threads" if self.domain.threads else "iterations"
        self.findings.add(
            warning(
                "race",
                f"several {who} store different values to one element of {t.access.buffer.name}",
                t.access.loc,
                expected="each element stored once",
                got=f"{element} stored by {self._lane(t.lanes[one])} and {self._lane(t.lanes[two])}"
                f" in {self.where()}",
                help="let one of them store, or use an atomic operation",
            )
        )

    # -- tiles -------------------------------------------------------------------------------------

    def tile_read(self, tile: Tile, shadow: Shadow) -> None:
        """An operation of the block reads a region."""
        t = self.region(tile, shadow)
        self._read(t, lanes=False)

    def tile_write(self, tile: Tile, shadow: Shadow) -> None:
        """An operation of the block has written a region."""
        t = self.region(tile, shadow)
        self._written(t, None, lanes=False)
        self._turn()

    def tile_update(self, tile: Tile, shadow: Shadow) -> None:
        """An operation of the block updates a region atomically."""
        self._updated(self.region(tile, shadow))

    def tile_copy(self, src: tuple[Tile, Shadow], dst: tuple[Tile, Shadow]) -> None:
        """A copy has run: on chip it carries along what was never written; into global memory that
        is a finding.
        """
        (source, shadow), (target, into) = src, dst
        s, d = self.region(source, shadow), self.region(target, into)
        moved = len(s.cells) == len(d.cells) and not np.array_equal(s.cells, d.cells)
        if shadow.cells is into.cells and moved and np.intersect1d(s.cells, d.cells).size:
            self.findings.add(race.of_copy(target.access, self.where()))
        known = np.ones(source.extents, np.bool_)
        if not source.access.on_chip:
            if len(d.cells):
                self._read(s, lanes=False)
        elif not self._waits_for(s, write=False, atomic=False):
            known[...] = shadow.cells.written[s.cells].reshape(*source.extents, s.each).all(axis=-1)
        fitted = np.broadcast_to(
            matched(known, target.extents, target.access.loc, "T.copy"), target.extents
        )
        arrived = fitted[overlap(target)[1]].ravel()
        if not target.access.on_chip and not arrived.all():
            self._undefined_copy(source, d, ~arrived)
        self._written(d, None, lanes=False)
        if target.access.on_chip:
            into.cells.written[d.cells] = np.repeat(arrived, d.each)

    def _undefined_copy(self, source: Tile, d: Touch, missing: Flags) -> None:
        k = int(np.argmax(missing))
        name = source.access.buffer.name
        element = self._element(d, tuple(int(i[k]) for i in d.at))
        self.findings.add(
            warning(
                "uninitialised",
                f"{name} is read before it is written",
                source.access.loc,
                label=f"what goes to {element} holds no value yet",
                expected="each element written before it is read",
                got=f"{int(missing.sum())} of {len(missing)} elements not written,"
                f" in {self.where()}",
                help=f"write it first: T.clear({name}), T.fill or T.copy",
            )
        )

    def elements(self, shadow: Shadow, at: tuple[Any, ...], access: Access) -> Touch:
        """Single elements that an operation of the block touches."""
        cells = shadow.places(at)
        return Touch(shadow, access, at, np.zeros(len(at[0]) if at else 1, np.int32), cells)

    def region(self, tile: Tile, shadow: Shadow) -> Touch:
        """The elements of a region that an operation of the block touches."""
        at, cells = shadow.region(tile)
        count = len(at[0]) if at else 1
        return Touch(shadow, tile.access, at, np.zeros(count, np.int32), cells)

    # -- values ------------------------------------------------------------------------------------

    def divisor(self, a: Any, b: Any, lowest: int, mask: Mask | None, loc: Loc | None) -> Any:
        """`b`, after a look at whether it divides: not by 0, nor the lowest value by -1."""
        for what, by, wrong in (
            ("division by zero", 0, np.asarray(b == 0)),
            (
                "the lowest value divided by -1",
                -1,
                np.asarray(b == -1) & np.asarray(a == lowest) if lowest else np.False_,
            ),
        ):
            flagged = wrong if mask is None else wrong & mask
            if np.any(flagged):
                lane = tuple(int(k) for k in np.argwhere(flagged)[0])
                self.findings.add(
                    warning(
                        "value",
                        what,
                        loc,
                        got=f"divisor {by} in {self._place(lane)}",
                        notes=("nothing traps; the value of the result is not specified",),
                    )
                )
        return b

    def assume(self, holds: Any, mask: Mask | None, loc: Loc | None) -> None:
        """A fact that the author stated."""
        wrong = (
            ~np.asarray(holds, np.bool_) if mask is None else mask & ~np.asarray(holds, np.bool_)
        )
        if wrong.any():
            lane = tuple(int(k) for k in np.argwhere(wrong)[0])
            self.findings.add(
                warning(
                    "value", "an assumption does not hold", loc, got=f"false in {self._place(lane)}"
                )
            )

    # -- words -------------------------------------------------------------------------------------

    def site(self, loc: Loc | None) -> int:
        """The number of a place in the program."""
        if loc not in self._site_of:
            self._site_of[loc] = len(self._sites)
            self._sites.append(loc)
        return self._site_of[loc]

    def site_of(self, number: int) -> Loc | None:
        """The place in the program that has a number."""
        return self._sites[number]

    def _place(self, lane: tuple[int, ...]) -> str:
        return self.where(lane, self.domain.axes) or "the host"

    def _lane(self, lane: Any) -> str:
        if self.order is not None and self.domain.axes == (LANE,):
            return ", ".join(f"{n} = {k}" for n, k in self.order.place_of(int(lane)))
        at = np.unravel_index(int(lane), self.domain.shape) if self.domain.shape else ()
        return ", ".join(f"{n} = {int(k)}" for n, k in zip(self.domain.axes, at, strict=False))

    def element_of(self, t: Touch, flags: Flags) -> str:
        """The first flagged element in words."""
        return self._element(t, t.example(flags)[1])

    def _element(self, t: Touch, at: tuple[int, ...]) -> str:
        inner = at[len(at) - t.access.buffer.rank :]
        return f"{t.access.buffer.name}[{', '.join(map(str, inner))}]"

    def _uninitialised(self, t: Touch, missing: Flags) -> None:
        k, at, _ = t.example(missing)
        lane = (
            self._lane(t.lanes[k])
            if len(self.domain.shape) and len(t.lanes) > 1 and t.lanes.any()
            else ""
        )
        name = t.access.buffer.name
        count = int(missing.reshape(-1, t.each).any(axis=1).sum())
        self.findings.add(
            warning(
                "uninitialised",
                f"{name} is read before it is written",
                t.access.loc,
                label=f"{self._element(t, at)} holds no value yet",
                expected="each element written before it is read",
                got=f"{count} of {len(t.lanes)} elements not written,"
                f" in {self.where()}" + (f", {lane}" if lane else ""),
                help=f"write it first: T.clear({name}), T.fill or T.copy",
            )
        )

    def _block_race(
        self, t: Touch, wrong: Flags, owners: Owners, what: str, *, same: bool = False
    ) -> None:
        _, at, cell = t.example(wrong)
        name = t.access.buffer.name
        other = int(owners.who[cell])
        there = self._sites[int(owners.site[cell])]
        first = _block_text(self._blocks[other]) if other >= 0 else "several blocks"
        me = _block_text(self._blocks[self.block])
        message = f"a race between blocks on {name}: {what}"
        if same:
            message = f"several blocks store the same value to one element of {name}"
        self.findings.add(
            Diagnostic(
                "race",
                message,
                t.access.loc,
                expected="each element stored by one block, and touched by no other",
                got=f"{self._element(t, at)} touched by {first} and {me}",
                related=((there, "the other access"),)
                if there is not None and there != t.access.loc
                else (),
                help="index it by the block, or use atomic operations",
                severity=Severity.NOTE if same else Severity.WARNING,
            )
        )

    def _lane_race(self, t: Touch, wrong: Flags, ranges: LaneRange, what: str) -> None:
        k, at, cell = t.example(wrong)
        lane, element = int(t.lanes[k]), self._element(t, at)
        if self.domain.threads and t.access.on_chip:
            first = 0 if self.order is None else self.order.first // WARP
            mine = lane // WARP
            pair = f"warp {first + ranges.someone(cell, mine)} and by warp {first + mine}"
            found = race.of_warps(t.access, what, f"{element} touched by {pair} in {self.where()}")
        else:
            pair = f"{self._lane(ranges.someone(cell, lane))} and at {self._lane(lane)}"
            got = f"{element} touched at {pair} in {self.where()}"
            found = race.of_lanes(t.access, what, got, threads=self.domain.threads)
        self.findings.add(found)


def _block_text(block: tuple[int, ...]) -> str:
    return f"block ({', '.join(map(str, block))})"
