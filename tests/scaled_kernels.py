"""Block-scaled products that a kernel issues and waits for by itself, with what they must give:
one warp loads, one transposes scales, and one copies them to Tensor Memory and multiplies.
"""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import tilelang.language as T

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

    @property
    def groups(self) -> int:
        """Words of four scales that a row has."""
        return -(-self.k // (4 * self.grain))

    def arguments(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Small numbers, so that sums are exact, and scales around 1."""
        rng = np.random.default_rng(seed)
        b = (self.n, self.k) if self.turned else (self.k, self.n)
        kind = getattr(ml_dtypes, self.dtype)
        made = {
            name: rng.integers(-3, 4, shape).astype(kind)
            for name, shape in (("A", (self.m, self.k)), ("B", b))
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


def issued(case: Case) -> Any:
    """The product, by one block for each tile."""
    m, n, k, stages, dtype, turned = (
        case.m,
        case.n,
        case.k,
        case.stages,
        case.dtype,
        case.turned,
    )
    bm, bn, bk = case.tiles
    period, rounds, wide = max(1, 4 * case.grain // bk), k // bk, -(-bn // CHUNK) * CHUNK

    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), dtype),
        B: T.Tensor((n, k) if turned else (k, n), dtype),
        SFA: T.Tensor((case.groups * m,), "uint32"),
        SFB: T.Tensor((case.groups * n,), "uint32"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(m // bm, n // bn, threads=128) as (bx, by):
            a = T.alloc_shared((stages, bm, bk), dtype)
            b = T.alloc_shared((stages, bn, bk) if turned else (stages, bk, bn), dtype)
            sa = T.alloc_shared((stages, CHUNK), "uint32")
            sb = T.alloc_shared((stages, wide), "uint32")
            c, out = T.alloc_tmem((bm, bn), "float32"), T.alloc_fragment((bm, bn), "float32")
            ta, tb = T.alloc_tmem((128, 4), "uint32"), T.alloc_tmem((128, wide // 32), "uint32")
            loaded, ready = T.alloc_barrier([32] * stages), T.alloc_barrier([32] * stages)
            consumed, full = T.alloc_barrier([1] * stages), T.alloc_barrier([1])
            tx = T.get_thread_binding()
            if tx < 32:
                for ko in T.serial(rounds):
                    s = ko % stages
                    T.mbarrier_wait_parity(consumed[s], ko // stages % 2 ^ 1)
                    T.tma_copy(A[bx * bm, ko * bk], a[s, :, :], barrier=loaded[s])
                    if turned:
                        T.tma_copy(B[by * bn, ko * bk], b[s, :, :], barrier=loaded[s])
                    else:
                        T.tma_copy(B[ko * bk, by * bn], b[s, :, :], barrier=loaded[s])
                    if ko % period == 0:
                        g = ko // period
                        T.tma_copy(SFA[g * m + bx * bm], sa[s, :], barrier=loaded[s])
                        T.tma_copy(SFB[g * n + by * bn], sb[s, :], barrier=loaded[s])
                    T.mbarrier_arrive(loaded[s])
            elif tx < 64:
                for ko in T.serial(rounds):
                    s = ko % stages
                    T.mbarrier_wait_parity(loaded[s], ko // stages % 2)
                    T.mbarrier_wait_parity(ready[s], ko // stages % 2)
                    if ko % period == 0:
                        T.tcgen05_cp_warpx4(sa[s, :], ta)
                        T.tcgen05_cp_warpx4(sb[s, :], tb)
                    T.tcgen05_gemm_blockscaled(
                        a[s, :, :],
                        b[s, :, :],
                        c,
                        ta,
                        tb,
                        transpose_B=turned,
                        mbar=consumed[s],
                        clear_accum=ko == 0,
                        k_start=ko * bk,
                        sf_a_granularity_k=case.grain,
                        sf_b_granularity_k=case.grain,
                    )
                T.tcgen05_mma_arrive(full)
            elif tx < 96:
                for ko in T.serial(rounds):
                    s = ko % stages
                    T.mbarrier_wait_parity(loaded[s], ko // stages % 2)
                    if ko % period == 0:
                        T.tcgen05_sf_warp_transpose(sa[s, :])
                        T.tcgen05_sf_warp_transpose(sb[s, :])
                        T.fence_proxy_async()
                    T.mbarrier_arrive(ready[s])
            T.mbarrier_wait_parity(full, 0)
            T.copy(c, out)
            T.copy(out, C[bx * bm, by * bn])

    return kernel
