"""Compares two programs in normal form: the loops, buffers, operations and values of a kernel.

What enters: two lists of statements (`oracle_rules.py` makes them of either package's IR). What
leaves: the differences, each with its place. Names do not count: a variable or buffer is known by
where it is bound. Nor does the way in which an integer sum is written: integer arithmetic is
compared as a polynomial. All else counts: kinds and order of statements, extents, dtypes, shapes,
scopes, regions, casts, constants and the settings of operations.

A statement is a `Stmt`. An expression is a list that begins with its kind:
`["const", dtype, value]`, `["var", name]`, `["load", buffer, indices]`, `["bin", op, a, b]`,
`["un", op, a]`, `["cast", dtype, a]`, `["bitcast", dtype, a]`, `["select", cond, t, f]`,
`["fn", name, dtype, args]`, `["address", buffer, indices]`; a region is
`["region", buffer, mins, extents]`, a buffer as such `["whole", buffer]`, and `["set", values]` has
no order.
"""

from __future__ import annotations

import json
import math
import re
import struct
from dataclasses import dataclass, field
from typing import Any

Form = list[Any]
_VALUES = ("const", "var", "load", "bin", "un", "cast", "bitcast", "select", "fn", "address")
HEADS = frozenset((*_VALUES, "region", "whole", "ramp", "broadcast", "set"))
COMPARES = frozenset(("==", "!=", "<", "<=", ">", ">="))
_OF_BOOLS = {"&": "and", "|": "or", "^": "!="}
_MIRRORED = {">": "<", ">=": "<="}
INT32 = "int32"
ONE = ["const", INT32, 1]


@dataclass
class Stmt:
    """One statement. `binds` are pairs (name, dtype) that it defines for its bodies and for what
    follows; `buffer` is a buffer that it declares: name, dtype, shape, scope, strides.
    """

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    binds: list[tuple[str, str]] = field(default_factory=list)
    buffer: Form | None = None
    bodies: dict[str, list[Stmt]] = field(default_factory=dict)


@dataclass
class Program:
    """A program: its parameters, which are statements that declare, and its host-level body."""

    name: str
    params: list[Stmt]
    body: list[Stmt]
    views: dict[str, Form] = field(default_factory=dict)


