"""Vector values: packed, computed with, taken apart, read from memory and written to it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from emulator_build import F16, F32, I32, TX, buf, call, kernel, ld, mul, op, reg, run, st, var
from emulator_build import same as exactly
from tilelang.dtypes import DType, pack
from tilelang.emulator import translate
from tilelang.errors import TileError, TileIndexError
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Cast,
    Const,
    Lane,
    LoadVector,
    Pack,
    Select,
)
from tilelang.ir.tile import Alloc, Copy, Fill, For, If, Let, Parallel, Print, StoreVector, View

i, j, k = (var(n) for n in ("i", "j", "k"))
RNG = np.random.default_rng(11)


def same(got: np.ndarray, want: np.ndarray) -> None:
    """As `exactly`, with NaN equal to NaN in types that NumPy does not know."""
    assert got.dtype == want.dtype
    plain = got.dtype.kind in "iub"
    exactly(*(x if plain else x.astype(np.float64) for x in (got, want)))


def vec(name: str, lanes: int) -> DType:
    return DType(f"{name}x{lanes}")


def floats(dtype: DType, *shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32).astype(dtype.numpy)


# -- arithmetic ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("symbol", ["+", "-", "*", "max", "min"])
@pytest.mark.parametrize("threads", [1, 24, 127])
def test_packed_arithmetic_is_that_of_the_lanes(name, symbol, threads):
    t = DType(name)
    A, B, C = (buf(x, name, 2 * threads) for x in "ABC")
    at = mul(TX, 2)
    a2, b2 = (LoadVector(x, (at,), vec(name, 2)) for x in (A, B))
    fn = kernel(
        [A, B, C], StoreVector(C, (at,), Binary(BinaryOp(symbol), a2, b2)), threads=(threads,)
    )
    a, b, c = floats(t, 2 * threads), floats(t, 2 * threads), np.zeros(2 * threads, t.numpy)
    a[0] = np.nan
    run(fn, A=a, B=b, C=c)
    wide = np.float64 if name == "float64" else np.float32
    f = {"+": np.add, "-": np.subtract, "*": np.multiply, "max": np.fmax, "min": np.fmin}[symbol]
    same(c, f(a.astype(wide), b.astype(wide)).astype(t.numpy))


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_packed_functions(name):
    t, n = DType(name), 40
    A, B, C, D, E = (buf(x, name, n) for x in "ABCDE")
    x, y, z = (LoadVector(b, (mul(i, 2),), vec(name, 2)) for b in (A, B, C))
    body = (
        StoreVector(D, (mul(i, 2),), call("fma", x, y, z)),
        StoreVector(E, (mul(i, 2),), call("abs", x)),
    )
    a, b, c = (floats(t, n) for _ in range(3))
    d, e = np.zeros(n, t.numpy), np.zeros(n, t.numpy)
    run(kernel([A, B, C, D, E], Parallel((i,), (e_(20),), body)), A=a, B=b, C=c, D=d, E=e)
    exact = a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)
    same(
        d, exact.astype(np.float32).astype(t.numpy) if name == "float32" else exact.astype(t.numpy)
    )
    same(e, np.abs(a))


def e_(n: int) -> Const:
    return Const(n, I32)


@pytest.mark.parametrize(
    ("name", "lanes"), [("int8", 4), ("uint8", 16), ("int32", 2), ("uint64", 2)]
)
@pytest.mark.parametrize("symbol", ["+", "*", "&", "^", "<<", "//", "%"])
def test_integer_lanes_wrap_each_for_itself(name, lanes, symbol):
    t, n = DType(name), 5
    A, B, C = (buf(x, name, n * lanes) for x in "ABC")
    x, y = (LoadVector(b, (mul(i, lanes),), vec(name, lanes)) for b in (A, B))
    fn = kernel(
        [A, B, C],
        Parallel(
            (i,), (e_(n),), (StoreVector(C, (mul(i, lanes),), Binary(BinaryOp(symbol), x, y)),)
        ),
    )
    low, high = int(t.min) // 2, int(t.max) // 2
    a = RNG.integers(low, high, n * lanes, dtype=np.int64).astype(t.numpy)
    b = RNG.integers(1, 7, n * lanes, dtype=np.int64).astype(t.numpy)
    c = np.zeros(n * lanes, t.numpy)
    run(fn, A=a, B=b, C=c)
    with np.errstate(all="ignore"):
        f = {
            "+": np.add,
            "*": np.multiply,
            "&": np.bitwise_and,
            "^": np.bitwise_xor,
            "<<": np.left_shift,
            "//": np.floor_divide,
            "%": np.remainder,
        }[symbol]
        same(c, f(a, b))


def test_a_comparison_of_vectors_has_no_meaning():
    A, C = buf("A", "float32", 2), buf("C", "bool", 1)
    x = LoadVector(A, (e_(0),), vec("float32", 2))
    with pytest.raises(TileError, match="one lane"):
        translate(kernel([A, C], st(C, 0, Binary(BinaryOp.LT, x, x))))


# -- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["block", "threads", "parallel"])
@pytest.mark.parametrize("name", ["float16", "bfloat16", "int8", "uint32", "float8_e4m3fn"])
def test_pack_and_lane(where, name):
    t, n = DType(name), 24
    A, C = buf("A", name, n, 4), buf("C", name, n, 4)
    row = {"block": e_(7), "threads": TX, "parallel": i}[where]
    v = var("v", vec(name, 4))
    body = (
        Let(v, Pack(tuple(ld(A, row, x) for x in (2, 0, 3, 1)), vec(name, 4))),
        *(st(C, row, x, Lane(v, x)) for x in range(4)),
    )
    if where == "parallel":
        body = (Parallel((i,), (e_(n),), body),)
    a = RNG.integers(0, 100, (n, 4)).astype(np.float32).astype(t.numpy)
    c = np.zeros((n, 4), t.numpy)
    run(kernel([A, C], *body, threads=(n,)), A=a, C=c)
    want = np.zeros_like(c)
    rows = slice(7, 8) if where == "block" else slice(None)
    want[rows] = a[rows][:, [2, 0, 3, 1]]
    same(c, want)


def test_one_lane_is_repeated():
    A, C = buf("A", "float32", 3), buf("C", "float32", 3, 4)
    fn = kernel(
        [A, C],
        Parallel(
            (i,), (e_(3),), (StoreVector(C, (i, e_(0)), Pack((ld(A, i),), vec("float32", 4))),)
        ),
    )
    a, c = floats(F32, 3), np.zeros((3, 4), np.float32)
    run(fn, A=a, C=c)
    same(c, np.repeat(a[:, None], 4, 1))


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        ("float16x2", "uint32"),
        ("bfloat16x4", "uint32x2"),
        ("int8x4", "int32"),
        ("float32x2", "uint64"),
        ("float8_e4m3fnx4", "uint32"),
        ("int4x8", "uint32"),
        ("float4_e2m1fnx8", "int8x4"),
        ("uint2x16", "uint16x2"),
    ],
)
@pytest.mark.parametrize("lanes", [1, 9])
def test_bitcast_there_and_back(src, dst, lanes):
    s, d = DType(src), DType(dst)
    A, B, C = buf("A", s.base, lanes, s.lanes), buf("B", d, lanes), buf("C", s.base, lanes, s.lanes)
    x = LoadVector(A, (TX, e_(0)), s)
    body = (
        st(B, TX, Bitcast(x, d)),
        StoreVector(C, (TX, e_(0)), Bitcast(ld(B, TX), s)),
    )
    words = RNG.integers(0, 1 << s.bits, (lanes, s.lanes), dtype=np.uint64)
    a = words.astype(f"u{s.numpy.itemsize}").view(s.numpy)
    b = np.zeros((lanes, d.lanes) if d.lanes > 1 else lanes, d.numpy)
    c = np.zeros_like(a)
    run(kernel([A, B, C], *body, threads=(lanes,)), A=a, B=b, C=c)
    assert pack(a, s.base).tobytes() == b.tobytes()
    assert c.tobytes() == a.tobytes()


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        ("float32x2", "float16x2"),
        ("float16x4", "float8_e4m3fnx4"),
        ("int32x4", "int8x4"),
        ("float32x4", "int32x4"),
    ],
)
def test_cast_of_lanes(src, dst):
    s, d, n = DType(src), DType(dst), 17
    A, C = buf("A", s.base, n, s.lanes), buf("C", d.base, n, s.lanes)
    fn = kernel(
        [A, C],
        Parallel(
            (i,), (e_(n),), (StoreVector(C, (i, e_(0)), Cast(LoadVector(A, (i, e_(0)), s), d)),)
        ),
    )
    a = (RNG.standard_normal((n, s.lanes)) * 300).astype(s.numpy)
    c = np.zeros((n, s.lanes), d.numpy)
    run(fn, A=a, C=c)
    from tilelang.dtypes import cast

    same(c, cast(a, s.base, d.base))


def test_select_takes_whole_vectors():
    A, B, C = (buf(x, "float16", 10, 2) for x in "ABC")
    t = vec("float16", 2)
    x, y = (LoadVector(b, (i, e_(0)), t) for b in (A, B))
    odd = op("==", op("%", i, 2), 1)
    a, b, c = floats(F16, 10, 2), floats(F16, 10, 2), np.zeros((10, 2), np.float16)
    for lazy in (False, True):
        c[:] = 0
        body = (StoreVector(C, (i, e_(0)), Select(odd, x, y, lazy=lazy)),)
        run(kernel([A, B, C], Parallel((i,), (e_(10),), body)), A=a, B=b, C=c)
        same(c, np.where((np.arange(10) % 2 == 1)[:, None], a, b))


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "value"),
    [
        ("float16", "uint32"),
        ("float16", "uint32x2"),
        ("float16", "uint32x4"),
        ("int8", "uint32x4"),
        ("float32", "float32x4"),
        ("float8_e5m2", "uint64x2"),
        ("int4", "uint32"),
        ("float16", "float16"),
    ],
)
def test_neighbours_are_read_and_written_bit_by_bit(memory, value):
    m, v = DType(memory), DType(value)
    per = v.bits * v.lanes // m.bits
    A, C = buf("A", m, 3, 4 * per), buf("C", m, 3, 4 * per)
    at = (i, mul(j, per))
    x = LoadVector(A, at, v)
    words = RNG.integers(0, 1 << m.bits, (3, 4 * per), dtype=np.uint64)
    a = words.astype(f"u{m.numpy.itemsize}").view(m.numpy)
    c = np.zeros_like(a)
    fn = kernel([A, C], Parallel((i, j), (e_(3), e_(4)), (StoreVector(C, at, x),)))
    run(fn, A=a, C=c)
    assert c.tobytes() == a.tobytes()


def test_a_predicate_reads_nothing_and_writes_nothing():
    n = 10
    A, C = buf("A", "float16", n), buf("C", "float16", 2 * n)
    s = buf("s", "float16", n, scope="shared.dyn")
    at = mul(TX, 2)
    inside = op("<", at, n)
    x = LoadVector(s, (at,), DType("uint32"), pred=inside)
    body = (
        Alloc(s),
        Copy(reg(A), reg(s)),
        StoreVector(C, (at,), x),
        StoreVector(s, (at,), Const(0, DType("uint32")), pred=inside),
    )
    a, c = floats(F16, n), np.full(2 * n, 7, np.float16)
    run(kernel([A, C], *body, threads=(n,)), A=a, C=c)
    same(c, np.concatenate([a, np.zeros(n, np.float16)]))
    bad = LoadVector(s, (at,), DType("uint32"))
    with pytest.raises(TileIndexError, match="outside of s"):
        run(
            kernel(
                [A, C], Alloc(s), Copy(reg(A), reg(s)), StoreVector(C, (at,), bad), threads=(n,)
            ),
            A=a,
            C=c,
        )


@pytest.mark.parametrize("flag", [0, 1])
def test_a_predicate_of_the_block(flag):
    A, C, F = buf("A", "int32", 4), buf("C", "int32", 4), buf("F", "int32", 1)
    on = op("==", ld(F, 0), 1)
    body = (
        StoreVector(C, (e_(0),), LoadVector(A, (e_(0),), vec("int32", 2), pred=on)),
        StoreVector(C, (e_(2),), Pack((e_(9),), vec("int32", 2)), pred=on),
    )
    a, c = np.array([3, 4, 5, 6], np.int32), np.full(4, -1, np.int32)
    run(kernel([A, C, F], *body), A=a, C=c, F=np.array([flag], np.int32))
    same(c, np.array([3, 4, 9, 9] if flag else [0, 0, -1, -1], np.int32))


def test_neighbours_outside_of_global_memory():
    A, C = buf("A", "float32", 7), buf("C", "float32", 7)
    at = (op("-", mul(i, 4), 2),)
    fn = kernel(
        [A, C],
        Parallel((i,), (e_(3),), (StoreVector(C, at, LoadVector(A, at, vec("float32", 4))),)),
    )
    a, c = floats(F32, 7), np.full(7, 5, np.float32)
    run(fn, A=a, C=c)
    same(c, a)


def test_masked_lanes_keep_their_elements():
    A, C = buf("A", "int16", 20, 2), buf("C", "int16", 20, 2)
    x = LoadVector(A, (i, e_(0)), vec("int16", 2))
    body = (If(op("<", i, 7), (StoreVector(C, (i, e_(0)), x),)),)
    a, c = RNG.integers(0, 99, (20, 2)).astype(np.int16), np.full((20, 2), -1, np.int16)
    run(kernel([A, C], Parallel((i,), (e_(20),), body)), A=a, C=c)
    same(c, np.where(np.arange(20)[:, None] < 7, a, -1).astype(np.int16))


def test_a_value_that_covers_no_whole_elements_is_refused():
    A, C = buf("A", "float32", 4), buf("C", "float16", 4)
    with pytest.raises(TileError, match="float16 in A, which holds float32"):
        translate(kernel([A, C], st(C, 0, LoadVector(A, (e_(0),), DType("float16")))))


# -- buffers of vectors ----------------------------------------------------------------------------


@pytest.mark.parametrize("scope", ["shared.dyn", "local.fragment", "local"])
def test_buffers_of_vectors(scope):
    t, n = vec("float32", 4), 24
    A, C = buf("A", t, n), buf("C", t, n)
    s = buf("s", t, n, scope=scope)
    v = var("v", t)
    body = (
        Alloc(s),
        Parallel((i,), (e_(n),), (st(s, i, Binary(BinaryOp.ADD, ld(A, i), ld(A, i))),)),
        Parallel((i,), (e_(n),), (Let(v, ld(s, op("-", n - 1, i))), st(C, i, v))),
    )
    a, c = floats(F32, n, 4), np.zeros((n, 4), np.float32)
    run(kernel([A, C], *body), A=a, C=c)
    same(c, 2 * a[::-1])


def test_tiles_of_vectors():
    t = vec("float16", 2)
    A, C = buf("A", t, 6, 5), buf("C", t, 6, 5)
    s = buf("s", t, 3, 5, scope="shared.dyn")
    body = (
        Alloc(s),
        Fill(reg(s), Pack((Const(1.0, F16), Const(2.0, F16)), t)),
        Copy(reg(s), reg(C, ext=(3, 5))),
        Copy(reg(A, 4, 0, ext=(3, 5)), reg(s)),
        Copy(reg(s), reg(C, 3, 0, ext=(3, 5))),
    )
    a, c = floats(F16, 6, 5, 2), np.full((6, 5, 2), 9, np.float16)
    run(kernel([A, C], *body), A=a, C=c)
    want = np.zeros_like(c)
    want[:3] = [1, 2]
    want[3:5] = a[4:]
    same(c, want)


@pytest.mark.parametrize("per_thread", [False, True])
def test_variables_of_vectors(per_thread):
    t, n = vec("bfloat16", 2), 9
    A, C = buf("A", "bfloat16", n, 2), buf("C", "bfloat16", n, 2)
    v = buf("v", t, 1, scope="local.var")
    row = TX if per_thread else e_(3)
    body = (
        Alloc(v),
        For(
            k,
            e_(0),
            e_(3),
            (st(v, 0, Binary(BinaryOp.ADD, ld(v, 0), LoadVector(A, (row, e_(0)), t))),),
        ),
        StoreVector(C, (row, e_(0)), ld(v, 0)),
    )
    a = RNG.integers(-8, 8, (n, 2)).astype(np.float32).astype(ml_dtypes.bfloat16)
    c = np.zeros((n, 2), ml_dtypes.bfloat16)
    run(kernel([A, C], *body, threads=(n,)), A=a, C=c)
    rows = slice(None) if per_thread else slice(3, 4)
    want = np.zeros_like(c)
    want[rows] = (a[rows].astype(np.float32) * 3).astype(ml_dtypes.bfloat16)
    same(c, want)


def test_each_iteration_has_a_vector_variable_of_its_own():
    t, n = vec("int32", 4), 10
    A, C = buf("A", t, n), buf("C", t, n)
    v = buf("v", t, 1, scope="local.var")
    body = (st(v, 0, ld(A, i)), st(C, i, Binary(BinaryOp.MUL, ld(v, 0), ld(v, 0))))
    a, c = RNG.integers(0, 9, (n, 4)).astype(np.int32), np.zeros((n, 4), np.int32)
    run(kernel([A, C], Alloc(v), Parallel((i,), (e_(n),), body), st(C, 0, ld(C, 1))), A=a, C=c)
    want = a * a
    want[0] = want[1]
    same(c, want)


@pytest.mark.parametrize("offset", [0, 2])
def test_views_between_vectors_and_scalars(offset):
    A, C = buf("A", "float32x4", 6), buf("C", "float32", 16)
    flat = buf("flat", "float32", 16)
    pairs = buf("pairs", "uint32x2", 8)
    body = (
        View(flat, A, offset=e_(offset)),
        View(pairs, C),
        Parallel((i,), (e_(16),), (st(C, i, ld(flat, i)),)),
        st(pairs, 1, ld(pairs, 7)),
    )
    a, c = floats(F32, 6, 4), np.zeros(16, np.float32)
    run(kernel([A, C], *body), A=a, C=c)
    want = a.reshape(-1)[4 * offset : 4 * offset + 16].copy()
    want[2:4] = want[14:]
    same(c, want)


@pytest.mark.parametrize("limit", [0, 3, 9])
def test_a_masked_store_into_a_vector_variable(limit):
    t, n = vec("int32", 2), 9
    A, C = buf("A", t, n), buf("C", t, n)
    v = buf("v", t, 1, scope="local.var")
    body = (Alloc(v), If(op("<", TX, limit), (st(v, 0, ld(A, TX)),)), st(C, TX, ld(v, 0)))
    a, c = RNG.integers(1, 9, (n, 2)).astype(np.int32), np.full((n, 2), -1, np.int32)
    run(kernel([A, C], *body, threads=(n,)), A=a, C=c)
    same(c, np.where(np.arange(n)[:, None] < limit, a, 0).astype(np.int32))


def test_a_vector_prints_lane_by_lane(capsys):
    A = buf("A", "float32x2", 3)
    fn = kernel([A], Print(value=ld(A, TX), message="v"), threads=(3,))
    translate(fn).run({"A": np.arange(6, dtype=np.float32).reshape(3, 2)})
    lines = capsys.readouterr().out.splitlines()
    assert [x.split("value=")[1] for x in lines] == ["0.0", "2.0", "4.0", "1.0", "3.0", "5.0"]
    assert all("dtype=float32 " in x for x in lines)
