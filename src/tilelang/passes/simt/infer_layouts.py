"""Which threads hold which elements of each fragment.

What enters: a launch whose tile operations are parallel nests, reductions and products of whole
fragments. What leaves: a `Spread` for each fragment.

Rules, in order of priority: a product dictates the layout of its fragments; a layout that is known
goes on through nests (the nest takes the layout of a fragment that all its axes walk, the others
follow) and through reductions (the result is what is left of the source); what is then still free
takes the coalesced default, the largest fragment first. A later rule never changes what an earlier
one has said. Where two uses do not agree, the nest goes through shared memory, so no choice here
can make a program wrong; `spread.broken` is the validator.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tilelang.errors import InternalError
from tilelang.ir.affine import bounds
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Expr,
    Load,
    LoadVector,
    Region,
    Var,
    int_value,
)
from tilelang.ir.tile import (
    Alloc,
    Atomic,
    Block,
    Parallel,
    Reduce,
    Store,
    StoreVector,
)
from tilelang.layout.spread import Spread, broken, coalesced, replicated
from tilelang.passes.lower_parallel import own_nodes, statements
from tilelang.passes.simt.demote_fragments import single_uses
from tilelang.passes.simt.launch import Threads, static_shape

Axes = tuple[int | None, ...]
"""For each axis of a buffer, the axis of the nest that walks it; None where the index is 0."""

Starts = tuple[Expr | None, ...]
"""For each axis of a buffer, what is added to the variable that walks it; None for nothing."""


@dataclass
class Layouts:
    """The result: a layout for each fragment."""

    of: dict[str, Spread] = field(default_factory=dict[str, Spread])


@dataclass(frozen=True)
class Use:
    """An access to a fragment in a nest. `axes` is None where indices are computed; `starts` says
    where the nest begins along each axis of which it walks a part.
    """

    buffer: Buffer
    axes: Axes | None
    writes: bool
    starts: Starts = ()

    def part(self, spread: Spread, nest: tuple[int, ...]) -> Spread | None:
        """The layout of the part of the fragment that the nest walks, if that begins at a multiple
        of its extent and lies alike wherever it begins.
        """
        found: Spread | None = spread
        for k, (axis, start) in enumerate(zip(self.axes or (), self.starts, strict=False)):
            if start is None or axis is None or found is None:
                continue
            extent = nest[axis]
            whole = spread.shape[k] % extent == 0 and bounds(start, {}).divisible_by(extent)
            found = found.part(k, extent) if whole else None
        if self.axes is None or found is None or not fits(self.axes, found.shape, nest):
            return None
        return found


@dataclass
class Nest:
    """A parallel nest of constant extents, and the fragments that it uses."""

    stmt: Parallel
    extents: tuple[int, ...] | None
    uses: list[Use]
    vector: int
    outside: bool


Wanted = Mapping[str, Spread]


def infer_layouts(threads: Threads, body: Block, wanted: Wanted) -> Layouts:
    """The layouts of all fragments; `wanted` are those that products dictate."""
    job = _Inference(threads, body)
    for name, spread in wanted.items():
        job.settle(name, spread)
    job.settle_single()
    job.solve()
    for name, spread in job.found.of.items():
        faults = list(broken(spread))
        if faults:
            raise InternalError(f"the layout of {name}: {'; '.join(faults)}")
    return job.found


class _Inference:
    """One launch."""

    def __init__(self, threads: Threads, body: Block) -> None:
        self.t = threads
        self.body = body
        self.found = Layouts()
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.nests: list[Nest] = []
        self.reduces: list[Reduce] = []
        self.vectors: dict[str, int] = {}
        for stmt in statements(body):
            if isinstance(stmt, Alloc) and threads.is_fragment(stmt.buffer):
                self.shapes[stmt.buffer.name] = static_shape(stmt.buffer) or ()
        self.collect()

    # What there is -------------------------------------------------------------------------------

    def collect(self) -> None:
        """The nests and reductions, and how wide the accesses of each fragment's nests may be."""
        for stmt in statements(self.body):
            if isinstance(stmt, Parallel):
                nest = nest_of(stmt, self.t)
                self.nests.append(nest)
                for use in nest.uses if nest.outside else ():
                    seen = self.vectors.get(use.buffer.name, nest.vector)
                    self.vectors[use.buffer.name] = min(seen, nest.vector)
            elif isinstance(stmt, Reduce):
                self.reduces.append(stmt)

    def settle_single(self) -> None:
        """Fragments that code outside of nests reads are held by every thread."""
        for buffer, _ in single_uses(self.body):
            shape = self.shapes.get(buffer.name)
            if shape is not None:
                self.settle(buffer.name, replicated(shape, self.t.count))

    # Rules ---------------------------------------------------------------------------------------

    def settle(self, name: str, spread: Spread) -> bool:
        """Give a fragment its layout, unless it has one."""
        if name in self.found.of or name not in self.shapes:
            return False
        self.found.of[name] = spread
        return True

    def solve(self) -> None:
        """Layouts go on from those that are known; what stays free takes the default."""
        while True:
            while any(
                [*(self.through_nest(n) for n in self.nests), *map(self.reduced, self.reduces)]
            ):
                pass
            free = [n for n in self.shapes if n not in self.found.of]
            if not free:
                return
            name = max(free, key=lambda n: math.prod(self.shapes[n]))
            vector = self.vectors.get(name) or self.alone(name)
            self.settle(name, coalesced(self.shapes[name], self.t.count, vector))

    def alone(self, name: str) -> int:
        """How many elements stand together in a fragment that only meets others."""
        widths = [n.vector for n in self.nests if any(u.buffer.name == name for u in n.uses)]
        return min(widths, default=1)

    def through_nest(self, nest: Nest) -> bool:
        """Fragments follow the layout of the nest."""
        spread = nest_spread(nest, self.found, self.t.count, default=False)
        if spread is None:
            return False
        changed = False
        for use in nest.uses:
            shape = self.shapes.get(use.buffer.name)
            if shape is None or use.axes is None or use.buffer.name in self.found.of:
                continue
            if any(use.starts):
                continue
            if not fits(use.axes, shape, spread.shape):
                continue
            changed |= self.settle(use.buffer.name, spread.through(use.axes, shape))
        return changed

    def reduced(self, stmt: Reduce) -> bool:
        """The result of a reduction is held where its elements were."""
        spread = self.found.of.get(stmt.src.buffer.name)
        shape = self.shapes.get(stmt.dst.buffer.name)
        if spread is None or shape is None:
            return False
        return self.settle(stmt.dst.buffer.name, reduced_spread(spread, stmt.dim, shape))


