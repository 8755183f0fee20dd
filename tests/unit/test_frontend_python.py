"""Python around and inside a kernel: what runs while it is traced, what is refused at its place."""
# pyright: reportCallIssue=false, reportGeneralTypeIssues=false, reportArgumentType=false
# ruff: noqa: A001, B007, B023, C416, F841 - the bodies are written to be traced

import linecache

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from frontend_run import check_same, compiled, defined, kernel_of, place, script
from tilelang.errors import TileError, TileNameError, TileNotImplementedError, TileTypeError
from tilelang.frontend.source import rewrite

GLOBAL = 7
LIST = [1, 2, 3]


def plus_global(x):
    return x + GLOBAL


# -- what runs while tracing -----------------------------------------------------------------------


def test_comprehensions():
    def body(A, B, var):
        xs = [k * k for k in range(6) if k % 2 == 1]
        ys = {k: k + 1 for k in (1, 3)}
        zs = {k for k in (5, 5)}
        pairs = [(i, j) for i in (0, 1) for j in (0, 1) if i != j]
        B[0] = xs[0] + xs[1] + xs[2]
        B[1] = ys[3] + len(zs)
        B[2] = sum(A[k] for k in range(4))
        B[3] = pairs[1][0]
        B[4] = max([k for k in xs if k < 20])

    check_same(body, 4, 5, 6, 7)


def test_the_filter_of_a_comprehension_must_be_known():
    def body(A, B, var):
        B[0] = len([k for k in range(4) if A[k] > 0])

    with pytest.raises(TileTypeError, match="filter of a comprehension"):
        kernel_of(body)


@pytest.mark.parametrize("x", [-3, 0, 3])
def test_lambdas_are_code_of_the_kernel_where_they_are_called(x):
    def body(A, B, var):
        pick = lambda v: v if v > 0 else -v  # noqa: E731
        both = lambda v, w=2: v > 0 and v < w  # noqa: E731
        B[0] = pick(A[0])
        B[1] = 1 if both(A[0]) else 0
        B[2] = 1 if both(A[0], w=9) else 0
        B[3] = [f(A[0]) for f in (lambda v: v + 1, lambda v: v * 2)][1]

    check_same(body, x)


def test_helpers_closures_globals_and_defaults():
    factor = 3

    def scaled(x, by=factor):
        return x * by

    def body(A, B, var, *, extra=5):
        B[0] = plus_global(A[0])
        B[1] = scaled(A[1])
        B[2] = scaled(A[1], by=4) + extra
        B[3] = LIST[2] + len(LIST)
        B[4] = int("11", 2) + round(2.6) + abs(-4) + min(3, 2) + max(7, 2)

    check_same(body, 4, 5)


def test_a_closure_has_the_value_it_has_when_traced():
    made = []
    for n in (2, 5):

        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=1):
                A[0] = n

        made.append(main)
    for n, main in zip((2, 5), made, strict=True):
        a = np.zeros(8, np.int32)
        compiled(main)(a)
        assert a[0] == n


def test_keyword_and_starred_arguments_of_calls():
    def body(A, B, var):
        def three(x, y, z=1, **rest):
            return x + 10 * y + 100 * z + rest.get("w", 0)

        args = (A[0], A[1])
        named = {"z": 3, "w": 7}
        B[0] = three(*args, **named)
        B[1] = three(y=A[0], x=A[1])
        B[2] = three(*[1, 2], 3)

    check_same(body, 4, 5)


def test_names_of_builtins_may_be_ones_own():
    def body(A, B, var):
        def max(a, b):
            return a - b

        def locals():
            return {}

        sum = 4
        len = lambda x: 9  # noqa: E731
        B[0] = max(A[0], A[1]) + sum + len(A)
        if A[0] > 0:
            B[1] = max(1, 2)
        B[2] = len(locals())

    check_same(body, 4, 5)


def test_pythons_max_of_a_value_is_refused():
    def body(A, B, var):
        B[0] = max(A[0], 3)

    with pytest.raises(TileTypeError, match=r"Python's max\(\)") as caught:
        kernel_of(body)
    assert "T.max(a, b)" in str(caught.value)


def test_other_context_managers_run_while_tracing():
    seen = []

    class Note:
        def __enter__(self):
            seen.append("in")
            return 5

        def __exit__(self, *_):
            seen.append("out")

    def body(A, B, var):
        with Note() as n:
            B[0] = n
        with Note(), Note() as m:
            B[1] = m

    check_same(body)
    assert seen.count("in") == seen.count("out") == 6


