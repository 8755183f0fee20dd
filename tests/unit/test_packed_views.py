"""Views between elements smaller than a byte and whole bytes, against NumPy, on every target."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.dtypes import DType, from_bits
from tilelang.errors import TileTypeError

TARGETS = ("emulate", "cpu", "simulate:sm_90a")
RANDOM = np.random.default_rng(5)


def words(dtype, *shape):
    """Elements with random bits, and the bits."""
    bits = RANDOM.integers(0, 1 << DType(dtype).bits, shape).astype(np.uint8)
    return from_bits(bits, DType(dtype)), bits


def joined(bits, per, size):
    """Neighbours along the last axis as unsigned integers of `size` bits, the first lowest."""
    parts = bits.reshape(*bits.shape[:-1], -1, per).astype(np.uint64)
    shifts = np.arange(per, dtype=np.uint64) * np.uint64(size // per)
    return (parts << shifts).sum(-1, dtype=np.uint64).astype(f"u{size // 8}")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("narrow", "wide"),
    [("float4_e2m1fn", "uint8"), ("int4", "int8"), ("uint4", "uint32"), ("int2", "uint8"),
     ("uint2", "float8_e5m2")],
)  # fmt: skip
def test_small_elements_read_as_whole_ones(narrow, wide, target):
    per = DType(wide).bits // DType(narrow).bits

    @T.prim_func
    def kernel(A: T.Tensor((5, 48), narrow), B: T.Tensor((5, 48 // per), wide)):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((5, 48), narrow)
            T.copy(A, s)
            seen = T.view(s, (5, 48 // per), dtype=wide)
            T.copy(seen, B)

    a, bits = words(narrow, 5, 48)
    b = np.zeros((5, 48 // per), DType(wide).numpy)
    tilelang.compile(kernel, target=target)(a, b)
    assert b.tobytes() == joined(bits, per, DType(wide).bits).tobytes()


@pytest.mark.parametrize("target", TARGETS)
def test_whole_elements_written_into_small_ones(target):
    """By a copy, by a store, and by a fill; the view has another shape."""

    @T.prim_func
    def kernel(A: T.Tensor((4, 6), "uint8"), B: T.Tensor((3, 16), "uint4")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((3, 16), "uint4")
            seen = T.view(s, (4, 6), dtype="uint8")
            T.fill(seen, 0x5A)
            T.copy(A[0:3, :], seen[0:3, :])
            for j in T.Parallel(2):
                seen[3, j] = A[3, j] + 1
            T.copy(s, B)

    a, want = RANDOM.integers(0, 255, (4, 6)).astype(np.uint8), np.full((4, 6), 0x5A, np.uint8)
    want[:3], want[3, :2] = a[:3], a[3, :2] + 1
    b = np.zeros((3, 16), DType("uint4").numpy)
    tilelang.compile(kernel, target=target)(a, b)
    flat = np.stack([want.reshape(-1) & 15, want.reshape(-1) >> 4], -1).reshape(3, 16)
    assert np.array_equal(b.astype(np.uint8), flat)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("narrow", "size"), [("float4_e2m1fn", 8), ("int4", 16), ("uint2", 8)])
def test_whole_elements_read_as_small_ones(narrow, size, target):
    per = size // DType(narrow).bits

    @T.prim_func
    def kernel(A: T.Tensor((3, 10), f"uint{size}"), B: T.Tensor((3, 10 * per), "float32")):
        with T.Kernel(1, threads=32):
            seen = T.view(A, (3, 10 * per), dtype=narrow)
            f = T.alloc_fragment((3, 10 * per), narrow)
            T.copy(seen, f)
            for i, j in T.Parallel(3, 10 * per):
                B[i, j] = T.cast(f[i, j], "float32") + T.cast(seen[i, j], "float32")

    small, bits = words(narrow, 3, 10 * per)
    b = np.zeros((3, 10 * per), "float32")
    tilelang.compile(kernel, target=target)(joined(bits, per, size), b)
    assert np.array_equal(b, 2 * small.astype("float32"))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("small", ["float4_e2m1fn", "int4", "uint2"])
def test_a_small_element_as_a_byte_and_back(small, target):
    @T.prim_func
    def kernel(A: T.Tensor((16,), small), B: T.Tensor((16,), "uint8"), C: T.Tensor((16,), small)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(16):
                B[i] = T.reinterpret(A[i], "uint8")
                C[i] = T.reinterpret(T.reinterpret(A[i], "int8") | 0x50, small)

    a, bits = words(small, 16)
    b, c = np.full(16, 0xFF, np.uint8), np.zeros_like(a)
    tilelang.compile(kernel, target=target)(a, b, c)
    assert np.array_equal(b, bits)
    assert np.array_equal(c.view(np.uint8) & (1 << DType(small).bits) - 1, bits)


def test_buffers_of_a_kernel_with_such_a_view_are_seen():
    @T.prim_func
    def kernel(A: T.Tensor((3, 8), "uint8"), B: T.Tensor((3, 16), "uint4")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((3, 16), "uint4")
            T.copy(A, T.view(s, (3, 8), dtype="uint8"))
            T.copy(s, B)

    a, b = RANDOM.integers(0, 256, (3, 8)).astype(np.uint8), np.zeros((3, 16), "uint4")
    for after in (None, "s"):
        found = tilelang.compile(kernel, target="emulate").inspect(a, b, buffer="s", after=after)
        seen = found["s"].astype(np.uint8).reshape(3, 8, 2)
        assert np.array_equal(seen[..., 0] | seen[..., 1] << 4, a)


def refusal(dtype, wide, use):
    shape = (4, 16)

    @T.prim_func
    def kernel(B: T.Tensor((4,), "uint8")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared(shape, dtype)
            T.clear(s)
            use(T.view(s, dtype=wide), B)

    with pytest.raises(TileTypeError) as caught:
        tilelang.compile(kernel, target="emulate")
    assert "test_packed_views.py:" in str(caught.value)
    return str(caught.value)


def test_what_no_such_view_can_do():
    text = refusal("uint8", "uint4", lambda v, B: T.fill(v, 1))
    assert "a store of uint4 into s, whose elements are uint8" in text
    text = refusal("uint4", "uint8", lambda v, B: T.reduce_max(v, B, dim=1))
    assert "is used by more than loads, stores, copies and fills" in text
    text = refusal("float6_e2m3fn", "uint8", lambda v, B: T.copy(v[0, 0:4], B))
    assert "a view of float6_e2m3fn memory as uint8" in text
