"""What the threads of a warp or block do together: shuffles, votes, matches, warp reductions,
elections, counting barriers; and the indices of lanes, warps and warp groups.

Each collective is a statement that binds its result, one value per thread. A warp has 32 threads,
a warp group four warps. Masks and widths are known when the kernel is compiled.
"""

from __future__ import annotations

from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import TileTypeError
from tilelang.ir.expr import INT32, Const, Expr
from tilelang.ir.special import COLLECTIVES, Collective
from tilelang.ir.sync import NamedArrive, SyncGrid, SyncWarp
from tilelang.language.arguments import integer, known, launch_of, launched, number, refuse
from tilelang.language.buffers import here
from tilelang.language.values import Value, condition

WARP = 32
WARPS_PER_GROUP = 4
FULL_MASK = 0xFFFFFFFF
_UINT32 = DType("uint32")


def _collective(fn: str, args: tuple[Expr, ...], params: tuple[int, ...] = ()) -> Value:
    builder = launched(f"T.{fn}")
    row = COLLECTIVES[fn]
    dtype = args[0].dtype if row.result is None else DType(row.result)
    result = builder.fresh_var(builder.name_hint(fn), DType(dtype))
    builder.emit(Collective(fn, args, result, params=params, loc=here()))
    builder.define(result)
    return Value(result)


def _mask(mask: Any, fn: str) -> int:
    return known(mask, f"the mask of T.{fn}", 1, FULL_MASK)


# -- shuffles --------------------------------------------------------------------------------------


def _shuffle(fn: str, value: Any, lane: Any, width: Any, mask: Any) -> Value:
    launched(f"T.{fn}")
    e = number(value, f"the value of T.{fn}")
    if e.dtype.kind == "handle":
        raise refuse("dtype", f"T.{fn} of a {e.dtype}", expected="a number", got=str(e.dtype))
    size = known(width, f"the width of T.{fn}", 1, WARP)
    if size & (size - 1):
        raise refuse(
            "value", f"the width of T.{fn} is {size}", expected="a power of two", got=str(size)
        )
    other = integer(lane, f"the lane of T.{fn}")
    return _collective(fn, (e, other), (size, _mask(mask, fn)))


def shfl_sync(value: Any, srcLane: Any, width: Any = WARP, mask: Any = FULL_MASK) -> Value:
    """The value that lane `srcLane` (modulo `width`) of the thread's segment of `width` lanes
    holds.

    `width` is a power of two up to 32. ValueError for another width or mask.
    """
    return _shuffle("shfl_sync", value, srcLane, width, mask)


def shfl_xor(value: Any, delta: Any, width: Any = WARP, mask: Any = FULL_MASK) -> Value:
    """The value of the lane whose index is the thread's own xor `delta`."""
    return _shuffle("shfl_xor", value, delta, width, mask)


def shfl_down(value: Any, delta: Any, width: Any = WARP, mask: Any = FULL_MASK) -> Value:
    """The value of the lane `delta` above in the segment; its own value past the end."""
    return _shuffle("shfl_down", value, delta, width, mask)


def shfl_up(value: Any, delta: Any, width: Any = WARP, mask: Any = FULL_MASK) -> Value:
    """The value of the lane `delta` below in the segment; its own value past the start."""
    return _shuffle("shfl_up", value, delta, width, mask)


# -- votes and matches -----------------------------------------------------------------------------


def _predicate(x: Any, fn: str) -> Expr:
    e = number(x, f"the predicate of T.{fn}")
    if e.dtype.kind not in ("bool", "int", "uint"):
        raise refuse(
            "dtype",
            f"the predicate of T.{fn} has type {e.dtype}",
            cls=TileTypeError,
            expected="a bool or an integer",
            got=str(e.dtype),
            help="compare it: `x != 0`",
        )
    return condition(e)


def any_sync(predicate: Any, mask: Any = FULL_MASK) -> Value:
    """1 (int32) where the predicate holds in some lane of `mask`, else 0. TypeError for a float
    predicate.
    """
    return _collective("any_sync", (_predicate(predicate, "any_sync"),), (_mask(mask, "any_sync"),))


