"""Looking at buffers while a program runs.

What enters: a choice of statements and blocks. What leaves: the contents of buffers, on-chip ones
too, right after those statements. A program that nobody observes has no trace of this in its text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tilelang.emulator.storage import Array
from tilelang.emulator.unit import Unit
from tilelang.ir.tile import Stmt


class Observer(Protocol):
    """Who looks. A `Launch` stands for the end of each of its blocks."""

    def wants(self, stmt: Stmt) -> bool:
        """Whether to look after `stmt`; asked once, when the program is translated."""
        ...

    def after(self, stmt: Stmt, block: tuple[int, ...], buffers: Mapping[str, Array]) -> None:
        """`stmt` has run in `block` (x first). `buffers` are all that are in scope, by the author's
        names.

        The arrays are the program's own: copy what is kept. A buffer of which every lane (a thread,
        or an iteration of T.Parallel) has its own has the axes of the lanes in front.
        """
        ...


@dataclass
class Capture:
    """An observer that keeps copies: what the buffers held after `wanted` statements of one block,
    in order.
    """

    wanted: Callable[[Stmt], bool]
    block: tuple[int, ...] = (0,)
    names: tuple[str, ...] | None = None
    shots: list[dict[str, Array]] = field(default_factory=list[dict[str, Array]])

    def wants(self, stmt: Stmt) -> bool:
        """Whether to look after `stmt`."""
        return self.wanted(stmt)

    def after(self, stmt: Stmt, block: tuple[int, ...], buffers: Mapping[str, Array]) -> None:
        """Keep copies."""
        if block == self.block:
            names = buffers if self.names is None else [n for n in self.names if n in buffers]
            self.shots.append({n: buffers[n].copy() for n in names})


def at_line(line: int) -> Callable[[Stmt], bool]:
    """Statements that the author wrote in this line."""
    return lambda stmt: stmt.loc is not None and any(at.line == line for at in stmt.loc.chain())


def hook(u: Unit, stmt: Stmt) -> None:
    """Write the text that calls the observer after `stmt`."""
    items = ", ".join(f"{name!r}: {_array(u, name)}" for name in _visible(u))
    u.w.line(f"machine.seen({u.constant('op', stmt)}, {{{items}}})")


def _visible(u: Unit) -> Iterable[str]:
    return [n for n, s in u.stores.items() if not s.lanes or s.owner is u.domain]


def _array(u: Unit, name: str) -> str:
    s = u.stores[name]
    return (
        f"one({s.name}, {u.constant('dtype', s.buffer.dtype.numpy, s.buffer.dtype.numpy)})"
        if s.scalar
        else s.name
    )


def one(value: Any, dtype: np.dtype[Any]) -> Array:
    """A variable of the block as an array of one element."""
    return np.array([value], dtype)
