"""Random kernels give the same on a GPU and on the emulator, however they are lowered: numbers of
stages 0-4, 64-384 threads, with and without warp specialisation, no round, one, two, and fewer
rounds than stages. `tests/device_sweep.py` runs thousands.
"""

import pytest

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def sweep():
    import device_sweep

    return device_sweep


@pytest.mark.parametrize("seed", range(40))
def test_pipelined_kernels(sweep, seed):
    assert sweep.pipelined(seed, 3) == []


@pytest.mark.parametrize("seed", range(8))
def test_kernels_of_every_kind_of_step(sweep, seed):
    assert sweep.tiles(seed) == []


@pytest.mark.parametrize("seed", range(20))
def test_programs(sweep, seed):
    assert sweep.programs(seed) == []
