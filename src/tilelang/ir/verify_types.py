"""What single nodes must satisfy: dtypes of operands, numbers of indices, extents of tiles.

A node goes in, the texts of its faults come out; `ir/verify.py` says which nodes to ask about.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from tilelang.dtypes import DType, const_value
from tilelang.ir import scales, special, sync, tile
from tilelang.ir.expr import (
    AddressOf,
    Binary,
    BinaryOp,
    Bitcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Lane,
    Load,
    LoadVector,
    Pack,
    Region,
    Select,
    Unary,
    UnaryOp,
    const,
    int_value,
)
from tilelang.ir.functions import FUNCTIONS, Accepts, result_dtype
from tilelang.ir.node import Node
from tilelang.ir.tile import Stmt

Faults = Iterator[str]
_ROUNDINGS = ("", "rn", "rz", "rp", "rm", "rna", "rs")
_BITWISE = frozenset({BinaryOp.BITAND, BinaryOp.BITOR, BinaryOp.BITXOR})
_SHIFTS = frozenset({BinaryOp.SHL, BinaryOp.SHR})


# Expressions -------------------------------------------------------------------------------------


def broken_exprs(node: Node) -> Faults:
    """What is wrong with an expression, region or buffer itself (not with its operands)."""
    check = _EXPRESSIONS.get(type(node))
    return iter(()) if check is None else check(node)


def _const(e: Const) -> Faults:
    kind = bool if e.type.is_bool else float if e.type.is_float else int
    if e.type.lanes != 1:
        yield f"a literal of the vector type {e.type}"
    elif type(e.value) is not kind:
        yield f"{e.value!r} as a literal of {e.type}"
    elif not math.isnan(e.value) and const_value(e.value, e.type) != e.value:
        yield f"{e.value!r} is not a value of {e.type}"


def _binary(e: Binary) -> Faults:
    t = e.a.dtype
    if t != e.b.dtype:
        yield f"operands of `{e.op.value}` are {t} and {e.b.dtype}"
    elif e.op.is_logical and not t.is_bool:
        yield f"`{e.op.value}` of {t}, expected bool"
    elif e.op is BinaryOp.DIV and not t.is_float:
        yield f"`/` of {t}, expected a float"
    elif e.op in _SHIFTS and not t.is_integer:
        yield f"`{e.op.value}` of {t}, expected an integer"
    elif e.op in _BITWISE and not (t.is_integer or t.is_bool):
        yield f"`{e.op.value}` of {t}, expected an integer or bool"


def _unary(e: Unary) -> Faults:
    t = e.a.dtype
    if e.op is UnaryOp.NOT and not t.is_bool:
        yield f"`not` of {t}, expected bool"
    if e.op is UnaryOp.BITNOT and not (t.is_integer or t.is_bool):
        yield f"`~` of {t}, expected an integer or bool"
    if e.op is UnaryOp.NEG and not (t.is_integer or t.is_float):
        yield f"`-` of {t}, expected a number"


def _cast(e: Cast) -> Faults:
    if e.a.dtype.lanes != e.type.lanes:
        yield f"a cast of {e.a.dtype} to {e.type}: the numbers of lanes differ"
    if e.rounding not in _ROUNDINGS:
        yield f"no rounding is called {e.rounding!r}"
    if (e.rounding == "rs") != (e.rbits is not None):
        yield "random bits belong to rounding rs, and rs needs them"
    if e.rbits is not None and e.rbits.dtype != "uint32":
        yield f"random bits are {e.rbits.dtype}, expected uint32"


def _bitcast(e: Bitcast) -> Faults:
    src, dst = e.a.dtype, e.type
    if src.bits * src.lanes != dst.bits * dst.lanes:
        yield f"a bitcast of {src} to {dst}: the sizes differ"


def _select(e: Select) -> Faults:
    if not e.cond.dtype.is_bool:
        yield f"the condition of a choice is {e.cond.dtype}, expected bool"
    if e.t.dtype != e.f.dtype:
        yield f"the arms of a choice are {e.t.dtype} and {e.f.dtype}"


def _call(e: Call) -> Faults:
    row = FUNCTIONS.get(e.fn)
    if row is None:
        yield f"no function is called {e.fn!r}"
        return
    if len(e.args) != row.arity:
        yield f"{e.fn} of {len(e.args)} operands, expected {row.arity}"
        return
    types = [a.dtype for a in e.args]
    if len(set(types)) > 1:
        yield f"operands of {e.fn} are {', '.join(types)}"
    accepted = {
        Accepts.FLOAT: types[0].is_float,
        Accepts.INT: types[0].is_integer,
        Accepts.NUMBER: types[0].is_float or types[0].is_integer,
    }
    if not accepted[row.accepts]:
        yield f"{e.fn} of {types[0]}, expected {row.accepts.value}"
    elif result_dtype(e.fn, types) != e.type:
        yield f"{e.fn} of {types[0]} gives {result_dtype(e.fn, types)}, not {e.type}"


def _indexed(e: Load | AddressOf | LoadVector) -> Faults:
    yield from _indices(e.buffer, e.indices, "index")
    if isinstance(e, LoadVector) and e.pred is not None and not e.pred.dtype.is_bool:
        yield f"the predicate of a load is {e.pred.dtype}, expected bool"


def _indices(buffer: Buffer, indices: Sequence[Expr], what: str) -> Faults:
    if len(indices) != buffer.rank:
        yield f"{len(indices)} of {what} for the {buffer.rank} axes of {buffer.name}"
    for e in indices:
        if not e.dtype.is_integer or e.dtype.lanes != 1:
            yield f"an {what} of {buffer.name} is {e.dtype}, expected an integer"


def _region(r: Region) -> Faults:
    yield from _indices(r.buffer, r.mins, "offset")
    yield from _indices(r.buffer, r.extents, "extent")
    for e in r.extents:
        value = int_value(e)
        if value is not None and value < 0:
            yield f"a negative extent of {r.buffer.name}"


def _buffer(b: Buffer) -> Faults:
    if not isinstance(cast("object", b.type), DType):
        yield f"{b.name} has no element type"
    yield from _indices(b, b.shape, "extent")
    if b.strides is not None:
        yield from _indices(b, b.strides, "stride")


def _pack(e: Pack) -> Faults:
    if len(e.lanes) not in (1, e.type.lanes):
        yield f"{len(e.lanes)} lanes for {e.type}"
    if any(lane.dtype != e.type.base for lane in e.lanes):
        yield f"a lane of {e.type} has another dtype"


def _lane(e: Lane) -> Faults:
    if not 0 <= e.lane < e.a.dtype.lanes:
        yield f"lane {e.lane} of {e.a.dtype}"


_EXPRESSIONS: dict[type[Node], Callable[..., Faults]] = {
    Const: _const,
    Binary: _binary,
    Unary: _unary,
    Cast: _cast,
    Bitcast: _bitcast,
    Select: _select,
    Call: _call,
    Load: _indexed,
    AddressOf: _indexed,
    LoadVector: _indexed,
    Region: _region,
    Buffer: _buffer,
    Pack: _pack,
    Lane: _lane,
}


# Statements --------------------------------------------------------------------------------------


def broken_fields(stmt: Stmt) -> Faults:
    """What is wrong with the dtypes of a statement's own operands."""
    check = _STATEMENTS.get(type(stmt))
    return iter(()) if check is None else check(stmt)