def all_sync(predicate: Any, mask: Any = FULL_MASK) -> Value:
    """1 (int32) where the predicate holds in every lane of `mask`, else 0. TypeError for a float
    predicate.
    """
    return _collective("all_sync", (_predicate(predicate, "all_sync"),), (_mask(mask, "all_sync"),))


def ballot_sync(predicate: Any, mask: Any = FULL_MASK) -> Value:
    """A uint64 whose bit n says whether the predicate holds in lane n of `mask`."""
    cond = _predicate(predicate, "ballot_sync")
    return _collective("ballot_sync", (cond,), (_mask(mask, "ballot_sync"),))


def ballot(predicate: Any) -> Value:
    """`ballot_sync` of the whole warp."""
    return ballot_sync(predicate)


def activemask() -> Value:
    """A uint64 whose bit n says whether lane n is active here."""
    return _collective("activemask", ())


def _match(fn: str, value: Any, mask: Any) -> Value:
    e = number(value, f"the value of T.{fn}")
    if e.dtype.kind not in ("int", "uint", "float") or e.dtype.bits not in (32, 64):
        raise refuse(
            "dtype",
            f"T.{fn} of a value of type {e.dtype}",
            cls=TileTypeError,
            expected="32 or 64 bits",
            got=str(e.dtype),
            help="`T.cast(x, 'int32')`",
        )
    return _collective(fn, (e,), (_mask(mask, fn),))


def match_any_sync(value: Any, mask: Any = FULL_MASK) -> Value:
    """A uint32 of the lanes of `mask` that hold the same value as the thread; 32 or 64
    bit values.
    """
    return _match("match_any_sync", value, mask)


def match_all_sync(value: Any, mask: Any = FULL_MASK) -> Value:
    """`mask` (uint32) where all its lanes hold the same value, else 0; 32 or 64 bit values."""
    return _match("match_all_sync", value, mask)


# -- reductions over the warp ----------------------------------------------------------------------


def _warp_reduce(fn: str, value: Any, *, bits: bool = False) -> Value:
    e = number(value, f"the value of T.{fn}")
    kinds = ("int", "uint") if bits else ("int", "uint", "float")
    if e.dtype.kind not in kinds or e.dtype.lanes != 1:
        raise refuse(
            "dtype",
            f"T.{fn} of a value of type {e.dtype}",
            expected="an integer" if bits else "an integer or a float",
            got=str(e.dtype),
        )
    return _collective(fn, (e,))


def warp_reduce_sum(value: Any) -> Value:
    """The sum of the values of the warp's 32 threads, in each of them."""
    return _warp_reduce("warp_reduce_sum", value)


def warp_reduce_max(value: Any) -> Value:
    """The greatest of the values of the warp's 32 threads, in each of them; NaN is dropped."""
    return _warp_reduce("warp_reduce_max", value)


def warp_reduce_min(value: Any) -> Value:
    """The least of the values of the warp's 32 threads, in each of them; NaN is dropped."""
    return _warp_reduce("warp_reduce_min", value)


def warp_reduce_bitand(value: Any) -> Value:
    """The bitwise and of the integers of the warp's 32 threads, in each of them."""
    return _warp_reduce("warp_reduce_bitand", value, bits=True)


def warp_reduce_bitor(value: Any) -> Value:
    """The bitwise or of the integers of the warp's 32 threads, in each of them."""
    return _warp_reduce("warp_reduce_bitor", value, bits=True)


# -- indices ---------------------------------------------------------------------------------------


def flat_thread(what: str) -> Value:
    """The index of the thread in its block, x fastest."""
    launch = launch_of(what)
    extents = launch.threads or (0,)  # the target's own choice has one axis
    flat, stride = Value(launch.thread_vars[0]), extents[0]
    for var, extent in zip(launch.thread_vars[1:], extents[1:], strict=False):
        if extent > 1:
            flat = flat + Value(var) * stride
        stride *= extent
    return flat


