"""The driver: the one place where a function, a target and the passes meet."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from tilelang.errors import (
    Diagnostic,
    Severity,
    TileError,
    TileTypeError,
    TileValueError,
    error,
    raise_if_any,
    warning,
)
from tilelang.frontend import PrimFunc
from tilelang.ir.expr import AddressOf, Buffer
from tilelang.ir.tile import DEVICE_SOURCE, Function, Stmt
from tilelang.ir.walk import operands, statements
from tilelang.isa.target import Target, TargetLike
from tilelang.options import BUILT, Options, Part, ineffective, options_from
from tilelang.passes.assumptions import assert_at_launch
from tilelang.runtime.arguments import touched
from tilelang.runtime.kernel import Findings, JITKernel, Runner
from tilelang.runtime.parts import check_function, native, simulated, slow_products, translate
from tilelang.runtime.resolve import (
    description,
    is_auto,
    resolve_adapter,
    resolve_for,
)
from tilelang.runtime.trace import Trace
from tilelang.scopes import Dialect
from tilelang.targets import CHIPS

# Upstream's names for its own launch paths. There is one path here, so the choice has no effect.
_BACKENDS = ("auto", "tvm_ffi", "cython", "nvrtc", "torch", "cutedsl")


def compile(
    func: Any,
    out_idx: int | Sequence[int] | None = None,
    execution_backend: str | None = None,
    target: TargetLike | None = None,
    target_host: Any = None,
    verbose: bool | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    compile_flags: Sequence[str] | str | None = None,
    workspace_idx: int | Sequence[int] | None = None,
    platform: str | None = None,
) -> JITKernel:
    """Compile a `PrimFunc` for `target` (see `tilelang.targets`; default `auto`).

    `out_idx` are the positions (negative ones from the end) of parameters that the call allocates
    and returns. `workspace_idx` are those that it allocates and keeps, and `platform` (auto, A2 or
    A3) the chip of the adapter tree's targets, for kernels of the Ascend adapter. Raises the
    located findings that make the program wrong for all inputs; others are in `kernel.warnings`.
    """
    if not isinstance(func, PrimFunc):
        raise error(
            "argument",
            f"tilelang.compile of {type(func).__name__}",
            cls=TileTypeError,
            expected="a function made by @T.prim_func",
            got=type(func).__name__,
            help="for a function under @tilelang.jit use its `.compile(...)` or call it",
        )
    configs = {**dict(func.attrs.get("pass_configs", ())), **(pass_configs or {})}
    flags = [*func.attrs.get("compile_flags", ()), *_listed(compile_flags)]
    settings = {"pass_configs": configs, "compile_flags": flags, "workspace_idx": workspace_idx}
    options = options_from(configs, os.environ)
    if verbose is not None:
        options = replace(options, verbose=verbose)
    resolved = _resolved(func, target, platform, str(options.default_target))
    parts = _parts(resolved)
    if Part.DEVICE in parts:
        options = replace(options, device_compile_flags=(*options.device_compile_flags, *flags))
        flags = []
    unused = ineffective(configs, {}, parts) + _unused(execution_backend, target_host, flags)
    outputs = _outputs(func, out_idx)
    workspaces = _workspaces(func, workspace_idx, outputs)
    trace = Trace(func.ir.name, options)
    common = func.ir.dialect == Dialect.COMMON.value
    auto = common and is_auto(target, str(options.default_target))
    try:
        program, findings = _checked_program(func.ir, resolved, trace, auto=auto)
    except RecursionError:
        raise error(
            "syntax",
            f"an expression of {func.ir.name} is nested too deeply to be compiled",
            func.loc,
            help="give parts of it to variables (T.alloc_var), or write a loop of the kernel",
        ) from None
    told = Findings((*func.warnings, *_heard(findings, options)), tuple(unused), settings)
    kernel = JITKernel(func, program, resolved, outputs, options, told)
    return kernel.with_workspaces(workspaces) if workspaces else kernel


def _is_adapter(func: PrimFunc) -> bool:
    return func.ir.dialect == Dialect.ADAPTER.value


def _resolved(
    func: PrimFunc, target: TargetLike | None, platform: str | None, default: str
) -> Target:
    if _is_adapter(func):
        return resolve_adapter(target, platform, default)
    if platform is not None:
        raise error(
            "option",
            f"platform of {func.ir.name}, a kernel of the {Dialect(func.ir.dialect).about.title}",
            func.loc,
            expected="a kernel of the Ascend adapter",
            got=f"platform={platform!r}",
            help="leave it out: `target` names the chip",
        )
    return resolve_for(func.ir.dialect, target, default)


def _workspaces(
    func: PrimFunc, workspace_idx: int | Sequence[int] | None, outputs: Sequence[int]
) -> list[int]:
    """`workspace_idx` as positions from the front; ValueError where one is an output too."""
    if workspace_idx is None:
        return []
    found = output_positions(func, workspace_idx, "workspace_idx")
    both = sorted({*found} & {*outputs})
    if both or not _is_adapter(func):
        raise error(
            "argument",
            f"workspace_idx of {func.ir.name}",
            func.loc,
            cls=TileValueError,
            expected="parameters of a kernel of the Ascend adapter that are no outputs",
            got=f"{both[0]}, which out_idx names" if both else Dialect(func.ir.dialect).about.title,
            help="allocate the workspace with `T.alloc_global(...)`",
        )
    return found


def _outputs(func: PrimFunc, out_idx: int | Sequence[int] | None) -> list[int]:
    """The positions of the outputs. Refuses one of `out_idx` that the kernel reads and in no place
    writes: it reads what nobody has written, whatever the arguments.
    """
    fn, outputs = func.ir, output_positions(func, out_idx)
    if out_idx is None:
        return outputs
    used, written = touched(fn)
    only_read = [name for name in (fn.params[k].name for k in outputs) if name in used - written]
    if only_read:
        pointed = {n.buffer.name for s in fn.body for n in s.walk() if isinstance(n, AddressOf)}
        only_read = [name for name in only_read if name not in pointed]
    for name in only_read:
        reads = (s for s, _ in statements(fn.body) if name in _operands(s))
        raise error(
            "argument",
            f"out_idx has the call make {name}, which {fn.name} reads and never writes",
            next((s.loc for s in reads), fn.loc),
            cls=TileValueError,
            expected=f"a parameter that the kernel writes: {', '.join(sorted(written)) or 'none'}",
            got=name,
            help="out_idx names the results, by their positions among the parameters",
        )
    return outputs


def _operands(stmt: Stmt) -> set[str]:
    """The buffers that a statement uses itself."""
    return {n.name for e in operands(stmt) for n in e.walk() if isinstance(n, Buffer)}


def _parts(target: Target) -> frozenset[Part]:
    """The parts of the compiler that a target goes through."""
    own = {Part.THREAD, Part.DEVICE, Part.CORES}
    if target.mode == "native" and target.backend == "cuda":
        own = {Part.CORES}
    elif target.mode == "simulate":
        own = (
            {Part.THREAD, Part.DEVICE} if target.backend == "ascend" else {Part.DEVICE, Part.CORES}
        )
    return BUILT - own


def _checked_program(
    fn: Function, target: Target, trace: Trace, *, auto: bool
) -> tuple[Runner, list[Diagnostic]]:
    """What carries a function out, and what is to be said of it; raises the findings that are
    errors.
    """
    trace.begin(fn)
    _refuse_device_code(fn, target)
    with trace.step("check"):
        findings = check_function(fn, target, chips=CHIPS)
    raise_if_any(findings)
    program, fallen = _program(assert_at_launch(fn), target, trace, auto=auto)
    trace.source(_suffix(program, target), program.source)
    trace.end(description(target, native=program.native))
    return program, [*findings, *fallen]


def _refuse_device_code(fn: Function, target: Target) -> None:
    """Device code of the author's has a meaning for a CUDA compiler alone."""
    on_device = target.mode == "native" and target.backend == "cuda"
    if dict(fn.attrs).get(DEVICE_SOURCE) and not on_device:
        raise error(
            "target",
            f"{fn.name} has device code of its own (T.import_source), which {target} cannot run",
            fn.loc,
            expected="target='cuda'",
            got=str(target),
            help="write the function with the language, as a @T.macro",
        )


