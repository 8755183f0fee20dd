"""Nodes: immutable records whose fields are declared once, each with its kind.

A subclass of `Node` lists its fields with `operand`, `attr`, `binds` and `body`; construction,
equality, hash, walk, replace, printing and reading back are derived from that list. `loc` never
counts in equality. Nothing enters or leaves here but the nodes themselves.
"""

from __future__ import annotations

import enum
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, ClassVar, Self, TypeVar, cast, dataclass_transform

from tilelang.errors import Loc


class Effect(enum.Flag):
    """What an operation does to the memory an operand names.

    ATOMIC marks an update that other threads may make at the same time. ASYNC marks an access that
    is still under way when the operation returns, until the wait that its operation names.
    """

    NONE = 0
    READ = enum.auto()
    WRITE = enum.auto()
    ATOMIC = enum.auto()
    ASYNC = enum.auto()
    UPDATE = READ | WRITE


class Kind(enum.Enum):
    """The kinds of field: a value that is used, plain data, a name that is defined, statements, a
    location.
    """

    OPERAND = "operand"
    ATTR = "attr"
    BINDS = "binds"
    BODY = "body"
    LOC = "loc"


def operand(*, effect: Effect = Effect.NONE, default: Any = MISSING) -> Any:
    """A node, a tuple of nodes or None that this node uses; `effect` is what it does to the memory
    named.
    """
    return field(
        default=default,
        kw_only=default is not MISSING,
        metadata={"kind": Kind.OPERAND, "effect": effect},
    )


def attr(*, default: Any = MISSING) -> Any:
    """Plain data: numbers, strings, enums, dtypes, and tuples of them."""
    return field(default=default, kw_only=default is not MISSING, metadata={"kind": Kind.ATTR})


def binds(*, default: Any = MISSING) -> Any:
    """A variable or buffer (or a tuple of them) that this node defines for the statements after or
    inside it.
    """
    return field(default=default, kw_only=default is not MISSING, metadata={"kind": Kind.BINDS})


def body(*, default: Any = MISSING) -> Any:
    """A tuple of statements."""
    return field(default=default, kw_only=default is not MISSING, metadata={"kind": Kind.BODY})


class _Interning(type):
    """Makes classes that say `interned=True` return the one existing node for the same contents."""

    interned: bool

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls not in _READY:
            _prepare(cls)
        if cls.interned and not kwargs:  # most often there is such a node
            known = _TABLE.get((cls, *map(_identity, args)))
            if known is not None:
                return known
        new = super().__call__(*args, **kwargs)
        if not cls.interned:
            return new
        key = new.intern_key()
        known = _TABLE.get(key)
        if known is not None:
            return known
        with _LOCK:  # looking up and adding are two steps, and threads may trace at the same time
            return _TABLE.setdefault(key, new)


_LOCK = threading.RLock()
_READY: set[object] = set()


def _prepare(cls: type) -> None:
    """Make a dataclass of a node class, and of its bases first.

    Done at first use: making all of them would be half of what importing the package takes.
    """
    with _LOCK:
        for each in reversed(cls.__mro__):
            if isinstance(each, _Interning) and each not in _READY:
                dataclass(frozen=True, repr=False, eq=False)(each)
                _READY.add(each)


_TABLE: weakref.WeakValueDictionary[tuple[Any, ...], Node] = weakref.WeakValueDictionary()

T = TypeVar("T", bound="Node")


