"""Operations that only some threads reach: ranges of whole warps are legal, others refused."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import Severity
from tilelang.passes.check import check_function
from tilelang.passes.check.threads import ranges
from tilelang.targets import target


def findings(kernel):
    return [
        d for d in check_function(kernel.ir, target("emulate:sm_90a")) if d.kind == "divergence"
    ]


def under(cond, threads=256):
    """An update by a tile operation under a condition of the thread index, a block index, a tensor
    and names. It is refused, or adds 1 in each block of which the condition holds for some thread.
    """

    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((2, 64), "int32")):
        with T.Kernel(2, threads=threads) as bx:
            one = T.alloc_shared((64,), "int32")
            T.fill(one, 1)
            mine = T.alloc_var("int32", init=0)
            same = T.alloc_var("int32", init=0)
            tx = T.get_thread_binding()
            half = tx // 32
            mine = tx
            same = bx
            if cond(tx, bx, A, half, mine, same):
                T.atomic_add(B[bx, 0:64], one)

    return kernel


REFUSED = {
    "half a warp": (lambda tx, bx, A, half, mine, same: tx < 48, "threads 0 to 47"),
    "one thread": (lambda tx, bx, A, half, mine, same: tx == 0, "thread 0"),
    "not the first": (lambda tx, bx, A, half, mine, same: tx != 0, "threads 1 to 255"),
    "every other warp": (
        lambda tx, bx, A, half, mine, same: half % 2 == 0,
        "threads 0 to 31, 64 to 95, 128 to 159, ...",
    ),
    "two ends": (
        lambda tx, bx, A, half, mine, same: (tx < 32) | (tx >= 224),
        "threads 0 to 31, 224 to 255",
    ),
    "lanes": (lambda tx, bx, A, half, mine, same: tx % 32 < 16, "threads 0 to 15, 32 to 47"),
    "elected": (lambda tx, bx, A, half, mine, same: T.shuffle_elect(128), "threads 0, 128"),
    "variable": (lambda tx, bx, A, half, mine, same: mine > 31, "mine[0] > 31"),
    "load": (lambda tx, bx, A, half, mine, same: A[tx % 64] > 0, "which depends on tx"),
    "another range for each block": (
        lambda tx, bx, A, half, mine, same: tx < 32 + bx * 32,
        "which depends on tx",
    ),
    "a range or all": (lambda tx, bx, A, half, mine, same: (tx < 32) | (bx == 0), "depends on tx"),
}
LEGAL = {
    "block": (lambda tx, bx, A, half, mine, same: bx == 0, [1, 0]),
    "element": (lambda tx, bx, A, half, mine, same: A[0] > 0, [1, 1]),
    "variable": (lambda tx, bx, A, half, mine, same: same == 1, [0, 1]),
    "first warp": (lambda tx, bx, A, half, mine, same: tx < 32, [1, 1]),
    "last warps": (lambda tx, bx, A, half, mine, same: tx >= 160, [1, 1]),
    "between": (lambda tx, bx, A, half, mine, same: (tx >= 64) & (tx < 160), [1, 1]),
    "name": (lambda tx, bx, A, half, mine, same: half == 3, [1, 1]),
    "group": (lambda tx, bx, A, half, mine, same: tx >> 7 == 1, [1, 1]),
    "two conditions make one range": (
        lambda tx, bx, A, half, mine, same: (tx < 64) | (half == 2),
        [1, 1],
    ),
    "of one block": (lambda tx, bx, A, half, mine, same: (tx < 64) & (bx == 1), [0, 1]),
    "of two blocks": (
        lambda tx, bx, A, half, mine, same: (tx < 64) & (bx == 1) | (tx < 64) & (same == 0),
        [1, 1],
    ),
    "all": (lambda tx, bx, A, half, mine, same: tx >= 0, [1, 1]),
    "none": (lambda tx, bx, A, half, mine, same: tx > 999, [0, 0]),
}


@pytest.mark.parametrize("which", REFUSED)
def test_a_tile_operation_of_threads_that_are_no_range_of_warps_is_refused(which):
    cond, got = REFUSED[which]
    (found,) = findings(under(cond))
    assert found.severity is Severity.ERROR
    assert found.message == "T.atomic_add is reached by some threads of a block only"
    assert got in found.got


@pytest.mark.parametrize("which", LEGAL)
def test_a_range_of_whole_warps_carries_it_out_once(which):
    cond, times = LEGAL[which]
    kernel = under(cond)
    assert findings(kernel) == []
    a, b = np.ones(64, np.int32), np.zeros((2, 64), np.int32)
    tilelang.compile(kernel, target="emulate")(a, b)
    np.testing.assert_array_equal(b, np.repeat(times, 64).reshape(2, 64))


def voted(vote):
    """Rows are doubled where a vote of their threads says so."""

    @T.prim_func
    def kernel(A: T.Tensor((3, 96), "float32"), B: T.Tensor((3, 96), "float32")):
        with T.Kernel(1, threads=96):
            tx = T.get_thread_binding()
            s, f = T.alloc_shared((96,), "float32"), T.alloc_fragment((96,), "float32")
            again = T.alloc_var("int32")
            for k in T.serial(3):
                T.copy(A[k, :], s)
                again = vote(s[tx] < 0)
                while again != 0:
                    T.copy(s, f)
                    for i in T.Parallel(96):
                        f[i] = T.abs(f[i]) * 2
                    T.copy(f, s)
                    again = vote(s[tx] < 0)
                T.copy(s, B[k, :])

    return kernel


@pytest.mark.parametrize("target", ["emulate", "cpu", "simulate:sm_80", "simulate:sm_90a"])
def test_what_all_threads_have_voted_for_is_the_same_for_all(target):
    a = np.arange(1, 289, dtype=np.float32).reshape(3, 96)
    want = a.copy()
    a[1, 77], want[1] = -78 - 96, want[1] * 2
    want[1, 77] = 2 * (78 + 96)
    b = np.zeros_like(a)
    tilelang.compile(voted(T.syncthreads_or), target=target)(a, b)
    np.testing.assert_array_equal(b, want)


def test_a_vote_of_warps_is_refused_and_that_of_the_block_named():
    found = findings(voted(T.any_sync))
    assert {d.kind for d in found} == {"divergence"}
    assert all("vote with T.syncthreads_or by the whole block" in (d.help or "") for d in found)


@pytest.mark.parametrize(
    ("threads", "low", "legal"), [(100, 96, True), (100, 64, True), (96, 50, False)]
)
def test_the_last_warp_may_be_smaller(threads, low, legal):
    kernel = under(lambda tx, *_: tx >= low, threads)
    assert (findings(kernel) == []) == legal


def test_the_other_arm_is_the_other_threads():
    @T.prim_func
    def kernel(A: T.Tensor((3, 40), "int32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((3, 40), "int32")
            tx = T.get_thread_binding()
            if tx < 32:
                T.fill(s[0, :], 1)
                T.copy(s[0, :], A[0, :])
            elif tx < 96:
                T.fill(s[1, :], 2)
                T.copy(s[1, :], A[1, :])
            else:
                for i in T.Parallel(40):
                    s[2, i] = i
                T.copy(s[2, :], A[2, :])

    assert findings(kernel) == []
    a = np.zeros((3, 40), np.int32)
    tilelang.compile(kernel, target="emulate")(a)
    np.testing.assert_array_equal(a, [[1] * 40, [2] * 40, range(40)])


def test_who_is_in_the_other_arm_must_not_depend_on_the_block():
    """For block 0 the other arm is for all threads, for block 1 it is for those from 64 on."""

    @T.prim_func
    def kernel(B: T.Tensor((2, 64), "int32")):
        with T.Kernel(2, threads=128) as bx:
            one = T.alloc_shared((64,), "int32")
            T.fill(one, 1)
            tx = T.get_thread_binding()
            if tx < 64 and bx == 1:
                T.atomic_add(B[bx, 0:64], one)
            elif tx >= 96:
                T.atomic_add(B[bx, 0:64], one)  # threads 96 to 127 in both
            else:
                T.atomic_add(B[bx, 0:64], one)

    (found,) = findings(kernel)
    assert found.related[0][0].line == found.loc.line - 5, "the first condition decides"


def test_conditions_in_words():
    @T.prim_func
    def kernel(B: T.Tensor((64,), "int32"), n: T.int32):
        with T.Kernel(1, threads=256):
            one = T.alloc_shared((64,), "int32")
            T.fill(one, 1)
            tx = T.get_thread_binding()
            if 64 <= tx < 160 and n > 0:
                T.atomic_add(B, one)
            if not (tx < 64 or tx // 32 == 2):
                T.atomic_add(B, one)
            if not (tx >= 32 and not n > 0) and tx < 32:
                T.atomic_add(B, one)

    assert findings(kernel) == []
    for n, want in ((1, 3), (0, 2)):
        b = np.zeros(64, np.int32)
        tilelang.compile(kernel, target="emulate")(b, n)
        assert (b == want).all()


def test_variables_are_the_same_in_the_arm_that_sets_them():
    """Each arm counts for itself, as in loops over phases; afterwards the counts differ."""

    def build(after):
        @T.prim_func
        def kernel(A: T.Tensor((64,), "int32")):
            with T.Kernel(1, threads=128):
                s = T.alloc_shared((64,), "int32")
                T.clear(s)
                tx = T.get_thread_binding()
                k = T.alloc_var("int32", init=0)
                if tx < 64:
                    while k < 3:
                        k = k + 1
                        if k == 2:
                            T.atomic_add(A, s)
                else:
                    k = 10
                    if k == 10:
                        T.atomic_add(A, s)
                if after and k > 5:
                    T.atomic_add(A, s)

        return findings(kernel)

    assert build(False) == []
    (found,) = build(True)
    assert found.got == "`k[0] > 5`"


def test_a_variable_that_only_some_threads_of_the_arm_set():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((64,), "int32")
            T.clear(s)
            tx = T.get_thread_binding()
            k = T.alloc_var("int32", init=0)
            if tx < 64:
                if tx < 32:
                    k = 1
                if k == 0:
                    T.atomic_add(A, s)

    (found,) = findings(kernel)
    assert found.got == "`k[0] == 0`"


def test_warp_groups_and_arms_in_each_other():
    @T.prim_func
    def kernel(A: T.Tensor((4, 40), "int32")):
        with T.Kernel(1, threads=512):
            tx = T.get_thread_binding()
            s = T.alloc_shared((4, 40), "int32")
            with T.ws(0, 3):
                T.fill(s[0, :], 1)
                T.copy(s[0, :], A[0, :])
                if tx < 32:
                    T.fill(s[1, :], 2)
                    T.copy(s[1, :], A[1, :])
                if tx >= 32:  # the rest of both groups
                    T.fill(s[2, :], 3)
            if tx < 256:
                with T.ws(1):
                    T.fill(s[3, :], 4)
                    T.copy(s[3, :], A[3, :])

    (found,) = findings(kernel)
    assert found.message.startswith("T.fill is") and "threads 32 to 127, 384 to 511" in found.got


def test_what_threads_do_together():
    """All operations of several threads are refused where some threads arrive."""

    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32"), H: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((64,), "float32")
            h = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            f = T.alloc_fragment((64,), "float32")
            total = T.alloc_fragment((1,), "float32")
            tx = T.get_thread_binding()
            if tx < 16:
                T.sync_threads()
                for i in T.Parallel(64):
                    for _ in T.Parallel(1):
                        s[i] = 1.0
                T.reduce_sum(f, total)
                T.cumsum(f)
                T.gemm(h, h, acc)
                T.wgmma_gemm(h, h, acc)
                T.any_of(f)
                T.syncthreads_or(tx)
                with T.ws(0):
                    s[0] = 2.0

    assert [d.message.split()[0] for d in findings(kernel)] == [
        "T.sync_threads",
        "T.Parallel",
        "T.reduce_sum",
        "T.cumsum",
        "T.gemm",
        "T.wgmma_gemm",
        "T.any_of",
        "T.syncthreads_or",
        "T.ws",
    ]


def test_what_each_thread_does_for_itself():
    """One element, and memory of the thread's own: any thread, at any place."""

    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            own = T.alloc_local((4,), "float32")
            T.fill(own, 1.0)
            if tx % 3 == 1:
                T.copy(A[tx : tx + 4], own)
                T.atomic_add(B[0], 1.0)
            if tx == 5:
                T.clear(own)
            B[tx] = B[tx] + own[0] if tx > 0 else B[0]

    assert findings(kernel) == []
    a, b = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    tilelang.compile(kernel, target="emulate")(a, b)
    want = np.where(np.arange(64) % 3 == 1, a, 1.0)
    want[[0, 5]] = 21, 0
    np.testing.assert_array_equal(b, want)


def test_loops_that_threads_leave_at_different_times():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "int32")
            tx = T.get_thread_binding()
            for _ in T.serial(tx):
                T.clear(s)
            for _k in T.serial(4):
                if tx < 32:
                    continue
                T.clear(s)
            T.copy(s, A)

    assert [d.message.split()[0] for d in findings(kernel)] == ["T.fill", "T.fill"]


def test_what_is_stated_decides_nothing():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "int32")
            tx = T.get_thread_binding()
            T.assume(tx < 64)
            T.device_assert(tx < 100)
            T.copy(A, s)

    assert findings(kernel) == []


def test_no_barrier_stands_inside_of_t_parallel():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                T.sync_threads()
                A[i] = 1

    (found,) = findings(kernel)
    assert found.message.startswith("T.sync_threads inside T.Parallel")
    assert found.severity is Severity.ERROR


def test_ranges_of_threads():
    truth = np.array([1, 1, 0, 0, 1, 0, 1], bool)
    assert ranges(truth) == [(0, 2), (4, 5), (6, 7)]
    assert ranges(np.zeros(3, bool)) == []
    assert ranges(np.ones(3, bool)) == [(0, 3)]
