"""Loops: over something known they are Python's, others the kernel's, and both mean the same."""
# ruff: noqa: A001, B007, C416, RUF015 - the bodies are written to be traced

import numpy as np
import pytest

import tilelang.language as T
from frontend_run import check_same, compiled, defined, kernel_of, place, run_kernel, script
from tilelang.errors import TileNotImplementedError, TileRuntimeError, TileTypeError, TileValueError

# -- while -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [0, 1, 2, 17, 100])
def test_while(x):
    def body(A, B, var):
        n = var("int32", A[0])
        steps = var("int32", 0)
        while n > 1:
            n = n // 2
            steps += 1
        B[0] = steps
        B[1] = n

    check_same(body, x)


def test_while_with_break_and_continue():
    def body(A, B, var):
        i = var("int32", 0)
        while i < 24:
            i += 1
            if i % 3 == 0:
                continue
            if i > 10:
                break
            B[i] = i

    check_same(body)


def test_while_on_memory():
    def body(A, B, var):
        B[0] = 0
        while A[0] > 0:
            A[0] = A[0] - 2
            B[0] = B[0] + 1

    check_same(body, 7)


def test_while_that_is_known_to_be_true_is_refused():
    def body(A, B, var):
        i = 0
        while i < 4:
            i = i + 1

    with pytest.raises(TileRuntimeError, match="always true"):
        kernel_of(body)


def test_while_that_is_known_to_be_false_is_skipped_with_a_warning():
    def body(A, B, var):
        B[0] = 1
        i = 4
        while i < 4:
            B[0] = 2

    main = kernel_of(body)
    assert "while" not in main.script()
    assert [w.kind for w in main.warnings] == ["syntax"]
    check_same(body)


def test_while_whose_condition_cannot_change_is_refused():
    def body(A, B, var):
        i = A[0]
        while i < 4:
            B[0] = 2

    with pytest.raises(TileRuntimeError, match="never changes"):
        kernel_of(body)


def test_while_that_is_only_left_by_a_break_of_an_inner_loop_is_refused():
    def body(A, B, var):
        i = A[0]
        while i < 4:
            for j in range(4):
                if A[j] > 0:
                    break

    with pytest.raises(TileRuntimeError, match="never changes"):
        kernel_of(body)


def test_while_that_is_left_by_break():
    def body(A, B, var):
        i = A[0]
        n = var("int32", 0)
        while i < 4:
            n += 1
            if n == 9:
                break
        B[0] = n

    check_same(body, 1)


def test_a_name_that_only_the_condition_of_while_reads_must_be_a_variable():
    def body(A, B, var):
        x = A[0]
        while x > 0 and A[1] > 0:
            A[1] = A[1] - 1
            x = 0

    with pytest.raises(TileRuntimeError, match="x is rebound in a loop"):
        kernel_of(body)


# -- for -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "numbers",
    [(0,), (1,), (5,), (2, 9), (9, 2), (3, 17, 4), (17, 3, -4), (5, 5), (-3, 4), (4, -5, -1)],
)
def test_range(numbers):
    def body(A, B, var):
        n = var("int32", 0)
        B[23] = 0
        for i in range(*numbers):
            B[n] = i
            n += 1

    check_same(body)
    assert "serial" in kernel_of(body).script()


@pytest.mark.parametrize("n", [0, 1, 5, 23])
def test_range_of_a_value(n):
    def body(A, B, var):
        B[23] = 0
        for i in range(A[0]):
            B[i] = i
        for i in range(1, A[0], 2):
            B[i] = -i

    check_same(body, n)


def test_a_range_kept_in_a_name_is_a_loop_of_the_kernel():
    def body(A, B, var):
        r = range(2, 11, 3)
        for i in r:
            B[i] = 2 * i

    check_same(body)
    assert "serial" in kernel_of(body).script()


def test_range_under_another_name():
    def body(A, B, var):
        count = range
        for i in count(4):
            B[i] = i

    check_same(body)
    assert "serial" in kernel_of(body).script()


def test_a_function_of_ones_own_called_range():
    def body(A, B, var):
        def range(n):
            return [n, n + 1]

        for i in range(3):
            B[i] = i

    check_same(body)
    assert "serial" not in kernel_of(body).script()


