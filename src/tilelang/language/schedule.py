"""Persistent kernels: the loop over waves of tiles, and schedulers that deal tiles out to workers.

Sizes and indices are tiles. All of it is scalar arithmetic of the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilelang.ir import build
from tilelang.ir.expr import INT32, BinaryOp, Expr, Var, const
from tilelang.ir.simplify import simplify
from tilelang.ir.tile import Block, For, If, Let, Stmt
from tilelang.language.alloc import alloc_var
from tilelang.language.arguments import hints, integer, known, launch_of, refuse
from tilelang.language.buffers import VarRef, here, plain
from tilelang.language.loops import LoopFrame
from tilelang.language.maths import ceildiv, max, min
from tilelang.language.values import Value, logical


def Persistent(
    domain: Any,
    wave_size: Any,
    index: Any,
    group_size: Any = 8,
    num_stages: int = 0,
    *,
    annotations: dict[str, Any] | None = None,
) -> LoopFrame:
    """A loop over the tiles of `domain` that fall to worker `index` of `wave_size`, one tile a
    wave.

    Tile t of wave w is number `w * wave_size + index`. Numbers run over groups of `group_size`
    neighbours along the last axis, then over the other axes, then over the next group. Gives one
    variable per axis. `num_stages` is a hint.
    """
    name = "T.Persistent"
    launch_of(name)
    items = [domain] if isinstance(domain, (int, Value)) else list(domain)
    if not items:
        raise refuse("shape", f"the domain of {name}", expected="at least one extent", got="none")
    sizes = [plain(simplify(integer(x, f"an extent of {name}"))) for x in items]
    wave, worker = (
        Value(integer(x, f"the {w} of {name}"))
        for x, w in ((wave_size, "wave_size"), (index, "index"))
    )
    group = max(1, min(plain(integer(group_size, f"the group_size of {name}")), sizes[-1]))
    notes = hints(annotations, num_stages=known(num_stages, f"the num_stages of {name}", 0, 64))
    loc = here()

    def make(loop_vars: tuple[Var, ...], body: Block) -> Stmt:
        return _waves(loop_vars, body, (sizes, group, wave, worker), notes, loc)

    spans = tuple((const(0), _expr(size - 1)) for size in sizes)
    return LoopFrame(name, tuple(INT32 for _ in sizes), make, spans=spans)


def _waves(
    loop_vars: tuple[Var, ...],
    body: Block,
    shape: tuple[list[Any], Any, Value, Value],
    notes: tuple[tuple[str, Any], ...],
    loc: Any,
) -> Stmt:
    """The sequential loop over waves, with the tile's coordinates bound where there is a tile."""
    sizes, group, wave, worker = shape
    builder = build.current("T.Persistent")
    total: Any = ceildiv(sizes[-1], group) * group
    for size in sizes[:-1]:
        total = total * size
    w, number = builder.fresh_var("w"), builder.fresh_var("tile")
    rest: Any = Value(number)
    inner, rest = rest % group, rest // group
    coordinates: list[Any] = []
    for size in reversed(sizes[:-1]):
        coordinates.insert(0, rest % size)
        rest = rest // size
    last = rest * group + inner
    lets = tuple(
        Let(v, _expr(x), loc=loc) for v, x in zip(loop_vars, [*coordinates, last], strict=True)
    )
    inside = logical(BinaryOp.AND, Value(number) < total, Value(loop_vars[-1]) < sizes[-1])
    guarded = If(inside.expr, body, loc=loc)
    linear = Let(number, _expr(Value(w) * wave + worker), loc=loc)
    return For(
        w,
        const(0),
        _expr(ceildiv(total, wave)),
        (linear, *lets, guarded),
        hints=notes,
        loc=loc,
    )


def _expr(x: Any) -> Expr:
    return simplify(integer(x, "an index of T.Persistent"))


