"""Operations of `T.tile` that step through UB in repeats."""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileError

AUTO = {
    "tl.ascend_auto_sync": True,
    "tl.ascend_auto_cv_combine": True,
    "tl.ascend_memory_planning": True,
}
DTYPES = ("float16", "float32")


def random(shape, dtype):
    return np.random.default_rng(7).integers(-40, 40, shape).astype(dtype)


def run(op, sources, shape, dtype, *rest):
    """`op(dst, *sources, *rest)` on tiles of UB."""

    def body(*tensors):
        tiles = [T.alloc_ub(t.shape, t.dtype) for t in tensors]
        for tensor, tile in zip(tensors[:-1], tiles[:-1], strict=True):
            T.copy(tensor, tile)
        op(tiles[-1], *tiles[:-1], *rest)
        T.copy(tiles[-1], tensors[-1])

    if len(sources) == 1:

        @T.prim_func
        def kernel(A: T.Tensor(sources[0].shape, sources[0].dtype.name), C: T.Tensor(shape, dtype)):
            with T.Kernel(1, is_npu=True) as (_cid, _vid):
                body(A, C)

    else:

        @T.prim_func
        def kernel(
            A: T.Tensor(sources[0].shape, sources[0].dtype.name),
            B: T.Tensor(sources[1].shape, sources[1].dtype.name),
            C: T.Tensor(shape, dtype),
        ):
            with T.Kernel(1, is_npu=True) as (_cid, _vid):
                body(A, B, C)

    out = np.zeros(shape, dtype)
    tilelang.compile(kernel, target="auto", pass_configs=AUTO)(*sources, out)
    return out


@pytest.mark.parametrize("dtype", [*DTYPES, "int32"])
@pytest.mark.parametrize("repeats", [1, 5])
def test_brcb_fills_a_block_with_each_element(dtype, repeats):
    lanes = 32 // np.dtype(dtype).itemsize
    a = random((8 * repeats,), dtype)
    out = run(T.tile.brcb_experiment, [a], (8 * repeats, lanes), dtype, repeats, 1, 8)
    np.testing.assert_array_equal(out, np.repeat(a[:, None], lanes, 1))


@pytest.mark.parametrize("dtype", [*DTYPES, "int32"])
def test_brcb_takes_elements_of_a_row_of_a_matrix(dtype):
    lanes = 32 // np.dtype(dtype).itemsize
    a = random((4, 32), dtype)
    out = run(
        lambda c, x, _: T.tile.brcb_experiment(c, x[1, 16:24], 1, 1, 8), [a], (8, lanes), dtype, 0
    )
    np.testing.assert_array_equal(out, np.repeat(a[1, 16:24, None], lanes, 1))


