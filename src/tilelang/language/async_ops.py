"""Explicitly asynchronous work: copies (`cp.async`, TMA, within a cluster) and products (wgmma,
tcgen05), and the waits and fences that belong to them.

Nothing here waits by itself: data is there after the wait that each docstring names. Names and
meanings follow the PTX ISA.
"""

from __future__ import annotations

from typing import Any, cast

from tilelang.errors import TileValueError
from tilelang.ir import sync
from tilelang.ir.expr import Expr, Region, const, int_value
from tilelang.ir.sync import AsyncUnit
from tilelang.language.arguments import (
    MOST,
    barrier,
    eviction,
    hints,
    in_memory,
    integer,
    known,
    launched,
    memory,
    note,
    place,
    refuse,
)
from tilelang.language.buffers import BufferRef, here
from tilelang.language.shapes import shape_text
from tilelang.language.tileops import GemmWarpPolicy, check_product, matched, matrix, region_of
from tilelang.language.values import condition, describe, element_type
from tilelang.scopes import Memory

MAX_CLUSTER_MASK = 0xFFFF


def _same_dtype(a: Region, b: Region, name: str) -> None:
    if a.dtype != b.dtype:
        raise refuse(
            "dtype",
            f"{name} from {a.dtype} to {b.dtype}",
            expected="one dtype: an asynchronous copy moves bytes",
            got=f"{a.dtype} and {b.dtype}",
            help="use T.copy, which converts",
        )


# -- cp.async --------------------------------------------------------------------------------------


def async_copy(
    src: Any,
    dst: Any,
    *,
    coalesced_width: int | None = None,
    annotations: dict[str, Any] | None = None,
    loop_layout: Any = None,
) -> None:
    """Copy a tile from global to shared memory with `cp.async`, as one group of the calling
    threads; no wait.

    `T.ptx_wait_group` waits. Extents match as in `T.copy`; the dtypes are equal. The keywords are
    hints.
    """
    builder = launched("T.async_copy")
    a, b = matched(src, dst, "T.async_copy")
    in_memory(a.buffer, "the source of T.async_copy", Memory.GLOBAL)
    in_memory(b.buffer, "the destination of T.async_copy", Memory.SHARED)
    _same_dtype(a, b, "T.async_copy")
    notes = hints(annotations, coalesced_width=coalesced_width, loop_layout=loop_layout)
    builder.emit(sync.AsyncCopy(a, b, hints=notes, loc=here()))


def _run_of(x: Any, count: int, what: str) -> Region:
    """`count` neighbouring elements of the last axis, from where a pointer or element is."""
    buffer, indices = place(x, what)
    ones = tuple(const(1) for _ in indices[:-1])
    return Region(buffer, indices, (*ones, const(count)), loc=here())


def ptx_cp_async(
    dst_access_ptr: Any, src_access_ptr: Any, num_elems: Any, predicate: Any = None
) -> None:
    """Copy `num_elems` elements of 4, 8 or 16 bytes in all with one `cp.async`, into the thread's
    open group.

    The pointers come from `T.access_ptr` or `T.address_of`: shared memory, then global memory.
    Where `predicate` does not hold, zeros are written and nothing is read. `T.ptx_commit_group`
    closes the group, `T.ptx_wait_group` waits.
    """
    name = "T.ptx_cp_async"
    builder = launched(name)
    count = known(num_elems, f"the number of elements of {name}", 1, 128)
    dst = _run_of(dst_access_ptr, count, f"the destination of {name}")
    src = _run_of(src_access_ptr, count, f"the source of {name}")
    in_memory(dst.buffer, f"the destination of {name}", Memory.SHARED)
    in_memory(src.buffer, f"the source of {name}", Memory.GLOBAL)
    _same_dtype(src, dst, name)
    size = count * src.dtype.bits * src.dtype.lanes // 8
    if size not in (4, 8, 16):
        raise refuse(
            "value",
            f"{name} of {count} elements of {src.dtype}",
            expected="4, 8 or 16 bytes",
            got=f"{size} bytes",
        )
    pred = None if predicate is None else condition(predicate)
    builder.emit(sync.AsyncCopy(src, dst, commit=False, pred=pred, loc=here()))


