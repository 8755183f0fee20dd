"""Compiled kernels on disk: a folder of entries, each named by what its content was made from.

What enters: a key (`runtime/identity.py` makes it) and an `Entry`, plain facts and named bytes,
whatever the target. What leaves: the same entry, or None where there is none that is whole. Any
number of processes may use one folder: an entry appears under its name complete or not at all, and
one that is damaged counts as absent, so that it is made again. A folder that cannot be written
costs time and is said once; it never stops a program.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import struct
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

NAMESPACE = "tilewright"
"""The part of the cache folder that is ours: upstream TileLang may use the same folder."""

LIMIT = 512 << 20
"""Bytes that a folder holds before its oldest entries go."""

_MAGIC = b"TWCACHE1"
_HEAD = struct.Struct("<8s32sQ")
"""The magic, the checksum of all that follows it, and the length of what follows the head."""

_SUFFIX = ".kernel"
_STALE = 3600.0
"""Seconds after which a file that a writer left behind unfinished is removed."""

_warned: set[str] = set()


@dataclass(frozen=True)
class Entry:
    """What is kept of one compilation: facts that JSON can hold, and bytes by name."""

    facts: Mapping[str, Any]
    blobs: Mapping[str, bytes]


def pack(key: str, entry: Entry) -> bytes:
    """The bytes of a file: head, a JSON header (facts, and the lengths of the blobs), the blobs."""
    sizes = {name: len(blob) for name, blob in entry.blobs.items()}
    header = json.dumps({"facts": entry.facts, "blobs": sizes}).encode()
    body = b"".join([struct.pack("<Q", len(header)), header, *entry.blobs.values()])
    return _HEAD.pack(_MAGIC, _checksum(key, body), len(body)) + body


def unpack(key: str, data: bytes) -> Entry | None:
    """The entry that `pack` wrote under `key`; None for anything else."""
    if len(data) < _HEAD.size + 8:
        return None
    magic, checksum, length = _HEAD.unpack_from(data)
    body = memoryview(data)[_HEAD.size :]
    if magic != _MAGIC or length != len(body) or checksum != _checksum(key, body):
        return None
    at = 8 + struct.unpack_from("<Q", body)[0]
    header = json.loads(bytes(body[8:at]))
    blobs: dict[str, bytes] = {}
    for name, size in cast("dict[str, int]", header["blobs"]).items():
        blobs[name] = bytes(body[at : at + size])
        at += size
    return Entry(header["facts"], blobs)


def _checksum(key: str, body: bytes | memoryview) -> bytes:
    """Of the content and the name it belongs under, so that a file that was renamed is no entry."""
    digest = hashlib.sha256(key.encode())
    digest.update(body)
    return digest.digest()


@dataclass(frozen=True)
class Stored:
    """A file of the folder: its size in bytes, and when it was last used (seconds since 1970)."""

    path: Path
    size: int
    used: float


class Store:
    """The entries below one cache folder (the setting `cache_dir`)."""

    def __init__(self, cache_dir: Path, limit: int = LIMIT) -> None:
        self.folder = cache_dir / NAMESPACE
        self.limit = limit

    def path(self, key: str) -> Path:
        """Where the entry of a key is."""
        return self.folder / f"{key}{_SUFFIX}"

    def get(self, key: str) -> Entry | None:
        """The entry under `key`, None where there is none that is whole."""
        path = self.path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        entry = unpack(key, data)
        if entry is not None:
            _touch(path)
        return entry

    def put(self, key: str, entry: Entry) -> bool:
        """Keep an entry, in place of one that is there; gives whether that was possible."""
        data = pack(key, entry)
        temporary = self.folder / f"{key}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
        try:
            # Whoever can write here can have code run: nobody else but the owner.
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(temporary, data)
            os.replace(temporary, self.path(key))
        except OSError as exc:
            _remove(temporary)
            self._warn(exc)
            return False
        # One put in sixteen looks at the size of the folder. Keys are uniform, so this needs no
        # state that processes would have to share.
        if key.startswith("0"):
            self.shrink()
        return True

    def entries(self) -> list[Stored]:
        """The entries, the least recently used first."""
        return sorted(self._files(_SUFFIX), key=lambda each: each.used)

    def shrink(self) -> None:
        """Remove the least recently used entries until three quarters of the limit are left, if it
        is exceeded, and what writers that died have left.
        """
        for each in self._files(".tmp"):
            if each.used < time.time() - _STALE:
                _remove(each.path)
        entries = self.entries()
        total = sum(each.size for each in entries)
        wanted = total if total <= self.limit else self.limit * 3 // 4
        for each in entries:
            if total <= wanted:
                return
            _remove(each.path)
            total -= each.size

    def clear(self) -> int:
        """Remove all entries and unfinished files; gives the number of entries. Nothing else in the
        folder is touched. OSError where the folder cannot be changed.
        """
        entries = self.entries()
        for each in (*entries, *self._files(".tmp")):
            each.path.unlink(missing_ok=True)
        return len(entries)

    def _files(self, suffix: str) -> Iterator[Stored]:
        try:
            with os.scandir(self.folder) as found:
                for each in found:
                    if each.name.endswith(suffix):
                        yield from _stored(each)
        except OSError:
            return

    def _warn(self, exc: OSError) -> None:
        folder = str(self.folder)
        if folder not in _warned:
            _warned.add(folder)
            warnings.warn(
                f"compiled kernels cannot be kept in {folder}: {exc.strerror or exc}. Each process "
                "compiles its kernels anew; set TILELANG_CACHE_DIR to a folder that can be "
                "written, or TILELANG_DISABLE_CACHE=1",
                RuntimeWarning,
                stacklevel=2,
            )


def _stored(found: os.DirEntry[str]) -> Iterator[Stored]:
    """The file, unless another process has removed it meanwhile."""
    try:
        facts = found.stat()
    except OSError:
        return
    yield Stored(Path(found.path), facts.st_size, facts.st_mtime)


def _write(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(data)


def _touch(path: Path) -> None:
    """Note that an entry is in use; a folder that can only be read has no need of it."""
    try:
        os.utime(path)
    except OSError:
        return


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return
