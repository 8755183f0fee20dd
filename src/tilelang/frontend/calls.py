"""Calls that an author's function makes while it is traced: builtins, and errors of signatures."""

from __future__ import annotations

import builtins
import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tilelang import language
from tilelang.errors import (
    Loc,
    TileError,
    TileNameError,
    TileTypeError,
    TileValueError,
    error,
    warning,
)
from tilelang.ir.build import current
from tilelang.ir.tile import LoopKind
from tilelang.language.buffers import Whole, here
from tilelang.language.loops import LoopFrame, sequential
from tilelang.language.values import Value, describe

_ITERATE = (enumerate, zip, list, tuple, set, frozenset, sorted, reversed, iter, map, filter, sum)
_INSTEAD = {
    "max": "T.max(a, b)",
    "min": "T.min(a, b)",
    "round": "T.round(x)",
    "divmod": "a // b and a % b",
}


# What the language has for functions of Python's math module and of NumPy that go by another name.
_NAMED = {
    "maximum": "max", "minimum": "min", "fmax": "max", "fmin": "min", "absolute": "abs",
    "fabs": "abs", "where": "if_then_else", "clip": "clamp", "power": "pow", "rint": "round",
    "arctan2": "atan2",
}  # fmt: skip


def check_foreign(fn: Any, args: tuple[Any, ...]) -> None:
    """Refuse a function of Python or NumPy that would have to know what the kernel computes."""
    module = getattr(fn, "__module__", None) or type(fn).__module__
    if module == "builtins":
        check_builtin(fn, args)
        return
    library = module.partition(".")[0]
    if library not in ("math", "numpy") or isinstance(fn, type):
        return
    if not any(_unknown(a) or isinstance(a, Whole) for a in args):
        return
    name = getattr(fn, "__name__", "a function")
    ours = _NAMED.get(name, name)
    raise error(
        "syntax",
        f"{library}.{name} on {describe(next(a for a in args if isinstance(a, (Value, Whole))))}",
        here(),
        cls=TileTypeError,
        expected="numbers that are known while the kernel is traced",
        help=f"use T.{ours}" if ours and hasattr(language, ours) else "use the functions of T",
    )


def check_builtin(fn: Any, args: tuple[Any, ...]) -> None:
    """Refuse a builtin that would have to know what only the kernel computes."""
    if any(fn is f for f in _ITERATE):
        for a in args:
            check_iterable(a)
    if fn is print and any(_unknown(a) for a in args):
        current("print()").warnings.append(
            warning(
                "syntax",
                "print() of a value that the kernel computes shows its text while tracing",
                here(),
                help="T.print(x) prints when the kernel runs",
            )
        )
    for name, instead in _INSTEAD.items():
        if fn is getattr(builtins, name) and any(_unknown(a) for a in args):
            raise error(
                "syntax",
                f"Python's {name}() on a value that the kernel computes",
                here(),
                cls=TileTypeError,
                help=f"use {instead}",
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


def check_callable(fn: Any) -> None:
    """Refuse the call of something of the language that is not a function."""
    if isinstance(fn, (Value, Whole)) and not callable(fn):
        raise error(
            "syntax",
            f"{describe(fn)} is called as a function",
            here(),
            cls=TileTypeError,
            expected="a function",
            got=describe(fn),
            help="a parameter or local name hides the function of that name: rename it",
        )


def unknown_attribute(obj: Any, name: str) -> TileError | None:
    """The error for an attribute that a value, buffer or slice does not have."""
    if not isinstance(obj, (Value, Whole)):
        return None
    known = [n for n in dir(obj) if not n.startswith("_")]
    near = difflib.get_close_matches(name, known, n=1)
    return error(
        "name",
        f"{describe(obj)} is asked for {name}",
        here(),
        cls=TileNameError,
        expected=", ".join(known),
        got=name,
        help=f"did you mean {near[0]}?" if near else "",
    )


def argument_error(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    exc: Exception,
    loc: Loc,
) -> TileError | None:
    """Python's complaint about the arguments of a function of the language, with the place of the
    call: about their number and names, or about what one of them is.
    """
    module = getattr(fn, "__module__", "") or ""
    if not module.startswith("tilelang."):
        return None
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return None
    name = getattr(fn, "__name__", str(fn))
    try:
        signature.bind(*args, **kwargs)
    except TypeError as wrong:
        accepted = ", ".join(n for n in signature.parameters)
        return error(
            "option",
            f"T.{name}: {wrong}",
            loc,
            cls=TileTypeError,
            expected=accepted,
            help="see `help(T." + name + ")`",
        )
    if not inspect.isfunction(fn) or not module.startswith("tilelang.language."):
        return None
    given = [describe(a) for a in args] + [f"{k}={describe(v)}" for k, v in kwargs.items()]
    return error(
        "value",
        f"T.{name} cannot take an argument: {exc}",
        loc,
        cls=TileTypeError if isinstance(exc, TypeError) else TileValueError,
        expected=f"{name}{signature}",
        got=", ".join(given),
    )
