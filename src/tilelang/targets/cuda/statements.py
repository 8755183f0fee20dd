"""Statements of a kernel as C++, one to one.

What enters: the body of a kernel. What leaves: lines, and the notes that the host needs: what each
assertion says. Loops are unrolled where the program says so. A failed assertion ends its thread; in
a kernel whose threads wait for each other it ends the whole launch with a trap, since the others
would wait for ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import InternalError, Loc
from tilelang.ir.affine import is_countable
from tilelang.ir.expr import Expr, Var, int_value
from tilelang.ir.interval import Interval, interval
from tilelang.ir.node import Effect, Kind, flat
from tilelang.ir.thread import Addr, At, Declare, Elem, Instr, Slot, Space, Write
from tilelang.ir.tile import (
    Assert,
    Assume,
    Block,
    Break,
    Continue,
    ExternCall,
    For,
    If,
    Let,
    LoopKind,
    Print,
    Stmt,
    ThreadReturn,
    While,
)
from tilelang.ir.walk import bodies
from tilelang.isa.instr import Rows
from tilelang.targets.cuda.atomics import Updates, gemm_tile
from tilelang.targets.cuda.expressions import Expressions
from tilelang.targets.cuda.extern import into_source, out_of_source, source_type
from tilelang.targets.cuda.instructions import Instructions
from tilelang.targets.cuda.places import Place, declaration, pointer, register_words
from tilelang.targets.cuda.text import Code
from tilelang.targets.cuda.types import access_bytes, constraint, memory_type, registers, value_type

_WAITED = ("wgmma.wait_group", "wgmma.ready")
_WGMMA = ("wgmma.m64", "wgmma.fence", "wgmma.commit_group", *_WAITED)
"""Instructions that stand one after the other are one asm statement."""


@dataclass(frozen=True)
class Failure:
    """What an assertion says when it does not hold; `kind` is that of the error, if it is ours."""

    message: str
    loc: Loc | None
    kind: str = ""


@dataclass
class Notes:
    """What the code refers to by number; the numbers of failures begin with 1."""

    failures: list[Failure] = field(default_factory=list[Failure])

    def failure(self, made: Failure) -> int:
        """The number of a failure."""
        if made not in self.failures:
            self.failures.append(made)
        return self.failures.index(made) + 1


class Names:
    """C++ names of a program's names, each its own."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._used: set[str] = set()

    def of(self, name: str, wanted: str) -> str:
        """The C++ name of `name`, `wanted` if that is free."""
        found = self._known.get(name)
        while found is None:
            found = wanted if wanted not in self._used else None
            wanted += "_"
        self._known[name] = found
        self._used.add(found)
        return found


@dataclass(frozen=True)
class Facts:
    """What holds for a whole kernel: its rows, the arrays in registers that instructions use after
    they return, by the row that waits for these, whether its threads wait for each other, and which
    names of results of the author's functions are read.
    """

    rows: Rows
    pending: Mapping[str, frozenset[str]]
    waits: bool
    read: frozenset[str] = frozenset()


def statements_of(body: Block) -> Iterator[Stmt]:
    """Every statement of a body, those inside others too."""
    for stmt in body:
        yield stmt
        for inner in bodies(stmt):
            yield from statements_of(inner)


def facts_of(body: Block, rows: Rows) -> Facts:
    """The facts of a kernel's body."""
    pending: dict[str, frozenset[str]] = {}
    waits = False
    for stmt in (s for s in statements_of(body) if isinstance(s, Instr)):
        row = rows[stmt.row]
        waits = waits or row.waits
        for o, x in (*zip(row.outs, stmt.outs, strict=True), *zip(row.ins, stmt.ins, strict=True)):
            if isinstance(x, Slot) and x.array.space is Space.REGISTER and o.effect & Effect.ASYNC:
                for wait in row.until:
                    pending[wait] = pending.get(wait, frozenset()) | {x.array.name}
    return Facts(rows, pending, waits, _read(body))


def _read(body: Block) -> frozenset[str]:
    """The names of results of the author's functions that are read."""
    made = {s.result for s in statements_of(body) if isinstance(s, ExternCall)}
    operands = (
        x
        for s in statements_of(body)
        for f in s.fields()
        if f.metadata["kind"] is Kind.OPERAND
        for x in flat(getattr(s, f.name))
    )
    return frozenset(n.name for x in operands for n in x.walk() if isinstance(n, Var) and n in made)


