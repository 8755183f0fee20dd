"""Elementwise programs of casts, operators and functions, and what NumPy by the project's own rules
makes of them.

What enters: lists of dtypes, operators, functions. What leaves: `Table`s: a program with one kernel
for each entry, its inputs with special values, and the expected outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from thread_interpreter import binary, unary
from tilelang.dtypes import DType
from tilelang.dtypes.convert import cast as cast_values
from tilelang.dtypes.storage import from_bits
from tilelang.emulator import numerics
from tilelang.ir.expr import Binary, BinaryOp, Call, Cast, Const, Expr, Unary, UnaryOp, Var
from tilelang.ir.functions import FUNCTIONS, Accepts, result_dtype
from tilelang.ir.thread import Argument, Array, Elem, Kernel, Program, Write

I32 = DType("int32")
SAMPLES = 512
Values = np.ndarray

_FLOATS = (
    "float64 float32 tfloat32 float16 bfloat16 float8_e3m4 float8_e4m3fn float8_e4m3"
    " float8_e4m3b11fnuz float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float6_e2m3fn"
    " float6_e3m2fn float4_e2m1fn float4_e2m1_unpacked"
)
FLOATS = tuple(_FLOATS.split())
INTS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in (2, 4, 8, 16, 32, 64))
TYPES = (*FLOATS, *INTS, "bool")
MODES = ("rn", "rna", "rz", "rp", "rm")


_SPECIAL = [
    *(0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-40, 1e30, -1e30, 448.0, 464.0, 465.0),
    *(65504.0, 65520.0, 2147483648.0, 4294967296.0, 9.3e18, 1.9e19, -129.0, 255.5),
]


def samples(dtype: DType, seed: int = 0) -> Values:
    """Words of a type: all of a narrow one, special and random ones of others."""
    rng = np.random.default_rng([seed, dtype.bits])
    if dtype.is_bool:
        return rng.random(SAMPLES) < 0.5
    used = dtype.row.code_bits if dtype.is_float and dtype.bits <= 8 else dtype.bits
    if used <= 8:
        words = np.resize(np.arange(1 << used), SAMPLES)
        return from_bits(words, dtype)
    size = dtype.numpy.itemsize
    if dtype.is_float:
        scales = np.ldexp(rng.standard_normal(SAMPLES), rng.integers(-30, 31, SAMPLES))
        scales[:256] = np.round(rng.standard_normal(256) * 40) / 4
        scales[-len(_SPECIAL) :] = _SPECIAL
        with np.errstate(all="ignore"):
            return cast_values(scales, DType("float64"), dtype)
    raw = rng.integers(0, 1 << 63, SAMPLES, dtype=np.uint64) * np.uint64(2) + rng.integers(
        0, 2, SAMPLES
    ).astype(np.uint64)
    raw[: SAMPLES // 2] >>= rng.integers(0, 64, SAMPLES // 2).astype(np.uint64)
    raw[-4:] = [0, 1, (1 << dtype.bits) - 1, 1 << (dtype.bits - 1)]
    return raw.astype(f"u{size}").view(dtype.numpy)


@dataclass
class Table:
    """Kernels of one program; `args` are its arrays, `expected` the outputs by name.

    `close` are outputs that may differ by this many units in the last place.
    """

    kernels: list[Kernel] = field(default_factory=list)
    args: dict[str, Values] = field(default_factory=dict)
    dtypes: dict[str, DType] = field(default_factory=dict)
    expected: dict[str, Values] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    close: dict[str, int] = field(default_factory=dict)

    def add(self, label: str, make: Callable[..., Expr], inputs: list[Values], types: list[DType],
            want: Values, close: int = 0) -> None:  # fmt: skip
        """One kernel: `out[i] = make(in0[i], in1[i], ...)`."""
        k = len(self.kernels)
        n = len(want)
        arrays = [Array(f"k{k}_in{j}", t, Const(n, I32)) for j, t in enumerate(types)]
        i = Var(f"k{k}_i", I32)
        e = make(*(Elem(a, i, a.type) for a in arrays))
        out = Array(f"k{k}_out", e.dtype, Const(n, I32))
        self.kernels.append(
            Kernel(f"k{k}", (*arrays, out), (Const(n, I32),), (1,), (i,), (), (Write(out, i, e),))
        )
        for a, x in zip(arrays, inputs, strict=True):
            self.args[a.name], self.dtypes[a.name] = np.ascontiguousarray(x), a.type
        self.args[out.name] = np.zeros(n, out.type.numpy)
        self.dtypes[out.name] = out.type
        self.expected[out.name], self.labels[out.name], self.close[out.name] = want, label, close

    def program(self) -> Program:
        """All kernels, one after the other."""
        params = [p for k in self.kernels for p in k.params]
        args = tuple(Argument(p.name, array=p, shape=(p.size,)) for p in params)  # type: ignore[union-attr]
        return Program("table", args, (), tuple(self.kernels))

    def faults(self, got: dict[str, Values]) -> list[str]:
        """What differs from what is expected, one line for each kernel."""
        return [f for name in self.expected if (f := self._fault(name, got[name]))]

    def _fault(self, name: str, got: Values) -> str:
        want, dtype = self.expected[name], self.dtypes[name]
        same = _same(got, want, dtype, self.close[name])
        if same.all():
            return ""
        at = int(np.argmin(same))
        inputs = [
            x[at] for n, x in self.args.items() if n.startswith(name.rsplit("_", 1)[0] + "_in")
        ]
        return (
            f"{self.labels[name]}: {np.count_nonzero(~same)} of {same.size}, of {inputs} got"
            f" {got[at]!r}, want {want[at]!r}"
        )


def _same(got: Values, want: Values, dtype: DType, close: int) -> np.ndarray:
    if not dtype.is_float:
        return got == want
    with np.errstate(all="ignore"):
        a, b = got.astype(np.float64), want.astype(np.float64)
        equal = (a == b) & ((np.signbit(a) == np.signbit(b)) | (close > 0))
        near = (
            np.abs(a - b) <= close * np.abs(np.spacing(want)).astype(np.float64) if close else False
        )
    return equal | (np.isnan(a) & np.isnan(b)) | near


# Casts -------------------------------------------------------------------------------------------


def casts(src: str) -> Table:
    """From one type to every other, in every rounding that applies."""
    table, s = Table(), DType(src)
    x = samples(s)
    bits = np.random.default_rng(5).integers(0, 1 << 32, SAMPLES, dtype=np.uint32)
    for dst in TYPES:
        d = DType(dst)
        modes = ("", *MODES) if d.is_float else ("",)
        for mode in modes:
            for saturate in (True, False) if d.is_narrow_float and mode in ("", "rz") else (True,):
                want = cast_values(x, s, d, mode, saturate)
                label = f"{src} -> {dst} {mode} {'' if saturate else 'unsaturated'}"
                table.add(
                    label,
                    lambda e, d=d, mode=mode, saturate=saturate: Cast(
                        e, d, rounding=mode, saturate=saturate
                    ),
                    [x], [s], want,
                )  # fmt: skip
        if d.is_float and d.bits <= 16:
            want = cast_values(x, s, d, "rs", True, bits)
            table.add(
                f"{src} -> {dst} rs",
                lambda e, r, d=d: Cast(e, d, rounding="rs", rbits=r),
                [x, bits], [s, DType("uint32")], want,
            )  # fmt: skip
    return table


# Operators and functions -------------------------------------------------------------------------

COMPUTED = (*(t for t in INTS if not t.endswith(("t2", "t4"))), "float32", "float64", "bool")
_SKIPPED_ON_BOOL = frozenset(
    {BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.DIV, BinaryOp.FLOORDIV, BinaryOp.FLOORMOD,
     BinaryOp.TRUNCDIV, BinaryOp.TRUNCMOD, BinaryOp.SHL, BinaryOp.SHR}
)  # fmt: skip
_INTEGER_ONLY = frozenset(
    {BinaryOp.SHL, BinaryOp.SHR, BinaryOp.BITAND, BinaryOp.BITOR, BinaryOp.BITXOR}
)
_DIVISIONS = frozenset(
    {BinaryOp.DIV, BinaryOp.FLOORDIV, BinaryOp.FLOORMOD, BinaryOp.TRUNCDIV, BinaryOp.TRUNCMOD}
)


def _operators(dtype: DType) -> Iterator[BinaryOp]:
    for op in BinaryOp:
        if op.is_logical and not dtype.is_bool:
            continue
        if dtype.is_bool and op in _SKIPPED_ON_BOOL:
            continue
        if dtype.is_float and op in _INTEGER_ONLY:
            continue
        if not dtype.is_float and op is BinaryOp.DIV:
            continue
        yield op


def _operands(op: BinaryOp, t: DType) -> tuple[Values, Values]:
    """Values that the operator is defined on."""
    a, b = samples(t, 1), np.roll(samples(t, 2), 3)
    if t.is_integer:  # shift counts and small divisors among the rest
        b[: SAMPLES // 4] = np.arange(SAMPLES // 4) % (t.bits + 2)
    if op in (BinaryOp.SHL, BinaryOp.SHR):
        return a, np.abs(np.where(b == t.min, 0, b)).astype(t.numpy)
    if op not in _DIVISIONS:
        return a, b
    if t.is_integer:
        wraps = (b == -1) & (a == t.min) if t.is_int else np.zeros(b.shape, bool)
        return a, np.where((b == 0) | wraps, 7, b).astype(t.numpy)
    if op is BinaryOp.DIV:
        return a, b
    return a[:256], np.where(b[:256] == 0, 1.5, b[:256]).astype(t.numpy)


def _storage(values: list[Any], dtype: DType) -> Values:
    with np.errstate(all="ignore"):
        return np.array(values, object).astype(dtype.numpy)


def operators(name: str) -> Table:
    """Every operator on one type."""
    table, t = Table(), DType(name)
    for op in _operators(t):
        x, y = _operands(op, t)
        scalars = [(u.item() if not t.is_float else u, v.item() if not t.is_float else v)
                   for u, v in zip(x, y, strict=True)]  # fmt: skip
        with np.errstate(all="ignore"):
            want = [binary(op, u, v, t) for u, v in scalars]
        kind = DType("bool") if op.is_compare or op.is_logical else t
        table.add(f"{op.name} {name}", lambda u, v, op=op: Binary(op, u, v), [x, y], [t, t],
                  _storage(want, kind))  # fmt: skip
    a = samples(t, 1)
    ops = [UnaryOp.NOT, UnaryOp.BITNOT] if t.is_bool else [UnaryOp.NEG]
    ops += [UnaryOp.BITNOT] if t.is_integer else []
    for op in ops:
        with np.errstate(all="ignore"):
            want = [unary(op, u.item() if not t.is_float else u, t) for u in a]
        table.add(f"{op.name} {name}", lambda u, op=op: Unary(op, u), [a], [t], _storage(want, t))
    return table


# Units in the last place that CUDA's own functions may differ by (CUDA C++ Programming Guide,
# Mathematical Functions), with those of NumPy on top.
_ULPS = 4
_LOOSE = {
    "sin": 4,
    "cos": 4,
    "tan": 8,
    "pow": 10,
    "sigmoid": 6,
    "fast_rcp": 2,
    "exp10": 6,
    "clamp": 1,  # the sign of a zero
}
_BOUNDED_NAMES = "sin cos tan sinh cosh asin acos atanh exp exp10 pow"
_BOUNDED = frozenset(_BOUNDED_NAMES.split())
"""Given numbers up to 20 only."""


def functions(name: str) -> Table:
    """Every function of the table on one type."""
    table, t = Table(), DType(name)
    for row in FUNCTIONS.values():
        fits = row.accepts is Accepts.NUMBER or (row.accepts is Accepts.FLOAT) == t.is_float
        if not fits or t.is_bool:
            continue
        modes = ("rn", "rz", "ru", "rd") if row.name.startswith("ieee_") else ("",)
        if row.name == "ieee_rsqrt":
            modes = ("rn",)
        for mode in modes:
            params: tuple[Any, ...] = (mode,) if mode else ()
            inputs = [np.roll(samples(t, 10 + j), j) for j in range(row.arity)]
            if row.name in _BOUNDED:
                inputs = [
                    np.where(np.abs(x.astype(np.float64)) > 20, x.dtype.type(1.25), x).astype(
                        t.numpy
                    )
                    for x in inputs
                ]
            if row.name == "fns":
                inputs[1] = (np.arange(SAMPLES) % t.bits).astype(t.numpy)
                inputs[2] = (np.arange(SAMPLES) % 5 - 2).astype(np.int64).astype(t.numpy)
            if row.name == "ldexp":
                inputs[1] = (np.arange(SAMPLES) % 40 - 20).astype(t.numpy)
            fn = numerics.function(row.name, t, params)
            with np.errstate(all="ignore"):
                want = np.asarray(fn(*inputs))
            kind = result_dtype(row.name, [t] * row.arity)
            exact = (
                row.accepts is not Accepts.FLOAT
                or row.name.startswith("ieee_")
                or row.name in _EXACT
            )
            table.add(
                f"{row.name} {name} {mode}",
                lambda *xs, fn=row.name, k=kind, params=params: Call(fn, xs, k, params=params),
                inputs,
                [t] * row.arity,
                want.astype(kind.numpy),
                0 if exact else _LOOSE.get(row.name, _ULPS),
            )
    return table


_EXACT_NAMES = (
    "floor ceil trunc round round_away abs isnan isinf isfinite fmod copysign nextafter ldexp fmul"
    " fma sqrt"
)
_EXACT = frozenset(_EXACT_NAMES.split())
