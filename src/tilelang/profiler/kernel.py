"""`kernel.get_profiler()`: inputs for a kernel, comparison with a reference, time per call."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tilelang.dtypes import DType
from tilelang.errors import TileValueError, error
from tilelang.ir.evaluate import evaluate
from tilelang.ir.expr import Var
from tilelang.ir.tile import Param
from tilelang.profiler.bench import do_bench
from tilelang.runtime import JITKernel
from tilelang.utils.tensor import TensorSupplyType, get_tensor_supply, torch_assert_close


class InputsMissing(TileValueError):
    """An input that nobody has given and that cannot be made up: no fault of the kernel."""


@dataclass(frozen=True)
class KernelParam:
    """A parameter with the sizes of one call: what a supply makes a tensor for."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    scalar: bool = False

    def is_scalar(self) -> bool:
        """Whether a call takes a number for it."""
        return self.scalar


class Profiler:
    """Runs one kernel on made-up inputs. torch makes the tensors, where the kernel takes them."""

    def __init__(
        self, kernel: JITKernel, supply_type: TensorSupplyType = TensorSupplyType.Auto
    ) -> None:
        self.kernel = kernel
        self.supply_type = supply_type

    @property
    def func(self) -> Callable[..., Any]:
        """The kernel as a function."""
        return self.kernel

    @property
    def _inputs(self) -> list[Param]:
        outputs = self.kernel.out_idx
        return [p for n, p in enumerate(self.kernel.ir.params) if n not in outputs]

    def input_params(self, sizes: Mapping[str, int] | None = None) -> list[KernelParam]:
        """The inputs with their sizes. ValueError for a size that is not given."""
        known = {Var(name, DType("int32")): n for name, n in (sizes or {}).items()}
        found: list[KernelParam] = []
        for p in self._inputs:
            if p.buffer is None:
                kind = p.var.dtype if p.var is not None else DType("handle")
                found.append(KernelParam(p.name, DType(kind), (), scalar=True))
                continue
            shape = [evaluate(e, known) for e in p.buffer.shape]
            if None in shape:
                raise error(
                    "argument",
                    f"the shape of {p.name} has sizes that are not given",
                    cls=InputsMissing,
                    expected="a number for every symbolic size",
                    help="pass dynamic_symbolic_constraints={'m': 1024}, or input_tensors=[...];"
                    " a tuner takes them by set_autotune_inputs(...)",
                )
            extents = tuple(int(n) for n in shape if n is not None)
            found.append(KernelParam(p.name, DType(p.buffer.dtype), extents))
        return found

    def make_inputs(self, sizes: Mapping[str, int] | None = None) -> list[Any]:
        """One tensor per input. ValueError for a scalar parameter or a size that is not given."""
        target = self.kernel.resolved_target
        on_device = target.mode == "native" and target.backend == "cuda"
        supply = get_tensor_supply(self.supply_type, "cuda" if on_device else "cpu")
        params = self.input_params(sizes)
        for p in params:
            if p.is_scalar():
                raise error(
                    "argument",
                    f"the scalar parameter {p.name} cannot be made up",
                    cls=InputsMissing,
                    help="pass input_tensors=[...]; a tuner takes them by"
                    " set_autotune_inputs(...) or supply_prog=",
                )
        return [supply(p) for p in params]

    def run_once(self, func: Callable[..., Any] | None = None) -> Any:
        """Call the kernel, or `func`, on made-up inputs."""
        return (func or self.kernel)(*self.make_inputs())

    __call__ = run_once

    def _results(self, made: Sequence[Any], returned: Any) -> list[Any]:
        """What a call produced: what it returned, else its inputs, which it may have changed."""
        if returned is None or returned == []:
            return list(made)
        if isinstance(returned, (list, tuple)):
            return list(cast("list[Any]", returned))
        return [returned]

    def assert_allclose(
        self,
        reference_program: Callable[..., Any],
        input_tensors: Sequence[Any] | None = None,
        atol: float = 1e-2,
        rtol: float = 1e-2,
        max_mismatched_ratio: float = 0.01,
    ) -> None:
        """Compare with a reference on the same inputs. AssertionError where they differ."""
        ours = list(input_tensors) if input_tensors is not None else self.make_inputs()
        theirs = [x.clone() for x in ours]
        want = self._results(theirs, reference_program(*theirs))
        got = self._results(ours, self.kernel(*ours))
        if len(want) != len(got):
            raise AssertionError(f"the reference gives {len(want)} tensors, the kernel {len(got)}")
        for a, b in zip(got, want, strict=True):
            torch_assert_close(
                a, b, rtol, atol, max_mismatched_ratio,
                check_dtype=False, base_name="the kernel", ref_name="the reference",
            )  # fmt: skip

    def manual_assert_close(
        self,
        reference_program: Callable[..., Any],
        input_tensors: Sequence[Any] | None = None,
        manual_check_prog: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        """Give the results of both, as lists, to `manual_check_prog`."""
        if manual_check_prog is None:
            raise error("argument", "manual_assert_close without manual_check_prog")
        ours = list(input_tensors) if input_tensors is not None else self.make_inputs()
        theirs = [x.clone() for x in ours]
        want = self._results(theirs, reference_program(*theirs))
        manual_check_prog(self._results(ours, self.kernel(*ours)), want)

    def assert_consistent(self, repeat: int = 10) -> None:
        """Call the kernel `repeat` times on equal inputs. AssertionError where results differ."""
        torch = importlib.import_module("torch")
        inputs = self.make_inputs()
        first: list[Any] | None = None
        for _ in range(repeat):
            own = [x.clone() for x in inputs]
            got = self._results(own, self.kernel(*own))
            first = first or got
            if not all(torch.equal(a, b) for a, b in zip(first, got, strict=True)):
                raise AssertionError("two calls on equal inputs give different results")

    def do_bench(
        self,
        func: Callable[..., Any] | None = None,
        warmup: float = 25,
        rep: float = 100,
        n_warmup: int = 0,
        n_repeat: int = 0,
        input_tensors: Sequence[Any] | None = None,
        backend: str = "event",
        quantiles: list[float] | None = None,
        return_mode: str = "mean",
        dynamic_symbolic_constraints: Mapping[str, int] | None = None,
        device: Any = None,
        early_stop_baseline: float | None = None,
    ) -> Any:
        """Milliseconds per call of the kernel, or of `func`; see `tilelang.profiler.do_bench`."""
        inputs = (
            list(input_tensors)
            if input_tensors is not None
            else self.make_inputs(dynamic_symbolic_constraints)
        )
        run = func or self.kernel
        return do_bench(
            lambda: run(*inputs), warmup, rep, n_warmup, n_repeat, quantiles,
            backend=backend, return_mode=return_mode, device=device,
            early_stop_baseline=early_stop_baseline,
        )  # fmt: skip


def get_profiler(
    kernel: JITKernel, tensor_supply_type: TensorSupplyType = TensorSupplyType.Auto
) -> Profiler:
    """The profiler of a kernel."""
    return Profiler(kernel, tensor_supply_type)
