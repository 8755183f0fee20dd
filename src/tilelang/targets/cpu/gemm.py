"""The micro-kernel of `gemm.tile`: a matrix product in vector registers, made for one shape.

What enters: the pointers, the shape and the strides of one product, and the facts of the processor.
What leaves: a call of a private function of the module, one for each shape and strides.

The function goes over panels of columns, a few vectors wide, and within one over panels of rows. A
panel of C stays in registers while k runs: each step loads the vectors of a row of B, and
multiplies them by one element of each row of A. Panels of a kind are one loop, so the code has at
most a few micro-kernels, whatever the shape. The last vector of a row may be partial.

What keeps the operands in the caches: k is cut into pieces for which a panel of B takes half of the
first cache, and rows into blocks for which A takes half of the second. A panel of B whose rows lie
so far apart that they displace one another is copied to the stack first. A is read where it lies:
a panel of it is a few streams only, and a copy would cost more than it saves.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tilelang.dtypes import DType
from tilelang.targets.cpu.llvm import Host
from tilelang.targets.cpu.text import Code, Value, mangled, number, vector
from tilelang.targets.cpu.types import element_type

LINE = 64  # bytes of a cache line
WAYS = 8  # of the first cache; it is a guess, and the sets that follow from it are what matters
CHAINS = 8  # sums in flight that keep two multipliers with a latency of four busy
REUSED = 48  # rows of A for which copying a panel of B is worth while


def gemm_tile(  # noqa: PLR0913 - the operands and immediates of the row
    code: Code,
    c: Value,
    a: Value,
    b: Value,
    clear: Value,
    dtype: DType,
    *,
    m: int,
    n: int,
    k: int,
    a_row: int,
    a_col: int,
    b_row: int,
    c_row: int,
    host: Host,
) -> None:
    """Emit `c = (0 if clear else c) + a @ b`, as the row `gemm.tile` means it.

    `c`, `a` and `b` are pointers to the first elements of a (m, n), a (m, k) and a (k, n) matrix of
    `dtype`: float32, float64, int32 or int64. Strides are in elements; elements of a row of `b` and
    of `c` are neighbours. `clear` is an i1. Nothing outside the three matrices is read or written.
    """
    if not m or not n:
        return
    shape = _Shape(element_type(dtype), m, n, k, a_row, a_col, b_row, c_row)
    _call(code, shape, host, [c, a, b], clear)


def _call(code: Code, shape: _Shape, host: Host, pointers: list[Value], clear: Value) -> None:
    """A call of the function of a shape, which is made if the module does not have it."""
    suffix = {"true": ".set", "false": ".add"}.get(clear.text, "")
    name = f'"gemm.{shape.name}{suffix}"'
    if name not in code.module.functions:
        types = [f"ptr noalias {x}" for x in ("", "readonly ", "readonly ")]
        inner = Code(
            code.module,
            name,
            "void",
            [*types, "i1"],
            linkage="private",
            attributes="noinline nounwind",
        )
        _Product(inner, shape, host, clear if suffix else inner.args[3]).emit()
        code.module.functions[name] = inner.text
    code.call_void(f"@{name}", [*pointers, clear])


@dataclass(frozen=True)
class _Shape:
    """The product: the LLVM type of an element, extents, strides in elements."""

    kind: str
    m: int
    n: int
    k: int
    a_row: int
    a_col: int
    b_row: int
    c_row: int

    @property
    def name(self) -> str:
        """All of it, as part of a name."""
        strides = f"{self.a_row}.{self.a_col}.{self.b_row}.{self.c_row}"
        return f"{self.kind}.{self.m}x{self.n}x{self.k}.{strides}"

    @property
    def size(self) -> int:
        """Bytes of an element."""
        return {"float": 4, "double": 8, "i32": 4, "i64": 8}[self.kind]


# The plan -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panels:
    """`count` neighbouring panels of `size` rows, or vectors, from `start` on."""

    start: int
    count: int
    size: int


def split(total: int, most: int) -> list[Panels]:
    """`total` in panels of nearly the same size, none larger than `most`; the larger ones first."""
    count = -(-total // most)
    size, larger = divmod(total, count)
    found = [Panels(0, larger, size + 1), Panels(larger * (size + 1), count - larger, size)]
    return [p for p in found if p.count]


def plan(
    m: int, vectors: int, registers: int, temporaries: int = 0
) -> list[tuple[Panels, list[Panels]]]:
    """Panels of columns (in vectors), and for each of them its panels of rows.

    Of all widths the one is taken whose micro-kernels need the fewest cycles by the measure of
    `_cycles`; among equals the one nearest to two vectors. `temporaries` is how many registers one
    multiplication needs beside its operands and its result.
    """
    best: tuple[float, list[tuple[Panels, list[Panels]]]] | None = None
    for most in sorted(range(1, vectors + 1), key=lambda w: abs(w - 2)):
        rows = _most_rows(most, registers, temporaries)
        if not rows:
            break
        columns = split(vectors, most)
        found = [(p, split(m, _most_rows(p.size, registers, temporaries))) for p in columns]
        cost = sum(p.count * r.count * _cycles(r.size, p.size) for p, rows in found for r in rows)
        if best is None or cost < best[0]:
            best = cost, found
    assert best is not None  # a panel of one vector always has rows
    return best[1]


def _most_rows(width: int, registers: int, temporaries: int) -> int:
    """How many rows of `width` vectors stay in registers, beside the operands of a step.

    These are the shorter side of the panel, and two elements of the other one under way. A quarter
    of the registers is left for them at least. 0 if not even one row fits.
    """
    for rows in range(registers * 3 // 4 // width, 0, -1):
        if rows * width + min(rows, width) + 2 + temporaries <= registers:
            return rows
    return 0


def _cycles(rows: int, vectors: int) -> float:
    """The cycles of one step of a micro-kernel: two multiplications or loads in each of them."""
    return max(rows * vectors, rows + vectors, CHAINS) / 2


# The function -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Columns:
    """`count` neighbouring panels of columns, and the panels of rows of each.

    `start` and `width` are in vectors; `tail` is how many lanes the last one has, 0 for all.
    """

    start: int
    count: int
    width: int
    tail: int
    rows: list[Panels]


@dataclass(frozen=True)
class _Piece:
    """The elements of k that are added now: how many, and whether they are the first."""

    deep: Value
    clear: Value


@dataclass(frozen=True)
class _Right:
    """A panel of B: its first element, the stride of its rows, the lanes of the last vector."""

    at: Value
    stride: int
    tail: int


class _Product:
    """The function of one shape."""

    def __init__(self, code: Code, shape: _Shape, host: Host, clear: Value) -> None:
        self.code = code
        self.shape = shape
        self.host = host
        self.clear = clear
        self.vectors = _Vectors(code, shape, host)
        self.lanes = self.vectors.lanes
        self.columns = list(self._columns(host))
        width = max(p.width for p in self.columns) * self.lanes
        most = max(16, host.l1 // 2 // (width * shape.size))
        self.deep = -(-shape.k // max(1, -(-shape.k // most)))
        self.pieces = -(-shape.k // self.deep) if shape.k else 1
        self.scratch: Value | None = None
        if shape.m >= REUSED and _collide(shape.b_row * shape.size, self.deep, host):
            self.scratch = code.alloca(shape.kind, width * self.deep, LINE)

    def _columns(self, host: Host) -> Iterator[_Columns]:
        tail = self.shape.n % self.lanes
        vectors = -(-self.shape.n // self.lanes)
        temporaries = self.vectors.temporaries
        for p, rows in plan(self.shape.m, vectors, host.registers, temporaries):
            end = p.start + p.count * p.size
            partial = int(tail > 0 and end == vectors)
            if p.count > partial:
                yield _Columns(p.start, p.count - partial, p.size, 0, rows)
            if partial:
                yield _Columns(end - p.size, 1, p.size, tail, rows)

    def emit(self) -> None:
        """All of the function, its end included."""
        code, k = self.code, number("i64", self.shape.k)
        tall = _rows_at_a_time(self.shape, self.deep, self.host)
        if tall < self.shape.m:
            self._blocks(tall)
        elif self.pieces == 1:
            self._piece(number("i64", 0), _Piece(k, self.clear))
        else:
            with loop(code, number("i64", self.pieces)) as (index, _):
                start = code.op("mul nuw nsw", index, number("i64", self.deep))
                left = code.op("sub nuw nsw", k, start)
                deep = code.intrinsic("smin", left, number("i64", self.deep))
                first = code.compare("eq", index, number("i64", 0))
                self._piece(start, _Piece(deep, code.op("and", self.clear, first)))
        code.ret()

    def _blocks(self, rows: int) -> None:
        """The product as several with so many rows, and one with the rest."""
        code, shape = self.code, self.shape
        c, a, b, _ = code.args
        full, rest = divmod(shape.m, rows)

        def some(index: Value, rows: int, first: int) -> None:
            at = [self._at(c, index, first * shape.c_row), self._at(a, index, first * shape.a_row)]
            _call(code, replace(shape, m=rows), self.host, [*at, b], self.clear)

        with loop(code, number("i64", full)) as (i, _):
            some(i, rows, rows)
        if rest:
            some(number("i64", 1), rest, full * rows)

    def _piece(self, start: Value, piece: _Piece) -> None:
        """All of C, with the elements of k from `start` on."""
        c, a, b, _ = self.code.args
        a = self._at(a, start, self.shape.a_col)
        b = self._at(b, start, self.shape.b_row)
        for p in self.columns:
            right = self._at(b, number("i64", p.start), self.lanes)
            out = self._at(c, number("i64", p.start), self.lanes)
            with loop(self.code, number("i64", p.count)) as (j, _):
                width = p.width * self.lanes
                panel = _Right(self._at(right, j, width), self.shape.b_row, p.tail)
                self._rows(p, self._at(out, j, width), a, panel, piece)

    def _rows(self, p: _Columns, c: Value, a: Value, b: _Right, piece: _Piece) -> None:
        """One panel of columns: all its panels of rows."""
        if self.scratch is not None:
            b = self._packed(p, b, piece.deep, self.scratch)
        for rows in p.rows:
            out = self._at(c, number("i64", rows.start), self.shape.c_row)
            left = self._at(a, number("i64", rows.start), self.shape.a_row)
            with loop(self.code, number("i64", rows.count)) as (i, _):
                self._micro(
                    (rows.size, p.width, p.tail),
                    self._at(out, i, rows.size * self.shape.c_row),
                    self._at(left, i, rows.size * self.shape.a_row),
                    b,
                    piece,
                )

    def _packed(self, p: _Columns, b: _Right, deep: Value, scratch: Value) -> _Right:
        """The panel of B copied to the stack, its rows close together and full."""
        width = p.width * self.lanes
        with loop(self.code, deep) as (k, _):
            read, written = self._at(b.at, k, b.stride), self._at(scratch, k, width)
            row = self.vectors.load_row(read, p.width, b.tail)
            self.vectors.store_row(row, written, 0)
        return _Right(scratch, width, 0)

    def _micro(
        self, panel: tuple[int, int, int], c: Value, a: Value, b: _Right, piece: _Piece
    ) -> None:
        """One panel of C, in registers; `panel` is its rows, its vectors and the partial one."""
        rows, width, tail = panel
        code, shape, vectors = self.code, self.shape, self.vectors
        out = [self._at(c, number("i64", i), shape.c_row) for i in range(rows)]
        sums = self._start(out, width, tail, piece.clear)
        if shape.k:
            with loop(code, piece.deep, sums) as (k, sums):
                at_a, at_b = self._at(a, k, shape.a_col), self._at(b.at, k, b.stride)
                left: dict[int, Value] = {}
                right: dict[int, Value] = {}
                # The shorter side stays in registers during the step, the other one passes by.
                places = [(i, j) for i in range(rows) for j in range(width)]
                for i, j in sorted(places, key=lambda at: at[rows < width]):
                    if i not in left:
                        left[i] = self._element(at_a, i)
                    if j not in right:
                        right[j] = vectors.load(at_b, j, b.tail if j == width - 1 else 0)
                    n = i * width + j
                    sums[n] = vectors.add_product(left[i], right[j], sums[n])
        for i, at in enumerate(out):
            vectors.store_row(sums[i * width : (i + 1) * width], at, tail)

    def _element(self, at: Value, row: int) -> Value:
        """One element of a column of A, in all lanes."""
        at = self._at(at, number("i64", row), self.shape.a_row)
        return self.code.splat(self.code.load(self.shape.kind, at, self.shape.size), self.lanes)

    def _start(self, out: Sequence[Value], width: int, tail: int, clear: Value) -> list[Value]:
        """The panel of C as it is, or zeros."""
        code = self.code
        zeros = [number(self.vectors.kind, 0)] * (len(out) * width)
        if clear.text == "true":
            return zeros
        before, read, done = (code.label(x) for x in ("clear", "read", "sums"))
        if clear.text != "false":
            code.place(before)
            code.branch(clear, done, read)
        code.place(read)
        found = [x for at in out for x in self.vectors.load_row(at, width, tail)]
        code.place(done)
        if clear.text == "false":
            return found
        return [
            code.value(x.type, f"phi {x.type} [ {zero}, %{before} ], [ {x}, %{read} ]")
            for x, zero in zip(found, zeros, strict=True)
        ]

    def _at(self, base: Value, index: Value, stride: int) -> Value:
        """The address `index * stride` elements after `base`."""
        if index.text == "0":
            return base
        if index.text.isdigit():
            offset = number("i64", int(index.text) * stride)
        else:
            offset = self.code.op("mul nsw", index, number("i64", stride))
        return self.code.gep(base, self.shape.kind, offset)


def _rows_at_a_time(shape: _Shape, deep: int, host: Host) -> int:
    """The rows of A to go over with a panel of B, so that `deep` columns of them stay in half of
    the second cache. Blocks of rows are of about one size.
    """
    most = max(REUSED, host.l2 // 2 // (max(deep, 1) * shape.size))
    each = -(-shape.m // -(-shape.m // most))
    return min(shape.m, -(-each // 12) * 12)  # 12 rows are whole panels of most widths


def _collide(stride: int, rows: int, host: Host) -> bool:
    """Whether rows that begin `stride` bytes apart displace one another from the first cache."""
    sets = host.l1 // (LINE * WAYS)
    used = sets // math.gcd(sets, stride // LINE) if stride % LINE == 0 else sets
    return rows > used * WAYS // 2


class _Vectors:
    """Vectors of the element type, and rows of them of which the last may be partial."""

    def __init__(self, code: Code, shape: _Shape, host: Host) -> None:
        self.code = code
        self.element = shape.kind
        self.size = shape.size
        self.lanes = host.lanes(8 * shape.size)
        self.kind = vector(self.element, self.lanes)
        self.is_float = self.element in ("float", "double")
        self.fused = host.has("fma") or host.triple.startswith(("aarch64", "arm64"))
        # Products of 64-bit integers are made of several of 32 bits.
        self.temporaries = 3 if self.element == "i64" else 0 if self.is_float and self.fused else 1
        self.masked_loads = host.has("avx")
        self.masked_stores = host.has("avx512f")  # before, they are slower than stores of parts

    def add_product(self, x: Value, y: Value, total: Value) -> Value:
        """`x * y + total`, in one instruction where there is one."""
        if not self.is_float:
            return self.code.op("add", self.code.op("mul", x, y), total)
        if self.fused:
            return self.code.intrinsic("fma", x, y, total)
        return self.code.op("fadd", self.code.op("fmul", x, y), total)

    def load(self, at: Value, index: int, count: int) -> Value:
        """Vector `index` after `at`; only its first `count` lanes, unless that is 0."""
        at = self._place(at, index)
        return self._load_part(at, count) if count else self.code.load(self.kind, at, self.size)

    def load_row(self, at: Value, width: int, tail: int) -> list[Value]:
        """`width` vectors; of the last only the first `tail` lanes, unless that is 0."""
        return [self.load(at, j, tail if j == width - 1 else 0) for j in range(width)]

    def store_row(self, row: Sequence[Value], at: Value, tail: int) -> None:
        """The reverse of `load_row`."""
        full = len(row) - (tail > 0)
        for j in range(full):
            self.code.store(row[j], self._place(at, j), self.size)
        if tail:
            self._store_part(row[full], self._place(at, full), tail)

    def _place(self, at: Value, j: int) -> Value:
        return self.code.gep(at, self.kind, number("i64", j)) if j else at

    def _load_part(self, at: Value, count: int) -> Value:
        code, kind = self.code, self.kind
        zeros = number(kind, 0)
        if self.masked_loads:
            mask = self._mask(count)
            name = code.module.declare(
                f"llvm.masked.load.{mangled(kind)}.p0", kind, ["ptr", "i32", mask.type, kind]
            )
            return code.call(name, kind, [at, number("i32", self.size), mask, zeros])
        result = zeros
        for first, some in _parts(count):
            place = code.gep(at, self.element, number("i64", first))
            part = code.load(vector(self.element, some), place, self.size)
            if some == 1:
                result = code.insert(result, part, first)
                continue
            lanes = [j if j < some else -1 for j in range(self.lanes)]
            wide = self._shuffle(part, part, lanes)
            inside = range(first, first + some)
            lanes = [self.lanes + j - first if j in inside else j for j in range(self.lanes)]
            result = self._shuffle(result, wide, lanes)
        return result

    def _store_part(self, value: Value, at: Value, count: int) -> None:
        code = self.code
        if self.masked_stores:
            mask = self._mask(count)
            name = code.module.declare(
                f"llvm.masked.store.{mangled(self.kind)}.p0",
                "void",
                [self.kind, "ptr", "i32", mask.type],
            )
            code.call_void(name, [value, at, number("i32", self.size), mask])
            return
        for first, some in _parts(count):
            place = code.gep(at, self.element, number("i64", first))
            if some == 1:
                part = code.extract(value, first)
            else:
                part = self._shuffle(value, value, range(first, first + some))
            code.store(part, place, self.size)

    def _mask(self, count: int) -> Value:
        bits = ", ".join(f"i1 {'true' if j < count else 'false'}" for j in range(self.lanes))
        return Value(vector("i1", self.lanes), f"<{bits}>")

    def _shuffle(self, x: Value, y: Value, lanes: Sequence[int]) -> Value:
        """The lanes of `x` and then `y` with these numbers; -1 for one that does not matter."""
        listed = ", ".join("i32 poison" if j < 0 else f"i32 {j}" for j in lanes)
        return self.code.value(
            vector(self.element, len(lanes)),
            f"shufflevector {x.typed}, {y.typed}, <{len(lanes)} x i32> <{listed}>",
        )


def _parts(count: int) -> Iterator[tuple[int, int]]:
    """The first lane and the size of the powers of two that make up `count`, the larger first."""
    first = 0
    while first < count:
        size = 1 << ((count - first).bit_length() - 1)
        yield first, size
        first += size


@contextmanager
def loop(
    code: Code, count: Value, carried: Sequence[Value] = ()
) -> Generator[tuple[Value, list[Value]]]:
    """A loop that runs `count` >= 1 times: its index, and the values it carries from turn to turn.

    The body replaces the elements of the list of carried values. After the loop the list holds the
    last ones. The optimiser leaves the loop as it is; no loop is made for one turn.
    """
    now = list(carried)
    if count.text == "1":
        yield number("i64", 0), now
        return
    before, head, latch, done = (code.label(x) for x in ("before", "head", "latch", "done"))
    code.place(before)
    code.place(head)
    index = Value("i64", f"%{head}.i")
    now[:] = [Value(x.type, f"%{head}.{n}") for n, x in enumerate(carried)]
    begun, at = list(now), len(code.lines)
    yield index, now
    code.place(latch)
    after = code.op("add nuw nsw", index, number("i64", 1))
    starts = [number("i64", 0), *carried]
    code.lines[at:at] = [
        f"  {x} = phi {x.type} [ {start}, %{before} ], [ {new}, %{latch} ]"
        for x, start, new in zip([index, *begun], starts, [after, *now], strict=True)
    ]
    plain = code.module.node('!{!"llvm.loop.disable_nonforced"}')
    node = code.module.node(f"!{{{{self}}, {plain}}}", distinct=True)
    more = code.compare("ult", after, count)
    code.branch(more, head, done, f", !llvm.loop {node}")
    code.place(done)
