"""Programs of the mainline Ascend dialect against NumPy: in order, and on queues under schedules;
and the C++ that the 950 gets for them.
"""

import numpy as np
import pytest

import tilelang
from mainline_kernels import programs
from tilelang.simulator.machine import Schedule

SEEDS, MANY = 2, 20
PROGRAMS = programs()


def close(program, found, seed=0):
    """Whether outputs are the answers."""
    for name, wanted in program.answers(program.arguments(seed)).items():
        np.testing.assert_allclose(
            found[name].astype(np.float64),
            wanted.astype(np.float64),
            rtol=program.tolerance,
            atol=program.tolerance,
        )


@pytest.fixture(scope="module")
def compiled():
    made = {}

    def of(program):
        if program.name not in made:
            made[program.name] = tilelang.compile(
                program.kernel, target="simulate:ascend950", pass_configs=program.configs
            )
        return made[program.name]

    return of


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_in_order(program, compiled):
    args = program.arguments()
    compiled(program)(*args.values())
    close(program, args)


def on_queues(program, model, seeds):
    """Run under schedules, with every access looked at."""
    for seed, schedule in enumerate(Schedule.sweep(seeds)):
        args = program.arguments(seed)
        assert [d.render() for d in model.check(args, schedule)] == []
        close(program, args, seed)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_on_queues(program, compiled):
    on_queues(program, compiled(program)._program.program, SEEDS)


@pytest.mark.simulate
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_on_queues_under_many_schedules(program, compiled):
    on_queues(program, compiled(program)._program.program, MANY)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_each_has_a_source_for_the_chip(program, compiled):
    source = compiled(program).get_kernel_source()
    assert 'extern "C" __global__' in source
    assert source.count("{") == source.count("}")
    # Every flag that is raised is waited for, as often as it stands in the source or in loops.
    pairs = [line.split("(")[1] for line in source.splitlines() if "asc_sync_notify" in line]
    waits = [line.split("(")[1] for line in source.splitlines() if "asc_sync_wait" in line]
    assert set(pairs) == set(waits)


def test_without_a_target_the_dialect_runs_on_the_model_of_its_chip():
    program = PROGRAMS[0]
    kernel = tilelang.compile(program.kernel)
    assert str(kernel.target) == "simulate:ascend950"
    assert tilelang.check(program.kernel, run_with=list(program.arguments().values())) == []
