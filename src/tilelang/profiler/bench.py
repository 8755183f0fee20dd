"""`do_bench`: how long a function takes, by the wall clock."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from tilelang.errors import TileNotImplementedError, TileValueError, error

_MODES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "min": min,
    "max": max,
    "median": statistics.median,
}


# Ways to take the time of device work. Without such work, all of them are the wall's clock.
_WALL = ("event", "wall")
_BACKENDS = (*_WALL, "cupti", "cudagraph")


def _on_cuda() -> bool:
    """Whether the program has begun to use a CUDA device through torch."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_initialized()


def _synchronize() -> None:
    """Wait for the CUDA device that torch uses, if the program has begun to use one."""
    if _on_cuda():
        sys.modules["torch"].cuda.synchronize()


def _once(fn: Callable[[], Any]) -> float:
    _synchronize()
    start = time.perf_counter()
    fn()
    _synchronize()
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
    replace them. With `quantiles`, a list of them. The clock is the wall's, waiting for the device
    around each call; 'cupti' and 'cudagraph' are the same where no device works, and refused where
    one does. Caches are not flushed. ValueError for another
    `return_mode`, NotImplementedError for a backend or device that is not built.
    """
    if return_mode not in _MODES:
        words = ", ".join(_MODES)
        raise error("value", "return_mode of do_bench", expected=words, got=repr(return_mode))
    if backend not in _BACKENDS or (backend not in _WALL and _on_cuda()) or device is not None:
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
    times = [_once(fn) for _ in range(_n_repeat or max(1, int(rep / guess)))]
    if quantiles is not None:
        ordered = sorted(times)
        return [ordered[min(len(ordered) - 1, int(q * len(ordered)))] for q in quantiles]
    return _MODES[return_mode](times)
