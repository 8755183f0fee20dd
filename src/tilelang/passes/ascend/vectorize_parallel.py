"""Parallel nests as operations on tiles.

What enters: a function with `Parallel` nests of elementwise stores, and buffers that each have one
memory. What leaves: the same without `Parallel`. Iterations have no order, so each store of a nest
becomes operations over all of it, in turn; a store of one element of another memory is a copy.
Values in between take temporaries in the UB. What has no such form (indices that are computed from
elements, conditions that are no comparison, sizes known at run time) is a loop over single
elements, which the scalar unit carries out. Where temporaries of whole tiles do not fit, nests of
two axes that need them go row by row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

from tilelang.dtypes import DType
from tilelang.errors import error
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Expr,
    Load,
    Region,
    Select,
    Unary,
    UnaryOp,
    Var,
    const,
    int_value,
)
from tilelang.ir.node import Node
from tilelang.ir.tile import (
    Alloc,
    Block,
    Copy,
    Fill,
    For,
    Function,
    If,
    Let,
    Parallel,
    Stmt,
    Store,
)
from tilelang.isa.target import Target
from tilelang.passes.ascend.effects import ON_CUBE, Effects
from tilelang.passes.ascend.settings import Automatic, is_automatic
from tilelang.passes.ascend.storage import ceil_to, static_shape
from tilelang.passes.ascend.vector_values import NoVectorForm, Scratch, Tile, Values, has_cast
from tilelang.passes.build import Names, map_launches, map_statements
from tilelang.scopes import Dialect, Memory, rows

AXES = 2
"""Axes of a nest that the operations of rows and columns know."""
BLOCK = 32
"""Bytes: the unit in which the UB is dealt out."""


def vectorize_parallel(fn: Function, target: Target) -> Function:
    """The function without parallel nests."""
    names = Names(fn)
    effects = Effects(fn)
    capacity = target.capacity(Memory.UB)
    room = None if capacity is None else capacity.amount
    shared = is_automatic(fn, Automatic.MEMORY)
    scope = next(r.scope for r in rows(Dialect(fn.dialect)) if r.memory is Memory.UB)
    made: list[Alloc] = []

    def launch(body: Block) -> Block:
        new, scratch = vectors(body, room if shared else None)
        if not shared and room is not None and _bytes(_allocated(scratch, new), effects) > room:
            new, scratch = vectors(body, 0)
        made.extend(scratch)
        return (*scratch, *new)

    def vectors(body: Block, limit: int | None) -> tuple[Block, list[Alloc]]:
        scratch = Scratch(names, scope)

        def one(stmt: Stmt) -> Block | None:
            return (
                Nest(stmt, effects, scratch, limit).block() if isinstance(stmt, Parallel) else None
            )

        return map_statements(body, one), scratch.made

    out = map_launches(fn, launch)
    return with_made(out, [a.buffer.name for a in made])


def _allocated(made: Sequence[Alloc], body: Block) -> dict[str, Buffer]:
    found = [n for s in (*made, *body) for n in s.walk() if isinstance(n, Alloc)]
    return {a.buffer.name: a.buffer for a in found}


def _touched(body: Block) -> dict[str, Buffer]:
    found = [n for s in body for n in s.walk()]
    return {n.buffer.name: n.buffer for n in found if isinstance(n, (Region, Load, Store))}


def _bytes(buffers: dict[str, Buffer], effects: Effects) -> int:
    """How much of the UB these take, each with bytes of its own."""
    ours = [b for b in buffers.values() if effects.memory(b) is Memory.UB]
    return sum(ceil_to(math.prod(static_shape(b, b)) * b.dtype.bytes, BLOCK) for b in ours)


def with_made(fn: Function, names: Sequence[str]) -> Function:
    """The function, which notes that passes have added these buffers."""
    if not names:
        return fn
    known = dict(fn.attrs)
    known["made"] = (*known.get("made", ()), *names)
    return fn.with_(attrs=tuple(known.items()))


class Nest:
    """One parallel nest."""

    def __init__(
        self, nest: Parallel, effects: Effects, scratch: Scratch, limit: int | None = None
    ) -> None:
        self.nest = nest
        self.effects = effects
        self.scratch = scratch
        self.limit = limit

    def block(self) -> Block:
        """The nest as operations on tiles, or as loops. What needs temporaries, and more than
        `limit` bytes in all, goes row by row.
        """
        before = len(self.scratch.made), list(self.scratch.free)
        try:
            found = self._vectors()
            if not self._is_crowded(found):
                return found
            rest = self._rows
        except NoVectorForm as why:
            self._refuse_elements(why)
            rest = self._loops
        del self.scratch.made[before[0] :]
        self.scratch.free = before[1]
        return rest()

    def _refuse_elements(self, why: NoVectorForm) -> None:
        """Nothing reaches single elements of the memories of the cube core."""
        for node in self.nest.walk():
            if isinstance(node, (Load, Store)) and self.effects.memory(node.buffer) in ON_CUBE:
                memory = self.effects.memory(node.buffer)
                raise error(
                    "scope",
                    f"this nest moves elements of {node.buffer.name}, and is no copy: {why}",
                    self.nest.loc,
                    expected="neighbouring elements in the same order on both sides",
                    got=f"{node.buffer.name} in {memory.title}",
                    help="T.copy between the two, or by way of a buffer in UB",
                )

    def _is_crowded(self, found: Block) -> bool:
        if self.limit is None or not self._has_rows():
            return False
        touched = _touched(found)
        scratch = any(a.buffer.name in touched for a in self.scratch.made)
        return scratch and _bytes(touched, self.effects) > self.limit

    def _has_rows(self) -> bool:
        """Whether the nest has two axes, and whole blocks of memory in each row."""
        inner = int_value(self.nest.extents[-1])
        return len(self.nest.vars) == AXES and inner is not None and inner % BLOCK == 0

    def _rows(self) -> Block:
        """A loop over rows, each of which is a nest of one axis."""
        (var, inner), (extent, width) = self.nest.vars, self.nest.extents
        row = self.nest.with_(vars=(inner,), extents=(width,))
        body = Nest(row, self.effects, self.scratch).block()
        return (For(var, const(0, var.dtype), extent, body, loc=self.nest.loc),)

    def _loops(self) -> Block:
        """Loops over single elements."""
        body = self.nest.body
        for var, extent in reversed(list(zip(self.nest.vars, self.nest.extents, strict=True))):
            body = (For(var, const(0, var.dtype), extent, body, loc=self.nest.loc),)
        return body

    def _vectors(self) -> Block:
        extents = [int_value(e) for e in self.nest.extents]
        if None in extents or 0 in extents:
            raise NoVectorForm("an extent is known only when the kernel runs")
        sizes = cast("list[int]", extents)
        out: list[Stmt] = []
        for stmt in _inlined(self.nest.body):
            out += self._statement(stmt, sizes, ())
        return tuple(out)

    def _statement(self, stmt: Stmt, sizes: list[int], guards: tuple[Expr, ...]) -> list[Stmt]:
        values = Values(self.nest.vars, sizes, self.scratch, self.effects.memory, stmt.loc)
        if isinstance(stmt, If):
            if not values.varies(stmt.cond):
                inner = [self._all(block, sizes, guards) for block in (stmt.then, stmt.orelse)]
                return [stmt.with_(then=tuple(inner[0]), orelse=tuple(inner[1]))]
            other = Unary(UnaryOp.NOT, stmt.cond)
            return [
                *self._all(stmt.then, sizes, (*guards, stmt.cond)),
                *self._all(stmt.orelse, sizes, (*guards, _negated(stmt.cond, other))),
            ]
        if not isinstance(stmt, Store) or type(stmt) is not Store:
            raise NoVectorForm(f"a {type(stmt).__name__} in a parallel nest")
        if len(sizes) > AXES and not _is_copy(stmt):
            raise NoVectorForm(f"a nest of {len(sizes)} axes")
        self._store(stmt, values, guards)
        return values.out

    def _all(self, body: Block, sizes: list[int], guards: tuple[Expr, ...]) -> list[Stmt]:
        return [new for stmt in body for new in self._statement(stmt, sizes, guards)]

    def _store(self, stmt: Store, values: Values, guards: tuple[Expr, ...]) -> None:
        dst = values.tile(stmt.buffer, stmt.indices)
        wide = tuple(k for k, n in enumerate(values.extents) if n > 1)
        if any(k not in dst.spans for k in wide):
            raise NoVectorForm(f"several iterations store one element of {stmt.buffer.name}")
        where = self.effects.memory(stmt.buffer)
        value = stmt.value
        for cond in guards:
            if where is not Memory.UB:
                raise NoVectorForm("a store to global memory under a condition of its own")
            value = Select(cond, value, Load(stmt.buffer, stmt.indices))
        plain = value.a if isinstance(value, Cast) and value.rbits is None else value
        if isinstance(plain, Load):
            if self._copied(plain, dst, values, where):
                return
            if {where, self.effects.memory(plain.buffer)} & ON_CUBE:
                raise NoVectorForm("the axes of the two sides differ")
        full = Tile(dst.region, values.all)
        found = values.of(value, full if where is Memory.UB else None)
        if not isinstance(found, Tile):
            if where is Memory.UB:
                values.out.append(Fill(dst.region, found, loc=stmt.loc))
                return
            found = values.filled(found, dst.dtype, values.all)
        if found.region == dst.region:
            return
        found = values.widened(found, values.all)
        values.out.append(Copy(found.region, dst.region, loc=stmt.loc))
        self.scratch.give(found)

    def _copied(self, load: Load, dst: Tile, values: Values, where: Memory) -> bool:
        """Whether a store of one element of another buffer became a copy."""
        src = values.tile(load.buffer, load.indices)
        of = self.effects.memory(load.buffer)
        both_ub = of is where is Memory.UB
        if src.spans != dst.spans or (both_ub and not _moves(src.dtype, dst.dtype)):
            return False
        if of is Memory.GLOBAL and where is Memory.GLOBAL:
            return False
        if of is Memory.GLOBAL and where is Memory.UB and load.buffer.dtype != dst.dtype:
            return False
        values.out.append(Copy(src.region, dst.region, loc=values.loc))
        return True


def _moves(src: DType, dst: DType) -> bool:
    """Whether a copy in the UB converts as a store does."""
    return src.is_float == dst.is_float and has_cast(src, dst)


def _negated(cond: Expr, other: Expr) -> Expr:
    """The opposite of a comparison, as a comparison."""
    opposite = {
        BinaryOp.EQ: BinaryOp.NE,
        BinaryOp.NE: BinaryOp.EQ,
    }
    if isinstance(cond, Binary) and cond.op in opposite:
        return Binary(opposite[cond.op], cond.a, cond.b)
    return other  # the opposite of an order does not hold for NaN either


def _is_copy(stmt: Store) -> bool:
    value = stmt.value.a if isinstance(stmt.value, Cast) else stmt.value
    return isinstance(value, Load)


def _inlined(body: Block) -> list[Stmt]:
    """Statements with the names that they bind written out; a name for an element that is stored
    to afterwards has no vector form.
    """
    out: list[Stmt] = []
    known: dict[Var, Expr] = {}
    for stmt in body:
        if isinstance(stmt, Let):
            known[stmt.var] = _written(stmt.value, known)
            continue
        made = stmt.rewrite(lambda n: known.get(n) if isinstance(n, Var) else None)
        if isinstance(made, Store):
            gone = [v for v, e in known.items() if _reads(e, made.buffer.name)]
            for var in gone:
                if any(n is var for s in body for n in s.walk()):
                    known[var] = _Gone.expr
        out.append(made)
    if any(n is _Gone.expr for s in out for n in s.walk()):
        raise NoVectorForm("a name is used after the element that it names is stored to")
    return out


class _Gone:
    """Stands for a value that later statements cannot compute again."""

    expr: Expr = Var("?gone", const(0).dtype)


def _written(e: Expr, known: dict[Var, Expr]) -> Expr:
    def named(n: Node) -> Node | None:
        return known.get(n) if isinstance(n, Var) else None

    return cast("Expr", named(e) or e.rewrite(named))


def _reads(e: Expr, name: str) -> bool:
    return any(isinstance(n, Load) and n.buffer.name == name for n in e.walk())
