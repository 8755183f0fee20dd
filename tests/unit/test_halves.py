"""float16 to float32 and back by whole arrays is what NumPy does element by element."""

import numpy as np
import pytest

from tilelang.dtypes import halves

RNG = np.random.default_rng(5)


def every_half():
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16)


def test_every_half_is_widened():
    halves_ = every_half()
    for x in (halves_, halves_[:100], halves_.reshape(64, 32, 32).swapaxes(0, 2), halves_[::-3]):
        with np.errstate(all="ignore"):
            wanted = x.astype(np.float32)
        assert halves.widened(x).tobytes() == wanted.tobytes()


def around_halves():
    """Every finite half, the values between it and the next, and their neighbours in float32."""
    near = every_half()[:0x7C00].astype(np.float32)
    words = np.concatenate([near, (near[1:] + near[:-1]) / 2]).view(np.uint32).astype(np.int64)
    words = np.concatenate([words, words + 1, words - 1]).clip(0).astype(np.uint32)
    return np.concatenate([words.view(np.float32), -words.view(np.float32)])


@pytest.mark.parametrize(
    "x",
    [
        around_halves(),
        around_halves()[:1000],
        RNG.integers(0, 1 << 32, 1 << 18, np.uint32).view(np.float32),
        np.where(RNG.random(4096) < 0.01, np.nan, RNG.standard_normal(4096)).astype(np.float32),
        (RNG.standard_normal((64, 64)) * 1e-6).astype(np.float32).T,
        np.linspace(60000, 70000, 5000, dtype=np.float32),
    ],
)
def test_halves_are_narrowed(x):
    with np.errstate(all="ignore"):
        assert halves.narrowed(x).tobytes() == x.astype(np.float16).tobytes()
