"""Products into Tensor Memory that are written instruction by instruction: numbers against NumPy on
the emulator, the simulated chip under several schedules, and machine code without a GPU.
"""

import numpy as np
import pytest
from tilelang.cuda.language.intrinsics import (  # pyright: ignore[reportMissingImports]
    TCGEN05TensorCoreIntrinEmitter,
)
from tilelang.utils.language import to_buffer_region  # pyright: ignore[reportMissingImports]

import tilelang
import tilelang.language as T
from blackwell_build import check_blackwell
from gpu_build import gpu_program
from tilelang.dtypes import DType
from tilelang.errors import TileError
from tilelang.ir.thread import Instr
from tilelang.isa.target import parse_target
from tilelang.layout import make_full_bank_swizzled_layout
from tilelang.targets import CHIPS
from tilelang.targets.cuda.nvrtc import compile_source, is_installed
from tilelang.targets.cuda.program import emit

RANDOM = np.random.default_rng(41)


def emitter(m, n, k, dtype="bfloat16", total="float32", turned=(False, True), two=False):
    made = TCGEN05TensorCoreIntrinEmitter(
        dtype,
        dtype,
        total,
        *turned,
        block_row_warps=1,
        block_col_warps=1,
        warp_row_tiles=m,
        warp_col_tiles=n,
        chunk=k,
    )
    made.get_tcgen5_mma_meta(m, n, k, not two)
    return made


