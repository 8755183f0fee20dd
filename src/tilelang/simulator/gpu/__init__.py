"""A model of an NVIDIA GPU that runs programs of the thread stage as the emitter prints them.

    partition    which warps go through a kernel in lockstep
    translate    a kernel -> the text of a Python generator (expressions: of values)
    arrays       registers and windows of memory that the text names
    group        what warps in lockstep have: lanes, masks, accesses
    block        blocks and clusters: shared memory, barriers, asynchronous units
    rows/        what each instruction does; a registry by name (`rows.registry`)
    decode       descriptors and maps as hardware reads them, from bits
    launch       grids; program: the host level

Threads of a warp that part company meet again after the statement that parted them; warps never
wait for each other but where the program says so. What is not modelled is refused by name.
"""

from __future__ import annotations

from tilelang.simulator.gpu.program import SimulatedProgram

__all__ = ["SimulatedProgram"]
