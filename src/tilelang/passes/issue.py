"""Instructions of the machine in a program of the tile stage.

What enters: passes that have chosen an instruction by the name of its row, on regions of buffers.
What leaves: `Issue` statements, which `lower_memory` turns into `Instr`s on flat arrays.
"""

from __future__ import annotations

from typing import Any

from tilelang.ir.expr import Buffer, Expr, Region, Var
from tilelang.ir.node import Effect, Node, attr, binds, body, operand
from tilelang.ir.tile import Block, Gemm, Stmt, Store, TileOp

PLACEMENT = "placement"
"""The kind of the annotation that says how tiles lie in shared memory (`Placement.key`)."""

FED = "fed"
"""The kind of the annotation that names tiles that units of the chip read: who writes them orders
that before what the units do.
"""

ASYNC = (("async", True),)
"""The hint on a `Write` that the hardware may carry it out on its own, until the group that it
belongs to is waited for.
"""


class Span(Node):
    """`count` neighbouring elements of a flat buffer (of one axis), from `index` on."""

    buffer: Buffer = operand()
    index: Expr = operand()
    count: int = attr()


class Issue(Stmt):
    """One instruction by the name of its row; operands as of `ir.thread.Instr`."""

    row: str = attr()
    outs: tuple[Region | Span, ...] = operand(effect=Effect.UPDATE)
    ins: tuple[Region | Span | Expr | TensorBox, ...] = operand(effect=Effect.READ)
    results: tuple[Var, ...] = binds(default=())
    imm: tuple[tuple[str, Any], ...] = attr(default=())


class AsyncStore(Store):
    """A store of what is read from global memory, which may be under way until its group is waited
    for. It is a plain store where the hardware has no such copy.
    """


class TensorBox(Node):
    """Boxes of `box` elements of a global buffer (its axes in order), as tensor copies move them;
    `swizzle` is the span in bytes of the swizzle in shared memory.
    """

    buffer: Buffer = operand()
    box: tuple[int, ...] = attr()
    swizzle: int = attr()


class Handover(Stmt):
    """`body` tells others that nobody here reads `tiles` any more."""

    tiles: tuple[Region, ...] = operand(effect=Effect.READ)
    body: Block = body()


class IssuedGemm(Gemm):
    """A product that is only begun; the author waits for it."""

    def at_once(self) -> Gemm:
        """The product, waited for where it stands."""
        return Gemm(
            self.a,
            self.b,
            self.c,
            self.clear_accum,
            transpose_a=self.transpose_a,
            transpose_b=self.transpose_b,
            policy=self.policy,
            loc=self.loc,
        )


class Started(Stmt):
    """A product that is under way from here on, until a `Completed`."""

    body: Block = body()


class Completed(Stmt):
    """At most `count` products of a warpgroup are under way; what the others use is `fragments` in
    registers and `tiles` in shared memory.
    """

    count: int = attr()
    fragments: tuple[Buffer, ...] = operand(effect=Effect.UPDATE)
    tiles: tuple[Region, ...] = operand(effect=Effect.READ)


class Roles(Stmt):
    """`consumers` are done by the threads that the author asked for, `producers` by `threads` more
    of them, at the same time.
    """

    consumers: Block = body()
    producers: Block = body()
    threads: int = attr()


class Arm(Stmt):
    """Statements of `count` threads of the block, from the thread `first` on."""

    body: Block = body()
    first: int = attr()
    count: int = attr()


ARM = "tile.arm"
"""A row without an instruction, at the start of what threads of an arm do: the first thread, how
many there are, and the barrier at which they meet. `synchronize` looks at it and takes it away.
"""

READ, WRITTEN = "tile.read", "tile.written"
"""Rows without an instruction: the hardware reads, or changes, a tile from here on. `synchronize`
looks at them and takes them away.
"""

LANES_READ, LANES_WRITTEN = "lanes.read", "lanes.written"
"""Rows without an instruction: the warp of a thread reads, or writes, what the thread holds of a
part of Tensor Memory. `synchronize` looks at them and takes them away.
"""

DONE = "tile.done"
"""A row without an instruction: each thread has waited for what the hardware did with these tiles.
`synchronize` looks at it and takes it away.
"""

KEPT = "tile.kept"
"""A row without an instruction: until here the hardware may read these tiles, so they keep their
place. `synchronize` takes it away.
"""

TENSORS = "tensor_memory"
"""The kind of the annotation that says how buffers lie in Tensor Memory (`Cells.key`) and which
variables have their addresses.
"""


class TensorLoad(TileOp):
    """Copies a part of Tensor Memory into a whole fragment, which takes the layout of `Cells`."""

    src: Region = operand(effect=Effect.READ)
    dst: Region = operand(effect=Effect.WRITE)


class TensorStore(TileOp):
    """Copies a whole fragment, which takes the layout of `Cells`, into Tensor Memory."""

    src: Region = operand(effect=Effect.READ)
    dst: Region = operand(effect=Effect.WRITE)
