"""Brings a library up to date with session files: what to read, and how little of it.

An unchanged file costs a `stat`, an append its new bytes. A file that is no longer what it was
is compared record by record with what is known: if it still holds all of that, it goes on;
otherwise the session gets a new generation that remembers how many leading records it shares.

Longer than a module should be: the ways to read a session share the state of one run, and stand
side by side because each falls back on the next.
"""

from __future__ import annotations

import gc
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sessiondex.errors import SessiondexError
from sessiondex.indexer.assembly import Assembler
from sessiondex.indexer.catalog import Catalog
from sessiondex.indexer.catalog_rows import SessionRow, SourceRow
from sessiondex.indexer.file_reading import DirectReading, FileReading, ReadingOptions
from sessiondex.indexer.fingerprint import fingerprint, resume_offset
from sessiondex.indexer.preparing import (
    CHUNK_BYTES,
    ChunkBuilder,
    FacetLists,
    Fault,
    SessionChunk,
    record_faults,
    session_chunks,
)
from sessiondex.indexer.sources import NO_SESSION, UNREADABLE, format_named
from sessiondex.indexer.sources.base import (
    CUT,
    DamagedCompression,
    Format,
    Parser,
    SessionStub,
    SourceFile,
    SourceOptions,
    real_path,
)
from sessiondex.indexer.sources.discovery import (
    Found,
    Unreadable,
    default_homes,
    discover,
)
from sessiondex.indexer.writing import LibraryWriter, SessionSink
from sessiondex.limits import RECORD_BYTES, SETTLE_SECONDS
from sessiondex.model import Record, SessionHeader

if TYPE_CHECKING:
    from sessiondex.indexer.library import Epoch, Library
    from sessiondex.indexer.read_ahead import ReadAhead

BATCH_BYTES: Final = 64 * 1024 * 1024
"""Text that is written before it is committed; bounds what an interruption loses."""

HEAP_BYTES: Final = 64 * 1024 * 1024
"""Memory of the index writer."""

KEPT_FAULTS: Final = 100
"""Corrupt records that are remembered of one file."""

SAME_SESSION: Final = "the same session as "
"""Begins the reason of a file that holds nothing beyond a session another file has."""

READ_AHEAD_BYTES: Final = 16 * 1024 * 1024
"""New files of less than this are read before another process has started."""

MOST_PROCESSES: Final = 3
"""More than this many only wait for the one that writes."""


@dataclass(frozen=True, slots=True)
class RefreshOptions:
    """Settings of a refresh."""

    home: Path | None = None
    """Looks for agents below this folder instead of the user's; overrides the environment."""
    more_homes: tuple[Path, ...] = ()
    """Further folders below which agents are looked for."""
    environ: Mapping[str, str] | None = None
    exclude: tuple[str, ...] = ()
    """Globs of project folders, slugs or files that are never indexed."""
    again: bool = False
    """Index also what was forgotten."""
    wait_seconds: float = 30.0
    settle_seconds: float = SETTLE_SECONDS
    record_bytes: int = RECORD_BYTES.default
    batch_bytes: int = BATCH_BYTES
    heap_bytes: int = HEAP_BYTES
    processes: int = 0
    """Processes that work on a large import, this one too; 0 chooses, 1 does all in this one."""
    read_ahead_bytes: int = READ_AHEAD_BYTES
    """New files of at least this size in all are a large import."""
    clock: Callable[[], float] = time.time
    progress: Callable[[Progress], None] | None = None

    def readers(self) -> int:
        """Processes that read ahead of this one, which writes."""
        return (self.processes or min(_processors(), MOST_PROCESSES)) - 1


class Progress(NamedTuple):
    """How far a refresh is, in files and source bytes."""

    files: int
    all_files: int
    bytes: int
    all_bytes: int


