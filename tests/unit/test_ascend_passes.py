"""The automatic passes for Ascend cores, each by itself and together."""

import itertools

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from adapter_programs import AUTO, gemm_persistent, layer_norm, programs, softmax
from tilelang.errors import TileValueError
from tilelang.ir.ascend import Core, CoreRegion, PipeBarrier, SetFlag, WaitFlag
from tilelang.ir.tile import Alloc, Annotate, Parallel, Pipelined
from tilelang.ir.verify import violations
from tilelang.passes.ascend.effects import Effects
from tilelang.passes.ascend.explicit import EXPLICIT, explicit
from tilelang.passes.ascend.infer_scopes import infer_scopes
from tilelang.passes.ascend.lower import lower_ascend
from tilelang.passes.ascend.settings import Automatic, with_automatic
from tilelang.passes.ascend.storage import bytes_of
from tilelang.simulator.ascend import AscendProgram
from tilelang.simulator.machine import Schedule
from tilelang.targets import target

CHIP = target("simulate:ascend910b")
SEEDS = 4


def automatic(kernel, what=tuple(Automatic)):
    return with_automatic(kernel.ir, what)


def made(kernel, what=tuple(Automatic)):
    return explicit(automatic(kernel, what), CHIP)


def found(fn, arrays):
    """What the checks on queues find in an explicit function."""
    program = AscendProgram(lower_ascend(fn, CHIP), CHIP.chip)
    out = []
    for schedule in Schedule.sweep(SEEDS):
        out += program.check({k: v.copy() for k, v in arrays.items()}, schedule)
    return [d.render() for d in out]


def run(kernel, *args, **settings):
    return tilelang.compile(kernel, pass_configs=AUTO, **settings)(*args)


# ---- The list ------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", programs(), ids=lambda p: p.name)
def test_every_pass_leaves_a_function_of_the_tile_stage(program):
    configs = program.settings.get("pass_configs", {})
    fn = automatic(program.kernel, tuple(Automatic) if configs else ())
    for one in EXPLICIT:
        fn = one(fn, CHIP)
        assert violations(fn) == [], one.__name__
    nodes = list(fn.walk())
    assert not any(isinstance(n, (Parallel, Pipelined)) for n in nodes)
    assert {n.core for n in nodes if isinstance(n, CoreRegion)} <= set(Core)


@pytest.mark.parametrize("program", programs(), ids=lambda p: p.name)
def test_buffers_that_live_at_one_time_have_bytes_of_their_own(program):
    fn = made(program.kernel, [w for w in Automatic if w is not Automatic.MEMORY])
    effects = Effects(fn)
    notes = [n for n in fn.walk() if isinstance(n, Annotate) and n.kind == "address"]
    at = {b.name: a for n in notes for b, a in zip(n.buffers, n.values, strict=True)}
    spans = {}
    for alloc in (n for n in fn.walk() if isinstance(n, Alloc)):
        memory = effects.memory(alloc.buffer)
        if alloc.buffer.name in at:
            start = at[alloc.buffer.name]
            size = bytes_of(alloc.buffer, memory, alloc)
            assert start % 32 == 0
            spans.setdefault(memory, []).append((start, start + size))
    for each in spans.values():
        each.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(each) if a != b)


# ---- Memories by use -----------------------------------------------------------------------------


def test_what_touches_a_buffer_decides_its_memory():
    fn = infer_scopes(gemm_persistent(32, 48, 32, (32, 48, 32), 1).ir, CHIP)
    scopes = {n.buffer.name: n.buffer.scope for n in fn.walk() if isinstance(n, Alloc)}
    assert scopes == {"a": "shared.l1", "b": "shared.l1", "c": "wmma.accumulator"}


def test_a_buffer_of_two_memories_is_refused():
    @T.prim_func
    def kernel(A: T.Tensor((32, 32), "float16"), C: T.Tensor((32, 32), "float")):
        with T.Kernel(1, is_npu=True) as (_cid, _vid):
            a = T.alloc_fragment((32, 32), "float16")
            b = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float")
            T.copy(A, b)
            T.copy(b, a)
            T.mma(a, a, c, init=True)
            T.copy(c, C)

    with pytest.raises(TileValueError, match="a is used as a buffer of two memories"):
        made(kernel)


