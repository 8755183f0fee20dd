"""What the functions of the language do with their arguments: scalars, known integers, places,
hints.

What enters: an author's value. What leaves: the expression, region or plain data that a node
holds, or a located error that says what was expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from tilelang.dtypes import DType
from tilelang.errors import JITNoBuilderError, TileError, TileValueError, error
from tilelang.ir import build
from tilelang.ir.build import Builder, LaunchState
from tilelang.ir.expr import INT32, AddressOf, Buffer, Const, Expr, Load, Region, const
from tilelang.language.buffers import BufferRef, RegionRef, VarRef, here
from tilelang.language.values import Value, as_expr, describe, is_scalar
from tilelang.scopes import Dialect, Memory, memory_of

WSID = "tl.ws_op_id"
"""The key of an annotation that names an operation for `T.annotate_ws_schedule`."""

Place = tuple[Buffer, tuple[Expr, ...]]


def refuse(kind: str, message: str, **facts: Any) -> TileError:
    """The error for one finding at the author's place; the caller raises it."""
    return error(kind, message, here(), **facts)


def launched(what: str) -> Builder:
    """The builder of a trace that is inside T.Kernel."""
    builder = build.current(what)
    launch_of(what)
    return builder


def launch_of(what: str) -> LaunchState:
    """The launch that is being traced; `JITNoBuilderError` outside T.Kernel."""
    launch = build.current(what).launch
    if launch is None:
        raise refuse(
            "syntax",
            f"{what} is used outside T.Kernel",
            cls=JITNoBuilderError,
            help="move it inside `with T.Kernel(...)`",
        )
    return launch


def number(x: Any, what: str, dtype: DType | None = None) -> Expr:
    """A scalar argument, converted to `dtype` where given."""
    if not is_scalar(x):
        raise refuse(
            "dtype",
            f"{what} is {describe(x)}",
            expected="a number or a value of the kernel",
            got=describe(x),
        )
    return as_expr(x, dtype)


def integer(x: Any, what: str, dtype: DType = INT32) -> Expr:
    """An integer argument as `dtype`."""
    e = number(x, what)
    if e.dtype.kind not in ("int", "uint") or e.dtype.lanes != 1:
        raise refuse("dtype", f"{what} has type {e.dtype}", expected="an integer", got=str(e.dtype))
    return as_expr(e, dtype)


MOST = 2**31 - 1
"""The most that a count may be."""


def known(x: Any, what: str, low: int, high: int, *, multiple: int = 1) -> int:
    """An integer that is known when the kernel is compiled, from `low` to `high`."""
    e = number(x, what)
    value = e.value if isinstance(e, Const) else None
    fits = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    if not fits or not isinstance(value, int) or value % multiple:
        of = f", a multiple of {multiple}" if multiple > 1 else ""
        raise refuse(
            "value",
            f"{what} is {x}"
            if isinstance(value, (int, float))
            else f"{what} must be an integer that is known when the kernel is compiled",
            cls=TileValueError,
            expected=f"{low} to {high}{of}",
            got=str(x),
        )
    return value


def choice(value: Any, what: str, allowed: Iterable[str]) -> str:
    """One of the words allowed; ValueError otherwise."""
    words = tuple(allowed)
    if value not in words:
        raise refuse(
            "value",
            f"{what} is {value!r}",
            cls=TileValueError,
            expected=" or ".join(repr(w) for w in words),
            got=repr(value),
        )
    return str(value)


def memory(buffer: Buffer) -> Memory:
    """The canonical memory of a buffer, in the dialect of the kernel."""
    builder = build.current_or_none()
    return memory_of(Dialect(builder.dialect if builder else "common"), buffer.scope)


def in_memory(buffer: Buffer, what: str, *allowed: Memory) -> None:
    """Refuse a buffer that is not in one of the memories."""
    found = memory(buffer)
    if found not in allowed:
        raise refuse(
            "scope",
            f"{what} is {buffer.name}, which is in {found.title}",
            expected=" or ".join(m.title for m in allowed),
            got=f"{found.title} ({buffer.scope})",
        )


def place(x: Any, what: str) -> Place:
    """One element: `A[i, j]`, the first of a buffer or slice, or what a pointer points to."""
    if isinstance(x, (BufferRef, VarRef)):
        return x.buffer, tuple(const(0) for _ in x.buffer.shape)
    if isinstance(x, RegionRef):
        return x.region.buffer, x.region.mins
    if isinstance(x, Value) and isinstance(x.expr, (Load, AddressOf)):
        return x.expr.buffer, x.expr.indices
    raise refuse(
        "dtype",
        f"{what} is {describe(x)}",
        expected="an element of a buffer, such as `A[i]`, or a pointer to one",
        got=describe(x),
    )


def element(x: Any, what: str) -> Region:
    """One element as a region."""
    buffer, indices = place(x, what)
    return Region(buffer, indices, tuple(const(1) for _ in indices), loc=here())


def barrier(x: Any, what: str, *, cluster: bool = False) -> Region:
    """An mbarrier: an element of a buffer of T.alloc_barrier, or its first one."""
    buffer, _ = place(x, what)
    in_memory(
        buffer,
        what,
        Memory.CLUSTER_BARRIER,
        *(() if cluster else (Memory.BARRIER,)),
    )
    return element(x, what)


def hints(annotations: Any = None, **values: Any) -> tuple[tuple[str, Any], ...]:
    """Hints as plain data, in the order of their names; an entry of `annotations` wins over a
    keyword.
    """
    if annotations is not None and not isinstance(annotations, Mapping):
        raise refuse(
            "option",
            "annotations",
            expected="a dictionary",
            got=type(annotations).__name__,
        )
    merged: dict[str, Any] = {k: v for k, v in values.items() if v is not None and v is not False}
    merged.update(cast("Mapping[str, Any]", annotations or {}))
    if "coalesced_width" in merged:
        known(merged["coalesced_width"], "coalesced_width", 1, MOST)
    return tuple((k, plain_data(merged[k])) for k in sorted(merged))


def eviction(policy: Any, name: str) -> None:
    """Refuse an eviction policy of the L2 cache that does not exist."""
    if policy is not None:
        words = ("evict_normal", "evict_first", "evict_last")
        choice(policy, f"the eviction_policy of {name}", words)


def note(annotations: Any, name: str, *switches: str) -> None:
    """Annotations of an operation without hints: a name for `T.annotate_ws_schedule`, and
    `switches`, true or false, that change no result; no other.
    """
    for key, value in hints(annotations):
        if key in switches and isinstance(value, (bool, int)):
            continue
        if key != WSID:
            raise refuse("option", f"the annotation {key!r} of {name}", expected="T.WSID", got=key)
        build.current(name).annotate("ws_op", values=("next", value))


def plain_data(x: Any) -> Any:
    """`x` as data of the text form: numbers, words and tuples of them; anything else by
    its text.
    """
    if isinstance(x, (bool, int, float, str)) or x is None:
        return x if not isinstance(x, str) else str(x)
    if isinstance(x, (list, tuple)):
        return tuple(plain_data(item) for item in cast("tuple[Any, ...]", x))
    if isinstance(x, Mapping):
        items = cast("Mapping[Any, Any]", x).items()
        return tuple((str(k), plain_data(v)) for k, v in items)
    return repr(x)
