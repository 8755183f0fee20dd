"""`tilelang.profiler`: timing, and tensors to time with."""

from tilelang.profiler.bench import do_bench
from tilelang.profiler.kernel import InputsMissing, KernelParam, Profiler, get_profiler
from tilelang.utils.tensor import TensorSupplyType, get_tensor_supply

__all__ = [
    "InputsMissing",
    "KernelParam",
    "Profiler",
    "TensorSupplyType",
    "do_bench",
    "get_profiler",
    "get_tensor_supply",
]
