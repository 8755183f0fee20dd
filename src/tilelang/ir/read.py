"""The reader of the text form: text goes in, an equal `Function` comes out, or a located error that
says why not.

It is the inverse of `ir/text.py`, and like it derives the form of an operation from the declared
fields and their types. It checks the form only (names, number and kind of operands); what a program
must satisfy is in `ir/verify.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, cast

from tilelang.dtypes import DType
from tilelang.errors import Loc, error
from tilelang.ir.expr import (
    Buffer,
    Var,
)
from tilelang.ir.node import Kind, Node
from tilelang.ir.read_expr import ExprReader, is_call, statement_classes, target_parts
from tilelang.ir.text import Named
from tilelang.ir.thread import Argument, Array, Elem, Program, Write
from tilelang.ir.tile import (
    Assert,
    Block,
    Break,
    Continue,
    For,
    Function,
    If,
    Let,
    LoopKind,
    Parallel,
    Param,
    Pipelined,
    Stmt,
    Store,
    While,
)

P = TypeVar("P", Param, Argument)

_LOOPS: dict[str, LoopKind] = {kind.value: kind for kind in LoopKind}


def read_function(text: str, *, file: str = "<ir>", records: Iterable[type] = ()) -> Function:
    """Read what `print_function` prints.

    `file` names the text in locations. `records` are the classes of records (and enums) that plain
    data may hold, such as layouts. Raises a `TileError` with the line and column for text that is
    not of this form.
    """
    return _Reader(text, file, {r.__name__: r for r in records}).function()


def read_program(text: str, *, file: str = "<ir>", records: Iterable[type] = ()) -> Program:
    """Read what `print_program` prints; the arguments and errors are those of `read_function`."""
    return _Reader(text, file, {r.__name__: r for r in records}).program()


class _Reader(ExprReader):
    """Reads statements and functions."""

    # Functions -----------------------------------------------------------------------------------

    def function(self) -> Function:
        """The one function of the text."""
        d, dynamic, values = self.header("function", Function)
        params = self.params(d, Param, "Tensor")
        body = self.block(d.body, ())
        return Function(
            name=d.name, params=params, dynamic=dynamic, body=body, loc=self.loc(d), **values
        )

    def program(self) -> Program:
        """The one program of the text."""
        d, dynamic, values = self.header("program", Program)
        params = self.params(d, Argument, "Global")
        body = self.block(d.body, ())
        return Program(
            name=d.name, params=params, dynamic=dynamic, body=body, loc=self.loc(d), **values
        )

    def header(
        self, word: str, cls: type[Node]
    ) -> tuple[ast.FunctionDef, tuple[Var, ...], dict[str, Any]]:
        """The definition under `@word(...)`, the sizes that it names, and its other facts."""
        tree = self.parse()
        match tree.body:
            case [
                ast.FunctionDef(decorator_list=[ast.Call(func=ast.Name(name)) as facts]) as d
            ] if name == word:
                pass
            case _:
                at = tree.body[0] if tree.body else tree
                raise self.fault(
                    at,
                    f"the text is not one {word}",
                    expected=f"@{word}(...) and one `def`",
                    got="",
                )
        if facts.args:
            raise self.fault(facts.args[0], f"`{word}` takes keywords only")
        given = {k.arg or "": k.value for k in facts.keywords}
        dynamic = self.dynamic(given.pop("dynamic")) if "dynamic" in given else ()
        known = {
            f.name: f for f in cls.fields() if f.metadata["kind"] is Kind.ATTR and f.name != "name"
        }
        values: dict[str, Any] = {}
        for name, source in given.items():
            if name not in known:
                raise self.fault(
                    source, f"`{word}` has no fact {name!r}", expected=", ".join(known)
                )
            values[name] = self.field(source, cls, name, Kind.ATTR)
        return d, dynamic, values

    def parse(self) -> ast.Module:
        """Python's parse of the text."""
        try:
            return ast.parse(self.text)
        except SyntaxError as e:
            loc = Loc(self.file, e.lineno or 1, e.offset or 1)
            raise error(
                "syntax", f"not Python syntax: {e.msg}", loc, got=(e.text or "").strip()
            ) from None
        except (ValueError, RecursionError, MemoryError) as e:
            raise error("syntax", f"Python cannot parse the text: {e}", Loc(self.file, 1)) from None

    def dynamic(self, source: ast.expr) -> tuple[Var, ...]:
        """`{n: int32}` as variables, which are defined from here on."""
        if not isinstance(source, ast.Dict):
            raise self.fault(
                source, "`dynamic` is a dictionary of names and dtypes", expected="{n: int32}"
            )
        out: list[Var] = []
        for key, value in zip(source.keys, source.values, strict=True):
            if not isinstance(key, ast.Name):
                raise self.fault(key or value, "not a name", expected="a name")
            out.append(Var(key.id, self.dtype(value)))
        self.define(out)
        return tuple(out)

    def params(self, d: ast.FunctionDef, cls: type[P], word: str) -> tuple[P, ...]:
        """The parameters, tensors being annotated with `word`; scalars are defined first, since a
        shape may name one that comes later.
        """
        a = d.args
        others = [
            *a.posonlyargs,
            *a.kwonlyargs,
            *a.defaults,
            *(x for x in (a.vararg, a.kwarg) if x),
        ]
        if others:
            raise self.fault(
                others[0],
                "parameters are plain names",
                expected=f"name: dtype or name: {word}(...)",
            )
        found: dict[str, P] = {}
        for arg in a.args:
            if not is_call(arg.annotation, word):
                found[arg.arg] = self.scalar(arg, cls)
        self.define(p.var for p in found.values() if p.var is not None)
        for arg in a.args:
            if is_call(arg.annotation, word):
                found[arg.arg] = self.tensor(arg, cls, cast(ast.Call, arg.annotation))
        for p in found.values():
            thing = p.buffer if isinstance(p, Param) else p.array
            self.define([] if thing is None else [thing])
        return tuple(found[arg.arg] for arg in a.args)

    def scalar(self, arg: ast.arg, cls: type[P]) -> P:
        """`s: float32`, or `s: Scalar(float32, name=..., pointer=...)`."""
        note = arg.annotation
        if note is None:
            return cls(arg.arg, loc=self.loc(arg))
        if not is_call(note, "Scalar"):
            return cls(arg.arg, var=Var(arg.arg, self.dtype(note)), loc=self.loc(arg))
        args, words = self.arguments(cast(ast.Call, note))
        if len(args) != 1:
            raise self.fault(note, "`Scalar` takes one dtype", expected="Scalar(float32, ...)")
        name, pointer = self.param_facts(arg, words)
        self.no_more(words, "Scalar", ("name", "pointer"))
        return cls(arg.arg, var=Var(name, self.dtype(args[0])), pointer=pointer, loc=self.loc(arg))

    def tensor(self, arg: ast.arg, cls: type[P], note: ast.Call) -> P:
        """`A: Tensor((n, m), float16, scope=..., strides=..., name=..., pointer=...)`, or
        `A: Global((n, m), size, float16, ...)` of a program.
        """
        args, words = self.arguments(note)
        name, pointer = self.param_facts(arg, words)
        facts: dict[str, Any] = {}
        if cls is Argument:
            facts = {
                f: self.field(source, Argument, f, Kind.OPERAND)
                for f, source in (
                    ("shape", args.pop(0) if args else None),
                    ("strides", words.pop("strides", None)),
                )
                if source is not None
            }
        field, kind = ("buffer", Buffer) if cls is Param else ("array", Array)
        facts[field] = self.definition(kind, name, note, (args, words))
        if args:
            raise self.fault(args[0], f"{ast.unparse(note.func)!r} has too many operands")
        known = ["name", "pointer", "strides", *(f.name for f in kind.fields())]
        self.no_more(words, ast.unparse(note.func), known)
        return cls(arg.arg, pointer=pointer, loc=self.loc(arg), **facts)

    def param_facts(self, arg: ast.arg, words: dict[str, ast.expr]) -> tuple[str, bool]:
        """The name that the body uses, and whether the parameter is a pointer."""
        name = self.data(words.pop("name")) if "name" in words else arg.arg
        pointer = (
            self.field(words.pop("pointer"), Param, "pointer", Kind.ATTR)
            if "pointer" in words
            else False
        )
        if not isinstance(name, str):
            raise self.fault(arg, "the name of a parameter is a string")
        return name, pointer

    # Statements ----------------------------------------------------------------------------------

    def block(self, body: Sequence[ast.stmt], defined: Iterable[Named]) -> Block:
        """The statements of a block, in which `defined` are known."""
        outer = dict(self.names)
        self.define(defined)
        if len(body) == 1 and isinstance(body[0], ast.Pass):
            out: Block = ()
        else:
            out = tuple(self.stmt(s) for s in body)
        self.names = outer
        return out

    def stmt(self, s: ast.stmt) -> Stmt:
        """One statement."""
        match s:
            case ast.AnnAssign() | ast.Assign() | ast.Expr():
                out = self.simple(s)
            case ast.For():
                out = self.loop(s)
            case ast.With():
                out = self.with_(s)
            case ast.If():
                cond, then = self.expr(s.test), self.block(s.body, ())
                out = If(cond, then, orelse=self.block(s.orelse, ()), loc=self.loc(s))
            case ast.While(orelse=[]):
                out = While(self.expr(s.test), self.block(s.body, ()), loc=self.loc(s))
            case ast.Assert():
                out = self.assertion(s)
            case ast.Break():
                out = Break(loc=self.loc(s))
            case ast.Continue():
                out = Continue(loc=self.loc(s))
            case _:
                raise self.fault(s, f"the text form has no {type(s).__name__}")
        return out

    def assertion(self, s: ast.Assert) -> Assert:
        """`assert cond, "message"`, or `assert cond, kind("message")` for an error of a kind."""
        match s.msg:
            case None:
                kind, message = "", ""
            case ast.Call(func=ast.Name(id=kind), args=[text], keywords=[]):
                message = self.field(text, Assert, "message", Kind.ATTR)
            case text:
                kind, message = "", self.field(text, Assert, "message", Kind.ATTR)
        return Assert(self.expr(s.test), message=message, kind=kind, loc=self.loc(s))

    def simple(self, s: ast.AnnAssign | ast.Assign | ast.Expr) -> Stmt:
        """An assignment or a call."""
        match s:
            case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value):
                if isinstance(value, ast.Call) and self.statement_class(value) is not None:
                    return self.operation(s, value, [target], self.dtype(s.annotation))
                var = Var(target.id, self.dtype(s.annotation))
                made = Let(var, self.expr(value), loc=self.loc(s))
                self.define([var])
                return made
            case ast.Assign(targets=[ast.Subscript() as target]):
                at, value = self.load(target), self.expr(s.value)
                if isinstance(at, Elem):
                    return Write(at.array, at.index, value, loc=self.loc(s))
                return Store(at.buffer, at.indices, value, loc=self.loc(s))
            case ast.Assign(targets=[ast.Name() | ast.Tuple() as target], value=ast.Call() as call):
                return self.operation(s, call, [target], None)
            case ast.Expr(value=ast.Call() as call):
                return self.operation(s, call, [], None)
            case _:
                raise self.fault(
                    s, "not a statement of the text form", expected="an assignment or an operation"
                )

    def statement_class(self, call: ast.Call) -> type[Stmt] | None:
        """The class of the operation that a call names."""
        return statement_classes().get(call.func.id) if isinstance(call.func, ast.Name) else None

    def operation(
        self, s: ast.stmt, call: ast.Call, targets: list[ast.expr], dtype: DType | None
    ) -> Stmt:
        """A statement written as a call, with the names that it defines."""
        cls = self.statement_class(call)
        if cls is None:
            raise self.unknown(call, statement_classes())
        if any(f.metadata["kind"] is Kind.BODY for f in cls.fields()):
            raise self.fault(call, f"{ast.unparse(call.func)!r} has a body", expected="with ...:")
        if targets and sum(f.metadata["kind"] is Kind.BINDS for f in cls.fields()) > 1:
            targets = target_parts(targets[0])
        values, defined = self.values(cls, call, targets, dtype)
        self.define(defined)
        return cls(**values, loc=self.loc(s))

    def with_(self, s: ast.With) -> Stmt:
        """An operation that has a body."""
        call = s.items[0].context_expr
        cls = self.statement_class(call) if isinstance(call, ast.Call) else None
        body = [f.name for f in cls.fields() if f.metadata["kind"] is Kind.BODY] if cls else []
        if len(s.items) != 1 or cls is None or not body or not isinstance(call, ast.Call):
            raise self.fault(
                call,
                "not an operation with a body",
                expected="with launch(...) as ((bx,), (tx, ty, tz)):",
            )
        names = s.items[0].optional_vars
        targets = [] if names is None else [names]
        if sum(f.metadata["kind"] is Kind.BINDS for f in cls.fields()) > 1:
            targets = target_parts(names)
        values, defined = self.values(cls, call, targets, None)
        values[body[0]] = self.block(s.body, defined)
        return cls(**values, loc=self.loc(s))

    def loop(self, s: ast.For) -> Stmt:
        """A loop: serial, unroll, vectorized, parallel or pipelined."""
        call = s.iter
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or s.orelse:
            raise self.fault(
                s.iter, "not a loop of the text form", expected="for i in serial(0, n):"
            )
        word = call.func.id
        if word == "parallel":
            packed = ast.copy_location(ast.Tuple(call.args, ast.Load()), call)
            call = ast.copy_location(ast.Call(call.func, [packed], call.keywords), call)
            targets = (
                s.target if isinstance(s.target, ast.Tuple) else ast.Tuple([s.target], ast.Store())
            )
            cls: type[Stmt] = Parallel
            values, defined = self.values(cls, call, [targets], None)
        elif word == "pipelined":
            cls = Pipelined
            values, defined = self.values(cls, call, [s.target], None)
        elif word in _LOOPS:
            cls = For
            values, defined = self.values(cls, call, [s.target], None)
            values["kind"] = _LOOPS[word]
        else:
            raise self.unknown(call, [*_LOOPS, "parallel", "pipelined"])
        return cls(**values, body=self.block(s.body, defined), loc=self.loc(s))
