"""What the passes for many threads know of one launch: its threads, and the memory of buffers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tilelang.errors import Loc, TileError, error
from tilelang.ir.expr import Binary, BinaryOp, Buffer, Const, Expr, Var, const, int_value
from tilelang.ir.node import Node
from tilelang.ir.tile import Block, For, Function, Launch, Let, LoopKind, Stmt
from tilelang.layout.cells import Cells
from tilelang.passes.build import Names, both, compare, minus, plus, statements, times
from tilelang.passes.check.walk import DEFAULT_THREADS
from tilelang.scopes import Dialect, Memory, memory_of

WARP = 32


@dataclass(frozen=True)
class Tensor:
    """A buffer in Tensor Memory: how it lies there, and its address."""

    cells: Cells
    address: Expr


Note = tuple[str, str, str]
"""What the compile report says: a kind, a sentence, and the place in the author's file."""


@dataclass
class Threads:
    """The threads of one launch that share its work, the barrier at which they meet, and what is
    said about the launch in the compile report. `tensors` are its buffers in Tensor Memory by name,
    `unit_tiles` the shared tiles that products of tcgen05 and tensor copies read, `arrived` those
    that tensor copies alone write. `carried` are fragments of parts that keep their values from
    round to round of a loop around the part; their registers are declared `outside`, those
    of fragments that are `kept` from one part to another of the same threads are `kept_in`.
    `barriers` are those of parts, by their threads.
    """

    fn: Function
    launch: Launch
    names: Names
    roots: dict[str, str]
    notes: list[Note] = field(default_factory=list[Note])
    barrier: int = 0
    base: int = 0
    tensors: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    unit_tiles: frozenset[str] = frozenset()
    arrived: frozenset[str] = frozenset()
    carried: frozenset[str] = frozenset()
    outside: list[Stmt] = field(default_factory=list[Stmt])
    kept: frozenset[str] = frozenset()
    kept_in: dict[str, Buffer] = field(default_factory=dict[str, Buffer])
    barriers: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    parts: dict[Expr, Var] = field(default_factory=dict[Expr, Var])

    def __post_init__(self) -> None:
        self.dialect = Dialect(self.fn.dialect)
        given = self.launch.threads or (DEFAULT_THREADS,)
        self.extents = (*given, 1, 1)[:3]
        self.count = math.prod(self.extents)

    def arm(self, first: int, count: int, barrier: int) -> Threads:
        """A range of these threads, that share the work of a part."""
        made = replace(self, base=first, barrier=barrier, parts={})
        made.count = count
        return made

    def named(self, e: Expr, hint: str) -> Expr:
        """A name for what is computed of thread indices alone, the same for every use; `lets`
        defines them all.
        """
        if isinstance(e, (Const, Var)):
            return e
        found = self.parts.get(e)
        if found is None:
            found = self.parts[e] = self.names.var(hint, e.dtype)
        return found

    def lets(self) -> Block:
        """The definitions of names, for the start of what the threads do."""
        return tuple(Let(name, e) for e, name in self.parts.items())

    @cached_property
    def unrolled(self) -> frozenset[Var]:
        """The variables of loops that are written out."""
        loops = (s for s in statements(self.launch.body) if isinstance(s, For))
        return frozenset(s.var for s in loops if s.kind is LoopKind.UNROLL)

    @cached_property
    def index(self) -> Expr:
        """The place of a thread among those that share the work."""
        return minus(self.flat, self.base)

    @cached_property
    def flat(self) -> Expr:
        """The place of a thread in its block, x fastest."""
        total: Expr = const(0)
        axes = list(zip(self.launch.thread_vars, self.extents, strict=True))
        for var, extent in reversed(axes):
            total = plus(times(total, extent), var if extent > 1 else 0)
        return total

    def first(self) -> Expr:
        """Whether the thread is the first of its block."""
        return compare(BinaryOp.EQ, self.index, 0)

    def digit(self, stride: int, size: int) -> Expr:
        """`thread // stride % size`; a `size` of 0 sets no limit."""
        out = self.index
        if stride > 1:
            out = Binary(BinaryOp.FLOORDIV, out, const(stride))
        if size and stride * size < self.count:
            out = Binary(BinaryOp.FLOORMOD, out, const(size))
        return out

    def owns(self, parts: tuple[tuple[int, int], ...]) -> Expr:
        """Whether the thread is the first among those that hold the same elements."""
        return both(compare(BinaryOp.EQ, self.digit(stride, size), 0) for stride, size in parts)

    def memory(self, buffer: Buffer) -> Memory:
        """The memory of a buffer."""
        return memory_of(self.dialect, buffer.scope)

    def is_fragment(self, buffer: Buffer) -> bool:
        """Whether a buffer is to be spread over the threads."""
        return self.memory(buffer) is Memory.FRAGMENT

    def is_private(self, buffer: Buffer) -> bool:
        """Whether each thread has a buffer of its own."""
        return self.memory(buffer) in (Memory.LOCAL, Memory.VAR)

    def note(self, kind: str, text: str, loc: Loc | None) -> None:
        """Something for the compile report."""
        place = "" if loc is None else f"{loc.file}:{loc.line}"
        if (kind, text, place) not in self.notes:
            self.notes.append((kind, text, place))


def noted(fn: Function, notes: list[Note]) -> Function:
    """A function with more notes for the compile report, in its `attrs`."""
    if not notes:
        return fn
    before = dict(fn.attrs).get("notes", ())
    rest = tuple((k, v) for k, v in fn.attrs if k != "notes")
    return fn.with_(attrs=(*rest, ("notes", (*before, *notes))))


def static_shape(buffer: Buffer) -> tuple[int, ...] | None:
    """The extents as numbers; None unless all are known."""
    found = [int_value(e) for e in buffer.shape]
    return None if any(n is None for n in found) else tuple(n or 0 for n in found)


def refused(stmt: Node, what: str) -> TileError:
    """The error for a program that is right and that the GPU lowering does not have."""
    return error(
        "target",
        f"{what} is not built for GPUs",
        stmt.loc,
        help='run it with target="emulate", which has every operation',
    )
