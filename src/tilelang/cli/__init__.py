"""The command `tilewright`: run, check, show, scopes, port, cache, doctor.

What enters: the words of a command line. What leaves: text on standard output and an exit code: 0
for success, 1 for findings or a failure, 2 for a command line that cannot be carried out. Faults of
a program are shown as the rendered finding, never as a traceback.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from tilelang._version import __version__
from tilelang.cli import cached, commands, doctor, port, scope_tables
from tilelang.cli.inputs import FILLS
from tilelang.cli.kernels import UsageError, parse_spec
from tilelang.errors import InternalError, TileError
from tilelang.targets import CHIPS
from tilelang.targets import target as parse_target

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

_SPEC = "FILE::factory(args)"
_EPILOG = """\
A kernel is named as FILE::factory(args): a function of FILE that returns a @T.prim_func, or one
under @tilelang.jit. The arguments are Python literals: 'kernels.py::gemm(256, 384, dtype="int8")'.
With FILE alone, `check` and `show` list what the file has.

Exit codes: 0 success, 1 findings or a failure, 2 a command line that cannot be carried out.
"""
_LAUNCH = f"""\
Everything after --args. For a kernel: NAME=VALUE for sizes, scalars and tensors; a tensor's value
is {", ".join(FILLS)} or a .npy file, and `random` where none is given. For a file: its arguments.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command line (default: that of this process); gives the exit code."""
    chosen = _parser().parse_args(argv)
    act: Callable[[argparse.Namespace], int] = chosen.act
    try:
        return act(chosen)
    except UsageError as exc:
        return _fail(exc.diagnostic.render(), USAGE)
    except TileError as exc:
        return _fail(str(exc), FAILED)
    except InternalError as exc:
        return _fail(_internal(exc), FAILED)
    except (MemoryError, KeyboardInterrupt) as exc:
        return _stopped(exc)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _stopped(exc: MemoryError | KeyboardInterrupt) -> int:
    if isinstance(exc, KeyboardInterrupt):
        return _fail("interrupted", INTERRUPTED)
    return _fail(
        f"error[capacity]: the memory of this machine does not hold the program's arrays: {exc}\n"
        "  = help: take smaller sizes, or smaller tiles",
        FAILED,
    )


def _fail(text: str, code: int) -> int:
    sys.stdout.flush()
    print(text, file=sys.stderr)
    return code


def _internal(exc: InternalError) -> str:
    frames = traceback.extract_tb(exc.__traceback__)[-3:]
    at = "".join(f"\n  = at {frame.filename}:{frame.lineno}" for frame in frames)
    return (
        f"internal error: {exc}{at}\n"
        f"  = this is a fault of tilewright {__version__}, not of the program; please report both"
    )


# ---- The words -----------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tilewright",
        description="Run, check and look at tile kernels.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tilewright {__version__}")
    words = parser.add_subparsers(dest="command", required=True, metavar="command")
    _add_run(words.add_parser("run", help="run a file, or one kernel on made-up data"))
    _add_check(words.add_parser("check", help="findings about a kernel, and its memory"))
    _add_show(words.add_parser("show", help="the IR of a kernel, or the source that runs"))
    _add_scopes(words.add_parser("scopes", help="the memory scopes, and the chips' capacities"))
    _add_port(words.add_parser("port", help="an Ascend program in the other dialect's spelling"))
    _add_cache(words.add_parser("cache", help="the compiled kernels on disk"))
    _add_doctor(words.add_parser("doctor", help="what runs here, and why not more"))
    return parser


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target",
        metavar="T",
        help="cpu, emulate, emulate:<chip>; default: the kernel's own, else auto",
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", metavar="FILE[::factory(args)]")
    _add_target(parser)
    parser.add_argument("--args", nargs=argparse.REMAINDER, default=[], help=_LAUNCH)
    parser.set_defaults(act=_run)


def _run(chosen: argparse.Namespace) -> int:
    return commands.run(parse_spec(chosen.spec), _target(chosen), chosen.args)


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", metavar=_SPEC)
    _add_target(parser)
    parser.add_argument("--json", action="store_true", help="the findings and the memory as JSON")
    parser.add_argument(
        "--dynamic", action="store_true", help="run it too, on made-up data, under dynamic checks"
    )
    parser.add_argument(
        "--args", nargs=argparse.REMAINDER, help="the same with these arguments, as of `run`"
    )
    parser.set_defaults(act=_check)


def _check(chosen: argparse.Namespace) -> int:
    spec = parse_spec(chosen.spec)
    if not spec.name:
        return commands.needs_factory(spec)
    given: list[str] | None = chosen.args
    if chosen.dynamic and given is None:
        given = []
    return commands.check(spec, _target(chosen), as_json=chosen.json, given=given)


def _add_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", metavar=_SPEC)
    _add_target(parser)
    parser.add_argument(
        "--stage",
        choices=("tile", "thread", "source"),
        help="tile: the IR as traced (default); thread: the IR as lowered for the target's "
        "hardware; source: what runs on the target",
    )
    parser.add_argument(
        "--asm", action="store_true", help="of the source, the processor's instructions"
    )
    parser.set_defaults(act=_show)


def _show(chosen: argparse.Namespace) -> int:
    spec = parse_spec(chosen.spec)
    if not spec.name:
        return commands.needs_factory(spec)
    stage: str = chosen.stage or ("source" if chosen.asm else "tile")
    if chosen.asm and stage != "source":
        raise UsageError(
            f"the {stage} stage has no instructions of a processor",
            expected="--asm alone, or with --stage source",
            got=f"--asm --stage {stage}",
        )
    return commands.show(spec, _target(chosen), stage, assembly=chosen.asm)


def _add_scopes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--compare", action="store_true", help="how each dialect spells a memory")
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")
    names = ", ".join(chip.name for chip in CHIPS)
    parser.add_argument("--chip", help=f"one chip only, with sources: {names}")
    parser.set_defaults(act=_scopes)


def _scopes(chosen: argparse.Namespace) -> int:
    return scope_tables.scopes(compare=chosen.compare, as_json=chosen.json, chip=chosen.chip)


def _add_port(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--to", required=True, choices=("mainline", "adapter"), help="the dialect")
    parser.add_argument("--out", metavar="FILE", type=Path, help="default: standard output")
    parser.set_defaults(act=_port)


def _port(chosen: argparse.Namespace) -> int:
    return port.port(chosen.file, chosen.to, chosen.out)


def _add_cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--clear", action="store_true", help="remove them")
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")
    parser.set_defaults(act=_cache)


def _cache(chosen: argparse.Namespace) -> int:
    return cached.cache(clear=chosen.clear, as_json=chosen.json)


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same facts as JSON")
    parser.set_defaults(act=_doctor)


def _doctor(chosen: argparse.Namespace) -> int:
    return doctor.doctor(as_json=chosen.json)


def _target(chosen: argparse.Namespace) -> str | None:
    """The target's name, once it is known to be one; a wrong name is a fault of the command."""
    if chosen.target is None:
        return None
    try:
        return str(parse_target(chosen.target))
    except TileError as exc:
        raise UsageError.of(exc) from None
