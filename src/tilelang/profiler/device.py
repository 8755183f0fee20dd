"""Times of work on a CUDA device, through torch.

What enters: a function that puts work into torch's current stream, how often to call it, and the
bytes to write between calls, so that each finds the level-2 cache without its data. What leaves:
milliseconds, one for each call where the clock tells calls apart.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tilelang.errors import TileRuntimeError, error

Work = Callable[[], Any]


def in_use() -> bool:
    """Whether the program has begun to use a CUDA device through torch."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


def synchronize() -> None:
    """Wait for the device, if the program has begun to use one."""
    if in_use():
        sys.modules["torch"].cuda.synchronize()


def _cache(size: int) -> Any:
    """Memory that displaces what is in the cache when it is set to zero."""
    torch: Any = sys.modules["torch"]
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def by_events(fn: Work, count: int, size: int) -> list[float]:
    """Events before and after each call."""
    torch: Any = sys.modules["torch"]
    cache = _cache(size)
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(count)]
    for start, end in pairs:
        cache.zero_()
        start.record()
        fn()
        end.record()
    torch.cuda.synchronize()
    return [float(start.elapsed_time(end)) for start, end in pairs]


def by_graph(fn: Work, count: int, size: int) -> list[float]:
    """Ten replays of a graph of `count` calls, without the host; the cache is left as it is."""
    torch: Any = sys.modules["torch"]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            fn()
    return [t / count for t in by_events(graph.replay, 10, size)]


def by_kernels(fn: Work, count: int, size: int) -> list[float]:
    """The mean, over all calls, of the time that their kernels and copies take on the device, by
    CUPTI. What fills memory with bytes, as is done between calls, does not count.

    Raises a TileRuntimeError where CUPTI reports nothing.
    """
    torch: Any = sys.modules["torch"]
    profiler = importlib.import_module("torch.profiler")
    cache = _cache(size)

    def profiled(body: Work) -> list[Any]:
        with profiler.profile(activities=[profiler.ProfilerActivity.CUDA]) as found:
            body()
            torch.cuda.synchronize()
        return [e for e in found.key_averages() if e.self_device_time_total > 0]

    def calls() -> None:
        for _ in range(count):
            cache.zero_()
            fn()

    fills = {e.key for e in profiled(cache.zero_)}
    total = sum(e.self_device_time_total for e in profiled(calls) if e.key not in fills)
    if not total:
        raise error(
            "option",
            "CUPTI reports no work on the device",
            cls=TileRuntimeError,
            help="time it with backend='event'",
        )
    return [total / count / 1e3]


CLOCKS: dict[str, Callable[[Work, int, int], Sequence[float]]] = {
    "event": by_events,
    "cudagraph": by_graph,
    "cupti": by_kernels,
}
"""The ways to take the time of device work."""
