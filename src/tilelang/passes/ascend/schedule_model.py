"""How long one block takes on the pipes of its cores: a model of queues, with estimated cycles.

What enters: an explicit function (`ir/ascend.py`). What leaves: cycles until all is done, and how
long each pipe was busy. The scalar unit of a core gives statements to pipes in their order; a pipe
does one after the other; flags, barriers and cross-core flags hold up what they hold up on the
chip. Loops count at most `ROUNDS` rounds, branches whose condition is not known are taken, one
vector core stands for both. A program whose flags do not fit together is not modelled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field

from tilelang.ir.ascend import (
    PIPES_OF,
    Core,
    CoreRegion,
    CrossSet,
    CrossWait,
    Pipe,
    PipeBarrier,
    SetFlag,
    SyncAll,
    WaitFlag,
)
from tilelang.ir.expr import Const, Expr, Var, const, int_value
from tilelang.ir.simplify import simplify, substitute
from tilelang.ir.tile import Block, For, Function, Gemm, If, Launch, Let, Pipelined, Stmt, While
from tilelang.isa.target import Target
from tilelang.passes.ascend.effects import Agent, agent
from tilelang.passes.ascend.order import GEMM_V0, Waits
from tilelang.passes.ascend.schedule_costs import Pace, Span, rounds
from tilelang.passes.ascend.settings import orders_products

Key = tuple[str, str, int]
Queues = dict[Key, deque[int]]

_PAIR, _OWN = 4, (0, 1)
_LOOPS = (For, Pipelined, While)
_HALF = 16
"""What a cube core adds to a flag of mode 4 for the second vector core."""

_MTE1, _M = agent(Core.CUBE, Pipe.MTE1), agent(Core.CUBE, Pipe.M)


@dataclass
class Times:
    """The cycles of a block, and those in which each pipe works."""

    total: int = 0
    busy: dict[Agent, int] = field(default_factory=dict[Agent, int])

    def __str__(self) -> str:
        shares = (
            f"{by.pipe.value} of the {'cube' if by.core is Core.CUBE else 'vector'} core"
            f" {100 * n // self.total} %"
            for by, n in sorted(self.busy.items(), key=lambda x: (-x[1], x[0]))
            if self.total and 100 * n // self.total
        )
        return ", ".join((f"{self.total} cycles", *shares))


class _NotModelled(Exception):
    """The flags of a program do not fit together as far as they are known."""


def modelled(fn: Function, target: Target) -> Times | None:
    """The times of an explicit function; None where they cannot be told."""
    costs = target.chip.costs if target.chip is not None else None
    if costs is None:
        return None
    times = Times()
    try:
        for launch in (s for s in fn.body if isinstance(s, Launch)):
            _Group(fn, Pace(fn, costs), times).run(launch.body)
    except _NotModelled:
        return None
    return times


class _Group:
    """One launch: its cores, and the flags between them."""

    def __init__(self, fn: Function, pace: Pace, times: Times) -> None:
        self.own_order = orders_products(fn)
        self.pace = pace
        self.times = times
        self.flags: Queues = {}

    def run(self, body: Block) -> None:
        """Run all regions side by side until none goes on."""
        cores = [_Core(self, s) for s in body if isinstance(s, CoreRegion)]
        left = [(c, c.block(c.region.body, {})) for c in cores]
        while left:
            before = [c.steps for c in cores]
            left = [(c, run) for c, run in left if next(run, True) is None]
            if left and before == [c.steps for c in cores]:
                raise _NotModelled
        self.times.total += max((c.end() for c in cores), default=0)


class _Core:
    """One core: when its scalar unit and each of its pipes are free."""

    def __init__(self, group: _Group, region: CoreRegion) -> None:
        self.group = group
        self.region = region
        self.core = region.core
        self.now = 0
        self.steps = 0
        self.free = {agent(self.core, p): 0 for p in PIPES_OF[self.core]}
        self.last = dict(self.free)
        self.events: Queues = {}

    def end(self) -> int:
        """When all is done."""
        return max(self.now, *self.free.values(), *self.last.values())

    def block(self, body: Block, env: dict[Var, Expr]) -> Generator[None]:
        """Do statements; a yield says that a flag of the other core is missing."""
        for stmt in body:
            self.steps += 1
            match stmt:
                case If():
                    cond = self.value(stmt.cond, env)
                    yield from self.block(stmt.orelse if cond == 0 else stmt.then, env)
                case For() | Pipelined() | While():
                    yield from self.loop(stmt, env)
                case CoreRegion():
                    yield from self.block(stmt.body if stmt.core is self.core else (), env)
                case CrossWait():
                    yield from self.await_core(stmt, env)
                case _:
                    self.one(stmt, env)

    def loop(self, stmt: For | Pipelined | While, env: dict[Var, Expr]) -> Generator[None]:
        """The rounds of a loop that count."""
        for k in range(rounds(stmt)):
            inner = env
            if not isinstance(stmt, While):
                step = stmt.step if isinstance(stmt, For) and stmt.step is not None else const(1)
                start = int_value(simplify(substitute(stmt.start, env)))
                by = int_value(step)
                if start is not None and by is not None:
                    inner = env | {stmt.var: Const(start + k * by, stmt.var.dtype)}
            yield from self.block(stmt.body, inner)

    def value(self, e: Expr, env: dict[Var, Expr]) -> int | None:
        """A number, where it is known."""
        known = int_value(e)
        if known is not None:
            return known
        made = simplify(substitute(e, env))
        return int(made.value) if isinstance(made, Const) else None

    def number(self, e: Expr, env: dict[Var, Expr]) -> int:
        """The number of a flag."""
        found = self.value(e, env)
        if found is None:
            raise _NotModelled
        return found

    # Statements ----------------------------------------------------------------------------------

    def one(self, stmt: Stmt, env: dict[Var, Expr]) -> None:
        """One statement without a body."""
        match stmt:
            case SetFlag():
                key = (stmt.src.value, stmt.dst.value, self.number(stmt.id, env))
                self.events.setdefault(key, deque()).append(self.done(stmt.src))
            case WaitFlag():
                key = (stmt.src.value, stmt.dst.value, self.number(stmt.id, env))
                if not self.events.get(key):
                    raise _NotModelled
                self.hold(stmt.dst, self.events[key].popleft())
            case PipeBarrier():
                if stmt.pipe is Pipe.ALL:
                    self.hold(Pipe.ALL, self.end())
            case SyncAll():
                self.hold(Pipe.ALL, self.end())
            case CrossSet():
                number = self.number(stmt.id, env)
                number -= _HALF if stmt.mode == _PAIR and number >= _HALF else 0
                other = Core.VECTOR if self.core is Core.CUBE else Core.CUBE
                to = self.core if stmt.mode in _OWN else other
                key = (to.value, "", number)
                self.group.flags.setdefault(key, deque()).append(self.done(stmt.pipe))
            case Let():
                if isinstance(stmt.value, Const):
                    env[stmt.var] = stmt.value
                self.work(stmt)
            case _:
                self.work(stmt)

    def await_core(self, stmt: CrossWait, env: dict[Var, Expr]) -> Generator[None]:
        """Wait for a flag of the other core."""
        number = self.number(stmt.id, env)
        number -= _HALF if stmt.mode == _PAIR and number >= _HALF else 0
        queue = self.group.flags.setdefault((self.core.value, "", number), deque())
        while not queue:
            yield None
        self.steps += 1
        self.hold(stmt.pipe, queue.popleft())

    def done(self, pipe: Pipe) -> int:
        """When all that a pipe has been given is done."""
        if pipe is Pipe.ALL:
            return self.end()
        by = agent(self.core, pipe)
        return max(self.now, self.free[by], self.last[by])

    def hold(self, pipe: Pipe, until: int) -> None:
        """A pipe, or the scalar unit with all that it gives later, goes on at a time."""
        if pipe in (Pipe.S, Pipe.ALL):
            self.now = max(self.now, until)
            return
        by = agent(self.core, pipe)
        self.free[by] = max(self.free[by], until)

    def work(self, stmt: Stmt) -> None:
        """What a statement gives to pipes."""
        spans = self.group.pace.of(stmt, self.core)
        scalar = agent(self.core, Pipe.S)
        if scalar in spans:
            self.now += spans.pop(scalar).busy
        if not spans:
            return
        self.now += self.group.pace.costs.issue
        if isinstance(stmt, Gemm) and len(spans) > 1:
            self.product(spans)
            return
        for by, span in spans.items():
            self.put(by, span, max(self.now, self.free[by]))

    def put(self, by: Agent, span: Span, start: int) -> None:
        """Work of a pipe."""
        busy = self.group.times.busy
        busy[by] = busy.get(by, 0) + span.busy
        self.free[by] = start + span.busy
        self.last[by] = max(self.last[by], start + span.done)

    def product(self, spans: dict[Agent, Span]) -> None:
        """A product from L1: sums begin when half of the loads are there, and end behind them."""
        own = self.group.own_order
        self.wait(GEMM_V0.first if own else ())
        loads, sums = spans[_MTE1], spans[_M]
        first = max(self.now, self.free[_MTE1])
        start = max(first + loads.done // 2, self.free[_M])
        self.put(_MTE1, loads, first)
        self.put(_M, sums, max(start, first + loads.done - sums.busy // 2))
        self.wait(GEMM_V0.last if own else ())

    def wait(self, pairs: Waits) -> None:
        """Pipes wait for others."""
        for doer, waiter in pairs:
            self.free[waiter] = max(self.free[waiter], self.last[doer])
