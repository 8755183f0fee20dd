"""Programs after public reports on element types, atomics and Python inside kernels."""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from report_run import refused, run

NARROW = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]


def numpy_type(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


# ---- Maths ---------------------------------------------------------------------------------------

ONE = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sqrt": np.sqrt, "sin": np.sin,
    "cos": np.cos, "tanh": np.tanh, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "round": np.round, "abs": np.abs, "log1p": np.log1p, "atan": np.arctan, "sinh": np.sinh,
}  # fmt: skip
TWO = {
    "copysign": np.copysign,
    "atan2": np.arctan2,
    "fmod": np.fmod,
    "hypot": np.hypot,
    "pow": np.power,
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", sorted(ONE))
def test_maths_of_one_argument(name, dtype):  # 2565, 2635
    @T.prim_func
    def main(A: T.Tensor((40,), dtype), B: T.Tensor((40,), dtype)):
        with T.Kernel(1, threads=40):
            for i in T.Parallel(40):
                B[i] = getattr(T, name)(A[i])

    kind = numpy_type(dtype)
    a = np.linspace(0.1, 3.4, 40).astype(kind)
    b = np.zeros(40, kind)
    run(main, a, b)
    wide = np.float64 if dtype == "float64" else np.float32
    want = ONE[name](a.astype(wide)).astype(kind).astype(np.float64)
    tight = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-6, "float64": 1e-13}[dtype]
    np.testing.assert_allclose(b.astype(np.float64), want, rtol=tight, atol=tight)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", sorted(TWO))
def test_maths_of_two_arguments(name, dtype):  # 2990
    @T.prim_func
    def main(A: T.Tensor((40,), dtype), C: T.Tensor((40,), dtype), B: T.Tensor((40,), dtype)):
        with T.Kernel(1, threads=40):
            for i in T.Parallel(40):
                B[i] = getattr(T, name)(A[i], C[i])

    kind = numpy_type(dtype)
    a, c = np.linspace(0.25, 4, 40).astype(kind), np.linspace(-2, 2.3, 40).astype(kind)
    b = np.zeros(40, kind)
    run(main, a, c, b)
    wide = np.float64 if dtype == "float64" else np.float32
    want = TWO[name](a.astype(wide), c.astype(wide)).astype(kind).astype(np.float64)
    tight = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 2e-6, "float64": 1e-13}[dtype]
    np.testing.assert_allclose(b.astype(np.float64), want, rtol=tight, atol=tight)


@pytest.mark.parametrize(
    "source", [*NARROW, "float32", "float64", "int8", "uint8", "int32", "bool"]
)
@pytest.mark.parametrize("dest", [*NARROW, "float32", "int8", "int32", "bool"])
def test_copies_convert_between_all_types(source, dest):  # 2385, 2610, 2998
    @T.prim_func
    def main(A: T.Tensor((24,), source), B: T.Tensor((24,), dest), C: T.Tensor((24,), dest)):
        with T.Kernel(1, threads=24):
            a = T.alloc_shared((24,), source)
            f = T.alloc_fragment((24,), dest)
            T.copy(A, a)
            T.copy(a, f)
            T.copy(f, B)
            for i in T.Parallel(24):
                C[i] = T.cast(a[i], dest)

    low = 0 if source in ("uint8", "bool") or dest == "bool" else -8
    a = np.arange(low, low + 24).clip(-16, 16).astype(np.float32).astype(numpy_type(source))
    b, c = np.zeros(24, numpy_type(dest)), np.zeros(24, numpy_type(dest))
    run(main, a, b, c)
    want = (
        a.astype(np.float32).astype(numpy_type(dest))
        if dest != "bool"
        else a.astype(np.float32) != 0
    )
    assert (b.astype(np.float32) == want.astype(np.float32)).all()
    assert (c.astype(np.float32) == want.astype(np.float32)).all()


