"""`T.Kernel` and what can be asked inside it: block and thread indices and extents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from tilelang.errors import (
    JITNoBuilderError,
    Loc,
    TileError,
    TileIndexError,
    TileValueError,
    error,
)
from tilelang.ir import build
from tilelang.ir.build import LaunchState
from tilelang.ir.expr import Expr, Var, int_value
from tilelang.ir.interval import interval
from tilelang.ir.tile import Launch, Print
from tilelang.language.alloc import note_dialect
from tilelang.language.buffers import extent, here, plain
from tilelang.language.values import Value, is_scalar
from tilelang.scopes import Dialect

MAX_AXES = 3

E = TypeVar("E")


class BlockIndex(Value):
    """The index of the block in a grid of one axis; it may also be unpacked: `as (bx,)`."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Value]:
        yield Value(self.expr)

    def __len__(self) -> int:
        return 1


class KernelLaunchFrame:
    """`with T.Kernel(...) as (bx, by):` - the body runs once per block."""

    def __init__(
        self,
        blocks: Sequence[Any],
        threads: Any = None,
        *,
        cluster: Sequence[int] = (),
        dialect: Dialect = Dialect.COMMON,
    ) -> None:
        self._builder = build.current("T.Kernel")
        if self._builder.eager.probing:
            raise build.TraceStopped
        note_dialect(self._builder, dialect, "Kernel")
        self._grid = _grid(blocks)
        self._threads = _threads(threads)
        self._cluster = tuple(cluster)
        self._loc = here()

    def check_names(self, count: int | None, loc: Loc) -> None:
        """Refuse `as (bx, by)` with another number of names than the grid has extents."""
        extents = len(self._grid)
        if count is None or count == extents:
            return
        names = ", ".join(("bx", "by", "bz")[:extents])
        raise error(
            "shape",
            f"the block indices of T.Kernel are taken apart into {count} names",
            loc,
            cls=TileValueError,
            expected=f"{extents}, one for each extent of the grid",
            got=str(count),
            help=f"with T.Kernel(...) as {names if extents == 1 else f'({names})'}:",
        )

    def __enter__(self) -> Any:
        b = self._builder
        if b.launch is not None:
            raise _bad(
                "syntax",
                "T.Kernel inside another T.Kernel",
                help="end the first launch before the second",
            )
        hints = list(b.hints)
        b.hints.clear()
        block_names, thread_names = self._names(hints)
        block_vars = tuple(b.fresh_var(n) for n in block_names)
        thread_vars = tuple(b.fresh_var(n) for n in thread_names)
        b.launch = LaunchState(
            self._grid, block_vars, thread_vars, self._threads, self._cluster, self._loc
        )
        b.open()
        b.define(*block_vars, *thread_vars)
        for var, count in zip(block_vars, self._grid, strict=True):
            known = int_value(count)
            b.ranges[var] = interval(0, None if known is None else known - 1)
        return self._bound(block_vars, thread_vars)

    def _names(self, hints: Sequence[str]) -> tuple[list[str], list[str]]:
        """The names of the block and thread indices; `hints` are those that the author binds."""
        count = len(self._grid)
        blocks = [*hints[:count], *("bx", "by", "bz")[len(hints) : count]]
        return blocks, ["tx", "ty", "tz"]

    def _bound(self, block_vars: Sequence[Var], thread_vars: Sequence[Var]) -> Any:
        """What `as` binds."""
        values = [Value(v) for v in block_vars]
        return BlockIndex(block_vars[0]) if len(values) == 1 else values

    def __exit__(self, exc_type: object, *_: object) -> None:
        b, launch = self._builder, self._builder.launch
        if exc_type is not None or launch is None:
            return  # the trace is lost
        body = b.close()
        b.launch = None
        b.emit(
            Launch(
                launch.grid,
                launch.vars,
                launch.thread_vars,
                body,
                threads=launch.threads,
                cluster=launch.cluster,
                loc=self._loc,
            )
        )


VECTORS = 2
"""Vector cores of a core group (tilelang-ascend programming guide, section 3.3)."""


