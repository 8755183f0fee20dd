"""`torch.npu.NPUGraph` where there is no NPU: launches that are recorded and run again.

What enters: calls between the beginning and the end of a capture. What leaves: a graph whose
`replay` launches the same kernels on the same memory. On a device a capture runs nothing; here it
runs the calls, so that later ones have values to work with, and every buffer that it filled is
filled again by a replay. Work of torch itself cannot be repeated, and is an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

# What makes memory and computes nothing.
ALLOCATES = ("empty", "empty_like", "empty_strided", "new_empty")


def computes(func: Any, given: Any, made: Any) -> bool:
    """Whether a call of torch may have computed: it made a tensor in memory of its own, or wrote to
    one that was given.
    """
    name = getattr(func, "__name__", str(func))
    if not isinstance(made, torch.Tensor) or name in ALLOCATES:
        return name in ("__setitem__", "copy_")
    storages = {x.untyped_storage().data_ptr() for x in given if isinstance(x, torch.Tensor)}
    in_place = name.endswith("_") and not name.startswith("__")
    return in_place or made.untyped_storage().data_ptr() not in storages


class NpuGraph:
    """The launches of one capture."""

    capturing: NpuGraph | None = None

    def __init__(self) -> None:
        self.launches: list[Callable[[], None]] = []
        self.other: list[str] = []

    @classmethod
    def note(cls, func: Any, given: Any, made: Any) -> None:
        """Torch was asked for `func`."""
        if cls.capturing is not None and computes(func, given, made):
            cls.capturing.other.append(getattr(func, "__name__", str(func)))

    def replay(self) -> None:
        """Launch again what was launched in the capture."""
        if self.other:
            raise NotImplementedError(f"a graph with work of torch: {', '.join(self.other)}")
        for launch in self.launches:
            launch()


@contextmanager
def graph(made: NpuGraph, *_: Any, **__: Any) -> Iterator[None]:
    """Record the launches of the body in `made`."""
    from tilelang.simulator.ascend import AscendProgram

    run = AscendProgram.run

    def recorded(self: Any, args: Any) -> None:
        made.launches.append(lambda: run(self, args))
        run(self, args)

    AscendProgram.run = recorded
    NpuGraph.capturing = made
    try:
        yield
    finally:
        NpuGraph.capturing = None
        AscendProgram.run = run
