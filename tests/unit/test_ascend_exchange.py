"""What cube and vector cores hand to each other outside of loops that meet, around them, under
conditions and in many places: right in order and on queues, or refused at the author's line.
"""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from adapter_programs import AUTO
from tilelang.errors import TileError
from tilelang.ir.ascend import Core, CoreRegion, CrossWait
from tilelang.ir.tile import For
from tilelang.passes.ascend.explicit import explicit
from tilelang.passes.ascend.settings import Automatic, with_automatic
from tilelang.simulator.machine import Schedule
from tilelang.targets import target

N = 16
HALF = "float16"
SEEDS, SWEEP = 3, 20


def core_group(program):
    """A kernel that runs `program(A, B, workspace, workspace_back, plain, cube, vector)`.

    `cube(src, k, dst, n)` multiplies tile k by itself on the cube core, `vector(src, k, dst, n)`
    adds one to it on the vector cores, each half of the rows. Tiles on the way to the cube core
    (`workspace_back`) have float16, those away from it float32. The name of `plain` is no
    workspace's.
    """

    @T.prim_func
    def kernel(
        A: T.Tensor((4, N, N), HALF),
        B: T.Tensor((4, N, N), "float32"),
        workspace: T.Tensor((4, N, N), "float32"),
        workspace_back: T.Tensor((4, N, N), HALF),
        plain: T.Tensor((4, N, N), HALF),
    ):
        with T.Kernel(1, is_npu=True) as (_cid, vid):
            p = T.alloc_L1((N, N), HALF)
            c = T.alloc_L0C((N, N), "float32")
            x = T.alloc_ub((N // 2, N), "float32")
            y = T.alloc_ub((N // 2, N), HALF)
            low = vid * (N // 2)

            def cube(src, k, dst, n):
                T.copy(src[k, :, :], p)
                T.gemm_v0(p, p, c, init=True)
                T.copy(c, dst[n, :, :])

            def vector(src, k, dst, n):
                T.copy(src[k, low : low + N // 2, :], x)
                T.tile.add(x, x, 1.0)
                T.tile.min(x, x, 9.0)
                T.tile.max(x, x, -9.0)
                if dst is B:
                    T.copy(x, dst[n, low : low + N // 2, :])
                else:
                    T.copy(x, y)
                    T.copy(y, dst[n, low : low + N // 2, :])

            program(A, B, workspace, workspace_back, plain, cube, vector)

    return kernel


def compiled(program):
    return tilelang.compile(
        core_group(program), out_idx=[1], workspace_idx=[2, 3, 4], pass_configs=AUTO
    )


def matrices(seed=0):
    return np.random.default_rng(seed).integers(-2, 3, (4, N, N)).astype(np.float16)


def square(x):
    x = x.astype(np.float32)
    return x @ x


def plus(x):
    return (x.astype(np.float32) + 1).clip(-9, 9)


def check(program, answer, seeds=SEEDS):
    """The tiles of `B` that `answer` has are right in order and on queues, with no finding."""
    kernel = compiled(program)
    wanted = answer(matrices())
    got = kernel(matrices())
    for k, tile in wanted.items():
        np.testing.assert_array_equal(got[k], tile)
    for schedule in Schedule.sweep(seeds):
        bound = kernel._signature.bind([matrices()], {})
        found = kernel._program.program.check(dict(bound.values), schedule)
        assert [d.render() for d in found] == []
        for k, tile in wanted.items():
            np.testing.assert_array_equal(bound.results[0][k], tile)


# ---- Straight-line code --------------------------------------------------------------------------


@T.macro
def cube_reads_first(A, B, there, back, plain, cube, vector):
    cube(A, 0, there, 0)
    cube(back, 0, B, 0)
    vector(there, 0, back, 0)


@T.macro
def vector_reads_first(A, B, there, back, plain, cube, vector):
    vector(there, 0, B, 0)
    cube(A, 0, there, 0)


@T.macro
def there_and_back_twice(A, B, there, back, plain, cube, vector):
    cube(A, 0, there, 0)
    cube(back, 0, there, 0)
    cube(back, 0, B, 0)
    vector(there, 0, back, 0)
    vector(there, 0, back, 0)


def _twice(a):
    return {0: square(plus(square(plus(square(a[0])))))}


@T.macro
def in_program_order(A, B, there, back, plain, cube, vector):
    cube(A, 0, there, 0)
    vector(there, 0, back, 0)
    cube(back, 0, B, 0)
    vector(there, 0, B, 1)
    cube(A, 1, there, 0)
    vector(there, 0, B, 2)


@T.macro
def a_tensor_in_place(A, B, there, back, plain, cube, vector):
    cube(A, 0, B, 0)
    cube(A, 1, B, 1)
    vector(B, 0, B, 0)


STRAIGHT = [
    (cube_reads_first, lambda a: {0: square(plus(square(a[0])))}),
    (vector_reads_first, lambda a: {0: plus(square(a[0]))}),
    (there_and_back_twice, _twice),
    (
        in_program_order,
        lambda a: {
            0: square(plus(square(a[0]))), 1: plus(square(a[0])), 2: plus(square(a[1]))
        },
    ),
    (a_tensor_in_place, lambda a: {0: plus(square(a[0])), 1: square(a[1])}),
]  # fmt: skip


@pytest.mark.parametrize(("program", "answer"), STRAIGHT, ids=lambda x: x.__name__)
def test_straight_line_code(program, answer):
    check(program, answer)


@T.macro
def in_a_circle(A, B, there, back, plain, cube, vector):
    cube(back, 0, there, 0)
    vector(there, 0, back, 0)


@T.macro
def read_twice_early(A, B, there, back, plain, cube, vector):
    vector(there, 0, B, 0)
    vector(there, 0, B, 1)
    cube(A, 0, there, 0)


@T.macro
def no_answer(A, B, there, back, plain, cube, vector):
    cube(back, 0, B, 0)
    vector(there, 0, back, 0)
    vector(there, 1, back, 0)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (in_a_circle, "each waits for what the other gives later"),
        (read_twice_early, "does not answer the n-th by the other"),
        (no_answer, "does not answer the n-th by the other"),
    ],
)
def test_reads_for_which_there_is_no_write_are_refused_at_their_line(program, why):
    with pytest.raises(TileError, match=why) as refused:
        compiled(program)
    (said,) = refused.value.diagnostics
    assert "before the other kind of core writes it" in said.message
    assert said.loc is not None and said.loc.file.endswith("test_ascend_exchange.py")


# ---- Around loops --------------------------------------------------------------------------------


@T.macro
def before_and_behind(A, B, there, back, plain, cube, vector):
    """Both use the workspace once more before the loops, and once more behind them."""
    cube(A, 3, there, 0)
    vector(there, 0, B, 3)
    for k in T.serial(2):
        cube(A, k, there, 0)
    for k in T.serial(2):
        vector(there, 0, B, k)
    cube(A, 2, there, 0)
    vector(there, 0, B, 2)


@T.macro
def one_workspace_both_ways(A, B, there, back, plain, cube, vector):
    """Rounds of either kind of core write and read the same places, twice each."""
    for k in T.serial(3):
        cube(A, k, there, 0)
        cube(back, 0, there, 0)
        cube(back, 0, B, k)
    for _ in T.serial(3):
        vector(there, 0, back, 0)
        vector(there, 0, back, 0)


@T.macro
def parts_of_their_own(A, B, there, back, plain, cube, vector):
    """Rounds of the one differ from those of the other; each round has its part."""
    for k in T.serial(4):
        cube(A, k, there, k)
    for k in T.serial(2):
        vector(there, k + 1, B, k)


@T.macro
def more_rounds(A, B, there, back, plain, cube, vector):
    """The last round of the one is for all of the other."""
    for k in T.serial(3):
        cube(A, k, there, 0)
    for k in T.serial(2):
        vector(there, 0, B, k)


@T.macro
def loop_and_one(A, B, there, back, plain, cube, vector):
    for k in T.serial(3):
        cube(A, k, there, k)
    vector(there, 2, B, 0)
    vector(there, 1, B, 1)


@T.macro
def read_in_a_loop_first(A, B, there, back, plain, cube, vector):
    for k in T.serial(3):
        vector(there, k, B, k)
    for k in T.serial(3):
        cube(A, k, there, k)


LOOPS = [
    (
        before_and_behind,
        lambda a: {k: plus(square(a[k])) for k in range(4)},
    ),
    (
        one_workspace_both_ways,
        lambda a: {k: square(plus(square(plus(square(a[k]))))) for k in range(3)},
    ),
    (parts_of_their_own, lambda a: {k: plus(square(a[k + 1])) for k in range(2)}),
    (more_rounds, lambda a: dict.fromkeys(range(2), plus(square(a[2])))),
    (loop_and_one, lambda a: {0: plus(square(a[2])), 1: plus(square(a[1]))}),
    (read_in_a_loop_first, lambda a: {k: plus(square(a[k])) for k in range(3)}),
]


@pytest.mark.parametrize(("program", "answer"), LOOPS, ids=lambda x: x.__name__)
def test_loops_and_what_is_around_them(program, answer):
    check(program, answer)


@T.macro
def filled_before(A, B, there, back, plain, cube, vector):
    cube(A, 3, there, 0)
    for k in T.serial(2):
        cube(A, k, there, 0)
    for k in T.serial(2):
        vector(there, 0, B, k)
    vector(there, 0, B, 3)


@T.macro
def read_behind(A, B, there, back, plain, cube, vector):
    for k in T.serial(2):
        cube(A, k, there, 0)
    for k in T.serial(2):
        vector(there, 0, B, k)
    vector(there, 0, B, 3)


@T.macro
def used_between(A, B, there, back, plain, cube, vector):
    for k in T.serial(2):
        cube(A, k, there, 0)
    cube(A, 2, there, 0)
    vector(there, 0, B, 2)
    for k in T.serial(2):
        vector(there, 0, B, k)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (filled_before, "is also used outside of both, and not as often by the one core"),
        (read_behind, "is also used outside of both, and not as often by the one core"),
        (used_between, "is also used outside of both|needs the first and serves the second"),
    ],
)
def test_uses_around_loops_that_break_the_pairs_are_refused(program, why):
    with pytest.raises(TileError, match=why) as refused:
        compiled(program)
    (said,) = refused.value.diagnostics
    assert said.loc is not None and said.loc.file.endswith("test_ascend_exchange.py")


# ---- Conditions ----------------------------------------------------------------------------------


@T.macro
def under_one_condition(A, B, there, back, plain, cube, vector):
    for k in T.serial(4):
        if k % 2 == 1:
            cube(A, k, there, 0)
            vector(there, 0, B, k)


@T.macro
def each_under_its_own(A, B, there, back, plain, cube, vector):
    for k in T.serial(4):
        if k % 2 == 0:
            cube(A, k, there, 0)
    for k in T.serial(4):
        if k < 4:
            vector(there, 0, B, k)


@T.macro
def straight_conditions(A, B, there, back, plain, cube, vector):
    cube(A, 1, there, 0)
    for k in T.serial(2):
        if k == 1:
            cube(back, 0, B, 0)
        if k == 1:
            vector(there, 0, back, 0)


CONDITIONS = [
    (under_one_condition, lambda a: {k: plus(square(a[k])) for k in (1, 3)}),
    (each_under_its_own, lambda a: {k: plus(square(a[k // 2 * 2])) for k in range(4)}),
    (straight_conditions, lambda a: {0: square(plus(square(a[1])))}),
]


@pytest.mark.parametrize(("program", "answer"), CONDITIONS, ids=lambda x: x.__name__)
def test_exchanges_under_conditions(program, answer):
    check(program, answer)


@pytest.mark.simulate
@pytest.mark.parametrize(
    ("program", "answer"), [*STRAIGHT, *LOOPS, *CONDITIONS], ids=lambda x: x.__name__
)
def test_a_sweep_of_schedules(program, answer):
    check(program, answer, SWEEP)


# ---- One flag for several rounds -----------------------------------------------------------------


def pipelined(interval, stages=2):
    """Products that the vector cores add one to, over four rounds."""

    @T.prim_func
    def kernel(A: T.Tensor((4, N, N), HALF), B: T.Tensor((4, N, N), "float32")):
        with T.Kernel(1, threads=2, is_npu=True):
            p = T.alloc_shared((N, N), HALF)
            c = T.alloc_fragment((N, N), "float32")
            x = T.alloc_shared((N, N), "float32")
            for k in T.Pipelined(4, num_stages=stages, cross_interval=interval):
                T.copy(A[k, :, :], p)
                T.gemm_v0(p, p, c, init=True)
                T.copy(c, x)
                T.tile.add(x, x, 1.0)
                T.copy(x, B[k, :, :])

    return kernel


def waits(kernel):
    fn = explicit(with_automatic(kernel.ir, Automatic), target("simulate:ascend910b"))
    (vector,) = (n for n in fn.walk() if isinstance(n, CoreRegion) and n.core is Core.VECTOR)
    loops = [n for n in vector.walk() if isinstance(n, For)]
    return sum(isinstance(n, CrossWait) for loop in loops for n in loop.walk())


def test_rounds_of_a_pipelined_loop_share_a_flag_where_they_are_asked_to():
    assert waits(pipelined(1)) == 2
    assert waits(pipelined(2)) == waits(pipelined(4)) == 1
    for interval in (1, 2, 3):
        kernel = tilelang.compile(pipelined(interval), out_idx=[1], pass_configs=AUTO)
        a = matrices()
        wanted = np.stack([square(x) + 1 for x in a])
        np.testing.assert_array_equal(kernel(a), wanted)
        assert tilelang.check(kernel, run_with=[a]) == []


# ---- Many places ---------------------------------------------------------------------------------


def many(count):
    @T.macro
    def program(A, B, there, back, plain, cube, vector):
        for k in range_of(count):
            cube(A, k % 4, there, k % 4)
            vector(there, k % 4, back, k % 4)
            cube(back, k % 4, B, k % 4)

    return program


def range_of(count):
    return tuple(range(count))


@pytest.mark.parametrize("count", [4, 9, 12])
def test_more_exchanges_than_there_are_flags(count):
    last = {k % 4: k % 4 for k in range(count)}
    check(many(count), lambda a: {n: square(plus(square(a[k]))) for n, k in last.items()}, 4)
