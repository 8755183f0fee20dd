"""What runs on a GPU, and on the simulator of one, is what the rows, the rules of conversion and
NumPy say.
"""

import math

import numpy as np
import pytest

import cuda_casts
import cuda_programs
import cuda_rows
import cuda_wgmma
from tilelang.dtypes import DType
from tilelang.errors import TileRuntimeError
from tilelang.ir.read import read_program
from tilelang.isa.target import Target


@pytest.fixture(scope="module", params=[pytest.param("device", marks=pytest.mark.gpu), "simulated"])
def gpu(request):
    if request.param == "device":
        import cuda_build

        return cuda_build
    import simulator_build

    return simulator_build


@pytest.fixture(scope="module")
def device():
    import cuda_build

    return cuda_build


@pytest.fixture(scope="module")
def target(gpu) -> Target:
    return gpu.chip(gpu.device_arch())


def needs(target: Target, row) -> None:
    if row.capability is not None and not target.supports(row.capability):
        pytest.skip(f"{target} has not {row.capability.name}")


# Expressions -------------------------------------------------------------------------------------


def check(gpu, table) -> None:
    gpu.run(gpu.built(table.program()), table.args)
    found = table.faults(table.args)
    assert not found, f"{len(found)} of {len(table.kernels)}\n" + "\n".join(found[:40])


@pytest.mark.parametrize("src", cuda_casts.TYPES)
@pytest.mark.gpu
def test_conversions_are_those_of_the_project(device, src):
    check(device, cuda_casts.casts(src))


@pytest.mark.parametrize("name", cuda_casts.COMPUTED)
@pytest.mark.gpu
def test_operators(device, name):
    check(device, cuda_casts.operators(name))


@pytest.mark.parametrize("name", [n for n in cuda_casts.COMPUTED if n != "bool"])
@pytest.mark.gpu
def test_functions(device, name):
    check(device, cuda_casts.functions(name))


# Rows --------------------------------------------------------------------------------------------

FAMILIES = sorted({row.name.split(".")[0] for row in cuda_rows.with_meaning()})


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_do_what_they_mean(gpu, target, family):
    rows = [r for r in cuda_rows.with_meaning() if r.name.split(".")[0] == family]
    rows = [r for r in rows if r.capability is None or target.supports(r.capability)]
    found = list(cuda_rows.cases(rows))
    arrays = {name: x.copy() for c in found for name, x in c.arrays.items()}
    gpu.run(gpu.built(cuda_rows.program(found)), arrays)
    wrong = [
        f"{c.label}: {name}"
        for c in found
        for name, want in c.expected().items()
        if not np.array_equal(arrays[name], want)
    ]
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:40])


@pytest.mark.parametrize("part", range(6))
def test_products_of_a_warpgroup(gpu, target, part):
    needs(target, cuda_rows.ROWS["wgmma.fence"])
    found = list(cuda_wgmma.cases(gpu.WGMMA_WIDTHS))[part::6]
    arrays = {name: x.copy() for c in found for name, x in c.arrays.items()}
    gpu.run(gpu.built(cuda_wgmma.program(found)), arrays)
    wrong = [c.name for c in found if not np.array_equal(arrays[c.d], c.expected)]
    assert not wrong, f"{len(wrong)} of {len(found)}: {wrong[:20]}"


# Programs ----------------------------------------------------------------------------------------


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    rng = np.random.default_rng(math.prod(shape))
    return rng.integers(-8, 9, shape).astype(DType(dtype).numpy)


@pytest.mark.parametrize("rank", range(1, 6))
def test_tensor_copies(gpu, target, rank):
    needs(target, cuda_rows.ROWS["cp.async.bulk.tensor.1d.load"])
    dims, box, at = (x[:rank] for x in (cuda_programs.DIMS, cuda_programs.BOX, cuda_programs.AT))
    a, b = numbers(*reversed(dims)), numbers(*reversed(dims)) * 100
    s = np.zeros(math.prod(box), np.float32)
    want_b, want_s = b.copy(), np.zeros(tuple(reversed(box)), np.float32)
    inside = tuple(slice(c, min(c + n, d)) for c, n, d in zip(at, box, dims, strict=True))[::-1]
    part = a[inside]
    want_s[tuple(slice(0, n) for n in part.shape)] = part
    want_b[inside] = 2 * part
    gpu.run(gpu.built(cuda_programs.tma(rank)), {"A": a, "B": b, "S": s})
    np.testing.assert_array_equal(s.reshape(want_s.shape), want_s)
    np.testing.assert_array_equal(b, want_b)


