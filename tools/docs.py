"""Write the pages of docs/ that come from tables in the source: `docs.py [--check]`.

What enters: the tables of the checkout this file is in. What leaves: the pages; with `--check`,
nothing is written and the exit code is 1 if a page differs from what would be.
"""

import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))  # this checkout, whatever is installed

# The path comes first.
from docs_ascend import machine_page  # noqa: E402

from tilelang.compat.modules import REAL, REFUSED_NAMES  # noqa: E402
from tilelang.ir.node import Effect as Access  # noqa: E402
from tilelang.isa.instr import InstrRow, Is, OperandRow  # noqa: E402
from tilelang.language.adapter_repeats import namespace as tile  # noqa: E402
from tilelang.language.later import LATER, NAMESPACES  # noqa: E402
from tilelang.options import ROWS, Effect, Row  # noqa: E402
from tilelang.targets.cuda import rows as cuda  # noqa: E402

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
        " wins over a variable, and a variable over the default;\n`tilelang.env` has them as"
        " attributes. An unknown key, an unknown variable that starts with `TILEWRIGHT_`,\nand an"
        " illegal value are errors.\n\n"
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
    found = {"tile": tile, **NAMESPACES}
    spaces = [(code(f"T.{n}"), ", ".join(map(code, s.refused()))) for n, s in found.items()]
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


# Of a family, one line: `{n}` is any of these in the name and in the number of elements.
_FAMILIES = (
    (re.compile(r"(?<=m64n)\d+(?=k)"), "{n}"),
    (re.compile(r"(?<=tensor\.)\d(?=d\b)"), "{r}"),
    (re.compile(r"(?<=tcgen05\.[ls][dt]\.\d\dx\d\db\.x)\d+"), "{n}"),
    (re.compile(r"(?<=tcgen05\.[ls][dt]\.\d\dx\d\d\db\.x)\d+"), "{n}"),
)


def family(name: str) -> str:
    """The name with what differs within its family replaced."""
    for pattern, letter in _FAMILIES:
        name = pattern.sub(letter, name)
    return name


def operand(o: OperandRow) -> str:
    """One operand: its name, what is done to it, where it is, how much of it."""
    words = [
        "".join(c for f, c in zip((Access.READ, Access.WRITE), "RW", strict=True) if o.effect & f)
    ]
    words += [f.name.lower() for f in (Access.ASYNC, Access.ATOMIC) if o.effect & f and f.name]
    words += ["/".join(s.value for s in o.spaces)] if o.spaces else []
    words += [o.kind.value] if o.kind is not Is.SLOT else []
    words += [f"x{o.count}"] if o.count is not None else []
    words += [f"{o.bits} bits"] if o.bits is not None else []
    words += [f"align {o.align}"] if o.align else []
    words += [f"of {'/'.join(o.dtypes)}"] if o.dtypes else []
    words += [f"like {o.like}"] if o.like else []
    return f"{code(o.name)} ({' '.join(words)})"


def instruction(members: list[InstrRow]) -> tuple[str, ...]:
    """One line of docs/instructions.md: a row, or the family it is of."""
    row = members[0]
    name = family(row.name)
    counts = [m.name for m in members]
    ns = [found.group() for c in counts for p, _ in _FAMILIES if (found := p.search(c))]
    many = f" for {', '.join(ns)}" if len(ns) > 1 else ""
    outs = "; ".join(operand(o) for o in row.outs)
    ins = "; ".join(operand(o) for o in row.ins)
    if len(ns) > 1 and "{n}" in name:
        outs = outs.replace(f"x{int(ns[0]) // 2} ", "x{n}/2 ")
        outs, ins = (re.sub(r"(\d+) bits", r"{n} x \1 bits", text) for text in (outs, ins))
    immediates = [
        code(i.name)
        + f": {', '.join(map(str, i.choices)) if 0 < len(i.choices) < 9 else i.type.__name__}"
        + (" (optional)" if i.optional else "")
        for i in row.imm
    ]
    return (
        code(name) + many,
        outs,
        ins,
        "; ".join(operand(o) for o in row.results),
        "; ".join(immediates),
        {0: "block", 1: "thread", 32: "warp", 128: "warpgroup"}[row.threads],
        ", ".join(map(code, row.until)) + (" blocks" if row.waits else ""),
        row.capability.name if row.capability else "",
        row.source.removeprefix("PTX ISA 9.0, "),
    )


def instructions_page() -> str:
    """docs/instructions.md."""
    groups: dict[str, dict[str, list[InstrRow]]] = {}
    for name in cuda.ROWS:
        row = cuda.ROWS[name]
        first = name.split(".")[0]
        kind = next((k for k, names in _KINDS.items() if first in names), "Others")
        groups.setdefault(kind, {}).setdefault(family(name), []).append(row)
    head = ("row", "outs", "ins", "results", "immediates", "who", "until", "needs", "source")
    return (
        "# Instructions of NVIDIA GPUs\n\n"
        + NOTE.format(source="src/tilelang/targets/cuda/rows")
        + "\nA row is what an `Instr` of the thread stage names. Operands are in the order of the"
        " statement; R, W are what is done to them.\nAn `async` operand is in use until one of the"
        " rows under *until*; a row that `blocks` may make its threads wait.\n*source* is a section"
        " of the PTX ISA 9.0 unless it is a path.\n"
        + "".join(
            f"\n## {kind}\n\n" + table(head, (instruction(m) for m in groups[kind].values()))
            for kind in [*_KINDS, "Others"]
            if kind in groups
        )
    )


_KINDS: dict[str, tuple[str, ...]] = {
    "For any target": ("atomic", "update", "gemm", "print"),
    "Barriers, fences, control": (
        "mbarrier",
        "barrier",
        "bar",
        "fence",
        "grid",
        "setmaxnreg",
        "griddepcontrol",
        "nanosleep",
        "elect",
        "cluster",
    ),
    "Copies": ("cp", "ld", "st", "prefetch"),
    "Warps": ("shfl", "vote", "activemask", "match", "redux"),
    "Matrix products": ("mma", "ldmatrix", "stmatrix"),
    "Matrix products of a warpgroup": ("wgmma",),
    "Tensor Memory": ("tcgen05",),
}


def ascend_page() -> str:
    """docs/ascend-machine.md."""
    return machine_page(table, NOTE.format(source="src/tilelang/targets/ascend"), operand)


PAGES: dict[str, Callable[[], str]] = {
    "docs/ascend-machine.md": ascend_page,
    "docs/declared.md": declared_page,
    "docs/instructions.md": instructions_page,
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
