"""Barriers of a block, from what statements read and write.

What enters: a program whose shared arrays have their places. What leaves: one in which, between two
accesses of different threads to one element of shared or global memory, one of them a write, all
threads of the block meet at `barrier.sync`. Arrays that share a place count as one. Nothing else
makes barriers, and no pass before this one needs to think of them; copies that the hardware makes
on its own (`cp.async`) count as writes where they are waited for, and what mbarriers order is the
business of the pass that chose them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tilelang.ir.expr import Expr, Var, const, int_value
from tilelang.ir.node import Kind, flat
from tilelang.ir.thread import (
    Addr,
    Array,
    At,
    Declare,
    Elem,
    Instr,
    Kernel,
    Program,
    Slot,
    Space,
    Write,
)
from tilelang.ir.tile import (
    Block,
    Break,
    Continue,
    For,
    If,
    Let,
    LoopKind,
    Stmt,
    ThreadReturn,
    While,
)
from tilelang.ir.walk import bodies
from tilelang.isa.target import Target
from tilelang.passes.build import Names, map_kernels, map_statements
from tilelang.passes.conflicts import Access as AnyAccess
from tilelang.passes.conflicts import Meetings, Threads
from tilelang.passes.issue import ARM, DONE, KEPT, LANES_READ, LANES_WRITTEN, READ, WRITTEN
from tilelang.passes.simt.launch import refused
from tilelang.passes.simt.switches import unordered
from tilelang.passes.simt.uniform import BLOCK_WIDE, Uniform

Access = AnyAccess[Array]
WAIT, AHEAD = "cp.async.wait_group", "cp.async.c"
"""The row that waits for copies under way, and how the rows of such copies begin."""

MARKS = (READ, WRITTEN, DONE, KEPT, LANES_READ, LANES_WRITTEN)
"""Rows without an instruction, which say what is read and written."""

_BY_THEMSELVES = ("mbarrier", "tcgen05.commit", "tcgen05.descriptor", KEPT)
"""How rows begin that need no barrier: what is done at mbarriers, and what only names memory."""

BULK, BULK_WAIT = "cp.async.bulk", "cp.async.bulk.wait_group"
"""How the rows of bulk copies begin. What they load is there when an mbarrier says so; what they
store is read until the group is waited for.
"""

_AT_MBARRIERS = (BULK, "clusterlaunchcontrol.try_cancel")
"""How rows begin whose first operand is there when an mbarrier, another operand, says so."""


def synchronize(program: Program, target: Target) -> Program:
    """Threads meet before they use what others have written."""
    del target
    names = Names(program)
    free = unordered(program)
    marks = (*MARKS, ARM)  # an arm of all threads stands without a condition

    def one(stmt: Stmt) -> Block | None:
        mark = isinstance(stmt, Instr) and stmt.row in marks
        tensor = isinstance(stmt, (Declare, At)) and stmt.array.space is Space.TENSOR
        return () if mark or tensor else None

    def kernel(node: Kernel) -> Kernel:
        made = _Kernel(node, names, free).done()
        return made.with_(body=map_statements(made.body, one))

    return map_kernels(program, kernel)


@dataclass
class _Left:
    """The accesses that no barrier has parted from where a round of a loop is left before its end,
    for the next one (`rounds`) or for what follows the loop (`loop`).
    """

    rounds: list[Access] = field(default_factory=list[Access])
    loop: list[Access] = field(default_factory=list[Access])

    def note(self, stmt: Stmt, after: Sequence[Access]) -> None:
        """A statement, after which there are these accesses, may leave a round of the loop around
        it.
        """
        if isinstance(stmt, Continue):
            self.rounds += after
        elif isinstance(stmt, Break):
            self.loop += after
        elif not isinstance(stmt, (For, While)):
            for body in bodies(stmt):
                for s in body:
                    self.note(s, after)


class _Kernel:
    """One kernel."""

    def __init__(self, kernel: Kernel, names: Names, free: frozenset[str]) -> None:
        self.kernel = kernel
        self.names = names
        self.free = free
        self.uniform: Uniform = Uniform(kernel)
        self.threads = Threads(
            {v.name: n for v, n in zip(kernel.thread_vars, kernel.block, strict=False)}
        )
        self.count: int = math.prod(kernel.block)
        self.number: int = 0
        self.lets: dict[str, Expr] = {}
        self.spelled: dict[Expr, Expr] = {}
        self.roots: dict[str, Array] = {}
        self.places: dict[str, tuple[int, int]] = {}
        self.tested: dict[tuple[Access, Access, int], bool] = {}
        self.meetings = Meetings(self.threads)
        self.left: _Left = _Left()
        self.stored = dict.fromkeys(
            x.array
            for s in _all(kernel.body)
            if isinstance(s, Instr) and s.row.startswith(("cp.async.bulk", "cp.reduce.async.bulk"))
            for x in s.ins
            if isinstance(x, Slot) and x.array.space is Space.SHARED
        )
        written = {a.name for s in _all(kernel.body) for a in _written(s)}
        self.written = written | {s.array.name for s in _all(kernel.body) if isinstance(s, At)}

    def done(self) -> Kernel:
        """The kernel with its barriers."""
        body = self.block(self.kernel.body, [])[0]
        capped = any(isinstance(s, Instr) and s.row == "setmaxnreg" for s in _all(body))
        if any(isinstance(s, ThreadReturn) for s in _all(body)):
            self.refuse_the_ended(body)
            body = map_statements(body, self.without_the_ended)
        # Registers can be moved only where their number at entry is known.
        return self.kernel.with_(body=body, min_blocks=1 if capped else self.kernel.min_blocks)

    # Statements ----------------------------------------------------------------------------------

    def block(self, body: Block, before: list[Access]) -> tuple[Block, list[Access]]:
        """Statements after accesses that no barrier has parted from them; the same afterwards."""
        out: list[Stmt] = []
        for last, stmt in zip((None, *body), body, strict=False):
            made, before = self.statement(stmt, before)
            if _meet_of_cluster(last, stmt):
                before = [a for a in before if a.flying]
            out += made
        return tuple(out), before

    def statement(self, stmt: Stmt, before: list[Access]) -> tuple[Block, list[Access]]:
        """One statement, after a barrier if it needs one."""
        self.note(stmt)
        if isinstance(stmt, Instr) and self.is_barrier(stmt):
            return (stmt,), [a for a in before if a.flying]
        if isinstance(stmt, Instr) and stmt.row == WAIT:
            landed = [replace(a, flying=False) for a in before if a.flying]
            left = before if dict(stmt.imm)["count"] else [a for a in before if not a.flying]
            return (stmt,), _unique([*left, *landed])
        if isinstance(stmt, Instr) and stmt.row == DONE:
            names = {self.root(x.array).name for x in stmt.ins if isinstance(x, Slot)}
            return (stmt,), [a for a in before if not (a.unit and a.array.name in names)]
        if isinstance(stmt, (If, For, While)):
            return self.control(stmt, before)
        return self.whole(stmt, list(self.accesses((stmt,), (), ())), before)

    def control(self, stmt: If | For | While, before: list[Access]) -> tuple[Block, list[Access]]:
        """A statement with others inside."""
        if isinstance(stmt, If) and any(_arm_of(b) for b in (stmt.then, stmt.orelse)):
            return self.arms(stmt, before)
        found = list(self.accesses((stmt,), (), ()))
        if not found:
            inside = self.has_barrier(stmt)
            return self.inside(stmt, before) if inside else self.whole(stmt, [], before)
        lockstep = isinstance(stmt, For) and stmt.kind is LoopKind.VECTORIZED
        needs = self.has_barrier(stmt) or self.conflict(found, found)
        if lockstep or self.uniform.is_apart(stmt) or not needs:
            return self.whole(stmt, found, before)
        return self.inside(stmt, before)

    def arms(self, stmt: If, before: list[Access]) -> tuple[Block, list[Access]]:
        """Arms, whose threads meet at barriers of their own; between arms the author's mbarriers
        keep order.
        """
        found = list(self.accesses((stmt,), (), ()))
        first: Block = ()
        if self.count > 1 and self.conflict(before, found):
            first, before = (self.barrier(stmt),), [a for a in before if a.flying]
        changes = {name: self.arm(getattr(stmt, name)) for name in ("then", "orelse")}
        after = _unique([*before, *found])
        self.left.note(stmt, after)
        return (*first, stmt.with_(**changes)), after

    def arm(self, body: Block) -> Block:
        """The statements of an arm with their barriers, or of what follows it."""
        facts = _arm_of(body)
        if not facts:
            inner = [s for s in body if isinstance(s, If) and _arm_of(s.then)]
            return self.arms(inner[0], [])[0] if len(body) == 1 and inner else body
        outer = self.threads, self.count, self.number, self.meetings, self.uniform, self.left
        self.left = _Left()
        self.uniform = Uniform(self.kernel, body)
        self.threads = Threads(self.threads.extents, facts["first"], facts["threads"])
        self.meetings = Meetings(self.threads)
        self.count, self.number = facts["threads"], facts["id"]
        made, _ = self.block(body[1:], [])
        self.refuse_the_ended(made)
        self.threads, self.count, self.number, self.meetings, self.uniform, self.left = outer
        return made

    def whole(
        self, stmt: Stmt, found: list[Access], before: list[Access]
    ) -> tuple[Block, list[Access]]:
        """A statement inside which there is no barrier."""
        first: Block = ()
        if self.count > 1 and self.conflict(before, found):
            first, before = (self.barrier(stmt),), [a for a in before if a.flying]
        after = _unique([*before, *found])
        self.left.note(stmt, after)
        return (*first, stmt), after

    def inside(self, stmt: If | For | While, before: list[Access]) -> tuple[Block, list[Access]]:
        """A statement that all threads go through together, with barriers inside."""
        if isinstance(stmt, If):
            then, one = self.block(stmt.then, before)
            orelse, other = self.block(stmt.orelse, before)
            return (stmt.with_(then=then, orelse=orelse),), _unique([*one, *other])
        found = list(self.accesses((stmt,), (), ()))
        if self.count < 2 or not self.conflict(before, found):
            body, after = self.rounds_of(stmt, before)
            return (stmt.with_(body=body),), after
        # Once before the loop, not in each of its rounds; nowhere, where these meet in time.
        flying = [a for a in before if a.flying]
        body, after = self.rounds_of(stmt, flying)
        other, then = self.rounds_of(stmt, before)
        if _barriers(other) == _barriers(body):
            return (stmt.with_(body=other),), then
        return (self.barrier(stmt), stmt.with_(body=body)), after

    def rounds_of(self, stmt: For | While, before: list[Access]) -> tuple[Block, list[Access]]:
        """The body of a loop with its barriers, and the accesses that none has parted from what
        follows the loop.
        """
        outer = self.left
        self.left = _Left()
        _, after = self.block(stmt.body, before)
        after = [*after, *self.left.rounds]
        if isinstance(stmt, For):
            last = Var(self.names.name(f"{stmt.var.name}_before"), stmt.var.type)
            after = [a.renamed({stmt.var.name: last}) for a in after]
        self.left = _Left()
        body, after = self.block(stmt.body, _unique([*before, *after]))
        after = [*after, *self.left.rounds, *self.left.loop]
        self.left = outer
        runs = isinstance(stmt, For) and (self.rounds(stmt) or 0) > 0
        return body, _unique(after if runs else [*before, *after])

    def barrier(self, stmt: Stmt) -> Stmt:
        """All threads of the block meet."""
        imm = (("id", self.number), ("threads", self.count))
        return Instr("barrier.sync", (), (), imm=imm, loc=stmt.loc)

    def refuse_the_ended(self, body: Block) -> None:
        """A barrier of a part of the block counts its threads, those that have ended too: it would
        wait for ever.
        """
        ended = False
        for stmt in body:
            arms = isinstance(stmt, If) and any(_arm_of(b) for b in (stmt.then, stmt.orelse))
            returns = not arms and self.uniform.returns_apart((stmt,), False)
            if ended or (returns and isinstance(stmt, (For, While))):
                for s in _all((stmt,)):
                    if isinstance(s, Instr) and s.row == "barrier.sync" and self.is_part(s):
                        raise refused(s, "a barrier of a part of the block some of which has ended")
            ended = ended or returns

    def is_part(self, stmt: Instr) -> bool:
        """Whether some threads of the block do not come to this barrier."""
        return bool(dict(stmt.imm)["threads"] != math.prod(self.kernel.block))

    def without_the_ended(self, stmt: Stmt) -> Block | None:
        """A barrier of the block where threads may have ended, which a count would wait for."""
        if not (isinstance(stmt, Instr) and stmt.row == "barrier.sync"):
            return None
        if self.is_part(stmt):
            return None
        return (stmt.with_(row="barrier.sync.all", imm=(("id", dict(stmt.imm)["id"]),)),)

    def is_barrier(self, stmt: Instr) -> bool:
        """Whether all threads meet here."""
        imm = dict(stmt.imm)
        block = stmt.row in ("barrier.sync", *BLOCK_WIDE) and imm.get("threads") == self.count
        return block or stmt.row == "grid.sync"

    def has_barrier(self, stmt: Stmt) -> bool:
        """Whether there is a barrier of the author's inside, or a wait for copies."""
        return any(
            isinstance(s, Instr) and (s.row == WAIT or self.is_barrier(s)) for s in _all((stmt,))
        )

    # Accesses ------------------------------------------------------------------------------------

    def note(self, stmt: Stmt) -> None:
        """Take in what a statement says about names and places."""
        match stmt:
            case Let():
                self.lets[stmt.var.name] = stmt.value
            case Declare(array=Array(space=Space.SHARED)):
                size = int_value(stmt.array.size) if stmt.array.size is not None else 0
                end = ((size or 0) * stmt.array.type.bits + 7) // 8
                if stmt.offset is not None:
                    self.places[stmt.array.name] = (stmt.offset, stmt.offset + end)
            case At():
                inside = [n.array for n in stmt.address.walk() if isinstance(n, Addr)]
                if inside:
                    self.roots[stmt.array.name] = self.root(inside[0])
            case _:
                pass

    def root(self, array: Array) -> Array:
        """The array whose storage another name stands for."""
        return self.roots.get(array.name, array)

    def accesses(
        self, body: Block, rounds: tuple[tuple[str, int], ...], guards: tuple[Expr, ...]
    ) -> Iterator[Access]:
        """What statements read and write of what other threads see."""
        for stmt in body:
            self.note(stmt)
            yield from self.own(stmt, rounds, guards)
            match stmt:
                case If():
                    cond = self.expanded(stmt.cond)
                    yield from self.accesses(stmt.then, rounds, (*guards, cond))
                    yield from self.accesses(stmt.orelse, rounds, guards)
                case For():
                    count = self.rounds(stmt)
                    inner = rounds if count is None else (*rounds, (stmt.var.name, count))
                    yield from self.accesses(stmt.body, inner, guards)
                case While():
                    yield from self.accesses(stmt.body, rounds, guards)
                case _:
                    pass

    def rounds(self, stmt: For) -> int | None:
        """The number of rounds of a loop from 0 in steps of 1."""
        if int_value(stmt.start) != 0 or stmt.step is not None:
            return None
        return int_value(stmt.stop)

    def own(
        self, stmt: Stmt, rounds: tuple[tuple[str, int], ...], guards: tuple[Expr, ...]
    ) -> Iterator[Access]:
        """The accesses of a statement itself."""
        for array, index, count, writes, row in _touched(stmt):
            if not self.counts(array):
                continue
            at, root = self.expanded(index), self.root(array)
            used = {n.name for n in at.walk() if isinstance(n, Var)}
            kept = tuple(r for r in rounds if r[0] in used or any(_names(g, r[0]) for g in guards))
            yield Access(
                root,
                at,
                count,
                writes,
                atomic=row.startswith("atomic."),
                rounds=kept,
                guards=guards,
                known=root.name == array.name,
                unit=row in (READ, WRITTEN),
                flying=writes and row.startswith(AHEAD),
                handed=writes and row.startswith(_AT_MBARRIERS),
            )
        if isinstance(stmt, Instr) and stmt.row.startswith(BULK_WAIT):
            for array in self.stored:
                yield Access(array, const(0), 1, writes=False, known=False)

    def counts(self, array: Array) -> bool:
        """Whether other threads may see, or change, an array."""
        if array.space is Space.GLOBAL:
            return array.name in self.written
        if self.root(array).name in self.free:
            return False
        return array.space in (Space.SHARED, Space.TENSOR)

    def expanded(self, e: Expr) -> Expr:
        """An expression with names replaced by what they stand for, but for what is read."""
        found = self.spelled.get(e)
        if found is None:
            found = self.spelled[e] = self.spell(e)
        return found

    def spell(self, e: Expr) -> Expr:
        """`expanded`, for what has not been seen before. A name is defined before it is used, and
        once.
        """
        names = {n.name for n in e.walk() if isinstance(n, Var) and n.name in self.lets}
        values = {
            name: self.expanded(self.lets[name])
            for name in names
            if not any(isinstance(x, Elem) for x in self.lets[name].walk())
        }
        if isinstance(e, Var):
            return values.get(e.name, e)
        if not values:
            return e
        return e.rewrite(lambda n: values.get(n.name) if isinstance(n, Var) else None)

    # Conflicts -----------------------------------------------------------------------------------

    def conflict(self, before: Sequence[Access], now: Sequence[Access]) -> bool:
        """Whether threads may meet in an element."""
        return any(self.meet(a, b) for b in now for a in before)

    def meet(self, a: Access, b: Access) -> bool:
        if a.flying or (a.unit and b.unit) or not (a.writes or b.writes):
            return False
        if a.array.name != b.array.name:
            return self.overlap(a.array, b.array)
        if self.differs(a) or self.differs(b):
            return not (a.atomic and b.atomic)
        key = (a, b, self.number)
        found = self.tested.get(key)
        if found is None:
            found = self.tested[key] = self.meetings.meet(a, b)
        return found

    def differs(self, a: Access) -> bool:
        """Whether an index depends on what a thread has read."""
        names = set(self.threads.extents) | {n for n, _ in a.rounds}
        return any(
            isinstance(n, (Elem, Slot))
            or (isinstance(n, Var) and n.name in self.uniform.names - names)
            for n in a.index.walk()
        )

    def overlap(self, a: Array, b: Array) -> bool:
        """Whether two arrays share bytes."""
        x, y = self.places.get(a.name), self.places.get(b.name)
        if a.space is not b.space or x is None or y is None:
            return False
        return x[0] < y[1] and y[0] < x[1]


