"""Allocations, launches, copies, products, reductions, views: what their arguments must fit."""

from typing import Any

import numpy as np
import pytest

import tilelang.language as T
from frontend_run import compiled, defined, script
from tilelang.errors import TileError, TileIndexError, TileTypeError, TileValueError


def launch(statements, threads="32", grid="1", **names):
    body = "\n".join("        " + line for line in statements.strip().splitlines())
    source = f"""
def fn(A: T.Tensor((40, 48), "float16"), B: T.Tensor((48,), "float32"), n: T.int32):
    with T.Kernel({grid}, threads={threads}) as index:
        S = T.alloc_shared((24, 40), "float16")
        F = T.alloc_fragment((24, 40), "float32")
        I = T.alloc_shared((24, 40), "int8")
        R = T.alloc_fragment((24,), "float32")
{body}
"""
    return defined(source, **names)


def refused(statement, cls: Any = TileValueError, **names):
    with pytest.raises(cls) as caught:
        script(launch(statement, **names))
    found = caught.value.diagnostics[0]
    assert found.loc is not None
    assert found.loc.function == "fn"
    return found


# -- launches --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threads", "want"),
    [("32", "(32,)"), ("(32,)", "(32,)"), ("[8, 4]", "(8, 4)"), ("(4, 4, 2)", "(4, 4, 2)"),
     ("T.int32(64)", "(64,)"), ("2 * 16", "(32,)")],
)  # fmt: skip
def test_threads(threads, want):
    assert f"threads={want}" in script(launch("T.clear(S)", threads=threads))


def test_threads_left_to_the_target():
    assert "threads=" not in script(launch("T.clear(S)", threads="None"))


@pytest.mark.parametrize(
    "threads", ["0", "-1", "n", "(32, 0)", "(1, 1, 1, 1)", "()", "1.5", "True"]
)
def test_wrong_threads(threads):
    with pytest.raises(TileValueError):
        script(launch("T.clear(S)", threads=threads))


@pytest.mark.parametrize("grid", ["-1", "1, 1, 1, 1", "1.5", "True", "None", "'a'", "S"])
def test_wrong_grids(grid):
    with pytest.raises((TileError, NameError, UnboundLocalError)):
        script(launch("T.clear(S)", grid=grid))


def test_a_launch_in_a_launch_is_refused():
    found = refused("with T.Kernel(1):\n    T.clear(S)")
    assert found.message == "T.Kernel inside another T.Kernel"


def test_what_can_be_asked_inside_a_launch():
    def fn(A: T.Tensor((16,), "int32")):
        with T.Kernel(2, 3, threads=(4, 2)) as (bx, by):
            A[0] = (
                T.get_thread_extent() + 10 * T.get_thread_extent(1) + 100 * T.get_thread_extent(2)
            )
            A[1] = T.get_block_extent() + 10 * T.get_block_extent(1) + 100 * T.get_block_extent(2)
            last = T.get_block_binding() == 1 and T.get_block_binding(1) == 2
            if last and T.get_thread_binding() == 3 and T.get_thread_binding(1) == 1:
                A[2] = bx * 10 + by

    a = np.zeros(16, np.int32)
    compiled(T.prim_func(fn))(a)
    assert a[:3].tolist() == [124, 132, 12]


def test_asking_outside_a_launch():
    def fn(A: T.Tensor((16,), "int32")):
        A[0] = T.get_thread_binding()

    with pytest.raises(RuntimeError, match=r"outside T\.Kernel"):
        script(fn)


def test_zero_blocks_are_no_launch():
    def fn(A: T.Tensor((16,), "int32"), n: T.int32):
        with T.Kernel(n, threads=1) as b:
            A[b] = 1

    kernel = compiled(T.prim_func(fn))
    for n in (0, 1, 5):
        a = np.zeros(16, np.int32)
        kernel(a, n)
        assert a.tolist() == [1] * n + [0] * (16 - n)


# -- allocations -----------------------------------------------------------------------------------


def test_shapes_of_allocations():
    text = script(launch("x = T.alloc_shared(8, 'int32')\ny = T.alloc_local([2, 3], T.int8)"))
    assert 'x = alloc((8,), int32, scope="shared.dyn")' in text
    assert 'y = alloc((2, 3), int8, scope="local")' in text
    text = script(launch("z = T.alloc_fragment((24 // 2, T.ceildiv(9, 4)), 'float32')"))
    assert 'z = alloc((12, 3), float32, scope="local.fragment")' in text


