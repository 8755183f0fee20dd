"""Blocks that take several tiles one after the other, where the author has one for each.

What enters: a function whose launches have their blocks in the order in which they are to begin.
What leaves: launches of products with as many blocks as the chip has SMs, each of which goes
through every so many of the author's blocks in a loop: while a block stores a result, the copies of
its next tile are under way. Nothing but the assignment of work to SMs changes; a launch whose
blocks could tell stays as it is, and the report says why.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from tilelang.ir.expr import (
    AtomicLoad,
    Binary,
    BinaryOp,
    Expr,
    Var,
    const,
    int_value,
)
from tilelang.ir.sync import (
    AsyncGemm,
    ClusterBarrier,
    LaunchDependency,
    MbarWait,
    SyncGrid,
    TmaCopy,
    TmaGather4,
    TmaScatter4,
    WarpSpecialize,
)
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Atomic,
    Block,
    Copy,
    Function,
    Gemm,
    Launch,
    Let,
    Parallel,
    Pipelined,
    Print,
    Stmt,
    Store,
    ThreadReturn,
    While,
)
from tilelang.isa.target import Capability, Target
from tilelang.passes.build import (
    Names,
    as_type,
    map_statements,
    minus,
    plus,
    serial,
    static_extents,
    times,
)
from tilelang.passes.lower_copies import view_roots
from tilelang.passes.lower_parallel import own_nodes, statements
from tilelang.passes.simt.launch import Note, Threads, noted
from tilelang.passes.simt.software_pipeline import byte_size
from tilelang.passes.simt.switches import is_off
from tilelang.scopes import Memory

MOST_THREADS = 256
"""With as many threads and a warpgroup more for copies, a block is alone on its SM."""

SLACK = 5120
"""Bytes of shared memory kept free for barriers and exchanges."""

STAGES = 3
"""The stages that must stay in shared memory beside a result."""

_TOLD_APART = (
    ThreadReturn,
    While,
    Print,
    WarpSpecialize,
    SyncGrid,
    ClusterBarrier,
    LaunchDependency,
    MbarWait,
    TmaCopy,
    TmaGather4,
    TmaScatter4,
    AsyncGemm,
)
"""What a block can tell that it is not alone by, or does for itself alone."""


def persistent(fn: Function, target: Target) -> Function:
    """Launches of products whose blocks stay."""
    chip = target.chip
    if chip is None or chip.cores is None or not target.supports(Capability.WGMMA):
        return fn
    names, roots = Names(fn), view_roots(fn)
    notes: list[Note] = []
    cores = chip.cores.value

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch):
            return None
        threads = Threads(fn, stmt, names, roots)
        loops = [s for s in statements(stmt.body) if isinstance(s, Pipelined)]
        tiles = math.prod(int_value(e) or 0 for e in stmt.grid)
        if (
            math.prod(stmt.cluster) > 1
            or tiles <= cores
            or not any(isinstance(s, Gemm) for p in loops for s in statements(p.body))
        ):
            return None
        why = next(_faults(stmt, loops, threads, target), None)
        if why is not None:
            threads.note("declined", f"blocks do not stay for more tiles: {why}", loops[0].loc)
            notes.extend(threads.notes)
            return None
        threads.note("persistent", f"{cores} blocks take {tiles} tiles in turn", stmt.loc)
        notes.extend(threads.notes)
        return (_staying(stmt, tiles, cores, names),)

    return noted(fn.with_(body=map_statements(fn.body, one)), notes)


def _faults(launch: Launch, loops: list[Pipelined], t: Threads, target: Target) -> Iterator[str]:
    """Why the blocks of a launch are not made to stay."""
    for name in ("persistent", "warp-specialize", "tma"):
        if is_off(t.fn, name):
            yield f"{name} is left out"
    if t.count < MOST_THREADS or t.extents[1:] != (1, 1):
        yield f"several blocks of {t.count} threads share an SM"
    body = launch.body
    for s in statements(body):
        if isinstance(s, _TOLD_APART) or any(isinstance(n, AtomicLoad) for n in own_nodes(s)):
            yield "a block would notice"
        if isinstance(s, Alloc) and t.memory(s.buffer) in (Memory.BARRIER, Memory.CLUSTER_BARRIER):
            yield "a block would notice"
        if isinstance(s, Atomic) and s.previous is not None:
            yield "blocks number themselves by atomic updates"
    inside = {id(s) for p in loops for s in statements(p.body)}
    loads = [s for s in statements(body) if _between(s, t, Memory.GLOBAL, Memory.SHARED)]
    if any(id(s) not in inside for s in loads):
        yield "tiles are loaded outside of pipelined loops"
    block = {v.name for v in launch.vars} | {
        s.var.name for s in body if isinstance(s, Let) and not int_value(s.value)
    }
    for p in loops:
        if any(isinstance(n, Var) and n.name in block for e in (p.start, p.stop) for n in e.walk()):
            yield "blocks differ in what they have to do"
        if not _has_room(body, p, t, target):
            yield "there is no room for a result beside the stages"


def _between(s: Stmt, t: Threads, src: Memory, dst: Memory) -> bool:
    return isinstance(s, Copy) and t.memory(s.src.buffer) is src and t.memory(s.dst.buffer) is dst


def result_bytes(body: Block, t: Threads) -> int:
    """Bytes of the largest result that lies in shared memory on its way to a global array."""
    sizes = [0]
    for s in statements(body):
        if _between(s, t, Memory.FRAGMENT, Memory.GLOBAL) and isinstance(s, Copy):
            sizes.append(math.prod(static_extents(s.src) or ()) * s.dst.dtype.bytes)
        if isinstance(s, Parallel) and len(s.body) == 1 and isinstance(s.body[0], Store):
            store = s.body[0]
            if t.memory(store.buffer) is Memory.GLOBAL:
                count = math.prod(int_value(e) or 0 for e in s.extents)
                sizes.append(count * store.buffer.dtype.bytes)
    return max(sizes)


def free_bytes(body: Block, tiles: Collection[str], t: Threads, target: Target) -> int:
    """Bytes of shared memory for stages of tiles and a result, beside the other arrays."""
    capacity = target.capacity(Memory.SHARED)
    shared = [s.buffer for s in statements(body) if isinstance(s, Alloc)]
    taken = sum(
        byte_size(b) for b in shared if t.memory(b) is Memory.SHARED and b.name not in tiles
    )
    return (1 << 30 if capacity is None else capacity.amount) - taken - SLACK


def _has_room(body: Block, loop: Pipelined, t: Threads, target: Target) -> bool:
    """Whether stages and a result fit into shared memory."""
    tiles = {
        s.dst.buffer.name: byte_size(s.dst.buffer)
        for s in loop.body
        if _between(s, t, Memory.GLOBAL, Memory.SHARED) and isinstance(s, Copy)
    }
    free = free_bytes(body, tiles, t, target) - result_bytes(body, t)
    return free >= min(STAGES, loop.num_stages) * sum(tiles.values())


def _staying(launch: Launch, tiles: int, cores: int, names: Names) -> Launch:
    """The launch with `cores` blocks, each of which does every `cores`-th of the author's."""
    loc, kind = launch.loc, launch.vars[0].type
    block, turn, number = (
        names.var("worker", kind),
        names.var("turn", kind),
        names.var("tile", kind),
    )
    left: Expr = plus(minus(as_type(const(tiles - 1), kind), block), cores)
    turns = Binary(BinaryOp.FLOORDIV, left, as_type(const(cores), kind))
    lets: list[Stmt] = [Let(number, plus(block, times(turn, cores)), loc=loc)]
    rest: Expr = number
    for k, (v, extent) in enumerate(zip(launch.vars, launch.grid, strict=True)):
        size = as_type(extent, kind)
        last = k == len(launch.vars) - 1
        here = rest if last else Binary(BinaryOp.FLOORMOD, rest, size)
        lets.append(Let(v, as_type(here, v.type), loc=loc))
        rest = Binary(BinaryOp.FLOORDIV, rest, size)
    kept = tuple(s for s in launch.body if isinstance(s, Annotate))
    body = tuple(s for s in launch.body if not isinstance(s, Annotate))
    loop = serial(turn, turns, (*lets, *body), loc)
    return launch.with_(vars=(block,), grid=(const(cores),), body=(*kept, loop))
