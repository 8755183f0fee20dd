"""Locations, diagnostics and the exception classes.

What enters: facts about a fault (where, what was expected, what was got, a way out). What leaves:
one `Diagnostic`, rendered as text with the author's source line and a caret, or an exception that
carries it. Every fault a kernel author can cause travels as a `Diagnostic` from end to end;
`InternalError` alone means that the fault is ours.
"""

from __future__ import annotations

import enum
import linecache
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Loc:
    """A span of one source line (lines and columns count from 1), and the call that led there.

    `caller` is set for code inlined from a macro or helper: the place of the call, itself possibly
    inlined.
    """

    file: str
    line: int
    col: int = 1
    end_col: int = 0
    function: str = ""
    caller: Loc | None = None

    def __str__(self) -> str:
        return f"{display_path(self.file)}:{self.line}:{self.col}"

    def chain(self) -> list[Loc]:
        """This location and its callers, innermost first."""
        out: list[Loc] = []
        at: Loc | None = self
        while at is not None:
            out.append(at)
            at = at.caller
        return out


class Severity(enum.Enum):
    """How bad a finding is: an error stops the compiler, a warning does not."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Diagnostic:
    """One finding: what is wrong, where, what was expected, what was got, and a way out.

    `kind` is one of the words of `KINDS`; `label` stands beside the caret; `related` names further
    places.
    """

    kind: str
    message: str
    loc: Loc | None = None
    label: str = ""
    expected: str = ""
    got: str = ""
    help: str = ""
    notes: tuple[str, ...] = ()
    related: tuple[tuple[Loc, str], ...] = ()
    severity: Severity = Severity.ERROR

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InternalError(f"unknown diagnostic kind {self.kind!r}")

    def render(self) -> str:
        """The finding as text, in the form shown in docs/errors.md."""
        lines = [f"{self.severity.value}[{self.kind}]: {self.message}"]
        if self.loc is not None:
            lines += _snippet(self.loc, self.label)
        elif self.label:
            lines.append(f"  = {self.label}")
        for loc, text in self.related:
            lines += _snippet(loc, text)
        lines += _facts(self)
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The finding as plain data, for `tilewright check --json`."""
        return {
            "severity": self.severity.value,
            "kind": self.kind,
            "message": self.message,
            "location": _loc_json(self.loc),
            "label": self.label,
            "expected": self.expected,
            "got": self.got,
            "help": self.help,
            "notes": list(self.notes),
            "related": [{"location": _loc_json(at), "text": text} for at, text in self.related],
        }


# The kinds of finding, each with the question it answers; a test holds docs/errors.md to this
# table.
KINDS: dict[str, str] = {
    "argument": "Do the arguments of a launch fit the kernel's signature?",
    "async": "Is asynchronous work waited for before its result is used?",
    "bounds": "Does every access stay inside its buffer?",
    "capacity": "Do the buffers fit the memories of the chip?",
    "deadlock": "Can every wait be satisfied?",
    "divergence": "Do all threads that must take part in an operation reach it?",
    "dtype": "Do the element types fit the operation?",
    "layout": "Is there a placement of elements that serves every use?",
    "leak": "Is everything given back, and waited for, before the block ends?",
    "name": "Does the name exist, and may it be used here?",
    "option": "Is the option known, and its value legal?",
    "proxy": "Is a fence between a write and a read that takes another path to memory?",
    "race": "Can two threads or blocks touch one element with no order between them?",
    "scope": "May this memory be used like this, on this target, in this dialect?",
    "shape": "Do the extents fit together?",
    "syntax": "Is this Python construct part of the language?",
    "target": "Is the target known, and can it run this?",
    "uninitialised": "Is every element written before it is read?",
    "value": "Is the value in the range of what is allowed here?",
}


def display_path(path: str) -> str:
    """`path` relative to the working directory when it lies below it, else as it is."""
    try:
        shown = os.path.relpath(path)
    except ValueError:  # another drive
        return path
    return path if shown.startswith("..") else shown


def _loc_json(loc: Loc | None) -> dict[str, Any] | None:
    if loc is None:
        return None
    return {
        "file": display_path(loc.file),
        "line": loc.line,
        "column": loc.col,
        "end_column": loc.end_col,
        "function": loc.function,
        "caller": _loc_json(loc.caller),
    }


def _snippet(loc: Loc, label: str) -> list[str]:
    """The location, the source line and a caret under the span; callers follow, outermost last."""
    where = f", in {loc.function}" if loc.function else ""
    gutter = " " * len(str(loc.line))
    lines = [f"{gutter}--> {loc}{where}"]
    text = linecache.getline(loc.file, loc.line).rstrip("\n")
    if text:
        # A tab counts as one column, so the caret line keeps the tabs of the source line.
        pad = "".join("\t" if c == "\t" else " " for c in text[: loc.col - 1])
        width = max(1, min(loc.end_col, len(text) + 1) - loc.col)
        lines += [
            f"{gutter} |",
            f"{loc.line} | {text}",
            f"{gutter} | {pad}{'^' * width} {label}".rstrip(),
        ]
    elif label:
        lines.append(f"{gutter} = {label}")
    for caller in loc.chain()[1:]:
        called = f", in {caller.function}" if caller.function else ""
        lines.append(f"{gutter} = called from {caller}{called}")
    return lines


