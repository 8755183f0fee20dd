"""What buffers need, before they become arrays: how many scalars, whether an address.

What enters: buffers, and functions of the tile stage. What leaves: sizes as expressions, the
assertion that a workspace can exist, and the names of the buffers with a property.
"""

from __future__ import annotations

from tilelang.dtypes import DType
from tilelang.errors import error
from tilelang.ir.expr import (
    AddressOf,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    LoadVector,
    Region,
    Var,
    const,
    int_value,
)
from tilelang.ir.node import Node
from tilelang.ir.tile import (
    Alloc,
    Assert,
    Block,
    For,
    Function,
    LoopKind,
    Print,
    Store,
    StoreVector,
    View,
)
from tilelang.passes.accesses import wide_size
from tilelang.passes.build import times
from tilelang.scopes import Memory

MOST_BYTES = 1 << 47
"""No process has more memory: it is what the addresses of the machines of today reach."""

FLOAT64 = DType("float64")


def scalar_shape(b: Buffer) -> tuple[Expr, ...]:
    """The shape; the lanes of a vector type are one more axis."""
    return b.shape if b.dtype.is_scalar else (*b.shape, const(b.dtype.lanes))


def scalar_count(b: Buffer) -> Expr | None:
    """How many scalars a buffer without strides holds."""
    if b.strides is not None:
        return None
    if len(b.shape) == 1 and b.dtype.is_scalar:
        return b.shape[0]
    total: Expr = Const(b.dtype.lanes, DType("int64"))
    for extent in b.shape:
        total = times(total, wide_size(extent))
    value = int_value(total)
    return const(value) if value is not None and value < 1 << 31 else total


def room_for(stmt: Alloc, size: Expr) -> Block:
    """What must hold for the bytes of a workspace to be countable. The sizes are multiplied as
    floats, which do not wrap.
    """
    b, most = stmt.buffer, MOST_BYTES // stmt.buffer.dtype.bytes
    message = f"there is no memory for the workspace {b.name}"
    known = int_value(size)
    if known is not None:
        if known > most:
            raise error("capacity", message, stmt.loc, got=f"{known} elements of {b.dtype}")
        return ()
    total: Expr = Const(1.0, FLOAT64)
    for extent in b.shape:
        total = Binary(BinaryOp.MUL, total, Cast(extent, FLOAT64))
    fits = Binary(BinaryOp.LE, total, Const(float(most), FLOAT64))
    return (Assert(fits, message=message, kind="capacity", loc=stmt.loc),)


def statically_indexed(fn: Function) -> set[str]:
    """Arrays of a thread whose indices are known after unrolling."""
    found: set[str] = set()
    bad: set[str] = set()

    def look(node: Node, known: frozenset[Var]) -> None:
        if isinstance(node, (Load, LoadVector, Store, StoreVector)):
            found.add(node.buffer.name)
            static = isinstance(node, (Load, Store)) and all(
                n in known if isinstance(n, Var) else not isinstance(n, Load)
                for i in node.indices
                for n in i.walk()
            )
            if not static:
                bad.add(node.buffer.name)
        elif isinstance(node, (AddressOf, View, Region, Print)):
            bad.update(n.name for n in node.children() if isinstance(n, Buffer))
        inside = known
        if isinstance(node, For) and node.kind is not LoopKind.SERIAL:
            inside = known | {node.var}
        for child in node.children():
            look(child, inside)

    for stmt in fn.body:
        look(stmt, frozenset())
    return found - bad


def addressed(fn: Function) -> set[str]:
    """Buffers that need an address."""
    found: set[str] = set()
    for node in fn.walk():
        if isinstance(node, View):
            found |= {node.source.name, node.buffer.name}
        elif isinstance(node, AddressOf):
            found.add(node.buffer.name)
    return found


def in_registers(
    memory: Memory, b: Buffer, count: int, *, static: set[str] | None, addressed: set[str]
) -> bool:
    """Whether a buffer can be in registers, which have no computed index.

    `static` are the arrays of many threads whose indices are known, None for one thread a block.
    """
    if memory is Memory.FRAGMENT:
        return static is not None
    if static is not None and memory is Memory.LOCAL:
        return b.name in static
    return memory in (Memory.LOCAL, Memory.VAR) and count == 1 and b.name not in addressed


def shared_align(size: int) -> int:
    """The alignment of a shared array: that of the widest access that it is large enough for;
    tiles begin where a swizzle of 128 bytes begins, others where a tensor copy may begin.
    """
    return 1024 if size >= 1024 else 128 if size >= 128 else 16
