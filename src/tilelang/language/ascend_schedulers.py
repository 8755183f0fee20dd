"""Tile schedulers of the mainline Ascend dialect: each core walks over the tiles of a grid, of a
batch of grids, or of groups of rows or of K.

Tile numbers run in panels of 32 tiles, `group_m` rows high, which share what is in the L2 cache:
along N, back and forth with `snake`, and with the column exclusive-ored by the row with `xor_n`;
what no panel covers follows by rows. Facts and parameters are those of tilelang 0.1.15,
tilelang/ascend/language/tile_schedule.py.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tilelang.errors import TileValueError
from tilelang.ir.expr import BinaryOp
from tilelang.ir.tile import Block, Break, If, While
from tilelang.language.annotate import assume
from tilelang.language.arguments import known, launched, refuse
from tilelang.language.buffers import here
from tilelang.language.maths import ceildiv, min
from tilelang.language.schedule import BaseTileScheduler, state
from tilelang.language.values import Value, condition, logical, select

PANEL = 32
"""Tiles of a panel."""
_SCALED_PAIR = 64


def _if(cond: Any, then: Any, other: Any) -> Any:
    return (
        select(cond, then, other, lazy=True) if isinstance(cond, Value) else then if cond else other
    )


def _both(*conds: Any) -> Any:
    found = conds[0]
    for c in conds[1:]:
        found = logical(BinaryOp.AND, found, c)
    return found


@contextmanager
def _body() -> Generator[list[Block]]:
    """Statements that are traced into a block of their own."""
    builder = launched("a tile scheduler")
    out: list[Block] = []
    builder.open()
    yield out
    out.append(builder.close())


class AscendBaseTileScheduler(BaseTileScheduler):
    """What the schedulers share; `num_cores` cores walk together, each from its own number on.

    `m_idx` and `n_idx` are the tile (or `[0]` of them), `valid` whether there is one.
    """

    def __init__(
        self,
        *,
        block_m: Any,
        block_n: Any,
        num_cores: Any,
        shape_m: Any,
        shape_n: Any,
        group_m: int = 4,
        xor_n: bool = True,
        snake: bool = True,
        stateful: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(stateful=stateful, name=name)
        if group_m not in (4, 8):
            raise refuse(
                "value",
                f"the group_m of {type(self).__name__}",
                cls=TileValueError,
                expected="4 or 8",
                got=repr(group_m),
            )
        self._block_m, self._block_n, self._num_cores = block_m, block_n, num_cores
        self._shape_m, self._shape_n = shape_m, shape_n
        self._group_m, self._group_n = group_m, PANEL // group_m
        self._xor_n, self._snake = bool(xor_n), bool(snake)
        self._num_m_blocks, self._num_n_blocks = (
            ceildiv(shape_m, block_m),
            ceildiv(shape_n, block_n),
        )
        self._num_blocks = self._num_m_blocks * self._num_n_blocks
        self._total_tiles = self._num_blocks
        if stateful:
            self.core_id, self.valid_flag = state(name, "core_id"), state(name, "valid_flag")
            self._alloc_state(name)

    def _alloc_state(self, name: str | None) -> None:
        """Variables of a kind of scheduler; none here."""

    def _init_state(self) -> None:
        """The first values of those variables."""

    def _step(self) -> None:
        raise refuse("name", f"{type(self).__name__} has no _step", help="define it")

    # -- from a number to a tile -------------------------------------------------------------------

    def _panel(self, number: Any) -> tuple[Any, Any]:
        """The tile of a number within whole rows of panels."""
        high, wide = self._group_m, self._group_n
        panels = self._num_n_blocks // wide
        row_of_panels = number // (high * self._num_n_blocks)
        within = number - row_of_panels * (high * self._num_n_blocks)
        panel = within // PANEL
        local = within - panel * PANEL
        m, n = local % high, local // high
        n = n ^ m if self._xor_n else n
        if self._snake:
            panel = _if(row_of_panels % 2 == 1, panels - 1 - panel, panel)
        rest = within - panels * PANEL
        inside = within < panels * PANEL
        base = row_of_panels * high
        return (
            _if(inside, base + m, base + rest % high),
            _if(inside, panel * wide + n, panels * wide + rest // high),
        )

    def _swizzle(self, number: Any, rows: Any) -> tuple[Any, Any]:
        """The tile of a number in a grid of `rows` rows of tiles."""
        across = self._num_n_blocks
        number = self._bound("number", number) if isinstance(number, Value) else number
        plain = (number // across, number % across)
        if isinstance(rows, int) and rows < self._group_m:
            return plain
        covered = rows - rows % self._group_m
        tail = number - covered * across
        m, n = self._panel(number)
        beyond = number >= covered * across
        m = _if(beyond, covered + tail // across, m)
        n = _if(beyond, tail % across, n)
        if isinstance(rows, int):
            return m, n
        few = rows < self._group_m
        return _if(few, plain[0], m), _if(few, plain[1], n)

    def coord(self, block_idx: Any) -> tuple[Any, Any]:
        """The row and column of a tile number."""
        return self._swizzle(block_idx, self._num_m_blocks)

    def update_current_idx(self, linear_idx: Any) -> None:
        """Set the tile from its number."""
        self._set_tile(*self.coord(linear_idx))

    def _set_tile(self, m: Any, n: Any) -> None:
        self._m_idx[0] = m
        self._n_idx[0] = n

    # -- the walk ----------------------------------------------------------------------------------

    def init(self, core_id: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begin as core `core_id`."""
        self._now("current_iter")
        self._current_iter[0] = -1
        self.core_id[0] = core_id
        self._init_state()
        self.next_block()

    def next_block(self) -> None:
        """Go on to the core's next tile."""
        self._step()

    def valid(self) -> Any:
        """Whether there is a tile."""
        self._now("linear_idx")
        return self.valid_flag[0] != 0

    def _advance(self) -> Any:
        self._current_iter[0] = self._current_iter[0] + 1
        self._linear_idx[0] = self._current_iter[0] * self._num_cores + self.core_id[0]
        return self._linear_idx[0]

    def get_actual_m(self, m_block_idx: Any) -> Any:
        """The rows of a tile that the matrix has."""
        return min(self._shape_m - m_block_idx * self._block_m, self._block_m)

    def get_actual_n(self, n_block_idx: Any) -> Any:
        """The columns of a tile that the matrix has."""
        return min(self._shape_n - n_block_idx * self._block_n, self._block_n)

    def tile(self) -> tuple[Any, Any, Any, Any]:
        """The first row and column of the tile, and how many of each the matrix has."""
        m_tile, n_tile = (
            self._bound("m_tile", self._m_idx[0]),
            self._bound("n_tile", self._n_idx[0]),
        )
        m, n = m_tile * self._block_m, n_tile * self._block_n
        rows, columns = self.get_actual_m(m_tile), self.get_actual_n(n_tile)
        for first, count, block, size in (
            (m, rows, self._block_m, self._shape_m),
            (n, columns, self._block_n, self._shape_n),
        ):
            assume(_both(first >= 0, count > 0, count <= block, first + count <= size))
        return m, n, rows, columns

    def _bound(self, name: str, value: Any) -> Value:
        """A value as it is now, under a name."""
        return Value(launched("a tile scheduler").let(value.expr, name))


