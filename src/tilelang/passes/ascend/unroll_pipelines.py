"""Pipelined loops with two sets of buffers, so that copies of the next round need not wait.

What enters: a function with `Pipelined` loops, in program order. What leaves: the same with plain
loops. Queues of different pipes run side by side anyway; what holds a copy back is that its buffer
is still read. So a loop of two stages or more does two rounds at a time, the second with buffers
of its own for everything that a round writes as a whole before it reads it, and that nothing
outside the loop touches. More than two sets are not made. Where a memory does not hold two, or a
round may leave the loop, the loop stays as it is, with one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilelang.dtypes import DType
from tilelang.errors import TileError
from tilelang.ir.ascend import CoreRegion, VectorFunction
from tilelang.ir.expr import Binary, BinaryOp, Buffer, Const, Expr, Var, int_value
from tilelang.ir.node import Node
from tilelang.ir.simplify import simplify, substitute
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Block,
    Break,
    Continue,
    For,
    Function,
    If,
    Launch,
    Pipelined,
    Stmt,
    View,
)
from tilelang.isa.target import Target
from tilelang.passes.ascend.effects import Effects
from tilelang.passes.ascend.plan_memory import gives_all, plan_memory
from tilelang.passes.ascend.vectorize_parallel import with_made
from tilelang.passes.build import Names, map_bodies, renamed
from tilelang.scopes import Memory

SETS = 2
"""Rounds done at a time."""


def unroll_pipelines(fn: Function, target: Target) -> Function:
    """The function without pipelined loops."""
    if not any(isinstance(s, Pipelined) for s in fn.walk()):
        return fn
    made = _Pipelines(fn, doubled=True).result()
    try:
        plan_memory(made, target)
    except TileError:
        return _Pipelines(fn, doubled=False).result()
    return made


@dataclass
class _Twins:
    """The buffers of the second of two rounds, by the name of those of the first."""

    of: Mapping[str, Buffer]

    def named(self, node: Node) -> Node | None:
        """The twin of a buffer."""
        return self.of.get(node.name) if isinstance(node, Buffer) else None


class _Pipelines:
    """The loops of one function."""

    def __init__(self, fn: Function, *, doubled: bool) -> None:
        self.fn = fn
        self.doubled = doubled
        self.names = Names(fn)
        self.effects = Effects(fn)
        self.placed = set(_single(fn))
        self.made = set(dict(fn.attrs).get("made", ()))
        self.twins: list[str] = []

    def result(self) -> Function:
        """The function with plain loops."""
        body = tuple(self._host(s) for s in self.fn.body)
        return with_made(self.fn.with_(body=body), self.twins)

    def _host(self, stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Launch):
            return map_bodies(stmt, lambda body: tuple(map(self._host, body)))
        self.launch = stmt
        self.allocs: list[Alloc] = []
        body = self._block(stmt.body)
        return stmt.with_(body=(*self.allocs, *body))

    def _block(self, body: Block) -> Block:
        out: list[Stmt] = []
        for stmt in body:
            inner = map_bodies(stmt, self._block)
            out += self._loop(inner) if isinstance(inner, Pipelined) else [inner]
        return tuple(out)

    def _loop(self, loop: Pipelined) -> list[Stmt]:
        plain = For(loop.var, loop.start, loop.stop, loop.body, loc=loop.loc)
        if not self.doubled or loop.num_stages < SETS or _leaves(loop.body):
            return [plain]
        twins = {b.name: self._twin(b) for b in self._private(loop)}
        if not twins:
            return [plain]
        return self._two_rounds(loop, _Twins(twins))

    def _private(self, loop: Pipelined) -> Iterator[Buffer]:
        """The buffers that each round writes as a whole before it reads them, and that nothing
        else touches.
        """
        views = {n.source.name for n in self.launch.walk() if isinstance(n, View)}
        views |= {
            b.name
            for n in self.launch.walk()
            if isinstance(n, Annotate) and n.kind == "scales_of"
            for b in n.buffers
        }
        seen: set[str] = set()
        for stmt in _flat(loop.body):
            nested = any(isinstance(c, Stmt) for c in stmt.children())
            nested = nested and not isinstance(stmt, VectorFunction)
            for access in self.effects.inside(stmt):
                name = access.root.name
                if name in seen:
                    continue
                seen.add(name)
                ours = name in self.made
                fresh = gives_all(access) or (ours and access.writes)
                own = access.memory is not Memory.GLOBAL or ours
                free = name not in self.placed | views and not self._outside(loop, name)
                if own and fresh and not nested and free:
                    yield access.root

    def _outside(self, loop: Pipelined, name: str) -> bool:
        """Whether something outside the loop touches a buffer."""
        return self._touches(self.launch, name) != self._touches(loop, name)

    @staticmethod
    def _touches(root: Stmt, name: str) -> int:
        """How often statements inside `root` name a buffer; facts about it do not count."""
        count = 0
        for node in root.walk():
            named = sum(1 for c in node.children() if isinstance(c, Buffer) and c.name == name)
            count += 0 if isinstance(node, Annotate) else named
        return count

    def _twin(self, buffer: Buffer) -> Buffer:
        twin = buffer.with_(name=self.names.name(f"{buffer.name}_b"))
        self.allocs.append(Alloc(twin))
        if buffer.name in self.made:
            self.twins.append(twin.name)
        return twin

    def _two_rounds(self, loop: Pipelined, twins: _Twins) -> list[Stmt]:
        """Pairs of rounds, and the last one where their number is odd."""
        dtype = DType(loop.var.dtype)
        two, one = Const(SETS, dtype), Const(1, dtype)
        count = simplify(Binary(BinaryOp.SUB, loop.stop, loop.start))
        pairs = simplify(Binary(BinaryOp.FLOORDIV, count, two))
        pair = Var(self.names.name(f"{loop.var.name}_pair"), dtype)
        low = simplify(Binary(BinaryOp.ADD, Binary(BinaryOp.MUL, pair, two), loop.start))
        first = self._round(loop, low, None)
        second = self._round(loop, simplify(Binary(BinaryOp.ADD, low, one)), twins)
        zero = Const(0, dtype)
        out: list[Stmt] = [For(pair, zero, pairs, (*first, *second), loc=loop.loc)]
        odd = simplify(Binary(BinaryOp.FLOORMOD, count, two))
        if int_value(odd) == 0:
            return out
        last = self._round(loop, simplify(Binary(BinaryOp.SUB, loop.stop, one)), None)
        if int_value(odd) == 1:
            return [*out, *last]
        return [*out, If(Binary(BinaryOp.EQ, odd, one), last, loc=loop.loc)]

    def _round(self, loop: Pipelined, at: Expr, twins: _Twins | None) -> Block:
        """The body for one value of the variable, with names of its own."""
        body = tuple(substitute(s, {loop.var: at}) for s in loop.body)
        if twins is not None:
            body = tuple(s.rewrite(twins.named) for s in body)
        return renamed(body, self.names)


def _single(fn: Function) -> Iterator[str]:
    """The buffers that stay one: at an address, or because one version is asked for."""
    for stmt in fn.walk():
        if not isinstance(stmt, Annotate):
            continue
        if stmt.kind == "address":
            yield from (b.name for b in stmt.buffers)
        elif stmt.kind == "buffer_versions":
            asked = zip(stmt.buffers, stmt.values, strict=True)
            yield from (b.name for b, count in asked if count == 1)


def _flat(body: Block) -> Iterator[Stmt]:
    """The statements of a block, those of core regions in its place."""
    for stmt in body:
        if isinstance(stmt, CoreRegion):
            yield from _flat(stmt.body)
        else:
            yield stmt


def _leaves(body: Block) -> bool:
    return any(isinstance(n, (Break, Continue)) for s in body for n in s.walk())
