"""Which names a piece of Python assigns, and which it reads before it has assigned them.

What enters: statements of an author's function. What leaves: sets of names. The tracer uses them to
keep Python's meaning of names where a branch or loop becomes code of the kernel.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence


def target_names(target: ast.expr | None) -> list[str]:
    """The plain names of an assignment target, from left to right."""
    if target is None:
        return []
    return [
        n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    ]


def assigned(body: Iterable[ast.stmt]) -> list[str]:
    """The names that `body` assigns in its own scope, in order of first appearance."""
    found: dict[str, None] = {}
    stack: list[ast.AST] = list(reversed(list(body)))
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.setdefault(node.name)
            continue
        if isinstance(
            node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
        ):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.setdefault(node.id)
        if isinstance(node, ast.alias):
            found.setdefault((node.asname or node.name).split(".")[0])
        stack.extend(reversed(list(ast.iter_child_nodes(node))))
    return list(found)


def exposed(body: Sequence[ast.stmt]) -> set[str]:
    """The names that a round of `body` may read from before the round, and that it also assigns."""
    reads, _ = _flow(body, frozenset())
    return reads & set(assigned(body))


def _flow(body: Sequence[ast.stmt], known: frozenset[str]) -> tuple[set[str], frozenset[str]]:
    """Names read before they are surely assigned, and those surely assigned after `body`."""
    reads: set[str] = set()
    for stmt in body:
        more, known = _one(stmt, known)
        reads |= more
    return reads, known


def read_names(node: ast.AST | None, known: frozenset[str] = frozenset()) -> set[str]:
    """The names that `node` reads, but for those in `known`."""
    if node is None:
        return set()
    return {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    } - known


def _one(stmt: ast.stmt, known: frozenset[str]) -> tuple[set[str], frozenset[str]]:
    match stmt:
        case ast.If():
            a, after_a = _flow(stmt.body, known)
            b, after_b = _flow(stmt.orelse, known)
            found = read_names(stmt.test, known) | a | b, after_a & after_b
        case ast.For():
            inside = known | set(target_names(stmt.target))
            found = read_names(stmt.iter, known) | _flow(stmt.body, inside)[0], known
        case ast.While():
            found = read_names(stmt.test, known) | _flow(stmt.body, known)[0], known
        case ast.With():
            reads: set[str] = set()
            for entry in stmt.items:
                reads |= read_names(entry.context_expr, known)
                known = known | set(target_names(entry.optional_vars))
            more, known = _flow(stmt.body, known)
            found = reads | more, known
        case ast.AugAssign(target=ast.Name(id=name)):
            found = read_names(stmt.value, known) | ({name} - known), known | {name}
        case ast.FunctionDef() | ast.ClassDef():
            found = read_names(stmt, known), known | {stmt.name}
        case _:
            found = read_names(stmt, known), known | set(assigned([stmt]))
    return found


def bound_in_control(body: Sequence[ast.stmt]) -> frozenset[str]:
    """The names that a branch or loop of `body` binds, so that they may have no value after it."""
    found: set[str] = set()
    for stmt in body:
        for node in ast.walk(stmt):
            if isinstance(node, (ast.If, ast.For, ast.While)):
                found.update(assigned([node]))
    return frozenset(found)
