"""Random programs of many blocks: several at once give what one after the other gives, in every
bit, with the same instructions and the same errors.
"""

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import TileError
from tilelang.isa.instr import Is
from tilelang.simulator.ascend.launch import _InOrder
from tilelang.targets.ascend.rows import rows_of
from tilelang.targets.ascend.rows.build import COUNTS

AUTOMATIC = {"tl.ascend_auto_sync": True, "tl.ascend_memory_planning": True}
BLOCKS, ROWS, COLUMNS, TILES = 11, 4, 24, 3
KINDS = (
    *("in", "in all", "in columns", "out", "out rows", "binary", "row", "unary", "reduce"),
    *("element", "half", "gather", "part", "branch", "loop", "cross", "twice", "var"),
)
RARE = ("out one", "atomic", "read branch", "read out")
"""What mostly makes blocks run one after the other."""


def drawn(rng):
    """Statements: (kind, what they work on)."""
    kinds = [str(rng.choice(KINDS)) for _ in range(int(rng.integers(4, 11)))]
    if rng.random() < 0.3:
        kinds[int(rng.integers(0, len(kinds)))] = str(rng.choice(RARE))
    return [(k, *(int(x) for x in rng.integers(0, TILES, 3)), int(rng.integers(4))) for k in kinds]


@T.macro
def step(each, tiles, half, top, places, var, given, bx):
    kind, x, y, z, row = each
    a, b, c = tiles[x], tiles[y], tiles[z]
    copied(kind, a, b, row, places, given, bx)
    computed(kind, a, b, c, row, half, top)
    decided(kind, a, b, row, places, var, given, bx)


@T.macro
def copied(kind, a, b, row, places, given, bx):
    A, C, D = given
    if kind == "in":
        T.copy(A[bx, :, :], a)
    elif kind == "in all":
        T.copy(A[row, :, :], a)
    elif kind == "in columns":
        T.copy(A[row, :, bx : bx + 7], a[:, 0:7])
    elif kind == "out":
        T.copy(a, C[bx, :, :])
    elif kind == "out rows":
        T.copy(a[row, :], D[row, bx * 24 : bx * 24 + 24])
    elif kind == "gather":
        for k in T.serial(ROWS):
            T.copy(A[places[k + row], k, :], a[k, :])
    elif kind == "cross":
        T.copy(a, C[bx, :, :])
        T.copy(C[bx, :, :], b)
    elif kind == "twice":
        T.copy(A[bx % 4 + row, :, :], a)
    elif kind == "out one":
        T.copy(a, C[row, :, :])
    elif kind == "atomic":
        T.tile.atomic_add(C[row, :, :], a)


@T.macro
def computed(kind, a, b, c, row, half, top):
    if kind == "binary":
        (T.tile.add, T.tile.mul, T.tile.max, T.tile.sub)[row](a, b, c)
    elif kind == "row":
        T.tile.mul(a[row, :], b[row, :], c[row, 0])
    elif kind == "unary":
        (T.tile.exp, T.tile.abs, T.tile.exp, T.tile.relu)[row](a, b)
    elif kind == "reduce":
        (T.reduce_sum, T.reduce_max)[row % 2](a, top, dim=-1)
        T.tile.broadcast(b, top)
    elif kind == "half":
        T.copy(a, half)
        T.tile.add(half, half, half)
        T.copy(half, b)


