"""`@tilelang.jit`: compile on call, one kernel per set of compile-time arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilelang.errors import JITNoBuilderError, TileNotImplementedError, TileTypeError, error
from tilelang.frontend import PrimFunc
from tilelang.isa.target import TargetLike
from tilelang.runtime.compile import compile
from tilelang.runtime.kernel import JITKernel


class JITImpl:
    """A function under `@tilelang.jit`: calling it traces, compiles and gives the kernel for these arguments."""

    def __init__(self, func: Callable[..., Any], settings: Mapping[str, Any]) -> None:
        self.func = func
        self.signature = inspect.signature(func)
        self._settings = dict(settings)
        self._kernels: dict[Any, JITKernel] = {}
        functools.update_wrapper(self, func)

    @property
    def mode(self) -> str:
        """'lazy': the call gives a kernel, which is run separately."""
        return "lazy"

    @property
    def out_idx(self) -> Any:
        """The setting of the decorator."""
        return self._settings.get("out_idx")

    def get_tir(self, *args: Any, **kwargs: Any) -> PrimFunc:
        """The traced function for these arguments, for `tilelang.compile` and `tilelang.check`."""
        try:
            made = self.func(*args, **kwargs)
        except JITNoBuilderError as exc:
            raise self._eager() from exc
        if not isinstance(made, PrimFunc):
            raise self._eager()
        return made

    def _eager(self) -> Exception:
        return error(
            "syntax",
            f"{self.func.__name__} under @tilelang.jit does not return a @T.prim_func",
            cls=TileNotImplementedError,
            expected="a function that defines and returns a @T.prim_func",
            help="the eager style (kernel code directly under @tilelang.jit) is not supported yet",
        )

    def compile(self, *args: Any, **kwargs: Any) -> JITKernel:
        """The kernel for these arguments, compiled anew."""
        return compile(self.get_tir(*args, **kwargs), **self._settings)

    def __call__(self, *args: Any, **kwargs: Any) -> JITKernel:
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        key = _frozen(tuple(bound.arguments.items()))
        try:
            kernel = self._kernels.get(key)
        except TypeError as exc:
            raise error(
                "argument", f"an argument of {self.func.__name__} is unhashable: {exc}", cls=TileTypeError,
                expected="numbers, strings, dtypes, and lists, tuples or dictionaries of them",
            ) from None  # fmt: skip
        if kernel is None:
            kernel = self._kernels[key] = self.compile(*args, **kwargs)
        return kernel

    def par_compile(
        self,
        configs: Sequence[Mapping[str, Any] | Sequence[Any]],
        num_workers: int | None = None,
        ignore_error: bool = False,
    ) -> list[JITKernel | None]:
        """A kernel per configuration (keywords or positional arguments); None where one fails and errors are ignored."""
        out: list[JITKernel | None] = []
        for config in configs:
            try:
                out.append(self(**config) if isinstance(config, Mapping) else self(*config))
            except Exception:
                if not ignore_error:
                    raise
                out.append(None)
        return out

    def get_kernel_source(self, *args: Any, **kwargs: Any) -> str:
        """The source that runs for these arguments."""
        return self(*args, **kwargs).get_kernel_source()


def _frozen(x: Any) -> Any:
    """`x` with lists, sets and dictionaries replaced by hashable forms; the type is part of it, since 1 == True."""
    if isinstance(x, Mapping):
        return ("dict", tuple(sorted((str(k), _frozen(v)) for k, v in x.items())))
    if isinstance(x, (list, tuple)):
        return (type(x).__name__, tuple(_frozen(v) for v in x))
    if isinstance(x, (set, frozenset)):
        return ("set", frozenset(_frozen(v) for v in x))
    return (type(x).__name__, x)


def jit(
    func: Callable[..., Any] | None = None,
    *,
    out_idx: int | Sequence[int] | None = None,
    target: TargetLike | None = None,
    target_host: Any = None,
    execution_backend: str | None = None,
    verbose: bool | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    debug_root_path: str | None = None,
    compile_flags: Sequence[str] | str | None = None,
) -> Any:
    """Compile on call: `@tilelang.jit`, or `@tilelang.jit(out_idx=-1, target=...)`; see `compile` for the settings.

    The decorated function takes compile-time arguments and returns a `@T.prim_func`; the call gives its kernel.
    """
    if debug_root_path is not None:
        raise error(
            "option",
            "debug_root_path is not supported yet",
            help="use `kernel.get_kernel_source()`",
        )
    settings = {
        "out_idx": out_idx,
        "target": target,
        "target_host": target_host,
        "execution_backend": execution_backend,
        "verbose": verbose,
        "pass_configs": pass_configs,
        "compile_flags": compile_flags,
    }
    if func is None:
        return lambda f: JITImpl(f, settings)  # pyright: ignore[reportUnknownLambdaType]
    return JITImpl(func, settings)