class BaseTileScheduler:
    """The state of a worker that goes from tile to tile; subclasses say which tile a number is.

    `m_idx` and `n_idx` are the tile, `linear_idx` its number, `current_iter` how many came before.
    """

    def __init__(self, stateful: bool = True, name: str | None = None) -> None:
        self._stateful = stateful
        self._total_tiles: Any = 0
        if stateful:
            self._m_idx, self._n_idx, self._linear_idx, self._current_iter = (
                state(name, what) for what in ("m_idx", "n_idx", "linear_idx", "current_iter")
            )

    def _now(self, what: str) -> Any:
        if not self._stateful:
            raise refuse(
                "name",
                f"{what} of a scheduler with stateful=False",
                help="`coord(tile)` gives the coordinates of a tile",
            )
        return getattr(self, f"_{what}")[0]

    @property
    def m_idx(self) -> Any:
        """The row of the current tile (of the current cluster of tiles)."""
        return self._now("m_idx")

    @property
    def n_idx(self) -> Any:
        """The column of the current tile."""
        return self._now("n_idx")

    @property
    def linear_idx(self) -> Any:
        """The number of the current tile."""
        return self._now("linear_idx")

    @property
    def current_iter(self) -> Any:
        """How many tiles the worker has had before."""
        return self._now("current_iter")

    def update_current_idx(self, linear_idx: Any) -> None:
        """Set the tile from its number; a subclass defines it."""
        raise refuse(
            "name",
            f"{type(self).__name__} has no update_current_idx",
            help="define it: it assigns self._m_idx[0] and self._n_idx[0]",
        )

    def init(self, linear_init: Any) -> None:
        """Begin at a number."""
        self._now("linear_idx")
        self._current_iter[0] = 0
        self._linear_idx[0] = linear_init
        self.update_current_idx(self._linear_idx[0])

    def next_tile(self, step: Any) -> None:
        """Go on by `step` numbers."""
        self._current_iter[0] = self._now("current_iter") + 1
        self._linear_idx[0] = self._linear_idx[0] + step
        self.update_current_idx(self._linear_idx[0])

    def valid(self) -> Any:
        """Whether there is a tile of the current number."""
        return self._now("linear_idx") < self._total_tiles


def state(prefix: str | None, what: str) -> VarRef:
    """A variable of a scheduler, whose name begins with `prefix`."""
    builder = build.current("a tile scheduler")
    builder.hints.insert(0, what if prefix is None else f"{prefix}_{what}")
    return alloc_var("int32")


class PersistentTileScheduler(BaseTileScheduler):
    """Deals a grid of `num_m_tiles` by `num_n_tiles` tiles out to workers: w, w + num_workers, ...

    Numbers go down the rows (across the columns with `column_major=False`) in panels of
    `swizzle_size` of the other axis. With `cluster_size`, rows are grouped and `m_idx` is the
    group. `num_workers` is the launch's blocks over `cluster_size`, if not given. `name` leads the
    names of the variables; with `stateful=False` there are none, only `coord`.
    """

    def __init__(
        self,
        num_m_tiles: Any,
        num_n_tiles: Any,
        num_workers: Any = None,
        swizzle_size: int = 1,
        column_major: bool = True,
        cluster_size: int = 1,
        stateful: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(stateful=stateful, name=name)
        what = "T.PersistentTileScheduler"
        self.cluster_size = known(cluster_size, f"the cluster_size of {what}", 1, 64)
        self.swizzle_size = known(swizzle_size, f"the swizzle_size of {what}", 1, 1 << 20)
        self.num_workers = _blocks(self.cluster_size) if num_workers is None else num_workers
        self._column_major = column_major
        rows = ceildiv(num_m_tiles, cluster_size)
        self._total_tiles = rows * num_n_tiles
        self._fast, self._slow = (rows, num_n_tiles) if column_major else (num_n_tiles, rows)

    def coord(self, tile_id: Any) -> tuple[Any, Any]:
        """The row and column of a tile number; any number is allowed, without a division
        by zero.
        """
        panel = max(1, self._fast * self.swizzle_size)
        group = tile_id // panel
        base = group * self.swizzle_size
        width = max(1, min(self.swizzle_size, self._slow - base))
        within = tile_id - group * panel
        fast, slow = within // width, base + within % width
        return (fast, slow) if self._column_major else (slow, fast)

    def update_current_idx(self, linear_idx: Any) -> None:
        """Set the tile from its number, which is read once."""
        found = integer(linear_idx, "the number of a tile")
        number = build.current("a tile scheduler").let(found, "linear_idx")
        m, n = self.coord(Value(number))
        self._m_idx[0] = m
        self._n_idx[0] = n

    def init(self, worker_id: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Begin as worker `worker_id`."""
        super().init(worker_id)

    def next_tile(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Go on to the worker's next tile."""
        super().next_tile(self.num_workers)


def _blocks(cluster_size: int) -> Any:
    blocks: Any = 1
    extents: Sequence[Expr] = launch_of("T.PersistentTileScheduler").grid
    for e in extents:
        blocks = blocks * plain(e)
    return blocks // cluster_size
