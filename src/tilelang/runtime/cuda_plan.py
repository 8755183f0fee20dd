"""Launch plans on a GPU: what a call with torch tensors still has to do when they look as before.

What enters: a call that was bound and checked in full. What leaves: a plan for all calls whose
tensors have the same types, shapes, strides and device, and are as well aligned: it takes the
addresses, allocates the outputs and puts the work into torch's current stream.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilelang.ir.tile import Param
from tilelang.runtime.arguments import Bound, Signature
from tilelang.runtime.cuda import CudaProgram
from tilelang.runtime.cuda_arguments import ALIGN
from tilelang.runtime.cuda_arrays import DeviceArray

MANY = 256
"""Plans that one kernel keeps."""

Getter = Callable[[Any], Any]


@dataclass(frozen=True)
class CudaPlan:
    """`values` has the sizes, and zeros where `getters` and `outputs` put something."""

    program: CudaProgram
    device: int
    values: tuple[Any, ...]
    getters: tuple[tuple[int, Getter], ...]
    outputs: tuple[tuple[int, Callable[[], Any]], ...]
    stream: Callable[[int], int]

    def run(self, args: Sequence[Any]) -> Any:
        """Run it; the result is as of a call that was bound in full."""
        values = list(self.values)
        for (slot, get), x in zip(self.getters, args, strict=True):
            values[slot] = get(x)
        results: list[Any] = []
        for slot, make in self.outputs:
            made = make()
            values[slot] = made.data_ptr()
            results.append(made)
        self.program.call(values, self.device, self.stream(self.device))
        return results[0] if len(results) == 1 else results


class CudaPlans:
    """The plans of one kernel, by what its arguments look like."""

    def __init__(self, program: CudaProgram, signature: Signature) -> None:
        self.program = program
        self.signature = signature
        self._plans: dict[Hashable, CudaPlan | None] = {}
        self._params = tuple(signature.inputs.values())
        sizes = signature.symbols()
        self._by_value = [p.var is not None and p.var in sizes for p in self._params]

    def key(self, args: Sequence[Any]) -> Hashable | None:
        """What the arguments look like; None where a call must be bound in full."""
        torch = sys.modules.get("torch")
        if torch is None or len(args) != len(self._params):
            return None
        tensor = torch.Tensor
        out: list[Hashable] = []
        for x, by_value in zip(args, self._by_value, strict=True):
            if type(x) is tensor:
                out.append((x.dtype, x.shape, x.stride(), x.device, x.data_ptr() % ALIGN))
            elif x is None or isinstance(x, (bool, int, float)):
                out.append((type(x), x if by_value else 0))
            else:
                return None
        return tuple(out)

    def find(self, key: Hashable | None) -> CudaPlan | None:
        """The plan for arguments that look like this."""
        return self._plans.get(key)

    def learn(self, key: Hashable, args: Sequence[Any], bound: Bound) -> None:
        """Keep what was found out about a call."""
        if len(self._plans) >= MANY:
            self._plans.clear()
        if key not in self._plans:
            self._plans[key] = self._made(args, bound)

    def _made(self, args: Sequence[Any], bound: Bound) -> CudaPlan | None:
        arrays = [v for v in bound.values.values() if isinstance(v, DeviceArray)]
        if bound.finish or not arrays or any(a.framework != "torch" for a in arrays):
            return None
        torch = sys.modules["torch"]
        values: dict[str, Any] = dict.fromkeys((name for name, _ in self.program.built.slots), 0)
        values |= {v.name: n for v, n in bound.sizes.items() if v.name in values}
        order = {name: k for k, name in enumerate(values)}
        getters: list[tuple[int, Getter]] = []
        for p, x in zip(self._params, args, strict=True):
            get = self._getter(p, x, bound.values[p.name])
            if get is None:
                return None
            getters.append((order[p.name], get))
        names = [self.signature.fn.params[n].name for n in self.signature.outputs]
        outputs = [
            (order[name], _maker(torch, made))
            for name, made in zip(names, bound.results, strict=True)
        ]
        return CudaPlan(
            self.program,
            arrays[0].device,
            tuple(values.values()),
            tuple(getters),
            tuple(outputs),
            torch._C._cuda_getCurrentRawStream,
        )

    def _getter(self, p: Param, x: Any, storage: Any) -> Getter | None:
        """How the value of a parameter follows from an argument that looks like `x`."""
        if p.buffer is None:
            if p.pointer and not isinstance(x, (int, np.integer)):
                return _address
            scalar = self.signature.scalar
            return lambda value: scalar(p, value)
        if x is None:
            return lambda _: 0
        return _address if x.data_ptr() == storage.address else None


def _address(x: Any) -> int:
    return x.data_ptr()


def _maker(torch: Any, made: Any) -> Callable[[], Any]:
    """What allocates a tensor like `made`."""
    shape, stride, dtype, device = tuple(made.shape), made.stride(), made.dtype, made.device
    new = torch.empty_strided
    return lambda: new(shape, stride, dtype=dtype, device=device)
