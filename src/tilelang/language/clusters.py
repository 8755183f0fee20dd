"""Clusters of thread blocks: launching them, where a block is in its cluster, the cluster's
barrier, and cluster launch control: blocks that take over what clusters not yet launched would do.

Extents and indices are blocks. A launch without `cluster_dims` has clusters of one block.
"""

from __future__ import annotations

from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import TileValueError
from tilelang.ir.expr import Region, const, int_value
from tilelang.ir.sync import (
    CLC_PARTS,
    RESPONSE,
    ClcQuery,
    ClcTryCancel,
    ClusterBarrier,
    ClusterStep,
    Fence,
)
from tilelang.language.arguments import (
    barrier,
    in_memory,
    known,
    launch_of,
    launched,
    place,
    refuse,
)
from tilelang.language.buffers import here, plain
from tilelang.language.launch import MAX_AXES, Kernel, KernelLaunchFrame
from tilelang.language.maths import ceildiv
from tilelang.language.shapes import shape_text
from tilelang.language.values import Value
from tilelang.scopes import Memory


def ClusterKernel(
    *blocks: Any, cluster_dims: Any, threads: Any = None, prelude: str | None = None
) -> KernelLaunchFrame:
    """`T.Kernel` whose blocks form clusters of `cluster_dims` blocks: an int (along x) or up to 3
    extents.
    """
    if cluster_dims is None:
        raise refuse(
            "value",
            "T.ClusterKernel without cluster_dims",
            expected="blocks per cluster, such as 2",
        )
    return Kernel(*blocks, threads=threads, prelude=prelude, cluster_dims=cluster_dims)


def get_cluster_dims() -> list[int]:
    """The blocks of a cluster along x, y, z; [1, 1, 1] without clusters."""
    dims = launch_of("T.get_cluster_dims").cluster
    return [*dims, *([1] * (MAX_AXES - len(dims)))]


def get_cluster_size() -> int:
    """The blocks of a cluster."""
    x, y, z = get_cluster_dims()
    return x * y * z


def _axis(dim: Any, what: str) -> int:
    return known(dim, f"the axis of {what}", 0, MAX_AXES - 1)


def get_cluster_id(dim: int = 0) -> Any:
    """The index of the block's cluster along x (0), y (1) or z (2); 0 along an axis that is not
    launched.
    """
    launch, axis = launch_of("T.get_cluster_id"), _axis(dim, "T.get_cluster_id")
    if axis >= len(launch.vars):
        return 0
    size = get_cluster_dims()[axis]
    block = Value(launch.vars[axis])
    return block if size == 1 else block // size


def get_cluster_ids() -> list[Any]:
    """The indices of the block's cluster along the launched axes."""
    return [get_cluster_id(axis) for axis in range(len(launch_of("T.get_cluster_ids").vars))]


def get_cluster_extent(dim: int = 0) -> Any:
    """The clusters along one axis: blocks over blocks per cluster, rounded up."""
    launch, axis = launch_of("T.get_cluster_extent"), _axis(dim, "T.get_cluster_extent")
    if axis >= len(launch.grid):
        return 1
    return ceildiv(plain(launch.grid[axis]), get_cluster_dims()[axis])


def get_cluster_extents() -> list[Any]:
    """The clusters along x, y, z."""
    return [get_cluster_extent(axis) for axis in range(MAX_AXES)]


def block_rank_in_cluster() -> Any:
    """The rank of the block in its cluster, x fastest (int32); 0 without clusters."""
    launch = launch_of("T.block_rank_in_cluster")
    terms: list[Any] = []
    stride = 1
    for var, size in zip(launch.vars, launch.cluster, strict=False):
        if size > 1:
            within = Value(var) % size
            terms.append(within if stride == 1 else within * stride)
        stride *= size
    return sum(terms[1:], terms[0]) if terms else 0


def _barrier(step: ClusterStep, name: str) -> None:
    launched(name).emit(ClusterBarrier(step, loc=here()))


def cluster_sync() -> None:
    """All threads of all blocks of the cluster wait for each other."""
    _barrier(ClusterStep.SYNC, "T.cluster_sync")


def cluster_arrive() -> None:
    """Arrive at the cluster's barrier, releasing the thread's writes, without waiting."""
    _barrier(ClusterStep.ARRIVE, "T.cluster_arrive")


