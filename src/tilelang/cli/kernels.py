"""Kernels named on the command line: `FILE::factory(args)`.

What enters: that text. What leaves: the function a factory of the file makes with those arguments,
or one message that says what the file has. The arguments are read as Python literals and never
evaluated; the file itself is imported, as running it would.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from tilelang.errors import Diagnostic, InternalError, Loc, TileError
from tilelang.frontend import PrimFunc
from tilelang.runtime import JITKernel
from tilelang.runtime.jit import JITImpl


class UsageError(Exception):
    """A command line that cannot be carried out; `diagnostic` says why."""

    def __init__(self, message: str, *, expected: str = "", got: str = "", help: str = "") -> None:  # noqa: A002
        super().__init__(message)
        self.diagnostic = Diagnostic("argument", message, expected=expected, got=got, help=help)

    @classmethod
    def of(cls, exc: TileError) -> UsageError:
        """The same finding, as a fault of the command line."""
        made = cls(exc.diagnostics[0].message)
        made.diagnostic = exc.diagnostics[0]
        return made


@dataclass(frozen=True)
class Spec:
    """What the author named: a file, and perhaps a factory of it with its arguments."""

    file: Path
    name: str = ""
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __str__(self) -> str:
        if not self.name:
            return str(self.file)
        given = [*map(repr, self.args), *(f"{k}={v!r}" for k, v in self.kwargs.items())]
        return f"{self.file}::{self.name}({', '.join(given)})"


@dataclass(frozen=True)
class Factory:
    """A way to a kernel: `kind` says which, `signature` is None where there is nothing to pass."""

    name: str
    kind: str
    signature: inspect.Signature | None

    def __str__(self) -> str:
        return self.name if self.signature is None else f"{self.name}{self.signature}"


@dataclass(frozen=True)
class Made:
    """A traced function, and the settings its factory gives to `tilelang.compile`."""

    func: PrimFunc
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


# ---- The text ------------------------------------------------------------------------------------


def parse_spec(text: str) -> Spec:
    """Read `FILE`, `FILE::name` or `FILE::name(args)`; `UsageError` for anything else."""
    path, found, call = text.partition("::")
    file = Path(path)
    if not file.is_file():
        raise UsageError(
            f"there is no file {path}", expected="FILE or FILE::factory(args)", got=text
        )
    if not found:
        return Spec(file)
    name, args, kwargs = _read_call(call)
    return Spec(file, name, args, kwargs)


def _read_call(text: str) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise _not_a_call(text) from None
    match node:
        case ast.Name(id=name):
            return name, (), {}
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
            pairs = {word.arg: word.value for word in keywords if word.arg is not None}
            if len(pairs) < len(keywords):
                raise _not_a_call(text)
            values = tuple(_literal(each) for each in args)
            return name, values, {word: _literal(value) for word, value in pairs.items()}
        case _:
            raise _not_a_call(text)


def _not_a_call(text: str) -> UsageError:
    return UsageError(
        "what stands after `::` is not a call with plain arguments",
        expected="a name, or name(128, dtype='float16')",
        got=text,
        help="quote it for the shell: 'file.py::factory(128, 64)'",
    )


def _literal(node: ast.expr) -> Any:
    """The value of a literal: numbers, strings, True, None, and tuples, lists, dicts of them."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        raise UsageError(
            "an argument is not a literal",
            expected="numbers, strings, True, False, None, and tuples, lists or dicts of them",
            got=ast.unparse(node),
            help="an element type is given by its name, as 'float16'",
        ) from None


# ---- The file ------------------------------------------------------------------------------------


