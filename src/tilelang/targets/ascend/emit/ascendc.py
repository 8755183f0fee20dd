"""AscendC C++ for the 910B and 910C (A2, A3).

What enters: a program of the thread stage. What leaves: the text of one file, a kernel for each
launch, in the classes and functions of CANN's AscendC API (`kernel_operator.h`): local tensors at
their addresses, copies with their parameters, vector functions row by row, flags as they stand. It
is a kernel with static tensors, without `TPipe`: it begins with InitSocState and ends with a
barrier, and calls what CANN's guide allows there. Calls of one pipe overlap in time, so a
barrier stands between two that touch the same bytes. `tools/ascend_verify` compiles and runs the
text on the host. What has no function here is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard, cast

from tilelang.dtypes import DType
from tilelang.ir.ascend import Core, CoreRegion, Pipe
from tilelang.ir.expr import Call, Expr, Var, int_value
from tilelang.ir.interval import interval
from tilelang.ir.node import Effect, Node
from tilelang.ir.thread import (
    ON_CORE,
    Array,
    Declare,
    Elem,
    Instr,
    Kernel,
    Program,
    Slot,
    Space,
    Write,
    kernels_of,
)
from tilelang.ir.tile import For, If, Stmt, ThreadReturn, While
from tilelang.scopes import Memory
from tilelang.targets.ascend.emit.ascendc_common import (
    BLOCK,
    BYTES,
    MOVED,
    at,
    helper,
    need_rows,
    needs,
    scalars,
    slots,
    values_of,
)
from tilelang.targets.ascend.emit.ascendc_helpers import CALLS, SCRATCH
from tilelang.targets.ascend.emit.ascendc_helpers import HELPERS as OURS
from tilelang.targets.ascend.emit.ascendc_vector import VECTOR_ROWS, filled
from tilelang.targets.ascend.emit.statements import Printer, Statements, cut, quantiser
from tilelang.targets.ascend.emit.text import (
    HELPERS,
    Text,
    number,
    type_of,
    unprintable,
    with_own_names,
)
from tilelang.targets.ascend.machine import MACHINES
from tilelang.targets.ascend.rows import PipeRow, rows_of

_POSITIONS = {
    Space.UB: "VECCALC",
    Space.L1: "A1",
    Space.L0A: "A2",
    Space.L0B: "B2",
    Space.L0C: "CO1",
}
_QUANT = {
    ("float32", "float32"): "NoQuant", ("int32", "int32"): "NoQuant",
    ("float32", "float16"): "F322F16", ("float32", "bfloat16"): "F322BF16",
    ("float32", "int8"): "QF322B8_PRE", ("int32", "int8"): "REQ8", ("int32", "float16"): "DEQF16",
}  # fmt: skip
_SCALED = frozenset({"QF322B8_PRE", "REQ8", "DEQF16"})
"""The conversions of a drain that multiply by a factor."""
_OVERLAPPING = (Pipe.V, Pipe.M, Pipe.MTE3, Pipe.FIX)
"""The pipes on which two calls may touch the same bytes with nothing between them: what MTE1 and
MTE2 load is used up on another pipe, behind flags, before it is loaded again. Stores to one tensor
of global memory are taken to meet.
"""
_FLAGS_OF_MEETINGS = (11, 14)
_WORDS = """
scratch chosen kept GetBlockIdx GetSubBlockIdx GetSubBlockNum InitSocState PipeBarrier SetFlag
WaitFlag CrossCoreSetFlag CrossCoreWaitFlag DataCopy DataCopyPad Copy Fill Fixpipe LoadData
LoadDataWithTranspose Mmad Duplicate Brcb Cast Compare Compares Gather Gatherb GatherMask Exp Ln
Abs Reciprocal Sqrt Rsqrt Relu Not And Or Add Sub Mul Div Max Min Adds Muls Maxs Mins LeakyRelu
Axpy MulAddDst ShiftLeft ShiftRight WholeReduceSum WholeReduceMax WholeReduceMin BlockReduceSum
BlockReduceMax BlockReduceMin Sort32 MrgSort MrgSort4Info MrgSortSrcList TransDataTo5HD
TransDataTo5HDParams SetDeqScale GlobalTensor LocalTensor TPosition HardEvent RoundMode CMPMODE
ReduceOrder QuantMode_t
"""
_NAMES = frozenset(_WORDS.split())


def emit_ascendc(program: Program, chip: str) -> str:
    """The source of a program for a chip of A2 and A3."""
    text = Text(OURS)
    for kernel in kernels_of(with_own_names(program, _NAMES | OURS.keys())):
        AscendC(kernel, text, chip).emit()
    head = ['#include "kernel_operator.h"', "using namespace AscendC;"]
    texts = {**HELPERS, **OURS}
    helpers = [line for name in text.helpers for line in ("", texts[name].rstrip())]
    return "\n".join([*head, *helpers, "", *text.lines]).rstrip() + "\n"


class AscendC(Statements):
    """One launch on a chip."""

    def __init__(self, kernel: Kernel, text: Text, chip: str) -> None:
        super().__init__(text, ROWS)
        text.calls, text.elements = self.call, self.element
        self.kernel = kernel
        self.table = rows_of(chip)
        self.room = min(c.amount for c in MACHINES[chip].chip.capacities(Memory.UB))
        self.pending: dict[Pipe, list[tuple[Array, bool]] | None] = {}
        self.places: dict[Array, tuple[int, int]] = {}
        self.stored: set[Array] = set()
        """Tensors of UB that the scalar unit has written, with nothing behind it so far."""
        self.core: Core | None = None
        self.scratch_bytes = 0
        self.scratch_at = _end_of_buffers(kernel)
        self.written = {
            s.array.name
            for n in kernel.walk()
            for s in (n.outs if isinstance(n, Instr) else [n] if isinstance(n, Write) else ())
        }

    def emit(self) -> None:
        """The kernel."""
        k = self.kernel
        for var, extent in zip(k.vars, k.grid, strict=True):
            last = int_value(extent)
            self.text.ranges[var] = interval(0, None if last is None else last - 1)
        for var in k.thread_vars:
            self.text.ranges[var] = interval(0, 1)
        params: Sequence[Array | Var] = [p for p in k.params if isinstance(p, (Array, Var))]
        listed = ", ".join(
            f"GM_ADDR {p.name}_gm" if isinstance(p, Array) else f"{type_of(p.type, k)} {p.name}"
            for p in params
        )
        head = f'extern "C" __global__ __aicore__ void {k.name}({listed})'
        with self.text.inside(head):
            pairs = any(isinstance(s, CoreRegion) and s.subs > 1 for s in k.walk())
            self.text.line(f"KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_{2 if pairs else 1});")
            self.text.line("InitSocState();")
            for p in params:
                if isinstance(p, Array):
                    element = type_of(p.type, k)
                    self.text.line(f"GlobalTensor<{element}> {p.name};")
                    self.text.line(f"{p.name}.SetGlobalBuffer((__gm__ {element}*){p.name}_gm);")
            (block,) = k.vars
            self.text.line(f"int32_t {block.name} = GetBlockIdx();")
            self.block(k.body)
            self.text.line("PipeBarrier<PIPE_ALL>();")
        self.text.line()

    # Regions and memory --------------------------------------------------------------------------

    def statement(self, stmt: Stmt) -> None:
        """One statement; regions are the kernel's own."""
        if isinstance(stmt, ThreadReturn):
            self.text.line("PipeBarrier<PIPE_ALL>();")
        if isinstance(stmt, (For, If, While)):
            # What the last round, or the other branch, left under way is not looked for.
            self.pending = dict.fromkeys(_OVERLAPPING)
            before = set(self.stored)
            if not isinstance(stmt, If):  # a round follows what the one before has written
                self.stored |= {n.array for n in stmt.walk() if _is_stored(n)}
            super().statement(stmt)
            self.pending = dict.fromkeys(_OVERLAPPING)
            self.stored |= before
            return
        if not isinstance(stmt, CoreRegion):
            super().statement(stmt)
            return
        if self.core is stmt.core and stmt.sub is None:
            self.block(stmt.body)
            return
        outside, self.core = self.core, stmt.core
        with self.text.inside(f"if ASCEND_IS_{'AIC' if stmt.core is Core.CUBE else 'AIV'}"):
            self.pending = {pipe: [] for pipe in _OVERLAPPING}
            if stmt.core is Core.VECTOR:
                self._number(stmt)
            first, self.scratch_bytes = len(self.text.lines), 0
            self.block(stmt.body)
            if self.scratch_bytes:
                place = f"TPosition::VECCALC, {self.scratch_at}, {self.scratch_bytes}"
                line = "  " * self.text.depth + f"LocalTensor<uint8_t> scratch({place});"
                self.text.lines.insert(first, line)
        self.core = outside

    def _number(self, stmt: CoreRegion) -> None:
        """Which block and vector core this is: GetBlockIdx counts vector cores here."""
        (block,) = self.kernel.vars
        cores = stmt.subs
        names = [stmt.sub] if stmt.sub is not None else list(self.kernel.thread_vars)
        if cores > 1:
            self.text.line(f"{block.name} = GetBlockIdx() / GetSubBlockNum();")
        for var in names:
            self.text.line(f"int32_t {var.name} = {'GetSubBlockIdx()' if cores > 1 else '0'};")

    def scratch(self, size: int, stmt: Node) -> str:
        """A tensor of `size` bytes in UB, behind all buffers, for one call."""
        if self.core is not Core.VECTOR:
            raise unprintable(stmt, "operations that need UB, on a cube core,")
        if self.scratch_at + size > self.room:
            raise unprintable(stmt, f"operations that need {size} bytes of UB that are not left")
        self.scratch_bytes = max(self.scratch_bytes, size)
        return "scratch"

    def declare(self, stmt: Declare) -> None:
        """A local tensor at its address."""
        array = stmt.array
        if array.space not in ON_CORE:
            super().declare(stmt)
            return
        size = int_value(array.size) if array.size is not None else 0
        first = stmt.offset or 0
        self.places[array] = (first, first + (size or 0) * array.type.bytes)
        element = type_of(array.type, stmt)
        place = f"TPosition::{_POSITIONS[array.space]}, {first}, {size}"
        self.text.line(f"LocalTensor<{element}> {array.name}({place});")

    # Order within a pipe -------------------------------------------------------------------------

    def instruction(self, stmt: Instr) -> None:
        """An instruction, behind a barrier if one before it touches the same bytes."""
        row = self.table[stmt.row]
        if not isinstance(row, PipeRow):
            raise unprintable(stmt, f"instructions {stmt.row}")
        imm = dict(stmt.imm)
        if stmt.row == "barrier":
            for pipe in _OVERLAPPING:
                if imm["pipe"] in (pipe.value, "ALL"):
                    self.pending[pipe] = []
        if (stmt.row, imm.get("pipe", imm.get("src"))) in (("barrier", "ALL"), ("flag.set", "S")):
            self.stored.clear()
        touched = [
            (slot.array, bool(operand.effect & Effect.WRITE))
            for operand, slot in zip((*row.outs, *row.ins), (*stmt.outs, *stmt.ins), strict=True)
            if isinstance(slot, Slot)
        ]
        if any(self._overlap(a, b) for a, _ in touched for b in self.stored):
            self.text.line("PipeBarrier<PIPE_ALL>();")
            self.pending = {pipe: [] for pipe in _OVERLAPPING}
            self.stored.clear()
        if row.pipe in _OVERLAPPING:
            if row.pipe is Pipe.M:
                touched = touched[:1]
            before = self.pending.get(row.pipe, [])
            clash = before is None or any(
                (w or v) and self._overlap(a, b) for a, w in touched for b, v in before
            )
            if clash and not _is_large(stmt):
                self.text.line(f"PipeBarrier<PIPE_{row.pipe.value}>();")
            self.pending[row.pipe] = [*([] if clash else before or []), *touched]
        super().instruction(stmt)

    def _overlap(self, a: Array, b: Array) -> bool:
        if a.space is not b.space or a.space is Space.GLOBAL:
            return a == b
        (first, last), (start, end) = self.places[a], self.places[b]
        return first < end and start < last

    # Elements ------------------------------------------------------------------------------------

    def element(self, e: Elem) -> str | None:
        """An element of a tensor that the kernel writes to global memory, by way of UB: the scalar
        unit's cache may hold what was there before. None for others.
        """
        if e.array.space is not Space.GLOBAL or e.array.name not in self.written:
            return None
        name, scratch = helper(self, e, "load_element")
        return f"{name}({e.array.name}[{self.of(e.index)}], {scratch.removesuffix(', ')})"

    def call(self, e: Call) -> str:
        """A function of numbers, which the vector units carry out."""
        if e.fn == "abs" and (e.type.is_integer or e.type.is_float):
            return f"{self.text.helper('magnitude')}({self.of(e.args[0])})"
        real = ("float32", "float16") if e.fn in _OF_HALF else ("float32",)
        if e.fn not in _ONE or str(e.type) not in real:
            raise unprintable(e, f"calls of T.{e.fn} of {e.type} on the scalar unit")
        name, _ = helper(self, e, f"one_{e.fn}")
        size = BLOCK + max((SCRATCH.get(c, 0) for c in CALLS.get(name, ())), default=0)
        values = ", ".join(f"({type_of(e.type, e)}){self.of(a)}" for a in e.args)
        return f"{name}({values}, {self.scratch(size, e)})"

    def write(self, stmt: Write) -> None:
        """One element."""
        if stmt.array.space in (Space.REGISTER, Space.LOCAL):
            super().write(stmt)
            return
        index, value = self.of(stmt.index), self.of(stmt.value)
        if stmt.array.space is Space.GLOBAL:
            name, scratch = helper(self, stmt, "store_element")
            value = f"({type_of(stmt.array.type, stmt)}){value}"
            scratch = scratch.removesuffix(", ")
            self.text.line(f"{name}({stmt.array.name}[{index}], {value}, {scratch});")
            return
        self.text.line(f"{stmt.array.name}.SetValue({index}, {value});")
        self.stored.add(stmt.array)


