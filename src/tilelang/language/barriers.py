"""mbarriers, fences and programmatic dependent launch.

A barrier argument is an element of a buffer of `T.alloc_barrier` or `T.alloc_cluster_barrier`
(`bars[i]`), or the buffer itself, which means its first element. Transaction counts are bytes;
parities are 0 or 1.
"""

from __future__ import annotations

from typing import Any

from tilelang.ir.expr import INT32, Const, Expr
from tilelang.ir.sync import Fence, LaunchDependency, MbarArrive, MbarExpectTx, MbarWait
from tilelang.language.arguments import barrier, integer, known, launched, number, refuse
from tilelang.language.buffers import here
from tilelang.language.values import as_expr


def _bytes(tx: Any, what: str) -> Expr:
    e = integer(tx, f"the bytes of {what}")
    if isinstance(e, Const):
        known(
            tx, f"the bytes of {what}", 0, 2**20 - 1
        )  # PTX ISA: the tx-count of an mbarrier has 20 bits
    return e


def _arrive(name: str, mbarrier: Any, tx: Expr | None = None, cta_id: Any = None) -> None:
    builder = launched(name)
    bar = barrier(mbarrier, f"the barrier of {name}", cluster=cta_id is not None)
    cta = None if cta_id is None else integer(cta_id, f"the block of {name}")
    builder.emit(MbarArrive(bar, tx_bytes=tx, cta=cta, loc=here()))


def mbarrier_wait_parity(mbarrier: Any, parity: Any) -> None:
    """Wait until the phase of `parity` of an mbarrier is complete: 0 is the first phase, then 1,
    0, 1, ...
    """
    builder = launched("T.mbarrier_wait_parity")
    bar = barrier(mbarrier, "the barrier of T.mbarrier_wait_parity")
    phase = number(parity, "the parity of T.mbarrier_wait_parity")
    if phase.dtype.kind not in ("int", "uint", "bool"):
        raise refuse(
            "dtype", "the parity of T.mbarrier_wait_parity", expected="0 or 1", got=str(phase.dtype)
        )
    if isinstance(phase, Const):
        known(int(phase.value), "the parity of T.mbarrier_wait_parity", 0, 1)
    builder.emit(MbarWait(bar, as_expr(phase, INT32), loc=here()))


def mbarrier_arrive(mbarrier: Any, cta_id: Any = None) -> None:
    """Arrive once at an mbarrier, for each thread that gets here; at block `cta_id`'s of the
    cluster, if given.

    Raises for `cta_id` with a barrier that is not of `T.alloc_cluster_barrier`.
    """
    _arrive("T.mbarrier_arrive", mbarrier, cta_id=cta_id)


def mbarrier_expect_tx(mbarrier: Any, tx: Any) -> None:
    """Add `tx` bytes to what the current phase expects, without arriving."""
    builder = launched("T.mbarrier_expect_tx")
    bar = barrier(mbarrier, "the barrier of T.mbarrier_expect_tx")
    builder.emit(MbarExpectTx(bar, _bytes(tx, "T.mbarrier_expect_tx"), loc=here()))


def mbarrier_arrive_expect_tx(mbarrier: Any, tx: Any) -> None:
    """Add `tx` bytes to what the current phase expects, then arrive."""
    name = "T.mbarrier_arrive_expect_tx"
    _arrive(name, mbarrier, _bytes(tx, name))


def barrier_arrive(mbarrier: Any) -> None:
    """`mbarrier_arrive` in the block."""
    _arrive("T.barrier_arrive", mbarrier)


def barrier_wait(mbarrier: Any, parity: Any) -> None:
    """`mbarrier_wait_parity`."""
    mbarrier_wait_parity(mbarrier, parity)


def ptx_arrive_barrier(barrier_id: Any) -> None:
    """`mbarrier_arrive` in the block, by its PTX name."""
    _arrive("T.ptx_arrive_barrier", barrier_id)


def ptx_arrive_barrier_expect_tx(barrier_id: Any, byte_count: Any) -> None:
    """`mbarrier_arrive_expect_tx`, by its PTX name."""
    name = "T.ptx_arrive_barrier_expect_tx"
    _arrive(name, barrier_id, _bytes(byte_count, name))


def ptx_arrive_cluster_barrier(mbarrier: Any, cta_id: Any) -> None:
    """`mbarrier_arrive` at the barrier of block `cta_id` of the cluster."""
    _arrive("T.ptx_arrive_cluster_barrier", mbarrier, cta_id=cta_id)


def ptx_fence_barrier_init() -> None:
    """Make the initialisation of mbarriers known to the cluster before they are used."""
    _fence("mbarrier_init", "T.ptx_fence_barrier_init")


def fence_proxy_async() -> None:
    """Order the thread's ordinary accesses to shared memory before later ones of TMA, wgmma and
    tcgen05.
    """
    _fence("proxy.async", "T.fence_proxy_async")


def _fence(kind: str, name: str) -> None:
    launched(name).emit(Fence(kind, loc=here()))


def pdl_trigger() -> None:
    """Let the kernel that is launched after this one begin (`griddepcontrol.launch_dependents`)."""
    launched("T.pdl_trigger").emit(LaunchDependency("trigger", loc=here()))


def pdl_sync() -> None:
    """Wait until the kernel launched before this one is complete (`griddepcontrol.wait`)."""
    launched("T.pdl_sync").emit(LaunchDependency("sync", loc=here()))
