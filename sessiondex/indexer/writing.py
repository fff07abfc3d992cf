"""Writes assembled entries into an epoch, with one commit point.

Order of a commit: item store flushed → index commit (checked through a fresh searcher) → one
catalog transaction, which alone makes the entries visible. A writer starts by clearing what a
dead one left: the item store is cut to its committed length, documents at or past the mark are
deleted. After any failure the writer is dead and only a new one goes on.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from sessiondex.errors import Failed
from sessiondex.indexer.assembly import AssembledEntry, Assembler, Counts, kind_code
from sessiondex.indexer.catalog import (
    FactRow,
    SessionRow,
    SourceRow,
    put_meta,
    put_session,
    put_source,
)
from sessiondex.indexer.copies import update_copies
from sessiondex.indexer.index_files import record_index_files
from sessiondex.indexer.item_store import Flushed, ItemStore, text_head
from sessiondex.indexer.library import Epoch
from sessiondex.indexer.term_index import facet
from sessiondex.model import Entry, Record, SessionHeader, derived_summary, flag_names

SHARED_TEXT_BYTES: Final = 128
"""A text at least this long is stored once; below it a reference would cost as much."""

FACET_LISTS: Final = 10_000

RECENT_TEXTS: Final = 200_000
"""Digests of texts that a writer remembers by itself, about 20 MB; older ones it looks up."""

TITLE_CHARACTERS: Final = 120


@dataclass(slots=True)
class SessionSink:
    """One session that is being written: its row, its assembler, what is not yet in a run."""

    row: SessionRow
    source: SourceRow
    assembler: Assembler
    counts: list[int]
    chain: bytes
    base_facets: list[int]
    unplaced: list[tuple[int, bool, int]] = field(default_factory=list)
    """(kind code, is anchor, block) of entries whose run is not known yet."""
    placed: Counts = Counts()
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
        meta = dict(self._catalog.rows("SELECT name, value FROM meta"))
        self._seq: int = meta["seq"] + 1
        # The mark grows with every commit, also one that adds no entry, so that facts have a
        # moment of their own.
        self._since = self._seq
        self._docs: int = meta["docs"]
        self._next_ord: int = meta["next_ord"]
        self._next_text: int = meta["next_text"]
        self._commit: int = meta["commit"]
        self._next_batch: int = self._catalog.row("SELECT ifnull(max(batch),0)+1 FROM batches")[0]
        lengths = self._catalog.lengths()
        if _has_leftovers(epoch.store, lengths):
            # Where the catalog's own commit failed at its end, its log may still hold what
            # belongs to them: this writes over it, before they go.
            with self._catalog.transaction() as db:
                put_meta(db, seq=meta["seq"])
        self._store = epoch.store.writer(lengths)
        self._index = epoch.index.writer(heap_bytes)
        self._index_folder = epoch.index.folder
        self._index.delete_seq_from(self._seq)
        self._to_purge: dict[int, SessionRow] = {
            row[0]: SessionRow.from_json(row[1])
            for row in self._catalog.rows(
                "SELECT ord, row FROM sessions WHERE current=0 AND purged=0"
            )
        }
        if self._to_purge:
            self._index.delete_sessions(list(self._to_purge))
            self._docs -= sum(row.docs for row in self._to_purge.values())
        self._has_texts = self._catalog.row("SELECT 1 FROM payloads LIMIT 1") is not None
        """Whether the catalog knows texts that are not among the recent ones."""
        self._recent: dict[bytes, int] = {}
        self._facets: dict[tuple[str, str], int] = {}
        self._facet_lists: dict[tuple[object, ...], list[int]] = {}
        self.is_dead = False
        """A part of it failed; only a new writer goes on."""
        self._clear()

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
            row, source, assembler, list(row.counts), bytes.fromhex(row.digest),
            [self._facet("agent", row.agent), facet("session", str(row.ord))],
            placed=Counts(*row.counts), placed_anchors=row.anchors,
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
            row.title, row.own_title = header.title[:TITLE_CHARACTERS], True

    def _facet(self, name: str, value: str) -> int:
        found = self._facets.get((name, value))
        if found is None:
            found = self._facets[(name, value)] = facet(name, value)
        return found

    # ------------------------------------------------------------ records

    def add(self, sink: SessionSink, record: Record, entries: list[AssembledEntry]) -> None:
        """Adds one committed record with the entries that were assembled from it."""
        try:
            self._add(sink, record, entries)
        except BaseException:
            self.is_dead = True
            raise

    def _add(self, sink: SessionSink, record: Record, entries: list[AssembledEntry]) -> None:
        row = sink.row
        ord = row.ord
        self._sinks[ord] = sink  # a commit inside a session lets go of it
        row.records += 1
        sink.chain = hashlib.sha256(sink.chain + record.digest).digest()[:16]
        self._store.add_record(ord, record, len(entries))
        for flag, first, last in record.facts:
            self._new_facts.append(FactRow(ord, flag, first, last, "r", self._since, 1))
        for assembled in entries:
            self._add_entry(sink, assembled)

    def _add_entry(self, sink: SessionSink, assembled: AssembledEntry) -> None:
        entry, text, data = assembled
        row = sink.row
        ord = row.ord
        text_id = self._text(data) if data else 0
        self._store.add_entry(ord, entry, text_id, text_head(data))
        code = kind_code(entry)
        facets = self._facets_of(sink, entry)
        added = self._index.add(
            key=ord << 32 | entry.ordinal,
            seq=self._seq,
            time=entry.timestamp,
            facets=facets,
            text=text,
        )
        self._seq += 1
        row.docs += added
        self._docs += added
        row.entries += 1
        row.counts[code] += 1
        row.anchors += entry.is_anchor
        row.turns = entry.turn
        row.text_bytes += len(data)
        moment = entry.timestamp
        if moment is not None:
            row.started = moment if row.started is None else min(row.started, moment)
            row.ended = moment if row.ended is None else max(row.ended, moment)
        if entry.identity:
            self._identities.append((entry.identity, ord, entry.ordinal))
        if entry.plan:
            self._plans.append((ord, entry.ordinal))
        if entry.is_anchor and code == 0 and not row.title:
            row.title = derived_summary(text, TITLE_CHARACTERS)
        sink.unplaced.append((code, entry.is_anchor, entry.ref.block))
        self.uncommitted_bytes += len(data) + 200

    def _facets_of(self, sink: SessionSink, entry: Entry) -> list[int]:
        """The filter codes of an entry; entries that differ in nothing else share a list."""
        alike = (
            entry.kind, entry.tool_part, entry.tool_name, entry.error, entry.flags, entry.branch,
            entry.model,
        )  # fmt: skip
        common = self._facet_lists.get(alike)
        if common is None:
            known = self._facet
            common = [known("kind", entry.kind)]
            if entry.tool_part:
                common.append(known("part", entry.tool_part))
                if entry.tool_name:
                    common.append(known("tool", entry.tool_name))
                if entry.error is not None:
                    common.append(known("error", "1" if entry.error else "0"))
            common += [known("flag", name) for name in flag_names(entry.flags)]
            if entry.branch:
                common.append(known("branch", entry.branch))
            if entry.model:
                common.append(known("model", entry.model))
            if len(self._facet_lists) > FACET_LISTS:
                self._facet_lists.clear()
            self._facet_lists[alike] = common
        facets = sink.base_facets + common
        if entry.call_id:
            facets.append(facet("call", entry.call_id))
        return facets

    def _text(self, data: bytes) -> int:
        """The id of a text; an identical one is stored once."""
        if len(data) < SHARED_TEXT_BYTES:
            return self._new_text(data)
        digest = hashlib.sha256(data).digest()[:16]
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
            sink = self._sinks[run.session] if run.session in self._sinks else None
            if sink is None:
                continue  # a generation that was given up within this batch
            start = cursor.get(run.session, 0)
            part = sink.unplaced[start : start + run.rows]
            cursor[run.session] = start + run.rows
            rows.append(
                (run.session, run.first_ordinal, run.rows, first_batch + run.batch_index, run.row0,
                 run.first_record, run.last_record, part[0][2], sink.placed_anchors, *sink.placed)
            )  # fmt: skip
            codes = [code for code, _, _ in part]
            sink.placed = sink.placed.plus(Counts(*(codes.count(n) for n in range(5))))
            sink.placed_anchors += sum(is_anchor for _, is_anchor, _ in part)
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
