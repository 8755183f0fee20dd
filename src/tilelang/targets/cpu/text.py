"""LLVM IR as text: modules, functions and the instructions of a basic block.

What enters: calls, one for each instruction. What leaves: `Module.text`, which LLVM parses. Text is
LLVM's own stable interface; it needs no objects for instructions and is checked by LLVM's verifier.

A `Value` is an operand with its type. All instructions work on vectors `<n x T>` as on scalars.
Helpers of a module (casts, maths) are functions that are always inlined, defined once by name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tilelang.errors import InternalError


@dataclass(frozen=True, slots=True)
class Value:
    """An operand: its LLVM type and how it is spelled."""

    type: str
    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def typed(self) -> str:
        """The operand with its type in front."""
        return f"{self.type} {self.text}"


def vector(element: str, lanes: int) -> str:
    """The type of `lanes` elements, the element itself for one."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def lanes_of(kind: str) -> int:
    """The number of lanes of a type; 1 for a scalar."""
    return int(kind[1:].split(" ", 1)[0]) if kind.startswith("<") else 1


def element_of(kind: str) -> str:
    """The type of one lane."""
    return kind[1:-1].split(" x ", 1)[1] if kind.startswith("<") else kind


def like(kind: str, element: str) -> str:
    """`element` in as many lanes as `kind` has."""
    return vector(element, lanes_of(kind))


def int_bits(kind: str) -> int:
    """The width of an integer type (of a lane)."""
    return int(element_of(kind)[1:])


def number(kind: str, value: int | float | bool) -> Value:
    """A constant, the same in all lanes. A float is given by its bits, so NaN and -0.0 survive."""
    element = element_of(kind)
    if element == "double":
        text = _double(float(value))
    elif element == "float":
        (rounded,) = struct.unpack("<f", struct.pack("<f", value))
        text = _double(rounded)
    elif element == "i1":
        text = "true" if value else "false"
    else:
        text = str(int(value))
    return Value(kind, text if element is kind or element == kind else f"splat ({element} {text})")


def _double(value: float) -> str:
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return f"0x{bits:016X}"


@dataclass
class Module:
    """A module under construction: what functions, declarations, constants and metadata it has."""

    functions: dict[str, str] = field(default_factory=dict[str, str])
    declarations: dict[str, str] = field(default_factory=dict[str, str])
    constants: dict[str, str] = field(default_factory=dict[str, str])
    metadata: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        """The module as LLVM reads it."""
        parts = [
            *self.constants.values(),
            *self.declarations.values(),
            *self.functions.values(),
            *self.metadata,
        ]
        return "\n".join(parts) + "\n"

    def declare(self, name: str, result: str, types: Sequence[str], attributes: str = "") -> str:
        """An external function or an intrinsic; returns its name with the `@`."""
        if name not in self.declarations:
            listed = ", ".join(types)
            self.declarations[name] = f"declare {result} @{name}({listed}) {attributes}".rstrip()
        return f"@{name}"

    def helper(
        self,
        name: str,
        types: Sequence[str],
        result: str,
        body: Callable[[Code, Sequence[Value]], Value],
    ) -> str:
        """A function of this module that is inlined wherever it is called; defined once by name."""
        if name not in self.functions:
            self.functions[name] = ""  # a helper that calls itself is a fault that LLVM reports
            code = Code(
                self, f'"{name}"', result, types, linkage="private", attributes="alwaysinline"
            )
            found = body(code, code.args)
            code.emit(f"ret {found.typed}")
            del self.functions[name]  # after the helpers that it uses
            self.functions[name] = code.text
        return f'@"{name}"'

    def constant(self, kind: str, text: str) -> Value:
        """The address of a read-only global with this initial value."""
        name = next((n for n, t in self.constants.items() if t.endswith(f" {kind} {text}")), None)
        if name is None:
            name = f"@c{len(self.constants)}"
            self.constants[name] = f"{name} = private unnamed_addr constant {kind} {text}"
        return Value("ptr", name)

    def node(self, text: str, *, distinct: bool = False) -> str:
        """A metadata node; `{self}` in the text is its own name. Returns the name."""
        name = f"!{len(self.metadata)}"
        body = text.replace("{self}", name)
        self.metadata.append(f"{name} = {'distinct ' if distinct else ''}{body}")
        return name


