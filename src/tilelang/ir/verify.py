"""The executable specification of the tile stage: a function goes in, the list of its violations
comes out.

It runs after the frontend and after every pass in tests. An author's faults are found earlier, with
their place; what is found here is a fault of the compiler, so `verify` raises `InternalError` with
the statement as text. One generator function states each concern; `RULES` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tilelang.errors import InternalError
from tilelang.ir.node import Kind, Node, flat
from tilelang.ir.special import ReducerFinalize, ReducerUpdate
from tilelang.ir.sync import ClusterBarrier, SyncGrid, WarpSpecialize
from tilelang.ir.text import is_name, print_stmt
from tilelang.ir.tile import (
    ANNOTATIONS,
    Annotate,
    Atomic,
    Break,
    Continue,
    For,
    Function,
    Launch,
    Parallel,
    Pipelined,
    Stmt,
    Store,
    SyncThreads,
    ThreadReturn,
    TileOp,
    While,
)
from tilelang.ir.verify_ascend import broken_ascend
from tilelang.ir.verify_names import Finding, Scope
from tilelang.ir.verify_types import broken_exprs, broken_fields, broken_shapes, single_element
from tilelang.ir.walk import bound, operands, statements


def verify(fn: Function) -> None:
    """Raise `InternalError` unless `fn` keeps every rule of the tile stage."""
    found = violations(fn)
    if found:
        raise InternalError(
            f"{fn.name} breaks {len(found)} rule(s) of the tile stage\n" + "\n".join(found)
        )


def violations(fn: Function) -> list[str]:
    """What is wrong with `fn`, one text per violation: the rule, the fault, the statement."""
    found: list[str] = []
    for rule in RULES:
        name = rule.__name__.strip("_").replace("_", " ")
        for stmt, message in rule(fn):
            found.append(f"{name}: {message}{'' if stmt is None else shown(stmt)}")
    return found


def shown(stmt: Stmt) -> str:
    """The statement as text, of one with a body the first lines; and where the author wrote it."""
    try:
        lines = print_stmt(stmt, 1).split("\n")
    except InternalError:  # what has no text form is shown as it is
        lines = ["    " + repr(stmt)]
    more = ["    ..."] if len(lines) > 4 else []
    where = f"\n  at {stmt.loc}" if stmt.loc is not None else ""
    return "\n" + "\n".join([*lines[:4], *more]) + where


# Names -------------------------------------------------------------------------------------------


def names(fn: Function) -> Iterator[Finding]:
    """A name is defined once in a function, before its uses, and used only inside its block."""
    scope = Scope()
    yield from scope.define(None, *fn.dynamic)
    yield from scope.define(None, *(p.var for p in fn.params if p.var is not None))
    for p in fn.params:
        if p.buffer is not None:
            yield from scope.uses(None, p.buffer.children())
            yield from scope.define(None, p.buffer)
    if not is_name(fn.name):
        yield None, f"the function name {fn.name!r} is not a name"
    yield from scope.block(fn.body)


# Structure ---------------------------------------------------------------------------------------


def parameters(fn: Function) -> Iterator[Finding]:
    """A parameter is a tensor or a scalar; outputs are positions of tensors, each named once."""
    for p in fn.params:
        if (p.buffer is None) == (p.var is None):
            yield None, f"parameter {p.name} is not exactly one of tensor and scalar"
        if not is_name(p.name):
            yield None, f"the parameter name {p.name!r} is not a name"
    if len({p.name for p in fn.params}) != len(fn.params):
        yield None, "two parameters have one name"
    if len(set(fn.outputs)) != len(fn.outputs):
        yield None, f"an output is named twice: {fn.outputs}"
    for position in fn.outputs:
        if not 0 <= position < len(fn.params) or fn.params[position].buffer is None:
            yield None, f"output {position} is not the position of a tensor parameter"


_BLOCK_ONLY = (TileOp, Store, Parallel, Pipelined, SyncThreads, SyncGrid, ThreadReturn)


def launches(fn: Function) -> Iterator[Finding]:
    """A launch is at host level; operations of a block or thread are inside one."""
    for stmt, around in statements(fn.body):
        inside = any(isinstance(s, Launch) for s in around)
        if isinstance(stmt, Launch) and inside:
            yield stmt, "a launch inside a launch"
        if isinstance(stmt, _BLOCK_ONLY) and not inside:
            yield stmt, f"{type(stmt).__name__} outside a launch"
        if isinstance(stmt, Launch):
            yield from _launch_axes(stmt)


def _launch_axes(launch: Launch) -> Iterator[Finding]:
    if not 1 <= len(launch.grid) <= 3 or len(launch.vars) != len(launch.grid):
        yield launch, f"{len(launch.grid)} grid extents and {len(launch.vars)} block indices"
    if len(launch.thread_vars) != 3:
        yield launch, f"{len(launch.thread_vars)} thread indices, expected 3"
    if launch.threads is not None and (
        not 1 <= len(launch.threads) <= 3 or min(launch.threads) < 1
    ):
        yield launch, f"threads {launch.threads}"
    if launch.cluster and (len(launch.cluster) > 3 or min(launch.cluster) < 1):
        yield launch, f"cluster {launch.cluster}"


def jumps(fn: Function) -> Iterator[Finding]:
    """Break leaves a sequential loop, continue ends a round; neither leaves a parallel loop."""
    for stmt, around in statements(fn.body):
        if not isinstance(stmt, (Break, Continue)):
            continue
        inner = next((s for s in reversed(around) if isinstance(s, _REGIONS)), None)
        ends_iteration = isinstance(inner, Parallel) and isinstance(stmt, Continue)
        if not ends_iteration and not isinstance(inner, (For, Pipelined, While)):
            where = "outside a loop" if inner is None else f"directly inside {type(inner).__name__}"
            yield stmt, f"{type(stmt).__name__} {where}"


_REGIONS = (For, Pipelined, While, Parallel, Launch, WarpSpecialize)
_NOT_PARALLEL = (Pipelined, Launch, WarpSpecialize, SyncThreads, SyncGrid, ClusterBarrier, TileOp)


def parallel_loops(fn: Function) -> Iterator[Finding]:
    """A parallel loop holds scalar statements, and another parallel loop only as a perfect nest."""
    for stmt, around in statements(fn.body):
        if isinstance(stmt, Parallel):
            if len(stmt.vars) != len(stmt.extents):
                yield stmt, f"{len(stmt.vars)} variables and {len(stmt.extents)} extents"
            if any(isinstance(s, Parallel) for s in stmt.body) and len(stmt.body) > 1:
                yield stmt, "a parallel loop beside other statements of a parallel loop"
        outer = next((s for s in reversed(around) if isinstance(s, Parallel)), None)
        if isinstance(stmt, ReducerUpdate) and outer is None:
            yield stmt, "an update of a reducer outside a parallel loop"
        if outer is None:
            continue
        if isinstance(stmt, Parallel) and around[-1] is not outer:
            yield stmt, "a parallel loop inside a statement of a parallel loop"
        one = isinstance(stmt, Atomic) and single_element(stmt.dst)
        if isinstance(stmt, _NOT_PARALLEL) and not one:
            yield stmt, f"{type(stmt).__name__} inside a parallel loop"


def schedules(fn: Function) -> Iterator[Finding]:
    """The schedule of a pipelined loop names each statement of its body once."""
    for stmt, _ in statements(fn.body):
        if not isinstance(stmt, Pipelined):
            continue
        if stmt.num_stages < 0:
            yield stmt, f"{stmt.num_stages} stages"
        for name, values in (("order", stmt.order), ("stage", stmt.stage)):
            if values and len(values) != len(stmt.body):
                yield stmt, f"{len(values)} entries of {name} for {len(stmt.body)} statements"


def annotation_kinds(fn: Function) -> Iterator[Finding]:
    """Annotations are of a known kind."""
    for stmt, _ in statements(fn.body):
        if isinstance(stmt, Annotate) and stmt.kind not in ANNOTATIONS:
            yield stmt, f"no annotation is called {stmt.kind!r}"


# Types and shapes --------------------------------------------------------------------------------


def plain_data(fn: Function) -> Iterator[Finding]:
    """Attributes hold no nodes: a rewrite would not reach them."""
    for stmt, _ in statements(fn.body):
        for node in (stmt, *_below(stmt)):
            for f in node.fields():
                if f.metadata["kind"] is Kind.ATTR and _holds_node(getattr(node, f.name)):
                    yield stmt, f"{type(node).__name__}.{f.name} holds a node"


def _holds_node(value: Any) -> bool:
    return next(flat(value), None) is not None


def _below(stmt: Stmt) -> Iterator[Node]:
    """The nodes of a statement's own operands and buffers, without its blocks."""
    for node in operands(stmt):
        yield from node.walk()
    for thing in bound(stmt):
        yield from thing.walk()


