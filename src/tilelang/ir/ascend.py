"""What an Ascend program says beyond tiles: cores and pipes, flags between them, operations of the
vector units, transfers with a conversion on the way.

These are statements of the tile stage. A core group has one cube core (pipes S, MTE2, MTE1, M, FIX)
and its vector cores (S, MTE2, V, MTE3). Work is queued on pipes: each pipe keeps its order, and
different pipes, and different cores, are ordered by the statements of this file alone. An
*explicit* function has every tile operation inside a `CoreRegion`, an `address` annotation for
every buffer on chip, and every such order as a statement; without them its meaning is the program
order. Outside a region, or in one without `sub`, the first thread index of the launch stands for
the number of the vector core in its group (0 on the cube core).
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tilelang.dtypes import DType
from tilelang.ir.expr import Expr, Region, Var
from tilelang.ir.node import Effect, Node, attr, binds, body, operand
from tilelang.ir.tile import Block, Stmt, TileOp


class Core(enum.Enum):
    """The two kinds of core of a group (AIC and AIV)."""

    CUBE = "C"
    VECTOR = "V"


class Pipe(enum.Enum):
    """The in-order queues of a core.

    S runs scalars, V vector operations, M products; MTE1 loads L0A and L0B from L1, MTE2 loads L1
    or UB from global memory, MTE3 stores UB, FIX drains L0C. ALL means every pipe of the core.
    """

    S = "S"
    V = "V"
    M = "M"
    MTE1 = "MTE1"
    MTE2 = "MTE2"
    MTE3 = "MTE3"
    FIX = "FIX"
    ALL = "ALL"


PIPES_OF: dict[Core, tuple[Pipe, ...]] = {
    Core.CUBE: (Pipe.S, Pipe.MTE2, Pipe.MTE1, Pipe.M, Pipe.FIX),
    Core.VECTOR: (Pipe.S, Pipe.MTE2, Pipe.V, Pipe.MTE3),
}
"""The pipes of each kind of core (ascend.md B2: AscendC programming model)."""


# Cores -------------------------------------------------------------------------------------------


class CoreRegion(Stmt):
    """Runs `body` on the cores of one kind only; those of the other kind pass by.

    `sub` is the number of the vector core in its group, 0 to `subs` - 1; with `subs` 1 the second
    vector core passes by as well. Both kinds run their regions at the same time.
    """

    core: Core = attr()
    body: Block = body()
    sub: Var | None = binds(default=None)
    subs: int = attr(default=2)


class VectorKind(enum.Enum):
    """The two kinds of function of the 950's vector core."""

    SIMT = "simt"
    SIMD = "simd"


class VectorFunction(Stmt):
    """A function of the vector core: `body` runs on V as one operation, which touches UB and global
    memory itself.

    SIMT has `threads` threads (1 to 3 extents), which `thread_vars` number; SIMD has one, with
    vector registers. `latency` is the author's estimate and never changes the result. `gives` names
    buffers of UB that it overwrites from end to end before it reads them.
    """

    kind: VectorKind = attr()
    body: Block = body()
    threads: tuple[int, ...] = attr(default=())
    thread_vars: tuple[Var, ...] = binds(default=())
    latency: int = attr(default=0)
    gives: tuple[str, ...] = attr(default=())


# Order -------------------------------------------------------------------------------------------


class SetFlag(Stmt):
    """Raises event `id` of the pair (src, dst) when the work queued on `src` before is done."""

    src: Pipe = attr()
    dst: Pipe = attr()
    id: Expr = operand()


class WaitFlag(Stmt):
    """Holds up `dst` until event `id` of the pair (src, dst) is raised, and takes it down again."""

    src: Pipe = attr()
    dst: Pipe = attr()
    id: Expr = operand()


class PipeBarrier(Stmt):
    """What is queued on `pipe` later starts when what was queued before is done; ALL: likewise for
    all pipes of the core together.
    """

    pipe: Pipe = attr()


class CrossSet(Stmt):
    """Raises cross-core flag `id` when the work queued on `pipe` before is done.

    Mode 0 is among all cube or all vector cores of the launch: each raises it, and it holds for
    each when all have. Mode 1 is likewise among the vector cores of a group. In mode 2 a cube core
    raises it for every vector core of its group, and for the cube core it holds when every vector
    core has raised it. Mode 4 (950) is between the cube core and one vector core: on the cube core
    id i means vector core 0 and i + 16 vector core 1.
    """

    mode: int = attr()
    pipe: Pipe = attr()
    id: Expr = operand()


class CrossWait(Stmt):
    """Holds up `pipe` of this core until cross-core flag `id` holds, and takes it down by one.

    ALL holds up the whole core, which is the only form of the 910B. `mode` is as in `CrossSet`.
    """

    id: Expr = operand()
    mode: int = attr(default=2)
    pipe: Pipe = attr(default=Pipe.ALL)


