"""Programs that run on NVIDIA GPUs.

What enters: what `targets/cuda` built of a program, and its machine code. What leaves: a
`CudaProgram`, called with addresses and numbers on a device and stream. Work is only put into the
stream: nothing waits, but for a program with assertions or prints, whose outcome is looked at after
a launch unless the stream records a graph.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from tilelang.dtypes import DType
from tilelang.errors import TileError, TileIndexError, TileRuntimeError, error
from tilelang.ir.evaluate import evaluate
from tilelang.ir.expr import Expr, Var
from tilelang.runtime.cuda_arrays import DeviceArray, current_stream
from tilelang.targets.cuda.driver import (
    NO_CONTEXT,
    Driver,
    LaunchAttribute,
    LaunchConfig,
    attributes,
    driver,
    encode_tensor_map,
)
from tilelang.targets.cuda.host import HELPERS
from tilelang.targets.cuda.nvrtc import Cubin
from tilelang.targets.cuda.occupancy import occupancy
from tilelang.targets.cuda.program import Built, KernelFacts
from tilelang.targets.cuda.statements import Failure

_RECORD = struct.Struct("<7I")
"""`Record` of the prelude: the number of a failure, then the block and the thread."""
_MAP_BYTES, _MAP_ALIGN = 128, 64
STREAMED = ("torch", "cupy")
"""Frameworks that say which stream is theirs."""
MAPS = 256
"""Tensor maps that one program keeps on a device."""


def _packed(params: Sequence[DType | str | None], reports: bool) -> tuple[struct.Struct, list[int]]:
    """How the arguments of a kernel lie in a block of memory, and where each begins."""
    text, at, offsets = "<", 0, list[int]()
    for p in (*params, *([None] if reports else [])):
        code, size, align = _parameter(p)
        gap = -at % align
        text += f"{gap}x{code}" if gap else code
        offsets.append(at + gap)
        at += gap + size
    return struct.Struct(text), offsets


def _parameter(p: DType | str | None) -> tuple[str, int, int]:
    """The struct code, size and alignment of one argument."""
    if p == "map":
        return f"{_MAP_BYTES}s", _MAP_BYTES, _MAP_ALIGN
    if not isinstance(p, DType):
        return "Q", 8, 8
    if p.name in ("float32", "tfloat32"):
        return "f", 4, 4
    if p.name == "float64":
        return "d", 8, 8
    size = p.numpy.itemsize
    code = {1: "b", 2: "h", 4: "i", 8: "q"}[size]
    return (code if p.is_int else "?" if p.is_bool else code.upper()), size, size


class Prepared:
    """One kernel on one device with everything that a launch needs; `handle` is the driver's."""

    def __init__(self, facts: KernelFacts, handle: int) -> None:
        self.facts = facts
        self.handle = handle
        self.packing, offsets = _packed(facts.params, facts.reports)
        self.narrow = {
            k: p
            for k, p in enumerate(facts.params)
            if isinstance(p, DType) and p.is_float and p.bits < 32
        }
        # The block is aligned for tensor maps.
        self._storage = ctypes.create_string_buffer(self.packing.size + _MAP_ALIGN)
        start = ctypes.addressof(self._storage)
        shift = -start % _MAP_ALIGN
        self.block = memoryview(self._storage).cast("B")[shift:]
        self.pointers = (ctypes.c_void_p * max(1, len(offsets)))(
            *(start + shift + o for o in offsets)
        )
        self.config = LaunchConfig()
        sizes = (*facts.block, 1, 1)[:3]
        self.config.block_x, self.config.block_y, self.config.block_z = sizes
        self.config.shared = facts.shared
        self.attrs: ctypes.Array[LaunchAttribute] | None = attributes(
            cooperative=facts.cooperative, overlaps=facts.overlaps
        )
        if self.attrs is not None:
            self.config.attrs = ctypes.addressof(self.attrs)
            self.config.count = len(self.attrs)
        # Numbers: ctypes takes longer to pass pointers that are objects already.
        self.arguments = (ctypes.addressof(self.config), handle, ctypes.addressof(self.pointers))

    def launch(self, index: int) -> None:
        """Launch as `config` and `block` say, on the device `index`, which is the current one."""
        api, facts, c = driver(), self.facts, self.config
        code = api.launch_kernel(*self.arguments, None)
        if code == NO_CONTEXT:  # a thread in which nothing of CUDA has run yet
            api.use(index)
            code = api.launch_kernel(*self.arguments, None)
        if code:
            grid = (c.grid_x, c.grid_y, c.grid_z)
            shape = f"grid {grid}, block {facts.block}, {facts.shared} bytes of shared memory"
            raise api.failed(code, f"launching the kernel {facts.name} ({shape})")


