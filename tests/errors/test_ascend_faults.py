"""Faults in the order of Ascend pipes and cores: each is reported, at the author's line."""

from dataclasses import replace

import numpy as np
import pytest

import tilelang.language as T
from adapter_programs import programs
from ascend_faults import faults, wrong_pitches
from ascend_kernels import add_ping_pong, cases
from tilelang.passes.ascend.settings import Automatic, with_automatic
from tilelang.passes.pipeline import lower
from tilelang.simulator.ascend import AscendProgram
from tilelang.simulator.ascend.trail import Trail
from tilelang.simulator.machine import Schedule
from tilelang.targets import target

TARGET = target("simulate:ascend910b")
NATIVE = replace(TARGET, mode="native")
PLANTED = ("add", "add_ping_pong", "gemm_l0_nn", "split_k", "gemm_relu")
SCHEDULES = Schedule.sweep(2)


def program_of(kernel):
    return AscendProgram(lower(kernel.ir, NATIVE), TARGET.chip)


def right(case, found):
    return all(
        np.allclose(found[name], wanted, rtol=case.tolerance, atol=max(case.tolerance, 1e-6))
        for name, wanted in case.answers(case.arguments()).items()
    )


def reported(case, program):
    """The findings under the first schedule that has some; else the numbers must be right."""
    for schedule in SCHEDULES:
        args = case.arguments()
        found = program.check(args, schedule)
        if found:
            return found
        assert right(case, args)
    return []


def shown(case, program, fault):
    """For each pair of instructions that the flag or barrier could have ordered, what does so in
    the changed program. It is a fault of the report if there is nothing.
    """
    trail = Trail()
    assert program.check(case.arguments(), Schedule(), trail) == []
    imm = dict(fault.at.imm)
    queues = sorted({n.queue for n in trail.nodes})
    if fault.at.row.startswith("flag"):
        pairs = [
            (a, b)
            for a in queues
            for b in queues
            if a.startswith(f"{imm['src']} of") and b == a.replace(imm["src"], imm["dst"], 1)
        ]
    else:
        pairs = [(a, b) for a in queues for b in queues if a != b]
    for a, b in pairs:
        for first, last in trail.conflicts(a, b):
            path = trail.path(first, last)
            assert path is not None, (str(trail.nodes[first]), str(trail.nodes[last]))
            yield "  " + "\n    ".join(path)
    yield "  nothing else that these queues do touches the same bytes"


@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_reported(name):
    """What is not reported is harmless: the numbers are right, and what the two pipes do to the
    same bytes is ordered by something else, which is shown (-s prints it). At most one in ten is.
    """
    case = next(c for c in cases() if c.name == name)
    program = lower(case.kernel.ir, NATIVE)
    planted = harmless = 0
    for fault in faults(program):
        planted += 1
        changed = AscendProgram(fault.program, TARGET.chip)
        found = reported(case, changed)
        if not found:
            harmless += 1
            print(f"{name}, {fault.name} at {fault.at.loc}", *shown(case, changed, fault), sep="\n")
        assert all(d.loc is None or d.loc.file.endswith("ascend_kernels.py") for d in found)
        assert not found or any(d.loc is not None for d in found), fault.name
    assert planted > 3
    assert harmless <= planted / 10


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm", "gemm_relu_one_vector_core"])
def test_flags_of_the_automatic_order_are_needed(name):
    """Of the faults in what the compiler has ordered, at most one in ten changes nothing."""
    program = next(p for p in programs() if p.name == name)
    inputs = program.arguments()
    names = [p.name for p in program.kernel.ir.params]
    wanted = program.answer(*inputs)
    arrays = dict(zip(names, [*inputs, np.zeros(wanted.shape, np.float32)], strict=True))
    planted = harmless = 0
    for fault in faults(lower(with_automatic(program.kernel.ir, Automatic), NATIVE)):
        planted += 1
        changed = AscendProgram(fault.program, TARGET.chip)
        for schedule in SCHEDULES:
            args = {k: v.copy() for k, v in arrays.items()}
            found = changed.check(args, schedule)
            if found:
                break
            np.testing.assert_allclose(args[names[-1]], wanted, program.tolerance, 1e-3)
        harmless += not found
    assert planted > 3
    assert harmless <= planted / 10


