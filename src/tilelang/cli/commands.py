"""`tilewright run`, `check` and `show`: one kernel, from its file to numbers, findings or text.

What enters: a `Spec` and the options of the command. What leaves: text or JSON on standard output
and an exit code: 0 for success, 1 for findings or a failure.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tilelang import dtypes
from tilelang.cli import inputs, tables
from tilelang.cli.kernels import (
    Made,
    Spec,
    UsageError,
    factories,
    guarded,
    listing,
    load,
    make,
)
from tilelang.dtypes import DType
from tilelang.errors import Diagnostic, Severity, TileError
from tilelang.ir.text import print_program
from tilelang.ir.tile import Param
from tilelang.isa.target import Target
from tilelang.options import options_from
from tilelang.passes.check import memory_report
from tilelang.passes.pipeline import lower
from tilelang.runtime import JITKernel
from tilelang.runtime import check as check_kernel
from tilelang.runtime import compile as compile_kernel
from tilelang.runtime.resolve import resolve, resolve_for
from tilelang.targets import target as parse_target

Array = npt.NDArray[Any]


def needs_factory(spec: Spec) -> int:
    """For a file alone: list the ways to a kernel that it has. 0, or 1 if it has none."""
    module = load(spec.file)
    found = factories(module)
    print(listing(spec.file, module))
    if found:
        print(f"\nname one, as '{spec.file}::{found[0].name}(...)'")
    return 0 if found else 1


# ---- run -----------------------------------------------------------------------------------------


def run(spec: Spec, target: str | None, rest: Sequence[str]) -> int:
    """Run a file as a program, or one kernel of it on given or made-up arguments."""
    if not spec.name:
        return _run_program(spec.file, target, rest)
    kernel = _compiled(make(spec), target)
    values = inputs.arguments(kernel.ir, kernel.out_idx, inputs.pairs(rest))
    before: dict[str, Array] = {
        name: value.copy() for name, value in values.items() if isinstance(value, np.ndarray)
    }
    start = time.perf_counter()
    results = kernel(**values)
    took = time.perf_counter() - start
    for warning in kernel.warnings:
        print(warning.render(), end="\n\n")
    for line in kernel.unused:
        print(f"note: {line}")
    print(f"{spec} on {kernel.target}: {took * 1e3:.1f} ms")
    returned = dict(zip(kernel.out_idx, _as_list(results), strict=True))
    rows: list[tuple[str, ...]] = []
    for n, p in enumerate(kernel.ir.params):
        value, old = returned.get(n, values.get(p.name)), before.get(p.name)
        rows.append(_row(p, value, "returned" if n in returned else _fate(value, old)))
    tables.show(("parameter", "shape", "dtype", "", "min", "max", "mean", "NaN"), rows)
    return 0


def _compiled(made: Made, target: str | None) -> JITKernel:
    settings = dict(made.settings)
    if target is not None:
        settings["target"] = target
    return compile_kernel(made.func, **settings)


def _run_program(file: Path, target: str | None, rest: Sequence[str]) -> int:
    """Run a file as Python would, with `target` as the default target."""
    if target is not None:
        resolve(target)
        os.environ["TILELANG_DEFAULT_TARGET"] = target
    old = sys.argv
    sys.argv = [str(file), *rest]
    sys.path.insert(0, str(file.resolve().parent))
    try:
        guarded(file, lambda: runpy.run_path(str(file.resolve()), run_name="__main__"))
    except SystemExit as exc:
        if exc.code is None or isinstance(exc.code, int):
            return exc.code or 0
        print(exc.code, file=sys.stderr)
        return 1
    finally:
        sys.argv = old
    return 0


def _as_list(results: Any) -> list[Any]:
    return cast("list[Any]", results) if isinstance(results, list) else [results]


def _fate(value: Any, before: Array | None) -> str:
    if before is None:
        return "scalar"
    return "read" if before.tobytes() == value.tobytes() else "written"


def _row(p: Param, value: Any, fate: str) -> tuple[str, ...]:
    """One line of the table: what a parameter holds after the run."""
    if p.buffer is None:
        return (p.name, "", str(p.var.dtype if p.var else ""), fate, str(value), "", "", "")
    array = np.asarray(value)
    shape = "x".join(map(str, array.shape)) or "()"
    numbers = _numbers(array, DType(p.buffer.dtype))
    real = numbers[~np.isnan(numbers)]
    known = [f"{f(real):.6g}" for f in (np.min, np.max, np.mean)] if real.size else ["-"] * 3
    return (p.name, shape, str(p.buffer.dtype), fate, *known, str(numbers.size - real.size))


def _numbers(array: Array, dtype: DType) -> Array:
    """The elements as float64."""
    if dtype.bits < 8:
        raw = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        array = dtypes.unpack(raw, dtype, raw.size * 8 // dtype.bits)
    return array.astype(np.float64)


# ---- check ---------------------------------------------------------------------------------------


def check(spec: Spec, target: str | None, *, as_json: bool, given: Sequence[str] | None) -> int:
    """Print the findings about one kernel and what its buffers take of the chip's memories.

    With `given`, the arguments of a launch, the kernel also runs under the dynamic checks.
    1 if there is a finding, else 0.
    """
    try:
        made = make(spec)
    except TileError as exc:  # refused while it was traced: there is no function to look at
        return _report(spec, list(exc.diagnostics), None, as_json=as_json)
    wanted = made.settings.get("target") if target is None else target
    chip = resolve_for(made.func.ir.dialect, wanted, default_target())
    values = None
    if given is not None:
        values = list(inputs.arguments(made.func.ir, (), inputs.pairs(given)).values())
    configs = made.settings.get("pass_configs")
    findings = check_kernel(made.func, chip, values, pass_configs=configs)
    return _report(spec, findings, (made, chip), as_json=as_json)


def default_target() -> str:
    """The target where none is named: the environment's, else `auto`."""
    return str(options_from(None, os.environ).default_target)


