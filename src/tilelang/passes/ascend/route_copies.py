"""Copies between the cores' own memories, on a chip that has no path between them.

What enters: a function with copies from L0C to UB and from UB to L1. What leaves: on a chip whose
cores reach each other directly, the same; else two copies for each, through a workspace in global
memory that every core group has its own part of. The order of the two is left to the insertion of
flags, for which the workspace is noted as made here.

A tile may be read before it is filled, in the order of the program, and be filled in no other way:
a loop that multiplies a tile of L1, and behind that has the vector cores fill it. In the adapter
tree such a fill is for the first read all the same, since the second of the two copies stands just
before the first read there, and cores are ordered by their uses of the workspace. So it is here
where cores are ordered automatically: the workspace holds the whole tile, one copy fetches it
before the first read, the other copies of the launch stand before the first use of what they fill,
and `exchange.py` brings the read behind the fill.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from tilelang.dtypes import DType
from tilelang.errors import Loc
from tilelang.ir.ascend import CrossSet, CrossWait, Transfer
from tilelang.ir.expr import Buffer, Expr, Load, Region, Var, const, int_value
from tilelang.ir.simplify import substitute
from tilelang.ir.tile import Alloc, Block, Copy, Function, If, Launch, Stmt
from tilelang.ir.walk import statements
from tilelang.isa.target import Capability, Target
from tilelang.passes.ascend.effects import Effects
from tilelang.passes.ascend.settings import Automatic, is_automatic
from tilelang.passes.ascend.vectorize_parallel import with_made
from tilelang.passes.build import Names, map_bodies, whole
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
        route = Route(stmt, effects, names, _read_early(fn, stmt, effects))
        body = route.block(stmt.body)
        made.extend(a.buffer.name for a in route.made)
        return stmt.with_(body=(*route.made, *route.fetched.values(), *body))

    out = fn.with_(body=tuple(map(on, fn.body)))
    return with_made(out, made)


class Route:
    """The copies of one launch."""

    def __init__(
        self, launch: Launch, effects: Effects, names: Names, early: Mapping[str, Buffer]
    ) -> None:
        self.launch = launch
        self.effects = effects
        self.names = names
        self.made: list[Alloc] = []
        self.early = early
        self.fetched: dict[str, Alloc] = {}

    def block(self, body: Block) -> Block:
        """A block, and those inside it, with copies that the hardware can do."""
        touched = [{a.root.name for a in self.effects.inside(s)} for s in body]
        counts = Counter(name for names in touched for name in names)
        waiting: dict[str, Block] = {}
        out: list[Stmt] = []
        for stmt, names in zip(body, touched, strict=True):
            here = [n for n in self.early if n in names and counts[n] > 1 and n not in self.fetched]
            out += [self._fetch(self.early[n], stmt.loc) for n in here]
            for name in [n for n in waiting if n in names]:
                out += waiting.pop(name)
            inner = map_bodies(stmt, self.block)
            into, there = self._halves(inner)
            out += into
            if (
                self.early
                and there
                and isinstance(inner, (Copy, Transfer))
                and _is_fixed(inner.dst)
            ):
                waiting[inner.dst.buffer.name] = there
            else:
                out += there
        return (*out, *(s for block in waiting.values() for s in block))

    def _fetch(self, tile: Buffer, loc: Loc | None) -> Stmt:
        """The copy that brings all of a tile which is read before it is filled."""
        made = self.fetched[tile.name] = self._workspace(tile, tile.shape, loc)
        dst = whole(tile, loc)
        return Copy(self._part(made.buffer, dst), dst, loc=loc)

    def _halves(self, stmt: Stmt) -> tuple[Block, Block]:
        """A copy by way of a workspace: into it, and out of it; and any other statement.

        Where the end on the cube core depends on the number of the vector core, each vector core
        has a part of the workspace, and the cube core copies all of them.
        """
        if not _is_virtual(stmt, self.effects):
            return (stmt,), ()
        early = self.fetched.get(stmt.dst.buffer.name)
        if early is not None:
            return (self._into(stmt, self._part(early.buffer, stmt.dst)),), ()
        leaves_cube = self.effects.memory(stmt.src.buffer) is Memory.L0C
        vid = self.launch.thread_vars[0]
        apart = _names(stmt.src if leaves_cube else stmt.dst, vid)
        lead = (const(self.subs),) if apart else ()
        inner = tuple(e for e in stmt.dst.extents if int_value(e) != 1) or (const(1),)
        workspace = self._workspace(stmt.dst.buffer, (*lead, *inner), stmt.loc)
        self.made.append(workspace)
        zeros = tuple(const(0) for _ in inner)
        tile = Region(stmt.dst.buffer, zeros, inner, loc=stmt.loc)
        part = self._part(workspace.buffer, tile, (vid,) if apart else ())
        near, other = self._into(stmt, part), Copy(part, stmt.dst, loc=stmt.loc)
        if leaves_cube:
            return self._for_each(near, apart=apart), (other,)
        return (near,), self._for_each(other, apart=apart)

    def _into(self, stmt: Copy | Transfer, part: Region) -> Stmt:
        """The copy into a workspace: what a transfer asks for belongs to the way out of L0C."""
        if isinstance(stmt, Transfer):
            return stmt.with_(dst=part)
        return Copy(stmt.src, part, loc=stmt.loc)

    def _workspace(self, tile: Buffer, shape: Sequence[Expr], loc: Loc | None) -> Alloc:
        """Global memory of this shape for each group of cores, on the way to a tile."""
        name, dtype = f"{tile.name}_workspace", DType(tile.dtype)
        return Alloc(self.names.buffer(name, dtype, (*self.launch.grid, *shape), "global"), loc=loc)

    @property
    def subs(self) -> int:
        """The vector cores of a group."""
        return self.launch.threads[0] if self.launch.threads else 2

    def _part(self, workspace: Buffer, tile: Region, lead: tuple[Expr, ...] = ()) -> Region:
        """The part of a workspace that belongs to this group, or to one of its vector cores."""
        mine = (*self.launch.vars, *lead)
        ones = tuple(const(1) for _ in mine)
        return Region(workspace, (*mine, *tile.mins), (*ones, *tile.extents), loc=tile.loc)

    def _for_each(self, stmt: Stmt, *, apart: bool) -> Block:
        """A statement of the cube core, once for each vector core where that matters."""
        if not apart:
            return (stmt,)
        vid = self.launch.thread_vars[0]
        return tuple(substitute(stmt, {vid: const(k, vid.dtype)}) for k in range(self.subs))


def _read_early(fn: Function, launch: Launch, effects: Effects) -> dict[str, Buffer]:
    """The tiles that are read before they are filled, where cores are ordered automatically, and
    filled by nothing but copies by way of a workspace. A first read under a condition may be one of
    the round before.
    """
    by_author = any(isinstance(n, (CrossSet, CrossWait)) for n in launch.walk())
    if by_author or not is_automatic(fn, Automatic.CROSS_SYNC):
        return {}
    found: dict[str, Buffer] = {}
    seen: set[str] = set()
    filled: set[str] = set()
    for stmt, around in statements(launch.body):
        fills = _is_virtual(stmt, effects) and not _names(stmt.src, launch.thread_vars[0])
        chosen = any(isinstance(s, If) for s in around)
        for a in sorted(effects.of(stmt), key=lambda a: a.writes):
            name = a.root.name
            if name not in seen and not a.writes and not chosen:
                found[name] = a.root
            elif a.writes and fills:
                filled.add(name)
            elif a.writes:
                found.pop(name, None)
            seen.add(name)
    return {name: tile for name, tile in found.items() if name in filled}


def _is_virtual(stmt: Stmt, effects: Effects) -> TypeGuard[Copy | Transfer]:
    """Whether a statement is a copy between the cores' own memories."""
    if not isinstance(stmt, (Copy, Transfer)):
        return False
    return (effects.memory(stmt.src.buffer), effects.memory(stmt.dst.buffer)) in VIRTUAL


def _is_fixed(region: Region) -> bool:
    """Whether the place of a region does not change with what is in memory."""
    return not any(isinstance(n, Load) for e in (*region.mins, *region.extents) for n in e.walk())


def _names(region: Region, var: Var) -> bool:
    """Whether the place of a region depends on a variable."""
    return any(n is var for e in (*region.mins, *region.extents) for n in e.walk())
