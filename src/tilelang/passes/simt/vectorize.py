"""Loops in lockstep over neighbouring elements as accesses to vectors.

What enters: a program of the thread stage. What leaves: one without loops in lockstep. Where the
elements of all rounds are neighbours, aligned, and inside or outside together, they are read and
written as vectors of up to 16 bytes; what is not proved stays one access for each round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from tilelang.ir.affine import Form
from tilelang.ir.bounds import Env
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Const,
    Expr,
    Lane,
    Pack,
    Select,
    Var,
    int_value,
)
from tilelang.ir.interval import interval
from tilelang.ir.node import Node
from tilelang.ir.simplify import simplify
from tilelang.ir.thread import Array, Elem, Instr, Kernel, Program, Slot, Space, Write
from tilelang.ir.tile import Block, For, If, Let, LoopKind, Stmt, While
from tilelang.isa.target import Target
from tilelang.passes.build import Names, Renamer, map_kernels, map_statements
from tilelang.passes.issue import ASYNC
from tilelang.passes.lower_parallel import own_nodes, statements

WIDEST = 16
"""Bytes that one thread reads or writes at once."""

_WIDE = (Space.GLOBAL, Space.SHARED)


def vectorize(program: Program, target: Target) -> Program:
    """No loops in lockstep: vectors where they are proved, else one round after the other."""
    del target
    names = Names(program)
    return map_kernels(program, lambda kernel: _kernel(kernel, names))


def _kernel(kernel: Kernel, names: Names) -> Kernel:
    env = Env(wraps=False)
    for v, n in zip(kernel.thread_vars, kernel.block, strict=False):
        env = env.with_range(v, interval(0, n - 1))
    for v in kernel.vars:
        env = env.with_range(v, interval(0, None))
    return kernel.with_(body=_Vectors(names).block(kernel.body, env))


class _Vectors:
    """One kernel."""

    def __init__(self, names: Names) -> None:
        self.names = names

    def block(self, body: Block, env: Env) -> Block:
        """Statements in order."""
        out: list[Stmt] = []
        for stmt in body:
            out += self.statement(stmt, env)
            env = env.after(stmt)
        return tuple(out)

    def statement(self, stmt: Stmt, env: Env) -> Block:
        """One statement."""
        match stmt:
            case For(kind=LoopKind.VECTORIZED):
                return self.lockstep(stmt, env)
            case For():
                return (stmt.with_(body=self.block(stmt.body, env.enter_for(stmt))),)
            case If():
                then = self.block(stmt.then, env.assume(stmt.cond))
                orelse = self.block(stmt.orelse, env.assume(stmt.cond, holds=False))
                return (stmt.with_(then=then, orelse=orelse),)
            case While():
                return (stmt.with_(body=self.block(stmt.body, env.assume(stmt.cond))),)
            case Write() if stmt.hints == ASYNC:
                return ahead(stmt)
            case _:
                return (stmt,)

    def lockstep(self, loop: For, env: Env) -> Block:
        """One loop, all rounds side by side."""
        start, stop = int_value(loop.start), int_value(loop.stop)
        if start != 0 or stop is None or stop > 64:
            return (loop.with_(kind=LoopKind.UNROLL),)
        inside = env.enter_for(loop)
        rounds = _Rounds(loop.var, stop, self.names)
        width = rounds.width(loop.body, inside)
        if width < stop:
            return self.in_parts(loop, stop, width, env)
        made = rounds.block(loop.body, inside)
        values = {s.var.name: s.value for s in statements(made) if isinstance(s, Let)}
        out = map_statements(
            made, lambda s: ahead(s, values) if isinstance(s, Write) and s.hints == ASYNC else None
        )
        return _used(out)

    def in_parts(self, loop: For, stop: int, width: int, env: Env) -> Block:
        """One loop, `width` rounds side by side."""
        out: list[Stmt] = []
        for first in range(0, stop, width):
            copy = Renamer(self.names)
            lane = copy.bind(loop.var)
            copy.map[loop.var.name] = Binary(BinaryOp.ADD, lane, Const(first, lane.type))
            body = cast("Block", tuple(copy.of(s) for s in loop.body))
            part = loop.with_(var=lane, stop=Const(width, lane.type), body=body)
            out += self.lockstep(part, env)
        return tuple(out)


def ahead(write: Write, values: Mapping[str, Expr] | None = None) -> Block:
    """A store that may be under way: `cp.async` where what is stored is read from global memory in
    one piece of 4, 8 or 16 bytes, else a plain store.
    """
    value, plain = write.value, write.with_(hints=())
    if isinstance(value, Var) and values:
        value = values.get(value.name, value)
    cond: Expr | None = None
    if isinstance(value, Select) and value.lazy and _is_zero(value.f):
        cond, value = value.cond, value.t
    if not isinstance(value, Elem) or value.array.space is not Space.GLOBAL or value.hints:
        return (plain,)
    size, dtype = value.type.bytes, value.type
    kind = {16: "cg.16", 8: "ca.8", 4: "ca.4"}.get(size)
    if (
        kind is None
        or write.array.space is not Space.SHARED
        or (value.align and value.align < size)
    ):
        return (plain,)
    if dtype.is_scalar and max(value.array.align, dtype.bytes) < size:
        return (plain,)
    lanes = dtype.lanes
    copy = Instr(
        f"cp.async.{kind}",
        (Slot(write.array, write.index, lanes),),
        (Slot(value.array, value.index, lanes),),
        loc=write.loc,
    )
    if cond is None:
        return (copy,)
    zero = Const(0.0 if dtype.is_float else 0, dtype.base)
    clear = plain.with_(value=zero if dtype.is_scalar else Pack((zero,), dtype))
    return (If(cond, (copy,), orelse=(clear,), loc=write.loc),)


def _is_zero(e: Expr) -> bool:
    if isinstance(e, Pack):
        return all(_is_zero(x) for x in e.lanes)
    return isinstance(e, Const) and e.value == 0 and math.copysign(1, e.value) > 0


@dataclass
class _Lanes:
    """What stands for an expression in each round."""

    of: dict[Expr, list[Expr]] = field(default_factory=dict[Expr, "list[Expr]"])


class _Rounds:
    """The rounds of a loop over `var` from 0 below `count`."""

    def __init__(self, var: Var, count: int, names: Names) -> None:
        self.var, self.count, self.names = var, count, names
        self.bound: set[str] = set()

    def block(self, body: Block, env: Env) -> Block:
        """Statements for all rounds: what is the same for all of them, loads, then what is
        computed, then stores.
        """
        if len(body) == 1 and isinstance(body[0], If):
            made = self.condition(body[0], env)
            if made is not None:
                return made
        common, body = self.common(body)
        out: list[Stmt] = [*common]
        lanes = _Lanes()
        for load in self.loads(body):
            out += self.read(load, lanes, env)
        writes = self.writes(body, env)
        kept: list[tuple[Write, list[Expr]]] = [(w, []) for w in writes]
        for k in range(self.count):
            out += self.round(body, k, lanes, kept)
        for write, values in kept:
            out += self.written(write, values, env, lanes.of.get(write.value))
        return _used(out)

    def common(self, body: Block) -> tuple[list[Stmt], Block]:
        """The values that the body begins with and that all rounds share, and the rest of it; the
        names of the rest count as differing between rounds.
        """
        shared: list[Stmt] = []
        rest = list(body)
        while rest and isinstance(rest[0], Let) and not self.uses(rest[0].value):
            shared.append(rest.pop(0))
        self.bound |= {s.var.name for s in statements(tuple(rest)) if isinstance(s, Let)}
        return shared, tuple(rest)

    def condition(self, stmt: If, env: Env) -> Block | None:
        """A condition that holds in all rounds or in none, around the rounds."""
        cond = self.same_for_all(stmt.cond, env)
        if cond is None or stmt.orelse:
            return None
        return (stmt.with_(cond=cond, then=self.block(stmt.then, env.assume(stmt.cond))),)

    # Conditions and indices ----------------------------------------------------------------------

    def uses(self, node: Node) -> bool:
        """Whether a value differs between rounds."""
        return any(
            n is self.var or (isinstance(n, Var) and n.name in self.bound) for n in node.walk()
        )

    def at(self, k: int) -> dict[str, Expr]:
        """The loop variable of a round."""
        return {self.var.name: Const(k, self.var.type)}

    def same_for_all(self, cond: Expr, env: Env) -> Expr | None:
        """A condition that says for all rounds what `cond` says for each of them."""
        if not self.uses(cond):
            return cond
        if not isinstance(cond, Binary):
            return None
        if cond.op is BinaryOp.AND:
            a, b = self.same_for_all(cond.a, env), self.same_for_all(cond.b, env)
            return None if a is None or b is None else Binary(BinaryOp.AND, a, b)
        return cast("Expr", _put(cond, self.at(0))) if self.in_step(cond, env) else None

    def width(self, body: Block, env: Env) -> int:
        """How many rounds after each other have every guard in common; all rounds where no two
        have.
        """
        found = [self.common_to(g, env) for g in _guards(body)]
        return min((n for n in found if n > 1), default=self.count)

    def common_to(self, cond: Expr, env: Env) -> int:
        """How many rounds after each other a guard says the same for."""
        if isinstance(cond, Binary) and cond.op is BinaryOp.AND:
            return min(self.common_to(cond.a, env), self.common_to(cond.b, env))
        if not self.uses(cond):
            return self.count
        width = self.count
        while width > 1 and not (isinstance(cond, Binary) and self.in_step(cond, env, width)):
            width = width // 2 if width % 2 == 0 else 1
        return width

    def in_step(self, cond: Binary, env: Env, count: int = 0) -> bool:
        """Whether a comparison holds in all of `count` rounds from a multiple of it on, or in none
        of them; of all rounds if it is 0.

        `a + v < b` for v below n, where b - a is a multiple of n, holds for v = 0 or for none.
        """
        if cond.op not in (BinaryOp.LT, BinaryOp.GE):
            return False
        d = env.linear(cond.b).plus(env.linear(cond.a), -1)
        if d.terms.get(self.var, 0) != -1 or any(self.uses(t) for t in d.terms if t != self.var):
            return False
        rest = Form({t: f for t, f in d.terms.items() if t != self.var}, d.const)
        return _is_multiple(rest, count or self.count, env)

    def neighbours(self, array: Array, index: Expr, env: Env) -> int:
        """How many elements of neighbouring rounds may be one vector: 1 for none."""
        if array.space not in _WIDE or array.type.is_subbyte:
            return 1
        form = env.linear(index)
        others = [t for t in form.terms if t != self.var]
        if form.terms.get(self.var, 0) != 1 or any(self.uses(t) for t in others):
            return 1
        rest = Form({t: form.terms[t] for t in others}, form.const)
        lanes = math.gcd(self.count, max(1, WIDEST * 8 // array.type.bits))
        size = array.align or array.type.bytes
        while lanes > 1 and (lanes * array.type.bytes > size or not _is_multiple(rest, lanes, env)):
            lanes //= 2
        return lanes

    # Loads ---------------------------------------------------------------------------------------

    def loads(self, body: Block) -> list[Expr]:
        """Reads that happen in every round, before anything is written to their array."""
        found: dict[Expr, None] = {}
        written = _read_after_write(body)
        for stmt in body:
            if isinstance(stmt, (For, While)):
                break
            nodes = own_nodes(stmt) if not isinstance(stmt, If) else stmt.cond.walk()
            hidden: set[int] = set()
            for n in nodes:
                if isinstance(n, Select) and n.lazy:
                    self.choice(n, found, written)
                    hidden |= {id(x) for arm in (n.t, n.f) for x in arm.walk()}
                elif isinstance(n, Elem) and id(n) not in hidden and n.array.name not in written:
                    found[n] = None
            written |= {s.array.name for s in statements((stmt,)) if isinstance(s, Write)}
        return list(found)

    def choice(self, e: Select, found: dict[Expr, None], written: set[str]) -> None:
        """A guarded read, as the guards of global memory are."""
        if isinstance(e.t, Elem) and isinstance(e.f, Const) and e.t.array.name not in written:
            found[e] = None

    def read(self, e: Expr, lanes: _Lanes, env: Env) -> Block:
        """A vector for the elements of several rounds."""
        element = cast("Elem", e.t if isinstance(e, Select) else e)
        cond: Expr | None = None
        if isinstance(e, Select):
            cond = self.same_for_all(e.cond, env)
            if cond is None:
                return ()
        if element.type.lanes > 1:
            return ()
        width = self.neighbours(element.array, element.index, env)
        if width == 1:
            return ()
        out: list[Stmt] = []
        parts: list[Expr] = []
        dtype = element.type.with_lanes(width)
        for first in range(0, self.count, width):
            index = simplify(cast("Expr", _put(element.index, self.at(first))), env)
            value: Expr = Elem(element.array, index, dtype, hints=element.hints, loc=element.loc)
            if cond is not None and isinstance(e, Select):
                value = Select(cond, value, Pack((e.f,), dtype), lazy=True)
            name = self.names.var(f"{element.array.name}_v", dtype)
            out.append(Let(name, value, loc=element.loc))
            parts += [Lane(name, k) for k in range(width)]
        lanes.of[e] = parts
        return tuple(out)

    # Stores --------------------------------------------------------------------------------------

    def writes(self, body: Block, env: Env) -> list[Write]:
        """Stores of every round that may wait until all rounds are computed."""
        out: list[Write] = []
        for k, stmt in enumerate(body):
            if not isinstance(stmt, Write) or stmt.value.dtype.lanes > 1:
                continue
            later = {
                n.array.name
                for s in body[k + 1 :]
                for n in s.walk()
                if isinstance(n, (Elem, Write))
            }
            alone = stmt.array.name not in later
            if alone and self.neighbours(stmt.array, stmt.index, env) > 1:
                out.append(stmt)
        return out

    def written(
        self, write: Write, values: Sequence[Expr], env: Env, parts: Sequence[Expr] | None
    ) -> Block:
        """Vectors of the values of several rounds; `parts` are lanes of what was read as vectors,
        where nothing is computed.
        """
        width = self.neighbours(write.array, write.index, env)
        dtype = write.array.type.with_lanes(width)
        out: list[Stmt] = []
        for first in range(0, self.count, width):
            index = simplify(cast("Expr", _put(write.index, self.at(first))), env)
            lanes = [] if parts is None else [cast("Lane", x) for x in parts[first : first + width]]
            if lanes and lanes[0].lane == 0 and lanes[0].a.dtype == dtype:
                value: Expr = lanes[0].a
            else:
                value = Pack(tuple(values[first : first + width]), dtype)
            out.append(Write(write.array, index, value, hints=write.hints, loc=write.loc))
        return tuple(out)

    # Rounds --------------------------------------------------------------------------------------

    def round(
        self, body: Block, k: int, lanes: _Lanes, kept: list[tuple[Write, list[Expr]]]
    ) -> Block:
        """One round; the stores that wait leave their values."""
        waiting = {id(w): values for w, values in kept}
        copy = Renamer(self.names)
        copy.map[self.var.name] = Const(k, self.var.type)
        out: list[Stmt] = []
        for stmt in body:
            if id(stmt) in waiting:
                value = cast("Write", self.lane_values(stmt, k, lanes)).value
                fresh = self.names.var("x", value.dtype)
                out.append(Let(fresh, cast("Expr", copy.of(value)), loc=stmt.loc))
                waiting[id(stmt)].append(fresh)
            else:
                out.append(cast("Stmt", copy.of(self.lane_values(stmt, k, lanes))))
        return tuple(out)

    def lane_values(self, stmt: Stmt, k: int, lanes: _Lanes) -> Stmt:
        """A statement that takes what was read as a vector."""
        if not lanes.of:
            return stmt

        def one(n: Node) -> Node | None:
            found = lanes.of.get(n) if isinstance(n, (Elem, Select)) else None
            return None if found is None else found[k]

        return cast("Stmt", _outer(stmt, one))


def _guards(body: Block) -> Iterator[Expr]:
    """The conditions of accesses that may be vectors: around all of a body, and of reads."""
    for stmt in body:
        if isinstance(stmt, If) and len(body) == 1 and not stmt.orelse:
            yield stmt.cond
            yield from _guards(stmt.then)
        yield from (n.cond for n in own_nodes(stmt) if isinstance(n, Select) and n.lazy)


def _used(body: Sequence[Stmt]) -> Block:
    """Statements without names of lanes that nothing uses."""
    names = {n.name for s in body for n in own_nodes(s) if isinstance(n, Var)}
    names |= {n.name for s in body if isinstance(s, If) for n in s.walk() if isinstance(n, Var)}
    return tuple(s for s in body if not (isinstance(s, Let) and s.var.name not in names))


def _read_after_write(body: Block) -> set[str]:
    """Arrays that a statement reads after another one has written them."""
    out: set[str] = set()
    written: set[str] = set()
    for stmt in statements(body):
        out |= {n.array.name for n in own_nodes(stmt) if isinstance(n, Elem)} & written
        if isinstance(stmt, Write):
            written.add(stmt.array.name)
    return out


Replace = Callable[[Node], "Node | None"]


def _outer(node: Node, fn: Replace) -> Node:
    """A copy in which `fn` replaced nodes, parents first."""
    found = fn(node)
    if found is not None:
        return found
    changes: dict[str, object] = {}
    for f in node.fields():
        if f.metadata["kind"].value in ("operand", "body"):
            old = getattr(node, f.name)
            new = _outer_value(old, fn)
            if new is not old:
                changes[f.name] = new
    return node.with_(**changes) if changes else node


def _outer_value(value: Any, fn: Replace) -> Any:
    if isinstance(value, Node):
        return _outer(value, fn)
    if isinstance(value, tuple):
        old = cast("tuple[Any, ...]", value)
        items = tuple(_outer_value(x, fn) for x in old)
        return items if any(a is not b for a, b in zip(items, old, strict=True)) else old
    return value


def _put(e: Node, values: Mapping[str, Expr]) -> Node:
    if isinstance(e, Var):
        return values.get(e.name, e)
    return e.rewrite(lambda n: values.get(n.name) if isinstance(n, Var) else None)


def _is_multiple(form: Form, by: int, env: Env) -> bool:
    """Whether a sum is a multiple of a number."""
    modulus, residue = env.analysis.form_congruence(form)
    if modulus == 0:
        return residue % by == 0
    return modulus % by == 0 and residue % by == 0