@T.macro
def decided(kind, a, b, row, places, var, given, bx):
    A, _, D = given
    if kind == "element":
        a[row, 1] = b[row, 2] + T.cast(bx % 3, "float32")
    elif kind == "part":
        T.copy(A[bx, 0:1, 0 : T.min(places[row] + 1, 8)], a[0:1, 0:8])
    elif kind == "branch":
        if bx > 2 + row:
            T.copy(A[bx, :, :], a)
        else:
            T.tile.fill(a, 1.5)
    elif kind == "loop":
        for k in T.serial(bx // 5 + 1):
            T.tile.add(a, a, b)
            T.copy(A[bx, k % ROWS, :], b[k % ROWS, :])
    elif kind == "var":
        var = var + bx
        a[row, 3] = T.cast(T.if_then_else(var > 6, var, -var), "float32")
    elif kind == "read branch":
        if places[row] > 3:
            T.tile.fill(a, 2.5)
    elif kind == "read out":
        T.copy(a[row, :], D[row, places[row] * 24 : places[row] * 24 + 24])


def kernel_of(program):
    @T.prim_func
    def kernel(
        A: T.Tensor((BLOCKS + 3, ROWS, COLUMNS), "float32"),
        P: T.Tensor((BLOCKS, 8), "int32"),
        C: T.Tensor((BLOCKS, ROWS, COLUMNS), "float32"),
        D: T.Tensor((ROWS, BLOCKS * 24), "float32"),
    ):
        with T.Kernel(BLOCKS, is_npu=True) as (bx, vid), T.Scope("V"):
            tiles = [T.alloc_ub((ROWS, COLUMNS), "float32") for _ in range(TILES)]
            half = T.alloc_ub((ROWS, COLUMNS), "float16")
            top = T.alloc_ub((ROWS, 1), "float32")
            places = T.alloc_ub((8,), "int32")
            var = T.alloc_var("int32", 0)
            if vid == 0:
                T.copy(P[bx, :], places)
                for tile in tiles:
                    T.tile.fill(tile, 0.5)
                for each in program:
                    step(each, tiles, half, top, places, var, (A, C, D), bx)
                T.copy(tiles[0], C[bx, :, :])

    return kernel


def outcome(program, lanes, args):
    """The arrays after a call, the instructions, and the error."""
    for text in program.module.kernels:
        text.lanes = lanes
    program.counts.by_pipe.clear()
    args, said = {k: v.copy() for k, v in args.items()}, ""
    try:
        program.run(args)
    except TileError as e:
        said = e.diagnostics[0].render()
    return {k: v.tobytes() for k, v in args.items()}, dict(program.counts.by_pipe), said


@pytest.fixture
def together(monkeypatch):
    """How many blocks each group of lanes had."""
    found = []
    run = _InOrder.abreast

    def noted(self, number, lanes):
        found.append(lanes)
        run(self, number, lanes)

    monkeypatch.setattr(_InOrder, "abreast", noted)
    return found


def compiled(kernel):
    made = tilelang.compile(kernel, target="simulate:ascend910b", pass_configs=AUTOMATIC)
    return made._program.program


def arguments(rng):
    return {
        "A": rng.standard_normal((BLOCKS + 3, ROWS, COLUMNS)).astype(np.float32),
        "P": rng.integers(0, BLOCKS, (BLOCKS, 8)).astype(np.int32),
        "C": rng.standard_normal((BLOCKS, ROWS, COLUMNS)).astype(np.float32),
        "D": rng.standard_normal((ROWS, BLOCKS * 24)).astype(np.float32),
    }


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed, together):
    rng = np.random.default_rng(seed)
    program = drawn(rng)
    made, args = compiled(kernel_of(program)), arguments(rng)
    wanted = outcome(made, 0, args)
    assert not together
    assert wanted[2] == ""
    assert outcome(made, int(rng.integers(4, 12)), args) == wanted, program
    if not {kind for kind, *_ in program} & {*RARE, "branch", "loop"}:
        assert sum(together) >= BLOCKS - 3, program


