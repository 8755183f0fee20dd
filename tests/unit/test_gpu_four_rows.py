"""T.tma_gather4 and T.tma_scatter4: four rows of a matrix that lie anywhere, against NumPy, on the
emulator and on the simulated chip, and as machine code.
"""

import re

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from blackwell_build import check_blackwell
from tilelang.errors import TileError, TileValueError
from tilelang.ir.read import read_function
from tilelang.ir.text import print_function
from tilelang.ir.thread import Instr, Program
from tilelang.ir.verify import violations
from tilelang.isa.target import parse_target
from tilelang.passes.pipeline import lower
from tilelang.simulator.gpu import SimulatedProgram
from tilelang.simulator.machine import Schedule
from tilelang.targets import CHIPS
from tilelang.targets.cuda.nvrtc import compile_source, is_installed
from tilelang.targets.cuda.program import emit
from tilelang.targets.cuda.rows import ROWS

GATHER, SCATTER = "cp.async.bulk.tensor.2d.gather4", "cp.async.bulk.tensor.2d.scatter4"
FOUR = [0, 1, 2, 3]
RANDOM = np.random.default_rng(11)


def gathered(x: np.ndarray, rows, col: int, width: int) -> np.ndarray:
    """Four rows of `x` from a column on; zeros where it has none."""
    out = np.zeros((4, width), x.dtype)
    for k, r in enumerate(rows):
        if 0 <= r < len(x):
            part = x[r, max(col, 0) : max(col + width, 0)]
            out[k, max(-col, 0) : max(-col, 0) + len(part)] = part
    return out


def scattered(tile: np.ndarray, y: np.ndarray, rows, col: int) -> np.ndarray:
    """`y` with the rows of the tile stored into it; what is outside is left out."""
    out = y.copy()
    for values, r in zip(tile, rows, strict=True):
        if 0 <= r < len(y):
            low, high = max(col, 0), min(col + len(values), y.shape[1])
            out[r, low:high] = values[low - col : high - col]
    return out


def there_and_back(shape, width, dtype="float16", col=0, threads=128):
    """Rows of A, doubled, to the same rows of B; the tile is not the first thing in memory."""
    m, n = shape

    @T.prim_func
    def kernel(A: T.Tensor((m, n), dtype), I: T.Tensor((4,), "int32"), B: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=threads):
            odd = T.alloc_shared((3,), "int32")
            s = T.alloc_shared((4, width), dtype)
            bar = T.alloc_barrier(1)
            odd[0] = I[0]
            if T.shuffle_elect(threads):
                T.mbarrier_expect_tx(bar, T.tma_gather4_bytes(width, dtype))
                T.tma_gather4(A, s, col, [odd[0], I[1], I[2], I[3]], barrier=bar)
                T.mbarrier_arrive(bar)
            T.mbarrier_wait_parity(bar, 0)
            for i, j in T.Parallel(4, width):
                s[i, j] = s[i, j] * 2
            if T.shuffle_elect(threads):
                T.tma_scatter4(s, B, col, [I[0], I[1], I[2], I[3]])
                T.tma_store_arrive()
            T.tma_store_wait(0, read=False)

    return kernel


def instructions(program: Program) -> list[str]:
    return [n.row for n in program.walk() if isinstance(n, Instr)]


