"""Scalar expressions: typed, pure but for `Load`, and interned.

Operands of a `Binary` have one dtype; every conversion is a `Cast`. An operation with a side effect
(an atomic with its previous value, a shuffle) is a statement that binds a variable, so that the
order of effects is the order of statements. A `Load` is an event rather than a value: it is not
interned and carries its own location.
"""

from __future__ import annotations

import enum
from typing import Any

from tilelang.dtypes import DType
from tilelang.ir.node import Effect, Node, attr, operand


class Expr(Node):
    """A scalar value of one dtype (a vector dtype has several lanes)."""

    @property
    def dtype(self) -> DType:
        """The element type of the value."""
        raise NotImplementedError


class Const(Expr, interned=True):
    """A literal, exactly representable in its dtype."""

    value: int | float | bool = attr()
    type: DType = attr()

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type


class Var(Expr, interned=True):
    """An immutable name. Names are unique within a kernel, so equality by name is equality."""

    name: str = attr()
    type: DType = attr()

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type


class BinaryOp(enum.Enum):
    """Operators of two values. The value is the spelling in the text form (a symbol or a
    function).
    """

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    FLOORDIV = "//"
    FLOORMOD = "%"
    TRUNCDIV = "truncdiv"
    TRUNCMOD = "truncmod"
    MIN = "min"
    MAX = "max"
    BITAND = "&"
    BITOR = "|"
    BITXOR = "^"
    SHL = "<<"
    SHR = ">>"
    EQ = "=="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    AND = "and"
    OR = "or"

    __hash__ = object.__hash__  # members are one each; that of Enum is a call in Python

    @property
    def is_compare(self) -> bool:
        """Whether the result is a bool whatever the operands are."""
        return self in COMPARES

    @property
    def is_logical(self) -> bool:
        """Whether the operands are bools; the right one is evaluated whatever the left one is."""
        return self in (BinaryOp.AND, BinaryOp.OR)


COMPARES = frozenset({BinaryOp.EQ, BinaryOp.NE, BinaryOp.LT, BinaryOp.LE, BinaryOp.GT, BinaryOp.GE})


class Binary(Expr, interned=True):
    """`op` on two values of one dtype. Integers wrap; floats round to the dtype (semantics:
    docs/language.md).
    """

    op: BinaryOp = attr()
    a: Expr = operand()
    b: Expr = operand()

    @property
    def dtype(self) -> DType:
        """The element type."""
        known: DType | None = self.__dict__.get("_dtype")
        if known is None:  # asked for often, and the way to the leaves may be long
            truth = self.op.is_compare or self.op.is_logical
            known = BOOL if truth else self.a.dtype
            object.__setattr__(self, "_dtype", known)
        return known


class UnaryOp(enum.Enum):
    """Operators of one value."""

    NEG = "-"
    NOT = "not"
    BITNOT = "~"


class Unary(Expr, interned=True):
    """`op` on one value; the result has its dtype."""

    op: UnaryOp = attr()
    a: Expr = operand()

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.a.dtype


class Cast(Expr, interned=True):
    """Conversion by value, by the rules of `tilelang.dtypes.cast`.

    `rounding` is one of rn, rz, rp, rm, rs, or "" for the type's own mode (rn but for e8m0 and
    tfloat32); rs (stochastic) needs `rbits`, a uint32 of random bits.
    """

    a: Expr = operand()
    type: DType = attr()
    rounding: str = attr(default="")
    saturate: bool = attr(default=True)
    rbits: Expr | None = operand(default=None)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type


class Bitcast(Expr, interned=True):
    """The same bits as another dtype of the same size."""

    a: Expr = operand()
    type: DType = attr()

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type


class Select(Expr, interned=True):
    """`t` where `cond` holds, else `f`. With `lazy`, loads of the arm not taken do not happen."""

    cond: Expr = operand()
    t: Expr = operand()
    f: Expr = operand()
    lazy: bool = attr(default=False)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.t.dtype


class Call(Expr, interned=True):
    """A pure function of the table in `ir/functions.py`, by name; `params` are its compile-time
    settings.
    """

    fn: str = attr()
    args: tuple[Expr, ...] = operand()
    type: DType = attr()
    params: tuple[Any, ...] = attr(default=())

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type


class Buffer(Node):
    """A named array with a declared scope. Names are unique within a kernel.

    `shape` is in elements. `strides`, in elements, is None for row-major. `scope` is the declared
    scope string; what memory it means is the dialect's decision (`scopes.memory_of`). Equality is
    by all fields.
    """

    name: str = attr()
    type: DType = attr()
    shape: tuple[Expr, ...] = operand()
    scope: str = attr(default="global")
    strides: tuple[Expr, ...] | None = operand(default=None)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)


class Load(Expr):
    """One element of a buffer, read when the statement that contains it runs.

    Out of bounds in global memory it gives the safe value (0 unless annotated); on chip it is a
    fault.
    """

    buffer: Buffer = operand(effect=Effect.READ)
    indices: tuple[Expr, ...] = operand()

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.buffer.dtype


class AtomicLoad(Load):
    """A `Load` in one piece, ordered against other threads' accesses; a loop may wait on it.

    `memory_order` is one of relaxed, consume, acquire, seq_cst.
    """

    buffer: Buffer = operand(effect=Effect.READ | Effect.ATOMIC)
    memory_order: str = attr(default="seq_cst")


class Region(Node):
    """A box of a buffer: `mins` and `extents`, in elements, one of each per axis."""

    buffer: Buffer = operand()
    mins: tuple[Expr, ...] = operand()
    extents: tuple[Expr, ...] = operand()

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.buffer.dtype


class AddressOf(Expr):
    """The address of one element, as a handle."""

    buffer: Buffer = operand()
    indices: tuple[Expr, ...] = operand()

    @property
    def dtype(self) -> DType:
        """The element type."""
        return DType("handle")


class Pack(Expr):
    """A vector value made of its lanes, lane 0 first; one lane value is repeated in all of them."""

    lanes: tuple[Expr, ...] = operand()
    type: DType = attr()

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type


class Lane(Expr):
    """One lane of a vector value."""

    a: Expr = operand()
    lane: int = attr()

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.a.dtype.base


class LoadVector(Expr):
    """Neighbouring elements of the last axis, read as one vector (or scalar) value of `type`.

    The bits are taken as they are. Where `pred` is given and does not hold, the value is zero and
    nothing is read.
    """

    buffer: Buffer = operand(effect=Effect.READ)
    indices: tuple[Expr, ...] = operand()
    type: DType = attr()
    pred: Expr | None = operand(default=None)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.type


INT32 = DType("int32")
BOOL = DType("bool")


def const(value: int | float | bool, dtype: DType = INT32) -> Const:
    """A literal; `value` must be representable in `dtype` (see `dtypes.const_value`)."""
    return Const(value, dtype)


def int_value(e: Expr) -> int | None:
    """The value of an integer literal, None for anything else."""
    return (
        e.value
        if isinstance(e, Const) and isinstance(e.value, int) and not isinstance(e.value, bool)
        else None
    )
