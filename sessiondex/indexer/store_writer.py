"""Appends to the item store: rows gather in memory, full batches go to the files.

Nothing is promised before `flush` returns, and only the library's catalog makes a flushed batch
visible: what a dead writer left behind its committed lengths is cut off by the next writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from zlib import crc32

import pyarrow as pa

from sessiondex.errors import Damaged, Failed
from sessiondex.indexer.store_files import StoredFile, StoreFolder, file_name, stream_files
from sessiondex.indexer.store_message import batch_message, schema_message
from sessiondex.indexer.store_rows import (
    KIND_CODES,
    attachments_json,
    entry_runs,
    record_runs,
    row_batch,
)
from sessiondex.indexer.store_schema import (
    CHUNK_BYTES,
    ENTRIES,
    RECORDS,
    SCHEMAS,
    SESSIONS,
    STREAMS,
    TEXTS,
    BatchInfo,
    EntryRun,
    RecordRun,
    TextRun,
)
from sessiondex.indexer.store_texts import code_point_cut, text_batch, text_run
from sessiondex.model import Entry, Record

BATCH_BYTES: Final = 64 * 1024
BATCH_ROWS: Final = 4096
_RECORD_BYTES: Final = 64
"""About what the columns of fixed width take for one record."""


class Committed(NamedTuple):
    """How far a stream's current file is committed; length 0 where the file is not made yet."""

    file: int
    length: int


class Flushed(NamedTuple):
    """What one `flush` made durable; the runs point into `batches` by their `batch_index`."""

    batches: list[BatchInfo]
    entry_runs: list[EntryRun]
    record_runs: list[RecordRun]
    text_runs: list[TextRun]
    lengths: dict[str, Committed]
    """Of every stream: for the catalog, and for the next writer."""


class StoreWriter:
    """Appends to one store. Dead after any exception: then every call raises `Failed`."""

    def __init__(
        self, folder: StoreFolder, lengths: Mapping[str, tuple[int, int]], max_file_bytes: int
    ) -> None:
        self._folder = folder
        self._tails = {
            stream: _StreamTail(
                folder, stream, Committed(*lengths.get(stream, (1, 0))), max_file_bytes
            )
            for stream in STREAMS
        }
        # Nothing is cut before every file was found long enough.
        for tail in self._tails.values():
            tail.cut()
        self._is_dead = False
        self._entries: list[tuple[Any, ...]] = []
        self._entry_bytes = 0
        self._records: list[tuple[Any, ...]] = []
        self._record_bytes = 0
        self._sessions: list[tuple[str]] = []
        self._session_bytes = 0
        self._text_ids: list[int] = []
        self._text_starts: list[int] = []
        self._text_chunks: list[bytes] = []
        self._text_bytes = 0
        self._batches: list[BatchInfo] = []
        self._entry_runs: list[EntryRun] = []
        self._record_runs: list[RecordRun] = []
        self._text_runs: list[TextRun] = []

    def add_text(self, text_id: int, data: bytes) -> None:
        """Adds a text (valid UTF-8); ids rise, each at most once in a store."""
        if self._is_dead:
            raise _dead()
        try:
            if self._text_ids and text_id <= self._text_ids[-1]:
                self._cut_texts()  # a batch is ordered, so that readers can bisect it
            start = 0
            while True:
                chunk = data
                if len(data) - start > CHUNK_BYTES or start:
                    chunk = data[start : code_point_cut(data, start + CHUNK_BYTES)]
                if self._text_bytes + len(chunk) > BATCH_BYTES * 3 // 2:
                    self._cut_texts()
                self._text_ids.append(text_id)
                self._text_starts.append(start)
                self._text_chunks.append(chunk)
                self._text_bytes += len(chunk)
                if self._text_bytes >= BATCH_BYTES or len(self._text_ids) >= BATCH_ROWS:
                    self._cut_texts()
                start += len(chunk)
                if start >= len(data):
                    return
        except BaseException:
            self._is_dead = True
            raise

    def add_entry(
        self, session: int, entry: Entry, text_id: int, head: bytes | None = None
    ) -> None:
        """Adds an entry, with `text_head` of its text. A derived summary is left empty."""
        if self._is_dead:
            raise _dead()
        try:
            record, block = entry.ref
            attachments = attachments_json(entry.attachments) if entry.attachments else None
            self._entries.append(
                (
                    session,
                    entry.ordinal,
                    record,
                    block,
                    KIND_CODES[entry.tool_part or entry.kind],
                    entry.tool_name,
                    entry.call_id,
                    -1 if entry.error is None else int(entry.error),
                    entry.sub_kind,
                    entry.flags,
                    entry.timestamp,
                    entry.turn,
                    entry.step,
                    entry.cwd,
                    entry.branch,
                    entry.model,
                    text_id,
                    entry.total_bytes,
                    head,
                    entry.summary or None,
                    attachments,
                    entry.is_anchor,
                    entry.identity,
                    entry.replayed,
                    entry.plan or None,
                    entry.pointer or None,
                )
            )
            self._entry_bytes += (
                len(entry.tool_name)
                + len(entry.call_id)
                + len(entry.sub_kind)
                + len(entry.cwd)
                + len(entry.branch)
                + len(entry.model)
                + len(entry.summary)
                + len(entry.plan)
                + len(entry.pointer)
                + (len(head) if head else 0)
                + (len(attachments) if attachments else 0)
            )
            if self._entry_bytes >= BATCH_BYTES or len(self._entries) >= BATCH_ROWS:
                self._cut_entries()
        except BaseException:
            self._is_dead = True
            raise

    def add_record(self, session: int, record: Record, entries: int) -> None:
        """Adds a record; `entries` says how many entries it has."""
        if self._is_dead:
            raise _dead()
        try:
            self._records.append(
                (
                    session,
                    record.number,
                    record.byte_offset,
                    record.byte_length,
                    record.line,
                    record.digest,
                    record.blocks,
                    int(entries),
                    record.pointer or None,
                    record.corrupt or None,
                    record.oversized,
                )
            )
            self._record_bytes += len(record.pointer) + len(record.corrupt) + _RECORD_BYTES
            if self._record_bytes >= BATCH_BYTES:
                self._cut_records()
        except BaseException:
            self._is_dead = True
            raise

    def add_session(self, json: str) -> None:
        """Adds what the library wants to know of a session when it rebuilds its catalog."""
        if self._is_dead:
            raise _dead()
        try:
            self._sessions.append((json,))
            self._session_bytes += len(json)
            if self._session_bytes >= BATCH_BYTES or len(self._sessions) >= BATCH_ROWS:
                self._cut_sessions()
        except BaseException:
            self._is_dead = True
            raise

    def flush(self) -> Flushed:
        """Writes what is buffered and waits until all of it is on the disk.

        Raises:
            Failed: when the disk refuses; the writer is dead then.
        """
        if self._is_dead:
            raise _dead()
        try:
            if self._text_ids:
                self._cut_texts()
            if self._entries:
                self._cut_entries()
            if self._records:
                self._cut_records()
            if self._sessions:
                self._cut_sessions()
            has_new_names = [tail.sync() for tail in self._tails.values()]
            if any(has_new_names):
                self._folder.sync()
            flushed = Flushed(
                self._batches,
                self._entry_runs,
                self._record_runs,
                self._text_runs,
                {stream: tail.committed for stream, tail in self._tails.items()},
            )
            self._batches, self._entry_runs = [], []
            self._record_runs, self._text_runs = [], []
            return flushed
        except BaseException:
            self._is_dead = True
            raise

    def _cut_texts(self) -> None:
        batch = text_batch(self._text_ids, self._text_starts, self._text_chunks)
        self._text_runs.append(text_run(batch, len(self._batches)))
        self._append(TEXTS, batch)
        self._text_ids, self._text_starts, self._text_chunks = [], [], []
        self._text_bytes = 0

    def _cut_entries(self) -> None:
        batch = row_batch(ENTRIES, self._entries)
        self._entry_runs += entry_runs(batch, len(self._batches))
        self._append(ENTRIES, batch)
        self._entries = []
        self._entry_bytes = 0

    def _cut_records(self) -> None:
        batch = row_batch(RECORDS, self._records)
        self._record_runs += record_runs(batch, len(self._batches))
        self._append(RECORDS, batch)
        self._records = []
        self._record_bytes = 0

    def _cut_sessions(self) -> None:
        self._append(SESSIONS, row_batch(SESSIONS, self._sessions))
        self._sessions = []
        self._session_bytes = 0

    def _append(self, stream: str, batch: pa.RecordBatch) -> None:
        self._batches.append(self._tails[stream].append(batch))


