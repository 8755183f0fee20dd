"""Functions of the native CPU target over arrays: a loop around code made by the target's own
functions, compiled and loaded, for tests that compare it with NumPy.

What enters: a body for each function, from `Code` and operands to a result. What leaves: `Loops`,
whose calls take NumPy arrays in the storage of their dtypes.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilelang.dtypes import DType
from tilelang.dtypes.storage import to_bits
from tilelang.dtypes.table import ROWS
from tilelang.targets.cpu import llvm
from tilelang.targets.cpu.text import Code, Module, Value, lanes_of, number, vector
from tilelang.targets.cpu.types import element_type, value_type

Body = Callable[..., Value]


@dataclass(frozen=True)
class Loop:
    """One function over arrays: its name, element types, and how a result is made.

    With `lanes` the body gets vectors, and lengths must be multiples of it.
    """

    name: str
    args: tuple[DType, ...]
    result: DType
    body: Body
    lanes: int = 1


def build(loops: Sequence[Loop], *, vectorise: bool = False) -> Loops:
    """Compile all of them as one module; `vectorise` lets LLVM make the loops ones of vectors."""
    machine = optimised(loops, vectorise=vectorise)
    return Loops({loop.name: loop for loop in loops}, machine.text, llvm.Library(machine.object()))


def optimised(loops: Sequence[Loop], *, vectorise: bool = False) -> llvm.Machine:
    """All of them as one module, for those who read the code and do not run it."""
    module = Module()
    for loop in loops:
        _define(module, loop)
    return llvm.optimise(module.text, vectorise=vectorise)


def _symbol(name: str) -> str:
    """No name of the C library, which a loop may call."""
    return f"test {name}"


def _define(module: Module, loop: Loop) -> None:
    pointers = ["ptr noalias"] * (len(loop.args) + 1)
    code = Code(module, f'"{_symbol(loop.name)}"', "void", [*pointers, "i64"])
    *sources, target, count = code.args
    i, body, done = code.alloca("i64"), code.label(), code.label()
    head = code.label()
    code.store(number("i64", 0), i)
    code.place(head)
    at = code.load("i64", i)
    code.branch(code.compare("slt", at, count), body, done)
    code.place(body)
    operands = [
        _load(code, code.gep(p, element_type(d), at), d.with_lanes(loop.lanes))
        for p, d in zip(sources, loop.args, strict=True)
    ]
    _store(code, loop.body(code, *operands), code.gep(target, element_type(loop.result), at))
    code.store(code.op("add", at, number("i64", loop.lanes)), i)
    code.jump(head)
    code.place(done)
    code.ret()
    module.functions[loop.name] = code.text


def _load(code: Code, at: Value, dtype: DType) -> Value:
    if dtype.is_bool:
        found = code.load(vector("i8", dtype.lanes), at, align=1)
        return code.compare("ne", found, number(found.type, 0))
    return code.load(value_type(dtype), at, align=dtype.base.numpy.itemsize)


def _store(code: Code, x: Value, at: Value) -> None:
    if x.type.endswith(("i1", "i1>")):
        x = code.cast("zext", x, vector("i8", lanes_of(x.type)))
    code.store(x, at, align=1)


@dataclass(frozen=True)
class Loops:
    """Compiled functions, by name; `text` is the optimised module."""

    loops: dict[str, Loop]
    text: str
    library: llvm.Library

    def __call__(self, name: str, *arrays: np.ndarray) -> np.ndarray:
        """The results for arrays of one length."""
        loop = self.loops[name]
        held = [
            np.ascontiguousarray(a).astype(d.numpy, copy=False)
            for a, d in zip(arrays, loop.args, strict=True)
        ]
        out = np.zeros(held[0].shape, loop.result.numpy)
        assert out.size % loop.lanes == 0
        assert all(a.shape == out.shape for a in held)
        self.raw(name, held, out)
        return out

    def raw(
        self, name: str, arrays: Sequence[np.ndarray], out: np.ndarray, count: int | None = None
    ) -> None:
        """Run on contiguous arrays, into `out`; `count` iterations, not one for each element."""
        types: list[Any] = [ctypes.c_void_p] * (len(arrays) + 1)
        call = ctypes.CFUNCTYPE(None, *types, ctypes.c_int64)(self.library.address(_symbol(name)))
        call(*(a.ctypes.data for a in (*arrays, out)), out.size if count is None else count)

    def optimised(self, name: str) -> str:
        """The optimised text of one function."""
        start = next(
            self.text.index(line)
            for line in self.text.splitlines()
            if line.startswith("define") and f'@"{_symbol(name)}"(' in line
        )
        return self.text[start : self.text.index("\n}", start)]


def same(got: np.ndarray, want: np.ndarray, dtype: DType) -> np.ndarray:
    """Where two arrays hold the same bits, or a NaN of the same sign."""
    if not dtype.is_float:
        return got == want
    equal = to_bits(got, dtype) == to_bits(want, dtype)
    with np.errstate(all="ignore"):
        a, b = got.astype(np.float64), want.astype(np.float64)
    return equal | (np.isnan(a) & np.isnan(b) & (np.signbit(a) == np.signbit(b)))


# Values -------------------------------------------------------------------------------------------


def values(dtype: DType, count: int = 20_000) -> np.ndarray:
    """All values of a type of at most 16 bits; else random words, numbers of all sizes, and those
    beside which some narrower type rounds or ends. A multiple of 64 of them.
    """
    rng = np.random.default_rng(1)
    size = dtype.numpy.itemsize
    if size <= 2:
        used = dtype.row.code_bits if dtype.is_float else 1 if dtype.is_bool else dtype.bits
        words = np.arange(1 << used, dtype=f"u{size}")
        return np.resize(words, max(64, words.size)).view(dtype.numpy)
    words = rng.integers(0, (1 << (8 * size)) - 1, count, dtype=f"u{size}", endpoint=True)
    more = _floats(rng, count) if dtype.is_float else _integers(rng, count)
    with np.errstate(all="ignore"):
        found = np.concatenate([words.view(dtype.numpy), more.astype(dtype.numpy)])
    return np.resize(found, -(-found.size // 64) * 64)


def _floats(rng: np.random.Generator, count: int) -> np.ndarray:
    spread = np.ldexp(rng.standard_normal(count), rng.integers(-160, 160, count))
    around = rng.standard_normal(count) * np.exp2(rng.integers(-8, 40, count))
    return np.concatenate([_edges(), spread, around])


@functools.cache
def _edges() -> np.ndarray:
    """Numbers of the narrow formats, those half way between them, and the neighbours of these."""
    parts = [np.array([2.0**k for k in (-1074, -149, -126, 7, 8, 15, 16, 31, 32, 63, 64, 300)])]
    for row in ROWS.values():
        if row.kind == "float" and row.code_bits <= 16:
            step = 1 if row.code_bits <= 8 else 257
            parts.append(np.array([row.decode(w) for w in range(0, row.max_word + 1, step)]))
    some = np.unique(np.concatenate(parts))
    middle = (some[1:] + some[:-1]) / 2
    single = middle[np.abs(middle) < 3e38].astype(np.float32)
    around = [np.nextafter(middle, 0), np.nextafter(middle, np.inf)]
    around += [np.nextafter(single, 0.0), np.nextafter(single, np.float32(np.inf))]
    found = np.concatenate([some, middle, *around, [0.0, np.inf, np.nan, 3.4e38, 1e39]])
    return np.concatenate([found, -found])


def _integers(rng: np.random.Generator, count: int) -> np.ndarray:
    """64-bit words with any number of leading zeros or ones, and the neighbours of powers of 2."""
    spread = rng.integers(0, (1 << 64) - 1, count, dtype=np.uint64, endpoint=True)
    spread >>= rng.integers(0, 64, count, dtype=np.uint64)
    edges = [sign * ((1 << k) + d) for k in range(64) for d in (-1, 0, 1) for sign in (1, -1)]
    words = np.array([e & ((1 << 64) - 1) for e in edges], np.uint64)
    return np.concatenate([spread, np.uint64(0) - spread, words])
