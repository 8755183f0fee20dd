"""Branches, conditions, return: known ones are Python's, others the kernel's, meaning the same."""
# ruff: noqa: RUF060, SIM223 - the bodies are written to be traced

import numpy as np
import pytest

import tilelang.language as T
from frontend_run import check_same, compiled, kernel_of, script
from tilelang.errors import TileNotImplementedError, TileTypeError

# -- if --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [-5, 0, 5, 50])
def test_if_elif_else(x):
    def body(A, B, var):
        if A[0] > 20:
            B[0] = 1
        elif A[0] > 0:
            B[0] = 2
        elif A[0] == 0:
            B[0] = 3
        else:
            B[0] = 4

    check_same(body, x)


@pytest.mark.parametrize("x", [0, 3, -3])
def test_a_number_is_true_where_it_is_not_zero(x):
    def body(A, B, var):
        B[0] = 0
        if A[0]:
            B[0] = 1
        if not A[0]:
            B[1] = 1

    check_same(body, x)


def test_a_known_condition_traces_only_the_arm_taken():
    def body(A, B, var):
        flag = True
        if flag:
            B[0] = 1
        else:
            raise AssertionError("this arm is not taken")
        if len([]) > 0:
            raise AssertionError("nor is this one")

    check_same(body)
    assert "if " not in kernel_of(body).script()


def test_names_bound_in_a_known_arm_stay_bound():
    def body(A, B, var):
        if True:
            x = A[0] + 1
        B[0] = x

    check_same(body, 5)


def test_an_object_is_true_by_pythons_rules():
    def body(A, B, var):
        for things in ([], [0], {}, "", "a", None, 0.0, (1,)):
            if things:
                B[1] = B[1] + 1
            else:
                B[0] = B[0] + 1

    check_same(body)


@pytest.mark.parametrize("x", [-1, 0, 1])
@pytest.mark.parametrize("y", [-1, 0, 1])
def test_nested_ifs(x, y):
    def body(A, B, var):
        if A[0] > 0:
            if A[1] > 0:
                B[0] = 1
            else:
                B[0] = 2
            B[1] = 7
        else:
            if A[1] == 0:
                B[0] = 3

        B[2] = 5

    check_same(body, x, y)


# -- conditional expressions, and, or, not, comparisons --------------------------------------------


@pytest.mark.parametrize("x", [-4, 0, 4])
def test_conditional_expression(x):
    def body(A, B, var):
        B[0] = 1 if A[0] > 0 else 2
        B[1] = (A[0] if A[0] > 0 else -A[0]) + (10 if True else 20)
        B[2] = 1 if A[0] > 0 else 2 if A[0] == 0 else 3

    check_same(body, x)


def test_the_arm_not_taken_of_a_conditional_expression_is_not_loaded():
    @T.prim_func
    def main(A: T.Tensor((24,), "int32"), B: T.Tensor((24,), "int32")):
        with T.Kernel(1, threads=1):
            tile = T.alloc_shared((20,), "int32")
            T.copy(A[0:20], tile)
            for i in range(24):
                B[i] = tile[i - 4] if i >= 4 else -1

    a, b = np.arange(24, dtype=np.int32), np.zeros(24, np.int32)
    compiled(main)(a, b)
    np.testing.assert_array_equal(b, np.r_[[-1] * 4, a[:20]])


def test_the_right_side_of_and_is_not_loaded_where_the_left_is_false():
    @T.prim_func
    def main(A: T.Tensor((24,), "int32"), B: T.Tensor((24,), "int32")):
        with T.Kernel(1, threads=1):
            tile = T.alloc_shared((20,), "int32")
            T.copy(A[0:20], tile)
            for i in range(24):
                B[i] = 0
                if i >= 4 and tile[i - 4] > 3:
                    B[i] = 1
                if not (i < 4 or tile[i - 4] <= 3):
                    B[i] = B[i] + 2

    a, b = np.arange(24, dtype=np.int32), np.zeros(24, np.int32)
    compiled(main)(a, b)
    np.testing.assert_array_equal(b, [3 if i >= 4 and a[i - 4] > 3 else 0 for i in range(24)])


@pytest.mark.parametrize("x", [-1, 0, 1, 2])
@pytest.mark.parametrize("y", [-1, 0, 1])
def test_and_or_not(x, y):
    def body(A, B, var):
        if A[0] > 0 and A[1] > 0:
            B[0] = 1
        if A[0] > 0 or A[1] > 0:
            B[1] = 1
        if not (A[0] > 0 and not A[1] > 0):
            B[2] = 1
        if A[0] and A[1] and A[0] > A[1]:
            B[3] = 1
        if A[0] or A[1] or A[0] < A[1]:
            B[4] = 1
        B[5] = 9

    check_same(body, x, y)


