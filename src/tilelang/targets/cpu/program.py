"""A program of the thread stage as one module of LLVM IR.

What enters: a planned program for one thread per block. What leaves: `Built`: the text of a module
with the function `run`, and what its numbers mean.

`i32 run(ptr control, ptr args)` carries out the host level: `control` is the record of
`record.Control`, `args` has 8 bytes for each parameter (an address, or the bits of a scalar) and
then for each size that launch binds. A kernel becomes `void <name>(ptr env, i64 first, i64 last,
ptr arena)`, which runs the blocks from `first` up to `last`, x fastest; `env` has the record's
address and what the kernel takes from the host, 8 bytes each. Workers call it.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilelang.dtypes import DType
from tilelang.errors import InternalError
from tilelang.ir.expr import Expr, Var
from tilelang.ir.thread import Argument, Array, Declare, Kernel, Program
from tilelang.ir.tile import Stmt
from tilelang.targets.cpu.built import Built, Failure
from tilelang.targets.cpu.expressions import Expressions
from tilelang.targets.cpu.llvm import Host
from tilelang.targets.cpu.places import Memory, Scopes
from tilelang.targets.cpu.record import Record
from tilelang.targets.cpu.statements import Notes, Statements, outside
from tilelang.targets.cpu.text import Code, Module, Value, number
from tilelang.targets.cpu.types import element_type, value_type

ALIGN = 64
"""Bytes: of workspaces."""
MOST_BLOCKS = (1 << 31) - 1
"""In an axis of a grid, as on a GPU."""


def emit(program: Program, host: Host) -> Built:
    """The module of a program for the host's features."""
    return _Emitter(program, host).built()


class _Emitter:
    """One program."""

    def __init__(self, program: Program, host: Host) -> None:
        self.program = program
        self.host = host
        self.module = Module()
        self.notes = Notes()

    def built(self) -> Built:
        """All of it."""
        program = self.program
        _Host(self).run()
        return Built(
            self.module.text,
            tuple(self.notes.failures),
            tuple(self.notes.prints),
            (
                *((p.name, p.var.type if p.var is not None else None) for p in program.params),
                *((v.name, v.type) for v in program.dynamic),
            ),
            self.notes.vectorise,
        )

    def function(self, name: str, result: str, types: Sequence[str], linkage: str = "") -> Code:
        """A function for the host's processor."""
        attributes = f'"target-cpu"="{self.host.cpu}" "target-features"="{self.host.features}"'
        return Code(
            self.module, name, result, types, linkage=linkage, attributes=f"nounwind {attributes}"
        )


