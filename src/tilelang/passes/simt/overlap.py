"""Products of warpgroups that run under what follows them.

What enters: the statements of a part of a launch, and the products that wgmma does. What leaves:
the same statements, in which each of these products is `Started` where it stood and `Completed`
before the first statement that touches what it reads or writes. Where the last product of a loop
uses what the round has computed from the first one, as in attention, it is moved into the next
round, behind the first product there: the tensor cores then work while the round computes. Results
do not change. The order of groups is that in which they are committed (PTX ISA, section 9.7.15.7),
so a wait names how many of the youngest may go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

from tilelang.errors import Loc
from tilelang.ir.affine import is_stable
from tilelang.ir.expr import Binary, BinaryOp, Buffer, Expr, Region, Var, const, int_value
from tilelang.ir.node import Node
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    Block,
    For,
    Gemm,
    If,
    Let,
    LoopKind,
    Parallel,
    Reduce,
    Stmt,
    Store,
)
from tilelang.passes.build import Renamer, as_type, compare, map_bodies, map_statements, minus, plus
from tilelang.passes.issue import Completed, Handover, Issue, IssuedGemm, Started
from tilelang.passes.lower_parallel import statements
from tilelang.passes.simt.launch import Threads
from tilelang.passes.simt.matrix import Tensor
from tilelang.passes.simt.switches import is_off
from tilelang.passes.simt.warpgroup import GROUP_THREADS, Group

WAIT, MEET, PASS = "mbarrier.try_wait.parity", "barrier.sync.value", "barrier.arrive.value"
"""The rows of a wait for what others bring, and of the turns of two warpgroups. They touch nothing
of a product.
"""

TURNS = (2, 3)
"""Named barriers at which each of two warpgroups waits for its turn. Consumers meet at barrier 1,
and arms count from 15 downwards.
"""

SPARE = 32
"""Registers of a thread that a round needs beside the operands of two products."""

Products = dict[Gemm, Tensor | Group]


def overlapped(body: Block, products: Products, threads: Threads, most: int) -> Block:
    """The statements of a part; `most` is how many registers each of its threads has. Products that
    are copied are added to `products`.
    """
    if not any(isinstance(job, Group) for job in products.values()):
        return map_statements(body, lambda s: s.body if isinstance(s, Handover) else None)
    return _Overlap(products, threads, most).block(body)


@dataclass(frozen=True)
class _Flight:
    """A product under way: the names of what it uses, in registers and in shared memory."""

    job: Group
    fragments: tuple[Buffer, ...]
    tiles: tuple[Region, ...]

    @property
    def names(self) -> set[str]:
        """The names of all of it."""
        return {b.name for b in self.fragments} | {r.buffer.name for r in self.tiles}


class _Overlap:
    """One part."""

    def __init__(self, products: Products, threads: Threads, most: int) -> None:
        self.products, self.t, self.most = products, threads, most
        self.made: list[For] = []

    def block(self, body: Block) -> Block:
        """Statements, with loops turned where that helps, and waits where they are needed."""
        turned: list[Stmt] = []
        for stmt in body:
            turned += self.turned(stmt) if isinstance(stmt, For) else (stmt,)
        return self.waiting(tuple(turned))

    def group(self, stmt: Stmt) -> Group | None:
        """How wgmma does a statement that we wait for, if it does."""
        if not isinstance(stmt, Gemm) or isinstance(stmt, IssuedGemm):
            return None
        job = self.products.get(stmt)
        return job if isinstance(job, Group) else None

    # Waits ---------------------------------------------------------------------------------------

    def waiting(self, body: Block) -> Block:
        """Statements after each other, all products complete at the end."""
        out: list[Stmt] = []
        flying: list[_Flight] = []
        for stmt in body:
            done = self.needed(stmt, flying)
            if done:
                out.append(_completed(flying, done, stmt.loc))
                flying = flying[done:]
            job = self.group(stmt)
            if job is not None:
                flying.append(self.flight(job))
                out.append(Started((stmt,), loc=stmt.loc))
            elif isinstance(stmt, Handover):
                out += stmt.body
            else:
                out.append(map_bodies(stmt, self.block))
        if flying:
            out.append(_completed(flying, len(flying), flying[-1].job.stmt.loc))
        return tuple(out)

    def flight(self, job: Group) -> _Flight:
        """A product that begins."""
        stmt = job.stmt
        own = self.t.is_fragment(stmt.a.buffer)
        fragments = (stmt.c.buffer, stmt.a.buffer) if own else (stmt.c.buffer,)
        return _Flight(job, fragments, (stmt.b,) if own else (stmt.a, stmt.b))

    def needed(self, stmt: Stmt, flying: Sequence[_Flight]) -> int:
        """How many of the oldest products must be complete before a statement."""
        for k in range(len(flying), 0, -1):
            if self.meets(stmt, flying[k - 1]):
                return k
        return 0

    def meets(self, stmt: Stmt, flight: _Flight) -> bool:
        """Whether a statement touches what a product uses."""
        job = self.group(stmt)
        if job is not None:
            return self.chained(job, flight)
        if isinstance(stmt, Handover):
            mine = {r.buffer.name for r in flight.tiles}
            return any(r.buffer.name in mine for r in stmt.tiles)
        if not all(_is_plain(s) for s in (stmt, *statements_in(stmt))):
            return True
        roots = self.t.roots
        return not {roots.get(n, n) for n in flight.names}.isdisjoint(self.names(stmt))

    def chained(self, job: Group, flight: _Flight) -> bool:
        """Whether a product must wait for one before it. Those that add to the same registers with
        instructions of one shape are kept in order by the hardware.
        """
        before, now = flight.job.stmt, job.stmt
        used = {b.name for b in flight.fragments}
        if now.c.buffer.name == before.c.buffer.name:
            return job.row != flight.job.row or now.a.buffer.name in used
        return now.c.buffer.name in used or now.a.buffer.name == before.c.buffer.name

    def names(self, stmt: Stmt) -> set[str]:
        """The buffers that a statement names, by what they are views of."""
        roots = self.t.roots
        return {roots.get(n.name, n.name) for n in stmt.walk() if isinstance(n, Buffer)}

    # Loops whose last product goes into the next round -------------------------------------------

    def turned(self, loop: For) -> Block:
        """A loop whose last product is done in the next round; the loop as it is where that does
        not help, or cannot be.
        """
        at = [k for k, s in enumerate(loop.body) if self.group(s) is not None]
        again = any(loop is x for x in self.made) or is_off(self.t.fn, "overlap")
        if again or len(at) < 2 or loop.kind is not LoopKind.SERIAL or loop.step is not None:
            return (loop,)
        found = self.split(loop, at[0], at[-1])
        if isinstance(found, str):
            self.t.note("declined", f"products do not overlap: {found}", loop.loc)
            return (loop,)
        self.t.note("overlapped", "the last product of a round runs under the next one", loop.loc)
        return self.skewed(loop, found)

    def split(self, loop: For, first: int, last: int) -> _Split | str:
        """The parts of a round, or why the last product must stay in it."""
        body = loop.body
        begin = last
        while begin > first + 1 and _is_wait(body[begin - 1]):
            begin -= 1
        head, rest = body[: first + 1], body[first + 1 : begin]
        issue, release = body[begin : last + 1], body[last + 1 :]
        flight = self.flight(cast("Group", self.group(body[last])))
        until = next((k for k, s in enumerate(rest) if self.meets(s, flight)), len(rest))
        lets = _needed(body, (*issue, *release))
        found = _Split(head, rest[:until], rest[until:], issue, release, lets or ())
        if lets is None:
            return "the tiles of the last one depend on what the round has read"
        return next(self.faults(found, flight), found)

    def faults(self, s: _Split, flight: _Flight) -> Iterator[str]:
        """Why a round must stay as it is."""
        body = (*s.head, *s.free, *s.bound, *s.issue)
        if not all(isinstance(x, Handover) for x in s.release):
            yield "the round goes on after its last product"
        if any(isinstance(x, Alloc) for x in statements(body)):
            yield "the round has arrays of its own"
        if any(isinstance(x, Gemm) and self.group(x) is None for x in statements(body)):
            yield "another product is done at once"
        if any(self.meets(x, flight) for x in s.head if not isinstance(x, (Handover, Let))):
            yield "the first one needs the result of the last one"
        if not any(isinstance(x, (Parallel, Reduce)) for x in s.free):
            yield "nothing is computed between them"
        need = SPARE + sum(self.registers(self.flight(j)) for j in self.groups(body))
        if need > self.most:
            yield f"they need {need} registers of {self.most}"

    def groups(self, body: Block) -> Iterator[Group]:
        """The products of a round."""
        for s in body:
            job = self.group(s)
            if job is not None:
                yield job

    def registers(self, flight: _Flight) -> int:
        """32-bit registers of each thread that hold a product's operands."""
        job = flight.job
        total = job.blocks * job.count * job.stmt.c.dtype.bits
        if len(flight.fragments) > 1:
            total += job.left().registers * job.stmt.a.dtype.bits
        return total // 32

    def skewed(self, loop: For, s: _Split) -> Block:
        """The first round without its last product, the loop, and the last product."""
        var, loc = loop.var, loop.loc
        start, stop = as_type(loop.start, var.type), as_type(loop.stop, var.type)
        one = self.copied((*s.head, *s.free, *s.bound), var, start)
        late = (*s.lets, *s.issue, *s.release)
        split = len(s.lets) + len(s.issue)
        before = self.copied(late, var, minus(var, 1))
        after = self.copied(late, var, minus(stop, 1))
        issue = (*s.head[:-1], *before[: split - 1], s.head[-1], before[split - 1])
        first: Block = ()
        if self.t.count == len(TURNS) * GROUP_THREADS and self.t.barrier == 1:
            first, issue = self.in_turn(issue, var, (start, stop))
        body = (*issue, *s.free, *before[split:], *s.bound)
        self.made.append(For(var, plus(start, 1), stop, body, loc=loc))
        made = (*first, *one, self.made[-1], *after)
        rounds = int_value(minus(stop, start))
        if rounds is not None and rounds > 0:
            return made
        return (If(compare(BinaryOp.LT, start, stop), made, loc=loc),)

    def in_turn(self, issue: Block, var: Var, bounds: tuple[Expr, Expr]) -> tuple[Block, Block]:
        """The statements that begin the products of a round, by one warpgroup after the other, so
        that one multiplies while the other computes; and what comes before the loop. The second one
        passes the turn on before the loop, and keeps it after its last round: all barriers are
        left as they were.
        """
        which, both = self.t.digit(GROUP_THREADS, 2), const(2 * GROUP_THREADS)
        after, last = plus(bounds[0], 1), minus(bounds[1], 1)
        second = compare(BinaryOp.EQ, which, 1)
        begin = Issue(PASS, (), (const(TURNS[0]), both))
        meet = Issue(MEET, (), (plus(which, TURNS[0]), both))
        on = Issue(PASS, (), (minus(TURNS[1], which), both))
        more = Binary(BinaryOp.OR, compare(BinaryOp.EQ, which, 0), compare(BinaryOp.LT, var, last))
        runs = Binary(BinaryOp.AND, second, compare(BinaryOp.LT, after, bounds[1]))
        return (If(runs, (begin,)),), (*issue[:-2], meet, *issue[-2:], If(more, (on,)))

    def copied(self, body: Block, var: Var, value: Expr) -> Block:
        """Statements of the round `value`, with names of their own."""
        renamer = Renamer(self.t.names)
        renamer.map[var.name] = value
        made = renamer.block(body)
        for old, new in zip(statements(body), statements(made), strict=True):
            job = self.products.get(old) if isinstance(old, Gemm) else None
            if job is not None and isinstance(new, Gemm):
                self.products[new] = replace(job, stmt=new)
        return made


