"""Where the compiler puts barriers: accesses of a team's memory that need one between them.

What enters: the statements that several agents run at their own pace, in order. What leaves:
whether one of them may meet what an earlier one touched. TileLang inserts such barriers for shared
memory; here agents meet at the same places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tilelang.emulator.lanes import nodes_of, own_nodes, statements
from tilelang.ir.expr import Buffer, Expr, Load, LoadVector, Region
from tilelang.ir.node import Effect, Node
from tilelang.ir.tile import Stmt, Store, StoreVector
from tilelang.passes.check.threads import Threads

_Element = Load | LoadVector | Store | StoreVector


@dataclass(frozen=True)
class Access:
    """One access: the buffer that owns the memory, and the element of each thread if known."""

    root: str
    write: bool
    places: tuple[int, ...] | None


class Ledger:
    """What was touched since the agents last met."""

    def __init__(self, found: tuple[Access, ...] = ()) -> None:
        self._found: dict[Access, None] = dict.fromkeys(found)

    def copy(self) -> Ledger:
        """The same accesses."""
        return Ledger(tuple(self._found))

    def add(self, *accesses: Access) -> None:
        """More accesses."""
        self._found.update(dict.fromkeys(accesses))

    def merge(self, other: Ledger) -> None:
        """What happened on another way here."""
        self._found.update(other._found)

    def clear(self) -> None:
        """The agents have met."""
        self._found.clear()

    def meets(self, accesses: list[Access], agent_of: list[int]) -> bool:
        """Whether one of them conflicts with what is known, between two agents."""
        return any(
            a.root == b.root and (a.write or b.write) and not _apart(a, b, agent_of)
            for a in self._found
            for b in accesses
        )


def _apart(a: Access, b: Access, agent_of: list[int]) -> bool:
    """Whether no two agents touch one element."""
    if a.places is None or b.places is None:
        return False
    owner: dict[int, int] = {}
    for place, agent in zip(a.places, agent_of, strict=True):
        if owner.setdefault(place, agent) != agent:
            return False
    return all(
        owner.get(place, agent) == agent for place, agent in zip(b.places, agent_of, strict=True)
    )


class Finder:
    """Finds the accesses of statements: to buffers that are `tracked`, by the `root` of each."""

    def __init__(
        self, threads: Threads, tracked: Callable[[Buffer], bool], root: Callable[[str], str]
    ) -> None:
        self._threads = threads
        self._tracked = tracked
        self._root = root

    def own(self, stmt: Stmt) -> list[Access]:
        """The accesses of a statement without those inside it."""
        return list(self._of(stmt, own_nodes(stmt)))

    def all(self, stmt: Stmt) -> list[Access]:
        """The accesses of a statement and of all inside it."""
        return [a for s in statements((stmt,)) for a in self.own(s)]

    def reads(self, e: Expr) -> list[Access]:
        """The accesses of an expression."""
        return list(self._loads(nodes_of(e)))

    def _loads(self, nodes: Iterator[Node]) -> Iterator[Access]:
        for node in nodes:
            if isinstance(node, (Load, LoadVector)) and self._tracked(node.buffer):
                yield self._element(node, write=False)

    def _of(self, stmt: Stmt, nodes: Iterator[Node]) -> Iterator[Access]:
        yield from self._loads(nodes)
        if isinstance(stmt, (Store, StoreVector)):
            if self._tracked(stmt.buffer):
                yield self._element(stmt, write=True)
            return
        for effect, node in stmt.effects():
            buffer = node.buffer if isinstance(node, Region) else node
            if isinstance(buffer, Buffer) and self._tracked(buffer):
                yield Access(self._root(buffer.name), bool(effect & Effect.WRITE), None)

    def _element(self, node: _Element, *, write: bool) -> Access:
        root = self._root(node.buffer.name)
        if root != node.buffer.name or isinstance(node, (LoadVector, StoreVector)):
            return Access(root, write, None)
        flat = np.zeros(self._threads.count, np.int64)
        for index in node.indices:
            values = self._threads.values(index)
            if values is None:
                return Access(root, write, None)
            flat = flat * (1 << 16) + values
        return Access(root, write, tuple(flat.tolist()))
