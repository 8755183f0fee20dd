"""Where each statement runs: the loops around it, the conditions above it, and what it touches.

What enters: a `Function`. What leaves: its statements in order, each with its `Place`, and for each
statement the boxes of buffers that it reads, writes or updates atomically. All checks start here.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tilelang.dtypes import DType
from tilelang.errors import Loc
from tilelang.ir.affine import is_stable
from tilelang.ir.ascend import AtomicMode
from tilelang.ir.bounds import Env
from tilelang.ir.expr import (
    BOOL,
    Binary,
    BinaryOp,
    Buffer,
    Expr,
    Load,
    LoadVector,
    Region,
    Select,
    Var,
    const,
    int_value,
)
from tilelang.ir.node import Effect, Kind, Node
from tilelang.ir.sync import GROUP, WarpSpecialize
from tilelang.ir.tile import (
    Assert,
    Assume,
    Block,
    Break,
    Continue,
    For,
    Function,
    If,
    Launch,
    Let,
    Parallel,
    Pipelined,
    Stmt,
    Store,
    StoreVector,
    ThreadReturn,
    While,
)

_LEAVES = (Break, Continue, ThreadReturn)

DEFAULT_THREADS = 128
"""Threads of a block where the author leaves the choice to the target."""


class AxisKind(enum.Enum):
    """What a variable counts."""

    BLOCK = "block"
    THREAD = "thread"
    PARALLEL = "iteration of T.Parallel"
    SERIAL = "round of a loop"


@dataclass(frozen=True)
class Axis:
    """A variable that takes the values `start, start + step, ...` below `stop`.

    `stop` is None where the target chooses the number of threads. `loop` is the statement.
    """

    var: Var
    kind: AxisKind
    start: Expr
    stop: Expr | None
    step: int
    loop: Stmt


class Why(enum.Enum):
    """Why a condition is known at a statement."""

    ARM = "the statement is in an arm of an if, or of a select"
    GROUPS = "it is in a T.ws of these warp groups"
    LEFT = "otherwise the round of the loop has ended"
    ENDED = "otherwise the thread has returned"
    STATED = "T.assume or an assertion says so"


@dataclass(frozen=True)
class Guard:
    """A condition that holds, or does not, wherever the statement runs."""

    cond: Expr
    holds: bool = True
    why: Why = Why.ARM


@dataclass(frozen=True)
class Place:
    """What is around a statement, outermost first.

    `certain` says that the statement runs whenever its guards hold: no `break`, `while` or early
    return decides about it. `lets` are the values of the names that are defined here and do not
    depend on memory, in terms of axes and symbolic sizes. `combines` says that stores to global
    memory add to what is there, or are the larger or smaller one (`AtomicMode`).
    """

    env: Env
    launch: Launch | None = None
    axes: tuple[Axis, ...] = ()
    guards: tuple[Guard, ...] = ()
    path: tuple[Stmt, ...] = ()
    lets: Mapping[Var, Expr] = field(default_factory=dict[Var, Expr])
    certain: bool = True
    combines: bool = False

    def of_kind(self, kind: AxisKind) -> tuple[Axis, ...]:
        """The axes of one kind."""
        return tuple(a for a in self.axes if a.kind is kind)

    @property
    def parallel(self) -> Parallel | None:
        """The innermost T.Parallel around the statement."""
        return next((s for s in reversed(self.path) if isinstance(s, Parallel)), None)


@dataclass(frozen=True)
class Site:
    """A statement and its place; `order` counts statements as they are written.

    `last` is the order of the last statement inside it, its own where there is none.
    """

    stmt: Stmt
    place: Place
    order: int
    last: int


@dataclass(frozen=True)
class Touch:
    """A box of a buffer that a statement reads, writes or updates.

    `element` is set for a single element (a load or store) and is then the node. `guards` are those
    of the place and those of lazy selects around the access. `value` is what a store writes. All
    expressions are in terms of axes and symbolic sizes, names of values being replaced.
    """

    site: Site
    buffer: Buffer
    effect: Effect
    mins: tuple[Expr, ...]
    extents: tuple[Expr, ...]
    guards: tuple[Guard, ...]
    loc: Loc | None
    element: Load | Store | None = None
    value: Expr | None = None

    @property
    def place(self) -> Place:
        """The place of the statement."""
        return self.site.place

    @property
    def writes(self) -> bool:
        """Whether the contents change."""
        return bool(self.effect & Effect.WRITE)

    @property
    def atomic(self) -> bool:
        """Whether the access is atomic."""
        combined = self.place.combines and self.writes and self.buffer.scope == "global"
        return combined or bool(self.effect & Effect.ATOMIC)


# Statements --------------------------------------------------------------------------------------


def sites(fn: Function) -> list[Site]:
    """Every statement of `fn`, in the order in which they are written."""
    walker = _Walker()
    walker.block(fn.body, Place(Env.of_function(fn, wraps=False)))
    return walker.found


class _Walker:
    def __init__(self) -> None:
        self.found: list[Site] = []

    def block(self, stmts: Block, place: Place) -> None:
        for stmt in stmts:
            order = len(self.found)
            self.found.append(Site(stmt, place, order, order))
            self.inside(stmt, place)
            self.found[order] = Site(stmt, place, order, len(self.found) - 1)
            place = _after(stmt, place)

    def inside(self, stmt: Stmt, place: Place) -> None:
        here = replace(place, path=(*place.path, stmt))
        if isinstance(stmt, If):
            self.block(stmt.then, _guarded(here, Guard(stmt.cond)))
            self.block(stmt.orelse, _guarded(here, Guard(stmt.cond, holds=False)))
            return
        bodies = [getattr(stmt, f.name) for f in stmt.fields() if f.metadata["kind"] is Kind.BODY]
        if not bodies:
            return
        inner = replace(
            here,
            env=place.env.enter(stmt),
            axes=(*place.axes, *(_expanded(a, place.lets) for a in _axes(stmt))),
            launch=stmt if isinstance(stmt, Launch) else place.launch,
            certain=place.certain and not isinstance(stmt, While) and not _breaks(stmt),
        )
        if isinstance(stmt, WarpSpecialize) and place.launch is not None:
            inner = _guarded(inner, Guard(_in_groups(stmt, place.launch), why=Why.GROUPS))
        for body in bodies:
            self.block(body, inner)


def _in_groups(stmt: WarpSpecialize, launch: Launch) -> Expr:
    """Whether a thread (counted x fastest) is in one of the warp groups."""
    flat: Expr = launch.thread_vars[0]
    stride = 1
    for var, extent in zip(launch.thread_vars, launch.threads or (), strict=False):
        if stride > 1 and extent > 1:
            flat = Binary(BinaryOp.ADD, flat, Binary(BinaryOp.MUL, var, const(stride)))
        stride *= extent
    found: Expr | None = None
    for group in stmt.groups:
        low, high = const(group * GROUP), const((group + 1) * GROUP)
        above, below = Binary(BinaryOp.GE, flat, low), Binary(BinaryOp.LT, flat, high)
        here = Binary(BinaryOp.AND, above, below)
        found = here if found is None else Binary(BinaryOp.OR, found, here)
    return found if found is not None else const(value=False, dtype=BOOL)


def _guarded(place: Place, guard: Guard) -> Place:
    env = place.env.assume(guard.cond, holds=guard.holds)
    return replace(place, env=env, guards=(*place.guards, _plain(guard, place)))


def _plain(guard: Guard, place: Place) -> Guard:
    return replace(guard, cond=expand(guard.cond, place.lets))


def _after(stmt: Stmt, place: Place) -> Place:
    """The place of the statements that follow `stmt` in its block."""
    env = place.env.after(stmt)
    match stmt:
        case Let():
            if not is_stable(stmt.value):
                return replace(place, env=env)
            value = expand(stmt.value, place.lets)
            return replace(place, env=env, lets={**place.lets, stmt.var: value})
        case Assume() | Assert():
            guard = _plain(Guard(stmt.cond, why=Why.STATED), place)
            return replace(place, env=env, guards=(*place.guards, guard))
        case AtomicMode():
            return replace(place, env=env, combines=stmt.op != "")
        case If(orelse=()) if len(stmt.then) == 1 and isinstance(stmt.then[0], _LEAVES):
            why = Why.ENDED if isinstance(stmt.then[0], ThreadReturn) else Why.LEFT
            guard = _plain(Guard(stmt.cond, holds=False, why=why), place)
            return replace(place, env=env, guards=(*place.guards, guard))
        case _:
            certain = place.certain and not _may_leave(stmt)
            return replace(place, env=env, certain=certain)


def expand(e: Expr, lets: Mapping[Var, Expr]) -> Expr:
    """`e` with the names of values replaced by the values."""
    if not any(isinstance(n, Var) and n in lets for n in e.walk()):
        return e
    whole = lets.get(e) if isinstance(e, Var) else None
    return whole or e.rewrite(lambda n: lets.get(n) if isinstance(n, Var) else None)


def _may_leave(stmt: Stmt) -> bool:
    """Whether `stmt` may keep the statements after it from running."""
    if isinstance(stmt, _LEAVES):
        return True
    leaves = (ThreadReturn,) if isinstance(stmt, (For, Pipelined, While)) else _LEAVES
    return any(isinstance(s, leaves) for s in _own(stmt))


def _breaks(loop: Stmt) -> bool:
    """Whether a round of `loop` may be the last before its range ends."""
    if not isinstance(loop, (For, Pipelined)):
        return False
    return any(isinstance(s, (Break, ThreadReturn)) for s in _own(loop))


def _own(stmt: Stmt) -> Iterator[Stmt]:
    """The statements inside `stmt`; of an inner loop, only what ends the thread."""
    for f in stmt.fields():
        if f.metadata["kind"] is not Kind.BODY:
            continue
        for inner in getattr(stmt, f.name):
            yield inner
            of_inner = _own(inner)
            if isinstance(inner, (For, Pipelined, While)):
                of_inner = (s for s in of_inner if isinstance(s, ThreadReturn))
            yield from of_inner


def _axes(stmt: Stmt) -> tuple[Axis, ...]:
    zero = const(0)
    match stmt:
        case Launch():
            blocks = [
                Axis(v, AxisKind.BLOCK, zero, e, 1, stmt)
                for v, e in zip(stmt.vars, stmt.grid, strict=True)
            ]
            return (*blocks, *_threads(stmt))
        case Parallel():
            pairs = zip(stmt.vars, stmt.extents, strict=True)
            return tuple(Axis(v, AxisKind.PARALLEL, zero, e, 1, stmt) for v, e in pairs)
        case For():
            step = 1 if stmt.step is None else int_value(stmt.step) or 1
            return (Axis(stmt.var, AxisKind.SERIAL, stmt.start, stmt.stop, step, stmt),)
        case Pipelined():
            return (Axis(stmt.var, AxisKind.SERIAL, stmt.start, stmt.stop, 1, stmt),)
        case _:
            return ()


def _expanded(axis: Axis, lets: Mapping[Var, Expr]) -> Axis:
    stop = None if axis.stop is None else expand(axis.stop, lets)
    return replace(axis, start=expand(axis.start, lets), stop=stop)


def _threads(launch: Launch) -> Iterator[Axis]:
    extents = launch.threads
    for n, var in enumerate(launch.thread_vars):
        stop = None if extents is None else const(extents[n] if n < len(extents) else 1)
        yield Axis(var, AxisKind.THREAD, const(0), stop, 1, launch)


# Accesses ----------------------------------------------------------------------------------------


def touches(site: Site) -> Iterator[Touch]:
    """Everything that the statement itself touches, without the statements inside it."""
    lets = site.place.lets
    for touch in _touches(site):
        if not lets:
            yield touch
            continue
        yield replace(
            touch,
            mins=tuple(expand(e, lets) for e in touch.mins),
            extents=tuple(expand(e, lets) for e in touch.extents),
            guards=tuple(replace(g, cond=expand(g.cond, lets)) for g in touch.guards),
            value=None if touch.value is None else expand(touch.value, lets),
        )


def _touches(site: Site) -> Iterator[Touch]:
    stmt = site.stmt
    if isinstance(stmt, Store):
        yield _element(site, stmt, site.place.guards, stmt.value)
    elif isinstance(stmt, StoreVector):
        yield _vector(site, stmt, stmt.value.dtype, site.place.guards)
    for f in stmt.fields():
        if f.metadata["kind"] is not Kind.OPERAND:
            continue
        effect = f.metadata.get("effect", Effect.NONE)
        for node in _flat(getattr(stmt, f.name)):
            if isinstance(node, Region):
                yield Touch(
                    site, node.buffer, effect, node.mins, node.extents, site.place.guards, stmt.loc
                )
                for part in (*node.mins, *node.extents):
                    yield from _loads(site, part, site.place.guards)
            elif isinstance(node, Buffer):
                if effect and not isinstance(stmt, (Store, StoreVector)):
                    zeros = tuple(const(0) for _ in node.shape)
                    yield Touch(site, node, effect, zeros, node.shape, site.place.guards, stmt.loc)
            else:
                yield from _loads(site, node, site.place.guards)


def _effect(node: Node) -> Effect:
    """What a load or store does to its buffer."""
    effects = (f.metadata.get("effect", Effect.NONE) for f in node.fields() if f.name == "buffer")
    return next(effects, Effect.NONE)


def _element(
    site: Site, node: Load | Store, guards: tuple[Guard, ...], value: Expr | None
) -> Touch:
    ones = tuple(const(1) for _ in node.indices)
    loc = node.loc or site.stmt.loc
    return Touch(site, node.buffer, _effect(node), node.indices, ones, guards, loc, node, value)


def _loads(site: Site, e: Node, guards: tuple[Guard, ...]) -> Iterator[Touch]:
    if isinstance(e, Load):
        yield _element(site, e, guards, None)
        for index in e.indices:
            yield from _loads(site, index, guards)
    elif isinstance(e, LoadVector):
        yield _vector(site, e, e.type, guards)
        for part in (*e.indices, *(() if e.pred is None else (e.pred,))):
            yield from _loads(site, part, guards)
    elif isinstance(e, Select) and e.lazy:
        yield from _loads(site, e.cond, guards)
        yield from _loads(site, e.t, (*guards, Guard(e.cond)))
        yield from _loads(site, e.f, (*guards, Guard(e.cond, holds=False)))
    elif not isinstance(e, Buffer):
        for child in e.children():
            yield from _loads(site, child, guards)


def _vector(
    site: Site, node: LoadVector | StoreVector, dtype: DType, guards: tuple[Guard, ...]
) -> Touch:
    """Neighbouring elements of the last axis, if the predicate holds."""
    width = -(-dtype.bits * dtype.lanes // (node.buffer.dtype.bits * node.buffer.dtype.lanes))
    extents = (*(const(1) for _ in node.indices[1:]), const(width))
    inner = guards if node.pred is None else (*guards, Guard(node.pred))
    loc = node.loc or site.stmt.loc
    return Touch(site, node.buffer, _effect(node), node.indices, extents, inner, loc)


def _flat(value: object) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _flat(item)  # pyright: ignore[reportUnknownArgumentType]
