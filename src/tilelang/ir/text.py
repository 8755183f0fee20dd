"""The text form: a node goes in, Python-syntax source comes out, which `ir/read.py` reads back to
an equal node.

The form of an operation is derived from its declared fields: required fields by position, the
others by keyword and only where they differ from their default. Only control flow, `Let`, `Store`
and scalar operators have a syntax of their own. Deep nesting is bounded by Python's own parser
(about 200 parentheses).
"""

from __future__ import annotations

import dataclasses
import enum
import keyword
import math
import re
from collections.abc import Iterator
from dataclasses import MISSING
from typing import Any, cast

from tilelang.dtypes import DType, const_value
from tilelang.errors import InternalError
from tilelang.ir import ascend as ascend_module
from tilelang.ir import ascend_simd as ascend_simd_module
from tilelang.ir import expr as expr_module
from tilelang.ir import scales as scales_module
from tilelang.ir import special as special_module
from tilelang.ir import sync as sync_module
from tilelang.ir import thread as thread_module
from tilelang.ir import tile as tile_module
from tilelang.ir.expr import (
    BOOL,
    INT32,
    Binary,
    BinaryOp,
    Buffer,
    Call,
    Const,
    Expr,
    Load,
    Region,
    Select,
    Unary,
    UnaryOp,
    Var,
)
from tilelang.ir.functions import FUNCTIONS, result_dtype
from tilelang.ir.node import Kind, Node, same
from tilelang.ir.thread import Argument, Array, Elem, Program, Slot, TensorMap, Write
from tilelang.ir.tile import (
    Assert,
    Break,
    Continue,
    For,
    Function,
    If,
    Let,
    Parallel,
    Param,
    Pipelined,
    Stmt,
    Store,
    While,
)

FLOAT32 = DType("float32")

# The modules whose nodes have a text form; a further stage is one more entry.
STAGES = (
    expr_module,
    tile_module,
    sync_module,
    special_module,
    scales_module,
    ascend_module,
    ascend_simd_module,
    thread_module,
)

# Python's precedence, loosest first.
OR, AND, NOT, COMPARE, BITOR, BITXOR, BITAND, SHIFT, SUM, PRODUCT, SIGN, ATOM = range(12)

LEVELS: dict[BinaryOp, int] = {
    BinaryOp.OR: OR,
    BinaryOp.AND: AND,
    **dict.fromkeys(expr_module.COMPARES, COMPARE),
    BinaryOp.BITOR: BITOR,
    BinaryOp.BITXOR: BITXOR,
    BinaryOp.BITAND: BITAND,
    BinaryOp.SHL: SHIFT,
    BinaryOp.SHR: SHIFT,
    BinaryOp.ADD: SUM,
    BinaryOp.SUB: SUM,
    BinaryOp.MUL: PRODUCT,
    BinaryOp.DIV: PRODUCT,
    BinaryOp.FLOORDIV: PRODUCT,
    BinaryOp.FLOORMOD: PRODUCT,
}
"""How tightly an operator with a symbol binds; the other operators are spelled as functions."""

UNARY_LEVELS: dict[UnaryOp, int] = {UnaryOp.NEG: SIGN, UnaryOp.BITNOT: SIGN, UnaryOp.NOT: NOT}

SELECT, LAZY_SELECT, NEGATE, REGION = "where", "if_then_else", "neg", "region"

Named = Var | Buffer | Array | TensorMap
DEFINED = (Buffer, Array, TensorMap)
"""What a name stands for; those that say all about themselves where they are defined."""

_PAIRS = ("attrs", "imm")
"""Fields that hold pairs of a name and data, written as a dictionary."""