# ---- Vectors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "columns"), [(1, 24), (3, 40), (8, 96), (5, 128)])
def test_expressions_over_a_nest(rows, columns):
    @T.prim_func
    def kernel(
        A: T.Tensor((rows, columns), "float"),
        R: T.Tensor((rows,), "float"),
        C: T.Tensor((columns,), "float"),
        Y: T.Tensor((rows, columns), "float"),
    ):
        with T.Kernel(1, is_npu=True) as (_cid, vid):
            a = T.alloc_ub((rows, columns), "float")
            r = T.alloc_ub((rows + 7,), "float")
            c = T.alloc_ub((columns,), "float")
            if vid == 0:
                T.copy(A, a)
                T.copy(C, c)
                for i in T.Parallel(rows):
                    r[i] = R[i]
                for i, j in T.Parallel(rows, columns):
                    x = a[i, j] * 2.0 - r[i]
                    a[i, j] = T.if_then_else(x > c[j], T.exp(-x), 1.0 / (2.0 + x * x)) + r[i] * c[j]
                for i, j in T.Parallel(rows, columns):
                    if a[i, j] > 1.0:
                        a[i, j] = T.sqrt(a[i, j])
                for i, j in T.Parallel(rows, columns):
                    Y[i, j] = a[i, j] + 1.0

    rng = np.random.default_rng(0)
    a, r, c = (rng.standard_normal(s).astype("f4") for s in ((rows, columns), rows, columns))
    x = a * 2 - r[:, None]
    y = np.where(x > c, np.exp(-x), 1 / (2 + x * x)) + r[:, None] * c
    y = np.where(y > 1, np.sqrt(np.abs(y)), y) + 1
    np.testing.assert_allclose(run(kernel, a, r, c, out_idx=[3]), y, rtol=1e-5, atol=1e-5)


def test_what_has_no_vector_form_is_a_loop_over_elements():
    @T.prim_func
    def kernel(
        A: T.Tensor((40,), "float"), I: T.Tensor((40,), "int32"), Y: T.Tensor((40,), "float")
    ):
        with T.Kernel(1, is_npu=True) as (_cid, vid):
            a = T.alloc_ub((40,), "float")
            at = T.alloc_ub((40,), "int32")
            y = T.alloc_ub((40,), "float")
            if vid == 0:
                T.copy(A, a)
                T.copy(I, at)
                for i in T.Parallel(40):
                    y[i] = a[at[i]] * 2.0
                for i in T.Parallel(20):
                    y[2 * i] = y[2 * i] + 1.0
                T.copy(y, Y)

    rng = np.random.default_rng(0)
    a, at = rng.standard_normal(40).astype("f4"), rng.permutation(40).astype("i4")
    wanted = a[at] * 2
    wanted[::2] += 1
    np.testing.assert_array_equal(run(kernel, a, at, out_idx=[2]), wanted.astype("f4"))


# ---- Vector cores --------------------------------------------------------------------------------


def columns_last(threads):
    """Column sums of a product: rows are not treated one by one."""

    @T.prim_func
    def kernel(A: T.Tensor((32, 32), "float16"), S: T.Tensor((32,), "float")):
        with T.Kernel(1, threads=threads, is_npu=True):
            a = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float")
            x = T.alloc_shared((32, 32), "float")
            s = T.alloc_shared((32,), "float")
            T.copy(A, a)
            T.gemm_v0(a, a, c, init=True)
            T.copy(c, x)
            T.tile.mul(x, x, 0.5)
            T.reduce_sum(x, s, dim=0)
            T.copy(s, S)

    return kernel


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_not_done_row_by_row_is_done_by_both_vector_cores(threads):
    a = np.random.default_rng(0).standard_normal((32, 32)).astype("f2")
    product = a.astype("f4") @ a.astype("f4")
    got = run(columns_last(threads), a, out_idx=[1])
    np.testing.assert_allclose(got, product.sum(0) / 2, rtol=1e-4, atol=1e-3)
    fn = made(columns_last(threads))
    assert found(fn, {"A": a, "S": np.zeros(32, "f4")}) == []


# ---- Order ---------------------------------------------------------------------------------------


def flags_of(fn):
    """The events of each core: core, pipes, number."""
    out = {}
    for region in (n for n in fn.walk() if isinstance(n, CoreRegion)):
        for n in region.walk():
            if isinstance(n, (SetFlag, WaitFlag)):
                out.setdefault((region.core, n.src, n.dst, n.id), []).append(n)
    return out


def without(fn, core, flags):
    """The function without these statements."""
    gone = {id(n) for n in flags}

    def drop(n):
        return () if id(n) in gone else None

    def edited(n):
        return n.rewrite(drop) if isinstance(n, CoreRegion) and n.core is core else None

    return fn.rewrite(lambda n: edited(n) if isinstance(n, CoreRegion) else None)


@pytest.mark.parametrize(
    ("kernel", "arrays"),
    [
        (softmax(16, 64, 64), {"A": (16, 64), "B": (16, 64)}),
        (layer_norm(16, 64), {"A": (16, 64), "B": (16, 64)}),
    ],
    ids=["softmax", "layer_norm"],
)
def test_without_any_one_event_something_is_found(kernel, arrays):
    rng = np.random.default_rng(0)
    given = {k: rng.standard_normal(s).astype("f4") for k, s in arrays.items()}
    fn = made(kernel)
    assert found(fn, given) == []
    events = flags_of(fn)
    assert events
    for (core, *_), flags in events.items():
        assert found(without(fn, core, flags), given), flags[0]


def rounds_of(count):
    @T.prim_func
    def kernel(A: T.Tensor((8, 32, 32), "float16"), C: T.Tensor((8, 32, 32), "float")):
        with T.Kernel(1, is_npu=True) as (_cid, _vid):
            a = T.alloc_L1((32, 32), "float16")
            c = T.alloc_L0C((32, 32), "float")
            for k in T.serial(count):
                T.copy(A[k, :, :], a)
                T.gemm_v0(a, a, c, init=True)
                T.copy(c, C[k, :, :])

    return kernel


