"""Block-scaled products that a kernel issues and waits for by itself, with what they must give:
one warp loads, one transposes scales, and one copies them to Tensor Memory and multiplies.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import tilelang.language as T
from simulator_kernels import Subject

CHUNK = 128


@dataclass(frozen=True)
class Case:
    """A product (m, n, k) in tiles; `grain` elements along K have one scale. Of a pair of blocks,
    `tiles` are the rows of a block, the columns of the pair, and K.
    """

    m: int
    n: int
    k: int
    tiles: tuple[int, int, int]
    grain: int = 32
    dtype: str = "float8_e4m3fn"
    turned: bool = True
    stages: int = 2
    pair: bool = False
    mixed: bool = False
    """A of fp4, in the form for products with 8-bit floats."""

    @property
    def groups(self) -> int:
        """Words of four scales that a row has."""
        return -(-self.k // (4 * self.grain))

    @property
    def left(self) -> np.dtype:
        """The type of A."""
        return np.dtype(getattr(ml_dtypes, "float4_e2m1fn" if self.mixed else self.dtype))

    @property
    def period(self) -> int:
        """Rounds of the loop along K for which a word is enough."""
        return max(1, 4 * self.grain // self.tiles[2])

    def arguments(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Small numbers, so that sums are exact, and scales around 1."""
        rng = np.random.default_rng(seed)
        b = (self.n, self.k) if self.turned else (self.k, self.n)
        kind = getattr(ml_dtypes, self.dtype)
        made = {
            "A": rng.integers(-3, 4, (self.m, self.k)).astype(self.left),
            "B": rng.integers(-3, 4, b).astype(kind),
        }
        low = 0x30 if self.grain == 16 else 126  # 0.5 as UE4M3, or as UE8M0
        step = 8 if self.grain == 16 else 1
        for name, rows in (("SFA", self.m), ("SFB", self.n)):
            codes = low + step * rng.integers(0, 4, (self.groups, rows, 4))
            made[name] = codes.astype("u1").view("u4").reshape(-1)
        return made | {"C": np.full((self.m, self.n), np.nan, "f4")}

    def scale(self, words: np.ndarray, rows: int) -> np.ndarray:
        """The scale of each element (rows, k)."""
        codes = words.view("u1").reshape(self.groups, rows, 4).transpose(1, 0, 2)
        e4m3 = self.grain == 16
        kind = ml_dtypes.float8_e4m3fn if e4m3 else ml_dtypes.float8_e8m0fnu
        values = codes.reshape(rows, -1).view(kind).astype("f8")
        return values[:, np.arange(self.k) // self.grain]

    def want(self, args: dict[str, np.ndarray]) -> np.ndarray:
        """The product by NumPy."""
        right = args["B"] if self.turned else args["B"].T
        a = args["A"].astype("f8") * self.scale(args["SFA"], self.m)
        b = right.astype("f8") * self.scale(args["SFB"], self.n)
        return (a @ b.T).astype("f4")


@T.macro
def load(case, tensors, tiles, stage, turn, place, loaded):
    """Tiles of a round, and words of scales where a new group of them begins."""
    A, B, SFA, SFB = tensors
    a, b, sa, sb = tiles
    (row, column, half), deep = place, case.tiles[2]
    T.tma_copy(A[row, turn * deep], a[stage, :, :], barrier=loaded[stage])
    if case.turned:
        T.tma_copy(B[half, turn * deep], b[stage, :, :], barrier=loaded[stage])
    else:
        T.tma_copy(B[turn * deep, half], b[stage, :, :], barrier=loaded[stage])
    if turn % case.period == 0:
        group = turn // case.period
        T.tma_copy(SFA[group * case.m + row], sa[stage, :], barrier=loaded[stage])
        T.tma_copy(SFB[group * case.n + column], sb[stage, :], barrier=loaded[stage])


@T.macro
def multiply(case, tiles, stage, turn, result, scales, consumed):
    """A product, after copies of scales where a new group of them begins."""
    a, b, sa, sb = tiles
    if turn % case.period == 0:
        T.tcgen05_cp_warpx4(sa[stage, :], scales[0], use_2cta=case.pair)
        T.tcgen05_cp_warpx4(sb[stage, :], scales[1], use_2cta=case.pair)
    T.tcgen05_gemm_blockscaled(
        a[stage, :, :],
        b[stage, :, :],
        result,
        *scales,
        transpose_B=case.turned,
        mbar=consumed[stage],
        clear_accum=turn == 0,
        k_start=turn * case.tiles[2],
        sf_a_granularity_k=case.grain,
        sf_b_granularity_k=case.grain,
        use_2cta=case.pair,
    )


def issued(case: Case) -> Any:
    """The product, by one block for each tile, or a pair of blocks for each two of them."""
    m, n, k, stages, dtype = case.m, case.n, case.k, case.stages, case.dtype
    blocks = 2 if case.pair else 1
    bm, bn, bk = case.tiles
    rounds, wide, part = k // bk, -(-bn // CHUNK) * CHUNK, bn // blocks
    barriers = T.alloc_cluster_barrier if case.pair else T.alloc_barrier

    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), case.left.name),
        B: T.Tensor((n, k) if case.turned else (k, n), dtype),
        SFA: T.Tensor((case.groups * m,), "uint32"),
        SFB: T.Tensor((case.groups * n,), "uint32"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.ClusterKernel(m // bm, n // bn, threads=128, cluster_dims=blocks) as (bx, by):
            rank = T.block_rank_in_cluster()
            a = T.alloc_shared((stages, bm, bk), "float4_e2m1_unpacked" if case.mixed else dtype)
            b = T.alloc_shared((stages, part, bk) if case.turned else (stages, bk, part), dtype)
            sa = T.alloc_shared((stages, CHUNK), "uint32")
            sb = T.alloc_shared((stages, wide), "uint32")
            c, out = T.alloc_tmem((bm, bn), "float32"), T.alloc_fragment((bm, bn), "float32")
            ta, tb = T.alloc_tmem((128, 4), "uint32"), T.alloc_tmem((128, wide // 32), "uint32")
            loaded, ready = T.alloc_barrier([32] * stages), barriers([32 * blocks] * stages)
            consumed, full = barriers([1] * stages), T.alloc_barrier([1])
            tiles, warp = (a, b, sa, sb), T.get_thread_binding() // 32
            if warp == 0:
                for ko in T.serial(rounds):
                    s, turn = ko % stages, ko // stages % 2
                    T.mbarrier_wait_parity(consumed[s], turn ^ 1)
                    place = (bx * bm, by * bn, by * bn + rank * part)
                    load(case, (A, B, SFA, SFB), tiles, s, ko, place, loaded)
                    T.mbarrier_arrive(loaded[s])
            elif warp == 1 and rank == 0:
                for ko in T.serial(rounds):
                    s, turn = ko % stages, ko // stages % 2
                    T.mbarrier_wait_parity(ready[s], turn)
                    multiply(case, tiles, s, ko, c, (ta, tb), consumed)
                T.tcgen05_mma_arrive(full, arrive_2cta=case.pair)
            elif warp == 2:
                for ko in T.serial(rounds):
                    s, turn = ko % stages, ko // stages % 2
                    T.mbarrier_wait_parity(loaded[s], turn)
                    if ko % case.period == 0:
                        T.tcgen05_sf_warp_transpose(sa[s, :])
                        T.tcgen05_sf_warp_transpose(sb[s, :])
                        T.fence_proxy_async()
                    if case.pair:
                        T.mbarrier_arrive(ready[s], 0)
                    else:
                        T.mbarrier_arrive(ready[s])
            T.mbarrier_wait_parity(full, 0)
            T.copy(c, out)
            T.copy(out, C[bx * bm, by * bn])

    return kernel


def waited(case: Case) -> Any:
    """The product by `T.gemm_blockscaled`, which waits by itself, with scales in shared memory."""
    m, n, k, dtype, pair = case.m, case.n, case.k, case.dtype, case.pair
    bm, bn, bk = case.tiles
    blocks, scale = 2 if pair else 1, "float8_e4m3fn" if case.grain == 16 else "float8_e8m0fnu"
    part, rounds, deep = bn // blocks, k // bk, k // case.grain

    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), dtype),
        B: T.Tensor((n, k) if case.turned else (k, n), dtype),
        SFA: T.Tensor((m, deep), scale),
        SFB: T.Tensor((n, deep), scale),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.ClusterKernel(m // bm, n // bn, threads=128, cluster_dims=blocks) as (bx, by):
            rank = T.block_rank_in_cluster()
            a = T.alloc_shared((bm, bk), dtype)
            b = T.alloc_shared((part, bk) if case.turned else (bk, part), dtype)
            sa, sb = T.alloc_shared((bm, deep), scale), T.alloc_shared((bn, deep), scale)
            c, out = T.alloc_tmem((bm, bn), "float32"), T.alloc_fragment((bm, bn), "float32")
            T.copy(SFA[bx * bm, 0], sa)
            T.copy(SFB[by * bn, 0], sb)
            for ko in T.Pipelined(rounds, num_stages=case.stages):
                T.copy(A[bx * bm, ko * bk], a)
                if case.turned:
                    T.copy(B[by * bn + rank * part, ko * bk], b)
                else:
                    T.copy(B[ko * bk, by * bn + rank * part], b)
                T.gemm_blockscaled(
                    a,
                    b,
                    c,
                    sa,
                    sb,
                    transpose_B=case.turned,
                    clear_accum=ko == 0,
                    k_start=ko * bk,
                    sf_a_granularity_k=case.grain,
                    sf_b_granularity_k=case.grain,
                    use_2cta=pair,
                )
            T.copy(c, out)
            T.copy(out, C[bx * bm, by * bn])

    return kernel


def in_rows(case: Case, args: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arguments with scales as `waited` takes them: (rows, scales)."""
    kind = ml_dtypes.float8_e4m3fn if case.grain == 16 else ml_dtypes.float8_e8m0fnu
    made = dict(args)
    for name, rows in (("SFA", case.m), ("SFB", case.n)):
        codes = args[name].view("u1").reshape(case.groups, rows, 4).transpose(1, 0, 2)
        codes = codes.reshape(rows, -1)[:, : case.k // case.grain]
        made[name] = np.ascontiguousarray(codes).view(kind)
    return made


class Scaled(Subject):
    """One of these products, for the tests of the simulator."""

    def __init__(self, case: Case, make: Callable[[Case], Any], arch: str) -> None:
        args = case.arguments()
        want = case.want(args)
        args = in_rows(case, args) if make is waited else args
        super().__init__(make(case), arch, args, want, 0.0, result=("C", "float32"))
