"""Tiles stored by tensor copies: one thread hands a tile over, and the others go on.

What enters: copies of shared tiles into global arrays, and results that lie in a shared tile on
their way there. What leaves: every thread orders its writes before what the unit reads, all meet,
and the first thread issues the stores, closes their group and waits until the tile has been read;
whoever writes the tile next meets it again. When the kernel ends the stores are done. Results are
the same; arrays, tiles and chips that do not allow it are stored by all threads, and the report
says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from tilelang.ir.affine import Analysis
from tilelang.ir.expr import Buffer, Expr, Region, Var, const
from tilelang.ir.node import Node
from tilelang.ir.tile import (
    Annotate,
    Block,
    Copy,
    Function,
    Gemm,
    If,
    Launch,
    Parallel,
    Stmt,
    Store,
    SyncThreads,
)
from tilelang.isa.target import Capability, Target
from tilelang.layout.placement import GROUP
from tilelang.passes.build import Names, as_type, map_bodies, map_statements, whole
from tilelang.passes.issue import Arm, Issue
from tilelang.passes.lower_copies import view_roots
from tilelang.passes.lower_parallel import own_nodes, statements
from tilelang.passes.simt.launch import WARP, Note, Threads, noted
from tilelang.passes.simt.switches import is_off
from tilelang.passes.simt.tensor_copies import Boxes, array_faults, boxes, may_lie, placements
from tilelang.passes.varying import Varying
from tilelang.scopes import Memory


def tma_store(fn: Function, target: Target) -> Function:
    """Copies from shared into global memory are tensor copies where that is possible."""
    if not is_possible(fn, target):
        return fn
    names, roots = Names(fn), view_roots(fn)
    notes: list[Note] = []

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch):
            return None
        threads = Threads(fn, stmt, names, roots)
        made = _Stores(threads)
        body = made.block(stmt.body, threads)
        notes.extend(threads.notes)
        return (stmt.with_(body=(*made.lies(), *body)),)

    return noted(fn.with_(body=map_statements(fn.body, one)), notes)


def is_possible(fn: Function, target: Target) -> bool:
    """Whether tensor copies may store results."""
    return target.supports(Capability.TMA) and not is_off(fn, "tma-store")


def store_faults(found: Boxes | str, t: Threads) -> Iterator[str]:
    """Why a tile is not stored by tensor copies."""
    if isinstance(found, str):
        yield found
        return
    if t.count % WARP:
        yield f"{t.count} threads are no whole warps"
    if found.bytes < GROUP * t.count:
        yield f"{found.tile.buffer.name} has less than {GROUP} bytes for each thread"
    buffer = found.place.buffer
    params = {p.buffer.name for p in t.fn.params if p.buffer is not None and not p.pointer}
    yield from array_faults(buffer, params, t.launch.body)
    uses = [s for s in statements(t.launch.body) if _mentions(s, buffer.name)]
    if len(uses) != 1:
        yield f"{buffer.name} is used in another place of the kernel"


def _mentions(stmt: Stmt, name: str) -> bool:
    return not isinstance(stmt, Annotate) and any(
        isinstance(n, Buffer) and n.name == name for n in own_nodes(stmt)
    )


def handed_over(found: Boxes, t: Threads, stmt: Stmt, *, waits: bool = True) -> Block:
    """What the first thread does after all have met; without `waits`, the tile is still read."""
    closed = Issue("cp.async.bulk.commit_group", (), (), loc=stmt.loc)
    after = (have_been_read(stmt),) if waits else ()
    return (If(t.first(), (*found.stores(stmt), closed, *after), loc=stmt.loc),)


def have_been_read(stmt: Stmt | None = None) -> Stmt:
    """A wait until the tiles have been read that the thread has handed over."""
    loc = None if stmt is None else stmt.loc
    return Issue("cp.async.bulk.wait_group.read", (), (), imm=(("count", 0),), loc=loc)


class _Stores:
    """One launch."""

    def __init__(self, threads: Threads) -> None:
        body = threads.launch.body
        axes = zip(threads.launch.thread_vars, threads.extents, strict=True)
        seeds = [v for v, n in axes if n > 1]
        self.varying = Varying(body, seeds, threads.is_private, threads.roots)
        self.multiplied = {
            r.buffer.name for s in statements(body) if isinstance(s, Gemm) for r in (s.a, s.b)
        }
        self.placed = placements(body)
        self.viewed = {*threads.roots, *threads.roots.values()}
        self.chosen: dict[str, Boxes] = {}

    def lies(self) -> Iterator[Stmt]:
        """How the tiles lie that are stored."""
        for name, found in self.chosen.items():
            yield from () if name in self.placed else found.lies()

    def block(self, body: Block, t: Threads) -> Block:
        """Statements of a range of threads."""
        return tuple(x for s in body for x in self.statement(s, t))

    def statement(self, stmt: Stmt, t: Threads) -> Block:
        """One statement."""
        if isinstance(stmt, Arm):
            part = t.arm(stmt.first, stmt.count, 0)
            return (map_bodies(stmt, lambda b: self.block(b, part)),)
        if not isinstance(stmt, Copy) or not self.is_result(stmt, t):
            return (map_bodies(stmt, lambda b: self.block(b, t)),)
        found = boxes(stmt.src, stmt.dst)
        fault = next(chain(store_faults(found, t), self.tile_faults(found)), None)
        if fault is not None or isinstance(found, str):
            t.note("declined", f"not stored by tensor copies: {fault}", stmt.loc)
            return (stmt,)
        self.chosen[found.tile.buffer.name] = found
        t.note("stored", f"{stmt.dst.buffer.name} by tensor copies", stmt.loc)
        fence = Issue("fence.proxy.async", (), (), loc=stmt.loc)
        return (fence, SyncThreads(loc=stmt.loc), *handed_over(found, t, stmt))

    def is_result(self, stmt: Copy, t: Threads) -> bool:
        """Whether threads bring a shared tile into global memory together."""
        return (
            t.memory(stmt.src.buffer) is Memory.SHARED
            and t.memory(stmt.dst.buffer) is Memory.GLOBAL
            and not dict(stmt.hints).get("disable_tma")
            and not self.varying.node(*stmt.children())
        )

    def tile_faults(self, found: Boxes | str) -> Iterator[str]:
        """Why a tile cannot lie as tensor copies want it."""
        if isinstance(found, str):
            return
        name = found.tile.buffer.name
        known = self.placed.get(name)
        if name in self.chosen:
            known = self.chosen[name].placement
        if name in self.viewed:
            yield f"another view of {name} exists"
        elif known not in (None, found.placement) or not may_lie(found, self.multiplied):
            yield f"{name} has to lie otherwise"


# Results on their way through shared memory ------------------------------------------------------


@dataclass(frozen=True)
class Result:
    """A nest that stores to a global array what lies in a shared tile of its extents."""

    nest: Parallel
    store: Store
    stage: Buffer

    def boxes(self, t: Threads) -> Boxes | None:
        """The tile as boxes of the array, if tensor copies can store it."""
        mins: list[Expr] = []
        extents: list[Expr] = []
        left = list(zip(self.nest.vars, self.nest.extents, strict=True))
        for index in self.store.indices:
            walks = [v for v in self.nest.vars if v in index.walk()]
            if walks and (not left or walks != [left[0][0]] or not _steps(index, walks[0])):
                return None
            extents.append(left.pop(0)[1] if walks else const(1))
            mins.append(_without(index, walks))
        if left:
            return None
        place = Region(self.store.buffer, tuple(mins), tuple(extents), loc=self.store.loc)
        found = boxes(whole(self.stage), place)
        return None if isinstance(found, str) or any(store_faults(found, t)) else found


def _steps(index: Expr, var: Var) -> bool:
    """Whether an index is a sum of a variable and what does not depend on it."""
    terms = Analysis({}, False).linear(index).terms
    return all(factor == 1 if e == var else var not in e.walk() for e, factor in terms.items())


def _without(index: Expr, walks: Sequence[Var]) -> Expr:
    """An index where a variable is 0."""
    names = {v.name for v in walks}

    def one(n: Node) -> Node | None:
        return as_type(const(0), n.type) if isinstance(n, Var) and n.name in names else None

    if isinstance(index, Var):
        return as_type(const(0), index.type) if index.name in names else index
    return index.rewrite(one)
