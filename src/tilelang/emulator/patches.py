"""The meaning of im2col: the patches of an image that a convolution multiplies.

What enters: an image (N, H, W, C) and the place of a tile in the matrix of all patches. What
leaves: the tile. Row `r` of that matrix is output pixel `r` of the flattened (N, H_out, W_out);
column `c` is element `c` of the flattened (kernel, kernel, C) patch. Outside the image, and outside
the matrix, is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.dtypes.convert import converter
from tilelang.emulator import storage
from tilelang.emulator.storage import Array, Tile
from tilelang.errors import error
from tilelang.ir.node import Node
from tilelang.ir.special import Im2col


def im2col(node: Im2col, image: Tile, col: Tile, nhw_step: Any, c_step: Any) -> None:
    """One tile of the matrix of patches."""
    source = storage.read(image)
    if source.ndim != 4:
        raise error(
            "shape",
            "the image of T.im2col",
            node.loc,
            expected="(N, H, W, C)",
            got=f"{source.shape}",
        )
    rows, columns = col.extents[-2:]
    pixels = int(nhw_step) * rows + np.arange(rows)
    parts = int(c_step) * columns + np.arange(columns)
    values = _gathered(node, source, pixels, parts)
    values = converter(image.access.dtype, col.access.dtype)(values)
    storage.write(col, values.reshape(col.extents))


def _gathered(node: Im2col, image: Array, pixels: Array, parts: Array) -> Array:
    count, height, width, channels = image.shape
    reach = node.dilation * (node.kernel - 1) + 1
    high = max((height + 2 * node.pad - reach) // node.stride + 1, 0)
    wide = max((width + 2 * node.pad - reach) // node.stride + 1, 0)
    out = np.zeros((len(pixels), len(parts)), image.dtype)
    real = (pixels >= 0) & (pixels < count * high * wide)
    patch = (parts >= 0) & (parts < node.kernel * node.kernel * channels)
    n, y, x = np.unravel_index(pixels[real], (count, high, wide))
    ky, kx, c = np.unravel_index(parts[patch], (node.kernel, node.kernel, channels))
    row = (y * node.stride - node.pad)[:, None] + ky * node.dilation
    column = (x * node.stride - node.pad)[:, None] + kx * node.dilation
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    found = np.zeros(inside.shape, image.dtype)
    batch, channel = np.broadcast_to(n[:, None], inside.shape), np.broadcast_to(c, inside.shape)
    found[inside] = image[batch[inside], row[inside], column[inside], channel[inside]]
    out[np.ix_(real, patch)] = found
    return out


OPS: dict[type[Node], Callable[..., None]] = {Im2col: im2col}
"""The function of every node class here."""
