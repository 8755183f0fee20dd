"""The kernel that a program calls: argument binding, launch, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from tilelang.errors import Diagnostic, InternalError, TileError, TileValueError, error
from tilelang.frontend import PrimFunc
from tilelang.ir.tile import Function
from tilelang.isa.target import Target
from tilelang.options import Options
from tilelang.runtime.arguments import MISSED, Bound, Signature
from tilelang.runtime.inspect import Snapshot, observe
from tilelang.runtime.parts import (
    assembly,
    device_source,
    emulated,
    memory_report,
    plans,
    program_report,
    signature,
)
from tilelang.runtime.resolve import description
from tilelang.scopes import Dialect

if TYPE_CHECKING:
    from tilelang.passes.check import MemoryReport


class Runner(Protocol):
    """What carries a kernel out: the emulator's program, or a native one."""

    native: ClassVar[bool]
    """Whether it is machine code."""

    @property
    def source(self) -> str:
        """The text of what runs."""
        ...

    def run(self, args: Mapping[str, Any]) -> Any:
        """Run it on the storage of the arguments by name, numbers for scalars and sizes."""
        ...


@dataclass(frozen=True)
class Findings:
    """What the compiler has to say about a kernel that it made.

    `unused` are the given settings that this target does not use, with the reason. `settings` are
    the given ones, as `tilelang.compile` takes them.
    """

    warnings: tuple[Diagnostic, ...] = ()
    unused: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


NO_FINDINGS = Findings()


