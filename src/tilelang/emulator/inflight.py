"""Work that is under way while the program goes on: asynchronous copies and products.

What enters: what is to be done, and the threads that issued it. What leaves: memory that changes as
late as the program's waits allow. Groups of `cp.async`, of bulk stores and of wgmma are counted for
each thread by itself, as the PTX ISA does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tilelang.emulator.storage import Access, Array, Tile
from tilelang.errors import Loc
from tilelang.ir.sync import GROUP

Threads = npt.NDArray[np.bool_]
"""Some threads of a block: true for those meant."""


class Elements(NamedTuple):
    """Single elements of an array, by one index array for each axis."""

    array: Array
    at: tuple[Any, ...]
    access: Access


Place = Tile | Elements
"""Memory that an operation reads or writes."""


@dataclass
class Known:
    """What is known to have happened: for each agent, and for each block, up to when."""

    agents: dict[int, int] = field(default_factory=dict[int, int])
    blocks: dict[int, int] = field(default_factory=dict[int, int])

    def merge(self, other: Known) -> None:
        """What the other knows is known here too."""
        for mine, theirs in ((self.agents, other.agents), (self.blocks, other.blocks)):
            for key, when in theirs.items():
                if mine.get(key, -1) < when:
                    mine[key] = when


@dataclass(eq=False)
class Point:
    """A barrier as a point in time: what those know who have arrived (`coming`), and what those
    know who have passed.
    """

    coming: Known = field(default_factory=Known)
    known: Known = field(default_factory=Known)
    column: int = -1

    def open(self) -> None:
        """The barrier is complete: what came with arrivals is known to those who pass."""
        self.known.merge(self.coming)


class Watch(Protocol):
    """The dynamic check, where work under way is concerned."""

    def completed(
        self, op: Op, reads: tuple[Place, ...], writes: tuple[Place, ...], by: Point | None
    ) -> None:
        """(A part of) an operation has been carried out, for the sake of a barrier or a wait."""
        ...

    def covered(self, op: Op, by: Point) -> None:
        """Who passes a barrier knows of an operation that was complete before."""
        ...

    def fetched(self, op: Op) -> None:
        """An operation has read its source."""
        ...


class Op:
    """One asynchronous operation. `run` carries it out; `fetch`, if given, only reads.

    `what` is the author's name of it; `reads` and `writes` say which memory it needs until it is
    complete. With `adds` the old contents of what it writes count. Operations of one thread with
    the same `queue` are done in order.
    """

    def __init__(
        self, run: Callable[[], None], loc: Loc | None = None, what: str = "", **facts: Any
    ) -> None:
        self.run = run
        self.loc = loc
        self.what = what
        self.reads: tuple[Place, ...] = facts.get("reads", ())
        self.writes: tuple[Place, ...] = facts.get("writes", ())
        self.fetch: Callable[[], None] | None = facts.get("fetch")
        self.adds: bool = facts.get("adds", False)
        self.queue: str = facts.get("queue", "") or (what if self.adds else "")
        self.done = self.fetched = False
        self.number = 0
        self.stamps: list[tuple[int, int]] = []
        self.watch: Watch | None = None

    def complete(self, by: Point | None = None) -> None:
        """Carry it out, once."""
        if not self.done:
            self.done = True
            self.run()
            if self.watch is not None:
                self.watch.completed(self, self.reads, self.writes, by)
        elif self.watch is not None and by is not None:
            self.watch.covered(self, by)

    def read(self) -> None:
        """Read the source, once."""
        if self.fetch is not None and not self.fetched:
            self.fetched = True
            self.fetch()
            if self.watch is not None:
                self.watch.fetched(self)


class LaneOp(Op):
    """An operation of which every thread has a part of its own.

    `part` carries out those of some threads (of the whole block), `places` tells what they read and
    write.
    """

    def __init__(
        self,
        part: Callable[[Threads], None],
        places: Callable[[Threads], tuple[Place, Place]] | None,
        threads: Threads,
        loc: Loc | None = None,
        what: str = "",
    ) -> None:
        super().__init__(lambda: None, loc, what)
        self._part = part
        self._places = places
        self._left = threads.copy()
        if places is not None:
            source, target = places(threads)
            self.reads, self.writes = (source,), (target,)

    def complete(self, by: Point | None = None) -> None:
        """Carry out what is left."""
        self.complete_part(self._left, by)

    def complete_part(self, threads: Threads, by: Point | None = None) -> None:
        """Carry out the parts of these threads, each once."""
        now = self._left & threads
        if now.any():
            self._left &= ~now
            self.done = not self._left.any()
            self._part(now)
            if self.watch is not None and self._places is not None:
                source, target = self._places(now)
                self.watch.completed(self, (source,), (target,), by)
        if self.watch is not None and by is not None:
            self.watch.covered(self, by)

    def of(self, threads: Threads) -> Op:
        """The parts of some threads as an operation."""
        return _Part(self, threads)


class _Part(Op):
    """The parts of some threads of an operation."""

    def __init__(self, whole: LaneOp, threads: Threads) -> None:
        super().__init__(lambda: None, whole.loc, whole.what)
        self._whole = whole
        self._threads = threads

    def complete(self, by: Point | None = None) -> None:
        """Carry them out."""
        self._whole.complete_part(self._threads, by)


class Share(Enum):
    """Whose wait completes an operation that several threads issued together."""

    ALL = "it is complete when all of them have waited"
    EACH = "the part of a thread is complete when that thread has waited"
    GROUPS = "the part of a warp group is complete when one of its threads has waited"


class Issued:
    """An operation in groups: which threads still have to wait for it, and their group's number."""

    def __init__(
        self, op: Op, threads: Threads, numbers: npt.NDArray[np.int64], share: Share
    ) -> None:
        self.op = op
        self.left = threads.copy()
        self.numbers = numbers.copy()
        self._share = share

    def due(self, threads: Threads, below: npt.NDArray[np.int64]) -> Threads:
        """Of these threads, those for which its group's number is below a bound of the thread."""
        return self.left & threads & (self.numbers < below)

    def waited(self, threads: Threads) -> bool:
        """Some threads have waited for it: whether all of it is due to be complete now."""
        if isinstance(self.op, LaneOp):
            self.op.complete_part(threads)
        if self._share is Share.GROUPS:
            whole = np.add.reduceat(threads, np.arange(0, len(threads), GROUP)) > 0
            threads = np.repeat(whole, GROUP)[: len(threads)]
        self.left &= ~threads
        return not self.left.any()


