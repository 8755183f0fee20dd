"""Where the arrays of a program lie, and what LLVM may assume of accesses to them.

What enters: declarations. What leaves: a `Place` for each name, and the metadata of an access: its
alias scope, and the lockstep loops in which it takes part.

Memory on chip is apart from everything else, so each such array has an alias scope of its own. The
arrays of the caller have one scope together: the same storage may be passed twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilelang.dtypes import DType
from tilelang.targets.cpu.text import Code, Module, Value, like, number, vector
from tilelang.targets.cpu.types import element_type

OUTSIDE = "outside"
"""The alias scope of memory that is not on chip."""


@dataclass(frozen=True)
class Place:
    """An array: the address of its first element, and the name of its alias scope.

    `scope` is empty where nothing is known. `depth` is the number of lockstep loops around its
    declaration: inside of these each iteration has its own.
    """

    pointer: Value
    dtype: DType
    scope: str = OUTSIDE
    depth: int = 0


@dataclass
class Scopes:
    """The alias scopes of one function; their nodes are written when all are known."""

    module: Module
    names: dict[str, int] = field(default_factory=dict[str, int])

    def suffix(self, scope: str) -> str:
        """What marks an access to memory of this scope. `finish` puts the nodes in."""
        if not scope:
            return ""
        self.names.setdefault(scope, len(self.names))
        k = self.names[scope]
        return f", !alias.scope !<in{k}>, !noalias !<out{k}>"

    def finish(self, text: str) -> str:
        """The function's text with the metadata that `suffix` spoke of."""
        if not self.names:
            return text
        domain = self.module.node("!{{self}}", distinct=True)
        nodes = [self.module.node(f"!{{{{self}}, {domain}}}", distinct=True) for _ in self.names]
        for k, node in enumerate(nodes):
            others = ", ".join(n for n in nodes if n != node)
            text = text.replace(f"!<in{k}>", self.module.node(f"!{{{node}}}"))
            text = text.replace(f"!<out{k}>", self.module.node(f"!{{{others}}}"))
        return text


@dataclass
class Memory:
    """The accesses of one function."""

    code: Code
    scopes: Scopes
    groups: list[str] = field(default_factory=list[str])

    def suffix(self, place: Place) -> str:
        """The metadata of an access."""
        inside = self.groups[place.depth :]
        if not inside:
            return self.scopes.suffix(place.scope)
        group = (
            inside[0] if len(inside) == 1 else self.code.module.node(f"!{{{', '.join(inside)}}}")
        )
        return f"{self.scopes.suffix(place.scope)}, !llvm.access.group {group}"

    def address(self, place: Place, index: Value) -> Value:
        """The address of an element."""
        return self.code.gep(place.pointer, element_type(place.dtype), index)

    def read(self, place: Place, index: Value, dtype: DType, lanes: int = 1) -> Value:
        """Values of `dtype` from neighbouring elements; `lanes` of them if it is a scalar."""
        kind = vector(element_type(dtype), dtype.lanes * lanes)
        at = self.address(place, index)
        raw = self.code.load(kind, at, dtype.base.numpy.itemsize, self.suffix(place))
        return from_memory(self.code, raw, dtype)

    def write(self, place: Place, index: Value, value: Value, dtype: DType) -> None:
        """A value of `dtype` to neighbouring elements."""
        at = self.address(place, index)
        raw = to_memory(self.code, value, dtype)
        self.code.store(raw, at, dtype.base.numpy.itemsize, self.suffix(place))


def from_memory(code: Code, raw: Value, dtype: DType) -> Value:
    """The value that memory holds. A caller's byte may have anything in the bits that are free."""
    if dtype.base.is_bool:
        return code.compare("ne", raw, number(raw.type, 0))
    used = dtype.row.code_bits if dtype.is_float else dtype.bits
    if used < 8:
        return code.op("and", raw, number(raw.type, (1 << used) - 1))
    return raw


def to_memory(code: Code, value: Value, dtype: DType) -> Value:
    """The value as memory holds it."""
    return code.cast("zext", value, like(value.type, "i8")) if dtype.base.is_bool else value
