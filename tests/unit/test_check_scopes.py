"""What is refused for its dialect, its target or the use of a memory, and what is not."""

import pytest

import tilelang.ascend.language as TA
import tilelang.language as T
from tilelang.errors import Severity, TileError
from tilelang.passes.check import check_function, refuse
from tilelang.targets import CHIPS, target


def findings(kernel, on="emulate", kind=None):
    found = check_function(kernel.ir, target(on), chips=CHIPS)
    return [d for d in found if kind is None or d.kind == kind]


def errors(kernel, on="emulate"):
    return [d for d in findings(kernel, on) if d.severity is Severity.ERROR]


def messages(kernel, on="emulate"):
    return [d.message for d in errors(kernel, on)]


# -- dialects and targets --------------------------------------------------------------------------


def common():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((64,), "float32")
            T.copy(A, s)
            T.copy(s, A)

    return kernel


def mainline():
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float16")):
        with TA.Kernel(1):
            u = TA.alloc_shared((64, 64), "float16")
            l1 = TA.alloc_l1((64, 64), "float16")
            TA.copy(A, u)
            TA.copy(u, l1)

    return kernel


def adapter():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=1):
            u = T.alloc_ub((64,), "float32")
            T.copy(A, u)
            T.copy(u, A)

    return kernel


RUNS = {
    common: ("cpu", "emulate", "emulate:sm_80", "emulate:sm_90a", "emulate:sm_120a"),
    mainline: ("emulate", "emulate:ascend950"),
    adapter: ("emulate", "emulate:ascend910b"),
}
ALL = ("cpu", "emulate", *(f"emulate:{c.name}" for c in CHIPS if c.backend != "cpu"))


@pytest.mark.parametrize("on", ALL)
@pytest.mark.parametrize("make", list(RUNS))
def test_a_kernel_runs_only_where_its_dialect_does(make, on):
    refused = [d for d in errors(make(), on) if d.kind == "target"]
    runs = on in RUNS[make] or (make is common and on.startswith("emulate:sm_"))
    assert bool(refused) is not runs
    if not refused:
        assert errors(make(), on) == []


@pytest.mark.parametrize(
    ("on", "spelling"), [("cpu", "T.alloc_shared"), ("emulate:ascend950", "T.alloc_shared")]
)
def test_an_adapter_name_elsewhere_is_answered_with_that_dialects_spelling(on, spelling):
    (found,) = errors(adapter(), on)
    assert f"`{spelling}`" in found.help and "`T.alloc_ub`" in found.help
    assert "ascend910b" in found.help


def test_mainline_ascend_on_910b_says_that_it_is_for_the_950():
    (found,) = errors(mainline(), "emulate:ascend910b")
    assert "ascend950" in found.got and "T.alloc_L1" in found.help


def tmem(rows=128, columns=64):
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=128):
            t = T.alloc_tmem((rows, columns), "float32")
            f = T.alloc_fragment((rows, columns), "float32")
            T.copy(t, f)

    return kernel


@pytest.mark.parametrize("on", ["emulate:sm_80", "emulate:sm_90a", "emulate:sm_120a"])
def test_tensor_memory_is_refused_where_the_chip_has_none(on):
    (found,) = errors(tmem(), on)
    assert found.kind == "scope" and "has no Tensor Memory" in found.message
    assert "sm_100a, sm_103a" in found.expected


@pytest.mark.parametrize("on", ["cpu", "emulate", "emulate:sm_100a", "emulate:sm_103a"])
def test_tensor_memory_is_accepted_where_there_is_some(on):
    assert errors(tmem(), on) == []


def test_mbarriers_need_a_chip_with_them():
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=32):
            T.alloc_barrier(1)

    assert "mbarriers" in messages(kernel, "emulate:sm_89")[0]
    assert messages(kernel, "emulate:sm_90a") == []


@pytest.mark.parametrize("threads", [1024, (32, 32), 1])
def test_threads_up_to_the_limit(threads):
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=threads):
            T.alloc_shared((4,), "float32")

    assert messages(kernel, "emulate:sm_90a") == []


