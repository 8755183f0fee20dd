"""Annotations: facts and wishes about buffers and kernels. Only the safe value changes a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from tilelang.dtypes import DType
from tilelang.errors import TileValueError, error
from tilelang.ir import build, tile
from tilelang.ir.expr import Buffer, int_value
from tilelang.language.arguments import known
from tilelang.language.buffers import BufferRef, here, plain
from tilelang.language.loops import leave
from tilelang.language.values import Value, as_expr, describe, is_scalar
from tilelang.language.values import condition as as_condition
from tilelang.layout import Fragment, Layout
from tilelang.layout.stated import shared_place, stated


def _buffers(mapping: Any, name: str) -> list[tuple[Buffer, Any]]:
    if not isinstance(mapping, Mapping):
        raise error(
            "option", name, here(), expected="a dictionary from buffers", got=type(mapping).__name__
        )
    out: list[tuple[Buffer, Any]] = []
    for key, value in cast("Mapping[Any, Any]", mapping).items():
        buffer = getattr(key, "buffer", None)  # of a buffer or a reducer
        if not isinstance(buffer, Buffer):
            raise error(
                "option", f"a key of {name}", here(), expected="a buffer", got=describe(key)
            )
        out.append((buffer, value))
    return out


def annotate_safe_value(safe_value_map: Any) -> None:
    """`{tensor: value}`: what a read outside a global tensor gives instead of 0, converted to its
    dtype.
    """
    builder = build.current("T.annotate_safe_value")
    pairs = _buffers(safe_value_map, "T.annotate_safe_value")
    for buffer, _ in pairs:
        if buffer.scope != "global":
            raise error(
                "scope",
                f"a safe value for {buffer.name}, which is not in global memory",
                here(),
                help="reads outside an on-chip buffer are faults; guard them instead",
            )
    exprs = tuple(as_expr(v, DType(b.dtype)) for b, v in pairs)
    builder.annotate("safe_value", buffers=tuple(b for b, _ in pairs), exprs=exprs)


def annotate_layout(layout_map: Any) -> None:
    """`{buffer: layout}`: how a buffer's elements are placed; never changes a result. The report of
    a kernel for a GPU says which were carried out. ValueError for a layout of a shared buffer that
    puts two elements at one place.
    """
    builder = build.current("T.annotate_layout")
    pairs = _buffers(layout_map, "T.annotate_layout")
    layouts = [v if isinstance(v, Layout) else _layout(b, v) for b, v in pairs]
    for (buffer, _), layout in zip(pairs, layouts, strict=True):
        _refuse_overlap(buffer, layout)
    found = tuple(
        (repr(v), *(("fragment", 0) if isinstance(v, Fragment) else stated(v, b.dtype.bits)))
        for (b, _), v in zip(pairs, layouts, strict=True)
    )
    builder.annotate("layout", buffers=tuple(b for b, _ in pairs), values=found)


def _refuse_overlap(buffer: Buffer, layout: Layout) -> None:
    both = None if isinstance(layout, Fragment) else shared_place(layout)
    if both is None:
        return
    first, second = ("[" + ", ".join(map(str, at)) + "]" for at in both)
    place = list(layout.map_forward_index(list(both[0])))
    raise error(
        "option",
        f"the layout of the shared buffer `{buffer.name}` must be injective",
        here(),
        cls=TileValueError,
        expected="a place of its own for each element",
        got=f"{first} and {second} both map to physical coordinates {place}",
    )


def _layout(buffer: Buffer, value: Any) -> Layout:
    if not callable(value):
        raise error(
            "option",
            f"the layout of {buffer.name}",
            here(),
            expected="a T.Layout, a T.Fragment or a function of indices",
            got=describe(value),
        )
    return Layout([plain(e) for e in buffer.shape], value)


def annotate_l2_hit_ratio(l2_hit_ratio_map: Any) -> None:
    """`{tensor: ratio}`: the share of a tensor to keep in the L2 cache, 0 to 1; never changes a
    result.
    """
    builder = build.current("T.annotate_l2_hit_ratio")
    pairs = _buffers(l2_hit_ratio_map, "T.annotate_l2_hit_ratio")
    for buffer, ratio in pairs:
        if not isinstance(ratio, (int, float)) or not 0 <= ratio <= 1:
            raise error(
                "value",
                f"the L2 hit ratio of {buffer.name}",
                here(),
                expected="0 to 1",
                got=repr(ratio),
            )
    builder.annotate(
        "l2_hit_ratio", buffers=tuple(b for b, _ in pairs), values=tuple(float(v) for _, v in pairs)
    )


def annotate_restrict_buffers(*buffers: Any) -> None:
    """Say that these tensors may share storage with others."""
    builder = build.current("T.annotate_restrict_buffers")
    pairs = _buffers(dict.fromkeys(buffers), "T.annotate_restrict_buffers")
    builder.annotate(
        "restrict", buffers=tuple(b for b, _ in pairs), values=tuple(None for _ in pairs)
    )


def annotate_min_blocks_per_sm(n: Any) -> None:
    """The number of blocks that should fit on one SM; a positive int."""
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise error(
            "value", "T.annotate_min_blocks_per_sm", here(), expected="an integer >= 1", got=repr(n)
        )
    build.current("T.annotate_min_blocks_per_sm").annotate("min_blocks_per_sm", values=(n,))


def use_swizzle(panel_size: int, order: str = "row", enable: bool = True) -> None:
    """Visit the grid in panels of `panel_size` rows ('row') or columns ('column'), so that blocks
    share the L2 cache.

    It changes only which block computes what. ValueError for another order, or no panel size.
    """
    builder = build.current("T.use_swizzle")
    if order not in ("row", "column"):
        raise error(
            "value",
            "the order of T.use_swizzle",
            here(),
            expected="'row' or 'column'",
            got=repr(order),
        )
    if enable:
        panel = known(panel_size, "the panel_size of T.use_swizzle", 1, 2**31 - 1)
        builder.annotate("swizzle", values=(panel, order))


def assume(cond: Any = None) -> None:
    """State a fact that the compiler may use. A false one is a finding of the dynamic check; where
    only sizes and scalar parameters decide and every thread gets there, the call raises
    RuntimeError, as for `T.device_assert`.
    """
    builder = build.current("T.assume")
    if cond is not None:
        builder.emit(tile.Assume(as_condition(cond), loc=here()))


def device_assert(condition: Any, msg: str = "", no_stack_info: bool = False) -> None:
    """Stop the launch with `msg` where the condition does not hold."""
    builder = build.current("T.device_assert")
    builder.emit(tile.Assert(as_condition(condition), message=str(msg), loc=here()))


def print(obj: Any = None, msg: str = "", warp_group_id: int = 0, warp_id: int = 0) -> None:
    """Print a buffer, a scalar, or only a message, from the kernel. ValueError for another kind of
    object.
    """
    builder = build.current("T.print")
    value: Any = None
    if isinstance(obj, BufferRef):
        value = obj.buffer
    elif isinstance(obj, Value) or (is_scalar(obj) and obj is not None):
        value = as_expr(obj)
    elif obj is not None:
        raise error(
            "value", "T.print", here(), expected="a buffer, a scalar or nothing", got=describe(obj)
        )
    builder.emit(
        tile.Print(
            value=value, message=str(msg), warp_group=warp_group_id, warp=warp_id, loc=here()
        )
    )


def sync_threads(barrier_id: Any = None, arrive_count: Any = None) -> None:
    """All threads of the block wait for each other; with `barrier_id` (0 to 15), `arrive_count` of
    them, whole warps.
    """
    builder = build.current("T.sync_threads")
    parts = [None if x is None else as_expr(x) for x in (barrier_id, arrive_count)]
    limits = (("barrier_id", barrier_id, 0, 15, 1), ("arrive_count", arrive_count, 32, 1024, 32))
    for part, (name, given, low, high, step) in zip(parts, limits, strict=True):
        if part is not None and int_value(part) is not None:
            known(given, f"the {name} of T.sync_threads", low, high, multiple=step)
    builder.emit(tile.SyncThreads(barrier_id=parts[0], arrive_count=parts[1], loc=here()))


def thread_return(span: Any = None) -> None:
    """End the calling thread."""
    builder = build.current("T.thread_return")
    builder.emit(tile.ThreadReturn(loc=here()))


def loop_break() -> None:
    """Leave the innermost sequential loop."""
    leave(tile.Break, "T.loop_break")
