"""The allocation functions of every dialect. Scope strings come from `tilelang.scopes` and nowhere
else.

Each function gives a `BufferRef` (a `VarRef` for `alloc_var`) whose contents are undefined until
written, except that a variable without `init` is zero. Shapes are in elements.
"""

from __future__ import annotations

from typing import Any, cast

from tilelang import scopes
from tilelang.dtypes import DType
from tilelang.errors import TileTypeError, TileValueError, error
from tilelang.ir import build
from tilelang.ir.build import Builder
from tilelang.ir.expr import Buffer, Expr, Load, Var, int_value
from tilelang.ir.node import Node
from tilelang.ir.tile import Alloc
from tilelang.language.buffers import BufferRef, VarRef, here, plain, shape_of
from tilelang.language.values import as_expr, element_type, is_scalar
from tilelang.scopes import Dialect


def note_dialect(builder: Builder, dialect: Dialect, function: str) -> None:
    """Record that the kernel uses a name of `dialect`; two different Ascend dialects in one kernel
    are refused.
    """
    if dialect is Dialect.COMMON or builder.dialect == dialect.value:
        return
    if builder.dialect != Dialect.COMMON.value:
        raise error(
            "scope",
            f"T.{function} belongs to the {dialect.about.title}, the kernel is in the"
            f" {Dialect(builder.dialect).about.title}",
            here(),
            help="use the names of one dialect in a kernel: import everything from"
            f" `{dialect.about.module}`",
        )
    builder.dialect = dialect.value


def declare_buffer(
    dialect: Dialect,
    function: str,
    shape: Any,
    dtype: Any,
    explicit: str | None = None,
    *,
    init: Expr | None = None,
    arrive_counts: tuple[int, ...] = (),
) -> Buffer:
    """Allocate a buffer the way `function` of `dialect` does; emits the `Alloc`."""
    builder = build.current(f"T.{function}")
    if builder.launch is None and function != "alloc_global":
        raise error(
            "scope",
            f"T.{function} is used outside a kernel launch",
            here(),
            help="move it inside `with T.Kernel(...)`",
        )
    note_dialect(builder, dialect, function)
    element = element_type(dtype)
    extents = shape_of(shape, f"T.{function}")
    for e in extents:
        if int_value(e) is None and function != "alloc_global":
            raise error(
                "shape",
                f"T.{function} with an extent that is not known when the kernel is compiled",
                here(),
                expected="integers",
                got=str(BufferRef(Buffer("b", DType(element), extents)).shape),
                help="allocate the largest size needed and use a slice of it",
            )
        inner = next((n for n in e.walk() if not _known_at_launch(n, builder)), None)
        if inner is not None:
            raise error(
                "shape",
                f"T.{function} with an extent that is not known when the kernel is launched",
                here(),
                expected="sizes of tensors, scalar parameters, and numbers",
                got=str(plain(e)),
                help="allocate the largest size needed and use a slice of it",
            )
    scope = scopes.declare(
        dialect, function, str(element.base if element.lanes > 1 else element), explicit
    )
    name = builder.unique(builder.name_hint(function.removeprefix("alloc_")))
    buffer = Buffer(name, DType(element), extents, scope=scope, loc=here())
    builder.define(buffer)
    builder.emit(Alloc(buffer, init=init, arrive_counts=arrive_counts, loc=here()))
    return buffer


def _known_at_launch(n: Node, builder: Builder) -> bool:
    if isinstance(n, Var):
        return n.name in builder.dynamic or any(p.var == n for p in builder.params)
    return not isinstance(n, Load)


def _tile(dialect: Dialect, function: str, shape: Any, dtype: Any, scope: str | None) -> BufferRef:
    return BufferRef(declare_buffer(_effective(dialect, function), function, shape, dtype, scope))


def _effective(dialect: Dialect, function: str) -> Dialect:
    """The adapter shares its import path with the common dialect, so the kernel decides which of
    the two is meant.
    """
    builder = build.current(f"T.{function}")
    adapter = builder.dialect == Dialect.ADAPTER.value
    return Dialect.ADAPTER if dialect is Dialect.COMMON and adapter else dialect


def alloc_shared(shape: Any, dtype: Any, scope: str = "shared.dyn") -> BufferRef:
    """Shared memory of the block. A bool buffer is declared in the static scope `shared` whatever
    `scope` says.
    """
    return _tile(Dialect.COMMON, "alloc_shared", shape, dtype, scope)


def alloc_fragment(shape: Any, dtype: Any, scope: str = "local.fragment") -> BufferRef:
    """A tile in registers, split over the threads of the block by layout inference."""
    return _tile(Dialect.COMMON, "alloc_fragment", shape, dtype, scope)


def alloc_local(shape: Any, dtype: Any, scope: str = "local") -> BufferRef:
    """An array of each thread's own."""
    return _tile(Dialect.COMMON, "alloc_local", shape, dtype, scope)


def alloc_var(dtype: Any, *args: Any, scope: str = "local.var", init: Any = None) -> VarRef:
    """A scalar of each thread's own: `alloc_var(dtype, [init], [scope])`.

    It starts at `init`, or at zero. The name reads as the value, assigning to the name (or to
    `v[0]`) stores. TypeError for two inits, or a scope that is not a string.
    """
    if len(args) > 2:
        raise _var_error(
            f"T.alloc_var takes a dtype, an init and a scope, {len(args) + 1} arguments were given"
        )
    values = [a for a in args if not isinstance(a, str)]
    names = [a for a in args if isinstance(a, str)]
    if len(values) + (init is not None) > 1:
        raise _var_error("T.alloc_var is given two initial values")
    if len(names) > 1 or not isinstance(cast("Any", scope), str):
        raise _var_error("T.alloc_var is given a scope that is not one string")
    start = init if init is not None else (values[0] if values else None)
    element = element_type(dtype)
    element = DType("int64") if element.is_handle else element
    first = None if start is None else as_expr(start, DType(element))
    chosen = names[0] if names else scope
    explicit = None if chosen == "local.var" else chosen
    return VarRef(declare_buffer(Dialect.COMMON, "alloc_var", (1,), element, explicit, init=first))


