"""`tilewright cache`: the compiled kernels on disk.

What enters: the settings of the environment. What leaves: the folder, and how many kernels and
bytes are in it, by target; with `--clear` they are removed.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict

from tilelang.cli import tables
from tilelang.cli.kernels import UsageError
from tilelang.options import options_from
from tilelang.runtime.cache import Store, unpack


def cache(*, clear: bool, as_json: bool) -> int:
    """Show what is kept, or remove it; always 0. `UsageError` where it cannot be removed."""
    options = options_from(None, os.environ)
    store = Store(options.cache_dir)
    removed = _cleared(store) if clear else 0
    targets = _by_target(store)
    if as_json:
        facts = {
            "folder": str(store.folder),
            "enabled": not options.disable_cache,
            "limit": store.limit,
            "removed": removed,
            "targets": targets,
        }
        print(json.dumps(facts, indent=2))
        return 0
    used = " (not in use: TILELANG_DISABLE_CACHE is set)" if options.disable_cache else ""
    print(f"{store.folder}{used}")
    if clear:
        print(f"{removed} kernels removed")
    rows = [
        (target, str(found["kernels"]), f"{found['bytes'] / 1024:,.0f}")
        for target, found in targets.items()
    ]
    if rows:
        tables.show(("target", "kernels", "KiB"), rows)
    else:
        print("no compiled kernels")
    return 0


def _cleared(store: Store) -> int:
    try:
        return store.clear()
    except OSError as exc:
        raise UsageError(
            f"the compiled kernels in {store.folder} cannot be removed",
            expected="a folder that can be changed",
            got=exc.strerror or str(exc),
        ) from None


def _by_target(store: Store) -> dict[str, dict[str, int]]:
    """Kernels and bytes by target; `damaged` are files that will be replaced when they are met."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: {"kernels": 0, "bytes": 0})
    for each in store.entries():
        try:
            entry = unpack(each.path.stem, each.path.read_bytes())
        except OSError:  # removed meanwhile
            continue
        target = "damaged" if entry is None else str(entry.facts.get("target", ""))
        found[target]["kernels"] += 1
        found[target]["bytes"] += each.size
    return dict(sorted(found.items()))
