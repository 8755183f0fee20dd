"""Tile sizes worth trying, from what is known of a machine: upstream's carver, what of it is built.

What enters: the shape of a product, and the machine. What leaves: hints, the best first.
"""

from tilelang.tune.machines import Ascend
from tilelang.tune.products import Hint, MatmulTemplate

__all__ = ["Ascend", "Hint", "MatmulTemplate"]
