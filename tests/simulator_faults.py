"""Faults planted into programs of the thread stage, one for each way to spoil each node that
synchronises.

What enters: a program. What leaves: `Fault`s: the program with one such node dropped, moved by one
statement, or with a wrong count, size or parity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tilelang.dtypes import DType
from tilelang.errors import Loc
from tilelang.ir.expr import Binary, BinaryOp, Const, Expr, const
from tilelang.ir.node import Node
from tilelang.ir.thread import Elem, Instr, Program, Slot, Space, Write
from tilelang.ir.tile import Block, Let, Stmt
from tilelang.ir.walk import bodies
from tilelang.simulator.gpu.program import Order
from tilelang.simulator.machine.report import Site

COUNTED = ("cp.async.wait_group", "cp.async.bulk.wait_group", "wgmma.wait_group")
"""Rows with an immediate `count`."""
FENCES = ("fence.proxy", "fence.mbarrier_init", "wgmma.fence", "tcgen05.fence")
VALUES = (
    "wgmma.descriptor",
    "tcgen05.descriptor",
    "tcgen05.instruction",
    "setmaxnreg",
)
"""Rows that touch nothing that others see: values, and how many registers there are."""
NAMES = (
    "mbarrier.",
    "barrier.",
    "bar.warp.sync",
    "cp.async.commit_group",
    "cp.async.mbarrier",
    "cp.async.bulk.commit_group",
    "wgmma.commit_group",
    "tcgen05.commit",
    "tcgen05.wait",
    *COUNTED,
    *FENCES,
)
"""How the names of rows that synchronise begin."""


@dataclass(frozen=True)
class Fault:
    """A program with one fault: what was done to which row, at which line of the author."""

    what: str
    loc: Loc | None
    program: Program

    def __str__(self) -> str:
        return f"{self.what} ({self.loc})"


def nodes(program: Program) -> list[Instr]:
    """The nodes that synchronise, in order; each is an object of its own."""
    return [n for n in _statements(program.body) if isinstance(n, Instr) and _synchronises(n)]


def _synchronises(stmt: Stmt) -> bool:
    return isinstance(stmt, Instr) and stmt.row.startswith(NAMES)


def _statements(body: Block) -> Iterator[Stmt]:
    for stmt in body:
        yield stmt
        for inner in bodies(stmt):
            yield from _statements(inner)


def faults(program: Program) -> Iterator[list[Fault]]:
    """Every fault, those of one node together; the first of them drops it."""
    for k, node in enumerate(nodes(program)):
        made = [(what, _spoiled(program, k, change)) for what, change in _changes(node)]
        yield [Fault(f"{node.row} {what}", node.loc, p) for what, p in made if p is not None]


Change = Callable[[Block, int], Block | None]
"""The statements of a block after the one at an index was spoiled; None if that changes nothing."""


def _changes(node: Instr) -> Iterator[tuple[str, Change]]:
    yield "dropped", lambda body, k: (*body[:k], *body[k + 1 :])
    yield "moved up", lambda body, k: _moved(body, k, -1)
    yield "moved down", lambda body, k: _moved(body, k, 1)
    for what, other in _altered(node):
        yield what, lambda body, k, other=other: (*body[:k], other, *body[k + 1 :])


def _moved(body: Block, k: int, step: int) -> Block | None:
    """The node after the next statement that does something, or before the one before it.

    What only names values is passed over, and what synchronises too: order between such nodes is
    order between what is around them.
    """
    at = k + step
    while 0 <= at < len(body) and _is_idle(body[at]):
        if isinstance(body[at], Let) and step < 0:
            return None  # the node may use it
        at += step
    if not 0 <= at < len(body):
        return None
    rest = list(body)
    node = rest.pop(k)
    rest.insert(at, node)
    return tuple(rest)


def _is_idle(stmt: Stmt) -> bool:
    """Whether a statement touches no memory that others see, nor waits for or starts anything."""
    for inner in _statements((stmt,)):
        if isinstance(inner, Instr):
            if not _synchronises(inner) and inner.row not in VALUES:
                return False
        elif any(isinstance(n, (Elem, Write, Slot)) and _is_seen(n) for n in inner.walk()):
            return False
    return True


def _is_seen(node: Elem | Write | Slot) -> bool:
    return node.array.space in (Space.SHARED, Space.GLOBAL, Space.TENSOR)


def _altered(node: Instr) -> Iterator[tuple[str, Instr]]:
    imm = dict(node.imm)
    if node.row.startswith(COUNTED):
        yield "leaves one more", node.with_(imm=tuple({**imm, "count": imm["count"] + 1}.items()))
    if node.row == "mbarrier.init":
        yield "counts one more", node.with_(ins=(_plus(node.ins[0], 1),))
        yield "counts one less", node.with_(ins=(_plus(node.ins[0], -1),))
    if node.row.endswith("expect_tx"):
        yield "expects more", node.with_(ins=(_plus(node.ins[0], 128),))
        yield "expects less", node.with_(ins=(_plus(node.ins[0], -128),))
    if "try_wait" in node.row:
        flipped = Binary(BinaryOp.BITXOR, node.ins[1], const(1, node.ins[1].dtype))
        yield "of the other parity", node.with_(ins=(node.ins[0], flipped))
    if node.row in ("barrier.sync", "barrier.arrive") and imm["threads"] > 32:
        fewer = {**imm, "threads": imm["threads"] - 32}
        yield "of a warp less", node.with_(imm=tuple(fewer.items()))


def _plus(e: Node, n: int) -> Expr:
    assert isinstance(e, Expr)
    if isinstance(e, Const):
        return Const(int(e.value) + n, e.type)
    return Binary(BinaryOp.ADD, e, const(n, DType(e.dtype.name)))


def _spoiled(program: Program, number: int, change: Change) -> Program | None:
    """The program with the synchronising node of a number spoiled."""
    seen = iter(range(1 << 30))

    def block(body: Block) -> tuple[Block, bool]:
        for k, stmt in enumerate(body):
            if _synchronises(stmt) and next(seen) == number:
                made = change(body, k)
                return (body, True) if made is None else (made, True)
            for name in _body_fields(stmt):
                inner, found = block(getattr(stmt, name))
                if found:
                    whole = stmt.with_(**{name: inner})
                    return (*body[:k], whole, *body[k + 1 :]), True
        return body, False

    made, _ = block(program.body)
    return None if made == program.body else program.with_(body=made)


def _body_fields(stmt: Stmt) -> list[str]:
    return [n for n in ("body", "then", "orelse") if isinstance(getattr(stmt, n, None), tuple)]


def other_ways(before: set[Order], after: set[Order]) -> list[str]:
    """How accesses that a dropped node has ordered are ordered without it, one line each.

    Of accesses that are in order as they were, nothing is said.
    """
    known: dict[tuple[Site, Site, int], set[str]] = {}
    for first, second, path, by in after:
        known.setdefault((first, second, path), set()).add(by)
    lines = ["every pair of accesses is in order by what it was"]
    for first, second, path, by in sorted(before, key=str):
        now = known.get((first, second, path), set())
        if by not in now:
            ways = " or ".join(sorted(now)) or "nothing: they are no longer in conflict"
            lines.append(f"{_at(first)}, then {_at(second)}: by {ways}, no longer by {by}")
    return lines[1:] or lines


def _at(site: Site) -> str:
    return f"{site.what} ({site.loc})"
