"""Block-scaled products of tcgen05 whose scales an author copies to Tensor Memory."""

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