def _agree(what: str, found: DType, expected: DType) -> Faults:
    if found != expected:
        yield f"{what} is {found}, expected {expected}"


def _let(s: tile.Let) -> Faults:
    yield from _agree(f"the value of {s.var.name}", s.value.dtype, s.var.type)


def _store(s: tile.Store) -> Faults:
    yield from _indices(s.buffer, s.indices, "index")
    yield from _agree(f"what is stored to {s.buffer.name}", s.value.dtype, s.buffer.type)


def _store_vector(s: tile.StoreVector) -> Faults:
    yield from _indices(s.buffer, s.indices, "index")
    if s.pred is not None:
        yield from _agree("the predicate of a store", s.pred.dtype, DType("bool"))


def _loop(s: tile.For | tile.Pipelined) -> Faults:
    if not s.var.type.is_integer:
        yield f"the loop variable {s.var.name} is {s.var.type}, expected an integer"
    yield from _agree("the start of a loop", s.start.dtype, s.var.type)
    yield from _agree("the stop of a loop", s.stop.dtype, s.var.type)
    if isinstance(s, tile.For) and s.step is not None:
        yield from _agree("the step of a loop", s.step.dtype, s.var.type)
        if int_value(s.step) == 0:
            yield "the step of a loop is 0"


def _counters(s: tile.Parallel) -> Faults:
    for var, extent in zip(s.vars, s.extents, strict=False):
        yield from _agree(f"the extent of {var.name}", extent.dtype, var.type)
        if not var.type.is_integer:
            yield f"the loop variable {var.name} is {var.type}, expected an integer"


