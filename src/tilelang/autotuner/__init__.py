"""`tilelang.autotuner`: every configuration is compiled, compared with a reference, and timed; the
fastest wins.

What enters: a function and its configurations. What leaves: the best kernel, with the time or the
error of every candidate. A candidate that cannot be compiled, fails, or gives wrong results is left
out with its reason; it never stops the search.
"""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from tilelang.errors import TileRuntimeError, TileValueError, error
from tilelang.profiler import InputsMissing, Profiler, TensorSupplyType
from tilelang.runtime import JITKernel, compile
from tilelang.runtime.jit import JITImpl

__all__ = [
    "AutoTuner",
    "AutotuneResult",
    "Candidate",
    "autotune",
    "get_autotune_inputs",
    "set_autotune_inputs",
]

Config = Mapping[str, Any]
_INPUTS: ContextVar[list[Any] | None] = ContextVar("tilewright_autotune_inputs", default=None)


@contextmanager
def set_autotune_inputs(*args: Any) -> Generator[None]:
    """`with set_autotune_inputs(a, b):` - the tensors that candidates inside are timed with."""
    one = len(args) == 1 and isinstance(args[0], (list, tuple))
    given: list[Any] = [*args[0]] if one else [*args]
    token = _INPUTS.set(given)
    try:
        yield
    finally:
        _INPUTS.reset(token)


def get_autotune_inputs() -> list[Any] | None:
    """The tensors of the surrounding `set_autotune_inputs`, None outside of one."""
    return _INPUTS.get()


@dataclass(frozen=True)
class Candidate:
    """One configuration: its time per call in milliseconds, or why it was left out."""

    config: Config
    latency: float | None = None
    error: str = ""


@dataclass(frozen=True)
class AutotuneResult:
    """The fastest candidate, and what became of all of them. Times are milliseconds per call."""

    latency: float
    config: Config
    ref_latency: float | None
    kernel: JITKernel
    candidates: tuple[Candidate, ...] = ()

    @property
    def libcode(self) -> str:
        """The source that runs."""
        return self.kernel.get_kernel_source()

    @property
    def func(self) -> Any:
        """The traced function of the fastest candidate."""
        return self.kernel.prim_func


@dataclass
class Plan:
    """How candidates are compared: against what, with which tensors, within which bounds.

    `enable_grouped_compile` is upstream's way to compile several candidates at once; here they are
    compiled one after the other, whatever it says.
    """

    warmup: float = 25
    rep: float = 100
    timeout: float = 100
    supply_type: TensorSupplyType = TensorSupplyType.Auto
    ref_prog: Callable[..., Any] | None = None
    supply_prog: Callable[..., Any] | None = None
    rtol: float = 1e-2
    atol: float = 1e-2
    max_mismatched_ratio: float = 0.01
    skip_check: bool = False
    manual_check_prog: Callable[..., Any] | None = None
    cache_input_tensors: bool = False
    do_not_specialize: Any = None
    early_stop: bool = False
    early_stop_factor: float = 2.0
    enable_grouped_compile: bool = False
    inputs: list[Any] | None = field(default=None, repr=False)

    def tensors(self, profiler: Profiler) -> list[Any]:
        """The inputs for one candidate."""
        given = get_autotune_inputs()
        if given is not None:
            return given
        if self.cache_input_tensors and self.inputs is not None:
            return self.inputs
        if self.supply_prog is not None:
            self.inputs = list(self.supply_prog(profiler.input_params()))
        else:
            self.inputs = profiler.make_inputs()
        return self.inputs

    def measure(self, kernel: JITKernel, best: float | None) -> float:
        """Milliseconds per call; raises where the results are wrong."""
        profiler = Profiler(kernel, self.supply_type)
        tensors = self.tensors(profiler)
        if not self.skip_check and self.manual_check_prog is not None and self.ref_prog is not None:
            profiler.manual_assert_close(self.ref_prog, tensors, self.manual_check_prog)
        elif not self.skip_check and self.ref_prog is not None:
            profiler.assert_allclose(
                self.ref_prog, tensors, self.atol, self.rtol, self.max_mismatched_ratio
            )
        began = time.perf_counter()
        kernel(*tensors)
        first = (time.perf_counter() - began) * 1e3
        if self.early_stop and best is not None and first > best * self.early_stop_factor:
            return first
        return profiler.do_bench(warmup=self.warmup, rep=self.rep, input_tensors=tensors)


