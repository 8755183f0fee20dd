"""Reading the parts of a statement: expressions, regions, plain data, and the fields of a node.

What enters: Python's syntax tree of the text form, and the names defined so far. What leaves:
scalar expressions and field values of the declared types, or a located error. `ir/read.py` reads
statements with it.
"""

from __future__ import annotations

import ast
import difflib
import enum
import functools
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING
from typing import Any, cast

from tilelang import dtypes
from tilelang.dtypes import DType, const_value
from tilelang.errors import Loc, TileError, error
from tilelang.ir import text as form
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
from tilelang.ir.node import Kind, Node
from tilelang.ir.text import Named
from tilelang.ir.thread import Array, Elem, Slot
from tilelang.ir.tile import (
    Assert,
    Break,
    Continue,
    For,
    If,
    Let,
    Parallel,
    Pipelined,
    Stmt,
    Store,
    While,
)

_BINARY_SYMBOLS: dict[type[ast.AST], BinaryOp] = {
    ast.Add: BinaryOp.ADD,
    ast.Sub: BinaryOp.SUB,
    ast.Mult: BinaryOp.MUL,
    ast.Div: BinaryOp.DIV,
    ast.FloorDiv: BinaryOp.FLOORDIV,
    ast.Mod: BinaryOp.FLOORMOD,
    ast.BitAnd: BinaryOp.BITAND,
    ast.BitOr: BinaryOp.BITOR,
    ast.BitXor: BinaryOp.BITXOR,
    ast.LShift: BinaryOp.SHL,
    ast.RShift: BinaryOp.SHR,
    ast.Eq: BinaryOp.EQ,
    ast.NotEq: BinaryOp.NE,
    ast.Lt: BinaryOp.LT,
    ast.LtE: BinaryOp.LE,
    ast.Gt: BinaryOp.GT,
    ast.GtE: BinaryOp.GE,
    ast.And: BinaryOp.AND,
    ast.Or: BinaryOp.OR,
}
_UNARY_SYMBOLS: dict[type[ast.AST], UnaryOp] = {
    ast.USub: UnaryOp.NEG,
    ast.Not: UnaryOp.NOT,
    ast.Invert: UnaryOp.BITNOT,
}
_BINARY_FUNCTIONS = {op.value: op for op in BinaryOp if op not in form.LEVELS}

# Classes whose text has a syntax of its own; a call of their name means nothing.
_OWN_SYNTAX = (Const, Var, Binary, Unary, Select, Call, Load)
_OWN_STATEMENTS = (For, Parallel, Pipelined, While, If, Let, Store, Assert, Break, Continue)


