"""From a Python function to its rewritten form: source text, closure values, compiled code."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from tilelang.errors import Loc, error
from tilelang.frontend.rewrite import TRACER, Rewriter

_FACTORY = "__tilewright_factory"


@dataclass(frozen=True)
class Rewritten:
    """A rewritten function: code of a factory that takes the tracer and the captured names, and the table of places."""

    name: str
    code: CodeType
    captured: tuple[str, ...]
    locs: tuple[Loc, ...]
    loc: Loc
    attributes: frozenset[str]
    declared: frozenset[str]


def rewrite(fn: Callable[..., Any], *, attributes: bool = False) -> Rewritten:
    """Read the source of `fn` and rewrite it; an error where Python cannot give its source."""
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
    text = textwrap.dedent("".join(lines))
    indent = len(lines[0]) - len(lines[0].lstrip())
    tree = ast.parse(text)
    ast.increment_lineno(tree, first - 1)
    node = tree.body[0]
    if not isinstance(node, ast.FunctionDef):
        raise error(
            "syntax",
            f"{name} is not defined with `def`",
            Loc(file, first),
            help="use a `def` statement",
        )
    rewriter = Rewriter(file, name, indent, attributes)
    loc = rewriter.loc(node)
    used = frozenset(n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute))
    declared = frozenset(
        n.target.id
        for n in ast.walk(node)
        if isinstance(n, ast.AnnAssign) and n.value is None and isinstance(n.target, ast.Name)
    )
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
    captured = tuple(c for c in getattr(fn, "__code__", compile("", "", "exec")).co_freevars)
    code = compile(_factory(node, captured), file, "exec")
    return Rewritten(name, code, captured, tuple(rewriter.locs), loc, used, declared)


def _factory(node: ast.FunctionDef, captured: tuple[str, ...]) -> ast.Module:
    """A module that defines a function of the tracer and the captured names, which returns the rewritten function."""
    params = [ast.arg(TRACER), *(ast.arg(c) for c in captured)]
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
    exec(rewritten.code, fn.__globals__, scope)  # noqa: S102 - this is how staged execution runs
    values = dict(closure_values(fn))
    missing = [name for name in rewritten.captured if name not in values]
    if missing:
        raise error(
            "name",
            f"{missing[0]} is used in {rewritten.name} before it has a value",
            rewritten.loc,
            help="define it before the kernel",
        )
    return scope[_FACTORY](tracer, *(values[name] for name in rewritten.captured))


def closure_values(fn: FunctionType) -> dict[str, Any]:
    """The captured names of `fn` that have a value, with their values."""
    out: dict[str, Any] = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            out[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return out
