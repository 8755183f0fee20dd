"""Layouts over threads and registers, and placements in shared memory, by enumeration."""

from __future__ import annotations

import itertools

import pytest

from tilelang.layout.placement import conflict_free, paneled
from tilelang.layout.spread import Digit, Spread, agree, broken, coalesced, replicated

SHAPES = [(24,), (40,), (48, 24), (96, 100), (127, 3), (1, 1000), (5, 7, 9), (1,), (128, 256)]
THREADS = [32, 64, 96, 128, 160, 256, 384]


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("vector", [1, 4, 8])
def test_the_coalesced_layout_holds_every_element_in_one_register_of_each_holder(
    shape, threads, vector
):
    spread = coalesced(shape, threads, vector)
    assert list(broken(spread)) == []
    held = set()
    for thread in range(threads):
        found = list(spread.elements(thread))
        assert len({register for register, _ in found}) == len(found)
        assert len({at for _, at in found}) == len(found)
        assert all(0 <= register < spread.registers for register, _ in found)
        held |= {at for _, at in found}
    assert held == set(itertools.product(*map(range, shape)))


def test_one_of_the_threads_that_hold_an_element_is_its_owner():
    for shape, threads in (((40,), 128), ((24, 8), 96), ((4, 4), 384), ((1,), 64)):
        spread = coalesced(shape, threads, 4)
        owners: dict[tuple[int, ...], list[int]] = {}
        for thread in range(threads):
            first = all(
                (thread // stride % size if size else thread // stride) == 0
                for stride, size in spread.replica_parts()
            )
            for _, at in spread.elements(thread):
                owners.setdefault(at, []).append(thread) if first else None
        assert all(len(found) == 1 for found in owners.values())
        assert set(owners) == set(itertools.product(*map(range, shape)))


def test_what_is_left_of_a_reduced_axis_is_held_by_every_thread_of_that_axis():
    spread = coalesced((8, 64), 128, 4)
    rows = spread.without(1)
    for thread in range(128):
        mine = {at[0] for _, at in spread.elements(thread)}
        assert {at[0] for _, at in rows.elements(thread)} == mine


def test_a_layout_through_exchanged_axes_is_the_transposed_one():
    spread = coalesced((16, 32), 64, 4)
    turned = spread.through((1, 0), (32, 16))
    for thread in (0, 5, 63):
        assert {(b, a) for _, (a, b) in spread.elements(thread)} == {
            at for _, at in turned.elements(thread)
        }


def test_layouts_agree_as_maps_not_as_lists_of_digits():
    one = Spread((64,), 32, (Digit(0, 2, 32), Digit(0, 32, 1, 1)))
    split = Spread((64,), 32, (Digit(0, 2, 32), Digit(0, 1, 64), Digit(0, 32, 1, 1)))
    other = Spread((64,), 32, (Digit(0, 32, 2, 1), Digit(0, 2, 1)))
    assert agree(one, split)
    assert not agree(one, other)


@pytest.mark.parametrize(
    ("digits", "fault"),
    [
        ((Digit(0, 16, 1, 1),), "16 places for 64 elements"),
        ((Digit(0, 32, 1, 1), Digit(0, 2, 16)), "weight 16, expected 32"),
        ((Digit(0, 32, 1, 1), Digit(0, 2, 32, 2)), "share threads"),
        ((Digit(0, 64, 1, 1),), "64 threads of 32"),
    ],
)
def test_the_validator_names_what_is_wrong(digits, fault):
    assert any(fault in message for message in broken(Spread((64,), 32, digits)))


def test_a_replicated_layout_numbers_registers_in_row_major_order():
    spread = replicated((3, 5), 64)
    for thread in (0, 63):
        assert [at for _, at in spread.elements(thread)] == list(
            itertools.product(range(3), range(5))
        )


@pytest.mark.parametrize("columns", [8, 16, 24, 32, 40, 48, 64, 96, 128])
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_eight_rows_of_sixteen_bytes_lie_in_different_banks(columns, bits):
    if columns * bits % 128:
        assert conflict_free(64, columns, bits) is None
        return
    placement = conflict_free(64, columns, bits)
    assert placement is not None
    places = {placement.offset(r, c) for r in range(64) for c in range(columns)}
    assert places == set(range(64 * columns))
    for top in range(0, 64, 8):
        for chunk in range(columns // placement.group):
            at = [placement.offset(top + r, chunk * placement.group) * bits // 8 for r in range(8)]
            assert len({byte // 16 % 8 for byte in at}) == 8


@pytest.mark.parametrize(("columns", "bits"), [(64, 16), (128, 16), (32, 16), (16, 16), (64, 8)])
def test_panels_are_the_hardware_swizzle_of_their_span(columns, bits):
    placement = paneled(64, columns, bits)
    assert placement is not None
    for row, column in itertools.product(range(0, 64, 3), range(columns)):
        panel, inside = divmod(column, placement.panel)
        address = (panel * 64 + row) * placement.panel * bits // 8 + inside * bits // 8
        turned = address ^ ((address >> 7) % placement.span) << 4
        assert placement.offset(row, column) * bits // 8 == turned
