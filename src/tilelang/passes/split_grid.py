"""Barriers of the whole grid, as launches one after the other.

What enters: a launch in which all blocks wait for each other, at the level of the block. What
leaves: a launch for each part between the waits. What a block keeps from one part to the next goes
through a workspace with a place for each block; values that depend on no memory are computed again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilelang.errors import error
from tilelang.ir.affine import is_stable
from tilelang.ir.expr import Buffer, Const, Expr, Region, Var, const, int_value
from tilelang.ir.node import Kind, Node, flat
from tilelang.ir.special import MakeTensor
from tilelang.ir.sync import SyncGrid
from tilelang.ir.tile import Alloc, Block, Copy, Function, Launch, Let, Stmt, View
from tilelang.isa.target import Target
from tilelang.passes.build import Names, Renamer, map_statements, unsupported, whole
from tilelang.passes.lower_parallel import statements
from tilelang.scopes import Dialect, Memory, memory_of


def split_grid(fn: Function, target: Target) -> Function:
    """No barriers of the grid."""
    del target
    names = Names(fn)

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch) or not any(
            isinstance(s, SyncGrid) for s in statements(stmt.body)
        ):
            return None
        return _Parts(fn, stmt, names).launches()

    return fn.with_(body=map_statements(fn.body, one))


class _Parts:
    """One launch."""

    def __init__(self, fn: Function, launch: Launch, names: Names) -> None:
        self.launch = launch
        self.names = names
        self.dialect = Dialect(fn.dialect)
        self.parts: list[list[Stmt]] = [[]]
        for stmt in launch.body:
            if isinstance(stmt, SyncGrid):
                self.parts.append([])
                continue
            inner = next((s for s in statements((stmt,)) if isinstance(s, SyncGrid)), None)
            if inner is not None:
                raise unsupported(inner, "T.sync_grid inside a loop or condition")
            self.parts[-1].append(stmt)

    def launches(self) -> Block:
        """The parts in order, each a launch of its own."""
        before: list[Stmt] = []
        spaces = {b.name: self.workspace(b, before) for b in self.kept()}
        out: list[Stmt] = []
        for k, part in enumerate(self.parts):
            again = self.again(k, [*self.names_for_memory(k), *part])
            body = [*again, *self.names_for_memory(k), *part]
            mine = self.seen(k)
            here = {b.name: b for b in (*mine, *self.declared(k))}
            loads = [s for b in mine for s in self.moved(b, spaces[b.name], True)]
            stores = [
                s
                for name, space in spaces.items()
                if name in here
                for s in self.moved(here[name], space, False)
            ]
            last = k == len(self.parts) - 1
            body = [*loads, *body, *([] if last else stores)]
            renamer = Renamer(self.names)
            made = self.launch.with_(body=tuple(body))
            out.append(made if k == 0 else renamer.of(made))  # pyright: ignore[reportArgumentType]
        return (*before, *out)

    def declared(self, k: int) -> Iterator[Buffer]:
        """The buffers that a part allocates at the level of the block."""
        for stmt in self.parts[k]:
            if isinstance(stmt, Alloc) and self.on_chip(stmt.buffer):
                yield stmt.buffer

    def on_chip(self, b: Buffer) -> bool:
        return memory_of(self.dialect, b.scope) is not Memory.GLOBAL

    def seen(self, k: int) -> list[Buffer]:
        """The buffers on chip that a part uses and an earlier one allocates."""
        earlier = {b.name: b for j in range(k) for b in self.declared(j)}
        body = [*self.names_for_memory(k), *self.parts[k]]
        used = {n.name for s in body for n in s.walk() if isinstance(n, Buffer)}
        return [b for name, b in earlier.items() if name in used]

    def names_for_memory(self, k: int) -> list[View | MakeTensor]:
        """The views and tensors at addresses that earlier parts define and this one uses; they are
        made again.
        """
        defined = {
            s.buffer.name: s
            for part in self.parts[:k]
            for s in part
            if isinstance(s, (View, MakeTensor))
        }
        needed: dict[str, View | MakeTensor] = {}

        def need(name: str) -> None:
            stmt = defined.get(name)
            if stmt is None or name in needed:
                return
            if isinstance(stmt, View):
                need(stmt.source.name)
            needed[name] = stmt

        for stmt in self.parts[k]:
            for node in stmt.walk():
                if isinstance(node, Buffer):
                    need(node.name)
        return list(needed.values())

    def kept(self) -> list[Buffer]:
        """The buffers on chip that several parts use."""
        found = {b.name: b for k in range(len(self.parts)) for b in self.seen(k)}
        return list(found.values())

    def workspace(self, b: Buffer, before: list[Stmt]) -> Buffer:
        """A place for the buffer of each block."""
        if any(int_value(n) is None for n in b.shape):
            raise error("shape", f"{b.name} has a size that is known only at run time", b.loc)
        shape = (*reversed(self.launch.grid), *b.shape)
        made = Buffer(self.names.name(f"kept_{b.name}"), b.dtype, shape, loc=b.loc)
        before.append(Alloc(made, loc=self.launch.loc))
        return made

    def moved(self, b: Buffer, space: Buffer, load: bool) -> Iterator[Stmt]:
        """A block's buffer comes from its workspace, or goes there."""
        blocks: Sequence[Expr] = tuple(reversed(self.launch.vars))
        mins = (*blocks, *(Const(0, n.dtype) for n in b.shape))
        extents = (*(const(1) for _ in blocks), *b.shape)
        place = Region(space, mins, extents)
        if load:
            yield Alloc(b, loc=self.launch.loc)
            yield Copy(place, whole(b), loc=self.launch.loc)
        else:
            yield Copy(whole(b), place, loc=self.launch.loc)

    def again(self, k: int, body: Sequence[Stmt]) -> list[Stmt]:
        """The names that earlier parts define and `body` uses, computed again."""
        defined = {s.var: s for part in self.parts[:k] for s in part if isinstance(s, Let)}
        needed: dict[Var, Let] = {}

        def need(node: Node) -> None:
            for n in node.walk():
                let = defined.get(n) if isinstance(n, Var) else None
                if let is None or n in needed:
                    continue
                if not is_stable(let.value):
                    raise unsupported(
                        let, f"{let.var.name}, a value from memory, across T.sync_grid"
                    )
                need(let.value)
                needed[let.var] = let

        for stmt in body:
            need(stmt)
            for f in stmt.fields():
                if f.metadata["kind"] is Kind.BINDS:
                    for thing in flat(getattr(stmt, f.name)):
                        need(thing)
        return list(needed.values())
