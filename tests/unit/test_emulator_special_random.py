"""Random numbers: Philox4x32-10 against published answers, streams number by number."""

from __future__ import annotations

import math

import numpy as np
import pytest

from emulator_build import F16, F64, I32, I64, TX, TY, add, buf, kernel, mul, op, run, same, st, var
from tilelang.dtypes import DType
from tilelang.emulator import translate
from tilelang.emulator.philox import philox
from tilelang.errors import TileError
from tilelang.ir.expr import Cast, Const
from tilelang.ir.special import RngInit, RngNext
from tilelang.ir.sync import WarpSpecialize
from tilelang.ir.tile import If, Let, Parallel

i, j, bx = (var(n) for n in ("i", "j", "bx"))
U32, F32_, F64_ = ("uint32", "float32", "float64")


def c(n: int, dtype=I32) -> Const:
    return Const(n, dtype)


# -- the generator ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "want"),
    [  # the answers that the authors of Philox publish with their library (kat_vectors)
        ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers(counter, key, want):
    low, high, seed = (
        np.array([w[0] | w[1] << 32], np.uint64) for w in (counter[:2], counter[2:], key)
    )
    assert philox(low, high, seed)[0].tolist() == list(want)


class Reference:
    """One thread's stream, number by number, with Python integers."""

    def __init__(self, seed: int, sequence: int, offset: int) -> None:
        self.seed, self.position, self.sequence = seed % 2**64, offset % 2**64, sequence % 2**64
        self.spare: dict[str, float | None] = {"float32": None, "float64": None}

    def bits(self) -> int:
        block = self.position // 4 + (self.sequence << 64)
        x = [block >> 32 * n & 0xFFFFFFFF for n in range(4)]
        k = [self.seed & 0xFFFFFFFF, self.seed >> 32]
        for _ in range(10):
            a, b = x[0] * 0xD2511F53, x[2] * 0xCD9E8D57
            x = [b >> 32 ^ x[1] ^ k[0], b & 0xFFFFFFFF, a >> 32 ^ x[3] ^ k[1], a & 0xFFFFFFFF]
            k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
        found = x[self.position % 4]
        self.position += 1
        return found

    def uniform(self, dtype: str) -> float:
        if dtype == "float64":
            return self.bits() / 2**32 + 2**-32
        return float(np.float32(self.bits()) * np.float32(2**-32) + np.float32(2**-33))

    def normal(self, dtype: str) -> float:
        kept = self.spare[dtype]
        if kept is not None:
            self.spare[dtype] = None
            return kept
        if dtype == "float32":
            u = self.uniform(dtype)
            step = np.float32(2**-32) * np.float32(6.2831855)
            v = float(np.float32(self.bits()) * step + step / np.float32(2))
        else:
            x, y = (self.bits() ^ self.bits() << 21 for _ in range(2))
            u, v = x / 2**53 + 2**-54, math.pi * (y / 2**52 + 2**-53)
        radius = math.sqrt(-2 * math.log(u))
        self.spare[dtype] = math.cos(v) * radius
        return math.sin(v) * radius

    def next(self, kind: str, dtype: str) -> float:
        return self.bits() if kind == "bits" else getattr(self, kind)(dtype)


def agree(got: np.ndarray, want: list, kind: str) -> None:
    expected = np.array(want, got.dtype).reshape(got.shape)
    if kind != "normal":
        same(got, expected)
        return
    # Numbers near a zero of the sine keep the error of the angle, half a place of 2 * pi.
    floor = 2.0**-21 if got.dtype == np.float32 else 2.0**-49
    np.testing.assert_allclose(got, expected, rtol=8 * np.finfo(got.dtype).eps, atol=floor)


KINDS = [("bits", U32), ("uniform", F32_), ("uniform", F64_), ("normal", F32_), ("normal", F64_)]


# -- threads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
@pytest.mark.parametrize("threads", [(1,), (24,), (5, 7)])
@pytest.mark.parametrize("start", [(42, 0, 0), (-5, 3, 2), (2**63 + 11, 2**40, 2**34 - 1)])
def test_every_thread_has_a_stream_of_its_own(kind, dtype, threads, start):
    n, draws = int(np.prod(threads)), 7
    seed, sequence, offset = start
    A = buf("A", dtype, n, draws)
    x, extent = var("x", DType(dtype)), threads[0]
    flat = add(mul(TY, extent), TX)
    wide = DType("int64") if seed < 2**63 else DType("uint64")
    body = [RngInit(c(seed, wide), op("+", Cast(flat, I64), sequence), c(offset, I64))]
    for k in range(draws):
        body += [RngNext(x, kind), st(A, flat, k, x)]
    a = np.zeros((n, draws), dtype)
    run(kernel([A], *body, threads=threads), A=a)
    want = []
    for t in range(n):
        r = Reference(seed, sequence + t, offset)
        want += [r.next(kind, dtype) for _ in range(draws)]
    agree(a, want, kind)


def test_distributions_share_one_stream_and_keep_their_own_pairs():
    order = [KINDS[k] for k in (3, 0, 4, 3, 1, 3, 4, 2, 4, 3, 0)]
    A = buf("A", "float64", len(order))
    body = [RngInit(c(9), c(1), c(3))]
    for n, (kind, dtype) in enumerate(order):
        x = var(f"x{n}", DType(dtype))
        body += [RngNext(x, kind), st(A, n, x if dtype == F64_ else Cast(x, F64))]
    a = np.zeros(len(order))
    run(kernel([A], *body), A=a)
    r = Reference(9, 1, 3)
    want = [r.next(*k) for k in order]
    np.testing.assert_allclose(a, want, rtol=2e-6)


@pytest.mark.parametrize("kind", ["bits", "normal"])
def test_threads_that_do_not_draw_stay_where_they_are(kind):
    dtype = DType(U32 if kind == "bits" else F32_)
    A = buf("A", dtype, 24, 2)
    x, y = var("x", dtype), var("y", dtype)
    body = (
        RngInit(c(3), TX, c(0)),
        If(op("<", TX, 9), (RngNext(x, kind), st(A, TX, 0, x))),
        RngNext(y, kind),
        st(A, TX, 1, y),
    )
    a = np.zeros((24, 2), dtype.numpy)
    run(kernel([A], *body, threads=(24,)), A=a)
    want = []
    for t in range(24):
        r = Reference(3, t, 0)
        want += [r.next(kind, str(dtype)) if t < 9 else 0, r.next(kind, str(dtype))]
    agree(a, want, kind)


def test_each_block_starts_anew_and_may_start_again():
    A = buf("A", U32, 3, 3)
    x, y, z = (var(n, DType(U32)) for n in "xyz")
    body = (
        RngInit(c(1), c(0), bx),
        RngNext(x, "bits"),
        st(A, bx, 0, x),
        RngInit(c(1), c(0), c(0)),
        RngNext(y, "bits"),
        st(A, bx, 1, y),
        RngNext(z, "bits"),
        st(A, bx, 2, z),
    )
    a = np.zeros((3, 3), np.uint32)
    run(kernel([A], *body, grid=(3,), vars=(bx,), threads=(32,)), A=a)
    r = Reference(1, 0, 0)
    s = [r.bits() for _ in range(3)]
    same(a, np.array([[s[b], s[0], s[1]] for b in range(3)], np.uint32))


def test_a_draw_without_a_generator_is_an_error():
    A = buf("A", U32, 8)
    x = var("x", DType(U32))
    draw = (RngNext(x, "bits"), st(A, TX, x))
    some = (If(op("<", TX, 3), (RngInit(c(1), TX, c(0)),)), *draw)
    for body in (draw, some):
        with pytest.raises(TileError, match="no generator"):
            run(kernel([A], *body, threads=(8,)), A=np.zeros(8, np.uint32))
    run(kernel([A], some[0], If(op("<", TX, 3), draw), threads=(8,)), A=np.zeros(8, np.uint32))


def test_unknown_requests_are_refused():
    x = var("x", F16)
    with pytest.raises(TileError, match="float16"):
        translate(kernel([], RngInit(c(1), c(0), c(0)), RngNext(x, "uniform")))
    with pytest.raises(TileError, match="poisson"):
        translate(kernel([], RngInit(c(1), c(0), c(0)), RngNext(var("y"), "poisson")))


# -- T.Parallel ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
@pytest.mark.parametrize("n", [0, 1, 40, 127])
def test_iterations_of_one_thread_draw_in_order(kind, dtype, n):
    A = buf("A", dtype, n)
    x = var("x", DType(dtype))
    at = add(mul(i, 8), j)
    body = (
        RngInit(c(77), c(0), c(5)),
        Parallel((i, j), (c(16), c(8)), (If(op("<", at, n), (RngNext(x, kind), st(A, at, x))),)),
    )
    a = np.zeros(n, dtype)
    run(kernel([A], *body), A=a)
    r = Reference(77, 0, 5)
    agree(a, [r.next(kind, dtype) for _ in range(n)], kind)


def test_iterations_of_one_thread_that_draw_twice():
    A = buf("A", U32, 12, 3)
    x, y, z, t = (var(n, DType(U32)) for n in "xyzt")
    body = (
        RngNext(x, "bits"),
        st(A, i, 0, x),
        RngNext(y, "bits"),
        st(A, i, 1, y),
        Let(t, op("+", x, y)),
        If(op("==", op("%", i, 2), 0), (RngNext(z, "bits"), st(A, i, 2, op("^", z, t)))),
    )
    a = np.zeros((12, 3), np.uint32)
    run(kernel([A], RngInit(c(5), c(6), c(7)), Parallel((i,), (c(12),), body)), A=a)
    r = Reference(5, 6, 7)
    want = np.zeros_like(a)
    for row in range(12):
        want[row, :2] = r.bits(), r.bits()
        if row % 2 == 0:
            want[row, 2] = r.bits() ^ (int(want[row, 0]) + int(want[row, 1])) % 2**32
    same(a, want)


def test_iterations_are_dealt_to_threads_in_turn():
    A = buf("A", U32, 3, 40)
    x = var("x", DType(U32))
    body = (
        RngInit(c(5), TX, c(0)),
        Parallel((i, j), (c(3), c(40)), (RngNext(x, "bits"), st(A, i, j, x))),
    )
    a = np.zeros((3, 40), np.uint32)
    run(kernel([A], *body, threads=(32,)), A=a)
    streams = [Reference(5, t, 0) for t in range(32)]
    same(a.reshape(-1), np.array([streams[n % 32].bits() for n in range(120)], np.uint32))


def test_a_generator_is_not_started_inside_of_parallel():
    with pytest.raises(TileError, match="rng_init inside"):
        translate(kernel([], Parallel((i,), (c(4),), (RngInit(c(1), i, c(0)),))))


# -- cuRAND ----------------------------------------------------------------------------------------

# The first numbers of cuRAND 10.4's Philox4_32_10 host generator with seed 42. It takes four
# numbers of each of its sequences in turn.
CURAND_BITS = [
    [2632642643, 2012563771, 314527917, 1463989207],
    [43202409, 542238995, 996716600, 3056353436],
    [1711173798, 2234407014, 1810832730, 2971527349],
    [173123250, 1913948817, 3105408601, 2569034695],
]


def test_the_numbers_are_those_of_curand():
    A = buf("A", U32, 4, 4)
    body = [RngInit(c(42), TX, c(0))]
    for k in range(4):
        body += [RngNext(var(f"x{k}", DType(U32)), "bits"), st(A, TX, k, var(f"x{k}", DType(U32)))]
    a = np.zeros((4, 4), np.uint32)
    run(kernel([A], *body, threads=(4,)), A=a)
    same(a, np.array(CURAND_BITS, np.uint32))


# Its first uniform and normal numbers (float32) and pairs of normal doubles, with the same seed.
CURAND_UNIFORM = [
    [0.6129598617553711, 0.4685865044593811, 0.07323173433542252, 0.34086155891418457],
    [0.010058844462037086, 0.12624984979629517, 0.23206616938114166, 0.7116127610206604],
]
CURAND_NORMAL = [
    [0.1940188705921173, -0.9701898097991943, 1.923926591873169, -1.2356212139129639],
    [2.1613738536834717, 2.1276907920837402, -1.6597530841827393, -0.40827077627182007],
    [-0.1720506101846695, -1.3457070589065552, -1.2275588512420654, -0.4694821834564209],
    [0.84906005859375, -2.3877787590026855, -0.4657708406448364, -0.6570044755935669],
]
CURAND_NORMAL_DOUBLE = [
    [1.0360235505368471, -0.6653743849976409],
    [-1.9755592233655759, -0.48595321591771257],
    [-1.0677851899197455, -0.4083751441065541],
]


@pytest.mark.parametrize(
    ("kind", "dtype", "known", "ulps"),
    [
        ("uniform", F32_, CURAND_UNIFORM, 0),
        ("normal", F32_, CURAND_NORMAL, 4),
        # cuRAND on the host multiplies by pi; on a device it has sincospi, which is exact.
        ("normal", F64_, CURAND_NORMAL_DOUBLE, 32),
    ],
)
def test_floats_are_those_of_curand(kind, dtype, known, ulps):
    want = np.array(known, dtype)
    threads, draws = want.shape
    A, x = buf("A", dtype, threads, draws), var("x", DType(dtype))
    body = [RngInit(c(42), TX, c(0))]
    for k in range(draws):
        body += [RngNext(x, kind), st(A, TX, k, x)]
    a = np.zeros_like(want)
    run(kernel([A], *body, threads=(threads,)), A=a)
    words = f"i{want.dtype.itemsize}"
    assert np.abs(a.view(words) - want.view(words)).max() <= ulps


def test_warp_groups_that_run_apart_have_the_streams_of_their_threads():
    A, x = buf("A", U32, 256), var("x", DType(U32))
    body = (
        RngInit(c(5), TX, c(0)),
        WarpSpecialize((0,), (RngNext(x, "bits"), st(A, TX, x))),
        WarpSpecialize((1,), (RngNext(x, "bits"), RngNext(x, "bits"), st(A, TX, x))),
    )
    a = np.zeros(256, np.uint32)
    translate(kernel([A], *body, threads=(256,))).run({"A": a})
    zeros = np.zeros(256, np.uint64)
    words = philox(zeros, np.arange(256, dtype=np.uint64), zeros + np.uint64(5))
    same(a, np.concatenate([words[:128, 0], words[128:, 1]]))
