"""The kernels that `make ascend-verify` compares, in the mainline Ascend dialect.

What leaves: `CASES`. Both sides read this file: the generator of the `tilelang` wheel in its own
environment, and this project in the other; so it keeps to what the two have in common. Three
kernels keep away from what the wheel gets wrong. `simd_reduce` names its instructions, because
`T.reduce_sum` in a SIMD function stores its results 64 elements apart there; a row of `rms_norm`
belongs to one warp, because a reduction over several gives the total of the first group of threads
to all of them; `showcase` does without `T.clear`, which is refused on its buffers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import tilelang.ascend.language as T


def simt_add(n: int = 1024, block: int = 256) -> Any:
    @T.prim_func
    def kernel(
        A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32"), C: T.Tensor((n,), "float32")
    ):
        with T.Kernel(n // block) as bx:
            a = T.alloc_shared((block,), "float32")
            b = T.alloc_shared((block,), "float32")
            c = T.alloc_shared((block,), "float32")
            T.copy(A[bx * block], a)
            T.copy(B[bx * block], b)
            with T.SimtVF(threads=128):
                for i in T.Parallel(block):
                    c[i] = a[i] + b[i]
            T.copy(c, C[bx * block])

    return kernel


def simd_add(n: int = 1024, block: int = 256) -> Any:
    @T.prim_func
    def kernel(
        A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32"), C: T.Tensor((n,), "float32")
    ):
        with T.Kernel(n // block) as bx:
            a = T.alloc_shared((block,), "float32")
            b = T.alloc_shared((block,), "float32")
            c = T.alloc_shared((block,), "float32")
            T.copy(A[bx * block], a)
            T.copy(B[bx * block], b)
            with T.SimdVF():
                for i in T.serial(block // 64):
                    x = T.simd.vld(a[i * 64])
                    y = T.simd.vld(b[i * 64])
                    T.simd.vsts(c[i * 64], T.simd.vadd(x, y))
            T.copy(c, C[bx * block])

    return kernel


def simd_reduce(m: int = 8, n: int = 128) -> Any:
    @T.prim_func
    def kernel(A: T.Tensor((m, n), "float32"), B: T.Tensor((m,), "float32")):
        with T.Kernel(1):
            a = T.alloc_shared((m, n), "float32")
            b = T.alloc_shared((m,), "float32")
            T.copy(A, a)
            with T.SimdVF():
                for i in T.serial(m):
                    x = T.simd.vld(a[i, 0])
                    y = T.simd.vld(a[i, 64])
                    T.simd.vsts(b[i], T.simd.vcadd(T.simd.vadd(x, y)), dist="ONEPT_B32")
            T.copy(b, B)

    return kernel


def gemm_l0(M: int = 64, N: int = 32, K: int = 48) -> Any:
    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((N, K), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(1), T.Cube():
            a1 = T.alloc_l1((M, K), "float16")
            b1 = T.alloc_l1((N, K), "float16")
            a0 = T.alloc_l0a((M, K), "float16")
            b0 = T.alloc_l0b((N, K), "float16")
            c0 = T.alloc_l0c((M, N), "float32")
            T.copy(A, a1)
            T.copy(B, b1)
            T.ascend_set_flag("MTE2_MTE1", 0)
            T.ascend_wait_flag("MTE2_MTE1", 0)
            T.copy(a1, a0)
            T.copy(b1, b0)
            T.ascend_set_flag("MTE1_M", 0)
            T.ascend_wait_flag("MTE1_M", 0)
            T.gemm(a0, b0, c0, transpose_B=True, clear_accum=True)
            T.ascend_set_flag("M_FIX", 0)
            T.ascend_wait_flag("M_FIX", 0)
            T.copy(c0, C)

    return kernel


def gemm_relu(M: int = 64, N: int = 32, K: int = 64) -> Any:
    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((N, K), "float16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(1):
            a1 = T.alloc_l1((M, K), "float16")
            b1 = T.alloc_l1((N, K), "float16")
            c0 = T.alloc_l0c((M, N), "float32")
            u = T.alloc_shared((M // 2, N), "float32")
            T.copy(A, a1)
            T.copy(B, b1)
            T.gemm(a1, b1, c0, transpose_B=True, clear_accum=True)
            T.dual_copy(c0, u)
            with T.SimtVF(threads=128):
                for i, j in T.Parallel(M // 2, N):
                    u[i, j] = T.max(u[i, j], 0.0)
            T.dual_copy(u, C)

    return kernel


def rms_norm(m: int = 64, n: int = 64, bm: int = 16) -> Any:
    rounds = m // bm // 2

    @T.prim_func
    def kernel(A: T.Tensor((m, n), "float32"), B: T.Tensor((m, n), "float32")):
        with T.Kernel(2) as bx:
            a = T.alloc_shared((bm, n), "float32")
            b = T.alloc_shared((bm, n), "float32")
            for k in T.Pipelined(rounds, num_stages=2):
                T.copy(A[(bx * rounds + k) * bm, 0], a)
                with T.SimtVF(threads=128):
                    f = T.alloc_fragment((bm, n), "float32")
                    s = T.alloc_fragment((bm,), "float32")
                    p = T.alloc_fragment((bm, n), "float32")
                    T.copy(a, f)
                    for i, j in T.Parallel(bm, n):
                        p[i, j] = f[i, j] * f[i, j]
                    T.reduce_sum(p, s, dim=1)
                    for i in T.Parallel(bm):
                        s[i] = T.rsqrt(s[i] / n + 1e-6)
                    for i, j in T.Parallel(bm, n):
                        f[i, j] = f[i, j] * s[i]
                    T.copy(f, b)
                T.copy(b, B[(bx * rounds + k) * bm, 0])

    return kernel


def fp8_cast(n: int = 1024, block: int = 256) -> Any:
    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), C: T.Tensor((n,), "float8_e4m3fn")):
        with T.Kernel(n // block) as bx:
            a = T.alloc_shared((block,), "float32")
            c = T.alloc_shared((block,), "float8_e4m3fn")
            T.copy(A[bx * block], a)
            with T.SimtVF(threads=128):
                for i in T.Parallel(block):
                    c[i] = T.cast(a[i], "float8_e4m3fn")
            T.copy(c, C[bx * block])

    return kernel


def atomic_add(n: int = 1024, block: int = 256) -> Any:
    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), C: T.Tensor((block,), "float32")):
        with T.Kernel(n // block) as bx:
            a = T.alloc_shared((block,), "float32")
            T.copy(A[bx * block], a)
            T.set_atomic("add", "float32")
            T.copy(a, C)
            T.set_atomic_none()

    return kernel


def showcase(M: int = 512, N: int = 224, K: int = 128, BM: int = 256, BN: int = 224) -> Any:
    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "bfloat16"),
        B: T.Tensor((N, K), "bfloat16"),
        C: T.Tensor((M, N), "float32"),
    ):
        with T.Kernel(M // BM) as bx:
            A_l1 = T.alloc_l1((BM, K), "bfloat16")
            B_l1 = T.alloc_l1((BN, K), "bfloat16")
            C_l0c = T.alloc_l0c((BM, BN), "float32")
            C_ub = T.alloc_shared((BM // 2, BN), "float32")
            T.copy(A[bx * BM, 0], A_l1)
            T.copy(B[0, 0], B_l1)
            T.gemm(A_l1, B_l1, C_l0c, transpose_B=True)
            T.copy(C_ub, C[bx * BM, 0])

    return kernel


def mx_l1(M: int = 64, N: int = 32, K: int = 128, dtype: str = "float8_e4m3fn") -> Any:
    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K), dtype),
        C: T.Tensor((M, N), "float32"),
        SA: T.Tensor((M, K // 64), "uint16"),
        SB: T.Tensor((N, K // 64), "uint16"),
    ):
        with T.Kernel(1):
            a = T.alloc_l1((M, K), dtype)
            b = T.alloc_l1((N, K), dtype)
            sa = T.alloc_l1((M, K // 64), "uint16")
            sb = T.alloc_l1((N, K // 64), "uint16")
            c = T.alloc_l0c((M, N), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.copy(SA, sa)
            T.copy(SB, sb)
            T.gemm_blockscaled(a, b, c, sa, sb, transpose_B=True, clear_accum=True)
            T.copy(c, C)

    return kernel


def mx_fp4() -> Any:
    return mx_l1(dtype="float4_e2m1fn")


def mx_l0(M: int = 64, N: int = 32, K: int = 128) -> Any:
    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), "float8_e5m2"),
        B: T.Tensor((N, K), "float8_e5m2"),
        C: T.Tensor((M, N), "float32"),
        SA: T.Tensor((M, K // 32), "uint8"),
        SB: T.Tensor((N, K // 32), "uint8"),
    ):
        with T.Kernel(1), T.Cube():
            a1 = T.alloc_l1((M, K), "float8_e5m2")
            b1 = T.alloc_l1((N, K), "float8_e5m2")
            sa1 = T.alloc_l1((M, K // 32), "uint8")
            sb1 = T.alloc_l1((N, K // 32), "uint8")
            a0 = T.alloc_l0a((M, K), "float8_e5m2")
            b0 = T.alloc_l0b((N, K), "float8_e5m2")
            sa0 = T.alloc_l0a_sf(a0, "uint8")
            sb0 = T.alloc_l0b_sf(b0, "uint8")
            c = T.alloc_l0c((M, N), "float32")
            T.copy(A, a1)
            T.copy(B, b1)
            T.copy(SA, sa1)
            T.copy(SB, sb1)
            T.ascend_set_flag("MTE2_MTE1", 0)
            T.ascend_wait_flag("MTE2_MTE1", 0)
            T.copy(a1, a0)
            T.copy(b1, b0)
            T.copy(sa1, sa0)
            T.copy(sb1, sb0)
            T.ascend_set_flag("MTE1_M", 0)
            T.ascend_wait_flag("MTE1_M", 0)
            T.gemm_blockscaled(a0, b0, c, sa0, sb0, transpose_B=True, clear_accum=True)
            T.ascend_set_flag("M_FIX", 0)
            T.ascend_wait_flag("M_FIX", 0)
            T.copy(c, C)

    return kernel


@dataclass(frozen=True)
class Case:
    """One kernel: how it is made, its grid, and its tensors as (shape, dtype, whether written)."""

    make: Callable[[], Any]
    blocks: int
    tensors: tuple[tuple[tuple[int, ...], str, bool], ...]
    configs: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the function that makes it."""
        return self.make.__name__


