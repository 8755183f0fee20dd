"""Launch plans on a GPU: what a call with torch tensors still has to do when they look as before.

What enters: a call that was bound and checked in full. What leaves: a plan for all calls whose
tensors have the same types, shapes, strides and device, and are as well aligned: it takes the
addresses, allocates the outputs and puts the work into torch's current stream.

A launch takes few microseconds, so a plan is a function written for it, without loops and without
containers.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from tilelang.ir.tile import Param
from tilelang.runtime.arguments import MISSED, Bound, Signature
from tilelang.runtime.cuda import CudaProgram
from tilelang.runtime.cuda_arguments import ALIGN
from tilelang.runtime.cuda_arrays import DeviceArray

MANY = 256
"""Plans that one kernel keeps."""

Call = Callable[..., Any]


class CudaPlans:
    """The plans of one kernel, by what its arguments look like.

    A plan is the function of a call; it gives MISSED for arguments that are not those it is for.
    """

    def __init__(self, program: CudaProgram, signature: Signature) -> None:
        self.program = program
        self.signature = signature
        self._plans: dict[Hashable, Call | None] = {}
        self._last: Call | None = None
        self._params = tuple(signature.inputs.values())
        sizes = signature.symbols()
        self._by_value = [p.var is not None and p.var in sizes for p in self._params]

    def attempt(self, args: Sequence[Any]) -> Any:
        """The result of the call, or MISSED where it must be bound in full."""
        if len(args) != len(self._params):
            return MISSED
        last = self._last
        if last is not None:
            result = last(*args)
            if result is not MISSED:
                return result
        found = self._plans.get(self._key(args))
        if found is None:
            return MISSED
        self._last = found
        return found(*args)

    def _key(self, args: Sequence[Any]) -> Hashable | None:
        """What the arguments look like; None where a call must be bound in full."""
        torch = sys.modules.get("torch")
        if torch is None:
            return None
        out: list[Hashable] = []
        for x, by_value in zip(args, self._by_value, strict=True):
            if type(x) is torch.Tensor:
                out.append((x.dtype, x.shape, x.stride(), x.device))
            elif x is None or isinstance(x, (bool, int, float)):
                out.append((type(x), x if by_value else 0))
            else:
                return None
        return tuple(out)

    def learn(self, args: Sequence[Any], bound: Bound) -> None:
        """Keep what was found out about a call."""
        key = self._key(args)
        if key is None or self._plans.get(key) is not None:
            return
        if len(self._plans) >= MANY:
            self._plans.clear()
        self._plans[key] = self._made(args, bound)

    def _made(self, args: Sequence[Any], bound: Bound) -> Call | None:
        arrays = [v for v in bound.values.values() if isinstance(v, DeviceArray)]
        if bound.finish or not arrays or any(a.framework != "torch" for a in arrays):
            return None
        writer = _Writer(self.program, arrays[0].device)
        for p, x, by_value in zip(self._params, args, self._by_value, strict=True):
            if not writer.argument(p, x, bound.values[p.name], self.signature, by_value=by_value):
                return None
        names = [self.signature.fn.params[n].name for n in self.signature.outputs]
        for name, made in zip(names, bound.results, strict=True):
            writer.output(name, made)
        for v, n in bound.sizes.items():
            writer.values.setdefault(v.name, repr(n))
        return writer.plan()


class _Writer:
    """The texts of one plan. `names` is what they refer to."""

    def __init__(self, program: CudaProgram, device: int) -> None:
        torch = sys.modules["torch"]
        self.program = program
        self.device = device
        self.names: dict[str, Any] = {
            "Tensor": torch.Tensor,
            "new": torch.empty_strided,
            "stream_of": torch._C._cuda_getCurrentRawStream,
            "device_now": torch._C._cuda_getDevice,
            "call_here": program.call_here,
            "lock": program.lock,
            "MISSED": MISSED,
        }
        self.args: list[str] = []
        self.guards: list[str] = []
        self.addresses: list[str] = []
        self.before: list[str] = []
        self.results: list[str] = []
        self.values: dict[str, str] = {}

    def constant(self, value: Any) -> str:
        """A name for an object."""
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def argument(
        self, p: Param, x: Any, storage: Any, signature: Signature, *, by_value: bool
    ) -> bool:
        """One argument; False where a call like this must be bound in full."""
        name = f"a{len(self.args)}"
        self.args.append(name)
        if x is None:
            self.guards.append(f"{name} is None")
            self.values[p.name] = "0"
            return True
        if p.buffer is None and (not p.pointer or type(x) is int):
            kind = self.constant(type(x))
            self.guards.append(f"type({name}) is {kind}")
            if by_value:
                self.guards.append(f"{name} == {x!r}")
            convert = self.constant(functools.partial(signature.scalar, p))
            self.values[p.name] = f"{convert}({name})"
            return True
        if p.buffer is not None and x.data_ptr() != storage.address:
            return False
        self.tensor(name, x)
        self.values[p.name] = f"p{name}"
        return True

    def tensor(self, name: str, x: Any) -> None:
        """What a tensor must look like."""
        shape = self.constant(x.shape)
        plain = x.is_contiguous()
        strides = "" if plain else self.constant(x.stride())
        self.guards += [
            f"type({name}) is Tensor",
            f"{name}.dtype is {self.constant(x.dtype)}",
            f"{name}.shape == {shape}",
            f"{name}.is_contiguous()" if plain else f"{name}.stride() == {strides}",
            f"{name}.get_device() == {x.get_device()}",
        ]
        self.addresses.append(f"p{name}")

    def output(self, parameter: str, made: Any) -> None:
        """A tensor that the call allocates, like `made`."""
        name = f"r{len(self.results)}"
        facts = (tuple(made.shape), made.stride(), made.dtype, made.device)
        shape, stride, dtype, device = (self.constant(f) for f in facts)
        self.before.append(f"{name} = new({shape}, {stride}, dtype={dtype}, device={device})")
        self.results.append(name)
        self.values[parameter] = f"{name}.data_ptr()"

    def plan(self) -> Call:
        """The function of the texts."""
        program, device = self.program, self.device
        args = ", ".join(self.args)
        values = ", ".join(self.values[name] for name, _ in program.built.slots)
        result = self.results[0] if len(self.results) == 1 else f"[{', '.join(self.results)}]"
        aligned = " | ".join(self.addresses) or "0"
        simple = not program.speaks and "host.workspace" not in program.built.host.text
        self.names["host"] = at = program.on(device)
        self.names["run"] = at.run
        begin = (
            [
                "with lock:",
                f"    host.stream = stream_of({device})",
                f"    run(host, {values})",
            ]
            if simple
            else [f"call_here(({values},), {device}, stream_of({device}))"]
        )
        lines = [
            f"def plan({args}):",
            f"    if not ({' and '.join(self.guards) or 'True'}):",
            "        return MISSED",
            *(f"    {name} = {name[1:]}.data_ptr()" for name in self.addresses),
            f"    if ({aligned}) & {ALIGN - 1} or device_now() != {device}:",
            "        return MISSED",
            *(f"    {line}" for line in [*self.before, *begin]),
            f"    return {result}",
        ]
        exec(compile("\n".join(lines), "<launch plan>", "exec"), self.names)
        return self.names["plan"]
