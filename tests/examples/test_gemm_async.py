"""Warp-specialised and asynchronous products: exact, and wrong or stuck without their waits."""

import numpy as np
import pytest

from example_run import EXAMPLES, load
from tilelang.errors import DeadlockError

specialized, wgmma = load("gemm_warp_specialized"), load("gemm_wgmma_async")


def halves(m, n, k):
    random = np.random.default_rng(k)
    a = random.integers(-4, 5, (m, k)).astype(np.float16)
    b = random.integers(-4, 5, (k, n)).astype(np.float16)
    return a, b, a.astype(np.float32) @ b.astype(np.float32)


def changed(tmp_path, name, old, new):
    """The example with a piece of its text replaced."""
    text = (EXAMPLES / f"{name}.py").read_text()
    assert text.count(old) == 1
    copy = tmp_path / f"{name}.py"
    copy.write_text(text.replace(old, new))
    return load(str(copy.with_suffix("")))


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("k", [0, 1, 32, 64, 127, 200])
def test_a_ring_of_any_size_and_any_number_of_steps(stages, k):
    a, b, want = halves(40, 72, k)
    got = specialized.gemm_warp_specialized(40, 72, k, stages, (32, 48, 32))(a, b)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("size", [(100, 127), (24, 40), (1, 1)])
def test_specialised_products_of_any_size(size):
    m, n = size
    a, b, want = halves(m, n, 72)
    got = specialized.gemm_warp_specialized(m, n, 72, 3, (64, 64, 16))(a, b)
    np.testing.assert_array_equal(got, want)


def test_a_consumer_that_does_not_wait_reads_what_is_not_there(tmp_path):
    hasty = changed(
        tmp_path, "gemm_warp_specialized", "T.barrier_wait(full[place], turn % 2)", "pass"
    )
    a, b, _ = halves(40, 72, 64)
    assert np.isnan(hasty.gemm_warp_specialized(40, 72, 64)(a, b)).any()


def test_a_producer_that_waits_for_the_wrong_phase_is_stuck(tmp_path):
    stuck = changed(
        tmp_path,
        "gemm_warp_specialized",
        "T.barrier_wait(empty[place], (turn + 1) % 2)",
        "T.barrier_wait(empty[place], turn % 2)",
    )
    a, b, _ = halves(40, 72, 64)
    with pytest.raises(DeadlockError, match=r"empty\[0\]"):
        stuck.gemm_warp_specialized(40, 72, 64)(a, b)


@pytest.mark.parametrize("size", [(100, 127, 40), (24, 72, 200), (1, 1, 1), (40, 24, 0)])
@pytest.mark.parametrize("tiles", [(64, 64, 32), (24, 40, 16)])
def test_asynchronous_products(size, tiles):
    a, b, want = halves(*size)
    np.testing.assert_array_equal(wgmma.gemm_wgmma(*size, tiles)(a, b), want)


@pytest.mark.parametrize("wait", ["T.wait_wgmma(0)", "T.wait_wgmma(1)"])
def test_a_product_that_is_not_waited_for_is_not_there(tmp_path, monkeypatch, wait):
    # Only the emulator finishes asynchronous work as late as it may.
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "emulate")
    hasty = changed(tmp_path, "gemm_wgmma_async", f"{wait}\n" if "0" in wait else wait, "pass\n")
    a, b, want = halves(64, 64, 127)
    assert (hasty.gemm_wgmma(64, 64, 127)(a, b) != want).any()
