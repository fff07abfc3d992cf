"""Rebuilds a library from its item store: a new catalog, a new index, only what is kept.

Writes the next epoch beside the current one and switches to it at the end, so that a crash at any
moment leaves the old one. Used by `forget`, by `check --repair` and when the index version grows.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

import pyarrow as pa

from sessiondex.errors import Damaged, SessiondexError
from sessiondex.indexer.assembly import AssembledEntry, Counts
from sessiondex.indexer.catalog import Catalog, put_meta
from sessiondex.indexer.catalog_rows import FactRow, SessionRow, SourceRow, put_session
from sessiondex.indexer.item_store import EntryRun as Run
from sessiondex.indexer.item_store import ItemStore, entry_runs, record_runs, text_run
from sessiondex.indexer.library import Epoch, Library, create_epoch
from sessiondex.indexer.view import View
from sessiondex.indexer.writing import LibraryWriter
from sessiondex.limits import MIB

HEAP_BYTES: Final = 64 * MIB
BATCH_BYTES: Final = 48 * MIB
_ENTRIES_AT_ONCE: Final = 256
LOST: Final = -1
"""Parser version of a session that lost texts: older than any."""


class StoreContents(NamedTuple):
    """What an item store alone tells: places, sessions, facts, and what is damaged."""

    catalog: Catalog
    """In memory; holds places and current sessions, no sources, payloads or copies."""
    damages: list[Damaged]


def contents_of(
    store: ItemStore, lengths: dict[str, tuple[int, int]] | None = None
) -> StoreContents:
    """Reads a whole item store, up to its committed lengths where these are known."""
    catalog = Catalog.create(None)
    damages: list[Damaged] = []
    rows: dict[int, list[SessionRow]] = {}
    facts: list[FactRow] = []
    entries: dict[int, int] = {}
    records: dict[int, int] = {}
    totals: dict[int, _Totals] = {}
    with catalog.transaction() as db:
        number = 0
        for stream in ("entries", "records", "texts", "sessions"):
            for info, batch in store.scan(stream, on_damage=damages.append):
                if lengths is not None and not _is_committed(
                    info.file, info.offset, lengths.get(stream)
                ):
                    continue
                number += 1
                db.execute("INSERT INTO batches VALUES (?,?,?,?,?,?,?)", (number, *info))
                if stream == "entries":
                    for run in entry_runs(batch, 0):
                        if run.first_ordinal != entries.get(run.session, 0):
                            continue  # behind a damaged batch
                        entries[run.session] = run.first_ordinal + run.rows
                        totals[run.session] = _place_entries(
                            db, number, batch, run, totals.get(run.session, _Totals())
                        )
                        _place_identities(db, batch, run)
                elif stream == "records":
                    for run in record_runs(batch, 0):
                        if run.first_record != records.get(run.session, 0):
                            continue
                        records[run.session] = run.first_record + run.rows
                        db.execute(
                            "INSERT INTO record_runs VALUES (?,?,?,?,?)",
                            (run.session, run.first_record, run.rows, number, run.row0),
                        )
                elif stream == "texts":
                    run = text_run(batch, 0)
                    db.execute(
                        "INSERT INTO text_runs VALUES (?,?,?,?)",
                        (run.last_text_id, number, run.first_text_id, run.first_start),
                    )
                else:
                    for text in batch.column(0).to_pylist():
                        value = json.loads(text)
                        if "fact" in value:
                            facts.append(FactRow(*value["fact"]))
                        elif "forgotten" in value:
                            db.execute(
                                "INSERT OR IGNORE INTO forgotten VALUES (?,?)", value["forgotten"]
                            )
                        elif "again" in value:
                            db.execute("DELETE FROM forgotten WHERE path=?", (value["again"],))
                        else:
                            row = SessionRow(**value["session"])
                            rows.setdefault(row.ord, []).append(row)
        newest: dict[str, int] = {}
        for known in rows.values():
            row = _whole(known, entries, records)
            put_session(db, row, 0)
            if row.current:
                newest[row.session] = max(row.ord, newest.get(row.session, 0))
        for session, ord in newest.items():
            # Where the word that a generation was replaced is lost, its successor says it.
            db.execute("UPDATE sessions SET current=0 WHERE session=? AND ord<?", (session, ord))
        db.executemany("INSERT INTO facts VALUES (?,?,?,?,?,?,?)", facts)
    return StoreContents(catalog, damages)


def _is_committed(file: int, offset: int, committed: tuple[int, int] | None) -> bool:
    return committed is not None and (file, offset) < (committed[0], committed[1])


def _place_identities(db: sqlite3.Connection, batch: pa.RecordBatch, run: Run) -> None:
    identities = batch.column("identity").slice(run.row0, run.rows).to_pylist()
    plans = batch.column("plan").slice(run.row0, run.rows).to_pylist()
    db.executemany(
        "INSERT OR IGNORE INTO identities VALUES (?,?,?)",
        [(identity, run.session, run.first_ordinal + n)
         for n, identity in enumerate(identities) if identity],
    )  # fmt: skip
    db.executemany(
        "INSERT OR IGNORE INTO plans VALUES (?,?)",
        [(run.session, run.first_ordinal + n) for n, plan in enumerate(plans) if plan],
    )


def _whole(known: list[SessionRow], entries: dict[int, int], records: dict[int, int]) -> SessionRow:
    """The last journal row whose entries and records are there, else what is there of it."""
    for row in reversed(known):
        if row.entries <= entries.get(row.ord, 0) and row.records <= records.get(row.ord, 0):
            return replace(row, current=known[-1].current)
    row = known[-1]
    return replace(row, entries=entries.get(row.ord, 0), records=records.get(row.ord, 0), digest="")


class _Totals(NamedTuple):
    """What stands before the next run of a session."""

    anchors: int = 0
    counts: Counts = Counts()


def _place_entries(
    db: sqlite3.Connection, number: int, batch: pa.RecordBatch, run: Run, before: _Totals
) -> _Totals:
    """Writes the run of a batch; returns what stands before the next one."""
    kinds = batch.column("kind").slice(run.row0, run.rows).to_pylist()
    anchors = sum(batch.column("is_anchor").slice(run.row0, run.rows).to_pylist())
    db.execute(
        f"INSERT INTO entry_runs VALUES ({','.join('?' * 14)})",
        (run.session, run.first_ordinal, run.rows, number, run.row0, run.first_record,
         run.last_record, batch.column("block")[run.row0].as_py(), before.anchors,
         *before.counts),
    )  # fmt: skip
    counts = Counts(*(kinds.count(code) for code in range(5)))
    return _Totals(before.anchors + anchors, before.counts.plus(counts))


def rebuild(
    library: Library,
    epoch: Epoch,
    *,
    keep: Callable[[SessionRow], bool] = lambda row: True,
    contents: StoreContents | None = None,
    forgotten: list[tuple[str, str]] | None = None,
) -> Epoch:
    """Writes the next epoch with the current sessions that are kept, and switches to it.

    The writer lock must be held. With `contents` the old catalog is not believed. `forgotten`
    adds (path, selector) pairs that `index` skips from now on.
    """
    old = contents.catalog if contents is not None else epoch.catalog
    view = View(old, epoch.store)
    new = create_epoch(library.path, epoch.number + 1)
    try:
        writer = LibraryWriter(new, heap_bytes=HEAP_BYTES, now_ms=lambda: int(time.time() * 1000))
        try:
            _fill(new, writer, epoch, view, keep, contents, forgotten or [])
        except BaseException:
            with suppress(SessiondexError):  # the first error is the one to tell
                writer.abandon()
            raise
    except BaseException:
        new.close()
        raise
    library.switch(new)
    return new


def _fill(
    new: Epoch, writer: LibraryWriter, epoch: Epoch, view: View, keep: Callable[[SessionRow], bool],
    contents: StoreContents | None, forgotten: list[tuple[str, str]],
) -> None:  # fmt: skip
    old = view.catalog
    sources = _sources(epoch, contents)
    by_path = {source.path: source for source in sources}
    dropped: set[str] = set()
    for (text,) in old.rows("SELECT row FROM sessions WHERE current=1 ORDER BY ord"):
        row = SessionRow.from_json(text)
        if not keep(row):
            dropped.add(row.session)
            source = by_path.get(row.source_path)
            if source is not None:
                source.state.pop(row.selector, None)
            continue
        source = by_path.get(row.source_path)
        if source is None and row.source_path:
            source = SourceRow(
                len(sources) + 1 + max((s.source for s in sources), default=0),
                row.source_path, row.source_root, row.format, row.parser_version, size=-1,
            )  # fmt: skip
            sources.append(source)
            by_path[source.path] = source
        damages = contents.damages if contents is not None else None
        _copy(view, writer, row, source.source if source is not None else 0, damages)
        if writer.uncommitted_bytes >= BATCH_BYTES:
            writer.commit([])
    for place in [*old.rows("SELECT path, selector FROM forgotten"), *forgotten]:
        writer.forget_source(*place)
    writer.commit([source for source in sources if not _is_trace(source, forgotten, dropped, old)])
    writer.close(final=True)
    if contents is None:
        with new.catalog.transaction() as db:
            put_meta(db, refreshed_at=epoch.catalog.meta("refreshed_at"))


def _sources(epoch: Epoch, contents: StoreContents | None) -> list[SourceRow]:
    """The source rows of the old catalog; none where they cannot be believed."""
    if contents is None:
        return epoch.catalog.sources()
    try:
        return [replace(s, size=-1, state={}) for s in epoch.catalog.sources(only_true=True)]
    except SessiondexError:
        return []


def _is_trace(
    source: SourceRow, forgotten: list[tuple[str, str]] | None, dropped: set[str], old: Catalog
) -> bool:
    """Whether a source row would only tell of what is forgotten."""
    if not forgotten or source.path not in {path for path, _ in forgotten}:
        return False
    left = old.rows("SELECT session FROM sessions WHERE source=? AND current=1", (source.source,))
    return all(row[0] in dropped for row in left)


def _copy(
    view: View, writer: LibraryWriter, row: SessionRow, source: int,
    damages: list[Damaged] | None,
) -> None:  # fmt: skip
    """Writes one session anew: its records, each with its entries and their texts."""
    before = len(damages or ())
    sink = writer.restore_session(row, source)
    entries = _entries(view, row, damages)
    waiting = next(entries, None)
    for record in view.records(row.ord, 0, row.records):
        mine: list[AssembledEntry] = []
        while waiting is not None and waiting.entry.ref.record <= record.number:
            mine.append(waiting)
            waiting = next(entries, None)
        writer.add(sink, record, mine)
    for fact in view.catalog.rows(
        "SELECT ord,flag,first,last,unit,since,value FROM facts WHERE ord=? AND unit='r'",
        (row.ord,),
    ):
        writer.add_fact(FactRow(*fact)._replace(since=0))
    if len(damages or ()) > before:
        sink.row.parser_version = LOST  # while its source exists, the next refresh reads it again


def _entries(
    view: View, row: SessionRow, damages: list[Damaged] | None
) -> Iterator[AssembledEntry]:
    """The entries of a session with their texts; a damaged text is empty and reported."""
    for at in range(0, row.entries, _ENTRIES_AT_ONCE):
        for stored in view.stored(row.ord, at, min(at + _ENTRIES_AT_ONCE, row.entries)):
            entry, data = stored.entry, b""
            if entry.total_bytes:
                try:
                    data = view.text(stored.text_id, 0, entry.total_bytes)
                except Damaged as error:
                    if damages is None:
                        raise
                    damages.append(error)
                    entry.total_bytes = 0
            yield AssembledEntry(entry, data.decode(), data)
