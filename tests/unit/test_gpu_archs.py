"""Every architecture gets a program that its rows allow, and NVRTC makes machine code of it."""

from __future__ import annotations

import pytest

import tilelang.language as T
from tilelang.ir.verify_thread import verify_program
from tilelang.isa.instr import checker
from tilelang.isa.target import parse_target
from tilelang.passes.pipeline import lower
from tilelang.targets import CHIPS
from tilelang.targets.cuda.nvrtc import compile_source, is_installed
from tilelang.targets.cuda.program import emit
from tilelang.targets.cuda.rows import ROWS

ARCHS = {c.capabilities: c.name for c in reversed(CHIPS) if c.backend == "cuda"}.values()
"""Of chips that can do the same, the first."""


@pytest.mark.skipif(not is_installed(), reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("threads", [128, 256])
def test_a_pipelined_product_compiles_without_spills_or_warnings(arch, threads):
    @T.prim_func
    def kernel(
        A: T.Tensor((256, 256), "float16"),
        B: T.Tensor((256, 256), "float16"),
        C: T.Tensor((256, 256), "float16"),
    ):
        with T.Kernel(2, 2, threads=threads) as (bx, by):
            a = T.alloc_shared((128, 64), "float16")
            b = T.alloc_shared((128, 64), "float16")
            c = T.alloc_fragment((128, 128), "float32")
            T.clear(c)
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[by * 128, k * 64], a)
                T.copy(B[bx * 128, k * 64], b)
                T.gemm(a, b, c, transpose_B=True)
            T.copy(c, C[by * 128, bx * 128])

    target = parse_target(f"cuda -arch={arch}", CHIPS)
    program = lower(kernel.ir, target)
    verify_program(program, checker(ROWS), planned=True)
    made = compile_source(emit(program, target).text, arch)
    assert not made.warnings
    assert all(r.spill_stores == 0 for r in made.resources.values())
