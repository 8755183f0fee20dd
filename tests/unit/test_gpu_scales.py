"""Block-scaled products of tcgen05 whose scales an author copies to Tensor Memory."""

import ml_dtypes
import numpy as np
import pytest

import tilelang.language as T
from blackwell_build import check_blackwell
from gpu_build import gpu_program
from scaled_kernels import Case, in_rows, issued, waited
from tilelang.emulator import translate
from tilelang.ir.thread import Instr
from tilelang.isa.target import parse_target
from tilelang.targets import CHIPS
from tilelang.targets.cuda.nvrtc import compile_source, is_installed
from tilelang.targets.cuda.program import emit

CASES = {
    "one word for the whole of K": Case(128, 32, 128, (128, 32, 32)),
    "columns that fill no chunk": Case(128, 144, 64, (128, 144, 64), grain=64, stages=1),
    "scales of several rounds": Case(128, 48, 768, (128, 48, 64), grain=96),
    "B along N": Case(128, 32, 256, (128, 32, 128), dtype="float8_e5m2", turned=False),
    "tiles of several blocks": Case(256, 64, 64, (128, 32, 64)),
    "fp4 by fp8": Case(128, 32, 128, (128, 32, 64), mixed=True),
    "mxfp4": Case(128, 80, 256, (128, 80, 128), dtype="float4_e2m1fn"),
    "nvfp4": Case(128, 48, 128, (128, 48, 64), grain=16, dtype="float4_e2m1fn"),
    "a pair, nvfp4": Case(256, 64, 128, (128, 64, 64), grain=16, dtype="float4_e2m1fn", pair=True),
    "a pair, fp4 by fp8": Case(256, 32, 128, (128, 32, 64), mixed=True, pair=True),
    "a pair": Case(256, 32, 128, (128, 32, 64), pair=True),
    "a pair, scales of several rounds": Case(256, 48, 768, (128, 48, 128), grain=96, pair=True),
    "a pair, B along N": Case(256, 64, 128, (128, 64, 32), turned=False, pair=True),
    "a pair, two chunks": Case(256, 144, 128, (128, 144, 128), dtype="float8_e5m2", pair=True),
}


def rows_of(program) -> set[str]:
    return {n.row for n in program.walk() if isinstance(n, Instr)}


@pytest.mark.parametrize("name", CASES)
def test_products_with_scales_of_the_author(name):
    case = CASES[name]
    fn, args = issued(case), case.arguments()
    program = check_blackwell(fn, seeds=3, **args)
    translate(fn.ir).run(args)
    np.testing.assert_array_equal(args["C"], case.want(args))
    two = ".cta2" * case.pair
    kind = {16: "mxf4nvf4.scale_4X"}.get(case.grain, "mxf8f6f4.scale_1X")
    kind = "mxf4.scale_2X" if name == "mxfp4" else kind
    rows = {f"tcgen05.cp{two}.32x128b.warpx4", f"tcgen05.mma{two}.{kind}"}
    assert rows <= rows_of(program)


