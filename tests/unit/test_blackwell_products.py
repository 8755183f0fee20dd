"""Products of parts of buffers into Tensor Memory, against NumPy, on emulator and simulator; which
instructions they are, and the fences around them.
"""

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from blackwell_build import check_blackwell
from gpu_build import gpu_program
from tilelang.errors import TileError
from tilelang.ir.thread import Instr

RANDOM = np.random.default_rng(22)
TARGETS = ("emulate:sm_100a", "simulate:sm_100a")
BF16 = "bfloat16"


def numbers(*shape):
    return RANDOM.integers(-3, 4, shape).astype(ml_dtypes.bfloat16)


def rows_of(program) -> list[str]:
    return [n.row for n in program.walk() if isinstance(n, Instr)]


def gives(fn, want, **args):
    """Fails unless both targets give what NumPy does; the lowered program."""
    for target in TARGETS:
        out = np.zeros(want.shape, "float32")
        tilelang.compile(fn, target=target)(*args.values(), out)
        assert np.array_equal(out, want), target
    return check_blackwell(fn, **args, D=np.zeros(want.shape, "float32"))


def of_parts(multiply, left, right):
    """D = what `multiply` puts into c, of the tiles a and b."""

    @T.prim_func
    def kernel(
        A: T.Tensor(left, BF16), B: T.Tensor(right, BF16), D: T.Tensor((128, 64), "float32")
    ):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared(left, BF16), T.alloc_shared(right, BF16)
            c, f = T.alloc_tmem((128, 64), "float32"), T.alloc_fragment((128, 64), "float32")
            done = T.alloc_barrier(1)
            T.copy(A, a)
            T.copy(B, b)
            multiply(a, b, c, done)
            T.mbarrier_wait_parity(done, 0)
            T.copy(c, f)
            T.copy(f, D)

    return kernel


def f32(x):
    return x.astype("float32")


def test_a_part_that_begins_at_a_later_swizzled_group():
    def multiply(a, b, c, done):
        left, right = a[:, 64:96], b[:, 64:96]
        T.tcgen05_gemm(left, right, c, transpose_B=True, mbar=done, clear_accum=True)

    a, b = numbers(128, 128), numbers(64, 128)
    want = f32(a[:, 64:96]) @ f32(b[:, 64:96]).T
    program = gives(of_parts(multiply, (128, 128), (64, 128)), want, A=a, B=b)
    assert rows_of(program).count("tcgen05.mma.f16") == 2


def test_parts_along_k_of_operands_whose_rows_lie_along_m_and_n():
    def multiply(a, b, c, done):
        T.tcgen05_gemm(a[16:32, :], b[16:32, :], c, transpose_A=True, mbar=done, clear_accum=True)

    a, b = numbers(32, 128), numbers(32, 64)
    want = f32(a[16:]).T @ f32(b[16:])
    program = gives(of_parts(multiply, (32, 128), (32, 64)), want, A=a, B=b)
    assert rows_of(program).count("tcgen05.mma.f16") == 1


@pytest.mark.parametrize(("row", "column"), [(128, 64), (64, 32), (8, 0)])
def test_parts_that_begin_at_later_rows(row, column):
    def multiply(a, b, c, done):
        left, right = a[row : row + 128, :], b[column : column + 64, :]
        T.tcgen05_gemm(left, right, c, transpose_B=True, mbar=done, clear_accum=True)

    a, b = numbers(256, 32), numbers(128, 32)
    want = f32(a[row : row + 128]) @ f32(b[column : column + 64]).T
    gives(of_parts(multiply, (256, 32), (128, 32)), want, A=a, B=b)


def test_matrices_of_buffers_with_more_axes():
    def multiply(a, b, c, done):
        T.tcgen05_gemm(a[1, 0, :, :], b[0, 1, :, :], c, mbar=done, clear_accum=True)

    a, b = numbers(2, 2, 128, 16), numbers(2, 2, 16, 64)
    program = gives(
        of_parts(multiply, (2, 2, 128, 16), (2, 2, 16, 64)), f32(a[1, 0]) @ f32(b[0, 1]), A=a, B=b
    )
    assert rows_of(program).count("tcgen05.mma.f16") == 1


