"""Sets of integers given by bounds and a congruence, and what each operator makes of them.

What enters: an `Interval` for each operand, and the dtype the operation works in. What leaves: an
`Interval` that holds every value the operation can have. `None` is a bound that is not known, which
for a value of an integer dtype means the limit of the dtype.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from tilelang.dtypes import DType
from tilelang.ir.expr import BinaryOp, UnaryOp


@dataclass(frozen=True, slots=True)
class Interval:
    """The integers v with `lo <= v <= hi` and `v % modulus == residue`; None is no bound.

    `modulus` 0 stands for the one value `residue`, 1 for no congruence. Make one with `interval`,
    which moves the bounds to members of the set.
    """

    lo: int | None = None
    hi: int | None = None
    modulus: int = 1
    residue: int = 0

    @property
    def value(self) -> int | None:
        """The only member, None if there may be several."""
        return self.lo if self.lo is not None and self.lo == self.hi else None

    def within(self, low: int, high: int) -> bool:
        """Whether all values lie between two numbers."""
        return self.lo is not None and self.hi is not None and low <= self.lo and self.hi <= high

    def contains(self, v: int) -> bool:
        """Whether `v` is a member."""
        if (self.lo is not None and v < self.lo) or (self.hi is not None and v > self.hi):
            return False
        return v == self.residue if self.modulus == 0 else v % self.modulus == self.residue

    def divisible_by(self, k: int) -> bool:
        """Whether every member is a multiple of `k` (k > 0)."""
        return self.modulus % k == 0 and self.residue % k == 0

    def __str__(self) -> str:
        low = "-inf" if self.lo is None else str(self.lo)
        high = "inf" if self.hi is None else str(self.hi)
        steps = f" = {self.residue} mod {self.modulus}" if self.modulus > 1 else ""
        return f"[{low}, {high}]{steps}"


TOP = Interval()


def interval(lo: int | None, hi: int | None, modulus: int = 1, residue: int = 0) -> Interval:
    """The set, with bounds that belong to it. Bounds that cross (no member) give the one value
    `lo`.

    A set without members arises only for code that never runs, of which anything may be said.
    """
    modulus = abs(modulus)
    if modulus == 0:
        return Interval(residue, residue, 0, residue)
    residue %= modulus
    if lo is not None:
        lo += (residue - lo) % modulus
    if hi is not None:
        hi -= (hi - residue) % modulus
    if lo is not None and hi is not None and lo >= hi:
        return Interval(lo, lo, 0, lo)
    return Interval(lo, hi, modulus, residue)


def point(v: int) -> Interval:
    """The set of one value."""
    return Interval(v, v, 0, v)


@functools.cache
def limits(dtype: DType) -> tuple[int, int]:
    """The least and greatest value of an integer dtype or bool."""
    return int(dtype.min), int(dtype.max)


def span(a: Interval, dtype: DType) -> tuple[int, int]:
    """The bounds of `a`, those of the dtype where they are not known."""
    low, high = limits(dtype)
    return (low if a.lo is None else a.lo), (high if a.hi is None else a.hi)


def top(dtype: DType) -> Interval:
    """All values of a dtype: no bound known, but that an unsigned value is not negative."""
    if dtype.is_bool:
        return Interval(0, 1)
    return Interval(0, None) if dtype.is_uint else TOP


def union(a: Interval, b: Interval) -> Interval:
    """The least set that holds both."""
    lo = None if a.lo is None or b.lo is None else min(a.lo, b.lo)
    hi = None if a.hi is None or b.hi is None else max(a.hi, b.hi)
    return interval(lo, hi, math.gcd(a.modulus, b.modulus, a.residue - b.residue), a.residue)


def meet(a: Interval, b: Interval) -> Interval:
    """A set that holds what is in both; the congruence of the one with the larger modulus."""
    lo = b.lo if a.lo is None else a.lo if b.lo is None else max(a.lo, b.lo)
    hi = b.hi if a.hi is None else a.hi if b.hi is None else min(a.hi, b.hi)
    fine = a if b.modulus != 0 and (a.modulus == 0 or a.modulus >= b.modulus) else b
    return interval(lo, hi, fine.modulus, fine.residue)


def narrowed(lo: int, hi: int, congruence: tuple[int, int], dtype: DType, wraps: bool) -> Interval:
    """What the exact result `[lo, hi]` is in the dtype: it wraps, or else is known to fit."""
    low, high = limits(dtype)
    modulus, residue = congruence
    size = high - low + 1
    if low <= lo and hi <= high:
        return _open(interval(lo, hi, modulus, residue), dtype)
    if not wraps:
        return _open(interval(max(lo, low), min(hi, high), modulus, residue), dtype)
    turns = (lo - low) // size
    if turns == (hi - low) // size:  # all of it wraps equally often
        move = turns * size
        return _open(interval(lo - move, hi - move, modulus, residue - move), dtype)
    return _open(interval(low, high, math.gcd(modulus, size), residue), dtype)


def _open(a: Interval, dtype: DType) -> Interval:
    """Bounds at the limits of the dtype say nothing: they are left out, but for zero."""
    low, high = limits(dtype)
    if a.lo is None or a.hi is None or a.modulus == 0:
        return a
    lo = a.lo if a.lo - low >= max(a.modulus, 1) or low == 0 else None
    hi = a.hi if high - a.hi >= max(a.modulus, 1) or dtype.is_bool else None
    return Interval(lo, hi, a.modulus, a.residue)


# Operators ---------------------------------------------------------------------------------------


def unary(op: UnaryOp, a: Interval, dtype: DType, wraps: bool) -> Interval:
    """`op` on an integer or bool."""
    lo, hi = span(a, dtype)
    if op is UnaryOp.NOT or dtype.is_bool:
        return interval(1 - hi, 1 - lo)
    less = 1 if op is UnaryOp.BITNOT else 0
    # `~x` is `-x - 1`, which on an unsigned type wraps by definition.
    return narrowed(
        -hi - less,
        -lo - less,
        (a.modulus, -a.residue - less),
        dtype,
        wraps or dtype.is_uint or less == 1,
    )


def binary(op: BinaryOp, a: Interval, b: Interval, dtype: DType, wraps: bool) -> Interval:
    """An arithmetic operator on two integers of `dtype`; comparisons and logic are not here.

    With `wraps` false, signed results are taken to fit the dtype.
    """
    rule = _RULES.get(op)
    if rule is None:
        return top(dtype)
    found = rule(
        _Side(*span(a, dtype), a.modulus, a.residue),
        _Side(*span(b, dtype), b.modulus, b.residue),
        dtype,
    )
    if found is None:
        return top(dtype)
    lo, hi, congruence = found
    return narrowed(lo, hi, congruence, dtype, wraps or not dtype.is_int)


@dataclass(frozen=True, slots=True)
class _Side:
    """An operand with bounds that are numbers."""

    lo: int
    hi: int
    modulus: int
    residue: int

    @property
    def value(self) -> int | None:
        return self.lo if self.lo == self.hi else None


_Exact = tuple[int, int, tuple[int, int]]
_NOTHING = (1, 0)


def _add(a: _Side, b: _Side, _: DType) -> _Exact:
    return a.lo + b.lo, a.hi + b.hi, (math.gcd(a.modulus, b.modulus), a.residue + b.residue)


def _sub(a: _Side, b: _Side, _: DType) -> _Exact:
    return a.lo - b.hi, a.hi - b.lo, (math.gcd(a.modulus, b.modulus), a.residue - b.residue)


def _mul(a: _Side, b: _Side, _: DType) -> _Exact:
    modulus = math.gcd(a.modulus * b.modulus, a.modulus * b.residue, b.modulus * a.residue)
    return *_corners(a, b, lambda x, y: x * y), (modulus, a.residue * b.residue)


def _corners(a: _Side, b: _Side, fn: Callable[[int, int], int]) -> tuple[int, int]:
    """The range of a function that is monotone in each operand."""
    found = [fn(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    return min(found), max(found)


def _floordiv(a: _Side, b: _Side, _: DType) -> _Exact | None:
    if b.lo <= 0 <= b.hi:
        return None
    c = b.value
    # Where every value of a is r + k * m and c divides m, (r + k * m) // c is r // c + k * (m //
    # c).
    steps = c is not None and a.modulus % c == 0
    congruence = (a.modulus // c, a.residue // c) if steps and c is not None else _NOTHING
    return *_corners(a, b, lambda x, y: x // y), congruence


def _floormod(a: _Side, b: _Side, _: DType) -> _Exact | None:
    if b.lo <= 0 <= b.hi:
        return None
    c = b.value
    congruence = _NOTHING if c is None else (math.gcd(a.modulus, c), a.residue)
    if c is not None and a.lo // c == a.hi // c:
        low, high = sorted((a.lo % c, a.hi % c))
        return low, high, congruence
    if b.lo > 0:
        return 0, min(b.hi - 1, a.hi) if a.lo >= 0 else b.hi - 1, congruence
    return max(b.lo + 1, a.lo) if a.hi <= 0 else b.lo + 1, 0, congruence


def trunc_div(a: int, b: int) -> int:
    """The quotient rounded towards zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _truncdiv(a: _Side, b: _Side, _: DType) -> _Exact | None:
    if b.lo <= 0 <= b.hi:
        return None
    return *_corners(a, b, trunc_div), _NOTHING