class SyncAll(Stmt):
    """All cores of the launch (of the kind of the region around, if any) wait for each other, after
    all their work so far is done.
    """


class Lock(Stmt):
    """Takes mutex `id` of the core for `pipe` (950): its later work waits until the last holder's
    work before `Unlock` is done.
    """

    pipe: Pipe = attr()
    id: Expr = operand()
    mode: int = attr(default=0)


class Unlock(Stmt):
    """Gives mutex `id` back when the work queued on `pipe` before is done."""

    pipe: Pipe = attr()
    id: Expr = operand()
    mode: int = attr(default=0)


# Modes -------------------------------------------------------------------------------------------


class AtomicMode(Stmt):
    """From here on stores of this core to global memory combine with what is there by `op`, the
    value of an `AtomicOp`; "" ends it. `dtype` is the element type in which they combine.
    """

    op: str = attr()
    dtype: DType | None = attr(default=None)


class SetMode(Stmt):
    """Sets a mode of the core, by its name in `MODES`, for what comes after."""

    name: str = attr()
    value: Expr = operand()


MODES: dict[str, str] = {
    "hf32": "products of float32 round their operands to 11 bits of mantissa first",
    "mmad_direction": "the order in which a product walks its blocks; never changes the result",
    "copy_pad_value": "the bits that a copy with `padded` writes behind each row",
    "deq_scale": "the half by which vector conversions of int32 to float16 multiply",
}


# Transfers ---------------------------------------------------------------------------------------


class Transfer(TileOp):
    """A copy with more than `Copy` says; the two memories decide the path.

    Axes match as in `Copy`, or the numbers of elements are equal. The dtype converts by value, with
    `rounding` ("" for the nearest even; else one of `ROUNDINGS`). `relu` replaces negative values
    by zero (from L0C). `transpose` exchanges the last two axes. `pad` is written to the elements of
    `dst` for which `src`, in global memory, has none (zero without it). `split` hands half of the
    rows ("m") or columns ("n") of an L0C tile to each vector core; `sub` is the vector core whose
    UB is meant where the cube core writes it. `scale` multiplies an int32 accumulator on its way.
    `padded` ends each row of UB, up to 32 bytes, with the bits of the mode `copy_pad_value`; a row
    also ends so with `pad`. `blocks` says that `src`, in UB, holds the fractals of a tile in L1, 32
    bytes left free behind each block of columns. `hints` (cache, unit flag) never change the
    result.
    """

    src: Region = operand(effect=Effect.READ)
    dst: Region = operand(effect=Effect.WRITE)
    relu: bool = attr(default=False)
    transpose: bool = attr(default=False)
    pad: Expr | None = operand(default=None)
    split: str = attr(default="")
    sub: Expr | None = operand(default=None)
    scale: Expr | None = operand(default=None)
    rounding: str = attr(default="")
    padded: bool = attr(default=False)
    blocks: bool = attr(default=False)
    hints: tuple[tuple[str, Any], ...] = attr(default=())


ROUNDINGS: dict[str, str] = {
    "CAST_NONE": "exact where the conversion is, else to the nearest even",
    "CAST_RINT": "to the nearest, ties to even",
    "CAST_FLOOR": "down",
    "CAST_CEIL": "up",
    "CAST_ROUND": "to the nearest, ties away from zero",
    "CAST_TRUNC": "toward zero",
    "CAST_ODD": "to the nearest odd (Von Neumann rounding)",
}
"""The rounding modes of vector conversions (AscendC `RoundMode`)."""


_TO_NEAREST = ("CAST_RINT", "CAST_FLOOR", "CAST_CEIL", "CAST_ROUND", "CAST_TRUNC")
_EXACT = ("CAST_NONE",)
VECTOR_CASTS: dict[str, dict[str, tuple[str, ...]]] = {
    "int8": {"float16": _EXACT},
    "uint8": {"float16": _EXACT},
    "int16": {"float16": (*_TO_NEAREST, *_EXACT), "float32": _EXACT},
    "float16": {
        "int8": (*_TO_NEAREST, *_EXACT),
        "uint8": (*_TO_NEAREST, *_EXACT),
        "int16": _TO_NEAREST,
        "int32": _TO_NEAREST,
        "float32": _EXACT,
    },
    "bfloat16": {"int32": _TO_NEAREST, "float32": _EXACT},
    "int32": {
        "int16": _EXACT,
        "float16": (*_TO_NEAREST, *_EXACT),
        "float32": (*_TO_NEAREST, *_EXACT),
        "int64": _EXACT,
    },
    "float32": {
        "int16": _TO_NEAREST,
        "float16": (*_TO_NEAREST, "CAST_ODD", *_EXACT),
        "bfloat16": _TO_NEAREST,
        "int32": _TO_NEAREST,
        "float32": _TO_NEAREST,
        "int64": _TO_NEAREST,
    },
    "int64": {"int32": _EXACT, "float32": _TO_NEAREST},
}
"""The conversions of the vector units of the 910B, by source and destination, and the modes of each
(AscendC Cast, the table of A2 and A3; int32 to float16 takes its factor from SetDeqScale).
"""


