"""`tilewright scopes`: the memory scopes of every dialect and what each chip has of them.

What enters: the scope table and the chips. What leaves: tables on the terminal, or the same facts
as JSON: `scopes` with one entry per allocation function, dialect and version, or with `--compare`
`memories` with one entry per memory, and `clashes`, the strings that mean different memories.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from itertools import zip_longest

from tilelang._version import __version__
from tilelang.cli import tables
from tilelang.cli.kernels import UsageError
from tilelang.isa.target import Capacity, Chip, When
from tilelang.scopes import SCOPES, Dialect, Memory
from tilelang.targets import CHIPS
from tilelang.targets.scopes_report import ScopeEntry, clash_table, compare_table, scope_table


def scopes(*, compare: bool, as_json: bool, chip: str | None) -> int:
    """Print the tables; always 0. `UsageError` for a chip that is not known."""
    chips = CHIPS if chip is None else (_chip(chip),)
    if as_json:
        facts = _compared() if compare else _listed(chips)
        print(json.dumps({"version": __version__, **facts}, indent=2))
    elif compare:
        _show_compared()
    else:
        _show_functions(chips)
        print()
        _show_capacities(chips)
    return 0


def _chip(name: str) -> Chip:
    for chip in CHIPS:
        if name.lower() in (chip.name, *chip.aliases):
            return chip
    names = [chip.name for chip in CHIPS]
    near = difflib.get_close_matches(name.lower(), names, n=1)
    raise UsageError(
        f"unknown chip {name}",
        expected=", ".join(names),
        got=name,
        help=f"did you mean {near[0]}?" if near else "",
    )


def _listed(chips: Sequence[Chip]) -> dict[str, object]:
    return {"scopes": _entries(chips)}


def _entries(chips: Sequence[Chip]) -> list[ScopeEntry]:
    """The table; for one chip, the dialects that it runs."""
    table = scope_table(chips)
    return table if len(chips) > 1 else [entry for entry in table if entry["capacity"]]


def _compared() -> dict[str, object]:
    return {"memories": compare_table(), "clashes": clash_table()}


# ---- On the terminal -----------------------------------------------------------------------------


def _show_functions(chips: Sequence[Chip]) -> None:
    """One line per function and version, but none for what a dialect takes over unchanged."""
    reexported = {(row.dialect, row.function) for row in SCOPES if row.defined_by is not None}
    rows = [
        (
            f"{entry['dialect']} {entry['version']}",
            entry["function"],
            f"({entry['scope']})" if entry["accepted_as_input_only"] else entry["scope"],
            entry["bool_scope"] if entry["bool_scope"] != entry["scope"] else "",
            entry["memory_title"],
            entry["note"],
        )
        for entry in _entries(chips)
        if (Dialect(entry["dialect"]), entry["function"]) not in reexported
    ]
    tables.show(("dialect", "function", "scope", "for bool", "memory", "note"), rows)
    shown = {entry["dialect"] for entry in _entries(chips)}
    print()
    if any(entry["accepted_as_input_only"] for entry in _entries(chips)):
        print("A scope in brackets is declared by a later tree, and is taken as input.")
    for dialect in Dialect:
        if dialect.value in shown:
            about = dialect.about
            print(f"{dialect.value}: {about.title}, `{about.module}`, after {about.source}")
    if Dialect.ASCEND.value in shown:
        names = [name for dialect, name in reexported if dialect is Dialect.ASCEND]
        print(f"The {Dialect.ASCEND.about.title} has these unchanged: {', '.join(sorted(names))}")


def _show_capacities(chips: Sequence[Chip]) -> None:
    """One line per memory and what it is counted over, one column per chip."""
    limited = [chip for chip in chips if any(chip.memories.values())]
    kinds = dict.fromkeys(
        _kind(memory, limit)
        for memory in Memory
        for chip in limited
        for limit in chip.memories.get(memory, ())
    )
    rows = [(*kind, *(_amount(chip, kind) for chip in limited)) for kind in kinds]
    tables.show(("memory", "unit", "per", *(chip.name for chip in limited)), rows)
    if len(chips) == 1:
        limits = [limit for each in chips[0].memories.values() for limit in each]
        for source in dict.fromkeys(limit.source for limit in limits):
            print(f"source: {source}")


def _kind(memory: Memory, limit: Capacity) -> tuple[str, str, str]:
    when = "" if limit.when is When.ALWAYS else f", if {limit.when.value}"
    per = limit.per.value.removesuffix(", shared by the blocks resident on it")
    return memory.title, limit.unit.value.partition(" of ")[0], per + when


def _amount(chip: Chip, kind: tuple[str, str, str]) -> str:
    """The limit of that kind on a chip, `-` where it has none."""
    for memory, limits in chip.memories.items():
        for limit in limits:
            if _kind(memory, limit) == kind:
                return f"{limit.amount:,}"
    return "-"


def _show_compared() -> None:
    rows: list[tuple[str, ...]] = []
    for entry in compare_table():
        columns = [
            [
                f"{each['function']} '{each['scope']}'" + (" by use" if each["by_use"] else "")
                for each in entry["spellings"].get(dialect.value, [])
            ]
            for dialect in Dialect
        ]
        lines = list(zip_longest(*(column or ["-"] for column in columns), fillvalue=""))
        titles = [entry["memory_title"]] + [""] * (len(lines) - 1)
        rows += [(title, *line) for title, line in zip(titles, lines, strict=True)]
    tables.show(("memory", *(f"{d.value} {d.about.version}" for d in Dialect)), rows)
    print()
    clashes = [
        (f"'{each['scope']}'", *(each["memories"].get(d.value, "-") for d in Dialect))
        for each in clash_table()
    ]
    tables.show(("one string, several memories", *(d.value for d in Dialect)), clashes)
