"""How matrix units add: exactly, and as an H200 does."""

from __future__ import annotations

import numpy as np
import pytest

from tilelang.simulator.gpu.numbers import dtype_of, narrowed, widened
from tilelang.simulator.gpu.sums import exact, hopper

RANDOM = np.random.default_rng(1)


def drawn(shape, name):
    return widened(RANDOM.normal(size=shape).astype(np.float32).astype(dtype_of(name).numpy), name)


def test_integers_are_exact_and_wrap():
    a = np.full((1, 4), 127, np.int64)
    c = np.array([[2**31 - 1]])
    for add in (exact, hopper):
        assert add(c, a, a, ("s32", "s8", "s8"), "wgmma")[0, 0] == 2**31 - 1 + 4 * 127**2 - 2**32


@pytest.mark.parametrize("name", ["f16", "bf16", "tf32", "e4m3"])
def test_small_integers_are_exact_on_both(name):
    a, b = (RANDOM.integers(-3, 4, (8, 16)).astype(np.float64) for _ in range(2))
    types = ("f32", name, name)
    want = (a @ b.T).astype(np.float32)
    for add in (exact, hopper):
        np.testing.assert_array_equal(add(None, a, b, types, "wgmma"), want)


@pytest.mark.parametrize("name", ["f16", "bf16", "tf32"])
def test_the_difference_is_at_most_a_place_of_the_largest_addend(name):
    a, b, c = drawn((16, 16), name), drawn((8, 16), name), drawn((16, 8), "f32")
    types = ("f32", name, name)
    mine, theirs = (add(c, a, b, types, "wgmma").astype(np.float64) for add in (exact, hopper))
    largest = np.maximum(np.abs(a[:, None] * b[None]).max(axis=2), np.abs(c))
    assert (np.abs(mine - theirs) <= 2 * 2.0**-23 * 2.0 ** np.floor(np.log2(largest) + 1)).all()


def test_what_is_below_the_places_is_cut_off():
    """25 places below the leading one are kept of each addend; 13 of fp8."""
    ones = np.ones((1, 1))
    for name, places in (("f16", 25), ("e4m3", 13)):
        for step, kept in ((places, True), (places + 1, False)):
            c = np.array([[-1 + 2.0**-step]]) if name == "f16" else np.array([[-1 - 2.0**-step]])
            found = hopper(c, ones, ones, ("f32", name, name), "wgmma")[0, 0]
            lost = 0.0 if name == "e4m3" else 2.0**-places
            assert found == ((1 + c)[0, 0] if kept else lost), (name, step)


def test_what_is_no_number_stays_so():
    a = np.array([[np.inf, 1.0]])
    for add in (exact, hopper):
        with np.errstate(all="ignore"):
            found = add(None, a, np.array([[1.0, 1.0], [0.0, 1.0]]), ("f32", "f16", "f16"), "mma")
        assert np.isposinf(found[0, 0]) and np.isnan(found[0, 1])


def test_fp16_results_are_rounded_to_nearest():
    a, b = np.ones((1, 1)), np.array([[1 + 2.0**-10]])
    c = np.array([[2.0**-11]])
    want = narrowed(np.array([1 + 2.0**-10 + 2.0**-11]), "f16")[0]
    assert hopper(c, a, b, ("f16", "f16", "f16"), "wgmma")[0, 0] == want


MEASURED = (
    (
        "3e01 37a7 b2d1 402e bae2 c162 287c bc34 b7e6 b6a8 acfc b16a c158 390f a84e b508",
        "3ef4 3c65 ba63 bd0d b9a1 3eee 355a 29e0 c152 373d 38b2 bda6 b29f 3fc2 bf54 302a",
        0xB4F5,  # with 24 places 0xB4F6
    ),
    (
        "3ffb 3734 b635 37e0 36c0 b8fe b9db 373c b83c 3c32 b1c6 b1b7 bd44 beb3 356f b998",
        "36f3 3189 b5d5 3cb7 3a66 a749 acb7 2ff2 b58f 3178 2dd9 b507 be18 42a7 36db bd10",
        0x92CB,  # with 26 places, and exactly, 0x92CA
    ),
)
"""Rows of A and of B, and their product with sums in fp16, as `wgmma` of an H200 gave it."""


@pytest.mark.parametrize(("a", "b", "result"), MEASURED)
def test_sums_in_fp16_keep_as_many_places_as_those_in_fp32(a, b, result):
    def numbers(text):
        words = np.array([int(w, 16) for w in text.split()], np.uint16)
        return words.view(np.float16).astype(np.float64)[None]

    found = hopper(None, numbers(a), numbers(b), ("f16", "f16", "f16"), "wgmma")
    assert found.view(np.uint16)[0, 0] == result


def test_fp8_of_mma_is_added_in_two_halves_and_then_to_c():
    """As an H200 gave it; added exactly and rounded once, the last digit is an `a`."""
    a = "0f51b0ce1994b3532babb0bcaba8141386093bb025c5322625b12130aac20047"
    b = "0dbe308a1bab2ed11630b02ea8a8c917389b35b6d7a2a952a6868144b12206a1"
    c = np.array([0xBF6129A1], np.uint32).view(np.float32)

    def numbers(text):
        return widened(np.frombuffer(bytes.fromhex(text), dtype_of("e4m3").numpy), "e4m3")[None]

    given = c[None].astype(np.float64), numbers(a), numbers(b)
    types = ("f32", "e4m3", "e4m3")
    assert hopper(*given, types, "mma").view(np.uint32)[0, 0] == 0xC2E5CFF9
    assert exact(*given, types, "mma").view(np.uint32)[0, 0] == 0xC2E5CFFA


def test_fp64_is_a_chain_of_fused_additions_along_k():
    a = np.array([[2.0**53, 1.0, 1.0, -(2.0**53), 1 + 2.0**-52]])
    b = np.array([[1.0, 1.0, 1.0, 1.0, 1 - 2.0**-52]])
    found = hopper(np.zeros((1, 1)), a, b, ("f64", "f64", "f64"), "mma")
    assert found[0, 0] == 1.0  # 2**53 + 1 is rounded to 2**53, twice
    assert hopper(np.array([[-1.0]]), a[:, 4:], b[:, 4:], ("f64",) * 3, "mma")[0, 0] == -(2.0**-104)