_OF_HALF = frozenset({"exp", "log", "sqrt", "rsqrt"})
_ONE = frozenset({*_OF_HALF, "floor", "ceil", "trunc", "round", "sigmoid", "sin", "cos", "pow"})
"""The functions of numbers that the vector units carry out (`one_...` of the helpers)."""


def _end_of_buffers(kernel: Kernel) -> int:
    """The first block of UB behind all buffers, in bytes."""
    ends = [
        (n.offset or 0) + (int_value(n.array.size) or 0) * n.array.type.bytes
        for n in kernel.walk()
        if isinstance(n, Declare) and n.array.space is Space.UB and n.array.size is not None
    ]
    return -(-max(ends, default=0) // BLOCK) * BLOCK


def _is_stored(node: Node) -> TypeGuard[Write]:
    return isinstance(node, Write) and node.array.space is Space.UB


def _is_large(stmt: Instr) -> bool:
    """Whether a product is so large that the next one needs no barrier (page Mmad)."""
    if stmt.row != "mad":
        return False
    _, m, n, *_ = (int_value(v) or 0 for v in values_of(stmt))
    return m // 16 * (n // 16) >= 10


# Copies ------------------------------------------------------------------------------------------


def _gm_ub(x: Statements, stmt: Instr) -> None:
    _gm_ub_rows(x, stmt, values_of(stmt), "")


def _gm_ub_rows(x: Statements, stmt: Instr, sizes: Sequence[Expr], pad: str) -> None:
    """Rows, each of which ends at a whole block of 32 bytes: `pad` says what fills it up. Where
    nothing may, since the tile ends before, the last block comes by way of a temporary.
    """
    (dst,), (src,) = stmt.outs, slots(stmt)
    need_rows(stmt, sizes[0], [(sizes[3], dst)])
    rows, columns, src_pitch, dst_pitch = (x.of(e) for e in sizes)
    size, element = dst.array.type.bytes, type_of(dst.array.type, stmt)
    if not pad and not _ends_with_a_block(dst, sizes[0], sizes[1]):
        needs(stmt, dst.dtype, (*MOVED, *BYTES), "loads of parts of blocks")
        called, scratch = helper(x, stmt, "load_rows")
        places = f"{at(x, dst)}, {at(x, src)}, {scratch}"
        x.text.line(f"{called}({places}{rows}, {columns}, {src_pitch}, {dst_pitch});")
        return
    gaps = f"({src_pitch} - {columns}) * {size}, ({dst_pitch} - {columns}) * {size} / 32"
    filler = pad or f"false, 0, 0, {number(0, dst.dtype, stmt)}"
    x.text.line(
        f"DataCopyPad({at(x, dst)}, {at(x, src)}, DataCopyExtParams((uint16_t)({rows}),"
        f" (uint32_t)({columns} * {size}), {gaps}, 0),"
        f" DataCopyPadExtParams<{element}>({filler}));"
    )


def _ends_with_a_block(dst: Slot, rows: Expr, columns: Expr) -> bool:
    """Whether rows end at a block of 32 bytes, or the only one where the array does: nothing else
    is in its last block.
    """
    known = int_value(columns)
    if known is not None and known * dst.array.type.bytes % BLOCK == 0:
        return True
    first = int_value(dst.index)
    size = int_value(dst.array.size) if dst.array.size is not None else None
    if known is None or first is None or size is None:
        return False
    return int_value(rows) == 1 and first + known == size


def _gm_ub_pad(x: Statements, stmt: Instr) -> None:
    """A tile of which global memory may lack rows or columns: filled with the pad before. What a
    row lacks of its last block is filled by the copy, with the same value.
    """
    (dst,) = stmt.outs
    value, rows, columns, src_pitch, dst_pitch, tile_rows, tile_columns = values_of(stmt)
    pad, there, wide = x.of(value), x.of(columns), x.of(tile_columns)
    need_rows(stmt, tile_rows, [(dst_pitch, dst)])
    short = cut((x.of(rows), x.of(tile_rows)), (there, wide))
    per_block = BLOCK // dst.array.type.bytes
    with x.text.inside(f"if ({short})"):
        x.text.line("PipeBarrier<PIPE_ALL>();")
        with x.text.inside(f"for (int32_t row = 0; row < {x.of(tile_rows)}; ++row)"):
            row = at(x, dst, f"row * {x.of(dst_pitch)}")
            x.text.line(filled(x, stmt, dst, row, value, tile_columns))
        x.text.line("PipeBarrier<PIPE_ALL>();")
    element = type_of(dst.array.type, stmt)
    lacking = f"(uint8_t)(({per_block} - {there} % {per_block}) % {per_block})"
    whole = _ends_with_a_block(dst, tile_rows, tile_columns)
    filler = f"true, 0, {lacking}, ({element}){pad}" if whole else ""
    _gm_ub_rows(x, stmt, (rows, columns, src_pitch, dst_pitch), filler)


def _ub_gm(x: Statements, stmt: Instr) -> None:
    (dst,), (src,) = stmt.outs, slots(stmt)
    values = values_of(stmt)
    need_rows(stmt, values[0], [(values[2], src)])
    rows, columns, src_pitch, dst_pitch = (x.of(e) for e in values)
    size = dst.array.type.bytes
    gaps = f"({src_pitch} - {columns}) * {size} / 32, ({dst_pitch} - {columns}) * {size}"
    x.text.line(
        f"DataCopyPad({at(x, dst)}, {at(x, src)}, DataCopyExtParams((uint16_t)({rows}),"
        f" (uint32_t)({columns} * {size}), {gaps}, 0));"
    )


_LARGEST_PITCH = 65535
"""Of a source of ND2NZ, in elements (its page)."""


def _gm_l1(x: Statements, stmt: Instr) -> None:
    (dst,), (src,) = stmt.outs, slots(stmt)
    rows, columns, pitch, tile_rows, tile_columns, nz_rows = scalars(x, stmt)
    c0 = int(dict(stmt.imm)["c0"])
    if (rows, columns) != (tile_rows, tile_columns):
        # Bytes are filled in pairs: the function has no type of 8 bits.
        pairs = dst.array.type.bytes == 1
        place = at(x, dst) + (".ReinterpretCast<uint16_t>()" if pairs else "")
        element = "uint16_t" if pairs else type_of(dst.array.type, stmt)
        zero = "0" if pairs else number(0, dst.dtype, stmt)
        blocks = f"({tile_columns} + {c0 - 1}) / {c0}"
        gap = f"(uint16_t)({nz_rows} - {tile_rows})"
        sizes = f"(uint16_t)({blocks}), (uint16_t)({tile_rows}), {gap}, {zero}"
        with x.text.inside(f"if ({cut((rows, tile_rows), (columns, tile_columns))})"):
            x.text.line(f"Fill({place}, InitConstValueParams<{element}>({sizes}));")
            x.text.line("PipeBarrier<PIPE_MTE2>();")
    known = int_value(values_of(stmt)[2])
    tail = f"{nz_rows}, 1, 0"
    near = (
        f"DataCopy({at(x, dst)}, {at(x, src)}, Nd2NzParams(1, {rows}, {columns}, 0, {pitch},"
        f" {tail}));"
    )
    if known is not None and known <= _LARGEST_PITCH:
        x.text.line(near)
        return
    row = f"DataCopy({at(x, dst, f'row * {c0}')}, {at(x, src, f'row * {pitch}')},"
    far = f"{row} Nd2NzParams(1, 1, {columns}, 0, {columns}, {tail}));"
    if known is None:
        with x.text.inside(f"if ({pitch} <= {_LARGEST_PITCH})", "} else {"):
            x.text.line(near)
        x.text.depth += 1
    with x.text.inside(f"for (int32_t row = 0; row < {rows}; ++row)"):
        x.text.line(far)
    if known is None:
        x.text.depth -= 1
        x.text.line("}")


# The cube core -----------------------------------------------------------------------------------


def _load(*, turned: bool) -> Printer:
    """Fractals of an L1 tile, zN there: one LoadData for each 16 elements of the outer axis.

    In L0A the fractals of K follow each other (zZ), in L0B those of N (nZ).
    """

    def printer(x: Statements, stmt: Instr) -> None:
        (dst,), (src,) = stmt.outs, slots(stmt)
        outer, inner, nz_rows = scalars(x, stmt)
        c0 = int(dict(stmt.imm)["c0"])
        left = dst.array.space is Space.L0A
        if turned and c0 != 16:
            _load_squares(x, stmt, c0, left)
            return
        blocks, depth = f"({outer} + 15) / 16", f"(({inner} + {c0 - 1}) / {c0})"
        with x.text.inside(f"for (int32_t block = 0; block < {blocks}; ++block)"):
            place = f"block * {depth} * {16 * c0}" if left else f"block * {16 * c0}"
            gap = "0" if left else f"{blocks} - 1"
            start = f"block * {nz_rows} * 16" if turned else f"block * {16 * c0}"
            stride = "1" if turned else f"{nz_rows} / 16"
            x.text.line(
                f"LoadData({at(x, dst, place)}, {at(x, src, start)}, LoadData2DParams(0,"
                f" {depth}, {stride}, 0, {gap}, {'true' if turned else 'false'}, 0));"
            )

    return printer


def _load_squares(x: Statements, stmt: Instr, c0: int, left: bool) -> None:
    """Bytes turned: squares of 32 of L1, whose halves are neighbours along the outer axis."""
    (dst,), (src,) = stmt.outs, slots(stmt)
    outer, inner, nz_rows = values_of(stmt)
    whole = [int_value(v) for v in (outer, inner, nz_rows)]
    if c0 != BLOCK or any(v is None or v % BLOCK for v in whole):
        raise unprintable(stmt, f"transposed loads of {dst.array.type} that are no squares of 32")
    many, depth, rows = (cast("int", v) for v in whole)
    deep, fractal = depth // BLOCK, 512
    with x.text.inside(f"for (int32_t block = 0; block < {many // BLOCK}; ++block)"):
        place = f"block * {(2 * deep if left else 2) * fractal}"
        gap, apart = (0, deep - 1) if left else (many // 16 - 1, 0)
        x.text.line(
            f"LoadDataWithTranspose({at(x, dst, place)}, {at(x, src, f'block * {rows * BLOCK}')},"
            f" LoadData2dTransposeParams(0, {deep}, 1, {gap}, {apart}));"
        )


def _mad(x: Statements, stmt: Instr) -> None:
    (c,), (a, b) = stmt.outs, slots(stmt)
    values = values_of(stmt)
    init, m, n, k, rows = (x.of(v) for v in values)
    height, known = int_value(values[1]), int_value(values[4])
    if height is None or known is None or -(-height // 16) * 16 != known:
        # Columns of 16 lie as far apart in L0C as the product has rows of fractals.
        raise unprintable(stmt, f"products of {m} rows into a tile of {rows}")
    if height == 1:  # one row would be read in another order ("GEMV" on the page of Mmad)
        m = "16"
    x.text.line(
        f"Mmad({at(x, c)}, {at(x, a)}, {at(x, b)}, MmadParams({m}, {n}, {k}, 0, false, {init}));"
    )


def _l0c_gm(x: Statements, stmt: Instr) -> None:
    (dst,), (src,) = stmt.outs, slots(stmt)
    rows, columns, c_rows, pitch, scale = scalars(x, stmt)[:5]
    made = dst.array.type
    quant = _QUANT.get((str(src.array.type), str(made)))
    factor = quantiser(values_of(stmt)[4], signed=str(made) == "int8")
    if quant is None or factor is None or (quant not in _SCALED and scale != "1.0f"):
        raise unprintable(stmt, f"drains of {src.array.type} into {made} with this scale")
    relu = "true" if dict(stmt.imm)["relu"] else "false"
    with x.text.inside(""):
        x.text.line(f"FixpipeParamsV220 drain({columns}, {rows}, {c_rows}, {pitch}, {relu});")
        x.text.line(f"drain.quantPre = QuantMode_t::{quant};")
        if quant in _SCALED:
            x.text.line(f"drain.deqScalar = {factor}ull;")
        types = ", ".join(type_of(s.array.type, stmt) for s in (dst, src))
        x.text.line(f"Fixpipe<{types}, CFG_ROW_MAJOR>({at(x, dst)}, {at(x, src)}, drain);")


# Order -------------------------------------------------------------------------------------------


def _flag(name: str) -> Printer:
    def printer(x: Statements, stmt: Instr) -> None:
        imm = dict(stmt.imm)
        (event,) = scalars(x, stmt)
        x.text.line(f"{name}<HardEvent::{imm['src']}_{imm['dst']}>({event});")

    return printer


def _barrier(x: Statements, stmt: Instr) -> None:
    x.text.line(f"PipeBarrier<PIPE_{dict(stmt.imm)['pipe']}>();")


def _cross_set(x: Statements, stmt: Instr) -> None:
    imm = dict(stmt.imm)
    (flag,) = scalars(x, stmt)
    x.text.line(f"CrossCoreSetFlag<{imm['mode']}, PIPE_{imm['pipe']}>({flag});")


def _cross_wait(x: Statements, stmt: Instr) -> None:
    (flag,) = scalars(x, stmt)
    x.text.line(f"CrossCoreWaitFlag({flag});")


def _sync_all(x: Statements, stmt: Instr) -> None:
    """All cores that the kernel has meet, with flags that no one else uses."""
    kernel = cast("AscendC", x).kernel
    low, high = _FLAGS_OF_MEETINGS
    regions = [n for n in kernel.walk() if isinstance(n, CoreRegion)]
    kinds = {
        r.core
        for r in regions
        if any(isinstance(n, Instr) and n.row == "sync.all" for n in r.walk())
    }
    for n in kernel.walk():
        if isinstance(n, Instr) and n.row.startswith("cross."):
            (flag,) = (int_value(v) for v in values_of(n))
            if flag is None or low <= flag <= high:
                raise unprintable(stmt, f"sync_all beside cross-core flags from {low} to {high}")
    if Core.VECTOR not in kinds:
        raise unprintable(stmt, "meetings of cube cores alone")
    name = "meet_all" if Core.CUBE in kinds else "meet_vector"
    x.text.line(f"{x.text.helper(name)}();")


_ATOMIC = {"add": "SetAtomicAdd", "max": "SetAtomicMax", "min": "SetAtomicMin"}


def _atomic(x: Statements, stmt: Instr) -> None:
    imm = dict(stmt.imm)
    if not imm["op"]:
        x.text.line("SetAtomicNone();")
        return
    name = _ATOMIC.get(imm["op"])
    element = imm.get("dtype")
    if name is None or element is None:
        raise unprintable(stmt, f"atomic stores by {imm['op']}")
    x.text.line(f"{name}<{type_of(DType(element), stmt)}>();")


ROWS: dict[str, Printer] = {
    "gm.ub": _gm_ub,
    "gm.ub.pad": _gm_ub_pad,
    "ub.gm": _ub_gm,
    "gm.l1.nz": _gm_l1,
    "l1.l0a": _load(turned=False),
    "l1.l0a.t": _load(turned=True),
    "l1.l0b": _load(turned=True),
    "l1.l0b.t": _load(turned=False),
    "mad": _mad,
    "l0c.gm": _l0c_gm,
    **VECTOR_ROWS,
    "flag.set": _flag("SetFlag"),
    "flag.wait": _flag("WaitFlag"),
    "barrier": _barrier,
    "cross.set": _cross_set,
    "cross.wait": _cross_wait,
    "sync.all": _sync_all,
    "mode.atomic": _atomic,
}
"""A printer for each row of A2 and A3 that has a function."""
