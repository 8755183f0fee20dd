"""The text of statements that wait, and of work that is under way while the program goes on.

What enters: the statements of `ir.sync`. What leaves: calls of an `Agent`. A kernel with such
statements is a generator function of an agent: a group of threads that run in lockstep, as large as
the author's divergence allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.emulator import agents, ops, products
from tilelang.emulator.lanes import Lanes, statements
from tilelang.emulator.storage import Tile
from tilelang.emulator.tiles import operand
from tilelang.emulator.unit import Unit
from tilelang.emulator.values import Domain, Val, integer
from tilelang.errors import error
from tilelang.ir import sync
from tilelang.ir.expr import Expr, Load, Region
from tilelang.ir.special import ReducerFinalize, ReducerInit
from tilelang.ir.tile import (
    Alloc,
    Block,
    Copy,
    Gemm,
    If,
    Launch,
    Parallel,
    Stmt,
    Store,
    SyncThreads,
    TileOp,
    While,
)

WARP, GROUP = 32, 128

_NO_AGENT = (sync.SyncWarp, sync.Fence, sync.LaunchDependency)
_BLOCKING = (
    sync.MbarWait,
    sync.SyncGrid,
    sync.ClusterBarrier,
    sync.WarpSpecialize,
    sync.WaitGroup,
)


def needs_agents(body: Block) -> bool:
    """Whether a launch waits for anything but the end of its own statements."""
    for stmt in statements(body):
        if isinstance(stmt, SyncThreads) and stmt.barrier_id is not None:
            return True
        if type(stmt).__module__ == sync.__name__ and not isinstance(stmt, _NO_AGENT):
            return True
        if isinstance(stmt, While) and _watches_memory(stmt):
            return True
    return False


def _watches_memory(stmt: While) -> bool:
    """Whether a loop may wait for what another thread or block writes."""
    loads = [n for n in stmt.cond.walk() if isinstance(n, Load)]
    return any(n.buffer.scope == "global" or n.buffer.scope.startswith("shared") for n in loads)


def agent_size(launch: Launch, threads: int, lanes: Lanes) -> int:
    """The threads of an agent: a warp, a warp group or the block, by where threads part ways and wait."""
    if any(
        isinstance(s, If) and lanes.varies(s.cond) and _waits(s) for s in statements(launch.body)
    ):
        return min(WARP, threads)
    if any(isinstance(s, sync.WarpSpecialize) for s in statements(launch.body)):
        return min(GROUP, threads)
    return threads


def _waits(stmt: If) -> bool:
    for inner in statements((*stmt.then, *stmt.orelse)):
        if isinstance(inner, _BLOCKING) or (isinstance(inner, While) and _watches_memory(inner)):
            return True
        if isinstance(inner, SyncThreads) and inner.barrier_id is not None:
            return True
    return False


# -- the head of a kernel ---------------------------------------------------------------------------


LANE = "thread#"
"""The name of the axis of an agent's threads, which no author's name can be."""


def enter(u: Unit, launch: Launch, threads: tuple[int, ...]) -> str:
    """Make the threads of an agent the lanes, in one axis, x fastest.

    Gives the settings of the launch as text: threads, threads of an agent, cluster, and whether all
    blocks run at the same time.
    """
    count = math.prod(threads)
    size = agent_size(launch, count, u.lanes)
    if u.checks is not None:
        raise error(
            "target",
            "the dynamic check does not follow kernels that wait (T.ws, mbarriers, async copies)",
            launch.loc,
            help="run the kernel: reading early gives NaN, and a wait without an end is reported",
        )
    u.agent_threads, u.team, u.team_size = size, None, -(-count // size)
    index_type = launch.thread_vars[0].dtype
    lane = u.constant("lane", _read_only(np.arange(size, dtype=np.int32)), ("agent", size))
    u.domain = Domain((LANE,), (integer(size, index_type),), threads=True)
    u.env[LANE] = Val(lane, index_type, frozenset({0}), 0, size - 1, atom=True)
    names = [u.w.name(v.name) for v in launch.thread_vars]
    u.w.line(f"{', '.join(names)} = agent.lanes")
    for k, var in enumerate(launch.thread_vars):
        if threads[k] > 1:
            high = threads[k] - 1
            v = Val(names[k], var.dtype, frozenset({0}), 0, high, atom=True, owner=u.domain)
            u.env[var.name] = v
        else:
            u.env[var.name] = integer(0, var.dtype)
    if count % size:
        raise error(
            "target",
            f"a kernel whose warps wait for each other, with {count} threads",
            launch.loc,
            expected=f"a multiple of {size} threads",
            help="use whole warps",
        )
    return f"{threads!r}, {size}, {launch.cluster!r}, {_all_at_once(launch)!r}"


def _all_at_once(launch: Launch) -> bool:
    """Whether blocks may wait for each other, so that all of them must be there."""
    for stmt in statements(launch.body):
        if isinstance(stmt, sync.SyncGrid) or (isinstance(stmt, While) and _watches_memory(stmt)):
            return True
    return False


def _read_only(array: Any) -> Any:
    array.flags.writeable = False
    return array


def team_text(u: Unit) -> str:
    """The agents that execute the current statement, and how many they are."""
    return f"{u.team!r}, {u.team_size}"


def together(u: Unit, stmt: Stmt) -> bool:
    """Whether the agents here carry a statement out once, as one."""
    if u.team_size == 1 or u.mask is not None or not u.domain.threads:
        return False
    if isinstance(stmt, (Parallel, ReducerInit, ReducerFinalize)):
        return True
    if isinstance(stmt, Store):
        return not u.private(stmt.buffer) and not u.lanes.varies(*stmt.children())
    if isinstance(stmt, TileOp):
        single = getattr(stmt, "previous", None) is not None
        return not single and not u.lanes.varies(*stmt.children())
    return False


# -- statements -------------------------------------------------------------------------------------


def _loc(u: Unit, stmt: Stmt) -> str:
    return u.constant("loc", stmt.loc, stmt.loc)


def alloc_barriers(u: Unit, stmt: Alloc) -> None:
    """mbarriers, made once for the block."""
    name = u.w.name(stmt.buffer.name)
    u.w.line(f"{name} = agent.mbarriers({stmt.buffer.name!r}, {stmt.arrive_counts!r})")


def _bar(u: Unit, region: Region, stmt: Stmt, cta: Expr | None = None) -> str:
    """The text of the mbarrier that a region names."""
    index, name = u.expr(region.mins[0]).code, u.w.name(region.buffer.name)
    loc = _loc(u, stmt)
    if cta is not None:
        name = f"agent.remote({region.buffer.name!r}, {u.expr(cta).code}, {u.mask_text}, {loc})"
    return f"agent.bar({name}, {index}, {u.mask_text}, {loc})"


def _mbar_arrive(u: Unit, stmt: sync.MbarArrive) -> None:
    u.begin(*stmt.barrier.mins, stmt.tx_bytes, stmt.cta)
    bar = u.w.fresh("bar")
    u.w.line(f"{bar} = {_bar(u, stmt.barrier, stmt, stmt.cta)}")
    if stmt.tx_bytes is not None:
        size = u.expr(stmt.tx_bytes)
        if size.axes:
            raise error("divergence", "bytes that differ between threads", stmt.loc)
        u.w.line(f"{bar}.expect(int({size.code}) * agent.active({u.mask_text}))")
    u.w.line(f"{bar}.arrive(agent.active({u.mask_text}), {_loc(u, stmt)})")


def _mbar_expect(u: Unit, stmt: sync.MbarExpectTx) -> None:
    u.begin(*stmt.barrier.mins, stmt.tx_bytes)
    size = u.expr(stmt.tx_bytes).code
    u.w.line(f"{_bar(u, stmt.barrier, stmt)}.expect(int({size}) * agent.active({u.mask_text}))")


def _mbar_wait(u: Unit, stmt: sync.MbarWait) -> None:
    u.begin(*stmt.barrier.mins, stmt.parity)
    parity = u.expr(stmt.parity).code
    bar = _bar(u, stmt.barrier, stmt)
    u.w.line(f"yield from agent.wait_for({bar}, {parity}, {u.mask_text}, {_loc(u, stmt)})")


def sync_threads(u: Unit, stmt: SyncThreads) -> None:
    """A barrier of the block, or a named one."""
    u.begin(stmt.barrier_id, stmt.arrive_count)
    key = "None" if stmt.barrier_id is None else u.expr(stmt.barrier_id).code
    count = "None" if stmt.arrive_count is None else u.expr(stmt.arrive_count).code
    u.w.line(f"yield from agent.sync({key}, {count}, {u.mask_text}, {_loc(u, stmt)})")


def _sync_grid(u: Unit, stmt: sync.SyncGrid) -> None:
    u.w.line(f"yield from agent.sync_grid({u.mask_text}, {_loc(u, stmt)})")


def _named_arrive(u: Unit, stmt: sync.NamedArrive) -> None:
    u.begin(stmt.barrier_id, stmt.thread_count)
    key, count = u.expr(stmt.barrier_id).code, u.expr(stmt.thread_count).code
    u.w.line(f"agent.arrive_named({key}, {count}, {u.mask_text})")


def _cluster(u: Unit, stmt: sync.ClusterBarrier) -> None:
    step = stmt.step.value.removesuffix(".relaxed")
    u.w.line(f"yield from agent.cluster({step!r}, {u.mask_text}, {_loc(u, stmt)})")


def _specialize(u: Unit, stmt: sync.WarpSpecialize) -> None:
    """Code for some warp groups: a plain condition on the agent."""
    per_group = GROUP // u.agent_threads
    chosen = tuple(g * per_group + k for g in stmt.groups for k in range(per_group))
    outer = u.team, u.team_size
    u.team, u.team_size = chosen, len(chosen)
    with u.w.block(f"if agent.number in {chosen!r}:"):
        u.statements(stmt.body)
    u.team, u.team_size = outer


def _nothing(u: Unit, stmt: Stmt) -> None:
    """What orders accesses or registers has no meaning where accesses happen in order."""


# -- work that is under way -------------------------------------------------------------------------


def _once(u: Unit, stmt: Stmt, lines: Callable[[], None]) -> None:
    """Lines that the agents here carry out once; by itself where only some threads are here."""
    if u.team_size > 1 and u.mask is None:
        with u.w.block(f"if (yield from agent.meet({team_text(u)})):"):
            lines()
    else:
        lines()


def _tiles(u: Unit, stmt: Stmt, *regions: Region) -> list[str]:
    u.begin(*stmt.children())
    out: list[str] = []
    for region in regions:
        name = u.w.fresh("tile")
        u.w.line(f"{name} = {operand(u, region)}")
        out.append(name)
    return out


def _copy_work(u: Unit, stmt: sync.AsyncCopy | sync.TmaCopy | sync.CopyCluster) -> str:
    node = Copy(stmt.src, stmt.dst, loc=stmt.loc)
    return f"{u.constant('later', later, 'later')}({u.constant('copy', ops.copy, 'op')}, {u.constant('op', node)}"


def later(fn: Callable[..., None], *args: Any, **settings: Any) -> agents.Work:
    """A call to be made when its work is complete."""
    return lambda: fn(*args, **settings)


def _async_copy(u: Unit, stmt: sync.AsyncCopy) -> None:
    def lines() -> None:
        src, dst = _tiles(u, stmt, stmt.src, stmt.dst)
        work = f"{_copy_work(u, stmt)}, {src}, {dst})"
        u.w.line(f"agent.start(('cp.async', {u.team!r}), {work}, {dst}, commit=True)")

    _once(u, stmt, lines)


def _commit(u: Unit, stmt: sync.CommitGroup) -> None:
    _once(u, stmt, lambda: u.w.line(f"agent.block.queue(('cp.async', {u.team!r})).commit()"))


def _wait_group(u: Unit, stmt: sync.WaitGroup) -> None:
    u.begin(stmt.count)
    count = u.expr(stmt.count).code
    _once(u, stmt, lambda: u.w.line(f"agent.block.queue(('cp.async', {u.team!r})).wait({count})"))


def _tma_copy(u: Unit, stmt: sync.TmaCopy) -> None:
    def lines() -> None:
        src, dst = _tiles(u, stmt, stmt.src, stmt.dst)
        if stmt.barrier is None:
            work = f"{_copy_work(u, stmt)}, {src}, {dst})"
            u.w.line(f"agent.start('tma.store', {work}, None, commit=True)")
            return
        name, key = u.w.name(stmt.barrier.buffer.name), stmt.barrier.buffer.name
        index = u.expr(stmt.barrier.mins[0]).code
        if not stmt.cluster_mask:
            work = f"{_copy_work(u, stmt)}, {src}, {dst})"
            u.w.line(
                f"agent.load([agent.bar({name}, {index}, None, {_loc(u, stmt)})], [({work}, {dst})])"
            )
            return
        to = u.w.fresh("to")
        spread = u.constant("receivers", receivers, "receivers")
        buffer = stmt.dst.buffer.name
        u.w.line(f"{to} = {spread}(agent, {stmt.cluster_mask}, {buffer!r}, {dst})")
        bars = f"[b.barriers({key!r})[int({index})] for b, _ in {to}]"
        u.w.line(f"agent.load({bars}, [({_copy_work(u, stmt)}, {src}, t), t) for _, t in {to}])")

    _once(u, stmt, lines)


def receivers(
    agent: agents.Agent, mask: int, name: str, dst: Tile
) -> list[tuple[agents.BlockState, Tile]]:
    """The blocks of the cluster that a mask names, each with its own copy of the region."""
    team = agent.block.cluster.ranks
    out: list[tuple[agents.BlockState, Tile]] = []
    for rank, block in team.items():
        if mask >> rank & 1:
            if block is not agent.block and name not in block.memory:
                block.memory[name] = np.full_like(dst.array, dst.array.flat[0])
            array = dst.array if block is agent.block else block.memory[name]
            out.append((block, dst._replace(array=array)))
    return out


def _copy_cluster(u: Unit, stmt: sync.CopyCluster) -> None:
    def lines() -> None:
        src, dst = _tiles(u, stmt, stmt.src, stmt.dst)
        mask = str(stmt.cluster_mask)
        if stmt.dst_block is not None:
            mask = f"1 << int({u.expr(stmt.dst_block).code})"
        to = u.w.fresh("to")
        spread = u.constant("receivers", receivers, "receivers")
        u.w.line(f"{to} = {spread}(agent, {mask}, {stmt.dst.buffer.name!r}, {dst})")
        if stmt.remote_barrier is None:
            with u.w.block(f"for _, {dst} in {to}:"):
                u.w.line(f"{_copy_work(u, stmt)}, {src}, {dst})()")
            return
        key, index = stmt.remote_barrier.buffer.name, u.expr(stmt.remote_barrier.mins[0]).code
        bars = f"[b.barriers({key!r})[int({index})] for b, _ in {to}]"
        u.w.line(f"agent.load({bars}, [({_copy_work(u, stmt)}, {src}, t), t) for _, t in {to}])")

    _once(u, stmt, lines)


def _store_arrive(u: Unit, stmt: sync.TmaStoreArrive) -> None:
    """Each store closes a group of its own already."""


def _store_wait(u: Unit, stmt: sync.TmaStoreWait) -> None:
    _once(u, stmt, lambda: u.w.line(f"agent.block.queue('tma.store').wait({stmt.count})"))


def _async_gemm(u: Unit, stmt: sync.AsyncGemm) -> None:
    def lines() -> None:
        a, b, c = _tiles(u, stmt, stmt.a, stmt.b, stmt.c)
        clear = u.bind(u.expr(stmt.clear_accum)).code
        gemm = u.constant("gemm", products.OPS[Gemm], "op")
        tf32 = ", tf32=True" if u.tf32 else ""
        start = u.constant("later", later, "later")
        work = f"{start}({gemm}, {u.constant('op', stmt)}, {a}, {b}, {c}, {clear}{tf32})"
        if stmt.unit is sync.AsyncUnit.WGMMA:
            u.w.line(f"agent.start(('wgmma', {u.team!r}), {work}, None, commit=True)")
            return
        u.w.line(f"agent.start('tcgen05', {work}, None, commit=True)")
        if stmt.barrier is not None:
            bar = _bar(u, stmt.barrier, stmt)
            u.w.line(f"agent.hand_over('tcgen05', {bar}, 1, {_loc(u, stmt)})")

    _once(u, stmt, lines)


def _wait_wgmma(u: Unit, stmt: sync.WaitWgmma) -> None:
    _once(u, stmt, lambda: u.w.line(f"agent.block.queue(('wgmma', {u.team!r})).wait({stmt.count})"))


def _mma_arrive(u: Unit, stmt: sync.MmaArrive) -> None:
    def lines() -> None:
        u.begin(*stmt.barrier.mins)
        bar = _bar(u, stmt.barrier, stmt)
        u.w.line(f"agent.hand_over('tcgen05', {bar}, 1, {_loc(u, stmt)})")

    _once(u, stmt, lines)


def _cp_async_arrive(u: Unit, stmt: sync.CpAsyncArrive) -> None:
    """Each thread's own copies: every thread arrives once they are complete."""
    u.begin(*stmt.barrier.mins)
    bar = _bar(u, stmt.barrier, stmt)
    count = f"agent.active({u.mask_text})"
    u.w.line(f"agent.hand_over(('cp.async', {u.team!r}), {bar}, {count}, {_loc(u, stmt)})")


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
    sync.TmaStoreArrive: _store_arrive,
    sync.TmaStoreWait: _store_wait,
    sync.CopyCluster: _copy_cluster,
    sync.AsyncGemm: _async_gemm,
    sync.WaitWgmma: _wait_wgmma,
    sync.MmaArrive: _mma_arrive,
    sync.CpAsyncArrive: _cp_async_arrive,
    sync.WarpSpecialize: _specialize,
}
"""The statements of `ir.sync`, by class."""