def _program(
    fn: Function, target: Target, trace: Trace, *, auto: bool
) -> tuple[Runner, list[Diagnostic]]:
    """What carries a function out on `target`, and a warning where it is not what was hoped for.

    What the native CPU refuses runs on the emulator, and so does what a GPU refuses where the
    choice of the target was left to us.
    """
    if target.mode == "simulate":
        return simulated(fn, target, trace), []
    if target.mode != "native":
        return _emulated(fn, trace, tf32=target.fp32_gemm == "tf32"), []
    try:
        made = native(fn, target, trace)
        return made, slow_products(made, fn)
    except TileError as e:
        refused = e.diagnostics[0]
        if refused.kind != "target" or not (auto or target.backend == "cpu"):
            raise
    said = warning(
        "target",
        f"this kernel runs on the emulator, slowly: {refused.message}",
        refused.loc,
        help="target='emulate' says that this is meant",
    )
    return _emulated(fn, trace, tf32=False), [said]


def _emulated(fn: Function, trace: Trace, *, tf32: bool) -> Runner:
    with trace.step("translate"):
        program = translate(fn, tf32=tf32)
    trace.text("kernel.py", program.source)
    return program


def _suffix(program: Runner, target: Target) -> str:
    """What files with the source of a program end in."""
    if not program.native:
        return ".py"
    return ".cu" if target.backend == "cuda" else ".ll"


