"""Random small kernels and their arguments, for tests that compare two ways of running them.

What leaves: `kernels` (tiles of two matrices, ragged, with copies, slices, reductions, scans,
gathers, atomics, conditions and pipelined loops), `products`, and `elementwise_of_runtime_size`.
Values stay small, so sums of any order are exact but for those of narrow floats.
"""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as hs

from emulator_build import I32, buf, call, e, kernel, ld, op, reg, st, var
from tilelang.dtypes import DType
from tilelang.ir.expr import BOOL, Buffer, Cast, Const, Expr, Region, Select, Var
from tilelang.ir.special import ReducerFinalize, ReducerInit, ReducerUpdate
from tilelang.ir.tile import (
    Alloc,
    Atomic,
    AtomicOp,
    Break,
    Continue,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Let,
    Parallel,
    Pipelined,
    Reduce,
    ReduceOp,
    Scan,
    ScanOp,
    Stmt,
    Transpose,
)

BX, BY = var("bx"), var("by")
SIZES = hs.sampled_from([1, 3, 7, 8, 16, 17, 24, 40])
TILES = hs.sampled_from([1, 4, 5, 8, 12, 16, 20])


@dataclass
class Tiles:
    """The buffers of one random kernel of the matrix `source`, and the statements so far."""

    draw: hs.DrawFn
    source: Buffer
    dtype: DType
    bm: int
    bn: int
    count: int = 0
    body: list[Stmt] = field(default_factory=list)

    def __post_init__(self) -> None:
        t, (m, n) = self.dtype, (self.bm, self.bn)
        self.s = buf("s", t, m, n, scope="shared.dyn")
        self.f = buf("f", t, m, n, scope="local.fragment")
        self.r = buf("r", t, m, scope="local.fragment")
        self.q = buf("q", t, n, scope="local.fragment")
        for b in (self.s, self.f, self.r, self.q):
            self.body += [Alloc(b), Fill(reg(b), self.number(1))]

    def number(self, x: int) -> Const:
        return Const(float(x) if self.dtype.is_float else x, self.dtype)

    def name(self, hint: str):
        self.count += 1
        return var(f"{hint}_{self.count}")

    # Steps ---------------------------------------------------------------------------------------

    def value(self, i, j, depth: int = 2) -> Expr:
        kind = self.draw(hs.integers(0, 11 if depth else 7))
        if kind <= 7:
            whole = Cast(op("-", op("%", op("+", i, j), 5), 2), self.dtype)
            leaves = [
                lambda: ld(self.s, i, j),
                lambda: ld(self.f, i, j),
                lambda: ld(self.r, i),
                lambda: ld(self.q, j),
                lambda: whole,
                lambda: self.number(self.draw(hs.integers(-3, 3))),
                lambda: self.outside(i, j),
                lambda: self.gathered(i, j),
            ]
            return leaves[kind]()
        a, b = self.value(i, j, depth - 1), self.value(i, j, depth - 1)
        if kind == 11:
            cond = op(self.draw(hs.sampled_from(["<", "<=", "==", "!="])), a, b)
            return Select(cond, b, self.number(2), lazy=self.draw(hs.booleans()))
        if kind == 10 and not self.dtype.is_float:
            by = self.draw(hs.sampled_from([2, 3, 7, -2]))
            return op(self.draw(hs.sampled_from(["//", "%", "&", "|"])), a, by)
        if kind == 10:
            return call("exp2", op("min", op("max", a, -3.0), 3.0))
        return op({8: "+", 9: self.draw(hs.sampled_from(["-", "max", "min"]))}[kind], a, b)

    def outside(self, i, j) -> Expr:
        """An element of the matrix, which may lie before its beginning or beyond its end."""
        a, b = (self.draw(hs.sampled_from([1, 1, 1, -1, 2])) for _ in range(2))
        c, d = (self.draw(hs.integers(-3, 3)) for _ in range(2))
        row = op("+", op("+", op("*", BY, self.bm), op("*", i, a)), c)
        column = op("+", op("+", op("*", BX, self.bn), op("*", j, b)), d)
        return Cast(ld(self.source, row, column), self.dtype)

    def gathered(self, i, j) -> Expr:
        """An element at a place that data decides, of a buffer that no nest writes."""
        far = Cast(op("+", ld(self.f, i, j), self.number(9)), I32)
        return ld(self.q, op("%", op("+", far, j), self.bn))

    def elementwise(self) -> Stmt:
        i, j = self.name("i"), self.name("j")
        value = self.value(i, j)
        into = self.draw(hs.sampled_from([self.s, self.f]))
        kept = op("min", op("max", value, self.number(-9)), self.number(9))
        return Parallel((i, j), (e(self.bm), e(self.bn)), (st(into, i, j, kept),))

    def reduction(self) -> Stmt:
        dim = self.draw(hs.integers(0, 1))
        ops = [ReduceOp.MAX, ReduceOp.MIN, ReduceOp.ABSMAX, ReduceOp.SUM, ReduceOp.ABSSUM]
        chosen = self.draw(hs.sampled_from(ops))
        clear = chosen in ops[3:] or self.draw(hs.booleans())
        return Reduce(chosen, reg(self.f), reg(self.r if dim else self.q), dim=dim, clear=clear)

    def scan(self) -> Stmt:
        op_ = self.draw(hs.sampled_from([ScanOp.SUM, ScanOp.MAX]))
        dim, reverse = self.draw(hs.integers(0, 1)), self.draw(hs.booleans())
        into = self.draw(hs.sampled_from([self.s, self.f]))
        return Scan(op_, reg(self.f), reg(into), dim=dim, reverse=reverse)

    def slice_of(self, b: Buffer, m: int, n: int) -> Region:
        i, j = self.draw(hs.integers(0, self.bm - m)), self.draw(hs.integers(0, self.bn - n))
        return reg(b, i, j, ext=(m, n))

    def slices(self) -> Stmt:
        m, n = self.draw(hs.integers(1, self.bm)), self.draw(hs.integers(1, self.bn))
        pick = hs.sampled_from([self.s, self.f])
        if self.draw(hs.booleans()):
            return Fill(self.slice_of(self.draw(pick), m, n), self.number(3))
        src, dst = self.draw(pick), self.draw(pick)
        return Copy(self.slice_of(src, m, n), self.slice_of(dst, m, n))

    def spread(self) -> Stmt:
        if self.draw(hs.booleans()):
            row = Region(self.r, (e(0),), (e(self.bm),))
            return Copy(row, self.slice_of(self.f, self.bm, 1))
        return Copy(Region(self.q, (e(0),), (e(self.bn),)), reg(self.s))

    def turn(self) -> Stmt:
        n = min(self.bm, self.bn)
        return Transpose(self.slice_of(self.f, n, n), self.slice_of(self.s, n, n))

    def reducer(self) -> list[Stmt]:
        self.count += 1
        acc = buf(f"acc_{self.count}", self.dtype, self.bm, scope="local.reducer")
        i, j = self.name("i"), self.name("j")
        update = ReducerUpdate(acc, (i,), self.value(i, j, 1), op=ReduceOp.MAX)
        return [
            Alloc(acc),
            ReducerInit(acc, ReduceOp.MAX),
            Parallel((i, j), (e(self.bm), e(self.bn)), (update,)),
            ReducerFinalize(acc, reg(self.r), op=ReduceOp.MAX),
        ]

    def guarded(self) -> Stmt:
        return If(op("==", op("%", op("+", BX, BY), 2), 0), (self.elementwise(),), orelse=())

    def counted(self) -> Stmt:
        """A loop that ends early, or leaves out rounds."""
        k = self.name("k")
        leave = self.draw(hs.sampled_from([Break, Continue]))
        cond = op(
            ">", op("+", ld(self.r, op("%", k, self.bm)), Cast(k, self.dtype)), self.number(3)
        )
        body = (If(cond, (leave(),), orelse=()), self.elementwise())
        return For(k, e(self.draw(hs.integers(-1, 1))), e(self.draw(hs.integers(0, 4))), body)

    def added(self) -> list[Stmt]:
        """Updates of elements that several iterations share; they are read afterwards."""
        i, j = self.name("i"), self.name("j")
        shared = buf(f"shared_{self.count}", self.dtype, self.bm, scope="shared.dyn")
        at = Region(shared, (op("%", op("+", i, j), self.bm),), (e(1),))
        op_ = self.draw(hs.sampled_from([AtomicOp.ADD, AtomicOp.MAX, AtomicOp.MIN]))
        one = Cast(op("-", op("%", j, 3), 1), self.dtype)
        update = Atomic(op_, at, one if op_ is AtomicOp.ADD else self.value(i, j, 1))
        nest = Parallel((i, j), (e(self.bm), e(self.bn)), (update,))
        return [
            Alloc(shared),
            Fill(reg(shared), self.number(1)),
            nest,
            Copy(reg(shared), reg(self.r)),
        ]

    def named(self) -> Stmt:
        """A nest with a name and a variable of each iteration."""
        i, j, x = self.name("i"), self.name("j"), Var(f"x_{self.count}", self.dtype)
        own = buf(f"own_{self.count}", self.dtype, 1, scope="local.var")
        low, high = self.number(-9), self.number(9)
        body = (
            Let(x, op("min", op("max", self.value(i, j), low), high)),
            Alloc(own, init=x),
            If(op("<", op("%", j, 3), 2), (st(own, 0, op("-", ld(own, 0), x)),), orelse=()),
            st(self.f, i, j, op("max", ld(own, 0), x)),
        )
        return Parallel((i, j), (e(self.bm), e(self.bn)), body)

    def step(self) -> list[Stmt]:
        makers = [
            self.elementwise,
            self.elementwise,
            self.named,
            self.reduction,
            self.scan,
            self.slices,
            self.spread,
            self.turn,
            self.guarded,
            self.counted,
        ]
        kind = self.draw(hs.integers(0, len(makers) + 1))
        if kind < len(makers):
            return [makers[kind]()]
        return self.reducer() if kind == len(makers) else self.added()


