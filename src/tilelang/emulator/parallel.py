"""The text of T.Parallel: all iterations at once, as lanes of arrays.

What enters: a nest of parallel loops. What leaves: its body, translated for the domain of its
iterations. A variable or local array from outside that iterations set to values of their own
becomes one per iteration inside, and is undefined afterwards; one that iterations update from its
old value is refused.
"""

from __future__ import annotations

import numpy as np

from tilelang.emulator import control, vectors
from tilelang.emulator.lanes import Lanes, exposed, nodes_of, statements, written
from tilelang.emulator.storage import poison
from tilelang.emulator.unit import Frame, Unit
from tilelang.emulator.values import Domain, Storage, Val, integer
from tilelang.errors import error
from tilelang.ir.expr import Buffer, Load, Region, Var, const
from tilelang.ir.special import RngNext
from tilelang.ir.tile import (
    Alloc,
    Block,
    Continue,
    For,
    Parallel,
    Pipelined,
    Stmt,
    Store,
    While,
)
from tilelang.scopes import Memory, memory_of

_THREAD_OWN = frozenset({Memory.LOCAL, Memory.VAR})
PRIVATE = _THREAD_OWN | {Memory.FRAGMENT}


def memory(u: Unit, buffer: Buffer) -> Memory:
    """The canonical memory of a buffer."""
    return memory_of(u.dialect, buffer.scope)


def parallel(u: Unit, stmt: Parallel) -> None:
    """A nest of parallel loops."""
    if u.domain.rank and not u.domain.threads:
        _as_loops(u, stmt)
        return
    if u.mask is not None:
        raise error(
            "divergence",
            "T.Parallel where only some threads of the block arrive",
            stmt.loc,
            expected="a place that all threads of the block reach",
            help="move the condition into the body, or write a loop for each thread (T.serial)",
        )
    u.begin(*stmt.extents)
    extents = [u.bind(u.expr(e)) for e in stmt.extents]
    if any(e.axes for e in extents):
        u.refuse_threads("an extent of T.Parallel differs from thread to thread")
    if any(e.constant == 0 for e in extents):
        return
    if not u.domain.rank and _draws_in_turn(stmt.body):
        # The one thread takes all numbers of an iteration before those of the next.
        stmt, extents = Parallel((), (), _loops(stmt), loc=stmt.loc), []
    open_ones = [e.code for e in extents if e.low <= 0]
    if open_ones:
        with u.w.block(f"if {' and '.join(f'{c} > 0' for c in open_ones)}:"):
            _nest(u, stmt, extents)
    else:
        _nest(u, stmt, extents)


def _as_loops(u: Unit, stmt: Parallel) -> None:
    """Parallel loops inside others: any order is right, so one after the other is."""
    u.statements(_loops(stmt))


def _draws_in_turn(body: Block) -> bool:
    """Whether an iteration may take several random numbers."""
    draws = sum(isinstance(s, RngNext) for s in statements(body))
    inner = [s.body for s in statements(body) if isinstance(s, (For, Pipelined, While, Parallel))]
    return draws > 1 or any(isinstance(s, RngNext) for b in inner for s in statements(b))


def _loops(stmt: Parallel) -> Block:
    """The iterations in order."""
    inner: Block = stmt.body
    for var, extent in reversed(list(zip(stmt.vars, stmt.extents, strict=True))):
        inner = (For(var, const(0, var.dtype), extent, inner, loc=stmt.loc),)
    return inner


def _nest(u: Unit, stmt: Parallel, extents: list[Val]) -> None:
    outer = u.domain, u.lanes, u.frames, u.inside
    wide = [(v, e) for v, e in zip(stmt.vars, extents, strict=True) if e.constant != 1]
    names = ", ".join(v.name for v in stmt.vars)
    u.w.line(f"# for {names} in parallel({', '.join(e.code for e in extents)})")
    u.domain = Domain(tuple(v.name for v, _ in wide), tuple(e for _, e in wide))
    for var, extent in zip(stmt.vars, extents, strict=True):
        if extent.constant == 1:
            u.env[var.name] = integer(0, var.dtype)
    for k, (var, extent) in enumerate(wide):
        _axis(u, var, extent, k)
    own = _outer_private(u, stmt.body)
    inside = {s.buffer.name for s in statements(stmt.body) if isinstance(s, Alloc)}
    u.inside = inside
    u.lanes = Lanes(
        stmt.body,
        u.domain.names,
        lambda b: (
            (u.roots.get(b.name, b.name) in inside and memory(u, b) in PRIVATE) or b.name in own
        ),
        u.roots,
    )
    shadowed = _privatise(u, stmt.body, own)
    u.frames = [_frame(u, stmt.body)]
    before = u.checks.enter(u) if u.checks is not None else ""
    u.statements(stmt.body)
    if u.checks is not None:
        u.checks.leave(u, before)
    u.domain, u.lanes, u.frames, u.inside = outer
    for s in shadowed:
        _forget(u, s)


