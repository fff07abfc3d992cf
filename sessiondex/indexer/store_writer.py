"""Appends to the item store: rows gather in memory, full batches go to the files.

Nothing is promised before `flush` returns, and only the library's catalog makes a flushed batch
visible: what a dead writer left behind its committed lengths is cut off by the next writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sessiondex.errors import Failed
from sessiondex.indexer.store_files import StoreFolder
from sessiondex.indexer.store_rows import entry_runs, record_runs, row_batch
from sessiondex.indexer.store_schema import (
    CHUNK_BYTES,
    ENTRIES,
    RECORDS,
    SESSIONS,
    STREAMS,
    TEXTS,
    BatchInfo,
    EntryRun,
    RecordRun,
    TextRun,
)
from sessiondex.indexer.store_tail import Committed, StreamTail
from sessiondex.indexer.store_texts import text_batch
from sessiondex.indexer.store_values import code_point_cut, entry_row, record_row
from sessiondex.model import Entry, Record

BATCH_BYTES: Final = 64 * 1024
BATCH_ROWS: Final = 4096
_ROW_BYTES: Final = BATCH_BYTES // BATCH_ROWS
"""Counted for each row, so that a batch of next to nothing ends at `BATCH_ROWS`."""
_RECORD_BYTES: Final = 64
"""About what the columns of fixed width take for one record."""


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
            stream: StreamTail(
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
        self._texts: list[tuple[int, int, bytes]] = []
        self._last_text_id = -1
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
            size = len(data)
            if text_id <= self._last_text_id and self._texts:
                self._cut_texts()  # a batch is ordered, so that readers can bisect it
            self._last_text_id = text_id
            start = 0
            while True:
                chunk = data
                if size > CHUNK_BYTES:
                    chunk = data[start : code_point_cut(data, start + CHUNK_BYTES)]
                length = len(chunk)
                if self._text_bytes + length > BATCH_BYTES * 3 // 2:
                    self._cut_texts()
                self._texts.append((text_id, start, chunk))
                self._text_bytes += length + _ROW_BYTES
                if self._text_bytes >= BATCH_BYTES:
                    self._cut_texts()
                start += length
                if start >= size:
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
            self.add_entry_row(session, text_id, *entry_row(entry, head))
        except BaseException:
            self._is_dead = True
            raise

    def add_entry_row(
        self, session: int, text_id: int, before_text: tuple[Any, ...],
        after_text: tuple[Any, ...], size: int,
    ) -> None:  # fmt: skip
        """Adds an entry by the parts of its `EntryRow`."""
        if self._is_dead:
            raise _dead()
        try:
            self._entries.append((session, *before_text, text_id, *after_text))
            self._entry_bytes += _ROW_BYTES + size
            if self._entry_bytes >= BATCH_BYTES:
                self._cut_entries()
        except BaseException:
            self._is_dead = True
            raise

    def add_record(self, session: int, record: Record, entries: int) -> None:
        """Adds a record; `entries` says how many entries it has."""
        if self._is_dead:
            raise _dead()
        try:
            self.add_record_rows(session, (record_row(record, int(entries)),))
        except BaseException:
            self._is_dead = True
            raise

    def add_record_rows(self, session: int, rows: Iterable[tuple[Any, ...]]) -> None:
        """Adds records by their columns."""
        if self._is_dead:
            raise _dead()
        try:
            for row in rows:
                self._records.append((session, *row))
                *_, pointer, corrupt, _ = row
                self._record_bytes += _RECORD_BYTES + len(pointer or "") + len(corrupt or "")
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
            self._session_bytes += len(json) + _ROW_BYTES
            if self._session_bytes >= BATCH_BYTES:
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
            if self._texts:
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
        self._text_runs.append(
            TextRun(self._texts[0][0], self._texts[-1][0], self._texts[0][1], len(self._batches))
        )
        self._append(TEXTS, text_batch(self._texts))
        self._texts = []
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


def _dead() -> Failed:
    return Failed("this item store writer failed before", hint="open a new one")
