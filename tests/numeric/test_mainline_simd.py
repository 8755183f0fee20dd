"""The functions of `T.simd` against NumPy, on whole registers and under predicates, in order."""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.ascend.language as T

S = T.simd
RNG = np.random.default_rng(7)
BF16 = ml_dtypes.bfloat16


def two(function, dtype, out=None):
    """A kernel that gives `function(x, y)` of two registers, the store by the width of `out`."""
    out = out or dtype
    n, m = (256 // np.dtype(getattr(ml_dtypes, d, d)).itemsize for d in (dtype, out))
    width = 2048 // m

    @T.prim_func
    def kernel(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype), C: T.Tensor((m,), out)):
        with T.Kernel(1):
            a = T.alloc_shared((n,), dtype)
            b = T.alloc_shared((n,), dtype)
            c = T.alloc_shared((m,), out)
            T.copy(A, a)
            T.copy(B, b)
            with T.SimdVF():
                S.vsts(c[0], function(S.vld(a[0]), S.vld(b[0])), dist=f"NORM_B{width}")
            T.copy(c, C)

    return kernel


def arguments(dtype, out=None):
    kind, to = (np.dtype(getattr(ml_dtypes, d, d)) for d in (dtype, out or dtype))
    shape = (256 // kind.itemsize,)
    if kind.kind in "iu":
        low = 0 if kind.kind == "u" else -100
        a, b = (RNG.integers(low, 100, shape).astype(kind) for _ in range(2))
    else:
        a, b = (RNG.uniform(0.5, 4, shape).astype(kind) * RNG.choice([-1, 1], shape) for _ in "ab")
        a, b = a.astype(kind), b.astype(kind)
    return a, b, np.zeros(256 // to.itemsize, to)


def gives(function, wanted, dtype, out=None, tolerance=0.0):
    """Whether the registers that `function` gives are what `wanted` says."""
    kernel = tilelang.compile(two(function, dtype, out))
    a, b, c = arguments(dtype, out)
    kernel(a, b, c)
    with np.errstate(all="ignore"):
        want = np.asarray(wanted(a, b)).astype(c.dtype)
    np.testing.assert_allclose(
        c[: want.size].astype(np.float64), want.astype(np.float64), tolerance, tolerance
    )
    assert (c[want.size :] == 0).all()


WITH_TWO = {
    "vadd": np.add, "vsub": np.subtract, "vmul": np.multiply, "vmax": np.maximum,
    "vmin": np.minimum, "vand": np.bitwise_and, "vor": np.bitwise_or, "vxor": np.bitwise_xor,
    "vabsdif": lambda a, b: np.abs(a - b),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int16"])
def test_operations_on_two_registers(dtype):
    for name, wanted in WITH_TWO.items():
        bits = name in ("vand", "vor", "vxor")
        if not (bits and dtype.startswith("float")):
            gives(getattr(S, name), wanted, dtype)


def test_operations_of_float_alone():
    gives(S.vdiv, np.divide, "float32", tolerance=1e-6)
    gives(
        lambda x, y: S.vexp(S.vneg(S.vabs(x))), lambda a, b: np.exp(-abs(a)), "float32", None, 1e-6
    )
    gives(
        lambda x, y: S.vln(S.vsqrt(S.vabs(y))),
        lambda a, b: np.log(abs(b) ** 0.5),
        "float32",
        None,
        1e-5,
    )
    gives(S.vexpdif, lambda a, b: np.exp(a - b), "float32", tolerance=1e-5)
    gives(S.vprelu, lambda a, b: np.where(a >= 0, a, a * b), "float32")
    gives(lambda x, y: S.vlrelu(x, 0.25), lambda a, b: np.where(a >= 0, a, a / 4), "float32")
    gives(lambda x, y: S.vrelu(x), lambda a, b: np.maximum(a, 0), "float16")


def test_operations_with_a_number():
    gives(lambda x, y: S.vadds(S.vmuls(x, 3), 5), lambda a, b: a * 3 + 5, "int32")
    gives(lambda x, y: S.vmins(S.vmaxs(x, -1.0), 2.0), lambda a, b: a.clip(-1, 2), "float32")
    gives(lambda x, y: S.vshrs(S.vshls(x, 4), 2), lambda a, b: a << 4 >> 2, "int32")
    gives(lambda x, y: S.vnot(x), lambda a, b: ~a, "uint16")


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("vmula", lambda a, b: a * b + (a + 1)),
        ("vmadd", lambda a, b: (a + 1) * a + b),
        ("vaxpy", lambda a, b: (a + 1) + a * np.float32(2.5)),
    ],
)
def test_updates_of_a_register(name, wanted):
    @T.prim_func
    def kernel(
        A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")
    ):
        with T.Kernel(1):
            a = T.alloc_shared((64,), "float32")
            b = T.alloc_shared((64,), "float32")
            c = T.alloc_shared((64,), "float32")
            T.copy(A, a)
            T.copy(B, b)
            with T.SimdVF():
                d = S.alloc_var("float32")
                x = S.vld(a[0])
                d[0] = S.vadds(x, 1.0)
                if name == "vaxpy":
                    S.vaxpy(d, x, 2.5)
                else:
                    getattr(S, name)(d, x, S.vld(b[0]))
                S.vsts(c[0], d[0])
            T.copy(c, C)

    a, b, c = arguments("float32")
    made = tilelang.compile(kernel)
    made(a, b, c)
    np.testing.assert_allclose(c, wanted(a, b), 1e-6, 1e-6)


@pytest.mark.parametrize("count", [0, 1, 40, 64])
def test_a_predicate_leaves_zeros(count):
    def function(x, y):
        return S.vadd(x, y, S.update_mask(count))

    gives(function, lambda a, b: np.where(np.arange(64) < count, a + b, 0), "float32")


@pytest.mark.parametrize(
    ("op", "wanted"),
    [("eq", np.equal), ("ne", np.not_equal), ("lt", np.less), ("le", np.less_equal),
     ("gt", np.greater), ("ge", np.greater_equal)],
)  # fmt: skip
def test_comparison_and_selection(op, wanted):
    gives(
        lambda x, y: S.vsel(x, y, S.vcmp(x, y, op=op)),
        lambda a, b: np.where(wanted(a, b), a, b),
        "int32",
    )


def test_predicates_combine():
    def function(x, y):
        every = S.pset(32)
        low, high = S.vcmps(x, 0.0, op="lt"), S.vcmps(y, 0.0, op="gt")
        both = S.por(S.pand(low, high, every), S.pnot(S.pxor(low, high, every), every), every)
        return S.vsel(x, y, both)

    def wanted(a, b):
        low, high = a < 0, b > 0
        return np.where((low & high) | ~(low ^ high), a, b)

    gives(function, wanted, "float32")


def test_reductions():
    gives(lambda x, y: S.vcadd(x), lambda a, b: [a.sum()], "int32")
    gives(lambda x, y: S.vcmax(x), lambda a, b: [a.max(), a.argmax()], "int32")
    gives(lambda x, y: S.vcmin(x), lambda a, b: [a.min(), a.argmin()], "int32")
    gives(lambda x, y: S.vcgadd(x), lambda a, b: a.reshape(-1, 8).sum(1), "int32")
    gives(lambda x, y: S.vcgmax(x), lambda a, b: a.reshape(-1, 8).max(1), "float32")
    gives(lambda x, y: S.vcpadd(x), lambda a, b: a[::2] + a[1::2], "float32")


def test_moves_within_registers():
    gives(lambda x, y: S.vintlv(x, y)[0], lambda a, b: np.stack([a, b], 1).ravel()[:64], "int32")
    gives(lambda x, y: S.vdintlv(x, y)[1], lambda a, b: np.hstack([a, b])[1::2], "int32")
    gives(lambda x, y: S.vdupv(x), lambda a, b: np.full(64, a[0]), "int32")
    gives(lambda x, y: S.vci(3, "int32"), lambda a, b: np.arange(3, 67), "int32")
    gives(lambda x, y: S.vsqz(x, S.vcmps(x, 0, op="gt")), lambda a, b: a[a > 0], "int32")
    gives(lambda x, y: S.vadd(x, S.vdup(2, "int32")), lambda a, b: a + 2, "int32")


def test_conversions():
    gives(
        lambda x, y: S.vcvt(x, "int32", round="ROUND_R", sat="RS_ENABLE"),
        lambda a, b: np.rint(a),
        "float32",
        "int32",
    )
    gives(lambda x, y: S.vcvt(x, "float32", round="ROUND_R"), lambda a, b: a, "int32", "float32")


def test_gather_and_scatter():
    @T.prim_func
    def kernel(
        A: T.Tensor((128,), "float32"), I: T.Tensor((64,), "uint32"), C: T.Tensor((128,), "float32")
    ):
        with T.Kernel(1):
            a = T.alloc_shared((128,), "float32")
            at = T.alloc_shared((64,), "uint32")
            c = T.alloc_shared((128,), "float32")
            T.copy(A, a)
            T.copy(I, at)
            T.copy(A, c)
            with T.SimdVF():
                index = S.vld(at[0])
                S.vscatter(S.vmuls(S.vgather2(a[0], index), 10.0), c[0], index)
            T.copy(c, C)

    a = RNG.standard_normal(128).astype(np.float32)
    index = RNG.permutation(128)[:64].astype(np.uint32)
    c = np.zeros(128, np.float32)
    tilelang.compile(kernel)(a, index, c)
    wanted = a.copy()
    wanted[index] *= 10
    np.testing.assert_array_equal(c, wanted)
