"""Arithmetic on values of one shape with plain numbers as operands: what casts and maths are
written in.

What enters: `Value`s of any lanes, and Python numbers, which take the type of the value beside
them. What leaves: `Value`s. One method is one instruction, or a pattern that LLVM makes one of; no
method branches, so that loops around them are vectorised. No fast-math flag is set anywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilelang.targets.cpu.llvm import host
from tilelang.targets.cpu.text import Code, Value, element_of, int_bits, like, mangled, number

Operand = Value | int | float

_FLOATS = ("float", "double", "half")


@dataclass(frozen=True)
class Format:
    """An IEEE format: the places of its fraction, its exponent bias, and an exponent offset that
    makes `2**n` a normal number for every number `2**n`.
    """

    places: int
    bias: int
    spare: int


FORMATS = {"float": Format(23, 127, 32), "double": Format(52, 1023, 64)}


def format_of(x: Value) -> Format:
    """The format of a float value."""
    return FORMATS[element_of(x.type)]


def is_float(x: Value) -> bool:
    """Whether LLVM computes in the type of `x` as a float."""
    return element_of(x.type) in _FLOATS


@functools.cache
def has_fma() -> bool:
    """Whether the host multiplies and adds in one instruction."""
    at = host()
    return at.has("fma") or at.triple.startswith(("aarch64", "arm64"))


@functools.cache
def has_half() -> bool:
    """Whether the host converts between float16 and float32 by itself."""
    at = host()
    return at.has("f16c") or at.triple.startswith(("aarch64", "arm64"))


class Ops:
    """Instructions at the end of `code`."""

    def __init__(self, code: Code) -> None:
        self.code = code

    def const(self, beside: Value, x: Operand) -> Value:
        """`x` as an operand beside a value of its type."""
        return x if isinstance(x, Value) else number(beside.type, x)

    def _pair(self, a: Operand, b: Operand) -> tuple[Value, Value]:
        if isinstance(a, Value):
            return a, self.const(a, b)
        assert isinstance(b, Value)
        return number(b.type, a), b

    def _either(self, a: Operand, b: Operand, integer: str, floating: str) -> Value:
        x, y = self._pair(a, b)
        return self.code.op(floating if is_float(x) else integer, x, y)

    # Arithmetic ----------------------------------------------------------------------------------

    def add(self, a: Operand, b: Operand) -> Value:
        """a + b; integers wrap."""
        return self._either(a, b, "add", "fadd")

    def sub(self, a: Operand, b: Operand) -> Value:
        """a - b; integers wrap."""
        return self._either(a, b, "sub", "fsub")

    def mul(self, a: Operand, b: Operand) -> Value:
        """a * b; integers wrap."""
        return self._either(a, b, "mul", "fmul")

    def div(self, a: Operand, b: Operand) -> Value:
        """a / b of floats."""
        x, y = self._pair(a, b)
        return self.code.op("fdiv", x, y)

    def fma(self, a: Operand, b: Operand, c: Operand) -> Value:
        """a * b + c, rounded once if the host can, else twice. One of the three is a value."""
        beside = next(x for x in (a, b, c) if isinstance(x, Value))
        x, y, z = (self.const(beside, v) for v in (a, b, c))
        if has_fma():
            return self.code.intrinsic("fma", x, y, z)
        return self.add(self.mul(x, y), z)

    def poly(self, x: Value, coefficients: Sequence[float]) -> Value:
        """A polynomial by Horner's scheme; the highest power first."""
        total: Operand = coefficients[0]
        for c in coefficients[1:]:
            total = self.fma(total, x, c)
        return self.const(x, total)

    def neg(self, a: Value) -> Value:
        """-a; of a float the sign bit alone changes."""
        if is_float(a):
            return self.code.value(a.type, f"fneg {a.typed}")
        return self.sub(0, a)

    # Bits ----------------------------------------------------------------------------------------

    def _bits(self, name: str, a: Operand, b: Operand) -> Value:
        x, y = self._pair(a, b)
        return self.code.op(name, x, y)

    def shl(self, a: Operand, b: Operand) -> Value:
        """a << b, for 0 <= b < width."""
        return self._bits("shl", a, b)

    def lshr(self, a: Operand, b: Operand) -> Value:
        """a >> b with zeros from above, for 0 <= b < width."""
        return self._bits("lshr", a, b)

    def ashr(self, a: Operand, b: Operand) -> Value:
        """a >> b with the sign from above, for 0 <= b < width."""
        return self._bits("ashr", a, b)

    def and_(self, a: Operand, b: Operand) -> Value:
        """Bits of both."""
        return self._bits("and", a, b)

    def or_(self, a: Operand, b: Operand) -> Value:
        """Bits of either."""
        return self._bits("or", a, b)

    def xor(self, a: Operand, b: Operand) -> Value:
        """Bits of one of them."""
        return self._bits("xor", a, b)

    def not_(self, a: Value) -> Value:
        """All bits inverted."""
        return self.xor(a, 1 if element_of(a.type) == "i1" else -1)

    # Choice --------------------------------------------------------------------------------------

    def cmp(self, predicate: str, a: Operand, b: Operand) -> Value:
        """A comparison, by LLVM's name: eq, slt, ult, oeq, une, uno..."""
        x, y = self._pair(a, b)
        return self.code.compare(predicate, x, y)

    def is_nan(self, x: Value) -> Value:
        """Whether a float is NaN."""
        return self.cmp("uno", x, x)

    def select(self, cond: Value, t: Operand, f: Operand) -> Value:
        """t where cond holds, else f. One of the two is a value."""
        x, y = self._pair(t, f)
        return self.code.select(cond, x, y)

    def at_most(self, x: Value, limit: Operand) -> Value:
        """min(limit, x), and x where it is NaN; `limit` is no NaN."""
        return self.select(self.cmp("olt", limit, x), limit, x)

    def at_least(self, x: Value, limit: Operand) -> Value:
        """max(limit, x), and x where it is NaN; `limit` is no NaN."""
        return self.select(self.cmp("ogt", limit, x), limit, x)

    def smin(self, a: Operand, b: Operand) -> Value:
        """The smaller of signed integers."""
        return self.code.intrinsic("smin", *self._pair(a, b))

    def smax(self, a: Operand, b: Operand) -> Value:
        """The larger of signed integers."""
        return self.code.intrinsic("smax", *self._pair(a, b))

    def umin(self, a: Operand, b: Operand) -> Value:
        """The smaller of unsigned integers."""
        return self.code.intrinsic("umin", *self._pair(a, b))

    def umax(self, a: Operand, b: Operand) -> Value:
        """The larger of unsigned integers."""
        return self.code.intrinsic("umax", *self._pair(a, b))

    # Types ---------------------------------------------------------------------------------------

    def cast(self, name: str, x: Value, element: str) -> Value:
        """A conversion instruction, to `element` in each lane."""
        return self.code.cast(name, x, like(x.type, element))

    def double(self, x: Value) -> Value:
        """A float32 as float64."""
        return self.cast("fpext", x, "double")

    def single(self, x: Value) -> Value:
        """A float64 as float32, rounded to nearest."""
        return self.cast("fptrunc", x, "float")

    def bits(self, x: Value) -> Value:
        """The bits of a float as an integer."""
        return self.cast(
            "bitcast", x, {"float": "i32", "double": "i64", "half": "i16"}[element_of(x.type)]
        )

    def from_bits(self, x: Value) -> Value:
        """The float32 or float64 of these bits."""
        return self.cast("bitcast", x, {32: "float", 64: "double"}[int_bits(x.type)])

    def resize(self, x: Value, bits: int, *, signed: bool = False) -> Value:
        """An integer in another width: cut, or extended by its sign or by zeros."""
        have = int_bits(x.type)
        if have == bits:
            return x
        return self.cast("trunc" if have > bits else "sext" if signed else "zext", x, f"i{bits}")

    def abs(self, x: Value) -> Value:
        """The magnitude of a float."""
        return self.code.intrinsic("fabs", x)

    def copysign(self, x: Value, sign: Operand) -> Value:
        """The magnitude of `x` with the sign of `sign`.

        Of float64 without LLVM's intrinsic: of one that is rounded to float16 later, LLVM rounds
        the sign as well, by a function of compiler-rt that no process has.
        """
        other = self.const(x, sign)
        if element_of(x.type) != "double":
            return self.code.intrinsic("copysign", x, other)
        size = self.abs(x)
        return self.select(self.cmp("slt", self.bits(other), 0), self.neg(size), size)

    def sqrt(self, x: Value) -> Value:
        """The root, correctly rounded."""
        return self.code.intrinsic("sqrt", x)

    # Functions -----------------------------------------------------------------------------------

    def inlined(
        self, name: str, args: Sequence[Value], result: str, body: Callable[..., Value]
    ) -> Value:
        """`body(ops, *args)` as a function of the module, made once for each name and types."""
        full = ".".join([name, *(mangled(a.type) for a in args)])

        def define(code: Code, xs: Sequence[Value]) -> Value:
            return body(Ops(code), *xs)

        made = self.code.module.helper(full, [a.type for a in args], result, define)
        return self.code.call(made, result, args)
