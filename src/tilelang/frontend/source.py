"""From a Python function to its rewritten form: source text, closure values, compiled code."""

from __future__ import annotations
import __future__

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, cast

from tilelang.errors import Loc, error
from tilelang.frontend.names import bound_in_control
from tilelang.frontend.rewrite import LOCALS, TOO_DEEP, TRACER, Rewriter

_FACTORY, _INNER = "__tilewright_factory", "__tilewright_function"
_ANNOTATIONS = __future__.annotations.compiler_flag


@dataclass(frozen=True)
class Rewritten:
    """A rewritten function: code of a factory for the tracer and the captured names, and places.

    `attributes` are the attribute names it uses, `declared` the names it declares without a value,
    `parameters` the places of its parameters.
    """

    name: str
    code: CodeType
    captured: tuple[str, ...]
    locs: tuple[Loc, ...]
    loc: Loc
    attributes: frozenset[str]
    declared: frozenset[str]
    parameters: Mapping[str, Loc]

    def place(self, parameter: str) -> Loc:
        """Where a parameter is written."""
        return self.parameters.get(parameter, self.loc)


_KEPT = 1024
_rewritten: dict[tuple[int, bool], tuple[CodeType, Rewritten]] = {}
# By identity: equal code may have another text, since annotations leave no trace in it.


def rewrite(fn: Callable[..., Any], *, attributes: bool = False) -> Rewritten:
    """Read the source of `fn` and rewrite it; an error where Python cannot give its source.

    A function that is defined anew, as in each call of a function that makes kernels, has the very
    code that it had before, and is not read again.
    """
    code = getattr(fn, "__code__", None)
    if code is None:
        return _read(fn, attributes=attributes)
    key = (id(code), attributes)
    found = _rewritten.get(key)  # holds the code, so that no other one gets its identity
    if found is None:
        if len(_rewritten) >= _KEPT:
            _rewritten.clear()
        found = _rewritten[key] = (code, _read(fn, attributes=attributes))
    return found[1]


def _read(fn: Callable[..., Any], *, attributes: bool) -> Rewritten:
    name = getattr(fn, "__name__", "kernel")
    try:
        lines, first = inspect.getsourcelines(fn)
        file = inspect.getsourcefile(fn) or "<unknown>"
    except (OSError, TypeError) as exc:
        raise error(
            "syntax",
            f"the source of {name} cannot be read: {exc}",
            help="define the kernel in a file (not with exec or in a bare interpreter)",
        ) from None
    node = _parsed("".join(lines), first)
    if not isinstance(node, ast.FunctionDef):
        raise error(
            "syntax",
            f"{name} is not defined with `def`",
            Loc(file, first),
            help="use a `def` statement",
        )
    rewriter = Rewriter(file, name, attributes, bound_in_control(node.body))
    loc = rewriter.loc(node)
    used = frozenset(n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute))
    declared = frozenset(
        n.target.id
        for n in ast.walk(node)
        if isinstance(n, ast.AnnAssign) and n.value is None and isinstance(n.target, ast.Name)
    )
    parameters = {a.arg: rewriter.loc(a) for a in ast.walk(node.args) if isinstance(a, ast.arg)}
    node.decorator_list = []
    node.returns = None
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    node.args.defaults = [ast.Constant(None) for _ in node.args.defaults]
    node.args.kw_defaults = [
        None if d is None else ast.Constant(None) for d in node.args.kw_defaults
    ]
    node.body = rewriter.block(node.body)
    author = cast("CodeType", getattr(fn, "__code__", None) or compile("", file, "exec"))
    captured = author.co_freevars
    flags = author.co_flags & _ANNOTATIONS  # whether the author's file postpones annotations
    try:
        code = compile(_factory(node, captured), file, "exec", flags, dont_inherit=True)
    except RecursionError:
        rewriter.refuse(node, *TOO_DEEP)
    return Rewritten(name, code, captured, tuple(rewriter.locs), loc, used, declared, parameters)


def _parsed(text: str, first: int) -> ast.stmt:
    """The statement that `text` holds; it begins at line `first` of its file, maybe indented."""
    indented = text[:1].isspace()
    tree = ast.parse(f"if True:\n{text}" if indented else text)
    ast.increment_lineno(tree, first - (2 if indented else 1))
    outer = tree.body[0]
    return outer.body[0] if indented and isinstance(outer, ast.If) else outer


def _factory(node: ast.FunctionDef, captured: tuple[str, ...]) -> ast.Module:
    """A module with a function of the tracer and the captured names that gives the rewritten one.

    The rewritten one takes another name: its own may be captured, as in a macro that calls itself.
    """
    node.name = _INNER
    params = [ast.arg(TRACER), ast.arg(LOCALS), *(ast.arg(c) for c in captured)]
    factory = ast.FunctionDef(
        _FACTORY,
        ast.arguments([], params, None, [], [], None, []),
        [node, ast.Return(ast.Name(node.name, ast.Load()))],
        [],
    )
    module = ast.Module([factory], [])
    ast.copy_location(factory, node)
    return ast.fix_missing_locations(module)


def instantiate(rewritten: Rewritten, fn: FunctionType, tracer: Any) -> Callable[..., Any]:
    """The rewritten function with `fn`'s globals and the values its closure has now."""
    scope: dict[str, Any] = {}
    exec(rewritten.code, fn.__globals__, scope)
    values = dict(closure_values(fn))
    missing = [name for name in rewritten.captured if name not in values]
    if missing:
        raise error(
            "name",
            f"{missing[0]} is used in {rewritten.name} before it has a value",
            rewritten.loc,
            help="define it before the kernel",
        )
    captured = (values[name] for name in rewritten.captured)
    made: FunctionType = scope[_FACTORY](tracer, locals, *captured)
    made.__code__ = made.__code__.replace(co_name=rewritten.name)  # for tracebacks
    return made


def closure_values(fn: FunctionType) -> dict[str, Any]:
    """The captured names of `fn` that have a value, with their values."""
    out: dict[str, Any] = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            out[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return out
