"""Keeps a library fresh as files grow: looks at their sizes and times, and indexes on a change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from sessiondex.errors import Busy
from sessiondex.indexer.library import Library
from sessiondex.indexer.refresh import RefreshOptions, session_files

INTERVAL_SECONDS: Final = 1.0


def watch(
    library: Library,
    paths: Sequence[Path],
    options: RefreshOptions,
    *,
    refresh: Callable[[], None],
    wait: Callable[[float], bool],
    report_busy: Callable[[Busy], None],
) -> None:
    """Refreshes now and whenever a file came, grew or went, until `wait` says to stop.

    Holds the writer lock only while it refreshes. A tail without a newline is looked at again
    when it has settled.
    """
    seen: object = None
    settles_at = 0.0
    while True:
        files = [
            (found.path, found.stat.st_size, found.stat.st_mtime_ns, found.stat.st_ino)
            for found in session_files(
                library.epoch().catalog, list(paths), options, report=lambda _: None
            )
        ]
        now = options.clock()
        if files != seen or now >= settles_at:
            try:
                refresh()
                seen, settles_at = files, now + options.settle_seconds
            except Busy as error:
                report_busy(error)
        if wait(INTERVAL_SECONDS):
            return
