"""The tile stage: statements of a kernel in which one block is one sequential program over tiles.

A `Function` holds host-level statements and `Launch`es; a launch holds block-level statements. What
each operation does to memory is declared once, on its operands (`effect=`); dependence analysis,
checks and the emulator read only that. Scopes are as declared; which memory a scope means is
decided by the dialect and the target.
"""

from __future__ import annotations

import enum
from typing import Any

from tilelang.dtypes import DType
from tilelang.ir.expr import Buffer, Expr, Region, Var
from tilelang.ir.node import Effect, Node, attr, binds, body, operand


class Stmt(Node):
    """A statement."""


Block = tuple[Stmt, ...]


class Param(Node):
    """A parameter of a function: a tensor (`buffer`) or a runtime scalar (`var`), exactly one of
    the two.

    `nullable` tensors may be passed as None when nothing reads or writes them. A pointer parameter
    has `pointer`.
    """

    name: str = attr()
    buffer: Buffer | None = binds(default=None)
    var: Var | None = binds(default=None)
    pointer: bool = attr(default=False)


class Function(Node):
    """A whole program: parameters, host-level statements and launches.

    `dynamic` are the symbolic sizes that launch binds from shapes and strides. `outputs` are the
    positions of parameters that are allocated and returned by the call. `dialect` is a value of
    `scopes.Dialect`.
    """

    name: str = attr()
    params: tuple[Param, ...] = operand()
    dynamic: tuple[Var, ...] = binds()
    body: Block = body()
    dialect: str = attr(default="common")
    outputs: tuple[int, ...] = attr(default=())
    attrs: tuple[tuple[str, Any], ...] = attr(default=())


class Launch(Stmt):
    """One kernel: `grid` blocks (1 to 3 extents) of `threads` threads.

    `threads` is None where the author left the choice to the target (1 to 3 extents otherwise).
    `vars` are the block indices, `thread_vars` the thread indices x, y, z. `cluster` is blocks per
    cluster, per axis.
    """

    grid: tuple[Expr, ...] = operand()
    vars: tuple[Var, ...] = binds()
    thread_vars: tuple[Var, ...] = binds()
    body: Block = body()
    threads: tuple[int, ...] | None = attr(default=None)
    cluster: tuple[int, ...] = attr(default=())


class Alloc(Stmt):
    """Gives a buffer storage for the rest of the enclosing block.

    Contents are undefined, except `local.var` (zero) and `init`, one value for the single element
    of a variable. `arrive_counts` are the expected arrivals of each barrier of a barrier buffer.
    """

    buffer: Buffer = binds()
    init: Expr | None = operand(default=None)
    arrive_counts: tuple[int, ...] = attr(default=())


class View(Stmt):
    """A second name for the storage of `source`, with another shape, strides or dtype, starting at
    `offset`.

    `offset` counts elements of `source` in row-major order.
    """

    buffer: Buffer = binds()
    source: Buffer = operand()
    offset: Expr | None = operand(default=None)


class Let(Stmt):
    """Binds an immutable name to a value computed here, for the rest of the enclosing block."""

    var: Var = binds()
    value: Expr = operand()


class Store(Stmt):
    """Writes one element. Out of bounds in global memory it does nothing; on chip it is a fault."""

    buffer: Buffer = operand(effect=Effect.WRITE)
    indices: tuple[Expr, ...] = operand()
    value: Expr = operand()


class AtomicStore(Store):
    """A `Store` in one piece, ordered against other threads' accesses.

    `memory_order` is one of relaxed, release, seq_cst.
    """

    buffer: Buffer = operand(effect=Effect.WRITE | Effect.ATOMIC)
    memory_order: str = attr(default="seq_cst")


class StoreVector(Stmt):
    """Writes a vector value over neighbouring elements of the last axis, bits as they are.

    Where `pred` is given and does not hold, nothing is written.
    """

    buffer: Buffer = operand(effect=Effect.WRITE)
    indices: tuple[Expr, ...] = operand()
    value: Expr = operand()
    pred: Expr | None = operand(default=None)


class LoopKind(enum.Enum):
    """How a sequential loop may be carried out; the meaning is the same for all."""

    SERIAL = "serial"
    UNROLL = "unroll"
    VECTORIZED = "vectorized"


