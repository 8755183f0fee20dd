"""Run a kernel that waits, plainly and under the dynamic check."""

import numpy as np

import tilelang
from tilelang.emulator import translate


def run(kernel, *arrays, chip="sm_90a", findings=()):
    """Run a kernel, and run it once more under the dynamic check, which must find `findings` (the
    beginnings of their messages) and change no result.
    """
    again = [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]
    tilelang.compile(kernel, target=f"emulate:{chip}")(*arrays)
    names = [p.name for p in kernel.ir.params]
    found = translate(kernel.ir, checked=True).run(dict(zip(names, again, strict=True)))
    messages = [d.message for d in found]
    assert len(messages) == len(findings), messages
    for message, wanted in zip(messages, findings, strict=True):
        assert message.startswith(wanted), messages
    for a, b in zip(arrays, again, strict=True):
        np.testing.assert_array_equal(a, b)


def halves(*shape, seed=0):
    """float16 numbers between -1 and 1 whose products add up exactly in float32, in any order."""
    return (np.random.default_rng(seed).integers(-8, 9, shape) / 8).astype(np.float16)
