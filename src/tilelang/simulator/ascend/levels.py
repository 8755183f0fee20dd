"""What of a kernel is the same in every block: scalars that several blocks may share.

What enters: a kernel of the thread stage. What leaves: for each expression its `Level`, and the
functions that the text of a core calls where a value may be an array with one element for each
block (a lane).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.ir.expr import Expr, Var
from tilelang.ir.thread import Elem, Kernel, Space, Write
from tilelang.ir.tile import Let

_OWN = (Space.REGISTER, Space.LOCAL, Space.SHARED)


class Level(enum.IntEnum):
    """The same in all blocks; made of the number of the block; read from memory."""

    SAME = 0
    BLOCK = 1
    READ = 2


class Levels:
    """The levels of the expressions of one kernel."""

    def __init__(self, kernel: Kernel | None = None) -> None:
        self._names: dict[str, Level] = {}
        self._known: dict[int, tuple[Expr, Level]] = {}
        if kernel is None:
            return
        names = dict.fromkeys((v.name for v in kernel.vars), Level.BLOCK)
        while names != self._names:  # scalars of a core are written after they are read in a loop
            self._names, self._known = dict(names), {}
            for node in kernel.walk():
                if isinstance(node, Let):
                    names[node.var.name] = self.of(node.value)
                elif isinstance(node, Write) and node.array.space in _OWN:
                    found = max(self.of(node.value), self.of(node.index))
                    names[node.array.name] = max(names.get(node.array.name, found), found)

    def of(self, e: Expr) -> Level:
        """The level of a value."""
        known = self._known.get(id(e))
        if known is None:
            found = Level.SAME
            for node in e.walk():
                if isinstance(node, Var):
                    found = max(found, self._names.get(node.name, Level.SAME))
                elif isinstance(node, Elem):
                    own = node.array.space in _OWN
                    level = self._names.get(node.array.name, Level.SAME) if own else Level.READ
                    found = max(found, level)
            known = self._known[id(e)] = (e, found)  # with the node, whose id stays its own
        return known[1]


class Divergent(Exception):
    """Blocks part company: so many of them, from the first one on, go the same way."""

    def __init__(self, together: int) -> None:
        super().__init__(together)
        self.together = together


def same(x: Any) -> Any:
    """A value that has to be the same in all lanes."""
    if type(x) is not np.ndarray:
        return x
    differs = x != x[0]
    if differs.any():
        raise Divergent(int(differs.argmax()))
    first: Any = x[0].item()
    return first


def pick(cond: Any, t: Any, f: Any) -> Any:
    """`t if cond else f`."""
    if type(cond) is np.ndarray:
        return np.where(cond, np.asarray(t), np.asarray(f))
    return t if cond else f


def least(a: Any, b: Any) -> Any:
    """The smaller of two integers."""
    return np.minimum(a, b) if np.ndarray in (type(a), type(b)) else min(a, b)


def most(a: Any, b: Any) -> Any:
    """The larger of two integers."""
    return np.maximum(a, b) if np.ndarray in (type(a), type(b)) else max(a, b)


def wrapped_lanes(dtype: DType) -> Callable[[Any], Any]:
    """What wraps an integer, or one of each lane, to a dtype."""
    low, high, span = int(dtype.min), int(dtype.max), 1 << dtype.bits

    def wrapped(x: Any) -> Any:
        if type(x) is not np.ndarray:
            return x if low <= x <= high else (x - low) % span + low
        if dtype.bits < 64:
            return (x - low) % span + low
        if low == 0:
            raise TypeError(f"lanes of {dtype}")
        return x  # as the 64 bits of the array itself

    return wrapped