@dataclass(slots=True)
class IndexReport:
    """What a refresh did."""

    seen: int = 0
    indexed: int = 0
    unchanged: int = 0
    skipped: int = 0
    failed: int = 0
    sessions: int = 0
    """Sessions that are new or changed."""
    entries: int = 0
    """Entries added."""
    bytes: int = 0
    """Source bytes read."""
    seconds: float = 0.0
    failures: list[dict[str, str]] = field(default_factory=list)
    corrupt_records: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "files": {
                "seen": self.seen,
                "indexed": self.indexed,
                "unchanged": self.unchanged,
                "skipped": self.skipped,
                "failed": self.failed,
            },
            "sessions": self.sessions,
            "entries": self.entries,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "failures": self.failures,
            "corrupt_records": self.corrupt_records,
        }


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def index_library(
    library: Library, paths: Iterable[str | Path] = (), *, options: RefreshOptions | None = None
) -> IndexReport:
    """Indexes files and folders; without paths, the agents' homes and all known files.

    Raises:
        Busy: another writer holds the library.
        Failed: the disk or the index failed; what was committed stays.
    """
    options = options or RefreshOptions()
    began = time.perf_counter()
    with library.writing(wait_seconds=options.wait_seconds) as epoch:
        if epoch.index is None:
            from sessiondex.indexer.rebuild import rebuild

            epoch = rebuild(library, epoch)
        report = _Refresh(epoch, options).run([Path(path) for path in paths])
    report.seconds = time.perf_counter() - began
    return report


def session_files(
    catalog: Catalog,
    paths: list[Path],
    options: RefreshOptions,
    *,
    report: Callable[[Unreadable], None],
) -> list[Found]:
    """The files that a refresh looks at, newest first: those at the paths, or without paths those
    in the agents' homes and all that are known."""
    if paths:
        roots = [real_path(path) for path in paths]
        return list(discover(roots, report=report, exclude=options.exclude))
    environ = os.environ if options.environ is None else options.environ
    homes = [
        real_path(home.path)
        for base in (options.home, *options.more_homes)
        for home in default_homes(environ, home=base)
    ]
    found = {
        str(item.path): item for item in discover(homes, report=report, exclude=options.exclude)
    }
    roots_known: dict[str, str] = dict(
        catalog.rows(
            "SELECT path,root FROM sources WHERE format<>''"
            # What is broken now, read while it was written perhaps, may be whole the next time.
            " OR source IN (SELECT source FROM sessions WHERE current=1)"
        )
    )
    others = [Path(path) for path in roots_known if path not in found and os.path.exists(path)]
    for item in discover(others, report=report, exclude=options.exclude):
        path = str(item.path)
        found[path] = item._replace(root=Path(roots_known.get(path, item.root)))
    return sorted(found.values(), key=lambda item: item.stat.st_mtime_ns, reverse=True)


class _Rewritten(Exception):
    """The source differs from what is known after some shared records."""

    def __init__(self, shared: int) -> None:
        super().__init__(shared)
        self.shared = shared


