"""Calls that an author's function makes while it is traced: builtins, and errors of signatures."""

from __future__ import annotations

import builtins
import inspect
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from tilelang.errors import Loc, TileError, TileTypeError, error
from tilelang.ir.tile import LoopKind
from tilelang.language.buffers import here
from tilelang.language.loops import LoopFrame, sequential
from tilelang.language.values import Value

_ITERATE = (enumerate, zip, list, tuple, set, frozenset, sorted, reversed, iter, map, filter, sum)
_KEEP = frozenset({"append", "appendleft", "extend", "insert", "add", "update", "setdefault"})


def keeps_arguments(fn: Any) -> bool:
    """Whether a call stores its arguments in a Python container, to be read at a later place."""
    owner = getattr(fn, "__self__", None)
    return isinstance(owner, (list, dict, set, deque)) and fn.__name__ in _KEEP


def check_builtin(fn: Any, args: tuple[Any, ...]) -> None:
    """Refuse a builtin that would have to know what only the kernel computes."""
    if any(fn is f for f in _ITERATE):
        for a in args:
            check_iterable(a)
    for name in ("max", "min"):
        if fn is getattr(builtins, name) and any(_unknown(a) for a in args):
            raise error(
                "syntax",
                f"Python's {name}() on a value that the kernel computes",
                here(),
                cls=TileTypeError,
                help=f"use T.{name}(a, b)",
            )


def _unknown(x: Any) -> bool:
    return isinstance(x, Value) and not x.is_known


def check_iterable(x: Any) -> Any:
    """`x`, unless it is a loop of the kernel, which only a `for` statement can run."""
    if isinstance(x, LoopFrame):
        raise error(
            "syntax",
            f"{x.what} is used outside a `for` statement",
            here(),
            cls=TileTypeError,
            expected="a sequence that is known while the kernel is traced",
            got="a loop of the kernel",
            help="write a `for` statement, or use range() with known numbers",
        )
    return x


def range_of(args: tuple[Any, ...]) -> Any:
    """`range(*args)`: Python's where the numbers are known, else a loop of the kernel."""
    if any(_unknown(a) or isinstance(a, float) for a in args):
        return range_loop(*args) if 1 <= len(args) <= 3 else range(*args)
    return range(*args)


def range_loop(start: Any, stop: Any = None, step: Any = None) -> LoopFrame:
    """The loop of the kernel over a range."""
    return sequential("range()", LoopKind.SERIAL, start, stop, step, ())


def signature_error(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], loc: Loc
) -> TileError | None:
    """Python's complaint about arguments, located, where `fn` is a function of the language."""
    module = getattr(fn, "__module__", "") or ""
    if not module.startswith("tilelang."):
        return None
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as exc:
        name = getattr(fn, "__name__", str(fn))
        accepted = ", ".join(n for n in signature.parameters)
        return error(
            "option",
            f"T.{name}: {exc}",
            loc,
            cls=TileTypeError,
            expected=accepted,
            help="see `help(T." + name + ")`",
        )
    return None
