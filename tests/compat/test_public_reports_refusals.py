"""Programs after public reports of internal errors: each is refused in the author's terms."""

import linecache

import ml_dtypes
import numpy as np
import pytest

import tilelang
import tilelang.language as T
from frontend_run import defined
from report_run import refused, run


@pytest.mark.parametrize("op", ["bitand", "bitor", "bitxor"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float8_e4m3fn"])
def test_bits_of_floats_are_not_reduced(op, dtype):  # 2570
    def build():
        @T.prim_func
        def main(A: T.Tensor((8, 32), dtype)):
            with T.Kernel(1, threads=32):
                tile = T.alloc_fragment((8, 32), dtype)
                out = T.alloc_fragment((8,), dtype)
                T.copy(A, tile)
                getattr(T, f"reduce_{op}")(tile, out, dim=1)

    refused(build, dtype, "integer", op)


def test_an_unknown_keyword_of_a_product_is_refused():  # 3035
    def build():
        @T.prim_func
        def main():
            with T.Kernel(1, threads=128):
                a = T.alloc_shared((32, 32), "float16")
                c = T.alloc_fragment((32, 32), "float32")
                T.clear(a)
                T.clear(c)
                T.gemm(a, a, c, k_pack=3)

    refused(build, "k_pack")


@pytest.mark.parametrize("make", ["alloc_shared", "alloc_fragment", "alloc_local"])
def test_a_tile_needs_a_constant_size(make):  # 3010
    n = T.dynamic("n")

    def build():
        @T.prim_func
        def main(A: T.Tensor((n,), "float32")):
            with T.Kernel(1, threads=32):
                tile = getattr(T, make)((n,), "float32")
                T.copy(A, tile)

    refused(build, "not known when the kernel is compiled")


def test_a_reducer_that_nothing_uses_does_no_harm():  # 3033
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=32):
            acc = T.alloc_reducer((8,), "int32", "sum")  # noqa: F841
            T.fill(A, 3)

    a = np.zeros(8, np.int32)
    run(main, a)
    assert (a == 3).all()


@pytest.mark.parametrize("count", [0, -1, 1 << 20])
def test_a_barrier_that_no_one_can_pass_is_refused(count):  # 3030
    def build():
        @T.prim_func
        def main():
            with T.Kernel(1, threads=32):
                T.alloc_barrier(count)

    refused(build, "arriv", str(count))


@pytest.mark.parametrize(
    ("a", "b", "c"),
    [
        ("float16", "int8", "float32"),
        ("int8", "int8", "float32"),
        ("float32", "float32", "int32"),
        ("bool", "bool", "int32"),
    ],
)
def test_a_product_of_types_that_have_none_names_them(a, b, c):  # 3004
    def build():
        @T.prim_func
        def main():
            with T.Kernel(1, threads=128):
                x = T.alloc_shared((64, 32), a)
                y = T.alloc_shared((32, 64), b)
                z = T.alloc_fragment((64, 64), c)
                T.clear(z)
                T.gemm(x, y, z)

    refused(build, a, b, c)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "float8_e4m3fn", "float32"])
@pytest.mark.parametrize("k", [1, 4, 8, 16, 24])
def test_a_short_inner_axis_of_a_product_is_exact(dtype, k):  # 3032
    accum = "int32" if dtype == "int8" else "float32"

    @T.prim_func
    def main(
        A: T.Tensor((32, k), dtype), B: T.Tensor((k, 40), dtype), C: T.Tensor((32, 40), accum)
    ):
        with T.Kernel(1, threads=64):
            a = T.alloc_shared((32, k), dtype)
            b = T.alloc_shared((k, 40), dtype)
            c = T.alloc_fragment((32, 40), accum)
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c)
            T.copy(c, C)

    rng = np.random.default_rng(k)
    x, y = rng.integers(-2, 3, (32, k)), rng.integers(-2, 3, (k, 40))
    c = np.zeros((32, 40), accum)
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    run(main, x.astype(kind), y.astype(kind), c)
    assert (c == x @ y).all()


@pytest.mark.parametrize("scan", ["cumsum", "cummax"])
@pytest.mark.parametrize("make", ["alloc_shared", "alloc_fragment"])
@pytest.mark.parametrize("threads", [1, 33, 96, 100])
def test_a_scan_with_any_number_of_threads(scan, make, threads):  # 2576
    @T.prim_func
    def main(A: T.Tensor((5, 37), "int32"), B: T.Tensor((5, 37), "int32")):
        with T.Kernel(1, threads=threads):
            tile = getattr(T, make)((5, 37), "int32")
            out = getattr(T, make)((5, 37), "int32")
            T.copy(A, tile)
            getattr(T, scan)(tile, out, dim=1, reverse=True)
            getattr(T, scan)(out, dim=0)
            T.copy(out, B)

    a = np.arange(185, dtype=np.int32).reshape(5, 37) * 7 % 23 - 9
    b = np.zeros((5, 37), np.int32)
    run(main, a, b)
    over = np.add.accumulate if scan == "cumsum" else np.maximum.accumulate
    assert (b == over(over(a[:, ::-1], axis=1)[:, ::-1], axis=0)).all()


