"""The runtime: from a traced function and a target to something that can be called."""

from tilelang.runtime.checking import check
from tilelang.runtime.compile import compile
from tilelang.runtime.jit import jit
from tilelang.runtime.kernel import JITKernel

__all__ = ["JITKernel", "check", "compile", "jit"]
