"""Tile sizes for a matrix product on cube cores, ranked by a model of their pipes.

What enters: the shape and types of a product, and a chip. What leaves: `Hint`s, the best first:
tiles that divide the product, of which the operands of two steps lie in L1 and the sums in L0C at
the same time. The time of a tile is that of its slowest pipe in each step; the costs are those that
the list scheduler has (`targets/ascend/costs.py`), an estimate. A hint changes no result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import TileTypeError, TileValueError, error
from tilelang.isa.target import Rate
from tilelang.scopes import Memory
from tilelang.tune.machines import FRACTAL, Ascend

MOST = 512
"""Rows or columns of the largest tile tried: at 16 by 512 it fills a fourth of L0C of the 910B."""

STEPS = 2
"""Steps over K whose operands lie in L1 together, so that one is loaded beside a product."""

_SUM_BYTES = 4
_PRODUCTS = {
    ("float16", "float32"),
    ("bfloat16", "float32"),
    ("float32", "float32"),
    ("int8", "int32"),
}
_WIDER = {"float16": "float32", "bfloat16": "float32"}


@dataclass(frozen=True)
class Hint:
    """Tile sizes: `block` rows and columns of the result, `rstep` elements of K in a step, in as
    many sets of buffers as `pipeline_stage`. `cycles` is the modelled time of the whole product.
    """

    block: list[int]
    rstep: list[int]
    pipeline_stage: int
    cycles: int

    def to_dict(self) -> dict[str, Any]:
        """The hint as a dict."""
        return asdict(self)


@dataclass
class MatmulTemplate:
    """The product of A (M x K) and B (K x N), or of their transposes where `trans_A` or `trans_B`
    says so. Sizes are numbers; a transpose does not change what is loaded. Sums are of float32 or
    int32, as the cube unit makes them, also where `accum_dtype` is narrower.

    ValueError for sizes that are not positive; TypeError for types that the cube unit does not
    multiply.
    """

    M: int
    N: int
    K: int
    trans_A: bool = False
    trans_B: bool = True
    in_dtype: Any = "float16"
    out_dtype: Any = "float16"
    accum_dtype: Any = "float16"
    arch: Ascend | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        sizes: dict[str, Any] = {"M": self.M, "N": self.N, "K": self.K}
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, int) or size <= 0:
                raise error(
                    "value",
                    f"MatmulTemplate: {name} is the size of an axis",
                    cls=TileValueError,
                    expected="a positive number",
                    got=repr(size),
                )
        kinds = str(DType(self.in_dtype)), str(DType(self.accum_dtype))
        if (kinds[0], _WIDER.get(kinds[1], kinds[1])) not in _PRODUCTS:
            raise error(
                "dtype",
                "MatmulTemplate: the cube unit has no product of these types",
                cls=TileTypeError,
                expected=", ".join(f"{a} in {b}" for a, b in sorted(_PRODUCTS)),
                got=f"{kinds[0]} in {kinds[1]}",
            )

    def with_arch(self, arch: Any) -> MatmulTemplate:
        """The template, for a chip."""
        if not isinstance(arch, Ascend):
            raise error(
                "target",
                "MatmulTemplate is built for Ascend chips",
                cls=TileTypeError,
                expected="tilelang.carver.arch.ascend.Ascend(...)",
                got=type(arch).__name__,
            )
        self.arch = arch
        return self

    def recommend_hints(self, topk: int = 10) -> list[Hint]:
        """Up to `topk` hints, the best first; none where no tile divides the product."""
        if self.arch is None:
            raise error("target", "MatmulTemplate has no chip", help="`.with_arch(Ascend())`")
        found = [self._hint(m, n, k, self.arch) for m, n, k in self._tiles(self.arch)]
        found.sort(key=lambda h: (h.cycles, -h.rstep[0], h.block))
        return found[:topk]

    # What fits -----------------------------------------------------------------------------------

    def _tiles(self, arch: Ascend) -> Iterator[tuple[int, int, int]]:
        """The tiles that divide the product and fit the memories of a core."""
        size = DType(self.in_dtype).bits // 8
        steps = _divisors(self.K, FRACTAL * max(1, 2 // size))
        for m in _divisors(self.M, FRACTAL):
            for n in _divisors(self.N, FRACTAL):
                if m * n * _SUM_BYTES > arch.l0c_cap:
                    continue
                for k in steps:
                    if STEPS * (m + n) * k * size <= arch.l1_cap:
                        yield m, n, k

    # How long it takes ---------------------------------------------------------------------------

    def _hint(self, m: int, n: int, k: int, arch: Ascend) -> Hint:
        tiles = (self.M // m) * (self.N // n)
        turns = -(-tiles // arch.compute_max_core)
        return Hint([m, n], [k], STEPS, turns * self._cycles(m, n, k, arch))

    def _cycles(self, m: int, n: int, k: int, arch: Ascend) -> int:
        """The cycles of one tile: the pipes work beside each other, and the first load and the
        drain have nothing beside them.
        """
        moves, size = arch.costs.moves, DType(self.in_dtype).bits // 8
        into_l1 = moves[Memory.GLOBAL, Memory.L1]
        load = into_l1.busy(m * k * size) + into_l1.busy(n * k * size)
        feed = moves[Memory.L1, Memory.L0A].busy(m * k * size)
        feed += moves[Memory.L1, Memory.L0B].busy(n * k * size)
        cube: Rate = arch.costs.cube.get(str(DType(self.in_dtype)), arch.costs.cube[""])
        step = max(load, feed, cube.busy(2 * m * n * k)) + arch.costs.issue
        drain = moves[Memory.L0C, Memory.GLOBAL]
        out = drain.latency + drain.busy(m * n * DType(self.out_dtype).bits // 8)
        return into_l1.latency + load + (self.K // k) * step + cube.latency + out


def _divisors(size: int, unit: int) -> list[int]:
    """The multiples of `unit` that divide a size, up to the largest tile."""
    return [n for n in range(unit, min(size, MOST) + 1, unit) if size % n == 0]
