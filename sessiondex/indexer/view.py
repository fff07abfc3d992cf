"""Reads entries, records and texts of a library by their ordinals, through the catalog.

A view belongs to one epoch of a library and keeps its files open, so what it has once promised
it can still answer after those files were replaced. It knows no marks: a capture knows how far
it may ask.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final, Literal

import pyarrow as pa

from sessiondex.errors import Damaged
from sessiondex.indexer.catalog import Catalog
from sessiondex.indexer.catalog_rows import EntryRun
from sessiondex.indexer.item_store import (
    BatchInfo,
    ItemStore,
    StoredEntry,
    TextChunks,
    entry_rows,
    record_rows,
    text_slice,
)
from sessiondex.model import Record

CACHED_BATCHES: Final = 48
"""Decoded batches kept by a view, about 64 KiB each."""

CACHED_BATCH_BYTES: Final = 4 * 1024 * 1024
"""A larger decoded batch is not kept."""

ROWS_AT_ONCE: Final = 32
"""Rows of an entries batch that are decoded together."""

CACHED_ROWS: Final = 128
"""Groups of decoded rows kept by a view."""


class View:
    """Entries, records and texts by their place. Thread-safe."""

    def __init__(self, catalog: Catalog, store: ItemStore) -> None:
        self.catalog = catalog
        self.store = store
        self.batches_read = 0
        self.bytes_read = 0
        self._cache: OrderedDict[Any, pa.RecordBatch] = OrderedDict()
        self._rows: OrderedDict[tuple[int, int], list[StoredEntry]] = OrderedDict()
        self._infos: OrderedDict[int, BatchInfo] = OrderedDict()
        self._chunks: OrderedDict[BatchInfo, TextChunks] = OrderedDict()
        self._runs: OrderedDict[tuple[int, int], EntryRun] = OrderedDict()
        self._lock = threading.Lock()

    def batch(self, info: BatchInfo, columns: tuple[str, ...] | None = None) -> pa.RecordBatch:
        """A decoded batch, all columns or some; checked against its checksum when read."""
        key = (info, columns)
        with self._lock:
            found = self._cache.get(key)
            if found is not None:
                self._cache.move_to_end(key)
                return found
        found = self.store.read(info, columns)
        with self._lock:
            self.batches_read += 1
            self.bytes_read += info.length
            if found.nbytes <= CACHED_BATCH_BYTES:
                self._cache[key] = found
                if len(self._cache) > CACHED_BATCHES:
                    self._cache.popitem(last=False)
        return found

    def runs(self, ord: int, first: int, stop: int) -> Iterator[EntryRun]:
        """The runs that hold the ordinals `first` to `stop` (exclusive), in order."""
        at = first
        while at < stop:
            run = self.run(ord, at)
            if run is None or run.stop <= at:
                raise Damaged(
                    f"entry {at} of session ordinal {ord} is not in the catalog",
                    hint="run 'sessiondex check --repair'",
                )
            yield run
            at = run.stop

    def run(self, ord: int, ordinal: int) -> EntryRun | None:
        """The run of an ordinal; runs that were written never change, so they may be kept."""
        with self._lock:
            for run in reversed(self._runs.values()):
                if run.ord == ord and run.first <= ordinal < run.stop:
                    return run
        found = self.catalog.run_of_ordinal(ord, ordinal)
        if found is not None:
            with self._lock:
                self._runs[(ord, found.first)] = found
                if len(self._runs) > CACHED_BATCHES:
                    self._runs.popitem(last=False)
        return found

    def stored(self, ord: int, first: int, stop: int) -> list[StoredEntry]:
        """Entries `first` to `stop` (exclusive); costs the range."""
        found: list[StoredEntry] = []
        for run in self.runs(ord, first, stop):
            begin = run.row0 + max(first - run.first, 0)
            end = run.row0 + min(stop - run.first, run.rows)
            for group in range(begin // ROWS_AT_ONCE, (end - 1) // ROWS_AT_ONCE + 1):
                rows = self._decoded(run.batch, group)
                at = group * ROWS_AT_ONCE
                found.extend(rows[max(begin - at, 0) : end - at])
        return found

    def _decoded(self, batch: int, group: int) -> list[StoredEntry]:
        key = (batch, group)
        with self._lock:
            rows = self._rows.get(key)
            if rows is not None:
                self._rows.move_to_end(key)
                return rows
        info = self.batch_info(batch)
        first = group * ROWS_AT_ONCE
        rows = entry_rows(self.batch(info), first, min(first + ROWS_AT_ONCE, info.rows))
        with self._lock:
            self._rows[key] = rows
            if len(self._rows) > CACHED_ROWS:
                self._rows.popitem(last=False)
        return rows

    def batch_info(self, number: int) -> BatchInfo:
        """Place and checksum of a batch; these never change."""
        found = self._infos.get(number)
        if found is None:
            found = self._infos[number] = self.catalog.batch(number)
            if len(self._infos) > 64 * CACHED_BATCHES:
                with self._lock:
                    self._infos.clear()
        return found

    def text_places(self, ord: int, first: int, stop: int) -> tuple[list[int], list[int]]:
        """Text ids and sizes of the entries `first` to `stop` (exclusive)."""
        ids: list[int] = []
        sizes: list[int] = []
        for _, (some_ids, some_sizes) in self.columns(ord, first, stop, ("text_id", "total_bytes")):
            ids += some_ids
            sizes += some_sizes
        return ids, sizes

    def columns(
        self, ord: int, first: int, stop: int, names: tuple[str, ...]
    ) -> Iterator[tuple[int, list[list[Any]]]]:
        """Some columns of a range of entries, as lists, run by run with their first ordinal."""
        for run in self.runs(ord, first, stop):
            yield self.run_columns(run, first, stop, names)

    def run_columns(
        self, run: EntryRun, first: int, stop: int, names: tuple[str, ...]
    ) -> tuple[int, list[list[Any]]]:
        """Columns of the part of a run that lies inside `first` to `stop`."""
        batch = self.batch(self.batch_info(run.batch), names)
        begin = max(first, run.first)
        length = min(stop, run.stop) - begin
        offset = run.row0 + begin - run.first
        return begin, [batch.column(name).slice(offset, length).to_pylist() for name in names]

    def position(self, run: EntryRun, stop: int, ref: tuple[int, int]) -> int | None:
        """The first ordinal of a run, below `stop`, at or after a source position."""
        batch = self.batch(self.batch_info(run.batch), ("record", "block"))
        records = _numbers(batch.column("record"), "Q")
        blocks = _numbers(batch.column("block"), "I")
        end = run.row0 + min(run.rows, stop - run.first)
        at = bisect_left(records, ref[0], run.row0, end)
        while at < end and (records[at], blocks[at]) < ref:
            at += 1
        return None if at == end else run.first + at - run.row0

    def kind_counts(self, run: EntryRun, stop: int) -> list[int]:
        """How many entries of each kind code a run has below an ordinal."""
        kinds = self.batch(self.batch_info(run.batch), ("kind",)).column("kind")
        part = bytes(_numbers(kinds, "B")[run.row0 : run.row0 + stop - run.first])
        return [part.count(code) for code in range(5)]

    def anchors(self, run: EntryRun, stop: int) -> int:
        """How many anchors a run has below an ordinal."""
        marks = self.batch(self.batch_info(run.batch), ("is_anchor",)).column("is_anchor")
        return marks.slice(run.row0, stop - run.first).true_count

    def record(self, ord: int, number: int) -> Record | None:
        """What was kept of a record: its place, digest, blocks; never items."""
        run = self.catalog.record_run(ord, number)
        if run is None or number >= run.first + run.rows:
            return None
        batch = self.batch(self.batch_info(run.batch))
        row = run.row0 + number - run.first
        return record_rows(batch, row, row + 1)[0].record

    def records(self, ord: int, first: int, stop: int) -> Iterator[Record]:
        """Kept records `first` to `stop` (exclusive), in order."""
        at = first
        while at < stop:
            run = self.catalog.record_run(ord, at)
            if run is None or at >= run.first + run.rows:
                return
            batch = self.batch(self.batch_info(run.batch))
            end = min(stop, run.first + run.rows)
            rows = record_rows(batch, run.row0 + at - run.first, run.row0 + end - run.first)
            yield from (stored.record for stored in rows)
            at = end

    def text(self, text: int, start: int = 0, stop: int | None = None) -> bytes:
        """UTF-8 bytes `start` to `stop` of a text; reads only the batches that hold them."""
        with self._lock:
            for chunks in reversed(self._chunks.values()):
                if chunks.holds_all_of(text):
                    return text_slice([chunks], text, start, stop)
        infos = self._text_batches(text, start)
        return text_slice((self.chunks(info) for info in infos), text, start, stop)

    def passing_chunks(self, text: int) -> TextChunks:
        """The texts batch in which a text begins, for one look: it takes no room in the cache."""
        info = self._text_batches(text, 0)[0]
        with self._lock:
            found = self._chunks.get(info)
        return self._read_chunks(info) if found is None else found

    def _text_batches(self, text: int, start: int) -> list[BatchInfo]:
        infos = self.catalog.text_batches(text, start)
        if not infos:
            raise Damaged(
                f"text {text} is not in the catalog", hint="run 'sessiondex check --repair'"
            )
        return infos

    def chunks(self, info: BatchInfo) -> TextChunks:
        """A texts batch, opened for slicing; checked against its checksum when read."""
        with self._lock:
            found = self._chunks.get(info)
            if found is not None:
                self._chunks.move_to_end(info)
                return found
        found = self._read_chunks(info)
        with self._lock:
            if found.nbytes <= CACHED_BATCH_BYTES:
                self._chunks[info] = found
                if len(self._chunks) > CACHED_BATCHES:
                    self._chunks.popitem(last=False)
        return found

    def _read_chunks(self, info: BatchInfo) -> TextChunks:
        found = TextChunks(self.store.read(info))
        with self._lock:
            self.batches_read += 1
            self.bytes_read += info.length
        return found

    def forget_cached(self) -> None:
        """Drops what is cached; for a writer whose transaction failed."""
        with self._lock:
            self._cache.clear()
            self._runs.clear()
            self._rows.clear()
            self._infos.clear()
            self._chunks.clear()


def _numbers(column: pa.Array, code: Literal["B", "I", "Q"]) -> memoryview:
    """The values of a column of fixed width without nulls."""
    view = memoryview(column.buffers()[1]).cast(code)
    return view[column.offset : column.offset + len(column)]
