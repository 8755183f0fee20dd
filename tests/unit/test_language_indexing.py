"""Indices, slices, stores to slices: from the end where negative, refused where surely outside."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from frontend_run import compiled, defined, script
from tilelang.errors import (
    TileError,
    TileIndexError,
    TileRuntimeError,
    TileTypeError,
    TileValueError,
)


def launch(statements, **names):
    """A kernel over A (12, 20) and B (20,) in global memory and S (8, 16) on chip, all int32."""
    body = "\n".join("        " + line for line in statements.strip().splitlines())
    source = f"""
def fn(A: T.Tensor((12, 20), "int32"), B: T.Tensor((20,), "int32")):
    with T.Kernel(1, threads=1):
        S = T.alloc_shared((8, 16), "int32")
{body}
"""
    return defined(source, **names)


def run(statements, **names):
    """A and B after the kernel; A begins as 100 * row + column, B as zeros."""
    a = np.arange(12, dtype=np.int32)[:, None] * 100 + np.arange(20, dtype=np.int32)
    b = np.zeros(20, np.int32)
    compiled(T.prim_func(launch(statements, **names)))(a, b)
    return a, b


# -- elements --------------------------------------------------------------------------------------


def test_negative_constants_count_from_the_end():
    _, b = run("B[0] = A[-1, -2]\nB[-1] = A[-12, -20]\nB[-20 + 1] = A[3, 4]")
    assert (b[0], b[19], b[1]) == (1118, 0, 304)


def test_expressions_that_are_certainly_negative_count_from_the_end():
    _, b = run("for i in range(6):\n    B[i] = A[-i - 1, i - 20]")
    assert b[:6].tolist() == [100 * (11 - i) + i for i in range(6)]


def test_expressions_of_unknown_sign_are_left_as_they_are():
    text = script(launch("for i in range(6):\n    B[i - 3] = A[i - 3, 0]"))
    assert "B[i - 3] = A[i - 3, 0]" in text
    _, b = run("B[0] = 5\nfor i in range(6):\n    B[i - 3] = 1 + A[i - 3, 1]")
    # Outside a global tensor a store does nothing.
    assert b.tolist() == [2, 102, 202] + [0] * 17


def test_negative_indices_of_loops_that_run_backwards_and_of_blocks():
    _, b = run("for i in range(-1, -4, -1):\n    B[i] = -i")
    assert b[16:].tolist() == [0, 3, 2, 1]

    @T.prim_func
    def main(B: T.Tensor((20,), "int32")):
        with T.Kernel(4, threads=1) as bx:
            B[-bx - 1] = bx + 1

    b = np.zeros(20, np.int32)
    compiled(main)(b)
    assert b[16:].tolist() == [4, 3, 2, 1]


def test_symbolic_extents():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "int32")):
        with T.Kernel(1, threads=1):
            A[-1] = 7
            A[n - 2] = 8
            for i in range(n):
                A[-i - 1] = A[-i - 1] + 1

    a = np.zeros(9, np.int32)
    compiled(main)(a)
    assert a.tolist() == [1] * 7 + [9, 8]


@pytest.mark.parametrize(
    ("index", "expected"),
    [("B[20]", "0 to 19"), ("B[-21]", "-20 to 19"), ("A[0, 20]", "0 to 19"), ("S[8, 0]", "0 to 7"),
     ("A[12, 0]", "0 to 11"), ("A[-13, 0]", "-12 to 11"), ("A[2 * 6, 0]", "0 to 11")],
)  # fmt: skip
def test_constants_outside_are_refused(index, expected):
    for statement in (f"B[0] = {index}", f"{index} = 1", f"{index} += 1"):
        with pytest.raises(TileIndexError, match="out of bounds") as caught:
            script(launch(statement))
        assert caught.value.diagnostics[0].expected == expected


@pytest.mark.parametrize("index", ["A[0]", "B[0, 0]", "A[0, 0, 0]", "B[()]"])
def test_the_number_of_indices(index):
    for statement in (f"B[0] = {index}", f"{index} = 1"):
        with pytest.raises(TileIndexError, match="axes and is indexed with"):
            script(launch(statement))


@pytest.mark.parametrize(
    "index", ["1.0", "'0'", "None", "True", "...", "A", "[0]", "2.5 * A[0, 0]"]
)
def test_indices_of_another_type(index):
    for statement in (f"B[{index}] = 1", f"B[0] = A[0, {index}]"):
        with pytest.raises(TileTypeError, match=r"index \d of"):
            script(launch(statement))


def test_a_computed_bool_is_zero_or_one():
    _, b = run("for i in range(4):\n    B[i > 1] = i")
    assert b[:2].tolist() == [1, 3]


def test_indices_of_other_integer_types():
    statement = "B[T.cast(3, dtype)] = A[T.cast(2, dtype), T.cast(A[0, 1], dtype)]"
    for dtype in ("int8", "uint8", "int64", "uint32"):
        assert run(statement, dtype=dtype)[1][3] == 201


def test_numpy_integers_are_indices():
    assert run("B[i] = A[i, 0]", i=np.int64(3))[1][3] == 300


# -- slices ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "want"),
    [
        ("A[2, 3:9]", "B[0:6]", lambda a: a[2, 3:9]),
        ("A[2, :]", "B[:]", lambda a: a[2]),
        ("A[2]", None, None),
        ("A[-1, :5]", "B[:5]", lambda a: a[-1, :5]),
        ("A[-2, -4:]", "B[0:4]", lambda a: a[-2, -4:]),
        ("A[0, -9:-4]", "B[0:5]", lambda a: a[0, -9:-4]),
        ("A[3:4, 1:7]", "B[2:8]", lambda a: a[3, 1:7]),
        ("A[3:9, 7]", "B[0:6]", lambda a: a[3:9, 7]),
        ("B[5:5]", "B[0:0]", lambda a: a[0, :0]),
    ],
)
def test_slices_of_copies(source, target, want):
    if want is None:
        with pytest.raises(TileIndexError):
            script(launch(f"T.copy({source}, B)"))
        return
    a, b = run(f"T.copy({source}, {target})")
    picked = want(a)
    low = int(target.split("[")[1].split(":")[0] or 0)
    np.testing.assert_array_equal(b[low : low + len(picked)], picked)
    assert not b[low + len(picked) :].any()


def test_dynamic_slices():
    _, b = run("k = T.alloc_var('int32', init=3)\nT.copy(A[k, k * 2 : k * 2 + 5], B[k : k + 5])")
    assert b.tolist() == [0, 0, 0, *range(306, 311), *[0] * 12]


def test_slices_kept_in_names():
    _, b = run("row = A[4, 2:8]\nT.copy(row, B[0:6])\nT.fill(B[10:12], row.shape[1])")
    assert b.tolist() == [*range(402, 408), 0, 0, 0, 0, 6, 6, *[0] * 8]


def test_omitted_axes_of_a_slice_are_whole():
    text = script(launch("T.fill(S[2:4], 1)"))
    assert "S[2 : +2, 0 : +16]" in text


@pytest.mark.parametrize("part", ["0:8:2", "::2", "::-1", "8:0:-1", "0:8:k"])
def test_steps_are_refused(part):
    with pytest.raises(TileRuntimeError, match="with step"):
        script(launch(f"T.fill(B[{part}], 1)", k=3))


def test_a_step_of_one_is_no_step():
    assert run("T.fill(B[2:6:1], 1)")[1].tolist() == [0, 0, 1, 1, 1, 1, *[0] * 14]


def test_ranges_on_chip_stay_inside():
    for part in ("S[0:9, :]", "S[6:12, 0]", "S[:, 8:17]", "S[8:9, 0:1]"):
        with pytest.raises(TileIndexError, match="out of bounds"):
            script(launch(f"T.fill({part}, 1)"))
    script(launch("T.fill(S[8:8, :], 1)"))  # empty


def test_ranges_of_global_tensors_are_clipped():
    _, b = run("T.copy(A[3, 16:24], B[16:24])\nT.copy(A[11:13, 0:2], S[0:2, 0:2])\nB[0] = S[1, 1]")
    assert b.tolist() == [0] * 16 + [316, 317, 318, 319]


def test_bounds_that_make_no_range():
    with pytest.raises(TileIndexError, match="ends before it starts"):
        script(launch("T.fill(B[5:3], 1)"))
    with pytest.raises(TileIndexError, match="out of bounds"):
        script(launch("T.fill(B[-30:5], 1)"))
    with pytest.raises(TileValueError, match="a slice bound of B is float"):
        script(launch("T.fill(B[0.0:5], 1)"))
    with pytest.raises(TileIndexError, match="sliced with 3 indices"):
        script(launch("T.fill(A[0:1, 0:1, 0:1], 1)"))


def test_a_slice_is_not_indexed_again():
    for statement in ("B[0] = A[0:2, 0][1]", "B[0:4][1] = 2"):
        with pytest.raises(TileTypeError, match=r"a slice of . is indexed again"):
            script(launch(statement))


# -- stores to slices ------------------------------------------------------------------------------


def test_stores_to_slices():
    _, b = run("B[0:4] = A[5, 2:6]\nB[6:8] = 9\nB[10:12] = A[5, 0] + 1\nB[13:] = B[0:7]")
    assert b.tolist() == [
        502,
        503,
        504,
        505,
        0,
        0,
        9,
        9,
        0,
        0,
        501,
        501,
        0,
        502,
        503,
        504,
        505,
        0,
        0,
        9,
    ]


def test_a_store_of_a_whole_buffer_to_a_slice():
    _, b = run("row = T.alloc_shared((16,), 'int32')\nT.fill(row, 3)\nB[2:18] = row")
    assert b.tolist() == [0, 0, *[3] * 16, 0, 0]


def test_stores_to_slices_convert():
    text = script(launch("H = T.alloc_shared((4,), 'float16')\nB[0:4] = H[0:4]\nH[:] = 1.00001"))
    assert "copy(H[0 : +4], B[0 : +4])" in text
    assert "float16(1.0)" in text


def test_stores_that_do_not_fit():
    for statement in ("B[0:4] = B[0:5]", "B[0:4] = A[0:3, 0]", "A[0:2, 0:3] = A[0:3, 0:2]"):
        with pytest.raises(TileValueError, match="between tiles of different shape"):
            script(launch(statement))
    for statement in ("B[0] = B[0:1]", "B[0] = A", "B[0:2] = 'x'", "B[0] = None", "B[0] = [1]"):
        with pytest.raises(TileTypeError, match="is stored into an element of B"):
            script(launch(statement))


# -- whole buffers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("thing", ["B", "B[0:4]"])
@pytest.mark.parametrize(
    "expression",
    ["{} + 1", "1 - {}", "{} * {}", "{} // 2", "{} << 1", "-{}", "~{}", "{} < 1", "{} == 1",
     "1 != {}", "abs({})", "{} @ {}", "{} ** 2", "{} & 1"],
)  # fmt: skip
def test_operators_on_buffers_and_slices_are_refused(thing, expression):
    statement = "B[0] = " + expression.replace("{}", thing)
    with pytest.raises(TileTypeError) as caught:
        script(launch(statement))
    found = caught.value.diagnostics[0]
    assert found.kind == "syntax"
    assert "for i in T.Parallel(n)" in found.help


@pytest.mark.parametrize("thing", ["B", "B[0:4]"])
def test_a_buffer_is_no_condition(thing):
    for statement in (f"if {thing}:\n    B[0] = 1", f"while {thing}:\n    B[0] = 1",
                      f"B[0] = 1 if {thing} else 2", f"B[0] = not {thing}",
                      f"B[0] = {thing} and 1"):  # fmt: skip
        with pytest.raises(TileTypeError, match="is used as a condition"):
            script(launch(statement))


def test_what_can_be_asked_of_a_buffer():
    seen = {}

    @T.prim_func
    def main(A: T.Tensor((12, 20), "float16"), B: T.StridedTensor((4, 6), (8, 1), "int8")):
        with T.Kernel(1, threads=1):
            S = T.alloc_shared((3, 4, 5), "bfloat16")
            seen.update(
                shape=A.shape, dtype=A.dtype, ndim=S.ndim, strides=(S.strides, B.strides),
                scope=(A.scope(), S.scope()), len=len(S), name=S.name, same=(A == A, A == B),
                none=A is None, slice=(A[0:2, 3].shape, A[0:2, 3].dtype, A[0:2].buffer == A),
            )  # fmt: skip
            A[0, 0] = 0

    assert seen == {
        "shape": (12, 20),
        "dtype": "float16",
        "ndim": 3,
        "strides": ((20, 5, 1), (8, 1)),
        "scope": ("global", "shared.dyn"),
        "len": 3,
        "name": "S",
        "same": (True, False),
        "none": False,
        "slice": ((2, 1), "float16", True),
    }


def test_a_kernel_without_extents_is_one_block():
    @T.prim_func
    def main(A: T.Tensor((4,), "int32")):
        with T.Kernel(threads=64):
            for i in T.Parallel(4):
                A[i] = i

    a = np.zeros(4, np.int32)
    tilelang.compile(main, target="emulate")(a)
    np.testing.assert_array_equal(a, range(4))


@pytest.mark.parametrize("target", ["cpu", "emulate"])
def test_a_vector_as_an_index_names_an_element_for_each_lane(target):
    @T.prim_func
    def main(A: T.Tensor((16,), "float32"), B: T.Tensor((4, 4), "float32")):
        with T.Kernel(1, threads=1):
            for t in T.serial(4):
                B[t, T.Ramp(0, 1, 4)] = A[T.Ramp(t + 1, 2, 4)] * 2.0
            B[1, T.Ramp(1, 1, 2)] = 7.0

    a, b = np.arange(16, dtype=np.float32), np.zeros((4, 4), np.float32)
    tilelang.compile(main, target=target)(a, b)
    want = 2 * a[np.arange(4)[:, None] + 1 + 2 * np.arange(4)]
    want[1, 1:3] = 7
    np.testing.assert_array_equal(b, want)


@pytest.mark.parametrize("target", ["cpu", "emulate", "simulate:sm_90a"])
def test_a_lane_of_an_index_that_turns_out_negative_counts_from_the_end(target):
    n = T.dynamic("n")

    @T.prim_func
    def main(
        A: T.Tensor((n,), "float32"), B: T.Tensor((4, 4), "float32"), C: T.Tensor((127,), "int32")
    ):
        with T.Kernel(1, threads=1):
            for t in T.serial(4):
                B[t, T.Ramp(0, 1, 4)] = A[T.Ramp(t - 2, 1, 4)]
                C[T.Ramp(t * 3 - 5, -1, 2)] = t + 1

    a, b, c = (
        np.arange(100, dtype=np.float32),
        np.zeros((4, 4), np.float32),
        np.zeros(127, np.int32),
    )
    tilelang.compile(main, target=target)(a, b, c)
    np.testing.assert_array_equal(b, a[np.arange(4)[:, None] - 2 + np.arange(4)])
    want = np.zeros(127, np.int32)
    for t in range(4):
        want[[t * 3 - 5, t * 3 - 6]] = t + 1
    np.testing.assert_array_equal(c, want)


# -- declarations ----------------------------------------------------------------------------------


def test_parameters_may_be_declared_in_the_body():
    @T.prim_func
    def main(A, n: T.int32):  # pyright: ignore[reportRedeclaration] - upstream's form
        A: T.Tensor((4, 6), "int32")
        B = T.empty((4, 6), "int32")
        with T.Kernel(4, threads=32) as b:
            for i in T.Parallel(6):
                B[b, i] = A[b, i] + n
        return B

    assert main.attrs["tilelang_out_idx"] == [-1]
    a = np.arange(24, dtype=np.int32).reshape(4, 6)
    np.testing.assert_array_equal(tilelang.compile(main, target="cpu")(a, 3), a + 3)
    with pytest.raises(TileError, match="parameter A of fn has no annotation"):
        defined("@T.prim_func\ndef fn(A):\n    with T.Kernel(1):\n        A[0] = 1\n")
    with pytest.raises(TileError, match="the parameter A of fn is never declared"):
        defined("@T.prim_func\ndef fn(A):\n    if False:\n        A: T.Tensor((4,), 'int32')\n")


def test_a_tensors_declaration_stands_for_a_tensor_of_its_shape():
    @tilelang.jit
    def copy(A, B):  # pyright: ignore[reportRedeclaration]
        M, N = T.const("M, N")
        A: T.Tensor((M, N), "float32")
        B: T.Tensor((M, N), "float32")
        with T.Kernel(1):
            T.copy(A, B)

    made = copy.get_tir(T.Tensor((24, 40)), T.Tensor((24, 40)))
    assert "A: Tensor((24, 40), float32)" in made.script()
