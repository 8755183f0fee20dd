"""Which values differ from thread to thread: a fixpoint over the statements of a launch.

What enters: statements and the names that differ to begin with. What leaves: the names and the
buffers of a thread's own that such a value reaches. Only `local` and `local.var` buffers can have
an instance for each thread (semantics rule 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy

from tilelang.ir.expr import Buffer, Expr, Load, LoadVector, Region, Var
from tilelang.ir.node import Kind, Node, flat
from tilelang.ir.special import Collective, RngNext, TestElements
from tilelang.ir.sync import ClcQuery
from tilelang.ir.tile import (
    Alloc,
    Atomic,
    Block,
    Break,
    Continue,
    ExternCall,
    For,
    If,
    Let,
    Parallel,
    Pipelined,
    Stmt,
    ThreadReturn,
    While,
)
from tilelang.passes.lower_parallel import blocks, own_nodes, statements, written


class Varying:
    """The result; `own` says of which buffers every thread may have an instance."""

    def __init__(
        self,
        body: Block,
        seeds: Iterable[Var],
        own: Callable[[Buffer], bool],
        roots: dict[str, str],
    ) -> None:
        self.names = {v.name for v in seeds}
        self.buffers: set[str] = set()
        self._own = own
        self._roots = roots
        self._spread(body)

    def within(self, body: Block) -> Varying:
        """The same for statements that some threads go through together: what is defined among
        them differs only if it does so between these.
        """
        binds = [
            x.name
            for s in statements(body)
            for f in s.fields()
            if f.metadata["kind"] is Kind.BINDS
            for x in flat(getattr(s, f.name))
            if isinstance(x, (Var, Buffer))
        ]
        made = copy(self)
        made.names, made.buffers = self.names - set(binds), self.buffers - set(binds)
        made._spread(body)
        return made

    def _spread(self, body: Block) -> None:
        before = (-1, -1)
        while before != (len(self.names), len(self.buffers)):
            before = len(self.names), len(self.buffers)
            self._block(body, False, False)

    def own_instance(self, buffer: Buffer) -> bool:
        """Whether every thread has a buffer of its own."""
        return self._roots.get(buffer.name, buffer.name) in self.buffers

    def node(self, *nodes: Node | None) -> bool:
        """Whether a value, or the place of a region, differs between threads."""
        for node in (n for root in nodes if root is not None for n in root.walk()):
            if isinstance(node, Var) and node.name in self.names:
                return True
            if isinstance(node, (Load, LoadVector, Region)) and self.own_instance(node.buffer):
                return True
        return False

    def head(self, stmt: Stmt) -> bool:
        """Whether a statement's own operands differ."""
        return any(
            (isinstance(n, Var) and n.name in self.names)
            or (isinstance(n, Buffer) and self.own_instance(n))
            for n in own_nodes(stmt)
        )

    def leaves_apart(self, body: Block, apart: bool = False) -> bool:
        """Whether some threads may leave a round of the loop with this body before others."""
        for stmt in body:
            if isinstance(stmt, (Break, Continue, ThreadReturn)) and apart:
                return True
            if isinstance(stmt, If):
                split = apart or self.node(stmt.cond)
                if any(self.leaves_apart(b, split) for b in (stmt.then, stmt.orelse)):
                    return True
        return False

    def _block(self, body: Block, apart: bool, parallel: bool) -> None:
        for stmt in body:
            self._stmt(stmt, apart, parallel)

    def _stmt(self, stmt: Stmt, apart: bool, parallel: bool) -> None:
        inside = apart
        match stmt:
            case If():
                inside = apart or self.node(stmt.cond)
            case For() | Pipelined():
                if self.node(stmt.start):
                    self.names.add(stmt.var.name)
                inside = apart or self.head(stmt) or self.leaves_apart(stmt.body)
            case While():
                inside = apart or self.node(stmt.cond) or self.leaves_apart(stmt.body)
            case Let():
                self._name(stmt.var, self.node(stmt.value))
            case Alloc():
                if stmt.init is not None and self.node(stmt.init):
                    self._mark(stmt.buffer)
            case RngNext() | Collective():
                alike = isinstance(stmt, Collective) and not stmt.differs
                self._name(stmt.result, not parallel and not alike)
            case TestElements(src=read) | ClcQuery(response=read):
                self._name(stmt.result, self.node(read))
            case _:
                self._write(stmt, apart, parallel)
        for inner in blocks(stmt):
            self._block(inner, inside, parallel or isinstance(stmt, Parallel))

    def _name(self, var: Var, differs: bool) -> None:
        if differs:
            self.names.add(var.name)

    def _write(self, stmt: Stmt, apart: bool, parallel: bool) -> None:
        if isinstance(stmt, Atomic) and stmt.previous is not None:
            self._name(stmt.previous, not parallel and isinstance(stmt.value, Expr))
        if isinstance(stmt, ExternCall) and stmt.result is not None:
            self._name(stmt.result, apart or self.head(stmt))
        if blocks_of(stmt) == 0 and (apart or self.head(stmt)):
            for buffer in written(stmt):
                self._mark(buffer)

    def _mark(self, buffer: Buffer) -> None:
        if self._own(buffer):
            self.buffers.add(self._roots.get(buffer.name, buffer.name))


def blocks_of(stmt: Stmt) -> int:
    """How many blocks a statement has."""
    return sum(1 for _ in blocks(stmt))
