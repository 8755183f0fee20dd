"""The loop constructors. Each gives a `LoopFrame` that the frontend enters once, tracing its body
once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilelang import dtypes
from tilelang.errors import TileError, error
from tilelang.ir import build, tile
from tilelang.ir.bounds import bounds
from tilelang.ir.build import Builder
from tilelang.ir.expr import Binary, BinaryOp, Expr, Var, int_value
from tilelang.ir.interval import interval
from tilelang.ir.tile import Assert, Block, Break, Continue, For, Let, LoopKind, Stmt
from tilelang.language.arguments import MOST, known, plain_data
from tilelang.language.buffers import extent, here
from tilelang.language.values import Value, as_expr


@dataclass
class LoopFrame:
    """A loop to be traced: the dtypes of its variables, and what to wrap the traced body in.

    `sequential` says whether its rounds have an order. `spans` are the least and greatest values of
    each variable, as far as the constructor gives them.
    """

    what: str
    dtypes: tuple[dtypes.DType, ...]
    make: Callable[[tuple[Var, ...], Block], Stmt]
    sequential: bool = True
    as_tuple: bool = False
    spans: tuple[tuple[Expr, Expr], ...] = ()

    def enter(self, builder: Builder, names: Sequence[str]) -> Any:
        """Open the body; gives the loop variables as values (a list where there are several)."""
        self._vars = tuple(
            builder.fresh_var(names[n] if n < len(names) else f"i{n}", d)
            for n, d in enumerate(self.dtypes)
        )
        builder.loops.append("sequential" if self.sequential else "parallel")
        several = "nest" if len(self.dtypes) > 1 else "loop"
        builder.open(several if self.sequential else "parallel")
        builder.define(*self._vars)
        for var, (least, most) in zip(self._vars, self.spans, strict=False):
            low, high = (bounds(e, builder.ranges) for e in (least, most))
            builder.ranges[var] = interval(low.lo, high.hi)
        values = [Value(v) for v in self._vars]
        return values if self.as_tuple or len(values) != 1 else values[0]

    def __iter__(self) -> Iterator[Any]:
        """Never: a loop of the kernel is entered by the frontend, in a function that is traced."""
        raise _bad(
            "syntax",
            f"{self.what} is iterated over by Python itself",
            expected="a `for` statement directly in a kernel or macro",
            help="decorate the function that holds the loop with @T.macro",
        )

    def leave(self, builder: Builder) -> None:
        """Close the body and emit the loop."""
        builder.loops.pop()
        builder.emit(self.make(self._vars, builder.close()))


def leave(node: type[Break] | type[Continue], name: str) -> None:
    """Emit the end of a loop or of a round. An error where there is no sequential loop around, or
    several at once.
    """
    builder = build.current(name)
    around = builder.innermost
    if around != "loop" and not (around == "nest" and node is Continue):
        where = {"nest": "in T.grid, which is several loops", "parallel": "in T.Parallel"}
        raise _bad(
            "syntax",
            f"{name} {where.get(around, 'outside a loop of the kernel')}",
            expected="a sequential loop around it",
            help="loop with T.serial, or guard the statements with `if`",
        )
    builder.emit(node(loc=here()))


def _bad(kind: str, message: str, **facts: Any) -> TileError:
    return error(kind, message, here(), **facts)


def _range(what: str, start: Any, stop: Any) -> tuple[Expr, Expr]:
    low, high = (0, start) if stop is None else (start, stop)
    a, b = extent(low, f"the start of {what}"), extent(high, f"the end of {what}")
    if a.dtype != b.dtype:
        common = dtypes.promote(a.dtype, b.dtype)
        a, b = as_expr(a, common), as_expr(b, common)
    return a, b


def _hints(**values: Any) -> tuple[tuple[str, Any], ...]:
    out: list[tuple[str, Any]] = []
    for key, value in values.items():
        if value is None:
            continue
        out.append((key, plain_data(value)))
    return tuple(out)


def sequential(
    what: str, kind: LoopKind, start: Any, stop: Any, step: Any, hints: tuple[tuple[str, Any], ...]
) -> LoopFrame:
    """A loop over `range(start, stop, step)`."""
    builder = build.current(what)
    low, high = _range(what, start, stop)
    stride: Expr | None = None
    if step is not None:
        by = extent(step, f"the step of {what}")
        known = int_value(by)
        if known is None:
            return _strided(builder, what, kind, (low, high, by), hints)
        if known == 0:
            raise _bad("value", f"the step of {what}", expected="a number other than 0", got="0")
        stride = None if known == 1 else as_expr(known, low.dtype)
    loc = here()

    def make(loop_vars: tuple[Var, ...], body: Block) -> Stmt:
        return For(loop_vars[0], low, high, body, step=stride, kind=kind, hints=hints, loc=loc)

    return LoopFrame(what, (low.dtype,), make, spans=(_span(low, high, stride),))


def _strided(
    builder: Builder,
    what: str,
    kind: LoopKind,
    parts: tuple[Expr, Expr, Expr],
    hints: tuple[tuple[str, Any], ...],
) -> LoopFrame:
    """A loop with a step that only the run knows, of either sign: it counts its rounds. A step of 0
    stops the launch.
    """
    loc, common = here(), parts[0].dtype
    for part in parts:
        common = dtypes.promote(common, part.dtype)
    low, high, step = (
        builder.stable(as_expr(e, common), name)
        for e, name in zip(parts, ("start", "stop", "step"), strict=True)
    )
    zero, count = as_expr(0, common), builder.fresh_var("round", common)
    builder.emit(
        Assert(
            Binary(BinaryOp.NE, step, zero),
            message=f"the step of {what} is 0",
            kind="value",
            loc=loc,
        )
    )
    rounds = Binary(
        BinaryOp.SUB, zero, Binary(BinaryOp.FLOORDIV, Binary(BinaryOp.SUB, low, high), step)
    )

    def make(loop_vars: tuple[Var, ...], body: Block) -> Stmt:
        value = Binary(BinaryOp.ADD, low, Binary(BinaryOp.MUL, count, step))
        body = (Let(loop_vars[0], value, loc=loc), *body)
        return For(count, zero, rounds, body, kind=kind, hints=hints, loc=loc)

    return LoopFrame(what, (common,), make)


def _span(low: Expr, high: Expr, stride: Expr | None) -> tuple[Expr, Expr]:
    step = int_value(stride) if stride is not None else 1
    one = as_expr(1, low.dtype)
    if step is not None and step < 0:
        return Binary(BinaryOp.ADD, high, one), low
    return low, Binary(BinaryOp.SUB, high, one)


def _from_zero(sizes: Sequence[Expr]) -> tuple[tuple[Expr, Expr], ...]:
    return tuple(_span(as_expr(0, e.dtype), e, None) for e in sizes)


def serial(
    start: Any, stop: Any = None, step: Any = None, *, annotations: dict[str, Any] | None = None
) -> LoopFrame:
    """A sequential loop over `start, start + step, ...` below `stop`; with one argument, from 0."""
    return sequential(
        "T.serial", LoopKind.SERIAL, start, stop, step, _hints(annotations=annotations)
    )


def unroll(
    start: Any,
    stop: Any = None,
    step: Any = None,
    *,
    explicit: bool = False,
    unroll_factor: int | None = None,
    annotations: dict[str, Any] | None = None,
) -> LoopFrame:
    """A sequential loop to be unrolled; `explicit` and `unroll_factor` exclude each other and
    change no result.
    """
    if explicit and unroll_factor is not None:
        raise _bad("option", "T.unroll takes `explicit` or `unroll_factor`, not both")
    if unroll_factor is not None:
        known(unroll_factor, "the unroll_factor of T.unroll", 1, MOST)
    hints = _hints(explicit=explicit or None, unroll_factor=unroll_factor, annotations=annotations)
    return sequential("T.unroll", LoopKind.UNROLL, start, stop, step, hints)


def vectorized(
    start: Any, stop: Any = None, *, annotations: dict[str, Any] | None = None
) -> LoopFrame:
    """A loop whose iterations become lanes of vector instructions; the meaning is that of the
    sequential loop.
    """
    return sequential(
        "T.vectorized", LoopKind.VECTORIZED, start, stop, None, _hints(annotations=annotations)
    )


def Parallel(
    *extents: Any,
    coalesced_width: int | None = None,
    loop_layout: Any = None,
    prefer_async: bool | None = None,
    annotations: dict[str, Any] | None = None,
) -> LoopFrame:
    """A nest of loops from 0 whose iterations have no order and are spread over the threads of the
    block.

    The hints choose how; they never change the result.
    """
    builder = build.current("T.Parallel")
    if not extents:
        raise _bad("shape", "T.Parallel needs at least one extent")
    if builder.launch is None:
        raise _bad(
            "syntax",
            "T.Parallel outside T.Kernel",
            help="move the loop inside `with T.Kernel(...)`",
        )
    sizes = tuple(extent(x, "an extent of T.Parallel") for x in extents)
    if coalesced_width is not None:
        known(coalesced_width, "the coalesced_width of T.Parallel", 1, MOST)
    hints = _hints(
        coalesced_width=coalesced_width,
        loop_layout=loop_layout,
        prefer_async=prefer_async,
        annotations=annotations,
    )
    loc = here()

    def make(loop_vars: tuple[Var, ...], body: Block) -> Stmt:
        if (
            len(body) == 1
            and isinstance(inner := body[0], tile.Parallel)
            and not (_free(inner.extents) & set(loop_vars))
        ):
            # A perfect nest of T.Parallel is one T.Parallel with more axes.
            return tile.Parallel(
                (*loop_vars, *inner.vars),
                (*sizes, *inner.extents),
                inner.body,
                hints=hints + inner.hints,
                loc=loc,
            )
        return tile.Parallel(loop_vars, sizes, body, hints=hints, loc=loc)

    return LoopFrame(
        "T.Parallel",
        tuple(e.dtype for e in sizes),
        make,
        sequential=False,
        spans=_from_zero(sizes),
    )


def _free(exprs: tuple[Expr, ...]) -> set[Var]:
    return {n for e in exprs for n in e.walk() if isinstance(n, Var)}


def Pipelined(
    start: Any,
    stop: Any = None,
    num_stages: Any = 0,
    order: Sequence[int] | None = None,
    stage: Sequence[int] | None = None,
    annotations: dict[str, Any] | None = None,
) -> LoopFrame:
    """A sequential loop whose copies may be issued `num_stages` rounds ahead; the result is that
    of the plain loop.

    `order` and `stage` give the schedule by hand, one entry per statement.
    """
    build.current("T.Pipelined")
    low, high = _range("T.Pipelined", start, stop)
    if isinstance(num_stages, bool) or not isinstance(num_stages, int) or num_stages < 0:
        raise _bad(
            "value", "num_stages of T.Pipelined", expected="an integer >= 0", got=repr(num_stages)
        )
    steps = tuple(order or ()), tuple(stage or ())
    if steps[0] and steps[1] and len(steps[0]) != len(steps[1]):
        raise _bad(
            "value",
            "`order` and `stage` of T.Pipelined differ in length",
            got=f"{steps[0]} and {steps[1]}",
        )
    hints = _hints(annotations=annotations)
    loc = here()

    def make(loop_vars: tuple[Var, ...], body: Block) -> Stmt:
        return tile.Pipelined(
            loop_vars[0],
            low,
            high,
            body,
            num_stages=num_stages,
            order=steps[0],
            stage=steps[1],
            hints=hints,
            loc=loc,
        )

    return LoopFrame("T.Pipelined", (low.dtype,), make, spans=(_span(low, high, None),))


def grid(*extents: Any) -> LoopFrame:
    """Nested sequential loops from 0, one per extent."""
    build.current("T.grid")
    sizes = tuple(extent(x, "an extent of T.grid") for x in extents)
    loc = here()

    def make(loop_vars: tuple[Var, ...], body: Block) -> Stmt:
        inner: Block = body
        for var, size in reversed(list(zip(loop_vars, sizes, strict=True))):
            inner = (For(var, as_expr(0, size.dtype), size, inner, loc=loc),)
        return inner[0]

    return LoopFrame("T.grid", tuple(e.dtype for e in sizes), make, spans=_from_zero(sizes))