def _heard(findings: Sequence[Diagnostic], options: Options) -> list[Diagnostic]:
    """The warnings that the settings do not silence. Errors cannot be silenced."""
    silent = {
        "race": options.disable_data_race_check,
        "bounds": options.disable_out_of_bound_warning,
        "uninitialised": options.disable_buffer_init_check,
    }
    return [d for d in findings if d.severity is Severity.WARNING and not silent.get(d.kind, False)]


def _listed(flags: Sequence[str] | str | None) -> list[str]:
    return [flags] if isinstance(flags, str) else list(flags or ())


def _unused(backend: str | None, host: Any, flags: Sequence[str]) -> list[str]:
    out: list[str] = []
    if backend is not None:
        if backend not in _BACKENDS:
            raise error(
                "option",
                f"execution_backend={backend!r}",
                expected=", ".join(_BACKENDS),
                got=repr(backend),
            )
        out.append(f"execution_backend={backend!r} has no effect: there is one launch path")
    if host is not None:
        out.append("target_host has no effect: the host is the running Python")
    if flags:
        out.append("compile_flags have no effect: this target runs no device compiler")
    return out


def output_positions(
    func: PrimFunc, out_idx: int | Sequence[int] | None, name: str = "out_idx"
) -> list[int]:
    """`out_idx` (the setting `name`) as positions from the front, in the order asked for.

    ValueError where one is out of range, repeated, or not a tensor.
    """
    if out_idx is None:
        return list(func.ir.outputs)
    if func.ir.outputs and name == "out_idx":
        raise error(
            "argument",
            f"Out index conflict: {func.ir.name} makes its outputs with T.empty",
            func.loc,
            cls=TileValueError,
            expected="no out_idx",
            got=f"out_idx={out_idx!r}",
        )
    count = len(func.ir.params)
    out: list[int] = []
    many = isinstance(out_idx, (list, tuple, range))
    asked: list[Any] = list(cast("Sequence[Any]", out_idx)) if many else [out_idx]
    for n in asked:
        if isinstance(n, bool) or not isinstance(n, int) or not -count <= n < count:
            raise error(
                "argument",
                f"{name} is out of range",
                cls=TileValueError,
                expected=f"-{count} to {count - 1}",
                got=repr(n),
            )
        position = n % count
        if position in out:
            raise error(
                "argument", f"{name} names a parameter twice", cls=TileValueError, got=repr(out_idx)
            )
        if func.ir.params[position].buffer is None:
            raise error(
                "argument",
                f"{name} names {func.ir.params[position].name}, which is a scalar",
                cls=TileValueError,
            )
        out.append(position)
    return out
