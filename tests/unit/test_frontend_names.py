"""What names mean: a value is computed where it is written, a name has Python's value or none."""
# ruff: noqa: B007, F841, F842, PERF401, RUF015, RUF059, SIM108 - the bodies are written to be traced
# pyright: reportAttributeAccessIssue=false, reportUnusedExpression=false, reportAssignmentType=false, reportRedeclaration=false

import numpy as np
import pytest

import tilelang.language as T
from frontend_run import check_same, compiled, defined, kernel_of, run_kernel, script
from tilelang.errors import TileNotImplementedError, TileRuntimeError, TileTypeError, TileValueError

# -- a value is computed where it is written -------------------------------------------------------


def test_a_name_keeps_its_value_when_memory_changes():
    def body(A, B, var):
        x = A[0]
        y = x + A[1]
        A[0] = 100
        A[1] = 200
        B[0] = x
        B[1] = y

    check_same(body, 3, 4)


def test_names_in_containers_keep_their_values():
    def body(A, B, var):
        pair = (A[0], A[1])
        several = [A[k] for k in range(3)]
        table = {"a": A[0], "b": [A[1], (A[2],)]}
        kept = []
        kept.append(A[0])
        kept.extend([A[1], A[2]])
        kept[1] = A[2] + 1
        for i in range(3):
            A[i] = -7
        B[0] = pair[0]
        B[1] = pair[1]
        for k in (0, 1, 2):
            B[2 + k] = several[k]
        B[6] = table["a"]
        B[7] = table["b"][0]
        B[8] = table["b"][1][0]
        B[9] = kept[0]
        B[10] = kept[1]
        B[11] = kept[2]

    check_same(body, 3, 4, 5)


def test_the_value_of_a_walrus_is_kept():
    def body(A, B, var):
        if (x := A[0]) > 2:
            A[0] = 50
            B[0] = x
        B[1] = (y := A[1]) + y
        A[1] = 9
        B[2] = y

    check_same(body, 3, 4)


@pytest.mark.parametrize("place", ["and", "comprehension", "lambda", "while"])
def test_a_walrus_that_may_not_run_is_refused(place):
    def in_and(A, B, var):
        if A[0] > 0 and (x := A[1]) > 0:
            B[0] = x

    def in_comprehension(A, B, var):
        B[0] = [y := k for k in range(3)][0]

    def in_lambda(A, B, var):
        B[0] = (lambda: (z := 3))()

    def in_while(A, B, var):
        while (x := A[0]) > 0:
            A[0] = x - 1

    body = {
        "and": in_and,
        "comprehension": in_comprehension,
        "lambda": in_lambda,
        "while": in_while,
    }[place]
    with pytest.raises(TileNotImplementedError, match="`:=`"):
        kernel_of(body)


def test_a_copy_of_a_variable_is_its_value():
    def body(A, B, var):
        v = var("int32", 5)
        x = v
        v = v + 1
        B[0] = x
        B[1] = v
        w = v + 0
        v += 10
        B[2] = w
        B[3] = v

    check_same(body)


def test_values_through_helpers_and_closures():
    def body(A, B, var):
        def double(x):
            return x * 2

        triple = lambda x: x * 3  # noqa: E731
        x = double(A[0])
        y = triple(A[1])
        A[0] = 0
        A[1] = 0
        B[0] = x
        B[1] = y
        B[2] = double(triple(x)) + y

    check_same(body, 3, 4)


# -- variables -------------------------------------------------------------------------------------


def test_assignment_to_a_variable_stores():
    def body(A, B, var):
        v = var("int32", 1)
        for i in range(5):
            v = v * 2
        B[0] = v
        if A[0] > 0:
            v = 77
        B[1] = v

    check_same(body, 1)
    check_same(body, -1)


def test_indexing_a_python_list_with_a_value_is_refused():
    def body(A, B, var):
        numbers = [3, 1, 4]
        for k in range(3):
            B[k] = numbers[k]

    with pytest.raises(TileTypeError, match="index into a list"):
        kernel_of(body)