class Groups:
    """The asynchronous work of one kind of a block, in groups that each thread counts by itself."""

    def __init__(self, threads: int) -> None:
        self._closed = np.zeros(threads, np.int64)
        self._issued: list[Issued] = []

    def issue(self, op: Op, threads: Threads, share: Share = Share.ALL) -> None:
        """Work of the open group of these threads."""
        self._issued.append(Issued(op, threads, self._closed, share))

    def commit(self, threads: Threads) -> None:
        """Close the open group of these threads."""
        self._closed += threads

    def wait(self, threads: Threads, count: Any, *, read: bool = False) -> None:
        """Complete all but the newest `count` groups of these threads; with `read`, the reading of
        their sources.
        """
        below = self._closed - count
        for issued in list(self._issued):
            due = issued.due(threads, below)
            if not due.any():
                continue
            if read and issued.op.fetch is not None:
                issued.op.read()
            elif issued.waited(due):
                self._issued.remove(issued)
                issued.op.complete()

    def under_way(self, threads: Threads) -> list[Op]:
        """All that these threads have issued and not waited for."""
        found = [each.op for each in self._issued if (each.left & threads).any()]
        return [op.of(threads) if isinstance(op, LaneOp) else op for op in found]

    def finish(self) -> list[Op]:
        """Carry out what is left; gives what nobody had waited for."""
        left = [each.op for each in self._issued if not each.op.done]
        self._issued.clear()
        for op in left:
            op.complete()
        return left
