"""The README and the pages of docs/: every snippet runs, and prints what the page says.

A block of Python runs after the blocks before it on its page. A block `text` right after it is
what it prints, and the message it ends with if it is refused. A block `console` holds commands,
each after `$`, with their output; the last block of Python is the file kernel.py there. A line
`...` in an output stands for any number of lines.
"""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tilelang.cli import main
from tilelang.errors import KINDS, TileError

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block, with its language and its line in the page."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(found[1], found[2], text.count("\n", 0, found.start()) + 2)
        for found in FENCE.finditer(text)
    ]


def pairs(page: Path) -> Iterator[tuple[Block, Block | None]]:
    """Each block, with the `text` block that follows it directly."""
    text, found = page.read_text(), list(FENCE.finditer(page.read_text()))
    all_blocks = blocks(page)
    for n, block in enumerate(all_blocks):
        follows = n + 1 < len(found) and not text[found[n].end() : found[n + 1].start()].strip()
        output = all_blocks[n + 1] if follows and all_blocks[n + 1].language == "text" else None
        yield block, output


def comparable(text: str) -> list[str]:
    """Lines without what differs from run to run and from machine to machine: times, folders, how
    far sums in two orders are apart.
    """
    text = re.sub(r"\b\d+(\.\d+)? ms\b", "<time>", text)
    text = re.sub(r"(?<=largest error )\S+", "<small>", text)
    text = re.sub(r"/\S*/(?=kernel\.py)", "", text)
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def compare(got: str, said: str, where: str) -> None:
    """Fail unless `got` is what the page says; `...` stands for any lines."""
    have = comparable(got)
    parts = [
        part.strip("\n") for part in re.split(r"^\.\.\.$", said.strip("\n"), flags=re.MULTILINE)
    ]
    pattern = r"(?:.*\n)*?".join(
        "".join(re.escape(line) + "\n" for line in comparable(part)) for part in parts
    )
    if re.fullmatch(pattern, "".join(line + "\n" for line in have)) is None:
        pytest.fail(f"{where} says\n{said}\nand this is\n{got}", pytrace=False)


def run_python(block: Block, scope: dict[str, object], file: Path) -> str:
    """What a block prints, and the message with which it is refused, if it is."""
    file.write_text(block.text)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(block.text, str(file), "exec"), scope)
        except TileError as exc:
            print(exc)
            scope["refused"] = True
        else:
            scope["refused"] = False
    return out.getvalue()


def run_console(block: Block, page: Path) -> None:
    """Carry out the commands of a block and compare their outputs."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, said = part.partition("\n")
        compare(run_command(command), said, f"{page.name}:{block.line}, `{command}`,")


def run_command(command: str) -> str:
    words = shlex.split(command, comments=True)
    if words[0] == "tilewright":
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            main(words[1:])
        return out.getvalue()
    if words == ["make", "demo"]:
        return "".join(demo_commands())
    assert words[0] == "python", f"the test does not know the command `{command}`"
    return run_program(*words[1:])


def demo_commands() -> Iterator[str]:
    """What `make demo` prints, once the environment is there: each command, and its output."""
    recipe = (ROOT / "Makefile").read_text().partition("\ndemo:")[2].partition("\n\n")[0]
    for line in recipe.splitlines()[1:]:
        program = line.split()[-1]
        yield f".venv/bin/python {program}\n"
        yield run_program(str(ROOT / program), cwd=ROOT)


def run_program(*words: str, cwd: Path | None = None) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, *words], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_snippet_runs_and_prints_what_the_page_says(page, tmp_path, monkeypatch):
    scope: dict[str, object] = {"__name__": "page"}
    for n, (block, output) in enumerate(pairs(page)):
        if block.language == "python":
            # Messages show the file kernel.py, and commands that follow find it.
            folder = tmp_path / str(n)
            folder.mkdir()
            (folder / "examples").symlink_to(ROOT / "examples")
            monkeypatch.chdir(folder)
            got = run_python(block, scope, folder / "kernel.py")
            where = f"{page.name}:{block.line}"
            if output is None:
                assert not scope["refused"], f"{where} is refused:\n{got}"
                assert not got, f"{where} prints, and the page does not show it:\n{got}"
            else:
                compare(got, output.text, where)
        elif block.language == "console":
            run_console(block, page)
        else:
            assert block.language in ("text", "sh"), (
                f"{page.name}:{block.line}: a block without use"
            )


def test_the_page_about_errors_lists_every_kind():
    section = (ROOT / "docs" / "errors.md").read_text().partition("## Kinds")[2].partition("##")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", section, re.MULTILINE)
    assert dict(rows) == KINDS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
