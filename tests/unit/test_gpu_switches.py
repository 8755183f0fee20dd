"""What is left out of the lowering for a GPU: by settings, by flags, and without other results."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from gpu_build import check_gpu, gpu_program, simulate
from tilelang.errors import TileError
from tilelang.ir.thread import Instr, kernels_of
from tilelang.options import options_from
from tilelang.passes.simt.switches import SWITCHES, left_out
from tilelang.targets.cuda.nvrtc import is_installed

RANDOM = np.random.default_rng(3)


def rows_of(program) -> set[str]:
    return {n.row for n in program.walk() if isinstance(n, Instr)}


@T.prim_func
def product(
    A: T.Tensor((96, 160), "float16"),
    B: T.Tensor((72, 160), "float16"),
    C: T.Tensor((96, 72), "float32"),
):
    with T.Kernel(2, 2, threads=128) as (bx, by):
        a = T.alloc_shared((64, 32), "float16")
        b = T.alloc_shared((64, 32), "float16")
        c = T.alloc_fragment((64, 64), "float32")
        T.clear(c)
        for k in T.Pipelined(5, num_stages=3):
            T.copy(A[by * 64, k * 32], a)
            T.copy(B[bx * 64, k * 32], b)
            T.gemm(a, b, c, transpose_B=True)
        T.copy(c, C[by * 64, bx * 64])


ROWS = {
    "warp-specialize": "mbarrier.try_wait.parity",
    "tma": "cp.async.bulk.tensor.2d.load",
    "wgmma": "wgmma.fence",
}


@pytest.mark.parametrize("name", [n for n in SWITCHES if n not in ("guards", "barriers")])
def test_what_is_left_out_changes_no_result(name):
    a = RANDOM.integers(-3, 4, (96, 160)).astype(np.float16)
    b = RANDOM.integers(-3, 4, (72, 160)).astype(np.float16)
    program = check_gpu(product, without=(name,), A=a, B=b, C=np.zeros((96, 72), np.float32))
    assert ROWS.get(name, "none") not in rows_of(program)
    assert dict(program.attrs)["without"] == (name,)


def test_without_reuse_every_array_has_bytes_of_its_own():
    apart = gpu_program(product.ir, without=("memory-reuse",))
    (one,), (other,) = kernels_of(apart), kernels_of(gpu_program(product.ir))
    assert one.shared > other.shared


def test_without_guards_and_barriers_there_are_none_but_the_authors():
    @T.prim_func
    def kernel(A: T.Tensor((100,), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((128,), "float32")
            T.copy(A[0:128], s)
            for i in T.Parallel(128):
                B[i] = s[127 - i]

    plain = rows_of(gpu_program(kernel.ir))
    bare = gpu_program(kernel.ir, without=("guards", "barriers"))
    assert "barrier.sync" in plain
    assert "barrier.sync" not in rows_of(bare)
    assert not any(type(n).__name__ == "Select" for n in bare.walk())


def test_without_barriers_a_reduction_still_exchanges_in_order():
    @T.prim_func
    def kernel(A: T.Tensor((2, 512), "int32"), B: T.Tensor((2, 512), "int32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_fragment((2, 512), "int32")
            b = T.alloc_fragment((2,), "int32")
            T.copy(A, a)
            T.reduce_sum(a, b, dim=1)
            for i, j in T.Parallel(2, 512):
                B[i, j] = a[i, j] - b[i]

    program = gpu_program(kernel.ir, without=("barriers",))
    got = {"A": np.arange(1024, dtype=np.int32).reshape(2, 512), "B": np.zeros((2, 512), np.int32)}
    simulate(program, got)
    np.testing.assert_array_equal(got["B"], got["A"] - got["A"].sum(1, keepdims=True))


@pytest.mark.parametrize(
    ("configs", "names"),
    [
        ({}, ()),
        ({"tl.disable_tma_lower": True}, ("tma", "tma-store")),
        ({"tl.disable_warp_specialized": True}, ("warp-specialize",)),
        ({"tl.disable_wgmma": True, "tl.enable_async_copy": False}, ("cp-async", "wgmma")),
        ({"tl.disable_shared_memory_reuse": True}, ("memory-reuse",)),
        (
            {"tl.disable_safe_memory_legalize": True, "tl.disable_thread_storage_sync": True},
            ("barriers", "guards"),
        ),
    ],
)
def test_keys_of_upstream_leave_parts_out(configs, names):
    assert left_out(options_from(configs)) == names


def test_a_variable_names_what_is_left_out():
    env = {"TILEWRIGHT_WITHOUT": "tma-store, wgmma"}
    assert left_out(options_from({}, env)) == ("tma-store", "wgmma")
    with pytest.raises(TileError, match="tma-stroe"):
        left_out(options_from({}, {"TILEWRIGHT_WITHOUT": "tma-stroe"}))


@pytest.mark.skipif(not is_installed(), reason="NVRTC is not installed")
@pytest.mark.parametrize("flag", ["--no-such-flag", "--ptxas-options=--nonsense"])
def test_a_flag_that_the_compiler_does_not_know_is_refused_at_the_kernel(flag):
    with pytest.raises(TileError, match="refuses a flag") as found:
        tilelang.compile(product, target="cuda -arch=sm_90a", compile_flags=[flag])
    (told,) = found.value.diagnostics
    assert told.kind == "option"
    assert told.loc is not None
    assert flag in told.got


@pytest.mark.parametrize("how", [lambda: T.print(1), lambda: T.device_assert(True)])
def test_where_functions_are_called_warps_multiply_and_not_warpgroups(how):
    """The assembler would make every product of a warpgroup wait."""

    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            if tx < 1000:
                how()
            T.copy(A, a)
            T.gemm(a, a, c, transpose_B=True, clear_accum=True)
            T.copy(c, C)

    a = RANDOM.integers(-3, 4, (64, 64)).astype(np.float16)
    rows = rows_of(check_gpu(kernel, A=a, C=np.zeros((64, 64), np.float32)))
    assert not any(r.startswith("wgmma") for r in rows)


@pytest.mark.parametrize("hint", [{"disable_tma": True}, {"prefer_instruction": "cp_async"}])
def test_a_copy_that_asks_for_no_tensor_copy_gets_none(hint):
    @T.prim_func
    def kernel(A: T.Tensor((3, 64, 64), "float16"), C: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            out = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(3, num_stages=2):
                T.copy(A[k, 0:64, 0:64], a, **hint)
                T.gemm(a, a, c, transpose_B=True)
            T.copy(c, out)
            T.copy(out, C, disable_tma=True)

    a = RANDOM.integers(-2, 3, (3, 64, 64)).astype(np.float16)
    rows = rows_of(check_gpu(kernel, A=a, C=np.zeros((64, 64), np.float16)))
    assert not any("bulk" in r for r in rows)
    assert any(r.startswith("cp.async.c") for r in rows)
