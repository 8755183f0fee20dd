"""The list scheduler of Ascend core groups: what it moves, what keeps its place, and the model that
it counts with.
"""

import re
from dataclasses import replace

import numpy as np
import pytest

import tilelang
import tilelang.ascend.language as W
import tilelang.language as T
from adapter_programs import AUTO, attention, attention_of_two_loops, gemm_int8
from tilelang.ir.ascend import AtomicMode, Pipe, SetFlag
from tilelang.ir.tile import Copy
from tilelang.passes.ascend.explicit import EXPLICIT
from tilelang.passes.ascend.schedule import listed, schedule
from tilelang.passes.ascend.schedule_model import modelled
from tilelang.passes.ascend.settings import Automatic, with_automatic
from tilelang.passes.pipeline import lower
from tilelang.scopes import Memory
from tilelang.simulator.ascend import AscendProgram
from tilelang.simulator.machine import Schedule
from tilelang.targets import target

T_GM, T_UB = Memory.GLOBAL, Memory.UB
MODEL_910B, MODEL_950 = (target(f"simulate:ascend{x}") for x in ("910b", "950"))


def lowered(kernel, chip, *without):
    fn = with_automatic(kernel.ir, Automatic)
    return lower(fn, replace(chip, mode="native"), None, without)


def notes(program):
    return {kind: text for kind, text, _ in dict(program.attrs).get("notes", ())}


def cycles(program):
    return int(notes(program)["modelled time of a block"].split()[0])


# ---- Kernels that gain ---------------------------------------------------------------------------


def small_behind_large(rows):
    """A large tile, then a small one with a longer way to go: mainline."""

    @W.prim_func
    def kernel(
        A: W.Tensor((rows, 64), "float32"),
        X: W.Tensor((512,), "float32"),
        B: W.Tensor((rows, 64), "float32"),
        Y: W.Tensor((512,), "float32"),
    ):
        with W.Kernel(1):
            a = W.alloc_shared((rows, 64), "float32")
            x = W.alloc_shared((512,), "float32")
            y = W.alloc_shared((512,), "float32")
            W.copy(A, a)
            W.copy(a, B)
            W.copy(X, x)
            for _ in (0, 1, 2):
                with W.SimtVF(threads=64):
                    for i in W.Parallel(512):
                        y[i] = x[i] * x[i]
                with W.SimtVF(threads=64):
                    for i in W.Parallel(512):
                        x[i] = y[i] + 1.0
            W.copy(x, Y)

    return kernel


