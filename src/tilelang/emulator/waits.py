"""The text of kernels that wait: who carries a statement out, and where agents meet.

What enters: a launch whose threads wait for each other. What leaves: a generator function of an
agent. Operations of several agents are carried out once; thread code is carried out by every agent
for its own threads; agents meet where the compiler would put a barrier.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from tilelang.emulator.blocks import LANE, Crew, Team
from tilelang.emulator.conflicts import Finder, Ledger
from tilelang.emulator.lanes import Lanes, bodies, own_nodes, statements, written
from tilelang.emulator.teams import (
    Split,
    all_blocks_at_once,
    division,
    needs_agents,
    parted,
    registers,
    settled,
)
from tilelang.emulator.unit import Unit
from tilelang.emulator.values import Domain, Storage, Val, integer, tuple_text
from tilelang.emulator.watched import shadow_name
from tilelang.errors import error
from tilelang.ir import sync
from tilelang.ir.expr import Buffer, Expr
from tilelang.ir.scales import AsyncScaledGemm, ScaleCopy, ScaleTranspose
from tilelang.ir.special import ReducerFinalize, ReducerInit, TestElements
from tilelang.ir.text import snake
from tilelang.ir.tile import (
    Alloc,
    Atomic,
    Block,
    For,
    If,
    Launch,
    Parallel,
    Pipelined,
    Print,
    Reduce,
    Stmt,
    Store,
    StoreVector,
    SyncThreads,
    TileOp,
    While,
)
from tilelang.passes.check.threads import Threads
from tilelang.scopes import Memory, memory_of


@dataclass
class Ways:
    """How the threads of the block part ways in the kernel that is being translated."""

    threads: Threads
    splits: dict[int, Split]
    crew: Crew
    finder: Finder
    agent_of: list[int]
    team: Team
    apart: set[str] = field(default_factory=set[str])
    ledger: Ledger = field(default_factory=Ledger)

    def chosen(self, split: Any) -> Team:
        """The agents of the team all of whose threads are meant."""
        firsts = self.crew.firsts()
        return tuple(k for k in self.team if bool(split[firsts[k]]))


# -- the head of a kernel --------------------------------------------------------------------------


def settle(launch: Launch, extents: tuple[int, ...]) -> Launch:
    """A launch that runs as agents, with constants where all threads that get there agree."""
    threads = Threads(launch, extents, statements(launch.body))
    if not needs_agents(launch.body, threads):
        return launch
    return launch.with_(body=settled(launch.body, threads))


def enter(u: Unit, launch: Launch, extents: tuple[int, ...]) -> None:
    """Decide whether a launch runs as agents, and what its lanes are: `u.ways` and `u.lanes`."""
    threads = Threads(launch, extents, statements(launch.body))
    seeds = [v.name for v, n in zip(launch.thread_vars, extents, strict=False) if n != 1]
    own = registers(launch.body, threads)

    def private(buffer: Buffer) -> bool:
        return u.private(buffer) or buffer.name in own

    if not needs_agents(launch.body, threads):
        u.ways = None
        u.lanes = Lanes(launch.body, seeds, private, u.roots)
        return
    splits = parted(launch.body, threads)
    rests = {k: s.rest for k, s in splits.items()}
    u.lanes = Lanes(launch.body, seeds, private, u.roots, rests)
    # Warps that the program lets go different ways are apart where their order is looked at.
    apart = u.checks is not None
    sizes = tuple(division(launch.body, threads, splits, u.lanes, apart=apart))
    names = tuple(v.name for v in launch.thread_vars)
    crew = Crew(extents, sizes, names, launch.cluster, all_blocks_at_once(launch.body))
    agent_of = [k for k, n in enumerate(sizes) for _ in range(n)]
    finder = Finder(threads, lambda b: _tracked(u, b), u.lanes.root)
    u.ways = Ways(threads, splits, crew, finder, agent_of, crew.team)
    u.ways.apart = _of_several_teams(u, launch)


def _of_several_teams(u: Unit, launch: Launch) -> set[str]:
    """The fragments that teams without a common thread use: each has it in its own registers."""
    ways = ways_of(u)
    users: dict[str, set[Team]] = {}

    def walk(body: Block, team: Team) -> None:
        ways.team = team
        for stmt in body:
            for name in _fragments(u, stmt):
                users.setdefault(name, set()).add(team)
            split = ways.splits.get(id(stmt))
            if isinstance(stmt, sync.WarpSpecialize):
                inner = [(stmt.body, ways.chosen(ways.threads.groups(stmt)))]
            elif isinstance(stmt, If) and split is not None:
                taken = ways.chosen(split.threads)
                others = tuple(k for k in team if k not in taken)
                inner = [(stmt.then, taken), (stmt.orelse, others)]
            else:
                inner = [(b, team) for b in bodies(stmt)]
            for each, members in inner:
                walk(each, members)
                ways.team = team

    walk(launch.body, ways.crew.team)
    ways.team = ways.crew.team
    return {
        name
        for name, teams in users.items()
        if any(a and b and not set(a) & set(b) for a in teams for b in teams)
    }


def _fragments(u: Unit, stmt: Stmt) -> set[str]:
    """The fragments that a statement itself uses, but for those with views."""
    found = (n for n in own_nodes(stmt) if isinstance(n, Buffer))
    return {
        b.name
        for b in found
        if memory_of(u.dialect, b.scope) is Memory.FRAGMENT and b.name not in u.roots.values()
    }


def _tracked(u: Unit, buffer: Buffer) -> bool:
    memory = memory_of(u.dialect, buffer.scope)
    return memory in (Memory.SHARED, Memory.TMEM)


def lanes(u: Unit, launch: Launch) -> str:
    """Make the threads of an agent the lanes, in one axis, x fastest; gives the crew's name."""
    ways = ways_of(u)
    index_type, most = launch.thread_vars[0].dtype, max(ways.crew.sizes)
    least = min(ways.crew.sizes)
    extent = integer(most, index_type)
    if least != most:
        extent = Val(u.w.fresh("count"), index_type, low=least, high=most, atom=True)
        u.w.line(f"{extent.code} = agent.count")
    index = u.w.fresh("lane")
    u.w.line(f"{index} = agent.index")
    u.domain = Domain((LANE,), (extent,), threads=True)
    axes = frozenset({0})
    u.env[LANE] = Val(index, index_type, axes, 0, most - 1, atom=True)
    names = [u.w.name(v.name) for v in launch.thread_vars]
    u.w.line(f"{', '.join(names)} = agent.lanes")
    for k, var in enumerate(launch.thread_vars):
        high = ways.crew.threads[k] - 1
        v = Val(names[k], var.dtype, axes, 0, high, atom=True, owner=u.domain)
        u.env[var.name] = v if high > 0 else integer(0, var.dtype)
    return u.constant("crew", ways.crew)


