"""Kernels with every form of every operation that the simulator of the 950 runs.

What enters: nothing. What leaves: `mainline()`, kernels by name with the options that they are
compiled with. Tables of the language and of the chip say which forms there are.
"""

import operator
from collections.abc import Callable, Iterator
from typing import Any

import tilelang.ascend.language as M
from ascend_forms import SYMBOLS, WORDS, Body, Kernels
from tilelang.dtypes import DType
from tilelang.errors import TileError
from tilelang.ir.ascend_simd import MERGED, SIMD_OPS
from tilelang.targets.ascend.machine import ASCEND950

# ---- Threads, and tiles --------------------------------------------------------------------------


def threads(dtype: str, body: Body) -> Any:
    """`body(c, a, i)` of each element `i` of tiles, by threads."""

    @M.prim_func
    def kernel(A: M.Tensor((256,), dtype), C: M.Tensor((256,), dtype)):
        with M.Kernel(1):
            a, c = M.alloc_shared((256,), dtype), M.alloc_shared((256,), dtype)
            M.copy(A, a)
            with M.SimtVF(threads=128):
                for i in M.Parallel(256):
                    body(c, a, i)
            M.copy(c, C)

    return kernel


MATHS = [
    "exp",
    "exp2",
    "exp10",
    "log",
    "log2",
    "log10",
    "log1p",
    "sqrt",
    "rsqrt",
    "sin",
    "cos",
    "tan",
    "tanh",
    "sinh",
    "cosh",
    "floor",
    "ceil",
    "trunc",
    "round",
    "nearbyint",
    "abs",
    "erf",
    "sigmoid",
    "asin",
    "acos",
    "atan",
    "isnan",
    "isinf",
    "isfinite",
]


def _thread_maths(c: Any, a: Any, i: Any) -> None:
    for name in MATHS:
        c[i] = M.cast(getattr(M, name)(a[i]), str(a.dtype))
    if str(a.dtype) == "float32":
        c[i] = M.fast_rcp(a[i])
    c[i] = M.pow(a[i], a[i])
    c[i] = M.fmod(a[i], a[i])
    c[i] = M.atan2(a[i], a[i])
    c[i] = M.copysign(a[i], a[i])
    c[i] = M.fma(a[i], a[i], a[i])


def _thread_numbers(c: Any, a: Any, i: Any) -> None:
    real = str(a.dtype).startswith(("float", "bfloat"))
    for op in ("+", "-", "*", "min", "max"):
        c[i] = SYMBOLS[op](a[i], a[255 - i])
    for op in ("/",) if real else ("&", "|", "^", "<<", ">>"):
        c[i] = SYMBOLS[op](a[i], a[255 - i])
    if not real:
        c[i] = a[i] // 3 + a[i] % a[255 - i]
        c[i] = ~a[i]
        c[i] = M.popcount(a[i])
        c[i] = M.clz(a[i])
    c[i] = M.if_then_else(a[i] >= c[i], a[i], 2)
    if not str(a.dtype).startswith("uint"):
        c[i] = -M.abs(a[i])
    for other in (*WORDS, "float8_e4m3fn", "float8_e5m2", "int64", "bool"):
        c[i] = M.cast(M.cast(a[i], other), str(a.dtype))


def together(dtype: str) -> Any:
    """What threads do together: reductions, scans, shuffles, atomics, barriers."""

    @M.prim_func
    def kernel(A: M.Tensor((8, 64), dtype), C: M.Tensor((8, 64), dtype)):
        with M.Kernel(1):
            a, c = M.alloc_shared((8, 64), dtype), M.alloc_shared((8, 64), dtype)
            M.copy(A, a)
            with M.SimtVF(threads=64):
                x = M.alloc_fragment((8, 64), dtype)
                y = M.alloc_fragment((8,), dtype)
                z = M.alloc_fragment((64,), dtype)
                M.copy(a, x)
                for op in ("sum", "max", "min", "abssum", "absmax"):
                    getattr(M, f"reduce_{op}")(x, y, dim=1)
                    getattr(M, f"reduce_{op}")(x, z, dim=0)
                for op in ("bitand", "bitor", "bitxor") if dtype.startswith("int") else ():
                    getattr(M, f"reduce_{op}")(x, y, dim=1)
                M.cumsum(x, x, dim=1)
                M.fill(x, 1)
                M.clear(z)
                for i in M.Parallel(8):
                    c[i, 0] = y[i]
                t = M.get_thread_binding()
                for shuffle in (M.shfl_xor, M.shfl_down, M.shfl_up, M.shfl_sync):
                    c[0, t] = shuffle(a[0, t], 1)
                M.sync_threads()
                M.sync_warp()
            M.copy(c, C)

    return kernel


