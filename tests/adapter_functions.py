"""Programs in the dialect of the Ascend adapter that call what A2 and A3 have no one instruction
for: sines, powers, sorts, transposes, bytes, drains by a factor, numbers of the scalar unit.
"""

from typing import Any

import numpy as np

import tilelang.language as T
from adapter_programs import AUTO, Program, floats

OUT = {"out_idx": [-1], "pass_configs": AUTO}


def numbers(n, dtype):
    """A row for each function of real numbers."""

    @T.prim_func
    def kernel(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype), C: T.Tensor((7, n), dtype)):
        with T.Kernel(1, is_npu=True) as (_, vid):
            a, b, c = (T.alloc_ub((n,), dtype) for _ in range(3))
            if vid == 0:
                T.copy(A, a)
                T.copy(B, b)
                T.tile.sin(c, a)
                T.copy(c, C[0, :])
                T.tile.cos(c, a)
                T.copy(c, C[1, :])
                T.tile.pow(c, a, b)
                T.copy(c, C[2, :])
                T.tile.pow(c, a, 3.0)
                T.copy(c, C[3, :])
                T.tile.round(c, a, n)
                T.copy(c, C[4, :])
                T.tile.arith_progression(c, 3, 2, n)
                T.copy(c, C[5, :])
                T.tile.broadcast(c, a[5:6])
                T.copy(c, C[6, :])

    return kernel


def _numbers_inputs(n, dtype):
    def inputs(rng):
        a = rng.uniform(-4, 4, n)
        a[:8] = [0, 0, -1, -2, 2, 1, -3, 4]
        b = np.where(rng.random(n) < 0.5, rng.integers(-3, 4, n), rng.uniform(-3, 3, n))
        b[:8] = [0, 2, 3, 2, 0.5, 7, -1, -0.5]
        b = np.where((a < 0) & (b != np.floor(b)), 2, b)
        return [x.astype(dtype) for x in (a, b)]

    return inputs


def _numbers_answer(a, b):
    x, y = a.astype(np.float32), b.astype(np.float32)
    made = [np.sin(x), np.cos(x), np.power(x, y), x**3, np.rint(x), 3 + 2 * np.arange(x.size)]
    with np.errstate(over="ignore"):
        return np.stack([*made, np.full_like(x, x[5])]).astype(a.dtype)


def whole_powers(n):
    """Powers of integers, which wrap, by a tile and by a number."""

    @T.prim_func
    def kernel(
        A: T.Tensor((n,), "int32"), B: T.Tensor((n,), "int32"), C: T.Tensor((2, n), "int32")
    ):
        with T.Kernel(1, is_npu=True) as (_, vid):
            a, b, c = (T.alloc_ub((n,), "int32") for _ in range(3))
            if vid == 0:
                T.copy(A, a)
                T.copy(B, b)
                T.tile.pow(c, a, b)
                T.copy(c, C[0, :])
                T.tile.pow(c, a, 5)
                T.copy(c, C[1, :])

    return kernel


def sorts(n, valid, k, dtype):
    """The sort family: all pairs of the first values, the first pairs, runs of 32, their merges."""
    words = 8 // np.dtype(dtype).itemsize
    merges = dtype == "float32"

    @T.prim_func
    def kernel(
        A: T.Tensor((n,), dtype),
        I: T.Tensor((n,), "uint32"),
        C: T.Tensor((2 * n,), dtype),
        D: T.Tensor((2 * k,), dtype),
        E: T.Tensor((words * n,), dtype),
        F: T.Tensor((3, 4 * 32 * words), dtype),
    ):
        with T.Kernel(1, is_npu=True) as (_, vid):
            a, i = T.alloc_ub((n,), dtype), T.alloc_ub((n,), "uint32")
            c, d = T.alloc_ub((2 * n,), dtype), T.alloc_ub((2 * k,), dtype)
            e, f = T.alloc_ub((words * n,), dtype), T.alloc_ub((4 * 32 * words,), dtype)
            if vid == 0:
                T.copy(A, a)
                T.copy(I, i)
                T.tile.sort(c, a, valid)
                T.copy(c, C)
                T.tile.topk(d, a, k, n)
                T.copy(d, D)
                T.tile.sort32(e, a, i)
                T.copy(e, E)
                for many in (2, 3, 4):
                    T.tile.fill(f, 0)
                    if merges:
                        lists = [e[j * 64 : (j + 1) * 64] for j in range(many)]
                        T.tile.merge_sort(f[0 : many * 64], *lists)
                    T.copy(f, F[many - 2, :])

    return kernel