def _var_error(message: str) -> TileTypeError:
    return TileTypeError(
        *error("value", message, here(), help="`T.alloc_var('float32', init=0.5)`").diagnostics
    )


def alloc_global(shape: Any, dtype: Any, scope: str = "global") -> BufferRef:
    """A workspace in global memory, allocated for each launch and shared by all blocks."""
    return _tile(Dialect.COMMON, "alloc_global", shape, dtype, scope)


def alloc_tmem(shape: Any, dtype: Any) -> BufferRef:
    """Tensor Memory of Blackwell: 128 lanes x 512 columns of 32 bit; at least two axes, the last
    two a matrix.

    Columns are rounded up to a power of two, 32 at least. Only tcgen05 instructions touch it
    (`T.gemm`, `T.copy`).
    """
    extents = shape_of(shape, "T.alloc_tmem")
    if len(extents) < 2:
        raise error(
            "shape",
            "T.alloc_tmem needs at least two axes",
            here(),
            expected="(lanes, columns)",
            got=f"{len(extents)} axis",
        )
    return _tile(Dialect.COMMON, "alloc_tmem", shape, dtype, None)


# An mbarrier counts its pending arrivals in 20 bits (PTX ISA, "mbarrier: contents").
_MOST_ARRIVALS = 2**20 - 1


def _arrivals(arrive_count: Any, function: str) -> tuple[int, ...]:
    several = not is_scalar(arrive_count) and hasattr(arrive_count, "__iter__")
    counts: list[Any] = list(arrive_count) if several else [arrive_count]
    out: list[int] = []
    for c in counts:
        known = int_value(as_expr(c))
        if known is None or not 1 <= known <= _MOST_ARRIVALS:
            raise error(
                "value",
                f"T.{function} with an arrival count of {c}",
                here(),
                cls=TileValueError,
                expected=f"integers from 1 to {_MOST_ARRIVALS}",
                got=str(c),
            )
        out.append(known)
    return tuple(out)


def alloc_barrier(arrive_count: Any) -> BufferRef:
    """mbarriers of the block, one per arrival count (an int or a list); ValueError for a count
    below 1.
    """
    counts = _arrivals(arrive_count, "alloc_barrier")
    return BufferRef(
        declare_buffer(
            Dialect.COMMON, "alloc_barrier", (len(counts),), "uint64", arrive_counts=counts
        )
    )


def alloc_cluster_barrier(arrive_count: Any) -> BufferRef:
    """mbarriers that all blocks of the cluster can reach; otherwise as `alloc_barrier`."""
    counts = _arrivals(arrive_count, "alloc_cluster_barrier")
    return BufferRef(
        declare_buffer(
            Dialect.COMMON, "alloc_cluster_barrier", (len(counts),), "uint64", arrive_counts=counts
        )
    )


def _descriptor(function: str, dtype: Any, scope: str | None = None) -> BufferRef:
    return BufferRef(declare_buffer(Dialect.COMMON, function, (1,), dtype, scope))


def alloc_descriptor(kind: str = "wgmma", dtype: Any = "uint64") -> BufferRef:
    """A matrix descriptor of hardware products: wgmma, tcgen05_smem or tcgen05_instr."""
    return _descriptor("alloc_descriptor", dtype, f"local.descriptor.{kind}")


def alloc_wgmma_desc(dtype: Any = "uint64") -> BufferRef:
    """A descriptor of an operand of wgmma."""
    return _descriptor("alloc_wgmma_desc", dtype)


def alloc_tcgen05_smem_desc(dtype: Any = "uint64") -> BufferRef:
    """A descriptor of an operand of tcgen05 in shared memory."""
    return _descriptor("alloc_tcgen05_smem_desc", dtype)


def alloc_tcgen05_instruction_desc(dtype: Any = "uint32") -> BufferRef:
    """The descriptor of a tcgen05 instruction."""
    return _descriptor("alloc_tcgen05_instruction_desc", dtype)


def alloc_tcgen05_instr_desc(dtype: Any = "uint32") -> BufferRef:
    """`alloc_tcgen05_instruction_desc`."""
    return _descriptor("alloc_tcgen05_instr_desc", dtype)


def alloc_ub(shape: Any, dtype: Any) -> BufferRef:
    """Unified Buffer of an Ascend vector core (adapter dialect)."""
    return _tile(Dialect.ADAPTER, "alloc_ub", shape, dtype, None)


def alloc_L1(shape: Any, dtype: Any) -> BufferRef:
    """L1 buffer of an Ascend cube core (adapter dialect)."""
    return _tile(Dialect.ADAPTER, "alloc_L1", shape, dtype, None)


def alloc_L0A(shape: Any, dtype: Any) -> BufferRef:
    """L0A, the left operand of the cube (adapter dialect)."""
    return _tile(Dialect.ADAPTER, "alloc_L0A", shape, dtype, None)


def alloc_L0B(shape: Any, dtype: Any) -> BufferRef:
    """L0B, the right operand of the cube (adapter dialect)."""
    return _tile(Dialect.ADAPTER, "alloc_L0B", shape, dtype, None)


def alloc_L0C(shape: Any, dtype: Any) -> BufferRef:
    """L0C, the accumulator of the cube (adapter dialect)."""
    return _tile(Dialect.ADAPTER, "alloc_L0C", shape, dtype, None)