def _launch(s: tile.Launch) -> Faults:
    for e in s.grid:
        if not e.dtype.is_integer:
            yield f"a grid extent is {e.dtype}, expected an integer"
    for v in (*s.vars, *s.thread_vars):
        if not v.type.is_integer:
            yield f"the index {v.name} is {v.type}, expected an integer"


def _conditional(s: tile.If | tile.While | tile.Assert | tile.Assume) -> Faults:
    yield from _agree("a condition", s.cond.dtype, DType("bool"))


def _alloc(s: tile.Alloc) -> Faults:
    if s.init is not None:
        yield from _agree(f"the first value of {s.buffer.name}", s.init.dtype, s.buffer.type)
    count = _static_product(s.buffer.shape)
    if s.arrive_counts and count is not None and len(s.arrive_counts) != count:
        yield f"{len(s.arrive_counts)} arrival counts for {count} barriers"


def _view(s: tile.View) -> Faults:
    if s.offset is not None and not s.offset.dtype.is_integer:
        yield f"the offset of {s.buffer.name} is {s.offset.dtype}, expected an integer"
    inner, outer = _static_product(s.buffer.shape), _static_product(s.source.shape)
    offset = 0 if s.offset is None else int_value(s.offset)
    if inner is None or outer is None or offset is None or s.buffer.strides or s.source.strides:
        return
    inner_bits = inner * s.buffer.type.bits * s.buffer.type.lanes
    element = s.source.type.bits * s.source.type.lanes
    if offset < 0 or offset * element + inner_bits > outer * element:
        yield f"{s.buffer.name} reaches beyond {s.source.name}"


def _static_product(shape: Sequence[Expr]) -> int | None:
    sizes = [int_value(e) for e in shape]
    known = [n for n in sizes if n is not None]
    return math.prod(known) if len(known) == len(sizes) else None


def _collective(s: special.Collective) -> Faults:
    row = special.COLLECTIVES.get(s.fn)
    if row is None:
        yield f"no collective function is called {s.fn!r}"
    elif len(s.args) != row.arity:
        yield f"{s.fn} of {len(s.args)} operands, expected {row.arity}"
    elif row.result is not None or s.args:
        expected = s.args[0].dtype if row.result is None else DType(row.result)
        yield from _agree(f"the result of {s.fn}", s.result.type, expected)


def _reducer_update(s: special.ReducerUpdate) -> Faults:
    yield from _indices(s.reducer, s.indices, "index")
    yield from _agree(f"what {s.reducer.name} is updated with", s.value.dtype, s.reducer.type)


def _answer(s: sync.ClcTryCancel | sync.ClcQuery) -> Faults:
    r = s.response
    words = math.prod(int_value(n) or 0 for n in r.extents)
    if r.dtype.bits != 32 or r.dtype.lanes != 1 or words * 4 != sync.RESPONSE:
        yield f"the answer in {r.buffer.name} is not {sync.RESPONSE} bytes of 32-bit words"
    if isinstance(s, sync.ClcQuery):
        known = sync.CLC_PARTS.get(s.part)
        if known is None:
            yield f"an answer has no {s.part!r}"
        else:
            yield from _agree(f"the {s.part} of an answer", s.result.type, DType(known[0]))


_STATEMENTS: dict[type[Stmt], Callable[..., Faults]] = {
    tile.Let: _let,
    tile.Store: _store,
    tile.StoreVector: _store_vector,
    tile.For: _loop,
    tile.Pipelined: _loop,
    tile.Parallel: _counters,
    tile.Launch: _launch,
    tile.If: _conditional,
    tile.While: _conditional,
    tile.Assert: _conditional,
    tile.Assume: _conditional,
    tile.Alloc: _alloc,
    tile.View: _view,
    special.Collective: _collective,
    sync.ClcTryCancel: _answer,
    sync.ClcQuery: _answer,
    special.ReducerUpdate: _reducer_update,
}


