"""Launch plans: what a call of a native kernel still has to do when its arguments look as before.

What enters: a call that was bound and checked in full. What leaves: a `Plan` for all calls whose
arguments have the same types, shapes and strides: it takes the addresses, allocates the outputs and
runs. Arguments that need a look at their contents, or a copy, have no plan.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from tilelang.dtypes import DType
from tilelang.ir.tile import Param
from tilelang.runtime.arguments import MISSED, Bound, Signature
from tilelang.runtime.arrays import allocate, default_framework
from tilelang.runtime.native import NativeProgram, address_of, packer

MANY = 256
"""Plans that one kernel keeps; a program with more shapes than that binds each call in full."""

Getter = Callable[[Any], int]

_addressof, _from_buffer = ctypes.addressof, ctypes.c_char.from_buffer


@dataclass(frozen=True)
class Output:
    """An output that the call allocates: its slot, shape in scalars, type and framework.

    Without a framework it is what the program uses by then.
    """

    slot: int
    shape: tuple[int, ...]
    dtype: DType
    framework: str | None


@dataclass(frozen=True, slots=True)
class Plan:
    """`slots` has the sizes, and zeros where `getters` and `outputs` put something.

    A getter has its slot, and which argument it looks at.
    """

    program: NativeProgram
    slots: tuple[int, ...]
    getters: tuple[tuple[int, int, Getter], ...]
    outputs: tuple[Output, ...]

    def run(self, args: Sequence[Any]) -> Any:
        """Run it; the result is as of a call that was bound in full."""
        slots = list(self.slots)
        for slot, k, get in self.getters:
            slots[slot] = get(args[k])
        if not self.outputs:
            self.program.call(slots)
            return []
        results: list[Any] = []
        for out in self.outputs:
            framework = out.framework or default_framework()
            result, storage = allocate(out.shape, out.dtype, framework, poisoned=False)
            slots[out.slot] = address_of(storage)
            results.append(result)
        self.program.call(slots)
        return results[0] if len(results) == 1 else results


class Plans:
    """The plans of one kernel, by what its arguments look like."""

    def __init__(self, program: NativeProgram, signature: Signature) -> None:
        self.program = program
        self.signature = signature
        self._plans: dict[Hashable, Plan | None] = {}
        self._params = tuple(signature.inputs.values())
        sizes = signature.symbols()
        self._by_value = [p.var is not None and p.var in sizes for p in self._params]

    def attempt(self, args: Sequence[Any]) -> Any:
        """The result of the call, or MISSED where it must be bound in full."""
        plan = self._plans.get(self._key(args))
        return MISSED if plan is None else plan.run(args)

    def _key(self, args: Sequence[Any]) -> Hashable | None:
        """What the arguments look like; None where a call must be bound in full."""
        if len(args) != len(self._params):
            return None
        return tuple([_look(x, v) for x, v in zip(args, self._by_value, strict=True)])

    def learn(self, args: Sequence[Any], bound: Bound) -> None:
        """Keep what was found out about a call."""
        key = self._key(args)
        if key is None:
            return
        if len(self._plans) >= MANY:
            self._plans.clear()
        if key not in self._plans and _has_identity(key):
            self._plans[key] = self._made(args, bound)

    def _made(self, args: Sequence[Any], bound: Bound) -> Plan | None:
        if bound.finish:
            return None
        fn = self.signature.fn
        slots = dict.fromkeys((name for name, _ in self.program.built.slots), 0)
        slots |= {v.name: n & ((1 << 64) - 1) for v, n in bound.sizes.items() if v.name in slots}
        order = {name: k for k, name in enumerate(slots)}
        getters: list[tuple[int, int, Getter]] = []
        for k, (p, x) in enumerate(zip(self._params, args, strict=True)):
            get = self._getter(p, x, bound.values[p.name])
            if get is None:
                return None
            if x is not None:
                getters.append((order[p.name], k, get))
        given = any(
            p.buffer is not None and x is not None for p, x in zip(self._params, args, strict=True)
        )
        framework = bound.framework if given else None
        outputs = [
            Output(order[p.name], storage.shape, DType(p.buffer.dtype).base, framework)
            for p in (fn.params[n] for n in self.signature.outputs)
            for storage in (bound.values[p.name],)
            if p.buffer is not None
        ]
        return Plan(self.program, tuple(slots.values()), tuple(getters), tuple(outputs))

    def _getter(self, p: Param, x: Any, storage: Any) -> Getter | None:
        """How the slot of a parameter follows from an argument that looks like `x`."""
        if p.buffer is None:
            if p.pointer and not isinstance(x, (int, np.integer)):
                return None
            pack = packer(DType("int32") if p.var is None else p.var.dtype)
            scalar = self.signature.scalar
            return lambda value: pack(scalar(p, value))
        if x is None:
            return lambda _: 0
        if p.buffer.dtype.is_bool and not str(x.dtype).endswith("bool"):
            return None  # bytes stand for truth values: each call looks at them
        ways = (_buffer_address, _numpy_address) if isinstance(x, np.ndarray) else (_torch_address,)
        return next((get for get in ways if get(x) == address_of(storage)), None)


def _has_identity(key: Hashable) -> bool:
    return None not in cast("tuple[Any, ...]", key)


def _look(x: Any, by_value: bool) -> Hashable | None:
    """What decides how an argument is bound; None where only its contents do."""
    if type(x) is np.ndarray:
        array = cast("np.ndarray[Any, Any]", x)
        return (array.dtype, array.shape, array.strides, array.flags.writeable)
    if x is None or isinstance(x, (bool, int, float)):
        return (type(x), x if by_value else 0)
    torch = sys.modules.get("torch")
    if torch is not None and type(x) is torch.Tensor and not (x.is_conj() or x.is_neg()):
        return (x.dtype, x.shape, x.stride(), x.device, x.layout)
    return None


def _buffer_address(x: Any) -> int:
    """The fastest way to an address; arrays that are read-only, have gaps or a type that NumPy does
    not know have no such buffer, and their addresses are 0.
    """
    try:
        return _addressof(_from_buffer(x))
    except (TypeError, ValueError, BufferError):
        return 0


def _numpy_address(x: Any) -> int:
    return x.__array_interface__["data"][0]


def _torch_address(x: Any) -> int:
    return x.data_ptr()