def ways_of(u: Unit) -> Ways:
    """The ways of the kernel; a caller knows that it waits."""
    assert u.ways is not None
    return u.ways


def takers(u: Unit) -> int:
    """How many agents execute the current statement, if all of the team do."""
    return len(ways_of(u).team)


# -- who carries a statement out -------------------------------------------------------------------


def statement(
    u: Unit, stmt: Stmt, translate: Callable[[], None], see: Callable[[], None] | None = None
) -> None:
    """One statement: by the agents of the team together, by one of them, or by each for itself.
    `see` writes what an observer asks for after it, which happens once.
    """
    ways = ways_of(u)
    first = min(ways.team)
    as_one = u.mask is None and u.domain.threads and len(ways.team) > 1
    if see is None:
        _carry_out(u, stmt, translate)
    elif as_one and together(u, stmt):
        _carry_out(u, stmt, lambda: (translate(), see()))
    else:
        _carry_out(u, stmt, translate)
        with u.w.block(f"if agent.number == {first}:") if as_one else nullcontext():
            see()


def _carry_out(u: Unit, stmt: Stmt, translate: Callable[[], object]) -> None:
    ways = ways_of(u)
    if isinstance(stmt, sync.WarpSpecialize):
        _specialize(u, stmt)
    elif u.mask is None and isinstance(stmt, If) and id(stmt) in ways.splits:
        _part(u, stmt, ways.splits[id(stmt)])
    elif u.mask is not None or not u.domain.threads or len(ways.team) == 1:
        translate()
    elif together(u, stmt):
        _together(u, stmt, translate)
    else:
        _apart(u, stmt, translate)


