"""Reducers: a result that many threads contribute to, combined when it is finalized.

`T.alloc_reducer(shape, dtype, op)` gives a handle: `reducer_init` opens it, `reducer_update`
inside T.Parallel contributes, `finalize_reducer` writes the result to a buffer. With
`replication=`, or where it is used as a buffer instead, it is TileLang's older form: it is filled,
accumulated with `acc[i] += x`, finalized in place and then read.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import (
    InternalError,
    TileError,
    TileRuntimeError,
    TileTypeError,
    TileValueError,
)
from tilelang.ir.build import Builder
from tilelang.ir.expr import Binary, BinaryOp, Buffer, Cast, Expr, Load, Unary, UnaryOp
from tilelang.ir.node import Node
from tilelang.ir.special import ReducerFinalize, ReducerInit, ReducerUpdate
from tilelang.ir.tile import Alloc, Parallel, ReduceOp, Stmt
from tilelang.language.alloc import declare_buffer
from tilelang.language.arguments import choice, launched, note, number, refuse
from tilelang.language.buffers import BufferRef, here, item
from tilelang.language.tileops import region_of, shape_text
from tilelang.language.values import DataType, Value, convert, describe
from tilelang.scopes import Dialect

OPS = ("sum", "max", "min", "bitand", "bitor", "bitxor")
_BITWISE = frozenset({ReduceOp.BITAND, ReduceOp.BITOR, ReduceOp.BITXOR})
_OPERATOR = {
    ReduceOp.SUM: BinaryOp.ADD,
    ReduceOp.MAX: BinaryOp.MAX,
    ReduceOp.MIN: BinaryOp.MIN,
}


class ReducerElement:
    """`acc[i, j]` of a reducer: the place of a contribution, never a value."""

    def __init__(self, reducer: Reducer, indices: tuple[Expr, ...]) -> None:
        self.reducer = reducer
        self.indices = indices
        self.name = reducer.name


class Reducer(BufferRef):
    """What `T.alloc_reducer` gives. Its first use decides the form: `T.reducer_init` makes it a
    handle that only the three reducer functions take; a use as a buffer (`T.clear(acc)`) makes it
    the older form, in which `acc[i] = acc[i] op x` contributes x and any other use is that of a
    buffer.
    """

    def __init__(self, declared: Buffer, op: ReduceOp, *, older: bool) -> None:
        self.declared = declared
        self.op = op
        self.older = older
        self.opened: ReducerInit | None = None
        self.closed = False

    @property
    def buffer(self) -> Buffer:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The storage of the older form: asked for by what uses a buffer."""
        if not self.older:
            if self.opened is not None:
                raise self.misused("a use as a buffer of")
            self._become_older()
        return self.declared

    def _become_older(self) -> None:
        builder = launched("a reducer as a buffer")
        _check_older(self.op)
        alloc = builder.newest(lambda s: isinstance(s, Alloc) and s.buffer is self.declared)
        if not isinstance(alloc, Alloc):
            raise InternalError(f"{self.name} is not allocated in an open block")
        self.declared = self.declared.with_(scope="local.fragment")
        self.older = True
        builder.amend(alloc, alloc.with_(buffer=self.declared))

    def misused(self, what: str) -> TileError:
        """The error for a use that a reducer in use does not have."""
        return refuse(
            "syntax",
            f"{what} the reducer {self.name}",
            cls=TileValueError,
            expected=f"T.reducer_update({self.name}[...], value)",
            help="a reducer can only be initialised, updated and finalized",
        )

    @property
    def name(self) -> str:
        """The name in the kernel."""
        return self.declared.name

    @property
    def dtype(self) -> DataType:
        """The element type."""
        return DataType(self.declared.dtype)

    @property
    def shape(self) -> tuple[int | Value, ...]:
        """The extents of the result."""
        return BufferRef(self.declared).shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.declared.rank

    def scope(self) -> str:
        """The declared scope string."""
        return self.declared.scope

    def __getitem__(self, index: Any) -> Any:
        found = item(BufferRef(self.declared), index)
        if self.older:
            return found
        if not isinstance(found, Value) or not isinstance(found.expr, Load):
            raise refuse("shape", f"a slice of the reducer {self.name}", expected="one element")
        return ReducerElement(self, found.expr.indices)

    def __setitem__(self, index: Any, value: Any) -> None:
        if not self.older:
            raise self.misused("a store into")
        target = item(self, index)
        if isinstance(target, Value) and isinstance(value, Value):
            found = contribution(self.op, target.expr, value.expr)
            if found is not None and isinstance(target.expr, Load) and not self._read_by(found):
                _update(self.buffer, self.op, target.expr.indices, found)
                return
        super().__setitem__(index, value)

    def _read_by(self, e: Expr) -> bool:
        return any(isinstance(n, Load) and n.buffer == self.buffer for n in e.walk())


