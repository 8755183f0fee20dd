"""Operations that name an instruction of the hardware: the chip must have it.

What enters: a `Program`. What leaves: errors for explicit asynchronous copies and products,
mbarriers and cluster barriers on a chip without them. A target that is no chip in particular
carries their meaning out, so nothing is refused there.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.errors import Diagnostic
from tilelang.ir import sync
from tilelang.ir.scales import ScaleCopy
from tilelang.ir.special import GemmBlockScaled
from tilelang.ir.tile import Stmt
from tilelang.isa.target import Capability
from tilelang.passes.check.program import Program

# What each operation needs, with its name in the PTX ISA.
_NEEDS: dict[type[Stmt], tuple[Capability, str]] = {
    sync.AsyncCopy: (Capability.CP_ASYNC, "cp.async"),
    sync.CommitGroup: (Capability.CP_ASYNC, "cp.async.commit_group"),
    sync.WaitGroup: (Capability.CP_ASYNC, "cp.async.wait_group"),
    sync.CpAsyncArrive: (Capability.CP_ASYNC, "cp.async.mbarrier.arrive"),
    sync.TmaCopy: (Capability.TMA, "cp.async.bulk.tensor"),
    sync.TmaGather4: (Capability.TMA_ROWS, "cp.async.bulk.tensor with .tile::gather4"),
    sync.TmaScatter4: (Capability.TMA_ROWS, "cp.async.bulk.tensor with .tile::scatter4"),
    sync.TmaStoreArrive: (Capability.TMA, "cp.async.bulk.commit_group"),
    sync.TmaStoreWait: (Capability.TMA, "cp.async.bulk.wait_group"),
    sync.CopyCluster: (Capability.CLUSTER, "a copy between blocks of a cluster"),
    sync.ClusterBarrier: (Capability.CLUSTER, "barrier.cluster"),
    sync.MbarArrive: (Capability.MBARRIER, "mbarrier.arrive"),
    sync.MbarExpectTx: (Capability.MBARRIER, "mbarrier.expect_tx"),
    sync.MbarWait: (Capability.MBARRIER, "mbarrier.try_wait"),
    sync.WaitWgmma: (Capability.WGMMA, "wgmma.wait_group"),
    sync.MmaArrive: (Capability.TCGEN05, "tcgen05.commit"),
    ScaleCopy: (Capability.TCGEN05, "tcgen05.cp"),
    sync.ClcTryCancel: (Capability.LAUNCH_CONTROL, "clusterlaunchcontrol.try_cancel"),
    sync.ClcQuery: (Capability.LAUNCH_CONTROL, "clusterlaunchcontrol.query_cancel"),
    GemmBlockScaled: (Capability.FP4, "a block-scaled product"),
}
_UNITS = {
    sync.AsyncUnit.WGMMA: (Capability.WGMMA, "wgmma"),
    sync.AsyncUnit.TCGEN05: (Capability.TCGEN05, "tcgen05.mma"),
}


def instructions_exist(program: Program) -> Iterator[Diagnostic]:
    """The chip has every instruction that the author asks for by name."""
    target = program.target
    if not target.limited or target.chip is None or not target.runs(program.dialect):
        return
    for launch in program.launches:
        for node in launch.walk():
            need = _UNITS[node.unit] if isinstance(node, sync.AsyncGemm) else None
            need = need or _NEEDS.get(type(node))  # pyright: ignore[reportArgumentType]
            if need is None or target.supports(need[0]):
                continue
            able = program.chips_with(lambda t, c=need[0]: t.supports(c))
            yield Diagnostic(
                "target",
                f"{target.chip.name} ({target.chip.family}) has no {need[1]}",
                node.loc,
                expected=f"a chip with {need[0].value}{': ' + able if able else ''}",
                got=f"target '{target}'",
                help="use T.copy and T.gemm, which take what the chip has",
            )