def together(u: Unit, stmt: Stmt) -> bool:
    """Whether the agents of a team carry a statement out once, as one."""
    if isinstance(stmt, (Parallel, ReducerInit, ReducerFinalize)):
        return True
    if isinstance(stmt, (Store, StoreVector)):
        return not _own(u, stmt.buffer) and not u.lanes.varies(*stmt.children())
    if not isinstance(stmt, TileOp) or led(stmt):
        return False
    if isinstance(stmt, sync.AsyncCopy) and not stmt.commit:
        return False
    if isinstance(stmt, Atomic) and isinstance(stmt.value, Expr):
        return False
    return not u.lanes.varies(*stmt.children())


def _own(u: Unit, buffer: Buffer) -> bool:
    """Whether every thread, or at least every agent, has a buffer of its own."""
    return u.private(buffer) or u.lanes.per_lane(buffer)


def led(stmt: Stmt) -> bool:
    """Whether one thread issues an operation for the others, who do not wait for it."""
    match stmt:
        case sync.TmaCopy() | sync.TmaGather4() | sync.TmaScatter4() | ScaleCopy():
            return True
        case sync.AsyncGemm():
            return stmt.unit is sync.AsyncUnit.TCGEN05
        case sync.CopyCluster():
            return stmt.dst_block is not None
        case _:
            return False


_WORDS: dict[type[Stmt], str] = {
    Parallel: "T.Parallel",
    ScaleCopy: "T.tcgen05_cp_warpx4",
    ScaleTranspose: "T.tcgen05_sf_warp_transpose",
    TestElements: "T.any_of",
    sync.AsyncCopy: "T.async_copy",
    sync.ClusterBarrier: "T.cluster_sync",
    sync.CommitGroup: "T.ptx_commit_group",
    sync.CpAsyncArrive: "T.cp_async_barrier_noinc",
    sync.MbarArrive: "T.mbarrier_arrive",
    sync.MbarExpectTx: "T.mbarrier_expect_tx",
    sync.MbarWait: "T.mbarrier_wait_parity",
    sync.MmaArrive: "T.tcgen05_mma_arrive",
    sync.NamedArrive: "T.named_barrier_arrive",
    sync.WaitGroup: "T.ptx_wait_group",
    sync.WaitWgmma: "T.wait_wgmma",
    sync.WarpSpecialize: "T.ws",
}


def what(stmt: Stmt) -> str:
    """An operation in the author's words."""
    if isinstance(stmt, (Store, StoreVector)):
        return f"a store to {stmt.buffer.name} by all threads"
    if isinstance(stmt, (Atomic, Reduce)):
        kind = "atomic" if isinstance(stmt, Atomic) else "reduce"
        return f"T.{kind}_{stmt.op.value}"
    if isinstance(stmt, sync.AsyncGemm):
        scaled = "_blockscaled" * isinstance(stmt, AsyncScaledGemm)
        return f"T.{stmt.unit.value}_gemm{scaled}"
    return _WORDS.get(type(stmt), f"T.{snake(type(stmt).__name__)}")


def loc_text(u: Unit, stmt: Stmt) -> str:
    """The place of a statement, by name."""
    return u.constant("loc", stmt.loc, stmt.loc)


