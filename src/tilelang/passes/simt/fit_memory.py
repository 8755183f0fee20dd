"""A located error for a kernel that needs more shared memory than a block has.

What enters and leaves: a program whose shared arrays have their places.
"""

from __future__ import annotations

from tilelang.errors import error
from tilelang.ir.expr import int_value
from tilelang.ir.thread import Declare, Program, Space, kernels_of
from tilelang.isa.target import Target
from tilelang.scopes import Memory


def fit_memory(program: Program, target: Target) -> Program:
    """The program, if every kernel's shared pool fits into a block of the target.

    Raises a `TileError` of kind `capacity` that names the largest arrays otherwise.
    """
    capacity = target.capacity(Memory.SHARED)
    for kernel in kernels_of(program):
        if capacity is None or kernel.shared <= capacity.amount:
            continue
        sizes = sorted(
            (
                ((int_value(s.array.size) or 0) * s.array.type.bytes, s.array.name)
                for s in kernel.walk()
                if isinstance(s, Declare) and s.array.space is Space.SHARED and s.array.size
            ),
            reverse=True,
        )
        largest = ", ".join(f"{name} {size:,}" for size, name in sizes[:4])
        raise error(
            "capacity",
            f"{kernel.name} needs more shared memory than a block of {target} has",
            kernel.loc,
            expected=f"at most {capacity.amount:,} bytes",
            got=f"{kernel.shared:,} bytes: {largest}",
            help="use smaller tiles or fewer stages",
        )
    return program
