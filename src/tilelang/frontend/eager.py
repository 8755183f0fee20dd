"""Eager kernels: a function whose body is the kernel, its sizes read off the arguments of the call.

The trace has two phases. The first stops at the first launch and gives the declarations of tensors
in terms of the `T.const` names; the second runs to the end with the numbers.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any, cast

from tilelang.dtypes import DType
from tilelang.errors import EagerJITBuildError, Loc, TileTypeError, error
from tilelang.frontend.function import PrimFunc
from tilelang.frontend.session import (
    check_no_default,
    declare_parameter,
    evaluated_annotation,
    finish,
    is_runtime,
    new_builder,
    ordinary_parameters,
    run,
)
from tilelang.frontend.source import Rewritten, rewrite
from tilelang.frontend.unusable import Unusable
from tilelang.ir import build
from tilelang.ir.build import Builder
from tilelang.ir.expr import Buffer, Var
from tilelang.ir.tile import Param
from tilelang.language.buffers import BufferRef, here, shape_of
from tilelang.language.values import Value, element_type, is_scalar


@dataclass(frozen=True)
class EagerFunction:
    """An eager kernel, read but not yet traced: which parameters are the launch's, which the
    compiler's.
    """

    fn: Any
    rewritten: Rewritten
    runtime: tuple[str, ...]
    compile_time: tuple[str, ...]
    annotations: Mapping[str, Any]

    @property
    def loc(self) -> Loc:
        """Where the function is defined."""
        return self.rewritten.loc


def read_eager(fn: FunctionType) -> EagerFunction:
    """Read an eager kernel and sort its parameters."""
    rewritten = rewrite(fn)
    runtime: list[str] = []
    compile_time: list[str] = []
    notes: dict[str, Any] = {}
    for name, parameter in ordinary_parameters(fn, rewritten).items():
        note: Any = None
        if parameter.annotation is not inspect.Parameter.empty:
            note = evaluated_annotation(fn, name, parameter.annotation, rewritten.place(name))
        notes[name] = note
        launch = is_runtime(note) or name in rewritten.declared
        if launch:
            check_no_default(fn, name, rewritten)
        (runtime if launch else compile_time).append(name)
    return EagerFunction(fn, rewritten, tuple(runtime), tuple(compile_time), notes)


def is_eager(fn: FunctionType) -> bool:
    """Whether a function under `@tilelang.jit` holds the kernel itself rather than making one.

    It does if it launches and defines no `@T.prim_func` inside.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(fn)))
    except (OSError, TypeError):
        return False  # the call makes the kernel, and its source is not needed
    names = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    names |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    return "prim_func" not in names and bool(names & _LAUNCHES or _declares(tree))


_LAUNCHES = {"Kernel", "ClusterKernel", "MixedKernel", "empty", "const"}


def _declares(tree: ast.Module) -> bool:
    return any(isinstance(n, ast.AnnAssign) and n.value is None for n in ast.walk(tree))


@dataclass(frozen=True)
class Probe:
    """What the first phase finds: the tensor declarations, and the names of `T.const` in them."""

    params: tuple[Param, ...]
    consts: tuple[str, ...]


def probe(eager: EagerFunction, values: Mapping[str, Any]) -> Probe:
    """Trace up to the first launch; `values` are the compile-time arguments."""
    builder = _begin(eager)
    builder.eager.probing = True
    run(eager.fn, eager.rewritten, builder, _arguments(eager, builder, values))
    return Probe(tuple(builder.params), tuple(builder.eager.consts))


def trace_eager(
    eager: EagerFunction, values: Mapping[str, Any], consts: Mapping[str, int]
) -> PrimFunc:
    """Trace the whole kernel for these compile-time arguments and sizes."""
    builder = _begin(eager)
    builder.eager.consts = dict(consts)
    run(eager.fn, eager.rewritten, builder, _arguments(eager, builder, values))
    declared = {p.name for p in builder.params}
    for name in eager.runtime:
        if name not in declared:
            raise error(
                "syntax",
                f"the tensor parameter {name} is never declared",
                eager.loc,
                cls=EagerJITBuildError,
                help=f"declare it before the launch: `{name}: T.Tensor[[M, N], T.float16]`",
            )
    ir = finish(eager.rewritten, builder, eager.runtime)
    return PrimFunc(ir, eager.fn, eager.loc, tuple(builder.warnings))


