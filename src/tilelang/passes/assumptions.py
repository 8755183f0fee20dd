"""Assumptions that a launch can look at.

What enters: a function. What leaves: the same with an assertion before each launch for every
`T.assume` that sizes and scalar parameters decide and every thread gets to, so that a false one
stops the call instead of giving wrong results.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.ir.expr import Load, LoadVector, Var
from tilelang.ir.node import Node
from tilelang.ir.text import print_expr
from tilelang.ir.tile import Assert, Assume, Block, Function, Launch, Stmt


def assert_at_launch(fn: Function) -> Function:
    """The function that asserts before a launch what it assumes of the call."""
    known = {*fn.dynamic, *(p.var for p in fn.params if p.var is not None)}
    if not any(_decided(launch, known) for launch in _launches(fn.body)):
        return fn

    def before(node: Node) -> tuple[Node, ...] | None:
        if not isinstance(node, Launch):
            return None
        made = [
            Assert(s.cond, message=f"Assume: {print_expr(s.cond)}", loc=s.loc)
            for s in _decided(node, known)
        ]
        return (*made, node)

    return fn.rewrite(before)


def _launches(body: Block) -> Iterator[Launch]:
    for stmt in body:
        if isinstance(stmt, Launch):
            yield stmt
        else:
            yield from _launches(tuple(s for s in stmt.children() if isinstance(s, Stmt)))


def _decided(launch: Launch, known: set[Var]) -> list[Assume]:
    """What is assumed on every path, of `known` alone."""
    return [s for s in launch.body if isinstance(s, Assume) and _is_of(s, known)]


def _is_of(stmt: Assume, known: set[Var]) -> bool:
    parts = list(stmt.cond.walk())
    return not any(isinstance(n, (Load, LoadVector)) for n in parts) and known.issuperset(
        n for n in parts if isinstance(n, Var)
    )
