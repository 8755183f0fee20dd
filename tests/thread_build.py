"""Two programs of the thread stage as a person would write them for a GPU, and what builds them."""

from __future__ import annotations

from typing import Any

from tilelang.dtypes import DType
from tilelang.ir.expr import Binary, BinaryOp, Cast, Const, Expr, Pack, Var
from tilelang.ir.thread import (
    Addr,
    Argument,
    Array,
    Declare,
    Elem,
    Instr,
    Kernel,
    MakeTensorMap,
    Program,
    Slot,
    Space,
    TensorMap,
    Write,
)
from tilelang.ir.tile import Block, For, If, Let, LoopKind, Stmt

I32, I64, U32, U64 = (DType(n) for n in ("int32", "int64", "uint32", "uint64"))
F16, F32, BOOL = (DType(n) for n in ("float16", "float32", "bool"))


def e(x: Any, dtype: DType = I32) -> Expr:
    """A number as a literal; an expression as it is."""
    return x if isinstance(x, Expr) else Const(x, dtype)


def op(symbol: str, a: Any, b: Any) -> Expr:
    """`a symbol b`; a number takes the type of the other operand."""
    like = a.dtype if isinstance(a, Expr) else b.dtype
    return Binary(BinaryOp(symbol), e(a, like), e(b, like))


def add(first: Any, *rest: Any) -> Expr:
    """The sum."""
    for x in rest:
        first = op("+", first, x)
    return first


def mul(a: Any, b: Any) -> Expr:
    """The product."""
    return op("*", a, b)


def at(array: Array, index: Any, count: int = 1) -> Slot:
    """Elements as an operand."""
    return Slot(array, e(index), count)


def do(row: str, *ins: Any, outs: tuple[Slot, ...] = (), **imm: Any) -> Instr:
    """An instruction without results."""
    return Instr(row, outs, ins, imm=tuple(imm.items()))


def loop(var: Var, stop: Any, *body: Stmt, start: Any = 0, unroll: bool = False) -> For:
    """A loop from 0."""
    kind = LoopKind.UNROLL if unroll else LoopKind.SERIAL
    return For(var, e(start), e(stop), body, kind=kind)


def variable(name: str, start: Any, dtype: DType = I32) -> tuple[Array, Declare]:
    """A variable of one thread, and its declaration."""
    array = Array(name, dtype, e(1), space=Space.REGISTER)
    return array, Declare(array, init=e(start, dtype))


def get(array: Array, index: Any = 0) -> Elem:
    """One element."""
    return Elem(array, e(index), array.type)


def var(name: str, dtype: DType = I32) -> Var:
    """A name."""
    return Var(name, dtype)


def advance(stage: Array, phase: Array, stages: int) -> Block:
    """The next stage of a ring; the parity changes each time round."""
    return (
        Write(stage, e(0), add(get(stage), 1)),
        If(
            op("==", get(stage), stages),
            (Write(stage, e(0), e(0)), Write(phase, e(0), op("^", get(phase), 1))),
        ),
    )


# -- wgmma, TMA and mbarriers ----------------------------------------------------------------------

STAGES, BM, BN, BK = 4, 128, 128, 64


