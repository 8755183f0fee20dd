"""Random numbers of each thread: cuRAND's Philox4x32-10.

`T.rng_init` starts the thread's stream, each `T.rng_rand*` takes its next numbers.
"""

from __future__ import annotations

from typing import Any

from tilelang.dtypes import DType
from tilelang.errors import TileNotImplementedError
from tilelang.ir.special import RngInit, RngNext
from tilelang.language.arguments import choice, integer, known, launched, refuse
from tilelang.language.buffers import here
from tilelang.language.launch import get_block_binding, get_thread_binding, get_thread_extent
from tilelang.language.values import Value

PHILOX = "curandStatePhilox4_32_10_t"
_OTHERS = ("curandStateMRG32k3a_t", "curandStateXORWOW_t")
_UINT64 = DType("uint64")


def rng_init(seed: Any, seq: Any = None, off: Any = 0, generator: str = PHILOX) -> None:
    """Start the thread's stream: `seed`, the number of the subsequence, and an offset into it.

    Without `seq`, `tx + bx * threads along x`. Another generator than Philox is refused by name.
    """
    builder = launched("T.rng_init")
    if generator in _OTHERS:
        raise refuse(
            "option",
            f"the generator {generator} of T.rng_init",
            cls=TileNotImplementedError,
            expected=repr(PHILOX),
            got=repr(generator),
            help="leave `generator` out: Philox is the one that is built",
        )
    choice(generator, "the generator of T.rng_init", (PHILOX,))
    if seq is None:
        seq = get_thread_binding() + get_block_binding() * get_thread_extent()
    parts = [
        integer(x, f"the {word} of T.rng_init", _UINT64)
        for x, word in ((seed, "seed"), (seq, "seq"), (off, "off"))
    ]
    builder.emit(RngInit(*parts, loc=here()))


def _next(name: str, distribution: str, dtype: str) -> Value:
    builder = launched(name)
    result = builder.fresh_var(builder.name_hint("random"), DType(dtype))
    builder.emit(RngNext(result, distribution, loc=here()))
    builder.define(result)
    return Value(result)


def rng_rand() -> Value:
    """The next 32 random bits (uint32)."""
    return _next("T.rng_rand", "bits", "uint32")


def rng_rand_float(bit: int = 32, dist: str = "uniform") -> Value:
    """The next float of `bit` bits (32 or 64): uniform in (0, 1], or normal with mean 0, deviation
    1.
    """
    name = "T.rng_rand_float"
    known(bit, f"the bit of {name}", 32, 64, multiple=32)
    choice(dist, f"the dist of {name}", ("uniform", "normal"))
    return _next(name, dist, f"float{bit}")