def _prepared(facts: KernelFacts, module: int) -> Prepared:
    cluster = math.prod(facts.cluster)
    handle = driver().function(module, facts.symbol, shared=facts.shared, cluster=cluster)
    return Prepared(facts, handle)


Launcher = Callable[..., None]


def _launcher(kernel: Prepared, record: int) -> Launcher:
    """What the text of the host level calls: `launch(host, x, y, z, *args)`."""
    config, pack, block = kernel.config, kernel.packing.pack_into, kernel.block
    tail = (record,) if kernel.facts.reports else ()
    narrow = kernel.narrow
    before = (0, 0, 0, -1)

    def launch(host: OnDevice, x: int, y: int, z: int, *args: Any) -> None:
        """Launch the kernel; a grid without blocks is none."""
        nonlocal before
        now = (x, y, z, host.stream)
        if now != before:
            if x <= 0 or y <= 0 or z <= 0:
                return
            config.grid_x, config.grid_y, config.grid_z, config.stream = before = now
        if narrow:
            args = tuple(_word(a, narrow[k]) if k in narrow else a for k, a in enumerate(args))
        pack(block, 0, *args, *tail)
        kernel.launch(host.index)

    return launch


class OnDevice:
    """A program on one device; the text of the host level calls it `host`.

    One call at a time uses it: `stream` is that of the call.
    """

    __slots__ = ("_maps", "_program", "index", "kernels", "record", "run", "stream", "workspaces")

    def __init__(self, program: CudaProgram, index: int) -> None:
        api, built = driver(), program.built
        self._program = program
        self.index = index
        self.stream = 0
        self._maps: dict[tuple[Any, ...], bytes] = {}
        self.workspaces: list[int] = []
        self.record = api.pinned(_RECORD.size) if program.asserts else 0
        module = api.load(program.cubin.code)
        names: dict[str, Any] = dict(HELPERS)
        self.kernels = [_prepared(facts, module) for facts in built.kernels]
        for k, kernel in enumerate(self.kernels):
            names[f"launch{k}"] = _launcher(kernel, self.record)
        exec(program.host_code, names)
        self.run: Callable[..., None] = names["run"]

    def tensor_map(
        self, number: int, address: int, dims: tuple[int, ...], strides: tuple[int, ...]
    ) -> bytes:
        """The tensor map of an array; those of earlier calls are kept.

        A tensor without elements has none, and nothing looks at it.
        """
        if 0 in dims:
            return bytes(_MAP_BYTES)
        key = (number, address, dims, strides)
        maps = self._maps
        found = maps.get(key)
        if found is None:
            if len(maps) >= MAPS:
                maps.clear()
            facts = self._program.built.host.maps[number]
            found = maps[key] = encode_tensor_map(facts, address, dims, strides)
        return found

    def workspace(self, size: int, zero: bool = False) -> int:
        """Memory for this call."""
        api = driver()
        address = api.allocate(size, self.stream)
        self.workspaces.append(address)
        if zero:
            api.fill(address, 0, size, self.stream)
        return address

    def release(self) -> None:
        """Give the workspaces back once the work in the stream is done with them."""
        while self.workspaces:
            driver().free(self.workspaces.pop(), self.stream)

    def evaluate(self, number: int, values: Mapping[str, Any]) -> Any:
        """An expression that the text does not spell."""
        e: Expr = self._program.built.host.exprs[number]
        env = {v: values[v.name] for v in e.walk() if isinstance(v, Var)}
        found = evaluate(e, env)
        return 0 if found is None else found

    def fail(self, number: int) -> None:
        """An assertion of the host level that does not hold."""
        failure: Failure = self._program.built.failures[number - 1]
        raise failed(failure, "before the launch")


def _word(value: float, dtype: DType) -> int:
    array = np.asarray(value, dtype.numpy)
    return int(array.view(f"u{dtype.numpy.itemsize}"))