def search(
    make: Callable[[Config], JITKernel], configs: Sequence[Config], plan: Plan
) -> AutotuneResult:
    """Try every configuration. RuntimeError, with the reason of each, where none is usable;
    ValueError for inputs that nobody has given and that cannot be made up.
    """
    found: list[Candidate] = []
    best: tuple[float, Config, JITKernel] | None = None
    for config in configs:
        try:
            kernel = make(config)
            latency = plan.measure(kernel, best[0] if best else None)
        except InputsMissing:
            raise
        except (Exception, AssertionError) as exc:
            found.append(Candidate(config, error=f"{type(exc).__name__}: {exc}"))
            continue
        found.append(Candidate(config, latency))
        if best is None or latency < best[0]:
            best = (latency, config, kernel)
    if best is None:
        raise error(
            "option",
            "no configuration is usable",
            cls=TileRuntimeError,
            expected="at least one that compiles, runs and gives right results",
            got="\n".join(f"{dict(c.config)}: {c.error.splitlines()[0]}" for c in found[:8]),
        )
    latency, config, kernel = best
    kernel.tuned = AutotuneResult(latency, config, _reference(plan, kernel), kernel, tuple(found))
    return kernel.tuned


def _reference(plan: Plan, kernel: JITKernel) -> float | None:
    if plan.ref_prog is None:
        return None
    profiler = Profiler(kernel, plan.supply_type)
    inputs = plan.tensors(profiler)
    return profiler.do_bench(plan.ref_prog, plan.warmup, plan.rep, input_tensors=inputs)


def _listed(configs: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Config]:
    made: Any = _called(configs, args, kwargs) if callable(configs) else configs
    listed: list[Config] = [dict(c) for c in made]
    if not listed:
        raise error(
            "option", "an empty list of configurations", cls=TileValueError, expected="one or more"
        )
    return listed


