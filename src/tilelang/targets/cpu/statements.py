"""Statements of the thread stage as blocks of LLVM IR.

What enters: the body of a kernel, or of the host level. What leaves: blocks in the function that is
under construction. Whatever stops a launch (an assertion) writes its number into the control record
and jumps to the exit of the function; nothing traps.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import InternalError
from tilelang.ir.expr import Expr, Var, int_value
from tilelang.ir.thread import Addr, Array, At, Declare, Instr, Slot, Space, Write
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
from tilelang.targets.cpu import atomics
from tilelang.targets.cpu.built import Failure, Printed
from tilelang.targets.cpu.expressions import Expressions
from tilelang.targets.cpu.gemm import gemm_tile
from tilelang.targets.cpu.llvm import Host
from tilelang.targets.cpu.lockstep import plan
from tilelang.targets.cpu.places import OUTSIDE, Place
from tilelang.targets.cpu.record import Record, Where
from tilelang.targets.cpu.strips import Strip, strips
from tilelang.targets.cpu.text import Code, Value, number
from tilelang.targets.cpu.types import element_type, value_type

ARENA_ALIGN = 64
MS_ASYNC = 1  # on Linux and macOS


@dataclass
class Notes:
    """What the code refers to by number; the numbers of failures begin with 1.

    `vectorise` says that loops in lockstep are left to LLVM's vectoriser.
    """

    failures: list[Failure] = field(default_factory=list[Failure])
    prints: list[Printed] = field(default_factory=list[Printed])
    vectorise: bool = False

    def failure(self, made: Failure) -> int:
        """The number of a failure."""
        if made not in self.failures:
            self.failures.append(made)
        return self.failures.index(made) + 1

    def printed(self, what: Printed) -> int:
        """The number of a print."""
        if what not in self.prints:
            self.prints.append(what)
        return self.prints.index(what)


@dataclass(frozen=True)
class Loop:
    """Where `break` and `continue` go."""

    again: str
    after: str


class Statements:
    """The statements of one function. `out` is where a failed launch goes, `done` where a block
    that has ended does.
    """

    def __init__(
        self, x: Expressions, record: Record, notes: Notes, host: Host, out: str, done: str
    ) -> None:
        self.x = x
        self.code: Code = x.code
        self.record = record
        self.notes = notes
        self.host = host
        self.out = out
        self.done = done
        self.arena: Value | None = None
        self.block_index: Sequence[Value] = ()
        self.loops: list[Loop] = []

    def body(self, body: Block) -> None:
        """Statements in order; what follows a jump is never reached."""
        for stmt in body:
            if self.code.ended:
                return
            self.x.begin()
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        """One statement."""
        rule = _RULES.get(type(stmt))
        if rule is None:
            raise InternalError(f"the CPU has no code for {type(stmt).__name__}")
        rule(self, stmt)

    # Scalars and memory --------------------------------------------------------------------------

    def let(self, stmt: Let) -> None:
        """A name for a value."""
        self.x.vars[stmt.var.name] = self.x.of(stmt.value)

    def write(self, stmt: Write) -> None:
        """Elements of an array."""
        place = self.x.place(stmt.array.name)
        index = self.x.index(stmt.index)
        self.x.memory.write(place, index, self.x.of(stmt.value), stmt.value.dtype)

    def declare(self, stmt: Declare) -> None:
        """Storage on chip: in the arena of the worker, or on the stack."""
        array = stmt.array
        if array.space is Space.SHARED and self.arena is not None:
            if stmt.offset is None:
                raise InternalError(f"{array.name} has no place in the arena")
            pointer = self.code.gep(self.arena, "i8", number("i64", stmt.offset))
        else:
            size = int_value(array.size) if array.size is not None else None
            if size is None:
                raise InternalError(f"{array.name} has no constant size")
            align = ARENA_ALIGN if size > 1 else 0
            pointer = self.code.alloca(element_type(array.type), size, align)
        depth = len(self.x.memory.groups)
        place = self.x.places[array.name] = Place(pointer, array.type, array.name, depth)
        if stmt.init is not None:
            self.x.memory.write(place, number("i64", 0), self.x.of(stmt.init), array.type)

    def at(self, stmt: At) -> None:
        """A name for the memory at an address; of an array on chip it keeps the scope."""
        array = stmt.array
        if isinstance(stmt.address, Addr):
            source = self.x.place(stmt.address.array.name)
            pointer = self.x.memory.address(source, self.x.index(stmt.address.index))
            self.x.places[array.name] = Place(pointer, array.type, source.scope, source.depth)
            return
        address = self.x.of(stmt.address)
        self.mapped(stmt, address)
        pointer = self.code.cast("inttoptr", address, "ptr")
        self.x.places[array.name] = Place(pointer, array.type, "")

    def mapped(self, stmt: At, address: Value) -> None:
        """The memory at an address that the author gave is there, as the operating system says: of
        an array with strides the first element. `msync` fails for pages that are not mapped, and
        with MS_ASYNC does nothing else.
        """
        code, array = self.code, stmt.array
        count = number("i64", 1) if array.size is None else self.widened(array.size)
        size = code.op("mul", count, number("i64", array.type.numpy.itemsize))
        within = code.op("and", address, number("i64", mmap.PAGESIZE - 1))
        page = code.cast("inttoptr", code.op("sub", address, within), "ptr")
        sync = code.module.declare("msync", "i32", ["ptr", "i64", "i32"])
        length = code.op("add", size, within)
        found = code.call(sync, "i32", [page, length, number("i32", MS_ASYNC)])
        there = code.op("and", code.compare("eq", found, number("i32", 0)), nonzero(code, address))
        empty = code.compare("sle", size, number("i64", 0))
        message = f"the address of {array.name} is not in the memory of this process"
        self.check(code.op("or", there, empty), Failure(message, stmt.loc, "argument"))

    # Control flow --------------------------------------------------------------------------------

    def branch(self, stmt: If) -> None:
        """A condition."""
        then, orelse, after = (self.code.label(n) for n in ("then", "else", "end"))
        self.code.branch(self.x.of(stmt.cond), then, orelse if stmt.orelse else after)
        for label, body in ((then, stmt.then), (orelse, stmt.orelse)):
            if label == then or body:
                self.code.place(label)
                self.body(body)
                if not self.code.ended:
                    self.code.jump(after)
        self.code.place(after)

    def loop(self, stmt: For) -> None:
        """A counted loop: vector code, or one iteration after the other."""
        found = plan(stmt, self.host) if stmt.kind is LoopKind.VECTORIZED else None
        if found is None:
            self.notes.vectorise |= stmt.kind is LoopKind.VECTORIZED
            self.counted(stmt)
            return

        def one(at: Value, lanes: int) -> None:
            if lanes == 1:
                self.x.vars[stmt.var.name] = at
                self.body(stmt.body)
            else:
                Strip(self.x, stmt.var.name, at, lanes).body(stmt.body)

        strips(self.code, self.x.of(stmt.start), self.x.of(stmt.stop), found, one)

    def counted(self, stmt: For) -> None:
        """One iteration after the other. The counter is wide where a step could carry it beyond its
        type.
        """
        code, dtype = self.code, stmt.var.dtype
        start, stop = self.x.of(stmt.start), self.x.of(stmt.stop)
        step = 1 if stmt.step is None else int_value(stmt.step)
        kind = value_type(dtype)
        wide = kind if step == 1 else "i64"
        widen = "zext" if dtype.is_uint else "sext"
        by = self._step(stmt.step, wide)
        if wide != kind:
            start, stop = (code.cast(widen, v, wide) for v in (start, stop))
        counter = code.alloca(wide)
        code.store(start, counter)
        head, inside, again, after = (code.label(n) for n in ("for", "do", "next", "end"))
        code.place(head)
        now = code.load(wide, counter)
        code.branch(self._more(now, stop, by, step, dtype), inside, after)
        code.place(inside)
        self.x.vars[stmt.var.name] = now if wide == kind else code.cast("trunc", now, kind)
        lockstep = stmt.kind is LoopKind.VECTORIZED
        if lockstep:
            self.x.memory.groups.append(code.module.node("!{}", distinct=True))
        self.inner(stmt.body, Loop(again, after))
        code.place(again)
        flags = "add nsw" if not dtype.is_uint else "add"
        code.store(code.op(flags, code.load(wide, counter), by), counter)
        code.jump(head, self._promise(self.x.memory.groups.pop()) if lockstep else "")
        code.place(after)

    def _step(self, step: Expr | None, kind: str) -> Value:
        known = 1 if step is None else int_value(step)
        return (
            self.widened(step) if known is None and step is not None else number(kind, known or 1)
        )

    def widened(self, e: Expr) -> Value:
        """An integer in 64 bits."""
        value = self.x.of(e)
        if value.type == "i64":
            return value
        return self.code.cast("zext" if e.dtype.is_uint else "sext", value, "i64")

    def _more(self, now: Value, stop: Value, by: Value, step: int | None, dtype: DType) -> Value:
        less = "ult" if dtype.is_uint and now.type != "i64" else "slt"
        more = less.replace("l", "g", 1) if less == "slt" else "ugt"
        up = self.code.compare(less, now, stop)
        if step is not None and step > 0:
            return up
        down = self.code.compare(more, now, stop)
        if step is not None:
            return down
        return self.code.select(self.code.compare("sgt", by, number("i64", 0)), up, down)

    def _promise(self, group: str) -> str:
        """What the vectoriser may rely on: iterations do not read what others write."""
        parallel = self.code.module.node(f'!{{!"llvm.loop.parallel_accesses", {group}}}')
        return f", !llvm.loop {self.code.module.node(f'!{{{{self}}, {parallel}}}', distinct=True)}"

    def inner(self, body: Block, loop: Loop) -> None:
        """The body of a loop."""
        self.loops.append(loop)
        self.body(body)
        self.loops.pop()

    def while_(self, stmt: While) -> None:
        """A loop on a condition."""
        head, inside, after = (self.code.label(n) for n in ("while", "do", "end"))
        self.code.place(head)
        self.x.begin()
        self.code.branch(self.x.of(stmt.cond), inside, after)
        self.code.place(inside)
        self.inner(stmt.body, Loop(head, after))
        if not self.code.ended:
            self.code.jump(head)
        self.code.place(after)

    # Talking to the outside ----------------------------------------------------------------------

    def require(self, stmt: Assert) -> None:
        """An assertion that does not hold ends the launch."""
        self.check(self.x.of(stmt.cond), Failure(stmt.message, stmt.loc, stmt.kind))

    def check(self, holds: Value, failure: Failure) -> None:
        """Go on where `holds`, else note which failure it is and leave."""
        fine, broken = self.code.label("fine"), self.code.label("broken")
        weights = self.code.module.node('!{!"branch_weights", i32 1000000, i32 1}')
        self.code.branch(holds, fine, broken, f", !prof {weights}")
        self.code.place(broken)
        self.record.fail(self.code, self.notes.failure(failure), self.block_index)
        self.code.jump(self.out)
        self.code.place(fine)

    def print_(self, stmt: Print) -> None:
        """A value, each lane by itself, or only a message."""
        where = Where(self.block_index, [self.x.of(t) for t in stmt.thread])
        if stmt.value is None:
            what = Printed(stmt.message)
            self.record.show(self.code, self.notes.printed(what), None, 0, where)
            return
        if not isinstance(stmt.value, Expr):
            raise InternalError("a buffer is printed element by element")
        value, dtype = self.x.of(stmt.value), stmt.value.dtype
        number_of = self.notes.printed(Printed(stmt.message, dtype.base.name))
        for k in range(dtype.lanes):
            lane = self.code.extract(value, k)
            self.record.show(self.code, number_of, lane, 0, where)

    def leave(self, stmt: ThreadReturn) -> None:
        """The block has ended."""
        self.code.jump(self.done)

    # Instructions --------------------------------------------------------------------------------

    def instr(self, stmt: Instr) -> None:
        """An instruction, by its row."""
        family, _, name = stmt.row.partition(".")
        imm = dict(stmt.imm)
        if stmt.row == "gemm.tile":
            self._gemm(stmt, imm)
        elif stmt.row == "print.element":
            self._print_element(stmt, imm)
        elif family in ("atomic", "update"):
            self._update(stmt, name, imm)
        else:
            raise InternalError(f"the CPU has no code for the row {stmt.row}")

    def _slot(self, slot: Any) -> tuple[Place, Value]:
        if not isinstance(slot, Slot):
            raise InternalError("an operand that is no element of an array")
        return self.x.place(slot.array.name), self.x.index(slot.index)

    def _update(self, stmt: Instr, name: str, imm: dict[str, Any]) -> None:
        memory = self.x.memory
        place, index = self._slot(stmt.ins[0] if name == "load" else stmt.outs[0])
        if name == "load":
            self.bind(stmt.results, atomics.load(memory, place, index, imm["order"]))
            return
        operand = stmt.ins[0]
        if not isinstance(operand, Expr):
            raise InternalError(f"{stmt.row} of something that is no value")
        value = self.x.of(operand)
        if name == "store":
            atomics.store(memory, place, index, value, imm["order"])
        else:
            old = atomics.update(memory, place, index, name, value, imm["order"])
            self.bind(stmt.results, old)

    def bind(self, results: Sequence[Var], value: Value) -> None:
        """Give the result of an instruction its name."""
        for var in results:
            self.x.vars[var.name] = value

    def _gemm(self, stmt: Instr, imm: dict[str, Any]) -> None:
        places = [self._slot(s) for s in (stmt.outs[0], stmt.ins[0], stmt.ins[1])]
        c, a, b = (self.x.memory.address(place, index) for place, index in places)
        clear = stmt.ins[2]
        if not isinstance(clear, Expr):
            raise InternalError("gemm.tile without a value for clear")
        dtype = stmt.outs[0].dtype
        gemm_tile(self.code, c, a, b, self.x.of(clear), dtype, host=self.host, **imm)

    def _print_element(self, stmt: Instr, imm: dict[str, Any]) -> None:
        place, index = self._slot(stmt.ins[0])
        value = self.x.memory.read(place, index, place.dtype)
        what = Printed(imm["message"], place.dtype.name, imm["buffer"])
        order = stmt.ins[1]
        if not isinstance(order, Expr):
            raise InternalError("print.element without an index")
        self.record.show(
            self.code,
            self.notes.printed(what),
            value,
            self.widened(order),
            Where(self.block_index),
        )


def nonzero(code: Code, value: Value) -> Value:
    """Whether an integer is not 0."""
    return code.compare("ne", value, number(value.type, 0))


def outside(pointer: Value, array: Array) -> Place:
    """An array of the caller, or a workspace."""
    return Place(pointer, array.type, OUTSIDE)


_RULES: dict[type[Stmt], Callable[[Statements, Any], None]] = {
    Let: Statements.let,
    Write: Statements.write,
    Declare: Statements.declare,
    At: Statements.at,
    If: Statements.branch,
    For: Statements.loop,
    While: Statements.while_,
    Break: lambda s, _: s.code.jump(s.loops[-1].after),
    Continue: lambda s, _: s.code.jump(s.loops[-1].again),
    ThreadReturn: Statements.leave,
    Assert: Statements.require,
    Assume: lambda s, _: None,
    Print: Statements.print_,
    Instr: Statements.instr,
}
