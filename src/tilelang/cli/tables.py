"""Tables on a terminal: rows of text go in, aligned columns come out.

`rich` draws them where the output is a terminal, and is imported only then; elsewhere the columns
are plain text, so that a pipe or a file gets lines that other tools can read.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

_GAP = "  "


def show(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print one table to standard output."""
    if sys.stdout.isatty():
        _drawn(head, rows)
    else:
        print("\n".join(aligned(head, rows)))


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a plain table; columns of numbers are aligned to the right."""
    table = [list(head), *(list(row) for row in rows)]
    widths = [max(len(line[n]) for line in table) for n in range(len(head))]
    right = [_numeric([row[n] for row in rows]) for n in range(len(head))]
    lines: list[str] = []
    for line in table:
        cells = [
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ]
        lines.append(_GAP.join(cells).rstrip())
    return lines


def _numeric(cells: Sequence[str]) -> bool:
    return bool(cells) and all(cell[:1].isdigit() or cell in ("", "-") for cell in cells)


def _drawn(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    # The import costs more than the rest of a command, so it is paid only where it shows.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for n, name in enumerate(head):
        numeric = _numeric([row[n] for row in rows])
        table.add_column(name, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)