def by_hand(m, n, k, dtype="bfloat16", total="float32", turned=(False, True), left="shared"):
    """D += A @ B, each instruction written out; K is walked in two halves of the tiles."""
    e = emitter(m, n, k // 2, dtype, total, turned)
    word = e.compute_tcgen05_instr_desc()
    a_shape = (k, m) if turned[0] else (m, k)
    b_shape = (n, k) if turned[1] else (k, n)

    @T.prim_func
    def kernel(
        A: T.Tensor(a_shape, dtype), B: T.Tensor(b_shape, dtype), D: T.Tensor((m, n), total)
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared(a_shape, dtype), T.alloc_shared(b_shape, dtype)
            c, done = T.alloc_tmem((m, n), total), T.alloc_barrier(1)
            f = T.alloc_fragment((m, n), total)
            if left == "tensor":
                fa, ta = T.alloc_fragment(a_shape, dtype), T.alloc_tmem(a_shape, dtype)
                T.copy(A, fa)
                T.copy(fa, ta)
            T.annotate_layout({c: e.make_mma_store_layout(c)})
            T.copy(A, a)
            T.copy(B, b)
            cp = e.compute_tcgen05_c_tmem_params(to_buffer_region(c))
            for half in [0, 1]:
                low, high = half * k // 2, (half + 1) * k // 2
                part_a = a[low:high, :] if turned[0] else a[:, low:high]
                part_b = b[:, low:high] if turned[1] else b[low:high, :]
                bp = e.compute_tcgen05_b_desc_params(part_b)
                if T.get_thread_binding() // 32 == 0:
                    db = T.alloc_tcgen05_smem_desc()
                    e.init_tcgen05_b_desc(db, part_b, bp)
                    if left == "tensor":
                        ap = e.compute_tcgen05_a_tmem_params(ta[:, low:high])
                    else:
                        ap, da = (
                            e.compute_tcgen05_a_desc_params(part_a),
                            T.alloc_tcgen05_smem_desc(),
                        )
                        e.init_tcgen05_a_desc(da, part_a, ap)
                    for j in T.unroll(e.tcgen05_num_inst_n):
                        for i in T.unroll(e.tcgen05_num_inst_m):
                            for step in T.unroll(0, e.tcgen05_num_k_atoms):
                                clear = T.bool(half == 0)
                                if left == "tensor":
                                    e.tcgen05_ts_atom(db, i, j, step, ap, bp, cp, word, clear)
                                else:
                                    e.tcgen05_ss_atom(da, db, i, j, step, ap, bp, cp, word, clear)
                    if half:
                        e.tcgen05_atom_arrive(done)
            T.mbarrier_wait_parity(done, 0)
            T.copy(c, f)
            T.copy(f, D)

    return kernel


CASES = {
    "bf16": (128, 128, 128),
    "64 rows": (64, 48, 64),
    "more rows than lanes": (256, 32, 32),
    "more columns than an instruction has": (128, 288, 32),
    "fp8": (128, 64, 128, "float8_e4m3fn"),
    "int8": (128, 32, 128, "int8", "int32"),
    "rows along M and N": (128, 64, 64, "float16", "float32", (True, False)),
    "left operand in Tensor Memory": (128, 64, 64, "float16", "float32", (False, True), "tensor"),
}  # fmt: skip


def operands(case):
    m, n, k, *more = case
    dtype = more[0] if more else "bfloat16"
    x, y = (RANDOM.integers(-3, 4, s).astype(DType(dtype).numpy) for s in ((m, k), (k, n)))
    wide = np.int32 if dtype == "int8" else np.float32
    want = x.astype(wide) @ y.astype(wide)
    turned = more[2] if len(more) > 2 else (False, True)
    a = np.ascontiguousarray(x.T) if turned[0] else x
    return a, (np.ascontiguousarray(y.T) if turned[1] else y), want


def rows_of(fn) -> list[str]:
    return [n.row for n in gpu_program(fn.ir, "sm_100a").walk() if isinstance(n, Instr)]


@pytest.mark.parametrize("name", CASES)
def test_products_written_instruction_by_instruction(name):
    fn, (a, b, want) = by_hand(*CASES[name]), operands(CASES[name])
    got = np.zeros_like(want)
    tilelang.compile(fn, target="emulate:sm_100a")(a, b, got)
    np.testing.assert_array_equal(got, want)
    check_blackwell(fn, seeds=2, A=a, B=b, D=np.zeros_like(want))
    assert rows_of(fn).count("tcgen05.commit") == 1


@pytest.mark.skipif(not is_installed(), reason="NVRTC is not installed")
@pytest.mark.parametrize("name", ["fp8", "left operand in Tensor Memory"])
def test_machine_code(name):
    target = parse_target("cuda -arch=sm_100a", CHIPS)
    text = emit(gpu_program(by_hand(*CASES[name]).ir, target=target), target).text
    assert not compile_source(text, "sm_100a").warnings


def test_a_pair_of_blocks():
    m, n, k = 128, 64, 64
    e = emitter(m, n, k, two=True)
    word = e.compute_tcgen05_instr_desc()

    @T.prim_func
    def kernel(
        A: T.Tensor((2 * m, k), "bfloat16"),
        B: T.Tensor((n, k), "bfloat16"),
        D: T.Tensor((2 * m, n), "float32"),
    ):
        with T.ClusterKernel(2, threads=128, cluster_dims=2) as bx:
            a, b = T.alloc_shared((m, k), "bfloat16"), T.alloc_shared((n // 2, k), "bfloat16")
            c, done = T.alloc_tmem((m, n), "float32"), T.alloc_cluster_barrier(1)
            f = T.alloc_fragment((m, n), "float32")
            T.copy(A[bx * m, 0], a)
            T.copy(B[bx * (n // 2), 0], b)
            T.cluster_sync()
            ap, bp = e.compute_tcgen05_a_desc_params(a), e.compute_tcgen05_b_desc_params(b)
            cp = e.compute_tcgen05_c_tmem_params(c)
            if T.get_warp_idx_sync() == 0 and T.block_rank_in_cluster() == 0:
                da, db = T.alloc_tcgen05_smem_desc(), T.alloc_tcgen05_smem_desc()
                e.init_tcgen05_a_desc(da, a, ap)
                e.init_tcgen05_b_desc(db, b, bp)
                for step in T.unroll(e.tcgen05_num_k_atoms):
                    e.tcgen05_ss_atom(da, db, 0, 0, step, ap, bp, cp, word, True)
                e.tcgen05_atom_arrive(done)
            T.mbarrier_wait_parity(done, 0)
            T.copy(c, f)
            T.copy(f, D[bx * m, 0])

    a, b, want = operands((2 * m, n, k))
    got = np.zeros_like(want)
    tilelang.compile(kernel, target="emulate:sm_100a")(a, b, got)
    np.testing.assert_array_equal(got, want)
    check_blackwell(kernel, seeds=3, A=a, B=b, D=np.zeros_like(want))


def test_whole_tiles():
    e = emitter(128, 64, 64)

    @T.prim_func
    def kernel(
        A: T.Tensor((128, 64), "bfloat16"),
        B: T.Tensor((64, 64), "bfloat16"),
        D: T.Tensor((128, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((128, 64), "bfloat16"), T.alloc_shared((64, 64), "bfloat16")
            c, done = T.alloc_tmem((128, 64), "float32"), T.alloc_barrier(1)
            f = T.alloc_fragment((128, 64), "float32")
            T.annotate_layout({a: make_full_bank_swizzled_layout(a)})
            T.copy(A, a)
            T.copy(B, b)
            e.tcgen05mma(a, b, c, done, True)
            T.mbarrier_wait_parity(done, 0)
            T.copy(c, f)
            T.copy(f, D)

    a, b, want = operands((128, 64, 64))
    check_blackwell(kernel, A=a, B=b, D=np.zeros_like(want))
    got = np.zeros_like(want)
    tilelang.compile(kernel, target="simulate:sm_100a")(a, b, got)
    np.testing.assert_array_equal(got, want)


def test_where_a_matrix_lies():
    @T.prim_func
    def kernel(D: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=128):
            for rows, at, want in [
                (128, (127, 5), (127, 5)),
                (64, (17, 5), (33, 5)),
                (256, (130, 5), (2, 37)),
            ]:
                c = T.alloc_tmem((rows, 32), "float32")
                layout = emitter(rows, 32, 64).make_mma_store_layout(c)
                assert tuple(layout.map_forward_index(list(at))) == want
            a = T.alloc_shared((128, 64), "float8_e4m3fn")
            c = T.alloc_tmem((128, 32), "float32")
            assert T.make_blockscaled_gemm_layout(c, a)(9, 4) == (9, 4)
            D[0] = 0

    assert kernel.ir.name == "kernel"


def refusal(body) -> str:
    with pytest.raises(TileError) as caught:

        @T.prim_func
        def kernel(D: T.Tensor((1,), "float32")):
            with T.Kernel(1, threads=128):
                a, b = T.alloc_shared((128, 64), "bfloat16"), T.alloc_shared((64, 64), "bfloat16")
                c = T.alloc_tmem((128, 64), "float32")
                body(emitter(128, 64, 64), a, b, c)
                D[0] = 0

    assert "test_tcgen05_emitter.py:" in str(caught.value)
    return str(caught.value)


def given_twice(e, a, b, c):
    d, p = T.alloc_tcgen05_smem_desc(), e.compute_tcgen05_a_desc_params(a)
    e.init_tcgen05_a_desc(d, a, p)
    e.init_tcgen05_a_desc(d, a, p)


def given_elsewhere(e, a, b, c):
    """In one arm of a branch, and used behind it."""
    da, db = T.alloc_tcgen05_smem_desc(), T.alloc_tcgen05_smem_desc()
    ap, bp = e.compute_tcgen05_a_desc_params(a), e.compute_tcgen05_b_desc_params(b)
    cp = e.compute_tcgen05_c_tmem_params(c)
    e.init_tcgen05_b_desc(db, b, bp)

    @T.macro
    def branch():
        if T.get_thread_binding() == 0:
            e.init_tcgen05_a_desc(da, a, ap)

    branch()
    e.tcgen05_ss_atom(da, db, 0, 0, 0, ap, bp, cp, e.compute_tcgen05_instr_desc())


def given_another(e, a, b, c):
    d = T.alloc_tcgen05_smem_desc()
    e.init_tcgen05_a_desc(d, b, e.compute_tcgen05_a_desc_params(a))


def used_for_another(e, a, b, c):
    da, db = T.alloc_tcgen05_smem_desc(), T.alloc_tcgen05_smem_desc()
    ap, bp = e.compute_tcgen05_a_desc_params(a), e.compute_tcgen05_b_desc_params(b)
    e.init_tcgen05_a_desc(da, a, ap)
    e.init_tcgen05_b_desc(db, b, bp)
    cp = e.compute_tcgen05_c_tmem_params(c)
    part = e.compute_tcgen05_a_desc_params(a[0:128, 0:32])
    e.tcgen05_ss_atom(da, db, 0, 0, 0, part, bp, cp, e.compute_tcgen05_instr_desc())


def another_word(e, a, b, c):
    da, db = T.alloc_tcgen05_smem_desc(), T.alloc_tcgen05_smem_desc()
    ap, bp = e.compute_tcgen05_a_desc_params(a), e.compute_tcgen05_b_desc_params(b)
    e.init_tcgen05_a_desc(da, a, ap)
    e.init_tcgen05_b_desc(db, b, bp)
    cp = e.compute_tcgen05_c_tmem_params(c)
    e.tcgen05_ss_atom(
        da, db, 0, 0, 0, ap, bp, cp, emitter(128, 32, 64).compute_tcgen05_instr_desc()
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (given_twice, "is given a second matrix"),
        (given_elsewhere, "may not have been given a matrix here"),
        (given_another, "are those of another buffer"),
        (used_for_another, "with parameters of another matrix"),
        (another_word, "an instruction descriptor that is not of this emitter"),
        (lambda e, a, b, c: emitter(96, 64, 64), "that no instruction of tcgen05 divides"),
        (lambda e, a, b, c: e.tcgen05_blockscaled_atom(), "tcgen05_blockscaled_atom is not built"),
        (lambda e, a, b, c: T.make_blockscaled_gemm_layout(c, b), "128 rows"),
    ],
)  # fmt: skip
def test_what_cannot_be_written(body, words):
    assert words in refusal(body)
