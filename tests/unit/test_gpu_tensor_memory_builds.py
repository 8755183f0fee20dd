"""Kernels with accumulators in Tensor Memory become machine code of Blackwell chips, without spills
or warnings; latent attention also gives what the emulator gives.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilelang.language as T
from blackwell_build import check_blackwell
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


def gemm(dtype: str, total: str, *, tiles=(128, 128, 64), stages=3):
    bm, bn, bk = tiles

    @T.prim_func
    def kernel(
        A: T.Tensor((512, 512), dtype),
        B: T.Tensor((512, 512), dtype),
        C: T.Tensor((512, 512), total),
    ):
        with T.Kernel(T.ceildiv(512, bn), T.ceildiv(512, bm), threads=256) as (bx, by):
            a = T.alloc_shared((bm, bk), dtype)
            b = T.alloc_shared((bn, bk), dtype)
            c = T.alloc_tmem((bm, bn), total)
            out = T.alloc_fragment((bm, bn), total)
            for k in T.Pipelined(T.ceildiv(512, bk), num_stages=stages):
                T.copy(A[by * bm, k * bk], a)
                T.copy(B[bx * bn, k * bk], b)
                T.gemm(a, b, c, transpose_B=True, clear_accum=k == 0)
            T.copy(c, out)
            T.copy(out, C[by * bm, bx * bn])

    return kernel


KINDS = {
    "float16": ("float32", "tcgen05.mma.f16"),
    "bfloat16": ("float32", "tcgen05.mma.f16"),
    "float32": ("float32", "tcgen05.mma.tf32"),
    "float8_e4m3fn": ("float32", "tcgen05.mma.f8f6f4"),
    "int8": ("int32", "tcgen05.mma.i8"),
}


@built
@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("tiles", [(128, 128, 64), (128, 256, 64), (64, 128, 32)])
def test_products_of_each_type(dtype, tiles):
    total, row = KINDS[dtype]
    program = build(gemm(dtype, total, tiles=tiles))
    assert products(program) == {row}
    notes = [text for _, text, _ in dict(program.attrs).get("notes", ())]
    assert any("products by a warp of their own" in text for text in notes)


@built
@pytest.mark.parametrize("dtype", ["float16", "float8_e4m3fn"])
def test_products_on_the_other_chip(dtype):
    total, row = KINDS[dtype]
    assert products(build(gemm(dtype, total), "sm_103a")) == {row}


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


def latent(tokens: int, deep: int, turned: int, part: int):
    """One step of decoding by latent attention (MLA) for 128 heads: keys are `deep` latent and
    `turned` rotated elements, values the latent ones, `part` of which a block makes.
    """
    each, heads = 64, 128
    scale = 1.4426950408889634 / (deep + turned) ** 0.5

    @T.prim_func
    def kernel(
        Q: T.Tensor((1, heads, deep), "float16"),
        QR: T.Tensor((1, heads, turned), "float16"),
        KV: T.Tensor((1, tokens, deep), "float16"),
        KR: T.Tensor((1, tokens, turned), "float16"),
        O: T.Tensor((1, heads, deep), "float32"),
    ):
        with T.Kernel(deep // part, 1, threads=256) as (bx, bz):
            q, qr = (
                T.alloc_shared((heads, deep), "float16"),
                T.alloc_shared((heads, turned), "float16"),
            )
            kv, kr = (
                T.alloc_shared((each, deep), "float16"),
                T.alloc_shared((each, turned), "float16"),
            )
            s_t = T.alloc_tmem((heads, each), "float32")
            p_t = T.alloc_tmem((heads, each), "float16")
            o_t = T.alloc_tmem((heads, part), "float32")
            s = T.alloc_fragment((heads, each), "float32")
            p = T.alloc_fragment((heads, each), "float16")
            o = T.alloc_fragment((heads, part), "float32")
            top, before, total, add = (T.alloc_fragment((heads,), "float32") for _ in range(4))
            T.copy(Q[bz, 0, 0], q)
            T.copy(QR[bz, 0, 0], qr)
            T.fill(o_t, 0)
            T.fill(total, 0)
            T.fill(top, -T.infinity("float32"))
            for n in T.serial(tokens // each):
                T.copy(KV[bz, n * each, 0], kv)
                T.copy(KR[bz, n * each, 0], kr)
                T.gemm(q, kv, s_t, transpose_B=True, clear_accum=True)
                T.gemm(qr, kr, s_t, transpose_B=True)
                T.copy(s_t, s)
                T.copy(top, before)
                T.reduce_max(s, top, dim=1, clear=False)
                for i, j in T.Parallel(heads, each):
                    s[i, j] = T.exp2((s[i, j] - top[i]) * scale)
                T.reduce_sum(s, add, dim=1)
                for i in T.Parallel(heads):
                    before[i] = T.exp2((before[i] - top[i]) * scale)
                    total[i] = total[i] * before[i] + add[i]
                T.copy(s, p)
                T.copy(p, p_t)
                T.copy(o_t, o)
                for i, j in T.Parallel(heads, part):
                    o[i, j] *= before[i]
                T.copy(o, o_t)
                T.gemm(p_t, kv[:, bx * part : (bx + 1) * part], o_t)
            T.copy(o_t, o)
            for i, j in T.Parallel(heads, part):
                O[bz, i, bx * part + j] = o[i, j] / total[i]

    return kernel


@built
def test_latent_attention_of_the_usual_size():
    assert products(build(latent(1024, 512, 64, 256))) == {"tcgen05.mma.f16", "tcgen05.mma.f16.ts"}


def test_latent_attention():
    random = np.random.default_rng(1)
    shapes = {"Q": (128, 128), "QR": (128, 64), "KV": (128, 128), "KR": (128, 64)}
    args = {k: random.standard_normal((1, *v)).astype("float16") for k, v in shapes.items()}
    check_blackwell(
        latent(128, 128, 64, 64), rtol=2e-3, atol=2e-3, O=np.zeros((1, 128, 128), "f4"), **args
    )


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integers_on_the_chip_that_does_not_multiply_them(dtype):
    target = parse_target("cuda -arch=sm_103a", CHIPS)
    with pytest.raises(TileError, match=f"does not multiply {dtype}"):
        lower(gemm(dtype, "int32").ir, target)
