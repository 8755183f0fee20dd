"""`tilelang.profiler`: timing, and tensors to time with."""

from __future__ import annotations

from typing import Any

from tilelang.errors import TileNotImplementedError, error
from tilelang.profiler.bench import do_bench
from tilelang.utils.tensor import TensorSupplyType, get_tensor_supply

__all__ = ["Profiler", "TensorSupplyType", "do_bench", "get_tensor_supply"]


class Profiler:
    """`kernel.get_profiler()` of TileLang; declared, not built."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise error(
            "name",
            "tilelang.Profiler is not built",
            cls=TileNotImplementedError,
            help="compare with NumPy or torch directly, and time with tilelang.profiler.do_bench",
        )
