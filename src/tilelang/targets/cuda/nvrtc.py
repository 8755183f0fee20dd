"""CUDA C++ to machine code in this process, by NVRTC from its wheel; no GPU is needed.

What enters: a source, the chip, and flags. What leaves: a cubin with what ptxas says of each kernel
(registers, spills, shared memory). A message of the compiler leads to the author's line, since the
source has `#line` directives. NVRTC's dozen functions are called as they are: a binding would take
ten times as long to import.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilelang.errors import InternalError, Loc, TileError, error

EXTRA = "tilewright[cuda]"

# Unused names are usual in generated code: a parameter of a row, a value that only a guard needs.
# Registers that a product clears itself are its operands without having been set.
_SUPPRESSED = ("177", "549", "550")


@dataclass(frozen=True)
class Flags:
    """What the compiler is told beside the source.

    `fmad` lets it contract a product and a sum into one operation. `fast_math` takes approximate
    division, square root and functions, and flushes subnormal numbers. `debug` makes debugging
    information and no optimisation. `more` are options of the author.
    """

    fmad: bool = True
    fast_math: bool = False
    debug: bool = False
    max_registers: int = 0
    more: tuple[str, ...] = ()

    def options(self, arch: str) -> list[str]:
        """NVRTC's options."""
        out = [
            f"--gpu-architecture={arch}",
            "--std=c++17",
            f"--fmad={str(self.fmad).lower()}",
            "--generate-line-info",
            "--ptxas-options=-v",
            "--no-cache",  # what its cache gives back comes without ptxas's messages
            f"--diag-suppress={','.join(_SUPPRESSED)}",
        ]
        out += ["--use_fast_math"] if self.fast_math else []
        out += ["--device-debug"] if self.debug else []
        out += [f"--maxrregcount={self.max_registers}"] if self.max_registers else []
        return [*out, *self.more]


@dataclass(frozen=True)
class Resources:
    """What ptxas says of one kernel: registers of a thread at launch, bytes of its stack frame, of
    spill stores and loads, of static shared memory; named barriers.
    """

    registers: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared: int = 0
    barriers: int = 0


@dataclass(frozen=True)
class Cubin:
    """Machine code of one chip. `warnings` are lines of the compiler's log that are no facts."""

    code: bytes
    arch: str
    resources: dict[str, Resources] = field(default_factory=dict[str, Resources])
    warnings: tuple[str, ...] = ()

    @property
    def starved(self) -> bool:
        """Whether products wait for each other, because a thread has too few registers for them."""
        return any(map(_starved, self.warnings))


class GivenUp(InternalError):
    """ptxas has given up what the source asks for."""


# The library -------------------------------------------------------------------------------------

PACKAGE = "nvidia-cuda-nvrtc"
_NAME = "libnvrtc.so.13"


def wheel_folders(kind: str) -> Iterator[Path]:
    """The folders `kind` (lib, include) that NVIDIA's wheels have put beside this Python's own."""
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec is not None else []:
        yield from sorted(Path(root).glob(f"*/{kind}"))


@functools.cache
def _library() -> ctypes.CDLL:
    """NVRTC, from its wheel or else from where the system has it."""
    known = [str(f / _NAME) for f in wheel_folders("lib") if (f / _NAME).is_file()]
    for path in (*known, _NAME):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(path)
    raise not_installed()


def is_installed() -> bool:
    """Whether NVRTC can be loaded."""
    try:
        _library()
    except TileError:
        return False
    return True


def not_installed() -> TileError:
    """The error that says what to install."""
    return error(
        "target",
        f"the CUDA target needs NVRTC (the package {PACKAGE}), which is not installed",
        expected=f"the extra of this project that has it: pip install '{EXTRA}'",
        got=f"no {_NAME}",
        help="target='cpu' or 'emulate:sm_90a' runs the kernel without it",
    )


def _call(name: str, *args: Any) -> int:
    return int(getattr(_library(), f"nvrtc{name}")(*args))


def _checked(name: str, *args: Any) -> None:
    code = _call(name, *args)
    if code:
        text = _library().nvrtcGetErrorString
        text.restype = ctypes.c_char_p
        raise InternalError(f"nvrtc{name}: {text(code).decode()}")