def _begin(eager: EagerFunction) -> Builder:
    builder = new_builder(eager.rewritten)
    builder.eager.allowed = True
    return builder


def _arguments(eager: EagerFunction, builder: Builder, values: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(values)
    for name in eager.runtime:
        note = eager.annotations[name]
        if is_runtime(note):
            out[name] = declare_parameter(builder, name, note, eager.rewritten.place(name))
        else:
            why = "is a tensor parameter that is not declared yet"
            place = eager.rewritten.place(name)
            out[name] = Unusable(name, why, place, builder, parameter=True)
    return out


# -- names that only eager kernels (and kernels with outputs of their own) use
# ----------------------


def const(name: str, dtype: Any = "int32") -> Any:
    """Compile-time sizes: `T.const("M")`, or several with "M, N"; read off the tensors of the call.

    A name must stand directly as an extent or stride of a tensor declaration. Only in eager
    kernels.
    """
    builder = build.current("T.const")
    if not builder.eager.allowed:
        raise error(
            "syntax",
            "T.const is for kernels written directly under @tilelang.jit",
            here(),
            help="use T.dynamic for a size that varies, or a Python value",
        )
    values = [_const(builder, n, element_type(dtype)) for n in name.replace(",", " ").split()]
    return values[0] if len(values) == 1 else tuple(values)


def _const(builder: Builder, name: str, dtype: DType) -> Any:
    if builder.eager.probing:
        builder.eager.consts[name] = 0
        builder.declare_dynamic(Var(name, dtype))
        return Value(Var(name, dtype))
    if name not in builder.eager.consts:
        raise error(
            "shape",
            f"the size {name} of T.const is not known",
            here(),
            cls=EagerJITBuildError,
            expected=f"{name} as an extent or stride of a tensor declared before the launch",
            help=f"declare a tensor with it, or pass {name}=... to compile()",
        )
    return builder.eager.consts[name]


def empty(*shape: Any, dtype: Any = "float32") -> BufferRef:
    """An output that the call allocates and returns: `T.empty(M, N, dtype=...)` or `T.empty((M, N),
    dtype)`.

    The kernel function must return it; RuntimeError otherwise.
    """
    builder = build.current("T.empty")
    parts = list(shape)
    if len(parts) > 1 and isinstance(parts[-1], str):
        dtype = parts.pop()
    extents = parts[0] if len(parts) == 1 and not is_scalar(parts[0]) else tuple(parts)
    if builder.launch is not None:
        raise error(
            "syntax", "T.empty inside a launch", here(), help="declare outputs before T.Kernel"
        )
    sizes = shape_of(extents, "T.empty")
    if not sizes:
        raise error("shape", "T.empty without extents", here(), expected="at least one axis")
    name = builder.unique(builder.name_hint("out"))
    buffer = Buffer(name, element_type(dtype), sizes, loc=here())
    builder.params.append(Param(name, buffer=buffer, loc=here()))
    builder.define(buffer)
    builder.eager.empties.append(name)
    return BufferRef(buffer)


def annotate_pass_configs(configs: Any) -> None:
    """Pass settings from inside the kernel; those given to the compiler win."""
    if not isinstance(configs, Mapping):
        raise error(
            "option", "T.annotate_pass_configs", here(), cls=TileTypeError, expected="a dictionary"
        )
    builder = build.current("T.annotate_pass_configs")
    known = dict(builder.eager.settings.get("pass_configs", ()))
    given = cast("Mapping[Any, Any]", configs)
    known.update({str(k): v for k, v in given.items()})
    builder.eager.settings["pass_configs"] = tuple(sorted(known.items()))


def annotate_compile_flags(flags: Any) -> None:
    """Flags for the device compiler from inside the kernel: a string or a list of them."""
    builder = build.current("T.annotate_compile_flags")
    given = [flags] if isinstance(flags, str) else list(flags)
    kept = builder.eager.settings.get("compile_flags", ())
    builder.eager.settings["compile_flags"] = (*kept, *(str(f) for f in given))