@pytest.mark.parametrize(
    ("shape", "message"),
    [("n", "not known when the kernel is compiled"), ("(4, n)", "not known"), ("(-1,)", "negative"),
     ("1.5", "float"), ("(4, 'x')", "str"), ("None", "None"), ("True", "bool"),
     ("(4, None)", "None")],
)  # fmt: skip
def test_wrong_shapes_of_allocations(shape, message):
    for function in ("alloc_shared", "alloc_fragment", "alloc_local"):
        found = refused(f"T.{function}({shape}, 'float32')")
        assert message in found.message
        assert f"T.{function}" in found.message


def test_wrong_types_of_allocations():
    assert "did you mean float16" in refused("T.alloc_shared((4,), 'floot16')").message
    refused("T.alloc_shared((4,), None)", TileTypeError)
    refused("T.alloc_shared((4,))", TileTypeError)


def test_allocations_outside_a_launch():
    def fn(A: T.Tensor((16,), "int32")):
        T.alloc_shared((4,), "int32")

    with pytest.raises(TileValueError, match=r"T\.alloc_shared is used outside a kernel launch"):
        script(fn)


def test_forms_of_alloc_var():
    text = script(
        launch(
            "a = T.alloc_var('int32')\nb = T.alloc_var('int32', 5)\n"
            "c = T.alloc_var('float16', init=1)\n"
            "d = T.alloc_var('int32', 'local.var')\ne = T.alloc_var('int32', 5, 'local.var')\n"
            "f = T.alloc_var('int64', init=b + 1)\ng = T.alloc_var('bool')"
        )
    )
    for piece in (
        'a = alloc((1,), int32, scope="local.var")\n',
        'b = alloc((1,), int32, scope="local.var", init=5)',
        'c = alloc((1,), float16, scope="local.var", init=float16(1.0))',
        'd = alloc((1,), int32, scope="local.var")',
        'e = alloc((1,), int32, scope="local.var", init=5)',
        'f = alloc((1,), int64, scope="local.var", init=cast(b[0] + 1, int64))',
        'g = alloc((1,), bool, scope="local.var")',
    ):
        assert piece in text


@pytest.mark.parametrize(
    "arguments", ["'int32', 1, init=2", "'int32', 1, 2", "'int32', 1, 'a', 2", "'int32', 'a', 'b'",
                  "'int32', scope=3", "'int32', init='x'", "'int32', init=S"],
)  # fmt: skip
def test_wrong_forms_of_alloc_var(arguments):
    refused(f"T.alloc_var({arguments})", TileTypeError)


@pytest.mark.parametrize("count", ["0", "-1", "[1, 0]", "n", "1.5"])
def test_wrong_arrival_counts(count):
    assert (
        "arrival count"
        in refused(f"T.alloc_barrier({count})", (TileValueError, TileTypeError)).message
    )


def test_barriers_have_one_element_per_count():
    text = script(launch("bars = T.alloc_barrier([32, 1])\none = T.alloc_barrier(128)"))
    assert "bars = alloc((2,), uint64" in text
    assert "arrive_counts=(32, 1)" in text
    assert "one = alloc((1,), uint64" in text


# -- copies ----------------------------------------------------------------------------------------


def test_elements_stand_for_tiles_that_begin_there():
    text = script(launch("T.copy(A[index, 3], S)\nT.copy(S, A[2, 4])\nT.copy(R, B[index])"))
    assert "copy(A[index : +24, 3 : +40], S)" in text.replace("S[0 : +24, 0 : +40]", "S")
    assert "A[2 : +24, 4 : +40])" in text
    assert "B[index : +24])" in text


def test_an_element_takes_the_last_axes():
    text = script(launch("T.copy(A[index, 3], R)\nT.copy(A[5, 0], A[6, 0])"))
    assert "copy(A[index : +1, 3 : +24], R" in text
    assert "A[6, 0] = A[5, 0]" in text  # from an element to an element is a store


def test_axes_of_one_do_not_count():
    script(launch("T.copy(S[3, :], B[0:40])\nT.copy(A[0:24, 7], R)\nT.copy(R, S[0:24, 2])"))


def test_a_shorter_source_repeats():
    script(launch("T.copy(S[0:1, :], F)\nT.copy(S[:, 0:1], F)"))
    refused("T.copy(S, F[0:1, :])")


@pytest.mark.parametrize(
    "arguments", ["S, R", "A, S", "S[0:3, :], S[0:4, :]", "B, R", "S[0:8, 0:8], S[0:4, 0:16]"]
)
def test_tiles_that_do_not_fit(arguments):
    found = refused(f"T.copy({arguments})")
    assert found.kind == "shape"
    assert found.expected
    assert found.got