def test_every_augmented_assignment():
    def body(A, B, var):
        v = var("int32", A[0])
        v += 3
        v -= 1
        v *= 5
        v //= 2
        v %= 13
        v <<= 2
        v >>= 1
        v |= 5
        v &= 29
        v ^= 3
        B[0] = v
        B[1] = 10
        B[1] += A[1]
        B[1] -= 2
        B[1] *= 3
        B[1] //= 2
        B[1] %= 7
        B[1] <<= 3
        B[1] >>= 1
        B[1] |= 16
        B[1] &= 30
        B[1] ^= 1
        n = 4
        n += 3
        n **= 2
        B[2] = n

    check_same(body, 6, 9)


def test_swaps():
    def body(A, B, var):
        i = var("int32", 1)
        j = var("int32", 2)
        i, j = j, i
        B[0] = i
        B[1] = j
        i, j = j + i, i - j
        B[2] = i
        B[3] = j
        A[0], A[1] = A[1], A[0]
        (A[2], A[3]), A[4] = (A[4], A[2]), A[3]
        x, y = A[0], A[1]
        x, y = y, x
        B[4] = x
        B[5] = y

    check_same(body, 1, 2, 3, 4, 5)


def test_one_value_for_several_targets():
    def body(A, B, var):
        A[0] = B[0] = A[1] = A[0] + 1
        x = y = A[0]
        A[0] = 0
        B[1] = x + y

    check_same(body, 4, 5)


def test_variables_from_one_statement():
    def body(A, B, var):
        i, j = var("int32", 3), var("int32", 4)
        for k in range(3):
            i += 1
            j = j + i
        B[0] = i
        B[1] = j
        a = b = var("int32", 9)
        B[2] = a + b

    check_same(body)


def test_variables_in_a_list():
    def body(A, B, var):
        sums = [var("int32", k) for k in range(3)]
        for i in range(10):
            sums[0] += A[i]
            sums[1] = sums[1] + 1
        for k in (0, 1, 2):
            B[k] = sums[k]

    check_same(body)


def test_a_name_of_a_variable_may_become_something_else():
    def body(A, B, var):
        x = var("int32", 3)
        B[0] = x
        x = [1, 2]
        B[1] = x[0]
        x = var("int32", 8)
        B[2] = x

    check_same(body)


def test_a_loop_variable_of_the_same_name_does_not_store():
    def body(A, B, var):
        x = var("int32", 100)
        total = var("int32", 0)
        for x in range(4):
            total = total + x
        B[0] = total

    check_same(body)


def test_a_variable_is_read_by_name_or_at_zero():
    def body(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=1):
            v = T.alloc_var("int32", init=4)
            A[0] = v
            A[1] = v[0]
            v[0] = 7
            A[2] = v + v[0]
            A[3] = v.shape[0]

    a = np.zeros(4, np.int32)
    compiled(T.prim_func(body))(a)
    assert a.tolist() == [4, 4, 14, 1]


def test_a_variable_has_one_element():
    def body(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=1):
            v = T.alloc_var("int32")
            A[0] = v[1]

    with pytest.raises(IndexError, match="v is one scalar"):
        script(body)


def test_an_annotation_with_a_value_is_only_a_note():
    def body(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=1):
            x: T.float32 = 7
            v: T.int32 = T.alloc_var("int32")
            v: T.int32 = 5
            A[0] = x
            A[1] = v

    a = np.zeros(4, np.int32)
    compiled(T.prim_func(body))(a)
    assert a.tolist() == [7, 5, 0, 0]


# -- rebinding -------------------------------------------------------------------------------------


def test_rebinding_in_a_straight_line():
    def body(A, B, var):
        x = A[0]
        x = x + 1
        x = x * x
        B[0] = x
        x = "text"
        B[1] = len(x)
        x = A[1]
        x += 5
        B[2] = x

    check_same(body, 3, 4)


def test_rebinding_in_expanded_loops():
    def body(A, B, var):
        x = A[0]
        n = 0
        for k in (1, 2, 3):
            x = x * 2 + k
            n += k
        B[0] = x
        B[1] = n

    check_same(body, 3)


