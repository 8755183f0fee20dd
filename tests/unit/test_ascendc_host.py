"""`tools/ascend_verify` runs AscendC on the host: numbers as the simulator has them, and a fault
for a text that breaks a rule of the API.
"""

import shutil

import numpy as np
import pytest
from ascend_verify import launches

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
