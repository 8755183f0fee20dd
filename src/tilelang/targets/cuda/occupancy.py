"""How many blocks of a kernel an SM holds, without a device.

What enters: the chip, and what a kernel uses. What leaves: the number of blocks and what limits it.
Source: CUDA C++ Best Practices Guide, Calculating Occupancy; registers are handed out to a warp in
units of 256 from a quarter of the SM's, shared memory in units of 128 bytes beside what the system
keeps for each block.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.isa.target import Chip, Per
from tilelang.scopes import Memory
from tilelang.targets.cuda.facts import RESERVED_PER_BLOCK

_REGISTER_UNIT, _SHARED_UNIT, _PARTS = 256, 128, 4


@dataclass(frozen=True)
class Occupancy:
    """Blocks of a kernel on an SM at a time; `limit` says what keeps it from more."""

    blocks: int
    limit: str


def occupancy(chip: Chip, *, registers: int, threads: int, shared: int) -> Occupancy:
    """Of a kernel with `registers` for a thread at launch, `threads` and bytes of shared memory for
    a block.
    """
    limits = chip.threads
    if limits is None:
        return Occupancy(0, "a chip without threads")
    warps = -(-threads // limits.warp_size.value)
    per_warp = -(-max(registers, 1) * limits.warp_size.value // _REGISTER_UNIT) * _REGISTER_UNIT
    part = _per_core(chip, Memory.REGISTERS) // _PARTS
    per_block = -(-shared // _SHARED_UNIT) * _SHARED_UNIT + RESERVED_PER_BLOCK.value
    found = {
        "registers": part // per_warp * _PARTS // warps,
        "shared memory": _per_core(chip, Memory.SHARED) // per_block,
        "threads": limits.warps_per_core.value // warps,
        "blocks": limits.blocks_per_core.value,
    }
    limit = min(found, key=lambda name: found[name])
    return Occupancy(found[limit], limit)


def _per_core(chip: Chip, memory: Memory) -> int:
    return next(c.amount for c in chip.capacities(memory) if c.per is Per.CORE)
