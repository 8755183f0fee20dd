"""Operators and bit casts of the native CPU target against the interpreter of the thread stage."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import thread_interpreter
from cpu_build import Loop, Loops, build, same, values
from tilelang.dtypes import DType
from tilelang.dtypes.storage import from_bits
from tilelang.errors import InternalError
from tilelang.ir.expr import BinaryOp, UnaryOp
from tilelang.targets.cpu.operators import binary, bitcast, unary
from tilelang.targets.cpu.text import Code, Module, number
from tilelang.targets.cpu.types import value_type

BOOL = DType("bool")
INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
LOGICAL = (BinaryOp.AND, BinaryOp.OR)
BITWISE = (BinaryOp.BITAND, BinaryOp.BITOR, BinaryOp.BITXOR)
SHIFTS = (BinaryOp.SHL, BinaryOp.SHR)
DIVISIONS = (BinaryOp.FLOORDIV, BinaryOp.FLOORMOD, BinaryOp.TRUNCDIV, BinaryOp.TRUNCMOD)


def operators(dtype: DType) -> list[BinaryOp]:
    """Those that the verifier lets a type have."""
    if dtype.is_bool:
        left_out = (BinaryOp.DIV, *SHIFTS, *DIVISIONS)
    elif dtype.is_float:
        left_out = (*LOGICAL, *BITWISE, *SHIFTS)
    else:
        left_out = (*LOGICAL, BinaryOp.DIV)
    return [op for op in BinaryOp if op not in left_out]


def pairs(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    """Special operands with each other, and random ones; a multiple of 8 of them."""
    rng = np.random.default_rng(3)
    if dtype.is_bool:
        special = np.array([False, True])
        several = special
    elif dtype.is_float:
        numbers = [0.0, 1.0, 2.5, 7.0, 1e-40, 1e38, 3.0, 0.1, math.inf, math.nan]
        special = np.array([*numbers, *(-x for x in numbers)], dtype.numpy)
        several = rng.standard_normal(200) * np.exp2(rng.integers(-20, 20, 200))
    else:
        low, high = int(dtype.min), int(dtype.max)
        edges = [low, low + 1, -1, 0, 1, 2, 3, 7, 8, dtype.bits - 1, dtype.bits, high - 1, high]
        special = np.array([e for e in edges if low <= e <= high], dtype.numpy)
        several = rng.integers(low, high, 200, dtype=dtype.numpy, endpoint=True)
        several[::2] >>= rng.integers(0, dtype.bits, 100).astype(dtype.numpy)
    several = several.astype(dtype.numpy)
    first, second = np.meshgrid(special, special)
    a = np.concatenate([first.ravel(), several, rng.permutation(several)])
    b = np.concatenate(
        [second.ravel(), rng.permutation(several), rng.choice(special, several.size)]
    )
    size = -(-a.size // 8) * 8
    return np.resize(a, size), np.resize(b, size)


def expected(op: BinaryOp, a: np.ndarray, b: np.ndarray, dtype: DType) -> np.ndarray:
    kind = BOOL if op.is_compare or op.is_logical else dtype
    plain = dtype.is_float
    with np.errstate(all="ignore"):
        found = [
            thread_interpreter.binary(op, *((x, y) if plain else (x.item(), y.item())), dtype)
            for x, y in zip(a, b, strict=True)
        ]
    return np.array(found, kind.numpy)


def agree(got: np.ndarray, want: np.ndarray, op: BinaryOp, dtype: DType) -> np.ndarray:
    """Equal bits; the sign of NaN, and of a zero that min and max choose, is nowhere promised."""
    if not dtype.is_float or got.dtype == np.bool_:
        return got == want
    ok = same(got, want, dtype) | (np.isnan(got) & np.isnan(want))
    return ok | (got == want) if op in (BinaryOp.MIN, BinaryOp.MAX) else ok


def report(
    wrong: np.ndarray, op: object, got: np.ndarray, want: np.ndarray, *xs: np.ndarray
) -> str:
    k = wrong[0]
    operands = ", ".join(repr(x[k]) for x in xs)
    return f"{op}({operands}) is {got[k]!r}, expected {want[k]!r}; {wrong.size} are wrong"


def binary_loop(op: BinaryOp, dtype: DType, lanes: int) -> Loop:
    kind = BOOL if op.is_compare or op.is_logical else dtype

    def body(code, a, b):
        return binary(code, op, a, b, dtype)

    return Loop(op.name, (dtype, dtype), kind, body, lanes)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("name", [*INTS, "float32", "float64", "bool"])
def test_operators(name, lanes):
    dtype = DType(name)
    a, b = pairs(dtype)
    loops = build([binary_loop(op, dtype, lanes) for op in operators(dtype)])
    for op in operators(dtype):
        got, want = loops(op.name, a, b), expected(op, a, b, dtype)
        wrong = np.flatnonzero(~agree(got, want, op, dtype))
        assert not wrong.size, report(wrong, op, got, want, a, b)


CONSTANTS = (-128, -8, -7, -1, 0, 1, 2, 3, 7, 8, 10, 64, 100, 127)


def constant_loops(dtype: DType) -> tuple[Loops, list[tuple[BinaryOp, int]]]:
    chosen = [
        (op, c)
        for op in (*DIVISIONS, *SHIFTS, BinaryOp.MIN, BinaryOp.MAX)
        for c in CONSTANTS
        if dtype.min <= c <= dtype.max
    ]

    def loop(op: BinaryOp, c: int) -> Loop:
        def body(code, a):
            return binary(code, op, a, number(a.type, c), dtype)

        return Loop(f"{op.name} {c}", (dtype,), dtype, body)

    return build([loop(*x) for x in chosen]), chosen


@pytest.mark.parametrize("name", ["int8", "uint8", "int32", "uint64"])
def test_a_constant_on_the_right(name):
    dtype = DType(name)
    a = np.unique(pairs(dtype)[0])
    loops, chosen = constant_loops(dtype)
    for op, c in chosen:
        b = np.full(a.shape, c, dtype.numpy)
        got, want = loops(f"{op.name} {c}", a), expected(op, a, b, dtype)
        wrong = np.flatnonzero(got != want)
        assert not wrong.size, report(wrong, f"{op} {c}", got, want, a)


def test_division_by_a_power_of_two_is_a_shift():
    loops, _ = constant_loops(DType("int32"))
    for name in ("FLOORDIV 8", "FLOORMOD 8", "FLOORDIV 1", "FLOORMOD 64"):
        text = loops.optimised(name)
        assert "div" not in text
        assert "rem" not in text
        assert "select" not in text


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_a_number_on_either_side_of_min_and_max(name):
    """A literal lets NaN through in one instruction; which one that is differs with its side."""
    dtype = DType(name)
    a = pairs(dtype)[0]
    chosen = [
        (op, c, left)
        for op in (BinaryOp.MIN, BinaryOp.MAX)
        for c in (0.0, -1.5, math.inf, -math.inf, math.nan)
        for left in (True, False)
    ]

    def loop(op: BinaryOp, c: float, left: bool) -> Loop:
        def body(code, x):
            y = number(x.type, c)
            return binary(code, op, *((y, x) if left else (x, y)), dtype)

        return Loop(f"{op} {c} {left}", (dtype,), dtype, body)

    loops = build([loop(*x) for x in chosen])
    for op, c, left in chosen:
        want = (np.fmin if op is BinaryOp.MIN else np.fmax)(a, np.array(c, dtype.numpy))
        got = loops(f"{op} {c} {left}", a)
        assert agree(got, want, op, dtype).all()


@pytest.mark.parametrize("lanes", [1, 8])
def test_unary_operators(lanes):
    chosen = [(UnaryOp.NEG, n) for n in (*INTS, "float32", "float64")]
    chosen += [(UnaryOp.BITNOT, n) for n in (*INTS, "bool")] + [(UnaryOp.NOT, "bool")]

    def loop(op: UnaryOp, name: str) -> Loop:
        dtype = DType(name)
        return Loop(
            f"{op} {name}", (dtype,), dtype, lambda code, a: unary(code, op, a, dtype), lanes
        )

    loops = build([loop(*x) for x in chosen])
    for op, name in chosen:
        dtype = DType(name)
        a = pairs(dtype)[0]
        plain = a if dtype.is_float else [x.item() for x in a]
        with np.errstate(all="ignore"):
            want = np.array([thread_interpreter.unary(op, x, dtype) for x in plain], dtype.numpy)
        assert same(loops(f"{op} {name}", a), want, dtype).all(), (op, name)


BITCASTS = (
    ("float32", "int32"),
    ("uint64", "float64"),
    ("float16", "uint16"),
    ("bfloat16", "float16"),
    ("float16x2", "uint32"),
    ("uint32", "bfloat16x2"),
    ("float32x2", "uint64"),
    ("uint8x4", "float32"),
    ("float64", "float8_e4m3fnx8"),
    ("bool", "uint8"),
    ("uint8", "bool"),
    ("boolx4", "int32"),
    ("uint16", "boolx2"),
    ("int4x2", "uint8"),
    ("uint8", "float4_e2m1fnx2"),
    ("float4_e2m1fnx8", "int32"),
    ("int2x4", "int4x2"),
    ("int64", "handle"),
    ("uint8", "float4_e2m1_unpacked"),
    ("float6_e2m3fn", "float6_e3m2fn"),
)


def test_bitcasts():
    """Memory has one element to a byte, so vectors of short types are made of single lanes."""
    rng = np.random.default_rng(4)

    def loop(src: str, dst: str) -> Loop:
        a, b = DType(src), DType(dst)

        def body(code, *lanes):
            x = lanes[0]
            if a.lanes > 1:
                x = code.splat(lanes[0], a.lanes)
                for k, lane in enumerate(lanes):
                    x = code.insert(x, lane, k)
            return bitcast(code, x, a, b)

        return Loop(f"{src} {dst}", (a.base,) * a.lanes, b, body)

    loops = build([loop(*x) for x in BITCASTS])
    for src, dst in BITCASTS:
        a, b = DType(src), DType(dst)
        words = rng.integers(0, 1 << 63, (50, a.lanes), dtype=np.uint64) * np.uint64(3)
        x = from_bits(words & np.uint64((1 << a.bits) - 1), a.base)
        if a.is_bool:
            x = words % 2 == 1
        for row in x:
            want = thread_interpreter.bitcast(row if a.lanes > 1 else row[0], a, b)
            got = np.zeros(b.lanes, b.base.numpy)
            operands = [np.ascontiguousarray(lane.reshape(1)) for lane in row]
            loops.raw(f"{src} {dst}", operands, got, count=1)
            assert same(got, np.atleast_1d(want), b.base).all(), (src, dst, row)


def test_what_a_type_does_not_have_is_an_internal_error():
    code = Code(Module(), "f", "void", [])
    for op, name in itertools.product((BinaryOp.ADD, BinaryOp.FLOORDIV), ("float16", "int4")):
        x = number(value_type(DType(name)), 1)
        with pytest.raises(InternalError, match="of " + name):
            binary(code, op, x, x, DType(name))
    with pytest.raises(InternalError, match="`-` of bfloat16"):
        unary(code, UnaryOp.NEG, number("i16", 1), DType("bfloat16"))


@pytest.mark.parametrize("lanes", [1, 16])
def test_all_pairs_of_bytes_divide(lanes):
    for name in ("int8", "uint8"):
        dtype = DType(name)
        every = values(dtype)
        a, b = (x.ravel().copy() for x in np.meshgrid(every, every))
        loops = build([binary_loop(op, dtype, lanes) for op in DIVISIONS])
        wide, by = a.astype(np.int64), b.astype(np.int64)
        safe = np.where(by == 0, 1, by)
        zero = by == 0
        floor = np.where(zero, 0, wide // safe)
        trunc = np.where(zero, 0, np.trunc(wide / safe).astype(np.int64))
        rest = np.where(zero, 0, wide % safe), np.where(zero, 0, wide - trunc * by)
        wanted = (floor, rest[0], trunc, rest[1])
        for op, want in zip(DIVISIONS, wanted, strict=True):
            assert (loops(op.name, a, b) == want.astype(dtype.numpy)).all(), (op, name)
