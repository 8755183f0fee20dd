"""Macros: inlined where they are called, scalars by value, buffers and T.Ref by reference."""

import re

import numpy as np
import pytest

import tilelang.language as T
from frontend_run import compiled, place, script
from tilelang.errors import TileNotImplementedError, TileRuntimeError, TileTypeError, TileValueError


def run(fn, size=8):
    """What a kernel over one int32 array leaves in it; the array begins as 0, 1, 2, ..."""
    a = np.arange(size, dtype=np.int32)
    compiled(T.prim_func(fn))(a)
    return a.tolist()


@T.macro
def add_into(A, i, value=10):
    A[i] = A[i] + value


@T.macro
def smaller(x, y):
    low = T.alloc_var("int32", init=x)
    if y < x:
        low = y
    return low


@T.macro
def factorial(n):
    if n <= 1:
        return 1
    return n * factorial(n - 1)


@T.macro
def endless(n):
    return endless(n + 1)


@T.macro
def bump(x: T.Ref, by):
    x += by


@T.macro
def breaks_bounds(A):
    A[100] = 1


@T.macro
def calls_it(A):
    breaks_bounds(A)


def test_arguments_defaults_and_keywords():
    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            add_into(A, 0)
            add_into(A, 1, 5)
            add_into(A, value=7, i=2)

    assert run(fn)[:3] == [10, 6, 9]


def test_scalars_are_passed_by_value():
    @T.macro
    def late(A, x):
        A[0] = 50
        A[1] = x

    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            A[0] = 7
            late(A, A[0])
            v = T.alloc_var("int32", init=3)
            keep(A, v)

    @T.macro
    def keep(A, x):
        A[2] = x + 1

    assert run(fn)[:3] == [50, 7, 4]


def test_assigning_to_a_value_parameter_changes_nothing_outside():
    @T.macro
    def change(A, x):
        x = x + 1
        A[0] = x

    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            v = T.alloc_var("int32", init=3)
            change(A, v)
            A[1] = v

    assert run(fn)[:2] == [4, 3]


def test_references_to_variables_and_elements():
    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            v = T.alloc_var("int32", init=3)
            bump(v, 10)
            bump(A[4], v)
            i = T.alloc_var("int32", init=5)
            bump(A[i], 1)
            A[0] = v

    assert run(fn) == [13, 1, 2, 3, 17, 6, 6, 7]


def test_a_reference_to_an_element_stays_at_the_element():
    @T.macro
    def twice(x: T.Ref, i: T.Ref):
        x = x + 1
        i = i + 1
        x = x + 1

    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            i = T.alloc_var("int32", init=2)
            twice(A[i], i)
            A[0] = i

    assert run(fn)[:4] == [3, 1, 4, 3]


def test_a_reference_is_read_at_zero_as_well():
    @T.macro
    def read(A, x: T.Ref):
        A[0] = x[0] + x

    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            read(A, A[5])

    assert run(fn)[0] == 10


def test_a_reference_needs_a_place():
    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            bump(A[0] + 1, 2)

    with pytest.raises(TileValueError, match=r"the T\.Ref parameter x"):
        script(fn)


def test_returned_values_and_buffers():
    @T.macro
    def make(n):
        tile = T.alloc_shared((n,), "int32")
        T.fill(tile, 4)
        return tile, n * 2

    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            tile, twice = make(8)
            tile[1] = twice
            T.copy(tile, A)
            A[2] = smaller(A[0], A[1]) + smaller(9, 1)

    assert run(fn)[:4] == [4, 16, 5, 4]


def test_a_returned_variable_is_its_own():
    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            x = smaller(5, 3)
            y = smaller(7, 9)
            x = x + 1
            A[0] = x
            A[1] = y

    assert run(fn)[:2] == [4, 7]


def test_macros_in_loops_and_branches():
    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            for i in range(8):
                if i % 2 == 0:
                    add_into(A, i)
                else:
                    add_into(A, i, -i)
            for i in T.Parallel(8):
                add_into(A, i, 100)

    assert run(fn) == [110, 100, 112, 100, 114, 100, 116, 100]


def test_loops_inside_macros():
    @T.macro
    def clear_from(A, low):
        for i in range(8):
            if i < low:
                continue
            if A[i] == 6:
                break
            A[i] = 0

    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            clear_from(A, 3)

    assert run(fn) == [0, 1, 2, 0, 0, 0, 6, 7]


