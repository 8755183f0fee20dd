"""What a program of another checkout is watched for while it runs: its own checks, and timing.

What enters: the syntax tree of a program. What leaves: the same program that prints CHECK after
every comparison of its own that it passed; and benchmarks that are one call.
"""

from __future__ import annotations

import ast
import sys
from typing import Any

# The calls and assertions by which programs compare results with a reference.
CHECKS = (
    "assert_",
    "close",
    "similar",
    "verify",
    "validate",
    "check",
    "diff",
    "equal",
    "err",
    "cos",
)


class Marks(ast.NodeTransformer):
    """Says CHECK after every statement that compares results: an assertion on a difference, or a
    call of a function that makes one.
    """

    def _marked(self, node: ast.stmt, what: ast.expr) -> Any:
        if not any(word in ast.unparse(what).lower() for word in CHECKS):
            return node
        mark = ast.parse("__import__('builtins').print('CHECK', flush=True)").body[0]
        for each in ast.walk(mark):
            ast.copy_location(each, node)
        return [node, mark]

    def visit_Assert(self, node: ast.Assert) -> Any:
        """`assert diff < 1e-3`."""
        return self._marked(node, node.test)

    def visit_Expr(self, node: ast.Expr) -> Any:
        """`torch.testing.assert_close(...)`, but not `print(...)`."""
        call = node.value
        return self._marked(node, call.func) if isinstance(call, ast.Call) else node


def time_once() -> None:
    """Let a benchmark be one call, and a search its first configuration: the emulator's time says
    nothing about a chip.
    """
    from tilelang import autotuner, profiler

    def once(fn: Any, *_: Any, **given: Any) -> Any:
        fn()
        return [1.0] * len(given["quantiles"]) if given.get("quantiles") else 1.0

    kernel = sys.modules["tilelang.profiler.kernel"]
    for module in (profiler, kernel, sys.modules["tilelang.profiler.bench"]):
        module.do_bench = once  # pyright: ignore[reportAttributeAccessIssue]
    search = autotuner.search

    def first(make: Any, configs: Any, plan: Any) -> Any:
        return search(make, list(configs)[:1], plan)

    autotuner.search = first
