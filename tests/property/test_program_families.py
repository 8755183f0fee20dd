"""Drawn programs of the usual kinds in every float type, with small whole numbers, so that every
answer is exact: products with ragged edges, rows and columns that repeat, sums of rows, pipelines.
"""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T

FLOATS = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")
THREADS = (32, 48, 64, 96, 100, 128, 192, 256)
SEEDS = range(12)


def kind(dtype):
    return np.dtype(getattr(ml_dtypes, dtype, dtype))


class Draw:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def pick(self, *options):
        return options[int(self.rng.integers(len(options)))]

    def whole(self, shape, dtype, most=2):
        return self.rng.integers(-most, most + 1, shape).astype(np.float32).astype(kind(dtype))


def ran(func, *arguments, want, at=-1):
    """Compile, check, run; the argument `at` equals `want`."""
    kernel = tilelang.compile(func, target="cpu")
    assert not kernel.warnings
    found = tilelang.check(func, target="cpu", run_with=arguments)
    assert not found, found[0].render()
    checked = arguments[at].copy()
    arguments[at][...] = 0
    kernel(*arguments)
    for got in (checked, arguments[at]):
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


@pytest.mark.parametrize("seed", SEEDS)
def test_products_with_ragged_edges(seed):
    draw = Draw(seed)
    dtype, accum = draw.pick(
        ("float16", "float32"), ("bfloat16", "float32"), ("float32", "float32"),
        ("float8_e4m3fn", "float32"), ("float8_e5m2", "float32"), ("int8", "int32"),
        ("uint8", "int32"), ("float64", "float64"), ("float16", "float16"),
    )  # fmt: skip
    m, n, k = (draw.pick(1, 7, 24, 40, 65, 100) for _ in range(3))
    bm, bn, bk = (draw.pick(8, 16, 24, 32, 64) for _ in range(3))
    ta, tb = draw.pick(True, False), draw.pick(True, False)
    stages, threads = draw.pick(0, 1, 2, 3, 4), draw.pick(*THREADS)
    dynamic, swap = draw.pick(True, False), draw.pick(True, False)
    rows = T.dynamic("rows") if dynamic else m
    shape_a, shape_b = ((k, rows) if ta else (rows, k)), ((n, k) if tb else (k, n))

    @T.prim_func
    def main(
        A: T.Tensor(shape_a, dtype), B: T.Tensor(shape_b, dtype), C: T.Tensor((rows, n), accum)
    ):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(rows, bm), threads=threads) as (bx, by):
            a = T.alloc_shared((bk, bm) if ta else (bm, bk), dtype)
            b = T.alloc_shared((bn, bk) if tb else (bk, bn), dtype)
            c = T.alloc_fragment((bm, bn), accum)
            T.clear(c)
            for i in T.Pipelined(T.ceildiv(k, bk), num_stages=stages):
                if ta:
                    T.copy(A[i * bk, by * bm], a)
                else:
                    T.copy(A[by * bm : (by + 1) * bm, i * bk : (i + 1) * bk], a)
                if tb:
                    T.copy(B[bx * bn, i * bk], b)
                else:
                    T.copy(B[i * bk, bx * bn], b)
                T.gemm(a, b, c, transpose_A=ta, transpose_B=tb)
            if swap:
                out = T.alloc_shared((bm, bn), accum)
                T.copy(c, out)
                T.copy(out, C[by * bm, bx * bn])
            else:
                T.copy(c, C[by * bm : (by + 1) * bm, bx * bn : (bx + 1) * bn])

    low = 0 if dtype == "uint8" else -2
    x, y = draw.rng.integers(low, 3, (m, k)), draw.rng.integers(low, 3, (k, n))
    given = [np.ascontiguousarray(x.T) if ta else x, np.ascontiguousarray(y.T) if tb else y]
    given = [g.astype(kind(dtype)) for g in given]
    ran(main, *given, np.zeros((m, n), kind(accum)), want=x @ y)


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_columns_and_numbers_that_repeat(seed):
    draw = Draw(100 + seed)
    one, two, three, result = (draw.pick(*FLOATS[:4]) for _ in range(4))
    m, n = draw.pick(1, 5, 24, 33), draw.pick(1, 7, 40, 96)
    threads, scope = draw.pick(*THREADS), draw.pick("alloc_shared", "alloc_fragment")
    rows = T.dynamic("rows")

    @T.prim_func
    def main(
        A: T.Tensor((rows, n), one), R: T.Tensor((n,), two), C: T.Tensor((rows, 1), three),
        s: T.float32, out: T.Tensor((rows, n), result),
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(rows, m), threads=threads) as b:
            a = getattr(T, scope)((m, n), one)
            row = getattr(T, scope)((n,), two)
            column = getattr(T, scope)((m, 1), three)
            wide = T.alloc_fragment((m, n), "float32")
            T.copy(A[b * m, 0], a)
            T.copy(R, row)
            T.copy(C[b * m, 0], column)
            for i, j in T.Parallel(m, n):
                wide[i, j] = T.cast(a[i, j], "float32") * row[j] + column[i, 0]
            for i, j in T.Parallel(m, n):
                if wide[i, j] > 3.0 or i == j:
                    wide[i, j] = T.max(wide[i, j] - s, 0.0)
                else:
                    wide[i, j] = -wide[i, j]
            T.copy(wide, out[b * m, 0])

    size = draw.pick(0, 1, m, 2 * m + 1)
    a, r, c = draw.whole((size, n), one), draw.whole((n,), two), draw.whole((size, 1), three)
    x = a.astype(np.float32) * r.astype(np.float32) + c.astype(np.float32)
    at = np.arange(size)[:, None] % m == np.arange(n)[None, :]
    want = np.where((x > 3) | at, np.maximum(x - 2, 0), -x)
    ran(main, a, r, c, 2.0, np.zeros((size, n), kind(result)), want=want)


