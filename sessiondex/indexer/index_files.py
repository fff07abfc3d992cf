"""The files of the term index: which ones count, their checksums, and whether they still hold.

Segment files and lexicon blobs are written once. The catalog keeps their checksums from the commit
that made them; what a merge or a dead writer made later is checked by the engine's own footers.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sqlite3
import struct
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from sessiondex.errors import Damaged, Failed
from sessiondex.indexer.store_files import failing

_SEGMENT_SUFFIXES: Final = (".idx", ".pos", ".term", ".fast", ".fieldnorm", ".store")
_FOOTER_MAGIC: Final = 1337
_MAX_FOOTER: Final = 4096


def live_files(folder: Path) -> set[str]:
    """Names of the files that the index reads: those of its segments, and its lexicon blobs.

    Raises:
        Damaged: when the index does not say.
    """
    meta = _json(folder / "meta.json")
    names: set[str] = set()
    try:
        for segment in meta["segments"]:
            stem = segment["segment_id"].replace("-", "")
            names.update(stem + suffix for suffix in _SEGMENT_SUFFIXES)
            if segment["deletes"]:
                names.add(f"{stem}.{segment['deletes']['opstamp']}.del")
        if (folder / "lexicon.json").exists():
            names.update(_json(folder / "lexicon.json")["blobs"])
    except (LookupError, TypeError, AttributeError) as error:
        raise _unreadable(folder / "meta.json", error) from error
    return names


def record_index_files(db: sqlite3.Connection, folder: Path | None) -> None:
    """Brings the catalog's checksums up to date; costs the files that are new.

    Takes from all files what the umask gave to others: the engine knows no modes.
    """
    if folder is None:
        return
    with failing("read", folder):
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat().st_mode & 0o077:
                        os.chmod(entry.path, 0o600)
        known = {name for (name,) in db.execute("SELECT name FROM index_files")}
        # A file of a merge that is still going on is no file of the index yet.
        live = live_files(folder)
        db.executemany("DELETE FROM index_files WHERE name=?", [(n,) for n in known - live])
        for name in sorted(live - known):
            found = _size_and_checksum(folder / name)
            if found is not None:
                db.execute("INSERT OR REPLACE INTO index_files VALUES (?,?,?)", (name, *found))


def file_problems(folder: Path, listed: Iterable[tuple[str, int, int]]) -> Iterator[str]:
    """What is wrong with the files of an index, given the (name, size, crc32) that were kept."""
    kept = {name: (size, crc) for name, size, crc in listed}
    meta = _json(folder / "meta.json")
    fresh = _fresh_meta()
    for part in ("schema", "index_settings"):
        if meta.get(part) != fresh[part]:
            yield f"meta.json has changed: its {part} is not what this release writes"
    live = live_files(folder)
    segments = {name for name in live if not name.startswith("lexicon")}
    for name in sorted({*segments, "meta.json"} - set(_json(folder / ".managed.json"))):
        yield f".managed.json has changed: {name} is not in it"
    for name in sorted(live):
        found = _size_and_checksum(folder / name)
        if found is None:
            yield f"{name} is missing"
        elif name in kept and found != kept[name]:
            yield f"{name} has changed (crc32 check)"
        elif name not in kept and name in segments and not _has_true_footer(folder / name):
            yield f"{name} has changed (footer check)"


def _size_and_checksum(path: Path) -> tuple[int, int] | None:
    """Size and crc32 of a file; None when it is gone."""
    value = size = 0
    try:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                value = crc32(block, value)
                size += len(block)
    except FileNotFoundError:
        return None
    return size, value


def _has_true_footer(path: Path) -> bool:
    """Whether a file ends in the engine's footer, which holds the crc32 of what stands before."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        file.seek(max(size - _MAX_FOOTER, 0))
        end = file.read()
        if len(end) < 8:
            return False
        length, magic = struct.unpack("<II", end[-8:])
        if magic != _FOOTER_MAGIC or length + 8 > len(end):
            return False
        try:
            wanted = json.loads(end[-8 - length : -8])["crc"]
        except (ValueError, LookupError, TypeError):
            return False
        value, left = 0, size - 8 - length
        file.seek(0)
        while left and (block := file.read(min(left, 1 << 20))):
            value = crc32(block, value)
            left -= len(block)
    return value == wanted


@functools.cache
def _fresh_meta() -> dict[str, Any]:
    """`meta.json` of an empty index of this release."""
    from sessiondex.indexer.term_index import TermIndex

    with tempfile.TemporaryDirectory(prefix="sessiondex-") as folder:
        TermIndex.create(Path(folder) / "index")
        return _json(Path(folder) / "index" / "meta.json")


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise _unreadable(path, "it is missing") from error
    except OSError as error:
        raise Failed(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, why: object) -> Damaged:
    return Damaged(f"{path} cannot be read: {why}", hint="run 'sessiondex check --repair'")
