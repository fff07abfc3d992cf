"""Finds sources that are no longer where they were indexed, by what they hold."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sessiondex.indexer.refresh import RefreshOptions, session_files
from sessiondex.indexer.sources import recognise
from sessiondex.indexer.sources.base import SourceFile

if TYPE_CHECKING:
    from sessiondex.indexer.capture import Capture
    from sessiondex.indexer.snapshot import LibrarySnapshot


class MovedSources:
    """The files in the agents' homes that no session of the library is known to come from."""

    def __init__(self, snapshot: LibrarySnapshot, options: RefreshOptions) -> None:
        self._snapshot = snapshot
        self._options = options

    def find(self, capture: Capture) -> Path | None:
        """The file that begins with all records of a capture; the same name is tried first."""
        place = capture.source_file()
        for path in sorted(self._unknown, key=lambda path: path.name != place.absolute.name):
            if _begins_with(path, capture):
                return path
        return None

    @cached_property
    def _unknown(self) -> list[Path]:
        catalog = self._snapshot.catalog
        known = {row[0] for row in catalog.rows("SELECT path FROM sources WHERE format<>''")}
        found = session_files(catalog, [], self._options, report=lambda _: None)
        return [item.path for item in found if str(item.path) not in known]


def _begins_with(path: Path, capture: Capture) -> bool:
    source = SourceFile(path)
    format = recognise(source).format
    place = capture.source_file()
    if format is None or format.name != place.format:
        return False
    stub = next((each for each in format.stubs(source) if each.selector == place.selector), None)
    if stub is None:
        return False
    chain = b""
    for count, record in enumerate(format.parser(source, stub).records(), 1):
        chain = hashlib.sha256(chain + record.digest).digest()[:16]
        if count == capture.record_count:
            return chain.hex() == capture.digest
    return False
