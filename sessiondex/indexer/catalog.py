"""The catalog of a library: SQLite, the one place where a commit becomes visible.

Rows about entries, texts and records never change once written; only session and source rows do.
So a capture that knows its session ordinal and its number of entries stays true through any
number of later commits. Everything but the state of sources (stat data, resume points) can be
rebuilt from the item store.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from sessiondex.errors import Damaged, Failed
from sessiondex.indexer.assembly import Counts
from sessiondex.indexer.catalog_rows import (
    SOURCE_COLUMNS,
    EntryRun,
    FactRow,
    RecordRun,
    SessionRow,
    SourceRow,
    source_row,
    source_sum,
)
from sessiondex.indexer.item_store import BatchInfo
from sessiondex.indexer.store_files import failing

_SCHEMA: Final = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE sources (
  source INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, root TEXT NOT NULL, format TEXT NOT NULL,
  parser_version INTEGER NOT NULL, size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
  inode INTEGER NOT NULL, head BLOB NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL,
  corrupt TEXT NOT NULL, pending INTEGER NOT NULL, gone INTEGER NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE sessions (
  ord INTEGER PRIMARY KEY, session TEXT NOT NULL, current INTEGER NOT NULL,
  purged INTEGER NOT NULL, source INTEGER NOT NULL, selector TEXT NOT NULL,
  agent TEXT NOT NULL, project TEXT NOT NULL, branch TEXT NOT NULL, model TEXT NOT NULL,
  parent TEXT NOT NULL, started INTEGER, ended INTEGER, entries INTEGER NOT NULL,
  records INTEGER NOT NULL, row TEXT NOT NULL);
CREATE INDEX sessions_by_id ON sessions (session, current);
CREATE INDEX sessions_by_source ON sessions (source, current);
CREATE INDEX sessions_by_end ON sessions (current, ended DESC, ord);
CREATE TABLE batches (
  batch INTEGER PRIMARY KEY, stream TEXT NOT NULL, file INTEGER NOT NULL,
  offset INTEGER NOT NULL, length INTEGER NOT NULL, crc INTEGER NOT NULL, rows INTEGER NOT NULL);
CREATE TABLE entry_runs (
  ord INTEGER NOT NULL, first INTEGER NOT NULL, rows INTEGER NOT NULL, batch INTEGER NOT NULL,
  row0 INTEGER NOT NULL, first_record INTEGER NOT NULL, last_record INTEGER NOT NULL,
  first_block INTEGER NOT NULL, anchors INTEGER NOT NULL, c0 INTEGER NOT NULL, c1 INTEGER NOT NULL,
  c2 INTEGER NOT NULL, c3 INTEGER NOT NULL, c4 INTEGER NOT NULL,
  PRIMARY KEY (ord, first)) WITHOUT ROWID;
CREATE TABLE record_runs (
  ord INTEGER NOT NULL, first INTEGER NOT NULL, rows INTEGER NOT NULL, batch INTEGER NOT NULL,
  row0 INTEGER NOT NULL, PRIMARY KEY (ord, first)) WITHOUT ROWID;
CREATE TABLE text_runs (
  last INTEGER NOT NULL, batch INTEGER NOT NULL, first INTEGER NOT NULL,
  first_start INTEGER NOT NULL, PRIMARY KEY (last, batch)) WITHOUT ROWID;
CREATE TABLE payloads (digest BLOB PRIMARY KEY, text INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE identities (
  identity INTEGER NOT NULL, ord INTEGER NOT NULL, ordinal INTEGER NOT NULL,
  PRIMARY KEY (identity, ord, ordinal)) WITHOUT ROWID;
CREATE TABLE plans (
  ord INTEGER NOT NULL, ordinal INTEGER NOT NULL, PRIMARY KEY (ord, ordinal)) WITHOUT ROWID;
CREATE TABLE facts (
  ord INTEGER NOT NULL, flag INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
  unit TEXT NOT NULL, since INTEGER NOT NULL, value INTEGER NOT NULL);
CREATE INDEX facts_by_ord ON facts (ord);
CREATE TABLE forks (ord INTEGER PRIMARY KEY, own_since INTEGER);
CREATE TABLE forgotten (path TEXT, selector TEXT, PRIMARY KEY (path, selector)) WITHOUT ROWID;
CREATE TABLE index_files (name TEXT PRIMARY KEY, size INTEGER NOT NULL, crc INTEGER NOT NULL)
  WITHOUT ROWID;
"""


