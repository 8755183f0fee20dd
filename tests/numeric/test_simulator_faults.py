"""Pipelined programs on the simulator: right under every schedule, and every fault in their
synchronisation is reported, or shown to be none.
"""

from __future__ import annotations

import time

import pytest

from scaled_kernels import Case, Scaled, issued, waited
from simulator_faults import Fault, faults, other_ways
from simulator_kernels import (
    Subject,
    attention,
    attention_in_tensor_memory,
    by_hand,
    in_turn,
    left_operand,
    left_operands,
    product,
    tensor_memory,
)
from tilelang.errors import Loc
from tilelang.simulator.machine import Mode, Schedule

HOSTILE = (Schedule(Mode.LATE), Schedule(Mode.EARLY), Schedule(Mode.RANDOM, 1))
SUBJECTS = {
    "product": product,
    "attention": attention,
    "product of two warpgroups": lambda arch: product(
        arch, M=96, N=100, K=200, tiles=(128, 64, 32), stages=3, threads=256
    ),
}
EVERY = [(name, arch) for name in SUBJECTS for arch in ("sm_80", "sm_90a")]
TENSOR_MEMORY = {
    "product in Tensor Memory": tensor_memory,
    "products and threads in turn": in_turn,
    "products issued by hand": by_hand,
    "left operand in Tensor Memory": left_operand,
    "left operands in turn": left_operands,
    "attention in Tensor Memory": attention_in_tensor_memory,
}
SUBJECTS |= TENSOR_MEMORY
SUBJECTS |= {
    "product with scales": lambda arch: Scaled(Case(128, 32, 256, (128, 32, 64)), issued, arch),
    "pair with scales": lambda arch: Scaled(
        Case(256, 32, 256, (128, 32, 64), pair=True), issued, arch
    ),
    "pair with scales that waits": lambda arch: Scaled(
        Case(256, 32, 128, (128, 32, 64), stages=1, pair=True), waited, arch
    ),
}
SCALED = [name for name in SUBJECTS if "scales" in name]
EVERY += [(name, "sm_100a") for name in (*TENSOR_MEMORY, *SCALED)]


def runs_clean(subject: Subject, seeds: int) -> None:
    program = subject.simulated()
    for schedule in Schedule.sweep(seeds):
        args = subject.fresh()
        program.run(args, schedule)
        assert subject.is_right(args), schedule


@pytest.mark.parametrize(("name", "arch"), EVERY)
def test_nothing_is_found_in_programs_as_they_are(name, arch):
    runs_clean(SUBJECTS[name](arch), 3)


@pytest.mark.simulate
@pytest.mark.parametrize(("name", "arch"), EVERY)
def test_nothing_is_found_in_fifty_schedules(name, arch):
    runs_clean(SUBJECTS[name](arch), 50)


def kinds_of(subject: Subject, fault: Fault) -> set[str]:
    """The kinds of what is found under hostile schedules; `wrong` where only the result shows."""
    program = subject.simulated(fault.program)
    for schedule in HOSTILE:
        args = subject.fresh()
        found = program.check(args, schedule)
        assert all(isinstance(d.loc, Loc) or d.kind == "deadlock" for d in found), found
        if found:
            return {d.kind for d in found}
        if not subject.is_right(args):
            return {"wrong"}
    return set()


def planted(subject: Subject, step: int) -> tuple[list[str], list[tuple[Fault, list[str]]]]:
    """Faults of each `step`-th node: those that are reported, and the others with reasons.

    Where a program does not need a node, that is one fault: what moves it only adds order.
    """
    reported, harmless = list[str](), list[tuple[Fault, list[str]]]()
    before = subject.simulated().orders(subject.fresh(), HOSTILE[0])
    for node in list(faults(subject.program))[::step]:
        for n, fault in enumerate(node):
            found = kinds_of(subject, fault)
            assert "wrong" not in found, f"{fault}: only the result shows it"
            if found:
                reported.append(f"{fault}: {', '.join(sorted(found))}")
                continue
            after = subject.simulated(fault.program).orders(subject.fresh(), HOSTILE[0])
            harmless.append((fault, other_ways(before, after)))
            if n == 0:
                break
    return reported, harmless


def few_are_harmless(subject: Subject, step: int, most: float) -> None:
    reported, harmless = planted(subject, step)
    for fault, reasons in harmless:
        print(f"harmless: {fault}", *reasons, sep="\n  ")
        assert reasons
    assert reported
    assert len(harmless) <= most * (len(reported) + len(harmless)), [str(f) for f, _ in harmless]


@pytest.mark.parametrize(
    ("name", "arch", "step"),
    [
        ("product", "sm_80", 3),
        ("product", "sm_90a", 4),
        ("attention", "sm_90a", 9),
        ("product in Tensor Memory", "sm_100a", 9),
        ("left operands in turn", "sm_100a", 16),
        ("product with scales", "sm_100a", 9),
        ("pair with scales", "sm_100a", 16),
        ("pair with scales that waits", "sm_100a", 16),
    ],
)
def test_faults_in_synchronisation_are_reported(name, arch, step):
    few_are_harmless(SUBJECTS[name](arch), step, 0.2)  # of a sample; of all, below


def test_a_tile_of_128_rows_and_columns_takes_less_than_three_seconds():
    subject = product("sm_90a", M=128, N=128, K=512, tiles=(128, 128, 64), stages=3)
    program, args = subject.simulated(), subject.fresh()
    start = time.process_time()
    program.run(args)
    assert time.process_time() - start < 3
    assert subject.is_right(args)


@pytest.mark.simulate
@pytest.mark.parametrize(("name", "arch"), EVERY)
def test_every_fault_is_reported(name, arch):
    few_are_harmless(SUBJECTS[name](arch), 1, 0.1)