@pytest.mark.parametrize("seed", SEEDS)
def test_reductions_of_floats(seed):
    draw = Draw(200 + seed)
    dtype = draw.pick(*FLOATS[:4])
    shape = tuple(draw.pick(1, 2, 5, 8, 24) for _ in range(draw.pick(1, 2, 3)))
    axis = int(draw.rng.integers(-len(shape), len(shape)))
    op = draw.pick("sum", "max", "min", "abssum", "absmax")
    clear, keep = draw.pick(True, False) or op == "abssum", draw.pick(True, False)
    threads, scope = draw.pick(*THREADS), draw.pick("alloc_shared", "alloc_fragment")
    kept = tuple(e for n, e in enumerate(shape) if n != axis % len(shape)) or (1,)
    if keep:
        kept = tuple(1 if n == axis % len(shape) else e for n, e in enumerate(shape))

    @T.prim_func
    def main(A: T.Tensor(shape, dtype), S: T.Tensor(kept, dtype), out: T.Tensor(kept, dtype)):
        with T.Kernel(1, threads=threads):
            tile = getattr(T, scope)(shape, dtype)
            total = T.alloc_fragment(kept, dtype)
            T.copy(A, tile)
            T.copy(S, total)
            T.reduce(tile, total, op, axis, clear)
            T.copy(total, out)

    a, s = draw.whole(shape, dtype, 4), draw.whole(kept, dtype, 4)
    x = a.astype(np.float64)
    x = np.abs(x) if op.startswith("abs") else x
    over = {"sum": np.add, "abssum": np.add, "min": np.minimum}.get(op, np.maximum)
    want = over.reduce(x, axis=axis).reshape(kept)
    if not clear:
        want = over(want, s.astype(np.float64))
    ran(main, a, s, np.zeros(kept, kind(dtype)), want=want)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_carried_tile_is_the_same_for_every_number_of_stages(seed):
    draw = Draw(300 + seed)
    dtype, width = draw.pick(*FLOATS[:4]), draw.pick(1, 24, 40, 96)
    rounds, threads = draw.pick(0, 1, 2, 5, 9), draw.pick(*THREADS)
    order = draw.pick((0, 1), (1, 0))

    def build(stages):
        @T.prim_func
        def main(A: T.Tensor((rounds + 1, width), dtype), out: T.Tensor((2, width), dtype)):
            with T.Kernel(1, threads=threads):
                tile = T.alloc_shared((width,), dtype)
                last = T.alloc_shared((width,), dtype)
                total = T.alloc_fragment((width,), dtype)
                T.copy(A[rounds, :], last)
                T.clear(total)
                for k in T.Pipelined(rounds, num_stages=stages):
                    T.copy(A[k, :], tile)
                    for which in order:
                        if which == 0:
                            for j in T.Parallel(width):
                                total[j] += tile[j] * last[width - 1 - j] / 3.0
                        else:
                            T.copy(tile, last)
                T.copy(total, out[0, :])
                T.copy(last, out[1, :])

        return main

    a = draw.rng.standard_normal((rounds + 1, width)).astype(kind(dtype))
    found = []
    for stages in range(5):
        out = np.zeros((2, width), kind(dtype))
        tilelang.compile(build(stages), target="cpu")(a, out)
        found.append(out.tobytes())
        last = a[rounds - 1] if rounds else a[rounds]
        assert (out[1] == last).all()
    assert len(set(found)) == 1
