"""Explicit instructions on chips that have them, and on chips that do not."""

import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileError
from tilelang.targets import CHIPS


def wgmma():
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.clear(c)
            T.wgmma_gemm(a, a, c)
            T.wait_wgmma(0)
            T.copy(c, C)

    return kernel


def cp_async():
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            T.async_copy(A, a)
            T.ptx_wait_group(0)
            T.copy(a, C)

    return kernel


def clusters():
    @T.prim_func
    def kernel(A: T.Tensor((2,), "int32")):
        with T.Kernel(2, threads=32, cluster_dims=2) as b:
            T.cluster_sync()
            A[b] = 1

    return kernel


def launch_control():
    @T.prim_func
    def kernel(A: T.Tensor((2,), "int32")):
        with T.Kernel(2, threads=32) as b:
            answer, bar = T.alloc_shared((4,), "uint32"), T.alloc_barrier(1)
            T.clc_try_cancel(answer, bar)
            A[b] = T.clc_is_canceled(answer)

    return kernel


RUNS = {
    wgmma: {"sm_90a"},
    cp_async: {chip.name for chip in CHIPS if chip.backend == "cuda"},
    clusters: {"sm_90a", "sm_100a", "sm_103a", "sm_120a", "sm_121a"},
    launch_control: {"sm_100a", "sm_103a", "sm_120a", "sm_121a"},
}
NAMES = sorted(RUNS[cp_async])


@pytest.mark.parametrize("chip", NAMES)
@pytest.mark.parametrize("make", RUNS, ids=lambda make: make.__name__)
def test_a_chip_runs_what_it_has_and_refuses_the_rest_by_name(make, chip):
    if chip in RUNS[make]:
        tilelang.compile(make(), target=f"emulate:{chip}")
        return
    with pytest.raises(TileError) as refused:
        tilelang.compile(make(), target=f"emulate:{chip}")
    text = str(refused.value)
    assert chip in text and "error[target]" in text and "kernel" in text
    assert all(able in text for able in RUNS[make])


@pytest.mark.parametrize("target", ["emulate", "cpu"])
@pytest.mark.parametrize("make", RUNS, ids=lambda make: make.__name__)
def test_no_chip_in_particular_has_every_instruction(make, target):
    """What one thread of the CPU cannot follow is found by the lowering: see docs/cpu.md."""
    assert not [d for d in tilelang.check(make(), target=target) if d.kind == "target"]
