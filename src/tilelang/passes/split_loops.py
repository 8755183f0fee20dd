"""Loops split so that guards leave them.

What enters: a sequential loop whose body has accesses that may be outside of global memory. What
leaves: where the conditions depend on the loop variable in a linear way, or not at all, an interior
without guards and edges with them; checks on chip become one assertion before the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tilelang.dtypes import DType
from tilelang.ir.affine import Form, form_span, is_stable
from tilelang.ir.bounds import Env
from tilelang.ir.expr import (
    BOOL,
    Binary,
    BinaryOp,
    Const,
    Expr,
    Load,
    Select,
    Var,
    int_value,
)
from tilelang.ir.interval import limits
from tilelang.ir.node import Kind, flat
from tilelang.ir.simplify import simplify
from tilelang.ir.thread import Declare
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
    Stmt,
    Store,
    ThreadReturn,
    While,
)
from tilelang.passes.accesses import INT64, Accesses, Record, add_up, outside_message
from tilelang.passes.build import (
    Names,
    Renamer,
    as_type,
    both,
    compare,
    plus,
)
from tilelang.passes.lower_parallel import statements

# Loops -------------------------------------------------------------------------------------------


@dataclass
class Split:
    """Where a loop is split: its guards hold from `low` to `high` (None: from its start, to its
    stop) if `always` holds as well. `settled` are the conditions that hold there.
    """

    settled: list[Expr] = field(default_factory=list[Expr])
    low: list[Expr] = field(default_factory=list[Expr])
    high: list[Expr] = field(default_factory=list[Expr])
    always: list[Expr] = field(default_factory=list[Expr])


Lower = Callable[[Block, Env], Block]


class Splitter:
    """Lowers loops."""

    def __init__(self, shared: Accesses, names: Names, lower: Lower) -> None:
        self.shared = shared
        self.names = names
        self.lower = lower

    def loop(self, stmt: For, env: Env) -> Block:
        """A loop, split where that frees its body of guards."""
        x = self.shared.begin(env)
        start, stop = (simplify(x.expr(e), env) for e in (stmt.start, stmt.stop))
        step = None if stmt.step is None else x.expr(stmt.step)
        checks = x.assertions(stmt.loc)
        lets: list[Stmt] = []
        if not is_stable(start) or not is_stable(stop):
            # The body may change what they read, and the pieces of a loop use them again.
            start, stop = (self.kept(e, stmt, lets) for e in (start, stop))
            checks = (*checks, *lets)
            for let in lets:
                env = env.after(let)
        stmt = stmt.with_(start=start, stop=stop, step=step)
        inside = env.enter_for(stmt)
        first, last = int_value(start), int_value(stop)
        if first is not None and last is not None and step is None and first >= last:
            return checks
        with self.shared.recording() as found:
            body = self.lower(stmt.body, inside)
        if not found or step is not None or stmt.kind is LoopKind.UNROLL or not _simple(stmt.body):
            return (*checks, stmt.with_(body=body))
        return (*checks, *self.divided(stmt, body, found, env))

    def kept(self, e: Expr, stmt: For, lets: list[Stmt]) -> Expr:
        """A value under a name, if it reads memory."""
        if is_stable(e):
            return e
        name = self.names.var(f"{stmt.var.name}_end", e.dtype)
        lets.append(Let(name, e, loc=stmt.loc))
        return name

    def divided(self, stmt: For, body: Block, found: list[Record], env: Env) -> Block:
        """A loop with accesses that need conditions, in pieces if they can be solved."""
        inside = env.enter_for(stmt)
        leaves = any(isinstance(s, (Continue, ThreadReturn)) for s in statements(stmt.body))
        solver = _Solver(stmt, body, inside)
        outer, checked = Split(), Split()
        for r in found:
            if r.on_chip and (r.conditional or leaves):
                continue
            for c in r.conditions:
                solver.add(c, checked if r.on_chip else outer)
        before = self.checked(stmt, checked, env)
        if not outer.settled:
            if not checked.settled:
                return (stmt.with_(body=body),)
            with self.shared.settled(checked.settled):
                return (*before, stmt.with_(body=self.lower(stmt.body, inside)))
        return (*before, *self.pieces(stmt, outer, checked, env))

    def checked(self, stmt: For, checked: Split, env: Env) -> Block:
        """One assertion for all rounds."""
        if not checked.settled:
            return ()
        conditions = [
            *checked.always,
            *(compare(BinaryOp.LE, low, stmt.start) for low in checked.low),
            *(compare(BinaryOp.GE, high, stmt.stop) for high in checked.high),
        ]
        empty = compare(BinaryOp.LE, stmt.stop, stmt.start)
        out: list[Stmt] = []
        for c in dict.fromkeys(conditions):
            cond = simplify(Binary(BinaryOp.OR, empty, c), env)
            if cond != Const(True, BOOL):
                out.append(Assert(cond, message=_loop_message(stmt), kind="bounds", loc=stmt.loc))
        return tuple(out)

    def pieces(self, stmt: For, outer: Split, checked: Split, env: Env) -> Block:
        """The edge before, the interior, and the edge behind."""
        low, high, lets = self.bounds(stmt, outer, env)
        for let in lets:
            env = env.after(let)
        inside = env.enter_for(stmt)
        with self.shared.settled([*outer.settled, *checked.settled]):
            inner = stmt.with_(start=low, stop=high, body=self.lower(stmt.body, inside))
        parts: list[Stmt] = list(lets)
        if outer.low:
            parts += self.edge(stmt.with_(stop=low), outer, checked, env)
        parts.append(inner)
        if outer.high or outer.always:
            parts += self.edge(stmt.with_(start=high), outer, checked, env)
        return tuple(parts)

    def bounds(self, stmt: For, outer: Split, env: Env) -> tuple[Expr, Expr, list[Let]]:
        """The first and the last round of the interior, under names."""
        dtype, lets = stmt.var.type, list[Let]()

        def bind(e: Expr, hint: str) -> Expr:
            e = simplify(as_type(e, dtype), env)
            if isinstance(e, (Const, Var)):
                return e
            name = self.names.var(f"{stmt.var.name}_{hint}", dtype)
            lets.append(Let(name, e, loc=stmt.loc))
            return name

        low, high = stmt.start, stmt.stop
        if outer.low:
            for e in outer.low:
                low = compare(BinaryOp.MAX, low, e)
            low = bind(compare(BinaryOp.MIN, low, stmt.stop), "first")
        for e in outer.high:
            high = compare(BinaryOp.MIN, high, e)
        if outer.always:
            high = Select(both(outer.always), high, as_type(low, high.dtype))
        if outer.high or outer.always:
            high = bind(compare(BinaryOp.MAX, high, low), "last")
        return low, high, lets

    def edge(self, stmt: For, outer: Split, checked: Split, env: Env) -> Block:
        """Rounds in which some guard does not hold; nothing where they do nothing then."""
        if stmt.start == stmt.stop:
            return ()
        renamer = Renaming(self.names)
        copy = renamer.loop(stmt)
        inside = env.enter_for(copy)
        conditions = [renamer.expr(c) for c in outer.settled]
        with self.shared.settled([renamer.expr(c) for c in checked.settled], conditions):
            body = useful(self.lower(copy.body, inside))
        return (copy.with_(body=body),) if body else ()


class Renaming:
    """A copy of a loop with names of its own."""

    def __init__(self, names: Names) -> None:
        self.renamer = Renamer(names)

    def loop(self, stmt: For) -> For:
        """The loop, with everything that it defines renamed."""
        found = self.renamer.of(stmt)
        assert isinstance(found, For)
        return found

    def expr(self, e: Expr) -> Expr:
        """An expression of the loop's body, for the copy."""
        found = self.renamer.of(e)
        assert isinstance(found, Expr)
        return found


