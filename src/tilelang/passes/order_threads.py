"""Threads meet before they use what others have written, where the author names no barrier.

What enters: a launch whose statements name threads. What leaves: one with a `T.sync_threads` before
each statement in which a thread may touch an element that another thread has touched since they met
last, one of them writing it. GPUs get such barriers from `passes/simt/synchronize.py`; here they
say how far one thread may run before the next. Statements that only some threads reach, and what
one statement does by itself, get none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilelang.ir.expr import Buffer, Expr, Load, LoadVector, Unary, UnaryOp, Var, const, int_value
from tilelang.ir.sync import MbarWait
from tilelang.ir.tile import Block, For, Function, If, Launch, Stmt, SyncThreads, While
from tilelang.isa.target import Target
from tilelang.passes.build import Names, map_statements, plus, times
from tilelang.passes.check.apart import apart
from tilelang.passes.check.domain import symbols
from tilelang.passes.check.walk import AxisKind, Guard, Site, Touch, sites, touches
from tilelang.passes.conflicts import Access, Meetings, Threads
from tilelang.passes.lower_copies import view_roots
from tilelang.passes.lower_parallel import statements
from tilelang.passes.split_threads import Role, ThreadCode
from tilelang.scopes import Memory, memory_of

_BARRIERS = (Memory.BARRIER, Memory.CLUSTER_BARRIER)


def order_threads(fn: Function, target: Target) -> Function:
    """No thread needs what another one does between two places where they meet."""
    del target
    names, roots = Names(fn), view_roots(fn)

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch):
            return None
        code = ThreadCode(fn, stmt, names, roots)
        if not any(code.differs(s) for s in statements(stmt.body)):
            return None
        every = sites(fn)
        start = next(s.order for s in every if s.stmt is stmt) + 1
        made, _, _ = _Order(fn, code, roots, every).block(stmt.body, start, [])
        return (stmt.with_(body=made),)

    return fn.with_(body=map_statements(fn.body, one))


@dataclass(frozen=True)
class _Use:
    """A box that each thread touches; `level` counts the axes around the statements compared."""

    touch: Touch
    root: str
    level: int

    @property
    def writes(self) -> bool:
        return self.touch.writes


class _Order:
    """One launch."""

    def __init__(
        self, fn: Function, code: ThreadCode, roots: dict[str, str], every: Sequence[Site]
    ) -> None:
        self.code = code
        self.roots = roots
        self.sites = every
        self.symbols = symbols(fn)
        self.threads = [v for v, n in code.axes if n > 1]
        extents = {v.name: n for v, n in code.axes}
        self.meetings = Meetings(Threads(extents))

    # Statements, each with its place among the sites, which are in the order of the text ----------

    def block(self, body: Block, order: int, before: list[_Use]) -> tuple[Block, int, list[_Use]]:
        """Statements after uses that no meeting has parted from them; the same afterwards."""
        out: list[Stmt] = []
        for stmt in body:
            made, before = self.statement(stmt, order, before)
            out += made
            order = self.sites[order].last + 1
        return tuple(out), order, before

    def statement(self, stmt: Stmt, order: int, before: list[_Use]) -> tuple[Block, list[_Use]]:
        """One statement, after a meeting if it needs one."""
        control = isinstance(stmt, (If, For, While))
        if control and self.is_common(stmt):
            found = list(self.uses(order))
            meets = any(self.code.meets(s) for s in statements((stmt,)))
            if meets or self.conflict(found, found):
                return self.inside(stmt, order, before)
        elif isinstance(stmt, MbarWait):  # all threads meet there
            return (stmt,), []
        elif not control and self.code.role(stmt) is not Role.THREAD:
            return (stmt,), [] if self.closes(stmt) else before
        found = list(self.uses(order))
        if self.conflict(before, found):
            return (SyncThreads(loc=stmt.loc), stmt), found
        return (stmt,), [*before, *found]

    def closes(self, stmt: Stmt) -> bool:
        """Whether the threads are done with what is before a statement that they do together."""
        return self.code.meets(stmt) or any(True for _ in stmt.effects())

    def is_common(self, stmt: If | For | While) -> bool:
        """Whether all threads take the same way through a statement."""
        heads = [stmt.start, stmt.stop] if isinstance(stmt, For) else [stmt.cond]
        varying = self.code.varying
        return not varying.node(*heads) and (
            isinstance(stmt, If) or not varying.leaves_apart(stmt.body)
        )

    def inside(
        self, stmt: If | For | While, order: int, before: list[_Use]
    ) -> tuple[Block, list[_Use]]:
        """A statement that all threads go through together."""
        if isinstance(stmt, If):
            then, after, one = self.block(stmt.then, order + 1, before)
            orelse, _, other = self.block(stmt.orelse, after, before)
            return (stmt.with_(then=then, orelse=orelse),), [*one, *other]
        _, _, after_round = self.block(stmt.body, order + 1, before)
        body, _, after_all = self.block(stmt.body, order + 1, [*before, *after_round])
        return (stmt.with_(body=body),), [*before, *after_all]

    # Uses ----------------------------------------------------------------------------------------

    def uses(self, order: int) -> Iterator[_Use]:
        """What a statement and those inside it touch of what other threads see."""
        site = self.sites[order]
        level = len(site.place.axes)
        for inner in self.sites[order : site.last + 1]:
            for touch in touches(inner):
                if not self.is_own(touch.buffer):
                    root = self.roots.get(touch.buffer.name, touch.buffer.name)
                    yield _Use(touch, root, level)

    def is_own(self, buffer: Buffer) -> bool:
        """Whether other threads see nothing of a buffer but what arrivals and waits do to it."""
        return (
            self.code.is_private(buffer) or memory_of(self.code.dialect, buffer.scope) in _BARRIERS
        )

    def conflict(self, before: Sequence[_Use], now: Sequence[_Use]) -> bool:
        """Whether threads may meet in an element."""
        return any(self.meet(a, b) for b in now for a in before)

    def meet(self, a: _Use, b: _Use) -> bool:
        """Whether two threads may touch one element, one of them writing it."""
        if a.root != b.root or not (a.writes or b.writes):
            return False
        if a.touch.atomic and b.touch.atomic:
            return False
        if a.touch.buffer != b.touch.buffer or self.differs(a) or self.differs(b):
            return True
        if apart([a.touch, b.touch], self.threads, self.shared(a, b)):
            return False
        one, other = self.access(a), self.access(b)
        return one is None or other is None or self.meetings.meet(one, other)

    def shared(self, a: _Use, b: _Use) -> list[Var]:
        """What has one value for all threads: sizes, blocks, and the loops around both."""
        around = a.touch.place.axes[: min(a.level, b.level)]
        return [*self.symbols, *(x.var for x in around if x.kind is not AxisKind.THREAD)]

    def differs(self, use: _Use) -> bool:
        """Whether a place depends on what a thread has read."""
        known = {x.var.name for x in use.touch.place.axes}
        names = self.code.varying.names - known
        return any(
            isinstance(n, (Load, LoadVector)) or (isinstance(n, Var) and n.name in names)
            for e in (*use.touch.mins, *use.touch.extents)
            for n in e.walk()
        )

    def access(self, use: _Use) -> Access[Buffer] | None:
        """The elements by their number in the buffer; None where that is not known."""
        touch = use.touch
        buffer, sizes = touch.buffer, [int_value(e) for e in touch.extents]
        loops = [x for x in touch.place.axes[use.level :] if x.kind is AxisKind.SERIAL]
        rounds = [(x.var.name, int_value(x.stop) if x.stop is not None else None) for x in loops]
        if any(int_value(x.start) != 0 or x.step != 1 for x in loops):
            return None
        boxes = [(f"{buffer.name}.{k}", n) for k, n in enumerate(sizes) if n != 1]
        if buffer.strides is not None or None in sizes or any(n is None for _, n in rounds):
            return None
        index: Expr = const(0)
        for k, (low, extent) in enumerate(zip(touch.mins, buffer.shape, strict=True)):
            inner = Var(f"{buffer.name}.{k}", low.dtype) if sizes[k] != 1 else 0
            index = plus(times(index, extent), plus(low, inner))
        known = tuple((name, n) for name, n in (*rounds, *boxes) if n is not None)
        if math.prod(n for _, n in known) == 0:
            return None
        return Access(
            buffer,
            index,
            1,
            touch.writes,
            atomic=touch.atomic,
            rounds=known,
            guards=tuple(_condition(g) for g in touch.guards),
        )


def _condition(guard: Guard) -> Expr:
    return guard.cond if guard.holds else Unary(UnaryOp.NOT, guard.cond)
