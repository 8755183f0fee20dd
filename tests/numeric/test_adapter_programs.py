"""Programs of the Ascend adapter against NumPy: in order, and on queues under many schedules."""

import numpy as np
import pytest

import adapter_functions
import tilelang
from adapter_programs import AUTO, gemm_split_k, programs
from tilelang.simulator.machine import Schedule

PROGRAMS = programs()
FUNCTIONS = adapter_functions.programs()
SEEDS = 3
MANY = 20


@pytest.fixture(scope="module")
def compiled():
    made = {}

    def of(program):
        if program.name not in made:
            made[program.name] = tilelang.compile(program.kernel, **program.settings)
        return made[program.name]

    return of


def close(program, found, args):
    """Whether the results are the answer."""
    wanted = program.answer(*args)
    many = isinstance(wanted, list)
    for a, b in zip(found if many else [found], wanted if many else [wanted], strict=True):
        np.testing.assert_allclose(
            np.asarray(a, np.float64), b, rtol=program.tolerance, atol=program.tolerance
        )


def on_queues(kernel, program, seeds):
    """Run under schedules, with every access looked at."""
    for seed, schedule in enumerate(Schedule.sweep(seeds)):
        args = program.arguments(seed)
        bound = kernel._signature.bind(args, {})
        found = kernel._program.program.check(dict(bound.values), schedule)
        assert [d.render() for d in found] == []
        results = bound.results[: len(kernel.out_idx)]
        close(program, results if len(results) > 1 else results[0], args)


@pytest.mark.parametrize("program", [*PROGRAMS, *FUNCTIONS], ids=lambda p: p.name)
def test_in_order(program, compiled):
    args = program.arguments()
    close(program, compiled(program)(*args), args)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_on_queues(program, compiled):
    on_queues(compiled(program), program, SEEDS)


@pytest.mark.simulate
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_on_queues_under_many_schedules(program, compiled):
    on_queues(compiled(program), program, MANY)


@pytest.mark.parametrize("parts", [1, 4])
def test_a_product_in_parts_is_added_up(parts):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((32, 128), (128, 48)))
    c = np.ones((32, 48), np.float32)
    tilelang.compile(gemm_split_k(32, 48, 128, parts), pass_configs=AUTO)(a, b, c)
    np.testing.assert_allclose(c, 1 + a.astype(np.float32) @ b.astype(np.float32), atol=1e-3)
