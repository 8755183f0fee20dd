"""What is known of the text of a value: its type, the lane axes it varies over, and its range.

A *domain* is the set of lanes that run in lockstep: the iterations of a T.Parallel nest, or the
threads of a block. A value that varies over axes k, l, ... of a domain is an array that broadcasts
to the domain's shape, with extent 1 on all other axes; a value that does not vary is a Python int
or bool, or a NumPy scalar of a float type.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tilelang.dtypes import DType
from tilelang.emulator.storage import Access
from tilelang.ir.expr import Buffer

Axes = frozenset[int]
UNIFORM: Axes = frozenset()


@dataclass(frozen=True, slots=True)
class Val:
    """Python text that gives a value.

    `low` and `high` bound an integer (both included). `alias` says that the text may be a view of a
    buffer, which later stores would change. `atom` text needs no parentheses. `owner` is the domain
    of the axes, kept for names.
    """

    code: str
    dtype: DType
    axes: Axes = UNIFORM
    low: int = 0
    high: int = 0
    alias: bool = False
    atom: bool = False
    owner: Domain | None = None

    @property
    def uniform(self) -> bool:
        """Whether the value is the same for all lanes."""
        return not self.axes

    @property
    def text(self) -> str:
        """The text as an operand of an operator."""
        return self.code if self.atom else f"({self.code})"

    @property
    def constant(self) -> int | None:
        """The value of an integer that can have only one."""
        return self.low if self.dtype.is_integer and self.low == self.high else None

    def named(self, name: str) -> Val:
        """The same value after it was bound to a name."""
        return replace(self, code=name, atom=True, alias=False)


def full_range(dtype: DType) -> tuple[int, int]:
    """The range of an integer type; (0, 0) where the notion has no use."""
    if dtype.is_handle:
        return 0, (1 << 64) - 1
    return (int(dtype.min), int(dtype.max)) if dtype.is_integer else (0, 0)


def value(
    code: str, dtype: DType, axes: Axes = UNIFORM, *, alias: bool = False, atom: bool = False
) -> Val:
    """A value of which only the type is known."""
    low, high = full_range(dtype)
    return Val(code, dtype, axes, low, high, alias, atom)


def integer(n: int, dtype: DType) -> Val:
    """A literal."""
    return Val(str(n), dtype, UNIFORM, n, n, atom=n >= 0)


@dataclass(frozen=True)
class Domain:
    """The lanes of a statement: names of the axes (the author's) and their extents, outermost
    first.
    """

    names: tuple[str, ...] = ()
    extents: tuple[Val, ...] = ()
    threads: bool = False

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.extents)

    @property
    def all(self) -> Axes:
        """Every axis."""
        return frozenset(range(self.rank))

    @property
    def shape(self) -> str:
        """The text of the shape."""
        return tuple_text(e.code for e in self.extents)


def tuple_text(items: Iterable[str]) -> str:
    """The text of a tuple."""
    parts = list(items)
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


@dataclass(frozen=True)
class Storage:
    """Where a buffer lives: the name of its array, or of a Python variable if it is a `scalar` of
    the block.

    With `lanes` the array has the axes of the domain before those of the buffer: one instance for
    each lane.
    """

    name: str
    buffer: Buffer
    access: Access
    scalar: bool = False
    lanes: bool = False
    owner: Domain | None = None

    @property
    def on_chip(self) -> bool:
        """Whether an index outside is a fault."""
        return self.access.on_chip