@dataclass_transform(
    frozen_default=True, kw_only_default=False, field_specifiers=(operand, attr, binds, body, field)
)
class Node(metaclass=_Interning):
    """A record of the intermediate representation. Equality is structural; `loc` says where it was
    written.
    """

    interned: ClassVar[bool] = False
    loc: Loc | None = field(default=None, kw_only=True, compare=False, metadata={"kind": Kind.LOC})

    def __init_subclass__(cls, *, interned: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.interned = interned

    @classmethod
    def fields(cls) -> tuple[Field[Any], ...]:
        """The declared fields, `loc` left out."""
        known = _FIELDS.get(cls)
        if known is None:
            _prepare(cls)
            known = tuple(f for f in fields(cast(Any, cls)) if f.name != "loc")
            _FIELDS[cls] = known
        return known

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of the fields."""
        known = _NAMES.get(cls)
        if known is None:
            known = _NAMES[cls] = tuple(f.name for f in cls.fields())
        return known

    @classmethod
    def parts(cls) -> tuple[tuple[str, bool], ...]:
        """The names of the fields that hold the nodes directly below, in their order, and whether
        each holds statements.
        """
        known = _PARTS.get(cls)
        if known is None:
            kinds = ((f.name, f.metadata["kind"]) for f in cls.fields())
            below = (Kind.OPERAND, Kind.BODY)
            known = _PARTS[cls] = tuple((n, k is Kind.BODY) for n, k in kinds if k in below)
        return known

    def defined(self) -> Iterator[Node]:
        """The variables and buffers that this node itself defines."""
        names = _BINDS.get(type(self))
        if names is None:
            kinds = ((f.name, f.metadata["kind"]) for f in self.fields())
            names = _BINDS[type(self)] = tuple(n for n, k in kinds if k is Kind.BINDS)
        for name in names:
            yield from flat(self.__dict__[name])

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other):
            return False
        mine, others = self.__dict__, other.__dict__
        return all(same(mine[name], others[name]) for name in self.names())

    def __hash__(self) -> int:
        known = self.__dict__.get("_hash")
        if known is None:
            mine = self.__dict__
            known = hash((type(self).__name__, *[_bits(mine[name]) for name in self.names()]))
            object.__setattr__(self, "_hash", known)
        return known

    def intern_key(self) -> tuple[Any, ...]:
        """What makes an interned node unique: its class and contents, children by identity."""
        mine = self.__dict__
        return (type(self), *[_identity(mine[name]) for name in self.names()])

    def with_(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        mine = self.__dict__
        values = {name: mine[name] for name in self.names()}
        values["loc"] = self.loc
        values.update(changes)
        return type(self)(**values)

    def children(self) -> tuple[Node, ...]:
        """The nodes directly below, in the order of the fields. They are looked for once."""
        mine = self.__dict__
        known: tuple[Node, ...] | None = mine.get("_children")
        if known is None:
            found: list[Node] = []
            for name, _ in self.parts():
                value = mine[name]
                if isinstance(value, Node):
                    found.append(value)
                elif value:
                    found.extend(flat(value))
            known = tuple(found)
            object.__setattr__(self, "_children", known)
        return known

    def walk(self) -> Iterator[Node]:
        """This node and every node below it, parents first."""
        stack: list[Node] = [self]
        while stack:
            node = stack.pop()
            yield node
            below = node.children()
            if below:
                stack.extend(below[::-1])

    def rewrite(self, fn: Callable[[Node], Node | tuple[Node, ...] | None]) -> Self:
        """A copy in which `fn` replaced nodes, children first.

        `fn` gets a node whose children are already rewritten and returns its replacement, or None
        to keep it; for a statement it may return a tuple of statements (empty to drop it).
        """
        if not self.children():
            return self
        changes: dict[str, Any] = {}
        mine = self.__dict__
        for name, splice in self.parts():
            old = mine[name]
            new = rewritten(old, fn, splice=splice)
            if new is not old:
                changes[name] = new
        return self.with_(**changes) if changes else self

    def effects(self) -> Iterator[tuple[Effect, Node]]:
        """Every operand with a declared effect, with that effect."""
        for f in self.fields():
            effect = f.metadata.get("effect", Effect.NONE)
            if effect:
                for node in flat(getattr(self, f.name)):
                    yield effect, node

    def __repr__(self) -> str:
        inside = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in self.fields())
        return f"{type(self).__name__}({inside})"


_FIELDS: dict[type[Node], tuple[Field[Any], ...]] = {}
_NAMES: dict[type[Node], tuple[str, ...]] = {}
_BINDS: dict[type[Node], tuple[str, ...]] = {}
_PARTS: dict[type[Node], tuple[tuple[str, bool], ...]] = {}


def flat(value: Any) -> Iterator[Node]:
    """The nodes in a field value: itself, or those of a tuple."""
    if isinstance(value, Node):
        yield value
    elif isinstance(value, tuple):
        for item in cast("tuple[Any, ...]", value):
            yield from flat(item)


def rewritten(value: Any, fn: Callable[[Node], Any], *, splice: bool = False) -> Any:
    """A field value, a node or a tuple, in which `fn` replaced nodes as in `Node.rewrite`; with
    `splice` a tuple that it returns becomes items.
    """
    if isinstance(value, Node):
        inner = value.rewrite(fn)
        new = fn(inner)
        return inner if new is None else new
    if not isinstance(value, tuple):
        return value
    items = cast("tuple[Any, ...]", value)
    out: list[Any] = []
    changed = False
    for item in items:
        new = rewritten(item, fn)
        changed = changed or new is not item
        if splice and isinstance(new, tuple):
            out.extend(cast("tuple[Any, ...]", new))
        else:
            out.append(new)
    return tuple(out) if changed else items


def _bits(value: Any) -> Any:
    """`value` as something hashable in which 0.0, -0.0, NaN, True and 1 all differ."""
    if isinstance(value, float):
        return ("float", value.hex())
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, tuple):
        return tuple(_bits(item) for item in cast("tuple[Any, ...]", value))
    return value


def same(a: Any, b: Any) -> bool:
    """Whether two field values are equal, told apart as finely as 0.0 and -0.0, or True and 1; NaN
    equals NaN.
    """
    if isinstance(a, tuple) and isinstance(b, tuple):
        left, right = cast("tuple[Any, ...]", a), cast("tuple[Any, ...]", b)
        return len(left) == len(right) and all(same(x, y) for x, y in zip(left, right, strict=True))
    if isinstance(a, (float, bool)) or isinstance(b, (float, bool)):
        return _bits(a) == _bits(b)
    return bool(a == b)


def _identity(value: Any) -> Any:
    if isinstance(value, Node):
        return ("node", id(value))
    if isinstance(value, tuple):
        return tuple(_identity(item) for item in cast("tuple[Any, ...]", value))
    return _bits(value)