def _together(u: Unit, stmt: Stmt, translate: Callable[[], object]) -> None:
    ways = ways_of(u)
    own = _results(u, stmt)
    values = [n if scalar else f"{n}.copy()" for n, scalar in own]
    targets = [n if scalar else f"{n}[...]" for n, scalar in own]
    if u.checks is not None:  # and which elements have been written
        shadows = [f"{shadow_name(n)}.cells.written" for n, scalar in own if not scalar]
        values += [f"{n}.copy()" for n in shadows]
        targets += [f"{n}[...]" for n in shadows]
    meet = f"yield from agent.meet({ways.team!r}, {what(stmt)!r}, {loc_text(u, stmt)})"
    with u.w.block(f"if ({meet}):"):
        translate()
        if u.checks is not None:
            u.w.line("machine.checker.apart(agent)")
        if own:
            u.w.line(f"agent.block.told[{ways.team!r}] = {tuple_text(values)}")
    if any(isinstance(s, (sync.CopyCluster, sync.SyncGrid)) for s in statements((stmt,))):
        u.w.line(meet)  # it waits for other blocks, and the team waits for it
    if own:
        with u.w.block("else:"):
            u.w.line(f"{tuple_text(targets)} = agent.block.told[{ways.team!r}]")
    ways.ledger.clear()


def _results(u: Unit, stmt: Stmt) -> list[tuple[str, bool]]:
    """What a statement that one agent carries out leaves in memory that every agent has for itself:
    names, and whether they are variables.
    """
    if isinstance(stmt, TestElements):
        return [(u.w.name(stmt.result.name), True)]
    inside = {s.buffer.name for s in statements((stmt,)) if isinstance(s, Alloc)}
    found: dict[str, bool] = {}
    for s in statements((stmt,)):
        for buffer in written(s):
            owner: Storage | None = u.stores.get(buffer.name)
            if owner is not None and _own(u, buffer) and buffer.name not in inside:
                found[owner.name] = owner.scalar
    return list(found.items())


def _apart(u: Unit, stmt: Stmt, translate: Callable[[], object]) -> None:
    """Every agent at its own pace; they meet first where that matters."""
    ways = ways_of(u)
    match stmt:
        case If() if not u.lanes.varies(stmt.cond):
            _meet_before(u, stmt, inner=False)
            _uniform_if(u, stmt)
            return
        case For() | Pipelined() | While() if not _masked(u, stmt):
            _meet_before(u, stmt, inner=False)
            before = ways.ledger.copy()
            ways.ledger.add(*ways.finder.all(stmt))
            translate()
            ways.ledger.merge(before)
            ways.ledger.add(*ways.finder.all(stmt))
            return
        case Print() if not _by_lanes(u, stmt):
            _meet_before(u, stmt, inner=False)
            with u.w.block(f"if agent.number == {ways.team[0]}:"):
                translate()
            return
        case _:
            _meet_before(u, stmt, inner=True)
            translate()
    if isinstance(stmt, (SyncThreads, sync.SyncGrid)) and getattr(stmt, "barrier_id", None) is None:
        ways.ledger.clear()


def _by_lanes(u: Unit, stmt: Print) -> bool:
    if isinstance(stmt.value, Buffer):
        return u.lanes.per_lane(stmt.value)
    return stmt.value is not None and u.lanes.varies(stmt.value)


def _masked(u: Unit, loop: For | Pipelined | While) -> bool:
    """Whether some threads may leave a loop before others."""
    return u.lanes.divides(loop) or u.lanes.leaves_early(loop.body)[0]


def _meet_before(u: Unit, stmt: Stmt, *, inner: bool) -> None:
    ways = ways_of(u)
    accesses = ways.finder.all(stmt) if inner else ways.finder.own(stmt)
    if ways.ledger.meets(accesses, ways.agent_of):
        _line_up(u, stmt)
    ways.ledger.add(*accesses)