class AscendTileScheduler(AscendBaseTileScheduler):
    """One grid of M by N."""

    def _step(self) -> None:
        number = self._bound("block_idx", self._advance())
        self._set_tile(*self._swizzle(number, self._num_m_blocks))
        self.valid_flag[0] = _if(number < self._num_blocks, 1, 0)


class AscendBatchedTileScheduler(AscendBaseTileScheduler):
    """`num_groups` grids of one size, one after the other."""

    def __init__(self, *, num_groups: int, **rest: Any) -> None:
        self._num_groups = num_groups
        super().__init__(**rest)

    def _alloc_state(self, name: str | None) -> None:
        self.batch_idx = state(name, "batch_idx")

    def _step(self) -> None:
        number = self._bound("block_idx", self._advance())
        batch = number // self._num_blocks
        self.batch_idx[0] = batch
        self._set_tile(*self._swizzle(number - batch * self._num_blocks, self._num_m_blocks))
        self.valid_flag[0] = _if(batch < self._num_groups, 1, 0)

    def get_batch_idx(self) -> Any:
        """The number of the grid."""
        return self.batch_idx[0]

    def batch(self) -> Any:
        """The number of the grid, as one value."""
        index = self._bound("batch", self.batch_idx[0])
        assume(_both(index >= 0, index < self._num_groups))
        return index


