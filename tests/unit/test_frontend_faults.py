"""What Python raises inside a kernel, as located errors; numbers that do not fit; zeros."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileError


def test_the_place_is_the_expression_itself():
    with pytest.raises(NameError) as caught:

        @T.prim_func
        def kernel(A: T.Tensor((4,), "int32")):
            with T.Kernel(1, threads=1):
                A[0] = 1 + 2 * missing

    found = caught.value.diagnostics[0]
    assert found.message == "name 'missing' is not defined"
    assert found.loc.end_col - found.loc.col == len("missing")
    assert isinstance(caught.value, TileError)


@pytest.mark.parametrize(
    ("kind", "index"), [(ZeroDivisionError, 0), (IndexError, 1), (KeyError, 2), (TypeError, 3)]
)
def test_existing_handlers_still_catch_it(kind, index):
    values = [1, 2]
    with pytest.raises(kind) as caught:

        @T.prim_func
        def kernel(A: T.Tensor((4,), "int32")):
            with T.Kernel(1, threads=1):
                if index == 0:
                    A[0] = 1 % (len(values) - 2)
                elif index == 1:
                    A[0] = values[2]
                elif index == 2:
                    A[0] = {"a": 1}["b"]
                else:
                    A[0] = values + 1

    assert isinstance(caught.value, TileError)
    assert caught.value.diagnostics[0].loc is not None
    assert str(caught.value).startswith(f"error[value]: Python says {kind.__name__}: ")


def test_in_a_macro_the_call_is_named():
    @T.macro
    def half(x):
        return x // (1 - 1)

    with pytest.raises(ZeroDivisionError) as caught:

        @T.prim_func
        def kernel(A: T.Tensor((4,), "int32")):
            with T.Kernel(1, threads=1):
                A[0] = half(4)

    loc = caught.value.diagnostics[0].loc
    assert loc.function == "half"
    assert loc.caller.function == "kernel"


def test_what_the_author_raises_stays_as_it_is():
    def helper():
        raise ValueError("from a helper")

    with pytest.raises(ValueError, match="from a helper") as caught:

        @T.prim_func
        def called(A: T.Tensor((4,), "int32")):
            with T.Kernel(1, threads=1):
                A[0] = helper()

    assert type(caught.value) is ValueError
    with pytest.raises(ValueError, match="from the kernel") as caught:

        @T.prim_func
        def raising(A: T.Tensor((4,), "int32")):
            with T.Kernel(1, threads=1):
                if len("ab") == 2:
                    raise ValueError("from the kernel")
                A[0] = 1

    assert type(caught.value) is ValueError
    with pytest.raises(AssertionError, match="of Python"):

        @T.prim_func
        def asserted(A: T.Tensor((4,), "int32")):
            with T.Kernel(1, threads=1):
                assert len("ab") == 3, "of Python"


def test_a_fault_in_a_helper_is_of_the_helper():
    def helper(x):
        return x // 0

    with pytest.raises(ZeroDivisionError) as caught:

        @T.prim_func
        def kernel(A: T.Tensor((4,), "int32")):
            with T.Kernel(1, threads=1):
                A[0] = helper(4)

    assert type(caught.value) is ZeroDivisionError


def test_a_name_that_has_no_value_yet():
    with pytest.raises(NameError) as caught:

        @T.prim_func
        def kernel(A: T.Tensor((4,), "int32")):
            with T.Kernel(1, threads=1):
                count += A[0]  # noqa: F841  # pyright: ignore[reportUnboundVariable]

    assert caught.value.diagnostics[0].help == "give it a value before it is read"


def test_python_print_of_a_value_has_a_warning(capsys):
    @T.prim_func
    def kernel(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=1):
            print("now", len("ab"))
            print(A[0])
            A[1] = A[0]

    (found,) = kernel.warnings
    assert found.message.startswith("print() of a value") and "T.print" in found.help
    assert capsys.readouterr().out.startswith("now 2")


# -- numbers that do not fit -----------------------------------------------------------------------


def warned(kernel):
    return [(w.kind, w.message) for w in kernel.warnings]


@pytest.mark.parametrize(
    ("dtype", "number", "stored"),
    [
        ("int32", 2**40, 0),
        ("int8", 200, -56),
        ("int16", -40000, 25536),
        ("uint8", 256, 0),
        ("uint16", -2, 65534),
        ("int8", 1e3, 127),
        ("float16", 1e6, np.inf),
        ("float16", -7e4, -np.inf),
    ],
)
def test_a_number_that_does_not_fit_is_stored_with_a_warning(dtype, number, stored):
    @T.prim_func
    def kernel(A: T.Tensor((4,), dtype)):
        with T.Kernel(1, threads=1):
            A[0] = number

    assert warned(kernel) == [("value", f"{number} does not fit {dtype}")]
    assert kernel.warnings[0].loc is not None
    a = np.zeros(4, dtype)
    compiled = tilelang.compile(kernel, target="emulate")
    compiled(a)
    assert a[0] == stored
    assert kernel.warnings[0] in list(compiled.warnings)


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        ("int32", -1),
        ("int32", 2**31 - 1),
        ("int32", 0xFFFFFFFF),
        ("uint8", -1),
        ("uint32", 0xFFFFFFFF),
        ("float16", 65504.0),
        ("float16", float("inf")),
        ("float32", 3.4028235e38),
        ("float32", 10**9),
        ("float8_e4m3fn", 460),
        ("float32", float("nan")),
        ("bool", 3),
        ("int32", 2.75),
    ],
)
def test_numbers_that_fit(dtype, number):
    @T.prim_func
    def kernel(A: T.Tensor((4,), dtype)):
        with T.Kernel(1, threads=1):
            A[0] = number

    assert warned(kernel) == []


def test_every_implicit_conversion_of_a_number_is_looked_at():
    @T.prim_func
    def kernel(A: T.Tensor((4,), "int8")):
        with T.Kernel(1, threads=32):
            T.fill(A, 300)
            x = T.alloc_var("int8", init=301)
            x = 302
            T.atomic_add(A[0], 303)
            for k in [0, 1]:
                A[k] = 304
            A[2] = T.cast(305, "int8")
            A[3] = x

    assert [m.split()[0] for _, m in warned(kernel)] == ["300", "301", "302", "303", "304"]


# -- divisions by zero -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "divide",
    [
        lambda x: x // 0,
        lambda x: x % 0,
        lambda x: T.truncdiv(x, 0),
        lambda x: T.ceildiv(x, 0),
    ],
)
def test_a_division_by_a_literal_zero_has_a_warning(divide):
    @T.prim_func
    def kernel(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=1):
            A[0] = divide(A[1])

    assert warned(kernel) == [("value", "an integer is divided by zero")]


def test_other_divisions_have_none():
    @T.prim_func
    def kernel(A: T.Tensor((4,), "int32"), F: T.Tensor((4,), "float32"), n: T.int32):
        with T.Kernel(1, threads=1):
            A[0] = A[1] // n + A[1] % 3 + T.ceildiv(A[1], n)
            F[0] = F[1] / 0

    assert warned(kernel) == []


# -- clusters --------------------------------------------------------------------------------------


def test_a_grid_of_part_of_a_cluster_is_refused_at_the_launch():
    n = T.dynamic("n")

    @T.prim_func
    def kernel(A: T.Tensor((n,), "int32")):
        with T.ClusterKernel(n, threads=32, cluster_dims=2) as bx:
            A[bx] = 1

    compiled = tilelang.compile(kernel, target="emulate:sm_90a")
    a = np.zeros(6, np.int32)
    compiled(a)
    assert a.all()
    for size in (1, 7):
        a = np.zeros(size, np.int32)
        with pytest.raises(TileError, match="axis 0 of the grid is not made of whole clusters"):
            compiled(a)
        assert not a.any()
    compiled(np.zeros(0, np.int32))


def test_a_cluster_along_an_axis_that_the_grid_does_not_have():
    @T.prim_func
    def kernel(A: T.Tensor((4,), "int32")):
        with T.ClusterKernel(4, threads=32, cluster_dims=(1, 2)) as bx:
            A[bx] = 1

    with pytest.raises(TileError, match="axis 1 of the grid is not made of whole clusters"):
        tilelang.compile(kernel, target="emulate:sm_90a")
