"""What Python raises in the author's kernel while it is traced, as errors with a place.

What enters: an exception that left a rewritten function. What leaves: an error of ours that is also
of Python's class, where the kernel's own text is at fault: a name that is not defined, a division
of known numbers by zero, a list index. What the author raises, and what other functions raise,
stays as it is.
"""

from __future__ import annotations

import builtins
import difflib
import dis
import linecache
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

from tilelang import language
from tilelang.errors import (
    Loc,
    TileError,
    TileIndexError,
    TileKeyError,
    TileNameError,
    TileTypeError,
    TileUndefinedError,
    TileValueError,
    TileZeroDivisionError,
    error,
)
from tilelang.frontend.rewrite import TRACER

_HERE = str(Path(__file__).parent)

# The first that fits counts.
_CLASSES: tuple[tuple[type[Exception], str, type[TileError]], ...] = (
    (NameError, "name", TileUndefinedError),
    (AttributeError, "name", TileNameError),
    (ZeroDivisionError, "value", TileZeroDivisionError),
    (KeyError, "value", TileKeyError),
    (IndexError, "value", TileIndexError),
    (TypeError, "value", TileTypeError),
    (ValueError, "value", TileValueError),
    (OverflowError, "value", TileValueError),
)


@dataclass(frozen=True)
class _Entry:
    """An entry of a traceback that is in a kernel's text, and the tracer of that kernel."""

    at: TracebackType
    tracer: Any

    @property
    def code(self) -> CodeType:
        return self.at.tb_frame.f_code


def located(exc: Exception) -> TileError | None:
    """The error for what went wrong in the text of a kernel; None for anything else."""
    found = next((row for row in _CLASSES if isinstance(exc, row[0])), None)
    entry = _kernel_entry(exc.__traceback__)
    if found is None or entry is None or _raised(entry):
        return None
    _, kind, cls = found
    if isinstance(exc, NameError):
        hint = _near(exc, entry.at.tb_frame)
        return error(kind, str(exc), _place(entry), cls=cls, help=hint)
    return error(kind, f"Python says {type(exc).__name__}: {exc}", _place(entry), cls=cls)


def _kernel_entry(traceback: TracebackType | None) -> _Entry | None:
    """The innermost entry that is in a kernel's text, if only the tracer is below it."""
    entry: _Entry | None = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if TRACER in code.co_freevars:
            entry = _Entry(traceback, traceback.tb_frame.f_locals[TRACER])
        elif entry is not None and code in entry.code.co_consts:  # a comprehension in it
            entry = _Entry(traceback, entry.tracer)
        elif not code.co_filename.startswith(_HERE):
            entry = None
        traceback = traceback.tb_next
    return entry


def _raised(entry: _Entry) -> bool:
    """Whether the author's own `raise` is where the exception comes from."""
    return dis.opname[entry.code.co_code[entry.at.tb_lasti]] == "RAISE_VARARGS"


def _place(entry: _Entry) -> Loc:
    """The author's text that was being evaluated."""
    code, caller = entry.code, entry.tracer.caller
    line, end_line, start, end = list(code.co_positions())[entry.at.tb_lasti // 2]
    if line is None or start is None or end is None:
        return Loc(code.co_filename, entry.at.tb_lineno, function=code.co_name, caller=caller)
    if end_line != line:
        end = 10_000  # the whole of its first line
    text = linecache.getline(code.co_filename, line).encode()
    if text:  # Python counts bytes; a caret stands under characters
        start, end = (len(text[:n].decode(errors="ignore")) for n in (start, end))
    return Loc(code.co_filename, line, start + 1, end + 1, code.co_name, caller)


def _near(exc: NameError, frame: FrameType) -> str:
    """A hint for a name that is not defined: one of the language, or one that looks like it."""
    if isinstance(exc, UnboundLocalError):
        return "give it a value before it is read"
    name = str(exc.name)
    if hasattr(language, name) and not name.startswith("_"):
        return f"did you mean T.{name}?"
    known = [*frame.f_locals, *frame.f_globals, *vars(builtins)]
    near = difflib.get_close_matches(name, [n for n in known if not n.startswith("__")], n=1)
    if near:
        return f"did you mean {near[0]}?"
    return "define it before the kernel, or pass it as a parameter"
