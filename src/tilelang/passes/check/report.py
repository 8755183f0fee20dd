"""The memory report: what each buffer takes of which memory, and what the chip has.

What enters: a `Program`. What leaves: a `MemoryReport`, as text or as plain data. A buffer takes
its memory from its allocation to its last use (Tensor Memory: to `T.deallocate_tmem` or the end of
its block), so buffers that are never live together do not add up. Bytes are counted without the
padding that layouts may add; registers are 32-bit, per thread.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilelang.errors import Loc
from tilelang.ir.expr import Buffer, int_value
from tilelang.ir.tile import (
    Alloc,
    Annotate,
    For,
    Free,
    Launch,
    Parallel,
    Pipelined,
    Stmt,
    View,
    While,
)
from tilelang.isa.target import Capacity, Per, Target
from tilelang.passes.check.program import (
    COPIES,
    Program,
    byte_count,
    element_count,
    shape_text,
)
from tilelang.passes.check.walk import DEFAULT_THREADS
from tilelang.passes.lower_copies import view_roots
from tilelang.passes.tensor_columns import Columns, Order, columns_asked, is_packed, order_of
from tilelang.scopes import Memory, Unit, facts, is_static

CELL_BITS = 32
"""Bits of a register, and of a cell of Tensor Memory (PTX ISA, Tensor Memory)."""

LANES, COLUMNS = 128, 512
"""Rows and columns of the Tensor Memory of a block (PTX ISA, Tensor Memory)."""


@dataclass(frozen=True)
class Row:
    """What one buffer takes.

    `amount` is in the unit of the memory's pool: bytes, registers of one thread, or columns as
    rounded by the hardware, `asked` columns being what its shape needs; columns `inside` of those
    of another buffer cost nothing. `stages` is how many copies of it a T.Pipelined loop asks for.
    None stands for a size that launch binds.
    """

    name: str
    scope: str
    memory: Memory
    shape: str
    dtype: str
    bytes: int | None
    amount: int | None
    asked: int | None = None
    inside: str | None = None
    stages: int = 1
    live: tuple[int, int] = (0, 0)
    loc: Loc | None = None

    def to_json(self) -> dict[str, Any]:
        """The row as plain data."""
        return {
            "buffer": self.name,
            "scope": self.scope,
            "memory": self.memory.value,
            "shape": self.shape,
            "dtype": self.dtype,
            "bytes": self.bytes,
            "amount": self.amount,
            "unit": facts(self.memory).unit.value,
            "asked": self.asked,
            "inside": self.inside,
            "stages": self.stages,
            "line": self.loc.line if self.loc is not None else None,
        }


@dataclass(frozen=True)
class Total:
    """What a launch takes of one memory at most, over `per`, against what the chip has.

    `used` counts buffers that are live together, `declared` all of them, `staged` those live
    together with every stage that T.Pipelined asks for. `rows` are the buffers of the peak.
    """

    memory: Memory
    per: Per
    unit: Unit
    used: int
    declared: int
    staged: int
    capacity: Capacity | None
    rows: tuple[Row, ...]

    @property
    def fits(self) -> bool:
        """Whether the chip has that much, or no limit."""
        return self.capacity is None or self.used <= self.capacity.amount

    def to_json(self) -> dict[str, Any]:
        """The total as plain data."""
        return {
            "memory": self.memory.value,
            "per": self.per.value,
            "unit": self.unit.value,
            "used": self.used,
            "declared": self.declared,
            "staged": self.staged,
            "capacity": None if self.capacity is None else self.capacity.amount,
            "source": None if self.capacity is None else self.capacity.source,
            "fits": self.fits,
            "buffers": [row.name for row in self.rows],
        }


@dataclass(frozen=True)
class LaunchReport:
    """The buffers of one launch, and what they take together of each memory."""

    threads: int
    threads_given: bool
    rows: tuple[Row, ...]
    totals: tuple[Total, ...]
    loc: Loc | None = None

    def total(self, memory: Memory, per: Per = Per.BLOCK) -> Total | None:
        """The total of the pool that `memory` draws on."""
        pool = facts(memory).pool
        return next((t for t in self.totals if t.memory is pool and t.per is per), None)


@dataclass(frozen=True)
class MemoryReport:
    """The report of a function: one part for each launch."""

    function: str
    target: str
    launches: tuple[LaunchReport, ...]

    def to_json(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "function": self.function,
            "target": self.target,
            "launches": [
                {
                    "threads": part.threads,
                    "threads_given": part.threads_given,
                    "buffers": [row.to_json() for row in part.rows],
                    "totals": [total.to_json() for total in part.totals],
                }
                for part in self.launches
            ],
        }

    def render(self) -> str:
        """The report as text."""
        parts: list[str] = [f"memory of {self.function} on {self.target}"]
        for number, part in enumerate(self.launches):
            if len(self.launches) > 1:
                parts.append(f"launch {number + 1}")
            if part.total(Memory.REGISTERS, Per.THREAD) is not None:
                chosen = "" if part.threads_given else " (chosen by the target)"
                parts.append(f"{part.threads} threads per block{chosen}")
            parts.append(table(part.rows))
            parts += [total_text(total) for total in part.totals]
        return "\n".join(parts)


# Text --------------------------------------------------------------------------------------------

_HEAD = ("buffer", "scope", "memory", "shape", "dtype", "bytes", "takes")


def table(rows: Sequence[Row]) -> str:
    """The rows as a plain text table."""
    lines = [_HEAD, *(_cells(row) for row in rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(_HEAD))]
    right = {_HEAD.index("bytes")}
    return "\n".join(
        "  ".join(
            cell.rjust(w) if n in right else cell.ljust(w)
            for n, (cell, w) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _cells(row: Row) -> tuple[str, ...]:
    size = "by launch" if row.bytes is None else str(row.bytes)
    place = facts(facts(row.memory).pool).title
    return (row.name, row.scope, place, row.shape, row.dtype, size, _takes(row))


def _takes(row: Row) -> str:
    if row.amount is None:
        return "by launch"
    unit = facts(row.memory).unit
    if unit is Unit.REGISTERS:
        return f"{row.amount} register{'s' * (row.amount != 1)} per thread"
    if row.inside is not None:
        return f"{row.asked} columns of those of {row.inside}"
    if unit is Unit.COLUMNS:
        rounded = f" (rounded up from {row.asked})" if row.asked != row.amount else ""
        return f"{row.amount} columns{rounded}"
    return f"{row.stages} x {row.amount} bytes" if row.stages > 1 else f"{row.amount} bytes"


_UNITS = {Unit.BYTES: "bytes", Unit.REGISTERS: "registers", Unit.COLUMNS: "columns"}
_OVER = {Per.THREAD: " per thread", Per.BLOCK_STATIC: ", static"}


def total_text(total: Total) -> str:
    """`shared memory: 65536 of 232448 bytes`."""
    limit = "" if total.capacity is None else f" of {total.capacity.amount}"
    text = f"{total.memory.title}{_OVER.get(total.per, '')}: {total.used}{limit}"
    text += f" {_UNITS[total.unit]}"
    further: list[str] = []
    if total.declared > total.used:
        further.append(f"{total.declared} if no storage is used again")
    if total.staged > total.used:
        further.append(f"{total.staged} with all stages of T.Pipelined")
    return text + (f" ({', '.join(further)})" if further else "")


# The report --------------------------------------------------------------------------------------


def report_of(program: Program) -> MemoryReport:
    """The memory report of a program."""
    parts = tuple(_launch(program, launch) for launch in program.launches)
    return MemoryReport(program.fn.name, str(program.target), parts)


def _launch(program: Program, launch: Launch) -> LaunchReport:
    threads = math.prod(launch.threads) if launch.threads else DEFAULT_THREADS
    order = allocations(program, launch)
    spans = _live_spans(program, launch, order)
    stages = _stages(program, launch)
    rows: list[Row] = []
    for site in program.sites:
        stmt = site.stmt
        if isinstance(stmt, Alloc) and site.place.launch in (launch, None):
            name = stmt.buffer.name
            row = row_of(program, stmt, threads, order)
            rows.append(replace(row, live=spans[name], stages=stages.get(name, 1)))
    placed = _placed(program, launch)
    totals = tuple(_totals(program, [row for row in rows if row.name not in placed]))
    return LaunchReport(threads, launch.threads is not None, tuple(rows), totals, launch.loc)


def _placed(program: Program, launch: Launch) -> set[str]:
    """The buffers that the author gave addresses: they may share bytes, and are checked one by one
    (`cores.addresses_fit`).
    """
    return {
        buffer.name
        for site in program.sites
        if isinstance(site.stmt, Annotate)
        and site.stmt.kind == "address"
        and site.place.launch is launch
        for buffer in site.stmt.buffers
    }


def row_of(program: Program, alloc: Alloc, threads: int, order: Order) -> Row:
    """What one buffer takes in a block of `threads` threads that allocates Tensor Memory like this
    (`allocations`).
    """
    buffer = alloc.buffer
    memory = program.memory(buffer)
    size = byte_count(buffer)
    asked = inside = None
    amount = size
    unit = facts(memory).unit
    if unit is Unit.REGISTERS and size is not None:
        share = threads if facts(memory).divided else 1
        amount = _ceildiv(_ceildiv(size, CELL_BITS // 8), share)
    elif unit is Unit.COLUMNS:
        asked, held = columns(program, buffer), order.of(buffer.name)
        amount = None if held is None else held.taken
        if held is not None and held.widest is not alloc:
            amount, inside = 0, held.widest.buffer.name
    return Row(
        buffer.name,
        buffer.scope,
        memory,
        shape_text(buffer),
        str(buffer.dtype),
        size,
        amount,
        asked,
        inside,
        loc=alloc.loc,
    )


def _ceildiv(a: int, b: int) -> int:
    return -(-a // b)


def columns(program: Program, buffer: Buffer) -> int | None:
    """The columns of Tensor Memory that the shape needs; None where the last axes are not known.

    The second to last axis runs over the lanes, all others along the columns.
    """
    count = element_count(buffer)
    lanes = int_value(buffer.shape[-2]) if buffer.rank > 1 else 1
    if count is None or not lanes:
        return None if count is None else 0
    bits = buffer.dtype.bits * buffer.dtype.lanes
    views = (s.stmt.buffer for s in program.sites if isinstance(s.stmt, View))
    mixed = any(
        program.root(b).name == buffer.name and b.dtype.bits != buffer.dtype.bits for b in views
    )
    packed = is_packed(program.gemm_roles(buffer), mixed=mixed)
    return columns_asked(count, lanes, bits, packed=packed)


def allocations(program: Program, launch: Launch) -> Order:
    """How a launch allocates its buffers in Tensor Memory, on a chip that has it."""
    target = program.target
    capacity = target.capacity(Memory.TMEM) if target.has_memory(Memory.TMEM) else None

    def asked(alloc: Alloc) -> int | None:
        tensor = program.declared(alloc.buffer) is Memory.TMEM
        return columns(program, alloc.buffer) if tensor else None

    given = Columns(
        asked,
        lambda n: rounded_columns(target, n),
        COLUMNS if capacity is None else capacity.amount,
        view_roots(program.fn),
    )
    return order_of(launch.body, given)


def rounded_columns(target: Target, asked: int) -> int:
    """The columns that a request takes on this chip, or would on any chip with Tensor Memory."""
    if target.chip is not None and target.has_memory(Memory.TMEM):
        capacity = target.capacity(Memory.TMEM)
        if capacity is not None:
            return capacity.rounded(asked)
    return max(32, 1 << (asked - 1).bit_length()) if asked > 0 else 0


def _stages(program: Program, launch: Launch) -> dict[str, int]:
    """How many copies of a buffer its T.Pipelined loop asks for: those that copies fill there."""
    found: dict[str, int] = {}
    for site in program.sites:
        if site.place.launch is not launch or not isinstance(site.stmt, COPIES):
            continue
        loops = [s for s in site.place.path if isinstance(s, Pipelined)]
        src, dst = site.stmt.src.buffer, site.stmt.dst.buffer
        from_global = program.memory(src) is Memory.GLOBAL
        if loops and from_global and facts(program.memory(dst)).unit is Unit.BYTES:
            name = program.root(dst).name
            found[name] = max(found.get(name, 1), loops[-1].num_stages)
    return found


# Lifetimes ---------------------------------------------------------------------------------------

_LOOPS = (For, Parallel, Pipelined, While)


def _live_spans(program: Program, launch: Launch, plan: Order) -> dict[str, tuple[int, int]]:
    """The first and last statement for which each buffer of a launch needs its storage.

    A buffer that is allocated outside a loop and used inside is live for the whole loop; one that
    is never used, for the rest of its block.
    """
    at = {id(s.stmt): s for s in program.sites}
    spans: dict[str, tuple[int, int]] = {}
    homes: dict[str, tuple[Stmt, ...]] = {}
    ends: dict[str, int] = {}
    for site in program.sites:
        if isinstance(site.stmt, Alloc) and site.place.launch in (launch, None):
            name = site.stmt.buffer.name
            homes[name] = site.place.path
            around = site.place.path
            ends[name] = at[id(around[-1])].last if around else program.sites[-1].order
    for name, order, path in _uses(program):
        if name not in homes:
            continue
        loops = [s for s in path[len(homes[name]) :] if isinstance(s, _LOOPS)]
        first = at[id(loops[0])].order if loops else order
        last = at[id(loops[0])].last if loops else order
        known = spans.get(name, (first, last))
        spans[name] = (min(known[0], first), max(known[1], last))
    by_block = {n for n in homes if program.memory(program.allocs[n].buffer) is Memory.TMEM}
    freed = {
        program.root(s.stmt.buffer).name: s.order for s in program.sites if isinstance(s.stmt, Free)
    }
    for name in homes:
        start = at[id(program.allocs[name])].order
        if name in by_block:
            held = plan.of(name)
            sure = held is not None and held.sure
            spans[name] = (start, freed.get(name, ends[name]) if sure else ends[name])
        spans.setdefault(name, (start, ends[name]))
    return spans


def _uses(program: Program) -> Iterator[tuple[str, int, tuple[Stmt, ...]]]:
    for touch in program.touches:
        yield program.root(touch.buffer).name, touch.site.order, touch.place.path


# Totals ------------------------------------------------------------------------------------------


def _totals(program: Program, rows: Sequence[Row]) -> Iterator[Total]:
    pools = dict.fromkeys(facts(row.memory).pool for row in rows)
    for pool in pools:
        own = [row for row in rows if facts(row.memory).pool is pool and row.amount is not None]
        if not facts(pool).on_chip or not own:
            continue
        per = Per.THREAD if facts(pool).unit is Unit.REGISTERS else Per.BLOCK
        yield _total(program.target, pool, per, own)
        static = [r for r in own if _counts_as_static(program, r)]
        if static:
            yield _total(program.target, pool, Per.BLOCK_STATIC, static)


def _counts_as_static(program: Program, row: Row) -> bool:
    if facts(row.memory).pool is not Memory.SHARED:
        return False
    return is_static(program.dialect, row.scope)


def _total(target: Target, pool: Memory, per: Per, rows: Sequence[Row]) -> Total:
    capacity = target.capacity(pool, per) if target.has_memory(pool) else None
    at = max((row.live[0] for row in rows), key=lambda t: _live_at(rows, t))
    peak = tuple(row for row in rows if row.live[0] <= at <= row.live[1])
    staged = max(_live_at(rows, row.live[0], staged=True) for row in rows)
    return Total(
        pool,
        per,
        facts(pool).unit,
        _sum(peak),
        _sum(rows),
        staged,
        capacity,
        peak,
    )


def _sum(rows: Iterable[Row], *, staged: bool = False) -> int:
    return sum((row.amount or 0) * (row.stages if staged else 1) for row in rows)


def _live_at(rows: Sequence[Row], at: int, *, staged: bool = False) -> int:
    return _sum((r for r in rows if r.live[0] <= at <= r.live[1]), staged=staged)
