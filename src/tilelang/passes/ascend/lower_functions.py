"""Vector functions as statements of the thread stage.

What enters: a `VectorFunction` whose body is what one thread does (SIMT, by `spread_functions`) or
operations on vector registers (SIMD), while a function is lowered. What leaves: the function with a
body of the thread stage: registers are arrays, operations on vector registers are `simd.`
instructions, and the threads of a SIMT function meet before they use what others have written.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tilelang.ir.ascend import VectorFunction, VectorKind
from tilelang.ir.ascend_simd import SIMD_OPS, SimdOp
from tilelang.ir.bounds import Env
from tilelang.ir.expr import AddressOf, Expr, Var, const
from tilelang.ir.interval import interval
from tilelang.ir.node import Kind, Node, flat
from tilelang.ir.simplify import simplify
from tilelang.ir.thread import Array, Instr, Kernel, Program, Slot, Space
from tilelang.ir.tile import Block, Stmt
from tilelang.isa.target import Target
from tilelang.passes.accesses import Access
from tilelang.passes.buffers import statically_indexed
from tilelang.passes.build import unsupported
from tilelang.passes.lower_memory import Lowering
from tilelang.passes.simt.synchronize import synchronize


def lower_function(low: Lowering, stmt: VectorFunction, env: Env, target: Target) -> Block:
    """One function, with its body lowered by `low`."""
    for var, count in zip(stmt.thread_vars, stmt.threads, strict=False):
        env = env.with_range(var, interval(0, count - 1))
    with _of_threads(low):
        body = low.block(stmt.body, env)
    if stmt.kind is VectorKind.SIMT:
        body = _synchronized(stmt, body, target)
    return (stmt.with_(body=body),)


@contextmanager
def _of_threads(low: Lowering) -> Generator[None]:
    """What follows is done by many threads: fragments are registers, accesses to UB unchecked."""
    before = (low.many, low.static, low.acc.checked)
    low.many, low.static, low.acc.checked = True, statically_indexed(low.fn), False
    yield
    low.many, low.static, low.acc.checked = before


def _synchronized(stmt: VectorFunction, body: Block, target: Target) -> Block:
    """The body with barriers: UB is to its threads what shared memory is to those of a block."""
    kernel = Kernel(
        "function",
        (),
        (const(1),),
        stmt.threads,
        (),
        stmt.thread_vars,
        _moved(body, Space.UB, Space.SHARED),
        loc=stmt.loc,
    )
    made = synchronize(Program("function", (), (), (kernel,)), target)
    (done,) = (s for s in made.body if isinstance(s, Kernel))
    return _moved(done.body, Space.SHARED, Space.UB)


def _moved(body: Block, source: Space, target: Space) -> Block:
    """Statements with the arrays of one space in another."""

    def one(n: Node) -> Node | None:
        return n.with_(space=target) if isinstance(n, Array) and n.space is source else None

    return tuple(s.rewrite(one) for s in body)


def lower_simd(low: Lowering, stmt: SimdOp, env: Env) -> tuple[Stmt, ...]:
    """One operation on vector registers."""
    x = low.acc.begin(env)
    row = SIMD_OPS[stmt.op]
    outs: list[Slot] = []
    ins: list[Slot | Expr] = []
    for letter, arg in zip(row.args, stmt.args, strict=True):
        if not isinstance(arg, AddressOf):
            ins.append(simplify(x.expr(arg), env))
        elif letter == "w":
            outs.append(_slot(low, x, arg, stmt, env))
        else:
            ins.append(_slot(low, x, arg, stmt, env))
    suffix = ""
    if stmt.old is not None:
        ins.append(simplify(x.expr(stmt.old), env))
        suffix = ".merge"
    made = Instr(
        f"simd.{stmt.op}{suffix}",
        tuple(outs),
        tuple(ins),
        results=stmt.results,
        imm=stmt.imm,
        loc=stmt.loc,
    )
    return (*x.assertions(stmt.loc), made)


def _slot(low: Lowering, x: Access, at: AddressOf, stmt: SimdOp, env: Env) -> Slot:
    """The elements from an address on that an operation may touch."""
    place = low.places.get(at.buffer.name)
    if place is None:
        raise unsupported(stmt, f"T.simd.{stmt.op} of {at.buffer.name}")
    indices = tuple(x.expr(e) for e in at.indices)
    count = stmt.footprint or int(getattr(place.array.size, "value", 1))
    return Slot(place.array, simplify(x.index(place, indices, env), env), count)


def used_from_outside(stmt: VectorFunction) -> list[Array | Var]:
    """What a function uses and does not define: arrays first, each in order of first use."""
    inside = {v.name for v in stmt.thread_vars}
    found: dict[str, Array | Var] = {}
    for node in stmt.walk():
        for f in node.fields():
            if f.metadata["kind"] is Kind.BINDS:
                inside |= {
                    n.name for n in flat(getattr(node, f.name)) if isinstance(n, (Array, Var))
                }
        if isinstance(node, (Array, Var)):
            found.setdefault(node.name, node)
    outside = [n for name, n in found.items() if name not in inside]
    return sorted(outside, key=lambda n: not isinstance(n, Array))
