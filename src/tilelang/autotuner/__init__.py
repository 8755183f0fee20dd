"""`tilelang.autotuner`: the decorator and what goes with it. The search itself is not built: a
function whose parameters are all given runs, one that would have to be tuned is refused by name.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from tilelang.errors import TileNotImplementedError, TileValueError, error

__all__ = ["AutoTuner", "autotune", "get_autotune_inputs", "set_autotune_inputs"]


def _later(what: str, way_out: str) -> Exception:
    return error(
        "option", f"{what}: tuning is not built", cls=TileNotImplementedError, help=way_out
    )


class AutoTuneImpl:
    """A function under `@tilelang.autotune`: it runs where its tunable parameters are passed."""

    def __init__(self, kernel: Any, configs: Any) -> None:
        self._kernel = kernel
        self._configs = configs
        functools.update_wrapper(self, kernel)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._kernel(*args, **self._given(args, kwargs))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._kernel, name)

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        configs: Any = self._configs(*args, **kwargs) if callable(self._configs) else self._configs
        tunable = dict.fromkeys(k for c in configs for k in c)
        signature = inspect.signature(getattr(self._kernel, "func", self._kernel))
        passed = {*kwargs, *list(signature.parameters)[: len(args)]}
        left = [name for name in tunable if name not in passed]
        if left:
            first: dict[str, Any] = dict(next(iter(configs)))
            shown = ", ".join(f"{k}={v!r}" for k, v in first.items())
            raise _later(
                f"{self.__name__} is called without its tunable parameters {', '.join(left)}",
                f"pass them: `{self.__name__}(..., {shown})`",
            )
        return kwargs


def autotune(
    func: Any = None,
    *,
    configs: Any = None,
    warmup: int = 25,
    rep: int = 100,
    timeout: int = 100,
    **settings: Any,
) -> Callable[[Any], AutoTuneImpl]:
    """`@tilelang.autotune(configs=...)` above `@tilelang.jit`; `configs` are dictionaries, or a
    function that gives them. ValueError without them.
    """
    if func is not None or configs is None:
        raise error(
            "option",
            "tilelang.autotune without configs",
            cls=TileValueError,
            expected="@tilelang.autotune(configs=[{...}, ...]) above @tilelang.jit",
        )
    return lambda kernel: AutoTuneImpl(kernel, configs)


class AutoTuner:
    """A search over configurations; declared, not built."""

    @classmethod
    def from_kernel(cls, kernel: Any, configs: Any) -> AutoTuner:
        """Refused."""
        raise _later("AutoTuner.from_kernel", "compile the kernel with the parameters you want")


def set_autotune_inputs(*args: Any) -> Any:
    """Refused: there is no search that inputs would be for."""
    raise _later("set_autotune_inputs", "call the kernel with its parameters and tensors")


def get_autotune_inputs() -> list[Any] | None:
    """The inputs of the running search: None, there is none."""
    return None
