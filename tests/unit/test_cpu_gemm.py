"""The micro-kernel of matrix products against NumPy: any shape, any stride, nothing outside."""

from __future__ import annotations

import ctypes
import dataclasses
import mmap
from collections.abc import Callable

import numpy as np
import pytest

from tilelang.dtypes import DType
from tilelang.targets.cpu import llvm
from tilelang.targets.cpu.gemm import gemm_tile, plan, split
from tilelang.targets.cpu.llvm import Host
from tilelang.targets.cpu.text import Code, Module, Value

FLOATS = ("float32", "float64")
INTEGERS = ("int32", "int64")


def narrow(bits: int = 128) -> Host:
    """This machine as if its vectors had `bits` bits, without masks and fused products."""
    at = llvm.host()
    features = at.features
    for name in ("avx", "fma", "avx512f"):
        features = features.replace(f"+{name},", f"-{name},")
    return dataclasses.replace(at, vector_bits=bits, features=features)


def wide() -> Host:
    """This machine as if it had 512-bit vectors, which LLVM then makes of smaller ones."""
    return dataclasses.replace(llvm.host(), vector_bits=512, registers=32)


class Product:
    """A compiled product of one shape."""

    def __init__(
        self,
        dtype: str,
        shape: tuple[int, int, int],
        strides: tuple[int, int, int, int],
        clear: bool | None = None,
        host: Host | None = None,
    ) -> None:
        module = Module()
        code = Code(module, "product", "void", ["ptr", "ptr", "ptr", "i1"])
        *pointers, given = code.args
        m, n, k = shape
        gemm_tile(
            code,
            *pointers,
            given if clear is None else Value("i1", str(clear).lower()),
            DType(dtype),
            m=m,
            n=n,
            k=k,
            a_row=strides[0],
            a_col=strides[1],
            b_row=strides[2],
            c_row=strides[3],
            host=host or llvm.host(),
        )
        code.ret()
        module.functions["product"] = code.text
        self.text = module.text
        self._library = llvm.Library(llvm.optimise(self.text).object())
        address = self._library.address("product")
        types = (ctypes.c_void_p,) * 3 + (ctypes.c_bool,)
        self.run: Callable[..., None] = ctypes.CFUNCTYPE(None, *types)(address)


def values(rng: np.random.Generator, dtype: str, count: int) -> np.ndarray:
    """Small whole numbers for floats, so that the order of sums does not matter; any integers."""
    if dtype in FLOATS:
        return rng.integers(-8, 9, count).astype(dtype)
    limit = np.iinfo(dtype)
    return rng.integers(limit.min, limit.max, count, dtype, endpoint=True)


def matrix(flat: np.ndarray, at: int, shape: tuple[int, int], strides: tuple[int, int]):
    steps = tuple(s * flat.itemsize for s in strides)
    return np.lib.stride_tricks.as_strided(flat[at:], shape, steps)


def extent(shape: tuple[int, int], strides: tuple[int, int]) -> int:
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def check(
    dtype: str,
    shape: tuple[int, int, int],
    *,
    strides: tuple[int, int, int, int] | None = None,
    clear: bool | None = None,
    host: Host | None = None,
) -> None:
    """Both ways of starting, against NumPy; all around C must stay as it was."""
    m, n, k = shape
    a_row, a_col, b_row, c_row = strides or (k, 1, n, n)
    product = Product(dtype, shape, (a_row, a_col, b_row, c_row), clear, host)
    rng = np.random.default_rng(m * 10007 + n * 101 + k)
    a = values(rng, dtype, extent((m, k), (a_row, a_col)) if m and k else 1)
    b = values(rng, dtype, extent((k, n), (b_row, 1)) if k and n else 1)
    with np.errstate(over="ignore"):
        right = matrix(a, 0, (m, k), (a_row, a_col)) @ matrix(b, 0, (k, n), (b_row, 1))
    around = 64
    for start in (True, False) if clear is None else (clear,):
        size = extent((m, n), (c_row, 1)) if m and n else 0
        c = values(rng, dtype, size + 2 * around)
        expected = c.copy()
        inside = matrix(expected, around, (m, n), (c_row, 1))
        inside[...] = right if start else inside + right
        at = c.ctypes.data + around * c.itemsize
        product.run(at, a.ctypes.data, b.ctypes.data, start)
        np.testing.assert_array_equal(c, expected)


SHAPES = [
    (1, 1, 1),
    (1, 256, 64),
    (7, 9, 5),
    (24, 40, 48),
    (100, 100, 100),
    (127, 127, 127),
    (128, 128, 32),
    (64, 1, 64),
    (13, 8, 300),
    (65, 17, 2),
]


@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_of_any_shape(dtype: str, shape: tuple[int, int, int]):
    check(dtype, shape)


@pytest.mark.parametrize("shape", [(7, 0, 5), (0, 7, 5), (7, 9, 0), (33, 20, 0)], ids=str)
def test_empty_extents(shape: tuple[int, int, int]):
    check("float32", shape)


@pytest.mark.parametrize("clear", (True, False))
def test_a_known_start_makes_one_way_only(clear: bool):
    check("float32", (20, 20, 20), clear=clear)
    check("int32", (20, 20, 600), clear=clear)
    strides = (20, 1, 20, 20)
    text = Product("float32", (20, 20, 20), strides, clear=clear).text
    assert "label %clear" not in text
    assert "label %clear" in Product("float32", (20, 20, 20), strides).text


