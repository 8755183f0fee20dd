"""The executable specification of the thread stage: a program goes in, the list of its violations
comes out.

It runs after lowering, and after every pass on the thread stage in tests. What is found is a fault
of the compiler, so `verify_program` raises `InternalError`. One generator function states each
concern; `RULES` lists them. What an instruction requires is said by its row, which lies above this
folder, so the check of `Instr` statements is passed in (`isa.instr.checker`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from tilelang.errors import InternalError
from tilelang.ir.affine import bounds
from tilelang.ir.ascend import CoreRegion, VectorFunction
from tilelang.ir.expr import (
    AddressOf,
    Buffer,
    Expr,
    Load,
    LoadVector,
    Region,
    Var,
    int_value,
)
from tilelang.ir.interval import Interval
from tilelang.ir.node import Node
from tilelang.ir.text import Named, is_name
from tilelang.ir.thread import (
    ON_CORE,
    Addr,
    Argument,
    Array,
    At,
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
from tilelang.ir.verify import shown
from tilelang.ir.verify_names import Finding, Scope
from tilelang.ir.verify_types import broken_exprs, broken_fields
from tilelang.ir.walk import bodies, bound, operands, statements

CheckInstr = Callable[[Instr], Iterator[str]]


def no_rows(stmt: Instr) -> Iterator[str]:
    """Checks nothing of an instruction."""
    del stmt
    yield from ()


def verify_program(program: Program, check: CheckInstr = no_rows, *, planned: bool = False) -> None:
    """Raise `InternalError` unless `program` keeps every rule of the thread stage.

    `check` says what is wrong with an instruction. With `planned`, every shared array must have its
    place.
    """
    found = violations(program, check, planned=planned)
    if found:
        raise InternalError(
            f"{program.name} breaks {len(found)} rule(s) of the thread stage\n" + "\n".join(found)
        )


def violations(
    program: Program, check: CheckInstr = no_rows, *, planned: bool = False
) -> list[str]:
    """What is wrong with `program`, one text per violation: the rule, the fault, the statement."""
    subject = Subject(program, check, planned)
    found: list[str] = []
    for rule in RULES:
        name = rule.__name__.strip("_").replace("_", " ")
        for stmt, message in rule(subject):
            found.append(f"{name}: {message}{'' if stmt is None else shown(stmt)}")
    return found


@dataclass(frozen=True)
class Subject:
    """What is verified, and against what."""

    program: Program
    check: CheckInstr
    planned: bool

    def statements(self) -> Iterator[tuple[Stmt, tuple[Stmt, ...]]]:
        """Every statement with those around it, outermost first."""
        return statements(self.program.body)


# Names -------------------------------------------------------------------------------------------


def names(s: Subject) -> Iterator[Finding]:
    """A name is defined once in a program, before its uses; a kernel sees its parameters only."""
    scope = Scope(_alone)
    program = s.program
    yield from scope.define(None, *program.dynamic)
    yield from scope.define(None, *(p.var for p in program.params if p.var is not None))
    for p in program.params:
        yield from scope.uses(None, _facts(p))
        if p.array is not None:
            yield from scope.define(None, p.array)
    if not is_name(program.name):
        yield None, f"the program name {program.name!r} is not a name"
    yield from scope.block(program.body)


def _facts(p: Argument) -> Iterator[Node]:
    yield from (*p.shape, *(p.strides or ()))
    if p.array is not None:
        yield from p.array.children()


def _alone(stmt: Stmt) -> Iterable[Named] | None:
    return stmt.params if isinstance(stmt, Kernel) else None


# Structure ---------------------------------------------------------------------------------------


def parameters(s: Subject) -> Iterator[Finding]:
    """A parameter is a tensor or a scalar; tensors are global; outputs are positions of tensors."""
    params = s.program.params
    for p in params:
        if p.array is not None and p.var is not None:
            yield None, f"parameter {p.name} is both a tensor and a scalar"
        if p.array is not None and p.array.space is not Space.GLOBAL:
            yield None, f"parameter {p.name} is in {p.array.space.value} memory"
        if p.strides is not None and len(p.strides) != len(p.shape):
            yield None, f"parameter {p.name} has {len(p.strides)} strides for {len(p.shape)} axes"
    if len({p.name for p in params}) != len(params):
        yield None, "two parameters have one name"
    for position in s.program.outputs:
        if not 0 <= position < len(params) or params[position].array is None:
            yield None, f"output {position} is not the position of a tensor parameter"


_CONTROL = (Let, For, While, If, Break, Continue, Assert, Assume, Print)
_HOST = (*_CONTROL, Declare, At, MakeTensorMap, Kernel)
_DEVICE = (
    *_CONTROL,
    ThreadReturn,
    ExternCall,
    Declare,
    At,
    Write,
    Instr,
    CoreRegion,
    VectorFunction,
)
_LOCKSTEP = (Let, For, If, Declare, Assert, Assume, Write)


def places(s: Subject) -> Iterator[Finding]:
    """Host level and kernels have their own statements; a loop in lockstep has no other control."""
    for stmt, around in s.statements():
        inside = any(isinstance(a, Kernel) for a in around)
        if not isinstance(stmt, _DEVICE if inside else _HOST):
            yield stmt, f"{type(stmt).__name__} {'inside a kernel' if inside else 'at host level'}"
        if isinstance(stmt, Kernel):
            yield from _kernel_axes(stmt)
        if not inside and any(isinstance(n, Elem) for n in _nodes(stmt)):
            yield stmt, "memory is touched at host level"
        lockstep = any(isinstance(a, For) and a.kind is LoopKind.VECTORIZED for a in around)
        if lockstep and not isinstance(stmt, _LOCKSTEP):
            yield stmt, f"{type(stmt).__name__} in a vectorized loop"


def _kernel_axes(k: Kernel) -> Iterator[Finding]:
    if not 1 <= len(k.grid) <= 3 or len(k.vars) != len(k.grid):
        yield k, f"{len(k.grid)} grid extents and {len(k.vars)} block indices"
    if not 1 <= len(k.block) <= 3 or min(k.block, default=0) < 1:
        yield k, f"a block of {k.block} threads"
    if len(k.thread_vars) > len(k.block):
        yield k, f"{len(k.thread_vars)} thread indices for {len(k.block)} axes"
    if k.cluster and (len(k.cluster) > 3 or min(k.cluster) < 1):
        yield k, f"a cluster of {k.cluster} blocks"
    for e in k.grid:
        if not e.dtype.is_integer:
            yield k, f"a grid extent is {e.dtype}, expected an integer"
    for v in (*k.vars, *k.thread_vars):
        if not v.type.is_integer:
            yield k, f"the index {v.name} is {v.type}, expected an integer"


def jumps(s: Subject) -> Iterator[Finding]:
    """Break and continue belong to a loop."""
    for stmt, around in s.statements():
        if isinstance(stmt, (Break, Continue)):
            inner = next((a for a in reversed(around) if isinstance(a, (For, While, Kernel))), None)
            if inner is None or isinstance(inner, Kernel):
                yield stmt, f"{type(stmt).__name__} outside a loop"


# Storage -----------------------------------------------------------------------------------------


def declarations(s: Subject) -> Iterator[Finding]:
    """Storage on chip has a constant size and lies in its pool; host level has workspaces only."""
    for stmt, around in s.statements():
        array = stmt.array if isinstance(stmt, (Declare, At)) else None
        if array is None:
            continue
        if array.type.lanes != 1:
            yield stmt, f"an array of the vector type {array.type}"
        if array.align & (array.align - 1):
            yield stmt, f"an alignment of {array.align} bytes"
        if isinstance(stmt, Declare):
            yield from _declaration(s, stmt, around)
        elif array.space is Space.REGISTER:
            yield stmt, "registers have no address"


def _declaration(s: Subject, stmt: Declare, around: tuple[Stmt, ...]) -> Iterator[Finding]:
    array = stmt.array
    kernel = next((a for a in around if isinstance(a, Kernel)), None)
    size = None if array.size is None else int_value(array.size)
    if (array.space is Space.GLOBAL) != (kernel is None):
        where = "at host level" if kernel is None else "in a kernel"
        yield stmt, f"{array.space.value} memory declared {where}"
    if array.size is None or (kernel is not None and (size is None or size < 0)):
        yield stmt, "the size is not a constant"
    if stmt.init is not None and (size != 1 or stmt.init.dtype != array.type):
        yield stmt, "a first value for what is no variable of its dtype"
    pooled = array.space in (Space.SHARED, Space.TENSOR, *ON_CORE)
    if stmt.offset is None:
        if (s.planned and array.space is Space.SHARED) or array.space in ON_CORE:
            yield stmt, f"a {array.space.value} array without a place"
    elif not pooled:
        yield stmt, f"{array.space.value} memory has no pool to be placed in"
    elif array.space is Space.SHARED and kernel is not None and size is not None:
        end = stmt.offset + (size * array.type.bits + 7) // 8
        if stmt.offset < 0 or end > kernel.shared:
            yield stmt, f"bytes {stmt.offset} to {end} of a shared pool of {kernel.shared}"
        if stmt.offset % (array.align or array.type.bytes):
            yield stmt, f"the offset {stmt.offset} is not aligned"


def register_indices(s: Subject) -> Iterator[Finding]:
    """Registers are indexed by what is known after unrolling."""
    yield from _register_indices(s.program.body, frozenset())


def _register_indices(body: Block, known: frozenset[Var]) -> Iterator[Finding]:
    for stmt in body:
        accesses = [n for n in _nodes(stmt) if isinstance(n, (Elem, Slot, Addr))]
        for a in (*accesses, *([stmt] if isinstance(stmt, Write) else [])):
            if a.array.space is Space.REGISTER:
                if isinstance(a, Addr):
                    yield stmt, f"the address of the register {a.array.name}"
                for v in a.index.walk():
                    if not _is_static(v, known):
                        yield stmt, f"{a.array.name} is indexed by {v!r}"
        inside = known
        if isinstance(stmt, Let) and all(_is_static(v, known) for v in stmt.value.walk()):
            known |= {stmt.var}
        if isinstance(stmt, For) and stmt.kind is not LoopKind.SERIAL:
            inside = known | {stmt.var}
        for block in bodies(stmt):
            yield from _register_indices(block, inside)


def _is_static(node: Node, known: frozenset[Var]) -> bool:
    return node in known if isinstance(node, Var) else not isinstance(node, (Elem, Addr))


# Values ------------------------------------------------------------------------------------------


def _nodes(stmt: Stmt) -> Iterator[Node]:
    """The nodes of a statement's own operands."""
    for node in operands(stmt):
        yield from node.walk()
    for thing in bound(stmt):
        yield from thing.walk()