# Vector operations -------------------------------------------------------------------------------


@dataclass(frozen=True)
class VectorFn:
    """One operation of the vector units: what `VectorOp` checks and dependence analysis reads.

    `srcs` is the number of sources, least and most; `imm` the names of its immediates, those with
    `?` optional. `updates` says that the old contents of `dst` are read as well. `scratch` sources
    at the end are overwritten. `source` is the function of the vendor's AscendC API behind it, and
    `dtypes` are the element types that its page lists for A2 and A3 (asc-devkit, docs/zh/api), of
    `dst` or, where that is a mask, of the first source.
    """

    name: str
    srcs: tuple[int, int]
    source: str
    doc: str
    dtypes: tuple[str, ...]
    imm: tuple[str, ...] = ()
    updates: bool = False
    scratch: int = 0


_HALF = ("float16", "float32")
REDUCED = _HALF
"""What the vector units reduce (AscendC ReduceMax, ReduceMin, WholeReduceSum on A2 and A3)."""
_SIGNED = ("int16", "float16", "int32", "float32")
_INTEGERS = ("int16", "uint16", "int32", "uint32")
_WORDS = ("int16", "uint16", "float16", "bfloat16", "int32", "uint32", "float32")
_BYTES = ("int8", "uint8")
# The functions of bits know words of 16 bits, as which the bits of any integers can be taken.
_BITS = (*_BYTES, *_INTEGERS)


def _fns(srcs: int, *rows: tuple[str, str, str, tuple[str, ...]]) -> list[VectorFn]:
    return [VectorFn(n, (srcs, srcs), source, doc, dtypes) for n, source, doc, dtypes in rows]


