"""A translated program, and how it is run.

What enters: a `Function` of the tile stage, and arguments: NumPy arrays in the storage of each
parameter's type (sub-byte types one element to a slot), numbers, and dynamic sizes, all by name.
What leaves: the arrays, changed in place, and what the dynamic check found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilelang.emulator.check import Checker
from tilelang.emulator.machine import Machine
from tilelang.emulator.observe import Observer
from tilelang.emulator.storage import Array
from tilelang.emulator.translate import prepared, translate_function
from tilelang.errors import Diagnostic, Loc, TileError, error
from tilelang.ir.expr import Var
from tilelang.ir.tile import Function

Argument = Array | int | float | bool | None


@dataclass(frozen=True)
class Program:
    """A function, as `prepared` gives it, as Python. `source` is its text; `locs` has the author's
    location of each line of it.
    """

    function: Function
    source: str
    locs: tuple[Loc | None, ...]
    call: Callable[..., None]
    tf32: bool = False
    checked: bool = False
    native: ClassVar[bool] = False

    def run(
        self, args: Mapping[str, Argument], *, observer: Observer | None = None
    ) -> list[Diagnostic]:
        """Run every launch of the program, and give what the dynamic check found if it was
        translated `checked`.

        `observer` sees the buffers after the statements it wants; the program is translated anew
        for it. Raises TileError for a fault on chip, a failed device assertion, and an argument
        that is missing.
        """
        call = self.call
        if observer is not None:
            call = _translated(self.function, self.tf32, self.checked, observer).call
        machine = Machine(observer=observer)
        values = self._arguments(args)
        with np.errstate(all="ignore"):
            if not self.checked:
                call(machine, *values)
                return []
            check = machine.check = Checker(machine.where)
            try:
                call(machine, *values)
            except TileError as fault:
                # What stops the program ends the check: it is the last finding.
                for d in fault.diagnostics:
                    check.findings.add(d)
        return check.findings.items

    def _arguments(self, args: Mapping[str, Argument]) -> list[Any]:
        fn = self.function
        values: list[Any] = []
        for p in fn.params:
            if p.name not in args:
                raise error(
                    "argument", f"no argument for {p.name} of {fn.name}", fn.loc, expected=p.name
                )
            given = args[p.name]
            values.append(_scalar(given, p.var) if p.var is not None else given)
        for var in fn.dynamic:
            if var.name not in args:
                raise error(
                    "argument",
                    f"no value for the size {var.name} of {fn.name}",
                    fn.loc,
                    expected=var.name,
                )
            values.append(_scalar(args[var.name], var))
        return values


def _scalar(given: Any, var: Var) -> Any:
    """A number as a value of the block: a Python int or bool, or a NumPy float."""
    if var.dtype.is_bool:
        return bool(given)
    if var.dtype.is_float:
        return var.dtype.numpy.type(given)
    if np.ndim(given):
        return int(np.asarray(given).ctypes.data)  # an array for a pointer
    return int(given)


def translate(fn: Function, *, tf32: bool = False, checked: bool = False) -> Program:
    """Translate a function once; the result can be run any number of times.

    `tf32` says that a product of float32 operands ignores the low 13 bits of each, as tensor cores
    do. With `checked` a run also looks for uninitialised reads, accesses out of bounds, conflicting
    stores and races.
    """
    return _translated(prepared(fn), tf32, checked, None)


def _translated(fn: Function, tf32: bool, checked: bool, observer: Observer | None) -> Program:
    w, name = translate_function(fn, tf32=tf32, observer=observer, checked=checked)
    source = w.source
    namespace = dict(w.namespace)
    exec(compile(source, f"<emulator:{fn.name}>", "exec"), namespace)  # the text is our own
    return Program(fn, source, tuple(w.locs), namespace[name], tf32, checked)
