"""`tools/ascend_verify` runs AscendC on the host: numbers as the simulator has them, and a fault
for a text that breaks a rule of the API.
"""

import shutil

import numpy as np
import pytest
from ascend_verify import launches

import adapter_functions
import tilelang
import tilelang.language as T
from adapter_programs import AUTO

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++"),
]


def scaled(M, N, width):
    """Rows of N elements less their largest, in tiles that are padded to `width`."""

    @T.prim_func
    def kernel(A: T.Tensor((M, N), "float32"), B: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, 16), is_npu=True) as (cid, vid):
            row = cid * 16 + vid * 8
            x = T.alloc_ub((8, width), "float32")
            most = T.alloc_ub((8,), "float32")
            T.copy(A[row, 0], x, pad_value=-T.infinity("float32"))
            T.reduce_max(x, most, dim=-1)
            for i, j in T.Parallel(8, width):
                x[i, j] = x[i, j] - most[i]
            T.tile.mul(x, x, 0.5)
            T.copy(x, B[row, 0])

    return kernel


@pytest.fixture(scope="module")
def launched(tmp_path_factory):
    """A launch, and the program and bytes that it was run as."""
    folder = tmp_path_factory.mktemp("ascendc")
    kept = []
    run = launches.run

    def kept_run(where, text, tensors):
        kept.append((text, [t.copy() for t in tensors]))
        return run(where, text, tensors)

    launches.run = kept_run
    kernel = tilelang.compile(
        scaled(40, 127, 128), target="simulate:ascend910b", out_idx=[-1], pass_configs=AUTO
    )
    a = np.random.default_rng(0).standard_normal((40, 127)).astype(np.float32)
    with launches.checked(folder) as found:
        made = kernel(a)
    launches.run = run
    assert np.array_equal(made, (a - a.max(1, keepdims=True)) * np.float32(0.5))
    return folder, found, kept, made.reshape(-1)


def test_the_source_gives_the_simulators_numbers(launched):
    _, (launch,), _, _ = launched
    assert (launch.fault, launch.apart, launch.fine) == ("", 0.0, True)
    # Five groups of eight rows, each in two blocks of columns.
    assert launch.calls["WholeReduceMax"] == 12
    assert launch.calls["DataCopyPad"] == 12


@pytest.mark.parametrize(
    ("line", "new", "said"),
    [
        ("    WaitFlag<HardEvent::V_MTE3>(0);\n", "", "DataCopyPad on MTE3 reads UB"),
        ("  PipeBarrier<PIPE_ALL>();\n}", "}", "ends without PipeBarrier<PIPE_ALL>"),
        ("Muls(x, x, 0.5f,", "Muls(x, x, 0.5,", "does not compile"),
        ("Muls(x, x, 0.5f,", "Muls(x[1], x, 0.5f,", "is not aligned to 32 bytes"),
    ],
)
def test_a_text_that_breaks_a_rule_is_found(launched, line, new, said):
    folder, _, ((text, tensors),), _ = launched
    assert line in text
    _, _, fault = launches.run(folder, text.replace(line, new, 1), tensors)
    assert said in fault


def test_a_wrong_unit_gives_other_numbers(launched):
    folder, _, ((text, tensors),), right = launched
    changed = text.replace("(128 - 127) * 4 / 32", "(128 - 127) * 4")
    assert changed != text
    wrong, _, fault = launches.run(folder, changed, tensors)
    assert fault or not np.array_equal(right, wrong[1].view(np.float32))


def test_numbers_that_differ_are_said():
    a = np.array([1.0, 2.0, np.inf], np.float32)
    assert launches.apart(a, a.copy()) == 0.0
    assert launches.apart(np.array([1.0, 2.5], np.float32), a[:2]) == 0.25
    assert launches.apart(np.array([1.0, 2.0, 3.0], np.float32), a) == float("inf")


N = 200


