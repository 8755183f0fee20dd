"""Expressions over a parallel nest as operations of the vector units, with temporaries.

What enters: scalar expressions in the loop variables of a nest whose extents are constants. What
leaves: tile operations, and for each expression a `Tile` (a region, and the axes of the nest that
it varies on) or a scalar. What has no vector form raises `NoVectorForm`, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import Loc
from tilelang.ir.ascend import VECTOR_CASTS, Transfer, VectorOp, vector_types
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Region,
    Select,
    Unary,
    UnaryOp,
    Var,
    const,
    int_value,
)
from tilelang.ir.simplify import simplify, substitute
from tilelang.ir.tile import Alloc, Copy, Fill, Stmt
from tilelang.passes.build import Names, whole
from tilelang.scopes import Memory

UINT8 = DType("uint8")
FLOAT16 = DType("float16")
FLOAT32 = DType("float32")
BFLOAT16 = DType("bfloat16")
MASK_ALIGN = 32
"""Bytes: temporaries are whole blocks of the UB."""


class NoVectorForm(Exception):
    """An expression or statement that the vector units cannot carry out."""


@dataclass(frozen=True)
class Tile:
    """Elements of a region, one for each index of the axes `spans` of the nest, row-major."""

    region: Region
    spans: tuple[int, ...]

    @property
    def dtype(self) -> DType:
        """The element type."""
        return DType(self.region.dtype)


Operand = Tile | Expr

_BINARY = {
    BinaryOp.ADD: "add",
    BinaryOp.SUB: "sub",
    BinaryOp.MUL: "mul",
    BinaryOp.DIV: "div",
    BinaryOp.MIN: "min",
    BinaryOp.MAX: "max",
    BinaryOp.BITAND: "bitwise_and",
    BinaryOp.BITOR: "bitwise_or",
    BinaryOp.BITXOR: "bitwise_xor",
    BinaryOp.SHL: "bitwise_lshift",
    BinaryOp.SHR: "bitwise_rshift",
}
_COMMUTE = {"add", "mul", "min", "max", "bitwise_and", "bitwise_or", "bitwise_xor"}
_BY_ROW = {"add", "sub", "mul", "div", "max", "min"}
_UNARY = {
    "exp": "exp",
    "log": "ln",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "abs": "abs",
    "sigmoid": "sigmoid",
    "sin": "sin",
    "cos": "cos",
}
_COMPARE = {
    BinaryOp.EQ: "EQ",
    BinaryOp.NE: "NE",
    BinaryOp.GT: "GT",
    BinaryOp.GE: "GE",
    BinaryOp.LT: "LT",
    BinaryOp.LE: "LE",
}
_FLIPPED = {"GT": "LT", "GE": "LE", "LT": "GT", "LE": "GE"}


@dataclass
class Scratch:
    """Temporaries in the UB; one that is free is used again for what has its type and shape."""

    names: Names
    scope: str
    made: list[Alloc] = field(default_factory=list[Alloc])
    free: list[Buffer] = field(default_factory=list[Buffer])

    def take(self, dtype: DType, shape: Sequence[int], loc: Loc | None) -> Buffer:
        """A buffer of this type and shape."""
        for k, b in enumerate(self.free):
            if b.dtype == dtype and [int_value(e) for e in b.shape] == list(shape):
                return self.free.pop(k)
        buffer = self.names.buffer("tmp", dtype, shape, self.scope)
        self.made.append(Alloc(buffer, loc=loc))
        return buffer

    def give(self, operand: Operand) -> None:
        """An operand is not needed any more."""
        if not isinstance(operand, Tile):
            return
        buffer = operand.region.buffer
        mine = any(a.buffer.name == buffer.name for a in self.made)
        if mine and all(b.name != buffer.name for b in self.free):
            self.free.append(buffer)


class Values:
    """The expressions of one nest."""

    def __init__(
        self,
        loops: Sequence[Var],
        extents: Sequence[int],
        scratch: Scratch,
        memory: Callable[[Buffer], Memory],
        loc: Loc | None,
    ) -> None:
        self.vars = tuple(loops)
        self.extents = tuple(extents)
        self.scratch = scratch
        self.memory = memory
        self.loc = loc
        self.out: list[Stmt] = []
        self.all = tuple(range(len(extents)))

    # Places --------------------------------------------------------------------------------------

    def varies(self, e: Expr) -> bool:
        """Whether an expression depends on a loop variable of the nest."""
        return any(n in self.vars for n in e.walk() if isinstance(n, Var))

    def tile(self, buffer: Buffer, indices: Sequence[Expr]) -> Tile:
        """The elements that indices in the loop variables name, as a box."""
        mins: list[Expr] = []
        sizes: list[Expr] = []
        spans: list[int] = []
        for index in indices:
            axis, start = self._axis(index)
            mins.append(start)
            sizes.append(const(1 if axis is None else self.extents[axis], start.dtype))
            if axis is not None:
                spans.append(axis)
        if spans != sorted(set(spans)):
            raise NoVectorForm(f"the axes of {buffer.name} are walked in another order")
        return Tile(Region(buffer, tuple(mins), tuple(sizes), loc=self.loc), tuple(spans))

    def _axis(self, index: Expr) -> tuple[int | None, Expr]:
        """The axis that an index walks with step 1, None for none, and where it begins."""
        used = [k for k, v in enumerate(self.vars) if any(n is v for n in index.walk())]
        if not used:
            return None, index
        if len(used) > 1 or any(isinstance(n, Load) for n in index.walk()):
            raise NoVectorForm("an index is computed from several loop variables or elements")
        (axis,) = used
        var = self.vars[axis]
        zero, one = (Const(k, var.dtype) for k in (0, 1))
        start = simplify(substitute(index, {var: zero}))
        step = simplify(Binary(BinaryOp.SUB, simplify(substitute(index, {var: one})), start))
        rest = simplify(Binary(BinaryOp.SUB, index, _as(var, index.dtype)))
        if int_value(step) != 1 or self.varies(rest):
            raise NoVectorForm("an index does not go up by one")
        return axis, start

    def new(self, dtype: DType, spans: tuple[int, ...]) -> Tile:
        """A temporary for the axes `spans`; the others have extent 1."""
        shape = [n if k in spans else 1 for k, n in enumerate(self.extents)]
        return Tile(whole(self.scratch.take(dtype, shape, self.loc), self.loc), spans)

    # Expressions ---------------------------------------------------------------------------------

    def of(self, e: Expr, into: Tile | None = None) -> Operand:
        """What an expression is; `into` is where a tile over the whole nest may be put."""
        if not self.varies(e):
            return e
        form = _FORMS.get(type(e))
        if form is None:
            raise NoVectorForm(f"there is no vector operation for {type(e).__name__}")
        return form(self, e, into)

    def operator(self, e: Binary, into: Tile | None) -> Tile:
        """An operator of two values."""
        op = _BINARY.get(e.op)
        if op is None:
            raise NoVectorForm(f"there is no vector operation for {e.op.value}")
        return self._binary(op, self.of(e.a), self.of(e.b), DType(e.dtype), into)

    def unary(self, e: Unary, into: Tile | None) -> Tile:
        """An operator of one value."""
        op = {UnaryOp.NEG: "neg", UnaryOp.BITNOT: "bitwise_not"}.get(e.op)
        if op is None:
            raise NoVectorForm(f"there is no vector operation for {e.op.value}")
        return self._op(op, [self._tile(self.of(e.a))], DType(e.dtype), into)

    def call(self, e: Call, into: Tile | None) -> Tile:
        """A function."""
        args = [self.of(a) for a in e.args]
        if e.fn == "pow":
            return self._binary("pow", args[0], args[1], DType(e.dtype), into)
        op = _UNARY.get(e.fn)
        if op is None:
            raise NoVectorForm(f"there is no vector operation for {e.fn}")
        return self._op(op, [self._tile(args[0])], DType(e.dtype), into)

    def load(self, e: Load, into: Tile | None) -> Tile:
        """An element."""
        del into
        tile = self.tile(e.buffer, e.indices)
        where = self.memory(e.buffer)
        if where is Memory.UB:
            return tile
        if where is not Memory.GLOBAL:
            raise NoVectorForm(f"{e.buffer.name} is in {where.title}")
        copied = self.new(tile.dtype, tile.spans)
        self.out.append(Copy(tile.region, copied.region, loc=self.loc))
        return copied

    def _tile(self, x: Operand) -> Tile:
        if not isinstance(x, Tile):
            raise NoVectorForm("a function of scalars only")
        return x

    def _op(
        self,
        op: str,
        srcs: Sequence[Operand],
        dtype: DType,
        into: Tile | None,
        spans: tuple[int, ...] | None = None,
    ) -> Tile:
        """One operation on operands over the same axes. What there is for float32 and not for
        bfloat16 is computed there and rounded once.
        """
        over = spans if spans is not None else self._tile(srcs[0]).spans
        if not _has(op, dtype):
            if dtype != BFLOAT16 or not _has(op, FLOAT32):
                raise NoVectorForm(f"there is no {op} of {dtype}")
            wide = self._op(op, [self._as_type(x, FLOAT32) for x in srcs], FLOAT32, None, over)
            return self._as_tile(wide, dtype, into)
        fits = into is not None and into.spans == over and into.dtype == dtype
        for x in srcs:
            self.scratch.give(x)
        dst = into if fits and into is not None else self.new(dtype, over)
        regions = tuple(x.region if isinstance(x, Tile) else x for x in srcs)
        self.out.append(VectorOp(op, dst.region, regions, loc=self.loc))
        return dst

    def _as_type(self, x: Operand, dtype: DType) -> Operand:
        """An operand in another float type."""
        return self._as_tile(x, dtype, None) if isinstance(x, Tile) else Cast(x, dtype)

    def _as_tile(self, x: Tile, dtype: DType, into: Tile | None, rounding: str = "") -> Tile:
        """A tile in another type."""
        fits = into is not None and into.spans == x.spans and into.dtype == dtype
        dst = into if fits and into is not None else self.new(dtype, x.spans)
        modes = VECTOR_CASTS[x.dtype.name][dtype.name]
        how = next((m for m in (rounding, "CAST_RINT") if m in modes), "CAST_NONE")
        self.out.append(Transfer(x.region, dst.region, rounding=how, loc=self.loc))
        self.scratch.give(x)
        return dst

    def _binary(self, op: str, a: Operand, b: Operand, dtype: DType, into: Tile | None) -> Tile:
        if not isinstance(a, Tile) and op in _COMMUTE:
            a, b = b, a
        spans = tuple(sorted({*_spans(a), *_spans(b)}))
        if not isinstance(a, Tile):
            a = self.filled(a, dtype, spans)
        if a.spans != spans and op in _COMMUTE and isinstance(b, Tile) and b.spans == spans:
            a, b = b, a
        a = self.widened(a, spans)
        if isinstance(b, Tile) and b.spans != spans:
            if op in _BY_ROW and b.spans == spans[:-1] and _has(f"row_expand_{op}", dtype):
                return self._op(f"row_expand_{op}", [a, b], dtype, into)
            b = self.widened(b, spans)
        return self._op(op, [a, b], dtype, into)

    def filled(self, value: Expr, dtype: DType, spans: tuple[int, ...]) -> Tile:
        """A tile with one value everywhere."""
        tile = self.new(dtype, spans)
        self.out.append(Fill(tile.region, value, loc=self.loc))
        return tile

    def widened(self, tile: Tile, spans: tuple[int, ...]) -> Tile:
        """The tile repeated along the axes that it does not vary on."""
        if tile.spans == spans:
            return tile
        if not _has("broadcast", tile.dtype):
            if tile.dtype != BFLOAT16:
                raise NoVectorForm(f"there is no broadcast of {tile.dtype}")
            return self._as_tile(
                self.widened(self._as_tile(tile, FLOAT32, None), spans), BFLOAT16, None
            )
        boxed = self._boxed(tile)
        wide = self.new(tile.dtype, spans)
        self.out.append(VectorOp("broadcast", wide.region, (boxed.region,), loc=self.loc))
        self.scratch.give(boxed)
        return wide

    def _boxed(self, tile: Tile) -> Tile:
        """The tile with the axes of the nest, of extent 1 where it does not vary."""
        wanted = [n if k in tile.spans else 1 for k, n in enumerate(self.extents)]
        if [int_value(e) for e in tile.region.extents] == wanted:
            return tile
        copied = self.new(tile.dtype, tile.spans)
        self.out.append(Copy(tile.region, copied.region, loc=self.loc))
        self.scratch.give(tile)
        return copied

    def cast(self, e: Cast, into: Tile | None) -> Tile:
        """A conversion."""
        a = self._tile(self.of(e.a))
        if e.rbits is not None or e.rounding not in ("", "rn", "rz"):
            raise NoVectorForm(f"a conversion with rounding {e.rounding}")
        if a.dtype == e.type:
            return a
        to_int = a.dtype.is_float and e.type.is_integer
        rounding = "CAST_TRUNC" if to_int or e.rounding == "rz" else "CAST_RINT"
        return self._converted(a, DType(e.type), into, rounding)

    def _converted(self, a: Tile, dtype: DType, into: Tile | None, rounding: str) -> Tile:
        """A conversion that the vector units have, else by way of wider types without a loss."""
        direct = VECTOR_CASTS.get(a.dtype.name, {})
        if dtype.name in direct:
            return self._as_tile(a, dtype, into, rounding)
        wider = next((t for t in (FLOAT32, FLOAT16) if direct.get(t.name) == ("CAST_NONE",)), None)
        if wider is None:
            raise NoVectorForm(f"there is no conversion of {a.dtype} to {dtype}")
        return self._converted(self._as_tile(a, wider, None), dtype, into, rounding)

    def index(self, e: Var, into: Tile | None) -> Tile:
        """A loop variable as a value."""
        del into
        axis = self.vars.index(e)
        if not _has("createvecindex", DType(e.dtype)):
            raise NoVectorForm(f"there is no createvecindex of {e.dtype}")
        tile = self.new(DType(e.dtype), (axis,))
        zero = Const(0, e.dtype)
        self.out.append(VectorOp("createvecindex", tile.region, (zero,), loc=self.loc))
        return tile

    # Choices -------------------------------------------------------------------------------------

    def select(self, e: Select, into: Tile | None) -> Operand:
        """A choice."""
        if not self.varies(e.cond):
            raise NoVectorForm("a choice between tiles by a scalar")
        if e.dtype == BFLOAT16:  # it moves values, which float32 has too
            wide = Select(e.cond, Cast(e.t, FLOAT32), Cast(e.f, FLOAT32), lazy=e.lazy)
            return self.of(Cast(wide, BFLOAT16), into)
        if not _has("select", DType(e.dtype)):
            raise NoVectorForm(f"there is no select of {e.dtype}")
        mask = self._mask(e.cond)
        a = self.of(e.t)
        a = a if isinstance(a, Tile) else self.filled(a, DType(e.dtype), self.all)
        a = self.widened(a, self.all)
        b = self.of(e.f)
        b = self.widened(b, self.all) if isinstance(b, Tile) else b
        for x in (mask, a, b):
            self.scratch.give(x)
        fits = into is not None and into.spans == self.all and into.dtype == e.dtype
        dst = into if fits and into is not None else self.new(DType(e.dtype), self.all)
        srcs = (mask.region, a.region, b.region if isinstance(b, Tile) else b)
        mode = "VSEL_TENSOR_TENSOR_MODE" if isinstance(b, Tile) else "VSEL_TENSOR_SCALAR_MODE"
        self.out.append(VectorOp("select", dst.region, srcs, imm=(("mode", mode),), loc=self.loc))
        return dst

    def _mask(self, cond: Expr) -> Tile:
        """One bit for each index of the nest."""
        if not isinstance(cond, Binary) or cond.op not in _COMPARE:
            raise NoVectorForm("a condition that is no comparison")
        mode = _COMPARE[cond.op]
        if cond.a.dtype == BFLOAT16:
            return self._mask(Binary(cond.op, Cast(cond.a, FLOAT32), Cast(cond.b, FLOAT32)))
        if not _has("compare", DType(cond.a.dtype), mode):
            raise NoVectorForm(f"a comparison of {cond.a.dtype} by {mode}")
        a, b = self.of(cond.a), self.of(cond.b)
        if not isinstance(a, Tile):
            a, b, mode = b, a, _FLIPPED.get(mode, mode)
        a = self.widened(self._tile(a), self.all)
        b = self.widened(b, self.all) if isinstance(b, Tile) else b
        count = 1
        for n in self.extents:
            count *= n
        size = -(-count // (8 * MASK_ALIGN)) * MASK_ALIGN
        mask = Tile(whole(self.scratch.take(UINT8, [size], self.loc), self.loc), self.all)
        srcs = (a.region, b.region if isinstance(b, Tile) else b)
        self.out.append(VectorOp("compare", mask.region, srcs, imm=(("mode", mode),), loc=self.loc))
        for x in (a, b):
            self.scratch.give(x)
        return mask


def has_cast(src: DType, dst: DType) -> bool:
    """Whether the vector units convert one type to the other, or need not."""
    return src == dst or dst.name in VECTOR_CASTS.get(src.name, {})


def _has(op: str, dtype: DType, mode: str = "") -> bool:
    """Whether the vector units have an operation for an element type."""
    return dtype.name in vector_types(op, mode)


def _spans(x: Operand) -> tuple[int, ...]:
    return x.spans if isinstance(x, Tile) else ()


def _as(var: Var, dtype: DType) -> Expr:
    return var if var.dtype == dtype else Cast(var, dtype)


_FORMS: dict[type[Expr], Callable[[Values, Any, Tile | None], Operand]] = {
    Load: Values.load,
    Binary: Values.operator,
    Unary: Values.unary,
    Call: Values.call,
    Cast: Values.cast,
    Select: Values.select,
    Var: Values.index,
}
