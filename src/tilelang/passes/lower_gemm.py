"""Matrix products as one block-wide instruction on packed operands.

What enters: a function of the tile stage. What leaves: one in which every `Gemm` has operands on
chip, all of one computing type, with B's rows contiguous; anything else has been copied (and
converted, or turned) into a buffer of its own before. Products of a runtime size are loops. The
product then becomes the instruction `gemm.tile`, whose micro-kernel an emitter makes from the
vector facts of its machine.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilelang.dtypes import DType
from tilelang.errors import error
from tilelang.ir.expr import (
    BOOL,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    Region,
    Select,
    Var,
    const,
    int_value,
)
from tilelang.ir.simplify import equal
from tilelang.ir.tile import Alloc, Assert, Block, Function, Gemm, If, Let, Stmt, Store
from tilelang.isa.target import Target
from tilelang.passes.build import (
    Names,
    as_type,
    compare,
    element,
    get_scalar,
    literal,
    loops_over,
    map_launches,
    map_statements,
    parallel,
    place,
    serial,
    set_scalar,
    shifted,
    static_extents,
    variable,
    whole,
)
from tilelang.scopes import Dialect, Memory, memory_of

F32, F64, I32, I64 = (DType(n) for n in ("float32", "float64", "int32", "int64"))


def lower_gemm(fn: Function, target: Target) -> Function:
    """Every product has packed operands, or is loops."""
    del target
    names = Names(fn)
    dialect = Dialect(fn.dialect)

    def one(stmt: Stmt) -> Block | None:
        return _Product(stmt, names, dialect).lower() if isinstance(stmt, Gemm) else None

    return map_launches(fn, lambda body: map_statements(body, one))


def computing_type(stmt: Gemm, k: int | None) -> DType:
    """The type that products are added in: float32 unless float64 or large integers need more;
    integers wrap at 32 bits unless the result has 64.
    """
    a, b, c = stmt.a.dtype, stmt.b.dtype, stmt.c.dtype
    if not c.is_float:
        if a.is_float or b.is_float:
            raise error("dtype", f"T.gemm of {a} and {b} into integers", stmt.loc)
        return I64 if c.bits > 32 else I32
    if F64 in (a, b, c):
        return F64
    whole_numbers = [t for t in (a, b) if not t.is_float]
    exact = len(whole_numbers) == 2 and k is not None and k * _size(a) * _size(b) <= 1 << 24
    return F64 if whole_numbers and not exact else F32


def _size(dtype: DType) -> int:
    return max(abs(int(dtype.min)), int(dtype.max))


class _Product:
    """One product."""

    def __init__(self, stmt: Gemm, names: Names, dialect: Dialect) -> None:
        self.stmt = stmt
        self.names = names
        self.dialect = dialect
        self.a, self.b, self.c = stmt.a, stmt.b, stmt.c
        self.k = self.a.extents[-2 if stmt.transpose_a else -1]
        self.type = computing_type(stmt, int_value(self.k))

    def lower(self) -> Block:
        checks = self.checks()
        shapes = [static_extents(r) for r in (self.a, self.b, self.c)]
        if None in shapes:
            return (*checks, *self.loops())
        clear = self.stmt.clear_accum
        before: list[Stmt] = []
        if not isinstance(clear, (Const, Var)):
            var = self.names.var("clear", BOOL)
            before.append(Let(var, clear, loc=self.stmt.loc))
            clear = var
        a = self.packed(before, self.a, self.stmt.transpose_a, rows=False)
        b = self.packed(before, self.b, self.stmt.transpose_b, rows=True)
        c, after = self.accumulator(before, clear)
        product = self.stmt.with_(
            a=a,
            b=b,
            c=c,
            clear_accum=clear,
            transpose_a=self.stmt.transpose_a and a is self.a,
            transpose_b=False,
            policy=0,
        )
        return (*before, product, *after)

    def checks(self) -> Block:
        """The extents must fit together: an error where they do not, an assertion where they may
        not.
        """
        stmt = self.stmt
        m, k = _extents(self.a)[::-1] if stmt.transpose_a else _extents(self.a)
        deep, n = _extents(self.b)[::-1] if stmt.transpose_b else _extents(self.b)
        pairs = list(zip((k, *_extents(self.c)), (deep, m, n), strict=True))
        if any(_differ(x, y) for x, y in pairs):
            shapes = (
                f"{name} {_shape(r)}"
                for name, r in zip("ABC", (self.a, self.b, self.c), strict=True)
            )
            raise error(
                "shape",
                "the operands of T.gemm do not fit together",
                stmt.loc,
                expected="A (M, K), B (K, N), C (M, N) after transposing",
                got=", ".join(shapes),
            )
        message = "the operands of T.gemm do not fit together"
        return tuple(
            Assert(compare(BinaryOp.EQ, x, y), message=message, kind="shape", loc=stmt.loc)
            for x, y in pairs
            if not equal(x, y)
        )

    def packed(self, before: list[Stmt], r: Region, turned: bool, *, rows: bool) -> Region:
        """An operand in the computing type, on chip; for B with its rows contiguous.

        The copy is written in the order in which the product reads it.
        """
        direct = self.on_chip(r.buffer) and r.dtype == self.type and r.buffer.strides is None
        if direct and not (rows and turned):
            return r
        extents = _extents(r)[::-1] if turned else _extents(r)
        sizes = [n for n in (int_value(e) for e in extents) if n is not None]
        copy = self.names.buffer(f"{r.buffer.name}_packed", self.type, sizes)
        loops = loops_over(extents, self.names)
        at = place(loops, extents)
        value = as_type(element(r, _full(r, at[::-1] if turned else at)), self.type)
        store = Store(copy, tuple(at), value, loc=self.stmt.loc)
        before += [
            Alloc(copy, loc=self.stmt.loc),
            *parallel(loops, extents, (store,), self.stmt.loc),
        ]
        return whole(copy)

    def accumulator(self, before: list[Stmt], clear: Expr) -> tuple[Region, Block]:
        """C in the computing type on chip, and what brings it back."""
        c = self.c
        if self.on_chip(c.buffer) and c.dtype == self.type and c.buffer.strides is None:
            return c, ()
        extents = _extents(c)
        sizes = [n for n in (int_value(e) for e in extents) if n is not None]
        copy = self.names.buffer(f"{c.buffer.name}_sum", self.type, sizes)
        before.append(Alloc(copy, loc=self.stmt.loc))
        loops = loops_over(extents, self.names)
        at = place(loops, extents)
        old = as_type(element(c, _full(c, at)), self.type)
        load = Store(copy, tuple(at), old, loc=self.stmt.loc)
        read = parallel(loops, extents, (load,), self.stmt.loc)
        match clear:
            case Const(value=True):
                pass
            case Const():
                before += read
            case _:
                before.append(If(clear, (), orelse=read, loc=self.stmt.loc))
        loops = loops_over(extents, self.names)
        at = place(loops, extents)
        value = _convert(element(whole(copy), at), c)
        back = Store(c.buffer, shifted(c, _full(c, at)), value, loc=self.stmt.loc)
        return whole(copy), parallel(loops, extents, (back,), self.stmt.loc)

    def on_chip(self, buffer: Buffer) -> bool:
        return memory_of(self.dialect, buffer.scope) is not Memory.GLOBAL

    def loops(self) -> Block:
        """One result after the other."""
        loc, stmt, c = self.stmt.loc, self.stmt, self.c
        extents = _extents(c)
        loops = loops_over(extents, self.names)
        at = place(loops, extents)
        k = self.names.var("k", self.k.dtype)
        total, declare = variable("total", self.type, self.names, loc)
        i, j = at
        x = element(self.a, _full(self.a, (k, i) if stmt.transpose_a else (i, k)))
        y = element(self.b, _full(self.b, (j, k) if stmt.transpose_b else (k, j)))
        product = Binary(BinaryOp.MUL, as_type(x, self.type), as_type(y, self.type))
        old = as_type(element(c, _full(c, at)), self.type)
        zero = literal(0, self.type)
        start = Select(stmt.clear_accum, zero, old, lazy=True)
        body: Block = (
            declare,
            set_scalar(total, start, loc),
            serial(
                k,
                self.k,
                (set_scalar(total, Binary(BinaryOp.ADD, get_scalar(total), product), loc),),
                loc,
            ),
            Store(c.buffer, shifted(c, _full(c, at)), _convert(get_scalar(total), c), loc=loc),
        )
        return parallel(loops, extents, body, loc)


def _convert(value: Expr, region: Region) -> Expr:
    return value if value.dtype == region.dtype else Cast(value, region.dtype)


def _differ(a: Expr, b: Expr) -> bool:
    m, n = int_value(a), int_value(b)
    return m is not None and n is not None and m != n


def _shape(r: Region) -> str:
    return "(" + ", ".join(str(int_value(e) or "?") for e in _extents(r)) + ")"


def _extents(r: Region) -> tuple[Expr, ...]:
    """The last two; all axes before have extent 1."""
    return r.extents[-2:]


def _full(r: Region, at: Sequence[Expr]) -> list[Expr]:
    """A place in the last two axes, as a place in all axes."""
    return [const(0)] * (len(r.mins) - 2) + list(at)