def _size(x: Any, default: int, what: str) -> int:
    return default if x is None else known(x, what, 1, 1024)


def get_lane_idx(warp_size: Any = None) -> Value:
    """The index of the thread in its warp, 0 to 31 (`warp_size` threads, if given). ValueError for
    a size below 1.
    """
    return flat_thread("T.get_lane_idx") % _size(warp_size, WARP, "the size of a warp")


def get_warp_idx(warp_size: Any = None) -> Value:
    """The index of the thread's warp in the block. ValueError for a warp size below 1."""
    return flat_thread("T.get_warp_idx") // _size(warp_size, WARP, "the size of a warp")


def get_warp_idx_sync(warp_size: Any = None) -> Value:
    """`get_warp_idx`, for use where all threads of the warp are together."""
    return flat_thread("T.get_warp_idx_sync") // _size(warp_size, WARP, "the size of a warp")


def get_warp_group_idx(warp_size: Any = None, warps_per_group: Any = None) -> Value:
    """The index of the thread's warp group (4 warps of 32 threads, if not given) in the block."""
    warp = _size(warp_size, WARP, "the size of a warp")
    group = _size(warps_per_group, WARPS_PER_GROUP, "the warps of a group")
    return flat_thread("T.get_warp_group_idx") // (warp * group)


def shuffle_elect(thread_extent: Any) -> Value:
    """True in one thread of each group of `thread_extent` threads (a multiple of 32), or of the
    block with 0.
    """
    threads = launch_of("T.shuffle_elect").threads
    size = known(thread_extent, "the group of T.shuffle_elect", 0, 1024, multiple=WARP)
    if size == 0 and threads is not None:
        size = 1
        for extent in threads:
            size *= extent
    return _collective("elect", (), (size,))


# -- barriers --------------------------------------------------------------------------------------


def syncthreads_count(predicate: Any) -> Value:
    """A barrier of the block; the number (int32) of threads whose predicate holds."""
    return _collective("syncthreads_count", (_predicate(predicate, "syncthreads_count"),))


def syncthreads_and(predicate: Any) -> Value:
    """A barrier of the block; 1 (int32) where the predicate holds in every thread, else 0."""
    return _collective("syncthreads_and", (_predicate(predicate, "syncthreads_and"),))


def syncthreads_or(predicate: Any) -> Value:
    """A barrier of the block; 1 (int32) where the predicate holds in some thread, else 0."""
    return _collective("syncthreads_or", (_predicate(predicate, "syncthreads_or"),))


def sync_warp(mask: Any = None) -> None:
    """The threads of the warp that `mask` names (all without it) wait for each other."""
    builder = launched("T.sync_warp")
    bits = None if mask is None else integer(mask, "the mask of T.sync_warp", _UINT32)
    if isinstance(bits, Const) and not bits.value:
        raise refuse("value", "the mask of T.sync_warp names no thread", expected="1 to 0xFFFFFFFF")
    builder.emit(SyncWarp(mask=bits, loc=here()))


def sync_grid() -> None:
    """All threads of all blocks of the launch wait for each other; all blocks are resident at
    once.
    """
    launched("T.sync_grid").emit(SyncGrid(loc=here()))


def named_barrier_arrive(barrier_id: Any, thread_count: Any) -> None:
    """Arrive at named barrier 0 to 15 of the block, which `thread_count` (a multiple of 32)
    threads complete; no wait.

    `T.sync_threads(barrier_id, thread_count)` is the other side, which waits.
    """
    builder = launched("T.named_barrier_arrive")
    name = integer(barrier_id, "the barrier of T.named_barrier_arrive")
    if isinstance(name, Const):
        known(barrier_id, "the barrier of T.named_barrier_arrive", 0, 15)
    count = integer(thread_count, "the thread count of T.named_barrier_arrive", INT32)
    if isinstance(count, Const):
        known(thread_count, "the thread count of T.named_barrier_arrive", 32, 1024, multiple=WARP)
    builder.emit(NamedArrive(name, count, loc=here()))