class For(Stmt):
    """A sequential loop over `start, start + step, ...` below (above, for a negative step)
    `stop`.
    """

    var: Var = binds()
    start: Expr = operand()
    stop: Expr = operand()
    body: Block = body()
    step: Expr | None = operand(default=None)
    kind: LoopKind = attr(default=LoopKind.SERIAL)
    hints: tuple[tuple[str, Any], ...] = attr(default=())


class Parallel(Stmt):
    """A nest of loops from 0 whose iterations have no order and are spread over the threads of the
    block.
    """

    vars: tuple[Var, ...] = binds()
    extents: tuple[Expr, ...] = operand()
    body: Block = body()
    hints: tuple[tuple[str, Any], ...] = attr(default=())


class Pipelined(Stmt):
    """A sequential loop whose copies may be issued ahead; the meaning is that of the plain loop.

    `order` and `stage` are the author's schedule of the statements, empty when left to the
    compiler.
    """

    var: Var = binds()
    start: Expr = operand()
    stop: Expr = operand()
    body: Block = body()
    num_stages: int = attr(default=0)
    order: tuple[int, ...] = attr(default=())
    stage: tuple[int, ...] = attr(default=())
    hints: tuple[tuple[str, Any], ...] = attr(default=())


class While(Stmt):
    """Repeats while `cond` holds; `cond` is evaluated anew before each round."""

    cond: Expr = operand()
    body: Block = body()


class If(Stmt):
    """Runs `then` where `cond` holds, else `orelse`."""

    cond: Expr = operand()
    then: Block = body()
    orelse: Block = body(default=())


class Break(Stmt):
    """Leaves the innermost sequential loop."""


class Continue(Stmt):
    """Goes on with the next round of the innermost loop; in a parallel one, ends the iteration."""


class ThreadReturn(Stmt):
    """Ends the calling thread."""


class Assert(Stmt):
    """Stops the launch with `message` where `cond` does not hold.

    `kind` is that of the error, for what the compiler checks (`bounds`, `shape`, `deadlock`); the
    author's own assertions have none.
    """

    cond: Expr = operand()
    message: str = attr(default="")
    kind: str = attr(default="")


class Assume(Stmt):
    """States a fact about values; generates nothing. A false one is a finding of the dynamic
    check, or of the call (`passes/assumptions.py`).
    """

    cond: Expr = operand()


class Print(Stmt):
    """Prints a value, a whole buffer, or only a message.

    `thread` is the index of the thread that prints, x first, where no thread is left to name it.
    """

    value: Expr | Buffer | None = operand(default=None, effect=Effect.READ)
    message: str = attr(default="")
    thread: tuple[Expr, ...] = operand(default=())
    warp_group: int = attr(default=0)
    warp: int = attr(default=0)


class Annotate(Stmt):
    """Facts about buffers or the whole kernel that do not change the meaning of statements, but for
    `safe_value`.

    `kind` is one of the names in `ANNOTATIONS`; `buffers` and `values` belong together one by one.
    """

    kind: str = attr()
    buffers: tuple[Buffer, ...] = operand(default=())
    values: tuple[Any, ...] = attr(default=())
    exprs: tuple[Expr, ...] = operand(default=())


ANNOTATIONS = frozenset(
    {
        "address",
        "buffer_versions",
        "layout",
        "safe_value",
        "l2_hit_ratio",
        "restrict",
        "min_blocks_per_sm",
        "swizzle",
        "placement",
        "scales_of",
        "split_rows",
        "compile_flags",
        "pass_configs",
        "registers",
        "ws_depth",
        "ws_op",
        "ws_schedule",
    }
)


class TileOp(Stmt):
    """An operation of a whole block on regions of buffers."""


class Copy(TileOp):
    """Copies `src` to `dst` element by element, converting the dtype by value.

    Axes of extent 1 drop out; the others match from the last one backwards, and an extent of 1 in
    `src` repeats. In global memory, reads outside give the safe value and writes outside do
    nothing. `hints` never change the result.
    """

    src: Region = operand(effect=Effect.READ)
    dst: Region = operand(effect=Effect.WRITE)
    hints: tuple[tuple[str, Any], ...] = attr(default=())


class Fill(TileOp):
    """Sets every element of `dst` to `value`, which has the dtype of `dst`."""

    dst: Region = operand(effect=Effect.WRITE)
    value: Expr = operand()


