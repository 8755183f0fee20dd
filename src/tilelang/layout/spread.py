"""How the elements of a tile lie among the threads of a block and the registers of each.

What enters: the extents of a tile and a number of threads. What leaves: a `Spread`, a finite map in
mixed radix. The index along each axis is a sum of digits; a digit counts either in the thread index
or among the registers. So every question about a layout (which elements a thread holds, whether two
layouts agree, what is left when an axis is reduced) is arithmetic on a short list of numbers, and
any width can be held: digits may reach past an extent, and those places hold nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Digit:
    """One digit of the index along `axis`: it counts to `size`, in steps of `weight` elements.

    `thread` is its stride in the thread index, 0 for a digit that counts among registers.
    """

    axis: int
    size: int
    weight: int
    thread: int = 0


@dataclass(frozen=True)
class Spread:
    """A tile of `shape` over `threads` threads.

    Thread digits are read off the thread index as `thread // stride % size`. Register digits are
    in order, the slowest first: they number the registers of a thread from 0. A thread whose index
    differs only where there are no digits holds the same elements as another one (a replica).
    """

    shape: tuple[int, ...]
    threads: int
    digits: tuple[Digit, ...]

    @property
    def thread_digits(self) -> tuple[Digit, ...]:
        """The digits in the thread index."""
        return tuple(d for d in self.digits if d.thread)

    @property
    def register_digits(self) -> tuple[Digit, ...]:
        """The digits among registers, the slowest first."""
        return tuple(d for d in self.digits if not d.thread)

    @property
    def registers(self) -> int:
        """How many registers of the element type a thread needs."""
        return math.prod(d.size for d in self.register_digits)

    def register_strides(self) -> tuple[int, ...]:
        """The stride of each register digit in the number of the register."""
        sizes = [d.size for d in self.register_digits]
        return tuple(math.prod(sizes[k + 1 :]) for k in range(len(sizes)))

    def on(self, axis: int) -> tuple[Digit, ...]:
        """The digits of an axis, the fastest first."""
        return tuple(sorted((d for d in self.digits if d.axis == axis), key=lambda d: d.weight))

    def reach(self, axis: int) -> int:
        """The number of places along an axis, at least its extent."""
        return math.prod(d.size for d in self.on(axis))

    def is_padded(self, axis: int) -> bool:
        """Whether some places along an axis lie past its extent."""
        return self.reach(axis) != self.shape[axis]

    @property
    def is_replicated(self) -> bool:
        """Whether some elements are held by more than one thread."""
        return math.prod(d.size for d in self.thread_digits) != self.threads

    def replica_parts(self) -> tuple[tuple[int, int], ...]:
        """(stride, size) of the parts of the thread index without a digit; all of them are 0 in
        exactly one of the threads that hold an element. A last part has size 0: no limit.
        """
        out: list[tuple[int, int]] = []
        at = 1
        for d in sorted(self.thread_digits, key=lambda d: d.thread):
            if d.thread != at:
                out.append((at, d.thread // at))
            at = d.thread * d.size
        if at < self.threads:
            out.append((at, 0))
        return tuple(out)

    def without(self, axis: int) -> Spread:
        """What is left when an axis is reduced: its threads hold replicas of the result."""
        kept = tuple(
            replace(d, axis=d.axis - (d.axis > axis)) for d in self.digits if d.axis != axis
        )
        shape = self.shape[:axis] + self.shape[axis + 1 :]
        return Spread(shape, self.threads, kept)

    def through(self, axes: Sequence[int | None], shape: Sequence[int]) -> Spread:
        """The layout of an array of `shape` whose axis `k` is walked by axis `axes[k]` of this
        tile (None: it has extent 1). Axes of the tile that walk nothing make replicas.
        """
        found = {a: k for k, a in enumerate(axes) if a is not None}
        kept = tuple(replace(d, axis=found[d.axis]) for d in self.digits if d.axis in found)
        return Spread(tuple(shape), self.threads, kept)

    def part(self, axis: int, extent: int) -> Spread | None:
        """The layout of each `extent` neighbouring places along an axis, from a multiple of
        `extent` on; None if they lie in other threads than the next ones.
        """
        kept: list[Digit] = []
        for d in self.digits:
            size = d.size
            if d.axis == axis and d.weight * d.size > extent:
                size = max(1, extent // d.weight)
                if d.thread or (d.weight < extent and (extent % d.weight or d.size % size)):
                    return None
            kept.append(replace(d, size=size))
        shape = (*self.shape[:axis], extent, *self.shape[axis + 1 :])
        return Spread(shape, self.threads, tuple(kept))

    def simple(self) -> Spread:
        """The same map without digits of size 1, and with neighbouring digits joined."""
        out: list[Digit] = []
        for d in self.digits:
            if d.size == 1:
                continue
            last = out[-1] if out else None
            if (
                last is not None
                and last.axis == d.axis
                and not last.thread
                and not d.thread
                and last.weight == d.weight * d.size
            ):
                out[-1] = replace(d, size=d.size * last.size)
            else:
                out.append(d)
        return replace(self, digits=tuple(out))

    def elements(self, thread: int) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The registers of a thread and the element that each holds, for those that hold one."""
        base = [0] * len(self.shape)
        for d in self.thread_digits:
            base[d.axis] += thread // d.thread % d.size * d.weight
        for register in range(self.registers):
            at, rest = list(base), register
            for d, stride in zip(self.register_digits, self.register_strides(), strict=True):
                at[d.axis] += rest // stride * d.weight
                rest %= stride
            if all(i < n for i, n in zip(at, self.shape, strict=True)):
                yield register, tuple(at)