def test_imports_and_strings_and_passes():
    def body(A, B, var):
        """Not code."""
        import math
        from operator import add as plus

        B[0] = plus(A[0], int(math.sqrt(16)))
        B[1] = len(f"{B.shape[0]}-{'x':>3}")

    check_same(body, 4)


def test_print_runs_while_tracing(capsys):
    def fn(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=1):
            for i in T.serial(4):
                print("tracing", i, A.shape)
                A[i] = 1

    script(fn)
    assert capsys.readouterr().out == "tracing i (4,)\n"


def test_matrix_multiplication_of_known_matrices_is_pythons():
    def body(A, B, var):
        m = np.array([[1, 2], [3, 4]]) @ np.array([5, 6])
        B[0] = int(m[0])
        B[1] = m[1]

    check_same(body)


def test_text_beyond_ascii_does_not_move_the_caret():
    fn = defined(
        """
def fn(A: T.Tensor((4,), "int32")):
    with T.Kernel(1, threads=1):
        größe = "größer"; A[9] = 1
"""
    )
    with pytest.raises(IndexError) as caught:
        script(fn)
    loc = place(caught)
    assert (loc.line, loc.col, loc.end_col) == (4, 27, 31)


def test_a_string_that_is_less_indented_than_the_function():
    def body(A, B, var):
        text = """
less
"""
        B[0] = len(text)

    check_same(body)


# -- parameters and annotations --------------------------------------------------------------------


def test_postponed_annotations():
    fn = defined(
        """
from __future__ import annotations
def fn(A: T.Tensor((SIZE,), "int32"), n: T.int32, m: "T.int64"):
    with T.Kernel(1, threads=1):
        A[n] = m
""",
        SIZE=6,
    )
    assert "A: Tensor((6,), int32), n: int32, m: int64" in script(fn)


def test_text_annotations():
    size = 5

    @T.prim_func
    def main(A: 'T.Tensor((size,), "int32")', s: "float32"):
        with T.Kernel(1, threads=1):
            A[0] = size

    assert "A: Tensor((5,), int32), s: float32" in main.script()


def test_an_annotation_whose_name_is_not_known():
    fn = defined(
        """
from __future__ import annotations
def fn(A: T.Tensor((MISSING,), "int32")):
    with T.Kernel(1, threads=1):
        A[0] = 1
"""
    )
    with pytest.raises(TileNameError, match="annotation of A uses a name that is not known"):
        script(fn)


def test_the_dtypes_of_scalar_parameters():
    @T.prim_func
    def main(A: T.Tensor((4,)), a: T.int8, b: "bool", c: float, d: np.uint16, e: T.bfloat16):
        with T.Kernel(1, threads=1):
            A[0] = a

    assert "a: int8, b: bool, c: float32, d: uint16, e: bfloat16" in main.script()


def test_parameters_without_annotation_or_of_another_kind_are_refused():
    def bare(A):
        with T.Kernel(1):
            A[0] = 1

    def several(*A: T.int32):
        with T.Kernel(1):
            pass

    def named(**A: T.int32):
        with T.Kernel(1):
            pass

    def positional(A: T.int32, /):
        with T.Kernel(1):
            pass

    def strange(A: 3.5):
        with T.Kernel(1):
            pass

    with pytest.raises(TileNotImplementedError, match="parameter A of bare has no annotation"):
        script(bare)
    for fn in (several, named, positional):
        with pytest.raises(TileNotImplementedError, match=f"parameter A of {fn.__name__}"):
            script(fn)
    with pytest.raises(TileTypeError, match="the annotation of parameter A"):
        script(strange)


def test_forms_of_the_tensor_annotation():
    n = T.dynamic("n")

    @T.prim_func
    def main(
        A: T.Tensor((8,), T.float16),
        B: T.Tensor[(8,), T.float16],
        C: T.Tensor[8, 8],
        D: T.Tensor[8, T.float16],
        E: T.Tensor[[n, 4], "int8"],
        F: T.Tensor(8, "float16"),
        G: T.StridedTensor((n, 4), (8, 1), "int32"),
        H: T.StridedTensor[(n, 4), (4, 1)],
    ):
        with T.Kernel(1, threads=1):
            A[0] = 0

    text = main.script()
    for piece in (
        "A: Tensor((8,), float16)",
        "B: Tensor((8,), float16)",
        "C: Tensor((8, 8), float32)",
        "D: Tensor((8,), float16)",
        "E: Tensor((n, 4), int8)",
        "F: Tensor((8,), float16)",
        "G: Tensor((n, 4), int32, strides=(8, 1))",
        "H: Tensor((n, 4), float32, strides=(4, 1))",
    ):
        assert piece in text


