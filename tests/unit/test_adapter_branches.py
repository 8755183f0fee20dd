"""`T.If`, `T.Then` and `T.Else` of the Ascend adapter's scripts."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileError
from tilelang.ir.tile import If

AUTO = {
    "tl.ascend_auto_sync": True,
    "tl.ascend_auto_cv_combine": True,
    "tl.ascend_memory_planning": True,
}


def signs(n, known=None):
    @T.prim_func
    def kernel(A: T.Tensor((n,), "int32"), B: T.Tensor((n,), "int32")):
        with T.Kernel(1, is_npu=True) as (_cid, _vid):
            for i in T.serial(n):
                with T.If(A[i] > 0 if known is None else known):
                    with T.Then():
                        B[i] = 1
                    with T.Else(), T.If(A[i] < 0), T.Then():
                        B[i] = -1

    return kernel


@pytest.mark.parametrize("n", [1, 24, 127])
def test_the_arms_run_as_those_of_an_if(n):
    a = np.random.default_rng(n).integers(-1, 2, n).astype("i4")
    b = np.zeros(n, "i4")
    kernel = signs(n)
    tilelang.compile(kernel, target="auto", pass_configs=AUTO)(a, b)
    np.testing.assert_array_equal(b, np.sign(a))
    found = [s for s in kernel.ir.body[0].walk() if isinstance(s, If)]
    assert [bool(s.orelse) for s in found] == [True, False]


def test_a_known_condition_keeps_one_arm():
    conditions = [s for s in signs(24, known=True).ir.body[0].walk() if isinstance(s, If)]
    assert not conditions


def wrong(body):
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, is_npu=True) as (_cid, _vid):
            body(A)

    return T.prim_func(kernel)


@T.macro
def stray(A):
    with T.If(A[0] > 0):
        A[0] = 1


@T.macro
def no_then(A):
    with T.If(A[0] > 0):
        pass


@T.macro
def early_else(A):
    with T.If(A[0] > 0), T.Else():
        A[0] = 1


@T.macro
def nested_else(A):
    with T.If(A[0] > 0), T.Then(), T.Else():
        A[0] = 1


@T.macro
def twice(A):
    with T.If(A[0] > 0):
        with T.Then():
            A[0] = 1
        with T.Then():
            A[0] = 2


@T.macro
def outside(A):
    with T.Then():
        A[0] = 1


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (stray, "a statement inside T.If that is in no arm"),
        (no_then, "T.If without T.Then"),
        (early_else, "T.Else before T.Then"),
        (nested_else, "T.Else outside T.If"),
        (twice, "a second T.Then of one T.If"),
        (outside, "T.Then outside T.If"),
    ],
)
def test_arms_without_their_place_are_refused(body, words):
    with pytest.raises(TileError, match=words) as found:
        wrong(body)
    assert "test_adapter_branches.py" in str(found.value)


def test_the_least_of_two_ints_answers_as_a_constant():
    assert T.min(3, 5).value == 3
    assert list(range(T.max(1, 2))) == [0, 1]
