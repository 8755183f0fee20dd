"""Python's operators while a kernel is traced.

What enters: operands. What leaves: a Python object where they are known, else a `Value`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from tilelang.errors import TileTypeError, error
from tilelang.frontend.unusable import Unusable, check_usable
from tilelang.ir.expr import BinaryOp, Const, Expr, Load
from tilelang.ir.node import Node
from tilelang.language.buffers import BufferRef, RegionRef, VarRef, here
from tilelang.language.values import (
    Value,
    binary,
    condition,
    describe,
    is_scalar,
    logical,
    logical_not,
    select,
)

_NAMES = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow",
    "@": "matmul", "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
}  # fmt: skip
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    symbol: getattr(operator, f"__{name}__") for symbol, name in _NAMES.items()
}
IN_PLACE: dict[str, Callable[[Any, Any], Any]] = {
    symbol: getattr(operator, f"__i{name}__") for symbol, name in _NAMES.items()
}
UNARY: dict[str, Callable[[Any], Any]] = {
    "-": operator.neg, "+": operator.pos, "~": operator.invert,
}  # fmt: skip
_COMPARES: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "is": operator.is_, "is not": operator.is_not,
}  # fmt: skip


def is_static(value: Any) -> bool:
    """Whether the truth of `value` is known while the kernel is traced."""
    if isinstance(value, Value):
        return not isinstance(value, VarRef) and isinstance(value.expr, Const)
    return not isinstance(value, (Expr, Unusable))


def known(value: Value) -> Any:
    """A Python number for a known value of a literal's type, else the value itself."""
    e = value.expr
    return e.value if isinstance(e, Const) and str(e.dtype) in ("int32", "bool") else value


def reads_memory(e: Expr) -> bool:
    """Whether computing `e` reads an element, so that it matters when it is computed."""
    return any(isinstance(n, Load) for n in e.walk())


def join(op: BinaryOp, left: Any, right: Any) -> Value:
    """`left and right` / `left or right` on conditions of the kernel.

    As in Python the left side guards the right one. Only a read on chip needs that: outside a
    global tensor a read gives a value, and a constant index is checked where it is written.
    """
    if not any(_needs_guard(n) for n in condition(right).walk()):
        return logical(op, left, right)
    right = Value(condition(right))
    arms = (right, False) if op is BinaryOp.AND else (True, right)
    return select(left, *arms, lazy=True)


def _needs_guard(n: Node) -> bool:
    if not isinstance(n, Load) or n.buffer.scope == "global":
        return False
    return not all(isinstance(i, Const) for i in n.indices)


def compare(ops: Sequence[str], operands: Sequence[Any]) -> Any:
    """`a < b < c`: each neighbouring pair, joined by `and`."""
    result: Any = True
    for op, a, b in zip(ops, operands[:-1], operands[1:], strict=True):
        pair = compare_pair(op, a, b)
        if is_static(result):
            result = result and pair
        else:
            result = known(logical(BinaryOp.AND, result, pair))
    return result


def compare_pair(op: str, a: Any, b: Any) -> Any:
    """One comparison; `in` asks for equality with one of the elements."""
    check_usable(a, b)
    if op in ("in", "not in"):
        found = _contains(b, a)
        if op == "in":
            return found
        return (not found) if is_static(found) else known(logical_not(found))
    if op in ("is", "is not"):
        return _COMPARES[op](a, b)
    for side, other in ((a, b), (b, a)):
        if isinstance(side, RegionRef) or (isinstance(side, BufferRef) and is_scalar(other)):
            raise error(
                "syntax",
                f"`{op}` on {describe(side)}, which has many elements",
                here(),
                cls=TileTypeError,
                expected="scalars",
                got=describe(side),
                help="compare elements in a loop: `for i in T.Parallel(n): C[i] = A[i] == B[i]`",
            )
    if any(isinstance(x, Value) for x in (a, b)) and is_scalar(a) and is_scalar(b):
        return known(binary(BinaryOp(op), a, b))
    return _COMPARES[op](a, b)


def _contains(items: Any, x: Any) -> Any:
    if isinstance(items, (BufferRef, RegionRef, Value)):
        raise error(
            "syntax",
            f"`in` on {describe(items)}",
            here(),
            cls=TileTypeError,
            expected="a list, tuple, set or dictionary that is known while the kernel is traced",
            got=describe(items),
        )
    if isinstance(items, range) and isinstance(x, Value) and not is_static(x):
        return _in_range(items, x)
    if not isinstance(items, (list, tuple, set, frozenset, dict)):
        return x in items
    elements = list(cast("Iterable[Any]", items))
    if not is_scalar(x) or all(is_static(e) for e in (x, *elements)):
        return x in elements
    result: Any = False
    for element in elements:
        same = element is x or compare_pair("==", x, element)
        if is_static(same) and same:
            return True
        if not is_static(same):
            result = same if result is False else known(logical(BinaryOp.OR, result, same))
    return result


def _in_range(items: range, x: Value) -> Any:
    low, high = min(items, default=0), max(items, default=-1)
    inside = compare(("<=", "<="), (low, x, high))
    if abs(items.step) == 1:
        return inside
    on_step = compare_pair("==", (x - low) % abs(items.step), 0)
    return known(logical(BinaryOp.AND, inside, on_step))
