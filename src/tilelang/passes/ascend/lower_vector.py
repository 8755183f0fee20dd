"""Operations of the vector units on tiles of UB.

What enters: `VectorOp` and `Reduce` statements. What leaves: rows `v.*`. Tiles are walked as rows
and columns; a tile whose rows follow each other is one row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tilelang.dtypes import DType
from tilelang.ir.ascend import VECTOR_OPS, VectorOp, vector_types
from tilelang.ir.expr import Binary, BinaryOp, Cast, Const, Expr, Region, const, int_value
from tilelang.ir.simplify import simplify
from tilelang.ir.thread import Slot
from tilelang.ir.tile import Block, Reduce
from tilelang.passes.ascend.lower_copies import matched, repeated
from tilelang.passes.ascend.step import BLOCK, Axis, Box, Step
from tilelang.passes.build import literal, times
from tilelang.scopes import Memory

_EXPANDED = "row_expand_"


def vector_op(step: Step, stmt: VectorOp) -> Block:
    """One operation of the table."""
    for r in (stmt.dst, *stmt.srcs):
        if isinstance(r, Region) and step.memory(r) is not Memory.UB:
            raise step.fault(
                "scope",
                f"T.tile.{stmt.op} on a tile in {step.memory(r).title}",
                expected="tiles in UB",
            )
    _check_type(step, stmt)
    lower = _SPECIAL.get(stmt.op)
    if lower is not None:
        return lower(step, stmt)
    if stmt.op.startswith(_EXPANDED):
        return _row_expand(step, stmt)
    return _elementwise(step, stmt)


def _check_type(step: Step, stmt: VectorOp) -> None:
    """Refuse an element type that the vector units do not compute with."""
    row = VECTOR_OPS[stmt.op]
    of = stmt.srcs[0] if stmt.op == "compare" else stmt.dst
    mode = _imm(stmt, "mode", "") if stmt.op == "compare" else ""
    known = vector_types(stmt.op, mode)
    if isinstance(of, Region) and DType(of.dtype).name not in known:
        raise step.fault(
            "dtype",
            f"T.tile.{stmt.op} of {of.dtype}{f' by {mode}' if mode else ''}",
            expected=f"{', '.join(known)} (AscendC {row.source}, on A2 and A3)",
            got=str(of.dtype),
            help="convert it with T.tile.cast first",
        )


def scalar(step: Step, e: Expr, dtype: DType) -> Expr:
    """A scalar source in the dtype of the operation."""
    if isinstance(e, Const):
        return literal(e.value, dtype) if e.dtype != dtype else e
    value = step.expr(e)
    return value if value.dtype == dtype else Cast(value, dtype)


# Elementwise --------------------------------------------------------------------------------------


def _elementwise(step: Step, stmt: VectorOp) -> Block:
    dst = step.box(stmt.dst)
    sources: list[Box] = []
    scalars: list[Expr] = []
    for src in stmt.srcs:
        if isinstance(src, Region):
            if scalars:
                raise step.fault("value", f"a tile after a scalar in T.tile.{stmt.op}")
            found, _ = repeated(step, step.box(src), src, dst, stmt.dst)
            if len(found.axes) != len(dst.axes):
                found = matched(step, dst, found)[1]
            sources.append(found)
        else:
            scalars.append(scalar(step, src, stmt.dst.dtype))
    return _tiles(step, f"v.{stmt.op}{'.s' if scalars else ''}", [dst, *sources], scalars)


def _tiles(step: Step, row: str, boxes: Sequence[Box], scalars: Sequence[Expr]) -> Block:
    def one(found: list[Box]) -> Block:
        out, *sources = found
        rows, columns = out.axes
        sizes = [rows.extent, columns.extent, step.pitch(out, rows, BLOCK)]
        slots: list[Slot] = []
        for s in sources:
            across = s.axes[1]
            repeats = int_value(across.stride) == 0
            slots.append(step.slot(s, 0 if repeats else BLOCK))
            sizes += [step.pitch(s, s.axes[0], 0 if repeats else BLOCK), across.stride]
        return (step.instr(row, step.slot(out, BLOCK), *slots, *scalars, *sizes),)

    return _walk(step, step.joined(boxes), one)


def _walk(step: Step, boxes: Sequence[Box], body: Callable[[list[Box]], Block]) -> Block:
    """As `Step.rows`, for boxes of which some repeat their elements."""
    flat = [replace(b, axes=b.axes or (Axis(const(1), const(1)),)) for b in boxes]
    if len(flat[0].axes) == 1:
        flat = [
            replace(
                b,
                axes=(
                    Axis(const(1), simplify(times(b.axes[0].extent, b.axes[0].stride), step.env)),
                    *b.axes,
                ),
            )
            for b in flat
        ]
    if len(flat[0].axes) == 2 and all(int_value(b.axes[-1].stride) in (0, 1) for b in flat):
        return body(flat)
    return step.rows(flat, body)


def _row_expand(step: Step, stmt: VectorOp) -> Block:
    """The second source has one element for each row."""
    first, second = stmt.srcs
    if not isinstance(first, Region) or not isinstance(second, Region):
        raise step.fault("value", f"a scalar in T.tile.{stmt.op}", expected="two tiles")
    dst = step.box(stmt.dst)
    a = matched(step, dst, step.box(first))[1]
    b = step.box(second)
    if not dst.axes:
        raise step.fault("shape", f"T.tile.{stmt.op} of one element", expected="rows and columns")
    wanted = [axis.extent for axis in dst.axes[:-1]]
    shaped = step.shaped(b, wanted)
    if shaped is None:
        raise step.fault(
            "shape",
            f"the second source of T.tile.{stmt.op} has not one element for each row",
            expected=f"{[int_value(e) for e in wanted]}",
            got=f"{[int_value(x.extent) for x in b.axes]}",
        )
    expanded = replace(shaped, axes=(*shaped.axes, Axis(dst.axes[-1].extent, const(0))))
    return _tiles(step, f"v.{stmt.op.removeprefix(_EXPANDED)}", [dst, a, expanded], [])


# Other operations ---------------------------------------------------------------------------------


def _flat(step: Step, r: Region, align: int = BLOCK) -> tuple[Slot, Expr]:
    """A region that is one run, as its first element and length."""
    box = step.joined([step.box(r)])[0]
    if len(box.axes) > 1 or any(int_value(a.stride) != 1 for a in box.axes):
        raise step.fault(
            "layout",
            f"the region of {r.buffer.name} is not one run of elements",
            expected="neighbouring elements",
        )
    return step.slot(box, align), box.axes[0].extent if box.axes else const(1)


def _imm(stmt: VectorOp, name: str, default: Any = None) -> Any:
    return dict(stmt.imm).get(name, default)


def _region(step: Step, src: Region | Expr, what: str) -> Region:
    if not isinstance(src, Region):
        raise step.fault("value", f"{what} is a scalar", expected="a tile in UB")
    return src


def _compare(step: Step, stmt: VectorOp) -> Block:
    a, b = stmt.srcs
    left = _region(step, a, "the first source of T.tile.compare")
    slot, n = _flat(step, left)
    out, _ = _flat(step, stmt.dst)
    mode = _imm(stmt, "mode")
    if isinstance(b, Region):
        other, _ = _flat(step, b)
        return (step.instr("v.compare", out, slot, other, n, mode=mode),)
    return (step.instr("v.compare.s", out, slot, scalar(step, b, left.dtype), n, mode=mode),)


def _select(step: Step, stmt: VectorOp) -> Block:
    mask, a, b = stmt.srcs
    out, n = _flat(step, stmt.dst)
    bits, _ = _flat(step, _region(step, mask, "the mask of T.tile.select"))
    first, _ = _flat(step, _region(step, a, "the first choice of T.tile.select"))
    by_scalar = not isinstance(b, Region)
    usual = "VSEL_TENSOR_SCALAR_MODE" if by_scalar else "VSEL_TENSOR_TENSOR_MODE"
    imm = {"mode": _imm(stmt, "mode", usual), "itemsize": stmt.dst.dtype.bytes}
    if isinstance(b, Region):
        second, _ = _flat(step, b)
        return (step.instr("v.select", out, bits, first, second, n, **imm),)
    value = scalar(step, b, stmt.dst.dtype)
    return (step.instr("v.select.s", out, bits, first, value, n, **imm),)


def _broadcast(step: Step, stmt: VectorOp) -> Block:
    src = _region(step, stmt.srcs[0], "the source of T.tile.broadcast")
    a, dst = step.box(src), step.box(stmt.dst)
    if len(src.extents) == len(stmt.dst.extents):
        a, dst = repeated(step, a, src, dst, stmt.dst)
    elif (
        len(a.axes) == 1 and len(dst.axes) == 2 and step.same(a.axes[0].extent, dst.axes[0].extent)
    ):
        a = replace(a, axes=(a.axes[0], Axis(dst.axes[1].extent, const(0))))
    elif len(a.axes) == 1 and len(dst.axes) == 2:
        a = replace(a, axes=(Axis(dst.axes[0].extent, const(0)), a.axes[0]))
    elif not a.axes:
        a = replace(a, axes=tuple(Axis(axis.extent, const(0)) for axis in dst.axes))
    else:
        a, dst = matched(step, a, dst)
    return _tiles(step, f"v.{stmt.op}", [dst, a], [])


def _transpose(step: Step, stmt: VectorOp) -> Block:
    a = step.box(_region(step, stmt.srcs[0], "the source of T.tile.transpose"))
    dst = step.box(stmt.dst)
    if len(a.axes) != 2 or len(dst.axes) != 2:
        raise step.fault("shape", "T.tile.transpose of tiles that are no matrices")
    (rows, columns), down = a.axes, dst.axes[0]
    pitches = (step.pitch(dst, down, BLOCK), step.pitch(a, rows, BLOCK))
    sizes = (rows.extent, columns.extent)
    return (
        step.instr("v.transpose", step.slot(dst, BLOCK), step.slot(a, BLOCK), *sizes, *pitches),
    )


def _gather(step: Step, stmt: VectorOp) -> Block:
    src, offset = (_region(step, s, "a source of T.tile.gather") for s in stmt.srcs[:2])
    base = stmt.srcs[2]
    out, room = _flat(step, stmt.dst)
    table, size = _flat(step, src)
    at, n = _flat(step, offset)
    count = n if step.same(n, room) else simplify(Binary(BinaryOp.MIN, n, room), step.env)
    if isinstance(base, Region):
        raise step.fault("value", "the base of T.tile.gather is a tile", expected="a scalar")
    return (step.instr("v.gather", out, table, at, step.expr(base), count, size),)


def _gatherb(step: Step, stmt: VectorOp) -> Block:
    src, offset = (_region(step, s, "a source of T.tile.gatherb") for s in stmt.srcs[:2])
    out, _ = _flat(step, stmt.dst)
    table, size = _flat(step, src)
    at, n = _flat(step, offset)
    return (step.instr("v.gatherb", out, table, at, n, size, itemsize=stmt.dst.dtype.bytes),)


def _gather_mask(step: Step, stmt: VectorOp) -> Block:
    src, n = _flat(step, _region(step, stmt.srcs[0], "the source of T.tile.gather_mask"))
    out, room = _flat(step, stmt.dst)
    if len(stmt.srcs) == 1:
        return (step.instr("v.gather_mask", out, src, n, room, pattern=_imm(stmt, "pattern")),)
    mask, bits = _flat(step, _region(step, stmt.srcs[1], "the mask of T.tile.gather_mask"))
    return (step.instr("v.gather_mask.b", out, src, mask, n, room, bits),)


def _progression(step: Step, stmt: VectorOp) -> Block:
    out, n = _flat(step, stmt.dst)
    dtype = stmt.dst.dtype
    values = [scalar(step, s, dtype) for s in stmt.srcs if isinstance(s, Expr)]
    if stmt.op == "createvecindex":
        values.append(literal(1, dtype))
    return (step.instr("v.progression", out, *values, n),)


def _block_reduce(step: Step, stmt: VectorOp) -> Block:
    out, n = _flat(step, stmt.dst)
    src, _ = _flat(step, _region(step, stmt.srcs[0], f"the source of T.tile.{stmt.op}"))
    return (step.instr(f"v.{stmt.op}", out, src, n, itemsize=stmt.dst.dtype.bytes),)


def _whole_reduce(step: Step, stmt: VectorOp) -> Block:
    out, _ = _flat(step, stmt.dst)
    rows = _region(step, stmt.srcs[0], f"the source of T.tile.{stmt.op}")
    src, _ = _flat(step, rows)
    sizes = (step.expr(rows.extents[0]), step.expr(rows.extents[1]))
    return (step.instr(f"v.{stmt.op}", out, src, *sizes),)


def _sort(step: Step, stmt: VectorOp) -> Block:
    out, room = _flat(step, stmt.dst)
    src, size = _flat(step, _region(step, stmt.srcs[0], f"the source of T.tile.{stmt.op}"))
    if stmt.op == "sort32":
        index, _ = _flat(step, _region(step, stmt.srcs[1], "the indices of T.tile.sort32"))
        return (step.instr("v.sort32", out, src, index, size, room),)
    n = stmt.srcs[-1]
    if isinstance(n, Region):
        raise step.fault("value", f"the number of values of T.tile.{stmt.op} is a tile")
    if stmt.op == "topk":
        k = stmt.srcs[1]
        if isinstance(k, Region):
            raise step.fault("value", "k of T.tile.topk is a tile", expected="a number")
        room = simplify(times(step.expr(k), 2), step.env)
    return (step.instr("v.sort", out, src, step.expr(n), size, room),)


def _merge_sort(step: Step, stmt: VectorOp) -> Block:
    out, room = _flat(step, stmt.dst)
    found = [_flat(step, _region(step, s, "a source of T.tile.merge_sort")) for s in stmt.srcs]
    slots, counts = [s for s, _ in found], [n for _, n in found]
    return (step.instr(f"v.merge_sort.{len(found)}", out, *slots, room, *counts),)


_SPECIAL: dict[str, Callable[[Step, VectorOp], Block]] = {
    "compare": _compare,
    "select": _select,
    "broadcast": _broadcast,
    "brcb": _broadcast,
    "transpose": _transpose,
    "gather": _gather,
    "gatherb": _gatherb,
    "gather_mask": _gather_mask,
    "createvecindex": _progression,
    "arith_progression": _progression,
    **{f"block_reduce_{op}": _block_reduce for op in ("max", "min", "sum")},
    **{f"whole_reduce_{op}": _whole_reduce for op in ("max", "min")},
    "sort32": _sort,
    "sort": _sort,
    "topk": _sort,
    "merge_sort": _merge_sort,
}
"""The operations that are not elementwise."""


# Reductions ---------------------------------------------------------------------------------------


def reduce(step: Step, stmt: Reduce) -> Block:
    """A reduction along one axis of a tile in UB."""
    for r in (stmt.src, stmt.dst):
        if step.memory(r) is not Memory.UB:
            raise step.fault(
                "scope", f"a reduction of a tile in {step.memory(r).title}", expected="UB"
            )
    if stmt.src.dtype != stmt.dst.dtype:
        raise step.fault(
            "dtype",
            "a reduction into another element type",
            expected=str(stmt.src.dtype),
            got=str(stmt.dst.dtype),
        )
    dim = stmt.dim % len(stmt.src.extents)
    src = _every_axis(step, stmt.src)
    before, axis, after = src.axes[:dim], src.axes[dim], src.axes[dim + 1 :]
    kept = _without_ones([*before, *after])
    out = step.shaped(step.box(stmt.dst), [a.extent for a in kept])
    if out is None:
        raise step.fault(
            "shape",
            "the result of a reduction has another shape than the rest of the source",
            expected=f"{[int_value(a.extent) for a in kept]}",
            got=f"{[int_value(e) for e in stmt.dst.extents]}",
        )
    row = f"v.reduce_{stmt.op.value}{'' if stmt.clear else '.acc'}"
    inner = len(_without_ones(after))
    return _reduced(step, row, replace(src, axes=tuple(kept)), out, axis, inner)


def _every_axis(step: Step, r: Region) -> Box:
    """A region with all its axes, also those of extent 1."""
    at = step.access.place(r.buffer)
    box = step.box(r)
    strides = [simplify(step.access.expr(s), step.env) for s in at.strides()]
    axes = tuple(Axis(step.expr(e), s) for e, s in zip(r.extents, strides, strict=True))
    return replace(box, axes=axes)


def _without_ones(axes: Sequence[Axis]) -> list[Axis]:
    return [a for a in axes if int_value(a.extent) != 1]


def _reduced(step: Step, row: str, src: Box, dst: Box, axis: Axis, inner: int) -> Block:
    """`src` has the axes that are kept, the last `inner` of them behind the one that is summed."""
    one = Axis(const(1), const(1))
    if inner > 1:
        tail = step.joined([replace(b, axes=b.axes[-inner:]) for b in (src, dst)])
        if len(tail[0].axes) != 1:
            raise step.fault("layout", "the axes behind the reduced one are not one run")
        src, dst = (
            replace(b, axes=(*b.axes[:-inner], t.axes[0]))
            for b, t in zip((src, dst), tail, strict=True)
        )
        inner = 1
    head = [replace(b, axes=b.axes[: len(b.axes) - inner]) for b in (src, dst)]
    joined = step.joined(head) if head[0].axes else head
    last = [b.axes[-1] if inner else one for b in (src, dst)]
    boxes = [replace(h, axes=(*h.axes, tail)) for h, tail in zip(joined, last, strict=True)]

    def body(found: list[Box]) -> Block:
        a, b = found
        (outer, within), down = a.axes, b.axes[0]
        sizes = (outer.extent, axis.extent, within.extent)
        steps = (outer.stride, axis.stride, down.stride)
        return (step.instr(row, step.slot(b), step.slot(a), *sizes, *steps),)

    return _walk(step, boxes, body)
