"""Order between what threads do in Tensor Memory and where they meet.

What enters: a program with all its barriers. What leaves: one in which, in threads that use Tensor
Memory, `tcgen05.fence.before_thread_sync` stands before a step that others wait for when the thread
has used Tensor Memory since the last such fence, and `tcgen05.fence.after_thread_sync` before its
first use after a wait for those who have (PTX ISA, tcgen05: Memory Consistency Model, Inter-thread
Synchronization). Products of one thread are made in order and a commit publishes their end, so a
thread needs no fence between its own products. Nor does the end of an allocation need one: that a
barrier is passed is enough. The fences of an author stay and count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Flag, auto

from tilelang.ir.expr import Expr
from tilelang.ir.thread import At, Instr, Kernel, Program, Slot
from tilelang.ir.tile import Block, For, If, Stmt, While
from tilelang.isa.target import Target
from tilelang.passes.build import map_bodies, map_kernels
from tilelang.passes.lower_parallel import statements

BEFORE, AFTER = "tcgen05.fence.before_thread_sync", "tcgen05.fence.after_thread_sync"
_MEET = ("barrier.sync", "barrier.red", "bar.warp.sync", "grid.sync")
_RELEASES = (*_MEET, "barrier.cluster.arrive", "mbarrier.arrive")
_WAITS = ("mbarrier.try_wait", "mbarrier.test_wait")
_LANES = ("tcgen05.ld.", "tcgen05.st.")
_UNIT = ("tcgen05.mma", "tcgen05.cp")


class _Use(Flag):
    """Who has used Tensor Memory: threads by loads and stores, or the unit."""

    NONE = 0
    LANES = auto()
    UNIT = auto()


@dataclass(frozen=True)
class _State:
    """What a thread has done since its last fence before a step (`own`), what it has not yet made
    its own of what others had done before its last wait (`others`), and what only some threads of
    those that run this know by a wait (`some`).
    """

    own: _Use = _Use.NONE
    others: _Use = _Use.NONE
    some: _Use = _Use.NONE

    def __or__(self, other: _State) -> _State:
        return _State(self.own | other.own, self.others | other.others, self.some | other.some)


@dataclass
class _Mbarriers:
    """What is published by arrivals at each array of mbarriers."""

    arrivals: dict[str, _Use] = field(default_factory=dict[str, _Use])
    strange: bool = False
    """Whether some of them are reached by an address that is worked out."""

    def add(self, name: str, use: _Use) -> None:
        """An arrival."""
        self.arrivals[name] = self.arrivals.get(name, _Use.NONE) | use

    def known(self, name: str) -> _Use:
        """What a wait may be for."""
        if not self.strange:
            return self.arrivals.get(name, _Use.NONE)
        found = _Use.NONE
        for use in self.arrivals.values():
            found |= use
        return found


def fence_tensor_memory(program: Program, target: Target) -> Program:
    """Uses of Tensor Memory are ordered by the barriers around them."""
    del target

    def kernel(node: Kernel) -> Kernel:
        rows = {s.row for s in statements(node.body) if isinstance(s, Instr)}
        if not any(r.startswith("tcgen05") for r in rows):
            return node
        return node.with_(body=_Fences(node.body).done())

    return map_kernels(program, kernel)


class _Fences:
    """One kernel."""

    def __init__(self, body: Block) -> None:
        self.body = body
        self.mbarriers: _Mbarriers = _Mbarriers()
        # A cluster reaches the mbarriers of other blocks by addresses.
        self.mbarriers.strange = any(isinstance(s, At) for s in statements(body))
        self.several: bool = len(set(_issuers(body, ()))) > 1

    def done(self) -> Block:
        """The statements with their fences."""
        while True:
            before = dict(self.mbarriers.arrivals)
            body, _ = self.block(self.body, _State(), later=False)
            if self.mbarriers.arrivals == before:
                return body

    def block(self, body: Block, state: _State, *, later: bool) -> tuple[Block, _State]:
        """Statements with their fences, and the state after them. `later`: whether Tensor Memory
        may be used after them.
        """
        follows = [later]
        for stmt in reversed(body):
            follows.append(follows[-1] or _uses((stmt,)))
        follows.reverse()
        out: list[Stmt] = []
        for stmt, more in zip(body, follows[1:], strict=True):
            if isinstance(stmt, Instr):
                made, state = self.instruction(stmt, state, later=more)
                out += made
            elif isinstance(stmt, If):
                then, one = self.block(stmt.then, state, later=more)
                orelse, other = self.block(stmt.orelse, state, later=more)
                out.append(_with(stmt, (then, orelse)))
                state = one | other
                part = (one.others | other.others) & ~(one.others & other.others)
                state = _State(state.own, state.others, state.some | part)
            elif isinstance(stmt, (For, While)):
                again = more or _uses(stmt.body)
                for _ in range(2):
                    state |= self.block(stmt.body, state, later=again)[1]
                inner, last = self.block(stmt.body, state, later=again)
                out.append(_with(stmt, (inner,)))
                state |= last
            else:
                out.append(stmt)
        return tuple(out), state

    def instruction(self, stmt: Instr, state: _State, *, later: bool) -> tuple[Block, _State]:
        """One instruction, after the fences that it needs, and the state after it."""
        row, own, others, some = stmt.row, state.own, state.others, state.some
        if row == BEFORE:
            return (stmt,), _State(_Use.NONE, others, some)
        if row == AFTER:
            return (stmt,), _State(own, _Use.NONE, _Use.NONE)
        first: list[Stmt] = []
        if others & self.asked(row):
            first.append(Instr(AFTER, (), (), loc=stmt.loc))
            others = some = _Use.NONE
        if row.startswith(_LANES):
            own |= _Use.LANES
        elif row.startswith(_UNIT) and self.several:
            own |= _Use.UNIT
        elif row.startswith("tcgen05.commit"):
            own &= ~_Use.UNIT
            self.mbarriers.add(_array(stmt.outs), _Use.UNIT)
        elif row.startswith(_RELEASES):
            told = own | some
            if told and later:
                if some & others:
                    first.append(Instr(AFTER, (), (), loc=stmt.loc))
                first.append(Instr(BEFORE, (), (), loc=stmt.loc))
                own = some = _Use.NONE
            if row.startswith("mbarrier"):
                self.mbarriers.add(_array(stmt.outs), told)
            else:
                others |= told
        elif row.startswith(_WAITS):
            others |= self.mbarriers.known(_array(stmt.ins))
        return (*first, stmt), _State(own, others, some)

    def asked(self, row: str) -> _Use:
        """Which uses of others have to be over, as an instruction begins, by a fence."""
        if row.startswith(_LANES):
            return _Use.LANES | _Use.UNIT
        if row.startswith(_UNIT):
            return _Use.LANES | (_Use.UNIT if self.several else _Use.NONE)
        return _Use.NONE


def _uses(body: Block) -> bool:
    """Whether threads or the unit use Tensor Memory here."""
    return any(
        isinstance(s, Instr) and s.row.startswith((*_LANES, *_UNIT)) for s in statements(body)
    )


def _array(slots: Sequence[object]) -> str:
    """The name of the first array."""
    return next((x.array.name for x in slots if isinstance(x, Slot)), "")


def _issuers(body: Block, conds: tuple[Expr, ...]) -> list[tuple[Expr, ...]]:
    """The conditions around the products of a kernel."""
    out: list[tuple[Expr, ...]] = []
    for stmt in body:
        if isinstance(stmt, Instr) and stmt.row.startswith(_UNIT):
            out.append(conds)
        elif isinstance(stmt, If):
            out += _issuers(stmt.then, (*conds, stmt.cond))
            out += _issuers(stmt.orelse, (*conds, stmt.cond, stmt.cond))
        elif isinstance(stmt, (For, While)):
            out += _issuers(stmt.body, conds)
    return out


def _with(stmt: Stmt, blocks: Sequence[Block]) -> Stmt:
    """A statement with its blocks replaced, in order."""
    left = iter(blocks)
    return map_bodies(stmt, lambda _: next(left))
