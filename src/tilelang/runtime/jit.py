"""`@tilelang.jit`: compile on call, one kernel per set of compile-time arguments.

A lazy function makes a `@T.prim_func` and its call gives the kernel. An eager function is the
kernel itself, and its call runs it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

from tilelang.errors import (
    EagerJITBuildError,
    TileError,
    TileTypeError,
    TileValueError,
    error,
)
from tilelang.frontend import PrimFunc
from tilelang.frontend.eager import EagerFunction, Probe, is_eager, probe, read_eager, trace_eager
from tilelang.ir.expr import Const, Var
from tilelang.ir.tile import Param
from tilelang.isa.target import TargetLike
from tilelang.options import PassConfigKey
from tilelang.runtime.captured import captured, frozen
from tilelang.runtime.compile import compile
from tilelang.runtime.kernel import JITKernel


class JITImpl:
    """A function under `@tilelang.jit`."""

    def __init__(self, func: Callable[..., Any], settings: Mapping[str, Any]) -> None:
        self.func = func
        self.signature = inspect.signature(func)
        self._settings = dict(settings)
        self._kernels: dict[Any, JITKernel] = {}
        self._probes: dict[Any, Probe] = {}
        functools.update_wrapper(self, func)

    @functools.cached_property
    def _eager(self) -> EagerFunction | None:
        """The function read as an eager kernel, None for one that makes its kernel."""
        fn = inspect.unwrap(self.func)
        if not isinstance(fn, FunctionType) or not is_eager(fn):
            return None
        if self._settings.get("out_idx") is not None:
            raise error(
                "option",
                f"out_idx of the eager kernel {fn.__name__}",
                cls=TileValueError,
                expected="no out_idx: outputs are made by T.empty and returned",
                got=f"out_idx={self._settings['out_idx']!r}",
                help="make the output with `T.empty(...)` and return it",
            )
        return read_eager(fn)

    @property
    def mode(self) -> str:
        """'lazy': the call gives a kernel, which is run separately; 'eager': the call runs it."""
        return "lazy" if self._eager is None else "eager"

    @property
    def out_idx(self) -> Any:
        """The setting of the decorator."""
        return self._settings.get("out_idx")

    @property
    def pass_configs(self) -> Any:
        """The setting of the decorator."""
        return self._settings.get("pass_configs")

    @property
    def target(self) -> Any:
        """The setting of the decorator."""
        return self._settings.get("target", "auto")

    @property
    def __jit_impl__(self) -> JITImpl:
        """What the adapter tree's decorator keeps beside the function that it gives."""
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the decorator, as `tilelang.compile` takes them."""
        return dict(self._settings)

    # -- lazy and eager alike
    # -------------------------------------------------------------------------

    def get_tir(self, *args: Any, **kwargs: Any) -> PrimFunc:
        """The traced function for these arguments, for `tilelang.compile` and `tilelang.check`.

        Of an eager kernel, tensors may be left out where every `T.const` size is given by keyword.
        """
        if self._eager is not None:
            values, runtime, given = self._split(self._eager, args, kwargs, partial=True)
            consts = self._consts(self._eager, values, runtime, given)
            return trace_eager(self._eager, values, consts)
        made = self.func(*args, **kwargs)
        if not isinstance(made, PrimFunc):
            raise error(
                "syntax",
                f"{self.func.__name__} under @tilelang.jit returns {type(made).__name__}",
                cls=TileTypeError,
                expected="a function made by @T.prim_func, or a kernel written directly",
                got=type(made).__name__,
            )
        return made

    def compile(self, *args: Any, **kwargs: Any) -> JITKernel:
        """The kernel for these arguments, compiled anew."""
        return compile(self.get_tir(*args, **kwargs), **self._settings)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Lazy: the kernel for these arguments. Eager: run it, and give its outputs."""
        if self._eager is not None:
            return self._run(self._eager, args, kwargs)
        bound = self._bound(args, kwargs)
        key = self._key(bound)
        kernel = self._kernels.get(key)
        if kernel is None:
            kernel = self._kernels[key] = self.compile(*args, **kwargs)
        return kernel

    def par_compile(
        self,
        configs: Sequence[Mapping[str, Any] | Sequence[Any]],
        num_workers: int | None = None,
        ignore_error: bool = False,
    ) -> list[JITKernel | None]:
        """A kernel per configuration (keywords or positional arguments), in their order.

        None where one fails and `ignore_error` is set. `num_workers` is the number of compilers at
        work; tracing holds Python's lock, so one works at a time whatever is asked.
        """
        out: list[JITKernel | None] = []
        for config in configs:
            try:
                made = (
                    self.compile(**config) if isinstance(config, Mapping) else self.compile(*config)
                )
                out.append(made)
            except TileError:
                if not ignore_error:
                    raise
                out.append(None)
        return out

    def get_kernel_source(self, *args: Any, **kwargs: Any) -> str:
        """The source that runs for these arguments."""
        return self.compile(*args, **kwargs).get_kernel_source()

    def key_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """What tells apart calls that may need different kernels: arguments and sizes."""
        if self._eager is None:
            bound = self.signature.bind_partial(*args, **kwargs)
            return self._key(bound.arguments)
        known = {k: v for k, v in kwargs.items() if k in self.signature.parameters}
        sizes = {k: v for k, v in kwargs.items() if k not in known}
        bound = self.signature.bind_partial(*args, **known)
        runtime = {n: v for n, v in bound.arguments.items() if n in self._eager.runtime}
        values = {n: v for n, v in bound.arguments.items() if n not in runtime}
        shapes = {n: list(getattr(v, "shape", ())) for n, v in runtime.items()}
        return self._key({**values, **sizes, "": shapes})

    def runtime_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The arguments of the launch among those of an eager call."""
        if self._eager is None:
            return []
        bound = self.signature.bind_partial(*args, **kwargs)
        return [bound.arguments[n] for n in self._eager.runtime]

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        bound = self._bind(self.signature.bind, args, kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def _bind(
        self,
        bind: Callable[..., inspect.BoundArguments],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> inspect.BoundArguments:
        try:
            return bind(*args, **kwargs)
        except TypeError as exc:
            raise self._misfit(str(exc)) from None

    def _misfit(self, what: str) -> TileError:
        """The error for arguments that do not fit the signature."""
        return error(
            "argument",
            f"{self.func.__name__}: {what}",
            cls=TileTypeError,
            expected=f"{self.func.__name__}{self.signature}",
        )

    def __repr__(self) -> str:
        return f"<{self.func.__name__}{self.signature} under @tilelang.jit>"

    def _key(self, arguments: Mapping[str, Any]) -> Any:
        key = (frozen(tuple(arguments.items())), captured(self.func))
        try:
            hash(key)
        except TypeError as exc:
            raise error(
                "argument",
                f"an argument of {self.func.__name__} is unhashable: {exc}",
                cls=TileTypeError,
                expected="numbers, strings, dtypes, and lists, tuples or dictionaries of them",
            ) from None
        return key

    # -- eager
    # ----------------------------------------------------------------------------------------

    def _run(self, eager: EagerFunction, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        values, runtime, given = self._split(eager, args, kwargs, partial=False)
        consts = self._consts(eager, values, runtime, given)
        key = (self._key(values), tuple(sorted(consts.items())))
        kernel = self._kernels.get(key)
        if kernel is None:
            traced = trace_eager(eager, values, consts)
            kernel = self._kernels[key] = compile(traced, **self._settings)
        return kernel(*[runtime[name] for name in eager.runtime])

    def _split(
        self, eager: EagerFunction, args: Sequence[Any], kwargs: Mapping[str, Any], *, partial: bool
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, int]]:
        """Compile-time arguments, arguments of the launch, and sizes given by name."""
        known = {k: v for k, v in kwargs.items() if k in self.signature.parameters}
        given = {k: v for k, v in kwargs.items() if k not in known}
        bind = self.signature.bind_partial if partial else self.signature.bind
        bound = self._bind(bind, args, known)
        bound.apply_defaults()
        arguments = bound.arguments
        runtime = {n: arguments[n] for n in eager.runtime if n in arguments}
        values = {n: arguments[n] for n in eager.compile_time if n in arguments}
        missing = [n for n in eager.compile_time if n not in values]
        if missing:
            raise self._misfit(f"missing a required argument: {missing[0]!r}")
        return values, runtime, given

    def _consts(
        self,
        eager: EagerFunction,
        values: Mapping[str, Any],
        runtime: Mapping[str, Any],
        given: Mapping[str, int],
    ) -> dict[str, int]:
        """The value of every `T.const` size: given by name, else read off a tensor."""
        key = self._key(values)
        found = self._probes.get(key)
        if found is None:
            found = self._probes[key] = probe(eager, values)
        unknown = [name for name in given if name not in found.consts]
        if unknown:
            raise self._misfit(f"got an unexpected keyword argument {unknown[0]!r}")
        consts = dict(given)
        for p in found.params:
            if p.name in runtime and runtime[p.name] is not None and p.buffer is not None:
                for name, size in _sizes(p, runtime[p.name]):
                    if name in found.consts:
                        consts.setdefault(name, size)
        missing = [name for name in found.consts if name not in consts]
        if missing:
            raise error(
                "shape",
                f"the size {missing[0]} of {eager.fn.__name__} is not known",
                eager.loc,
                cls=EagerJITBuildError,
                expected=f"a tensor argument with {missing[0]} directly as an extent or stride",
                help=f"pass the tensors, or {missing[0]}=... to compile()",
            )
        return consts


def _sizes(p: Param, value: Any) -> list[tuple[str, int]]:
    """The symbols that are an extent or stride of a tensor, with its actual numbers."""
    if p.buffer is None or not hasattr(value, "shape"):
        return []
    shape = list(value.shape)
    bits = p.buffer.dtype.bits
    if bits < 8 and shape and "int8" in str(getattr(value, "dtype", "")):
        shape[-1] *= 8 // bits
    pairs = list(zip(p.buffer.shape, shape, strict=False))
    if p.buffer.strides is not None:
        pairs += zip(p.buffer.strides, _strides(value), strict=False)
    # A tensor's declaration, which stands for one, has its sizes as constants.
    numbers = [(e, n.value if isinstance(n, Const) else n) for e, n in pairs]
    return [(e.name, int(n)) for e, n in numbers if isinstance(e, Var)]


def _strides(value: Any) -> list[int]:
    if callable(getattr(value, "stride", None)):  # torch counts in elements
        return list(value.stride())
    return [s // value.itemsize for s in getattr(value, "strides", ())]


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
    workspace_idx: int | Sequence[int] | None = None,
    platform: str | None = None,
) -> Any:
    """Compile on call: `@tilelang.jit`, or `@tilelang.jit(out_idx=-1, target=...)`.

    See `compile` for the settings. A function that makes a `@T.prim_func` is lazy: its arguments
    are compile-time, and its call gives the kernel. A function that is itself the kernel is eager:
    its call takes the tensors, and runs. `debug_root_path` is a folder for the generated sources.
    """
    if debug_root_path is not None:
        where = {PassConfigKey.CUDA_KERNELS_OUTPUT_DIR: debug_root_path}
        pass_configs = {**where, **(pass_configs or {})}
    settings = {
        "out_idx": out_idx,
        "target": target,
        "target_host": target_host,
        "execution_backend": execution_backend,
        "verbose": verbose,
        "pass_configs": pass_configs,
        "compile_flags": compile_flags,
        "workspace_idx": workspace_idx,
        "platform": platform,
    }
    if func is None:
        return functools.partial(JITImpl, settings=settings)
    return JITImpl(func, settings)