class Code:
    """A function under construction, at the end of its current block."""

    def __init__(
        self,
        module: Module,
        name: str,
        result: str,
        types: Sequence[str],
        *,
        linkage: str = "",
        attributes: str = "",
    ) -> None:
        self.module = module
        self.args = [
            Value(t.split(" ", 1)[0] if t.startswith("ptr") else t, f"%a{n}")
            for n, t in enumerate(types)
        ]
        listed = ", ".join(f"{t} {a}" for t, a in zip(types, self.args, strict=True))
        self.head = f"define {linkage} {result} @{name}({listed}) {attributes} {{".replace(
            "  ", " "
        )
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.ended = False
        self._count = 0

    @property
    def text(self) -> str:
        """The finished function."""
        return "\n".join(
            [self.head, "entry:", *self.entry, "  br label %start", "start:", *self.lines, "}"]
        )

    # Blocks --------------------------------------------------------------------------------------

    def label(self, hint: str = "b") -> str:
        """A new label, not placed yet."""
        self._count += 1
        return f"{hint}{self._count}"

    def place(self, label: str) -> None:
        """Begin the block `label`; the block before falls into it unless it has ended."""
        if not self.ended:
            self.emit(f"br label %{label}")
        self.lines.append(f"{label}:")
        self.ended = False

    def jump(self, label: str, suffix: str = "") -> None:
        """End the block."""
        self.emit(f"br label %{label}{suffix}")
        self.ended = True

    def branch(self, cond: Value, yes: str, no: str, suffix: str = "") -> None:
        """End the block, on a condition."""
        self.emit(f"br i1 {cond}, label %{yes}, label %{no}{suffix}")
        self.ended = True

    def ret(self, value: Value | None = None) -> None:
        """End the function here."""
        self.emit("ret void" if value is None else f"ret {value.typed}")
        self.ended = True

    # Instructions --------------------------------------------------------------------------------

    def emit(self, text: str) -> None:
        """An instruction without a result."""
        if self.ended:  # what follows an end is never reached, but must stand in a block
            self.lines.append(f"{self.label('dead')}:")
            self.ended = False
        self.lines.append("  " + text)

    def value(self, kind: str, text: str) -> Value:
        """An instruction with a result of `kind`."""
        self._count += 1
        name = f"%v{self._count}"
        self.emit(f"{name} = {text}")
        return Value(kind, name)

    def op(self, name: str, a: Value, b: Value) -> Value:
        """A binary instruction (`add`, `fmul`, `shl`...); flags may stand in the name."""
        if a.type != b.type:
            raise InternalError(f"{name} of {a.type} and {b.type}")
        return self.value(a.type, f"{name} {a.typed}, {b}")

    def compare(self, predicate: str, a: Value, b: Value) -> Value:
        """`icmp` or `fcmp`, by the type: `eq`, `slt`, `ult`, `oeq`, `une`, `uno`..."""
        kind = "fcmp" if element_of(a.type) in ("float", "double", "half") else "icmp"
        return self.value(like(a.type, "i1"), f"{kind} {predicate} {a.typed}, {b}")

    def select(self, cond: Value, t: Value, f: Value) -> Value:
        """`t` where `cond` holds, else `f`; a scalar condition selects whole vectors."""
        return self.value(t.type, f"select {cond.typed}, {t.typed}, {f.typed}")

    def cast(self, name: str, a: Value, kind: str) -> Value:
        """A conversion instruction (`zext`, `fptrunc`, `bitcast`...) to `kind`."""
        return (
            a
            if a.type == kind and name == "bitcast"
            else self.value(kind, f"{name} {a.typed} to {kind}")
        )

    def call(self, name: str, result: str, args: Sequence[Value], suffix: str = "") -> Value:
        """A call of a function (with its `@`) that returns something."""
        listed = ", ".join(a.typed for a in args)
        return self.value(result, f"call {result} {name}({listed}){suffix}")

    def call_void(self, name: str, args: Sequence[Value]) -> None:
        """A call of a function (with its `@`) that returns nothing."""
        self.emit(f"call void {name}({', '.join(a.typed for a in args)})")

    def intrinsic(self, name: str, *args: Value, result: str = "") -> Value:
        """`@llvm.<name>` overloaded on the type of the first operand, as `llvm.sqrt` is."""
        kind = args[0].type
        full = f"llvm.{name}.{mangled(kind)}"
        made = self.module.declare(full, result or kind, [a.type for a in args])
        return self.call(made, result or kind, args)

    def splat(self, a: Value, lanes: int) -> Value:
        """A scalar in all lanes."""
        if lanes == 1:
            return a
        kind = vector(a.type, lanes)
        first = self.value(kind, f"insertelement {kind} poison, {a.typed}, i32 0")
        return self.value(
            kind, f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer"
        )

    def extract(self, a: Value, lane: int) -> Value:
        """One lane."""
        return (
            a
            if lanes_of(a.type) == 1
            else self.value(element_of(a.type), f"extractelement {a.typed}, i32 {lane}")
        )

    def insert(self, a: Value, b: Value, lane: int) -> Value:
        """`a` with another lane."""
        return self.value(a.type, f"insertelement {a.typed}, {b.typed}, i32 {lane}")

    # Memory --------------------------------------------------------------------------------------

    def alloca(self, kind: str, count: int = 1, align: int = 0) -> Value:
        """Storage for the whole run of the function."""
        self._count += 1
        name = f"%m{self._count}"
        many = f", i32 {count}" if count != 1 else ""
        aligned = f", align {align}" if align else ""
        self.entry.append(f"  {name} = alloca {kind}{many}{aligned}")
        return Value("ptr", name)

    def gep(self, base: Value, kind: str, index: Value) -> Value:
        """The address of element `index` of an array of `kind` at `base`."""
        return self.value("ptr", f"getelementptr inbounds {kind}, ptr {base}, {index.typed}")

    def load(self, kind: str, at: Value, align: int = 0, suffix: str = "") -> Value:
        """Read memory."""
        aligned = f", align {align}" if align else ""
        return self.value(kind, f"load {kind}, ptr {at}{aligned}{suffix}")

    def store(self, value: Value, at: Value, align: int = 0, suffix: str = "") -> None:
        """Write memory."""
        aligned = f", align {align}" if align else ""
        self.emit(f"store {value.typed}, ptr {at}{aligned}{suffix}")


def mangled(kind: str) -> str:
    """A type as it stands in the name of an overloaded intrinsic."""
    names = {"float": "f32", "double": "f64", "half": "f16"}
    element = element_of(kind)
    lanes = lanes_of(kind)
    short = "p0" if element == "ptr" else names.get(element, element)
    return short if lanes == 1 else f"v{lanes}{short}"
