"""Random programs of a cube core and its vector cores that exchange tiles: the order of the list
scheduler and that of the program give the numbers of NumPy, in order and on queues, with nothing to
report.
"""

import numpy as np
import pytest

from ascend_exchanges import SLOTS, N, drawn, kernel_of, meaning
from tilelang.passes.ascend.explicit import EXPLICIT
from tilelang.passes.ascend.lower import lower_ascend
from tilelang.passes.ascend.schedule import listed, schedule
from tilelang.passes.ascend.settings import Automatic, with_automatic
from tilelang.simulator.ascend import AscendProgram
from tilelang.simulator.machine import Schedule
from tilelang.targets import target

CHIP = target("simulate:ascend910b")
LOOPS = ((0, 0), (3, 0), (2, 2), (3, 2), (1, 2))


def made(kernel, reordered, what=tuple(Automatic)):
    fn = with_automatic(kernel.ir, what)
    for one in EXPLICIT:
        fn = (listed(fn, CHIP) if reordered else fn) if one is schedule else one(fn, CHIP)
    return AscendProgram(lower_ascend(fn, CHIP), CHIP.chip)


def arguments(rng):
    a, half = (rng.integers(-4, 5, (SLOTS, N, N)).astype(np.float16) for _ in range(2))
    full, out = rng.integers(-4, 5, (SLOTS, N, N)), np.zeros((SLOTS, N, N))
    return [a, half, full.astype(np.float32), out.astype(np.float32)]


@pytest.mark.parametrize("seed", range(10))
def test_random_exchanges(seed):
    rng = np.random.default_rng(seed)
    program, (loops, stages) = drawn(rng), LOOPS[seed % len(LOOPS)]
    given = arguments(rng)
    wanted = [x.copy() for x in given]
    meaning(program, loops, *wanted)
    for reordered in (False, True):
        model = made(kernel_of(program, loops, stages), reordered)
        for turn in (None, *Schedule.sweep(3)):
            found = dict(zip(("A", "half", "full", "out"), (x.copy() for x in given), strict=True))
            said = model.run(found) if turn is None else model.check(found, turn)
            assert [d.render() for d in said or ()] == [], (program, reordered)
            for got, right in zip(found.values(), wanted, strict=True):
                np.testing.assert_array_equal(got, right, err_msg=f"{program}, {reordered}")