_GONE = (Buffer, Load, LoadVector, AddressOf, Region)


def expressions(s: Subject) -> Iterator[Finding]:
    """Operands of one operator agree; nothing of the tile stage's memory is left."""
    for stmt, _ in s.statements():
        for node in dict.fromkeys(_nodes(stmt)):
            if isinstance(node, _GONE):
                yield stmt, f"{type(node).__name__} belongs to the tile stage"
            yield from ((stmt, fault) for fault in broken_exprs(node))


def fields(s: Subject) -> Iterator[Finding]:
    """Conditions are bool, a written value has the dtype of its place, loop variables are
    integers.
    """
    for stmt, _ in s.statements():
        yield from ((stmt, fault) for fault in broken_fields(stmt))


def accesses(s: Subject) -> Iterator[Finding]:
    """An access has the array's dtype, an integer index, and an alignment that may hold."""
    yield from _accesses(s.program.body, {})


def _accesses(body: Block, ranges: Mapping[Var, Interval]) -> Iterator[Finding]:
    for stmt in body:
        for node in _nodes(stmt):
            if isinstance(node, Elem):
                yield from ((stmt, f) for f in _access(node, node.type, ranges))
            elif isinstance(node, (Slot, Addr)) and not _is_index(node.index):
                yield stmt, f"an index of {node.array.name} is {node.index.dtype}"
            if isinstance(node, Slot) and node.count < 0:
                yield stmt, f"{node.count} elements of {node.array.name}"
        if isinstance(stmt, Write):
            yield from ((stmt, f) for f in _access(stmt, stmt.value.dtype, ranges))
        inside = dict(ranges)
        if isinstance(stmt, Let) and stmt.var.type.is_integer:
            ranges = {**ranges, stmt.var: bounds(stmt.value, ranges)}
        if isinstance(stmt, For):
            start, step = bounds(stmt.start, ranges), stmt.step
            by = 1 if step is None else int_value(step) or 1
            modulus = math.gcd(start.modulus, by)
            residue = start.residue % modulus if modulus else start.residue
            inside[stmt.var] = Interval(None, None, modulus, residue)
        for block in bodies(stmt):
            yield from _accesses(block, inside)


