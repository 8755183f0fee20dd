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
from dataclasses import dataclass, field, replace
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
    its own of what others had done before its last wait (`others`), what of it was learnt here,
    within the statements under one condition (`here`), what only some threads of those that run
    this know by a wait (`some`), and what it or its warp has put behind a fence (`told`): each of
    its arrivals hands that over.
    """

    own: _Use = _Use.NONE
    others: _Use = _Use.NONE
    some: _Use = _Use.NONE
    here: _Use = _Use.NONE
    told: _Use = _Use.NONE

    def __or__(self, other: _State) -> _State:
        return _State(
            self.own | other.own,
            self.others | other.others,
            self.some | other.some,
            self.here | other.here,
            self.told | other.told,
        )


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
                begin = replace(state, here=_Use.NONE)
                # The arms of a block run at the same time.
                then, one = self.block(stmt.then, begin, later=more or _uses(stmt.orelse))
                orelse, other = self.block(stmt.orelse, begin, later=more or _uses(stmt.then))
                out.append(_with(stmt, (then, orelse)))
                some = one.here ^ other.here
                state = _State(here=state.here, some=some) | one | other
            elif isinstance(stmt, (For, While)):
                made, state = self.loop(stmt, state, later=more or _uses(stmt.body))
                out += made
            else:
                out.append(stmt)
        return tuple(out), state

    def loop(self, stmt: For | While, state: _State, *, later: bool) -> tuple[Block, _State]:
        """A loop with its fences; what only its first round has to make its own is so before it."""
        body, after = self.rounds(stmt, state, later=later)
        if state.others:
            ready = _admitted(state)
            other, then = self.rounds(stmt, ready, later=later)
            if other != body:
                fence = Instr(AFTER, (), (), loc=stmt.loc)
                return (fence, _with(stmt, (other,))), then
        return (_with(stmt, (body,)),), after

    def rounds(self, stmt: For | While, state: _State, *, later: bool) -> tuple[Block, _State]:
        """The statements of a loop with their fences, and the state after its last round."""
        for _ in range(2):
            state |= self.block(stmt.body, state, later=later)[1]
        body, last = self.block(stmt.body, state, later=later)
        return body, state | last

    def instruction(self, stmt: Instr, state: _State, *, later: bool) -> tuple[Block, _State]:
        """One instruction, after the fences that it needs, and the state after it."""
        row = stmt.row
        if row == BEFORE:
            return (stmt,), _published(state)
        if row == AFTER:
            return (stmt,), _admitted(state)
        first: list[Stmt] = []
        if state.others & self.asked(row):
            first.append(Instr(AFTER, (), (), loc=stmt.loc))
            state = _admitted(state)
        if row.startswith(_LANES):
            state = replace(state, own=state.own | _Use.LANES)
        elif row.startswith(_UNIT) and self.several:
            state = replace(state, own=state.own | _Use.UNIT)
        elif row.startswith("tcgen05.commit"):
            state = replace(state, own=state.own & ~_Use.UNIT)
            self.mbarriers.add(_array(stmt.outs), _Use.UNIT)
        elif row.startswith(_RELEASES):
            made, state = self.release(stmt, state, later=later)
            first += made
        elif row.startswith(_WAITS):
            state = _learnt(state, self.mbarriers.known(_array(stmt.ins)))
        return (*first, stmt), state

    def release(self, stmt: Instr, state: _State, *, later: bool) -> tuple[list[Stmt], _State]:
        """The fences before a step that others wait for, and the state after it."""
        first: list[Stmt] = []
        told = state.own | state.some
        if told and (later or stmt.row.startswith("mbarrier")):
            if state.some & state.others:
                first.append(Instr(AFTER, (), (), loc=stmt.loc))
            first.append(Instr(BEFORE, (), (), loc=stmt.loc))
            state = replace(_published(state), some=_Use.NONE)
        if stmt.row.startswith("mbarrier"):
            self.mbarriers.add(_array(stmt.outs), told | state.told)
            return first, state
        if stmt.row.startswith("bar.warp"):
            state = replace(state, told=state.told | told)
        return first, _learnt(state, told)

    def asked(self, row: str) -> _Use:
        """Which uses of others have to be over, as an instruction begins, by a fence."""
        if row.startswith(_LANES):
            return _Use.LANES | _Use.UNIT
        if row.startswith(_UNIT):
            return _Use.LANES | (_Use.UNIT if self.several else _Use.NONE)
        return _Use.NONE


def _published(state: _State) -> _State:
    """After a fence before a step."""
    return replace(state, own=_Use.NONE, told=state.told | state.own)


def _admitted(state: _State) -> _State:
    """After a fence that follows a wait."""
    return replace(state, others=_Use.NONE, some=_Use.NONE, here=_Use.NONE)


def _learnt(state: _State, use: _Use) -> _State:
    """After a wait for others who have used Tensor Memory so."""
    return replace(state, others=state.others | use, here=state.here | use)


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
