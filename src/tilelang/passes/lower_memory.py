"""Buffers as flat arrays: the step from the tile stage to the thread stage.

What enters: a function that holds scalar statements, loops and packed products only. What leaves: a
`Program` in which every access is an `Elem` or `Write` at a flat index. Bounds that ranges do not
prove become guards: in global memory a read outside gives the safe value and a write outside does
nothing, on chip an `Assert` reports it. Guards are hoisted out of a loop by splitting it into the
part where all of them hold and the edges (`passes/split_loops.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

from tilelang.dtypes import DType, const_value
from tilelang.errors import error
from tilelang.ir.bounds import Env, Interval, prove
from tilelang.ir.expr import (
    BOOL,
    INT32,
    AtomicLoad,
    Binary,
    BinaryOp,
    Bitcast,
    Buffer,
    Const,
    Expr,
    Region,
    Var,
    const,
    int_value,
)
from tilelang.ir.node import Node
from tilelang.ir.simplify import simplify
from tilelang.ir.special import MakeTensor
from tilelang.ir.thread import (
    HANDLE,
    Addr,
    Argument,
    Array,
    At,
    Declare,
    Instr,
    Kernel,
    MakeTensorMap,
    Program,
    Slot,
    Space,
    TensorMap,
    Write,
)
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Assert,
    Assume,
    Atomic,
    Block,
    Break,
    Continue,
    ExternCall,
    For,
    Function,
    Gemm,
    If,
    Launch,
    Let,
    Print,
    Stmt,
    Store,
    StoreVector,
    ThreadReturn,
    View,
    While,
)
from tilelang.isa.target import Target
from tilelang.layout.placement import Placement
from tilelang.passes.accesses import Accesses, Place, wide_size
from tilelang.passes.buffers import (
    addressed,
    in_registers,
    room_for,
    scalar_count,
    scalar_shape,
    shared_align,
    statically_indexed,
)
from tilelang.passes.build import (
    Names,
    as_type,
    compare,
    minus,
    plus,
    serial,
    statements,
    times,
    unsupported,
)
from tilelang.passes.check.program import op_name
from tilelang.passes.issue import PLACEMENT, Issue, Span, TensorBox
from tilelang.passes.kernel_facts import captured, launch_attrs, min_blocks, prefetched
from tilelang.passes.simt.switches import is_off
from tilelang.passes.split_loops import Splitter
from tilelang.scopes import Dialect, Memory, memory_of

MOST = (1 << 31) - (1 << 16)
"""The largest size that launch may bind to a 32-bit name: an index of a tile that begins inside
does not overflow then.
"""

PARAMETER_ALIGN = 16
"""Bytes: the widest access of a thread of a GPU. A launch with another address is not made."""

MOST_ON_STACK = 256 << 10
"""Bytes: of all arrays of a thread on its stack, which the caller's and a library's share."""

ON_CHIP_ALIGN = 64
"""Bytes: a cache line, and the widest vector register."""


def lower_memory(fn: Function, target: Target) -> Program:
    """The program with flat arrays, guarded where bounds are not proved."""
    del target
    return Lowering(fn).program()


def lower_thread_memory(fn: Function, target: Target) -> Program:
    """The same for what one of many threads does.

    The threads stay, fragments are register arrays, and accesses on chip are not checked: what is
    not proved wrong is left to the dynamic check, as a check by every thread would cost too much.
    """
    del target
    return Lowering(fn, many=True).program()


class Lowering:
    """One function."""

    def __init__(self, fn: Function, *, many: bool = False) -> None:
        self.fn = fn
        self.many = many
        self.static = statically_indexed(fn) if many else set[str]()
        self.names = Names(fn)
        self.dialect = Dialect(fn.dialect)
        self.places: dict[str, Place] = {}
        self.on_stack = 0
        self.addressed = addressed(fn)
        self.safe: dict[str, float] = {}
        self.signed = {
            n
            for p in fn.params
            if p.buffer is not None
            for e in p.buffer.strides or ()
            for n in e.walk()
        }
        self.maps: dict[TensorBox, TensorMap] = {}
        guarded = not is_off(fn, "guards")
        self.acc = Accesses(self.places, self.names, checked=not many, guarded=guarded)
        self.split = Splitter(self.acc, self.names, self.block)

    # Host level ----------------------------------------------------------------------------------

    def program(self) -> Program:
        """The whole program."""
        params: list[Argument] = []
        for p in self.fn.params:
            if p.buffer is None:
                params.append(Argument(p.name, var=p.var, pointer=p.pointer, loc=p.loc))
                continue
            b = p.buffer
            align = PARAMETER_ALIGN if self.many and not p.pointer else 0
            array = Array(b.name, b.dtype.base, scalar_count(b), align=align, loc=p.loc)
            self.places[b.name] = self.placed(b, array)
            params.append(
                Argument(
                    p.name,
                    array=array,
                    shape=scalar_shape(b),
                    strides=b.strides,
                    pointer=p.pointer,
                    loc=p.loc,
                )
            )
        env, checks = self.sizes()
        body = (*checks, *self.block(self.fn.body, env))
        return Program(
            self.fn.name,
            tuple(params),
            self.fn.dynamic,
            body,
            outputs=self.fn.outputs,
            attrs=self.fn.attrs,
            loc=self.fn.loc,
        )

    def sizes(self) -> tuple[Env, Block]:
        """What is known of the sizes that launch binds, and the assertions that make it so."""
        env, checks = Env.of_function(self.fn), list[Stmt]()
        for v in self.fn.dynamic:
            if v.type == INT32 and v not in self.signed:
                env = env.with_range(v, Interval(0, MOST))
                cond = Binary(BinaryOp.LE, v, const(MOST))
                message = f"the size {v.name} leaves no room for the last tile in 32 bits"
                checks.append(Assert(cond, message=message, kind="shape", loc=self.fn.loc))
        return env, tuple(checks)

    def placed(self, b: Buffer, array: Array, offset: Expr | None = None) -> Place:
        """A buffer that lies in an array, `offset` scalars from its start."""
        return Place(
            b,
            array,
            const(0) if offset is None else offset,
            on_chip=not self.is_global(b),
            safe=self.safe_value(b),
        )

    def is_global(self, b: Buffer) -> bool:
        """Whether a buffer lies in global memory."""
        return memory_of(self.dialect, b.scope) is Memory.GLOBAL

    def safe_value(self, b: Buffer) -> Const:
        """What a read outside gives."""
        base = b.dtype.base
        return Const(const_value(self.safe.get(b.name, 0), base), base)

    def launch(self, stmt: Launch, env: Env) -> Block:
        """One launch, with the workspaces that it allocates before it."""
        self.annotated(stmt.body)
        inside = env.enter_launch(stmt)
        block, thread_vars = self.threads(stmt)
        zeros: dict[str, Expr] = {
            v.name: Const(0, v.type) for v in stmt.thread_vars if v not in thread_vars
        }
        body = tuple(substituted(s, zeros) for s in stmt.body)
        workspaces = [
            s for s in statements(body) if isinstance(s, Alloc) and self.is_global(s.buffer)
        ]
        before = tuple(d for w in workspaces for d in self.alloc(w, env))
        self.maps = {}
        lowered = self.block(body, inside)
        lowered = (*prefetched(self.maps.values(), thread_vars), *lowered)
        before = (*before, *(MakeTensorMap(m, loc=stmt.loc) for m in self.maps.values()))
        grid = tuple(simplify(e, env) for e in stmt.grid)
        kernel = Kernel(
            self.names.name(f"{self.fn.name}_kernel"),
            (),
            grid,
            block,
            stmt.vars,
            thread_vars,
            lowered,
            cluster=stmt.cluster if self.many else (),
            attrs=launch_attrs(lowered),
            min_blocks=min_blocks(stmt.body),
            loc=stmt.loc,
        )
        order = [p.name for p in self.fn.params] + [v.name for v in self.fn.dynamic]
        return (*before, kernel.with_(params=captured(kernel, order)))

    def threads(self, stmt: Launch) -> tuple[tuple[int, ...], tuple[Var, ...]]:
        """The threads of a block, and the indices that name them."""
        if not self.many:
            return (1,), ()
        block = stmt.threads or (1,)
        while len(block) > 1 and block[-1] == 1:
            block = block[:-1]
        named = tuple(
            v for v, n in zip(stmt.thread_vars, block, strict=False) if n > 1 or len(block) > 1
        )
        return block, named

    def annotated(self, body: Block) -> None:
        """Take in the safe values that the author gave, and the placements that passes chose."""
        for stmt in statements(body):
            if not isinstance(stmt, Annotate):
                continue
            if stmt.kind == PLACEMENT:
                for b, key in zip(stmt.buffers, stmt.values, strict=True):
                    self.acc.placed[b.name] = Placement(*key)
            if stmt.kind != "safe_value":
                continue
            given = list(stmt.values) or [
                e.value if isinstance(e, Const) else None for e in stmt.exprs
            ]
            for b, value in zip(stmt.buffers, given, strict=True):
                if value is None:
                    raise error(
                        "value",
                        "a safe value that is not a constant",
                        stmt.loc,
                        expected="a number",
                    )
                self.safe[b.name] = value
                if b.name in self.places:
                    self.places[b.name].safe = self.safe_value(b)

    # Statements ----------------------------------------------------------------------------------

    def block(self, body: Block, env: Env) -> Block:
        """Statements in order."""
        out: list[Stmt] = []
        for stmt in body:
            out += self.statement(stmt, env)
            if not isinstance(stmt, Assume):  # a false one must not lead to a wrong address
                env = env.after(stmt)
        return tuple(out)

    def statement(self, stmt: Stmt, env: Env) -> Block:
        """One statement, after the assertions that its accesses on chip need."""
        match stmt:
            case Alloc():
                made = () if self.in_launch_workspace(stmt) else self.alloc(stmt, env)
            case View():
                made = self.view(stmt, env)
            case MakeTensor():
                made = self.make_tensor(stmt, env)
            case Launch():
                made = self.launch(stmt, env)
            case For() if self.many:
                made = self.loop(stmt, env)
            case For():
                made = self.split.loop(stmt, env)
            case If():
                made = self.branch(stmt, env)
            case While():
                made = self.while_(stmt, env)
            case Annotate():
                made = ()
            case _:
                made = self.simple(stmt, env)
        return made

    def simple(self, stmt: Stmt, env: Env) -> Block:
        """A statement without blocks."""
        x = self.acc.begin(env)
        match stmt:
            case Let():
                made: Block = (stmt.with_(value=x.expr(stmt.value)),)
            case Store():
                made = x.store(stmt)
            case StoreVector():
                made = x.store_vector(stmt)
            case Assert() | Assume():
                made = (stmt.with_(cond=x.expr(stmt.cond)),)
            case Print():
                made = self.print_(stmt, env)
            case Atomic():
                made = x.atomic(stmt)
            case Gemm():
                made = self.gemm(stmt, env)
            case Issue():
                made = self.issue(stmt, env)
            case ExternCall() if self.many:
                made = (stmt.with_(args=x.all(stmt.args, None, env), touched=()),)
            case Break() | Continue() | ThreadReturn():
                made = (stmt,)
            case _:
                raise unsupported(stmt, op_name(stmt))
        return (*x.assertions(stmt.loc), *made)

    def loop(self, stmt: For, env: Env) -> Block:
        """A loop as it is: its guards may differ between threads, its rounds must not."""
        x = self.acc.begin(env)
        start, stop = (simplify(x.expr(e), env) for e in (stmt.start, stmt.stop))
        step = None if stmt.step is None else x.expr(stmt.step)
        checks = x.assertions(stmt.loc)
        made = stmt.with_(start=start, stop=stop, step=step)
        first, last = int_value(start), int_value(stop)
        if first is not None and last is not None and step is None and first >= last:
            return checks
        return (*checks, made.with_(body=self.block(stmt.body, env.enter_for(made))))

    def branch(self, stmt: If, env: Env) -> Block:
        """A condition."""
        x = self.acc.begin(env)
        cond = simplify(x.expr(stmt.cond), env)
        yes, no = env.assume(stmt.cond), env.assume(stmt.cond, holds=False)
        if isinstance(cond, Const):
            return self.block(stmt.then, yes) if cond.value else self.block(stmt.orelse, no)
        checks = x.assertions(stmt.loc)
        with self.acc.conditional():
            made = If(
                cond, self.block(stmt.then, yes), orelse=self.block(stmt.orelse, no), loc=stmt.loc
            )
        return (*checks, made)

    def while_(self, stmt: While, env: Env) -> Block:
        """A loop whose condition is evaluated before each round, with its assertions."""
        if not self.many and any(isinstance(n, AtomicLoad) for n in stmt.walk()):
            raise unsupported(stmt, "a loop that waits for another block")
        x = self.acc.begin(env)
        cond = x.expr(stmt.cond)
        checks = x.assertions(stmt.loc)
        with self.acc.conditional():
            body = self.block(stmt.body, env.assume(stmt.cond))
        if not checks:
            return (While(cond, body, loc=stmt.loc),)
        stop = If(cond, (), orelse=(Break(loc=stmt.loc),), loc=stmt.loc)
        return (While(Const(True, BOOL), (*checks, stop, *body), loc=stmt.loc),)

    # Storage -------------------------------------------------------------------------------------

    def in_launch_workspace(self, stmt: Alloc) -> bool:
        """Whether the launch has made it before."""
        return self.is_global(stmt.buffer) and stmt.buffer.name in self.places

    def alloc(self, stmt: Alloc, env: Env) -> Block:
        """Storage for a buffer."""
        b = stmt.buffer
        memory = memory_of(self.dialect, b.scope)
        size = simplify(scalar_count(b) or const(0), env)
        if memory is Memory.GLOBAL:
            array = Array(b.name, b.dtype.base, size, align=ON_CHIP_ALIGN)
            self.places[b.name] = self.placed(b, array)
            return (*room_for(stmt, size), Declare(array, init=stmt.init, loc=stmt.loc))
        count = int_value(size)
        if count is None:
            raise error(
                "shape",
                f"{b.name} has a size that is known only when the kernel runs",
                stmt.loc,
                expected="constant extents for a buffer on chip",
            )
        space = self.space(memory, b, count)
        align = ON_CHIP_ALIGN if space is Space.SHARED else 0
        if self.many and align:
            align = shared_align(count * b.dtype.bytes)
        elif self.many and space is Space.LOCAL and b.name in self.addressed:
            align = ON_CHIP_ALIGN  # the author's device code may read it by vectors
        array = Array(b.name, b.dtype.base, const(count), space=space, align=align)
        self.places[b.name] = self.placed(b, array)
        init = stmt.init
        if init is None and memory is Memory.VAR:
            init = Const(const_value(0, b.dtype.base), b.dtype.base)
        if init is None:
            return (Declare(array, loc=stmt.loc),)
        x = self.acc.begin(env)
        value = x.converted(init, b.dtype.base)
        checks = x.assertions(stmt.loc)
        if count == 1:
            return (*checks, Declare(array, init=value, loc=stmt.loc))
        fill = Let(self.names.var("first", value.dtype), value, loc=stmt.loc)
        k = self.names.var("k")
        loop = serial(k, count, (Write(array, k, fill.var, loc=stmt.loc),), stmt.loc)
        return (*checks, Declare(array, loc=stmt.loc), fill, loop)

    def space(self, memory: Memory, b: Buffer, count: int) -> Space:
        """Where a buffer on chip goes: variables to registers, small arrays of a thread to its
        stack, the rest to the arena of the block.
        """
        if memory is Memory.TMEM:
            return Space.TENSOR
        static = self.static if self.many else None
        if in_registers(memory, b, count, static=static, addressed=self.addressed):
            return Space.REGISTER
        if memory not in (Memory.LOCAL, Memory.VAR):
            return Space.SHARED
        if self.many:
            return Space.LOCAL
        size = count * b.dtype.bytes
        if size > 4096 or self.on_stack + size > MOST_ON_STACK:
            return Space.SHARED
        self.on_stack += size
        return Space.LOCAL

    def view(self, stmt: View, env: Env) -> Block:
        """A second name: the same array where the element size is the same, else one at an
        address.
        """
        source, b = self.places[stmt.source.name], stmt.buffer
        if stmt.source.strides is not None:
            raise unsupported(stmt, "a view of a buffer with strides")
        x = self.acc.begin(env)
        offset = const(0) if stmt.offset is None else x.expr(stmt.offset)
        checks = x.assertions(stmt.loc)
        first = plus(source.offset, times(offset, stmt.source.dtype.lanes))
        checks = (*checks, *self.fits(stmt, offset, env))
        base, own = source.array.type, b.dtype.base
        if base == own:
            self.places[b.name] = self.placed(b, source.array, first)
            return checks
        if base.bits != own.bits and (base.is_subbyte or own.is_subbyte):
            raise error(
                "dtype",
                f"a view of {base} memory as {own}",
                stmt.loc,
                expected="types of whole bytes, or of the same number of bits",
                help="convert the elements one by one",
            )
        array = Array(b.name, own, scalar_count(b), space=source.array.space)
        self.places[b.name] = self.placed(b, array)
        return (*checks, At(array, Addr(source.array, first), loc=stmt.loc))

    def fits(self, stmt: View, offset: Expr, env: Env) -> Block:
        """What must hold for a view to lie in its source."""
        source, b = scalar_count(stmt.source), scalar_count(stmt.buffer)
        if source is None or b is None:
            return ()
        bits = stmt.source.dtype.bits
        start = times(wide_size(offset), stmt.source.dtype.lanes)
        room = times(minus(wide_size(source), start), bits)
        need = times(wide_size(b), stmt.buffer.dtype.bits)
        out: list[Stmt] = []
        for cond in (compare(BinaryOp.GE, start, 0), compare(BinaryOp.LE, need, room)):
            known = prove(cond, env)
            if known is False:
                raise error(
                    "shape",
                    f"the view {stmt.buffer.name} does not fit",
                    stmt.loc,
                    expected=f"at most the elements of {stmt.source.name}",
                )
            if known is None:
                message = f"the view {stmt.buffer.name} does not fit"
                out.append(Assert(cond, message=message, kind="shape", loc=stmt.loc))
        return tuple(out)

    def make_tensor(self, stmt: MakeTensor, env: Env) -> Block:
        """A buffer at an address."""
        x = self.acc.begin(env)
        address = x.expr(stmt.address)
        array = Array(stmt.buffer.name, stmt.buffer.dtype.base, scalar_count(stmt.buffer))
        self.places[stmt.buffer.name] = self.placed(stmt.buffer, array)
        if address.dtype != HANDLE:
            address = Bitcast(as_type(address, DType("uint64")), HANDLE)
        return (*x.assertions(stmt.loc), At(array, address, loc=stmt.loc))

    # Instructions --------------------------------------------------------------------------------

    def gemm(self, stmt: Gemm, env: Env) -> Block:
        """A product on packed operands."""
        x = self.acc.begin(env)
        imm: dict[str, int] = {}
        slots: dict[str, Slot] = {}
        for name in ("a", "b", "c"):
            r = getattr(stmt, name)
            at = self.places[r.buffer.name]
            rows, columns = (int_value(e) or 0 for e in r.extents[-2:])
            pitch = int_value(at.strides()[-2])
            if pitch is None:
                raise unsupported(stmt, "a product of a buffer with runtime strides")
            index = x.region(at, r.mins, r.extents)
            slots[name] = Slot(at.array, index, max(0, (rows - 1) * pitch + columns))
            turned = name == "a" and stmt.transpose_a
            imm |= {f"{name}_row": 1 if turned else pitch}
            if name == "a":
                imm |= {"a_col": pitch if turned else 1}
            if name == "c":
                imm |= {"m": rows, "n": columns}
        a = stmt.a.extents
        imm["k"] = int_value(a[-2 if stmt.transpose_a else -1]) or 0
        checks = x.assertions(stmt.loc)
        if 0 in (imm["m"], imm["n"]):
            return checks
        product = Instr(
            "gemm.tile",
            (slots["c"],),
            (slots["a"], slots["b"], x.expr(stmt.clear_accum)),
            imm=tuple(imm.items()),
            loc=stmt.loc,
        )
        return (*checks, product)

    def issue(self, stmt: Issue, env: Env) -> Block:
        """An instruction that a pass has chosen."""
        x = self.acc.begin(env)

        def operand(node: Region | Span | Expr | TensorBox) -> Slot | Expr | TensorMap:
            if isinstance(node, TensorBox):
                return self.tensor_map(node)
            if isinstance(node, Span):
                return Slot(self.places[node.buffer.name].array, x.expr(node.index), node.count)
            if isinstance(node, Region):
                at = self.places[node.buffer.name]
                count = math.prod(int_value(e) or 0 for e in node.extents)
                return Slot(at.array, x.region(at, node.mins, node.extents), count)
            return x.expr(node)

        outs = tuple(cast("Slot", operand(o)) for o in stmt.outs)
        ins = tuple(operand(o) for o in stmt.ins)
        made = Instr(stmt.row, outs, ins, results=stmt.results, imm=stmt.imm, loc=stmt.loc)
        return (*x.assertions(stmt.loc), made)

    def tensor_map(self, box: TensorBox) -> TensorMap:
        """The tensor map of boxes; a launch has each once."""
        found = self.maps.get(box)
        if found is None:
            at = self.places[box.buffer.name]
            size = const(at.array.type.bytes)
            steps = tuple(times(wide_size(s), size) for s in reversed(at.strides()[:-1]))
            found = self.maps[box] = TensorMap(
                self.names.name(f"{at.array.name}_map"),
                at.array,
                tuple(reversed(box.buffer.shape)),
                steps,
                tuple(reversed(box.box)),
                swizzle=box.swizzle,
            )
        return found

    def print_(self, stmt: Print, env: Env) -> Block:
        """A value, or every element of a buffer."""
        x = self.acc.begin(env)
        if not isinstance(stmt.value, Buffer):
            value = None if stmt.value is None else x.expr(stmt.value)
            thread = tuple(x.expr(t) for t in stmt.thread)
            return (*x.assertions(stmt.loc), stmt.with_(value=value, thread=thread))
        b = stmt.value
        at = self.places[b.name]
        if at.buffer.strides is None:
            k = self.names.var("k")
            size = scalar_count(b) or const(0)
            return (serial(k, size, self.print_one(stmt, plus(at.offset, k), k), stmt.loc),)
        if b.dtype.is_vector:
            raise unsupported(stmt, "printing vectors of a buffer with strides")
        loops = [self.names.var("k", extent.dtype) for extent in b.shape]
        number: Expr = const(0)
        for var, extent in zip(loops, b.shape, strict=True):
            number = plus(times(number, wide_size(extent)), var)
        body = self.print_one(stmt, x.index(at, loops, env), number)
        for var, extent in reversed(list(zip(loops, b.shape, strict=True))):
            body = (serial(var, extent, body, stmt.loc),)
        return body

    def print_one(self, stmt: Print, index: Expr, number: Expr) -> Block:
        """One element of a buffer, the `number`-th in row-major order."""
        assert isinstance(stmt.value, Buffer)
        element = Slot(self.places[stmt.value.name].array, index, 1)
        imm = (("message", stmt.message), ("buffer", stmt.value.name))
        return (Instr("print.element", (), (element, number), imm=imm, loc=stmt.loc),)


# Parts -------------------------------------------------------------------------------------------


def substituted(stmt: Stmt, values: Mapping[str, Expr]) -> Stmt:
    """A statement with variables replaced, also in the shapes of the buffers that it names."""
    if not values:
        return stmt

    def one(node: Node) -> Node | None:
        return values.get(node.name) if isinstance(node, Var) else None

    return stmt.rewrite(one)
