"""Programs of the mainline Ascend dialect against NumPy: in order, and on queues under schedules;
and the C++ that the 950 gets for them.
"""

import numpy as np
import pytest

import tilelang
import tilelang.ascend.language as T
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


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_the_checks_find_nothing(program):
    assert tilelang.check(program.kernel) == []


@pytest.mark.parametrize("ended", [False, True])
def test_blocks_that_store_one_tile_race_unless_the_atomic_mode_is_on(ended):
    @T.prim_func
    def kernel(A: T.Tensor((4, 64), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(4) as bx:
            a = T.alloc_shared((64,), "float32")
            T.copy(A[bx, 0], a)
            T.set_atomic("add", "float32")
            if ended:
                T.set_atomic_none()
            T.copy(a, C)
            T.set_atomic_none()

    assert [d.kind for d in tilelang.check(kernel)] == ["race"] * ended


def test_without_a_target_the_dialect_runs_on_the_model_of_its_chip():
    program = PROGRAMS[0]
    kernel = tilelang.compile(program.kernel)
    assert str(kernel.target) == "simulate:ascend950"
    assert tilelang.check(program.kernel, run_with=list(program.arguments().values())) == []
