"""Products of a warpgroup (wgmma): asynchronous, in order among themselves.

PTX ISA 9.0: "wgmma.mma_async", "wgmma.fence", "wgmma.commit_group", "wgmma.wait_group". A product
reads its descriptors' memory through the async proxy and works on its registers at any time up to
the wait for its group. Each of the four warps issues its part by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilelang.simulator.gpu import fragments
from tilelang.simulator.gpu.arrays import Place, Registers, Values
from tilelang.simulator.gpu.arrays import Use as InUse
from tilelang.simulator.gpu.block import ASYNC, WARP
from tilelang.simulator.gpu.decode import places, wgmma_matrix
from tilelang.simulator.gpu.group import Group
from tilelang.simulator.gpu.numbers import dtype_of, widened
from tilelang.simulator.gpu.rows.registry import Use, row
from tilelang.simulator.machine import Agent, Groups, Queue, Wait, Who
from tilelang.simulator.machine.schedule import Steps

WARPGROUP = 128
_SHAPE = re.compile(r"m64n(\d+)k(\d+)")


@dataclass
class _Unit:
    """The products of one warpgroup: in order, in groups; `parts` has the actors of each product,
    one for the part of each warp.
    """

    queue: Queue
    groups: Groups = field(default_factory=Groups)
    parts: dict[Agent, Parts] = field(default_factory=dict[Agent, "Parts"])


@dataclass(frozen=True)
class Parts:
    """The actors of the parts of a product, and their epochs."""

    actors: list[int]
    epochs: list[int]


@dataclass(frozen=True)
class _Shape:
    n: int
    k: int
    d: str
    a: str
    b: str
    in_registers: bool


def _shape(use: Use) -> _Shape:
    parts = use.facts.parts
    found = _SHAPE.fullmatch(parts[1])
    if found is None:
        raise use.refused("has a shape that is not known")
    return _Shape(int(found[1]), int(found[2]), *parts[2:5], in_registers=parts[-1] == "rs")


def _warpgroups(use: Use) -> Iterator[tuple[int, slice]]:
    """The warpgroups that take part, by their number in the block, and their lanes in the group."""
    group = use.group
    here = set(use.whole_warps())
    done: set[int] = set()
    for k in sorted(here):
        number = group.warps[k] // 4
        if number in done:
            continue
        done.add(number)
        wanted = [group.warps.index(w) if w in group.warps else -1 for w in _warps(number)]
        if not set(wanted) <= here or wanted != list(range(wanted[0], wanted[0] + 4)):
            raise use.fault(
                "divergence",
                f"{use.facts.row} by a part of warpgroup {number}",
                expected="all of its four warps",
            )
        yield number, slice(wanted[0] * WARP, wanted[0] * WARP + WARPGROUP)


def _warps(number: int) -> range:
    return range(4 * number, 4 * number + 4)


def _unit(group: Group, number: int) -> _Unit:
    def make() -> _Unit:
        name = f"the products of warpgroup {number}"
        return _Unit(Queue(group.block.machine.scheduler, name, ordered=True))

    return group.block.unit(("wgmma", number), make)


@row("wgmma.descriptor")
def descriptor(use: Use) -> tuple[Values]:
    """The 64 bits that the emitted code computes: the address is joined with constant fields."""
    from tilelang.targets.cuda import descriptors  # the encoder: these are the bits it prints

    imm = use.imm
    fixed = descriptors.matrix(
        "wgmma", swizzle=imm["swizzle"], leading=imm["leading"], stride=imm["stride"]
    )
    array, index = use.ins[0].array, use.ins[0].index
    address = np.asarray(array.start + np.asarray(index, np.int64) * array.item)
    return ((np.uint64(fixed) | ((address & 0x3FFFF) >> 4).astype(np.uint64)),)


@row("wgmma.fence")
def fence(use: Use) -> None:
    """Registers that were written may be used by products from here on."""
    for registers in use.group.watched:
        registers.changed = False


@row("wgmma.ready")
def ready(use: Use) -> None:
    """No instruction: from here on code may use registers that no product is working on."""
    for place in use.outs:
        array = place.array
        assert isinstance(array, Registers)
        array.check(int(place.index), place.count, use.site, writes=True)


@row("wgmma.m64*")
def product(use: Use) -> Steps:
    """Issues d = (d if scale_d else 0) + a @ b."""
    shape, group = _shape(use), use.group
    d, a, b = use.outs[0], use.ins[0], use.value(1, np.uint64)
    scale = use.value(2)
    for place in (x for x in (d, a) if isinstance(x, Place)):
        _check_registers(use, place)
    for number, lanes in _warpgroups(use):
        unit = _unit(group, number)
        issuers = group.actors[lanes].reshape(4, WARP)
        label, team = f"a product of warpgroup {number}", group.team
        actors = [team.fork(mine, label, ASYNC) for mine in issuers]
        first = a if shape.in_registers else int(use.value(0, np.uint64)[lanes.start])
        work = _Work(use, shape, lanes, actors, first, int(b[lanes.start]))
        steps = work.steps(d, bool(scale[lanes.start]))
        operation = unit.queue.put(f"{use.facts.row} ({use.loc})", steps, use.loc)
        unit.groups.add(operation)
        unit.parts[operation] = Parts(actors, team.epochs[actors].tolist())
        for place, writes in ((d, True), (a, False)):
            if isinstance(place, Place):
                _use(place, operation, use.site, writes=writes)
    yield None


def _check_registers(use: Use, place: Place) -> None:
    array = place.array
    if not isinstance(array, Registers):
        raise use.refused("takes registers")
    if array.changed:
        site = use.group.report.sites[use.site]
        use.group.report.add(
            "async",
            f"{array.name} was written by threads, and a product uses it with no fence between",
            site.loc,
            label=site.what,
            help="wgmma.fence comes between the two",
        )
        array.changed = False


def _use(place: Place, operation: Agent, site: int, *, writes: bool) -> None:
    array, first = place.array, int(place.index)
    assert isinstance(array, Registers)
    array.uses.append(InUse(operation, first, first + place.count, writes, site))


@dataclass
class _Work:
    """One product of one warpgroup: descriptors as bits, registers by reference."""

    use: Use
    shape: _Shape
    lanes: slice
    actors: list[int]
    a: Any
    b: int

    def steps(self, d: Place, keep: bool) -> Steps:
        """Reads its operands, later writes its result."""
        s, team = self.shape, self.use.group.team
        left = widened(self._left(), s.a)
        at = self._places(self.b, s.n, s.b, self.use.imm.get("trans_b", False))
        every = [self._read(at, actor) for actor in self.actors]  # each warp reads all of B
        right = widened(_elements(every[0], s.b), s.b)
        yield None
        registers = d.array
        assert isinstance(registers, Registers)
        first = int(d.index)
        regs = registers.data[first : first + d.count, self.lanes]
        place, before = fragments.wgmma_result(s.n), None
        if keep:
            before = np.zeros((64, s.n), left.dtype)
            before[place] = widened(regs, s.d)
        add = self.use.group.block.machine.sums
        regs[...] = add(before, left, right, (s.d, s.a, s.b), "wgmma")[place]
        for actor in self.actors:
            team.end(actor)

    def _left(self) -> Values:
        """A (64, k): from registers, or 16 rows from memory by each warp."""
        s = self.shape
        if not s.in_registers:
            at = self._places(self.a, 64, s.a, self.use.imm.get("trans_a", False))
            parts = [self._read(at[16 * w : 16 * w + 16], self.actors[w]) for w in range(4)]
            return _elements(np.concatenate(parts), s.a)
        registers, first = self.a.array, int(self.a.index)
        regs = registers.data[first : first + self.a.count, self.lanes]
        out = np.zeros((64, s.k), regs.dtype)
        out[fragments.wgmma_operand(s.k, dtype_of(s.a).bits)] = regs
        return out

    def _places(self, word: int, rows: int, name: str, across: bool) -> Values:
        """Where the bytes of a matrix (rows, k) lie that a descriptor names."""
        size = dtype_of(name).numpy.itemsize
        return places(wgmma_matrix(word), rows, self.shape.k, size, across=across)

    def _read(self, at: Values, actor: int) -> Values:
        who = Who(self.use.group.team, actor, self.use.site, ASYNC)
        return self.use.group.block.shared.read_places(at, who, at.shape[-1])


def _elements(raw: Values, name: str) -> Values:
    return np.ascontiguousarray(raw).view(dtype_of(name).numpy)[..., 0]


@row("wgmma.commit_group")
def commit(use: Use) -> Steps:
    """Ends a group of products."""
    for number, _ in _warpgroups(use):
        _unit(use.group, number).groups.commit()
    yield None


@row("wgmma.wait_group")
def wait(use: Use) -> Steps:
    """Waits until all but the youngest groups are over."""
    group, count = use.group, use.imm["count"]
    mine = [(_unit(group, number), lanes) for number, lanes in _warpgroups(use)]
    yield Wait(
        lambda: not any(unit.groups.pending(count) for unit, _ in mine), "its products", use.loc
    )
    for unit, lanes in mine:
        closed = unit.groups.closed
        over = [a for g in closed[: len(closed) - count] for a in g if a in unit.parts]
        threads = group.actors[lanes].reshape(4, WARP)
        for operation in over:
            parts = unit.parts.pop(operation)
            for mine, actor, epoch in zip(threads, parts.actors, parts.epochs, strict=True):
                group.team.learn(mine, np.full(WARP, actor), epoch, use.facts)
        gone = set(over)
        for registers in group.watched:
            registers.uses = [u for u in registers.uses if u.operation not in gone]
