"""The order of independent statements: a list schedule of straight-line code and of loop bodies.

What enters: a function of the tile stage in program order, without pipelined loops. What leaves:
the same with statements in another order, where the pipes of the cores are then done sooner by the
model of `schedule_model.py`; no memory that holds the one order may be too small for the other.
Two statements keep their order if one of them writes what the other touches (`effects.py`), if one
gives a scalar a value that the other uses, or if one is itself about order. Flags come later, from
effects and bytes, so no order is wrong that keeps this one.

A statement is placed when all that it depends on is; of those, the one that can begin first, then
the one with the longest way to the end. What holds up a whole core (the scalar unit's reads of the
UB, what comes from the other kind of core) holds up all that is placed behind it. Outside of loops
all pipes meet around a loop or branch, so nothing passes it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tilelang.errors import TileError
from tilelang.ir.ascend import (
    PIPES_OF,
    AtomicMode,
    Core,
    CoreRegion,
    CrossSet,
    CrossWait,
    Lock,
    Pipe,
    PipeBarrier,
    SetFlag,
    SetMode,
    SyncAll,
    Unlock,
    VectorFunction,
    WaitFlag,
)
from tilelang.ir.expr import Buffer, Var
from tilelang.ir.tile import (
    Assert,
    Assume,
    Block,
    Break,
    Continue,
    For,
    Function,
    Print,
    Stmt,
    Store,
    While,
)
from tilelang.ir.walk import bodies
from tilelang.isa.target import Target
from tilelang.passes.ascend.effects import Access, Agent, agent, conflict, spans_meet
from tilelang.passes.ascend.insert_sync import insert_sync
from tilelang.passes.ascend.plan_memory import given_addresses, plan_memory
from tilelang.passes.ascend.schedule_costs import Pace, Span
from tilelang.passes.ascend.schedule_model import Times, modelled
from tilelang.passes.ascend.settings import Automatic, is_automatic
from tilelang.passes.ascend.split_cores import split_cores
from tilelang.passes.build import map_bodies, map_launches, statements
from tilelang.passes.simt.launch import noted
from tilelang.passes.simt.switches import is_off

SWITCH = "list-schedule"
FENCES = (
    *(SetFlag, WaitFlag, PipeBarrier, CrossSet, CrossWait, Lock, Unlock, SyncAll),
    *(AtomicMode, SetMode, Break, Continue, Assert, Assume, Print),
)
"""Statements that keep their place among all others."""


def schedule(fn: Function, target: Target) -> Function:
    """The function in the order that its cores do sooner."""
    if not is_automatic(fn, Automatic.SYNC) or is_off(fn, SWITCH):
        return fn
    made = listed(fn, target)
    if made == fn:
        return fn
    then, now = _times(fn, target), _times(made, target)
    if then is None or now is None or now.total >= then.total:
        return fn
    text = f"a block takes {now.total} cycles by the model, {then.total} in the program's order"
    return noted(made, [("list schedule", text, "")])


def listed(fn: Function, target: Target) -> Function:
    """The function with every stretch in the order of its list schedule, sooner done or not."""
    costs = target.chip.costs if target.chip is not None else None
    if costs is None:
        return fn
    pace = Pace(fn, costs)
    given = dict(given_addresses(fn.body))
    return map_launches(fn, lambda body: _Lists(pace, given).block(body, in_loop=False))


def note_times(fn: Function, target: Target) -> Function:
    """The function with its modelled time in the compile report."""
    times = modelled(fn, target)
    return fn if times is None else noted(fn, [("modelled time of a block", str(times), "")])


def _times(fn: Function, target: Target) -> Times | None:
    """The modelled times of a function; None where it cannot be laid out or ordered."""
    try:
        for one in (plan_memory, insert_sync, split_cores):
            fn = one(fn, target)
    except TileError:
        return None
    return modelled(fn, target)


@dataclass
class _Item:
    """A statement to be placed: what it takes, what it waits for, and how far the end is."""

    stmt: Stmt
    spans: Mapping[Agent, Span]
    after: set[int] = field(default_factory=set[int])
    way: int = 0

    @property
    def length(self) -> int:
        """The cycles until all of it is done, if nothing holds it up."""
        return max((s.done for s in self.spans.values()), default=0)


class _Lists:
    """One launch."""

    def __init__(self, pace: Pace, given: Mapping[str, int]) -> None:
        self.pace = pace
        self.effects = pace.effects
        self.given = given

    def block(self, body: Block, core: Core | None = None, *, in_loop: bool) -> Block:
        """A block, and those inside it, with each stretch between fences in a new order."""
        out: list[Stmt] = []
        stretch: list[Stmt] = []
        for stmt in body:
            inner = self._inside(stmt, core, in_loop=in_loop)
            compound = not isinstance(stmt, VectorFunction) and any(bodies(stmt))
            if is_fence(inner) or (compound and not in_loop):
                out += [*self._placed(stretch, core), inner]
                stretch = []
            else:
                stretch.append(inner)
        return (*out, *self._placed(stretch, core))

    def _inside(self, stmt: Stmt, core: Core | None, *, in_loop: bool) -> Stmt:
        if isinstance(stmt, VectorFunction):
            return stmt
        home = stmt.core if isinstance(stmt, CoreRegion) else core
        again = in_loop or isinstance(stmt, (For, While))
        return map_bodies(stmt, lambda body: self.block(body, home, in_loop=again))

    # Dependences ---------------------------------------------------------------------------------

    def _items(self, body: Sequence[Stmt], core: Core | None) -> list[_Item]:
        """The statements with what each depends on."""
        items = [_Item(s, self.pace.inside(s, core)) for s in body]
        seen: dict[str, list[tuple[int, Access]]] = {}
        names: list[tuple[set[str], set[str]]] = []
        for k, stmt in enumerate(body):
            mine = list(dict.fromkeys(self.effects.inside(stmt, core)))
            for q in mine:
                roots = (q.root.name, *self._beside(q))
                before = (x for name in dict.fromkeys(roots) for x in seen.get(name, ()))
                items[k].after |= {n for n, p in before if self._ordered(p, q)}
            for a in mine:
                seen.setdefault(a.root.name, []).append((k, a))
            given, used = gives(stmt), uses(stmt)
            items[k].after |= {
                n for n, (g, u) in enumerate(names) if g & used or given & u or g & given
            }
            names.append((given, used))
        for k in reversed(range(len(items))):
            items[k].way += items[k].length
            for n in items[k].after:
                items[n].way = max(items[n].way, items[k].way)
        return items

    def _beside(self, a: Access) -> Iterable[str]:
        """The other buffers that the author has placed, where this one is placed too."""
        return self.given if a.root.name in self.given else ()

    def _ordered(self, p: Access, q: Access) -> bool:
        """Whether two accesses keep their order: of one buffer, or where the author's addresses
        let two buffers meet.
        """
        if p.root.name == q.root.name:
            return conflict(p, q)
        if p.memory is not q.memory or not (p.writes or q.writes):
            return False
        a, b = self.given.get(p.root.name), self.given.get(q.root.name)
        return a is not None and b is not None and spans_meet(p, q, a, b)

    # Places --------------------------------------------------------------------------------------

    def _placed(self, body: Sequence[Stmt], core: Core | None) -> list[Stmt]:
        """Statements without a fence among them, in the order of the list schedule."""
        if len(body) < 2:
            return list(body)
        items = self._items(body, core)
        queues = _Queues()
        left = {k: set(x.after) for k, x in enumerate(items)}
        order: list[int] = []
        while left:
            ready = (k for k, waits in left.items() if not waits)
            best = min(ready, key=lambda k: queues.key(k, items))
            queues.place(best, items)
            order.append(best)
            del left[best]
            for waits in left.values():
                waits.discard(best)
        return [body[k] for k in order]


class _Queues:
    """When each pipe is free, and each statement done, while they are placed."""

    def __init__(self) -> None:
        self.free: dict[Agent, int] = {}
        self.end: dict[int, int] = {}
        self.by: dict[int, frozenset[Agent]] = {}

    def start(self, k: int, items: Sequence[_Item]) -> int:
        """When a statement can begin."""
        item = items[k]
        queues = (self.free.get(by, 0) for by in item.spans)
        return max((*queues, *(self.end[n] for n in item.after)), default=0)

    def key(self, k: int, items: Sequence[_Item]) -> tuple[int, int, int, int]:
        """What takes no pipe comes at once; else the first to begin, the farthest from the end."""
        works = bool(items[k].spans)
        return int(works), self.start(k, items) if works else 0, -items[k].way * works, k

    def place(self, k: int, items: Sequence[_Item]) -> None:
        """Give a statement to its pipes."""
        item, start = items[k], self.start(k, items)
        for by, span in item.spans.items():
            self.free[by] = start + span.busy
        self.end[k] = start + item.length
        self.by[k] = frozenset(item.spans)
        for core in {by.core for by in item.spans}:
            others = (by.core is not core for n in item.after for by in self.by[n])
            if any(others):
                self._hold(core, start)
            if agent(core, Pipe.S) in item.spans:
                self._hold(core, self.end[k])

    def _hold(self, core: Core, until: int) -> None:
        """All that is placed later on a core begins at this time."""
        for pipe in PIPES_OF[core]:
            by = agent(core, pipe)
            self.free[by] = max(self.free.get(by, 0), until)


def is_fence(stmt: Stmt) -> bool:
    """Whether nothing passes a statement."""
    inside = (stmt,) if isinstance(stmt, VectorFunction) else statements((stmt,))
    return any(isinstance(s, FENCES) for s in inside)


def gives(stmt: Stmt) -> set[str]:
    """The names that a statement, or one inside it, gives a meaning or a value."""
    inside = list(statements((stmt,)))
    stored = {s.buffer.name for s in inside if isinstance(s, Store)}
    return stored | {n.name for s in inside for n in s.defined() if isinstance(n, (Var, Buffer))}


def uses(stmt: Stmt) -> set[str]:
    """The names that occur in a statement."""
    return {n.name for n in stmt.walk() if isinstance(n, (Var, Buffer))}