def test_infinity_into_fp8_is_the_greatest_value():  # 2670
    @T.prim_func
    def main(
        A: T.Tensor((4,), "float32"),
        B: T.Tensor((4,), "float8_e4m3fn"),
        C: T.Tensor((4,), "float8_e5m2"),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                B[i] = A[i]
                C[i] = A[i]

    b, c = np.zeros(4, ml_dtypes.float8_e4m3fn), np.zeros(4, ml_dtypes.float8_e5m2)
    run(main, np.array([np.inf, -np.inf, np.nan, 1e9], np.float32), b, c)
    np.testing.assert_array_equal(b.astype(np.float32), [448, -448, np.nan, 448])
    np.testing.assert_array_equal(c.astype(np.float32), [57344, -57344, np.nan, 57344])


@pytest.mark.parametrize("op", ["bitand", "bitor", "bitxor", "max", "min"])
def test_reductions_of_truth_values(op):  # 2568
    @T.prim_func
    def main(A: T.Tensor((5, 40), "bool"), B: T.Tensor((5,), "bool")):
        with T.Kernel(1, threads=96):
            tile = T.alloc_fragment((5, 40), "bool")
            out = T.alloc_fragment((5,), "bool")
            T.copy(A, tile)
            getattr(T, f"reduce_{op}")(tile, out, dim=1)
            T.copy(out, B)

    a = np.random.default_rng(2).integers(0, 2, (5, 40)).astype(bool)
    a[0], a[1] = True, False
    b = np.zeros(5, bool)
    run(main, a, b)
    over = {"bitand": np.all, "min": np.all, "bitor": np.any, "max": np.any}.get(op)
    want = over(a, axis=1) if over else np.logical_xor.reduce(a, axis=1)
    assert (b == want).all()


# ---- Atomics -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int32", "uint32", "float64"])
@pytest.mark.parametrize("op", ["max", "min", "add"])
def test_wide_atomics_and_what_they_give_back(dtype, op):  # 2573, 2667
    @T.prim_func
    def main(V: T.Tensor((50,), dtype), A: T.Tensor((5,), dtype), P: T.Tensor((5,), dtype)):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(50):
                getattr(T, f"atomic_{op}")(A[i % 5], V[i])
            for i in T.Parallel(5):
                P[i] = getattr(T, f"atomic_{op}")(A[i], V[i], return_prev=True)

    big = 2**62 if dtype.endswith("64") and "int" in dtype else 2**20
    v = (np.arange(50) * (big // 200) + 3).astype(dtype)
    a = np.full(5, big // 100, dtype)
    p = np.zeros(5, dtype)
    want = a.copy()
    over = {"max": np.maximum, "min": np.minimum, "add": np.add}[op]
    over.at(want, np.arange(50) % 5, v)
    run(main, v, a, p)
    assert (p == want).all()
    over.at(want, np.arange(5), v[:5])
    assert (a == want).all()


@pytest.mark.parametrize("dtype", ["float32", "int32", "float16"])
@pytest.mark.parametrize("lanes", [2, 4])
def test_atomics_of_several_lanes(lanes, dtype):  # 2561
    @T.prim_func
    def main(V: T.Tensor((8, lanes), dtype), A: T.Tensor((2, lanes), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(8):
                getattr(T, f"atomic_addx{lanes}")(A[i % 2, 0], V[i, 0])

    v = np.arange(8 * lanes).reshape(8, lanes).astype(dtype)
    a = np.ones((2, lanes), dtype)
    run(main, v, a)
    assert (a == 1 + v.reshape(4, 2, lanes).sum(0)).all()


@pytest.mark.parametrize("order", ["relaxed", "acquire", "release", "acq_rel", "seq_cst"])
def test_a_memory_order_is_kept(order):  # 2688
    @T.prim_func
    def main(A: T.Tensor((1,), "int32")):
        with T.Kernel(3, threads=32):
            for _ in T.Parallel(7):
                T.atomic_add(A[0], 1, memory_order=order)

    assert order == "relaxed" or order in main.script()
    a = np.zeros(1, np.int32)
    run(main, a)
    assert a[0] == 21


@pytest.mark.parametrize("make", ["alloc_shared", "alloc_fragment"])
def test_an_atomic_of_a_whole_tile_counts_once(make):  # 2959
    @T.prim_func
    def main(A: T.Tensor((6, 24), "int32"), B: T.Tensor((24,), "int32")):
        with T.Kernel(6, threads=64) as b:
            tile = getattr(T, make)((24,), "int32")
            T.copy(A[b, :], tile)
            T.atomic_add(B, tile)
            T.atomic_max(A[b, 0:24], tile)

    a = np.arange(144, dtype=np.int32).reshape(6, 24)
    b = np.zeros(24, np.int32)
    run(main, a, b)
    assert (b == a.sum(0)).all()


# ---- Python inside kernels -----------------------------------------------------------------------


def test_truth_of_numbers_and_words_of_logic():  # 3009, 1347
    @T.prim_func
    def main(A: T.Tensor((24,), "int32"), B: T.Tensor((24,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(24):
                x = T.alloc_var("int32", init=0)
                if A[i]:
                    x += 1
                if not A[i]:
                    x += 10
                if (A[i] > 2 and A[i] < 9) or A[i] == 20:
                    x += 100
                if 3 < A[i] <= 7:
                    x += 1000
                if A[i] % 2 and not (A[i] > 10 or i == 1):
                    x += 10000
                B[i] = x

    a, b = np.arange(24, dtype=np.int32), np.zeros(24, np.int32)
    run(main, a, b)
    want = [
        (1 if v else 10) + 100 * (2 < v < 9 or v == 20) + 1000 * (3 < v <= 7)
        + 10000 * bool(v % 2 and not (v > 10 or v == 1))
        for v in range(24)
    ]  # fmt: skip
    assert b.tolist() == want


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_remainder_of_floats_is_python_s(dtype):  # 3008
    @T.prim_func
    def main(A: T.Tensor((6,), dtype), C: T.Tensor((6,), dtype), B: T.Tensor((2, 6), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(6):
                B[0, i] = A[i] % C[i]
                B[1, i] = A[i] // C[i]

    kind = numpy_type(dtype)
    a = np.array([7.5, -7.5, 7.5, -7.5, 0.0, 5.0], kind)
    c = np.array([2.0, 2.0, -2.0, -2.0, 3.0, -2.5], kind)
    b = np.zeros((2, 6), kind)
    run(main, a, c, b)
    pairs = list(zip(a.tolist(), c.tolist(), strict=True))
    assert b[0].astype(float).tolist() == [float(x) % float(y) for x, y in pairs]
    assert b[1].astype(float).tolist() == [float(x) // float(y) for x, y in pairs]


def test_one_name_for_several_loops_and_values():  # 3231
    @T.prim_func
    def main(A: T.Tensor((12,), "int32")):
        with T.Kernel(1, threads=32):
            for i in T.serial(4):
                A[i] = i
            for i in T.Parallel(4):
                A[4 + i] = i * 10
            i = 7
            for j in T.unroll(4):
                A[8 + j] = i + j

    a = np.zeros(12, np.int32)
    run(main, a)
    assert a.tolist() == [0, 1, 2, 3, 0, 10, 20, 30, 7, 8, 9, 10]


def test_several_variables_and_precedence():  # 1678, 1442
    @T.prim_func
    def main(A: T.Tensor((16,), "int32"), B: T.Tensor((16,), "int32")):
        with T.Kernel(1, threads=1):
            a = T.alloc_var("int32", init=1)
            b = T.alloc_var("int32", init=2)
            c = T.alloc_var("int32")
            for i in T.serial(16):
                a, b = b, a + b
                if (i & 2) != 0:
                    c += a
                B[i] = c + (i & 6 != 0)
                A[i] = a

    a, b = np.zeros(16, np.int32), np.zeros(16, np.int32)
    run(main, a, b)
    x, y, z, first, second = 1, 2, 0, [], []
    for i in range(16):
        x, y = y, x + y
        z += x if i & 2 else 0
        first.append(x)
        second.append(z + (i & 6 != 0))
    assert (a.tolist(), b.tolist()) == (first, second)


def test_a_symbolic_size_inside_a_macro():  # 2916
    n = T.dynamic("n")

    @T.macro
    def scale(A, by):
        for i in T.serial(n):
            A[i] = A[i] * by

    @T.prim_func
    def main(A: T.Tensor((n,), "int32")):
        with T.Kernel(1, threads=1):
            scale(A, 3)

    for size in (0, 1, 9):
        a = np.arange(size, dtype=np.int32)
        run(main, a)
        assert (a == 3 * np.arange(size)).all()


@pytest.mark.parametrize("loop", ["serial", "unroll", "vectorized", "Pipelined", "range"])
def test_break_and_continue_in_every_sequential_loop(loop):  # 3026, 2608, adapter 468
    make = range if loop == "range" else getattr(T, loop)

    @T.prim_func
    def main(A: T.Tensor((16,), "int32"), B: T.Tensor((16,), "int32"), C: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=1):
            for i in make(16):
                if A[i] < 0:
                    continue
                if A[i] > 90:
                    break
                B[i] = A[i] + 1
                C[0] += 1

    a = np.array([1, -1, 5, 7, -3, 9, 91, 4, 5, 6, 7, 8, 9, 1, 2, 3], np.int32)
    b, c = np.zeros(16, np.int32), np.zeros(1, np.int32)
    run(main, a, b, c)
    assert b.tolist() == [2, 0, 6, 8, 0, 10] + [0] * 10
    assert c[0] == 4


def test_while_on_the_cpu():  # 2202
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(8, threads=1) as b:
            x = T.alloc_var("int32", init=A[b])
            y = T.alloc_var("int32", init=36)
            while y != 0:
                t = x % y
                x = y
                y = t
            B[b] = x

    a = np.array([1, 12, 18, 36, 35, 0, 27, 100], np.int32)
    b = np.zeros(8, np.int32)
    run(main, a, b)
    assert (b == np.gcd(a, 36)).all()


@pytest.mark.parametrize("loop", ["vectorized", "unroll", "serial"])
@pytest.mark.parametrize(("start", "stop"), [(0, 4), (2, 6), (5, 5), (1, 8)])
def test_loops_that_do_not_begin_at_zero(loop, start, stop):  # 2669
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            for i in getattr(T, loop)(start, stop):
                A[i] = i + 1

    a = np.zeros(8, np.int32)
    run(main, a)
    assert a.tolist() == [i + 1 if start <= i < stop else 0 for i in range(8)]


def test_a_bf16_product_is_not_one_of_bits():  # adapter 1016, triton 11584, 4972
    @T.prim_func
    def main(
        A: T.Tensor((8, 24), "bfloat16"),
        B: T.Tensor((24, 8), "bfloat16"),
        C: T.Tensor((8, 8), "float32"),
        D: T.Tensor((8, 24), "bfloat16"),
    ):
        with T.Kernel(1, threads=32):
            a, b = T.alloc_shared((8, 24), "bfloat16"), T.alloc_shared((24, 8), "bfloat16")
            c = T.alloc_fragment((8, 8), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)
            for i, j in T.Parallel(8, 24):
                D[i, j] = a[i, j] * b[j, i] + a[i, j]

    rng = np.random.default_rng(5)
    x = rng.integers(-4, 5, (8, 24)).astype(ml_dtypes.bfloat16)
    y = rng.integers(-4, 5, (24, 8)).astype(ml_dtypes.bfloat16)
    c, d = np.zeros((8, 8), np.float32), np.zeros((8, 24), ml_dtypes.bfloat16)
    run(main, x, y, c, d)
    assert (c == x.astype(np.float32) @ y.astype(np.float32)).all()
    assert (d == x * y.T + x).all()


def test_every_half_word_becomes_the_right_e5m2():  # triton 8322
    @T.prim_func
    def main(A: T.Tensor((65536,), "float16"), B: T.Tensor((65536,), "float8_e5m2")):
        with T.Kernel(64, threads=256) as b:
            for i in T.Parallel(1024):
                B[b * 1024 + i] = A[b * 1024 + i]

    a = np.arange(65536, dtype=np.uint32).astype(np.uint16).view(np.float16)
    b = np.zeros(65536, ml_dtypes.float8_e5m2)
    run(main, a, b)
    with np.errstate(all="ignore"):
        want = a.astype(ml_dtypes.float8_e5m2)
    wide = want.astype(np.float32)
    wide[np.isinf(wide)] = np.copysign(57344, wide[np.isinf(wide)])
    np.testing.assert_array_equal(b.astype(np.float32), wide)


@pytest.mark.parametrize("target", ["cpu", "emulate:sm_90a"])
def test_the_precision_of_a_float32_product_is_said(target):  # triton 5895
    @T.prim_func
    def main(
        A: T.Tensor((16, 8), "float32"),
        B: T.Tensor((8, 16), "float32"),
        C: T.Tensor((16, 16), "float32"),
    ):
        with T.Kernel(1, threads=32):
            a, b = T.alloc_shared((16, 8), "float32"), T.alloc_shared((8, 16), "float32")
            c = T.alloc_fragment((16, 16), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)

    a = np.full((16, 8), 1 + 2.0**-20, np.float32)
    c = np.zeros((16, 16), np.float32)
    run(main, a, np.ones((8, 16), np.float32), c, target=target)
    assert (c == (8 + 2.0**-17 if target == "cpu" else 8)).all()


@pytest.mark.parametrize("options", [{}, {"num_stages": 1}, {"num_stages": 5}])
@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_pipelines_of_few_rounds_end(options, rounds):  # 2566, triton pull 2868
    @T.prim_func
    def main(A: T.Tensor((4, 32), "int32"), B: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((32,), "int32")
            total = T.alloc_fragment((32,), "int32")
            T.clear(total)
            for k in T.Pipelined(rounds, **options):
                T.copy(A[k, :], tile)
                for j in T.Parallel(32):
                    total[j] += tile[j]
            T.copy(total, B)

    a, b = np.arange(128, dtype=np.int32).reshape(4, 32), np.ones(32, np.int32)
    run(main, a, b)
    assert (b == a[:rounds].sum(0)).all()


def test_a_condition_inside_a_pipeline_keeps_the_order():  # 374, 2566
    @T.prim_func
    def main(A: T.Tensor((6, 8), "int32"), M: T.Tensor((6,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((8,), "int32")
            total = T.alloc_fragment((8,), "int32")
            T.fill(tile, 100)
            T.clear(total)
            for k in T.Pipelined(6, num_stages=3):
                if M[k] != 0:
                    T.copy(A[k, :], tile)
                for j in T.Parallel(8):
                    total[j] = total[j] * 2 + tile[j]
            T.copy(total, B)

    a = np.arange(48, dtype=np.int32).reshape(6, 8)
    m = np.array([0, 1, 0, 0, 1, 0], np.int32)
    tile, total = np.full(8, 100), np.zeros(8, np.int64)
    for k in range(6):
        tile = a[k] if m[k] else tile
        total = total * 2 + tile
    b = np.zeros(8, np.int32)
    run(main, a, m, b)
    assert (b == total).all()


@pytest.mark.parametrize(("threads", "some"), [(64, 48), (96, 33), (128, 100)])
def test_a_barrier_after_part_of_a_warp(threads, some):  # 2556, 2612
    @T.prim_func
    def main(A: T.Tensor((threads,), "int32"), B: T.Tensor((threads,), "int32")):
        with T.Kernel(1, threads=threads):
            t = T.get_thread_binding()
            s = T.alloc_shared((threads,), "int32")
            s[t] = 0
            T.sync_threads()
            if t < some:
                s[t] = A[t]
            T.sync_threads()
            B[t] = s[threads - 1 - t]

    a = np.arange(1, threads + 1, dtype=np.int32)
    b = np.zeros_like(a)
    run(main, a, b)
    assert (b == np.where(np.arange(threads) < some, a, 0)[::-1]).all()

    def divergent():
        @T.prim_func
        def main(A: T.Tensor((threads,), "int32")):
            with T.Kernel(1, threads=threads):
                t = T.get_thread_binding()
                if t < some:
                    A[t] = 1
                    T.sync_threads()

        tilelang.compile(main, target="cpu")

    refused(divergent, "threads")