def test_annotations_that_are_no_tensors():
    with pytest.raises(TileError, match=r"T.Tensor\[...\] needs a shape and a dtype"):
        T.Tensor[8]
    with pytest.raises(TileError, match="differ in length"):
        T.StridedTensor((4, 4), (1,), "float32")
    with pytest.raises(TileError, match="an extent of a tensor is negative"):
        T.Tensor((-4,), "float32")
    with pytest.raises(TileError, match="an extent of a tensor is float"):
        T.Tensor((4.0,), "float32")
    with pytest.raises(ValueError, match="unknown dtype 'float17'; did you mean"):
        T.Tensor((4,), "float17")
    with pytest.raises(TileError, match="the shape of a tensor is None"):
        T.Tensor(None, "float32")


# -- launches and code of the host -----------------------------------------------------------------


def test_two_kernels_in_one_function():
    @T.prim_func
    def main(A: T.Tensor((48,), "int32"), B: T.Tensor((48,), "int32")):
        with T.Kernel(2, threads=24) as bx:
            for i in T.Parallel(24):
                B[bx * 24 + i] = A[bx * 24 + i] + 1
        with T.Kernel(1, threads=24):
            for i in T.Parallel(48):
                B[i] = B[i] * 2

    a, b = np.arange(48, dtype=np.int32), np.zeros(48, np.int32)
    compiled(main)(a, b)
    np.testing.assert_array_equal(b, (a + 1) * 2)


def test_kernels_made_by_a_python_loop():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        for k in range(3):
            with T.Kernel(1, threads=8):
                for i in T.Parallel(8):
                    A[i] = A[i] * 10 + k

    a = np.zeros(8, np.int32)
    compiled(main)(a)
    assert a.tolist() == [12] * 8


def test_scalar_code_before_the_launch():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "int32"), k: T.int32):
        blocks = T.ceildiv(n, 16)
        twice = k * 2
        if n > 0:
            half = 8
        with T.Kernel(blocks, threads=16) as bx:
            for i in T.Parallel(16):
                if bx * 16 + i < n:
                    A[bx * 16 + i] = twice + blocks

    a = np.zeros(40, np.int32)
    compiled(main)(a, 5)
    assert a.tolist() == [13] * 40


@pytest.mark.parametrize("grid", [(5,), (2, 3), (2, 3, 2)])
def test_grids(grid):
    @T.prim_func
    def main(A: T.Tensor((64,), "int32")):
        with T.Kernel(*grid, threads=1) as index:
            axes = [index] if len(grid) == 1 else index
            place = 0
            for axis, extent in zip(reversed(axes), reversed(grid), strict=True):
                place = place * extent + axis
            A[place] = place + 1

    total = int(np.prod(grid))
    a = np.zeros(64, np.int32)
    compiled(main)(a)
    assert a.tolist() == [n + 1 for n in range(total)] + [0] * (64 - total)


def test_forms_of_the_block_index():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(8, threads=1) as (bx,):
            A[bx] = bx
        with T.Kernel(8, threads=1) as bx:
            A[bx] = A[bx] + bx
        with T.Kernel(1, threads=1):
            A[0] = 5

    a = np.zeros(8, np.int32)
    compiled(main)(a)
    assert a.tolist() == [5, *(2 * n for n in range(1, 8))]


def test_a_kernel_under_another_name():
    from tilelang.language import Kernel as launch

    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        grid = launch(8, threads=1)
        with grid as b:
            A[b] = 1

    assert "launch((8,), threads=(1,))" in main.script()


# -- what is refused -------------------------------------------------------------------------------

REFUSED = {
    "`try`": "try:\n            pass\n        finally:\n            pass",
    "`del`": "del A",
    "`global`": "global GLOBAL",
    "`nonlocal`": None,
    "a class definition": "class C:\n            pass",
    "`match`": "match 1:\n            case 1:\n                pass",
    "`yield`": "yield 1",
    "`yield from`": "yield from []",
    "`else` of a loop": "for i in [1]:\n            pass\n        else:\n            pass",
    "an asynchronous comprehension": None,
    "`async def`": "async def f():\n            pass",
    "assignment to an attribute": "A.x = 1",
    "a starred target": "x, *y = 1, 2",
}


