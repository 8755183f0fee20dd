"""Which buffers a vector function overwrites from end to end before it reads them.

What enters: vector functions as the author wrote them. What leaves: the same with `gives`. After
this the bodies are about threads or registers, and nobody can tell any more that together they
write a whole buffer; where rounds of a loop overlap, or buffers share bytes, that matters.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.ir.ascend import VectorFunction
from tilelang.ir.expr import Buffer, Expr, Load, Region, Var, int_value
from tilelang.ir.node import Effect
from tilelang.ir.tile import Block, Function, Parallel, Stmt, Store
from tilelang.isa.target import Target
from tilelang.passes.build import map_statements, whole
from tilelang.scopes import Dialect, Memory, memory_of


def whole_writes(fn: Function, target: Target) -> Function:
    """Every vector function names the buffers that it gives all their contents."""
    del target
    dialect = Dialect(fn.dialect)

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, VectorFunction):
            return None
        return (stmt.with_(gives=tuple(_given(stmt, dialect))),)

    return fn.with_(body=map_statements(fn.body, one))


def _given(function: VectorFunction, dialect: Dialect) -> Iterator[str]:
    """Names of buffers of UB, in the order in which the statements of the body overwrite them."""
    touched: set[str] = set()
    for stmt in function.body:
        used = {n.name for n in stmt.walk() if isinstance(n, Buffer)}
        for buffer in _whole(stmt):
            if buffer.name not in touched and memory_of(dialect, buffer.scope) is Memory.UB:
                yield buffer.name
        touched |= used


def _whole(stmt: Stmt) -> Iterator[Buffer]:
    """What one statement overwrites as a whole, and does not read."""
    if isinstance(stmt, Parallel):
        read = {n.buffer.name for n in stmt.walk() if isinstance(n, Load)}
        for inner in stmt.body:
            if isinstance(inner, Store) and inner.buffer.name not in read and _covers(stmt, inner):
                yield inner.buffer
        return
    regions = [(e, n) for e, n in stmt.effects() if isinstance(n, Region)]
    read = {n.buffer.name for e, n in regions if e & Effect.READ}
    for effect, region in regions:
        full = region == whole(region.buffer).with_(loc=region.loc)
        if full and effect & Effect.WRITE and region.buffer.name not in read:
            yield region.buffer


def _covers(nest: Parallel, store: Store) -> bool:
    """Whether the elements that a store of a nest reaches are all of its buffer."""
    extents = dict(zip((v.name for v in nest.vars), map(int_value, nest.extents), strict=True))
    seen: set[str] = set()
    for index, size in zip(store.indices, store.buffer.shape, strict=True):
        if not _runs_over(index, int_value(size), extents, seen):
            return False
    return True


def _runs_over(
    index: Expr, size: int | None, extents: dict[str, int | None], seen: set[str]
) -> bool:
    """Whether an index is a variable of the nest, met for the first time, that takes each value."""
    if size == 1 and int_value(index) == 0:
        return True
    if not isinstance(index, Var) or index.name in seen or size is None:
        return False
    seen.add(index.name)
    return extents.get(index.name) == size
