"""Copies between the cores' own memories, on a chip that has no path between them.

What enters: a function with copies from L0C to UB and from UB to L1. What leaves: on a chip whose
cores reach each other directly, the same; else two copies for each, through a workspace in global
memory that every core group has its own part of. The order of the two is left to the insertion of
flags, for which the workspace is noted as made here.
"""

from __future__ import annotations

from tilelang.dtypes import DType
from tilelang.errors import Loc
from tilelang.ir.ascend import Transfer
from tilelang.ir.expr import Buffer, Expr, Region, const, int_value
from tilelang.ir.simplify import substitute
from tilelang.ir.tile import Alloc, Block, Copy, Function, Launch, Stmt
from tilelang.isa.target import Capability, Target
from tilelang.passes.ascend.effects import Effects
from tilelang.passes.ascend.vectorize_parallel import with_made
from tilelang.passes.build import Names, map_bodies, map_statements
from tilelang.scopes import Memory

VIRTUAL = frozenset({(Memory.L0C, Memory.UB), (Memory.UB, Memory.L1)})
"""What goes through global memory where the cores do not reach each other."""


def route_copies(fn: Function, target: Target) -> Function:
    """The function with copies that the hardware can do."""
    if target.supports(Capability.CORE_COPIES):
        return fn
    names = Names(fn)
    effects = Effects(fn)
    made: list[str] = []

    def on(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Launch):
            return map_bodies(stmt, lambda body: tuple(map(on, body)))
        route = Route(stmt, effects, names)
        body = map_statements(stmt.body, route.one)
        made.extend(a.buffer.name for a in route.made)
        return stmt.with_(body=(*route.made, *body))

    out = fn.with_(body=tuple(map(on, fn.body)))
    return with_made(out, made)


class Route:
    """The copies of one launch."""

    def __init__(self, launch: Launch, effects: Effects, names: Names) -> None:
        self.launch = launch
        self.effects = effects
        self.names = names
        self.made: list[Alloc] = []

    def one(self, stmt: Stmt) -> Block | None:
        """A copy by way of a workspace; None for any other statement.

        Where the end on the cube core depends on the number of the vector core, each vector core
        has a part of the workspace, and the cube core copies all of them.
        """
        if not isinstance(stmt, (Copy, Transfer)):
            return None
        ends = self.effects.memory(stmt.src.buffer), self.effects.memory(stmt.dst.buffer)
        if ends not in VIRTUAL:
            return None
        leaves_cube = ends[0] is Memory.L0C
        far = stmt.src if leaves_cube else stmt.dst
        vid = self.launch.thread_vars[0]
        apart = any(n is vid for e in (*far.mins, *far.extents) for n in e.walk())
        lead = (const(self.subs),) if apart else ()
        inner = tuple(e for e in stmt.dst.extents if int_value(e) != 1) or (const(1),)
        workspace = self.names.buffer(
            f"{stmt.dst.buffer.name}_workspace",
            DType(stmt.dst.dtype),
            (*self.launch.grid, *lead, *inner),
            "global",
        )
        self.made.append(Alloc(workspace, loc=stmt.loc))
        part = self._part(workspace, (vid,) if apart else (), inner, stmt.loc)
        near: Stmt = Copy(stmt.src, part, loc=stmt.loc)
        other: Stmt = Copy(part, stmt.dst, loc=stmt.loc)
        if isinstance(stmt, Transfer):  # what it asks for belongs to the way out of L0C
            near = stmt.with_(dst=part)
        if leaves_cube:
            return (*self._for_each(near, apart=apart), other)
        return (near, *self._for_each(other, apart=apart))

    @property
    def subs(self) -> int:
        """The vector cores of a group."""
        return self.launch.threads[0] if self.launch.threads else 2

    def _part(
        self, workspace: Buffer, lead: tuple[Expr, ...], inner: tuple[Expr, ...], loc: Loc | None
    ) -> Region:
        """The part of a workspace that belongs to this group, or to one of its vector cores."""
        mins = (*self.launch.vars, *lead, *(const(0) for _ in inner))
        ones = tuple(const(1) for _ in (*self.launch.vars, *lead))
        return Region(workspace, mins, (*ones, *inner), loc=loc)

    def _for_each(self, stmt: Stmt, *, apart: bool) -> Block:
        """A statement of the cube core, once for each vector core where that matters."""
        if not apart:
            return (stmt,)
        vid = self.launch.thread_vars[0]
        return tuple(substitute(stmt, {vid: const(k, vid.dtype)}) for k in range(self.subs))