def test_recursion_that_ends():
    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            A[0] = factorial(5)

    assert run(fn)[0] == 120


def test_recursion_without_an_end_is_refused():
    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            A[0] = endless(0)

    with pytest.raises(TileNotImplementedError, match="calls itself without an end"):
        script(fn)


def test_functions_and_closures_as_arguments():
    offset = 3

    @T.macro
    def apply(A, f, *, times=2):
        for i in range(8):
            for _ in range(times):
                A[i] = f(A[i])

    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            apply(A, lambda x: x + offset if x > 2 else x)

    assert run(fn) == [0, 1, 2, 9, 10, 11, 12, 13]


def test_a_macro_defined_in_the_kernel():
    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            scale = A[3]

            @T.macro
            def scaled(i):
                A[i] = A[i] * scale

            for i in range(8):
                scaled(i)

    assert run(fn) == [0, 3, 6, 9, 12, 15, 18, 21]


def test_a_macro_that_launches():
    @T.macro
    def add_everywhere(A, x):
        with T.Kernel(8, threads=1) as b:
            A[b] = A[b] + x

    def fn(A: T.Tensor((8,), "int32")):
        add_everywhere(A, 1)
        add_everywhere(A, 10)

    assert run(fn) == [n + 11 for n in range(8)]


def test_methods_as_macros():
    class Ring:
        def __init__(self, size):
            self.size = size

        @T.macro
        def put(self, A, i, x):
            A[i % self.size] = x

    ring = Ring(3)

    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            ring.put(A, 4, 50)

    assert run(fn)[:3] == [0, 50, 2]


def test_names_inside_a_macro_do_not_leak():
    @T.macro
    def local(A):
        x = A[0] + 1
        A[1] = x

    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            x = A[7]
            local(A)
            A[2] = x

    assert run(fn)[:3] == [0, 1, 7]


def test_a_return_from_inside_the_kernels_control_flow_is_refused():
    @T.macro
    def early(A):
        if A[0] > 0:
            return 1
        return 2

    @T.macro
    def known(A, flag):
        if flag:
            return 1
        return 2

    def bad(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            A[0] = early(A)

    def good(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            for i in range(2):
                A[i] = known(A, True)

    with pytest.raises(TileNotImplementedError, match="`return` inside code of the kernel"):
        script(bad)
    assert run(good)[:2] == [1, 1]


def test_a_return_from_an_expanded_loop():
    @T.macro
    def first_over(A, limit):
        for k in (1, 3, 5, 7):
            if k > limit:
                return k
        return 0

    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            for i in range(2):
                A[i] = first_over(A, 4)

    assert run(fn)[:2] == [5, 5]


def test_a_break_of_the_callers_loop_is_refused():
    @T.macro
    def leave(A):
        break_it = True
        if break_it:
            A[0] = 1

    @T.macro
    def guarded(A):
        A[0] = 1
        return A[0] > 0

    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            for i in range(4):
                leave(A)
                if guarded(A):
                    break
                A[i + 1] = 9

    assert run(fn)[:3] == [1, 1, 2]


def test_macros_with_effects_are_no_operands_of_and():
    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            if A[0] > 0 and smaller(A[1], A[2]) > 0:
                A[3] = 1

    with pytest.raises(TileRuntimeError, match="the right side of `and` does more than compute"):
        script(fn)


def test_wrong_arguments():
    def missing(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            add_into(A)

    def unknown(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            add_into(A, 1, by=2)

    for fn in (missing, unknown):
        with pytest.raises(TileTypeError, match="add_into"):
            script(fn)


def test_outside_a_kernel():
    with pytest.raises(RuntimeError, match="the macro add_into is used outside a kernel"):
        add_into(None, 1)


def test_errors_name_the_chain_of_calls():
    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            A[0] = 1
            calls_it(A)

    with pytest.raises(IndexError) as caught:
        script(fn)
    loc = place(caught)
    assert [at.function for at in loc.chain()] == ["breaks_bounds", "calls_it", "fn"]
    places = re.findall(r"called from \S+:(\d+):(\d+), in (\w+)", str(caught.value))
    assert [name for *_, name in places] == ["calls_it", "fn"]
    assert places[1][1] == "13"


def test_statements_after_a_call_are_at_the_callers_place():
    def fn(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            add_into(A, 0)
            A[9] = 1

    with pytest.raises(IndexError) as caught:
        script(fn)
    assert [at.function for at in place(caught).chain()] == ["fn"]
