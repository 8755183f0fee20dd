"""`tilewright port`: a program of one Ascend dialect, respelled in the other.

What enters: the text of a file, and the dialect to write it in. What leaves: the text with
allocations, launches, copies, products and flags respelled, everything else byte for byte as it
was, and a list of what has no counterpart there. Names that only look like the dialect's (strings,
comments, other modules) are left alone; the program is parsed, never run.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tilelang.cli.kernels import UsageError
from tilelang.scopes import Dialect, Memory, counterpart, rows

_MODULES = {"mainline": Dialect.ASCEND, "adapter": Dialect.ADAPTER}
_TARGETS: Mapping[str, str] = {name: d.about.module for name, d in _MODULES.items()}


@dataclass(frozen=True)
class Note:
    """What the author has to look at: a line of the input, and why."""

    line: int
    text: str


@dataclass
class Ported:
    """The new text and the notes, in the order of the lines."""

    text: str
    notes: list[Note]


def port(file: Path, to: str, out: Path | None) -> int:
    """Write the ported program to `out` (or standard output), and the notes to standard error.

    0, or 1 if there are notes: something has no counterpart, or has to be looked at.
    """
    source, encoding = _read(file)
    done = ported(source, to, str(file))
    written = done.text.encode(encoding)
    if out is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(written)
        sys.stdout.buffer.flush()
    else:
        out.write_bytes(written)
    for note in done.notes:
        print(f"note: {file}:{note.line}: {note.text}", file=sys.stderr)
    return 1 if done.notes else 0


def _read(file: Path) -> tuple[str, str]:
    """The text of a file, its line ends as they are, and its encoding by the rules of Python."""
    try:
        raw = file.read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        return raw.decode(encoding), encoding
    except OSError as exc:
        raise UsageError(f"{file} cannot be read: {exc.strerror}") from None
    except (SyntaxError, UnicodeDecodeError) as exc:
        raise UsageError(f"{file} cannot be read: {exc}") from None


def ported(source: str, to: str, name: str = "<source>") -> Ported:
    """`source` in the dialect `to`, which is mainline or adapter."""
    try:
        tree = ast.parse(source, name)
    except (SyntaxError, ValueError) as exc:  # ValueError: bytes of zero, in some Pythons
        line = (exc.lineno if isinstance(exc, SyntaxError) else None) or 1
        why = exc.msg if isinstance(exc, SyntaxError) else exc
        raise UsageError(f"{name}:{line}: this is not Python: {why}") from None
    work = _Work(source.encode(), tree, to)
    work.run()
    return Ported(work.written(), sorted(work.notes, key=lambda n: n.line))


@dataclass
class _Work:
    """One file being ported: its edits, as (start, end, text) of bytes, and its notes."""

    source: bytes
    tree: ast.Module
    to: str
    edits: list[tuple[int, int, str]] = field(default_factory=list[tuple[int, int, str]])
    notes: list[Note] = field(default_factory=list[Note])
    homes: dict[tuple[int, str], str] = field(default_factory=dict[tuple[int, str], str])
    inside: dict[int, ast.AST] = field(default_factory=dict[int, ast.AST])
    """The function that a node stands in, or the file."""
    packages: dict[str, str] = field(default_factory=dict[str, str])
    """The names of the whole package, and the path from there to the other dialect's module."""
    packed: dict[str, ast.ImportFrom] = field(default_factory=dict[str, ast.ImportFrom])
    """The aliases that come out of a package: `from tilelang import language as T`."""

    def __post_init__(self) -> None:
        self._lines = [0]
        for line in self.source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self.rules = _TO_ADAPTER if self.to == "adapter" else _TO_MAINLINE
        self.aliases = self._imports()

    # Places ---------------------------------------------------------------------------------------

    def start(self, node: ast.AST) -> int:
        """The first byte of a node."""
        return self._lines[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]

    def end(self, node: ast.AST) -> int:
        """The byte after a node."""
        return self._lines[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def text(self, node: ast.AST) -> str:
        """The source of a node."""
        return self.source[self.start(node) : self.end(node)].decode()

    def replace(self, node: ast.AST, text: str) -> None:
        """Put `text` in the place of a node."""
        self.edits.append((self.start(node), self.end(node), text))

    def note(self, node: ast.AST, text: str) -> None:
        """Say that the author has to look here."""
        self.notes.append(Note(node.lineno, text))  # type: ignore[attr-defined]

    # The file -------------------------------------------------------------------------------------

    def _imports(self) -> dict[str, ast.alias]:
        """The names by which the file imports the other dialect's module, and where."""
        other = next(module for name, module in _TARGETS.items() if name != self.to)
        found: dict[str, ast.alias] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for each in node.names:
                    if each.name == other and each.asname is not None:
                        found[each.asname] = each
                    elif each.name == "tilelang" or (
                        each.name.startswith("tilelang.") and each.asname is None
                    ):
                        self.packages[each.asname or "tilelang"] = other.partition(".")[2]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                package, _, last = other.rpartition(".")
                whole = [each for each in node.names if each.name == last]
                if node.module == package and whole and node.lineno == node.end_lineno:
                    found[whole[0].asname or last] = whole[0]
                    self.packed[whole[0].asname or last] = node
                elif (node.module == package and whole) or node.module == other:
                    why = f"names imported from {node.module} are not ported"
                    self.note(node, f"{why}: `import {other} as T`")
        return found

    def calls(self) -> Iterator[tuple[ast.Call, str, str]]:
        """Every call of a name of an alias, with the alias and the dotted name."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                alias, name = _dotted(node.func)
                if alias in self.aliases:
                    yield node, alias, name

    def run(self) -> None:
        """Make the edits."""
        used = {alias for _, alias, name in self.calls() if self.marks(name)}
        used |= {a for node, a, n in self.calls() if n == "Kernel" and _keyword(node, "is_npu")}
        if self.to == "adapter":
            used = set(self.aliases)
        if not used:
            own = next(d for name, d in _MODULES.items() if name != self.to).about
            self.notes.append(Note(1, f"the file has no kernel of the {own.title}"))
        self.aliases = {name: at for name, at in self.aliases.items() if name in used}
        for name, at in self.aliases.items():
            if name in self.packed:
                self._module_of_package(self.packed[name], at)
            else:
                self.edits.append(self._module(at))
        self._find_homes()
        launches = {id(item.context_expr): (node, item) for node, item in self._withs()}
        for node, alias, name in self.calls():
            rule = self.rules.get(name, _lacking(self.to, name))
            if rule is not None:
                rule(self, _Use(node, alias, name, launches.get(id(node))))
        self._list_what_is_reached_otherwise()
        if self.to == "adapter":
            self._list_narrow_floats()
        else:
            self._list_settings()

    def _list_settings(self) -> None:
        """A note for what the adapter's programs tell the compiler and mainline's do not."""
        for node in ast.walk(self.tree):
            package, name = _dotted(node.func) if isinstance(node, ast.Call) else ("", "")
            if package not in self.packages or name not in ("jit", "compile"):
                continue
            for k in node.keywords if isinstance(node, ast.Call) else ():
                if k.arg in ("workspace_idx", "platform"):
                    self.note(k, f"{k.arg}= of {package}.{name} has no counterpart")
                elif k.arg == "target" and _word(k.value) in ("ascendc", "pto"):
                    self.note(k, f"target={_word(k.value)!r} is the adapter's: write 'ascend'")

    def _list_narrow_floats(self) -> None:
        """A note for every name of a float that only the 950 multiplies."""
        for node in ast.walk(self.tree):
            word = _word(node) if isinstance(node, ast.Constant) else None
            if word is not None and word.startswith(("float8_", "float4_", "mxfp")):
                self.note(node, f"{word!r}: the adapter's chips have no products of it")

    def _list_what_is_reached_otherwise(self) -> None:
        """A note for names of the dialect that are not called, or not by an alias of its module."""
        called = {id(node.func) for node in ast.walk(self.tree) if isinstance(node, ast.Call)}
        for node in ast.walk(self.tree):
            alias, name = _dotted(node) if isinstance(node, ast.Attribute) else ("", "")
            path = f"{self.packages[alias]}." if alias in self.packages else None
            if path is not None and name.startswith(path) and self._differs(name[len(path) :]):
                self.note(node, f"{alias}.{name} is not ported: import the module as T")
            elif alias in self.aliases and id(node) not in called and self._differs(name):
                self.note(node, f"{alias}.{name} is not called here, and is not ported")

    def _differs(self, name: str) -> bool:
        return name in self.rules or _lacking(self.to, name) is not None

    def _module(self, at: ast.alias) -> tuple[int, int, str]:
        first = self.start(at)
        return first, first + len(at.name.encode()), _TARGETS[self.to]

    def _module_of_package(self, node: ast.ImportFrom, at: ast.alias) -> None:
        """The same of a name out of a package; what else comes from there stays."""
        package = _TARGETS[self.to].rpartition(".")[0]
        others = [self.text(each) for each in node.names if each is not at]
        kept = f"from {node.module} import {', '.join(others)}; " if others else ""
        self.replace(node, f"{kept}from {package} import {self.text(at)}")

    def marks(self, name: str) -> bool:
        """Whether a name of the common module says that a program is the adapter's."""
        own = {row.function for row in rows(Dialect.ADAPTER)} - {
            row.function for row in rows(Dialect.COMMON)
        }
        return name in own or name.startswith("tile.") or name in ("Scope", "gemm_v0", "mma")

    def _withs(self) -> Iterator[tuple[ast.With, ast.withitem]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.With):
                for item in node.items:
                    yield node, item

    def _find_homes(self) -> None:
        """Which function allocates each name of each function, as far as the text shows."""
        todo: list[tuple[ast.AST, ast.AST]] = [(self.tree, self.tree)]
        while todo:
            node, inside = todo.pop()
            self.inside[id(node)] = inside
            mine = node if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else inside
            todo += [(child, mine) for child in ast.iter_child_nodes(node)]
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                alias, name = _dotted(node.value.func)
                if alias in self.aliases and name.startswith("alloc_"):
                    for target in node.targets:
                        if isinstance(target, ast.Name):
                            self.homes[id(inside), target.id] = name

    def home(self, node: ast.expr) -> str:
        """The allocation function behind an operand, or ""."""
        while isinstance(node, ast.Subscript):
            node = node.value
        inside = self.inside.get(id(node)) if isinstance(node, ast.Name) else None
        while isinstance(node, ast.Name) and inside is not None:
            found = self.homes.get((id(inside), node.id))
            if found is not None or inside is self.tree:
                return found or ""
            inside = self.inside.get(id(inside))
        return ""

    def written(self) -> str:
        """The source with the edits made."""
        out, at = bytearray(), 0
        for first, last, text in sorted(self.edits):
            if first >= at:
                out += self.source[at:first] + text.encode()
                at = last
        return (out + self.source[at:]).decode()


@dataclass(frozen=True)
class _Use:
    """One call of a name of the dialect; `launch` is the `with` that it opens, if it does."""

    call: ast.Call
    alias: str
    name: str
    launch: tuple[ast.With, ast.withitem] | None


Rule = Callable[[_Work, _Use], None]


def _dotted(node: ast.expr) -> tuple[str, str]:
    """`T.tile.add` as ("T", "tile.add"); ("", "") for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return (node.id, ".".join(parts)) if isinstance(node, ast.Name) and parts else ("", "")


def _keyword(call: ast.Call, name: str) -> ast.keyword | None:
    return next((k for k in call.keywords if k.arg == name), None)


def _given(call: ast.Call, names: Sequence[str]) -> dict[str, ast.expr]:
    """The arguments by the names of the parameters."""
    found = dict(zip(names, call.args, strict=False))
    found.update({k.arg: k.value for k in call.keywords if k.arg is not None})
    return found


# Rules -------------------------------------------------------------------------------------------


def _rename(new: str, keywords: Mapping[str, str] | None = None) -> Rule:
    """Another name, and other names of keywords."""

    def rule(work: _Work, use: _Use) -> None:
        _respell(work, use, new)
        for k in use.call.keywords:
            if k.arg in (keywords or {}):
                first = work.start(k)
                work.edits.append((first, first + len(k.arg or ""), (keywords or {})[k.arg or ""]))

    return rule


def _respell(work: _Work, use: _Use, new: str) -> None:
    work.replace(use.call.func, f"{use.alias}.{new}")


def _call(work: _Work, use: _Use, new: str, arguments: Sequence[str]) -> None:
    """Another name and other arguments."""
    work.replace(use.call, f"{use.alias}.{new}({', '.join(arguments)})")


def _no(why: str) -> Rule:
    def rule(work: _Work, use: _Use) -> None:
        work.note(use.call, f"{use.alias}.{use.name} {why}")

    return rule


def _drop_keywords(work: _Work, use: _Use, names: Sequence[str], why: str) -> None:
    for k in use.call.keywords:
        if k.arg in names:
            work.note(k, f"{k.arg}= of {use.alias}.{use.name} {why}")


def _lacking(to: str, name: str) -> Rule | None:
    """What is said of a name without a rule: nothing, where both dialects have it."""
    if to == "adapter" and (name in _MAINLINE_ONLY or name.startswith("simd.")):
        return _no("has no counterpart in the adapter dialect")
    if to == "mainline" and name.startswith("tile."):
        return _no("has no counterpart: write it in T.SimdVF or T.SimtVF")
    if to == "mainline" and name in _ADAPTER_ONLY:
        return _no("has no counterpart in the mainline dialect")
    return None


_MAINLINE_ONLY = (
    "SimtVF", "SimdVF", "dual_copy", "alloc_l0a_sf", "alloc_l0b_sf", "gemm_blockscaled",
    "ascend_sync_inter_arrive", "ascend_sync_inter_wait", "ascend_get_buf", "ascend_rls_buf",
    "ascend_threadfence", "set_atomic", "set_atomic_none", "set_hf32_mode", "set_mmad_direction",
    "Task", "Stage", "PerCoreTask", "assume_conflict", "assume_no_conflict",
    "annotate_buffer_versions", "annotate_manual_multi_buffer", "annotate_unlimit_memory",
    "AscendTileScheduler", "AscendBatchedTileScheduler", "AscendMGroupedTileScheduler",
    "AscendKGroupedTileScheduler",
)  # fmt: skip
_ADAPTER_ONLY = (
    "annotate_address", "set_deq_scale", "reinterpretcast", "init_flag", "clear_flag", "sync_all",
    "printf", "dump_tensor",
)  # fmt: skip


def _unique(work: _Work, wanted: str) -> str:
    """A name that the file does not have."""
    taken = {n.id for n in ast.walk(work.tree) if isinstance(n, ast.Name)}
    return next(n for n in (wanted, *(f"{wanted}_{k}" for k in range(99))) if n not in taken)


def _kernel_to_adapter(work: _Work, use: _Use) -> None:
    call = use.call
    last = call.args[-1] if call.args else call
    work.edits.append((work.end(last), work.end(last), ", is_npu=True"))
    _drop_keywords(work, use, ("prelude",), "has no counterpart")
    names = use.launch[1].optional_vars if use.launch else None
    block = names.elts[0] if isinstance(names, ast.Tuple) and len(names.elts) == 1 else names
    if use.launch and names is None:
        pair = f"({_unique(work, 'cid')}, {_unique(work, 'vid')})"
        work.edits.append((work.end(call), work.end(call), f" as {pair}"))
    if names is not None and isinstance(block, ast.Name):
        work.replace(names, f"({block.id}, {_unique(work, 'vid')})")


def _mixed_to_adapter(work: _Work, use: _Use) -> None:
    sids = _keyword(use.call, "sids")
    value = sids.value if sids is not None else None
    if value is not None and not (isinstance(value, ast.Constant) and value.value == 2):
        work.note(use.call, "sids= of MixedKernel: the adapter always has two vector cores")
    arguments = [work.text(a) for a in use.call.args]
    _call(work, use, "Kernel", [*arguments, "is_npu=True"])


def _kernel_to_mainline(work: _Work, use: _Use) -> None:
    call, launch = use.call, use.launch
    marker = _keyword(call, "is_npu")
    if marker is None:
        work.note(call, "a launch with threads= leaves the split to the adapter's passes")
        return
    _drop_keywords(work, use, ("threads",), "leaves the split to the adapter's passes")
    arguments = [work.text(a) for a in call.args]
    arguments += [work.text(k) for k in call.keywords if k.arg not in ("is_npu", "threads")]
    names = launch[1].optional_vars if launch else None
    mixed = False
    if launch and isinstance(names, ast.Tuple) and len(names.elts) == 2:
        core = names.elts[1]
        used = {n.id for s in launch[0].body for n in ast.walk(s) if isinstance(n, ast.Name)}
        mixed = isinstance(core, ast.Name) and core.id in used
        if not mixed:
            work.replace(names, work.text(names.elts[0]))
    _call(work, use, "MixedKernel" if mixed else "Kernel", arguments)


def _region(core: str) -> Rule:
    def rule(work: _Work, use: _Use) -> None:
        if use.launch and use.launch[1].optional_vars is not None:
            work.note(use.call, "the number of the vector core: take it from T.Kernel")
        _call(work, use, "Scope", [f'"{core}"'])

    return rule


def _scope_to_mainline(work: _Work, use: _Use) -> None:
    word = use.call.args[0] if use.call.args else None
    known = {"C": "Cube", "V": "Vector"}
    new = known.get(word.value) if isinstance(word, ast.Constant) else None  # type: ignore[arg-type]
    if new is None:
        work.note(use.call, "T.Scope of something else than 'C' or 'V'")
        return
    _call(work, use, new, [])


_GEMM = ("A", "B", "C", "transpose_A", "transpose_B", "policy", "clear_accum", "unit_flag_ctrl")
_GEMM_V0 = ("A", "B", "C", "transpose_A", "transpose_B", "init")


def _gemm_to_adapter(work: _Work, use: _Use) -> None:
    given = _given(use.call, _GEMM)
    from_l0 = "A" in given and work.home(given["A"]) == "alloc_l0a"
    if len(use.call.args) > 5:
        work.note(use.call, "T.gemm with more than five arguments by position: name the rest")
        return
    _drop_keywords(work, use, ("policy", "unit_flag_ctrl", "annotations"), "has no counterpart")
    turned = [n for n in ("transpose_A", "transpose_B") if n in given]
    if from_l0 and turned:
        work.note(use.call, f"{', '.join(turned)} of T.gemm from L0A and L0B: turn the tile in"
                  " T.copy(..., transpose=True)")  # fmt: skip
    _rename("mma" if from_l0 else "gemm_v0", {"clear_accum": "init"})(work, use)


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _gemm_v0_to_mainline(work: _Work, use: _Use) -> None:
    given = _given(use.call, _GEMM_V0)
    a = given.get("transpose_A")
    if not _is_true(given.get("transpose_B")) or (a is not None and not _is_false(a)):
        work.note(
            use.call,
            "mainline's T.gemm from L1 reads B as (N, K): turn it in T.copy(..., transpose=True),"
            " or load L0A and L0B",
        )
    loose = [n for n in "ABC" if n in given and work.home(given[n]) in _BY_USE]
    if loose:
        names = " and ".join(work.text(given[n]) for n in loose)
        work.note(
            use.call, f"mainline's T.gemm wants {names} in L1 and L0C: see where they are made"
        )
    if len(use.call.args) > 5:
        arguments = [work.text(x) for x in use.call.args[:5]]
        _call(work, use, "gemm", [*arguments, f"clear_accum={work.text(use.call.args[5])}"])
        return
    _rename("gemm", {"init": "clear_accum"})(work, use)


_BY_USE = ("alloc_shared", "alloc_fragment")


def _is_false(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is False


def _mma_to_mainline(work: _Work, use: _Use) -> None:
    if len(use.call.args) > 3:
        arguments = [work.text(x) for x in use.call.args[:3]]
        _call(work, use, "gemm", [*arguments, f"clear_accum={work.text(use.call.args[3])}"])
        return
    _rename("gemm", {"init": "clear_accum"})(work, use)


def _copy(own: Sequence[str], why: str) -> Rule:
    def rule(work: _Work, use: _Use) -> None:
        _drop_keywords(work, use, own, why)

    return rule


def _word(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _event_to_adapter(new: str) -> Rule:
    def rule(work: _Work, use: _Use) -> None:
        given = _given(use.call, ("hard_event", "event_id"))
        word = _word(given["hard_event"]) if len(given) == 2 else None
        if word is None:
            work.note(use.call, f"{use.name} of an event that the text does not show")
            return
        pipes = [f'"{part.lower()}"' for part in word.split("_")]
        _call(work, use, new, [*pipes, work.text(given["event_id"])])

    return rule


def _event_to_mainline(new: str) -> Rule:
    def rule(work: _Work, use: _Use) -> None:
        given = _given(use.call, ("src", "dst", "eventId"))
        words = [_word(given[n]) for n in ("src", "dst")] if len(given) == 3 else [None]
        if None in words:
            work.note(use.call, f"{use.name} of pipes that the text does not show")
            return
        event = "_".join((w or "").upper() for w in words)
        _call(work, use, new, [f'"{event}"', work.text(given["eventId"])])

    return rule


def _barrier_to_adapter(work: _Work, use: _Use) -> None:
    word = _word(use.call.args[0]) if use.call.args else None
    if word == "PIPE_ALL":
        _call(work, use, "barrier_all", [])
    elif word is not None:
        _call(work, use, "pipe_barrier", [f'"{word.removeprefix("PIPE_").lower()}"'])
    else:
        work.note(use.call, f"{use.name} of a pipe that the text does not show")


def _barrier_to_mainline(work: _Work, use: _Use) -> None:
    word = _word(use.call.args[0]) if use.call.args else None
    if word is None:
        work.note(use.call, f"{use.name} of a pipe that the text does not show")
        return
    _call(work, use, "ascend_pipe_barrier", [f'"PIPE_{word.upper()}"'])


def _cross_to_adapter(work: _Work, use: _Use) -> None:
    given = _given(use.call, ("mode_id", "pipe", "flag_id"))
    word = _word(given["pipe"]) if len(given) == 3 else None
    if word is None:
        work.note(use.call, f"{use.name} of a pipe that the text does not show")
        return
    flag, mode = work.text(given["flag_id"]), work.text(given["mode_id"])
    if use.name == "ascend_cross_core_wait_flag":
        _call(work, use, "wait_cross_flag", [flag])
        return
    pipe = f'"{word.removeprefix("PIPE_").lower()}"'
    _call(work, use, "set_cross_flag", [pipe, flag, *([] if mode == "2" else [f"mode={mode}"])])


def _cross_to_mainline(work: _Work, use: _Use) -> None:
    waits = use.name == "wait_cross_flag"
    given = _given(use.call, ("flag", "pipe") if waits else ("pipe", "flag", "mode"))
    word = _word(given["pipe"]) if "pipe" in given else "all"
    if word is None or "flag" not in given:
        work.note(use.call, f"{use.name} of a pipe that the text does not show")
        return
    mode = work.text(given["mode"]) if "mode" in given else "2"
    new = "ascend_cross_core_wait_flag" if waits else "ascend_cross_core_set_flag"
    pipe = f'"PIPE_{(word or "all").upper()}"'
    _call(work, use, new, [mode, pipe, work.text(given["flag"])])


def _swizzle_to_mainline(work: _Work, use: _Use) -> None:
    """The adapter's gives the place of a block; mainline's orders blocks of a GPU."""
    if len(use.call.args) > 2 or use.call.keywords:
        work.note(use.call, f"{use.alias}.use_swizzle of a block has no counterpart")


_ON_CHIP = (Memory.UB, Memory.L1, Memory.L0A, Memory.L0B, Memory.L0C)


def _allocations(source: Dialect, target: Dialect) -> dict[str, Rule]:
    """The allocation functions of the five buffers, in the other spelling."""
    found: dict[str, Rule] = {}
    for row in rows(source):
        new = counterpart(row.function, target, source)
        if row.memory in _ON_CHIP and new is not None:
            found[row.function] = _rename(new)
    return found


def _copy_to_mainline(work: _Work, use: _Use) -> None:
    why = "has no counterpart: apply it in a vector function"
    _drop_keywords(work, use, ("enable_relu",), why)
    _drop_keywords(work, use, ("transpose",), "is the product's there: T.gemm(transpose_A=, ...)")


_HINT = "has no counterpart"
_REDUCTIONS = ("sum", "max", "min")
_TO_ADAPTER: dict[str, Rule] = {
    **_allocations(Dialect.ASCEND, Dialect.ADAPTER),
    "alloc_fragment": _no("means registers of a SIMT function; the adapter has none"),
    "Kernel": _kernel_to_adapter,
    "MixedKernel": _mixed_to_adapter,
    "Cube": _region("C"),
    "Vector": _region("V"),
    "gemm": _gemm_to_adapter,
    "copy": _copy(
        ("l2_cache_ctrl", "unit_flag_ctrl", "sub_blockid", "data_select", "transpose"), _HINT
    ),
    **{f"reduce_{op}": _copy(("batch",), _HINT) for op in _REDUCTIONS},
    "ascend_set_flag": _event_to_adapter("set_flag"),
    "ascend_wait_flag": _event_to_adapter("wait_flag"),
    "ascend_pipe_barrier": _barrier_to_adapter,
    "ascend_cross_core_set_flag": _cross_to_adapter,
    "ascend_cross_core_wait_flag": _cross_to_adapter,
}
_TO_MAINLINE: dict[str, Rule] = {
    **_allocations(Dialect.ADAPTER, Dialect.ASCEND),
    "alloc_shared": _no("is UB or L1 by its use: write alloc_ub or alloc_L1 first"),
    "alloc_fragment": _no("is L0A, L0B or L0C by its use: write one of them first"),
    "Kernel": _kernel_to_mainline,
    "Scope": _scope_to_mainline,
    "gemm_v0": _gemm_v0_to_mainline,
    "mma": _mma_to_mainline,
    "copy": _copy_to_mainline,
    "use_swizzle": _swizzle_to_mainline,
    "Pipelined": _copy(("cross_interval",), _HINT),
    **{f"reduce_{op}": _copy(("real_shape",), _HINT) for op in _REDUCTIONS},
    "tile.fill": _rename("fill"),
    "tile.clear": _rename("clear"),
    "set_flag": _event_to_mainline("ascend_set_flag"),
    "wait_flag": _event_to_mainline("ascend_wait_flag"),
    "barrier_all": lambda work, use: _call(work, use, "ascend_pipe_barrier", ['"PIPE_ALL"']),
    "pipe_barrier": _barrier_to_mainline,
    "set_cross_flag": _cross_to_mainline,
    "wait_cross_flag": _cross_to_mainline,
}
