"""What a compiled kernel depends on, as one key.

What enters: a function of the tile stage, what it is compiled for and the settings. What leaves: a
SHA-256 that is equal only where the compiler would make the same code with the same messages: of
the IR's text, the places in the author's files (a failed assertion names them), the target and what
its code generator knows of the machine, the settings that code may depend on, and the compiler
itself.
"""

from __future__ import annotations

import functools
import hashlib
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tilelang._version import __version__
from tilelang.errors import Loc
from tilelang.ir.text import print_function
from tilelang.ir.tile import Function
from tilelang.options import ROWS, Effect, Options, Part

_PACKAGE = Path(__file__).resolve().parents[1]
_STARTED = time.time_ns()
_CLOCK = 20_000_000
"""Nanoseconds by which the clock of a file system may be behind that of the processor."""


def key(fn: Function, target: str, machine: Sequence[str], options: Options) -> str:
    """The key of a function compiled for `target`, in hexadecimal.

    `machine` is what the target's code generator depends on besides the program: features of the
    processor, versions of the compilers that it calls.
    """
    settings = repr(code_settings(options))
    return digest([compiler(), target, *machine, settings, print_function(fn), places(fn)])


def digest(parts: Sequence[str]) -> str:
    """SHA-256 of texts in order, in hexadecimal; other texts joined alike give another one."""
    made = hashlib.sha256()
    for part in parts:
        text = part.encode()
        made.update(len(text).to_bytes(8, "little"))
        made.update(text)
    return made.hexdigest()


def code_settings(options: Options) -> list[tuple[str, object]]:
    """The settings, by name, that the code of a kernel may depend on."""
    return [
        (row.name, getattr(options, row.name))
        for row in ROWS
        if row.name is not None
        and row.part in (Part.THREAD, Part.DEVICE)
        and row.effect is not Effect.REPORTS
    ]


def places(fn: Function) -> str:
    """Where each node below `fn` was written, in the order of a walk.

    The text of the function fixes that order; nodes without a place count too.
    """
    known: dict[Loc | None, int] = {None: 0}
    order = [known.setdefault(node.loc, len(known)) for node in fn.walk()]
    return repr([*known][1:]) + repr(order)


# ---- The compiler itself -------------------------------------------------------------------------


@functools.cache
def compiler() -> str:
    """The version of this package, and a digest of its files as they are when first asked.

    A file is known by its name, size and time of change: 2 ms for all. What this process has
    imported is older than a file that changed after it started, so then the text is like no other,
    and the process neither uses nor leaves what others could use.
    """
    made = hashlib.sha256()
    changed = False
    for name, facts in sorted(_sources(_PACKAGE)):
        made.update(f"{name}\0{facts.st_size}\0{facts.st_mtime_ns}\n".encode())
        # A copy may keep the old time of change of a file, but not that of its entry.
        latest = max(facts.st_mtime_ns, facts.st_ctime_ns)
        changed = changed or latest > _STARTED - _CLOCK
    own = secrets.token_hex(16) if changed else made.hexdigest()
    return f"{__version__} {own}"


def _sources(package: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The Python files below a folder, each by its path from there."""
    for folder, inner, files in os.walk(package):
        inner[:] = [name for name in inner if name != "__pycache__"]
        for name in files:
            path = os.path.join(folder, name)
            if not name.endswith(".py"):
                continue
            try:
                yield os.path.relpath(path, package), os.stat(path)
            except OSError:  # removed meanwhile, so it is not there
                continue
