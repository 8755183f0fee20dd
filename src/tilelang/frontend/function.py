"""`@T.prim_func`: tracing a function into a tile-stage `Function`, and what is made of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

from tilelang.errors import Diagnostic, Loc, TileTypeError, error
from tilelang.frontend.session import (
    check_no_default,
    declare_parameter,
    evaluated_annotation,
    finish,
    new_builder,
    ordinary_parameters,
    run,
)
from tilelang.frontend.source import rewrite
from tilelang.frontend.unusable import Unusable
from tilelang.ir.text import print_function
from tilelang.ir.tile import Function
from tilelang.language.buffers import BufferRef


class PrimFunc:
    """A traced function: `ir` is its tile stage, `script()` prints it.

    `tilelang.compile` makes a kernel of it. `warnings` are findings of the trace that do not stop
    it.
    """

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
        """The attributes of the function; `global_symbol` is its name. What the author sets inside
        of it, and the positions of its outputs from the end, stand under upstream's names too.
        """
        own = dict(self.ir.attrs)
        found = {f"tilelang_{k}": own[k] for k in ("pass_configs", "compile_flags") if k in own}
        if self.ir.outputs:
            found["tilelang_out_idx"] = [n - len(self.ir.params) for n in self.ir.outputs]
        return {"global_symbol": self.ir.name, **own, **found}

    def with_attr(self, key: str, value: Any) -> PrimFunc:
        """A copy with one attribute set; `global_symbol` renames the function."""
        if key == "global_symbol":
            ir = self.ir.with_(name=str(value))
        else:
            kept = tuple((k, v) for k, v in self.ir.attrs if k != key)
            ir = self.ir.with_(attrs=(*kept, (key, value)))
        return PrimFunc(ir, self.orig_func, self.loc, self.warnings)

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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Never: a traced function is compiled first."""
        raise error(
            "argument",
            f"{self.__name__} is a traced function, not a kernel that can be called",
            self.loc,
            cls=TileTypeError,
            help=f"compile it: `kernel = tilelang.compile({self.__name__})`, then call the kernel",
        )

    def __repr__(self) -> str:
        return self.script()


def prim_func(func: Any = None, *, eager_jit: bool = False) -> Any:
    """Trace a function into a `PrimFunc` now.

    Every parameter is annotated with a tensor or a scalar type, or declared so before the launch.
    """
    if eager_jit:
        raise error(
            "option", "T.prim_func(eager_jit=True)", help="use `@tilelang.jit` on the function"
        )
    return prim_func if func is None else trace(func)


def trace(fn: FunctionType) -> PrimFunc:
    """Trace `fn`; errors carry the author's location."""
    rewritten = rewrite(fn)
    builder = new_builder(rewritten)
    arguments: dict[str, Any] = {}
    for name, parameter in ordinary_parameters(fn, rewritten).items():
        missing = parameter.annotation is inspect.Parameter.empty
        if missing and name in rewritten.declared:
            why = "is a tensor parameter that is not declared yet"
            arguments[name] = Unusable(name, why, rewritten.place(name), builder, parameter=True)
            continue
        if missing:
            raise error(
                "syntax",
                f"parameter {name} of {fn.__name__} has no annotation",
                rewritten.place(name),
                expected="a tensor or a scalar type",
                help=f"write `{name}: T.Tensor((n,), 'float32')` or `{name}: T.int32`",
            )
        check_no_default(fn, name, rewritten)
        place = rewritten.place(name)
        annotation = evaluated_annotation(fn, name, parameter.annotation, place)
        arguments[name] = declare_parameter(builder, name, annotation, place)
    run(fn, rewritten, builder, arguments)
    for name in arguments.keys() - {p.name for p in builder.params}:
        raise error(
            "syntax",
            f"the parameter {name} of {fn.__name__} is never declared",
            rewritten.place(name),
            help=f"declare it before the launch: `{name}: T.Tensor((n,), 'float32')`",
        )
    ir = finish(rewritten, builder, tuple(arguments))
    return PrimFunc(ir, fn, rewritten.loc, tuple(builder.warnings))
