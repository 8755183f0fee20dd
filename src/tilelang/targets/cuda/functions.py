"""The pure functions of `ir/functions.py` and the operators, as C++ on scalars.

What enters: a name, texts of operands in the type that is computed in (float32, float64 or an
integer type), that type. What leaves: the text of the result, and the prelude's names in `used`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilelang.dtypes import DType
from tilelang.errors import InternalError
from tilelang.ir.expr import BinaryOp
from tilelang.targets.cuda.types import value_type

Args = Sequence[str]

# float32's name; float64's is the same without the f at the end.
_NAMES = (
    "exp exp2 exp10 log log2 log10 log1p sqrt sin cos tan sinh cosh tanh asin acos atan asinh acosh"
    " atanh erf rsqrt floor ceil trunc fmod pow atan2 hypot copysign nextafter fma"
)
_LIBRARY = {name: f"{name}f" for name in _NAMES.split()} | {
    "round": "rintf",
    "round_away": "roundf",
}

_TESTS = {
    "isnan": "({0} != {0})",
    "isinf": "(fabs{f}({0}) == {inf})",
    "isfinite": "(fabs{f}({0}) < {inf})",
}
_MODES = {"rn": "rn", "rz": "rz", "ru": "ru", "rd": "rd", "rp": "ru", "rm": "rd"}


def float_function(  # noqa: PLR0911 - one line for each function
    name: str, args: Args, dtype: DType, used: set[str]
) -> str:
    """A function of floats, of float32 or float64."""
    double = dtype.bits == 64
    suffix = "" if double else "f"
    if name in _LIBRARY:
        known = _LIBRARY[name]
        return f"{known[:-1] if double else known}({', '.join(args)})"
    if name in _TESTS:
        inf = (
            "__longlong_as_double(0x7FF0000000000000ll)" if double else "__int_as_float(0x7F800000)"
        )
        return _TESTS[name].format(args[0], f=suffix, inf=inf)
    match name:
        case "abs":
            return f"fabs{suffix}({args[0]})"
        case "sigmoid":
            one = _one(dtype)
            return f"({one} / ({one} + exp{suffix}(-({args[0]}))))"
        case "fast_rcp":
            if double:
                return f"(1.0 / {args[0]})"
            used.add("frcp_approx")
            return f"tl::frcp_approx({args[0]})"
        case "exp2 normal":
            used.add("ex2")
            return f"tl::ex2({args[0]})"
        case "fmul":
            return f"__{'d' if double else 'f'}mul_rn({', '.join(args)})"
        case "clamp" | "ldexp":
            used.add(f"f{name}")
            return f"tl::f{name}({', '.join(args)})"
        case _:
            raise InternalError(f"no CUDA code for the function {name} of {dtype}")


def _one(dtype: DType) -> str:
    return "1.0" if dtype.bits == 64 else "1.0f"


def ieee(op: str, args: Args, mode: str, dtype: DType, used: set[str]) -> str:
    """An operation rounded once, as `mode` says, and never contracted."""
    double = dtype.bits == 64
    suffix = _MODES[mode]
    if op == "rsqrt":
        if double:
            if suffix != "rn":
                raise InternalError("rsqrt of float64 has one rounding only")
            return f"rsqrt({args[0]})"
        if suffix == "rn":
            return f"__frsqrt_rn({args[0]})"
        used.add("rsqrt_rounded")
        return f"tl::rsqrt_rounded({args[0]}, {('rn', 'rz', 'ru', 'rd').index(suffix)})"
    if op == "fma":
        return f"__fma{'' if double else 'f'}_{suffix}({', '.join(args)})"
    return f"__{'d' if double else 'f'}{op}_{suffix}({', '.join(args)})"


def integer_function(  # noqa: PLR0911 - one line for each function
    name: str, args: Args, dtype: DType, used: set[str]
) -> str:
    """A function of integers of whole bytes."""
    kind, bits = value_type(dtype), dtype.bits
    unsigned = f"u{bits}"
    x = args[0]
    wide = bits == 64
    match name:
        case "abs":
            if dtype.is_uint:
                return x
            used.add("iabs")
            return f"tl::iabs<{kind}, {unsigned if bits >= 32 else 'u32'}>({x})"
        case "iclamp":
            used.add("iclamp")
            return f"tl::iclamp<{kind}>({', '.join(args)})"
        case "popcount":
            return f"__popcll(u64({x}))" if wide else f"__popc(u32({unsigned}({x})))"
        case "clz":
            if wide:
                return f"__clzll(i64({x}))"
            spare = f" - {32 - bits}" if bits < 32 else ""
            return f"(__clz(i32(u32({unsigned}({x})))){spare})"
        case "ffs":
            return f"__ffsll(i64({x}))" if wide else f"__ffs(i32(u32({unsigned}({x}))))"
        case "fns":
            used.add("fns")
            base, nth = args[1], args[2]
            return f"{kind}(tl::fns<{bits}>(u64({unsigned}({x})), i64({base}), i32({nth})))"
        case _:
            raise InternalError(f"no CUDA code for the function {name} of {dtype}")


# Operators ---------------------------------------------------------------------------------------

_RING = {BinaryOp.ADD: "+", BinaryOp.SUB: "-", BinaryOp.MUL: "*"}
_BITS = {BinaryOp.BITAND: "&", BinaryOp.BITOR: "|", BinaryOp.BITXOR: "^"}


def float_operator(op: BinaryOp, a: str, b: str, dtype: DType, used: set[str]) -> str:
    """An operator on float32 or float64."""
    suffix = "" if dtype.bits == 64 else "f"
    if op in _RING or op is BinaryOp.DIV:
        return f"({a} {op.value} {b})"
    if op in (BinaryOp.MIN, BinaryOp.MAX):
        return f"f{op.value}{suffix}({a}, {b})"
    match op:
        case BinaryOp.FLOORDIV | BinaryOp.FLOORMOD:
            name = "ffloordiv" if op is BinaryOp.FLOORDIV else "ffloormod"
            used.add(name)
            return f"tl::{name}<{value_type(dtype)}>({a}, {b})"
        case BinaryOp.TRUNCDIV:
            return f"trunc{suffix}({a} / {b})"
        case BinaryOp.TRUNCMOD:
            return f"fmod{suffix}({a}, {b})"
        case _:
            raise InternalError(f"the operator {op.value} on {dtype}")


def integer_operator(  # noqa: PLR0911 - one line for each group of operators
    op: BinaryOp, a: str, b: str, dtype: DType, used: set[str]
) -> str:
    """An operator on integers of whole bytes; the result wraps."""
    kind, bits = value_type(dtype), dtype.bits
    if op in _RING:
        wide = "u64" if bits == 64 else "u32"
        if dtype.is_uint and bits >= 32:
            return f"({a} {_RING[op]} {b})"
        return f"{kind}({wide}({a}) {_RING[op]} {wide}({b}))"
    if op in _BITS:
        text = f"({a} {_BITS[op]} {b})"
        return text if bits >= 32 else f"{kind}{text}"
    match op:
        case BinaryOp.MIN | BinaryOp.MAX:
            if bits >= 32:
                return f"{op.value}({a}, {b})"
            return f"{kind}({op.value}(i32({a}), i32({b})))"
        case BinaryOp.DIV | BinaryOp.TRUNCDIV:
            return f"{kind}({a} / {b})"
        case BinaryOp.TRUNCMOD:
            return f"{kind}({a} % {b})"
        case BinaryOp.FLOORDIV | BinaryOp.FLOORMOD:
            if dtype.is_uint:
                return f"{kind}({a} {'/' if op is BinaryOp.FLOORDIV else '%'} {b})"
            name = "floordiv" if op is BinaryOp.FLOORDIV else "floormod"
            used.add(name)
            return f"tl::{name}<{kind}>({a}, {b})"
        case BinaryOp.SHL | BinaryOp.SHR:
            name = "shl" if op is BinaryOp.SHL else "shr"
            used.add(name)
            return f"tl::{name}<{kind}, u{bits}>({a}, {b})"
        case _:
            raise InternalError(f"the operator {op.value} on {dtype}")


BOOL_OPERATORS: dict[BinaryOp, str] = {
    BinaryOp.AND: "&&",
    BinaryOp.OR: "||",
    BinaryOp.MIN: "&&",
    BinaryOp.MAX: "||",
    BinaryOp.BITAND: "&&",
    BinaryOp.BITOR: "||",
    BinaryOp.BITXOR: "!=",
    BinaryOp.EQ: "==",
    BinaryOp.NE: "!=",
    BinaryOp.LT: "<",
    BinaryOp.LE: "<=",
    BinaryOp.GT: ">",
    BinaryOp.GE: ">=",
}
