"""A kernel for each instruction row that has a meaning: operands from memory, the instruction, what
it left back to memory.

What enters: a row. What leaves: a `Case`: the kernel, its arrays with drawn contents, and what the
row's meaning makes of them. Threads are those of one warp; each has its own operands.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.dtypes.convert import converter
from tilelang.ir.expr import Binary, BinaryOp, Const, Expr, Var
from tilelang.ir.node import Effect
from tilelang.ir.thread import (
    Argument,
    Array,
    Declare,
    Elem,
    Instr,
    Kernel,
    MakeTensorMap,
    Program,
    Slot,
    Space,
    TensorMap,
    Write,
)
from tilelang.ir.tile import For, LoopKind, Stmt
from tilelang.isa.instr import InstrRow, Is, OperandRow
from tilelang.targets.cuda.rows import ROWS

I32 = DType("int32")
LANES = 32
DEFAULTS = {"ldmatrix": ("float16", "float32", "int8"), "stmatrix": ("float16", "float32", "int8")}
FREE = ("float32", "int32", "uint8", "float16", "float64", "int64")
"""The dtypes tried where a row has any."""


def e(n: int) -> Const:
    return Const(n, I32)


def add(a: Expr, b: Expr) -> Expr:
    return Binary(BinaryOp.ADD, a, b)


def mul(a: Expr, n: int) -> Expr:
    return Binary(BinaryOp.MUL, a, e(n))


@dataclass
class Case:
    """One row with dtypes and immediates chosen; `arrays` are its global arrays by name."""

    row: InstrRow
    label: str
    kernel: Kernel
    arrays: dict[str, np.ndarray]
    operands: dict[str, str]
    imm: dict[str, Any]
    dtype: DType
    results: list[str] = field(default_factory=list)

    def expected(self) -> dict[str, np.ndarray]:
        """The arrays after the instruction, by the row's meaning."""
        after = {name: x.copy() for name, x in self.arrays.items()}
        views = {o: after[name] for o, name in self.operands.items()}
        assert self.row.meaning is not None
        results = [after[name] for name in self.results]
        if self.row.threads == LANES:
            found = self.row.meaning(**views, dtype=self.dtype, **self.imm)
            for out, value in zip(results, found, strict=True):
                out[:] = value
            return after
        for lane in range(LANES):
            here = {o: v[lane] for o, v in views.items()}
            found = self.row.meaning(**here, dtype=self.dtype, **self.imm)
            for out, value in zip(results, found, strict=True):
                out[lane] = value
        return after


def cases(rows: Iterator[InstrRow] | list[InstrRow]) -> Iterator[Case]:
    """Every row with a meaning, in each choice of dtypes and immediates."""
    for row in rows:
        if row.meaning is None or row.name == "gemm.tile":
            continue
        for dtypes in _dtype_choices(row):
            for imm in _imm_choices(row):
                yield _case(row, dtypes, imm)


def one_case(row: InstrRow) -> Case:
    """A row in its first choice of dtypes and immediates, to be compiled."""
    return _case(row, next(_dtype_choices(row)), next(_imm_choices(row)))


def with_meaning() -> list[InstrRow]:
    """The rows that `cases` takes."""
    return [ROWS[n] for n in ROWS if not n.startswith("wgmma.m64") and ROWS[n].meaning is not None]


def _dtype_choices(row: InstrRow) -> Iterator[dict[str, str]]:
    free = [o for o in row.operands if not o.like]
    many = [o for o in free if len(o.dtypes) != 1 or o.kind is Is.SLOT]
    base = {o.name: o.dtypes[0] for o in free if o.dtypes}
    open_ = [o for o in many if not o.dtypes]
    if not open_:
        lead = free[0] if free else None
        if lead is None or not lead.dtypes:
            yield base
            return
        for name in lead.dtypes:
            if name != "tfloat32":
                yield base | {lead.name: name}
        return
    family = row.name.split(".")[0]
    for name in DEFAULTS.get(family, _usable(row)):
        yield base | {o.name: name for o in open_}


