"""What the pipes and cores of an Ascend chip can do: ids of flags, places of statements, addresses.

What enters: a `Program`. What leaves: errors for ids that the chip has not, statements in the
region of a core without their pipe, and addresses that are not aligned or beyond a memory. Each
names the row of the chip's table that says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.errors import Diagnostic, warning
from tilelang.ir.ascend import (
    Core,
    CoreRegion,
    CrossSet,
    CrossWait,
    Lock,
    Pipe,
    SetFlag,
    Unlock,
    VectorOp,
    WaitFlag,
)
from tilelang.ir.expr import Buffer, Expr, int_value
from tilelang.ir.tile import Annotate, Atomic, Fill, Gemm, Reduce, Stmt
from tilelang.isa.target import Fact, SyncLimits
from tilelang.passes.check.program import COPIES, Program, op_name
from tilelang.scopes import Memory

_M = Memory
_CUBE = frozenset({_M.L1, _M.L0A, _M.L0B, _M.L0C, _M.L0A_SCALE, _M.L0B_SCALE})
_NUMBERED = (SetFlag, WaitFlag, CrossSet, CrossWait, Lock, Unlock)


def flags_exist(program: Program) -> Iterator[Diagnostic]:
    """Events, cross-core flags and mutexes have numbers that the chip has."""
    limits = program.target.chip.sync if program.target.chip is not None else None
    if limits is None:
        return
    for site in program.sites:
        stmt = site.stmt
        if isinstance(stmt, _NUMBERED):
            what, fact = _limit(stmt, limits)
            yield from _number(program, stmt, stmt.id, what, fact)
        if isinstance(stmt, CrossWait) and stmt.pipe is not Pipe.ALL and limits.pair_flags is None:
            yield warning(
                "target",
                f"the whole core waits for this cross-core flag, not pipe {stmt.pipe.value} alone",
                stmt.loc,
                expected=f"no pipe on {program.target}",
                got=f"pipe {stmt.pipe.value}",
                help="leave the pipe out",
            )


def _limit(stmt: Stmt, limits: SyncLimits) -> tuple[str, Fact | None]:
    if isinstance(stmt, (SetFlag, WaitFlag)):
        return "event", limits.event_ids
    if isinstance(stmt, (CrossSet, CrossWait)):
        four = "between one vector core and the cube core" if stmt.mode not in (0, 1, 2) else ""
        return f"cross-core flag{' ' + four if four else ''}", limits.flags_of(stmt.mode)
    return "mutex", limits.mutexes


def _number(
    program: Program, stmt: Stmt, number: Expr, what: str, fact: Fact | None
) -> Iterator[Diagnostic]:
    if fact is None:
        yield Diagnostic(
            "target",
            f"{program.target} has no {what}",
            stmt.loc,
            help="order pipes by events, and cores by cross-core flags",
        )
        return
    known = int_value(number)
    if known is not None and not 0 <= known < fact.value:
        yield Diagnostic(
            "value",
            f"there is no {what} {known}",
            stmt.loc,
            expected=f"0 to {fact.value - 1} on {program.target} ({fact.source})",
            got=str(known),
            help="numbers may be used again when they have been waited for",
        )


def statements_have_cores(program: Program) -> Iterator[Diagnostic]:
    """A tile operation stands in the region of a core that has its memories and its pipe."""
    for site in program.sites:
        region = next((s for s in reversed(site.place.path) if isinstance(s, CoreRegion)), None)
        wanted = _core_of(program, site.stmt)
        if region is None or wanted is None or wanted is region.core:
            continue
        names = {Core.CUBE: "the cube core", Core.VECTOR: "a vector core"}
        yield Diagnostic(
            "scope",
            f"{op_name(site.stmt)} of {names[wanted]} in the region of {names[region.core]}",
            site.stmt.loc,
            expected=f'it stands in T.Scope("{wanted.value}") or T.{wanted.name.title()}()',
            got=f'T.Scope("{region.core.value}")',
        )


def _core_of(program: Program, stmt: Stmt) -> Core | None:
    """The kind of core that carries out a statement, None if both can, or no instruction does."""
    if isinstance(stmt, VectorOp):
        return Core.VECTOR
    if isinstance(stmt, COPIES):
        return _copier(program.memory(stmt.src.buffer), program.memory(stmt.dst.buffer))
    if isinstance(stmt, Gemm):
        return Core.CUBE if program.memory(stmt.c.buffer) is _M.L0C else None
    if isinstance(stmt, (Fill, Reduce)):
        return _owner(program.memory(stmt.dst.buffer))
    if isinstance(stmt, Atomic) and not isinstance(stmt.value, Expr):
        return _owner(program.memory(stmt.value.buffer))
    return None


def _copier(src: Memory, dst: Memory) -> Core | None:
    """The core whose pipe moves data: that of the source, or of the destination if it is global."""
    return _owner(src) or _owner(dst)


def _owner(memory: Memory) -> Core | None:
    return Core.VECTOR if memory is _M.UB else Core.CUBE if memory in _CUBE else None


def addresses_fit(program: Program) -> Iterator[Diagnostic]:
    """The author's addresses are aligned and inside the memory."""
    for site in program.sites:
        stmt = site.stmt
        if isinstance(stmt, Annotate) and stmt.kind == "address":
            for buffer, address in zip(stmt.buffers, stmt.values, strict=True):
                yield from _address(program, stmt, buffer, address)


def _address(
    program: Program, stmt: Annotate, buffer: Buffer, address: int
) -> Iterator[Diagnostic]:
    memory, chip = program.memory(buffer), program.target.chip
    if chip is None:
        return
    fact = chip.alignments.get(memory)
    if fact is not None and address % fact.value:
        yield Diagnostic(
            "layout",
            f"{buffer.name} begins at byte {address} of the {memory.title}",
            stmt.loc,
            label=program.allocated(buffer),
            expected=f"a multiple of {fact.value} bytes ({fact.source})",
            got=str(address),
        )
    capacity = program.target.capacity(memory) if not _open(memory) else None
    sizes = [int_value(e) for e in buffer.shape]
    if capacity is None or None in sizes:
        return
    size = buffer.dtype.bytes
    for n in sizes:
        size *= n or 0
    if address < 0 or address + size > capacity.amount:
        yield Diagnostic(
            "capacity",
            f"{buffer.name} ends at byte {address + size} of the {memory.title}",
            stmt.loc,
            label=program.allocated(buffer),
            expected=f"at most {capacity.amount} bytes ({capacity.source})",
            got=f"{size} bytes from byte {address} on",
            help="use a lower address, or smaller tiles",
        )


def _open(memory: Memory) -> bool:
    """Whether the uses of a buffer decide where it lies."""
    return memory in (_M.UB_OR_L1, _M.L0_BY_USE)
