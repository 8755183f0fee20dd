"""One trace from start to end: parameters in, a rewritten function run, a `Function` out."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import FunctionType
from typing import Any

from tilelang import dtypes
from tilelang.dtypes import DType
from tilelang.errors import Loc, TileError, TileRuntimeError, TileTypeError, error
from tilelang.frontend.faults import located
from tilelang.frontend.source import Rewritten, closure_values, instantiate
from tilelang.frontend.trace import Tracer, check_complete
from tilelang.ir.build import CURRENT, Builder, TraceStopped
from tilelang.ir.expr import Buffer, Expr, Var
from tilelang.ir.tile import Function, Param
from tilelang.language.buffers import BufferRef, TensorSpec
from tilelang.language.values import Value
from tilelang.scopes import Dialect, dialects_of


def new_builder(rewritten: Rewritten) -> Builder:
    """The builder for a trace of this function.

    The adapter shares its import path with the common dialect; a name that only it has decides.
    """
    only = any(dialects_of(a) == (Dialect.ADAPTER,) for a in rewritten.attributes)
    dialect = Dialect.ADAPTER if only else Dialect.COMMON
    return Builder(rewritten.name, loc=rewritten.loc, dialect=dialect.value)


def run(
    fn: FunctionType, rewritten: Rewritten, builder: Builder, arguments: Mapping[str, Any]
) -> None:
    """Run the rewritten function once with `builder` current; errors carry a location."""
    token = CURRENT.set(builder)
    try:
        tracer = Tracer(builder, rewritten.locs, declare_parameter=declare_parameter)
        instantiate(rewritten, fn, tracer)(**arguments)
        check_complete(builder)
    except TraceStopped:
        if not builder.eager.probing:
            raise
    except TileError as exc:
        raise (exc.with_loc(builder.loc or rewritten.loc)) from None
    except Exception as exc:
        fault = located(exc)
        if fault is None:
            raise
        raise fault from exc
    finally:
        CURRENT.reset(token)


def finish(rewritten: Rewritten, builder: Builder, order: tuple[str, ...]) -> Function:
    """The function that a complete trace has built; parameters in `order`, then the outputs."""
    _check_outputs(rewritten, builder)
    rank = {name: n for n, name in enumerate(order)}
    params = sorted(builder.params, key=lambda p: rank.get(p.name, len(rank)))
    position = {p.name: n for n, p in enumerate(params)}
    return Function(
        rewritten.name,
        tuple(params),
        tuple(builder.dynamic.values()),
        builder.statements,
        dialect=builder.dialect,
        outputs=tuple(position[name] for name in builder.eager.returned or ()),
        attrs=tuple(sorted(builder.eager.settings.items())),
        loc=rewritten.loc,
    )


def _check_outputs(rewritten: Rewritten, builder: Builder) -> None:
    empties, returned = builder.eager.empties, builder.eager.returned or []
    missing = [name for name in empties if name not in returned]
    if missing:
        raise error(
            "syntax",
            f"the output {missing[0]} of T.empty is not returned",
            builder.defined_at.get(missing[0]) or rewritten.loc,
            cls=TileRuntimeError,
            expected=f"`return {', '.join(empties)}` at the end of {rewritten.name}",
            got=f"return of {', '.join(returned) or 'nothing'}",
        )


# -- parameters -----------------------------------------------------------------------------------


def evaluated_annotation(fn: FunctionType, name: str, annotation: Any, loc: Loc) -> Any:
    """The annotation of a parameter; text (`from __future__ import annotations`) is evaluated."""
    if not isinstance(annotation, str) or isinstance(annotation, DType):
        return annotation
    scope = {**fn.__globals__, **closure_values(fn)}
    try:
        found: Any = eval(annotation, scope)
    except TileError as exc:
        raise exc.with_loc(loc) from None
    except (NameError, SyntaxError) as exc:
        try:
            return DType(annotation)
        except (TypeError, ValueError):
            pass
        what = "uses a name that is not known" if isinstance(exc, NameError) else "is no Python"
        raise error(
            "name",
            f"the annotation of {name} {what}: {exc}",
            loc,
            help="use the name in the body as well, or drop `from __future__ import annotations`",
        ) from None
    again = type(found) is str and found != annotation  # text in text
    return evaluated_annotation(fn, name, found, loc) if again else found


def ordinary_parameters(fn: FunctionType, rewritten: Rewritten) -> dict[str, inspect.Parameter]:
    """The parameters by name; *args, **kwargs and positional-only ones are refused."""
    parameters = dict(inspect.signature(fn).parameters)
    for name, parameter in parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise error(
                "syntax",
                f"parameter {name} of {fn.__name__} is {parameter.kind.description}",
                rewritten.place(name),
                expected="an ordinary parameter",
                help="list each parameter with its annotation",
            )
    return parameters


def check_no_default(fn: FunctionType, name: str, rewritten: Rewritten) -> None:
    """A launch takes every argument: a parameter of it has no default value."""
    default = inspect.signature(fn).parameters[name].default
    if default is not inspect.Parameter.empty:
        raise error(
            "syntax",
            f"parameter {name} of {fn.__name__} has a default value",
            rewritten.place(name),
            expected="a parameter that each launch passes",
            got=repr(default)[:60],
            help="use the value in the kernel, or pass it at each launch",
        )


def is_runtime(annotation: Any) -> bool:
    """Whether a parameter with this annotation is an argument of the launch."""
    return isinstance(annotation, (TensorSpec, DType)) or getattr(annotation, "is_pointer", False)


def declare_parameter(builder: Builder, name: str, annotation: Any, loc: Loc) -> Any:
    """Add a parameter of the launch: a tensor, a pointer or a scalar, by its annotation."""
    symbol = builder.dynamic.get(name)
    builder.unique(name)
    if isinstance(annotation, TensorSpec):
        for size in (*annotation.shape, *(annotation.strides or ())):
            _declare_sizes(builder, size, loc)
        if name in builder.dynamic:
            raise _two_meanings(name, builder.dynamic[name], "a tensor", loc)
        buffer: Buffer = annotation.named(name)
        builder.params.append(Param(name, buffer=buffer, loc=loc))
        builder.define(buffer)
        return BufferRef(buffer)
    pointer = bool(getattr(annotation, "is_pointer", False))
    try:
        dtype = DType("handle") if pointer else DType(dtypes.dtype(annotation))
    except (TypeError, ValueError):
        raise error(
            "syntax",
            f"the annotation of parameter {name}",
            loc,
            cls=TileTypeError,
            expected="T.Tensor(...), T.StridedTensor(...) or a scalar type such as T.int32",
            got=repr(annotation)[:60],
        ) from None
    var = Var(name, dtype)
    if symbol not in (None, var):
        raise _two_meanings(name, symbol, f"a scalar of type {dtype}", loc)
    builder.dynamic.pop(name, None)  # the argument gives the size
    builder.params.append(Param(name, var=var, pointer=pointer or dtype.is_handle, loc=loc))
    builder.define(var)
    return Value(var)


def _declare_sizes(builder: Builder, size: Expr, loc: Loc) -> None:
    for node in size.walk():
        if not isinstance(node, Var):
            continue
        taken = next((p for p in builder.params if p.name == node.name), None)
        if taken is not None and taken.var != node:
            what = "a tensor" if taken.var is None else f"a scalar of type {taken.var.type}"
            raise _two_meanings(node.name, node, what, loc)
        if not builder.is_visible(node.name):
            builder.declare_dynamic(node)


def _two_meanings(name: str, symbol: Var, parameter: str, loc: Loc) -> TileError:
    return error(
        "name",
        f"{name} is a symbolic size of type {symbol.type} and a parameter",
        loc,
        cls=TileTypeError,
        expected=f"another name, or `{name}: T.{symbol.type}`, which is then the size",
        got=parameter,
    )
