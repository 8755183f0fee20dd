"""Whole random programs: a kernel over blocks that runs drawn operations on its tiles and writes
them out, a second launch that reads a workspace of the first, and what NumPy says of both.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import tilelang.language as T
from program_machine import INTEGERS, THREADS, Draw, Env, Op, grid


@dataclass
class Program:
    """A drawn program: the kernel, and its meaning on NumPy arrays."""

    func: Any
    draw: Draw
    ops: list[Op]
    settings: dict[str, Any]

    def arguments(self, blocks: int, seed: int) -> tuple[list[Any], list[Any]]:
        """Inputs, and outputs of the right shapes, strided in some way."""
        rng = np.random.default_rng(seed)
        m, n = self.draw.shapes["x"]
        k = self.settings["inner"]
        rows = max(0, blocks * m - int(rng.integers(0, m)))
        mc, nc = self.draw.shapes["c"]
        given = [
            _numbers(rng, (rows, n), self.draw.dtypes["x"]),
            rng.integers(0, 8, 4).astype(np.int32),
            rng.integers(0, 100, 8).astype(self.settings["index"]),
            rng.permutation(8).astype(np.int32),
            *(rng.integers(-8, 8, s).astype(np.int8) for s in ((mc, k), (k, mc), (k, nc), (nc, k))),
        ]
        outs = [np.zeros((blocks, *s), self.draw.dtypes[t]) for t, s in self.draw.shapes.items()]
        outs.append(np.zeros((blocks, self.draw.shapes["v"][0]), np.int32))
        return [_strided(rng, a) for a in given], [_strided(rng, a) for a in outs]

    def expected(self, given: list[Any], blocks: int) -> list[Any]:
        """What the outputs hold after the kernel."""
        source, lengths, index, order, *operands = given
        m = self.draw.shapes["x"][0]
        outs: dict[str, list[Any]] = {t: [] for t in self.draw.shapes}
        for block in range(blocks):
            tiles = {t: np.zeros(s, self.draw.dtypes[t]) for t, s in self.draw.shapes.items()}
            part = source[block * m : block * m + m]
            tiles["x"][: len(part)] = part
            i, j = grid(*self.draw.shapes["y"])
            tiles["y"][...] = (i * 7 + j * 3 + block).astype(self.draw.dtypes["y"])
            tiles["z"][...] = 3
            tiles["v"][...] = 1
            tiles["w"][...] = np.arange(len(tiles["w"]))
            scalars = {
                "k": np.int32(block), "L": lengths, "I": index.astype(np.int32), "P": order,
                **dict(zip(("a", "at", "b", "bt"), operands, strict=True)),
            }  # fmt: skip
            env = Env(tiles, scalars, True)
            with np.errstate(all="ignore"):
                for op in self.ops:
                    op(env)
            for t, x in tiles.items():
                outs[t].append(x)
        found = [
            np.array(x, self.draw.dtypes[t]).reshape((blocks, *self.draw.shapes[t]))
            for t, x in outs.items()
        ]
        v = found[list(self.draw.shapes).index("v")]
        with np.errstate(all="ignore"):
            found.append(v[::-1] * np.int32(2) + np.arange(v.shape[1], dtype=np.int32))
        return found


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def _strided(rng: np.random.Generator, a: Any) -> Any:
    """The same numbers in an array of other strides, negative ones too."""
    if rng.integers(3) == 0 or not a.size:
        return a
    steps = rng.choice([1, 2, -1, -2], a.ndim)
    base = np.zeros([n * abs(s) for n, s in zip(a.shape, steps, strict=True)], a.dtype)
    view = base[tuple(slice(None, None, s) for s in steps)]
    view[...] = a
    return view


def drawn(seed: int) -> Program:
    """The program of a seed."""
    draw = Draw(np.random.default_rng(seed))
    sizes = (1, 2, 3, 5, 8, 12, 24, 33)
    m, n, mc, nc = (draw.pick(*sizes) for _ in range(4))
    draw.shapes = {
        "x": (m, n), "y": draw.pick((m, n), (n, m), (draw.pick(*sizes), n)), "z": (n, m),
        "c": (mc, nc), "v": (max(m, 9),), "w": (max(n, 8),), "p": (8,), "h": (draw.number(1, 12),),
    }  # fmt: skip
    draw.dtypes = dict.fromkeys(draw.shapes, "int32")
    for t in "xyz":
        draw.dtypes[t] = draw.pick(*INTEGERS)
    settings = {
        "inner": draw.pick(1, 3, 8, 16, 40), "threads": draw.pick(*THREADS),
        "after": draw.pick(*THREADS), "index": draw.pick("int32", "int64", "uint8"),
        "scopes": {t: draw.pick("alloc_shared", "alloc_fragment") for t in draw.shapes},
    }  # fmt: skip
    settings["scopes"]["h"] = "alloc_shared"
    ops = [draw.statement() for _ in range(draw.number(1, 5))]
    return Program(_kernel(draw, ops, settings), draw, ops, settings)


@T.macro
def _load(X, block, m, tiles):
    T.copy(X[block * m, 0], tiles["x"])
    rows, columns = tiles["y"].shape
    for i, j in T.Parallel(rows, columns):
        tiles["y"][i, j] = i * 7 + j * 3 + block
    T.fill(tiles["z"], 3)
    T.fill(tiles["v"], 1)
    for i in T.Parallel(tiles["w"].shape[0]):
        tiles["w"][i] = i
    for t in ("c", "p", "h"):
        T.clear(tiles[t])


def _kernel(draw: Draw, ops: list[Op], settings: dict[str, Any]) -> Any:
    shapes, dtypes = draw.shapes, draw.dtypes
    rows, blocks = T.dynamic("rows"), T.dynamic("blocks")
    m, n = shapes["x"]
    (mc, nc), k = shapes["c"], settings["inner"]
    operands = {"a": (mc, k), "at": (k, mc), "b": (k, nc), "bt": (nc, k)}

    def out(t: str) -> Any:
        return T.Tensor((blocks, *shapes[t]), dtypes[t])

    @T.prim_func
    def main(
        X: T.Tensor((rows, n), dtypes["x"]),
        L: T.Tensor((4,), "int32"),
        I: T.Tensor((8,), settings["index"]),
        P: T.Tensor((8,), "int32"),
        A: T.Tensor(operands["a"], "int8"),
        AT: T.Tensor(operands["at"], "int8"),
        B: T.Tensor(operands["b"], "int8"),
        BT: T.Tensor(operands["bt"], "int8"),
        x: out("x"),
        y: out("y"),
        z: out("z"),
        c: out("c"),
        v: out("v"),
        w: out("w"),
        p: out("p"),
        h: out("h"),
        s: out("v"),
    ):
        kept = T.alloc_global((blocks, shapes["v"][0]), "int32")
        with T.Kernel(blocks, threads=settings["threads"]) as block:
            tiles = {
                t: getattr(T, settings["scopes"][t])(shape, dtypes[t])
                for t, shape in shapes.items()
            }
            inputs = {t: T.alloc_shared(shape, "int8") for t, shape in operands.items()}
            for given, t in ((A, "a"), (AT, "at"), (B, "b"), (BT, "bt")):
                T.copy(given, inputs[t])
            _load(X, block, m, tiles)
            env = Env(tiles, {"k": block, "L": L, "I": I, "P": P, **inputs}, False)
            for op in ops:
                op(env)
            for t, to in zip(shapes, (x, y, z, c, v, w, p, h), strict=True):
                if len(shapes[t]) == 2:
                    T.copy(tiles[t], to[block, :, :])
                else:
                    T.copy(tiles[t], to[block, :])
            T.copy(tiles["v"], kept[block, :])
        with T.Kernel(blocks, threads=settings["after"]) as block:
            for i in T.Parallel(shapes["v"][0]):
                s[block, i] = kept[blocks - 1 - block, i] * 2 + i

    return main
