"""Why something comes after something else: the order of one run, as a graph.

What enters: things in queues and steps of scalar units, with what each comes directly after. What
leaves: for two instructions that touch the same bytes, the chain of flags, barriers and queues that
orders them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.errors import Loc

Places = npt.NDArray[np.int64]

NOWHERE = -1
"""The node of what is not followed."""


@dataclass(frozen=True)
class Access:
    """Bytes of a memory that a node touches."""

    memory: int
    places: Places
    writes: bool

    def meets(self, other: Access) -> bool:
        """Whether one of the two writes what the other touches."""
        if self.memory != other.memory or not (self.writes or other.writes):
            return False
        return bool(np.intersect1d(self.places, other.places).size)


@dataclass
class Node:
    """Something in a queue, or a step of a scalar unit: `queue` is where, `what` is done."""

    queue: str
    what: str
    loc: Loc | None
    before: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    accesses: list[Access] = field(default_factory=list[Access])

    def __str__(self) -> str:
        return f"{self.what} on {self.queue}" + (f" ({self.loc})" if self.loc is not None else "")


class Trail:
    """The order of one run."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def add(self, queue: str, what: str, loc: Loc | None, *before: tuple[int, str]) -> int:
        """A node, after others: their numbers, and why."""
        self.nodes.append(Node(queue, what, loc, [b for b in before if b[0] != NOWHERE]))
        return len(self.nodes) - 1

    def after(self, node: int, before: int, why: str) -> None:
        """One more node that a node comes after."""
        if NOWHERE not in (node, before):
            self.nodes[node].before.append((before, why))

    def touch(self, node: int, memory: Any, at: Places | slice, *, writes: bool) -> None:
        """Bytes that a node reads or writes."""
        self.nodes[node].accesses.append(Access(id(memory), _places(at), writes))

    def path(self, first: int, last: int) -> list[str] | None:
        """Why `last` comes after `first`, step by step from `first` on; None if nothing says so."""
        came: dict[int, tuple[int, str]] = {last: (NOWHERE, "")}
        queue = deque([last])
        while queue:
            at = queue.popleft()
            if at == first:
                break
            for before, why in self.nodes[at].before:
                if before not in came:
                    came[before] = (at, why)
                    queue.append(before)
        if first not in came:
            return None
        steps = [str(self.nodes[first])]
        at = first
        while at != last:
            at, why = came[at]
            steps.append(f"{why}: {self.nodes[at]}")
        return steps

    def conflicts(self, first: str, second: str) -> Iterator[tuple[int, int]]:
        """Pairs of nodes of two queues, in the order of the run, that touch the same bytes; of
        nodes for the same places in the program, the first pair.
        """
        seen: set[tuple[str, str]] = set()
        for k, y in enumerate(self.nodes):
            if y.queue != second or not y.accesses:
                continue
            for n, x in enumerate(self.nodes):
                key = (str(x), str(y))
                if x.queue != first or n == k or key in seen:
                    continue
                if any(a.meets(b) for a in x.accesses for b in y.accesses):
                    seen.add(key)
                    yield (n, k) if self.path(n, k) is not None else (k, n)


def _places(at: Places | slice) -> Places:
    if isinstance(at, slice):
        return np.arange(int(at.start), int(at.stop), dtype=np.int64)
    return at
