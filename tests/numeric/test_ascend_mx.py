"""Products of MX tiles on the model of the 950, against NumPy and the emulator, in order and on
queues.
"""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.ascend.language as T
from tilelang.errors import TileError
from tilelang.simulator.machine import Schedule

BY_HAND = {"tl.enable_auto_schedule": False}
SEEDS = range(20)
FP8, FP4 = "float8_e4m3fn", "float4_e2m1fn"


def from_l1(m, n, k, dtype, scales, steps=1):
    """A product from L1, K in `steps` parts with all scales loaded before."""
    per = 64 if scales == "uint16" else 32
    part = k // steps

    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), dtype),
        B: T.Tensor((n, k), dtype),
        SA: T.Tensor((m, k // per), scales),
        SB: T.Tensor((n, k // per), scales),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1):
            a, b = T.alloc_l1((m, part), dtype), T.alloc_l1((n, part), dtype)
            sa = T.alloc_l1((m, k // per), scales)
            sb = T.alloc_l1((n, k // per), scales)
            c = T.alloc_l0c((m, n), "float32")
            T.copy(SA, sa)
            T.copy(SB, sb)
            for at in T.Pipelined(steps, num_stages=2):
                T.copy(A[0:m, at * part : at * part + part], a)
                T.copy(B[0:n, at * part : at * part + part], b)
                here = at * (part // per)
                T.gemm_blockscaled(
                    a,
                    b,
                    c,
                    sa[0:m, here : here + part // per],
                    sb[0:n, here : here + part // per],
                    transpose_B=True,
                    clear_accum=at == 0,
                )
            T.copy(c, C)

    return kernel


def from_l0(m, n, k, trans, scales="uint8"):
    """A product of fp8 from L0A and L0B, in one of the four transposes."""
    ta, tb = trans
    per = 64 if scales == "uint16" else 32
    shapes = ((k, m) if ta else (m, k)), ((n, k) if tb else (k, n))

    @T.prim_func
    def kernel(
        A: T.Tensor(shapes[0], FP8),
        B: T.Tensor(shapes[1], FP8),
        SA: T.Tensor((m, k // per), scales),
        SB: T.Tensor((n, k // per), scales),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(1):
            a1, b1 = T.alloc_l1(shapes[0], FP8), T.alloc_l1(shapes[1], FP8)
            sa1, sb1 = T.alloc_l1((m, k // per), scales), T.alloc_l1((n, k // per), scales)
            a0, b0 = T.alloc_l0a(shapes[0], FP8), T.alloc_l0b(shapes[1], FP8)
            sa0 = T.alloc_l0a_sf(a0, scales, sf_shape=(m, k // per))
            sb0 = T.alloc_l0b_sf(b0, scales, sf_shape=(n, k // per))
            c = T.alloc_l0c((m, n), "float32")
            T.copy(A, a1)
            T.copy(B, b1)
            T.copy(SA, sa1)
            T.copy(SB, sb1)
            T.copy(a1, a0)
            T.copy(b1, b0)
            T.copy(sa1, sa0)
            T.copy(sb1, sb0)
            T.gemm_blockscaled(
                a0, b0, c, sa0, sb0, transpose_A=ta, transpose_B=tb, clear_accum=True
            )
            T.copy(c, C)

    return kernel


def drawn(seed, m, n, k, dtype, scales, trans=(False, True)):
    """Random arguments, and the product in float64."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(getattr(ml_dtypes, dtype))
    a, b = (rng.standard_normal((rows, k)).astype(kind) for rows in (m, n))
    sa, sb = (rng.integers(110, 144, (rows, k // 32)).astype(np.uint8) for rows in (m, n))
    x, y = (
        e.astype(np.float64) * np.repeat(2.0 ** (s.astype(np.float64) - 127), 32, axis=1)
        for e, s in ((a, sa), (b, sb))
    )
    left, right = (e.T if t else e for e, t in ((a, trans[0]), (b, not trans[1])))
    args = {
        "A": np.ascontiguousarray(left),
        "B": np.ascontiguousarray(right),
        "SA": sa.view(scales),
        "SB": sb.view(scales),
        "C": np.zeros((m, n), np.float32),
    }
    return args, x @ y.T


def holds(made, args, wanted, schedules):
    """The numbers in order and under schedules, of which none finds anything."""
    limit = 1e-6 * np.abs(wanted).max()
    given = {k: v.copy() for k, v in args.items()}
    made(*given.values())
    np.testing.assert_allclose(given["C"], wanted, rtol=1e-5, atol=limit)
    for schedule in schedules:
        given = {k: v.copy() for k, v in args.items()}
        assert [d.render() for d in made._program.program.check(given, schedule)] == []
        np.testing.assert_allclose(given["C"], wanted, rtol=1e-5, atol=limit)


@pytest.mark.parametrize(
    ("size", "dtype", "scales", "steps"),
    [
        ((64, 48, 128), FP8, "uint16", 1),
        ((24, 100, 192), FP8, "uint8", 1),
        ((127, 40, 320), "float8_e5m2", "uint16", 1),
        ((48, 24, 512), FP8, "uint16", 4),
        ((1, 96, 64), FP8, "uint16", 1),
        ((40, 24, 256), FP4, "uint8", 1),
        ((96, 17, 768), FP4, "uint16", 3),
    ],
    ids=str,
)
def test_products_from_l1(size, dtype, scales, steps):
    made = tilelang.compile(from_l1(*size, dtype, scales, steps))
    for seed in SEEDS:
        args, wanted = drawn(seed, *size, dtype, scales)
        holds(made, args, wanted, Schedule.sweep(2) if seed < 2 else ())


@pytest.mark.parametrize("trans", [(False, True), (True, True), (False, False), (True, False)])
def test_products_from_l0(trans):
    size = (64, 96, 128)
    made = tilelang.compile(from_l0(*size, trans))
    for seed in SEEDS:
        args, wanted = drawn(seed, *size, FP8, "uint8", trans)
        holds(made, args, wanted, Schedule.sweep(2) if seed < 2 else ())


@pytest.mark.simulate
@pytest.mark.parametrize(("dtype", "steps"), [(FP8, 3), (FP4, 2)])
def test_under_many_schedules(dtype, steps):
    size = (40, 24, 64 * steps * 2)
    made = tilelang.compile(from_l1(*size, dtype, "uint16", steps))
    args, wanted = drawn(1, *size, dtype, "uint16")
    holds(made, args, wanted, Schedule.sweep(20))


@pytest.mark.simulate
def test_from_l0_under_many_schedules():
    size = (48, 96, 128)
    args, wanted = drawn(2, *size, FP8, "uint8")
    holds(tilelang.compile(from_l0(*size, (False, True))), args, wanted, Schedule.sweep(20))


def test_the_emulator_agrees():
    args, wanted = drawn(3, 32, 48, 128, FP8, "uint16")
    kernel = tilelang.compile(from_l1(32, 48, 128, FP8, "uint16"), target="emulate")
    kernel(*args.values())
    np.testing.assert_allclose(args["C"], wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())


def test_a_scale_of_255_is_no_number():
    args, _ = drawn(0, 32, 32, 64, FP8, "uint8")
    args["SA"][5, 1] = 255
    tilelang.compile(from_l1(32, 32, 64, FP8, "uint8"))(*args.values())
    assert np.isnan(args["C"][5]).all() and not np.isnan(np.delete(args["C"], 5, axis=0)).any()


# Refusals -----------------------------------------------------------------------------------------


def refusal(body):
    """What is said of a kernel with this body."""
    with pytest.raises(TileError) as found:

        @T.prim_func
        def kernel(A: T.Tensor((64, 128), FP8)):
            with T.Kernel(1):
                body(A)

        tilelang.compile(kernel)
    (first, *_) = found.value.diagnostics
    assert first.loc is not None and first.loc.file.endswith("test_ascend_mx.py")
    return f"{first.message} | {first.expected}"


def tiles(k=128, dtype=FP8):
    a, b = T.alloc_l1((64, k), dtype), T.alloc_l1((64, k), dtype)
    return a, b, T.alloc_l0c((64, 64), "float32")


def other_memory(A):
    a, b, c = tiles()
    sf = T.alloc_shared((64, 4), "uint8")
    T.gemm_blockscaled(a, b, c, sf, sf, transpose_B=True)


def too_few(A):
    a, b, c = tiles()
    sf = T.alloc_l1((64, 2), "uint8")
    T.gemm_blockscaled(a, b, c, sf, sf, transpose_B=True)


def odd_depth(A):
    a, b, c = tiles(96)
    sf = T.alloc_l1((64, 3), "uint8")
    T.gemm_blockscaled(a, b, c, sf, sf, transpose_B=True)


def halves(A):
    a, b, c = tiles(dtype="float16")
    sf = T.alloc_l1((64, 4), "uint8")
    T.gemm_blockscaled(a, b, c, sf, sf, transpose_B=True)


def another_handle(A):
    a0, b0 = T.alloc_l0a((64, 128), FP8), T.alloc_l0b((64, 128), FP8)
    other = T.alloc_l0a((64, 128), FP8)
    fa, fb = T.alloc_l0a_sf(other, "uint8"), T.alloc_l0b_sf(b0, "uint8")
    c = T.alloc_l0c((64, 64), "float32")
    T.gemm_blockscaled(a0, b0, c, fa, fb, transpose_B=True)


def turned_fp4(A):
    a0, b0 = T.alloc_l0a((64, 128), FP4), T.alloc_l0b((128, 64), FP4)
    fa = T.alloc_l0a_sf(a0, "uint8")
    fb = T.alloc_l0b_sf(b0, "uint8", sf_shape=(64, 4))
    c = T.alloc_l0c((64, 64), "float32")
    T.gemm_blockscaled(a0, b0, c, fa, fb)


def scales_as_a_tile(A):
    a, b, c = tiles()
    sf = T.alloc_l1((64, 4), "float8_e8m0fnu")
    T.gemm_blockscaled(a, b, c, sf, sf, transpose_B=True)
    T.gemm(sf, sf, c, transpose_B=True)


SAID = {
    other_memory: "SFA of T.gemm_blockscaled for a tile in L1 buffer | L1 buffer",
    too_few: "SFA of T.gemm_blockscaled for 64 rows and K = 128 | (64, 4), a scale for 32 elements",
    odd_depth: "T.gemm_blockscaled with K = 96 | a multiple of 64",
    halves: "T.gemm_blockscaled of float16 and float16 | both float8_e4m3fn, or both float8_e5m2,"
    " or both float4_e2m1fn",
    another_handle: "SFA of T.gemm_blockscaled: l0a_sf has the scales of l0a_1 | those of l0a",
    turned_fp4: "a product of fp4 tiles of which two neighbours are not neighbours along K |"
    " transpose_A=False, transpose_B=True",
    scales_as_a_tile: "l1_2 holds the scales of one product and is an operand of another | one use:"
    " scales lie in another order than the elements of a tile",
}


@pytest.mark.parametrize("body", SAID, ids=lambda f: f.__name__)
def test_refusals(body):
    assert refusal(body) == SAID[body]
