"""Vector functions: the body of a `VectorFunction`, carried out as the one operation that it is.

What enters: a function of the thread stage, the values of names from outside, and `Ports` to the
memories. What leaves: changed memory. The threads of a SIMT function go in lockstep, statement by
statement, so a barrier between them has nothing to do; a SIMD function is one thread whose names
may be vector registers. A value has one element for each thread (or one for all), a vector its
lanes along the first axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tilelang.dtypes import const_value
from tilelang.errors import InternalError, Loc, TileRuntimeError, error
from tilelang.ir.ascend import VectorFunction
from tilelang.ir.ascend_simd import SIMD_OPS
from tilelang.ir.expr import (
    Binary,
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
    int_value,
)
from tilelang.ir.thread import Array, Declare, Elem, Instr, Slot, Space, Write
from tilelang.ir.tile import (
    Assert,
    Assume,
    Block,
    Break,
    Continue,
    For,
    If,
    Let,
    Print,
    Stmt,
    ThreadReturn,
    While,
)
from tilelang.simulator import values
from tilelang.targets.ascend.rows.simd import OLD, SIMD, TYPED, operand_names

Values = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

_SIMD = {row.name: row for row in SIMD}
_WARP = 32
_OWN = (Space.REGISTER, Space.LOCAL)
_GATHERS = ("vgatherb", "vgather2")


class Ports(Protocol):
    """What a function reads and writes outside of its registers; indices count elements."""

    def load(self, array: Array, index: Values, count: int, loc: Loc | None) -> Values:
        """`count` neighbours from each index on, as (count, indices)."""
        ...

    def store(self, array: Array, index: Values, value: Values, loc: Loc | None) -> None:
        """Neighbouring elements, (count, indices), from each index on."""
        ...

    def peek(self, array: Array, index: int, count: int) -> Values:
        """Neighbours from an index on, that nobody reads; as many as the memory has."""
        ...


def run_function(stmt: VectorFunction, names: Mapping[str, Any], ports: Ports) -> list[str]:
    """Carry out one function; what it prints."""
    run = _Run(stmt, names, ports)
    run.block(stmt.body)
    return run.printed


class _Run:
    """One function under way. `mask` are the threads that carry out the current statement."""

    def __init__(self, stmt: VectorFunction, names: Mapping[str, Any], ports: Ports) -> None:
        self.ports = ports
        self.count = math.prod(stmt.threads) if stmt.threads else 1
        self.names: dict[str, Any] = dict(names)
        flat = np.arange(self.count, dtype=np.int32)
        for var, extent in zip(stmt.thread_vars, stmt.threads, strict=False):
            self.names[var.name] = flat % np.int32(extent)
            flat = flat // np.int32(extent)
        self.registers: dict[str, Values] = {}
        self.mask: Mask = np.ones(self.count, np.bool_)
        self.left: Mask = np.zeros(self.count, np.bool_)
        self.loops: list[tuple[Mask, Mask]] = []
        self.printed: list[str] = []
        self.loc: Loc | None = stmt.loc

    # Statements ----------------------------------------------------------------------------------

    def block(self, body: Block) -> None:
        """Statements in order."""
        for stmt in body:
            if not self.mask.any():
                return
            self.loc = stmt.loc or self.loc
            rule = _STATEMENTS.get(type(stmt))
            if rule is None:
                raise InternalError(f"a vector function with {type(stmt).__name__}")
            rule(self, stmt)

    def let(self, stmt: Let) -> None:
        """A name."""
        self.names[stmt.var.name] = self.value(stmt.value)

    def declare(self, stmt: Declare) -> None:
        """Registers, or an array of each thread."""
        size = int_value(stmt.array.size) if stmt.array.size is not None else None
        made = np.zeros((size or 0, self.count), stmt.array.type.numpy)
        if stmt.init is not None:
            made[...] = self.value(stmt.init)
        self.registers[stmt.array.name] = made

    def write(self, stmt: Write) -> None:
        """Elements, for the threads that are active."""
        value = self.value(stmt.value)
        lanes = stmt.value.dtype.lanes
        index = self.spread(self.value(stmt.index)).astype(np.int64)
        given = np.asarray(value)
        column = np.broadcast_to(given.reshape(lanes, -1), (lanes, self.count))
        active = np.flatnonzero(self.mask)
        if stmt.array.space in _OWN:
            held = self.registers[stmt.array.name]
            for lane in range(lanes):
                held[index[active] + lane, active] = column[lane, active]
            return
        self.ports.store(stmt.array, index[active], column[:, active], self.loc)

    def branch(self, stmt: If) -> None:
        """Each arm by its threads."""
        cond = self.spread(self.value(stmt.cond)).astype(np.bool_)
        before = self.mask
        for arm, chosen in ((stmt.then, cond), (stmt.orelse, ~cond)):
            if arm:
                self.mask = self.alive(before & chosen)
                self.block(arm)
        self.mask = self.alive(before)

    def alive(self, mask: Mask) -> Mask:
        """Those threads of a mask that have not left."""
        mask = mask & ~self.left
        for broken, skipped in self.loops:
            mask = mask & ~broken & ~skipped
        return mask

    def loop(self, stmt: For) -> None:
        """Rounds until no thread has one left."""
        start, stop = (self.spread(self.value(e)) for e in (stmt.start, stmt.stop))
        step = 1 if stmt.step is None else int_value(stmt.step) or 1
        at = start.astype(stmt.var.type.numpy)

        def more() -> Mask:
            return at < stop if step > 0 else at > stop

        def begin() -> None:
            self.names[stmt.var.name] = at

        before = self.mask
        self.loops.append((np.zeros_like(before), np.zeros_like(before)))
        while self.round(before & more(), stmt.body, begin):
            at = (at + step).astype(at.dtype)
        self.loops.pop()
        self.mask = self.alive(before)

    def repeat(self, stmt: While) -> None:
        """Rounds while the condition holds for some thread."""
        before = self.mask
        self.loops.append((np.zeros_like(before), np.zeros_like(before)))
        while True:
            self.mask = self.alive(before)
            cond = self.spread(self.value(stmt.cond)).astype(np.bool_)
            if not self.round(before & cond, stmt.body, lambda: None):
                break
            before = before & cond
        self.loops.pop()
        self.mask = self.alive(before)

    def round(self, mask: Mask, body: Block, begin: Callable[[], None]) -> bool:
        """One round by the threads of a mask; whether there were any."""
        broken, skipped = self.loops[-1]
        skipped[...] = False
        self.mask = self.alive(mask)
        if not self.mask.any():
            return False
        begin()
        self.block(body)
        skipped[...] = False
        del broken
        return True

    def leave(self, stmt: Break | Continue | ThreadReturn) -> None:
        """Threads that leave a round, a loop or the function."""
        if isinstance(stmt, ThreadReturn):
            self.left |= self.mask
        else:
            broken, skipped = self.loops[-1]
            target = broken if isinstance(stmt, Break) else skipped
            target |= self.mask
        self.mask = np.zeros_like(self.mask)

    def check(self, stmt: Assert) -> None:
        """The author's assertion."""
        cond = self.spread(self.value(stmt.cond)).astype(np.bool_)
        if not cond[self.mask].all():
            kind = stmt.kind or "assert"
            raise error(kind, stmt.message, stmt.loc, cls=TileRuntimeError)

    def show(self, stmt: Print) -> None:
        """What a thread prints."""
        shown: Any = None
        if isinstance(stmt.value, Expr):
            shown = self.spread(self.value(stmt.value))[self.mask]
        for item in [""] if shown is None else shown:
            self.printed.append(f"{stmt.message}{item}")

    # Instructions --------------------------------------------------------------------------------

    def instruction(self, stmt: Instr) -> None:
        """A shuffle or barrier of threads, or an operation on vector registers."""
        if stmt.row in _SIMD:
            self.simd(stmt)
            return
        rule = _INSTRUCTIONS.get(stmt.row)
        if rule is None:
            raise InternalError(f"a vector function with the instruction {stmt.row}")
        rule(self, stmt)

    def barrier(self, stmt: Instr) -> None:
        """Threads in lockstep have met."""
        del stmt

    def shuffle(self, stmt: Instr) -> None:
        """A value of another thread of the warp."""
        source, by = (self.spread(self.value(e)) for e in stmt.ins)  # type: ignore[arg-type]
        width = int(dict(stmt.imm).get("width", _WARP))
        lane = np.arange(self.count)
        inside, first = lane % width, lane - lane % width
        move = by.astype(np.int64)
        other = {
            "bfly": inside ^ move,
            "down": inside + move,
            "up": inside - move,
            "idx": move % width,
        }[stmt.row.rsplit(".", 1)[1]]
        valid = (other >= 0) & (other < width)
        at = np.where(valid, first + other, lane)
        self.names[stmt.results[0].name] = source[np.minimum(at, self.count - 1)]

    def simd(self, stmt: Instr) -> None:
        """An operation on vector registers."""
        row = _SIMD[stmt.row]
        fn = SIMD_OPS[stmt.row.removeprefix("simd.").removesuffix(".merge")]
        outs, ins = list(stmt.outs), list(stmt.ins)
        given: dict[str, Any] = dict(stmt.imm)
        if stmt.row.endswith(".merge"):
            given[OLD] = self.operand(ins.pop(), OLD)
        written: list[tuple[str, Slot]] = []
        for name in operand_names(fn):
            if name[0] == "w":
                slot = outs.pop(0)
                written.append((name, slot))
            else:
                given[name] = self.operand(ins.pop(0), name, gathers=fn.name in _GATHERS)
        if fn.name in TYPED:
            given["result"] = stmt.results[0].type
        if row.meaning is None:
            raise InternalError(f"{row.name} has no meaning")
        if written:
            self.stored(row.meaning, given, *written[0])
            return
        for var, value in zip(stmt.results, row.meaning(**given), strict=True):
            self.names[var.name] = value

    def operand(self, node: Any, name: str, *, gathers: bool = False) -> Any:
        """A register, predicate or scalar, or elements of UB; a gather reads some of an array."""
        if not isinstance(node, Slot):
            value = np.asarray(self.value(node))
            return value.reshape(-1)[0] if name[0] == "s" else value.reshape(-1)
        index = int(np.asarray(self.value(node.index)).reshape(-1)[0])
        size = int_value(node.array.size) if node.array.size is not None else None
        inside = min(node.count, max((size or 0) - index, 0))
        if gathers:  # what it reads of the array is not known here
            return self.ports.peek(node.array, index, inside)
        data = self.ports.load(node.array, np.array([index]), inside, self.loc)[:, 0]
        if inside < node.count:  # beyond the array: what is there must not be used
            rest = self.ports.peek(node.array, index + inside, node.count - inside)
            data = np.concatenate([data, rest])
        return data

    def stored(
        self, meaning: Callable[..., Any], given: dict[str, Any], name: str, slot: Slot
    ) -> None:
        """Write what an operation writes: what does not depend on what was there before."""
        index = int(np.asarray(self.value(slot.index)).reshape(-1)[0])
        dtype = slot.array.type.numpy
        tries = [np.full(slot.count * dtype.itemsize, b, np.uint8).view(dtype) for b in (0, 255)]
        for data in tries:
            meaning(**given, **{name: data})
        a, b = (data.view(np.uint8).reshape(slot.count, -1) for data in tries)
        places = np.flatnonzero((a == b).all(axis=1))
        if places.size:
            self.ports.store(slot.array, index + places, tries[0][places][None, :], self.loc)

    # Values --------------------------------------------------------------------------------------

    def spread(self, value: Any) -> Values:
        """A scalar value, one element for each thread."""
        return np.broadcast_to(np.asarray(value), (self.count,))

    def value(self, e: Expr) -> Any:
        """What an expression is for each thread."""
        rule = _EXPRESSIONS.get(type(e))
        if rule is None:
            raise InternalError(f"a vector function with {type(e).__name__}")
        with np.errstate(all="ignore"):
            return rule(self, e)

    def elem(self, e: Elem) -> Any:
        """Elements of an array, for the threads that are active."""
        lanes = e.type.lanes
        index = self.spread(self.value(e.index)).astype(np.int64)
        active = np.flatnonzero(self.mask)
        out = np.zeros((lanes, self.count), e.array.type.numpy)
        if e.array.space in _OWN:
            held = self.registers[e.array.name]
            for lane in range(lanes):
                out[lane, active] = held[index[active] + lane, active]
        else:
            out[:, active] = self.ports.load(e.array, index[active], lanes, self.loc)
        return out if lanes > 1 else out[0]

    def select(self, e: Select) -> Any:
        """One of two values; a lazy one evaluates each arm for its threads alone."""
        cond = self.spread(self.value(e.cond)).astype(np.bool_)
        before = self.mask
        arms: list[npt.NDArray[Any]] = []
        for arm, chosen in ((e.t, cond), (e.f, ~cond)):
            self.mask = before & chosen if e.lazy else before
            arms.append(np.asarray(self.value(arm)))
        self.mask = before
        return np.where(cond, arms[0], arms[1])

    def pack(self, e: Pack) -> Any:
        """A vector of its lanes."""
        lanes = [self.spread(self.value(lane)) for lane in e.lanes]
        return np.stack(lanes * (e.type.lanes // len(lanes)))


def _const(run: _Run, e: Const) -> Any:
    del run
    return np.asarray(const_value(e.value, e.type.base), e.type.base.numpy)[()]


def _unary(run: _Run, e: Unary) -> Any:
    a: Any = run.value(e.a)
    if e.op is UnaryOp.NOT or e.a.dtype.is_bool:
        return np.logical_not(a)
    made: Any = np.negative(a) if e.op is UnaryOp.NEG else np.invert(a)
    return made


_EXPRESSIONS: dict[type[Expr], Callable[[_Run, Any], Any]] = {
    Const: _const,
    Var: lambda run, e: run.names[e.name],
    Binary: lambda run, e: values.binary(e.op, e.a.dtype)(run.value(e.a), run.value(e.b)),
    Unary: _unary,
    Cast: lambda run, e: values.conversion(e)(run.value(e.a)),
    Bitcast: lambda run, e: values.same_bits(e)(run.value(e.a)),
    Call: lambda run, e: values.pure(e)(*(run.value(a) for a in e.args)),
    Select: _Run.select,
    Pack: _Run.pack,
    Lane: lambda run, e: run.value(e.a)[e.lane],
    Elem: _Run.elem,
}
_STATEMENTS: dict[type[Stmt], Callable[[_Run, Any], None]] = {
    Let: _Run.let,
    Declare: _Run.declare,
    Write: _Run.write,
    If: _Run.branch,
    For: _Run.loop,
    While: _Run.repeat,
    Break: _Run.leave,
    Continue: _Run.leave,
    ThreadReturn: _Run.leave,
    Assert: _Run.check,
    Assume: lambda run, stmt: None,
    Print: _Run.show,
    Instr: _Run.instruction,
}
_INSTRUCTIONS: dict[str, Callable[[_Run, Instr], None]] = {
    "barrier.sync": _Run.barrier,
    "bar.warp.sync": _Run.barrier,
    **{f"shfl.sync.{kind}": _Run.shuffle for kind in ("bfly", "down", "up", "idx")},
}