@pytest.mark.parametrize("name", ["add_cut", "gemm_cut", "gemm_l0_tn", "gemm_relu"])
def test_wrong_pitches_show(name):
    """Rows that are too far apart are outside, unwritten, in a race, or the numbers are wrong."""
    case = next(c for c in cases() if c.name == name)
    planted = 0
    for fault in wrong_pitches(lower(case.kernel.ir, NATIVE)):
        planted += 1
        args = case.arguments()
        found = AscendProgram(fault.program, TARGET.chip).check(args, Schedule())
        assert found or not right(case, args), fault.name
    assert planted > 2


def findings(kernel, **args):
    program = program_of(kernel)
    for schedule in SCHEDULES:
        found = program.check({k: v.copy() for k, v in args.items()}, schedule)
        if found:
            return found
    return []


def one_vector_core(body):
    """A kernel of one block whose vector core 0 runs `body(A, C, a, b)` on tiles of 8 x 32."""

    @T.prim_func
    def kernel(A: T.Tensor((8, 32), "float32"), C: T.Tensor((8, 32), "float32")):
        with T.Kernel(1, is_npu=True) as (_, vid):
            a = T.alloc_ub((8, 32), "float32")
            b = T.alloc_ub((8, 32), "float32")
            T.annotate_address({a: 0, b: 1024})
            with T.Scope("V"):
                if vid == 0:
                    body(A, C, a, b)

    return kernel


ARRAYS = {"A": np.ones((8, 32), np.float32), "C": np.zeros((8, 32), np.float32)}


@T.macro
def _no_wait(A, C, a, b):
    T.copy(A, a)
    T.tile.add(b, a, 1.0)
    T.barrier_all()
    T.copy(b, C)


def test_a_missing_wait_names_both_lines():
    (first, *_) = findings(one_vector_core(_no_wait), **ARRAYS)
    assert first.kind in ("race", "uninitialised")
    found = [d for d in findings(one_vector_core(_no_wait), **ARRAYS) if d.kind == "race"]
    assert found and all("with no order between" in d.message for d in found)
    assert found[0].related and found[0].loc.line != found[0].related[0][0].line


@T.macro
def _leftover(A, C, a, b):
    T.copy(A, a)
    T.set_flag("mte2", "v", 3)
    T.barrier_all()
    T.copy(a, C)


@T.macro
def _wrong_number(A, C, a, b):
    T.copy(A, a)
    T.set_flag("mte2", "mte3", 0)
    T.wait_flag("mte2", "mte3", 1)
    T.copy(a, C)


@T.macro
def _unwritten(A, C, a, b):
    T.copy(b, C)


@T.macro
def _scalar_too_early(A, C, a, b):
    T.copy(A, a)
    b[0, 0] = a[0, 0] + 1.0
    T.barrier_all()
    T.copy(a, C)


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (_leftover, "leak", "event 3 from MTE2 to V is raised and never waited for"),
        (_wrong_number, "deadlock", "nothing can go on"),
        (_unwritten, "uninitialised", "is read where nobody has written"),
        (_scalar_too_early, "race", "S of vector core 0"),
    ],
    ids=lambda x: getattr(x, "name", None) or getattr(x, "__name__", None),
)
def test_kinds_of_faults(body, kind, words):
    found = findings(one_vector_core(body), **ARRAYS)
    assert [d for d in found if d.kind == kind and words in d.message and d.loc is not None], [
        d.render() for d in found
    ]


def test_flags_that_are_left_over_are_found_in_order_too():
    with pytest.raises(Exception, match="event 3 from MTE2 to V is raised and never waited for"):
        program_of(one_vector_core(_leftover)).run({k: v.copy() for k, v in ARRAYS.items()})
    with pytest.raises(Exception, match="waited for more often than it is raised"):
        program_of(one_vector_core(_wrong_number)).run({k: v.copy() for k, v in ARRAYS.items()})