def _sorts_inputs(n, dtype):
    def inputs(rng):
        return [rng.permutation(n).astype(dtype), np.arange(n, dtype=np.uint32) * 3]

    return inputs


def _sorts_answer(valid, k):
    def answer(a, i):
        x = a.astype(np.float32)
        cut = np.where(np.arange(x.size) < valid, x, -np.inf)
        out = [np.stack([cut[o], o], 1).ravel() for o in (np.argsort(-cut, kind="stable"),)]
        order = np.argsort(-x, kind="stable")[:k]
        runs = np.argsort(-x.reshape(-1, 32), 1) + 32 * np.arange(x.size // 32)[:, None]
        words = 8 // a.itemsize
        pairs = np.zeros((x.size, words), a.dtype)
        pairs[:, 0] = a[runs.ravel()]
        pairs.view(np.uint32)[:, 1] = i[runs.ravel()]
        merged = np.zeros((3, 128 * words), a.dtype)
        for many in (2, 3, 4) if words == 2 else ():
            part = pairs[: 32 * many]
            row = part[np.argsort(-part[:, 0], kind="stable")].ravel()
            merged[many - 2, : row.size] = row
        top = np.stack([x[order], order], 1).ravel()
        return [out[0].astype(a.dtype), top.astype(a.dtype), pairs.ravel(), merged]

    return answer


def turned(rows, columns, pitch, dtype):
    """The axes of a part of a tile exchanged."""

    @T.prim_func
    def kernel(A: T.Tensor((rows, pitch), dtype), C: T.Tensor((columns, rows), dtype)):
        with T.Kernel(1, is_npu=True) as (_, vid):
            a, c = T.alloc_ub((rows, pitch), dtype), T.alloc_ub((columns, rows), dtype)
            if vid == 0:
                T.copy(A, a)
                T.tile.transpose(c, a[:, 0:columns])
                T.copy(c, C)

    return kernel


def places(dtype):
    """Reductions of blocks and of repeats with places, blocks of one element, packed elements."""
    lanes, block = 256 // np.dtype(dtype).itemsize, 32 // np.dtype(dtype).itemsize
    n = 3 * lanes

    @T.prim_func
    def kernel(
        A: T.Tensor((n,), dtype),
        M: T.Tensor((n,), "uint32"),
        B: T.Tensor((3, 24), dtype),
        W: T.Tensor((2, 6), dtype),
        C: T.Tensor((16, block), dtype),
        G: T.Tensor((n,), dtype),
    ):
        with T.Kernel(1, is_npu=True) as (_, vid):
            a, g = T.alloc_ub((n,), dtype), T.alloc_ub((n,), dtype)
            m = T.alloc_ub((n,), "uint32")
            b, w = T.alloc_ub((24,), dtype), T.alloc_ub((6,), dtype)
            c = T.alloc_ub((16, block), dtype)
            if vid == 0:
                T.copy(A, a)
                T.copy(M, m)
                for k, op in enumerate(("max", "min", "sum")):
                    getattr(T.tile, f"block_reduce_{op}")(b, a, 3, lanes, 1, 1, 8)
                    T.copy(b, B[k, :])
                for k, op in enumerate(("max", "min")):
                    getattr(T.tile, f"wholereduce{op}")(w, a, lanes, 3, 1, 1, 8)
                    T.copy(w, W[k, :])
                T.tile.brcb_experiment(c, a, 2, 1, 8)
                T.copy(c, C)
                T.tile.fill(g, 0)
                T.tile.gather_mask(g, a, m)
                T.copy(g, G)

    return kernel


def _places_inputs(dtype):
    def inputs(rng):
        n = 3 * 256 // np.dtype(dtype).itemsize
        bits = rng.integers(0, 2**32, n, dtype=np.uint32)
        return [rng.permutation(n).astype(dtype) / 8, bits]

    return inputs


def _places_answer(a, m):
    x = a.reshape(3, -1)
    block = 32 // a.itemsize
    blocks = a.reshape(24, block)
    pairs = np.zeros((2, 3, 2), a.dtype)
    for k, (best, place) in enumerate(((np.max, np.argmax), (np.min, np.argmin))):
        pairs[k, :, 0] = best(x, 1)
        pairs[k, :, 1] = place(x, 1).astype(f"u{a.itemsize}").view(a.dtype)
    bits = np.unpackbits(m.view(np.uint8), bitorder="little")[: a.size]
    packed = np.zeros_like(a)
    packed[: bits.sum()] = a[bits != 0]
    reduced = np.stack([f(blocks, 1) for f in (np.max, np.min, np.sum)])
    return [reduced, pairs.reshape(2, 6), np.repeat(a[:16, None], block, 1), packed]


def integers(dtype):
    """Integers by a number, and spread over rows; tiles of no whole number of blocks."""

    @T.prim_func
    def kernel(A: T.Tensor((8, 64), dtype), C: T.Tensor((6, 8, 64), dtype)):
        with T.Kernel(1, is_npu=True) as (_, vid):
            a, c = T.alloc_ub((8, 64), dtype), T.alloc_ub((8, 64), dtype)
            if vid == 0:
                T.copy(A, a)
                for k, op in enumerate(("and", "or", "xor")):
                    getattr(T.tile, f"bitwise_{op}")(c, a, 43)
                    T.copy(c, C[k, :, :])
                T.tile.fill(c, 0)
                T.copy(a[0:8, 0:21], c[0:8, 0:21])
                T.copy(c, C[3, :, :])
                T.copy(A[0:8, 0:37], c[:, 0:37])
                T.copy(c, C[4, :, :])
                for i, j in T.Parallel(8, 64):
                    c[i, j] = a[i, 0]
                T.copy(c, C[5, :, :])

    return kernel


def _integers_inputs(dtype):
    def inputs(rng):
        low = 0 if dtype.startswith("u") else -100
        return [rng.integers(low, 100, (8, 64)).astype(dtype)]

    return inputs


def _integers_answer(a):
    number = a.dtype.type(43)
    out = [a & number, a | number, a ^ number]
    part = np.where(np.arange(64) < 21, a, 0).astype(a.dtype)
    out += [part, np.where(np.arange(64) < 37, a, part), np.repeat(a[:, :1], 64, 1)]
    return np.stack(out)


def drained(source, out, relu):
    """A product that is converted by a factor on its way out."""
    wide = "int32" if source == "int8" else "float32"

    @T.prim_func
    def kernel(
        A: T.Tensor((48, 64), source), B: T.Tensor((64, 32), source), C: T.Tensor((48, 32), out)
    ):
        with T.Kernel(1, is_npu=True) as (_, _vid):
            a, b = T.alloc_L1((48, 64), source), T.alloc_L1((64, 32), source)
            c = T.alloc_L0C((48, 32), wide)
            T.copy(A, a)
            T.copy(B, b)
            T.gemm_v0(a, b, c, init=True)
            T.copy(c, C, enable_relu=relu)

    return kernel


def _drained_inputs(source):
    def inputs(rng):
        if source == "int8":
            return [rng.integers(-4, 5, s).astype(np.int8) for s in ((48, 64), (64, 32))]
        return [rng.standard_normal(s).astype(np.float16) * 4 for s in ((48, 64), (64, 32))]

    return inputs


def _drained_answer(out, relu):
    def answer(a, b):
        c = a.astype(np.float32) @ b.astype(np.float32)
        c = np.maximum(c, 0) if relu else c
        return np.clip(np.rint(c), -128, 127).astype(np.int8) if out == "int8" else c.astype(out)

    return answer


def one_by_one(n):
    """Functions of one number, elements of global memory that are stored and read again."""

    @T.prim_func
    def kernel(A: T.Tensor((n,), "float32"), C: T.Tensor((n,), "float32")):
        with T.Kernel(1, is_npu=True) as (_, vid):
            a = T.alloc_ub((n,), "float32")
            x = T.alloc_var("float32")
            with T.Scope("V"):
                if vid == 0:
                    T.copy(A, a)
                    T.barrier_all()
                    for k, fn in enumerate((T.exp, T.log, T.sqrt, T.rsqrt, T.sin, T.cos)):
                        C[k] = fn(a[k])
                    for k, fn in enumerate((T.floor, T.ceil, T.trunc, T.round, T.sigmoid)):
                        x = fn(a[6 + k])
                        C[6 + k] = x + C[k]
                    C[11] = T.pow(a[11], 2.5)
                    C[12] = T.abs(-a[12])
                    for k in T.serial(13, n):
                        C[k] = C[k - 1] + a[k]

    return kernel


def _one_by_one_answer(a):
    out = np.zeros_like(a)
    six = (np.exp, np.log, np.sqrt, lambda v: 1 / np.sqrt(v), np.sin, np.cos)
    out[:6] = [f(v) for f, v in zip(six, a, strict=False)]
    five = (np.floor, np.ceil, np.trunc, np.rint, lambda v: 1 / (1 + np.exp(-v)))
    out[6:11] = [f(v) + w for f, v, w in zip(five, a[6:], out, strict=False)]
    out[11], out[12] = a[11] ** 2.5, a[12]
    for k in range(13, a.size):
        out[k] = out[k - 1] + a[k]
    return out


def dequantised(n):
    """int32 as float16 by the factor of T.set_deq_scale."""

    @T.prim_func
    def kernel(A: T.Tensor((n,), "int32"), C: T.Tensor((n,), "float16")):
        with T.Kernel(1, is_npu=True) as (_, vid):
            a, c = T.alloc_ub((n,), "int32"), T.alloc_ub((n,), "float16")
            if vid == 0:
                T.copy(A, a)
                T.set_deq_scale(0.25)
                T.tile.cast(c, a, "CAST_RINT", n)
                T.copy(c, C)

    return kernel


def _whole(n, low, high):
    return lambda rng: [rng.integers(low, high, n).astype(np.int32)]


def programs() -> list[Program]:
    """One program for each family, by element type."""
    four: dict[str, Any] = {"out_idx": [2, 3, 4, 5], "pass_configs": AUTO}
    out = []
    for dtype, near in (("float32", 2e-6), ("float16", 2e-3)):
        inputs = _numbers_inputs(300, dtype)
        name = f"numbers_{dtype}"
        out.append(Program(name, numbers(300, dtype), inputs, _numbers_answer, near, OUT))
        inputs, answer = _sorts_inputs(160, dtype), _sorts_answer(150, 20)
        out.append(Program(f"sorts_{dtype}", sorts(160, 150, 20, dtype), inputs, answer, 0, four))
        inputs = _places_inputs(dtype)
        out.append(Program(f"places_{dtype}", places(dtype), inputs, _places_answer, 1e-3, four))
    for rows, columns, pitch, dtype in (
        (32, 64, 64, "int8"), (32, 20, 32, "int8"), (48, 32, 32, "int16"), (32, 11, 16, "float16"),
        (16, 40, 40, "float32"), (24, 13, 16, "int32"),
    ):  # fmt: skip
        kind = np.dtype(dtype)
        draw = lambda rng, s=(rows, pitch), k=kind: [rng.integers(-99, 99, s).astype(k)]  # noqa: E731
        answer = lambda a, c=columns: np.ascontiguousarray(a[:, :c].T)  # noqa: E731
        name = f"turned_{dtype}_{rows}x{columns}"
        out.append(Program(name, turned(rows, columns, pitch, dtype), draw, answer, 0, OUT))
    for dtype in ("int8", "uint8", "int16", "uint16", "int32", "uint32"):
        inputs = _integers_inputs(dtype)
        out.append(Program(f"integers_{dtype}", integers(dtype), inputs, _integers_answer, 0, OUT))
    draw_whole = lambda rng: [  # noqa: E731
        rng.integers(-9, 9, 100).astype(np.int32),
        rng.integers(0, 9, 100).astype(np.int32),
    ]
    out.append(
        Program(
            "whole_powers",
            whole_powers(100),
            draw_whole,
            lambda a, b: np.stack([a**b, a**5]),
            0,
            OUT,
        )
    )
    for source, to, relu in (
        ("float16", "int8", False),
        ("int8", "int8", True),
        ("int8", "float16", False),
    ):
        name = f"drained_{source}_{to}"
        inputs, answer = _drained_inputs(source), _drained_answer(to, relu)
        out.append(Program(name, drained(source, to, relu), inputs, answer, 0, OUT))
    draw = lambda rng: [rng.uniform(0.5, 3, 20).astype(np.float32)]  # noqa: E731
    out.append(Program("one_by_one", one_by_one(20), draw, _one_by_one_answer, 2e-6, OUT))
    out.append(
        Program(
            "dequantised",
            dequantised(200),
            _whole(200, -4000, 4000),
            lambda a: (a.astype(np.float32) / 4).astype(np.float16),
            0,
            OUT,
        )
    )
    return out


__all__ = ["floats", "programs"]
