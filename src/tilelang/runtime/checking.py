"""`tilelang.check`: every finding about a function or kernel, statically, and with inputs
dynamically.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from tilelang.errors import Diagnostic, Findings, TileTypeError, error, errors_of
from tilelang.frontend import PrimFunc
from tilelang.isa.target import Target, TargetLike
from tilelang.options import Options, options_from
from tilelang.runtime.arguments import Signature
from tilelang.runtime.compile import output_positions
from tilelang.runtime.kernel import JITKernel
from tilelang.runtime.parts import check_function, simulated, translate
from tilelang.runtime.resolve import resolve_for
from tilelang.runtime.trace import Trace
from tilelang.targets import CHIPS


def check(
    func_or_kernel: Any,
    target: TargetLike | None = None,
    run_with: Sequence[Any] | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
) -> list[Diagnostic]:
    """Every finding about a `PrimFunc` or kernel on `target`, errors first; an empty list means
    none.

    With `run_with`, the arguments of a call, the kernel also runs under the dynamic checks:
    uninitialised reads, out-of-bounds accesses, races. On `simulate:<chip>` it is the lowered
    program that runs, under several orders of its asynchronous work. The arrays are written as by a
    call. Nothing runs while static errors are found. `pass_configs` are those of a compilation; a
    compiled kernel keeps its own, and takes none.
    """
    func, outputs, options = _function(func_or_kernel, pass_configs)
    default = str(options_from(None, os.environ).default_target)
    if target is None and isinstance(func_or_kernel, JITKernel):
        resolved = func_or_kernel.resolved_target
    else:
        resolved = resolve_for(func.ir.dialect, target, default)
    findings = Findings()
    for d in (*func.warnings, *check_function(func.ir, resolved, chips=CHIPS)):
        findings.add(d)
    if run_with is not None and not errors_of(findings.items):
        bound = Signature(func.ir, outputs).bind(run_with, {})
        values = {**{v.name: n for v, n in bound.sizes.items()}, **bound.values}
        for d in _dynamic(func, resolved, values, options):
            findings.add(d)
        for step in bound.finish:
            step()
    order = {"error": 0, "warning": 1, "note": 2}
    return sorted(
        findings.items, key=lambda d: (order[d.severity.value], d.loc.line if d.loc else 0)
    )


SEEDS = 3
"""Schedules under which a simulator runs a kernel that is checked: the late, the early, in order.
"""


def _dynamic(
    func: PrimFunc, target: Target, values: dict[str, Any], options: Options
) -> list[Diagnostic]:
    """What running a kernel finds: by the simulator of a simulated target, else by the emulator."""
    if target.mode == "simulate":
        program = simulated(func.ir, target, Trace(func.ir.name, options))
        return program.check(values, SEEDS)
    checked = translate(func.ir, tf32=target.fp32_gemm == "tf32", checked=True)
    return list(checked.run(values))


def _function(
    x: Any, pass_configs: Mapping[Any, Any] | None
) -> tuple[PrimFunc, Sequence[int], Options]:
    """A function, the parameters that a call allocates, and the settings of its compilation."""
    if isinstance(x, JITKernel):
        if pass_configs is not None:
            raise error(
                "option",
                "pass_configs of a kernel that is compiled already",
                expected="None",
                got=repr(pass_configs),
                help="check its function: `tilelang.check(kernel.prim_func, pass_configs=...)`",
            )
        return x.prim_func, x.allocated, x.options
    if isinstance(x, PrimFunc):
        configs = {**dict(x.attrs.get("pass_configs", ())), **(pass_configs or {})}
        return x, output_positions(x, None), options_from(configs, os.environ)
    raise error(
        "argument",
        f"tilelang.check of {type(x).__name__}",
        cls=TileTypeError,
        expected="a function made by @T.prim_func, or a kernel",
        got=type(x).__name__,
        help="for a function under @tilelang.jit use its `.get_tir(...)`",
    )
