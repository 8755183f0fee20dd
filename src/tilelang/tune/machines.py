"""A machine, as tile sizes are chosen for it: the numbers of a chip that bound and rank them.

What enters: the name of an Ascend chip. What leaves: the capacities and the number of cores that
programs of the adapter tree read from `tilelang.carver.arch.ascend.Ascend`, from the chip's table.
"""

from __future__ import annotations

from tilelang.errors import error
from tilelang.isa.target import Costs
from tilelang.scopes import Memory
from tilelang.targets.ascend.machine import ASCEND910B, ASCEND950, MACHINES

FRACTAL = 16
"""Rows and columns of a fractal: tiles of the cube unit are multiples of it."""

_CHIPS = {"Ascend910B": ASCEND910B, "Ascend950": ASCEND950}


class Ascend:
    """An Ascend chip, by default the one that kernels of the adapter dialect run on.

    `ub_cap`, `l1_cap`, `l0a_cap`, `l0b_cap` and `l0c_cap` are bytes; `compute_max_core` counts cube
    cores, of the largest chip of the name; `cube_shape` is the smallest product (M, N, K) of
    elements of two bytes. The numbers and their sources are those of `docs/ascend-machine.md`; the
    adapter tree has others for the 910B (L1 of 1 MB, L0C of 512 KB). ValueError for another chip.
    """

    platform = "ascend"
    cube_shape = (FRACTAL, FRACTAL, FRACTAL)

    def __init__(self, chip_name: str = "Ascend910B") -> None:
        chip = _CHIPS.get(chip_name)
        if chip is None or chip.costs is None:
            raise error(
                "target",
                f"tilelang.carver has no numbers of the chip {chip_name!r}",
                expected=" or ".join(map(repr, _CHIPS)),
                got=repr(chip_name),
            )
        self.chip_name = chip_name
        self.costs: Costs = chip.costs
        self.compute_max_core = max(part.cube_cores for part in MACHINES[chip.name].parts)
        memories = (Memory.UB, Memory.L1, Memory.L0A, Memory.L0B, Memory.L0C)
        caps = (chip.capacities(memory)[0].amount for memory in memories)
        self.ub_cap, self.l1_cap, self.l0a_cap, self.l0b_cap, self.l0c_cap = caps

    def __repr__(self) -> str:
        return f"Ascend(chip_name={self.chip_name!r})"
