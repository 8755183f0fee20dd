"""The thread stage: what one thread does, with flat arrays, addresses, hardware instructions and
synchronisation explicit.

A `Program` holds host-level statements and `Kernel`s, in the order in which they run. Inside a
kernel, scalar expressions and control flow are those of the tile stage (`Let`, `For`, `While`,
`If`, `Break`, `Continue`, `ThreadReturn`, `Assert`, `Assume`, `Print`); memory is touched by
`Elem`, `Write` and `Instr` only. Nothing is implied: an access outside an array is a fault of the
compiler, every guard is an `If`, every barrier, fence and wait an `Instr`. `ir/verify_thread.py`
is the executable specification.

A `For` of kind VECTORIZED promises that any number of neighbouring iterations may be carried out in
lockstep, statement by statement: no iteration reads what another one writes.
"""

from __future__ import annotations

import enum
from typing import Any

from tilelang.dtypes import DType
from tilelang.ir.expr import Expr, Var
from tilelang.ir.node import Effect, Node, attr, binds, body, operand
from tilelang.ir.tile import Block, Stmt

HANDLE = DType("handle")


class Space(enum.Enum):
    """Where an array is, and so who sees it.

    SHARED is one instance per block (on a CPU: in the arena of the worker that runs the block),
    LOCAL one per thread with addresses, REGISTER one per thread without: its indices are known when
    the code is emitted, after unrolling. TENSOR is the Tensor Memory of sm_100. The memories of an
    Ascend core group are UB, one of each vector core, and L1, L0A, L0B and L0C, of the cube core,
    with the scales of what lies in L0A and L0B.
    """

    GLOBAL = "global"
    SHARED = "shared"
    REGISTER = "register"
    LOCAL = "local"
    TENSOR = "tensor"
    UB = "ub"
    L1 = "l1"
    L0A = "l0a"
    L0B = "l0b"
    L0C = "l0c"
    L0A_SCALE = "l0a_scale"
    L0B_SCALE = "l0b_scale"


ON_CORE = (
    *(Space.UB, Space.L1, Space.L0A, Space.L0B, Space.L0C),
    *(Space.L0A_SCALE, Space.L0B_SCALE),
)
"""The memories of an Ascend core group; an array there has its byte address from the start."""


class Array(Node):
    """A named run of `size` elements of one scalar dtype. Names are unique within a program.

    An element takes the bytes of its dtype's storage, so one of fewer than 8 bits a whole byte.
    `size` is None for global memory whose extent the code does not need. `align` is the alignment
    of the first element in bytes, 0 for that of an element. Equality is by all fields.
    """

    name: str = attr()
    type: DType = attr()
    size: Expr | None = operand()
    space: Space = attr(default=Space.GLOBAL)
    align: int = attr(default=0)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type


class TensorMap(Node):
    """A CUtensorMap: a box-wise view of `array` for the Tensor Memory Accelerator.

    Axes are innermost first, as cuTensorMapEncodeTiled has them: `dims` in elements, `strides` in
    bytes (of all axes but the innermost, whose elements are neighbours), `box` in elements.
    `swizzle` is the span of the shared-memory swizzle in bytes: 0, 32, 64 or 128. Elements outside
    are zero, or NaN with `nan_fill`.
    """

    name: str = attr()
    array: Array = operand()
    dims: tuple[Expr, ...] = operand()
    strides: tuple[Expr, ...] = operand()
    box: tuple[int, ...] = attr()
    swizzle: int = attr(default=0)
    l2_promotion: int = attr(default=0)
    nan_fill: bool = attr(default=False)


class Elem(Expr):
    """Reads `type`, a scalar or a vector of neighbouring elements, starting at element `index`.

    `type` has the array's element type in each lane. `align` is the alignment of the address in
    bytes that is known; 0 means that of the whole access. `hints` (cache operators) never change
    the value.
    """

    array: Array = operand(effect=Effect.READ)
    index: Expr = operand()
    type: DType = attr()
    align: int = attr(default=0)
    hints: tuple[tuple[str, Any], ...] = attr(default=())

    @property
    def dtype(self) -> DType:
        """The dtype of the value."""
        return self.type


class Addr(Expr):
    """The address of element `index`: a generic pointer (`handle`), or with `type` uint32 the byte
    address within the array's own space, which is what shared-memory instructions take.
    """

    array: Array = operand()
    index: Expr = operand()
    type: DType = attr(default=HANDLE)

    @property
    def dtype(self) -> DType:
        """The dtype of the value."""
        return self.type


