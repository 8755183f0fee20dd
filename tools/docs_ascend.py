"""docs/ascend-machine.md: the machine table of Ascend chips, and the rows of their instructions.

What enters: `targets/ascend`. What leaves: the text of the page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tilelang.isa.instr import Immediate, OperandRow
from tilelang.isa.target import Fact
from tilelang.targets.ascend.machine import MACHINES, Machine
from tilelang.targets.ascend.rows import PipeRow, rows_of

Table = Callable[[Iterable[str], Iterable[Iterable[str]]], str]


def machine_page(table: Table, note: str, operand: Callable[[OperandRow], str]) -> str:
    """The page. `table` and `operand` are those of docs.py, `note` says what writes it."""
    parts = ["# Ascend chips and their instructions\n\n", note]
    parts.append(
        "\nEvery number names the published tool, table or header that it was read from; none was"
        " checked on an NPU.\n"
    )
    for machine in MACHINES.values():
        chip = machine.chip
        parts.append(f"\n## {chip.name}: {chip.family}\n\n")
        parts.append(table(("what", "number", "source"), _numbers(machine)))
        parts.append("\n" + "\n".join(_lists(machine)) + "\n")
    parts.append(
        "\n## Instructions\n\nA row is what an `Instr` of the thread stage names, and what an"
        " emitter prints as one call. Operands are in the order of the statement; R, W are what is"
        " done to them. Scalars say how many elements, and how far apart. `mutex.*` are of the 950"
        " only.\n\n"
    )
    head = ("row", "pipe", "core", "outs", "ins", "immediates", "source")
    parts.append(table(head, _rows(operand)))
    return "".join(parts)


def _numbers(m: Machine) -> Iterator[tuple[str, str, str]]:
    chip = m.chip
    for memory, capacities in chip.memories.items():
        for c in capacities:
            when = "" if c.when.name == "ALWAYS" else f", if {c.when.value}"
            yield f"{memory.title}{when}", f"{c.amount} bytes", c.source
    for memory, fact in chip.alignments.items():
        yield f"alignment in {memory.title}", f"{fact.value} bytes", fact.source
    if chip.sync is not None:
        yield from _facts(
            ("events for each pair of pipes", chip.sync.event_ids),
            ("cross-core flags", chip.sync.flags),
            ("times that one may be raised", chip.sync.flag_count),
            ("flags of the cube core and one vector core", chip.sync.pair_flags),
            ("mutexes", chip.sync.mutexes),
        )
    yield from _facts(
        ("bias table, bytes", m.bias_table),
        ("fixpipe buffer, bytes", m.fixpipe_buffer),
        ("vector cores for each cube core", m.vectors_per_cube),
        ("bytes in a row of a fractal (C0)", m.c0_bytes),
        ("bytes of a vector instruction", m.vector_bytes),
        ("banks of UB", m.ub_banks),
        ("bytes of a bank", m.ub_bank_bytes),
    )
    for part in m.parts:
        cores = f"{part.cube_cores} cube, {part.vector_cores} vector"
        yield f"cores of {part.names}", cores, part.source


def _facts(*rows: tuple[str, Fact | None]) -> Iterator[tuple[str, str, str]]:
    for what, fact in rows:
        if fact is not None:
            yield what, str(fact.value), fact.source


def _lists(m: Machine) -> Iterator[str]:
    chip = m.chip
    written = chip.copies or frozenset()
    yield f"- Paths of the hardware ({m.paths_source}): {_sorted(map(str, m.paths))}."
    pairs = (f"{a.title} -> {b.title}" for a, b in written)
    yield f"- Copies that a program may write ({chip.copies_source}): {_sorted(pairs)}."
    if m.virtual_paths:
        yield f"- Of these, through a workspace: {_sorted(map(str, m.virtual_paths))}."
    orders = (f"{k.title} {' or '.join(f.name for f in fs)}" for k, fs in m.formats.items())
    yield f"- Formats ({m.formats_source}): {_sorted(orders)}."
    casts = (f"{a} to {b}" for a, b in chip.drains or ())
    yield f"- A drain of L0C converts ({chip.drains_source}): {_sorted(casts)}."


def _sorted(words: Iterable[str]) -> str:
    return ", ".join(sorted(words))


def _rows(operand: Callable[[OperandRow], str]) -> Iterator[tuple[str, ...]]:
    for row in rows_of("ascend950").values():
        if isinstance(row, PipeRow):
            yield (
                f"`{row.name}`",
                row.pipe.value,
                "" if row.core is None else row.core.name.lower(),
                "; ".join(map(operand, row.outs)),
                "; ".join(map(operand, row.ins)),
                "; ".join(map(_immediate, row.imm)),
                row.source,
            )


def _immediate(i: Immediate) -> str:
    choices = ", ".join(repr(c) for c in i.choices) if 0 < len(i.choices) < 9 else i.type.__name__
    return f"`{i.name}`: {choices}"