def _called(configs: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """What the author's function gives for the arguments of the kernel; one that does not take them
    is given them as a tuple and a mapping, as in the Ascend adapter tree.
    """
    pair = tuple(args), dict(kwargs)
    whole = _takes(configs, *pair) and not _takes(configs, *args, **kwargs)
    return configs(*pair) if whole else configs(*args, **kwargs)


def _takes(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    try:
        inspect.signature(fn).bind(*args, **kwargs)
    except (TypeError, ValueError):  # ValueError: it has no signature
        return False
    return True


PASS_CONFIGS = "pass_configs"
"""A key of a configuration that is no argument: settings of the compiler for it alone."""


def _arguments(config: Config) -> dict[str, Any]:
    """The arguments that a configuration gives."""
    return {k: v for k, v in config.items() if k != PASS_CONFIGS}


def _settings(common: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """The settings of `tilelang.compile` for a configuration: its own before the common ones."""
    known: dict[str, Any] = dict(common.get(PASS_CONFIGS) or {})
    own: dict[str, Any] = dict(config.get(PASS_CONFIGS) or {})
    return {**common, PASS_CONFIGS: {**known, **own}} if own else dict(common)


class AutoTuneImpl:
    """A function under `@tilelang.autotune`: its call tunes, unless a tunable parameter is passed;
    then the others have their defaults.
    """

    def __init__(self, kernel: JITImpl, configs: Any, plan: Plan) -> None:
        self._kernel = kernel
        self._configs = configs
        self._plan = plan
        self._best: dict[Any, AutotuneResult] = {}
        functools.update_wrapper(self, kernel.func)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._kernel, name)

    def _tunable_left(
        self, configs: Sequence[Config], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> bool:
        tunable = {k for c in configs for k in _arguments(c)}
        names = list(self._kernel.signature.parameters)[: len(args)]
        return tunable.isdisjoint({*kwargs, *names})

    def compile(self, *args: Any, **kwargs: Any) -> JITKernel:
        """The fastest kernel for these arguments."""
        configs = _listed(self._configs, args, kwargs)
        if not self._tunable_left(configs, args, kwargs):
            return self._kernel.compile(*args, **kwargs)
        return self._tuned(configs, args, kwargs).kernel

    def _tuned(
        self, configs: Sequence[Config], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> AutotuneResult:
        key = self._kernel.key_of(args, kwargs)
        if key not in self._best:
            settings = self._kernel.settings

            def make(config: Config) -> JITKernel:
                made = self._kernel.get_tir(*args, **{**kwargs, **_arguments(config)})
                return compile(made, **_settings(settings, config))

            self._best[key] = search(make, configs, self._plan)
        return self._best[key]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        give_kernel = kwargs.pop("__return_kernel", False)
        configs = _listed(self._configs, args, kwargs)
        if not self._tunable_left(configs, args, kwargs):
            return self._kernel(*args, **kwargs)
        if self._kernel.mode == "lazy":
            return self._tuned(configs, args, kwargs).kernel
        runtime = self._kernel.runtime_arguments(args, kwargs)
        with set_autotune_inputs(runtime):
            kernel = self._tuned(configs, args, kwargs).kernel
        return kernel if give_kernel else kernel(*runtime)


def autotune(
    func: Any = None, *, configs: Any = None, **settings: Any
) -> Callable[[JITImpl], AutoTuneImpl]:
    """`@tilelang.autotune(configs=...)` above `@tilelang.jit`.

    `configs` are dictionaries of arguments, or a function of the call's arguments that gives them.
    The settings are those of `Plan`. ValueError without configs or for an unknown setting.
    """
    if func is not None or configs is None:
        raise error(
            "option",
            "tilelang.autotune without configs",
            cls=TileValueError,
            expected="@tilelang.autotune(configs=[{...}, ...]) above @tilelang.jit",
        )
    plan = _plan(settings)

    def wrap(kernel: Any) -> AutoTuneImpl:
        if not isinstance(kernel, JITImpl):
            raise error(
                "option",
                f"tilelang.autotune above {type(kernel).__name__}",
                cls=TileValueError,
                expected="a function under @tilelang.jit",
            )
        return AutoTuneImpl(kernel, configs, plan)

    return wrap


def _plan(settings: Mapping[str, Any], base: Plan | None = None) -> Plan:
    known = [n for n in inspect.signature(Plan).parameters if n != "inputs"]
    for name in settings:
        if name not in known:
            raise error(
                "option",
                f"unknown setting {name} of the tuner",
                cls=TileValueError,
                expected=", ".join(known),
            )
    plan = base or Plan()
    for name, value in settings.items():
        setattr(plan, name, value)
    return plan


class AutoTuner:
    """`AutoTuner.from_kernel(kernel, configs).set_profile_args(...).run()`."""

    def __init__(self, kernel: Callable[..., Any], configs: Any) -> None:
        self._kernel = kernel
        self._configs = configs
        self._compile: dict[str, Any] = {}
        self._plan = Plan()

    @classmethod
    def from_kernel(cls, kernel: Callable[..., Any], configs: Any) -> AutoTuner:
        """A tuner of a function of the tunable parameters that gives a `@T.prim_func`."""
        return cls(kernel, configs)

    def set_compile_args(self, **settings: Any) -> AutoTuner:
        """The settings of `tilelang.compile`."""
        self._compile = dict(settings)
        return self

    def set_profile_args(self, **settings: Any) -> AutoTuner:
        """The settings of `Plan`."""
        self._plan = _plan(settings, self._plan)
        return self

    def run(
        self, warmup: float = 25, rep: float = 100, timeout: float = 100, **settings: Any
    ) -> AutotuneResult:
        """Try every configuration, one after the other; the fastest is the result."""
        plan = _plan({"warmup": warmup, "rep": rep, "timeout": timeout, **settings}, self._plan)

        def make(config: Config) -> JITKernel:
            made = self._kernel(**_arguments(config))
            settings = _settings(self._compile, config)
            return made if isinstance(made, JITKernel) else compile(made, **settings)

        return search(make, _listed(self._configs, (), {}), plan)
