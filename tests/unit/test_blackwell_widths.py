"""Types and widths of Blackwell, one group after the other of what upstream asks of such a chip:
wide accesses, reductions, stochastic rounding, narrow conversions, packed fp4, rows of a swizzled
tile. Numbers against NumPy on the emulator and the simulated chip; machine code without a GPU.
"""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from blackwell_build import check_blackwell
from gpu_build import gpu_program
from tilelang.dtypes import DType, cast
from tilelang.errors import TileTypeError
from tilelang.ir.thread import Elem, Instr, Write
from tilelang.isa.target import parse_target
from tilelang.layout import (
    make_full_bank_swizzled_layout,
    make_half_bank_swizzled_layout,
    make_quarter_bank_swizzled_layout,
)
from tilelang.runtime.arrays import pack_rows, unpack_rows
from tilelang.targets import CHIPS
from tilelang.targets.cuda.nvrtc import compile_source, is_installed
from tilelang.targets.cuda.program import emit

RANDOM = np.random.default_rng(31)
TARGETS = ("emulate:sm_100a", "simulate:sm_100a")
F32 = DType("float32")


def floats(*shape, dtype="float32", spread=3.0):
    return (RANDOM.standard_normal(shape) * spread).astype(DType(dtype).numpy)


def run(fn, *args):
    """What a kernel writes to its last argument; both targets must agree to the last bit."""
    found = []
    for target in TARGETS:
        out = np.zeros_like(args[-1])
        tilelang.compile(fn, target=target)(*args[:-1], out)
        found.append(out)
    assert found[0].tobytes() == found[1].tobytes()
    return found[0]


def machine_code(fn, arch="sm_100a"):
    """The text of a kernel for a chip, after NVRTC has made a cubin of it without a complaint."""
    target = parse_target(f"cuda -arch={arch}", CHIPS)
    text = emit(gpu_program(getattr(fn, "ir", fn), target=target), target).text
    if is_installed():
        assert not compile_source(text, arch).warnings
    return text


# Wide accesses ------------------------------------------------------------------------------------


def accesses(fn) -> set[tuple[str, int]]:
    """(array, bytes in one piece) of the accesses of several elements to global memory."""
    found = set()
    for n in gpu_program(fn.ir, "sm_100a").walk():
        if isinstance(n, (Elem, Write)) and n.array.name in "AB":
            value = n.type if isinstance(n, Elem) else n.value.dtype
            if value.lanes > 1:
                found.add((n.array.name, min(n.align or value.bytes, value.bytes, 16)))
    return found


def test_rounded_elements_move_in_the_widest_pieces():
    @T.prim_func
    def kernel(A: T.Tensor((1024,), "bfloat16"), B: T.Tensor((1024,), "bfloat16")):
        with T.Kernel(1, threads=64):
            f = T.alloc_fragment((1024,), "float32")
            T.copy(A, f)
            T.copy(f, B)

    a = floats(1024, dtype="bfloat16")
    assert run(kernel, a, a).tobytes() == a.tobytes()
    assert accesses(kernel) == {("A", 16), ("B", 16)}


