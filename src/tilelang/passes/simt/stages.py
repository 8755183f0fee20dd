"""What of a pipelined loop may be done ahead.

What enters: a pipelined loop. What leaves: its `Plan` (the copies from global into shared memory
that depend on nothing that the rounds compute, the names that they need, and the tiles that then
have one place for each stage) or the reason why there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

from tilelang.errors import Loc
from tilelang.ir.affine import is_stable
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Expr,
    Load,
    LoadVector,
    Region,
    Var,
    const,
    int_value,
)
from tilelang.ir.node import Kind, Node, flat
from tilelang.ir.scales import ScaleCopy
from tilelang.ir.sync import AsyncGemm
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Block,
    Copy,
    Let,
    Pipelined,
    Reduce,
    Scan,
    Stmt,
    Store,
    StoreVector,
    View,
)
from tilelang.passes.build import as_type, minus
from tilelang.passes.issue import Issue
from tilelang.passes.lower_parallel import own_nodes, statements, written
from tilelang.passes.simt.launch import Threads, static_shape
from tilelang.scopes import Memory


@dataclass(frozen=True)
class Declined:
    """An optimisation that was not made, and why."""

    loc: Loc | None
    reason: str


@dataclass(frozen=True)
class Plan:
    """`ahead` are the copies that may be issued before their round, `lets` the names that they
    need, `rest` the other statements; `tiles` are the buffers that get one place for each stage.
    """

    loop: Pipelined
    ahead: tuple[Copy, ...]
    lets: tuple[Let, ...]
    rest: Block
    tiles: tuple[Buffer, ...]


def plan(loop: Pipelined, t: Threads, launch_body: Block) -> Plan | Declined:
    """What of a loop may be done ahead."""
    tiles: dict[str, Buffer] = {}
    ahead: list[Copy] = []
    why = "no copy from global to shared memory stands directly in the loop"
    changed = {b.name for s in statements(loop.body) for b in written(s)}
    for stmt in loop.body:
        if not _is_load(stmt, t):
            continue
        copy = cast("Copy", stmt)
        found = next(_faults(copy, loop, t, launch_body, changed), None)
        if found is None and copy.dst.buffer.name not in tiles:
            tiles[copy.dst.buffer.name] = copy.dst.buffer
            ahead.append(copy)
        else:
            why = found or "a tile is copied twice in one round"
            if copy.dst.buffer.name in tiles:
                del tiles[copy.dst.buffer.name]
                ahead = [c for c in ahead if c.dst.buffer.name != copy.dst.buffer.name]
    if not ahead:
        return Declined(loop.loc, why)
    used = _needed(loop.body, ahead) or set()
    lets = tuple(s for s in loop.body if isinstance(s, Let) and s.var.name in used)
    rest = tuple(s for s in loop.body if not any(s is c for c in ahead))
    return Plan(loop, tuple(ahead), lets, rest, tuple(tiles.values()))


def _is_load(stmt: Stmt, t: Threads) -> bool:
    return (
        isinstance(stmt, Copy)
        and t.memory(stmt.src.buffer) is Memory.GLOBAL
        and t.memory(stmt.dst.buffer) is Memory.SHARED
    )


def _faults(
    copy: Copy, loop: Pipelined, t: Threads, launch_body: Block, changed: set[str]
) -> Iterator[str]:
    """Why a copy cannot be done ahead."""
    dst = copy.dst.buffer
    shape = static_shape(dst)
    extents = tuple(int_value(e) for e in copy.dst.extents)
    if shape != extents or any(int_value(m) != 0 for m in copy.dst.mins):
        yield f"{dst.name} is copied in part"
    if dst.name in t.roots or dst.name in t.roots.values():
        yield f"another view of {dst.name} exists"
    if dict(copy.hints).get("prefer_instruction") == "sync":
        yield f"{dst.name} is to be copied at once"
    if copy.src.dtype != dst.dtype:
        yield f"the copy into {dst.name} converts"
    if copy.src.buffer.name in changed:
        yield f"{copy.src.buffer.name} is written in the loop"
    if _outside(launch_body, loop, dst.name):
        yield f"{dst.name} is used outside of the loop"
    for stmt in loop.body:
        if stmt is copy:
            break
        if _touches(stmt, dst.name):
            yield f"{dst.name} is used before it is copied"
    yield from _still_read(loop.body, dst.name)
    if _needed(loop.body, [copy]) is None:
        yield f"the source of {dst.name} depends on what the round computes"


def _still_read(body: Block, name: str) -> Iterator[str]:
    """Why the tensor cores may still read a tile when its round is over."""
    if any(isinstance(s, ScaleCopy) and _touches(s, name) for s in statements(body)):
        yield f"scales in {name} are copied to Tensor Memory"
    if any(awaited(body, s) is None for s in _issued(body, name)):
        yield f"a product that reads {name} is not waited for in its round"


def _issued(body: Block, name: str) -> Iterator[AsyncGemm]:
    """The products that read a buffer and are only issued."""
    for stmt in statements(body):
        if isinstance(stmt, AsyncGemm) and _touches(stmt, name):
            yield stmt


def awaited(body: Block, product: AsyncGemm) -> int | None:
    """The statement that waits for a product that stands before it, on its own mbarrier."""
    barrier = product.barrier
    begun = False
    for k, stmt in enumerate(body):
        begun = begun or stmt is product
        waits = isinstance(stmt, Issue) and stmt.row.startswith("mbarrier.try_wait")
        if begun and waits and barrier is not None and _touches(stmt, barrier.buffer.name):
            return k
    return None


def _touches(stmt: Stmt, name: str) -> bool:
    return any(isinstance(n, Buffer) and n.name == name for n in stmt.walk())


def _outside(body: Block, loop: Pipelined, name: str) -> bool:
    """Whether statements outside of the loop use a buffer, its allocation left out."""
    for stmt in body:
        if stmt is loop or isinstance(stmt, (Alloc, Annotate)):
            continue
        if any(isinstance(n, Buffer) and n.name == name for n in own_nodes(stmt)):
            return True
        for f in stmt.fields():
            if f.metadata["kind"] is Kind.BODY and _outside(getattr(stmt, f.name), loop, name):
                return True
    return False


def _needed(body: Block, copies: list[Copy]) -> set[str] | None:
    """The names of the round that copies need; None if one of them cannot be known ahead."""
    changed = {b.name for s in statements(body) for b in written(s)}
    lets = {s.var.name: s for s in body if isinstance(s, Let)}
    bound = {
        v.name
        for s in statements(body)
        for f in s.fields()
        if f.metadata["kind"] is Kind.BINDS
        for v in flat(getattr(s, f.name))
        if isinstance(v, Var)
    }
    out: set[str] = set()
    stack: list[Node] = [c.src for c in copies]
    while stack:
        node = stack.pop()
        for n in node.walk():
            if isinstance(n, (Load, LoadVector)) and n.buffer.name in changed:
                return None
            if isinstance(n, Load) and not is_stable(n) and type(n) is not Load:
                return None
            if isinstance(n, Var) and n.name in bound and n.name not in out:
                let = lets.get(n.name)
                if let is None:
                    return None
                out.add(n.name)
                stack.append(let.value)
    return out


# Stages ------------------------------------------------------------------------------------------


def staged_buffer(buffer: Buffer, stages: int) -> Buffer:
    """A tile with one place for each stage."""
    return buffer.with_(shape=(const(stages), *buffer.shape))


def in_stage(stmt: Stmt, tiles: Mapping[str, Buffer], stage: Expr) -> Stmt:
    """A statement that uses the given stage of tiles."""

    def one(n: Node) -> Node | None:
        name = getattr(getattr(n, "buffer", None), "name", "")
        if isinstance(n, Region) and name in tiles:
            return Region(tiles[name], (stage, *n.mins), (const(1), *n.extents), loc=n.loc)
        if isinstance(n, (Load, LoadVector, Store, StoreVector)) and name in tiles:
            return n.with_(buffer=tiles[name], indices=(stage, *n.indices))
        if isinstance(n, (Reduce, Scan)) and n.src.buffer.name in tiles and n.dim >= 0:
            return n.with_(dim=n.dim + 1)
        return None

    made = stmt.rewrite(one)
    return cast("Stmt", one(made) or made)


def unusual(body: Block, tiles: Mapping[str, Buffer]) -> Stmt | None:
    """A statement that uses a tile in another way than element by element or as a region."""
    for stmt in statements(body):
        if isinstance(stmt, (View, Annotate)):
            continue
        for n in (stmt, *own_nodes(stmt)):
            holds = [x for x in n.children() if isinstance(x, Buffer) and x.name in tiles]
            if holds and not isinstance(n, (Region, Load, LoadVector, Store, StoreVector)):
                return stmt
    return None


def stage_of(loop: Pipelined, k: Expr, stages: int) -> Expr:
    """The stage of the round in which the loop variable is `k`."""
    from_start = minus(k, as_type(loop.start, k.dtype)) if int_value(loop.start) != 0 else k
    return Binary(BinaryOp.FLOORMOD, from_start, as_type(const(stages), k.dtype))


def allocations(body: Block) -> Iterator[Alloc]:
    """All allocations."""
    yield from (s for s in statements(body) if isinstance(s, Alloc))
