"""This package's IR of a program, in the neutral form that `oracle_form.py` compares.

What enters: a `PrimFunc` traced by this package. What leaves: lists, strings and numbers. A node
that upstream has too is said as upstream says it; any other node is said by its fields' names.
"""

from __future__ import annotations

import enum
from typing import Any

from tilelang.ir.expr import (
    AddressOf,
    AtomicLoad,
    Binary,
    Bitcast,
    Buffer,
    Call,
    Cast,
    Const,
    Load,
    Region,
    Select,
    Unary,
    Var,
)
from tilelang.ir.node import Node
from tilelang.ir.special import MakeTensor
from tilelang.ir.tile import (
    Alloc,
    Assert,
    AtomicStore,
    For,
    Function,
    If,
    Launch,
    Let,
    Parallel,
    Pipelined,
    Stmt,
    Store,
    View,
    While,
)

Form = list[Any]


def function(func: Any) -> Form:
    """A traced function: name, parameters, body, and the views in it."""
    ir: Function = func.ir
    params: list[Form] = []
    for p in ir.params:
        if p.buffer is not None:
            params.append(["buffer", *_buffer(p.buffer)])
        elif p.var is not None:
            params.append(["scalar", p.var.name, str(p.var.dtype)])
    views = {v.buffer.name: _view(v) for v in ir.walk() if isinstance(v, View)}
    return ["function", ir.name, params, _body(ir.body), views]


def _buffer(b: Buffer) -> Form:
    """Name, dtype, shape, scope, strides."""
    strides = None if b.strides is None else [_expr(e) for e in b.strides]
    return [b.name, str(b.type), [_expr(e) for e in b.shape], b.scope, strides]


def _body(body: Any) -> list[Form]:
    return [x for s in body for x in _stmt(s)]


def _stmt(s: Any) -> list[Form]:
    for kind, handler in _STATEMENTS.items():
        if type(s) is kind:
            return handler(s)
    return [["op", type(s).__name__, _fields(s)]]


def _fields(node: Node) -> dict[str, Any]:
    """The declared fields of a node, in neutral form."""
    return {f.name: _value(getattr(node, f.name)) for f in node.fields()}


def _value(x: Any) -> Any:  # noqa: PLR0911 - one for each kind
    if isinstance(x, Region):
        return ["region", x.buffer.name, [_expr(e) for e in x.mins], [_expr(e) for e in x.extents]]
    if isinstance(x, Buffer):
        return ["whole", x.name]
    if isinstance(x, tuple):
        parts = [_value(v) for v in x]
        return [s for p in parts for s in p] if any(isinstance(v, Stmt) for v in x) else parts
    if isinstance(x, enum.Enum):
        return x.value
    if isinstance(x, Stmt):
        return _stmt(x)
    if isinstance(x, Var):
        return ["var", x.name, str(x.dtype)]
    if isinstance(x, Node):
        return _expr(x)
    return x if x is None or isinstance(x, (bool, int, float, str)) else str(x)


def _launch(s: Launch) -> list[Form]:
    names = [v.name for v in s.vars]
    threads = None if s.threads is None else list(s.threads)
    tids = [v.name for v in s.thread_vars]
    grid = [_expr(e) for e in s.grid]
    return [["launch", grid, names, threads, tids, list(s.cluster), _body(s.body)]]


def _loop(s: For) -> list[Form]:
    step = None if s.step is None else _expr(s.step)
    notes = dict(_value(s.hints))
    head = [s.var.name, str(s.var.dtype), _expr(s.start), _expr(s.stop), step]
    return [["range", s.kind.value, *head, notes, _body(s.body)]]


def _pipelined(s: Pipelined) -> list[Form]:
    notes = {"num_stages": s.num_stages, **dict(_value(s.hints))}
    if s.order or s.stage:
        notes |= {"tl_pipeline_order": list(s.order), "tl_pipeline_stage": list(s.stage)}
    head = [s.var.name, str(s.var.dtype), _expr(s.start), _expr(s.stop), None]
    return [["range", "serial", *head, notes, _body(s.body)]]