Frozen = tuple[tuple[int, int], ...] | None
"""Sizes and times of a catalog's files; None for a connection that follows them."""


class Catalog:
    """One SQLite database. Thread-safe; writers are serialised by the library's writer lock."""

    def __init__(
        self, connection: sqlite3.Connection, path: Path | None, *, frozen: Frozen = None
    ) -> None:
        self._db = connection
        self.path = path
        self._frozen = frozen
        self._lock = threading.RLock()
        self._changed: set[str] | None = None
        """Sealed tables that changed since the last commit; None until something is written."""

    # ------------------------------------------------------------ opening

    @classmethod
    def create(cls, path: Path | None) -> Catalog:
        """Makes an empty catalog; `None` keeps it in memory.

        Raises:
            Failed: when the disk refuses.
        """
        if path is not None:
            # Made by us with the right mode first: SQLite would use the umask.
            with failing("create", path):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        catalog = cls(_connect(str(path) if path is not None else ":memory:"), path)
        with catalog._query() as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.executescript(_SCHEMA)
        with catalog.transaction() as db:
            seal(db, SEALED_TABLES)
            put_meta(
                db, seq=0, commit=0, docs=0, next_ord=1, next_text=1, refreshed_at=0, lengths="{}"
            )
        return catalog

    @classmethod
    def open(cls, path: Path, *, read_only: bool = False) -> Catalog:
        """Opens a catalog, also in a folder that cannot be written to.

        Raises:
            Damaged: when it is not there or not a database.
        """
        path = path.absolute()
        frozen: Frozen = None
        state = _file_state(path)
        try:
            try:
                if read_only:
                    db, is_frozen = _connect_read_only(path)
                    frozen = state if is_frozen else None
                else:
                    db = _connect(f"{path.as_uri()}?mode=rw")
                db.execute("SELECT value FROM meta WHERE name='commit'").fetchone()
            except sqlite3.OperationalError as error:
                if not any(word in str(error) for word in _DISK_TROUBLE):
                    raise
                # A full disk has no room for the shared memory that a reader needs.
                db, frozen = _connect_copy(path), state
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            what = f"cannot be read: {error}" if path.exists() else "is missing"
            raise Damaged(
                f"catalog {path.name} {what}", hint="run 'sessiondex check --repair'"
            ) from error
        return cls(db, path, frozen=frozen)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @property
    def is_frozen(self) -> bool:
        """Whether the connection sees no later commits, and cannot write."""
        return self._frozen is not None

    @property
    def is_behind(self) -> bool:
        """Whether a connection that sees no later commits has missed some."""
        return self.is_frozen and self.path is not None and self._frozen != _file_state(self.path)

    # ------------------------------------------------------------ access

    @contextmanager
    def _query(self) -> Generator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._db
            except sqlite3.OperationalError as error:
                if any(word in str(error) for word in _DAMAGE):
                    raise self._damaged(error) from error
                raise Failed(f"the catalog cannot be used: {error}") from error
            except sqlite3.ProgrammingError as error:
                if "closed" not in str(error):
                    raise self._damaged(error) from error
                raise Failed("the library was closed", hint="open it again") from error
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                # SQLite quotes what it cannot read in messages that then are no text.
                raise self._damaged(error) from error

    def _damaged(self, error: Exception) -> Damaged:
        name = self.path.name if self.path else "in memory"
        return Damaged(f"catalog {name}: {error}", hint="run 'sessiondex check --repair'")

    def rows(self, sql: str, arguments: Iterable[Any] = ()) -> list[Any]:
        """All rows of one statement."""
        with self._query() as db:
            return db.execute(sql, tuple(arguments)).fetchall()

    def row(self, sql: str, arguments: Iterable[Any] = ()) -> Any:
        """The first row, or None."""
        with self._query() as db:
            return db.execute(sql, tuple(arguments)).fetchone()

    def apply(self, function: Callable[[sqlite3.Connection], Any]) -> Any:
        """What a function makes of the connection; it must only read."""
        with self._query() as db:
            return function(db)

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """One write transaction: all of it or nothing."""
        with self._query() as db:
            if self._changed is None:
                self._changed = _watched_tables(db)
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                seal(db, self._changed)
                db.commit()
                self._changed.clear()
            except BaseException:
                db.rollback()
                self._empty_log()
                raise

    def _empty_log(self) -> None:
        """Lets no frame of a failed commit stay in the log, from which it could come back."""
        with suppress(sqlite3.Error):
            self._db.execute("PRAGMA busy_timeout=100")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with suppress(sqlite3.Error):
            self._db.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")

    @contextmanager
    def reading(self) -> Generator[None]:
        """One read transaction: all statements inside see the same commit."""
        with self._query() as db:
            began = not db.in_transaction
            if began:
                db.execute("BEGIN")
            try:
                yield
            finally:
                if began:
                    db.rollback()

    # ------------------------------------------------------------ meta

    def meta(self, name: str) -> Any:
        """A number that the library keeps; None if it was never set."""
        found = self.row("SELECT value FROM meta WHERE name=?", (name,))
        return _numbers(found)[0] if found else None

    def lengths(self) -> dict[str, tuple[int, int]]:
        """Stream → (file number, committed length) of the item store."""
        try:
            told = json.loads(self.row("SELECT value FROM meta WHERE name='lengths'")[0])
            return {name: (int(pair[0]), int(pair[1])) for name, pair in told.items()}
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise _unlike("meta lengths") from error

    # ------------------------------------------------------------ sessions

    def session(self, ord: int) -> SessionRow | None:
        found = self.row("SELECT row FROM sessions WHERE ord=?", (ord,))
        return SessionRow.from_json(found[0]) if found else None

    def current(self, session: str) -> SessionRow | None:
        """The current generation of a session."""
        found = self.row("SELECT row FROM sessions WHERE session=? AND current=1", (session,))
        return SessionRow.from_json(found[0]) if found else None

    def of_source(self, source: int) -> list[SessionRow]:
        """Current sessions that a file holds."""
        found = self.rows(
            "SELECT row FROM sessions WHERE source=? AND current=1 ORDER BY ord", (source,)
        )
        return [SessionRow.from_json(row[0]) for row in found]

    def like(self, prefix: str, limit: int) -> list[str]:
        """Ids of current sessions that begin with a prefix, in order."""
        found = self.rows(
            "SELECT session FROM sessions WHERE current=1 AND substr(session,1,?)=?"
            " ORDER BY session LIMIT ?",
            (len(prefix), prefix, limit),
        )
        return [row[0] for row in found]

    # ------------------------------------------------------------ sources

    def source(self, path: str) -> SourceRow | None:
        found = self.row(f"SELECT {','.join(SOURCE_COLUMNS)} FROM sources WHERE path=?", (path,))
        return source_row(found) if found else None

    def sources(self, *, only_true: bool = False) -> list[SourceRow]:
        """All sources; with `only_true`, those whose checksum holds."""
        found = self.rows(f"SELECT {','.join(SOURCE_COLUMNS)},sum FROM sources ORDER BY source")
        return [source_row(row) for *row, told in found if not only_true or told == source_sum(row)]

    # ------------------------------------------------------------ places in the item store

    def batch(self, number: int) -> BatchInfo:
        found = self.row(
            "SELECT stream,file,offset,length,crc,rows FROM batches WHERE batch=?", (number,)
        )
        if found is None:
            raise Damaged(
                f"batch {number} is not in the catalog", hint="run 'sessiondex check --repair'"
            )
        return BatchInfo(found[0], *_numbers(found[1:]))

    def run_of_ordinal(self, ord: int, ordinal: int) -> EntryRun | None:
        """The run that holds an ordinal, or the last one before it."""
        return self._run(
            "SELECT * FROM entry_runs WHERE ord=? AND first<=? ORDER BY first DESC LIMIT 1",
            (ord, ordinal),
        )

    def run_of_anchor(self, ord: int, anchor: int, limit: int) -> EntryRun | None:
        """The last run that begins before the anchor-th anchor (from 0), below ordinal `limit`."""
        return self._run(
            "SELECT * FROM entry_runs WHERE ord=? AND anchors<=? AND first<?"
            " ORDER BY first DESC LIMIT 1",
            (ord, anchor, limit),
        )

    def run_of_record(self, ord: int, record: int) -> EntryRun | None:
        """The last run that begins before the first entry of a record, else the first run."""
        return self._run(
            "SELECT * FROM entry_runs WHERE ord=? AND first_record<? ORDER BY first DESC LIMIT 1",
            (ord, record),
        ) or self._run("SELECT * FROM entry_runs WHERE ord=? ORDER BY first LIMIT 1", (ord,))

    def _run(self, sql: str, arguments: tuple[int, ...]) -> EntryRun | None:
        found = self.row(sql, arguments)
        if found is None:
            return None
        values = _numbers(found)
        return EntryRun._make((*values[:9], Counts._make(values[9:])))

    def record_run(self, ord: int, record: int) -> RecordRun | None:
        found = self.row(
            "SELECT * FROM record_runs WHERE ord=? AND first<=? ORDER BY first DESC LIMIT 1",
            (ord, record),
        )
        return RecordRun(*_numbers(found)) if found else None

    def text_batches(self, text: int, start: int) -> list[BatchInfo]:
        """The batches that hold a text from a byte on, in order."""
        found: list[BatchInfo] = []
        with self._query() as db:
            cursor = db.execute(
                "SELECT b.stream,t.first,t.first_start,b.file,b.offset,b.length,b.crc,b.rows"
                " FROM text_runs t JOIN batches b USING (batch) WHERE t.last>=?"
                " ORDER BY t.last, t.batch",
                (text,),
            )
            for stream, *row in cursor:
                first, first_start, *place = _numbers(row)
                if first > text:
                    break
                if first == text and first_start <= start:
                    found.clear()  # the byte is in this batch or behind it
                found.append(BatchInfo(stream, *place))
            cursor.close()
        return found

    # ------------------------------------------------------------ facts and copies

    def facts(self, ord: int, mark: int) -> list[FactRow]:
        """Facts of a session that were known at a mark, oldest first."""
        found = self.rows(
            "SELECT ord,flag,first,last,unit,since,value FROM facts WHERE ord=? AND since<=?"
            " ORDER BY rowid",
            (ord, mark),
        )
        return [
            FactRow._make((*_numbers((ord, flag, first, last)), unit, *_numbers((since, value))))
            for ord, flag, first, last, unit, since, value in found
        ]

    def holders(self, identity: int) -> list[tuple[int, int]]:
        """`(session ordinal, entry ordinal)` of every entry with this identity."""
        return self.rows("SELECT ord, ordinal FROM identities WHERE identity=?", (identity,))