def left_in_tensor_memory(pair, k=128):
    """A goes through registers; of a pair each block has 128 rows."""
    blocks = 2 if pair else 1
    m, n, dtype = 128 * blocks, 64, "float8_e4m3fn"

    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), dtype),
        B: T.Tensor((n, k), "float8_e5m2"),
        SFA: T.Tensor((m,), "uint32"),
        SFB: T.Tensor((128,), "uint32"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.ClusterKernel(blocks, threads=128, cluster_dims=blocks) as bx:
            fa, a = T.alloc_fragment((128, k), dtype), T.alloc_tmem((128, k), dtype)
            b = T.alloc_shared((n // blocks, k), "float8_e5m2")
            sa, sb = (T.alloc_shared((128,), "uint32") for _ in range(2))
            ta, tb = (T.alloc_tmem((128, 4), "uint32") for _ in range(2))
            c, f = T.alloc_tmem((128, n), "float32"), T.alloc_fragment((128, n), "float32")
            done = T.alloc_cluster_barrier(1) if pair else T.alloc_barrier(1)
            T.copy(A[bx * 128, 0], fa)
            T.copy(fa, a)
            T.copy(B[bx * (n // blocks), 0], b)
            T.copy(SFA[bx * 128 : bx * 128 + 128], sa)
            T.copy(SFB, sb)
            for words in [sa, sb]:
                T.tcgen05_sf_warp_transpose(words)
            if pair:
                T.cluster_sync()
            for words, cells in [(sa, ta), (sb, tb)]:
                T.tcgen05_cp_warpx4(words, cells, use_2cta=pair)
            T.tcgen05_gemm_blockscaled(
                a,
                b,
                c,
                ta,
                tb,
                transpose_B=True,
                mbar=done,
                clear_accum=True,
                k_start=0,
                sf_a_granularity_k=32,
                sf_b_granularity_k=32,
                use_2cta=pair,
            )
            T.mbarrier_wait_parity(done, 0)
            T.copy(c, f)
            T.copy(f, C[bx * 128, 0])

    return kernel


@pytest.mark.parametrize("pair", [False, True])
def test_products_with_scales_of_a_left_operand_in_tensor_memory(pair):
    fn, random = left_in_tensor_memory(pair), np.random.default_rng(6)
    m = 256 if pair else 128
    a, b = (
        random.integers(-3, 4, (rows, 128)).astype(kind)
        for rows, kind in ((m, ml_dtypes.float8_e4m3fn), (64, ml_dtypes.float8_e5m2))
    )
    sfa, sfb = (random.integers(125, 130, (n, 4)).astype(np.uint8) for n in (m, 128))
    powers_a, powers_b = (np.repeat(np.exp2(s - 127.0), 32, axis=1) for s in (sfa, sfb[:64]))
    want = (a.astype("float64") * powers_a) @ (b.astype("float64") * powers_b).T
    args = {"A": a, "B": b, "SFA": sfa.view(np.uint32)[:, 0], "SFB": sfb.view(np.uint32)[:, 0]}
    args["C"] = np.zeros((m, 64), np.float32)
    program = check_blackwell(fn, seeds=5, **args)
    translate(fn.ir).run(args)
    np.testing.assert_array_equal(args["C"], want)
    assert f"tcgen05.mma{'.cta2' * pair}.mxf8f6f4.ts.scale_1X" in rows_of(program)


def test_a_product_that_waits_with_a_left_operand_in_tensor_memory():
    @T.prim_func
    def kernel(
        A: T.Tensor((128, 64), "float8_e4m3fn"),
        SA: T.Tensor((128, 2), "float8_e8m0fnu"),
        SB: T.Tensor((48, 2), "float8_e8m0fnu"),
        B: T.Tensor((48, 64), "float8_e4m3fn"),
        C: T.Tensor((128, 48), "float32"),
    ):
        with T.Kernel(1, threads=128):
            fa = T.alloc_fragment((128, 64), "float8_e4m3fn")
            a, b = T.alloc_tmem((128, 64), "float8_e4m3fn"), T.alloc_shared((48, 64), A.dtype)
            sa, sb = (T.alloc_shared((n, 2), "float8_e8m0fnu") for n in (128, 48))
            c, f = T.alloc_tmem((128, 48), "float32"), T.alloc_fragment((128, 48), "float32")
            T.copy(A, fa)
            T.copy(fa, a)
            T.copy(B, b)
            T.copy(SA, sa)
            T.copy(SB, sb)
            T.gemm_blockscaled(
                a,
                b,
                c,
                sa,
                sb,
                transpose_B=True,
                clear_accum=True,
                k_start=0,
                sf_a_granularity_k=32,
                sf_b_granularity_k=32,
            )
            T.copy(c, f)
            T.copy(f, C)

    random = np.random.default_rng(7)
    a, b = (random.integers(-3, 4, (n, 64)).astype(ml_dtypes.float8_e4m3fn) for n in (128, 48))
    sa, sb = (random.integers(125, 130, (n, 2)).astype(np.uint8) for n in (128, 48))
    left, right = (
        x.astype("float64") * np.repeat(np.exp2(s - 127.0), 32, axis=1)
        for x, s in ((a, sa), (b, sb))
    )
    e8m0 = ml_dtypes.float8_e8m0fnu
    args = {"A": a, "SA": sa.view(e8m0), "SB": sb.view(e8m0), "B": b}
    args["C"] = np.zeros((128, 48), np.float32)
    program = check_blackwell(kernel, seeds=3, **args)
    translate(kernel.ir).run(args)
    np.testing.assert_array_equal(args["C"], left @ right.T)
    assert "tcgen05.mma.mxf8f6f4.ts.scale_1X" in rows_of(program)


@pytest.mark.parametrize("scaled", [False, True])
def test_tiles_keep_their_place_until_a_product_has_read_them(scaled):
    @T.prim_func
    def kernel(
        A: T.Tensor((128, 128), "float8_e4m3fn"),
        B: T.Tensor((128, 128), "float8_e4m3fn"),
        SFA: T.Tensor((128,), "uint32"),
        SFB: T.Tensor((128,), "uint32"),
        C: T.Tensor((128, 128), "float32"),
        D: T.Tensor((128, 128), "float8_e4m3fn"),
    ):
        with T.Kernel(1, threads=128):
            a, b, d = (T.alloc_shared((128, 128), "float8_e4m3fn") for _ in range(3))
            sa, sb = (T.alloc_shared((128,), "uint32") for _ in range(2))
            ta, tb = (T.alloc_tmem((128, 4), "uint32") for _ in range(2))
            c, out = T.alloc_tmem((128, 128), "float32"), T.alloc_fragment((128, 128), "float32")
            done = T.alloc_barrier(1)
            T.copy(A, a)
            T.copy(B, b)
            if scaled:
                for given, words, cells in [(SFA, sa, ta), (SFB, sb, tb)]:
                    T.copy(given, words)
                    T.tcgen05_sf_warp_transpose(words)
                    T.tcgen05_cp_warpx4(words, cells)
                T.tcgen05_gemm_blockscaled(
                    a,
                    b,
                    c,
                    ta,
                    tb,
                    transpose_B=True,
                    mbar=done,
                    clear_accum=True,
                    k_start=0,
                    sf_a_granularity_k=32,
                    sf_b_granularity_k=32,
                )
            else:
                T.tcgen05_gemm(a, b, c, transpose_B=True, mbar=done, clear_accum=True)
            T.copy(B, d)  # may not lie where the product still reads
            T.copy(d, D)
            T.mbarrier_wait_parity(done, 0)
            T.copy(c, out)
            T.copy(out, C)

    args = Case(128, 128, 128, (128, 128, 128)).arguments()
    check_blackwell(kernel, seeds=2, **args, D=np.zeros_like(args["B"]))


@pytest.mark.simulate
@pytest.mark.parametrize("name", CASES)
def test_products_with_scales_of_the_author_in_fifty_schedules(name):
    check_blackwell(issued(CASES[name]), seeds=50, **CASES[name].arguments())


WAITED = {
    "mxfp8": Case(256, 48, 192, (128, 48, 64), pair=True),
    "mxfp8, B along N": Case(256, 64, 128, (128, 64, 128), grain=64, turned=False, pair=True),
    "mxfp8, two chunks": Case(256, 208, 64, (128, 208, 64), stages=1, pair=True),
    "mxfp4": Case(256, 32, 192, (128, 32, 64), dtype="float4_e2m1fn", pair=True),
    "nvfp4": Case(256, 80, 256, (128, 80, 128), grain=16, dtype="float4_e2m1fn", pair=True),
}


@pytest.mark.parametrize("name", WAITED)
def test_pairs_whose_products_wait(name):
    case = WAITED[name]
    fn, args = waited(case), case.arguments()
    want, args = case.want(args), in_rows(case, args)
    program = check_blackwell(fn, seeds=3, **args)
    translate(fn.ir).run(args)
    np.testing.assert_array_equal(args["C"], want)
    assert {"barrier.cluster.arrive", "tcgen05.commit.cta2.multicast"} <= rows_of(program)


@pytest.mark.simulate
@pytest.mark.parametrize("name", WAITED)
def test_pairs_whose_products_wait_in_fifty_schedules(name):
    case = WAITED[name]
    check_blackwell(waited(case), seeds=50, **in_rows(case, case.arguments()))


BUILT = {
    "the left operand in Tensor Memory": (left_in_tensor_memory, False),
    "a pair, the left operands in Tensor Memory": (left_in_tensor_memory, True),
    "one block": (issued, Case(256, 512, 1024, (128, 128, 128), stages=4)),
    "a pair": (issued, Case(256, 512, 1024, (128, 128, 128), stages=4, pair=True)),
    "a pair, fp4 by fp8": (issued, Case(256, 256, 512, (128, 128, 128), mixed=True, pair=True)),
    "a pair, nvfp4": (
        issued,
        Case(256, 256, 256, (128, 128, 64), grain=16, dtype="float4_e2m1fn", pair=True),
    ),
    "a pair that waits": (waited, Case(256, 256, 512, (128, 128, 128), pair=True)),
}


@pytest.mark.skipif(not is_installed(), reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
@pytest.mark.parametrize("name", BUILT)
def test_machine_code(name, arch):
    make, case = BUILT[name]
    target = parse_target(f"cuda -arch={arch}", CHIPS)
    made = compile_source(emit(gpu_program(make(case).ir, target=target), target).text, arch)
    assert not made.warnings
    assert all(r.spill_stores == 0 for r in made.resources.values())
