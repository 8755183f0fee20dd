"""Whether all threads of a block reach the operations that need all of them.

What enters: a `Program`. What leaves: errors for tile operations and barriers under a condition
that differs between the threads of a block. A condition does if it depends on a thread index, on a
value that does, or on a variable of each thread's own that was given such a value.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.errors import Diagnostic, Loc
from tilelang.ir.expr import Expr, Load, Var, int_value
from tilelang.ir.node import Kind
from tilelang.ir.special import Collective, GemmBlockScaled, GemmSparse, RngNext
from tilelang.ir.text import print_expr
from tilelang.ir.tile import (
    Atomic,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Let,
    Pipelined,
    Reduce,
    Scan,
    Stmt,
    SyncThreads,
    Transpose,
    While,
)
from tilelang.passes.check.program import Program, op_name
from tilelang.passes.check.walk import AxisKind, Site
from tilelang.scopes import Memory

_NEED_ALL = (Copy, Fill, Gemm, GemmSparse, GemmBlockScaled, Reduce, Scan, Transpose)

_PER_THREAD = frozenset({Memory.LOCAL, Memory.VAR})


def all_threads_take_part(program: Program) -> Iterator[Diagnostic]:
    """No tile operation is under a condition that threads of one block decide differently."""
    known = _Divergent(program)
    for site in program.sites:
        if not _needs_all(site.stmt):
            continue
        cause = next((c for c in _conditions(site) if known.differs(c)), None)
        if cause is not None:
            yield _finding(program, site, cause)


def _needs_all(stmt: Stmt) -> bool:
    if isinstance(stmt, SyncThreads):
        return stmt.barrier_id is None
    if isinstance(stmt, Atomic):
        return any(int_value(e) != 1 for e in stmt.dst.extents)
    return isinstance(stmt, _NEED_ALL)


def _conditions(site: Site) -> Iterator[Expr]:
    """The conditions and loop ranges that decide whether, and how often, the statement runs."""
    for guard in site.place.guards:
        # A barrier waits for the threads that have not returned.
        if not guard.specialised and not (guard.ended and isinstance(site.stmt, SyncThreads)):
            yield guard.cond
    for stmt in site.place.path:
        if isinstance(stmt, While):
            yield stmt.cond
        elif isinstance(stmt, (For, Pipelined)):
            yield from (stmt.start, stmt.stop)


class _Divergent:
    """What differs between the threads of a block: variables, and buffers of each thread's own."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.names: set[Var] = set()
        self.buffers: set[str] = set()
        for launch in program.launches:
            self.names.update(launch.thread_vars)
        size = -1
        while size != len(self.names) + len(self.buffers):
            size = len(self.names) + len(self.buffers)
            for site in program.sites:
                self.look_at(site)

    def differs(self, e: Expr) -> bool:
        """Whether threads may have different values of `e`."""
        for node in e.walk():
            if isinstance(node, Var) and node in self.names:
                return True
            if isinstance(node, Load) and node.buffer.name in self.buffers:
                return True
        return False

    def look_at(self, site: Site) -> None:
        """Add what this statement gives different values to."""
        stmt = site.stmt
        if isinstance(stmt, Let) and self.differs(stmt.value):
            self.names.add(stmt.var)
        elif isinstance(stmt, (Collective, RngNext)):
            self.names.add(stmt.result)
        elif isinstance(stmt, Atomic) and stmt.previous is not None:
            self.names.add(stmt.previous)
        elif isinstance(stmt, (For, Pipelined)) and (
            self.differs(stmt.start) or self.differs(stmt.stop)
        ):
            self.names.add(stmt.var)
        for touch in self.program.touches_of(site):
            if touch.writes and self.program.memory(touch.buffer) in _PER_THREAD:
                self.stored(touch.buffer.name, site)

    def stored(self, name: str, site: Site) -> None:
        """A buffer of each thread's own is written: with what, under which conditions?"""
        stmt = site.stmt
        parts = [getattr(stmt, f.name) for f in stmt.fields() if f.metadata["kind"] is Kind.OPERAND]
        values = [p for p in parts if isinstance(p, Expr)]
        inside = bool(site.place.of_kind(AxisKind.PARALLEL))
        if inside or any(self.differs(e) for e in (*values, *_conditions(site))):
            self.buffers.add(name)


def _finding(program: Program, site: Site, cause: Expr) -> Diagnostic:
    stmt = site.stmt
    at = _place_of(site, cause)
    threads = _thread_names(program, cause)
    return Diagnostic(
        "divergence",
        f"{op_name(stmt)} is reached by some threads of a block only",
        stmt.loc,
        label="all threads of the block carry it out together",
        expected="a condition that is the same for all threads",
        got=f"`{print_expr(cause)}`" + (f", which depends on {threads}" if threads else ""),
        help="move it out of the condition, or put it in T.ws for whole warp groups",
        related=((at, "the condition is here"),) if at is not None and at != stmt.loc else (),
    )


def _place_of(site: Site, cause: Expr) -> Loc | None:
    for stmt in site.place.path:
        if isinstance(stmt, (If, While)) and stmt.cond == cause:
            return stmt.loc
    return next((s.loc for s in reversed(site.place.path) if isinstance(s, (If, While))), None)


def _thread_names(program: Program, cause: Expr) -> str:
    threads = {v for launch in program.launches for v in launch.thread_vars}
    return ", ".join(sorted({n.name for n in cause.walk() if isinstance(n, Var) and n in threads}))
