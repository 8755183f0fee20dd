"""SIMT functions of the vector core: what one of their threads does.

What enters: a function with `VectorFunction`s of kind SIMT as the author wrote them: nests of
parallel loops, fragments, reductions. What leaves: bodies of one thread, by the passes that spread
a block of a GPU over its threads (`passes/simt`): UB is the memory that the threads share,
fragments are registers, reductions are shuffles and one exchange through UB. What they exchange
there is allocated in front of the function, so that memory is planned for it. There are no barriers
yet but the author's; `lower_functions` adds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tilelang.ir.ascend import VectorFunction, VectorKind
from tilelang.ir.expr import Buffer, Var, const
from tilelang.ir.node import Kind, Node, flat
from tilelang.ir.tile import Alloc, Block, Function, Launch, Param, Stmt, View
from tilelang.isa.target import Target
from tilelang.passes.build import Names, map_statements, named
from tilelang.passes.canonicalize import canonicalize_threads
from tilelang.passes.lower_parallel import statements
from tilelang.passes.lower_products import lower_products
from tilelang.passes.lower_reducers import lower_reducers
from tilelang.passes.simt.demote_fragments import demote_fragments
from tilelang.passes.simt.launch import noted
from tilelang.passes.simt.lower_thread_random import lower_thread_random
from tilelang.passes.simt.plain_tiles import plain_tiles
from tilelang.passes.simt.spread_threads import spread_threads
from tilelang.passes.widen_arithmetic import widen_arithmetic
from tilelang.scopes import Dialect, Memory, memory_of

_PASSES: tuple[Callable[[Function, Target], Function], ...] = (
    canonicalize_threads,
    lower_products,
    lower_reducers,
    lower_thread_random,
    demote_fragments,
    plain_tiles,
    spread_threads,
    widen_arithmetic,
)


def spread_functions(fn: Function, target: Target) -> Function:
    """Every SIMT function says what one thread does."""
    names = Names(fn)
    around = [n for n in named(fn) if isinstance(n, (Var, Buffer))]
    notes: list[tuple[str, str, str]] = []

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, VectorFunction) or stmt.kind is not VectorKind.SIMT:
            return None
        made, said = _spread(stmt, fn, target, around, names)
        notes.extend(said)
        names.taken |= {n.name for s in made for n in named(s)}
        around.extend(n for s in made for n in named(s) if isinstance(n, (Var, Buffer)))
        return made

    return noted(fn.with_(body=map_statements(fn.body, one)), notes)


def _spread(
    stmt: VectorFunction, fn: Function, target: Target, around: list[Var | Buffer], names: Names
) -> tuple[Block, list[tuple[str, str, str]]]:
    """One function: its statements, with what it exchanges allocated before; and the notes."""
    shared = _shared_from_outside(stmt, Dialect(fn.dialect))
    own = {n.name for n in _bound(stmt)} | {b.name for b in shared}
    block = names.var("block")
    launch = Launch(
        (const(1),),
        (block,),
        stmt.thread_vars,
        (*(Alloc(b, loc=stmt.loc) for b in shared), *stmt.body),
        threads=stmt.threads,
        loc=stmt.loc,
    )
    # The names around are parameters, so that new ones differ from them.
    others = {n.name: n for n in around if n.name not in own and n.name != block.name}
    params = tuple(
        Param(name, buffer=n) if isinstance(n, Buffer) else Param(name, var=n)
        for name, n in others.items()
    )
    made = Function(fn.name, params, (), (launch,), loc=fn.loc)
    machine = _vector_core(target)
    for step in _PASSES:
        made = step(made, machine)
    (spread,) = (s for s in statements(made.body) if isinstance(s, Launch))
    given = {b.name for b in shared}
    exchanged = [
        s for s in statements(spread.body) if isinstance(s, Alloc) and _is_shared(s.buffer)
    ]
    new = tuple(s for s in exchanged if s.buffer.name not in given)
    gone = {s.buffer.name for s in exchanged}
    body = map_statements(
        spread.body, lambda s: () if isinstance(s, Alloc) and s.buffer.name in gone else None
    )
    return (*new, stmt.with_(body=body)), list(dict(made.attrs).get("notes", ()))


def _vector_core(target: Target) -> Target:
    """The target as a machine of many threads: the memory that they share is UB."""
    chip = target.chip
    if chip is None:
        return target
    shared = {**chip.memories, Memory.SHARED: chip.memories[Memory.UB]}
    return replace(target, chip=replace(chip, memories=shared))


def _bound(stmt: VectorFunction) -> Iterator[Var | Buffer]:
    """What the function itself defines."""
    yield from stmt.thread_vars
    for node in stmt.walk():
        for f in node.fields():
            if f.metadata["kind"] is Kind.BINDS:
                yield from (n for n in flat(getattr(node, f.name)) if isinstance(n, (Var, Buffer)))


def _shared_from_outside(stmt: VectorFunction, dialect: Dialect) -> list[Buffer]:
    """The buffers of UB that the function uses and others have allocated."""
    own = {n.name for n in _bound(stmt)}
    found: dict[str, Buffer] = {}
    for node in _used(stmt):
        if node.name not in own and memory_of(dialect, node.scope) is Memory.UB:
            found.setdefault(node.name, node)
    return list(found.values())


def _used(node: Node) -> Iterator[Buffer]:
    for n in node.walk():
        if isinstance(n, Buffer):
            yield n
        elif isinstance(n, View):
            yield n.source


def _is_shared(buffer: Buffer) -> bool:
    return memory_of(Dialect.COMMON, buffer.scope) is Memory.SHARED
