"""Barriers of a block, of a cluster and of the grid, mbarriers, fences, and control of the launch.

PTX ISA 9.0: "bar, barrier", "barrier.cluster", "mbarrier", "membar, fence", "setmaxnreg".
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import numpy as np

from tilelang.simulator.gpu.arrays import Place, Values, Window
from tilelang.simulator.gpu.barriers import Mbarrier, NamedBarrier, Phases
from tilelang.simulator.gpu.block import ASYNC, WARP, Block
from tilelang.simulator.gpu.rows.registry import Use, row
from tilelang.simulator.machine import Wait, Who
from tilelang.simulator.machine.clocks import Actors, join_told
from tilelang.simulator.machine.schedule import Steps

WORD = np.dtype(np.uint64)


# Named barriers ----------------------------------------------------------------------------------


def _numbers(use: Use) -> tuple[int, int]:
    """The number of a barrier and the threads that it counts, in whole warps."""
    if "id" in use.imm:
        number = use.imm["id"]
        threads = use.imm.get("threads", use.group.block.warps * WARP)
    else:
        number, threads = (_one(use, k) for k in (0, 1))
    if not 0 <= number < 16:
        raise use.fault("value", f"there is no barrier {number}", expected="0 to 15")
    return number, -(-threads // WARP) * WARP


def _one(use: Use, k: int) -> int:
    """An operand that must be the same for all lanes that take part."""
    found = np.unique(use.value(k)[use.lanes])
    if found.size != 1:
        raise use.refused("has operands that differ between threads")
    return int(found[0])


def _arrive(use: Use, vote: Values | None = None) -> NamedBarrier:
    """The warps of a group arrive."""
    number, wanted = _numbers(use)
    group, block = use.group, use.group.block
    barrier = block.barrier(number)
    if barrier.wanted not in (0, wanted):
        raise use.fault(
            "divergence",
            f"barrier {number} is used for {wanted} threads while {barrier.wanted} are awaited",
            help="give each number of threads a barrier of its own",
        )
    barrier.wanted = wanted
    barrier.everyone = use.facts.row == "barrier.sync.all"
    ended = group.returned.reshape(-1, WARP).all(axis=1)
    barrier.gone |= {group.warps[k] for k in np.flatnonzero(ended)}
    here = {group.warps[k] for k in use.whole_warps()}
    if here & barrier.warps:
        raise use.fault("divergence", f"a warp arrives at barrier {number} twice in one phase")
    barrier.warps |= here
    barrier.phases.give(group.actors_of(use.mask))
    if vote is not None:
        barrier.votes += vote[use.lanes].astype(bool).tolist()
    if len(barrier.warps) * WARP > wanted:
        raise use.fault("divergence", f"barrier {number}: more than {wanted} threads arrive")
    if is_complete(block, barrier):
        barrier.finish()
    return barrier


def is_complete(block: Block, barrier: NamedBarrier) -> bool:
    """Whether all have arrived; at a barrier that counts no threads, those that have ended have."""
    if len(barrier.warps) * WARP == barrier.wanted:
        return True
    left = barrier.warps | barrier.gone | block.ended
    return barrier.everyone and len(left) == block.warps


@row("barrier.sync", "barrier.sync.value", "barrier.sync.all")
def barrier_sync(use: Use) -> Steps:
    """Arrives, and waits for the others."""
    yield from _sync(use, None)


@row("barrier.arrive", "barrier.arrive.value")
def barrier_arrive(use: Use) -> Steps:
    """Arrives, and goes on."""
    _arrive(use)
    yield None


def _sync(use: Use, vote: Values | None) -> Generator[Wait | None, None, NamedBarrier]:
    number, _ = _numbers(use)
    barrier = use.group.block.barrier(number)
    phases, before = barrier.phases, barrier.phases.phase
    _arrive(use, vote)
    yield Wait(lambda: phases.phase != before, lambda: barrier.missing, use.loc)
    phases.take(use.group.actors_of(use.mask), use.facts)
    return barrier


@row("barrier.red.*")
def barrier_vote(use: Use) -> Generator[Wait | None, None, tuple[Any]]:
    """A barrier that counts, or joins, one truth of each thread."""
    barrier = yield from _sync(use, use.value(0))
    votes = barrier.result
    found = {"popc": sum(votes), "and": all(votes), "or": any(votes)}[use.facts.parts[-1]]
    return (np.int32(found),)


@row("bar.warp.sync")
def warp_sync(use: Use) -> None:
    """The lanes of each warp meet."""
    group = use.group
    named = np.array([use.imm["mask"] >> k & 1 for k in range(WARP)], np.bool_)
    here = group.lanes(use.mask).reshape(-1, WARP) & named
    actors = group.actors.reshape(-1, WARP)
    whole = here.all(axis=1)
    if whole.any():
        group.team.meet(actors[whole], use.facts)
    for k in np.flatnonzero(here.any(axis=1) & ~whole):
        group.team.meet(actors[k][here[k]][None], use.facts)


# Clusters and the grid ---------------------------------------------------------------------------


@row("barrier.cluster.arrive*")
def cluster_arrive(use: Use) -> Steps:
    """The warps of a group arrive at the barrier of the cluster."""
    group, cluster = use.group, use.group.block.cluster
    rank = group.block.rank
    cluster.arrived |= {(rank, group.warps[k]) for k in use.whole_warps()}
    group.state["cluster"] = cluster.phases.phase
    if not use.facts.row.endswith("relaxed"):
        cluster.phases.give(group.actors_of(use.mask))
    if len(cluster.arrived) == sum(b.warps for b in cluster.blocks):
        cluster.arrived = set()
        cluster.phases.finish()
    yield None


@row("barrier.cluster.wait")
def cluster_wait(use: Use) -> Steps:
    """Waits until all warps of the cluster have arrived."""
    group, cluster = use.group, use.group.block.cluster
    before = group.state.pop("cluster", None)
    if before is None:
        raise use.fault("deadlock", "barrier.cluster.wait without an arrival before it")
    total = sum(b.warps for b in cluster.blocks)
    yield Wait(
        lambda: cluster.phases.phase != before,
        lambda: f"the barrier of the cluster, {len(cluster.arrived)} of {total} warps are there",
        use.loc,
    )
    cluster.phases.take(group.actors_of(use.mask), use.facts)


@row("grid.sync")
def grid_sync(use: Use) -> Steps:
    """Waits until all warps of the grid have arrived."""
    group, machine = use.group, use.group.block.machine
    grid = machine.grid
    block = group.block
    before = grid.phase
    phases: Phases = block.cluster.grid_phases
    phases.give(group.actors_of(use.mask))
    join_told(grid.told, group.team.publish())
    grid.arrived |= {(id(block), group.warps[k]) for k in use.whole_warps()}
    if len(grid.arrived) == grid.warps:
        grid.arrived = set()
        grid.phase += 1
        grid.heard = dict(grid.told)
    yield Wait(
        lambda: grid.phase != before,
        lambda: f"the barrier of the grid, {len(grid.arrived)} of {grid.warps} warps are there",
        use.loc,
    )
    if phases.phase == before:
        phases.finish()
    phases.take(group.actors_of(use.mask))
    group.team.hear(grid.heard)


# mbarriers ---------------------------------------------------------------------------------------


def mbarriers_of(use: Use, place: Place, site: int) -> Iterator[tuple[int, Values]]:
    """The byte offsets of the mbarriers that the lanes name, and the lanes of each."""
    offsets, lanes = use.offsets(place, site), use.lanes
    first = int(offsets[0]) if offsets.size else 0
    if (offsets == first).all():
        yield first, lanes
        return
    for offset in np.unique(offsets):
        yield int(offset), lanes[offsets == offset]


def touched(block: Block, offset: int, who: Who) -> None:
    """Note that an mbarrier is used: it must have been set up before."""
    at = np.full(np.size(who.actors), offset)
    block.shared.load(at, WORD, 1, who)


def _used(use: Use, block: Block, place: Place, site: int) -> Iterator[tuple[Mbarrier, Values]]:
    for offset, lanes in mbarriers_of(use, place, site):
        found = block.mbarrier(offset, use.loc)
        touched(block, offset, Who(use.group.team, use.group.actors[lanes], site))
        yield found, lanes


def named(place: Place, offset: int) -> str:
    """What an mbarrier is called in reports."""
    array = place.array
    assert isinstance(array, Window)
    return f"{array.name}[{(offset - int(np.min(array.start))) // array.item}]"


@row("mbarrier.init")
def init(use: Use) -> Steps:
    """Sets an mbarrier up."""
    block, place = use.group.block, use.outs[0]
    counts = use.value(0)
    for offset, lanes in mbarriers_of(use, place, use.out_site(0)):
        count = int(counts[lanes[0]])
        if count < 1:
            raise use.fault("value", f"an mbarrier for {count} arrivals", expected="1 or more")
        who = Who(use.group.team, use.group.actors[lanes], use.out_site(0))
        block.shared.store(np.full(lanes.size, offset), np.full((1, lanes.size), count, WORD), who)
        phases = Phases(use.group.team)
        block.mbarriers[offset] = Mbarrier(named(place, offset), count, phases)
    yield None


@row("mbarrier.inval")
def inval(use: Use) -> None:
    """The memory of an mbarrier may be used for something else."""
    block = use.group.block
    for offset, lanes in mbarriers_of(use, use.outs[0], use.out_site(0)):
        block.mbarrier(offset, use.loc)
        who = Who(use.group.team, use.group.actors[lanes], use.out_site(0))
        block.shared.store(np.full(lanes.size, offset), np.zeros((1, lanes.size), WORD), who)
        del block.mbarriers[offset]


@row("mbarrier.arrive", "mbarrier.arrive.count", "mbarrier.arrive.expect_tx", "mbarrier.expect_tx")
def arrive(use: Use) -> Steps:
    """Arrivals, and bytes that are expected."""
    kind = use.facts.row.removeprefix("mbarrier.")
    given = use.value(0) if use.ins else None
    for barrier, lanes in _used(use, use.group.block, use.outs[0], use.out_site(0)):
        numbers = None if given is None else given[lanes]
        _step(use, barrier, use.group.actors[lanes], kind, numbers)
    yield None


def _step(use: Use, barrier: Mbarrier, actors: Actors, kind: str, numbers: Values | None) -> None:
    total = 0 if numbers is None else int(numbers.sum())
    arrivals = {"arrive.count": total, "expect_tx": 0}.get(kind, actors.size)
    if kind != "expect_tx":
        barrier.phases.give(actors)
    if barrier.step(arrivals, total if kind.endswith("expect_tx") else 0):
        use.group.report.add(
            "async",
            f"more arrivals at the mbarrier {barrier.name} than its phase counts,"
            f" which is {barrier.count}",
            use.loc,
            help="set it up for all that arrive",
        )


@row("mbarrier.arrive.cluster", "mbarrier.arrive.expect_tx.cluster", "mbarrier.expect_tx.cluster")
def arrive_remote(use: Use) -> Steps:
    """Arrivals at the mbarrier at the same place in another block of the cluster."""
    kind = use.facts.row.removeprefix("mbarrier.").removesuffix(".cluster")
    ranks = use.value(len(use.ins) - 1)
    given = use.value(0) if len(use.ins) > 1 else None
    for offset, lanes in mbarriers_of(use, use.outs[0], use.out_site(0)):
        for rank in np.unique(ranks[lanes]):
            here = lanes[ranks[lanes] == rank]
            block = use.group.block.cluster.block(int(rank), use.loc)
            barrier = block.mbarrier(offset, use.loc)
            actors = use.group.actors[here]
            touched(block, offset, Who(use.group.team, actors, use.out_site(0)))
            _step(use, barrier, actors, kind, None if given is None else given[here])
    yield None


@row("mbarrier.try_wait.parity*")
def wait(use: Use) -> Steps:
    """Waits until the phases of the given parity are over."""
    group, parity = use.group, use.value(1, np.int64)
    used = list(_used(use, group.block, use.ins[0], use.in_site(0)))
    wanted = [(b, int(p)) for b, lanes in used for p in np.unique(parity[lanes] & 1)]
    yield Wait(
        lambda: all(b.is_over(p) for b, p in wanted),
        lambda: "; ".join(b.missing for b, p in wanted if not b.is_over(p)),
        use.loc,
    )
    for barrier, lanes in used:
        barrier.phases.take(group.actors[lanes], use.facts)


@row("mbarrier.test_wait.parity")
def test_wait(use: Use) -> tuple[Values]:
    """Whether the phases of the given parity are over."""
    group, parity = use.group, use.value(1, np.int64)
    done = np.zeros(group.count, np.bool_)
    for barrier, lanes in _used(use, group.block, use.ins[0], use.in_site(0)):
        over = np.array([barrier.is_over(int(p)) for p in parity[lanes]], np.bool_)
        done[lanes] = over
        barrier.phases.take(group.actors[lanes[over]], use.facts)
    return (done,)


# Fences and control ------------------------------------------------------------------------------


@row("fence.proxy.async*", "fence.mbarrier_init")
def proxy_fence(use: Use) -> None:
    """What was written through the generic proxy is visible to the async proxy."""
    use.group.team.fence(ASYNC, use.group.actors_of(use.mask), use.facts)


@row("fence.acq_rel.*", "fence.sc.*")
def memory_fence(use: Use) -> None:
    """Nothing: atomic accesses are ordered here whatever the program asks for."""
    del use


@row("setmaxnreg", "nanosleep", "griddepcontrol.*", "cp.async.bulk.prefetch*", "prefetch.*")
def nothing(use: Use) -> None:
    """What changes no value: registers of a warpgroup, time, launches that overlap, caches."""
    del use


@row("elect.sync")
def elect(use: Use) -> tuple[Values]:
    """Chooses one lane of each warp: the first that is there."""
    here = use.group.lanes(use.mask).reshape(-1, WARP)
    first = np.argmax(here, axis=1)
    chosen = here & (np.arange(WARP) == first[:, None])
    return (chosen.reshape(-1),)


@row("cluster.ctarank")
def rank(use: Use) -> tuple[Any]:
    """The number of the block in its cluster."""
    return (np.int32(use.group.block.rank),)


@row("cluster.nctarank")
def ranks(use: Use) -> tuple[Any]:
    """The number of blocks of the cluster."""
    return (np.int32(use.group.block.cluster.size),)
