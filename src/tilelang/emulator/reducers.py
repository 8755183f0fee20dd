"""Reducers: contributions of many iterations to one result.

What enters: the statements that open a reducer, contribute to it and close it. What leaves: text
that calls an `Epoch`, and the combined values in the destination. Every iteration contributes once,
and the initial value counts once; floats of 16 bits and fewer are combined in float32 and rounded
at the end. A reducer in a fragment (TileLang's older form) is combined in place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilelang.dtypes.convert import converter
from tilelang.emulator import access, elements, ops, reduce, scalars, storage, waits
from tilelang.emulator.parallel import memory
from tilelang.emulator.storage import Access, Array, Index, Mask, Tile
from tilelang.emulator.tiles import operand
from tilelang.emulator.unit import Unit
from tilelang.emulator.values import Storage, tuple_text
from tilelang.errors import TileError, error
from tilelang.ir.special import ReducerFinalize, ReducerInit, ReducerUpdate
from tilelang.ir.tile import Alloc, ReduceOp, Stmt
from tilelang.scopes import Memory

Lanes = tuple[Mask | None, tuple[int, ...]]
"""Which lanes take part (None: all), and the shape of all lanes."""

# -- text ------------------------------------------------------------------------------------------


def alloc(u: Unit, stmt: Alloc) -> None:
    """A reducer that is not open yet; its own elements hold nothing that can be read."""
    buffer = stmt.buffer
    u.begin(*buffer.shape)
    shape, name = tuple_text(u.expr(n).code for n in buffer.shape), u.w.name(buffer.name)
    fresh = u.constant("epoch", Epoch, "class")
    dtype, epoch = u.constant("dtype", buffer.dtype, buffer.dtype), _epoch(name)
    made = f"{fresh}({shape}, {u.access_name(buffer)})"
    if u.agents:
        u.w.line(f"{name} = agent.shared({buffer.name!r}, {shape}, {dtype}, {waits.takers(u)})")
        u.w.line(f"{epoch} = agent.once({epoch!r}, lambda: {made})")
    else:
        u.w.line(f"{name} = fresh({shape}, {dtype})")
        u.w.line(f"{epoch} = {made}")
    u.stores[buffer.name] = Storage(name, buffer, u.access(buffer))


def _epoch(name: str) -> str:
    """The name of the partial results that belong to the array of this name."""
    return f"_epoch_of_{name}"


def open_(u: Unit, stmt: ReducerInit) -> None:
    """Start from the identity, combined with the initial value."""
    _together(u, stmt)
    u.begin(stmt.init)
    init = u.expr(stmt.init) if stmt.init is not None else None
    if init is not None and init.axes:
        u.refuse_threads("the initial value of the reducer differs from thread to thread")
    start = scalars.as_numpy(u, init) if init is not None else "None"
    name = _epoch(u.storage(stmt.reducer).name)
    u.w.line(f"{name}.open({u.constant('reduce_op', stmt.op, stmt.op)}, {start})")


def update(u: Unit, stmt: ReducerUpdate) -> None:
    """A contribution of every active iteration."""
    if u.domain.threads:
        raise error(
            "divergence",
            f"the reducer {stmt.reducer.name} is updated outside T.Parallel",
            stmt.loc,
            expected="an update inside T.Parallel, by one iteration or by many",
            help="`for i in T.Parallel(n): T.reducer_update(acc[0], x[i])`",
        )
    u.begin(stmt.value, *stmt.indices)
    v = u.expr(stmt.value)
    s = u.storage(stmt.reducer)
    p = access.place(u, s, stmt.indices)
    at, place = access.index_text(u, p), u.access_name(stmt.reducer)
    lanes, op = f"({u.mask_text}, {u.domain.shape})", u.constant("reduce_op", stmt.op, stmt.op)
    given = f"{scalars.as_numpy(u, v)}, {lanes}, {place}"
    if memory(u, stmt.reducer) is Memory.REDUCER:
        u.w.line(f"{_epoch(s.name)}.add({op}, {at}, {given})")
        return
    if u.checks is not None:
        u.checks.atomic(u, p, place)
    name = u.constant("combine", combine, "fn")
    u.w.line(f"{name}({op}, {s.name}, {at}, {given})")


def close(u: Unit, stmt: ReducerFinalize) -> None:
    """Write the result. What was combined in place is the result."""
    _together(u, stmt)
    if memory(u, stmt.reducer) is not Memory.REDUCER and stmt.dst.buffer == stmt.reducer:
        u.w.line(f"# {stmt.reducer.name} holds the result")
        return
    if u.lanes.varies(stmt.dst):
        u.refuse_threads(f"{stmt.dst.buffer.name} differs from thread to thread")
    u.begin(stmt.dst)
    dst, own = operand(u, stmt.dst), u.storage(stmt.reducer).name
    node = u.constant("op", stmt)
    if memory(u, stmt.reducer) is Memory.REDUCER:
        u.w.line(f"{_epoch(own)}.close({node}, {dst})")
        return
    name, place = u.constant("deliver", deliver, "fn"), u.access_name(stmt.reducer)
    u.w.line(f"{name}({node}, {own}, {place}, {dst})")


def _together(u: Unit, stmt: Stmt) -> None:
    if u.domain.threads and u.mask is None:
        return
    where = "inside T.Parallel" if not u.domain.threads else "where only some threads arrive"
    what = "initialised" if isinstance(stmt, ReducerInit) else "finalized"
    raise error(
        "divergence",
        f"a reducer is {what} {where}",
        stmt.loc,
        expected="a place that all threads of the block reach together",
    )


# -- meaning ---------------------------------------------------------------------------------------


class Epoch:
    """The partial results of one reducer, from when it is opened until it is closed."""

    def __init__(self, shape: tuple[int, ...], access: Access) -> None:
        self.shape = shape
        self.access = access
        self.inner = reduce.inner_type(access.dtype)
        self.values: Array | None = None

    def open(self, op: ReduceOp, init: Any) -> None:
        """Start; `init` counts once for every element."""
        values = np.full(self.shape, reduce.identity(op, self.access.dtype), self.inner.numpy)
        if init is not None:
            first = converter(self.access.dtype, self.inner)(np.asarray(init))
            values = np.asarray(reduce.fold(op)(values, first))
        self.values = values

    def add(
        self, op: ReduceOp, index: tuple[Index, ...], value: Any, lanes: Lanes, access: Access
    ) -> None:
        """A contribution of every lane that takes part."""
        entered = converter(access.dtype, self.inner)(np.asarray(value))
        _contribute(op, self._open_values(access), index, entered, lanes, access)

    def close(self, node: ReducerFinalize, dst: Tile) -> None:
        """Write the result, rounded to the reducer's dtype, and forget it."""
        values = self._open_values(self.access)
        self.values = None
        deliver(node, converter(self.inner, self.access.dtype)(values), self.access, dst)

    def _open_values(self, access: Access) -> Array:
        if self.values is None:
            raise _not_open(access)
        return self.values


