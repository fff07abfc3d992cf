"""`state.sqlite3`: what outlives a process beside a library and belongs to no index run.

Grants and the audit are here; tokens, rows of workers and what extract runs leave stand in the
same file (see `tokens`, `worker_rows`, `extract.ledger`). Every call is one short transaction of
its own, so that no tool waits for an index run and a revocation holds at the next call of any
process. No session text is ever written here.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, NamedTuple

from sessiondex.errors import Damaged, Failed, InvalidArgument, NotFound
from sessiondex.features.subjects import Subject, parse_subject, subject_key

OBSERVE: Final = "observe"
"""The only verb of a grant."""

_BUSY_SECONDS: Final = 5.0

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS grants (
  number INTEGER PRIMARY KEY, workspace TEXT NOT NULL, observer TEXT NOT NULL,
  subject TEXT NOT NULL, verb TEXT NOT NULL, created INTEGER NOT NULL, revoked INTEGER);
CREATE UNIQUE INDEX IF NOT EXISTS grants_in_force
  ON grants (workspace, observer, subject, verb) WHERE revoked IS NULL;
CREATE TABLE IF NOT EXISTS tokens (
  digest BLOB PRIMARY KEY, workspace TEXT NOT NULL, name TEXT NOT NULL, role TEXT NOT NULL,
  created INTEGER NOT NULL, revoked INTEGER) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS tokens_in_force
  ON tokens (workspace, name) WHERE revoked IS NULL;
CREATE TABLE IF NOT EXISTS workers (
  workspace TEXT NOT NULL, subject TEXT NOT NULL, session TEXT NOT NULL, status TEXT NOT NULL,
  last_seen INTEGER NOT NULL, display_name TEXT NOT NULL,
  PRIMARY KEY (workspace, subject)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS orchestrators (
  workspace TEXT PRIMARY KEY, observer TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS audit (
  number INTEGER PRIMARY KEY, time INTEGER NOT NULL, workspace TEXT NOT NULL, actor TEXT NOT NULL,
  action TEXT NOT NULL, subject TEXT NOT NULL, outcome TEXT NOT NULL);
CREATE TRIGGER IF NOT EXISTS audit_keeps_rows BEFORE DELETE ON audit
  BEGIN SELECT raise(ABORT, 'the audit is append-only'); END;
CREATE TRIGGER IF NOT EXISTS audit_keeps_values BEFORE UPDATE ON audit
  BEGIN SELECT raise(ABORT, 'the audit is append-only'); END;
CREATE TABLE IF NOT EXISTS extract_pointers (
  session TEXT PRIMARY KEY, token TEXT NOT NULL, generation INTEGER NOT NULL,
  records INTEGER NOT NULL, run TEXT NOT NULL, moved INTEGER NOT NULL, base TEXT NOT NULL,
  base_records INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS extract_leases (
  session TEXT PRIMARY KEY, run TEXT NOT NULL, holder TEXT NOT NULL, fence INTEGER NOT NULL,
  token TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, done INTEGER NOT NULL,
  started INTEGER NOT NULL, expires INTEGER NOT NULL, ended INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS extract_claims (
  run TEXT NOT NULL, claim TEXT NOT NULL, record TEXT NOT NULL, reserved INTEGER NOT NULL,
  PRIMARY KEY (run, claim)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS extract_runs (
  number INTEGER PRIMARY KEY, session TEXT NOT NULL, run TEXT NOT NULL, holder TEXT NOT NULL,
  fence INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, started INTEGER NOT NULL,
  ended INTEGER NOT NULL, outcome TEXT NOT NULL, reason TEXT NOT NULL, detail TEXT NOT NULL,
  staged INTEGER NOT NULL, pointer INTEGER, pointer_reason TEXT NOT NULL, facts TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS extract_runs_by_session ON extract_runs (session, fence);
CREATE INDEX IF NOT EXISTS extract_runs_by_id ON extract_runs (run);
CREATE TRIGGER IF NOT EXISTS extract_runs_keep_rows BEFORE DELETE ON extract_runs
  BEGIN SELECT raise(ABORT, 'ended runs are append-only'); END;
CREATE TRIGGER IF NOT EXISTS extract_runs_keep_values BEFORE UPDATE ON extract_runs
  BEGIN SELECT raise(ABORT, 'ended runs are append-only'); END;
CREATE TABLE IF NOT EXISTS extract_decisions (
  session TEXT PRIMARY KEY, decided INTEGER NOT NULL, reason TEXT NOT NULL,
  growth INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL,
  threshold INTEGER NOT NULL) WITHOUT ROWID;
"""


