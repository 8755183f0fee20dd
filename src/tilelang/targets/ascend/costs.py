"""How long the operations of an Ascend core group take, roughly: what the list scheduler counts in.

What enters: nothing. What leaves: the costs of each generation, in cycles of a core. Those of the
950 are parameters of a published cost model; those of the 910B are an estimate after them, since
no such model was found for it. Nothing here was measured by this project.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilelang.isa.target import Costs, Rate
from tilelang.scopes import Memory

_M = Memory
_SOURCE_950 = "tilelang 0.1.15, src/ascend/transform/estimate_latency.h, AscendLatencyParams"

_MOVES: Mapping[tuple[Memory, Memory], Rate] = {
    (_M.GLOBAL, _M.L1): Rate(190, 100, 64),
    (_M.GLOBAL, _M.UB): Rate(90, 100, 13),
    (_M.UB, _M.GLOBAL): Rate(180, 115, 10),
    (_M.UB, _M.L1): Rate(43, 256),
    (_M.UB, _M.UB): Rate(0, 256),
    (_M.L1, _M.L0A): Rate(5, 256, 3),
    (_M.L1, _M.L0B): Rate(5, 256, 3),
    (_M.L1, _M.L0A_SCALE): Rate(28, 32),
    (_M.L1, _M.L0B_SCALE): Rate(28, 32),
    (_M.L0C, _M.UB): Rate(58, 128, 2),
    (_M.L0C, _M.L1): Rate(58, 128, 2),
    (_M.L0C, _M.GLOBAL): Rate(200, 128, 2),
}

# Elements of 4 bytes in a cycle there (51, 13, 8); a vector instruction takes half as many bytes to
# do twice as many elements of 2.
_VECTOR: Mapping[str, Rate] = {
    "plain": Rate(0, 4 * 51),
    "divide": Rate(0, 4 * 13),
    "special": Rate(0, 4 * 8),
}
_CUBE: Mapping[str, Rate] = {
    "float32": Rate(67, 512),
    "float8_e4m3fn": Rate(8, 16384),
    "float8_e5m2": Rate(8, 16384),
    "int8": Rate(8, 16384),  # the model there has none; that of FP8
    "": Rate(8, 8192),
}

COSTS_950 = Costs(_MOVES, _VECTOR, _CUBE, scalar=20, issue=1, source=_SOURCE_950)

COSTS_910B = Costs(
    _MOVES, _VECTOR, _CUBE, scalar=20, issue=1, source="an estimate: that of the 950"
)
