"""The vector registers of the 950's SIMD functions: one statement, and a table of what it may do.

A register is a value of 256 bytes (`float32x64`); a predicate is `boolx256`, one bit for each byte
of a register, of which an operation on elements of n bytes uses every n-th. A `SimdOp` stands in
the body of a `VectorFunction` of kind SIMD. Source of names and meanings: tilelang 0.1.15,
tilelang/ascend/language/simd.py, and CANN's SIMD C API (`asc_*` of `c_api/asc_simd.h`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tilelang.dtypes import DType
from tilelang.ir.expr import AddressOf, Expr, Region, Var, const
from tilelang.ir.node import Effect, Node, attr, binds, operand
from tilelang.ir.tile import Stmt

REGISTER_BYTES = 256
PREDICATE = DType("boolx256")


def lanes_of(dtype: DType) -> int:
    """How many elements of a type a vector register holds."""
    return PREDICATE.lanes if dtype == "bool" else REGISTER_BYTES * 8 // dtype.bits


def register(dtype: DType) -> DType:
    """The type of a register of elements of `dtype`."""
    return dtype.with_lanes(lanes_of(dtype))


@dataclass(frozen=True)
class SimdFn:
    """One operation: the kinds of its operands, what it gives, its immediates.

    `args` has a letter for each operand: `v` a register, `m` a predicate, `s` a scalar, `r` and
    `w` an address in UB that is read or written. `results` has a letter for each result. `imm` are
    names, those with `?` optional.
    """

    name: str
    args: str
    results: str
    doc: str
    imm: tuple[str, ...] = ()


def _fns(
    args: str, results: str, *rows: tuple[str, str], imm: tuple[str, ...] = ()
) -> list[SimdFn]:
    return [SimdFn(name, args, results, doc, imm) for name, doc in rows]


_PREDICATES = [
    *_fns(
        "",
        "m",
        ("pset", "elements that a pattern names"),
        ("pge", "the first elements, as a pattern counts them"),
        imm=("width", "dist"),
    ),
    SimdFn("update_mask", "s", "m", "the first n elements", ("width",)),
    *_fns(
        "mmm",
        "m",
        ("pand", "both, where the mask is set"),
        ("por", "either, where the mask is set"),
        ("pxor", "one of the two, where the mask is set"),
        ("psel", "the first where the mask is set, else the second"),
    ),
    SimdFn("pnot", "mm", "m", "the complement, where the mask is set"),
    *_fns(
        "m",
        "m",
        ("ppack", "every second bit, packed into one half; the other half is zero"),
        ("punpack", "the bits of one half, each followed by a zero"),
        imm=("part",),
    ),
    *_fns(
        "mm",
        "mm",
        ("pintlv", "elements of two predicates, alternating"),
        ("pdintlv", "the even and the odd elements of two predicates"),
        imm=("width",),
    ),
    SimdFn("pld", "r", "m", "32 bytes of UB as a predicate", ("dist",)),
    SimdFn("pst", "wm", "", "a predicate into 32 bytes of UB", ("dist",)),
]
_MEMORY = [
    SimdFn("vld", "r", "v", "neighbouring elements, spread as `dist` says", ("dist",)),
    SimdFn("vld2", "r", "vv", "neighbouring elements, the even and the odd", ("dist",)),
    SimdFn("vld_postupdate", "rs", "v", "as `vld`, by an address that moves on", ("dist",)),
    SimdFn("vsts", "wvm", "", "elements whose predicate is set, packed as `dist` says", ("dist",)),
    SimdFn("vsstb", "wvsm", "", "blocks of 32 bytes, `stride >> 16` blocks apart"),
    SimdFn("vsstb_postupdate", "wvsm", "", "as `vsstb`, by an address that moves on"),
    SimdFn("vgatherb", "rvm", "v", "a block of 32 bytes at each byte offset"),
    SimdFn("vgather2", "rvm", "v", "the element at each index"),
    SimdFn("vscatter", "wvvm", "", "each element to its index"),
    SimdFn("mem_bar", "", "", "orders accesses to UB", ("kind",)),
]
_BINARY = _fns(
    "vvm",
    "v",
    ("vadd", "a + b"),
    ("vsub", "a - b"),
    ("vmul", "a * b"),
    ("vdiv", "a / b, correctly rounded"),
    ("vmax", "the larger"),
    ("vmin", "the smaller"),
    ("vand", "a & b"),
    ("vor", "a | b"),
    ("vxor", "a ^ b"),
    ("vshl", "a << b"),
    ("vshr", "a >> b"),
    ("vabsdif", "abs(a - b)"),
    ("vexpdif", "exp(a - b)"),
    ("vprelu", "a where a >= 0, else a * b"),
)
_SCALAR = _fns(
    "vsm",
    "v",
    ("vadds", "a + s"),
    ("vmuls", "a * s"),
    ("vmaxs", "the larger of a and s"),
    ("vmins", "the smaller of a and s"),
    ("vshls", "a << s"),
    ("vshrs", "a >> s"),
    ("vlrelu", "a where a >= 0, else a * s"),
)
_UNARY = _fns(
    "vm",
    "v",
    ("vabs", "abs(a)"),
    ("vneg", "-a"),
    ("vrelu", "max(a, 0)"),
    ("vexp", "e to the power a"),
    ("vln", "the natural logarithm"),
    ("vsqrt", "the square root"),
    ("vnot", "the complement"),
    ("vcadd", "the sum of all elements, in element 0"),
    ("vcmax", "the largest element, in element 0, and its place, in element 1"),
    ("vcmin", "the smallest element, in element 0, and its place, in element 1"),
    ("vcgadd", "the sum of each 32 bytes, packed"),
    ("vcgmax", "the largest of each 32 bytes, packed"),
    ("vcgmin", "the smallest of each 32 bytes, packed"),
    ("vcpadd", "the sums of neighbours, packed"),
    ("vsqz", "the elements whose predicate is set, packed"),
)
_FUSED = [
    SimdFn("vmula", "vvvm", "v", "d + a * b, rounded once"),
    SimdFn("vmadd", "vvvm", "v", "d * a + b, rounded once"),
    SimdFn("vaxpy", "vvsm", "v", "d + a * s, rounded once"),
]
_CARRY = [
    *_fns("vvm", "mv", ("vaddc", "the carry and the sum"), ("vsubc", "no borrow, the difference")),
    *_fns(
        "vvmm",
        "mv",
        ("vaddcs", "the carry and the sum, with a carry in"),
        ("vsubcs", "no borrow and the difference, with no borrow in"),
    ),
    SimdFn("vmull", "vvm", "vv", "the low and the high half of the product"),
]
_MOVES = [
    SimdFn("vdup", "sm", "v", "a scalar in every element"),
    SimdFn("vdupv", "vm", "v", "the first or last element in every element", ("pos",)),
    SimdFn("vci", "s", "v", "first, first + 1, ... (or - 1)", ("order",)),
    SimdFn("vcmp", "vvm", "m", "a op b", ("op",)),
    SimdFn("vcmps", "vsm", "m", "a op s", ("op",)),
    SimdFn("vsel", "vvm", "v", "a where the predicate is set, else b"),
    SimdFn("vselr", "vv", "v", "the element at each index"),
    SimdFn("vintlv", "vv", "vv", "elements of two registers, alternating"),
    SimdFn("vdintlv", "vv", "vv", "the even and the odd elements of two registers"),
    SimdFn("vpack", "v", "v", "the low half of each element, in one half of the result", ("part",)),
    SimdFn("vunpack", "v", "v", "the elements of one half, widened", ("part",)),
    SimdFn("vusqz", "m", "v", "how many elements before this one are set"),
    SimdFn("vcvt", "vm", "v", "conversion by value", ("rounding", "sat", "part")),
    SimdFn("dhistv2", "vvm", "v", "d + how often each value occurs", ("half",)),
    SimdFn("chistv2", "vvm", "v", "d + how often values up to each occur", ("half",)),
]

SIMD_OPS: dict[str, SimdFn] = {
    fn.name: fn
    for group in (_PREDICATES, _MEMORY, _BINARY, _SCALAR, _UNARY, _FUSED, _CARRY, _MOVES)
    for fn in group
}
"""The operations by name. Elements whose predicate is not set become zero (`MODE_ZEROING`)."""

MERGED: frozenset[str] = frozenset(
    {
        *("vadd", "vsub", "vmul", "vdiv", "vmax", "vmin", "vand", "vor", "vxor", "vshl", "vshr"),
        *("vabsdif", "vadds", "vmuls", "vmaxs", "vmins", "vshls", "vshrs", "vabs", "vneg"),
        *("vrelu", "vexp", "vln", "vsqrt", "vnot", "vcadd", "vcmax", "vcmin", "vmula", "vmadd"),
        *("vaxpy", "vdup", "vdupv", "vcvt"),
    }
)
"""What may keep elements of the register that it is assigned to (`MODE_MERGING`)."""


class SimdOp(Stmt):
    """`op` of `SIMD_OPS`; `results` are the registers it gives, `footprint` the elements that it
    touches from an address on.

    With `merges`, elements that it does not give are those of `old`: the register that its result
    is assigned to, which follows from the next statement until `merge_registers` says it.
    """

    op: str = attr()
    args: tuple[Expr, ...] = operand()
    results: tuple[Var, ...] = binds(default=())
    footprint: int = attr(default=0)
    imm: tuple[tuple[str, Any], ...] = attr(default=())
    merges: bool = attr(default=False)
    old: Expr | None = operand(default=None)

    def effects(self) -> Iterator[tuple[Effect, Node]]:
        """What is read and written at the addresses."""
        for letter, arg in zip(SIMD_OPS[self.op].args, self.args, strict=True):
            if letter in "rw" and isinstance(arg, AddressOf):
                effect = Effect.READ if letter == "r" else Effect.UPDATE
                yield effect, _touched(arg, self.footprint)


def _touched(at: AddressOf, count: int) -> Region:
    """The elements from an address on: of its row, or where they may leave it, of the buffer."""
    row = at.buffer.shape[-1]
    size = getattr(row, "value", None)
    last = getattr(at.indices[-1], "value", None)
    if isinstance(size, int) and isinstance(last, int) and last + count <= size:
        ones = tuple(const(1) for _ in at.indices[:-1])
        return Region(at.buffer, at.indices, (*ones, const(count)), loc=at.loc)
    return Region(at.buffer, tuple(const(0) for _ in at.indices), at.buffer.shape, loc=at.loc)