class ExprReader:
    """The state of one reading: the text, for locations, and the names that are defined at this
    place.
    """

    def __init__(self, text: str, file: str, records: Mapping[str, type]) -> None:
        self.text = text
        self.lines = text.splitlines()
        self.file = file
        self.records = records
        self.names: dict[str, Named] = {}

    # Errors --------------------------------------------------------------------------------------

    def loc(self, at: ast.AST) -> Loc:
        """Where `at` stands in the text; ast counts columns in UTF-8 bytes from 0."""
        line: int = getattr(at, "lineno", 1)
        raw = self.lines[line - 1].encode() if line <= len(self.lines) else b""

        def column(offset: int | None) -> int:
            return len(raw[:offset].decode(errors="replace")) + 1

        last: int | None = getattr(at, "end_lineno", line)
        end = column(getattr(at, "end_col_offset", None)) if last == line else 0
        return Loc(self.file, line, column(getattr(at, "col_offset", 0)), end)

    def fault(self, at: ast.AST, message: str, *, kind: str = "syntax", **facts: str) -> TileError:
        """The error for what stands at `at`."""
        source = ast.get_source_segment(self.text, at) or ""
        facts.setdefault("got", source.split("\n")[0])
        return error(kind, message, self.loc(at), cls=None, **facts)

    # Names ---------------------------------------------------------------------------------------

    def define(self, things: Iterable[Named]) -> None:
        """Make names known from here to the end of the enclosing block."""
        self.names.update((t.name, t) for t in things)

    def lookup(self, at: ast.Name) -> Named:
        """What a name stands for."""
        found = self.names.get(at.id)
        if found is None:
            close = difflib.get_close_matches(at.id, self.names, 1)
            hint = {"help": f"did you mean {close[0]!r}?"} if close else {}
            raise self.fault(at, f"{at.id!r} is not defined here", kind="name", **hint)
        return found

    def dtype(self, at: ast.expr) -> DType:
        """A dtype by its name."""
        found = as_dtype(at.id) if isinstance(at, ast.Name) else None
        if found is None:
            raise self.fault(
                at, "not a dtype", kind="dtype", expected="the name of a dtype, such as float16"
            )
        return found

    def definition(
        self,
        cls: type[Node],
        name: str,
        at: ast.AST,
        given: tuple[list[ast.expr], dict[str, ast.expr]],
    ) -> Any:
        """A buffer, array or tensor map from the arguments of what defines it; takes away the
        arguments that it used.
        """
        args, words = given
        own = form.defining_fields(cls)
        required = [f for f in own if f.default is MISSING]
        if len(args) < len(required):
            lacking = " and ".join(f"a {'dtype' if f.name == 'type' else f.name}" for f in required)
            raise self.fault(
                at,
                f"{name!r} needs {lacking}",
                expected=f"({', '.join(f.name for f in required)}, ...)",
            )
        facts = {f.name: self.field(args.pop(0), cls, f.name, f.metadata["kind"]) for f in required}
        facts |= {
            f.name: self.field(words.pop(f.name), cls, f.name, f.metadata["kind"])
            for f in own
            if f.default is not MISSING and f.name in words
        }
        return cls(name=name, loc=self.loc(at), **facts)

    # Fields --------------------------------------------------------------------------------------

    def values(
        self, cls: type[Node], call: ast.Call, targets: list[ast.expr], dtype: DType | None
    ) -> tuple[dict[str, Any], list[Named]]:
        """The fields of a `cls` that is written as a call, and what it defines; bodies are left
        out.
        """
        args, words = self.arguments(call)
        values: dict[str, Any] = {}
        defined: list[Named] = []
        var_dtypes = self.data(words.pop("var_dtypes")) if "var_dtypes" in words else None
        groups = list(targets)
        for f in cls.fields():
            kind = f.metadata["kind"]
            if kind is Kind.BODY:
                continue
            if kind is Kind.BINDS:
                if groups:
                    hint = field_types(cls)[f.name]
                    if hint in form.DEFINED:
                        name = self.target(groups.pop(0))
                        bound: Any = self.definition(hint, name, call, (args, words))
                    else:
                        bound = self.new_vars(groups.pop(0), hint, dtype, var_dtypes)
                    values[f.name] = bound
                    defined += bound if isinstance(bound, tuple) else [bound]
                elif f.default is MISSING:
                    raise self.fault(
                        call,
                        f"{ast.unparse(call.func)!r} defines a name",
                        expected=f"{f.name} = ...",
                    )
            elif f.name in words:
                values[f.name] = self.field(words.pop(f.name), cls, f.name, kind)
            elif f.default is MISSING:
                if not args:
                    raise self.fault(
                        call,
                        f"{ast.unparse(call.func)!r} lacks {f.name!r}",
                        expected=signature(cls),
                    )
                values[f.name] = self.field(args.pop(0), cls, f.name, kind)
        self.leftover(cls, call, [*args, *groups], words, values)
        return values, defined

    def leftover(
        self,
        cls: type[Node],
        call: ast.Call,
        args: list[ast.expr],
        words: dict[str, ast.expr],
        values: dict[str, Any],
    ) -> None:
        """Keywords that are no field are hints, where the class has hints."""
        name = ast.unparse(call.func)
        if args:
            raise self.fault(
                args[0], f"{name!r} has too many operands or targets", expected=signature(cls)
            )
        if words and any(f.name == "hints" for f in cls.fields()) and "hints" not in values:
            values["hints"] = tuple((word, self.data(source)) for word, source in words.items())
            words = {}
        self.no_more(words, name, [f.name for f in cls.fields()])

    def no_more(self, words: Mapping[str, ast.expr], name: str, known: Iterable[str]) -> None:
        """Refuse keywords that nothing used."""
        for word, source in words.items():
            raise self.fault(source, f"{name!r} has no {word!r}", expected=", ".join(known))

    def arguments(self, call: ast.Call) -> tuple[list[ast.expr], dict[str, ast.expr]]:
        """Positional and keyword arguments of a call."""
        words: dict[str, ast.expr] = {}
        for k in call.keywords:
            if k.arg is None or k.arg in words:
                raise self.fault(k.value, "`**` or a repeated keyword")
            words[k.arg] = k.value
        return list(call.args), words

    def target(self, at: ast.expr) -> str:
        """A name that is defined here."""
        if not isinstance(at, ast.Name):
            raise self.fault(at, "not a name", expected="a name")
        return at.id

    def new_vars(
        self, at: ast.expr, hint: Any, dtype: DType | None, var_dtypes: Any
    ) -> Var | tuple[Var, ...]:
        """The variables of one field: one name, or a tuple of names."""
        many = isinstance(at, ast.Tuple)
        names = [self.target(e) for e in at.elts] if many else [self.target(at)]
        kinds = [dtype or INT32] * len(names) if var_dtypes is None else var_dtypes
        if not isinstance(kinds, (tuple, list)) or len(cast("list[Any]", kinds)) != len(names):
            raise self.fault(at, "`var_dtypes` has one dtype for each name")
        made = tuple(Var(n, t) for n, t in zip(names, cast("list[Any]", kinds), strict=True))
        value = made if many else made[0]
        if not fits(value, hint) or not all(isinstance(v.type, DType) for v in made):
            raise self.fault(
                at, "the names defined here do not fit the operation", expected=_shown(hint)
            )
        return value

    def field(self, source: ast.expr, cls: type[Node], name: str, kind: Kind) -> Any:
        """The value of one field, which must have the declared type."""
        hint = field_types(cls)[name]
        value = self.data(source) if kind is Kind.ATTR else self.operand(source)
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            members = [m.value for m in hint]
            if value not in members:
                raise self.fault(
                    source,
                    f"no such {name!r}",
                    kind="value",
                    expected=", ".join(map(repr, members)),
                )
            return hint(value)
        if not fits(value, hint):
            raise self.fault(
                source, f"the wrong kind of {name!r}", kind="value", expected=_shown(hint)
            )
        return value

    # Plain data ----------------------------------------------------------------------------------

    def data(self, at: ast.expr) -> Any:
        """Plain data: a literal, dtype, tuple, dictionary (as pairs), enum member or record."""
        match at:
            case ast.Constant(value=None | bool() | int() | float() | str()):
                out = at.value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                out = -value
            case ast.Tuple():
                out = tuple(self.data(e) for e in at.elts)
            case ast.Dict():
                pairs = zip(at.keys, at.values, strict=True)
                out = tuple((self.data(k or v), self.data(v)) for k, v in pairs)
            case ast.Name():
                out = self.dtype(at)
            case ast.Call(
                func=ast.Name("float"), args=[ast.Constant(value="inf" | "-inf" | "nan" as word)]
            ):
                out = float(word)
            case ast.Call(func=ast.Name(name), args=[]) if name in self.records:
                _, words = self.arguments(at)
                out = self.record(at, self.records[name], words)
            case ast.Attribute(value=ast.Name(name)) if issubclass(
                self.records.get(name, int), enum.Enum
            ):
                members = cast("type[enum.Enum]", self.records[name]).__members__
                if at.attr not in members:
                    raise self.fault(
                        at,
                        f"{name} has no member {at.attr!r}",
                        kind="value",
                        expected=", ".join(members),
                    )
                out = members[at.attr]
            case _:
                raise self.fault(
                    at, "not plain data", expected="a literal, a dtype or a tuple of them"
                )
        return out

    def record(self, at: ast.Call, cls: type, words: Mapping[str, ast.expr]) -> Any:
        """A record of a class that the caller of the reader named."""
        try:
            return cls(**{word: self.data(source) for word, source in words.items()})
        except TileError as e:
            raise e.with_loc(self.loc(at)) from None
        except (TypeError, ValueError) as e:
            raise self.fault(at, f"not a {cls.__name__}: {e}", kind="value") from None

    # Expressions ---------------------------------------------------------------------------------

    def operand(self, at: ast.expr) -> Any:
        """A scalar, region, buffer, None, or a tuple of them."""
        match at:
            case ast.Constant(value=None):
                return None
            case ast.Tuple():
                return tuple(self.operand(e) for e in at.elts)
            case ast.Name():
                return self.lookup(at)
            case ast.Subscript() if any(isinstance(i, ast.Slice) for i in _index_list(at)):
                return self.region(at)
            case ast.Call(func=ast.Name(form.REGION)):
                values, _ = self.values(Region, at, [], None)
                return Region(**values, loc=self.loc(at))
            case _:
                return self.expr(at)

    def region(self, at: ast.Subscript) -> Region | Slot:
        """`A[min : +extent, ...]`, of an array `A[index : +count]`."""
        mins: list[Expr] = []
        extents: list[Expr] = []
        for axis in _index_list(at):
            match axis:
                case ast.Slice(ast.expr() as low, ast.UnaryOp(ast.UAdd(), extent), None):
                    mins.append(self.expr(low))
                    extents.append(self.expr(extent))
                case _:
                    raise self.fault(axis, "not an axis of a region", expected="min : +extent")
        named = self.indexed(at)
        if isinstance(named, Buffer):
            return Region(named, tuple(mins), tuple(extents), loc=self.loc(at))
        counts = [e.value for e in extents if isinstance(e, Const)]
        if len(counts) != 1 or len(mins) != 1 or not isinstance(counts[0], int):
            raise self.fault(at, "not elements of an array", expected="A[index : +4]")
        return Slot(named, mins[0], counts[0], loc=self.loc(at))

    def load(self, at: ast.Subscript) -> Load | Elem:
        """`A[i, j]`, of an array `A[i]`."""
        named, indices = self.indexed(at), tuple(self.expr(i) for i in _index_list(at))
        if isinstance(named, Buffer):
            return Load(named, indices, loc=self.loc(at))
        if len(indices) != 1:
            raise self.fault(at, "an array has one index", expected=f"{named.name}[i]")
        return Elem(named, indices[0], named.type, loc=self.loc(at))

    def indexed(self, at: ast.Subscript) -> Buffer | Array:
        """The buffer or array that a subscript names."""
        found = self.lookup(at.value) if isinstance(at.value, ast.Name) else None
        if not isinstance(found, (Buffer, Array)):
            raise self.fault(at.value, "not a buffer", expected="the name of a buffer")
        return found

    def expr(self, at: ast.expr) -> Expr:
        """A scalar expression."""
        match at:
            case ast.Constant():
                return self.constant(at, at.value)
            case ast.UnaryOp(
                op=ast.USub(), operand=ast.Constant(value=int() | float() as value)
            ) if not isinstance(value, bool):
                return self.constant(at, -value)
            case ast.Name():
                found = self.lookup(at)
                if not isinstance(found, Var):
                    raise self.fault(
                        at,
                        f"{at.id!r} is a {form.snake(type(found).__name__)}, not a scalar",
                        kind="value",
                        help=f"write {at.id}[...]",
                    )
                return found
            case ast.Subscript():
                return self.load(at)
            case ast.Call(func=ast.Name(name)):
                return self.call(at, name)
            case _:
                return self.operator(at)

    def operator(self, at: ast.expr) -> Expr:
        """An operator with a symbol."""
        match at:
            case ast.BinOp() if type(at.op) in _BINARY_SYMBOLS:
                return Binary(_BINARY_SYMBOLS[type(at.op)], self.expr(at.left), self.expr(at.right))
            case ast.UnaryOp() if type(at.op) in _UNARY_SYMBOLS:
                return Unary(_UNARY_SYMBOLS[type(at.op)], self.expr(at.operand))
            case ast.Compare(ops=[op]) if type(op) in _BINARY_SYMBOLS:
                return Binary(
                    _BINARY_SYMBOLS[type(op)], self.expr(at.left), self.expr(at.comparators[0])
                )
            case ast.Compare():
                raise self.fault(
                    at,
                    "a chain of comparisons",
                    help="put one comparison in parentheses, or use `and`",
                )
            case ast.BoolOp():
                parts = [self.expr(v) for v in at.values]
                op = _BINARY_SYMBOLS[type(at.op)]
                return functools.reduce(lambda a, b: Binary(op, a, b), parts)
            case _:
                raise self.fault(at, "not an expression of the text form")

    def constant(self, at: ast.expr, value: Any) -> Const:
        """A literal without a dtype: bool, int32 or float32."""
        match value:
            case bool():
                return Const(value, BOOL)
            case int():
                return self.literal(at, value, INT32)
            case float():
                return self.literal(at, value, form.FLOAT32)
            case _:
                raise self.fault(at, "not a scalar", expected="a number, True or False")

    def literal(self, at: ast.expr, value: float, dtype: DType) -> Const:
        """A literal of `dtype`, rounded to it; an integer must be in range."""
        made = const_value(value, dtype)
        if isinstance(value, int) and made != value:
            raise self.fault(at, f"outside the range of {dtype}", kind="value")
        if isinstance(value, float) and isinstance(made, int):
            raise self.fault(at, f"a fraction for the integer type {dtype}", kind="value")
        return Const(made, dtype)

    def typed_literal(self, at: ast.Call, dtype: DType) -> Const:
        """`float16(0.5)`, `float32("inf")`, `int64(3)`."""
        match at:
            case ast.Call(args=[ast.Constant(value="inf" | "-inf" | "nan" as word)], keywords=[]):
                return self.literal(at, float(word), dtype)
            case ast.Call(args=[source], keywords=[]):
                value = self.data(source)
                if isinstance(value, (int, float)):
                    return self.literal(at, value, dtype)
            case _:
                pass
        raise self.fault(
            at,
            "not a literal",
            expected=f"{dtype}(number)",
            help="a conversion is `cast(x, dtype)`",
        )

    def call(self, at: ast.Call, name: str) -> Expr:
        """An operator spelled as a function, a typed literal, or a pure function."""
        dtype = as_dtype(name)
        if dtype is not None:
            return self.typed_literal(at, dtype)
        if name in _BINARY_FUNCTIONS:
            a, b = self.scalars(at, 2)
            return Binary(_BINARY_FUNCTIONS[name], a, b)
        if name == form.NEGATE:
            return Unary(UnaryOp.NEG, *self.scalars(at, 1))
        if name in (form.SELECT, form.LAZY_SELECT):
            cond, t, f = self.scalars(at, 3)
            return Select(cond, t, f, lazy=name == form.LAZY_SELECT)
        return self.pure_call(at, name)

    def pure_call(self, at: ast.Call, name: str) -> Expr:
        """An expression written as a call of its class, or a function of the table.

        The table says the result dtype of its functions, unless the text does.
        """
        cls = expression_classes().get(name)
        if cls is not None:
            values, _ = self.values(cls, at, [], None)
            return cls(**values)
        if name not in FUNCTIONS:
            raise self.unknown(at, [*FUNCTIONS, *_BINARY_FUNCTIONS, *expression_classes()])
        sources, words = self.arguments(at)
        args = tuple(self.expr(a) for a in sources)
        given = self.dtype(words.pop("type")) if "type" in words else None
        params = (
            self.field(words.pop("params"), Call, "params", Kind.ATTR) if "params" in words else ()
        )
        self.no_more(words, name, ("params", "type"))
        if given is None and not args:
            raise self.fault(at, f"{name!r} without operands needs `type=`")
        return Call(name, args, given or result_dtype(name, [a.dtype for a in args]), params=params)

    def scalars(self, at: ast.Call, count: int) -> list[Expr]:
        """Exactly `count` scalar arguments."""
        if len(at.args) != count or at.keywords:
            raise self.fault(at, f"{ast.unparse(at.func)!r} takes {count} operands")
        return [self.expr(a) for a in at.args]

    def unknown(self, at: ast.Call, known: Iterable[str]) -> TileError:
        """The error for a name that is no operation."""
        name = ast.unparse(at.func)
        close = difflib.get_close_matches(name, known, 1)
        hint = {"help": f"did you mean {close[0]!r}?"} if close else {}
        return self.fault(at, f"no operation {name!r}", kind="name", **hint)