@pytest.mark.parametrize("what", [w for w, text in REFUSED.items() if text])
def test_statements_that_are_no_part_of_the_language(what):
    fn = defined(
        f"""
def fn(A: T.Tensor((4,), "int32")):
    with T.Kernel(1, threads=1):
        A[0] = 1
        {REFUSED[what]}
"""
    )
    with pytest.raises(
        TileNotImplementedError, match=f"{what} is not part of the language"
    ) as caught:
        script(fn)
    assert place(caught).line >= 5
    assert place(caught).function == "fn"
    assert caught.value.diagnostics[0].help


def test_star_try_is_refused():
    fn = defined(
        """
def fn(A: T.Tensor((4,), "int32")):
    try:
        pass
    except* ValueError:
        pass
"""
    )
    with pytest.raises(TileNotImplementedError, match="`TryStar` is not part of the language"):
        script(fn)


def test_a_function_without_source_is_refused():
    scope = {"T": T}
    exec("def fn(A: T.Tensor((4,), 'int32')):\n    pass\n", scope)
    with pytest.raises(TileNotImplementedError, match="the source of fn cannot be read"):
        script(scope["fn"])


def test_a_lambda_is_no_kernel():
    with pytest.raises(TileNotImplementedError, match="not defined with `def`"):
        T.prim_func(lambda: 0)


def test_unknown_names_of_the_language():
    def body(A, B, var):
        T.alloc_shard((4,), "int32")

    with pytest.raises(AttributeError, match="no name alloc_shard") as caught:
        kernel_of(body)
    assert "did you mean T.alloc_shared" in str(caught.value)
    assert not hasattr(T, "no_such_thing_at_all")


def test_arguments_that_a_function_does_not_take():
    def unknown(A, B, var):
        T.copy(A, B, foo=1)

    def missing(A, B, var):
        T.copy(A)

    def too_many(A, B, var):
        T.max(1, 2, 3)

    for body in (unknown, missing, too_many):
        with pytest.raises(TileTypeError) as caught:
            kernel_of(body)
        assert place(caught).function == body.__name__


def test_the_language_outside_a_kernel():
    for call in (
        lambda: T.alloc_shared((4,), "int32"),
        lambda: T.serial(4),
        lambda: T.Kernel(4),
        lambda: T.copy(1, 2),
    ):
        with pytest.raises(RuntimeError, match="used outside a kernel"):
            call()


def test_errors_of_the_authors_own_python_pass_through():
    def body(A, B, var):
        B[0] = 1 // 0

    with pytest.raises(ZeroDivisionError):
        kernel_of(body)


def test_a_failed_trace_leaves_nothing_behind():
    def bad(A, B, var):
        for i in range(4):
            if A[0] > 0:
                B[99] = 1

    def good(A, B, var):
        B[0] = 1

    with pytest.raises(IndexError):
        kernel_of(bad)
    with pytest.raises(RuntimeError, match="used outside a kernel"):
        T.serial(4)
    check_same(good)


def test_a_parameter_of_a_launch_has_no_default_value():
    def fn(A: T.Tensor((4,), "int32"), n: T.int32 = 3):
        with T.Kernel(1, threads=1):
            A[0] = n

    with pytest.raises(TileNotImplementedError, match="parameter n of fn has a default value"):
        script(fn)


def test_a_traced_function_is_not_called_but_compiled():
    @T.prim_func
    def kernel(A: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=1):
            A[0] = 1

    with pytest.raises(TypeError, match=r"tilelang.compile"):
        kernel(np.zeros(1, np.int32))


def test_a_jit_function_names_itself_and_its_signature_where_arguments_do_not_fit():
    @tilelang.jit
    def make(m, n=3):
        @T.prim_func
        def kernel(A: T.Tensor((m, n), "int32")):
            with T.Kernel(1, threads=1):
                A[0, 0] = 1

        return kernel

    with pytest.raises(TypeError, match=r"make: missing a required argument: 'm'") as refused:
        make()
    assert "make(m, n=3)" in str(refused.value)
    assert repr(make) == "<make(m, n=3) under @tilelang.jit>"


def test_a_function_that_is_defined_again_with_other_annotations_is_read_again(tmp_path):
    file = tmp_path / "again.py"
    text = (
        "import tilelang.language as T\n"
        "def kernel():\n"
        "    A: T.Tensor(({n},), 'float32')\n"
        "    return A\n"
    )
    found = []
    for n in (24, 40):
        file.write_text(text.format(n=n))
        linecache.checkcache(str(file))
        space = {}
        exec(compile(file.read_text(), str(file), "exec"), space)
        found.append(rewrite(space["kernel"]))
    assert found[0] is not found[1]
