"""What a warp can know that issues copies ahead of the others: what comes from parameters alone.

What enters: the statements of a launch. What leaves: `Ahead`, which says of an expression whether
such a warp can compute it, and of a variable whether it can follow it: a scalar that every
statement gives a value which can be known, where it can be known that the statement runs. So the
state of a tile scheduler can be followed, and a number that is counted along.
"""

from __future__ import annotations

from tilelang.ir.expr import AtomicLoad, Buffer, Expr, Load, LoadVector, Var, int_value
from tilelang.ir.node import Kind, Node, flat
from tilelang.ir.tile import Alloc, Block, For, If, Let, Pipelined, Stmt, Store, While
from tilelang.passes.lower_parallel import blocks, own_nodes, statements, written
from tilelang.passes.simt.launch import Threads


class Ahead:
    """What can be known ahead in one launch."""

    def __init__(self, body: Block, t: Threads) -> None:
        self.changed = {b.name for s in statements(body) for b in written(s)}
        axes = zip(t.launch.thread_vars, t.extents, strict=True)
        self.unknown = {v.name for v, n in axes if n > 1}
        scalars = [s.buffer for s in statements(body) if isinstance(s, Alloc)]
        self.followed = {
            b.name
            for b in scalars
            if t.is_private(b) and all(int_value(n) == 1 for n in b.shape) and b.name not in t.roots
        }
        before: tuple[int, int] = (-1, -1)
        while before != (len(self.followed), len(self.unknown)):
            before = len(self.followed), len(self.unknown)
            self.look(body, known=True)

    def look(self, body: Block, *, known: bool) -> None:
        """Take in statements; `known` says that it can be known whether they run."""
        for stmt in body:
            inside = known
            match stmt:
                case Let():
                    if not self.knows(stmt.value):
                        self.unknown.add(stmt.var.name)
                case Store() if stmt.buffer.name in self.followed:
                    if not (known and self.knows(stmt.value)):
                        self.followed.discard(stmt.buffer.name)
                case Alloc() if stmt.buffer.name in self.followed:
                    if stmt.init is not None and not self.knows(stmt.init):
                        self.followed.discard(stmt.buffer.name)
                case If() | While():
                    inside = known and self.knows(stmt.cond)
                case For() | Pipelined():
                    step = stmt.step if isinstance(stmt, For) else None
                    heads = (stmt.start, stmt.stop, *(() if step is None else (step,)))
                    inside = known and all(self.knows(h) for h in heads)
                    if not inside:
                        self.unknown.add(stmt.var.name)
                case _:
                    self.other(stmt)
            for inner in blocks(stmt):
                self.look(inner, known=inside)

    def other(self, stmt: Stmt) -> None:
        """What another statement defines or changes is not known."""
        for f in stmt.fields():
            if f.metadata["kind"] is Kind.BINDS:
                bound = flat(getattr(stmt, f.name))
                self.unknown |= {v.name for v in bound if isinstance(v, Var)}
        for n in (stmt, *own_nodes(stmt)):
            if not isinstance(n, Load):
                self.followed -= {c.name for c in n.children() if isinstance(c, Buffer)}

    def knows(self, node: Node, own: set[str] | None = None) -> bool:
        """Whether a value can be computed ahead; names in `own` count as known."""
        for n in node.walk():
            if isinstance(n, Var) and n.name in self.unknown and n.name not in (own or ()):
                return False
            if isinstance(n, Load) and not self.reads(n):
                return False
            if isinstance(n, (LoadVector, AtomicLoad)):
                return False
        return True

    def reads(self, load: Load) -> bool:
        """Whether an element can be read ahead."""
        if load.buffer.name in self.followed:
            return True
        return load.buffer.scope == "global" and load.buffer.name not in self.changed

    def matters(self, stmt: Stmt) -> bool:
        """Whether a statement gives a variable that is followed its value."""
        return any(
            isinstance(s, Store) and s.buffer.name in self.followed for s in statements((stmt,))
        )


def way_to(body: Block, loop: Pipelined, ahead: Ahead) -> str | None:
    """Why a producer cannot follow the way to a loop; None if it can."""
    for stmt in body:
        if not any(s is loop for s in statements((stmt,))):
            continue
        if stmt is loop:
            heads: tuple[Expr, ...] = (loop.start, loop.stop)
        elif isinstance(stmt, (If, While)):
            heads = (stmt.cond,)
        elif isinstance(stmt, For) and stmt.step is None:
            heads = (stmt.start, stmt.stop)
        else:
            return "it stands inside another kind of loop"
        if not all(ahead.knows(h) for h in heads):
            return "whether it runs depends on what the kernel computes"
        if stmt is loop:
            return None
        for inner in blocks(stmt):
            if any(s is loop for s in statements(inner)):
                return way_to(inner, loop, ahead)
    return "it stands inside another kind of statement"