# What the declarations say -----------------------------------------------------------------------


@functools.cache
def statement_classes() -> dict[str, type[Stmt]]:
    """The statements that are written as a call, by name."""
    known = cast("dict[str, type[Stmt]]", form.node_classes(Stmt))
    return {
        n: c for n, c in known.items() if c not in _OWN_STATEMENTS and n not in ("stmt", "tile_op")
    }


@functools.cache
def expression_classes() -> dict[str, type[Expr]]:
    """The expressions that are written as a call of their class, by name."""
    known = cast("dict[str, type[Expr]]", form.node_classes(Expr))
    return {n: c for n, c in known.items() if c not in _OWN_SYNTAX and n != "expr"}


@functools.cache
def field_types(cls: type[Node]) -> dict[str, Any]:
    """The declared types of the fields of a node class."""
    return typing.get_type_hints(cls)


@functools.cache
def as_dtype(name: str) -> DType | None:
    """The dtype of exactly this name, None if there is none (an alias is no name in the text
    form).
    """
    try:
        found = dtypes.dtype(name)
    except ValueError:
        return None
    return found if str(found) == name else None


def fits(value: Any, hint: Any) -> bool:
    """Whether a value has a declared type; a bool is not an int here."""
    origin = typing.get_origin(hint)
    args = typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (types.UnionType, typing.Union):
        return any(fits(value, a) for a in args)
    if origin is tuple:
        return isinstance(value, tuple) and _tuple_fits(cast("tuple[Any, ...]", value), args)
    if hint in (int, float):
        return type(value) is hint
    return value is None if hint in (None, type(None)) else isinstance(value, hint)