def test_python_iterables_are_expanded():
    def body(A, B, var):
        for i in [3, 1, 4]:
            B[i] = i
        for i, (x, y) in enumerate(zip((5, 6), [7, 8], strict=True)):
            B[x] = y + i
        for key, value in {9: 1, 10: 2}.items():
            B[key] = value
        for i in (k * 2 for k in range(6, 8)):
            B[i] = -i
        for c in "ab":
            B[ord(c) - 80] = ord(c)

    check_same(body)
    assert "serial" not in kernel_of(body).script()


def test_a_shape_is_iterated_over():
    @T.prim_func
    def main(A: T.Tensor((4, 6), "int32"), B: T.Tensor((2,), "int32")):
        with T.Kernel(1, threads=1):
            for axis, size in enumerate(A.shape):
                B[axis] = size

    b = np.zeros(2, np.int32)
    compiled(main)(np.zeros((4, 6), np.int32), b)
    assert b.tolist() == [4, 6]


def test_nested_loops_of_both_kinds():
    def body(A, B, var):
        for i in range(3):
            for j in [0, 1]:
                for k in range(4):
                    B[i * 8 + j * 4 + k] = i * 100 + j * 10 + k

    check_same(body)


@pytest.mark.parametrize(
    "loop", [T.serial, T.unroll, T.Pipelined, T.vectorized, T.grid, T.Parallel]
)
@pytest.mark.parametrize("n", [0, 1, 7, 24])
def test_loops_of_the_language(loop, n):
    def body(A, B, var):
        B[23] = 5
        for i in loop(n):
            B[i] = A[i] + i

    a = np.arange(24, dtype=np.int32) * 3
    _, b = run_kernel(body, a, np.full(24, -1, np.int32))
    want = np.full(24, -1)
    want[23] = 5
    want[:n] = a[:n] + np.arange(n)
    np.testing.assert_array_equal(b, want)


@pytest.mark.parametrize(
    ("start", "stop", "step"), [(2, 9, None), (0, 20, 3), (20, 0, -3), (5, 5, None)]
)
def test_serial_with_start_and_step(start, stop, step):
    def body(A, B, var):
        n = var("int32", 0)
        for i in T.serial(start, stop, step):
            B[n] = i
            n += 1

    _, b = run_kernel(body, np.zeros(24, np.int32), np.full(24, -1, np.int32))
    want = list(range(start, stop, step or 1))
    assert b.tolist() == want + [-1] * (24 - len(want))


def test_several_loop_variables():
    def body(A, B, var):
        for i, j, k in T.grid(2, 3, 4):
            B[(i * 3 + j) * 4 + k] = i * 100 + j * 10 + k

    _, b = run_kernel(body, np.zeros(24, np.int32), np.zeros(24, np.int32))
    assert b.tolist() == [
        i * 100 + j * 10 + k for i in range(2) for j in range(3) for k in range(4)
    ]


def test_a_nest_of_parallel_loops_is_one_loop():
    def body(A, B, var):
        for i in T.Parallel(4):
            for j in T.Parallel(6):
                B[i * 6 + j] = i - j

    text = kernel_of(body).script()
    assert "parallel(4, 6)" in text
    _, b = run_kernel(body, np.zeros(24, np.int32), np.zeros(24, np.int32))
    assert b.tolist() == [i - j for i in range(4) for j in range(6)]


def test_the_number_of_loop_variables_is_checked():
    def too_many(A, B, var):
        for i, j in T.serial(4):
            B[i] = j

    def too_few(A, B, var):
        for i, j in T.grid(2, 2, 2):
            B[i] = j

    with pytest.raises(TileValueError, match="1 loop variable"):
        kernel_of(too_many)
    with pytest.raises(TileValueError, match="3 loop variables"):
        kernel_of(too_few)


def test_a_value_or_buffer_is_not_iterated_over():
    def over_buffer(A, B, var):
        for x in A:
            B[0] = x

    def over_value(A, B, var):
        for x in A[0]:
            B[0] = x

    def over_slice(A, B, var):
        for x in A[0:4]:
            B[0] = x

    for body in (over_buffer, over_value, over_slice):
        with pytest.raises(TileTypeError, match="cannot be iterated over"):
            kernel_of(body)


def test_a_loop_of_the_kernel_is_no_python_iterable():
    def listed(A, B, var):
        B[0] = len(list(T.serial(4)))

    def comprehended(A, B, var):
        B[0] = [i for i in T.serial(4)][0]

    def numbered(A, B, var):
        for i, j in enumerate(T.serial(4)):
            B[0] = i

    for body in (listed, comprehended, numbered):
        with pytest.raises(TileTypeError, match="outside a `for` statement"):
            kernel_of(body)