def tail_beside_product(M, N, K):
    """Vector cores turn a tile that does not need the product, but stands behind it: mainline."""

    @W.prim_func
    def kernel(
        A: W.Tensor((M, K), "float16"),
        B: W.Tensor((N, K), "float16"),
        X: W.Tensor((M, N), "float32"),
        C: W.Tensor((M, N), "float32"),
        Y: W.Tensor((M, N), "float32"),
    ):
        with W.Kernel(1):
            a = W.alloc_l1((M, K), "float16")
            b = W.alloc_l1((N, K), "float16")
            c = W.alloc_l0c((M, N), "float32")
            u = W.alloc_shared((M // 2, N), "float32")
            x = W.alloc_shared((M // 2, N), "float32")
            W.copy(A, a)
            W.copy(B, b)
            W.gemm(a, b, c, transpose_B=True, clear_accum=True)
            W.dual_copy(c, u)
            with W.SimtVF(threads=64):
                for i, j in W.Parallel(M // 2, N):
                    u[i, j] = W.max(u[i, j], 0.0)
            W.dual_copy(u, C)
            W.dual_copy(X, x)
            with W.SimtVF(threads=64):
                for i, j in W.Parallel(M // 2, N):
                    x[i, j] = x[i, j] * x[i, j]
            W.dual_copy(x, Y)

    return kernel


def _turned(x):
    for _ in range(3):
        x = x * x + 1
    return x


def _relu(a, b):
    return np.maximum(a.astype("f4") @ b.astype("f4").T, 0)


GAINS = [
    (small_behind_large(48), MODEL_950),
    (tail_beside_product(64, 48, 64), MODEL_950),
    (attention_of_two_loops(96, 32, 32, 32), MODEL_910B),
    (gemm_int8(64, 64, 96, (32, 32, 32)), MODEL_910B),
    (attention(96, 2, 32, 32, 32, 2), MODEL_910B),
]


@pytest.mark.parametrize(("kernel", "chip"), GAINS, ids=lambda x: getattr(x, "name", None))
def test_the_modelled_time_falls(kernel, chip):
    now, then = lowered(kernel, chip), lowered(kernel, chip, "list-schedule")
    assert cycles(now) < cycles(then)
    said = notes(now)["list schedule"]
    assert said.startswith(f"a block takes {cycles(now)} cycles by the model, {cycles(then)} ")
    assert "list schedule" not in notes(then)


@pytest.mark.parametrize(
    ("kernel", "shapes", "answers"),
    [
        (small_behind_large(40), {"A": (40, 64), "X": (512,)}, lambda a, x: (a, _turned(x))),
        (
            tail_beside_product(32, 48, 96),
            {"A": (32, 96), "B": (48, 96), "X": (32, 48)},
            lambda a, b, x: (_relu(a, b), x * x),
        ),
    ],
    ids=["small_behind_large", "tail_beside_product"],
)
def test_with_and_without_it_numbers_are_those_of_numpy(kernel, shapes, answers):
    rng = np.random.default_rng(0)
    given = {}
    for p in kernel.ir.params:
        dtype = np.dtype(p.buffer.dtype.name)
        shape = shapes.get(p.name, tuple(e.value for e in p.buffer.shape))
        given[p.name] = (
            rng.integers(-3, 4, shape) if p.name in shapes else np.zeros(shape)
        ).astype(dtype)
    wanted = answers(*(given[n] for n in shapes))
    for without in ((), ("list-schedule",)):
        model = AscendProgram(lowered(kernel, MODEL_950, *without), MODEL_950.chip)
        for turn in (None, *Schedule.sweep(4)):
            args = {k: v.copy() for k, v in given.items()}
            said = model.run(args) if turn is None else model.check(args, turn)
            assert [d.render() for d in said or ()] == []
            got = [v for k, v in args.items() if k not in shapes]
            for x, y in zip(got, wanted, strict=True):
                np.testing.assert_array_equal(x, y)


def test_the_compile_report_has_the_modelled_time():
    kernel = tilelang.compile(small_behind_large(24), target="simulate:ascend950")
    said = kernel.report()
    assert re.search(
        r"^modelled time of a block: \d+ cycles, V of the vector core \d+ %", said, re.M
    )
    assert re.search(r"^list schedule: a block takes \d+ cycles by the model, \d+ in", said, re.M)


def test_it_is_left_out_by_name(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_WITHOUT", "list-schedule")
    kernel = tilelang.compile(small_behind_large(24), target="simulate:ascend950")
    assert "list schedule" not in kernel.report()
    assert "modelled time" in kernel.report()


# ---- What keeps its place ------------------------------------------------------------------------


def reordered(kernel, chip=MODEL_910B, what=tuple(Automatic)):
    """The function before and after the list scheduler."""
    fn = with_automatic(kernel.ir, what)
    for one in EXPLICIT:
        if one is schedule:
            return fn, listed(fn, chip)
        fn = one(fn, chip)
    raise AssertionError


def order_of(fn, kind):
    return [n for n in fn.walk() if isinstance(n, kind)]


def loads_behind(middle, note=None):
    """Two tiles, and between them something that may keep the second behind the first."""

    @T.prim_func
    def kernel(A: T.Tensor((2, 64), "float"), C: T.Tensor((2, 64), "float")):
        with T.Kernel(1, is_npu=True) as (_, _vid), T.Scope("V"):
            a = T.alloc_ub((64,), "float")
            b = T.alloc_ub((64,), "float")
            if note is not None:
                T.annotate_address({a: note[0], b: note[1]})
            T.copy(A[0, :], a)
            T.tile.exp(a, a)
            T.copy(a, C[0, :])
            if middle is not None:
                middle()
            T.copy(A[1, :], b)
            T.tile.exp(b, b)
            T.copy(b, C[1, :])

    return kernel


@T.macro
def _barrier():
    T.barrier_all()


@T.macro
def _flags():
    T.set_flag("mte3", "mte2", 3)
    T.wait_flag("mte3", "mte2", 3)


def sources(fn):
    return [n.src.buffer.name for n in fn.walk() if isinstance(n, Copy)]


def test_loads_go_ahead_of_stores():
    then, now = reordered(loads_behind(None))
    assert sources(then) == ["A", "a", "A", "b"]
    assert sources(now) == ["A", "A", "a", "b"]


@pytest.mark.parametrize("middle", [_barrier, _flags])
def test_nothing_passes_what_the_author_orders(middle):
    then, now = reordered(loads_behind(middle))
    assert then == now


def test_buffers_that_the_author_lets_meet_keep_their_order():
    then, now = reordered(loads_behind(None, (0, 128)))
    assert then == now
    then, now = reordered(loads_behind(None, (0, 256)))
    assert then != now


def test_nothing_passes_a_change_of_the_atomic_mode():
    @W.prim_func
    def kernel(
        A: W.Tensor((64,), "float32"), B: W.Tensor((64,), "float32"), C: W.Tensor((64,), "float32")
    ):
        with W.Kernel(1):
            a = W.alloc_shared((64,), "float32")
            b = W.alloc_shared((64,), "float32")
            W.copy(A, a)
            W.set_atomic("add", "float32")
            W.copy(a, B)
            W.set_atomic_none()
            W.copy(C, b)
            W.copy(b, C)

    then, now = reordered(kernel, MODEL_950)
    assert then == now
    assert len(order_of(now, AtomicMode)) == 2


def test_an_order_that_memory_does_not_hold_is_not_taken():
    rows = 136  # three tiles of 64 columns do not fit beside each other

    @T.prim_func
    def kernel(A: T.Tensor((3, rows, 128), "float"), C: T.Tensor((3, rows, 128), "float")):
        with T.Kernel(1, is_npu=True) as (_, vid):
            tiles = [T.alloc_ub((rows, 128), "float") for _ in range(3)]
            if vid == 0:
                for k in (0, 1, 2):
                    T.copy(A[k, :, :], tiles[k])
                    T.tile.exp(tiles[k], tiles[k])
                    T.copy(tiles[k], C[k, :, :])

    then, now = reordered(kernel)
    assert then != now
    program = lowered(kernel, MODEL_910B)
    assert "list schedule" not in notes(program)


def test_without_automatic_flags_the_order_is_the_authors():
    kernel = loads_behind(None)
    plain = lower(
        with_automatic(kernel.ir, [Automatic.MEMORY, Automatic.CORES]),
        replace(MODEL_910B, mode="native"),
    )
    assert "list schedule" not in notes(plain)
    assert not any(isinstance(n, SetFlag) for n in plain.walk())


# ---- The model -----------------------------------------------------------------------------------


def test_the_model_counts_what_a_chain_and_two_queues_take():
    costs = MODEL_910B.chip.costs
    load, store = costs.moves[T_GM, T_UB], costs.moves[T_UB, T_GM]
    fn = with_automatic(loads_behind(None).ir, Automatic)
    for one in EXPLICIT:
        fn = one(fn, MODEL_910B)
    times = modelled(fn, MODEL_910B)
    vector = costs.vector["special"].busy(256)
    least = load.busy(256) + load.latency + vector + store.busy(256) + store.latency
    assert least < times.total <= least + load.busy(256) + 12 * costs.issue
    busy = {by.pipe: n for by, n in times.busy.items()}
    assert busy == {
        Pipe.MTE2: 2 * load.busy(256), Pipe.V: 2 * vector, Pipe.MTE3: 2 * store.busy(256)
    }  # fmt: skip


def test_a_program_whose_flags_do_not_fit_is_not_modelled():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float")):
        with T.Kernel(1, is_npu=True) as (_, _vid), T.Scope("V"):
            a = T.alloc_ub((64,), "float")
            T.annotate_address({a: 0})
            T.wait_cross_flag(3)
            T.copy(A, a)

    fn = with_automatic(kernel.ir, ())
    for one in EXPLICIT:
        fn = one(fn, MODEL_910B)
    assert modelled(fn, MODEL_910B) is None


def test_auto_settings_of_the_adapter_reorder_too():
    kernel = tilelang.compile(
        gemm_int8(64, 64, 96, (32, 32, 32)), target="simulate:ascend910b", pass_configs=AUTO
    )
    assert "list schedule: a block takes" in kernel.report()
