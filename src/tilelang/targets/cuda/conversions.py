"""Conversions between element types, by the rules of `tilelang.dtypes.cast`.

What enters: the text of a value, its dtype, and the cast. What leaves: the text of the converted
value. Where one instruction does it, that is used; the rest goes through `encode` and `decode` of
the prelude, which are the project's own rounding, in C++.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilelang.dtypes import DType
from tilelang.dtypes.table import Row, Special
from tilelang.isa.target import Capability, Target
from tilelang.targets.cuda.types import value_type

F32, F64 = DType("float32"), DType("float64")
_MODES = {"rn": "RN", "rna": "RNA", "rz": "RZ", "rp": "RP", "rm": "RM", "rs": "RS"}
_CUDA_MODES = {"rn": "rn", "rz": "rz", "rp": "ru", "rm": "rd"}
_ROUNDED = {
    ("float16", "rn"): "f16_of_f32",
    ("bfloat16", "rn"): "bf16_of_f32",
    ("tfloat32", "rna"): "tf32_of_f32",
}
_FP8_PAIRS = {
    "float8_e4m3fn": "e4m3x2_of_f32",
    "float8_e4m3": "e4m3x2_of_f32",
    "float8_e5m2": "e5m2x2_of_f32",
}
_SPECIALS = {s: n for n, s in enumerate(Special)}


@dataclass
class Conversions:
    """The conversions of one program: `used` collects what is called of the prelude."""

    target: Target
    used: set[str]

    def call(self, name: str, *args: str) -> str:
        """A call of a function of the prelude."""
        self.used.add(name)
        return f"tl::{name}({', '.join(args)})"

    def cast(
        self, x: str, src: DType, dst: DType, rounding: str = "", *, saturate: bool = True,
        rbits: str = "",
    ) -> str:  # fmt: skip
        """`x`, a scalar of `src`, as one of `dst`."""
        if src.row.encoding == dst.row.encoding and rounding != "rs":
            return x
        if dst.is_bool:
            return self._truth(x, src)
        if not dst.is_float:
            return self._to_integer(x, src, dst)
        mode = rounding or dst.row.rounding
        if mode == "rs" or (short := self._short(x, src, dst, mode, saturate)) is None:
            exact = self._exact(x, src)
            flags = (f"tl::{_MODES[mode]}", str(saturate and dst.is_narrow_float).lower())
            return self._word(exact, dst, (*flags, rbits or "0u"))
        return short

    def to_f32(self, x: str, src: DType) -> str:
        """A float of at most 32 bits as float32, exactly."""
        match src.name:
            case "float32" | "tfloat32":
                return x
            case "float16":
                return self.call("f32_of_f16", x)
            case "bfloat16":
                return self.call("f32_of_bf16", x)
            case "float8_e4m3fn" | "float8_e4m3" | "float8_e5m2" if self._has_fp8:
                pair = "f16x2_of_e5m2" if src.name == "float8_e5m2" else "f16x2_of_e4m3"
                return self.call("f32_of_f16", f"f16({self.call(pair, x)})")
            case _:
                self.used.add("decode")
                return f"tl::decode<{self._format(src.row)}>({x})"

    def pair(self, x: str, y: str, dst: DType) -> str | None:
        """Two float32 as one word of two halves, rounded to nearest; None for other types."""
        name = {"float16": "f16x2_of_f32", "bfloat16": "bf16x2_of_f32"}.get(dst.name)
        return None if name is None else self.call(name, x, y)

    def quad(self, x: Sequence[str], dst: DType) -> str | None:
        """Four float32 as one word of four fp8, rounded to nearest and saturated; None where no
        instruction does it.
        """
        found = _FP8_PAIRS.get(dst.name)
        if found is None or not self._has_fp8:
            return None
        low, high = self.call(found, x[0], x[1]), self.call(found, x[2], x[3])
        return f"u32({low}) | u32({high}) << 16"

    @property
    def _has_fp8(self) -> bool:
        return self.target.supports(Capability.FP8)

    def _truth(self, x: str, src: DType) -> str:
        if src.is_float and src.bits < 64:
            return f"({self.to_f32(x, src)} != 0.0f)"
        return f"({x} != 0)"

    # Integers ------------------------------------------------------------------------------------

    def _to_integer(self, x: str, src: DType, dst: DType) -> str:
        if src.is_float:
            return self._float_to_integer(x, src, dst)
        kind = value_type(dst)
        if dst.is_subbyte:
            if dst.is_uint:
                return f"{kind}(u32({x}) & {(1 << dst.bits) - 1}u)"
            return f"{kind}(i32(u32({x}) << {32 - dst.bits}) >> {32 - dst.bits})"
        return f"{kind}({x})"

    def _float_to_integer(self, x: str, src: DType, dst: DType) -> str:
        from_ = "f64" if src.bits == 64 else "f32"
        wide = x if src.bits == 64 else self.to_f32(x, src)
        kind = "u" if dst.is_uint or dst.is_handle else "i"
        bits = max(dst.bits, 32)
        value = self.call(f"{kind}{bits}_of_{from_}", wide)
        if dst.bits >= 32:
            return value
        # A float that is too large has become the largest integer of 32 bits, so clamping is right.
        low, high = int(dst.min), int(dst.max)
        if dst.is_uint:
            return f"{value_type(dst)}(min({value}, {high}u))"
        return f"{value_type(dst)}(max(min({value}, {high}), {low}))"

    # Floats --------------------------------------------------------------------------------------

    def _short(self, x: str, src: DType, dst: DType, mode: str, saturate: bool) -> str | None:
        """A conversion that needs no rounding of our own; None for others."""
        if src.is_float:
            return self._float_to_float(x, src, dst, mode, saturate)
        exact = src.bits <= 16 or src.is_bool
        if dst.bits == 64 and (src.bits <= 32 or mode == "rn"):
            return f"double({x})"
        if dst.name == "float32":
            return f"float({x})" if exact or mode == "rn" else None
        if exact:
            return self._float_to_float(f"float({x})", F32, dst, mode, saturate)
        if dst.name == "float16" and mode == "rn":
            kind = f"{'u' if src.is_uint or src.is_handle else 'i'}{src.bits}"
            return self.call(f"f16_of_{kind}", x)
        return None

    def _float_to_float(  # noqa: PLR0911 - one case for each kind of destination
        self, x: str, src: DType, dst: DType, mode: str, saturate: bool
    ) -> str | None:
        if src.bits == 64:
            if dst.name == "float32" and mode in _CUDA_MODES:
                return f"__double2float_{_CUDA_MODES[mode]}({x})"
            return self.call("f16_of_f64", x) if (dst.name, mode) == ("float16", "rn") else None
        wide = self.to_f32(x, src)
        if dst.bits == 64:
            return f"double({wide})"
        if dst.name == "float32":
            return wide
        known = _ROUNDED.get((dst.name, mode))
        if known is not None:
            return self.call(known, wide)
        pair = _FP8_PAIRS.get(dst.name)
        if pair is not None and mode == "rn" and saturate and self._has_fp8:
            return f"u8({self.call(pair, wide, '0.0f')})"
        return None

    def _exact(self, x: str, src: DType) -> str:
        if not src.is_float:
            if src.is_uint or src.is_handle:
                return self.call("exact_u64", f"u64({x})", "false")
            return self.call("exact_i64", f"i64({x})")
        return self.call("exact_f64", x if src.bits == 64 else f"double({self.to_f32(x, src)})")

    def _word(self, exact: str, dst: DType, flags: tuple[str, ...]) -> str:
        self.used |= {"encode", "Format", "Mode", "Exact"}
        args = ", ".join((exact, *flags))
        if dst.name == "float64":
            # Integers of 64 bits, rounded otherwise than to nearest.
            return self.call("f64_encode", args)
        code = f"tl::encode<{self._format(dst.row)}>({args})"
        if dst.bits == 32:
            spare = 32 - dst.row.code_bits
            return f"__uint_as_float({code}{f' << {spare}' if spare else ''})"
        return f"{value_type(dst)}({code})"

    def _format(self, row: Row) -> str:
        self.used.add("Format")
        absent = -1
        numbers = (
            row.mantissa_bits,
            row.emin,
            row.max_word,
            absent if row.inf_word is None else row.inf_word,
            absent if row.nan_word is None else row.nan_word,
            f"{row.sign_word}u",
            _SPECIALS[row.special],
        )
        return f"tl::Format<{', '.join(map(str, numbers))}>"