class Gemm(TileOp):
    """`c += op(a) @ op(b)` over the last two axes, accumulated in the dtype of `c`.

    a is (M, K), or (K, M) with `transpose_a`; b is (K, N), or (N, K) with `transpose_b`; c is (M,
    N). Where `clear_accum` holds, c counts as zero before. `policy` spreads warps over M and N;
    like `hints`, it never changes the result.
    """

    a: Region = operand(effect=Effect.READ)
    b: Region = operand(effect=Effect.READ)
    c: Region = operand(effect=Effect.UPDATE)
    clear_accum: Expr = operand()
    transpose_a: bool = attr(default=False)
    transpose_b: bool = attr(default=False)
    policy: int = attr(default=0)
    hints: tuple[tuple[str, Any], ...] = attr(default=())


class ReduceOp(enum.Enum):
    """The reductions; each has its identity in `emulator` and `targets` by dtype."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    ABSSUM = "abssum"
    ABSMAX = "absmax"
    BITAND = "bitand"
    BITOR = "bitor"
    BITXOR = "bitxor"


class Reduce(TileOp):
    """Combines `src` along axis `dim` into `dst`, in the dtype of `dst`.

    `dst` has the shape of `src` without `dim`, or with 1 there. With `clear` the old contents of
    `dst` are ignored; otherwise they are combined in exactly once. NaN is dropped by max and min
    unless `nan_propagate`.
    """

    op: ReduceOp = attr()
    src: Region = operand(effect=Effect.READ)
    dst: Region = operand(effect=Effect.UPDATE)
    dim: int = attr()
    clear: bool = attr(default=True)
    nan_propagate: bool = attr(default=False)
    batch: int = attr(default=1)


class ScanOp(enum.Enum):
    """The inclusive scans."""

    SUM = "cumsum"
    MAX = "cummax"


class Scan(TileOp):
    """Inclusive running `op` of `src` along `dim` into `dst` (which may be `src`); from the end
    with `reverse`.
    """

    op: ScanOp = attr()
    src: Region = operand(effect=Effect.READ)
    dst: Region = operand(effect=Effect.WRITE)
    dim: int = attr()
    reverse: bool = attr(default=False)


class Transpose(TileOp):
    """Copies `src` to `dst` with the last two axes exchanged."""

    src: Region = operand(effect=Effect.READ)
    dst: Region = operand(effect=Effect.WRITE)


class AtomicOp(enum.Enum):
    """Read-modify-write operations, and plain atomic accesses."""

    ADD = "add"
    MAX = "max"
    MIN = "min"
    OR = "or"


class Atomic(TileOp):
    """Updates every element of `dst` atomically with the matching element of `value`.

    `value` is a region (matched as in `Copy`) or one scalar. `previous` binds the old value of a
    single element.
    """

    op: AtomicOp = attr()
    dst: Region = operand(effect=Effect.UPDATE | Effect.ATOMIC)
    value: Region | Expr = operand(effect=Effect.READ)
    previous: Var | None = binds(default=None)
    memory_order: str = attr(default="relaxed")
    hints: tuple[tuple[str, Any], ...] = attr(default=())


DEVICE_SOURCE = "device_source"
"""The attribute of a function with the author's device code, which an `ExternCall` calls."""


class ExternCall(Stmt):
    """Each thread calls a device function of the author's, by its C name.

    `args` are scalars and addresses; `touched` are the arrays that the addresses lead to, each all
    of a thread's own array. `result` is what it returns, if anything reads it.
    """

    fn: str = attr()
    args: tuple[Expr, ...] = operand()
    touched: tuple[Region, ...] = operand(default=(), effect=Effect.UPDATE)
    result: Var | None = binds(default=None)


class Free(TileOp):
    """Gives back the Tensor Memory of `buffer` before the end of the block
    (`T.deallocate_tmem`).
    """

    buffer: Buffer = operand()


class SyncThreads(Stmt):
    """All threads of the block wait for each other. A named barrier counts `arrive_count`
    threads.
    """

    barrier_id: Expr | None = operand(default=None)
    arrive_count: Expr | None = operand(default=None)


def buffers_of(node: Node) -> dict[str, Buffer]:
    """Every buffer that occurs in `node`, by name, in order of first appearance."""
    found: dict[str, Buffer] = {}
    for n in node.walk():
        buffer = n.buffer if isinstance(n, (Alloc, View, Param)) else n
        if isinstance(buffer, Buffer):
            found.setdefault(buffer.name, buffer)
    return found


def dtype_of(node: Region | Expr) -> DType:
    """The element type of a region or scalar."""
    return node.dtype
