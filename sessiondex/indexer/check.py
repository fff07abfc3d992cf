"""Checks a library against what it must be, names what is damaged, and repairs it.

The catalog is compared with what the item store alone tells; item batches and sealed index files
with their checksums; the index with the number of documents; sources, if asked, with the digests
of the records that were read from them.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tantivy import Query

from sessiondex.errors import Damaged, NotFound, SessiondexError
from sessiondex.indexer.catalog import SEALED_TABLES, Catalog, meta_sum, table_sum
from sessiondex.indexer.catalog_log import log_problem
from sessiondex.indexer.catalog_rows import SessionRow, source_sum
from sessiondex.indexer.index_files import file_problems
from sessiondex.indexer.item_store import ItemStore
from sessiondex.indexer.library import (
    Epoch,
    Library,
    read_manifest,
    remove_epochs,
)
from sessiondex.indexer.lock import is_locked, writer_lock
from sessiondex.indexer.preparing import SHARED_TEXT_BYTES
from sessiondex.indexer.rebuild import StoreContents, contents_of, rebuild
from sessiondex.indexer.sources import format_named
from sessiondex.indexer.sources.base import SessionStub, SourceFile
from sessiondex.indexer.term_fields import Filter, range_query

TRIES: Final = 10
"""How often a library that changes meanwhile is looked at again."""

_UNREADABLE: Final = (
    sqlite3.DatabaseError, ValueError, TypeError, OverflowError, LookupError, AttributeError,
)  # fmt: skip
"""What values of a changed catalog may lead to."""


@dataclass(slots=True)
class CheckReport:
    """What a check found."""

    problems: list[dict[str, str]] = field(default_factory=list)
    """`{part, problem}`: damage of the library itself."""
    sources: list[dict[str, str]] = field(default_factory=list)
    """`{session, file, status, problem}` of sources that are gone or differ; no damage."""
    sessions: int = 0
    entries: int = 0
    batches: int = 0
    index_files: int = 0

    @property
    def is_sound(self) -> bool:
        return not self.problems

    def add(self, part: str, problem: str) -> None:
        self.problems.append({"part": part, "problem": problem})

    def to_json(self) -> dict[str, Any]:
        return {
            "sound": self.is_sound,
            "problems": self.problems,
            "sources": self.sources,
            "checked": {
                "sessions": self.sessions,
                "entries": self.entries,
                "batches": self.batches,
                "index_files": self.index_files,
            },
        }


def check_library(path: str | Path, *, sources: bool = False) -> CheckReport:
    """Checks every part of a library; reads all of it, writes nothing.

    Raises:
        NotFound: there is no library.
        UnsupportedVersion: a newer release wrote it.
    """
    folder = Path(path)
    report = CheckReport()
    for _ in range(TRIES):
        report = CheckReport()
        number = _newest_epoch(folder)
        # Before anything opens the catalog, which would let go of what it takes for torn.
        if not is_locked(folder / "writer.lock"):
            problem = log_problem(folder / f"catalog-{number}.sqlite3")
            if problem:
                report.add("catalog", problem)
        try:
            library = Library.open(folder, read_only=True)
        except Damaged as error:
            report.add("library", str(error))
            _check_items(folder / f"items-{number}", report)
            return report
        with library:
            epoch = library.epoch()
            commit = _check_epoch(epoch, report)
            if report.is_sound:
                break
            # What a writer has changed meanwhile is no damage.
            if library.epoch() is epoch and epoch.catalog.meta("commit") == commit:
                return report
    if sources and report.is_sound:
        with Library.open(folder, read_only=True) as library:
            for row in library.snapshot().rows():
                _check_source(library.epoch(), row, report)
    return report


def _check_items(folder: Path, report: CheckReport) -> None:
    """Checks the item store by itself, where nothing says how far it is committed."""
    try:
        for damage in contents_of(ItemStore.open(folder)).damages:
            report.add("items", damage.message)
    except SessiondexError as error:
        report.add("items", error.message)


def _check_epoch(epoch: Epoch, report: CheckReport) -> int:
    """Checks one commit of an epoch; returns its number."""
    commit = -1
    try:
        with epoch.catalog.reading():
            _check_versions(epoch, report)
            commit = epoch.catalog.meta("commit")
            epoch.store.pinned()
            for (line,) in epoch.catalog.rows("PRAGMA integrity_check"):
                if line != "ok":
                    report.add("catalog", line)
            lengths = epoch.catalog.lengths()
            contents = contents_of(epoch.store, lengths)
            for damage in contents.damages:
                report.add("items", damage.message)
            _check_lengths(epoch.store, lengths, report)
            if report.is_sound:
                _compare(epoch.catalog, contents, report)
                _check_texts(epoch, report)
            _check_index(epoch, report)
    except SessiondexError as error:
        report.add("catalog", error.message)
    except _UNREADABLE as error:
        report.add("catalog", f"a value cannot be read: {error!r}")
    return commit


def _check_versions(epoch: Epoch, report: CheckReport) -> None:
    folder = epoch.catalog.path.parent if epoch.catalog.path is not None else None
    told = read_manifest(folder)["index_version"] if folder is not None else None
    if told != epoch.catalog.meta("index_version"):
        report.add("library", f"library.json has changed: its index version {told} is not true")


def _check_lengths(
    store: ItemStore, lengths: dict[str, tuple[int, int]], report: CheckReport
) -> None:
    sizes = {(info.stream, info.number): info.size for info in store.files()}
    for stream, (number, length) in lengths.items():
        size = sizes.get((stream, number), 0)
        if size < length:
            report.add("items", f"{stream}-{number:06d}.arrow ends at {size} of {length} bytes")


def _compare(catalog: Catalog, contents: StoreContents, report: CheckReport) -> None:
    """Compares the catalog with what the item store tells."""
    told = contents.catalog
    known = {
        row[1:]: row[0]
        for row in catalog.rows("SELECT batch,stream,file,offset,length,crc,rows FROM batches")
    }
    numbers: dict[int, int] = {}
    for batch, *place in told.rows("SELECT batch,stream,file,offset,length,crc,rows FROM batches"):
        number = known.pop(tuple(place), None)
        if number is None:
            report.add("catalog", f"batch {place[0]} {place[1]} at {place[2]} is not listed")
        else:
            numbers[batch] = number
        report.batches += 1
    for place in known:
        report.add("catalog", f"batch {place[0]} {place[1]} at {place[2]} is not in the item store")
    if not report.is_sound:
        return
    for table, position in (("entry_runs", 3), ("record_runs", 3), ("text_runs", 1)):
        expected = {
            (*row[:position], numbers[row[position]], *row[position + 1 :])
            for row in told.rows(f"SELECT * FROM {table}")
        }
        found = set(catalog.rows(f"SELECT * FROM {table}"))
        if found != expected:
            report.add("catalog", f"{table} differs in {len(found ^ expected)} rows")
    for table in ("identities", "plans", "forgotten"):
        if catalog.rows(f"SELECT * FROM {table}") != told.rows(f"SELECT * FROM {table}"):
            report.add("catalog", f"{table} differs from the item store")
    expected_rows = {
        row[0]: json.loads(row[1]) for row in told.rows("SELECT ord,row FROM sessions")
    }
    columns = (
        "ord,row,session,current,selector,agent,project,branch,model,parent,started,ended,entries,"
        "records"
    )
    for ord, text, *values in catalog.rows(f"SELECT {columns} FROM sessions"):
        row = SessionRow.from_json(text)
        expected = expected_rows.pop(ord, None)
        if expected is not None:
            expected["purged"] = row.purged
        mine = [
            row.session, int(row.current), row.selector, row.agent, row.project, row.branch,
            row.model, row.parent, row.started, row.ended, row.entries, row.records,
        ]  # fmt: skip
        if json.loads(text) != expected or values != mine:
            report.add("catalog", f"the row of session {row.session!r} differs")
        report.sessions += row.current
        report.entries += row.entries if row.current else 0
    if expected_rows:
        report.add("catalog", f"{len(expected_rows)} sessions are not listed")
    for row in catalog.rows("SELECT * FROM sources"):
        if row[-1] != source_sum(row[:-1]):
            report.add("catalog", f"the row of source {row[1]!r} has changed")
    for table in SEALED_TABLES:
        if catalog.apply(lambda db, table=table: table_sum(db, table)) != catalog.meta(
            f"sum_{table}"
        ):
            report.add("catalog", f"{table} has changed")
    if catalog.apply(meta_sum) != catalog.meta("sum_meta"):
        report.add("catalog", "meta has changed")


def _check_texts(epoch: Epoch, report: CheckReport) -> None:
    """Every shared text has the digest under which it is known."""
    payloads = {text: digest for digest, text in epoch.catalog.rows("SELECT * FROM payloads")}
    current = 0
    hasher = hashlib.sha256()
    size = 0

    def end() -> None:
        known = payloads.pop(current, None)
        if (known is not None or size >= SHARED_TEXT_BYTES) and known != hasher.digest()[:16]:
            report.add("catalog", f"the digest of text {current} differs")

    committed = epoch.catalog.lengths().get("texts", (1, 0))
    for info, batch in epoch.store.scan("texts"):
        if (info.file, info.offset) >= committed:
            break
        ids = batch.column("text_id").to_pylist()
        for text, chunk in zip(ids, batch.column("text").to_pylist(), strict=True):
            if text != current:
                if current:
                    end()
                current, hasher, size = text, hashlib.sha256(), 0
            data = chunk.encode()
            hasher.update(data)
            size += len(data)
    if current:
        end()
    if payloads:
        report.add("catalog", f"{len(payloads)} payloads name texts that are not stored")


def _check_index(epoch: Epoch, report: CheckReport) -> None:
    if epoch.index is None:
        return
    catalog = epoch.catalog
    listed = catalog.rows("SELECT name,size,crc FROM index_files")
    report.index_files = len(listed)
    try:
        if epoch.index.folder is not None:
            for problem in file_problems(epoch.index.folder, listed):
                report.add("index", problem)
        searcher = epoch.index.searcher()
        below = Filter(seq_below=catalog.meta("seq"))
        held = 0
        for ord, text in catalog.rows("SELECT ord,row FROM sessions WHERE purged=0"):
            row = SessionRow.from_json(text)
            docs = searcher.count(range_query("key", ord << 32, (ord + 1) << 32), below)
            held += docs
            # A writer that died may have removed what is not current any more.
            if docs != row.docs and (row.current or docs):
                report.add("index", f"holds {docs} of {row.docs} documents of {row.session!r}")
        every = searcher.count(Query.all_query(), below)
        if every != held:
            report.add("index", f"holds {every - held} documents of no session")
        if searcher.count(Query.all_query(), Filter()) != searcher.document_count:
            report.add("index", "meta.json has changed: its number of documents is wrong")
    except SessiondexError as error:
        report.add("index", error.message)


def _check_source(epoch: Epoch, row: SessionRow, report: CheckReport) -> None:
    """Reads a source again and compares its records with the digests that were kept."""
    if not row.source_path:
        return
    path = Path(row.source_path)
    told = {"session": row.session, "file": row.source_path}
    if not path.exists():
        report.sources.append({**told, "status": "gone", "problem": "the file is not there"})
        return
    try:
        parser = format_named(row.format).parser(
            SourceFile(path, Path(row.source_root)), SessionStub(row.session, row.selector)
        )
        parser.settle = True
        read = parser.records()
        for known in epoch.view.records(row.ord, 0, row.records):
            now = next(read, None)
            if now is None or now.digest != known.digest:
                what = "is missing" if now is None else "differs"
                report.sources.append(
                    {**told, "status": "changed", "problem": f"record {known.number} {what}"}
                )
                return
    except (SessiondexError, OSError) as error:
        report.sources.append({**told, "status": "changed", "problem": str(error)})


def repair_library(path: str | Path, *, wait_seconds: float = 30.0) -> CheckReport:
    """Rebuilds catalog and index from the item store; says what could not be saved.

    What sources hold beyond the item store comes back with the next `index`.

    Raises:
        NotFound: there is no item store.
        Busy: another writer holds the library.
    """
    folder = Path(path)
    report = CheckReport()
    with writer_lock(folder / "writer.lock", wait_seconds=wait_seconds):
        number = _newest_epoch(folder)
        remove_epochs(folder, keep=number)
        store = ItemStore.open(folder / f"items-{number}")
        contents = contents_of(store)
        try:
            catalog = Catalog.open(folder / f"catalog-{number}.sqlite3", read_only=True)
        except SessiondexError:
            catalog = Catalog.create(None)
        epoch = Epoch(number, catalog, store, None)
        library = Library(folder, epoch)
        rebuilt = rebuild(library, epoch, contents=contents)
        catalog.close()
    for damage in contents.damages:
        report.add("items", damage.message)
    for row in library.snapshot().rows():
        report.sessions += 1
        report.entries += row.entries
    rebuilt.close()
    return report


def _newest_epoch(folder: Path) -> int:
    """The epoch that the manifest names, or where it is lost the newest that was finished."""
    numbers = sorted(
        int(path.name.removeprefix("items-"))
        for path in folder.glob("items-*")
        if path.name.removeprefix("items-").isdecimal()
    )
    try:
        named = read_manifest(folder)["epoch"]
        if named in numbers or not numbers:
            return named
    except Damaged:
        pass
    except NotFound:
        if not numbers:
            raise
    if not numbers:
        raise NotFound(f"no library at {folder}", hint="run 'sessiondex index' to make one")
    finished = [number for number in numbers if _is_finished(folder, number)]
    return max(finished or numbers)


def _is_finished(folder: Path, number: int) -> bool:
    try:
        with closing(Catalog.open(folder / f"catalog-{number}.sqlite3", read_only=True)) as catalog:
            return bool(catalog.meta("finished"))
    except SessiondexError:
        return False
