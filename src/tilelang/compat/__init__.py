"""What TileLang programs import besides the language: modules and top-level names, real or
refused by name.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from typing import Any

from tilelang.compat.modules import MODULES, install
from tilelang.errors import TileError
from tilelang.language.later import Later
from tilelang.options import options_from
from tilelang.runtime import JITKernel, compile

_CACHE = "TILELANG_DISABLE_CACHE"


def enable_cache() -> None:
    """Let compiled kernels be kept and found again, in this process."""
    os.environ[_CACHE] = "0"


def disable_cache() -> None:
    """Compile each kernel anew, in this process."""
    os.environ[_CACHE] = "1"


def is_cache_enabled() -> bool:
    """Whether compiled kernels are kept and found again."""
    return not options_from(None, {_CACHE: os.environ.get(_CACHE, "")}).disable_cache


def set_log_level(level: int | str) -> None:
    """The least level of messages of the logger `tilelang`; where the program has not said where
    messages go, they go to standard error from now on.
    """
    import logging  # on demand: programs that never log do not pay for it

    logger = logging.getLogger("tilelang")
    logger.setLevel(level)
    if not logger.hasHandlers():
        logger.addHandler(logging.StreamHandler())


def par_compile(
    funcs: Iterable[Any],
    *settings: Any,
    num_workers: int | None = None,
    ignore_error: bool = False,
    **named: Any,
) -> list[JITKernel | None]:
    """A kernel for each function, in order, with the settings of `tilelang.compile`.

    None where one fails and `ignore_error` is set. `num_workers` changes no result.
    """
    kernels: list[JITKernel | None] = []
    for func in funcs:
        try:
            kernels.append(compile(func, *settings, **named))
        except TileError:
            if not ignore_error:
                raise
            kernels.append(None)
    return kernels


# Names of `tilelang` by the module that has them, and ones that are refused when they are called.
_ELSEWHERE = {
    "autotune": "tilelang.autotuner",
    "Fragment": "tilelang.layout",
    "Layout": "tilelang.layout",
    "lower": "tilelang.engine",
    "next_power_of_2": "tilelang.math",
    "Profiler": "tilelang.profiler",
    "TensorSupplyType": "tilelang.utils.tensor",
}
_SUBMODULES = {"autotuner", "layout", "math", "profiler", "testing", "utils"}
_REFUSED = (
    "register_c_postproc",
    "register_cuda_postproc",
    "register_hip_postproc",
    "deprecated",
)


def attribute(name: str) -> Any:
    """`tilelang.<name>`, where it is not imported from the start; AttributeError for another."""
    if name in _ELSEWHERE:
        return getattr(importlib.import_module(_ELSEWHERE[name]), name)
    if name == "tvm":
        return importlib.import_module("tvm")
    if name in _SUBMODULES or f"tilelang.{name}" in MODULES:
        return importlib.import_module(f"tilelang.{name}")
    if name in _REFUSED:
        return Later(name, "*args, **kwargs", "is not built").function("tilelang")
    raise AttributeError(f"module 'tilelang' has no attribute {name!r}")


NAMES = sorted({*_ELSEWHERE, *_SUBMODULES, *_REFUSED, "tvm"})

__all__ = [
    "NAMES",
    "attribute",
    "disable_cache",
    "enable_cache",
    "install",
    "is_cache_enabled",
    "par_compile",
    "set_log_level",
]