@pytest.mark.parametrize("columns", [24, 40, 64])
@pytest.mark.parametrize(("name", "fn"), [("sub", np.subtract), ("mul", np.multiply)])
def test_rows_take_the_block_that_was_made_for_them(name, fn, columns):
    a, b = random((16, columns), "f4"), random((16, 8), "f4")
    op = getattr(T.tile, f"row_expand_{name}_experiment")
    out = run(op, [a, b], (16, columns), "float32")
    np.testing.assert_array_equal(out, fn(a, np.tile(b, (1, columns // 8))))


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_gatherb_moves_whole_blocks(dtype):
    lanes = 32 // np.dtype(dtype).itemsize
    a = np.arange(24 * lanes).astype(dtype)
    at = np.random.default_rng(3).integers(0, 24, 16)
    out = run(T.tile.gatherb, [a, (at * 32).astype("u4")], (16 * lanes,), dtype, 2, 1, 8)
    np.testing.assert_array_equal(out, a.reshape(24, lanes)[at].ravel())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("repeats", "part"), [(1, 1.0), (3, 1.0), (1, 0.5), (3, 0.5)])
@pytest.mark.parametrize("op", ["max", "min", "sum"])
def test_block_and_whole_reductions(dtype, repeats, part, op):
    lanes = 256 // np.dtype(dtype).itemsize
    taking = int(lanes * part)
    a = random((repeats * lanes,), dtype)
    used, far = a[: repeats * taking].reshape(repeats, taking), int(8 * part)
    blocks = used.reshape(-1, 32 // np.dtype(dtype).itemsize)
    out = run(
        getattr(T.tile, f"block_reduce_{op}"),
        [a],
        (len(blocks),),
        dtype,
        repeats,
        taking,
        1,
        1,
        far,
    )
    np.testing.assert_array_equal(out, getattr(blocks, op)(1))
    whole = getattr(T.tile, f"wholereduce{op}")
    values = getattr(used, op)(1)
    if op == "sum":
        np.testing.assert_array_equal(
            run(whole, [a], (repeats,), dtype, taking, repeats, 1, 1, far), values
        )
        return
    out = run(whole, [a], (2 * repeats,), dtype, taking, repeats, 1, 1, far)
    np.testing.assert_array_equal(out[::2], values)
    places = out.view(f"u{out.itemsize}")[1::2]
    np.testing.assert_array_equal(places, getattr(used, f"arg{op}")(1))
    only = run(whole, [a], (repeats,), dtype, taking, repeats, 1, 1, far, "ORDER_ONLY_VALUE")
    np.testing.assert_array_equal(only, values)


@pytest.mark.parametrize("n", [1, 40, 127])
def test_counted_sums_and_differences(n):
    a, b = random((128,), "f4"), random((128,), "f4")
    total = run(T.tile.reduce_sum_experiment, [a], (8,), "float32", n)
    assert total[0] == a[:n].sum()
    out = run(T.tile.sub_experiment, [a, b], (128,), "float32", n)
    np.testing.assert_array_equal(out[:n], a[:n] - b[:n])
    rows = run(T.tile.sum_experiment, [a], (8,), "float32", [2, 64, min(n, 60)])
    np.testing.assert_array_equal(rows[:2], a.reshape(2, 64)[:, : min(n, 60)].sum(1))


@pytest.mark.parametrize(
    ("strides", "words"),
    [
        ((1, 16), "T.tile.brcb_experiment with stride of repeats 16"),
        ((2, 8), "T.tile.brcb_experiment with stride of blocks 2"),
    ],
)
def test_strides_with_gaps_are_refused(strides, words):
    a = random((64,), "f4")
    with pytest.raises(TileError, match=words) as found:
        run(T.tile.brcb_experiment, [a], (64, 8), "float32", 2, *strides)
    assert "test_adapter_repeats.py" in str(found.value)


@pytest.mark.parametrize("by_block", [True, False])
@pytest.mark.parametrize(("across", "down"), [(1, 1), (2, 3), (3, 2)])
def test_bilinear_interpolation_adds_weighted_lines(by_block, across, down):
    lines = across * down
    a = random((40 * 16,), "f2")
    at = np.random.default_rng(5).integers(0, 40, 8 * lines)
    w = random((8 * lines,), "f2")

    @T.prim_func
    def kernel(
        A: T.Tensor((40 * 16,), "float16"),
        P: T.Tensor((8 * lines,), "uint32"),
        W: T.Tensor((8 * lines,), "float16"),
        C: T.Tensor((down * 160,), "float16"),
    ):
        with T.Kernel(1, is_npu=True) as (_cid, _vid):
            a_ub = T.alloc_ub((40 * 16,), "float16")
            p_ub = T.alloc_ub((8 * lines,), "uint32")
            w_ub = T.alloc_ub((8 * lines,), "float16")
            c_ub = T.alloc_ub((down * 160,), "float16")
            T.copy(A, a_ub)
            T.copy(P, p_ub)
            T.copy(W, w_ub)
            T.tile.fill(c_ub, 0)
            T.tile.bilinear_interpolation(
                c_ub, a_ub, p_ub, w_ub, 128, across, by_block, 1, 160, down
            )
            T.copy(c_ub, C)

    out = np.ones(down * 160, "f2")
    pointers = (at * 32).astype("u4")
    tilelang.compile(kernel, target="auto", pass_configs=AUTO)(a, pointers, w, out)
    blocks = a.reshape(40, 16)[at].reshape(down, across, 8, 16)
    factors = w.reshape(down, across, 8, 1) if by_block else w[:lines].reshape(down, across, 1, 1)
    products = blocks * factors
    wanted = products[:, 0]
    for k in range(1, across):
        wanted = wanted + products[:, k]
    found = out.reshape(down, 160)
    np.testing.assert_array_equal(found[:, :128], wanted.reshape(down, 128))
    assert not found[:, 128:].any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [32, 96])
def test_sort32_makes_pairs_of_eight_bytes(dtype, n):
    a = np.random.default_rng(2).permutation(n).astype(dtype)
    places = np.arange(n, dtype="u4") * 70000
    words = 8 // np.dtype(dtype).itemsize
    out = run(T.tile.sort32, [a, places], (words * n,), dtype)
    order = np.argsort(-a.reshape(-1, 32), 1) + 32 * np.arange(n // 32)[:, None]
    np.testing.assert_array_equal(out[::words], a[order.ravel()])
    np.testing.assert_array_equal(out.view("u4")[1::2], places[order.ravel()])


# ---- Masks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("repeats", "mask", "stride"), [(1, 24, 8), (3, 64, 8), (5, 9, 2), (4, 16, 3)]
)
def test_a_sum_of_the_first_elements_of_repeats(dtype, repeats, mask, stride):
    pitch = stride * 32 // np.dtype(dtype).itemsize
    if mask > pitch and repeats > 1:
        mask = pitch
    a = random((repeats, pitch), dtype)
    made = run(T.tile.reduce_sum_mask_experiment, [a], (8,), dtype, mask, repeats, stride)
    assert made[0] == a[:, :mask].sum()


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("mask", [0, 0xFF, 0xFFFF00FF, (1 << 64) - 1, 0x00FF00000000FF00])
@pytest.mark.parametrize(("repeats", "stride"), [(1, 8), (3, 8), (2, 9)])
def test_a_fill_of_the_elements_that_a_mask_names(dtype, mask, repeats, stride):
    a = random((repeats, stride * 8), dtype)

    def op(dst, src):
        T.copy(src, dst)
        T.tile.fill_experiment(dst, 77, [mask], repeats, 1, stride)

    wanted = a.copy()
    for lane in range(64):
        if mask >> lane & 1:
            wanted[:, lane] = 77
    np.testing.assert_array_equal(run(op, [a], a.shape, dtype), wanted)


@pytest.mark.parametrize(("by_count", "count"), [(True, 96), (True, 40), (False, 64)])
def test_elements_that_bits_name_packed(by_count, count):
    a = random((128,), "float32")
    bits = np.random.default_rng(3).integers(0, 1 << 32, 8, dtype=np.uint32)
    op = T.tile.gathermask_experiment
    mask = count if by_count else 0
    made = run(op, [a, bits], (128,), "float32", by_count, mask, [1, 1, 8, 1], 0)
    named = [k for k in range(count) if bits[k // 32] >> (k % 32) & 1]
    np.testing.assert_array_equal(made[: len(named)], a[named])


@pytest.mark.parametrize(
    ("op", "rest", "dtype", "words"),
    [
        (T.tile.reduce_sum_mask_experiment, (64, 2, 1), "float32", "64 elements begin 8 apart"),
        (lambda d, s: T.tile.fill_experiment(d, 1, [255], 1, 1, 8), (), "float16", "of float16"),
        (lambda d, s: T.tile.fill_experiment(d, 1, [255], 1, 2, 8), (), "float32", "blocks 2"),
        (
            lambda d, s: T.tile.fill_experiment(d, 1, [6], 1, 1, 8),
            (),
            "float32",
            "0x6 names .* 1 on",
        ),
        (
            lambda d, s: T.tile.gathermask_experiment(d, s, s, True, 8, [1, 2, 8, 1], 0),
            (),
            "float32",
            "in 2 repeats",
        ),
    ],
)
def test_masks_that_are_not_built_are_refused(op, rest, dtype, words):
    with pytest.raises(TileError, match=words):
        run(op, [random((128,), dtype)], (128,), dtype, *rest)


# ---- Sums of products of halves ------------------------------------------------------------------


def test_products_of_halves_are_added_to_floats_without_rounding():
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal((8, 64)).astype(np.float16) for _ in range(2))
    exact = a.astype("f4") * b.astype("f4")

    def products(dst, x, y):
        T.tile.fill(dst, 0.5)
        T.tile.mul_add_dst(dst, x, y)

    def scaled(dst, x):
        T.tile.fill(dst, 0.5)
        T.tile.axpy(dst, x, 0.1)  # the scalar is of the source's type

    half = np.float32(0.5)
    np.testing.assert_array_equal(run(products, [a, b], (8, 64), "float32"), half + exact)
    by = np.float32(np.float16(0.1))
    np.testing.assert_array_equal(run(scaled, [a], (8, 64), "float32"), half + by * a.astype("f4"))


def test_other_types_beside_each_other_are_refused():
    a = random((8, 64), "float32")
    for op in (lambda d, x: T.tile.axpy(d, x, 1.0), lambda d, x: T.tile.mul_add_dst(d, x, x)):
        with pytest.raises(TileError, match=r"source 0 of T.tile.* is float32, its destination"):
            run(op, [a], (8, 64), "float16")
