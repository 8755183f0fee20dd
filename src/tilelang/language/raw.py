"""Names of TVM's own script that programs use and that have a plain meaning here.

Each maps onto functions of the language; what has no such meaning is refused by name (`later.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilelang import dtypes
from tilelang.dtypes import DType
from tilelang.errors import TileNotImplementedError, TileValueError
from tilelang.ir import build, tile
from tilelang.ir import expr as ir
from tilelang.ir.build import Builder
from tilelang.ir.expr import AddressOf, Region, const
from tilelang.ir.tile import DEVICE_SOURCE, Block, Let, Stmt
from tilelang.language import alloc, annotate, intrinsics, maths, threads
from tilelang.language.arguments import integer, known, launch_of, launched, number, place, refuse
from tilelang.language.buffers import BufferRef, here, plain, store
from tilelang.language.loops import LoopFrame, Parallel, leave, serial
from tilelang.language.pointers import make_tensor
from tilelang.language.values import (
    Value,
    as_expr,
    cast,
    describe,
    element_type,
    is_scalar,
    logical,
    logical_not,
    select,
)

# -- buffers and values ----------------------------------------------------------------------------

_ALLOCATE: dict[str, Callable[..., Any]] = {
    "shared": alloc.alloc_shared,
    "shared.dyn": alloc.alloc_shared,
    "local": alloc.alloc_local,
    "local.fragment": alloc.alloc_fragment,
    "global": alloc.alloc_global,
}


def alloc_buffer(
    shape: Any, dtype: Any = "float32", scope: str = "global", annotations: Any = None
) -> Any:
    """The allocation function of the scope: `T.alloc_shared`, `alloc_local`, `alloc_fragment` or
    `alloc_global`; `T.alloc_var` for one element of `local.var`.
    """
    if annotations:
        raise refuse("option", "T.alloc_buffer takes no annotations", got=str(annotations))
    if scope == "local.var":
        return alloc.alloc_var(dtype)
    if scope not in _ALLOCATE:
        raise refuse(
            "scope",
            f"T.alloc_buffer in {scope!r}",
            expected=", ".join([*_ALLOCATE, "local.var"]),
            got=repr(scope),
            help="use the allocation function of that memory: see `tilewright scopes`",
        )
    return _ALLOCATE[scope](shape, dtype, scope=scope)


allocate = alloc_buffer


def match_buffer(
    param: Any,
    shape: Any = None,
    dtype: Any = "float32",
    data: Any = None,
    strides: Any = None,
    elem_offset: Any = None,
    scope: str = "global",
    align: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "default",
    axis_separators: Any = None,
) -> BufferRef:
    """A pointer parameter (`T.handle`) as a tensor of `shape`; `align` is a hint, others are
    refused.
    """
    default = (data, elem_offset, scope, offset_factor, buffer_type, axis_separators)
    if default != (None, None, "global", 0, "default", None) or shape is None:
        raise refuse(
            "option",
            "T.match_buffer",
            expected="a pointer parameter, a shape, a dtype and strides",
            help="declare the parameter as `A: T.Tensor(shape, dtype)`",
        )
    known(align, "the align of T.match_buffer", -1, 1 << 16)
    return make_tensor(param, shape, dtype, strides)


def buffer_store(buffer: Any, value: Any, indices: Any, predicate: Any = None) -> None:
    """`buffer[indices] = value`; a predicate is refused."""
    if predicate is not None or not isinstance(buffer, BufferRef):
        raise refuse("option", "T.buffer_store", help="write `if condition: buffer[i] = value`")
    items = [indices] if is_scalar(indices) else list(indices)
    store(buffer, tuple(items) if len(items) != 1 else items[0], value)


def Cast(dtype: Any, value: Any, span: Any = None) -> Value:
    """`T.cast(value, dtype)`."""
    return cast(value, dtype)


def And(a: Any, b: Any, span: Any = None) -> Value:
    """Whether both conditions hold; both are computed."""
    return logical(ir.BinaryOp.AND, a, b)


def Or(a: Any, b: Any, span: Any = None) -> Value:
    """Whether a condition holds; both are computed."""
    return logical(ir.BinaryOp.OR, a, b)


def Not(a: Any, span: Any = None) -> Value:
    """Whether the condition does not hold."""
    return logical_not(a)


def bind(value: Any, type_annotation: Any = None, *, var: Any = None) -> Value:
    """A name for a value, computed here."""
    builder = launched("T.bind")
    if var is not None:
        raise refuse("option", "T.bind(var=...)", help="use the value that T.bind returns")
    wanted = None if type_annotation is None else element_type(type_annotation)
    return Value(builder.let(number(value, "the value of T.bind", wanted), builder.name_hint("t")))


class _VarType(type):
    """`isinstance(x, T.Var)`: a value that is a variable, such as a symbolic size."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Value) and isinstance(instance.expr, ir.Var)