def of_tiles(dtype: str) -> Any:
    """Operations on tiles of UB outside of a function."""
    whole = dtype.startswith(("int", "uint"))
    signs = ("&", "|", "^", "<<", ">>") if whole else ("/", "min", "max")
    both = [SYMBOLS[sign] for sign in ("+", "-", "*", *signs)]
    names = () if whole else ("exp", "log", "sqrt", "rsqrt", "sigmoid", "sin", "cos", "tanh")
    alone = (operator.neg, M.abs) if not dtype.startswith("uint") else (operator.invert,)

    @M.prim_func
    def kernel(A: M.Tensor((8, 64), dtype), n: M.int32, C: M.Tensor((8, 64), dtype)):
        with M.Kernel(1):
            a, b, c = (M.alloc_shared((8, 64), dtype) for _ in range(3))
            m = M.alloc_shared((8,), dtype)
            w = M.alloc_shared((64,), dtype)
            M.copy(A, a)
            M.copy(A[n, 0], w)
            for op in both:
                for i, j in M.Parallel(8, 64):
                    c[i, j] = op(a[i, j], b[i, j])
                for i, j in M.Parallel(8, 64):
                    c[i, j] = op(a[i, j], 3)
            for name in names:
                for i, j in M.Parallel(8, 64):
                    c[i, j] = getattr(M, name)(a[i, j])
            for fn in alone:
                for i, j in M.Parallel(8, 64):
                    c[i, j] = fn(a[i, j])
            for i, j in M.Parallel(8, 64):
                c[i, j] = M.if_then_else(a[i, j] > b[i, j], a[i, j], 2)
            for i, j in M.Parallel(8, 64):
                c[i, j] = a[i, j] + m[i]
            M.copy(c, C)

    return kernel


def of_whole_tiles(dtype: str) -> Any:
    """Conversions, reductions and fills of tiles of UB outside of a function."""
    whole = dtype.startswith(("int", "uint"))
    plain = ("sum", "max", "min", *(("bitand", "bitor", "bitxor") if whole else ()))

    @M.prim_func
    def kernel(A: M.Tensor((8, 64), dtype), C: M.Tensor((8, 64), dtype)):
        with M.Kernel(1):
            a, b, c = (M.alloc_shared((8, 64), dtype) for _ in range(3))
            m, w = M.alloc_shared((8,), dtype), M.alloc_shared((64,), dtype)
            M.copy(A, a)
            for other in ("float32", "float16", "int32"):
                if other != dtype:
                    M.copy(a, M.alloc_shared((8, 64), other))
            for op in (*plain, "abssum", "absmax"):
                getattr(M, f"reduce_{op}")(a, m, dim=1)
                getattr(M, f"reduce_{op}")(a, w, dim=0)
            for op in plain:
                getattr(M, f"reduce_{op}")(a, w, dim=0, clear=False)
            M.copy(a, b)
            M.fill(b, 3)
            M.clear(b)
            M.copy(c, C)

    return kernel


S, MERGE = M.simd, "MODE_MERGING"
REGISTERS = (*WORDS, "int64", "uint64", "float8_e4m3fn", "float8_e5m2")


