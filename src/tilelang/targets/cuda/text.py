"""The text of one C++ function as it grows: lines, each with the author's place, and names.

What enters: statements as text. What leaves: the source, with `#line` directives that lead back to
the author's file.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tilelang.errors import Loc
from tilelang.targets.cuda.types import ALIASES

# C++ keywords, what the emitted source defines, and what CUDA does.
_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
char32_t class compl concept const consteval constexpr constinit const_cast continue co_await
co_return co_yield decltype default delete do double dynamic_cast else enum explicit export
extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq
nullptr operator or or_eq private protected public register reinterpret_cast requires return
short signed sizeof static static_assert static_cast struct switch template this thread_local
throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while
xor xor_eq tl main printf threadIdx blockIdx blockDim gridDim warpSize INFINITY NAN abs min max
exp log sin cos tan pow sqrt floor ceil round trunc fma fmod erf assert clock signbit isnan
isinf isfinite dim3 uint4 uint3 uint2 uint1 int4 int3 int2 int1 float4 float3 float2 float1
double2 half nanf y0 y1 yn j0 j1 jn gamma lgamma tgamma ldexp frexp modf logb ilogb cbrt hypot
remainder scalbn index rindex memcpy memset malloc free time
"""
_TAKEN = frozenset(_WORDS.split()) | frozenset(ALIASES)


def identifier(name: str) -> str:
    """`name` as a C++ identifier that nothing else has. Python's names are C++ names but for words
    that are taken; names of two underscores are the implementation's.
    """
    plain = name if name.isascii() else "n" + name.encode().hex()
    return f"{plain}_" if plain in _TAKEN or plain.startswith(("_", "tl_")) else plain


@dataclass(frozen=True)
class Line:
    """One line of source, with where its statement was written."""

    text: str
    depth: int
    loc: Loc | None


@dataclass
class Code:
    """The body of one function."""

    lines: list[Line] = field(default_factory=list[Line])
    depth: int = 1
    loc: Loc | None = None
    _names: int = 0

    def add(self, text: str) -> None:
        """One line."""
        self.lines.append(Line(text, self.depth, self.loc))

    def name(self) -> str:
        """A new name for a value."""
        self._names += 1
        return f"tl_{self._names}"

    @contextmanager
    def braces(self, head: str, tail: str = "}") -> Generator[None]:
        """Lines between `head {` and `tail`."""
        self.add(f"{head} {{" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.add(tail)


def rendered(lines: list[Line], *, directives: bool) -> Iterator[str]:
    """The lines as text; with `directives`, each leads back to the author's line."""
    at: tuple[str, int] | None = None
    for line in lines:
        if directives and line.loc is not None:
            here = (line.loc.file, line.loc.line)
            if at != here:
                quoted = here[0].replace("\\", "\\\\").replace('"', '\\"')
                yield f'#line {here[1]} "{quoted}"'
            at = (here[0], here[1] + 1)
        elif at is not None:
            at = (at[0], at[1] + 1)
        yield "  " * line.depth + line.text
