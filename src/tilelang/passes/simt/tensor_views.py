"""How a buffer and its views lie in Tensor Memory.

What enters: an allocation, and the body that uses it. What leaves: the columns that it asks for,
and the `Cells` of the buffer and of each view of it. Rows are lanes, so a view keeps the rows and
the bytes of each; of more than 128 rows, each 128 are a matrix of their own. Where a view has
elements of another size, those of less than a cell share cells, as the bytes of a row lie one after
the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilelang.dtypes import DType
from tilelang.errors import TileError, error
from tilelang.ir.expr import Buffer, int_value
from tilelang.ir.sync import AsyncGemm
from tilelang.ir.tile import Alloc, Block, Gemm, Stmt, View
from tilelang.layout.cells import CELL_BITS, ROWS, Cells, Lanes
from tilelang.passes.lower_parallel import statements
from tilelang.passes.simt.launch import refused, static_shape
from tilelang.passes.tensor_columns import columns_asked, is_packed

Lies = dict[str, Cells | None]


def placed_cells(
    alloc: Alloc, body: Block, roots: Mapping[str, str], *, pair: bool
) -> tuple[int, Lies]:
    """The columns that a buffer asks for, and how it and its views lie; raises for a buffer that
    cannot lie as its uses need it.
    """
    root = alloc.buffer
    shape = static_shape(root)
    if shape is None:
        raise refused(alloc, "Tensor Memory whose size is known at run time only")
    views = [
        s for s in statements(body) if isinstance(s, View) and roots.get(s.buffer.name) == root.name
    ]
    for view in views:
        _check_view(view, root)
    members = [root, *(v.buffer for v in views)]
    roles, last = _roles({b.name for b in members}, body)
    mixed = any(b.dtype.bits != root.dtype.bits for b in members)
    small = any(b.dtype.bits < CELL_BITS for b in members)
    if "c" in roles and small and ("a" in roles or mixed):
        _check_result(members, body, last)
    shared = is_packed(roles, mixed=mixed)
    asked = columns_asked(math.prod(shape), shape[-2], root.dtype.bits, packed=shared)
    few = Lanes.HALF if shape[-2] != 64 else _few_rows(roles, last, pair=pair)
    cells: Lies = {}
    for b in members:
        cells[b.name] = _cells(b, few, packed=shared and b.dtype.bits < CELL_BITS)
    return asked, cells


def _few_rows(roles: str, last: Stmt | None, *, pair: bool) -> Lanes:
    """How 64 rows lie."""
    if not pair:
        return Lanes.HALF
    if "a" in roles and "c" in roles and last is not None:
        raise error(
            "target",
            "operand A of a product of two blocks lies where the result of another does",
            last.loc,
            expected="one of the two, with 64 rows: A lies twice, a result in two halves",
            help="use 128 rows for each block, or another buffer",
        )
    return Lanes.TWICE if "a" in roles else Lanes.FOLDED


def _cells(buffer: Buffer, few: Lanes, *, packed: bool) -> Cells | None:
    shape = static_shape(buffer) or (0, 0)
    rows, columns = shape[-2:]
    if not rows or (rows % ROWS and rows != 64):
        return None
    lanes = few if rows == 64 else Lanes.FULL
    bands = max(rows // ROWS, 1)
    return Cells(lanes, columns, buffer.dtype.bits, math.prod(shape[:-2]), packed, bands)


def _roles(names: set[str], body: Block) -> tuple[str, Stmt | None]:
    """The operands of products that buffers are, and the last such product."""
    roles, last = "", None
    for s in statements(body):
        if isinstance(s, (Gemm, AsyncGemm)):
            mine = [role for role in "ac" if getattr(s, role).buffer.name in names]
            roles, last = roles + "".join(mine), s if mine else last
    return roles, last


def _check_result(members: list[Buffer], body: Block, last: Stmt | None) -> None:
    """A result whose elements have cells of their own shares its memory with what lies packed."""
    names = {b.name for b in members if b.dtype.bits < CELL_BITS}
    whole = {b.name for b in members} - names
    results = [
        s for s in statements(body) if isinstance(s, (Gemm, AsyncGemm)) and s.c.buffer.name in names
    ]
    if not results and whole:
        return
    name = (results[0].c.buffer if results else members[0]).name
    raise error(
        "target",
        f"{name} is operand A of one product and the result of another"
        if not whole
        else f"{name} is the result of a product, and a view of elements of another size",
        None if last is None else last.loc,
        expected="one of the two: A lies packed in Tensor Memory, results do not",
        help="copy the result into a fragment and from there into a buffer of its own",
    )


def _check_view(view: View, root: Buffer) -> None:
    """A view has the rows of its buffer, and their bytes."""
    b = view.buffer
    offset = 0 if view.offset is None else int_value(view.offset)
    if b.rank > 1 and root.rank > 1 and offset == 0 and _row(b) == _row(root):
        return
    raise _no_view(view, root)


def _row(buffer: Buffer) -> tuple[int | None, int | None]:
    """The rows of a matrix, or of each of its bands, and the bits of one."""
    rows, columns = (int_value(n) for n in buffer.shape[-2:])
    bits = DType(buffer.dtype).bits
    if rows is not None and rows % ROWS == 0:
        rows = ROWS
    return rows, None if columns is None else columns * bits


def _no_view(view: View, root: Buffer) -> TileError:
    rows, bits = _row(root)
    return error(
        "target",
        f"the view {view.buffer.name} has other rows than {root.name} in Tensor Memory",
        view.loc,
        expected=f"{rows} rows of {(bits or 0) // 8} bytes: a row is a lane",
        got=f"{tuple(int_value(n) for n in view.buffer.shape)} of {view.buffer.dtype}",
        help="copy the buffer into a fragment and take another shape of that",
    )
