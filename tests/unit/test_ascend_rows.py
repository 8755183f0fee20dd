"""Rows of Ascend cores: where fractals put elements, what vector operations compute, conversions.

The positions are worked out here from the axes that `machine.Format` names.
"""

import ml_dtypes
import numpy as np
import pytest

from tilelang.ir.ascend import VECTOR_OPS
from tilelang.scopes import Memory
from tilelang.targets.ascend.machine import MACHINES, Format
from tilelang.targets.ascend.rows import rows_of
from tilelang.targets.ascend.rows.cube import product
from tilelang.targets.ascend.rows.numbers import combine, rounded

ROWS = {name: rows_of(name) for name in MACHINES}
RNG = np.random.default_rng(7)


def strided(x, view):
    shape, strides = view
    return np.lib.stride_tricks.as_strided(x, shape, [s * x.itemsize for s in strides])


def run(chip, name, operands, **params):
    """A row on flat arrays, whose elements before and after are seen too."""
    row = ROWS[chip][name]
    views = row.views(params)
    assert row.meaning is not None
    row.meaning(**{k: strided(v, views[k]) for k, v in operands.items()}, **params)


def place(fmt, row, column, rows, columns, c0):
    """The place of an element in a compact tile, by the axes of the format."""
    up = lambda n, by: -(-n // by)  # noqa: E731 - a word for it
    if fmt is Format.ZN:
        return ((column // c0 * up(rows, 16) + row // 16) * 16 + row % 16) * c0 + column % c0
    if fmt is Format.NZ:
        return ((row // c0 * up(columns, 16) + column // 16) * 16 + column % 16) * c0 + row % c0
    if fmt is Format.ZZ:
        return ((row // 16 * up(columns, c0) + column // c0) * 16 + row % 16) * c0 + column % c0
    return ((column // 16 * up(rows, 16) + row // 16) * 16 + row % 16) * 16 + column % 16


SIZES = [(16, 16), (24, 40), (48, 17), (1, 32), (33, 96)]


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
@pytest.mark.parametrize(("m", "k"), SIZES)
def test_tiles_in_l1_are_zn(m, k, dtype):
    c0 = 32 // np.dtype(dtype).itemsize
    src = RNG.integers(1, 100, (m, k)).astype(dtype)
    high, wide = -(-m // 16) * 16, -(-k // c0) * c0
    dst = np.full(high * wide, 7, dtype)
    counts = {"rows": m, "columns": k, "tile_rows": m, "tile_columns": k}
    run(
        "ascend910b",
        "gm.l1.nz",
        {"src": src.reshape(-1), "dst": dst},
        **counts,
        src_pitch=k,
        nz_rows=high,
        c0=c0,
    )
    for i in range(m):
        for j in range(wide):
            expected = src[i, j] if j < k else 0
            assert dst[place(Format.ZN, i, j, m, k, c0)] == expected
    assert (dst.reshape(-1, high, c0)[:, m:] == 7).all()


@pytest.mark.parametrize("chip", sorted(MACHINES))
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 16), (24, 40, 48), (33, 17, 20), (1, 1, 1)])
def test_a_product_through_l0(chip, turned, m, n, k):
    machine, c0 = MACHINES[chip], 16
    a = RNG.integers(-4, 4, (m, k)).astype(np.float16)
    b = RNG.integers(-4, 4, (k, n)).astype(np.float16)
    sides = {}
    for side, x, outer, memory in (("a", a, m, Memory.L0A), ("b", b.T, n, Memory.L0B)):
        tile = x.T if turned == (side == "a") else x  # as it lies in L1
        high = -(-tile.shape[0] // 16) * 16
        l1 = np.zeros(high * -(-tile.shape[1] // c0) * c0, np.float16)
        for i in range(tile.shape[0]):
            for j in range(tile.shape[1]):
                l1[place(Format.ZN, i, j, high, tile.shape[1], c0)] = tile[i, j]
        l0 = np.zeros(-(-outer // 16) * 16 * -(-k // c0) * c0, np.float16)
        name = f"l1.l0{side}{'.t' if turned else ''}"
        run(chip, name, {"src": l1, "dst": l0}, outer=outer, inner=k, nz_rows=high, c0=c0)
        fmt = machine.formats[memory][0]
        for i in range(outer):
            for j in range(k):
                at = _l0_place(fmt, side, i, j, outer, k, c0)
                assert l0[at] == x[i, j]
        sides[side] = l0
    c = np.full(-(-m // 16) * 16 * -(-n // 16) * 16, 5, np.float32)
    sizes = {"m": m, "n": n, "k": k, "c_rows": -(-m // 16) * 16, "c0": c0}
    run(chip, "mad", {"c": c, **sides}, init=True, hf32=0, **sizes)
    run(chip, "mad", {"c": c, **sides}, init=False, hf32=0, **sizes)
    expected = 2 * (a.astype(np.float32) @ b.astype(np.float32))
    found = [[c[place(Format.L0C, i, j, m, n, 16)] for j in range(n)] for i in range(m)]
    assert (np.array(found) == expected).all()


def _l0_place(fmt, side, outer, inner, outers, inners, c0):
    """The place of an element of A (m, k), or of B (k, n) given as (n, k)."""
    if side == "b" and fmt is Format.NZ:
        return place(fmt, inner, outer, inners, outers, c0)
    return place(fmt, outer, inner, outers, inners, c0)


@pytest.mark.parametrize("op", sorted(VECTOR_OPS))
def test_every_vector_operation_has_a_row(op):
    rows = ROWS["ascend910b"]
    special = {"createvecindex": "progression", "arith_progression": "progression"}
    special |= {"topk": "sort", "merge_sort": "merge_sort.2"}
    name = special.get(op, op.removeprefix("row_expand_"))
    assert f"v.{name}" in rows or f"v.{name}.s" in rows


def test_integers_multiply_exactly():
    a = RNG.integers(-128, 128, (8, 4096)).astype(np.int8)
    b = RNG.integers(-128, 128, (8, 4096)).astype(np.int8)
    assert (product(a, b) == a.astype(np.int64) @ b.T.astype(np.int64)).all()
    small = product(a[:, :512], b[:, :512])
    assert (small == a[:, :512].astype(np.int64) @ b[:, :512].T.astype(np.int64)).all()


def test_hf32_cuts_the_operands():
    x = np.array([[1 + 2.0**-13]], np.float32)
    assert product(x, np.ones((1, 1), np.float32), hf32=True) == 1.0
    assert product(x, np.ones((1, 1), np.float32)) == x


@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (7, 40), (24, 17)])
@pytest.mark.parametrize("relu", [False, True])
def test_a_drain_of_l0c(rows, columns, relu):
    high = -(-rows // 16) * 16
    c = RNG.standard_normal(high * -(-columns // 16) * 16).astype(np.float32)
    out = np.full((rows, columns + 3), 9, np.float16)
    run(
        "ascend910b",
        "l0c.gm",
        {"src": c, "dst": out.reshape(-1)},
        rows=rows,
        columns=columns,
        c_rows=high,
        dst_pitch=columns + 3,
        scale=1.0,
        relu=relu,
    )
    for i in range(rows):
        for j in range(columns):
            wanted = np.float16(c[place(Format.L0C, i, j, rows, columns, 16)])
            assert out[i, j] == (max(wanted, np.float16(0)) if relu else wanted)
    assert (out[:, columns:] == 9).all()


def test_a_drained_integer_is_scaled():
    c = np.arange(-128, 128, dtype=np.int32) * 100
    out = np.zeros(256, np.float16)
    sizes = {"rows": 16, "columns": 16, "c_rows": 16, "dst_pitch": 16}
    run("ascend910b", "l0c.gm", {"src": c, "dst": out}, **sizes, scale=1.0, relu=False)
    assert (out == c.astype(np.float16)).all()
    run("ascend910b", "l0c.gm", {"src": c, "dst": out}, **sizes, scale=0.25, relu=False)
    assert (out == (c * 0.25).astype(np.float16)).all()


def test_a_conversion_of_integers_to_halves_multiplies():
    c = np.arange(-128, 128, dtype=np.int32) * 100
    out, wide = np.zeros(256, np.float16), np.zeros(256, np.float32)
    sizes = {"rows": 1, "columns": 256, "src_pitch": 256, "dst_pitch": 256}
    modes = {"rounding": "CAST_RINT", "deq_scale": 0.5}
    run("ascend910b", "v.cast", {"src": c, "dst": out}, **sizes, **modes)
    assert (out == (c * 0.5).astype(np.float16)).all()
    run("ascend910b", "v.cast", {"src": c, "dst": wide}, **sizes, **modes)
    assert (wide == c).all()


REFERENCES = {
    "exp": np.exp,
    "ln": lambda x: np.log(np.abs(x)),
    "abs": np.abs,
    "neg": lambda x: -x,
    "reciprocal": lambda x: 1 / x,
    "sqrt": lambda x: np.sqrt(np.abs(x)),
    "rsqrt": lambda x: 1 / np.sqrt(np.abs(x)),
    "relu": lambda x: np.where(x > 0, x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "sin": np.sin,
    "cos": np.cos,
    "round": np.rint,
}
POSITIVE = {"ln", "sqrt", "rsqrt"}


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
@pytest.mark.parametrize("op", sorted(REFERENCES))
def test_functions_of_one_operand(op, dtype):
    storage = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = RNG.uniform(0.1, 4, (3, 40)).astype(storage)
    if op not in POSITIVE:
        x[1] = -x[1]
    out = np.zeros((3, 48), storage)
    sizes = {"rows": 3, "columns": 40, "dst_pitch": 48, "a_pitch": 40, "a_step": 1}
    run("ascend910b", f"v.{op}", {"dst": out.reshape(-1), "a": x.reshape(-1)}, **sizes)
    tolerance = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-6}[dtype]
    wanted = REFERENCES[op](x.astype(np.float64))
    np.testing.assert_allclose(out[:, :40].astype(np.float64), wanted, rtol=tolerance, atol=1e-6)
    assert (out[:, 40:] == 0).all()


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "max", "min"])
@pytest.mark.parametrize("scalar", [False, True])
def test_arithmetic_rounds_once(op, scalar):
    a, b = (RNG.uniform(0.5, 2, (4, 24)).astype(np.float16) for _ in range(2))
    fn = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
    fn |= {"max": np.maximum, "min": np.minimum}
    out = np.zeros(96, np.float16)
    sizes = {"rows": 4, "columns": 24, "dst_pitch": 24, "a_pitch": 24, "a_step": 1}
    if scalar:
        run("ascend910b", f"v.{op}.s", {"dst": out, "a": a.reshape(-1)}, b=b[0, 0], **sizes)
        wanted = fn[op](a.astype(np.float64), float(b[0, 0]))
    else:
        operands = {"dst": out, "a": a.reshape(-1), "b": b.reshape(-1)}
        run("ascend910b", f"v.{op}", operands, b_pitch=24, b_step=1, **sizes)
        wanted = fn[op](a.astype(np.float64), b.astype(np.float64))
    assert (out.reshape(4, 24) == wanted.astype(np.float16)).all()


@pytest.mark.parametrize("mode", ["EQ", "NE", "GT", "GE", "LT", "LE"])
def test_comparisons_give_bits_and_choices_take_them(mode):
    a, b = (RNG.integers(0, 3, 40).astype(np.float32) for _ in range(2))
    fn = {"EQ": np.equal, "NE": np.not_equal, "GT": np.greater, "GE": np.greater_equal}
    fn |= {"LT": np.less, "LE": np.less_equal}
    bits, out = np.full(5, 0xAA, np.uint8), np.zeros(40, np.float32)
    run("ascend910b", "v.compare", {"dst": bits, "a": a, "b": b}, count=40, mode=mode)
    truth = fn[mode](a, b)
    assert [bool(bits[i // 8] >> i % 8 & 1) for i in range(40)] == truth.tolist()
    imm = {"mode": "VSEL_TENSOR_TENSOR_MODE", "itemsize": 4}
    run("ascend910b", "v.select", {"dst": out, "mask": bits, "a": a, "b": b}, count=40, **imm)
    assert (out == np.where(truth, a, b)).all()


@pytest.mark.parametrize("op", ["sum", "max", "min", "absmax", "abssum"])
@pytest.mark.parametrize(("outer", "n", "inner"), [(5, 24, 1), (1, 7, 16), (3, 10, 8)])
def test_reductions(op, outer, n, inner):
    x = RNG.standard_normal((outer, n, inner)).astype(np.float32)
    out = np.full(outer * inner, 0.5, np.float32)
    sizes = {"outer": outer, "n": n, "inner": inner, "src_step": inner, "dst_pitch": inner}
    operands = {"src": x.reshape(-1), "dst": out}
    run("ascend910b", f"v.reduce_{op}.acc", operands, src_pitch=n * inner, **sizes)
    magnitudes = np.abs(x) if op.startswith("abs") else x
    fn, join = {
        "sum": (np.sum, np.add),
        "abssum": (np.sum, np.add),
        "max": (np.max, np.maximum),
        "absmax": (np.max, np.maximum),
        "min": (np.min, np.minimum),
    }[op]
    wanted = join(fn(magnitudes, axis=1), np.float32(0.5))
    np.testing.assert_allclose(out.reshape(outer, inner), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        ("CAST_RINT", [-2, -2, 0, 2, 2, 3]),
        ("CAST_FLOOR", [-3, -2, 0, 1, 2, 2]),
        ("CAST_CEIL", [-2, -1, 1, 2, 3, 3]),
        ("CAST_ROUND", [-3, -2, 1, 2, 3, 3]),
        ("CAST_TRUNC", [-2, -1, 0, 1, 2, 2]),
    ],
)
def test_rounding_modes_of_conversions(mode, wanted):
    x = np.array([-2.5, -1.5, 0.5, 1.5, 2.5, 2.75], np.float32)
    assert rounded(x, np.dtype(np.int32), mode).tolist() == wanted
    assert rounded(x, np.dtype(np.int16), mode).tolist() == wanted


def test_conversions_saturate_and_widen_exactly():
    big = np.array([1e9, -1e9, np.nan], np.float32)
    assert rounded(big, np.dtype(np.int16), "CAST_RINT").tolist() == [32767, -32768, 0]
    half = np.array([1.5, -0.25], np.float16)
    assert (rounded(half, np.dtype(np.float32), "CAST_NONE") == half.astype(np.float32)).all()
    odd = rounded(np.array([1 + 2.0**-12], np.float32), np.dtype(np.float16), "CAST_ODD")
    assert odd.view(np.uint16)[0] & 1


def test_stores_combine_by_the_atomic_mode():
    for op, wanted in (("add", [4, 6]), ("max", [3, 4]), ("min", [1, 2]), ("", [3, 4])):
        there = np.array([1, 2], np.float32)
        combine(there, np.array([3, 4], np.float32), op)
        assert there.tolist() == wanted


def test_gathers_stay_inside():
    table = np.arange(8, dtype=np.float32)
    out, offsets = np.zeros(3, np.float32), np.array([28, 0, 4], np.uint32)
    operands = {"dst": out, "src": table, "offset": offsets}
    run("ascend910b", "v.gather", operands, base=0, count=3, src_count=8)
    assert out.tolist() == [7, 0, 1]
    offsets[0] = 32
    with pytest.raises(Exception, match="the offset 32 is outside the 32 bytes of the source"):
        run("ascend910b", "v.gather", operands, base=0, count=3, src_count=8)


def test_sorting():
    keys = np.array([3, 1, 2, 5, 4, *([-9] * 27)], np.float32)
    pairs = np.zeros(64, np.float32)
    run("ascend910b", "v.sort", {"dst": pairs, "src": keys}, n=5, count=32, dst_count=64)
    assert pairs[:10].tolist() == [5, 3, 4, 4, 3, 0, 2, 2, 1, 1]
    other, merged = np.array([9, 0, 0, 1], np.float32), np.zeros(8, np.float32)
    run(
        "ascend910b",
        "v.merge_sort.2",
        {"dst": merged, "a": pairs[:4].copy(), "b": other},
        dst_count=8,
        a_count=4,
        b_count=4,
    )
    assert merged.tolist() == [9, 0, 5, 3, 4, 4, 0, 1]
