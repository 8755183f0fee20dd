"""Random typed expressions, and random functions that keep every rule of the tile stage."""

from collections.abc import Sequence

from hypothesis import strategies as st

from tilelang.dtypes import DType, const_value
from tilelang.ir import special, sync, tile
from tilelang.ir.expr import (
    BOOL,
    INT32,
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
)

INTEGERS = [DType(n) for n in ("int32", "int8", "uint8", "int64", "uint32", "int4")]
FLOATS = [DType(n) for n in ("float32", "float16", "bfloat16", "float64")]
ARITHMETIC = [BinaryOp(s) for s in ("+", "-", "*", "//", "%", "truncdiv", "truncmod", "min", "max")]
BITS = [BinaryOp(s) for s in ("&", "|", "^", "<<", ">>")]
COMPARES = [BinaryOp(s) for s in ("==", "!=", "<", "<=", ">", ">=")]
FLOAT_OPS = [BinaryOp(s) for s in ("+", "-", "*", "/", "min", "max")]


def literals(dtype: DType) -> st.SearchStrategy[Const]:
    """Literals, small ones and the ends of the dtype among them."""
    if dtype.is_bool:
        return st.booleans().map(lambda v: Const(v, dtype))
    if dtype.is_float:
        values = st.floats(width=16) | st.sampled_from([0.0, -0.0, 1.0, float("inf"), float("nan")])
        return values.map(lambda v: Const(const_value(v, dtype), dtype))
    low, high = int(dtype.min), int(dtype.max)
    small = st.integers(max(low, -9), min(high, 17))
    round_ = st.sampled_from([v for v in (16, 32, 64, 127, 128, 255) if v <= high] or [1])
    ends = st.sampled_from([low, low + 1, high - 1, high])
    return (small | round_ | ends).map(lambda v: Const(v, dtype))


@st.composite
def expressions(draw: st.DrawFn, dtype: DType, names: Sequence[Var], depth: int = 4) -> Expr:
    """An expression of `dtype` over `names` and literals."""

    def sub(t: DType) -> Expr:
        return draw(expressions(t, names, depth - 1))

    mine = [v for v in names if v.type == dtype]
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        if mine and draw(st.integers(0, 3)):
            return draw(st.sampled_from(mine))
        return draw(literals(dtype))
    others = sorted({v.type for v in names})
    kind = draw(st.sampled_from(["operator"] * 6 + ["select", "cast", "unary", "call"]))
    if kind == "select":
        return Select(sub(BOOL), sub(dtype), sub(dtype), lazy=draw(st.booleans()))
    if kind == "cast" and dtype not in FLOATS:
        source = draw(st.sampled_from([t for t in others if t not in FLOATS] or [dtype]))
        return Cast(sub(source), dtype)
    if dtype.is_bool:
        return _condition(draw, sub, others)
    return _number(draw, sub, dtype, kind)


def _number(draw, sub, dtype: DType, kind: str) -> Expr:
    if kind == "unary":
        ops = [UnaryOp.NEG] if dtype.is_float else [UnaryOp.NEG, UnaryOp.BITNOT]
        return Unary(draw(st.sampled_from(ops)), sub(dtype))
    if dtype.is_float:
        return Binary(draw(st.sampled_from(FLOAT_OPS)), sub(dtype), sub(dtype))
    if kind == "call":
        fn, arity = draw(st.sampled_from([("abs", 1), ("iclamp", 3)]))
        return Call(fn, tuple(sub(dtype) for _ in range(arity)), dtype)
    op = draw(st.sampled_from(ARITHMETIC * 3 + BITS))
    right = draw(literals(dtype)) if draw(st.booleans()) else sub(dtype)
    return Binary(op, sub(dtype), right)


def _condition(draw, sub, others) -> Expr:
    kind = draw(st.integers(0, 5))
    if kind == 0:
        return Unary(UnaryOp.NOT, sub(BOOL))
    if kind == 1:
        return Binary(draw(st.sampled_from([BinaryOp.AND, BinaryOp.OR])), sub(BOOL), sub(BOOL))
    t = draw(st.sampled_from(others))
    if t.is_bool:
        return Binary(draw(st.sampled_from([BinaryOp.EQ, BinaryOp.NE])), sub(BOOL), sub(BOOL))
    return Binary(draw(st.sampled_from(COMPARES)), sub(t), sub(t))


# Functions ---------------------------------------------------------------------------------------


SIZES = [0, 1, 24, 40, 48, 96, 100, 127, 128]


