"""Pipelined loops with several sets of buffers, so that copies of the next round need not wait.

What enters: a function with `Pipelined` loops, in program order. What leaves: the same with plain
loops. Queues of different pipes run side by side anyway; what holds a copy back is that its buffer
is still read. So a loop of n stages does n rounds at a time, each with buffers of its own for
everything that a round writes as a whole before it reads it, and that nothing outside the loop
touches; a buffer of k versions is that of every k-th round. Where a memory does not hold n sets,
there are fewer; with one, or if a round may leave the loop, the loop stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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
from tilelang.passes.ascend.insert_sync import insert_sync
from tilelang.passes.ascend.plan_memory import gives_all, plan_memory
from tilelang.passes.ascend.settings import Automatic, is_automatic, with_automatic
from tilelang.passes.ascend.vectorize_parallel import with_made
from tilelang.passes.build import Names, map_bodies, renamed
from tilelang.scopes import Memory

Hints = tuple[tuple[str, Any], ...]
MOST_ROUNDS = 8
"""Rounds done at a time: there are no more events for a pair of pipes."""

PAIR = 2


def unroll_pipelines(fn: Function, target: Target) -> Function:
    """The function without pipelined loops."""
    loops = [s for s in fn.walk() if isinstance(s, Pipelined)]
    if not loops:
        return fn
    most = min(max(s.num_stages for s in loops), MOST_ROUNDS)
    for sets in range(most, 1, -1):
        made = _Pipelines(fn, sets).result()
        if _fits(made, target, sets):
            return made
    return _Pipelines(fn, 1).result()


def _fits(fn: Function, target: Target, sets: int) -> bool:
    """Whether the memories hold all buffers. More than two sets must lie side by side, and have
    flags: there are few between cores.
    """
    try:
        if sets <= PAIR:
            plan_memory(fn, target)
        else:
            apart = [w for w in Automatic if w is not Automatic.MEMORY and is_automatic(fn, w)]
            insert_sync(plan_memory(with_automatic(fn, apart), target), target)
    except TileError:
        return False
    return True


@dataclass
class _Twins:
    """The buffers of a later round, by the name of those of the first."""

    of: Mapping[str, Buffer]

    def named(self, node: Node) -> Node | None:
        """The twin of a buffer."""
        return self.of.get(node.name) if isinstance(node, Buffer) else None


class _Pipelines:
    """The loops of one function."""

    def __init__(self, fn: Function, sets: int) -> None:
        self.fn = fn
        self.sets = sets
        self.names = Names(fn)
        self.effects = Effects(fn)
        self.versions = dict(_versions(fn))
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
        plain = For(
            loop.var, loop.start, loop.stop, loop.body, hints=interval(loop.hints), loc=loop.loc
        )
        sets = min(self.sets, loop.num_stages)
        if sets < 2 or _leaves(loop.body):
            return [plain]
        private = list(self._private(loop))
        most = max((self._count(b, sets) for b in private), default=1)
        if most < 2:
            return [plain]
        twins = {
            b.name: [b, *(self._twin(b) for _ in range(1, self._count(b, most)))] for b in private
        }
        rounds = [_Twins({n: of[r % len(of)] for n, of in twins.items()}) for r in range(most)]
        return self._rounds(loop, rounds)

    def _count(self, buffer: Buffer, rounds: int) -> int:
        """The versions of a buffer: as many as are asked for, of those that rounds share evenly."""
        asked = min(self.versions.get(buffer.name, rounds), rounds)
        return max(n for n in range(1, asked + 1) if rounds % n == 0)

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
                free = name not in views and not self._outside(loop, name)
                free = free and self.versions.get(name, 2) > 1
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

    def _rounds(self, loop: Pipelined, rounds: list[_Twins]) -> list[Stmt]:
        """Rounds that are done together, and those that are left over."""
        dtype = DType(loop.var.dtype)
        many = Const(len(rounds), dtype)
        count = simplify(Binary(BinaryOp.SUB, loop.stop, loop.start))
        turns = simplify(Binary(BinaryOp.FLOORDIV, count, many))
        turn = Var(self.names.name(f"{loop.var.name}_turn"), dtype)

        def at(first: Expr, k: int) -> Expr:
            return simplify(Binary(BinaryOp.ADD, first, Const(k, dtype)))

        low = simplify(Binary(BinaryOp.ADD, Binary(BinaryOp.MUL, turn, many), loop.start))
        body = [s for k, twins in enumerate(rounds) for s in self._round(loop, at(low, k), twins)]
        hints = interval(loop.hints)
        first = For(turn, Const(0, dtype), turns, tuple(body), hints=hints, loc=loop.loc)
        out: list[Stmt] = [first]
        rest = simplify(Binary(BinaryOp.FLOORMOD, count, many))
        left = int_value(rest)
        end = simplify(Binary(BinaryOp.SUB, loop.stop, rest))
        for k, twins in enumerate(rounds[:-1]):
            if left is not None and k >= left:
                break
            last = self._round(loop, at(end, k), twins)
            if left is not None:
                out += last
            else:
                more = Binary(BinaryOp.GT, rest, Const(k, dtype))
                out.append(If(more, last, loc=loop.loc))
        return out

    def _round(self, loop: Pipelined, at: Expr, twins: _Twins) -> Block:
        """The body for one value of the variable, with names of its own."""
        body = tuple(substitute(s, {loop.var: at}) for s in loop.body)
        body = tuple(s.rewrite(twins.named) for s in body)
        return renamed(body, self.names)


def interval(hints: Hints) -> Hints:
    """Of the hints of a loop, how many waits between kinds of core may be one."""
    every = dict(dict(hints).get("annotations", ())).get("cross_interval", 1)
    return (("cross_interval", every),) if every > 1 else ()


def _versions(fn: Function) -> Iterator[tuple[str, int]]:
    """The buffers of which the author asks for so many; one, where an address is given."""
    for stmt in fn.walk():
        if not isinstance(stmt, Annotate):
            continue
        if stmt.kind == "address":
            yield from ((b.name, 1) for b in stmt.buffers)
        elif stmt.kind == "buffer_versions":
            asked = zip(stmt.buffers, stmt.values, strict=True)
            yield from ((b.name, n) for b, n in asked if isinstance(n, int) and n > 0)


def _flat(body: Block) -> Iterator[Stmt]:
    """The statements of a block, those of core regions in its place."""
    for stmt in body:
        if isinstance(stmt, CoreRegion):
            yield from _flat(stmt.body)
        else:
            yield stmt


def _leaves(body: Block) -> bool:
    return any(isinstance(n, (Break, Continue)) for s in body for n in s.walk())