class _StreamTail:
    """The end of one stream: its current file, and the files that wait for a sync."""

    def __init__(
        self, folder: StoreFolder, stream: str, committed: Committed, max_file_bytes: int
    ) -> None:
        self._folder = folder
        self._stream = stream
        self._max_file_bytes = max_file_bytes
        self.committed = committed
        self._schema = schema_message(SCHEMAS[stream])
        self._plain_schema_bytes = SCHEMAS[stream].serialize().size
        self._file: StoredFile | None = None
        self._unsynced: list[StoredFile] = []
        self._has_new_names = False
        if committed.length:
            name = file_name(stream, committed.file)
            self._file = folder.open(name, writable=True)
            size = -1 if self._file is None else self._file.size()
            if size < committed.length:
                state = "is missing" if size < 0 else f"ends at {size}"
                raise Damaged(
                    f"{folder.shown(name)} {state}, committed are {committed.length} bytes"
                    " (length check)"
                )

    def cut(self) -> None:
        """Removes what stands behind the committed length."""
        number, length = self.committed
        for stale in stream_files(self._folder.names(), self._stream):
            if stale > number or (stale == number and not length):
                self._folder.remove(file_name(self._stream, stale))
                self._has_new_names = True
        if self._file is None:
            return
        if self._file.size() > length:
            self._file.truncate(length)
            self._unsynced.append(self._file)
        if self._file.read(0, len(self._schema)) != self._schema:
            # Columns of another release (or a damaged head): they get no new rows.
            self._roll()

    def append(self, batch: pa.RecordBatch) -> BatchInfo:
        """Writes one batch behind the last one."""
        message = batch_message(batch, self._plain_schema_bytes)
        number, offset = self.committed
        if self._file is not None and offset + len(message) > self._max_file_bytes:
            self._roll()
            number, offset = self.committed
        if self._file is None:
            self._file = self._folder.create(file_name(self._stream, number))
            self._has_new_names = True
            self._file.write(0, self._schema)
            offset = len(self._schema)
        if self._file not in self._unsynced:
            self._unsynced.append(self._file)
        self._file.write(offset, message)
        self.committed = Committed(number, offset + len(message))
        return BatchInfo(self._stream, number, offset, len(message), crc32(message), batch.num_rows)

    def sync(self) -> bool:
        """Makes what was written durable; True if the folder must be synced too."""
        for file in self._unsynced:
            file.sync()
        self._unsynced = []
        has_new_names, self._has_new_names = self._has_new_names, False
        return has_new_names

    def _roll(self) -> None:
        self._file = None
        self.committed = Committed(self.committed.file + 1, 0)


def _dead() -> Failed:
    return Failed("this item store writer failed before", hint="open a new one")