def expressions(fn: Function) -> Iterator[Finding]:
    """Operands of one operator agree; indices are integers, one for each axis."""
    for p in fn.params:
        for node in () if p.buffer is None else p.buffer.walk():
            yield from ((None, fault) for fault in broken_exprs(node))
    for stmt, _ in statements(fn.body):
        seen: set[int] = set()
        for node in _below(stmt):
            if id(node) not in seen:
                seen.add(id(node))
                yield from ((stmt, fault) for fault in broken_exprs(node))


def fields(fn: Function) -> Iterator[Finding]:
    """Conditions are bool, a stored value has the dtype of its place, loop variables are
    integers.
    """
    for stmt, _ in statements(fn.body):
        yield from ((stmt, fault) for fault in broken_fields(stmt))


def shapes(fn: Function) -> Iterator[Finding]:
    """The static extents of the operands of a tile operation fit together."""
    for stmt, _ in statements(fn.body):
        if isinstance(stmt, TileOp) and not isinstance(stmt, ReducerFinalize):
            yield from ((stmt, fault) for fault in broken_shapes(stmt))


def ascend(fn: Function) -> Iterator[Finding]:
    """Operations of Ascend cores name operations, modes and pipes that exist where they stand."""
    for stmt, around in statements(fn.body):
        yield from ((stmt, fault) for fault in broken_ascend(stmt, around))


RULES: tuple[Callable[[Function], Iterator[Finding]], ...] = (
    names,
    parameters,
    launches,
    jumps,
    parallel_loops,
    schedules,
    annotation_kinds,
    plain_data,
    expressions,
    fields,
    shapes,
    ascend,
)
"""What a function of the tile stage must satisfy."""