@pytest.mark.parametrize("threads", [1025, (32, 33), (2, 32, 32)])
def test_too_many_threads(threads):
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=threads):
            T.alloc_shared((4,), "float32")

    (found,) = errors(kernel, "emulate:sm_90a")
    assert "threads per block" in found.message and "1024" in found.expected
    assert messages(kernel, "cpu") == []  # no such limit there


def test_clusters_need_a_chip_with_them_and_whole_clusters():
    def make(blocks):
        @T.prim_func
        def kernel():
            with T.Kernel(blocks, threads=32, cluster_dims=2):
                T.alloc_shared((4,), "float32")

        return kernel

    assert messages(make(4), "emulate:sm_90a") == []
    assert "no clusters" in messages(make(4), "emulate:sm_89")[0]
    assert "whole clusters" in messages(make(5), "emulate:sm_90a")[0]


# -- Tensor Memory ---------------------------------------------------------------------------------


def test_elementwise_accesses_of_tensor_memory_are_refused_on_every_target():
    @T.prim_func
    def kernel(A: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, threads=128):
            t = T.alloc_tmem((128, 64), "float32")
            for i, j in T.Parallel(128, 64):
                t[i, j] = 1.0
            for i, j in T.Parallel(128, 64):
                A[i, j] = t[i, j]

    for on in ("cpu", "emulate", "emulate:sm_100a"):
        assert messages(kernel, on) == [
            "elementwise store into Tensor Memory",
            "elementwise load from Tensor Memory",
        ]


def test_tile_operations_without_an_instruction_for_tensor_memory_are_refused():
    @T.prim_func
    def kernel(A: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, threads=128):
            t = T.alloc_tmem((128, 64), "float32")
            m = T.alloc_fragment((128,), "float32")
            T.reduce_max(t, m)
            T.atomic_add(A, t)

    assert len(messages(kernel)) == 2
    assert all("Tensor Memory" in m for m in messages(kernel))


def test_tensor_memory_takes_part_in_products_copies_and_fills():
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((128, 64), "float16")
            p = T.alloc_tmem((128, 64), "float16")
            b = T.alloc_shared((64, 32), "float16")
            c = T.alloc_tmem((128, 32), "float32")
            f = T.alloc_fragment((128, 32), "float32")
            g = T.alloc_fragment((128, 64), "float16")
            T.clear(c)
            T.gemm(a, b, c)
            T.copy(g, p)
            T.gemm(p, b, c)
            T.copy(c, f)

    assert messages(kernel, "emulate:sm_100a") == []


@pytest.mark.parametrize("operand", ["A", "B"])
def test_operands_of_a_product_into_tensor_memory(operand):
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((64, 64), "float16")
            f = T.alloc_fragment((64, 64), "float16")
            c = T.alloc_tmem((64, 64), "float32")
            if operand == "A":
                T.gemm(f, s, c)
            else:
                T.gemm(s, f, c)

    (found,) = errors(kernel)
    assert found.message.startswith(f"operand {operand} of a product into Tensor Memory")


def test_a_product_of_tensor_memory_into_a_fragment_is_refused():
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=128):
            a = T.alloc_tmem((64, 64), "float16")
            s = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.gemm(a, s, c)

    assert messages(kernel) == ["tcgen05 accumulates in Tensor Memory"]


@pytest.mark.parametrize(
    ("src", "dst", "legal"),
    [
        ("tmem", "fragment", True),
        ("fragment", "tmem", True),
        ("shared", "tmem", True),
        ("tmem", "shared", False),
        ("tmem", "global", False),
        ("global", "tmem", False),
        ("tmem", "tmem", False),
    ],
)
def test_paths_of_tensor_memory(src, dst, legal):
    @T.prim_func
    def kernel(A: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, threads=128):
            ends = {
                "tmem": T.alloc_tmem((128, 64), "float32"),
                "fragment": T.alloc_fragment((128, 64), "float32"),
                "shared": T.alloc_shared((128, 64), "float32"),
                "global": A,
            }
            T.copy(ends[src], ends[dst])

    assert (messages(kernel) == []) is legal
    if not legal:
        assert "through a fragment" in errors(kernel)[0].help


