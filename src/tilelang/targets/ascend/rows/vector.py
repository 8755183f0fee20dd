"""Rows of the vector units: elementwise operations, reductions, choices, gathers, sorting.

What leaves: `VECTOR`. Every operand of an elementwise row is a tile of `rows` x `columns`; a source
has a pitch (elements between rows) and a step (between neighbours), of which 0 repeats an element.
Rows ending in `.s` take their last operand as a scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilelang.ir.ascend import VECTOR_OPS, Core, Pipe
from tilelang.isa.instr import OperandRow
from tilelang.targets.ascend.rows.build import (
    BLOCK,
    Array,
    PipeRow,
    R,
    Strided,
    U,
    W,
    choice,
    counts,
    slot,
    value,
)
from tilelang.targets.ascend.rows.numbers import computed, is_widened

Params = Mapping[str, Any]
_FLOATS = ("float16", "float32", "bfloat16")
_BITS = ("int16", "uint16", "int32", "uint32", "int8", "uint8")
_NUMBERS = (*_FLOATS, "int16", "int32", "uint16", "uint32", "int8", "uint8", "int64")
_SHIFTED = ("int16", "uint16", "int32", "uint32")


def _api(op: str) -> str:
    return f"AscendC API, {VECTOR_OPS[op].source}" if op in VECTOR_OPS else "AscendC API"


def _row(name: str, source: str, out: OperandRow, *ins: OperandRow, **facts: Any) -> PipeRow:
    return PipeRow(name, source, outs=(out,), ins=ins, pipe=Pipe.V, core=Core.VECTOR, **facts)


# Elementwise --------------------------------------------------------------------------------------

_SOURCES = ("a", "b")


def _tiles(slots: tuple[str, ...]) -> Callable[[Params], dict[str, Strided]]:
    def views(p: Params) -> dict[str, Strided]:
        shape = (p["rows"], p["columns"])
        found = {"dst": (shape, (p["dst_pitch"], 1))}
        for s in slots:
            found[s] = (shape, (p[f"{s}_pitch"], p[f"{s}_step"]))
        return found

    return views


def _strides(slots: tuple[str, ...]) -> tuple[str, ...]:
    return ("rows", "columns", "dst_pitch", *(f"{s}_{w}" for s in slots for w in ("pitch", "step")))


def _elementwise(
    op: str,
    fn: Callable[..., Any],
    dtypes: tuple[str, ...],
    slots: tuple[str, ...],
    scalars: tuple[str, ...] = (),
    *,
    updates: bool = False,
) -> PipeRow:
    names = (*slots, *scalars)

    def meaning(dst: Array, **p: Any) -> tuple[()]:
        args = [p[name] for name in names]
        if updates:
            args.insert(0, dst)
        if isinstance(fn, np.ufunc) and not is_widened(dst.dtype):
            fn(*args, out=dst, casting="unsafe")  # as without an overlap of operands
        else:
            dst[...] = computed(fn, dst.dtype, *args)
        return ()

    return _row(
        f"v.{op}{'.s' if scalars else ''}",
        _api(op),
        slot("dst", U if updates else W, dtypes=dtypes, align=BLOCK),
        *(slot(s, R, like="dst") for s in slots),
        *(value(s, like="dst") for s in scalars),
        *counts(*_strides(slots)),
        views=_tiles(slots),
        meaning=meaning,
        lanes=True,
    )


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _relu(x: Array) -> Array:
    made: Array = np.maximum(x, np.zeros_like(x))
    return made


_UNARY: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    "exp": (np.exp, _FLOATS),
    "ln": (np.log, _FLOATS),
    "abs": (np.abs, _NUMBERS),
    "neg": (np.negative, _NUMBERS),
    "reciprocal": (lambda x: 1 / x, _FLOATS),
    "sqrt": (np.sqrt, _FLOATS),
    "rsqrt": (lambda x: 1 / np.sqrt(x), _FLOATS),
    "relu": (_relu, _NUMBERS),
    "bitwise_not": (np.invert, _BITS),
    "sigmoid": (_sigmoid, _FLOATS),
    "silu": (lambda x: x / (1 + np.exp(-x)), _FLOATS),
    "sin": (np.sin, _FLOATS),
    "cos": (np.cos, _FLOATS),
    "round": (np.rint, _FLOATS),
}


def _leaky(x: Array, slope: Array) -> Any:
    return np.where(x >= 0, x, x * slope)


_BINARY: dict[str, tuple[Callable[[Any, Any], Any], tuple[str, ...]]] = {
    "add": (np.add, _NUMBERS),
    "sub": (np.subtract, _NUMBERS),
    "mul": (np.multiply, _NUMBERS),
    "div": (np.divide, _FLOATS),
    "max": (np.maximum, _NUMBERS),
    "min": (np.minimum, _NUMBERS),
    "bitwise_and": (np.bitwise_and, _BITS),
    "bitwise_or": (np.bitwise_or, _BITS),
    "bitwise_xor": (np.bitwise_xor, _BITS),
    "pow": (np.power, _FLOATS),
    "bitwise_lshift": (np.left_shift, _SHIFTED),
    "bitwise_rshift": (np.right_shift, _SHIFTED),
    "leaky_relu": (_leaky, _FLOATS),
}
"""The operations of two operands, of which the second may be a scalar."""

_UPDATES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "axpy": lambda old, a, b: old + a * b,
    "mul_add_dst": lambda old, a, b: old + a * b,
}


def _elementwise_rows() -> list[PipeRow]:
    rows = [_elementwise(op, fn, dtypes, ("a",)) for op, (fn, dtypes) in _UNARY.items()]
    for op, (fn, dtypes) in _BINARY.items():
        rows.append(_elementwise(op, fn, dtypes, ("a", "b")))
        rows.append(_elementwise(op, fn, dtypes, ("a",), ("b",)))
    for op, fn in _UPDATES.items():
        rows.append(_elementwise(op, fn, _NUMBERS, ("a", "b"), updates=True))
        rows.append(_elementwise(op, fn, _NUMBERS, ("a",), ("b",), updates=True))

    def clamp(x: Any, low: Any, high: Any) -> Any:
        return np.minimum(np.maximum(x, low), high)

    rows.append(_elementwise("clamp", clamp, _NUMBERS, ("a",), ("b", "c")))
    return rows


# Choices ------------------------------------------------------------------------------------------

COMPARES: dict[str, Callable[[Any, Any], Any]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
    "LT": np.less,
    "LE": np.less_equal,
}
SELECT_MODES = ("VSEL_CMPMASK_SPR", "VSEL_TENSOR_SCALAR_MODE", "VSEL_TENSOR_TENSOR_MODE")
_VECTOR_BYTES = 256
"""Bytes of one repeat of a vector instruction (`Machine.vector_bytes`)."""


def _flat(*slots: str) -> Callable[[Params], dict[str, Strided]]:
    """`count` neighbours of each slot; `dst` or `mask` has a bit for each."""
    return lambda p: dict.fromkeys(slots, ((p["count"],), (1,)))


def _compare_views(slots: tuple[str, ...]) -> Callable[[Params], dict[str, Strided]]:
    def views(p: Params) -> dict[str, Strided]:
        n = p["count"]
        return {"dst": ((-(-n // 8),), (1,)), **dict.fromkeys(slots, ((n,), (1,)))}

    return views


def _compare(dst: Array, a: Array, b: Any, mode: str, **_: Any) -> tuple[()]:
    dst[...] = np.packbits(COMPARES[mode](a, b), axis=-1, bitorder="little").view(dst.dtype)
    return ()


def _select_views(slots: tuple[str, ...]) -> Callable[[Params], dict[str, Strided]]:
    def views(p: Params) -> dict[str, Strided]:
        n = p["count"]
        bits = min(n, _VECTOR_BYTES // p["itemsize"]) if p["mode"] == SELECT_MODES[0] else n
        return {"mask": ((-(-bits // 8),), (1,)), **dict.fromkeys(slots, ((n,), (1,)))}

    return views


def _select(dst: Array, mask: Array, a: Array, b: Any, mode: str, **_: Any) -> tuple[()]:
    bits = np.unpackbits(np.ascontiguousarray(mask).view(np.uint8), bitorder="little")
    if mode == SELECT_MODES[0]:  # the mask register holds the bits of one repeat
        bits = bits[: _VECTOR_BYTES // dst.itemsize]
        bits = np.resize(bits, dst.shape)
    dst[...] = np.where(bits[: dst.size] != 0, a, b)
    return ()


def _choice_rows() -> list[PipeRow]:
    mode = choice("mode", *COMPARES)
    modes = choice("mode", *SELECT_MODES)
    size = choice("itemsize", 1, 2, 4, 8)
    mask = slot("dst", W, dtypes=("uint8",), align=BLOCK)
    n = counts("count")
    rows: list[PipeRow] = []
    for tail, slots in (("", ("a", "b")), (".s", ("a",))):
        b = slot("b", R, like="a") if "b" in slots else value("b", like="a")
        rows.append(
            _row(
                f"v.compare{tail}",
                _api("compare"),
                mask,
                slot("a", R, dtypes=_NUMBERS, align=BLOCK),
                b,
                *n,
                imm=(mode,),
                views=_compare_views(slots),
                meaning=_compare,
                lanes=True,
            )
        )
        rows.append(
            _row(
                f"v.select{tail}",
                _api("select"),
                slot("dst", W, dtypes=_NUMBERS, align=BLOCK),
                slot("mask", R, dtypes=("uint8", "uint16", "uint32"), align=BLOCK),
                slot("a", R, like="dst", align=BLOCK),
                slot("b", R, like="dst") if "b" in slots else value("b", like="dst"),
                *n,
                imm=(modes, size),
                views=_select_views(("dst", *slots)),
                meaning=_select,
            )
        )
    return rows


# Places -------------------------------------------------------------------------------------------


class OutsideSource(Exception):
    """An offset of a gather leaves its source."""


def _gather(dst: Array, src: Array, offset: Array, base: Any, **_: Any) -> tuple[()]:
    at = offset.astype(np.int64) + int(base)
    if at.size and (at.min() < 0 or at.max() > (src.size - 1) * src.itemsize):
        worst = int(at.max() if at.max() > (src.size - 1) * src.itemsize else at.min())
        raise OutsideSource(f"the offset {worst} is outside the {src.nbytes} bytes of the source")
    if np.any(at % src.itemsize):
        raise OutsideSource(f"an offset is no multiple of {src.itemsize} bytes")
    dst[...] = src[at // src.itemsize]
    return ()


def _gatherb(dst: Array, src: Array, offset: Array, **_: Any) -> tuple[()]:
    raw = src.view(np.uint8).reshape(-1)
    at = offset.astype(np.int64)
    if at.size and (at.min() < 0 or at.max() + BLOCK > raw.size):
        raise OutsideSource(f"an offset is outside the {raw.size} bytes of the source")
    taken = raw[at[:, None] + np.arange(BLOCK)]
    dst[...] = taken.reshape(-1).view(dst.dtype)
    return ()


_PATTERNS = {
    "P0101": (2, 0),
    "P1010": (2, 1),
    "P0001": (4, 0),
    "P0010": (4, 1),
    "P0100": (4, 2),
    "P1000": (4, 3),
    "P1111": (1, 0),
}


def _gather_mask(dst: Array, src: Array, pattern: str, **_: Any) -> tuple[()]:
    step, first = _PATTERNS[pattern]
    taken = src[first::step]
    dst[: taken.size] = taken
    return ()


def _gather_bits(dst: Array, src: Array, mask: Array, **_: Any) -> tuple[()]:
    bits = np.unpackbits(np.ascontiguousarray(mask).view(np.uint8), bitorder="little")
    taken = src[np.resize(bits, src.shape) != 0]
    dst[: taken.size] = taken
    return ()


def _progression(dst: Array, first: Any, step: Any, **_: Any) -> tuple[()]:
    places = np.arange(dst.size).astype(dst.dtype)
    dst[...] = computed(_at, dst.dtype, places, first, step)
    return ()


def _at(place: Any, first: Any, step: Any) -> Any:
    return first + place * step


def _copy(dst: Array, a: Array, **_: Any) -> tuple[()]:
    dst[...] = a
    return ()


def _transpose_views(p: Params) -> dict[str, Strided]:
    rows, columns = p["rows"], p["columns"]
    return {
        "a": ((rows, columns), (p["a_pitch"], 1)),
        "dst": ((columns, rows), (p["dst_pitch"], 1)),
    }


def _transpose(dst: Array, a: Array, **_: Any) -> tuple[()]:
    dst[...] = np.swapaxes(a, -1, -2)
    return ()


def _offsets(block: int) -> Callable[[Params], dict[str, Strided]]:
    def views(p: Params) -> dict[str, Strided]:
        n = p["count"]
        out = n * block // p["itemsize"] if block else n
        return {
            "dst": ((out,), (1,)),
            "src": ((p["src_count"],), (1,)),
            "offset": ((n,), (1,)),
        }

    return views


_SIZE = choice("itemsize", 1, 2, 4, 8)
_OUT = slot("dst", W, dtypes=_NUMBERS, align=BLOCK)
_ANY = slot("src", R, like="dst", align=BLOCK)


def _lengths(**names: str) -> Callable[[Params], dict[str, Strided]]:
    """Runs of elements, by the names of their numbers."""
    return lambda p: {s: ((p[n],), (1,)) for s, n in names.items()}


def _gather_rows() -> list[PipeRow]:
    offset = slot("offset", R, dtypes=("uint32", "int32"), align=BLOCK)
    sizes = counts("count", "src_count")
    mask = slot("mask", R, dtypes=("uint32", "uint16", "uint8"), align=BLOCK)
    return [
        _row(
            "v.gather",
            _api("gather"),
            _OUT,
            _ANY,
            offset,
            value("base", "int32", "uint32", "int64"),
            *sizes,
            views=_offsets(0),
            meaning=_gather,
        ),
        _row(
            "v.gatherb",
            _api("gatherb"),
            _OUT,
            _ANY,
            offset,
            *sizes,
            imm=(_SIZE,),
            views=_offsets(BLOCK),
            meaning=_gatherb,
        ),
        _row(
            "v.gather_mask",
            _api("gather_mask"),
            _OUT,
            _ANY,
            *counts("count", "dst_count"),
            imm=(choice("pattern", *_PATTERNS),),
            views=_lengths(dst="dst_count", src="count"),
            meaning=_gather_mask,
        ),
        _row(
            "v.gather_mask.b",
            _api("gather_mask"),
            _OUT,
            _ANY,
            mask,
            *counts("count", "dst_count", "mask_count"),
            views=_lengths(dst="dst_count", src="count", mask="mask_count"),
            meaning=_gather_bits,
        ),
    ]


def _place_rows() -> list[PipeRow]:
    return [
        *(
            _row(
                f"v.{op}",
                _api(op),
                _OUT,
                slot("a", R, like="dst"),
                *counts(*_strides(("a",))),
                views=_tiles(("a",)),
                meaning=_copy,
                lanes=True,
            )
            for op in ("broadcast", "brcb")
        ),
        _row(
            "v.transpose",
            _api("transpose"),
            _OUT,
            slot("a", R, like="dst", align=BLOCK),
            *counts("rows", "columns", "dst_pitch", "a_pitch"),
            views=_transpose_views,
            meaning=_transpose,
            lanes=True,
        ),
        _row(
            "v.progression",
            _api("arith_progression"),
            _OUT,
            value("first", like="dst"),
            value("step", like="dst"),
            *counts("count"),
            views=_flat("dst"),
            meaning=_progression,
        ),
    ]


# Reductions ---------------------------------------------------------------------------------------

_REDUCE: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: np.sum(x, axis=-2, dtype=x.dtype),
    "max": lambda x: np.max(x, axis=-2),
    "min": lambda x: np.min(x, axis=-2),
    "abssum": lambda x: np.sum(np.abs(x), axis=-2, dtype=x.dtype),
    "absmax": lambda x: np.max(np.abs(x), axis=-2),
    "bitand": lambda x: np.bitwise_and.reduce(x, axis=-2),
    "bitor": lambda x: np.bitwise_or.reduce(x, axis=-2),
    "bitxor": lambda x: np.bitwise_xor.reduce(x, axis=-2),
}
_JOIN: dict[str, Callable[[Any, Any], Any]] = {
    "sum": np.add,
    "abssum": np.add,
    "max": np.maximum,
    "absmax": np.maximum,
    "min": np.minimum,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
}


def _reduce_views(p: Params) -> dict[str, Strided]:
    outer, n, inner = p["outer"], p["n"], p["inner"]
    return {
        "src": ((outer, n, inner), (p["src_pitch"], p["src_step"], 1)),
        "dst": ((outer, inner), (p["dst_pitch"], 1)),
    }


def _reduce_row(op: str, *, clear: bool) -> PipeRow:
    def meaning(dst: Array, src: Array, **_: Any) -> tuple[()]:
        made = computed(_REDUCE[op], dst.dtype, src)
        dst[...] = made if clear else computed(_JOIN[op], dst.dtype, dst, made)
        return ()

    bits = op.startswith("bit")
    return _row(
        f"v.reduce_{op}{'' if clear else '.acc'}",
        f"AscendC API, Reduce{op.title()} (Pattern::Reduce)",
        slot("dst", W if clear else U, dtypes=_BITS if bits else _NUMBERS),
        slot("src", R, like="dst"),
        *counts("outer", "n", "inner", "src_pitch", "src_step", "dst_pitch"),
        views=_reduce_views,
        meaning=meaning,
        lanes=True,
    )


def _block_reduce(op: str) -> PipeRow:
    def views(p: Params) -> dict[str, Strided]:
        per = BLOCK // p["itemsize"]
        return {"src": ((p["count"], per), (per, 1)), "dst": ((p["count"],), (1,))}

    def meaning(dst: Array, src: Array, **_: Any) -> tuple[()]:
        dst[...] = computed(_REDUCE[op], dst.dtype, src[..., None])[..., 0]
        return ()

    return _row(
        f"v.block_reduce_{op}",
        _api(f"block_reduce_{op}"),
        slot("dst", W, dtypes=_FLOATS, align=BLOCK),
        slot("src", R, like="dst", align=BLOCK),
        *counts("count"),
        imm=(_SIZE,),
        views=views,
        meaning=meaning,
        lanes=True,
    )


def _whole_reduce(op: str) -> PipeRow:
    def views(p: Params) -> dict[str, Strided]:
        rows, n = p["rows"], p["n"]
        return {"src": ((rows, n), (n, 1)), "dst": ((rows, 2), (2, 1))}

    def meaning(dst: Array, src: Array, **_: Any) -> tuple[()]:
        if src.size:
            found = src.argmax(1) if op == "max" else src.argmin(1)
            dst[:, 0] = src[np.arange(len(src)), found]
            dst[:, 1] = found.astype(f"u{dst.itemsize}").view(dst.dtype)
        return ()

    return _row(
        f"v.whole_reduce_{op}",
        _api(f"whole_reduce_{op}"),
        slot("dst", W, dtypes=("float16", "float32")),
        slot("src", R, like="dst", align=BLOCK),
        *counts("rows", "n"),
        views=views,
        meaning=meaning,
    )


# Sorting ------------------------------------------------------------------------------------------


def _downwards(keys: Array) -> Array:
    """The order of `keys` from the largest on, equal ones as they stand."""
    return np.argsort(-keys.astype(np.float64), kind="stable")


def _sort32(dst: Array, src: Array, index: Array, **_: Any) -> tuple[()]:
    """Pairs of 8 bytes: a value, of which a half leaves the second half of its word 0; an index."""
    pairs, size = dst.view(np.uint8).reshape(-1, 8), src.itemsize
    for at in range(0, src.size, 32):
        order = at + _downwards(src[at : at + 32])
        here = pairs[at : at + order.size]
        here[:, :size] = src[order].view(np.uint8).reshape(-1, size)
        here[:, size:4] = 0
        here[:, 4:] = index[order].view(np.uint8).reshape(-1, 4)
    return ()


def _sorted_pairs(src: Array) -> Array:
    order = _downwards(src)
    pairs = np.empty((src.size, 2), src.dtype)
    pairs[:, 0], pairs[:, 1] = src[order], order.astype(src.dtype)
    return pairs.reshape(-1)


def _sort(dst: Array, src: Array, n: int, **_: Any) -> tuple[()]:
    padded = src.copy()
    padded[n:] = -np.inf
    dst[...] = _sorted_pairs(padded)[: dst.size]
    return ()


def _merge(dst: Array, **p: Any) -> tuple[()]:
    lists = [p[name] for name in ("a", "b", "c", "d") if name in p]
    pairs = np.concatenate([x.reshape(-1, 2) for x in lists])
    dst[...] = pairs[_downwards(pairs[:, 0])].reshape(-1)[: dst.size]
    return ()


def _sort_rows() -> list[PipeRow]:
    out = slot("dst", W, dtypes=("float32", "float16"), align=BLOCK)
    src = slot("src", R, like="dst", align=BLOCK)
    sort = _row(
        "v.sort",
        _api("sort"),
        out,
        src,
        *counts("n", "count", "dst_count"),
        views=_lengths(dst="dst_count", src="count"),
        meaning=_sort,
    )
    sort32 = _row(
        "v.sort32",
        _api("sort32"),
        out,
        src,
        slot("index", R, dtypes=("uint32",), align=BLOCK),
        *counts("count", "dst_count"),
        views=_lengths(dst="dst_count", src="count", index="count"),
        meaning=_sort32,
    )
    merges: list[PipeRow] = []
    for ways in (2, 3, 4):
        names = ("a", "b", "c", "d")[:ways]
        merges.append(
            _row(
                f"v.merge_sort.{ways}",
                _api("merge_sort"),
                out,
                *(slot(name, R, like="dst", align=BLOCK) for name in names),
                *counts("dst_count", *(f"{name}_count" for name in names)),
                views=_lengths(dst="dst_count", **{name: f"{name}_count" for name in names}),
                meaning=_merge,
            )
        )
    return [sort, sort32, *merges]


VECTOR = [
    *_elementwise_rows(),
    *_choice_rows(),
    *_place_rows(),
    *_gather_rows(),
    *(_reduce_row(op, clear=clear) for op in _REDUCE for clear in (True, False)),
    *(_block_reduce(op) for op in ("max", "min", "sum")),
    *(_whole_reduce(op) for op in ("max", "min")),
    *_sort_rows(),
]
"""The rows of the vector units."""