def test_tiles_that_do_not_fit_at_an_element():
    found = refused("T.copy(S, B[0])")
    assert "does not fit the destination B, which has 1 axes" in found.message
    assert "out of bounds" in refused("T.copy(A[0:24, 0:40], S[1, 0])", TileIndexError).message


@pytest.mark.parametrize("thing", ["3", "None", "'S'", "n", "n + 1", "[S]", "A[0, 0] + 1"])
def test_copies_of_something_else(thing):
    assert refused(f"T.copy({thing}, S)", TileTypeError).message.startswith("the source of T.copy")
    assert refused(f"T.copy(S, {thing})", TileTypeError).message.startswith("the destination")


def test_hints_of_copies():
    text = script(launch("T.copy(S, F, coalesced_width=4, disable_tma=True)"))
    assert "coalesced_width" in text
    refused("T.copy(S, F, prefer_instruction='fast')")
    refused("T.copy(S, F, prefer_instruction='tma', disable_tma=True)")
    refused("T.copy(S, F, foo=1)", TileTypeError)


# -- fills -----------------------------------------------------------------------------------------


def test_fills():
    text = script(
        launch(
            "T.fill(S, 1)\nT.clear(F[0:3, :])\nT.fill(R, n)\nv = T.alloc_var('int32')\nT.fill(v, 4)"
        )
    )
    assert "value=float16(1.0)" in text
    assert "value=cast(n, float32)" in text
    refused("T.fill(S, 'a')", TileTypeError)
    refused("T.fill(S, S)", TileTypeError)
    refused("T.fill(3, 1)", TileTypeError)
    refused("T.fill(S, 1, annotations={'a': 1})")


# -- products --------------------------------------------------------------------------------------


def matrices(statement):
    return (
        "P = T.alloc_shared((16, 32), 'float16')\nQ = T.alloc_shared((32, 24), 'float16')\n"
        "C = T.alloc_fragment((16, 24), 'float32')\nQt = T.alloc_shared((24, 32), 'float16')\n"
        "Z = T.alloc_fragment((16, 24), 'int32')\nP8 = T.alloc_shared((16, 32), 'int8')\n"
        "Q8 = T.alloc_shared((32, 24), 'uint8')\nP3 = T.alloc_shared((2, 16, 32), 'float16')\n"
        "V = T.alloc_shared((32,), 'float16')\n" + statement
    )


@pytest.mark.parametrize(
    "call", ["P, Q, C", "P, Qt, C, transpose_B=True", "P, Qt, C, False, True", "P8, Q8, Z",
             "P3[1, :, :], Q, C", "P, Q, C, clear_accum=n == 0", "P[:, 0:16], Q[0:16, :], C",
             "Q, P, Ct, True, True"],
)  # fmt: skip
def test_products(call):
    script(launch(matrices("Ct = T.alloc_fragment((24, 16), 'float32')\n" + f"T.gemm({call})")))


@pytest.mark.parametrize(
    ("call", "axis"),
    [("P, Qt, C", "N"), ("P, Q, C, transpose_A=True", "M"), ("P[:, 0:16], Q, C", "K"),
     ("P, Q, C[0:8, :]", "M"), ("P, Q[:, 0:8], C", "N")],
)  # fmt: skip
def test_products_that_do_not_fit(call, axis):
    found = refused(matrices(f"T.gemm({call})"))
    assert f"T.gemm {axis} shape check failed" in found.message
    assert "A (" in found.label


def test_other_wrong_products():
    assert "has one axis" in refused(matrices("T.gemm(V, Q, C)")).message
    assert "is not one matrix" in refused(matrices("T.gemm(P3, Q, C)")).message
    assert "not known at compile time" in refused(matrices("T.gemm(P[0:n, :], Q, C)")).message
    for call in ("P, Q, Z", "P8, Q8, C", "P8, Q, C"):
        assert "T.gemm of" in refused(matrices(f"T.gemm({call})"), TileTypeError).message
    refused(matrices("T.gemm(P, Q)"), TileTypeError)
    refused(matrices("T.gemm(P, Q, C, k_pack=2)"), TileTypeError)
    refused(matrices("T.gemm(P, Q, 3)"), TileTypeError)


# -- reductions and scans --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call", ["F, R", "F, R, 1", "F, R, dim=-1", "F, R, 1, False", "F[:, 0:1], R"]
)
def test_reductions(call):
    script(launch(f"T.reduce_sum({call})"))


