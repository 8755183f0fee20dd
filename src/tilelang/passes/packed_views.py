"""Views between elements smaller than a byte and whole bytes, spelled out.

What enters: a function of the tile stage. What leaves: one without such views, since no memory here
packs small elements: a load of a byte of fp4 joins two elements, a store parts its value, a copy or
a fill is a nest of these. Bytes seen as small elements can be read; two of them that are stored by
two threads would be a race for their byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilelang.dtypes import DType
from tilelang.errors import error
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    const,
    int_value,
)
from tilelang.ir.node import Node
from tilelang.ir.simplify import equal
from tilelang.ir.tile import Block, Copy, Fill, Function, Let, Stmt, Store, View
from tilelang.isa.target import Target
from tilelang.passes.build import Names, as_type, map_statements, plus, statements, times
from tilelang.passes.lower_copies import copy_loops, fill_loops, view_roots
from tilelang.passes.lower_parallel import own_nodes


def packed_views(fn: Function, target: Target) -> Function:
    """No view has elements smaller than a byte where its source has whole bytes, or the reverse."""
    del target
    return without_packed_views(fn)


def without_packed_views(fn: Function) -> Function:
    """The function itself where it has no such view."""
    views: dict[str, View] = {}
    for stmt in statements(fn.body):
        if isinstance(stmt, View) and (_packs(stmt) or stmt.source.name in views):
            views[stmt.buffer.name] = stmt
    if not views:
        return fn
    spelled = _Views(fn, views)
    body = map_statements(fn.body, spelled.statement)
    found = fn.with_(body=body).rewrite(spelled.loads)
    _refuse_others(found, views)
    return found


def _packs(view: View) -> bool:
    a, b = view.source.dtype, view.buffer.dtype
    return a.bits != b.bits and (a.is_subbyte or b.is_subbyte)


class _Views:
    """The views of one function, by name."""

    def __init__(self, fn: Function, views: dict[str, View]) -> None:
        self.names = Names(fn)
        self.views = views
        self.roots = view_roots(fn)
        for view in views.values():
            self._check(view)

    def _check(self, view: View) -> None:
        a, b = view.source.dtype, view.buffer.dtype
        wide, narrow = max(a.bits, b.bits), min(a.bits, b.bits)
        lanes = a.is_vector or b.is_vector
        if wide % narrow or wide > 64 or lanes or view.source.strides or view.buffer.strides:
            raise error(
                "dtype",
                f"a view of {a} memory as {b}",
                view.loc,
                expected="scalars, of which one holds a whole number of the other, without strides",
                help="convert the elements one by one",
            )

    def is_one(self, buffer: Buffer) -> bool:
        """Whether a buffer is such a view."""
        return buffer.name in self.views

    def statement(self, stmt: Stmt) -> Block | None:
        """A statement without such views but for loads of them."""
        match stmt:
            case View() if self.is_one(stmt.buffer):
                return ()
            case Store() if self.is_one(stmt.buffer):
                return self.store(stmt, stmt.buffer, stmt.indices, stmt.value)
            case Copy() if self.is_one(stmt.src.buffer) or self.is_one(stmt.dst.buffer):
                return map_statements(copy_loops(stmt, self.names, self.roots), self.statement)
            case Fill() if self.is_one(stmt.dst.buffer):
                return map_statements(fill_loops(stmt, self.names), self.statement)
            case _:
                return None

    def loads(self, node: Node) -> Node | None:
        """What a load of a view reads."""
        if isinstance(node, Load) and self.is_one(node.buffer):
            return self.load(node.buffer, node.indices)
        return None

    def load(self, buffer: Buffer, indices: Sequence[Expr]) -> Expr:
        """An element of any buffer."""
        if not self.is_one(buffer):
            return Load(buffer, tuple(indices))
        view = self.views[buffer.name]
        own, source = DType(buffer.dtype), DType(view.source.dtype)
        if own.bits < source.bits:
            per = source.bits // own.bits
            flat = plus(_number(view, indices), times(_offset(view), per))
            byte = _word(self.load(view.source, _apart(_over(flat, per), view.source)), source)
            shift = times(_rest(flat, per), own.bits)
            return _element(_part(byte, as_type(shift, DType(byte.dtype)), own), own)
        per = own.bits // source.bits
        whole: Expr | None = None
        for k, at in enumerate(self.places(view, indices, per)):
            part = as_type(_word(self.load(view.source, at), source), _words(own))
            part = _shifted(BinaryOp.SHL, part, k * source.bits)
            whole = part if whole is None else Binary(BinaryOp.BITOR, whole, part)
        return _element(whole or const(0), own)

    def store(self, stmt: Store, buffer: Buffer, indices: Sequence[Expr], value: Expr) -> Block:
        """Stores an element of any buffer."""
        if not self.is_one(buffer):
            return (Store(buffer, tuple(indices), value, loc=stmt.loc),)
        view = self.views[buffer.name]
        own, source = DType(buffer.dtype), DType(view.source.dtype)
        if own.bits < source.bits:
            raise error(
                "dtype",
                f"a store of {own} into {view.source.name}, whose elements are {source}",
                stmt.loc,
                expected="stores of whole elements: several lie in each",
                help=f"allocate {own} and view it as {source}",
            )
        whole = self.names.var("bits", _words(own))
        out: list[Stmt] = [Let(whole, _word(as_type(value, own), own), loc=stmt.loc)]
        per = own.bits // source.bits
        for k, at in enumerate(self.places(view, indices, per)):
            part = _element(_part(whole, const(k * source.bits, whole.dtype), source), source)
            out += self.store(stmt, view.source, at, part)
        return tuple(out)

    def places(self, view: View, indices: Sequence[Expr], per: int) -> Iterable[list[Expr]]:
        """Where the `per` elements of the source lie that an element of the view is."""
        inside, outside = view.buffer.shape, view.source.shape
        rows = len(inside) == len(outside) and view.offset is None
        rows = rows and all(equal(a, b) for a, b in zip(inside[:-1], outside[:-1], strict=True))
        rows = rows and equal(times(inside[-1], per), outside[-1])
        for k in range(per):
            if rows:
                yield [*indices[:-1], plus(times(indices[-1], per), k)]
            else:
                first = plus(times(_number(view, indices), per), _offset(view))
                yield _apart(plus(first, k), view.source)


def _number(view: View, indices: Sequence[Expr]) -> Expr:
    """An element counted in row-major order."""
    number: Expr = const(0)
    for index, extent in zip(indices, view.buffer.shape, strict=True):
        number = plus(times(number, extent), index)
    return number


def _offset(view: View) -> Expr:
    return const(0) if view.offset is None else view.offset


def _apart(number: Expr, buffer: Buffer) -> list[Expr]:
    """The indices of an element that is counted in row-major order."""
    out: list[Expr] = []
    for extent in reversed(buffer.shape[1:]):
        out.insert(0, _rest(number, extent))
        number = _over(number, extent)
    return [number, *out]


def _over(a: Expr, b: Expr | int) -> Expr:
    return Binary(BinaryOp.FLOORDIV, a, b if isinstance(b, Expr) else Const(b, a.dtype))


def _rest(a: Expr, b: Expr | int) -> Expr:
    return Binary(BinaryOp.FLOORMOD, a, b if isinstance(b, Expr) else Const(b, a.dtype))


def _words(dtype: DType) -> DType:
    return DType(f"uint{dtype.bits}")


def _word(value: Expr, dtype: DType) -> Expr:
    """The bits of an element as an unsigned integer."""
    return value if dtype.kind == "uint" else Bitcast(value, _words(dtype))


def _element(word: Expr, dtype: DType) -> Expr:
    """The element of these bits."""
    return word if dtype.kind == "uint" else Bitcast(word, dtype)


def _shifted(op: BinaryOp, word: Expr, count: int) -> Expr:
    return Binary(op, word, Const(count, word.dtype)) if count else word


def _part(word: Expr, shift: Expr, dtype: DType) -> Expr:
    """The bits of an element from `shift` on."""
    moved = word if int_value(shift) == 0 else Binary(BinaryOp.SHR, word, shift)
    mask = Const((1 << dtype.bits) - 1, word.dtype)
    return Cast(Binary(BinaryOp.BITAND, moved, mask), _words(dtype))


def _refuse_others(fn: Function, views: dict[str, View]) -> None:
    """What neither loads, stores, copies nor fills cannot go through such a view."""
    for stmt in statements(fn.body):
        for node in own_nodes(stmt):
            if isinstance(node, Buffer) and node.name in views:
                view = views[node.name]
                raise error(
                    "dtype",
                    f"{node.name}, a view of {view.source.dtype} memory as {node.dtype}, is used"
                    " by more than loads, stores, copies and fills",
                    stmt.loc,
                    help="copy it into a buffer of its own first",
                )
