"""Lists, tuples and dictionaries of an author's function while it is traced.

They are Python's, so a change to one happens once, while the kernel may come by often or never. A
value that is put into one is computed there, and a change where the kernel decides is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, cast

from tilelang.errors import TileRuntimeError, error
from tilelang.frontend.operators import reads_memory
from tilelang.ir.build import Builder
from tilelang.language.buffers import VarRef
from tilelang.language.values import Value

_CONTAINERS = (list, dict, set, deque)
_CHANGE = {
    "append", "appendleft", "extend", "insert", "add", "update", "setdefault", "pop", "popleft",
    "popitem", "remove", "discard", "clear", "sort", "reverse",
}  # fmt: skip


def settled(builder: Builder, value: Any) -> Any:
    """`value`, with the reads of memory in it (and in the containers it is) done here."""
    if isinstance(value, Value):
        done = isinstance(value, VarRef) or not reads_memory(value.expr)
        return value if done else Value(builder.let(value.expr, "t"))
    if isinstance(value, tuple):
        parts = [settled(builder, v) for v in cast("tuple[Any, ...]", value)]
        make = getattr(cast("Any", value), "_make", tuple)  # a named tuple stays one
        return make(parts)
    if isinstance(value, _CONTAINERS):
        known = cast("Any", value)
        builder.homes.setdefault(id(known), (known, builder.region))
        if isinstance(value, list):
            known[:] = [settled(builder, v) for v in cast("Iterable[Any]", known)]
        elif isinstance(value, dict):
            table = cast("dict[Any, Any]", known)
            table.update({key: settled(builder, v) for key, v in table.items()})
        return known
    return value


def changed_container(fn: Any) -> Any:
    """The container that calling `fn` changes, if it is a method that does."""
    owner: Any = getattr(fn, "__self__", None)
    changes = isinstance(owner, _CONTAINERS) and fn.__name__ in _CHANGE
    return cast("Any", owner) if changes else None


def check_change(builder: Builder, container: Any) -> None:
    """Refuse a change to a container from outside the branch or loop that is traced."""
    _, home = builder.homes.get(id(container), (None, builder.region))
    if builder.region == home or not builder.region:
        return
    kind = type(container).__name__
    raise error(
        "syntax",
        f"a {kind} is changed in a branch or loop of the kernel that it was made outside of",
        builder.loc,
        cls=TileRuntimeError,
        expected=f"a {kind} that is made there, or a variable or buffer",
        got="a change that Python makes once, however often the kernel comes by",
        help="keep what the kernel changes in T.alloc_var or T.alloc_local,"
        " or expand the loop: `for k in (0, 1, 2)`",
    )
