"""Whether the chip has a matrix unit for the element types of a product.

What enters: a `Program`. What leaves: errors for products of 8-bit and 4-bit floats on chips whose
matrix unit does not take them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.errors import Diagnostic
from tilelang.isa.target import Capability, Target
from tilelang.passes.check.program import PRODUCTS, Program, listed

# The narrow floats, by bits, with the capability that a matrix unit needs for them. Wider types
# are multiplied by every matrix unit, or widened without loss.
_NEEDS = {8: Capability.FP8, 4: Capability.FP4}
_UNITS = (Capability.MMA_SYNC, Capability.CUBE)


def types_multiply(program: Program) -> Iterator[Diagnostic]:
    """Products of narrow floats are for chips that multiply them."""
    target = program.target
    if target.chip is None or not any(target.supports(unit) for unit in _UNITS):
        return
    for site in program.sites:
        stmt = site.stmt
        if not isinstance(stmt, PRODUCTS):
            continue
        narrow = [r.dtype for r in (stmt.a, stmt.b) if r.dtype.is_float and r.dtype.bits in _NEEDS]
        lacking = [t for t in narrow if not target.supports(_NEEDS[t.bits])]
        if lacking:
            needed = _NEEDS[lacking[0].bits]
            able = program.chips_with(lambda t, c=needed: _multiplies(t, c))
            yield Diagnostic(
                "dtype",
                f"{target.chip.name} ({target.chip.family}) has no {needed.value}",
                stmt.loc,
                label=f"a product of {listed([str(r.dtype) for r in (stmt.a, stmt.b)])}",
                expected=f"a chip that multiplies {lacking[0]}{': ' + able if able else ''}",
                got=f"target '{target}'",
                help="copy the operands to float16 buffers first, or compile for another chip",
            )


def _multiplies(target: Target, capability: Capability) -> bool:
    return target.supports(capability)
