"""What a workspace server and its clients say to each other about observed sessions.

    GET  …/worker-observation/sessions  →  {"sessions": [listed subject, …], "has_more": false}
    POST …/worker-observation/session   ←  {"subject": …, "generation": 3, "count": 120}
                                        →  {"segment_id", "capture", "entries", …}

A request that names the generation and count of entries it holds gets only what follows. Texts
are masked before they leave: what an entry's size counts on the far side is what crossed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from sessiondex.features.subjects import ListedSubject, Subject
from sessiondex.indexer.capture import Capture
from sessiondex.limits import FIELD, SUBJECTS
from sessiondex.masking import mask
from sessiondex.model import FLAG_BITS, SUPERSEDED, Entry, Kind, ToolPart, flag_names

PAGE_BYTES: Final = 1 << 20
"""Text in one reply; a record is never divided, so that one larger record comes alone."""

PAGE_ENTRIES: Final = 2_000

_CHUNK: Final = 256


class _Wire(BaseModel):
    # Unknown fields are passed over: a newer server may say more.
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


class SessionRequest(BaseModel):
    """Body of a request for a session; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    subject: Subject
    generation: Annotated[int, Field(ge=0)] = 0
    """0: nothing is held."""
    count: Annotated[int, Field(ge=0)] = 0
    """Entries that are held of that generation."""


class WireSubject(_Wire):
    """A listed subject."""

    subject: Subject
    display_name: str
    relation: str = "workspace"
    status: str
    last_seen: int

    @classmethod
    def of(cls, listed: ListedSubject) -> WireSubject:
        """A subject as a server lists it."""
        return cls(
            subject=listed.subject, display_name=listed.display_name, relation=listed.relation,
            status=listed.status, last_seen=listed.last_seen,
        )  # fmt: skip

    def listed(self) -> ListedSubject:
        """The subject as a provider lists it."""
        return ListedSubject(
            subject=self.subject, display_name=self.display_name, relation=self.relation,
            status=self.status, last_seen=self.last_seen,
        )  # fmt: skip


class SessionsReply(_Wire):
    """The subjects that the caller may observe, newest first."""

    sessions: list[WireSubject]
    has_more: bool = False


Count = Annotated[int, Field(ge=0, lt=1 << 31)]

Milliseconds = Annotated[int, Field(ge=0, le=253_402_300_799_999)]
"""Epoch milliseconds, up to the year 9999."""


class WireAttachment(_Wire):
    """An attachment, without its body."""

    media_type: str
    size: Annotated[int, Field(ge=0, lt=1 << 53)]


class WireEntry(_Wire):
    """One committed entry, with its whole text."""

    record: Count
    block: Count = 0
    blocks: Count = 1
    """Blocks of its record, hidden ones counted."""
    kind: Kind
    tool_part: ToolPart | None = None
    tool_name: str = ""
    call_id: str = ""
    error: bool | None = None
    sub_kind: str = ""
    flags: list[str] = []
    timestamp: Milliseconds | None = None
    turn: Count = 0
    step: Count = 0
    branch: str = ""
    model: str = ""
    summary: str = ""
    attachments: list[WireAttachment] = []
    is_anchor: bool = False
    plan: str = ""
    text: str = ""

    @property
    def bits(self) -> int:
        """The flags that this release knows."""
        return sum(FLAG_BITS[name] for name in dict.fromkeys(self.flags) if name in FLAG_BITS)


class SessionReply(_Wire):
    """A session from the first entry that the caller did not hold."""

    segment_id: str
    capture: str
    """The server's token of the whole capture."""
    session: str
    agent: str
    generation: Annotated[int, Field(ge=1)]
    shared: list[Count] = []
    """For generations 2, 3, …: how many leading records each shares with the one before."""
    first: Count
    """Ordinal of the first entry here; 0 where the generation that the caller holds is gone."""
    records: Count
    """Records of the capture, hidden ones counted."""
    superseded: list[Annotated[tuple[Count, Count], Field(strict=False)]] = []
    """Ranges of records that were rewound or replaced, of the whole capture."""
    entries: list[WireEntry]
    has_more: bool = False
    """More entries follow; ask again with what is held then."""


def session_reply(capture: Capture, request: SessionRequest) -> dict[str, Any]:
    """The next page of a capture for a caller who holds some of it; only committed entries."""
    capture = capture.committed()
    is_held = request.generation == capture.generation and request.count <= capture.entry_count
    first = request.count if is_held else 0
    entries, has_more = _page(capture, first)
    reply = SessionReply(
        segment_id=capture.segment_id or capture.session,
        capture=capture.token,
        session=capture.session,
        agent=capture.agent,
        generation=capture.generation,
        shared=list(capture.row.shared),
        first=first,
        records=capture.record_count,
        superseded=_superseded(capture),
        entries=entries,
        has_more=has_more,
    )
    return reply.model_dump(exclude_defaults=True)


def _page(capture: Capture, first: int) -> tuple[list[WireEntry], bool]:
    """Entries from an ordinal on, whole records, within the bounds of a page."""
    found: list[WireEntry] = []
    size = 0
    for at in range(first, capture.entry_count, _CHUNK):
        for entry in capture.entries(at, at + _CHUNK):
            is_full = size > PAGE_BYTES or len(found) >= PAGE_ENTRIES
            if is_full and found[-1].record != entry.ref.record:
                return found, True
            found.append(_wire_entry(capture, entry))
            size += entry.total_bytes
    return found, False


def _wire_entry(capture: Capture, entry: Entry) -> WireEntry:
    return WireEntry(
        record=entry.ref.record,
        block=entry.ref.block,
        blocks=capture.record(entry.ref.record).blocks,
        kind=entry.kind,
        tool_part=entry.tool_part,
        tool_name=_field(entry.tool_name),
        call_id=_field(entry.call_id),
        error=entry.error,
        sub_kind=_field(entry.sub_kind),
        flags=flag_names(capture.flags(entry)),
        timestamp=entry.timestamp,
        turn=entry.turn,
        step=entry.step,
        branch=_field(entry.branch),
        model=_field(entry.model),
        summary=mask(entry.summary).text,
        attachments=[
            WireAttachment(media_type=_field(each.media_type), size=each.size)
            for each in entry.attachments
        ],
        is_anchor=entry.is_anchor,
        plan=mask(entry.plan).text,
        text=mask(capture.text(entry).decode()).text,
    )


def _field(text: str) -> str:
    return mask(text).text[: FIELD.maximum]


def _superseded(capture: Capture) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for first, last in capture.fact_ranges(SUPERSEDED):
        low, high = capture.entry(first).ref.record, capture.entry(last).ref.record
        ranges.append((low, high))
    return ranges


def sessions_reply(listed: Sequence[ListedSubject], *, has_more: bool) -> dict[str, Any]:
    """The body of a list."""
    shown = [WireSubject.of(each) for each in listed[: SUBJECTS.maximum]]
    return SessionsReply(
        sessions=shown, has_more=has_more or len(listed) > SUBJECTS.maximum
    ).model_dump()