def test_a_loop_of_one_round_carries_no_flag():
    one, two = (flags_of(made(rounds_of(n))) for n in (1, 2))
    pairs = [sorted({(a.value, b.value) for _, a, b, _ in f}) for f in (one, two)]
    assert pairs[0] == [("M", "FIX"), ("MTE2", "MTE1")]
    assert set(pairs[1]) - set(pairs[0]) == {("FIX", "M"), ("MTE1", "MTE2")}


def test_pipes_meet_around_a_loop_only_where_that_orders_something():
    barriers = [n for n in made(layer_norm(16, 64)).walk() if isinstance(n, PipeBarrier)]
    assert len(barriers) == 3
    last = [n for n in made(rounds_of(2)).walk() if isinstance(n, PipeBarrier)]
    assert last == []


def test_without_the_setting_no_flag_is_added_and_the_checks_on_queues_say_so():
    fn = made(softmax(16, 64, 64), [Automatic.MEMORY, Automatic.CORES])
    assert not flags_of(fn)
    given = {k: np.ones((16, 64), "f4") for k in "AB"}
    assert any("softmax" not in d for d in found(fn, given))


# ---- Cores ---------------------------------------------------------------------------------------


def test_work_of_both_cores_side_by_side_needs_the_setting():
    kernel = next(p.kernel for p in programs() if p.name == "gemm_int8")
    with pytest.raises(TileValueError, match="stand beside each other") as refused:
        made(kernel, [Automatic.SYNC])
    assert "tl.ascend_auto_cv_combine" in str(refused.value)


def test_work_in_the_scope_of_the_other_core_is_refused():
    @T.prim_func
    def kernel(A: T.Tensor((32,), "float")):
        with T.Kernel(1, is_npu=True) as (_cid, _vid):
            a = T.alloc_ub((32,), "float")
            with T.Scope("C"):
                T.copy(A, a)

    with pytest.raises(TileValueError, match=r"work of the vector cores, in T\.Scope of the cube"):
        made(kernel, [])


def test_a_memory_that_does_not_hold_all_is_refused_with_what_would_help():
    @T.prim_func
    def kernel(A: T.Tensor((16, 1024), "float")):
        with T.Kernel(1, is_npu=True) as (_cid, _vid):
            tiles = [T.alloc_ub((16, 1024), "float") for _ in range(4)]
            for a in tiles:
                T.copy(A, a)
                T.copy(a, A)

    with pytest.raises(TileValueError, match="need 262144 bytes") as refused:
        made(kernel, [Automatic.SYNC])
    assert "tl.ascend_memory_planning" in str(refused.value)
    assert made(kernel, [Automatic.SYNC, Automatic.MEMORY])


def test_check_runs_a_kernel_on_queues_with_the_settings_that_it_was_compiled_with():
    program = next(p for p in programs() if p.name == "gemm_int8")
    kernel = tilelang.compile(program.kernel, **program.settings)
    assert tilelang.check(kernel, run_with=program.arguments()) == []
    bare = softmax(16, 64, 64)
    given = [np.ones((16, 64), "f4") for _ in range(2)]
    assert tilelang.check(tilelang.compile(bare, pass_configs=AUTO), run_with=given) == []
    assert tilelang.check(tilelang.compile(bare), run_with=given) != []


def crossing(set_modes, wait_for):
    @T.prim_func
    def kernel(A: T.Tensor((2, 2, 32), "float"), B: T.Tensor((2, 2, 32), "float")):
        with T.Kernel(2, is_npu=True) as (cid, vid):
            a = T.alloc_ub((32,), "float")
            b = T.alloc_ub((32,), "float")
            T.annotate_address({a: 0, b: 128})
            with T.Scope("V"):
                T.tile.fill(a, 1.0 + vid + 2 * cid)
                T.barrier_all()
                T.copy(a, A[cid, vid, :])
                for mode in set_modes:
                    T.set_cross_flag("MTE3", 3, mode)
                T.wait_cross_flag(wait_for)
                T.copy(A[cid if 1 in set_modes else 1 - cid, 1 - vid, :], b)
                T.barrier_all()
                T.copy(b, B[cid, vid, :])

    return kernel


@pytest.mark.parametrize(("mode", "wanted"), [(0, [[4, 3], [2, 1]]), (1, [[2, 1], [4, 3]])])
def test_a_wait_has_the_mode_in_which_its_flag_is_raised(mode, wanted):
    fn = made(crossing([mode], 3), [])
    arrays = {k: np.zeros((2, 2, 32), "f4") for k in "AB"}
    assert found(fn, arrays) == []
    kernel = tilelang.compile(crossing([mode], 3))
    kernel(arrays["A"], arrays["B"])
    np.testing.assert_array_equal(arrays["B"][:, :, 5], wanted)


def test_a_flag_of_two_modes_is_refused():
    with pytest.raises(TileValueError, match="raised in several modes"):
        made(crossing([0, 1], 3), [])
