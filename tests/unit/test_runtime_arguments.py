"""Arguments of a launch: what fits is bound without loss, all else is refused before it runs."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from frontend_run import defined
from tilelang import dtypes
from tilelang.dtypes import DType
from tilelang.errors import TileTypeError, TileValueError
from tilelang.runtime.arrays import pack_rows, unpack_rows


def kernel(parameters, body="pass", out_idx=None, target="cpu", **names):
    """A compiled kernel of these parameters, whose one thread runs `body`."""
    lines = "\n".join("        " + line for line in body.strip().splitlines())
    fn = defined(f"def fn({parameters}):\n    with T.Kernel(1, threads=1):\n{lines}\n", **names)
    return tilelang.compile(T.prim_func(fn), out_idx=out_idx, target=target)


def refused(k, *args, cls: Any = TileValueError, **kwargs):
    with pytest.raises(cls) as caught:
        k(*args, **kwargs)
    found = caught.value.diagnostics[0]
    assert found.kind == "argument"
    assert "fn" in found.message
    return found


def zeros(*shape, dtype="float32"):
    return np.zeros(shape, DType(dtype).numpy)


# -- count and names -------------------------------------------------------------------------------

COPY = 'A: T.Tensor((4,), "int32"), B: T.Tensor((4,), "int32")'


def test_positions_and_keywords():
    k = kernel(COPY, "for i in range(4):\n    B[i] = A[i] + 1")
    a, b = np.arange(4, dtype=np.int32), zeros(4, dtype="int32")
    for call in (lambda: k(a, b), lambda: k(a, B=b), lambda: k(B=b, A=a)):
        b[:] = 0
        assert call() == []
        assert b.tolist() == [1, 2, 3, 4]


def test_wrong_counts_and_names():
    k = kernel(COPY)
    a = zeros(4, dtype="int32")
    assert "expected 2 inputs, but 1 are provided" in refused(k, a).message
    assert "expected 2 inputs, but 3 are provided" in refused(k, a, a, a).message
    assert "expected 2 inputs, but 0 are provided" in refused(k).message
    assert "an unexpected argument C" in refused(k, a, C=a, cls=TileTypeError).message
    assert "two arguments A" in refused(k, a, A=a, cls=TileTypeError).message
    assert "an unexpected argument C" in refused(k, a, a, C=a, cls=TileTypeError).message


def test_outputs_are_not_passed():
    k = kernel(COPY, "for i in range(4):\n    B[i] = A[i] + 1", out_idx=-1)
    assert k(np.arange(4, dtype=np.int32)).tolist() == [1, 2, 3, 4]
    found = refused(k, zeros(4, dtype="int32"), zeros(4, dtype="int32"))
    assert "out_idx" in found.help


@pytest.mark.parametrize("out_idx", [2, -3, [0, 0], [0, -2], True, "a", 1.0])
def test_wrong_output_positions(out_idx):
    with pytest.raises((TileValueError, TypeError)):
        kernel(COPY, out_idx=out_idx)


def test_an_output_that_is_a_scalar():
    with pytest.raises(TileValueError, match="n, which is a scalar"):
        kernel('A: T.Tensor((4,), "int32"), n: T.int32', out_idx=1)


def test_several_outputs_come_back_in_the_order_asked_for():
    k = kernel(COPY, "for i in range(4):\n    A[i] = i\n    B[i] = -i", out_idx=[1, 0])
    b, a = k()
    assert (a.tolist(), b.tolist()) == ([0, 1, 2, 3], [0, -1, -2, -3])


# -- rank, dtype, extents --------------------------------------------------------------------------


def test_rank():
    k = kernel('A: T.Tensor((4, 6), "float32")')
    for shape in ((24,), (1, 4, 6), ()):
        found = refused(k, zeros(*shape))
        assert "argument A of fn" in found.message
        assert "rank" in found.message
        assert "2 dimensions (4, 6)" in found.expected


@pytest.mark.parametrize("got", ["float64", "float16", "bfloat16", "int32", "bool"])
def test_dtype(got):
    k = kernel('A: T.Tensor((4,), "float32")')
    found = refused(k, zeros(4, dtype=got), cls=TileTypeError)
    assert (found.expected, found.got) == ("dtype float32", f"dtype {got}")


@pytest.mark.parametrize(
    ("want", "got"),
    [("int8", "uint8"), ("uint8", "int8"), ("float16", "bfloat16"), ("bfloat16", "float16"),
     ("float16", "int16"), ("int16", "float16"), ("float8_e4m3fn", "float8_e5m2"),
     ("float8_e4m3fn", "uint8"), ("int64", "uint64"), ("float32", "int32"), ("int32", "float32")],
)  # fmt: skip
def test_types_of_one_size_are_not_mixed_up(want, got):
    refused(kernel(f'A: T.Tensor((4,), "{want}")'), zeros(4, dtype=got), cls=TileTypeError)


@pytest.mark.parametrize("dtype", [n for n, r in dtypes.ROWS.items() if r.kind != "handle"])
def test_every_type_is_bound_in_its_own_storage(dtype):
    k = kernel(f'A: T.Tensor((6,), "{dtype}"), B: T.Tensor((6,), "{dtype}")', "T.copy(A, B)")
    words = np.arange(6, dtype=np.uint8) % 2
    a = dtypes.cast(words, DType("uint8"), DType(dtype))
    b = np.zeros_like(a)
    k(a, b)
    np.testing.assert_array_equal(b.view(np.uint8), a.view(np.uint8))


def test_names_of_one_type():
    a = zeros(4, dtype="float8_e4m3fn")
    kernel('A: T.Tensor((4,), "float8_e4m3")')(a)
    kernel('A: T.Tensor((4,), "float8_e4m3fn")')(a)
    kernel('A: T.Tensor((4,), "tfloat32")')(zeros(4))
    kernel('A: T.Tensor((4,), "float4_e2m1_unpacked")')(np.zeros(4, np.uint8))


def test_truth_values_and_bytes():
    k = kernel('A: T.Tensor((4,), "bool"), B: T.Tensor((4,), "int32")',
               "for i in range(4):\n    B[i] = A[i]")  # fmt: skip
    for dtype in (np.bool_, np.uint8, np.int8):
        b = zeros(4, dtype="int32")
        k(np.array([0, 1, 1, 0], dtype), b)
        assert b.tolist() == [0, 1, 1, 0]
    found = refused(k, np.array([0, 2, 1, 0], np.uint8), zeros(4, dtype="int32"))
    assert found.got == "up to 2"
    kernel('A: T.Tensor((4,), "uint8")')(np.zeros(4, np.bool_))


def test_static_extents():
    k = kernel('A: T.Tensor((4, 6), "float32")')
    found = refused(k, zeros(4, 5))
    assert "shape mismatch at axis 1" in found.message
    assert "6 at axis 1" in found.expected
    assert found.got == "5"


def test_symbolic_extents_must_agree():
    n = T.dynamic("n")
    k = kernel(
        'A: T.Tensor((n, 4), "float32"), B: T.Tensor((8, n), "float32"), '
        'C: T.Tensor((n,), "float32")',
        "C[0] = n", n=n,
    )  # fmt: skip
    c = zeros(5)
    k(zeros(5, 4), zeros(8, 5), c)
    assert c[0] == 5
    found = refused(k, zeros(5, 4), zeros(8, 6), c)
    assert "argument B of fn: shape mismatch at axis 1" in found.message
    assert found.expected == "5 (n, n = 5 from axis 0 of A) at axis 1"
    refused(k, zeros(5, 4), zeros(8, 5), zeros(4))


def test_extents_that_are_expressions():
    n, m = T.dynamic("n, m")
    k = kernel(
        'A: T.Tensor((n * 4,), "float32"), B: T.Tensor((m * 3 + 1, n - m), "float32"), '
        'C: T.Tensor((2,), "int32")',
        "C[0] = n\nC[1] = m", n=n, m=m,
    )  # fmt: skip
    c = zeros(2, dtype="int32")
    k(zeros(20), zeros(10, 2), c)
    assert c.tolist() == [5, 3]
    found = refused(k, zeros(21), zeros(10, 2), c)
    assert found.expected == "20 (n * 4, n = 5 from axis 1 of B, n - m = 2) at axis 0"
    assert "m * 3 + 1" in refused(k, zeros(20), zeros(11, 2), c).expected
    assert "n - m" in refused(k, zeros(20), zeros(10, 3), c).expected
    # No number of elements is negative: m * 3 + 1 is never 0.
    refused(k, zeros(20), zeros(0, 2), c)


def test_a_size_that_does_not_follow():
    n = T.dynamic("n")
    k = kernel('A: T.Tensor((n * n,), "float32"), B: T.Tensor((4,), "float32")', "B[0] = n", n=n)
    found = refused(k, zeros(16), zeros(4))
    assert "n * n" in found.expected
    half = kernel('A: T.Tensor((n // 2, n), "float32")', "A[0, 0] = n", n=n)
    a = zeros(3, 7)
    half(a)
    assert a[0, 0] == 7
    refused(half, zeros(3, 8))


def test_sizes_given_by_scalar_parameters():
    k = kernel('A: T.Tensor((n, 2), "float32"), n: T.int32', "A[0, 0] = n", n=T.dynamic("n"))
    a = zeros(3, 2)
    k(a, 3)
    assert a[0, 0] == 3
    assert "argument n" in refused(k, a, 4).expected


def test_a_name_with_two_meanings():
    for parameters in (
        'A: T.Tensor((n, 2), "float32"), n: T.int64',
        'n: T.int64, A: T.Tensor((n, 2), "float32")',
        'n: T.Tensor((n, 2), "float32")',
        'B: T.Tensor((n, 2), "float32"), n: T.Tensor((4,), "float32")',
    ):
        with pytest.raises(TileTypeError, match="n is a symbolic size of type int32"):
            kernel(parameters, n=T.dynamic("n"))


def test_axes_of_zero_and_one():
    n = T.dynamic("n")
    k = kernel('A: T.Tensor((n, 4), "float32"), B: T.Tensor((n,), "float32")',
               "for i in range(n):\n    B[i] = A[i, 3]", out_idx=1, n=n)  # fmt: skip
    assert k(zeros(0, 4)).shape == (0,)
    assert k(np.ones((1, 4), np.float32)).tolist() == [1]
    refused(kernel('A: T.Tensor((0, 4), "float32")'), zeros(1, 4))
    kernel('A: T.Tensor((0, 4), "float32")')(zeros(0, 4))


# -- strides and writing ---------------------------------------------------------------------------


def test_declared_strides():
    s = T.dynamic("s")
    k = kernel(
        'A: T.StridedTensor((4, 3), (s, 1), "int32"), B: T.Tensor((4,), "int32")',
        "for i in range(4):\n    B[i] = A[i, 1] + 100 * s\n    A[i, 2] = -i", s=s,
    )  # fmt: skip
    base = np.arange(40, dtype=np.int32).reshape(4, 10)
    b = zeros(4, dtype="int32")
    k(base[:, 2:5], b)
    assert b.tolist() == [1003, 1013, 1023, 1033]
    assert base[:, 4].tolist() == [0, -1, -2, -3]
    found = refused(k, np.zeros((3, 4), np.int32).T, b)
    assert "stride mismatch at axis 1" in found.message
    fixed = kernel('A: T.StridedTensor((4, 3), (8, 1), "int32")')
    fixed(np.zeros((4, 8), np.int32)[:, :3])
    assert refused(fixed, base[:, :3]).got == "(10, 1)"


@pytest.mark.parametrize(
    "view",
    [lambda x: x[:, ::2], lambda x: x.T[:4, :6], lambda x: x[::-1, :6], lambda x: x[8:12, 3:9]],
)
def test_arrays_that_are_not_row_major(view):
    k = kernel(
        'A: T.Tensor((4, 6), "int32"), B: T.Tensor((4, 6), "int32")',
        "flat = T.reshape(B, (24,))\nfor i in range(24):\n    flat[i] = A[i // 6, i % 6] + 1",
    )
    base, out = (np.arange(144, dtype=np.int32).reshape(12, 12) for _ in range(2))
    a, b = view(base)[:4, :6], view(out)[:4, :6]
    want = out.copy()
    view(want)[:4, :6] = a + 1
    k(a, b)
    np.testing.assert_array_equal(out, want)


def test_read_only_arrays():
    k = kernel(COPY, "for i in range(4):\n    B[i] = A[i]")
    a, b = np.arange(4, dtype=np.int32), zeros(4, dtype="int32")
    a.flags.writeable = False
    k(a, b)
    b.flags.writeable = False
    assert "read-only" in refused(k, a, b).message


def test_a_view_of_a_parameter_counts_as_writing_it():
    k = kernel('A: T.Tensor((4,), "int32")', "V = T.view(A, (2, 2))\nV[0, 0] = 1")
    a = zeros(4, dtype="int32")
    a.flags.writeable = False
    assert "read-only" in refused(k, a).message


def test_elements_that_share_storage_are_only_read():
    k = kernel(COPY, "for i in range(4):\n    B[i] = A[i]")
    one = np.lib.stride_tricks.as_strided(np.array([5], np.int32), (4,), (0,))
    b = zeros(4, dtype="int32")
    k(one, b)
    assert b.tolist() == [5] * 4
    assert "share storage" in refused(k, b, one).message


# -- scalars, None ---------------------------------------------------------------------------------


def test_scalars():
    k = kernel('A: T.Tensor((4,), "float32"), n: T.int8, x: T.float16, c: T.bool, u: T.uint64',
               "A[0] = n\nA[1] = x\nA[2] = T.if_then_else(c, 1.0, 2.0)\nA[3] = u")  # fmt: skip
    a = zeros(4)
    some: list[Any] = [
        (-5, 0.1, True, 3),
        (np.int64(-5), np.float32(0.1), np.bool_(True), np.array(3)),
        (True, 1, 0, 3),
    ]
    for n, x, c, u in some:
        k(a, n, x, c, u)
        want = [int(n), float(np.float16(x)), 1 if c else 2, 3]
        np.testing.assert_array_equal(a, np.array(want, np.float32))


@pytest.mark.parametrize(
    ("dtype", "value", "cls"),
    [("int8", 128, TileValueError), ("int8", -129, TileValueError), ("uint64", -1, TileValueError),
     ("uint64", 2**64, TileValueError), ("int32", 1.0, TileTypeError),
     ("int32", None, TileTypeError),
     ("int32", "1", TileTypeError), ("float32", "1", TileTypeError), ("bool", 1.5, TileTypeError),
     ("int32", np.zeros(1, np.int32), TileTypeError), ("int32", [1], TileTypeError),
     ("float32", 1j, TileTypeError)],
)  # fmt: skip
def test_scalars_that_do_not_fit(dtype, value, cls):
    k = kernel(f'A: T.Tensor((4,), "float32"), n: T.{dtype}', "A[0] = T.cast(n, 'float32')")
    assert "argument n of fn" in refused(k, zeros(4), value, cls=cls).message


def test_none_for_a_tensor():
    unused = kernel('A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float32")', "A[0] = 1")
    unused(zeros(4), None)
    assert (
        "None for a tensor that the kernel uses"
        in refused(unused, None, None, cls=TileTypeError).message
    )


def test_none_for_the_tensor_that_a_size_follows_from():
    n = T.dynamic("n")
    k = kernel('A: T.Tensor((4,), "float32"), B: T.Tensor((n,), "float32")', "A[0] = n", n=n)
    found = refused(k, zeros(4), None)
    assert "the size n of fn does not follow" in found.message
    assert "B" in found.expected


# -- what is no array ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "thing",
    [[1.0, 2.0, 3.0, 4.0], 1.0, "array", np.float32(1), np.zeros(4, np.complex64),
     np.zeros(4, object), np.zeros(4, "U1"), np.zeros(4, ">f4"),
     np.ma.masked_array(np.zeros(4, np.float32), np.arange(4) == 1),
     np.zeros(4, "M8[s]"), np.zeros(4, [("a", "f4")])],
    ids=lambda x: f"{type(x).__name__}-{getattr(x, 'dtype', '')}",
)  # fmt: skip
def test_objects_that_are_no_arrays(thing):
    k = kernel('A: T.Tensor((4,), "float32")', "A[0] = 1")
    assert "is not an array this kernel can use" in refused(k, thing, cls=TileTypeError).message


def test_arrays_with_dlpack():
    class Wrapped:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **kwargs):
            return self.array.__dlpack__(**kwargs)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    class Broken(Wrapped):
        def __dlpack__(self, **kwargs):
            raise BufferError("it is elsewhere")

    k = kernel(COPY, "for i in range(4):\n    B[i] = A[i] + 1")
    a, b = np.arange(4, dtype=np.int32), zeros(4, dtype="int32")
    k(Wrapped(a), Wrapped(b))
    assert b.tolist() == [1, 2, 3, 4]
    assert "it is elsewhere" in refused(k, Broken(a), b, cls=TileTypeError).got


# -- packed types ----------------------------------------------------------------------------------

PACKED = ["int4", "uint4", "int2", "uint2", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"]


def codes(dtype, *shape):
    """Elements with all code words, from zero on, over and over."""
    bits = DType(dtype).row.code_bits or DType(dtype).bits
    words = np.arange(int(np.prod(shape)), dtype=np.uint8) % (1 << bits)
    return dtypes.from_bits(words.reshape(shape), DType(dtype))


@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize("shape", [(3, 8), (3, 5), (16,), (7,), (2, 3, 1), (0, 4), (4, 0)])
def test_packing_by_rows(dtype, shape):
    x = codes(dtype, *shape)
    raw = pack_rows(x, DType(dtype))
    assert raw.dtype == np.uint8
    np.testing.assert_array_equal(
        unpack_rows(raw, shape, DType(dtype)).view(np.uint8), x.view(np.uint8)
    )


def test_the_order_of_packed_elements():
    x = dtypes.from_bits(np.array([[1, 2, 3], [4, 5, 6]], np.uint8), DType("uint4"))
    assert pack_rows(x, DType("uint4")).tolist() == [[0x21, 0x03], [0x54, 0x06]]


@pytest.mark.parametrize("dtype", PACKED)
@pytest.mark.parametrize("shape", [(3, 8), (3, 5), (7,)])
def test_packed_arguments(dtype, shape):
    k = kernel(f'A: T.Tensor({shape}, "{dtype}"), B: T.Tensor({shape}, "{dtype}")', "T.copy(A, B)")
    x = codes(dtype, *shape)
    raw = pack_rows(x, DType(dtype)).reshape(*shape[:-1], -1)
    for storage in (np.uint8, np.int8):
        a, b = raw.view(storage).copy(), np.zeros_like(raw.view(storage))
        k(a, b)
        np.testing.assert_array_equal(b, a)
    k(x, y := np.zeros_like(x))  # one element per slot
    np.testing.assert_array_equal(y.view(np.uint8), x.view(np.uint8))


@pytest.mark.parametrize("dtype", PACKED)
def test_outputs_of_numpy_have_an_element_in_each_slot(dtype):
    k = kernel(
        f'A: T.Tensor((3, 5), "{dtype}"), B: T.Tensor((3, 5), "{dtype}")', "T.copy(A, B)", out_idx=1
    )
    x = codes(dtype, 3, 5)
    for given in (x, pack_rows(x, DType(dtype))):
        got = k(given)
        assert (got.dtype, got.shape) == (x.dtype, x.shape)
        np.testing.assert_array_equal(got.view(np.uint8), x.view(np.uint8))


def test_packed_arrays_that_are_not_row_major():
    k = kernel('A: T.Tensor((3, 6), "int4")', "for i in range(3):\n    A[i, 5] = A[i, 0]")
    base = np.zeros((3, 6), np.int8)
    base[:, 0] = [0x01, 0x12, 0x73]
    k(base[:, ::2])
    assert base[:, 4].tolist() == [0x10, 0x20, 0x30]


def test_the_size_of_a_packed_argument():
    n = T.dynamic("n")
    k = kernel('A: T.Tensor((n,), "int4"), B: T.Tensor((1,), "int32")', "B[0] = n", n=n)
    b = zeros(1, dtype="int32")
    k(np.zeros(5, np.int8), b)
    assert b[0] == 10
    fixed = kernel('A: T.Tensor((5,), "int4")')
    fixed(np.zeros(3, np.int8))
    refused(fixed, np.zeros(2, np.int8))
    refused(fixed, np.zeros(5, np.int8))
    refused(fixed, np.zeros(3, np.int16), cls=TileTypeError)


def test_vector_types():
    k = kernel('A: T.Tensor((3,), "float32x2"), B: T.Tensor((3,), "float32x2")', "T.copy(A, B)")
    a, b = np.arange(6, dtype=np.float32), zeros(6)
    k(a, b)
    assert b.tolist() == a.tolist()
    refused(k, zeros(7), zeros(7))
    refused(k, zeros(8), zeros(8))


# -- frameworks ------------------------------------------------------------------------------------


def test_results_are_in_the_framework_of_the_first_array(torch):
    k = kernel(
        COPY + ', C: T.Tensor((4,), "int32")',
        "for i in range(4):\n    C[i] = A[i] + B[i]",
        out_idx=-1,
    )
    t, n = torch.arange(4, dtype=torch.int32), np.arange(4, dtype=np.int32)
    assert isinstance(k(t, n), torch.Tensor)
    assert isinstance(k(n, t), np.ndarray)
    assert k(t, n).tolist() == k(n, t).tolist() == [0, 2, 4, 6]
    alone = kernel('A: T.Tensor((4,), "int32")', "for i in range(4):\n    A[i] = i", out_idx=0)
    assert isinstance(alone(), torch.Tensor)


TORCH = [
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu",
    "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool",
]  # fmt: skip


@pytest.mark.parametrize("dtype", TORCH)
def test_torch_tensors_of_every_type(torch, dtype):
    if not hasattr(torch, dtype):
        pytest.skip(f"this torch has no {dtype}")
    k = kernel(f'A: T.Tensor((6,), "{dtype}"), B: T.Tensor((6,), "{dtype}")', "T.copy(A, B)")
    out = kernel(
        f'A: T.Tensor((6,), "{dtype}"), B: T.Tensor((6,), "{dtype}")', "T.copy(A, B)", out_idx=1
    )
    size = getattr(torch, dtype).itemsize
    a = (torch.arange(6 * size, dtype=torch.uint8) % 2).view(getattr(torch, dtype))
    b = torch.zeros(6 * size, dtype=torch.uint8).view(getattr(torch, dtype))
    k(a, b)
    assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))
    made = out(a)
    assert made.dtype == a.dtype
    assert torch.equal(made.view(torch.uint8), a.view(torch.uint8))


def test_torch_tensors_are_written_in_place(torch):
    k = kernel('A: T.Tensor((2, 3), "bfloat16")', "A[1, 2] = 7")
    base = torch.zeros(3, 2, dtype=torch.bfloat16)
    k(base.t())
    assert base[2, 1] == 7
    leaf = torch.zeros(2, 3, dtype=torch.bfloat16, requires_grad=True)
    k(leaf)
    assert leaf[1, 2] == 7


def test_torch_packed_float4(torch):
    if not hasattr(torch, "float4_e2m1fn_x2"):
        pytest.skip("this torch has no float4_e2m1fn_x2")
    k = kernel(
        'A: T.Tensor((3, 8), "float4_e2m1fn"), B: T.Tensor((3, 8), "float32")', "T.copy(A, B)"
    )
    x = codes("float4_e2m1fn", 3, 8)
    raw = torch.from_numpy(pack_rows(x, DType("float4_e2m1fn")))
    b = zeros(3, 8)
    k(raw.view(torch.float4_e2m1fn_x2), b)
    np.testing.assert_array_equal(b, x.astype(np.float32))
    k(raw, b * 0)


# type, its storage in torch, elements in each byte
STORED = [
    ("float4_e2m1fn", "float4_e2m1fn_x2", 2), ("float4_e2m1fnx2", "float4_e2m1fn_x2", 1),
    ("int4", "int8", 2), ("uint4", "uint8", 2), ("uint2", "uint8", 4),
]  # fmt: skip


@pytest.mark.parametrize(("dtype", "stored", "per"), STORED)
def test_outputs_of_torch_are_packed_in_its_storage_type(torch, dtype, stored, per):
    if not hasattr(torch, stored):
        pytest.skip(f"this torch has no {stored}")
    k = kernel(
        f'A: T.Tensor((3, 16), "{dtype}"), B: T.Tensor((3, 16), "{dtype}")',
        "T.copy(A, B)",
        out_idx=1,
    )
    raw = torch.arange(48 // per, dtype=torch.uint8).reshape(3, 16 // per) * 5
    for given in (raw, raw.view(getattr(torch, stored))):
        got = k(given)
        assert (got.dtype, tuple(got.shape)) == (getattr(torch, stored), (3, 16 // per))
        assert torch.equal(got.view(torch.uint8), raw)


def test_outputs_of_an_older_torch_are_packed_in_bytes(torch, monkeypatch):
    monkeypatch.delattr(torch, "float4_e2m1fn_x2", raising=False)
    k = kernel(
        'A: T.Tensor((3, 8), "float4_e2m1fn"), B: T.Tensor((3, 8), "float4_e2m1fn")',
        "T.copy(A, B)",
        out_idx=1,
    )
    raw = torch.arange(12, dtype=torch.int8).reshape(3, 4)
    got = k(raw)
    assert got.dtype == torch.int8
    assert torch.equal(got, raw)


def test_what_a_torch_output_does_not_write_is_noticed(torch):
    k = kernel(
        'A: T.Tensor((4,), "int32"), B: T.Tensor((4,), "float4_e2m1fn")',
        "B[0] = 1",
        out_idx=1,
        target="emulate",
    )
    got = k(torch.zeros(4, dtype=torch.int32)).view(torch.uint8)
    assert got.tolist() == [0xA2, 0xA5]  # 1.0 is 2 in the low nibble


def test_empty_of_packed_elements(torch):
    """Made in the function, with a size that the call gives."""

    @tilelang.jit(target="emulate")
    def halves(A):  # pyright: ignore[reportRedeclaration]
        n = T.const("n")
        A: T.Tensor((3, n), "float32")
        B = T.empty((3, n), "float4_e2m1fn")
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(3, n):
                B[i, j] = A[i, j]
        return B

    x = torch.tensor([[0, 0.5, 1, -1], [6, 9, -6, 2], [3, 4, 1.5, 0]])
    got = halves(x)
    assert got.dtype == getattr(torch, "float4_e2m1fn_x2", torch.int8)
    assert got.view(torch.uint8).tolist() == [[0x10, 0xA2], [0x77, 0x4F], [0x65, 0x03]]
    own = halves(x.numpy())
    assert own.dtype == ml_dtypes.float4_e2m1fn
    assert own.astype("float32").tolist() == [[0, 0.5, 1, -1], [6, 6, -6, 2], [3, 4, 1.5, 0]]


def test_pairs_of_fp4_as_elements(torch):
    k = kernel(
        'A: T.Tensor((3, 4), "float4_e2m1fnx2"), B: T.Tensor((3, 4), "float4_e2m1fnx2")',
        "T.copy(A, B)",
    )
    x = codes("float4_e2m1fn", 3, 4, 2)
    raw = pack_rows(x, DType("float4_e2m1fnx2"))
    for given in (x, x.reshape(3, 8), raw, torch.from_numpy(raw)):
        out = given * 0 if hasattr(given, "numpy") else np.zeros_like(given)
        k(given, out)
        assert np.asarray(out).tobytes() == np.asarray(given).tobytes()
    refused(k, raw[:, :3].copy(), raw)


def test_torch_tensors_that_cannot_be_used(torch):
    k = kernel('A: T.Tensor((4,), "float32")', "A[0] = 1")
    meta = torch.zeros(4, device="meta")
    assert "on meta" in refused(k, meta, cls=TileTypeError).got
    sparse = torch.zeros(4).to_sparse()
    assert "layout" in refused(k, sparse, cls=TileTypeError).got
    refused(k, torch.zeros(4, dtype=torch.complex64), cls=TileTypeError)
    refused(k, torch.zeros(4, dtype=torch.float64), cls=TileTypeError)
    refused(k, torch.complex(torch.ones(4), torch.ones(4)).conj().imag, cls=TileTypeError)


def test_torch_scalars(torch):
    k = kernel('A: T.Tensor((4,), "float32"), n: T.int32, x: T.float32', "A[0] = n\nA[1] = x")
    a = zeros(4)
    k(a, torch.tensor(3), torch.tensor(0.5))
    assert a[:2].tolist() == [3, 0.5]
    refused(k, a, torch.tensor([3]), 0.5, cls=TileTypeError)


# -- outputs ---------------------------------------------------------------------------------------


def test_what_is_not_written_of_an_output_is_noticed():
    k = kernel(
        'A: T.Tensor((3,), "float32"), B: T.Tensor((3,), "int16"), C: T.Tensor((3,), "bfloat16"), '
        'D: T.Tensor((3,), "int32")',
        "A[0] = 1\nB[0] = 1\nC[0] = 1",
        out_idx=[0, 1, 2],
        target="emulate",  # machine code leaves what memory happens to hold
    )
    a, b, c = k(zeros(3, dtype="int32"))
    assert np.isnan(a[1:]).all()
    assert (b[1:].view(np.uint8) == 0xA5).all()
    assert np.isnan(c[1:].astype(np.float32)).all()
    assert (a[0], b[0], float(c[0])) == (1, 1, 1)


def test_an_output_whose_size_follows_from_the_inputs():
    n = T.dynamic("n")
    k = kernel(
        'A: T.Tensor((n,), "float32"), B: T.Tensor((n * 2 + 1, 3), "int8")',
        "for i in range(n * 2 + 1):\n    for j in range(3):\n        B[i, j] = i",
        out_idx=1,
        n=n,
    )
    assert k(zeros(4)).tolist() == [[i] * 3 for i in range(9)]
    assert k(zeros(0)).shape == (1, 3)


def test_an_output_whose_size_nothing_gives():
    n = T.dynamic("n")
    k = kernel(
        'A: T.Tensor((4,), "float32"), B: T.Tensor((n,), "float32")', "A[0] = 1", out_idx=1, n=n
    )
    with pytest.raises(TileValueError, match="size n of fn does not follow"):
        k(zeros(4))


def test_an_output_of_a_size_below_zero():
    n = T.dynamic("n")
    k = kernel(
        'A: T.Tensor((n,), "float32"), B: T.Tensor((n - 3,), "float32")', "A[0] = 1", out_idx=1, n=n
    )
    assert k(zeros(5)).shape == (2,)
    with pytest.raises(TileValueError, match="output's shape is not known"):
        k(zeros(2))


def test_an_output_that_the_kernel_reads_and_never_writes_is_refused_where_it_is_read():
    params = 'A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float32"), C: T.Tensor((4,), "int8")'
    with pytest.raises(TileValueError, match="make B, which fn reads and never writes") as caught:
        kernel(params, "A[0] = 1\nA[1] = B[2]", out_idx=[1])
    found = caught.value.diagnostics[0]
    assert found.expected == "a parameter that the kernel writes: A" and found.loc is not None
    kernel(params, "A[0] = B[2]\nB[1] = A[1]", out_idx=[1])  # it may write B first
    kernel(params, "A[0] = B[2]", out_idx=[2])  # nothing looks at C


def test_ml_dtypes_arrays():
    k = kernel(
        'A: T.Tensor((2,), "bfloat16"), B: T.Tensor((2,), "float32")', "T.copy(A, B)", out_idx=1
    )
    assert k(np.array([1.5, -2], ml_dtypes.bfloat16)).tolist() == [1.5, -2]


def test_nothing_runs_when_an_argument_is_refused():
    k = kernel('A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float32")', "A[0] = 1")
    a = zeros(4)
    refused(k, a, zeros(5))
    assert a[0] == 0