def _check_older(op: ReduceOp) -> None:
    if op in _BITWISE:
        raise refuse(
            "option",
            f"the older form of a {op.value} reducer",
            expected="sum, max or min",
            help="T.reducer_init(acc), then the updates, then T.finalize_reducer(acc, dst)",
        )


def contribution(op: ReduceOp, target: Expr, value: Expr) -> Expr | None:
    """x where `value` is `target op x`, with conversions of either; None where it is something
    else.
    """
    core = value.a if isinstance(value, Cast) else value
    if not isinstance(core, Binary):
        return None
    if op is ReduceOp.SUM and core.op is BinaryOp.SUB and _bare(core.a) == target:
        return Unary(UnaryOp.NEG, core.b)
    if core.op is not _OPERATOR.get(op):
        return None
    for own, other in ((core.a, core.b), (core.b, core.a)):
        if _bare(own) == target:
            return other
        inner = contribution(op, target, own)
        if inner is not None:
            return Binary(core.op, convert(inner, core.dtype), other)
    return None


def _bare(e: Expr) -> Expr:
    return e.a if isinstance(e, Cast) else e


def alloc_reducer(shape: Any, dtype: Any, op: str = "sum", replication: str | None = None) -> Any:
    """A reducer of `shape` (elements) for `op`: sum, max, min, bitand, bitor or bitxor (the last
    three of integers).

    `replication` ('all' or 'none') is deprecated: it gives the older form, for sum, max and min.
    ValueError for another word, TypeError for a bitwise reducer of floats.
    """
    launched("T.alloc_reducer")
    kind = ReduceOp(choice(op, "the op of T.alloc_reducer", OPS))
    if replication is not None:
        choice(replication, "the replication of T.alloc_reducer", ("all", "none"))
        _check_older(kind)
        warnings.warn(
            "alloc_reducer(replication=...) is deprecated: use T.reducer_init, T.reducer_update and"
            " T.finalize_reducer(acc, dst)",
            DeprecationWarning,
            stacklevel=2,
        )
    function = "alloc_reducer" if replication is None else "alloc_fragment"
    buffer = declare_buffer(Dialect.COMMON, function, shape, dtype)
    if kind in _BITWISE and buffer.dtype.kind not in ("int", "uint", "bool"):
        raise refuse(
            "dtype",
            f"a {op} reducer of {buffer.dtype}",
            cls=TileTypeError,
            expected="integers or bools",
            got=str(buffer.dtype),
        )
    return Reducer(buffer, kind, older=replication is not None)


def _reducer(x: Any, what: str) -> Reducer:
    if isinstance(x, Reducer) and not x.older:
        return x
    raise refuse(
        "dtype",
        f"{what} of {describe(x)}",
        cls=TileTypeError,
        expected="a reducer of T.alloc_reducer(shape, dtype, op) that is not used as a buffer",
        got=describe(x),
    )


def reducer_init(reducer: Any, init: Any = None) -> None:
    """Open the reducer, once per allocation, from the identity of its operation.

    `init`, converted to its dtype, is one more contribution to every element.
    """
    builder = launched("T.reducer_init")
    handle = _reducer(reducer, "T.reducer_init")
    if handle.opened is not None:
        raise refuse(
            "syntax",
            f"the reducer {handle.name} is initialised twice",
            cls=TileValueError,
            help="allocate a reducer for each accumulation",
        )
    start = None if init is None else number(init, "the init of T.reducer_init", handle.dtype)
    opening = ReducerInit(handle.declared, handle.op, init=start, loc=here())
    builder.emit(opening)
    handle.opened = opening