DTYPES = ["float32", "int32", "float16", "int8", "float64", "uint8", "bfloat16", "int64", "bool"]
DTYPES += ["float8_e4m3fn", "float8_e5m2", "int4", "uint4", "uint16"]


@hs.composite
def kernels(draw: hs.DrawFn):
    """A kernel with ragged tiles of two matrices, of constant or runtime sizes, and its arguments.

    The first tile goes to C through a copy, or element by element, shifted.
    """
    m, n, bm, bn = draw(SIZES), draw(SIZES), draw(TILES), draw(TILES)
    store = DType(draw(hs.sampled_from(DTYPES)))
    dtype = DType(draw(hs.sampled_from(["float32", "int32", "float16", "int64", "float64"])))
    sizes = (var("m"), var("n")) if draw(hs.booleans()) else (e(m), e(n))
    dynamic = tuple(x for x in sizes if isinstance(x, Var))
    A, C = buf("A", store, *sizes), buf("C", dtype, *sizes)
    H = buf("H", "int32", 5)
    tiles = Tiles(draw, A, dtype, bm, bn)
    mine = reg(A, op("*", BY, bm), op("*", BX, bn), ext=(bm, bn))
    load = Copy(mine, reg(draw(hs.sampled_from([tiles.s, tiles.f]))))
    body = [*tiles.body, load]
    for _ in range(draw(hs.integers(0, 4))):
        body += tiles.step()
    k = var("k")
    row = Copy(reg(A, op("*", BY, bm), op("*", k, bn), ext=(bm, bn)), reg(tiles.s))
    trips = draw(hs.integers(0, 3))
    body.append(Pipelined(k, e(0), e(trips), (row, tiles.elementwise()), num_stages=2))
    body.append(Atomic(AtomicOp.ADD, reg(H, op("%", BX, 7), ext=(1,)), e(1)))
    body.append(_stored(draw, tiles, C))
    grid = tuple(op("//", op("+", x, b - 1), b) for x, b in ((sizes[1], bn), (sizes[0], bm)))
    fn = kernel([A, C, H], *body, grid=grid, vars=(BX, BY), dynamic=dynamic)
    seed = draw(hs.integers(0, 1 << 16))
    a = np.random.default_rng(seed).integers(0, 2 if store.is_bool else 6, (m, n))
    args = {"A": a.astype(store.numpy), "C": np.zeros((m, n), dtype.numpy)}
    args |= {"H": np.zeros(5, np.int32)}
    return fn, args | ({"m": m, "n": n} if dynamic else {})


