"""One session file that an agent is writing now, captured again and again.

What was read stays in memory, so that a capture costs the bytes written since the last one.
Nothing is ever written to disk, not to a library either. Where a library holds the session, its
entries are taken from there; else, and when the file was rewritten, it is read whole once.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sessiondex.errors import Failed, NotFound
from sessiondex.indexer.assembly import AssembledEntry, Assembler
from sessiondex.indexer.capture import Capture, LiveTail
from sessiondex.indexer.catalog import SessionRow, SourceRow
from sessiondex.indexer.fingerprint import fingerprint, resume_offset
from sessiondex.indexer.host_items import HEAP_BYTES, library_of_path
from sessiondex.indexer.library import Library
from sessiondex.indexer.refresh import RefreshOptions, index_library
from sessiondex.indexer.snapshot import LibrarySnapshot
from sessiondex.indexer.sources import format_named
from sessiondex.indexer.sources.base import Parser, SessionStub, SourceFile
from sessiondex.limits import SETTLE_SECONDS
from sessiondex.model import Fact, Record

FOLD_ENTRIES: Final = 2_000
FOLD_BYTES: Final = 1 << 20
"""A tail of this many entries or bytes is put into an index in memory: searching it entry by
entry would cost more (measured: folding 50-100 ms, scanning 1 MiB about 20 ms a search)."""

REREAD_ENTRIES: Final = 4_000
REREAD_BYTES: Final = 8 << 20
"""The same behind a library on disk, where the whole file must be read for it, once. Above 4,096
entries a tail cannot be ranked."""


@dataclass(frozen=True, slots=True)
class _Base:
    """What a tail stands behind: a session of a library, on disk or in memory."""

    library: Library
    snapshot: LibrarySnapshot
    known: SessionRow
    """As the library has it."""
    row: SessionRow
    """As captures show it: with the generations that came before a library in memory."""
    source: SourceRow


class LiveSession:
    """Captures one session of one file as it grows. Thread-safe."""

    def __init__(
        self, path: Path, root: Path, stub: SessionStub, *, library: Library | None = None
    ) -> None:
        self.path = path
        self._root = root
        self._stub = stub
        self._library = library
        self._lock = threading.Lock()
        self._base: _Base | None = None

    def capture(self, *, now: float) -> Capture:
        """The committed entries at this moment.

        Raises:
            NotFound: the file is gone, or holds no such session or no committed entry.
            Failed: it cannot be read.
        """
        with self._lock:
            try:
                base = self._read(now)
            except FileNotFoundError:
                raise NotFound(f"no file {self.path}") from None
            except OSError as error:
                raise Failed(f"{self.path} cannot be read: {error.strerror}") from error
            return Capture(
                base.row, base.snapshot.view, mark=base.snapshot.mark,
                searcher=base.snapshot.searcher, owner=base.library,
                tail=LiveTail(
                    tuple(self._entries), tuple(self._records), tuple(self._facts),
                    self._chain.hex() if self._records else "",
                ),
            )  # fmt: skip

    def _read(self, now: float) -> _Base:
        """Takes in what is new; gives the base behind which the tail stands."""
        base = self._current()
        found = os.stat(self.path)
        has_settled = now - found.st_mtime >= SETTLE_SECONDS
        stamp = (found.st_size, found.st_mtime_ns, has_settled)
        if stamp != self._stamp:
            if not self._advance(base, has_settled=has_settled):
                base = self._reread(base, now)
                if not self._advance(base, has_settled=has_settled):
                    raise Failed(f"{self.path} changes faster than it can be read")
            self._stamp = stamp
        if self._is_long(base):
            base = self._reread(base, now)
            self._advance(base, has_settled=has_settled)
        return base

    def _is_long(self, base: _Base) -> bool:
        """Whether the tail is better put into an index."""
        if base.library is self._library:
            return len(self._entries) > REREAD_ENTRIES or self._text_bytes > REREAD_BYTES
        return len(self._entries) > FOLD_ENTRIES or self._text_bytes > FOLD_BYTES

    # ------------------------------------------------------------ the base

    def _current(self) -> _Base:
        """The base; a new one where the library was refreshed since."""
        if self._base is None:
            base = self._of_library() or self._in_memory(None)
            return self._begin(base)
        if self._base.library is self._library:
            commit = self._base.library.epoch().catalog.meta("commit")
            if commit != self._base.snapshot.commit:
                fresh = self._of_library()
                if fresh is None or (self._records and not self._has_only_grown()):
                    # What was shown behind the old base must not change under its refs.
                    return self._begin(self._in_memory(self._base))
                return self._begin(fresh)
        return self._base

    def _of_library(self) -> _Base | None:
        """The session in the library that was given, if it holds it."""
        if self._library is None:
            return None
        snapshot = self._library.snapshot()
        source = snapshot.catalog.source(os.path.realpath(self.path))
        if source is None or not source.format:
            return None
        format = format_named(source.format)
        for row in snapshot.catalog.of_source(source.source):
            if row.selector == self._stub.selector and row.parser_version == format.parser_version:
                return _Base(self._library, snapshot, row, row, source)
        return None

    def _in_memory(self, before: _Base | None) -> _Base:
        """The file read whole into a library in memory.

        Its generations go on from those that were shown before.

        Raises:
            NotFound: the file holds no such session.
        """
        library = library_of_path(self.path, root=self._root)
        snapshot = library.snapshot()
        for row in snapshot.rows(newest_first=False):
            if row.selector == self._stub.selector:
                source = snapshot.catalog.source(row.source_path)
                if source is not None:
                    return _Base(
                        library, snapshot, row, self._renamed(row, snapshot, before), source
                    )
        raise NotFound(f"{self.path} holds no committed entry yet")

    def _renamed(
        self, row: SessionRow, snapshot: LibrarySnapshot, before: _Base | None
    ) -> SessionRow:
        """The row as the next generation of what was shown before, or as the same one."""
        if before is None:
            return row
        shown = before.row
        if self._is_void:
            # What the records say has changed, though they have not: no ref may be kept.
            return replace(
                row, session=shown.session, generation=shown.generation + 1,
                shared=[*shown.shared, 0],
            )  # fmt: skip
        first = before.known.records
        if before.known.ord == row.ord and before.library is snapshot.library:
            held: Iterable[Record] = ()  # only appended to: the same records
            begin = first
        else:
            held = before.snapshot.view.records(before.known.ord, 0, first)
            begin = 0
        digests = [record.digest for record in (*held, *self._records)]
        shared = begin + _shared(digests, snapshot.view.records(row.ord, begin, row.records))
        if shared == begin + len(digests):
            return replace(
                row, session=shown.session, generation=shown.generation, shared=shown.shared
            )
        return replace(
            row, session=shown.session, generation=shown.generation + 1,
            shared=[*shown.shared, shared],
        )  # fmt: skip

    def _reread(self, base: _Base, now: float) -> _Base:
        """What the file holds now, as a base without a tail."""
        if base.library is self._library:
            return self._begin(self._in_memory(base))
        options = RefreshOptions(heap_bytes=HEAP_BYTES, clock=lambda: now)
        index_library(base.library, [self.path], options=options)
        snapshot = base.library.snapshot()
        known = snapshot.catalog.current(base.known.session)
        source = snapshot.catalog.source(base.known.source_path)
        if known is None or source is None:
            raise NotFound(f"{self.path} holds no such session any more")
        row = self._renamed(known, snapshot, base)
        return self._begin(_Base(base.library, snapshot, known, row, source))

    # ------------------------------------------------------------ the tail

    def _begin(self, base: _Base) -> _Base:
        """Forgets the tail and begins a new one behind a base."""
        self._base = base
        self._entries: list[AssembledEntry] = []
        self._records: list[Record] = []
        self._facts: list[Fact] = []
        self._text_bytes = 0
        self._is_void = False
        """The parser found that what it said of earlier records does not hold."""
        self._chain = bytes.fromhex(base.row.digest)
        self._stamp: tuple[int, int, bool] | None = None
        self._parser: Parser | None = None
        state = base.source.state.get(self._stub.selector)
        self._file = SourceFile(self.path, self._root)
        self._format = format_named(base.known.format)
        if state and self._format.is_line_format and not self._file.is_compressed:
            self._parser = self._format.parser(self._file, self._stub, state["parser"])
            self._assembler = Assembler(state["assembler"])
            self._offset = resume_offset(base.source.state)
            self._head = base.source.head
        return base

    def _has_only_grown(self) -> bool:
        return self._parser is not None and fingerprint(self.path, self._offset) == self._head

    def _advance(self, base: _Base, *, has_settled: bool) -> bool:
        """Takes in what was committed since; False where the file did not merely grow."""
        parser = self._parser
        if parser is None:
            found = os.stat(self.path)
            return (found.st_size, found.st_mtime_ns) == (base.source.size, base.source.mtime_ns)
        if not self._has_only_grown():
            return False
        parser.settle = has_settled
        for record in parser.records():
            if record.provisional:
                # The parser has looked at it; the next one must not have.
                self._parser = self._format.parser(self._file, self._stub, parser.state())
                break
            self._entries += (assembled := self._assembler.assemble(record))
            self._text_bytes += sum(len(each.data) for each in assembled)
            self._facts += record.facts
            self._chain = hashlib.sha256(self._chain + record.digest).digest()[:16]
            record.items = []
            self._records.append(record)
            self._offset = record.byte_offset + record.byte_length
        if getattr(parser, "needs_reread", False):
            self._is_void = True
            return False
        self._head = fingerprint(self.path, self._offset)
        return bool(self._head)


def _shared(digests: list[bytes], records: Iterable[Record]) -> int:
    """How many leading records are the same."""
    count = 0
    for digest, record in zip(digests, records, strict=False):
        if digest != record.digest:
            break
        count += 1
    return count