class Slot(Node):
    """`count` neighbouring elements of an array, from `index` on, as an operand of an instruction.

    What the instruction does to them is said by its row.
    """

    array: Array = operand()
    index: Expr = operand()
    count: int = attr()

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.array.dtype


Operand = Slot | Expr | TensorMap


class Declare(Stmt):
    """Gives an array storage for the rest of the enclosing block.

    `offset` is its place in the pool of its space (bytes of the kernel's `shared` or of a core's
    memory, columns of Tensor Memory), None where memory is not planned yet or the emitter chooses.
    Contents are undefined; `init` sets the single element of a variable. At host level it makes a
    workspace in global memory, which lives as long as one call.
    """

    array: Array = binds()
    offset: int | None = attr(default=None)
    init: Expr | None = operand(default=None)


class At(Stmt):
    """A name for the memory at an address, as another type or from another element on.

    `address` is a `handle`; it is aligned as the array says.
    """

    array: Array = binds()
    address: Expr = operand()


class Write(Stmt):
    """Writes `value`, a scalar or a vector of neighbouring elements, starting at element `index`.

    `align` and `hints` are as for `Elem`.
    """

    array: Array = operand(effect=Effect.WRITE)
    index: Expr = operand()
    value: Expr = operand()
    align: int = attr(default=0)
    hints: tuple[tuple[str, Any], ...] = attr(default=())


class Instr(Stmt):
    """One instruction of the machine, named by its row (`isa/instr.py`), which says all about it:
    the kind, effect, space, dtype and count of each operand, the immediates, and what it means.

    `results` are scalars that it computes; `outs` are the arrays' elements that it writes or
    updates, `ins` what it reads. `imm` are its immediates by name.
    """

    row: str = attr()
    outs: tuple[Slot, ...] = operand()
    ins: tuple[Operand, ...] = operand()
    results: tuple[Var, ...] = binds(default=())
    imm: tuple[tuple[str, Any], ...] = attr(default=())


class MakeTensorMap(Stmt):
    """Encodes a tensor map on the host, at launch."""

    map: TensorMap = binds()


class Kernel(Stmt):
    """One launch: `grid` blocks (1 to 3 extents) of `block` threads (1 to 3 extents).

    The body uses `params`, the names it binds and nothing else from the host. `vars` are the block
    indices, `thread_vars` the thread indices (empty where the body names no thread). `shared` is
    the size in bytes of a block's shared pool. `cluster` is blocks per cluster, per axis;
    `min_blocks` the blocks that an SM should hold at least, 0 for no wish.
    """

    name: str = attr()
    params: tuple[Array | Var | TensorMap, ...] = operand()
    grid: tuple[Expr, ...] = operand()
    block: tuple[int, ...] = attr()
    vars: tuple[Var, ...] = binds()
    thread_vars: tuple[Var, ...] = binds()
    body: Block = body()
    shared: int = attr(default=0)
    cluster: tuple[int, ...] = attr(default=())
    min_blocks: int = attr(default=0)
    attrs: tuple[tuple[str, Any], ...] = attr(default=())


class Argument(Node):
    """A parameter of a program: a tensor (`array`, with `shape` and `strides` in elements) or a
    runtime scalar (`var`); neither for a tensor that nothing uses, which may be None.

    `strides` is None for row-major without gaps. `pointer` marks an address given as a number.
    """

    name: str = attr()
    array: Array | None = binds(default=None)
    var: Var | None = binds(default=None)
    shape: tuple[Expr, ...] = operand(default=())
    strides: tuple[Expr, ...] | None = operand(default=None)
    pointer: bool = attr(default=False)


class Program(Node):
    """A lowered function: parameters, sizes that launch binds, and host-level statements.

    At host level stand `Let`, `Declare` (workspaces), `MakeTensorMap`, `Assert`, `Assume`, `Print`
    without a value, control flow, and `Kernel`, each of which runs after those before it.
    `dynamic`, `outputs` and `attrs` are those of the source function.
    """

    name: str = attr()
    params: tuple[Argument, ...] = operand()
    dynamic: tuple[Var, ...] = binds()
    body: Block = body()
    outputs: tuple[int, ...] = attr(default=())
    attrs: tuple[tuple[str, Any], ...] = attr(default=())


def kernels_of(program: Program) -> list[Kernel]:
    """The kernels of a program, in order."""
    return [n for n in program.walk() if isinstance(n, Kernel)]


def element(array: Array, index: Expr, lanes: int = 1, *, align: int = 0) -> Elem:
    """`lanes` elements of an array, read as a scalar or vector."""
    return Elem(array, index, array.type.with_lanes(lanes), align=align)