def _is_index(e: Expr) -> bool:
    return e.dtype.is_integer and e.dtype.lanes == 1


def _access(a: Elem | Write, dtype: object, ranges: Mapping[Var, Interval]) -> Iterator[str]:
    array, value = a.array, a.type if isinstance(a, Elem) else a.value.dtype
    if value.base != array.type:
        yield f"{array.name} holds {array.type}, the access is of {dtype}"
    if not _is_index(a.index):
        yield f"an index of {array.name} is {a.index.dtype}"
        return
    if value.lanes > 1 and array.space is not Space.REGISTER:
        align = a.align or value.bytes
        if not may_be_aligned(array, a.index, align, ranges):
            yield f"the access to {array.name} is not aligned to {align} bytes"


def may_be_aligned(array: Array, index: Expr, align: int, ranges: Mapping[Var, Interval]) -> bool:
    """False where the alignment of the array, or the form of the index, rules out that the element
    is aligned to `align` bytes.
    """
    if (array.align or array.type.bytes) % align:
        return False
    known, bits = bounds(index, ranges, wraps=False), array.type.bits
    return known.residue * bits % math.gcd(known.modulus * bits, 8 * align) == 0


def instructions(s: Subject) -> Iterator[Finding]:
    """An instruction has the operands and immediates that its row lists."""
    for stmt, _ in s.statements():
        if isinstance(stmt, Instr):
            yield from ((stmt, fault) for fault in s.check(stmt))


