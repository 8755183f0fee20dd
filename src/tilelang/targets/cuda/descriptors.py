"""Words that instructions take as bit fields, built from one table each.

What enters: the values of fields in the units of the PTX ISA's text (bytes, elements, codes). What
leaves: an integer, or for a shared-memory descriptor the constant part that is joined with the
address at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilelang.errors import InternalError


@dataclass(frozen=True)
class Field:
    """Bits `low` to `low + width - 1`; the field holds the value divided by `unit`."""

    name: str
    low: int
    width: int
    unit: int = 1
    doc: str = ""

    def encode(self, value: int) -> int:
        """The word that has `value` in this field. InternalError if it does not fit."""
        if value % self.unit or not 0 <= value // self.unit < 1 << self.width:
            raise InternalError(
                f"{self.name} = {value}: expected a multiple of {self.unit} below"
                f" {self.unit << self.width}"
            )
        return value // self.unit << self.low


Fields = tuple[Field, ...]

WGMMA_MATRIX: Fields = (
    Field("address", 0, 14, 16, "byte address in shared memory; 18 bits count"),
    Field("leading", 16, 14, 16, "leading dimension byte offset"),
    Field("stride", 32, 14, 16, "stride dimension byte offset"),
    Field("base_offset", 49, 3, 1, "0 where the pattern of the swizzle begins at the address"),
    Field("swizzle", 62, 2, 1, "0 none, 1 of 128 bytes, 2 of 64 bytes, 3 of 32 bytes"),
)
"""PTX ISA 9.0, Asynchronous Warpgroup Level Matrix Instructions: Matrix Descriptor Format."""

TCGEN05_MATRIX: Fields = (
    Field("address", 0, 14, 16, "byte address in shared memory; 18 bits count"),
    Field("leading", 16, 14, 16, "leading dimension byte offset"),
    Field("stride", 32, 14, 16, "stride dimension byte offset"),
    Field("version", 46, 3, 1, "always 1"),
    Field("base_offset", 49, 3, 1, "0 where the pattern of the swizzle begins at the address"),
    Field("swizzle", 61, 3, 1, "0 none, 2 of 128 bytes, 4 of 64 bytes, 6 of 32 bytes"),
)
"""PTX ISA 9.0, tcgen05: Shared memory descriptor."""

_OPERANDS = (
    Field("negate_a", 13, 1),
    Field("negate_b", 14, 1),
    Field("transpose_a", 15, 1, 1, "1 where A is M-major"),
    Field("transpose_b", 16, 1, 1, "1 where B is N-major"),
    Field("n", 17, 6, 8, "columns of D"),
    Field("m", 24, 5, 16, "rows of D, of both blocks of a pair"),
)

TCGEN05_INSTRUCTION: Fields = (
    Field("d", 4, 2, 1, "type of D: 0 F16, 1 F32, 2 S32"),
    Field("a", 7, 3, 1, "type of A: a value of TCGEN05_TYPES"),
    Field("b", 10, 3, 1, "type of B, as of A"),
    *_OPERANDS,
)
"""PTX ISA 9.0, tcgen05: Instruction descriptor of kinds f16, tf32, f8f6f4 and i8."""

TCGEN05_SCALED_INSTRUCTION: Fields = (
    Field("scale_b_at", 4, 2, 1, "byte of the cells at which the scales of B begin"),
    Field("a", 7, 3, 1, "type of A: a value of TCGEN05_TYPES, of kinds mxf4 and mxf4nvf4 1 E2M1"),
    Field("b", 10, 3, 1, "type of B, as of A"),
    *_OPERANDS,
    Field("scale", 23, 1, 1, "type of the scales: 0 UE4M3, 1 UE8M0"),
    Field("scale_a_at", 29, 2, 1, "byte of the cells at which the scales of A begin"),
)
"""PTX ISA 9.0, tcgen05: Instruction descriptor of the block-scaled kinds."""

_FLOATS = {"f16": 0, "bf16": 1, "tf32": 2}
_NARROW = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}
TCGEN05_TYPES: dict[str, int] = _FLOATS | _NARROW | {"u8": 0, "s8": 1}
"""The codes of the types of A and B; the kind of the instruction says which list they belong to."""

TCGEN05_TOTALS = {"f16": 0, "f32": 1, "s32": 2}
TCGEN05_SCALES = {"ue4m3": 0, "ue8m0": 1}

_SWIZZLES = {
    "wgmma": {0: 0, 128: 1, 64: 2, 32: 3},
    "tcgen05": {0: 0, 128: 2, 64: 4, 32: 6},
}


def word(fields: Fields, **values: int) -> int:
    """The integer with these values in its fields, zeros elsewhere."""
    known = {f.name: f for f in fields}
    out = 0
    for name, value in values.items():
        out |= known[name].encode(value)
    return out


def matrix(unit: str, *, swizzle: int, leading: int, stride: int) -> int:
    """The constant part of a matrix descriptor for `unit` (wgmma or tcgen05): all but the address.

    `swizzle` is its span in bytes (0, 32, 64, 128), `leading` and `stride` are byte offsets.
    """
    code = _SWIZZLES[unit][swizzle]
    if unit == "wgmma":
        return word(WGMMA_MATRIX, leading=leading, stride=stride, swizzle=code)
    return word(TCGEN05_MATRIX, leading=leading, stride=stride, version=1, swizzle=code)


def scale_places() -> tuple[int, int]:
    """The bits of an instruction word at which the places of the scales of A and of B begin."""
    known = {f.name: f.low for f in TCGEN05_SCALED_INSTRUCTION}
    return known["scale_a_at"], known["scale_b_at"]


def tcgen05_instruction(imm: Mapping[str, Any]) -> int:
    """The word of `tcgen05.instruction`, or of `tcgen05.instruction.scaled` (it has `kind`)."""
    shape = {
        "transpose_a": int(imm["trans_a"]),
        "transpose_b": int(imm["trans_b"]),
        "n": imm["n"],
        "m": imm["m"],
    }
    kind = imm.get("kind", "")
    if kind.startswith("mxf4"):
        codes = {"a": 1, "b": 1}
    else:
        codes = {name: TCGEN05_TYPES[imm[name]] for name in "ab"}
    if not kind:
        return word(TCGEN05_INSTRUCTION, d=TCGEN05_TOTALS[imm["d"]], **codes, **shape)
    scales = {
        "scale": TCGEN05_SCALES[imm["scale"]],
        "scale_a_at": imm["scale_a_at"],
        "scale_b_at": imm["scale_b_at"],
    }
    return word(TCGEN05_SCALED_INSTRUCTION, **codes, **shape, **scales)
