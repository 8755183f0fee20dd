"""T.clc_*: blocks and clusters that take over what others would have done, against NumPy, on the
emulator and on the simulated chip, and as machine code.
"""

# ruff: noqa: SIM102 - the conditions are written to be traced

import re

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from blackwell_build import check_blackwell
from simulator_faults import faults
from tilelang.dtypes import DType
from tilelang.errors import TileError, TileValueError
from tilelang.ir.expr import Const
from tilelang.ir.read import read_function
from tilelang.ir.text import print_function
from tilelang.ir.thread import Instr, Program
from tilelang.ir.verify import violations
from tilelang.isa.target import parse_target
from tilelang.passes.pipeline import lower
from tilelang.simulator.gpu import SimulatedProgram
from tilelang.simulator.machine import Schedule
from tilelang.simulator.machine.schedule import Mode
from tilelang.targets import CHIPS
from tilelang.targets.cuda.nvrtc import compile_source, is_installed
from tilelang.targets.cuda.program import emit
from tilelang.targets.cuda.rows import ROWS

TRY = "clusterlaunchcontrol.try_cancel"
RANDOM = np.random.default_rng(5)


def rows_by_whoever_is_there(rows, width, threads=128, *, meet=True):
    """B = A + 1 row by row; a block goes on with the rows of blocks that have not begun, and says
    in `began` which blocks have.
    """

    @T.prim_func
    def kernel(
        A: T.Tensor((rows, width), "float32"),
        B: T.Tensor((rows, width), "float32"),
        began: T.Tensor((rows,), "int32"),
    ):
        with T.Kernel(rows, threads=threads) as bx:
            answer = T.alloc_shared((4,), "uint32")
            bar = T.alloc_barrier(1)
            tx = T.get_thread_binding()
            row = T.alloc_var("int32", init=bx)
            phase = T.alloc_var("int32", init=0)
            more = T.alloc_var("int32", init=1)
            if tx == 0:
                began[bx] = 1
            while more != 0:
                if tx == 0:
                    T.mbarrier_arrive_expect_tx(bar, 16)
                    T.clc_try_cancel(answer, bar)
                for j in T.Parallel(width):
                    B[row, j] = A[row, j] + 1
                T.mbarrier_wait_parity(bar, phase)
                phase = phase ^ 1
                more = T.clc_is_canceled(answer)
                row = T.cast(T.clc_get_first_ctaid_x(answer), "int32")
                if meet:
                    T.sync_threads()

    return kernel


@pytest.mark.parametrize(
    ("rows", "width", "threads"),
    [(0, 24, 32), (1, 24, 32), (5, 40, 96), (24, 100, 128), (3, 127, 256)],
)
def test_rows_of_blocks_that_never_begin(rows, width, threads):
    kernel = rows_by_whoever_is_there(rows, width, threads)
    a = RANDOM.integers(-9, 10, (rows, width)).astype(np.float32)
    args = {"A": a, "B": np.zeros_like(a), "began": np.zeros(rows, np.int32)}
    for target in ("emulate", "simulate:sm_100a", "simulate:sm_120a"):
        b, began = np.zeros_like(a), np.zeros(rows, np.int32)
        tilelang.compile(kernel, target=target)(a, b, began)
        np.testing.assert_array_equal(b, a + 1, err_msg=target)
        assert began.sum() == min(rows, 1)  # in order, the first block does everything
    assert not tilelang.check(kernel, run_with=(a, np.zeros_like(a), args["began"].copy()))
    simulated = SimulatedProgram(lower(kernel.ir, chip("sm_100a")), ROWS)
    begun = set()
    for schedule in Schedule.sweep(8):
        got = {k: v.copy() for k, v in args.items()}
        assert not simulated.check(got, schedule)
        np.testing.assert_array_equal(got["B"], a + 1)
        begun.add(int(got["began"].sum()))
        assert schedule.mode is not Mode.EARLY or got["began"].all()
    assert len(begun) > 2 or rows < 4


def test_all_have_read_an_answer_before_the_next_request():
    """The barrier is the compiler's, where the author has none."""
    a = np.ones((5, 40), np.float32)
    kernel = rows_by_whoever_is_there(5, 40, 96, meet=False)
    simulated = SimulatedProgram(lower(kernel.ir, chip("sm_100a")), ROWS)
    for schedule in Schedule.sweep(5):
        args = {"A": a, "B": np.zeros_like(a), "began": np.zeros(5, np.int32)}
        assert not simulated.check(args, schedule)
        assert (args["B"] == 2).all()


