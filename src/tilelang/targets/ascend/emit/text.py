"""C++ text for Ascend cores: lines, types, expressions.

What enters: types and expressions of the thread stage. What leaves: their text in the C++ that CANN
compiles. Integer division rounds down, so where an operand may be negative a helper does it;
helpers that a program uses are printed in front of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np

from tilelang.dtypes import DType
from tilelang.errors import TileError, error
from tilelang.ir.bounds import bounds
from tilelang.ir.expr import (
    Binary,
    BinaryOp,
    Bitcast,
    Call,
    Cast,
    Const,
    Expr,
    Lane,
    Pack,
    Select,
    Unary,
    UnaryOp,
    Var,
)
from tilelang.ir.interval import Interval
from tilelang.ir.node import Kind, Node
from tilelang.ir.thread import Addr, Array, Elem, Program, Space

TYPES = {
    "float32": "float", "float16": "half", "bfloat16": "bfloat16_t", "float64": "double",
    "float8_e4m3fn": "float8_e4m3_t", "float8_e5m2": "float8_e5m2_t",
    "float8_e8m0fnu": "fp8_e8m0_t",
    "int8": "int8_t", "int16": "int16_t",
    "int32": "int32_t", "int64": "int64_t", "uint8": "uint8_t", "uint16": "uint16_t",
    "uint32": "uint32_t", "uint64": "uint64_t", "bool": "bool",
}  # fmt: skip
QUALIFIERS = {
    Space.GLOBAL: "__gm__ ",
    Space.UB: "__ubuf__ ",
    Space.L1: "__cbuf__ ",
    Space.L0A: "__ca__ ",
    Space.L0B: "__cb__ ",
    Space.L0C: "__cc__ ",
    Space.REGISTER: "",
    Space.LOCAL: "",
}
SLOTS = {Space.L0A_SCALE: Space.L0A, Space.L0B_SCALE: Space.L0B}
"""The memory of the tiles whose scales lie in a space; a place there is a number."""

NARROW = {"float8_e4m3fn": "e4", "float8_e5m2": "e5"}

HELPERS: dict[str, str] = {
    "floordiv": """\
template <typename T> __aicore__ inline T floordiv(T a, T b) {
  T q = a / b;
  return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}
""",
    "floormod": """\