def test_reductions_keep_or_drop_the_axis():
    script(launch("K = T.alloc_fragment((24, 1), 'float32')\nT.reduce_max(F, K, dim=1)"))
    script(launch("K = T.alloc_fragment((1,), 'float32')\nT.reduce_max(R, K)"))
    script(launch("K = T.alloc_fragment((40,), 'float32')\nT.reduce_max(F, K, dim=0)"))
    script(launch("v = T.alloc_var('float32')\nT.reduce_max(R, v)"))


def test_wrong_reductions():
    for call in ("F, R, 0", "F, F", "F, R[0:8]", "S[0:8, :], R"):
        assert "the result of a reduction" in refused(f"T.reduce_sum({call})").message
    for dim in ("2", "-3", "None", "n", "True"):
        assert "axis" in refused(f"T.reduce_sum(F, R, dim={dim})").message
    assert "unknown reduction 'mean'" in refused("T.reduce(F, R, 'mean', 1, True)").message
    for name in ("bitand", "bitor", "bitxor"):
        found = refused(f"T.reduce_{name}(F, R)", TileTypeError)
        assert found.expected == "integer or bool elements"
    refused("T.reduce_sum(3, R)", TileTypeError)
    refused("T.reduce_sum(F, R, axis=1)", TileTypeError)


def test_nan_propagate():
    script(launch("T.reduce_max(F, R, nan_propagate=True)"))
    assert (
        "nan_propagate"
        in refused(
            "K = T.alloc_fragment((24,), 'int8')\nT.reduce_max(I, K, nan_propagate=True)"
        ).message
    )


def test_scans():
    script(launch("T.cumsum(F)\nT.cumsum(F, F, 1, True)\nT.cummax(S, S, dim=-1)"))
    assert "the result of T.cumsum" in refused("T.cumsum(F, R)").message
    assert "axis 2 of T.cummax" in refused("T.cummax(F, dim=2)").message


def test_transposes():
    script(launch("K = T.alloc_shared((40, 24), 'float16')\nT.transpose(S, K)"))
    assert "the result of T.transpose" in refused("T.transpose(S, S)").message
    assert "with one axis" in refused("T.transpose(R, R)").message


# -- views -----------------------------------------------------------------------------------------


def test_views():
    text = script(
        launch(
            "a = T.reshape(S, (960,))\nb = T.view(S, (12, 80))\nc = T.view(S, dtype='int16')\n"
            "d = T.view(S, dtype='int8')\ne = T.view(S, (24, 20), 'float32')\n"
            "f = T.reshape(a, [2, 480])"
        )
    )
    for piece in (
        "a = view((960,), float16",
        "b = view((12, 80), float16",
        "c = view((24, 40), int16",
        "d = view((24, 80), int8",
        "e = view((24, 20), float32",
        "f = view((2, 480), float16",
    ):
        assert piece in text


def test_a_view_shares_storage():
    def fn(B: T.Tensor((24,), "int32")):
        with T.Kernel(1, threads=1):
            S = T.alloc_shared((4, 6), "int32")
            flat = T.reshape(S, (24,))
            for i in range(24):
                flat[i] = i
            S[3, 5] = -1
            T.copy(flat, B)

    b = np.zeros(24, np.int32)
    compiled(T.prim_func(fn))(b)
    assert b.tolist() == [*range(23), -1]


def test_wrong_views():
    assert "with another size" in refused("T.view(S, (24, 41))").message
    assert "with another size" in refused("T.reshape(S, (961,))").message
    assert "with another size" in refused("T.view(S, (24, 40), 'float32')").message
    assert (
        "does not hold whole elements"
        in refused("K = T.alloc_shared((3, 3), 'int8')\nT.view(K, dtype='int16')").message
    )
    refused("T.view(S, dtype='floot')")
    for thing in ("3", "S[0:2, :]", "S[0, 0]"):
        assert refused(f"T.view({thing}, (4,))").expected == "a buffer"


# -- loops -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "loop", ["T.serial(1.5)", "T.serial(0, 4, 0)", "T.Parallel()",
             "T.Parallel('a')", "T.serial(None)", "T.Pipelined(4, num_stages=-1)",
             "T.Pipelined(4, num_stages=True)", "T.Pipelined(4, order=[0], stage=[0, 1])",
             "T.unroll(4, explicit=True, unroll_factor=2)",
             "range(0.5)", "T.serial(S)"],
)  # fmt: skip
def test_wrong_loops(loop):
    found = refused(f"for i in {loop}:\n    T.clear(S)", TileError)
    assert found.kind in ("shape", "value", "option")


def test_parallel_outside_a_launch():
    def fn(A: T.Tensor((4,), "int32")):
        for i in T.Parallel(4):
            A[i] = 1

    with pytest.raises(TileError, match=r"T\.Parallel outside T\.Kernel"):
        script(fn)
