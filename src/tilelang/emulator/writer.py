"""The text of a generated program while it grows.

What enters: lines of Python, nested blocks, and objects that the text refers to by name. What
leaves: the source, the namespace it is executed in, and the author's location of each of its lines.
"""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from tilelang.errors import Loc, display_path

_INDENT = "    "


class Writer:
    """Collects lines at a current depth; `loc` is the author's place of the next lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.locs: list[Loc | None] = []
        self.namespace: dict[str, Any] = {}
        self.loc: Loc | None = None
        self._depth = 0
        self._names: dict[str, int] = {}
        self._constants: dict[tuple[str, Any], str] = {}
        self._author: dict[str, str] = {}
        self._shown: tuple[str, int] | None = None

    def line(self, text: str) -> None:
        """Append one line at the current depth."""
        self._note_loc()
        self.lines.append(_INDENT * self._depth + text)
        self.locs.append(self.loc)

    def _note_loc(self) -> None:
        """A comment with the author's file and line, whenever it changes."""
        if self.loc is None or (self.loc.file, self.loc.line) == self._shown:
            return
        self._shown = (self.loc.file, self.loc.line)
        self.lines.append(f"{_INDENT * self._depth}# {display_path(self.loc.file)}:{self.loc.line}")
        self.locs.append(self.loc)

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        """Lines written inside belong to `head`, which is `if ...:` or the like."""
        self.line(head)
        before = len(self.lines)
        self._depth += 1
        try:
            yield
        finally:
            if not any(text.lstrip()[:1] != "#" for text in self.lines[before:]):
                self.line("pass")
            self._depth -= 1

    def fresh(self, prefix: str) -> str:
        """A name that no other part of the text uses: `_`, the prefix and a number."""
        n = self._names.get(prefix, 0) + 1
        self._names[prefix] = n
        return f"_{prefix}{n}"

    def name(self, author: str) -> str:
        """The name that stands for the author's variable or buffer; the same as his where Python
        allows it.
        """
        known = self._author.get(author)
        if known is None:
            taken = (
                keyword.iskeyword(author) or hasattr(builtins, author) or author in self.namespace
            )
            known = f"{author}_" if taken or author.startswith("_") else author
            self._author[author] = known
        return known

    def define(self, **values: Any) -> None:
        """Make objects known to the text by these names."""
        self.namespace.update(values)

    def constant(self, prefix: str, value: Any, key: Any = None) -> str:
        """A name for an object of the compiler; objects with an equal `key` share a name."""
        if key is not None and (prefix, key) in self._constants:
            return self._constants[prefix, key]
        name = self.fresh(prefix)
        self.namespace[name] = value
        if key is not None:
            self._constants[prefix, key] = name
        return name

    @property
    def source(self) -> str:
        """The whole text."""
        return "\n".join(self.lines) + "\n"