class _Host:
    """The host level: the function `run`."""

    def __init__(self, emitter: _Emitter) -> None:
        self.emitter = emitter
        self.code = emitter.function("run", "i32", ("ptr noalias", "ptr noalias readonly"))
        self.scopes = Scopes(emitter.module)
        self.x = Expressions(self.code, Memory(self.code, self.scopes))
        self.record = Record(self.code.args[0])
        self.out = self.code.label("exit")
        self.workspaces: list[Value] = []
        self.statements = _HostStatements(self)

    def run(self) -> None:
        """The whole function."""
        code, program = self.code, self.emitter.program
        for k, p in enumerate(program.params):
            self.argument(k, p)
        for k, v in enumerate(program.dynamic):
            self.x.vars[v.name] = self.scalar(len(program.params) + k, v)
        self.statements.body(program.body)
        code.place(self.out)
        for space in self.workspaces:
            free = code.module.declare("free", "void", ["ptr"])
            code.call_void(free, [code.load("ptr", space)])
        code.ret(self.record.field(code, "status", "i32"))
        self.emitter.module.functions["run"] = self.scopes.finish(code.text)

    def slot(self, k: int) -> Value:
        """The address of an argument's 8 bytes."""
        return self.code.gep(self.code.args[1], "i64", number("i64", k))

    def argument(self, k: int, p: Argument) -> None:
        """A parameter."""
        if p.var is not None:
            self.x.vars[p.var.name] = self.scalar(k, p.var)
        elif p.array is not None:
            self.x.places[p.array.name] = outside(self.code.load("ptr", self.slot(k)), p.array)

    def scalar(self, k: int, v: Var) -> Value:
        """A scalar from the low bytes of its slot."""
        return load_slot(self.code, self.slot(k), v.type)

    # Kernels -------------------------------------------------------------------------------------

    def launch(self, kernel: Kernel) -> None:
        """Fill the environment and hand the blocks to the workers; stop if one has failed."""
        code = self.code
        env = code.alloca("i64", 1 + len(kernel.params) + len(kernel.grid), 8)
        code.store(self.code.args[0], env)
        for k, p in enumerate(kernel.params):
            value = self.x.places[p.name].pointer if isinstance(p, Array) else None
            if isinstance(p, Var):
                value = self.x.vars[p.name]
            if value is None:
                raise InternalError(f"a kernel takes {p.name} from the host")
            store_slot(code, value, code.gep(env, "i64", number("i64", 1 + k)))
        grid = [self.extent(e) for e in kernel.grid]
        for k, n in enumerate(grid):
            code.store(n, code.gep(env, "i64", number("i64", 1 + len(kernel.params) + k)))
        blocks = self.blocks(kernel, grid)
        _Kernel(self.emitter, kernel).run()
        launch = self.record.field(code, "launch", "ptr")
        threads = self.record.field(code, "threads", "i32")
        args = [Value("ptr", f"@{name_of(kernel)}"), env, blocks]
        code.call_void(launch.text, [*args, number("i64", kernel.shared), threads])
        after = code.label("after")
        code.branch(self.record.stopped(code), self.out, after)
        code.place(after)

    def extent(self, e: Expr) -> Value:
        """How many blocks an axis of a grid has."""
        return self.code.intrinsic("smax", self.wide(self.x.of(e)), number("i64", 0))

    def blocks(self, kernel: Kernel, grid: Sequence[Value]) -> Value:
        """How many blocks a grid has. Indices of blocks have 32 bits, numbers of blocks 64."""
        code = self.code
        multiply = code.module.declare("llvm.smul.with.overflow.i64", "{ i64, i1 }", ["i64"] * 2)
        blocks, empty, holds = number("i64", 1), number("i1", 0), number("i1", 1)
        for n in grid:
            empty = code.op("or", empty, code.compare("eq", n, number("i64", 0)))
            holds = code.op("and", holds, code.compare("sle", n, number("i64", MOST_BLOCKS)))
            pair = code.call(multiply, "{ i64, i1 }", [blocks, n])
            blocks = code.value("i64", f"extractvalue {pair.typed}, 0")
            wrapped = code.value("i1", f"extractvalue {pair.typed}, 1")
            holds = code.select(wrapped, number("i1", 0), holds)
        message = f"a grid of more than {MOST_BLOCKS} blocks in an axis, or 2**63 in all"
        self.statements.check(code.op("or", empty, holds), Failure(message, kernel.loc, "capacity"))
        return code.select(empty, number("i64", 0), blocks)

    def wide(self, value: Value) -> Value:
        """An extent in 64 bits."""
        return value if value.type == "i64" else self.code.cast("sext", value, "i64")

    # Workspaces ----------------------------------------------------------------------------------

    def workspace(self, stmt: Declare) -> None:
        """Global memory for the time of the call."""
        code, array = self.code, stmt.array
        if array.size is None:
            raise InternalError(f"the workspace {array.name} has no size")
        space = code.alloca("ptr")
        code.entry.append(f"  store ptr null, ptr {space}")
        self.workspaces.append(space)
        free = code.module.declare("free", "void", ["ptr"])
        code.call_void(free, [code.load("ptr", space)])  # of the round before, in a loop
        count = self.wide(self.x.of(array.size))
        size = code.op("mul", count, number("i64", array.type.numpy.itemsize))
        size = code.op("add", code.op("or", size, number("i64", ALIGN - 1)), number("i64", 1))
        take = code.module.declare("aligned_alloc", "ptr", ["i64", "i64"])
        made = code.call(take, "ptr", [number("i64", ALIGN), size])
        code.store(made, space)
        holds = code.value("i1", f"icmp ne ptr {made}, null")
        message = f"no memory for the workspace {array.name}"
        self.statements.check(holds, Failure(message, stmt.loc, "capacity"))
        self.x.places[array.name] = outside(made, array)


