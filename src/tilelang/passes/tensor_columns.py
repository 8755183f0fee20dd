"""The columns of Tensor Memory that buffers take, and the order in which a block allocates them.

What enters: the body of a launch. What leaves: which buffers can be allocated when the block
begins, the widest first, which where they stand, and one whose allocation the hardware does not
allow: no allocation may be wider than one before it (PTX ISA, tcgen05.alloc).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tilelang.ir.expr import int_value
from tilelang.ir.tile import Alloc, Block, For, Free, If, Parallel, Pipelined, Stmt, While
from tilelang.layout.cells import CELL_BITS
from tilelang.passes.lower_parallel import blocks

VIEWED = "v"
"""The letter of a buffer that has a view of elements of another size."""


def columns_asked(elements: int, rows: int, bits: int, roles: str) -> int:
    """The columns for `elements` of `bits` bits in `rows` rows.

    An accumulator's element takes a whole 32-bit cell, 16-bit ones too (PTX ISA: tcgen05.ld and st
    pack and unpack them with .pack::16b and .unpack::16b); only operand A of products lies packed.
    So does a buffer that has a view of elements of another size. `roles` are the letters of the
    operands of products that the buffer is, and VIEWED.
    """
    packed = ("a" in roles or VIEWED in roles) and "c" not in roles
    cell = bits if packed else max(bits, CELL_BITS)
    return -(-(elements // rows) * cell // CELL_BITS) if rows else 0


@dataclass(frozen=True)
class Order:
    """`first` are allocated when the block begins, `later` where they stand, each until it is freed
    or its block ends; `wider` is an allocation after a narrower one, if there is one.
    """

    first: tuple[Alloc, ...]
    later: tuple[Alloc, ...]
    wider: Alloc | None


@dataclass(frozen=True)
class _Event:
    """An allocation or a free: how deep it stands, and the outermost loop around it."""

    stmt: Alloc | Free
    nested: bool
    loop: Stmt | None


def order_of(body: Block, found: Callable[[Alloc], int | None], most: int) -> Order:
    """The order for a launch; `found` gives the columns of an allocation in Tensor Memory, None
    for other memory, and `most` is how many columns there are.
    """
    events = [
        e
        for e in _events(body, nested=False, loop=None)
        if isinstance(e.stmt, Free) or found(e.stmt) is not None
    ]
    allocs = [e.stmt for e in events if isinstance(e.stmt, Alloc)]
    widths = {a.buffer.name: found(a) or 0 for a in allocs}
    if len(allocs) == len(events) and sum(widths.values()) <= most:
        return Order(_sorted(allocs, widths), (), None)
    first: list[Alloc] = []
    later: list[_Event] = []
    begun = False
    for e in events:
        begun = begun or e.nested or isinstance(e.stmt, Free)
        if isinstance(e.stmt, Alloc):
            if begun:
                later.append(e)
            else:
                first.append(e.stmt)
    wider = _wider(first, later, widths)
    rest = tuple(e.stmt for e in later if isinstance(e.stmt, Alloc))
    return Order(_sorted(first, widths), rest, wider)


def _sorted(allocs: Sequence[Alloc], widths: dict[str, int]) -> tuple[Alloc, ...]:
    return tuple(sorted(allocs, key=lambda a: -widths[a.buffer.name]))


def _wider(first: Sequence[Alloc], later: Sequence[_Event], widths: dict[str, int]) -> Alloc | None:
    """An allocation that is wider than one before it, also in the round before."""
    least = min((widths[a.buffer.name] for a in first), default=None)
    for k, e in enumerate(later):
        assert isinstance(e.stmt, Alloc)
        wide = widths[e.stmt.buffer.name]
        again = [x for x in later[k + 1 :] if e.loop is not None and x.loop is e.loop]
        rounds = [widths[x.stmt.buffer.name] for x in again if isinstance(x.stmt, Alloc)]
        if (least is not None and wide > least) or any(n < wide for n in rounds):
            return e.stmt
        least = wide if least is None else min(least, wide)
    return None


def _events(body: Block, *, nested: bool, loop: Stmt | None) -> Iterator[_Event]:
    for stmt in body:
        if isinstance(stmt, (Alloc, Free)):
            yield _Event(stmt, nested, loop)
        around = loop or (stmt if _repeats(stmt) else None)
        deeper = nested or isinstance(stmt, (For, Pipelined, Parallel, While, If))
        for inner in blocks(stmt):
            yield from _events(inner, nested=deeper, loop=around)


def _repeats(stmt: Stmt) -> bool:
    """Whether a statement may do what is inside more than once."""
    if isinstance(stmt, (For, Pipelined)):
        start, stop = int_value(stmt.start), int_value(stmt.stop)
        return start is None or stop is None or stop > start + 1
    return isinstance(stmt, (Parallel, While))
