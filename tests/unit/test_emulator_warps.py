"""What the threads of a warp or block do together, against a reference that goes lane by lane."""

import itertools

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.emulator import warps

WIDTHS = (1, 2, 4, 8, 16, 32)
COUNTS = (32, 64, 48, 40, 1, 31, 128)
SEEDS = range(4)
FULL = 0xFFFFFFFF


def warp_lanes(count):
    """For each warp, the numbers of its threads."""
    return [range(first, min(first + 32, count)) for first in range(0, count, 32)]


def by_lane(count, active, one):
    """`one(lanes, k)` for lane k of each warp; `lanes` maps active lanes to thread numbers."""
    out = [None] * count
    for threads in warp_lanes(count):
        lanes = {t % 32: t for t in threads if active[t]}
        for k, t in lanes.items():
            out[t] = one(lanes, k)
    return out


def shuffle_source(fn, k, other, width):
    """The lane that a shuffle reads, by the PTX ISA; None where it gives the lane's own value."""
    other &= 31
    base = k - k % width
    if fn == "shfl_sync":
        return base + other % width
    source = {"shfl_up": k - other, "shfl_down": k + other, "shfl_xor": k ^ other}[fn]
    if fn == "shfl_up":
        return source if source >= base else None
    return source if source < base + width else None


def reference(fn, count, active, values, others, params):
    """The result of every active thread, lane by lane."""

    def shuffle(lanes, k):
        source = shuffle_source(fn, k, int(others[lanes[k]]), params[0])
        return values[lanes[source if source in lanes else k]]

    def named(lanes):
        return {k: t for k, t in lanes.items() if params[-1] >> k & 1}

    def bits(lanes):
        return sum(1 << k for k in lanes)

    table = {
        "any_sync": lambda lanes, k: int(any(values[t] for t in named(lanes).values())),
        "all_sync": lambda lanes, k: int(all(values[t] for t in named(lanes).values())),
        "ballot_sync": lambda lanes, k: bits(j for j, t in named(lanes).items() if values[t]),
        "activemask": lambda lanes, k: bits(lanes),
        "match_any_sync": lambda lanes, k: bits(
            j for j, t in named(lanes).items() if values[t] == values[lanes[k]]
        ),
        "match_all_sync": lambda lanes, k: (
            bits(named(lanes)) if len({int(values[t]) for t in named(lanes).values()}) == 1 else 0
        ),
    }
    return by_lane(count, active, shuffle if fn.startswith("shfl") else table[fn])


def compare(got, want, active):
    for k, expected in enumerate(want):
        if active[k]:
            assert int(got.reshape(-1)[k]) == expected, (k, got, want)


def random_active(rng, count):
    active = rng.random(count) < rng.choice([0.1, 0.5, 0.9, 1.0])
    active[rng.integers(count)] = True
    return active