template <typename T> __aicore__ inline T floormod(T a, T b) {
  T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
""",
    "bits": """\
template <typename To, typename From> __simt_callee__ inline To bits(From x) {
  return *reinterpret_cast<To*>(&x);
}
""",
    **{
        f"fill_b{width}": f"""\
__simd_vf__ inline void fill_b{width}(
    __ubuf__ uint{width}_t* tile, uint{width}_t value, int32_t rows, int32_t columns,
    int32_t pitch) {{
  vector_u{width} all;
  asc_duplicate_scalar(all, value, asc_create_mask_b{width}(PAT_ALL));
  for (int32_t row = 0; row < rows; ++row) {{
    for (int32_t at = 0; at < columns; at += {2048 // width}) {{
      asc_storealign(tile + row * pitch + at, all, 0, asc_update_mask_b{width}(columns - at));
    }}
  }}
}}
"""
        for width in (8, 16, 32)
    },
    **{
        f"to_{short}": f"""\
__simt_callee__ inline float8_{name}_t to_{short}(float x) {{
  float2 both = make_float2(x, 0.0f);
  uint16_t pair = __asc_cvt_float2_to_fp8x2(both, __ASC_SATFINITE, __ASC_{name.upper()});
  return *reinterpret_cast<float8_{name}_t*>(&pair);
}}
"""
        for short, name in (("e4", "e4m3"), ("e5", "e5m2"))
    },
    **{
        f"from_{short}": f"""\
__simt_callee__ inline float from_{short}(float8_{name}_t x) {{
  uint16_t pair = *reinterpret_cast<uint8_t*>(&x);
  return __{name}x22float2(*reinterpret_cast<float8_{name}x2_t*>(&pair)).x;
}}
"""
        for short, name in (("e4", "e4m3"), ("e5", "e5m2"))
    },
}
"""Functions that a program may need, by name. `__aicore__` ones run on every core."""


# Words of C++ and of the two APIs, and what the printers call their own variables.
_WORDS = """
alignas alignof and and_eq asm atomic auto bitand bitor bool break case catch char class compl
concept const consteval constexpr constinit const_cast continue decltype default delete do double
dynamic_cast else enum explicit export extern false float for friend goto if inline int long
mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public
register reinterpret_cast requires return short signed sizeof static static_assert static_cast
struct switch template this thread_local throw true try typedef typeid typename union unsigned
using virtual void volatile wchar_t while xor xor_eq
half float2 half2 max min abs exp log sqrt cce block_idx threadIdx
row block at pad_value fill_value drain
"""
_RESERVED = frozenset(_WORDS.split())
_PREFIXES = ("asc_", "vector_", "simt_", "fill_b", "tile_", "to_e", "from_e", "PIPE_", "__")


def with_own_names(program: Program, taken: Collection[str] = ()) -> Program:
    """The program without names that mean something else in C++, `taken` among them."""
    names = {n.name for n in program.walk() if isinstance(n, (Var, Array))}
    new: dict[str, str] = {}
    for name in sorted(names):
        if name in _RESERVED or name in taken or name in HELPERS or name.startswith(_PREFIXES):
            made = f"own_{name.strip('_')}"
            while made in names:
                made += "_"
            names.add(made)
            new[name] = made

    def own(node: Node) -> Node:
        if isinstance(node, (Var, Array)):
            return node.with_(name=new.get(node.name, node.name))
        bound = {
            f.name: getattr(node, f.name) for f in node.fields() if f.metadata["kind"] is Kind.BINDS
        }
        return node.with_(**{name: _mapped(value, own) for name, value in bound.items()})

    return program.rewrite(own) if new else program


def _mapped(value: Any, on: Callable[[Node], Node]) -> Any:
    if isinstance(value, tuple):
        return tuple(_mapped(v, on) for v in cast("tuple[Any, ...]", value))
    return on(value) if isinstance(value, (Var, Array)) else value


def type_of(dtype: DType, at: Node) -> str:
    """The C++ type of an element."""
    name = TYPES.get(str(dtype.base))
    if name is None or dtype.lanes != 1:
        raise unprintable(at, f"values of {dtype}")
    return name


def unprintable(at: Node, what: str, help: str = "") -> TileError:  # noqa: A002
    """What has no form in the C++ of this chip."""
    return error(
        "target",
        f"{what} have no form in the source for this chip",
        at.loc,
        help=help or "the simulator runs it",
    )


class Text:
    """The lines of a source, and what expressions need of the place where they stand.

    `own` are helpers of this source beside `HELPERS`. One that has `lesser` and `greater` is for
    the scalar unit of a core: it has no maths but what `calls` gives, and elements of tensors are
    read by `GetValue`, or as `elements` says. `tiles` are functions on tiles of UB that the source
    needs.
    """

    calls: Callable[[Call], str] | None = None
    elements: Callable[[Elem], str | None] | None = None

    def __init__(self, own: Collection[str] = ()) -> None:
        self.own = frozenset(own)
        self.lines: list[str] = []
        self.depth = 0
        self.helpers: dict[str, None] = {}
        self.tiles: dict[str, str] = {}
        self.ranges: dict[Var, Interval] = {}

    def line(self, text: str = "") -> None:
        """One line at the current depth."""
        self.lines.append("  " * self.depth + text if text else "")

    @contextmanager
    def inside(self, head: str, tail: str = "}") -> Generator[None]:
        """A block in braces."""
        self.line(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.line(tail)

    def helper(self, name: str) -> str:
        """A helper by name; it will be printed."""
        self.helpers[name] = None
        return name

    def is_natural(self, e: Expr) -> bool:
        """Whether an integer is certainly not negative."""
        low = bounds(e, self.ranges).lo
        return low is not None and low >= 0

    @property
    def is_scalar_unit(self) -> bool:
        """Whether expressions are carried out by the scalar unit of a core."""
        return "lesser" in self.own

    # Expressions ---------------------------------------------------------------------------------

    def of(self, e: Expr) -> str:
        """The text of a value."""
        rule = _RULES.get(type(e))
        if rule is None:
            raise unprintable(e, f"expressions of the kind {type(e).__name__}")
        return rule(self, e)

    def place(self, array: Array, index: Expr) -> str:
        """A pointer to an element."""
        at = self.of(index)
        return array.name if at == "0" else f"({array.name} + {at})"


def number(value: Any, dtype: DType, at: Node) -> str:
    """A literal."""
    if dtype.is_bool:
        return "true" if value else "false"
    if dtype.is_float:
        return _real(float(value), dtype, at)
    if dtype.bits == 64 and abs(int(value)) >= 1 << 31:
        return f"{int(value)}{'ull' if dtype.is_uint else 'll'}"
    return f"{int(value)}{'u' if dtype.is_uint else ''}"


def _real(value: float, dtype: DType, at: Node) -> str:
    if np.isnan(value):
        text = '__builtin_nanf("")'
    elif np.isinf(value):
        text = f"{'-' if value < 0 else ''}__builtin_huge_valf()"
    elif dtype == "float64":
        return repr(value)
    else:
        text = f"{np.float32(value)!s}"
        text = f"{text if any(c in text for c in '.en') else text + '.0'}f"
    return text if dtype == "float32" else f"({type_of(dtype, at)}){text}"


def _const(x: Text, e: Const) -> str:
    del x
    return number(e.value, e.type, e)


# Where C++ spells an operator differently from the IR, whose operators are named by their symbols.
_SPELT = {
    BinaryOp.TRUNCDIV: "/", BinaryOp.TRUNCMOD: "%", BinaryOp.AND: "&&", BinaryOp.OR: "||",
}  # fmt: skip


def _binary(x: Text, e: Binary) -> str:
    a, b = x.of(e.a), x.of(e.b)
    if e.op in (BinaryOp.MIN, BinaryOp.MAX):
        word = "min" if e.op is BinaryOp.MIN else "max"
        if x.is_scalar_unit:
            name = x.helper("lesser" if word == "min" else "greater")
            return f"{name}<{type_of(e.dtype, e)}>({a}, {b})"
        return f"f{word}f({a}, {b})" if e.dtype.is_float else f"{word}({a}, {b})"
    if e.op in (BinaryOp.FLOORDIV, BinaryOp.FLOORMOD):
        word = "floordiv" if e.op is BinaryOp.FLOORDIV else "floormod"
        if e.dtype.is_float:
            raise unprintable(e, "divisions of floats that round down")
        if e.dtype.is_uint or (x.is_natural(e.a) and x.is_natural(e.b)):
            return f"({a} {'/' if word == 'floordiv' else '%'} {b})"
        return f"{x.helper(word)}<{type_of(e.dtype, e)}>({a}, {b})"
    return f"({a} {_SPELT.get(e.op, e.op.value)} {b})"


def _unary(x: Text, e: Unary) -> str:
    a = x.of(e.a)
    if e.op is UnaryOp.NOT or e.a.dtype.is_bool:
        return f"(!{a})"
    return f"({'-' if e.op is UnaryOp.NEG else '~'}{a})"


def _cast(x: Text, e: Cast) -> str:
    if e.rounding:
        raise unprintable(e, f"conversions that round {e.rounding}")
    source, target = str(e.a.dtype.base), str(e.type.base)
    value = x.of(e.a)
    if source in NARROW:
        value = f"{x.helper(f'from_{NARROW[source]}')}({value})"
        source = "float32"
    if target in NARROW:
        wide = value if source == "float32" else f"(float){value}"
        return f"{x.helper(f'to_{NARROW[target]}')}({wide})"
    return value if source == target else f"(({type_of(e.type, e)}){value})"


def _bitcast(x: Text, e: Bitcast) -> str:
    target, source = type_of(e.type, e), type_of(e.a.dtype, e)
    if x.is_scalar_unit:
        raise unprintable(e, "bits of one type as another on the scalar unit")
    return f"{x.helper('bits')}<{target}, {source}>({x.of(e.a)})"


# What has a function of float of this name and an `f` (SIMT API, mathematics of float).
_MATHS = frozenset(
    {
        *("exp", "exp2", "exp10", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "pow", "erf"),
        *("sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh"),
        *("atanh", "atan2", "hypot", "floor", "ceil", "trunc", "fmod", "copysign", "nextafter"),
    }
)
_SPELLED = {
    "abs": "fabsf({0})", "round": "rintf({0})", "round_away": "roundf({0})",
    "fma": "fmaf({0}, {1}, {2})", "ieee_fma": "fmaf({0}, {1}, {2})",
    "fast_rcp": "(1.0f / {0})", "sigmoid": "(1.0f / (1.0f + expf(-{0})))",
}  # fmt: skip
_TESTS = frozenset({"isnan", "isinf", "isfinite"})


def _call(x: Text, e: Call) -> str:
    if x.calls is not None:
        return x.calls(e)
    args = [x.of(a) for a in e.args]
    of = e.args[0].dtype
    if of.is_integer and of.bits <= 32:
        made = _of_bits(e.fn, args[0], of)
        if made is not None:
            return made
    if of.is_float and of.bits <= 32 and e.params in ((), ("rn",)):
        wide = args if of == "float32" else [f"(float){a}" for a in args]
        if e.fn in _TESTS:
            return f"{e.fn}({wide[0]})"
        form = _SPELLED.get(e.fn, "").format(*wide)
        if e.fn in _MATHS:
            form = f"{e.fn}f({', '.join(wide)})"
        if form:
            return form if of == "float32" else f"(({type_of(e.type, e)}){form})"
    raise unprintable(e, f"calls of T.{e.fn} on {e.type}")


def _of_bits(fn: str, a: str, dtype: DType) -> str | None:
    """A function of an integer of up to 32 bits, which there are for 32."""
    word = f"(uint32_t)(uint{dtype.bits}_t){a}"
    match fn:
        case "abs":
            return f"abs({a})"
        case "popcount":
            return f"__popc({word})"
        case "clz":
            return f"(__clz((int32_t){word}) - {32 - dtype.bits})"
        case "ffs":
            return f"__ffs((int32_t){word})"
        case _:
            return None


def _select(x: Text, e: Select) -> str:
    return f"({x.of(e.cond)} ? {x.of(e.t)} : {x.of(e.f)})"


def _elem(x: Text, e: Elem) -> str:
    if e.type.lanes != 1:
        raise unprintable(e, f"vectors of {e.type}")
    made = x.elements(e) if x.elements is not None else None
    if made is not None:
        return made
    index = x.of(e.index)
    if x.is_scalar_unit and e.array.space not in (Space.REGISTER, Space.LOCAL):
        return f"{e.array.name}.GetValue({index})"
    return f"{e.array.name}[{index}]"


def _addr(x: Text, e: Addr) -> str:
    return x.place(e.array, e.index)


def _var(x: Text, e: Var) -> str:
    del x
    return e.name


def _vector(x: Text, e: Pack | Lane) -> str:
    raise unprintable(e, "vectors of a thread")


_RULES: dict[type[Expr], Callable[[Text, Any], str]] = {
    Const: _const,
    Var: _var,
    Binary: _binary,
    Unary: _unary,
    Cast: _cast,
    Bitcast: _bitcast,
    Call: _call,
    Select: _select,
    Elem: _elem,
    Addr: _addr,
    Pack: _vector,
    Lane: _vector,
}
