"""float16 to float32 by whole arrays is what NumPy does element by element."""

import numpy as np
import pytest

from tilelang.dtypes import halves

EVERY = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


@pytest.mark.parametrize(
    "x",
    [
        EVERY,
        EVERY[:100],
        EVERY[:0x7C00],
        EVERY.reshape(64, 32, 32).swapaxes(0, 2),
        EVERY[::-3],
        EVERY[:0],
    ],
)
def test_every_half_is_widened(x):
    with np.errstate(all="ignore"):
        wanted = x.astype(np.float32)
    assert halves.widened(x).tobytes() == wanted.tobytes()