class _HostStatements(Statements):
    """The statements of the host level: kernels and workspaces beside control flow."""

    def __init__(self, host: _Host) -> None:
        super().__init__(
            host.x, host.record, host.emitter.notes, host.emitter.host, host.out, host.out
        )
        self.host_level = host

    def statement(self, stmt: Stmt) -> None:
        """One statement."""
        if isinstance(stmt, Kernel):
            self.host_level.launch(stmt)
        elif isinstance(stmt, Declare):
            self.host_level.workspace(stmt)
        else:
            super().statement(stmt)


class _Kernel:
    """One kernel."""

    def __init__(self, emitter: _Emitter, kernel: Kernel) -> None:
        self.emitter = emitter
        self.kernel = kernel
        types = ("ptr noalias readonly", "i64", "i64", "ptr noalias")
        self.code = emitter.function(name_of(kernel), "void", types, "internal")
        self.scopes = Scopes(emitter.module)
        self.x = Expressions(self.code, Memory(self.code, self.scopes))

    def run(self) -> None:
        """The function: a loop over blocks."""
        code, kernel = self.code, self.kernel
        env, first, last, arena = code.args
        record = Record(code.load("ptr", env))
        for k, p in enumerate(kernel.params):
            self.param(p, code.gep(env, "i64", number("i64", 1 + k)))
        extents = [
            code.load("i64", code.gep(env, "i64", number("i64", 1 + len(kernel.params) + k)))
            for k in range(len(kernel.grid))
        ]
        at = code.alloca("i64")
        code.store(first, at)
        head, inside, done, out = (code.label(n) for n in ("block", "run", "done", "exit"))
        code.place(head)
        now = code.load("i64", at)
        code.branch(code.compare("slt", now, last), inside, out)
        code.place(inside)
        self.indices(now, extents)
        body = Statements(self.x, record, self.emitter.notes, self.emitter.host, out, done)
        body.arena = arena
        body.block_index = [self.x.vars[v.name] for v in kernel.vars]
        body.body(kernel.body)
        code.place(done)
        code.store(code.op("add nsw", code.load("i64", at), number("i64", 1)), at)
        code.jump(head)
        code.place(out)
        code.ret()
        name = name_of(kernel)
        self.emitter.module.functions[name] = self.scopes.finish(code.text)

    def param(self, p: object, at: Value) -> None:
        """A name from the host."""
        if isinstance(p, Array):
            self.x.places[p.name] = outside(self.code.load("ptr", at), p)
        elif isinstance(p, Var):
            self.x.vars[p.name] = load_slot(self.code, at, p.type)
        else:
            raise InternalError("the CPU has no tensor maps")

    def indices(self, block: Value, extents: Sequence[Value]) -> None:
        """The block's indices from its number."""
        code, rest = self.code, block
        last = len(extents) - 1
        for k, (v, n) in enumerate(zip(self.kernel.vars, extents, strict=True)):
            index = rest if k == last else code.op("urem", rest, n)
            if k < last:
                rest = code.op("udiv", rest, n)
            kind = value_type(v.type)
            self.x.vars[v.name] = index if kind == "i64" else code.cast("trunc", index, kind)


def name_of(kernel: Kernel) -> str:
    """The function's name."""
    return f'"{kernel.name}"'


def load_slot(code: Code, at: Value, dtype: DType) -> Value:
    """A scalar from its 8 bytes; the other bytes may hold anything."""
    if dtype.is_bool:
        return code.compare("ne", code.load("i8", at), number("i8", 0))
    return code.load(element_type(dtype), at)


def store_slot(code: Code, value: Value, at: Value) -> None:
    """A scalar or an address to its 8 bytes."""
    if value.type == "i1":
        value = code.cast("zext", value, "i8")
    code.store(value, at)
