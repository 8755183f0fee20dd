"""Upstream's own IR of a program, in the neutral form that `oracle_form.py` compares.

What enters: a function that upstream's frontend has traced (an object of its TVM, not yet lowered).
What leaves: lists, strings and numbers. It runs inside upstream's environment and says what is
there: nothing is simplified or left out but names of temporary handles and source locations.
"""

from __future__ import annotations

from typing import Any, ClassVar

Form = list[Any]

_BINARY = {
    "Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Mod": "truncmod",
    "FloorDiv": "//", "FloorMod": "%", "Min": "min", "Max": "max",
    "EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">=",
    "And": "and", "Or": "or",
}  # fmt: skip
_KINDS = {0: "serial", 1: "parallel", 2: "vectorized", 3: "unroll", 4: "thread"}


class Buffers:
    """The buffers of one function: by name those that are used, by their data those declared."""

    used: ClassVar[dict[str, Any]] = {}
    declared: ClassVar[dict[str, str]] = {}


def function(func: Any) -> Form:
    """A traced function: name, parameters, body, views (buffers that are used but not declared,
    with the data that they share), and the name of the buffer declared for each data.
    """
    Buffers.used, Buffers.declared = {}, {}
    params: list[Form] = []
    for p in func.params:
        if p in func.buffer_map:
            params.append(["buffer", *_buffer(func.buffer_map[p])])
        else:
            params.append(["scalar", _var(p), _dtype(p)])
    body = _stmt(func.body)
    names = set(Buffers.declared.values())
    views: dict[str, Form] = {}
    for name, b in list(Buffers.used.items()):
        if name not in names:
            shape, strides = [_expr(e) for e in b.shape], [_expr(e) for e in b.strides]
            views[name] = [_dtype(b), shape, strides, _var(b.data), _expr(b.elem_offset)]
    return ["function", str(func.attrs["global_symbol"]), params, body, views, Buffers.declared]


def _buffer(b: Any) -> Form:
    """A declaration: name, dtype, shape, scope, strides."""
    shape, strides = [_expr(e) for e in b.shape], [_expr(e) for e in b.strides]
    Buffers.declared[_var(b.data)] = _name(b)
    return [_name(b), _dtype(b), shape, str(b.scope()), strides]


def _name(b: Any) -> str:
    """A name that is one per buffer: names of upstream's buffers may repeat."""
    name = f"{b.name}@{b.__hash__():x}"
    Buffers.used[name] = b
    return name


def _dtype(x: Any) -> str:
    """The dtype of a node, by its plain name."""
    return str(x.dtype).removeprefix("custom[").removesuffix("]")


def _var(v: Any) -> str:
    return f"{v.name}@{v.__hash__():x}"


def _plain(x: Any) -> Any:  # noqa: PLR0911 - one for each kind
    """An annotation as plain data, with expressions in it in neutral form."""
    kind = type(x).__name__
    if x is None or isinstance(x, (bool, int, float, str)):
        return x
    if kind in ("Array", "list", "tuple"):
        return [_plain(v) for v in x]
    if kind in ("Map", "dict"):
        return {str(k): _plain(v) for k, v in x.items()}
    if kind == "IntImm":
        return int(x.value)
    if kind == "StringImm":
        return str(x.value)
    if hasattr(x, "dtype"):
        return _expr(x)
    return ["object", kind]


# -- statements
# -------------------------------------------------------------------------------------


def _stmt(s: Any) -> list[Form]:
    kind = type(s).__name__
    handler = _STATEMENTS.get(kind)
    return handler(s) if handler is not None else [["unknown statement", kind]]


def _seq(s: Any) -> list[Form]:
    return [x for part in s.seq for x in _stmt(part)]


def _realize(s: Any) -> list[Form]:
    block = s.block
    made = [["alloc", *_buffer(b)] for b in block.alloc_buffers]
    notes = [["block attr", str(k), _block_note(k, v)] for k, v in block.annotations.items()]
    return [*notes, *made, *_stmt(block.body)]