class Var(metaclass=_VarType):
    """`x: T.Var` passes a macro's parameter by reference; `T.Var("n", "int32")` is a symbolic
    size.
    """

    by_reference = True

    def __new__(cls, name: str, dtype: Any = "int32", span: Any = None) -> Any:
        """A symbolic size, as of `T.dynamic`."""
        return Value(ir.Var(name, DType(dtypes.dtype(dtype))))


def evaluate(value: Any) -> None:
    """Carry out a call; a plain value computes nothing, and reading it has no effect."""
    if value is not None and not is_scalar(value):
        raise refuse(
            "dtype",
            f"T.evaluate of {describe(value)}",
            expected="a call or a value",
            got=describe(value),
        )


# -- loops, threads and barriers -------------------------------------------------------------------


def parallel(start: Any, stop: Any = None, *, annotations: Any = None) -> LoopFrame:
    """`T.Parallel` over `start` to `stop - 1`; from 0 with one argument."""
    if stop is None:
        return Parallel(start, annotations=annotations)
    low = integer(start, "the start of T.parallel")
    frame = Parallel(Value(integer(stop, "the end of T.parallel")) - Value(low))
    inner = frame.make

    def make(loop_vars: tuple[ir.Var, ...], body: Block) -> Stmt:
        offset = build.current("T.parallel").fresh_var("offset")
        moved = Let(loop_vars[0], (Value(offset) + Value(low)).expr, loc=here())
        return inner((offset,), (moved, *body))

    frame.make = make
    top = (Value(integer(stop, "the end of T.parallel")) - 1).expr
    frame.spans = ((low, top),)
    return frame


_AXES = {"threadIdx.x": 0, "threadIdx.y": 1, "threadIdx.z": 2}


def thread_binding(
    start: Any, stop: Any = None, thread: Any = None, *, annotations: Any = None
) -> Value:
    """The thread index along an axis, `thread="threadIdx.x"`, inside `T.Kernel(..., threads=)`.

    `start` is 0 and `stop` the threads along the axis. ValueError for others.
    """
    name = "T.thread_binding"
    launch = launch_of(name)
    low, high = (0, start) if stop is None else (start, stop)
    if thread not in _AXES or annotations:
        raise refuse(
            "value",
            f"the thread of {name} is {thread!r}",
            expected=", ".join(map(repr, _AXES)),
            got=repr(thread),
            help="block indices come from `with T.Kernel(...) as (bx, by)`",
        )
    axis = _AXES[thread]
    known(low, f"the start of {name}", 0, 0)
    count = known(high, f"the end of {name}", 1, 1024)
    extents = (*(launch.threads or ()), 1, 1, 1)
    if launch.threads is None or extents[axis] != count:
        raise refuse(
            "value",
            f"{name} of {thread}",
            cls=TileValueError,
            expected=f"{extents[axis]} threads, as in T.Kernel"
            if launch.threads
            else "T.Kernel(..., threads=)",
            got=str(count),
        )
    return Value(launch.thread_vars[axis])


def tvm_storage_sync(storage_scope: str) -> None:
    """`T.sync_threads()` for 'shared', `T.sync_warp()` for 'warp'; another scope is refused."""
    if storage_scope in ("shared", "shared.dyn"):
        annotate.sync_threads()
    elif storage_scope == "warp":
        threads.sync_warp()
    else:
        raise refuse(
            "value",
            f"T.tvm_storage_sync of {storage_scope!r}",
            expected="'shared' or 'warp'",
            got=repr(storage_scope),
            help="T.sync_grid() is the barrier of a whole launch",
        )


def _same_warp(warp_size: Any, name: str) -> None:
    known(warp_size, f"the warp_size of {name}", threads.WARP, threads.WARP)


def tvm_warp_shuffle(mask: Any, value: Any, warp_id: Any, width: Any, warp_size: Any) -> Value:
    """`T.shfl_sync(value, warp_id, width, mask)`."""
    _same_warp(warp_size, "T.tvm_warp_shuffle")
    return threads.shfl_sync(value, warp_id, width, mask)


def tvm_warp_shuffle_up(mask: Any, value: Any, offset: Any, width: Any, warp_size: Any) -> Value:
    """`T.shfl_up(value, offset, width, mask)`."""
    _same_warp(warp_size, "T.tvm_warp_shuffle_up")
    return threads.shfl_up(value, offset, width, mask)


