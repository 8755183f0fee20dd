"""A function of the IR as Python source.

What enters: a `Function`. What leaves: the text of one Python function of a machine and the
arguments, in which every launch is a nested function of its block indices. Control flow, scalars,
accesses and tile operations have modules of their own; this one knows the statements that remain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.dtypes.convert import converter
from tilelang.emulator import (
    access,
    async_text,
    atomics,
    control,
    elements,
    machine,
    numerics,
    reducers,
    scalars,
    special,
    storage,
    tiles,
    vectors,
    waits,
    warps,
)
from tilelang.emulator.lanes import nodes_of, roots_of, statements
from tilelang.emulator.observe import Observer, hook, one
from tilelang.emulator.parallel import PRIVATE, memory, parallel
from tilelang.emulator.tiles import no_meaning
from tilelang.emulator.unit import Frame, Unit
from tilelang.emulator.values import Domain, Storage, Val, full_range, integer, tuple_text, value
from tilelang.emulator.watched import Watched
from tilelang.emulator.writer import Writer
from tilelang.errors import error
from tilelang.ir.expr import AddressOf, Buffer, Const, Load, LoadVector, Region, Var, int_value
from tilelang.ir.special import Collective
from tilelang.ir.sync import ClcQuery
from tilelang.ir.tile import (
    Alloc,
    Annotate,
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
    Print,
    Stmt,
    Store,
    StoreVector,
    SyncThreads,
    ThreadReturn,
    TileOp,
    View,
    While,
)
from tilelang.passes.build import map_launches, map_statements
from tilelang.passes.check.threads import extents_of
from tilelang.passes.packed_views import without_packed_views
from tilelang.scopes import Dialect, Memory

_RESERVED = {
    **numerics.TEXT_NAMES,
    "Tile": storage.Tile,
    "fresh": storage.fresh,
    "filled": storage.filled,
    "reinterpreted": storage.reinterpreted,
    "load": elements.load,
    "store": elements.store,
    "gather": elements.gather,
    "scatter": elements.scatter,
    "exclusive": elements.exclusive,
    "axis": elements.axis,
    "atomic_lanes": atomics.atomic_lanes,
    "atomic_previous": atomics.atomic_previous,
    "rounds": machine.rounds,
    "whole_clusters": machine.whole_clusters,
    "most": machine.most,
    "everyone": machine.everyone,
    "one": one,
    "zeros": np.zeros,
    "asarray": np.asarray,
    "machine": None,
    "agent": None,
    **{n: getattr(np, n) for n in ("float16", "float32", "float64", "bool_")},
    **{f"{k}int{b}": getattr(np, f"{k}int{b}") for k in ("", "u") for b in (8, 16, 32, 64)},
}


def prepared(fn: Function) -> Function:
    """A function of which each statement has a text of its own."""
    plain = without_packed_views(fn)
    return map_launches(plain, lambda body: map_statements(body, async_text.pairs_meet))


def translate_function(
    fn: Function, *, tf32: bool = False, observer: Observer | None = None, checked: bool = False
) -> tuple[Writer, str]:
    """The text of `fn`, as `prepared` gives it, and the name of the function it defines: of the
    machine, the buffers, the scalars and sizes.
    """
    w = Writer()
    w.define(**_RESERVED)
    u = Unit(
        w, Dialect(fn.dialect), tf32, observer=observer, checks=Watched(fn) if checked else None
    )
    u.emit = lambda e: vectors.emit(u, e)
    u.run = lambda body: control.block(u, body, statement)
    u.before_round = lambda loop: waits.before_round(u, loop)
    name = w.name(fn.name)
    sizes = {
        n.name
        for p in fn.params
        if p.buffer is not None
        for e in p.buffer.shape
        for n in nodes_of(e)
        if isinstance(n, Var)
    }
    args = ["machine"]
    for p in fn.params:
        if p.buffer is not None:
            u.stores[p.buffer.name] = Storage(w.name(p.buffer.name), p.buffer, u.access(p.buffer))
            args.append(w.name(p.buffer.name))
        elif p.var is not None:
            u.define(p.var, value("", p.var.dtype))
            args.append(w.name(p.var.name))
    for var in fn.dynamic:
        least, most = full_range(var.dtype)
        # An extent is not negative; a stride that launch reads from an array may be.
        u.define(var, Val("", var.dtype, low=0 if var.name in sizes else least, high=most))
        args.append(w.name(var.name))
    w.loc = fn.loc
    u.roots = roots_of(_launch_bodies(fn.body))
    with w.block(f"def {name}({', '.join(args)}):"):
        if u.checks is not None:
            u.checks.parameters(u, fn)
        u.statements(fn.body)
    return w, name


def _launch_bodies(body: Block) -> Block:
    out: list[Stmt] = []
    for stmt in statements(body):
        out.append(stmt)
        if isinstance(stmt, Launch):
            out.extend(_launch_bodies(stmt.body))
    return tuple(s for s in out if isinstance(s, View))


def statement(u: Unit, stmt: Stmt) -> None:
    """Translate one statement, and what the observer asks for after it."""
    if stmt.loc is not None:
        u.w.loc = stmt.loc
    if u.checks is not None:
        u.checks.step(u)
    watched = (
        u.observer is not None
        and not isinstance(stmt, (Launch, Break, Continue, ThreadReturn))
        and u.observer.wants(stmt)
    )
    if u.agents:
        see = (lambda: hook(u, stmt)) if watched else None
        waits.statement(u, stmt, lambda: _statement(u, stmt), see)
        return
    _statement(u, stmt)
    if watched:
        hook(u, stmt)


def _statement(u: Unit, stmt: Stmt) -> None:
    translator = _STATEMENTS.get(type(stmt))
    if translator is not None:
        if u.checks is None:
            translator(u, stmt)
        else:
            u.checks.special(u, stmt, lambda: translator(u, stmt))
        return
    match stmt:
        case Let():
            _let(u, stmt)
        case Store():
            _store(u, stmt)
        case If():
            control.if_(u, stmt)
        case For() | Pipelined():
            control.for_(u, stmt)
        case While():
            control.while_(u, stmt)
        case Break() | Continue() | ThreadReturn():
            control.exit_(u, stmt)
        case Parallel():
            parallel(u, stmt)
        case TileOp():
            tiles.tile_op(u, stmt)
        case _:
            _declaration(u, stmt)


def _store(u: Unit, stmt: Store) -> None:
    if stmt.buffer.dtype.is_vector:
        vectors.store_element(u, stmt)
        return
    u.begin(stmt.value, *stmt.indices)
    access.store(u, stmt, scalars.convert(u, u.expr(stmt.value), stmt.buffer.dtype))


def _query(u: Unit, stmt: ClcQuery) -> None:
    _let(u, async_text.told(stmt))


_STATEMENTS: dict[type[Stmt], Callable[[Unit, Any], None]] = {
    **special.STATEMENTS,
    **async_text.STATEMENTS,
    Collective: warps.collective,
    ClcQuery: _query,
}


def _declaration(u: Unit, stmt: Stmt) -> None:
    match stmt:
        case Alloc():
            _alloc(u, stmt)
        case View():
            _view(u, stmt)
        case Launch():
            _launch(u, stmt)
        case Print():
            _print(u, stmt)
        case Assert():
            _assert(u, stmt)
        case SyncThreads() if u.agents:
            async_text.sync_threads(u, stmt)
        case SyncThreads():
            _sync(u, stmt)
        case Assume():
            if u.checks is not None:
                u.checks.assume(u, stmt.cond)
        case Annotate():
            pass
        case _:
            raise no_meaning(stmt)


def _let(u: Unit, stmt: Let) -> None:
    u.begin(stmt.value)
    v = u.expr(stmt.value)
    u.lets[stmt.var.name] = stmt.value
    copied = f"{v.text}.copy()" if v.alias and v.axes else v.code
    u.w.line(f"{u.w.name(stmt.var.name)} = {copied}")
    u.define(stmt.var, v)


# -- memory ----------------------------------------------------------------------------------------


def _alloc(u: Unit, stmt: Alloc) -> None:
    buffer = stmt.buffer
    if not u.on_chip(buffer):
        if buffer.name not in u.stores:  # outside of a launch; a launch makes its own at its start
            _workspace(u, buffer)
        return
    kind, name = memory(u, buffer), u.w.name(buffer.name)
    if u.agents and kind in (Memory.BARRIER, Memory.CLUSTER_BARRIER):
        async_text.alloc_barriers(u, stmt)
        return
    if kind is Memory.REDUCER:
        reducers.alloc(u, stmt)
        return
    lanes = kind in PRIVATE and u.lanes.per_lane(buffer)
    variable = kind is Memory.VAR
    u.begin(stmt.init)
    init = scalars.convert(u, u.expr(stmt.init), buffer.dtype) if stmt.init is not None else None
    if init is None and variable:
        init = vectors.constant(u, 0, buffer.dtype)
    if (
        variable
        and not lanes
        and buffer.name not in u.arrays
        and init is not None
        and u.checks is None
    ):
        u.w.line(f"{name} = {init.code}")
        u.stores[buffer.name] = Storage(name, buffer, u.access(buffer), scalar=True)
        return
    own = vectors.shape_text(u, buffer.dtype, buffer.shape)
    shape = f"{u.domain.shape} + {own}" if lanes else own
    dtype = u.constant("dtype", buffer.dtype, buffer.dtype)
    if init is None and u.agents and u.domain.threads and not u.private(buffer) and not lanes:
        u.w.line(f"{name} = agent.shared({buffer.name!r}, {shape}, {dtype}, {waits.takers(u)})")
    elif init is None:
        u.w.line(f"{name} = fresh({shape}, {dtype})")
    else:
        behind = "[..., None, :]" if buffer.dtype.is_vector else "[..., None]"
        start = f"{init.text}{behind}" if init.axes else init.code
        u.w.line(f"{name} = filled({shape}, {dtype}, {start})")
    _keep(
        u,
        Storage(name, buffer, u.access(buffer), lanes=lanes, owner=u.domain if lanes else None),
        init is not None,
    )


def _keep(u: Unit, s: Storage, written: bool) -> None:
    u.stores[s.buffer.name] = s
    if u.checks is not None:
        u.checks.born(u, s, written=written)


def _workspace(u: Unit, buffer: Buffer) -> None:
    u.begin(*buffer.shape)
    shape = vectors.shape_text(u, buffer.dtype, buffer.shape)
    dtype = u.constant("dtype", buffer.dtype, buffer.dtype)
    name = u.w.name(buffer.name)
    u.w.line(f"{name} = fresh({shape}, {dtype})")
    _keep(u, Storage(name, buffer, u.access(buffer)), written=False)


def _view(u: Unit, stmt: View) -> None:
    src, dst = u.storage(stmt.source), stmt.buffer
    if src.buffer.dtype.bits != dst.dtype.bits and (
        src.buffer.dtype.is_subbyte or dst.dtype.is_subbyte
    ):
        raise error(
            "dtype",
            f"a view of {src.buffer.dtype} memory as {dst.dtype}",
            stmt.loc,
            expected="types of whole bytes, or of the same number of bits",
            help="convert the elements one by one",
        )
    u.begin(stmt.offset, *dst.shape, *(dst.strides or ()))
    offset = vectors.scaled(
        u.expr(stmt.offset).text if stmt.offset is not None else "0", stmt.source.dtype
    )
    shape = vectors.shape_text(u, dst.dtype, dst.shape)
    strides = vectors.strides_text(u, dst.dtype, dst.strides)
    types = u.constant("types", (src.buffer.dtype, dst.dtype), (src.buffer.dtype, dst.dtype))
    name, place = u.w.name(dst.name), u.access_name(dst)
    rank = str(u.domain.rank) if src.lanes else "0"
    u.w.line(
        f"{name} = reinterpreted({src.name}, {types}, ({offset}, {shape}, {strides}),"
        f" {place}, {rank})"
    )
    u.stores[dst.name] = Storage(name, dst, u.access(dst), lanes=src.lanes, owner=src.owner)
    if u.checks is not None:
        u.checks.viewed(u, u.stores[dst.name], src)


# -- launches --------------------------------------------------------------------------------------


def _launch(u: Unit, stmt: Launch) -> None:
    u.begin(*stmt.grid)
    grid = [u.bind(u.expr(e)) for e in stmt.grid]
    for inner in statements(stmt.body):
        if isinstance(inner, Alloc) and not u.on_chip(inner.buffer):
            u.w.loc = inner.loc or u.w.loc
            _workspace(u, inner.buffer)
    u.safe = _safe_values(stmt.body)
    u.arrays = _need_arrays(stmt.body)
    for var, extent in zip(stmt.vars, grid, strict=False):
        u.define(var, Val("", var.dtype, low=0, high=max(extent.high - 1, 0)))
    name = u.w.fresh("kernel")
    outer = u.domain, u.lanes, u.frames
    extents = extents_of(stmt, u.dialect)
    looks = u.observer is not None and u.observer.wants(stmt)
    stmt = waits.settle(stmt, extents)
    waits.enter(u, stmt, extents)
    params = [u.w.name(v.name) for v in stmt.vars] + (["agent"] if u.agents else [])
    crew = ""
    with u.w.block(f"def {name}({', '.join(params)}):"):
        if u.agents:
            crew = waits.lanes(u, stmt)
        else:
            _threads(u, stmt, extents)
        if u.checks is not None:
            u.checks.enter(u)
        special.begin_block(u, stmt.body)
        frame = Frame(loop=False)
        if u.lanes.leaves_early(stmt.body)[1]:
            frame = Frame(u.w.fresh("gone"), loop=False)
            u.w.line(f"{frame.gone} = zeros({u.domain.shape}, bool)")
        u.frames = [frame]
        u.at_end = (lambda: _look_at_end(u, stmt)) if looks else None
        u.statements(stmt.body, u.at_end)
        u.domain, u.lanes, u.frames = outer
        if u.agents:
            u.w.line("yield from ()  # a kernel that waits is a generator")
    u.w.loc = stmt.loc
    grid_text = tuple_text(e.code for e in grid)
    if stmt.cluster:
        place = u.constant("loc", stmt.loc, stmt.loc)
        u.w.line(f"whole_clusters({grid_text}, {stmt.cluster!r}, {place})")
    if u.agents:
        u.w.line(f"machine.launch_agents({name}, {grid_text}, {crew})")
        u.ways = None
    else:
        u.w.line(f"machine.launch({name}, {grid_text})")


def _look_at_end(u: Unit, stmt: Launch) -> None:
    """What the observer sees at the end of a block: when the last of its threads end."""
    if not u.agents:
        hook(u, stmt)
        return
    with u.w.block("if agent.last:"):
        hook(u, stmt)


def _threads(u: Unit, stmt: Launch, extents: tuple[int, ...]) -> None:
    """Make the threads of a block the lanes, z outermost; axes of one thread drop out."""
    axes = [
        (v, n) for v, n in reversed(list(zip(stmt.thread_vars, extents, strict=False))) if n != 1
    ]
    u.domain = Domain(
        tuple(v.name for v, _ in axes), tuple(integer(n, v.dtype) for v, n in axes), threads=True
    )
    for var in stmt.thread_vars:
        u.env[var.name] = integer(0, var.dtype)
    for k, (var, n) in enumerate(axes):
        following = len(axes) - 1 - k
        index = np.arange(n, dtype=var.dtype.numpy).reshape((n,) + (1,) * following)
        index.flags.writeable = False
        code = u.constant("lane", index, (n, following, var.dtype))
        u.env[var.name] = Val(code, var.dtype, frozenset({k}), 0, n - 1, atom=True, owner=u.domain)


def _safe_values(body: Block) -> dict[str, Any]:
    """What reads outside of a buffer give, where the author said so."""
    found: dict[str, Any] = {}
    for stmt in statements(body):
        if not isinstance(stmt, Annotate) or stmt.kind != "safe_value":
            continue
        given = list(stmt.values) or [e.value if isinstance(e, Const) else None for e in stmt.exprs]
        for buffer, number in zip(stmt.buffers, given, strict=True):
            if number is None:
                raise error(
                    "value", "a safe value that is not a constant", stmt.loc, expected="a number"
                )
            found[buffer.name] = _element(number, buffer.dtype)
    return found


def _element(number: float, dtype: DType) -> Any:
    """A number as one element, by value."""
    source = DType("int64") if isinstance(number, int) else DType("float64")
    return converter(source, dtype)(np.array(number, source.numpy))[()]


def _need_arrays(body: Block) -> set[str]:
    """Variables that are used as more than a scalar: in a region, a view, a print, or with an index
    that varies.
    """
    found: set[str] = set()
    for stmt in statements(body):
        if isinstance(stmt, View):
            found |= {stmt.source.name, stmt.buffer.name}
        for node in nodes_of(stmt):
            if isinstance(node, (Load, Store)):
                if any(int_value(i) != 0 for i in node.indices):
                    found.add(node.buffer.name)
            elif isinstance(node, (Region, LoadVector, StoreVector, AddressOf)):
                found.add(node.buffer.name)
        if isinstance(stmt, Print) and isinstance(stmt.value, Buffer):
            found.add(stmt.value.name)
    return found


# -- statements that talk to the outside -----------------------------------------------------------


def _print(u: Unit, stmt: Print) -> None:
    if stmt.value is None:
        u.w.line(f"machine.print_message({stmt.message!r})")
    elif isinstance(stmt.value, Buffer):
        s = u.storage(stmt.value)
        u.w.line(
            f"machine.print_buffer({s.name}, {u.constant('buffer', stmt.value)}, {stmt.message!r})"
        )
    else:
        u.begin(stmt.value)
        v = u.bind(u.expr(stmt.value))
        shape = u.domain.shape if v.axes or u.mask is not None else "()"
        count = v.dtype.lanes
        for lane in [v] if count == 1 else [vectors.lane_of(u, v, k) for k in range(count)]:
            what = f"{stmt.message!r}, {shape}, {str(lane.dtype)!r}"
            u.w.line(f"machine.print_value({lane.code}, {u.mask_text}, {what})")


def _assert(u: Unit, stmt: Assert) -> None:
    u.begin(stmt.cond)
    v = u.expr(stmt.cond)
    loc = u.constant("loc", stmt.loc, stmt.loc)
    call = f"machine.require({v.code}, {u.mask_text}, {stmt.message!r}, {loc}, {u.domain.names!r})"
    if v.uniform:
        with u.w.block(f"if not {v.text}:"):
            u.w.line(call)
    else:
        u.w.line(call)


def _sync(u: Unit, stmt: SyncThreads) -> None:
    if u.mask is None:
        u.w.line("# all threads are here")
        if u.checks is not None:
            u.checks.barrier(u)
        return
    u.begin(stmt.arrive_count)
    count = u.expr(stmt.arrive_count).code if stmt.arrive_count is not None else "None"
    loc = u.constant("loc", stmt.loc, stmt.loc)
    gone = u.frames[0].gone if u.frames and u.domain.threads else ""
    ended = f", {gone}" if gone else ""
    u.w.line(f"machine.sync({u.mask.code}, {u.domain.shape}, {loc}, {count}{ended})")
