"""Looking into a run: what any buffer of one block, on-chip ones too, holds at one place.

What enters: a program, the storage of its arguments by name, and a choice of buffer, place and
block. What leaves: a `Snapshot` with copies of the buffers, or an error that lists the buffers,
lines or blocks that there are.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tilelang.errors import Loc, TileError, TileIndexError, TileNameError, TileValueError, error
from tilelang.ir.evaluate import evaluate
from tilelang.ir.expr import Buffer, Expr, Var
from tilelang.ir.node import Effect
from tilelang.ir.tile import Function, Launch, Stmt, View, buffers_of

if TYPE_CHECKING:
    from tilelang.emulator import Program

Array = npt.NDArray[Any]
Place = tuple[int, ...]
Block = int | tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Snapshot(Mapping[str, Array]):
    """What buffers of a block held right after a statement; indexing by name gives an array.

    `loc` is the place of the statement and `block` the block's index, x first. `at_end` says that
    the statement is the launch, of which the block's end is meant. `rounds` says how often the
    block came by; the contents are those of the last time. Elements narrower than a byte
    take one slot each. A buffer of which each thread, or each iteration of a T.Parallel, has its
    own has their axes in front of its own.
    """

    kernel: str
    buffers: Mapping[str, Array]
    loc: Loc | None
    block: Place
    rounds: int = 1
    at_end: bool = False

    def __getitem__(self, name: str) -> Array:
        found = self.buffers.get(name)
        if found is None:
            raise _unknown_buffer(self.kernel, name, list(self.buffers), self.loc, here=True)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.buffers)

    def __len__(self) -> int:
        return len(self.buffers)

    def __repr__(self) -> str:
        place = "at its end" if self.at_end else f"after {self.loc}"
        often = f", seen {self.rounds} times" if self.rounds > 1 else ""
        lines = [f"<{self.kernel}, block {self.block}, {place}{often}>"]
        width = max((len(name) for name in self.buffers), default=0)
        lines += [f"  {name:<{width}}  {_summary(a)}" for name, a in self.buffers.items()]
        return "\n".join(lines)


def _summary(array: Array) -> str:
    """`float32 (128, 128)  -3.5 .. 4.25, 16 NaN`."""
    head = f"{array.dtype} {array.shape}"
    if array.dtype == np.bool_:
        return f"{head}  {int(array.sum())} of {array.size} true"
    numbers = array.astype(np.float64)
    nan = np.isnan(numbers)
    if nan.all():
        return f"{head}  all NaN" if array.size else head
    real = numbers[~nan]
    spread = f"{real.min():.6g} .. {real.max():.6g}"
    return f"{head}  {spread}" + (f", {int(nan.sum())} NaN" if nan.any() else "")


class _Last:
    """An observer that keeps what the buffers held the last time its block came by."""

    def __init__(self, wanted: Callable[[Stmt], bool], block: Place) -> None:
        self._wanted = wanted
        self._block = block
        self.rounds = 0
        self.at: Stmt | None = None
        self.buffers: dict[str, Array] = {}

    def wants(self, stmt: Stmt) -> bool:
        """Whether to look after `stmt`."""
        return self._wanted(stmt)

    def after(self, stmt: Stmt, block: Place, buffers: Mapping[str, Array]) -> None:
        """Copy the buffers, in place of those of the time before."""
        if block == self._block:
            self.rounds += 1
            self.at = stmt
            self.buffers = {name: array.copy() for name, array in buffers.items()}


def observe(
    program: Program,
    fn: Function,
    values: Mapping[str, Any],
    *,
    buffer: str | None,
    after: int | str | None,
    block: Block,
) -> Snapshot:
    """Run `program` on `values` (storage, scalars and sizes by name) and look at one place.

    `after` is a line of the author's file, the name of a buffer (after the last statement that
    writes it) or None (at the end of the block). `block` is the block's index per axis of the grid,
    x first, or a number that counts blocks with x fastest. `buffer` narrows the result.
    Raises TileNameError for a buffer, TileValueError for a line and TileIndexError for a block that
    does not exist, and TileValueError where the block never comes by.
    """
    known = list(buffers_of(fn))
    if buffer is not None and buffer not in known:
        raise _unknown_buffer(fn.name, buffer, known, fn.loc)
    wanted = _place(fn, after, known)
    index = _block(fn, values, block)
    last = _Last(lambda stmt: any(stmt is each for each in wanted), index)
    program.run(dict(values), observer=last)
    if last.at is None:
        raise error(
            "value",
            f"block {index} of {fn.name} does not come by this statement",
            wanted[-1].loc,
            cls=TileValueError,
            help="the condition or loop around it is not entered with these arguments",
        )
    seen = (
        last.buffers if buffer is None else {k: v for k, v in last.buffers.items() if k == buffer}
    )
    if not seen:
        raise _unknown_buffer(fn.name, str(buffer), list(last.buffers), last.at.loc, here=True)
    at_end = isinstance(last.at, Launch)
    return Snapshot(fn.name, seen, last.at.loc, index, last.rounds, at_end)


# ---- Which statements ----------------------------------------------------------------------------


def _statements(fn: Function) -> list[Stmt]:
    return [node for node in fn.walk() if isinstance(node, Stmt)]


def _place(fn: Function, after: int | str | None, known: list[str]) -> list[Stmt]:
    """The statements after which to look."""
    if after is None:
        return [stmt for stmt in _statements(fn) if isinstance(stmt, Launch)]
    if isinstance(after, str):
        if after not in known:
            raise _unknown_buffer(fn.name, after, known, fn.loc)
        return [_last_write(fn, after)]
    found = [stmt for stmt in _inside(fn) if after in _lines(fn, stmt)]
    if found:
        return found
    lines = sorted({line for stmt in _inside(fn) for line in _lines(fn, stmt)})
    near = sorted(sorted(lines, key=lambda line: abs(line - after))[:2])
    raise error(
        "value",
        f"no statement of {fn.name} is at line {after}",
        fn.loc,
        cls=TileValueError,
        expected=f"one of the lines {', '.join(map(str, lines))}",
        got=str(after),
        help=f"the nearest are {' and '.join(map(str, near))}" if near else "",
    )


def _inside(fn: Function) -> list[Stmt]:
    """The launches and what is in them; host-level statements have no block to look at."""
    launches = [stmt for stmt in _statements(fn) if isinstance(stmt, Launch)]
    return [node for launch in launches for node in launch.walk() if isinstance(node, Stmt)]


def _lines(fn: Function, stmt: Stmt) -> set[int]:
    """The lines of the author's file that led to a statement: its own and those of the calls."""
    if stmt.loc is None:
        return set()
    file = fn.loc.file if fn.loc is not None else stmt.loc.file
    return {at.line for at in stmt.loc.chain() if at.file == file}