def test_a_cross_core_flag_that_nobody_raises_is_a_deadlock():
    @T.prim_func
    def kernel(C: T.Tensor((8, 32), "float32")):
        with T.Kernel(1, is_npu=True) as (_, _vid):
            a = T.alloc_ub((8, 32), "float32")
            T.annotate_address({a: 0})
            with T.Scope("V"):
                T.wait_cross_flag(4)
                T.tile.fill(a, 1.0)
                T.barrier_all()
                T.copy(a, C)

    (found,) = findings(kernel, C=np.zeros((8, 32), np.float32))
    assert found.kind == "deadlock" and "cross-core flag 4" in found.label
    with pytest.raises(Exception, match="nothing can go on"):
        program_of(kernel).run({"C": np.zeros((8, 32), np.float32)})


def ahead(rounds, waits):
    """The cube core raises a flag in every round and waits for nothing."""

    @T.prim_func
    def kernel(C: T.Tensor((64, 32), "float32")):
        with T.Kernel(1, is_npu=True) as (_, vid):
            a = T.alloc_ub((1, 32), "float32")
            T.annotate_address({a: 0})
            with T.Scope("C"):
                for _k in T.serial(rounds):
                    T.set_cross_flag("mte2", 4)
            with T.Scope("V"):
                for k in T.serial(waits):
                    T.wait_cross_flag(4)
                    T.tile.fill(a, 1.0)
                    T.barrier_all()
                    if vid == 0:
                        T.copy(a, C[k, 0])
                    T.barrier_all()

    return kernel


def test_a_core_that_is_far_ahead_stops_at_the_flag_that_others_take_down():
    made = np.zeros((64, 32), np.float32)
    program_of(ahead(40, 40)).run({"C": made})
    assert made[:40].all() and not made[40:].any()
    found = [d for s in Schedule.sweep(4) for d in program_of(ahead(40, 40)).check({"C": made}, s)]
    assert found and all("raised 16 times with no wait between" in d.message for d in found)
    assert findings(ahead(15, 15), C=made) == []


def test_a_flag_that_nobody_takes_down_often_enough():
    with pytest.raises(Exception, match="nothing can go on") as refused:
        program_of(ahead(40, 8)).run({"C": np.zeros((64, 32), np.float32)})
    assert "to be taken down: it is raised 15 times (" in str(refused.value)
    with pytest.raises(Exception, match="flag 4 is raised and never waited for") as refused:
        program_of(ahead(12, 8)).run({"C": np.zeros((64, 32), np.float32)})
    assert "raised here by the cube core of block 0 for vector core" in str(refused.value)


def test_blocks_that_meet_must_run_at_the_same_time():
    @T.prim_func
    def kernel(C: T.Tensor((8, 32), "float32")):
        with T.Kernel(40, is_npu=True) as (_, _vid), T.Scope("V"):
            T.sync_all()
            C[0, 0] = 1.0

    with pytest.raises(Exception, match="40 blocks wait for each other, and 24 run at once"):
        program_of(kernel).run({"C": np.zeros((8, 32), np.float32)})


def test_two_blocks_that_write_one_place_race():
    @T.prim_func
    def kernel(C: T.Tensor((8, 32), "float32")):
        with T.Kernel(2, is_npu=True) as (cid, vid):
            a = T.alloc_ub((8, 32), "float32")
            T.annotate_address({a: 0})
            with T.Scope("V"):
                if vid == 0:
                    T.tile.fill(a, T.cast(cid, "float32") + 1.0)
                    T.barrier_all()
                    T.copy(a, C)

    found = findings(kernel, C=np.zeros((8, 32), np.float32))
    assert found and {d.kind for d in found} == {"race"}


def test_a_program_without_faults_has_no_findings():
    case = next(c for c in cases() if c.name == "add_ping_pong")
    assert findings(add_ping_pong(48, 40, 8), **case.arguments()) == []