class JITKernel:
    """A compiled kernel. Call it with the inputs in order; outputs named by `out_idx` are allocated
    and returned.

    `warnings` are the findings of the compiler that do not stop it; `unused` says which given
    settings this target does not use, and why.
    """

    def __init__(
        self,
        prim_func: PrimFunc,
        program: Runner,
        target: Target,
        outputs: Sequence[int],
        options: Options,
        findings: Findings = NO_FINDINGS,
    ) -> None:
        self.prim_func = prim_func
        self.options = options
        self.warnings = findings.warnings
        self.unused = findings.unused
        self._settings = findings.settings
        self._program = program
        self._target = target
        self._outputs = list(outputs)
        self._signature = signature(program, prim_func.ir, outputs)
        self._plans = plans(program, self._signature)

    def with_workspaces(self, workspaces: Sequence[int]) -> JITKernel:
        """This kernel, which from now on allocates the parameters at these positions for each call
        and keeps them.
        """
        self._signature = signature(self._program, self.ir, [*self._outputs, *workspaces])
        self._plans = None
        return self

    @property
    def ir(self) -> Function:
        """The tile stage."""
        return self.prim_func.ir

    @property
    def target(self) -> str:
        """What the kernel runs on, and what carries it out."""
        return description(self._target, native=self._program.native)

    @property
    def resolved_target(self) -> Target:
        """The target as a value."""
        return self._target

    @property
    def pass_configs(self) -> dict[str, Any]:
        """The pass configs that it was compiled with, those of its function included."""
        return dict(self._settings.get("pass_configs", {}))

    @property
    def settings(self) -> dict[str, Any]:
        """What `tilelang.compile` takes to make this kernel from its function again."""
        return {**self._settings, "target": self._target, "out_idx": self.out_idx}

    @property
    def out_idx(self) -> list[int]:
        """The positions of the parameters that the call allocates and returns."""
        return list(self._outputs)

    @property
    def allocated(self) -> list[int]:
        """The positions of the parameters that the call allocates, those that it keeps included."""
        return list(self._signature.outputs)

    @property
    def params(self) -> list[str]:
        """The names of the parameters."""
        return [p.name for p in self.ir.params]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel. Returns the output, a list of them where there are several, or None where
        there is none.
        """
        known = None if kwargs else self._plans
        if known is not None:
            result = known.attempt(args)
            if result is not MISSED:
                return result
        bound = self._signature.bind(args, kwargs)
        self._program.run(_by_name(bound))
        for step in bound.finish:
            step()
        if known is not None:
            known.learn(args, bound)
        return _results(bound, len(self._outputs))

    def inspect(
        self, *args: Any, buffer: str | None = None, after: int | str | None = None, block: Any = 0
    ) -> Snapshot:
        """Run the kernel on the emulator and give the contents of its buffers, on-chip ones too, in
        one block at one place.

        `after` is a line of the author's file, or a buffer's name (after its last write); None
        means at the end of the block. `buffer` narrows the result to one buffer. `block` is the
        block's index, or a tuple per grid axis. Raises for a line, buffer or block that does not
        exist.
        """
        # Outputs hold what memory holds before the first write, as on the emulator.
        bound = Signature(self.ir, self._signature.outputs).bind(args, {})
        program = emulated(self._program, self.ir)
        fn, values = program.function, _by_name(bound)
        return observe(program, fn, values, buffer=buffer, after=after, block=block)

    def get_kernel_source(self, kernel_only: bool = True, *, asm: bool = False) -> str:
        """What runs: LLVM IR, or on the emulator the Python source made from the tile stage; on
        `simulate:ascend*` the C++ for the chip, printed from the program that the model runs.

        `kernel_only` is upstream's: host and kernels are one text here. With `asm` the processor's
        assembly, made from it; ValueError on the emulator, which has none. A program that has no
        form in the C++ of its chip is a ValueError too; for one of the Ascend adapter's dialect,
        whose scripts print this at will, it is the text that the model runs, which then says so.
        """
        if not asm:
            try:
                return device_source(self._program) or self._program.source
            except TileError as problem:
                if self.ir.dialect != Dialect.ADAPTER.value:
                    raise
                said = problem.diagnostics[0].message
                return f"# not the source for the chip: {said}\n{self._program.source}"
        text = assembly(self._program)
        if text is None:
            raise error(
                "target",
                f"there is no assembly of {self.ir.name} for {self.target}",
                self.ir.loc,
                expected="a kernel that runs as machine code of the CPU",
                got=f"target='{self._target}'",
            )
        return text

    def show_source(self, which: str = "kernel") -> None:
        """Print the source that runs."""
        if which not in ("kernel", "both"):
            raise error(
                "option", f"show_source({which!r})", expected="'kernel' or 'both'", got=repr(which)
            )
        print(self.get_kernel_source())

    tuned: Any = None
    """What the tuner found, for a kernel that it chose."""

    def get_tuner_result(self) -> Any:
        """The tuner's result. ValueError for a kernel that was not tuned."""
        if self.tuned is None:
            raise error("value", f"kernel {self.ir.name} was not tuned", cls=TileValueError)
        return self.tuned

    @property
    def config(self) -> Any:
        """The configuration that the tuner chose, None without a tuner."""
        return None if self.tuned is None else self.tuned.config

    @property
    def latency(self) -> float | None:
        """Milliseconds per call that the tuner measured, None without a tuner."""
        return None if self.tuned is None else self.tuned.latency

    @property
    def ref_latency(self) -> float | None:
        """Milliseconds per call of the tuner's reference, None without one."""
        return None if self.tuned is None else self.tuned.ref_latency

    profiler: ClassVar[Callable[..., Any] | None] = None
    """What makes the profiler of a kernel; the package puts it here, as it is built on this class.
    """

    def get_profiler(self, *args: Any, **kwargs: Any) -> Any:
        """A `Profiler` of this kernel: `get_profiler(tensor_supply_type=TensorSupplyType.Auto)`."""
        if JITKernel.profiler is None:
            raise InternalError("the profiler is not registered")
        return JITKernel.profiler(self, *args, **kwargs)

    def report(self) -> str:
        """What was made: on a GPU the registers, shared memory and occupancy of each kernel, and
        what the compiler decided; then its warnings and the settings without effect.
        """
        said = [self.target, *program_report(self._program)]
        said += [d.message for d in self.warnings]
        return "\n".join([*said, *self.unused])

    def memory(self) -> MemoryReport:
        """The buffers and their sizes against the capacities of the target's chip."""
        return memory_report(self.ir, self._target)

    def __repr__(self) -> str:
        return f"<kernel {self.ir.name} on {self.target}>"


def _by_name(bound: Bound) -> dict[str, Any]:
    return {**{v.name: n for v, n in bound.sizes.items()}, **bound.values}


def _results(bound: Bound, count: int) -> Any:
    results = bound.results[:count]
    if not results:
        return []
    return results[0] if len(results) == 1 else results
