"""The report of one compilation: what each step took and made, and what was declined.

What enters: the settings, and what the driver tells as it goes: the IR after each pass, each step's
begin and end, texts that were generated. What leaves, where a setting asks for it: one folder with
the IR of each stage, the generated texts, `timings.txt` and `decisions.txt`; the same in words on
standard error; the generated source alone. Timings cost microseconds and are always taken; texts
are made only for whoever reads them.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tilelang.errors import InternalError, display_path, error
from tilelang.ir.node import Node
from tilelang.ir.text import print_function, print_program
from tilelang.ir.thread import Program
from tilelang.ir.tile import Function
from tilelang.options import Options

TIMINGS, IR = 1, 2
"""The levels of the setting `trace`."""


@dataclass(frozen=True)
class Declined:
    """An optimisation that was possible in principle, and why it was not made.

    `place` is `file:line` in the author's file, empty where there is none.
    """

    reason: str
    place: str = ""

    def __str__(self) -> str:
        return f"{shown_place(self.place)}: {self.reason}" if self.place else self.reason


@dataclass
class Decisions:
    """What the passes decided: what they declined, and in words what they chose."""

    declined: list[Declined] = field(default_factory=list[Declined])
    notes: list[str] = field(default_factory=list[str])

    def hear(self, program: Program) -> None:
        """What the passes left in a program for the report: kind, sentence and place of each."""
        for kind, text, place in dict(program.attrs).get("notes", ()):
            if kind == "declined":
                made = Declined(text, place)
                if made not in self.declined:
                    self.declined.append(made)
            else:
                line = f"{kind}: {text}" + (f" ({shown_place(place)})" if place else "")
                if line not in self.notes:
                    self.notes.append(line)

    def lines(self) -> list[str]:
        """All of it in words."""
        found = [*self.notes, *(f"declined: {each}" for each in self.declined)]
        return found or ["no optimisation was declined"]


@dataclass
class Step:
    """A part of the compiler's work on one kernel."""

    name: str
    ms: float
    is_pass: bool = False


@dataclass
class Trace:
    """One compilation. `name` is the kernel's; `outcome` says in words how it came about.

    `decisions` is None where they were made for an equal kernel and are told with that one.
    """

    name: str
    options: Options
    steps: list[Step] = field(default_factory=list[Step])
    decisions: Decisions | None = field(default_factory=Decisions)
    outcome: str = "compiled"

    def __post_init__(self) -> None:
        options = self.options
        self._begun = self._mark = time.perf_counter()
        self._shown = ""
        self._count = itertools.count()
        self._full = _folder(options.trace_dir, self.name) if options.trace_dir else None
        self._dump = _folder(options.dump_ir_path, self.name) if options.enable_dump_ir else None
        if options.print_on_compilation:
            _log(f"{self.name}: compilation begins")

    @property
    def is_asked(self) -> bool:
        """Whether somebody reads what the steps make, so that they have to be carried out."""
        options = self.options
        return bool(self._full or self._dump or options.trace or options.pass_profile)

    @property
    def folder(self) -> Path | None:
        """Where the texts of this compilation are kept, None where they are not."""
        return self._full

    # What the driver tells -----------------------------------------------------------------------

    def begin(self, fn: Function) -> None:
        """The function as traced."""
        self._record("tile", fn)

    def stage(self, name: str, node: Node) -> None:
        """What a pass has made. Its time is that since the last stage or step."""
        self.steps.append(Step(name, (time.perf_counter() - self._mark) * 1e3, is_pass=True))
        self._record(name, node)
        if isinstance(node, Program) and self.decisions is not None:
            self.decisions.hear(node)
        self._mark = time.perf_counter()

    @contextlib.contextmanager
    def step(self, name: str) -> Generator[None, None, None]:
        """A step that is no pass, timed."""
        begun = time.perf_counter()
        yield
        self._mark = time.perf_counter()
        self.steps.append(Step(name, (self._mark - begun) * 1e3))

    def text(self, file: str, text: str) -> None:
        """A generated text, kept under the name `file`."""
        if self._full is not None:
            _write(self._full / file, text)

    def source(self, suffix: str, text: str) -> None:
        """The source that runs, for the setting `kernels_output_dir`; one file for each text."""
        folder = self.options.kernels_output_dir
        if folder is not None:
            mark = hashlib.sha256(text.encode()).hexdigest()[:8]
            _make(folder)
            _write(folder / f"{_file_name(self.name)}-{mark}{suffix}", text)

    def end(self, target: str) -> None:
        """All is done for `target`. Writes and prints the rest."""
        total = (time.perf_counter() - self._begun) * 1e3
        decided = [] if self.decisions is None else self.decisions.lines()
        if self._full is not None:
            _write(self._full / "timings.txt", "\n".join(timings(self.steps)) + "\n")
            _write(self._full / "decisions.txt", "\n".join(decided) + "\n")
        options = self.options
        said = f"{self.name} for {target}: {self.outcome} in {total:.1f} ms"
        if options.print_on_compilation:
            _log(said)
        if options.verbose or options.trace:
            _say(said)
            where = self._full or self._dump
            lines = [*decided, *([] if where is None else [f"trace in {where}"])]
            _say(*(f"  {line}" for line in lines))
        if options.trace >= TIMINGS:
            _say(*(f"  {line}" for line in timings(self.steps)))
        if options.pass_profile:
            least = options.pass_profile_threshold_ms
            passes = [step for step in self.steps if step.is_pass and step.ms >= least]
            _say(f"passes of {self.name}:", *(f"  {line}" for line in timings(passes)))

    # What becomes of it --------------------------------------------------------------------------

    def _record(self, name: str, node: Node) -> None:
        number = next(self._count)
        level = self.options.trace >= IR
        if not (self._full or self._dump or level):
            return
        text = text_of(node)
        for folder in (self._full, self._dump):
            if folder is not None:
                _write(folder / f"{number:02d}-{name}.py", text)
        if level and text != self._shown:
            _say(f"---- {self.name} after {name}" if number else f"---- {self.name}", text)
        self._shown = text


