"""The frontend: an author's Python function in, a tile-stage `Function` out."""

from tilelang.frontend.eager import (
    annotate_compile_flags,
    annotate_pass_configs,
    const,
    empty,
)
from tilelang.frontend.function import PrimFunc, prim_func
from tilelang.frontend.macro import Macro, Ref, inline, macro, meta_class

# What the frontend adds to the `T` namespace, which it is built on.
LANGUAGE_NAMES = {
    "prim_func": prim_func,
    "PrimFunc": PrimFunc,
    "macro": macro,
    "inline": inline,
    "meta_class": meta_class,
    "Ref": Ref,
    "const": const,
    "empty": empty,
    "annotate_pass_configs": annotate_pass_configs,
    "annotate_compile_flags": annotate_compile_flags,
}

__all__ = ["LANGUAGE_NAMES", "Macro", "PrimFunc", "Ref", "macro", "prim_func"]