def pad_register(m: int = 4, n: int = 100) -> Any:
    @T.prim_func
    def kernel(A: T.Tensor((m, n), "float32"), B: T.Tensor((m, 104), "float32")):
        with T.Kernel(1):
            a = T.alloc_shared((m, 104), "float32")
            b = T.alloc_shared((m, 104), "float32")
            T.copy(A, a[0:m, 0:n], pad_value=2.0)
            T.ascend_set_copy_pad_value(3.0, "float32")
            T.copy(A, b[0:m, 0:n], data_select=True)
            with T.SimtVF(threads=128):
                for i, j in T.Parallel(m, 104):
                    a[i, j] = a[i, j] + b[i, j]
            T.copy(a, B)

    return kernel


def simd_merge(n: int = 256) -> Any:
    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1):
            a = T.alloc_shared((n,), "float32")
            b = T.alloc_shared((n,), "float32")
            T.copy(A, a)
            with T.SimdVF():
                some = T.simd.pset(32, "PAT_VL8")
                held = T.simd.alloc_local(2, "float32")
                for i in T.serial(n // 64):
                    x = T.simd.vld(a[i * 64])
                    held[0] = T.simd.vmuls(x, 3.0)
                    held[0] = T.simd.vadds(x, 2.0, some, mode="MODE_MERGING")
                    held[0] = T.simd.vmax(x, held[0], some, mode="MODE_MERGING")
                    held[1] = T.simd.vneg(held[0])
                    held[1] = T.simd.vcadd(x, some, mode="MODE_MERGING")
                    T.simd.vsts(b[i * 64], T.simd.vadd(held[0], held[1]))
            T.copy(b, B)

    return kernel


def simd_moving(n: int = 1024) -> Any:
    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1):
            a = T.alloc_shared((n,), "float32")
            b = T.alloc_shared((n,), "float32")
            T.copy(A, a)
            with T.SimdVF():
                p = T.simd.make_ubuf_ptr(T.access_ptr(a[0], "r", extent=n), "float32")
                q = T.simd.make_ubuf_ptr(b[0], "float32")
                for _ in T.serial(n // 64):
                    x, p = T.simd.vld(p, post_inc=64)
                    q = T.simd.vsstb(x, q, 0x10008, update=True)
            T.copy(b, B)

    return kernel


def simd_bits(n: int = 512) -> Any:
    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1):
            a = T.alloc_shared((n,), "float32")
            b = T.alloc_shared((n,), "float32")
            T.copy(A, a)
            with T.SimdVF():
                x, y = T.simd.vld2(a[0], dist="DINTLV_B32", off=128)
                T.simd.vsts(b[0], x)
                T.simd.vsts(b[64], y)
                T.simd.vsts(b[128], T.simd.vld(a[0]))
                T.simd.vsts(b[192], T.simd.vld(a[64]))
                T.simd.vsts(b[256], T.simd.vld(a[128]))
                T.simd.vsts(b[320], T.simd.vld(a[192]))
                T.simd.vsts(b[384], T.simd.vld(a[256]))
                T.simd.vsts(b[448], T.simd.vld(a[320]))
                T.simd.pst(b[128], T.simd.pld(a[0], dist="US"))
                T.simd.pst(b[160], T.simd.pld(a[32], dist="DS"), dist="PK")
                T.simd.pst(b[192], T.simd.pld(a[64]))
            T.copy(b, B)

    return kernel