@pytest.mark.parametrize(
    ("shape", "width", "dtype", "col", "rows"),
    [
        ((64, 64), 64, "float16", 0, (5, 1, 63, 0)),
        ((40, 96), 48, "float32", 24, (39, 7, 8, 24)),
        ((24, 40), 24, "bfloat16", 24, (3, 24, -1, 100)),  # columns and rows that do not exist
        ((7, 48), 32, "int8", -16, (6, 5, 0, -7)),
        ((3, 1024), 512, "float16", 512, (2, 0, 1, 3)),  # wider than a box
        ((1, 8), 8, "int32", 0, (1, 2, 0, -1)),
    ],
)
def test_rows_anywhere_there_and_back(shape, width, dtype, col, rows):
    kernel = there_and_back(shape, width, dtype, col)
    a = RANDOM.integers(-9, 10, shape).astype(tilelang.dtypes.DType(dtype).numpy)
    b, index = np.zeros_like(a), np.array(rows, np.int32)
    want = scattered(gathered(a, rows, col, width) * 2, b, rows, col)
    for target in ("emulate", "simulate:sm_100a"):
        got = b.copy()
        tilelang.compile(kernel, target=target)(a, index, got)
        np.testing.assert_array_equal(got, want, err_msg=target)
    assert not tilelang.check(kernel, run_with=(a, index, b.copy()))
    program = check_blackwell(kernel, seeds=3, A=a, I=index, B=b)
    used = instructions(program)
    assert used.count(GATHER) == used.count(SCATTER) == max(1, width // 256)


def many(count, scatter=True):
    """Rows named by I, `count` tiles one after the other: all threads get to each copy, and the
    barrier counts all of them.
    """

    @T.prim_func
    def kernel(
        A: T.Tensor((100, 48), "float32"),
        I: T.Tensor((count, 4), "int32"),
        B: T.Tensor((4 * count, 48), "float32"),
    ):
        with T.Kernel(1, threads=96):
            s = T.alloc_shared((4, 48), "float32")
            bar = T.alloc_barrier(96)
            t = T.get_thread_binding()
            for k in T.serial(count):
                if t == 0:
                    T.mbarrier_expect_tx(bar, T.tma_gather4_bytes(48, "float32"))
                rows = [I[k, 0], I[k, 1], I[k, 2], I[k, 3]]
                T.tma_gather4(A, s, 0, rows, barrier=bar, eviction_policy="evict_first")
                T.mbarrier_arrive(bar)
                T.mbarrier_wait_parity(bar, k % 2)
                if scatter:
                    to = [4 * k + 3, 4 * k, 4 * k + 1, 4 * k + 2]
                    T.tma_scatter4(s, B, 0, to, eviction_policy="evict_last")
                    T.tma_store_arrive()
                    T.tma_store_wait(0)
                else:
                    T.copy(s, B[4 * k, 0])

    return kernel


@pytest.mark.parametrize("scatter", [True, False])
def test_all_threads_may_get_there_and_one_issues(scatter):
    a = RANDOM.integers(-9, 10, (100, 48)).astype(np.float32)
    index = RANDOM.integers(-2, 102, (5, 4)).astype(np.int32)
    b = np.zeros((20, 48), np.float32)
    tiles = [gathered(a, rows, 0, 48) for rows in index]
    want = np.concatenate([t[[1, 2, 3, 0]] if scatter else t for t in tiles])
    kernel = many(5, scatter)
    got = b.copy()
    tilelang.compile(kernel, target="emulate")(a, index, got)
    np.testing.assert_array_equal(got, want)
    program = check_blackwell(kernel, seeds=3, A=a, I=index, B=b)
    assert (SCATTER in instructions(program)) == scatter


@pytest.mark.parametrize("rows", [(7, 3, 7, 0), (99, 100, -1, 1)])
def test_a_warpgroup_that_only_loads(rows):
    @T.prim_func
    def kernel(A: T.Tensor((100, 40), "float32"), B: T.Tensor((24, 40), "float32")):
        with T.Kernel(1, threads=256):
            first, second = T.alloc_shared((4, 40), "float32"), T.alloc_shared((4, 40), "float32")
            full, empty = T.alloc_barrier([128, 128]), T.alloc_barrier([128, 128])
            with T.ws(1):
                for k in T.serial(3):
                    for at, tile in enumerate((first, second)):
                        T.mbarrier_wait_parity(empty[at], (k + 1) % 2)
                        if T.get_thread_binding() == 128:
                            T.mbarrier_expect_tx(full[at], T.tma_gather4_bytes(40, "float32"))
                        T.tma_gather4(A, tile, 0, [r + k for r in rows], barrier=full[at])
                        T.mbarrier_arrive(full[at])
            with T.ws(0):
                for k in T.serial(3):
                    for at, tile in enumerate((first, second)):
                        T.mbarrier_wait_parity(full[at], k % 2)
                        T.copy(tile, B[8 * k + 4 * at, 0])
                        T.mbarrier_arrive(empty[at])

    a = RANDOM.integers(-9, 10, (100, 40)).astype(np.float32)
    b = np.zeros((24, 40), np.float32)
    tiles = [gathered(a, [r + k for r in rows], 0, 40) for k in range(3) for _ in range(2)]
    tilelang.compile(kernel, target="emulate")(a, b)
    np.testing.assert_array_equal(b, np.concatenate(tiles))
    check_blackwell(kernel, seeds=3, A=a, B=np.zeros_like(b))


@pytest.mark.skipif(not is_installed(), reason="NVRTC is not installed")
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
def test_machine_code(arch):
    target = parse_target(f"cuda -arch={arch}", CHIPS)
    for kernel in (there_and_back((64, 64), 64), many(3)):
        source = emit(lower(kernel.ir, target), target).text
        assert {".tile::gather4.", ".tile::scatter4."} <= set(re.findall(r"\.tile::\w+4\.", source))
        assert not compile_source(source, arch).warnings


# Faults and refusals -----------------------------------------------------------------------------


def faulty(fault: str):
    """A gather and a scatter without one step."""

    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((4, 64), "float32")
            bar = T.alloc_barrier(1)
            if T.shuffle_elect(128):
                if fault != "bytes that nothing expects":
                    T.mbarrier_expect_tx(bar, T.tma_gather4_bytes(64, "float32"))
                T.tma_gather4(A, s, 0, [9, 8, 7, 6], barrier=bar)
                T.mbarrier_arrive(bar)
            if fault != "no wait for the rows":
                T.mbarrier_wait_parity(bar, 0)
            for i, j in T.Parallel(4, 64):
                s[i, j] = s[i, j] + 1
            if T.shuffle_elect(128):
                T.tma_scatter4(s, B, 0, [1, 2, 3, 4])
                if fault != "a group that is left open":
                    T.tma_store_arrive()
            T.tma_store_wait(0)
            T.clear(s)

    return kernel


@pytest.mark.parametrize(
    "fault", ["", "bytes that nothing expects", "no wait for the rows", "a group that is left open"]
)
def test_a_missing_step_is_reported(fault):
    target = parse_target("cuda -arch=sm_100a", CHIPS)
    simulated = SimulatedProgram(lower(faulty(fault).ir, target), ROWS)
    a = np.ones((64, 64), np.float32)
    found = [simulated.check({"A": a, "B": a.copy()}, s) for s in Schedule.sweep(3)]
    assert any(found) == bool(fault), fault


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("", ""),
        ("bytes that nothing expects", "1024 bytes came that it does not expect"),
        ("no wait for the rows", "s is read while T.tma_gather4 writes it"),
        ("a group that is left open", "T.tma_scatter4 is never waited for"),
    ],
)
def test_the_dynamic_check_reports_it_too(fault, why):
    a = np.ones((64, 64), np.float32)
    found = [d.message for d in tilelang.check(faulty(fault), run_with=(a, a.copy()))]
    assert bool(found) == bool(fault)
    assert any(why in message for message in found) == bool(fault)


