"""`tilelang.testing`: what test files of TileLang programs import.

The `requires_*` decorators skip a test, with the reason, where this machine or this implementation
does not have what it needs. pytest, and torch where it is used, are imported only when asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import operator
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.compat.devices import device_version
from tilelang.errors import TileNotImplementedError, error
from tilelang.utils.tensor import torch_assert_close

__all__ = [
    "main",
    "process_func",
    "regression",
    "requires_ascend",
    "requires_cdna",
    "requires_cuda",
    "requires_cuda_compute_version",
    "requires_cuda_compute_version_eq",
    "requires_cuda_compute_version_ge",
    "requires_cuda_compute_version_gt",
    "requires_cuda_compute_version_le",
    "requires_cuda_compute_version_lt",
    "requires_cuda_or_cdna",
    "requires_gfx950",
    "requires_llvm",
    "requires_metal",
    "requires_package",
    "requires_rocm",
    "set_random_seed",
    "torch_assert_close",
]


def main() -> None:
    """Run the tests of the calling file with pytest, and exit with its code."""
    file = inspect.getsourcefile(sys._getframe(1))  # pyright: ignore[reportPrivateUsage]
    sys.exit(importlib.import_module("pytest").main([file, *sys.argv[1:]]))


def set_random_seed(seed: int = 42) -> None:
    """Seed the generators of Python and NumPy, and of torch where it is installed."""
    random.seed(seed)
    np.random.seed(seed)
    if importlib.util.find_spec("torch") is not None:
        importlib.import_module("torch").manual_seed(seed)


def _skip(func: Any, wanted: bool, reason: str) -> Any:
    return importlib.import_module("pytest").mark.skipif(not wanted, reason=reason)(func)


def requires_cuda(func: Any) -> Any:
    """Skip the test without a CUDA device."""
    return _skip(func, device_version() is not None, "needs a CUDA device")


def requires_llvm(func: Any) -> Any:
    """Nothing: LLVM comes with the package."""
    return func


def _never(target: str) -> Callable[[Any], Any]:
    def requires(func: Any) -> Any:
        return _skip(func, False, f"needs the {target} target, which is not built")

    requires.__doc__ = f"Skip the test: the {target} target is not built."
    return requires


requires_rocm = _never("ROCm")
requires_cdna = _never("ROCm")
requires_gfx950 = _never("ROCm")
requires_metal = _never("Metal")
requires_ascend = _never("native Ascend")
requires_cuda_or_cdna = requires_cuda


def requires_package(*names: str) -> Callable[[Any], Any]:
    """Skip the test where one of the packages is not installed."""
    missing = [n for n in names if importlib.util.find_spec(n) is None]

    def requires(func: Any) -> Any:
        return _skip(func, not missing, f"needs the package {', '.join(missing)}")

    return requires


_COMPARE = {name: getattr(operator, name) for name in ("ge", "gt", "le", "lt", "eq")}


def requires_cuda_compute_version(
    major_version: int, minor_version: int = 0, mode: str = "ge"
) -> Callable[[Any], Any]:
    """Skip the test unless the CUDA device's compute capability compares with the one given.

    `mode` is ge, gt, le, lt or eq; ValueError otherwise.
    """
    if mode not in _COMPARE:
        raise error(
            "value", "the mode of a compute version", expected=", ".join(_COMPARE), got=mode
        )
    found, wanted = device_version(), (major_version, minor_version)
    fits = found is not None and bool(_COMPARE[mode](found, wanted))

    def requires(func: Any) -> Any:
        return _skip(func, fits, f"needs a CUDA device of compute capability {mode} {wanted}")

    return requires


def requires_cuda_compute_version_ge(major: int, minor: int = 0) -> Callable[[Any], Any]:
    """At least this compute capability."""
    return requires_cuda_compute_version(major, minor, "ge")


def requires_cuda_compute_version_gt(major: int, minor: int = 0) -> Callable[[Any], Any]:
    """Above this compute capability."""
    return requires_cuda_compute_version(major, minor, "gt")


def requires_cuda_compute_version_le(major: int, minor: int = 0) -> Callable[[Any], Any]:
    """At most this compute capability."""
    return requires_cuda_compute_version(major, minor, "le")


def requires_cuda_compute_version_lt(major: int, minor: int = 0) -> Callable[[Any], Any]:
    """Below this compute capability."""
    return requires_cuda_compute_version(major, minor, "lt")


def requires_cuda_compute_version_eq(major: int, minor: int = 0) -> Callable[[Any], Any]:
    """Exactly this compute capability."""
    return requires_cuda_compute_version(major, minor, "eq")


def _regression(*_: Any, **__: Any) -> Any:
    raise error(
        "name",
        "tilelang.testing's performance regressions are not built",
        cls=TileNotImplementedError,
        help="time a kernel with tilelang.profiler.do_bench",
    )


process_func = regression = _regression
