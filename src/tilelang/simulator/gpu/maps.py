"""Tensor maps as the Tensor Memory Accelerator reads them: boxes of a tensor, and their places.

What enters: the fields of a CUtensorMap, and coordinates. What leaves: byte offsets in global
memory with a mask of those inside, and byte offsets in shared memory. Sources: CUDA Driver API,
cuTensorMapEncodeTiled; PTX ISA 9.0, "Tensors" (bounding box, swizzling modes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.ir.thread import TensorMap
from tilelang.simulator.gpu.arrays import Window

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TensorView:
    """A tensor map: `dims` in elements, `strides` in bytes of all axes but the innermost."""

    map: TensorMap
    window: Window
    dims: Sequence[int]
    strides: Sequence[int]

    @property
    def box_bytes(self) -> int:
        """The bytes of a box, whether it is inside or not."""
        return int(np.prod(self.map.box)) * self.window.item

    def box(self, at: Sequence[int]) -> tuple[Offsets, npt.NDArray[np.bool_]]:
        """Byte offsets in the tensor of the elements of the box at `at`, in the order in which they
        lie in shared memory, and which of them are inside.
        """
        extents = self.map.box
        places = np.indices(tuple(reversed(extents))).reshape(len(extents), -1)[::-1]
        coordinates = places + np.array(at)[:, None]
        inside = np.ones(places.shape[1], np.bool_)
        offset = np.zeros(places.shape[1], np.int64)
        for c, extent, stride in zip(
            coordinates, self.dims, (self.window.item, *self.strides), strict=True
        ):
            inside &= (c >= 0) & (c < extent)
            offset += c * stride
        return offset, inside

    def rows(self, column: int, numbers: Sequence[int]) -> tuple[Offsets, npt.NDArray[np.bool_]]:
        """The same of some rows that lie anywhere, from a column on (PTX ISA, "Tiled mode",
        `.tile::gather4` and `.tile::scatter4`).
        """
        found = [self.box((column, number)) for number in numbers]
        return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])

    @property
    def outside(self) -> npt.NDArray[Any]:
        """The bytes of an element that is outside of the tensor: zero, or NaN."""
        dtype = self.window.dtype
        value: Any = np.nan if self.map.nan_fill else 0
        return np.asarray(value).astype(dtype.numpy).reshape(1).view(np.uint8)


def swizzled(address: Offsets, span: int) -> Offsets:
    """Where the bytes of a row-major box lie in shared memory: groups of 16 bytes change places
    within `span` bytes, by the number of the row of 128 bytes.
    """
    if span == 0:
        return address
    return address ^ (((address >> 7) & (span // 16 - 1)) << 4)