# -- freeing ---------------------------------------------------------------------------------------


def test_freeing_once_after_the_last_use_is_legal():
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=128):
            t = T.alloc_tmem((128, 64), "float32")
            f = T.alloc_fragment((128, 64), "float32")
            T.copy(t, f)
            T.deallocate_tmem(t)
            for _ in T.serial(3):
                u = T.alloc_tmem((128, 64), "float32")
                T.copy(u, f)
                T.deallocate_tmem(u)

    assert messages(kernel) == []


def test_use_after_free_double_free_and_free_in_a_loop():
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=128):
            t = T.alloc_tmem((128, 64), "float32")
            u = T.alloc_tmem((128, 64), "float32")
            f = T.alloc_fragment((128, 64), "float32")
            T.deallocate_tmem(t)
            T.copy(t, f)
            T.deallocate_tmem(t)
            for _ in T.serial(3):
                T.deallocate_tmem(u)

    assert messages(kernel) == [
        "t is used after it was freed",
        "t is freed twice",
        "u is freed in every round of a loop",
    ]


def test_one_free_of_several_is_reached():
    @T.prim_func
    def kernel(N: T.Tensor((2,), "int32")):
        with T.Kernel(1, threads=128):
            t, u, v = (T.alloc_tmem((128, 64), "float32") for _ in range(3))
            f = T.alloc_fragment((128, 64), "float32")
            if N[0] > 0:
                T.deallocate_tmem(t)
            elif N[1] > 0:
                T.copy(t, f)
                T.deallocate_tmem(t)
            else:
                T.copy(t, f)
            if N[1] > 0:
                T.deallocate_tmem(u)
                T.thread_return()
            T.copy(u, f)
            T.deallocate_tmem(u)
            if N[0] > 1:
                T.deallocate_tmem(v)
            T.copy(v, f)

    assert messages(kernel) == ["v is used after it was freed"]


def test_a_free_that_a_while_repeats():
    @T.prim_func
    def kernel(N: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=128):
            t = T.alloc_tmem((128, 64), "float32")
            while N[0] > 0:
                T.deallocate_tmem(t)

    assert messages(kernel) == ["t is freed in every round of a loop"]


def test_only_tensor_memory_is_freed():
    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((128, 64), "float32")
            T.deallocate_tmem(s)

    assert messages(kernel) == ["T.deallocate_tmem of s, which is in shared memory"]


# -- Ascend ----------------------------------------------------------------------------------------


def ascend_copy(src, dst):
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float16")):
        with TA.Kernel(1):
            ends = {
                "ub": TA.alloc_shared((64, 64), "float16"),
                "ub2": TA.alloc_shared((64, 64), "float16"),
                "l1": TA.alloc_l1((64, 64), "float16"),
                "l0a": TA.alloc_l0a((64, 64), "float16"),
                "l0b": TA.alloc_l0b((64, 64), "float16"),
                "l0c": TA.alloc_l0c((64, 64), "float32"),
                "global": A,
            }
            TA.copy(ends[src], ends[dst])

    return kernel


# L1 -> UB and L0C -> L1 are paths of the hardware, but neither dialect has a copy for them.
LEGAL = {
    ("global", "ub"), ("ub", "global"), ("global", "l1"), ("l1", "l0a"), ("l1", "l0b"),
    ("l0c", "global"), ("l0c", "ub"), ("ub", "l1"), ("ub", "ub2"),
}  # fmt: skip
ENDS = ("global", "ub", "l1", "l0a", "l0b", "l0c")


@pytest.mark.parametrize(
    ("src", "dst"), [("ub", "ub2"), *((a, b) for a in ENDS for b in ENDS if a != b)]
)
def test_data_paths_of_the_950(src, dst):
    refused = [m for m in messages(ascend_copy(src, dst), "emulate:ascend950") if "path" in m]
    assert bool(refused) is ((src, dst) not in LEGAL)
    assert messages(ascend_copy(src, dst), "emulate") == []