def load(file: Path) -> ModuleType:
    """Import the file under a name of its own. A fault in it is a `TileError` at its line."""
    name = "_tilewright_" + re.sub(r"\W", "_", file.stem)
    spec = importlib.util.spec_from_file_location(name, file.resolve())
    if spec is None or spec.loader is None:
        raise UsageError(f"{file} is not a Python file", expected="a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)  # as Python does for a program it runs
    try:
        guarded(file, lambda: spec.loader.exec_module(module))  # pyright: ignore[reportOptionalMemberAccess]
    finally:
        sys.path.remove(folder)
    return module


def guarded(file: Path, action: Callable[[], Any]) -> Any:
    """Carry out `action`, which runs the author's code; another exception becomes a `TileError`.

    It points at the innermost line of `file` that was running.
    """
    try:
        return action()
    except (TileError, InternalError, UsageError, SystemExit, KeyboardInterrupt):
        raise
    except SyntaxError as exc:
        at = Loc(exc.filename or str(file), exc.lineno or 1, exc.offset or 1, exc.end_offset or 0)
        raise TileError(Diagnostic("syntax", f"{exc.msg}", at)) from None
    except Exception as exc:
        raise TileError(
            Diagnostic("value", f"{type(exc).__name__}: {exc}", _innermost(file, exc))
        ) from exc


def _innermost(file: Path, exc: BaseException) -> Loc | None:
    own = str(file.resolve())
    for frame in reversed(traceback.extract_tb(exc.__traceback__)):
        if str(Path(frame.filename).resolve()) == own and frame.lineno is not None:
            name = "" if frame.name == "<module>" else frame.name
            col, end = frame.colno, frame.end_colno
            one_line = frame.end_lineno in (None, frame.lineno)
            last = 0 if end is None or not one_line else end + 1
            return Loc(frame.filename, frame.lineno, (col or 0) + 1, last, name)
    return None


# ---- Its factories -------------------------------------------------------------------------------


def factories(module: ModuleType) -> list[Factory]:
    """Everything in a module that is, or makes, a kernel, in the order of definition."""
    found = [
        made
        for name, value in vars(module).items()
        if not name.startswith("_") and (made := _factory(module, name, value)) is not None
    ]
    return list({each.name: each for each in found}.values())


def _factory(module: ModuleType, name: str, value: Any) -> Factory | None:
    if isinstance(value, JITImpl):
        return Factory(name, "@tilelang.jit", value.signature)
    if isinstance(value, PrimFunc):
        return Factory(name, "@T.prim_func", None)
    if isinstance(value, JITKernel):
        return Factory(name, "kernel", None)
    own = inspect.isfunction(value) and value.__module__ == module.__name__
    if own and _defines_kernel(value):
        return Factory(name, "function", inspect.signature(value))
    return None


def _defines_kernel(function: Callable[..., Any]) -> bool:
    """Whether a function that is decorated with `prim_func` is defined inside this one."""
    try:
        tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return False
    inner = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return any("prim_func" in ast.unparse(each) for node in inner for each in node.decorator_list)


def listing(file: Path, module: ModuleType) -> str:
    """The factories of a file with their parameters, as text."""
    found = factories(module)
    if not found:
        return f"{file} has no kernel, and no function that makes one"
    width = max(len(str(each)) for each in found)
    lines = [f"  {each!s:<{width}}  {each.kind}" for each in found]
    return "\n".join([f"{file} has {len(found)} ways to a kernel:", *lines])


def make(spec: Spec) -> Made:
    """Import the file, call the factory, and give the function it traces."""
    return made(spec, load(spec.file))


def made(spec: Spec, module: ModuleType) -> Made:
    """The function that the factory named by `spec` makes; the file is imported as `module`."""
    value = getattr(module, spec.name, None)
    if value is None:
        raise _no_such(spec, module)
    if isinstance(value, (PrimFunc, JITKernel)):
        if spec.args or spec.kwargs:
            raise UsageError(f"{spec.name} is a kernel already and takes no arguments")
        return _result(spec, value, {})
    if not callable(value):
        raise UsageError(f"{spec.name} of {spec.file} is no function", got=type(value).__name__)
    if isinstance(value, JITImpl) and value.mode == "eager":
        # Its parameters are the launch's; sizes alone may do, and get_tir says which are needed.
        return Made(value.get_tir(*spec.args, **spec.kwargs), value.settings)
    signature = value.signature if isinstance(value, JITImpl) else inspect.signature(value)
    try:
        signature.bind(*spec.args, **spec.kwargs)
    except TypeError as exc:
        raise UsageError(
            f"{spec.name}: {exc}",
            expected=f"{spec.name}{signature}",
            got=str(spec).partition("::")[2],
        ) from None
    if isinstance(value, JITImpl):
        func = guarded(spec.file, lambda: value.get_tir(*spec.args, **spec.kwargs))
        return Made(func, value.settings)
    return _result(spec, guarded(spec.file, lambda: value(*spec.args, **spec.kwargs)), {})


def _result(spec: Spec, value: Any, settings: Mapping[str, Any]) -> Made:
    if isinstance(value, JITKernel):
        return Made(value.prim_func, value.settings)
    if isinstance(value, PrimFunc):
        return Made(value, settings)
    raise UsageError(
        f"{spec.name} of {spec.file} does not give a kernel",
        expected="a function that returns a @T.prim_func or a kernel",
        got=type(value).__name__,
    )


def _no_such(spec: Spec, module: ModuleType) -> UsageError:
    names = [each.name for each in factories(module)]
    near = difflib.get_close_matches(spec.name, names, n=1)
    return UsageError(
        f"{spec.file} has no {spec.name}",
        expected=", ".join(names) or "a function that makes a kernel",
        got=spec.name,
        help=f"did you mean {near[0]}?" if near else "",
    )
