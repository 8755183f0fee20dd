"""Runs one kernel: its grid, cluster by cluster, each by groups of warps.

What enters: a translated kernel, its parameters by name and a schedule. What leaves: changed
memories, and findings in the report. Clusters run one after the other, unless the kernel can wait
for another one of them: then all run at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilelang.errors import InternalError, Loc, TileError
from tilelang.ir.expr import Var
from tilelang.ir.node import Node
from tilelang.ir.thread import Array, Elem, Instr, Kernel, Slot, Space, TensorMap, Write
from tilelang.ir.tile import Block as Body
from tilelang.ir.tile import Break, If, Let, ThreadReturn, While
from tilelang.isa.instr import Rows
from tilelang.simulator.gpu.block import Block, Cluster, Machine
from tilelang.simulator.gpu.group import Group
from tilelang.simulator.gpu.partition import partition
from tilelang.simulator.gpu.rows.registry import ENDS
from tilelang.simulator.gpu.rows.sync import is_complete
from tilelang.simulator.gpu.translate import Translated, bodies, statements, translate
from tilelang.simulator.machine import Wait

LARGEST_SHARED = 256 * 1024


@dataclass(frozen=True)
class Prepared:
    """A kernel with what is known of it before any launch."""

    kernel: Kernel
    code: Translated
    groups: list[list[int]]
    together: bool


def prepare(kernel: Kernel, rows: Rows) -> Prepared:
    """Translate a kernel."""
    code = translate(kernel, rows)
    return Prepared(kernel, code, partition(kernel, rows), _waits_for_blocks(kernel))


def _waits_for_blocks(kernel: Kernel) -> bool:
    """Whether a block may wait for another one that is not of its cluster."""
    for stmt in statements(kernel.body):
        if isinstance(stmt, Instr) and stmt.row == "grid.sync":
            return True
        if isinstance(stmt, While) and _ends_by_memory(stmt):
            return True
    return False


def _ends_by_memory(loop: While) -> bool:
    """Whether the end of a loop depends on what it reads from global memory."""
    known, before, ends = set[str](), -1, False
    while before != len(known):
        before = len(known)
        ends = _from_memory(loop.body, known, under=False)
    return ends or _is_from_memory(loop.cond, known)


def _from_memory(body: Body, known: set[str], *, under: bool) -> bool:
    """Adds the names whose values come from global memory, or are given `under` a condition that
    does; whether a loop is left under one.
    """
    ends = False
    for stmt in body:
        here = under
        match stmt:
            case Let() if _is_from_memory(stmt.value, known):
                known.add(stmt.var.name)
            case Write() if under or _is_from_memory(stmt.value, known):
                known.add(stmt.array.name)
            case Instr() if under or any(
                _is_from_memory(n, known) for n in (*stmt.outs, *stmt.ins)
            ):
                known.update(v.name for v in stmt.results)
                known.update(s.array.name for s in stmt.outs)
            case If():
                here = under or _is_from_memory(stmt.cond, known)
            case Break() | ThreadReturn():
                ends = ends or under
            case _:
                pass
        for inner in bodies(stmt):
            ends = _from_memory(inner, known, under=here) or ends
    return ends


def _is_from_memory(value: Node, known: set[str]) -> bool:
    return any(
        isinstance(n, TensorMap)
        or (isinstance(n, (Elem, Slot)) and n.array.space is Space.GLOBAL)
        or (isinstance(n, (Var, Array)) and n.name in known)
        for n in value.walk()
    )


def launch(
    prepared: Prepared, machine: Machine, grid: Sequence[int], values: dict[str, Any]
) -> None:
    """Run all blocks."""
    kernel = prepared.kernel
    if kernel.shared > LARGEST_SHARED:
        raise InternalError(f"{kernel.name} takes {kernel.shared} bytes of shared memory")
    warps = -(-math.prod(kernel.block) // 32)
    machine.grid.warps = warps * math.prod(grid)
    waiting: list[Cluster] = []
    machine.pending = list(_clusters(grid, kernel.cluster))
    while machine.pending:
        places = machine.pending.pop(0)
        cluster = Cluster(machine, places)
        for place in places:
            Block(cluster, place, kernel.block, kernel.shared)
        for block in cluster.blocks:
            _start(prepared, block, values)
        waiting.append(cluster)
        if not prepared.together:
            _finish(machine, waiting)
    _finish(machine, waiting)


def _clusters(grid: Sequence[int], cluster: Sequence[int]) -> Iterator[list[tuple[int, ...]]]:
    """The places of the blocks of each cluster, x fastest."""
    shape = (*cluster, *([1] * len(grid)))[: len(grid)]
    outer = [range(0, n, c) for n, c in zip(grid, shape, strict=True)]
    for corner in itertools.product(*reversed(outer)):
        inner = [range(a, a + c) for a, c in zip(corner, reversed(shape), strict=True)]
        yield [tuple(reversed(at)) for at in itertools.product(*inner)]


def _start(prepared: Prepared, block: Block, values: dict[str, Any]) -> None:
    kernel = prepared.kernel
    fixed = dict(values)
    for v, at in zip(kernel.vars, block.place, strict=True):
        fixed[v.name] = np.asarray(at, v.type.numpy)[()]
    for warps in prepared.groups:
        group = Group(block, warps)
        mine = dict(fixed)
        flat = group.threads
        for v, extent in zip(kernel.thread_vars, kernel.block, strict=False):
            mine[v.name] = (flat % extent).astype(v.type.numpy)
            flat = flat // extent
        steps = _run(prepared.code.function(group, mine, group.mask), group, kernel.loc)
        block.machine.scheduler.spawn(group.name, steps)


def _run(steps: Iterator[Wait | None], group: Group, loc: Loc | None) -> Iterator[Wait | None]:
    """The steps of a group, and what its end means to others."""
    try:
        yield from steps
    except TileError as e:
        raise (e.with_loc(loc) if loc is not None else e) from None
    block = group.block
    block.ended.update(group.warps)
    for barrier in block.named.values():
        if barrier.warps and is_complete(block, barrier):
            barrier.finish()


def _finish(machine: Machine, clusters: list[Cluster]) -> None:
    machine.scheduler.run()
    for cluster in clusters:
        for block in cluster.blocks:
            for look in ENDS:
                look(block)
            block.forget()
        machine.clocks.drop(cluster.team)
        cluster.blocks.clear()
    clusters.clear()