def _truncmod(a: _Side, b: _Side, _: DType) -> _Exact | None:
    if b.lo <= 0 <= b.hi:
        return None
    most = max(abs(b.lo), abs(b.hi)) - 1
    c = b.value
    congruence = _NOTHING if c is None else (math.gcd(a.modulus, c), a.residue)
    return max(-most, a.lo) if a.lo < 0 else 0, min(most, a.hi) if a.hi > 0 else 0, congruence


def _min(a: _Side, b: _Side, _: DType) -> _Exact:
    return min(a.lo, b.lo), min(a.hi, b.hi), _either(a, b)


def _max(a: _Side, b: _Side, _: DType) -> _Exact:
    return max(a.lo, b.lo), max(a.hi, b.hi), _either(a, b)


def _either(a: _Side, b: _Side) -> tuple[int, int]:
    return math.gcd(a.modulus, b.modulus, a.residue - b.residue), a.residue


def _bitand(a: _Side, b: _Side, _: DType) -> _Exact | None:
    above = [side.hi for side in (a, b) if side.lo >= 0]
    return (0, min(above), _NOTHING) if above else None


def _bitor(a: _Side, b: _Side, _: DType) -> _Exact | None:
    if a.lo < 0 or b.lo < 0:
        return None
    return max(a.lo, b.lo), (1 << max(a.hi, b.hi).bit_length()) - 1, _NOTHING


