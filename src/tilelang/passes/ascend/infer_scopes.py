"""Which memory `alloc_shared` and `alloc_fragment` of the adapter mean: what touches a buffer
decides.

What enters: a function with buffers in "UB or L1, by use" and "L0A, L0B or L0C, by use". What
leaves: the same function with every buffer in one memory. An operand of a product from L1 is in L1;
what feeds L0A or L0B is in L1; the rest is in UB. A fragment has the place of its operand in a
product, L0C without one. A buffer with uses of two memories is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tilelang.errors import Loc, TileError, error
from tilelang.ir.ascend import Transfer
from tilelang.ir.expr import Buffer, Region
from tilelang.ir.node import Node
from tilelang.ir.tile import Alloc, Copy, Function, Gemm, Stmt, View
from tilelang.isa.target import Target
from tilelang.scopes import Dialect, Memory, memory_of, rows

OPEN = (Memory.UB_OR_L1, Memory.L0_BY_USE)


@dataclass
class Uses:
    """The memories that uses of a buffer ask for, with the place of one use each."""

    buffer: Buffer
    asked: dict[Memory, Loc | None] = field(default_factory=dict["Memory", "Loc | None"])

    def ask(self, memory: Memory, loc: Loc | None) -> bool:
        """Note a use; whether it is news."""
        if memory in self.asked:
            return False
        self.asked[memory] = loc
        return True


def infer_scopes(fn: Function, target: Target) -> Function:
    """Every buffer in one memory."""
    del target
    dialect = Dialect(fn.dialect)
    roots = {s.buffer.name: s.source for s in fn.walk() if isinstance(s, View)}
    allocs = (s.buffer for s in fn.walk() if isinstance(s, Alloc))
    open_ = {b.name: Uses(b) for b in allocs if memory_of(dialect, b.scope) in OPEN}
    if not open_:
        return fn
    statements = [s for s in fn.walk() if isinstance(s, (Copy, Transfer, Gemm))]
    news = True
    while news:  # what feeds L1 or L0 may itself be open
        news = False
        for stmt in statements:
            for region, memory in _wishes(stmt, open_, roots, dialect):
                uses = open_.get(_root(region.buffer, roots).name)
                news = (uses is not None and uses.ask(memory, stmt.loc)) or news
    scopes = {row.memory: row.scope for row in rows(dialect) if row.memory not in OPEN}
    chosen = {name: scopes[_choice(uses, dialect)] for name, uses in open_.items()}
    return _placed(fn, chosen, roots)


def _root(buffer: Buffer, roots: dict[str, Buffer]) -> Buffer:
    while buffer.name in roots:
        buffer = roots[buffer.name]
    return buffer


def _wishes(
    stmt: Stmt, open_: dict[str, Uses], roots: dict[str, Buffer], dialect: Dialect
) -> Iterator[tuple[Region, Memory]]:
    """The memories that one statement asks for."""

    def settled(region: Region) -> Memory | None:
        """The memory of a region as far as it is known by now."""
        buffer = _root(region.buffer, roots)
        uses = open_.get(buffer.name)
        if uses is None:
            return memory_of(dialect, buffer.scope)
        return next(iter(uses.asked), None)

    if isinstance(stmt, Gemm):
        yield stmt.c, Memory.L0C
        fragments = _is_fragment(stmt.a, dialect, roots)
        yield stmt.a, Memory.L0A if fragments else Memory.L1
        fragments = _is_fragment(stmt.b, dialect, roots)
        yield stmt.b, Memory.L0B if fragments else Memory.L1
    elif isinstance(stmt, (Copy, Transfer)) and settled(stmt.dst) in (Memory.L0A, Memory.L0B):
        yield stmt.src, Memory.L1


def _is_fragment(region: Region, dialect: Dialect, roots: dict[str, Buffer]) -> bool:
    return memory_of(dialect, _root(region.buffer, roots).scope) is Memory.L0_BY_USE


def _choice(uses: Uses, dialect: Dialect) -> Memory:
    """The one memory of a buffer."""
    asked = list(uses.asked)
    if len(asked) > 1:
        raise _two(uses, asked)
    if asked:
        return asked[0]
    fragment = memory_of(dialect, uses.buffer.scope) is Memory.L0_BY_USE
    return Memory.L0C if fragment else Memory.UB


def _two(uses: Uses, asked: list[Memory]) -> TileError:
    name = uses.buffer.name
    first, second = asked[:2]
    return error(
        "scope",
        f"{name} is used as a buffer of two memories",
        uses.asked[second],
        expected=f"{first.title}, as at {uses.asked[first]}",
        got=second.title,
        help=f"allocate a second buffer and copy {name} to it",
    )


def _placed(fn: Function, chosen: dict[str, str], roots: dict[str, Buffer]) -> Function:
    """The function with these scopes, views included."""
    for name, source in roots.items():
        scope = chosen.get(_root(source, roots).name)
        if scope is not None:
            chosen[name] = scope

    def moved(node: Node) -> Node | None:
        if isinstance(node, Buffer) and node.name in chosen:
            return node.with_(scope=chosen[node.name])
        if isinstance(node, (Alloc, View)) and node.buffer.name in chosen:
            return node.with_(buffer=node.buffer.with_(scope=chosen[node.buffer.name]))
        return None

    return fn.rewrite(moved)
