"""Reads entries, records and texts of a library by their ordinals, through the catalog.

A view belongs to one epoch of a library and keeps its files open, so what it has once promised
it can still answer after those files were replaced. It knows no marks: a capture knows how far
it may ask.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from sessiondex.errors import Damaged
from sessiondex.indexer.catalog import Catalog, EntryRun
from sessiondex.indexer.item_store import (
    BatchInfo,
    ItemStore,
    StoredEntry,
    entry_rows,
    record_rows,
    text_slice,
)
from sessiondex.model import Record

CACHED_BATCHES: Final = 48
"""Decoded batches kept by a view, about 64 KiB each."""

CACHED_BATCH_BYTES: Final = 4 * 1024 * 1024
"""A larger decoded batch is not kept."""


class View:
    """Entries, records and texts by their place. Thread-safe."""

    def __init__(self, catalog: Catalog, store: ItemStore) -> None:
        self.catalog = catalog
        self.store = store
        self.batches_read = 0
        self.bytes_read = 0
        self._cache: OrderedDict[Any, pa.RecordBatch] = OrderedDict()
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
            batch = self.batch(self.catalog.batch(run.batch))
            begin = run.row0 + max(first - run.first, 0)
            end = run.row0 + min(stop - run.first, run.rows)
            found.extend(entry_rows(batch, begin, end))
        return found

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
        batch = self.batch(self.catalog.batch(run.batch), names)
        begin = max(first, run.first)
        length = min(stop, run.stop) - begin
        offset = run.row0 + begin - run.first
        return begin, [batch.column(name).slice(offset, length).to_pylist() for name in names]

    def record(self, ord: int, number: int) -> Record | None:
        """What was kept of a record: its place, digest, blocks; never items."""
        run = self.catalog.record_run(ord, number)
        if run is None or number >= run.first + run.rows:
            return None
        batch = self.batch(self.catalog.batch(run.batch))
        row = run.row0 + number - run.first
        return record_rows(batch, row, row + 1)[0].record

    def records(self, ord: int, first: int, stop: int) -> Iterator[Record]:
        """Kept records `first` to `stop` (exclusive), in order."""
        at = first
        while at < stop:
            run = self.catalog.record_run(ord, at)
            if run is None or at >= run.first + run.rows:
                return
            batch = self.batch(self.catalog.batch(run.batch))
            end = min(stop, run.first + run.rows)
            rows = record_rows(batch, run.row0 + at - run.first, run.row0 + end - run.first)
            yield from (stored.record for stored in rows)
            at = end

    def text(self, text: int, start: int = 0, stop: int | None = None) -> bytes:
        """UTF-8 bytes `start` to `stop` of a text; reads only the batches that hold them."""
        infos = self.catalog.text_batches(text, start)
        if not infos:
            raise Damaged(
                f"text {text} is not in the catalog", hint="run 'sessiondex check --repair'"
            )
        return text_slice((self.batch(info) for info in infos), text, start, stop)

    def forget_cached(self) -> None:
        """Drops what is cached; for a writer whose transaction failed."""
        with self._lock:
            self._cache.clear()
            self._runs.clear()
