"""The table of memory scopes with capacities, as plain data for `tilewright scopes` and the docs.

What enters: the scope table and the chips. What leaves: lists of dicts of strings, numbers, lists
and None, ready for `json.dumps`: `scope_table` by allocation function, `compare_table` by memory,
`clash_table` by scope string.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from tilelang.isa.target import Capacity, Chip, Per, Target
from tilelang.scopes import (
    MEMORIES,
    SCOPES,
    STATIC_SHARED,
    Dialect,
    Memory,
    ScopeRow,
    facts,
    memory_of,
    rows,
)
from tilelang.targets import CHIPS


class CapacityEntry(TypedDict):
    """One limit of a memory on a chip. `scope` is set where it holds for one scope string only."""

    memory: str
    amount: int
    unit: str
    per: str
    when: str
    scope: str | None
    source: str


class ScopeEntry(TypedDict):
    """One allocation function of one dialect and version.

    `bool_scope` is what dtype bool declares. `explicit` are the strings `scope=` takes. In
    `capacity`, a chip that runs the dialect maps to its limits: a list that is empty if the memory
    is there without a published limit, None if the chip lacks the memory.
    """

    dialect: str
    module: str
    tree: str
    version: str
    function: str
    scope: str
    bool_scope: str
    memory: str
    memory_title: str
    explicit: list[str]
    accepted_as_input_only: bool
    capacity: dict[str, list[CapacityEntry] | None]
    note: str
    source: str


class Spelling(TypedDict):
    """How one dialect spells a memory; `by_use` if the buffer's uses decide among several."""

    function: str
    scope: str
    by_use: bool


class CompareEntry(TypedDict):
    """The spellings of one memory, by dialect; an empty list where a dialect has none."""

    memory: str
    memory_title: str
    spellings: dict[str, list[Spelling]]


class ClashEntry(TypedDict):
    """A scope string that means different memories, by dialect."""

    scope: str
    memories: dict[str, str]


def scope_table(chips: Sequence[Chip] = CHIPS) -> list[ScopeEntry]:
    """Every allocation function of every dialect and version, with its capacity on each chip.

    Strings that only a later tree declares come as entries of that version, marked
    `accepted_as_input_only`.
    """
    table: list[ScopeEntry] = []
    for row in SCOPES:
        bool_scope = row.scope if row.bool_scope is None else row.bool_scope
        entry = _entry(row, chips, bool_scope)
        table.append(entry)
        for newer in row.newer:
            later = entry.copy()
            later["version"] = newer.version
            later["scope"] = newer.scope
            later["bool_scope"] = newer.bool_scope or newer.scope
            later["accepted_as_input_only"] = True
            later["source"] = f"{row.dialect.about.tree} {newer.version}"
            later["note"] = f"taken as input; `{row.function}` declares '{row.scope}' here"
            table.append(later)
    return table


def compare_table() -> list[CompareEntry]:
    """One entry for each memory that an allocation function gives: each dialect's spellings."""
    table: list[CompareEntry] = []
    for memory, about in MEMORIES.items():
        if about.resolves_to:
            continue
        spellings = {dialect.value: _spellings(dialect, memory) for dialect in Dialect}
        if any(spellings.values()):
            table.append(
                {"memory": memory.value, "memory_title": about.title, "spellings": spellings}
            )
    return table


def clash_table() -> list[ClashEntry]:
    """The scope strings that do not mean the same memory in all dialects that know them."""
    table: list[ClashEntry] = []
    for scope in dict.fromkeys(scope for row in SCOPES for scope in _strings(row)):
        meant = {
            dialect.value: memory_of(dialect, scope).value
            for dialect in Dialect
            if any(scope in _strings(row) for row in rows(dialect))
        }
        if len(set(meant.values())) > 1:
            table.append({"scope": scope, "memories": meant})
    return table


def _strings(row: ScopeRow) -> tuple[str, ...]:
    """Every scope string that a buffer of this row can declare or be given."""
    further = (row.bool_scope or row.scope, *row.synonyms, *(newer.scope for newer in row.newer))
    return (row.scope, *further)


def _entry(row: ScopeRow, chips: Sequence[Chip], bool_scope: str) -> ScopeEntry:
    about = row.dialect.about
    return {
        "dialect": row.dialect.value,
        "module": about.module,
        "tree": about.tree,
        "version": row.version,
        "function": row.function,
        "scope": row.scope,
        "bool_scope": bool_scope,
        "memory": row.memory.value,
        "memory_title": row.memory.title,
        "explicit": list(dict.fromkeys((row.scope, *row.explicit, *row.synonyms))),
        "accepted_as_input_only": False,
        "capacity": {
            chip.name: _limits(chip, row.memory)
            for chip in chips
            if Target("native", chip.backend, chip).runs(row.dialect)
        },
        "note": row.note,
        "source": row.source,
    }


def _limits(chip: Chip, memory: Memory) -> list[CapacityEntry] | None:
    """The limits of `memory` on `chip`; of each memory it may become if its use decides."""
    if not chip.has_memory(memory):
        return None
    choices = facts(memory).resolves_to or (memory,)
    return [
        _capacity(choice, capacity) for choice in choices for capacity in chip.capacities(choice)
    ]


def _capacity(memory: Memory, capacity: Capacity) -> CapacityEntry:
    return {
        "memory": facts(memory).pool.value,
        "amount": capacity.amount,
        "unit": capacity.unit.value,
        "per": capacity.per.value,
        "when": capacity.when.value,
        "scope": STATIC_SHARED if capacity.per is Per.BLOCK_STATIC else None,
        "source": capacity.source,
    }


def _spellings(dialect: Dialect, memory: Memory) -> list[Spelling]:
    return [
        {"function": row.function, "scope": row.scope, "by_use": row.memory is not memory}
        for row in rows(dialect)
        if memory in (row.memory, *facts(row.memory).resolves_to)
    ]