def _last_write(fn: Function, name: str) -> Stmt:
    """The last statement, in the order they are written, that writes a buffer or a view of it."""
    aliases = {name}
    for stmt in _statements(fn):
        if isinstance(stmt, View) and stmt.source.name in aliases:
            aliases.add(stmt.buffer.name)
    writing = [stmt for stmt in _inside(fn) if aliases & _written(stmt)]
    if not writing:
        raise error(
            "value",
            f"{fn.name} does not write {name}",
            fn.loc,
            cls=TileValueError,
            help="leave out `after` to look at the end of the block, or give a line",
        )
    return writing[-1]


def _written(stmt: Stmt) -> set[str]:
    names: set[str] = set()
    for effect, target in stmt.effects():
        whole = target if isinstance(target, Buffer) else getattr(target, "buffer", None)
        if effect & Effect.WRITE and isinstance(whole, Buffer):
            names.add(whole.name)
    return names


# ---- Which block ---------------------------------------------------------------------------------


def _block(fn: Function, values: Mapping[str, Any], block: Block) -> Place:
    """The index per axis of the grid, from a number or a tuple."""
    scalars = [p.var for p in fn.params if p.var is not None]
    env = {var: values[var.name] for var in (*fn.dynamic, *scalars) if var.name in values}
    launches = [stmt for stmt in _statements(fn) if isinstance(stmt, Launch)]
    grids = [tuple(_extent(e, env) for e in launch.grid) for launch in launches]
    for grid in grids:
        index = _index(block, grid)
        if index is not None:
            return index
    raise error(
        "value",
        f"{fn.name} has no block {block}",
        launches[-1].loc if launches else fn.loc,
        cls=TileIndexError,
        expected=" or ".join(f"a block of the grid {grid}" for grid in grids),
        got=repr(block),
        help="give one index per axis of the grid, x first, or one number that counts blocks",
    )


def _extent(e: Expr, env: Mapping[Var, Any]) -> int:
    value = evaluate(e, env)
    return 0 if value is None else int(value)


def _index(block: Block, grid: Place) -> Place | None:
    if isinstance(block, int):
        if not 0 <= block < prod(grid):
            return None
        index: list[int] = []
        for extent in grid:
            block, at = divmod(block, extent)
            index.append(at)
        return tuple(index)
    inside = len(block) == len(grid) and all(0 <= b < n for b, n in zip(block, grid, strict=True))
    return tuple(int(b) for b in block) if inside else None


# ---- Words ---------------------------------------------------------------------------------------


def _unknown_buffer(
    kernel: str, name: str, known: list[str], loc: Loc | None, *, here: bool = False
) -> TileError:
    near = difflib.get_close_matches(name, known, n=1)
    return error(
        "name",
        f"{kernel} has no buffer {name}" + (" here" if here else ""),
        loc,
        cls=TileNameError,
        expected=", ".join(known),
        got=name,
        help=f"did you mean {near[0]}?" if near else "",
    )
