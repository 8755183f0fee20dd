"""Where the elements of a tile lie in shared memory, so that its readers meet no bank conflicts.

What enters: the rows and columns of a tile and the size of its elements. What leaves: a
`Placement`. Rows lie one after the other, in panels of columns where they are wider than a panel;
within a row, groups of 16 bytes are exchanged by an exclusive or with the row, as the hardware's
own swizzles do (PTX ISA, "Shared Memory Matrix Layout").
"""

from __future__ import annotations

from dataclasses import dataclass

BANKS = 128
"""Bytes that shared memory serves at once."""

GROUP = 16
"""Bytes that stay together: a row of `ldmatrix`, the widest access of a thread."""


@dataclass(frozen=True)
class Placement:
    """A tile of `rows` by `columns` elements, `group` of them in 16 bytes.

    `span` groups are exchanged among each other (1: none), and a panel is `panel` columns wide.
    """

    rows: int
    columns: int
    group: int
    span: int
    panel: int

    @property
    def turn(self) -> int:
        """How many rows have their groups exchanged in the same way."""
        return BANKS // GROUP // self.span

    def offset(self, row: int, column: int) -> int:
        """The place of an element, counted in elements."""
        panel, inside = divmod(column, self.panel)
        chunk, rest = divmod(inside, self.group)
        chunk ^= row // self.turn % self.span
        return panel * self.rows * self.panel + row * self.panel + chunk * self.group + rest

    def key(self) -> tuple[int, ...]:
        """The numbers, as an annotation keeps them."""
        return (self.rows, self.columns, self.group, self.span, self.panel)


def conflict_free(rows: int, columns: int, bits: int) -> Placement | None:
    """The placement with which 8 rows of 16 bytes, one under the other, lie in different banks.

    None for rows that are not whole groups of 16 bytes.
    """
    group = GROUP * 8 // bits
    if columns % group or not columns:
        return None
    groups = columns // group
    span = 8
    while groups % span:
        span //= 2
    return Placement(rows, columns, group, span, columns)


def paneled(rows: int, columns: int, bits: int) -> Placement | None:
    """Panels of rows of 128 bytes with the hardware's swizzle of 128 bytes, or narrower where the
    tile is: what wgmma and the Tensor Memory Accelerator read and write. None for another width.
    """
    group = GROUP * 8 // bits
    for span in (8, 4, 2):
        panel = group * span
        if columns % panel == 0 and columns:
            return Placement(rows, columns, group, span, panel)
    return None