def _stored(draw: hs.DrawFn, tiles: Tiles, into: Buffer) -> Stmt:
    top, left = op("*", BY, tiles.bm), op("*", BX, tiles.bn)
    if draw(hs.booleans()):
        return Copy(reg(tiles.f), reg(into, top, left, ext=(tiles.bm, tiles.bn)))
    i, j = tiles.name("i"), tiles.name("j")
    c, d = draw(hs.integers(-2, 2)), draw(hs.integers(-2, 2))
    write = st(into, op("+", op("+", top, i), c), op("+", op("+", left, j), d), ld(tiles.f, i, j))
    return Parallel((i, j), (e(tiles.bm), e(tiles.bn)), (write,))


@hs.composite
def products(draw: hs.DrawFn):
    """`C = A @ B` in ragged tiles, of any operand types and turns."""
    m, n, k = (draw(hs.sampled_from([1, 5, 8, 17, 24])) for _ in range(3))
    bm, bn, bk = (draw(hs.sampled_from([4, 8, 12])) for _ in range(3))
    pair = draw(hs.sampled_from(["float32", "float16", "int8", "float8_e4m3fn", "float64"]))
    total = draw(hs.sampled_from(["int32"] if pair == "int8" else ["float32", "float16"]))
    ta, tb = draw(hs.booleans()), draw(hs.booleans())
    A = buf("A", pair, *((k, m) if ta else (m, k)))
    B = buf("B", pair, *((n, k) if tb else (k, n)))
    C = buf("C", total, m, n)
    As = buf("As", pair, *((bk, bm) if ta else (bm, bk)), scope="shared.dyn")
    Bs = buf("Bs", pair, *((bn, bk) if tb else (bk, bn)), scope="shared.dyn")
    acc = buf("acc", total, bm, bn, scope="local.fragment")
    ko = var("ko")
    rows, columns, deep = op("*", BY, bm), op("*", BX, bn), op("*", ko, bk)
    at_a = (deep, rows) if ta else (rows, deep)
    at_b = (columns, deep) if tb else (deep, columns)
    clear = draw(hs.sampled_from([Const(False, BOOL), op("==", ko, 0)]))
    zero = Const(0.0 if DType(total).is_float else 0, DType(total))
    loop = Pipelined(
        ko,
        e(0),
        e(-(-k // bk)),
        (
            Copy(reg(A, *at_a, ext=(bk, bm) if ta else (bm, bk)), reg(As)),
            Copy(reg(B, *at_b, ext=(bn, bk) if tb else (bk, bn)), reg(Bs)),
            Gemm(reg(As), reg(Bs), reg(acc), clear, transpose_a=ta, transpose_b=tb),
        ),
        num_stages=3,
    )
    out = Copy(reg(acc), reg(C, rows, columns, ext=(bm, bn)))
    body = (Alloc(As), Alloc(Bs), Alloc(acc), Fill(reg(acc), zero), loop, out)
    fn = kernel([A, B, C], *body, grid=(-(-n // bn), -(-m // bm)), vars=(BX, BY))
    random = np.random.default_rng(draw(hs.integers(0, 99)))
    a, b = (
        random.integers(-3, 4, [x.value for x in t.shape]).astype(DType(pair).numpy) for t in (A, B)
    )
    return fn, {"A": a, "B": b, "C": np.zeros((m, n), DType(total).numpy)}


@hs.composite
def elementwise_of_runtime_size(draw: hs.DrawFn):
    """One axis of runtime size, with shifted reads that may be outside on both sides."""
    n = var("n")
    dtype = DType(draw(hs.sampled_from(["float32", "int32"])))
    A, B, C = (buf(x, dtype, n) for x in "ABC")
    i, block = var("i"), draw(hs.sampled_from([1, 5, 16, 40]))
    at = op("+", op("*", BX, block), i)
    shift, factor = draw(hs.integers(-3, 3)), draw(hs.sampled_from([1, 1, 2, -1, 3]))
    far = op("+", op("*", at, factor), shift)
    x = ld(A, far)
    if draw(hs.booleans()):
        x = Select(op("<", at, op("-", n, 2)), x, ld(B, at), lazy=draw(hs.booleans()))
    named = var("x", dtype)
    body = (Let(named, op("+", x, ld(B, at))), st(C, op("+", at, draw(hs.integers(-1, 1))), named))
    loop = Parallel((i,), (e(block),), body)
    fn = kernel(
        [A, B, C], loop, grid=(op("//", op("+", n, block - 1), block),), vars=(BX,), dynamic=(n,)
    )
    return fn, dtype


@hs.composite
def indices_on_chip(draw: hs.DrawFn):
    """Loops that read and write a tile at places that may be outside, behind guards that may not
    hold back all of them; rounds may end early. `n` is the only size, at most 9.
    """
    n, size = var("n"), draw(hs.sampled_from([4, 7, 12]))
    C, s = buf("C", I32, 40), buf("s", I32, size, scope="shared.dyn")
    k, i = var("k"), var("i")
    bounds = [0, 1, -2, 5, n, op("-", n, 3)]
    start, stop = (e(draw(hs.sampled_from(bounds))) for _ in range(2))
    factor, shift = draw(hs.sampled_from([1, 1, 1, 2, -1])), draw(hs.integers(-3, 6))
    at = op("+", op("*", i, factor), shift)
    at = op("+", at, draw(hs.sampled_from([e(0), k, op("-", e(0), k)])))
    low, high = draw(hs.sampled_from([0, 0, -1])), draw(hs.sampled_from([size, size, size + 1, n]))
    inside = op("and", op(">=", at, low), op("<", at, high))
    guard = draw(hs.sampled_from(["none", "if", "choice", "leave"]))
    read: Expr = ld(s, at)
    if guard == "choice":
        read = Select(inside, read, e(-1), lazy=True)
    writes = [st(C, op("+", op("*", k, 20), op("+", i, 4)), read)]
    if guard != "choice" and draw(hs.booleans()):
        writes.append(st(s, at, op("+", i, 100)))
    body: tuple[Stmt, ...] = tuple(writes)
    if guard == "if":
        body = (If(inside, body, orelse=()),)
    elif guard == "leave":
        leave = draw(hs.sampled_from([Break, Continue]))
        body = (If(op("==", inside, False), (leave(),), orelse=()), *body)
    inner: Stmt = For(i, start, stop, body)
    if guard != "leave" and len(writes) == 1 and draw(hs.booleans()):
        inner = Parallel((i,), (op("max", stop, 0),), body)
    fill = For(var("j"), e(0), e(size), (st(s, var("j"), op("+", var("j"), 1)),))
    return kernel([C], Alloc(s), fill, For(k, e(0), e(2), (inner,)), dynamic=(n,))
