"""Checksums of the sealed files of the term index, taken when a commit has made them."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Final
from zlib import crc32

SEALED_SUFFIXES: Final = (
    ".idx", ".pos", ".term", ".fast", ".fieldnorm", ".store", ".del", ".terms",
)  # fmt: skip
"""Files that are written once: tantivy's segment files and our lexicon blobs."""


def sealed_files(folder: Path | None) -> dict[str, int]:
    """Name → size of the sealed files of an index folder; none in memory."""
    if folder is None:
        return {}
    found: dict[str, int] = {}
    for path in folder.iterdir():
        if path.suffix in SEALED_SUFFIXES:
            try:
                found[path.name] = path.stat().st_size
            except FileNotFoundError:  # a merge has just replaced it
                continue
    return found


def checksum(path: Path) -> int | None:
    """crc32 of a file; None when it is gone."""
    value = 0
    try:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                value = crc32(block, value)
    except FileNotFoundError:
        return None
    return value


def record_index_files(db: sqlite3.Connection, folder: Path | None) -> None:
    """Brings the catalog's checksums up to date; costs the files that are new.

    Takes from them what the umask gave to others: the engine knows no modes.
    """
    if folder is None:
        return
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):
            if entry.stat().st_mode & 0o077:
                os.chmod(entry.path, 0o600)
    known = dict(db.execute("SELECT name, size FROM index_files").fetchall())
    present = sealed_files(folder)
    db.executemany(
        "DELETE FROM index_files WHERE name=?", [(n,) for n in known if n not in present]
    )
    for name, size in present.items():
        if name not in known:
            crc = checksum(folder / name)
            if crc is not None:
                db.execute("INSERT OR REPLACE INTO index_files VALUES (?,?,?)", (name, size, crc))
