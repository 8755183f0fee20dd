"""Tilewright: the TileLang tile-kernel language.

`import tilelang`, `import tilelang.language as T`.
"""

from __future__ import annotations

from typing import Any

from tilelang import compat, language
from tilelang._version import __version__
from tilelang.compat import (
    disable_cache,
    enable_cache,
    is_cache_enabled,
    par_compile,
    set_log_level,
)
from tilelang.dtypes import DType as DataType
from tilelang.env import env
from tilelang.frontend import LANGUAGE_NAMES
from tilelang.language.maths import cdiv
from tilelang.options import PassConfigKey
from tilelang.runtime import JITKernel, check, compile, jit
from tilelang.runtime.installation import warn_if_mixed

# The frontend is built on the language, so what it adds to `T` is put there.
for _name, _value in LANGUAGE_NAMES.items():
    setattr(language, _name, _value)

# The profiler is built on the runtime, and costs its import only when it is used.
JITKernel.profiler = lambda *args, **kwargs: compat.attribute("profiler").get_profiler(
    *args, **kwargs
)

warn_if_mixed()
compat.install()


def __getattr__(name: str) -> Any:
    return compat.attribute(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *compat.NAMES})


__all__ = [
    "DataType",
    "JITKernel",
    "PassConfigKey",
    "__version__",
    "cdiv",
    "check",
    "compile",
    "disable_cache",
    "enable_cache",
    "env",
    "is_cache_enabled",
    "jit",
    "language",
    "par_compile",
    "set_log_level",
]
