"""Kernels of Ascend core groups against NumPy: in order, and on queues under many schedules."""

import numpy as np
import pytest

import tilelang
from ascend_kernels import cases
from tilelang.simulator.machine import Schedule

SEEDS, MANY = 3, 20
CASES = cases()


def close(case, found, seed=0):
    """Whether outputs are the answers."""
    for name, wanted in case.answers(case.arguments(seed)).items():
        np.testing.assert_allclose(
            found[name].astype(np.float64),
            wanted.astype(np.float64),
            rtol=case.tolerance,
            atol=case.tolerance,
        )


@pytest.fixture(scope="module")
def compiled():
    made = {}

    def of(case):
        if case.name not in made:
            made[case.name] = tilelang.compile(case.kernel, target="simulate:ascend910b")
        return made[case.name]

    return of


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_in_order(case, compiled):
    args = case.arguments()
    compiled(case)(*args.values())
    close(case, args)


def on_queues(case, program, seeds):
    """Run under schedules, with every access looked at."""
    for seed, schedule in enumerate(Schedule.sweep(seeds)):
        args = case.arguments(seed)
        assert [d.render() for d in program.check(args, schedule)] == []
        close(case, args, seed)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_on_queues(case, compiled):
    on_queues(case, compiled(case)._program.program, SEEDS)


@pytest.mark.simulate
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_on_queues_under_many_schedules(case, compiled):
    on_queues(case, compiled(case)._program.program, MANY)
