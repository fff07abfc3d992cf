"""The sessions of a library: which there are, filtered and in pages, newest first."""

from __future__ import annotations

import base64
import binascii
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from sessiondex.errors import InvalidArgument
from sessiondex.indexer.folding import fold
from sessiondex.limits import PAGE
from sessiondex.query.entry_view import shown_fact, shown_field, shown_title
from sessiondex.query.filters import EntryFilter
from sessiondex.query.reply import Reply, clamp
from sessiondex.query.resuming import resume_command
from sessiondex.query.times import format_time

if TYPE_CHECKING:
    from sessiondex.indexer.catalog_rows import SessionRow
    from sessiondex.indexer.snapshot import LibrarySnapshot

NO_TIME: Final = -(1 << 63)
"""Stands for the missing time of sessions, which come last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFilter:
    """Which sessions are asked for; what is empty does not bind."""

    words: str = ""
    """All of them stand in the title, id, project, branch, agent or model; case does not count."""
    agents: Sequence[str] = ()
    projects: Sequence[str] = ()
    """Folders, which take in those below them, or their last parts."""
    branches: Sequence[str] = ()
    models: Sequence[str] = ()
    since: int | None = None
    """Epoch milliseconds; a session that was active then or later."""
    until: int | None = None

    def admits(self, row: SessionRow) -> bool:
        """Whether a session is one of those."""
        where = EntryFilter(agents=tuple(self.agents), projects=tuple(self.projects))
        if not where.admits_session(row):
            return False
        if (self.branches and row.branch not in self.branches) or (
            self.models and row.model not in self.models
        ):
            return False
        if self.since is not None and (row.ended is None or row.ended < self.since):
            return False
        if self.until is not None and (row.started is None or row.started > self.until):
            return False
        if not self.words:
            return True
        text = fold("\n".join(
            (row.title, row.session, row.project, row.branch, row.agent, row.model)
        ))  # fmt: skip
        return all(word in text for word in fold(self.words).split())


def list_sessions(
    snapshot: LibrarySnapshot,
    wanted: SessionFilter,
    *,
    limit: int | None = None,
    cursor: str | None = None,
    reveal: bool = False,
    for_model: bool = False,
    calling_session: str = "",
    max_bytes: int | None = None,
) -> dict[str, Any]:
    """One page of sessions, by the time of their last entry, those without one last.

    `for_model` leaves out where sessions lie and how they are resumed, and bounds every field.
    `calling_session` is left out, and counted in `left_out` where the page passed it. A page that
    ends at `max_bytes` says so.

    Raises:
        InvalidArgument: a limit below 1, a malformed cursor or one of another list.
    """
    page = clamp(PAGE, limit)
    after = _decode(cursor, wanted) if cursor is not None else None
    reply = Reply(max_bytes or sys.maxsize)
    reply.note(page.note)
    reply.put("sessions", [])
    last: SessionRow | None = None
    returned = left_out = 0
    stopped = ""
    has_more = False
    for row in _rows(snapshot, wanted, after):
        if row.session == calling_session:
            left_out += 1
            continue
        has_more = returned == page.value
        if has_more:
            break
        view = model_session_view(row) if for_model else session_view(row, reveal=reveal)
        if not reply.add("sessions", view):
            has_more, stopped = True, "bytes"
            break
        last = row
        returned += 1
    reply.put("returned", returned)
    reply.put("has_more", has_more)
    reply.put("next_cursor", _encode(last, wanted) if has_more and last is not None else None)
    if stopped:
        reply.put("stopped", stopped)
    if calling_session:
        reply.put("left_out", {"calling_session": left_out})
    reply.put("refreshed_at", format_time(snapshot.refreshed_at or None))
    return reply.build()


def iterate_sessions(
    snapshot: LibrarySnapshot, wanted: SessionFilter, *, reveal: bool = False
) -> Iterator[dict[str, Any]]:
    """All sessions that are asked for, in the order of the pages."""
    for row in _rows(snapshot, wanted, None):
        yield session_view(row, reveal=reveal)


def session_view(row: SessionRow, *, reveal: bool = False) -> dict[str, Any]:
    """What a list says of a session; its facts masked, its id and its file as they are."""
    resume = resume_command(row)

    def shown(text: str) -> str | None:
        return shown_fact(text, reveal=reveal) or None

    return {
        "session": row.session,
        "agent": row.agent,
        "project": shown(row.project),
        "branch": shown(row.branch),
        "model": shown(row.model),
        "title": shown_title(row.title, reveal=reveal) or None,
        "started": format_time(row.started),
        "ended": format_time(row.ended),
        "turns": row.turns,
        "entries": row.kind_counts.by_kind(),
        "parent": row.parent or None,
        "sub_agent": row.sub_agent,
        "source": row.source_path or None,
        "format": row.format,
        "generation": row.generation,
        "resume_command": shown(resume.shell) if resume is not None else None,
        "run": _shown_run(row.run, reveal=reveal) or None,
    }


def _shown_run(value: Any, *, reveal: bool) -> Any:
    """The fields of a benchmark run, which may be nested; every text of them masked."""
    if isinstance(value, str):
        return shown_fact(value, reveal=reveal)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {shown_fact(name): _shown_run(each, reveal=reveal) for name, each in fields.items()}
    if isinstance(value, list):
        return [_shown_run(each, reveal=reveal) for each in cast("list[Any]", value)]
    return value


def model_session_view(row: SessionRow) -> dict[str, Any]:
    """What a model is told of a session: no place on a disk but its project; masked and bounded."""
    return {
        "session": row.session,
        "agent": shown_field(row.agent),
        "project": shown_field(row.project) or None,
        "branch": shown_field(row.branch) or None,
        "model": shown_field(row.model) or None,
        "title": shown_field(" ".join(shown_title(row.title).split())) or None,
        "started": format_time(row.started),
        "ended": format_time(row.ended),
        "turns": row.turns,
        "entries": row.kind_counts.by_kind(),
        "parent": row.parent or None,
        "sub_agent": row.sub_agent,
    }


def _rows(
    snapshot: LibrarySnapshot, wanted: SessionFilter, after: tuple[int, int] | None
) -> Iterator[SessionRow]:
    for row in snapshot.rows():
        if after is not None and _place(row) <= after:
            continue
        if wanted.admits(row):
            yield row


def _place(row: SessionRow) -> tuple[int, int]:
    """Where a session stands in the order of the list."""
    return -(row.ended if row.ended is not None else NO_TIME), row.ord


def _encode(row: SessionRow, wanted: SessionFilter) -> str:
    payload = orjson.dumps(_place(row))
    return base64.urlsafe_b64encode(_digest(payload, wanted) + payload).decode().rstrip("=")


def _decode(cursor: str, wanted: SessionFilter) -> tuple[int, int]:
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except (binascii.Error, ValueError):
        raw = b""
    payload = raw[8:]
    if not payload or raw[:8] != _digest(payload, wanted):
        raise InvalidArgument(
            "malformed cursor, or one of a list with other filters",
            hint="pass 'next_cursor' unchanged, with the filters of its first page",
        )
    ended, ord = orjson.loads(payload)
    return ended, ord


def _digest(payload: bytes, wanted: SessionFilter) -> bytes:
    return blake2b(payload + repr(wanted).encode(), digest_size=8).digest()
