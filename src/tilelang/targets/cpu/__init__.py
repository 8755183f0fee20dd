"""The CPU as a target: what it can run, and that its memories have no fixed size.

What enters: nothing. What leaves: `CHIPS`, with the one chip `cpu`. It executes kernels of the
common dialect; shared memory, registers and Tensor Memory are ordinary arrays there, so a kernel
that asks for them runs, and no capacity is checked.
"""

from __future__ import annotations

from tilelang.isa.target import Capability, Chip
from tilelang.scopes import Memory

CPU = Chip(
    name="cpu",
    backend="cpu",
    vendor="any",
    family="CPU",
    arch=0,
    capabilities=frozenset(
        {
            Capability.COMMON_DIALECT,
            Capability.SIMT,
            Capability.MBARRIER,
            Capability.CLUSTER,
            Capability.TENSOR_MEMORY,
        }
    ),
    memories={
        Memory.GLOBAL: (),
        Memory.SHARED: (),
        Memory.REGISTERS: (),
        Memory.TMEM: (),
    },
    default=True,
)

CHIPS: tuple[Chip, ...] = (CPU,)
