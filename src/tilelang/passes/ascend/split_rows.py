"""The rows of tiles in the UB, spread over the two vector cores of a group.

What enters: launches of the adapter's developer mode (annotation `split_rows`), written as if there
were one vector core. What leaves: with one, the same; with two, a buffer whose first axis every
operation treats row by row has half of it on each core, copies from and to global memory take half
of the rows, and an operation on one row is done by the core that has it. A buffer with any other
use is whole on both cores, which do the same; the first of them alone stores what is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilelang.ir.ascend import Transfer, VectorOp
from tilelang.ir.expr import Binary, BinaryOp, Buffer, Expr, Load, Region, Var, const, int_value
from tilelang.ir.node import Effect, Kind, Node, flat
from tilelang.ir.simplify import equal, simplify
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Atomic,
    Block,
    Copy,
    Fill,
    Function,
    If,
    Launch,
    Reduce,
    Stmt,
    Store,
    TileOp,
    View,
)
from tilelang.isa.target import Target
from tilelang.passes.ascend.effects import Effects
from tilelang.passes.build import as_type, map_bodies, map_statements
from tilelang.scopes import Memory

BLOCK = 32
"""Bytes: each half of a buffer is whole blocks of the UB."""

_ELEMENTWISE = frozenset(
    {
        "exp", "ln", "abs", "reciprocal", "sqrt", "rsqrt", "relu", "bitwise_not", "sigmoid", "silu",
        "sin", "cos", "round", "neg", "add", "sub", "mul", "div", "max", "min", "bitwise_and",
        "bitwise_or", "bitwise_xor", "bitwise_lshift", "bitwise_rshift", "leaky_relu", "pow",
        "clamp", "axpy", "mul_add_dst", "broadcast",
    }
)  # fmt: skip
"""Operations of which each row depends on the same row of every operand alone."""
_BY_ROW = "row_expand_"


def split_rows(fn: Function, target: Target) -> Function:
    """The function for as many vector cores as its launches say."""
    del target
    effects = Effects(fn)

    def on(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Launch):
            return map_bodies(stmt, lambda body: tuple(map(on, body)))
        asked = [s for s in stmt.body if isinstance(s, Annotate) and s.kind == "split_rows"]
        if not asked:
            return stmt
        rest = stmt.with_(body=tuple(s for s in stmt.body if s not in asked))
        return rest if asked[0].values == (1,) else Halves(rest, effects).result()

    return fn.with_(body=tuple(map(on, fn.body)))


@dataclass(frozen=True)
class Rows:
    """Which rows of a buffer an operand names: all, or one."""

    one: Expr | None = None


class Halves:
    """One launch on two vector cores."""

    def __init__(self, launch: Launch, effects: Effects) -> None:
        self.launch = launch
        self.effects = effects
        self.vid: Var = launch.thread_vars[0]
        self.split = {
            s.buffer.name
            for s in launch.walk()
            if isinstance(s, Alloc) and effects.memory(s.buffer) is Memory.UB and _halves(s.buffer)
        }

    def result(self) -> Launch:
        """The launch with split buffers and guarded stores."""
        statements = [s for s in self.launch.walk() if isinstance(s, Stmt)]
        for stmt in statements:  # a view names the rows of its source differently
            if isinstance(stmt, View):
                self.split -= {stmt.source.name, stmt.buffer.name}
        news = True
        while news:
            news = False
            for stmt in statements:
                bad = self._unfit(stmt)
                news = news or bool(bad & self.split)
                self.split -= bad
        body = map_statements(self.launch.body, self._one)
        return self.launch.with_(body=tuple(self._halved(s) for s in body))

    # Which buffers can be split ------------------------------------------------------------------

    def _unfit(self, stmt: Stmt) -> set[str]:
        """The split buffers with which a statement does something other than row by row."""
        regions = list(self._ub(stmt))
        names = {r.buffer.name for r in regions} & self.split
        loads = {
            n.buffer.name
            for e in _scalars(stmt)
            for n in e.walk()
            if isinstance(n, Load) and n.buffer.name in self.split
        }
        if not names:
            return loads
        return set() if self._fits(stmt, regions, loads) else names | loads

    def _fits(self, stmt: Stmt, regions: list[Region], loads: set[str]) -> bool:
        """Whether a statement is done row by row on its operands in split buffers."""
        mine = [r for r in regions if r.buffer.name in self.split]
        others = [r for r in regions if r.buffer.name not in self.split]
        rows = {self._rows(r) for r in mine}
        if len(rows) != 1 or isinstance(stmt, Store) or not self._row_by_row(stmt):
            return False
        (which,) = rows
        if which is None:
            return False
        if which.one is not None:
            written = [r for r in others if _writes(stmt, r)]
            return not written and self._reads_same_row(stmt, which.one, loads)
        heights = {int_value(r.extents[0]) for r in mine}
        far = [r for r in _regions(stmt) if self.effects.memory(r.buffer) is Memory.GLOBAL]
        heights |= {_first_wide(r) for r in far}
        mixed = [r for r in others if not (_is_broadcast(stmt) and _is_row(r))]
        return len(heights) == 1 and not mixed and not loads

    def _rows(self, region: Region) -> Rows | None:
        """The rows that an operand names; None for neither all nor one."""
        if int_value(region.extents[0]) == 1 and int_value(region.buffer.shape[0]) != 1:
            return Rows(simplify(region.mins[0]))
        whole = int_value(region.mins[0]) == 0
        return Rows() if whole and equal(region.extents[0], region.buffer.shape[0]) else None

    def _row_by_row(self, stmt: Stmt) -> bool:
        """Whether each row of a result depends on one row of the operands."""
        if isinstance(stmt, VectorOp):
            return stmt.op in _ELEMENTWISE or stmt.op.startswith(_BY_ROW)
        if isinstance(stmt, Reduce):
            return stmt.dim != 0
        return isinstance(stmt, (Copy, Transfer, Fill, Atomic))

    def _reads_same_row(self, stmt: Stmt, row: Expr, loads: set[str]) -> bool:
        """Whether scalars of an operation on one row are elements of that row."""
        read = [n for e in _scalars(stmt) for n in e.walk() if isinstance(n, Load)]
        mine = [n for n in read if n.buffer.name in loads]
        return all(equal(simplify(n.indices[0]), row) for n in mine)

    def _ub(self, stmt: Stmt) -> Iterator[Region]:
        """The operands of a statement in the UB."""
        for region in _regions(stmt):
            if self.effects.memory(region.buffer) is Memory.UB:
                yield region

    # The halves ----------------------------------------------------------------------------------

    def _one(self, stmt: Stmt) -> Block | None:
        regions = list(self._ub(stmt)) if isinstance(stmt, (TileOp, Store)) else []
        if not regions:
            return None
        mine = [r for r in regions if r.buffer.name in self.split]
        if not mine:
            return self._by_first(stmt)
        which = self._rows(mine[0])
        height = int_value(mine[0].buffer.shape[0]) or 0
        if which is None or which.one is None:
            return (self._half(stmt, height // 2),)
        return self._by_owner(stmt, which.one, height // 2)

    def _by_first(self, stmt: Stmt) -> Block | None:
        """A store of a buffer that both cores have: the first core does it."""
        out = stmt.dst if isinstance(stmt, (Copy, Transfer, Atomic)) else None
        buffer = stmt.buffer if isinstance(stmt, Store) else out.buffer if out is not None else None
        if buffer is None or self.effects.memory(buffer) is not Memory.GLOBAL:
            return None
        first = Binary(BinaryOp.EQ, self.vid, const(0, self.vid.dtype))
        return (If(first, (stmt,), loc=stmt.loc),)

    def _by_owner(self, stmt: Stmt, row: Expr, half: int) -> Block:
        """An operation on one row, by the core that has it."""
        owner = Binary(BinaryOp.FLOORDIV, row, const(half, row.dtype))
        mine = simplify(Binary(BinaryOp.EQ, owner, _as(self.vid, row)))
        local = simplify(Binary(BinaryOp.FLOORMOD, row, const(half, row.dtype)))

        def moved(n: Node) -> Node | None:
            if isinstance(n, Region) and n.buffer.name in self.split:
                return n.with_(mins=(local, *n.mins[1:]))
            if isinstance(n, Load) and n.buffer.name in self.split:
                return n.with_(indices=(local, *n.indices[1:]))
            return None

        return (If(mine, (stmt.rewrite(moved),), loc=stmt.loc),)

    def _half(self, stmt: Stmt, half: int) -> Stmt:
        """An operation on all rows, on this core's half of them."""

        def halved(n: Node) -> Node | None:
            if not isinstance(n, Region):
                return None
            if n.buffer.name in self.split:
                return n.with_(extents=(const(half), *n.extents[1:]))
            if self.effects.memory(n.buffer) is Memory.GLOBAL:
                return self._moved(n, half)
            return None

        return stmt.rewrite(halved)

    def _moved(self, region: Region, half: int) -> Region:
        """This core's half of the rows of a tile in global memory."""
        at = next(k for k, e in enumerate(region.extents) if int_value(e) == 2 * half)
        low = region.mins[at]
        step = Binary(BinaryOp.MUL, _as(self.vid, low), const(half, low.dtype))
        mins = list(region.mins)
        extents = list(region.extents)
        mins[at] = simplify(Binary(BinaryOp.ADD, low, step))
        extents[at] = const(half, low.dtype)
        return region.with_(mins=tuple(mins), extents=tuple(extents))

    def _halved(self, stmt: Stmt) -> Stmt:
        """Statements with the split buffers at half their height."""

        def smaller(n: Node) -> Node | None:
            if isinstance(n, Buffer) and n.name in self.split:
                return _half_buffer(n)
            if isinstance(n, Alloc) and n.buffer.name in self.split:
                return n.with_(buffer=_half_buffer(n.buffer))
            return None

        made = stmt.rewrite(smaller)
        if isinstance(made, Alloc) and made.buffer.name in self.split:
            return made.with_(buffer=_half_buffer(made.buffer))
        return made