def test_a_name_that_each_round_binds_anew():
    def body(A, B, var):
        x = 0
        for i in range(8):
            x = A[i] + 1
            y = x * 2
            B[i] = y

    check_same(body)


def test_a_name_rebound_to_the_same_value_is_harmless():
    def body(A, B, var):
        x = 5
        y = A[0]
        for i in range(4):
            B[i] = x
            x = 5
        if A[0] > 0:
            x = 5
        B[4] = x + y

    check_same(body, 1)


def test_names_under_a_condition_are_each_arms_own():
    def body(A, B, var):
        x = A[0]
        if A[1] > 0:
            x = x + 10
            B[0] = x
        else:
            x = x - 10
            B[0] = x
        B[1] = 1

    check_same(body, 3, 1)
    check_same(body, 3, -1)


def refused(body, name):
    with pytest.raises(TileRuntimeError, match=f"{name} is ") as caught:
        kernel_of(body)
    text = str(caught.value)
    assert "T.alloc_var" in text
    return text


def test_reading_a_name_rebound_under_a_condition_is_refused():
    def constant(A, B, var):
        x = A[0]
        if A[0] > 20:
            x = 20
        B[0] = x

    def value(A, B, var):
        x = A[0]
        if A[0] > 20:
            x = A[1]
        B[0] = x

    def only_there(A, B, var):
        if A[0] > 20:
            x = A[1]
        B[0] = x

    def different(A, B, var):
        if A[0] > 20:
            x = 1
        else:
            x = 2
        B[0] = x

    for body in (constant, value, only_there, different):
        assert "bound under a condition" in refused(body, "x")


def test_carrying_a_name_from_round_to_round_is_refused():
    def counter(A, B, var):
        n = 0
        for i in range(4):
            n += 1
        B[0] = n

    def sum_(A, B, var):
        n = A[0]
        for i in range(4):
            B[i] = n
            n = n + A[i]

    def nested(A, B, var):
        n = 0
        for i in range(4):
            for j in (1, 2):
                n = n + j
            B[i] = n

    def in_while(A, B, var):
        n = 0
        v = var("int32", 4)
        while v > 0:
            v = v - 1
            n = n + 1

    for body in (counter, sum_, nested, in_while):
        assert "rebound in a loop of the kernel" in refused(body, "n")


def test_reading_a_name_after_the_loop_that_binds_it_is_refused():
    def target(A, B, var):
        for i in range(4):
            B[i] = 0
        B[0] = i

    def inside(A, B, var):
        for i in range(4):
            x = A[i]
            B[i] = x
        B[0] = x

    assert "bound inside a loop" in refused(target, "i")
    assert "bound inside a loop" in refused(inside, "x")


def test_a_name_without_a_value_may_be_bound_again():
    def body(A, B, var):
        if A[0] > 0:
            x = 1
        x = A[1]
        B[0] = x
        for i in range(4):
            B[i + 1] = i
        i = 9
        B[i] = i

    check_same(body, 1, 2)


@pytest.mark.parametrize(
    "use",
    ["operator", "index", "slice", "store", "call", "format", "condition", "compare", "and", "if",
     "for", "unary", "augment", "return", "attribute", "nested", "in", "tuple"],
)  # fmt: skip
def test_every_use_of_a_name_without_a_value_is_refused(use):
    statements = {
        "operator": "B[0] = 1 + x",
        "index": "B[x] = 1",
        "slice": "B[0:x] = 1",
        "store": "B[0] = x",
        "call": "B[0] = T.max(x, 1)",
        "format": "print(f'{x + 1}')",
        "condition": "if x: B[0] = 1",
        "compare": "B[0] = 1 if x == None else 2",
        "and": "B[0] = A[0] > 0 and x",
        "if": "B[0] = 1 if x else 2",
        "for": "\n".join(["for k in x:", "            B[0] = 1"]),
        "unary": "B[0] = -x",
        "augment": "x += 1",
        "return": "return x",
        "attribute": "B[0] = x.dtype",
        "nested": "T.alloc_shared((x, 4), 'int32')",
        "in": "B[0] = 1 if 1 in x else 2",
        "tuple": "y = (1, x)",
    }
    fn = defined(
        f"""
def fn(A: T.Tensor((4,), "int32"), B: T.Tensor((4,), "int32")):
    with T.Kernel(1, threads=1):
        if A[0] > 0:
            x = 1
        {statements[use]}
        B[0] = 1
"""
    )
    with pytest.raises(TileRuntimeError, match="x is bound under a condition"):
        script(fn)