def tried(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What a call gives, or None: the language refuses a type that the operation hasn't."""
    try:
        return call(*args, **options)
    except TileError:
        return None


def registers(dtype: str) -> Any:
    """Every function of registers of one type, with elements that become zero and that stay."""
    size = DType(dtype).bytes
    n, width = 256 // size, 8 * size

    @M.prim_func
    def kernel(
        A: M.Tensor((2 * n,), dtype), I: M.Tensor((64,), "uint32"), C: M.Tensor((n,), dtype)
    ):
        with M.Kernel(1):
            a, c = M.alloc_shared((2 * n,), dtype), M.alloc_shared((n,), dtype)
            at = M.alloc_shared((64,), "uint32")
            M.copy(A, a)
            M.copy(I, at)
            with M.SimdVF():
                x, y = S.vld(a[0]), S.vld(a[n])
                index = S.vld(at[0])
                mask = S.update_mask(7, width) if width <= 32 else None
                held = {name: S.alloc_var(name) for name in REGISTERS}
                held[dtype][0] = x
                _arithmetic(x, y, mask, held)
                _moved(x, y, mask, dtype, a, c, index)
                if mask is not None:
                    held[dtype][0] = S.vdup(3, dtype, mask, mode=MERGE)
                    held[dtype][0] = S.vdupv(x, mask, mode=MERGE)
                _converted(x, held)
                for dist in LOADS:
                    tried(S.vld, a[0], dist)
                for dist in STORES:
                    tried(S.vsts, c[0], x, None, dist)
                for dist in ("DINTLV_B8", "DINTLV_B16", "DINTLV_B32"):
                    tried(S.vld2, a[0], dist)
                p = S.make_ubuf_ptr(a[0], dtype)
                if width <= 32:
                    _z, p = S.vld(p, post_inc=8)
                    S.vsstb(x, c[0], 0x10008)
                    q = S.make_ubuf_ptr(c[0], dtype)
                    q = S.vsstb(x, q, 0x10000, update=True)
                S.mem_bar("VST_VLD")
            M.copy(c, C)

    return kernel


LOADS = [f"{w}_B{b}" for w in ("BRC", "US", "DS", "UNPK", "UNPK4") for b in (8, 16, 32)]
LOADS += ["NORM", "BLK", "E2B_B16", "E2B_B32"]
STORES = [f"{w}_B{b}" for w in ("NORM", "ONEPT", "PK", "PK4") for b in (8, 16, 32, 64)]
ROUNDS = ("ROUND_R", "ROUND_F", "ROUND_C", "ROUND_Z", "ROUND_A")


def _arithmetic(x: Any, y: Any, mask: Any, held: Any) -> None:
    """Operations that give elements from elements."""
    second = {"vvm": (y,), "vsm": (3,), "vm": ()}
    for name, fn in SIMD_OPS.items():
        if fn.results == "v" and fn.args in second and name not in MOVED_BY:
            args = second[fn.args]
            tried(getattr(S, name), x, *args, mask)
            if name in MERGED and mask is not None:
                made = tried(getattr(S, name), x, *args, mask, mode=MERGE)
                if made is not None:
                    held[str(made.dtype.base)][0] = made
    for name in ("vmula", "vmadd", "vaxpy"):
        for mode in ("MODE_ZEROING", MERGE):
            tried(
                getattr(S, name),
                held[str(x.dtype.base)],
                x,
                3 if name == "vaxpy" else y,
                mask,
                mode=mode,
            )
    both = tried(S.vaddc, x, y)
    if both is not None:
        S.vsubc(x, y)
        S.vaddcs(x, y, both[0])
        S.vsubcs(x, y, both[0])
        S.vmull(x, y)


MOVED_BY = ("vdup", "vdupv", "vcvt", "vsel", "dhistv2", "chistv2", "vsqz", "vgatherb")


def _moved(x: Any, y: Any, _: Any, dtype: str, a: Any, c: Any, index: Any) -> None:
    """Operations that move elements, compare and choose."""
    tried(S.vdup, 3, dtype)
    for pos in ("POS_LOWEST", "POS_HIGHEST"):
        tried(S.vdupv, x, None, pos)
    for order in ("INC_ORDER", "DEC_ORDER"):
        tried(S.vci, 3, dtype, order)
    for op in ("eq", "ne", "gt", "ge", "lt", "le"):
        chosen = tried(S.vcmp, x, y, op=op)
        tried(S.vcmps, x, 3, op=op)
        if chosen is not None:
            S.vsel(x, y, chosen)
            tried(S.vsqz, x, chosen)
            tried(S.vusqz, chosen, dtype)
    tried(S.vintlv, x, y)
    tried(S.vdintlv, x, y)
    for part in (0, 1):
        tried(S.vpack, x, part)
        tried(S.vunpack, x, part)
    tried(S.vselr, x, y)
    tried(S.vgather2, a[0], index)
    tried(S.vgatherb, a[0], index)
    tried(S.vscatter, x, c[0], index)


def _converted(x: Any, held: Any) -> None:
    """A register in every other type, by every mode."""
    for target in REGISTERS:
        for rounding in ROUNDS:
            for sat in ("RS_ENABLE", "RS_DISABLE"):
                tried(S.vcvt, x, target, round=rounding, sat=sat)
        made = tried(S.vcvt, x, target, round=ROUNDS[0], sat="RS_ENABLE", mode=MERGE)
        if made is not None:
            held[target][0] = made


def predicates() -> Any:
    """Predicates, and histograms."""

    @M.prim_func
    def kernel(A: M.Tensor((256,), "uint8"), C: M.Tensor((256,), "uint8")):
        with M.Kernel(1):
            a, c = M.alloc_shared((256,), "uint8"), M.alloc_shared((256,), "uint8")
            M.copy(A, a)
            with M.SimdVF():
                x = S.vld(a[0])
                for width in (8, 16, 32):
                    p, q = S.pset(width), S.pge(width, "PAT_VL4")
                    S.update_mask(3, width)
                    S.pintlv(p, q, width)
                    S.pdintlv(p, q, width)
                for fn in (S.pand, S.por, S.pxor, S.psel):
                    fn(p, q, p)
                S.pnot(p, q)
                for part in (0, 1):
                    S.ppack(p, part)
                    S.punpack(p, part)
                for dist in ("NORM", "US", "DS"):
                    S.pst(c[0], S.pld(a[0], dist=dist))
                S.pst(c[0], p, dist="PK")
                counts = S.alloc_var("uint16")
                counts[0] = S.vdup(0, "uint16")
                for half in (0, 1):
                    S.dhistv2(counts, x, None, half)
                    S.chistv2(counts, x, None, half)
            M.copy(c, C)

    return kernel


def tiles_of_cube(dtype: str, out: str) -> Any:
    """A product from L1, with cut tiles, and its drain to global memory."""
    wide = "int32" if dtype == "int8" else "float32"

    @M.prim_func
    def kernel(
        A: M.Tensor((60, 60), dtype),
        B: M.Tensor((32, 64), dtype),
        n: M.int32,
        C: M.Tensor((32, 32), out),
    ):
        with M.Kernel(1):
            a, b = M.alloc_l1((32, 64), dtype), M.alloc_l1((32, 64), dtype)
            c = M.alloc_l0c((32, 32), wide)
            M.fill(a, 1)
            M.copy(A[n, 0], a)
            M.copy(B, b)
            M.gemm(a, b, c, transpose_B=True, clear_accum=True)
            M.copy(c, C)

    return kernel


def l0_of_cube(dtype: str, left: bool, right: bool) -> Any:
    """A product from L0A and L0B in one of the four transposes."""
    wide = "int32" if dtype == "int8" else "float32"
    shapes = ((64, 32) if left else (32, 64)), ((32, 64) if right else (64, 32))

    @M.prim_func
    def kernel(
        A: M.Tensor(shapes[0], dtype), B: M.Tensor(shapes[1], dtype), C: M.Tensor((32, 32), wide)
    ):
        with M.Kernel(1):
            a1, b1 = M.alloc_l1(shapes[0], dtype), M.alloc_l1(shapes[1], dtype)
            a0, b0 = M.alloc_l0a(shapes[0], dtype), M.alloc_l0b(shapes[1], dtype)
            c = M.alloc_l0c((32, 32), wide)
            M.copy(A, a1)
            M.copy(B, b1)
            M.copy(a1, a0)
            M.copy(b1, b0)
            M.gemm(a0, b0, c, transpose_A=left, transpose_B=right, clear_accum=True)
            M.copy(c, C)

    return kernel


def across(dtype: str) -> Any:
    """What goes from one kind of core to the other, and drains to UB by each type."""

    @M.prim_func
    def kernel(
        A: M.Tensor((64, 64), "float16"),
        B: M.Tensor((64, 64), "float16"),
        C: M.Tensor((64, 64), dtype),
    ):
        with M.Kernel(1):
            a, b = M.alloc_l1((64, 64), "float16"), M.alloc_l1((64, 64), "float16")
            c = M.alloc_l0c((64, 64), "float32")
            u, v = M.alloc_shared((32, 64), dtype), M.alloc_shared((32, 64), "float16")
            M.dual_copy(A, v)
            with M.SimtVF(threads=64):
                for i, j in M.Parallel(32, 64):
                    v[i, j] = v[i, j] * 2.0
            M.dual_copy(v, a)
            M.copy(B, b)
            M.gemm(a, b, c, transpose_B=True, clear_accum=True)
            if dtype == "float32":
                M.dual_copy(c, u)
            else:
                M.copy(c[0:32, :], u)
            M.dual_copy(u, C)

    return kernel


def by_hand() -> Any:
    """Flags, mutexes, barriers, modes, by the author."""

    @M.prim_func
    def kernel(A: M.Tensor((64,), "float32"), C: M.Tensor((64,), "float32")):
        with M.MixedKernel(2, sids=2) as (_, _sid):
            a = M.alloc_shared((64,), "float32")
            with M.Cube():
                for mode in (None, "nearest_even", "nearest_zero"):
                    tried(M.set_hf32_mode, mode)
                for direction in ("m", "n"):
                    tried(M.set_mmad_direction, direction)
                M.ascend_cross_core_set_flag(2, "PIPE_FIX", 0)
                M.ascend_cross_core_set_flag(4, "PIPE_FIX", 3)
                M.ascend_cross_core_set_flag(4, "PIPE_FIX", 19)
            with M.Vector():
                M.ascend_cross_core_wait_flag(2, "PIPE_MTE3", 0)
                M.ascend_cross_core_wait_flag(4, "PIPE_MTE3", 3)
                M.ascend_get_buf("PIPE_MTE2", 0, 0)
                tried(M.ascend_set_copy_pad_value, 1.0, "float32")
                M.copy(A, a)
                M.ascend_rls_buf("PIPE_MTE2", 0, 0)
                M.ascend_pipe_barrier("PIPE_ALL")
                M.ascend_set_flag("MTE2_MTE3", 0)
                M.ascend_wait_flag("MTE2_MTE3", 0)
                for op in ("add", "max", "min"):
                    for dtype in ("float32", "float16", "bfloat16", "int8", "int16", "int32"):
                        M.set_atomic(op, dtype)
                M.copy(a, C)
                M.set_atomic_none()
                tried(M.sync_all)
                tried(M.ascend_sync_inter_arrive, "PIPE_MTE3", 5)
                tried(M.ascend_sync_inter_wait, "PIPE_MTE3", 5)

    return kernel


def ended() -> Any:
    """Copies whose rows end with a number, and copies of fractals of UB to L1."""

    @M.prim_func
    def kernel(A: M.Tensor((16, 60), "float32"), C: M.Tensor((16, 64), "float32")):
        with M.Kernel(1), M.Vector():
            a = M.alloc_shared((16, 64), "float32")
            M.ascend_set_copy_pad_value(1.0, "float32")
            M.copy(A, a[:, 0:60], data_select=True)
            M.copy(A, a[:, 0:60], pad_value=2.0)
            M.copy(a, C)

    return kernel


def fractals() -> Any:
    """Fractals that a vector core has made, and a tile that is turned on its way to L1."""

    @M.prim_func
    def kernel(
        A: M.Tensor((32, 32), "float16"),
        B: M.Tensor((32, 32), "float16"),
        C: M.Tensor((32, 32), "float32"),
    ):
        with M.MixedKernel(1) as (_, sid):
            u = M.alloc_shared((16, 32), "float16")
            packed = M.alloc_shared((2 * 17 * 16,), "float16")
            a, b = M.alloc_l1((32, 32), "float16"), M.alloc_l1((32, 32), "float16")
            c = M.alloc_l0c((32, 32), "float32")
            M.copy(A[sid * 16, 0], u)
            with M.SimtVF(threads=128):
                for i, j in M.Parallel(16, 32):
                    packed[j // 16 * (17 * 16) + i * 16 + j % 16] = u[i, j]
            M.ascend_nd2nz_post_copy(a[sid * 16, 0], packed[0], 16, 32, 32, "float16")
            M.copy(B, b, transpose=True)
            M.gemm(a, b, c, transpose_B=True, clear_accum=True)
            M.copy(c, C)

    return kernel


def filled_l1() -> Any:
    """A tile of L1 full of a number that is known when the kernel runs."""

    @M.prim_func
    def kernel(x: M.float32, C: M.Tensor((16, 16), "float32")):
        with M.Kernel(1):
            a, c = M.alloc_l1((16, 32), "float32"), M.alloc_l0c((16, 16), "float32")
            M.fill(a, x)
            M.gemm(a, a, c, transpose_B=True, clear_accum=True)
            M.copy(c, C)

    return kernel


def mx(dtype: str, scales: str, by_l0: bool) -> Any:
    """A product of MX tiles."""
    per = 64 if scales == "uint16" else 32

    @M.prim_func
    def kernel(
        A: M.Tensor((32, 128), dtype),
        B: M.Tensor((32, 128), dtype),
        SA: M.Tensor((32, 128 // per), scales),
        SB: M.Tensor((32, 128 // per), scales),
        C: M.Tensor((32, 32), "float32"),
    ):
        with M.Kernel(1):
            a, b = M.alloc_l1((32, 128), dtype), M.alloc_l1((32, 128), dtype)
            sa, sb = (M.alloc_l1((32, 128 // per), scales) for _ in range(2))
            c = M.alloc_l0c((32, 32), "float32")
            M.copy(A, a)
            M.copy(B, b)
            M.copy(SA, sa)
            M.copy(SB, sb)
            if by_l0:
                a0, b0 = M.alloc_l0a((32, 128), dtype), M.alloc_l0b((32, 128), dtype)
                sa0 = M.alloc_l0a_sf(a0, scales, sf_shape=(32, 128 // per))
                sb0 = M.alloc_l0b_sf(b0, scales, sf_shape=(32, 128 // per))
                for source, target in ((a, a0), (b, b0), (sa, sa0), (sb, sb0)):
                    M.copy(source, target)
                M.gemm_blockscaled(a0, b0, c, sa0, sb0, transpose_B=True, clear_accum=True)
            else:
                M.gemm_blockscaled(a, b, c, sa, sb, transpose_B=True, clear_accum=True)
            M.copy(c, C)

    return kernel


REAL = ("float32", "float16", "bfloat16")
ELEMENTS = ("float16", "bfloat16", "float32", "int8", "float8_e4m3fn", "float8_e5m2")
MX = ("float8_e4m3fn", "float8_e5m2", "float4_e2m1fn")


def _by_type() -> Iterator[tuple[str, Any]]:
    for dtype in REAL:
        yield f"maths {dtype}", threads(dtype, _thread_maths)
    for dtype in WORDS:
        yield f"numbers {dtype}", threads(dtype, _thread_numbers)
        yield f"of tiles {dtype}", of_tiles(dtype)
        yield f"of whole tiles {dtype}", of_whole_tiles(dtype)
    for dtype in (*REAL, "int32"):
        yield f"together {dtype}", together(dtype)
    for dtype in REGISTERS:
        yield f"registers {dtype}", registers(dtype)


def _products(dtype: str) -> Iterator[tuple[str, Any]]:
    wide = "int32" if dtype == "int8" else "float32"
    for source, out in sorted(ASCEND950.drains or ()):
        if source == wide and (out == wide or dtype in ("float16", "int8")):
            yield f"product {dtype} {out}", tiles_of_cube(dtype, out)
    for left in (False, True):
        for right in (False, True):
            yield f"by L0 {dtype} {left} {right}", l0_of_cube(dtype, left, right)


def mainline() -> Kernels:
    """Kernels for the 950."""
    made = [*_by_type(), *(pair for dtype in ELEMENTS for pair in _products(dtype))]
    for source, out in sorted(ASCEND950.drains or ()):
        if source == "float32":
            made.append((f"across {out}", across(out)))
    made += [
        (f"mx {dtype} {scales} {level}", mx(dtype, scales, level))
        for dtype in MX
        for scales in ("uint8", "uint16")
        for level in (False, True)
    ]
    made += [("predicates", predicates()), ("by hand", by_hand()), ("ended", ended())]
    made += [("fractals", fractals()), ("filled L1", filled_l1())]
    for name, kernel in made:
        yield name, kernel, {}
