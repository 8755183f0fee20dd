"""`@T.prim_func` and `@T.macro`: tracing a function into a tile-stage `Function`, and inlining one into a trace."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

from tilelang import dtypes
from tilelang.dtypes import DType
from tilelang.errors import Diagnostic, Loc, TileError, TileTypeError, error
from tilelang.frontend.source import Rewritten, closure_values, instantiate, rewrite
from tilelang.frontend.trace import Tracer, check_complete
from tilelang.ir import build
from tilelang.ir.build import CURRENT, Builder
from tilelang.ir.expr import Buffer, Expr, Var
from tilelang.ir.text import print_function
from tilelang.ir.tile import Function, Param
from tilelang.language.buffers import BufferRef, TensorSpec, VarRef
from tilelang.language.values import Value
from tilelang.scopes import Dialect, dialects_of


class PrimFunc:
    """A traced function: `ir` is its tile stage, `script()` prints it; `tilelang.compile` makes a kernel of it."""

    def __init__(
        self,
        ir: Function,
        origin: Callable[..., Any] | None,
        loc: Loc,
        warnings: tuple[Diagnostic, ...],
    ) -> None:
        self.ir = ir
        self.orig_func = origin
        self.loc = loc
        self.warnings = warnings
        self.__name__ = ir.name

    @property
    def attrs(self) -> dict[str, Any]:
        """The attributes of the function; `global_symbol` is its name."""
        return {"global_symbol": self.ir.name, **dict(self.ir.attrs)}

    def with_attr(self, key: str, value: Any) -> PrimFunc:
        """A copy with one attribute set; `global_symbol` renames the function."""
        if key == "global_symbol":
            return PrimFunc(self.ir.with_(name=str(value)), self.orig_func, self.loc, self.warnings)
        kept = tuple((k, v) for k, v in self.ir.attrs if k != key)
        return PrimFunc(
            self.ir.with_(attrs=(*kept, (key, value))), self.orig_func, self.loc, self.warnings
        )

    @property
    def params(self) -> list[str]:
        """The names of the parameters."""
        return [p.name for p in self.ir.params]

    @property
    def buffer_map(self) -> dict[str, BufferRef]:
        """The tensor parameters by name."""
        return {p.name: BufferRef(p.buffer) for p in self.ir.params if p.buffer is not None}

    def script(self) -> str:
        """The text form of the tile stage."""
        return print_function(self.ir)

    def __repr__(self) -> str:
        return self.script()


def prim_func(func: Any = None, *, eager_jit: bool = False) -> Any:
    """Trace a function into a `PrimFunc` now. Every parameter is annotated with a tensor or a scalar type."""
    if eager_jit:
        raise error(
            "option", "T.prim_func(eager_jit=True)", help="use `@tilelang.jit` on the function"
        )
    if func is None:
        return prim_func
    return trace(func)


def trace(fn: FunctionType) -> PrimFunc:
    """Trace `fn`; errors carry the author's location."""
    rewritten = rewrite(fn)
    builder = Builder(rewritten.name, loc=rewritten.loc, dialect=_first_dialect(rewritten))
    token = CURRENT.set(builder)
    try:
        arguments = _parameters(fn, builder, rewritten.loc)
        tracer = Tracer(builder, rewritten.locs)
        try:
            instantiate(rewritten, fn, tracer)(**arguments)
        except TileError as exc:
            raise (exc.with_loc(builder.loc or rewritten.loc)) from None
        check_complete(builder)
    finally:
        CURRENT.reset(token)
    ir = Function(
        rewritten.name,
        tuple(builder.params),
        tuple(builder.dynamic.values()),
        builder.statements,
        dialect=builder.dialect,
        loc=rewritten.loc,
    )
    return PrimFunc(ir, fn, rewritten.loc, tuple(builder.warnings))


def _first_dialect(rewritten: Rewritten) -> str:
    """The adapter shares its import path with the common dialect; a name that only it has decides."""
    only = any(dialects_of(a) == (Dialect.ADAPTER,) for a in rewritten.attributes)
    return Dialect.ADAPTER.value if only else Dialect.COMMON.value