def tvm_warp_shuffle_down(mask: Any, value: Any, offset: Any, width: Any, warp_size: Any) -> Value:
    """`T.shfl_down(value, offset, width, mask)`."""
    _same_warp(warp_size, "T.tvm_warp_shuffle_down")
    return threads.shfl_down(value, offset, width, mask)


def continue_loop(span: Any = None) -> None:
    """Go on with the next round of the innermost sequential loop."""
    leave(tile.Continue, "T.continue_loop")


def break_loop(span: Any = None) -> None:
    """Leave the innermost sequential loop."""
    annotate.loop_break()


# -- reductions over threads -----------------------------------------------------------------------


@dataclass(frozen=True)
class CommReducer:
    """How two values are combined, and the value that changes nothing."""

    combiner: Callable[[Any, Any], Any]
    identity: Any


def comm_reducer(combiner: Any, identity: Any) -> CommReducer:
    """A reduction for `T.attr(..., "reduce_scope", ...)`: a function of two values and
    [identity].
    """
    items = [identity] if is_scalar(identity) else list[Any](identity)
    if len(items) != 1:
        raise refuse("value", "the identity of T.comm_reducer", expected="one", got=str(len(items)))
    return CommReducer(combiner, items[0])


class _ReduceScope(str):
    """The kind of block that `T.attr` opens (for a reader of `builder.loops`: a plain block)."""

    reducer: CommReducer


class AttrFrame:
    """`with T.attr(T.comm_reducer(...), "reduce_scope", _):` - the reduction of the calls
    inside.
    """

    def __init__(self, reducer: CommReducer) -> None:
        self._builder = launched("T.attr")
        self._scope = _ReduceScope("if")
        self._scope.reducer = reducer

    def __enter__(self) -> None:
        self._builder.loops.append(self._scope)

    def __exit__(self, *_: object) -> None:
        self._builder.loops.pop()


def attr(node: Any, attr_key: Any, value: Any) -> AttrFrame:
    """The frame of a reduction over threads; other attributes of TVM's script are refused
    by name.
    """
    if attr_key != "reduce_scope" or not isinstance(node, CommReducer):
        raise refuse(
            "syntax",
            f"T.attr of {attr_key!r}",
            expected='T.attr(T.comm_reducer(f, [identity]), "reduce_scope", handle)',
            help="use the T.annotate_* functions",
        )
    return AttrFrame(node)


def tvm_thread_allreduce(*freduce_args: Any, dtype: Any = None) -> None:
    """Combine `value` over the threads of an axis, into `out` of each of them.

    `(size, value, condition, out, *threads)` inside `T.attr(...)`: size is 1; a thread counts where
    the condition holds; `threads` are thread indices. Every thread of the block takes part.
    """
    name = "T.tvm_thread_allreduce"
    builder = launched(name)
    scope = next((s for s in reversed(builder.loops) if isinstance(s, _ReduceScope)), None)
    if scope is None or len(freduce_args) < 5:
        raise refuse(
            "syntax",
            f"{name} with {len(freduce_args)} arguments"
            if scope is not None
            else f"{name} outside T.attr",
            expected="(1, value, condition, out, thread index, ...) inside `with T.attr(...)`",
        )
    size, value, cond, out, *axes = freduce_args
    known(size, f"the size of {name}", 1, 1)
    extents = launch_of(name).threads
    if extents is None:
        raise refuse("value", name, expected="T.Kernel(..., threads=)")
    reducer = scope.reducer
    e = number(value, f"the value of {name}")
    total = 1
    for n in extents:
        total *= n
    lanes = alloc.alloc_shared((total,), e.dtype)
    flat = threads.flat_thread(name)
    lanes[flat] = select(cond, Value(e), reducer.identity, lazy=False)
    annotate.sync_threads()
    combined = alloc.alloc_var(e.dtype, init=reducer.identity)
    first, loops = _strides(name, flat, axes, extents)

    def step(at: Value) -> None:
        combined.set(reducer.combiner(Value(combined.expr), lanes[at]))

    _nest(builder, loops, first, step)
    annotate.sync_threads()
    buffer, indices = place(out, f"the result of {name}")
    store(BufferRef(buffer), tuple(plain(i) for i in indices), combined)


def _strides(
    name: str, flat: Value, axes: list[Any], extents: tuple[int, ...]
) -> tuple[Value, list[tuple[int, int]]]:
    """The first of the threads that are combined, and the count and stride of each axis."""
    thread_vars = launch_of(name).thread_vars
    first, loops = flat, list[tuple[int, int]]()
    for x in axes:
        found = [n for n, v in enumerate(thread_vars) if isinstance(x, Value) and x.expr == v]
        if not found:
            raise refuse(
                "value",
                f"an axis of {name}",
                expected="a thread index, as T.get_thread_binding gives it",
                got=describe(x),
            )
        axis = found[0]
        stride = 1
        for n in extents[:axis]:
            stride *= n
        if axis < len(extents) and extents[axis] > 1:
            first = first - x * stride
            loops.append((extents[axis], stride))
    return first, loops


