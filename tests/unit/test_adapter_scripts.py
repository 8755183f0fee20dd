"""What scripts of the Ascend adapter tree rely on around their kernels."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from adapter_programs import AUTO
from tilelang import autotuner
from tilelang.errors import TileError
from tilelang.ir.ascend import VectorOp
from tilelang.ir.tile import Alloc
from tilelang.passes.ascend.explicit import explicit
from tilelang.passes.ascend.settings import Automatic, with_automatic
from tilelang.targets import target

CHIP = target("simulate:ascend910b")


def random(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype("f4")


def test_a_name_bound_in_a_loop_hides_the_outer_one_for_the_rest_of_the_round():
    @T.prim_func
    def kernel(A: T.Tensor((4, 64), "float"), B: T.Tensor((4, 64), "float")):
        with T.Kernel(1, is_npu=True) as (cid, vid):
            a = T.alloc_ub((64,), "float")
            if vid == 0:
                for i in T.serial(4):
                    cid = cid + i  # noqa: PLW2901
                    T.copy(A[cid, 0], a)
                    for i in T.Parallel(64):  # noqa: PLW2901
                        a[i] = a[i] + 1.0
                    T.copy(a, B[i, 0])

    a = random(4, 64)
    found = tilelang.compile(kernel, out_idx=[1], pass_configs=AUTO)(a)
    np.testing.assert_array_equal(found, a + np.float32(1))


def test_an_element_of_a_tensor_with_fewer_axes_stands_for_the_first_row_of_a_tile():
    @T.prim_func
    def kernel(
        X: T.Tensor((64,), "float16"), A: T.Tensor((32, 64), "float16"), Y: T.Tensor((32,), "float")
    ):
        with T.Kernel(1, is_npu=True) as (_cid, _vid):
            x = T.alloc_L1((16, 64), "float16")
            a = T.alloc_L1((32, 64), "float16")
            y = T.alloc_L0C((16, 32), "float")
            T.copy(X[0], x)
            T.copy(A[0, 0], a)
            T.gemm_v0(x, a, y, transpose_B=True, init=True)
            T.copy(y, Y[0])

    x, a = random(64).astype("f2"), random(32, 64).astype("f2")
    found = tilelang.compile(kernel, out_idx=[2], pass_configs=AUTO)(x, a)
    np.testing.assert_allclose(found, a.astype("f4") @ x.astype("f4"), rtol=1e-3, atol=1e-3)


def doubled(shape):
    @T.prim_func
    def kernel(A: T.Tensor(shape, "float"), B: T.Tensor((4, 1, 64), "float")):
        with T.Kernel(1, is_npu=True) as (_cid, vid):
            a = T.alloc_ub((4, 64), "float")
            if vid == 0:
                T.copy(A, a)
                T.tile.mul(a, a, 2.0)
                T.copy(a, B)

    return tilelang.compile(kernel, out_idx=[1], pass_configs=AUTO)


@pytest.mark.parametrize("given", [(4, 1, 64), (4, 64), (1, 4, 1, 64, 1), (256,)])
def test_an_array_of_another_shape_is_taken_for_its_storage(given):
    a = random(*given)
    np.testing.assert_array_equal(doubled((4, 1, 64))(a).ravel(), 2 * a.ravel())


def test_axes_of_one_element_may_be_too_many_beside_symbols():
    rows = T.dynamic("rows")
    kernel = doubled((rows, 1, 64))
    a = random(4, 1, 64)
    for given in (a, a[None], a[..., None]):
        np.testing.assert_array_equal(kernel(given), 2 * a)
    for wrong in (a[:, 0], a.reshape(4, 64, 1, 1)):
        with pytest.raises(TileError, match="dimensions"):
            kernel(wrong)


def test_source_without_a_form_for_the_chip_is_the_text_that_the_model_runs():
    @T.prim_func
    def kernel(A: T.Tensor((8, 64), "float"), B: T.Tensor((8,), "float")):
        with T.Kernel(1, is_npu=True) as (_cid, vid):
            a = T.alloc_ub((8, 64), "float")
            b = T.alloc_ub((8,), "float")
            if vid == 0:
                T.copy(A, a)
                T.reduce_max(a, b, dim=-1)
                T.tile.fill(b, B[0] + a[0, 0])
                T.copy(b, B)

    made = tilelang.compile(kernel, pass_configs=AUTO)
    text = made.get_kernel_source()
    assert "core." in text or "AscendC" in text


def test_the_function_under_the_decorator_says_its_target():
    @tilelang.jit(target="pto")
    def maker():
        raise AssertionError

    assert maker.__jit_impl__.target == maker.target == "pto"


@pytest.mark.parametrize("shared", [False, True])
def test_nests_go_row_by_row_where_their_temporaries_do_not_fit(shared):
    @T.prim_func
    def kernel(
        A: T.Tensor((128, 256), "float"),
        R: T.Tensor((256,), "float"),
        B: T.Tensor((128, 256), "float"),
    ):
        with T.Kernel(1, is_npu=True) as (_cid, vid):
            a = T.alloc_ub((128, 256), "float")
            r = T.alloc_ub((256,), "float")
            if vid == 0:
                T.copy(A, a)
                T.copy(R, r)
                for i, j in T.Parallel(128, 256):
                    a[i, j] = a[i, j] * r[j]
                T.copy(a, B)

    what = [w for w in Automatic if shared or w is not Automatic.MEMORY]
    fn = explicit(with_automatic(kernel.ir, what), CHIP)
    nodes = list(fn.walk())
    assert len([n for n in nodes if isinstance(n, Alloc)]) == 2
    assert [n.op for n in nodes if isinstance(n, VectorOp)] == ["mul"]
    a, r = random(128, 256), random(256)
    configs = {"tl.ascend_auto_sync": True, "tl.ascend_memory_planning": shared}
    found = tilelang.compile(kernel, out_idx=[2], pass_configs=configs)(a, r)
    np.testing.assert_array_equal(found, a * r)


def test_a_tile_of_one_element_fills_another():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float"), B: T.Tensor((64,), "float")):
        with T.Kernel(1, is_npu=True) as (_cid, vid):
            a = T.alloc_ub((64,), "float")
            total = T.alloc_ub((1,), "float")
            if vid == 0:
                T.copy(A, a)
                T.reduce_sum(a, total, dim=-1)
                T.tile.fill(a, total)
                T.copy(a, B)

    a = random(64)
    found = tilelang.compile(kernel, out_idx=[1], pass_configs=AUTO)(a)
    np.testing.assert_allclose(found, np.full(64, a.sum()), rtol=1e-5)


def test_configurations_may_take_the_arguments_of_the_kernel_as_two():
    def pairs(args, kwargs=None):
        return [{"rows": args[0] + len(kwargs or {})}]

    def plain(size, extra=0):
        return [{"rows": size + extra}]

    for configs in (pairs, plain):
        tuned = autotuner._listed(configs, (4, 5, 6) if configs is pairs else (4,), {})
        assert tuned == [{"rows": 4}]
    with pytest.raises(TypeError):
        autotuner._listed(plain, (1, 2, 3), {})


def test_a_slice_outside_of_a_tensor_may_stand_where_nothing_runs():
    @T.prim_func
    def kernel(A: T.Tensor((128,), "float"), B: T.Tensor((128,), "float")):
        with T.Kernel(1, is_npu=True) as (_cid, vid):
            a = T.alloc_ub((2, 128), "float")
            if vid == 0:
                T.copy(A[0:128], a[0, :])
                for i in T.serial(1):
                    if i < 0:
                        T.copy(A[(i + 1) * 128 : (i + 2) * 128], a[1, :])
                    if not i < 1:
                        T.copy(A[(i + 1) * 128 : (i + 2) * 128], a[1, :])
                T.copy(a[0, :], B)

    a = random(128)
    found = tilelang.compile(kernel, out_idx=[1], pass_configs=AUTO)(a)
    np.testing.assert_array_equal(found, a)


def test_of_an_array_with_more_rows_than_declared_the_first_are_used():
    @T.prim_func
    def kernel(A: T.Tensor((3, 40), "float"), B: T.Tensor((3, 40), "float")):
        with T.Kernel(1, is_npu=True) as (_cid, _vid):
            a = T.alloc_ub((3, 40), "float")
            T.copy(A, a)
            T.tile.add(a, a, a)
            T.copy(a, B)

    compiled = tilelang.compile(kernel, target="auto", pass_configs=AUTO)
    a, b = random(7, 40), np.zeros((5, 40), "f4")
    compiled(a, b)
    np.testing.assert_array_equal(b[:3], 2 * a[:3])
    assert not b[3:].any()
    with pytest.raises(TileError, match="shape mismatch"):
        compiled(random(7, 41), b)


def rows_of(declared):
    """A kernel that doubles `rows` rows of 64 elements, whatever sizes are declared."""

    @T.prim_func
    def kernel(A: T.Tensor(declared, "float"), B: T.Tensor(declared, "float"), rows: T.int32):
        with T.Kernel(1, is_npu=True) as (_cid, vid):
            a = T.alloc_ub((64,), "float")
            if vid == 0:
                for k in T.serial(rows):
                    if len(declared) == 1:
                        T.copy(A[k * 64], a)
                    else:
                        T.copy(A[k, 0], a)
                    T.tile.add(a, a, a)
                    if len(declared) == 1:
                        T.copy(a, B[k * 64])
                    else:
                        T.copy(a, B[k, 0])

    return tilelang.compile(kernel, pass_configs=AUTO)


@pytest.mark.parametrize("declared", [(1000, 64), (64000,)])
def test_what_is_behind_an_array_with_fewer_rows_than_declared_is_outside(declared):
    kernel = rows_of(declared)
    a = random(5, 64)
    for shape in ((5, 64), (5, 2, 32)) if len(declared) == 1 else ((5, 64),):
        b = np.zeros_like(a)
        kernel(a.reshape(shape), b.reshape(shape), 4)
        np.testing.assert_array_equal(b[:4], 2 * a[:4])
        assert not b[4:].any()
    kernel(b, b, 5)  # in place
    np.testing.assert_array_equal(b[:4], 4 * a[:4])
    with pytest.raises(TileError, match="leaves A") as refused:
        kernel(a, np.zeros_like(a), 6)
    assert refused.value.diagnostics[0].loc is not None
    assert tilelang.check(kernel, run_with=[a, b, 5]) == []
    with pytest.raises(TileError, match=r"shape mismatch|wrong number"):
        rows_of((1000, 64))(random(5, 65), random(5, 65), 5)


def test_an_array_for_what_the_call_makes_is_not_used_and_that_is_said():
    kernel = doubled((4, 1, 64))
    a, b = random(4, 64), np.zeros((4, 64), "f4")
    with pytest.warns(RuntimeWarning, match="given for B is not used: the call makes it"):
        found = kernel(a, b)
    np.testing.assert_array_equal(found[:, 0], 2 * a)
    assert not b.any()
    with pytest.raises(TileError, match="expected 1 inputs, but 3 are provided"):
        kernel(a, b, b)


def test_what_is_printed_outside_the_launch_is_printed_by_every_core(capfd):
    @T.prim_func
    def kernel(A: T.Tensor((24,), "int32"), B: T.Tensor((24,), "int32")):
        T.printf("before %d\n", 7)
        with T.Kernel(2, is_npu=True) as (cid, vid):
            a = T.alloc_ub((24,), "int32")
            with T.Scope("V"):
                T.copy(A, a)
                T.barrier_all()
                if vid == 0:
                    T.printf("inside %d\n", cid)
                T.copy(a, B)
        T.printf("after\n")
        T.dump_tensor(B, 5, 24, (24,))

    a, b = np.arange(24, dtype="i4"), np.zeros(24, "i4")
    tilelang.compile(kernel, target="auto")(a, b)
    np.testing.assert_array_equal(a, b)
    lines = capfd.readouterr().out
    assert lines.count("before") == lines.count("after") == 4
    assert lines.count("inside") == 2
    first, last = lines.index("before"), lines.rindex("after")
    assert first < lines.index("inside") < last
    assert "desc=5" in lines


def product_by_nests(load, settings=AUTO):
    """A product whose operands `load(A, x, a, i, j)` brings to L1, element by element."""

    @T.prim_func
    def kernel(A: T.Tensor((48, 32), "float16"), C: T.Tensor((48, 48), "float")):
        with T.Kernel(9, is_npu=True) as (cid, _vid):
            x, y = cid // 3, cid % 3
            a, b = T.alloc_L1((16, 32), "float16"), T.alloc_L1((16, 32), "float16")
            c = T.alloc_L0C((16, 16), "float")
            for i, j in T.Parallel(16, 32):
                load(A, x, a, i, j)
            for i, j in T.Parallel(16, 32):
                load(A, y, b, i, j)
            T.gemm_v0(a, b, c, transpose_B=True, init=True)
            for i, j in T.Parallel(16, 16):
                C[x * 16 + i, y * 16 + j] = c[i, j]

    return tilelang.compile(kernel, out_idx=[1], pass_configs=settings)


@T.macro
def row_by_row(A, x, a, i, j):
    a[i, j] = A[x * 16 + i, j]


@T.macro
def turned(A, x, a, i, j):
    a[i, j] = A[x * 16 + j // 2, i * 2]


@T.macro
def half_of_them(A, x, a, i, j):
    if j < 8:
        a[i, j] = A[x * 16 + i, j]


@T.macro
def computed(A, x, a, i, j):
    a[i, j] = A[x * 16 + i, j] * T.float16(2)


def test_a_nest_between_global_memory_and_the_cube_core_is_a_copy():
    a = np.random.default_rng(2).integers(-3, 4, (48, 32)).astype(np.float16)
    made = product_by_nests(row_by_row)
    np.testing.assert_array_equal(made(a), a.astype("f4") @ a.T.astype("f4"))
    assert tilelang.check(made, run_with=[a]) == []


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (turned, "moves elements of a, and is no copy"),
        (half_of_them, "moves elements of a, and is no copy"),
        (computed, "elementwise store into L1 buffer"),
    ],
)
def test_a_nest_that_is_no_copy_does_not_reach_the_cube_core(load, words):
    with pytest.raises(TileError, match=words) as refused:
        product_by_nests(load)
    assert refused.value.diagnostics[0].loc is not None
