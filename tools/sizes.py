"""Smaller sizes for a program that offers its sizes as arguments.

What enters: the source of a program. What leaves: the same program in which a size that is the
default of a command-line option, or of a parameter of the function `main`, is at most what
`CEILINGS` says for its name. Only defaults change, and only downwards: what a program sets by
itself stays.
"""

from __future__ import annotations

import argparse
import ast
from typing import Any

_SEQUENCE = 256
CEILINGS = {
    **dict.fromkeys(("batch", "batch_size", "b", "bs"), 1),
    **dict.fromkeys(("m", "n", "k"), 256),
    **dict.fromkeys(
        ("seq_len", "seqlen", "s", "t", "n_ctx", "kv_ctx", "seq_q", "seq_kv"), _SEQUENCE
    ),
    **dict.fromkeys(("q_seqlen", "k_seqlen", "seq_len_kv", "skv", "s_kv"), _SEQUENCE),
    **dict.fromkeys(("max_cache_seqlen", "cache_seqlen", "kv_seqlen", "num_tokens"), _SEQUENCE),
}


def smaller(name: str, value: Any) -> Any:
    """The default of a size: `value`, or less of it where the name has a ceiling."""
    ceiling = CEILINGS.get(name.lower())
    if ceiling is None or isinstance(value, bool) or not isinstance(value, int):
        return value
    return min(value, ceiling)


def lower_main(tree: ast.Module) -> list[str]:
    """Lower the defaults of `main` in place; what changed, as `name=value`."""
    changed: list[str] = []
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef) or node.name != "main":
            continue
        named = node.args.args[len(node.args.args) - len(node.args.defaults) :]
        for parameter, default in zip(named, node.args.defaults, strict=True):
            if isinstance(default, ast.Constant):
                small = smaller(parameter.arg, default.value)
                if small != default.value:
                    default.value = small
                    changed.append(f"{parameter.arg}={small}")
    return changed


def lower_options(changed: list[str]) -> None:
    """Let every command-line parser made from now on have smaller defaults; adds to `changed`."""
    parse = argparse.ArgumentParser.parse_known_args

    def parse_known_args(self: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        for action in self._actions:
            small = smaller(action.dest, action.default)
            if small != action.default:
                action.default = small
                changed.append(f"{action.dest}={small}")
        return parse(self, *args, **kwargs)

    argparse.ArgumentParser.parse_known_args = parse_known_args