def _line_up(u: Unit, stmt: Stmt) -> None:
    ways = ways_of(u)
    name = "the barrier before an access to shared memory"
    u.w.line(f"yield from agent.meet({ways.team!r}, {name!r}, {loc_text(u, stmt)})")
    ways.ledger.clear()


def before_round(u: Unit, loop: While) -> None:
    """Before a round of a loop: others have their turn, and the team meets where the condition
    reads what it has written.
    """
    ways = u.ways
    if ways is None:
        return
    u.w.line(f"yield agent.turn({u.mask_text}, {loc_text(u, loop)})")
    if u.mask is None and u.domain.threads and len(ways.team) > 1 and not _masked(u, loop):
        reads = ways.finder.reads(loop.cond)
        if ways.ledger.meets(reads, ways.agent_of):
            _line_up(u, loop)
        ways.ledger.add(*reads)


# -- parting ---------------------------------------------------------------------------------------


def _uniform_if(u: Unit, stmt: If) -> None:
    """A condition that all threads of the team decide alike."""
    ways = ways_of(u)
    u.begin(stmt.cond)
    cond = u.expr(stmt.cond)
    before = ways.ledger
    ways.ledger = before.copy()
    with u.w.block(f"if {cond.code}:"):
        u.statements(stmt.then)
    after, ways.ledger = ways.ledger, before
    if stmt.orelse:
        with u.w.block("else:"):
            u.statements(stmt.orelse)
    ways.ledger.merge(after)


def _part(u: Unit, stmt: If, split: Split) -> None:
    """A condition that sends agents different ways."""
    ways = ways_of(u)
    taken = ways.chosen(split.threads)
    others = tuple(k for k in ways.team if k not in taken)

    def inside() -> None:
        if split.rest is None:
            u.statements(stmt.then)
        else:
            inner = If(split.rest, stmt.then, orelse=stmt.orelse, loc=stmt.loc)
            u.statements((inner,))

    ways.ledger.add(*ways.finder.own(stmt))
    before = ways.ledger.copy()
    if taken:
        _as_team(u, taken, (*stmt.then, *stmt.orelse), inside)
    after, ways.ledger = ways.ledger, before
    if others and stmt.orelse:
        _as_team(u, others, stmt.orelse, lambda: u.statements(stmt.orelse))
    ways.ledger.merge(after)


def _specialize(u: Unit, stmt: sync.WarpSpecialize) -> None:
    """Code for some warp groups."""
    ways = ways_of(u)
    if u.mask is not None or not u.domain.threads:
        raise error(
            "divergence",
            "T.ws where only some threads arrive",
            stmt.loc,
            expected="a place that all threads of the block reach",
            help="move it out of the condition",
        )
    taken = ways.chosen(ways.threads.groups(stmt))
    if not taken:
        return
    before = ways.ledger.copy()
    _as_team(u, taken, stmt.body, lambda: u.statements(stmt.body))
    ways.ledger.merge(before)


def _as_team(u: Unit, team: Team, body: Block, write: Callable[[], None]) -> None:
    """Text for some agents of the team only. Fragments that other agents use too are their own from
    here on.
    """
    ways = ways_of(u)
    outer = ways.team
    if team == outer:
        write()
        return
    ways.team = team
    test = f"== {team[0]}" if len(team) == 1 else f"in {team!r}"
    with u.w.block(f"if agent.number {test}:"):
        used = {n for s in statements(body) for n in _fragments(u, s)} & ways.apart
        for name in sorted(used & set(u.stores)):
            own = u.stores[name].name
            u.w.line(f"{own} = agent.own({name!r}, {team!r}, {own})")
            if u.checks is not None:
                shadow = shadow_name(own)
                u.w.line(f"{shadow} = machine.checker.taken({own}, {shadow})")
        write()
    ways.team = outer