# Tile operations ---------------------------------------------------------------------------------


def broken_shapes(op: tile.TileOp) -> Faults:
    """What is wrong with the extents and element types of a tile operation, as far as they are
    static.
    """
    check = _TILE_OPS.get(type(op))
    return iter(()) if check is None else check(op)


def single_element(r: Region) -> bool:
    """Whether all extents are the literal 1."""
    return all(int_value(e) == 1 for e in r.extents)


def _differ(a: Expr, b: Expr) -> bool:
    left, right = int_value(a), int_value(b)
    return left is not None and right is not None and left != right


def _matched(op: tile.Copy | sync.AsyncCopy | sync.TmaCopy | sync.CopyCluster) -> Faults:
    yield from _match(op.src, op.dst)


def _four_rows(op: sync.TmaGather4 | sync.TmaScatter4) -> Faults:
    array, tile_ = (op.src, op.dst) if isinstance(op, sync.TmaGather4) else (op.dst, op.src)
    if len(op.rows) != 4:
        yield f"{len(op.rows)} rows instead of 4"
    if not all(row.dtype.is_integer for row in op.rows):
        yield "a row is named by no integer"
    if array.buffer.rank != 2 or tile_.buffer.rank != 2 or int_value(tile_.extents[0]) != 4:
        yield "no tile of four rows and a matrix"
    elif _differ(array.extents[1], tile_.extents[1]):
        yield f"rows of {tile_.extents[1]} and of {array.extents[1]} elements"
    yield from _agree("the tile", tile_.dtype, array.dtype)


def _match(src: Region, dst: Region) -> Faults:
    """Extents longer than 1 pair up; a source with fewer of them repeats, aligned to the last
    axis.
    """
    x, y = ([e for e in r.extents if int_value(e) != 1] for r in (src, dst))
    repeats = len(x) != len(y)
    if repeats:
        x, y = list(src.extents), list(dst.extents)
        while len(x) > len(y) and int_value(x[0]) == 1:
            x.pop(0)
        y = y[len(y) - len(x) :]
    for a, b in zip(x, y, strict=False):
        if _differ(a, b) and not (repeats and int_value(a) == 1):
            sides = [f"{r.buffer.name} {_extents(r)}" for r in (src, dst)]
            yield f"{sides[0]} does not match {sides[1]}"
            return


def _extents(r: Region) -> str:
    sizes = [int_value(e) for e in r.extents]
    return "(" + ", ".join("?" if n is None else str(n) for n in sizes) + ")"


def _fill(op: tile.Fill) -> Faults:
    yield from _agree(f"the value of {op.dst.buffer.name}", op.value.dtype, op.dst.dtype)


def _product(op: tile.Gemm | sync.AsyncGemm | special.GemmBlockScaled) -> Faults:
    short = [r for r in (op.a, op.b, op.c) if len(r.extents) < 2]
    if short:
        yield f"{short[0].buffer.name} is not a matrix"
        return
    m, k = reversed(op.a.extents[-2:]) if op.transpose_a else op.a.extents[-2:]
    k2, n = reversed(op.b.extents[-2:]) if op.transpose_b else op.b.extents[-2:]
    m2, n2 = op.c.extents[-2:]
    pair = isinstance(op, scales.PairScaledGemm) or (isinstance(op, sync.AsyncGemm) and op.two_cta)
    if pair:  # each block has half of B
        n = const(2 * (int_value(n) or 0))
    for axis, left, right in (("M", m, m2), ("N", n, n2), ("K", k, k2)):
        if _differ(left, right):
            yield f"{axis} is {int_value(left)} and {int_value(right)}"
    for r in (op.a, op.b, op.c):
        if any(int_value(e) not in (1, None) for e in r.extents[:-2]):
            yield f"{r.buffer.name} {_extents(r)} is more than one matrix"
    yield from _agree("clear_accum", op.clear_accum.dtype, DType("bool"))