def chip(name):
    return parse_target(f"cuda:{name}", CHIPS)


def cells_of_a_grid(grid, cluster=1, multicast=False):
    """Every block of a grid of three axes writes its number, with a loop over answers. With
    `multicast` a cluster shares its answers.
    """
    x, y, z = grid

    @T.prim_func
    def kernel(C: T.Tensor((z, y, x), "int32")):
        with T.Kernel(x, y, z, threads=64, cluster_dims=cluster) as (bx, by, bz):
            answers = T.alloc_shared((2, 4), "int32")
            bar = T.alloc_cluster_barrier([1]) if multicast else T.alloc_barrier(1)
            read = T.alloc_cluster_barrier([cluster])
            tx = T.get_thread_binding()
            rank = T.block_rank_in_cluster()
            at = T.alloc_local((3,), "int32")
            at[0], at[1], at[2] = bx, by, bz
            for turn in T.serial(x * y * z):
                if tx == 0:
                    C[at[2], at[1], at[0]] = at[0] + x * (at[1] + y * at[2]) + 1
                    T.mbarrier_arrive_expect_tx(bar, 16)
                    if multicast:
                        if rank == 0:
                            if turn > 0:
                                T.mbarrier_wait_parity(read, (turn - 1) % 2)
                            T.clc_try_cancel_multicast(answers[1, :], bar)
                    else:
                        T.clc_try_cancel(answers[1, :], bar)
                T.mbarrier_wait_parity(bar, turn % 2)
                if T.clc_is_canceled(answers[1, 0]) == 0:
                    T.loop_break()
                at[0] = T.cast(T.clc_get_first_ctaid_x(answers[1, :]), "int32")
                at[0] += rank if multicast else 0
                at[1] = T.cast(T.clc_get_first_ctaid_y(answers[1, :]), "int32")
                at[2] = T.cast(T.clc_get_first_ctaid_z(answers[1, :]), "int32")
                T.sync_threads()
                if multicast and tx == 0:
                    T.mbarrier_arrive(read, 0)

    return kernel


@pytest.mark.parametrize(
    ("grid", "cluster", "multicast"),
    [((3, 2, 2), 1, False), ((1, 1, 5), 1, False), ((4, 3, 1), 2, True), ((4, 1, 2), 4, True)],
)
def test_every_block_of_a_grid_is_done_once(grid, cluster, multicast):
    kernel = cells_of_a_grid(grid, cluster, multicast)
    want = np.arange(np.prod(grid), dtype=np.int32).reshape(grid[::-1]) + 1
    for target in ("emulate", "simulate:sm_100a"):
        got = np.zeros_like(want)
        tilelang.compile(kernel, target=target)(got)
        np.testing.assert_array_equal(got, want, err_msg=target)
    assert not tilelang.check(kernel, run_with=(np.zeros_like(want),))
    program = check_blackwell(kernel, seeds=3, C=np.zeros_like(want))
    assert instructions(program).count(TRY + ".multicast" * multicast) == 1


def instructions(program: Program) -> list[str]:
    return [n.row for n in program.walk() if isinstance(n, Instr)]


# A product whose clusters take each other's tiles over ------------------------------------------


