"""AscendC C++ for the 910B and 910C (A2, A3).

What enters: a program of the thread stage. What leaves: the text of one file, a kernel for each
launch, in the classes and functions of CANN's AscendC API (`kernel_operator.h`): local tensors at
their addresses, copies with their parameters, vector functions row by row, flags as they stand.
Nothing checks this text but its reader: upstream has no generator for this dialect that runs
without CANN. What has no function here is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tilelang.ir.ascend import Core, CoreRegion
from tilelang.ir.expr import Expr, Var, int_value
from tilelang.ir.interval import interval
from tilelang.ir.node import Node
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
from tilelang.ir.tile import Stmt
from tilelang.targets.ascend.emit.statements import Printer, Statements, cut
from tilelang.targets.ascend.emit.text import HELPERS, Text, type_of, unprintable, with_own_names

_POSITIONS = {
    Space.UB: "VECCALC",
    Space.L1: "A1",
    Space.L0A: "A2",
    Space.L0B: "B2",
    Space.L0C: "CO1",
}
_QUANT = {"float16": "F322F16", "bfloat16": "F322BF16"}


def emit_ascendc(program: Program) -> str:
    """The source of a program for A2 and A3."""
    text = Text()
    for kernel in kernels_of(with_own_names(program)):
        _Kernel(kernel, text).emit()
    head = ['#include "kernel_operator.h"', "using namespace AscendC;"]
    helpers = [line for name in text.helpers for line in ("", HELPERS[name].rstrip())]
    return "\n".join([*head, *helpers, "", *text.lines]).rstrip() + "\n"


class _Kernel(Statements):
    """One launch."""

    def __init__(self, kernel: Kernel, text: Text) -> None:
        super().__init__(text, ROWS)
        self.kernel = kernel

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
            for p in params:
                if isinstance(p, Array):
                    element = type_of(p.type, k)
                    self.text.line(f"GlobalTensor<{element}> {p.name};")
                    self.text.line(f"{p.name}.SetGlobalBuffer((__gm__ {element}*){p.name}_gm);")
            pairs = any(isinstance(s, CoreRegion) and s.subs > 1 for s in k.walk())
            self.text.line(f"KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_{2 if pairs else 1});")
            (block,) = k.vars
            self.text.line(f"int32_t {block.name} = GetBlockIdx();")
            self.block(k.body)
        self.text.line()

    def statement(self, stmt: Stmt) -> None:
        """One statement; regions are the kernel's own."""
        if not isinstance(stmt, CoreRegion):
            super().statement(stmt)
            return
        with self.text.inside(f"if ASCEND_IS_{'AIC' if stmt.core is Core.CUBE else 'AIV'}"):
            if stmt.core is Core.VECTOR:
                self._number(stmt)
            self.block(stmt.body)

    def _number(self, stmt: CoreRegion) -> None:
        """Which block and vector core this is: GetBlockIdx counts vector cores here."""
        (block,) = self.kernel.vars
        cores = stmt.subs
        names = [stmt.sub] if stmt.sub is not None else list(self.kernel.thread_vars)
        if cores > 1:
            self.text.line(f"{block.name} = GetBlockIdx() / GetSubBlockNum();")
        for var in names:
            self.text.line(f"int32_t {var.name} = {'GetSubBlockIdx()' if cores > 1 else '0'};")

    def declare(self, stmt: Declare) -> None:
        """A local tensor at its address."""
        array = stmt.array
        if array.space not in ON_CORE:
            super().declare(stmt)
            return
        size = int_value(array.size) if array.size is not None else 0
        element = type_of(array.type, stmt)
        place = f"TPosition::{_POSITIONS[array.space]}, {stmt.offset or 0}, {size}"
        self.text.line(f"LocalTensor<{element}> {array.name}({place});")

    def of(self, e: object) -> str:
        """A value; single elements of tensors are read by `GetValue`."""
        for n in e.walk() if isinstance(e, Node) else ():
            if isinstance(n, Elem) and n.array.space not in (Space.REGISTER, Space.LOCAL):
                raise unprintable(n, "single elements of tensors in expressions")
        return super().of(e)

    def write(self, stmt: Write) -> None:
        """One element."""
        if stmt.array.space in (Space.REGISTER, Space.LOCAL):
            super().write(stmt)
            return
        at = self.of(stmt.index)
        self.text.line(f"{stmt.array.name}.SetValue({at}, {self.of(stmt.value)});")