def _axis(u: Unit, var: Var, extent: Val, k: int) -> None:
    following = u.domain.rank - 1 - k
    count = extent.constant
    if count is not None:
        index = np.arange(count, dtype=var.dtype.numpy).reshape((count,) + (1,) * following)
        index.flags.writeable = False
        code = u.constant("lane", index, (count, following, var.dtype))
    else:
        code = u.w.name(var.name)
        kind = u.constant("dtype", var.dtype.numpy, var.dtype.numpy)
        u.w.line(f"{code} = axis({extent.code}, {following}, {kind})")
    u.env[var.name] = Val(
        code, var.dtype, frozenset({k}), 0, max(extent.high - 1, 0), atom=True, owner=u.domain
    )


def _frame(u: Unit, body: Block) -> Frame:
    """Where `continue` in the body leads."""
    own = any(isinstance(s, Continue) for s in _same_round(body))
    if not own:
        return Frame(loop=False)
    frame = Frame(u.w.fresh("gone"), loop=False)
    u.w.line(f"{frame.gone} = zeros({u.domain.shape}, bool)")
    return frame


def _same_round(body: Block) -> list[Stmt]:
    """The statements that are not in a loop inside."""
    found: list[Stmt] = []
    for s in body:
        found.append(s)
        if not isinstance(s, (For, Parallel)) and control.leaves(s):
            found.extend(statements((s,)))
    return found


def _outer_private(u: Unit, body: Block) -> dict[str, Buffer]:
    """Outer buffers of a thread's own that iterations write, not each at a place of its own."""
    found: dict[str, Buffer] = {}
    if not u.domain.rank:
        return found
    inside = {s.buffer.name for s in statements(body) if isinstance(s, Alloc)}
    for stmt in statements(body):
        for buffer in written(stmt):
            if (
                u.roots.get(buffer.name, buffer.name) in inside
                or memory(u, buffer) not in _THREAD_OWN
            ):
                continue
            if not (isinstance(stmt, Store) and _covers(u, stmt)):
                found[buffer.name] = buffer
    return found


def _covers(u: Unit, stmt: Store) -> bool:
    used = {n.name for n in nodes_of(*stmt.indices) if isinstance(n, Var)}
    return set(u.domain.names) <= used


def _privatise(u: Unit, body: Block, own: dict[str, Buffer]) -> list[Storage]:
    """Give each iteration its own instance of the buffers that lane-dependent values reach; the old
    ones come back.
    """
    shadowed: list[Storage] = []
    for name, buffer in own.items():
        scalar = memory(u, buffer) is Memory.VAR
        stale = exposed(body, name, scalar=scalar)
        if stale is not None and scalar:
            raise _carried(u, buffer, stale)
        if not u.lanes.per_lane(buffer):
            continue
        old = u.stores[name]
        shadowed.append(old)
        new = u.w.fresh(f"each_{u.w.name(name)}_")
        shape = f"{u.domain.shape} + {vectors.shape_text(u, buffer.dtype, buffer.shape)}"
        dtype = u.constant("dtype", buffer.dtype, buffer.dtype)
        if stale is None or old.lanes:
            u.w.line(f"{new} = fresh({shape}, {dtype})")
        else:
            u.w.line(f"{new} = filled({shape}, {dtype}, {old.name})")
        u.stores[name] = Storage(new, buffer, old.access, lanes=True, owner=u.domain)
        if u.checks is not None:
            u.checks.born(u, u.stores[name], written=stale is not None)
    return shadowed


def _carried(u: Unit, buffer: Buffer, use: object) -> Exception:
    loc = use.loc if isinstance(use, (Load, Region)) and use.loc is not None else u.w.loc
    return error(
        "race",
        f"iterations of T.Parallel read {buffer.name} before they set it, and set it",
        loc,
        expected="each iteration sets the variable before it reads it",
        got=f"{buffer.name} carried between iterations, which have no order",
        help="use T.reduce_sum, a reducer or T.atomic_add, or a sequential loop (T.serial)",
    )


def _forget(u: Unit, s: Storage) -> None:
    """After the loop the variable is undefined."""
    u.stores[s.buffer.name] = s
    if not s.scalar:
        bad = u.constant("undefined", poison(s.buffer.dtype), s.buffer.dtype)
        u.w.line(f"{s.name}[...] = {bad}")
        if u.checks is not None:
            u.checks.forget(u, s)
        return
    dtype = s.buffer.dtype
    bad = poison(dtype)
    if dtype.is_vector:
        u.w.line(f"{s.name} = {vectors.undefined(u, dtype).code}")
    elif dtype.is_float:
        u.w.line(f"{s.name} = {u.constant('undefined', bad, dtype)}")
    else:
        u.w.line(f"{s.name} = {bool(bad) if dtype.is_bool else int(bad)}")