class _Maker:
    """Draws statements of a valid function; keeps the names that are known."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.count = 0
        self.vars: list[Var] = []
        self.buffers: list[Buffer] = []

    def pick(self, items):
        return self.draw(st.sampled_from(list(items)))

    def flag(self) -> bool:
        return self.draw(st.booleans())

    def name(self, hint: str) -> str:
        self.count += 1
        return f"{hint}_{self.count}"

    def expr(self, dtype: DType, depth: int = 2) -> Expr:
        if self.buffers and self.draw(st.integers(0, 5)) == 0:
            same = [b for b in self.buffers if b.type == dtype]
            if same:
                buffer = self.pick(same)
                return Load(buffer, tuple(self.index() for _ in buffer.shape))
        return self.draw(expressions(dtype, self.vars, depth))

    def index(self) -> Expr:
        return self.draw(expressions(INT32, self.vars, 1))

    def shape(self, rank: int | None = None) -> tuple[Expr, ...]:
        rank = self.draw(st.integers(0, 3)) if rank is None else rank
        sizes = [v for v in self.vars if v.type == INT32 and v.name.startswith("n")]
        return tuple(
            self.pick(sizes) if sizes and self.flag() else Const(self.pick(SIZES), INT32)
            for _ in range(rank)
        )

    def buffer(self, hint: str, scope: str, rank: int | None = None) -> Buffer:
        shape = self.shape(rank)
        strides = tuple(self.index() for _ in shape) if self.draw(st.integers(0, 5)) == 0 else None
        dtype = self.pick([*INTEGERS, *FLOATS, BOOL])
        return Buffer(self.name(hint), dtype, shape, scope=scope, strides=strides)

    def region(self, buffer: Buffer) -> Region:
        extents = tuple(e if self.flag() else Const(self.pick(SIZES), INT32) for e in buffer.shape)
        return Region(buffer, tuple(self.index() for _ in buffer.shape), extents)

    def hints(self):
        names = ["coalesced_width", "disable_tma", "src", "in", "two words"]
        values = [8, True, None, -1.5, float("inf"), 'a "b"\n', DType("float16"), (1, ("x",))]
        chosen = self.draw(st.lists(st.sampled_from(names), max_size=2))
        return tuple((n, self.pick(values)) for n in chosen)

    def block(self, depth: int, *, loop: bool = False, parallel: bool = False):
        known = list(self.vars), list(self.buffers)
        count = self.draw(st.integers(0, 4))
        out = [self.stmt(depth, loop=loop, parallel=parallel) for _ in range(count)]
        self.vars, self.buffers = known
        return tuple(out)

    def inside(self, names, depth, **where):
        self.vars += names
        body = self.block(depth - 1, **where)
        del self.vars[len(self.vars) - len(names) :]
        return body

    def stmt(self, depth: int, *, loop: bool, parallel: bool):
        kinds = ["let", "store", "assert", "atomic"]
        kinds += ["if", "while", "for"] if depth else []
        kinds += [] if parallel else ["alloc", "copy", "fill", "sync", "annotate", "print"]
        kinds += ["parallel", "pipelined", "warps"] if depth and not parallel else []
        kinds += ["jump"] if loop else []
        return getattr(self, "_" + self.pick(kinds))(depth, loop=loop, parallel=parallel)

    def _let(self, depth, **_):
        dtype = self.pick([*INTEGERS, *FLOATS, BOOL])
        value = self.expr(dtype)
        var = Var(self.name("t"), dtype)
        self.vars.append(var)
        return tile.Let(var, value)

    def _store(self, depth, **_):
        if not self.buffers:
            return tile.Assume(self.expr(BOOL))
        b = self.pick(self.buffers)
        return tile.Store(b, tuple(self.index() for _ in b.shape), self.expr(b.type))

    def _assert(self, depth, **_):
        return tile.Assert(self.expr(BOOL), message=self.pick(["", "no", 'it\'s "so"\\\n']))

    def _atomic(self, depth, **_):
        if not self.buffers:
            return tile.ThreadReturn()
        b = self.pick(self.buffers)
        one = Region(b, tuple(self.index() for _ in b.shape), (Const(1, INT32),) * b.rank)
        value = self.expr(b.type)
        previous = Var(self.name("old"), b.type) if self.flag() else None
        self.vars += [previous] if previous else []
        return tile.Atomic(
            self.pick(tile.AtomicOp), one, value, previous=previous, hints=self.hints()
        )

    def _if(self, depth, loop, parallel):
        cond = self.expr(BOOL)
        then = self.block(depth - 1, loop=loop, parallel=parallel)
        return tile.If(cond, then, orelse=self.block(depth - 1, loop=loop, parallel=parallel))

    def _while(self, depth, loop, parallel):
        return tile.While(self.expr(BOOL), self.block(depth - 1, loop=True, parallel=parallel))

    def _for(self, depth, loop, parallel):
        dtype = self.pick([INT32, INT32, DType("int64")])
        start, stop = self.expr(dtype), self.expr(dtype)
        step = Const(self.pick([-1, 1, 3]), dtype) if self.flag() else None
        var = Var(self.name("i"), dtype)
        body = self.inside([var], depth, loop=True, parallel=parallel)
        kind = self.pick(tile.LoopKind)
        return tile.For(var, start, stop, body, step=step, kind=kind, hints=self.hints())

    def _parallel(self, depth, **_):
        extents = self.shape()
        names = [Var(self.name("p"), INT32) for _ in extents]
        body = self.inside(names, depth, parallel=True)
        return tile.Parallel(tuple(names), extents, body, hints=self.hints())

    def _pipelined(self, depth, **_):
        var = Var(self.name("k"), INT32)
        start, stop = self.index(), self.index()
        body = self.inside([var], depth, loop=True)
        order = tuple(range(len(body))) if self.flag() else ()
        stages = self.draw(st.integers(0, 4))
        return tile.Pipelined(var, start, stop, body, num_stages=stages, order=order)

    def _warps(self, depth, **_):
        return sync.WarpSpecialize((0, 1), self.block(depth - 1))

    def _alloc(self, depth, **_):
        b = self.buffer("b", self.pick(["shared.dyn", "local.fragment", "local.var"]))
        init = self.expr(b.type) if self.flag() else None
        self.buffers.append(b)
        return tile.Alloc(b, init=init)

    def _copy(self, depth, **_):
        if not self.buffers:
            return tile.ThreadReturn()
        b = self.pick(self.buffers)
        r = self.region(b)
        return tile.Copy(r, r.with_(mins=tuple(self.index() for _ in b.shape)), hints=self.hints())

    def _fill(self, depth, **_):
        if not self.buffers:
            return tile.SyncThreads()
        b = self.pick(self.buffers)
        return tile.Fill(self.region(b), self.expr(b.type))

    def _sync(self, depth, **_):
        return self.pick(
            [
                tile.SyncThreads(barrier_id=self.index()),
                sync.ClusterBarrier(sync.ClusterStep.ARRIVE_RELAXED),
                sync.WaitGroup(self.index()),
                special.RngInit(self.index(), self.index(), self.index()),
            ]
        )

    def _annotate(self, depth, **_):
        values = (1, 2.5, DType("int8"), "x", (None, True), float("nan"))
        return tile.Annotate("layout", buffers=tuple(self.buffers[:2]), values=values)

    def _print(self, depth, **_):
        value = self.pick([None, self.expr(INT32), *self.buffers])
        return tile.Print(value=value, message=self.pick(["", "x", "é\t'\""]))

    def _jump(self, depth, **_):
        return self.pick([tile.Break(), tile.Continue()])


@st.composite
def functions(draw: st.DrawFn) -> tile.Function:
    """A function that keeps every rule of the tile stage."""
    make = _Maker(draw)
    kinds = st.lists(st.sampled_from([*INTEGERS, *FLOATS]), max_size=3)
    sizes = tuple(
        Var(make.name("n"), t) for t in draw(st.lists(st.sampled_from([INT32]), max_size=2))
    )
    make.vars += sizes
    scalars = [Var(make.name("s"), t) for t in draw(kinds)]
    make.vars += scalars
    tensors = [make.buffer("A", "global") for _ in range(draw(st.integers(0, 3)))]
    make.buffers += tensors
    params = [tile.Param(v.name, var=v, pointer=draw(st.booleans())) for v in scalars]
    params += [tile.Param(make.pick([b.name, "x" + b.name]), buffer=b) for b in tensors]
    launches = []
    for _ in range(draw(st.integers(0, 2))):
        grid = tuple(make.index() for _ in range(draw(st.integers(1, 3))))
        blocks = [Var(make.name("bx"), INT32) for _ in grid]
        threads = [Var(make.name("tx"), INT32) for _ in range(3)]
        body = make.inside([*blocks, *threads], 3)
        launches.append(
            tile.Launch(
                grid,
                tuple(blocks),
                tuple(threads),
                body,
                threads=draw(st.sampled_from([None, (128,), (32, 4)])),
            )
        )
    order = draw(st.permutations(params))
    return tile.Function(
        "f",
        tuple(order),
        sizes,
        tuple(launches),
        dialect=draw(st.sampled_from(["common", "ascend"])),
        outputs=tuple(
            i for i, p in enumerate(order) if p.buffer is not None and draw(st.booleans())
        ),
        attrs=draw(st.sampled_from([(), (("a", 1), ("b c", (DType("float16"), "x")))])),
    )