class Grant(NamedTuple):
    """The permission of one worker to observe one subject; times in epoch milliseconds."""

    workspace: str
    observer: str
    subject: Subject
    verb: str
    created: int
    revoked: int | None


class AuditRow(NamedTuple):
    """One line of the audit: who did what to which subject, never what a session says."""

    time: int
    workspace: str
    actor: str
    action: str
    subject: str
    outcome: str


class State:
    """The state beside a library. Thread-safe; any number of processes may hold it open."""

    def __init__(self, connection: sqlite3.Connection, path: Path | None) -> None:
        self._connection = connection
        self._lock = threading.RLock()
        self.path = path
        self._identity = _identity(path)

    @classmethod
    def open(cls, path: Path | None) -> State:
        """Opens the state file, which is made 0600 where there is none; None: in memory.

        Raises:
            Failed: it cannot be made or opened.
            Damaged: the file is no state of ours.
        """
        try:
            if path is not None:
                os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            connection = sqlite3.connect(
                ":memory:" if path is None else path, timeout=_BUSY_SECONDS,
                isolation_level=None, check_same_thread=False,
            )  # fmt: skip
        except (OSError, sqlite3.Error) as error:
            raise Failed(f"the state cannot be opened: {error}", hint="check its folder") from error
        state = cls(connection, path)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.executescript(_SCHEMA)
        except sqlite3.Error as error:
            connection.close()
            raise state._failure(error) from error
        return state

    @classmethod
    def open_read_only(cls, path: Path) -> State:
        """Opens a state file that cannot be written; it is written to by nobody then.

        Raises:
            Failed: it cannot be opened.
            Damaged: the file is no state of ours.
        """
        failure: sqlite3.Error | None = None
        # Beside a log that is still there its index is; without one, the file is all there is.
        for how in ("mode=ro", "mode=ro&immutable=1"):
            try:
                connection = sqlite3.connect(
                    f"{path.absolute().as_uri()}?{how}", uri=True, timeout=_BUSY_SECONDS,
                    isolation_level=None, check_same_thread=False,
                )  # fmt: skip
            except sqlite3.Error as error:
                failure = error
                continue
            state = cls(connection, path)
            try:
                connection.execute("SELECT count(*) FROM audit")
                return state
            except sqlite3.Error as error:
                connection.close()
                failure = error
        assert failure is not None
        raise _failure_of(path, failure) from failure

    @classmethod
    def beside(cls, library: Path) -> State:
        """The state of a library: `state.sqlite3` in its folder."""
        return cls.open(library / "state.sqlite3")

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def __enter__(self) -> State:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        """One transaction that writes."""
        with self._lock:
            self._require_file()
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    yield self._connection
                except BaseException:
                    self._connection.execute("ROLLBACK")
                    raise
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise self._failure(error) from error

    def rows(self, sql: str, arguments: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows that a statement finds at this moment."""
        with self._lock:
            self._require_file()
            try:
                return self._connection.execute(sql, tuple(arguments)).fetchall()
            except sqlite3.Error as error:
                raise self._failure(error) from error

    def _require_file(self) -> None:
        """What is written to a file that was taken away is lost, and what stands there old.

        Raises:
            Failed: the file is gone, or another one stands in its place.
        """
        if self.path is not None and _identity(self.path) != self._identity:
            raise Failed("the state was moved or deleted while it was in use", hint="begin again")

    def _failure(self, error: sqlite3.Error) -> Failed | Damaged:
        return _failure_of(self.path, error)

    # ------------------------------------------------------------ grants

    def add_grant(self, observer: str, subject: Subject, *, now: int, workspace: str = "") -> Grant:
        """Lets an observer observe a subject; one that may already keeps its grant."""
        named = checked_name(observer, "observer")
        with self.transaction() as db:
            db.execute(
                "INSERT OR IGNORE INTO grants (workspace,observer,subject,verb,created)"
                " VALUES (?,?,?,?,?)",
                (workspace, named, subject_key(subject), OBSERVE, now),
            )
        return self.grants(observer=named, workspace=workspace, subject=subject)[0]

    def remove_grant(
        self, observer: str, subject: Subject, *, now: int, workspace: str = ""
    ) -> None:
        """Revokes a grant: it is gone at the next call, of any process.

        Raises:
            NotFound: there is none in force.
        """
        with self.transaction() as db:
            changed = db.execute(
                "UPDATE grants SET revoked=? WHERE workspace=? AND observer=? AND subject=?"
                " AND verb=? AND revoked IS NULL",
                (now, workspace, observer, subject_key(subject), OBSERVE),
            ).rowcount
        if not changed:
            raise NotFound("no such grant is in force", hint="see 'sessiondex grant list'")

    def grants(
        self,
        *,
        observer: str | None = None,
        workspace: str | None = None,
        subject: Subject | None = None,
        include_revoked: bool = False,
    ) -> list[Grant]:
        """Grants, the newest first."""
        where, values = condition(
            observer=observer, workspace=workspace,
            subject=None if subject is None else subject_key(subject),
        )  # fmt: skip
        if not include_revoked:
            where += " AND revoked IS NULL"
        rows = self.rows(
            "SELECT workspace,observer,subject,verb,created,revoked FROM grants"
            f" WHERE {where} ORDER BY number DESC",
            values,
        )
        return [
            Grant(place, named, self.subject(key), verb, created, revoked)
            for place, named, key, verb, created, revoked in rows
        ]

    def is_granted(self, observer: str, subject: Subject, *, workspace: str = "") -> bool:
        """Whether an observer may observe a subject at this moment."""
        return bool(
            self.rows(
                "SELECT 1 FROM grants WHERE workspace=? AND observer=? AND subject=? AND verb=?"
                " AND revoked IS NULL",
                (workspace, observer, subject_key(subject), OBSERVE),
            )
        )

    def granted_subjects(self, observer: str, *, workspace: str = "") -> list[Subject]:
        """The subjects that an observer may observe at this moment, the newest grant first."""
        return [grant.subject for grant in self.grants(observer=observer, workspace=workspace)]

    def subject(self, key: str) -> Subject:
        """The subject that was stored under its key."""
        try:
            return parse_subject(json.loads(key))
        except (ValueError, InvalidArgument) as error:
            raise Damaged(
                f"the state {self.path} holds a malformed subject: {error}",
                hint="restore it, or move it away",
            ) from error

    # ------------------------------------------------------------ audit

    def audit(
        self,
        action: str,
        *,
        actor: str,
        outcome: str,
        now: int,
        workspace: str = "",
        subject: Subject | None = None,
        session: str = "",
        within: sqlite3.Connection | None = None,
    ) -> None:
        """Appends a line to the audit. There is no place in it for what a session says.

        The subject is a worker's, or a session that is named by its id. `within` is the open
        `transaction` that the line is part of: it is written if that is, and not otherwise.
        """
        key = "" if subject is None else subject_key(subject)
        if session:
            key = json.dumps({"kind": "session", "session": session}, separators=(",", ":"))
        with self.transaction() if within is None else nullcontext(within) as db:
            db.execute(
                "INSERT INTO audit (time,workspace,actor,action,subject,outcome)"
                " VALUES (?,?,?,?,?,?)",
                (now, workspace, actor[:200], action[:200], key, outcome[:200]),
            )

    def audit_rows(self, *, limit: int = 100) -> list[AuditRow]:
        """The last lines of the audit, the newest first."""
        rows = self.rows(
            "SELECT time,workspace,actor,action,subject,outcome FROM audit"
            " ORDER BY number DESC LIMIT ?",
            (limit,),
        )
        return [AuditRow(*row) for row in rows]


def _failure_of(path: Path | None, error: sqlite3.Error) -> Failed | Damaged:
    if isinstance(error, sqlite3.OperationalError | sqlite3.ProgrammingError):
        return Failed(f"the state cannot be used: {error}", hint="try again")
    return Damaged(f"the state {path} is damaged: {error}", hint="restore it, or move it away")


def _identity(path: Path | None) -> tuple[int, int] | None:
    """Which file stands at a path; None: none."""
    try:
        found = None if path is None else os.stat(path)
    except OSError:
        return None
    return None if found is None else (found.st_dev, found.st_ino)


def subject_not_found() -> NotFound:
    """The one answer for a subject that is not there, and for one that may not be observed."""
    return NotFound(
        "no such worker session", hint="use a subject exactly as ListWorkerSessions returned it"
    )


def checked_name(name: str, what: str) -> str:
    """The name, if it is one that may be stored.

    Raises:
        InvalidArgument: it is blank, over 200 bytes, or not printable.
    """
    size = len(name.encode("utf-8", "surrogatepass"))
    if not name.strip() or size > 200 or not name.isprintable():
        raise InvalidArgument(
            f"malformed {what} {name[:40]!r}", hint="expected 1 to 200 bytes of printable text"
        )
    return name


def condition(**columns: str | None) -> tuple[str, list[str]]:
    """A condition on the columns that are given."""
    given = {name: value for name, value in columns.items() if value is not None}
    return " AND ".join(["1", *(f"{name}=?" for name in given)]), list(given.values())