def _arm_of(body: Block) -> dict[str, int]:
    """The facts of an arm, if these are its statements."""
    first = body[0] if body else None
    return dict(first.imm) if isinstance(first, Instr) and first.row == ARM else {}


def _touched(stmt: Stmt) -> Iterator[tuple[Array, Expr, int, bool, str]]:
    """The arrays that a statement itself touches: from which element on and how many, whether it
    writes them, and by which row.
    """
    for f in stmt.fields():
        if f.metadata["kind"] is Kind.OPERAND:
            for node in flat(getattr(stmt, f.name)):
                for n in node.walk():
                    if isinstance(n, Elem):
                        yield n.array, n.index, n.type.lanes, False, ""
    if isinstance(stmt, Write):
        yield stmt.array, stmt.index, stmt.value.dtype.lanes, True, ""
    if isinstance(stmt, Instr) and not stmt.row.startswith(_BY_THEMSELVES):
        # No other thread uses the mbarrier, which is changed too, as memory.
        for slot in stmt.outs[:1] if stmt.row.startswith(_AT_MBARRIERS) else stmt.outs:
            yield slot.array, slot.index, slot.count, True, stmt.row
        for x in stmt.ins:
            if isinstance(x, Slot):
                yield x.array, x.index, x.count, False, stmt.row


def _meet_of_cluster(last: Stmt | None, stmt: Stmt) -> bool:
    """Whether all threads of the cluster meet here: they wait right after they have arrived."""
    rows = [s.row for s in (last, stmt) if isinstance(s, Instr)]
    return rows == ["barrier.cluster.arrive", "barrier.cluster.wait"]


def _barriers(body: Block) -> int:
    """How many barriers of threads of a block there are."""
    return sum(isinstance(s, Instr) and s.row == "barrier.sync" for s in _all(body))


def _names(e: Expr, name: str) -> bool:
    return any(isinstance(n, Var) and n.name == name for n in e.walk())


def _unique(found: Sequence[Access]) -> list[Access]:
    """Accesses that later ones may have to wait for, each once."""
    return [a for a in dict.fromkeys(found) if not a.handed]


def _all(body: Sequence[Stmt]) -> Iterator[Stmt]:
    for stmt in body:
        yield stmt
        for child in stmt.children():
            if isinstance(child, Stmt):
                yield from _all((child,))


def _written(stmt: Stmt) -> Iterator[Array]:
    if isinstance(stmt, Write):
        yield stmt.array
    elif isinstance(stmt, Instr):
        yield from (slot.array for slot in stmt.outs)
