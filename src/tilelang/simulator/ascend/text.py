"""A program of the thread stage as the text of a Python module.

What enters: a `Program`. What leaves: text with one function for the host level and, for each
kernel, one generator for the cube core and one for a vector core, which yield what they wait for. A
statement of a core region is in the text of the cores of its kind only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilelang.emulator.writer import Writer
from tilelang.errors import InternalError
from tilelang.ir.ascend import Core, CoreRegion, VectorFunction
from tilelang.ir.expr import Expr, int_value
from tilelang.ir.interval import TOP, interval
from tilelang.ir.thread import (
    ON_CORE,
    Declare,
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
    Print,
    Stmt,
    ThreadReturn,
    While,
)
from tilelang.isa.instr import Rows
from tilelang.passes.ascend.lower_functions import used_from_outside
from tilelang.simulator.ascend.abreast import lanes_for
from tilelang.simulator.ascend.instruction import Instruction
from tilelang.simulator.ascend.levels import Level, Levels, same
from tilelang.simulator.ascend.memories import Sizes, used
from tilelang.simulator.ascend.scalars import Scalars, unmodelled

_WAITS = {
    "flag.wait": "wait_flag",
    "barrier": "barrier",
    "cross.set": "cross_set",
    "cross.wait": "cross_wait",
    "mutex.lock": "lock",
}
"""Instructions at which a core may stop, with the method that does so."""

_AT_ONCE = {"flag.set": "set_flag", "mutex.unlock": "unlock"}
"""Instructions that only raise something."""


@dataclass
class KernelText:
    """A kernel in the module: the names of its functions, which kinds of core have work, and what
    it uses of each memory; `lanes` blocks are run at once, 0 once that was found to be impossible.
    """

    kernel: Kernel
    cube: str
    vector: str
    kinds: frozenset[Core]
    memories: Sizes
    lanes: int


@dataclass
class Module:
    """The text of a program, and what it refers to."""

    writer: Writer
    host: str
    kernels: list[KernelText] = field(default_factory=list["KernelText"])

    @property
    def source(self) -> str:
        """The whole text."""
        return self.writer.source


def module_of(program: Program, rows: Rows) -> Module:
    """The text of a program."""
    return _Text(program, rows).module()


def _has_work(body: Block, core: Core) -> bool:
    """Whether cores of a kind do anything that can be seen."""
    for stmt in body:
        if isinstance(stmt, CoreRegion) and stmt.core is not core:
            continue
        if isinstance(stmt, (Instr, Write, Print, Assert, VectorFunction)):
            return True
        if any(_has_work((s,), core) for s in stmt.children() if isinstance(s, Stmt)):
            return True
    return False


class _Text:
    """One program."""

    def __init__(self, program: Program, rows: Rows) -> None:
        self.program = program
        self.rows = rows
        self.writer = Writer()
        self.writer.define(np=np, _same=same)
        self.x = Scalars(self.writer)
        self.core: Core | None = None
        self.region: Core | None = None
        self.module_: Module | None = None
        self.pending: list[KernelText] = []

    def module(self) -> Module:
        """All functions."""
        name = self.writer.fresh("host")
        made = self.module_ = Module(self.writer, name)
        names = [p.array.name for p in self.program.params if p.array is not None]
        names += [p.var.name for p in self.program.params if p.var is not None]
        names += [v.name for v in self.program.dynamic]
        params = ", ".join(["run", *(self.x.name(n) for n in names)])
        with self.writer.block(f"def {name}({params}):"):
            self.block(self.program.body)
        for text in self.pending:
            for core, function in ((Core.CUBE, text.cube), (Core.VECTOR, text.vector)):
                self.function(text.kernel, core, function)
            made.kernels.append(text)
        return made

    def function(self, kernel: Kernel, core: Core, name: str) -> None:
        """What one core of a kind does."""
        self.core, self.region = core, None
        self.x.levels = Levels(kernel)
        for var, extent in zip(kernel.vars, kernel.grid, strict=True):
            blocks = self.x.known.bounds(extent).hi
            self.x.set_range(var, interval(0, None if blocks is None else max(blocks - 1, 0)))
        for var, count in zip(kernel.thread_vars, kernel.block, strict=False):
            self.x.set_range(var, interval(0, count - 1))
        given = [p.name for p in kernel.params] + [v.name for v in kernel.vars]
        sub = kernel.thread_vars[0].name if kernel.thread_vars else "sub"
        params = ", ".join(["core", *(self.x.name(n) for n in given), self.x.name(sub)])
        self.writer.loc = kernel.loc
        with self.writer.block(f"def {name}({params}):"):
            self.block(kernel.body)
            self.writer.line("return")
            self.writer.line("yield")
        self.core = None
        self.x.levels = Levels()

    def one(self, e: Expr) -> str:
        """The text of a value that decides what is done next: of lanes, the one that all have. One
        that is read from memory stays an array, of which Python finds no truth.
        """
        text = self.x.of(e)
        return f"_same({text})" if self.x.levels.of(e) is Level.BLOCK else text

    def block(self, body: Block) -> None:
        """Statements in order."""
        for stmt in body:
            self.statement(stmt)

    def statement(self, stmt: Stmt) -> None:
        """One statement."""
        self.writer.loc = stmt.loc or self.writer.loc
        rule = _RULES.get(type(stmt))
        if rule is None:
            raise unmodelled(stmt, type(stmt).__name__)
        rule(self, stmt)

    # Control flow --------------------------------------------------------------------------------

    def let(self, s: Let) -> None:
        self.writer.line(f"{self.x.name(s.var.name)} = {self.x.of(s.value)}")
        self.x.set_range(s.var, self.x.known.bounds(s.value))

    def loop(self, s: For) -> None:
        bounds = [self.one(e) for e in (s.start, s.stop, s.step) if e is not None]
        start, stop = (self.x.known.bounds(e) for e in (s.start, s.stop))
        last = None if stop.hi is None else max(stop.hi - 1, start.lo or 0)
        forward = s.step is None or (int_value(s.step) or 0) > 0
        self.x.set_range(s.var, interval(start.lo, last) if forward else TOP)
        with self.writer.block(f"for {self.x.name(s.var.name)} in range({', '.join(bounds)}):"):
            self.block(s.body)

    def while_(self, s: While) -> None:
        with self.writer.block(f"while {self.one(s.cond)}:"):
            self.block(s.body)

    def branch(self, s: If) -> None:
        with self.writer.block(f"if {self.one(s.cond)}:"):
            self.block(s.then)
        if s.orelse:
            with self.writer.block("else:"):
                self.block(s.orelse)

    def jump(self, s: Break | Continue | ThreadReturn) -> None:
        words = {Break: "break", Continue: "continue", ThreadReturn: "return"}
        self.writer.line(words[type(s)])

    def require(self, s: Assert) -> None:
        stmt = self.writer.constant("check", s)
        if self.x.levels.of(s.cond) is Level.READ:
            self.writer.line(f"core.require({self.x.of(s.cond)}, {stmt})")
            return
        who = "run" if self.core is None else "core"
        with self.writer.block(f"if not {self.one(s.cond)}:"):
            self.writer.line(f"{who}.fail({stmt})")

    def assume(self, s: Assume) -> None:
        """Nothing: a false one is a finding of the dynamic check of the tile program."""

    def print_(self, s: Print) -> None:
        if s.value is not None and not isinstance(s.value, Expr):
            raise unmodelled(s, "printing a whole buffer")
        value = "" if s.value is None else f", {self.x.of(s.value)}"
        show = "print" if self.core is None else "core.print"
        self.writer.line(f"{show}({s.message!r}{value})")

    def region_(self, s: CoreRegion) -> None:
        if s.core is not self.core:
            return
        if s.sub is not None:
            self.x.set_range(s.sub, interval(0, None))
            self.writer.line(f"{self.x.name(s.sub.name)} = core.sub")
        self.region = s.core
        if s.subs == 1 and s.core is Core.VECTOR:
            with self.writer.block("if core.sub == 0:"):
                self.block(s.body)
        else:
            self.block(s.body)
        self.region = None

    # Storage -------------------------------------------------------------------------------------

    def declare(self, s: Declare) -> None:
        name = self.x.name(s.array.name)
        array = self.writer.constant("array", s.array, key=("array", s.array.name))
        if self.core is None:
            size = self.x.of(s.array.size) if s.array.size is not None else "0"
            first = "None" if s.init is None else self.x.of(s.init)
            self.writer.line(f"{name} = run.workspace({array}, {size}, {first})")
        elif s.array.space in ON_CORE:
            self.writer.line(f"{name} = core.window({array}, {s.offset})")
        else:
            size = self.x.of(s.array.size) if s.array.size is not None else "0"
            first = "None" if s.init is None else self.x.of(s.init)
            self.writer.line(f"{name} = core.registers({array}, {size}, {first})")

    def write(self, s: Write) -> None:
        if s.value.dtype.lanes != 1:
            raise unmodelled(s, "a vector of a thread")
        array, index = self.x.name(s.array.name), self.x.of(s.index)
        value = self.x.of(s.value)
        if s.array.space in (Space.REGISTER, Space.LOCAL, Space.SHARED):
            self.writer.line(f"{array}[{index}] = {value}")
        else:
            at = self.writer.constant("at", s.loc, key=("loc", repr(s.loc)))
            self.writer.line(f"core.store({array}, {index}, {value}, {at})")

    # Instructions --------------------------------------------------------------------------------

    def instruction(self, s: Instr) -> None:
        if s.row == "print.element":
            slot = s.ins[0]
            if not isinstance(slot, Slot):
                raise InternalError("an element that is no slot is printed")
            at = f"{self.x.name(slot.array.name)}, {self.x.of(slot.index)}"
            self.writer.line(f"core.print_element({at}, {dict(s.imm)!r})")
            return
        row = self.rows.get(s.row)
        if row is None:
            raise unmodelled(s, s.row)
        made = Instruction.of(row, s)
        name = self.writer.constant("i", made)
        values = [self.x.of(e) for e in s.ins if isinstance(e, Expr)]
        if s.row.startswith("mode."):
            value = values[0] if values else repr(dict(s.imm)["op"])
            self.writer.line(f"core.set_mode({s.row.removeprefix('mode.')!r}, {value})")
        elif s.row == "sync.all":
            kind = self.region.value if self.region is not None else ""
            self.writer.line(f"yield from core.sync_all({name}, {kind!r})")
        elif s.row in _WAITS:
            args = ", ".join([name, *values])
            self.writer.line(f"yield from core.{_WAITS[s.row]}({args})")
        elif s.row in _AT_ONCE:
            self.writer.line(f"core.{_AT_ONCE[s.row]}({', '.join([name, *values])})")
        else:
            self.issue(s, made, name, values)

    def issue(self, s: Instr, made: Instruction, name: str, values: list[str]) -> None:
        """An instruction for a queue, with its operands as `Instruction` says."""
        slots = [o for o in (*s.outs, *s.ins) if isinstance(o, Slot)]
        far = "" if made.far < 0 else self.x.of(slots[made.far].index)
        at = [
            f"{self.x.name(o.array.name)}, {'0' if k == made.far else self.one(o.index)}"
            for k, o in enumerate(slots)
        ]
        scalars = [e for e in s.ins if isinstance(e, Expr)]
        at += [self.one(scalars[k]) for _, k in made.counts]
        level = self.x.levels.of
        near = [o.index for k, o in enumerate(slots) if k != made.far]
        rest = [scalars[k] for name, k in (*made.counts, *made.data) if name not in made.numbers]
        made.apart = Level.READ in map(level, (*near, *rest))
        made.loose = made.far >= 0 and level(slots[made.far].index) is Level.READ
        data = [
            f"{name!r}: {values[k] if name in made.numbers else self.one(scalars[k])}"
            for name, k in made.data
        ]
        args = [name, f"({', '.join(at)},)"]
        if data or far:
            args.append(f"{{{', '.join(data)}}}" if data else "None")
        self.writer.line(f"core.issue({', '.join([*args, far] if far else args)})")

    def function_(self, s: VectorFunction) -> None:
        used = ", ".join(f"{n.name!r}: {self.x.name(n.name)}" for n in used_from_outside(s))
        self.writer.line(f"core.call({self.writer.constant('function', s)}, {{{used}}})")

    # Launches ------------------------------------------------------------------------------------

    def kernel(self, s: Kernel) -> None:
        kinds = frozenset(core for core in Core if _has_work(s.body, core))
        cube, vector = self.writer.fresh("cube"), self.writer.fresh("vector")
        made = KernelText(s, cube, vector, kinds, used(s), lanes_for(used(s)))
        self.pending.append(made)
        text = self.writer.constant("kernel", made)
        grid = ", ".join(self.x.of(e) for e in s.grid)
        given = ", ".join(self.x.name(p.name) for p in s.params)
        self.writer.line(f"run.launch({text}, ({grid},), ({given}{',' if given else ''}))")


_RULES: dict[type[Stmt], Callable[[_Text, Any], None]] = {
    Let: _Text.let,
    For: _Text.loop,
    While: _Text.while_,
    If: _Text.branch,
    Break: _Text.jump,
    Continue: _Text.jump,
    ThreadReturn: _Text.jump,
    Assert: _Text.require,
    Assume: _Text.assume,
    Print: _Text.print_,
    CoreRegion: _Text.region_,
    VectorFunction: _Text.function_,
    Declare: _Text.declare,
    Write: _Text.write,
    Instr: _Text.instruction,
    Kernel: _Text.kernel,
}
