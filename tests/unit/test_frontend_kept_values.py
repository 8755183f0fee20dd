"""Values that Python keeps while a kernel is traced: in containers, objects and defaults."""
# ruff: noqa: B010, E731 - the bodies are written to be traced

import numpy as np
import pytest

import tilelang.language as T
from frontend_run import check_same, compiled, defined, kernel_of, script
from tilelang.errors import TileRuntimeError

# -- reads that come before a store ----------------------------------------------------------------


def take(A, i):
    x = A[i]
    A[i] = 0
    return x


def test_a_plain_helper_that_stores_after_it_reads_is_refused():
    def body(A, B, var):
        B[0] = take(A, 0)

    with pytest.raises(TileRuntimeError, match="used after A is written") as caught:
        kernel_of(body)
    assert "@T.macro" in str(caught.value)


def test_the_same_helper_as_a_macro():
    taken = T.macro(take)

    def body(A: T.Tensor((4,), "int32"), B: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=1):
            B[0] = taken(A, 0) + A[0]

    a, b = np.array([5, 6, 7, 8], np.int32), np.zeros(4, np.int32)
    compiled(T.prim_func(body))(a, b)
    assert (a[0], b[0]) == (0, 5)


def test_a_read_before_a_macro_that_stores_is_refused():
    zero = T.macro(store_zero)

    def same_buffer(A, B, var):
        B[0] = A[0] + zero(A)

    def other_buffer(A, B, var):
        B[0] = A[0] + zero(B)

    with pytest.raises(TileRuntimeError, match="used after A is written"):
        kernel_of(same_buffer)
    assert "B[1] = 0" in kernel_of(other_buffer).script()


def store_zero(X):
    X[1] = 0
    return X[2]


def test_a_value_kept_by_an_object_is_used_while_its_buffer_stays_the_same():
    class Kept:
        pass

    def harmless(A, B, var):
        kept = Kept()
        setattr(kept, "x", A[0] + 1)
        B[0] = kept.x
        B[1] = kept.x

    def stale(A, B, var):
        kept = Kept()
        setattr(kept, "x", A[0] + 1)
        A[0] = 5
        B[0] = kept.x

    check_same(harmless, 4)
    with pytest.raises(TileRuntimeError, match="used after A is written"):
        kernel_of(stale)


def test_writing_through_a_view_counts():
    def fn(B: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=1):
            S = T.alloc_shared((4,), "int32")
            V = T.reshape(S, (2, 2))
            T.clear(S)
            kept = [0]
            list.__setitem__(kept, 0, S[0])
            V[0, 0] = 1
            B[0] = kept[0]

    with pytest.raises(TileRuntimeError, match="used after S is written"):
        script(fn)


def test_conditions_are_read_before_what_they_guard():
    def body(A, B, var):
        n = var("int32", 3)
        if A[0] > 0 and A[1] > 0:
            A[0] = 0
            A[1] = 0
            B[0] = 1
        for i in range(n):
            n += 1
            B[i + 1] = n
        while A[2] > 0:
            A[2] = A[2] - 1
            n += 10
        B[9] = n
        A[3] = 4 if A[3] > 0 else 5

    check_same(body, 1, 2, 3, 4)
    check_same(body, 1, -2, 0, -4)


def test_default_values_of_lambdas_are_computed_where_they_are_written():
    def body(A, B, var):
        f = lambda x, y=A[0]: x + y

        def g(x, y=A[1]):
            return x + y

        A[0] = 50
        A[1] = 60
        B[0] = f(1)
        B[1] = g(1)

    check_same(body, 3, 4)


def test_a_variable_from_an_expression_is_a_copy():
    def body(A, B, var):
        v = var("int32", 5)
        w = var("int32", 6)
        same = lambda q: q
        a = v if True else w
        b = False or v
        c = same(v)
        v = 100
        w = v
        v += 1
        B[0] = a
        B[1] = b
        B[2] = c
        B[3] = w

    check_same(body)


# -- containers of Python --------------------------------------------------------------------------


def test_containers_made_and_changed_in_one_place():
    def body(A, B, var):
        top = {}
        top["a"] = A[0]
        for k in (1, 2, 3):
            top[k] = A[k] + 1
        for i in range(3):
            row = [A[i]]
            row[0] = row[0] + 1
            row.append(i)
            row += [7]
            if A[i] > 0:
                mine = {"x": 1}
                mine["x"] = A[i]
                B[i + 10] = mine["x"]
            B[i] = row[0] + row[1] + len(row)
        B[8] = top["a"] + top[3]

    check_same(body, 4, -5, 6, 7)


def test_a_new_key_with_a_value_ends_with_the_block():
    def inside(A, B, var):
        scratch = {}
        for i in range(3):
            scratch["x"] = A[i]
            B[i] = scratch["x"]

    def after(A, B, var):
        scratch = {}
        for i in range(3):
            scratch["x"] = A[i]
        B[0] = scratch["x"]

    check_same(inside)
    with pytest.raises(TileRuntimeError, match="outside the block that defines it"):
        kernel_of(after)


@pytest.mark.parametrize(
    "change",
    ["xs[0] = 5", "xs[0] = A[1]", "xs.append(1)", "xs.pop()", "xs += [1]", "xs[0] += 1",
     "xs.clear()",
     "table['new'] = 5", "table['old'] = A[0]", "table.update(b=2)", "some.add(4)", "xs.sort()",
     "rows[0].append(1)", "xs[0:1] = [3]"],
)  # fmt: skip
def test_changes_where_the_kernel_decides_are_refused(change):
    for head in (
        "if A[0] > 0:",
        "for i in range(3):",
        "while A[0] > 0:",
        "for i in T.Parallel(3):",
    ):
        fn = defined(
            f"""
def fn(A: T.Tensor((4,), "int32"), B: T.Tensor((4,), "int32")):
    with T.Kernel(1, threads=1):
        xs, table, some, rows = [1, 2], {{"old": 1}}, {{1, 2}}, [[], []]
        {head}
            {change}
            A[0] = 0
        B[0] = xs[0] + len(xs) + len(table) + len(some) + len(rows[0])
"""
        )
        with pytest.raises(TileRuntimeError, match="is changed in a branch or loop of the kernel"):
            script(fn)


def test_a_change_to_the_same_value_is_harmless():
    def body(A, B, var):
        xs = [5]
        for i in range(3):
            xs[0] = 5
            B[i] = xs[0]
        B[4] = xs[0]

    check_same(body)


def test_several_names_of_one_list_stay_one():
    def body(A, B, var):
        xs = [1, 2]
        a = b = xs
        a.append(A[0])
        c = xs
        c[0] = 9
        B[0] = len(b)
        B[1] = xs[0] + b[2]

    check_same(body, 4)