@T.macro
def loads(A, B, a, b, loaded, free, told, taken, go, tile, block, sizes):
    """The tiles of A and B, by a warp of each block."""
    tiles, across, depth, stages = sizes
    tx, rank = T.get_thread_binding(), T.block_rank_in_cluster()
    for turn in T.serial(tiles):
        mine = T.alloc_var("int32", init=block // 2)
        if turn > 0:
            T.mbarrier_wait_parity(told, (turn - 1) & 1)
            if go[0] == 0:
                T.loop_break()
            mine = tile[0]
            if tx == 0:
                T.mbarrier_arrive(taken, 0)
        row, column = (mine // across * 2 + rank) * 128, mine % across * 64 + rank * 32
        for step in T.serial(depth):
            t = turn * depth + step
            T.mbarrier_wait_parity(free[t % stages], ((t // stages) & 1) ^ 1)
            T.tma_copy(A[row, step * 32], a[t % stages, :, :], barrier=loaded[t % stages])
            T.tma_copy(B[step * 32, column], b[t % stages, :, :], barrier=loaded[t % stages])
            T.mbarrier_arrive(loaded[t % stages], 0)


@T.macro
def products(a, b, acc, loaded, free, full, empty, told, taken, go, sizes):
    """The products, by a warp of the first block."""
    tiles, _, depth, stages = sizes
    for turn in T.serial(tiles):
        if turn > 0:
            T.mbarrier_wait_parity(told, (turn - 1) & 1)
            if go[0] == 0:
                T.loop_break()
            if T.get_thread_binding() == 32:
                T.mbarrier_arrive(taken, 0)
        T.mbarrier_wait_parity(empty, (turn & 1) ^ 1)
        for step in T.serial(depth):
            t = turn * depth + step
            T.mbarrier_wait_parity(loaded[t % stages], (t // stages) & 1)
            T.tcgen05_gemm(
                a[t % stages, :, :],
                b[t % stages, :, :],
                acc,
                mbar=free[t % stages],
                clear_accum=step == 0,
                use_2cta=True,
            )
        T.tcgen05_mma_arrive(full, arrive_2cta=True)


@T.macro
def schedule(answer, asked, told, taken, go, tile, sizes):
    """The next tile, by a thread of each block; the first block asks for it."""
    rank = T.block_rank_in_cluster()
    for turn in T.serial(sizes[0]):
        if T.get_thread_binding() == 64:
            if rank == 0 and turn > 0:
                T.mbarrier_wait_parity(taken, (turn - 1) & 1)
            T.mbarrier_arrive_expect_tx(asked, 16)
            if rank == 0:
                T.clc_try_cancel_multicast(answer, asked)
            T.mbarrier_wait_parity(asked, turn & 1)
            go[0] = T.clc_is_canceled(answer)
            tile[0] = T.cast(T.clc_get_first_ctaid_x(answer), "int32") // 2
            T.mbarrier_arrive(told)
            T.mbarrier_arrive(taken, 0)
            if go[0] == 0:
                T.loop_break()


@T.macro
def stores(C, acc, out, full, empty, told, taken, go, tile, block, sizes):
    """The results, by a warpgroup of each block."""
    tiles, across, _, _ = sizes
    for turn in T.serial(tiles):
        mine = T.alloc_var("int32", init=block // 2)
        if turn > 0:
            T.mbarrier_wait_parity(told, (turn - 1) & 1)
            if go[0] == 0:
                T.loop_break()
            mine = tile[0]
            if T.get_thread_binding() % 32 == 0:
                T.mbarrier_arrive(taken, 0)
        T.mbarrier_wait_parity(full, turn & 1)
        T.copy(acc, out)
        T.mbarrier_arrive(empty, 0)
        row = (mine // across * 2 + T.block_rank_in_cluster()) * 128
        T.copy(out, C[row, mine % across * 64])


def product_by_pairs(shape, dtype="bfloat16", stages=2):
    """C = A @ B by pairs of blocks, as scheduler, loads, products and stores in warps of their own;
    each pair goes on with tiles of clusters that have not begun.
    """
    m, n, k = shape
    sizes = (m // 256) * (n // 64), n // 64, -(-k // 32), stages

    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), dtype), B: T.Tensor((k, n), dtype), C: T.Tensor((m, n), "float32")
    ):
        with T.ClusterKernel(sizes[0] * 2, threads=256, cluster_dims=2) as block:
            a = T.alloc_shared((stages, 128, 32), dtype)
            b = T.alloc_shared((stages, 32, 32), dtype)
            acc = T.alloc_tmem((128, 64), "float32")
            out = T.alloc_fragment((128, 64), "float32")
            loaded = T.alloc_cluster_barrier([64] * stages)
            free = T.alloc_cluster_barrier([1] * stages)
            full, empty = T.alloc_cluster_barrier([1]), T.alloc_cluster_barrier([256])
            asked, taken = T.alloc_cluster_barrier([1]), T.alloc_cluster_barrier([13])
            told = T.alloc_barrier([1])
            answer = T.alloc_shared((4,), "uint32")
            go, tile = T.alloc_shared((1,), "int32"), T.alloc_shared((1,), "int32")
            tx, rank = T.get_thread_binding(), T.block_rank_in_cluster()
            if tx < 32:
                loads(A, B, a, b, loaded, free, told, taken, go, tile, block, sizes)
            elif rank == 0 and tx < 64:
                products(a, b, acc, loaded, free, full, empty, told, taken, go, sizes)
            elif 64 <= tx < 96:
                schedule(answer, asked, told, taken, go, tile, sizes)
            elif 128 <= tx < 256:
                stores(C, acc, out, full, empty, told, taken, go, tile, block, sizes)

    return kernel


def matrices(shape):
    m, n, k = shape
    a = RANDOM.integers(-4, 5, (m, k)).astype(tilelang.dtypes.DType("bfloat16").numpy)
    b = RANDOM.integers(-4, 5, (k, n)).astype(a.dtype)
    return a, b, a.astype(np.float32) @ b.astype(np.float32)


@pytest.mark.parametrize("shape", [(256, 64, 32), (256, 192, 96), (512, 128, 64)])
def test_a_product_whose_pairs_take_tiles_over(shape):
    a, b, want = matrices(shape)
    kernel = product_by_pairs(shape)
    for target in ("emulate", "simulate:sm_100a"):
        got = np.zeros_like(want)
        tilelang.compile(kernel, target=target)(a, b, got)
        np.testing.assert_array_equal(got, want, err_msg=target)
    check_blackwell(kernel, seeds=3, A=a, B=b, C=np.zeros_like(want))


@pytest.mark.simulate
@pytest.mark.parametrize("shape", [(256, 192, 96), (512, 128, 64)])
def test_a_product_whose_pairs_take_tiles_over_under_many_orders(shape):
    a, b, want = matrices(shape)
    check_blackwell(product_by_pairs(shape), seeds=50, A=a, B=b, C=np.zeros_like(want))


@pytest.mark.simulate
def test_blocks_that_never_begin_under_many_orders():
    a = np.ones((24, 100), np.float32)
    simulated = SimulatedProgram(lower(rows_by_whoever_is_there(24, 100).ir, chip("sm_100a")), ROWS)
    for schedule in Schedule.sweep(50):
        args = {"A": a, "B": np.zeros_like(a), "began": np.zeros(24, np.int32)}
        assert not simulated.check(args, schedule)
        np.testing.assert_array_equal(args["B"], a + 1)


# Machine code ------------------------------------------------------------------------------------


@pytest.mark.skipif(not is_installed(), reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a", "sm_120a"])
def test_the_instructions_become_machine_code(arch):
    kernels = [rows_by_whoever_is_there(5, 40), cells_of_a_grid((4, 3, 1), 2, multicast=True)]
    if arch != "sm_120a":
        kernels.append(product_by_pairs((256, 128, 64)))
    for kernel in kernels:
        source = emit(lower(kernel.ir, chip(arch)), chip(arch)).text
        assert re.search(r"clusterlaunchcontrol\.try_cancel\.async\S*\.b128", source)
        assert "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128" in source
        made = compile_source(source, arch)
        assert not made.warnings
        assert all(r.spill_stores == 0 for r in made.resources.values())


# Faults and refusals -----------------------------------------------------------------------------


def faulty(fault):
    """A loop over answers with one fault."""

    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(8, threads=64) as bx:
            answer = T.alloc_shared((4,), "uint32")
            bar = T.alloc_barrier(1)
            tx = T.get_thread_binding()
            at = T.alloc_var("int32", init=bx)
            for turn in T.serial(9):
                A[at] = 1
                if tx == 0:
                    if fault != "bytes that nothing expects":
                        T.mbarrier_arrive_expect_tx(bar, 16)
                    else:
                        T.mbarrier_arrive(bar)
                    T.clc_try_cancel(answer, bar)
                if fault != "no wait for the answer":
                    T.mbarrier_wait_parity(bar, turn % 2)
                more = T.clc_is_canceled(answer)
                at = T.cast(T.clc_get_first_ctaid_x(answer), "int32")
                if fault != "a request after the last answer":
                    if more == 0:
                        T.loop_break()
                T.sync_threads()

    return kernel


FAULTS = {
    "": "",
    "bytes that nothing expects": "deadlock",
    "no wait for the answer": "race",
    "a request after the last answer": "async",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_reported(fault):
    simulated = SimulatedProgram(lower(faulty(fault).ir, chip("sm_100a")), ROWS)
    found = [
        d.kind for s in Schedule.sweep(3) for d in simulated.check({"A": np.zeros(8, np.int32)}, s)
    ]
    assert bool(found) == bool(fault)
    assert not fault or FAULTS[fault] in found


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("bytes that nothing expects", "bytes came that it does not expect"),
        ("no wait for the answer", "answer is read while T.clc_try_cancel writes it"),
    ],
)
def test_the_dynamic_check_reports_it_too(fault, why):
    found = tilelang.check(faulty(fault), run_with=(np.zeros(8, np.int32),))
    assert any(why in d.message for d in found), [d.message for d in found]


def without(program, row):
    """The program without the instructions of one row."""
    return program.rewrite(
        lambda n: (
            n.with_(row="nanosleep", ins=(Const(0, DType("int32")),))
            if isinstance(n, Instr) and n.row == row
            else None
        )
    )


def test_an_answer_that_is_read_is_fenced_before_the_next_one():
    program = lower(faulty("").ir, chip("sm_100a"))
    bare = SimulatedProgram(without(program, "fence.proxy.async"), ROWS)
    (found,) = {
        (d.kind, "overwrites what thread" in d.message)
        for d in bare.check({"A": np.zeros(8, np.int32)}, Schedule())
    }
    assert found == ("proxy", True)


def test_a_block_that_ends_before_its_answer_is_there():
    @T.prim_func
    def kernel(A: T.Tensor((2,), "int32")):
        with T.Kernel(2, threads=32) as bx:
            answer, bar = T.alloc_shared((4,), "uint32"), T.alloc_barrier(1)
            if T.get_thread_binding() == 0:
                T.mbarrier_arrive_expect_tx(bar, 16)
                T.clc_try_cancel(answer, bar)
            A[bx] = 1

    found = SimulatedProgram(lower(kernel.ir, chip("sm_100a")), ROWS).check(
        {"A": np.zeros(2, np.int32)}, Schedule(Mode.LATE)
    )
    assert "leak" in {d.kind for d in found}
    (text,) = [d.message for d in tilelang.check(kernel, run_with=(np.zeros(2, np.int32),))]
    assert "T.clc_try_cancel is never waited for" in text


def written(body):
    """A kernel whose body gets a tile of words, other ones and a barrier."""

    @T.prim_func
    def kernel(A: T.Tensor((8,), "uint32")):
        with T.Kernel(1, threads=32):
            words, halves = T.alloc_shared((3, 8), "uint32"), T.alloc_shared((8,), "float16")
            few, bar = T.alloc_shared((2,), "uint32"), T.alloc_barrier(1)
            body(A, words, halves, few, bar)

    return kernel


@pytest.mark.parametrize(
    ("body", "cls", "why"),
    [
        (lambda a, w, h, f, b: T.clc_try_cancel(h, b), TileValueError, "16 bytes of halves"),
        (lambda a, w, h, f, b: T.clc_try_cancel(f, b), TileValueError, "16 bytes of few"),
        (lambda a, w, h, f, b: T.clc_is_canceled(w[1, 2]), TileValueError, "multiple of four"),
        (lambda a, w, h, f, b: T.clc_try_cancel(a, b), TileError, "shared memory"),
        (lambda a, w, h, f, b: T.clc_try_cancel_multicast(w, w), TileError, "mbarrier"),
        (lambda a, w, h, f, b: T.clc_get_first_ctaid_y(7), TileError, "an element of a buffer"),
    ],
)
def test_other_answers_are_errors(body, cls, why):
    with pytest.raises(cls, match=why):
        written(body)
    assert written(lambda a, w, h, f, b: T.clc_try_cancel(w[2, 4:8], b))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("answer[0 : +4], bar", "answer[0 : +2], bar", "is not 16 bytes"),
        ('"is_canceled"', '"is_done"', "has no 'is_done'"),
    ],
)
def test_the_statements_have_rules(old, new, why):
    fn = faulty("").ir
    text = print_function(fn)
    assert read_function(text) == fn
    assert not violations(fn)
    assert old in text, text
    assert why in "\n".join(violations(read_function(text.replace(old, new))))


def test_every_step_that_is_left_out_is_reported():
    """But for the fence between two queries, as the one after the second is enough."""
    a = np.ones((5, 40), np.float32)
    program = lower(rows_by_whoever_is_there(5, 40, 96).ir, chip("sm_100a"))
    silent = []
    for dropped, *_ in faults(program):
        simulated = SimulatedProgram(dropped.program, ROWS)
        found = []
        for schedule in Schedule.sweep(5):
            args = {"A": a, "B": np.zeros_like(a), "began": np.zeros(5, np.int32)}
            found += simulated.check(args, schedule)
            assert found or (args["B"] == 2).all(), f"{dropped}: only the result shows it"
            if found:
                break
        if not found:
            silent.append(dropped.what)
    assert silent == ["fence.proxy.async dropped"]
