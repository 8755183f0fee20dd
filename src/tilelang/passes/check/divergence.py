"""Whether the threads that carry an operation out together all reach it.

What enters: a `Program`. What leaves: errors for tile operations, T.Parallel loops and barriers
where the threads that get there are not all threads of the block, and not a range of whole warps
that the program names by their indices. A condition differs between threads if it depends on a
thread index, on a value that does, or on a variable of each thread's own that was given such a
value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilelang.errors import Diagnostic, Loc
from tilelang.ir.expr import Expr, Load, Region, Var, int_value
from tilelang.ir.node import Kind
from tilelang.ir.scales import ScaleTranspose
from tilelang.ir.special import (
    COLLECTIVES,
    Collective,
    GemmBlockScaled,
    GemmSparse,
    Group,
    Im2col,
    ReducerFinalize,
    ReducerInit,
    RngNext,
    TestElements,
)
from tilelang.ir.sync import WARP, AsyncGemm, AsyncUnit, ClcQuery, WarpSpecialize
from tilelang.ir.text import print_expr
from tilelang.ir.tile import (
    Atomic,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Launch,
    Let,
    Parallel,
    Pipelined,
    Reduce,
    Scan,
    Store,
    SyncThreads,
    Transpose,
    While,
)
from tilelang.passes.check.program import Program, op_name
from tilelang.passes.check.threads import Threads, Truth, extents_of, is_logical, ranges
from tilelang.passes.check.walk import AxisKind, Site, Why, expand
from tilelang.scopes import Dialect, Memory

_TOGETHER = (
    Gemm,
    GemmSparse,
    GemmBlockScaled,
    Im2col,
    Reduce,
    ReducerInit,
    ReducerFinalize,
    ScaleTranspose,
    Scan,
    TestElements,
    Transpose,
    WarpSpecialize,
)

_PER_THREAD = frozenset({Memory.LOCAL, Memory.VAR})


_VOTES = {"any_sync": "syncthreads_or", "all_sync": "syncthreads_and"}
"""Votes of a warp, and those of a block."""


def all_threads_take_part(program: Program) -> Iterator[Diagnostic]:
    """Operations of several threads are reached by all threads, or by a range of whole warps.

    In the adapter dialect the thread index numbers vector cores, each of which works alone.
    """
    if program.dialect is Dialect.ADAPTER:
        return
    for launch in program.launches:
        yield from _Block(program, launch).findings()


def _together(program: Program, site: Site) -> bool:
    """Whether the threads that are here carry the statement out together."""
    match site.stmt:
        case SyncThreads():
            found = site.stmt.barrier_id is None
        case Atomic():
            found = any(int_value(e) != 1 for e in site.stmt.dst.extents)
        case Copy() | Fill():  # into memory of its own every thread copies for itself
            found = program.memory(site.stmt.dst.buffer) not in _PER_THREAD
        case Parallel():
            found = site.place.parallel is None
        case AsyncGemm():
            found = site.stmt.unit is AsyncUnit.WGMMA
        case Collective():
            found = COLLECTIVES[site.stmt.fn].group is Group.BLOCK
        case _:
            found = isinstance(site.stmt, _TOGETHER)
    return found


def _conditions(site: Site) -> Iterator[Expr]:
    """The conditions and loop ranges that decide whether, and how often, the statement runs."""
    for guard in site.place.guards:
        # A barrier waits for the threads that have not returned.
        ended = guard.why is Why.ENDED and isinstance(site.stmt, (SyncThreads, Collective))
        if guard.why is not Why.STATED and not ended:
            yield guard.cond
    for stmt in site.place.path:
        if isinstance(stmt, While):
            yield stmt.cond
        elif isinstance(stmt, (For, Pipelined)):
            yield from (stmt.start, stmt.stop)


class _Block:
    """The threads of one launch, and what is known of the sets of them that reach a statement."""

    def __init__(self, program: Program, launch: Launch) -> None:
        self.program = program
        self.sites = [s for s in program.sites if s.place.launch is launch]
        extents = extents_of(launch, program.dialect)
        self.threads = Threads(launch, extents, (s.stmt for s in self.sites))
        self._teams: dict[bytes, _Team] = {}

    def findings(self) -> Iterator[Diagnostic]:
        """What is wrong in this launch."""
        for site in self.sites:
            if isinstance(site.stmt, SyncThreads) and site.place.parallel is not None:
                yield _inside_parallel(site)
            elif _together(self.program, site):
                found = self.finding(site)
                if found is not None:
                    yield found

    def finding(self, site: Site) -> Diagnostic | None:
        """What is wrong with who reaches a statement."""
        team = self.reach(site)
        cause = next((c for c in _conditions(site) if self.differs(c, site, team)), None)
        if cause is not None:
            return _finding(self, site, cause)
        return None if self.is_team(site, team) else _uneven(self, site, team)

    def reach(self, site: Site, *, arms: bool = True) -> Truth:
        """The threads for which the conditions around a statement can hold; without `arms` only
        those of T.ws count.
        """
        kinds = (Why.ARM, Why.GROUPS) if arms else (Why.GROUPS,)
        out = self.threads.everyone()
        for guard in site.place.guards:
            if guard.why in kinds:
                out &= self.threads.can(guard.cond, holds=guard.holds)
        return out

    def is_team(self, site: Site, team: Truth) -> bool:
        """Whether these threads are what T.ws names here, or a range of whole warps of it."""
        if not (team ^ self.reach(site, arms=False)).any():
            return True
        return len(ranges(team)) < 2 and self.threads.whole(team)

    def differs(self, e: Expr, site: Site, team: Truth) -> bool:
        """Whether threads of a set may have different values of `e` at a statement."""
        key = team.tobytes()
        if key not in self._teams:
            self._teams[key] = _Team(self, team)
        return self._teams[key].differs(expand(e, site.place.lets))


class _Team:
    """What differs between the threads of a set: variables, and buffers of each thread's own."""

    def __init__(self, block: _Block, team: Truth) -> None:
        self.block = block
        self.team = team
        self.names: set[Var] = set()
        self.buffers: set[str] = set()
        reached = [(s, block.reach(s)) for s in block.sites]
        here = [(s, r) for s, r in reached if (r & team).any()]
        size = -1
        while size != len(self.names) + len(self.buffers):
            size = len(self.names) + len(self.buffers)
            for site, reach in here:
                self.look_at(site, whole=not (team & ~reach).any())

    def differs(self, e: Expr) -> bool:
        """Whether threads may have different values of `e`."""
        values = self.block.threads.values(e)
        if values is not None:
            mine = values[self.team]
            return bool(mine.size) and bool((mine != mine[0]).any())
        if isinstance(e, Var):
            return e in self.names
        if isinstance(e, Load) and e.buffer.name in self.buffers:
            return True
        parts: Iterable[Expr] = (p for p in e.children() if isinstance(p, Expr))
        if is_logical(e):
            left = self.block.threads.left(e, self.team)
            parts = (left,) if left != e else parts
        return any(self.differs(p) for p in parts)

    def look_at(self, site: Site, *, whole: bool) -> None:
        """Add what this statement gives different values to; `whole` says that if one thread of the
        set reaches it, then as far as indices say all do.
        """
        stmt = site.stmt
        if isinstance(stmt, Let) and self.differs(stmt.value):
            self.names.add(stmt.var)
        elif (
            isinstance(stmt, RngNext)
            or (isinstance(stmt, Collective) and stmt.differs)
            or (isinstance(stmt, ClcQuery) and any(map(self.differs, stmt.response.mins)))
        ):
            self.names.add(stmt.result)
        elif isinstance(stmt, Atomic) and stmt.previous is not None:
            self.names.add(stmt.previous)
        elif isinstance(stmt, (For, Pipelined)) and (
            self.differs(stmt.start) or self.differs(stmt.stop)
        ):
            self.names.add(stmt.var)
        for touch in self.block.program.touches_of(site):
            if touch.writes and self.block.program.memory(touch.buffer) in _PER_THREAD:
                self.stored(touch.buffer.name, site, whole)

    def stored(self, name: str, site: Site, whole: bool) -> None:
        """A buffer of each thread's own is written: with what, under which conditions?"""
        stmt = site.stmt
        parts = [getattr(stmt, f.name) for f in stmt.fields() if f.metadata["kind"] is Kind.OPERAND]
        regions = [p for p in parts if isinstance(p, Region)]
        values = [p for p in parts if isinstance(p, Expr)]
        values += [e for r in regions for e in r.mins]
        if (
            not whole
            or bool(site.place.of_kind(AxisKind.PARALLEL))
            or any(r.buffer.name in self.buffers for r in regions)
            or any(self.differs(e) for e in (*values, *_conditions(site)))
        ):
            self.buffers.add(name)