def _usable(row: InstrRow) -> tuple[str, ...]:
    if row.name.startswith("cp.async"):
        return ("float32", "uint8")
    if row.name.endswith((".or",)):
        return ("int32", "uint64", "uint8")
    return FREE


def _imm_choices(row: InstrRow) -> Iterator[dict[str, Any]]:
    names = {i.name: i for i in row.imm}
    if "trans" in names:
        yield from ({"trans": t} for t in (False, True))
    elif "order" in names:
        yield from ({"order": o} for o in ("relaxed", "seq_cst"))
    elif "width" in names:
        yield from ({}, {"width": 8})
    elif "step" in names:
        yield {"step": "dec", "registers": 24}
    else:
        known = {"id": 1, "threads": LANES, "count": 0, "mask": 0xFFFFFFFF}
        known |= {"swizzle": 128, "leading": 16, "stride": 1024, "cache": "evict_last"}
        known |= {"columns": 32, "d": "f32", "a": "e4m3", "b": "e4m3", "m": 128, "n": 64}
        known |= {"kind": "mxf8f6f4", "scale": "ue8m0", "scale_a_at": 0, "scale_b_at": 0}
        known |= {"trans_a": False, "trans_b": False}
        yield {i.name: known[i.name] for i in row.imm if not i.optional or i.name == "cache"}


def _case(row: InstrRow, dtypes: dict[str, str], imm: dict[str, Any]) -> Case:
    label = f"{row.name} {'/'.join(dtypes.values())} {imm or ''}".strip()
    return _Builder(row, dtypes, imm, label).case()


