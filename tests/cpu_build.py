"""Functions of the native CPU target over arrays: a loop around code made by the target's own
functions, compiled and loaded, for tests that compare it with NumPy.

What enters: a body for each function, from `Code` and operands to a result. What leaves: `Loops`,
whose calls take NumPy arrays in the storage of their dtypes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilelang.dtypes import DType
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


def build(loops: Sequence[Loop]) -> Loops:
    """Compile all of them as one module."""
    module = Module()
    for loop in loops:
        _define(module, loop)
    machine = llvm.optimise(module.text, vectorise=True)
    return Loops({loop.name: loop for loop in loops}, machine.text, llvm.Library(machine.object()))


def _define(module: Module, loop: Loop) -> None:
    pointers = ["ptr noalias"] * (len(loop.args) + 1)
    code = Code(module, f'"{loop.name}"', "void", [*pointers, "i64"])
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

    def raw(self, name: str, arrays: Sequence[np.ndarray], out: np.ndarray) -> None:
        """Run on contiguous arrays, into `out`."""
        types: list[Any] = [ctypes.c_void_p] * (len(arrays) + 1)
        call = ctypes.CFUNCTYPE(None, *types, ctypes.c_int64)(self.library.address(name))
        call(*(a.ctypes.data for a in (*arrays, out)), out.size)

    def optimised(self, name: str) -> str:
        """The optimised text of one function."""
        start = next(
            self.text.index(line)
            for line in self.text.splitlines()
            if line.startswith("define") and (f'@"{name}"(' in line or f"@{name}(" in line)
        )
        return self.text[start : self.text.index("\n}", start)]