class _Refresh:
    """One run over a set of files. Holds a writer only while there is something to write."""

    def __init__(self, epoch: Epoch, options: RefreshOptions) -> None:
        self._epoch = epoch
        self._catalog = epoch.catalog
        self._options = options
        self._reading_options = ReadingOptions(
            SourceOptions(record_bytes=options.record_bytes), options.exclude,
            min(CHUNK_BYTES, options.batch_bytes),
        )  # fmt: skip
        self._facets = FacetLists()
        self._ahead: ReadAhead | None = None
        self._is_ahead: set[str] = set()
        """Paths of the files that it reads."""
        self._report = IndexReport()
        self._writer: LibraryWriter | None = None
        self._sources: dict[str, SourceRow] = {}
        """Rows that were read but not committed yet."""
        self._next_source: int = self._catalog.row("SELECT ifnull(max(source),0)+1 FROM sources")[0]
        self._again: list[str] = []
        self._forgotten: dict[str, set[str]] = {}
        """Path → selectors of sessions that are not indexed again."""
        self._touched: set[str] = set()

    # ------------------------------------------------------------ the run

    def run(self, paths: list[Path]) -> IndexReport:
        thresholds = gc.get_threshold()
        try:
            self._run(paths)
        except BaseException:
            if self._writer is not None:
                with suppress(SessiondexError):  # the first error is the one to tell
                    self._writer.abandon()
            raise
        finally:
            self._end_reading_ahead()
            gc.set_threshold(*thresholds)
        return self._report

    def _run(self, paths: list[Path]) -> None:
        found = session_files(self._catalog, paths, self._options, report=self._unreadable)
        known: dict[str, tuple[int, int, int, int, int, str]] = {
            row[0]: row[1:]
            for row in self._catalog.rows(
                "SELECT path,size,mtime_ns,inode,pending,parser_version,format FROM sources"
            )
        }
        for path, selector in self._catalog.rows("SELECT path, selector FROM forgotten"):
            self._forgotten.setdefault(path, set()).add(selector)
        self._read_ahead([item for item in found if str(item.path) not in known])
        all_bytes = sum(item.stat.st_size for item in found)
        done_bytes = 0
        changed = False
        for count, item in enumerate(found):
            self._report.seen += 1
            path = str(item.path)
            row = known.get(path)
            if path in self._forgotten:
                if self._options.again:
                    self._again.append(path)
                    del self._forgotten[path]
                elif row is None:
                    self._report.skipped += 1
                    continue
            if row is not None and path not in self._again and self._is_unchanged(row, item):
                if row[5]:
                    self._report.unchanged += 1
                else:
                    self._report.skipped += 1
            else:
                changed = True
                self._read(item)
            done_bytes += item.stat.st_size
            if self._options.progress is not None:
                self._options.progress(Progress(count + 1, len(found), done_bytes, all_bytes))
            if self._writer is not None and (
                self._writer.uncommitted_bytes >= self._options.batch_bytes
            ):
                self._commit()
        seen = {str(item.path) for item in found}
        gone = [path for path in known if path not in seen and not os.path.exists(path)]
        if changed or self._writer is not None:
            self._commit()
        if self._writer is not None:
            self._writer.close(final=True)
        with self._catalog.transaction() as db:
            db.executemany(
                "UPDATE sources SET gone=1 WHERE path=? AND gone=0", [(path,) for path in gone]
            )
            db.executemany(
                "UPDATE sources SET gone=0 WHERE path=? AND gone=1",
                [(path,) for path in seen if path in known],
            )
            db.execute("UPDATE meta SET value=? WHERE name='refreshed_at'", (self._now_ms(),))
        self._report.sessions = len(self._touched)

    def _unreadable(self, item: Unreadable) -> None:
        self._report.failures.append({"file": str(item.path), "reason": item.reason})
        self._report.failed += 1

    def _now_ms(self) -> int:
        return int(self._options.clock() * 1000)

    def _is_unchanged(self, row: tuple[int, int, int, int, int, str], item: Found) -> bool:
        size, mtime_ns, inode, pending, version, name = row
        if (size, mtime_ns, inode) != (item.stat.st_size, item.stat.st_mtime_ns, item.stat.st_ino):
            return False
        if name and format_named(name).parser_version != version:
            return False
        return not (pending and self._has_settled(item))

    def _has_settled(self, item: Found) -> bool:
        return self._options.clock() - item.stat.st_mtime >= self._options.settle_seconds

    def _read_ahead(self, new: list[Found]) -> None:
        """Lets other processes read the new files, if they are worth it."""
        new = [item for item in new if str(item.path) not in self._forgotten]
        readers = self._options.readers()
        if not readers or sum(item.stat.st_size for item in new) < self._options.read_ahead_bytes:
            return
        from sessiondex.indexer.read_ahead import FileTask, ReadAhead

        tasks = [FileTask(str(item.path), str(item.root), self._has_settled(item)) for item in new]
        with suppress(OSError):  # no process can be made: all is read here
            self._ahead = ReadAhead(tasks, self._reading_options, readers)
            self._is_ahead = {task.path for task in tasks}
            # Millions of objects pass, none of them in a cycle: looking at them costs a tenth.
            gc.set_threshold(100_000)

    def _end_reading_ahead(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None
            self._is_ahead = set()

    def _commit(self) -> None:
        writer = self._writing()
        writer.commit(list(self._sources.values()), again=tuple(self._again))
        self._sources = {}

    def _writing(self) -> LibraryWriter:
        if self._writer is None:
            self._writer = LibraryWriter(
                self._epoch, heap_bytes=self._options.heap_bytes, now_ms=self._now_ms
            )
        return self._writer

    # ------------------------------------------------------------ one file

    def _read(self, item: Found) -> None:
        path = str(item.path)
        before = self._catalog.source(path)
        source = SourceFile(item.path, item.root, self._reading_options.source)
        row = SourceRow(
            source=before.source if before else self._next_source,
            path=path,
            root=str(item.root),
            format="",
            parser_version=0,
            size=item.stat.st_size,
            mtime_ns=item.stat.st_mtime_ns,
            inode=item.stat.st_ino,
        )
        if before is None:
            self._next_source += 1
        self._sources[path] = row
        entries_before = self._report.entries
        try:
            file = self._reading(item, source)
            contents = file.contents()
            if not contents.format:
                if contents.reason in NO_SESSION:
                    self._report.skipped += 1
                else:
                    self._fail(row, contents.reason)
                    if contents.reason.startswith(UNREADABLE):
                        row.mtime_ns = -1  # permissions change no time of a file
                return
            format = format_named(contents.format)
            row.parser_version = format.parser_version
            if contents.is_excluded:
                self._report.skipped += 1
                return
            row.format = format.name
            skip = self._forgotten.get(path, set())
            stubs = [stub for stub in contents.stubs if stub.selector not in skip]
            for stub in stubs:
                reading = _Reading(
                    format, source, stub, row, file, self._has_settled(item), stub is stubs[-1]
                )
                self._read_session(reading, before)
            row.head = file.head(row.state)
            if source.is_cut():
                raise DamagedCompression(CUT)
            self._report.indexed += 1
        except SessiondexError as error:
            if error.kind in ("damaged", "busy", "internal") or self._is_fatal(error):
                raise
            self._fail(row, error.message if not error.hint else str(error))
        except OSError as error:
            self._fail(row, f"{error.strerror or error}")
            row.mtime_ns = -1  # not the file's fault for ever: looked at again next time
        finally:
            self._report.corrupt_records.extend(row.corrupt)
            if self._report.entries > entries_before:
                self._report.bytes += item.stat.st_size

    def _is_fatal(self, error: SessiondexError) -> bool:
        """Whether the library or a process that reads ahead failed, not the file."""
        if self._ahead is not None and self._ahead.is_broken:
            return True
        if self._writer is not None and self._writer.is_dead:
            return True
        return isinstance(error.__cause__, (sqlite3.Error, OSError))

    def _fail(self, row: SourceRow, reason: str) -> None:
        row.reason = reason
        self._report.failed += 1
        self._report.failures.append({"file": row.path, "reason": reason})

    def _reading(self, item: Found, source: SourceFile) -> FileReading:
        """The file as it was read ahead, else one that is read here."""
        path = str(item.path)
        if self._ahead is not None and path in self._is_ahead:
            found = self._ahead.next(path)
            if found is not None:
                return found
            self._end_reading_ahead()
        return DirectReading(
            source, self._reading_options, self._facets, has_settled=self._has_settled(item)
        )

    def _read_session(self, reading: _Reading, before: SourceRow | None) -> None:
        stub = reading.stub
        known = self._session_of(before, stub)
        if known is not None:
            state = before.state.get(stub.selector) if before else None
            try:
                if state and self._can_resume(reading, known, before):
                    self._resume(reading, known, state)
                else:
                    self._compare(reading, known)
            except _Rewritten as difference:
                self._rewrite(reading, known, difference.shared)
            return
        session_id = stub.session_id
        count = 1
        while (same := self._current(session_id)) is not None:
            try:
                self._compare(reading, same)
                return
            except _Rewritten:
                count += 1
                session_id = f"{stub.session_id}~{count}"
        self._whole(reading, session_id, None, 0)

    def _session_of(self, before: SourceRow | None, stub: SessionStub) -> SessionRow | None:
        if before is None:
            return None
        for row in self._catalog.of_source(before.source):
            if row.selector == stub.selector:
                return row
        return None

    def _current(self, session_id: str) -> SessionRow | None:
        found = self._catalog.current(session_id)
        if found is None and self._writer is not None and self._writer.has_session(session_id):
            # Written in this batch: the catalog must know it before it can be compared.
            self._commit()
            found = self._catalog.current(session_id)
        return found

    def _can_resume(self, reading: _Reading, known: SessionRow, before: SourceRow | None) -> bool:
        format, source = reading.format, reading.source
        return (
            before is not None
            and format.is_line_format
            and known.parser_version == format.parser_version
            and known.format == format.name
            and not source.is_compressed
            and before.head == fingerprint(source.path, resume_offset(before.state))
        )

    # ------------------------------------------------------------ the ways to read a session

    def _resume(self, reading: _Reading, known: SessionRow, state: dict[str, Any]) -> None:
        parser = reading.parser(state["parser"])

        def records() -> Iterator[Record]:
            for record in parser.records():
                if getattr(parser, "needs_reread", False):
                    break
                yield record
            if getattr(parser, "needs_reread", False):
                raise _Rewritten(known.records)

        self._go_on(reading, known, records(), parser, Assembler(state["assembler"]))

    def _go_on(
        self, reading: _Reading, known: SessionRow, records: Iterable[Record], parser: Parser,
        assembler: Assembler,
    ) -> SessionSink | None:  # fmt: skip
        """Adds the records behind those that are known; None if there are none."""
        sink: SessionSink | None = None
        builder = ChunkBuilder(self._facets, known.agent, chain=bytes.fromhex(known.digest))
        for part in session_chunks(
            records, parser, assembler, builder, chunk_bytes=self._reading_options.chunk_bytes
        ):
            if sink is None and part.chunk.records:
                sink = self._writing().open_session(known, reading.row, assembler)
            self._add(reading, sink, part)
        return sink

    def _compare(self, reading: _Reading, known: SessionRow) -> None:
        """Reads the whole source beside what is known, and goes on behind it.

        Raises:
            _Rewritten: it does not hold all that is known.
        """
        parser = reading.parser(None)
        assembler = Assembler()
        digests = self._epoch.view.records(known.ord, 0, known.records)
        matched = 0
        records = parser.records()
        further: list[Record] = []
        faults: list[Fault] = []
        for record in records:
            if record.provisional or matched == known.records:
                further.append(record)
                break
            if record.digest != next(digests).digest:
                break
            matched += 1
            assembler.assemble(record)
            faults += record_faults(record)
        if (
            matched < known.records
            or (known.format, known.parser_version)
            != (reading.format.name, reading.format.parser_version)
            or assembler.ordinal != known.entries
            or getattr(parser, "needs_reread", False)
        ):
            raise _Rewritten(matched)
        _note(reading.row, faults)
        sink = self._go_on(reading, known, chain(further, records), parser, assembler)
        if getattr(parser, "needs_reread", False):
            reading.row.corrupt = []
            raise _Rewritten(matched)
        if sink is None and known.source_path != reading.row.path:
            if os.path.exists(known.source_path):
                # The same session seen again; its first file keeps it.
                reading.row.state = {}
                reading.row.reason = f"{SAME_SESSION}{known.session}"
                return
            sink = self._writing().open_session(known, reading.row, assembler)
        if sink is not None:
            sink.row.source_path, sink.row.source_root = reading.row.path, reading.row.root
            sink.row.selector = reading.stub.selector
            self._touched.add(sink.row.session)

    def _rewrite(self, reading: _Reading, known: SessionRow, shared: int) -> None:
        self._whole(reading, known.session, known, shared)

    def _whole(
        self, reading: _Reading, session_id: str, replaces: SessionRow | None, shared: int
    ) -> None:
        sink: SessionSink | None = None
        for part in reading.file.chunks(reading.stub):
            if sink is None:
                # A rewritten session may be empty now, a new one is not there yet.
                if not part.chunk.records and replaces is None:
                    reading.row.pending = part.is_pending
                    continue
                sink = self._new(reading, part.header, session_id, replaces, shared)
            self._add(reading, sink, part)

    def _new(
        self, reading: _Reading, header: SessionHeader, session_id: str,
        replaces: SessionRow | None, shared: int,
    ) -> SessionSink:  # fmt: skip
        return self._writing().new_session(
            header, reading.row, parser_version=reading.format.parser_version,
            selector=reading.stub.selector, session_id=session_id, replaces=replaces,
            shared=shared,
        )  # fmt: skip

    def _add(self, reading: _Reading, sink: SessionSink | None, part: SessionChunk) -> None:
        """Adds a chunk; without a sink it has no records, and only its state is of use."""
        row = reading.row
        row.pending = part.is_pending
        row.state[reading.stub.selector] = part.state
        if sink is None:
            return
        writer = self._writing()
        writer.add_chunk(sink, part.chunk)
        writer.take_header(sink, part.header)
        self._touched.add(sink.row.session)
        self._report.entries += len(part.chunk.entries.texts)
        _note(row, part.chunk.faults)
        is_end = part.is_last and reading.is_last
        if writer.uncommitted_bytes >= self._options.batch_bytes and not is_end:
            size, row.size = row.size, -1  # a crash from here on: read on
            row.head = fingerprint(Path(row.path), resume_offset(row.state))
            self._commit()
            row.size = size
            self._sources[row.path] = row


def _note(row: SourceRow, faults: list[Fault]) -> None:
    row.corrupt += [
        {"file": row.path, **fault._asdict()} for fault in faults[: KEPT_FAULTS - len(row.corrupt)]
    ]


@dataclass(slots=True)
class _Reading:
    """One session of one file that is being read."""

    format: Format
    source: SourceFile
    stub: SessionStub
    row: SourceRow
    file: FileReading
    has_settled: bool
    is_last: bool
    """No other session of the file follows."""

    def parser(self, state: dict[str, Any] | None) -> Parser:
        parser = self.format.parser(self.source, self.stub, state)
        if self.has_settled:
            parser.settle = True
        return parser


def known_path(path: str | Path) -> str:
    """A path as sources are known by."""
    return str(real_path(path))
