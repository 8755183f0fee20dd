"""What the tests of public reports share: a run on the CPU, and a refusal one can read."""

from collections.abc import Callable
from typing import Any

import tilelang
from tilelang.errors import Diagnostic, TileError

# Words that belong to a compiler's inside, and never to a message for the author of a kernel.
_INSIDE = ("Check failed", "static_assert", "has no attribute", "nvcc", "Traceback", "NoneType")


def run(func: Any, *arguments: Any, target: str = "cpu") -> None:
    """Compile a function and call it; it writes its arguments."""
    tilelang.compile(func, target=target)(*arguments)


def refused(action: Callable[[], Any], *words: str, located: bool = True) -> Diagnostic:
    """`action` raises an error that an author can read, and says each of `words`.

    `located`: it points into the file of `action`.
    """
    try:
        action()
    except TileError as caught:
        found = caught.diagnostics[0]
    else:
        raise AssertionError("it was accepted")
    said = " ".join(
        [found.message, found.label, found.expected, found.got, found.help]
        + [note for _, note in found.related]
    )
    for inside in _INSIDE:
        assert inside not in said, said
    for word in words:
        assert word.lower() in said.lower(), f"{word!r} is not in: {said}"
    if located:
        assert found.loc is not None, said
        files = {place.file for place in found.loc.chain()}
        assert action.__code__.co_filename in files, found.loc
    return found
