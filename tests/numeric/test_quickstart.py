"""The quickstart: any tile size gives the right numbers, and it says what it did."""

import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
SIZES = (24, 48, 100)


@pytest.fixture(scope="module")
def quickstart() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(ROOT / "examples" / "quickstart.py")))


@pytest.mark.parametrize("bm", SIZES)
@pytest.mark.parametrize("bn", SIZES)
@pytest.mark.parametrize("bk", SIZES)
@pytest.mark.parametrize(("m", "n", "k"), [(256, 384, 160), (127, 40, 96), (1, 1, 1)])
def test_any_tile_size_gives_the_right_numbers(quickstart, m, n, k, bm, bn, bk):
    random = np.random.default_rng(0)
    a = random.integers(-3, 4, (m, k)).astype(np.float16)
    b = random.integers(-3, 4, (k, n)).astype(np.float16)
    bias = random.integers(-9, 10, n).astype(np.float32)
    got = quickstart.linear_relu(m, n, k, bm, bn, bk)(a, b, bias)
    want = np.maximum(a.astype(np.float32) @ b.astype(np.float32) + bias, 0)
    np.testing.assert_array_equal(got, want)  # small integers: every sum is exact


def test_an_empty_reduction_leaves_the_epilogue(quickstart):
    bias = np.array([-1.0, 0.0, 2.0], np.float32)
    got = quickstart.linear_relu(5, 3, 0)(np.zeros((5, 0), "f2"), np.zeros((0, 3), "f2"), bias)
    np.testing.assert_array_equal(got, np.broadcast_to([0.0, 0.0, 2.0], (5, 3)))


@pytest.mark.parametrize("tiles", [(), ("24", "48", "100")])
def test_it_runs_and_says_what_it_did(tiles):
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "quickstart.py"), *tiles],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "checked   98,304 numbers against NumPy" in done.stdout
    assert " x ".join(tiles[:2]) in done.stdout
