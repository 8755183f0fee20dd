"""Cluster launch control: a cluster asks for one that has not begun, and does its work too.

PTX ISA 9.0: "clusterlaunchcontrol". Which clusters have begun elsewhere when a request is carried
out is the schedule's choice. The answer is written by the async proxy, and completes its bytes at
an mbarrier; only these rows know what its 16 bytes mean.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilelang.simulator.gpu.arrays import Values
from tilelang.simulator.gpu.rows.registry import Use, row
from tilelang.simulator.gpu.rows.tensor import Target, byte_of, deliver
from tilelang.simulator.machine import Who
from tilelang.simulator.machine.schedule import Steps

_FOUND = 0x434C_4331
"""The last word of an answer that names a cluster; the others are its first block's place."""
_OVER = "launch control"
"""What a block keeps that has seen an answer without a cluster."""


@row("clusterlaunchcontrol.try_cancel", "clusterlaunchcontrol.try_cancel.multicast")
def try_cancel(use: Use) -> Steps:
    """A request by each thread, answered to the block, or to all blocks of the cluster."""
    block = use.group.block
    many = use.facts.row.endswith("multicast")
    for lane in use.lanes.tolist():
        if block.kept(_OVER):
            block.report.add(
                "async",
                "a block asks for a cluster after it has seen that there is none",
                use.loc,
                help="end the loop at the first answer for which T.clc_is_canceled gives 0",
            )
        start = byte_of(use, use.outs[0], use.out_site(0), lane, 16)
        barrier = byte_of(use, use.outs[1], use.out_site(1), lane, 8)
        to = np.arange(start, start + 16)
        ranks = range(block.cluster.size) if many else [block.rank]
        targets = [Target(block.cluster.block(r, use.loc), to, barrier) for r in ranks]

        def answer(who: Who) -> npt.NDArray[np.uint8]:
            del who
            place = block.machine.cancel()
            words = [0, 0, 0, 0] if place is None else [*(*place, 0, 0)[:3], _FOUND]
            return np.array(words, np.uint32).view(np.uint8)

        deliver(use, lane, answer, targets, use.site, fenced=True)
    yield None


@row("clusterlaunchcontrol.query_cancel.*")
def query_cancel(use: Use) -> tuple[Values]:
    """What an answer says."""
    words = use.read(0).astype(np.uint32)
    found, part = words[3] == _FOUND, use.facts.parts[-1]
    if part == "is_canceled":
        if not found[use.lanes].all():
            use.group.block.unit(_OVER, lambda: True)
        return (found.astype(np.int32),)
    return (np.where(found, words["xyz".index(part[-1])], 0).astype(np.uint32),)
