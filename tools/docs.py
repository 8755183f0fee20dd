"""Write the pages of docs/ that come from tables in the source: `docs.py [--check]`.

What enters: the tables of the checkout this file is in. What leaves: the pages; with `--check`,
nothing is written and the exit code is 1 if a page differs from what would be.
"""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))  # this checkout, whatever is installed

# The path comes first.
from tilelang.compat.modules import REAL, REFUSED_NAMES  # noqa: E402
from tilelang.language.later import LATER, NAMESPACES  # noqa: E402
from tilelang.options import ROWS, Effect, Row  # noqa: E402

NOTE = "<!-- Written by `make docs` from {source}; edit that. -->\n"


def table(head: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    names = list(head)
    rows = [[cell.replace("|", "\\|") for cell in row] for row in body]
    lines = [names, ["---"] * len(names), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def code(text: object) -> str:
    """Text in backticks, nothing for nothing."""
    return f"`{text}`" if text not in (None, "") else ""


def names_of(row: Row) -> str:
    """How an author sets it: the key, the variable, or both."""
    return ", ".join(code(name) for name in (row.key and row.key.value, row.env) if name)


def options_page() -> str:
    """docs/options.md."""
    used = [row for row in ROWS if row.effect is not Effect.NONE]
    unused = [row for row in ROWS if row.effect is Effect.NONE]
    return (
        "# Options\n\n"
        + NOTE.format(source="src/tilelang/options.py")
        + "\nA key goes into `pass_configs` of `tilelang.jit` or `tilelang.compile`, as a member of"
        " `PassConfigKey` or as its string.\nA name in capitals is an environment variable. A key"
        " wins over a variable, and a variable over the default.\nAn unknown key, an unknown"
        " variable that starts with `TILEWRIGHT_`, and an illegal value are errors.\n\n"
        "Only a setting that says so may change results; the others change how fast a kernel is,"
        " or what is reported.\nA setting that the part of the compiler named beside it does not"
        " read yet, or that the target at hand has no use for,\nis reported when it is given.\n\n"
        + table(
            ("setting", "field", "value", "default", "changes", "read by", "meaning"),
            (
                (
                    names_of(row),
                    code(row.name),
                    row.kind.expected,
                    code(row.default),
                    f"**{row.effect.value}**" if row.changes_results else row.effect.value,
                    row.part.value if row.part else "",
                    row.doc,
                )
                for row in used
            ),
        )
        + "\n## Accepted, checked and reported: no effect here\n\n"
        + table(
            ("setting", "value", "why it has no effect"),
            ((names_of(row), row.kind.expected, row.doc) for row in unused),
        )
    )


def declared_page() -> str:
    """docs/declared.md."""
    reasons = list(dict.fromkeys(row.reason for row in LATER.values()))
    listed = {r: [code(f"T.{n}") for n, row in LATER.items() if row.reason == r] for r in reasons}
    spaces = [(code(f"T.{n}"), ", ".join(map(code, dir(s)))) for n, s in NAMESPACES.items()]
    modules = sorted({*REAL, *REFUSED_NAMES})
    return (
        "# Names that are declared and not built\n\n"
        + NOTE.format(source="src/tilelang/language/later.py and compat/modules.py")
        + "\nThese names exist, so that a program that mentions them loads. Calling one is an error"
        " at its line that says what it waits for.\n"
        + "".join(
            f"\n## {reason[0].upper()}{reason[1:]}\n\n{', '.join(names)}\n"
            for reason, names in listed.items()
        )
        + "\n## Namespaces of the Ascend dialects, which need the Ascend target\n\n"
        + table(("namespace", "names"), spaces)
        + "\n## Modules\n\n"
        + table(
            ("module", "here", "refused when it is used"),
            (
                (
                    code(m),
                    ", ".join(map(code, REAL.get(m, {}))),
                    ", ".join(map(code, REFUSED_NAMES.get(m, []))),
                )
                for m in modules
            ),
        )
    )


PAGES: dict[str, Callable[[], str]] = {
    "docs/declared.md": declared_page,
    "docs/options.md": options_page,
}


def main(check: bool) -> int:
    """Write or check every page; the exit code."""
    stale = 0
    for path, page in PAGES.items():
        file, text = ROOT / path, page()
        if file.exists() and file.read_text() == text:
            continue
        if check:
            print(f"{path} is not what its table says: run `make docs`")
            stale = 1
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            print(f"wrote {path}")
    return stale


if __name__ == "__main__":
    sys.exit(main(check="--check" in sys.argv[1:]))