@pytest.mark.parametrize("columns", range(1, 40))
def test_every_number_of_columns(columns: int):
    check("float32", (7, columns, 6), strides=(8, 1, columns + 3, columns + 5))


@pytest.mark.parametrize("rows", range(1, 30))
def test_every_number_of_rows(rows: int):
    check("float64", (rows, 11, 6), strides=(8, 1, 16, 12))


@pytest.mark.parametrize("dtype", ("float32", "int64"))
def test_transposed_and_spaced_operands(dtype: str):
    m, n, k = 50, 30, 40
    check(dtype, (m, n, k), strides=(1, m, n, n))
    check(dtype, (m, n, k), strides=(3, 200, n + 9, n + 70))
    check(dtype, (m, n, k), strides=(0, 1, 64, 64))  # all rows of A are one


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_right_operand_whose_rows_displace_one_another(dtype: str):
    check(dtype, (70, 37, 90), strides=(90, 1, 1024, 40))
    check(dtype, (70, 37, 700), strides=(1, 70, 2048, 40))


@pytest.mark.parametrize("host", (narrow(128), narrow(256), wide()), ids=("128", "256", "512"))
@pytest.mark.parametrize("dtype", (*FLOATS, "int32"))
def test_other_vectors(dtype: str, host: Host):
    check(dtype, (29, 47, 33), host=host)
    check(dtype, (40, 23, 70), strides=(1, 40, 1024, 23), host=host)


@pytest.mark.parametrize("k", (33, 305, 1000))
def test_k_in_pieces_of_a_small_cache(k: int):
    host = dataclasses.replace(llvm.host(), l1=1024)
    check("float32", (50, 20, k), host=host)
    check("float32", (50, 20, k), host=host, clear=True)


@pytest.mark.parametrize("m", (96, 97, 200, 301))
def test_rows_in_blocks_of_a_small_cache(m: int):
    host = dataclasses.replace(llvm.host(), l2=1024)
    check("float32", (m, 20, 40), host=host)
    check("int32", (m, 20, 40), strides=(1, m, 20, 30), host=host)


def test_a_product_larger_than_the_caches():
    check("float32", (600, 200, 700))


def protected(flat: np.ndarray) -> tuple[mmap.mmap, int]:
    """A copy of `flat` that ends where a page begins that cannot be touched, and its address."""
    page = mmap.PAGESIZE
    pages = -(-flat.nbytes // page)
    memory = mmap.mmap(-1, (pages + 1) * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(address + pages * page), page, 0) == 0
    start = address + pages * page - flat.nbytes
    ctypes.memmove(start, flat.ctypes.data, flat.nbytes)
    return memory, start


@pytest.mark.parametrize("host", (llvm.host(), narrow(), wide()), ids=("host", "128", "512"))
@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((7, 5, 3), (3, 1, 5, 5)),
        ((33, 31, 29), (1, 33, 31, 31)),
        ((40, 13, 70), (70, 1, 1024, 13)),
        ((1, 100, 9), (9, 1, 100, 100)),
    ],
    ids=str,
)
def test_nothing_behind_the_operands_is_touched(shape, strides, host: Host):
    m, n, k = shape
    product = Product("float32", shape, strides, host=host)
    rng = np.random.default_rng(1)
    a = values(rng, "float32", extent((m, k), strides[:2]))
    b = values(rng, "float32", extent((k, n), (strides[2], 1)))
    c = values(rng, "float32", extent((m, n), (strides[3], 1)))
    held = [protected(x) for x in (c, a, b)]
    product.run(*(at for _, at in held), False)
    expected = (
        c + (matrix(a, 0, (m, k), strides[:2]) @ matrix(b, 0, (k, n), (strides[2], 1))).ravel()
    )
    found = np.ctypeslib.as_array(ctypes.cast(held[0][1], ctypes.POINTER(ctypes.c_float)), c.shape)
    np.testing.assert_array_equal(found, expected)


def test_one_function_for_each_shape_and_strides():
    module = Module()
    code = Code(module, "f", "void", ["ptr", "ptr", "ptr", "i1"])
    for k in (8, 8, 9):
        c, a, b, clear = code.args
        size = {"m": 8, "n": 8, "k": k, "a_row": 9, "a_col": 1, "b_row": 8, "c_row": 8}
        gemm_tile(code, c, a, b, clear, DType("float32"), host=llvm.host(), **size)
    assert len(module.functions) == 2


@pytest.mark.parametrize("registers", (16, 32))
def test_a_plan_covers_the_product_within_the_registers(registers: int):
    for m in (1, 5, 6, 7, 64, 127):
        for vectors in (1, 2, 3, 7, 32):
            columns = plan(m, vectors, registers)
            assert sum(p.count * p.size for p, _ in columns) == vectors
            for p, rows in columns:
                assert sum(r.count * r.size for r in rows) == m
                assert all(r.size * p.size + min(r.size, p.size) < registers for r in rows)


def test_panels_are_of_nearly_one_size():
    assert [(p.start, p.count, p.size) for p in split(64, 6)] == [(0, 9, 6), (54, 2, 5)]
    assert [(p.start, p.count, p.size) for p in split(12, 6)] == [(0, 2, 6)]
    assert [(p.start, p.count, p.size) for p in split(2, 6)] == [(0, 1, 2)]