# Instructions ------------------------------------------------------------------------------------


def _at(x: Statements, slot: Slot, more: str = "") -> str:
    index = x.of(slot.index)
    total = " + ".join(p for p in (index if index != "0" else "", more) if p)
    return f"{slot.array.name}[{total}]" if total else slot.array.name


def _scalars(x: Statements, stmt: Instr) -> list[str]:
    return [x.of(e) for e in stmt.ins if not isinstance(e, Slot)]


def _slots(stmt: Instr) -> list[Slot]:
    return [e for e in stmt.ins if isinstance(e, Slot)]


def _gm_ub(x: Statements, stmt: Instr) -> None:
    _gm_ub_rows(x, stmt, _scalars(x, stmt))


def _gm_ub_rows(x: Statements, stmt: Instr, sizes: Sequence[str]) -> None:
    (dst,), (src,) = stmt.outs, _slots(stmt)
    rows, columns, src_pitch, dst_pitch = sizes
    size, element = dst.array.type.bytes, type_of(dst.array.type, stmt)
    gaps = f"({src_pitch} - {columns}) * {size}, ({dst_pitch} - {columns}) * {size} / 32"
    x.text.line(
        f"DataCopyPad({_at(x, dst)}, {_at(x, src)}, DataCopyExtParams((uint16_t)({rows}),"
        f" (uint32_t)({columns} * {size}), {gaps}, 0),"
        f" DataCopyPadExtParams<{element}>(false, 0, 0, 0));"
    )


def _gm_ub_pad(x: Statements, stmt: Instr) -> None:
    """A tile of which global memory may lack rows or columns: filled with the pad before."""
    (dst,) = stmt.outs
    pad, rows, columns, src_pitch, dst_pitch, tile_rows, tile_columns = _scalars(x, stmt)
    with x.text.inside(f"if ({cut((rows, tile_rows), (columns, tile_columns))})"):
        x.text.line("PipeBarrier<PIPE_ALL>();")
        with x.text.inside(f"for (int32_t row = 0; row < {tile_rows}; ++row)"):
            row = _at(x, dst, f"row * {dst_pitch}")
            x.text.line(f"Duplicate({row}, {pad}, {tile_columns});")
        x.text.line("PipeBarrier<PIPE_ALL>();")
    _gm_ub_rows(x, stmt, (rows, columns, src_pitch, dst_pitch))


def _ub_gm(x: Statements, stmt: Instr) -> None:
    (dst,), (src,) = stmt.outs, _slots(stmt)
    rows, columns, src_pitch, dst_pitch = _scalars(x, stmt)
    size = dst.array.type.bytes
    gaps = f"({src_pitch} - {columns}) * {size} / 32, ({dst_pitch} - {columns}) * {size}"
    x.text.line(
        f"DataCopyPad({_at(x, dst)}, {_at(x, src)}, DataCopyExtParams((uint16_t)({rows}),"
        f" (uint32_t)({columns} * {size}), {gaps}, 0));"
    )


def _gm_l1(x: Statements, stmt: Instr) -> None:
    (dst,), (src,) = stmt.outs, _slots(stmt)
    rows, columns, pitch, tile_rows, tile_columns, nz_rows = _scalars(x, stmt)
    c0 = int(dict(stmt.imm)["c0"])
    if (rows, columns) != (tile_rows, tile_columns):
        blocks = f"({tile_columns} + {c0 - 1}) / {c0}"
        gap = f"(uint16_t)({nz_rows} - {tile_rows})"
        element = type_of(dst.array.type, stmt)
        with x.text.inside(f"if ({cut((rows, tile_rows), (columns, tile_columns))})"):
            sizes = f"(uint16_t)({blocks}), (uint16_t)({tile_rows}), {gap}, 0"
            x.text.line(f"InitConstValue({_at(x, dst)}, InitConstValueParams<{element}>({sizes}));")
            x.text.line("PipeBarrier<PIPE_MTE2>();")
    x.text.line(
        f"DataCopy({_at(x, dst)}, {_at(x, src)}, Nd2NzParams(1, {rows}, {columns}, 0, {pitch},"
        f" {nz_rows}, 1, 0));"
    )


