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
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from tilelang.ir.tile import Param
from tilelang.runtime.arguments import MISSED, Bound, Signature
from tilelang.runtime.cuda import CudaProgram, OnDevice, Prepared
from tilelang.runtime.cuda_arguments import ALIGN
from tilelang.runtime.cuda_arrays import DeviceArray
from tilelang.targets.cuda.driver import driver
from tilelang.targets.cuda.host import HELPERS

MANY = 256
"""Plans that one kernel keeps."""

Call = Callable[..., Any]


class CudaPlans:
    """The plans of one kernel, by what its arguments look like.

    A plan is the function of a call. `attempt` gives the result of one, or MISSED where the call
    must be bound in full: it is the plan of the last call, which asks `other` for arguments that
    are not those it is for.
    """

    def __init__(self, program: CudaProgram, signature: Signature) -> None:
        self.program = program
        self.signature = signature
        self.attempt: Call = self.other
        self._plans: dict[Hashable, Call | None] = {}
        self._params = tuple(signature.inputs.values())
        sizes = signature.symbols()
        self._by_value = [p.var is not None and p.var in sizes for p in self._params]

    def other(self, args: Sequence[Any], missed: Call | None = None) -> Any:
        """The result of a call that is not for the plan `missed`."""
        if len(args) != len(self._params):
            return MISSED
        found = self._plans.get(self._key(args))
        if found is None or found is missed:
            return MISSED
        self.attempt = found
        return found(args)

    def _key(self, args: Sequence[Any]) -> Hashable | None:
        """What the arguments look like; None where a call must be bound in full."""
        torch = sys.modules.get("torch")
        if torch is None:
            return None
        out: list[Hashable] = [threading.get_ident()]
        for x, by_value in zip(args, self._by_value, strict=True):
            if type(x) is torch.Tensor:
                out.append((x.dtype, x.shape, x.stride(), x.device, x.requires_grad))
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
        writer = _Writer(self.program, arrays[0].device, self.other)
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

    def __init__(self, program: CudaProgram, device: int, other: Call) -> None:
        torch = sys.modules["torch"]
        self.program = program
        self.device = device
        self.names: dict[str, Any] = {
            "Tensor": torch.Tensor,
            "new": torch.empty_strided,
            "new_like": torch.empty_like,
            "stream_of": torch._C._cuda_getCurrentRawStream,
            "device_now": torch._C._cuda_getDevice,
            "call_here": program.call_here,
            "other": other,
        }
        self.several = torch.cuda.device_count() > 1
        self.args: list[str] = []
        self.guards: list[str] = []
        self.tensors: dict[str, Any] = {}
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
        """A tensor that must look like `x`."""
        self.tensors[name] = x
        self.addresses.append(f"p{name}")

    def tensor_guards(self) -> list[str]:
        """What tensors must look like: by torch's own guards, which look at all in one call where
        this torch has them (it makes them for torch.compile), else attribute by attribute.
        """
        check = _torch_guards(list(self.tensors.values()))
        if check is not None:
            self.names["check"] = check
            return [f"check({', '.join(self.tensors)})"]
        out: list[str] = []
        for name, x in self.tensors.items():
            out += [
                f"type({name}) is Tensor",
                f"{name}.dtype is {self.constant(x.dtype)}",
                f"{name}.shape == {self.constant(x.shape)}",
                f"{name}.stride() == {self.constant(x.stride())}",
                f"{name}.get_device() == {x.get_device()}",
            ]
        return out

    def output(self, parameter: str, made: Any) -> None:
        """A tensor that the call allocates, like `made`."""
        name = f"r{len(self.results)}"
        facts = (tuple(made.shape), made.stride(), made.dtype, made.device)
        alike = [
            n
            for n, x in self.tensors.items()
            if (tuple(x.shape), x.stride(), x.dtype, x.device) == facts
        ]
        if alike:  # torch makes it of another tensor in half the time
            self.before.append(f"{name} = new_like({alike[0]})")
        else:
            shape, stride, dtype, device = (self.constant(f) for f in facts)
            self.before.append(f"{name} = new({shape}, {stride}, dtype={dtype}, device={device})")
        self.results.append(name)
        self.values[parameter] = f"{name}.data_ptr()"

    def plan(self) -> Call:
        """The function of the texts."""
        device, args = self.device, "".join(f"{name}, " for name in self.args)
        result = self.results[0] if len(self.results) == 1 else f"[{', '.join(self.results)}]"
        aligned = " | ".join(self.addresses) or "0"
        # The arguments of a launch lie in memory of the plan, so a plan is of one thread.
        self.names |= {"thread": threading.get_ident, "own": threading.get_ident()}
        guards = ["thread() == own", *self.tensor_guards(), *self.guards]
        elsewhere = f" or device_now() != {device}" if self.several else ""
        lines = [
            "def plan(args):",
            f"    if len(args) != {len(self.args)}:",
            "        return other(args, plan)",
            f"    {args}= args" if args else "",
            f"    if not ({' and '.join(guards)}):",
            "        return other(args, plan)",
            *(f"    {name} = {name[1:]}.data_ptr()" for name in self.addresses),
            f"    if ({aligned}) & {ALIGN - 1}{elsewhere}:",
            "        return other(args, plan)",
            *(f"    {line}" for line in [*self.before, *(self._recorded() or self._full())]),
            f"    return {result}",
        ]
        exec(compile("\n".join(lines), "<launch plan>", "exec"), self.names)
        return self.names["plan"]

    def _full(self) -> list[str]:
        """The call of the host level."""
        values = ", ".join(self.values[name] for name, _ in self.program.built.slots)
        return [f"call_here(({values},), {self.device}, stream_of({self.device}))"]

    def _recorded(self) -> list[str]:
        """The launches that the host level makes, where addresses and scalars only pass through it:
        all else, the grids too, is the same in every call that the plan is for.
        """
        program = self.program
        if program.speaks:
            return []
        at = program.on(self.device)
        recorder = Recorder(at)
        try:
            recorder.run(program, [self.values[name] for name, _ in program.built.slots])
        except (NotImplementedError, TypeError):
            return []
        if any(at.kernels[k].narrow for k, _, _ in recorder.launches):
            return []
        self.names |= recorder.names | {"device": self.device, "call": driver().launch_kernel}
        lines = [f"stream = stream_of({self.device})"]
        for j, (k, grid, args) in enumerate(recorder.launches):
            kernel = Prepared(at.kernels[k].facts, at.kernels[k].handle)
            kernel.config.grid_x, kernel.config.grid_y, kernel.config.grid_z = grid
            facts = (kernel, kernel.config, kernel.packing.pack_into, kernel.block)
            names = [f"{what}{j}" for what in ("kernel", "config", "pack", "block")]
            places = [f"at{j}", f"handle{j}", f"params{j}"]
            self.names |= dict(zip([*names, *places], [*facts, *kernel.arguments], strict=True))
            lines += [
                f"config{j}.stream = stream",
                f"pack{j}(block{j}, 0, {', '.join(args)})" if args else "",
                f"if call({', '.join(places)}, None): kernel{j}.launch(device)",
            ]
        return [line for line in lines if line] if recorder.launches else ["pass"]


