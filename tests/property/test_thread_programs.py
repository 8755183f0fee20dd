"""Random programs of threads give the same numbers on every target."""

import importlib.util

import numpy as np
import pytest

import tilelang
from threads_drawn import Drawn, N


def kernel(seed, folder):
    """The drawn kernel; its text is in a file, which the frontend reads."""
    file = folder / f"drawn_{seed}.py"
    file.write_text(Drawn(seed).text())
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


def agree(seed, folder, targets):
    func = kernel(seed, folder)
    x = np.random.default_rng(seed).integers(0, 20, N).astype(np.int32)
    found = {}
    for target in ("emulate", *targets):
        y, g = np.zeros(N, np.int32), np.zeros(N, np.int32)
        tilelang.compile(func, target=target)(x, y, g)
        found[target] = np.concatenate([y, g])
    for target in targets:
        assert (found[target] == found["emulate"]).all(), (target, Drawn(seed).text())


@pytest.mark.parametrize("seed", range(10))
def test_the_cpu_and_the_emulator_agree(seed, tmp_path):
    agree(seed, tmp_path, ["cpu"])


@pytest.mark.parametrize("seed", range(4))
def test_the_lowered_program_of_a_gpu_agrees(seed, tmp_path):
    agree(seed, tmp_path, ["simulate:sm_90a"])


@pytest.mark.simulate
@pytest.mark.parametrize("seed", range(1000, 1100))
def test_all_targets_agree_on_many(seed, tmp_path):
    agree(seed, tmp_path, ["cpu", "simulate:sm_90a"])


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(2000, 2040))
def test_a_gpu_agrees(seed, tmp_path):
    agree(seed, tmp_path, ["cuda"])