def _simple(body: Block) -> bool:
    """Whether a loop with this body can be cut in pieces: it has no loop inside, no way out."""
    return not any(isinstance(s, (For, While, Break)) for s in statements(body))


def _loop_message(stmt: For) -> str:
    names = dict.fromkeys(n.buffer.name for s in statements(stmt.body) for n in named_buffers(s))
    return outside_message(" or ".join(names))


def named_buffers(stmt: Stmt) -> Iterator[Load | Store]:
    """The loads and stores of a statement."""
    for n in stmt.walk():
        if isinstance(n, (Load, Store)):
            yield n


def useful(body: Block) -> Block:
    """Statements without those that do nothing: values that nobody uses are no effect."""
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, If):
            then, orelse = useful(s.then), useful(s.orelse)
            if then or orelse:
                out.append(s.with_(then=then, orelse=orelse))
        elif isinstance(s, For):
            inner = useful(s.body)
            if inner:
                out.append(s.with_(body=inner))
        else:
            out.append(s)
    return () if all(isinstance(s, (Let, Declare, Assume)) for s in out) else tuple(out)


class _Solver:
    """Solves the conditions of one loop's body for its variable."""

    def __init__(self, stmt: For, body: Block, inside: Env) -> None:
        self.var = stmt.var
        self.env = inside
        self.lets = {s.var: s.value for s in statements(body) if isinstance(s, Let)}
        defined = {v.name for part in (body, stmt.body) for v in _defined(part)}
        self.inner = defined - {self.var.name}

    def add(self, cond: Expr, split: Split) -> None:
        """Take a condition into the split, if it can be solved."""
        plain = self.plain(cond)
        if plain is None or cond in split.settled:
            return
        if not _mentions(plain, self.var):
            split.always.append(plain)
            split.settled.append(cond)
            return
        form = self.form(plain)
        factor = form.terms.get(self.var, 0)
        rest = Form({a: f for a, f in form.terms.items() if a is not self.var}, form.const)
        if factor == 0 or any(_mentions(a, self.var) for a in rest.terms):
            return
        split.settled.append(cond)
        dtype = self.width(rest)
        if factor > 0:  # the condition says that the sum of factor * var and the rest is at most 0
            most = _divided(add_up(rest.scaled(-1), dtype), factor)
            split.high.append(plus(most, 1))
        else:
            split.low.append(_divided(plus(add_up(rest, dtype), -factor - 1), -factor))

    def width(self, rest: Form) -> DType:
        """The loop variable's type if the sum is known to fit it, with room to spare; else 64
        bits.
        """
        dtype = self.var.type
        low, high = limits(dtype)
        least, most = form_span(rest, self.env.bounds)
        room = max(map(abs, rest.terms.values()), default=0) + 2
        same = all(a.dtype == dtype for a in rest.terms)
        fits = low + room <= min(least, -most) and max(most, -least) <= high - room
        return dtype if same and fits else INT64

    def plain(self, cond: Expr) -> Binary | None:
        """The condition without names that are defined in the body; None if it needs them."""
        found = cond
        for _ in range(len(self.lets) + 1):
            names = {n for n in found.walk() if isinstance(n, Var) and n.name in self.inner}
            if not names:
                break
            if not names <= set(self.lets):
                return None
            found = _replaced(found, {v: self.lets[v] for v in names})
        stable = is_stable(found) and isinstance(found, Binary)
        return found if stable and isinstance(found, Binary) else None

    def form(self, c: Binary) -> Form:
        """A form that is at most 0 where the comparison holds."""
        a, b = self.env.linear(c.a), self.env.linear(c.b)
        match c.op:
            case BinaryOp.LT:
                return a.plus(b, -1).plus(Form({}, 1))
            case BinaryOp.LE:
                return a.plus(b, -1)
            case BinaryOp.GT:
                return b.plus(a, -1).plus(Form({}, 1))
            case _:
                return b.plus(a, -1)


def _divided(e: Expr, by: int) -> Expr:
    return e if by == 1 else Binary(BinaryOp.FLOORDIV, e, Const(by, e.dtype))


def _mentions(e: Expr, var: Var) -> bool:
    return any(n is var for n in e.walk())


def _replaced(e: Expr, values: dict[Var, Expr]) -> Expr:
    if isinstance(e, Var):
        return values.get(e, e)
    return e.rewrite(lambda n: values.get(n) if isinstance(n, Var) else None)


def _defined(body: Block) -> Iterator[Var]:
    for stmt in statements(body):
        for f in stmt.fields():
            if f.metadata["kind"] is Kind.BINDS:
                yield from (v for v in flat(getattr(stmt, f.name)) if isinstance(v, Var))