def _parallel(s: Parallel) -> list[Form]:
    body = _body(s.body)
    notes = dict(_value(s.hints))
    for n in reversed(range(len(s.vars))):
        var = s.vars[n]
        zero = ["const", str(var.dtype), 0]
        head = [var.name, str(var.dtype), zero, _expr(s.extents[n]), None]
        body = [["range", "parallel", *head, notes if n == 0 else {}, body]]
    return body


def _store(s: Store) -> list[Form]:
    return [["store", s.buffer.name, [_expr(e) for e in s.indices], _expr(s.value)]]


def _alloc(s: Alloc) -> list[Form]:
    form: list[Form] = [["alloc", *_buffer(s.buffer)]]
    if s.init is not None:
        form.append(["store", s.buffer.name, [["const", "int32", 0]], _expr(s.init)])
    if s.arrive_counts:
        form.append(["block attr", "barrier_init", [[s.buffer.name, list(s.arrive_counts)]]])
    return form


def _view(s: View) -> Form:
    """Dtype, shape, strides, the buffer whose memory it is, offset in elements."""
    _, dtype, shape, _, strides = _buffer(s.buffer)
    offset = None if s.offset is None else _expr(s.offset)
    return [dtype, shape, strides, s.source.name, offset]


def _element(b: Buffer, indices: Any) -> Form:
    """One element as a region."""
    one = ["const", "int32", 1]
    return ["region", b.name, [_expr(i) for i in indices], [one for _ in indices]]


def _atomic_store(s: AtomicStore) -> list[Form]:
    fields = {"dst": _element(s.buffer, s.indices), "value": _expr(s.value)}
    return [["op", "AtomicStore", {**fields, "memory_order": s.memory_order}]]


_STATEMENTS: dict[type, Any] = {
    AtomicStore: _atomic_store,
    MakeTensor: lambda s: [["make tensor", *_buffer(s.buffer), _expr(s.address)]],
    Launch: _launch,
    For: _loop,
    Pipelined: _pipelined,
    Parallel: _parallel,
    Store: _store,
    Alloc: _alloc,
    View: lambda _: [],
    If: lambda s: [["if", _expr(s.cond), _body(s.then), _body(s.orelse)]],
    While: lambda s: [["while", _expr(s.cond), _body(s.body)]],
    Let: lambda s: [["let", s.var.name, str(s.var.dtype), _expr(s.value)]],
    Assert: lambda s: [["assert", _expr(s.cond)]],
}


def _expr(e: Any) -> Any:
    for kind, handler in _EXPRESSIONS.items():
        if type(e) is kind:
            return handler(e)
    return ["other", type(e).__name__, _fields(e)]


def _const(e: Const) -> Form:
    value = repr(float(e.value)) if isinstance(e.value, float) else int(e.value)
    return ["const", str(e.type), value]


def _cast(e: Cast) -> Form:
    if e.rounding or e.rbits is not None:
        return ["other", "Cast", _fields(e)]
    return ["cast", str(e.type), _expr(e.a)]


def _atomic_load(e: AtomicLoad) -> Form:
    return ["fn", "atomic_load", str(e.dtype), [_element(e.buffer, e.indices), e.memory_order]]


_EXPRESSIONS: dict[type, Any] = {
    AtomicLoad: _atomic_load,
    Const: _const,
    Var: lambda e: ["var", e.name],
    Binary: lambda e: ["bin", e.op.value, _expr(e.a), _expr(e.b)],
    Unary: lambda e: ["un", e.op.value, _expr(e.a)],
    Cast: _cast,
    Bitcast: lambda e: ["bitcast", str(e.type), _expr(e.a)],
    Select: lambda e: ["select", _expr(e.cond), _expr(e.t), _expr(e.f)],
    Call: lambda e: ["fn", e.fn, str(e.type), [_expr(a) for a in e.args], *e.params],
    Load: lambda e: ["load", e.buffer.name, [_expr(i) for i in e.indices]],
    AddressOf: lambda e: ["addr", e.buffer.name, [_expr(i) for i in e.indices]],
}
