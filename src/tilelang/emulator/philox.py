"""Random numbers of threads: Philox4x32-10, as cuRAND's device functions deliver them.

What enters: a seed, a sequence and an offset for each thread, and then requests for numbers. What
leaves: the numbers of each thread's own stream. Bits and uniform numbers are those of cuRAND for
`curandStatePhilox4_32_10_t`; normal numbers agree with cuRAND's to the last places, as far as its
logarithm, sine and cosine are exact.

The generator is that of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2,
3" (SC11). cuRAND's key is the seed; of the counter's four words, the low two count blocks of four
numbers within a sequence, the high two are the sequence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.emulator.storage import Array, Mask
from tilelang.errors import Loc, error

Words = npt.NDArray[np.uint64]
Threads = npt.NDArray[np.intp]

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
_ROUNDS = 10


def philox(low: Words, high: Words, seed: Words) -> npt.NDArray[np.uint32]:
    """Four numbers for each counter `high * 2**64 + low`; the last axis holds them in order."""
    x0, x1, x2, x3 = low & _LOW, low >> _HALF, high & _LOW, high >> _HALF
    k0, k1 = seed & _LOW, seed >> _HALF
    for _ in range(_ROUNDS):
        a, b = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]
        x0, x1, x2, x3 = (b >> _HALF) ^ x1 ^ k0, b & _LOW, (a >> _HALF) ^ x3 ^ k1, a & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return np.stack((x0, x1, x2, x3), -1).astype(np.uint32)


@dataclass(frozen=True)
class Distribution:
    """What a request is for: bits, uniform or normal, as uint32, float32 or float64."""

    kind: str
    dtype: str

    @property
    def words(self) -> int:
        """The numbers of the generator that one request takes; of a normal, every other request."""
        if self.kind != "normal":
            return 1
        return 4 if self.dtype == "float64" else 2


class Streams:
    """The streams of the threads of one block; a thread has none before it is started.

    A position counts numbers in a sequence: `counter` blocks of four, and `place` of four.
    `spare` holds the second number of a pair of normals, for each precision.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        threads = math.prod(shape)
        self.started = np.zeros(threads, np.bool_)
        self.seed, self.low, self.high = (np.zeros(threads, np.uint64) for _ in range(3))
        self.place = np.zeros(threads, np.int64)
        self.spare = {name: np.full(threads, np.nan, name) for name in ("float32", "float64")}
        self.pending = {name: np.zeros(threads, np.bool_) for name in self.spare}

    def start(self, mask: Mask | None, seed: Any, sequence: Any, offset: Any) -> None:
        """Begin the streams of the threads in `mask` (None: all)."""
        everyone = np.arange(self.started.size)
        who = everyone if mask is None else np.flatnonzero(_flat(mask, self.shape))
        words = [_flat(_word(x), self.shape)[who] for x in (seed, sequence, offset)]
        self.seed[who], self.high[who] = words[0], words[1]
        self.low[who], self.place[who] = words[2] >> np.uint64(2), words[2] & np.uint64(3)
        self.started[who] = True
        for pending in self.pending.values():
            pending[who] = False

    def draw(
        self, request: Distribution, shape: tuple[int, ...], mask: Mask | None, loc: Loc | None
    ) -> Array:
        """A number for each active lane, in lane order.

        Lane n belongs to thread n modulo the number of threads.
        """
        threads, total = self.started.size, int(np.prod(shape))
        active = np.ones(total, np.bool_) if mask is None else _flat(mask, shape)
        rounds = -(-total // threads)
        grid = np.zeros((rounds, threads), np.bool_)
        grid.reshape(-1)[:total] = active
        turn = (np.cumsum(grid, 0) - 1).reshape(-1)[:total][active]
        who = np.flatnonzero(active) % threads
        if not self.started[who].all():
            raise error(
                "uninitialised",
                "a random number of a thread that has no generator",
                loc,
                expected="T.rng_init by the same thread before",
            )
        out = np.zeros(total, request.dtype)
        if request.kind == "normal":
            out[active] = self._normal(who, turn, grid.sum(0), request)
        else:
            words = self._words(who, turn, 1)[:, 0]
            out[active] = words if request.kind == "bits" else _uniform(words, request.dtype)
            self._skip(grid.sum(0))
        return out.reshape(shape)

    def _words(self, who: Threads, position: Array, count: int) -> Array:
        """`count` numbers of each thread in `who`, from `position` after its current one on."""
        at = self.place[who] + position
        steps = [at + n for n in range(count)]
        columns: list[Array] = []
        for step in steps:
            low, high = self._counter(who, (step >> 2).astype(np.uint64))
            four = philox(low, high, self.seed[who])
            columns.append(np.take_along_axis(four, (step & 3)[:, None], 1)[:, 0])
        return np.stack(columns, 1)

    def _counter(self, who: Threads, blocks: Words) -> tuple[Words, Words]:
        low = self.low[who] + blocks
        return low, self.high[who] + (low < blocks)

    def _skip(self, numbers: Array) -> None:
        """Go on by some numbers in each thread's stream."""
        at = self.place + numbers
        everyone = np.arange(self.started.size)
        self.low, self.high = self._counter(everyone, (at >> 2).astype(np.uint64))
        self.place = at & 3

    def _normal(self, who: Threads, turn: Array, wanted: Array, request: Distribution) -> Array:
        """Pairs by Box and Muller's method: the second of a pair waits for the next request."""
        spare, pending = self.spare[request.dtype], self.pending[request.dtype]
        index = turn - pending[who]
        pair = np.maximum(index, 0) >> 1
        words = self._words(who, pair * request.words, request.words)
        first, second = _box_muller(words, request.dtype)
        chosen = np.where(index & 1 == 0, first, second)
        out = np.where(index < 0, spare[who], chosen)
        fresh = wanted - pending
        pairs = (np.maximum(fresh, 0) + 1) >> 1
        odd = (fresh > 0) & (fresh & 1 == 1)
        last = (index + 1 == fresh[who]) & odd[who]
        spare[who[last]] = second[last]
        self.pending[request.dtype] = np.where(wanted > 0, odd, pending)
        self._skip(pairs * request.words)
        return out


def _flat(x: Any, shape: tuple[int, ...]) -> Array:
    """A value of each thread or lane, in a row."""
    return np.broadcast_to(x, shape).reshape(-1)


def _word(x: Any) -> Words:
    """An integer of any type as 64 bits; a negative one keeps its sign, as C converts it."""
    if isinstance(x, int):
        return np.array(x & 0xFFFFFFFFFFFFFFFF, np.uint64)
    return np.asarray(x).astype(np.uint64)


def _uniform(words: Array, dtype: str) -> Array:
    """In (0, 1]: x * 2**-32 + 2**-33, as a double + 2**-32 (cuRAND's `curand_uniform[_double]`)."""
    scale, half = (2.0**-32, 2.0**-33) if dtype == "float32" else (2.0**-32, 2.0**-32)
    kind = np.dtype(dtype).type
    return words.astype(dtype) * kind(scale) + kind(half)


def _box_muller(words: Array, dtype: str) -> tuple[Array, Array]:
    """A pair of normals from two numbers (float32) or four (float64).

    The float32 form rounds where cuRAND's does: the angle, the radius and each factor.
    """
    if dtype == "float32":
        step = np.float32(2.0**-32) * np.float32(6.2831855)
        angle = words[:, 1].astype(np.float32) * step + step / np.float32(2)
        logs = np.log(_uniform(words[:, 0], dtype).astype(np.float64)).astype(np.float32)
        radius = np.sqrt(np.float32(-2) * logs)
        sine, cosine = np.sin(angle.astype(np.float64)), np.cos(angle.astype(np.float64))
        return sine.astype(np.float32) * radius, cosine.astype(np.float32) * radius
    x, y = (_fifty_three(words[:, n], words[:, n + 1]) for n in (0, 2))
    radius = np.sqrt(-2.0 * np.log(x * 2.0**-53 + 2.0**-54))
    sine, cosine = _half_turns(y * 2.0**-52 + 2.0**-53)
    return sine * radius, cosine * radius


def _half_turns(x: Array) -> tuple[Array, Array]:
    """sin(pi * x) and cos(pi * x) to the last places, near their zeros too."""
    quarter = np.rint(2.0 * x)
    rest = np.pi * (x - quarter / 2.0)
    sine, cosine = np.sin(rest), np.cos(rest)
    turn = quarter.astype(np.int64) & 3
    sines = np.choose(turn, (sine, cosine, -sine, -cosine))
    return sines, np.choose(turn, (cosine, -sine, -cosine, sine))


def _fifty_three(low: Array, high: Array) -> Array:
    """53 bits of two numbers as a float64 integer."""
    bits = low.astype(np.uint64) ^ (high.astype(np.uint64) << np.uint64(21))
    return bits.astype(np.float64)
