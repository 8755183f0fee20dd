"""Fragments that registers cannot serve, as shared buffers.

What enters: a function of the tile stage. What leaves: one in which a fragment is used only as a
whole by tile operations, one element for each iteration in parallel nests, or, if it is small, at
constant indices. Any other use (a view, an address, vectors, single elements at computed indices)
puts it into shared memory, which is right for every use, and the report says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tilelang.ir.expr import AddressOf, Buffer, Expr, Load, LoadVector, int_value
from tilelang.ir.node import Node
from tilelang.ir.special import ReducerUpdate
from tilelang.ir.tile import (
    Alloc,
    Atomic,
    Block,
    Function,
    Launch,
    Parallel,
    Print,
    Stmt,
    Store,
    StoreVector,
    View,
)
from tilelang.isa.target import Target
from tilelang.passes.build import Names, map_statements
from tilelang.passes.issue import Arm
from tilelang.passes.lower_copies import is_single, view_roots
from tilelang.passes.lower_parallel import own_nodes, statements
from tilelang.passes.simt.launch import Note, Threads, noted, static_shape
from tilelang.passes.simt.plain_tiles import made_in_order

SMALL = 32
"""A fragment that code outside of nests reads is held by every thread up to this many elements."""


def demote_fragments(fn: Function, target: Target) -> Function:
    """Fragments that registers cannot serve lie in shared memory."""
    del target
    names, roots = Names(fn), view_roots(fn)
    notes: list[Note] = []

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch):
            return None
        threads = Threads(fn, stmt, names, roots)
        body = _Demotion(threads).block(stmt.body)
        notes.extend(threads.notes)
        return (stmt.with_(body=body),)

    return noted(fn.with_(body=map_statements(fn.body, one)), notes)


class _Demotion:
    """One launch."""

    def __init__(self, threads: Threads) -> None:
        self.t = threads

    def block(self, body: Block) -> Block:
        """The body, with fragments renamed as shared buffers where needed."""
        fragments = {
            s.buffer.name: s
            for s in statements(body)
            if isinstance(s, Alloc) and self.t.is_fragment(s.buffer)
        }
        gone: set[str] = set()
        for name, why in (*self.by_shape(fragments), *self.by_use(body), *between_arms(body)):
            root = self.t.roots.get(name, name)
            if root in fragments and root not in gone:
                gone.add(root)
                loc = fragments[root].loc
                self.t.note("demoted", f"{root} lies in shared memory: {why}", loc)
        if not gone:
            return body
        gone |= {name for name, root in self.t.roots.items() if root in gone}
        return _in_shared(body, gone)

    def by_shape(self, fragments: dict[str, Alloc]) -> Iterator[tuple[str, str]]:
        """Fragments whose size or type registers cannot hold."""
        for name, stmt in fragments.items():
            if static_shape(stmt.buffer) is None:
                yield name, "its size is known at run time only"
            elif stmt.buffer.dtype.is_subbyte or stmt.buffer.dtype.is_vector:
                yield name, f"its elements are {stmt.buffer.dtype}"

    def by_use(self, body: Block) -> Iterator[tuple[str, str]]:
        """Fragments that are used as no fragment can be, with the reason."""
        for stmt in statements(body):
            if isinstance(stmt, View):
                yield stmt.source.name, "another view of it exists"
            elif isinstance(stmt, Print) and isinstance(stmt.value, Buffer):
                yield stmt.value.name, "it is printed"
            elif isinstance(stmt, StoreVector):
                yield stmt.buffer.name, "vectors are written to it"
            elif isinstance(stmt, Atomic) and is_single(stmt.dst):
                yield stmt.dst.buffer.name, "it is updated atomically"
            for node in own_nodes(stmt):
                if isinstance(node, AddressOf):
                    yield node.buffer.name, "its address is taken"
                elif isinstance(node, LoadVector):
                    yield node.buffer.name, "vectors are read from it"
        for buffer, indices in single_uses(body):
            small = math.prod(static_shape(buffer) or (SMALL + 1,)) <= SMALL
            if not small or any(int_value(i) is None for i in indices):
                yield buffer.name, "code outside of T.Parallel reads or writes single elements"


def between_arms(body: Block) -> Iterator[tuple[str, str]]:
    """Buffers that parts of the block use which do not share their threads."""
    seen: dict[str, set[tuple[int, int]]] = {}

    def look(block: Block, arm: tuple[int, int]) -> None:
        for stmt in block:
            here = (stmt.first, stmt.count) if isinstance(stmt, Arm) else arm
            if not isinstance(stmt, Alloc):
                for n in own_nodes(stmt):
                    if isinstance(n, Buffer):
                        seen.setdefault(n.name, set()).add(here)
            for child in stmt.children():
                if isinstance(child, Stmt):
                    look((child,), here)

    look(body, (0, 0))
    for name, arms in seen.items():
        if len(arms) > 1:
            yield name, "parts of the block that do not share their threads use it"


def single_uses(body: Block) -> Iterator[tuple[Buffer, Sequence[Expr]]]:
    """The accesses to single elements that are not in a nest which is spread over threads."""
    for stmt in body:
        if isinstance(stmt, Parallel) and not made_in_order(stmt):
            continue
        yield from ((n.buffer, n.indices) for n in own_nodes(stmt) if isinstance(n, Load))
        if isinstance(stmt, Store):
            yield stmt.buffer, stmt.indices
        elif isinstance(stmt, ReducerUpdate):
            yield stmt.reducer, stmt.indices
        for child in stmt.children():
            if isinstance(child, Stmt):
                yield from single_uses((child,))


def _in_shared(body: Block, gone: set[str]) -> Block:
    """Statements in which the buffers of these names are shared."""

    def named(n: Node) -> Node | None:
        if isinstance(n, Buffer) and n.name in gone:
            return n.with_(scope="shared.dyn")
        return None

    def one(stmt: Stmt) -> Block | None:
        if isinstance(stmt, (Alloc, View)) and stmt.buffer.name in gone:
            return (stmt.with_(buffer=stmt.buffer.with_(scope="shared.dyn")),)
        return None

    return map_statements(tuple(s.rewrite(named) for s in body), one)
