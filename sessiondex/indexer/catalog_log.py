"""Checks the catalog's write-ahead log.

SQLite takes a damaged frame for the end of its log, and so would lose the commits behind it in
silence. A frame that is of this log and yet does not hold is told here. (Format: "WAL File Format"
in SQLite's documentation.)
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24
_BIG_ENDIAN: Final = 0x377F0683
_MAGIC: Final = (0x377F0682, _BIG_ENDIAN)


def log_problem(catalog: Path) -> str:
    """What is wrong with the log of a catalog; '' if nothing. No writer may be at work."""
    try:
        data = catalog.with_name(catalog.name + "-wal").read_bytes()
    except FileNotFoundError:
        return ""
    if len(data) <= _HEADER_BYTES + _FRAME_HEADER_BYTES:
        return ""
    magic, _, page_bytes, _, salt1, salt2, *check = struct.unpack_from(">8I", data)
    order = ">" if magic == _BIG_ENDIAN else "<"
    running = _checksum(data[:24], (0, 0), order)
    if magic not in _MAGIC or running != tuple(check):
        return "the header of its write-ahead log has changed (checksum check)"
    frame_bytes = _FRAME_HEADER_BYTES + page_bytes
    for offset in range(_HEADER_BYTES, len(data) - frame_bytes + 1, frame_bytes):
        salts = struct.unpack_from(">2I", data, offset + 8)
        if salts[0] != salt1 and salts[1] != salt2:
            return ""  # left by an earlier round of the log: both salts change together
        page = data[offset + _FRAME_HEADER_BYTES : offset + frame_bytes]
        running = _checksum(page, _checksum(data[offset : offset + 8], running, order), order)
        if salts != (salt1, salt2) or running != struct.unpack_from(">2I", data, offset + 16):
            return f"its write-ahead log has changed at offset {offset} (checksum check)"
    return ""


def _checksum(data: bytes, before: tuple[int, int], order: str) -> tuple[int, int]:
    first, second = before
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for one, two in zip(words, words, strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return first, second