class _Builder:
    def __init__(self, row: InstrRow, dtypes: dict[str, str], imm: dict[str, Any], label: str):
        self.row, self.imm, self.label = row, imm, label
        self.tag = f"k{zlib.crc32(label.encode()):08x}"
        self.dtypes = dict(dtypes)
        for o in row.operands:
            if o.like:
                self.dtypes[o.name] = self.dtypes[o.like]
        self.rng = np.random.default_rng(zlib.crc32(label.encode()))
        self.params: list[Array] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.operands: dict[str, str] = {}
        self.before: list[Stmt] = []
        self.after: list[Stmt] = []
        self.shared = 0
        self.tx = Var(f"{self.tag}_tx", I32)
        self.maps: list[TensorMap] = []

    def case(self) -> Case:
        outs = tuple(self.slot(o) for o in self.row.outs)
        makers = {Is.SLOT: self.slot, Is.VALUE: self.value, Is.MAP: self.map}
        ins = tuple(makers[o.kind](o) for o in self.row.ins)
        results = tuple(
            Var(f"{self.tag}_{o.name}", DType(self.dtypes[o.name])) for o in self.row.results
        )
        names = []
        for v in results:
            array = self.array(v.name, v.type, 1, np.zeros((LANES,), v.type.numpy))
            names.append(array.name)
            self.after.append(Write(array, self.tx, v))
        instr = Instr(self.row.name, outs, ins, results=results, imm=tuple(self.imm.items()))
        middle: list[Stmt] = [self.meet(), instr]
        if self.row.meaning and any(o.effect & Effect.ASYNC for o in self.row.operands):
            middle.append(Instr("cp.async.wait_all", (), ()))
        middle.append(self.meet())
        params, threads = (*self.params, *self.maps), max(LANES, self.row.threads)
        body, bx = (*self.before, *middle, *self.after), Var(f"{self.tag}_bx", I32)
        kernel = Kernel(
            self.tag, params, (e(1),), (threads,), (bx,), (self.tx,), body, shared=self.shared
        )
        lead = outs[0].dtype if outs else results[0].dtype if results else I32
        return Case(self.row, self.label, kernel, self.arrays, self.operands, self.imm, lead, names)

    def meet(self) -> Instr:
        return Instr("barrier.sync", (), (), imm=(("id", 0), ("threads", LANES)))

    def array(self, name: str, dtype: DType, count: int, contents: np.ndarray) -> Array:
        array = Array(f"{self.tag}_{name}" if not name.startswith(self.tag) else f"{name}_out",
                      dtype, e(LANES * count), align=16)  # fmt: skip
        self.params.append(array)
        self.arrays[array.name] = contents
        return array

    def drawn(self, o: OperandRow, shape: tuple[int, ...]) -> np.ndarray:
        dtype = DType(self.dtypes[o.name])
        if dtype.is_bool:
            return self.rng.random(shape) < (0.5 if "ballot" in self.row.name else 0.9)
        low, high = (0, 32) if o.name == "lane" else (-4 if dtype.is_signed else 0, 5)
        if o.name == "bytes" and self.row.name.endswith("zfill"):
            size = int(self.row.name.split(".")[3])
            low, high = 0, size + 1
        if o.name == "lane" and "width" in self.imm:
            high = self.imm["width"]
        numbers = self.rng.integers(low, high, shape)
        return converter(DType("int64"), dtype)(np.asarray(numbers, np.int64))

    def value(self, o: OperandRow) -> Expr:
        dtype = DType(self.dtypes[o.name])
        contents = self.drawn(o, (LANES,))
        if o.name == "lane" and self.row.name.endswith("bfly"):
            contents[:] = contents[0]
        array = self.array(o.name, dtype, 1, contents)
        self.operands[o.name] = array.name
        return Elem(array, self.tx, dtype)

    def map(self, o: OperandRow) -> TensorMap:
        found = re.search(r"tensor\.(\d)d", self.row.name)
        rank = int(found.group(1)) if found else 1
        f32 = DType("float32")
        array = Array(f"{self.tag}_tensor", f32, e(4096), align=16)
        strides = tuple(Const(128 << k, DType("int64")) for k in range(rank - 1))
        made = TensorMap(f"{self.tag}_map", array, (e(32),) * rank, strides, (4,) * rank)
        self.maps.append(made)
        return made

    def slot(self, o: OperandRow) -> Slot:
        dtype = DType(self.dtypes[o.name])
        count = o.count if o.count is not None else (o.bits or 512) // dtype.bits
        spaces = o.spaces or (Space.REGISTER,)
        space = Space.GLOBAL if Space.GLOBAL in spaces else spaces[0]
        outside = self.array(o.name, dtype, count, self.drawn(o, (LANES, count)))
        self.operands[o.name] = outside.name
        first = mul(self.tx, count)
        if space is Space.GLOBAL:
            return Slot(outside, first, count)
        size = count * (1 if space is Space.REGISTER else LANES)
        align = _ALIGNS.get(space, 0) if o.align <= 16 else o.align
        inside = Array(f"{outside.name}_in", dtype, e(size), space=space, align=align)
        offset = None
        if space is Space.SHARED:
            offset = self.shared
            self.shared += -(-size * dtype.numpy.itemsize // 128) * 128
        start = e(0) if space is Space.REGISTER else first
        self.before.append(Declare(inside, offset=offset))
        self.before.append(self.move(inside, start, outside, first, count))
        if o.effect & Effect.WRITE:
            self.after.append(self.move(outside, first, inside, start, count))
        return Slot(inside, start, count)

    def move(self, dst: Array, to: Expr, src: Array, from_: Expr, count: int) -> For:
        i = Var(f"{dst.name}_i{len(self.before)}", I32)
        body = Write(dst, add(to, i), Elem(src, add(from_, i), src.type))
        return For(i, e(0), e(count), (body,), kind=LoopKind.UNROLL)


_ALIGNS = {Space.SHARED: 16}


def program(of: list[Case]) -> Program:
    """One program with the kernels of several cases."""
    params = [p for c in of for p in c.kernel.params]
    maps = [p for p in params if isinstance(p, TensorMap)]
    arrays = [*(p for p in params if isinstance(p, Array)), *(m.array for m in maps)]
    args = tuple(Argument(p.name, array=p, shape=(p.size,)) for p in arrays if p.size is not None)
    kernels = tuple(c.kernel for c in of)
    return Program("rows", args, (), (*(MakeTensorMap(m) for m in maps), *kernels))
