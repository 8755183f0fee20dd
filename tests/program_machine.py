"""Random small programs with exact answers: each operation is drawn once and has two meanings, one
as code of a kernel and one on NumPy arrays.

A program has a few tiles, some statements on them (which may nest), and writes all tiles out. Every
tile is written before it is read, no two iterations of a T.Parallel store one element, and no
index leaves a tile: the programs are valid, so `tilelang.check` has nothing to say about them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tilelang.language as T

THREADS = (32, 48, 64, 96, 100, 128, 192, 256)
INTEGERS = ("int8", "uint8", "int16", "int32", "int64")


@dataclass
class Env:
    """What the operations of one run work on: tiles and scalars by name, in either world."""

    tiles: dict[str, Any]
    scalars: dict[str, Any]
    numpy: bool


Op = Callable[[Env], None]


# ---- Statements that need the kernel's own control flow ----------------------------------------


@T.macro
def _over(m, n, body):
    for i, j in T.Parallel(m, n):
        body(i, j)


@T.macro
def _over_one(m, body):
    for i in T.Parallel(m):
        body(i)


@T.macro
def _guarded(m, n, cond, body, other):
    for i, j in T.Parallel(m, n):
        if cond(i, j):
            body(i, j)
        else:
            other(i, j)


@T.macro
def _serial(start, stop, step, body):
    for k in T.serial(start, stop, step):
        body(k)


@T.macro
def _unrolled(n, body):
    for k in T.unroll(n):
        body(k)


@T.macro
def _pipelined(n, stages, body):
    for k in T.Pipelined(n, num_stages=stages):
        body(k)


@T.macro
def _leaving(n, skip, stop, body):
    for k in T.serial(n):
        if k % 3 == skip:
            continue
        if k >= stop:
            break
        body(k)


@T.macro
def _while(limit, step, body):
    at = T.alloc_var("int32", init=0)
    while at < limit:
        body(at)
        at += step


@T.macro
def _either(cond, body, other):
    if cond:
        body()
    else:
        other()


def counted(env: Env, kind: str, numbers: Any, body: Callable[[Any], None]) -> None:
    """Run `body` for each round of a loop of one `kind`; NumPy's meaning is Python's loop."""
    if env.numpy:
        for k in _rounds(kind, numbers):
            body(np.int32(k))
        return
    makers = {
        "serial": _serial,
        "unroll": _unrolled,
        "pipelined": _pipelined,
        "leaving": _leaving,
        "while": _while,
    }
    makers[kind](*numbers, body)


def _rounds(kind: str, numbers: Any) -> list[int]:
    if kind == "serial":
        return list(range(*numbers))
    if kind in ("unroll", "pipelined"):
        return list(range(numbers[0]))
    if kind == "while":
        limit, step = numbers
        return list(range(0, limit, step))
    n, skip, stop = numbers
    out = []
    for k in range(n):
        if k % 3 == skip:
            continue
        if k >= stop:
            break
        out.append(k)
    return out


# ---- Expressions -------------------------------------------------------------------------------


def _where(env: Env, c: Any, a: Any, b: Any) -> Any:
    return np.where(c, a, b) if env.numpy else T.if_then_else(c, a, b)


def _most(env: Env, a: Any, b: Any) -> Any:
    return np.maximum(a, b) if env.numpy else T.max(a, b)


def _least(env: Env, a: Any, b: Any) -> Any:
    return np.minimum(a, b) if env.numpy else T.min(a, b)


def cast(env: Env, x: Any, dtype: str) -> Any:
    """`x` as `dtype`, wrapping."""
    return np.asarray(x).astype(dtype) if env.numpy else T.cast(x, dtype)


Term = Callable[[Env, Any, Any], Any]


@dataclass
class Draw:
    """The choices of one program."""

    rng: np.random.Generator
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    depth: int = 0

    def pick(self, *options: Any) -> Any:
        """One of `options`."""
        return options[int(self.rng.integers(len(options)))]

    def number(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def tile(self, rank: int, but: str = "") -> str:
        """A tile of `rank` axes other than `but`."""
        return self.pick(*[n for n, s in self.shapes.items() if len(s) == rank and n != but])

    # -- expressions of an iteration (i, j), of type int32 ----------------------------------------

    def leaf(self, dst: str) -> Term:  # noqa: PLR0911 - one arm per kind
        """An element of a tile, an index, a scalar or a constant."""
        kind = self.pick("own", "other", "row", "column", "turned", "index", "scalar", "const")
        if kind == "const":
            c = self.number(-9, 9)
            return lambda env, i, j: cast(env, c, "int32")
        if kind == "index":
            a, b = self.number(-3, 3), self.number(-3, 3)
            return lambda env, i, j: i * a + j * b
        if kind == "scalar":
            return lambda env, i, j: env.scalars["k"] + cast(env, 1, "int32")
        name = dst if kind == "own" else self.tile(2, dst)
        m, n = self.shapes[name]
        if kind == "own":
            return lambda env, i, j: cast(env, env.tiles[name][i, j], "int32")
        if kind == "row":
            c = self.number(0, n - 1)
            return lambda env, i, j: cast(env, env.tiles[name][i % m, c], "int32")
        if kind == "column":
            c = self.number(0, m - 1)
            return lambda env, i, j: cast(env, env.tiles[name][c, j % n], "int32")
        if kind == "turned":
            return lambda env, i, j: cast(env, env.tiles[name][j % m, i % n], "int32")
        a, b = self.number(0, 5), self.number(0, 5)
        return lambda env, i, j: cast(env, env.tiles[name][(i + a) % m, (j + b) % n], "int32")

    def term(self, dst: str, depth: int = 2) -> Term:
        """A random expression."""
        if depth == 0:
            return self.leaf(dst)
        op = self.pick(*"+-*&|^", "max", "min", "//", "%", "<<", ">>", "where", "cast", "neg", "<")
        a, b = self.term(dst, depth - 1), self.term(dst, depth - 1)
        c = self.pick(2, 3, 5, 7, 10, -3, 16)
        s = self.number(0, 31)
        narrow = self.pick(*INTEGERS)
        return {
            "+": lambda env, i, j: a(env, i, j) + b(env, i, j),
            "-": lambda env, i, j: a(env, i, j) - b(env, i, j),
            "*": lambda env, i, j: a(env, i, j) * b(env, i, j),
            "&": lambda env, i, j: a(env, i, j) & b(env, i, j),
            "|": lambda env, i, j: a(env, i, j) | b(env, i, j),
            "^": lambda env, i, j: a(env, i, j) ^ b(env, i, j),
            "max": lambda env, i, j: _most(env, a(env, i, j), b(env, i, j)),
            "min": lambda env, i, j: _least(env, a(env, i, j), b(env, i, j)),
            "//": lambda env, i, j: a(env, i, j) // c,
            "%": lambda env, i, j: a(env, i, j) % c,
            "<<": lambda env, i, j: a(env, i, j) << s,
            ">>": lambda env, i, j: a(env, i, j) >> s,
            "neg": lambda env, i, j: -a(env, i, j),
            "<": lambda env, i, j: cast(env, a(env, i, j) < b(env, i, j), "int32"),
            "where": lambda env, i, j: _where(
                env, a(env, i, j) % c > 1, a(env, i, j), b(env, i, j)
            ),
            "cast": lambda env, i, j: cast(env, cast(env, a(env, i, j), narrow), "int32"),
        }[op]

    # -- boxes ------------------------------------------------------------------------------------

    def span(self, size: int, width: int) -> Callable[[Env], Any]:
        """Where a box of `width` begins on an axis of `size`: known, or from the scalar k."""
        if self.pick(True, False):
            low = self.number(0, size - width)
            return lambda env: low
        a = self.number(0, 3)
        return lambda env: (env.scalars["k"] + a) % (size - width + 1)

    def box(self, name: str, extents: tuple[int, ...]) -> Callable[[Env], Any]:
        """A slice of a tile with these extents."""
        spans = [self.span(s, e) for s, e in zip(self.shapes[name], extents, strict=True)]

        def at(env: Env) -> Any:
            lows = [s(env) for s in spans]
            index = tuple(slice(lo, lo + e) for lo, e in zip(lows, extents, strict=True))
            return env.tiles[name][index]

        return at

    # -- statements -------------------------------------------------------------------------------

    def statement(self) -> Op:
        """A random statement."""
        kinds = [
            self.elementwise, self.elementwise, self.guarded, self.fill, self.copy, self.reduce,
            self.scan, self.transpose, self.histogram, self.gather, self.scatter, self.reshaped,
            self.some_rows, self.product, self.vector,
        ]  # fmt: skip
        if self.depth < 2:
            kinds += [self.loop, self.loop, self.branch]
        return self.pick(*kinds)()

    def block(self) -> Op:
        """One to three statements."""
        self.depth += 1
        ops = [self.statement() for _ in range(self.number(1, 3))]
        self.depth -= 1

        def run(env: Env) -> None:
            for op in ops:
                op(env)

        return run

    def elementwise(self) -> Op:
        """`dst[i, j] = f(...)` for all or the first rows and columns."""
        dst = self.tile(2)
        m, n = self.shapes[dst]
        m, n = self.pick(m, self.number(1, m)), self.pick(n, self.number(1, n))
        term, dtype = self._own_writes(dst), self.dtypes[dst]

        def run(env: Env) -> None:
            tile = env.tiles[dst]

            def body(i: Any, j: Any) -> None:
                tile[i, j] = cast(env, term(env, i, j), dtype)

            everywhere(env, m, n, body)

        return run

    def _own_writes(self, dst: str) -> Term:
        return self.term(dst, self.number(0, 3))

    def guarded(self) -> Op:
        """`if c: dst[i, j] = ... else: dst[i, j] = ...`."""
        dst = self.tile(2)
        m, n = self.shapes[dst]
        yes, no, dtype = self.term(dst, 1), self.term(dst, 1), self.dtypes[dst]
        a, b, c = self.number(1, 3), self.number(0, 3), self.number(2, 4)

        def run(env: Env) -> None:
            tile = env.tiles[dst]

            def cond(i: Any, j: Any) -> Any:
                return (i * a + j * b) % c == 0

            def arm(term: Term) -> Callable[[Any, Any], None]:
                def body(i: Any, j: Any) -> None:
                    tile[i, j] = cast(env, term(env, i, j), dtype)

                return body

            if not env.numpy:
                _guarded(m, n, cond, arm(yes), arm(no))
                return
            i, j = grid(m, n)
            value = np.where(cond(i, j), yes(env, i, j), no(env, i, j))
            tile[...] = np.broadcast_to(value, (m, n)).astype(dtype)

        return run

    def fill(self) -> Op:
        """A constant into a box."""
        dst = self.tile(2)
        extents = tuple(self.number(1, s) for s in self.shapes[dst])
        at, value = self.box(dst, extents), self.number(0, 100)

        def run(env: Env) -> None:
            if env.numpy:
                at(env)[...] = value
            else:
                T.fill(at(env), value)

        return run

    def some_rows(self) -> Op:
        """A constant into, or a copy of, as many rows as a tensor says."""
        dst = self.tile(2)
        src, n = self.tile(2, dst), self.shapes[dst][1]
        n = min(n, self.shapes[src][1])
        value, at = self.number(0, 9), self.number(0, 3)
        most, copies = min(self.shapes[dst][0], self.shapes[src][0]), self.pick(True, False)

        def run(env: Env) -> None:
            count = _least(env, env.scalars["L"][at], cast(env, most, "int32"))
            to = env.tiles[dst][0:count, 0:n]
            if copies:
                move(env, env.tiles[src][0:count, 0:n], to)
            elif env.numpy:
                to[...] = value
            else:
                T.fill(to, value)

        return run

    def copy(self) -> Op:
        """A box of one tile into a box of another, with a change of type."""
        dst = self.tile(2)
        src = self.tile(2, dst)
        extents = tuple(
            self.number(1, min(a, b))
            for a, b in zip(self.shapes[src], self.shapes[dst], strict=True)
        )
        a, b = self.box(src, extents), self.box(dst, extents)
        return lambda env: move(env, a(env), b(env))

    def reduce(self) -> Op:
        """A tile, or a box of one, along an axis into a vector."""
        axis = self.number(0, 1)
        dst = "v" if axis == 1 else "w"
        src = self.tile(2)
        kept = min(self.shapes[src][1 - axis], self.shapes[dst][0])
        along = self.number(1, self.shapes[src][axis])
        extents = (kept, along) if axis == 1 else (along, kept)
        at, clear = self.box(src, extents), self.pick(True, False)
        low = self.number(0, self.shapes[dst][0] - kept)
        op = self.pick("sum", "max", "min", "bitand", "bitor", "bitxor")
        over = {
            "sum": np.add, "max": np.maximum, "min": np.minimum, "bitand": np.bitwise_and,
            "bitor": np.bitwise_or, "bitxor": np.bitwise_xor,
        }[op]  # fmt: skip
        dtype = self.dtypes[dst]

        def run(env: Env) -> None:
            to = env.tiles[dst][low : low + kept]
            if not env.numpy:
                T.reduce(at(env), to, op, axis, clear)
                return
            found = over.reduce(at(env).astype(dtype), axis=axis, dtype=dtype)
            to[...] = found if clear else over(to, found)

        return run

    def scan(self) -> Op:
        """A running sum or maximum, in place."""
        dst, axis, reverse = self.tile(2), self.number(0, 1), self.pick(True, False)
        name, dtype = self.pick("cumsum", "cummax"), self.dtypes[dst]

        def run(env: Env) -> None:
            tile = env.tiles[dst]
            if not env.numpy:
                getattr(T, name)(tile, dim=axis, reverse=reverse)
                return
            over = np.add if name == "cumsum" else np.maximum
            x = np.flip(tile, axis) if reverse else tile
            x = over.accumulate(x, axis=axis, dtype=dtype)
            tile[...] = np.flip(x, axis) if reverse else x

        return run

    def transpose(self) -> Op:
        """A box of one tile turned into another."""
        dst = self.tile(2)
        src = self.tile(2, dst)
        (a, b), (c, d) = self.shapes[src], self.shapes[dst]
        m, n = min(a, d), min(b, c)
        x, y = self.box(src, (m, n)), self.box(dst, (n, m))

        def run(env: Env) -> None:
            if env.numpy:
                y(env)[...] = x(env).T.astype(self.dtypes[dst])
            else:
                T.transpose(x(env), y(env))

        return run

    def histogram(self) -> Op:
        """Counts, or the greatest value, of the elements by a remainder."""
        src, op, c = self.tile(2), self.pick("add", "max", "min"), self.number(1, 3)
        m, n = self.shapes[src]

        def run(env: Env) -> None:
            h = env.tiles["h"]
            bins = len(h) if env.numpy else h.shape[0]
            if env.numpy:
                x = env.tiles[src].astype(np.int32)
                over = {"add": np.add, "max": np.maximum, "min": np.minimum}[op]
                over.at(h, (x % bins).ravel(), (x * c).ravel())
                return

            def body(i: Any, j: Any) -> None:
                x = T.cast(env.tiles[src][i, j], "int32")
                getattr(T, f"atomic_{op}")(h[x % bins], x * c)

            _over(m, n, body)

        return run

    def gather(self) -> Op:
        """Rows of another tile, named by a tensor."""
        dst = self.tile(2)
        src = self.tile(2, dst)
        m, n = self.shapes[dst]
        rows, columns = self.shapes[src]
        dtype = self.dtypes[dst]

        def run(env: Env) -> None:
            def body(i: Any, j: Any) -> None:
                at = env.scalars["I"][i % 8] % rows
                env.tiles[dst][i, j] = cast(env, env.tiles[src][at, j % columns], dtype)

            everywhere(env, m, n, body)

        return run

    def scatter(self) -> Op:
        """Elements of the vector to places that a permutation names."""

        def run(env: Env) -> None:
            v, order = env.tiles["p"], env.scalars["P"]

            def body(i: Any) -> None:
                v[order[i]] = i * 3 + env.scalars["k"]

            if env.numpy:
                body(np.arange(8, dtype=np.int32))
            else:
                _over_one(8, body)

        return run

    def vector(self) -> Op:
        """The vectors with each other."""
        a, b, c = self.number(-3, 3), self.number(1, 5), self.pick("v", "w")

        def run(env: Env) -> None:
            v = env.tiles[c]
            n = self.shapes[c][0]

            def body(i: Any) -> None:
                v[i] = v[i] * a + env.tiles["p"][(i * b) % 8] + i

            if env.numpy:
                body(np.arange(n, dtype=np.int32))
            else:
                _over_one(n, body)

        return run

    def reshaped(self) -> Op:
        """A flat second name of a tile, or one with other axes."""
        dst = self.tile(2)
        m, n = self.shapes[dst]
        a, dtype = self.number(-3, 3), self.dtypes[dst]
        shape = self.pick((m * n,), (n, m), (1, m * n))

        def run(env: Env) -> None:
            tile = env.tiles[dst]
            other = tile.reshape(shape) if env.numpy else T.reshape(tile, shape)

            def body(*at: Any) -> None:
                flat = at[0] if len(at) == 1 else at[0] * shape[-1] + at[1]
                index = at if len(at) > 1 else at[0]
                other[index] = cast(env, cast(env, other[index], "int32") * a + flat, dtype)

            if len(shape) == 2:
                everywhere(env, *shape, body)
            elif env.numpy:
                body(np.arange(m * n, dtype=np.int32))
            else:
                _over_one(m * n, body)

        return run

    def product(self) -> Op:
        """`c += op(a) @ op(b)` of the int8 operands."""
        ta, tb, clear = (self.pick(True, False) for _ in range(3))
        a, b = ("at" if ta else "a"), ("bt" if tb else "b")

        def run(env: Env) -> None:
            x, y, c = env.scalars[a], env.scalars[b], env.tiles["c"]
            if not env.numpy:
                T.gemm(x, y, c, transpose_A=ta, transpose_B=tb, clear_accum=clear)
                return
            x, y = (x.T if ta else x), (y.T if tb else y)
            found = x.astype(np.int32) @ y.astype(np.int32)
            c[...] = found if clear else c + found

        return run

    def loop(self) -> Op:
        """A loop of some kind around some statements."""
        kind = self.pick("serial", "unroll", "pipelined", "pipelined", "leaving", "while")
        numbers = {
            "serial": self.pick((0, 3, 1), (1, 6, 2), (4, 0, -1), (2, 2, 1), (-2, 1, 1)),
            "unroll": (self.number(0, 3),),
            "pipelined": (self.number(0, 4), self.number(0, 4)),
            "leaving": (self.number(0, 6), self.number(0, 3), self.number(0, 6)),
            "while": (self.number(0, 5), self.number(1, 3)),
        }[kind]
        inner = self.block()

        def run(env: Env) -> None:
            outer = env.scalars["k"]

            def body(k: Any) -> None:
                env.scalars["k"] = k
                inner(env)
                env.scalars["k"] = outer

            counted(env, kind, numbers, body)

        return run

    def branch(self) -> Op:
        """A condition that the whole block agrees on."""
        yes, no, at, limit = self.block(), self.block(), self.number(0, 3), self.number(0, 5)

        def run(env: Env) -> None:
            cond = env.scalars["L"][at] > limit
            if env.numpy:
                (yes if cond else no)(env)
            else:
                _either(cond, lambda: yes(env), lambda: no(env))

        return run


def grid(m: int, n: int) -> tuple[Any, Any]:
    """The indices of all iterations, as arrays."""
    return (
        np.arange(m, dtype=np.int32)[:, None] + np.zeros((1, n), np.int32),
        np.arange(n, dtype=np.int32)[None, :] + np.zeros((m, 1), np.int32),
    )


def everywhere(env: Env, m: int, n: int, body: Callable[[Any, Any], None]) -> None:
    """All iterations at once, or a T.Parallel."""
    if env.numpy:
        body(*grid(m, n))
    else:
        _over(m, n, body)


def move(env: Env, src: Any, dst: Any) -> None:
    """T.copy, or its meaning."""
    if env.numpy:
        dst[...] = src.astype(dst.dtype)
    else:
        T.copy(src, dst)
