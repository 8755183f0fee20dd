"""Which warps of a block go through a kernel in lockstep.

What enters: a kernel. What leaves: groups of warps. Warps are in one group where every statement
that may wait is reached by all of them alike, so that no warp of a group waits for another one of
it. A condition of the thread index alone is evaluated for every thread; where anything else that
differs between threads decides about a wait, each warp is a group of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.emulator.writer import Writer
from tilelang.ir.expr import Expr, Var
from tilelang.ir.node import Node
from tilelang.ir.thread import Addr, Elem, Instr, Kernel, Slot
from tilelang.ir.tile import Block, For, If, Let, Stmt, While
from tilelang.ir.walk import bodies
from tilelang.isa.instr import Rows
from tilelang.passes.simt.uniform import Uniform
from tilelang.simulator import values
from tilelang.simulator.gpu.expressions import Expressions
from tilelang.simulator.gpu.translate import spins, statements

WARP = 32


def partition(kernel: Kernel, rows: Rows) -> list[list[int]]:
    """The warps of each group, from the first on."""
    warps = -(-math.prod(kernel.block) // WARP)
    signs = _Signs(kernel, rows)
    # Warps that carry out one instruction together cannot go apart.
    together = max((rows[r].threads for r in signs.rows_used), default=1)
    each = max(1, together // WARP)
    if signs.apart:
        return [list(range(w, min(w + each, warps))) for w in range(0, warps, each)]
    groups: dict[tuple[Any, ...], list[int]] = {}
    for first in range(0, warps, each):
        mine = range(first, min(first + each, warps))
        key = tuple(_of_warp(s, w) for s in signs.found for w in mine)
        groups.setdefault(key, []).extend(mine)
    return list(groups.values())


def _of_warp(sign: npt.NDArray[Any], warp: int) -> tuple[Any, ...]:
    here = sign[warp * WARP : (warp + 1) * WARP]
    return tuple(np.unique(here).tolist())


ALONE = frozenset(
    {
        "cp.async.wait_group",
        "cp.async.wait_all",
        "cp.async.bulk.wait_group",
        "cp.async.bulk.wait_group.read",
        "wgmma.wait_group",
        "setmaxnreg",
        "bar.warp.sync",
    }
)
"""Rows that wait for nothing that another warp does."""


class _Signs:
    """What differs between threads and decides about waits: one array over threads for each such
    value in `found`; `apart` where one cannot be known here.
    """

    def __init__(self, kernel: Kernel, rows: Rows) -> None:
        self.kernel = kernel
        self.rows = rows
        self.uniform = Uniform(kernel)
        self.lets: dict[str, Expr] = {}
        self.found: list[npt.NDArray[Any]] = []
        self.apart = False
        self.rows_used = {
            s.row for s in statements(kernel.body) if isinstance(s, Instr) and s.row in rows
        }
        self._threads = _thread_indices(kernel)
        self._block(kernel.body)

    def _block(self, body: Block) -> None:
        for stmt in body:
            if self.apart:
                return
            if isinstance(stmt, Let):
                self.lets[stmt.var.name] = stmt.value
            for e in self._decisive(stmt):
                if self.uniform.differs(e):
                    self._note(e)
            for inner in bodies(stmt):
                self._block(inner)

    def _decisive(self, stmt: Stmt) -> Iterator[Node]:
        """The values of a statement that decide who waits, and for what."""
        if isinstance(stmt, Instr):
            if self._is_wait(stmt):
                yield from (x.index if isinstance(x, Slot) else x for x in stmt.ins)
        elif isinstance(stmt, (If, For, While)) and self._waits(stmt):
            heads = (stmt.start, stmt.stop, stmt.step) if isinstance(stmt, For) else (stmt.cond,)
            yield from (e for e in heads if e is not None)

    def _waits(self, stmt: Stmt) -> bool:
        for s in statements((stmt,)):
            if isinstance(s, Instr) and self._is_wait(s):
                return True
            if isinstance(s, While) and spins(s):
                return True
        return False

    def _is_wait(self, stmt: Instr) -> bool:
        return stmt.row in self.rows and self.rows[stmt.row].waits and stmt.row not in ALONE

    def _note(self, e: Node) -> None:
        spelled = self._spelled(e) if isinstance(e, Expr) else None
        if spelled is None:
            self.apart = True
            return
        writer = Writer()
        writer.define(np=np, pack=values.pack)
        text = Expressions(writer).of(spelled, "None")
        found = eval(text, {**writer.namespace, **self._threads})
        self.found.append(np.broadcast_to(found, (math.prod(self.kernel.block),)))

    def _spelled(self, e: Expr) -> Expr | None:
        """An expression of thread indices alone; None for any other."""

        def one(n: Node) -> Node | None:
            if isinstance(n, Var) and n.name in self.lets:
                return self.lets[n.name].rewrite(one)
            return None

        made = e.rewrite(one)
        names = {v.name for v in self.kernel.thread_vars}
        for n in made.walk():
            if isinstance(n, (Elem, Addr, Slot)) or (isinstance(n, Var) and n.name not in names):
                return None
        return made


def _thread_indices(kernel: Kernel) -> dict[str, npt.NDArray[Any]]:
    flat = np.arange(math.prod(kernel.block))
    out: dict[str, npt.NDArray[Any]] = {}
    for v, extent in zip(kernel.thread_vars, kernel.block, strict=False):
        out[f"v_{v.name}"] = (flat % extent).astype(v.type.numpy)
        flat = flat // extent
    return out