def _scaled_product(op: scales.AsyncScaledGemm) -> Faults:
    yield from _product(op)
    for sf, many in ((op.sfa, op.c.extents[-2]), (op.sfb, op.c.extents[-1])):
        rows = int_value(many) or 0
        columns = -(-rows // scales.SCALED_ROWS) * scales.SCALE_COLUMNS * op.groups
        yield from _scale_cells(sf, columns)


def _scale_copy(op: scales.ScaleCopy) -> Faults:
    yield from _words(op.src)
    words = math.prod(int_value(e) or 0 for e in op.src.extents)
    yield from _scale_cells(op.dst, words // scales.SCALE_LANES)


def _scale_transpose(op: scales.ScaleTranspose) -> Faults:
    return _words(op.words)


def _scale_cells(sf: Region, columns: int) -> Faults:
    expected = (scales.SCALED_ROWS, columns)
    if tuple(int_value(e) for e in sf.extents) != expected:
        yield f"{sf.buffer.name} {_extents(sf)} is not {expected}"
    yield from _agree(f"the words of {sf.buffer.name}", sf.dtype, DType("uint32"))


def _words(r: Region) -> Faults:
    count = math.prod(int_value(e) or 0 for e in r.extents)
    if not count or count % scales.SCALED_ROWS:
        yield f"{r.buffer.name} {_extents(r)} is no multiple of {scales.SCALED_ROWS} words"
    yield from _agree(f"the words of {r.buffer.name}", r.dtype, DType("uint32"))


def _axis(rank: int, dim: int) -> Faults:
    if not -rank <= dim < rank:
        yield f"axis {dim} of {rank}"


def _reduce(op: tile.Reduce) -> Faults:
    rank = len(op.src.extents)
    if not -rank <= op.dim < rank:
        yield from _axis(rank, op.dim)
        return
    kept = [e for i, e in enumerate(op.src.extents) if i != op.dim % rank]
    wide = [e for e in kept if int_value(e) != 1]
    out = [e for e in op.dst.extents if int_value(e) != 1]
    if len(wide) == len(out) and any(map(_differ, wide, out)):
        yield f"{_extents(op.src)} without axis {op.dim} is not {_extents(op.dst)}"


def _scan(op: tile.Scan) -> Faults:
    yield from _axis(len(op.src.extents), op.dim)
    if len(op.src.extents) != len(op.dst.extents) or any(
        map(_differ, op.src.extents, op.dst.extents)
    ):
        yield f"{_extents(op.src)} and {_extents(op.dst)} differ"


def _transpose(op: tile.Transpose) -> Faults:
    if len(op.src.extents) < 2 or len(op.dst.extents) < 2:
        yield "a transposition of fewer than two axes"
    elif any(map(_differ, reversed(op.src.extents[-2:]), op.dst.extents[-2:])):
        yield f"{_extents(op.dst)} is not {_extents(op.src)} transposed"


def _atomic(op: tile.Atomic) -> Faults:
    if isinstance(op.value, Region):
        yield from _match(op.value, op.dst)
    else:
        yield from _agree(f"the value for {op.dst.buffer.name}", op.value.dtype, op.dst.dtype)
    if op.previous is not None:
        yield from _agree("the previous value", op.previous.type, op.dst.dtype)
        if not single_element(op.dst):
            yield "the previous value of more than one element"


def _test(op: special.TestElements) -> Faults:
    if not (op.result.type.is_bool or op.result.type.is_integer):
        yield f"the result of a test is {op.result.type}"


_TILE_OPS: dict[type[Stmt], Callable[..., Faults]] = {
    tile.Copy: _matched,
    sync.AsyncCopy: _matched,
    sync.TmaCopy: _matched,
    sync.TmaGather4: _four_rows,
    sync.TmaScatter4: _four_rows,
    sync.CopyCluster: _matched,
    tile.Fill: _fill,
    tile.Gemm: _product,
    sync.AsyncGemm: _product,
    special.GemmBlockScaled: _product,
    scales.PairScaledGemm: _product,
    scales.AsyncScaledGemm: _scaled_product,
    scales.ScaleCopy: _scale_copy,
    scales.ScaleTranspose: _scale_transpose,
    tile.Reduce: _reduce,
    tile.Scan: _scan,
    tile.Transpose: _transpose,
    tile.Atomic: _atomic,
    special.TestElements: _test,
}
