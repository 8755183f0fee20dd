"""Parallel nests as sequential loops, the innermost in lockstep where its body allows it.

What enters: a function of the tile stage. What leaves: one without `Parallel`. A variable or local
array from outside that iterations set to values of their own becomes one per iteration (it is
undefined afterwards); one that iterations update from its old value is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.errors import error
from tilelang.ir.expr import (
    INT32,
    Buffer,
    Const,
    Expr,
    Load,
    LoadVector,
    Region,
    Var,
    const,
    int_value,
)
from tilelang.ir.node import Effect, Node
from tilelang.ir.special import ReducerUpdate
from tilelang.ir.tile import (
    Alloc,
    Assert,
    Assume,
    Block,
    For,
    Function,
    If,
    Let,
    LoopKind,
    Parallel,
    Print,
    Stmt,
    Store,
    StoreVector,
)
from tilelang.isa.target import Target
from tilelang.passes.build import Names, as_type, blocks, map_launches, map_statements, statements
from tilelang.passes.lower_copies import view_roots
from tilelang.passes.lower_reducers import expand_update
from tilelang.scopes import Dialect, Memory, memory_of

IN_ORDER = ("in_order", True)
"""The hint of a nest whose iterations run one after the other."""

_OWN = (Memory.LOCAL, Memory.VAR)
_LOCKSTEP = (Let, Store, StoreVector, If, Alloc, Assert, Assume, For)


def lower_parallel(fn: Function, target: Target) -> Function:
    """Every parallel nest becomes loops."""
    del target
    names, roots, dialect = Names(fn), view_roots(fn), Dialect(fn.dialect)

    def contribute(stmt: Stmt) -> Block | None:
        return expand_update(stmt, names) if isinstance(stmt, ReducerUpdate) else None

    def told(stmt: Stmt, lane: tuple[Expr, ...]) -> Block | None:
        """A print that says which iteration prints."""
        if not isinstance(stmt, Print) or stmt.thread:
            return None
        return (stmt.with_(thread=lane),)

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Parallel):
            return None
        body, apart = stmt.body, True
        if any(int_value(extent) != 1 for extent in stmt.extents):
            body, apart = own_variables(stmt, names, roots, dialect)
        apart = apart and IN_ORDER not in stmt.hints
        wide = zip(stmt.vars, stmt.extents, strict=True)
        lane = tuple(as_type(v, INT32) for v, n in wide if int_value(n) != 1)[::-1]
        body = map_statements(body, lambda s: told(s, lane))
        for k, (var, extent) in reversed(
            list(enumerate(zip(stmt.vars, stmt.extents, strict=True)))
        ):
            inner = k == len(stmt.vars) - 1 and apart and in_lockstep(body)
            kind = LoopKind.VECTORIZED if inner else LoopKind.SERIAL
            if k == len(stmt.vars) - 1:
                body = map_statements(body, contribute)
            body = (For(var, Const(0, var.type), extent, body, kind=kind, loc=stmt.loc),)
        return body

    return map_launches(fn, lambda body: map_statements(body, one))


def in_lockstep(body: Block) -> bool:
    """Whether neighbouring iterations of a loop with this body can run in lockstep, given that
    none depends on another.
    """
    return all(
        isinstance(s, _LOCKSTEP)
        and not (isinstance(s, For) and s.kind is LoopKind.VECTORIZED)
        and all(in_lockstep(inner) for inner in blocks(s))
        for s in body
    )


# Variables of iterations -------------------------------------------------------------------------


def own_variables(
    loop: Parallel, names: Names, roots: dict[str, str], dialect: Dialect
) -> tuple[Block, bool]:
    """The body, with instances of its own of the variables from outside that it sets; False if an
    iteration still shares one with the others.
    """
    inside = {s.buffer.name for s in statements(loop.body) if isinstance(s, Alloc)}
    found: dict[str, Buffer] = {}
    for stmt in statements(loop.body):
        for buffer in written(stmt):
            own = memory_of(dialect, buffer.scope) in _OWN
            if (
                own
                and roots.get(buffer.name, buffer.name) not in inside
                and not _covers(loop, stmt)
            ):
                found[buffer.name] = buffer
    body, apart = loop.body, True
    for buffer in found.values():
        if buffer.name in roots or buffer.name in roots.values():
            apart = False  # seen under two names: it stays shared, and iterations run one by one
            continue
        body = _own_instance(loop, body, buffer, names, dialect)
    return body, apart


def _covers(loop: Parallel, stmt: Stmt) -> bool:
    """Whether each iteration writes at a place of its own."""
    if not isinstance(stmt, Store):
        return False
    used = {n for i in stmt.indices for n in i.walk() if isinstance(n, Var)}
    return set(loop.vars) <= used


def _own_instance(
    loop: Parallel, body: Block, buffer: Buffer, names: Names, dialect: Dialect
) -> Block:
    scalar = memory_of(dialect, buffer.scope) is Memory.VAR
    stale = exposed(body, buffer.name, scalar=scalar)
    if stale is not None and scalar:
        raise error(
            "race",
            f"iterations of T.Parallel read {buffer.name} before they set it, and set it",
            stale.loc or loop.loc,
            expected="each iteration sets the variable before it reads it",
            got=f"{buffer.name} carried from one iteration to the next; iterations have no order",
            help="use T.reduce_sum, a reducer or T.atomic_add, or a sequential loop (T.serial)",
        )
    own = buffer.with_(name=names.name(buffer.name), scope="local")

    renamed = tuple(replaced_buffer(s, buffer.name, own) for s in body)
    start: Block = (Alloc(own, loc=loop.loc),)
    if stale is not None:
        start += _copied(buffer, own, loop)
    return (*start, *renamed)


def replaced_buffer(stmt: Stmt, name: str, other: Buffer) -> Stmt:
    """A statement that uses another buffer instead of the one of this name."""
    return stmt.rewrite(lambda n: other if isinstance(n, Buffer) and n.name == name else None)


def _copied(buffer: Buffer, own: Buffer, loop: Parallel) -> Block:
    """The old contents, element by element."""
    if buffer.rank != 1:
        raise error(
            "race",
            f"iterations of T.Parallel read {buffer.name} before they set it, and set it",
            loop.loc,
            expected="each iteration sets the array before it reads it",
            help="allocate the array inside the loop, or use a sequential loop (T.serial)",
        )
    extent = buffer.shape[0]
    count = extent.value if isinstance(extent, Const) else 0
    return tuple(
        Store(own, (const(k),), Load(buffer, (const(k),)), loc=loop.loc) for k in range(int(count))
    )


def written(stmt: Stmt) -> Iterator[Buffer]:
    """The buffers that a statement itself writes."""
    for effect, node in stmt.effects():
        if effect & Effect.WRITE:
            if isinstance(node, Region):
                yield node.buffer
            elif isinstance(node, Buffer):
                yield node


def exposed(body: Block, name: str, *, scalar: bool) -> Node | None:
    """A use that may see what the buffer `name` held before an iteration with this body.

    Of a `scalar` every path to the use must store it first; of an array any earlier store counts.
    """
    return _Exposed(name, scalar).block(body, False)[0]


class _Exposed:
    def __init__(self, name: str, scalar: bool) -> None:
        self.name = name
        self.scalar = scalar

    def block(self, body: Block, known: bool) -> tuple[Node | None, bool]:
        for stmt in body:
            use, known = self.one(stmt, known)
            if use is not None:
                return use, known
        return None, known

    def one(self, stmt: Stmt, known: bool) -> tuple[Node | None, bool]:
        use = None if known else next((n for n in own_nodes(stmt) if self.reads(stmt, n)), None)
        if use is not None or self.sets(stmt):
            return use, True
        after: list[bool] = []
        for inner in blocks(stmt):
            use, there = self.block(inner, known)
            if use is not None:
                return use, known
            after.append(there)
        if after and isinstance(stmt, If):
            known = all(after) if self.scalar else any(after)
        elif after and not self.scalar:
            known = known or any(after)
        return None, known

    def sets(self, stmt: Stmt) -> bool:
        """Whether the statement itself gives the buffer new contents."""
        if isinstance(stmt, Alloc) and stmt.buffer.name == self.name:
            return True
        return any(b.name == self.name for b in written(stmt))

    def reads(self, stmt: Stmt, node: Node) -> bool:
        if isinstance(node, (Load, LoadVector)):
            return node.buffer.name == self.name
        if not isinstance(node, Region) or node.buffer.name != self.name:
            return False
        return any(other is node and effect & Effect.READ for effect, other in stmt.effects())


def own_nodes(stmt: Stmt) -> Iterator[Node]:
    """The nodes of a statement's own operands, without the statements inside it."""
    for name, is_body in stmt.parts():
        if not is_body:
            value = stmt.__dict__[name]
            for node in value if isinstance(value, tuple) else (value,):  # pyright: ignore[reportUnknownVariableType]
                if isinstance(node, Node):
                    yield from node.walk()