# Words -------------------------------------------------------------------------------------------


def _finding(block: _Block, site: Site, cause: Expr) -> Diagnostic:
    threads = _thread_names(block.program, cause)
    return _refused(
        block,
        site,
        cause,
        expected="a condition that is the same for all threads, or a range of whole warps in terms"
        " of the thread index",
        got=f"`{print_expr(cause)}`" + (f", which depends on {threads}" if threads else ""),
        instead=_block_vote(block, expand(cause, site.place.lets)),
    )


def _block_vote(block: _Block, cause: Expr) -> str:
    """What to write instead of a condition by a vote of each warp; empty for other conditions."""
    kept = {n.buffer.name for n in cause.walk() if isinstance(n, Load)}
    stores = [s.stmt for s in block.sites if isinstance(s.stmt, Store)]
    values = [cause, *(s.value for s in stores if s.buffer.name in kept)]
    names = {n for e in values for n in e.walk() if isinstance(n, Var)}
    votes = (s.stmt for s in block.sites if isinstance(s.stmt, Collective))
    found = next((v for v in votes if v.fn in _VOTES and v.result in names), None)
    if found is None:
        return ""
    return (
        f"T.{found.fn} may differ from warp to warp, and which elements a warp has is not said:"
        f" vote with T.{_VOTES[found.fn]} by the whole block, or do it in any case"
    )