def test_bulk_copies(gpu, target):
    needs(target, cuda_rows.ROWS["cp.async.bulk.load"])
    a, c = numbers(1024), numbers(1024) + 1
    b, want = np.zeros_like(a), a + c
    gpu.run(gpu.built(cuda_programs.bulk()), {"A": a, "B": b, "C": c})
    np.testing.assert_array_equal(b, a)
    np.testing.assert_array_equal(c, want)


def test_a_cluster_shares_a_copy_and_its_memory(gpu, target):
    needs(target, cuda_rows.ROWS["cluster.ctarank"])
    a, b = numbers(4, 32), np.zeros((4, 32), np.float32)
    gpu.run(gpu.built(cuda_programs.multicast()), {"A": a, "B": b})
    want = a[[0, 0, 2, 2]] + np.array([3, 2, 3, 2], np.float32)[:, None]
    np.testing.assert_array_equal(b, want)


def test_a_barrier_of_the_grid(gpu):
    a = numbers(40, dtype="int32")
    want = a.copy()
    for _ in range(3):
        want = want + np.roll(want, -1)
    gpu.run(gpu.built(cuda_programs.grid_sync(40)), {"A": a, "counter": np.zeros(1, np.uint32)})
    np.testing.assert_array_equal(a, want)


@pytest.mark.parametrize("low", [-3, 0, 1])
def test_votes_of_a_block(gpu, target, low):
    needs(target, cuda_rows.ROWS["elect.sync"])
    a = np.arange(96, dtype=np.int32) % 5 + low
    b = np.zeros((96, 4), np.int32)
    gpu.run(gpu.built(cuda_programs.block_votes()), {"A": a, "B": b})
    holds = a > 0
    want = [holds.sum(), holds.all(), holds.any()]
    np.testing.assert_array_equal(b[:, :3], np.tile(np.array(want, np.int32), (96, 1)))
    np.testing.assert_array_equal(b[:, 3].reshape(3, 32).sum(axis=1), [1, 1, 1])


@pytest.mark.parametrize(
    "name", ["int8", "uint16", "int32", "uint64", "float16", "bfloat16", "float32", "float64"]
)
def test_updates_by_many_threads(gpu, name):
    rng = np.random.default_rng(3)
    a = rng.integers(0, 2, 8192)
    if name in ("int8", "bfloat16", "float16"):
        a[100:] = 0  # sums that the type has exactly
    x, b = a.astype(DType(name).numpy), np.zeros(3, DType(name).numpy)
    gpu.run(gpu.built(cuda_programs.contended(name)), {"A": x, "B": b})
    np.testing.assert_array_equal(b.astype(np.int64), [a.sum(), a.max(), 0])


def test_an_assertion_names_its_place(gpu):
    program = gpu.built(cuda_programs.asserting())
    good = np.arange(200, dtype=np.float32)
    gpu.run(program, {"A": good, "n": 200})
    np.testing.assert_array_equal(good, np.arange(200) * 2)
    bad = np.arange(200, dtype=np.float32)
    bad[77] = -1
    with pytest.raises(
        TileRuntimeError, match=r"not negative(.|\n)*block \(1, 0, 0\), thread \(13, 0, 0\)"
    ):
        gpu.run(program, {"A": bad, "n": 200})
    gpu.run(program, {"A": good, "n": 200})  # the device is still there
    np.testing.assert_array_equal(good, np.arange(200) * 4)


@pytest.mark.parametrize("name", ["wgmma_gemm", "mma_gemm"])
@pytest.mark.parametrize(
    "m, n, k", [(0, 128, 64), (128, 128, 64), (256, 384, 320), (1024, 512, 2048)]
)
def test_hand_written_products(gpu, target, golden_program, name, m, n, k):
    if name == "wgmma_gemm":
        needs(target, cuda_rows.ROWS["wgmma.fence"])
    if m * n * k > gpu.LARGEST:
        pytest.skip("too large for the simulator")
    rng = np.random.default_rng(m + n + k)
    a = (rng.integers(-4, 5, (m, k)) / 4).astype(np.float16)
    b = (rng.integers(-4, 5, (n, k)) / 4).astype(np.float16)
    c = np.full((m, n), np.nan, np.float16)
    gpu.run(gpu.built(golden_program(name)), {"A": a, "B": b, "C": c, "M": m, "N": n, "K": k})
    want = a.astype(np.float32) @ b.astype(np.float32).T
    np.testing.assert_array_equal(c, want.astype(np.float16))


@pytest.fixture
def golden_program(request):
    def read(name: str):
        path = request.config.rootpath / "tests" / "golden" / "thread" / f"{name}.txt"
        return read_program(path.read_text())

    return read
