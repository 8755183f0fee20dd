"""Tilewright: the TileLang tile-kernel language.

`import tilelang`, `import tilelang.language as T`.
"""

from __future__ import annotations

from tilelang import language
from tilelang._version import __version__
from tilelang.dtypes import DType as DataType
from tilelang.frontend import LANGUAGE_NAMES
from tilelang.language.maths import cdiv
from tilelang.options import PassConfigKey
from tilelang.runtime import JITKernel, check, compile, jit
from tilelang.runtime.installation import warn_if_mixed

# The frontend is built on the language, so what it adds to `T` is put there.
for _name, _value in LANGUAGE_NAMES.items():
    setattr(language, _name, _value)

warn_if_mixed()

__all__ = [
    "DataType",
    "JITKernel",
    "PassConfigKey",
    "__version__",
    "cdiv",
    "check",
    "compile",
    "jit",
    "language",
]