@pytest.mark.parametrize(("bits", "piece"), [(64, 8), (128, 16), (256, 16)])
@pytest.mark.parametrize("shift", [0, 1])
def test_words_at_known_places_move_in_whole_pieces(bits, piece, shift):
    load, store = getattr(T, f"ldg{bits}"), getattr(T, f"stg{bits}")
    per = bits // 32

    @T.prim_func
    def kernel(
        A: T.Tensor((256,), "float32"), I: T.Tensor((1,), "int32"), B: T.Tensor((256,), "float32")
    ):
        with T.Kernel(256 // per, threads=32) as p:
            first = p * per + shift * I[0] * per
            store(B[p * per : p * per + per], load(A[first : first + per]))

    a = floats(256)
    assert np.array_equal(run(kernel, a, np.zeros(1, "int32"), a), a)
    assert accesses(kernel) == {("A", piece), ("B", piece)}


def test_words_at_places_that_are_not_known_move_one_by_one():
    @T.prim_func
    def kernel(
        A: T.Tensor((256,), "float32"), I: T.Tensor((1,), "int32"), B: T.Tensor((256,), "float32")
    ):
        with T.Kernel(16, threads=32) as p:
            T.stg256(B[p * 8 : p * 8 + 8], T.ldg256(A[I[0] + p * 8]))

    a, want = floats(256), np.zeros(256, "float32")
    want[:128] = a[3:131]
    assert np.array_equal(run(kernel, a, np.full(1, 3, "int32"), a), want)
    assert accesses(kernel) == {("A", 4), ("B", 16)}


def test_arithmetic_of_eight_neighbours():
    @T.prim_func
    def kernel(
        A: T.Tensor((127, 8), "float32"),
        B: T.Tensor((127, 8), "float32"),
        C: T.Tensor((3, 127, 8), "float32"),
    ):
        with T.Kernel(1, threads=128):
            for i, v in T.Parallel(127, 8):
                C[0, i, v] = A[i, v] + B[i, v]
                C[1, i, v] = A[i, v] - B[i, v]
                C[2, i, v] = A[i, v] * B[i, v]

    a, b = floats(127, 8), floats(127, 8)
    want = np.stack([a + b, a - b, a * b])
    assert np.array_equal(run(kernel, a, b, np.zeros_like(want)), want)
    machine_code(kernel)


# Reductions ---------------------------------------------------------------------------------------

REDUCTIONS = {
    "sum": lambda a: a.sum(1),
    "abssum": lambda a: abs(a).sum(1),
    "max": lambda a: a.max(1),
    "min": lambda a: a.min(1),
    "absmax": lambda a: abs(a).max(1),
}


@pytest.mark.parametrize("packed", [None, False])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_rows(name, packed):
    """`enable_fadd2` says whether sums may be added in pairs; either is right."""
    reduce = getattr(T, f"reduce_{name}")
    notes = None if packed is None else {"enable_fadd2": packed}

    @T.prim_func
    def kernel(A: T.Tensor((128, 128), "float32"), C: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            f, r = T.alloc_fragment((128, 128), "float32"), T.alloc_fragment((128,), "float32")
            T.copy(A, f)
            reduce(f, r, dim=1, annotations=notes)
            T.copy(r, C)

    a = RANDOM.integers(-99, 100, (128, 128)).astype("float32")
    assert np.array_equal(run(kernel, a, np.zeros(128, "float32")), REDUCTIONS[name](a))


def test_two_rows_at_once_between_threads():
    @T.prim_func
    def kernel(A: T.Tensor((128, 64), "float32"), C: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=256):
            s, r = T.alloc_shared((128, 64), "float32"), T.alloc_fragment((128,), "float32")
            T.copy(A, s, disable_tma=True)
            T.reduce_sum(s, r, dim=1, batch=2)
            T.copy(r, C)

    a = RANDOM.integers(-99, 100, (128, 64)).astype("float32")
    assert np.array_equal(run(kernel, a, np.zeros(128, "float32")), a.sum(1))


def test_two_rows_at_once_between_warps():
    """Each row lies over all threads of the block, eight neighbours with each of them."""

    def where(i, j):
        flat = i * 512 + j
        return flat // 8 % 128, flat // 1024 * 8 + flat % 8

    @T.prim_func
    def kernel(A: T.Tensor((4, 512), "float32"), C: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=128):
            f, r = T.alloc_fragment((4, 512), "float32"), T.alloc_fragment((4,), "float32")
            T.annotate_layout({f: T.Fragment(f.shape, forward_fn=where)})
            T.copy(A, f)
            T.reduce_sum(f, r, dim=1, batch=2)
            T.copy(r, C)

    a = RANDOM.integers(-99, 100, (4, 512)).astype("float32")
    assert np.array_equal(run(kernel, a, np.zeros(4, "float32")), a.sum(1))
    machine_code(kernel)


@pytest.mark.parametrize("value", [0, -3])
def test_a_tile_is_filled_with_a_number_that_is_converted(value):
    @T.prim_func
    def kernel(C: T.Tensor((100,), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((100,), "float32")
            for i in T.Parallel(100):
                s[i] = 1.0
            T.fill(s, T.cast(value, "float32"))
            T.copy(s, C)

    assert np.array_equal(run(kernel, np.ones(100, "float32")), np.full(100, value, "float32"))


# Rows of a swizzled tile --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "swizzled"),
    [
        (64, make_full_bank_swizzled_layout),
        (32, make_half_bank_swizzled_layout),
        (16, make_quarter_bank_swizzled_layout),
    ],
)
def test_four_rows_through_a_swizzled_tile(width, swizzled):
    @T.prim_func
    def kernel(
        A: T.Tensor((64, width), "float16"),
        I: T.Tensor((4,), "int32"),
        B: T.Tensor((64, width), "float16"),
    ):
        with T.Kernel(1, 1, threads=128):
            s, bar = T.alloc_shared((4, width), "float16"), T.alloc_barrier(1)
            T.annotate_layout({s: swizzled(s)})
            rows = [I[0], I[1], I[2], I[3]]
            if T.shuffle_elect(128):
                T.mbarrier_expect_tx(bar, T.tma_gather4_bytes(width, "float16"))
                T.tma_gather4(A, s, 0, rows, barrier=bar)
                T.barrier_arrive(bar)
            T.mbarrier_wait_parity(bar, 0)
            if T.shuffle_elect(128):
                T.tma_scatter4(s, B, 0, rows)
                T.tma_store_arrive()
            T.tma_store_wait(0, read=False)

    a, rows = floats(64, width, dtype="float16"), np.array([5, 17, 42, 9], "int32")
    want = np.zeros_like(a)
    want[rows] = a[rows]
    assert np.array_equal(run(kernel, a, rows, a), want)


# Stochastic rounding ------------------------------------------------------------------------------

NARROW = ["float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "float16", "bfloat16"]


def rounded(a, bits, dtype):
    return cast(a, F32, DType(dtype), "rs", True, np.broadcast_to(bits, a.shape))


@pytest.mark.parametrize(
    ("dtype", "count"),
    [*((NARROW[0], n) for n in (128, 256, 512, 1024)), *((x, 512) for x in NARROW[1:])],
)
def test_random_bits_that_all_elements_share(dtype, count):
    """One, two, four and eight neighbours for each thread."""

    @T.prim_func
    def kernel(A: T.Tensor((count,), "float32"), B: T.Tensor((count,), dtype)):
        with T.Kernel(1, threads=128):
            f, g = T.alloc_fragment((count,), "float32"), T.alloc_fragment((count,), dtype)
            bits = T.alloc_fragment((1,), "int32")
            T.copy(A, f)
            bits[0] = T.cast(T.int32(0x12345678), "int32")
            for i in T.Parallel(count):
                g[i] = T.cast(f[i], dtype, round="rs", rbits=bits[0])
            T.copy(g, B)

    a = floats(count)
    got = run(kernel, a, np.zeros(count, DType(dtype).numpy))
    assert got.tobytes() == rounded(a, np.uint32(0x12345678), dtype).tobytes()


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float4_e2m1fn"])
@pytest.mark.parametrize("share", [1, 2, 4])
def test_random_bits_that_neighbours_share(dtype, share):
    @T.prim_func
    def kernel(
        A: T.Tensor((128,), "float32"), R: T.Tensor((128,), "int32"), B: T.Tensor((128,), dtype)
    ):
        with T.Kernel(1, threads=32):
            f, g = T.alloc_fragment((128,), "float32"), T.alloc_fragment((128,), dtype)
            bits = T.alloc_fragment((128,), "int32")
            T.copy(A, f)
            T.copy(R, bits)
            for i in T.Parallel(128):
                g[i] = T.cast(f[i], dtype, round="rs", rbits=bits[i // share])
            T.copy(g, B)

    a, bits = floats(128), RANDOM.integers(-(2**31), 2**31, 128).astype("int32")
    got = run(kernel, a, bits, np.zeros(128, DType(dtype).numpy))
    shared = bits.view("uint32")[np.arange(128) // share]
    assert got.tobytes() == rounded(a, shared, dtype).tobytes()


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float4_e2m1fn"])
def test_random_bits_for_each_element(dtype):
    """Each draws its own: the mean of what a number is rounded to is the number."""

    @T.prim_func
    def kernel(A: T.Tensor((1024,), "float32"), B: T.Tensor((1024,), dtype)):
        with T.Kernel(1, threads=32):
            f, g = T.alloc_fragment((1024,), "float32"), T.alloc_fragment((1024,), dtype)
            T.copy(A, f)
            T.rng_init(42)
            for i in T.Parallel(1024):
                g[i] = T.cast(f[i], dtype, round="rs", rbits=T.rng_rand())
            T.copy(g, B)

    a = np.full(1024, 2.3, "float32")
    got = run(kernel, a, np.zeros(1024, DType(dtype).numpy)).astype("float64")
    low, high = (2.25, 2.5) if dtype == "float8_e4m3fn" else (2.0, 3.0)
    assert set(got) == {low, high}
    assert abs(got.mean() - 2.3) < 4 * (high - low) / np.sqrt(1024) / 2


@pytest.mark.parametrize("dtype", NARROW[2:4])
def test_machine_code_of_stochastic_rounding(dtype):
    @T.prim_func
    def kernel(A: T.Tensor((512,), "float32"), B: T.Tensor((512,), dtype)):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(512):
                B[i] = T.cast(A[i], dtype, round="rs", rbits=T.uint32(0x12345678))

    machine_code(kernel)


# Conversions --------------------------------------------------------------------------------------

PAIRS = [
    *((narrow, wide) for narrow in ("float4_e2m1fn",) for wide in ("float16", "float32")),
    *(("float4_e2m1fn", wide) for wide in ("bfloat16", "float64")),
    *((narrow, "bfloat16") for narrow in ("float8_e4m3fn", "float8_e5m2")),
]
PAIRS = [*PAIRS, *((wide, narrow) for narrow, wide in PAIRS)]


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize(("source", "result"), PAIRS)
def test_conversions_on_the_way(source, result, staged):
    """By one copy from global to global memory, and element by element between fragments."""

    @T.prim_func
    def kernel(A: T.Tensor((512,), source), B: T.Tensor((512,), result)):
        with T.Kernel(1, threads=128):
            if staged:
                f, g = T.alloc_fragment((512,), source), T.alloc_fragment((512,), result)
                T.copy(A, f)
                for i in T.Parallel(512):
                    g[i] = f[i]
                T.copy(g, B)
            else:
                T.copy(A, B)

    a = RANDOM.uniform(-7, 7, 512).astype(DType(source).numpy)
    got = run(kernel, a, np.zeros(512, DType(result).numpy))
    assert got.tobytes() == cast(a, DType(source), DType(result)).tobytes()
    if not staged:
        machine_code(kernel)


# Packed fp4 and scales ----------------------------------------------------------------------------


def through_a_tile(m, n, source, result):
    @T.prim_func
    def kernel(A: T.Tensor((m, n), source), B: T.Tensor((m, n), result)):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 32), threads=128) as (bx, by):
            s = T.alloc_shared((32, 64), source)
            T.copy(A[by * 32, bx * 64], s)
            T.copy(s, B[by * 32, bx * 64])

    return kernel


@pytest.mark.parametrize("target", TARGETS)
def test_scales_with_all_code_words_are_copied(target):
    a = np.arange(64 * 96, dtype=np.uint8).reshape(64, 96).view(ml_dtypes.float8_e8m0fnu)
    fn = through_a_tile(64, 96, "float8_e8m0fnu", "float8_e8m0fnu")
    got = tilelang.compile(fn, out_idx=1, target=target)(a)
    assert (got.dtype, got.tobytes()) == (a.dtype, a.tobytes())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("result", ["float4_e2m1fn", "float16", "bfloat16"])
def test_packed_fp4_is_copied_and_converted(target, result):
    """Two elements in each byte of what is given, the even one in the low half."""
    raw = RANDOM.integers(0, 256, (64, 48)).astype(np.uint8)
    words = np.stack([raw & 15, raw >> 4], -1).reshape(64, 96).view(ml_dtypes.float4_e2m1fn)
    fn = through_a_tile(64, 96, "float4_e2m1fn", result)
    got = tilelang.compile(fn, out_idx=1, target=target)(raw.view(np.int8))
    assert got.tobytes() == words.astype(DType(result).numpy).tobytes()


def test_a_tensor_copy_out_of_unpacked_elements_is_refused():
    with pytest.raises(TileTypeError, match="an asynchronous copy moves bytes"):

        @T.prim_func
        def kernel(B: T.Tensor((64, 128), "float4_e2m1fn")):
            with T.Kernel(1, threads=128):
                s = T.alloc_shared((64, 128), "float4_e2m1_unpacked")
                T.tma_copy(s, B)


@pytest.mark.parametrize("tile", ["float4_e2m1fn", "float4_e2m1_unpacked", "int4"])
def test_small_elements_through_tensor_copies(tile):
    """They take a byte each on the device, also where the arrays given are packed."""
    dtype = "int4" if tile == "int4" else "float4_e2m1fn"

    @T.prim_func
    def kernel(A: T.Tensor((128, 256), dtype), B: T.Tensor((128, 256), dtype)):
        with T.Kernel(2, 2, threads=128) as (bx, by):
            s, bar = T.alloc_shared((64, 128), tile), T.alloc_barrier(128)
            T.tma_copy(A[by * 64, bx * 128], s, barrier=bar)
            T.barrier_arrive(bar)
            T.mbarrier_wait_parity(bar, 0)
            if tile == dtype:
                T.tma_copy(s, B[by * 64, bx * 128])
                T.tma_store_wait(read=False)
            else:
                T.copy(s, B[by * 64, bx * 128])

    raw = RANDOM.integers(0, 256, (128, 128)).astype(np.uint8)
    assert np.array_equal(run(kernel, raw, np.zeros_like(raw)), raw)
    plain = unpack_rows(raw, (128, 256), DType(dtype))
    program = check_blackwell(kernel, seeds=3, A=plain, B=np.zeros_like(plain))
    used = [n.row for n in program.walk() if isinstance(n, Instr)]
    for way in ("load", "store") if tile == dtype else ("load",):
        assert used.count(f"cp.async.bulk.tensor.2d.{way}") == 1
    machine_code(kernel)


def test_a_tile_of_fp4_seen_as_bytes():
    @T.prim_func
    def kernel(A: T.Tensor((16, 256), "bfloat16"), B: T.Tensor((16, 128), "uint8")):
        with T.Kernel(1, threads=256):
            f = T.alloc_fragment((16, 256), "bfloat16")
            s = T.alloc_shared((16, 256), "float4_e2m1fn")
            pairs = T.view(s, (16, 128), dtype="uint8")
            T.copy(A, f)
            for i, j in T.Parallel(16, 256):
                s[i, j] = T.cast(f[i, j], "float4_e2m1fn")
            T.copy(pairs, B)

    a = floats(16, 256, dtype="bfloat16")
    words = cast(a, DType("bfloat16"), DType("float4_e2m1fn")).view(np.uint8)
    want = words[:, ::2] | words[:, 1::2] << 4
    assert np.array_equal(run(kernel, a, want), want)


def quantized(m, k):
    """bf16 as nvfp4: for 16 elements of a row a scale that is rounded up, elements in pairs, and
    the scales of 64 elements as a word.
    """

    @T.prim_func
    def kernel(
        X: T.Tensor((m, k), "bfloat16"),
        Q: T.Tensor((m, k // 2), "uint8"),
        S: T.Tensor((m, k // 64), "uint32"),
    ):
        with T.Kernel(T.ceildiv(m, 16), k // 256, threads=512) as (bx, by):
            x, q = T.alloc_shared((16, 256), "bfloat16"), T.alloc_shared((16, 128), "uint8")
            codes = T.alloc_shared((16, 16), "uint32")
            lane, row = T.get_lane_idx(), T.get_warp_idx_sync()
            T.copy(X[bx * 16, by * 256], x)
            T.sync_threads()
            for g in T.serial(4):
                pair = T.alloc_local((2,), "float32")
                for e in T.serial(2):
                    pair[e] = T.cast(x[row, g * 64 + lane * 2 + e], "float32")
                most = T.alloc_var("float32", init=T.max(T.abs(pair[0]), T.abs(pair[1])))
                for step in [4, 2, 1]:
                    most = T.max(most, T.shfl_xor(most, step, width=8))
                scale = T.cast(most / 6, "float8_e4m3fn", round="rp")
                wide = T.cast(scale, "float32")
                code = T.alloc_local((2,), "uint8")
                for e in T.serial(2):
                    small = T.cast(pair[e] / T.if_then_else(wide == 0, 1.0, wide), "float4_e2m1fn")
                    code[e] = T.reinterpret(small, "uint8")
                q[row, g * 32 + lane] = code[0] | code[1] << 4
                if lane % 8 == 0:
                    codes[row, g * 4 + lane // 8] = T.cast(T.reinterpret(scale, "uint8"), "uint32")
            T.sync_threads()
            if lane < 4:
                word = T.alloc_var("uint32", init=0)
                for n in T.serial(4):
                    word = word | codes[row, lane * 4 + n] << T.cast(8 * n, "uint32")
                if bx * 16 + row < m:
                    S[bx * 16 + row, by * 4 + lane] = word
            T.copy(q, Q[bx * 16, by * 128])

    return kernel


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("m", "k"), [(32, 256), (24, 512)])
def test_a_quantisation_to_nvfp4(m, k, target):
    x = floats(m, k, dtype="bfloat16", spread=2.0)
    x[0, :16] = 0
    q, s = np.zeros((m, k // 2), np.uint8), np.zeros((m, k // 64), np.uint32)
    tilelang.compile(quantized(m, k), target=target)(x, q, s)
    wide = x.astype(np.float32).reshape(m, k // 16, 16)
    e4m3, e2m1 = DType("float8_e4m3fn"), DType("float4_e2m1fn")
    scale = cast(abs(wide).max(-1) / np.float32(6), F32, e4m3, "rp")
    assert s.view(np.uint8).tobytes() == scale.tobytes()
    step = scale.astype(np.float32)[..., None]
    code = cast(wide / np.where(step == 0, np.float32(1), step), F32, e2m1)
    assert q.tobytes() == pack_rows(code.reshape(m, k), e2m1).tobytes()
    assert (abs(code.astype(np.float32) * step - wide) <= step).all()


def test_machine_code_of_a_quantisation():
    machine_code(quantized(32, 256))
