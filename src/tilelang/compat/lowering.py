"""`tilelang.lower`: the source of a kernel without the kernel.

What enters: a function made by `@T.prim_func` and a target. What leaves: the text that the kernel
would show as its source, and its parameters. The modules of TVM that upstream gives beside them are
not part of this package, and are refused by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilelang.errors import TileNotImplementedError, error
from tilelang.isa.target import Target, TargetLike
from tilelang.runtime import compile

_OF_TVM = ("device_mod", "host_mod", "rt_mod")


@dataclass(frozen=True)
class CompiledArtifact:
    """A lowered function: `kernel_source` as `JITKernel.get_kernel_source()` gives it, `params` the
    names of its parameters, and the `target` that was found for it.
    """

    params: list[str]
    kernel_source: str
    target: Target

    def __getattr__(self, name: str) -> Any:
        """A module of TVM is refused; anything else is no attribute."""
        if name in _OF_TVM:
            raise error(
                "name",
                f"CompiledArtifact.{name} is a module of TVM, which is not part of this package",
                cls=TileNotImplementedError,
                help="`tilelang.compile(...)` gives a kernel that can be called",
            )
        raise AttributeError(f"'CompiledArtifact' object has no attribute {name!r}")


def lower(
    func_or_mod: Any,
    target: TargetLike | None = "auto",
    target_host: Any = None,
    runtime_only: bool = False,
    enable_host_codegen: bool = False,
    enable_device_compile: bool = False,
    *,
    platform: str | None = None,
) -> CompiledArtifact:
    """The source of a function on a target. Nothing of a host is made: settings that ask for it are
    an error. `platform` is that of `tilelang.compile`.
    """
    asked = {
        "runtime_only": runtime_only,
        "enable_host_codegen": enable_host_codegen,
        "enable_device_compile": enable_device_compile,
    }
    for name, value in asked.items():
        if value:
            raise error(
                "option",
                f"tilelang.lower: {name} has no meaning here",
                cls=TileNotImplementedError,
                expected=f"{name}=False",
                got=f"{name}={value!r}",
                help="`tilelang.compile(...)` gives a kernel that can be called",
            )
    kernel = compile(func_or_mod, target=target, target_host=target_host, platform=platform)
    return CompiledArtifact(kernel.params, kernel.get_kernel_source(), kernel.resolved_target)
