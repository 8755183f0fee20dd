"""The statements of both stages, one by one.

What enters: a block, or a statement. What leaves: its statements with those around them, its
blocks, what it uses itself, and what it defines.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.ir.node import Kind, Node, flat
from tilelang.ir.text import Named
from tilelang.ir.tile import Block, Stmt

Placed = tuple[Stmt, tuple[Stmt, ...]]
"""A statement, and those around it, outermost first."""


def statements(
    body: Block, around: tuple[Stmt, ...] = ()
) -> Iterator[tuple[Stmt, tuple[Stmt, ...]]]:
    """Every statement with the statements around it, outermost first."""
    for stmt in body:
        yield stmt, around
        for block in bodies(stmt):
            yield from statements(block, (*around, stmt))


def bodies(stmt: Stmt) -> Iterator[Block]:
    """The blocks of a statement."""
    for f in stmt.fields():
        if f.metadata["kind"] is Kind.BODY:
            yield getattr(stmt, f.name)


def operands(stmt: Stmt) -> Iterator[Node]:
    """What a statement uses itself, without its blocks."""
    for f in stmt.fields():
        if f.metadata["kind"] is Kind.OPERAND:
            yield from flat(getattr(stmt, f.name))


def bound(stmt: Stmt) -> Iterator[Named]:
    """What a statement defines."""
    for f in stmt.fields():
        if f.metadata["kind"] is Kind.BINDS:
            yield from (n for n in flat(getattr(stmt, f.name)) if isinstance(n, Named))
