"""What a kernel says of itself beside its statements.

What enters: the statements of a kernel. What leaves: what it captures, what a launch has to allow
for, and the statements that fetch its tensor maps.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tilelang.ir.expr import BinaryOp, Var
from tilelang.ir.node import Node
from tilelang.ir.thread import Array, Instr, Kernel, TensorMap
from tilelang.ir.tile import Annotate, Block, If
from tilelang.passes.build import both, compare, statements


def prefetched(maps: Collection[TensorMap], threads: Sequence[Var]) -> Block:
    """The first thread fetches tensor maps, which otherwise the first copy would wait for."""
    if not maps:
        return ()
    first = both(compare(BinaryOp.EQ, v, 0) for v in threads)
    return (If(first, tuple(Instr("prefetch.tensormap", (), (m,)) for m in maps)),)


def min_blocks(body: Block) -> int:
    """How many blocks the author wants an SM to hold."""
    found = [s.values[0] for s in body if isinstance(s, Annotate) and s.kind == "min_blocks_per_sm"]
    return max(found, default=0)


def launch_attrs(body: Block) -> tuple[tuple[str, bool], ...]:
    """What a launch has to allow for: all blocks at the same time, or a beginning before the kernel
    in front has ended.
    """
    rows = {s.row for s in statements(body) if isinstance(s, Instr)}
    found = (("cooperative", "grid.sync"), ("pdl", "griddepcontrol.wait"))
    return tuple((name, True) for name, row in found if row in rows)


def captured(kernel: Kernel, order: Sequence[str] = ()) -> tuple[Array | Var | TensorMap, ...]:
    """What the body of a kernel uses from outside: arrays first, then scalars, in the given order
    of names, the rest by first use.
    """
    inside: set[str] = {v.name for v in (*kernel.vars, *kernel.thread_vars)}
    used: dict[str, Array | Var | TensorMap] = {}
    seen: set[int] = set()
    stack: list[Node] = list(reversed(kernel.body))
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        for thing in node.defined():
            if isinstance(thing, (Array, Var, TensorMap)):
                inside.add(thing.name)
                stack.extend(thing.children())
        if isinstance(node, (Array, Var, TensorMap)):
            used.setdefault(node.name, node)
            if isinstance(node, Array):
                continue
        stack.extend(reversed(node.children()))
    found = [n for name, n in used.items() if name not in inside]
    rank = {name: k for k, name in enumerate(order)}
    last = len(rank)
    return tuple(sorted(found, key=lambda n: (not isinstance(n, Array), rank.get(n.name, last))))