def _uneven(block: _Block, site: Site, team: Truth) -> Diagnostic:
    guards = [g.cond for g in site.place.guards if g.why is Why.ARM]
    cause = next(c for c in reversed(guards) if block.threads.names_thread(c))
    end = block.threads.count - 1
    return _refused(
        block,
        site,
        cause,
        expected=f"threads 0 to {end}, or a range that begins and ends at multiples of {WARP}",
        got=f"`{print_expr(cause)}`, which leaves {_ranges_text(team)}",
    )


def _inside_parallel(site: Site) -> Diagnostic:
    return Diagnostic(
        "divergence",
        f"{op_name(site.stmt)} inside T.Parallel: which thread runs an iteration is not defined",
        site.stmt.loc,
        expected="a barrier between two loops",
        help="make two T.Parallel loops of it, or write for threads (T.get_thread_binding)",
    )


def _refused(
    block: _Block, site: Site, cause: Expr, *, expected: str, got: str, instead: str = ""
) -> Diagnostic:
    stmt = site.stmt
    at = _place_of(block, site, cause)
    return Diagnostic(
        "divergence",
        f"{op_name(stmt)} is reached by some threads of a block only",
        stmt.loc,
        label="all threads of the block, or of a range of whole warps, carry it out together",
        expected=expected,
        got=got,
        help=instead
        or f"move it out of the condition, or use one such as `{_first_thread(block)} < 64`, or"
        " T.ws for whole warp groups",
        related=((at, "the condition is here"),) if at is not None and at != stmt.loc else (),
    )


def _place_of(block: _Block, site: Site, cause: Expr) -> Loc | None:
    above = [s for s in reversed(site.place.path) if isinstance(s, (If, While))]
    lets = site.place.lets
    same = [s.loc for s in above if cause in (s.cond, expand(s.cond, lets))]
    naming = [s.loc for s in above if block.threads.names_thread(s.cond)]
    return next(iter([*same, *naming, *(s.loc for s in above)]), None)


def _first_thread(block: _Block) -> str:
    names = [v.name for launch in block.program.launches for v in launch.thread_vars]
    return names[0] if names else "tx"


def _thread_names(program: Program, cause: Expr) -> str:
    threads = {v for launch in program.launches for v in launch.thread_vars}
    return ", ".join(sorted({n.name for n in cause.walk() if isinstance(n, Var) and n in threads}))


def _ranges_text(team: Truth) -> str:
    found = ranges(team)
    words = [f"{a} to {b - 1}" if b > a + 1 else str(a) for a, b in found[:3]]
    more = ", ..." if len(found) > len(words) else ""
    return f"thread{'s' if team.sum() > 1 else ''} {', '.join(words)}{more}"