def _numbers(values: Iterable[Any]) -> list[int]:
    """Values that must be numbers: a damaged row may hold anything."""
    found = list(values)
    for value in found:
        if type(value) is not int:
            raise _unlike("a place")
    return found


def _unlike(what: str) -> Damaged:
    return Damaged(
        f"{what} in the catalog is not of the type that was written",
        hint="run 'sessiondex check --repair'",
    )


BUSY_SECONDS: Final = 30
"""How long a statement waits for another connection; only commits and closing take that lock."""

_DISK_TROUBLE: Final = ("disk I/O error", "disk is full")

_DAMAGE: Final = ("malformed", "not a database", "no such", "could not decode", "Could not decode")
"""What SQLite says of a catalog that is not as it was written."""


def _connect(target: str) -> sqlite3.Connection:
    db = sqlite3.connect(
        target, uri=True, check_same_thread=False, isolation_level=None, timeout=BUSY_SECONDS
    )
    db.execute("PRAGMA synchronous=FULL")
    db.execute("PRAGMA cache_size=-16000")
    return db


def _connect_read_only(path: Path) -> tuple[sqlite3.Connection, bool]:
    """A connection, and whether it is of the catalog as it is now, for good."""
    uri, wal = path.as_uri(), path.with_name(path.name + "-wal")
    if os.access(path.parent, os.W_OK) and os.access(path, os.W_OK):
        return _connect(f"{uri}?mode=ro"), False
    if not wal.exists() or not wal.stat().st_size:
        return _connect(f"{uri}?immutable=1"), True
    # A writer is at work, or died: commits stand in the log, which `immutable` does not read.
    if path.with_name(path.name + "-shm").exists():
        return _connect(f"{uri}?mode=ro"), False
    return _connect_copy(path), True