def test_a_refused_path_names_the_way_round():
    (found,) = errors(ascend_copy("global", "l0a"), "emulate:ascend950")
    assert "through L1 buffer" in found.help and "from L1 buffer" in found.expected


def test_the_cube_units_buffers_have_no_elementwise_accesses():
    @T.prim_func
    def kernel():
        with TA.Kernel(1):
            c = TA.alloc_l0c((64, 64), "float32")
            u = TA.alloc_shared((64, 64), "float32")
            TA.clear(c)
            for i, j in T.Parallel(64, 64):
                u[i, j] = c[i, j]

    (found,) = errors(kernel)
    assert found.message == "elementwise load from L0C buffer"
    assert "T.alloc_shared((64, 64)" in found.help


def test_operands_of_the_cube_unit():
    def make(a, b, c):
        @T.prim_func
        def kernel():
            with TA.Kernel(1):
                of = {
                    "ub": TA.alloc_shared, "l1": TA.alloc_l1, "l0a": TA.alloc_l0a,
                    "l0b": TA.alloc_l0b, "l0c": TA.alloc_l0c,
                }  # fmt: skip
                x = of[a]((64, 64), "float16")
                y = of[b]((64, 64), "float16")
                z = of[c]((64, 64), "float32")
                TA.gemm(x, y, z, transpose_B=True)

        return kernel

    assert messages(make("l1", "l1", "l0c")) == []
    assert messages(make("l0a", "l0b", "l0c")) == []
    for wrong in (("ub", "l1", "l0c"), ("l0b", "l0a", "l0c"), ("l1", "l1", "ub")):
        with pytest.raises(TileError, match="L0A, L0B into L0C"):
            make(*wrong)


# -- element types of products ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "on", "legal"),
    [
        ("float8_e4m3fn", "emulate:sm_80", False),
        ("float8_e5m2", "emulate:sm_89", True),
        ("float8_e4m3fn", "emulate:sm_90a", True),
        ("float8_e4m3fn", "cpu", True),
        ("float8_e4m3fn", "emulate", True),
        ("float4_e2m1fn", "emulate:sm_90a", False),
        ("float4_e2m1fn", "emulate:sm_120a", True),
        ("float16", "emulate:sm_80", True),
        ("int8", "emulate:sm_80", True),
    ],
)
def test_products_of_narrow_floats_need_a_unit_for_them(dtype, on, legal):
    into = "int32" if dtype == "int8" else "float32"

    @T.prim_func
    def kernel():
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), dtype)
            c = T.alloc_fragment((64, 64), into)
            T.clear(c)
            T.gemm(a, a, c, transpose_B=True)

    found = findings(kernel, on, "dtype")
    assert (found == []) is legal
    assert all(dtype in d.label and "sm_120a" in d.expected for d in found)


# -- each thread's own memory ----------------------------------------------------------------------


def test_a_local_buffer_is_not_indexed_by_an_iteration():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            mine = T.alloc_local((64,), "float32")
            for i in T.Parallel(64):
                k = i + 0
                mine[k] = A[i]

    (found,) = errors(kernel)
    assert found.message == "mine is each thread's own, and is indexed by i"


def test_a_local_buffer_in_a_loop_of_each_thread_is_legal():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            mine = T.alloc_local((8,), "float32")
            for k in T.serial(8):
                mine[k] = 0.0
            for i in T.Parallel(64):
                for k in T.serial(8):
                    mine[k] = A[i]

    assert messages(kernel) == []


def test_refuse_raises_all_errors_at_once():
    with pytest.raises(TileError) as caught:
        refuse(tmem(200, 64).ir, target("emulate:sm_90a"), chips=CHIPS)
    assert len(caught.value.diagnostics) == 2
    refuse(tmem().ir, target("emulate:sm_100a"))