def reducer_update(target: Any, value: Any) -> None:
    """Contribute `value`, converted to the reducer's dtype, to one element:
    `T.reducer_update(acc[i], x)`.

    Once for each iteration of the T.Parallel around. Raises for a target that is not an element of
    an open reducer.
    """
    launched("T.reducer_update")
    if not isinstance(target, ReducerElement):
        raise refuse(
            "dtype",
            f"the target of T.reducer_update is {describe(target)}",
            cls=TileValueError,
            expected="an element of a reducer, written as `acc[i]`",
            got=describe(target),
        )
    handle = target.reducer
    if handle.opened is None or handle.closed:
        when = "after it is finalized" if handle.closed else "before it is initialised"
        raise refuse(
            "syntax",
            f"the reducer {handle.name} is updated {when}",
            cls=TileValueError,
            help="T.reducer_init(acc), then the updates, then T.finalize_reducer(acc, dst)",
        )
    _update(handle.declared, handle.op, target.indices, number(value, "the value"))


def _update(buffer: Buffer, op: ReduceOp, indices: tuple[Expr, ...], value: Expr) -> None:
    builder = launched("T.reducer_update")
    converted = convert(value, DType(buffer.dtype))
    builder.emit(ReducerUpdate(buffer, indices, converted, op, loc=here()))


def finalize_reducer(
    reducer: Any, dst: Any = None, batch: Any = 1, annotations: dict[str, Any] | None = None
) -> None:
    """Close the reducer and write its result to `dst`, which has its shape; the older form is
    finalized in place.

    It stands in the same block as `reducer_init`, or in a branch there. `batch` elements share a
    barrier; it changes no result. ValueError for a batch below 1, another shape, or updates outside
    T.Parallel.
    """
    builder = launched("T.finalize_reducer")
    note(annotations, "T.finalize_reducer")
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise refuse(
            "value",
            f"the batch of T.finalize_reducer is {batch!r}",
            expected=">= 1",
            got=repr(batch),
        )
    if isinstance(reducer, Reducer) and reducer.older:
        if dst is not None:
            raise refuse(
                "option", "T.finalize_reducer(acc, dst) of the older form", help="leave `dst` out"
            )
        whole = region_of(reducer, "T.finalize_reducer")
        builder.emit(ReducerFinalize(reducer.buffer, whole, reducer.op, loc=here()))
        return
    handle = _reducer(reducer, "T.finalize_reducer")
    _check_epoch(handle, builder)
    if dst is None:
        raise refuse(
            "option",
            f"T.finalize_reducer({handle.name}) without a destination",
            cls=TileValueError,
            expected="T.finalize_reducer(acc, dst)",
        )
    region = region_of(dst, "the destination of T.finalize_reducer")
    if region.extents != handle.declared.shape:
        raise refuse(
            "shape",
            f"the destination of T.finalize_reducer({handle.name})",
            expected=shape_text(handle.declared.shape),
            got=shape_text(region.extents),
        )
    handle.closed = True
    builder.emit(ReducerFinalize(handle.declared, region, handle.op, loc=here()))


def _check_epoch(handle: Reducer, builder: Builder) -> None:
    """Initialised once in this block or around the branch that this is, finalized once, updated in
    T.Parallel only.
    """
    problem = ""
    statements = None if handle.opened is None else builder.since(handle.opened)
    if handle.closed:
        problem = "is finalized twice"
    elif handle.opened is None:
        problem = "is finalized before it is initialised"
    elif statements is None:
        problem = "is initialised in another block than it is finalized in"
    if problem:
        raise refuse(
            "syntax",
            f"the reducer {handle.name} {problem}",
            cls=TileValueError,
            related=((handle.opened.loc, "initialised here"),)
            if handle.opened is not None and handle.opened.loc is not None
            else (),
            help="T.reducer_init(acc), then the updates, then T.finalize_reducer(acc, dst)",
        )
    for update in _outside_parallel(statements or ()):
        if update.reducer == handle.declared:
            raise refuse(
                "syntax",
                f"the reducer {handle.name} is updated outside T.Parallel",
                cls=TileRuntimeError,
                related=((update.loc, "the update"),) if update.loc is not None else (),
                help="`for i in T.Parallel(n): T.reducer_update(acc[0], x[i])`",
            )


def _outside_parallel(nodes: Sequence[Node]) -> Iterator[ReducerUpdate]:
    for node in nodes:
        if isinstance(node, ReducerUpdate):
            yield node
        elif not isinstance(node, Parallel):
            yield from _outside_parallel([n for n in node.children() if isinstance(n, Stmt)])