def _tuple_fits(items: tuple[Any, ...], hints: tuple[Any, ...]) -> bool:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return all(fits(i, hints[0]) for i in items)
    return len(items) == len(hints) and all(map(fits, items, hints))


def _shown(hint: Any) -> str:
    return (
        hint.__name__
        if isinstance(hint, type) and not typing.get_args(hint)
        else str(hint).replace("typing.", "")
    )


def signature(cls: type[Node]) -> str:
    """The fields of an operation, as its text has them."""
    return f"{form.snake(cls.__name__)}({', '.join(_field_shown(cls))})"


def _field_shown(cls: type[Node]) -> Iterator[str]:
    for f in cls.fields():
        if f.metadata["kind"] in (Kind.OPERAND, Kind.ATTR):
            yield f.name if f.default is MISSING else f"{f.name}={f.default!r}"


def is_call(at: ast.expr | None, name: str) -> bool:
    """Whether `at` is a call of `name`."""
    return isinstance(at, ast.Call) and isinstance(at.func, ast.Name) and at.func.id == name


def target_parts(at: ast.expr | None) -> list[ast.expr]:
    """The parts of an assignment target."""
    return list(at.elts) if isinstance(at, ast.Tuple) else [at] if at is not None else []


def _index_list(at: ast.Subscript) -> list[ast.expr]:
    return list(at.slice.elts) if isinstance(at.slice, ast.Tuple) else [at.slice]
