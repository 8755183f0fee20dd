"""What a function takes from around it: the values of its closure and of the globals it names.

What enters: a Python function. What leaves: a hashable key that changes when one of those values
does, so that a kernel that was traced with other values is not given again. Numbers, strings and
collections of them count by value, functions by what they take in their turn, classes and objects
of the author's by which one it is and what its attributes hold, everything else, arrays too, by
which object it is.
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


# Objects of these change in ways that no attribute tells, or not at all.
_LIBRARIES = frozenset(
    {"builtins", "tilelang", "numpy", "ml_dtypes", "torch", "jax", "jaxlib", "cupy", "functools"}
)
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def captured(fn: Callable[..., Any]) -> Any:
    """The key of the values that `fn` takes from around it, as they are now.

    Of an object of the author's those attributes count whose names the functions that are reached
    use; an object that changes elsewhere is the same to them.
    """
    return _Search().function(fn)


class _Search:
    """One walk over what functions take from around them."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self.functions: set[int] = set()
        self.names: set[str] = set()
        self.objects: list[Any] = []

    def function(self, fn: Callable[..., Any]) -> Any:
        """The key of a function, and of the objects that it and those it calls may look into."""
        key = self._function(fn)
        found: list[Any] = []
        for x in self.objects:  # which grows meanwhile
            held = _attributes(x)
            values = [(n, self.value(v)) for n, v in held.items() if n in self.names]
            found.append((Same(x), *values))
        return (key, *found)

    def _function(self, fn: Callable[..., Any]) -> Any:
        inner = inspect.unwrap(fn)
        if not isinstance(inner, FunctionType) or id(inner) in self.functions:
            return None
        self.functions.add(id(inner))
        names = _names(inner.__code__)
        self.names.update(names)
        found: list[tuple[str, Any]] = []
        for name, cell in zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # a name that has no value yet
                found.append((name, cell.cell_contents))
        around = inner.__globals__
        found += [(name, around[name]) for name in names if name in around]
        return tuple((name, self.value(x)) for name, x in found if not isinstance(x, ModuleType))

    def value(self, x: Any) -> Any:
        """The key of one value."""
        if isinstance(x, _PLAIN):
            return frozen(x)
        if isinstance(x, (list, tuple, set, frozenset, Mapping)):
            return self._collection(cast("Any", x))
        module = getattr(x, "__module__", None) or ""
        ours = isinstance(module, str) and module.split(".")[0] == "tilelang"
        wrapped = getattr(x, "__wrapped__", x)
        if isinstance(wrapped, FunctionType) and not (ours and wrapped is x):
            return (Same(x), self._function(wrapped))
        if id(x) not in self.seen and _attributes(x):
            self.seen.add(id(x))
            self.objects.append(x)
        return Same(x)

    def _collection(self, items: Any) -> Any:
        me = id(items)
        if me in self.seen:  # it holds itself
            return Same(items)
        self.seen.add(me)
        if isinstance(items, Mapping):
            pairs = cast("Mapping[Any, Any]", items).items()
            parts = [(self.value(k), self.value(v)) for k, v in pairs]
            out = ("dict", *parts)
        else:
            parts = [self.value(v) for v in items]
            unordered = isinstance(items, (set, frozenset))
            out = (type(items).__name__, frozenset(parts) if unordered else (*parts,))
        self.seen.discard(me)
        return out


def _attributes(x: Any) -> dict[str, Any]:
    """What an object or a class of the author's holds by name; nothing for those of libraries."""
    kind: type = x if isinstance(x, type) else type(x)
    if kind.__module__.partition(".")[0] in _LIBRARIES:
        return {}
    slots = (n for n in getattr(kind, "__slots__", ()) if isinstance(n, str) and hasattr(x, n))
    return {**getattr(x, "__dict__", {}), **{n: getattr(x, n) for n in slots}}


@functools.cache
def _names(code: CodeType) -> tuple[str, ...]:
    """The names that a function and those inside it may look up among the globals."""
    names = dict.fromkeys(code.co_names)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            names.update(dict.fromkeys(_names(const)))
    return tuple(names)
