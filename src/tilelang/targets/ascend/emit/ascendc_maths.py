"""Functions in AscendC for what the vector units of A2 and A3 have no function for: sine, powers,
sigmoid, operations by a number.

What leaves: `MATHS`, texts by name, and `MATHS_SCRATCH`, the bytes of UB that each works in. CANN's
mathematics library (Sin, Cos, Power) is not for kernels without `TPipe`, so these are made of basic
functions. Each goes over neighbours in pieces for which its temporaries have room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PIECE = 1024
"""Bytes of a temporary."""


@dataclass(frozen=True)
class Chunked:
    """A function `name(dst, sources..., scratch, [value,] count)` of tensors of type `of`.

    Each step is a line of calls of V on `n` elements from `at` on, with a barrier in front.
    `temporaries` are tensors of type `inside`; another function that a step `calls` has its own
    behind them.
    """

    name: str
    sources: Sequence[str]
    steps: Sequence[str]
    temporaries: Sequence[str] = ("x",)
    of: str = "T"
    inside: str = ""
    value: bool = False
    calls: Chunked | None = None

    @property
    def scratch(self) -> int:
        """Bytes of UB."""
        return PIECE * len(self.temporaries) + (self.calls.scratch if self.calls else 0)

    def text(self) -> str:
        """The function."""
        inside = self.inside or self.of
        tensors = [f"const LocalTensor<{self.of}>& {x}" for x in ("dst", *self.sources)]
        value = f"{self.of} value, " if self.value else ""
        room = "const LocalTensor<uint8_t>& scratch, " if self.scratch else ""
        places = [
            f"  LocalTensor<{inside}> {x} = scratch[{PIECE * k}].ReinterpretCast<{inside}>();"
            for k, x in enumerate(self.temporaries)
        ]
        steps = [line for step in self.steps for line in ("PipeBarrier<PIPE_V>();", step)]
        lines = [
            *(["template <typename T>"] if self.of == "T" else []),
            f"__aicore__ inline void {self.name}(",
            *(f"    {tensor}," for tensor in tensors),
            f"    {room}{value}int32_t count) {{",
            f"  constexpr int32_t wide = {PIECE} / sizeof({inside});",
            *places,
            "  for (int32_t at = 0; at < count; at += wide) {",
            "    int32_t n = count - at < wide ? count - at : wide;",
            *(f"    {line}" for line in steps),
            "  }",
            "}",
        ]
        return "\n".join([*lines, ""])


# pi in parts of 8 bits, whose products with halves of whole numbers up to 2^16 are exact, and what
# is left; the series of the sine.
_PI = ("3.140625f", "9.65118408203125e-4f", "2.5331974029541016e-6f", "1.984187258941006e-9f")
_SERIES = ("-1.0f / 39916800", "1.0f / 362880", "-1.0f / 5040", "1.0f / 120", "-1.0f / 6")


def _sine(name: str, shift: str) -> Chunked:
    """sin(x + shift pi): x less whole half turns, in a series to x^13, by the sign of their number.

    Within 2e-7 of the sine up to 65504, beyond which CANN's own has no result either.
    """
    return Chunked(
        name,
        ("src",),
        [
            "Muls(k, src[at], 0.318309886f, n);",
            *([f"Adds(k, k, {shift}, n);"] if shift else []),
            "Cast(k, k, RoundMode::CAST_RINT, n);",
            # p: 1, or -1 where k is odd.
            "Muls(p, k, 0.5f, n);",
            "Cast(p, p, RoundMode::CAST_FLOOR, n);",
            "Muls(p, p, -2.0f, n);",
            "Add(p, p, k, n);",
            "Muls(p, p, -2.0f, n);",
            "Adds(p, p, 1.0f, n);",
            *([f"Adds(k, k, -{shift}, n);"] if shift else []),
            "Muls(r, k, 0.0f, n);",
            "Add(r, r, src[at], n);",
            *(f"Axpy(r, k, -{part}, n);" for part in _PI),
            "Mul(s, r, r, n);",
            "Mul(r, r, p, n);",
            "Muls(p, s, 1.0f / 6227020800, n);",
            *(line for c in _SERIES for line in (f"Adds(p, p, {c}, n);", "Mul(p, p, s, n);")),
            "Mul(p, p, r, n);",
            "Add(dst[at], p, r, n);",
        ],
        ("k", "p", "r", "s"),
        "float",
    )


def _clamped(x: str, low: str, high: str) -> list[str]:
    return [f"Maxs({x}, {x}, {low}, n);", f"Mins({x}, {x}, {high}, n);"]


# Twice, this makes 1 or more of whatever is not zero.
_GROWN = ["Muls(r, r, 1e38f, n);"] * 2


def _power(b: str) -> list[str]:
    """exp(b ln |a|), with the sign that a power of a negative number has, as CANN's Power."""
    return [
        "Abs(l, a[at], n);",
        "Ln(l, l, n);",
        *_clamped("l", "-1e30f", "1e30f"),  # so that 0 times it is 0, also for 0 and infinity
        f"Mul(l, l, {b}, n);",
        "Exp(l, l, n);",
        # p: 1 where a is negative, else 0.
        "Muls(r, a[at], -1.0f, n);",
        *_GROWN,
        *_clamped("r", "0.0f", "1.0f"),
        "Muls(p, r, 1.0f, n);",
        # No number where a is negative and b isn't whole.
        f"Maxs(q, {b}, -3e38f, n);",
        "Mins(q, q, 3e38f, n);",
        "Cast(r, q, RoundMode::CAST_FLOOR, n);",
        "Sub(r, q, r, n);",
        "Mul(r, r, p, n);",
        *_GROWN,
        "Mins(r, r, 1.0f, n);",
        "Muls(r, r, -1.0f, n);",
        "Adds(r, r, 1.0f, n);",
        "Div(r, r, r, n);",
        "Mul(l, l, r, n);",
        # Negative where a is and b is odd.
        "Muls(r, q, 0.5f, n);",
        "Cast(r, r, RoundMode::CAST_FLOOR, n);",
        "Muls(r, r, -2.0f, n);",
        "Add(r, r, q, n);",
        "Mul(r, r, p, n);",
        "Muls(r, r, -2.0f, n);",
        "Adds(r, r, 1.0f, n);",
        "Mul(dst[at], l, r, n);",
    ]


