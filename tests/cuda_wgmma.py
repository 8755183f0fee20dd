"""A kernel for each wgmma row: operands in the layout without a swizzle, the product, its result.

What enters: a row's types and n, and where A is. What leaves: a kernel of one warpgroup, its
arrays, and the product by NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tilelang.dtypes import DType
from tilelang.dtypes.convert import converter
from tilelang.ir.expr import Binary, BinaryOp, Const, Expr, Var
from tilelang.ir.thread import (
    Argument,
    Array,
    Declare,
    Elem,
    Instr,
    Kernel,
    Program,
    Slot,
    Space,
    Write,
)
from tilelang.ir.tile import For, If, LoopKind
from tilelang.targets.cuda.rows.fragments import fragment_a, fragment_d
from tilelang.targets.cuda.rows.matrix import DTYPES, narrowed, widened
from tilelang.targets.cuda.rows.wgmma import TYPES

I32, U64, BOOL = DType("int32"), DType("uint64"), DType("bool")
M, THREADS = 64, 128
CORE = 128
"""Bytes of a core matrix: 8 rows of 16 bytes."""


def e(n: int) -> Const:
    return Const(n, I32)


def op(kind: BinaryOp, a: Expr, b: int | Expr) -> Expr:
    return Binary(kind, a, b if isinstance(b, Expr) else e(b))


def core_matrices(x: np.ndarray) -> np.ndarray:
    """(rows, k) of 32 bytes as core matrices: two neighbours along k, then groups of 8 rows."""
    rows = x.shape[0]
    raw = np.ascontiguousarray(x).view(np.uint8).reshape(rows // 8, 8, 2, 16)
    return np.ascontiguousarray(raw.transpose(0, 2, 1, 3)).view(x.dtype).reshape(-1)


@dataclass
class Case:
    """One row: `arrays` by name, and what `d` must be."""

    name: str
    kernel: Kernel
    arrays: dict[str, np.ndarray]
    d: str
    expected: np.ndarray


def case(types: tuple[str, str, str], n: int, k: int, *, in_registers: bool, scale: bool) -> Case:
    td, ta, tb = types
    name = f"wgmma.m64n{n}k{k}.{td}.{ta}.{tb}{'.rs' if in_registers else ''}"
    tag = name.replace(".", "_") + ("_add" if scale else "_set")
    rng = np.random.default_rng(n * 7 + k + in_registers)
    dt = {c: DType(DTYPES[t][0]) for c, t in zip("dab", types, strict=True)}

    def draw(shape: tuple[int, int], dtype: DType) -> np.ndarray:
        low = 0 if not dtype.is_signed else -3
        numbers = np.asarray(rng.integers(low, 4, shape), np.int64)
        return converter(DType("int64"), dtype)(numbers)

    a, b, c = draw((M, k), dt["a"]), draw((n, k), dt["b"]), draw((M, n), dt["d"])
    product = widened(a, ta) @ widened(b, tb).T
    result = narrowed(product + (widened(c, td) if scale else 0), td)
    place = fragment_d(M, n, THREADS)
    bits = dt["a"].bits
    given = a[fragment_a(M, k, bits, THREADS)] if in_registers else core_matrices(a)
    arrays = {
        f"{tag}_a": given,
        f"{tag}_b": core_matrices(b),
        f"{tag}_d": np.ascontiguousarray(c[place]),
    }
    kernel = _kernel(tag, name, arrays, dt, in_registers=in_registers, scale=scale)
    return Case(name, kernel, arrays, f"{tag}_d", result[place])


def _kernel(tag: str, row: str, arrays: dict[str, np.ndarray], dt: dict[str, DType], *,
            in_registers: bool, scale: bool) -> Kernel:  # fmt: skip
    outside = {c: Array(f"{tag}_{c}", dt[c], e(arrays[f"{tag}_{c}"].size), align=16) for c in "abd"}
    tx = Var(f"{tag}_tx", I32)
    body = []
    sizes = {c: int(arrays[f"{tag}_{c}"].size) for c in "abd"}
    shared, offset = {}, 0
    for c in "b" if in_registers else "ab":
        size = sizes[c]
        shared[c] = Array(f"{tag}_{c}_s", dt[c], e(size), space=Space.SHARED, align=128)
        body.append(Declare(shared[c], offset=offset))
        offset += -(-size * dt[c].numpy.itemsize // 128) * 128
        i = Var(f"{tag}_{c}_i", I32)
        at = op(BinaryOp.ADD, tx, op(BinaryOp.MUL, i, THREADS))
        move = Write(shared[c], at, Elem(outside[c], at, dt[c]))
        guarded = If(op(BinaryOp.LT, at, size), (move,))
        body.append(For(i, e(0), e(-(-size // THREADS)), (guarded,)))
    regs = {}
    for c in "da" if in_registers else "d":
        count = sizes[c] // THREADS
        regs[c] = Array(f"{tag}_{c}_r", dt[c], e(count), space=Space.REGISTER)
        i = Var(f"{tag}_{c}_load", I32)
        at = op(BinaryOp.ADD, op(BinaryOp.MUL, tx, count), i)
        body.append(Declare(regs[c]))
        body.append(For(i, e(0), e(count), (Write(regs[c], i, Elem(outside[c], at, dt[c])),),
                        kind=LoopKind.UNROLL))  # fmt: skip
    body.append(Instr("fence.proxy.async", (), ()))
    body.append(Instr("barrier.sync", (), (), imm=(("id", 0), ("threads", THREADS))))
    names = {}
    for c, s in shared.items():
        names[c] = made = Var(f"{tag}_{c}_desc", U64)
        imm = (("swizzle", 0), ("leading", CORE), ("stride", 2 * CORE))
        body.append(Instr("wgmma.descriptor", (), (Slot(s, e(0), 1),), results=(made,), imm=imm))
    left = Slot(regs["a"], e(0), sizes["a"] // THREADS) if in_registers else names["a"]
    trans = [] if dt["a"].bits != 16 else ["trans_b"] if in_registers else ["trans_a", "trans_b"]
    count = sizes["d"] // THREADS
    body += [
        Instr("wgmma.fence", (), ()),
        Instr(row, (Slot(regs["d"], e(0), count),), (left, names["b"], Const(scale, BOOL)),
              imm=tuple((t, False) for t in trans)),
        Instr("wgmma.commit_group", (), ()),
        Instr("wgmma.wait_group", (), (), imm=(("count", 0),)),
    ]  # fmt: skip
    i = Var(f"{tag}_store", I32)
    at = op(BinaryOp.ADD, op(BinaryOp.MUL, tx, count), i)
    body.append(For(i, e(0), e(count), (Write(outside["d"], at, Elem(regs["d"], i, dt["d"])),),
                    kind=LoopKind.UNROLL))  # fmt: skip
    bx = Var(f"{tag}_bx", I32)
    params = tuple(outside.values())
    return Kernel(tag, params, (e(1),), (THREADS,), (bx,), (tx,), tuple(body), shared=offset)


def cases(widths: dict[int, int] | None = None) -> Iterator[Case]:
    """Every type with A in both places; of the legal n each `step`-th, and the last."""
    for types, k, legal in TYPES:
        chosen = legal if widths is None else [*legal[:: widths.get(k, 8)], legal[-1]]
        for number, n in enumerate(dict.fromkeys(chosen)):
            for in_registers in (False, True):
                yield case(types, n, k, in_registers=in_registers, scale=number % 2 == 0)


def program(of: list[Case]) -> Program:
    """One program with the kernels of several cases."""
    params = [p for c in of for p in c.kernel.params if isinstance(p, Array)]
    args = tuple(Argument(p.name, array=p, shape=(p.size,)) for p in params if p.size is not None)
    return Program("products", args, (), tuple(c.kernel for c in of))
