"""What instructions do: functions by the name of their row, and what they are given.

What enters: `@row("family.*")` above a function. What leaves: `meaning(name)`, the function of a
row. A function takes a `Use`, and returns the values of its results, or nothing. One that may wait,
or after which others may go first, is a generator: it yields waits, or None.

To add instructions, write a module with such functions and name it in `rows/__init__.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.errors import Loc, TileError, error
from tilelang.simulator.gpu.arrays import Mask, Place, Values, Window
from tilelang.simulator.gpu.block import Block
from tilelang.simulator.gpu.group import Group

Meaning = Callable[["Use"], Any]

_MEANINGS: dict[str, Meaning] = {}
_FAMILIES: dict[str, Meaning] = {}


def row(*names: str) -> Callable[[Meaning], Meaning]:
    """Registers a function for rows: whole names, or beginnings of names that end in `*`."""

    def register(function: Meaning) -> Meaning:
        for name in names:
            table = _FAMILIES if name.endswith("*") else _MEANINGS
            table[name.removesuffix("*")] = function
        return function

    return register


def meaning(name: str) -> Meaning | None:
    """The function of a row: that of its name, else that of the longest beginning; None if none."""
    found = _MEANINGS.get(name)
    if found is not None:
        return found
    fits = [stem for stem in _FAMILIES if name.startswith(stem)]
    return _FAMILIES[max(fits, key=len)] if fits else None


ENDS: list[Callable[[Block], None]] = []
"""What is looked at when a block has ended; see `at_end`."""


def at_end(function: Callable[[Block], None]) -> Callable[[Block], None]:
    """Registers a function that reports what a block has left over."""
    ENDS.append(function)
    return function


def is_steps(function: Meaning) -> bool:
    """Whether a function yields."""
    return inspect.isgeneratorfunction(function)


@dataclass(frozen=True)
class Facts:
    """What is known of a statement before it runs: the row, immediates, the dtypes of its results,
    the author's line, and the sites of what it reads and writes.
    """

    row: str
    imm: dict[str, Any]
    results: tuple[DType, ...]
    loc: Loc | None
    site: int
    sites: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.row if self.loc is None else f"{self.row} ({self.loc})"

    @property
    def parts(self) -> list[str]:
        """The words of the row's name."""
        return self.row.split(".")


@dataclass
class Use:
    """One use of an instruction: by the lanes of `mask` of a group, with operands in order.

    An operand is a `Place`, a value (one for all lanes, or one for each), or a tensor map.
    """

    group: Group
    mask: Mask | None
    facts: Facts
    outs: Sequence[Any]
    ins: Sequence[Any]

    @property
    def loc(self) -> Loc | None:
        """The author's line."""
        return self.facts.loc

    @property
    def imm(self) -> dict[str, Any]:
        """The immediates by name."""
        return self.facts.imm

    @property
    def site(self) -> int:
        """The number of the statement's place."""
        return self.facts.site

    @property
    def lanes(self) -> Values:
        """The numbers of the lanes that take part, in the group."""
        return np.flatnonzero(self.group.lanes(self.mask))

    def out_site(self, k: int) -> int:
        """The number of the place where an out is written."""
        return self.facts.sites[k]

    def in_site(self, k: int) -> int:
        """The number of the place where an in is read."""
        return self.facts.sites[len(self.outs) + k]

    def value(self, k: int, dtype: Any = None) -> Values:
        """A scalar operand, for each lane of the group."""
        return self.group.each(self.ins[k], dtype)

    def read(self, k: int) -> Values:
        """The elements of an in, (count, lanes)."""
        return self.group.elements(self.ins[k], self.mask, self.in_site(k))

    def read_out(self, k: int) -> Values:
        """The elements of an out that is updated, (count, lanes)."""
        return self.group.elements(self.outs[k], self.mask, self.out_site(k))

    def write(self, k: int, values: Values) -> None:
        """Set the elements of an out."""
        self.group.put(self.outs[k], values, self.mask, self.out_site(k))

    def offsets(self, place: Place, site: int) -> Values:
        """Byte offsets of an operand in its memory, for the lanes that take part."""
        if not isinstance(place.array, Window):
            raise self.refused("takes memory")
        return self.group.where(place.array, place.index, place.count, self.mask, site)

    def fault(self, kind: str, message: str, **facts: Any) -> TileError:
        """An error at this place."""
        return error(kind, message, self.loc, **facts)

    def refused(self, why: str) -> TileError:
        """The error of what is not modelled."""
        return self.fault(
            "target",
            f"the simulator cannot run {self.facts.row} like this: it {why}",
            help="target='emulate:<chip>' runs the kernel's meaning under that chip's rules",
        )

    def whole_warps(self) -> list[int]:
        """The numbers of the warps, in the group, that take part; all lanes of each must be there.
        """  # fmt: skip
        here = self.group.lanes(self.mask).reshape(-1, 32)
        gone = self.group.returned.reshape(-1, 32)
        part = here.any(axis=1) & ~(here | gone).all(axis=1)
        if part.any():
            first = int(np.argmax(part))
            raise self.fault(
                "divergence",
                f"{self.facts.row} is reached by a part of warp {self.group.warps[first]}",
                expected="all threads of the warp",
                got=f"{int(here[first].sum())} of them",
            )
        return np.flatnonzero(here.any(axis=1)).tolist()
