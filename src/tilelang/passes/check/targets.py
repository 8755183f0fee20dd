"""Whether the target can run the program at all: its dialect, its memories, its launches.

What enters: a `Program`. What leaves: errors for a dialect that the chip does not run, memories it
lacks, and launches with more threads or clusters than it has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tilelang.errors import Diagnostic
from tilelang.ir.expr import Buffer, int_value
from tilelang.ir.tile import Alloc, Launch
from tilelang.isa.target import Capability, Target
from tilelang.passes.check.program import Program
from tilelang.scopes import Dialect, counterpart, rows


def dialect_runs(program: Program) -> Iterator[Diagnostic]:
    """The chip runs kernels of the function's dialect; else its own spellings are named."""
    target, dialect = program.target, program.dialect
    if target.chip is None or target.runs(dialect):
        return
    chip, about = target.chip, dialect.about
    able = program.chips_with(lambda t: t.runs(dialect))
    own = next((d for d in Dialect if target.runs(d)), None)
    respelled = _respelled(program, own) if own is not None else {}
    first = next(iter(respelled), None) or next(iter(program.launches), None) or program.fn
    ways = [f"compile for {able}"] if able else []
    if own is not None:
        ways.append(f"write it in the {own.about.title} (`{own.about.module}`)")
    if respelled:
        ways[-1] += f": {', '.join(dict.fromkeys(respelled.values()))}"
    yield Diagnostic(
        "target",
        f"the {about.title} does not run on {chip.name} ({chip.family})",
        first.loc,
        expected=f"the {own.about.title}" if own is not None else "another target",
        got=f"a kernel of the {about.title}{f', which is for {able}' if able else ''}",
        help=", or ".join(ways),
    )


def _respelled(program: Program, own: Dialect) -> dict[Alloc, str]:
    """The allocations that `own` spells otherwise, with its spelling."""
    found: dict[Alloc, str] = {}
    for alloc in program.allocs.values():
        row = program.row(alloc.buffer)
        spelling = counterpart(row.function, own, program.dialect) if row is not None else None
        if row is None or spelling is None:
            continue
        if spelling != row.function:
            scope = next(r.scope for r in rows(own) if r.function == spelling)
            found[alloc] = f"`T.{spelling}` (scope {scope}) for `T.{row.function}`"
    return found


def memories_exist(program: Program) -> Iterator[Diagnostic]:
    """The chip has the memory of every buffer. Silent where the dialect itself is refused."""
    target = program.target
    if target.chip is None or not target.runs(program.dialect):
        return
    for alloc in program.allocs.values():
        memory = program.declared(alloc.buffer)
        if target.has_memory(memory):
            continue
        able = program.chips_with(lambda t, m=memory: t.has_memory(m))
        nearest = program.substitute(memory)
        yield Diagnostic(
            "scope",
            f"{target.chip.name} ({target.chip.family}) has no {memory.title}",
            alloc.loc,
            label=program.allocated(alloc.buffer),
            expected=f"a chip with {memory.title}{': ' + able if able else ''}",
            got=f"target '{target}'",
            help=_instead(alloc.buffer, nearest),
        )


def _instead(buffer: Buffer, function: str | None) -> str:
    if function is None:
        return ""
    return f"allocate {buffer.name} with `T.{function}`, or compile for a chip that has it"


def launches_fit(program: Program) -> Iterator[Diagnostic]:
    """Threads per block and clusters are within what the chip has."""
    for launch in program.launches:
        yield from _threads_fit(program.target, launch)
        yield from _clusters_fit(program, launch)


def _threads_fit(target: Target, launch: Launch) -> Iterator[Diagnostic]:
    threads = launch.threads or ()
    if any(extent < 1 for extent in threads):
        yield Diagnostic(
            "value",
            "a block without threads",
            launch.loc,
            expected="thread extents >= 1",
            got=f"threads={_extents(threads)}",
        )
    limits = target.chip.threads if target.chip is not None else None
    if limits is not None and math.prod(threads) > limits.per_block.value:
        yield Diagnostic(
            "value",
            f"{math.prod(threads)} threads per block",
            launch.loc,
            expected=f"at most {limits.per_block.value} on {target}",
            got=f"threads={_extents(threads)}",
            help="use fewer threads; each then works on more elements of a tile",
        )


def _clusters_fit(program: Program, launch: Launch) -> Iterator[Diagnostic]:
    if not launch.cluster:
        return
    if program.target.chip is not None and not _has_clusters(program.target):
        able = program.chips_with(_has_clusters)
        yield Diagnostic(
            "target",
            f"{program.target.chip.name} ({program.target.chip.family}) has no clusters of blocks",
            launch.loc,
            expected=f"a chip with clusters{': ' + able if able else ''}",
            got=f"cluster_dims={_extents(launch.cluster)}",
            help="leave `cluster_dims` out",
        )
    for axis, size in enumerate(launch.cluster):
        known = int_value(launch.grid[axis]) if axis < len(launch.grid) else 1
        if known is not None and known % size:
            yield Diagnostic(
                "value",
                f"axis {axis} of the grid is not made of whole clusters",
                launch.loc,
                expected=f"a multiple of {size}",
                got=str(known),
            )


def _has_clusters(target: Target) -> bool:
    return target.supports(Capability.CLUSTER)


def _extents(extents: tuple[int, ...]) -> str:
    return str(extents[0]) if len(extents) == 1 else f"({', '.join(map(str, extents))})"