def cluster_arrive_relaxed() -> None:
    """Arrive at the cluster's barrier without waiting and without ordering memory."""
    _barrier(ClusterStep.ARRIVE_RELAXED, "T.cluster_arrive_relaxed")


def cluster_wait() -> None:
    """Wait for the cluster's barrier at which the thread has arrived."""
    _barrier(ClusterStep.WAIT, "T.cluster_wait")


# -- cluster launch control ------------------------------------------------------------------------

_WORDS = RESPONSE // 4


def _response(x: Any, name: str) -> Region:
    """The 16 bytes of an answer: four words of shared memory that begin at a multiple of four."""
    buffer, indices = place(x, f"the result of {name}")
    in_memory(buffer, f"the result of {name}", Memory.SHARED)
    first, size = int_value(indices[-1]), int_value(buffer.shape[-1])
    rows = size is not None and (size % _WORDS == 0 or buffer.rank == 1)
    inside = first is not None and size is not None and first + _WORDS <= size
    if (
        buffer.dtype.name not in ("uint32", "int32")
        or not rows
        or not inside
        or (first or 0) % _WORDS
    ):
        raise refuse(
            "shape",
            f"the result of {name} is not 16 bytes of {buffer.name}",
            cls=TileValueError,
            expected="four neighbouring words of 32 bits in a row of shared memory, such as"
            ' T.alloc_shared((4,), "uint32"); the first is a multiple of four',
            got=f"{buffer.name} of type {buffer.dtype} and shape {shape_text(buffer.shape)}",
        )
    extents = (*(const(1) for _ in indices[:-1]), const(_WORDS))
    return Region(buffer, indices, extents, loc=here())


def _try_cancel(result: Any, bar: Any, name: str, *, multicast: bool) -> None:
    builder = launched(name)
    response, at = _response(result, name), barrier(bar, f"the mbarrier of {name}")
    builder.emit(ClcTryCancel(response, at, multicast=multicast, loc=here()))


def clc_try_cancel(result: Any, mbarrier: Any) -> None:
    """Ask, by each thread that gets here, for a cluster of the launch that has not begun; no wait.

    The answer is written to `result` (four words in shared memory) and completes 16 bytes on
    `mbarrier`, which the author makes it expect. A cluster that it names never begins: its work is
    for this one. After an answer that names none a block asks no more. ValueError for another
    result.
    """
    _try_cancel(result, mbarrier, "T.clc_try_cancel", multicast=False)


def clc_try_cancel_multicast(result: Any, mbarrier: Any) -> None:
    """As `T.clc_try_cancel`, with one answer for all blocks of the cluster, each of which gets it
    in its own `result` and on its own `mbarrier`.
    """
    _try_cancel(result, mbarrier, "T.clc_try_cancel_multicast", multicast=True)


def _query(result: Any, part: str, name: str) -> Value:
    builder, response = launched(name), _response(result, name)
    var = builder.fresh_var(builder.name_hint(part), DType(CLC_PARTS[part][0]))
    builder.emit(ClcQuery(var, response, part, loc=here()))
    builder.define(var)
    # What is read here is written by the async proxy the next time.
    builder.emit(Fence("proxy.async", loc=here()))
    return Value(var)


def clc_is_canceled(result: Any) -> Value:
    """1 (int32) if an answer of `T.clc_try_cancel` that is complete names a cluster, else 0."""
    return _query(result, "is_canceled", "T.clc_is_canceled")


def clc_get_first_ctaid_x(result: Any) -> Value:
    """The index x (uint32) of the first block of the cluster that an answer names; 0 if none."""
    return _query(result, "first_ctaid_x", "T.clc_get_first_ctaid_x")


def clc_get_first_ctaid_y(result: Any) -> Value:
    """The index y (uint32) of the first block of the cluster that an answer names; 0 if none."""
    return _query(result, "first_ctaid_y", "T.clc_get_first_ctaid_y")


def clc_get_first_ctaid_z(result: Any) -> Value:
    """The index z (uint32) of the first block of the cluster that an answer names; 0 if none."""
    return _query(result, "first_ctaid_z", "T.clc_get_first_ctaid_z")
