"""Buffers that share an allocation of Tensor Memory: what rounding up to a power of two leaves of a
wide buffer holds narrower ones. Against NumPy, on the emulator and on the simulated chip.
"""

import random

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from blackwell_build import check_blackwell
from tilelang.errors import TileError
from tilelang.ir.expr import Buffer, const
from tilelang.ir.thread import Instr, Program
from tilelang.ir.tile import Alloc
from tilelang.isa.target import parse_target
from tilelang.passes.pipeline import lower
from tilelang.passes.tensor_columns import Columns, order_of
from tilelang.scopes import Memory
from tilelang.targets import CHIPS
from tilelang.targets.cuda.nvrtc import compile_source, is_installed
from tilelang.targets.cuda.program import emit

RANDOM = np.random.default_rng(29)
BLACKWELL = parse_target("cuda -arch=sm_100a", CHIPS)
TARGETS = ("emulate:sm_100a", "simulate:sm_100a")
SWEEP = [3, pytest.param(50, marks=pytest.mark.simulate)]


def run(kernel, want, *args, seeds=3) -> Program:
    """`want` is the last argument after a run."""
    for target in TARGETS:
        got = np.zeros_like(want)
        tilelang.compile(kernel, target=target)(*args, got)
        np.testing.assert_array_equal(got, want, err_msg=target)
    names = [p.name for p in kernel.ir.params]
    given = dict(zip(names, (*args, np.zeros_like(want)), strict=True))
    return check_blackwell(kernel, seeds=seeds, **given)


def columns(program: Program, row: str = "alloc") -> list[int]:
    """The columns of each allocation (or free), in order."""
    found = (n for n in program.walk() if isinstance(n, Instr))
    return [dict(n.imm)["columns"] for n in found if n.row.startswith(f"tcgen05.{row}")]


def roundtrips(widths, free=(), threads=128):
    """B = A: a part of the columns through each buffer, all written before one is read; `free` are
    the buffers that are freed at the end, in this order.
    """
    starts = [sum(widths[:k]) for k in range(len(widths))]
    shape = (128, sum(widths))

    @T.prim_func
    def kernel(A: T.Tensor(shape, "float32"), B: T.Tensor(shape, "float32")):
        with T.Kernel(1, threads=threads):
            held = [T.alloc_tmem((128, n), "float32") for n in widths]
            parts = [T.alloc_fragment((128, n), "float32") for n in widths]
            for start, t, f in zip(starts, held, parts, strict=True):
                T.copy(A[0, start], f)
                T.copy(f, t)
                T.fill(f, -1)
            for start, t, f in zip(starts, held, parts, strict=True):
                T.copy(t, f)
                T.copy(f, B[0, start])
            for k in free:
                T.deallocate_tmem(held[k])

    return kernel


def numbers(*shape):
    return RANDOM.standard_normal(shape).astype("float32")


@pytest.mark.parametrize(
    ("widths", "taken"),
    [
        ((384, 4, 4, 4), [512]),
        ((96, 32), [128]),
        ((72, 40, 24, 12, 5), [128, 64]),
    ],
)
@pytest.mark.parametrize("seeds", SWEEP)
def test_narrow_buffers_lie_in_what_a_wide_one_leaves(widths, taken, seeds):
    a = numbers(128, sum(widths))
    program = run(roundtrips(widths, threads=256), a, a, seeds=seeds)
    assert columns(program) == columns(program, "dealloc") == taken


@pytest.mark.parametrize(
    ("widths", "taken"),
    [
        ((128, 4, 4), [128, 32]),
        ((32, 256), [256, 32]),
        ((4, 4, 384, 100), [512]),
        ((128, 64, 128), [128, 128, 64]),
        ((32, 32, 32, 32, 32), [32] * 5),
        ((496, 8, 4), [512]),
        ((16, 12), [32]),
    ],
)
def test_sharing_never_costs_more(widths, taken):
    """What fits anyway is allocated as it was, the widest first."""
    program = lower(roundtrips(widths, threads=256).ir, BLACKWELL)
    assert columns(program) == columns(program, "dealloc") == taken