def _whole_power(b: str) -> list[str]:
    """By the bits of b, lowest first: r becomes r x where the bit is set, x its square."""
    one = "(int32_t)1"
    steps = [
        f"ShiftRight(z, y, {one}, n);",
        "Muls(w, z, (int32_t)-2, n);",
        "Add(w, w, y, n);",
        "Adds(y, z, (int32_t)0, n);\n      Adds(v, x, (int32_t)-1, n);",
        "Mul(w, w, v, n);",
        f"Adds(w, w, {one}, n);",
        "Mul(r, r, w, n);\n      Mul(x, x, x, n);",
    ]
    loop = "".join(f"\n      PipeBarrier<PIPE_V>();\n      {s}" for s in steps)
    return [
        f"Duplicate(r, {one}, n);",
        "Adds(x, a[at], (int32_t)0, n);",
        f"Adds(y, {b}, (int32_t)0, n);",
        f"for (int32_t bit = 0; bit < 31; ++bit) {{{loop}\n    }}",
        "Adds(dst[at], r, (int32_t)0, n);",
    ]


def _by_number(of: Chunked, name: str, steps: Sequence[str]) -> Chunked:
    """A function whose last operand is a number, which fills a temporary."""
    fill = "Duplicate(number, value, n);"
    places = (*of.temporaries, "number")
    return Chunked(name, of.sources[:-1], [fill, *steps], places, of.of, value=True)


def _of_half(of: Chunked) -> Chunked:
    """The same of half, carried out in float and rounded once."""
    names = [f"f{k}" for k in range(len(of.sources))]
    reads = [
        f"Cast({f}, {x}[at], RoundMode::CAST_NONE, n);"
        for f, x in zip(names, of.sources, strict=True)
    ]
    behind = f"scratch[{PIECE * len(names)}], " if of.scratch else ""
    value = "(float)value, " if of.value else ""
    call = f"{of.name}(f0, {', '.join(names)}, {behind}{value}n);"
    write = "Cast(dst[at], f0, RoundMode::CAST_RINT, n);"
    steps = [*reads, call, write]
    return Chunked(f"{of.name}_half", of.sources, steps, names, "half", "float", of.value, calls=of)


_DENOMINATOR = [
    "Muls(x, src[at], (T)-1.0f, n);",
    "Exp(x, x, n);",
    "Adds(x, x, (T)1.0f, n);",
]


def _exclusive(b: str) -> list[str]:
    """(a | b) & ~(a & b): the API has And, Or and Not."""
    return [
        f"And(x, a[at], {b}, n);",
        f"Not(x, x, n);\n    Or(y, a[at], {b}, n);",
        "And(dst[at], x, y, n);",
    ]


_SINE, _COSINE = _sine("sine", ""), _sine("cosine", "0.5f")
_ROUND = Chunked(
    "rounded", ("src",), ["Cast(dst[at], src[at], RoundMode::CAST_RINT, n);"], (), "float"
)
_POWER = Chunked("power", ("a", "b"), _power("b[at]"), tuple("lpqr"), "float")
_POWER_BY = _by_number(_POWER, "power_by", _power("number"))
_WHOLE = Chunked("power_whole", ("a", "b"), _whole_power("b[at]"), tuple("rxyzwv"), "int32_t")
_FUNCTIONS = [
    Chunked(
        "sigmoid",
        ("src",),
        [*_DENOMINATOR, "Duplicate(dst[at], (T)1.0f, n);", "Div(dst[at], dst[at], x, n);"],
    ),
    Chunked("silu", ("src",), [*_DENOMINATOR, "Div(dst[at], src[at], x, n);"]),
    Chunked(
        "divide_by",
        ("src",),
        ["Duplicate(x, value, n);", "Div(dst[at], src[at], x, n);"],
        value=True,
    ),
    Chunked("exclusive_or", ("a", "b"), _exclusive("b[at]"), ("x", "y")),
    # The first temporary is full of the number already.
    Chunked("and_by", ("a",), ["And(dst[at], a[at], words, n);"], ("words",)),
    Chunked("or_by", ("a",), ["Or(dst[at], a[at], words, n);"], ("words",)),
    Chunked("exclusive_or_by", ("a",), _exclusive("words"), ("words", "x", "y")),
    *(_SINE, _COSINE, _POWER, _POWER_BY, _WHOLE),
    _by_number(_WHOLE, "power_whole_by", _whole_power("number")),
    *(_of_half(f) for f in (_SINE, _COSINE, _ROUND, _POWER, _POWER_BY)),
    _ROUND,
]
MATHS = {f.name: f.text() for f in _FUNCTIONS}
MATHS_SCRATCH = {f.name: f.scratch for f in _FUNCTIONS}
MATHS_CALLS = {f.name: (f.calls.name,) for f in _FUNCTIONS if f.calls is not None}
"""The functions that a function calls."""

__all__ = ["MATHS", "MATHS_CALLS", "MATHS_SCRATCH", "PIECE"]
