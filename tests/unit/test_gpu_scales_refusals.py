"""Block-scaled products of tcgen05, and copies of their scales, that cannot be: each is an error
where it is written.
"""

from typing import Any

import pytest

import tilelang.language as T
from tilelang.errors import TileError
from tilelang.isa.target import parse_target
from tilelang.passes.check import refuse
from tilelang.passes.pipeline import lower
from tilelang.targets import CHIPS

F8, F4 = "float8_e4m3fn", "float4_e2m1fn"


class Parts:
    """The buffers of a kernel: (m, k) by (n, k), and scales for them."""

    def __init__(self, m=128, n=32, k=64, dtype=F8, tall=128):
        self.a, self.b = T.alloc_shared((m, k), dtype), T.alloc_shared((n, k), dtype)
        self.words = T.alloc_shared((128,), "uint32")
        self.few = T.alloc_shared((96,), "uint32")
        self.long = T.alloc_shared((256,), "uint32")
        self.table = T.alloc_shared((4, 64), "uint32")
        self.floats = T.alloc_shared((128,), "float32")
        self.c = T.alloc_tmem((m, n), "float32")
        self.sa, self.sb = T.alloc_tmem((tall, 4), "uint32"), T.alloc_tmem((128, 8), "uint32")
        self.f = T.alloc_fragment((m, n), "float32")
        self.bar = T.alloc_barrier(1)

    def gemm_from_tensor_memory(self, dtype: str, **more: Any) -> None:
        """A lies there, where it can be."""
        self.a = T.alloc_tmem(self.a.shape, dtype)
        self.gemm(**more)

    def gemm(self, **more: Any) -> None:
        given = {"transpose_B": True, "mbar": self.bar, "k_start": 0}
        given |= {"sf_a_granularity_k": 32, "sf_b_granularity_k": 32}
        T.tcgen05_gemm_blockscaled(self.a, self.b, self.c, self.sa, self.sb, **{**given, **more})


def kernel(body, cluster=1, **sizes):
    @T.prim_func
    def program(A: T.Tensor((128, 64), F8)):
        with T.ClusterKernel(2, threads=128, cluster_dims=cluster) as bx:
            body(Parts(**sizes), bx)

    return program


def refusal(body, *, arch="sm_100a", **sizes) -> str:
    with pytest.raises(TileError) as caught:
        target = parse_target(arch if arch == "cpu" else f"cuda -arch={arch}", CHIPS)
        ir = kernel(body, **sizes).ir
        refuse(ir, target, chips=CHIPS)
        lower(ir, target)
    text = str(caught.value)
    assert f"{__file__.rsplit('/', 1)[1]}:" in text, "no place in the author's file"
    return text


def without(text: str) -> str:
    """The message and what was expected, without the place."""
    lines = [line.strip() for line in text.splitlines()]
    return "\n".join(s for s in lines if s.startswith(("error", "= expected", "= help")))


CALLS = {
    "no mbar": (lambda p, i: p.gemm(mbar=None), {}),
    "another wait": (lambda p, i: p.gemm(wg_wait=1), {}),
    "an accumulator in registers": (
        lambda p, i: (setattr(p, "c", p.f), p.gemm()),
        {},
    ),
    "halves": (lambda p, i: p.gemm(), {"dtype": "float16"}),
    "scales of 64 lanes": (lambda p, i: p.gemm(), {"tall": 64}),
    "scales in shared memory": (
        lambda p, i: T.tcgen05_cp_warpx4(p.words, p.words),
        {},
    ),
    "too few words": (lambda p, i: T.tcgen05_cp_warpx4(p.few, p.sa), {}),
    "words of floats": (lambda p, i: T.tcgen05_sf_warp_transpose(p.floats), {}),
    "words that do not follow each other": (
        lambda p, i: T.tcgen05_sf_warp_transpose(p.table[:, 0:32]),
        {},
    ),
    "columns that are not there": (lambda p, i: T.tcgen05_cp_warpx4(p.words, p.sa, 4), {}),
    "half of B by one block": (lambda p, i: p.gemm(use_2cta=True), {}),
    "a part that begins anywhere": (
        lambda p, i: T.tcgen05_cp_warpx4(p.long[i : i + 128], p.sb),
        {},
    ),
    "64 rows": (lambda p, i: p.gemm(), {"m": 64}),
    "more blocks than a word has scales": (lambda p, i: p.gemm(), {"k": 256}),
    "fp4 in Tensor Memory": (lambda p, i: p.gemm_from_tensor_memory(F4), {"dtype": F4}),
    "scales of 48 elements": (lambda p, i: p.gemm(sf_a_granularity_k=48), {}),
    "columns that no instruction has": (lambda p, i: p.gemm(), {"n": 20}),
    "fp4 with coarse scales": (lambda p, i: p.gemm(sf_a_granularity_k=64), {"dtype": F4}),
    "fp4 that is used otherwise": (
        lambda p, i: (T.clear(p.a), p.gemm()),
        {"dtype": F4},
    ),
    "a chip without Tensor Memory": (lambda p, i: p.gemm(), {"arch": "sm_90a"}),
    "a CPU": (lambda p, i: p.gemm(), {"arch": "cpu"}),
}


def test_what_cannot_be(golden):
    shown = (f"{n}\n{without(refusal(body, **more))}" for n, (body, more) in CALLS.items())
    golden("\n\n".join(shown), "errors/scales")


def pair(p, i):
    T.tcgen05_gemm_blockscaled(
        p.a,
        p.b[0:16, :],
        p.c,
        p.sa,
        p.sb,
        transpose_B=True,
        mbar=p.bar,
        k_start=0,
        sf_a_granularity_k=32,
        sf_b_granularity_k=32,
        use_2cta=True,
    )


def test_pairs_that_cannot_be(golden):
    def mixed(p, i):
        T.tcgen05_cp_warpx4(p.words, p.sa)
        pair(p, i)

    def waits(p, i):
        scales = T.alloc_shared((128, 2), "float8_e8m0fnu")
        T.gemm_blockscaled(
            p.a,
            p.b[0:16, :],
            p.f,
            scales,
            scales[0:32, :],
            transpose_B=True,
            k_start=0,
            sf_a_granularity_k=32,
            sf_b_granularity_k=32,
            use_2cta=True,
        )

    def by_a_part(p, i):
        p.f = p.c
        with T.ws(0):
            waits(p, i)

    texts = {
        "a pair with 64 rows each": refusal(pair, cluster=2, m=64),
        "a pair that waits in a part of the block": refusal(by_a_part, cluster=2),
        "a cluster of one block": refusal(pair),
        "a copy of scales of one block": refusal(mixed, cluster=2),
        "a pair whose result is a fragment": refusal(waits, cluster=2),
    }
    golden("\n\n".join(f"{n}\n{without(x)}" for n, x in texts.items()), "errors/scales_of_pairs")
