"""`tilelang.utils.target`, which a public library imports: the target that a name means here."""

from tilelang.compat.adapter import determine_platform
from tilelang.compat.devices import determine_target

__all__ = ["determine_platform", "determine_target"]
