"""Which changes of what a kernel captured make another kernel: values, attributes, collections."""

# An eager kernel declares its parameters again, as tensors.
# pyright: reportRedeclaration=false

import types
from dataclasses import dataclass

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.runtime.captured import captured

GLOBAL = [3]
GLOBAL.append(GLOBAL)  # it holds itself


def test_a_list_that_holds_itself():
    def fn():
        return GLOBAL[0]

    before = captured(fn)
    assert before == captured(fn)
    hash(before)
    GLOBAL[0] = 4
    assert captured(fn) != before
    GLOBAL[0] = 3
    assert captured(fn) == before


def test_collections_that_hold_each_other():
    table = {"rows": [1]}
    table["rows"].append(table)

    def fn():
        return table

    before = captured(fn)
    table["rows"][0] = 2
    assert captured(fn) != before


def test_a_list_that_is_captured_twice_counts_twice():
    one = [1]
    pair = (one, one)

    def fn():
        return pair

    before = captured(fn)
    one[0] = 2
    assert captured(fn) != before


@dataclass
class Config:
    block: int
    other: int = 0


class Slots:
    __slots__ = ("block", "other")

    def __init__(self, block):
        self.block = block


class Constants:
    block = 8


@pytest.mark.parametrize(
    "config", [Config(8), Slots(8), types.SimpleNamespace(block=8, other=0), Constants]
)
def test_attributes_that_the_function_uses(config):
    def helper(c):
        return c.block

    def fn():
        return helper(config)

    before = captured(fn)
    config.other = 5
    assert captured(fn) == before, "no function that is reached uses it"
    config.block = 9
    assert captured(fn) != before
    config.block = 8
    assert captured(fn) == before


def test_attributes_of_attributes():
    config = types.SimpleNamespace(tile=types.SimpleNamespace(block=8))
    config.tile.whole = config

    def fn():
        return config.tile.block

    before = captured(fn)
    config.tile.block = 9
    assert captured(fn) != before


def test_arrays_count_by_which_one_it_is():
    table = np.zeros(4)

    def fn():
        return table

    before = captured(fn)
    table[0] = 1
    assert captured(fn) == before
    table = np.zeros(4)
    assert captured(fn) != before


def test_a_kernel_follows_the_attributes_of_an_object():
    config = Config(block=2)

    @tilelang.jit(target="emulate")
    def scaled(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        out = T.empty((N,), T.int32)
        with T.Kernel(N, threads=32) as b:
            out[b] = A[b] * config.block
        return out

    a = np.arange(5, dtype=np.int32)
    assert scaled(a).tolist() == [0, 2, 4, 6, 8]
    config.block = 3
    assert scaled(a).tolist() == [0, 3, 6, 9, 12]
    config.block = 2
    assert scaled(a).tolist() == [0, 2, 4, 6, 8]


def test_a_kernel_with_a_list_that_holds_itself():
    @tilelang.jit(target="emulate")
    def first(A):
        N = T.const("N")
        A: T.Tensor((N,), T.int32)
        out = T.empty((N,), T.int32)
        with T.Kernel(N, threads=32) as b:
            out[b] = A[b] + GLOBAL[0]
        return out

    assert first(np.zeros(2, np.int32)).tolist() == [3, 3]