def wgmma_gemm() -> Program:
    """`C = A @ B.T` in fp16: one elected producer thread, two consumer warpgroups of 64 rows, which
    arrive once per warp.
    """
    m, n, k = var("M"), var("N"), var("K")
    a, b, c = (Array(name, F16, None, align=16) for name in "ABC")
    maps = [
        TensorMap(f"{x.name}_map", x, (k, rows), (mul(Cast(k, I64), 2),), (BK, 128), swizzle=128)
        for x, rows in ((a, m), (b, n))
    ]
    bx, by, tx = var("bx"), var("by"), var("tx")
    shared = {
        name: Array(name, dtype, e(size), space=Space.SHARED, align=align)
        for name, dtype, size, align in (
            ("A_s", F16, STAGES * BM * BK, 1024),
            ("B_s", F16, STAGES * BN * BK, 1024),
            ("full", U64, STAGES, 8),
            ("empty", U64, STAGES, 8),
        )
    }
    offsets = (0, 65536, 131072, 131104)
    role, i = var("role"), var("i")
    body: Block = (
        *(Declare(x, offset=o) for x, o in zip(shared.values(), offsets, strict=True)),
        Let(role, op("//", tx, 128)),
        If(
            op("==", tx, 0),
            (
                loop(
                    i,
                    STAGES,
                    do("mbarrier.init", e(1), outs=(at(shared["full"], i),)),
                    do("mbarrier.init", e(8), outs=(at(shared["empty"], i),)),
                    unroll=True,
                ),
                do("fence.mbarrier_init"),
            ),
        ),
        do("barrier.sync", id=0, threads=384),
        If(
            op("==", role, 0),
            (
                do("setmaxnreg", step="dec", registers=24),
                If(op("==", tx, 0), _producer(shared, maps, bx, by, k)),
            ),
            orelse=(
                do("setmaxnreg", step="inc", registers=240),
                *_consumer(shared, c, (bx, by, tx, role), n, k),
            ),
        ),
    )
    grid = (op("//", n, BN), op("//", m, BM))
    params = (*maps, c, n, k)
    kernel = Kernel("gemm", params, grid, (384,), (bx, by), (tx,), body, shared=131136)
    args = tuple(
        Argument(x.name, array=x, shape=shape)
        for x, shape in ((a, (m, k)), (b, (n, k)), (c, (m, n)))
    )
    return Program("gemm", args, (m, n, k), (*(MakeTensorMap(t) for t in maps), kernel))


def _producer(shared: dict[str, Array], maps: list[TensorMap], bx: Var, by: Var, k: Var) -> Block:
    stage, declare_stage = variable("p_stage", 0)
    phase, declare_phase = variable("p_phase", 1)  # so that the first wait passes
    ko = var("p_k")
    full = at(shared["full"], get(stage))

    def load(tile: Array, tensor: TensorMap, row: Expr) -> Instr:
        size = BM * BK
        dst = at(tile, mul(get(stage), size), size)
        x = mul(ko, BK)
        return do("cp.async.bulk.tensor.2d.load", tensor, x, row, outs=(dst, full))

    return (
        declare_stage,
        declare_phase,
        loop(
            ko,
            op("//", k, BK),
            do("mbarrier.try_wait.parity", at(shared["empty"], get(stage)), get(phase)),
            do("mbarrier.arrive.expect_tx", e(2 * (BM + BN) * BK), outs=(full,)),
            load(shared["A_s"], maps[0], mul(by, BM)),
            load(shared["B_s"], maps[1], mul(bx, BN)),
            *advance(stage, phase, STAGES),
        ),
    )


def descriptor(address: Expr) -> Expr:
    """A K-major operand with a 128-byte swizzle: 1024 bytes from 8 rows to the next, layout 1."""
    field = Cast(op("&", op(">>", address, 4), 0x3FFF), U64)
    return op("|", field, (1 << 16) | (64 << 32) | (1 << 62))


