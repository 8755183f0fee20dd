"""Places for the shared arrays of a block: arrays that are not needed at the same time share one.

What enters: a program whose shared arrays have no place. What leaves: one in which each has an
offset in its kernel's pool, and the pool has its size. An array is needed from its first use to its
last; a use inside a loop counts for the whole loop if the array was declared outside. Parts of a
block that follow each other, each for threads of its own, run at the same time: what one of them
uses shares no place with what another one does. An mbarrier is needed by all of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

from tilelang.ir.expr import int_value
from tilelang.ir.node import Kind, flat
from tilelang.ir.thread import Array, At, Declare, Instr, Kernel, Program, Slot, Space
from tilelang.ir.tile import Block, For, If, Stmt, While
from tilelang.isa.target import Target
from tilelang.passes.build import map_kernels, map_statements
from tilelang.passes.issue import ARM
from tilelang.passes.simt.switches import is_off
from tilelang.scopes import Memory

SMALL, MOST_SMALL = 256, 2048
"""Bytes of a small array, such as one through which warps exchange results, and of all of them."""


def plan_memory(program: Program, target: Target) -> Program:
    """Every shared array has a place."""
    apart = is_off(program, "memory-reuse")
    capacity = target.capacity(Memory.SHARED)
    room = 0 if capacity is None else capacity.amount
    return map_kernels(program, lambda kernel: _planned(kernel, room, apart=apart))


@dataclass
class _Life:
    """When an array is needed, by the numbers of statements."""

    array: Array
    declared: int
    first: int = -1
    last: int = -1
    arms: dict[int, set[int]] = field(default_factory=dict[int, "set[int]"])
    """The numbers of the arms that use it, by the time of the first arm beside them."""

    def use(self, first: int, last: int) -> None:
        """One more time at which it is needed."""
        self.first = first if self.first < 0 else min(self.first, first)
        self.last = max(self.last, last)

    def meets(self, other: _Life) -> bool:
        """Whether both are needed at some time."""
        if self.first <= other.last and other.first <= self.last:
            return True
        return any(len(self.arms[t] | other.arms[t]) > 1 for t in self.arms.keys() & other.arms)

    @property
    def bytes(self) -> int:
        """The size in memory."""
        size = int_value(self.array.size) if self.array.size is not None else 0
        return (size or 0) * self.array.type.numpy.itemsize


def _planned(kernel: Kernel, room: int, *, apart: bool) -> Kernel:
    """A kernel whose arrays have places; with `apart`, none shares its place.

    Small arrays share no place among each other where there is `room`: another array in the same
    place would cost a barrier.
    """
    lives = _Lives()
    lives.block(kernel.body, [])
    for name in _of_units(kernel):
        if name in lives.of:
            lives.of[name].use(0, lives.clock)
    found = [v for v in lives.of.values() if v.first >= 0]
    small = {v.array.name for v in found if v.bytes <= SMALL}
    few = sum(v.bytes for v in found if v.array.name in small) <= MOST_SMALL
    places, size = _places(found, small if few else set(), apart=apart)
    if size > room:
        places, size = _places(found, set(), apart=apart)
    offsets = dict.fromkeys(lives.of, 0) | places
    unused = {v.array.name for v in lives.of.values() if v.first < 0}

    def place(stmt: Stmt) -> Block | None:
        if isinstance(stmt, Declare) and stmt.array.name in offsets:
            if stmt.array.name in unused:
                return ()
            return (stmt.with_(offset=offsets[stmt.array.name]),)
        return None

    return kernel.with_(body=map_statements(kernel.body, place), shared=size)


def _of_units(kernel: Kernel) -> set[str]:
    """The arrays that units of the hardware use by themselves: mbarriers, at which some threads may
    still wait when others go on, addresses of Tensor Memory, and what is copied to another block,
    whose end that block alone knows. They keep their places.
    """
    return {
        slot.array.name
        for s in _statements(kernel.body)
        if isinstance(s, Instr)
        and s.row.startswith(("mbarrier", "tcgen05.alloc", "cp.async.bulk.cluster"))
        for slot in (*s.outs, *s.ins)
        if isinstance(slot, Slot)
    }


def _statements(body: Block) -> Iterator[Stmt]:
    for stmt in body:
        yield from _nested(stmt)


def _places(found: list[_Life], small: set[str], *, apart: bool) -> tuple[dict[str, int], int]:
    """The offset of each array, and the size of all; those that are `small` share none."""
    offsets: dict[str, int] = {}
    done: list[_Life] = []
    size = 0
    for life in sorted(found, key=lambda v: (-v.bytes, v.declared)):
        mine = life.array.name in small
        alone = [o for o in done if apart or o.meets(life) or (mine and o.array.name in small)]
        at = _free_place(life, [(offsets[o.array.name], o.bytes) for o in alone])
        offsets[life.array.name] = at
        size = max(size, at + life.bytes)
        done.append(life)
    return offsets, size


def _free_place(life: _Life, taken: list[tuple[int, int]]) -> int:
    """The lowest offset at which the array fits between those that are needed at the same time."""
    align = max(1, life.array.align or life.array.type.numpy.itemsize)
    at = 0
    for start, size in sorted(taken):
        if at + life.bytes <= start:
            break
        at = max(at, -(-(start + size) // align) * align)
    return at


class _Lives:
    """Numbers statements, and collects when each shared array is needed."""

    def __init__(self) -> None:
        self.of: dict[str, _Life] = {}
        self.root: dict[str, str] = {}
        self.clock = 0
        self.arms: list[tuple[int, int]] = []

    def block(self, body: Block, loops: list[tuple[int, int]]) -> None:
        for stmt in body:
            self.statement(stmt, loops)

    def statement(self, stmt: Stmt, loops: list[tuple[int, int]]) -> None:
        now = self.clock
        self.clock += 1
        if isinstance(stmt, Declare) and stmt.array.space is Space.SHARED:
            self.of[stmt.array.name] = _Life(stmt.array, now)
            return
        used = {self.root.get(a.name, a.name) for a in _arrays(stmt)}
        if isinstance(stmt, At):
            shared = [name for name in used if name in self.of]
            if shared:
                self.root[stmt.array.name] = shared[0]
        inner = loops
        end = now
        blocks = [getattr(stmt, f.name) for f in stmt.fields() if f.metadata["kind"] is Kind.BODY]
        if blocks:
            end = now + _count(blocks)
            if isinstance(stmt, (For, While)):
                inner = [*loops, (now, end)]
        for name in used:
            self.use(name, now, loops)
        if is_arm(stmt):
            self.beside(cast("If", stmt), inner, now, 0)
            return
        for block in blocks:
            self.block(block, inner)

    def beside(self, stmt: If, loops: list[tuple[int, int]], start: int, number: int) -> None:
        """An arm, and those that follow it without a statement between."""
        self.arms.append((start, number))
        self.block(stmt.then, loops)
        self.arms.pop()
        if len(stmt.orelse) == 1 and is_arm(stmt.orelse[0]):
            self.clock += 1
            self.beside(cast("If", stmt.orelse[0]), loops, start, number + 1)
        else:
            self.block(stmt.orelse, loops)

    def use(self, name: str, now: int, loops: list[tuple[int, int]]) -> None:
        life = self.of.get(name)
        if life is None:
            return
        around = [loop for loop in loops if loop[0] > life.declared]
        life.use(*(around[0] if around else (now, now)))
        for start, number in self.arms:
            life.arms.setdefault(start, set()).add(number)


def is_arm(stmt: Stmt) -> bool:
    """Whether a statement begins with the part of a block that threads of its own have."""
    first = stmt.then[0] if isinstance(stmt, If) and stmt.then else None
    return isinstance(first, Instr) and first.row == ARM


def _count(blocks: list[Block]) -> int:
    """How many statements lie inside."""
    return sum(len(list(_nested(s))) for block in blocks for s in block)


def _nested(stmt: Stmt) -> Iterator[Stmt]:
    yield stmt
    for f in stmt.fields():
        if f.metadata["kind"] is Kind.BODY:
            for inner in getattr(stmt, f.name):
                yield from _nested(inner)


def _arrays(stmt: Stmt) -> Iterator[Array]:
    """The arrays in a statement's own operands."""
    for f in stmt.fields():
        if f.metadata["kind"] is Kind.OPERAND:
            for node in flat(getattr(stmt, f.name)):
                yield from (n for n in node.walk() if isinstance(n, Array))