def _facts(d: Diagnostic) -> list[str]:
    facts: list[str] = []
    if d.expected or d.got:
        both = [f"expected: {d.expected}"] if d.expected else []
        both += [f"got: {d.got}"] if d.got else []
        facts.append("; ".join(both))
    facts += [f"note: {note}" for note in d.notes]
    if d.help:
        facts.append(f"help: {d.help}")
    gutter = " " * len(str(d.loc.line)) if d.loc is not None else ""
    out: list[str] = []
    for fact in facts:
        first, *rest = fact.split("\n")
        out.append(f"{gutter} = {first}")
        out += [f"{gutter}   {line}" for line in rest]
    return out


class TileError(Exception):
    """A fault in a program, or in its use, that its author can mend. `diagnostics` holds the
    findings.
    """

    def __init__(self, *diagnostics: Diagnostic) -> None:
        super().__init__("\n\n".join(d.render() for d in diagnostics))
        self.diagnostics: tuple[Diagnostic, ...] = diagnostics

    def __str__(self) -> str:  # KeyError would show the text as Python writes it
        return str(self.args[0])

    def with_loc(self, loc: Loc) -> TileError:
        """The same error with `loc` on every finding that has no location yet."""
        placed = [d if d.loc is not None else replace(d, loc=loc) for d in self.diagnostics]
        return type(self)(*placed)


# Python's own exception classes stand beside ours, so that `except ValueError` in existing programs
# still works.
class TileValueError(TileError, ValueError):
    """A value, shape, scope or capacity that is not allowed."""


class TileTypeError(TileError, TypeError):
    """An element type or kind of object that is not allowed."""


class TileIndexError(TileError, IndexError):
    """A wrong number of indices, or an index that is provably outside."""


class TileNameError(TileError, AttributeError):
    """A name that does not exist, or that belongs to another dialect."""


class TileUndefinedError(TileError, NameError):
    """A name of Python that is not defined where a kernel uses it."""


class TileKeyError(TileError, KeyError):
    """A key that a dictionary does not have, while a kernel is traced."""


class TileZeroDivisionError(TileError, ZeroDivisionError):
    """A number that is known while a kernel is traced, divided by zero."""


class TileRuntimeError(TileError, RuntimeError):
    """A program that is used in a way that has no meaning, or that failed while it ran."""


class TileNotImplementedError(TileError, NotImplementedError):
    """A construct that the language, or this target, does not have."""


class JITNoBuilderError(TileRuntimeError):
    """A language construct used outside a function that is being traced."""


class EagerJITBuildError(TileRuntimeError):
    """An eager kernel that cannot be built from the given arguments."""


class DeadlockError(TileRuntimeError):
    """A launch in which no thread can go on; the findings name who waits for what."""


class InternalError(Exception):
    """A fault of the compiler itself. Please report it with the program that caused it."""


_CLASS_OF_KIND: dict[str, type[TileError]] = {
    "argument": TileValueError,
    "dtype": TileTypeError,
    "name": TileNameError,
    "deadlock": DeadlockError,
    "syntax": TileNotImplementedError,
    "async": TileRuntimeError,
    "leak": TileRuntimeError,
    "proxy": TileRuntimeError,
    "uninitialised": TileRuntimeError,
}


def error(
    kind: str,
    message: str,
    loc: Loc | None = None,
    *,
    cls: type[TileError] | None = None,
    **facts: Any,
) -> TileError:
    """Build the exception for one finding; `facts` are further fields of `Diagnostic`. The caller
    raises it.
    """
    chosen = cls or _CLASS_OF_KIND.get(kind, TileValueError)
    return chosen(Diagnostic(kind, message, loc, **facts))


def warning(kind: str, message: str, loc: Loc | None = None, **facts: Any) -> Diagnostic:
    """Build a finding that does not stop the compiler."""
    return Diagnostic(kind, message, loc, severity=Severity.WARNING, **facts)


def errors_of(findings: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The findings that stop the compiler."""
    return [d for d in findings if d.severity is Severity.ERROR]


def raise_if_any(findings: Sequence[Diagnostic]) -> None:
    """Raise one exception with all errors among `findings`; its class is that of the first."""
    bad = errors_of(findings)
    if bad:
        raise _CLASS_OF_KIND.get(bad[0].kind, TileValueError)(*bad)


@dataclass
class Findings:
    """Collects diagnostics and drops repeats (one per kind, message and location)."""

    items: list[Diagnostic] = field(default_factory=list[Diagnostic])
    _seen: set[tuple[str, str, Loc | None]] = field(
        default_factory=set[tuple[str, str, Loc | None]]
    )

    def add(self, diagnostic: Diagnostic) -> None:
        """Keep `diagnostic` unless the same finding is there already."""
        key = (diagnostic.kind, diagnostic.message, diagnostic.loc)
        if key not in self._seen:
            self._seen.add(key)
            self.items.append(diagnostic)