def test_the_report_says_who_shares_with_whom():
    kernel = tilelang.compile(roundtrips((384, 4, 8)), target="emulate:sm_100a")
    text = kernel.memory().render()
    assert "512 columns (rounded up from 384)" in text
    assert "4 columns of those of held" in text and "8 columns of those of held" in text
    assert "Tensor Memory: 512 of 512 columns" in text
    rows = {r["buffer"]: r for r in kernel.memory().to_json()["launches"][0]["buffers"]}
    narrow = [r for r in rows.values() if r["inside"] == "held"]
    assert [(r["asked"], r["amount"]) for r in narrow] == [(4, 0), (8, 0)]
    (note,) = (d for d in tilelang.check(roundtrips((384, 4, 8)), TARGETS[0]) if "Tens" in str(d))
    assert "held, tmem_1 and tmem take 512 columns of Tensor Memory, rounded up from 396" in str(
        note.message
    )


@pytest.mark.parametrize("widths", [(384, 384), (256, 256, 4), (510, 4)])
def test_more_than_there_are(widths):
    taken = sum(max(32, 1 << (n - 1).bit_length()) for n in widths)
    for target in TARGETS:
        with pytest.raises(TileError) as caught:
            tilelang.compile(roundtrips(widths), target=target)
        text = str(caught.value)
        assert f"{taken} columns" in text and "512 are available" in text
        assert "test_gpu_tensor_memory_shared.py:" in text


def test_any_plan_keeps_buffers_apart():
    """Of random widths: no two buffers meet, none lies outside, wide ones begin where allocations
    do, and the plan takes no more than separate allocations would.
    """
    draw, rounded = random.Random(7), BLACKWELL.capacity(Memory.TMEM).rounded
    for _ in range(300):
        widths = [draw.choice([1, 3, 4, 8, 12, 31, 32, 33, 96, 100, 200, 384]) for _ in range(6)]
        allocs = [Alloc(Buffer(f"t{k}", "uint32", (const(1),))) for k in range(6)]
        asked = dict(zip((a.buffer.name for a in allocs), widths, strict=True))
        given = Columns(lambda a, asked=asked: asked[a.buffer.name], rounded, 4096, {})
        order = order_of(tuple(allocs), given)
        assert sum(x.taken for x in order.first) <= sum(map(rounded, widths))
        taken = [x.taken for x in order.first]
        assert taken == sorted(taken, reverse=True)
        seen = [a.buffer.name for x in order.first for a, _ in x.members]
        assert sorted(seen) == sorted(asked)
        for x in order.first:
            end = 0
            for alloc, at in x.members:
                wide = asked[alloc.buffer.name]
                assert at >= end and at % min(32, 1 << (wide - 1).bit_length()) == 0
                end = at + wide
            assert end == x.columns <= x.taken


# Products ----------------------------------------------------------------------------------------


def accumulators(widths, stages=1):
    """C = A @ B in parts of the columns of B, each in a buffer of its own."""
    n, starts = sum(widths), [sum(widths[:k]) for k in range(len(widths))]

    @T.prim_func
    def kernel(
        A: T.Tensor((128, 96), "float16"),
        B: T.Tensor((96, n), "float16"),
        C: T.Tensor((128, n), "float32"),
    ):
        with T.Kernel(1, threads=128):
            held = [T.alloc_tmem((128, w), "float32") for w in widths]
            a = T.alloc_shared((128, 32), "float16")
            tiles = [T.alloc_shared((32, w), "float16") for w in widths]
            for k in T.Pipelined(3, num_stages=stages):
                T.copy(A[0, k * 32], a)
                for start, b, c in zip(starts, tiles, held, strict=True):
                    T.copy(B[k * 32, start], b)
                    T.gemm(a, b, c, clear_accum=k == 0)
            for start, w, c in zip(starts, widths, held, strict=True):
                out = T.alloc_fragment((128, w), "float32")
                T.copy(c, out)
                T.copy(out, C[0, start])

    return kernel