def _block_note(key: Any, value: Any) -> Any:
    if type(value).__name__ in ("Map", "dict"):  # keyed by a buffer's handle
        return [[_var(k) if hasattr(k, "name") else str(k), _plain(v)] for k, v in value.items()]
    return _plain(value)


def _for(s: Any) -> list[Form]:
    kind = _KINDS[int(s.kind)]
    tag = str(s.thread_binding.thread_tag) if kind == "thread" else ""
    notes = {str(k): _plain(v) for k, v in s.annotations.items()}
    step = None if s.step is None else _expr(s.step)
    head = [_var(s.loop_var), _dtype(s.loop_var), _expr(s.min), _expr(s.extent), step]
    return [["for", kind, tag, *head, notes, _stmt(s.body)]]


def _if(s: Any) -> list[Form]:
    other = _stmt(s.else_case) if s.else_case is not None else []
    return [["if", _expr(s.condition), _stmt(s.then_case), other]]


def _bind(s: Any) -> list[Form]:
    return [["let", _var(s.var), _dtype(s.var), _expr(s.value)]]


def _store(s: Any) -> list[Form]:
    return [["store", _name(s.buffer), [_expr(e) for e in s.indices], _expr(s.value)]]


def _attr(s: Any) -> list[Form]:
    node = _plain(s.node) if s.node is not None else None
    return [["attr", str(s.attr_key), node, _plain(s.value), _stmt(s.body)]]


_STATEMENTS: dict[str, Any] = {
    "SeqStmt": _seq,
    "SBlockRealize": _realize,
    "For": _for,
    "IfThenElse": _if,
    "Bind": _bind,
    "BufferStore": _store,
    "AttrStmt": _attr,
    "While": lambda s: [["while", _expr(s.condition), _stmt(s.body)]],
    "AllocBuffer": lambda s: [["alloc", *_buffer(s.buffer)]],
    "DeclBuffer": lambda s: [["view", *_buffer(s.buffer)]],
    "AssertStmt": lambda s: [["assert", _expr(s.condition)]],
    "Evaluate": lambda s: [["eval", _expr(s.value)]],
}

# -- expressions
# -------------------------------------------------------------------------------------


def _expr(e: Any) -> Any:
    kind = type(e).__name__
    if isinstance(e, (bool, int, float, str)):
        return e
    if kind in _BINARY:
        return ["bin", _BINARY[kind], _expr(e.a), _expr(e.b)]
    handler = _EXPRESSIONS.get(kind)
    return handler(e) if handler is not None else ["unknown expression", kind]


def _call(e: Any) -> Form:
    args = [_expr(a) for a in e.args]
    notes = {str(k): _plain(v) for k, v in (getattr(e, "annotations", None) or {}).items()}
    return ["call", str(e.op.name), _dtype(e), args, notes]


def _let(e: Any) -> Form:
    return ["let value", _var(e.var), _dtype(e.var), _expr(e.value), _expr(e.body)]


_EXPRESSIONS: dict[str, Any] = {
    "IntImm": lambda e: ["const", _dtype(e), int(e.value)],
    "FloatImm": lambda e: ["const", _dtype(e), repr(float(e.value))],
    "StringImm": lambda e: str(e.value),
    "Var": lambda e: ["var", _var(e)],
    "SizeVar": lambda e: ["var", _var(e)],
    "Cast": lambda e: ["cast", _dtype(e), _expr(e.value)],
    "Not": lambda e: ["un", "not", _expr(e.a)],
    "Select": lambda e: ["select", _expr(e.condition), _expr(e.true_value), _expr(e.false_value)],
    "BufferLoad": lambda e: ["load", _name(e.buffer), [_expr(i) for i in e.indices]],
    "Ramp": lambda e: ["ramp", _expr(e.base), _expr(e.stride), _expr(e.lanes)],
    "Broadcast": lambda e: ["broadcast", _expr(e.value), _expr(e.lanes)],
    "Shuffle": lambda e: ["shuffle", [_expr(v) for v in e.vectors], [_expr(v) for v in e.indices]],
    "Call": _call,
    "Let": _let,
}
