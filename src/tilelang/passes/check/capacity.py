"""Whether the buffers of each launch fit the memories of the chip.

What enters: a `Program`. What leaves: an error for each memory that is asked for more than there
is, with a table of the buffers; warnings for registers, which spill; notes where a buffer is
rounded up, or fits only because storage is used again or stages are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.errors import Diagnostic, Severity, warning
from tilelang.ir.expr import int_value
from tilelang.ir.tile import Alloc
from tilelang.isa.target import Per
from tilelang.passes.check.program import Program, element_count, listed, shape_text
from tilelang.passes.check.report import (
    CELL_BITS,
    LANES,
    LaunchReport,
    Row,
    Total,
    allocations,
    report_of,
    table,
)
from tilelang.passes.tensor_columns import Allocation
from tilelang.scopes import DYNAMIC_SHARED, Dialect, Memory, Unit


def memories_fit(program: Program) -> Iterator[Diagnostic]:
    """What is live together fits each memory of the chip, and how narrowly it does is noted.

    Where a kernel of the adapter is lowered, its memory planner says what does not fit: it splits
    tiles over vector cores first, and knows lifetimes within a round of a loop.
    """
    if program.dialect is Dialect.ADAPTER and program.target.mode == "simulate":
        return
    for part in report_of(program).launches:
        for total in part.totals:
            if total.capacity is None or total.fits:
                continue
            if total.unit is Unit.REGISTERS:
                yield _spills(part, total)
            else:
                yield _overflow(program, total)
        yield from _registers_of_block(program, part)
        yield from _storage_notes(program, part)


_UNITS = {Unit.BYTES: "bytes", Unit.COLUMNS: "columns", Unit.REGISTERS: "registers"}


def _overflow(program: Program, total: Total) -> Diagnostic:
    assert total.capacity is not None
    unit, limit = _UNITS[total.unit], total.capacity.amount
    largest = _largest(total)
    what = "static " if total.per is Per.BLOCK_STATIC else ""
    several = f" by {len(total.rows)} buffers that are live together" if total.rows[1:] else ""
    return Diagnostic(
        "capacity",
        f"{total.used} {unit} of {what}{total.memory.title} are asked for{several},"
        f" {limit} are available",
        largest.loc,
        label=f"{largest.name} takes {_amount(largest, unit)}",
        expected=f"at most {limit} {unit} per block on {program.target}",
        got=f"{total.used} {unit}",
        notes=(f"the buffers that are live together are\n{table(total.rows)}",),
        help=_smaller(total),
    )


def _largest(total: Total) -> Row:
    return max(total.rows, key=lambda row: row.amount or 0)


def _amount(row: Row, unit: str) -> str:
    rounded = row.asked is not None and row.asked != row.amount
    return f"{row.amount} {unit}" + (f", rounded up from {row.asked}" if rounded else "")


def _smaller(total: Total) -> str:
    if total.per is Per.BLOCK_STATIC:
        return f"declare large buffers in scope '{DYNAMIC_SHARED}', which is not limited like this"
    if total.unit is Unit.COLUMNS and total.rows[1:]:
        return "use smaller tiles, or free a buffer with T.deallocate_tmem before the next is used"
    return "use smaller tiles, or a smaller element type"


def _spills(part: LaunchReport, total: Total) -> Diagnostic:
    assert total.capacity is not None
    largest = _largest(total)
    return warning(
        "capacity",
        f"{total.used} registers per thread are asked for, a thread has {total.capacity.amount}",
        largest.loc,
        label=f"{largest.name} takes {largest.amount} registers of each of {part.threads} threads",
        expected=f"at most {total.capacity.amount} registers per thread",
        got=f"{total.used} registers per thread",
        notes=(f"the buffers that are live together are\n{table(total.rows)}",),
        help="use smaller tiles or more threads; what does not fit is kept in slow local memory",
    )


def _registers_of_block(program: Program, part: LaunchReport) -> Iterator[Diagnostic]:
    """All threads together stay within the registers of a block, where one thread alone does."""
    total = part.total(Memory.REGISTERS, Per.THREAD)
    if total is None or not total.fits:
        return
    capacity = program.target.capacity(Memory.REGISTERS, Per.BLOCK)
    asked = total.used * part.threads
    if capacity is not None and asked > capacity.amount:
        largest = _largest(total)
        yield warning(
            "capacity",
            f"{asked} registers per block are asked for, a block has {capacity.amount}",
            largest.loc,
            label=f"{largest.name} takes {largest.amount} registers of each of {part.threads}"
            " threads",
            expected=f"at most {capacity.amount} registers per block",
            got=f"{total.used} registers in each of {part.threads} threads",
            notes=(f"the buffers that are live together are\n{table(total.rows)}",),
            help="use smaller tiles; what does not fit is kept in slow local memory",
        )


def _storage_notes(program: Program, part: LaunchReport) -> Iterator[Diagnostic]:
    """What fits only because storage is used again, or because stages are left out."""
    for total in part.totals:
        if total.capacity is None or not total.fits or total.unit is Unit.REGISTERS:
            continue
        limit, unit = total.capacity.amount, _UNITS[total.unit]
        if total.staged > limit:
            yield _staged(program, total, limit)
        elif total.declared > limit:
            yield Diagnostic(
                "capacity",
                f"{total.memory.title} fits because storage is used again",
                _largest(total).loc,
                label=f"{total.declared} {unit} are declared, {total.used} are live together",
                expected=f"{limit} {unit} on {program.target}",
                severity=Severity.NOTE,
            )


def _staged(program: Program, total: Total, limit: int) -> Diagnostic:
    staged = [row for row in total.rows if row.stages > 1]
    names = listed([f"{row.stages} x {row.name}" for row in staged])
    return Diagnostic(
        "capacity",
        f"the stages of T.Pipelined do not fit {total.memory.title}",
        max(staged, key=lambda row: row.amount or 0).loc if staged else None,
        label=f"{names} make {total.staged} bytes" if staged else "",
        expected=f"at most {limit} bytes on {program.target}",
        got=f"{total.staged} bytes, {total.used} with one stage",
        help="lower num_stages or use smaller tiles; with fewer stages the result is the same",
        severity=Severity.NOTE,
    )


def tensor_memory_shapes(program: Program) -> Iterator[Diagnostic]:
    """Buffers in Tensor Memory have rows of 32-bit cells, of more than 128 whole bands; rounding is
    reported.
    """
    for alloc in program.allocs.values():
        if program.declared(alloc.buffer) is not Memory.TMEM:
            continue
        rows = int_value(alloc.buffer.shape[-2]) if alloc.buffer.rank > 1 else 1
        bits = alloc.buffer.dtype.bits * alloc.buffer.dtype.lanes
        if rows is not None and rows > LANES and rows % LANES:
            yield _too_many_rows(program, alloc, rows)
        if element_count(alloc.buffer) == 0:
            yield Diagnostic(
                "shape",
                f"{alloc.buffer.name} has no elements, and takes no columns of Tensor Memory",
                alloc.loc,
                expected="at least one row and one column",
                got=shape_text(alloc.buffer),
            )
        if bits > CELL_BITS:
            yield Diagnostic(
                "dtype",
                f"{alloc.buffer.dtype} does not fit a cell of Tensor Memory",
                alloc.loc,
                label=program.allocated(alloc.buffer),
                expected=f"an element type of at most {CELL_BITS} bits",
                got=f"{alloc.buffer.dtype}, {bits} bits",
            )
    for launch in program.launches:
        order = allocations(program, launch)
        for held in (*order.first, *order.later):
            yield from _rounding(program, held)


def allocations_never_grow(program: Program) -> Iterator[Diagnostic]:
    """A block allocates no more columns at once than the time before."""
    target = program.target
    if not target.has_memory(Memory.TMEM):
        return
    for launch in program.launches:
        found = allocations(program, launch).wider
        if found is not None:
            widest = found.widest
            yield Diagnostic(
                "capacity",
                f"{widest.buffer.name} takes {found.taken} columns of Tensor Memory, more than an"
                " allocation before it",
                widest.loc,
                label=program.allocated(widest.buffer),
                expected="allocations after a T.deallocate_tmem, and those of a loop, that are no"
                " wider than those before them (PTX ISA, tcgen05.alloc)",
                got=f"{found.taken} columns",
                help="allocate the widest buffer first, or free at the end of the block",
            )


def _too_many_rows(program: Program, alloc: Alloc, rows: int) -> Diagnostic:
    shape = [int_value(e) for e in alloc.buffer.shape]
    split = f"({-(-rows // LANES)}, {LANES}, {shape[-1]})" if len(shape) == 2 else ""
    return Diagnostic(
        "shape",
        f"{alloc.buffer.name} has {rows} rows, Tensor Memory has {LANES}",
        alloc.loc,
        label=program.allocated(alloc.buffer),
        expected=f"at most {LANES} in the second to last axis, or a multiple of {LANES}: then each"
        f" {LANES} rows lie along the columns, as further axes do",
        got=shape_text(alloc.buffer),
        help=f"split the rows: shape {split}" if split else "split the rows over another axis",
    )


def _rounding(program: Program, held: Allocation) -> Iterator[Diagnostic]:
    """Columns are handed out in powers of two (PTX ISA, tcgen05.alloc)."""
    target = program.target
    capacity = target.capacity(Memory.TMEM) if target.has_memory(Memory.TMEM) else None
    over = capacity is not None and held.taken > capacity.amount
    if held.taken == held.columns or over:
        return
    names = listed([a.buffer.name for a, _ in held.members])
    takes = "take" if held.members[1:] else "takes"
    yield Diagnostic(
        "capacity",
        f"{names} {takes} {held.taken} columns of Tensor Memory, rounded up from {held.columns}",
        held.widest.loc,
        expected="a power of two, 32 at least",
        got=f"{held.columns} columns",
        severity=Severity.NOTE,
    )
