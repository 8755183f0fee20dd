"""Kernels with accumulators in Tensor Memory become machine code of Blackwell chips, without spills
or warnings.
"""

from __future__ import annotations

import pytest

import tilelang.language as T
from blackwell_programs import TOTALS, gemm, latent
from tilelang.errors import TileError
from tilelang.ir.thread import Instr, Program
from tilelang.ir.verify_thread import verify_program
from tilelang.isa.instr import checker
from tilelang.isa.target import parse_target
from tilelang.passes.pipeline import lower
from tilelang.targets import CHIPS
from tilelang.targets.cuda.nvrtc import compile_source, is_installed
from tilelang.targets.cuda.program import emit
from tilelang.targets.cuda.rows import ROWS

built = pytest.mark.skipif(not is_installed(), reason="NVRTC is not installed")


def build(fn, arch: str = "sm_100a") -> Program:
    """The program, after NVRTC has made machine code of it."""
    target = parse_target(f"cuda -arch={arch}", CHIPS)
    program = lower(fn.ir, target)
    verify_program(program, checker(ROWS), planned=True)
    made = compile_source(emit(program, target).text, arch)
    assert not made.warnings
    assert all(r.spill_stores == 0 for r in made.resources.values())
    return program


def products(program: Program) -> set[str]:
    rows = {n.row for n in program.walk() if isinstance(n, Instr)}
    return {r for r in rows if r.startswith("tcgen05.mma")}


ROW = {
    "float16": "tcgen05.mma.f16",
    "bfloat16": "tcgen05.mma.f16",
    "float32": "tcgen05.mma.tf32",
    "float8_e4m3fn": "tcgen05.mma.f8f6f4",
    "float8_e5m2": "tcgen05.mma.f8f6f4",
    "int8": "tcgen05.mma.i8",
    "uint8": "tcgen05.mma.i8",
}
SIZE = (512, 512, 512)


@built
@pytest.mark.parametrize("dtype", TOTALS)
@pytest.mark.parametrize("tiles", [(128, 128, 64), (128, 256, 64), (64, 128, 32)])
def test_products_of_each_type(dtype, tiles):
    program = build(gemm(*SIZE, tiles, dtype))
    assert products(program) == {ROW[dtype]}
    notes = [text for _, text, _ in dict(program.attrs).get("notes", ())]
    assert any("products by a warp of their own" in text for text in notes)


@built
@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3fn"])
def test_products_on_the_other_chip(dtype):
    assert products(build(gemm(*SIZE, (128, 128, 64), dtype), "sm_103a")) == {ROW[dtype]}


def scaled(dtype: str, scale: str, grain: int):
    @T.prim_func
    def kernel(
        A: T.Tensor((256, 512), dtype),
        B: T.Tensor((256, 512), dtype),
        SA: T.Tensor((256, 512 // grain), scale),
        SB: T.Tensor((256, 512 // grain), scale),
        C: T.Tensor((256, 256), "float32"),
    ):
        with T.Kernel(2, 2, threads=256) as (bx, by):
            a, b = (T.alloc_shared((128, 128), dtype) for _ in range(2))
            sa, sb = (T.alloc_shared((128, 512 // grain), scale) for _ in range(2))
            c = T.alloc_tmem((128, 128), "float32")
            out = T.alloc_fragment((128, 128), "float32")
            T.copy(SA[by * 128, 0], sa)
            T.copy(SB[bx * 128, 0], sb)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[by * 128, k * 128], a)
                T.copy(B[bx * 128, k * 128], b)
                T.gemm_blockscaled(
                    a,
                    b,
                    c,
                    sa,
                    sb,
                    transpose_B=True,
                    clear_accum=k == 0,
                    k_start=k * 128,
                    sf_a_granularity_k=grain,
                    sf_b_granularity_k=grain,
                )
            T.copy(c, out)
            T.copy(out, C[by * 128, bx * 128])

    return kernel


@built
@pytest.mark.parametrize(
    ("dtype", "scale", "grain", "row"),
    [
        ("float8_e4m3fn", "float8_e8m0fnu", 32, "tcgen05.mma.mxf8f6f4.scale_1X"),
        ("float4_e2m1fn", "float8_e4m3fn", 16, "tcgen05.mma.mxf4nvf4.scale_4X"),
    ],
)
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
def test_products_with_scales(dtype, scale, grain, row, arch):
    assert products(build(scaled(dtype, scale, grain), arch)) == {row}


@built
def test_latent_attention_of_the_usual_size():
    assert products(build(latent(1024, 512, 64, 256))) == {"tcgen05.mma.f16", "tcgen05.mma.f16.ts"}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integers_on_the_chip_that_does_not_multiply_them(dtype):
    target = parse_target("cuda -arch=sm_103a", CHIPS)
    with pytest.raises(TileError, match=f"does not multiply {dtype}"):
        lower(gemm(*SIZE, (128, 128, 64), dtype).ir, target)