class _Grouped(AscendBaseTileScheduler):
    """Groups whose sizes are known at run time: `grouped_layout` holds where each one ends.

    A group begins at the next multiple of `alignment` after the end of the one before.
    """

    def __init__(
        self, *, grouped_layout: Any, num_groups: int, alignment: int = 256, **rest: Any
    ) -> None:
        self._grouped_layout, self._num_groups = grouped_layout, num_groups
        self._alignment = known(alignment, f"the alignment of {type(self).__name__}", 1, 1 << 20)
        super().__init__(**rest)

    def _alloc_state(self, name: str | None) -> None:
        words = ("group_idx", "last", "end", "before")
        self.group_idx, self._last, self._end, self._before = (state(name, w) for w in words)

    def _init_state(self) -> None:
        for variable in (self.group_idx, self._last, self._before):
            variable[0] = 0
        self._end[0] = self._grouped_layout[0]

    def _holds(self, number: Any) -> Any:
        """Whether the current group has tile `number`."""
        raise NotImplementedError

    def _pass_group(self) -> None:
        """Count the tiles of the current group to those before."""
        raise NotImplementedError

    def _find_group(self, number: Any) -> None:
        """Go on to the group that has tile `number`; without one, there is no tile."""
        builder = launched("a tile scheduler")
        self.valid_flag[0] = 1
        more = condition(self.group_idx[0] < self._num_groups)
        with _body() as loop:
            builder.emit(If(condition(self._holds(number)), (Break(loc=here()),), loc=here()))
            self._pass_group()
            self.group_idx[0] = self.group_idx[0] + 1
            with _body() as ended:
                self.valid_flag[0] = 0
                builder.emit(Break(loc=here()))
            at_end = condition(self.group_idx[0] == self._num_groups)
            builder.emit(If(at_end, ended[0], loc=here()))
            self._last[0] = ceildiv(self._end[0], self._alignment) * self._alignment
            self._end[0] = self._grouped_layout[self.group_idx[0]]
        builder.emit(While(more, loop[0], loc=here()))

    def get_group_idx(self) -> Any:
        """The number of the group."""
        return self.group_idx[0]

    def _group(self) -> Any:
        index = self._bound("group", self.group_idx[0])
        assume(_both(index >= 0, index < self._num_groups))
        return index


class AscendMGroupedTileScheduler(_Grouped):
    """Groups of rows: group g has rows from the aligned end of group g - 1 to
    `grouped_layout[g]`, exclusive.
    """

    def _rows(self) -> Any:
        return ceildiv(self._end[0] - self._last[0], self._block_m)

    def _holds(self, number: Any) -> Any:
        return number < (self._before[0] + self._rows()) * self._num_n_blocks

    def _pass_group(self) -> None:
        self._before[0] = self._before[0] + self._rows()

    def _step(self) -> None:
        number = self._bound("block_idx", self._advance())
        self._find_group(number)
        inside = number - self._before[0] * self._num_n_blocks
        m, n = self._swizzle(inside, self._bound("rows", self._rows()))
        self._set_tile(m + self._last[0] // self._block_m, n)

    def get_actual_m(self, m_block_idx: Any) -> Any:
        """All rows of a block: the padding between groups belongs to the matrix."""
        return self._block_m

    def group(self) -> Any:
        """The number of the group, as one value."""
        return self._group()


class AscendKGroupedTileScheduler(_Grouped):
    """Groups of K: all groups have the same grid of M by N; group g sums over K from the aligned
    end of group g - 1 to `grouped_layout[g]`. Empty groups are passed over.
    """

    def __init__(self, *, shape_k: Any, **rest: Any) -> None:
        self._shape_k = shape_k
        super().__init__(**rest)
        if self._alignment % _SCALED_PAIR:
            raise refuse(
                "value",
                "the alignment of AscendKGroupedTileScheduler",
                cls=TileValueError,
                expected=f"a multiple of {_SCALED_PAIR}, the elements for one pair of scales",
                got=str(self._alignment),
            )

    def _holds(self, number: Any) -> Any:
        return _both(self.get_shape_k() > 0, number < self._before[0] + self._num_blocks)

    def _pass_group(self) -> None:
        some = self.get_shape_k() > 0
        self._before[0] = self._before[0] + _if(some, self._num_blocks, 0)

    def _step(self) -> None:
        number = self._bound("block_idx", self._advance())
        self._find_group(number)
        self._set_tile(*self._swizzle(number - self._before[0], self._num_m_blocks))

    def get_k_idx_base(self) -> Any:
        """Where the group begins along K."""
        return self._last[0]

    def get_sf_idx_base(self) -> Any:
        """Where the scales of the group begin, in pairs."""
        return self._last[0] // _SCALED_PAIR

    def get_shape_k(self) -> Any:
        """The length of the group along K."""
        return self._end[0] - self._last[0]

    def group(self) -> tuple[Any, Any, Any, Any]:
        """The group, where it begins along K, its length, and where its scales begin."""
        index = self._group()
        base, depth = (
            self._bound("k_base", self._last[0]),
            self._bound("group_k", self.get_shape_k()),
        )
        assume(_both(base >= 0, depth > 0, base + depth <= self._shape_k))
        return index, base, depth, base // _SCALED_PAIR