def _torch_guards(tensors: Sequence[Any]) -> Callable[..., bool] | None:
    """torch's check that tensors look like these, None where it has none."""
    found = sys.modules.get("torch._C._dynamo.guards")
    make = getattr(found, "TensorGuards", None)
    if make is None or not tensors:
        return None
    sizes, strides = [list(x.shape) for x in tensors], [list(x.stride()) for x in tensors]
    try:
        check = make(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
        return check if check(*tensors) else None
    except (TypeError, ValueError, RuntimeError):
        return None


class _Passed:
    """An address or a scalar of the call as the host level passes it on; `text` says which.

    Whoever looks at it gets an error: what depends on it is not the same in every call.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        raise NotImplementedError

    def __bool__(self) -> bool:
        raise NotImplementedError

    __hash__ = None  # type: ignore[assignment]


class Recorder:
    """Plays `host` for a run of the host level in which nothing is launched.

    `launches` are a kernel's number, its grid, and the texts of its arguments. NotImplementedError
    or TypeError say that the program does more with its arguments than pass them on.
    """

    def __init__(self, at: OnDevice) -> None:
        self.at = at
        self.launches: list[tuple[int, tuple[int, int, int], list[str]]] = []
        self.names: dict[str, Any] = {}

    def run(self, program: CudaProgram, values: Sequence[str]) -> None:
        """Run the host level; a value that is no number is the text of one."""
        names: dict[str, Any] = dict(HELPERS)
        for k in range(len(program.built.kernels)):
            names[f"launch{k}"] = functools.partial(self.launch, k)
        exec(program.host_code, names)
        numbers = [int(v) if v.lstrip("-").isdigit() else _Passed(v) for v in values]
        names["run"](self, *numbers)

    def launch(self, number: int, _: Any, x: int, y: int, z: int, *args: Any) -> None:
        """Note a launch; one without blocks is none."""
        if any(isinstance(a, bytes) for a in args):
            raise NotImplementedError
        if x > 0 and y > 0 and z > 0:
            texts = [a.text if isinstance(a, _Passed) else repr(a) for a in args]
            self.launches.append((number, (x, y, z), texts))

    def tensor_map(
        self, number: int, address: object, dims: tuple[int, ...], strides: tuple[int, ...]
    ) -> _Passed:
        """A tensor map that is looked up by its address."""
        known = all(type(n) is int for n in (*dims, *strides))
        if not isinstance(address, _Passed) or not known:
            raise NotImplementedError
        name = f"map{len(self.names)}"
        at = self.at

        def find(at_address: int) -> bytes:
            return at.tensor_map(number, at_address, dims, strides)

        self.names[name] = find
        return _Passed(f"{name}({address.text})")

    def workspace(self, size: int, zero: bool = False) -> Any:
        """Memory of a call is another one in each."""
        raise NotImplementedError

    def evaluate(self, number: int, values: Any) -> Any:
        """What is rare."""
        raise NotImplementedError

    def fail(self, number: int) -> None:
        """An assertion that does not hold is for the full call to report."""
        raise NotImplementedError
