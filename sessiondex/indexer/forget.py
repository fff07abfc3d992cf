"""Forgets sessions: removes every trace of them, and remembers only not to index them again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sessiondex.indexer.library import Library
from sessiondex.indexer.rebuild import rebuild
from sessiondex.indexer.refresh import SAME_SESSION


def forget_sessions(
    library: Library, sessions: Sequence[str], *, wait_seconds: float = 30.0
) -> dict[str, Any]:
    """Removes sessions from catalog, item store and index, which are written anew without them.

    Texts and copies that other sessions hold stay. The sources stay untouched, and `index` skips
    them until it is told to take them again.

    Returns:
        `{"sessions": [ids], "entries": n, "sources": [paths]}`.

    Raises:
        NotFound: one of them is not in the library; then nothing is forgotten.
        Busy: another writer holds the library.
    """
    with library.writing(wait_seconds=wait_seconds) as epoch:
        snapshot = library.snapshot()
        names = {snapshot.resolve(name) for name in sessions}
        rows = [row for row in snapshot.rows() if row.session in names]
        paths = [(row.source_path, row.selector) for row in rows if row.source_path]
        for source in epoch.catalog.sources():
            same = source.reason.removeprefix(SAME_SESSION)
            if source.reason.startswith(SAME_SESSION) and same in names:
                paths.append((source.path, ""))
        rebuild(
            library, epoch, keep=lambda row: row.session not in names, forgotten=sorted(set(paths))
        )
    return {
        "sessions": sorted(names),
        "entries": sum(row.entries for row in rows),
        "sources": sorted({path for path, _ in paths}),
    }