def refusal(kernel, target: str) -> str:
    with pytest.raises(TileError) as caught:
        tilelang.compile(kernel, target=target)
    return str(caught.value)


@pytest.mark.parametrize("target", ["cuda:sm_90a", "simulate:sm_90a", "cuda:sm_120a"])
def test_chips_without_the_instructions_refuse_them(target):
    text = refusal(there_and_back((64, 64), 64), target)
    assert ".tile::gather4" in text
    assert ".tile::scatter4" in text
    assert "sm_100a, sm_103a" in text


@pytest.mark.parametrize(
    ("shape", "width", "why"),
    [
        ((64, 60), 32, "the rows of A are no multiple of 16 bytes"),
        ((64, 64), 20, "rows that are no multiple of 16 bytes"),
        ((64, 64), 8, "of at least 32"),
        ((64, 1024), 264, "no parts of at most 256 columns"),
    ],
)
def test_tiles_that_no_instruction_moves_are_errors(shape, width, why):
    text = refusal(there_and_back(shape, width), "simulate:sm_100a")
    assert "T.tma_gather4 has no instruction here" in text
    assert why in text


def test_a_matrix_that_is_stored_otherwise_is_an_error():
    @T.prim_func
    def kernel(B: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((4, 64), "float32")
            T.clear(s)
            B[0, 0] = 1
            T.tma_scatter4(s, B, 0, FOUR)
            T.tma_store_arrive()
            T.tma_store_wait(0)

    text = refusal(kernel, "cuda:sm_100a")
    assert "T.tma_scatter4 has no instruction here: the kernel uses B otherwise too" in text


def in_roles(elect, rounds=3, threads=384):
    """Rows named by I: a thread of one warpgroup loads them, others double them, and a thread of a
    third stores them to the same rows of B.
    """

    @T.prim_func
    def kernel(
        A: T.Tensor((100, 48), "float32"),
        I: T.Tensor((rounds, 4), "int32"),
        B: T.Tensor((100, 48), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            s, t = T.alloc_shared((4, 48), "float32"), T.alloc_shared((4, 48), "float32")
            full, empty = T.alloc_barrier(1), T.alloc_barrier(128)
            ready, stored = T.alloc_barrier(128), T.alloc_barrier(1)
            tx = T.get_thread_binding()
            with T.ws(1):
                for k in T.serial(rounds):
                    T.mbarrier_wait_parity(empty, (k & 1) ^ 1)
                    if elect(tx - 128):
                        T.mbarrier_expect_tx(full, T.tma_gather4_bytes(48, "float32"))
                        T.tma_gather4(A, s, 0, [I[k, 0], I[k, 1], I[k, 2], I[k, 3]], barrier=full)
                        T.mbarrier_arrive(full)
            with T.ws(0):
                for k in T.serial(rounds):
                    T.mbarrier_wait_parity(full, k & 1)
                    T.mbarrier_wait_parity(stored, (k & 1) ^ 1)
                    for i, j in T.Parallel(4, 48):
                        t[i, j] = s[i, j] * 2
                    T.mbarrier_arrive(empty)
                    T.fence_proxy_async()
                    T.mbarrier_arrive(ready)
            with T.ws(2):
                for k in T.serial(rounds):
                    T.mbarrier_wait_parity(ready, k & 1)
                    if elect(tx - 256):
                        T.tma_scatter4(t, B, 0, [I[k, 0], I[k, 1], I[k, 2], I[k, 3]])
                        T.tma_store_arrive()
                        T.tma_store_wait(0)
                        T.mbarrier_arrive(stored)

    return kernel


@pytest.mark.parametrize(
    "elect", [lambda tx: T.shuffle_elect(128), lambda tx: tx == 0, lambda tx: tx == 77]
)
def test_one_thread_of_a_warpgroup_issues_the_copies(elect):
    a = RANDOM.integers(-9, 10, (100, 48)).astype(np.float32)
    index = np.array([[99, 0, 40, 7], [1, 2, 100, -1], [50, 24, 98, 3]], np.int32)
    want = np.zeros_like(a)
    for rows in index:
        want = scattered(gathered(a, rows, 0, 48) * 2, want, rows, 0)
    kernel = in_roles(elect)
    for target in ("emulate", "simulate:sm_100a"):
        got = np.zeros_like(a)
        tilelang.compile(kernel, target=target)(a, index, got)
        np.testing.assert_array_equal(got, want, err_msg=target)
    program = check_blackwell(kernel, seeds=3, A=a, I=index, B=np.zeros_like(a))
    assert instructions(program).count(SCATTER) == 1


def boxes_by_one(shape):
    """Tiles of rows that follow each other, loaded by one thread of a warpgroup."""
    m, n = shape

    @T.prim_func
    def kernel(A: T.Tensor((3 * m, n), "float16"), B: T.Tensor((3 * m, n), "float16")):
        with T.Kernel(1, threads=256):
            s, full, empty = (
                T.alloc_shared(shape, "float16"),
                T.alloc_barrier(1),
                T.alloc_barrier(128),
            )
            with T.ws(1):
                for k in T.serial(3):
                    T.mbarrier_wait_parity(empty, (k & 1) ^ 1)
                    if T.shuffle_elect(128):
                        T.tma_copy(A[k * m, 0], s, barrier=full)
                        T.mbarrier_arrive(full)
            with T.ws(0):
                for k in T.serial(3):
                    T.mbarrier_wait_parity(full, k & 1)
                    T.copy(s, B[k * m, 0])
                    T.mbarrier_arrive(empty)

    return kernel


def test_one_thread_of_a_warpgroup_loads_boxes():
    a = RANDOM.integers(-9, 10, (96, 64)).astype(np.float16)
    program = check_blackwell(boxes_by_one((32, 64)), seeds=3, A=a, B=np.zeros_like(a))
    assert "cp.async.bulk.tensor.2d.load" in instructions(program)
    text = refusal(boxes_by_one((5, 24)), "simulate:sm_100a")
    assert "a copy by one thread of a part of the block, without tensor copies" in text


@pytest.mark.simulate
def test_one_thread_of_a_warpgroup_under_many_orders():
    a = np.ones((100, 48), np.float32)
    index = np.arange(12, dtype=np.int32).reshape(3, 4)
    kernel = in_roles(lambda tx: T.shuffle_elect(128))
    check_blackwell(kernel, seeds=50, A=a, I=index, B=np.zeros_like(a))


def test_other_operations_by_a_part_of_a_part_are_errors():
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((64, 64), "float32")
            tx = T.get_thread_binding()
            with T.ws(1):
                if tx < 192:
                    T.copy(A, s)
                    T.copy(s, B)

    text = refusal(kernel, "simulate:sm_100a")
    assert "an operation by some threads of a part of the block" in text


def by_blocks(count):
    """Each block of a cluster loads rows of its own, on a barrier of the cluster: its own."""

    @T.prim_func
    def kernel(
        A: T.Tensor((64, 64), "float16"),
        I: T.Tensor((2 * count, 4), "int32"),
        B: T.Tensor((2 * count, 4, 64), "float16"),
    ):
        with T.Kernel(2 * count, threads=64, cluster_dims=2) as bx:
            s, bar = T.alloc_shared((4, 64), "float16"), T.alloc_cluster_barrier([1])
            if T.shuffle_elect(64):
                T.mbarrier_expect_tx(bar, T.tma_gather4_bytes(64, "float16"))
                T.tma_gather4(A, s, 0, [I[bx, 0], I[bx, 1], I[bx, 2], I[bx, 3]], barrier=bar)
                T.mbarrier_arrive(bar)
            T.mbarrier_wait_parity(bar, 0)
            T.copy(s, B[bx, 0, 0])

    return kernel


@pytest.mark.parametrize("count", [1, 3])
def test_a_barrier_of_a_cluster_is_that_of_the_block(count):
    a = RANDOM.integers(-9, 10, (64, 64)).astype(np.float16)
    index = RANDOM.integers(-2, 66, (2 * count, 4)).astype(np.int32)
    want = np.stack([gathered(a, rows, 0, 64) for rows in index])
    for target in ("emulate", "simulate:sm_100a"):
        got = np.zeros_like(want)
        tilelang.compile(by_blocks(count), target=target)(a, index, got)
        np.testing.assert_array_equal(got, want, err_msg=target)
    check_blackwell(by_blocks(count), seeds=3, A=a, I=index, B=np.zeros_like(want))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("(9, 8, 7, 6)", "(9, 8, 7)", "3 rows instead of 4"),
        ("(9, 8, 7, 6)", "(9, 8.0, 7, 6)", "named by no integer"),
        ("s[0 : +4, 0 : +64], (", "s[0 : +2, 0 : +64], (", "no tile of four rows"),
        ("s[0 : +4, 0 : +64], (", "s[0 : +4, 0 : +32], (", "rows of"),
    ],
)
def test_the_statement_has_rules(old, new, why):
    text = print_function(faulty("").ir)
    assert not violations(read_function(text))
    assert text.count(old) == 1
    assert why in "\n".join(violations(read_function(text.replace(old, new))))


def written(body):
    """A kernel whose body gets a matrix, a tile and a barrier."""

    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float16"), C: T.Tensor((4, 8, 8), "float16")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((4, 64), "float16")
            bar = T.alloc_barrier(1)
            body(A, C, tile, bar)

    return kernel


@pytest.mark.parametrize(
    ("body", "cls", "why"),
    [
        (lambda a, _, s, b: T.tma_gather4(a, s, 0, FOUR[:3], barrier=b), TileValueError, "four"),
        (
            lambda a, _, s, b: T.tma_gather4(a, s[0:4, 0:8], 0, FOUR, barrier=b),
            TileValueError,
            r"\(4, K\)",
        ),
        (lambda _, c, s, b: T.tma_gather4(c, s, 0, FOUR, barrier=b), TileValueError, "two axes"),
        (lambda a, _, s, b: T.tma_gather4(s, a, 0, FOUR, barrier=b), TileError, "shared memory"),
        (lambda a, _, s, b: T.tma_gather4(a, s, 0.5, FOUR, barrier=b), TileError, "an integer"),
        (lambda a, _, s, b: T.tma_gather4(a, s, 0, FOUR, barrier=s), TileError, "mbarrier"),
        (lambda a, _, s, __: T.tma_scatter4(s, a, 0, FOUR, swizzle=3), TileError, "swizzle"),
        (lambda a, _, s, __: T.tma_scatter4(s, a, 0, 4), TileValueError, "rows"),
        (
            lambda a, _, s, __: T.tma_scatter4(s, a, 0, FOUR, eviction_policy="never"),
            TileError,
            "never",
        ),
    ],
)
def test_wrong_arguments_are_errors(body, cls, why):
    with pytest.raises(cls, match=why):
        written(body)