@pytest.mark.parametrize(
    ("size", "tile", "dtype", "acc"),
    [
        ((96, 144, 48), (32, 48, 32), "float16", "float32"),
        ((70, 130, 33), (16, 32, 32), "float16", "float32"),
        ((96, 96, 64), (16, 96, 32), "int8", "int32"),
    ],
)
def test_products(size, tile, dtype, acc, together):
    (M, N, K), (bm, bn, bk) = size, tile
    columns = -(-N // bn)

    @T.prim_func
    def kernel(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), acc)):
        with T.Kernel(-(-M // bm) * columns, is_npu=True) as (bx, _), T.Scope("C"):
            a, b = T.alloc_L1((bm, bk), dtype), T.alloc_L1((bn, bk), dtype)
            c = T.alloc_L0C((bm, bn), acc)
            for k in T.serial(-(-K // bk)):
                T.copy(A[bx // columns * bm, k * bk], a)
                T.copy(B[bx % columns * bn, k * bk], b)
                T.gemm_v0(a, b, c, transpose_B=True, init=(k == 0))
            T.copy(c, C[bx // columns * bm, bx % columns * bn])

    rng = np.random.default_rng(M)
    args = {
        "A": (rng.standard_normal((M, K)) * 20).astype(dtype),
        "B": (rng.standard_normal((N, K)) * 20).astype(dtype),
        "C": np.zeros((M, N), acc),
    }
    made = compiled(kernel)
    wanted = outcome(made, 0, args)
    assert not together
    assert outcome(made, 7, args) == wanted
    assert together or M == 70  # whose last tiles are smaller


def faulty(left):
    """A place that is read from memory; with `left`, a flag that nobody waits for."""

    @T.prim_func
    def kernel(P: T.Tensor((BLOCKS, 8), "int32"), C: T.Tensor((BLOCKS, 8), "float32")):
        with T.Kernel(BLOCKS, is_npu=True) as (bx, vid), T.Scope("V"):
            u, places = T.alloc_ub((1, 8), "float32"), T.alloc_ub((8,), "int32")
            if vid == 0:
                T.tile.fill(u, 1.0)
                T.copy(P[bx, :], places)
                T.barrier_all()
                u[0, places[0]] = T.cast(places[places[1]], "float32")
                T.barrier_all()
                T.copy(u[0, :], C[bx, :])
                if left:
                    T.set_flag("V", "MTE3", 3)

    return tilelang.compile(kernel, target="simulate:ascend910b")._program.program


@pytest.mark.parametrize(("left", "place"), [(False, 7), (False, 1 << 20), (True, 7)])
def test_the_same_errors(left, place, together):
    made = faulty(left)
    places = np.random.default_rng(0).integers(0, 8, (BLOCKS, 8)).astype(np.int32)
    places[6, 1] = place
    args = {"P": places, "C": np.zeros((BLOCKS, 8), np.float32)}
    wanted, found = (outcome(made, lanes, args) for lanes in (0, BLOCKS))
    assert found[2] == wanted[2]
    assert bool(wanted[2]) == (left or place > 7)
    assert bool(together) != left
    if not wanted[2]:
        assert found == wanted


LANES, BYTES = 5, 1 << 14
OPERATIONS = sorted(
    name for name, row in rows_of("ascend910b").items() if name.startswith("v.") and row.lanes
)


def drawn_scalars(row, rng):
    """Sizes, distances and immediates; the rows of an output do not overlap."""
    size = {n: int(rng.integers(1, 6)) for n in ("rows", "outer", "inner")}
    size |= {n: int(rng.integers(2, 40)) for n in ("columns", "n", "count")}
    width = max(size["columns"], size["rows"] * size["inner"])
    found = {i.name: i.choices[int(rng.integers(len(i.choices)))] for i in row.imm if i.choices}
    for o in row.ins:
        if o.dtypes != COUNTS:
            continue
        if o.name in size:
            found[o.name] = size[o.name]
        elif o.name.endswith("_step"):
            found[o.name] = size["inner"] if "outer" in row_names(row) else int(rng.integers(2))
        else:
            found[o.name] = width + int(rng.integers(0, 3)) * 8
    return found


def row_names(row):
    return {o.name for o in row.ins}


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_meaning_of_a_row_with_lanes(name):
    row = rows_of("ascend910b")[name]
    rng = np.random.default_rng(OPERATIONS.index(name))
    for _ in range(12):
        assert row.meaning is not None
        params = drawn_scalars(row, rng)
        dtype = str(rng.choice(row.outs[0].dtypes or ("float32", "int16")))
        memory, arrays = {}, {}
        for o in (*row.outs, *row.ins):
            own = np.dtype(str(rng.choice(o.dtypes)) if o.dtypes and o in row.ins else dtype)
            own = memory[o.like].dtype if o.like else own
            if o.kind is Is.SLOT:
                shape, strides = row.views(params)[o.name]
                values = rng.standard_normal((LANES, BYTES // own.itemsize)) * 40
                memory[o.name] = values.astype(own)
                arrays[o.name] = (shape, [s * own.itemsize for s in strides])
            elif o.name not in params:
                like = memory.get(o.like, memory[row.outs[0].name]).dtype
                params[o.name] = (rng.standard_normal(LANES) * 9).astype(like)
        again = {k: x.copy() for k, x in memory.items()}
        numbers = {k: x for k, x in params.items() if isinstance(x, np.ndarray)}
        fixed = {k: x for k, x in params.items() if k not in numbers}
        axes = (1,) * len(arrays[row.outs[0].name][0])
        with np.errstate(all="ignore"):
            whole = {
                k: np.ndarray((LANES, *shape), memory[k].dtype, memory[k], 0, (BYTES, *strides))
                for k, (shape, strides) in arrays.items()
            }
            spread = {k: x.reshape(LANES, *axes) for k, x in numbers.items()}
            row.meaning(**whole, **fixed, **spread)
            for lane in range(LANES):
                own = {
                    k: np.ndarray(shape, again[k].dtype, again[k], lane * BYTES, strides)
                    for k, (shape, strides) in arrays.items()
                }
                row.meaning(**own, **fixed, **{k: x[lane] for k, x in numbers.items()})
        out = row.outs[0].name
        assert memory[out].tobytes() == again[out].tobytes(), (params, dtype)
