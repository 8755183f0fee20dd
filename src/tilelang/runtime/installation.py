"""Whether this package shares its folder with another distribution.

What enters: the folder of the package, and the installed distributions. What leaves: who else owns
files there. Upstream TileLang and its Ascend adapter install into the same folder `tilelang`;
whichever came last has replaced files of the other, and removing one breaks the other.
"""

from __future__ import annotations

import os
import warnings

OWN_DISTRIBUTION = "tilewright"
PACKAGE = "tilelang"

# A module that every version of the other trees has, and that this one never will: the bridge to
# their C++ library. One look at the file system is all that an import pays.
_FOREIGN_FILE = "_ffi_api.py"


def is_mixed(package: str | None = None) -> bool:
    """Whether files of another distribution lie in the folder of this package."""
    folder = package or os.path.dirname(os.path.dirname(__file__))
    return os.path.exists(os.path.join(folder, _FOREIGN_FILE))


def warn_if_mixed() -> None:
    """Warn at import where the folder is shared; costs one `stat`."""
    if is_mixed():
        warnings.warn(
            "tilewright and another tilelang are installed in the same folder, and have replaced "
            "each other's files: use a fresh environment (`tilewright doctor` says more)",
            RuntimeWarning,
            stacklevel=3,
        )


def foreign_owners(path: list[str] | None = None) -> list[str]:
    """The other distributions that own files in a folder `tilelang`, each as `name version`.

    Reads the record of every distribution on `path` (default: `sys.path`): some milliseconds.
    """
    # Costs more than the rest of this package's import, and only `doctor` asks.
    from importlib.metadata import distributions

    found: dict[str, str] = {}
    for each in distributions() if path is None else distributions(path=path):
        name = each.name
        if name.lower() == OWN_DISTRIBUTION:
            continue
        # As text, since building a path object for each of a large package's files takes long.
        record = each.read_text("RECORD") or ""
        owns = record.startswith(f"{PACKAGE}/") or f"\n{PACKAGE}/" in record
        if name.lower() == PACKAGE or owns:
            found.setdefault(name, f"{name} {each.version}")
    return sorted(found.values())
