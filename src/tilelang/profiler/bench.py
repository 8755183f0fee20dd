"""`do_bench`: how long a function takes, by the device's clock where one works, else the wall's."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from tilelang.errors import TileNotImplementedError, TileValueError, error
from tilelang.profiler import device as cuda

_MODES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "min": min,
    "max": max,
    "median": statistics.median,
}

_BACKENDS = ("wall", *cuda.CLOCKS)


def _once(fn: Callable[[], Any]) -> float:
    cuda.synchronize()
    start = time.perf_counter()
    fn()
    cuda.synchronize()
    return (time.perf_counter() - start) * 1e3


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    _n_warmup: int = 0,
    _n_repeat: int = 0,
    quantiles: list[float] | None = None,
    fast_flush: bool = True,
    backend: str = "event",
    return_mode: str = "mean",
    device: Any = None,
    cache_size: int = 256,
    early_stop_baseline: float | None = None,
) -> float | list[float]:
    """Milliseconds per call of `fn`: the `return_mode` (mean, min, max, median) of the calls timed.

    `warmup` and `rep` are milliseconds to spend, `_n_warmup` and `_n_repeat` numbers of calls that
    replace them. With `quantiles`, a list of them. Where a CUDA device works, 'event' takes the
    time between events around each call, 'cudagraph' that of a call in a graph of them, 'cupti'
    that of its kernels alone, the mean of all calls; `cache_size` MiB are written before each, so
    that it finds the level-2 cache cold. Elsewhere, and with 'wall', the clock is the wall's, and
    caches are not flushed. ValueError for another `return_mode`, NotImplementedError for a backend
    or device that is not built.
    """
    if return_mode not in _MODES:
        words = ", ".join(_MODES)
        raise error("value", "return_mode of do_bench", expected=words, got=repr(return_mode))
    if backend not in _BACKENDS or device is not None:
        raise error(
            "option",
            f"do_bench with backend={backend!r}, device={device!r}",
            cls=TileNotImplementedError,
            expected=f"one of {', '.join(_BACKENDS)}, and no device",
        )
    if rep < 0 or warmup < 0:
        raise error("value", "do_bench for a negative time", cls=TileValueError, got=f"{rep}")
    first = _once(fn)
    guess = max(_once(fn), 1e-3) if warmup else max(first, 1e-3)
    for _ in range(_n_warmup or int(warmup / guess)):
        fn()
    count = _n_repeat or max(1, int(rep / guess))
    clock = cuda.CLOCKS.get(backend) if cuda.in_use() else None
    times = clock(fn, count, cache_size << 20) if clock else [_once(fn) for _ in range(count)]
    if quantiles is not None:
        ordered = sorted(times)
        return [ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in quantiles]
    return _MODES[return_mode](times)
