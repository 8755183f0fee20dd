"""Tilewright: the TileLang tile-kernel language. `import tilelang`, `import tilelang.language as T`."""

from __future__ import annotations

from tilelang import language
from tilelang._version import __version__
from tilelang.dtypes import DType as DataType
from tilelang.frontend import macro, prim_func
from tilelang.language.maths import cdiv
from tilelang.options import PassConfigKey
from tilelang.runtime import JITKernel, check, compile, jit

# `T.prim_func` and `T.macro` are made by the frontend, which is built on the language.
language.prim_func = prim_func  # pyright: ignore[reportAttributeAccessIssue]
language.macro = macro  # pyright: ignore[reportAttributeAccessIssue]

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