class Side:
    """What is known of the names of one program: the number and dtype of each. A view has no number
    but what it is: dtype, shape, strides, whose memory, offset.
    """

    def __init__(self, views: dict[str, Form] | None = None) -> None:
        self.numbers: dict[str, str] = {}
        self.views = views or {}
        self.lets: dict[str, Form] = {}
        self.inlined: dict[str, Form] = {}
        self.dtypes: dict[str, str] = {name: view[0] for name, view in self.views.items()}

    def number(self, name: str) -> Any:
        """What a name is known by on both sides."""
        if name in self.numbers:
            return self.numbers[name]
        if name in self.views:
            dtype, shape, strides, source, offset = self.views[name]
            parts = [self.canonical(x) for x in (shape, strides, offset)]
            return ["view", dtype, self.number(source), *parts]
        return f"free {name}"

    def bind(self, name: str, number: str, dtype: str) -> None:
        """Give a name its number."""
        self.numbers[name], self.dtypes[name] = number, dtype

    def inline(self, s: Stmt) -> bool:
        """Let a name stand for its value from here on, where the value cannot change."""
        if s.kind != "let" or _loads(s.fields["value"]):
            return False
        [(name, dtype)] = s.binds
        self.dtypes[name] = dtype
        self.inlined[name] = s.fields["value"]
        return True

    def dtype(self, e: Form) -> str:  # noqa: PLR0911 - one for each kind
        """The dtype of an expression."""
        match e[0]:
            case "const" | "cast" | "bitcast":
                return e[1]
            case "var" | "load":
                return self.dtypes.get(e[1], INT32)
            case "fn":
                return e[2]
            case "bin":
                boolean = e[1] in COMPARES or e[1] in ("and", "or")
                return "bool" if boolean else self.dtype(e[2])
            case "un":
                return "bool" if e[1] == "not" else self.dtype(e[2])
            case "select":
                return self.dtype(e[2])
            case _:
                return "handle"

    # -- values
    # ------------------------------------------------------------------------------------

    def canonical(self, e: Any) -> Any:
        """A value with names replaced by numbers, constants folded, integer sums in order."""
        if isinstance(e, dict):
            return {k: self.canonical(v) for k, v in sorted(e.items())}
        if not isinstance(e, list):
            return e
        if not e or not isinstance(e[0], str) or e[0] not in HEADS:
            return [self.canonical(x) for x in e]
        if e[0] in ("bin", "un", "const", "cast") and _is_int(self.dtype(e)):
            return _written(self.polynomial(e), self.dtype(e))
        return self._plain(e)

    def _plain(self, e: Form) -> Any:  # noqa: PLR0911 - one for each kind
        match e[0]:
            case "const":
                return ["const", e[1], rounded(e[2], e[1])]
            case "var" if e[1] in self.inlined:
                return self.canonical(self.inlined[e[1]])
            case "var":
                return ["var", self.number(e[1])]
            case "load" | "address":
                return [e[0], self.number(e[1]), self.canonical(e[2])]
            case "region":
                extents = [self._extent(x) for x in e[3]]
                return ["region", self.number(e[1]), self.canonical(e[2]), extents]
            case "bin":
                return self._binary(e)
            case "whole":
                return ["whole", self.number(e[1])]
            case "set":
                return ["set", *sorted((self.canonical(x) for x in e[1]), key=json.dumps)]
            case "un" if e[1] == "-":  # upstream writes a negation as a product
                return self._binary(["bin", "*", e[2], ["const", self.dtype(e[2]), -1]])
            case "select" if self.dtype(e[2]) == "bool":
                return self._choice(*(self.canonical(x) for x in e[1:4]))
            case "cast":
                return folded_cast(e[1], self.canonical(e[2]))
            case _:
                return [e[0], *(self.canonical(x) for x in e[1:])]

    def _choice(self, cond: Any, yes: Any, no: Any) -> Any:
        """A choice between conditions; one with a constant arm is an `and` or an `or`."""
        if no[0] == "const" and not no[2]:
            return _logical("and", cond, yes)
        if yes[0] == "const" and yes[2]:
            return _logical("or", cond, no)
        return ["select", cond, yes, no]

    def _extent(self, e: Form) -> Any:
        """An extent; a number where it is one once names are replaced by their values."""
        plain = self.canonical(e)
        if plain[0] == "const" or not self.lets:
            return plain
        outer, self.inlined = self.inlined, self.lets | self.inlined
        known = self.canonical(e)
        self.inlined = outer
        return known if known[0] == "const" else plain

    def _binary(self, e: Form) -> Any:
        op, left, right = e[1], e[2], e[3]
        if op in _OF_BOOLS and self.dtype(left) == "bool" == self.dtype(right):
            op = _OF_BOOLS[op]
        if op in _MIRRORED:
            op, left, right = _MIRRORED[op], right, left
        if op in COMPARES and _is_int(self.dtype(left)):
            return self._int_compare(op, left, right)
        a, b = self.canonical(left), self.canonical(right)
        if a[0] == "const" and b[0] == "const" and op in _FOLD and op not in COMPARES:
            return ["const", a[1], rounded(_FOLD[op](_number(a[2]), _number(b[2])), a[1])]
        if op in ("and", "or"):
            return _logical(op, a, b)
        return _without_unit(op, a, b)

    def _int_compare(self, op: str, left: Form, right: Form) -> Any:
        """A comparison of integers: the difference of its sides against zero."""
        dtype = self.dtype(left)
        both = _added(self.polynomial(left), self.polynomial(right), -1)
        if set(both) <= {()}:
            value = both.get((), 0)
            truth = {"==": value == 0, "!=": value != 0, "<": value < 0, "<=": value <= 0}[op]
            return ["const", "bool", int(truth)]
        if op in ("==", "!=") and both[max(both)] < 0:
            both = {k: -v for k, v in both.items()}
        if op == "<=":  # a <= b is a < b + 1
            op, both = "<", _added(both, {(): 1}, -1)
        return ["bin", op, _written(both, dtype), ["const", dtype, 0]]

    # -- integers
    # ----------------------------------------------------------------------------------

    def polynomial(self, e: Form) -> dict[tuple[str, ...], int]:  # noqa: PLR0911 - one for each kind
        """An integer expression as a sum: the factor of each product of atoms."""
        match e:
            case ["const", dtype, value]:
                return {(): rounded(value, dtype)} if value else {}
            case ["bin", "+", ["bin", "//", a, b], rest] if rest == _remains(rest, a, b):
                return self.polynomial(["bin", "//", ["bin", "+", a, ["bin", "-", b, ONE]], b])
            case ["bin", "+", a, b]:
                return _added(self.polynomial(a), self.polynomial(b), 1)
            case ["bin", "-", a, b]:
                return _added(self.polynomial(a), self.polynomial(b), -1)
            case ["bin", "*", a, b]:
                return _multiplied(self.polynomial(a), self.polynomial(b))
            case ["un", "-", a]:
                return _added({}, self.polynomial(a), -1)
            case ["var", name] if name in self.inlined:
                return self.polynomial(self.inlined[name])
            case ["bin", "//" | "truncdiv" | "%" | "truncmod", a, b]:
                return self._divided(e[1], a, b)
            case ["cast", dtype, a]:
                made = folded_cast(dtype, self.canonical(a))
                return _constant(made) if made[0] == "const" else {(json.dumps(made),): 1}
            case ["bin", op, a, b]:
                x, y = self.canonical(a), self.canonical(b)
                if x[0] == "const" and y[0] == "const" and op in _FOLD:
                    value = _FOLD[op](x[2], y[2])
                    return {(): rounded(value, x[1])} if value else {}
                return {(json.dumps(["bin", op, x, y]),): 1}
            case _:
                return {(json.dumps(self._plain(e)),): 1}

    def _divided(self, op: str, a: Form, b: Form) -> dict[tuple[str, ...], int]:
        x, y = self.polynomial(a), self.polynomial(b)
        if set(y) == {()} and y[()] > 0 and op in ("//", "%"):
            d = y[()]
            whole = {k: v // d for k, v in x.items() if v % d == 0}
            rest = {k: v for k, v in x.items() if v % d}
            if set(rest) <= {()}:  # floor division by d of whole * d + a constant
                constant = rest.get((), 0)
                quotient = _added(whole, {(): constant // d}, 1)
                return quotient if op == "//" else _constant(["const", INT32, constant % d])
            atom = {(json.dumps(["bin", op, _written(rest, self.dtype(a)), d]),): 1}
            return _added(whole, atom, 1) if op == "//" else atom
        if set(x) <= {()} and set(y) == {()} and y[()]:
            return _constant(["const", INT32, _FOLD[op](x.get((), 0), y[()])])
        p, q = _written(x, self.dtype(a)), _written(y, self.dtype(b))
        return {(json.dumps(["bin", op, p, q]),): 1}


def _remains(e: Form, a: Form, b: Form) -> Form | None:
    """`a % b != 0` as an integer of the dtype of `e`, where `e` is a conversion."""
    if e[0] != "cast":
        return None
    return ["cast", e[1], ["bin", "!=", ["bin", "%", a, b], ["const", e[1], 0]]]


def _loads(e: Any) -> bool:
    """Whether a value depends on memory or on other threads."""
    if isinstance(e, dict):
        return any(_loads(v) for v in e.values())
    if not isinstance(e, list):
        return False
    return e[:1] in (["load"], ["fn"]) or any(_loads(x) for x in e)


Poly = dict[tuple[str, ...], int]


def _added(a: Poly, b: Poly, sign: int) -> Poly:
    out = dict(a)
    for key, factor in b.items():
        out[key] = out.get(key, 0) + sign * factor
    return {k: v for k, v in out.items() if v}


def _multiplied(a: Poly, b: Poly) -> Poly:
    out: Poly = {}
    for x, p in a.items():
        for y, q in b.items():
            key = tuple(sorted((*x, *y)))
            out[key] = out.get(key, 0) + p * q
    return {k: v for k, v in out.items() if v}


def _constant(e: Form) -> Poly:
    return {(): e[2]} if e[2] else {}


def _written(poly: Poly, dtype: str) -> Any:
    """A sum as a canonical expression."""
    if set(poly) <= {()}:
        return ["const", dtype, rounded(poly.get((), 0), dtype)]
    if len(poly) == 1:
        [(key, factor)] = poly.items()
        if len(key) == 1 and factor == 1:
            return json.loads(key[0])
    return ["sum", dtype, *([poly[k], *(json.loads(x) for x in k)] for k in sorted(poly))]


def _is_int(dtype: str) -> bool:
    return dtype.startswith(("int", "uint")) and "x" not in dtype


def _without_unit(op: str, a: Any, b: Any) -> Any:
    """A float operation; `x * 1`, `x / 1`, `x + 0` and `x - 0` are `x`, as upstream has them."""
    unit = {"*": 1.0, "/": 1.0, "+": 0.0, "-": 0.0}.get(op)
    if unit is not None and b[0] == "const" and _number(b[2]) == unit:
        return a
    if op in "+*" and a[0] == "const" and _number(a[2]) == unit:
        return b
    return ["bin", op, a, b]


def _logical(op: str, a: Form, b: Form) -> Any:
    """`a and b`, with what is known left out."""
    neutral = 1 if op == "and" else 0
    for x, y in ((a, b), (b, a)):
        if x[0] == "const":
            return y if x[2] == neutral else ["const", "bool", 1 - neutral]
    parts = [y for x in (a, b) for y in (x[2:] if x[:2] == ["all", op] else [x])]
    return ["all", op, *parts]


def _number(x: Any) -> Any:
    return float(x) if isinstance(x, str) else x


_FORMATS = {"float64": "d", "float32": "f", "float16": "e"}


def rounded(value: Any, dtype: str) -> Any:
    """A constant as its dtype has it: an integer, or the text of a float."""
    if _is_int(dtype) or dtype == "bool":
        number = int(_number(value))
        if dtype == "bool":
            return int(bool(number))
        bits = int("".join(c for c in dtype if c.isdigit()))
        wrapped = number % (1 << bits)
        return wrapped - (1 << bits) if dtype[0] == "i" and wrapped >> (bits - 1) else wrapped
    number = float(_number(value))
    if math.isfinite(number):
        try:
            if dtype == "bfloat16":
                [word] = struct.unpack("<I", struct.pack("<f", number))
                word = (word + 0x7FFF + (word >> 16 & 1)) & 0xFFFF0000
                [number] = struct.unpack("<f", struct.pack("<I", word))
            elif dtype in _FORMATS:
                code = _FORMATS[dtype]
                [number] = struct.unpack(code, struct.pack(code, number))
        except OverflowError:
            number = math.copysign(math.inf, number)
    return repr(number)


def folded_cast(dtype: str, a: Any) -> Any:
    """A conversion, carried out where its operand is a number that needs no rounding rule."""
    if a[0] == "const" and not (_is_int(dtype) and not _is_int(a[1]) and a[1] != "bool"):
        return ["const", dtype, rounded(a[2], dtype)]
    return ["cast", dtype, a]


def _safe(op: Any) -> Any:
    def fold(a: Any, b: Any) -> Any:
        try:
            return op(a, b)
        except ZeroDivisionError:
            return math.nan

    return fold


_FOLD: dict[str, Any] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _safe(lambda a, b: a / b),
    "//": _safe(lambda a, b: a // b),
    "%": _safe(lambda a, b: a % b),
    "truncdiv": _safe(lambda a, b: int(a / b)),
    "truncmod": _safe(math.fmod),
    "min": min,
    "max": max,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
    "<<": lambda a, b: a << b,
    ">>": lambda a, b: a >> b,
}


# -- comparison
# ---------------------------------------------------------------------------------------


class Comparison:
    """Walks two programs side by side; `found` are the differences, in the words of both sides."""

    def __init__(self, left: str, right: str) -> None:
        self.names = left, right
        self.left, self.right = Side(), Side()
        self.found: list[str] = []
        self._count = 0

    def differ(self, place: str, a: Any, b: Any) -> None:
        """Note a difference."""
        texts = [x if isinstance(x, str) else json.dumps(x) for x in (a, b)]
        self.found.append(f"{place}: {self.names[0]} {texts[0]}; {self.names[1]} {texts[1]}")

    def program(self, a: Program, b: Program) -> list[str]:
        """All differences of two programs."""
        self.left, self.right = Side(a.views), Side(b.views)
        self.body("parameters", a.params, b.params)
        self.body(a.name, a.body, b.body)
        return self.found

    def merged(self, s: Stmt) -> Stmt:
        """An `if` that holds nothing but another one, as one `if` of both conditions."""
        while s.kind == "if" and not s.bodies["else"] and len(s.bodies["then"]) == 1:
            [inner] = s.bodies["then"]
            if inner.kind != "if" or inner.bodies["else"]:
                break
            cond = ["bin", "and", s.fields["cond"], inner.fields["cond"]]
            s = Stmt("if", {"cond": cond}, bodies=inner.bodies)
        return s

    def body(self, place: str, a: list[Stmt], b: list[Stmt]) -> None:
        """Two sequences of statements. After statements of different kinds the rest of the sequence
        is not looked at, since it would not line up.
        """
        n = m = 0
        while n < len(a) and m < len(b):
            x, y = self.merged(a[n]), self.merged(b[m])
            if x.kind == y.kind and (x.kind != "let" or _one_name(x, y)):
                self.statement(f"{place}[{n}] {x.kind}", x, y)
                n, m = n + 1, m + 1
            elif self.right.inline(y):
                m += 1
            elif self.left.inline(x):
                n += 1
            elif x.kind == y.kind:
                self.statement(f"{place}[{n}] {x.kind}", x, y)
                n, m = n + 1, m + 1
            else:
                self.differ(f"{place}[{n}]", summary(x), summary(y))
                return
        rest = [s for s in a[n:] if not self.left.inline(s)]
        rest += [s for s in b[m:] if not self.right.inline(s)]
        if rest:
            more = self.names[0] if n < len(a) else self.names[1]
            self.found.append(f"{place}: only {more} has {'; '.join(map(summary, rest[:3]))}")

    def statement(self, place: str, a: Stmt, b: Stmt) -> None:
        """Two statements of one kind."""
        for key in dict.fromkeys([*a.fields, *b.fields]):
            self.value(f"{place}.{key}", a.fields.get(key), b.fields.get(key))
        if (a.buffer is None) != (b.buffer is None):
            self.differ(f"{place}.buffer", str(a.buffer), str(b.buffer))
        elif a.buffer is not None and b.buffer is not None:
            self._buffer(place, a.buffer, b.buffer)
        if len(a.binds) != len(b.binds):
            self.differ(f"{place} variables", str(a.binds), str(b.binds))
        if a.kind == "let":
            self.left.lets[a.binds[0][0]] = a.fields["value"]
            self.right.lets[b.binds[0][0]] = b.fields["value"]
        for x, y in zip(a.binds, b.binds, strict=False):
            if x[1] != y[1]:
                self.differ(f"{place} dtype of {x[0].split('@')[0]}", x[1], y[1])
            self._pair(x, y)
        for key in dict.fromkeys([*a.bodies, *b.bodies]):
            inside = place if key == "body" else f"{place}.{key}"
            self.body(inside, a.bodies.get(key, []), b.bodies.get(key, []))

    def value(self, place: str, a: Any, b: Any) -> None:
        """Two values of a field."""
        x, y = self.left.canonical(a), self.right.canonical(b)
        if x != y:
            self.differ(place, x, y)

    def _buffer(self, place: str, a: Form, b: Form) -> None:
        what = f"{place} {a[0].split('@')[0]}"
        for n, aspect in ((1, "dtype"), (2, "shape"), (3, "scope"), (4, "strides")):
            self.value(f"{what} {aspect}", a[n], b[n])
        self._pair((a[0], a[1]), (b[0], b[1]))

    def _pair(self, a: tuple[str, str], b: tuple[str, str]) -> None:
        """Two names that mean one thing from here on."""
        self._count += 1
        number = f"{a[0].split('@')[0]}#{self._count}"
        self.left.bind(a[0], number, a[1])
        self.right.bind(b[0], number, b[1])


def _one_name(a: Stmt, b: Stmt) -> bool:
    """Whether two lets bind the same name of the program; a number behind it does not count."""
    names = [re.sub(r"(_\d+)?$", "", s.binds[0][0].split("@")[0]) for s in (a, b)]
    return names[0] == names[1]


def summary(s: Stmt) -> str:
    """A statement in a few words."""
    names = [
        x[1].split("@")[0] for x in s.fields.values() if isinstance(x, list) and x[:1] == ["region"]
    ]
    if isinstance(s.fields.get("name"), str):
        names.insert(0, s.fields["name"])
    names += [n.split("@")[0] for n, _ in s.binds]
    if s.buffer is not None:
        names.append(s.buffer[0].split("@")[0])
    return f"{s.kind}({', '.join(names)})"


def differences(a: Program, b: Program, left: str = "upstream", right: str = "own") -> list[str]:
    """What differs between two programs, in order; empty where they agree."""
    return Comparison(left, right).program(a, b)
