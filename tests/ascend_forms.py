"""Kernels with every form of every operation that the simulator of the 910B runs.

What enters: nothing. What leaves: `adapter()`, kernels by name with the options that they are
compiled with. Tables of the language and of the chip say which forms there are.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tilelang.language as T
from adapter_programs import AUTO
from tilelang.dtypes import DType
from tilelang.ir.ascend import VECTOR_CASTS, VECTOR_OPS, vector_types
from tilelang.language.adapter_tile import PATTERNS, SELECTIONS
from tilelang.targets.ascend.machine import ASCEND910B

Kernels = Iterator[tuple[str, Any, dict[str, Any]]]
Body = Callable[..., None]

WORDS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "bfloat16", "float32")

# ---- The adapter's dialect: tiles of UB ----------------------------------------------------------


def tiles(dtype: str, body: Body, shape: tuple[int, ...] = (8, 64)) -> Any:
    """`body(c, a, b)` on tiles of UB."""

    @T.prim_func
    def kernel(A: T.Tensor(shape, dtype), B: T.Tensor(shape, dtype), C: T.Tensor(shape, dtype)):
        with T.Kernel(1, is_npu=True) as (_, vid):
            a, b, c = (T.alloc_ub(shape, dtype) for _ in range(3))
            if vid == 0:
                T.copy(A, a)
                T.copy(B, b)
                T.copy(C, c)
                body(c, a, b)
                T.copy(c, C)

    return kernel


ONE = ("exp", "ln", "abs", "reciprocal", "sqrt", "rsqrt", "relu", "bitwise_not")
ONE += ("sigmoid", "silu", "sin", "cos")
TWO = ["add", "sub", "mul", "div", "max", "min", "bitwise_and", "bitwise_or", "bitwise_xor", "pow"]
BY_NUMBER = ["leaky_relu", "bitwise_lshift", "bitwise_rshift", "axpy"]
COUNT = 8 * 64
CALLS: dict[str, Sequence[Body]] = {
    **{op: [lambda t, c, a, b: t(c, a)] for op in ONE},
    **{op: [lambda t, c, a, b: t(c, a, b), lambda t, c, a, b: t(c, a, 3)] for op in TWO},
    **{op: [lambda t, c, a, b: t(c, a, 3)] for op in BY_NUMBER},
    "clamp": [lambda t, c, a, b: t(c, a, 1, 3, COUNT)],
    "mul_add_dst": [lambda t, c, a, b: t(c, a, b)],
    "round": [lambda t, c, a, b: t(c, a, COUNT)],
    "row_expand_mul": [lambda t, c, a, b: t(c, a, b[0, 0:8])],
    "broadcast": [
        lambda t, c, a, b: t(c, a[0:1, 0:8], axis=1),
        lambda t, c, a, b: t(c, a[0:1, :], axis=0),
        lambda t, c, a, b: t(c, a[0:1, 0:1]),
    ],
    "createvecindex": [lambda t, c, a, b: t(c, 3)],
    "arith_progression": [lambda t, c, a, b: t(c, 3, 2, COUNT)],
}
"""The ways to call an operation of `T.tile` on tiles of one type."""


def _vector(dtype: str) -> Body:
    def body(c: Any, a: Any, b: Any) -> None:
        for op, calls in CALLS.items():
            for call in calls if dtype in VECTOR_OPS[op].dtypes else ():
                call(getattr(T.tile, op), c, a, b)
        for value in (a, 3):
            for mode in ("EQ", "NE", "GT", "GE", "LT", "LE"):
                if dtype in vector_types("compare", mode):
                    T.tile.compare(T.alloc_ub((COUNT // 8,), "uint8"), b, value, mode)
        for mode in SELECTIONS if dtype in VECTOR_OPS["select"].dtypes else ():
            other = 3 if mode == SELECTIONS[1] else b
            T.tile.select(c, T.alloc_ub((COUNT // 8,), "uint8"), a, other, mode)
        if dtype in VECTOR_OPS["add"].dtypes:
            for part in (slice(0, 40), slice(0, 20)):
                T.tile.add(*(x[0:8, part] for x in (c, a, b)))
                T.tile.exp(*(x[0:1, part] for x in (c, a))) if dtype in HALF else None

    return body


HALF = ("float16", "float32")
MOVED = VECTOR_OPS["gather"].dtypes
ATOMIC = ("float32", "float16", "int16", "int32", "int8", "bfloat16")
SYMBOLS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "min": T.min, "max": T.max, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip


def _moves(dtype: str) -> Body:
    """Gathers, blocks, transposes: places, not numbers."""
    lanes = 256 // DType(dtype).bytes

    def body(c: Any, a: Any, b: Any) -> None:
        at = T.alloc_ub((COUNT,), "uint32")
        for op in ("gather", "gather_mask", "gatherb", "brcb") if dtype in MOVED else ():
            if op == "gather":
                T.tile.gather(c, a, at, 0)
            elif op == "gatherb":
                T.tile.gatherb(c, a, at[0:8], 1, 1, 8)
            elif op == "brcb":
                spread = T.alloc_ub((8, 32 // DType(dtype).bytes), dtype)
                T.tile.brcb_experiment(spread, a[0, 0:8], 1, 1, 8)
            else:
                for pattern in (*PATTERNS, at):
                    T.tile.gather_mask(c, a, pattern)
        for op in ("max", "min", "sum") if dtype in HALF else ():
            getattr(T.tile, f"block_reduce_{op}")(c, a, 1, lanes, 1, 1, 8)
            getattr(T.tile, f"wholereduce{op}")(c, a, lanes, 1, 1, 1, 8)
            getattr(T.tile, f"block_reduce_{op}")(c, a, 2, lanes, 1, 1, 8)
        T.copy(a, c)
        T.copy(a[0:8, 0:20], c[0:8, 0:20])
        T.copy(a[0:1, 0:64], c)
        T.tile.fill(c, 3)
        T.clear(c[0:8, 0:40])
        for dim in (0, 1) if dtype in HALF else ():
            for op in ("sum", "max", "min"):
                for clear in (True, False):
                    into = c[0, 0:64] if dim == 0 else c[0, 0:8]
                    getattr(T, f"reduce_{op}")(a, into, dim=dim, clear=clear)

    return body


def transposed(dtype: str, rows: int, columns: int) -> Any:
    """A tile of UB with its axes exchanged."""

    @T.prim_func
    def kernel(A: T.Tensor((rows, columns), dtype), C: T.Tensor((columns, rows), dtype)):
        with T.Kernel(1, is_npu=True) as (_, vid):
            a, c = T.alloc_ub((rows, columns), dtype), T.alloc_ub((columns, rows), dtype)
            if vid == 0:
                T.copy(A, a)
                T.tile.transpose(c, a)
                T.copy(c, C)

    return kernel


def sorted_pairs(dtype: str) -> Any:
    """All of the sort family."""
    n, words = 128, 8 // DType(dtype).bytes

    @T.prim_func
    def kernel(A: T.Tensor((n,), dtype), I: T.Tensor((n,), "uint32"), C: T.Tensor((2 * n,), dtype)):
        with T.Kernel(1, is_npu=True) as (_, vid):
            a, i = T.alloc_ub((n,), dtype), T.alloc_ub((n,), "uint32")
            pairs, out = T.alloc_ub((words * n,), dtype), T.alloc_ub((words * n,), dtype)
            two = T.alloc_ub((2 * n,), dtype)
            if vid == 0:
                T.copy(A, a)
                T.copy(I, i)
                T.tile.sort32(pairs, a, i)
                lists = [pairs[k * 32 * words : (k + 1) * 32 * words] for k in range(4)]
                for many in (2, 3, 4):
                    T.tile.merge_sort(out[0 : many * 32 * words], *lists[:many])
                T.tile.sort(two, a, n)
                T.tile.topk(two[0:16], a, 8, 100)
                T.copy(two, C)

    return kernel


def casts(source: str) -> Any:
    """A type in all others, by each mode."""

    @T.prim_func
    def kernel(A: T.Tensor((8, 64), source), C: T.Tensor((8, 64), source)):
        with T.Kernel(1, is_npu=True) as (_, _vid):
            a = T.alloc_ub((8, 64), source)
            T.copy(A, a)
            if source == "int32":
                T.set_deq_scale(0.5)
            for target, modes in VECTOR_CASTS[source].items():
                c = T.alloc_ub((8, 64), target)
                for mode in modes:
                    T.tile.cast(c, a, mode, COUNT)
                T.copy(a, c)
                T.copy(a[:, 0:40], c[:, 0:40])
            T.copy(a, C)

    return kernel


def cut(dtype: str) -> Any:
    """Tiles that leave their tensors, with a pad and without, and at places known when it runs."""

    @T.prim_func
    def kernel(A: T.Tensor((30, 70), dtype), n: T.int32, C: T.Tensor((30, 70), dtype)):
        with T.Kernel(2, is_npu=True) as (cid, vid):
            a, b = T.alloc_ub((8, 64), dtype), T.alloc_ub((64,), dtype)
            T.copy(A[cid * 16 + vid * 8, 32], a, pad_value=3)
            T.copy(a, C[cid * 16 + vid * 8, 32])
            T.copy(A[0:8, 0:20], a[:, 0:20])
            T.copy(a[:, 0:20], C[0:8, 0:20])
            T.copy(A[n, 0:50], b[0:50])
            T.copy(b[0:50], C[n, 0:50])

    return kernel


def parallel(dtype: str) -> Any:
    """Loops over a tile of UB: what they are made of is chosen by the compiler."""
    whole = dtype.startswith(("int", "uint"))
    signs = ("&", "|", "^", "<<", ">>") if whole else ("/", "min", "max")
    both = [SYMBOLS[sign] for sign in ("+", "-", "*", *signs)]
    by_row = both[: 0 if whole else None]
    alone = (
        *(() if dtype.startswith("uint") else (operator.neg,)),
        *((T.exp, T.log, T.sqrt, T.rsqrt, T.abs, T.sigmoid, T.sin, T.cos) if dtype in HALF else ()),
    )

    @T.prim_func
    def kernel(A: T.Tensor((8, 64), dtype), C: T.Tensor((8, 64), dtype)):
        with T.Kernel(1, is_npu=True) as (_, vid):
            a, b, c = (T.alloc_ub((8, 64), dtype) for _ in range(3))
            m = T.alloc_ub((8,), dtype)
            if vid == 0:
                T.copy(A, a)
                T.copy(A[0, 0:8], m)
                for op in both:
                    for i, j in T.Parallel(8, 64):
                        c[i, j] = op(a[i, j], b[i, j])
                    for i, j in T.Parallel(8, 64):
                        c[i, j] = op(a[i, j], 3)
                for op in by_row:
                    for i, j in T.Parallel(8, 64):
                        c[i, j] = op(a[i, j], m[i])
                    for i, j in T.Parallel(8, 64):
                        c[i, j] = op(m[i], a[i, j])
                for fn in alone:
                    for i, j in T.Parallel(8, 64):
                        c[i, j] = fn(a[i, j])
                for i, j in T.Parallel(8, 64):
                    c[i, j] = T.if_then_else(a[i, j] > b[i, j], a[i, j], 2)
                T.copy(c, C)

    return kernel


# ---- The adapter's dialect: the cube core --------------------------------------------------------


def product(dtype: str, out: str, left: bool, right: bool) -> Any:
    """A product from L1 in one of the four transposes, with cut tiles, and its drain."""
    wide = "int32" if dtype == "int8" else "float32"
    shapes = ((64, 32) if left else (32, 64)), ((32, 64) if right else (64, 32))

    @T.prim_func
    def kernel(
        A: T.Tensor(shapes[0], dtype), B: T.Tensor((60, 60), dtype), C: T.Tensor((32, 32), out)
    ):
        with T.Kernel(1, is_npu=True) as (_, _vid):
            a, b = T.alloc_L1(shapes[0], dtype), T.alloc_L1(shapes[1], dtype)
            c = T.alloc_L0C((32, 32), wide)
            T.copy(A, a)
            T.copy(B[0, 0], b)
            T.gemm_v0(a, b, c, transpose_A=left, transpose_B=right, init=True)
            T.copy(c, C, enable_relu=left)

    return kernel


def by_l0(dtype: str, turned: bool) -> Any:
    """A product from L0A and L0B."""
    wide = "int32" if dtype == "int8" else "float32"

    @T.prim_func
    def kernel(
        A: T.Tensor((32, 64), dtype), B: T.Tensor((64, 32), dtype), C: T.Tensor((32, 32), wide)
    ):
        with T.Kernel(1, is_npu=True) as (_, _vid):
            shapes = ((64, 32), (32, 64)) if turned else ((32, 64), (64, 32))
            a1, b1 = T.alloc_L1(shapes[0], dtype), T.alloc_L1(shapes[1], dtype)
            a0, b0 = T.alloc_L0A((32, 64), dtype), T.alloc_L0B((64, 32), dtype)
            c = T.alloc_L0C((32, 32), wide)
            T.copy(A[0, 0], a1)
            T.copy(B[0, 0], b1)
            T.copy(a1, a0, transpose=turned)
            T.copy(b1, b0, transpose=turned)
            T.mma(a0, b0, c, init=True)
            T.copy(c, C)

    return kernel


def exchanged(dtype: str) -> Any:
    """Both kinds of core, and what goes from one to the other."""

    @T.prim_func
    def kernel(
        A: T.Tensor((32, 64), dtype), B: T.Tensor((64, 32), dtype), C: T.Tensor((32, 32), "float")
    ):
        with T.Kernel(1, threads=2, is_npu=True) as _:
            u = T.alloc_ub((32, 64), dtype)
            a, b = T.alloc_L1((32, 64), dtype), T.alloc_L1((64, 32), dtype)
            c, d = T.alloc_L0C((32, 32), "float"), T.alloc_ub((32, 32), "float")
            T.copy(A, u)
            T.tile.add(u, u, u) if dtype != "bfloat16" else None
            T.copy(u, a)
            T.copy(B, b)
            T.gemm_v0(a, b, c, init=True)
            T.copy(c, d)
            T.tile.add(d, d, d)
            T.copy(d, C)

    return kernel


# ---- The adapter's dialect: order, atomics, scalars ----------------------------------------------


def order() -> Any:
    """Flags, barriers and meetings."""

    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(2, is_npu=True) as (_cid, _):
            a = T.alloc_ub((64,), "float32")
            with T.Scope("C"):
                T.set_flag("mte1", "mte2", 0)
                T.wait_flag("mte1", "mte2", 0)
                T.set_cross_flag("fix", 0)
                T.sync_all()
                for pipe in ("mte1", "mte2", "m", "fix"):
                    T.pipe_barrier(pipe)
            with T.Scope("V"):
                T.wait_cross_flag(0)
                T.copy(A, a)
                T.set_flag("mte2", "v", 0)
                T.wait_flag("mte2", "v", 0)
                T.tile.exp(a, a)
                T.barrier_all()
                for pipe in ("mte2", "mte3", "v"):
                    T.pipe_barrier(pipe)
                T.copy(a, C)
                for mode in (0, 1):
                    T.set_cross_flag("mte3", 3 + mode, mode)
                    T.wait_cross_flag(3 + mode)
                T.sync_all()

    return kernel


def added(dtype: str) -> Any:
    """A tile of UB added to global memory."""

    @T.prim_func
    def kernel(A: T.Tensor((64,), dtype), C: T.Tensor((64,), dtype)):
        with T.Kernel(1, is_npu=True) as (_, _vid):
            a = T.alloc_ub((64,), dtype)
            T.copy(A, a)
            T.tile.atomic_add(C, a)

    return kernel


def scalars() -> Any:
    """Elements, names, branches and loops of the scalar unit."""

    @T.prim_func
    def kernel(
        A: T.Tensor((64,), "float32"),
        I: T.Tensor((64,), "int32"),
        n: T.int32,
        C: T.Tensor((64,), "float32"),
    ):
        with T.Kernel(2, is_npu=True) as (cid, vid):
            a, i = T.alloc_ub((64,), "float32"), T.alloc_ub((64,), "int32")
            x, k = T.alloc_var("float32"), T.alloc_var("int32")
            with T.Scope("V"):
                T.copy(A, a)
                T.copy(I, i)
                T.barrier_all()
                k = n // 3 + n % 5 - cid * 2
                k = (k << 2) | (k >> 1) & 7 ^ 3
                k = T.min(T.max(k, I[cid]), i[1])
                k = T.if_then_else(k > 3, k, -k)
                x = a[k % 64] * 2.0 + T.cast(k, "float32") / 3.0
                x = T.max(T.min(x, A[0]), a[1])
                a[vid] = x
                while k > 0:
                    k = k - 1
                    if k == 7:
                        T.loop_break()
                for j in T.unroll(4):
                    a[j] = T.cast(i[j], "float32")
                T.copy(a, C)

    return kernel


def scalar_maths() -> Any:
    """Functions of one number on the scalar unit."""

    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, is_npu=True) as (_, _vid):
            a = T.alloc_ub((64,), "float32")
            x = T.alloc_var("float32")
            with T.Scope("V"):
                T.copy(A, a)
                T.barrier_all()
                x = a[0]
                for fn in (T.exp, T.log, T.sqrt, T.rsqrt, T.abs, T.sin, T.cos, T.floor, T.sigmoid):
                    x = fn(x)
                a[0] = T.pow(x, 2.0)
                T.copy(a, C)

    return kernel


def one_element(dtype: str) -> Any:
    """An element of global memory that the scalar unit stores, one that it reads after that."""

    @T.prim_func
    def kernel(A: T.Tensor((64,), dtype), C: T.Tensor((64,), dtype)):
        with T.Kernel(1, is_npu=True) as (_, _vid), T.Scope("V"):
            C[3] = A[5]
            C[4] = C[3]

    return kernel


def printed() -> Any:
    """What is printed from the device."""

    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, is_npu=True) as (cid, _):
            a = T.alloc_ub((64,), "float32")
            with T.Scope("V"):
                T.copy(A, a)
                T.barrier_all()
                T.printf("%d", cid)
                T.dump_tensor(a, 1, 8)
                T.copy(a, A)

    return kernel


def _by_type(dtype: str) -> Iterator[tuple[str, Any]]:
    yield "tiles", tiles(dtype, _vector(dtype))
    yield "moves", tiles(dtype, _moves(dtype))
    yield "cut", cut(dtype)
    yield "parallel", parallel(dtype)
    size = DType(dtype).bytes
    for rows, columns in ((32, 64), (16, 16), (8, 16)):
        whole = rows * size % 32 == columns * size % 32 == 0
        if dtype in VECTOR_OPS["transpose"].dtypes and whole:
            yield f"transpose {rows}x{columns}", transposed(dtype, rows, columns)
    if dtype in ATOMIC:
        yield "atomic", added(dtype)
    if dtype in HALF:
        yield "sort", sorted_pairs(dtype)


def _products(dtype: str) -> Iterator[tuple[str, Any]]:
    wide = "int32" if dtype == "int8" else "float32"
    for turned in (False, True):
        yield f"by L0 {turned}", by_l0(dtype, turned)
        yield f"product {turned} {wide}", product(dtype, wide, turned, turned)
    for source, out in sorted(ASCEND910B.drains or ()):
        if source == wide:
            yield f"product into {out}", product(dtype, out, False, True)


OTHERS: dict[str, Callable[[], Any]] = {
    "order": order,
    "scalars": scalars,
    "scalar maths": scalar_maths,
    "one element": lambda: one_element("float32"),
    "printed": printed,
}


def adapter() -> Kernels:
    """Kernels for the 910B."""
    for dtype in WORDS:
        for name, kernel in _by_type(dtype):
            yield f"{name} {dtype}", kernel, {}
    for dtype in VECTOR_CASTS:
        yield f"casts {dtype}", casts(dtype), {}
    for dtype in ("float16", "bfloat16", "float32", "int8"):
        for name, kernel in _products(dtype):
            yield f"{name} {dtype}", kernel, {}
    yield "exchanged", exchanged("float16"), AUTO
    for name, make in OTHERS.items():
        yield name, make(), {}