def test_products_in_a_row_complete_at_one_commit():
    """The left operand lies in Tensor Memory, the right one in a place of a ring."""

    @T.prim_func
    def kernel(
        A: T.Tensor((128, 128), BF16),
        B: T.Tensor((128, 64), BF16),
        D: T.Tensor((128, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            fa, ring = T.alloc_fragment((128, 128), BF16), T.alloc_shared((2, 128, 64), BF16)
            a, c = T.alloc_tmem((128, 128), BF16), T.alloc_tmem((128, 64), "float32")
            f, done = T.alloc_fragment((128, 64), "float32"), T.alloc_barrier(1)
            T.copy(A, fa)
            T.copy(fa, a)
            T.copy(B, ring[1, :, :])
            for k in T.serial(4):
                left, right = a[:, k * 32 : k * 32 + 32], ring[1, k * 32 : k * 32 + 32, :]
                T.tcgen05_gemm(left, right, c, mbar=None, clear_accum=k == 0)
            if T.get_thread_binding() < 32:
                T.tcgen05_mma_arrive(done)
            T.mbarrier_wait_parity(done, 0)
            T.copy(c, f)
            T.copy(f, D)

    a, b = numbers(128, 128), numbers(128, 64)
    rows = rows_of(gives(kernel, f32(a) @ f32(b), A=a, B=b))
    assert rows.count("tcgen05.commit") == 1
    assert rows.count("tcgen05.mma.f16.ts") == 2  # in the loop, one for each 16 of its 32


@pytest.mark.parametrize("issued", [True, False])
def test_a_product_that_is_waited_for_issues_what_one_does_that_is_not(issued):
    def multiply(a, b, c, done):
        how = T.tcgen05_gemm if issued else T.gemm
        how(a, b, c, transpose_B=True, mbar=done, clear_accum=True)

    a, b = numbers(128, 64), numbers(64, 64)
    program = gives(of_parts(multiply, (128, 64), (64, 64)), f32(a) @ f32(b).T, A=a, B=b)
    rows = rows_of(program)
    assert [r for r in rows if r.startswith("tcgen05.mma")] == ["tcgen05.mma.f16"] * 4
    assert rows.count("tcgen05.commit") == (1 if issued else 2)  # T.gemm waits at its own too


@pytest.mark.parametrize(("rows", "deep"), [(64, 64), (64, 128), (64, 512), (128, 128)])
def test_a_left_operand_that_comes_through_registers(rows, deep):
    @T.prim_func
    def kernel(
        A: T.Tensor((rows, deep), BF16),
        B: T.Tensor((48, deep), BF16),
        D: T.Tensor((rows, 48), "float32"),
    ):
        with T.Kernel(1, threads=128):
            a_tile, b = T.alloc_shared((rows, deep), BF16), T.alloc_shared((48, deep), BF16)
            fa, a = T.alloc_fragment((rows, deep), BF16), T.alloc_tmem((rows, deep), BF16)
            c, f = T.alloc_tmem((rows, 48), "float32"), T.alloc_fragment((rows, 48), "float32")
            done = T.alloc_barrier(1)
            T.copy(A, a_tile)
            T.copy(B, b)
            T.copy(a_tile, fa)
            T.copy(fa, a)
            if T.get_warp_idx_sync() == 0:
                T.tcgen05_gemm(a, b, c, transpose_B=True, clear_accum=True, mbar=done)
            T.mbarrier_wait_parity(done, 0)
            T.copy(c, f)
            T.copy(f, D)

    a, b = numbers(rows, deep), numbers(48, deep)
    program = gives(kernel, f32(a) @ f32(b).T, A=a, B=b)
    stores = {r.split(".")[2] for r in rows_of(program) if r.startswith("tcgen05.st.")}
    assert stores == {"16x256b" if rows == 64 else "32x32b"}


PARTS_WITHOUT_A_DESCRIPTOR = [
    ((slice(0, 128), slice(8, 24)), (slice(0, 64), slice(0, 16)), "a's K"),
    ((slice(0, 128), slice(0, 16)), (slice(0, 64), slice(8, 24)), "b's K"),
    ((slice(4, 132), slice(0, 16)), (slice(0, 64), slice(0, 16)), "a's rows"),
    ((slice(0, 128), slice(0, 16)), (slice(4, 68), slice(0, 16)), "b's rows"),
]


@pytest.mark.parametrize(
    ("left", "right"),
    [(a, b) for a, b, _ in PARTS_WITHOUT_A_DESCRIPTOR],
    ids=[what for _, _, what in PARTS_WITHOUT_A_DESCRIPTOR],
)
def test_parts_at_which_no_descriptor_begins(left, right):
    def multiply(a, b, c, done):
        T.tcgen05_gemm(a[left], b[right], c, transpose_B=True, mbar=done, clear_accum=True)

    fn = of_parts(multiply, (256, 64), (128, 64))
    with pytest.raises(TileError, match=r"no multiple of (8|16)"):
        tilelang.compile(fn, target="cuda:sm_100a")


# Fences -------------------------------------------------------------------------------------------

BEFORE, AFTER = "tcgen05.fence.before_thread_sync", "tcgen05.fence.after_thread_sync"


def fences(fn, arch="sm_100a") -> list[str]:
    """The fences of a kernel, the loads and stores, and where threads meet, in order."""
    kinds = {BEFORE: "before", AFTER: "after"}
    found = []
    for row in rows_of(gpu_program(fn.ir, arch)):
        if row.startswith(("tcgen05.ld", "tcgen05.st", "tcgen05.mma")):
            found.append(row.split(".")[1])
        elif row in kinds or row.startswith(("barrier.sync", "mbarrier.")):
            found.append(kinds.get(row, row.split(".")[1]))
    return found


def handed(steps):
    """Threads of two warpgroups; the first one stores, `steps` lie between, the second loads."""

    @T.prim_func
    def kernel(A: T.Tensor((128, 32), "float32"), D: T.Tensor((128, 32), "float32")):
        with T.Kernel(1, threads=256):
            tx, bar = T.get_thread_binding(), T.alloc_barrier(128)
            f, t = T.alloc_fragment((128, 32), "float32"), T.alloc_tmem((128, 32), "float32")
            if tx < 128:
                T.copy(A, f)
                T.copy(f, t)
                steps("before")
                T.mbarrier_arrive(bar)
            else:
                T.mbarrier_wait_parity(bar, 0)
                steps("after")
                T.copy(t, f)
                T.copy(f, D)

    return kernel


def nothing(where):
    del where


def by_hand(where):
    if where == "before":
        T.tcgen05_before_thread_sync()
    else:
        T.tcgen05_after_thread_sync()


@pytest.mark.parametrize("steps", [nothing, by_hand])
def test_fences_stand_where_threads_hand_over_and_not_twice(steps):
    fn = handed(steps)
    found = [x for x in fences(fn) if x in ("before", "after", "st", "ld")]
    assert found == ["st", "before", "after", "ld"]
    a = RANDOM.standard_normal((128, 32)).astype("float32")
    check_blackwell(fn, seeds=2, A=a, D=np.zeros_like(a))


def test_what_hands_over_nothing_of_tensor_memory_needs_no_fence():
    @T.prim_func
    def kernel(A: T.Tensor((128, 32), "float32"), D: T.Tensor((128, 32), "float32")):
        with T.Kernel(1, threads=128):
            s, bar = T.alloc_shared((128, 32), "float32"), T.alloc_barrier(128)
            f, t = T.alloc_fragment((128, 32), "float32"), T.alloc_tmem((128, 32), "float32")
            T.copy(A, s)
            T.mbarrier_arrive(bar)
            T.mbarrier_wait_parity(bar, 0)
            T.copy(s, f)
            T.copy(f, t)
            T.copy(t, f)
            T.copy(f, D)

    found = fences(kernel)
    assert not {"before", "after"} & set(found)
    a = RANDOM.standard_normal((128, 32)).astype("float32")
    check_blackwell(kernel, A=a, D=np.zeros_like(a))


def test_a_wait_for_products_is_followed_by_one_fence_wherever_the_load_is():
    def multiply(a, b, c, done):
        T.tcgen05_gemm(a, b, c, transpose_B=True, mbar=done, clear_accum=True)

    found = fences(of_parts(multiply, (128, 16), (64, 16)))
    assert found.count("after") == 1 and "before" not in found
    assert found.index("after") < found.index("ld")


def test_chips_without_tensor_memory_have_no_such_fences():
    @T.prim_func
    def kernel(A: T.Tensor((64, 32), "float16"), D: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            s, f = T.alloc_shared((64, 32), "float16"), T.alloc_fragment((64, 64), "float32")
            T.copy(A, s)
            T.tcgen05_before_thread_sync()
            T.sync_threads()
            T.tcgen05_after_thread_sync()
            T.gemm(s, s, f, transpose_B=True, clear_accum=True)
            T.copy(f, D)

    assert not {"before", "after"} & set(fences(kernel, "sm_90a"))
