"""The functions that an object file takes from elsewhere.

What enters: an object file. What leaves: the names of its undefined symbols. A name that nobody has
ends the process when the file is loaded, so a loader looks first. Files other than 64-bit ELF
(System V gABI, chapter 4) are not looked into.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_SYMBOLS = 2  # sh_type of a symbol table: SHT_SYMTAB
_UNDEFINED = 0  # st_shndx of a symbol that another file defines: SHN_UNDEF


def undefined(code: bytes) -> Iterator[str]:
    """The names that the file uses and does not define."""
    if code[:5] != b"\x7fELF\x02":
        return
    order = "<" if code[5] == 1 else ">"
    (headers,) = struct.unpack_from(order + "Q", code, 40)
    size, count = struct.unpack_from(order + "HH", code, 58)
    sections: list[tuple[int, ...]] = [
        struct.unpack_from(order + "IIQQQQII", code, headers + k * size) for k in range(count)
    ]
    for _, kind, _, _, offset, length, link, _ in sections:
        if kind != _SYMBOLS:
            continue
        names = sections[link][4]
        for at in range(offset, offset + length, 24):
            entry: tuple[int, ...] = struct.unpack_from(order + "IBBH", code, at)
            name, section = entry[0], entry[3]
            if section == _UNDEFINED and name:
                start = names + name
                found = code[start : code.index(b"\0", start)].decode()
                if found != "_GLOBAL_OFFSET_TABLE_":  # made by whoever loads the file
                    yield found