def test_a_name_that_no_path_binds():
    def body(A, B, var):
        if len([]) > 0:
            x = 1
        B[0] = x

    assert "not bound on this path" in refused(body, "x")


def test_values_end_with_the_block_that_computes_them():
    kept = []

    def body(A, B, var):
        for i in range(4):
            kept.append(A[i] + 1)
        B[0] = kept[0]

    with pytest.raises(TileRuntimeError, match="outside the block that defines it"):
        kernel_of(body)


def test_buffers_end_with_their_launch():
    def fn(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=1):
            tile = T.alloc_shared((4,), "int32")
            T.clear(tile)
        with T.Kernel(1, threads=1):
            T.copy(tile, A)

    with pytest.raises(TileRuntimeError, match="tile is used outside the block that defines it"):
        script(fn)


# -- assignments that are no names -----------------------------------------------------------------


def test_unpacking_is_checked():
    def too_few(A, B, var):
        x, y, z = A[0], A[1]

    def too_many(A, B, var):
        x, y = [1, 2, 3]

    def endless(A, B, var):
        import itertools

        x, y = itertools.count()

    def a_value(A, B, var):
        x, y = A[0] + 1

    def a_buffer(A, B, var):
        x, y = A

    for body in (too_few, too_many, endless):
        with pytest.raises(TileValueError, match="wrong number of values"):
            kernel_of(body)
    for body in (a_value, a_buffer):
        with pytest.raises(TileTypeError, match="cannot be unpacked"):
            kernel_of(body)


def test_unpacking_any_iterable():
    def body(A, B, var):
        from collections import namedtuple

        Pair = namedtuple("Pair", "first second")
        p = Pair(A[0], A[1])
        x, y = p
        (u, v), w = zip([1, 2], [3, 4], strict=True), 5
        A[0] = 9
        B[0] = x + y
        B[1] = u[0] + v[1] + w
        B[2] = p.second

    check_same(body, 3, 4)


def test_starred_targets_and_attributes_are_refused():
    def starred(A, B, var):
        x, *y = [1, 2, 3]

    def attribute(A, B, var):
        var.x = A[0]

    def augmented(A, B, var):
        var.x += A[0]

    with pytest.raises(TileNotImplementedError, match="a starred target"):
        kernel_of(starred)
    for body in (attribute, augmented):
        with pytest.raises(TileNotImplementedError, match="assignment to an attribute"):
            kernel_of(body)


def test_a_declaration_without_a_value_is_refused():
    def fn(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=1):
            x: T.int32
            A[0] = 1

    with pytest.raises(TileNotImplementedError, match="declaration of x without a value"):
        script(fn)


def test_updating_a_list_in_place_is_pythons():
    def body(A, B, var):
        xs = ys = [1]
        xs += [2, 3]
        for k in (0, 1, 2):
            B[k] = ys[k]

    check_same(body)


def test_updating_a_whole_buffer_is_refused():
    for statement in ("A += 1", "A *= 2", "A[0:4] += 1", "A |= 1"):
        fn = defined(
            f"""
def fn(A: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=1):
        {statement}
"""
        )
        with pytest.raises(TileRuntimeError, match="an update of"):
            script(fn)


def test_run_kernel_and_python_do_differ_where_they_should():
    """The harness itself: a body that sees the difference is told apart."""

    def body(A, B, var):
        B[0] = 1 if isinstance(A, np.ndarray) else 2

    a = np.zeros(24, np.int32)
    assert run_kernel(body, a, a)[1][0] == 2
    with pytest.raises(AssertionError):
        check_same(body)