class Statements:
    """The statements of one kernel."""

    def __init__(
        self, x: Expressions, names: Callable[[str], str], notes: Notes, facts: Facts
    ) -> None:
        self.x = x
        self.code: Code = x.code
        self.name = names
        self.notes = notes
        self.facts = facts
        self.instructions = Instructions(x)
        self.updates = Updates(x)
        self.visible: list[str] = []

    def body(self, body: Block) -> None:
        """Statements one after the other; what they declare ends with them."""
        outside = len(self.visible)
        at = 0
        while at < len(body):
            run = self._together(body[at:])
            if len(run) > 1:
                self._products(run)
            else:
                self.statement(body[at])
            at += max(1, len(run))
        del self.visible[outside:]

    def statement(self, stmt: Stmt) -> None:
        """One statement."""
        rule = _RULES.get(type(stmt))
        if rule is None:
            raise InternalError(f"no CUDA code for the statement {type(stmt).__name__}")
        around, self.code.loc = self.code.loc, stmt.loc or self.code.loc
        rule(self, stmt)
        self.code.loc = around

    def _together(self, body: Block) -> list[Instr]:
        """The instructions of wgmma at the beginning of `body`, up to a wait and the registers that
        it gives back.
        """
        run: list[Instr] = []
        for stmt in body:
            waited = bool(run) and run[-1].row in _WAITED
            if not isinstance(stmt, Instr) or not stmt.row.startswith(_WGMMA):
                break
            if waited and stmt.row != _WAITED[1]:
                break
            run.append(stmt)
        return run

    def _products(self, run: list[Instr]) -> None:
        around, self.code.loc = self.code.loc, run[0].loc or self.code.loc
        rows = [(stmt, self.facts.rows[stmt.row]) for stmt in run]
        named = run[-1].row == _WAITED[1]
        ties = [] if named else [t for stmt in run for t in self._ties(stmt)]
        self.instructions.together(rows, ties)
        self.code.loc = around

    def call(self, stmt: ExternCall) -> None:
        """A call of the author's function; pointers have the types that its source sees."""
        args = [
            self.pointer(a) if isinstance(a, Addr) else into_source(self.x.of(a), a.dtype)
            for a in stmt.args
        ]
        text = f"{stmt.fn}({', '.join(args)})"
        if stmt.result is None or stmt.result.name not in self.facts.read:
            self.code.add(f"{text};")
        else:
            self.bind(stmt.result, out_of_source(text, stmt.result.type))

    def pointer(self, at: Addr) -> str:
        """The address of an element, typed."""
        where = pointer(self.x.place(at.array.name), self.x.index(at.index))
        return f"reinterpret_cast<{source_type(at.array.type)}*>({where})"

    # Names ---------------------------------------------------------------------------------------

    def bind(self, var: Var, text: str) -> None:
        """Give a value its name."""
        name = self.x.vars[var.name] = self.name(var.name)
        self.code.add(f"const {value_type(var.type)} {name} = {text};")

    def let(self, stmt: Let) -> None:
        """A value, computed here."""
        if stmt.var.type.lanes > 1:
            self.x.vectors[stmt.var.name] = self.x.frozen(self.x.vector(stmt.value))
            return
        self.bind(stmt.var, self.x.of(stmt.value))
        if is_countable(stmt.var.type):
            self.x.ranges[stmt.var] = self.x.known.bounds(stmt.value)

    def declare(self, stmt: Declare) -> None:
        """Storage."""
        array, name = stmt.array, self.name(stmt.array.name)
        size = None if array.size is None else int_value(array.size)
        if size is None:
            raise InternalError(f"the array {array.name} has no constant size")
        match array.space:
            case Space.SHARED:
                self._declare_shared(stmt, name, size)
            case Space.REGISTER | Space.LOCAL:
                place = self.x.places[array.name] = Place(name, array, size)
                self.code.add(declaration(place, size, array.align))
                self.visible.append(array.name)
            case _:
                raise InternalError(f"{array.space.value} memory declared in a kernel")
        if stmt.init is not None:
            self.x.memory.write(self.x.places[array.name], "0", self.x.of(stmt.init), {})

    def _declare_shared(self, stmt: Declare, name: str, size: int) -> None:
        array, kind = stmt.array, memory_type(stmt.array.type)
        if stmt.offset is None:
            place = Place(name, array, size)
            align = f"alignas({max(array.align, 16)})"
            self.code.add(f"__shared__ {align} {kind} {name}[{max(1, size)}];")
        else:
            place = Place(name, array, size, pool=f"tl_pool + {stmt.offset}u")
            at = f"tl_shared + {stmt.offset}"
            self.code.add(f"{kind}* const {name} = reinterpret_cast<{kind}*>({at});")
        self.x.places[array.name] = place

    def at(self, stmt: At) -> None:
        """A name for memory at an address."""
        array, name = stmt.array, self.name(stmt.array.name)
        kind = memory_type(array.type)
        self.x.places[array.name] = Place(name, array)
        address = self.x.of(stmt.address)
        self.code.add(f"{kind}* const {name} = reinterpret_cast<{kind}*>({address});")

    def write(self, stmt: Write) -> None:
        """One element, or several."""
        place, index = self.x.place(stmt.array.name), self.x.index(stmt.index)
        hints = dict(stmt.hints)
        if stmt.value.dtype.lanes == 1:
            self.x.memory.write(place, index, self.x.of(stmt.value), hints)
            return
        value = self.x.vector(stmt.value)
        if any("[" in t for t in (value.by_word or value.lanes)):
            value = self.x.frozen(value)  # all is read before any of it is written
        align = stmt.align or access_bytes(stmt.value.dtype)
        self.x.memory.write_vector(place, index, value, align, hints)

    # Control -------------------------------------------------------------------------------------

    def branch(self, stmt: If) -> None:
        """If, with or without else."""
        cond = self.x.of(stmt.cond)
        with self.code.braces(f"if ({_bare(cond)})", "} else {" if stmt.orelse else "}"):
            self.body(stmt.then)
        if stmt.orelse:
            self.code.depth += 1
            self.body(stmt.orelse)
            self.code.depth -= 1
            self.code.add("}")

    def loop(self, stmt: For) -> None:
        """A counted loop; its bounds are computed once."""
        kind = value_type(stmt.var.type)
        start, stop = self.x.of(stmt.start), self._once(stmt.stop)
        step, by = "1", 1
        if stmt.step is not None:
            step, by = self._once(stmt.step), int_value(stmt.step)
        name = self.x.vars[stmt.var.name] = self.name(stmt.var.name)
        self.x.ranges[stmt.var] = self._range(stmt, by)
        more = f"{name} {'<' if by is None or by > 0 else '>'} {stop}"
        if by is None:
            more = f"({step} > 0 ? {name} < {stop} : {name} > {stop})"
        unroll = self._unroll(stmt)
        if unroll:
            self.code.add(unroll)
        advance = f"++{name}" if step == "1" else f"{name} += {step}"
        with self.code.braces(f"for ({kind} {name} = {start}; {more}; {advance})"):
            self.body(stmt.body)

    def _once(self, e: Expr) -> str:
        """A value that the loop does not compute again."""
        text = self.x.of(e)
        if not any(isinstance(n, Elem) for n in e.walk()):
            return text
        name = self.code.name()
        self.code.add(f"const {value_type(e.dtype)} {name} = {text};")
        return name

    def _range(self, stmt: For, by: int | None) -> Interval:
        start, stop = self.x.known.bounds(stmt.start), self.x.known.bounds(stmt.stop)
        if by is None or by < 1:
            return Interval()
        modulus = math.gcd(start.modulus, by)
        residue = start.residue % modulus
        if start.lo is None or stop.hi is None or stop.hi <= start.lo:
            return Interval(start.lo, None, modulus, residue)
        return interval(start.lo, stop.hi - 1, modulus, residue)

    def _unroll(self, stmt: For) -> str:
        factor = dict(stmt.hints).get("unroll")
        if stmt.kind is LoopKind.UNROLL:
            return "#pragma unroll"
        if factor is not None:
            return f"#pragma unroll {factor}"
        if any(isinstance(s, Instr) for s in statements_of(stmt.body)):
            return "#pragma unroll 1"
        return ""

    def while_(self, stmt: While) -> None:
        """A loop as long as a condition holds."""
        with self.code.braces("while (true)"):
            self.code.add(f"if (!({self.x.of(stmt.cond)})) break;")
            self.body(stmt.body)

    def assume(self, stmt: Assume) -> None:
        """A fact for the compiler."""
        if not any(isinstance(n, Elem) for n in stmt.cond.walk()):
            self.code.add(f"__builtin_assume({self.x.of(stmt.cond)});")

    # Talking to the host -------------------------------------------------------------------------

    def require(self, stmt: Assert) -> None:
        """An assertion; where it does not hold the host is told, and the thread or the launch ends.
        """  # fmt: skip
        number = self.notes.failure(Failure(stmt.message, stmt.loc, stmt.kind))
        self.x.used.add("fail")
        leave = "__trap();" if self.facts.waits else "return;"
        with self.code.braces(f"if (!({self.x.of(stmt.cond)}))"):
            self.code.add(f"tl::fail(tl_record, {number}u);")
            self.code.add(leave)

    def print_(self, stmt: Print) -> None:
        """A value, each lane by itself, or only a message."""
        if stmt.value is None:
            self._printf(stmt.message, "", [])
            return
        if not isinstance(stmt.value, Expr):
            raise InternalError("a buffer is printed element by element")
        dtype = stmt.value.dtype.base
        for lane in self.x.vector(stmt.value).lanes:
            form, text = self._shown(lane, dtype)
            self._printf(stmt.message, f": dtype={dtype} value={form}", [text])

    def _shown(self, x: str, dtype: DType) -> tuple[str, str]:
        """The format and argument of a value for printf."""
        if dtype.is_float:
            wide = x if dtype.bits == 64 else f"double({self.x.widened(x, dtype)})"
            return ("%.17g" if dtype.bits == 64 else "%.9g"), wide
        if dtype.is_bool:
            return "%s", f'({x} ? "True" : "False")'
        return ("%lld", f"i64({x})") if dtype.is_int else ("%llu", f"u64({x})")

    def _printf(self, message: str, form: str, args: list[str]) -> None:
        """A line as the emulator prints it: message, block, thread, value."""
        where = [f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx") for axis in "xyz"]
        head = f"msg='{_escaped(message)}' BlockIdx=(%u, %u, %u), ThreadIdx=(%u, %u, %u)"
        self.code.add(f'printf("{head}{form}\\n", {", ".join([*where, *args])});')

    # Instructions --------------------------------------------------------------------------------

    def instr(self, stmt: Instr) -> None:
        """An instruction, by its row."""
        family = stmt.row.partition(".")[0]
        for var in stmt.results:
            self.x.vars[var.name] = self.name(var.name)
        if family in ("atomic", "update"):
            self.updates.emit(stmt)
        elif stmt.row == "gemm.tile":
            gemm_tile(self.x, stmt)
        elif stmt.row == "print.element":
            self._print_element(stmt)
        else:
            self.instructions.emit(stmt, self.facts.rows[stmt.row], self._ties(stmt))

    def _ties(self, stmt: Instr) -> list[tuple[str, str]]:
        """The registers that a wait for all that is under way hands back where nothing says which
        these are.
        """
        pending = self.facts.pending.get(stmt.row, frozenset())
        if dict(stmt.imm).get("count", 0) != 0:
            return []
        out: list[tuple[str, str]] = []
        for name in self.visible:
            place = self.x.places[name]
            if name in pending and place.size:
                letter = constraint(registers(place.dtype).word)
                out += [(letter, w) for w in register_words(place, "0", place.size)]
        return out

    def _print_element(self, stmt: Instr) -> None:
        slot, order, imm = stmt.ins[0], stmt.ins[1], dict(stmt.imm)
        if not isinstance(slot, Slot) or not isinstance(order, Expr):
            raise InternalError("print.element of no element")
        place = self.x.place(slot.array.name)
        value = self.x.memory.read(place, self.x.index(slot.index), {})
        form, text = self._shown(value, slot.dtype)
        form = f": buffer={imm['buffer']}, index=%lld, dtype={slot.dtype} value={form}"
        self._printf(imm["message"], form, [f"i64({self.x.of(order)})", text])


def _bare(cond: str) -> str:
    """A condition without the parentheses around all of it."""
    if not (cond.startswith("(") and cond.endswith(")")):
        return cond
    depth = 0
    for k, c in enumerate(cond):
        depth += (c == "(") - (c == ")")
        if depth == 0 and k < len(cond) - 1:
            return cond
    return cond[1:-1]


def _escaped(text: str) -> str:
    """Text inside a C string that printf prints as it is."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return plain.replace("\n", "\\n").replace("\t", "\\t")


_RULES: Mapping[type[Stmt], Callable[[Statements, Any], None]] = {
    Let: Statements.let,
    Write: Statements.write,
    Declare: Statements.declare,
    At: Statements.at,
    If: Statements.branch,
    For: Statements.loop,
    While: Statements.while_,
    Break: lambda s, _: s.code.add("break;"),
    Continue: lambda s, _: s.code.add("continue;"),
    ThreadReturn: lambda s, _: s.code.add("return;"),
    Assert: Statements.require,
    Assume: Statements.assume,
    Print: Statements.print_,
    Instr: Statements.instr,
    ExternCall: Statements.call,
}


def arrays_written(body: Block) -> frozenset[str]:
    """The names of arrays that a body may write to."""
    out: set[str] = set()
    for node in statements_of(body):
        if isinstance(node, Write):
            out.add(node.array.name)
        elif isinstance(node, Instr):
            out |= {s.array.name for s in node.outs}
    return frozenset(out)
