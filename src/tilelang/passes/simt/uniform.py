"""Which values of the thread stage are the same in all threads of a block.

What enters: the body of a kernel. What leaves: the names and the arrays of a thread's own that may
differ between threads. Elements of shared and global memory at an index that is the same for all
threads are the same, since a program without races cannot tell otherwise.
"""

from __future__ import annotations

from tilelang.ir.expr import Var
from tilelang.ir.node import Kind, Node, flat
from tilelang.ir.thread import Array, Declare, Elem, Instr, Kernel, Slot, Space, Write
from tilelang.ir.tile import Block, Break, Continue, For, If, Let, Stmt, ThreadReturn, While
from tilelang.passes.issue import ARM

BLOCK_WIDE = ("barrier.red.popc", "barrier.red.and", "barrier.red.or")
"""Rows whose results are the same in all threads of the block."""

OWN = (Space.REGISTER, Space.LOCAL)


def range_of(body: Block) -> range | None:
    """The threads of an arm, if these are its statements."""
    first = body[0] if body else None
    if not isinstance(first, Instr) or first.row != ARM:
        return None
    facts = dict(first.imm)
    return range(facts["first"], facts["first"] + facts["threads"])


_QUERY = "clusterlaunchcontrol.query_cancel"
"""Rows whose results follow from their operands."""


class Uniform:
    """The result; with `arm`, the statements of one arm, as its threads see it."""

    def __init__(self, kernel: Kernel, arm: Block | None = None) -> None:
        self.arm = arm
        self.names: set[str] = {
            v.name for v, n in zip(kernel.thread_vars, kernel.block, strict=False) if n > 1
        }
        self.arrays: set[str] = set()
        before = (-1, -1)
        while before != (len(self.names), len(self.arrays)):
            before = len(self.names), len(self.arrays)
            self._block(kernel.body, False)

    def differs(self, *nodes: Node | None) -> bool:
        """Whether some value in these nodes may differ between threads."""
        for node in (n for root in nodes if root is not None for n in root.walk()):
            if isinstance(node, Var) and node.name in self.names:
                return True
            if isinstance(node, (Elem, Slot)) and node.array.name in self.arrays:
                return True
        return False

    def leaves_apart(self, body: Block, apart: bool = False) -> bool:
        """Whether some threads may leave a round of the loop with this body before others."""
        for stmt in body:
            if isinstance(stmt, (Break, Continue, ThreadReturn)) and apart:
                return True
            if isinstance(stmt, If):
                split = apart or self.differs(stmt.cond)
                if any(self.leaves_apart(b, split) for b in (stmt.then, stmt.orelse)):
                    return True
            elif isinstance(stmt, (For, While)) and self.returns_apart(stmt.body, apart):
                return True
        return False

    def returns_apart(self, body: Block, apart: bool) -> bool:
        """Whether some threads may end inside a loop with this body before others."""
        for stmt in body:
            if isinstance(stmt, ThreadReturn) and apart:
                return True
            if isinstance(stmt, If):
                split = apart or self.differs(stmt.cond)
                if any(self.returns_apart(b, split) for b in (stmt.then, stmt.orelse)):
                    return True
            elif isinstance(stmt, (For, While)):
                split = apart or self.is_apart(stmt)
                if self.returns_apart(stmt.body, split):
                    return True
        return False

    def is_apart(self, stmt: If | For | While) -> bool:
        """Whether threads may take different ways through a statement."""
        if isinstance(stmt, If):
            return self.differs(stmt.cond)
        heads = (stmt.cond,) if isinstance(stmt, While) else (stmt.start, stmt.stop, stmt.step)
        return self.differs(*heads) or self.leaves_apart(stmt.body)

    def _block(self, body: Block, apart: bool) -> None:
        for stmt in body:
            self._stmt(stmt, apart)

    def _stmt(self, stmt: Stmt, apart: bool) -> None:
        other = range_of(stmt.then) if isinstance(stmt, If) else None
        mine = None if self.arm is None else range_of(self.arm)
        if isinstance(stmt, If) and other is not None and mine is not None:
            meet = range(max(mine.start, other.start), min(mine.stop, other.stop))
            if meet:
                self._block(stmt.then, apart or meet != mine)
            if meet != mine:
                self._block(stmt.orelse, apart or bool(meet))
            return
        self._own(stmt, apart)
        inside = apart or (isinstance(stmt, (If, For, While)) and self.is_apart(stmt))
        for f in stmt.fields():
            if f.metadata["kind"] is Kind.BODY:
                body = getattr(stmt, f.name)
                inner = tuple(s for s in flat(body) if isinstance(s, Stmt))
                self._block(inner, inside and body is not self.arm)

    def _own(self, stmt: Stmt, apart: bool) -> None:
        """What a statement itself gives other values in other threads."""
        match stmt:
            case Let():
                if self.differs(stmt.value):
                    self.names.add(stmt.var.name)
            case For():
                if self.differs(stmt.start, stmt.step):
                    self.names.add(stmt.var.name)
            case Write():
                if apart or self.differs(stmt.value, stmt.index):
                    self._array(stmt.array)
            case Declare():
                if self.differs(stmt.init):
                    self._array(stmt.array)
            case Instr():
                alike = stmt.row.startswith(_QUERY) and not self.differs(*stmt.ins)
                if stmt.row not in BLOCK_WIDE and not alike:
                    self.names |= {v.name for v in stmt.results}
                for slot in stmt.outs:
                    self._array(slot.array)
            case _:
                pass

    def _array(self, array: Array) -> None:
        if array.space in OWN:
            self.arrays.add(array.name)
