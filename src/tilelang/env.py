"""`tilelang.env`: the variables of the environment as attributes of one object, `env`.

What enters: a name of upstream's `tilelang.env`. What leaves: the text of its variable, or the
default in the same form. Assigning sets the variable for this process, so that what is compiled
from then on sees it. `docs/options.md` says what each does.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tilelang.compat import disable_cache, enable_cache, is_cache_enabled
from tilelang.errors import TileNameError, error
from tilelang.options import ROWS, Options, options_from

_OTHERWISE = {
    "TILELANG_DEFAULT_EXECUTION_BACKEND": "TILELANG_EXECUTION_BACKEND",
    "TILELANG_DEFAULT_VERBOSE": "TILELANG_VERBOSE",
    "TILELANG_TEMPLATE_PATH": "TL_TEMPLATE_PATH",
    "CUTLASS_INCLUDE_DIR": "TL_CUTLASS_PATH",
}
"""The attributes that are not called as their variables."""
_ROWS = {row.env: row for row in ROWS if row.env and not row.env.startswith("TILEWRIGHT_")}


def _variable(name: str) -> str:
    variable = _OTHERWISE.get(name, name)
    if variable not in _ROWS:
        raise error(
            "name",
            f"tilelang.env has no {name}",
            cls=TileNameError,
            expected="a variable of docs/options.md",
            got=name,
        )
    return variable


def _text(value: Any) -> str:
    match value:
        case bool():
            return str(int(value))
        case Path():
            return str(value.expanduser())
        case dict():
            return json.dumps(value)
        case _:
            return str(value)


class Environment:
    """The variables of the environment that TileLang reads. Each is text, as in `os.environ`; None
    where it is not set and has no default. TileNameError (an AttributeError) for another name, and
    ValueError where a value is assigned that the variable cannot have.
    """

    def __getattr__(self, name: str) -> str | None:
        if name.startswith("__"):
            raise AttributeError(name)
        variable = _variable(name)
        if os.environ.get(variable):
            return os.environ[variable]
        if variable == "TILELANG_TMP_DIR":
            return os.path.join(str(self.TILELANG_CACHE_DIR), "tmp")
        default = _ROWS[variable].default
        return None if default is None else _text(default)

    def __setattr__(self, name: str, value: Any) -> None:
        variable = _variable(name)
        if value is None:
            os.environ.pop(variable, None)
            return
        text = _text(value)
        options_from(None, {variable: text})  # an error for a value that it cannot have
        os.environ[variable] = text

    def __delattr__(self, name: str) -> None:
        os.environ.pop(_variable(name), None)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *_ROWS, *_OTHERWISE})

    enable_cache = staticmethod(enable_cache)
    disable_cache = staticmethod(disable_cache)
    is_cache_enabled = staticmethod(is_cache_enabled)

    def _options(self) -> Options:
        return options_from(None, os.environ)

    def is_cache_globally_disabled(self) -> bool:
        """Whether each kernel is compiled anew."""
        return self._options().disable_cache

    def is_autotune_cache_disabled(self) -> bool:
        """Whether results of tuning are neither read nor written."""
        return self._options().auto_tuning_disable_cache

    def is_print_on_compilation_enabled(self) -> bool:
        """Whether the names of kernels are logged when they are compiled."""
        return self._options().print_on_compilation

    def is_pass_profile_enabled(self) -> bool:
        """Whether the times of passes are printed."""
        return self._options().pass_profile

    def get_pass_profile_threshold_ms(self) -> float:
        """The time in ms below which a pass is left out of the profile."""
        return self._options().pass_profile_threshold_ms

    def get_default_target(self) -> str | dict[str, Any]:
        """The target where none is named, as a text or as the fields of one."""
        target = self._options().default_target
        return json.loads(target) if target.startswith("{") else target

    def get_default_verbose(self) -> bool:
        """Whether the compiler prints what it chose."""
        return self._options().verbose


env = Environment()
"""What `tilelang.env` is."""

__all__ = ["Environment", "disable_cache", "enable_cache", "env", "is_cache_enabled"]
