"""Clusters of thread blocks: launching them, where a block is in its cluster, and the cluster's
barrier.

Extents and indices are blocks. A launch without `cluster_dims` has clusters of one block.
"""

from __future__ import annotations

from typing import Any

from tilelang.ir.sync import ClusterBarrier, ClusterStep
from tilelang.language.arguments import known, launch_of, launched, refuse
from tilelang.language.buffers import here, plain
from tilelang.language.launch import MAX_AXES, Kernel, KernelLaunchFrame
from tilelang.language.maths import ceildiv
from tilelang.language.values import Value


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
