"""`@T.macro` and `@T.meta_class`: functions and classes that are inlined into each kernel that uses
them.
"""

from __future__ import annotations

import inspect
from functools import partial
from types import FunctionType
from typing import Any

from tilelang.errors import Loc, TileTypeError, TileValueError, error
from tilelang.frontend.session import evaluated_annotation
from tilelang.frontend.source import Rewritten, instantiate, rewrite
from tilelang.frontend.trace import Tracer
from tilelang.ir import build
from tilelang.ir.build import Builder
from tilelang.ir.expr import Load, Var
from tilelang.language.buffers import BufferRef, RegionRef, VarRef
from tilelang.language.values import Value, describe

# A macro that calls itself without an end fails here, with the chain of calls, before Python's own
# limit.
_MAX_DEPTH = 64


class Ref:
    """Annotation of a macro parameter that is passed by reference: a variable, an element or a
    slice.
    """


class Macro:
    """A function that is inlined where it is called.

    Scalars are passed by value, buffers and `T.Ref` parameters by reference.
    """

    def __init__(self, fn: FunctionType, *, attributes: bool = False) -> None:
        self._fn = fn
        self._attributes = attributes
        self._rewritten: Rewritten | None = None
        self.__name__ = fn.__name__
        self.__doc__ = fn.__doc__
        self.__wrapped__ = fn

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Inline the function here."""
        builder = build.current(f"the macro {self.__name__}")
        if self._rewritten is None:
            self._rewritten = rewrite(self._fn, attributes=self._attributes)
        caller = builder.loc
        if caller is not None and len(caller.chain()) > _MAX_DEPTH:
            raise error(
                "syntax",
                f"the macro {self.__name__} calls itself without an end",
                caller,
                help="a macro is inlined while tracing; end the recursion on a Python value",
            )
        arguments = self._bound(builder, args, kwargs, caller)
        loops, hints = builder.loops, list(builder.hints)
        builder.loops = []
        try:
            tracer = Tracer(builder, self._rewritten.locs, is_macro=True, caller=caller)
            inlined = instantiate(self._rewritten, self._fn, tracer)
            return inlined(*arguments.args, **arguments.kwargs)
        finally:
            builder.loops, builder.loc, builder.hints = loops, caller, hints

    def _bound(
        self, builder: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], caller: Loc | None
    ) -> inspect.BoundArguments:
        signature = inspect.signature(self._fn)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as exc:
            raise error("option", f"{self.__name__}: {exc}", caller, cls=TileTypeError) from None
        bound.apply_defaults()
        place = caller or Loc("<unknown>", 1)
        for name, value in bound.arguments.items():
            note = evaluated_annotation(
                self._fn, name, signature.parameters[name].annotation, place
            )
            passed = (
                partial(_by_reference, builder, loc=caller)
                if note is Ref or getattr(note, "by_reference", False)
                else partial(_by_value, builder)
            )
            match signature.parameters[name].kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    found = tuple(passed(name, x) for x in value)
                case inspect.Parameter.VAR_KEYWORD:
                    found = {key: passed(key, x) for key, x in value.items()}
                case _:
                    found = passed(name, value)
            bound.arguments[name] = found
        return bound


def _by_reference(builder: Builder, name: str, value: Any, loc: Loc | None) -> Any:
    if isinstance(value, (VarRef, RegionRef, BufferRef)):
        return value
    if isinstance(value, Value) and isinstance(value.expr, Load):
        load = value.expr
        return VarRef(load.buffer, tuple(builder.stable(e, name) for e in load.indices))
    raise error(
        "value",
        f"the T.Ref parameter {name} is given {describe(value)}",
        loc,
        cls=TileValueError,
        expected="a variable (T.alloc_var), an element `A[i]`, or a slice",
        got=describe(value),
    )


def _by_value(builder: Builder, name: str, value: Any) -> Any:
    if not isinstance(value, Value) or builder.launch is None:
        return value
    if isinstance(value, VarRef) or not isinstance(value.expr, Var):
        return Value(builder.stable(value.expr, name))
    return value


def macro(func: Any = None) -> Any:
    """Make a function that is inlined into each kernel that calls it.

    It may return values and buffers, but not from inside a branch or loop of the kernel.
    """
    return macro if func is None else Macro(func)


def inline(func: Any) -> Any:
    """A method (or function) that is inlined where it is called, as `T.macro`."""
    return Macro(func, attributes=True)


def meta_class(cls: type) -> type:
    """A class whose methods are inlined: its objects live while the kernel is traced.

    Methods may allocate variables and keep them in attributes; assigning to such an attribute
    stores to the variable.
    """
    for name, member in list(vars(cls).items()):
        if isinstance(member, FunctionType):
            setattr(cls, name, Macro(member, attributes=True))
    return cls
