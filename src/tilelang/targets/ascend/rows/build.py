"""Short forms for writing rows of Ascend cores, and what such a row says beyond `InstrRow`.

What enters: names and facts. What leaves: `PipeRow`s. Elements of an operand need not be
neighbours: `views` says, from the scalars and immediates of the instruction, which elements counted
from the slot's first one belong to it, as a shape and strides. A meaning gets arrays of these
shapes, that are the memory itself; what is checked for bounds and for races is exactly these
elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.ir.ascend import Core, Pipe
from tilelang.ir.node import Effect
from tilelang.ir.thread import Space
from tilelang.isa.instr import Immediate, InstrRow, Is, OperandRow

Array = npt.NDArray[Any]
Strided = tuple[tuple[int, ...], tuple[int, ...]]
"""A shape, and strides in elements from the slot's first one."""

R, W, U, ATOMIC = Effect.READ, Effect.WRITE, Effect.UPDATE, Effect.ATOMIC
GM, UB, L1 = (Space.GLOBAL,), (Space.UB,), (Space.L1,)
L0A, L0B, L0C = (Space.L0A,), (Space.L0B,), (Space.L0C,)
L0A_SCALE, L0B_SCALE = (Space.L0A_SCALE,), (Space.L0B_SCALE,)

FRACTAL = 16
"""Rows of a fractal, on every chip and for every dtype (`Format`)."""

C0_BYTES = 32
"""Bytes of a row of a fractal in L1, L0A and L0B."""

BLOCK = 32
"""Bytes: what addresses in UB and L1 are a multiple of."""


@dataclass(frozen=True)
class PipeRow(InstrRow):
    """An instruction of an Ascend core.

    `pipe` is the queue that it goes to (S: the scalar unit does it itself) and `core` the kind of
    core that has it, None for both. `views` are the elements of each slot operand; an operand that
    it leaves out is `count` neighbours. `stores` says that the atomic mode applies to what it
    writes. `remote` says that its output lies in the UB of the vector core that the operand `sub`
    names. `lanes` says that its meaning takes operands of several blocks at once: each array has
    one axis more, the first one, and so have those scalars that are not the same in all blocks.
    """

    pipe: Pipe = Pipe.S
    core: Core | None = None
    views: Callable[[Mapping[str, Any]], dict[str, Strided]] | None = field(
        default=None, compare=False
    )
    stores: bool = False
    remote: bool = False
    lanes: bool = False


def slot(name: str, effect: Effect = R, spaces: tuple[Space, ...] = UB, **facts: Any) -> OperandRow:
    """Elements of an array."""
    return OperandRow(name, effect, spaces=spaces, **facts)


COUNTS = ("int32", "int64")
"""The dtypes of a scalar that decides which elements belong to an operand."""


def count(name: str) -> OperandRow:
    """A number of elements, rows or the like, known when the instruction is issued."""
    return OperandRow(name, kind=Is.VALUE, dtypes=COUNTS)


def counts(*names: str) -> tuple[OperandRow, ...]:
    """Several such numbers."""
    return tuple(count(name) for name in names)


def value(name: str, *dtypes: str, like: str = "") -> OperandRow:
    """A scalar that is read."""
    return OperandRow(name, kind=Is.VALUE, dtypes=dtypes, like=like)


def choice(name: str, *choices: Any, optional: bool = False) -> Immediate:
    """An immediate that is one of `choices`, which are of one type."""
    return Immediate(name, choices[0].__class__, choices, optional)


def c0_of(x: Array) -> int:
    """The elements of a row of a fractal."""
    return C0_BYTES // x.itemsize


def ceil_to(n: int, step: int) -> int:
    """`n` rounded up to a multiple of `step`."""
    return -(-n // step) * step


# Fractal tiles ------------------------------------------------------------------------------------


def zn_view(rows: int, columns: int, pitch: int, c0: int) -> Strided:
    """A tile of an L1 matrix in zN order, `[column/C0][row][column%C0]`.

    `pitch` is the number of rows of the whole matrix, a multiple of 16. The last block is whole.
    """
    return (-(-columns // c0), rows, c0), (pitch * c0, c0, 1)


def read_blocks(x: Array, columns: int) -> Array:
    """A (..., blocks, rows, width) view as a matrix of `columns` columns."""
    *lanes, blocks, rows, width = x.shape
    return x.swapaxes(-3, -2).reshape(*lanes, rows, blocks * width)[..., :columns]


def write_blocks(x: Array, matrix: Array) -> None:
    """A matrix into a (..., blocks, rows, width) view; what the last block has too much is zero."""
    *lanes, blocks, rows, width = x.shape
    columns = matrix.shape[-1]
    whole = columns // width
    if whole:
        tiles = matrix[..., : whole * width].reshape(*lanes, rows, whole, width)
        x[..., :whole, :, :] = tiles.swapaxes(-3, -2)
    if whole < blocks:
        x[..., whole:, :, :] = np.zeros((), x.dtype)
        x[..., whole, :, : columns - whole * width] = matrix[..., whole * width :]
