"""The text of barriers, and of asynchronous copies and products.

What enters: the statements of `ir.sync`. What leaves: calls of an `Agent`. `STATEMENTS` is the
table of them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tilelang.emulator import agents, inflight, lane_copies, ops, products, scaled
from tilelang.emulator.storage import Tile
from tilelang.emulator.tiles import operand
from tilelang.emulator.unit import Unit
from tilelang.emulator.values import Val, tuple_text
from tilelang.emulator.waits import loc_text, ways_of, what
from tilelang.errors import error
from tilelang.ir import sync
from tilelang.ir.expr import Binary, BinaryOp, Cast, Const, Expr, Load, Region, int_value
from tilelang.ir.scales import AsyncScaledGemm, PairScaledGemm, ScaleCopy
from tilelang.ir.tile import Alloc, Block, Copy, Gemm, Let, Stmt, SyncThreads
from tilelang.scopes import Memory, memory_of

# -- barriers --------------------------------------------------------------------------------------


def _by_threads(u: Unit, stmt: Stmt) -> None:
    """Refuse a statement of threads where iterations run."""
    if not u.domain.threads:
        raise error(
            "divergence",
            f"{what(stmt)} inside T.Parallel: which thread runs an iteration is not defined",
            stmt.loc,
            help="write it before or after the loop",
        )


def alloc_barriers(u: Unit, stmt: Alloc) -> None:
    """mbarriers, made once for the block."""
    name = u.w.name(stmt.buffer.name)
    u.w.line(f"{name} = agent.mbarriers({stmt.buffer.name!r}, {stmt.arrive_counts!r})")


def _bars(u: Unit, region: Region) -> str:
    """The text of a buffer of mbarriers and an index."""
    return f"{u.w.name(region.buffer.name)}, {u.expr(region.mins[0]).code}"


def _mbar_arrive(u: Unit, stmt: sync.MbarArrive) -> None:
    _by_threads(u, stmt)
    u.begin(*stmt.barrier.mins, stmt.tx_bytes, stmt.cta)
    extra = f", tx={u.expr(stmt.tx_bytes).code}" if stmt.tx_bytes is not None else ""
    if stmt.cta is not None:
        extra += f", cta=({stmt.barrier.buffer.name!r}, {u.expr(stmt.cta).code})"
    bars = _bars(u, stmt.barrier)
    u.w.line(f"agent.arrive({bars}, {u.mask_text}, {loc_text(u, stmt)}{extra})")


def _mbar_expect(u: Unit, stmt: sync.MbarExpectTx) -> None:
    _by_threads(u, stmt)
    u.begin(*stmt.barrier.mins, stmt.tx_bytes)
    bars, tx = _bars(u, stmt.barrier), u.expr(stmt.tx_bytes).code
    u.w.line(f"agent.expect({bars}, {u.mask_text}, {loc_text(u, stmt)}, {tx})")


def _mbar_wait(u: Unit, stmt: sync.MbarWait) -> None:
    _by_threads(u, stmt)
    u.begin(*stmt.barrier.mins, stmt.parity)
    bars, parity = _bars(u, stmt.barrier), u.expr(stmt.parity).code
    u.w.line(f"yield from agent.wait_for({bars}, {parity}, {u.mask_text}, {loc_text(u, stmt)})")


def sync_threads(u: Unit, stmt: SyncThreads) -> None:
    """A barrier of the team, or a named one."""
    _by_threads(u, stmt)
    place = loc_text(u, stmt)
    if stmt.barrier_id is None:
        u.w.line(f"yield from agent.sync({ways_of(u).team!r}, {u.mask_text}, {place})")
        return
    u.begin(stmt.barrier_id, stmt.arrive_count)
    key = u.expr(stmt.barrier_id).code
    count = "None" if stmt.arrive_count is None else u.expr(stmt.arrive_count).code
    u.w.line(f"yield from agent.named({key}, {count}, {u.mask_text}, {place})")


def _sync_grid(u: Unit, stmt: sync.SyncGrid) -> None:
    if u.domain.threads:
        u.w.line(f"yield from agent.sync_grid({u.mask_text}, {loc_text(u, stmt)})")
        return
    if u.mask is not None:
        _by_threads(u, stmt)
    # All iterations are here, and all threads of the team with them.
    team = ways_of(u).team
    u.w.line(f"yield from agent.sync_grid(None, {loc_text(u, stmt)}, {team!r})")


def _named_arrive(u: Unit, stmt: sync.NamedArrive) -> None:
    _by_threads(u, stmt)
    u.begin(stmt.barrier_id, stmt.thread_count)
    key, count = u.expr(stmt.barrier_id).code, u.expr(stmt.thread_count).code
    u.w.line(f"agent.arrive_named({key}, {count}, {u.mask_text})")


def _cluster(u: Unit, stmt: sync.ClusterBarrier) -> None:
    _by_threads(u, stmt)
    step = stmt.step.value.removesuffix(".relaxed")
    u.w.line(f"yield from agent.cluster({step!r}, {u.mask_text}, {loc_text(u, stmt)})")


def _nothing(u: Unit, stmt: Stmt) -> None:
    """What orders accesses or registers has no meaning where accesses happen in order."""


# -- operations that one thread issues -------------------------------------------------------------


def _picked(v: Val, lane: str, u: Unit) -> str:
    """A value of the thread that issues an operation."""
    return f"{u.constant('at', agents.at, 'at')}({v.code}, {lane})" if v.axes else v.code


def _tile(u: Unit, region: Region, lane: str) -> str:
    """The text of a region where the threads may mean different ones."""
    if any(u.expr(n).axes for n in region.extents):
        u.refuse_threads(f"the extents of a region of {region.buffer.name} differ")
    if not any(u.expr(m).axes for m in region.mins):
        return operand(u, region)
    mins = tuple_text(_picked(u.expr(m), lane, u) for m in region.mins)
    extents = tuple_text(u.expr(n).code for n in region.extents)
    place = u.access_name(region.buffer, region.loc)
    return f"Tile({u.storage(region.buffer).name}, {mins}, {extents}, {place})"


@contextmanager
def _led(
    u: Unit, stmt: Stmt, *regions: Region, scope: int | None = None
) -> Generator[tuple[str, list[str]]]:
    """Lines for each thread that issues an operation: the text of its lane, and its regions."""
    _by_threads(u, stmt)
    for region in regions:
        if u.storage(region.buffer).lanes:
            u.refuse_threads(f"every thread has a {region.buffer.name} of its own")
    lane = u.w.fresh("lane")
    first = ways_of(u).team[0]
    with u.w.block(f"for {lane} in agent.leaders({u.mask_text}, {scope}, {first}):"):
        u.begin(*stmt.children())
        tiles: list[str] = []
        for region in regions:
            name = u.w.fresh("tile")
            u.w.line(f"{name} = {_tile(u, region, lane)}")
            tiles.append(name)
        yield lane, tiles


def _copy_of(u: Unit, stmt: sync.AsyncCopy | sync.TmaCopy | sync.CopyCluster) -> str:
    return u.constant("copy", partial(ops.copy, Copy(stmt.src, stmt.dst, loc=stmt.loc)))


def _bar_of(u: Unit, region: Region, lane: str, name: str) -> str:
    """An mbarrier as an argument: its buffer, the index, and a name."""
    index = _picked(u.expr(region.mins[0]), lane, u)
    return f"({u.w.name(region.buffer.name)}, {index}, {name!r})"


def _tma_copy(u: Unit, stmt: sync.TmaCopy) -> None:
    copy, place = _copy_of(u, stmt), loc_text(u, stmt)
    scope = dict(stmt.hints).get("leader_scope_threads")
    with _led(u, stmt, stmt.src, stmt.dst, scope=scope) as (lane, (src, dst)):
        if stmt.barrier is None:
            u.w.line(f"agent.store({copy}, {src}, {dst}, {lane}, {place})")
            return
        buffer = stmt.barrier.buffer
        if stmt.cluster_mask:
            bar = _bar_of(u, stmt.barrier, lane, buffer.name)
            to = f"({stmt.cluster_mask}, {u.lanes.root(stmt.dst.buffer.name)!r})"
            u.w.line(f"agent.spread({copy}, {src}, {dst}, {bar}, {to}, {place})")
            return
        of_cluster = memory_of(u.dialect, buffer.scope) is Memory.CLUSTER_BARRIER
        bar = _bar_of(u, stmt.barrier, lane, buffer.name if of_cluster else "")
        u.w.line(f"agent.load({copy}, {src}, {dst}, {bar}, {place})")


def _rows_text(u: Unit, stmt: sync.TmaGather4 | sync.TmaScatter4, lane: str) -> str:
    """The numbers of four rows as an argument."""
    return tuple_text(f"int({_picked(u.expr(r), lane, u)})" for r in stmt.rows)


def _gather(u: Unit, stmt: sync.TmaGather4) -> None:
    with _led(u, stmt, stmt.src, stmt.dst) as (lane, (src, dst)):
        bar = _bar_of(u, stmt.barrier, lane, "")
        rows = _rows_text(u, stmt, lane)
        u.w.line(f"agent.gather({src}, {rows}, {dst}, {bar}, {loc_text(u, stmt)})")


def _scatter(u: Unit, stmt: sync.TmaScatter4) -> None:
    with _led(u, stmt, stmt.src, stmt.dst) as (lane, (src, dst)):
        rows = _rows_text(u, stmt, lane)
        u.w.line(f"agent.scatter({src}, {dst}, {rows}, {lane}, {loc_text(u, stmt)})")


def _try_cancel(u: Unit, stmt: sync.ClcTryCancel) -> None:
    with _led(u, stmt, stmt.response, scope=1) as (lane, (into,)):
        bar = _bar_of(u, stmt.barrier, lane, stmt.barrier.buffer.name)
        everyone = u.lanes.root(stmt.response.buffer.name) if stmt.multicast else ""
        u.w.line(f"agent.try_cancel({into}, {bar}, {everyone!r}, {loc_text(u, stmt)})")


def told(stmt: sync.ClcQuery) -> Let:
    """What an answer says, as a load of the word that `Agent.try_cancel` wrote."""
    buffer, (*outer, first) = stmt.response.buffer, stmt.response.mins
    at = Binary(BinaryOp.ADD, first, Const(sync.CLC_PARTS[stmt.part][1], first.dtype))
    word: Expr = Load(buffer, (*outer, at), loc=stmt.loc)
    if word.dtype != stmt.result.type:
        word = Cast(word, stmt.result.type)
    return Let(stmt.result, word, loc=stmt.loc)


def _copy_cluster(u: Unit, stmt: sync.CopyCluster) -> None:
    copy, place = _copy_of(u, stmt), loc_text(u, stmt)
    name = u.lanes.root(stmt.dst.buffer.name)
    if stmt.dst_block is None:
        _broadcast(u, stmt)
        return
    with _led(u, stmt, stmt.src, stmt.dst) as (lane, (src, dst)):
        rank = _picked(u.expr(stmt.dst_block), lane, u)
        bar = "None"
        if stmt.remote_barrier is not None:
            bar = _bar_of(u, stmt.remote_barrier, lane, stmt.remote_barrier.buffer.name)
        u.w.line(f"agent.push({copy}, {src}, {dst}, (int({rank}), {name!r}), {bar}, {place})")


def _broadcast(u: Unit, stmt: sync.CopyCluster) -> None:
    """All agents wait until the one that carries it out has the data."""
    _whole(u, stmt)
    u.begin(*stmt.children())
    tiles = f"{operand(u, stmt.src)}, {operand(u, stmt.dst)}"
    key = f"{stmt.cluster_mask}, {u.constant('key', object())}, {loc_text(u, stmt)}"
    u.w.line(f"yield from agent.broadcast({_copy_of(u, stmt)}, {tiles}, {key})")


def _whole(u: Unit, stmt: Stmt) -> None:
    """Refuse an operation of whole warp groups where only some threads arrive."""
    _by_threads(u, stmt)
    if u.mask is not None or u.lanes.varies(*stmt.children()):
        raise error(
            "divergence",
            f"{what(stmt)} is an operation of the whole block, where only some threads arrive",
            stmt.loc,
            expected="a place that all threads of the block reach together",
            help="move the operation out of the condition, or put it in T.ws for whole warp groups",
        )


def _store_arrive(u: Unit, stmt: sync.TmaStoreArrive) -> None:
    u.w.line(f"agent.commit('bulk', {u.mask_text})")


def _store_wait(u: Unit, stmt: sync.TmaStoreWait) -> None:
    u.w.line(f"agent.wait_group('bulk', {stmt.count}, {u.mask_text}, read={stmt.read})")


# -- cp.async --------------------------------------------------------------------------------------


def _async_copy(u: Unit, stmt: sync.AsyncCopy) -> None:
    if not stmt.commit:
        _lane_copy(u, stmt)
        return
    _whole(u, stmt)
    u.begin(*stmt.children())
    src, dst = u.w.fresh("tile"), u.w.fresh("tile")
    u.w.line(f"{src} = {operand(u, stmt.src)}")
    u.w.line(f"{dst} = {operand(u, stmt.dst)}")
    made = _op(u, f"{_copy_of(u, stmt)}, {src}, {dst}", stmt, [src], [dst])
    u.w.line(f"agent.issue('cp.async', {made}, {_team(u)})")


def _op(u: Unit, call: str, stmt: Stmt, reads: list[str], writes: list[str]) -> str:
    """The text of an operation that makes a call, with the memory that it needs."""
    later, op = u.constant("later", partial, "later"), u.constant("Op", inflight.Op, "Op")
    places = f"reads={tuple_text(reads)}, writes={tuple_text(writes)}"
    return f"{op}({later}({call}), {loc_text(u, stmt)}, {what(stmt)!r}, {places})"


def _team(u: Unit) -> str:
    return f"agent.block.threads_of({ways_of(u).team!r})"


def _lane_copy(u: Unit, stmt: sync.AsyncCopy) -> None:
    """Every active thread copies for itself."""
    _by_threads(u, stmt)
    u.begin(*stmt.children())
    count = int_value(stmt.dst.extents[-1])
    sides: list[str] = []
    for region in (stmt.src, stmt.dst):
        s = u.storage(region.buffer)
        mins = tuple_text(u.expr(m).code for m in region.mins)
        sides.append(f"({s.name}, {mins}, {u.access_name(region.buffer, region.loc)})")
    pred = "None" if stmt.pred is None else u.expr(stmt.pred).code
    fn = u.constant("LaneCopy", lane_copies.LaneCopy, "LaneCopy")
    made = f"{fn}({', '.join(sides)}, {count}, {pred}, agent.count)"
    u.w.line(f"agent.copy_lanes({made}, {u.mask_text}, {loc_text(u, stmt)})")


def _commit(u: Unit, stmt: sync.CommitGroup) -> None:
    _by_threads(u, stmt)
    u.w.line(f"agent.commit('cp.async', {u.mask_text})")


def _wait_group(u: Unit, stmt: sync.WaitGroup) -> None:
    _by_threads(u, stmt)
    u.begin(stmt.count)
    u.w.line(f"agent.wait_group('cp.async', {u.expr(stmt.count).code}, {u.mask_text})")


def _cp_async_arrive(u: Unit, stmt: sync.CpAsyncArrive) -> None:
    _by_threads(u, stmt)
    u.begin(*stmt.barrier.mins)
    bars = _bars(u, stmt.barrier)
    u.w.line(f"agent.hand_over('cp.async', {bars}, {u.mask_text}, {loc_text(u, stmt)})")


# -- products --------------------------------------------------------------------------------------


def _async_gemm(u: Unit, stmt: sync.AsyncGemm) -> None:
    if stmt.unit is sync.AsyncUnit.WGMMA:
        _whole(u, stmt)
        u.begin(*stmt.children())
        tiles = [u.w.fresh("tile") for _ in range(3)]
        for name, region in zip(tiles, (stmt.a, stmt.b, stmt.c), strict=True):
            u.w.line(f"{name} = {operand(u, region)}")
        share = f"share={u.constant('share', inflight.Share.GROUPS, 'groups')}"
        u.w.line(f"agent.issue('wgmma', {_product(u, stmt, tiles)}, {_team(u)}, {share})")
        return
    regions = _operands(stmt)
    with _led(u, stmt, *regions) as (lane, tiles):
        issue = f"agent.issue('tcgen05', {{}}, agent.leader({lane}))"
        start = "0"
        if isinstance(stmt, AsyncScaledGemm):
            start = _picked(u.expr(stmt.k_start), lane, u)
        later = u.constant("later", _with_settings, "with_settings")
        gemm = f"{later}({u.constant('op', stmt)}, {_cleared(u, stmt)}, {u.tf32}, {start})"
        if not stmt.two_cta:
            text = _op(u, f"{gemm}, {', '.join(tiles)}", stmt, [*tiles[:2], *tiles[3:]], [tiles[2]])
            u.w.line(issue.format(_in_queue(text)))
            if stmt.barrier is not None:
                _arrive_when_done(u, stmt.barrier, lane, stmt, pair=False)
            return
        columns, op = -2 if stmt.transpose_b else -1, u.w.fresh("op")
        given = f"{tuple_text(tiles)}, {_roots(u, regions)}, {columns}, {loc_text(u, stmt)}"
        with u.w.block(f"for {op} in agent.pair_product({gemm}, {given}):"):
            u.w.line(issue.format(op))
            if stmt.barrier is not None:
                _arrive_when_done(u, stmt.barrier, lane, stmt, pair=True)


def pairs_meet(stmt: Stmt) -> Block | None:
    """The blocks of a pair meet before and after the first of them has multiplied."""
    if not isinstance(stmt, PairScaledGemm):
        return None
    meet = sync.ClusterBarrier(sync.ClusterStep.SYNC, loc=stmt.loc)
    return (meet, stmt, meet)


def _pair_scaled(u: Unit, stmt: PairScaledGemm) -> None:
    """The first block of a pair multiplies for both."""
    _whole(u, stmt)
    u.begin(*stmt.children())
    later, op, regions = u.constant("later", _with_settings), u.w.fresh("op"), _operands(stmt)
    start = u.expr(stmt.k_start).code
    gemm = f"{later}({u.constant('op', stmt)}, {_cleared(u, stmt)}, False, {start})"
    tiles, columns = tuple_text(operand(u, r) for r in regions), -2 if stmt.transpose_b else -1
    given = f"{tiles}, {_roots(u, regions)}, {columns}, {loc_text(u, stmt)}"
    with u.w.block(f"for {op} in agent.pair_product({gemm}, {given}):"):
        u.w.line(f"agent.issue('tcgen05', {op}, agent.leader(0))")
        u.w.line(f"{op}.complete()")


def _operands(stmt: sync.AsyncGemm | PairScaledGemm) -> tuple[Region, ...]:
    operands = (stmt.a, stmt.b, stmt.c)
    scaled = isinstance(stmt, (AsyncScaledGemm, PairScaledGemm))
    return (*operands, stmt.sfa, stmt.sfb) if scaled else operands


def _roots(u: Unit, regions: tuple[Region, ...]) -> str:
    """The names that buffers have in all blocks."""
    return tuple_text(repr(u.lanes.root(r.buffer.name)) for r in regions)


def _in_queue(op: str) -> str:
    """The text of an operation that the tcgen05 unit does after those before it."""
    return f"{op.removesuffix(')')}, adds=True, queue='tcgen05')"


def _with_settings(
    node: sync.AsyncGemm | PairScaledGemm, clear: bool, tf32: bool, start: int
) -> Callable[..., None]:
    """The product of a node, as a function of its tiles."""
    if isinstance(node, AsyncScaledGemm):
        return partial(scaled.gemm_of_cells, node, clear, int(start))
    if isinstance(node, PairScaledGemm):
        return lambda *tiles: scaled.gemm_block_scaled(node, *tiles, clear, int(start))

    def gemm(a: Tile, b: Tile, c: Tile) -> None:
        products.OPS[Gemm](node, a, b, c, clear, **({"tf32": True} if tf32 else {}))

    return gemm


def _scale_copy(u: Unit, stmt: ScaleCopy) -> None:
    copy = u.constant("copy", scaled.copy_words)
    with _led(u, stmt, stmt.src, stmt.dst) as (lane, tiles):
        src, dst = tiles
        op = _in_queue(_op(u, f"{copy}, {src}, {dst}", stmt, [src], [dst]))
        issue = f"agent.issue('tcgen05', {op}, agent.leader({lane}))"
        if not stmt.two_cta:
            u.w.line(issue)
            return
        given = f"{tuple_text(tiles)}, {_roots(u, (stmt.src, stmt.dst))}, {loc_text(u, stmt)}"
        with u.w.block(f"for {src}, {dst} in agent.pair_tiles({given}):"):
            u.w.line(issue)


def _cleared(u: Unit, stmt: sync.AsyncGemm | PairScaledGemm) -> str:
    clear = u.expr(stmt.clear_accum)
    if clear.axes:
        u.refuse_threads("whether the accumulator is cleared differs")
    return clear.code


def _product(u: Unit, stmt: sync.AsyncGemm, tiles: list[str]) -> str:
    gemm = u.constant("gemm", products.OPS[Gemm], "op")
    tf32 = ", tf32=True" if u.tf32 else ""
    call = f"{gemm}, {u.constant('op', stmt)}, {', '.join(tiles)}, {_cleared(u, stmt)}{tf32}"
    text = _op(u, call, stmt, tiles[:2], tiles[2:])
    return f"{text.removesuffix(')')}, adds=True)"


def _arrive_when_done(u: Unit, barrier: Region, lane: str, stmt: Stmt, *, pair: bool) -> None:
    index = _picked(u.expr(barrier.mins[0]), lane, u)
    bars, both = u.w.name(barrier.buffer.name), f", {barrier.buffer.name!r}" if pair else ""
    u.w.line(f"agent.commit_product({bars}, {index}, {lane}, {loc_text(u, stmt)}{both})")


def _mma_arrive(u: Unit, stmt: sync.MmaArrive) -> None:
    with _led(u, stmt) as (lane, _):
        _arrive_when_done(u, stmt.barrier, lane, stmt, pair=stmt.two_cta)


def _wait_wgmma(u: Unit, stmt: sync.WaitWgmma) -> None:
    _by_threads(u, stmt)
    u.w.line(f"agent.wait_group('wgmma', {stmt.count}, {u.mask_text})")


STATEMENTS: dict[type[Stmt], Callable[[Unit, Any], None]] = {
    sync.SyncWarp: _nothing,
    sync.Fence: _nothing,
    sync.LaunchDependency: _nothing,
    sync.SyncGrid: _sync_grid,
    sync.NamedArrive: _named_arrive,
    sync.ClusterBarrier: _cluster,
    sync.MbarArrive: _mbar_arrive,
    sync.MbarExpectTx: _mbar_expect,
    sync.MbarWait: _mbar_wait,
    sync.AsyncCopy: _async_copy,
    sync.CommitGroup: _commit,
    sync.WaitGroup: _wait_group,
    sync.TmaCopy: _tma_copy,
    sync.TmaGather4: _gather,
    sync.TmaScatter4: _scatter,
    sync.TmaStoreArrive: _store_arrive,
    sync.TmaStoreWait: _store_wait,
    sync.ClcTryCancel: _try_cancel,
    sync.CopyCluster: _copy_cluster,
    sync.AsyncGemm: _async_gemm,
    sync.WaitWgmma: _wait_wgmma,
    AsyncScaledGemm: _async_gemm,
    PairScaledGemm: _pair_scaled,
    ScaleCopy: _scale_copy,
    sync.MmaArrive: _mma_arrive,
    sync.CpAsyncArrive: _cp_async_arrive,
}
"""How each of these statements is translated."""
