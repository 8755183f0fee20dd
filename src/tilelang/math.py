"""`tilelang.math`: arithmetic on sizes while a program is built; no kernel is involved."""

from __future__ import annotations


def next_power_of_2(x: int) -> int:
    """The least power of two not below x; 1 for x below 1."""
    return 1 << max(0, x - 1).bit_length()


def cdiv(a: int, b: int) -> int:
    """a / b rounded up. ZeroDivisionError for b = 0."""
    return -(-a // b)
