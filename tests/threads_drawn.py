"""Random programs of threads, as text: every statement is for one thread, and no barrier is written
where the compiler has to put one.

What enters: a seed. What leaves: the text of a module with a `kernel` of one block. It stores to
permuted places of shared and global memory, adds atomically, keeps numbers in its own memory, and
has loops and conditions, some of which only part of the threads meet. No statement, and no branch
that only some threads take, uses an element that another thread stores there.
"""

from __future__ import annotations

import random

N = 64
"""Threads of the block, and elements of each tensor."""

HEAD = f"""\
import tilelang.language as T


@T.prim_func
def kernel(
    X: T.Tensor(({N},), "int32"), Y: T.Tensor(({N},), "int32"), G: T.Tensor(({N},), "int32")
):
    with T.Kernel(1, threads={N}):
        tx = T.get_thread_binding()
        s = T.alloc_shared(({N},), "int32")
        q = T.alloc_shared(({N},), "int32")
        a = T.alloc_local((4,), "int32")
        v = T.alloc_var("int32", init=1)
        s[tx] = X[tx]
        q[tx] = X[tx * 5 % {N}]
        for k in T.serial(4):
            a[k] = tx * k
"""
LAST = f"""\
        Y[tx] = a[0] + a[1] * 3 + a[2] * 5 + a[3] * 7 + v
        Y[tx] += s[tx] * 11 + q[{N - 1} - tx] * 13 + G[tx]
"""
SHARED = "sqG"
"""What other threads see."""


class Drawn:
    """The lines of one program."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.lines: list[str] = []
        self.loops = 0

    def text(self) -> str:
        """The whole module."""
        for _ in range(self.r.randrange(3, 9)):
            self.statement(2, [])
        return HEAD + "".join(f"{line}\n" for line in self.lines) + LAST

    def say(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def moved(self, place: str, rounds: list[str]) -> str:
        """A place that moves with a loop around, perhaps."""
        if rounds and self.r.random() < 0.4:
            return f"({place} + {self.r.choice(rounds)}) % {N}"
        return place

    def anywhere(self, rounds: list[str]) -> str:
        """A place that several threads may name."""
        r = self.r
        places = [
            self.permuted([]),
            f"(tx * {r.choice([2, 3, 5])} + {r.randrange(9)}) % {N}",
            "tx // 2",
            str(r.randrange(N)),
        ]
        return self.moved(r.choice(places), rounds)

    def permuted(self, rounds: list[str]) -> str:
        """A place of each thread's own."""
        r = self.r
        places = [
            "tx",
            f"{N - 1} - tx",
            f"(tx + {r.randrange(1, N)}) % {N}",
            f"(tx ^ {r.choice([1, 2, 3, 16, 33])})",
        ]
        return self.moved(r.choice(places), rounds)

    def value(self, rounds: list[str], but: str) -> str:
        """A small number, of no element of the buffer `but`."""
        r = self.r
        buffers = [f"{b}[{self.anywhere(rounds)}]" for b in SHARED + "X" if b != but]
        own = ["v", f"a[{r.randrange(4)}]", str(r.randrange(-5, 9))]
        parts = [r.choice([*buffers, *own]) for _ in range(r.randrange(1, 4))]
        total = parts[0]
        for part in parts[1:]:
            total = f"({total} {r.choice('+-*')} {part})"
        return f"T.min(T.max({total}, -1000), 1000)"

    def statement(self, depth: int, rounds: list[str]) -> None:
        """One statement that all threads get to."""
        r, kind, shallow = self.r, self.r.random(), len(rounds) < 2 and depth < 5
        if kind < 0.33:
            into = r.choice(SHARED)
            self.say(depth, f"{into}[{self.permuted(rounds)}] = {self.value(rounds, into)}")
        elif kind < 0.5:
            self.own(depth, rounds)
        elif kind < 0.6:
            self.atomic(depth, rounds)
        elif kind < 0.64:
            self.say(depth, "T.sync_threads()")
        elif kind < 0.76 and shallow:
            name, self.loops = f"i{self.loops}", self.loops + 1
            self.say(depth, f"for {name} in T.serial({r.randrange(4)}):")
            self.block(depth + 1, [*rounds, name])
        elif kind < 0.87 and shallow:
            self.say(depth, f"if X[{r.randrange(N)}] > {r.randrange(20)}:")
            self.block(depth + 1, rounds)
            if r.random() < 0.5:
                self.say(depth, "else:")
                self.block(depth + 1, rounds)
        else:
            some = [f"tx < {r.randrange(N)}", f"tx % {r.randrange(2, 5)} == 0", "X[tx] > 5"]
            self.say(depth, f"if {r.choice(some)}:")
            r.choice([self.own, self.atomic])(depth + 1, rounds)

    def block(self, depth: int, rounds: list[str]) -> None:
        for _ in range(self.r.randrange(1, 4)):
            self.statement(depth, rounds)

    def own(self, depth: int, rounds: list[str]) -> None:
        """A number that the thread keeps."""
        into = self.r.choice(["v", f"a[{self.r.randrange(4)}]"])
        self.say(depth, f"{into} = {self.value(rounds, '')}")

    def atomic(self, depth: int, rounds: list[str]) -> None:
        into = f"{self.r.choice(SHARED)}[{self.anywhere(rounds)}]"
        self.say(depth, f"T.atomic_add({into}, {self.r.randrange(1, 5)})")
