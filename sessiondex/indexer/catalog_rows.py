"""The rows of a catalog that others work with: what they hold, and how they are written and read.

Knows the columns of its tables, and no connection but the one that it is given.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple
from zlib import crc32

from sessiondex.errors import Damaged
from sessiondex.indexer.assembly import Counts


@dataclass(slots=True)
class SessionRow:
    """One generation of one session, as the catalog and the journal keep it."""

    ord: int
    session: str
    agent: str
    format: str
    parser_version: int
    source_path: str
    source_root: str
    selector: str = ""
    generation: int = 1
    shared: list[int] = field(default_factory=list)
    """For generations 2, 3, …: how many leading records each shares with the one before."""
    project: str = ""
    branch: str = ""
    model: str = ""
    title: str = ""
    own_title: bool = False
    parent: str = ""
    segment_id: str = ""
    sub_agent: bool = False
    run: dict[str, Any] = field(default_factory=dict)
    started: int | None = None
    ended: int | None = None
    turns: int = 0
    entries: int = 0
    records: int = 0
    anchors: int = 0
    text_bytes: int = 0
    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0, 0])
    digest: str = ""
    """Chain digest (hex) of the committed records."""
    docs: int = 0
    """Documents in the term index."""
    current: bool = True
    purged: bool = False
    """Its documents are gone from the term index."""

    def to_json(self) -> str:
        values = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(values, ensure_ascii=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> SessionRow:
        """Raises:
        Damaged: when the row is not one of ours.
        """
        try:
            values = json.loads(text)
            return cls(**values)
        except (ValueError, TypeError) as error:
            raise Damaged(
                f"a session row of the catalog cannot be read: {error}",
                hint="run 'sessiondex check --repair'",
            ) from error

    @property
    def kind_counts(self) -> Counts:
        return Counts(*self.counts)


@dataclass(slots=True)
class SourceRow:
    """What is remembered of one file, so that an unchanged one costs a `stat`."""

    source: int
    path: str
    root: str
    format: str
    parser_version: int
    size: int = 0
    mtime_ns: int = 0
    inode: int = 0
    head: bytes = b""
    """Digest of the first bytes and of those before the resume offset."""
    state: dict[str, Any] = field(default_factory=dict)
    """Resume states by selector."""
    reason: str = ""
    """Why the file could not be read; '' if it could."""
    corrupt: list[dict[str, Any]] = field(default_factory=list)
    """Corrupt records, `{file, line, byte_offset, reason}`; at most 100 are kept."""
    pending: bool = False
    """It ends in a provisional tail, to be committed when the file has settled."""
    gone: bool = False


class EntryRun(NamedTuple):
    """Consecutive entries of one session inside one batch, and what stands before them."""

    ord: int
    first: int
    rows: int
    batch: int
    row0: int
    first_record: int
    last_record: int
    first_block: int
    anchors: int
    before: Counts

    @property
    def stop(self) -> int:
        return self.first + self.rows


class RecordRun(NamedTuple):
    """Consecutive records of one session inside one batch."""

    ord: int
    first: int
    rows: int
    batch: int
    row0: int


class FactRow(NamedTuple):
    """A flag of a range of entries (`unit` 'o', ordinals) or records ('r'), known since a mark."""

    ord: int
    flag: int
    first: int
    last: int
    unit: str
    since: int
    value: int


_SESSION_COLUMNS = (
    "ord,session,current,purged,source,selector,agent,project,branch,model,parent,started,ended,"
    "entries,records,row"
)
SOURCE_COLUMNS = tuple(item.name for item in fields(SourceRow))
"""As the fields of a `SourceRow` are named."""


def source_row(row: Iterable[Any]) -> SourceRow:
    """Reads `SOURCE_COLUMNS`.

    Raises:
        Damaged: when the row is not one of ours.
    """
    values = dict(zip(SOURCE_COLUMNS, row, strict=True))
    try:
        values["state"] = json.loads(values["state"])
        values["corrupt"] = json.loads(values["corrupt"])
    except ValueError as error:
        raise Damaged(
            f"a source row of the catalog cannot be read: {error}",
            hint="run 'sessiondex check --repair'",
        ) from error
    values["pending"] = bool(values["pending"])
    values["gone"] = bool(values["gone"])
    return SourceRow(**values)


def put_session(db: sqlite3.Connection, row: SessionRow, source: int) -> None:
    """Writes or replaces a session row inside a transaction."""
    db.execute(
        f"INSERT OR REPLACE INTO sessions ({_SESSION_COLUMNS}) VALUES ({','.join('?' * 16)})",
        (row.ord, row.session, int(row.current), int(row.purged), source, row.selector, row.agent,
         row.project, row.branch, row.model, row.parent, row.started, row.ended, row.entries,
         row.records, row.to_json()),
    )  # fmt: skip


def put_source(db: sqlite3.Connection, row: SourceRow) -> None:
    """Writes or replaces a source row inside a transaction."""
    values = [getattr(row, name) for name in SOURCE_COLUMNS]
    values = [int(value) if isinstance(value, bool) else value for value in values]
    values[SOURCE_COLUMNS.index("state")] = json.dumps(row.state, separators=(",", ":"))
    values[SOURCE_COLUMNS.index("corrupt")] = json.dumps(row.corrupt, separators=(",", ":"))
    db.execute(
        f"INSERT OR REPLACE INTO sources ({','.join(SOURCE_COLUMNS)},sum)"
        f" VALUES ({','.join('?' * len(SOURCE_COLUMNS))},?)",
        (*values, source_sum(values)),
    )


def source_sum(values: Iterable[Any]) -> int:
    """Checksum of the columns of a source row but `gone`, which changes by itself."""
    return crc32(repr(tuple(values)[:-1]).encode())