@functools.cache
def version() -> str:
    """NVRTC's version, as in 13.5."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _checked("Version", ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


@functools.cache
def include_folder() -> str:
    """The folder with CUDA's own headers, of the wheel nvidia-cuda-runtime; empty without it.

    Emitted sources need none; an author's own device code may.
    """
    folders = (f for f in wheel_folders("include") if (f / "cuda_fp16.h").is_file())
    return str(next(folders, ""))


# Compiling ---------------------------------------------------------------------------------------


def compile_source(
    text: str, arch: str, flags: Flags | None = None, loc: Loc | None = None
) -> Cubin:
    """The machine code of `text` for `arch` (sm_90a, say).

    Raises a `TileError` of kind `option` at `loc` for a flag of the author's that the compiler does
    not know, `InternalError` with the compiler's messages where the source does not compile,
    `GivenUp` where ptxas gave up what the source asks for (its messages C75xx: wgmma that it has
    serialised, a register count that it ignores). That tiles need more registers than there are is
    the author's choice: then the result says that it is `starved`.
    """
    chosen = flags or Flags()
    options = chosen.options(arch)
    if text.startswith("#include"):
        if not include_folder():
            raise error(
                "target",
                "device code of the author's needs CUDA's headers, which are not installed",
                loc,
                expected=f"the extra of this project that has them: pip install '{EXTRA}'",
            )
        options.append(f"--include-path={include_folder()}")
    program = ctypes.c_void_p()
    source = text.encode()
    _checked("CreateProgram", ctypes.byref(program), source, b"tilewright.cu", 0, None, None)
    try:
        encoded = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        code = _call("CompileProgram", program, len(options), encoded)
        log = _bytes(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        refused = _REFUSED.search(log) if chosen.more else None
        if code and refused:
            raise error(
                "option",
                f"the device compiler refuses a flag: {refused.group(1)}",
                loc,
                expected=f"options of NVRTC {version()}; those of nvcc are others",
                got=" ".join(chosen.more),
                help="correct compile_flags or `tl.device_compile_flags` (-O3 is always on)",
            )
        if code and re.search(r"^import_source \d+\(", log, re.MULTILINE):
            raise error(
                "syntax",
                f"the device code of T.import_source does not compile for {arch}",
                loc,
                expected="CUDA C++ that NVRTC takes: no headers of the host's",
                got=_shown(log),
            )
        if code:
            raise InternalError(f"the emitted CUDA does not compile for {arch}\n{_shown(log)}")
        resources, warnings = read_log(log)
        given_up = [n for n in warnings if re.search(r"\bC75\d\d\b", n) and not _starved(n)]
        if given_up and not chosen.debug:
            raise GivenUp(
                f"ptxas does not do for {arch} what the kernel asks for\n" + "\n".join(given_up)
            )
        return Cubin(_bytes(program, "CUBIN"), arch, resources, tuple(warnings))
    finally:
        _call("DestroyProgram", ctypes.byref(program))


def _starved(line: str) -> bool:
    """Whether ptxas has serialised wgmma for want of registers: its messages C7511 and C7512."""
    return "serialized due to insufficient register resources" in line


def _bytes(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _checked(f"Get{what}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    _checked(f"Get{what}", program, buffer)
    return buffer.raw


def _shown(log: str) -> str:
    """The errors of a log, without ptxas's facts."""
    lines = [line for line in log.splitlines() if line.strip() and "ptxas info" not in line]
    return "\n".join(lines[:40])


_REFUSED = re.compile(r"^(?:nvrtc: error|ptxas fatal)\s*: (.*)$", re.MULTILINE)
_ENTRY = re.compile(r"(?:Compiling entry function|Function properties for) '?(\w+)'?")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers(?:, used (\d+) barriers)?(?:.*?(\d+) bytes smem)?")
_FACTS = re.compile(r"ptxas info\s*: (?!\(C\d+\))|ptxas\s+\.\s|bytes stack frame|^Remark:|^\s*$")


def read_log(log: str) -> tuple[dict[str, Resources], list[str]]:
    """What a log says of each kernel, and its other lines."""
    found: dict[str, dict[str, int]] = {}
    others: list[str] = []
    entry = ""
    for line in log.splitlines():
        named = _ENTRY.search(line)
        entry = named.group(1) if named else entry
        facts = found.setdefault(entry, {}) if entry else {}
        facts |= dict(_numbers(line))
        if not _FACTS.search(line):
            others.append(line.rstrip())
    return {
        name: Resources(**facts) for name, facts in found.items() if "registers" in facts
    }, others


def _numbers(line: str) -> Iterator[tuple[str, int]]:
    stack = _STACK.search(line)
    if stack:
        yield from zip(
            ("stack", "spill_stores", "spill_loads"), map(int, stack.groups()), strict=True
        )
    used = _USED.search(line)
    if used:
        registers, barriers, shared = used.groups()
        yield "registers", int(registers)
        yield "barriers", int(barriers or 0)
        yield "shared", int(shared or 0)
