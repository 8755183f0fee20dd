"""Operations of the tile stage beyond copy, product and reduction: what the threads of a warp do
together, reducers, convolution patches, sparse and block-scaled products, random numbers.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tilelang.ir.expr import Buffer, Expr, Region, Var
from tilelang.ir.node import Effect, attr, binds, operand
from tilelang.ir.tile import ReduceOp, Stmt, TileOp


class Group(enum.Enum):
    """Who takes part in a collective operation."""

    WARP = "the threads of a warp"
    BLOCK = "the threads of the block"


@dataclass(frozen=True)
class CollectiveFn:
    """One row: `arity` arguments; the dtype of the result, None for that of the first argument."""

    name: str
    arity: int
    group: Group
    result: str | None
    doc: str


_W, _B = Group.WARP, Group.BLOCK
COLLECTIVES: dict[str, CollectiveFn] = {
    row.name: row
    for row in (
        CollectiveFn("shfl_sync", 2, _W, None, "the value of lane `args[1]` of the segment"),
        CollectiveFn("shfl_xor", 2, _W, None, "the value of the lane whose index differs by xor"),
        CollectiveFn("shfl_up", 2, _W, None, "the value of the lane `args[1]` below"),
        CollectiveFn("shfl_down", 2, _W, None, "the value of the lane `args[1]` above"),
        CollectiveFn("any_sync", 1, _W, "int32", "1 where the predicate holds in some lane"),
        CollectiveFn("all_sync", 1, _W, "int32", "1 where the predicate holds in every lane"),
        CollectiveFn("ballot_sync", 1, _W, "uint64", "bit n says whether it holds in lane n"),
        CollectiveFn("activemask", 0, _W, "uint64", "bit n says whether lane n is active"),
        CollectiveFn("match_any_sync", 1, _W, "uint32", "the lanes with the same value"),
        CollectiveFn("match_all_sync", 1, _W, "uint32", "the mask if all values are equal, else 0"),
        CollectiveFn("warp_reduce_sum", 1, _W, None, "the sum over the warp, in every lane"),
        CollectiveFn("warp_reduce_max", 1, _W, None, "the maximum over the warp"),
        CollectiveFn("warp_reduce_min", 1, _W, None, "the minimum over the warp"),
        CollectiveFn("warp_reduce_bitand", 1, _W, None, "the bitwise and over the warp"),
        CollectiveFn("warp_reduce_bitor", 1, _W, None, "the bitwise or over the warp"),
        CollectiveFn(
            "elect", 0, _W, "bool", "true in one lane of each group of `params[0]` threads"
        ),
        CollectiveFn(
            "syncthreads_count", 1, _B, "int32", "a barrier, and how many predicates hold"
        ),
        CollectiveFn("syncthreads_and", 1, _B, "int32", "a barrier, and whether all hold"),
        CollectiveFn("syncthreads_or", 1, _B, "int32", "a barrier, and whether some hold"),
    )
}


class Collective(Stmt):
    """A function of `COLLECTIVES`, by name, on one value per thread; binds one value per thread.

    `params` are (width, mask) for shuffles, (mask,) for votes and matches, (threads,) for `elect`.
    """

    fn: str = attr()
    args: tuple[Expr, ...] = operand()
    result: Var = binds()
    params: tuple[int, ...] = attr(default=())

    @property
    def differs(self) -> bool:
        """Whether threads of a block may get different results."""
        return COLLECTIVES[self.fn].group is not Group.BLOCK


class ReducerInit(Stmt):
    """Opens an accumulation into a reducer, from the identity of its operation.

    `init`, if given, is combined into every output exactly once.
    """

    reducer: Buffer = operand(effect=Effect.WRITE)
    op: ReduceOp = attr()
    init: Expr | None = operand(default=None)


class ReducerUpdate(Stmt):
    """Contributes `value` to one element of a reducer, once per iteration of the T.Parallel
    around.
    """

    reducer: Buffer = operand(effect=Effect.UPDATE | Effect.ATOMIC)
    indices: tuple[Expr, ...] = operand()
    value: Expr = operand()
    op: ReduceOp = attr()


class ReducerFinalize(TileOp):
    """Closes the accumulation and writes the combined result to `dst` (`reducer` itself in v1
    form).
    """

    reducer: Buffer = operand(effect=Effect.READ)
    dst: Region = operand(effect=Effect.WRITE)
    op: ReduceOp = attr()


class Im2col(TileOp):
    """Gathers convolution patches of an NHWC image into a tile, zero outside the image.

    Row r of `col` is output pixel `nhw_step * rows + r` (flattened N, H_out, W_out); column c is
    element `c_step * columns + c` of the flattened (kernel_h, kernel_w, C) patch.
    """

    image: Region = operand(effect=Effect.READ)
    col: Region = operand(effect=Effect.WRITE)
    nhw_step: Expr = operand()
    c_step: Expr = operand()
    kernel: int = attr()
    stride: int = attr()
    dilation: int = attr()
    pad: int = attr()


class GemmSparse(TileOp):
    """`Gemm` with a 2:4 sparse A: `a` holds the kept elements, `e` says where they were.

    `e` is the metadata of the PTX ISA's sparse mma: two bits for each kept element, its place in
    the group of four, lowest bits first.
    """

    a: Region = operand(effect=Effect.READ)
    e: Region = operand(effect=Effect.READ)
    b: Region = operand(effect=Effect.READ)
    c: Region = operand(effect=Effect.UPDATE)
    clear_accum: Expr = operand()
    transpose_a: bool = attr(default=False)
    transpose_e: bool = attr(default=False)
    transpose_b: bool = attr(default=False)
    policy: int = attr(default=0)


class GemmBlockScaled(TileOp):
    """`Gemm` whose operands are scaled per row (column) and block of `granularity` elements of K.

    `sfa` and `sfb` hold the scales (float8_e8m0fnu or float8_e4m3fn code words, four K blocks per
    uint32 where the element type is uint32). `k_start` is the position along K of this tile.
    """

    a: Region = operand(effect=Effect.READ)
    b: Region = operand(effect=Effect.READ)
    c: Region = operand(effect=Effect.UPDATE)
    sfa: Region = operand(effect=Effect.READ)
    sfb: Region = operand(effect=Effect.READ)
    clear_accum: Expr = operand()
    k_start: Expr = operand()
    granularity_a: int = attr()
    granularity_b: int = attr()
    transpose_a: bool = attr(default=False)
    transpose_b: bool = attr(default=False)
    policy: int = attr(default=0)


class Quantifier(enum.Enum):
    """Over all elements, or over some."""

    ANY = "any"
    ALL = "all"


class TestElements(TileOp):
    """Binds whether any (all) elements of a region are not zero."""

    quantifier: Quantifier = attr()
    src: Region = operand(effect=Effect.READ)
    result: Var = binds()


class RngInit(Stmt):
    """Starts the calling thread's Philox4x32-10 stream (cuRAND's `curand_init`)."""

    seed: Expr = operand()
    sequence: Expr = operand()
    offset: Expr = operand()


class RngNext(Stmt):
    """Binds the next number of the thread's stream; `distribution` is bits, uniform or normal."""

    result: Var = binds()
    distribution: str = attr()


class MakeTensor(Stmt):
    """Binds a buffer to the memory at `address`, with the buffer's shape and strides."""

    buffer: Buffer = binds()
    address: Expr = operand()
