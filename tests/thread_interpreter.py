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
        match stmt:
            case Let():
                env[stmt.var.name] = self.eval(stmt.value, env)
            case Write():
                self.write(stmt, env)
            case If():
                self.block(stmt.then if self.eval(stmt.cond, env) else stmt.orelse, env)
            case For():
                self.loop(stmt, env)
            case While():
                while self.eval(stmt.cond, env):
                    try:
                        self.block(stmt.body, env)
                    except _Continue:
                        continue
                    except _Break:
                        break
            case Break():
                raise _Break
            case Continue():
                raise _Continue
            case ThreadReturn():
                raise _Return
            case Assert():
                if not self.eval(stmt.cond, env):
                    raise AssertionFailed(stmt.message)
            case Assume():
                assert self.eval(stmt.cond, env), "a false assumption"
            case Declare():
                self.declare(stmt, env)
            case At():
                env[stmt.array.name] = self.at(stmt, env)
            case Instr():
                self.instr(stmt, env)
            case Print():
                value = None if stmt.value is None else self.eval(stmt.value, env)  # type: ignore[arg-type]
                self.printed.append(f"{stmt.message}: {value}")
            case Kernel():
                self.kernel(stmt, env)
            case _:
                raise TypeError(f"no meaning for {type(stmt).__name__}")

    def loop(self, stmt: For, env: dict[str, Any]) -> None:
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

    def kernel(self, stmt: Kernel, env: dict[str, Any]) -> None:
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

    def declare(self, stmt: Declare, env: dict[str, Any]) -> None:
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

    def at(self, stmt: At, env: dict[str, Any]) -> np.ndarray:
        size = MANY if stmt.array.size is None else int(self.eval(stmt.array.size, env))
        storage = stmt.array.type.numpy
        raw = (ctypes.c_char * (size * storage.itemsize)).from_address(self.eval(stmt.address, env))
        return np.frombuffer(raw, storage)

    def write(self, stmt: Write, env: dict[str, Any]) -> None:
        value = self.eval(stmt.value, env)
        index, lanes = self.eval(stmt.index, env), stmt.value.dtype.lanes
        memory = env[stmt.array.name]
        assert index >= 0 and index + lanes <= memory.size, f"{stmt.array.name}[{index}]"
        memory[index : index + lanes] = value

    def instr(self, stmt: Instr, env: dict[str, Any]) -> None:
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
        dtype = stmt.outs[0].dtype
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
        match e:
            case Const():
                return (
                    _scalar(e.value, e.type)
                    if e.type.lanes == 1
                    else np.full(e.type.lanes, e.value, e.type.numpy)
                )
            case Var():
                return env[e.name]
            case Elem():
                return self.load(e, env)
            case Binary():
                return binary(e.op, self.eval(e.a, env), self.eval(e.b, env), e.a.dtype)
            case Unary():
                return unary(e.op, self.eval(e.a, env), e.a.dtype)
            case Cast():
                bits = None if e.rbits is None else np.uint32(self.eval(e.rbits, env))
                return cast(self.eval(e.a, env), e, bits)
            case Select():
                return self.select(e, env)
            case Call():
                return self.call(e, env)
            case Bitcast():
                return bitcast(self.eval(e.a, env), e.a.dtype, e.type)
            case Pack():
                parts = [self.eval(x, env) for x in e.lanes]
                return np.array(parts * (e.type.lanes // len(parts)), e.type.base.numpy)
            case Lane():
                return _scalar(self.eval(e.a, env)[e.lane], e.dtype)
            case Addr():
                memory = env[e.array.name]
                return memory.ctypes.data + self.eval(e.index, env) * memory.itemsize
            case _:
                raise TypeError(f"no meaning for {type(e).__name__}")

    def load(self, e: Elem, env: dict[str, Any]) -> Any:
        index, lanes = self.eval(e.index, env), e.type.lanes
        memory = env[e.array.name]
        assert index >= 0 and index + lanes <= memory.size, f"{e.array.name}[{index}]"
        if lanes > 1:
            return memory[index : index + lanes].copy()
        return _scalar(memory[index], e.type) if not e.type.is_float else memory[index]

    def select(self, e: Select, env: dict[str, Any]) -> Any:
        cond = self.eval(e.cond, env)
        if e.lazy:
            return self.eval(e.t if cond else e.f, env)
        t, f = self.eval(e.t, env), self.eval(e.f, env)
        return t if cond else f

    def call(self, e: Call, env: dict[str, Any]) -> Any:
        args = [self.eval(a, env) for a in e.args]
        source = (e.args[0].dtype if e.args else e.type).base
        assert source not in ("float16", "bfloat16"), "narrow arithmetic"
        fn = numerics.function(e.fn, source, e.params)
        out = fn(*(np.asarray(a, source.numpy)[()] for a in args))
        return out if e.type.lanes > 1 else _scalar(out, e.type)


def _ints(op: BinaryOp, a: int, b: int) -> int:
    match op:
        case BinaryOp.FLOORDIV:
            return a // b if b else 0
        case BinaryOp.FLOORMOD:
            return a % b if b else 0
        case BinaryOp.TRUNCDIV:
            return (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1) if b else 0
        case BinaryOp.TRUNCMOD:
            return int(math.copysign(abs(a) % abs(b), a)) if b else 0
        case BinaryOp.MIN:
            return min(a, b)
        case BinaryOp.MAX:
            return max(a, b)
        case _:
            return _SIMPLE[op](a, b)


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
    return wrap_int(_ints(op, a, b), dtype)


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