def test_random_numbers_without_a_start_are_refused():  # 3034
    def build():
        @T.prim_func
        def main(A: T.Tensor((32,), "uint32")):
            with T.Kernel(1, threads=32):
                A[T.get_thread_binding()] = T.rng_rand()

        tilelang.compile(main, target="cpu")

    refused(build, "rng_init")


def test_a_barrier_that_the_chip_has_not_is_refused():  # 2344
    def build():
        @T.prim_func
        def main():
            with T.Kernel(1, threads=32):
                bar = T.alloc_barrier(32)
                T.mbarrier_arrive(bar)
                T.mbarrier_wait_parity(bar, 0)

        tilelang.compile(main, target="emulate:sm_75")

    refused(build, located=False)


def test_python_names_that_hide_builtins_or_are_unknown():  # 3022, 2529
    def shadowed():
        @T.prim_func
        def main(A: T.Tensor((8,), "int32"), max: T.int32):  # noqa: A002
            with T.Kernel(1, threads=8):
                for i in T.Parallel(8):
                    A[i] = max(A[i], 3)

    refused(shadowed, "call")

    def unknown():
        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=8):
                T.cpoy(A, A)

    refused(unknown, "T.copy")

    def member():
        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=8):
                A[0] = A.size

    refused(member, "size")


@pytest.mark.parametrize("axis", [2, -3, 1.0, None, "x"])
@pytest.mark.parametrize("op", ["reduce_sum", "cumsum"])
def test_an_axis_that_is_not_there_is_refused(axis, op):  # 3022
    def build():
        @T.prim_func
        def main():
            with T.Kernel(1, threads=32):
                tile = T.alloc_fragment((8, 8), "float32")
                out = T.alloc_fragment((8,), "float32")
                T.clear(tile)
                if op == "cumsum":
                    T.cumsum(tile, dim=axis)
                else:
                    T.reduce_sum(tile, out, dim=axis)

    refused(build, "axis", "-2 to 1")


@pytest.mark.parametrize("shape", [(9,), (8, 2), (1, 8), (7,), (1,), (32,)])
def test_a_result_of_another_shape_is_refused(shape):
    def build():
        @T.prim_func
        def main():
            with T.Kernel(1, threads=32):
                tile = T.alloc_fragment((8, 32), "float32")
                out = T.alloc_fragment(shape, "float32")
                T.clear(tile)
                T.reduce_max(tile, out, dim=1)

    refused(build, "(8,)", "(8, 1)")


@pytest.mark.parametrize("threads", [0, -32, 5000, 1.5, "64", True])
def test_too_many_or_no_threads_are_refused(threads):  # 2201
    def build():
        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=threads):
                A[0] = 1

        tilelang.compile(main, target="emulate:sm_90a")

    refused(build, "thread")


@pytest.mark.parametrize("value", [1.5, -1, True, "2", None])
def test_stages_are_a_whole_number(value):
    def build():
        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=32):
                for k in T.Pipelined(8, num_stages=value):
                    A[k] = k

    refused(build, "num_stages")


def test_too_much_shared_memory_says_how_much_and_what_there_is():  # 2201, 1252, 1698
    def build():
        @T.prim_func
        def main(A: T.Tensor((512, 512), "float32")):
            with T.Kernel(1, threads=128):
                tile = T.alloc_shared((512, 512), "float32")
                T.copy(A, tile)

        tilelang.compile(main, target="emulate:sm_90a")

    refused(build, "1048576", "232448", "tile")


