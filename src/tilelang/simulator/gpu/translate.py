"""A kernel as the text of a Python generator that a group of warps runs.

What enters: a `Kernel` of the thread stage. What leaves: its function `kernel(g, p, m0)`: `g` is
the group, `p` the parameters, indices and thread indices by name, `m0` the mask of the lanes that
exist. Statements are in the order of the program; nothing is left out or added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilelang.emulator.writer import Writer
from tilelang.errors import InternalError, Loc, error
from tilelang.ir.expr import Expr, int_value
from tilelang.ir.node import Effect
from tilelang.ir.thread import (
    Array,
    At,
    Declare,
    Elem,
    Instr,
    Kernel,
    Slot,
    Space,
    TensorMap,
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
    Print,
    Stmt,
    ThreadReturn,
    While,
)
from tilelang.ir.walk import bodies
from tilelang.isa.instr import Rows
from tilelang.simulator import values
from tilelang.simulator.gpu.arrays import Place
from tilelang.simulator.gpu.expressions import Expressions
from tilelang.simulator.gpu.group import NOBODY, Loop
from tilelang.simulator.gpu.rows import registry
from tilelang.simulator.machine.report import Site


@dataclass(frozen=True)
class Translated:
    """A kernel that can be run: its function, the text of it, and the sites that it names."""

    function: Callable[..., Any]
    source: str
    sites: tuple[Site, ...]


def translate(kernel: Kernel, rows: Rows) -> Translated:
    """The function of a kernel."""
    writer = Writer()
    writer.define(np=np, pack=values.pack, Place=Place, Loop=Loop, NOBODY=NOBODY, Use=registry.Use)
    t = _Kernel(kernel, rows, writer)
    with writer.block("def kernel(g, p, m0):"):
        for name, text in t.parameters():
            writer.line(f"{text} = p[{name!r}]")
        t.block(kernel.body, "m0", None)
        writer.line("return")
        writer.line("yield")
    code = compile(writer.source, f"<kernel {kernel.name}>", "exec")
    exec(code, writer.namespace)
    return Translated(writer.namespace["kernel"], writer.source, tuple(t.x.sites))


def statements(body: Block) -> Iterator[Stmt]:
    """All statements of a body, those inside others too."""
    for stmt in body:
        yield stmt
        for inner in bodies(stmt):
            yield from statements(inner)


def spins(stmt: While) -> bool:
    """Whether a loop may look at memory until another thread changes it."""
    return any(
        isinstance(n, (Elem, Slot)) and n.array.space in (Space.SHARED, Space.GLOBAL)
        for n in stmt.walk()
    )


class _Kernel:
    def __init__(self, kernel: Kernel, rows: Rows, writer: Writer) -> None:
        self.kernel = kernel
        self.rows = rows
        self.writer = writer
        self.x = Expressions(writer)
        self.x.watched = self.asynchronous()
        self.x.loc = kernel.loc  # of what the lowering adds before the author's first line

    def asynchronous(self) -> set[str]:
        """The register arrays that instructions use after they have returned."""
        found: set[str] = set()
        for stmt in statements(self.kernel.body):
            if isinstance(stmt, Instr) and stmt.row in self.rows:
                row = self.rows[stmt.row]
                for o, x in (
                    *zip(row.outs, stmt.outs, strict=True),
                    *zip(row.ins, stmt.ins, strict=True),
                ):
                    if isinstance(x, Slot) and o.effect & Effect.ASYNC:
                        found.add(x.array.name)
        return found

    def parameters(self) -> Iterator[tuple[str, str]]:
        """The names that the body takes from outside, and what the text calls them."""
        for p in self.kernel.params:
            if isinstance(p, Array):
                yield p.name, self.x.array(p)
            elif isinstance(p, TensorMap):
                yield p.name, f"t_{p.name}"
            else:
                yield p.name, f"v_{p.name}"
        for v in (*self.kernel.vars, *self.kernel.thread_vars):
            yield v.name, f"v_{v.name}"

    # Statements ----------------------------------------------------------------------------------

    def block(self, body: Block, mask: str, loop: str | None) -> None:
        """Statements by the lanes of `mask`, inside the loop `loop`."""
        for k, stmt in enumerate(body):
            self.statement(stmt, mask, loop)
            if isinstance(stmt, (Break, Continue, ThreadReturn)):
                return
            rest = body[k + 1 :]
            if rest and leaves(stmt):
                inner = self.writer.fresh("m")
                self.writer.line(f"{inner} = g.live({mask}, {loop})")
                with self.writer.block(f"if {inner} is not NOBODY:"):
                    self.block(rest, inner, loop)
                return

    def statement(self, stmt: Stmt, mask: str, loop: str | None) -> None:
        """One statement."""
        rule = _RULES.get(type(stmt))
        if rule is None:
            raise InternalError(f"the simulator has no meaning for {type(stmt).__name__}")
        self.x.loc = self.writer.loc = stmt.loc or self.x.loc
        rule(self, stmt, mask, loop)

    def of(self, e: Expr, mask: str) -> str:
        """The text of an expression."""
        return self.x.of(e, mask)

    def let(self, stmt: Let, mask: str, loop: str | None) -> None:
        """A value; that of a register is copied, as the register may change."""
        del loop
        text = self.of(stmt.value, mask)
        if isinstance(stmt.value, Elem) and stmt.value.array.space is Space.REGISTER:
            text = f"np.array({text})"
        self.writer.line(f"v_{stmt.var.name} = {text}")

    def declare(self, stmt: Declare, mask: str, loop: str | None) -> None:
        """Storage."""
        del loop
        array, name = stmt.array, self.x.array(stmt.array)
        size = None if array.size is None else int_value(array.size)
        if size is None:
            raise InternalError(f"the array {array.name} has no constant size")
        dtype = self.x.object(array.type, ("dtype", array.type.name), "d")
        match array.space:
            case Space.SHARED:
                made = f"g.block.declared({array.name!r}, {dtype}, {size}, {stmt.offset})"
            case Space.REGISTER:
                watched = array.name in self.x.watched
                made = f"g.registers({array.name!r}, {dtype}, {size}, {watched})"
            case Space.LOCAL:
                made = f"g.local({array.name!r}, {dtype}, {size})"
            case _:
                raise self.refused(f"{array.space.value} memory", stmt.loc)
        self.writer.line(f"{name} = {made}")
        if stmt.init is not None:
            site = f", {self.x.access(array, 'writes')}" if array.space is Space.LOCAL else ""
            self.writer.line(f"{name}.write(0, {self.of(stmt.init, mask)}, {mask}{site})")

    def at(self, stmt: At, mask: str, loop: str | None) -> None:
        """A name for memory at an address."""
        del loop
        array = stmt.array
        dtype = self.x.object(array.type, ("dtype", array.type.name), "d")
        size = None if array.size is None else self.of(array.size, mask)
        address = self.of(stmt.address, mask)
        self.writer.line(
            f"{self.x.array(array)} = g.window({array.name!r}, {dtype}, {size}, {address}, {mask})"
        )

    def write(self, stmt: Write, mask: str, loop: str | None) -> None:
        """One element, or several."""
        del loop
        array, index = self.x.array(stmt.array), self.of(stmt.index, mask)
        value = self.of(stmt.value, mask)
        match stmt.array.space:
            case Space.REGISTER if stmt.array.name in self.x.watched:
                site = self.x.access(stmt.array, "writes")
                self.writer.line(f"{array}.watched_write({index}, {value}, {mask}, {site})")
            case Space.REGISTER:
                self.writer.line(f"{array}.write({index}, {value}, {mask})")
            case Space.LOCAL:
                site = self.x.access(stmt.array, "writes")
                self.writer.line(f"{array}.write({index}, {value}, {mask}, {site})")
            case _:
                site = self.x.access(stmt.array, "writes")
                self.writer.line(f"g.store({array}, {index}, {value}, {mask}, {site})")

    # Control -------------------------------------------------------------------------------------

    def branch(self, stmt: If, mask: str, loop: str | None) -> None:
        """If, with or without else; arms that both wait run by turns."""
        w = self.writer
        yes, no = w.fresh("m"), w.fresh("m")
        w.line(f"{yes}, {no} = g.split({mask}, {self.of(stmt.cond, mask)})")
        if stmt.orelse and self.waits(stmt.then) and self.waits(stmt.orelse):
            self.arms(stmt, yes, no, loop)
            return
        with w.block(f"if {yes} is not NOBODY:"):
            self.block(stmt.then, yes, loop)
        if stmt.orelse:
            with w.block(f"if {no} is not NOBODY:"):
                self.block(stmt.orelse, no, loop)

    def arms(self, stmt: If, yes: str, no: str, loop: str | None) -> None:
        """Two arms as functions, since lanes of one group may be in both."""
        w, names = self.writer, list[str]()
        for body in (stmt.then, stmt.orelse):
            name, inner = w.fresh("arm"), w.fresh("m")
            names.append(name)
            with w.block(f"def {name}({inner}):"):
                self.block(body, inner, loop)
                w.line("return")
                w.line("yield")
        runs = [f"{name}({m})" for name, m in zip(names, (yes, no), strict=True)]
        with w.block(f"if {no} is NOBODY:"):
            w.line(f"yield from {runs[0]}")
        with w.block(f"elif {yes} is NOBODY:"):
            w.line(f"yield from {runs[1]}")
        with w.block("else:"):
            w.line(f"yield from g.turns({', '.join(runs)})")

    def waits(self, body: Block) -> bool:
        """Whether statements may wait."""
        return any(
            (isinstance(s, Instr) and s.row in self.rows and self.rows[s.row].waits)
            or (isinstance(s, While) and spins(s))
            for s in statements(body)
        )

    def loop(self, stmt: For, mask: str, loop: str | None) -> None:
        """A counted loop."""
        w = self.writer
        inner, var = w.fresh("m"), f"v_{stmt.var.name}"
        step = self.of(stmt.step, mask) if stmt.step is not None else "1"
        start, stop = self.of(stmt.start, mask), self.of(stmt.stop, mask)
        storage = self.x.object(stmt.var.type.numpy, ("storage", stmt.var.type.name), "s")
        counter = f"({start}, {stop}, {step}, {storage})"
        if any(leaves(s) for s in stmt.body):
            name = w.fresh("loop")
            w.line(f"{name} = Loop(g, {mask})")
            with w.block(f"for {var}, {inner} in {name}.rounds{counter}:"):
                self.block(stmt.body, inner, name)
            return
        with w.block(f"for {var}, {inner} in g.rounds({mask}, {counter[1:]}:"):
            self.block(stmt.body, inner, loop)

    def while_(self, stmt: While, mask: str, loop: str | None) -> None:
        """A loop as long as a condition holds."""
        del loop
        w = self.writer
        name, inner = w.fresh("loop"), w.fresh("m")
        w.line(f"{name} = Loop(g, {mask})")
        with w.block("while True:"):
            w.line(f"{inner} = {name}.going()")
            w.line(f"if {inner} is NOBODY: break")
            w.line(f"{inner} = {name}.while_({self.of(stmt.cond, inner)}, {inner})")
            w.line(f"if {inner} is NOBODY: break")
            self.block(stmt.body, inner, name)
            if spins(stmt):
                loc = self.x.object(stmt.loc, ("loc", stmt.loc), "loc")
                w.line(f"yield g.block.machine.scheduler.spin({loc})")

    def break_(self, stmt: Break, mask: str, loop: str | None) -> None:
        """Leaves the loop."""
        del stmt
        self.writer.line(f"{loop}.break_({mask})")

    def continue_(self, stmt: Continue, mask: str, loop: str | None) -> None:
        """Leaves the round."""
        del stmt
        self.writer.line(f"{loop}.continue_({mask})")

    def return_(self, stmt: ThreadReturn, mask: str, loop: str | None) -> None:
        """Ends the thread."""
        del stmt, loop
        self.writer.line(f"g.leave({mask})")

    def require(self, stmt: Assert, mask: str, loop: str | None) -> None:
        """An assertion."""
        del loop
        key = self.x.object(stmt, ("assert", id(stmt)), "assertion")
        self.writer.line(f"g.require({key}, {self.of(stmt.cond, mask)}, {mask})")

    def assume(self, stmt: Assume, mask: str, loop: str | None) -> None:
        """A fact, which is looked at as an assertion is."""
        del loop
        key = self.x.object(stmt, ("assume", id(stmt)), "assumption")
        self.writer.line(f"g.assume({key}, {self.of(stmt.cond, mask)}, {mask})")

    def print_(self, stmt: Print, mask: str, loop: str | None) -> None:
        """A value, or only a message."""
        del loop
        if stmt.value is None:
            self.writer.line(f"g.print({stmt.message!r}, None, None, {mask})")
            return
        if not isinstance(stmt.value, Expr):
            raise InternalError("a buffer is printed element by element")
        dtype = self.x.object(stmt.value.dtype, ("dtype", stmt.value.dtype.name), "d")
        value = self.of(stmt.value, mask)
        self.writer.line(f"g.print({stmt.message!r}, {value}, {dtype}, {mask})")

    # Instructions --------------------------------------------------------------------------------

    def instr(self, stmt: Instr, mask: str, loop: str | None) -> None:
        """An instruction, by the function of its row."""
        del loop
        function = registry.meaning(stmt.row)
        if function is None:
            raise self.refused(f"the instruction {stmt.row}", stmt.loc)
        facts = registry.Facts(
            stmt.row,
            dict(stmt.imm),
            tuple(r.type for r in stmt.results),
            stmt.loc or self.x.loc,
            self.x.site(self.x.loc, _spoken(stmt.row)),
            tuple(self._operand_sites(stmt)),
        )
        outs = ", ".join(self._operand(o, mask) for o in stmt.outs)
        ins = ", ".join(self._operand(o, mask) for o in stmt.ins)
        call = (
            f"{self.x.object(function, ('row', id(function)), 'row')}"
            f"(Use(g, {mask}, {self.x.object(facts, None, 'facts')}, [{outs}], [{ins}]))"
        )
        if registry.is_steps(function):
            call = f"yield from {call}"
        if not stmt.results:
            self.writer.line(call)
            return
        names = ", ".join(f"v_{r.name}" for r in stmt.results)
        self.writer.line(f"({names},) = {call}")

    def _operand(self, operand: Any, mask: str) -> str:
        match operand:
            case Slot():
                index = self.of(operand.index, mask)
                return f"Place({self.x.array(operand.array)}, {index}, {operand.count})"
            case TensorMap():
                return f"t_{operand.name}"
            case _:
                return self.of(operand, mask)

    def _operand_sites(self, stmt: Instr) -> Iterator[int]:
        spoken = _spoken(stmt.row)
        for verb, operands in (("writes", stmt.outs), ("reads", stmt.ins)):
            for o in operands:
                name = o.array.name if isinstance(o, (Slot, TensorMap)) else ""
                yield self.x.site(self.x.loc, f"{spoken} {verb} {name}".rstrip())

    def refused(self, what: str, loc: Loc | None) -> Exception:
        """The error of what the simulator cannot run."""
        return error(
            "target",
            f"the simulator cannot run {what} yet",
            loc or self.x.loc,
            help="target='emulate:<chip>' runs the kernel's meaning under that chip's rules",
        )


def leaves(stmt: Stmt) -> bool:
    """Whether lanes may leave the statements around this one."""
    match stmt:
        case Break() | Continue() | ThreadReturn():
            return True
        case For() | While():
            return any(isinstance(s, ThreadReturn) for s in statements(stmt.body))
        case If():
            return any(leaves(s) for body in (stmt.then, stmt.orelse) for s in body)
        case _:
            return False


def _spoken(row: str) -> str:
    """What an instruction is called in reports."""
    return row if len(row) < 40 else row[:40]


_RULES: dict[type[Stmt], Callable[[_Kernel, Any, str, str | None], None]] = {
    Let: _Kernel.let,
    Write: _Kernel.write,
    Declare: _Kernel.declare,
    At: _Kernel.at,
    If: _Kernel.branch,
    For: _Kernel.loop,
    While: _Kernel.while_,
    Break: _Kernel.break_,
    Continue: _Kernel.continue_,
    ThreadReturn: _Kernel.return_,
    Assert: _Kernel.require,
    Assume: _Kernel.assume,
    Print: _Kernel.print_,
    Instr: _Kernel.instr,
}
