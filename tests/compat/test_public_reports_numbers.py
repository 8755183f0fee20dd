"""Programs after public reports of wrong numbers: each gives the right value."""

import ml_dtypes
import numpy as np
import pytest

import tilelang.language as T
from frontend_run import defined
from report_run import refused, run

BF16 = ml_dtypes.bfloat16


# ---- Reductions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [48, 64, 96, 100, 192])
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_a_batched_reduction_reduces_all_of_it(threads, batch):  # 2524, 2542, 2623
    @T.prim_func
    def main(A: T.Tensor((8, 48), "int32"), S: T.Tensor((8,), "int32"), X: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=threads):
            tile = T.alloc_fragment((8, 48), "int32")
            total = T.alloc_fragment((8,), "int32")
            peak = T.alloc_fragment((8,), "int32")
            T.copy(A, tile)
            T.reduce_sum(tile, total, dim=1, batch=batch)
            T.reduce_max(tile, peak, dim=1, batch=batch)
            T.copy(total, S)
            T.copy(peak, X)

    a = np.arange(8 * 48, dtype=np.int32).reshape(8, 48) % 37 - 11
    s, x = np.zeros(8, np.int32), np.zeros(8, np.int32)
    run(main, a, s, x)
    assert (s == a.sum(1)).all()
    assert (x == a.max(1)).all()


@pytest.mark.parametrize("replication", ["all", "none"])
@pytest.mark.parametrize(("rows", "columns", "threads"), [(16, 24, 64), (40, 16, 128), (1, 7, 96)])
def test_a_reducer_counts_each_contribution_once(replication, rows, columns, threads):  # 2408
    @T.prim_func
    def main(A: T.Tensor((rows, columns), "int32"), S: T.Tensor((columns,), "int32")):
        with T.Kernel(1, threads=threads):
            acc = T.alloc_reducer((columns,), "int32", op="sum", replication=replication)
            T.clear(acc)
            for i, j in T.Parallel(rows, columns):
                acc[j] += A[i, j]
            T.finalize_reducer(acc)
            T.copy(acc, S)

    a = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
    s = np.zeros(columns, np.int32)
    run(main, a, s)
    assert (s == a.sum(0)).all()


@pytest.mark.parametrize("op", ["sum", "max", "min"])
def test_a_reducer_of_the_newer_form_counts_iterations(op):  # 2408
    @T.prim_func
    def main(A: T.Tensor((16, 24), "int32"), S: T.Tensor((16,), "int32")):
        with T.Kernel(1, threads=64):
            acc = T.alloc_reducer((16,), "int32", op)
            out = T.alloc_fragment((16,), "int32")
            T.reducer_init(acc)
            for i, j in T.Parallel(16, 24):
                T.reducer_update(acc[i], A[i, j])
            T.finalize_reducer(acc, out)
            T.copy(out, S)

    a = np.arange(16 * 24, dtype=np.int32).reshape(16, 24) % 41 - 20
    s = np.zeros(16, np.int32)
    run(main, a, s)
    assert (s == getattr(a, op)(axis=1)).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("clear", [True, False])
@pytest.mark.parametrize("op", ["max", "min", "absmax"])
def test_nan_propagates_in_every_float_and_into_a_kept_value(dtype, clear, op):  # 2697, 3270
    @T.prim_func
    def main(A: T.Tensor((3, 40), dtype), S: T.Tensor((3,), dtype)):
        with T.Kernel(1, threads=96):
            tile = T.alloc_fragment((3, 40), dtype)
            best = T.alloc_fragment((3,), dtype)
            T.copy(A, tile)
            T.copy(S, best)
            getattr(T, f"reduce_{op}")(tile, best, dim=1, clear=clear, nan_propagate=True)
            T.copy(best, S)

    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    a = np.full((3, 40), 2, kind)
    a[0, 17] = np.nan
    s = np.array([1, 1, np.nan], kind)
    run(main, a, s)
    s = s.astype(np.float64)
    assert np.isnan(s[0])
    assert np.isnan(s[2]) == (not clear)
    assert s[1] == (2 if clear or op != "min" else 1)