def deliver(node: ReducerFinalize, values: Array, access: Access, dst: Tile) -> None:
    """Write the elements of a reducer to a region, converted by value."""
    result = converter(access.dtype, dst.access.dtype)(values)
    storage.write(dst, ops.matched(result, dst.extents, node.loc, "the reducer"))


def _not_open(access: Access) -> TileError:
    return error(
        "uninitialised",
        f"the reducer {access.buffer.name} is used when it is not open",
        access.loc,
        expected="T.reducer_init before, and T.finalize_reducer not yet",
    )


def combine(
    op: ReduceOp,
    array: Array,
    index: tuple[Index, ...],
    value: Any,
    lanes: Lanes,
    access: Access,
) -> None:
    """A contribution of every lane to elements of a buffer, rounded to its dtype once."""
    inner = reduce.inner_type(access.dtype)
    values = converter(access.dtype, inner)(array)
    wide = values.copy() if values is array else values
    entered = converter(access.dtype, inner)(np.asarray(value))
    _contribute(op, wide, index, entered, lanes, access)
    array[...] = converter(inner, access.dtype)(wide)


def _contribute(
    op: ReduceOp,
    values: Array,
    index: tuple[Index, ...],
    value: Array,
    lanes: Lanes,
    access: Access,
) -> None:
    """Combine a value of every lane into the element at its index.

    Lanes that differ only along axes that no index varies over go to one element, and are combined
    with each other first.
    """
    mask, shape = lanes
    fold = reduce.fold(op)
    if op in (ReduceOp.ABSSUM, ReduceOp.ABSMAX):
        value = np.abs(value)
    given = np.broadcast_to(value, shape)
    if mask is None and given.size:
        spans = np.broadcast_shapes((1,) * len(shape), *(np.shape(i) for i in index))
        shared = tuple(d for d, (n, full) in enumerate(zip(spans, shape, strict=True)) if n != full)
        if shared:
            given = fold.reduce(given, axis=shared, dtype=values.dtype, keepdims=True)
    at, live = elements.flat(values, index, mask, given.shape, access)
    fold.at(values, at, elements.spread(np.asarray(given), live, given.shape))
