"""mbarriers of a block whose threads run one after the other between meetings.

What enters: a function whose asynchronous work is done where it stands. What leaves: one without
mbarriers: each is a count of pending arrivals and a phase in plain memory. An arrival is an update
by each thread that gets there; a wait is a place where all threads meet, after which the phase must
have been completed: if it is not, no thread can go on, which an assertion reports.
"""

from __future__ import annotations

from tilelang.dtypes import DType
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Expr,
    Load,
    Region,
    const,
)
from tilelang.ir.sync import CpAsyncArrive, MbarArrive, MbarExpectTx, MbarWait, MmaArrive
from tilelang.ir.tile import (
    Alloc,
    Assert,
    Atomic,
    AtomicOp,
    Block,
    Function,
    If,
    Let,
    Stmt,
    Store,
    SyncThreads,
)
from tilelang.isa.target import Target
from tilelang.passes.build import (
    Names,
    as_type,
    map_launches,
    map_statements,
    minus,
    plus,
    unsupported,
)
from tilelang.passes.check.program import op_name
from tilelang.scopes import Dialect, Memory, memory_of

I32 = DType("int32")
DEADLOCK = "the phase of an mbarrier that is waited for can no longer be completed"


def lower_mbarriers(fn: Function, target: Target) -> Function:
    """No mbarriers: counters, and assertions at waits."""
    del target
    return _Barriers(fn).lower()


class _Barriers:
    def __init__(self, fn: Function) -> None:
        self.fn = fn
        self.names = Names(fn)
        self.dialect = Dialect(fn.dialect)
        self.parts: dict[str, tuple[Buffer, Buffer, Buffer]] = {}

    def lower(self) -> Function:
        fn = map_launches(self.fn, lambda body: map_statements(body, self.alloc))
        return map_launches(fn, lambda body: map_statements(body, self.one))

    def alloc(self, stmt: Stmt) -> Block | None:
        """The pending arrivals, the arrivals of a phase, and the number of completed phases."""
        if not isinstance(stmt, Alloc):
            return None
        b = stmt.buffer
        if memory_of(self.dialect, b.scope) not in (Memory.BARRIER, Memory.CLUSTER_BARRIER):
            return None
        made = [
            self.names.buffer(f"{b.name}_{part}", I32, b.shape, "shared.dyn")
            for part in ("pending", "count", "phase")
        ]
        self.parts[b.name] = (made[0], made[1], made[2])
        out: list[Stmt] = [Alloc(x, loc=stmt.loc) for x in made]
        for k, count in enumerate(stmt.arrive_counts):
            for x, value in zip(made, (count, count, 0), strict=True):
                out.append(Store(x, (const(k),), const(value), loc=stmt.loc))
        return tuple(out)

    def one(self, stmt: Stmt) -> Block | None:
        match stmt:
            case MbarArrive(cta=None) | CpAsyncArrive():
                return self.arrive(stmt.barrier, stmt)
            case MmaArrive(two_cta=False):
                return self.arrive_once(stmt)
            case MbarExpectTx():
                return ()  # the bytes have arrived when the copy is done, which is at once
            case MbarWait():
                return self.wait(stmt)
            case _:
                return None

    def part(self, barrier: Region, stmt: Stmt) -> tuple[tuple[Buffer, Buffer, Buffer], Expr]:
        found = self.parts.get(barrier.buffer.name)
        if found is None or len(barrier.mins) != 1:
            raise unsupported(stmt, f"{op_name(stmt)} on a barrier of this kind")
        return found, barrier.mins[0]

    def arrive(self, barrier: Region, stmt: Stmt) -> Block:
        (pending, _, _), at = self.part(barrier, stmt)
        old = self.names.var("left", I32)
        one = Region(pending, (at,), (const(1),), loc=stmt.loc)
        update = Atomic(AtomicOp.ADD, one, const(-1), previous=old, loc=stmt.loc)
        return (update, self.completed(barrier, stmt, old))

    def arrive_once(self, stmt: MmaArrive) -> Block:
        """The arrival of the products so far, which the block makes once."""
        (pending, _, _), at = self.part(stmt.barrier, stmt)
        old = self.names.var("left", I32)
        less = Store(pending, (at,), minus(old, 1), loc=stmt.loc)
        before = Let(old, Load(pending, (at,)), loc=stmt.loc)
        return (before, less, self.completed(stmt.barrier, stmt, old))

    def completed(self, barrier: Region, stmt: Stmt, old: Expr) -> Stmt:
        """After the last arrival the next phase begins."""
        (pending, count, phase), at = self.part(barrier, stmt)
        next_phase = Store(phase, (at,), plus(Load(phase, (at,)), 1), loc=stmt.loc)
        again = Store(pending, (at,), Load(count, (at,)), loc=stmt.loc)
        return If(Binary(BinaryOp.EQ, old, const(1)), (next_phase, again), loc=stmt.loc)

    def wait(self, stmt: MbarWait) -> Block:
        (_, _, phase), at = self.part(stmt.barrier, stmt)
        parity = Binary(BinaryOp.BITAND, Load(phase, (at,)), const(1))
        wanted = Binary(BinaryOp.BITAND, as_type(stmt.parity, I32), const(1))
        ready = Binary(BinaryOp.NE, parity, wanted)
        return (
            SyncThreads(loc=stmt.loc),
            Assert(ready, message=DEADLOCK, kind="deadlock", loc=stmt.loc),
        )