def _scaled(make: Callable[[], Any], dtype: str, scales: str, **configs: Any) -> Case:
    k = 64 if scales == "uint16" else 32
    sizes = [((64, 128), dtype), ((32, 128), dtype), ((64, 32), "float32")]
    sizes += [((rows, 128 // k), scales) for rows in (64, 32)]
    tensors = tuple((shape, kind, kind == "float32") for shape, kind in sizes)
    return Case(make, 1, tensors, {f"tl.{name}": value for name, value in configs.items()})


_VECTOR = ((1024,), "float32", False)
_ADDED = (_VECTOR, _VECTOR, ((1024,), "float32", True))
CASES = (
    Case(simt_add, 4, _ADDED),
    Case(simd_add, 4, _ADDED),
    Case(simd_reduce, 1, (((8, 128), "float32", False), ((8,), "float32", True))),
    Case(
        gemm_l0,
        1,
        (((64, 48), "float16", False), ((32, 48), "float16", False), ((64, 32), "float32", True)),
        {"tl.enable_auto_schedule": False},
    ),
    Case(
        gemm_relu,
        1,
        (((64, 64), "float16", False), ((32, 64), "float16", False), ((64, 32), "float32", True)),
    ),
    Case(rms_norm, 2, (((64, 64), "float32", False), ((64, 64), "float32", True))),
    Case(fp8_cast, 4, (_VECTOR, ((1024,), "float8_e4m3fn", True))),
    Case(atomic_add, 4, (_VECTOR, ((256,), "float32", True))),
    Case(
        showcase,
        2,
        (
            ((512, 128), "bfloat16", False),
            ((224, 128), "bfloat16", False),
            ((512, 224), "float32", True),
        ),
    ),
    Case(pad_register, 1, (((4, 100), "float32", False), ((4, 104), "float32", True))),
    Case(simd_merge, 1, (((256,), "float32", False), ((256,), "float32", True))),
    Case(simd_moving, 1, (_VECTOR, ((1024,), "float32", True))),
    Case(simd_bits, 1, (((512,), "float32", False), ((512,), "float32", True))),
    _scaled(mx_l1, "float8_e4m3fn", "uint16"),
    _scaled(mx_fp4, "float4_e2m1fn", "uint16"),
    _scaled(mx_l0, "float8_e5m2", "uint8", enable_auto_schedule=False),
)