def test_a_known_left_side_short_circuits_as_in_python():
    def body(A, B, var):
        nothing = None
        if nothing is not None and nothing[0] > 0:
            B[0] = 1
        if nothing is None or nothing[0] > 0:
            B[1] = 1
        B[2] = nothing or 5
        B[3] = 0 and A[0]
        if True and A[0] > 0:
            B[4] = 1
        if A[0] > 0 and True:
            B[5] = 1
        if A[0] > 0 and False:
            B[6] = 1

    check_same(body, 3)
    check_same(body, -3)


@pytest.mark.parametrize("x", range(-2, 8))
def test_chained_comparisons(x):
    def body(A, B, var):
        B[0] = 0
        if 0 < A[0] < 5:
            B[0] = 1
        if 0 <= A[0] <= 5 != A[1]:
            B[1] = 1
        if 1 < 2 < A[0]:
            B[2] = 1
        if 2 < 1 < A[0]:
            B[3] = 1
        if A[0] == A[1] == 5:
            B[4] = 1

    check_same(body, x, 5)
    check_same(body, x, x)


@pytest.mark.parametrize("x", range(-2, 10))
def test_in_compares_with_each_element(x):
    def body(A, B, var):
        B[0] = 0
        if A[0] in (1, 3, 5):
            B[0] = 1
        if A[0] not in [1, 3, 5]:
            B[1] = 1
        if A[0] in {2: "b", 4: "d"}:
            B[2] = 1
        if A[0] in ():
            B[3] = 1
        if A[0] in range(2, 9):
            B[4] = 1
        if A[0] in range(8, 1, -3):
            B[5] = 1
        if A[0] in (A[1], A[2]):
            B[6] = 1
        if 3 in (1, 3):
            B[7] = 1

    check_same(body, x, 7, 8)


def test_equality_of_values_inside_python_containers_is_identity():
    seen = []

    @T.prim_func
    def main(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=1):
            for i in T.serial(4):
                for j in T.serial(4):
                    known = [i]
                    seen.append(i in known)
                    seen.append({i: "i", j: "j"}[j])
                    A[i] = j

    assert seen == [True, "j"]


def test_shapes_compare_by_their_symbols():
    n, m = T.dynamic("n, m")
    seen = []

    def same(x, y):
        return x.shape == y.shape

    @T.prim_func
    def main(
        A: T.Tensor((n, 4), "int32"), B: T.Tensor((n, 4), "int32"), C: T.Tensor((m, 4), "int32")
    ):
        with T.Kernel(1, threads=1):
            seen.append((same(A, B), same(A, C)))
            A[0, 0] = 1

    assert seen == [(True, False)]


def test_a_helper_may_not_ask_what_only_the_kernel_knows():
    def helper(x):
        return 1 if x == 3 else 2

    def body(A, B, var):
        for i in range(4):
            B[i] = helper(i)

    with pytest.raises(TileTypeError, match="no truth value"):
        kernel_of(body)


# -- return, raise, assert -------------------------------------------------------------------------


def test_return_inside_a_branch_or_loop_of_the_kernel_is_refused():
    def in_if(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=1):
            if A[0] > 0:
                return

    def in_loop(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=1):
            for i in T.serial(4):
                A[i] = 1
                return

    def in_parallel(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=1):
            for i in T.Parallel(4):
                A[i] = 1
                return

    for fn in (in_if, in_loop, in_parallel):
        with pytest.raises(TileNotImplementedError, match="`return` inside code of the kernel"):
            script(fn)


def test_a_known_return_ends_the_trace_as_in_python():
    def body(A, B, var):
        B[0] = 1
        if len([1]) == 1:
            return
        B[0] = 2

    check_same(body)


def test_raise_under_a_known_condition_is_pythons():
    def body(A, B, var):
        if len([1]) == 1:
            raise KeyError("as written")

    with pytest.raises(KeyError, match="as written"):
        kernel_of(body)


def test_raise_where_the_kernel_decides_is_refused():
    def fn(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=1):
            if A[0] > 0:
                raise ValueError("too late")

    with pytest.raises(TileNotImplementedError, match="`raise` under a condition"):
        script(fn)


def test_assert_of_something_known_is_pythons():
    def good(A, B, var):
        assert len(A.shape) == 1, "one axis"
        B[0] = 1

    def bad(A, B, var):
        assert len(A.shape) == 2, "two axes"

    check_same(good)
    with pytest.raises(AssertionError, match="two axes"):
        kernel_of(bad)


def test_assert_of_a_value_is_in_the_kernel():
    def body(A, B, var):
        assert A[0] > 0, "A must be positive"
        B[0] = 1

    text = kernel_of(body).script()
    assert "A must be positive" in text