@dataclass(frozen=True)
class _Split:
    """A round: up to its first product, what does not touch the last one, what does, the last
    product with the waits before it, what tells that it is done, and the names for these.
    """

    head: Block
    free: Block
    bound: Block
    issue: Block
    release: Block
    lets: Block


def _completed(flying: Sequence[_Flight], done: int, loc: Loc | None) -> Completed:
    """The wait for the oldest products."""
    mine = flying[:done]
    fragments = tuple(dict.fromkeys(b for f in mine for b in f.fragments))
    tiles = tuple(dict.fromkeys(r for f in mine for r in f.tiles))
    return Completed(len(flying) - done, fragments, tiles, loc=loc)


def statements_in(stmt: Stmt) -> Iterator[Stmt]:
    """The statements inside one that is no nest."""
    if not isinstance(stmt, Parallel):
        yield from (s for s in statements((stmt,)) if s is not stmt)


def _is_wait(stmt: Stmt) -> bool:
    return isinstance(stmt, Issue) and stmt.row == WAIT


def _is_plain(stmt: Stmt) -> bool:
    """Whether a statement touches what it names and nothing else."""
    if isinstance(stmt, Issue):
        return stmt.row in (WAIT, MEET, PASS)
    return isinstance(stmt, (Let, Alloc, Annotate, Parallel, Reduce, Store, If, For))


def _needed(body: Block, late: Block) -> Block | None:
    """The names that statements use, in order; None if one has another value in the next round for
    another reason than its number.
    """
    lets = {s.var.name: s for s in body if isinstance(s, Let)}
    found: dict[str, None] = {}
    stack: list[Node] = list(late)
    while stack:
        for n in stack.pop().walk():
            if isinstance(n, Var) and n.name in lets and n.name not in found:
                if not is_stable(lets[n.name].value):
                    return None
                found[n.name] = None
                stack.append(lets[n.name].value)
    return tuple(s for s in body if isinstance(s, Let) and s.var.name in found)