def _bitxor(a: _Side, b: _Side, _: DType) -> _Exact | None:
    if a.lo < 0 or b.lo < 0:
        return None
    return 0, (1 << max(a.hi, b.hi).bit_length()) - 1, _NOTHING


def _shl(a: _Side, b: _Side, dtype: DType) -> _Exact | None:
    if b.lo < 0 or b.hi >= dtype.bits:
        return None
    scale = 1 << b.lo  # a larger shift is a multiple of it
    congruence = (a.modulus * scale, a.residue * scale) if b.value is not None else (scale, 0)
    return *_corners(a, b, lambda x, y: x << y), congruence


def _shr(a: _Side, b: _Side, dtype: DType) -> _Exact | None:
    if b.lo < 0:
        return None
    return *_corners(a, b, lambda x, y: x >> min(y, dtype.bits)), _NOTHING


_RULES: dict[BinaryOp, Callable[[_Side, _Side, DType], _Exact | None]] = {
    BinaryOp.ADD: _add,
    BinaryOp.SUB: _sub,
    BinaryOp.MUL: _mul,
    BinaryOp.FLOORDIV: _floordiv,
    BinaryOp.FLOORMOD: _floormod,
    BinaryOp.TRUNCDIV: _truncdiv,
    BinaryOp.TRUNCMOD: _truncmod,
    BinaryOp.MIN: _min,
    BinaryOp.MAX: _max,
    BinaryOp.BITAND: _bitand,
    BinaryOp.BITOR: _bitor,
    BinaryOp.BITXOR: _bitxor,
    BinaryOp.SHL: _shl,
    BinaryOp.SHR: _shr,
}
