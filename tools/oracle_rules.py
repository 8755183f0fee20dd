"""The rules by which the two packages say one thing differently, and both in normal form.

What `oracle_from_upstream.py` and `oracle_from_own.py` share. Where the packages differ by design,
the rule stands here, once:

1. Storage is allocated at the top of a kernel, in the order in which the program asks for it; so
   are facts (`layout`, barrier counts), as a set. Upstream keeps both apart from the statements.
2. A parallel nest of n loops is n loops, the outermost with the hints.
3. A value that fills a buffer of another dtype, updates an element of one atomically, or seeds a
   generator of random numbers is converted: upstream leaves that to the lowering, here a cast is
   written.
4. A reduction of shared memory, and a scan of a fragment, is one operation here; upstream copies to
   a buffer of the other kind and back.
5. A layout counts by the buffer that it is for: the two packages' layout objects have no common
   form.
6. Hints of a loop or copy whose default is written out are as good as absent.
7. `T.ws(g)` is a statement here; upstream writes the condition on the thread index.
8. What has an effect and a value (a shuffle, a vote, an atomic update, a query of an answer about a
   cluster with the fence that belongs to it) is a statement that binds a name here, and an
   expression upstream: the name is replaced by the expression.
9. A single element of a barrier is a region of one element here, a load upstream.
10. A schedule of warp specialisation counts by being there.
11. `x * 1`, `x / 1`, `x + 0` and `x - 0` of floats are `x` upstream.
12. Where only one side gives a value a name (upstream gives none in `a, b = x, y`), the name is
    replaced by the value, if that reads no memory.
13. `if a: if b:` is one `if a and b:`, and a choice of which one arm is False (True) an `and` (an
    `or`), which is how one whose right side must not be evaluated is written here.
14. A division that rounds up is `x // d + (x % d != 0)` here, `(x + d - 1) // d` upstream.
15. The rank of a block in its cluster is arithmetic on block indices here, a function upstream.
16. An update of a reducer of the first version is a statement of its own here, a store upstream.
17. An extent of a region between two names is a number where their difference is one.
18. A loop bound to a thread index gives that index a name here.
"""

from __future__ import annotations

from typing import Any

from oracle_form import INT32, ONE, Form, Side, Stmt

ZERO = ["const", INT32, 0]


def number(e: Any) -> int:
    """The value of an integer literal."""
    return int(e) if isinstance(e, (int, bool)) else int(e[2])


class Body:
    """Collects what is moved to the top of a kernel while its body is read."""

    def __init__(self) -> None:
        self.buffers: list[Stmt] = []
        self.facts: list[Form] = []

    def fact(self) -> Stmt:
        """The facts, which have no order."""
        return Stmt("facts", {"all": ["set", self.facts]})

    def drop(self, name: str) -> None:
        """Take an allocation back."""
        self.buffers[:] = [b for b in self.buffers if b.buffer is None or b.buffer[0] != name]

    def declare(self, form: Form) -> None:
        """An allocation."""
        strides = form[4] or None
        buffer = [*form[:4], strides]
        self.buffers.append(Stmt("alloc", buffer=buffer))


def parameters(params: list[Form]) -> list[Stmt]:
    """Parameters, with row-major strides left out, and the symbolic sizes that they bind."""
    made: list[Stmt] = []
    for p in params:
        if p[0] == "scalar":
            made.append(Stmt("parameter", binds=[(p[1], p[2])]))
            continue
        name, dtype, shape, scope, strides = p[1:]
        if strides and row_major(shape, strides):
            strides = None
        made.append(Stmt("tensor", buffer=[name, dtype, shape, scope, strides]))
    return made


def row_major(shape: Form, strides: Form) -> bool:
    """Whether strides are those of a row-major array without gaps."""
    side = Side()
    want: Any = ONE
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if side.canonical(stride) != side.canonical(want):
            return False
        want = ["bin", "*", want, size]
    return True


def symbols(params: list[Form]) -> list[tuple[str, str]]:
    """The symbolic sizes of parameters, in order of first appearance."""
    found: dict[str, str] = {}

    def walk(e: Any) -> None:
        if isinstance(e, list):
            if e[:1] == ["var"]:
                found.setdefault(e[1], INT32)
            for x in e[1:] if e and isinstance(e[0], str) else e:
                walk(x)

    for p in params:
        if p[0] == "buffer":
            walk(p[3])
            walk(p[5])
    return list(found.items())


_DEFAULTS = {"num_stages": 0, "tl.ws_op_id": None, "pragma_unroll_explicit": None}


def hints(notes: dict[str, Any]) -> dict[str, Any]:
    """The hints of a loop or operation, defaults left out."""
    out: dict[str, Any] = {}
    for key, value in notes.items():
        if key == "annotations":  # what an author adds by name is beside the rest upstream
            out |= hints(dict(value))
            continue
        if key in _DEFAULTS and _DEFAULTS[key] in (None, value):
            continue
        out[key] = number(value) if isinstance(value, list) and value[:1] == ["const"] else value
    return out