@pytest.mark.parametrize("fn", ["shfl_sync", "shfl_xor", "shfl_up", "shfl_down"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", COUNTS)
def test_shuffles(fn, width, count):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        active = random_active(rng, count)
        values = rng.integers(-1000, 1000, count).astype(np.int32)
        others = rng.integers(-2, 67, count).astype(np.int32)
        params = (width, FULL)
        got = warps.of_warp(fn, (values, others), params, active, (count,))
        compare(got, reference(fn, count, active, values, others, params), active)


VOTES = ("any_sync", "all_sync", "ballot_sync", "activemask", "match_any_sync", "match_all_sync")


@pytest.mark.parametrize("fn", VOTES)
@pytest.mark.parametrize("count", COUNTS)
def test_votes_and_matches(fn, count):
    for seed in range(12):
        rng = np.random.default_rng(seed)
        active = random_active(rng, count)
        few = rng.choice([1, 2, 5])
        values = rng.integers(0, few, count).astype(np.int32) + (0 if few > 1 else 1)
        mask = FULL if seed % 3 == 0 else int(rng.integers(1, 1 << 32))
        params = () if fn == "activemask" else (mask,)
        args = () if fn == "activemask" else (values,)
        got = warps.of_warp(fn, args, params, active, (count,))
        compare(got, reference(fn, count, active, values, None, params), active)


def test_a_match_compares_bits():
    values = np.array([0.0, -0.0, np.nan, np.nan, 1.0], np.float32)
    got = warps.of_warp("match_any_sync", (values,), (FULL,), None, (5,))
    assert got.tolist() == [1, 2, 12, 12, 16]


def butterfly(combine, values):
    """The order in which the warp combines: partners 16, 8, 4, 2 and 1 lanes away."""
    row = list(values)
    for step in (16, 8, 4, 2, 1):
        row = [combine(row[k], row[k ^ step]) for k in range(32)]
    return row


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32", "uint8", "int64"])
@pytest.mark.parametrize("count", [32, 96])
def test_reductions_of_whole_warps(dtype, count):
    rng = np.random.default_rng(5)
    values = (rng.random(count) * 100).astype(dtype)
    for fn, combine in (
        ("warp_reduce_sum", lambda a, b: np.add(np.array([a]), np.array([b]))[0]),
        ("warp_reduce_max", max),
        ("warp_reduce_min", min),
    ):
        got = warps.of_warp(fn, (values,), (), None, (count,))
        for threads in warp_lanes(count):
            np.testing.assert_array_equal(
                got[threads[0] : threads[-1] + 1], butterfly(combine, values[list(threads)])
            )
    if dtype.startswith(("int", "uint")):
        for fn, fold in (
            ("warp_reduce_bitand", np.bitwise_and),
            ("warp_reduce_bitor", np.bitwise_or),
        ):
            got = warps.of_warp(fn, (values,), (), None, (count,))
            want = np.repeat(fold.reduce(values.reshape(-1, 32), axis=1), 32)
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("count", COUNTS)
def test_reductions_leave_out_lanes_that_are_not_there(count):
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        active = random_active(rng, count)
        values = rng.integers(-50, 50, count).astype(np.int32)
        for fn, fold in (("warp_reduce_sum", sum), ("warp_reduce_max", max)):
            got = warps.of_warp(fn, (values,), (), active, (count,))
            want = by_lane(
                count,
                active,
                lambda ls, k, f=fold, v=values: f(int(v[t]) for t in ls.values()),
            )
            compare(got, want, active)


def test_a_warp_maximum_drops_nan():
    values = np.array([1.0, np.nan] * 16, np.float32)
    assert (warps.of_warp("warp_reduce_max", (values,), (), None, (32,)) == 1.0).all()


# -- in kernels ------------------------------------------------------------------------------------

BLOCKS = ((32,), (64,), (48,), (40,), (1,), (8, 6), (4, 4, 3), (33, 2), (16, 2, 2))


def block_kernel(shape):
    """Every collective, on one value per thread, where `M` says who is active."""
    count = int(np.prod(shape))
    sizes = (*shape, 1, 1)

    @T.prim_func
    def kernel(
        A: T.Tensor((count,), "int32"),
        M: T.Tensor((count,), "int32"),
        R: T.Tensor((9, count), "int64"),
    ):
        with T.Kernel(1, threads=shape):
            tx, ty, tz = (T.get_thread_binding(k) for k in range(3))
            t = tx + sizes[0] * (ty + sizes[1] * tz)
            if M[t] != 0:
                v = A[t]
                R[0, t] = T.shfl_sync(v, t + 3, 8)
                R[1, t] = T.shfl_xor(v, 5)
                R[2, t] = T.shfl_up(v, 2, 16)
                R[3, t] = T.shfl_down(v, 7)
                R[4, t] = T.any_sync(v == 1, 0x0F0F0F0F)
                R[5, t] = T.cast(T.ballot(v > 1), "int64")
                R[6, t] = T.cast(T.activemask(), "int64")
                R[7, t] = T.cast(T.match_any_sync(v), "int64")
                R[8, t] = T.warp_reduce_sum(v)

    return kernel


@pytest.mark.parametrize("shape", BLOCKS)
def test_collectives_under_a_condition_in_blocks_of_every_shape(shape):
    kernel = tilelang.compile(block_kernel(shape), target="emulate:sm_90a")
    count = int(np.prod(shape))
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        active = random_active(rng, count)
        values = rng.integers(0, 4, count).astype(np.int32)
        got = np.full((9, count), -7, np.int64)
        kernel(values, active.astype(np.int32), got)
        lanes = np.arange(count)
        for row, (fn, data, others, params) in enumerate(
            (
                ("shfl_sync", values, lanes + 3, (8, FULL)),
                ("shfl_xor", values, lanes * 0 + 5, (32, FULL)),
                ("shfl_up", values, lanes * 0 + 2, (16, FULL)),
                ("shfl_down", values, lanes * 0 + 7, (32, FULL)),
                ("any_sync", values == 1, None, (0x0F0F0F0F,)),
                ("ballot_sync", values > 1, None, (FULL,)),
                ("activemask", values, None, ()),
                ("match_any_sync", values, None, (FULL,)),
            )
        ):
            compare(got[row], reference(fn, count, active, data, others, params), active)
        sums = by_lane(count, active, lambda ls, k, v=values: sum(int(v[t]) for t in ls.values()))
        compare(got[8], sums, active)
        assert (got[:, ~active] == -7).all()


@pytest.mark.parametrize("shape", [(64,), (48,), (8, 6)])
def test_counting_barriers(shape):
    count = int(np.prod(shape))

    @T.prim_func
    def kernel(A: T.Tensor((count,), "int32"), R: T.Tensor((3, count), "int32")):
        with T.Kernel(1, threads=shape):
            t = T.get_thread_binding(0) + shape[0] * T.get_thread_binding(1)
            R[0, t] = T.syncthreads_count(A[t] > 1)
            R[1, t] = T.syncthreads_and(A[t] > 0)
            R[2, t] = T.syncthreads_or(A[t] > 2)

    run = tilelang.compile(kernel, target="emulate:sm_90a")
    for low, high in ((0, 4), (1, 3), (0, 1)):
        values = np.random.default_rng(1).integers(low, high, count).astype(np.int32)
        got = np.zeros((3, count), np.int32)
        run(values, got)
        assert (got[0] == (values > 1).sum()).all()
        assert (got[1] == (values > 0).all()).all()
        assert (got[2] == (values > 2).any()).all()


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(("threads", "group"), [(128, 32), (128, 64), (256, 128), (128, 0)])
def test_one_thread_of_each_group_is_elected(threads, group, waits):
    """Also where warps run apart, because some of them wait."""

    @T.prim_func
    def kernel(R: T.Tensor((threads,), "int32")):
        with T.Kernel(1, threads=threads):
            tx = T.get_thread_binding()
            R[tx] = T.cast(T.shuffle_elect(group), "int32")
            if waits:
                if tx < 32:
                    T.sync_threads(1, threads)
                else:
                    T.sync_threads(1, threads)

    got = np.full(threads, -1, np.int32)
    tilelang.compile(kernel, target="emulate:sm_90a")(got)
    want = np.zeros(threads, np.int32)
    want[:: group or threads] = 1
    np.testing.assert_array_equal(got, want)


def test_indices_of_lanes_warps_and_groups():
    @T.prim_func
    def kernel(R: T.Tensor((4, 256), "int32")):
        with T.Kernel(1, threads=(64, 4)):
            t = T.get_thread_binding(0) + 64 * T.get_thread_binding(1)
            R[0, t] = T.get_lane_idx()
            R[1, t] = T.get_warp_idx()
            R[2, t] = T.get_warp_idx_sync()
            R[3, t] = T.get_warp_group_idx()

    got = np.zeros((4, 256), np.int32)
    tilelang.compile(kernel, target="emulate:sm_90a")(got)
    t = np.arange(256)
    np.testing.assert_array_equal(got, np.stack([t % 32, t // 32, t // 32, t // 128]))


DTYPES = ("float32", "float16", "bfloat16", "float64", "int8", "uint8", "int32", "uint32", "int64")


@pytest.mark.parametrize("dtype", DTYPES)
def test_shuffles_and_sums_of_every_type(dtype):
    @T.prim_func
    def kernel(A: T.Tensor((64,), dtype), B: T.Tensor((3, 64), dtype)):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            B[0, tx] = T.shfl_xor(A[tx], 9)
            B[1, tx] = T.warp_reduce_max(A[tx])
            B[2, tx] = T.warp_reduce_min(A[tx])

    a = (np.arange(64) * 37 % 101).astype(T.dtype(dtype).numpy)
    b = np.zeros((3, 64), a.dtype)
    tilelang.compile(kernel, target="emulate:sm_90a")(a, b)
    np.testing.assert_array_equal(b[0], a[np.arange(64) ^ 9])
    rows = a.astype(np.float64).reshape(2, 32)
    np.testing.assert_array_equal(b[1].astype(np.float64), np.repeat(rows.max(axis=1), 32))
    np.testing.assert_array_equal(b[2].astype(np.float64), np.repeat(rows.min(axis=1), 32))


def test_a_scan_of_a_warp_by_shuffles():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            v = T.alloc_var("int32", init=A[tx])
            for k in T.serial(5):
                other = T.alloc_var("int32")
                other = T.shfl_up(v, 1 << k)
                if tx % 32 >= (1 << k):
                    v = v + other
            B[tx] = v

    a = np.random.default_rng(3).integers(-9, 9, 64).astype(np.int32)
    b = np.zeros(64, np.int32)
    tilelang.compile(kernel, target="emulate:sm_90a")(a, b)
    want = list(itertools.accumulate(a[:32])) + list(itertools.accumulate(a[32:]))
    np.testing.assert_array_equal(b, want)


def test_collectives_inside_parallel_are_refused():
    from tilelang.errors import TileError

    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                A[i] = T.shfl_xor(A[i], 1)

    with pytest.raises(TileError, match=r"T\.Parallel"):
        tilelang.compile(kernel, target="emulate:sm_90a")