def snake(name: str) -> str:
    """`SyncThreads` as `sync_threads`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def node_classes(base: type[Node]) -> dict[str, type[Node]]:
    """The subclasses of `base` of every stage, by their name in the text form."""
    found: dict[str, type[Node]] = {}
    for module in STAGES:
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, base):
                found[snake(value.__name__)] = value
    return found


def is_name(name: str) -> bool:
    """Whether `name` can stand for a variable, buffer or function in the text form."""
    return name.isidentifier() and not keyword.iskeyword(name)


def print_function(fn: Function) -> str:
    """The text of a whole function, ending in a newline."""
    facts = [f"dialect={_quote(fn.dialect)}"]
    if fn.dynamic:
        facts.append("dynamic={" + ", ".join(f"{v.name}: {v.type}" for v in fn.dynamic) + "}")
    if fn.outputs:
        facts.append(f"outputs={_data(fn.outputs)}")
    if fn.attrs:
        facts.append(f"attrs={_pairs(fn.attrs)}")
    params = ", ".join(_param(p) for p in fn.params)
    lines = [f"@function({', '.join(facts)})", f"def {fn.name}({params}):"]
    lines += _block(fn.body, 1)
    return "\n".join(lines) + "\n"


def print_program(program: Program) -> str:
    """The text of a whole program of the thread stage, ending in a newline."""
    facts: list[str] = []
    if program.dynamic:
        facts.append("dynamic={" + ", ".join(f"{v.name}: {v.type}" for v in program.dynamic) + "}")
    if program.outputs:
        facts.append(f"outputs={_data(program.outputs)}")
    if program.attrs:
        facts.append(f"attrs={_pairs(program.attrs)}")
    params = ", ".join(_argument(p) for p in program.params)
    lines = [f"@program({', '.join(facts)})", f"def {program.name}({params}):"]
    lines += _block(program.body, 1)
    return "\n".join(lines) + "\n"


def print_stmt(stmt: Stmt, depth: int = 0) -> str:
    """The text of one statement with everything inside it, indented `depth` steps; no newline at
    the end.
    """
    return "\n".join(_stmt(stmt, depth))


def print_expr(e: Node) -> str:
    """The text of a scalar expression, region or buffer."""
    return _expr(e, OR)


# Parameters --------------------------------------------------------------------------------------


def _param(p: Param) -> str:
    extra = ["pointer=True"] if p.pointer else []
    if p.buffer is not None and p.buffer.name != p.name:
        extra.append(f"name={_quote(p.buffer.name)}")
    if p.buffer is not None:
        return f"{p.name}: Tensor({', '.join([*_declared(p.buffer), *extra])})"
    return _scalar_param(p.name, p.var, p.pointer)


def _scalar_param(name: str, var: Var | None, pointer: bool) -> str:
    if var is None:
        return name
    extra = ["pointer=True"] if pointer else []
    if var.name != name:
        extra.append(f"name={_quote(var.name)}")
    return f"{name}: Scalar({', '.join([var.type, *extra])})" if extra else f"{name}: {var.type}"


def _argument(p: Argument) -> str:
    if p.array is None:
        return _scalar_param(p.name, p.var, p.pointer)
    extra = ["pointer=True"] if p.pointer else []
    if p.strides is not None:
        extra.append(f"strides={_tuple(p.strides)}")
    if p.array.name != p.name:
        extra.append(f"name={_quote(p.array.name)}")
    own = [_tuple(p.shape), *_declared(p.array), *extra]
    return f"{p.name}: Global({', '.join(own)})"


def _declared(thing: Buffer | Array | TensorMap) -> list[str]:
    """The own fields of what is defined, as arguments of the operation that defines it."""
    return [*_required(thing), *_keywords(thing)]


def _required(thing: Buffer | Array | TensorMap) -> list[str]:
    return [
        _field(f.metadata["kind"], getattr(thing, f.name))
        for f in defining_fields(type(thing))
        if f.default is MISSING
    ]


def defining_fields(cls: type[Node]) -> list[dataclasses.Field[Any]]:
    """The fields of a named thing but its name, in the order of the text: a dtype stands last."""
    fields = [f for f in cls.fields() if f.name not in ("name", "type")]
    required = sum(f.default is MISSING for f in fields)
    fields[required:required] = [f for f in cls.fields() if f.name == "type"]
    return fields


# Statements --------------------------------------------------------------------------------------


def _block(stmts: tuple[Stmt, ...], depth: int) -> list[str]:
    if not stmts:
        return [_INDENT * depth + "pass"]
    return [line for stmt in stmts for line in _stmt(stmt, depth)]


_INDENT = "    "


def _stmt(stmt: Stmt, depth: int) -> list[str]:
    pad = _INDENT * depth
    match stmt:
        case If():
            lines = _if(stmt, depth)
        case While():
            lines = [f"{pad}while {_expr(stmt.cond, OR)}:", *_block(stmt.body, depth + 1)]
        case For() | Pipelined() | Parallel():
            lines = [f"{pad}{_loop(stmt)}:", *_block(stmt.body, depth + 1)]
        case _:
            lines = _with(stmt, depth)
    return lines


def _with(stmt: Stmt, depth: int) -> list[str]:
    """An operation, which may have a body."""
    pad = _INDENT * depth
    bodies = [f.name for f in stmt.fields() if f.metadata["kind"] is Kind.BODY]
    if len(bodies) > 1:
        raise InternalError(f"no text form for {type(stmt).__name__}: it has several bodies")
    if bodies:
        names = _bound_names(stmt)
        as_names = f" as {names}" if names else ""
        return [f"{pad}with {_op(stmt)}{as_names}:", *_block(getattr(stmt, bodies[0]), depth + 1)]
    return [pad + _simple(stmt)]


def _if(stmt: If, depth: int) -> list[str]:
    pad = _INDENT * depth
    lines: list[str] = []
    word = "if"
    at = stmt
    while True:
        lines += [f"{pad}{word} {_expr(at.cond, OR)}:", *_block(at.then, depth + 1)]
        match at.orelse:
            case ():
                return lines
            case (If() as nested,):
                at, word = nested, "elif"
            case _:
                return [*lines, f"{pad}else:", *_block(at.orelse, depth + 1)]


def _loop(stmt: For | Pipelined | Parallel) -> str:
    if isinstance(stmt, Parallel):
        names = ", ".join(v.name for v in stmt.vars) or "()"
        args = [_expr(e, OR) for e in stmt.extents]
        return f"for {names} in parallel({', '.join([*args, *_keywords(stmt)])})"
    word = stmt.kind.value if isinstance(stmt, For) else "pipelined"
    args = [_expr(stmt.start, OR), _expr(stmt.stop, OR), *_keywords(stmt, skip=("kind",))]
    return f"for {stmt.var.name} in {word}({', '.join(args)})"


def _simple(stmt: Stmt) -> str:
    match stmt:
        case Let():
            text = f"{stmt.var.name}: {stmt.var.type} = {_expr(stmt.value, OR)}"
        case Store() if type(stmt) is Store:
            text = f"{stmt.buffer.name}{_indices(stmt.indices)} = {_expr(stmt.value, OR)}"
        case Write() if _is_plain(stmt.array, stmt.value.dtype, stmt):
            text = f"{stmt.array.name}{_indices((stmt.index,))} = {_expr(stmt.value, OR)}"
        case Break() | Continue():
            text = snake(type(stmt).__name__)
        case Assert():
            text = f"assert {_expr(stmt.cond, OR)}"
            if stmt.kind:
                text += f", {stmt.kind}({_quote(stmt.message)})"
            elif stmt.message:
                text += f", {_quote(stmt.message)}"
        case _:
            text = _operation(stmt)
    return text


def _operation(stmt: Stmt) -> str:
    """An operation without a body, assigned to what it defines."""
    bound = list(_bound(stmt))
    text = _op(stmt)
    match bound:
        case []:
            return text
        case [Buffer() | Array() | TensorMap() as b]:
            return f"{b.name} = {text}"
        case [Var() as v]:
            return f"{v.name}: {v.type} = {text}"
        case _:
            return f"{_bound_names(stmt)} = {text}"


def _bound(node: Node) -> Iterator[Any]:
    """The values of the fields that define something, empty ones left out."""
    for f in node.fields():
        value = getattr(node, f.name)
        given = value is not None and (value or f.default is MISSING)
        if f.metadata["kind"] is Kind.BINDS and given:
            yield value


def _bound_names(node: Node) -> str:
    """The names that a node defines, as an assignment target: one group for each field."""
    groups = [v.name if isinstance(v, Named) else _name_group(v) for v in _bound(node)]
    return groups[0] if len(groups) == 1 else f"({', '.join(groups)})" if groups else ""


def _name_group(items: tuple[Named, ...]) -> str:
    return "(" + ", ".join(v.name for v in items) + (",)" if len(items) == 1 else ")")


# Operations, from their fields -------------------------------------------------------------------


def _op(node: Node) -> str:
    return f"{snake(type(node).__name__)}({', '.join([*_positional(node), *_keywords(node)])})"


def _positional(node: Node) -> list[str]:
    """The required fields; those after the last region by keyword, since no order of them is
    self-evident.
    """
    required = [
        (f, getattr(node, f.name))
        for f in node.fields()
        if f.default is MISSING and f.metadata["kind"] is not Kind.BODY
    ]
    last_region = max(
        (i for i, (_, v) in enumerate(required) if isinstance(v, Region)), default=len(required)
    )
    out: list[str] = []
    for i, (f, value) in enumerate(required):
        if f.metadata["kind"] is Kind.BINDS:
            if isinstance(value, DEFINED):
                out += _required(value)
            continue
        out.append((f"{f.name}=" if i > last_region else "") + _field(f.metadata["kind"], value))
    return out


def _keywords(node: Node, skip: tuple[str, ...] = ()) -> list[str]:
    """The fields that differ from their default, and what the names defined here need to be read
    back.
    """
    out: list[str] = []
    for f in node.fields():
        value = getattr(node, f.name)
        kind = f.metadata["kind"]
        if kind is Kind.BINDS:
            out += _binding_facts(node, value)
        elif f.default is MISSING or f.name in skip or same(value, f.default) or kind is Kind.BODY:
            continue
        elif f.name == "hints":
            out += _hints(node, value)
        elif f.name in _PAIRS:
            out.append(f"{f.name}={_pairs(value)}")
        else:
            out.append(f"{f.name}={_field(kind, value)}")
    return out


def _binding_facts(node: Node, value: Any) -> list[str]:
    if isinstance(value, DEFINED):
        return _keywords(value)
    if isinstance(value, Var):  # a plain statement says the dtype beside the name
        value = (value,) if any(f.metadata["kind"] is Kind.BODY for f in node.fields()) else ()
    items = cast("tuple[Var, ...]", value or ())
    if all(v.type == INT32 for v in items):
        return []
    return [f"var_dtypes={_tuple(tuple(v.type for v in items))}"]


def _hints(node: Node, hints: tuple[tuple[str, Any], ...]) -> list[str]:
    """Hints as keywords of their own, where no name clashes; otherwise all of them in one
    dictionary.
    """
    taken = {f.name for f in node.fields()} | {"var_dtypes"}
    names = [name for name, _ in hints]
    if len(set(names)) == len(names) and all(is_name(n) and n not in taken for n in names):
        return [f"{name}={_data(value)}" for name, value in hints]
    return [f"hints={_pairs(hints)}"]


def _field(kind: Kind, value: Any) -> str:
    if kind is Kind.ATTR:
        return _data(value.value) if isinstance(value, enum.Enum) else _data(value)
    return _tuple(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else _operand(value)


def _operand(value: Any) -> str:
    return "None" if value is None else _expr(value, OR)


def _tuple(items: tuple[Any, ...]) -> str:
    texts = [
        _tuple(cast("tuple[Any, ...]", i)) if isinstance(i, tuple) else _item(i) for i in items
    ]
    return "(" + ", ".join(texts) + (",)" if len(texts) == 1 else ")")


def _item(value: Any) -> str:
    return _expr(value, OR) if isinstance(value, Node) else _data(value)


def _pairs(pairs: tuple[tuple[str, Any], ...]) -> str:
    return "{" + ", ".join(f"{_quote(name)}: {_data(value)}" for name, value in pairs) + "}"


def _data(value: Any) -> str:
    """Plain data as a Python literal; a record (a frozen dataclass, as layouts are) as a call of
    its class.
    """
    match value:
        case enum.Enum():
            out = f"{type(value).__name__}.{value.name}"
        case DType():
            out = str(value)
        case str():
            out = _quote(value)
        case None | bool() | int():
            out = repr(value)
        case float():
            out = repr(value) if math.isfinite(value) else f'float("{value}")'
        case tuple():
            out = _tuple(cast("tuple[Any, ...]", value))
        case Node():
            raise InternalError(f"plain data holds a node: {value!r}")
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            parts = [
                f"{f.name}={_data(getattr(value, f.name))}"
                for f in dataclasses.fields(value)
                if f.compare
            ]
            out = f"{type(value).__name__}({', '.join(parts)})"
        case _:
            raise InternalError(
                f"no text form for plain data of type {type(value).__name__}: {value!r}"
            )
    return out


def _quote(text: str) -> str:
    quoted = repr(str(text))
    return f'"{quoted[1:-1]}"' if quoted[0] == "'" and '"' not in text else quoted


# Expressions -------------------------------------------------------------------------------------


def _expr(e: Node, level: int) -> str:
    """The text of `e`, in parentheses if it binds looser than `level`."""
    text, own = _leveled(e)
    return f"({text})" if own < level else text


def _leveled(e: Node) -> tuple[str, int]:
    match e:
        case Const():
            out = _const(e)
        case Var() | Buffer() | Array() | TensorMap():
            out = e.name, ATOM
        case Binary():
            out = _binary(e)
        case Unary():
            out = _unary(e)
        case Load() if type(e) is Load:
            out = e.buffer.name + _indices(e.indices), ATOM
        case Elem() if _is_plain(e.array, e.type, e):
            out = e.array.name + _indices((e.index,)), ATOM
        case Slot():
            out = f"{e.array.name}[{_expr(e.index, OR)} : +{e.count}]", ATOM
        case Region():
            out = _region(e), ATOM
        case Select():
            name = LAZY_SELECT if e.lazy else SELECT
            out = f"{name}({_expr(e.cond, OR)}, {_expr(e.t, OR)}, {_expr(e.f, OR)})", ATOM
        case Call():
            out = _call(e), ATOM
        case _:
            out = _op(e), ATOM
    return out


def _binary(e: Binary) -> tuple[str, int]:
    level = LEVELS.get(e.op)
    if level is None:
        return f"{e.op.value}({_expr(e.a, OR)}, {_expr(e.b, OR)})", ATOM
    # Python groups to the left, but for comparisons, which it chains.
    left = level + 1 if level == COMPARE else level
    return f"{_expr(e.a, left)} {e.op.value} {_expr(e.b, level + 1)}", level


def _unary(e: Unary) -> tuple[str, int]:
    if e.op is UnaryOp.NEG and isinstance(e.a, Const) and _const(e.a)[0][-1] != ")":
        return f"{NEGATE}({_const(e.a)[0]})", ATOM  # `-1` is a literal
    level = UNARY_LEVELS[e.op]
    space = " " if e.op is UnaryOp.NOT else ""
    return f"{e.op.value}{space}{_expr(e.a, level)}", level


def _const(c: Const) -> tuple[str, int]:
    value, t = c.value, c.type
    if isinstance(value, float):
        text = float_text(value, t) if math.isfinite(value) else f'"{value}"'
        plain = t == FLOAT32 and math.isfinite(value)
    else:
        text = repr(value)
        plain = t == (BOOL if isinstance(value, bool) else INT32)
    if not plain:
        return f"{t}({text})", ATOM
    return text, SIGN if text.startswith("-") else ATOM


def float_text(value: float, dtype: DType) -> str:
    """The shortest decimal that rounds to `value` in `dtype`."""
    exact = repr(value)
    if len(exact) <= 8:
        return exact
    for digits in range(1, 17):
        short = repr(float(f"{value:.{digits}g}"))
        if const_value(float(short), dtype) == value:
            return short
    return exact


def _is_plain(array: Array, dtype: DType, access: Elem | Write) -> bool:
    """Whether an access touches one element and says nothing more, so that a subscript says it."""
    return dtype == array.type and not access.hints and not access.align


def _indices(indices: tuple[Expr, ...]) -> str:
    return "[" + (", ".join(_expr(i, OR) for i in indices) or "()") + "]"


def _region(r: Region) -> str:
    if not r.mins or len(r.mins) != len(r.extents):
        return f"{REGION}({r.buffer.name}, {_tuple(r.mins)}, {_tuple(r.extents)})"
    axes = [f"{_expr(m, OR)} : +{_expr(n, SIGN)}" for m, n in zip(r.mins, r.extents, strict=True)]
    return f"{r.buffer.name}[{', '.join(axes)}]"


def _call(e: Call) -> str:
    parts = [_expr(a, OR) for a in e.args]
    if e.params:
        parts.append(f"params={_data(e.params)}")
    if (
        not e.args
        or e.fn not in FUNCTIONS
        or result_dtype(e.fn, [a.dtype for a in e.args]) != e.type
    ):
        parts.append(f"type={e.type}")
    return f"{e.fn}({', '.join(parts)})"
