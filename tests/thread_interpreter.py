"""Runs programs of the thread stage with one thread per block: plain Python, slow and simple.

The meaning of instructions is that of their rows. A block's shared arrays lie in one pool at their
planned places, so a wrong plan gives wrong numbers. With `backwards`,
loops in lockstep run from their end, so one that carries something from one iteration to the next
gives wrong numbers too.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from typing import Any

import numpy as np

from tilelang.dtypes import DType, wrap_int
from tilelang.dtypes.convert import cast as cast_values
from tilelang.dtypes.convert import converter
from tilelang.dtypes.storage import from_bits, to_bits
from tilelang.emulator import numerics
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Call,
    Cast,
    Const,
    Expr,
    Lane,
    Pack,
    Select,
    Unary,
    UnaryOp,
    Var,
)
from tilelang.ir.thread import (
    Addr,
    Array,
    At,
    Declare,
    Elem,
    Instr,
    Kernel,
    Program,
    Slot,
    Space,
    Write,
)
from tilelang.ir.tile import (
    Assert,
    Assume,
    Block,
    Break,
    Continue,
    For,
    If,
    Let,
    LoopKind,
    Print,
    Stmt,
    ThreadReturn,
    While,
)
from tilelang.isa.rows import GENERIC

STEPS = 3_000_000
"""How many statements a program may run."""
MANY = 1 << 16
"""The size of memory that has none."""


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


class _Return(Exception):
    pass


class AssertionFailed(Exception):
    """An `Assert` that does not hold."""


def run(program: Program, args: dict[str, Any], *, backwards: bool = False) -> list[str]:
    """Run a program on NumPy arrays in place; the result is what it printed."""
    machine = _Machine(backwards)
    env: dict[str, Any] = {}
    for p in program.params:
        if p.var is not None:
            env[p.var.name] = _scalar(args[p.name], p.var.type)
        elif p.array is not None and args[p.name] is not None:
            env[p.array.name] = _flat(args[p.name])
    for v in program.dynamic:
        env[v.name] = int(args[v.name])
    with np.errstate(all="ignore"):
        machine.block(program.body, env)
    return machine.printed


def _flat(array: np.ndarray) -> np.ndarray:
    if array.flags.c_contiguous:
        return array.reshape(-1)
    span = (
        1
        + sum(s * (n - 1) for s, n in zip(array.strides, array.shape, strict=True))
        // array.itemsize
    )
    return np.lib.stride_tricks.as_strided(array, (span,), (array.itemsize,))


def _scalar(value: Any, dtype: DType) -> Any:
    if dtype.is_bool:
        return bool(value)
    if dtype.is_float:
        return np.asarray(value).astype(dtype.numpy)[()]
    return int(value)


class _Machine:
    def __init__(self, backwards: bool) -> None:
        self.backwards = backwards
        self.printed: list[str] = []
        self.pool = np.zeros(0, np.uint8)
        self.left = STEPS

    # Statements ----------------------------------------------------------------------------------

    def block(self, body: Block, env: dict[str, Any]) -> None:
        for stmt in body:
            self.statement(stmt, env)

    def statement(self, stmt: Stmt, env: dict[str, Any]) -> None:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError(f"more than {STEPS} statements")
        getattr(self, "do_" + type(stmt).__name__)(stmt, env)

    def do_Let(self, stmt: Let, env: dict[str, Any]) -> None:
        env[stmt.var.name] = self.eval(stmt.value, env)

    def do_If(self, stmt: If, env: dict[str, Any]) -> None:
        self.block(stmt.then if self.eval(stmt.cond, env) else stmt.orelse, env)

    def do_While(self, stmt: While, env: dict[str, Any]) -> None:
        while self.eval(stmt.cond, env):
            try:
                self.block(stmt.body, env)
            except _Continue:
                continue
            except _Break:
                break

    def do_Break(self, stmt: Break, env: dict[str, Any]) -> None:
        raise _Break

    def do_Continue(self, stmt: Continue, env: dict[str, Any]) -> None:
        raise _Continue

    def do_ThreadReturn(self, stmt: ThreadReturn, env: dict[str, Any]) -> None:
        raise _Return

    def do_Assert(self, stmt: Assert, env: dict[str, Any]) -> None:
        if not self.eval(stmt.cond, env):
            raise AssertionFailed(stmt.message)

    def do_Assume(self, stmt: Assume, env: dict[str, Any]) -> None:
        assert self.eval(stmt.cond, env), "a false assumption"

    def do_Print(self, stmt: Print, env: dict[str, Any]) -> None:
        value = None if stmt.value is None else self.eval(stmt.value, env)  # type: ignore[arg-type]
        self.printed.append(f"{stmt.message}: {value}")

    def do_At(self, stmt: At, env: dict[str, Any]) -> None:
        size = MANY if stmt.array.size is None else int(self.eval(stmt.array.size, env))
        storage = stmt.array.type.numpy
        address = self.eval(stmt.address, env)
        raw = (ctypes.c_char * (size * storage.itemsize)).from_address(address)
        env[stmt.array.name] = np.frombuffer(memoryview(raw), storage)

    def do_For(self, stmt: For, env: dict[str, Any]) -> None:
        start, stop = self.eval(stmt.start, env), self.eval(stmt.stop, env)
        step = 1 if stmt.step is None else self.eval(stmt.step, env)
        rounds = range(start, stop, step)
        lockstep = stmt.kind is LoopKind.VECTORIZED
        for i in reversed(rounds) if lockstep and self.backwards else rounds:
            env[stmt.var.name] = i
            try:
                self.block(stmt.body, env)
            except _Continue:
                continue
            except _Break:
                break

    def do_Kernel(self, stmt: Kernel, env: dict[str, Any]) -> None:
        grid = [range(self.eval(e, env)) for e in stmt.grid]
        outside = {p.name: env[p.name] for p in stmt.params if p.name in env}
        assert math.prod(stmt.block) == 1
        for at in itertools.product(*reversed(grid)):
            inside = dict(outside)
            inside.update(zip((v.name for v in stmt.vars), reversed(at), strict=True))
            self.pool = np.full(stmt.shared, 0xFF, np.uint8)
            try:
                self.block(stmt.body, inside)
            except _Return:
                continue

    def do_Declare(self, stmt: Declare, env: dict[str, Any]) -> None:
        array = stmt.array
        size = int(self.eval(array.size, env)) if array.size is not None else 0
        storage = array.type.numpy
        if stmt.offset is not None and not array.type.is_subbyte:
            place = self.pool[stmt.offset : stmt.offset + size * storage.itemsize]
            assert place.nbytes == size * storage.itemsize
            env[array.name] = place.view(storage)
        else:
            env[array.name] = np.full(size * storage.itemsize, 0xFF, np.uint8).view(storage)
            if array.type.is_bool or array.type.is_subbyte:
                env[array.name][:] = 0
        if stmt.init is not None:
            env[array.name][0] = self.eval(stmt.init, env)

    def do_Write(self, stmt: Write, env: dict[str, Any]) -> None:
        value = self.eval(stmt.value, env)
        index, lanes = self.eval(stmt.index, env), stmt.value.dtype.lanes
        memory = env[stmt.array.name]
        assert index >= 0 and index + lanes <= memory.size, f"{stmt.array.name}[{index}]"
        memory[index : index + lanes] = value

    def do_Instr(self, stmt: Instr, env: dict[str, Any]) -> None:
        row = GENERIC[stmt.row]
        operands = {
            o.name: self.operand(x, env)
            for o, x in zip((*row.outs, *row.ins), (*stmt.outs, *stmt.ins), strict=True)
        }
        imm = dict(stmt.imm)
        if stmt.row == "print.element":
            value = operands["element"][0]
            self.printed.append(f"{imm['message']}: {imm['buffer']}[{operands['index']}] = {value}")
            return
        assert row.meaning is not None
        dtype = (stmt.outs or stmt.results)[0].dtype
        found = row.meaning(**operands, dtype=dtype, **imm)
        for var, value in zip(stmt.results, found, strict=True):
            env[var.name] = _scalar(value, var.type)

    def operand(self, x: Any, env: dict[str, Any]) -> Any:
        if not isinstance(x, Slot):
            return self.eval(x, env)
        index, memory = self.eval(x.index, env), env[x.array.name]
        assert index >= 0 and index + x.count <= memory.size, (
            f"{x.array.name}[{index} : +{x.count}]"
        )
        return memory[index : index + x.count]

    # Expressions ---------------------------------------------------------------------------------

    def eval(self, e: Expr, env: dict[str, Any]) -> Any:
        return getattr(self, "of_" + type(e).__name__)(e, env)

    def of_Const(self, e: Const, env: dict[str, Any]) -> Any:
        if e.type.lanes > 1:
            return np.full(e.type.lanes, e.value, e.type.base.numpy)
        return _scalar(e.value, e.type)

    def of_Var(self, e: Var, env: dict[str, Any]) -> Any:
        return env[e.name]

    def of_Binary(self, e: Binary, env: dict[str, Any]) -> Any:
        return binary(e.op, self.eval(e.a, env), self.eval(e.b, env), e.a.dtype)

    def of_Unary(self, e: Unary, env: dict[str, Any]) -> Any:
        return unary(e.op, self.eval(e.a, env), e.a.dtype)

    def of_Cast(self, e: Cast, env: dict[str, Any]) -> Any:
        bits = None if e.rbits is None else np.uint32(self.eval(e.rbits, env))
        return cast(self.eval(e.a, env), e, bits)

    def of_Bitcast(self, e: Bitcast, env: dict[str, Any]) -> Any:
        return bitcast(self.eval(e.a, env), e.a.dtype, e.type)

    def of_Pack(self, e: Pack, env: dict[str, Any]) -> Any:
        parts = [self.eval(x, env) for x in e.lanes]
        return np.array(parts * (e.type.lanes // len(parts)), e.type.base.numpy)

    def of_Lane(self, e: Lane, env: dict[str, Any]) -> Any:
        return _scalar(self.eval(e.a, env)[e.lane], e.dtype)

    def of_Addr(self, e: Addr, env: dict[str, Any]) -> Any:
        memory = env[e.array.name]
        return memory.ctypes.data + self.eval(e.index, env) * memory.itemsize

    def of_Elem(self, e: Elem, env: dict[str, Any]) -> Any:
        index, lanes = self.eval(e.index, env), e.type.lanes
        memory = env[e.array.name]
        assert index >= 0 and index + lanes <= memory.size, f"{e.array.name}[{index}]"
        if lanes > 1:
            return memory[index : index + lanes].copy()
        return _scalar(memory[index], e.type) if not e.type.is_float else memory[index]

    def of_Select(self, e: Select, env: dict[str, Any]) -> Any:
        cond = self.eval(e.cond, env)
        if e.lazy:
            return self.eval(e.t if cond else e.f, env)
        t, f = self.eval(e.t, env), self.eval(e.f, env)
        return t if cond else f

    def of_Call(self, e: Call, env: dict[str, Any]) -> Any:
        args = [self.eval(a, env) for a in e.args]
        source = (e.args[0].dtype if e.args else e.type).base
        assert source not in ("float16", "bfloat16"), "narrow arithmetic"
        fn = numerics.function(e.fn, source, e.params)
        out = fn(*(np.asarray(a, source.numpy)[()] for a in args))
        return out if e.type.lanes > 1 else _scalar(out, e.type)


def _truncated(a: int, b: int) -> int:
    return (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1) if b else 0


_INTS = {
    BinaryOp.FLOORDIV: lambda a, b: a // b if b else 0,
    BinaryOp.FLOORMOD: lambda a, b: a % b if b else 0,
    BinaryOp.TRUNCDIV: _truncated,
    BinaryOp.TRUNCMOD: lambda a, b: a - b * _truncated(a, b) if b else 0,
    BinaryOp.MIN: min,
    BinaryOp.MAX: max,
}
_SIMPLE = {
    BinaryOp.ADD: lambda a, b: a + b,
    BinaryOp.SUB: lambda a, b: a - b,
    BinaryOp.MUL: lambda a, b: a * b,
    BinaryOp.DIV: lambda a, b: a / b,
    BinaryOp.BITAND: lambda a, b: a & b,
    BinaryOp.BITOR: lambda a, b: a | b,
    BinaryOp.BITXOR: lambda a, b: a ^ b,
    BinaryOp.EQ: lambda a, b: a == b,
    BinaryOp.NE: lambda a, b: a != b,
    BinaryOp.LT: lambda a, b: a < b,
    BinaryOp.LE: lambda a, b: a <= b,
    BinaryOp.GT: lambda a, b: a > b,
    BinaryOp.GE: lambda a, b: a >= b,
    BinaryOp.AND: lambda a, b: a and b,
    BinaryOp.OR: lambda a, b: a or b,
}


def binary(op: BinaryOp, a: Any, b: Any, dtype: DType) -> Any:
    """An operator on values of one type."""
    if dtype.lanes > 1:
        pairs = zip(np.atleast_1d(a), np.atleast_1d(b), strict=True)
        parts = [
            binary(op, _scalar(x, dtype.base), _scalar(y, dtype.base), dtype.base) for x, y in pairs
        ]
        return np.array(parts, dtype.numpy)
    if op.is_compare or op.is_logical:
        return bool(_SIMPLE[op](a, b))
    if dtype.is_bool:
        table = {BinaryOp.MIN: BinaryOp.AND, BinaryOp.MAX: BinaryOp.OR}
        return bool(_SIMPLE[table.get(op, op)](a, b))
    if dtype.is_float:
        assert dtype.base in ("float32", "float64"), f"arithmetic on {dtype}"
        special = {
            BinaryOp.FLOORDIV: np.floor_divide,
            BinaryOp.FLOORMOD: np.remainder,
            BinaryOp.TRUNCDIV: numerics.TEXT_NAMES["float_truncdiv"],
            BinaryOp.TRUNCMOD: np.fmod,
            BinaryOp.MIN: np.fmin,
            BinaryOp.MAX: np.fmax,
        }
        return special.get(op, _SIMPLE.get(op))(a, b)  # type: ignore[misc]
    assert not dtype.is_subbyte, f"arithmetic on {dtype}"
    if op in (BinaryOp.SHL, BinaryOp.SHR):
        inside = 0 <= b < dtype.bits
        value = (
            (a << b if op is BinaryOp.SHL else a >> b)
            if inside
            else (-1 if op is BinaryOp.SHR and a < 0 else 0)
        )
        return wrap_int(value, dtype)
    return wrap_int((_INTS.get(op) or _SIMPLE[op])(a, b), dtype)


def unary(op: UnaryOp, a: Any, dtype: DType) -> Any:
    """An operator on one value."""
    if op is UnaryOp.NOT or dtype.is_bool:
        return not a
    if dtype.is_float or dtype.lanes > 1:
        return np.asarray(-a if op is UnaryOp.NEG else ~a, dtype.numpy)[()]
    return wrap_int(-a if op is UnaryOp.NEG else ~a, dtype)


def cast(a: Any, e: Cast, rbits: Any = None) -> Any:
    """A conversion by value."""
    src, dst = e.a.dtype, e.type
    values = np.asarray(a, src.base.numpy)
    if e.rounding == "rs":
        out = cast_values(values, src.base, dst.base, "rs", e.saturate, rbits)
        return out[()]
    out = converter(src.base, dst.base, e.rounding, e.saturate)(values)
    return out if dst.lanes > 1 else _scalar(out[()], dst) if not dst.is_float else out[()]


def bitcast(a: Any, src: DType, dst: DType) -> Any:
    """The same bits as another type."""
    words = np.atleast_1d(to_bits(np.asarray(a, src.base.numpy), src.base))
    bits = sum(int(w) << (src.bits * n) for n, w in enumerate(words))
    parts = [bits >> (dst.bits * n) & ((1 << dst.bits) - 1) for n in range(dst.lanes)]
    width = next(w for w in (8, 16, 32, 64) if w >= dst.bits)
    out = from_bits(np.array(parts, f"u{width // 8}"), dst.base)
    return out if dst.lanes > 1 else out[0] if dst.is_float else _scalar(out[0], dst)


__all__ = ["Array", "AssertionFailed", "Space", "run"]