_UNARY = _fns(
    1,
    ("exp", "Exp", "e to the power", _HALF),
    ("ln", "Ln", "the natural logarithm", _HALF),
    ("abs", "Abs", "the absolute value", _HALF),
    ("reciprocal", "Reciprocal", "1 / x", _HALF),
    ("sqrt", "Sqrt", "the square root", _HALF),
    ("rsqrt", "Rsqrt", "1 / sqrt(x)", _HALF),
    ("relu", "Relu", "max(x, 0)", ("float16", "int32", "float32")),
    ("bitwise_not", "Not", "the complement", _BITS),
    ("sigmoid", "Sigmoid", "1 / (1 + exp(-x))", _HALF),
    ("silu", "Silu", "x / (1 + exp(-x))", _HALF),
    ("sin", "Sin", "the sine", _HALF),
    ("cos", "Cos", "the cosine", _HALF),
    ("round", "Round", "to an integral value, ties to even", _HALF),
    ("neg", "Muls", "-x", _SIGNED),
)
_BINARY = _fns(
    2,
    ("add", "Add, Adds", "a + b", _SIGNED),
    ("sub", "Sub", "a - b", _SIGNED),
    ("mul", "Mul, Muls", "a * b", _SIGNED),
    ("div", "Div", "a / b", _HALF),
    ("max", "Max, Maxs", "the larger", _SIGNED),
    ("min", "Min, Mins", "the smaller", _SIGNED),
    ("bitwise_and", "And", "a & b", _BITS),
    ("bitwise_or", "Or", "a | b", _BITS),
    ("bitwise_xor", "Xor", "a ^ b", _BITS),
    ("bitwise_lshift", "ShiftLeft", "a << b", _INTEGERS),
    ("bitwise_rshift", "ShiftRight", "a >> b", _INTEGERS),
    ("leaky_relu", "LeakyRelu", "x where x >= 0, else x * b", _HALF),
    ("pow", "Power", "a to the power b", (*_HALF, "int32")),
)
_TERNARY = [
    VectorFn("clamp", (3, 3), "ClampMax, ClampMin", "min(max(x, low), high)", _HALF),
    VectorFn("axpy", (2, 2), "Axpy", "dst + a * b", _HALF, updates=True),
    VectorFn("mul_add_dst", (2, 2), "MulAddDst", "dst + a * b", _HALF, updates=True),
]
_CHOICE = [
    VectorFn(
        "compare",
        (2, 2),
        "Compare, CompareScalar",
        "one bit for each element, lowest first, in the bytes of dst; int32 for EQ alone",
        (*_HALF, "int32"),
        imm=("mode",),
    ),
    VectorFn(
        "select",
        (3, 3),
        "Select",
        "a where the element's bit of the mask (the first source) is set, else b",
        _HALF,
        imm=("mode?",),
    ),
]
# A progression of an unsigned type has the bits of the signed one.
_NUMBERED = (*_SIGNED, "uint16", "uint32")
_PLACES = [
    VectorFn("broadcast", (1, 1), "Broadcast", "repeats axes of extent 1", (*_BYTES, *_HALF)),
    VectorFn("brcb", (1, 1), "Brcb", "each element over 32 bytes", _WORDS),
    VectorFn(
        "transpose",
        (1, 1),
        "Transpose",
        "exchanges the two axes",
        (*_BYTES, *_INTEGERS, *_HALF),
    ),
    VectorFn(
        "gather", (3, 3), "Gather", "the element at base + offset bytes, of each offset", _WORDS
    ),
    VectorFn("gatherb", (2, 2), "Gatherb", "the 32-byte block at offset, of each offset", _WORDS),
    VectorFn(
        "gather_mask",
        (1, 2),
        "GatherMask",
        "the elements that a pattern or mask names, packed",
        _WORDS,
        imm=("pattern?",),
    ),
    VectorFn("createvecindex", (1, 1), "CreateVecIndex", "first, first + 1, ...", _NUMBERED),
    VectorFn(
        "arith_progression", (2, 2), "ArithProgression", "first, first + step, ...", _NUMBERED
    ),
]
_ROWS = [
    *_fns(
        2,
        ("row_expand_add", "Add", "a + b of the row", _SIGNED),
        ("row_expand_sub", "Sub", "a - b of the row", _SIGNED),
        ("row_expand_mul", "Mul", "a * b of the row", _SIGNED),
        ("row_expand_div", "Div", "a / b of the row", _HALF),
        ("row_expand_max", "Max", "the larger of a and b of the row", _SIGNED),
        ("row_expand_min", "Min", "the smaller of a and b of the row", _SIGNED),
    ),
]
_REDUCTIONS = [
    *(
        VectorFn(
            f"block_reduce_{op}", (1, 1), f"BlockReduce{op.title()}", f"{op} of 32 bytes", _HALF
        )
        for op in ("max", "min", "sum")
    ),
    *(
        VectorFn(
            f"whole_reduce_{op}",
            (1, 1),
            f"WholeReduce{op.title()}",
            f"the {op} of each row and its first place, whose bits are stored as an element",
            _HALF,
        )
        for op in ("max", "min")
    ),
]
_SORTS = [
    VectorFn("sort32", (2, 2), "Sort32", "pairs (value, index), each 32 sorted downwards", _HALF),
    VectorFn(
        "sort", (2, 2), "Sort", "pairs (value, index) of the first n values, downwards", _HALF
    ),
    VectorFn("merge_sort", (2, 4), "MrgSort", "sorted lists of pairs, merged", _HALF),
    VectorFn("topk", (3, 3), "Sort32, MrgSort", "the first k pairs of `sort`", _HALF),
]

VECTOR_OPS: dict[str, VectorFn] = {
    fn.name: fn
    for group in (_UNARY, _BINARY, _TERNARY, _CHOICE, _PLACES, _ROWS, _REDUCTIONS, _SORTS)
    for fn in group
}
"""The operations by name. Elementwise ones work in the dtype of `dst`, row-major over regions of
equally many elements; a scalar source counts for every element.
"""


def vector_types(op: str, mode: str = "") -> tuple[str, ...]:
    """The element types of an operation; a comparison has fewer but for equality."""
    found = VECTOR_OPS[op].dtypes
    return found if mode in ("", "EQ") else tuple(t for t in found if t != "int32")


class VectorOp(TileOp):
    """`op` of `VECTOR_OPS` on regions of UB; a source is a region or a scalar.

    `imm` are its immediates by name.
    """

    op: str = attr()
    dst: Region = operand(effect=Effect.WRITE)
    srcs: tuple[Region | Expr, ...] = operand(effect=Effect.READ)
    imm: tuple[tuple[str, Any], ...] = attr(default=())

    def effects(self) -> Iterator[tuple[Effect, Node]]:
        """The declared effects, by the row of the operation."""
        row = VECTOR_OPS[self.op]
        yield Effect.UPDATE if row.updates else Effect.WRITE, self.dst
        for place, src in enumerate(self.srcs):
            scratch = place >= len(self.srcs) - row.scratch
            yield Effect.UPDATE if scratch else Effect.READ, src