class NpuLaunchFrame(KernelLaunchFrame):
    """`with T.Kernel(n, is_npu=True) as (cid, vid):` - the body runs once per core group.

    `vid` is the number of the vector core in its group, 0 on the cube core. With `threads=1|2`
    there is no `vid`: the rows of every tile in UB are split over so many vector cores.
    """

    def __init__(self, blocks: Sequence[Any], threads: Any = None) -> None:
        if len(blocks) != 1:
            raise _bad(
                "shape",
                f"T.Kernel(is_npu=True) with {len(blocks)} grid extents",
                expected="1: the number of core groups",
                got=str(len(blocks)),
                help="take the group's number apart: `bx, by = cid // n, cid % n`",
            )
        self._split = None if threads is None else _vector_cores(threads)
        super().__init__(blocks, self._split or VECTORS, dialect=Dialect.ADAPTER)

    def check_names(self, count: int | None, loc: Loc) -> None:
        """`as (cid, vid)`, and `as cid` with `threads`."""
        wanted = 2 if self._split is None else 1
        if count == wanted or (count is None and wanted == 1):
            return
        names = "(cid, vid)" if wanted == 2 else "cid"
        raise error(
            "shape",
            "the indices of T.Kernel(is_npu=True) are taken apart into"
            f" {'one name' if count in (None, 1) else f'{count} names'}",
            loc,
            cls=TileValueError,
            expected=f"{wanted}: `as {names}`",
            got=str(count or 1),
            help="`threads=1|2` leaves the number of the vector core to the compiler"
            if wanted == 2
            else "leave out `threads` to get the number of the vector core",
        )

    def __enter__(self) -> Any:
        before = self._builder.retract(lambda s: isinstance(s, Print))
        bound = super().__enter__()
        for stmt in before:  # printed by every core, before its work
            self._builder.emit(stmt)
        return bound

    def _names(self, hints: Sequence[str]) -> tuple[list[str], list[str]]:
        given = dict(enumerate(hints))
        return [given.get(0, "cid")], [given.get(1, "vid"), "ty", "tz"]

    def _bound(self, block_vars: Sequence[Var], thread_vars: Sequence[Var]) -> Any:
        self._builder.ranges[thread_vars[0]] = interval(0, VECTORS - 1)
        if self._split is None:
            return [Value(block_vars[0]), Value(thread_vars[0])]
        self._builder.annotate("split_rows", values=(self._split,))
        return BlockIndex(block_vars[0])


def _vector_cores(threads: Any) -> int:
    """`threads=` of the adapter's launch: 1 or 2, alone or as the only entry of a sequence."""
    counts = _threads(threads) or ()
    if len(counts) != 1 or counts[0] > VECTORS:
        raise _bad(
            "value",
            "threads of T.Kernel(is_npu=True)",
            expected="1 or 2: the vector cores that a core group works with",
            got=str(threads),
        )
    return counts[0]


def _bad(kind: str, message: str, **facts: Any) -> TileError:
    return error(kind, message, here(), cls=TileValueError, **facts)


def _grid(blocks: Sequence[Any]) -> tuple[Expr, ...]:
    if len(blocks) > MAX_AXES:
        raise _bad(
            "shape",
            f"T.Kernel with {len(blocks)} grid extents",
            expected="at most 3; one block without any",
            got=str(len(blocks)),
        )
    out = tuple(extent(x, "a grid extent") for x in blocks or (1,))
    for e in out:
        known = int_value(e)
        if known is not None and known < 0:
            raise _bad("shape", "a negative grid extent", expected=">= 0", got=str(known))
    return out


def _threads(threads: Any) -> tuple[int, ...] | None:
    if threads is None:
        return None
    items = [threads] if is_scalar(threads) else list[Any](threads)
    if not 1 <= len(items) <= MAX_AXES:
        raise _bad(
            "shape",
            f"T.Kernel with {len(items)} thread extents",
            expected="1 to 3",
            got=str(len(items)),
        )
    out: list[int] = []
    for x in items:
        known = int_value(extent(x, "a thread count"))
        if known is None or known < 1:
            raise _bad(
                "value",
                "the number of threads of T.Kernel must be a positive integer known when the"
                " kernel is compiled",
                expected="an integer >= 1",
                got=str(x),
            )
        out.append(known)
    return tuple(out)


