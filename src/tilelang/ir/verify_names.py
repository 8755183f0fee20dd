"""What both stages demand of names.

What enters: a block of statements, and the names known before it. What leaves: the uses of names
that break a rule: a name is defined once, before its uses, and is used only inside its block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tilelang.ir.node import Node
from tilelang.ir.text import Named, is_name
from tilelang.ir.tile import Block, Stmt
from tilelang.ir.walk import bodies, bound, operands

Finding = tuple[Stmt | None, str]
"""A statement (None for the whole), and what is wrong with it."""

Opens = Callable[[Stmt], Iterable[Named] | None]
"""The names that alone are known at the start of a statement's body; None for all around it."""


class Scope:
    """The names known here, and all names defined so far."""

    def __init__(self, opens: Opens = lambda stmt: None) -> None:
        self.known: dict[str, Named] = {}
        self.ever: set[str] = set()
        self.opens = opens

    def define(self, stmt: Stmt | None, *things: Named) -> Iterator[Finding]:
        """Each is new, and a name."""
        for thing in things:
            if thing.name in self.ever:
                yield stmt, f"{thing.name} is defined twice"
            if not is_name(thing.name):
                yield stmt, f"{thing.name!r} is not a name"
            self.ever.add(thing.name)
            self.known[thing.name] = thing

    def uses(self, stmt: Stmt | None, nodes: Iterable[Node]) -> Iterator[Finding]:
        """Each name in them is known, and means what was defined."""
        for node in nodes:
            if isinstance(node, Named):  # its shape belongs to its definition
                yield from self._use(stmt, node)
            else:
                yield from self.uses(stmt, node.children())

    def _use(self, stmt: Stmt | None, node: Named) -> Iterator[Finding]:
        found = self.known.get(node.name)
        if found is None:
            gone = "outside its block" if node.name in self.ever else "before it is defined"
            yield stmt, f"{node.name} is used {gone}"
        elif found != node:
            yield stmt, f"{node.name} is used as {node!r} but defined as {found!r}"

    def block(self, body: Block) -> Iterator[Finding]:
        """The statements of a block; what it defines is gone after it."""
        outer = dict(self.known)
        for stmt in body:
            yield from self.uses(stmt, operands(stmt))
            defined = list(bound(stmt))
            for thing in defined:
                yield from self.uses(stmt, thing.children())
            around = dict(self.known)
            alone = self.opens(stmt)
            if alone is not None:
                self.known = {thing.name: thing for thing in alone}
            yield from self.define(stmt, *defined)
            blocks = list(bodies(stmt))
            for inner in blocks:
                yield from self.block(inner)
            if blocks:  # what a statement with a body defines is known in its body only
                self.known = around
        self.known = outer