def _file_state(path: Path) -> Frozen:
    """Changes with every commit to a catalog."""
    found: list[tuple[int, int]] = []
    for each in (path, path.with_name(path.name + "-wal")):
        with suppress(FileNotFoundError):
            state = each.stat()
            found.append((state.st_size, state.st_mtime_ns))
    return tuple(found)


def _connect_copy(path: Path) -> sqlite3.Connection:
    """Opens a copy of a catalog and its log, for reading."""
    import shutil
    import tempfile

    wal = path.with_name(path.name + "-wal")
    with tempfile.TemporaryDirectory(prefix="sessiondex-") as folder, failing("copy", path):
        copy = Path(folder) / path.name
        shutil.copy(path, copy)
        if wal.exists():
            shutil.copy(wal, copy.with_name(wal.name))
        db = _connect(copy.as_uri())
        db.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # reads the log before it goes
        db.execute("PRAGMA query_only=1")  # what is written to a copy would be lost
        return db


SEALED_TABLES: Final = ("facts", "forks", "forgotten", "index_files")
"""Small tables that cannot be derived from the item store; each is sealed as a whole by a write
that changes it."""


def _watched_tables(db: sqlite3.Connection) -> set[str]:
    """A set to which this connection adds each sealed table that it changes."""
    changed: set[str] = set()
    db.create_function("changed", 1, changed.add)
    for table in SEALED_TABLES:
        for event in ("INSERT", "UPDATE", "DELETE"):
            db.execute(
                f"CREATE TEMP TRIGGER {table}_{event} AFTER {event} ON main.{table}"
                f" BEGIN SELECT changed('{table}'); END"
            )
    return changed


def table_sum(db: sqlite3.Connection, table: str) -> int:
    """Checksum of all rows of a table."""
    value = 0
    for row in db.execute(f"SELECT * FROM {table} ORDER BY 1, 2"):
        value = crc32(repr(row).encode(), value)
    return value


def seal(db: sqlite3.Connection, tables: Iterable[str]) -> None:
    """Ends a write transaction: checksums of the tables that it changed, and of meta itself."""
    for table in sorted(tables):
        put_meta(db, **{f"sum_{table}": table_sum(db, table)})
    put_meta(db, sum_meta=meta_sum(db))


def meta_sum(db: sqlite3.Connection) -> int:
    """Checksum of the meta table but for this checksum."""
    rows = db.execute("SELECT name, value FROM meta WHERE name<>'sum_meta' ORDER BY name")
    return crc32(repr(rows.fetchall()).encode())


def put_meta(db: sqlite3.Connection, **values: Any) -> None:
    """Sets meta values inside a transaction."""
    db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(values.items()))