def _parameters(fn: FunctionType, builder: Builder, loc: Loc) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for name, parameter in inspect.signature(fn).parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise error(
                "syntax",
                f"parameter {name} of {fn.__name__}",
                loc,
                expected="an ordinary parameter",
            )
        annotation = _annotation(fn, name, parameter.annotation, loc)
        arguments[name] = _parameter(builder, name, annotation, loc)
    return arguments


def _annotation(fn: FunctionType, name: str, annotation: Any, loc: Loc) -> Any:
    if annotation is inspect.Parameter.empty:
        raise error(
            "syntax",
            f"parameter {name} of {fn.__name__} has no annotation",
            loc,
            expected="a tensor or a scalar type",
            help=f"write `{name}: T.Tensor((n,), 'float32')` or `{name}: T.int32`",
        )
    if isinstance(annotation, str) and not isinstance(annotation, DType):
        scope = {**fn.__globals__, **closure_values(fn)}
        try:
            return eval(annotation, scope)  # noqa: S307 - `from __future__ import annotations` leaves text
        except NameError as exc:
            raise error(
                "name",
                f"the annotation of {name} uses a name that is not known: {exc}",
                loc,
                help="use the name in the body as well, or leave out `from __future__ import annotations`",
            ) from None
    return annotation


def _parameter(builder: Builder, name: str, annotation: Any, loc: Loc) -> Any:
    builder.unique(name)
    if isinstance(annotation, TensorSpec):
        for size in (*annotation.shape, *(annotation.strides or ())):
            _declare_sizes(builder, size)
        buffer: Buffer = annotation.named(name)
        builder.params.append(Param(name, buffer=buffer, loc=loc))
        builder.define(buffer)
        return BufferRef(buffer)
    try:
        dtype = DType(dtypes.dtype(annotation))
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
    builder.params.append(Param(name, var=var, loc=loc))
    builder.define(var)
    return Value(var)


def _declare_sizes(builder: Builder, size: Expr) -> None:
    for node in size.walk():
        if isinstance(node, Var) and not builder.is_visible(node.name):
            builder.declare_dynamic(node)


class Macro:
    """A function that is inlined where it is called. Scalars are passed by value, buffers by reference."""

    def __init__(self, fn: FunctionType) -> None:
        self._fn = fn
        self._rewritten: Rewritten | None = None
        self.__name__ = fn.__name__
        self.__doc__ = fn.__doc__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else lambda *a, **k: self(instance, *a, **k)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        builder = build.current(f"the macro {self.__name__}")
        if self._rewritten is None:
            self._rewritten = rewrite(self._fn)
        try:
            bound = inspect.signature(self._fn).bind(*args, **kwargs)
        except TypeError as exc:
            raise error(
                "option", f"{self.__name__}: {exc}", builder.loc, cls=TileTypeError
            ) from None
        bound.apply_defaults()
        for name, value in bound.arguments.items():
            bound.arguments[name] = _by_value(builder, name, value)
        caller, loops, hints = builder.loc, builder.loops, list(builder.hints)
        builder.loops = []
        try:
            tracer = Tracer(builder, self._rewritten.locs, is_macro=True, caller=caller)
            return instantiate(self._rewritten, self._fn, tracer)(*bound.args, **bound.kwargs)
        finally:
            builder.loops, builder.loc, builder.hints = loops, caller, hints


def _by_value(builder: Builder, name: str, value: Any) -> Any:
    if not isinstance(value, Value) or isinstance(value.expr, Var):
        return value
    if isinstance(value, VarRef) or any(True for _ in value.expr.children()):
        return Value(builder.let(value.expr, name)) if builder.launch is not None else value
    return value


def macro(func: Any = None) -> Any:
    """Make a function that is inlined into each kernel that calls it; it may return values and buffers."""
    return macro if func is None else Macro(func)