def _consumer(shared: dict[str, Array], c: Array, names: tuple[Var, ...], n: Var, k: Var) -> Block:
    bx, by, tx, role = names
    stage, declare_stage = variable("c_stage", 0)
    phase, declare_phase = variable("c_phase", 0)
    acc = Array("acc", F32, e(64), space=Space.REGISTER)
    ko, kk, row0, col0 = var("c_k"), var("kk"), var("row0"), var("col0")
    da, db = var("desc_a", U64), var("desc_b", U64)
    my_rows = add(mul(get(stage), BM * BK), mul(op("-", role, 1), 64 * BK))
    step = mul(Cast(kk, U64), 2)  # 16 elements are 32 bytes
    product = do(
        "wgmma.m64n128k16.f32.f16.f16",
        add(da, step),
        add(db, step),
        op("or", op(">", ko, 0), op(">", kk, 0)),
        outs=(at(acc, 0, 64),),
        trans_a=False,
        trans_b=False,
    )
    lane = op("%", tx, 32)
    warp = op("//", op("%", tx, 128), 32)
    j, h = var("j"), var("h")
    pair = Pack(
        tuple(Cast(get(acc, add(mul(j, 4), mul(h, 2), x)), F16) for x in (0, 1)), DType("float16x2")
    )
    place = add(mul(add(row0, mul(h, 8)), n), col0, mul(j, 8))
    return (
        declare_stage,
        declare_phase,
        Declare(acc),
        loop(
            ko,
            op("//", k, BK),
            do("mbarrier.try_wait.parity", at(shared["full"], get(stage)), get(phase)),
            Let(da, descriptor(Addr(shared["A_s"], my_rows, type=U32))),
            Let(db, descriptor(Addr(shared["B_s"], mul(get(stage), BN * BK), type=U32))),
            do("wgmma.fence"),
            loop(kk, BK // 16, product, unroll=True),
            do("wgmma.commit_group"),
            do("wgmma.wait_group", count=0),
            If(
                op("==", lane, 0),
                (do("mbarrier.arrive", outs=(at(shared["empty"], get(stage)),)),),
            ),
            *advance(stage, phase, STAGES),
        ),
        Let(row0, add(mul(by, BM), mul(op("-", role, 1), 64), mul(warp, 16), op("//", lane, 4))),
        Let(col0, add(mul(bx, BN), mul(op("%", lane, 4), 2))),
        loop(j, BN // 8, loop(h, 2, Write(c, place, pair), unroll=True), unroll=True),
    )


# -- cp.async and mma.sync -------------------------------------------------------------------------

TM, TN, TK = 64, 64, 32


def mma_gemm() -> Program:
    """`C = A @ B.T` in fp16: 64x64x32 tiles in two buffers, 4 warps of 32x32."""
    m, n, k = var("M"), var("N"), var("K")
    a, b, c = (Array(name, F16, None, align=16) for name in "ABC")
    bx, by, tx = var("bx"), var("by"), var("tx")
    tiles = [
        Array(name, F16, e(2 * TM * TK), space=Space.SHARED, align=16) for name in ("A_s", "B_s")
    ]
    acc = Array("acc", F32, e(32), space=Space.REGISTER)
    lane, warp, ko, z = var("lane"), var("warp"), var("ko"), var("z")
    steps = op("//", k, TK)
    load = [(tiles[0], a, mul(by, TM)), (tiles[1], b, mul(bx, TN))]
    ahead = add(ko, 1)
    body: Block = (
        Declare(tiles[0], offset=0),
        Declare(tiles[1], offset=8192),
        Declare(acc),
        Let(lane, op("%", tx, 32)),
        Let(warp, op("//", tx, 32)),
        loop(z, 32, Write(acc, z, Const(0.0, F32)), unroll=True),
        *_stage(load, e(0), k, tx, "first"),
        loop(
            ko,
            steps,
            If(op("<", ahead, steps), _stage(load, ahead, k, tx, "next")),
            do("cp.async.commit_group"),
            do("cp.async.wait_group", count=1),
            do("barrier.sync", id=0, threads=128),
            *_products(tiles, acc, op("%", ko, 2), lane, warp),
            do("barrier.sync", id=0, threads=128),
        ),
        *_store(c, acc, (bx, by, lane, warp), n),
    )
    grid = (op("//", n, TN), op("//", m, TM))
    kernel = Kernel("gemm", (a, b, c, n, k), grid, (128,), (bx, by), (tx,), body, shared=16384)
    args = tuple(
        Argument(x.name, array=x, shape=shape)
        for x, shape in ((a, (m, k)), (b, (n, k)), (c, (m, n)))
    )
    return Program("gemm", args, (m, n, k), (kernel,))


def swizzled(row: Expr, chunk: Expr) -> Expr:
    """The place of 8 elements of a row of 32: no two of 8 rows in the same banks."""
    return mul(add(mul(row, 4), op("^", chunk, op("%", op("//", row, 2), 4))), 8)


def _stage(load: list[tuple[Array, Array, Expr]], ko: Expr, k: Var, tx: Var, tag: str) -> Block:
    """Issue the copies of one K step: 256 chunks of 8 elements for each operand."""
    out: list[Stmt] = []
    for tile, src, first_row in load:
        i, row = var(f"{tag}_{src.name}"), var(f"{tag}_row_{src.name}")
        chunk = op("%", tx, 4)
        dst = add(mul(op("%", ko, 2), TM * TK), swizzled(row, chunk))
        from_ = add(mul(add(first_row, row), k), mul(ko, TK), mul(chunk, 8))
        copy = do("cp.async.cg.16", at(src, from_, 8), outs=(at(tile, dst, 8),))
        out.append(loop(i, 2, Let(row, add(mul(i, 32), op("//", tx, 4))), copy, unroll=True))
    if tag == "first":
        out.append(do("cp.async.commit_group"))
    return tuple(out)


def _products(tiles: list[Array], acc: Array, half: Expr, lane: Var, warp: Var) -> Block:
    ra = Array("a_regs", F16, e(16), space=Space.REGISTER)
    rb = Array("b_regs", F16, e(16), space=Space.REGISTER)
    kk, mi, nj, i, j = (var(x) for x in ("kk", "mi", "nj", "i", "j"))

    def fragment(regs: Array, tile: Array, block: Var, first: Expr, row: Expr, chunk: Expr) -> For:
        place = add(mul(half, TM * TK), swizzled(add(first, mul(block, 16), row), chunk))
        load = do(
            "ldmatrix.x4.b16", at(tile, place, 8), outs=(at(regs, mul(block, 8), 8),), trans=False
        )
        return loop(block, 2, load, unroll=True)

    product = do(
        "mma.m16n8k16.f32.f16.f16.f32",
        at(ra, mul(i, 8), 8),
        at(rb, mul(j, 4), 4),
        outs=(at(acc, add(mul(i, 16), mul(j, 4)), 4),),
    )
    rows_a, rows_b = op("%", lane, 16), add(mul(op("//", lane, 16), 8), op("%", lane, 8))
    chunk_a, chunk_b = op("//", lane, 16), op("%", op("//", lane, 8), 2)
    step = mul(kk, 2)
    return (
        Declare(ra),
        Declare(rb),
        loop(
            kk,
            TK // 16,
            fragment(ra, tiles[0], mi, mul(op("//", warp, 2), 32), rows_a, add(step, chunk_a)),
            fragment(rb, tiles[1], nj, mul(op("%", warp, 2), 32), rows_b, add(step, chunk_b)),
            loop(i, 2, loop(j, 4, product, unroll=True), unroll=True),
            unroll=True,
        ),
    )


def _store(c: Array, acc: Array, names: tuple[Var, ...], n: Var) -> Block:
    bx, by, lane, warp = names
    row0, col0, i, j, h = (var(x) for x in ("row0", "col0", "si", "sj", "sh"))
    first = add(mul(i, 16), mul(j, 4), mul(h, 2))
    pair = Pack(tuple(Cast(get(acc, add(first, x)), F16) for x in (0, 1)), DType("float16x2"))
    place = add(mul(add(row0, mul(i, 16), mul(h, 8)), n), col0, mul(j, 8))
    inner = loop(j, 4, loop(h, 2, Write(c, place, pair), unroll=True), unroll=True)
    return (
        Let(row0, add(mul(by, TM), mul(op("//", warp, 2), 32), op("//", lane, 4))),
        Let(col0, add(mul(bx, TN), mul(op("%", warp, 2), 32), mul(op("%", lane, 4), 2))),
        loop(i, 2, inner, unroll=True),
    )
