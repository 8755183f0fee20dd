"""Work that is under way while the program goes on: asynchronous copies and products.

What enters: what is to be done, and the threads that issued it. What leaves: memory that changes as
late as the program's waits allow. Groups of `cp.async`, of bulk stores and of wgmma are counted for
each thread by itself, as the PTX ISA does.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.errors import Loc
from tilelang.ir.sync import GROUP

Threads = npt.NDArray[np.bool_]
"""Some threads of a block: true for those meant."""


class Op:
    """One asynchronous operation. `run` carries it out; `fetch`, if given, only reads."""

    def __init__(
        self,
        run: Callable[[], None],
        loc: Loc | None = None,
        fetch: Callable[[], None] | None = None,
    ) -> None:
        self.run = run
        self.fetch = fetch
        self.loc = loc
        self.done = False

    def complete(self) -> None:
        """Carry it out, once."""
        if not self.done:
            self.done = True
            self.run()


class LaneOp(Op):
    """An operation of which every thread has a part of its own; `part` carries out those of some
    threads (of the whole block).
    """

    def __init__(
        self, part: Callable[[Threads], None], threads: Threads, loc: Loc | None = None
    ) -> None:
        super().__init__(lambda: self.complete_part(threads), loc)
        self._part = part
        self._left = threads.copy()

    def complete_part(self, threads: Threads) -> None:
        """Carry out the parts of these threads, each once."""
        now = self._left & threads
        if now.any():
            self._left &= ~now
            self.done = not self._left.any()
            self._part(now)

    def of(self, threads: Threads) -> Op:
        """The parts of some threads as an operation."""
        return Op(lambda: self.complete_part(threads), self.loc)


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
                issued.op.fetch()
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
