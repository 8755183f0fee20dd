"""Where the author says how buffers lie (`T.annotate_layout`, `loop_layout=`).

What enters: a function as the author wrote it. What leaves: one in which shared buffers lie as the
author says, where that is a placement that accesses can carry out: in rows, with gaps between rows,
or with groups of 16 bytes exchanged as the hardware does. Products choose for their operands, and
inference for registers; what is not carried out is told in the report. Results never depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tilelang.errors import Loc
from tilelang.ir.expr import Buffer, const
from tilelang.ir.node import Node
from tilelang.ir.special import GemmBlockScaled
from tilelang.ir.sync import AsyncCopy, AsyncGemm, CopyCluster, TmaCopy, TmaGather4, TmaScatter4
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Block,
    Copy,
    Function,
    Gemm,
    Launch,
    Parallel,
    Pipelined,
    Stmt,
)
from tilelang.isa.target import Target
from tilelang.layout.placement import GROUP, Placement, conflict_free, paneled
from tilelang.passes.build import Names, map_statements
from tilelang.passes.issue import PLACEMENT
from tilelang.passes.lower_copies import view_roots
from tilelang.passes.lower_parallel import statements
from tilelang.passes.simt.launch import Note, Threads, noted, static_shape
from tilelang.passes.simt.stages import unusual
from tilelang.scopes import Memory


def author_layouts(fn: Function, target: Target) -> Function:
    """Shared buffers lie as the author says, or the report tells why not."""
    del target
    names, roots = Names(fn), view_roots(fn)
    notes: list[Note] = []

    def one(stmt: Stmt) -> Block | None:
        if not isinstance(stmt, Launch):
            return None
        threads = Threads(fn, stmt, names, roots)
        made = _Layouts(threads)
        body = made.lower(stmt.body)
        notes.extend(threads.notes)
        return (stmt.with_(body=body),)

    return noted(fn.with_(body=map_statements(fn.body, one)), notes)


@dataclass(frozen=True)
class _Wish:
    """What an author says of a buffer: in words, and what it comes to (`layout.stated`)."""

    buffer: Buffer
    said: str
    kind: str
    number: int
    loc: Loc | None


class _Layouts:
    """One launch."""

    def __init__(self, t: Threads) -> None:
        self.t = t
        body = t.launch.body
        products = [
            s for s in statements(body) if isinstance(s, (Gemm, AsyncGemm, GemmBlockScaled))
        ]
        self.multiplied = {r.buffer.name for s in products for r in (s.a, s.b)}
        loops = [s for s in statements(body) if isinstance(s, Pipelined)]
        self.pipelined = {
            s.dst.buffer.name for p in loops for s in statements(p.body) if isinstance(s, Copy)
        }
        self.moved = {
            r.buffer.name
            for s in statements(body)
            if isinstance(s, (TmaCopy, TmaGather4, TmaScatter4, CopyCluster, AsyncCopy))
            for r in (s.src, s.dst)
        }
        self.gaps: dict[str, Buffer] = {}

    def lower(self, body: Block) -> Block:
        """The body with placements of its own."""
        for s in statements(body):
            if isinstance(s, (Copy, Parallel)) and dict(s.hints).get("loop_layout"):
                self.t.note("declined", "loop_layout: nests take the layouts of fragments", s.loc)
            if isinstance(s, Annotate) and s.kind == "l2_hit_ratio":
                self.t.note("declined", "no part of the L2 cache is set aside for arrays", s.loc)
        lies: list[Stmt] = []
        for wish in wishes(body):
            found = self.carried_out(wish)
            if isinstance(found, str):
                said = f"{wish.buffer.name} does not lie as {wish.said}: {found}"
                self.t.note("declined", said, wish.loc)
                continue
            self.t.note("placed", f"{wish.buffer.name} lies as {wish.said}", wish.loc)
            if found is not None:
                key = found.key()
                lies.append(Annotate(PLACEMENT, buffers=(wish.buffer,), values=(key,)))
        return (*lies, *self.with_gaps(body))

    def carried_out(self, wish: _Wish) -> Placement | str | None:
        """How a buffer lies by a wish, None where it does so anyway; or why it does not."""
        shape = static_shape(wish.buffer)
        fault = next(self.faults(wish), None)
        if fault is not None or shape is None:
            return fault
        anyway = wish.kind == "rows" or (wish.kind == "padded" and wish.number == shape[-1])
        if anyway or wish.buffer.name in self.multiplied:
            return None
        return self.placement(wish, shape)

    def faults(self, wish: _Wish) -> Iterator[str]:
        """Why the author does not place a buffer."""
        buffer, shape = wish.buffer, static_shape(wish.buffer)
        name = buffer.name
        if self.t.memory(buffer) is not Memory.SHARED:
            yield "only shared buffers are placed; registers are spread by inference"
        if name in self.t.roots or name in self.t.roots.values():
            yield "another view of it exists"
        if shape is None or len(shape) < 2 or buffer.dtype.is_subbyte or buffer.dtype.is_vector:
            yield "it has no rows of whole bytes, of a size known before"
        if name in self.multiplied and wish.kind != "swizzled":
            yield "products place their operands themselves"
        elif name not in self.multiplied and name in self.moved | self.pipelined:
            yield "tensor copies place what they move themselves"

    def placement(self, wish: _Wish, shape: tuple[int, ...]) -> Placement | str | None:
        """The placement of a buffer that nothing else places."""
        rows, columns = shape[-2:]
        bits = wish.buffer.dtype.bits
        if wish.kind == "padded":
            return self.padded(wish, shape)
        if wish.kind == "swizzled":
            found = paneled(rows, columns, bits) or conflict_free(rows, columns, bits)
            return found or "its rows are no whole groups of 16 bytes"
        if wish.kind == "swizzle":
            group, span = GROUP * 8 // bits, wish.number // GROUP
            if columns % (group * span):
                return f"its rows are no multiple of {wish.number} bytes"
            return Placement(rows, columns, group, span, group * span)
        return "it is no order of rows, with or without gaps, or of exchanged groups"

    def padded(self, wish: _Wish, shape: tuple[int, ...]) -> str | None:
        """Gaps between rows: the rows of the buffer are longer than what is used of them."""
        buffer, pitch = wish.buffer, wish.number
        if pitch < shape[-1]:
            return "rows would overlap"
        if unusual(self.t.launch.body, {buffer.name: buffer}) is not None:
            return "it is used as a whole buffer"
        self.gaps[buffer.name] = buffer.with_(shape=(*buffer.shape[:-1], const(pitch)))
        return None

    def with_gaps(self, body: Block) -> Block:
        """Statements in which buffers have gaps between their rows."""
        if not self.gaps:
            return body

        def used(n: Node) -> Node | None:
            return self.gaps.get(n.name) if isinstance(n, Buffer) else None

        def made(s: Stmt) -> Block | None:
            found = self.gaps.get(s.buffer.name) if isinstance(s, Alloc) else None
            return None if found is None else (s.with_(buffer=found),)

        return map_statements(tuple(s.rewrite(used) for s in body), made)


def wishes(body: Block) -> Iterator[_Wish]:
    """What the author says of the buffers of a launch."""
    for s in statements(body):
        if isinstance(s, Annotate) and s.kind == "layout":
            for buffer, value in zip(s.buffers, s.values, strict=True):
                said, kind, number = _parts(value)
                yield _Wish(buffer, said, kind, number, s.loc)


def _parts(value: Any) -> tuple[str, str, int]:
    said, kind, number = value
    return str(said), str(kind), int(number)