def Kernel(
    *blocks: Any,
    threads: Any = None,
    prelude: str | None = None,
    cluster_dims: Any = None,
    is_npu: bool = False,
) -> KernelLaunchFrame:
    """Launch `blocks` (1 to 3 grid extents, one block without any) of `threads` threads (an int or
    up to 3 extents).

    Without `threads` the target chooses (128 on CUDA). `cluster_dims` is blocks per cluster.
    `is_npu=True` is the Ascend adapter's launch. ValueError for a non-positive count,
    `JITNoBuilderError` outside a trace.
    """
    if prelude is not None:
        raise _bad(
            "target",
            "T.Kernel(prelude=...) needs a target that compiles C source",
            help="leave `prelude` out",
        )
    if is_npu:
        if cluster_dims is not None:
            raise _bad("option", "cluster_dims of T.Kernel(is_npu=True)", help="leave it out")
        return NpuLaunchFrame(blocks, threads)
    return KernelLaunchFrame(blocks, threads, cluster=_cluster(cluster_dims))


def _cluster(dims: Any) -> tuple[int, ...]:
    if dims is None:
        return ()
    items = [dims, 1, 1] if isinstance(dims, int) else list(dims)
    if any(not isinstance(x, int) or x < 1 for x in items) or not 1 <= len(items) <= MAX_AXES:
        raise _bad(
            "value", "cluster_dims of T.Kernel", expected="up to 3 integers >= 1", got=str(dims)
        )
    return () if all(x == 1 for x in items) else tuple(items)


def _launch(what: str) -> LaunchState:
    launch = build.current(what).launch
    if launch is None:
        raise error("syntax", f"{what} is used outside T.Kernel", here(), cls=JITNoBuilderError)
    return launch


def _along(items: Sequence[E], dim: object, what: str) -> E:
    """The entry of an axis; a located IndexError for one that is not there."""
    if isinstance(dim, bool) or not isinstance(dim, int) or not 0 <= dim < len(items):
        raise error(
            "value",
            f"the dim of {what} is {dim}",
            here(),
            cls=TileIndexError,
            expected=f"0 to {len(items) - 1}",
            got=repr(dim)[:60],
        )
    return items[dim]


def get_thread_binding(dim: int = 0) -> Value:
    """The thread index along x (0), y (1) or z (2)."""
    name = "T.get_thread_binding"
    return Value(_along(_launch(name).thread_vars, dim, name))


def get_thread_bindings() -> list[Value]:
    """The thread indices x, y, z."""
    return [Value(v) for v in _launch("T.get_thread_bindings").thread_vars]


def get_thread_extents() -> list[int]:
    """The threads per block along x, y, z; ValueError where `threads=` was left to the target."""
    threads = _launch("T.get_thread_extents").threads
    if threads is None:
        raise _bad(
            "value", "the number of threads is not known here", help="give `threads=` to T.Kernel"
        )
    return [*threads, *([1] * (MAX_AXES - len(threads)))]


def get_thread_extent(dim: int = 0) -> int:
    """The threads per block along one axis; ValueError where `threads=` was left to the target."""
    return _along(get_thread_extents(), dim, "T.get_thread_extent")


def get_block_binding(dim: int = 0) -> Value:
    """The block index along one axis of the grid."""
    name = "T.get_block_binding"
    return Value(_along(_launch(name).vars, dim, name))


def get_block_bindings() -> list[Value]:
    """The block indices of the launched axes."""
    return [Value(v) for v in _launch("T.get_block_bindings").vars]


def get_block_extents() -> list[int | Value]:
    """The blocks along x, y, z; 1 for an axis that is not launched."""
    grid = _launch("T.get_block_extents").grid
    return [*(plain(e) for e in grid), *([1] * (MAX_AXES - len(grid)))]


def get_block_extent(dim: int = 0) -> int | Value:
    """The blocks along one axis."""
    return _along(get_block_extents(), dim, "T.get_block_extent")