def reduced_spread(spread: Spread, dim: int, shape: tuple[int, ...]) -> Spread:
    """The layout of a result of `shape` (with the reduced axis of extent 1, or without it)."""
    axis = dim % len(spread.shape)
    axes: list[int | None] = [k for k in range(len(spread.shape)) if k != axis]
    if len(shape) == len(spread.shape):
        axes.insert(axis, None)
    if len(shape) != len(axes):
        axes = [None] * len(shape)
    return spread.through(axes, shape)


# Nests -------------------------------------------------------------------------------------------


def nest_of(stmt: Parallel, t: Threads) -> Nest:
    """A nest, and the fragments that it uses."""
    extents = [int_value(e) for e in stmt.extents]
    uses: dict[tuple[str, Axes | None, Starts, bool], Use] = {}
    bits: list[int] = []
    for node, writes in accesses(stmt.body):
        buffer: Buffer = node.buffer
        if not t.is_fragment(buffer):
            if not t.is_private(buffer):
                bits.append(buffer.dtype.bits)
            continue
        axes: Axes | None = None
        starts: Starts = ()
        if isinstance(node, (Load, Store)):
            axes, starts = walked(node.indices, stmt.vars, t.unrolled)
        uses.setdefault((buffer.name, axes, starts, writes), Use(buffer, axes, writes, starts))
    vector = 128 // min(bits) if bits else 0
    known = None if any(n is None for n in extents) else tuple(n or 0 for n in extents)
    if not bits:
        own = [u.buffer.dtype.bits for u in uses.values()]
        vector = max(1, 128 // max(own)) if own else 4
    return Nest(stmt, known, list(uses.values()), max(1, min(vector, 16)), outside=bool(bits))


def accesses(
    body: Block,
) -> Iterator[tuple[Load | LoadVector | Store | StoreVector | Region, bool]]:
    """Every access to a buffer in statements, and whether it writes."""
    for stmt in statements(body):
        if isinstance(stmt, (Store, StoreVector)):
            yield stmt, True
        elif isinstance(stmt, Atomic):
            yield stmt.dst, True
        for node in own_nodes(stmt):
            if isinstance(node, (Load, LoadVector)):
                yield node, False


def walked(
    indices: Sequence[Expr], variables: Sequence[Var], unrolled: Collection[Var]
) -> tuple[Axes | None, Starts]:
    """Which variable walks each index, if each is a variable of its own or 0, and what is added to
    it: numbers, and variables of unrolled loops, so that registers are known when it is compiled.
    """
    out: list[int | None] = []
    starts: list[Expr | None] = []
    for index in indices:
        i, start = index, None
        if isinstance(index, Binary) and index.op is BinaryOp.ADD:
            i, start = index.a, index.b
            if i not in variables:
                i, start = start, i
        if isinstance(i, Var) and i in variables:
            out.append(variables.index(i))
        elif int_value(i) == 0 and start is None:
            out.append(None)
        else:
            return None, ()
        if start is not None and any(
            isinstance(n, (Load, LoadVector)) or (isinstance(n, Var) and n not in unrolled)
            for n in start.walk()
        ):
            return None, ()
        starts.append(start)
    real = [a for a in out if a is not None]
    return (tuple(out), tuple(starts)) if len(set(real)) == len(real) else (None, ())


def fits(axes: Axes, shape: tuple[int, ...], nest: tuple[int, ...]) -> bool:
    """Whether a nest walks an array from end to end, axes of extent 1 left out."""
    return all(n == (1 if a is None else nest[a]) for a, n in zip(axes, shape, strict=True))


def nest_spread(nest: Nest, found: Layouts, threads: int, *, default: bool) -> Spread | None:
    """How the iterations of a nest lie among the threads: as the elements of the fragment that it
    walks with all axes, what is written first; else, with `default`, coalesced.
    """
    if nest.extents is None:
        return None
    for use in sorted(nest.uses, key=lambda u: not u.writes):
        spread = found.of.get(use.buffer.name)
        spread = spread and use.part(spread, nest.extents)
        if spread is None or use.axes is None:
            continue
        there = {a: k for k, a in enumerate(use.axes) if a is not None}
        missing = [a for a, n in enumerate(nest.extents) if a not in there and n != 1]
        if not missing:
            back = [there.get(a) for a in range(len(nest.extents))]
            return spread.through(back, nest.extents)
    if not default:
        return None
    return coalesced(nest.extents, threads, nest.vector)


def direct(use: Use, spread: Spread, nest: Spread) -> bool:
    """Whether each thread finds in its registers what its iterations use."""
    part = use.part(spread, nest.shape)
    if part is None or use.axes is None:
        return False
    there = {a: k for k, a in enumerate(use.axes) if a is not None}
    mine = {
        (there[d.axis], d.size, d.weight, d.thread) for d in nest.thread_digits if d.axis in there
    }
    other = {(d.axis, d.size, d.weight, d.thread) for d in part.thread_digits}
    if mine != other:
        return False
    alone = all(d.axis in there for d in nest.thread_digits)
    return alone or not use.writes
