"""The emulator: the reference meaning of every tile-stage operation and element type, on NumPy."""

from tilelang.emulator.program import Program, translate

__all__ = ["Program", "translate"]