def text_of(node: Node) -> str:
    """The text of a function or program."""
    match node:
        case Function():
            return print_function(node)
        case Program():
            return print_program(node)
        case _:
            raise InternalError(f"a pass made a {type(node).__name__}")


def timings(steps: Sequence[Step]) -> list[str]:
    """A table of steps in milliseconds, with their sum."""
    rows = [*steps, Step("sum", sum(step.ms for step in steps))]
    width = max(len(step.name) for step in rows)
    return [f"{step.name:<{width}}  {step.ms:9.3f} ms" for step in rows]


def shown_place(place: str) -> str:
    """`file:line` as messages have it."""
    file, _, line = place.rpartition(":")
    return f"{display_path(file)}:{line}" if file else place


# ---- Files ---------------------------------------------------------------------------------------


def _folder(below: Path, name: str) -> Path:
    """A new folder for one compilation, numbered in the order in which they begin."""
    _make(below)
    taken = [int(found.group()) for p in below.iterdir() if (found := re.match(r"\d+", p.name))]
    for number in itertools.count(max(taken, default=0) + 1):
        made = below / f"{number:04d}-{_file_name(name)}"
        try:
            made.mkdir()
        except FileExistsError:  # another process has this number
            continue
        return made
    raise InternalError("there is no number left")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise _unwritable(folder, exc) from None


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as exc:
        raise _unwritable(path, exc) from None


def _unwritable(path: Path, exc: OSError) -> Exception:
    return error(
        "option",
        f"the compile trace cannot be written to {path}",
        expected="a folder that can be written",
        got=exc.strerror or str(exc),
        help="name another one in TILEWRIGHT_TRACE_DIR, `tl.dump_ir_path` or "
        "`cuda.kernels_output_dir`",
    )


def _file_name(kernel: str) -> str:
    return re.sub(r"\W", "_", kernel)


def _say(*lines: str) -> None:
    if lines:
        print(*lines, sep="\n", file=sys.stderr)


def _log(message: str) -> None:
    """To the logger `tilelang`. A program that has not imported `logging` does not listen to it,
    and that import is worth some milliseconds.
    """
    logging = sys.modules.get("logging")
    if logging is not None:
        logging.getLogger("tilelang").info(message)