@pytest.mark.parametrize("op", ["sum", "abssum", "bitand", "bitor", "bitxor"])
def test_nan_propagate_is_refused_where_it_means_nothing(op):  # 2697
    def build():
        @T.prim_func
        def main(A: T.Tensor((4, 8), "float32")):
            with T.Kernel(1, threads=32):
                tile = T.alloc_fragment((4, 8), "float32")
                out = T.alloc_fragment((4,), "float32")
                T.copy(A, tile)
                T.reduce(tile, out, op, 1, True, nan_propagate=True)

    refused(build, "nan_propagate")


# ---- Integers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "k"), [(24, 10), (40, 7), (8, 3), (12, 12)])
def test_a_remainder_as_index_where_it_does_not_divide(n, k):  # 2955
    @T.prim_func
    def main(
        B: T.Tensor((k,), "int32"), C: T.Tensor((5, n), "int32"), D: T.Tensor((5, n), "int32")
    ):
        with T.Kernel(1, threads=64):
            for i, j in T.Parallel(5, n):
                C[i, j] = B[j % k]
                D[i, j] = B[(i * n + j) % k] + (i * n + j) // k % 3 + (i * n + j) % n % k

    b = np.arange(k, dtype=np.int32) * 3 + 1
    c, d = np.zeros((5, n), np.int32), np.zeros((5, n), np.int32)
    run(main, b, c, d)
    at = np.arange(5 * n).reshape(5, n)
    assert (c == b[at % n % k]).all()
    assert (d == b[at % k] + at // k % 3 + at % n % k).all()


def test_ceildiv_rounds_up_for_all_signs():  # 2943
    values = [(7, -3), (-7, 3), (-7, -3), (7, 3), (6, -3), (0, -5)]

    @T.prim_func
    def main(A: T.Tensor((6, 2), "int32"), B: T.Tensor((6, 2), "int32")):
        with T.Kernel(1, threads=1):
            for i in T.serial(6):
                B[i, 0] = T.ceildiv(A[i, 0], A[i, 1])
            B[0, 1] = T.ceildiv(7, -3)
            B[1, 1] = T.ceildiv(T.int32(-7), T.int32(3))
            B[2, 1] = T.ceildiv(T.int32(7), -3)
            B[3, 1] = T.ceildiv(A[0, 0], -3)
            B[4, 1] = T.ceildiv(A[1, 0], 3)
            B[5, 1] = T.ceildiv(-7, A[0, 1])

    a = np.array(values, np.int32)
    b = np.zeros((6, 2), np.int32)
    run(main, a, b)
    assert b[:, 0].tolist() == [-(-x // y) for x, y in values]
    assert b[:, 1].tolist() == [-2, -2, -2, -2, -2, 3]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_narrow_shifts_drop_what_leaves_the_type(dtype):  # 2961
    @T.prim_func
    def main(A: T.Tensor((256,), dtype), B: T.Tensor((3, 256), dtype)):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(256):
                four = T.cast(4, dtype)
                B[0, i] = (A[i] << four) >> four
                B[1, i] = (A[i] + A[i]) // T.cast(2, dtype)
                B[2, i] = (~A[i]) >> T.cast(1, dtype)

    a = np.arange(256).astype(dtype) * np.array(97).astype(dtype)
    b = np.zeros((3, 256), dtype)
    run(main, a, b)
    kind = np.dtype(dtype).type
    assert (b[0] == (a << kind(4)) >> kind(4)).all()
    assert (b[1] == (a + a) // kind(2)).all()
    assert (b[2] == ~a >> kind(1)).all()


@pytest.mark.parametrize(("dtype", "value"), [("int8", -3), ("int16", -300), ("uint8", 200)])
@pytest.mark.parametrize("make", ["alloc_shared", "alloc_fragment"])
def test_fill_writes_every_narrow_element(dtype, value, make):  # 2427
    @T.prim_func
    def main(B: T.Tensor((37,), dtype)):
        with T.Kernel(1, threads=48):
            tile = getattr(T, make)((37,), dtype)
            T.fill(tile, value)
            T.copy(tile, B)

    b = np.zeros(37, dtype)
    run(main, b)
    assert (b == value).all()


def test_constants_wider_than_int32_keep_their_value():  # 2560, 1299, 2582
    @T.prim_func
    def main(A: T.Tensor((8,), "int64"), U: T.Tensor((4,), "uint64"), W: T.Tensor((3,), "uint32")):
        with T.Kernel(1, threads=1):
            A[0] = 0xFFFFFFFF
            A[1] = 2**40 + 1
            A[2] = T.int64(2**31) * 4
            A[3] = T.int32(1) << T.int32(31)
            A[4] = -(2**63)
            A[5] = 3000000000 * 2
            A[6] = T.cast(T.uint32(0xFFFFFFFF), "int64")
            A[7] = T.uint32(0xFFFFFFFF) + 1
            U[0] = 2**64 - 1
            U[1] = T.uint64(2**63) + T.uint64(5)
            U[2] = T.uint64(2**64 - 1) // T.uint64(3)
            U[3] = T.uint64(2**64 - 1) % T.uint64(10)
            W[0] = 0xFFFFFFFF
            W[1] = T.uint32(5) - T.uint32(7)
            W[2] = T.uint32(0xFFFFFFFF) >> T.uint32(4)

    a, u, w = np.zeros(8, np.int64), np.zeros(4, np.uint64), np.zeros(3, np.uint32)
    run(main, a, u, w)
    wide = [2**32 - 1, 2**40 + 1, 2**33, -(2**31), -(2**63), 6000000000, 2**32 - 1, 0]
    assert a.tolist() == wide
    assert u.tolist() == [2**64 - 1, 2**63 + 5, (2**64 - 1) // 3, (2**64 - 1) % 10]
    assert w.tolist() == [2**32 - 1, 2**32 - 2, 2**28 - 1]


# ---- Floats --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_nothing_is_folded_that_nan_or_infinity_could_tell(dtype):  # 2638
    @T.prim_func
    def main(A: T.Tensor((4,), dtype), B: T.Tensor((7, 4), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                B[0, i] = A[i] * T.cast(0.0, dtype)
                B[1, i] = A[i] - A[i]
                B[2, i] = A[i] / A[i]
                B[3, i] = T.cast(0.0, dtype) * A[i]
                B[4, i] = T.cast(0.0, dtype) / A[i]
                B[5, i] = A[i] + T.cast(0.0, dtype)
                B[6, i] = T.if_then_else(A[i] == A[i], T.cast(1, dtype), T.cast(0, dtype))

    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    a = np.array([np.nan, np.inf, -0.0, 3.0], kind)
    b = np.full((7, 4), 9, kind)
    run(main, a, b)
    zero = kind.type(0)
    with np.errstate(all="ignore"):
        want = [a * zero, a - a, a / a, zero * a, zero / a, a + zero, (a == a).astype(kind)]
    np.testing.assert_array_equal(b.astype(np.float64), np.array(want, np.float64))
    assert not np.signbit(b[5, 2])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_nan_in_clamp_max_and_min_whatever_the_order(dtype):  # 3024, 2882
    @T.prim_func
    def main(A: T.Tensor((1,), dtype), B: T.Tensor((9,), dtype)):
        with T.Kernel(1, threads=1):
            nan = T.cast(float("nan"), dtype)
            two = T.cast(2.0, dtype)
            B[0] = T.clamp(A[0], two, T.cast(5.0, dtype))
            B[1] = T.max(A[0], two)
            B[2] = T.max(two, A[0])
            B[3] = T.min(A[0], two)
            B[4] = T.min(two, A[0])
            B[5] = T.max(nan, two)
            B[6] = T.max(two, nan)
            B[7] = T.min(nan, two)
            B[8] = T.clamp(nan, two, T.cast(5.0, dtype))

    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    b = np.zeros(9, kind)
    run(main, np.array([np.nan], kind), b)
    np.testing.assert_array_equal(b.astype(np.float32), [np.nan, 2, 2, 2, 2, 2, 2, 2, np.nan])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
def test_integers_are_converted_by_value_and_not_by_bits(dtype):  # 2483, 2382
    @T.prim_func
    def main(A: T.Tensor((40,), "int32"), B: T.Tensor((40,), dtype), C: T.Tensor((40,), dtype)):
        with T.Kernel(1, threads=40):
            frag = T.alloc_fragment((40,), dtype)
            for i in T.Parallel(40):
                B[i] = A[i]
            T.copy(A, frag)
            T.copy(frag, C)

    a = np.arange(40, dtype=np.int32) - 8
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    b, c = np.zeros(40, kind), np.zeros(40, kind)
    run(main, a, b, c)
    want = a.astype(np.float32).astype(kind)
    assert (b == want).all()
    assert (c == want).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32", "int64"])
def test_atomics_convert_their_value(dtype):  # 2382, 2758
    @T.prim_func
    def main(A: T.Tensor((4,), dtype), F: T.Tensor((8,), "float32"), V: T.Tensor((8,), dtype)):
        with T.Kernel(1, threads=32):
            T.atomic_max(A[0], 42.0)
            T.atomic_min(A[1], -3.0)
            T.atomic_add(A[2], 2.0)
            T.atomic_add(V, F)

    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    a, v = np.ones(4, kind), np.ones(8, kind)
    run(main, a, np.arange(8, dtype=np.float32), v)
    assert a.astype(np.float64).tolist() == [42, -3, 65, 1]  # each of 32 threads adds 2
    assert v.astype(np.float64).tolist() == list(range(1, 9))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"])
def test_every_word_of_fp8_goes_through_a_copy_as_it_is(dtype):  # 2944, 2702
    @T.prim_func
    def main(
        A: T.Tensor((256,), dtype), B: T.Tensor((256,), dtype), C: T.Tensor((256,), "float32")
    ):
        with T.Kernel(1, threads=96):
            tile = T.alloc_shared((256,), dtype)
            T.copy(A, tile)
            T.copy(tile, B)
            for i in T.Parallel(256):
                C[i] = tile[i]

    kind = getattr(ml_dtypes, dtype)
    a = np.arange(256, dtype=np.uint8).view(kind)
    b, c = np.zeros(256, kind), np.zeros(256, np.float32)
    run(main, a, b, c)
    assert (b.view(np.uint8) == a.view(np.uint8)).all()
    np.testing.assert_array_equal(c, a.astype(np.float32))


def test_signed_four_bit_integers_keep_their_sign():  # 2477, 2482, 2963
    @T.prim_func
    def main(A: T.Tensor((16,), "int4"), B: T.Tensor((16,), "int8"), C: T.Tensor((16,), "int4")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((16,), "int4")
            T.copy(A, tile)
            for i in T.Parallel(16):
                B[i] = tile[i]
            T.copy(tile, C)

    a = np.arange(-8, 8).astype(ml_dtypes.int4)
    b, c = np.zeros(16, np.int8), np.zeros(16, ml_dtypes.int4)
    run(main, a, b, c)
    assert b.tolist() == list(range(-8, 8))
    assert (c == a).all()


def test_a_fp4_tile_is_copied_element_by_element():  # 2702
    kind = ml_dtypes.float4_e2m1fn

    @T.prim_func
    def main(A: T.Tensor((6, 16), "float4_e2m1fn"), B: T.Tensor((6, 16), "float4_e2m1fn")):
        with T.Kernel(1, threads=48):
            tile = T.alloc_shared((6, 16), "float4_e2m1fn")
            T.copy(A, tile)
            T.copy(tile, B)

    a = (np.arange(96, dtype=np.uint8) % 16).view(kind).reshape(6, 16)
    b = np.zeros((6, 16), kind)
    run(main, a, b)
    assert (b.view(np.uint8) & 15 == a.view(np.uint8)).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stated_roundings_differ_where_they_should(dtype):  # 2510
    modes = {"rn": 0, "rz": 1, "ru": 2, "rd": 3}

    @T.prim_func
    def main(A: T.Tensor((2,), dtype), B: T.Tensor((4,), dtype)):
        with T.Kernel(1, threads=1):
            for mode, at in modes.items():
                B[at] = T.ieee_add(A[0], A[1], mode)

    one, small = np.array([1, 0], dtype), np.finfo(dtype).eps / 8
    a = np.array([1, small], dtype)
    b = np.zeros(4, dtype)
    run(main, a, b)
    up = np.nextafter(one[0], np.array(2, dtype))
    assert b.tolist() == [1, 1, up, 1]


# ---- Slices, views, guards, names ----------------------------------------------------------------


@pytest.mark.parametrize("make", ["alloc_fragment", "alloc_shared"])
@pytest.mark.parametrize(("low", "high"), [(3, 11), (0, 1), (15, 16), (5, 5), (1, 15)])
def test_a_fill_of_a_slice_touches_the_slice_alone(make, low, high):  # 2942
    @T.prim_func
    def main(B: T.Tensor((16, 24), "int32")):
        with T.Kernel(1, threads=96):
            tile = getattr(T, make)((16, 24), "int32")
            T.fill(tile, 1)
            T.fill(tile[low:high, :], 7)
            T.copy(tile, B)

    b = np.zeros((16, 24), np.int32)
    run(main, b)
    want = np.ones((16, 24), np.int32)
    want[low:high] = 7
    assert (b == want).all()


@pytest.mark.parametrize("op", ["fill", "clear", "copy", "atomic_add", "reduce"])
def test_a_slice_that_leaves_a_tile_is_refused_by_every_operation(op):  # 2979
    def build():
        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=32):
                tile = T.alloc_shared((8,), "int32")
                one = T.alloc_shared((1,), "int32")
                T.clear(tile)
                if op == "fill":
                    T.fill(tile[6:12], 7)
                elif op == "clear":
                    T.clear(tile[4:9])
                elif op == "copy":
                    T.copy(A[0:6], tile[6:12])
                elif op == "atomic_add":
                    T.atomic_add(tile[6:12], 1)
                else:
                    T.reduce_sum(tile[6:12], one, dim=0)

    refused(build, "out of bounds", "tile")


def test_the_safe_value_is_what_a_copy_of_a_whole_tile_reads_outside():  # 2543
    @T.prim_func
    def main(A: T.Tensor((10, 13), "float32"), B: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=64):
            T.annotate_safe_value({A: -7.5})
            tile = T.alloc_shared((16, 16), "float32")
            T.copy(A[0:16, 0:16], tile)
            T.copy(tile, B)

    a = np.random.default_rng(0).standard_normal((10, 13), np.float32)
    b = np.zeros((16, 16), np.float32)
    run(main, a, b)
    want = np.full((16, 16), -7.5, np.float32)
    want[:10, :13] = a
    assert (b == want).all()


@pytest.mark.parametrize("make", ["alloc_shared", "alloc_fragment"])
def test_a_transpose_keeps_the_leading_axes(make):  # 2626
    @T.prim_func
    def main(A: T.Tensor((3, 5, 7), "int32"), B: T.Tensor((3, 7, 5), "int32")):
        with T.Kernel(1, threads=48):
            src = getattr(T, make)((3, 5, 7), "int32")
            dst = getattr(T, make)((3, 7, 5), "int32")
            T.copy(A, src)
            T.transpose(src, dst)
            T.copy(dst, B)

    a = np.arange(105, dtype=np.int32).reshape(3, 5, 7)
    b = np.zeros((3, 7, 5), np.int32)
    run(main, a, b)
    assert (b == a.transpose(0, 2, 1)).all()


def test_guards_of_one_form_on_different_buffers_stay_apart():  # 2539
    @T.prim_func
    def main(P: T.Tensor((24,), "int32"), Q: T.Tensor((24,), "int32"), B: T.Tensor((24,), "int32")):
        with T.Kernel(1, threads=24):
            for i in T.Parallel(24):
                B[i] = 0
                if P[i] > 0:
                    B[i] = B[i] + 1
                if Q[i] > 0:
                    B[i] = B[i] + 10

    p, q = np.arange(24, dtype=np.int32) % 2, np.arange(24, dtype=np.int32) % 3
    b = np.zeros(24, np.int32)
    run(main, p, q, b)
    assert (b == (p > 0) + 10 * (q > 0)).all()


def test_a_name_is_a_value_and_a_variable_starts_at_one():  # 814, 1144
    @T.prim_func
    def main(A: T.Tensor((4,), "int32"), B: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=1):
            before = A[0]
            twice = A[0] * 2
            A[0] = 100
            B[0] = before
            B[1] = twice
            v = T.alloc_var("int32", init=A[1])
            w = T.alloc_var("int32", init=v)
            held = w + 1
            v = 50
            w += 1
            B[2] = w
            B[3] = held * 1000 + v

    a, b = np.array([1, 2, 3, 4], np.int32), np.zeros(4, np.int32)
    run(main, a, b)
    assert b.tolist() == [1, 2, 3, 3050]


def test_rebinding_under_a_condition_is_never_unconditional():  # 2977
    @T.prim_func
    def variable(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(8):
                x = T.alloc_var("int32", init=10)
                if A[i] > 3:
                    x = 20
                B[i] = x

    a, b = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    run(variable, a, b)
    assert b.tolist() == [10] * 4 + [20] * 4

    def name():
        @T.prim_func
        def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=8):
                for i in T.Parallel(8):
                    x = 10
                    if A[i] > 3:
                        x = 20
                    B[i] = x

    refused(name, "x")


@pytest.mark.parametrize("head", ["for i in T.serial(8)", "while A[0] < 3", "for i in range(3)"])
def test_the_else_of_a_loop_is_not_dropped(head):  # 2946
    source = f"""
def fn(A: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=1):
        {head}:
            A[0] += 1
        else:
            A[0] = 99
"""
    refused(lambda: T.prim_func(defined(source)), "else", located=False)


@pytest.mark.parametrize("stages", [0, 1, 2, 3, 4])
def test_stages_do_not_move_an_overwrite_or_an_atomic_past_a_read(stages):  # 2668, 2595
    @T.prim_func
    def main(
        A: T.Tensor((6, 16), "int32"), C: T.Tensor((16,), "int32"), B: T.Tensor((6, 16), "int32")
    ):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((16,), "int32")
            seen = T.alloc_fragment((16,), "int32")
            for k in T.Pipelined(6, num_stages=stages):
                T.copy(A[k, :], tile)
                T.copy(C, seen)
                for j in T.Parallel(16):
                    B[k, j] = tile[j] + seen[j]
                for j in T.Parallel(16):
                    tile[j] = tile[j] * 2
                T.atomic_add(C, tile)
                if k < 5:
                    T.copy(tile, A[k + 1, :])

    a = np.arange(96, dtype=np.int32).reshape(6, 16)
    c = np.zeros(16, np.int32)
    b = np.zeros((6, 16), np.int32)
    x, y, want = a.copy(), c.copy(), b.copy()
    for k in range(6):
        tile = x[k].copy()
        want[k] = tile + y
        y += tile * 2
        if k < 5:
            x[k + 1] = tile * 2
    run(main, a, c, b)
    assert (b == want).all()
    assert (c == y).all()


@pytest.mark.parametrize("n", [8, 24, 40, 56])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_products_of_eight_columns_more_than_a_multiple_of_sixteen(n, dtype):  # 2593
    accum = "int32" if dtype == "int8" else "float32"

    @T.prim_func
    def main(
        A: T.Tensor((64, 32), dtype), B: T.Tensor((32, n), dtype), C: T.Tensor((64, n), accum)
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), dtype)
            b = T.alloc_shared((32, n), dtype)
            c = T.alloc_fragment((64, n), accum)
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)

    rng = np.random.default_rng(1)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x, y = rng.integers(-3, 4, (64, 32)), rng.integers(-3, 4, (32, n))
    c = np.zeros((64, n), accum)
    run(main, x.astype(kind), y.astype(kind), c)
    assert (c == x @ y).all()


@pytest.mark.parametrize("make", ["alloc_shared", "alloc_fragment"])
def test_a_view_of_another_type_reads_the_same_bytes(make):  # 2609
    @T.prim_func
    def main(
        A: T.Tensor((8, 12), "int32"), B: T.Tensor((8, 24), "int16"), C: T.Tensor((8, 48), "uint8")
    ):
        with T.Kernel(1, threads=96):
            tile = getattr(T, make)((8, 12), "int32")
            T.copy(A, tile)
            halves = T.view(tile, dtype="int16")
            bytes_ = T.view(tile, (8, 48), "uint8")
            T.copy(halves, B)
            T.copy(bytes_, C)

    a = (np.arange(96, dtype=np.int64) * 123456789).astype(np.int32).reshape(8, 12)
    b, c = np.zeros((8, 24), np.int16), np.zeros((8, 48), np.uint8)
    run(main, a, b, c)
    assert (b == a.view(np.int16)).all()
    assert (c == a.view(np.uint8)).all()


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32"])
def test_any_and_all_of_a_tile_look_at_every_element(dtype):  # 2714
    @T.prim_func
    def main(A: T.Tensor((8, 64), dtype), B: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((8, 64), dtype)
            T.copy(A, tile)
            B[0] = T.cast(T.any_of(tile), "int32")
            B[1] = T.cast(T.all_of(tile), "int32")
            B[2] = T.cast(T.any_of(tile[3, 0:64]), "int32")
            B[3] = T.cast(T.all_of(tile[0:2, 0:64]), "int32")

    for at in ((0, 0), (3, 5), (7, 63)):
        a = np.zeros((8, 64), dtype)
        a[at] = 1
        b = np.full(4, 9, np.int32)
        run(main, a, b)
        assert b.tolist() == [1, 0, int(at[0] == 3), 0]
        a = np.ones((8, 64), dtype)
        a[at] = 0
        run(main, a, b)
        assert b.tolist() == [1, 0, 1, int(at[0] >= 2)]


@pytest.mark.parametrize("where", ["source", "destination", "fill", "gemm"])
def test_a_step_of_a_slice_is_not_dropped(where):  # 1301
    def build():
        @T.prim_func
        def main(A: T.Tensor((8, 16), "float32")):
            with T.Kernel(1, threads=32):
                tile = T.alloc_shared((8, 8), "float32")
                wide = T.alloc_shared((8, 16), "float32")
                T.clear(wide)
                T.clear(tile)
                if where == "source":
                    T.copy(A[:, 0::2], tile)
                elif where == "destination":
                    T.copy(tile, A[:, ::2])
                elif where == "fill":
                    T.fill(wide[:, 1::2], 1)
                else:
                    T.gemm(tile, tile, wide[:, ::2])

    refused(build, "step")