def tensor_maps(s: Subject) -> Iterator[Finding]:
    """A tensor map keeps the limits of cuTensorMapEncodeTiled that do not depend on addresses."""
    for stmt, _ in s.statements():
        if isinstance(stmt, MakeTensorMap):
            yield from ((stmt, fault) for fault in _tensor_map(stmt.map))


def _tensor_map(m: TensorMap) -> Iterator[str]:
    if not 1 <= len(m.dims) <= 5 or len(m.box) != len(m.dims) or len(m.strides) != len(m.dims) - 1:
        yield f"{len(m.dims)} dims, {len(m.box)} box extents, {len(m.strides)} strides"
        return
    inner = m.box[0] * m.array.type.numpy.itemsize
    if any(not 1 <= n <= 256 for n in m.box):
        yield f"a box of {m.box}: extents are 1 to 256"
    if m.swizzle not in (0, 32, 64, 128):
        yield f"a swizzle of {m.swizzle} bytes"
    elif m.swizzle and inner > m.swizzle:
        yield f"a box of {inner} bytes is wider than the swizzle of {m.swizzle}"
    if inner % 16:
        yield f"a box of {inner} bytes is not a multiple of 16"
    for stride in m.strides:
        value = int_value(stride)
        if value is not None and (value % 16 or value >= 1 << 40):
            yield f"a stride of {value} bytes"


RULES: tuple[Callable[[Subject], Iterator[Finding]], ...] = (
    names,
    parameters,
    places,
    jumps,
    declarations,
    register_indices,
    expressions,
    fields,
    accesses,
    instructions,
    tensor_maps,
)
"""The thread stage's rules, in the order in which they are checked."""