def ptx_commit_group() -> None:
    """Close the calling thread's open group of `cp.async` copies."""
    launched("T.ptx_commit_group").emit(sync.CommitGroup(loc=here()))


def ptx_wait_group(num: Any) -> None:
    """Wait until at most `num` of the thread's newest `cp.async` groups are under way."""
    builder = launched("T.ptx_wait_group")
    count = integer(num, "the count of T.ptx_wait_group")
    if int_value(count) is not None:
        known(num, "the count of T.ptx_wait_group", 0, MOST)
    builder.emit(sync.WaitGroup(count, loc=here()))


def cp_async_barrier_noinc(barrier: Any) -> None:
    """Make an mbarrier complete one of its arrivals when the thread's `cp.async` copies so far are
    done.
    """
    builder = launched("T.cp_async_barrier_noinc")
    bar = _barrier(barrier, "the barrier of T.cp_async_barrier_noinc")
    builder.emit(sync.CpAsyncArrive(bar, loc=here()))


_barrier = barrier  # the name is a parameter of some functions below


# -- TMA -------------------------------------------------------------------------------------------


def tma_copy(
    src: Any,
    dst: Any,
    *,
    barrier: Any = None,
    cluster_mask: int | None = None,
    leader_scope_threads: int | None = None,
    eviction_policy: str | None = None,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Copy a tile with the Tensor Memory Accelerator, between global and shared memory; no wait.

    A load adds its bytes to what `barrier` (required) expects and completes on it: arrive and wait
    there. A store closes a bulk group: `T.tma_store_wait` waits. `cluster_mask` names the blocks
    of the cluster that receive a load. Elements outside a global tensor read as zero and are not
    written. ValueError for a bad mask or scope of threads.
    """
    name = "T.tma_copy"
    builder = launched(name)
    a, b = matched(src, dst, name)
    load = memory(a.buffer) is Memory.GLOBAL
    sides = (Memory.GLOBAL, Memory.SHARED) if load else (Memory.SHARED, Memory.GLOBAL)
    in_memory(a.buffer, f"the source of {name}", sides[0])
    in_memory(b.buffer, f"the destination of {name}", sides[1])
    unpacks = b.dtype.is_float4_e2m1_unpacked() and a.dtype.is_float4_e2m1fn() and load
    if not unpacks:
        _same_dtype(a, b, name)
    bar = _load_barrier(barrier, load, name)
    mask = 0
    if cluster_mask is not None:
        mask = _mask(cluster_mask, name)
        if not load:
            raise refuse("option", f"cluster_mask of a store by {name}", help="leave it out")
    if leader_scope_threads is not None:
        known(leader_scope_threads, f"the leader_scope_threads of {name}", 32, 1024, multiple=32)
    eviction(eviction_policy, name)
    notes = hints(
        annotations, leader_scope_threads=leader_scope_threads, eviction_policy=eviction_policy
    )
    builder.emit(sync.TmaCopy(a, b, barrier=bar, cluster_mask=mask, hints=notes, loc=here()))


def _mask(cluster_mask: Any, name: str) -> int:
    return known(cluster_mask, f"the cluster_mask of {name}", 1, MAX_CLUSTER_MASK)


def _load_barrier(bar: Any, load: bool, name: str) -> Region | None:
    if load and bar is None:
        raise refuse(
            "async",
            f"a load by {name} without a barrier",
            cls=TileValueError,
            expected="barrier=",
            help="`bar = T.alloc_barrier(1)`, then `T.tma_copy(..., barrier=bar)` and a wait on it",
        )
    if not load and bar is not None:
        raise refuse(
            "option",
            f"a store by {name} with a barrier",
            help="leave `barrier` out; T.tma_store_wait waits for stores",
        )
    return None if bar is None else _barrier(bar, f"the barrier of {name}")


def tma_store_arrive() -> None:
    """Close the bulk group of the thread's TMA stores so far."""
    launched("T.tma_store_arrive").emit(sync.TmaStoreArrive(loc=here()))


def tma_store_wait(count: int = 0, read: bool = True) -> None:
    """Wait until at most `count` bulk groups are under way; with `read`, only until they have read
    their source.
    """
    builder = launched("T.tma_store_wait")
    n = known(count, "the count of T.tma_store_wait", 0, 2**16)
    builder.emit(sync.TmaStoreWait(count=n, read=bool(read), loc=here()))


def tma_gather4(
    src: Any,
    dst: Any,
    col: Any,
    rows: Any,
    *,
    barrier: Any,
    swizzle: Any = None,
    eviction_policy: str | None = None,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Load four rows of a matrix in global memory, from column `col` on, into a shared tile of
    shape (4, K), with the Tensor Memory Accelerator; no wait.

    One thread of those that get here issues it. It completes the bytes of the tile on `barrier`;
    that it expects them is said before, `T.mbarrier_expect_tx(bar, T.tma_gather4_bytes(K, dtype))`.
    Elements outside of the matrix are zero. The compiler chooses how the tile lies, so `swizzle`
    is refused. ValueError for other shapes, or for other than four rows.
    """
    name = "T.tma_gather4"
    builder = launched(name)
    bar = _barrier(barrier, f"the barrier of {name}")
    tile, array, picked = _four_rows(name, dst, src, col, rows)
    notes = _row_hints(name, swizzle, eviction_policy, annotations)
    builder.emit(sync.TmaGather4(array, tile, picked, bar, hints=notes, loc=here()))


def tma_scatter4(
    src: Any,
    dst: Any,
    col: Any,
    rows: Any,
    *,
    swizzle: Any = None,
    eviction_policy: str | None = None,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Store a shared tile of shape (4, K) to four rows of a matrix in global memory, from column
    `col` on, with the Tensor Memory Accelerator; no wait.

    One thread of those that get here issues it, into its open bulk group: `T.tma_store_arrive`
    closes that, `T.tma_store_wait` waits. Elements outside of the matrix are not written. Of rows
    named twice either may stay. Refusals are those of `T.tma_gather4`.
    """
    name = "T.tma_scatter4"
    builder = launched(name)
    tile, array, picked = _four_rows(name, src, dst, col, rows)
    notes = _row_hints(name, swizzle, eviction_policy, annotations)
    builder.emit(sync.TmaScatter4(tile, array, picked, hints=notes, loc=here()))


def _four_rows(
    name: str, tile: Any, array: Any, col: Any, rows: Any
) -> tuple[Region, Region, tuple[Expr, ...]]:
    """The tile, all rows of the matrix in its columns, and the four that are meant."""
    small, whole = region_of(tile, f"the tile of {name}"), region_of(array, f"the matrix of {name}")
    in_memory(small.buffer, f"the tile of {name}", Memory.SHARED)
    in_memory(whole.buffer, f"the matrix of {name}", Memory.GLOBAL)
    _same_dtype(small, whole, name)
    shape = [int_value(n) for n in small.extents]
    if not isinstance(tile, BufferRef) or len(shape) != 2 or shape[0] != 4 or shape[1] is None:
        raise refuse(
            "shape",
            f"the tile of {name} is no buffer of four rows",
            cls=TileValueError,
            expected="a whole shared buffer of shape (4, K)",
            got=f"{small.buffer.name} of shape {shape_text(small.extents)}",
        )
    if not isinstance(array, BufferRef) or whole.buffer.rank != 2:
        raise refuse(
            "shape",
            f"{whole.buffer.name}, whose rows {name} takes, is no whole matrix",
            cls=TileValueError,
            expected="a tensor with two axes; `col` says where the columns begin",
            got=f"{whole.buffer.name} of shape {shape_text(whole.extents)}",
        )
    if not isinstance(rows, (list, tuple)) or len(cast("list[Any]", rows)) != 4:
        raise refuse(
            "value",
            f"the rows of {name}",
            cls=TileValueError,
            expected="a list of four numbers of rows",
            got=describe(rows),
        )
    picked = tuple(integer(r, f"a row of {name}") for r in cast("list[Any]", rows))
    first = integer(col, f"the column of {name}")
    high, wide = whole.buffer.shape[0], small.extents[1]
    columns = Region(whole.buffer, (const(0), first), (high, wide), loc=here())
    return small, columns, picked


def _row_hints(
    name: str, swizzle: Any, policy: str | None, annotations: Any
) -> tuple[tuple[str, Any], ...]:
    if swizzle is not None:
        raise refuse(
            "option",
            f"swizzle of {name}",
            got=describe(swizzle),
            help="leave it out: the compiler chooses how the tile lies",
        )
    eviction(policy, name)
    return hints(annotations, eviction_policy=policy)


def tma_gather4_bytes(K_box: int, dtype: Any) -> int:
    """The bytes of four rows of `K_box` elements, for `T.mbarrier_expect_tx`."""
    element = element_type(dtype)
    bits = 4 if element.is_float4_e2m1_unpacked() else element.bits
    return (4 * K_box * bits + 7) // 8


def copy_cluster(
    src: Any,
    dst: Any,
    *,
    dst_block: Any = None,
    cluster_mask: int | None = None,
    remote_barrier: Any = None,
    eviction_policy: str | None = None,
    coalesced_width: int | None = None,
    annotations: dict[str, Any] | None = None,
    loop_layout: Any = None,
) -> None:
    """Copy a tile to other blocks of the cluster.

    With `dst_block`, from shared memory into that of the block of this rank; with `remote_barrier`
    it completes on that mbarrier of the receiving block, else it is synchronous. With
    `cluster_mask`, from global memory into the shared memory of all blocks named, synchronous. The
    other keywords are hints.
    """
    name = "T.copy_cluster"
    builder = launched(name)
    a, b = matched(src, dst, name)
    if (dst_block is None) == (cluster_mask is None):
        raise refuse(
            "option",
            f"{name} needs one of dst_block and cluster_mask",
            expected="dst_block (to one block) or cluster_mask (to several)",
            got="both" if dst_block is not None else "neither",
        )
    to_one = dst_block is not None
    in_memory(a.buffer, f"the source of {name}", Memory.SHARED if to_one else Memory.GLOBAL)
    in_memory(b.buffer, f"the destination of {name}", Memory.SHARED)
    _same_dtype(a, b, name)
    if remote_barrier is not None and not to_one:
        raise refuse("option", f"remote_barrier of {name} with cluster_mask", help="leave it out")
    bar = None
    if remote_barrier is not None:
        bar = _barrier(remote_barrier, f"the remote_barrier of {name}", cluster=True)
    mask = 0 if cluster_mask is None else _mask(cluster_mask, name)
    eviction(eviction_policy, name)
    notes = hints(
        annotations,
        eviction_policy=eviction_policy,
        coalesced_width=coalesced_width,
        loop_layout=loop_layout,
    )
    builder.emit(
        sync.CopyCluster(
            a,
            b,
            dst_block=integer(dst_block, f"the dst_block of {name}") if to_one else None,
            remote_barrier=bar,
            cluster_mask=mask,
            hints=notes,
            loc=here(),
        )
    )


# -- asynchronous products -------------------------------------------------------------------------


def _issue(
    name: str,
    operands: tuple[Any, Any, Any],
    transposes: tuple[Any, Any],
    policy: Any,
    clear_accum: Any,
    **fields: Any,
) -> None:
    builder = launched(name)
    a, b, c = (matrix(x, letter, name) for x, letter in zip(operands, "ABC", strict=True))
    ta, tb = (bool(t) for t in transposes)
    check_product(a, b, c, ta, tb, name, pair=bool(fields.get("two_cta")))
    unit: AsyncUnit = fields["unit"]
    homes = (Memory.SHARED, Memory.FRAGMENT if unit is AsyncUnit.WGMMA else Memory.TMEM)
    in_memory(a.buffer, f"operand A of {name}", *homes)
    in_memory(b.buffer, f"operand B of {name}", Memory.SHARED)
    in_memory(c.buffer, f"operand C of {name}", homes[1])
    builder.emit(
        sync.AsyncGemm(
            a,
            b,
            c,
            condition(clear_accum),
            transpose_a=ta,
            transpose_b=tb,
            policy=int(GemmWarpPolicy(policy)),
            loc=here(),
            **fields,
        )
    )


def wgmma_gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: GemmWarpPolicy = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Issue `C += op(A) @ op(B)` as one wgmma group; `T.wait_wgmma` waits. Shapes as in `T.gemm`.

    A is in shared memory or a fragment, B in shared memory, C a fragment. Until the wait, C may
    not be touched and shared operands may not be written.
    """
    note(annotations, "T.wgmma_gemm")
    flags = (transpose_A, transpose_B)
    _issue("T.wgmma_gemm", (A, B, C), flags, policy, clear_accum, unit=AsyncUnit.WGMMA)


wgmma_mma = wgmma_gemm


def wait_wgmma(id: Any) -> None:
    """Wait until at most `id` of the newest wgmma groups are under way."""
    builder = launched("T.wait_wgmma")
    builder.emit(sync.WaitWgmma(known(id, "the count of T.wait_wgmma", 0, 7), loc=here()))


def warpgroup_wait(num_mma: Any) -> None:
    """`wait_wgmma`, by its PTX meaning (`wgmma.wait_group`)."""
    wait_wgmma(num_mma)


def warpgroup_arrive() -> None:
    """Order the thread's register accesses before the wgmma operations that follow
    (`wgmma.fence`).
    """
    _fence("wgmma", "T.warpgroup_arrive")


def warpgroup_fence_operand(
    buffer_or_ptr: Any, offset: Any = 0, num_regs: Any = None, dtype: Any = None
) -> None:
    """Keep the accumulator registers of a buffer where they are around wgmma operations; computes
    nothing.

    `offset` counts elements, `num_regs` 32-bit registers. Raises for something other than a buffer
    or its dtype.
    """
    name = "T.warpgroup_fence_operand"
    buffer, _ = place(buffer_or_ptr, f"the operand of {name}")
    if dtype is not None and element_type(dtype) != buffer.dtype:
        raise refuse(
            "dtype",
            f"the dtype of {name} is {dtype}",
            cls=TileValueError,
            expected=str(buffer.dtype),
            got=str(dtype),
        )
    integer(offset, f"the offset of {name}")
    if num_regs is not None:
        integer(num_regs, f"the registers of {name}")
    _fence("wgmma", name)


def tcgen05_gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: GemmWarpPolicy = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    *,
    mbar: Any,
    use_2cta: bool = False,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Issue `C += op(A) @ op(B)` on Tensor Memory; when done it arrives at `mbar` (None: no
    arrival). Shapes as in `T.gemm`.

    A is in shared or Tensor Memory, B in shared memory, C in Tensor Memory. `use_2cta` makes two
    blocks of a cluster work as a pair: each holds its rows of A and C, and half of the columns of
    B.
    """
    note(annotations, "T.tcgen05_gemm")
    bar = None if mbar is None else _barrier(mbar, "the mbar of T.tcgen05_gemm")
    flags = (transpose_A, transpose_B)
    fields = {"unit": AsyncUnit.TCGEN05, "barrier": bar, "two_cta": bool(use_2cta)}
    _issue("T.tcgen05_gemm", (A, B, C), flags, policy, clear_accum, **fields)


tcgen05_mma = tcgen05_gemm


def tcgen05_mma_arrive(mbar: Any, arrive_2cta: bool = False) -> None:
    """Make an mbarrier complete an arrival when all tcgen05 operations issued so far are done.

    With `arrive_2cta`, the barriers of both blocks of the pair.
    """
    builder = launched("T.tcgen05_mma_arrive")
    bar = _barrier(mbar, "the barrier of T.tcgen05_mma_arrive")
    builder.emit(sync.MmaArrive(bar, two_cta=bool(arrive_2cta), loc=here()))


def tcgen05_before_thread_sync() -> None:
    """Order the thread's tcgen05 operations before the thread barrier that follows."""
    _fence("tcgen05.before_thread_sync", "T.tcgen05_before_thread_sync")


def tcgen05_after_thread_sync() -> None:
    """Order the thread's later tcgen05 operations after the thread barrier before."""
    _fence("tcgen05.after_thread_sync", "T.tcgen05_after_thread_sync")


def _fence(kind: str, name: str) -> None:
    launched(name).emit(sync.Fence(kind, loc=here()))
