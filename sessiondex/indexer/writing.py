"""Writes assembled entries into an epoch, with one commit point.

Order of a commit: item store flushed → index commit (checked through a fresh searcher) → one
catalog transaction, which alone makes the entries visible. A writer starts by clearing what a
dead one left: the item store is cut to its committed length, documents at or past the mark are
deleted. After any failure the writer is dead and only a new one goes on.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from sessiondex.errors import Failed, SessiondexError
from sessiondex.indexer.assembly import AssembledEntry, Assembler, Counts
from sessiondex.indexer.catalog import put_meta
from sessiondex.indexer.catalog_rows import FactRow, SessionRow, SourceRow, put_session, put_source
from sessiondex.indexer.copies import update_copies
from sessiondex.indexer.index_files import record_index_files
from sessiondex.indexer.item_store import Flushed, ItemStore
from sessiondex.indexer.library import Epoch
from sessiondex.indexer.preparing import Chunk, ChunkBuilder, FacetLists, PreparedEntries
from sessiondex.indexer.term_document import TermDocument
from sessiondex.indexer.term_fields import facet
from sessiondex.limits import TITLE
from sessiondex.model import Record, SessionHeader

RECENT_TEXTS: Final = 200_000
"""Digests of texts that a writer remembers by itself, about 20 MB; older ones it looks up."""


class Place(NamedTuple):
    """What the catalog must know of an entry to find it."""

    code: int
    """See `kind_code`."""
    is_anchor: bool
    block: int


@dataclass(slots=True)
class SessionSink:
    """One session that is being written: its row, its assembler, what is not yet in a run."""

    row: SessionRow
    source: SourceRow
    assembler: Assembler
    chain: bytes
    unplaced: list[Place] = field(default_factory=list)
    """Of entries whose run is not known yet."""
    placed: Counts = field(default_factory=Counts)
    placed_anchors: int = 0


class LibraryWriter:
    """Adds records to sessions and commits. Holds one batch; never used after a failure."""

    def __init__(
        self,
        epoch: Epoch,
        *,
        heap_bytes: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._epoch = epoch
        self._catalog = epoch.catalog
        self._now_ms = now_ms
        if epoch.index is None:
            raise Failed("the term index is of an older version", hint="run 'sessiondex index'")
        seq = self._catalog.meta("seq")
        self._seq: int = seq + 1
        # The mark grows with every commit, also one that adds no entry, so that facts have a
        # moment of their own.
        self._since = self._seq
        self._docs: int = self._catalog.meta("docs")
        self._next_ord: int = self._catalog.meta("next_ord")
        self._next_text: int = self._catalog.meta("next_text")
        self._commit: int = self._catalog.meta("commit")
        self._next_batch: int = self._catalog.row("SELECT ifnull(max(batch),0)+1 FROM batches")[0]
        lengths = self._catalog.lengths()
        if _has_leftovers(epoch.store, lengths):
            # Where the catalog's own commit failed at its end, its log may still hold what
            # belongs to them: this writes over it, before they go.
            with self._catalog.transaction() as db:
                put_meta(db, seq=seq)
        self._store = epoch.store.writer(lengths)
        self._to_purge: dict[int, SessionRow] = {
            row[0]: SessionRow.from_json(row[1])
            for row in self._catalog.rows(
                "SELECT ord, row FROM sessions WHERE current=0 AND purged=0"
            )
        }
        self._docs -= sum(row.docs for row in self._to_purge.values())
        self._has_texts = self._catalog.row("SELECT 1 FROM payloads LIMIT 1") is not None
        """Whether the catalog knows texts that are not among the recent ones."""
        self._recent: dict[bytes, int] = {}
        self._facet_lists = FacetLists()
        self.is_dead = False
        """A part of it failed; only a new writer goes on."""
        self._clear()
        self._index_folder = epoch.index.folder
        # One thread keeps up with what is fed to it, and makes fewer segments to merge and search.
        self._index = epoch.index.writer(heap_bytes, num_threads=1)
        try:
            self._index.delete_seq_from(self._seq)
            self._index.delete_sessions(list(self._to_purge))
        except BaseException:
            with suppress(SessiondexError):  # the first error is the one to tell
                self._index.abandon()
            raise

    def _clear(self) -> None:
        self._sinks: dict[int, SessionSink] = {}
        self._names: set[str] = set()
        self._retired: dict[int, SessionRow] = {}
        self._payloads: dict[bytes, int] = {}
        self._identities: list[tuple[int, int, int]] = []
        self._plans: list[tuple[int, int]] = []
        self._new_facts: list[FactRow] = []
        self._forgotten: list[tuple[str, str]] = []
        self.uncommitted_bytes = 0
        """Text added since the last commit."""

    # ------------------------------------------------------------ sessions

    def new_session(
        self, header: SessionHeader, source: SourceRow, *, parser_version: int, selector: str,
        session_id: str, replaces: SessionRow | None = None, shared: int = 0,
    ) -> SessionSink:  # fmt: skip
        """Begins a session, or a new generation of one that was rewritten."""
        row = SessionRow(
            ord=self._next_ord,
            session=session_id,
            agent=header.agent,
            format=header.format,
            parser_version=parser_version,
            source_path=source.path,
            source_root=source.root,
            selector=selector,
        )
        self._next_ord += 1
        if replaces is not None:
            row.generation = replaces.generation + 1
            row.shared = [*replaces.shared, shared]
            retired = replace(replaces, current=False, purged=False)
            self._retired[retired.ord] = retired
            dropped = self._sinks.pop(retired.ord, None)
            if dropped is not None:
                retired.docs = dropped.row.docs
        return self._sink(row, source, Assembler())

    def restore_session(self, row: SessionRow, source: int) -> SessionSink:
        """Begins to write a known session anew, under its own ordinal; for a rebuild."""
        empty = replace(
            row, entries=0, records=0, anchors=0, turns=0, text_bytes=0, docs=0,
            counts=[0, 0, 0, 0, 0], digest="", started=None, ended=None, purged=False,
        )  # fmt: skip
        self._next_ord = max(self._next_ord, row.ord + 1)
        place = SourceRow(source, row.source_path, row.source_root, row.format, row.parser_version)
        return self._sink(empty, place, Assembler())

    def add_fact(self, fact: FactRow) -> None:
        """Adds a fact that an earlier epoch knew."""
        self._new_facts.append(fact)

    def forget_source(self, path: str, selector: str) -> None:
        """Lets `index` skip a session of a file from now on."""
        self._forgotten.append((path, selector))

    def open_session(self, row: SessionRow, source: SourceRow, assembler: Assembler) -> SessionSink:
        """Goes on with a session after its committed entries."""
        found = self._sinks.get(row.ord)
        return found or self._sink(replace(row), source, assembler)

    def _sink(self, row: SessionRow, source: SourceRow, assembler: Assembler) -> SessionSink:
        sink = SessionSink(
            row, source, assembler, bytes.fromhex(row.digest), placed=Counts(*row.counts),
            placed_anchors=row.anchors,
        )  # fmt: skip
        self._sinks[row.ord] = sink
        self._names.add(row.session)
        return sink

    def has_session(self, session_id: str) -> bool:
        """Whether a session of this id waits for the commit."""
        return session_id in self._names

    def take_header(self, sink: SessionSink, header: SessionHeader) -> None:
        """Takes over what a parser learned of the session as a whole."""
        row = sink.row
        row.project = header.project or row.project
        row.branch = header.branch or row.branch
        row.model = header.model or row.model
        row.parent = header.parent or row.parent
        row.segment_id = header.segment_id or row.segment_id
        row.sub_agent = header.sub_agent or row.sub_agent
        row.run = {**row.run, **header.run}
        if header.title:
            row.title, row.own_title = header.title[: TITLE.maximum], True

    # ------------------------------------------------------------ records

    def add(self, sink: SessionSink, record: Record, entries: list[AssembledEntry]) -> None:
        """Adds one committed record with the entries that were assembled from it."""
        builder = ChunkBuilder(self._facet_lists, sink.row.agent, chain=sink.chain)
        builder.add(record, entries)
        self.add_chunk(sink, builder.take())

    def add_chunk(self, sink: SessionSink, chunk: Chunk) -> None:
        """Adds the next records of a session."""
        try:
            self._add_chunk(sink, chunk)
        except BaseException:
            self.is_dead = True
            raise

    def _add_chunk(self, sink: SessionSink, chunk: Chunk) -> None:
        row = sink.row
        ord = row.ord
        self._sinks[ord] = sink  # a commit inside a session lets go of it
        self._store.add_record_rows(ord, chunk.records)
        entries = chunk.entries
        docs = self._add_entries(ord, row.entries, entries)
        sink.chain = chunk.chain
        sink.unplaced += map(Place, entries.codes, entries.anchors, entries.blocks)
        for flag, first, last in chunk.facts:
            self._new_facts.append(FactRow(ord, flag, first, last, "r", self._since, 1))
        self._identities += [(identity, ord, ordinal) for identity, ordinal in chunk.identities]
        self._plans += [(ord, ordinal) for ordinal in chunk.plans]
        row.records += len(chunk.records)
        row.entries += len(entries.texts)
        row.docs += docs
        self._docs += docs
        row.counts = [count + entries.codes.count(n) for n, count in enumerate(row.counts)]
        row.anchors += sum(entries.anchors)
        if entries.texts:
            row.turns = chunk.turns
        row.text_bytes += chunk.text_bytes
        row.title = row.title or chunk.title
        times = [row.started, row.ended, chunk.started, chunk.ended]
        row.started = min((time for time in times if time is not None), default=None)
        row.ended = max((time for time in times if time is not None), default=None)
        self.uncommitted_bytes += chunk.size

    def _add_entries(self, ord: int, ordinal: int, entries: PreparedEntries) -> int:
        """Adds entries from an ordinal on; returns how many documents they became."""
        session_facet = str(facet("session", str(ord)))
        key = ord << 32 | ordinal
        docs = 0
        for before, after, size, data, digest, facets, pieces, characters, *_ in zip(
            *entries, strict=True
        ):
            text_id = self._text(data, digest) if data else 0
            self._store.add_entry_row(ord, text_id, before, after, size)
            docs += self._index.add_document(
                TermDocument(facets, pieces, characters), key=key, seq=self._seq,
                facets=session_facet,
            )  # fmt: skip
            key += 1
            self._seq += 1
        return docs

    def _text(self, data: bytes, digest: bytes) -> int:
        """The id of a text; an identical one is stored once, if it has a digest."""
        if not digest:
            return self._new_text(data)
        known = self._payloads.get(digest)
        if known is None:
            known = self._recent.get(digest)
        if known is None and self._has_texts:
            found = self._catalog.row("SELECT text FROM payloads WHERE digest=?", (digest,))
            known = found[0] if found else None
        if known is None:
            known = self._payloads[digest] = self._new_text(data)
        return known

    def _new_text(self, data: bytes) -> int:
        number = self._next_text
        self._next_text += 1
        self._store.add_text(number, data)
        return number

    # ------------------------------------------------------------ commit

    def commit(self, sources: list[SourceRow], *, again: tuple[str, ...] = ()) -> None:
        """Makes everything added so far visible, or nothing.

        Raises:
            Failed: a disk or the index failed; the library shows its old state.
        """
        if self.is_dead:
            raise Failed("the library writer has failed before", hint="open a new one")
        self.is_dead = True
        for sink in self._sinks.values():
            sink.row.digest = sink.chain.hex()
            self._store.add_session(_journal(sink.row))
        for row in self._retired.values():
            self._store.add_session(_journal(row))
        for fact in self._new_facts:
            self._store.add_session(json.dumps({"fact": list(fact)}))
        for place in self._forgotten:
            self._store.add_session(json.dumps({"forgotten": place}))
        for path in again:
            self._store.add_session(json.dumps({"again": path}))
        flushed = self._store.flush()
        self._index.commit(self._docs)
        try:
            self._make_visible(flushed, sources, again)
        except BaseException:
            self._epoch.view.forget_cached()
            raise
        self._next_batch += len(flushed.batches)
        self._seq += 1
        self._since = self._seq
        if len(self._recent) + len(self._payloads) > RECENT_TEXTS:
            self._recent = {}
            self._has_texts = True
        self._recent.update(self._payloads)
        self._to_purge = {}
        self.is_dead = False
        self._clear()

    def _make_visible(
        self, flushed: Flushed, sources: list[SourceRow], again: tuple[str, ...]
    ) -> None:
        with self._catalog.transaction() as db:
            first_batch = self._next_batch
            db.executemany(
                "INSERT INTO batches VALUES (?,?,?,?,?,?,?)",
                [(first_batch + n, *info) for n, info in enumerate(flushed.batches)],
            )
            self._place_runs(db, flushed, first_batch)
            db.executemany(
                "INSERT OR IGNORE INTO payloads VALUES (?,?)", sorted(self._payloads.items())
            )
            self._identities.sort()
            db.executemany("INSERT OR IGNORE INTO identities VALUES (?,?,?)", self._identities)
            db.executemany("INSERT OR IGNORE INTO plans VALUES (?,?)", self._plans)
            db.executemany("INSERT INTO facts VALUES (?,?,?,?,?,?,?)", self._new_facts)
            for source in sources:
                put_source(db, source)
            for row in self._retired.values():
                put_session(db, row, 0)
            for row in self._to_purge.values():
                put_session(db, replace(row, purged=True), 0)
            for sink in self._sinks.values():
                put_session(db, sink.row, sink.source.source)
            update_copies(
                db, self._epoch.view, self._identities, retired=list(self._retired),
                since=self._since,
            )  # fmt: skip
            db.executemany("DELETE FROM forgotten WHERE path=?", [(path,) for path in again])
            db.executemany("INSERT OR IGNORE INTO forgotten VALUES (?,?)", self._forgotten)
            self._commit += 1
            put_meta(
                db, seq=self._seq, commit=self._commit, docs=self._docs, next_ord=self._next_ord,
                next_text=self._next_text, refreshed_at=self._now_ms(),
                lengths=json.dumps(flushed.lengths),
            )  # fmt: skip
            record_index_files(db, self._index_folder)

    def _place_runs(self, db: sqlite3.Connection, flushed: Flushed, first_batch: int) -> None:
        rows: list[tuple[int, ...]] = []
        cursor: dict[int, int] = {}
        for run in flushed.entry_runs:
            sink = self._sinks.get(run.session)
            if sink is None:
                continue  # a generation that was given up within this batch
            start = cursor.get(run.session, 0)
            part = sink.unplaced[start : start + run.rows]
            cursor[run.session] = start + run.rows
            rows.append(
                (run.session, run.first_ordinal, run.rows, first_batch + run.batch_index, run.row0,
                 run.first_record, run.last_record, part[0].block, sink.placed_anchors,
                 *sink.placed)
            )  # fmt: skip
            codes = [place.code for place in part]
            sink.placed = sink.placed.plus(Counts(*(codes.count(n) for n in range(5))))
            sink.placed_anchors += sum(place.is_anchor for place in part)
        for sink in self._sinks.values():
            sink.unplaced = []
        places = ",".join("?" * 14)
        db.executemany(f"INSERT INTO entry_runs VALUES ({places})", rows)
        db.executemany(
            "INSERT INTO record_runs VALUES (?,?,?,?,?)",
            [(run.session, run.first_record, run.rows, first_batch + run.batch_index, run.row0)
             for run in flushed.record_runs if run.session in self._sinks],
        )  # fmt: skip
        db.executemany(
            "INSERT INTO text_runs VALUES (?,?,?,?)",
            [(run.last_text_id, first_batch + run.batch_index, run.first_text_id,
              run.first_start) for run in flushed.text_runs],
        )  # fmt: skip

    def abandon(self) -> None:
        """Gives the index writer back after a failure, so that the next one finds no other."""
        self.is_dead = True
        self._index.abandon()

    def close(self, *, final: bool = False) -> None:
        """Gives the index writer back; `final` waits for merges and seals what they wrote."""
        self._index.close(final=final)
        if final and self._index_folder is not None:
            with self._catalog.transaction() as db:
                record_index_files(db, self._index_folder)


def _has_leftovers(store: ItemStore, lengths: dict[str, tuple[int, int]]) -> bool:
    """Whether a dead writer left something behind what is committed."""
    return any(
        (info.number, info.size) > lengths.get(info.stream, (1, 0)) for info in store.files()
    )


def _journal(row: SessionRow) -> str:
    return '{"session":' + row.to_json() + "}"
