"""What a function takes from around it: the values of its closure and of the globals it names.

What enters: a Python function. What leaves: a hashable key that changes when one of those values
does, so that a kernel that was traced with other values is not given again. Numbers, strings, types
and collections of them count by value, functions by what they take in their turn, everything else
by which object it is.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast


class Same:
    """An object that counts by which one it is; it is kept, so that its place is not reused."""

    __slots__ = ("held",)

    def __init__(self, held: object) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.held is other.held

    def __hash__(self) -> int:
        return hash(id(self.held))


def frozen(x: Any) -> Any:
    """Plain data in hashable form. The type is part of it, since 1 == True and 0.0 == -0.0."""
    if isinstance(x, Mapping):
        x = cast("Mapping[Any, Any]", x)
        return ("dict", tuple(sorted((str(k), frozen(v)) for k, v in x.items())))
    if isinstance(x, (list, tuple)):
        x = cast("list[Any]", x)
        return (type(x).__name__, tuple(frozen(v) for v in x))
    if isinstance(x, (set, frozenset)):
        x = cast("set[Any]", x)
        return ("set", frozenset(frozen(v) for v in x))
    if isinstance(x, float):
        return (type(x).__name__, x.hex())
    return (type(x).__name__, x)


_PLAIN = (bool, int, float, complex, str, bytes, type(None), type)


def captured(fn: Callable[..., Any]) -> Any:
    """The key of the values that `fn` takes from around it, as they are now."""
    return _captured(fn, set())


def _captured(fn: Callable[..., Any], seen: set[int]) -> Any:
    inner = inspect.unwrap(fn)
    if not isinstance(inner, FunctionType) or id(inner) in seen:
        return None
    seen.add(id(inner))
    found: list[tuple[str, Any]] = []
    for name, cell in zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a name that has no value yet
            found.append((name, cell.cell_contents))
    around = inner.__globals__
    found += [(name, around[name]) for name in _names(inner.__code__) if name in around]
    return tuple((name, _value(x, seen)) for name, x in found if not isinstance(x, ModuleType))


def _value(x: Any, seen: set[int]) -> Any:
    if isinstance(x, _PLAIN):
        return frozen(x)
    if isinstance(x, (list, tuple, set, frozenset)):
        items = cast("list[Any]", x)
        parts = [_value(v, seen) for v in items]
        unordered = isinstance(items, (set, frozenset))
        return (type(items).__name__, frozenset(parts) if unordered else (*parts,))
    if isinstance(x, Mapping):
        pairs = cast("Mapping[Any, Any]", x).items()
        return ("dict", tuple((_value(k, seen), _value(v, seen)) for k, v in pairs))
    module = getattr(x, "__module__", None) or ""
    ours = isinstance(module, str) and module.split(".")[0] == "tilelang"
    wrapped = getattr(x, "__wrapped__", x)
    if isinstance(wrapped, FunctionType) and not (ours and wrapped is x):
        return (Same(x), _captured(wrapped, seen))
    return Same(x)


@functools.cache
def _names(code: CodeType) -> tuple[str, ...]:
    """The names that a function and those inside it may look up among the globals."""
    names = dict.fromkeys(code.co_names)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            names.update(dict.fromkeys(_names(const)))
    return tuple(names)
