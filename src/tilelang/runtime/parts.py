"""What runs kernels, and the checks, loaded when a kernel is first compiled.

`import tilelang` would take half as long again with them, and a program that only builds kernels,
or asks for help, needs neither. What enters and leaves is as in `tilelang.emulator` and
`tilelang.passes.check`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilelang.errors import warning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilelang.dtypes import DType
    from tilelang.emulator import Program
    from tilelang.errors import Diagnostic
    from tilelang.ir.tile import Function
    from tilelang.isa.target import Chip, Target
    from tilelang.passes.check import MemoryReport
    from tilelang.runtime.arguments import Signature
    from tilelang.runtime.cuda_plan import CudaPlans
    from tilelang.runtime.kernel import Runner
    from tilelang.runtime.plan import Plans
    from tilelang.runtime.simulated import Simulated
    from tilelang.runtime.trace import Trace


def translate(fn: Function, *, tf32: bool = False, checked: bool = False) -> Program:
    """The function as a program of the emulator."""
    from tilelang.emulator import translate as made  # see the module's docstring

    return made(fn, tf32=tf32, checked=checked)


def native(fn: Function, target: Target, trace: Trace) -> Runner:
    """The function as machine code of the target. A `TileError` for what that cannot run."""
    if target.backend == "cuda":
        from tilelang.runtime.cuda_cache import cuda_program  # see the module's docstring

        return cuda_program(fn, target, trace)
    from tilelang.runtime.native_cache import native_program  # see the module's docstring

    return native_program(fn, target, trace)


def simulated(fn: Function, target: Target, trace: Trace) -> Simulated:
    """The function as a program of the model of the target's chip."""
    from tilelang.runtime.simulated import simulated_program  # see the module's docstring

    return simulated_program(fn, target, trace)


def signature(program: Runner, fn: Function, outputs: Sequence[int]) -> Signature:
    """The parameters of a function, prepared for arguments where the program runs."""
    if _is_cuda(program):
        from tilelang.runtime.cuda_arguments import CudaSignature  # see the module's docstring

        return CudaSignature(fn, outputs, poisoned=False)
    from tilelang.runtime.arguments import Signature as Made  # see the module's docstring

    return Made(fn, outputs, poisoned=not program.native)


def _is_cuda(program: Runner) -> bool:
    return type(program).__module__ == "tilelang.runtime.cuda"


def plans(program: Runner, signature: Signature) -> Plans | CudaPlans | None:
    """The launch plans of a native program; the emulator has none."""
    if not program.native:
        return None
    if _is_cuda(program):
        from tilelang.runtime.cuda import CudaProgram  # see the module's docstring
        from tilelang.runtime.cuda_plan import CudaPlans as OnDevice

        return OnDevice(program, signature) if isinstance(program, CudaProgram) else None
    from tilelang.runtime.native import NativeProgram as Native  # see the module's docstring
    from tilelang.runtime.plan import Plans as Made

    return Made(program, signature) if isinstance(program, Native) else None


def program_report(program: Runner) -> list[str]:
    """What there is to say of a compiled program, one line each."""
    if type(program).__module__ == "tilelang.runtime.simulated":
        from tilelang.runtime.simulated import Simulated  # see the module's docstring

        return program.decided if isinstance(program, Simulated) else []
    if not _is_cuda(program):
        return []
    from tilelang.runtime.cuda import CudaProgram  # see the module's docstring

    return program.report() if isinstance(program, CudaProgram) else []


def slow_products(program: Runner, fn: Function) -> list[Diagnostic]:
    """A warning where the device compiler could not keep the products of a kernel under way."""
    if not _is_cuda(program):
        return []
    from tilelang.runtime.cuda import CudaProgram  # see the module's docstring

    if not isinstance(program, CudaProgram) or not program.cubin.starved:
        return []
    said = warning(
        "target",
        f"the products of {fn.name} wait for each other, which is slow",
        fn.loc,
        expected="tiles of sums that the registers of their threads hold, at most 255 each",
        help="use more threads, or smaller tiles",
    )
    return [said]


def device_source(program: Runner) -> str | None:
    """The source for the hardware that a program models; None where what runs is the source."""
    if type(program).__module__ != "tilelang.runtime.simulated":
        return None
    from tilelang.runtime.simulated import Simulated as Model  # see the module's docstring

    return program.device_source if isinstance(program, Model) else None


def assembly(program: Runner) -> str | None:
    """The processor's instructions of a native program; the emulator has none."""
    if not program.native:
        return None
    from tilelang.runtime.native import NativeProgram as Native  # see the module's docstring

    return program.assembly if isinstance(program, Native) else None


def emulated(program: Runner, fn: Function) -> Program:
    """The program of the emulator that means what `program` does."""
    from tilelang.emulator import Program as Emulated  # see the module's docstring

    return program if isinstance(program, Emulated) else translate(fn)


def check_function(fn: Function, target: Target, *, chips: Sequence[Chip] = ()) -> list[Diagnostic]:
    """Every static finding."""
    from tilelang.passes.check import check_function as check  # see the module's docstring

    return check(fn, target, chips=chips)


def memory_report(fn: Function, target: Target) -> MemoryReport:
    """The buffers and their sizes."""
    from tilelang.passes.check import memory_report as report  # see the module's docstring

    return report(fn, target)


def poison(dtype: DType) -> Any:
    """What an element holds before the first write."""
    from tilelang.emulator.storage import poison as value  # see the module's docstring

    return value(dtype)
