"""Copies, fills and atomic updates of tiles: an instruction for each path between two memories.

What enters: `Copy`, `Transfer`, `Fill` and `Atomic` statements. What leaves: rows named after the
path. A tile that may leave global memory is cut: a load sets the rest to its pad value, a store
leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable

from tilelang.dtypes import DType
from tilelang.ir.ascend import Transfer
from tilelang.ir.expr import Cast, Const, Expr, Region, const, int_value
from tilelang.ir.simplify import simplify
from tilelang.ir.thread import Instr
from tilelang.ir.tile import Atomic, Block, Copy, Fill, Stmt
from tilelang.passes.ascend import lower_scales
from tilelang.passes.ascend.step import BLOCK, Axis, Box, Step, extents_of
from tilelang.passes.ascend.storage import FRACTAL
from tilelang.passes.build import literal, map_statements, plus
from tilelang.scopes import L1_SCALES, Memory

GLOBAL, UB, L1 = Memory.GLOBAL, Memory.UB, Memory.L1
L0A, L0B, L0C = Memory.L0A, Memory.L0B, Memory.L0C
ONE = Const(1.0, DType("float32"))


def copy(step: Step, stmt: Copy) -> Block:
    """A plain copy."""
    return transfer(step, Transfer(stmt.src, stmt.dst, hints=stmt.hints, loc=stmt.loc))


def transfer(step: Step, stmt: Transfer) -> Block:
    """A copy along one of the paths of the chip."""
    path = (step.memory(stmt.src), step.memory(stmt.dst))
    target = step.shared.target
    lower = _PATHS.get(path)
    if lower is None or not target.copies(*path):
        raise no_path(step, path)
    if target.chip is not None and path in target.chip.by_workspace:
        raise step.fault(
            "scope",
            f"{target} copies from {path[0].title} to {path[1].title} only through a workspace",
            expected="two copies through global memory, with cross-core flags between them",
            help="switch on the automatic split of cube and vector cores, or write both copies",
        )
    _only(step, stmt, path)
    made = lower(step, stmt)
    cache = dict(stmt.hints).get("l2_cache_ctrl")
    if cache is None or GLOBAL not in path:
        return made

    def cached(s: Stmt) -> Block | None:
        if not isinstance(s, Instr) or s.row not in _CACHED:
            return None
        return (s.with_(imm=(*s.imm, ("cache", cache))),)

    return map_statements(made, cached)


_CACHED = frozenset(
    {"gm.ub", "gm.ub.pad", "ub.gm", "gm.l1.nz", "gm.l1.dn", "gm.l1.scales", "l0c.gm"}
)
"""The instructions that take a policy of the cache."""


def no_path(step: Step, path: tuple[Memory, Memory]) -> Exception:
    """The error for memories between which nothing copies, with the paths that there are."""
    target = step.shared.target
    chip = target.chip
    src, dst = path
    known = sorted(chip.copies or (), key=str) if chip is not None else []
    ways = [f"{a.title} -> {b.title}" for a, b in known if a is src or b is dst]
    where = f" ({chip.copies_source})" if chip is not None else ""
    return step.fault(
        "scope",
        f"{target} does not copy from {src.title} to {dst.title}",
        expected=f"one of {', '.join(ways)}{where}" if ways else f"a path of the chip{where}",
        got=f"{src.title} -> {dst.title}",
        help="go by a workspace in global memory",
    )


_MAY: dict[str, frozenset[tuple[Memory, Memory]]] = {
    "relu": frozenset({(L0C, GLOBAL), (L0C, UB)}),
    "scale": frozenset({(L0C, GLOBAL), (L0C, UB)}),
    "transpose": frozenset({(GLOBAL, L1), (L1, L0A), (L1, L0B)}),
    "pad": frozenset({(GLOBAL, UB), (GLOBAL, L1)}),
    "split": frozenset({(L0C, UB)}),
    "sub": frozenset({(L0C, UB)}),
    "rounding": frozenset({(UB, UB)}),
    "padded": frozenset({(GLOBAL, UB)}),
    "blocks": frozenset({(UB, L1)}),
}
"""What a transfer may ask for, by path."""


def _only(step: Step, stmt: Transfer, path: tuple[Memory, Memory]) -> None:
    """Refuse what this path cannot do."""
    for name, paths in _MAY.items():
        if getattr(stmt, name) not in (None, "", False) and path not in paths:
            able = ", ".join(f"{a.title} -> {b.title}" for a, b in sorted(paths, key=str))
            raise step.fault(
                "value",
                f"`{name}` of a copy from {path[0].title} to {path[1].title}",
                expected=f"`{name}` on {able}",
            )
    converts = path in {(L0C, GLOBAL), (L0C, UB), (UB, UB)}
    if not converts and stmt.src.dtype != stmt.dst.dtype:
        raise step.fault(
            "dtype",
            f"a copy from {path[0].title} to {path[1].title} converts no elements",
            expected=f"{stmt.src.dtype} on both sides",
            got=f"{stmt.src.dtype} and {stmt.dst.dtype}",
            help="convert in UB: T.copy between two UB buffers",
        )


def matched(step: Step, src: Box, dst: Box) -> tuple[Box, Box]:
    """Two boxes with equal extents; else the numbers of elements must agree."""
    src, dst = _with_ones(src, dst), _with_ones(dst, src)
    wanted = [a.extent for a in src.axes]
    if len(src.axes) == len(dst.axes) and all(
        step.same(a.extent, b.extent) for a, b in zip(src.axes, dst.axes, strict=True)
    ):
        return src, dst
    shaped = step.shaped(dst, wanted)
    if shaped is not None:
        return src, shaped
    turned = step.shaped(src, [a.extent for a in dst.axes])
    if turned is not None:
        return turned, dst
    raise step.fault(
        "shape",
        "the two sides of a copy do not match",
        expected="equal extents, axes of extent 1 left out",
        got=f"{extents_of(src)} and {extents_of(dst)}",
    )


def _with_ones(box: Box, other: Box) -> Box:
    """A box with an axis of extent 1 for each that the other one has: a place that may be outside
    is an axis there.
    """
    left = list(box.axes)
    out: list[Axis] = []
    for axis in other.axes:
        if int_value(axis.extent) == 1 and (not left or int_value(left[0].extent) != 1):
            out.append(Axis(const(1), const(1)))
        elif left:
            out.append(left.pop(0))
    return Box(box.place, box.first, (*out, *left))


# Global memory and UB -----------------------------------------------------------------------------


def _gm_ub(step: Step, stmt: Transfer) -> Block:
    src, dst = step.joined(matched(step, step.box(stmt.src), step.box(stmt.dst)))
    pad = literal(0, stmt.dst.dtype) if stmt.pad is None else step.expr(stmt.pad)

    def one(boxes: list[Box]) -> Block:
        a, b = boxes
        (rows, columns), (down, across) = a.axes, b.axes
        out, read = step.slot(b, BLOCK), step.slot(a)
        pitches = (step.pitch(a, rows), step.pitch(b, down, BLOCK))
        cut = rows.valid is not None or columns.valid is not None
        more = _end_of_rows(step, stmt, down, across)
        if not cut and not more:
            return (step.instr("gm.ub", out, read, rows.extent, columns.extent, *pitches),)
        wide = simplify(plus(across.extent, more), step.env)
        sizes = (rows.inside, columns.inside, *pitches, down.extent, wide)
        if not stmt.padded:
            return (step.instr("gm.ub.pad", out, read, pad, *sizes),)
        if cut:
            raise step.fault(
                "bounds",
                "a copy(data_select=True) that may leave its tensor",
                expected="a tile that is certainly inside",
                help="give the number: pad_value=...",
            )
        return (step.instr("gm.ub.end", out, read, *sizes),)

    return step.rows([src, dst], one, stops=False)


def _end_of_rows(step: Step, stmt: Transfer, down: Axis, across: Axis) -> int:
    """The elements behind each row of the destination, up to 32 bytes, that a pad value is for.

    None where the next row begins or the buffer ends first: nobody can name them.
    """
    if stmt.pad is None and not stmt.padded:
        return 0
    columns, size = int_value(across.extent), stmt.dst.dtype.bytes
    if columns is None:
        raise step.fault(
            "shape", "a pad value for rows whose length is known only when the kernel runs"
        )
    more = -columns * size % BLOCK // size
    pitch, many = int_value(down.stride), int_value(down.extent) != 1
    width = int_value(stmt.dst.buffer.shape[-1]) or 0
    first = int_value(stmt.dst.mins[-1])
    room = (pitch or 0) - columns if many else width - (first or 0) - columns
    return more if first is not None and more <= room else 0


def _ub_gm(step: Step, stmt: Transfer) -> Block:
    src, dst = step.joined(matched(step, step.box(stmt.src), step.box(stmt.dst)))

    def one(boxes: list[Box]) -> Block:
        b, a = boxes
        (rows, columns), down = b.axes, a.axes[0]
        pitches = (step.pitch(a, down, BLOCK), step.pitch(b, rows))
        sizes = (rows.inside, columns.inside)
        return (step.instr("ub.gm", step.slot(b), step.slot(a, BLOCK), *sizes, *pitches),)

    return step.rows([dst, src], one)


def _ub_ub(step: Step, stmt: Transfer) -> Block:
    src, dst = step.joined(
        repeated(step, step.box(stmt.src), stmt.src, step.box(stmt.dst), stmt.dst)
    )
    same = stmt.src.dtype == stmt.dst.dtype
    if not same:
        row, imm = "v.cast", {"rounding": stmt.rounding or default_rounding(stmt)}
    else:
        row, imm = "ub.ub", {}

    def one(boxes: list[Box]) -> Block:
        a, b = boxes
        (rows, columns), (down, _) = a.axes, b.axes
        out = step.slot(b, BLOCK)
        if same and (int_value(columns.stride) == 0 or int_value(rows.stride) == 0):
            sizes = (down.extent, b.axes[1].extent, step.pitch(b, down, BLOCK))
            steps = (rows.stride, columns.stride)
            return (step.instr("v.broadcast", out, step.slot(a), *sizes, *steps),)
        read = step.slot(a, BLOCK)
        pitches = (step.pitch(a, rows, BLOCK), step.pitch(b, down, BLOCK))
        return (step.instr(row, out, read, rows.extent, columns.extent, *pitches, **imm),)

    return step.rows([src, dst], one)


def default_rounding(stmt: Transfer) -> str:
    """Exact where the conversion widens, else to the nearest even."""
    widens = stmt.dst.dtype.bits > stmt.src.dtype.bits and stmt.dst.dtype.is_float
    return "CAST_NONE" if widens else "CAST_RINT"


def repeated(step: Step, src: Box, a: Region, dst: Box, b: Region) -> tuple[Box, Box]:
    """As `matched`, but an extent of 1 in the source repeats along the destination."""
    if len(a.extents) == len(b.extents):
        wide = [(int_value(m), n) for m, n in zip(a.extents, b.extents, strict=True)]
        fits = all(m in (1, int_value(n)) or m is None for m, n in wide)
        if fits and any(m == 1 and int_value(n) != 1 for m, n in wide):
            axes = iter(src.axes)
            made = [
                Axis(step.expr(n), const(0)) if m == 1 else next(axes)
                for m, n in wide
                if not (m == 1 and int_value(n) == 1)
            ]
            return Box(src.place, src.first, tuple(made)), dst
    return matched(step, src, dst)


# Into L1 ------------------------------------------------------------------------------------------


def _to_l1(row: str, turned_row: str) -> Callable[[Step, Transfer], Block]:
    def lower(step: Step, stmt: Transfer) -> Block:
        if stmt.dst.buffer.scope == L1_SCALES:
            if not turned_row:
                raise _no_scales(step)
            return lower_scales.gm_to_l1(step, stmt)
        m = step.matrix(stmt.dst)
        if stmt.blocks:
            sizes = (m.rows, m.columns, m.tile.padded_rows)
            src = step.slot(step.box(stmt.src), BLOCK)
            return (step.instr("ub.l1.blocks", m.slot, src, *sizes, c0=m.c0),)
        if stmt.pad is not None and (not isinstance(stmt.pad, Const) or stmt.pad.value != 0):
            raise step.fault("value", "a pad value of a tile in L1", expected="0")
        box = step.box(stmt.src)
        if stmt.transpose:
            down, across = step.two_axes(box, m.columns, m.rows)
            rows, columns, pitch = across, down, down.stride
        else:
            rows, columns = step.two_axes(box, m.rows, m.columns)
            down, across, pitch = rows, columns, rows.stride
        if int_value(across.stride) != 1:
            raise step.fault("layout", "the rows of the source are not runs of neighbours")
        for a, size in ((rows, m.rows), (columns, m.columns)):
            if not step.same(a.extent, size):
                raise step.fault(
                    "shape", "the two sides of a copy do not match", got=f"{extents_of(box)}"
                )
        sizes = (rows.inside, columns.inside, pitch, m.rows, m.columns, m.tile.padded_rows)
        made = step.instr(
            turned_row if stmt.transpose else row, m.slot, step.slot(box), *sizes, c0=m.c0
        )
        return (made,)

    return lower


def _no_scales(step: Step) -> Exception:
    return step.fault(
        "scope",
        "scales of a product from UB to L1",
        expected="global memory to L1: that copy puts 16 rows side by side",
        help="store them in global memory first",
    )


# L0 -----------------------------------------------------------------------------------------------


def _l1_l0(row: str, inner_last: bool) -> Callable[[Step, Transfer], Block]:
    """`inner_last`: a tile that is not turned has the axis that is summed over last."""

    def lower(step: Step, stmt: Transfer) -> Block:
        m = step.matrix(stmt.src)
        step.whole_rows(m)
        d = step.matrix(stmt.dst)
        step.from_origin(d)
        turned = step.shared.turned.get(stmt.dst.buffer.name, False)
        inner_last_here = inner_last != turned
        a, b = (d.rows, d.columns) if inner_last_here else (d.columns, d.rows)
        wanted = (d.columns, d.rows) if stmt.transpose else (d.rows, d.columns)
        if not (step.same(m.rows, wanted[0]) and step.same(m.columns, wanted[1])):
            raise step.fault("shape", "the tile in L1 and the one in L0 do not match")
        # The rows of the L1 tile run along K where the buffer's do, or against it if transposed.
        along = inner_last_here == stmt.transpose
        plain = along != inner_last
        made = step.instr(
            row if plain else f"{row}.t", d.slot, m.slot, a, b, m.tile.padded_rows, c0=m.c0
        )
        return (made,)

    return lower


# Out of L0C ---------------------------------------------------------------------------------------


def _l0c_gm(step: Step, stmt: Transfer) -> Block:
    m = step.matrix(stmt.src, wide=FRACTAL)
    box = step.box(stmt.dst)
    rows, columns = step.two_axes(box, m.rows, m.columns)
    return (_drain(step, stmt, "l0c.gm", box, (rows, columns)),)


def _drain(
    step: Step, stmt: Transfer, row: str, box: Box, axes: tuple[Axis, Axis], *more: Expr
) -> Instr:
    m = step.matrix(stmt.src, wide=FRACTAL)
    _converts(step, stmt)
    rows, columns = axes
    if int_value(columns.stride) != 1:
        raise step.fault("layout", "the rows of the destination are not runs of neighbours")
    align = BLOCK if row == "l0c.ub" else 0
    scale = ONE if stmt.scale is None else step.expr(stmt.scale)
    if scale.dtype != ONE.dtype:
        scale = Cast(scale, ONE.dtype)
    sizes = (rows.inside, columns.inside, m.tile.padded_rows, step.pitch(box, rows, align), scale)
    return step.instr(row, step.slot(box, align), m.slot, *sizes, *more, relu=stmt.relu)


def _converts(step: Step, stmt: Transfer) -> None:
    """Refuse a conversion that the drain has not."""
    chip = step.shared.target.chip
    src, dst = stmt.src.dtype, stmt.dst.dtype
    if chip is None or chip.drains is None or (src.name, dst.name) in chip.drains:
        return
    ways = sorted(b for a, b in chip.drains if a == src.name)
    raise step.fault(
        "dtype",
        f"a tile of {src} in L0C is not converted to {dst} on its way out",
        expected=f"{' or '.join(ways)} ({chip.drains_source})",
        got=str(dst),
        help="copy it as it is, and convert it in UB",
    )


def _l0c_ub(step: Step, stmt: Transfer) -> Block:
    """To the UB of one vector core, or half a tile to each."""
    m = step.matrix(stmt.src, wide=FRACTAL)
    box = step.box(stmt.dst)
    if not stmt.split:
        rows, columns = step.two_axes(box, m.rows, m.columns)
        sub = const(0) if stmt.sub is None else step.expr(stmt.sub)
        return (_drain(step, stmt, "l0c.ub", box, (rows, columns), sub),)
    axis = 0 if stmt.split == "m" else 1
    size = int_value((m.rows, m.columns)[axis])
    if size is None or size % 2:
        raise step.fault(
            "shape", "a tile that is split over two vector cores", expected="an even extent"
        )
    half = const(size // 2)
    made: list[Instr] = []
    for core in (0, 1):
        mins, extents = list(stmt.src.mins), list(stmt.src.extents)
        at = len(mins) - 2 + axis
        mins[at] = plus(mins[at], core * (size // 2))
        extents[at] = half
        part = stmt.with_(src=Region(stmt.src.buffer, tuple(mins), tuple(extents)))
        sizes = (half, m.columns) if axis == 0 else (m.rows, half)
        axes = step.two_axes(box, *sizes)
        made.append(_drain(step, part, "l0c.ub", box, axes, const(core)))
    return tuple(made)


_PATHS: dict[tuple[Memory, Memory], Callable[[Step, Transfer], Block]] = {
    (GLOBAL, UB): _gm_ub,
    (UB, GLOBAL): _ub_gm,
    (UB, UB): _ub_ub,
    (GLOBAL, L1): _to_l1("gm.l1.nz", "gm.l1.dn"),
    (UB, L1): _to_l1("ub.l1.nz", ""),
    (L1, L0A): _l1_l0("l1.l0a", True),
    (L1, L0B): _l1_l0("l1.l0b", False),
    (L1, Memory.L0A_SCALE): lower_scales.to_slot,
    (L1, Memory.L0B_SCALE): lower_scales.to_slot,
    (L0C, GLOBAL): _l0c_gm,
    (L0C, UB): _l0c_ub,
}
"""The lowering of each path that some chip has."""


# Fills and atomic updates -------------------------------------------------------------------------


def fill(step: Step, stmt: Fill) -> Block:
    """A constant into a tile of UB or L1."""
    memory = step.memory(stmt.dst)
    number = step.expr(stmt.value)
    if memory is L1:
        m = step.matrix(stmt.dst)
        return (
            step.instr("l1.fill", m.slot, number, m.rows, m.columns, m.tile.padded_rows, c0=m.c0),
        )
    if memory is not UB:
        raise step.fault(
            "scope",
            f"nothing fills a tile in {memory.title}",
            expected="a tile in UB or L1",
            help="let the first product start from zero (init=, clear_accum=)"
            if memory is L0C
            else "fill a tile in UB and copy it",
        )

    def one(boxes: list[Box]) -> Block:
        b = boxes[0]
        rows, columns = b.axes
        pitch = step.pitch(b, rows, BLOCK)
        out = step.slot(b, BLOCK)
        return (step.instr("v.dup", out, number, rows.extent, columns.extent, pitch),)

    return step.rows(step.joined([step.box(stmt.dst)]), one)


def atomic(step: Step, stmt: Atomic) -> Block:
    """A store that combines with what is there: the mode around a copy."""
    if not isinstance(stmt.value, Region) or stmt.previous is not None:
        raise step.fault(
            "scope",
            "an atomic update of a scalar, or with the old value",
            expected="a tile in UB or L0C added to global memory",
        )
    imm = (("op", stmt.op.value), ("dtype", str(stmt.dst.dtype)))
    on = Instr("mode.atomic", (), (), imm=imm, loc=stmt.loc)
    off = Instr("mode.atomic", (), (), imm=(("op", ""),), loc=stmt.loc)
    if step.memory(stmt.dst) is not GLOBAL:
        raise step.fault("scope", "an atomic update on chip", expected="global memory")
    moved = transfer(step, Transfer(stmt.value, stmt.dst, loc=stmt.loc))
    return (on, *moved, off)