def _report(
    spec: Spec,
    findings: Sequence[Diagnostic],
    subject: tuple[Made, Target] | None,
    *,
    as_json: bool,
) -> int:
    memory = None if subject is None else memory_report(subject[0].func.ir, subject[1])
    if as_json:
        facts = {
            "kernel": str(spec),
            "target": None if subject is None else str(subject[1]),
            "findings": [each.to_json() for each in findings],
            "memory": None if memory is None else memory.to_json(),
        }
        print(json.dumps(facts, indent=2))
        return _verdict(findings)
    for each in findings:
        print(each.render(), end="\n\n")
    where = "" if subject is None else f" on {subject[1].describe()}"
    print(f"{spec}{where}: {_summary(findings)}")
    if memory is not None and any(part.rows for part in memory.launches):
        print(f"\n{memory.render()}")
    return _verdict(findings)


def _verdict(findings: Sequence[Diagnostic]) -> int:
    """The exit code: notes say how a program is carried out, and are no faults."""
    return 1 if any(each.severity is not Severity.NOTE for each in findings) else 0


def _summary(findings: Sequence[Diagnostic]) -> str:
    counts = [(s, sum(d.severity is s for d in findings)) for s in Severity]
    words = [f"{n} {s.value}{'s' if n > 1 else ''}" for s, n in counts if n]
    return ", ".join(words) or "no findings"


# ---- show ----------------------------------------------------------------------------------------


def show(spec: Spec, target: str | None, stage: str, *, assembly: bool) -> int:
    """Print a stage of one kernel: `tile`, the IR as traced, `thread`, the lowered IR, or `source`,
    what runs; with `assembly` the processor's instructions.
    """
    made = make(spec)
    if stage == "tile":
        text = made.func.script()
    elif stage == "thread":
        text = _lowered(made, target)
    else:
        text = _compiled(made, target).get_kernel_source(asm=assembly)
    print(text, end="" if text.endswith("\n") else "\n")
    return 0


def _lowered(made: Made, target: str | None) -> str:
    """The thread stage, also for hardware that is not here."""
    spec = made.settings.get("target") if target is None else target
    wanted = parse_target(default_target() if spec is None else spec)
    if wanted.mode != "native" or not wanted.resolved:
        wanted = resolve(wanted)
    if wanted.mode != "native":
        raise UsageError(
            f"there is no thread stage on {wanted}: it runs the tile stage",
            expected="a target with hardware of its own, as cpu",
            got=str(wanted),
            help="`--stage source` shows what runs",
        )
    return print_program(lower(made.func.ir, wanted))
