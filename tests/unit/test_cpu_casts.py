"""Casts of the native CPU target against `dtypes.cast`: all code words of narrow types, random and
special values of wide ones, every rounding.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cpu_build import Loop, build, same, values
from tilelang.dtypes import DType
from tilelang.dtypes.convert import cast
from tilelang.dtypes.table import ROWS
from tilelang.errors import InternalError
from tilelang.targets.cpu import encode
from tilelang.targets.cpu.casts import convert
from tilelang.targets.cpu.text import Code, Module, number

U32 = DType("uint32")
NAMES = tuple(ROWS)
MODES = ("", "rn", "rz", "rp", "rm", "rna", "rs")
Case = tuple[str, str, str, bool]


def exists(src: str, dst: str) -> bool:
    a, b = DType(src), DType(dst)
    return not (a.is_handle and b.is_float) and not (a.is_float and b.is_handle)


def cases(src: str) -> list[Case]:
    """All conversions from a type."""
    return [
        (src, dst, mode, saturate)
        for dst in NAMES
        if exists(src, dst)
        for mode in (MODES if DType(dst).is_float else ("", "rz"))
        for saturate in ((True, False) if DType(dst).is_narrow_float else (True,))
    ]


def loop(case: Case, lanes: int = 1) -> Loop:
    src, dst, mode, saturate = case
    a, b = DType(src), DType(dst)

    def body(code, x, *random):
        return convert(code, x, a, b, mode, saturate, *random)

    return Loop(str(case), (a, U32) if mode == "rs" else (a,), b, body, lanes)


def check(chosen: list[Case], lanes: int = 1) -> None:
    loops = build([loop(c, lanes) for c in chosen])
    for case in chosen:
        src, dst, mode, saturate = case
        x = values(DType(src))
        random = np.random.default_rng(2).integers(0, 1 << 32, x.size, dtype=np.uint32)
        extra = (random,) if mode == "rs" else ()
        got = loops(str(case), x, *extra)
        want = cast(x, DType(src), DType(dst), mode, saturate, *extra)
        wrong = np.flatnonzero(~same(got, want, DType(dst)))
        assert not wrong.size, (
            f"{case}: {wrong.size} wrong; {x[wrong[0]]!r} gives {got[wrong[0]]!r},"
            f" expected {want[wrong[0]]!r}"
        )


def test_every_format_and_rounding_from_float32():
    check(cases("float32"))


@pytest.mark.parametrize("src", ["float64", "int64", "uint64"])
def test_every_rounding_from_64_bits(src):
    narrow = ("float64", "float32", "tfloat32", "float16", "float8_e4m3fn", "float8_e8m0fnu")
    check([c for c in cases(src) if c[1] in narrow])


def test_all_code_words_of_every_type():
    """Each type goes to every third one, so that each is reached from many."""
    pairs = [(a, b) for i, a in enumerate(NAMES) for b in NAMES[i % 3 :: 3] if exists(a, b)]
    check([(a, b, "", True) for a, b in pairs])


def test_any_conversion_with_any_rounding():
    every = [c for src in NAMES for c in cases(src)]
    chosen = np.random.default_rng(5).choice(len(every), 150, replace=False)
    check([every[k] for k in chosen])


@pytest.mark.parametrize("lanes", [2, 8, 64])
def test_vectors(lanes):
    wide = ("float32", "float64", "int32", "uint8", "bool")
    narrow = ("float16", "bfloat16", "float8_e4m3fn", "float4_e2m1fn", "int4")
    pairs = [*itertools.product(wide, narrow), *itertools.product(narrow, wide)]
    pairs += [("float32", "int8"), ("float32", "int64"), ("float32", "uint64")]
    check([(a, b, "", True) for a, b in pairs[lanes % 3 :: 2]], lanes)
    check([("float32", b, m, False) for b in narrow[:3] for m in MODES[2:]], lanes)


def test_without_float16_in_hardware(monkeypatch):
    monkeypatch.setattr(encode, "has_half", lambda: False)
    floats = [n for n, row in ROWS.items() if row.kind == "float" and row.bits <= 16]
    check([(n, "float32", "", True) for n in floats])
    check([(n, "float16", m, True) for n in ("float32", "float64") for m in MODES[:-1]])


def test_one_random_number_rounds_all_lanes():
    f32, f16 = DType("float32"), DType("float16")

    def body(code, x):
        return convert(code, x, f32, f16, "rs", True, number("i32", 0x80000000 - (1 << 32)))

    x = values(f32)
    got = build([Loop("f", (f32,), f16, body, 8)])("f", x)
    want = cast(x, f32, f16, "rs", True, np.uint32(0x80000000))
    assert same(got, want, f16).all()


def test_bits_above_a_short_type_do_not_count():
    """A byte of memory may hold more than the bits of its type."""
    for name in ("float4_e2m1_unpacked", "float6_e3m2fn", "uint4", "int4"):
        src, dst = DType(name), DType("float32")
        used = src.row.code_bits if src.is_float else src.bits
        words = np.arange(256, dtype=np.uint8)
        loops = build(
            [Loop("f", (src,), dst, lambda code, x, s=src, d=dst: convert(code, x, s, d))]
        )
        clean = (words & ((1 << used) - 1)).view(src.numpy)
        assert same(loops("f", words.view(src.numpy)), cast(clean, src, dst), dst).all()


def test_casts_that_do_not_exist_are_internal_errors():
    code = Code(Module(), "f", "void", [])
    x = number("i64", 0)
    for src, dst, mode in (("handle", "float32", ""), ("int64", "float32", "rs")):
        with pytest.raises(InternalError, match=f"a cast of {src} to {dst}"):
            convert(code, x, DType(src), DType(dst), mode)


def test_a_loop_of_casts_is_vectorised():
    pairs = [("float32", "bfloat16"), ("bfloat16", "float32"), ("float32", "float8_e4m3fn")]
    pairs += [("float8_e4m3fn", "float32"), ("float32", "int32"), ("float16", "float32")]
    chosen = [(a, b, "", True) for a, b in pairs]
    loops = build([loop(c) for c in chosen], vectorise=True)
    for case in chosen:
        assert " x i32>" in loops.optimised(str(case)) or " x float>" in loops.optimised(str(case))