def broken(spread: Spread) -> Iterator[str]:
    """What is wrong with a layout: nothing, if every element is held, in one register of each
    thread that holds it.
    """
    for axis, extent in enumerate(spread.shape):
        at = 1
        for d in spread.on(axis):
            if d.weight != at:
                yield f"axis {axis}: a digit of weight {d.weight}, expected {at}"
            at *= d.size
        if at < extent:
            yield f"axis {axis}: {at} places for {extent} elements"
    at = 1
    for d in sorted(spread.thread_digits, key=lambda d: d.thread):
        if d.thread % at:
            yield f"two digits share threads: stride {d.thread} after {at}"
        at = d.thread * d.size
    if at > spread.threads:
        yield f"digits for {at} threads of {spread.threads}"


def agree(a: Spread, b: Spread) -> bool:
    """Whether both place every element in the same threads and registers."""
    x, y = a.simple(), b.simple()
    return (
        x.shape == y.shape
        and set(x.thread_digits) == set(y.thread_digits)
        and x.register_digits == y.register_digits
    )


def replicated(shape: Sequence[int], threads: int) -> Spread:
    """Every thread holds all elements, in row-major order."""
    digits = tuple(Digit(axis, n, 1) for axis, n in enumerate(shape) if n > 1)
    return Spread(tuple(shape), threads, digits)


def coalesced(shape: Sequence[int], threads: int, vector: int) -> Spread:
    """Neighbouring threads hold neighbouring groups of `vector` elements of the last axis.

    `vector` is halved until it divides the last extent and until there are groups for all threads.
    What the threads do not reach in one go, they hold in further registers.
    """
    extents = tuple(shape) or (1,)
    last, total = extents[-1], math.prod(extents)
    while vector > 1 and (last % vector or total // vector < threads):
        vector //= 2
    left = threads
    stride = 1
    fast: list[Digit] = []
    slow: list[Digit] = []
    for axis in range(len(extents) - 1, -1, -1):
        inner = vector if axis == len(extents) - 1 else 1
        groups = extents[axis] // inner if inner > 1 else extents[axis]
        across = _across(groups, left)
        if across > 1:
            fast.append(Digit(axis, across, inner, stride))
            stride *= across
            left //= across
        rounds = -(-groups // across)
        if rounds > 1:
            slow.insert(0, Digit(axis, rounds, inner * across))
    tail = [Digit(len(extents) - 1, vector, 1)] if vector > 1 else []
    return Spread(tuple(shape), threads, (*slow, *fast, *tail))


def _across(groups: int, threads: int) -> int:
    """How many of `threads` (one of their divisors) walk along an axis of so many groups."""
    divisors = [n for n in range(1, threads + 1) if threads % n == 0]
    enough = [n for n in divisors if n >= groups]
    most = enough[0] if enough else threads
    # A divisor of the groups wastes nothing; it is taken if it keeps half of the threads busy.
    exact = max(n for n in divisors if groups % n == 0)
    return exact if 2 * exact > most or exact == groups else most