# -- break and continue ----------------------------------------------------------------------------


@pytest.mark.parametrize("x", [0, 3, 30])
def test_break_of_a_kernel_loop(x):
    def body(A, B, var):
        B[23] = 1
        for i in range(24):
            if i == A[0]:
                break
            B[i] = i

    check_same(body, x, 1)


def test_continue_of_a_kernel_loop():
    def body(A, B, var):
        for i in range(24):
            if A[i] < 0:
                B[i] = 0
                continue
            B[i] = i

    check_same(body)


def test_break_leaves_only_the_innermost_loop():
    def body(A, B, var):
        for i in range(4):
            for j in range(6):
                if j > i:
                    break
                B[i * 6 + j] = 1
            B[i * 6 + 5] = 7

    check_same(body)


def test_break_and_continue_of_a_python_loop():
    def body(A, B, var):
        for i in [4, 5, 6, 7]:
            if i == 5:
                continue
            if i == 7:
                break
            B[i] = i
        B[i + 1] = 100

    check_same(body)


def test_names_after_a_python_loop_that_is_left():
    def body(A, B, var):
        for x in (1, 2, 3):
            y = x * 10
            if x == 2:
                break
        B[0] = y
        for x in (1, 2, 3):
            if x == 3:
                continue
            y = x * 100
        B[1] = y
        B[2] = x

    check_same(body)


def test_a_python_loop_inside_a_kernel_loop_may_break():
    def body(A, B, var):
        for i in range(6):
            for j in (0, 1, 2):
                if j == 2:
                    break
                B[i * 4 + j] = i

    check_same(body)


def test_a_python_loop_under_a_condition_of_the_kernel_may_break():
    def body(A, B, var):
        B[5] = 1
        if A[0] > 0:
            for j in (0, 1, 2):
                if j == 2:
                    break
                B[j] = j

    check_same(body, 1)
    check_same(body, -1)


@pytest.mark.parametrize("word", ["break", "continue"])
def test_leaving_a_python_loop_under_a_condition_of_the_kernel_is_refused(word):
    def breaks(A, B, var):
        for j in (0, 1, 2):
            if A[j] > 0:
                break
            B[j] = 1

    def continues(A, B, var):
        for j in (0, 1, 2):
            if A[j] > 0:
                continue
            B[j] = 1

    with pytest.raises(TileNotImplementedError, match=f"`{word}` of a loop that is expanded"):
        kernel_of(breaks if word == "break" else continues)


def test_leaving_a_parallel_loop_is_refused():
    def body(A, B, var):
        for j in T.Parallel(4):
            if A[j] > 0:
                break
            B[j] = 1

    with pytest.raises(TileNotImplementedError, match="no order"):
        kernel_of(body)


def test_break_of_a_grid_is_refused_and_continue_is_not():
    def breaks(A, B, var):
        for i, j in T.grid(4, 4):
            if A[j] > 0:
                break

    def continues(A, B, var):
        for i, j in T.grid(4, 4):
            if A[j] > 0:
                continue
            B[i * 4 + j] = i

    with pytest.raises(TileNotImplementedError, match="several loops"):
        kernel_of(breaks)
    a = np.array([1, -1, 0, 5] + [0] * 20, np.int32)
    _, b = run_kernel(continues, a, np.full(24, -1, np.int32))
    want = [i if a[j] <= 0 else -1 for i in range(4) for j in range(4)]
    assert b.tolist() == want + [-1] * 8


def test_code_after_a_break_is_left_out_with_a_warning():
    def body(A, B, var):
        for i in range(4):
            B[i] = 1
            break
            B[i] = 2

    main = kernel_of(body)
    assert "= 2" not in main.script()
    assert any("never runs" in w.message for w in main.warnings)
    check_same(body)


@pytest.mark.parametrize("loop", ["for i in range(4):", "while A[0] > 0:", "for i in [1, 2]:"])
def test_else_of_a_loop_is_refused(loop):
    fn = defined(
        f"""
def fn(A: T.Tensor((4,), "int32")):
    with T.Kernel(1, threads=1):
        {loop}
            A[0] = 0
        else:
            A[1] = 2
"""
    )
    with pytest.raises(TileNotImplementedError, match="`else` of a loop") as caught:
        script(fn)
    assert place(caught).line == 7
