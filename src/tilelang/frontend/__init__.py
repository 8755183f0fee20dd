"""The frontend: an author's Python function in, a tile-stage `Function` out, by staged execution."""

from tilelang.frontend.function import PrimFunc, macro, prim_func

__all__ = ["PrimFunc", "macro", "prim_func"]