def _load(*, turned: bool) -> Printer:
    """Fractals of an L1 tile, zN there: one LoadData for each 16 elements of the outer axis.

    In L0A the fractals of K follow each other (zZ), in L0B those of N (nZ).
    """

    def printer(x: Statements, stmt: Instr) -> None:
        (dst,), (src,) = stmt.outs, _slots(stmt)
        outer, inner, nz_rows = _scalars(x, stmt)
        c0 = int(dict(stmt.imm)["c0"])
        left = dst.array.space is Space.L0A
        if turned and c0 != 16:
            raise unprintable(stmt, f"transposed loads of {dst.array.type}")
        blocks, depth = f"({outer} + 15) / 16", f"(({inner} + {c0 - 1}) / {c0})"
        with x.text.inside(f"for (int32_t block = 0; block < {blocks}; ++block)"):
            place = f"block * {depth} * {16 * c0}" if left else f"block * {16 * c0}"
            gap = "0" if left else f"{blocks} - 1"
            start = f"block * {nz_rows} * 16" if turned else f"block * {16 * c0}"
            stride = "1" if turned else f"{nz_rows} / 16"
            x.text.line(
                f"LoadData({_at(x, dst, place)}, {_at(x, src, start)}, LoadData2DParams(0,"
                f" {depth}, {stride}, 0, {gap}, {'true' if turned else 'false'}, 0));"
            )

    return printer


def _mad(x: Statements, stmt: Instr) -> None:
    (c,), (a, b) = stmt.outs, _slots(stmt)
    init, m, n, k, _ = _scalars(x, stmt)
    x.text.line(
        f"Mmad({_at(x, c)}, {_at(x, a)}, {_at(x, b)}, MmadParams({m}, {n}, {k}, 0, false, {init}));"
    )


def _l0c_gm(x: Statements, stmt: Instr) -> None:
    (dst,), (src,) = stmt.outs, _slots(stmt)
    rows, columns, c_rows, pitch, scale = _scalars(x, stmt)[:5]
    same = dst.array.type == src.array.type
    quant = "NoQuant" if same else _QUANT.get(str(dst.array.type))
    if quant is None or src.array.type != "float32" or scale != "1.0f":
        raise unprintable(stmt, f"drains of {src.array.type} into {dst.array.type}")
    relu = "true" if dict(stmt.imm)["relu"] else "false"
    with x.text.inside(""):
        x.text.line(f"FixpipeParamsV220 drain({columns}, {rows}, {c_rows}, {pitch}, {relu});")
        x.text.line(f"drain.quantPre = QuantMode_t::{quant};")
        types = ", ".join(type_of(s.array.type, stmt) for s in (dst, src))
        x.text.line(f"Fixpipe<{types}, CFG_ROW_MAJOR>({_at(x, dst)}, {_at(x, src)}, drain);")


# Vector functions --------------------------------------------------------------------------------

_UNARY = {
    "exp": "Exp", "ln": "Ln", "abs": "Abs", "reciprocal": "Reciprocal", "sqrt": "Sqrt",
    "rsqrt": "Rsqrt", "relu": "Relu", "bitwise_not": "Not", "sigmoid": "Sigmoid", "silu": "Silu",
    "sin": "Sin", "cos": "Cos",
}  # fmt: skip
_BINARY = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min",
    "bitwise_and": "And", "bitwise_or": "Or", "mul_add_dst": "MulAddDst",
}  # fmt: skip
_BY_SCALAR = {
    "add": "Adds", "mul": "Muls", "max": "Maxs", "min": "Mins", "axpy": "Axpy",
    "leaky_relu": "LeakyRelu", "bitwise_lshift": "ShiftLeft", "bitwise_rshift": "ShiftRight",
}  # fmt: skip