def every_function(dtype):  # noqa: PLR0915 - one row for each function
    """A row of the outputs for each function of the vector units."""
    tile, size = (N,), np.dtype(dtype).itemsize

    @T.prim_func
    def kernel(  # noqa: PLR0915
        A: T.Tensor(tile, dtype),
        B: T.Tensor(tile, dtype),
        F: T.Tensor((24, N), dtype),
        I: T.Tensor((10, N), "int32"),
        H: T.Tensor((2, N), "int16"),
    ):
        with T.Kernel(1, is_npu=True) as (_, vid):
            a, b, c = (T.alloc_ub(tile, dtype) for _ in range(3))
            mask = T.alloc_ub((N // 8,), "uint8")
            i, j, k = (T.alloc_ub(tile, "int32") for _ in range(3))
            offset = T.alloc_ub(tile, "uint32")
            h, g = (T.alloc_ub(tile, "int16") for _ in range(2))
            if vid == 0:
                T.copy(A, a)
                T.copy(B, b)
                both = (T.tile.add, T.tile.sub, T.tile.mul, T.tile.max, T.tile.min, T.tile.div)
                for n, op in enumerate(both):
                    op(c, a, b)
                    T.copy(c, F[n, :])
                    op(c, a, 0.75)
                    T.copy(c, F[6 + n, :])
                one = (T.tile.abs, T.tile.relu, T.tile.exp, T.tile.sigmoid, T.tile.silu)
                for n, op in enumerate(one):
                    op(c, a)
                    T.copy(c, F[12 + n, :])
                T.tile.compare(mask, a, b, "GT")
                T.tile.select(c, mask, a, b, "VSEL_TENSOR_TENSOR_MODE")
                T.copy(c, F[17, :])
                T.tile.compare(mask, a, 0.25, "LE")
                T.tile.select(c, mask, a, 0.5, "VSEL_TENSOR_SCALAR_MODE")
                T.copy(c, F[18, :])
                T.tile.leaky_relu(c, a, 0.1)
                T.copy(c, F[19, :])
                T.copy(b, c)
                T.tile.axpy(c, a, 2.0)
                T.copy(c, F[20, :])
                T.copy(b, c)
                T.tile.mul_add_dst(c, a, b)
                T.copy(c, F[21, :])
                T.tile.clamp(c, a, -0.5, 0.5, N)
                T.copy(c, F[22, :])
                T.tile.createvecindex(i, 3)
                T.copy(i, I[0, :])
                T.tile.fill(j, 5)
                bits = (T.tile.bitwise_xor, T.tile.bitwise_and, T.tile.bitwise_or, T.tile.mul)
                for n, op in enumerate(bits):
                    op(k, i, j)
                    T.copy(k, I[1 + n, :])
                T.tile.bitwise_not(k, i)
                T.copy(k, I[5, :])
                T.tile.bitwise_lshift(k, i, 2)
                T.copy(k, I[6, :])
                T.tile.bitwise_rshift(k, i, 1)
                T.copy(k, I[7, :])
                T.tile.arith_progression(k, 10, -3, N)
                T.copy(k, I[8, :])
                T.tile.cast(h, i, "CAST_NONE", N)
                T.copy(h, H[0, :])
                T.tile.add(g, h, h)
                T.copy(g, H[1, :])
                T.tile.createvecindex(i, 0)
                T.tile.mul(i, i, -size)
                T.tile.add(i, i, (N - 1) * size)
                T.reinterpretcast(offset, i, "uint32_t")
                T.tile.gather(c, b, offset, 0)
                T.copy(c, F[23, :])

    return kernel


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_functions_of_the_vector_units_give_the_simulators_numbers(dtype, tmp_path):
    kernel = tilelang.compile(
        every_function(dtype), target="simulate:ascend910b", pass_configs=AUTO
    )
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(N).astype(dtype) for _ in range(2))
    outputs = np.zeros((24, N), dtype), np.zeros((10, N), np.int32), np.zeros((2, N), np.int16)
    with launches.checked(tmp_path) as found:
        kernel(a, b, *outputs)
    (launch,) = found
    assert launch.fault == ""
    assert launch.fine, launch.apart
    floats, whole, _ = outputs
    assert np.array_equal(floats[17], np.maximum(a, b))
    assert np.array_equal(floats[23], b[::-1])
    assert np.array_equal(whole[1], (np.arange(N) + 3) ^ 5)


# One of each family; `make ascend-verify` runs them all.
FAMILIES = ("numbers_float32", "sorts_float32", "places_float16", "turned_int8_32x64", "one_by_one")


@pytest.mark.parametrize("name", FAMILIES)
def test_functions_that_are_made_of_several_give_the_simulators_numbers(name, tmp_path):
    (program,) = (p for p in adapter_functions.programs() if p.name == name)
    kernel = tilelang.compile(program.kernel, target="simulate:ascend910b", **program.settings)
    with launches.checked(tmp_path) as found:
        kernel(*program.arguments())
    (launch,) = found
    assert launch.fault == ""
    assert launch.fine, launch.apart
