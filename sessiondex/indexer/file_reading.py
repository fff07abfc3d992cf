"""Reads one new file whole: its format, its sessions, each as chunks that are ready to be written.

Knows no library, so that it can be done ahead in another process (see `read_ahead`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from sessiondex.indexer.assembly import Assembler
from sessiondex.indexer.fingerprint import fingerprint, resume_offset
from sessiondex.indexer.preparing import ChunkBuilder, FacetLists, SessionChunk, session_chunks
from sessiondex.indexer.sources import recognise
from sessiondex.indexer.sources.base import Format, Parser, SessionStub, SourceFile, SourceOptions
from sessiondex.indexer.sources.discovery import Exclusion

PEEKED_RECORDS = 200
"""Records that are looked at to learn the project of a file that may be excluded."""


class Contents(NamedTuple):
    """What a file is."""

    format: str
    """Name of its format; '' if it has none."""
    reason: str
    """Why it has none."""
    is_excluded: bool
    """Its project is never indexed."""
    stubs: list[SessionStub]
    """Its sessions, in order; of a file that can be read and is not excluded."""


class ReadingOptions(NamedTuple):
    """How files are read."""

    source: SourceOptions
    exclude: tuple[str, ...]
    chunk_bytes: int


class FileReading(Protocol):
    """A file that is read here, or was read ahead.

    All methods raise what reading the file raises.
    """

    def contents(self) -> Contents: ...

    def chunks(self, stub: SessionStub) -> Iterator[SessionChunk]:
        """The committed records of a session from its beginning; stubs in order, each once."""
        ...

    def head(self, state: dict[str, Any]) -> bytes:
        """Fingerprint of the file as read up to its resume states; asked for last."""
        ...


class DirectReading:
    """Reads a file in this process."""

    def __init__(
        self, source: SourceFile, options: ReadingOptions, facets: FacetLists, *, has_settled: bool
    ) -> None:
        self.source = source
        self.format: Format | None = None
        self._options = options
        self._facets = facets
        self._has_settled = has_settled

    def contents(self) -> Contents:
        self.format, reason = recognise(self.source)
        if self.format is None:
            return Contents("", reason, False, [])
        stubs = self.format.stubs(self.source)
        is_excluded = self._is_excluded(self.format, stubs)
        return Contents(self.format.name, "", is_excluded, [] if is_excluded else stubs)

    def _is_excluded(self, format: Format, stubs: Iterable[SessionStub]) -> bool:
        """Whether the session's working folder is excluded; discovery has checked the path."""
        exclusion = Exclusion(self._options.exclude)
        if not exclusion:
            return False
        for stub in stubs:
            parser = format.parser(self.source, stub)
            for count, _ in enumerate(parser.records()):
                if parser.header.project or count >= PEEKED_RECORDS:
                    break
            project = parser.header.project
            if project and exclusion.matches_project(project):
                return True
        return False

    def parser(self, stub: SessionStub, state: dict[str, Any] | None = None) -> Parser:
        """A parser of one of the sessions; `contents` was asked before."""
        assert self.format is not None
        parser = self.format.parser(self.source, stub, state)
        if self._has_settled:
            parser.settle = True
        return parser

    def chunks(self, stub: SessionStub) -> Iterator[SessionChunk]:
        parser = self.parser(stub)
        builder = ChunkBuilder(self._facets, parser.header.agent)
        return session_chunks(
            parser.records(), parser, Assembler(), builder, chunk_bytes=self._options.chunk_bytes
        )

    def head(self, state: dict[str, Any]) -> bytes:
        return fingerprint(Path(self.source.path), resume_offset(state))