def _rowwise(name: str, scalars: int = 0) -> Printer:
    """One call for each row; neighbours only."""

    def printer(x: Statements, stmt: Instr) -> None:
        (dst,), srcs = stmt.outs, _slots(stmt)
        values = [cast("Expr", e) for e in stmt.ins if not isinstance(e, Slot)]
        given, (rows, columns, dst_pitch, *steps) = values[:scalars], values[scalars:]
        for pitch_step in steps[1::2]:
            if int_value(pitch_step) != 1:
                raise unprintable(stmt, "vector operations on elements that are no neighbours")
        texts = [x.of(e) for e in given]
        one = int_value(rows) == 1
        places = [
            _at(x, s, "" if one else f"row * {x.of(p)}")
            for s, p in zip((dst, *srcs), (dst_pitch, *steps[::2]), strict=True)
        ]
        call = f"{name}({', '.join([*places, *texts, x.of(columns)])});"
        if one:
            x.text.line(call)
            return
        with x.text.inside(f"for (int32_t row = 0; row < {x.of(rows)}; ++row)"):
            x.text.line(call)

    return printer


def _copied(name: str, *, mode: bool) -> Printer:
    def printer(x: Statements, stmt: Instr) -> None:
        (dst,), (src,) = stmt.outs, _slots(stmt)
        rows, columns, src_pitch, dst_pitch = _scalars(x, stmt)
        word = dict(stmt.imm).get("rounding") or "CAST_NONE"
        more = f", RoundMode::{word}" if mode else ""
        with x.text.inside(f"for (int32_t row = 0; row < {rows}; ++row)"):
            a, b = _at(x, dst, f"row * {dst_pitch}"), _at(x, src, f"row * {src_pitch}")
            x.text.line(f"{name}({a}, {b}{more}, {columns});")

    return printer


def _duplicate(x: Statements, stmt: Instr) -> None:
    (dst,) = stmt.outs
    value, rows, columns, pitch = _scalars(x, stmt)
    with x.text.inside(f"for (int32_t row = 0; row < {rows}; ++row)"):
        x.text.line(f"Duplicate({_at(x, dst, f'row * {pitch}')}, {value}, {columns});")


# Order -------------------------------------------------------------------------------------------


def _flag(name: str) -> Printer:
    def printer(x: Statements, stmt: Instr) -> None:
        imm = dict(stmt.imm)
        (event,) = _scalars(x, stmt)
        x.text.line(f"{name}<HardEvent::{imm['src']}_{imm['dst']}>({event});")

    return printer


def _barrier(x: Statements, stmt: Instr) -> None:
    x.text.line(f"PipeBarrier<PIPE_{dict(stmt.imm)['pipe']}>();")


def _cross_set(x: Statements, stmt: Instr) -> None:
    imm = dict(stmt.imm)
    (flag,) = _scalars(x, stmt)
    x.text.line(f"CrossCoreSetFlag<{imm['mode']}, PIPE_{imm['pipe']}>({flag});")


def _cross_wait(x: Statements, stmt: Instr) -> None:
    (flag,) = _scalars(x, stmt)
    x.text.line(f"CrossCoreWaitFlag({flag});")


def _sync_all(x: Statements, stmt: Instr) -> None:
    del stmt
    x.text.line("SyncAll();")


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
    short = {"float32": "float", "float16": "half", "bfloat16": "bfloat16_t"}
    x.text.line(f"{name}<{short.get(element, f'{element}_t')}>();")


ROWS: dict[str, Printer] = {
    "gm.ub": _gm_ub,
    "gm.ub.pad": _gm_ub_pad,
    "ub.gm": _ub_gm,
    "ub.ub": _copied("DataCopy", mode=False),
    "gm.l1.nz": _gm_l1,
    "l1.l0a": _load(turned=False),
    "l1.l0a.t": _load(turned=True),
    "l1.l0b": _load(turned=True),
    "l1.l0b.t": _load(turned=False),
    "mad": _mad,
    "l0c.gm": _l0c_gm,
    "v.cast": _copied("Cast", mode=True),
    "v.dup": _duplicate,
    **{f"v.{op}": _rowwise(name) for op, name in _UNARY.items()},
    **{f"v.{op}": _rowwise(name) for op, name in _BINARY.items()},
    **{f"v.{op}.s": _rowwise(name, 1) for op, name in _BY_SCALAR.items()},
    "flag.set": _flag("SetFlag"),
    "flag.wait": _flag("WaitFlag"),
    "barrier": _barrier,
    "cross.set": _cross_set,
    "cross.wait": _cross_wait,
    "sync.all": _sync_all,
    "mode.atomic": _atomic,
}
"""A printer for each row of A2 and A3 that has a function."""