@pytest.mark.parametrize(
    ("widths", "stages", "taken"), [((96, 32), 1, [128]), ((16, 80, 16), 2, [128])]
)
@pytest.mark.parametrize("seeds", SWEEP)
def test_accumulators_in_one_allocation(widths, stages, taken, seeds):
    a = RANDOM.integers(-4, 5, (128, 96)).astype("float16")
    b = RANDOM.integers(-4, 5, (96, sum(widths))).astype("float16")
    want = a.astype("float32") @ b.astype("float32")
    program = run(accumulators(widths, stages), want, a, b, seeds=seeds)
    assert columns(program) == taken


def scaled(n):
    """C = A @ B with scales, which share the columns that the accumulator leaves."""

    @T.prim_func
    def kernel(
        A: T.Tensor((128, 128), "float8_e4m3fn"),
        B: T.Tensor((n, 128), "float8_e4m3fn"),
        SFA: T.Tensor((128,), "uint32"),
        SFB: T.Tensor((n,), "uint32"),
        C: T.Tensor((128, n), "float32"),
    ):
        with T.Kernel(1, threads=256):
            a = T.alloc_shared((128, 128), "float8_e4m3fn")
            b = T.alloc_shared((n, 128), "float8_e4m3fn")
            sa, sb = T.alloc_shared((128,), "uint32"), T.alloc_shared((n,), "uint32")
            ta, tb = T.alloc_tmem((128, 4), "uint32"), T.alloc_tmem((128, n // 32), "uint32")
            c, out = T.alloc_tmem((128, n), "float32"), T.alloc_fragment((128, n), "float32")
            done = T.alloc_barrier(1)
            T.copy(A, a)
            T.copy(B, b)
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
            T.mbarrier_wait_parity(done, 0)
            T.copy(c, out)
            T.copy(out, C)

    return kernel


@pytest.mark.parametrize(("n", "taken"), [(384, [512]), (128, [128, 32])])
@pytest.mark.parametrize("seeds", SWEEP)
def test_scales_lie_beside_their_accumulator(n, taken, seeds):
    def powers(words):
        return np.repeat(np.exp2(words.view("u1").reshape(-1, 4) - 127.0), 32, axis=1)

    x, y = (RANDOM.integers(-3, 4, (k, 128)).astype(ml_dtypes.float8_e4m3fn) for k in (128, n))
    sx, sy = (
        RANDOM.integers(125, 130, (k, 4)).astype("u1").view("u4").reshape(-1) for k in (128, n)
    )
    want = ((x * powers(sx)) @ (y * powers(sy)).T).astype("float32")
    program = run(scaled(n), want, x, y, sx, sy, seeds=seeds)
    assert columns(program) == taken


def scaled_beside(n, others, freed=False):
    """A product whose scales the compiler puts into Tensor Memory, and buffers of the author."""

    @T.prim_func
    def kernel(
        A: T.Tensor((128, 128), "float8_e4m3fn"),
        B: T.Tensor((n, 128), "float8_e4m3fn"),
        SA: T.Tensor((128, 4), "float8_e8m0fnu"),
        SB: T.Tensor((n, 4), "float8_e8m0fnu"),
        C: T.Tensor((128, n), "float32"),
    ):
        with T.Kernel(1, threads=256):
            a, b = (T.alloc_shared((m, 128), "float8_e4m3fn") for m in (128, n))
            sa, sb = (T.alloc_shared((m, 4), "float8_e8m0fnu") for m in (128, n))
            c, out = T.alloc_tmem((128, n), "float32"), T.alloc_fragment((128, n), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.copy(SA, sa)
            T.copy(SB, sb)
            T.gemm_blockscaled(
                a,
                b,
                c,
                sa,
                sb,
                transpose_B=True,
                clear_accum=True,
                k_start=0,
                sf_a_granularity_k=32,
                sf_b_granularity_k=32,
            )
            T.copy(c, out)
            T.copy(out, C)
            if freed:
                T.deallocate_tmem(c)
            for columns in others:
                T.fill(T.alloc_tmem((128, columns), "float32"), 0)

    return kernel


@pytest.mark.parametrize(
    ("n", "others", "freed", "taken"),
    [
        (96, (), False, [128]),
        (384, (96,), False, [512]),
        (128, (256,), False, [256, 128, 32]),
        (96, (24,), True, [128, 32, 32]),
    ],
)
def test_scales_of_the_compiler_have_room_too(n, others, freed, taken):
    x, y = (RANDOM.integers(-3, 4, (k, 128)).astype(ml_dtypes.float8_e4m3fn) for k in (128, n))
    sx, sy = (np.exp2(RANDOM.integers(-2, 3, (k, 4))).astype("float32") for k in (128, n))
    want = (x * np.repeat(sx, 32, 1)) @ (y * np.repeat(sy, 32, 1)).T
    sx, sy = (s.astype(ml_dtypes.float8_e8m0fnu) for s in (sx, sy))
    program = run(scaled_beside(n, others, freed), want.astype("float32"), x, y, sx, sy, seeds=2)
    assert columns(program) == taken


@pytest.mark.parametrize(
    ("n", "others", "freed", "why"),
    [
        (496, (), False, "544 columns of Tensor Memory are asked for with the scales"),
        (256, (256,), False, "544 columns of Tensor Memory are asked for with the scales"),
        (256, (128,), True, "wider than that of the scales"),
    ],
)
def test_scales_of_the_compiler_without_room(n, others, freed, why):
    with pytest.raises(TileError) as caught:
        tilelang.compile(scaled_beside(n, others, freed), target=TARGETS[1])
    assert why in str(caught.value)
    assert "test_gpu_tensor_memory_shared.py:" in str(caught.value)


def test_a_part_that_a_loop_names_lies_behind_the_wide_buffer():
    @T.prim_func
    def kernel(A: T.Tensor((128, 400), "float32"), B: T.Tensor((128, 400), "float32")):
        with T.Kernel(1, threads=256):
            wide, narrow = T.alloc_tmem((128, 384), "float32"), T.alloc_tmem((128, 16), "float32")
            f, g = T.alloc_fragment((128, 384), "float32"), T.alloc_fragment((128, 4), "float32")
            T.copy(A[0, 0], f)
            T.copy(f, wide)
            for k in T.serial(4):
                T.copy(A[0, 384 + k * 4], g)
                T.copy(g, narrow[:, k * 4 : k * 4 + 4])
            for k in T.serial(4):
                T.copy(narrow[:, 12 - k * 4 : 16 - k * 4], g)
                T.copy(g, B[0, 396 - k * 4])
            T.copy(wide, f)
            T.copy(f, B[0, 0])

    a = numbers(128, 400)
    assert columns(run(kernel, a, a)) == [512]


# Frees -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("widths", "free", "taken", "given"),
    [
        ((128, 4, 4), (1,), [128, 32, 32], [32, 128, 32]),
        ((384, 4, 4), (2, 0, 1), [512], [512]),
        ((4, 40, 96), (0, 1, 2), [128, 64], [64, 128]),
        ((4, 40, 96), (1, 2), [128, 64, 32], [64, 128, 32]),
    ],
)
@pytest.mark.parametrize("seeds", SWEEP)
def test_what_is_freed_together_is_allocated_together(widths, free, taken, given, seeds):
    """A buffer that is freed alone has columns of its own."""
    a = numbers(128, sum(widths))
    program = run(roundtrips(widths, free), a, a, seeds=seeds)
    assert (columns(program), columns(program, "dealloc")) == (taken, given)


def test_a_buffer_that_is_freed_alone_does_not_fit():
    for target in TARGETS:
        with pytest.raises(TileError, match="544 columns of Tensor Memory"):
            tilelang.compile(roundtrips((384, 4), (1,)), target=target)


def in_rounds(rounds, free):
    """Each round allocates a wide buffer and two narrow ones, which it frees itself or leaves to
    its end.
    """

    @T.prim_func
    def kernel(
        A: T.Tensor((rounds, 128, 108), "float32"), B: T.Tensor((rounds, 128, 108), "float32")
    ):
        with T.Kernel(1, threads=128):
            first = T.alloc_tmem((128, 512), "float32")
            T.deallocate_tmem(first)
            for k in T.serial(rounds):
                held = [T.alloc_tmem((128, n), "float32") for n in (4, 100, 4)]
                parts = [T.alloc_fragment((128, n), "float32") for n in (4, 100, 4)]
                for start, t, f in zip((0, 4, 104), held, parts, strict=True):
                    T.copy(A[k, 0, start], f)
                    T.copy(f, t)
                for start, t, f in zip((0, 4, 104), held, parts, strict=True):
                    T.copy(t, f)
                    T.copy(f, B[k, 0, start])
                for t in held if free else ():
                    T.deallocate_tmem(t)

    return kernel


@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("seeds", SWEEP)
def test_rounds_allocate_several_buffers_at_once(free, seeds):
    a = numbers(3, 128, 108)
    program = run(in_rounds(3, free), a, a, seeds=seeds)
    assert columns(program) == columns(program, "dealloc") == [512, 128]


def of_two_widths(free):
    """Each round allocates 64 and 32 columns, which no later round may do one after the other."""

    @T.prim_func
    def kernel(A: T.Tensor((3, 128, 88), "float32"), B: T.Tensor((3, 128, 88), "float32")):
        with T.Kernel(1, threads=128):
            f, g = T.alloc_fragment((128, 64), "float32"), T.alloc_fragment((128, 24), "float32")
            T.deallocate_tmem(T.alloc_tmem((128, 512), "float32"))
            for k in T.serial(3):
                narrow = T.alloc_tmem((128, 24), "float32")
                wide = T.alloc_tmem((128, 64), "float32")
                T.copy(A[k, 0, 0], f)
                T.copy(A[k, 0, 64], g)
                T.copy(f, wide)
                T.copy(g, narrow)
                T.copy(wide, f)
                T.copy(narrow, g)
                T.copy(f, B[k, 0, 0])
                T.copy(g, B[k, 0, 64])
                if free:
                    T.deallocate_tmem(narrow)
                    T.deallocate_tmem(wide)

    return kernel


@pytest.mark.parametrize("free", [True, False])
def test_what_each_round_allocates_is_of_one_width(free):
    a = numbers(3, 128, 88)
    program = run(of_two_widths(free), a, a)
    assert columns(program) == columns(program, "dealloc") == [512, 128]


def after_a_free():
    """A narrow buffer stands before a wide one."""

    @T.prim_func
    def kernel(A: T.Tensor((128, 80), "float32"), B: T.Tensor((128, 80), "float32")):
        with T.Kernel(1, threads=128):
            f, g = T.alloc_fragment((128, 16), "float32"), T.alloc_fragment((128, 64), "float32")
            first = T.alloc_tmem((128, 512), "float32")
            T.deallocate_tmem(first)
            narrow = T.alloc_tmem((128, 16), "float32")
            T.copy(A[0, 0], f)
            T.copy(f, narrow)
            wide = T.alloc_tmem((128, 64), "float32")
            T.copy(A[0, 16], g)
            T.copy(g, wide)
            T.copy(narrow, f)
            T.copy(wide, g)
            T.copy(f, B[0, 0])
            T.copy(g, B[0, 16])

    return kernel


def test_buffers_after_a_free_are_allocated_the_widest_first():
    a = numbers(128, 80)
    assert columns(run(after_a_free(), a, a)) == [512, 64, 32]


def in_a_loop_between(widths):
    """The loop's own buffer is gone before the last one is there."""
    before, inside, after = widths

    @T.prim_func
    def kernel(A: T.Tensor((128, 4), "float32"), B: T.Tensor((128, 4), "float32")):
        with T.Kernel(1, threads=128):
            f = T.alloc_fragment((128, 4), "float32")
            T.copy(A, f)
            for n in (before, inside, after):
                if n == inside:
                    for _ in T.serial(2):
                        t = T.alloc_tmem((128, n), "float32")
                        T.copy(f, t[:, 0:4])
                        T.copy(t[:, 0:4], f)
                else:
                    t = T.alloc_tmem((128, n), "float32")
                    T.copy(f, t[:, 0:4])
                    T.copy(t[:, 0:4], f)
            T.copy(f, B)

    return kernel


def test_a_buffer_that_stands_behind_a_loop_comes_after_it():
    a = numbers(128, 4)
    program = run(in_a_loop_between((256, 250, 130)), a, a)
    assert columns(program) == [256, 256, 256]


def of_a_pair(free):
    """The result of a pair of blocks and a buffer of each block, in one allocation."""

    @T.prim_func
    def kernel(
        A: T.Tensor((256, 32), "bfloat16"),
        B: T.Tensor((32, 96), "bfloat16"),
        D: T.Tensor((256, 24), "float32"),
        C: T.Tensor((256, 120), "float32"),
    ):
        with T.ClusterKernel(2, threads=128, cluster_dims=2):
            rank = T.block_rank_in_cluster()
            a, b = T.alloc_shared((128, 32), "bfloat16"), T.alloc_shared((32, 48), "bfloat16")
            own, acc = T.alloc_tmem((128, 24), "float32"), T.alloc_tmem((128, 96), "float32")
            out, part = (
                T.alloc_fragment((128, 96), "float32"),
                T.alloc_fragment((128, 24), "float32"),
            )
            done = T.alloc_cluster_barrier(1)
            T.copy(A[rank * 128, 0], a)
            T.copy(B[0, rank * 48], b)
            T.copy(D[rank * 128, 0], part)
            T.copy(part, own)
            T.cluster_sync()
            T.tcgen05_gemm(a, b, acc, mbar=done, clear_accum=True, use_2cta=True)
            T.mbarrier_wait_parity(done, 0)
            T.copy(acc, out)
            T.copy(own, part)
            if free:
                T.deallocate_tmem(own)
                T.deallocate_tmem(acc)
            T.copy(out, C[rank * 128, 0])
            T.copy(part, C[rank * 128, 96])

    return kernel


@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("seeds", SWEEP)
def test_pairs_of_blocks_share_allocations_too(free, seeds):
    a, b = (RANDOM.integers(-4, 5, shape).astype("float32") for shape in ((256, 32), (32, 96)))
    d = numbers(256, 24)
    want = np.concatenate([a @ b, d], axis=1)
    a, b = (x.astype(ml_dtypes.bfloat16) for x in (a, b))
    program = run(of_a_pair(free), want, a, b, d, seeds=seeds)
    assert columns(program) == columns(program, "dealloc") == [128]


@pytest.mark.skipif(not is_installed(), reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
def test_they_become_machine_code(arch):
    target = parse_target(f"cuda -arch={arch}", CHIPS)
    for kernel in (
        roundtrips((96, 4, 4), (1, 2)),
        scaled(128),
        in_rounds(3, True),
        of_a_pair(True),
    ):
        assert not compile_source(emit(lower(kernel.ir, target), target).text, arch).warnings