def _nest(
    builder: Builder, loops: list[tuple[int, int]], at: Value, step: Callable[[Value], None]
) -> None:
    if not loops:
        step(at)
        return
    (count, stride), *rest = loops
    frame = serial(count)
    index = frame.enter(builder, ["r"])
    _nest(builder, rest, at + index * stride, step)
    frame.leave(builder)


# -- device functions by their C names -------------------------------------------------------------


def _masked(fn: Callable[..., Value]) -> Callable[..., Value]:
    def apply(mask: Any, *args: Any) -> Value:
        return fn(*args, mask=mask)

    return apply


def _half(mode: str) -> Callable[[Any], Value]:
    def apply(x: Any) -> Value:
        return cast(x, "float16", round=mode, sat=False)

    return apply


_CALLS: dict[str, Callable[..., Any]] = {
    "__match_any_sync": _masked(threads.match_any_sync),
    "__match_all_sync": _masked(threads.match_all_sync),
    "__any_sync": _masked(threads.any_sync),
    "__all_sync": _masked(threads.all_sync),
    "__ballot_sync": _masked(threads.ballot_sync),
    "__shfl_sync": _masked(threads.shfl_sync),
    "__shfl_xor_sync": _masked(threads.shfl_xor),
    "__shfl_up_sync": _masked(threads.shfl_up),
    "__shfl_down_sync": _masked(threads.shfl_down),
    "__float2half_rn": _half("rn"),
    "__float2half_rz": _half("rz"),
    "__popc": maths.popcount,
    "__clz": maths.clz,
    "__ffs": intrinsics.find_first_set,
    "__fns": intrinsics.find_nth_set,
    "__syncthreads": annotate.sync_threads,
    "__syncwarp": threads.sync_warp,
}


def call_extern(*args: Any, dtype: Any = None, span: Any = None) -> Any:
    """A device function by its C name: CUDA's own ones that have a meaning here, or one of the
    kernel's `T.import_source`, which may read and write a thread's own arrays by their addresses.
    The result is converted to `dtype`.
    """
    items = list(args) if dtype is not None else list(args[1:])
    result = args[0] if dtype is None and args else dtype
    name = str(items[0]) if items else "nothing"
    builder = build.current("T.call_extern")
    sources = builder.eager.settings.get(DEVICE_SOURCE, ())
    if name not in _CALLS and any(re.search(rf"\b{re.escape(name)}\b", s) for s in sources):
        return _authors(builder, name, items[1:], result)
    if name not in _CALLS:
        raise refuse(
            "target",
            f"T.call_extern of {name}, which no T.import_source before it has",
            cls=TileNotImplementedError,
            expected=", ".join(_CALLS),
            help="write the function with the language, as a @T.macro",
        )
    value = _CALLS[name](*items[1:])
    wanted = None if result is None else dtypes.dtype(result)
    return value if wanted is None or wanted.is_handle or value is None else value.astype(wanted)


def _authors(builder: Builder, name: str, given: list[Any], result: Any) -> Value | None:
    """A call of a function of the author's."""
    exprs = tuple(as_expr(x) for x in given)
    pointers = [e for e in exprs if isinstance(e, AddressOf)]
    for e in pointers:
        if not e.buffer.scope.startswith("local") or e.buffer.scope == "local.fragment":
            raise refuse(
                "scope",
                f"{name} is given the address of {e.buffer.name}, which is in {e.buffer.scope}",
                cls=TileNotImplementedError,
                expected="scalars, and arrays of T.alloc_local",
                help="copy what it reads into a local array, and what it writes out of one",
            )
    touched = tuple(
        Region(b, tuple(const(0) for _ in b.shape), b.shape, loc=here())
        for b in dict.fromkeys(e.buffer for e in pointers)
    )
    wanted = None if result is None else dtypes.dtype(result)
    none = wanted is None or wanted.is_handle
    var = None if none else builder.fresh_var(builder.name_hint("given"), DType(wanted))
    builder.emit(tile.ExternCall(name, exprs, touched=touched, result=var, loc=here()))
    if var is None:
        return None
    builder.define(var)
    return Value(var)


def import_source(source: str | None = None) -> None:
    """CUDA C++ with device functions for `T.call_extern`; None is no source. Only the CUDA target
    can run such a kernel.
    """
    if source is not None:
        settings = build.current("T.import_source").eager.settings
        settings[DEVICE_SOURCE] = (*settings.get(DEVICE_SOURCE, ()), source)
