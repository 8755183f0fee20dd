"""The emulator: the reference meaning of every tile-stage operation and element type, on NumPy."""

from tilelang.emulator.observe import Capture, Observer, at_line
from tilelang.emulator.program import Program, translate

__all__ = ["Capture", "Observer", "Program", "at_line", "translate"]