def _half_buffer(buffer: Buffer) -> Buffer:
    rows = int_value(buffer.shape[0]) or 0
    return buffer.with_(shape=(const(rows // 2), *buffer.shape[1:]))


def _halves(buffer: Buffer) -> bool:
    """Whether the halves of a buffer are whole blocks."""
    sizes = [int_value(e) for e in buffer.shape]
    if None in sizes or not sizes:
        return False
    total = buffer.dtype.bits // 8
    for n in sizes:
        total *= n or 0
    return (sizes[0] or 0) % 2 == 0 and (sizes[0] or 0) > 1 and total % (2 * BLOCK) == 0


def _regions(stmt: Stmt) -> Iterator[Region]:
    """The operands of a statement."""
    for _, node in stmt.effects():
        if isinstance(node, Region):
            yield node
        elif isinstance(stmt, Store) and isinstance(node, Buffer):
            yield Region(node, stmt.indices, tuple(const(1) for _ in stmt.indices))


def _writes(stmt: Stmt, region: Region) -> bool:
    return any(node == region and effect & Effect.WRITE for effect, node in stmt.effects())


def _first_wide(region: Region) -> int | None:
    """The extent of the first axis with more than one element."""
    return next((int_value(e) for e in region.extents if int_value(e) != 1), 1)


def _is_broadcast(stmt: Stmt) -> bool:
    return isinstance(stmt, VectorOp) and stmt.op == "broadcast"


def _is_row(region: Region) -> bool:
    """Whether an operand is one row, the same for all rows of the result."""
    return all(int_value(e) == 1 for e in region.extents[:-1]) and len(region.extents) > 1


def _scalars(stmt: Stmt) -> Iterator[Expr]:
    """The scalar operands of a statement, those of its regions included."""
    for f in stmt.fields():
        if f.metadata["kind"] is not Kind.OPERAND:
            continue
        for item in flat(getattr(stmt, f.name)):
            if isinstance(item, Expr):
                yield item
            elif isinstance(item, Region):
                yield from (*item.mins, *item.extents)


def _as(var: Var, like: Expr) -> Expr:
    return as_type(var, like.dtype)