class CudaProgram:
    """A program in machine code of one chip, loaded on each device where it is called."""

    native: ClassVar[bool] = True

    def __init__(self, built: Built, cubin: Cubin) -> None:
        self.built = built
        self.cubin = cubin
        self.decided: list[str] = []
        self._devices: dict[int, OnDevice] = {}
        self.lock = threading.RLock()
        self.host_code = compile(built.host.text, f"<host level of {built.name}>", "exec")
        self.asserts = any(k.reports for k in built.kernels)
        self.speaks = self.asserts or built.prints

    @functools.cached_property
    def api(self) -> Driver:
        """The driver; without one the kernel is compiled, and cannot run here."""
        return driver()

    @property
    def source(self) -> str:
        """The CUDA C++."""
        return self.built.plain

    def report(self) -> list[str]:
        """What each kernel takes of an SM, what the compiler says, and what the passes decided."""
        out: list[str] = []
        chip = self.built.target.chip
        for k in self.built.kernels:
            used = self.cubin.resources.get(k.symbol)
            if used is None or chip is None:
                continue
            threads = math.prod(k.block)
            shared = k.shared + used.shared
            held = occupancy(chip, registers=used.registers, threads=threads, shared=shared)
            out.append(
                f"kernel {k.name}: {threads} threads, {used.registers} registers, {shared} bytes of"
                f" shared memory, {used.stack} bytes of stack, {used.spill_stores} bytes spilled;"
                f" {held.blocks} blocks on an SM (limit: {held.limit})"
            )
        return [*out, *self.cubin.warnings, *self.decided]

    def run(self, args: Mapping[str, Any]) -> None:
        """Run it on the storage of the arguments, numbers for scalars and sizes, by name.

        It goes to the device of its arrays, into the stream that their framework uses there.
        """
        given = [args[name] for name, _ in self.built.slots]
        arrays = [x for x in given if isinstance(x, DeviceArray)]
        device = arrays[0].device if arrays else self.api.current()
        frameworks = [x.framework for x in arrays]
        framework = next((f for f in frameworks if f in STREAMED), "")
        values = [x.address if isinstance(x, DeviceArray) else 0 if x is None else x for x in given]
        stream = current_stream(framework, device)
        self.call(values, device, stream)
        if "jax" in frameworks:  # its own streams do not know of ours
            self.api.synchronize(stream, f"a kernel of {self.built.name}")

    def call(self, values: Sequence[Any], device: int, stream: int) -> None:
        """Put the program's work into a stream of a device. `values` are in the order of `slots`.

        Raises the error of an assertion that does not hold, where that can be known.
        """
        api = self.api
        before = api.current()
        if before == device:
            self.call_here(values, device, stream)
            return
        api.use(device)
        try:
            self.call_here(values, device, stream)
        finally:
            api.use(before)

    def call_here(self, values: Sequence[Any], device: int, stream: int) -> None:
        """As `call`, where `device` is known to be the current one."""
        with self.lock:
            at = self.on(device)
            at.stream = stream
            try:
                at.run(at, *values)
            finally:
                if at.workspaces:
                    at.release()
        if self.speaks and not self.api.is_capturing(stream):
            self._look(at, stream)

    def on(self, device: int) -> OnDevice:
        """The program on a device, which is loaded there if it was not; under the lock."""
        return self._devices.get(device) or self._load(device)

    def _load(self, device: int) -> OnDevice:
        api = self.api
        api.use(device)
        found = api.device(device)
        if found.arch != self.cubin.arch:
            raise error(
                "target",
                f"{self.built.name} was compiled for {self.cubin.arch}",
                cls=TileRuntimeError,
                expected=f"a device of {self.cubin.arch}",
                got=f"{found.name} (device {device}), which is {found.arch}",
            )
        made = self._devices[device] = OnDevice(self, device)
        return made

    def _look(self, at: OnDevice, stream: int) -> None:
        """Wait for the launch and raise what its record says."""
        trouble: TileError | None = None
        try:
            self.api.synchronize(stream, f"a kernel of {self.built.name}")
        except TileError as e:
            trouble = e
        if self.built.prints:  # what kernels print goes through C's buffer
            ctypes.CDLL(None).fflush(None)
        if not self.asserts:
            if trouble is not None:
                raise trouble
            return
        said: tuple[int, ...] = _RECORD.unpack(ctypes.string_at(at.record, _RECORD.size))
        status = said[0]
        if status:
            ctypes.memset(at.record, 0, _RECORD.size)
            place = f"block {said[1:4]}, thread {said[4:]}"
            failure: Failure = self.built.failures[status - 1]
            raise failed(failure, place)
        if trouble is not None:
            raise trouble


def failed(failure: Failure, where: str) -> Exception:
    """The error of an assertion that did not hold."""
    if not failure.kind:
        said = f": {failure.message}" if failure.message else ""
        return error(
            "value",
            f"device assertion failed{said}",
            failure.loc,
            cls=TileRuntimeError,
            got=where,
        )
    cls = TileIndexError if failure.kind == "bounds" else None
    return error(failure.kind, failure.message, failure.loc, cls=cls, got=where)
