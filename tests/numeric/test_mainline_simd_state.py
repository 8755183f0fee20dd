"""`T.simd` where elements stay (MODE_MERGING), addresses move on, and predicates lie in UB: against
NumPy, in order and on queues.
"""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.ascend.language as T
from tilelang.errors import TileError
from tilelang.simulator.machine import Schedule

S = T.simd
SEEDS = range(20)


def holds(kernel, draw, wanted, tolerance=0.0):
    """Whether `wanted(args)` is what the last argument holds, for each seed and two schedules."""
    made = tilelang.compile(kernel)
    for seed in SEEDS:
        args = draw(np.random.default_rng(seed))
        names = "ABCD"[: len(args)]
        for schedule in (None, *Schedule.sweep(2)) if seed == 0 else (None,):
            given = dict(zip(names, (x.copy() for x in args), strict=True))
            if schedule is None:
                made(*given.values())
            else:
                assert made._program.program.check(given, schedule) == []
            out = given[names[-1]]
            with np.errstate(all="ignore"):
                want = wanted(*args[:-1])
            np.testing.assert_allclose(
                out.astype(np.float64), want.astype(np.float64), tolerance, tolerance
            )


def kept(function, dtype, active, out=None):
    """A kernel whose register begins as y, and of which `function(x, mask)` gives some elements."""
    out = out or dtype
    n, m = (256 // np.dtype(getattr(ml_dtypes, d, d)).itemsize for d in (dtype, out))

    @T.prim_func
    def kernel(A: T.Tensor((n,), dtype), B: T.Tensor((m,), out), C: T.Tensor((m,), out)):
        with T.Kernel(1):
            a, b = T.alloc_shared((n,), dtype), T.alloc_shared((m,), out)
            T.copy(A, a)
            T.copy(B, b)
            with T.SimdVF():
                x = S.vld(a[0])
                held = S.alloc_local(2, out)
                mask = S.update_mask(active, 2048 // max(n, m))
                held[1] = S.vld(b[0])
                held[1] = function(x, mask)
                S.vsts(b[0], held[1])
            T.copy(b, C)

    return kernel


def pairs(dtype, out=None):
    def draw(rng):
        made = []
        for name in (dtype, out or dtype, out or dtype):
            kind = np.dtype(getattr(ml_dtypes, name, name))
            size = 256 // kind.itemsize
            if kind.kind in "iu":
                made.append(rng.integers(1, 100, size).astype(kind))
            else:
                made.append(rng.uniform(0.5, 4, size).astype(kind))
        return made

    return draw


M = "MODE_MERGING"
ELEMENTWISE = {
    "vadds": (lambda x, m, _: S.vadds(x, 3, m, mode=M), lambda x: x + 3),
    "vmuls": (lambda x, m, _: S.vmuls(x, 2, m, mode=M), lambda x: x * 2),
    "vmaxs": (lambda x, m, _: S.vmaxs(x, 3, m, mode=M), lambda x: np.maximum(x, 3)),
    "vadd": (lambda x, m, _: S.vadd(x, x, m, mode=M), lambda x: x + x),
    "vmin": (lambda x, m, _: S.vmin(x, x, m, mode=M), lambda x: x),
    "vneg": (lambda x, m, _: S.vneg(x, m, mode=M), lambda x: -x),
    "vabs": (lambda x, m, _: S.vabs(x, m, mode=M), abs),
    "vdup": (lambda x, m, dtype: S.vdup(7, dtype, m, mode=M), lambda x: x * 0 + 7),
    "vdupv": (lambda x, m, _: S.vdupv(x, m, mode=M), lambda x: x * 0 + x[0]),
}


@pytest.mark.parametrize(("active", "dtype"), [(0, "float32"), (17, "int32"), (63, "float32")])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elements_that_are_not_active_stay(name, active, dtype):
    function, gives = ELEMENTWISE[name]

    def wanted(a, b):
        return np.where(np.arange(a.size) < active, gives(a), b)

    holds(kept(lambda x, m: function(x, m, dtype), dtype, active), pairs(dtype), wanted)


def test_reductions_give_the_first_elements_alone():
    def wanted(a, b):
        return np.concatenate([[a[:9].sum(dtype=np.float32)], b[1:]])

    holds(kept(lambda x, m: S.vcadd(x, m, mode=M), "float32", 9), pairs("float32"), wanted, 1e-6)

    def largest(a, b):
        return np.concatenate([[a[:9].max(), np.argmax(a[:9])], b[2:]])

    holds(kept(lambda x, m: S.vcmax(x, m, mode=M), "int32", 9), pairs("int32"), largest)


def test_conversions_leave_the_other_parts_alone():
    def wanted(a, b):
        out = b.copy()
        out[1:80:2] = a[:40].astype(np.float16)
        return out

    function = lambda x, m: S.vcvt(x, "float16", m, part=1, mode=M)  # noqa: E731
    holds(kept(function, "float32", 80, "float16"), pairs("float32", "float16"), wanted)


def test_updates_leave_inactive_elements_alone():
    @T.prim_func
    def kernel(
        A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")
    ):
        with T.Kernel(1):
            a, b = T.alloc_shared((64,), "float32"), T.alloc_shared((64,), "float32")
            T.copy(A, a)
            T.copy(B, b)
            with T.SimdVF():
                x = S.vld(a[0])
                held = S.alloc_var("float32")
                held = S.vld(b[0])
                S.vmula(held, x, x, S.pset(32, "PAT_H"), mode=M)
                S.vaxpy(held, x, 2.0, S.pset(32, "PAT_Q"), mode=M)
                S.vsts(b[0], held)
            T.copy(b, C)

    def wanted(a, b):
        places = np.arange(64)
        c = np.where(places < 32, b + a * a, b)
        return np.where(places < 16, c + 2 * a, c)

    holds(kernel, pairs("float32"), wanted, 1e-6)


def test_addresses_move_on():
    rows, n = 5, 192

    @T.prim_func
    def kernel(A: T.Tensor((rows, n), "float32"), B: T.Tensor((rows, n), "float32")):
        with T.Kernel(1):
            a = T.alloc_shared((rows, n), "float32")
            b = T.alloc_shared((rows, n), "float32")
            T.copy(A, a)
            with T.SimdVF():
                p = S.make_ubuf_ptr(T.access_ptr(a[0, 0], "r", extent=rows * n), "float32")
                q = S.make_ubuf_ptr(b[0, 0], "float32")
                for _ in T.serial(rows):
                    for _k in T.serial(n // 64):
                        x, p = S.vld(p, post_inc=64)
                        q = S.vsstb(S.vadds(x, 1.0), q, 0x10008, update=True)
            T.copy(b, B)

    def draw(rng):
        return rng.standard_normal((rows, n)).astype(np.float32), np.zeros((rows, n), np.float32)

    holds(kernel, draw, lambda a: a + np.float32(1))


def test_addresses_move_back_and_by_less_than_a_register():
    @T.prim_func
    def kernel(A: T.Tensor((256,), "int16"), B: T.Tensor((384,), "int16")):
        with T.Kernel(1):
            a, b = T.alloc_shared((256,), "int16"), T.alloc_shared((384,), "int16")
            T.copy(A, a)
            with T.SimdVF():
                p = S.make_ubuf_ptr(a[64], "int16")
                x, p = S.vld(p, post_inc=-48)
                y, p = S.vld(p, "BRC_B16", post_inc=0)
                z, p = S.vld(p, "E2B_B16", post_inc=16)
                S.vsts(b[0], x, dist="NORM_B16")
                S.vsts(b[128], y, dist="NORM_B16")
                S.vsts(b[256], z, dist="NORM_B16")
            T.copy(b, B)

    def draw(rng):
        return rng.integers(-99, 99, 256).astype(np.int16), np.zeros(384, np.int16)

    holds(
        kernel,
        draw,
        lambda a: np.concatenate([a[64:192], np.full(128, a[16]), np.repeat(a[16:24], 16)]),
    )


def test_predicates_in_memory():
    @T.prim_func
    def kernel(A: T.Tensor((160,), "uint8"), B: T.Tensor((64,), "uint8")):
        with T.Kernel(1):
            a, b = T.alloc_shared((160,), "uint8"), T.alloc_shared((64,), "uint8")
            T.copy(A, a)
            with T.SimdVF():
                S.pst(b[0], S.pld(a[0], dist="US"))
                S.pst(b[32], S.pld(a[32], dist="DS"), dist="PK")
                S.pst(b[48], S.pld(a[96]), dist="PK")
            T.copy(b, B)

    def draw(rng):
        return rng.integers(0, 256, 160).astype(np.uint8), np.zeros(64, np.uint8)

    def wanted(a):
        bits = np.unpackbits(a, bitorder="little")
        made = [np.repeat(bits[:128], 2), bits[256:768:4], bits[768:1024:2]]
        return np.packbits(np.concatenate(made), bitorder="little")

    holds(kernel, draw, wanted)


def test_pairs_from_an_address_and_more():
    @T.prim_func
    def kernel(A: T.Tensor((300,), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1):
            a, b = T.alloc_shared((300,), "float32"), T.alloc_shared((128,), "float32")
            T.copy(A, a)
            with T.SimdVF():
                for i in T.serial(1):
                    x, y = S.vld2(a[8 * i + 8], "DINTLV_B32", off=i + 72)
                    S.vsts(b[0], x)
                    S.vsts(b[64], y)
            T.copy(b, B)

    def draw(rng):
        return rng.standard_normal(300).astype(np.float32), np.zeros(128, np.float32)

    holds(kernel, draw, lambda a: np.concatenate([a[80:208:2], a[81:209:2]]))


# Refusals -----------------------------------------------------------------------------------------


def refusal(body):
    with pytest.raises(TileError) as found:

        @T.prim_func
        def kernel(A: T.Tensor((64,), "float32")):
            with T.Kernel(1):
                u = T.alloc_shared((64,), "float32")
                T.copy(A, u)
                with T.SimdVF():
                    body(u)
                T.copy(u, A)

        tilelang.compile(kernel)
    (first, *_) = found.value.diagnostics
    assert first.loc is not None and first.loc.file.endswith("test_mainline_simd_state.py")
    return f"{first.message} | {first.expected} | {first.help}"


def not_assigned(u):
    x = S.vld(u[0])
    S.vsts(u[0], S.vadd(x, x, mode=M))


def undocumented(u):
    S.vcgmax(S.vld(u[0]), mode=M)


def no_pointer(u):
    S.vld(u[0], post_inc=64)


def other_elements(u):
    S.make_ubuf_ptr(u[0], "int32")


def unknown_dist(u):
    S.pld(u[0], dist="PK")


def wide_elements(u):
    v = T.alloc_shared((32,), "int64")
    S.vsts(v[0], S.vld(v[0]))


SAID = {
    wide_elements: "T.simd.vsts of int64x32 | elements of 8 to 32 bits | ",
    not_assigned: "the result of T.simd.vadd(mode='MODE_MERGING') is not assigned to a register"
    " whose elements stay | an assignment to one of T.simd.alloc_var or T.simd.alloc_local | r ="
    " T.simd.alloc_var(dtype) first, then r = the operation",
    no_pointer: "the address of T.simd.vld(post_inc=...) is a value of type float32 | a pointer of"
    " T.simd.make_ubuf_ptr, to which results are assigned | p = T.simd.make_ubuf_ptr(u[0], dtype),"
    " then x, p = T.simd.vld(p, post_inc=64)",
    other_elements: "T.simd.make_ubuf_ptr of int32 into u | float32, its own elements | ",
    unknown_dist: "the dist of T.simd.pld is 'PK' | 'NORM' or 'US' or 'DS' | ",
}


@pytest.mark.parametrize("body", SAID, ids=lambda f: f.__name__)
def test_refusals(body):
    assert refusal(body) == SAID[body]


def test_what_keeps_no_elements_says_what_does():
    said = refusal(undocumented)
    assert said.startswith("T.simd.vcgmax(mode='MODE_MERGING'): which elements it keeps is not")
    assert said.endswith("T.simd.vsel(new, old, mask) keeps elements of `old`")
