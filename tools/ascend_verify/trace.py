"""Compare the traces of two sources: the calls of each pipe, and the order that flags enforce.

What enters: the lines that `host.h` prints. What leaves: sentences about what differs. Two traces
agree if, on every core, each pipe gets the same calls with the same arguments, places in memories
being the same but for one renaming for each memory, and if a call comes after the same calls of
other pipes, whatever flags, locks or barriers say so, and under whatever numbers.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

_PIPES = {
    "gm2ub": "MTE2", "nd2nz": "MTE2", "dn2nz": "MTE2", "fill_l1": "MTE2", "ub2gm": "MTE3",
    "ub2l1": "MTE3", "mmad": "M", "mmad_mx": "M", "l0c2gm": "FIX", "l0c2ub": "FIX",
}  # fmt: skip
_ORDER = frozenset(
    {"notify", "wait", "barrier", "lock", "unlock", "arrive", "arrive2", "await", "await2"}
)
_PLACE, _SPACE = re.compile(r"(UB|L1|L0A|L0B|L0C)\+(\d+)"), r"\1"

Pipe = tuple[str, str]  # core, pipe
Known = dict[Pipe, int]  # how many calls of each pipe are known to have ended


@dataclass
class Core:
    """One core of a block: the lines of its trace, each split at blanks."""

    name: str
    lines: list[list[str]] = field(default_factory=list[list[str]])

    @property
    def sub(self) -> str:
        """Its number among the vector cores."""
        return self.name.split()[1]


def blocks(lines: Sequence[str]) -> list[list[Core]]:
    """The cores of each block."""
    out: dict[str, list[Core]] = defaultdict(list)
    for line in lines:
        if line.startswith("core "):
            _, block, name = line.split(" ", 2)
            out[block].append(Core(name))
            cores = out[block]
        else:
            cores[-1].lines.append(line.split())
    return list(out.values())


def _pipe(call: str) -> str:
    """The pipe of a call that moves or computes."""
    return "MTE1" if call.startswith("l12l0") else _PIPES.get(call, "V")


def _is_call(line: list[str]) -> bool:
    return line[0] not in _ORDER and not line[0].startswith("set_")


def calls(core: Core) -> dict[str, list[str]]:
    """The calls of each pipe of a core; `S` has the settings, each where it changes something."""
    out: dict[str, list[str]] = defaultdict(list)
    state: dict[str, list[str]] = {}
    for line in core.lines:
        if _is_call(line):
            out[_pipe(line[0])].append(" ".join(line))
        elif line[0].startswith("set_"):
            about = "atomic" if line[0].startswith("set_atomic") else line[0]
            if state.get(about) != line:
                out["S"].append(" ".join(line))
            state[about] = line
    return out


# Order --------------------------------------------------------------------------------------------


class Order:
    """What each call of a block comes after: a walk through the cores' lines, as they let it."""

    def __init__(self, cores: Sequence[Core]) -> None:
        self.cores = cores
        self.done: Known = defaultdict(int)
        self.known: dict[Pipe, Known] = defaultdict(dict)
        self.raised: dict[tuple[str, ...], deque[Known]] = defaultdict(deque)
        self.freed: dict[tuple[str, str], Known] = {}
        self.after: dict[tuple[Pipe, int], Known] = {}
        self._walk()

    def _walk(self) -> None:
        at = [0] * len(self.cores)
        while True:
            moved = False
            for k, core in enumerate(self.cores):
                while at[k] < len(core.lines) and self._step(core, core.lines[at[k]]):
                    at[k] += 1
                    moved = True
            if not moved:
                break

    def _step(self, core: Core, line: list[str]) -> bool:
        """Take a line; False if it waits for a flag that is not raised yet."""
        if _is_call(line):
            pipe = (core.name, _pipe(line[0]))
            self.after[pipe, self.done[pipe]] = dict(self.known[pipe])
            self.done[pipe] += 1
        elif line[0] in _ORDER:
            return self._order(core, line)
        return True

    def _now(self, core: Core, pipe: str) -> Known:
        """What is known to have ended when a pipe has done all it has got."""
        pipes = self._pipes(core) if pipe == "ALL" else [(core.name, pipe)]
        out: Known = {}
        for p in pipes:
            _learn(out, self.known[p])
            out[p] = self.done[p]
        return out

    def _pipes(self, core: Core) -> list[Pipe]:
        return [(core.name, p) for p in ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")]

    def _order(self, core: Core, line: list[str]) -> bool:
        what, pipe, *rest = line
        mine = [(core.name, pipe)] if pipe != "ALL" else self._pipes(core)
        got: list[Known] = []
        if what == "barrier":
            got = [self._now(core, pipe)] if pipe == "ALL" else []
        elif what == "notify":
            self.raised[core.name, pipe, *rest].append(self._now(core, pipe))
        elif what == "wait":
            mine = [(core.name, rest[0])]
            got = [self.raised[core.name, pipe, *rest].popleft()]
        elif what == "unlock":
            freed = self.freed.setdefault((core.name, rest[0]), {})
            _learn(freed, self._now(core, pipe))
        elif what == "lock":
            got = [self.freed.get((core.name, rest[0]), {})]
        else:
            return self._cross(core, what, pipe, int(rest[0]), mine)
        for p in mine:
            for known in got:
                _learn(self.known[p], known)
        return True

    def _cross(self, core: Core, what: str, pipe: str, flag: int, mine: list[Pipe]) -> bool:
        """Flags between cores: to one vector core or both, as `host.h` has them."""
        to_vector = (core.name[0] == "C") == what.startswith("arrive")
        if core.name[0] == "V":
            flags = [(core.sub, flag)]
        elif what.endswith("2"):
            flags = [("0", flag), ("1", flag)]
        else:
            flags = [(str(flag // 16), flag % 16)]
        keys = [(str(to_vector), sub, str(number)) for sub, number in flags]
        if what.startswith("arrive"):
            for key in keys:
                self.raised[key].append(self._now(core, pipe))
            return True
        if not all(self.raised[key] for key in keys):
            return False
        for key in keys:
            known = self.raised[key].popleft()
            for p in mine:
                _learn(self.known[p], known)
        return True


def _learn(known: Known, more: Known) -> None:
    for pipe, count in more.items():
        known[pipe] = max(known.get(pipe, 0), count)


# Comparison ---------------------------------------------------------------------------------------


def differences(ours: Sequence[str], theirs: Sequence[str]) -> Iterator[str]:
    """What differs between two traces, a sentence for each kind of difference."""
    said: set[str] = set()
    a, b = blocks(ours), blocks(theirs)
    if [[c.name for c in block] for block in a] != [[c.name for c in block] for block in b]:
        yield "the cores differ"
        return
    for block, other in zip(a, b, strict=True):
        for text in (*_calls(block, other), *_orders(block, other)):
            if text not in said:
                said.add(text)
                yield text


def _calls(block: Sequence[Core], other: Sequence[Core]) -> Iterator[str]:
    for core, twin in zip(block, other, strict=True):
        mine, its = calls(core), calls(twin)
        names = _Renaming()
        for pipe in sorted({*mine, *its}):
            for a, b in zip_longest(mine[pipe], its[pipe]):
                if a is None or b is None:
                    side, only = ("ours", a) if b is None else ("theirs", b)
                    yield f"only {side} has {_PLACE.sub(_SPACE, str(only))}"
                elif not names.same(a, b):
                    yield f"ours has {a}, theirs {b}"


class _Renaming:
    """Places of one side and the other, which belong to each other one to one."""

    def __init__(self) -> None:
        self.there: dict[str, str] = {}
        self.back: dict[str, str] = {}

    def same(self, a: str, b: str) -> bool:
        """Whether two calls are the same."""
        if _PLACE.sub(_SPACE, a) != _PLACE.sub(_SPACE, b):
            return False
        pairs = zip(_PLACE.findall(a), _PLACE.findall(b), strict=True)
        return all(self._agree("+".join(x), "+".join(y)) for x, y in pairs)

    def _agree(self, x: str, y: str) -> bool:
        return self.there.setdefault(x, y) == y and self.back.setdefault(y, x) == x


def _orders(block: Sequence[Core], other: Sequence[Core]) -> Iterator[str]:
    mine, its = Order(block), Order(other)
    for call in sorted(mine.after.keys() & its.after.keys()):
        (core, pipe), _ = call
        for before in sorted({*mine.after[call], *its.after[call]}):
            if before == (core, pipe):
                continue
            a, b = mine.after[call].get(before, 0), its.after[call].get(before, 0)
            who = " ".join(before) if before[0] != core else before[1]
            if a > b:
                yield f"a call of {pipe} waits for more calls of {who} in ours"
            elif a < b:
                yield f"a call of {pipe} waits for more calls of {who} in theirs"