@pytest.mark.parametrize("bad", ["rank", "dtype", "float_index", "string_index", "many", "few"])
def test_a_wrong_index_is_refused(bad):  # 3022
    def build():
        @T.prim_func
        def main(A: T.Tensor((8, 8), "float32")):
            with T.Kernel(1, threads=32):
                for i in T.Parallel(8):
                    if bad == "rank":
                        A[i] = 1.0
                    elif bad == "dtype":
                        A[i, A[0, 0]] = 1.0
                    elif bad == "float_index":
                        A[i, 1.5] = 1.0
                    elif bad == "string_index":
                        A[i, "x"] = 1.0
                    elif bad == "many":
                        A[i, 0, 0] = 1.0
                    else:
                        A[i, None] = 1.0

    refused(build, "A")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("T.copy(A, A, 5)", ("copy",)),
        ("T.copy(A)", ("dst",)),
        ("T.copy(3, A)", ("source",)),
        ("T.copy(A, src=A)", ("src",)),
        ("T.fill(A, A)", ("fill",)),
        ("T.fill(A, 'x')", ("fill",)),
        ("T.reduce_sum(A, 3, dim=0)", ("result",)),
        ("T.alloc_fragment((8,), 'float33')", ("float33",)),
        ("T.alloc_fragment((8,))", ("dtype",)),
        ("T.alloc_fragment((-8,), 'float32')", ("negative",)),
        ("T.alloc_shared('x', 'float32')", ("shape",)),
        ("T.gemm(A, A, A)", ("one axis",)),
        ("A[0] = T.exp('x')", ()),
        ("A[0] = T.cast(A, 'float32')", ()),
        ("A[0] = T.if_then_else(A, 1, 2)", ()),
        ("A[0] = A + 1", ("whole buffer",)),
        ("A.foo()", ("foo",)),
        ("T.atomic_add(A, 1.0, memory_order='weird')", ("relaxed",)),
        ("A[0] = T.max(A[0])", ("max",)),
        ("A[0] = T.reinterpret(A[0], 'int64')", ("64",)),
        ("T.Shuffle([A[0]], 5)", ("T.Shuffle",)),
        ("T.atomic_addx2(A[7], A[0])", ("out of bounds", "8")),
        ("T.atomic_addx4(A[0], A[5])", ("out of bounds", "8")),
        ("for i in T.Persistent(2.5, 1, 0): pass", ("T.Persistent",)),
        ("T.alloc_barrier(None)", ("None",)),
        ("T.annotate_restrict_buffers([1])", ("T.annotate_restrict_buffers",)),
        ("T.dynamic(3)", ("T.dynamic", "3")),
        ("T.bind(A[0], 'x')", ("unknown dtype", "x")),
        ("T.use_swizzle(A)", ("T.use_swizzle",)),
        ("T.use_swizzle(0)", ("panel_size", "1 to")),
        ("T.copy(A, A, coalesced_width=0)", ("coalesced_width", "1 to")),
        ("for i in T.Parallel(8, coalesced_width=2.5): A[i] = 1", ("coalesced_width", "2.5")),
        ("for i in T.unroll(4, unroll_factor=0): A[i] = 1", ("unroll_factor", "1 to")),
        ("T.reduce_sum(A, T.alloc_fragment((1,), 'float32'), batch=0)", ("batch", "1 to")),
        ("s = T.alloc_shared((8, 8), 'float16'); T.gemm(s, s, s, policy=7)", ("policy", "FullRow")),
        ("T.ptx_wait_group(-1)", ("T.ptx_wait_group", "0 to")),
        ("T.sync_threads(17, 32)", ("barrier_id", "0 to 15")),
        ("T.sync_threads(1, 33)", ("arrive_count", "a multiple of 32")),
        ("T.use_swizzle(2.5)", ("panel_size", "2.5")),
    ],
)
def test_wrong_arguments_are_refused_in_words(text, words):  # 3022
    source = (
        "def main(A: T.Tensor((8,), 'float32')):\n"
        "    with T.Kernel(1, threads=32):\n"
        f"        {text}\n"
    )
    file = "<kernel of a report>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope = {"T": T, "__name__": "report"}
    exec(compile(source, file, "exec", dont_inherit=True), scope)
    found = refused(lambda: T.prim_func(scope["main"]), *words, located=False)
    assert found.loc is not None
    assert (found.loc.file, found.loc.line) == (file, 3)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A[0] = 2**80", ("fits no type",)),
        ("A[0] = round(A[1])", ("T.round",)),
        ("a, b = divmod(A[1], 2)", ("a // b",)),
        ("A[0] = A[1] @ A[2]", ("T.gemm",)),
        ("A[0] = T.get_thread_binding(3)", ("0 to 2",)),
        ("A[0] = T.get_block_binding(1)", ("0 to 0",)),
        ("A[0] = A[1].size", ("size",)),
        ("A[0] = A[1](2)", ("called as a function",)),
    ],
)
def test_python_s_own_errors_do_not_reach_the_author(text, words):  # 3022, 2529
    source = f"""
def fn(A: T.Tensor((8,), "int32")):
    with T.Kernel(1, threads=32):
        {text}
"""
    found = refused(lambda: T.prim_func(defined(source)), *words, located=False)
    assert found.loc is not None
    assert found.loc.line == 4


@pytest.mark.parametrize("call", [T.loop_break, T.break_loop, T.continue_loop])
@pytest.mark.parametrize("around", ["nothing", "parallel"])
def test_the_end_of_a_loop_that_is_not_there(call, around):
    def make():
        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=8):
                if around == "parallel":
                    for i in T.Parallel(8):
                        if A[i] > 2:
                            call()
                else:
                    call()

    refused(make, "T.", "loop")


def test_a_macro_ends_the_loop_that_it_is_called_in():
    @T.macro
    def stop_at(i, k):
        if i == k:
            T.loop_break()

    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            for i in T.serial(8):
                stop_at(i, 3)
                for j in T.serial(8):
                    if j != i:
                        T.continue_loop()
                    A[j] = i + 1

    a = np.zeros(8, np.int32)
    run(main, a)
    assert a.tolist() == [1, 2, 3, 0, 0, 0, 0, 0]


@pytest.mark.parametrize("inside", ["variable", "element", "thread"])
def test_a_workspace_whose_size_the_launch_does_not_know(inside):
    def make():
        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=8):
                sizes = {
                    "variable": T.alloc_var("int32", init=3),
                    "element": A[0],
                    "thread": T.get_thread_binding(),
                }
                T.alloc_global((sizes[inside],), "float32")

    refused(make, "T.alloc_global", "launched")
